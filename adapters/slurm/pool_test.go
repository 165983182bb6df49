package slurm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// sharing is an attempt with shares of the accelerator pool, and the tickets of its passes.
func sharing(command string, tickets ...string) *adapterv1.Attempt {
	a := attempt(command)
	renew(a, tickets...)
	return a
}

func renew(a *adapterv1.Attempt, tickets ...string) {
	a.Pool = &adapterv1.PoolShares{Lacking: "no card is free"}
	for _, ticket := range tickets {
		a.Pool.Passes = append(a.Pool.Passes, &adapterv1.PoolPass{SliceId: "slice_1", Addresses: []string{"tcp:10.0.0.5:7420"}, Host: "h", Ticket: ticket, TicketKey: "key of " + ticket})
	}
}

// TestShares: an attempt with shares of the accelerator pool waits, after it has begun,
// for what has them (here something that never gets any), which finds the newest passes
// also when another process of the driver brings them; it can be stopped then. What cannot
// be started is said. That shares are had is tested with a platform (e2e/pool).
func TestShares(t *testing.T) {
	t.Parallel()
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 1, Conf: quick})
	never := filepath.Join(s.Work, "never")
	if err := os.WriteFile(never, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := config(t, s)
	cfg.PoolProgram, cfg.Requeue = never, true
	v := start(t, cfg)
	if res, err := v.Describe(t.Context(), &adapterv1.DescribeRequest{}); err != nil || !strings.Contains(res.String(), "FEATURE_POOL ") || !strings.Contains(res.String(), "FEATURE_POOL_CUDA") {
		t.Errorf("it offers %v, %v", res.GetFeatures(), err)
	}
	refused := func(v *driver, a *adapterv1.Attempt, want string) {
		t.Helper()
		res, err := v.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{a}})
		if err != nil || len(res.Refusals) != 1 || !res.Refusals[0].Later || !strings.Contains(res.Refusals[0].Reason, want) {
			t.Errorf("%v, %v, want a refusal for now: %s", res, err, want)
		}
	}
	refused(v, sharing("true"), "no card is free")

	a := sharing("echo ran", "one", "it's two")
	v.apply(a)
	file := filepath.Join(s.Work, "c1", a.AttemptId, ".passes")
	have := func(ticket string) func() bool {
		return func() bool { b, _ := os.ReadFile(file); return strings.Contains(string(b), `"ticket":"`+ticket+`"`) }
	}
	within(t, "the script has the passes it came with", func() bool { return have("one")() && have("it's two")() })
	renew(a, "three")
	v.apply(a)
	if st, err := os.Stat(file); err != nil || !have("three")() || have("one")() || st.Mode().Perm() != 0o644 {
		t.Errorf("newer passes are not there: %v, %v", st, err)
	}
	if st, err := os.Stat(filepath.Dir(file)); err != nil || st.Mode().Perm()&7 != 0 {
		t.Errorf("others may look into its folder: %v, %v", st, err)
	}
	if out, err := s.Run(t.Context(), "", "scontrol", "show", "job"); err != nil || !strings.Contains(out, "Requeue=0") {
		t.Errorf("Slurm may start it again, for which there are no passes: %s, %v", out, err)
	}
	v.kill()
	v = start(t, cfg)
	renew(a, "four")
	v.apply(a)
	if !have("four")() {
		t.Error("those that another process brings are not there")
	}
	if st := v.pending(a.AttemptId, "on n1 for its shares of the accelerator pool"); st.StartedAt != 0 {
		t.Errorf("status is {%v}, want that it waits", st)
	}
	v.stop(a.AttemptId)
	if st := v.ended(a.AttemptId); st.Reason != "stopped" || st.StartedAt == 0 {
		t.Errorf("status is {%v}, want stopped", st)
	}
	if got := v.log(a.AttemptId); got != "" {
		t.Errorf("log is %q", got)
	}
	v.kill()

	cfg.PoolProgram = "/no/such/yunhe"
	v = start(t, cfg)
	b := sharing("echo ran", "one")
	v.apply(b)
	if st := v.ended(b.AttemptId); st.Reason != "start_failed" || !strings.Contains(st.Message, "shares") {
		t.Errorf("status is {%v}, want start_failed", st)
	}
	if got := v.log(b.AttemptId); !strings.Contains(got, "/no/such/yunhe") || strings.Contains(got, "ran") {
		t.Errorf("log is %q", got)
	}
	v.kill()

	cfg.PoolProgram = ""
	v = start(t, cfg)
	refused(v, sharing("true", "one"), "pool_program")
	if res, err := v.Describe(t.Context(), &adapterv1.DescribeRequest{}); err != nil || strings.Contains(res.String(), "FEATURE_POOL") {
		t.Errorf("it offers %v, %v", res.GetFeatures(), err)
	}
}
