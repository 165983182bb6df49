package adaptertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

var featureChecks = []check{
	{"suspend/running", needsSuspend, suspendRunning},
	{"suspend/still", needsSuspend | needsShell, suspendStill},
	{"suspend/others", needsSuspend, suspendOthers},
	{"suspend/stop", needsSuspend, suspendStop},
	{"suspend/restart", needsSuspend, suspendRestart},
	{"exec/streams", needsExec | needsShell, execStreams},
	{"exec/codes", needsExec | needsShell, execCodes},
	{"exec/canceled", needsExec | needsShell, execCanceled},
	{"exec/ends", needsExec | needsShell, execEnds},
	{"exec/unknown", needsExec, execUnknown},
}

// unclaimed says why a check of a feature is not run, "" if it is.
func (e *env) unclaimed(n need) string {
	d := e.describe()
	claimed := d.Features
	for flag, part := range parts {
		if n&flag != 0 && !slices.Contains(d.Parts, part) {
			return "Describe does not claim " + part.String()
		}
	}
	switch {
	case n&needsSuspend != 0 && !slices.Contains(claimed, adapterv1.Feature_FEATURE_SUSPEND):
		return "Describe does not claim FEATURE_SUSPEND"
	case n&needsExec != 0 && !slices.Contains(claimed, adapterv1.Feature_FEATURE_EXEC):
		return "Describe does not claim FEATURE_EXEC"
	case n&needsChoice != 0 && !slices.Contains(claimed, adapterv1.Feature_FEATURE_NODE):
		return "Describe does not claim FEATURE_NODE"
	}
	return ""
}

func (e *env) suspend(ids ...string) {
	e.Helper()
	e.setSuspended(&adapterv1.SuspendRequest{Suspend: ids})
}
func (e *env) resume(ids ...string) {
	e.Helper()
	e.setSuspended(&adapterv1.SuspendRequest{Resume: ids})
}

func (e *env) setSuspended(r *adapterv1.SuspendRequest) {
	e.Helper()
	ctx, cancel := e.call()
	defer cancel()
	if _, err := e.client.Suspend(ctx, r); err != nil {
		e.Fatalf("Suspend(%v): %v. It must succeed whatever the state of the attempts, also for attempts never heard of", r, err)
	}
}

func (o *observer) suspended(id string) *adapterv1.Status {
	o.e.Helper()
	return o.until(id, "suspended", func(s *adapterv1.Status) bool { return s.Phase == adapterv1.Phase_PHASE_SUSPENDED })
}

// keeps fails if an attempt is in another phase within two seconds.
func (o *observer) keeps(id string, phase adapterv1.Phase, why string) {
	o.e.Helper()
	if o.wait(2*time.Second, func() bool { return o.last(id).Phase != phase }) {
		o.e.Errorf("%s: attempt %s has become {%v}; want it to stay %v", why, id, o.last(id), phase)
	}
}

// again waits until an attempt that was suspended runs.
func (o *observer) again(id string) {
	o.e.Helper()
	o.until(id, "running again", func(s *adapterv1.Status) bool { return s.Phase == adapterv1.Phase_PHASE_RUNNING })
}

// suspendRunning: both ways, each said twice.
func suspendRunning(e *env) {
	o := e.observe()
	a, b := e.once(e.c.Commands.Wait), e.attempt(e.c.Commands.Wait)
	e.apply(a, b)
	o.running(a.AttemptId)
	o.running(b.AttemptId)
	e.began(a.AttemptId)
	for range 2 {
		e.suspend(a.AttemptId)
		o.suspended(a.AttemptId)
		e.suspend(a.AttemptId, a.AttemptId)
		o.keeps(a.AttemptId, adapterv1.Phase_PHASE_SUSPENDED, "suspended twice")
		if st := o.last(b.AttemptId); st.Phase != adapterv1.Phase_PHASE_RUNNING {
			e.Errorf("Suspend of one attempt changed another: {%v}", st)
		}
		e.resume(a.AttemptId)
		o.again(a.AttemptId)
		e.resume(a.AttemptId)
		o.keeps(a.AttemptId, adapterv1.Phase_PHASE_RUNNING, "resumed twice")
	}
	e.apply(a)
	e.stop(a.AttemptId)
	o.endedBy(a.AttemptId, "stopped")
	e.ranOnce(a.AttemptId, "suspended and resumed")
}

// suspendStill: it does nothing, and goes on where it was.
func suspendStill(e *env) {
	o := e.observe()
	a := e.attempt("n=0; while :; do n=$((n+1)); echo $n; sleep 0.05; done")
	e.apply(a)
	o.running(a.AttemptId)
	e.await(a.AttemptId, "1\n")
	e.suspend(a.AttemptId)
	o.suspended(a.AttemptId)
	size := func() (n int) {
		for {
			r, err := e.read(a.AttemptId, int64(n), 64<<10, 0)
			if err != nil {
				e.Fatalf("ReadLog of a suspended attempt: %v", err)
			}
			if n += len(r.Data); len(r.Data) == 0 {
				return n
			}
		}
	}
	// What was written before may be on its way for a moment.
	before := -1
	if !e.within(e.c.Patience, func() bool {
		was := before
		before = size()
		return was == before
	}) {
		e.Errorf("a suspended attempt goes on writing for %v; it must stand still", e.c.Patience)
	}
	if e.within(time.Second, func() bool { return size() != before }) {
		e.Errorf("a suspended attempt wrote %d bytes within a second; it must stand still", size()-before)
	}
	e.resume(a.AttemptId)
	o.again(a.AttemptId)
	if !e.within(e.c.Patience, func() bool { return size() > before }) {
		e.Errorf("a resumed attempt writes nothing for %v", e.c.Patience)
	}
	e.stop(a.AttemptId)
	o.endedBy(a.AttemptId, "stopped")
	want := 0
	for line := range strings.Lines(string(e.log(a.AttemptId))) {
		if want++; strings.TrimSuffix(line, "\n") != strconv.Itoa(want) && strings.HasSuffix(line, "\n") {
			e.Errorf("line %d of an attempt that was suspended is %s: it must go on where it stood, not begin again", want, clip(line))
			return
		}
	}
}

// suspendOthers: what does not run is left as it is.
func suspendOthers(e *env) {
	o := e.observe()
	a := e.attempt(e.c.Commands.Exit(4))
	e.apply(a)
	end := o.endedBy(a.AttemptId, "exit")
	none := newID("att")
	e.suspend(a.AttemptId, none, "", "../x")
	e.resume(a.AttemptId, none, "", "../x")
	e.setSuspended(&adapterv1.SuspendRequest{})
	o.stays(a.AttemptId, "suspended after its end")
	if st := o.last(a.AttemptId); st.Reason != end.Reason || st.ExitCode != end.ExitCode {
		e.Errorf("an attempt had ended with {%v} and was suspended after that: {%v}", end, st)
	}
	// One that comes after it was suspended runs: only what runs is suspended.
	b := e.attempt(e.c.Commands.Exit(0))
	b.AttemptId = none
	e.apply(b)
	o.completed(none)
}

func suspendStop(e *env) {
	o := e.observe()
	a := e.attempt(e.c.Commands.Wait)
	e.apply(a)
	o.running(a.AttemptId)
	e.suspend(a.AttemptId)
	o.suspended(a.AttemptId)
	e.stop(a.AttemptId)
	o.endedBy(a.AttemptId, "stopped")
}

// suspendRestart: what a driver was told and what it knows outlives it.
func suspendRestart(e *env) {
	o := e.observe()
	a := e.once(e.c.Commands.Wait)
	e.apply(a)
	o.running(a.AttemptId)
	e.began(a.AttemptId)
	e.suspend(a.AttemptId)
	o.suspended(a.AttemptId)
	e.restart()
	o = e.observe()
	o.suspended(a.AttemptId)
	e.apply(a)
	o.keeps(a.AttemptId, adapterv1.Phase_PHASE_SUSPENDED, "suspended before the driver was killed")
	e.resume(a.AttemptId)
	o.again(a.AttemptId)
	e.restart()
	o = e.observe()
	o.running(a.AttemptId)
	e.stop(a.AttemptId)
	o.endedBy(a.AttemptId, "stopped")
	e.ranOnce(a.AttemptId, "suspended over a restart")
}

// beside is a command run by Exec, and what came of it.
type beside struct {
	out, errs bytes.Buffer
	code      int32
	ended     bool
	err       error
}

// exec runs a shell's command line beside an attempt, with input, and waits
// for its end.
func (e *env) exec(id, line, input string) *beside {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.c.Patience)
	defer cancel()
	r := &beside{}
	stream, err := e.client.Exec(ctx)
	if err != nil {
		r.err = err
		return r
	}
	defer func() { _ = stream.CloseRequest(); cancel(); _ = stream.CloseResponse() }() // it has ended, or is broken off
	for _, m := range []*adapterv1.ExecRequest{{Start: &adapterv1.ExecStart{AttemptId: id, Command: []string{"/bin/sh", "-c", line}}}, {Input: []byte(input)}, {InputEnd: true}} {
		if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) { // else Receive says why
			r.err = err
			return r
		}
	}
	for !r.ended {
		m, err := stream.Receive()
		if err != nil {
			r.err = err
			return r
		}
		r.out.Write(m.Output)
		r.errs.Write(m.ErrorOutput)
		r.ended, r.code = m.Ended, m.ExitCode
	}
	return r
}

// execOn is exec with an attempt that runs for it.
func (e *env) execOn() (*observer, string) {
	e.Helper()
	o := e.observe()
	a := e.attempt(e.c.Commands.Wait)
	e.apply(a)
	o.running(a.AttemptId)
	return o, a.AttemptId
}

func execStreams(e *env) {
	_, id := e.execOn()
	r := e.exec(id, "cat; echo wrong >&2", "some\x00\xffbytes\n")
	if r.err != nil || r.out.String() != "some\x00\xffbytes\n" || r.errs.String() != "wrong\n" || r.code != 0 {
		e.Errorf("a command that copies its input of 12 bytes to its output and writes wrong to its error output gave %s and %s, code %d, %v: all streams must arrive byte for byte, and its end after them", clip(r.out.Bytes()), clip(r.errs.Bytes()), r.code, r.err)
	}
	if r := e.exec(id, "head -c 3000000 /dev/zero", ""); r.err != nil || r.out.Len() != 3000000 {
		e.Errorf("of 3000000 bytes of output %d came: %v", r.out.Len(), r.err)
	}
}

func execCodes(e *env) {
	_, id := e.execOn()
	for line, want := range map[string]int32{"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -9 $$": 137} {
		if r := e.exec(id, line, ""); r.err != nil || r.code != want {
			e.Errorf("%q beside an attempt gave exit code %d, %v; want %d: it is shown as it is, and 128 and the signal's number for a signal", line, r.code, r.err, want)
		}
	}
}

// execCanceled: a stream that ends takes its command along, and only that.
func execCanceled(e *env) {
	o, id := e.execOn()
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	stream, err := e.client.Exec(ctx)
	if err != nil {
		e.Fatalf("Exec: %v", err)
	}
	path := "/tmp/yunhe-adaptertest-" + id
	if err := stream.Send(&adapterv1.ExecRequest{Start: &adapterv1.ExecStart{AttemptId: id, Command: []string{"/bin/sh", "-c", "echo $$ >" + path + "; echo on; exec sleep 3600"}}}); err != nil {
		e.Fatalf("Exec: %v", err)
	}
	if m, err := stream.Receive(); err != nil || string(m.Output) != "on\n" {
		e.Fatalf("Exec of a command that writes on and waits: %v, %v; what it writes must come while it runs", m, err)
	}
	cancel()
	_ = stream.CloseRequest() // before that, nothing tells the driver
	if !e.within(e.c.Patience, func() bool {
		r := e.exec(id, "kill -0 $(cat "+path+") 2>/dev/null && echo there || echo gone", "")
		return r.err == nil && r.out.String() == "gone\n"
	}) {
		e.Errorf("a command whose stream was broken off runs on: closing the stream must end it")
	}
	e.exec(id, "rm -f "+path, "")
	if st := o.last(id); st.Phase != adapterv1.Phase_PHASE_RUNNING {
		e.Errorf("the end of a command beside attempt %s ended the attempt: {%v}", id, st)
	}
}

// execEnds: an attempt's end takes the commands beside it along.
func execEnds(e *env) {
	o, id := e.execOn()
	done := make(chan *beside, 1)
	begin := time.Now()
	go func() { done <- e.exec(id, "echo on; exec sleep 3600", "") }()
	e.within(e.c.Patience, func() bool {
		r := e.exec(id, "true", "")
		return r.err == nil && time.Since(begin) > 200*time.Millisecond
	})
	e.stop(id)
	o.endedBy(id, "stopped")
	select {
	case r := <-done:
		if r.err == nil && r.code == 0 {
			e.Errorf("a command that was killed with its attempt is said to have ended with exit code 0")
		}
	case <-time.After(e.c.Patience):
		e.Errorf("a command beside an attempt that has ended runs on for %v: it must end with the attempt", e.c.Patience)
	}
	r := e.exec(id, "true", "")
	e.wantCode(r.err, "Exec beside an attempt that has ended", connect.CodeFailedPrecondition)
}

func execUnknown(e *env) {
	for _, id := range []string{newID("att"), "", "../x"} {
		r := e.exec(id, "true", "")
		e.wantCode(r.err, "Exec beside attempt "+clip(id)+", which is unknown,", connect.CodeNotFound)
	}
}

// featuresUnclaimed: what Describe does not claim is not there.
func (e *env) featuresUnclaimed() {
	e.Helper()
	ctx, cancel := e.call()
	defer cancel()
	claimed := e.describe().Features
	_, err := e.client.Suspend(ctx, &adapterv1.SuspendRequest{})
	if slices.Contains(claimed, adapterv1.Feature_FEATURE_SUSPEND) {
		if err != nil {
			e.Errorf("Suspend of nothing: %v; want success, for FEATURE_SUSPEND is claimed", err)
		}
	} else {
		e.wantCode(err, "Suspend, while Describe does not claim FEATURE_SUSPEND,", connect.CodeUnimplemented)
	}
	if !slices.Contains(claimed, adapterv1.Feature_FEATURE_EXEC) {
		e.wantCode(e.exec(newID("att"), "true", "").err, "Exec, while Describe does not claim FEATURE_EXEC,", connect.CodeUnimplemented)
	}
}
