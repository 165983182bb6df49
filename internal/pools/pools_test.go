package pools_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools"
	"yunhe.dev/yunhe/internal/seal"
)

func TestMain(m *testing.M) {
	code := apptest.Main(m)
	if b, err := built(); err == nil {
		_ = os.RemoveAll(b.dir)
	}
	os.Exit(code)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t testing.TB, err error, kind fault.Kind, says string) {
	t.Helper()
	if fault.KindOf(err) != kind || err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v (%v), want %v: %q", err, fault.KindOf(err), kind, says)
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

// world is a pool without nodes but those the test plays.
type world struct {
	*pools.Service
	t       *testing.T
	clock   *clock
	meter   *metering.Service
	admin   context.Context
	ann     context.Context // of the tenant default
	bob     context.Context
	begun   time.Time
	another func() *pools.Service // of another process on the same state
}

func open(t *testing.T, url string) *world {
	w := &world{t: t, clock: &clock{now: time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)}}
	log := slog.New(slog.DiscardHandler)
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	var shared *db.DB
	w.another = func() *pools.Service {
		d := shared
		if d == nil || strings.HasPrefix(url, "postgres") {
			d, err = db.Open(t.Context(), db.Config{URL: url, Now: w.clock.Now}, log)
			must(t, err)
			t.Cleanup(func() { _ = d.Close() })
			shared = d
		}
		b, err := bus.Open(t.Context(), bus.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"}, log)
		must(t, err)
		t.Cleanup(b.Close)
		ids, err := identity.New(t.Context(), d, log)
		must(t, err)
		must(t, ids.Bootstrap(t.Context(), t.TempDir()))
		w.meter, err = metering.New(t.Context(), d, log)
		must(t, err)
		s, err := pools.New(t.Context(), d, b, ids, w.meter, box, log)
		must(t, err)
		return s
	}
	w.Service = w.another()
	all := map[string]bool{"scheduler.write": true}
	w.admin = core.WithCaller(t.Context(), core.Caller{UserID: "admin", TenantID: "default", AllTenants: true, Permissions: all})
	ids, err := identity.New(t.Context(), shared, log)
	must(t, err)
	may := core.WithCaller(t.Context(), core.Caller{UserID: "admin", AllTenants: true, Permissions: map[string]bool{"jobs.read": true, "jobs.write": true, "metering.read": true, "monitor.read": true, "registry.read": true, "scheduler.read": true}})
	_, err = ids.CreateUser(may, identity.User{ID: "ann", TenantID: "default", Role: identity.Member})
	must(t, err)
	_, err = ids.CreateTenant(may, identity.Tenant{ID: "biology"})
	must(t, err)
	w.ann = core.WithCaller(t.Context(), core.Caller{UserID: "ann", UserName: "Ann", TenantID: "default"})
	w.bob = core.WithCaller(t.Context(), core.Caller{UserID: "bob", TenantID: "biology"})
	w.begun = w.clock.Now()
	return w
}

func each(t *testing.T, f func(w *world)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(open(t, filepath.Join(t.TempDir(), "db"))) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(open(t, enginetest.Postgres(t))) })
}

func (w *world) group(g pools.Group) {
	w.t.Helper()
	if g.Tenants == nil {
		g.Tenants = []string{"default"}
	}
	_, err := w.SetGroup(w.admin, g)
	must(w.t, err)
}

// played is a node that the test plays.
type played struct {
	w *world
	pools.Report
}

// node joins a node with devices of 1000 MiB each.
func (w *world) node(id string, models ...string) *played {
	w.t.Helper()
	token, _, err := w.CreateToken(w.admin, 0)
	must(w.t, err)
	n := &played{w, pools.Report{Node: id, Secret: strings.Repeat("0a", 32), Host: "host-" + id, Version: "1"}}
	must(w.t, w.Join(w.t.Context(), token, id, n.Secret))
	n.Boot = "boot"
	n.Addresses = []string{"tcp:" + id + ":7420"}
	for i, m := range models {
		n.Devices = append(n.Devices, pool.Device{ID: fmt.Sprintf("d%d", i), Model: m, Memory: 1000 << 20})
	}
	n.report()
	return n
}

func (n *played) report() pool.Wanted {
	n.w.t.Helper()
	n.Sequence++
	got, err := n.w.tell(n.w.t.Context(), n.Report)
	must(n.w.t, err)
	n.Ended = nil
	return got
}

// tell is Report without waiting.
func (w *world) tell(ctx context.Context, r pools.Report) (pool.Wanted, error) {
	return w.Service.Report(ctx, r, 0)
}

func (n *played) runs(ids ...string) pool.Wanted {
	n.w.t.Helper()
	n.Tasks = nil
	for _, id := range ids {
		n.Tasks = append(n.Tasks, pool.Task{Slice: id, Used: 5, Busy: time.Second, Programs: 1})
	}
	return n.report()
}

func (w *world) ask(r pools.Request) *pools.Slice {
	w.t.Helper()
	if r.Memory == 0 && r.Spec == "" {
		r.Memory = 10
	}
	x, err := w.Request(w.ann, r)
	must(w.t, err)
	return x
}

func (w *world) slice(id string) *pools.Slice {
	w.t.Helper()
	x, _, err := w.Await(w.ann, id, 0)
	must(w.t, err)
	return x
}

// lent is what the devices have lent, as node/device=percent.
func (w *world) lent() string {
	w.t.Helper()
	nodes, err := w.Nodes(w.t.Context())
	must(w.t, err)
	var out []string
	for _, n := range nodes {
		for _, d := range n.Devices {
			out = append(out, fmt.Sprintf("%s/%s=%d", n.ID, d.ID, d.ComputeLent))
		}
	}
	return strings.Join(out, " ")
}

func (w *world) round() {
	w.t.Helper()
	must(w.t, w.Round(w.t.Context(), w.begun))
}

// A slice is requested, placed, run, resized while it runs, and given back and
// metered when its program ends.
func TestLife(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		n := w.node("n1", "Card A")
		_, err := w.SetSpec(w.admin, pools.Spec{ID: "half", Compute: 50, Memory: 300, PriceFen: 100})
		must(t, err)
		x := w.ask(pools.Request{ID: "one", Spec: "half", Name: "train"})
		if again := w.ask(pools.Request{ID: "one", Spec: "half"}); again.ID != x.ID {
			t.Errorf("asked again: %s, %s", x.ID, again.ID)
		}
		if x.State != pools.Assigned || x.Node != "n1" || x.Compute != 50 || x.Memory != 300 || w.lent() != "n1/d0=50" {
			t.Fatalf("placed as %+v, lent %s", x, w.lent())
		}
		_, a, err := w.Await(w.ann, x.ID, 0)
		if err != nil || a == nil || a.Ticket == "" || a.Addresses[0] != "tcp:n1:7420" || a.Host != "host-n1" {
			t.Fatalf("access %+v, %v", a, err)
		}
		if got := n.runs(x.ID); len(got.Slices) != 1 || got.Slices[0].Compute != 50 || len(got.End) != 0 {
			t.Errorf("wanted %+v", got)
		}
		w.clock.add(30 * time.Minute)
		n.report()
		for device, want := range map[string]int{"d0": 1, "d9": 0, "": 1} { // what there is of a device, and of which device it is
			list, _, err := w.List(w.ann, pools.Filter{Node: "n1", Device: device}, 0, "")
			if must(t, err); len(list) != want || want == 1 && (list[0].ID != x.ID || list[0].Device != "d0") {
				t.Errorf("%d slices are of device %q, want %d", len(list), device, want)
			}
		}
		if _, _, err := w.List(w.ann, pools.Filter{Device: "d0"}, 0, ""); fault.KindOf(err) != fault.Invalid {
			t.Errorf("slices of a device of no node: %v", err)
		}
		if got := w.slice(x.ID); got.State != pools.Running || got.Used != 5 || got.Programs != 1 || got.Busy != time.Second {
			t.Errorf("runs as %+v", got)
		}
		if _, err := w.Resize(w.ann, x.ID, 100, 1001); fault.KindOf(err) != fault.Exhausted {
			t.Errorf("resized beyond the device: %v", err)
		}
		_, err = w.Resize(w.ann, x.ID, 80, 400)
		must(t, err)
		if got := n.report(); got.Slices[0].Compute != 80 || got.Slices[0].Memory != 400<<20 || w.lent() != "n1/d0=80" {
			t.Errorf("wanted %+v, lent %s", got, w.lent())
		}
		w.clock.add(30 * time.Minute)
		n.Ended = []pool.EndedTask{{Slice: x.ID, Reason: "its client ended the connection", Busy: time.Minute}}
		n.runs()
		if got := w.slice(x.ID); got.State != pools.Ended || got.Busy != time.Minute || got.Reason != "its client ended the connection" || w.lent() != "n1/d0=0" {
			t.Errorf("ended as %+v, lent %s", got, w.lent())
		}
		records, _, err := w.meter.List(t.Context(), metering.Filter{AllocationID: x.ID}, 10, "")
		must(t, err)
		sum, cost := int64(0), int64(0)
		for _, r := range records {
			sum += r.PackageMicros
			cost += r.CostMicros
		}
		// Half a device and 80 % of one, half an hour each, and the moments between.
		if want := (39 * time.Minute).Microseconds(); len(records) != 2 || sum < want || sum > want+60_000_000 || cost < 650_000 || cost > 667_000 || records[0].UserName != "Ann" {
			t.Errorf("metered %d µs for %d micro-yuan in %d records", sum, cost, len(records))
		}
	})
}

// Who waits is told why and in which place; higher priority goes first, small
// ones do not starve great ones, who waits for a quota keeps nobody off, and who
// gives up makes room.
func TestQueue(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g", MaxPriority: 9})
		w.group(pools.Group{ID: "tight", ComputeLimit: 30})
		n := w.node("n1", "Card A")
		first := w.ask(pools.Request{Group: "g", Compute: 60})
		low := w.ask(pools.Request{Group: "g", Compute: 50})
		high := w.ask(pools.Request{Group: "g", Compute: 90, Priority: 5})
		small := w.ask(pools.Request{Group: "g", Compute: 10})
		if low, high, small = w.slice(low.ID), w.slice(high.ID), w.slice(small.ID); high.Position != 1 || low.Position != 2 || small.Position != 3 || low.Reason == "" {
			t.Errorf("the queue is %d %d %d: %s", high.Position, low.Position, small.Position, low.Reason)
		}
		n.runs(first.ID)
		n.runs()
		if w.slice(high.ID).State != pools.Assigned || w.slice(low.ID).State != pools.Waiting || w.slice(small.ID).State != pools.Waiting {
			t.Errorf("after the first: %v %v %v", w.slice(high.ID), w.slice(low.ID), w.slice(small.ID))
		}
		_, err := w.Release(w.ann, high.ID)
		must(t, err)
		if w.slice(low.ID).State != pools.Assigned || w.slice(small.ID).State != pools.Assigned || w.lent() != "n1/d0=60" {
			t.Errorf("after the second: lent %s", w.lent())
		}
		one, two := w.ask(pools.Request{Group: "tight", Compute: 30}), w.ask(pools.Request{Group: "tight", Compute: 5})
		other := w.ask(pools.Request{Group: "g", Compute: 10})
		if one.State != pools.Assigned || two.State != pools.Waiting || !strings.Contains(two.Reason, "group tight has too little of its quota left: 30%") || other.State != pools.Assigned {
			t.Errorf("with a quota: %+v %+v %+v", one, two, other)
		}
		for _, c := range []struct {
			r    pools.Request
			kind fault.Kind
			says string
		}{
			{pools.Request{Group: "tight", Compute: 31}, fault.Exhausted, "exceeds the quota of group tight"},
			{pools.Request{Group: "g", Compute: 1, Model: "B"}, fault.NotFound, `no device of the model "B"`},
			{pools.Request{Group: "g", Compute: 1, Memory: 1001}, fault.Exhausted, "no device that is allowed"},
			{pools.Request{Group: "g", Compute: 1, Priority: 10}, fault.Invalid, "must be at most 9 in group g"},
			{pools.Request{Compute: 1}, fault.Invalid, "there are 2 groups"},
			{pools.Request{Group: "no", Compute: 1}, fault.Denied, "no group"},
			{pools.Request{Group: "g", Spec: "no"}, fault.NotFound, "no specification"},
			{pools.Request{Group: "g", Spec: "no", Compute: 1}, fault.Invalid, "spec_id"},
			{pools.Request{Group: "g", Compute: 101, Device: "d", Priority: -1}, fault.Invalid, "priority: must be between 0 and 100"},
		} {
			if c.r.Memory == 0 && c.r.Spec == "" {
				c.r.Memory = 10
			}
			_, err := w.Request(w.ann, c.r)
			wantKind(t, err, c.kind, c.says)
		}
		w.clock.add(20 * time.Second)
		w.round()
		if got := w.slice(two.ID); got.State != pools.Ended || !strings.Contains(got.Reason, "nobody came for it") || w.lent() != "n1/d0=0" {
			t.Errorf("nobody awaits: %+v, lent %s", got, w.lent())
		}
	})
}

// TestGroupBounds: what a group may have is divided among the nodes at which it has
// weights, as what it has there; a node that waits hears when that changes elsewhere.
func TestGroupBounds(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		t := w.t
		w.group(pools.Group{ID: "g", ComputeLimit: 90})
		w.group(pools.Group{ID: "free"})
		a, b := w.node("a", "A"), w.node("b", "B")
		bounds := func(n *played) string { return fmt.Sprint(n.report().Groups) }
		w.ask(pools.Request{Group: "free", Compute: 30, Model: "A", Weighted: true})
		x := w.ask(pools.Request{Group: "g", Compute: 40, Model: "A", Weighted: true})
		if got := bounds(a) + bounds(b); got != "[{g 90}][]" {
			t.Errorf("with weights at one: %s", got)
		}
		type answer struct {
			wanted pool.Wanted
			err    error
		}
		heard := make(chan answer, 1)
		a.Sequence++
		go func() {
			got, err := w.Service.Report(t.Context(), a.Report, 5*time.Second)
			heard <- answer{got, err}
		}()
		w.ask(pools.Request{Group: "g", Compute: 20, Model: "B"})
		got := <-heard
		must(t, got.err)
		if s := fmt.Sprint(got.wanted.Groups) + bounds(b); s != "[{g 60}][]" {
			t.Errorf("beside a limit at another: %s", s)
		}
		w.ask(pools.Request{Group: "g", Compute: 1, Model: "B", Weighted: true})
		if got := bounds(a) + bounds(b); got != "[{g 59}][{g 30}]" {
			t.Errorf("with weights at both: %s", got)
		}
		_, err := w.Release(w.ann, x.ID)
		must(t, err)
		if got := bounds(a) + bounds(b); got != "[][{g 90}]" {
			t.Errorf("without the first: %s", got)
		}
	})
}

// Slices go where the policy says: the pool's, or the request's own.
func TestPolicies(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		w.node("n1", "A", "A")
		w.node("n2", "A", "B")
		w.node("n3", "C")
		at := func(r pools.Request) string {
			t.Helper()
			r.Compute, r.Fixed = 10, true
			x := w.ask(r)
			return x.Node + "/" + x.Device
		}
		for i, c := range []struct {
			global pools.Policy
			r      pools.Request
			want   string
		}{
			{pools.Policy{}, pools.Request{Node: "n1"}, "n1/d0"},
			{pools.Policy{}, pools.Request{Node: "n1"}, "n1/d1"}, // the emptier device
			{pools.Policy{Devices: pools.Compact}, pools.Request{Node: "n1", Device: "d0"}, "n1/d0"},
			{pools.Policy{}, pools.Request{Node: "n1"}, "n1/d0"}, // the fuller one
			{pools.Policy{}, pools.Request{Model: "a"}, "n2/d0"}, // the emptier node
			{pools.Policy{Nodes: pools.Compact}, pools.Request{Model: "A"}, "n1/d0"},
			{pools.Policy{}, pools.Request{Model: "A", Policy: pools.Policy{Nodes: pools.Balanced, Devices: pools.Balanced}}, "n2/d0"},
			{pools.Policy{Local: pools.LocalFirst}, pools.Request{Host: "host-n3"}, "n3/d0"},
			{pools.Policy{}, pools.Request{Host: "elsewhere", Model: "B"}, "n2/d1"},
			{pools.Policy{}, pools.Request{Host: "host-n2", Policy: pools.Policy{Local: pools.LocalOnly}, Model: "B"}, "n2/d1"},
		} {
			_, err := w.SetPolicy(w.admin, c.global)
			must(t, err)
			if got := at(c.r); got != c.want {
				t.Errorf("%d: %+v went to %s, want %s; lent %s", i, c.r, got, c.want, w.lent())
			}
		}
		_, err := w.Request(w.ann, pools.Request{Group: "g", Compute: 1, Memory: 1, Host: "elsewhere", Policy: pools.Policy{Local: pools.LocalOnly}})
		wantKind(t, err, fault.NotFound, "local only")
		if w.ask(pools.Request{Compute: 95, Host: "host-n3", Policy: pools.Policy{Local: pools.LocalOnly}}).State != pools.Waiting {
			t.Error("local only, and it did not wait")
		}
		w.group(pools.Group{ID: "part", Members: []string{"n2/d1", "n3"}})
		if x := w.ask(pools.Request{Group: "part", Compute: 70}); x.Node+x.Device == "n1d0" {
			t.Errorf("a part of the pool: %+v", x)
		}
		_, err = w.Request(w.ann, pools.Request{Group: "part", Compute: 1, Memory: 1, Model: "A"})
		wantKind(t, err, fault.NotFound, "group part has no device")
	})
}

// TestMemoryLimit: slices have more memory of a device together than it has, if
// its limit says so; none alone has more than there is. What a device reports
// does not change the limit.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		n := w.node("n1", "A")
		x := w.ask(pools.Request{Compute: 10, Memory: 700})
		n.runs(x.ID)
		y := w.ask(pools.Request{Compute: 10, Memory: 700})
		if y.State != pools.Waiting {
			t.Errorf("1,400 of 1,000 MiB: %+v", y)
		}
		node, err := w.SetDevice(w.admin, "n1", "d0", pools.DeviceChange{MemoryRatio: 150})
		must(t, err)
		if d := node.Devices[0]; d.MemoryRatio != 150 || d.MemoryLimit != 1500 || d.ComputeLimit != 100 || w.slice(y.ID).State != pools.Assigned {
			t.Errorf("with 150%%: %+v, %+v", d, w.slice(y.ID))
		}
		_, err = w.Request(w.ann, pools.Request{Group: "g", Compute: 1, Memory: 1001})
		wantKind(t, err, fault.Exhausted, "no device that is allowed")
		_, err = w.Resize(w.ann, x.ID, 10, 1001)
		wantKind(t, err, fault.Exhausted, "left")
		n.report()
		_, err = w.SetDevice(w.admin, "n1", "d0", pools.DeviceChange{MemoryRatio: 139})
		wantKind(t, err, fault.Conflict, "1400 MiB of device d0 are lent")
		_, err = w.SetDevice(w.admin, "n1", "d0", pools.DeviceChange{MemoryRatio: 300})
		must(t, err)
		_, err = w.Resize(w.ann, x.ID, 10, 1001)
		wantKind(t, err, fault.Exhausted, "has 1000 MiB of memory")
	})
}

// A node that was cut off loses what it had at once, but not if it was heard on
// another way meanwhile; when it is back, it is told to end what ran on.
func TestCutOff(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		n := w.node("n1", "A")
		x, held := w.ask(pools.Request{Compute: 30}), w.ask(pools.Request{Compute: 30, Fixed: true})
		n.runs(x.ID)
		must(t, w.CutOff(t.Context(), "n1", 1500*time.Millisecond))
		if w.slice(x.ID).State != pools.Running || w.slice(held.ID).State != pools.Assigned {
			t.Errorf("of a node that has just reported: %+v, %+v", w.slice(x.ID), w.slice(held.ID))
		}
		w.clock.add(2 * time.Second)
		must(t, w.CutOff(t.Context(), "n1", 1500*time.Millisecond))
		if got := w.slice(x.ID); got.State != pools.Ended || got.Reason != "pool node n1 is gone" {
			t.Errorf("what ran there: %+v", got)
		}
		if got := w.slice(held.ID); got.State != pools.Waiting || w.lent() != "n1/d0=0" {
			t.Errorf("what was held there: %+v, lent %s", got, w.lent())
		}
		n.runs(x.ID)
		if want := n.report(); !slices.Equal(want.End, []string{x.ID}) {
			t.Errorf("it should end %v", want.End)
		}
	})
}

// Devices and nodes that are disabled take nothing new; what is lent stays. More
// than a device has is lent only where it is allowed.
func TestModes(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		n := w.node("n1", "A", "B")
		x := w.ask(pools.Request{Compute: 60, Model: "A"})
		n.runs(x.ID)
		_, err := w.SetDevice(w.admin, "n1", "d0", pools.DeviceChange{Disabled: new(true)})
		must(t, err)
		y := w.ask(pools.Request{Compute: 10, Model: "A"})
		if y.State != pools.Waiting || w.slice(x.ID).State != pools.Running {
			t.Errorf("on a disabled device: %+v", y)
		}
		_, err = w.SetDevice(w.admin, "n1", "d0", pools.DeviceChange{Disabled: new(false), ComputeLimit: 150})
		must(t, err)
		if w.slice(y.ID).State != pools.Assigned || w.ask(pools.Request{Compute: 80, Model: "A"}).State != pools.Assigned || w.lent() != "n1/d0=150 n1/d1=0" {
			t.Errorf("with 150%%: lent %s", w.lent())
		}
		_, err = w.SetDevice(w.admin, "n1", "d0", pools.DeviceChange{ComputeLimit: 100})
		wantKind(t, err, fault.Conflict, "150% of device d0 are lent")
		_, err = w.SetDevice(w.admin, "n1", "d9", pools.DeviceChange{ComputeLimit: 99, MemoryRatio: 10001})
		wantKind(t, err, fault.Invalid, "compute_limit_percent")
		wantKind(t, err, fault.Invalid, "memory_limit_percent")
		weight := w.ask(pools.Request{Compute: 90, Model: "A", Weighted: true})
		if weight.State != pools.Assigned {
			t.Errorf("a weight: %+v", weight)
		}
		_, err = w.SetNode(w.admin, "n1", pools.Draining)
		must(t, err)
		z := w.ask(pools.Request{Compute: 10, Model: "B", Fixed: true})
		w.round()
		if list, err := w.Nodes(t.Context()); err != nil || len(list) != 1 || z.State != pools.Waiting {
			t.Errorf("it left before what runs ended: %v, %v, %+v", list, err, z)
		}
		n.runs()
		w.clock.add(20 * time.Second)
		n.report()
		w.round() // ends those nobody came for
		w.round()
		if list, err := w.Nodes(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("it did not leave: %v, %v", list, err)
		}
		n.Sequence++
		_, err = w.tell(t.Context(), n.Report)
		wantKind(t, err, fault.Unauthenticated, "no pool node")
	})
}

// What a node had that is gone comes back; when it returns, what still runs there
// is ended before it takes anything new. A platform that was away itself waits.
func TestGone(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		n := w.node("n1", "A")
		x, held := w.ask(pools.Request{Compute: 40}), w.ask(pools.Request{Compute: 50, Fixed: true})
		n.runs(x.ID, held.ID)
		w.clock.add(16 * time.Second)
		must(t, w.Round(t.Context(), w.clock.Now()))
		if w.slice(x.ID).State != pools.Running {
			t.Error("a loop that has just begun believed that the node is gone")
		}
		w.round()
		if got := w.slice(x.ID); got.State != pools.Ended || got.Reason != "pool node n1 is gone" || w.slice(held.ID).State != pools.Waiting || w.lent() != "n1/d0=0" {
			t.Errorf("gone: %+v %+v, lent %s", got, w.slice(held.ID), w.lent())
		}
		if got := n.runs(x.ID, held.ID); !slices.Equal(got.End, []string{x.ID, held.ID}) || w.slice(held.ID).State != pools.Waiting {
			t.Errorf("it came back: %+v", got)
		}
		if list, err := w.Nodes(t.Context()); err != nil || !list[0].Online {
			t.Errorf("a node that ends what it had is not there: %+v, %v", list[0], err)
		}
		n.runs()
		if got := w.slice(held.ID); got.State != pools.Assigned || w.lent() != "n1/d0=50" {
			t.Errorf("what is held has no place: %+v, lent %s", got, w.lent())
		}
		// Started again, it has no tasks; older reports are passed over.
		y := w.ask(pools.Request{Compute: 10})
		n.runs(y.ID, held.ID)
		old := n.Report
		old.Sequence++
		n.Boot, n.Sequence = "another", 0
		n.runs()
		if w.slice(y.ID).State != pools.Ended || w.slice(held.ID).State != pools.Assigned {
			t.Errorf("started again: %+v %+v", w.slice(y.ID), w.slice(held.ID))
		}
		z := w.ask(pools.Request{Compute: 10})
		n.runs(z.ID)
		before := n.Report
		n.runs(z.ID, held.ID)
		for _, late := range []pools.Report{old, before} {
			if _, err := w.tell(t.Context(), late); err != nil || w.slice(z.ID).State != pools.Running || w.slice(held.ID).State != pools.Running {
				t.Errorf("a report of %s that comes late: %v, %+v %+v", late.Boot, err, w.slice(z.ID), w.slice(held.ID))
			}
		}
		// What is put back to before it started anew is believed when nothing else reports.
		w.clock.add(time.Minute)
		if _, err := w.tell(t.Context(), old); err != nil || w.slice(z.ID).State != pools.Ended {
			t.Errorf("put back: %v, %+v", err, w.slice(z.ID))
		}
		n.Boot = "a third"
		n.runs(held.ID)
		n.Stopping = true
		n.report()
		w.clock.add(2 * time.Second)
		w.round()
		if list, err := w.Nodes(t.Context()); err != nil || list[0].Online || w.slice(held.ID).State != pools.Waiting {
			t.Errorf("it stopped: %+v, %v", list[0], err)
		}
	})
}

// Two processes that lend at the same time never lend the same twice.
func TestExact(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		for _, id := range []string{"n1", "n2", "n3"} {
			w.node(id, "A")
		}
		two := []*pools.Service{w.Service, w.another()}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for k := range 6 {
					s := two[(i+k)%2]
					x, err := s.Request(w.ann, pools.Request{Compute: 9 + int64(i), Memory: 90, Fixed: true})
					for fault.KindOf(err) == fault.Conflict { // others were faster, again and again
						x, err = s.Request(w.ann, pools.Request{Compute: 9 + int64(i), Memory: 90, Fixed: true})
					}
					if err != nil {
						t.Errorf("request: %v", err)
						return
					}
					if k%3 != 0 {
						continue
					}
					if _, err := s.Release(w.ann, x.ID); err != nil && fault.KindOf(err) != fault.Conflict {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
		wg.Wait()
		list, _, err := w.List(w.ann, pools.Filter{States: []pools.State{pools.Assigned}}, 1000, "")
		must(t, err)
		sum := map[string]int64{}
		for _, x := range list {
			sum[x.Node] += x.Compute
		}
		for id, n := range sum {
			if n > 100 || !strings.Contains(w.lent(), fmt.Sprintf("%s/d0=%d", id, n)) {
				t.Errorf("%s has lent %d%%; counted %s", id, n, w.lent())
			}
		}
		if len(list) < 15 {
			t.Errorf("only %d slices have a place", len(list))
		}
	})
}

// Who is not of a group, a slice or a node gets nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g", Users: []string{"ann"}})
		n := w.node("n1", "A")
		x := w.ask(pools.Request{Compute: 10})
		_, err := w.Request(w.bob, pools.Request{Compute: 10, Memory: 10})
		wantKind(t, err, fault.Denied, "may use no group")
		_, _, err = w.Await(w.bob, x.ID, 0)
		wantKind(t, err, fault.NotFound, "no slice")
		carl := core.WithCaller(t.Context(), core.Caller{UserID: "carl", TenantID: "default"})
		_, _, err = w.Await(carl, x.ID, 0)
		wantKind(t, err, fault.Denied, "is user ann's")
		_, err = w.Release(carl, x.ID)
		wantKind(t, err, fault.Denied, "is user ann's")
		if list, _, err := w.List(w.bob, pools.Filter{}, 0, ""); err != nil || len(list) != 0 {
			t.Errorf("another tenant sees %v, %v", list, err)
		}
		if list, err := w.Groups(carl); err != nil || len(list) != 0 {
			t.Errorf("who may not use a group sees %v, %v", list, err)
		}
		wantKind(t, w.DeleteGroup(w.admin, "g"), fault.Conflict, "has 1 slices")

		wrong := n.Report
		wrong.Secret = strings.Repeat("0b", 32)
		wrong.Sequence++
		_, err = w.tell(t.Context(), wrong)
		wantKind(t, err, fault.Unauthenticated, "no pool node")
		token, _, err := w.CreateToken(w.admin, 60)
		must(t, err)
		wantKind(t, w.Join(t.Context(), token, "n1", n.Secret), fault.Conflict, "a pool node n1 already")
		wantKind(t, w.Join(t.Context(), token, "n 2", "x"), fault.Invalid, "node_id")
		must(t, w.Join(t.Context(), token, "n2", n.Secret))
		must(t, w.Join(t.Context(), token, "n2", n.Secret)) // the answer was lost
		wantKind(t, w.Join(t.Context(), token, "n3", n.Secret), fault.Unauthenticated, "used by another")
		wantKind(t, w.Join(t.Context(), "yp_x", "n3", n.Secret), fault.Unauthenticated, "unknown")
		w.clock.add(time.Hour)
		wantKind(t, w.Join(t.Context(), token, "n2", n.Secret), fault.Unauthenticated, "expired")
	})
}

// A slice may grow to all the memory that its device has.
func TestGrows(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		w.node("n1", "A")
		x := w.ask(pools.Request{Compute: 10, Memory: 500, Fixed: true})
		for _, mem := range []int64{900, 1000} {
			if got, err := w.Resize(w.ann, x.ID, 0, mem); err != nil || got.Memory != mem {
				t.Errorf("resized to %d MiB: %+v, %v", mem, got, err)
			}
		}
	})
}

// Who waits for room keeps others off the devices that it could use, and off no
// others: one that is too small, or not on the machine that it must be on.
func TestKeepsOff(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g", MaxPriority: 1})
		w.node("n1", "A", "A")
		two := w.node("n2", "A")
		two.Devices[0].Memory = 600 << 20
		two.report()
		var held []*pools.Slice
		for _, d := range []string{"d0", "d1"} {
			held = append(held, w.ask(pools.Request{Compute: 100, Memory: 300, Node: "n1", Device: d, Fixed: true}))
		}
		for _, r := range []pools.Request{
			{Compute: 60, Memory: 800, Fixed: true, Priority: 1},
			{Compute: 60, Memory: 10, Fixed: true, Priority: 1, Host: "host-n1", Policy: pools.Policy{Local: pools.LocalOnly}},
		} {
			large := w.ask(r)
			small := w.ask(pools.Request{Compute: 10, Fixed: true})
			if large.State != pools.Waiting || at(small) != "n2/d0" {
				t.Errorf("while one of %d MiB is %v, one that has room is %v at %s: %s", r.Memory, large.State, small.State, at(small), small.Reason)
			}
			for _, x := range []*pools.Slice{large, small} {
				_, err := w.Release(w.ann, x.ID)
				must(t, err)
			}
		}
		// Of a program's cards one has room, the other has not: it is kept for it.
		_, err := w.Release(w.ann, held[0].ID)
		must(t, err)
		set := w.ask(pools.Request{Compute: 60, Cards: 2, Node: "n1", Fixed: true})
		small := w.ask(pools.Request{Compute: 50, Node: "n1", Fixed: true})
		if set.State != pools.Waiting || small.State != pools.Waiting {
			t.Errorf("two cards are %v, and who came later is %v at %s", set.State, small.State, at(small))
		}
		_, err = w.Release(w.ann, held[1].ID)
		must(t, err)
		if list, nodes := w.cards(set); nodes != "n1 n1" {
			t.Errorf("when the other has room: %v, %s", list[0].Reason, w.lent())
		}
	})
}
