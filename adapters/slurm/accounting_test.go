package slurm_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// TestAccounting: slurmdbd tells what runs used, and how those ended that
// slurmctld forgot while slurmrestd was away.
func TestAccounting(t *testing.T) {
	t.Parallel()
	needEngines(t)
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 3, CPUs: 2, Accounting: true, Conf: quick + "MinJobAge=2\n"})
	cfg := config(t, s)
	cfg.Accounting = true

	t.Run("use of a run that has just ended", func(t *testing.T) {
		v := start(t, cfg)
		a := attempt(hungry + "; exit 7")
		a.Resources["memory"] = 200 << 20
		v.apply(a)
		st := v.ended(a.AttemptId)
		if st.Reason != "exit" || st.ExitCode != 7 {
			t.Errorf("status is {%v}", st)
		}
		v.accounted(s, st, true)
	})

	// Without the folder slurmdbd alone says how a job ended.
	alone := cfg
	alone.OutputDir = ""
	for name, c := range map[string]struct {
		cfg  bool // with the folder
		code int32
		why  string
	}{
		"with the folder": {true, 7, ""},
		"without":         {false, -1, "with which code, accounting does not tell in v0.0.38"},
	} {
		t.Run("a run that slurmctld forgot, "+name, func(t *testing.T) {
			use := alone
			if c.cfg {
				use = cfg
			}
			v := start(t, use)
			well, fails, crashes, limited := attempt(hungry), attempt(hungry+"; exit 7"), attempt(hungry+"; kill -SEGV $$"), attempt(hungry+"; sleep 100")
			limited.TimeoutSeconds = 5
			all := []*adapterv1.Attempt{well, fails, crashes, limited}
			for _, a := range all {
				a.Resources["memory"] = 200 << 20
			}
			v.apply(all...)
			for _, a := range all {
				v.running(a.AttemptId)
			}
			if err := s.KillREST(); err != nil {
				t.Fatal(err)
			}
			forgotten(t, s, all...)
			if err := s.StartREST(t.Context()); err != nil {
				t.Fatal(err)
			}
			for a, want := range map[*adapterv1.Attempt]string{well: "completed 0", fails: fmt.Sprint("exit ", c.code), crashes: "signal 139", limited: "wall_time -1"} {
				st := v.ended(a.AttemptId)
				if got := fmt.Sprint(st.Reason, " ", st.ExitCode); got != want || a == fails && !strings.Contains(st.Message, c.why) {
					t.Errorf("status is {%v}, want %s", st, want)
				}
				v.accounted(s, st, a != limited)
			}
		})
		t.Run("a run that Slurm ended, and forgot, "+name, func(t *testing.T) {
			use := alone
			if c.cfg {
				use = cfg
			}
			v := start(t, use)
			requeued, preempted, failed := attempt("sleep 1000"), attempt("sleep 1000"), attempt("sleep 1000")
			all := []*adapterv1.Attempt{requeued, preempted, failed}
			node := map[*adapterv1.Attempt]string{}
			for _, a := range all {
				a.Resources["cpu"] = 2000 // a node each
			}
			v.apply(all...)
			for _, a := range all {
				node[a] = v.running(a.AttemptId).Node
			}
			id := jobID(t, s, requeued.AttemptId)
			if err := s.KillREST(); err != nil {
				t.Fatal(err)
			}
			run := func(stdin string, args ...string) {
				t.Helper()
				if _, err := s.Run(t.Context(), stdin, args[0], args[1:]...); err != nil {
					t.Fatal(err)
				}
			}
			run("", "scontrol", "update", "JobId="+id, "Requeue=1")
			run("", "scontrol", "requeue", id)
			within(t, "it can be canceled", func() bool {
				_, err := s.Run(t.Context(), "", "scancel", id)
				return err == nil
			})
			run("#!/bin/sh\nexit 0\n", "sbatch", "--partition=high", "--nodelist="+node[preempted], "--cpus-per-task=2", "--mem=50", "--output=/dev/null")
			if err := s.KillNode(node[failed]); err != nil {
				t.Fatal(err)
			}
			run("", "scontrol", "update", "NodeName="+node[failed], "State=DOWN", "Reason=test")
			forgotten(t, s, all...)
			if err := s.StartREST(t.Context()); err != nil {
				t.Fatal(err)
			}
			for a, why := range map[*adapterv1.Attempt]string{requeued: "put job " + id + " back", preempted: "preempted", failed: "node failed"} {
				if st := v.ended(a.AttemptId); st.Reason != "lost" || !strings.Contains(st.Message, why) || st.Node != node[a] {
					t.Errorf("status is {%v}, want lost: %s, on %s", st, why, node[a])
				}
			}
			if err := s.StartNode(t.Context(), node[failed]); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("a run that slurmctld forgot while no driver was there, without the folder", func(t *testing.T) {
		v := start(t, alone)
		well, crashes := attempt("true"), attempt("kill -SEGV $$")
		v.apply(well, crashes)
		v.ended(well.AttemptId)
		v.ended(crashes.AttemptId)
		v.kill()
		forgotten(t, s, well, crashes)
		again := start(t, alone)
		never := attempt("true")
		for _, a := range []*adapterv1.Attempt{well, crashes, never} {
			a.Seen = true
		}
		again.apply(well, crashes, never)
		for a, want := range map[*adapterv1.Attempt]string{well: "completed 0", crashes: "signal 139", never: "lost -1"} {
			if st := again.ended(a.AttemptId); fmt.Sprint(st.Reason, " ", st.ExitCode) != want {
				t.Errorf("status is {%v}, want %s", st, want)
			}
		}
	})
	t.Run("slurmdbd is away", func(t *testing.T) {
		v := start(t, cfg)
		if err := s.KillAccounting(); err != nil {
			t.Fatal(err)
		}
		a := attempt("exit 7")
		v.apply(a)
		if st := v.ended(a.AttemptId); st.Reason != "exit" || st.ExitCode != 7 {
			t.Errorf("status is {%v}", st)
		}
		if err := s.StartAccounting(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// hungry uses a second of CPU and, for longer than slurmd's pause between two
// looks, 80 MB of memory.
const hungry = `bash -c 'x=$(head -c 80000000 /dev/zero | tr "\\0" x); s=$SECONDS; while [ $((SECONDS - s)) -lt 2 ]; do :; done'`

// forgotten waits until slurmctld has dropped the jobs of attempts.
func forgotten(t *testing.T, s *enginetest.Slurm, as ...*adapterv1.Attempt) {
	t.Helper()
	for _, a := range as {
		within(t, "slurmctld forgets "+a.AttemptId, func() bool {
			out, err := s.Run(t.Context(), "", "squeue", "--noheader", "--states=all", "--name=yunhe:"+a.AttemptId)
			return err == nil && out == ""
		})
	}
}

// accounted compares what was told with what sacct says.
func (v *driver) accounted(s *enginetest.Slurm, st *adapterv1.Status, worked bool) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), patience)
	defer cancel()
	out, err := s.Run(ctx, "", "sacct", "--noheader", "--parsable2", "--allocations", "--starttime=2000-01-01", "--name=yunhe:"+st.AttemptId, "--format=Start,End,NodeList")
	if err != nil {
		v.Fatal(err)
	}
	seconds := func(micros int64) string { return time.UnixMicro(micros).Format("2006-01-02T15:04:05") }
	if want := seconds(st.StartedAt) + "|" + seconds(st.EndedAt) + "|" + st.Node; strings.TrimSpace(out) != want {
		v.Errorf("told %s, and sacct says %s", want, out)
	}
	if worked && (st.CpuMicroseconds < 500_000 || st.CpuMicroseconds > 60_000_000) {
		v.Errorf("CPU time is %d us, want about 2 s", st.CpuMicroseconds)
	}
	if worked && (st.MemoryPeakBytes < 80e6 || st.MemoryPeakBytes > 400e6) {
		v.Errorf("memory peak is %d, want above 80 MB", st.MemoryPeakBytes)
	}
}
