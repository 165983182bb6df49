package adaptertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

var faultChecks = []check{
	{"kill/after-apply", needsNothing, killAfterApply},
	{"kill/mid-apply", needsNothing, killMidApply},
	{"kill/mid-run", needsShell, killMidRun},
	{"kill/ended-meanwhile", needsShell, killEndedMeanwhile},
	{"kill/two-at-once", needsNothing, twoAtOnce},
	{"end/in-order", needsNothing, endInOrder},
	{"broken/trouble", needsBreak, brokenTrouble},
	{"broken/calls", needsBreak, brokenCalls},
	{"broken/start", needsBreak, brokenStart},
	{"deleted/lost", needsDelete, deletedLost},
}

// killAfterApply: accepted is accepted durably.
func killAfterApply(e *env) {
	for range 3 {
		a := e.once(e.c.Commands.Exit(0))
		e.apply(a)
		e.restart() // and nobody applies it again
		e.observe().completed(a.AttemptId)
		e.ranOnce(a.AttemptId, "after Apply said yes and the driver was killed at once")
	}
}

// killMidApply: wherever the kill falls, the repetition makes it whole.
func killMidApply(e *env) {
	for round := range 6 {
		var all []*adapterv1.Attempt
		for range 8 {
			a := e.once(e.c.Commands.Exit(0))
			all = append(all, a)
			e.claim(a.AttemptId)
		}
		ctx, cancel := e.call()
		var wg sync.WaitGroup
		client := e.client
		begun := make(chan struct{})
		wg.Go(func() {
			close(begun)
			_, _ = client.Apply(ctx, &adapterv1.ApplyRequest{Attempts: all}) // broken by the kill, or not
		})
		<-begun
		<-time.After(time.Duration(round*round) * time.Millisecond) // where in the call it falls
		e.unwatch()
		e.in.Kill()
		cancel()
		wg.Wait()
		e.start()
		e.apply(all...)
		o := e.observe()
		for _, a := range all {
			o.completed(a.AttemptId)
			e.ranOnce(a.AttemptId, fmt.Sprintf("after kill -9 %d ms into Apply, a start and Apply again", round*round))
		}
	}
}

// killMidRun: what runs goes on without the driver and is known after it.
func killMidRun(e *env) {
	o := e.observe()
	a := e.once("sleep 2; " + e.c.Commands.Exit(9))
	b := e.once(e.c.Commands.Wait)
	e.apply(a, b)
	o.running(a.AttemptId)
	o.running(b.AttemptId)
	e.restart()
	o = e.observe()
	o.running(b.AttemptId)
	if st := o.endedBy(a.AttemptId, "exit"); st.ExitCode != 9 {
		e.Errorf("a command that ended with status 9 after the driver was killed and started has exit code %d", st.ExitCode)
	}
	e.began(b.AttemptId)
	e.stop(b.AttemptId)
	o.endedBy(b.AttemptId, "stopped")
	for _, x := range []*adapterv1.Attempt{a, b} {
		e.ranOnce(x.AttemptId, "after kill -9 while it ran")
	}
}

// killEndedMeanwhile: an end while no driver looks is an end as any other.
func killEndedMeanwhile(e *env) {
	o := e.observe()
	a := e.once("sleep 3; echo late; exit 11") // long enough to be seen running on a busy machine
	e.apply(a)
	o.running(a.AttemptId)
	e.unwatch()
	e.in.Kill()
	<-time.After(5 * time.Second) // it ends now; there is nobody to say so
	e.start()
	st := e.observe().endedBy(a.AttemptId, "exit")
	if st.ExitCode != 11 {
		e.Errorf("a command that ended with status 11 while the driver was away has exit code %d; its end must be kept at the backend, not heard by the driver", st.ExitCode)
	}
	e.ranOnce(a.AttemptId, "ended while the driver was away")
	if got := string(e.log(a.AttemptId)); got != "ran\nlate\n" {
		e.Errorf("what it wrote while the driver was away: %q, want %q", got, "ran\nlate\n")
	}
}

// twoAtOnce: during an upgrade the old and the new driver serve one center.
func twoAtOnce(e *env) {
	first, firstIn := e.client, e.in
	o := e.observe()
	e.start()
	second, other := e.client, e.observe()
	defer firstIn.Stop()
	var all []*adapterv1.Attempt
	for range 4 {
		a := e.once(e.c.Commands.Exit(0))
		all = append(all, a)
		e.claim(a.AttemptId)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		client := first
		if i%2 == 1 {
			client = second
		}
		wg.Go(func() {
			ctx, cancel := e.call()
			defer cancel()
			// One that comes too early may be told to ask again, so its error counts for nothing.
			_, _ = client.Apply(ctx, &adapterv1.ApplyRequest{Attempts: all})
		})
	}
	wg.Wait()
	e.apply(all...)
	for _, a := range all {
		o.completed(a.AttemptId)
		other.completed(a.AttemptId)
		e.ranOnce(a.AttemptId, "applied at two instances of the driver at once, as in an upgrade")
	}
	e.unwatch()
}

// endInOrder: a driver ends when it is asked, whoever still reads.
func endInOrder(e *env) {
	e.watch().whole()
	o := e.observe()
	a := e.once(e.c.Commands.Wait)
	e.apply(a)
	o.running(a.AttemptId)
	begin := time.Now()
	e.in.Stop() // complains by itself after 10 s
	if d := time.Since(begin); d > 5*time.Second {
		e.Errorf("the driver took %v to end after it was asked to; want it at once, streams or not", d.Round(time.Millisecond))
	}
	e.unwatch()
	e.start()
	o = e.observe()
	o.running(a.AttemptId)
	o.stays(a.AttemptId, "the driver was ended in good order, and its work must not end with it")
	e.began(a.AttemptId)
	e.stop(a.AttemptId)
	o.ended(a.AttemptId)
	e.ranOnce(a.AttemptId, "after the driver was ended in good order")
}

// broken breaks the backend; it is repaired at the latest when the check ends.
func (e *env) broken() (repair func()) {
	e.c.Break(e.TB)
	repair = sync.OnceFunc(func() { e.c.Repair(e.TB) })
	e.undo = append(e.undo, repair)
	return repair
}

// brokenTrouble: a center out of reach is said to be, and comes back by itself.
func brokenTrouble(e *env) {
	w := e.watch()
	w.whole()
	repair := e.broken()
	w.troubled()
	w.quiet(w.until("trouble", func(v view) bool { return v.trouble != "" }).count, " while the backend was cut off")
	late := e.watch() // one that comes now is told too
	late.troubled()
	repair()
	w.whole()
	if v := late.whole(); v.inv == nil {
		e.Error("a reader of Watch that came while the backend was cut off was never told the inventory")
	}
}

// brokenCalls: calls fail in time and promise nothing.
func brokenCalls(e *env) {
	o := e.observe()
	a, b := e.once(e.c.Commands.Wait), e.once(e.c.Commands.Exit(0))
	e.apply(a)
	o.running(a.AttemptId)
	e.unwatch() // Observe may end while nothing can be observed
	repair := e.broken()
	begin := time.Now()
	res, err := e.tryApply(b)
	switch {
	case err == nil && len(res.Refusals) > 0:
		e.Errorf("Apply while the backend is cut off refused (%v); want an error: it may pass, and a refusal is for good", res.Refusals)
	case err == nil:
		e.Error("Apply while the backend is cut off succeeded; want an error: accepted means that the backend has it, durably")
	default:
		e.wantCode(err, "Apply while the backend is cut off", connect.CodeUnavailable, connect.CodeDeadlineExceeded)
	}
	if inv, err := e.client.Discover(mustCall(e), &adapterv1.DiscoverRequest{}); err == nil {
		e.judge(inv.GetInventory(), "Discover while the backend is cut off (it may answer what it knew, all of it, or with an error)")
	}
	if d := time.Since(begin); d > 2*e.c.CallTimeout-time.Second {
		e.Errorf("Apply and Discover took %v while the backend was cut off; the platform gives up after %v each, so a driver must answer with an error before", d.Round(time.Millisecond), e.c.CallTimeout)
	}
	repair()
	e.watch().whole()
	e.apply(b)
	o = e.observe()
	o.completed(b.AttemptId)
	o.running(a.AttemptId)
	e.began(a.AttemptId)
	e.stop(a.AttemptId)
	o.endedBy(a.AttemptId, "stopped")
	e.ranOnce(a.AttemptId, "while its backend was cut off")
	e.ranOnce(b.AttemptId, "applied while the backend was cut off, and again after")
}

func mustCall(e *env) context.Context {
	ctx, cancel := e.call()
	e.Cleanup(cancel)
	return ctx
}

// brokenStart: a driver starts whether or not its center answers.
func brokenStart(e *env) {
	e.unwatch()
	e.in.Stop()
	repair := e.broken()
	e.start()
	e.describe()
	w := e.watch()
	w.troubled()
	repair()
	w.whole()
}

// deletedLost: what somebody deleted at the backend is lost, and that is said.
func deletedLost(e *env) {
	o := e.observe()
	a := e.once(e.c.Commands.Wait)
	e.apply(a)
	o.running(a.AttemptId)
	e.c.Delete(e.TB, a.AttemptId)
	again := e.attempt(a.Command)
	again.AttemptId, again.Seen = a.AttemptId, true
	o.endedBy(a.AttemptId, "lost")
	e.apply(again)
	e.restart()
	e.apply(again)
	e.observe().endedBy(a.AttemptId, "lost")
	e.ranOnceOrLess(a.AttemptId)
}

// ranOnceOrLess: its proof may be gone with it, but never doubled.
func (e *env) ranOnceOrLess(id string) {
	e.Helper()
	if e.c.Runs == nil && e.c.Shared == "" {
		return
	}
	if n, how := e.runs(id); n > 1 {
		e.Errorf("attempt %s, deleted behind the driver's back, ran %d times, by %s; it must not be started again", id, n, how)
	}
}
