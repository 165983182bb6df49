package adaptertest

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/gen/yunhe/adapter/v1/adapterv1connect"
)

// env is one check under way.
type env struct {
	testing.TB
	c    Config
	hist *history
	// in is the instance started last, client calls it.
	in     *Instance
	client adapterv1connect.DriverServiceClient
	dead   []func() // end what watches in
	undo   []func() // what was done to the backend

	mu    sync.Mutex // guards known
	known map[string]bool
}

// claim notes attempts that the driver may know by this check; statuses of
// others are not this check's business.
func (e *env) claim(ids ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		e.known[id] = true
	}
}

func (e *env) mine() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.known))
}

func (e *env) isMine(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known[id]
}

// runCheck runs a check in the calling goroutine.
func runCheck(t testing.TB, c Config, k check) {
	e := &env{TB: t, c: c, hist: newHistory(t), known: map[string]bool{}}
	e.start()
	defer e.clean()
	if k.needs&(needsSuspend|needsExec|needsAccount|needsStorage|needsNode|needsChoice) != 0 {
		if why := e.unclaimed(k.needs); why != "" {
			t.Skipf("NOT CHECKED: %s", why)
		}
	}
	k.run(e)
}

func (e *env) start() {
	e.Helper()
	e.in = e.c.Start(e.TB)
	e.client = e.in.Client()
}

// unwatch ends what watches the instance: it is about to end.
func (e *env) unwatch() {
	for _, f := range e.dead {
		f()
	}
	e.dead = nil
}

// restart is kill -9 and a start.
func (e *env) restart() {
	e.Helper()
	e.unwatch()
	e.in.Kill()
	e.start()
}

// clean stops and forgets what the check applied, and ends the driver.
func (e *env) clean() {
	defer func() {
		e.unwatch()
		e.in.Stop()
	}()
	for _, f := range e.undo {
		f()
	}
	all := e.mine()
	if len(all) == 0 {
		return
	}
	if _, err := e.remove(e.hist.open(all), nil); err != nil {
		e.Logf("what this check applied could not be stopped: %v", err)
		return
	}
	if left := e.hist.open(all); len(left) > 0 {
		o := e.observe()
		o.wait(min(e.c.Patience, 20*time.Second), func() bool { return len(e.hist.open(left)) == 0 })
	}
	if _, err := e.remove(nil, all); err != nil {
		e.Logf("what this check applied could not be forgotten: %v", err)
	}
}

// call is the context of one call: the platform does not wait longer.
func (e *env) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.Context(), e.c.CallTimeout)
}

// attempt makes a new attempt of a command.
func (e *env) attempt(command string) *adapterv1.Attempt {
	return &adapterv1.Attempt{AttemptId: newID("att"), JobId: newID("job"), Name: "conformance", Command: command, ImageId: e.c.ImageID, ResourcespecId: e.c.SpecID,
		Resources: e.c.Resources, StopGraceSeconds: 1, TenantId: "default", UserName: "adaptertest"}
}

// newID makes an ID that looks as the platform's do.
func newID(prefix string) string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	return prefix + "_" + base32.NewEncoding(crockford).WithPadding(base32.NoPadding).EncodeToString(b)
}

// once is an attempt of a command that leaves proof of every run.
func (e *env) once(command string) *adapterv1.Attempt {
	a := e.attempt(command)
	switch {
	case e.c.Commands.NoShell:
	case e.c.Shared != "":
		a.Command = "echo ran >>'" + e.mark(a.AttemptId) + "'; echo ran; " + command
	default:
		a.Command = "echo ran; " + command
	}
	return a
}

func (e *env) mark(id string) string { return filepath.Join(e.c.Shared, id) }

// began waits until attempts made by once, which run, have left their proof:
// one that is stopped before it came that far has not run.
func (e *env) began(ids ...string) {
	e.Helper()
	for _, id := range ids {
		switch {
		case e.c.Runs != nil || e.c.Shared != "" && !e.c.Commands.NoShell:
			e.within(e.c.Patience, func() bool { n, _ := e.runs(id); return n > 0 })
		case !e.c.Commands.NoShell:
			e.await(id, "ran\n")
		}
	}
}

// ranOnce fails unless an attempt made by once, which has ended, ran once.
func (e *env) ranOnce(id, after string) {
	e.Helper()
	n, how := e.runs(id)
	switch {
	case n == 0:
		e.Errorf("%s: attempt %s did not run at all, by %s; want one run. Accepted work must not be lost", after, id, how)
	case n > 1:
		e.Errorf("%s: attempt %s ran %d times, by %s; want once. Apply must not start an attempt that was ever started: name what it becomes at the backend after the attempt's ID and let the backend refuse the second", after, id, n, how)
	}
}

// runs counts the runs of an attempt made by once, -1 if there is no proof.
func (e *env) runs(id string) (n int, how string) {
	e.Helper()
	switch {
	case e.c.Runs != nil:
		return e.c.Runs(e.TB, id), "Config.Runs"
	case e.c.Commands.NoShell:
		return -1, "nothing"
	case e.c.Shared != "":
		b, err := os.ReadFile(e.mark(id))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			e.Fatal(err)
		}
		return strings.Count(string(b), "ran\n"), "its marks in Config.Shared"
	}
	return strings.Count("\n"+string(e.log(id)), "\nran\n"), "its log"
}

// apply applies and wants no refusal.
func (e *env) apply(as ...*adapterv1.Attempt) {
	e.Helper()
	res, err := e.tryApply(as...)
	if err != nil {
		e.Fatalf("Apply of %d attempts that are all right: %v", len(as), err)
	}
	if len(res.Refusals) > 0 {
		e.Fatalf("Apply refused attempts that are all right: %v. The image is Config.ImageID %q, the specification Config.SpecID %q, the resources %v", res.Refusals, e.c.ImageID, e.c.SpecID, e.c.Resources)
	}
}

func (e *env) tryApply(as ...*adapterv1.Attempt) (*adapterv1.ApplyResponse, error) {
	for _, a := range as {
		e.claim(a.AttemptId)
	}
	ctx, cancel := e.call()
	defer cancel()
	return e.client.Apply(ctx, &adapterv1.ApplyRequest{Attempts: as})
}

// remove stops and forgets.
func (e *env) remove(stop, forget []string) (*adapterv1.RemoveResponse, error) {
	ctx, cancel := e.call()
	defer cancel()
	return e.client.Remove(ctx, &adapterv1.RemoveRequest{Stop: stop, Forget: forget})
}

func (e *env) stop(ids ...string) {
	e.Helper()
	if _, err := e.remove(ids, nil); err != nil {
		e.Fatalf("Remove(stop: %q): %v. It only notes that they are to end and must succeed whatever their state, also for attempts never heard of", ids, err)
	}
}

func (e *env) forget(ids ...string) {
	e.Helper()
	if _, err := e.remove(nil, ids); err != nil {
		e.Fatalf("Remove(forget: %q): %v. It must succeed whatever their state, also for attempts never heard of", ids, err)
	}
}

// read reads a piece of a log.
func (e *env) read(id string, offset, limit int64, wait time.Duration) (*adapterv1.ReadLogResponse, error) {
	ctx, cancel := context.WithTimeout(e.Context(), e.c.CallTimeout+wait)
	defer cancel()
	return e.client.ReadLog(ctx, &adapterv1.ReadLogRequest{AttemptId: id, Offset: offset, Limit: limit, WaitMilliseconds: wait.Milliseconds()})
}

// log reads a log from its first byte to the end, in pieces.
func (e *env) log(id string) []byte { e.Helper(); return e.logBy(id, 512<<10) }

func (e *env) logBy(id string, limit int64) []byte {
	e.Helper()
	var out []byte
	for deadline := time.Now().Add(e.c.Patience); ; {
		r, err := e.read(id, int64(len(out)), limit, time.Second)
		if err != nil {
			e.Fatalf("ReadLog of %s at %d: %v", id, len(out), err)
		}
		if r.Offset != int64(len(out)) && len(r.Data) > 0 {
			e.Fatalf("ReadLog of %s at %d answers with bytes at %d: nothing was dropped from so short a log, so the answer must begin where it was asked to", id, len(out), r.Offset)
		}
		if int64(len(r.Data)) > limit {
			e.Fatalf("ReadLog of %s with limit %d answers with %d bytes", id, limit, len(r.Data))
		}
		if out = append(out, r.Data...); r.End {
			return out
		}
		if len(r.Data) > 0 {
			deadline = time.Now().Add(e.c.Patience)
		} else if time.Now().After(deadline) {
			e.Fatalf("ReadLog of %s never says end, %v after the last of %d bytes; it must once the attempt has ended and all was read. Last answer: %d bytes at %d", id, e.c.Patience, len(out), len(r.Data), r.Offset)
		}
	}
}

// within polls for what no message tells, such as a file.
func (e *env) within(d time.Duration, ok func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(d); ; {
		if ok() {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline:
			return ok()
		case <-e.Context().Done():
			return false
		}
	}
}

// wantCode fails unless err has one of the codes.
func (e *env) wantCode(err error, what string, codes ...connect.Code) {
	e.Helper()
	if err == nil {
		e.Errorf("%s succeeded, want an error with code %v", what, codes)
		return
	}
	for _, c := range codes {
		if connect.CodeOf(err) == c {
			return
		}
	}
	e.Errorf("%s: code %v (%v), want %v", what, connect.CodeOf(err), err, codes)
}

// clip shortens what is shown.
func clip[T ~string | ~[]byte](s T) string {
	if len(s) > 200 {
		return fmt.Sprintf("%q... (%d bytes)", string(s[:200]), len(s))
	}
	return fmt.Sprintf("%q", string(s))
}
