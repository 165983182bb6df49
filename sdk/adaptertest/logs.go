package adaptertest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

var logChecks = []check{
	{"logs/offsets", needsNothing, logOffsets},
	{"logs/bytes", needsNothing, logBytes},
	{"logs/large", needsShell, logLarge},
	{"logs/both", needsShell, logBoth},
	{"logs/follow", needsShell, logFollow},
	{"logs/end", needsNothing, logEnd},
	{"logs/unknown", needsNothing, logUnknown},
	{"logs/canceled", needsNothing, logCanceled},
}

// printed runs a command that prints text and returns the attempt, ended.
func (e *env) printed(text string) (*adapterv1.Attempt, *adapterv1.Status) {
	e.Helper()
	o := e.observe()
	a := e.attempt(e.c.Commands.Print(text))
	e.apply(a)
	return a, o.ended(a.AttemptId)
}

// wantLog fails unless a log, and what the status says of it, is text.
func (e *env) wantLog(st *adapterv1.Status, text string) {
	e.Helper()
	if got := e.log(st.AttemptId); string(got) != text {
		e.Errorf("the log is %s, want %s, byte for byte", clip(got), clip(text))
	}
	if st.LogBytes != int64(len(text)) {
		e.Errorf("an ended status says log_bytes %d, want %d: the platform copies the log only if there is one", st.LogBytes, len(text))
	}
	if st.LogInline && string(st.Log) != text {
		e.Errorf("a status with log_inline carries %s, want the whole log %s", clip(st.Log), clip(text))
	}
	if len(st.Log) > 8<<10 {
		e.Errorf("a status carries %d bytes of log, at most 8192 may come with it", len(st.Log))
	}
}

func logOffsets(e *env) {
	var text strings.Builder
	for i := range 200 {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	want := text.String()
	a, st := e.printed(want)
	e.wantLog(st, want)
	for _, p := range []struct{ offset, limit int64 }{{0, 1}, {0, 10}, {1, 10}, {7, 100}, {100, 524288}, {int64(len(want)) - 1, 10}, {int64(len(want)) - 10, 10}} {
		r, err := e.read(a.AttemptId, p.offset, p.limit, 0)
		if err != nil {
			e.Fatalf("ReadLog at %d, limit %d: %v", p.offset, p.limit, err)
		}
		end := min(p.offset+p.limit, int64(len(want)))
		whole := want[p.offset:end]
		if r.Offset != p.offset || len(r.Data) == 0 || !strings.HasPrefix(whole, string(r.Data)) {
			e.Errorf("ReadLog at %d, limit %d, answers %s at %d; want the first bytes of %s at %d. offset counts bytes from the log's beginning, and the answer has at most limit bytes", p.offset, p.limit, clip(r.Data), r.Offset, clip(whole), p.offset)
		}
		if after := p.offset + int64(len(r.Data)); r.End && after < int64(len(want)) {
			e.Errorf("ReadLog at %d, limit %d, says end after %d of %d bytes; end means that no more will come after data", p.offset, p.limit, after, len(want))
		}
	}
	if got := e.logBy(a.AttemptId, 97); string(got) != want {
		e.Errorf("read in pieces of 97 bytes the log is %s, want %s", clip(got), clip(want))
	}
	e.restart()
	if r, err := e.read(a.AttemptId, 50, 20, 0); err != nil || string(r.Data) != want[50:70] {
		e.Errorf("ReadLog at 50, limit 20, after a restart: %v, %v; want %q: offsets must mean the same in every call", r, err, want[50:70])
	}
}

func logBytes(e *env) {
	all := make([]byte, 0, 260)
	for b := 1; b < 256; b++ { // a shell cannot pass a zero byte
		all = append(all, byte(b))
	}
	text := string(all) + "\xff\xfe no UTF-8 \xc3\n"
	_, st := e.printed(text)
	e.wantLog(st, text)
}

// logLarge: 1 MiB whose every place is different, whole and in pieces.
func logLarge(e *env) {
	const from, to = 100000, 249799
	var text strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&text, "%d\n", i)
	}
	want := text.String()
	o := e.observe()
	// Some container runtimes lose what is still in the pipe when a program
	// ends; that is not the driver's doing.
	a := e.attempt(fmt.Sprintf("seq %d %d && sleep 2", from, to))
	e.apply(a)
	got := e.log(a.AttemptId) // while it is written
	if string(got) != want {
		e.Errorf("a log of %d bytes, read while it was written, has %d; they differ at %d", len(want), len(got), differ(got, want))
	}
	st := o.ended(a.AttemptId)
	if e.wantLog(st, want); st.LogInline {
		e.Errorf("a status carries a log of %d bytes; at most 8192 come with it", len(want))
	}
	r, err := e.read(a.AttemptId, 0, 1<<30, 0)
	if err != nil || len(r.Data) > 524288 || r.End {
		e.Errorf("ReadLog of a log of %d bytes with limit 2^30: %d bytes, end %v, error %v; want at most 524288 and no end", len(want), len(r.GetData()), r.GetEnd(), err)
	}
	r, err = e.read(a.AttemptId, 700_000, 100, 0)
	if err != nil || len(r.Data) == 0 || !bytes.HasPrefix([]byte(want[700_000:700_100]), r.Data) {
		e.Errorf("ReadLog at 700000, limit 100: %v, %v; want %q", r, err, want[700_000:700_100])
	}
}

// differ is where two texts begin to.
func differ(a []byte, b string) int {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

func logBoth(e *env) {
	o := e.observe()
	a := e.attempt("echo out; echo err >&2")
	e.apply(a)
	o.completed(a.AttemptId)
	if got := string(e.log(a.AttemptId)); got != "out\nerr\n" && got != "err\nout\n" {
		e.Errorf("the log is %q; want what the command wrote to its output and to its error output", got)
	}
}

// logFollow: bytes come as they are written, and a wait lasts no longer.
func logFollow(e *env) {
	o := e.observe()
	a := e.attempt("echo one; sleep 4; echo two; exec sleep 3600")
	e.apply(a)
	o.running(a.AttemptId)
	e.await(a.AttemptId, "one\n")
	begin := time.Now()
	r, err := e.read(a.AttemptId, 4, 100, 500*time.Millisecond)
	if d := time.Since(begin); err != nil || r.End || d > 500*time.Millisecond+e.c.CallTimeout/2 {
		e.Fatalf("ReadLog at the end of a running attempt's log, with a wait of 500 ms: %v, %v after %v; want an answer without bytes and without end after that time", r, err, d)
	} else if len(r.Data) == 0 && d < 400*time.Millisecond {
		e.Errorf("ReadLog with wait_milliseconds 500 answered without bytes after %v; want it to wait, or the platform asks in a busy loop", d)
	}
	begin = time.Now()
	var got []byte
	for len(got) == 0 && time.Since(begin) < e.c.Patience {
		if r, err = e.read(a.AttemptId, 4, 100, 8*time.Second); err != nil {
			e.Fatalf("ReadLog with a wait: %v", err)
		}
		got = append(got, r.Data...)
	}
	if d := time.Since(begin); string(got) != "two\n" || d > 7*time.Second {
		e.Errorf("the second line came as %q after %v; want it when it is written, in about 4 s, not when the wait of 8 s is over", got, d)
	}
	e.stop(a.AttemptId)
	o.ended(a.AttemptId)
	if got := e.log(a.AttemptId); !bytes.HasPrefix(got, []byte("one\ntwo\n")) {
		e.Errorf("after the stop the log is %q, want what was written before it", got)
	}
}

func logEnd(e *env) {
	a, st := e.printed("abc")
	e.wantLog(st, "abc")
	for _, wait := range []time.Duration{0, 5 * time.Second} {
		for _, offset := range []int64{3, 4, 1 << 40} {
			begin := time.Now()
			r, err := e.read(a.AttemptId, offset, 100, wait)
			if err != nil || len(r.Data) > 0 || !r.End {
				e.Errorf("ReadLog at %d of an ended attempt's log of 3 bytes: %v, %v; want no bytes, end, no error", offset, r, err)
			} else if d := time.Since(begin); wait > 0 && d > wait-time.Second {
				e.Errorf("ReadLog behind the end took %v; nothing can come, so it must not wait", d)
			}
		}
	}
	_, st = e.printed("") // an attempt that wrote nothing
	e.wantLog(st, "")
}

// wantGone wants a log to be unknown.
func (e *env) wantGone(id, when string) {
	e.Helper()
	_, err := e.read(id, 0, 100, 0)
	e.wantCode(err, fmt.Sprintf("ReadLog of %q, which is unknown%s,", id, when), connect.CodeNotFound)
}

func logUnknown(e *env) {
	e.wantGone(newID("att"), "")
	e.wantGone("", "")
	e.wantGone("../"+newID("att"), "")
}

// logCanceled: a wait that is broken off ends at the driver too.
func logCanceled(e *env) {
	o := e.observe()
	a := e.attempt(e.c.Commands.Wait)
	e.apply(a)
	o.running(a.AttemptId)
	ctx, cancel := context.WithCancel(e.Context()) // one with a deadline would put its own into the call
	defer cancel()
	defer time.AfterFunc(e.c.CallTimeout, cancel).Stop()
	begin := time.Now()
	_, err := e.in.Client(connect.WithInterceptors(after("500"))).ReadLog(ctx, &adapterv1.ReadLogRequest{AttemptId: a.AttemptId, Limit: 10, WaitMilliseconds: 60_000})
	e.wantCode(err, fmt.Sprintf("ReadLog that waits for a minute with a deadline of 500 ms (sent as the Connect protocol does), after %v,", time.Since(begin).Round(time.Millisecond)), connect.CodeDeadlineExceeded)
	e.stop(a.AttemptId)
	o.ended(a.AttemptId)
}
