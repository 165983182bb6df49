package slurm_test

import (
	"os"
	"strings"
	"testing"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// TestPreemptionByQOS: jobs of a better quality of service put jobs of another
// back, where a site orders its work so and not by partition.
func TestPreemptionByQOS(t *testing.T) {
	t.Parallel()
	needEngines(t)
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 1, CPUs: 2, Accounting: true, Conf: quick + "PreemptType=preempt/qos\nAccountingStorageEnforce=associations,qos\n"})
	for _, args := range [][]string{
		{"add", "qos", "scavenge", "Priority=1"}, {"add", "qos", "urgent", "Priority=100", "Preempt=scavenge"},
		{"add", "account", "grid"}, {"add", "user", user, "Account=grid", "QOS=scavenge,urgent", "DefaultQOS=scavenge"},
	} {
		if _, err := s.Run(t.Context(), "", "sacctmgr", append([]string{"--immediate"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config(t, s)
	cfg.Account, cfg.Accounting = "grid", true
	cfg.Partitions[1].Name, cfg.Partitions[1].Spec, cfg.Partitions[1].QOS = "main", "high", "urgent"
	v := start(t, cfg)
	low, high := attempt("sleep 1000"), attempt("true")
	low.Resources["cpu"], high.Resources["cpu"], high.ResourcespecId = 2000, 2000, "high"
	within(t, "slurmctld knows the account", func() bool { // slurmdbd tells it a moment later
		res, err := v.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{low}})
		return err == nil && len(res.Refusals) == 0
	})
	v.running(low.AttemptId)
	v.apply(high)
	if st := v.ended(high.AttemptId); st.Reason != "completed" {
		t.Errorf("status is {%v}", st)
	}
	if st := v.ended(low.AttemptId); st.Reason != "lost" || !strings.Contains(st.Message, "preempted") {
		t.Errorf("status is {%v}, want lost", st)
	}
	ghost := cfg
	ghost.Account = "ghost"
	res, err := start(t, ghost).Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{attempt("true")}})
	if err != nil || len(res.Refusals) != 1 || !strings.Contains(strings.ToLower(res.Refusals[0].Reason), "account") {
		t.Errorf("apply with an account that is not there: {%v}, %v", res, err)
	}
}

// TestOutOfMemory: a command that uses more than it asked for is ended, where
// the site has Slurm watch over it: here without cgroups, so that only
// accounting knows why.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	needEngines(t)
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 1, Accounting: true, Conf: quick + "JobAcctGatherParams=OverMemoryKill\n"})
	cfg := config(t, s)
	cfg.Accounting = true
	v := start(t, cfg)
	a := attempt(hungry + "; sleep 100")
	a.Resources["memory"] = 30 << 20
	v.apply(a)
	if st := v.ended(a.AttemptId); st.Reason != "oom" || st.StartedAt == 0 || st.MemoryPeakBytes <= 30<<20 {
		t.Errorf("status is {%v}, want oom", st)
	}
	b := attempt("kill -KILL $$")
	v.apply(b)
	if st := v.ended(b.AttemptId); st.Reason != "signal" || st.ExitCode != 137 {
		t.Errorf("status is {%v}, want signal", st)
	}
}

// TestOutOfMemoryByCgroups: the kernel ends what uses more than it asked for, and
// Slurm says so.
func TestOutOfMemoryByCgroups(t *testing.T) {
	t.Parallel()
	needEngines(t)
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err != nil {
		t.Skipf("SKIPPED: no memory controller of control groups, version 1: %v", err)
	}
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 1, Cgroups: true, Conf: quick})
	v := start(t, config(t, s))
	a, b := attempt(hungry), attempt(hungry)
	a.Resources["memory"], b.Resources["memory"] = 50<<20, 400<<20
	v.apply(a, b)
	if st := v.ended(a.AttemptId); st.Reason != "oom" || st.ExitCode != -1 || st.StartedAt == 0 || !strings.Contains(st.Message, "used more memory than it asked for") {
		t.Errorf("status is {%v}, want oom", st)
	}
	if st := v.ended(b.AttemptId); st.Reason != "completed" {
		t.Errorf("status is {%v}, want completed", st)
	}
}
