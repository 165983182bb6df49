package adaptertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

var applyChecks = []check{
	{"apply/once", needsNothing, applyOnce},
	{"apply/again", needsNothing, applyAgain},
	{"apply/seen", needsNothing, applySeen},
	{"apply/forgotten", needsNothing, applyForgotten},
	{"apply/canceled", needsNothing, applyCanceled},
	{"refuse/image", needsNothing, refuse("an image that is not here", func(a *adapterv1.Attempt) { a.ImageId = "no-such-image" }, "no-such-image")},
	{"refuse/specification", needsNothing, refuse("a specification that is not here", func(a *adapterv1.Attempt) { a.ResourcespecId = "no-such-spec" }, "no-such-spec")},
	{"refuse/negative", needsNothing, refuse("a negative quantity", func(a *adapterv1.Attempt) { a.Resources = map[string]int64{"cpu": -1000, "memory": 1 << 20} }, "cpu")},
	{"refuse/resource", needsNothing, refuse("a resource that is not here", func(a *adapterv1.Attempt) {
		a.Resources = maps.Clone(a.Resources)
		if a.Resources == nil {
			a.Resources = map[string]int64{}
		}
		a.Resources["no-such-resource"] = 1
	}, "no-such-resource")},
	{"refuse/command", needsNothing, refuse("an empty command", func(a *adapterv1.Attempt) { a.Command = "" }, "command")},
	{"refuse/environment", needsNothing, refuse("an environment of 4 MiB", func(a *adapterv1.Attempt) { a.Env = map[string]string{"BIG": strings.Repeat("x", 4<<20)} }, "")},
	{"refuse/name", needsNothing, refuse("a variable whose name has a =", func(a *adapterv1.Attempt) { a.Env = map[string]string{"A=B": "x"} }, "A=B")},
	{"refuse/path", needsNothing, refuse("a file outside of the working directory", func(a *adapterv1.Attempt) {
		a.Files = []*adapterv1.File{{Path: "../../outside", Content: []byte("x")}}
	}, "outside")},
	{"refuse/id", needsNothing, refuseID},
	{"refuse/too-much", needsNothing, refuseTooMuch},
	{"stop/before", needsNothing, func(e *env) { stopBefore(e, false) }},
	{"stop/before-restart", needsNothing, func(e *env) { stopBefore(e, true) }},
	{"stop/waiting", needsWaiting, stopWaiting},
	{"stop/running", needsNothing, stopRunning},
	{"stop/unknown", needsNothing, stopUnknown},
	{"stop/graceful", needsShell, stopGraceful},
	{"stop/ended", needsNothing, stopEnded},
	{"forget/ended", needsNothing, forgetEnded},
	{"forget/running", needsNothing, forgetRunning},
}

// applyOnce: every way in which the platform repeats itself.
func applyOnce(e *env) {
	o := e.observe()
	a := e.once(e.c.Commands.Wait)
	e.apply(a, a)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ctx, cancel := e.call()
			defer cancel()
			res, err := e.client.Apply(ctx, &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{a}})
			if err != nil || len(res.Refusals) > 0 {
				e.Errorf("Apply of an attempt that is known, in 8 calls at once: %v, %v; want success", res, err)
			}
		})
	}
	// And one that is new in eight calls at once.
	b := e.once(e.c.Commands.Wait)
	e.claim(b.AttemptId)
	for range 8 {
		wg.Go(func() {
			ctx, cancel := e.call()
			defer cancel()
			// One that comes too early may be told to ask again, so its error counts for nothing.
			_, _ = e.client.Apply(ctx, &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{b}})
		})
	}
	wg.Wait()
	e.apply(b)
	o.running(a.AttemptId)
	o.running(b.AttemptId)
	e.restart()
	e.apply(a, b)
	o = e.observe()
	o.running(a.AttemptId)
	o.running(b.AttemptId)
	e.began(a.AttemptId, b.AttemptId)
	e.stop(a.AttemptId, b.AttemptId)
	for _, id := range []string{a.AttemptId, b.AttemptId} {
		o.ended(id)
		e.ranOnce(id, "after Apply twice in a call, in 8 calls at once and after a restart")
	}
}

// applyAgain: an end is no reason to start again.
func applyAgain(e *env) {
	o := e.observe()
	good, bad := e.once(e.c.Commands.Exit(0)), e.once(e.c.Commands.Exit(3))
	e.apply(good, bad)
	first := map[string]*adapterv1.Status{}
	for _, a := range []*adapterv1.Attempt{good, bad} {
		first[a.AttemptId] = o.ended(a.AttemptId)
	}
	e.apply(good, bad)
	e.restart()
	again := proto.CloneOf(bad)
	again.Command, again.Seen = e.c.Commands.Exit(0), true // what it is said to be now does not matter
	e.apply(good, again)
	o = e.observe()
	probe := e.attempt(e.c.Commands.Exit(0)) // its end comes after anything started before it
	e.apply(probe)
	o.ended(probe.AttemptId)
	for id, st := range first {
		if now := o.ended(id); now.Reason != st.Reason || now.ExitCode != st.ExitCode {
			e.Errorf("attempt %s had ended with {%v}; applied again it is {%v}. What has ended stays as it ended, whatever is applied", id, st, now)
		}
		e.ranOnce(id, "after Apply of what had ended")
	}
}

// neverRan fails unless an attempt ended without having been started.
func (e *env) neverRan(o *observer, id, why string, want ...string) {
	e.Helper()
	st := o.endedBy(id, want...)
	if st.StartedAt != 0 {
		e.Errorf("%s: attempt %s has started_at %d; it must never start", why, id, st.StartedAt)
	}
	if e.c.Runs == nil && e.c.Shared == "" {
		return // there may be no log to look into
	}
	if n, how := e.runs(id); n > 0 {
		e.Errorf("%s: attempt %s ran %d times, by %s; it must never start", why, id, n, how)
	}
}

// applySeen: the platform has heard that it ran, so a backend that knows
// nothing of it has lost it.
func applySeen(e *env) {
	a := e.once(e.c.Commands.Exit(0))
	a.Seen = true
	o := e.observe()
	e.apply(a)
	e.neverRan(o, a.AttemptId, "an attempt applied with seen that is unknown here is lost, and starting it would run it twice", "lost")
	e.restart()
	e.apply(a)
	e.neverRan(e.observe(), a.AttemptId, "an attempt applied with seen after a restart", "lost")
}

func applyForgotten(e *env) {
	o := e.observe()
	a := e.once(e.c.Commands.Exit(0))
	e.apply(a)
	o.ended(a.AttemptId)
	e.forget(a.AttemptId)
	e.unwatch()
	e.hist = newHistory(e.TB) // it may be heard of as another
	again := proto.CloneOf(a)
	again.Seen = true
	e.apply(again)
	o = e.observe()
	if st := o.ended(a.AttemptId); st.Reason != "lost" || st.StartedAt != 0 {
		e.Errorf("an attempt that was forgotten and is applied again with seen: {%v}; want it ended, reason lost, never started", st)
	}
	if e.c.Shared != "" || e.c.Runs != nil {
		e.ranOnce(a.AttemptId, "after forget and Apply with seen")
	}
}

// applyCanceled: a call that is broken off anywhere has happened or not, and
// is repeated.
func applyCanceled(e *env) {
	o := e.observe()
	var all []*adapterv1.Attempt
	for i := range 8 {
		a := e.once(e.c.Commands.Exit(0))
		all = append(all, a)
		e.claim(a.AttemptId)
		ctx, cancel := context.WithTimeout(e.Context(), time.Duration(i*i)*500*time.Microsecond)
		_, err := e.client.Apply(ctx, &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{a}})
		// Then the backend's answer may have been, too: the deadline travels with
		// the call, and may pass at the far end a little earlier.
		end, _ := ctx.Deadline()
		broken := time.Until(end) < 10*time.Millisecond
		cancel()
		if code := connect.CodeOf(err); err != nil && !broken && code != connect.CodeDeadlineExceeded && code != connect.CodeCanceled {
			e.Errorf("Apply, broken off after %d µs: %v; want success or that it was broken off", i*i*500, err)
		}
	}
	e.apply(all...)
	for _, a := range all {
		o.completed(a.AttemptId)
		e.ranOnce(a.AttemptId, "after Apply that was broken off and repeated")
	}
}

// refuse makes a check that an attempt that can never run is refused with a
// reason that names what is wrong, and does not keep a good one beside it from
// being accepted.
func refuse(what string, spoil func(*adapterv1.Attempt), names string) func(*env) {
	return func(e *env) {
		o := e.observe()
		bad, good := e.attempt(e.c.Commands.Exit(0)), e.once(e.c.Commands.Exit(0))
		spoil(bad)
		res, err := e.tryApply(bad, good)
		if err != nil {
			e.Fatalf("Apply of %s: error %v; want success with a refusal of that attempt: an error has the platform ask again forever, and keeps the others of the call from being accepted", what, err)
		}
		why := ""
		for _, r := range res.Refusals {
			if r.AttemptId != bad.AttemptId {
				e.Errorf("Apply of %s beside a good attempt refused the good one too: %q", what, r.Reason)
			} else {
				why = r.Reason
			}
		}
		switch {
		case why == "":
			e.Errorf("Apply accepted %s; want a refusal with a reason: what is wrong for good is refused, so that its owner hears of it", what)
		case !strings.Contains(why, names):
			e.Errorf("Apply refused %s with the reason %q, which does not name %q; its owner reads it and must know what to change", what, why, names)
		}
		if len(res.Refusals) == 0 || slices.ContainsFunc(res.Refusals, func(r *adapterv1.Refusal) bool { return r.AttemptId == good.AttemptId }) {
			return
		}
		o.completed(good.AttemptId)
		if st := o.last(bad.AttemptId); st != nil {
			e.Errorf("a refused attempt is reported: {%v}; nothing may be left of it", st)
		}
	}
}

// refuseID: an ID becomes a name at the backend and must not be able to mean
// something else there.
func refuseID(e *env) {
	for _, id := range []string{"", "../" + newID("att"), "a b/c", ".", "..", "x\x00y", strings.Repeat("x", 300)} {
		a := e.attempt(e.c.Commands.Exit(0))
		a.AttemptId = id
		ctx, cancel := e.call()
		res, err := e.client.Apply(ctx, &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{a}})
		cancel()
		if err != nil {
			e.Errorf("Apply of an attempt with the ID %s: error %v; want a refusal", clip(id), err)
		} else if len(res.Refusals) != 1 || res.Refusals[0].Reason == "" {
			e.Errorf("Apply accepted an attempt with the ID %s, or gave no reason (%v); want it refused: the platform's IDs are letters, digits, _ and -, and anything else could name another thing at the backend", clip(id), res.Refusals)
		}
	}
}

// refuseTooMuch: what is larger than the center is refused, or waits and says so.
func refuseTooMuch(e *env) {
	o := e.observe()
	a := e.attempt(e.c.Commands.Wait)
	a.Resources = map[string]int64{"cpu": 1 << 50, "memory": 1 << 60}
	res, err := e.tryApply(a)
	if err != nil {
		e.Fatalf("Apply of an attempt larger than the center: %v; want success, with a refusal or to have it wait", err)
	}
	if len(res.Refusals) == 1 {
		if res.Refusals[0].Reason == "" {
			e.Error("Apply refused an attempt larger than the center without a reason")
		}
		return
	}
	o.until(a.AttemptId, "waiting, with a message that says what for", func(s *adapterv1.Status) bool {
		if s.Phase == adapterv1.Phase_PHASE_RUNNING {
			e.Fatalf("an attempt that asks for %v runs; want it refused or waiting", a.Resources)
		}
		return s.Message != ""
	})
	o.stays(a.AttemptId, fmt.Sprintf("it asks for %v, more than the center has", a.Resources))
}

// stopBefore: messages overtake each other, and a stop stays a stop.
func stopBefore(e *env, restart bool) {
	a := e.once(e.c.Commands.Exit(0))
	e.stop(a.AttemptId)
	e.claim(a.AttemptId)
	if restart {
		e.restart() // it must not be in memory only
	}
	res, err := e.tryApply(a)
	if err != nil {
		e.Fatalf("Apply of an attempt that was stopped before: %v; want success, and the attempt ended without a start", err)
	}
	if len(res.Refusals) > 0 {
		e.Fatalf("Apply refused an attempt that was stopped before: %v; want it accepted and reported as ended: its owner asked for the stop, nothing was wrong", res.Refusals)
	}
	e.neverRan(e.observe(), a.AttemptId, "stopped before it was applied", "stopped", "never_started")
}

func stopWaiting(e *env) {
	o := e.observe()
	a := e.once(e.c.Commands.Exit(0))
	a.Resources = e.c.Waiting
	e.apply(a)
	o.until(a.AttemptId, "waiting (it asks for Config.Waiting), with a message that says what for", func(s *adapterv1.Status) bool {
		if s.Phase == adapterv1.Phase_PHASE_RUNNING {
			e.Fatalf("an attempt that asks for Config.Waiting, %v, runs", a.Resources)
		}
		return s.Phase == adapterv1.Phase_PHASE_PENDING && s.Message != ""
	})
	e.stop(a.AttemptId)
	e.neverRan(o, a.AttemptId, "stopped while it waited", "stopped", "never_started")
}

func stopRunning(e *env) {
	o := e.observe()
	a, b := e.once(e.c.Commands.Wait), e.once(e.c.Commands.Wait)
	e.apply(a, b)
	o.running(a.AttemptId)
	o.running(b.AttemptId)
	e.began(a.AttemptId, b.AttemptId)
	e.stop(a.AttemptId)
	e.stop(a.AttemptId)
	o.endedBy(a.AttemptId, "stopped")
	e.stop(a.AttemptId)
	e.ranOnce(a.AttemptId, "stopped twice")
	if st := o.last(b.AttemptId); st.Phase != adapterv1.Phase_PHASE_RUNNING {
		e.Errorf("the stop of one attempt ended another: {%v}", st)
	}
	// A driver killed right after it said yes has still stopped it.
	e.stop(b.AttemptId)
	e.restart()
	e.observe().endedBy(b.AttemptId, "stopped")
}

func stopUnknown(e *env) {
	a, b := newID("att"), newID("att")
	e.stop(a, b)
	e.stop(a, "")
	e.forget(newID("att"), "../x")
	e.stop()
	e.forget(a, b)
}

// stopGraceful: SIGTERM first, and SIGKILL when the grace is over.
func stopGraceful(e *env) {
	o := e.observe()
	kind := e.attempt(`trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.1; done`)
	kind.StopGraceSeconds = 20
	deaf := e.attempt(`trap '' TERM; echo up; while :; do sleep 0.1; done`)
	deaf.StopGraceSeconds = 1
	e.apply(kind, deaf)
	for _, a := range []*adapterv1.Attempt{kind, deaf} {
		o.running(a.AttemptId)
		e.await(a.AttemptId, "up\n")
	}
	begin := time.Now()
	e.stop(kind.AttemptId, deaf.AttemptId)
	o.endedBy(kind.AttemptId, "stopped")
	if d := time.Since(begin); d > 15*time.Second {
		e.Errorf("an attempt that ends when asked took %v to stop; want it asked with SIGTERM at once", d)
	}
	if log := e.log(kind.AttemptId); !strings.HasSuffix(string(log), "asked\n") {
		e.Errorf("an attempt that handles SIGTERM wrote %s; want up and asked: it must be asked, and given stop_grace_seconds to end, before it is killed", clip(log))
	}
	o.endedBy(deaf.AttemptId, "stopped")
}

// await waits until a log has begun with text.
func (e *env) await(id, text string) {
	e.Helper()
	var got []byte
	if !e.within(e.c.Patience, func() bool {
		r, err := e.read(id, int64(len(got)), 64<<10, time.Second)
		if err == nil {
			got = append(got, r.Data...)
		}
		return len(got) >= len(text)
	}) || !strings.HasPrefix(string(got), text) {
		e.Fatalf("the log of %s, which runs, is %s after %v; want %q: what a command wrote must be readable while it runs", id, clip(got), e.c.Patience, text)
	}
}

func stopEnded(e *env) {
	o := e.observe()
	a := e.once(e.c.Commands.Exit(4))
	e.apply(a)
	o.endedBy(a.AttemptId, "exit")
	e.stop(a.AttemptId)
	e.restart()
	if st := e.observe().ended(a.AttemptId); st.Reason != "exit" || st.ExitCode != 4 {
		e.Errorf("an attempt ended with exit code 4 and was stopped after that: {%v}; want the end it had", st)
	}
}

func forgetEnded(e *env) {
	o := e.observe()
	a, b := e.attempt(e.c.Commands.Exit(0)), e.attempt(e.c.Commands.Exit(0))
	e.apply(a, b)
	o.ended(a.AttemptId)
	o.ended(b.AttemptId)
	e.forget(a.AttemptId)
	e.forget(a.AttemptId)
	for _, when := range []string{"", " and a restart"} {
		fresh := e.observe()
		fresh.ended(b.AttemptId) // the present status of every attempt comes first
		probe := e.attempt(e.c.Commands.Exit(0))
		e.apply(probe)
		fresh.ended(probe.AttemptId)
		if st := fresh.last(a.AttemptId); st != nil {
			e.Errorf("after forget%s Observe repeats {%v}; want nothing left of it", when, st)
		}
		e.wantGone(a.AttemptId, when)
		e.restart()
	}
}

func forgetRunning(e *env) {
	o := e.observe()
	a := e.once(e.c.Commands.Wait)
	e.apply(a)
	o.running(a.AttemptId)
	e.forget(a.AttemptId)
	e.restart()
	o = e.observe()
	const why = "forgotten while it ran: only what has ended may be forgotten, the rest goes on"
	o.running(a.AttemptId)
	o.stays(a.AttemptId, why)
	e.began(a.AttemptId)
	e.stop(a.AttemptId)
	o.endedBy(a.AttemptId, "stopped")
	e.ranOnce(a.AttemptId, why)
}
