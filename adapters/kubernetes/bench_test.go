package kubernetes_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"yunhe.dev/yunhe/adapters/kubernetes"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// BenchmarkDispatch compares making 1,000 one-replica attempts by the driver,
// over its socket and in batches as the platform sends them, with creating the
// same Jobs with client-go: same cluster, same run, same rate limit and
// number at a time. The metric ratio is the driver's rate by client-go's, the
// median of the rounds: 1 means that the driver costs nothing.
func BenchmarkDispatch(b *testing.B) {
	const jobs, batch, parallel = 1000, 250, 32
	r := newRig(b, cluster(b), 4, func(c *kubernetes.Config) { c.RequestsPerSecond, c.ConcurrentRequests = 100_000, parallel })
	r.start()
	if _, err := r.client.Discover(b.Context(), &adapterv1.DiscoverRequest{}); err != nil {
		b.Fatal(err)
	}
	conn, err := clientcmd.BuildConfigFromFlags("", r.k.Kubeconfig)
	if err != nil {
		b.Fatal(err)
	}
	conn.QPS, conn.Burst = 100_000, 200_000
	conn.ContentType, conn.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	direct, err := clientset.NewForConfig(conn)
	if err != nil {
		b.Fatal(err)
	}
	// A Job as the driver makes it, to be made again under other names.
	r.apply(attempt("model", "", func(a *adapterv1.Attempt) { a.Resources["gpu"] = 8; a.Resources["cpu"] = 100_000 }))
	model := r.job("model")
	r.remove([]string{"model"}, nil)

	attempts := func(round int) []*adapterv1.Attempt {
		out := make([]*adapterv1.Attempt, jobs)
		for i := range out { // they wait: what is measured is creation
			out[i] = attempt(fmt.Sprintf("att-%d-%d", round, i), "", func(a *adapterv1.Attempt) { a.Resources["gpu"] = 8; a.Resources["cpu"] = 100_000 })
		}
		return out
	}
	byDriver := func(round int) time.Duration {
		all := attempts(round)
		begun := time.Now()
		for part := range slices.Chunk(all, batch) {
			r.apply(part...)
		}
		return time.Since(begun)
	}
	byClient := func(round int) time.Duration {
		all := make([]*batchv1.Job, jobs)
		for i := range all {
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("direct-%d-%d", round, i), Namespace: r.cfg.Namespace, Labels: map[string]string{"direct": "yes"}, Annotations: model.Annotations}, Spec: *model.Spec.DeepCopy()}
			j.Spec.Selector, j.Spec.ManualSelector, j.Spec.Suspend, j.Spec.Parallelism = nil, nil, nil, nil
			j.Spec.Template.Labels = map[string]string{"direct": "yes"}
			all[i] = j
		}
		begun := time.Now()
		var group errgroup.Group
		group.SetLimit(parallel)
		for _, j := range all {
			group.Go(func() error {
				_, err := direct.BatchV1().Jobs(r.cfg.Namespace).Create(b.Context(), j, metav1.CreateOptions{})
				return err
			})
		}
		if err := group.Wait(); err != nil {
			b.Fatal(err)
		}
		return time.Since(begun)
	}
	clear := func(round int) {
		b.Helper()
		background := metav1.DeletePropagationBackground
		err := r.admin.BatchV1().Jobs(r.cfg.Namespace).DeleteCollection(b.Context(), metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{})
		if err != nil {
			b.Fatal(err)
		}
		until(b, "the cluster is empty again", func() bool {
			list, err := r.admin.CoreV1().Pods(r.cfg.Namespace).List(b.Context(), metav1.ListOptions{Limit: 1, ResourceVersion: "0"})
			return err == nil && len(list.Items) == 0
		})
	}
	var ratios, rates []float64
	for round := 0; b.Loop(); round++ {
		var own, other time.Duration
		first := func() { own = byDriver(round) }
		second := func() { other = byClient(round) }
		if round%2 == 1 { // neither is always first
			first, second = second, first
		}
		first()
		clear(round)
		second()
		clear(round)
		ratios, rates = append(ratios, float64(other)/float64(own)), append(rates, jobs/own.Seconds())
	}
	slices.Sort(ratios)
	slices.Sort(rates)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(rates[len(rates)/2], "jobs/s")
	b.ReportMetric(0, "ns/op")
}
