package kubernetes

import (
	"math"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

var (
	at0 = time.Unix(1_700_000_000, 0)
	at9 = at0.Add(9 * time.Second)
)

func runningPod() *podView {
	return &podView{name: "p", phase: corev1.PodRunning, node: "n", started: at0, grace: 5,
		state: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at0)}}}
}

func overPod(code int32, reason string) *podView {
	p := runningPod()
	p.phase = corev1.PodFailed
	if code == 0 {
		p.phase = corev1.PodSucceeded
	}
	p.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, StartedAt: metav1.NewTime(at0), FinishedAt: metav1.NewTime(at9)}}
	return p
}

func waitingPod(reason, message string) *podView {
	return &podView{name: "p", phase: corev1.PodPending, node: "n", state: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func with(p *podView, change func(*podView)) *podView {
	change(p)
	return p
}

func TestDecide(t *testing.T) {
	t.Parallel()
	stop := &order{Reason: "stopped"}
	failed := &finish{reason: "BackoffLimitExceeded", reply: "Job has reached the specified backoff limit", started: at0, ended: at9}
	for name, c := range map[string]struct {
		job    *jobView
		pod    *podView
		change func(*view)
		want   string // phase or reason, exit code, and what is to be done
		words  string
	}{
		"nothing but a Job":           {job: &jobView{}, want: "pending", words: "has not made its pod yet"},
		"its controller complains":    {job: &jobView{}, change: func(v *view) { v.hint = "FailedCreate: exceeded quota" }, want: "pending", words: "exceeded quota"},
		"suspended by others":         {job: &jobView{suspended: true}, want: "pending", words: "suspended by somebody else"},
		"no place":                    {job: &jobView{}, pod: &podView{phase: corev1.PodPending, unscheduled: "Unschedulable: 0/3 nodes"}, want: "pending", words: "0/3 nodes"},
		"image is loading":            {job: &jobView{}, pod: waitingPod("ContainerCreating", ""), want: "pending", words: "node n prepares it"},
		"image is not there":          {job: &jobView{}, pod: waitingPod("ImagePullBackOff", "Back-off pulling"), want: "pending stuck", words: "ImagePullBackOff: Back-off pulling"},
		"image never will be":         {job: &jobView{}, pod: waitingPod("ErrImageNeverPull", "not present"), want: "pending stuck hopeless", words: "not present"},
		"runs":                        {job: &jobView{}, pod: runningPod(), want: "running"},
		"runs, with a limit":          {job: &jobView{timeout: 60}, pod: runningPod(), want: "running timed"},
		"is to stand still":           {job: &jobView{timeout: 60, still: true}, pod: runningPod(), want: "running freeze timed"},
		"cannot stand still":          {job: &jobView{still: true}, pod: runningPod(), change: func(v *view) { v.resists = "its shell says 3" }, want: "running freeze", words: "its shell says 3"},
		"stands still":                {job: &jobView{timeout: 60, still: true, stood: stood{Since: 5}}, pod: runningPod(), want: "suspended"},
		"is to go on":                 {job: &jobView{timeout: 60, stood: stood{Since: 5}}, pod: runningPod(), want: "suspended thaw"},
		"stands still, is to stop":    {job: &jobView{still: true, stood: stood{Since: 5}, stop: stop}, pod: runningPod(), want: "running deadline=1 thaw"},
		"waits, is to stand still":    {job: &jobView{still: true}, pod: waitingPod("ContainerCreating", ""), want: "pending"},
		"stood still and ended":       {job: &jobView{still: true, stood: stood{Since: 5}}, pod: overPod(137, "Error"), want: "signal 137"},
		"its timer ended it":          {job: &jobView{timeout: 9}, pod: with(overPod(143, "Error"), func(p *podView) { p.state.Terminated.Message = overdue + "\nbye" }), want: "wall_time 143", words: "time limit"},
		"the driver ended it":         {job: &jobView{timeout: 9, stop: &order{Reason: "wall_time", Message: atLimit}}, pod: with(overPod(0, "Completed"), func(p *podView) { p.phase, p.reason = corev1.PodFailed, "DeadlineExceeded" }), want: "wall_time 0", words: "time limit"},
		"runs and is to stop":         {job: &jobView{stop: stop}, pod: with(runningPod(), func(p *podView) { p.deadline = 61 }), want: "running deadline=1"},
		"waits and is to stop":        {job: &jobView{stop: stop}, pod: waitingPod("", ""), want: "pending seal"},
		"has no pod and is to stop":   {job: &jobView{stop: stop}, want: "pending seal"},
		"was stopped before a pod":    {job: &jobView{stop: stop, suspended: true, sealed: true, idle: true}, change: func(v *view) { v.noPod = true }, want: "stopped -1"},
		"perhaps without a pod":       {job: &jobView{stop: stop, suspended: true, sealed: true, idle: true}, want: "pending check"},
		"completed":                   {job: &jobView{}, pod: overPod(0, "Completed"), want: "completed 0"},
		"exit":                        {job: &jobView{}, pod: overPod(3, "Error"), want: "exit 3"},
		"signal":                      {job: &jobView{}, pod: overPod(139, "Error"), want: "signal 139", words: "segmentation"},
		"out of memory":               {job: &jobView{}, pod: overPod(137, "OOMKilled"), want: "oom 137"},
		"no such program":             {job: &jobView{}, pod: overPod(128, "StartError"), want: "start_failed 128"},
		"time limit":                  {job: &jobView{}, pod: with(overPod(143, "Error"), func(p *podView) { p.reason = "DeadlineExceeded" }), want: "wall_time 143"},
		"stopped":                     {job: &jobView{stop: stop}, pod: with(overPod(143, "Error"), func(p *podView) { p.reason = "DeadlineExceeded" }), want: "stopped 143"},
		"stopped, it ended well":      {job: &jobView{stop: stop}, pod: with(overPod(0, "Completed"), func(p *podView) { p.phase, p.reason = corev1.PodFailed, "DeadlineExceeded" }), want: "stopped 0"},
		"it was over before the stop": {job: &jobView{stop: stop}, pod: overPod(3, "Error"), want: "exit 3"},
		"evicted for its own doing": {job: &jobView{}, pod: with(overPod(137, "Error"), func(p *podView) {
			p.reason, p.message = "Evicted", `Usage of EmptyDir volume "scratch" exceeds the limit "1Mi".`
		}), want: "signal 137", words: "EmptyDir"},
		"evicted for its node":           {job: &jobView{}, pod: with(overPod(137, "Error"), func(p *podView) { p.reason, p.message = "Evicted", "The node was low on resource: memory." }), want: "lost 137", words: "low on resource"},
		"preempted":                      {job: &jobView{}, pod: with(overPod(143, "Error"), func(p *podView) { p.disrupted = "PreemptionByScheduler: preempting" }), want: "lost 143", words: "PreemptionByScheduler"},
		"its node forgot":                {job: &jobView{}, pod: overPod(137, "ContainerStatusUnknown"), want: "lost -1"},
		"refused by its node":            {job: &jobView{}, pod: &podView{phase: corev1.PodFailed, reason: "OutOfcpu", message: "Node didn't have enough resource"}, want: "start_failed -1", words: "OutOfcpu"},
		"pod deleted":                    {job: &jobView{}, pod: with(runningPod(), func(p *podView) { p.gone = true }), want: "lost -1 seal", words: "somebody else"},
		"pod deleted, ended by its Job":  {job: &jobView{finished: failed}, pod: with(runningPod(), func(p *podView) { p.gone = true }), want: "lost -1"},
		"pod deleted by the stop":        {job: &jobView{stop: stop, sealed: true}, pod: with(runningPod(), func(p *podView) { p.gone = true }), want: "stopped -1"},
		"Job failed, pod on its way":     {job: &jobView{finished: failed}, want: "pending check"},
		"Job failed, pod gone for good":  {job: &jobView{finished: failed}, change: func(v *view) { v.noPod = true }, want: "lost -1", words: "BackoffLimitExceeded"},
		"Job complete, pod collected":    {job: &jobView{finished: &finish{complete: true, started: at0, ended: at9}}, change: func(v *view) { v.noPod = true }, want: "completed 0"},
		"Job not heard of yet":           {pod: runningPod(), want: "pending check"},
		"Job deleted":                    {pod: runningPod(), change: func(v *view) { v.noJob, v.lostWhen = true, "its Job was deleted" }, want: "lost -1", words: "its Job was deleted"},
		"noted":                          {job: &jobView{ended: &record{Reason: "exit", ExitCode: 4}, finished: failed}, pod: overPod(3, "Error"), want: "exit 4"},
		"noted, pod not yet counted":     {job: &jobView{ended: &record{Reason: "exit", ExitCode: 4}}, pod: overPod(4, "Error"), want: "exit 4"},
		"noted, and it could be started": {job: &jobView{ended: &record{Reason: "lost", ExitCode: -1}}, want: "lost -1 seal"},
	} {
		v := view{job: c.job, pod: c.pod}
		if c.change != nil {
			c.change(&v)
		}
		out := decide("a", v)
		if got := describe(out); got != c.want || !strings.Contains(out.status.Message, c.words) {
			t.Errorf("%s: got %q, %q, want %q, %q", name, got, out.status.Message, c.want, c.words)
		}
		if again := describe(decide("a", v)); again != describe(out) {
			t.Errorf("%s: then %q, now %q", name, describe(out), again)
		}
	}
}

func describe(v verdict) string {
	var out []string
	switch v.status.Phase {
	case adapterv1.Phase_PHASE_PENDING:
		out = append(out, "pending")
	case adapterv1.Phase_PHASE_RUNNING:
		out = append(out, "running")
	case adapterv1.Phase_PHASE_SUSPENDED:
		out = append(out, "suspended")
	default:
		out = append(out, v.status.Reason, resource.NewQuantity(int64(v.status.ExitCode), resource.DecimalSI).String())
	}
	if v.deadline > 0 {
		out = append(out, "deadline="+resource.NewQuantity(v.deadline, resource.DecimalSI).String())
	}
	for _, w := range []struct {
		word string
		is   bool
	}{{"check", v.check}, {"seal", v.seal}, {"stuck", v.stuck}, {"hopeless", v.hopeless}, {"freeze", v.freeze}, {"thaw", v.thaw}, {"timed", v.timed}} {
		if w.is {
			out = append(out, w.word)
		}
	}
	return strings.Join(out, " ")
}

func TestObjectNames(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, center := range []string{"a", "b"} {
		for _, id := range []string{"att_01JABC", "att_01jabc", "-", "", strings.Repeat("x", 200), strings.Repeat("x", 199) + "y"} {
			name := objectName(center, id)
			if other, ok := seen[name]; ok {
				t.Errorf("%q of %q has the name of %s", id, center, other)
			}
			seen[name] = center + "/" + id
			if len(name) > 57 { // a pod's name adds six characters and is a label
				t.Errorf("name %q has %d characters, want at most 57", name, len(name))
			}
		}
	}
}

func TestPlace(t *testing.T) {
	t.Parallel()
	type piece struct {
		at     int
		begins bool
		text   string
	}
	at := func(n int) time.Time { return at0.Add(time.Duration(n) * time.Millisecond) }
	log := []piece{{1, true, "a1\n"}, {1, true, "a2\n"}, {2, true, "long "}, {2, false, "line\n"}, {2, true, "\n"}, {2, true, "b\n"}, {3, true, "end"}}
	var whole string
	for _, p := range log {
		whole += p.text
	}
	// Cut anywhere and read again from anywhere before: the same bytes.
	for cut := range len(log) + 1 {
		for from := range max(cut, 1) {
			if !log[from].begins || cut > 0 && from > 0 && log[from].at == log[from-1].at {
				continue // a node begins at a time, with all its lines
			}
			var p place
			var got string
			for _, q := range log[:cut] {
				news, _ := p.take(at(q.at), q.begins, []byte(q.text))
				got += string(news)
			}
			p.restart()
			for _, q := range log[from:] {
				news, lost := p.take(at(q.at), q.begins, []byte(q.text))
				if lost {
					t.Errorf("cut at %d, from %d: said to be lost", cut, from)
				}
				got += string(news)
			}
			if got != whole {
				t.Errorf("cut at %d, from %d: %q, want %q", cut, from, got, whole)
			}
		}
	}
	// What is not there again is lost, and said.
	var p place
	p.take(at(1), true, []byte("a\n"))
	p.restart()
	if news, lost := p.take(at(5), true, []byte("z\n")); !lost || string(news) != "z\n" {
		t.Errorf("after a gap: %q, lost %v, want z and that something is lost", news, lost)
	}
}

func FuzzQuantities(f *testing.F) {
	for _, s := range []string{"1", "100m", "1.5Gi", "-3", "9223372036854775807", "1e30", "0"} {
		f.Add(s, s)
	}
	t := newTable(builtin)
	f.Fuzz(func(tt *testing.T, a, b string) {
		qa, err1 := resource.ParseQuantity(a)
		qb, err2 := resource.ParseQuantity(b)
		if err1 != nil || err2 != nil {
			return
		}
		list := corev1.ResourceList{"cpu": qa, "memory": qb, "nvidia.com/gpu": qa, "amd.com/gpu": qb, "pods": qa, "ephemeral-storage": qb}
		r := newResources(t, "c", nil)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: list, Capacity: list,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		r.setNode("n", n)
		r.setForeign("u", foreign{node: "n", requests: t.raw(list)})
		for name, q := range r.capacity() {
			if q != 0 {
				tt.Errorf("%s: %d left of a node that others fill", name, q)
			}
		}
		r.setForeign("u", foreign{})
		for name, q := range r.capacity() {
			if q < 0 || q == math.MinInt64 {
				tt.Errorf("%s: capacity %d", name, q)
			}
		}
		r.setNode("n", nil)
		if got := r.capacity(); len(got) != 0 {
			tt.Errorf("without nodes the capacity is %v", got)
		}
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"gitVersion":"v1.34.4"}`))
	f.Add([]byte(`{"items":[{"usage":{"cpu":"10m","memory":"1Ki"}}]}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"pod":"p"},"value":[1,"1e300"]},{"metric":{},"value":[1,"NaN"]}]}}`))
	f.Add([]byte("2026-11-21T02:00:00.000000000Z text\nmore\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := parseVersion(b); err == nil && v == "kubernetes " {
			t.Error("no version and no error")
		}
		list, _ := parseMetrics(b) // it may be anything
		for _, u := range list {
			if u.cpu < 0 || u.memory < 0 {
				t.Errorf("use of %+v", u)
			}
		}
		values, _ := parseVectors(b) // likewise
		for _, v := range values {
			if count(v.value) < 0 {
				t.Errorf("a count of %v", v.value)
			}
		}
		note := string(b)
		j := viewJob(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{noteStood: note, noteStop: note, noteEnded: note, noteTimeout: note}}})
		if j.stood.Since < 0 || j.stood.Total < 0 || j.timeout < 0 {
			t.Errorf("%q is read as %+v", note, j)
		}
		marked := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{noteNode: note}}}
		if _, err := shape(marked, askedOf(marked)); err != nil {
			t.Errorf("node that says %q: %v", note, err)
		}
		var n int
		err := lines(strings.NewReader(string(b)), func(_ time.Time, _ bool, text []byte) error {
			n += len(text)
			return nil
		})
		if err != nil || n > len(b) {
			t.Errorf("%d bytes of %d, %v", n, len(b), err)
		}
		if m := deviceMemory(string(b)); m < 0 {
			t.Errorf("memory of %d", m)
		}
	})
}
