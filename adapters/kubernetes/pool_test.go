package kubernetes_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunhe.dev/yunhe/adapters/kubernetes"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/pool"
)

// sharing is an attempt with shares of the accelerator pool, and the tickets of its passes.
func sharing(id string, tickets ...string) *adapterv1.Attempt {
	return attempt(id, "", func(a *adapterv1.Attempt) {
		a.Pool = &adapterv1.PoolShares{Lacking: "no card is free"}
		for _, ticket := range tickets {
			a.Pool.Passes = append(a.Pool.Passes, &adapterv1.PoolPass{SliceId: "slice_" + id, Addresses: []string{"tcp:10.0.0.5:7420"}, Host: "h", Ticket: ticket, TicketKey: "key of " + ticket})
		}
	})
}

// TestShares: the pod of a run with shares of the accelerator pool has a container
// beside, which finds the newest passes; with no more rights than are documented.
func TestShares(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	r := newRig(t, k, 1, func(c *kubernetes.Config) { c.PoolImage = "registry.example.org/yunhe:1" })
	r.cfg.KubeconfigFile = r.kubeconfig(k.URL, r.account(nil), k.CA)
	r.start()
	if res, err := r.client.Describe(t.Context(), &adapterv1.DescribeRequest{}); err != nil || !strings.Contains(res.String(), "FEATURE_POOL_CUDA") {
		t.Errorf("it offers %v, %v", res.GetFeatures(), err)
	}
	if no := r.apply(sharing("lacks")); len(no) != 1 || !no[0].Later || !strings.Contains(no[0].Reason, "no card is free") {
		t.Errorf("without passes: %v", no)
	}
	if no := r.apply(sharing("runs", "one", "two")); len(no) > 0 {
		t.Fatalf("refused: %v", no)
	}
	r.running("runs")
	job := r.job("runs")
	pod := job.Spec.Template.Spec
	if len(pod.InitContainers) != 1 || pod.InitContainers[0].RestartPolicy == nil || *pod.InitContainers[0].RestartPolicy != corev1.ContainerRestartPolicyAlways ||
		pod.InitContainers[0].Image != "registry.example.org/yunhe:1" || pod.InitContainers[0].StartupProbe == nil {
		t.Errorf("beside the command is %+v", pod.InitContainers)
	}
	if b, err := json.Marshal(job); err != nil || strings.Contains(string(b), "key of one") {
		t.Errorf("the Job shows a secret: %s", b)
	}
	env := map[string]string{}
	for _, e := range pod.Containers[0].Env {
		env[e.Name] = e.Value
	}
	if _, has := env["LD_PRELOAD"]; has || env["OCL_ICD_VENDORS"] != "/yunhe-pool/vendors" || env[pool.FileVariable] != "/yunhe-pool/slice.env" {
		t.Errorf("the command finds %v", env)
	}
	secrets := r.admin.CoreV1().Secrets(r.cfg.Namespace)
	had := func() (list []pool.Pass, s *corev1.Secret) {
		s, err := secrets.Get(t.Context(), job.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(s.Data["passes"], &list); err != nil {
			t.Fatal(err)
		}
		return list, s
	}
	list, s := had()
	if len(list) != 2 || list[0].Ticket != "one" || list[1].Key != "key of two" || list[0].Addresses[0] != "tcp:10.0.0.5:7420" {
		t.Errorf("passes are %+v", list)
	}
	if len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != job.UID {
		t.Errorf("the secret is of %+v", s.OwnerReferences)
	}
	if no := r.apply(sharing("runs", "three", "four")); len(no) > 0 {
		t.Fatalf("refused: %v", no)
	}
	if list, _ := had(); len(list) != 2 || list[0].Ticket != "three" {
		t.Errorf("after new ones came passes are %+v", list)
	}
	r.kill()
	r.start() // the next driver brings new ones, too
	r.running("runs")
	if no := r.apply(sharing("runs", "five")); len(no) > 0 {
		t.Fatalf("refused: %v", no)
	}
	if list, _ := had(); len(list) != 1 || list[0].Ticket != "five" {
		t.Errorf("of the next driver passes are %+v", list)
	}
	r.remove([]string{"runs"}, nil)
	r.ended("runs")
	r.apply(sharing("runs", "six")) // late
	if list, _ := had(); list[0].Ticket != "five" {
		t.Errorf("an ended run was given passes: %+v", list)
	}
	r.remove(nil, []string{"runs"})
	until(t, "the secret is collected", func() bool {
		_, err := secrets.Get(t.Context(), job.Name, metav1.GetOptions{})
		return err != nil
	})
}

func TestSharesNotOffered(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, nil)
	if no := r.apply(sharing("runs", "one")); len(no) != 1 || !no[0].Later || !strings.Contains(no[0].Reason, "pool_image") {
		t.Errorf("without an image: %v", no)
	}
	if res, err := r.client.Describe(t.Context(), &adapterv1.DescribeRequest{}); err != nil || strings.Contains(res.String(), "FEATURE_POOL") {
		t.Errorf("it offers %v, %v", res.GetFeatures(), err)
	}
}
