package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
)

// watched is an output that tests wait on.
type watched struct {
	mu sync.Mutex

	data    bytes.Buffer
	changed chan struct{}
}

func newWatched() *watched { return &watched{changed: make(chan struct{})} }

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.data.Write(p)
	close(w.changed)
	w.changed = make(chan struct{})
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.data.String()
}

// wait blocks until the output holds want n times.
func (w *watched) wait(t *testing.T, want string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		w.mu.Lock()
		data, changed := w.data.String(), w.changed
		w.mu.Unlock()
		if strings.Count(data, want) >= n {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("no %q in:\n%s", want, data)
		}
	}
}

// call is a run of the program under test.
type call struct {
	cli      *cli
	out, err *watched
	cancel   context.CancelFunc
	status   chan int
}

// start runs a command line; setup changes the cli before.
func start(t *testing.T, s *fakeServer, setup func(*cli), args ...string) *call {
	t.Helper()
	c := &call{out: newWatched(), err: newWatched(), status: make(chan int, 1)}
	env := map[string]string{"YUNHE_SERVER": s.url(), "YUNHE_KEY": fakeKey, "YUNHE_CONFIG": filepath.Join(t.TempDir(), "yunhe", "config.yaml")}
	c.cli = &cli{
		in: strings.NewReader(""), out: c.out, err: c.err, env: func(k string) string { return env[k] }, now: func() time.Time { return fakeNow },
		screen: func(io.Writer) (int, int, bool) { return 0, 0, false },
		retry:  backoff{first: time.Millisecond, most: 5 * time.Millisecond, limit: time.Minute},
	}
	if setup != nil {
		setup(c.cli)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.cancel = cancel
	t.Cleanup(cancel)
	go func() { c.status <- c.cli.run(ctx, args) }()
	return c
}

// end waits for the exit status.
func (c *call) end(t *testing.T, want int) {
	t.Helper()
	select {
	case got := <-c.status:
		if got != want {
			t.Fatalf("exit status %d, want %d\nstdout:\n%s\nstderr:\n%s", got, want, c.out, c.err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("does not end\nstdout:\n%s\nstderr:\n%s", c.out, c.err)
	}
}

const job1 = "job_00000000000000000000000001"

// submitted stores a job with n replicas and returns its ID.
func submitted(t *testing.T, s *fakeServer, name string, n int32) string {
	t.Helper()
	res, err := s.api.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: &jobsv1.JobSpec{
		Name: name, Tasks: []*jobsv1.Task{{Name: "train", Command: "true", ImageId: "host", ResourceSpecId: "small", ReplicaNumber: n}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return res.GetJobId()
}

const (
	succeeded = jobsv1.State_STATE_SUCCEEDED
	failed    = jobsv1.State_STATE_FAILED
	stopped   = jobsv1.State_STATE_STOPPED
	queued    = jobsv1.State_STATE_QUEUED
)

func TestWaitAnswersWithTheEnd(t *testing.T) {
	t.Parallel()
	for state, want := range map[jobsv1.State]int{succeeded: 0, failed: 1, stopped: 2} {
		for _, args := range [][]string{{"job", "wait", job1}, {"job", "submit", "--follow", "--image", "host", "--spec", "small", "--", "true"}} {
			t.Run(fmt.Sprintf("%s %s", args[1], stateName(state)), func(t *testing.T) {
				t.Parallel()
				s := startFake(t)
				if args[1] == "wait" {
					submitted(t, s, "true", 1)
				}
				c := start(t, s, nil, args...)
				c.err.wait(t, "true/0 queued", 0)
				c.err.wait(t, "true queued (1: 1 waiting)", 1)
				s.api.startRun(job1, 0, "bj-1")
				c.err.wait(t, "running at 北京一号", 1)
				s.api.print(job1, 0, "one\ntwo\n")
				s.api.finish(job1, 0, state, 0, "")
				c.end(t, want)
				if !strings.Contains(c.out.String(), stateName(state)+"  北京一号  20s  ¥0.002667  two") {
					t.Errorf("no summary with the last line of output:\n%s", c.out)
				}
			})
		}
	}
}

// A failed job shows the end of the log of what failed first.
func TestWaitShowsWhyItFailed(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "f", 2)
	s.api.startRun(job1, 0, "bj-1")
	s.api.startRun(job1, 1, "sh-1")
	s.api.print(job1, 0, "fine\n")
	for i := range 100 {
		s.api.print(job1, 1, fmt.Sprintf("line %d\n", i))
	}
	s.api.print(job1, 1, "\x1b[31mTraceback: no memory\n")
	s.api.finish(job1, 0, succeeded, 0, "")
	s.api.finish(job1, 1, failed, 1, "exit status 1")
	c := start(t, s, nil, "job", "wait", job1)
	c.end(t, 1)
	got := c.err.String()
	for _, want := range []string{"the end of the output of train/1:\n  line 81\n", "  line 99\n  �[31mTraceback: no memory\n", "yunhe job logs " + job1 + " --task 0 --replica 1"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "line 80\n") || strings.Contains(got, "\x1b") {
		t.Errorf("too much, or control characters, in:\n%q", got)
	}
}

// The same with a server that leaves the replicas out of its events.
func TestWaitAsksForReplicas(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	s.api.bareEvents = true
	submitted(t, s, "b", 1)
	c := start(t, s, nil, "job", "wait", job1)
	c.err.wait(t, "train/0 queued", 1)
	s.api.startRun(job1, 0, "sh-1")
	c.err.wait(t, "train/0 running at Shanghai", 1)
	s.api.finish(job1, 0, succeeded, 0, "")
	c.end(t, 0)
}

func TestWaitSurvivesRestart(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "r", 1)
	c := start(t, s, nil, "job", "wait", job1)
	s.api.startRun(job1, 0, "bj-1")
	c.err.wait(t, "train/0 running", 1)
	for round := 1; round <= 2; round++ {
		s.stop()
		c.err.wait(t, "connection to http", round)
		s.start()
		c.err.wait(t, "connected again", round)
	}
	s.api.finish(job1, 0, succeeded, 0, "")
	c.end(t, 0)
	if n := strings.Count(c.err.String(), "train/0 running"); n != 1 {
		t.Errorf("said %d times that the replica runs, want once:\n%s", n, c.err)
	}
}

func TestWaitGivesUp(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "g", 1)
	c := start(t, s, func(c *cli) { c.retry.limit = 20 * time.Millisecond }, "job", "wait", job1)
	c.err.wait(t, "train/0 queued", 1)
	s.stop()
	t.Cleanup(s.start)
	c.end(t, 1)
	if !strings.Contains(c.err.String(), "error: no server answers at "+s.url()) {
		t.Errorf("stderr:\n%s", c.err)
	}
}

func TestInterruptedWaitLeavesTheJob(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "i", 1)
	c := start(t, s, nil, "job", "wait", job1)
	c.err.wait(t, "train/0 queued", 1)
	c.cancel()
	c.end(t, exitInterrupted)
	if !strings.Contains(c.err.String(), job1+" goes on") {
		t.Errorf("stderr:\n%s", c.err)
	}
	job, err := s.api.GetJob(t.Context(), &jobsv1.GetJobRequest{JobId: job1})
	if err != nil {
		t.Fatal(err)
	}
	if got := stateName(job.GetState()); got != "queued" {
		t.Errorf("the job is %s, want queued", got)
	}
}

func TestWaitTimeout(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "t", 1)
	c := start(t, s, nil, "job", "wait", job1, "--timeout", "30ms")
	c.end(t, 1)
	if !strings.Contains(c.err.String(), "error: "+job1+" has not ended within 30ms; it goes on") {
		t.Errorf("stderr:\n%s", c.err)
	}
}

// No byte of a followed log is lost or doubled when the server restarts in the
// middle, nor when a replica is run again.
func TestLogsFollowSurvivesRestartAndRetry(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "l", 2)
	c := start(t, s, nil, "job", "logs", job1, "-f", "--replica", "1")
	s.api.startRun(job1, 1, "bj-1")
	var want strings.Builder
	say := func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		want.WriteString(line)
		s.api.print(job1, 1, line)
	}
	say("half a line, ")
	c.out.wait(t, "half a line, ", 1)
	for round := range 3 {
		s.stop()
		say("written while the server was away %d\n", round) // the center keeps it
		s.start()
		c.out.wait(t, fmt.Sprintf("away %d\n", round), 1)
		say("%s round %d\n", strings.Repeat("x", 2500), round)
	}
	s.api.finish(job1, 1, queued, 1, "exit status 1; is run again")
	s.api.startRun(job1, 1, "sh-1")
	say("second run\n")
	c.out.wait(t, "second run\n", 1)
	s.api.finish(job1, 1, succeeded, 0, "")
	s.api.finish(job1, 0, stopped, 0, "")
	c.end(t, 0)
	if diff := cmp.Diff(want.String(), c.out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if !strings.Contains(c.err.String(), "connection to http") {
		t.Errorf("the outage is not mentioned:\n%s", c.err)
	}
}

func TestLogsOfOneRun(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "l", 1)
	for run := range 3 {
		s.api.startRun(job1, 0, "bj-1")
		s.api.print(job1, 0, fmt.Sprintf("run %d\n", run+1))
		s.api.finish(job1, 0, queued, 1, "")
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "run 3\n"}, {[]string{"--attempt", "1"}, "run 1\n"}, {[]string{"--attempt", "2", "-f"}, "run 2\n"},
	} {
		call := start(t, s, nil, append([]string{"job", "logs", job1}, c.args...)...)
		call.end(t, 0)
		if got := call.out.String(); got != c.want {
			t.Errorf("logs %v = %q, want %q", c.args, got, c.want)
		}
	}
	call := start(t, s, nil, "job", "logs", job1, "--attempt", "9")
	call.end(t, 1)
	if !strings.Contains(call.err.String(), `no run "9"`) {
		t.Errorf("stderr:\n%s", call.err)
	}
}

// Several logs are interleaved by whole lines under their replicas' names.
func TestLogsFollowSeveral(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	const n = 12
	submitted(t, s, "several", n)
	c := start(t, s, nil, "job", "logs", job1, "-f")
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s.api.startRun(job1, i, "bj-1")
			for line := range 50 {
				s.api.print(job1, i, fmt.Sprintf("%d:", i))
				s.api.print(job1, i, fmt.Sprintf("%d\n", line))
			}
			s.api.print(job1, i, "end without newline")
			s.api.finish(job1, i, succeeded, 0, "")
		})
	}
	wg.Wait()
	c.end(t, 0)
	got := map[string][]string{}
	for line := range strings.Lines(c.out.String()) {
		name, rest, ok := strings.Cut(line, "| ")
		if !ok {
			t.Fatalf("line without a name: %q", line)
		}
		got[strings.TrimSpace(name)] = append(got[strings.TrimSpace(name)], rest)
	}
	want := map[string][]string{}
	for i := range n {
		name := fmt.Sprintf("train/%d", i)
		for line := range 50 {
			want[name] = append(want[name], fmt.Sprintf("%d:%d\n", i, line))
		}
		want[name] = append(want[name], "end without newline\n")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines by replica (-want +got):\n%s", diff)
	}
}

func TestLogsFollowTooMany(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "many", maxFollowed+1)
	c := start(t, s, nil, "job", "logs", job1, "-f")
	c.end(t, exitUsage)
	if !strings.Contains(c.err.String(), "201 replicas are too many to follow at once, the limit is 200") {
		t.Errorf("stderr:\n%s", c.err)
	}
}

// A submission whose answer is lost is asked for again and stored once.
func TestSubmitLosesAnswers(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	s.api.loseAnswers = 2
	c := start(t, s, nil, "job", "submit", "-o", "name", "--image", "host", "--spec", "small", "--", "true")
	c.end(t, 0)
	if got := c.out.String(); got != job1+"\n" || s.api.stored() != 1 {
		t.Errorf("answer %q, %d jobs stored, want %s and 1", got, s.api.stored(), job1)
	}
}

func TestSubmitThatMayBeStoredSaysSo(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	s.api.loseAnswers = 1 << 30
	c := start(t, s, func(c *cli) { c.retry.limit = 20 * time.Millisecond },
		"job", "submit", "--request-id", "mine", "--image", "host", "--spec", "small", "--", "true")
	c.end(t, 1)
	if !strings.Contains(c.err.String(), "the same command with --request-id mine is safe") || s.api.stored() != 1 {
		t.Errorf("%d jobs stored, want 1; stderr:\n%s", s.api.stored(), c.err)
	}
}

func TestListWatchPrintsChanges(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "old", 1)
	c := start(t, s, nil, "job", "list", "--watch", "--name", "o")
	c.out.wait(t, job1, 1)
	second := submitted(t, s, "other", 1)
	c.out.wait(t, second, 1)
	submitted(t, s, "hidden", 1)
	s.stop()
	third := submitted(t, s, "one while away", 1)
	s.start()
	c.out.wait(t, third, 1)
	s.api.startRun(second, 0, "bj-1")
	c.out.wait(t, "running", 1)
	c.cancel()
	c.end(t, exitInterrupted)
	got := c.out.String()
	if n := strings.Count(got, "JOB "); n != 1 {
		t.Errorf("%d headers, want 1:\n%s", n, got)
	}
	if strings.Contains(got, "hidden") || strings.Count(got, job1) != 1 || strings.Count(got, second) != 2 {
		t.Errorf("wrong changes:\n%s", got)
	}
	if !strings.Contains(c.err.String(), "connected again") {
		t.Errorf("stderr:\n%s", c.err)
	}
}

func TestListWatchAsJSON(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "a", 1)
	c := start(t, s, nil, "job", "list", "-w", "-o", "json")
	c.out.wait(t, "\n", 1)
	s.api.startRun(job1, 0, "bj-1")
	c.out.wait(t, "\n", 2)
	c.cancel()
	c.end(t, exitInterrupted)
	for line := range strings.Lines(c.out.String()) {
		if !strings.HasPrefix(line, `{"jobId":"`+job1+`"`) {
			t.Errorf("not one object per line: %q", line)
		}
	}
}

// terminal is what a person sees: it understands the few sequences used.
type terminal struct {
	*watched
	columns, rows int
}

var sequence = regexp.MustCompile(`\x1b\[([0-9]*)([A-Za-z])`)

// screen returns the lines that are visible after everything was drawn.
func (term *terminal) screen(t *testing.T) []string {
	t.Helper()
	lines, at := []string{""}, 0
	data := term.String()
	for data != "" {
		switch {
		case data[0] == '\n':
			at++
			if at == len(lines) {
				lines = append(lines, "")
			}
			data = data[1:]
		case data[0] == '\r':
			data = data[1:]
		case data[0] == '\x1b':
			m := sequence.FindStringSubmatch(data)
			if m == nil || !strings.HasPrefix(data, m[0]) {
				t.Fatalf("unknown sequence in %q", data[:min(20, len(data))])
			}
			switch m[2] {
			case "A":
				n := 0
				fmt.Sscan(m[1], &n)
				if at -= n; at < 0 || n >= term.rows {
					t.Fatalf("moved up %d lines of %d on a screen of %d", n, at+n, term.rows)
				}
			case "J":
				lines = append(lines[:at], "")
			case "m":
			default:
				t.Fatalf("unexpected sequence %q", m[0])
			}
			data = data[len(m[0]):]
		default:
			n := strings.IndexAny(data, "\n\r\x1b")
			if n < 0 {
				n = len(data)
			}
			lines[at] += data[:n]
			if text.Width(lines[at]) > term.columns {
				t.Fatalf("line of %d cells on a screen of %d: %q", text.Width(lines[at]), term.columns, lines[at])
			}
			data = data[n:]
		}
	}
	return lines
}

func onTerminal(columns, rows int) (func(*cli), *terminal) {
	term := &terminal{newWatched(), columns, rows}
	return func(c *cli) {
		c.out, c.err = term, term
		c.screen = func(io.Writer) (int, int, bool) { return columns, rows, true }
	}, term
}

// On a terminal progress is one block that is replaced, and gone at the end.
func TestWaitOnATerminal(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "数字识别", 30)
	setup, term := onTerminal(90, 12)
	c := start(t, s, setup, "job", "wait", job1)
	term.wait(t, "queued", 1)
	s.api.startRun(job1, 29, "bj-1")
	s.api.edit(job1, func(j *jobsv1.Job) { j.Replicas[29].Message = strings.Repeat("long ", 50) })
	term.wait(t, "long", 1)
	screen := term.screen(t)
	if len(screen) != 12 || !strings.HasPrefix(screen[0], "数字识别  "+job1+"  running  30: 1 running") ||
		!strings.HasPrefix(screen[2], "train/29  running  北京一号") || !strings.HasSuffix(screen[2], "…") || screen[10] != "… and 22 more" {
		t.Errorf("screen of %d lines:\n%s", len(screen), strings.Join(screen, "\n"))
	}
	for i := range 30 {
		s.api.startRun(job1, i, "bj-1")
		s.api.finish(job1, i, succeeded, 0, "")
	}
	c.end(t, 0)
	screen = term.screen(t)
	if !strings.Contains(screen[0], "succeeded  30: 30 succeeded") || strings.Contains(strings.Join(screen, "\n"), "more") {
		t.Errorf("the progress is still there:\n%s", strings.Join(screen, "\n"))
	}
}

func TestListWatchOnATerminal(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "first", 1)
	setup, term := onTerminal(100, 20)
	c := start(t, s, setup, "job", "list", "--watch")
	term.wait(t, "first", 1)
	submitted(t, s, "second", 1)
	term.wait(t, "second", 1)
	s.api.startRun(job1, 0, "sh-1")
	term.wait(t, "running", 1)
	c.cancel()
	c.end(t, exitInterrupted)
	screen := term.screen(t)
	if len(screen) < 3 || !strings.HasPrefix(screen[0], "JOB") || !strings.Contains(screen[1], "second") || !strings.Contains(screen[2], "first") || !strings.Contains(screen[2], "sh-1") {
		t.Errorf("screen:\n%s", strings.Join(screen, "\n"))
	}
}

func TestColorsOnTerminalsOnly(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	onTTY := func(c *cli) { c.screen = func(io.Writer) (int, int, bool) { return 80, 24, true } }
	with := func(k, v string) func(*cli) {
		return func(c *cli) {
			onTTY(c)
			env := c.env
			c.env = func(name string) string {
				if name == k {
					return v
				}
				return env(name)
			}
		}
	}
	for _, c := range []struct {
		name  string
		setup func(*cli)
		args  []string
		want  bool
	}{
		{"a terminal", onTTY, nil, true},
		{"no terminal", nil, nil, false},
		{"--no-color", onTTY, []string{"--no-color"}, false},
		{"NO_COLOR", with("NO_COLOR", "1"), nil, false},
		{"a dumb terminal", with("TERM", "dumb"), nil, false},
		{"json", onTTY, []string{"-o", "json"}, false},
	} {
		call := start(t, s, c.setup, append([]string{"center", "list"}, c.args...)...)
		call.end(t, 0)
		if got := strings.Contains(call.out.String(), "\x1b["); got != c.want {
			t.Errorf("%s: colors %v, want %v:\n%q", c.name, got, c.want, call.out)
		}
	}
}

// A name cannot write to the terminal.
func TestNamesCannotControlTheTerminal(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "evil\x1b]0;owned\x07\nname", 1)
	s.api.edit(job1, func(j *jobsv1.Job) { j.Message = "m\x1b[2J" })
	for _, args := range [][]string{{"job", "list", "-o", "wide"}, {"job", "show", job1}, {"job", "explain", job1}} {
		c := start(t, s, nil, args...)
		c.end(t, 0)
		if strings.ContainsAny(c.out.String(), "\x1b\x07") {
			t.Errorf("%v prints control characters:\n%q", args, c.out)
		}
	}
}

func TestContextsAreForTheOwnerOnly(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	c := start(t, s, nil, "context", "add", "a", "--server", "https://a.example.com", "--key", "secret")
	c.end(t, 0)
	path := c.cli.configPath()
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", p, info.Mode().Perm(), want)
		}
	}
	if strings.Contains(c.out.String()+c.err.String(), "secret") {
		t.Errorf("the key is printed:\n%s%s", c.out, c.err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("contexts: []\nkeys: x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	again := start(t, s, func(n *cli) { n.env = c.cli.env }, "context", "list")
	again.end(t, 1)
	for _, want := range []string{"others may read it", "field keys not found"} {
		if !strings.Contains(again.err.String(), want) {
			t.Errorf("no %q in:\n%s", want, again.err)
		}
	}
}

func TestServersThatAreNone(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	status := func(code int) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", code) }))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0) // the refused handshakes are the point
	tls.StartTLS()
	t.Cleanup(tls.Close)
	redirect := httptest.NewServer(http.RedirectHandler(s.url(), http.StatusTemporaryRedirect))
	t.Cleanup(redirect.Close)
	for _, c := range []struct{ name, server, want string }{
		{"another web server", status(404), "does not offer this"},
		{"a proxy without the server", status(502), "cannot reach"},
		{"a certificate nobody knows", tls.URL, "cannot be trusted"},
		{"TLS to a server without", strings.Replace(s.url(), "http:", "https:", 1), "does not speak TLS\nhint: use http://"},
		{"a redirect", redirect.URL, "error:"},
		{"a name that does not exist", "https://yunhe.invalid", "no machine has the name yunhe.invalid (--server)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			call := start(t, s, nil, "job", "list", "--server", c.server)
			call.end(t, 1)
			if got := call.err.String(); !strings.Contains(got, c.want) {
				t.Errorf("stderr %q, want %q in it", got, c.want)
			}
		})
	}
}

// A key is never sent along a redirect.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	asked := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") }))
	t.Cleanup(other.Close)
	redirect := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusPermanentRedirect))
	t.Cleanup(redirect.Close)
	start(t, s, nil, "job", "list", "--server", redirect.URL).end(t, 1)
	select {
	case key := <-asked:
		t.Errorf("the redirect was followed, with %q", key)
	default:
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	all := make([]int, 2500)
	for i := range all {
		all[i] = i
	}
	for _, c := range []struct {
		p     paging
		want  int
		calls []int32
		more  bool
	}{
		{paging{limit: 50}, 50, []int32{50}, true},
		{paging{limit: 1500}, 1500, []int32{1000, 500}, true},
		{paging{limit: 1, all: true}, 2500, []int32{1000, 1000, 1000}, false},
		{paging{limit: 5000}, 2500, []int32{1000, 1000, 1000}, false},
		{paging{limit: 10, token: "at-2495"}, 5, []int32{10}, false},
	} {
		var calls []int32
		got, next, err := pages(c.p, func(size int32, token string) ([]int, string, error) {
			calls = append(calls, size)
			items, next := fakePage(all, size, token, 50)
			return items, next, nil
		})
		if err != nil || len(got) != c.want || (next != "") != c.more || !slices.Equal(calls, c.calls) {
			t.Errorf("pages(%+v) = %d items, next %q, pages of %v, %v; want %d, more %v, %v", c.p, len(got), next, calls, err, c.want, c.more, c.calls)
		}
	}
}

// Many policies do not fit beside each other; then they stand below each other.
func TestExplainManyPolicies(t *testing.T) {
	t.Parallel()
	d := &schedulerv1.Decision{TaskName: "train", Attempt: 2, AiCenterId: "c1", Summary: "c1 is best", DecidedAt: fakeTime(time.Minute)}
	for i := range 4 {
		k := &schedulerv1.CandidateScore{AiCenterId: fmt.Sprintf("c%d", i), CenterName: "算力中心", Rank: int32(4 - i), FinalScore: 50.25 + float64(i), Chosen: i == 1}
		for p := range 12 {
			k.Scores = append(k.Scores, &schedulerv1.PolicyScore{PolicyId: fmt.Sprintf("some-policy-%d", p), Score: int32(10*p + i), Weight: float64(p) / 66})
		}
		d.Candidates = append(d.Candidates, k)
	}
	d.Candidates = append(d.Candidates, &schedulerv1.CandidateScore{AiCenterId: "full", FilterReasons: []string{"cpu: 2 wanted, 1 free", "drained"}})
	setup, term := onTerminal(70, 24)
	c := &cli{env: func(string) string { return "" }, now: func() time.Time { return fakeNow }, flags: globals{noColor: true}}
	setup(c)
	if err := c.explainDecision(term, false, d); err != nil {
		t.Fatal(err)
	}
	want := `train/0 run 2  → 算力中心 (c1)  decided 1m ago
c1 is best
the best 3 of 4 candidates; -o wide shows all
POLICY          WEIGHT  算力中心 (c3)  算力中心 (c2)  算力中心 (c1)
some-policy-1    0.015             13             12             11
some-policy-2     0.03             23             22             21
some-policy-3    0.045             33             32             31
some-policy-4    0.061             43             42             41
some-policy-5    0.076             53             52             51
some-policy-6    0.091             63             62             61
some-policy-7    0.106             73             72             71
some-policy-8    0.121             83             82             81
some-policy-9    0.136             93             92             91
some-policy-10   0.152            103            102            101
some-policy-11   0.167            113            112            111
final score                     53.25          52.25          51.25
rank                                1              2            * 3
LEFT OUT  BECAUSE
full      cpu: 2 wanted, 1 free; drained
`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(term.String(), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever the words, a shell reads them back.
func TestShellJoin(t *testing.T) {
	t.Parallel()
	for _, words := range [][]string{
		{"true"}, {"", " ", "a b"}, {"it's", `"q"`, "$HOME", "`x`", "a\nb", "*", "~", "!", "\\", "汉字", "-n", "a=b;c|d&e>f"},
	} {
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", `printf '%s\000' `+shellJoin(words)).Output()
		if err != nil {
			t.Fatalf("shell with %s: %v", shellJoin(words), err)
		}
		if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
			t.Errorf("shellJoin(%q) = %s, read back as %q", words, shellJoin(words), got)
		}
	}
}

func TestCutColored(t *testing.T) {
	t.Parallel()
	line := "plain " + text.Paint("红red", text.Red, true) + " tail"
	for cells := range 20 {
		got := cutColored(line, cells)
		bare := sequence.ReplaceAllString(got, "")
		if text.Width(bare) > cells {
			t.Errorf("cut to %d cells is %d wide: %q", cells, text.Width(bare), got)
		}
		if strings.Count(got, "\x1b[31m") != 1 || strings.Count(got, "\x1b[0m") != 1 {
			t.Errorf("cut to %d cells leaves colors open: %q", cells, got)
		}
	}
	if got := cutColored(line, 100); got != line {
		t.Errorf("a line that fits was changed: %q", got)
	}
}

// A line without end is held back up to a limit, then broken.
func TestPrefixerBreaksEndlessLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	key := replicaKey{0, 1}
	p := &prefixer{w: &out, prefixes: map[replicaKey]string{key: "r | "}, partial: map[replicaKey]*bytes.Buffer{key: {}}}
	for range 3 {
		if err := p.write(key, bytes.Repeat([]byte("x"), maxLine/2)); err != nil {
			t.Fatal(err)
		}
	}
	p.flush(key)
	want := "r | " + strings.Repeat("x", maxLine) + "\nr | " + strings.Repeat("x", maxLine/2) + "\n"
	if out.String() != want {
		t.Errorf("got %d bytes, want %d", out.Len(), len(want))
	}
}

func TestTaskIsChosenByNameBeforeIndex(t *testing.T) {
	t.Parallel()
	job := &jobsv1.Job{JobId: job1, Spec: &jobsv1.JobSpec{Tasks: []*jobsv1.Task{{Name: "1", ReplicaNumber: 1}, {Name: "b", ReplicaNumber: 3}}}}
	for task, want := range map[string]int32{"1": 0, "b": 1, "0": 0, "": -1} {
		if got, err := (selection{task: task, replica: -1}).resolve(job); err != nil || got != want {
			t.Errorf("task %q is %d, %v, want %d", task, got, err, want)
		}
	}
	for _, s := range []selection{{task: "2", replica: -1}, {task: "-1", replica: -1}, {task: "1", replica: 1}, {replica: 3}} {
		if got, err := s.resolve(job); err == nil {
			t.Errorf("%+v is task %d, want an error", s, got)
		}
	}
}

// Every command has its help, and says what it does in one line.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	c := newCLI()
	cmd := root(c)
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.Hidden {
			continue
		}
		if sub.GroupID == "" {
			t.Errorf("%s is in no group", sub.CommandPath())
		}
		names = append(names, sub.Name())
		for _, leaf := range append(sub.Commands(), sub) {
			if leaf.Short == "" || strings.HasSuffix(leaf.Short, ".") || leaf.RunE == nil {
				t.Errorf("%s: short help %q", leaf.CommandPath(), leaf.Short)
			}
		}
	}
	var out bytes.Buffer
	help(&out, cmd, false)
	for _, example := range []string{"submit -f", "list --state", "logs JOB", "explain JOB", "center list"} {
		if !strings.Contains(cmd.Example, example) {
			t.Errorf("no example with %q", example)
		}
	}
	for _, name := range []string{"http://127.0.0.1:8180", "YUNHE_SERVER", "YUNHE_KEY", "YUNHE_DATA", "NO_COLOR", "0 done, 1 the request failed, 2 the command line", "docs/"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("the manual does not mention %q", name)
		}
	}
	for _, name := range names {
		if !strings.Contains(out.String(), "\n  "+name+" ") {
			t.Errorf("%s is not in the manual", name)
		}
	}
	for line := range strings.Lines(out.String()) {
		if text.Width(line) > 101 {
			t.Errorf("line of %d cells in the manual: %q", text.Width(line), line)
		}
	}
}
