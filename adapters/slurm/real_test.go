package slurm_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

func TestJobs(t *testing.T) {
	t.Parallel()
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 2, GPUs: 2, Conf: quick})
	v := start(t, config(t, s))

	t.Run("completes with files, environment and log", func(t *testing.T) {
		a := attempt(`cat in/a.txt; ./run.sh "$GREETING"; echo "$HOME $PWD" >&2; ls -l run.sh | cut -c1-10`)
		a.Env = map[string]string{"GREETING": "it's  a 'test' $HOME"}
		a.Files = []*adapterv1.File{{Path: "in/a.txt", Content: []byte("file\n")}, {Path: "run.sh", Content: []byte("#!/bin/sh\necho \"got $1\"\n"), Executable: true}}
		v.apply(a)
		st := v.ended(a.AttemptId)
		dir := filepath.Join(s.Work, "c1", a.AttemptId, "files")
		want := "file\ngot it's  a 'test' $HOME\n/nonexistent " + dir + "\n-rwxr-xr-x\n"
		if got := v.log(a.AttemptId); got != want {
			t.Errorf("log is %q, want %q", got, want)
		}
		if st.Reason != "completed" || st.ExitCode != 0 || st.StartedAt == 0 || st.EndedAt < st.StartedAt || !st.LogInline || string(st.Log) != want {
			t.Errorf("status is {%v}", st)
		}
	})
	t.Run("ends as it ends", func(t *testing.T) {
		for command, want := range map[string]struct {
			reason string
			code   int32
		}{
			"exit 7":             {"exit", 7},
			"kill -SEGV $$":      {"signal", 139},
			"kill -KILL $$":      {"signal", 137},
			"exit 199":           {"exit", 199},
			"no-such-command-xx": {"exit", 127},
		} {
			a := attempt(command)
			v.apply(a)
			if st := v.ended(a.AttemptId); st.Reason != want.reason || st.ExitCode != want.code {
				t.Errorf("%s: {%v}, want %+v", command, st, want)
			}
		}
	})
	t.Run("meets its time limit on the second", func(t *testing.T) {
		a := attempt("trap 'echo told' TERM; sleep 60 & wait; wait")
		a.TimeoutSeconds, a.StopGraceSeconds = 1, 1
		v.apply(a)
		if st := v.ended(a.AttemptId); st.Reason != "wall_time" || st.EndedAt-st.StartedAt > 10e6 {
			t.Errorf("status is {%v}, want wall_time", st)
		}
		if got := v.log(a.AttemptId); got != "told\n" {
			t.Errorf("log is %q, want that SIGTERM came once", got)
		}
	})
	t.Run("gets GPUs", func(t *testing.T) {
		a := attempt(`echo "gpus=$CUDA_VISIBLE_DEVICES"`)
		a.Resources["gpu"] = 2
		v.apply(a)
		v.ended(a.AttemptId)
		if got := v.log(a.AttemptId); got != "gpus=0,1\n" {
			t.Errorf("log is %q", got)
		}
	})
	t.Run("stops while it waits and while it runs", func(t *testing.T) {
		path := proof(t, s)
		runs := attempt("trap 'echo stopping; exit 0' TERM; echo up; sleep 100 & wait")
		deaf := attempt("trap '' TERM; echo up; while :; do sleep 1; done")
		waits := attempt("echo ran >>" + path)
		waits.Resources["gpu"] = 2
		holds1, holds2 := attempt("sleep 100"), attempt("sleep 100")
		holds1.Resources["gpu"], holds2.Resources["gpu"] = 2, 2
		deaf.StopGraceSeconds = 1
		v.apply(runs, deaf, holds1, holds2)
		v.running(holds1.AttemptId)
		v.running(holds2.AttemptId)
		v.apply(waits)
		v.pending(waits.AttemptId, "in use (Resources)")
		for _, a := range []*adapterv1.Attempt{runs, deaf} {
			within(t, "the command is up", func() bool {
				b, _ := os.ReadFile(filepath.Join(s.Work, "c1", a.AttemptId, "log"))
				return strings.HasPrefix(string(b), "up\n")
			})
		}
		v.stop(waits.AttemptId, runs.AttemptId, deaf.AttemptId, holds1.AttemptId, holds2.AttemptId)
		v.stop(waits.AttemptId, runs.AttemptId, deaf.AttemptId)
		for _, a := range []*adapterv1.Attempt{waits, runs, deaf, holds1, holds2} {
			if st := v.ended(a.AttemptId); st.Reason != "stopped" || (st.StartedAt == 0) != (a == waits) || st.Message != "" {
				t.Errorf("status is {%v}, want stopped", st)
			}
		}
		if got := v.log(runs.AttemptId); got != "up\nstopping\n" {
			t.Errorf("log is %q, want that SIGTERM came once", got)
		}
		if got := lines(t, path); len(got) != 0 {
			t.Errorf("what was stopped ran: %q", got)
		}
	})
	t.Run("says who canceled it", func(t *testing.T) {
		a := attempt("sleep 100")
		v.apply(a)
		v.running(a.AttemptId)
		if _, err := s.Run(t.Context(), "", "scancel", "--name=yunhe:"+a.AttemptId); err != nil {
			t.Fatal(err)
		}
		if st := v.ended(a.AttemptId); st.Reason != "lost" || !strings.Contains(st.Message, "not by the platform") {
			t.Errorf("status is {%v}", st)
		}
	})
	t.Run("stands still and goes on", func(t *testing.T) {
		counted := func(a *adapterv1.Attempt) int { return len(v.output(s, a)) }
		suspended := func(st *adapterv1.Status) bool { return st.Phase == adapterv1.Phase_PHASE_SUSPENDED }
		// One child has a process group of its own, as containers have.
		a := attempt("setsid sh -c 'while :; do echo; sleep 0.05; done' & while :; do sleep 0.05; done")
		ends := attempt("exit 3")
		v.apply(a, ends)
		v.ended(ends.AttemptId)
		v.running(a.AttemptId)
		within(t, "it counts", func() bool { return counted(a) > 3 })
		set := func(d *driver, suspend, resume []string) {
			t.Helper()
			if _, err := d.Suspend(t.Context(), &adapterv1.SuspendRequest{Suspend: suspend, Resume: resume}); err != nil {
				t.Fatal(err)
			}
		}
		set(v, []string{a.AttemptId, ends.AttemptId, "att_unheard"}, nil)
		v.until(a.AttemptId, "suspended", suspended)
		n := counted(a)
		set(v, []string{a.AttemptId}, nil)
		again := start(t, config(t, s)) // another process knows it, too
		if st := again.until(a.AttemptId, "suspended", suspended); st.StartedAt == 0 || st.Node == "" {
			t.Errorf("status is {%v}", st)
		}
		again.mu.Lock()
		if h := again.history[a.AttemptId]; h[0] != "SUSPENDED " {
			t.Errorf("a later process tells %q", h)
		}
		again.mu.Unlock()
		if got := counted(a); got != n {
			t.Errorf("it counted from %d to %d while it was suspended", n, got)
		}
		set(again, nil, []string{a.AttemptId})
		again.running(a.AttemptId)
		v.running(a.AttemptId)
		within(t, "it counts on", func() bool { return counted(a) > n+3 })
		set(v, []string{a.AttemptId}, nil)
		v.until(a.AttemptId, "suspended", suspended)
		v.stop(a.AttemptId)
		if st := v.ended(a.AttemptId); st.Reason != "stopped" || st.EndedAt-st.StartedAt > 60e6 {
			t.Errorf("status is {%v}, want stopped", st)
		}
		again.kill()
	})
	t.Run("is not taken for ended when something else stops it", func(t *testing.T) {
		a := attempt("(sleep 0.3; kill -CONT $$) & kill -STOP $$; echo on; exit 5")
		v.apply(a)
		if st := v.ended(a.AttemptId); st.Reason != "exit" || st.ExitCode != 5 {
			t.Errorf("status is {%v}, want exit 5", st)
		}
	})
	t.Run("tells where it runs, how busy nodes are and how far the cluster is", func(t *testing.T) {
		a := attempt("sleep 100")
		v.apply(a)
		if st := v.running(a.AttemptId); st.Node != "n1" && st.Node != "n2" {
			t.Errorf("status is {%v}, want its node", st)
		}
		v.stop(a.AttemptId)
		if st := v.ended(a.AttemptId); st.Node != "n1" && st.Node != "n2" {
			t.Errorf("status is {%v}, want its node", st)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		w, err := v.Watch(ctx, &adapterv1.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		var m *adapterv1.Measurement
		for w.Receive() {
			if m = w.Msg().Measurement; m != nil && len(m.Nodes) == 2 && len(m.Paths) == 1 && m.Paths[0].JitterMicroseconds > 0 {
				break
			}
		}
		if m == nil || len(m.Nodes) != 2 || len(m.Paths) != 1 {
			t.Fatalf("measurement is {%v}, %v; want two nodes and a path", m, w.Err())
		}
		for _, n := range m.Nodes {
			if n.Name == "" || n.CpuBusyPermille < 0 || n.CpuBusyPermille > 1000 || n.MemoryBusyBytes <= 0 {
				t.Errorf("use of a node is {%v}", n)
			}
		}
		if p := m.Paths[0]; "http://"+p.Peer != s.RESTURL || p.LatencyMicroseconds <= 0 || p.LossPpm != 0 {
			t.Errorf("path is {%v}", p)
		}
	})
	t.Run("is refused for an allocation; nodes are not set with v0.0.38", func(t *testing.T) {
		a := attempt("true")
		a.AllocationId = "alc_1"
		res, err := v.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{a}})
		if err != nil || len(res.Refusals) != 1 || !strings.Contains(res.Refusals[0].Reason, "alc_1") {
			t.Errorf("apply: %v, %v", res, err)
		}
		_, err = v.SetNode(t.Context(), &adapterv1.SetNodeRequest{Name: "n1", Isolated: true})
		if connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), "v0.0.38") {
			t.Errorf("set node: %v", err)
		}
		d, err := v.Describe(t.Context(), &adapterv1.DescribeRequest{})
		if err != nil || !slices.Equal(d.Parts, []adapterv1.Part{adapterv1.Part_PART_JOB}) || !slices.Equal(d.Features, []adapterv1.Feature{adapterv1.Feature_FEATURE_NODE, adapterv1.Feature_FEATURE_SUSPEND}) {
			t.Errorf("describe: %v, %v", d, err)
		}
	})
	t.Run("is never started when it was stopped first, seen before, or forgotten", func(t *testing.T) {
		path := proof(t, s)
		first, seen, forgotten := attempt("echo first >>"+path), attempt("echo seen >>"+path), attempt("echo forgotten >>"+path)
		v.stop(first.AttemptId)
		if st := v.ended(first.AttemptId); st.Reason != "never_started" {
			t.Errorf("status is {%v}", st)
		}
		seen.Seen = true
		v.apply(first, seen, forgotten)
		if st := v.ended(seen.AttemptId); st.Reason != "lost" {
			t.Errorf("status is {%v}", st)
		}
		v.ended(forgotten.AttemptId)
		if _, err := v.Remove(t.Context(), &adapterv1.RemoveRequest{Forget: []string{forgotten.AttemptId, "att_unheard"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(s.Work, "c1", forgotten.AttemptId)); !os.IsNotExist(err) {
			t.Errorf("a forgotten attempt leaves its folder: %v", err)
		}
		again := start(t, config(t, s))
		again.apply(first, forgotten)
		for _, a := range []*adapterv1.Attempt{first, forgotten} {
			if st := again.ended(a.AttemptId); st.Reason != "lost" && st.Reason != "never_started" {
				t.Errorf("status is {%v}", st)
			}
		}
		last := attempt("echo last >>" + path)
		again.apply(last)
		again.ended(last.AttemptId)
		if got := lines(t, path); !slices.Equal(got, []string{"forgotten", "last"}) {
			t.Errorf("ran: %q", got)
		}
	})
	t.Run("refuses what can never run", func(t *testing.T) {
		image, spec, huge, resource, path, env := attempt("true"), attempt("true"), attempt("true"), attempt("true"), attempt("true"), attempt("true")
		image.ImageId, spec.ResourcespecId, huge.Resources["memory"], resource.Resources["npu"] = "ghost", "ghost", 1<<50, 1
		path.Files, env.Env = []*adapterv1.File{{Path: "../x"}}, map[string]string{"A-B": "1"}
		all := []*adapterv1.Attempt{image, spec, huge, resource, path, env}
		res, err := v.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: all})
		if err != nil || len(res.Refusals) != len(all) {
			t.Fatalf("%v, %v", res, err)
		}
		for i, want := range []string{`image "ghost"`, `specification "ghost"`, "node configuration is not available", `resource "npu"`, "../x", `"A-B"`} {
			if r := res.Refusals[i]; r.AttemptId != all[i].AttemptId || !strings.Contains(r.Reason, want) {
				t.Errorf("refusal is {%v}, want %s", r, want)
			}
		}
	})
}
