package kubernetes_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunhe.dev/yunhe/adapters/kubernetes"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

func TestRuns(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, func(c *kubernetes.Config) { c.Labels = map[string]string{"team": "x"} })
	r.apply(
		attempt("att_OK", "100ms", nil),
		attempt("att_exit", "100ms", func(a *adapterv1.Attempt) { a.Env["KWOK_EXIT"] = "3" }),
		attempt("att_signal", "100ms", func(a *adapterv1.Attempt) { a.Env["KWOK_EXIT"] = "139" }),
		attempt("att_late", "", func(a *adapterv1.Attempt) { a.TimeoutSeconds = 1 }),
		attempt("att_run", "", nil),
		attempt("att_big", "", func(a *adapterv1.Attempt) { a.Resources["gpu"] = 9 }),
	)
	for id, want := range map[string]struct {
		reason string
		code   int32
	}{"att_OK": {"completed", 0}, "att_exit": {"exit", 3}, "att_signal": {"signal", 139}, "att_late": {"wall_time", 143}} {
		st := r.ended(id)
		if st.Reason != want.reason || st.ExitCode != want.code || st.StartedAt == 0 || st.EndedAt < st.StartedAt {
			t.Errorf("%s ended as %v, want %+v and times", id, st, want)
		}
	}
	r.running("att_run")
	r.await("att_big", "pending with the scheduler's words", func(st *adapterv1.Status) bool {
		return st.Phase == adapterv1.Phase_PHASE_PENDING && strings.Contains(st.Message, "Insufficient nvidia.com/gpu")
	})

	// Stopping what runs, what waits, what is not there; twice.
	for range 2 {
		r.remove([]string{"att_run", "att_big", "att_never", "att_OK"}, nil)
	}
	if st := r.ended("att_run"); st.Reason != "stopped" || st.ExitCode != 143 || st.StartedAt == 0 {
		t.Errorf("stopped while it ran: %v", st)
	}
	if st := r.ended("att_big"); st.Reason != "stopped" || st.StartedAt != 0 {
		t.Errorf("stopped while it waited: %v", st)
	}
	if st := r.ended("att_never"); st.Reason != "never_started" {
		t.Errorf("stopped before it came: %v", st)
	}
	if st := r.ended("att_OK"); st.Reason != "completed" {
		t.Errorf("stopped after its end: %v", st)
	}

	// What comes late, or again, is not started.
	r.apply(attempt("att_never", "", nil), attempt("att_OK", "100ms", nil), attempt("att_gone", "", func(a *adapterv1.Attempt) { a.Seen = true }))
	if st := r.ended("att_gone"); st.Reason != "lost" {
		t.Errorf("one that ran and is not known: %v", st)
	}
	pods := r.pods("att_never")
	if n := len(pods) + len(r.pods("att_gone")); n != 0 {
		t.Errorf("%d pods of what must not start: %v", n, pods)
	}

	// Forgetting leaves no trace, is not for what runs, and may come twice.
	r.apply(attempt("att_on", "", nil))
	r.running("att_on")
	ids := []string{"att_OK", "att_exit", "att_signal", "att_late", "att_run", "att_big", "att_never", "att_gone", "att_unknown"}
	for range 2 {
		r.remove(nil, append(ids, "att_on"))
	}
	until(t, "only the running attempt is left", func() bool {
		jobs, err := r.admin.BatchV1().Jobs(r.cfg.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all, err := r.admin.CoreV1().Pods(r.cfg.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(jobs.Items) == 1 && len(all.Items) == 1
	})
	r.remove([]string{"att_on"}, nil)
	r.ended("att_on")
}

// pods are the names of an attempt's pods.
func (r *rig) pods(id string) []string {
	r.tb.Helper()
	list, err := r.admin.CoreV1().Pods(r.cfg.Namespace).List(r.tb.Context(), metav1.ListOptions{LabelSelector: "yunhe.dev/attempt=" + id})
	if err != nil {
		r.tb.Fatal(err)
	}
	var out []string
	for _, p := range list.Items {
		out = append(out, p.Name)
	}
	return out
}

// job is an attempt's Job.
func (r *rig) job(id string) *batchv1.Job {
	r.tb.Helper()
	list, err := r.admin.BatchV1().Jobs(r.cfg.Namespace).List(r.tb.Context(), metav1.ListOptions{LabelSelector: "yunhe.dev/attempt=" + id})
	if err != nil {
		r.tb.Fatal(err)
	}
	if len(list.Items) != 1 {
		r.tb.Fatalf("attempt %s has %d Jobs, want 1", id, len(list.Items))
	}
	return &list.Items[0]
}

func TestDeletedBehindOurBack(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, nil)
	r.apply(attempt("pod", "", nil), attempt("job", "", nil), attempt("done", "50ms", nil), attempt("held", "", func(a *adapterv1.Attempt) { a.Resources["gpu"] = 9 }))
	r.running("pod")
	r.running("job")
	r.ended("done")
	jobs, pods := r.admin.BatchV1().Jobs(r.cfg.Namespace), r.admin.CoreV1().Pods(r.cfg.Namespace)
	if err := pods.Delete(t.Context(), r.pods("pod")[0], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	background := metav1.DeletePropagationBackground
	for _, id := range []string{"job", "done"} {
		if err := jobs.Delete(t.Context(), r.job(id).Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			t.Fatal(err)
		}
	}
	for id, words := range map[string]string{"pod": "deleted by somebody else", "job": "Job"} {
		if st := r.ended(id); st.Reason != "lost" || st.StartedAt == 0 || st.EndedAt < st.StartedAt || !strings.Contains(st.Message, words) {
			t.Errorf("%s: %v, want lost with its time and %q", id, st, words)
		}
	}
	// The cluster remembers, so none is started again, not even by a new driver.
	for _, id := range []string{"job", "done"} {
		until(t, "tombstone of "+id, func() bool {
			list, err := jobs.List(t.Context(), metav1.ListOptions{LabelSelector: "yunhe.dev/attempt=" + id})
			if err != nil {
				t.Fatal(err)
			}
			return len(list.Items) == 1 && *list.Items[0].Spec.Suspend && *list.Items[0].Spec.Parallelism == 0 && list.Items[0].Annotations["yunhe.dev/ended"] != ""
		})
	}
	r.kill()
	r.last = map[string]*adapterv1.Status{}
	r.start()
	r.apply(attempt("pod", "", nil), attempt("job", "", nil), attempt("done", "50ms", nil))
	for id, want := range map[string]string{"pod": "lost", "job": "lost", "done": "completed"} {
		if st := r.ended(id); st.Reason != want {
			t.Errorf("%s after a new driver: %v, want %s", id, st, want)
		}
	}
	r.remove([]string{"held"}, nil)
	r.ended("held")
}

// Somebody suspends a Job that waits: it is told, and stopping works all the
// same.
func TestSuspendedByOthers(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, nil)
	r.apply(attempt("a", "", nil))
	r.await("a", "pending", func(st *adapterv1.Status) bool {
		return strings.Contains(st.Message, "no nodes available") || strings.Contains(st.Message, "Unschedulable")
	})
	j := r.job("a")
	yes := true
	j.Spec.Suspend = &yes
	until(t, "suspended", func() bool {
		j = r.job("a")
		j.Spec.Suspend = &yes
		_, err := r.admin.BatchV1().Jobs(r.cfg.Namespace).Update(t.Context(), j, metav1.UpdateOptions{})
		return err == nil
	})
	until(t, "its pod is gone", func() bool { return len(r.pods("a")) == 0 })
	r.remove([]string{"a"}, nil)
	if st := r.ended("a"); st.StartedAt != 0 {
		t.Errorf("got %v, want an end without a start", st)
	}
}

// The driver is killed again and again while attempts come, run and end.
func TestKilledInMidWork(t *testing.T) {
	t.Parallel()
	r := startRig(t, 2, nil)
	const rounds, each = 5, 20
	var ids []string
	for round := range rounds {
		var batch []*adapterv1.Attempt
		for i := range each {
			id := fmt.Sprintf("att-%d-%d", round, i)
			ids = append(ids, id)
			batch = append(batch, attempt(id, "300ms", func(a *adapterv1.Attempt) { a.Resources = nil }))
		}
		var wg sync.WaitGroup
		wg.Go(func() { // it breaks off somewhere
			_, _ = r.client.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: batch})
		})
		if round%2 == 0 {
			wg.Wait()
		}
		r.kill()
		wg.Wait()
		r.start()
		r.apply(batch...)
	}
	for _, id := range ids {
		if st := r.ended(id); st.Reason != "completed" || st.ExitCode != 0 {
			t.Errorf("%s: %v, want completed", id, st)
		}
		if n := len(r.pods(id)); n != 1 {
			t.Errorf("%s had %d pods, want 1", id, n)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, all := range r.history {
		for i := 1; i < len(all); i++ {
			if all[i-1].Phase == adapterv1.Phase_PHASE_ENDED && (all[i].Phase != all[i-1].Phase || all[i].Reason != all[i-1].Reason || all[i].EndedAt != all[i-1].EndedAt) {
				t.Errorf("%s changed after its end: %v, then %v", id, all[i-1], all[i])
			}
		}
	}
}

// An attempt that names a node runs there, also where everything is tolerated,
// and waits while there is no room.
func TestChosenNode(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]bool{"its own tolerations": false, "everything tolerated": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, 3, func(c *kubernetes.Config) {
				if all {
					c.Tolerations = []kubernetes.Toleration{{Operator: "Exists"}}
				}
			})
			on := func(id, node string, gpus int64) *adapterv1.Attempt {
				return attempt(id, "", func(a *adapterv1.Attempt) { a.Node, a.Resources["gpu"] = node, gpus })
			}
			first, last := r.label+"-0", r.label+"-2"
			if refusals := r.apply(on("a", last, 8), on("b", first, 1), on("d", "no-such-node", 1)); len(refusals) != 1 || refusals[0].AttemptId != "d" || !contains(refusals[0].Reason, "no-such-node") {
				t.Errorf("refusals are %v, want that of a node that is not there", refusals)
			}
			for id, node := range map[string]string{"a": last, "b": first} {
				if st := r.running(id); st.Node != node {
					t.Errorf("%s runs on %s, want %s", id, st.Node, node)
				}
			}
			// It waits for the node's devices though there are others.
			if refusals := r.apply(on("c", last, 1)); len(refusals) > 0 {
				t.Errorf("refused: %v", refusals)
			}
			r.await("c", "waiting for room", func(st *adapterv1.Status) bool { return contains(st.Message, "Unschedulable") })
			r.remove([]string{"a"}, nil)
			if st := r.running("c"); st.Node != last {
				t.Errorf("c runs on %s, want %s", st.Node, last)
			}
		})
	}
}
