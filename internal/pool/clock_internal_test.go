//go:build linux

package pool

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// set is a time as it would be if the time of day had been set by so many seconds
// before it was read: what the kernel counts is as it is.
func set(t time.Time, by time.Duration) time.Time {
	before := t
	*(*uint64)(unsafe.Pointer(&t)) += uint64(by/time.Second) << 30 // seconds are there, beside nanoseconds
	if t.Sub(before) != 0 || t.Round(0).Sub(before.Round(0)) != by {
		panic("time.Time is of another form")
	}
	return t
}

// TestClockSet: a time of day that is set by two hours ends no share, and keeps none from
// its end.
func TestClockSet(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{0, 2 * time.Hour, -2 * time.Hour} {
		for _, c := range []struct {
			spec   Spec
			limits Limits
			why    string
		}{
			{Spec{Idle: 30}, Limits{}, "idle timeout"}, {Spec{Limit: 30}, Limits{}, RunTimeout}, {Spec{}, Limits{Run: 30 * time.Second}, "the node's limit"}, {Spec{}, Limits{Idle: 30 * time.Second}, "not used for the node's limit"},
		} {
			n := &Node{log: slog.New(slog.DiscardHandler), tasks: map[string]*task{}}
			n.limits.Store(&c.limits)
			d := &device{turns: newArbiter()}
			x, err := newTask(d, c.spec, mib)
			if err != nil {
				t.Fatal(err)
			}
			n.tasks[x.ID] = x
			if n.expire(set(x.began.Add(29*time.Second), by)); x.why != "" {
				t.Errorf("set by %s, with %+v and %+v it ends after 29 s: %s", by, c.spec, c.limits, x.why)
			}
			if n.expire(set(x.began.Add(31*time.Second), by)); !strings.Contains(x.why, c.why) {
				t.Errorf("set by %s, with %+v and %+v it ends after 31 s: %q", by, c.spec, c.limits, x.why)
			}
		}
	}
}

// TestClockSetWhileHandedOver: what has passed is handed over, whatever the time of day
// was set to before the node paused and since.
func TestClockSetWhileHandedOver(t *testing.T) {
	t.Parallel()
	for _, before := range []time.Duration{0, time.Hour, -time.Hour} {
		for _, since := range []time.Duration{0, time.Hour, -time.Hour} {
			now := time.Now()
			paused := set(now, before)
			b, err := json.Marshal(handover{Paused: paused, Kernel: kernelTime() - time.Second, Tasks: []handTask{{Began: written(paused, now.Add(-5*time.Minute)), Limit: written(paused, now.Add(time.Minute))}}})
			h := handover{}
			if err == nil {
				err = json.Unmarshal(b, &h)
			}
			if err != nil {
				t.Fatal(err)
			}
			// The time of day that is read now is another one: as if what was written were.
			h.Paused, h.Tasks[0].Began, h.Tasks[0].Limit = h.Paused.Add(since), h.Tasks[0].Began.Add(since), h.Tasks[0].Limit.Add(since)
			if got := time.Since(h.here(h.Tasks[0].Began)) - 5*time.Minute - time.Second; got < 0 || got > time.Minute {
				t.Errorf("set by %s and %s: it began %s too early", before, since, got)
			}
			if got := time.Until(h.here(h.Tasks[0].Limit)) - 59*time.Second; got > 0 || got < -time.Minute {
				t.Errorf("set by %s and %s: it has %s too much", before, since, got)
			}
			if z := h.here(written(paused, time.Time{})); !z.IsZero() {
				t.Errorf("no time is %s", z)
			}
			h.Kernel = 0
			if got := h.since(); got < 0 {
				t.Errorf("a program of before paused in %s", -got)
			}
		}
	}
}

// TestClockSetBesideFiles: what a worker may be using stays, though its time seems long
// ago, and goes some time later; so does what seems to be of the future.
func TestClockSetBesideFiles(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		n := &Node{cfg: NodeConfig{Dir: t.TempDir(), Cache: 1}, log: slog.New(slog.DiscardHandler), tasks: map[string]*task{"a": {}}}
		n.tasks["a"].workers[0] = &proc{}
		if err := makeCaches(n.cfg.Dir); err != nil {
			t.Fatal(err)
		}
		used, left := filepath.Join(caches(n.cfg.Dir, nodes)["POCL_CACHE_DIR"], "p", "program"), filepath.Join(caches(n.cfg.Dir, nodes)["TMPDIR"], "x")
		if err := os.Mkdir(filepath.Dir(used), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{used, left} {
			if err := os.WriteFile(f, []byte("abc"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		look := func(after, by time.Duration) (there int) {
			now := set(time.Now().Add(after), by)
			n.tidy(now)
			n.bound(now)
			for _, f := range []string{used, left} {
				if _, err := os.Stat(f); err == nil {
					there++
				}
			}
			return there
		}
		if got := look(0, 0) + look(time.Minute, by) + look(mayUse-time.Second, by); got != 6 {
			t.Errorf("set by %s: %d times a file was there, want 6", by, got)
		}
		if got := look(3*mayUse, by); got != 0 {
			t.Errorf("set by %s: %d files are there for ever", by, got)
		}
	}
}

// TestClocksOfTwoNodes: a task that comes from a node whose time of day is another is as
// old as it is there.
func TestClocksOfTwoNodes(t *testing.T) {
	t.Parallel()
	const id = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for _, c := range []struct {
		started   time.Duration
		age, want time.Duration
	}{
		{time.Hour, time.Minute, time.Minute}, {-time.Hour, time.Minute, time.Minute}, {-time.Hour, 0, time.Hour}, {time.Hour, 0, 0}, // nodes of before do not tell
	} {
		n := &Node{log: slog.New(slog.DiscardHandler), tasks: map[string]*task{}, arriving: map[string]*task{}, cfg: NodeConfig{Overcommit: 100, MemoryOver: 100}}
		d := &device{Device: Device{ID: "opencl-0", API: OpenCL, Memory: mib}, turns: newArbiter()}
		n.devices = []*device{d}
		x, err := n.adopt(guest{}, nil, &adoption{Version: wire.MoveVersion, Task: Task{ID: id, Compute: 1, Memory: mib, Started: time.Now().Add(c.started)}, Token: strings.Repeat("0a", 32), Age: c.age})
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Since(x.began) - c.want; got < 0 || got > time.Minute/2 {
			t.Errorf("started %s from now, %s old: it is %s older than wanted", c.started, c.age, got)
		}
	}
}
