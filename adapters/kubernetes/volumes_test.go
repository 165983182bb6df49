package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

const mib = 1 << 20

// storageClass makes a class whose volumes are those the test has made itself.
func (r *rig) storageClass(name string, mode storagev1.VolumeBindingMode) string {
	r.tb.Helper()
	name = r.label + "-" + name
	_, err := r.admin.StorageV1().StorageClasses().Create(r.tb.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name},
		Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &mode}, metav1.CreateOptions{})
	if err != nil {
		r.tb.Fatal(err)
	}
	return name
}

// localVolumes gives a node n file systems of a size, as volumes of a class.
// The node's kubelet must start after it.
func (r *rig) localVolumes(class string, n int, bytes int64) {
	t := r.tb
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
			t.Skipf("SKIPPED: no file system can be mounted here: %v", err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
				t.Errorf("unmount: %v", err)
			}
		})
		_, err := r.admin.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", r.label, i)},
			Spec: corev1.PersistentVolumeSpec{StorageClassName: class, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				Capacity:    corev1.ResourceList{"storage": *resource.NewQuantity(bytes, resource.BinarySI)},
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteOnce},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "rig", Operator: corev1.NodeSelectorOpIn, Values: []string{r.label}}}}}}},
				PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rig) ensureVolume(id string, bytes int64) (*adapterv1.Volume, error) {
	r.tb.Helper()
	res, err := asked(r, func(ctx context.Context) (*adapterv1.EnsureVolumeResponse, error) {
		return r.client.EnsureVolume(ctx, &adapterv1.EnsureVolumeRequest{VolumeId: id, Bytes: bytes, TenantId: "lab"})
	})
	return res.GetVolume(), err
}

func (r *rig) volume(id string, bytes int64) *adapterv1.Volume {
	r.tb.Helper()
	v, err := r.ensureVolume(id, bytes)
	if err != nil {
		r.tb.Fatal(err)
	}
	return v
}

func (r *rig) removeVolume(id string) error {
	r.tb.Helper()
	_, err := asked(r, func(ctx context.Context) (*adapterv1.RemoveVolumeResponse, error) {
		return r.client.RemoveVolume(ctx, &adapterv1.RemoveVolumeRequest{VolumeId: id})
	})
	return err
}

func (r *rig) volumes() map[string]*adapterv1.Volume {
	r.tb.Helper()
	res, err := asked(r, func(ctx context.Context) (*adapterv1.ListVolumesResponse, error) {
		return r.client.ListVolumes(ctx, &adapterv1.ListVolumesRequest{})
	})
	if err != nil {
		r.tb.Fatal(err)
	}
	out := map[string]*adapterv1.Volume{}
	for _, v := range res.Volumes {
		out[v.VolumeId] = v
	}
	return out
}

func wantError(tb testing.TB, err error, code connect.Code, words ...string) {
	tb.Helper()
	wantCode(tb, err, code)
	for _, w := range words {
		if err != nil && !strings.Contains(err.Error(), w) {
			tb.Errorf("the error is %q, want %q in it", err, w)
		}
	}
}

func mounted(id, path string) func(*adapterv1.Attempt) {
	return func(a *adapterv1.Attempt) { a.Volumes = []*adapterv1.VolumeMount{{VolumeId: id, Path: path}} }
}

// What the API server and its controllers make of claims; kwok plays the node.
func TestVolumes(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	r := newRig(t, k, 1, nil)
	r.cfg.KubeconfigFile = r.kubeconfig(k.URL, r.account(nil), k.CA)
	r.start()
	d, err := r.client.Describe(t.Context(), &adapterv1.DescribeRequest{})
	if err != nil || !slices.Contains(d.Parts, adapterv1.Part_PART_STORAGE) {
		t.Errorf("it describes itself with %v, %v", d.GetParts(), err)
	}
	_, err = r.ensureVolume("first", 10*mib)
	wantError(t, err, connect.CodeFailedPrecondition, "StorageClass")

	later := r.storageClass("later", storagev1.VolumeBindingWaitForFirstConsumer)
	r.kill()
	r.cfg.StorageClass = "nowhere"
	r.start()
	_, err = r.ensureVolume("first", 10*mib)
	wantError(t, err, connect.CodeFailedPrecondition, `"nowhere"`, "storage_class")

	r.kill()
	r.cfg.StorageClass = later
	r.start()
	for _, bytes := range []int64{10 * mib, 10 * mib, 5 * mib} {
		if v := r.volume("first", bytes); v.Bytes != 10*mib || v.VolumeId != "first" || v.TenantId != "lab" || v.UsedKnown || v.Enforced {
			t.Errorf("asked for %d bytes it is %v", bytes, v)
		}
	}
	if v := r.volume("first", 20*mib); v.Bytes != 20*mib {
		t.Errorf("grown before it was provided it is %v", v)
	}
	r.volume("other", mib)
	if all := r.volumes(); len(all) != 2 || all["first"].GetBytes() != 20*mib {
		t.Errorf("there are %v", all)
	}
	t.Run("names and sizes", func(t *testing.T) {
		for _, id := range []string{"", "a/b", strings.Repeat("x", 65)} {
			_, err := r.ensureVolume(id, mib)
			wantError(t, err, connect.CodeInvalidArgument, "volume_id")
			wantError(t, r.removeVolume(id), connect.CodeInvalidArgument, "volume_id")
		}
		for _, bytes := range []int64{0, mib - 1, 1<<50 + 1} {
			_, err := r.ensureVolume("x", bytes)
			wantError(t, err, connect.CodeInvalidArgument, "bytes")
		}
	})
	t.Run("refused", func(t *testing.T) {
		for what, change := range map[string]func(*adapterv1.Attempt){
			`"absent"`: mounted("absent", "/data"), "volumes[0].volume_id": mounted("a/b", "/data"), "volumes[0].path": mounted("first", "/data/../etc"),
			"mountPath": mounted("first", "/workspace"), // Kubernetes' own words
		} {
			refusals := r.apply(attempt("bad", "", change))
			if len(refusals) != 1 || !strings.Contains(refusals[0].Reason, what) {
				t.Errorf("refusals are %v, want one with %s", refusals, what)
			}
		}
	})
	t.Run("somebody else's claim", func(t *testing.T) {
		claims := r.admin.CoreV1().PersistentVolumeClaims(r.cfg.Namespace)
		list, err := claims.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.Items {
			if c.Annotations["yunhe.dev/volume-id"] == "other" {
				c.Annotations["yunhe.dev/volume-id"] = "another"
				if _, err := claims.Update(t.Context(), &c, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		_, err = r.ensureVolume("other", mib)
		wantError(t, err, connect.CodeFailedPrecondition, "somebody else's")
		if err := r.removeVolume("other"); err != nil {
			t.Error(err)
		}
		if all := r.volumes(); len(all) != 1 {
			t.Errorf("there are %v", all)
		}
		if list, err = claims.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 2 {
			t.Errorf("there are %d claims, %v: want somebody else's left", len(list.Items), err)
		}
	})
	t.Run("in use", func(t *testing.T) {
		r.apply(attempt("user", "", mounted("first", "/data")))
		wantError(t, r.removeVolume("first"), connect.CodeFailedPrecondition, "first", "user")
		r.remove([]string{"user"}, nil)
		r.ended("user")
		for range 2 {
			if err := r.removeVolume("first"); err != nil {
				t.Errorf("once nobody uses it: %v", err)
			}
		}
		if all := r.volumes(); len(all) != 0 {
			t.Errorf("there are %v", all)
		}
	})
	t.Run("quota", func(t *testing.T) {
		_, err := r.admin.CoreV1().ResourceQuotas(r.cfg.Namespace).Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "storage"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.storage": resource.MustParse("100Mi")}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the quota counts", func() bool {
			q, err := r.admin.CoreV1().ResourceQuotas(r.cfg.Namespace).Get(t.Context(), "storage", metav1.GetOptions{})
			return err == nil && len(q.Status.Hard) > 0
		})
		_, err = r.ensureVolume("large", 200*mib)
		wantError(t, err, connect.CodeResourceExhausted, "requests.storage")
	})
	t.Run("nothing provides it", func(t *testing.T) {
		r.kill()
		r.cfg.StorageClass = r.storageClass("now", storagev1.VolumeBindingImmediate)
		r.start()
		_, err := r.ensureVolume("stuck", mib) // the controller says why after a while
		wantError(t, err, connect.CodeResourceExhausted, "stuck")
		if err := r.removeVolume("stuck"); err != nil {
			t.Error(err)
		}
	})
	t.Run("provided, and cannot grow", func(t *testing.T) {
		_, err := r.admin.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: r.label},
			Spec: corev1.PersistentVolumeSpec{StorageClassName: r.cfg.StorageClass, Capacity: corev1.ResourceList{"storage": resource.MustParse("30Mi")},
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if v := r.volume("kept", 10*mib); v.Bytes != 30*mib {
			t.Errorf("it is %v, want all that the cluster provides", v)
		}
		_, err = r.ensureVolume("kept", 40*mib)
		wantError(t, err, connect.CodeFailedPrecondition, "kept", "grow")
		if v := r.volumes()["kept"]; v.GetBytes() != 30*mib {
			t.Errorf("it is %v", v)
		}
	})
}

// An account that may not look at storage classes makes volumes all the same; one that
// may not make claims says so, and runs what has no volumes.
func TestVolumesWithoutPermission(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	without := func(t *testing.T, resource string) *rig {
		r := newRig(t, k, 1, nil)
		r.cfg.StorageClass = r.storageClass("later", storagev1.VolumeBindingWaitForFirstConsumer)
		drop := func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
			return slices.DeleteFunc(rules, func(p rbacv1.PolicyRule) bool { return p.Resources[0] == resource })
		}
		r.cfg.KubeconfigFile = r.kubeconfig(k.URL, r.account(func(role *rbacv1.Role, all *rbacv1.ClusterRole) {
			role.Rules, all.Rules = drop(role.Rules), drop(all.Rules)
		}), k.CA)
		r.start()
		return r
	}
	t.Run("storage classes", func(t *testing.T) {
		r := without(t, "storageclasses")
		if v := r.volume("data", mib); v.Bytes != mib {
			t.Errorf("it is %v", v)
		}
	})
	t.Run("claims", func(t *testing.T) {
		r := without(t, "persistentvolumeclaims")
		_, err := r.ensureVolume("data", mib)
		wantError(t, err, connect.CodeFailedPrecondition, "persistentvolumeclaims", "docs/howto/kubernetes.md")
		_, err = asked(r, func(ctx context.Context) (*adapterv1.ListVolumesResponse, error) {
			return r.client.ListVolumes(ctx, &adapterv1.ListVolumesRequest{})
		})
		wantError(t, err, connect.CodeFailedPrecondition, "persistentvolumeclaims")
		wantError(t, r.removeVolume("data"), connect.CodeFailedPrecondition, "persistentvolumeclaims")
		if refusals := r.apply(attempt("with", "", mounted("data", "/data")), attempt("without", "", nil)); len(refusals) != 1 || !contains(refusals[0].Reason, "persistentvolumeclaims") {
			t.Errorf("refusals are %v", refusals)
		}
		r.running("without")
	})
}

// A volume that is a file system of its own, on a real kubelet: what is written
// there stays, no more than fits is written, and how full it is is told.
func testVolumes(t *testing.T, r *rig) {
	r.tb = t
	v := r.volume("data", 16*mib)
	r.apply(command("fill", `echo kept >/data/file; head -c 100000000 /dev/zero >/data/zero; echo status $?; rm /data/zero; head -c 8388608 /dev/zero >/data/half; sleep 100`, mounted("data", "/data")))
	var use *adapterv1.Volume
	until(t, "how full the volume is is known", func() bool {
		use = r.volumes()["data"]
		return use.GetUsedKnown() && use.UsedBytes >= 8*mib && use.UsedBytes < 9*mib
	})
	if !use.Enforced || use.Bytes < v.Bytes {
		t.Errorf("it is %v", use)
	}
	r.remove([]string{"fill"}, nil)
	r.ended("fill")
	if log := string(r.log("fill", 0, 1000)); !strings.Contains(log, "status 1\n") {
		t.Errorf("its log is %q, want that no more fits", log)
	}
	r.apply(command("read", `cat /data/file`, mounted("data", "/data")))
	r.ended("read")
	if log := string(r.log("read", 0, 1000)); log != "kept\n" {
		t.Errorf("the next one reads %q", log)
	}
	begun := time.Now()
	if err := r.removeVolume("data"); err != nil {
		t.Error(err)
	}
	t.Logf("figure: the volume was gone %s after it was asked", time.Since(begun).Round(time.Millisecond))
}
