package adaptertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// reasons are the words a status may give for an end.
var reasons = []string{"completed", "exit", "signal", "oom", "wall_time", "stopped", "start_failed", "lost", "never_started"}

// history is what a check has heard of its attempts, from all observers and
// all instances together: the furthest status of each.
type history struct {
	t  testing.TB
	mu sync.Mutex // guards the fields below, and the phases of its readers

	last map[string]*adapterv1.Status
	said map[string]bool // what was complained about
}

func newHistory(t testing.TB) *history {
	return &history{t: t, last: map[string]*adapterv1.Status{}, said: map[string]bool{}}
}

// reader is one stream of statuses: for it attempts never go back, not even
// behind what others had heard when it began.
type reader struct {
	h     *history
	phase map[string]adapterv1.Phase
}

func (h *history) reader() *reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &reader{h, map[string]adapterv1.Phase{}}
	for id, st := range h.last {
		r.phase[id] = st.Phase
	}
	return r
}

// add judges a status by itself and beside what was heard before.
func (r *reader) add(st *adapterv1.Status) {
	h := r.h
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.last[st.AttemptId]
	wrong := func(format string, args ...any) {
		if key := st.AttemptId + format; !h.said[key] {
			h.said[key] = true
			h.t.Errorf("status of %s: "+format+"; the status is {%v}, the one before {%v}", append(append([]any{st.AttemptId}, args...), st, old)...)
		}
	}
	switch st.Phase {
	case adapterv1.Phase_PHASE_PENDING:
		if st.StartedAt != 0 || st.EndedAt != 0 {
			wrong("it waits, so started_at and ended_at must be 0")
		}
	case adapterv1.Phase_PHASE_RUNNING, adapterv1.Phase_PHASE_SUSPENDED:
		if st.StartedAt == 0 || st.EndedAt != 0 {
			wrong("it runs, or stands still, so started_at must be set and ended_at 0")
		}
	case adapterv1.Phase_PHASE_ENDED:
		if !slices.Contains(reasons, st.Reason) {
			wrong("an end must have one of the reasons %q", reasons)
		}
		if st.StartedAt != 0 && (st.EndedAt == 0 || st.EndedAt < st.StartedAt) {
			wrong("it ran and has ended, so ended_at must be set and not before started_at")
		}
		if st.Reason == "never_started" && st.StartedAt != 0 {
			wrong("it never started, so started_at must be 0")
		}
		if st.Reason == "completed" && st.ExitCode != 0 {
			wrong("a run that completed has exit code 0")
		}
		if (st.Reason == "completed" || st.Reason == "exit" || st.Reason == "wall_time") && st.StartedAt == 0 {
			wrong("it ran, so started_at must be set")
		}
		if st.Reason == "exit" && st.ExitCode == 0 {
			wrong("exit code 0 is called completed")
		}
	default:
		wrong("it must have a phase")
	}
	for name, at := range map[string]int64{"started_at": st.StartedAt, "ended_at": st.EndedAt} {
		if at != 0 && (at < time.Now().Add(-24*time.Hour).UnixMicro() || at > time.Now().Add(24*time.Hour).UnixMicro()) {
			wrong(name+" is %v; want microseconds since 1970 UTC, the suite runs at about %d", at, time.Now().UnixMicro())
		}
	}
	if order(st.Phase) < order(r.phase[st.AttemptId]) {
		wrong("its phase went back from %v. An attempt is pending, running or suspended, ended, in this order, for every reader and over restarts of the driver", r.phase[st.AttemptId])
	}
	r.phase[st.AttemptId] = st.Phase
	if old == nil {
		h.last[st.AttemptId] = st
		return
	}
	if order(st.Phase) < order(old.Phase) {
		return // this reader is behind
	}
	if old.StartedAt != 0 && st.StartedAt != old.StartedAt {
		wrong("started_at changed. It must be the backend's time, not when the driver happened to look")
	}
	if old.Phase == adapterv1.Phase_PHASE_ENDED {
		a, b := proto.CloneOf(old), proto.CloneOf(st)
		for _, s := range []*adapterv1.Status{a, b} { // may still be counted
			s.CpuMicroseconds, s.MemoryPeakBytes, s.LogBytes, s.Log, s.LogInline, s.Message = 0, 0, 0, nil, false, ""
		}
		if !proto.Equal(a, b) {
			wrong("an end changed. What was reported is charged and shown to users: it must be the same for every reader and over restarts of the driver")
		}
	}
	h.last[st.AttemptId] = st
}

// order is how far an attempt has come: what runs may stand still and go on.
func order(p adapterv1.Phase) int {
	switch p {
	case adapterv1.Phase_PHASE_PENDING:
		return 1
	case adapterv1.Phase_PHASE_RUNNING, adapterv1.Phase_PHASE_SUSPENDED:
		return 2
	case adapterv1.Phase_PHASE_ENDED:
		return 3
	}
	return 0
}

// open are those of ids that were heard of and have not ended.
func (h *history) open(ids []string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, id := range ids {
		if st := h.last[id]; st != nil && st.Phase != adapterv1.Phase_PHASE_ENDED && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// observer is a stream of Observe under way.
type observer struct {
	e      *env
	reader *reader

	mu   sync.Mutex // guards the fields below
	seen map[string][]*adapterv1.Status
	wake chan struct{} // closed and replaced with each message
	over error         // why the stream ended, before it was asked to
}

// observe begins to observe, until the check or the instance ends.
func (e *env) observe() *observer {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	o := &observer{e: e, reader: e.hist.reader(), seen: map[string][]*adapterv1.Status{}, wake: make(chan struct{})}
	done := make(chan struct{})
	client := e.client
	go func() {
		defer close(done)
		err := func() error {
			stream, err := client.Observe(ctx, &adapterv1.ObserveRequest{})
			if err != nil {
				return err
			}
			defer func() { _ = stream.Close() }() // broken off on purpose
			for stream.Receive() {
				o.add(stream.Msg().Statuses)
			}
			return errors.Join(errors.New("the stream ended"), stream.Err())
		}()
		if ctx.Err() == nil {
			o.end(err)
		}
	}()
	e.dead = append(e.dead, func() {
		cancel()
		<-done
	})
	return o
}

func (o *observer) add(sts []*adapterv1.Status) {
	sts = slices.DeleteFunc(sts, func(st *adapterv1.Status) bool { return !o.e.isMine(st.AttemptId) })
	for _, st := range sts {
		o.reader.add(st)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, st := range sts {
		o.seen[st.AttemptId] = append(o.seen[st.AttemptId], st)
	}
	close(o.wake)
	o.wake = make(chan struct{})
}

func (o *observer) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = err
	close(o.wake)
	o.wake = make(chan struct{})
}

// last is what this observer heard last of an attempt, nil if nothing.
func (o *observer) last(id string) *adapterv1.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.seen[id]; len(s) > 0 {
		return s[len(s)-1]
	}
	return nil
}

// wait waits until ok, which is asked again after each message.
func (o *observer) wait(d time.Duration, ok func() bool) bool {
	deadline := time.After(d)
	for {
		o.mu.Lock()
		wake, over := o.wake, o.over
		o.mu.Unlock()
		if ok() {
			return true
		}
		if over != nil {
			return false
		}
		select {
		case <-wake:
		case <-deadline:
			return ok()
		case <-o.e.Context().Done():
			return false
		}
	}
}

// until waits until an attempt has a status as wanted and returns it.
func (o *observer) until(id, want string, ok func(*adapterv1.Status) bool) *adapterv1.Status {
	o.e.Helper()
	var st *adapterv1.Status
	if o.wait(o.e.c.Patience, func() bool { st = o.last(id); return st != nil && ok(st) }) {
		return st
	}
	o.mu.Lock()
	over := o.over
	o.mu.Unlock()
	if over != nil {
		o.e.Fatalf("Observe ended by itself (%v): it must last until the caller breaks it off. Waited for attempt %s to be %s", over, id, want)
	}
	o.e.Fatalf("attempt %s is not %s within %v (Config.Patience): Observe last said {%v}. It must begin with every attempt not yet forgotten and send each change of status, above all each end", id, want, o.e.c.Patience, st)
	return nil
}

func (o *observer) running(id string) *adapterv1.Status {
	o.e.Helper()
	st := o.until(id, "running", func(s *adapterv1.Status) bool { return s.Phase >= adapterv1.Phase_PHASE_RUNNING })
	if st.Phase != adapterv1.Phase_PHASE_RUNNING {
		o.e.Fatalf("attempt %s, which runs until it is stopped, has ended: {%v}", id, st)
	}
	return st
}

// ended waits for an end, whatever it is.
func (o *observer) ended(id string) *adapterv1.Status {
	o.e.Helper()
	return o.until(id, "ended", func(s *adapterv1.Status) bool { return s.Phase == adapterv1.Phase_PHASE_ENDED })
}

// endedBy waits for an end and wants one of the reasons for it.
func (o *observer) endedBy(id string, want ...string) *adapterv1.Status {
	o.e.Helper()
	st := o.ended(id)
	if !slices.Contains(want, st.Reason) {
		o.e.Errorf("attempt %s ended with reason %q (exit code %d, message %q), want %q", id, st.Reason, st.ExitCode, st.Message, want)
	}
	return st
}

// completed waits for an end with exit code 0.
func (o *observer) completed(id string) { o.e.Helper(); o.endedBy(id, "completed") }

// stays fails if an attempt leaves the phase it has within two seconds.
func (o *observer) stays(id, why string) {
	o.e.Helper()
	was := o.last(id)
	if o.wait(2*time.Second, func() bool { return o.last(id).Phase != was.Phase }) {
		o.e.Errorf("%s: attempt %s was {%v} and has become {%v}; want it to stay as it was", why, id, was, o.last(id))
	}
}
