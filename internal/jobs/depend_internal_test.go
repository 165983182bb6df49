package jobs

import (
	"slices"
	"strings"
	"testing"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
)

// graph makes a job whose tasks wait for others: "a", "b:a" (success), "c:a!"
// (start), "d:a.b." (ends).
func graph(tasks ...string) *jobsv1.JobSpec {
	j := &jobsv1.JobSpec{}
	for _, text := range tasks {
		name, after, _ := strings.Cut(text, ":")
		t := &jobsv1.Task{Name: name, ReplicaNumber: 2}
		for i := 0; i < len(after); i++ {
			d := &jobsv1.Dependency{Task: after[i : i+1]}
			if i+1 < len(after) && strings.ContainsRune("!.", rune(after[i+1])) {
				i++
				d.Condition = map[byte]jobsv1.Dependency_Condition{'!': jobsv1.Dependency_CONDITION_STARTED, '.': jobsv1.Dependency_CONDITION_ENDED}[after[i]]
			}
			t.After = append(t.After, d)
		}
		j.Tasks = append(j.Tasks, t)
	}
	return j
}

func TestCheckAfter(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		tasks []string
		want  string // part of the problem, "" if there is none
	}{
		{[]string{"a", "b:a", "c:ab"}, ""},
		{[]string{"b:a", "a"}, ""}, // in any order
		{[]string{"a:a"}, "cannot wait for itself"},
		{[]string{"a:x"}, `no task "x"`},
		{[]string{"a", "b:aa"}, "named twice"},
		{[]string{"a:b", "b:a"}, "circle: a after b after a"},
		{[]string{"x", "c:a", "a:b", "b:c"}, "circle: c after a after b after c"},
	} {
		var c core.Check
		checkAfter(&c, "", graph(x.tasks...))
		err := c.Err()
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%v: %v, want %q", x.tasks, err, x.want)
		}
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	run := func(task, replica int64, st State, begun bool) *attempt {
		a := &attempt{task: task, replica: replica, number: 1, state: st}
		if begun {
			a.started = 1
		}
		if ended(st) {
			a.ended = 2
		}
		return a
	}
	waitsRetry := run(0, 1, failed, true)
	waitsRetry.retry = true
	for _, x := range []struct {
		name    string
		tasks   []string
		skipped []int
		as      []*attempt
		want    string // of each task: r ready, w waits, n never
	}{
		{"nothing ran", []string{"a", "b:a", "c:a!", "d:a."}, nil, nil, "rwww"},
		{"one of two has started", []string{"a", "b:a", "c:a!", "d:a."}, nil, []*attempt{run(0, 0, running, true)}, "rwww"},
		{"both have", []string{"a", "b:a", "c:a!", "d:a."}, nil, []*attempt{run(0, 0, running, true), run(0, 1, running, true)}, "rwrw"},
		{"both succeeded", []string{"a", "b:a", "c:a!", "d:a."}, nil, []*attempt{run(0, 0, succeeded, true), run(0, 1, succeeded, true)}, "rrrr"},
		{"one failed for good", []string{"a", "b:a", "c:a!", "d:a."}, nil, []*attempt{run(0, 0, failed, true), run(0, 1, succeeded, true)}, "rnrr"},
		{"one will be tried again", []string{"a", "b:a", "c:a!", "d:a."}, nil, []*attempt{run(0, 0, succeeded, true), waitsRetry}, "rwrw"},
		{"one never started", []string{"a", "b:a", "c:a!", "d:a."}, nil, []*attempt{run(0, 0, failed, false), run(0, 1, running, true)}, "rnnw"},
		{"a skipped task has ended", []string{"a", "b:a", "c:b", "d:b.", "e:b!"}, []int{1}, []*attempt{run(0, 0, failed, true), run(0, 1, failed, true)}, "rnnrn"},
		{"two conditions, one met", []string{"a", "b", "c:ab"}, nil, []*attempt{run(0, 0, succeeded, true), run(0, 1, succeeded, true)}, "rrw"},
		{"what has run goes on", []string{"a", "b:a"}, nil, []*attempt{run(0, 0, failed, true), run(1, 0, running, true)}, "rr"},
	} {
		var got []byte
		for _, v := range verdicts(graph(x.tasks...), x.skipped, x.as) {
			switch {
			case v.never:
				got = append(got, 'n')
			case v.waits != "":
				got = append(got, 'w')
			default:
				got = append(got, 'r')
			}
		}
		if string(got) != x.want {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}
}

func TestAgain(t *testing.T) {
	t.Parallel()
	rules := []*jobsv1.RetryRule{
		{Reasons: []string{"oom"}, MaxRetries: 1},
		{Reasons: []string{"exit"}, ExitCodes: []int32{75, 76}, MaxRetries: 3, BackoffSeconds: 10},
		{Reasons: []string{"lost", "refused"}, MaxRetries: 100, BackoffSeconds: 86400},
		{ExitCodes: []int32{1}},
	}
	fail := func(reason string, code int64) *attempt {
		return &attempt{state: failed, reason: reason, exitCode: code}
	}
	for _, x := range []struct {
		name    string
		rules   []*jobsv1.RetryRule
		now     *attempt
		earlier []*attempt
		yes     bool
		pause   int64
	}{
		{"out of memory once", rules, fail("oom", 0), nil, true, 0},
		{"out of memory twice", rules, fail("oom", 0), []*attempt{fail("oom", 0)}, false, 0},
		{"other failures do not count", rules, fail("oom", 0), []*attempt{fail("exit", 75), fail("lost", 0)}, true, 0},
		{"the pause doubles", rules, fail("exit", 76), []*attempt{fail("exit", 75), fail("exit", 76)}, true, 40},
		{"three are enough", rules, fail("exit", 75), []*attempt{fail("exit", 75), fail("exit", 76), fail("exit", 75)}, false, 80},
		{"a pause is at most a day", rules, fail("refused", 0), []*attempt{fail("lost", 0), fail("lost", 0)}, true, 86400},
		{"a code that is never tried again", rules, fail("exit", 1), nil, false, 0},
		{"none fits: max_retries", rules, fail("wall_time", 0), []*attempt{fail("exit", 2)}, true, 0},
		{"none fits, and those are used up", rules, fail("wall_time", 0), []*attempt{fail("exit", 2), fail("wall_time", 0)}, false, 0},
		{"preempted uses up nothing", rules, fail(takenPreempted, 0), nil, true, 0},
		{"preempted before does not count", rules, fail("oom", 0), []*attempt{fail(takenPreempted, 0), fail(takenRestarted, 0)}, true, 0},
		{"without rules, the third of two", nil, &attempt{state: failed, reason: "exit", number: 3}, nil, false, 0},
		{"without rules, one was spared", nil, &attempt{state: failed, reason: "exit", number: 3, spared: 1}, nil, true, 0},
	} {
		yes, pause := again(&jobsv1.JobSpec{RetryRules: x.rules, MaxRetries: 2}, x.now, x.earlier)
		if yes != x.yes || int64(pause.Seconds()) != x.pause {
			t.Errorf("%s: %v after %s, want %v after %d s", x.name, yes, pause, x.yes, x.pause)
		}
	}
	if slices.Contains([]int{ruleFor(rules, fail("exit", 75)), ruleFor(rules, fail("exit", 2))}, 0) {
		t.Error("a rule for another reason fits")
	}
}

// TestRefusedAtTheEnd: a run that its center does not take now, of a job that is
// decided, is not placed again and has not failed: it never was.
func TestRefusedAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		takenAs         string
		stopped, failed int64
	}{{takenRefused, 1, 0}, {"", 0, 1}} { // else it is refused for good
		r, a := &record{outcome: failed}, &attempt{takenAs: x.takenAs, reason: reasonRefused, message: "the disk of the machine is full"}
		r.spec = graph("a")
		if err := (&batch{}).outcome(t.Context(), r, a, reasonRefused); err != nil {
			t.Fatal(err)
		}
		if r.stopped != x.stopped || r.failed != x.failed || a.retry {
			t.Errorf("taken as %q: %d stopped, %d failed; %+v", x.takenAs, r.stopped, r.failed, a)
		}
	}
}
