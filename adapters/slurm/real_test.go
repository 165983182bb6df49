package slurm_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
