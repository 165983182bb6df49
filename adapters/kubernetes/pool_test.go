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

// What is of the pool node on a run's machine goes to the node that is named, if an
// operator offers it; each node tells which machine it is.
func TestSharesOfItsMachine(t *testing.T) {
	t.Parallel()
	local := func(id, node string) *adapterv1.Attempt {
		a := sharing(id, "one")
		a.Pool.Local, a.Node = true, node
		return a
	}
	not := startRig(t, 1, func(c *kubernetes.Config) { c.PoolImage = "registry.example.org/yunhe:1" })
	there := not.node("there-"+not.label, nil)
	if no := not.apply(local("runs", there.Name)); len(no) != 1 || !no[0].Later || !strings.Contains(no[0].Reason, "pool_folder") {
		t.Errorf("not offered, and taken: %v", no)
	}
	if no := not.apply(local("gone", "gone")); len(no) != 1 || !no[0].Later || !strings.Contains(no[0].Reason, "has no node") {
		t.Errorf("on a node that the platform chose, and that is gone: %v", no)
	}
	r := newRig(t, cluster(t), 1, func(c *kubernetes.Config) {
		c.PoolImage, c.PoolFolder = "registry.example.org/yunhe:1", "/var/lib/pool/shared"
	})
	r.cfg.KubeconfigFile = r.kubeconfig(r.k.URL, r.account(nil), r.k.CA)
	named := r.node("named-"+r.label, func(n *corev1.Node) { n.Status.NodeInfo.BootID = "11111111-2222-4333-8444-555555555555" })
	strange := r.node("strange-"+r.label, func(n *corev1.Node) { n.Status.NodeInfo.BootID = strings.Repeat("x", 65) })
	r.start()
	if res, err := r.client.Describe(t.Context(), &adapterv1.DescribeRequest{}); err != nil || !strings.Contains(res.String(), "FEATURE_POOL_LOCAL") {
		t.Errorf("it offers %v, %v", res.GetFeatures(), err)
	}
	r.watch().await("the nodes are told of", func(w *watched) bool {
		n, s := w.nodes[named.Name], w.nodes[strange.Name]
		return n != nil && s != nil && n.Host == "11111111-2222-4333-8444-555555555555" && s.Host == ""
	})
	if no := r.apply(local("nowhere", "")); len(no) != 1 || !no[0].Later || !strings.Contains(no[0].Reason, "on which machine") {
		t.Errorf("without a node: %v", no)
	}
	if no := r.apply(local("runs", named.Name)); len(no) > 0 {
		t.Fatalf("refused: %v", no)
	}
	r.running("runs")
	pod := r.job("runs").Spec.Template.Spec
	if a := pod.Affinity; a == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0] != named.Name {
		t.Errorf("it may run on %+v", pod.Affinity)
	}
	s, err := r.admin.CoreV1().Secrets(r.cfg.Namespace).Get(t.Context(), r.job("runs").Name, metav1.GetOptions{})
	var list []pool.Pass
	if err == nil {
		err = json.Unmarshal(s.Data["passes"], &list)
	}
	if err != nil || len(list) != 1 || list[0].Socket != "/yunhe-pool-node/pool.sock" {
		t.Errorf("passes are %+v, %v", list, err)
	}
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
