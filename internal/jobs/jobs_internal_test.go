package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
)

const (
	anySuccess = jobsv1.SuccessPolicy_SUCCESS_POLICY_ANY
	allSuccess = jobsv1.SuccessPolicy_SUCCESS_POLICY_ALL
	anyFailure = jobsv1.FailurePolicy_FAILURE_POLICY_ANY
	allFailure = jobsv1.FailurePolicy_FAILURE_POLICY_ALL
	noSuccess  = jobsv1.SuccessPolicy_SUCCESS_POLICY_UNSPECIFIED
	noFailure  = jobsv1.FailurePolicy_FAILURE_POLICY_UNSPECIFIED
)

// three replicas of which so many succeeded, failed and stopped; the rest runs.
func three(succeeded, failed, stopped int64) counts {
	open := 3 - succeeded - failed - stopped
	return counts{total: 3, active: open, running: open, succeeded: succeeded, failed: failed, stopped: stopped}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		row  string
		c    counts
		sp   jobsv1.SuccessPolicy
		fp   jobsv1.FailurePolicy
		want State
	}{
		{"J-6.4.14 all succeeded", three(3, 0, 0), allSuccess, anyFailure, succeeded},
		{"J-6.4.14 not all yet", three(2, 0, 0), allSuccess, anyFailure, 0},
		{"J-6.4.14 all succeeded, failure of all", three(3, 0, 0), allSuccess, allFailure, succeeded},
		{"J-6.4.15 any succeeded", three(1, 0, 0), anySuccess, anyFailure, succeeded},
		{"J-6.4.15 any succeeded after failures", three(1, 2, 0), anySuccess, allFailure, succeeded},
		{"J-6.4.15 none yet", three(0, 2, 0), anySuccess, allFailure, 0},
		{"J-6.4.16 all failed", three(0, 3, 0), allSuccess, allFailure, failed},
		{"J-6.4.16 not all yet", three(0, 2, 0), allSuccess, allFailure, 0},
		{"J-6.4.16 all failed, success of any", three(0, 3, 0), anySuccess, allFailure, failed},
		{"J-6.4.17 any failed", three(0, 1, 0), allSuccess, anyFailure, failed},
		{"J-6.4.17 any failed after successes", three(2, 1, 0), allSuccess, anyFailure, failed},
		{"J-6.4.17 any failed, success of any", three(0, 1, 0), anySuccess, anyFailure, failed},
		{"nothing named is all succeed, any fails", three(3, 0, 0), noSuccess, noFailure, succeeded},
		{"nothing named, one failed", three(2, 1, 0), noSuccess, noFailure, failed},
		{"nothing named, open", three(2, 0, 0), noSuccess, noFailure, 0},
		{"ended mixed, neither policy holds", three(2, 1, 0), allSuccess, allFailure, failed},
		{"ended with a stopped one", three(2, 0, 1), allSuccess, anyFailure, failed},
		{"mixed and open", three(1, 1, 0), allSuccess, allFailure, 0},
		{"all stopped", three(0, 0, 3), anySuccess, allFailure, failed},
	} {
		if got := decide(c.c, c.sp, c.fp); got != c.want {
			t.Errorf("%s: decide(%+v, %s, %s) = %s, want %s", c.row, c.c, c.sp, c.fp, got, c.want)
		}
	}
}

// Whatever the order of ends: a job of which nothing is open has an outcome,
// and the outcome agrees with the policy it is named after.
func TestDecideEveryOrder(t *testing.T) {
	t.Parallel()
	const total = 4
	var walk func(c counts, sp jobsv1.SuccessPolicy, fp jobsv1.FailurePolicy)
	walk = func(c counts, sp jobsv1.SuccessPolicy, fp jobsv1.FailurePolicy) {
		got := decide(c, sp, fp)
		switch {
		case got == succeeded && !(c.succeeded == total || sp == anySuccess && c.succeeded > 0):
			t.Errorf("succeeded with %+v under %s", c, sp)
		case got == failed && c.active > 0 && !(fp != allFailure && c.failed > 0):
			t.Errorf("failed early with %+v under %s", c, fp)
		case got == 0 && c.active == 0:
			t.Errorf("open with nothing left: %+v under %s, %s", c, sp, fp)
		case got == stopped:
			t.Errorf("stopped by itself: %+v", c)
		}
		if st := stateOf(c, got, false); (got == 0) == ended(st) && got == 0 {
			t.Errorf("stateOf(%+v, %s) = %s", c, got, st)
		}
		if c.active == 0 || got != 0 {
			return
		}
		c.active--
		c.running--
		for _, end := range []*int64{&c.succeeded, &c.failed, &c.stopped} {
			*end++
			walk(c, sp, fp)
			*end--
		}
	}
	for sp := range jobsv1.SuccessPolicy_name {
		for fp := range jobsv1.FailurePolicy_name {
			walk(counts{total: total, active: total, running: total}, jobsv1.SuccessPolicy(sp), jobsv1.FailurePolicy(fp))
		}
	}
}

func TestStateOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		c       counts
		outcome State
		want    State
		pause   bool
	}{
		{"all wait", counts{total: 2, unplaced: 2}, 0, queued, false},
		{"one placed, one waits", counts{total: 2, unplaced: 1, active: 1}, 0, scheduling, false},
		{"all placed", counts{total: 2, active: 2}, 0, dispatching, false},
		{"one runs", counts{total: 2, active: 2, running: 1}, 0, running, false},
		{"one runs, one waits", counts{total: 2, unplaced: 1, active: 1, running: 1}, 0, running, false},
		{"one ended, one waits again", counts{total: 2, unplaced: 1, succeeded: 1}, 0, queued, false},
		{"one ended, one on its way", counts{total: 2, active: 1, succeeded: 1}, 0, dispatching, false},
		{"decided, one left", counts{total: 2, active: 1, running: 1, failed: 1}, failed, stopping, false},
		{"stop asked, two left", counts{total: 2, active: 2}, stopped, stopping, false},
		{"decided and over", counts{total: 2, failed: 1, stopped: 1}, failed, failed, false},
		{"stopped and over", counts{total: 2, stopped: 2}, stopped, stopped, false},
		{"succeeded and over", counts{total: 2, succeeded: 2}, succeeded, succeeded, false},
		{"paused while it waits", counts{total: 2, unplaced: 2}, 0, paused, true},
		{"paused, all stand still", counts{total: 2, active: 2, paused: 2}, 0, paused, true},
		{"paused, some wait", counts{total: 3, unplaced: 1, active: 2, paused: 2}, 0, paused, true},
		{"pausing, one still runs", counts{total: 2, active: 2, running: 1, paused: 1}, 0, running, true},
		{"pausing, one on its way", counts{total: 2, active: 2, paused: 1}, 0, dispatching, true},
		{"resuming, none runs yet", counts{total: 2, active: 2, paused: 2}, 0, paused, false},
		{"resuming, one runs", counts{total: 2, active: 2, running: 1, paused: 1}, 0, running, false},
		{"stop asked of a paused one", counts{total: 2, active: 2, paused: 2}, stopped, stopping, false},
	} {
		if got := stateOf(c.c, c.outcome, c.pause); got != c.want {
			t.Errorf("%s: stateOf(%+v, %s) = %s, want %s", c.name, c.c, c.outcome, got, c.want)
		}
	}
}

func TestTrainStatus(t *testing.T) {
	t.Parallel()
	want := map[State]string{ // decision 4
		queued: "pending", scheduling: "pending", dispatching: "pending", jobsv1.State_STATE_PENDING: "pending", jobsv1.State_STATE_PAUSED: "pending",
		running: "running", jobsv1.State_STATE_MIGRATING: "running", stopping: "running",
		succeeded: "completed", failed: "failed", stopped: "failed",
	}
	for n := range jobsv1.State_name {
		st := State(n)
		if st == jobsv1.State_STATE_UNSPECIFIED {
			continue
		}
		if got := trainStatus(st); got != want[st] {
			t.Errorf("trainStatus(%s) = %q, want %q", st, got, want[st])
		}
	}
}

func testCatalog() *registry.Catalog {
	return &registry.Catalog{
		Specs: map[string]*registry.Spec{
			"small":  {ID: "small", Quantity: core.Quantities{core.CPU: 1000, core.Memory: 512 << 20}},
			"medium": {ID: "medium", Quantity: core.Quantities{core.CPU: 2000, core.Memory: 2 << 30}},
		},
		Images:  map[string]*registry.Image{"host": {ID: "host"}, "picky": {ID: "picky", Specs: []string{"medium"}}},
		Centers: map[string]*registry.Center{"c1": {ID: "c1"}},
	}
}

func validJob() *jobsv1.JobSpec {
	return &jobsv1.JobSpec{Name: "n", Tasks: []*jobsv1.Task{{Name: "t", Command: "true", ImageId: "host", ResourceSpecId: "small", ReplicaNumber: 1}}}
}

func repeat(n int, f func(i int) string) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[f(i)] = "v"
	}
	return m
}

func files(n, size int) []*jobsv1.File {
	fs := make([]*jobsv1.File, n)
	for i := range fs {
		fs[i] = &jobsv1.File{Path: fmt.Sprintf("f%d", i), Content: make([]byte, size)}
	}
	return fs
}

func tasks(n int, replicas int32) []*jobsv1.Task {
	ts := make([]*jobsv1.Task, n)
	for i := range ts {
		ts[i] = proto.Clone(validJob().Tasks[0]).(*jobsv1.Task)
		ts[i].Name, ts[i].ReplicaNumber = fmt.Sprintf("t%d", i), replicas
	}
	return ts
}

func same[T any](n int, v T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// Every field at and past its limits; wrong is the one path that is named, ""
// for a specification that is taken.
func TestValidate(t *testing.T) {
	t.Parallel()
	type job = jobsv1.JobSpec
	chinese := func(n int) string { return strings.Repeat("云", n) } // 3 bytes each
	emoji := func(n int) string { return strings.Repeat("😀", n) }   // 4 bytes each
	task := func(f func(*jobsv1.Task)) func(*job) { return func(j *job) { f(j.Tasks[0]) } }
	limits := func(f func(*jobsv1.Constraints)) func(*job) {
		return task(func(t *jobsv1.Task) { t.Constraints = &jobsv1.Constraints{}; f(t.Constraints) })
	}
	for _, c := range []struct {
		name  string
		spoil func(*job)
		wrong string
	}{
		{"as it is", func(*job) {}, ""},

		{"name of 32 characters", func(j *job) { j.Name = strings.Repeat("a", 32) }, ""},
		{"name of 33 characters", func(j *job) { j.Name = strings.Repeat("a", 33) }, "name"},
		{"name of 32 Chinese characters, 96 bytes", func(j *job) { j.Name = chinese(32) }, ""},
		{"name of 31 emoji, 124 bytes", func(j *job) { j.Name = emoji(31) }, ""},
		{"name of 32 emoji, 128 bytes", func(j *job) { j.Name = emoji(32) }, "name"},
		{"name missing", func(j *job) { j.Name = "" }, "name"},
		{"name blank", func(j *job) { j.Name = " \u3000" }, "name"},
		{"name not UTF-8", func(j *job) { j.Name = "a\xff" }, "name"},
		{"name with a line break", func(j *job) { j.Name = "a\nb" }, "name"},
		{"name with a zero", func(j *job) { j.Name = "a\x00" }, "name"},
		{"name with DEL", func(j *job) { j.Name = "a\x7f" }, "name"},

		{"description of 127 bytes", func(j *job) { j.Desc = strings.Repeat("a", 127) }, ""},
		{"description of 128 bytes", func(j *job) { j.Desc = strings.Repeat("a", 128) }, "desc"},
		{"description with a tab", func(j *job) { j.Desc = "a\tb" }, "desc"},

		{"priority -100", func(j *job) { j.Priority = -100 }, ""},
		{"priority -101", func(j *job) { j.Priority = -101 }, "priority"},
		{"priority 100", func(j *job) { j.Priority = 100 }, ""},
		{"priority 101", func(j *job) { j.Priority = 101 }, "priority"},
		{"100 retries", func(j *job) { j.MaxRetries = 100 }, ""},
		{"101 retries", func(j *job) { j.MaxRetries = 101 }, "max_retries"},
		{"-1 retries", func(j *job) { j.MaxRetries = -1 }, "max_retries"},
		{"unknown success policy", func(j *job) { j.SuccessPolicy = 3 }, "success_policy"},
		{"negative success policy", func(j *job) { j.SuccessPolicy = -1 }, "success_policy"},
		{"unknown failure policy", func(j *job) { j.FailurePolicy = 3 }, "failure_policy"},

		{"32 labels", func(j *job) { j.Labels = repeat(32, func(i int) string { return fmt.Sprint("k", i) }) }, ""},
		{"33 labels", func(j *job) { j.Labels = repeat(33, func(i int) string { return fmt.Sprint("k", i) }) }, "labels"},
		{"label name of 63 bytes", func(j *job) { j.Labels = map[string]string{strings.Repeat("k", 63): "v"} }, ""},
		{"label name of 64 bytes", func(j *job) { j.Labels = map[string]string{strings.Repeat("k", 64): "v"} }, "labels." + strings.Repeat("k", 64)},
		{"label without name", func(j *job) { j.Labels = map[string]string{"": "v"} }, "labels."},
		{"label value of 64 bytes", func(j *job) { j.Labels = map[string]string{"k": strings.Repeat("v", 64)} }, "labels.k"},
		{"label value with a line break", func(j *job) { j.Labels = map[string]string{"k": "\n"} }, "labels.k"},
		{"empty label value", func(j *job) { j.Labels = map[string]string{"k": ""} }, ""},
		{"weight of 1000", func(j *job) { j.PolicyWeights = map[string]int32{"lowest-price": 1000} }, ""},
		{"weight of 1001", func(j *job) { j.PolicyWeights = map[string]int32{"lowest-price": 1001} }, "policy_weights.lowest-price"},
		{"weight of -1", func(j *job) { j.PolicyWeights = map[string]int32{"lowest-price": -1} }, "policy_weights.lowest-price"},

		{"no task", func(j *job) { j.Tasks = nil }, "tasks"},
		{"256 tasks", func(j *job) { j.Tasks = tasks(256, 1) }, ""},
		{"257 tasks", func(j *job) { j.Tasks = tasks(257, 1) }, "tasks"},
		{"a task that is null", func(j *job) { j.Tasks = append(j.Tasks, nil) }, "tasks[1]"},
		{"two tasks of one name", func(j *job) { j.Tasks = append(tasks(2, 1), tasks(1, 1)...) }, "tasks[2].name"},
		{"100000 replicas in all", func(j *job) { j.Tasks = tasks(10, 10000) }, ""},
		{"110000 replicas in all", func(j *job) { j.Tasks = tasks(11, 10000) }, "tasks"},

		{"task name of 32 characters", task(func(t *jobsv1.Task) { t.Name = strings.Repeat("a", 32) }), ""},
		{"task name of 33 characters", task(func(t *jobsv1.Task) { t.Name = strings.Repeat("a", 33) }), "tasks[0].name"},
		{"task name of 21 Chinese characters, 63 bytes", task(func(t *jobsv1.Task) { t.Name = chinese(21) }), ""},
		{"task name of 22 Chinese characters, 66 bytes", task(func(t *jobsv1.Task) { t.Name = chinese(22) }), "tasks[0].name"},
		{"task name missing", task(func(t *jobsv1.Task) { t.Name = "" }), "tasks[0].name"},
		{"task name with a control character", task(func(t *jobsv1.Task) { t.Name = "\x1b[31m" }), "tasks[0].name"},

		{"command of 64 KiB", task(func(t *jobsv1.Task) { t.Command = strings.Repeat("a", 64<<10) }), ""},
		{"command past 64 KiB", task(func(t *jobsv1.Task) { t.Command = strings.Repeat("a", 64<<10+1) }), "tasks[0].command"},
		{"command missing", task(func(t *jobsv1.Task) { t.Command = "" }), "tasks[0].command"},
		{"command blank", task(func(t *jobsv1.Task) { t.Command = " \n\t" }), "tasks[0].command"},
		{"command of lines", task(func(t *jobsv1.Task) { t.Command = "a\nb\n" }), ""},
		{"command with a zero", task(func(t *jobsv1.Task) { t.Command = "a\x00b" }), "tasks[0].command"},
		{"command not UTF-8", task(func(t *jobsv1.Task) { t.Command = "a\xff" }), "tasks[0].command"},

		{"unknown image", task(func(t *jobsv1.Task) { t.ImageId = "nope" }), "tasks[0].image_id"},
		{"image missing", task(func(t *jobsv1.Task) { t.ImageId = "" }), "tasks[0].image_id"},
		{"image of 33 characters", task(func(t *jobsv1.Task) { t.ImageId = strings.Repeat("i", 33) }), "tasks[0].image_id"},
		{"image that does not fit", task(func(t *jobsv1.Task) { t.ImageId = "picky" }), "tasks[0].resource_spec_id"},
		{"image that fits", task(func(t *jobsv1.Task) { t.ImageId, t.ResourceSpecId = "picky", "medium" }), ""},
		{"unknown specification", task(func(t *jobsv1.Task) { t.ResourceSpecId = "nope" }), "tasks[0].resource_spec_id"},
		{"specification missing", task(func(t *jobsv1.Task) { t.ResourceSpecId = "" }), "tasks[0].resource_spec_id"},
		{"specification of 33 characters", task(func(t *jobsv1.Task) { t.ResourceSpecId = strings.Repeat("s", 33) }), "tasks[0].resource_spec_id"},

		{"10000 replicas", task(func(t *jobsv1.Task) { t.ReplicaNumber = 10000 }), ""},
		{"10001 replicas", task(func(t *jobsv1.Task) { t.ReplicaNumber = 10001 }), "tasks[0].replica_number"},
		{"no replica", task(func(t *jobsv1.Task) { t.ReplicaNumber = 0 }), "tasks[0].replica_number"},
		{"-1 replicas", task(func(t *jobsv1.Task) { t.ReplicaNumber = -1 }), "tasks[0].replica_number"},
		{"least replicas an integer holds", task(func(t *jobsv1.Task) { t.ReplicaNumber = -1 << 31 }), "tasks[0].replica_number"},

		{"timeout of 30 days", task(func(t *jobsv1.Task) { t.TimeoutSeconds = 30 * 86400 }), ""},
		{"timeout past 30 days", task(func(t *jobsv1.Task) { t.TimeoutSeconds = 30*86400 + 1 }), "tasks[0].timeout_seconds"},
		{"timeout of -1", task(func(t *jobsv1.Task) { t.TimeoutSeconds = -1 }), "tasks[0].timeout_seconds"},
		{"expected -1", task(func(t *jobsv1.Task) { t.ExpectedSeconds = -1 }), "tasks[0].expected_seconds"},
		{"expected past 30 days", task(func(t *jobsv1.Task) { t.ExpectedSeconds = 30*86400 + 1 }), "tasks[0].expected_seconds"},
		{"grace of 600 s", task(func(t *jobsv1.Task) { t.StopGraceSeconds = 600 }), ""},
		{"grace of 601 s", task(func(t *jobsv1.Task) { t.StopGraceSeconds = 601 }), "tasks[0].stop_grace_seconds"},
		{"grace of -1 s", task(func(t *jobsv1.Task) { t.StopGraceSeconds = -1 }), "tasks[0].stop_grace_seconds"},
		{"scratch of all memory", task(func(t *jobsv1.Task) { t.ScratchMib = 512 }), ""},
		{"scratch past the memory", task(func(t *jobsv1.Task) { t.ScratchMib = 513 }), "tasks[0].scratch_mib"},
		{"scratch of -1", task(func(t *jobsv1.Task) { t.ScratchMib = -1 }), "tasks[0].scratch_mib"},

		{"256 variables", task(func(t *jobsv1.Task) { t.Env = repeat(256, func(i int) string { return fmt.Sprint("K", i) }) }), ""},
		{"257 variables", task(func(t *jobsv1.Task) { t.Env = repeat(257, func(i int) string { return fmt.Sprint("K", i) }) }), "tasks[0].env"},
		{"variable _", task(func(t *jobsv1.Task) { t.Env = map[string]string{"_a9": "x"} }), ""},
		{"variable beginning with a digit", task(func(t *jobsv1.Task) { t.Env = map[string]string{"9a": "x"} }), "tasks[0].env"},
		{"variable with =", task(func(t *jobsv1.Task) { t.Env = map[string]string{"a=b": "x"} }), "tasks[0].env"},
		{"variable without name", task(func(t *jobsv1.Task) { t.Env = map[string]string{"": "x"} }), "tasks[0].env"},
		{"variable of another script", task(func(t *jobsv1.Task) { t.Env = map[string]string{"é": "x"} }), "tasks[0].env"},
		{"variable name of 129 bytes", task(func(t *jobsv1.Task) { t.Env = map[string]string{strings.Repeat("a", 129): "x"} }), "tasks[0].env"},
		{"variable with a zero", task(func(t *jobsv1.Task) { t.Env = map[string]string{"A": "\x00"} }), "tasks[0].env.A"},
		{"variable not UTF-8", task(func(t *jobsv1.Task) { t.Env = map[string]string{"A": "\xff"} }), "tasks[0].env.A"},
		{"variables of 64 KiB", task(func(t *jobsv1.Task) { t.Env = map[string]string{"A": strings.Repeat("x", 64<<10-1)} }), ""},
		{"variables past 64 KiB", task(func(t *jobsv1.Task) { t.Env = map[string]string{"A": strings.Repeat("x", 64<<10)} }), "tasks[0].env"},

		{"64 files", task(func(t *jobsv1.Task) { t.Files = files(64, 1) }), ""},
		{"65 files", task(func(t *jobsv1.Task) { t.Files = files(65, 1) }), "tasks[0].files"},
		{"two files of 1 MiB", task(func(t *jobsv1.Task) { t.Files = files(2, 1<<20) }), ""},
		{"three files of 1 MiB", task(func(t *jobsv1.Task) { t.Files = files(3, 1<<20) }), "tasks"},
		{"a file past 1 MiB", task(func(t *jobsv1.Task) { t.Files = files(1, 1<<20+1) }), "tasks[0].files[0].content"},
		{"file in folders", task(func(t *jobsv1.Task) { t.Files = []*jobsv1.File{{Path: "a/b/.c"}} }), ""},
		{"file path of 255 bytes", task(func(t *jobsv1.Task) { t.Files = []*jobsv1.File{{Path: strings.Repeat("a", 255)}} }), ""},
		{"file path of 256 bytes", task(func(t *jobsv1.Task) { t.Files = []*jobsv1.File{{Path: strings.Repeat("a", 256)}} }), "tasks[0].files[0].path"},
		{"file path from the root", task(func(t *jobsv1.Task) { t.Files = []*jobsv1.File{{Path: "/etc/passwd"}} }), "tasks[0].files[0].path"},
		{"file path upward", task(func(t *jobsv1.Task) { t.Files = []*jobsv1.File{{Path: "a/../../b"}} }), "tasks[0].files[0].path"},
		{"file path with a dot", task(func(t *jobsv1.Task) { t.Files = []*jobsv1.File{{Path: "./a"}} }), "tasks[0].files[0].path"},
		{"file path that is a folder", task(func(t *jobsv1.Task) { t.Files = []*jobsv1.File{{Path: "a/"}} }), "tasks[0].files[0].path"},
		{"file path with a zero", task(func(t *jobsv1.Task) { t.Files = []*jobsv1.File{{Path: "a\x00"}} }), "tasks[0].files[0].path"},
		{"file path not UTF-8", task(func(t *jobsv1.Task) { t.Files = []*jobsv1.File{{Path: "a\xff"}} }), "tasks[0].files[0].path"},
		{"a file twice", task(func(t *jobsv1.Task) { t.Files = []*jobsv1.File{{Path: "a"}, {Path: "a"}} }), "tasks[0].files[1].path"},

		{"center that is there", limits(func(k *jobsv1.Constraints) { k.Centers = []string{"c1"} }), ""},
		{"unknown center", limits(func(k *jobsv1.Constraints) { k.Centers = []string{"c1", "c2"} }), "tasks[0].constraints.centers[1]"},
		{"65 centers", limits(func(k *jobsv1.Constraints) { k.Centers = same(65, "c1") }), "tasks[0].constraints.centers"},
		{"64 regions", limits(func(k *jobsv1.Constraints) { k.Regions = same(64, "r") }), ""},
		{"65 regions", limits(func(k *jobsv1.Constraints) { k.Regions = same(65, "r") }), "tasks[0].constraints.regions"},
		{"region without name", limits(func(k *jobsv1.Constraints) { k.Regions = []string{"r", ""} }), "tasks[0].constraints.regions[1]"},
		{"region of 64 bytes", limits(func(k *jobsv1.Constraints) { k.Regions = []string{strings.Repeat("r", 64)} }), "tasks[0].constraints.regions[0]"},
		{"expression", limits(func(k *jobsv1.Constraints) { k.Expression = `tags["green"] == "true"` }), ""},
		{"expression over live figures", limits(func(k *jobsv1.Constraints) { k.Expression = "running > 1" }), "tasks[0].constraints.expression"},
		{"expression of 2049 bytes", limits(func(k *jobsv1.Constraints) { k.Expression = strings.Repeat(" ", 2045) + "true" }), "tasks[0].constraints.expression"},
		{"grade 5", limits(func(k *jobsv1.Constraints) { k.MinSecurityGrade = 5 }), ""},
		{"grade 6", limits(func(k *jobsv1.Constraints) { k.MinSecurityGrade = 6 }), "tasks[0].constraints.min_security_grade"},
		{"grade -1", limits(func(k *jobsv1.Constraints) { k.MinSecurityGrade = -1 }), "tasks[0].constraints.min_security_grade"},
		{"price -1", limits(func(k *jobsv1.Constraints) { k.MaxPrice = -1 }), "tasks[0].constraints.max_price"},
		{"price past 10^12", limits(func(k *jobsv1.Constraints) { k.MaxPrice = 1e12 + 1 }), "tasks[0].constraints.max_price"},
	} {
		j := validJob()
		c.spoil(j)
		var k core.Check
		validate(&k, "job.", j, testCatalog())
		err := k.Err()
		var paths []string
		for _, f := range fault.FieldsOf(err) {
			if !slices.Contains(paths, f.Path) {
				paths = append(paths, f.Path)
			}
		}
		switch {
		case c.wrong == "" && err != nil:
			t.Errorf("%s: refused: %v", c.name, err)
		case c.wrong != "" && fault.KindOf(err) != fault.Invalid:
			t.Errorf("%s: error is %v, want Invalid", c.name, err)
		case c.wrong != "" && !slices.Equal(paths, []string{"job." + c.wrong}):
			t.Errorf("%s: paths %q, want only %q: %v", c.name, paths, "job."+c.wrong, err)
		}
	}
}

// The same wrong specification gets the same answer every time.
func TestValidateIsDeterministic(t *testing.T) {
	t.Parallel()
	j := validJob()
	j.Labels = repeat(12, func(i int) string { return fmt.Sprint("k\n", i) })
	j.PolicyWeights = map[string]int32{"a": -1, "b": -1, "c": -1, "d": -1}
	j.Tasks[0].Env = repeat(12, func(i int) string { return fmt.Sprint("=", i) })
	first := ""
	for range 20 {
		var k core.Check
		validate(&k, "job.", j, testCatalog())
		if err := k.Err(); first == "" {
			first = err.Error()
		} else if err.Error() != first {
			t.Fatalf("two answers for one job:\n%s\n%s", first, err)
		}
	}
}

// Names of a job that is taken can be shown and stored as they are, whatever
// bytes came in.
func FuzzValidate(f *testing.F) {
	seed := func(j *jobsv1.JobSpec) {
		b, err := proto.Marshal(j)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	j := validJob()
	seed(j)
	j.Tasks[0].Env = map[string]string{"A": "b"}
	j.Tasks[0].Files = []*jobsv1.File{{Path: "a/b", Content: []byte("x"), Executable: true}}
	j.Tasks[0].Constraints = &jobsv1.Constraints{Centers: []string{"c1"}, Regions: []string{"r"}, MinSecurityGrade: 2, MaxPrice: 5}
	j.Labels = map[string]string{"k": "v"}
	j.PolicyWeights = map[string]int32{"lowest-price": 3}
	seed(j)
	seed(&jobsv1.JobSpec{Tasks: []*jobsv1.Task{{ReplicaNumber: -1}, {}}})
	cat := testCatalog()
	f.Fuzz(func(t *testing.T, b []byte) {
		j := &jobsv1.JobSpec{}
		if proto.Unmarshal(b, j) != nil {
			return
		}
		var c core.Check
		validate(&c, "job.", j, cat)
		if err := c.Err(); err != nil {
			if fault.KindOf(err) != fault.Invalid || !utf8.ValidString(err.Error()) {
				t.Fatalf("error is not for the user: %q", err)
			}
			return
		}
		total := int64(0)
		for _, k := range j.Tasks {
			total += int64(k.ReplicaNumber)
			for _, x := range slices.Collect(maps.Keys(k.Env)) {
				if strings.ContainsAny(x, "=\x00") {
					t.Fatalf("environment name %q was taken", x)
				}
			}
			for _, x := range k.Files {
				if strings.HasPrefix(x.Path, "/") || strings.Contains(x.Path, "..") && hasDots(x.Path) || strings.ContainsRune(x.Path, 0) {
					t.Fatalf("file path %q was taken", x.Path)
				}
			}
		}
		if total < 1 || total > maxTotal || strings.ContainsFunc(j.Name, func(r rune) bool { return r < ' ' }) {
			t.Fatalf("taken: %d replicas, name %q", total, j.Name)
		}
		if _, err := newRecord(core.Caller{TenantID: "t"}, j); err != nil {
			t.Fatalf("a valid job cannot be recorded: %v", err)
		}
	})
}
