package poolops_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/objects"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/poolops"
	"yunhe.dev/yunhe/internal/pools"
	"yunhe.dev/yunhe/internal/pools/logs"
	"yunhe.dev/yunhe/internal/seal"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clock is one that the test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Microsecond)
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

var secret = strings.Repeat("0a", 32)

type world struct {
	*poolops.Service
	t          *testing.T
	clock      *clock
	pools      *pools.Service
	admin, ann context.Context
	bob        context.Context // of another tenant
	restarted  func() *poolops.Service
	beats      map[string]int64
	told       map[string]int64
}

func open(t *testing.T, url string) *world {
	w := &world{t: t, clock: &clock{now: time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)}, beats: map[string]int64{}, told: map[string]int64{}}
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	d, err := db.Open(ctx, db.Config{URL: url, Now: w.clock.Now}, log)
	must(t, err)
	b, err := bus.Open(ctx, bus.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"}, log)
	must(t, err)
	ids, err := identity.New(ctx, d, log)
	must(t, err)
	must(t, ids.Bootstrap(ctx, t.TempDir()))
	meter, err := metering.New(ctx, d, log)
	must(t, err)
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	w.pools, err = pools.New(ctx, d, b, ids, meter, box, log)
	must(t, err)
	store, err := objects.Open(ctx, objects.Config{URL: "file://" + t.TempDir()})
	must(t, err)
	w.restarted = func() *poolops.Service {
		s, err := poolops.New(ctx, poolops.Process{Version: "v9"}, d, b, ids, w.pools, objects.NewChunks(store), log)
		must(t, err)
		return s
	}
	w.Service = w.restarted()
	var loops sync.WaitGroup
	loops.Go(func() { _ = b.Relay(ctx, d) })
	loops.Go(func() { _ = w.Watch(ctx) })
	t.Cleanup(func() {
		cancel()
		loops.Wait()
		b.Close()
		_ = d.Close()
	})
	w.admin = core.WithCaller(ctx, core.Caller{UserID: "admin", TenantID: "default", AllTenants: true, Permissions: map[string]bool{"scheduler.write": true}})
	w.ann = core.WithCaller(ctx, core.Caller{UserID: "ann", UserName: "Ann", TenantID: "default"})
	w.bob = core.WithCaller(ctx, core.Caller{UserID: "bob", TenantID: "biology"})
	_, err = w.pools.SetGroup(w.admin, pools.Group{ID: "team", Tenants: []string{"default"}})
	must(t, err)
	return w
}

func each(t *testing.T, f func(w *world)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(open(t, filepath.Join(t.TempDir(), "db"))) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(open(t, enginetest.Postgres(t))) })
}

// join has a node with a device of 1000 MiB join.
func (w *world) join(node string) {
	w.t.Helper()
	token, _, err := w.pools.CreateToken(w.admin, 0)
	must(w.t, err)
	must(w.t, w.pools.Join(w.admin, token, node, secret))
	w.report(node)
}

// report has a node say that it runs tasks.
func (w *world) report(node string, tasks ...pool.Task) {
	w.t.Helper()
	must(w.t, w.says(node, pool.Report{Boot: "b", Tasks: tasks}))
}

// says has a node report, beside its device.
func (w *world) says(node string, r pool.Report) error {
	w.beats[node]++
	r.Sequence, r.Addresses, r.Devices = w.beats[node], []string{"tcp:h:1"}, []pool.Device{{ID: "d0", Model: "Card", Memory: 1000 << 20}}
	_, err := w.pools.Report(w.admin, pools.Report{Node: node, Secret: secret, Version: "v1", Report: r}, 0)
	return err
}

// tell has a node tell its log, and returns its configuration.
func (w *world) tell(s *poolops.Service, node string, generation int64, entries ...logs.Entry) (poolops.Config, int64) {
	w.t.Helper()
	told := poolops.Told{Node: node, Secret: secret, Generation: generation, Parts: []poolops.Part{{Kind: 1, Version: "v1", Running: 1}, {Kind: 2, Version: "abc", Running: 2}}, Entries: entries}
	for range entries {
		w.told[node]++
		told.Sequences = append(told.Sequences, w.told[node])
	}
	got, err := s.Tell(w.t.Context(), told, 0)
	must(w.t, err)
	return got.Config, got.Generation
}

func (w *world) ask(compute, memory int64) *pools.Slice {
	w.t.Helper()
	x, err := w.pools.Request(w.ann, pools.Request{Group: "team", Compute: compute, Memory: memory, Name: "job"})
	must(w.t, err)
	return x
}

func (w *world) search(ctx context.Context, f logs.Filter) []string {
	w.t.Helper()
	var out []string
	for token := ""; ; {
		list, next, err := w.pools.Logs().Search(ctx, f, 3, token) // in small pages
		must(w.t, err)
		for _, e := range list {
			out = append(out, e.Message)
		}
		if token = next; token == "" {
			return out
		}
	}
}

// What platform and nodes say is found by level, time, task, node, user and text,
// and written to files; an entry that comes again is kept once.
func TestLogs(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		x := w.ask(50, 100)
		w.clock.add(time.Minute)
		w.report("n1", pool.Task{Slice: x.ID, Busy: time.Second})
		late := w.clock.Now()
		e := logs.Entry{At: late, Level: logs.Warn, Message: "program ended", Device: "d0", Slice: x.ID, Details: `error="it said 100%_sure"`}
		w.tell(w.Service, "n1", 0, e)
		w.told["n1"]-- // the answer was lost: the node sends it again
		w.tell(w.Service, "n1", 0, e)
		w.tell(w.restarted(), "n1", 0, logs.Entry{At: late.Add(time.Hour), Level: logs.Debug, Message: "of a clock that is wrong"})
		w.clock.add(time.Minute)
		_, err := w.pools.Release(w.ann, x.ID)
		must(w.t, err)
		_, err = w.pools.Request(w.ann, pools.Request{Group: "team", Compute: 50, Memory: 5000})
		if fault.KindOf(err) != fault.Exhausted && fault.KindOf(err) != fault.NotFound {
			t.Fatalf("more than there is: %v", err)
		}
		for _, c := range []struct {
			name string
			ctx  context.Context
			f    logs.Filter
			want []string
		}{
			{"of the task", w.admin, logs.Filter{Slice: x.ID}, []string{"slice ended", "program ended", "task started", "slice placed", "slice requested"}},
			{"of its user", w.ann, logs.Filter{Slice: x.ID, User: "ann"}, []string{"slice ended", "program ended", "task started", "slice placed", "slice requested"}},
			{"of another tenant", w.bob, logs.Filter{}, nil},
			{"from a level on", w.admin, logs.Filter{Level: logs.Warn, Slice: x.ID}, []string{"program ended"}},
			{"of a time", w.admin, logs.Filter{Slice: x.ID, From: late.Add(-time.Second), To: late.Add(time.Second)}, []string{"program ended", "task started"}},
			{"by text, as it is", w.admin, logs.Filter{Text: "100%_SURE"}, []string{"program ended"}},
			{"by text that is no pattern", w.admin, logs.Filter{Text: "1%sure"}, nil},
			{"of a node", w.admin, logs.Filter{Node: "n1", Level: logs.Debug, Text: "wrong"}, []string{"of a clock that is wrong"}},
			{"of another node", w.admin, logs.Filter{Node: "n2"}, nil},
		} {
			if got := w.search(c.ctx, c.f); !slices.Equal(got, c.want) {
				t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			}
		}
		w.exports(x.ID)
		for _, f := range []logs.Filter{{Level: 9}, {Node: "no node"}, {From: late, To: late}, {Text: strings.Repeat("x", 300)}} {
			if _, _, err := w.pools.Logs().Search(w.admin, f, 0, ""); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%+v: %v", f, err)
			}
		}
	})
}

func (w *world) exports(slice string) {
	t := w.t
	t.Helper()
	file, err := w.ExportLogs(w.admin, logs.Filter{Slice: slice}, poolops.LogCSV)
	must(t, err)
	rows, err := csv.NewReader(bytes.NewReader(file.Content)).ReadAll()
	if err != nil || len(rows) != 6 || rows[1][3] != "slice requested" || rows[5][3] != "slice ended" {
		t.Errorf("CSV: %v %q", err, rows)
	}
	file, err = w.ExportLogs(w.ann, logs.Filter{Slice: slice, Level: logs.Warn}, poolops.LogJSON)
	must(t, err)
	var one map[string]string
	if err := json.Unmarshal(file.Content, &one); err != nil || one["user_id"] != "ann" || one["node_id"] != "n1" || one["source"] != "n1" {
		t.Errorf("JSON: %v %s", err, file.Content)
	}
	file, err = w.ExportLogs(w.ann, logs.Filter{Slice: slice}, poolops.LogText)
	if must(t, err); strings.Count(string(file.Content), "\n") != 5 || !strings.Contains(string(file.Content), "warn  program ended node_id=n1 device_id=d0") {
		t.Errorf("text: %s", file.Content)
	}
	if _, err = w.ExportLogs(w.ann, logs.Filter{}, 7); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a format there is not: %v", err)
	}
}

// Who is not a node tells nothing, and what is not right is refused with its names.
func TestTellRefuses(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		_, err := w.Tell(t.Context(), poolops.Told{Node: "n1", Secret: strings.Repeat("0b", 32)}, 0)
		if fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("another secret: %v", err)
		}
		_, err = w.Tell(t.Context(), poolops.Told{Node: "n1", Secret: secret, Entries: []logs.Entry{{}}, Sequences: []int64{0}, Parts: []poolops.Part{{Kind: 9}}}, time.Hour)
		for _, path := range []string{"entries[0].sequence", "entries[0].at", "entries[0].level", "entries[0].message", "components[0].kind", "wait_ms"} {
			if !slices.ContainsFunc(fault.FieldsOf(err), func(f fault.Field) bool { return f.Path == path }) {
				t.Errorf("%s is not named: %v", path, err)
			}
		}
	})
}

// Several nodes are configured at once, all or none; who waits hears of it, and who
// was away takes it later.
func TestConfigure(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		w.join("n2")
		w.tell(w.Service, "n1", 0)
		type answer struct {
			cfg        poolops.Config
			generation int64
			err        error
		}
		heard := make(chan answer, 1)
		go func() {
			for {
				var a answer
				got, err := w.Tell(w.admin, poolops.Told{Node: "n1", Secret: secret}, 5*time.Second)
				a.cfg, a.generation, a.err = got.Config, got.Generation, err
				if a.err != nil || a.generation > 0 {
					heard <- a
					return
				}
			}
		}()
		want := poolops.Config{Level: logs.Debug, Idle: 60, Run: 3600}
		if _, err := w.Configure(w.admin, []string{"n1", "n3"}, want.Whole()); fault.KindOf(err) != fault.NotFound {
			t.Errorf("a node there is not: %v", err)
		}
		if _, err := w.Configure(w.admin, []string{"n1", "n1"}, poolops.Config{Level: 9, Idle: -1}.Whole()); err == nil || !strings.Contains(err.Error(), "config.idle_limit_seconds") || !strings.Contains(err.Error(), "twice") {
			t.Errorf("what is wrong is not named: %v", err)
		}
		for range 2 { // again changes nothing
			list, err := w.Configure(w.admin, []string{"n1", "n2"}, want.Whole())
			must(t, err)
			if len(list) != 2 || list[0].Generation != 1 || list[1].Config != want || list[1].Applied != 0 {
				t.Errorf("got %+v %+v", *list[0], *list[1])
			}
		}
		if a := <-heard; a.err != nil || a.cfg != want || a.generation != 1 {
			t.Errorf("n1 heard %+v", a)
		}
		if cfg, g := w.tell(w.restarted(), "n2", 0); cfg != want || g != 1 {
			t.Errorf("n2, later: %+v %d", cfg, g)
		}
		w.tell(w.Service, "n2", 1)
		list, err := w.Components(w.admin)
		must(t, err)
		if list[1].Applied != 1 || !slices.Equal(list[1].Parts, []poolops.Part{{Kind: 1, Version: "v1", Running: 1}, {Kind: 2, Version: "abc", Running: 2}}) || !list[1].Online {
			t.Errorf("n2 is %+v", *list[1])
		}
	})
}

// Rules find what they are for, by their thresholds, and nothing when they are
// disabled.
func TestRules(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		found := func() []string {
			t.Helper()
			list, _, err := w.Troubles(w.admin)
			must(t, err)
			var out []string
			for _, x := range list {
				out = append(out, x.Key)
			}
			return out
		}
		set := func(k poolops.RuleKind, enabled bool, threshold int64) {
			t.Helper()
			_, err := w.SetRule(w.admin, poolops.Rule{Kind: k, Enabled: enabled, Threshold: threshold, Severity: 1})
			must(t, err)
		}
		expect := func(what string, want ...string) {
			t.Helper()
			if got := found(); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", what, got, want)
			}
		}
		expect("an empty pool")
		w.join("n1")
		expect("a node")
		x := w.ask(96, 100)
		expect("compute is full, which is no alarm at first")
		set(poolops.ComputeFull, true, 95)
		expect("compute is full", "pool/3/n1/d0")
		set(poolops.ComputeFull, true, 97)
		set(poolops.MemoryFull, true, 10)
		expect("another threshold", "pool/4/n1/d0")
		set(poolops.MemoryFull, false, 10)
		set(poolops.TaskMemoryFull, true, 90)
		w.report("n1", pool.Task{Slice: x.ID, Used: 90 << 20})
		expect("a task's memory", "pool/5/"+x.ID)
		set(poolops.TaskMemoryFull, false, 90)
		set(poolops.QueueLong, true, 1)
		y := w.ask(50, 10)
		expect("a queue", "pool/6/queue")
		set(poolops.QueueLong, false, 1)
		set(poolops.WaitLong, true, 10)
		_, next, err := w.Troubles(w.admin)
		if must(t, err); !next.Equal(y.CreatedAt.Add(10 * time.Second)) {
			t.Errorf("the clock makes an alarm at %v, want ten seconds after %v", next, y.CreatedAt)
		}
		w.clock.add(11 * time.Second)
		expect("a long wait", "pool/7/queue")
		set(poolops.WaitLong, false, 10)
		set(poolops.RefusedOften, true, 1)
		if _, err := w.pools.Request(w.bob, pools.Request{Group: "team", Compute: 1, Memory: 1}); fault.KindOf(err) != fault.Denied {
			t.Errorf("bob: %v", err)
		}
		expect("refusals", "pool/8/refused")
		w.clock.add(11 * time.Minute)
		expect("refusals of long ago")
		w.report("n1")
		_, err = w.Configure(w.admin, []string{"n1"}, poolops.Config{Idle: 5}.Whole())
		must(t, err)
		w.clock.add(2 * time.Minute)
		expect("a configuration that is not taken", "pool/9/n1")
		w.tell(w.Service, "n1", 1)
		expect("it is taken")
		w.beats["n1"]++
		_, err = w.pools.Report(w.admin, pools.Report{Node: "n1", Secret: secret, Report: pool.Report{Boot: "b", Sequence: w.beats["n1"], Stopping: true}}, 0)
		must(t, err)
		w.clock.add(time.Minute)
		expect("a node that stopped", "pool/1/n1", "pool/2/n1/d0")
		if _, err := w.SetRule(w.admin, poolops.Rule{Kind: poolops.DeviceGone, Threshold: 5, Severity: 1}); err == nil || !strings.Contains(err.Error(), "rule.threshold: must be 0: a rule of this kind has none, got 5") {
			t.Errorf("a threshold of a rule without one: %v", err)
		}
		set(poolops.DeviceGone, true, 0)
		for _, r := range []poolops.Rule{{Kind: 0}, {Kind: 10}, {Kind: poolops.MemoryFull, Threshold: 101, Severity: 1}, {Kind: poolops.QueueLong, Threshold: 1, Severity: 4}} {
			if _, err := w.SetRule(w.admin, r); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
}

// What is used is counted once, over a restart too, and reported.
func TestStatistics(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		must(t, w.Count(w.admin))
		x := w.ask(50, 100)
		w.clock.add(10 * time.Second)
		w.report("n1", pool.Task{Slice: x.ID, Used: 40 << 20, Busy: 3 * time.Second})
		must(t, w.Count(w.admin))
		must(t, w.restarted().Count(w.admin)) // another process: nothing is counted twice
		w.clock.add(10 * time.Second)
		w.beats["n1"]++
		_, err := w.pools.Report(w.admin, pools.Report{Node: "n1", Secret: secret, Version: "v1", Report: pool.Report{Boot: "b", Sequence: w.beats["n1"], Addresses: []string{"tcp:h:1"},
			Devices: []pool.Device{{ID: "d0", Model: "Card", Memory: 1000 << 20}}, Ended: []pool.EndedTask{{Slice: x.ID, Reason: "its client ended the connection", Busy: 5 * time.Second}}}}, 0)
		must(t, err)
		must(t, w.Count(w.admin))
		w.clock.add(time.Hour) // nobody counted: a minute at most
		w.report("n1")
		must(t, w.Count(w.admin))
		st, err := w.Statistics(w.admin, w.clock.Now().Add(-24*time.Hour), w.clock.Now())
		must(t, err)
		if len(st.Devices) != 1 || len(st.Users) != 1 || len(st.Groups) != 1 || len(st.Times) != 2 {
			t.Fatalf("got %+v", st)
		}
		near := func(what string, got, want int64) {
			t.Helper()
			if got < want-1 || got > want+1 { // of seconds, cut
				t.Errorf("%s is %d, want %d", what, got, want)
			}
		}
		d := st.Devices[0]
		if near("busy", d.Busy, 5_000_000); d.Name != "n1/d0" || st.Users[0].Name != "ann" || st.Groups[0].Busy != d.Busy {
			t.Errorf("got %+v", st)
		}
		near("compute lent", d.ComputeLent/50, 20)
		near("compute there", d.ComputeThere/100, 80)
		near("memory lent", d.MemoryLent/100, 20)
		near("memory used", d.MemoryUsed/40, 10)
		near("seconds", d.Seconds, 20)
		if q := st.Queueing; len(q) != 1 || q[0].Requested != 1 || q[0].Placed != 1 || q[0].Ended != 1 || q[0].Failed != 0 {
			t.Errorf("queueing is %+v", q)
		}
		if _, err := w.Statistics(w.admin, w.clock.Now(), w.clock.Now().Add(-time.Hour)); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "after from (2026-03-01T09:00:20Z), and at most 366 days after it, got 2026-03-01T08:00:20Z") {
			t.Errorf("a time that ends before it begins: %v", err)
		}
		w.reports()
	})
}

// What a slice used is counted that ended, by the clock, before it was counted last: on
// PostgreSQL a transaction that began before may commit after.
func TestCountedLate(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		must(t, w.Count(w.admin))
		seen, brief := w.ask(30, 100), w.ask(20, 100)
		w.clock.add(10 * time.Second)
		w.report("n1", pool.Task{Slice: seen.ID, Busy: 3 * time.Second}, pool.Task{Slice: brief.ID})
		must(t, w.Count(w.admin))
		w.clock.add(-time.Second)
		must(t, w.says("n1", pool.Report{Boot: "b", Ended: []pool.EndedTask{{Slice: seen.ID, Reason: "its program ended", Busy: 5 * time.Second}, {Slice: brief.ID, Reason: "its program ended", Busy: time.Second}}}))
		w.clock.add(10 * time.Second)
		must(t, w.Count(w.admin))
		must(t, w.Count(w.admin)) // once
		st, err := w.Statistics(w.admin, time.Time{}, time.Time{})
		must(t, err)
		if len(st.Devices) != 1 || st.Devices[0].Busy != 6_000_000 {
			t.Errorf("counted are %+v", st.Devices)
		}
	})
}

// Of cards of one program that end because another does, what counts is why that did.
func TestStatisticsOfCards(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		for _, node := range []string{"n1", "n2"} {
			w.join(node)
		}
		for _, reason := range []string{"its client ended the connection", "its client ended the connection", "the pool node stops"} {
			x, err := w.pools.Request(w.ann, pools.Request{Group: "team", Compute: 10, Memory: 100, Cards: 2, Across: true})
			must(t, err)
			w.clock.add(time.Second)
			w.report(x.Node, pool.Task{Slice: x.ID})
			must(t, w.says(x.Node, pool.Report{Boot: "b", Ended: []pool.EndedTask{{Slice: x.ID, Reason: reason}}}))
		}
		st, err := w.Statistics(w.admin, time.Time{}, w.clock.Now().Add(time.Second))
		must(t, err)
		if want := []poolops.Reason{{"its client ended the connection", 4}, {"the pool node stops", 2}}; !slices.Equal(st.Reasons, want) {
			t.Errorf("slices ended for %v, want %v", st.Reasons, want)
		}
		if q := st.Queueing; len(q) != 1 || q[0].Ended != 6 || q[0].Failed != 2 {
			t.Errorf("queueing is %+v", q)
		}
	})
}

func (w *world) reports() {
	t := w.t
	t.Helper()
	for _, language := range []string{"en", "zh"} {
		for kind, says := range map[poolops.ReportKind]string{poolops.Resources: "n1/d0", poolops.Tasks: "its client ended the connection", poolops.Operation: "2026-03-01T08:00:00Z"} {
			file, err := w.Report(w.admin, kind, poolops.ReportCSV, time.Time{}, time.Time{}, language)
			if must(t, err); !strings.Contains(string(file.Content), says) {
				t.Errorf("CSV %d lacks %q: %s", kind, says, file.Content)
			}
			file, err = w.Report(w.admin, kind, poolops.ReportHTML, time.Time{}, time.Time{}, language)
			if must(t, err); !strings.Contains(string(file.Content), says) || kind != poolops.Tasks && !strings.Contains(string(file.Content), "<svg ") || strings.Contains(string(file.Content), "NaN") {
				t.Errorf("HTML %d: %s", kind, file.Content)
			}
			file, err = w.Report(w.admin, kind, poolops.ReportPDF, time.Time{}, time.Time{}, language)
			must(t, err)
			checkPDF(t, file.Content, says)
		}
	}
	if _, err := w.Report(w.admin, 9, 9, time.Time{}, time.Time{}, "xx"); err == nil || !strings.Contains(err.Error(), "kind") || !strings.Contains(err.Error(), "format") || !strings.Contains(err.Error(), "language") {
		t.Errorf("what is wrong is not named: %v", err)
	}
}

// checkPDF follows the table of objects of a PDF.
func checkPDF(t *testing.T, b []byte, says string) {
	t.Helper()
	if !bytes.HasPrefix(b, []byte("%PDF-1.7\n")) || !bytes.HasSuffix(b, []byte("%%EOF\n")) || !bytes.Contains(b, []byte("("+says)) {
		t.Fatalf("no PDF that says %q: %s", says, b)
	}
	var at, first, n int
	_, err := fmt.Sscanf(string(b[bytes.LastIndex(b, []byte("startxref")):]), "startxref\n%d", &at)
	must(t, err)
	_, err = fmt.Sscanf(string(b[at:]), "xref\n%d %d", &first, &n)
	must(t, err)
	rows := strings.Split(string(b[at:]), "\n")[2:]
	for i := 1; i < n; i++ {
		var offset int
		_, err := fmt.Sscanf(rows[i], "%d", &offset)
		if must(t, err); !bytes.HasPrefix(b[offset:], fmt.Appendf(nil, "%d 0 obj\n", i)) {
			t.Errorf("object %d is not at %d", i, offset)
		}
	}
}

// A slice that is placed anew, as its node is gone, has waited since then: not since it
// was requested.
func TestWaitsAnew(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		x, err := w.pools.Request(w.ann, pools.Request{Group: "team", Compute: 50, Memory: 100, Fixed: true})
		must(t, err)
		w.clock.add(time.Hour)
		must(t, w.says("n1", pool.Report{Boot: "b", Stopping: true}))
		w.clock.add(2 * time.Second)
		ctx, stop := context.WithCancel(w.ann)
		var loop sync.WaitGroup
		loop.Go(func() { _ = w.pools.Run(ctx) })
		for x.State != pools.Waiting {
			<-time.After(10 * time.Millisecond)
			x, _, err = w.pools.Await(w.ann, x.ID, 0)
			must(t, err)
		}
		stop()
		loop.Wait()
		waits := func() (out []string) {
			t.Helper()
			list, _, err := w.Troubles(w.admin)
			must(t, err)
			for _, x := range list {
				if x.Rule.Kind == poolops.WaitLong {
					out = append(out, x.Message)
				}
			}
			return out
		}
		if got := waits(); len(got) > 0 {
			t.Errorf("at once: %v", got)
		}
		w.clock.add(11 * time.Minute)
		if got := waits(); len(got) != 1 || !strings.Contains(got[0], "since 2026-03-01T09:00:0") {
			t.Errorf("after 11 minutes: %v", got)
		}
		w.join("n2")
		st, err := w.Statistics(w.admin, time.Time{}, time.Time{})
		must(t, err)
		if q := st.Queueing; len(q) != 1 || q[0].Placed != 1 || q[0].MaxWait < 11*time.Minute || q[0].MaxWait > 12*time.Minute {
			t.Errorf("queueing is %+v", q)
		}
	})
}

// A node that has a later configuration than its platform, which was put back to what it
// was before, takes what the platform has: it does not ask without end for that.
func TestConfiguredBefore(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		_, err := w.Configure(w.admin, []string{"n1"}, poolops.Config{Idle: 5}.Whole())
		must(t, err)
		got, generation := w.tell(w.Service, "n1", 7)
		if got.Idle != 5 || generation <= 7 {
			t.Errorf("told %+v of generation %d", got, generation)
		}
		if _, again := w.tell(w.Service, "n1", 7); again != generation {
			t.Errorf("told generation %d, then %d", generation, again)
		}
		w.tell(w.Service, "n1", generation)
		w.clock.add(2 * time.Minute)
		if list, _, err := w.Troubles(w.admin); err != nil || slices.ContainsFunc(list, func(x poolops.Trouble) bool { return x.Rule.Kind == poolops.NotConfigured }) {
			t.Errorf("when it has taken it: %+v, %v", list, err)
		}
	})
}

// A node that joins with the name of one that left has nothing of that.
func TestJoinsAnew(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		release := w.upload("v2", 10)
		w.join("n1")
		w.runs(w.Service, "n1", sumOf([]byte("first")), 0, "")
		_, err := w.Configure(w.admin, []string{"n1"}, poolops.Config{Level: logs.Debug, Idle: 5}.Whole())
		must(t, err)
		_, err = w.StartUpgrade(w.admin, poolops.Upgrade{Release: poolops.Release{Sum: release.Sum}, Patience: 60}, []string{"n1"}, false)
		must(t, err)
		w.step(w.Service)
		if got := w.runs(w.Service, "n1", sumOf([]byte("first")), 0, ""); got.Release == nil || got.Config.Idle != 5 {
			t.Fatalf("it is told %+v", got)
		}
		_, err = w.pools.SetNode(w.admin, "n1", pools.Draining)
		must(t, err)
		ctx, stop := context.WithCancel(w.admin)
		var loop sync.WaitGroup
		loop.Go(func() { _ = w.pools.Run(ctx) })
		for {
			nodes, err := w.pools.Nodes(w.admin)
			if must(t, err); len(nodes) == 0 {
				break
			}
			<-time.After(10 * time.Millisecond)
		}
		stop()
		loop.Wait()
		w.join("n1")
		if list, err := w.Components(w.admin); err != nil || len(list) != 1 || list[0].Config != (poolops.Config{}) || list[0].Generation != 0 {
			t.Errorf("it is configured %+v, %v", list[0], err)
		}
		if got := w.runs(w.Service, "n1", sumOf([]byte("first")), 0, ""); got.Release != nil || got.Config != (poolops.Config{}) {
			t.Errorf("it is told %+v", got)
		}
	})
}

// What is not set of a configuration stays as it is at each node.
func TestConfigureInPart(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		w.join("n2")
		_, err := w.Configure(w.admin, []string{"n2"}, poolops.Config{Level: logs.Warn, Idle: 60}.Whole())
		must(t, err)
		configs := func(change poolops.ConfigChange) (out []poolops.Config) {
			t.Helper()
			list, err := w.Configure(w.admin, []string{"n1", "n2"}, change)
			must(t, err)
			for _, x := range list {
				out = append(out, x.Config)
			}
			return out
		}
		if got := configs(poolops.ConfigChange{Run: new(int64(3600))}); !slices.Equal(got, []poolops.Config{{Level: logs.Info, Run: 3600}, {Level: logs.Warn, Idle: 60, Run: 3600}}) {
			t.Errorf("with a limit they are %+v", got)
		}
		level := logs.Debug
		if got := configs(poolops.ConfigChange{Level: &level, Run: new(int64(0))}); !slices.Equal(got, []poolops.Config{{Level: logs.Debug}, {Level: logs.Debug, Idle: 60}}) {
			t.Errorf("with a level and no limit they are %+v", got)
		}
		_, err = w.Configure(w.admin, []string{"n1"}, poolops.ConfigChange{})
		if err == nil || !strings.Contains(err.Error(), "change: must set log_level, idle_limit_seconds or run_limit_seconds") {
			t.Errorf("nothing is set: %v", err)
		}
		_, err = w.Configure(w.admin, []string{"n1"}, poolops.ConfigChange{Idle: new(int64(-1))})
		if err == nil || !strings.Contains(err.Error(), "change.idle_limit_seconds: must be between 0 and 31622400, got -1") {
			t.Errorf("a limit below 0: %v", err)
		}
	})
}
