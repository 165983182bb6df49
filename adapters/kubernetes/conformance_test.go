package kubernetes_test

import (
	"os"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yunhe.dev/yunhe/adapters/kubernetes"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/sdk/adaptertest"
)

// The suite every driver passes, against a real cluster with a real kubelet,
// with the driver in a process of its own.
func TestConformance(t *testing.T) {
	if os.Getenv("YUNHE_TEST_ENGINES") == "" {
		t.Skip("SKIPPED: the whole suite takes minutes on a real cluster; run make test-engines")
	}
	k := enginetest.KubernetesCluster(t)
	r := newRig(t, k, 0, func(c *kubernetes.Config) {
		c.Images = map[string]string{"base": enginetest.KubeletImage}
		c.Prices = map[string]int64{"small": 1}
	})
	// The suite makes four volumes and grows one, before anything is in it.
	r.cfg.StorageClass = r.storageClass("local", storagev1.VolumeBindingWaitForFirstConsumer)
	r.localVolumes(r.cfg.StorageClass, 6, 32*mib)
	l := startKubelet(t, k, r.label, "")
	p := newProxy(t, k.URL)
	r.cfg.KubeconfigFile = r.kubeconfig("https://"+p.addr, k.Token, k.CA)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cordon := func(t testing.TB, body string) {
		t.Helper()
		if _, err := r.admin.CoreV1().Nodes().Patch(t.Context(), l.Node, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	adaptertest.Run(t, adaptertest.Config{
		Start:   adaptertest.Program{Command: []string{exe}, Center: r.center, Config: r.cfg, Env: []string{driverEnv + "=1"}}.Start,
		ImageID: "base", SpecID: "small", Resources: map[string]int64{"cpu": 50, "memory": 32 << 20},
		Waiting: map[string]int64{"cpu": 50, "gpu": 8},
		Break:   func(t testing.TB) { p.set(t, "refuse") },
		Repair:  func(t testing.TB) { p.set(t, "") },
		Delete: func(t testing.TB, id string) {
			t.Helper()
			background := metav1.DeletePropagationBackground
			if err := r.admin.BatchV1().Jobs(r.cfg.Namespace).Delete(t.Context(), r.job(id).Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
				t.Fatal(err)
			}
		},
		Change: func(t testing.TB) func() {
			cordon(t, `{"spec":{"unschedulable":true}}`)
			return func() { cordon(t, `{"spec":{"unschedulable":false}}`) }
		},
	})
}
