package topology_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/samples"
	"yunhe.dev/yunhe/internal/seal"
	"yunhe.dev/yunhe/internal/topology"
)

var quiet = slog.New(slog.DiscardHandler)

// clock is a time that tests move.
type clock struct{ us atomic.Int64 }

func (c *clock) now() time.Time          { return time.UnixMicro(c.us.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.us.Add(d.Microseconds()) }

// world is a topology with what it draws, on a database whose clock the test
// moves.
type world struct {
	*topology.Service
	reg     *registry.Service
	inv     *inventory.Service
	bus     *bus.Bus
	samples *samples.Store
	clock   *clock
	url     string
	keys    string
	d       *db.DB
	cfg     topology.Config
}

// each runs a test on every engine.
func each(t *testing.T, f func(t *testing.T, ctx context.Context, w *world)) {
	t.Helper()
	t.Parallel()
	for _, e := range []struct {
		name string
		url  func(t testing.TB) string
	}{
		{"sqlite", func(t testing.TB) string { return filepath.Join(t.TempDir(), "yunhe.db") }},
		{"postgres", func(t testing.TB) string { return enginetest.Postgres(t) }},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			f(t, operator(t.Context()), newWorld(t, e.url(t)))
		})
	}
}

func newWorld(t testing.TB, url string) *world {
	t.Helper()
	w := &world{clock: &clock{}, url: url, keys: filepath.Join(t.TempDir(), "secrets.key")}
	w.clock.us.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
	var err error
	w.bus, err = bus.Open(t.Context(), bus.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"}, quiet)
	must(t, err)
	t.Cleanup(w.bus.Close)
	w.samples, err = samples.Open(samples.Config{URL: t.TempDir()}, quiet, w.clock.now)
	must(t, err)
	t.Cleanup(func() { must(t, w.samples.Close()) })
	w.open(t)
	return w
}

func (w *world) open(t testing.TB) {
	t.Helper()
	d, err := db.Open(t.Context(), db.Config{URL: w.url, Now: w.clock.now}, quiet)
	for tries := 0; fault.KindOf(err) == fault.Conflict && tries < 10_000; tries++ {
		// A server that another test starts this moment holds a copy of our lock
		// until it has become that server.
		d, err = db.Open(t.Context(), db.Config{URL: w.url, Now: w.clock.now}, quiet)
	}
	must(t, err)
	t.Cleanup(func() { _ = d.Close() }) // a second close after reopen is harmless
	w.d = d
	w.reg, err = registry.New(t.Context(), d, quiet)
	must(t, err)
	box, err := seal.Open(w.keys)
	must(t, err)
	w.inv, err = inventory.New(t.Context(), d, w.reg, box, quiet)
	must(t, err)
	w.Service = w.process(t)
}

// process is one more that works on the same state.
func (w *world) process(t testing.TB) *topology.Service {
	t.Helper()
	s, err := topology.New(t.Context(), w.cfg, w.d, w.bus, w.reg, w.inv, w.samples, quiet)
	must(t, err)
	return s
}

// reopen is a restart.
func (w *world) reopen(t *testing.T) {
	t.Helper()
	must(t, w.d.Close())
	w.open(t)
}

// operator sees all tenants, member is of one.
func operator(ctx context.Context) context.Context {
	return core.WithCaller(ctx, core.Caller{UserID: "op", TenantID: "default", AllTenants: true})
}

func member(ctx context.Context, tenant string) context.Context {
	return core.WithCaller(ctx, core.Caller{UserID: "u-" + tenant, TenantID: tenant})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t testing.TB, err error, kind fault.Kind) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind {
		t.Errorf("got %v, want %s", err, kind)
	}
}

// join makes a center with nodes, or brings it up to date.
func (w *world) join(t testing.TB, id, region string, nodes ...*adapterv1.Node) {
	t.Helper()
	must(t, w.d.Tx(t.Context(), func(tx *db.Tx) error {
		inv := &adapterv1.Inventory{AiCenterId: id, Name: "Center " + id, Region: region, Capacity: map[string]int64{core.CPU: 128000, core.Memory: 1 << 40, "gpu": 16}}
		if err := w.reg.JoinTx(t.Context(), tx, inv, "kubernetes"); err != nil {
			return err
		}
		if err := w.reg.MarkSeenTx(t.Context(), tx, id); err != nil {
			return err
		}
		return w.reg.SyncNodesTx(t.Context(), tx, id, true, nodes, nil)
	}))
}

// nodes reports changes of nodes.
func (w *world) nodes(t testing.TB, id string, gone []string, nodes ...*adapterv1.Node) {
	t.Helper()
	must(t, w.d.Tx(t.Context(), func(tx *db.Tx) error { return w.reg.SyncNodesTx(t.Context(), tx, id, false, nodes, gone) }))
}

// heard keeps centers available.
func (w *world) heard(t testing.TB, ids ...string) {
	t.Helper()
	must(t, w.d.Tx(t.Context(), func(tx *db.Tx) error { return w.reg.MarkSeenTx(t.Context(), tx, ids...) }))
}

func machine(name string, state adapterv1.NodeState) *adapterv1.Node {
	return &adapterv1.Node{
		Name: name, State: state, Architecture: "amd64", OperatingSystem: "Ubuntu 24.04 LTS", Capacity: map[string]int64{core.CPU: 64000, core.Memory: 1 << 39, "gpu": 8},
		Accelerators: []*adapterv1.Accelerator{{Vendor: "NVIDIA", Model: "H800", Count: 8, MemoryBytes: 80 << 30, Resource: "gpu"}},
	}
}

func machines(n int) []*adapterv1.Node {
	out := make([]*adapterv1.Node, n)
	for i := range out {
		out[i] = machine(fmt.Sprintf("node-%04d", i), adapterv1.NodeState_NODE_STATE_READY)
	}
	return out
}

const (
	ready    = adapterv1.NodeState_NODE_STATE_READY
	notReady = adapterv1.NodeState_NODE_STATE_NOT_READY
	drained  = adapterv1.NodeState_NODE_STATE_DRAINED
)

// resource registers a resource.
func (w *world) resource(t testing.TB, ctx context.Context, r inventory.Resource) {
	t.Helper()
	if r.State == 0 {
		r.State = inventory.Available
	}
	_, err := w.inv.Create(ctx, r)
	must(t, err)
}

// sync sweeps and says how much changed.
func (w *world) sync(t testing.TB) int {
	t.Helper()
	n, err := w.Sync(t.Context(), true)
	must(t, err)
	return n
}

// measure writes samples of now: "name{label=value,...}" and a value.
func (w *world) measure(t testing.TB, series string, value float64) {
	t.Helper()
	name, rest, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	var pairs []string
	for _, l := range strings.Split(rest, ",") {
		k, v, _ := strings.Cut(l, "=")
		pairs = append(pairs, k, v)
	}
	r, err := w.samples.Append(t.Context(), []samples.Sample{{Name: name, Labels: samples.L(pairs...), Value: value, At: w.clock.now()}})
	must(t, err)
	if r.Stored != 1 {
		t.Fatalf("%s not stored: %+v", series, r)
	}
}

var healths = []string{"-", "healthy", "busy", "warning", "down", "unknown", "isolated"}

// tree writes the topology as indented lines "ID health", worst in brackets
// where it differs, and links as "from = to".
func (w *world) tree(t testing.TB, ctx context.Context, root string, at time.Time, depth, limit int32) string {
	t.Helper()
	p, err := w.Topology(ctx, root, at, depth, limit)
	must(t, err)
	return show(p)
}

func show(p *topology.Part) string {
	kids := map[string][]*topology.Vertex{}
	for i := range p.Vertices[1:] {
		v := &p.Vertices[i+1]
		kids[v.Display] = append(kids[v.Display], v)
	}
	var b strings.Builder
	var walk func(v *topology.Vertex, in string)
	walk = func(v *topology.Vertex, in string) {
		fmt.Fprintf(&b, "%s%s %s", in, v.ID, healths[v.Health])
		if v.Worst != v.Health {
			fmt.Fprintf(&b, " (%s)", healths[v.Worst])
		}
		if v.More {
			fmt.Fprintf(&b, " +%d", v.Hidden.Total())
		}
		b.WriteByte('\n')
		for _, k := range kids[v.ID] {
			walk(k, in+"  ")
		}
	}
	walk(&p.Vertices[0], "")
	for _, l := range p.Links {
		fmt.Fprintf(&b, "%s: %s = %s %s\n", l.LinkID(), l.Link.From, l.Link.To, healths[l.Health])
	}
	return b.String()
}

func wantText(t testing.TB, got, want string) {
	t.Helper()
	if d := cmp.Diff(strings.TrimSpace(strings.ReplaceAll(want, "\t", "")), strings.TrimSpace(got)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// build makes a small network: two regions, a platform with a center of its
// own, and a registered line.
func (w *world) build(t testing.TB, ctx context.Context) {
	t.Helper()
	w.join(t, "gz", "guizhou", machine("n1", ready), machine("n2", notReady))
	w.join(t, "nx", "ningxia", machine("m1", ready))
	w.join(t, "sh", "shanghai", machine("s1", drained))
	w.resource(t, ctx, inventory.Resource{ID: "east", Type: "platform", Name: "East", Attributes: map[string]any{"level": "regional", "managed_compute_types": []any{"general"}}})
	_, err := w.inv.Move(ctx, "center:sh", "east")
	must(t, err)
	w.resource(t, ctx, inventory.Resource{ID: "line", Type: "network", Name: "Line", ParentID: "east", Region: "east", Provider: "carrier", Attributes: map[string]any{
		"network_type": "leased_line", "specification": "10G", "bandwidth_mbps": float64(10000), "latency_us": float64(900), "endpoints": []any{"center:sh", "center:gz"}}})
	w.resource(t, ctx, inventory.Resource{ID: "disk", Type: "storage", Name: "Disk", ParentID: "center:gz", Region: "guizhou", Provider: "p", Attributes: map[string]any{
		"storage_type": "block", "specification": "ssd"}})
}

// What joined and what is registered becomes one tree with links and health.
func TestTopology(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.build(t, ctx)
		if n := w.sync(t); n == 0 {
			t.Fatal("nothing recorded")
		}
		wantText(t, w.tree(t, ctx, "", time.Time{}, 3, 0), `
network warning (down)
  east healthy (isolated)
    center:sh isolated
      node:sh:s1 isolated +0
    line healthy
  region:guizhou warning (down)
    center:gz warning (down)
      disk healthy
      node:gz:n1 healthy +0
      node:gz:n2 down +0
  region:ningxia healthy
    center:nx healthy
      node:nx:m1 healthy +0
path:gz:platform: center:gz = network -
path:nx:platform: center:nx = network -
path:sh:platform: center:sh = network -
resource:line: center:sh = center:gz healthy`)
		if n := w.sync(t); n != 0 {
			t.Errorf("%d changes recorded of what did not change", n)
		}
		w.reopen(t)
		if n := w.sync(t); n != 0 {
			t.Errorf("%d changes recorded after a restart", n)
		}
		t.Run("a node with its cards", func(t *testing.T) {
			wantText(t, w.tree(t, ctx, "node:gz:n2", time.Time{}, 1, 4), `
node:gz:n2 down +0
  card:gz/n2/gpu/0 down
  card:gz/n2/gpu/1 down
  card:gz/n2/gpu/2 down`)
			v, err := w.Vertex(ctx, "card:gz/n2/gpu/7", time.Time{})
			must(t, err)
			if v.Card == nil || v.Card.Model != "H800" || v.Card.Count != 1 || v.Display != "node:gz:n2" || v.Level != topology.LevelCard {
				t.Errorf("card: %+v", v)
			}
			_, err = w.Vertex(ctx, "card:gz/n2/gpu/8", time.Time{})
			wantKind(t, err, fault.NotFound)
			_, err = w.Vertex(ctx, "card:gz/n2/npu/0", time.Time{})
			wantKind(t, err, fault.NotFound)
		})
		t.Run("a center with its links", func(t *testing.T) {
			v, err := w.Vertex(ctx, "center:gz", time.Time{})
			must(t, err)
			if v.Children != 3 || v.Nodes.Total() != 2 || v.Cards.Total() != 16 || len(v.Links) != 2 || v.Location != "guizhou" || v.Adapter != "kubernetes" || v.Links[1].Link.Bandwidth != 10e9 || v.Links[1].Link.Latency != 900 {
				t.Errorf("center: %+v", v)
			}
		})
		t.Run("what does not fit is counted, the worst stay", func(t *testing.T) {
			wantText(t, w.tree(t, ctx, "center:gz", time.Time{}, 1, 2), `
center:gz warning (down) +1
  node:gz:n2 down +0`)
			wantText(t, w.tree(t, ctx, "", time.Time{}, 1, 0), `
network warning (down)
  east healthy (isolated) +1
  region:guizhou warning (down) +2
  region:ningxia healthy +1`)
		})
		t.Run("what cannot be asked for", func(t *testing.T) {
			for _, id := range []string{"node:gz", "center:", "Center:gz", "card:gz/n1/gpu", "card:gz/n1/gpu/01", "card:gz/n1/gpu/-1", "region:", "no such id", strings.Repeat("x", 600), "node:g z:n"} {
				_, err := w.Topology(ctx, id, time.Time{}, 0, 0)
				if id != "" {
					wantKind(t, err, fault.Invalid)
				}
			}
			for _, x := range [][2]int32{{17, 0}, {-1, 0}, {0, 5001}, {0, -1}} {
				_, err := w.Topology(ctx, "", time.Time{}, x[0], x[1])
				wantKind(t, err, fault.Invalid)
			}
			_, err := w.Topology(ctx, "center:none", time.Time{}, 0, 0)
			wantKind(t, err, fault.NotFound)
			_, err = w.Topology(ctx, "", w.clock.now().Add(time.Hour), 0, 0)
			wantKind(t, err, fault.Invalid)
			_, err = w.Topology(ctx, "", w.clock.now().Add(-time.Hour), 0, 0)
			wantKind(t, err, fault.Invalid)
		})
	})
}

// Every past time is as it was, whatever came later.
func TestHistory(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c", "north", machine("a", ready))
		w.sync(t)
		first := w.clock.now()
		w.clock.advance(5 * time.Second)
		w.nodes(t, "c", nil, machine("a", notReady), machine("b", ready))
		w.heard(t, "c")
		w.sync(t)
		second := w.clock.now()
		w.clock.advance(5 * time.Second)
		w.nodes(t, "c", []string{"a"})
		w.heard(t, "c")
		w.sync(t)
		third := w.clock.now()
		w.clock.advance(time.Minute) // nobody hears of it any more
		w.sync(t)
		fourth := w.clock.now()
		for at, want := range map[time.Time]string{
			first:                        "center:c healthy\n  node:c:a healthy +0",
			second.Add(-time.Second):     "center:c healthy\n  node:c:a healthy +0",
			second:                       "center:c warning (down)\n  node:c:a down +0\n  node:c:b healthy +0",
			third:                        "center:c healthy\n  node:c:b healthy +0",
			fourth:                       "center:c unknown\n  node:c:b unknown +0",
			fourth.Add(-1 * time.Second): "center:c healthy\n  node:c:b healthy +0",
		} {
			wantText(t, w.tree(t, ctx, "center:c", at, 1, 0), want)
		}
		rows, next, begins, err := w.Changes(ctx, topology.ChangeFilter{}, 0, "")
		must(t, err)
		if next != "" || !begins.Equal(first) {
			t.Errorf("next %q, begins %s", next, begins)
		}
		wantText(t, changes(rows, first), `
0s added center:c
0s added link:path:c:platform
0s added node:c:a
0s added region:north
5s changed node:c:a [state]
5s added node:c:b
10s removed node:c:a
1m10s changed center:c [state reason]`)
		t.Run("by pages, in both orders", func(t *testing.T) {
			for _, newest := range []bool{false, true} {
				var all []topology.Change
				for token := ""; ; {
					part, next, _, err := w.Changes(ctx, topology.ChangeFilter{Newest: newest}, 3, token)
					must(t, err)
					all = append(all, part...)
					if token = next; token == "" {
						break
					}
				}
				if newest {
					slices.Reverse(all)
				}
				if changes(all, first) != changes(rows, first) {
					t.Errorf("newest %v:\n%s", newest, changes(all, first))
				}
			}
		})
		t.Run("of one vertex and of a time", func(t *testing.T) {
			part, _, _, err := w.Changes(ctx, topology.ChangeFilter{ItemID: "node:c:a", Span: topology.Span{From: first}}, 0, "")
			must(t, err)
			wantText(t, changes(part, first), "5s changed node:c:a [state]\n10s removed node:c:a")
			part, _, _, err = w.Changes(ctx, topology.ChangeFilter{ItemID: "card:c/b/gpu/3"}, 0, "")
			must(t, err)
			wantText(t, changes(part, first), "5s added node:c:b")
			part, _, _, err = w.Changes(ctx, topology.ChangeFilter{CenterID: "other"}, 0, "")
			must(t, err)
			wantText(t, changes(part, first), "")
			_, _, _, err = w.Changes(ctx, topology.ChangeFilter{Span: topology.Span{From: fourth, To: first}}, 0, "")
			wantKind(t, err, fault.Invalid)
			_, _, _, err = w.Changes(ctx, topology.ChangeFilter{ItemID: "x:y"}, 0, "rubbish")
			wantKind(t, err, fault.Invalid)
		})
		t.Run("density", func(t *testing.T) {
			for _, center := range []string{"", "c"} {
				d, err := w.Density(ctx, topology.Span{To: fourth}, 10, center)
				must(t, err)
				want := "[5 0 0 0 0 0 0 0 0 0] [1 0 0 0 0 0 0 0 0 1] [0 1 0 0 0 0 0 0 0 0]"
				if center != "" { // the region is not of the center
					want = "[4" + want[2:]
				}
				if got := fmt.Sprint(d.Added, d.Changed, d.Removed); got != want || !d.Last.Equal(fourth) {
					t.Errorf("center %q: got %s, want %s", center, got, want)
				}
			}
			_, err := w.Density(ctx, topology.Span{}, 501, "")
			wantKind(t, err, fault.Invalid)
		})
		t.Run("diff", func(t *testing.T) {
			for _, x := range []struct {
				from, to time.Time
				want     string
			}{
				{first, second, "5s changed node:c:a [state]\n5s added node:c:b"},
				{first, third, "10s removed node:c:a\n5s added node:c:b"},
				{second, second, ""},
				{first, time.Time{}, "1m10s changed center:c [state reason]\n10s removed node:c:a\n5s added node:c:b"},
			} {
				d, err := w.Diff(ctx, topology.Span{From: x.from, To: x.to}, "", 0, "")
				must(t, err)
				wantText(t, changes(d.Changes, first), x.want)
			}
			d, err := w.Diff(ctx, topology.Span{From: first}, "c", 2, "")
			must(t, err)
			if len(d.Changes) != 2 || d.Added != 1 || d.Changed != 1 || d.Removed != 1 {
				t.Errorf("first page: %+v", d)
			}
			d, err = w.Diff(ctx, topology.Span{From: first}, "c", 2, d.Next)
			must(t, err)
			if len(d.Changes) != 1 || d.Next != "" || d.Changes[0].ID != "node:c:b" {
				t.Errorf("second page: %+v", d)
			}
			_, err = w.Diff(ctx, topology.Span{From: first.Add(-time.Second)}, "", 0, "")
			wantKind(t, err, fault.Invalid)
			_, err = w.Diff(ctx, topology.Span{}, "", 0, "")
			wantKind(t, err, fault.Invalid)
		})
		t.Run("what is too old is forgotten", func(t *testing.T) {
			w.cfg.History = 2 * time.Minute
			w.reopen(t)
			w.clock.advance(55 * time.Second) // second is the last revision before the cut
			must(t, w.Purge(ctx))
			_, err := w.Topology(ctx, "", first, 0, 0)
			wantKind(t, err, fault.Invalid)
			wantText(t, w.tree(t, ctx, "center:c", second, 1, 0), "center:c warning (down)\n  node:c:a down +0\n  node:c:b healthy +0")
			wantText(t, w.tree(t, ctx, "center:c", third, 1, 0), "center:c healthy\n  node:c:b healthy +0")
			w.clock.advance(24 * time.Hour)
			must(t, w.Purge(ctx))
			wantText(t, w.tree(t, ctx, "center:c", time.Time{}, 1, 0), "center:c unknown\n  node:c:b unknown +0")
		})
	})
}

// Labels are part of what was: at a time, in changes and between two times.
func TestLabels(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		labelled := func(value string) *adapterv1.Node {
			n := machine("a", ready)
			n.Labels = map[string]string{"rack": value}
			return n
		}
		disk := inventory.Resource{ID: "disk", Type: "storage", Name: "Disk", ParentID: "center:c", Region: "north", Provider: "p", Labels: map[string]string{"tier": "gold"},
			Attributes: map[string]any{"storage_type": "block", "specification": "ssd"}}
		w.join(t, "c", "north", labelled("r1"))
		w.resource(t, ctx, disk)
		w.sync(t)
		first := w.clock.now()
		w.clock.advance(5 * time.Second)
		w.nodes(t, "c", nil, labelled("r2"))
		disk.Labels, disk.Version = nil, 1
		_, err := w.inv.Update(ctx, disk)
		must(t, err)
		center, err := w.reg.GetCenter(ctx, "c")
		must(t, err)
		center.Labels = map[string]string{"site": "new"}
		_, err = w.reg.UpdateCenter(ctx, center)
		must(t, err)
		w.heard(t, "c")
		w.sync(t)
		for id, want := range map[string][2]string{
			"node:c:a":     {"map[rack:r1]", "map[rack:r2]"},
			"disk":         {"map[tier:gold]", "map[]"},
			"center:c":     {"map[]", "map[site:new]"},
			"region:north": {"map[]", "map[]"},
		} {
			for i, at := range []time.Time{first, {}} {
				v, err := w.Vertex(ctx, id, at)
				must(t, err)
				if got := fmt.Sprint(v.Labels); got != want[i] {
					t.Errorf("%s has labels %s at %d, want %s", id, got, i, want[i])
				}
			}
		}
		const want = "5s changed center:c [labels]\n5s changed disk [labels]\n5s changed node:c:a [labels]"
		rows, _, _, err := w.Changes(ctx, topology.ChangeFilter{Span: topology.Span{From: first}}, 0, "")
		must(t, err)
		wantText(t, changes(rows, first), want)
		d, err := w.Diff(ctx, topology.Span{From: first}, "", 0, "")
		must(t, err)
		wantText(t, changes(d.Changes, first), want)
		w.reopen(t)
		if n := w.sync(t); n != 0 {
			t.Errorf("%d changes recorded after a restart", n)
		}
	})
}

// changes writes changes as lines.
func changes(rows []topology.Change, start time.Time) string {
	var b strings.Builder
	for _, c := range rows {
		fmt.Fprintf(&b, "%s %s %s", c.At.Sub(start), []string{"", "added", "changed", "removed"}[c.Kind], c.ID)
		if c.Before != nil && c.After != nil {
			fmt.Fprintf(&b, " %v", topology.Differences(c))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
