package slurm

import (
	"fmt"
	"strings"
	"testing"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/sdk/adapter"
)

// aJob is a job on a node, from second 100 to 160.
func aJob(id int64, state string, change ...func(*job)) *job {
	j := &job{ID: number{id, true}, Name: "yunhe:att_1", State: words(strings.Fields(state)), Nodes: "n1", Submitted: number{90, true}, Started: number{100, true}, Ended: number{160, true}}
	for _, c := range change {
		c(j)
	}
	return j
}

func waiting(j *job) { j.Nodes, j.Started, j.Ended = "", number{0, true}, number{0, true} }
func never(j *job)   { j.Nodes, j.Started = "", j.Ended } // Slurm gives both the time of its cancellation
func reasoned(r text) func(*job) {
	return func(j *job) { j.Reason = r }
}
func signaled(n int) func(*job) { return func(j *job) { j.Exit = exit{signal: n} } }
func exited(n int) func(*job)   { return func(j *job) { j.Exit = exit{code: n} } }

// TestJudge is the table of states in the package's comment, and every state
// Slurm has. It is by hand: a cluster does not show most of them when asked.
func TestJudge(t *testing.T) {
	t.Parallel()
	const pending, running, over = adapterv1.Phase_PHASE_PENDING, adapterv1.Phase_PHASE_RUNNING, adapterv1.Phase_PHASE_ENDED
	for _, c := range []struct {
		job     *job
		stopped bool
		phase   adapterv1.Phase
		reason  string
		code    int32
		ran     bool
		message string
	}{
		{job: aJob(1, "PENDING", waiting, reasoned("Resources")), phase: pending, message: "what it needs is in use (Resources)"},
		{job: aJob(1, "PENDING", waiting, reasoned("Priority")), phase: pending, message: "jobs of higher priority go first (Priority)"},
		{job: aJob(1, "PENDING", waiting, reasoned("QOSMaxJobsPerUserLimit")), phase: pending, message: "as many jobs running as the quality of service allows"},
		{job: aJob(1, "PENDING", waiting, reasoned("QOSGrpNodeLimit")), phase: pending, message: "a limit of the quality of service or the account is met"},
		{job: aJob(1, "PENDING", waiting, reasoned("ReqNodeNotAvail")), phase: pending, message: "down or reserved"},
		{job: aJob(1, "PENDING", waiting, reasoned("SomethingNew")), phase: pending, message: "waits (SomethingNew)"},
		{job: aJob(1, "PENDING REQUEUED", waiting, func(j *job) { j.Restarts = number{2, true} }), phase: pending, message: "put it back 2 times"},
		{job: aJob(1, "CONFIGURING"), phase: pending, message: "its nodes are being set up"},
		{job: aJob(1, "RUNNING CONFIGURING"), phase: pending, message: "set up"},
		{job: aJob(1, "REQUEUE_HOLD", waiting, reasoned("JobHeldAdmin")), phase: pending, message: "an administrator holds it"},
		{job: aJob(1, "SPECIAL_EXIT", waiting), phase: pending},
		{job: aJob(1, "RUNNING"), phase: running, ran: true, message: "Slurm job 1 on n1"},
		{job: aJob(1, "SUSPENDED"), phase: running, ran: true, message: "suspended by Slurm"},
		{job: aJob(1, "COMPLETING"), phase: running, ran: true},
		{job: aJob(1, "COMPLETED COMPLETING"), phase: running, ran: true},
		{job: aJob(1, "COMPLETED"), phase: over, reason: "completed", ran: true},
		{job: aJob(1, "FAILED", exited(3)), phase: over, reason: "exit", code: 3, ran: true},
		{job: aJob(1, "FAILED", signaled(11)), phase: over, reason: "signal", code: 139, ran: true, message: "ended by signal 11"},
		{job: aJob(1, "FAILED", signaled(signalNoStart)), phase: over, reason: "start_failed", code: -1, ran: true, message: "look at the log"},
		{job: aJob(1, "FAILED", signaled(signalStopped)), stopped: true, phase: over, reason: "stopped", code: -1, ran: true},
		{job: aJob(1, "FAILED", signaled(signalStopped)), phase: over, reason: "lost", code: -1, ran: true, message: "not by the platform"},
		{job: aJob(1, "FAILED", signaled(15)), stopped: true, phase: over, reason: "stopped", code: -1, ran: true},
		{job: aJob(1, "FAILED", signaled(signalLimit)), phase: over, reason: "wall_time", code: -1, ran: true},
		{job: aJob(1, "FAILED", signaled(53)), phase: over, reason: "start_failed", code: -1, ran: true, message: "could not start its script"},
		{job: aJob(1, "FAILED", never, reasoned("BadConstraints")), phase: over, reason: "never_started", code: -1, message: "BadConstraints"},
		{job: aJob(1, "FAILED", signaled(signalTwice)), phase: over, reason: "lost", code: -1, message: "it ran before"},
		{job: aJob(1, "FAILED", signaled(signalTwice), func(j *job) { j.Restarts = number{1, true} }), phase: over, reason: "lost", code: -1, ran: true, message: "again"},
		{job: aJob(1, "FAILED", exited(1), func(j *job) { j.Restarts = number{1, true} }), phase: over, reason: "lost", code: -1, ran: true, message: "put job 1 back after it had begun"},
		{job: aJob(1, "TIMEOUT"), phase: over, reason: "wall_time", code: -1, ran: true, message: "Slurm's time limit"},
		{job: aJob(1, "DEADLINE"), phase: over, reason: "wall_time", code: -1, ran: true},
		{job: aJob(1, "OUT_OF_MEMORY", signaled(9)), phase: over, reason: "oom", code: -1, ran: true, message: "more memory"},
		{job: aJob(1, "CANCELLED", signaled(15)), stopped: true, phase: over, reason: "stopped", code: -1, ran: true},
		{job: aJob(1, "CANCELLED", never), stopped: true, phase: over, reason: "stopped", code: -1},
		{job: aJob(1, "CANCELLED", signaled(15)), phase: over, reason: "lost", code: -1, ran: true, message: "not by the platform"},
		{job: aJob(1, "PREEMPTED"), phase: over, reason: "lost", code: -1, ran: true, message: "preempted"},
		{job: aJob(1, "NODE_FAIL"), phase: over, reason: "lost", code: -1, ran: true, message: "the node failed"},
		{job: aJob(1, "BOOT_FAIL", never), phase: over, reason: "lost", code: -1, message: "the node failed"},
		{job: aJob(1, "REVOKED", never), phase: over, reason: "lost", code: -1},
		{job: aJob(1, "SOMETHING_NEW", waiting), phase: pending},
	} {
		t.Run(fmt.Sprint(c.job.State, c.job.Exit, c.stopped), func(t *testing.T) {
			t.Parallel()
			st := judge(facts{attempt: "att_1", jobs: []*job{c.job}, stopped: c.stopped})
			if st.Phase != c.phase || st.Reason != c.reason || st.ExitCode != c.code || !strings.Contains(st.Message, c.message) {
				t.Errorf("{%v}, want %+v", st, c)
			}
			if (st.StartedAt == 100e6) != c.ran || c.phase == over && c.ran && st.EndedAt != 160e6 {
				t.Errorf("from %d to %d, want it to have run: %t", st.StartedAt, st.EndedAt, c.ran)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	later := func(j *job) { j.Started = number{120, true} }
	for name, c := range map[string]struct {
		jobs        []*job
		owner, mine int64
		superfluous []int64
	}{
		"the first of two that wait, and none is canceled yet": {[]*job{aJob(7, "PENDING", waiting), aJob(5, "PENDING", waiting)}, 0, 5, nil},
		"the one that runs; the other may be about to":         {[]*job{aJob(5, "PENDING", waiting), aJob(7, "RUNNING")}, 0, 7, nil},
		"the owner that runs; the other is superfluous":        {[]*job{aJob(5, "PENDING", waiting), aJob(7, "RUNNING")}, 7, 7, []int64{5}},
		"the owner, though another seems to have begun first":  {[]*job{aJob(5, "RUNNING"), aJob(7, "RUNNING", later)}, 7, 7, nil},
		"the one that ended, not the one that found it had":    {[]*job{aJob(5, "FAILED", signaled(signalTwice)), aJob(7, "COMPLETED", later)}, 0, 7, nil},
		"the one that ended; one that waits is superfluous":    {[]*job{aJob(5, "COMPLETED"), aJob(7, "PENDING", waiting)}, 0, 5, []int64{7}},
		"the one that waits, not the one canceled before":      {[]*job{aJob(5, "CANCELLED", never), aJob(7, "PENDING", waiting)}, 0, 7, nil},
		"none of those that found that it had run":             {[]*job{aJob(5, "FAILED", signaled(signalTwice))}, 0, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine, rest := choose(c.jobs, c.owner)
			var got []int64
			for _, j := range rest {
				got = append(got, j.ID.n)
			}
			if (mine == nil) != (c.mine == 0) || mine != nil && mine.ID.n != c.mine || fmt.Sprint(got) != fmt.Sprint(c.superfluous) {
				t.Errorf("%+v and %v, want %d and %v", mine, got, c.mine, c.superfluous)
			}
		})
	}
}

func TestGone(t *testing.T) {
	t.Parallel()
	before := &adapterv1.Status{AttemptId: "a", Phase: adapterv1.Phase_PHASE_RUNNING, StartedAt: 100e6}
	for name, c := range map[string]struct {
		record *record
		before *adapterv1.Status
		want   string
	}{
		"nothing is known":              {nil, nil, "lost -1 0 0"},
		"it ran, and no folder":         {nil, before, "lost -1 100000000 0"},
		"its folder cannot be read":     {&record{readErr: fmt.Errorf("x")}, before, "lost -1 100000000 0"},
		"its folder says it never ran":  {&record{}, &adapterv1.Status{Phase: adapterv1.Phase_PHASE_PENDING}, "never_started -1 0 0"},
		"its folder says it began":      {&record{started: true}, before, "lost -1 100000000 0"},
		"its folder says how it ended":  {&record{started: true, ended: true, why: "done", code: 4, from: 99, at: 150}, nil, "exit 4 99000000 150000000"},
		"its folder says it was well":   {&record{started: true, ended: true, why: "done", from: 99, at: 150}, before, "completed 0 100000000 150000000"},
		"its folder says its limit":     {&record{started: true, ended: true, why: "limit", code: 143, from: 99, at: 150}, nil, "wall_time -1 99000000 150000000"},
		"its folder says it was ended":  {&record{started: true, ended: true, why: "stopped", code: 143, from: 99, at: 150}, before, "lost -1 100000000 150000000"},
		"its folder says what was told": {&record{started: true, kept: &adapterv1.Status{AttemptId: "a", Reason: "oom", ExitCode: -1}}, before, "oom -1 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := gone(facts{attempt: "a", record: c.record}, c.before)
			if got := fmt.Sprint(st.Reason, " ", st.ExitCode, " ", st.StartedAt, " ", st.EndedAt); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestPutBack: a job that Slurm put back after it had begun is lost at once,
// unless that is allowed, or it had not come to its command.
func TestPutBack(t *testing.T) {
	t.Parallel()
	back := func(j *job) { waiting(j); j.Restarts = number{1, true} }
	ran := &adapterv1.Status{AttemptId: "a", Phase: adapterv1.Phase_PHASE_RUNNING, StartedAt: 50e6, Node: "n7"}
	began := &record{started: true, job: 1, from: 51}
	for name, c := range map[string]struct {
		job    *job
		record *record
		before *adapterv1.Status
		again  bool
		want   string
	}{
		"it was seen running":               {aJob(1, "PENDING", back), nil, ran, false, "ENDED lost 50000000 90000000 n7"},
		"it is being cleaned up":            {aJob(1, "COMPLETING", back), nil, ran, false, "ENDED lost 50000000 90000000 n7"},
		"it was never seen running":         {aJob(1, "PENDING", back), nil, nil, false, "PENDING  0 0 "},
		"its folder says that it began":     {aJob(1, "PENDING", back), began, nil, false, "ENDED lost 51000000 90000000 "},
		"its folder says that it did not":   {aJob(1, "PENDING", back), &record{}, ran, false, "PENDING  0 0 "},
		"its folder cannot be read":         {aJob(1, "PENDING", back), &record{readErr: fmt.Errorf("x")}, ran, false, "ENDED lost 50000000 90000000 n7"},
		"its second start is its first":     {aJob(1, "RUNNING", func(j *job) { j.Restarts = number{1, true} }), &record{started: true, job: 1, restarts: 1, from: 100}, nil, false, "RUNNING  100000000 0 n1"},
		"it may run again":                  {aJob(1, "PENDING", back), began, ran, true, "PENDING  0 0 "},
		"it was ended by Slurm's SIGTERM":   {aJob(1, "PENDING", back), &record{started: true, job: 1, ended: true, why: "stopped", code: 143, from: 51, at: 88}, ran, false, "ENDED lost 51000000 88000000 n7"},
		"it had ended, and was put back":    {aJob(1, "PENDING", back), &record{started: true, job: 1, ended: true, why: "done", code: 3, from: 51, at: 88}, nil, false, "ENDED exit 51000000 88000000 "},
		"another job of it began, not this": {aJob(1, "PENDING", back), &record{started: true, job: 9, from: 51}, nil, false, "PENDING  0 0 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := judge(facts{attempt: "a", jobs: []*job{c.job}, record: c.record, before: c.before, again: c.again})
			if got := fmt.Sprint(strings.TrimPrefix(st.Phase.String(), "PHASE_"), " ", st.Reason, " ", st.StartedAt, " ", st.EndedAt, " ", st.Node); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestStateOfNodes(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]adapterv1.NodeState{
		"idle": 1, "mixed": 1, "ALLOCATED": 1, "IDLE PLANNED": 1, "idle DRAIN": 3, "MIXED DRAIN": 3, "idle MAINTENANCE": 3, "RESERVED": 3, "down": 2, "DOWN DRAIN": 2, "IDLE NOT_RESPONDING": 2, "UNKNOWN": 2, "": 2, "SOMETHING": 2,
	} {
		f := strings.Fields(state)
		n := &node{State: words(f), Reason: "why"}
		if len(f) > 1 { // as v0.0.38 says it
			n.State, n.StateFlags = words(f[:1]), words(f[1:])
		}
		if got, reason := stateOf(n); got != want || (reason == "") != (want == 1) {
			t.Errorf("%s: %v, %q", state, got, reason)
		}
	}
}

// TestRequestVersions: what is sent depends on the version. The later form is
// by the published description; no later Slurm was there to take it.
func TestRequestVersions(t *testing.T) {
	t.Parallel()
	a := &adapterv1.Attempt{AttemptId: "att_1", JobId: "job_1", Command: "true", ImageId: "host", ResourcespecId: "p", Resources: map[string]int64{"cpu": 1500, "memory": 1 << 20, "gpu": 2}, TimeoutSeconds: 61, Priority: -3}
	for version, want := range map[int]string{
		38: `map[account:acc comment:yunhe center=c1 attempt=att_1 job=job_1 grace=0 cpus_per_task:2 current_working_directory:/ environment:map[PATH:/usr/local/bin:/usr/bin:/bin YUNHE_ATTEMPT_ID:att_1] gres:gpu:h20:2 memory_per_node:1 name:yunhe:att_1 nice:30 no_requeue:true partition:p standard_error:/dev/null standard_output:/dev/null tasks:1 time_limit:3]`,
		40: `map[account:acc comment:yunhe center=c1 attempt=att_1 job=job_1 grace=0 cpus_per_task:2 current_working_directory:/ environment:map[PATH:/usr/local/bin:/usr/bin:/bin YUNHE_ATTEMPT_ID:att_1] memory_per_node:map[infinite:false number:1 set:true] name:yunhe:att_1 nice:30 partition:p requeue:false standard_error:/dev/null standard_output:/dev/null tasks:1 time_limit:map[infinite:false number:3 set:true] tres_per_node:gres/gpu:h20:2]`,
	} {
		d := &Driver{center: "c1", cfg: Config{Directory: "/d", Account: "acc", Partitions: []Partition{{Name: "p", Spec: "p"}}, GRES: map[string]string{"gpu": "gpu:h20"}, Images: map[string]Image{"host": {}}}, api: &client{version: version}}
		r, err := d.request(a)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r["job"]); got != want {
			t.Errorf("v0.0.%d:\ngot  %s\nwant %s", version, got, want)
		}
	}
}

// A node says which specifications it takes, by its partitions, and which node of the
// accelerator pool is on it: that of its name, if the operator does not say otherwise.
func TestNodeTells(t *testing.T) {
	t.Parallel()
	d := &Driver{cfg: Config{Declared: adapter.Declared{Prices: map[string]int64{"other": 5}}, PoolFolder: "/pool/shared", PoolNodes: map[string]string{"n2": "rack-2", "n3": ""},
		Partitions: []Partition{{Name: "main", Spec: "cpu"}, {Name: "cards", Spec: "gpu"}}}}
	for _, x := range []struct {
		name, partitions, pool, specs string
	}{{"n1", "main", "n1", "cpu other"}, {"n2", "cards", "rack-2", "gpu"}, {"n3", "main cards", "", "cpu gpu other"}} {
		got := d.node(&node{Name: text(x.name), Partitions: words(strings.Fields(x.partitions))})
		if got.PoolNode != x.pool || strings.Join(got.SpecIds, " ") != x.specs {
			t.Errorf("%s: pool node %q, specifications %q", x.name, got.PoolNode, got.SpecIds)
		}
	}
	d.cfg = Config{}
	if got := d.node(&node{Name: "n1", Partitions: words{"any"}}); got.PoolNode != "" || got.SpecIds != nil {
		t.Errorf("without a configuration: %v", got)
	}
}
