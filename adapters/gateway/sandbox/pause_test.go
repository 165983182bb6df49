package sandbox_test

import (
	"context"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
)

// pass lets about a second and a half pass on the clock that limits run by.
func pass(t *testing.T, s *sandbox.Sandbox, id string) {
	t.Helper()
	res, _ := run(t, s, small(id, "sleep 1.5"))
	expect(t, res, "completed", 0)
}

// The wall time does not count pauses, and counts all else.
func TestPauseWallTime(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	spec := small("r", "echo go; while :; do sleep 0.05; done")
	spec.WallTime = time.Second
	r, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	await(t, r, "go\n")
	if err := r.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Pause(t.Context()); err != nil || !r.Paused() {
		t.Fatalf("pausing twice: %v, paused %v", err, r.Paused())
	}
	pass(t, s, "meanwhile")
	if res, over := r.Result(); over {
		t.Fatalf("it ended while it was paused: %+v", res)
	}
	for range 2 {
		if err := r.Resume(); err != nil || r.Paused() {
			t.Fatalf("resume: %v, paused %v", err, r.Paused())
		}
	}
	res := wait(t, r)
	expect(t, res, "wall_time", -1)
	if took := res.EndedAt.Sub(res.StartedAt); took < 2400*time.Millisecond {
		t.Errorf("with a pause of 1.5 s and a wall time of 1 s it ended after %s", took)
	}
}

// A run that starts one process after another stands still, too: with version 1 of
// cgroups who waits for its child to become another program (vfork) cannot be frozen
// while that is.
func TestPauseOfStarts(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	r, err := s.Start(t.Context(), small("r", "echo go; while :; do /bin/true; done"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, r, "go\n")
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := r.Pause(ctx)
		cancel()
		if err == nil {
			err = r.Resume()
		}
		if err != nil {
			t.Fatalf("pause %d: %v", i, err)
		}
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	wait(t, r)
}

// A paused run is paused whichever gateway looks at it.
func TestPauseOutlivesGateway(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := open(t, cfg)
	spec := small("r", "echo go; while :; do :; done")
	spec.WallTime = time.Second
	r, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	await(t, r, "go\n")
	if err := r.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	used := func(r *sandbox.Run) time.Duration {
		u, err := r.Usage()
		if err != nil {
			t.Fatal(err)
		}
		return u.CPU
	}
	before := used(r)
	s.Close()
	s = open(t, cfg)
	if _, err := s.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Get("r"); err != nil || !r.Paused() {
		t.Fatalf("the next gateway: %v, paused %v", err, r.Paused())
	}
	pass(t, s, "meanwhile")
	if after := used(r); after != before {
		t.Errorf("paused, it used %s", after-before)
	}
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, cfg)
	if _, err := s.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Get("r"); err != nil || r.Paused() {
		t.Fatalf("the gateway after it was resumed: %v, paused %v", err, r.Paused())
	}
	res := wait(t, r)
	expect(t, res, "wall_time", -1)
	if took := res.EndedAt.Sub(res.StartedAt); took < 2400*time.Millisecond {
		t.Errorf("with a pause of 1.5 s and a wall time of 1 s it ended after %s", took)
	}
}
