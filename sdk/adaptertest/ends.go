package adaptertest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

var endChecks = []check{
	{"ends/codes", needsNothing, endCodes},
	{"ends/signal", needsShell, endSignal},
	{"ends/wall-time", needsNothing, endWallTime},
	{"ends/times", needsShell, endTimes},
	{"observe/readers", needsNothing, observeReaders},
	{"observe/slow", needsNothing, observeSlow},
	{"observe/repeats", needsNothing, observeRepeats},
	{"runs/environment", needsShell, runsEnvironment},
	{"runs/files", needsShell, runsFiles},
}

func endCodes(e *env) {
	o := e.observe()
	codes := []int{0, 1, 7, 42, 143, 255}
	var all []*adapterv1.Attempt
	for _, c := range codes {
		all = append(all, e.attempt(e.c.Commands.Exit(c)))
	}
	e.apply(all...)
	for i, c := range codes {
		want := []string{"exit"}
		switch {
		case c == 0:
			want = []string{"completed"}
		case c > 128: // not every backend can tell it from a signal
			want = append(want, "signal")
		}
		if st := o.endedBy(all[i].AttemptId, want...); st.ExitCode != int32(c) {
			e.Errorf("a command that ends with status %d has exit code %d; users branch on it, so it must be exact", c, st.ExitCode)
		}
	}
}

func endSignal(e *env) {
	o := e.observe()
	a := e.attempt("kill -KILL $$")
	e.apply(a)
	if st := o.endedBy(a.AttemptId, "signal", "exit"); st.ExitCode != 137 && st.ExitCode != -1 {
		e.Errorf("a command killed by signal 9 has exit code %d; want 137 (128 + 9), or -1 with reason signal", st.ExitCode)
	}
}

func endWallTime(e *env) {
	o := e.observe()
	a := e.once(e.c.Commands.Wait)
	a.TimeoutSeconds = 2
	e.apply(a)
	st := o.endedBy(a.AttemptId, "wall_time")
	if d := time.Duration(st.EndedAt-st.StartedAt) * time.Microsecond; st.StartedAt != 0 && (d < 1500*time.Millisecond || d > 2*time.Second+e.c.Patience) {
		e.Errorf("an attempt with timeout_seconds 2 ran for %v", d)
	}
	// The limit is the backend's, or kept over a restart.
	b := e.once(e.c.Commands.Wait)
	b.TimeoutSeconds = 2
	e.apply(b)
	e.restart()
	e.observe().endedBy(b.AttemptId, "wall_time")
}

func endTimes(e *env) {
	o := e.observe()
	begin := time.Now()
	a := e.attempt("sleep 2")
	e.apply(a)
	st := o.ended(a.AttemptId)
	if d := time.Duration(st.EndedAt-st.StartedAt) * time.Microsecond; d < time.Second || d > time.Since(begin)+time.Second {
		e.Errorf("a command that takes 2 s is said to have run for %v, in an attempt that took %v in all; started_at and ended_at are charged for", d, time.Since(begin))
	}
}

func observeReaders(e *env) {
	a, b := e.observe(), e.observe()
	at := e.attempt(e.c.Commands.Exit(5))
	e.apply(at)
	a.ended(at.AttemptId)
	b.ended(at.AttemptId)
	e.observe().ended(at.AttemptId) // one that comes later
}

// observeSlow: a reader that does not read for a while misses no end.
func observeSlow(e *env) {
	const n = 24
	o := e.observe()
	reader := e.hist.reader()
	ctx, cancel := context.WithTimeout(e.Context(), 3*e.c.Patience)
	defer cancel()
	want := map[string]bool{}
	gate, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		// Only open: it may last until there is something to say.
		slow, err := e.client.Observe(ctx, &adapterv1.ObserveRequest{})
		if err != nil {
			e.Errorf("Observe: %v", err)
			return
		}
		defer func() { _ = slow.Close() }() // broken off
		<-gate
		for len(want) > 0 && slow.Receive() {
			for _, st := range slow.Msg().Statuses {
				if !e.isMine(st.AttemptId) {
					continue
				}
				if reader.add(st); st.Phase == adapterv1.Phase_PHASE_ENDED {
					delete(want, st.AttemptId)
				}
			}
		}
	}()
	e.dead = append(e.dead, func() { // if the check fails below
		cancel()
		<-done
	})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	for range n / 8 {
		var all []*adapterv1.Attempt
		for range 8 {
			a := e.attempt(e.c.Commands.Exit(0))
			all, want[a.AttemptId] = append(all, a), true
		}
		e.apply(all...)
		for _, a := range all {
			o.ended(a.AttemptId)
		}
	}
	open()
	defer time.AfterFunc(e.c.Patience, cancel).Stop()
	<-done
	if len(want) > 0 {
		e.Errorf("a reader of Observe that began to read only after %d attempts had ended was not told of %d ends within %v; each end must be sent to each reader, however slow (adapter.Board does)", n, len(want), e.c.Patience)
	}
}

func observeRepeats(e *env) {
	o := e.observe()
	done, runs := e.attempt(e.c.Commands.Exit(6)), e.once(e.c.Commands.Wait)
	e.apply(done, runs)
	st := o.ended(done.AttemptId)
	o.running(runs.AttemptId)
	for range 2 {
		e.restart()
		o = e.observe()
		if again := o.ended(done.AttemptId); again.ExitCode != st.ExitCode || again.Reason != st.Reason {
			e.Errorf("an end was {%v} and is {%v} after a restart", st, again)
		}
		o.running(runs.AttemptId)
	}
}

// spelled are values that do not survive a careless way.
var spelled = map[string]string{
	"SPACES": "  a  b  ", "LINES": "one\ntwo\n\nfour", "UNICODE": "云和 ✓ é", "QUOTES": `'single' "double" \back\slash`, "DOLLAR": "$HOME ${PATH} $(date) `date` $$",
	"EMPTY": "", "STAR": "* ? [a]", "EQUALS": "a=b=c", "PERCENT": "%s %d 100%", "_lower9": "x", "HASH": "# no comment", "COMMAS": "a,b;c", "TAB": "a\tb",
}

func runsEnvironment(e *env) {
	var names []string
	for k := range spelled {
		names = append(names, k)
	}
	slices.Sort(names)
	var cmd, want strings.Builder
	for _, k := range names {
		cmd.WriteString(`printf '%s=<%s>\n' ` + k + ` "$` + k + "\"\n")
		want.WriteString(k + "=<" + spelled[k] + ">\n")
	}
	cmd.WriteString(`[ "${EMPTY+set}" = set ] || echo EMPTY is not set` + "\n")
	o := e.observe()
	a := e.attempt(cmd.String())
	a.Env = spelled
	e.apply(a)
	o.completed(a.AttemptId)
	if got := string(e.log(a.AttemptId)); got != want.String() {
		e.Errorf("the environment did not arrive as it was sent, byte for byte:\ngot  %q\nwant %q", got, want.String())
	}
}

func runsFiles(e *env) {
	all := make([]byte, 0, 1024)
	for i := range 1024 {
		all = append(all, byte(i))
	}
	o := e.observe()
	a := e.attempt(`./tools/run.sh; cat "a file é.txt"; wc -c <bytes.bin | tr -d ' '; od -An -v -tu1 bytes.bin | tr -s ' \n' '\n\n' | head -258 | tail -1; [ -x "a file é.txt" ] && echo executable; ls -A | wc -l | tr -d ' '`)
	a.Files = []*adapterv1.File{
		{Path: "tools/run.sh", Content: []byte("#!/bin/sh\necho ran from a folder\n"), Executable: true},
		{Path: "a file é.txt", Content: []byte("line 'one'\n\n$HOME\n")},
		{Path: "bytes.bin", Content: all},
		{Path: "empty", Content: nil},
	}
	e.apply(a)
	o.ended(a.AttemptId)
	got := string(e.log(a.AttemptId))
	want := "ran from a folder\nline 'one'\n\n$HOME\n1024\n"
	if !strings.HasPrefix(got, want) || strings.Contains(got, "executable") {
		e.Errorf("the files did not arrive as they were sent (into the working directory, byte for byte, executable only where said):\ngot  %q\nwant %q first, and no word executable", got, want)
	}
}
