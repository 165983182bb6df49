package inventory_test

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
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/seal"
)

var quiet = slog.New(slog.DiscardHandler)

// clock is a time that tests move.
type clock struct{ us atomic.Int64 }

func (c *clock) now() time.Time          { return time.UnixMicro(c.us.Load()) }
func (c *clock) advance(d time.Duration) { c.us.Add(d.Microseconds()) }

// world is an inventory and a registry on a database whose clock the test moves.
type world struct {
	*inventory.Service
	reg   *registry.Service
	clock *clock
	url   string
	keys  string
	d     *db.DB
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
			w := newWorld(t, e.url(t))
			f(t, operator(t.Context()), w)
		})
	}
}

func newWorld(t testing.TB, url string) *world {
	t.Helper()
	w := &world{clock: &clock{}, url: url, keys: filepath.Join(t.TempDir(), "secrets.key")}
	w.clock.us.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
	w.open(t)
	return w
}

func (w *world) open(t testing.TB) {
	t.Helper()
	d, err := db.Open(t.Context(), db.Config{URL: w.url, Now: w.clock.now}, quiet)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() }) // a second close after reopen is harmless
	w.d = d
	w.reg, err = registry.New(t.Context(), d, quiet)
	must(t, err)
	box, err := seal.Open(w.keys)
	must(t, err)
	w.Service, err = inventory.New(t.Context(), d, w.reg, box, quiet)
	must(t, err)
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

// join makes a center with nodes.
func (w *world) join(t testing.TB, id, region string, nodes ...*adapterv1.Node) {
	t.Helper()
	must(t, w.d.Tx(t.Context(), func(tx *db.Tx) error {
		inv := &adapterv1.Inventory{AiCenterId: id, Name: "Center " + id, Region: region, Capacity: map[string]int64{core.CPU: 128000, core.Memory: 1 << 40, "gpu": 16}, Labels: map[string]string{"tier": "gold"}}
		if err := w.reg.JoinTx(t.Context(), tx, inv, "kubernetes"); err != nil {
			return err
		}
		if err := w.reg.MarkSeenTx(t.Context(), tx, id); err != nil {
			return err
		}
		return w.reg.SyncNodesTx(t.Context(), tx, id, true, nodes, nil)
	}))
}

func machine(name string, state adapterv1.NodeState) *adapterv1.Node {
	return &adapterv1.Node{
		Name: name, State: state, Architecture: "amd64", OperatingSystem: "Ubuntu 24.04 LTS", Capacity: map[string]int64{core.CPU: 63500, core.Memory: 1 << 39, "gpu": 8},
		Accelerators: []*adapterv1.Accelerator{{Vendor: "NVIDIA", Model: "H800", Count: 8, MemoryBytes: 80 << 30, Resource: "gpu"}}, Labels: map[string]string{"rack": "r1"},
	}
}

func machines(n int) []*adapterv1.Node {
	out := make([]*adapterv1.Node, n)
	for i := range out {
		out[i] = machine(fmt.Sprintf("node-%04d", i), 1)
	}
	return out
}

// Resources of every type that can be registered.
func platform(id, parent string) inventory.Resource {
	return inventory.Resource{ID: id, Type: "platform", ParentID: parent, Attributes: map[string]any{"level": "provincial", "managed_compute_types": []any{"general", "intelligent"}}}
}

func cloud(id, parent string) inventory.Resource {
	return inventory.Resource{ID: id, Type: "cloud", ParentID: parent, Provider: "Example Cloud", Attributes: map[string]any{"cloud_platform_type": "edge"}}
}

func node(id, parent string) inventory.Resource {
	return inventory.Resource{ID: id, Type: "node", ParentID: parent, Region: "guizhou", Attributes: map[string]any{"available_resources": []any{map[string]any{"kind": "cpu", "scale": 64.0, "unit": "cores"}}}}
}

func compute(id, parent string) inventory.Resource {
	return inventory.Resource{ID: id, Type: "compute", ParentID: parent, Attributes: map[string]any{
		"supply_mode": "bare_metal", "chip_type": "GPU", "chip_arch": "Hopper", "chip_model": "H800", "serial_number": "SN-" + id,
		"performance": map[string]any{"fp16": 989000.0, "fp64": 1000.0}, "memory_bytes": float64(80 << 30),
	}}
}

func network(id, parent string) inventory.Resource {
	return inventory.Resource{ID: id, Type: "network", ParentID: parent, Region: "guizhou", Provider: "Example Telecom", Attributes: map[string]any{"network_type": "leased_line", "specification": "10G OTN", "bandwidth_mbps": 10000.0}}
}

func storage(id, parent string) inventory.Resource {
	return inventory.Resource{ID: id, Type: "storage", ParentID: parent, Region: "guizhou", Provider: "Example Cloud", Attributes: map[string]any{"storage_type": "object", "specification": "standard"}}
}

func security(id, parent string) inventory.Resource {
	return inventory.Resource{ID: id, Type: "security", ParentID: parent, Attributes: map[string]any{"security_type": "firewall"}}
}

func (w *world) create(t testing.TB, ctx context.Context, rs ...inventory.Resource) {
	t.Helper()
	for _, r := range rs {
		if _, err := w.Create(ctx, r); err != nil {
			t.Fatalf("create %s: %v", r.ID, err)
		}
	}
}

func (w *world) get(t *testing.T, ctx context.Context, id string) inventory.Resource {
	t.Helper()
	r, err := w.Get(ctx, id)
	must(t, err)
	return r
}

// ids lists everything that passes, in pages of three.
func (w *world) ids(t *testing.T, ctx context.Context, f inventory.Filter) (out []string) {
	t.Helper()
	token := ""
	for {
		rows, next, err := w.List(ctx, f, 3, token)
		must(t, err)
		if len(rows) > 3 {
			t.Fatalf("page of 3 has %d rows", len(rows))
		}
		for _, r := range rows {
			out = append(out, r.ID)
		}
		if token = next; token == "" {
			return out
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, what string, err error, want fault.Kind) {
	t.Helper()
	if err == nil || fault.KindOf(err) != want {
		t.Errorf("%s: error = %v, want kind %s", what, err, want)
	}
}

// wantPaths checks which inputs an error complains about.
func wantPaths(t *testing.T, what string, err error, want ...string) {
	t.Helper()
	wantKind(t, what, err, fault.Invalid)
	var got []string
	for _, f := range fault.FieldsOf(err) {
		got = append(got, f.Path)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: violations at %q, want %q (%v)", what, got, want, err)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	var names []string
	for _, x := range inventory.Types() {
		names = append(names, x.Name)
		if x.Title == "" || x.Clause == "" || len(x.Schema) == 0 {
			t.Errorf("type %s says too little: %+v", x.Name, x)
		}
	}
	same(t, "types", strings.Join(names, " "), "platform cloud center node compute network storage security")
}

func TestCreate(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c1", "north")
		now := w.clock.now().UTC()
		p, err := w.Create(ctx, platform("p1", ""))
		must(t, err)
		same(t, "platform", p, inventory.Resource{
			ID: "p1", Type: "platform", Name: "p1", State: inventory.Registered, Attributes: platform("", "").Attributes, Labels: map[string]string{}, Version: 1, CreatedAt: now, UpdatedAt: now,
		})
		w.create(t, ctx, cloud("k1", "p1"), node("n1", "k1"), network("net1", "k1"), storage("sto1", "k1"), security("sec1", "k1"))
		in := compute("gpu1", "n1")
		in.Name, in.Labels, in.State, in.CenterID = "八卡", map[string]string{"rack": "7", "empty": ""}, inventory.Available, "c1"
		got, err := w.Create(ctx, in)
		must(t, err)
		want := in
		want.PlatformID, want.Version, want.CreatedAt, want.UpdatedAt = "p1", 1, now, now
		same(t, "compute resource", got, want)
		w.reopen(t)
		same(t, "after a restart", w.get(t, ctx, "gpu1"), want)
		if r := w.get(t, ctx, "k1"); r.Children != 4 || r.PlatformID != "p1" {
			t.Errorf("cloud = %+v, want 4 children and its platform", r)
		}
		r, err := w.Create(ctx, inventory.Resource{Type: "security", Attributes: map[string]any{"security_type": "waf"}})
		must(t, err)
		if !strings.HasPrefix(r.ID, "res_") {
			t.Errorf("ID of a resource without one = %s", r.ID)
		}
		_, err = w.Create(ctx, platform("p1", ""))
		wantKind(t, "taken ID", err, fault.Exists)
	})
}

func TestCreateRejects(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.create(t, ctx, platform("p1", ""), compute("gpu0", ""))
		with := func(r inventory.Resource, change func(r *inventory.Resource)) inventory.Resource {
			change(&r)
			return r
		}
		attr := func(r inventory.Resource, name string, v any) inventory.Resource { r.Attributes[name] = v; return r }
		many := map[string]string{}
		for i := range 65 {
			many[fmt.Sprint("l", i)] = ""
		}
		deep := platform("x", "")
		deep.Attributes["extra"] = map[string]any{"a": strings.Repeat("x", 1025), "b": 1.0}
		for _, x := range []struct {
			what  string
			in    inventory.Resource
			paths []string
		}{
			{"nothing", inventory.Resource{}, []string{"resource.type"}},
			{"unknown type", inventory.Resource{ID: "x", Type: "toaster"}, []string{"resource.type"}},
			{"type of the view", inventory.Resource{ID: "x", Type: "center"}, []string{"resource.type"}},
			{"ID of the view", with(platform("node:a:b", ""), func(*inventory.Resource) {}), []string{"resource.resource_id"}},
			{"IDs", with(platform("a b", "p 1"), func(r *inventory.Resource) { r.PlatformID, r.CenterID, r.TenantID = "?", "?", "?" }),
				[]string{"resource.resource_id", "resource.parent_id", "resource.platform_id", "resource.ai_center_id", "resource.tenant_id"}},
			{"texts", with(platform("x", ""), func(r *inventory.Resource) {
				r.Name, r.Region, r.Provider, r.State = strings.Repeat("n", 128), strings.Repeat("r", 64), "a\x00", 6
			}), []string{"resource.name", "resource.region", "resource.service_provider", "resource.state"}},
			{"labels", with(platform("x", ""), func(r *inventory.Resource) { r.Labels = map[string]string{"a=b": "", "ok": strings.Repeat("v", 128)} }), []string{"resource.labels", "resource.labels.ok"}},
			{"too many labels", with(platform("x", ""), func(r *inventory.Resource) { r.Labels = many }), []string{"resource.labels"}},
			{"required members", inventory.Resource{ID: "x", Type: "network"}, []string{"resource.region", "resource.service_provider", "resource.attributes.network_type", "resource.attributes.specification"}},
			{"unknown attribute", attr(platform("x", ""), "colour", "red"), []string{"resource.attributes.colour"}},
			{"no choice", attr(attr(platform("x", ""), "level", "galactic"), "managed_compute_types", []any{"general", "general", "analog"}),
				[]string{"resource.attributes.level", "resource.attributes.managed_compute_types[1]", "resource.attributes.managed_compute_types[2]"}},
			{"wrong kinds", attr(attr(compute("x", ""), "count", 1.5), "chip_model", 800.0), []string{"resource.attributes.chip_model", "resource.attributes.count"}},
			{"out of range", attr(attr(compute("x", ""), "count", 0.0), "performance", map[string]any{"fp16": -1.0, "fp12": 1.0}),
				[]string{"resource.attributes.count", "resource.attributes.performance.fp12", "resource.attributes.performance.fp16"}},
			{"too long and not text", deep, []string{"resource.attributes.extra.a", "resource.attributes.extra.b"}},
			{"empty list", attr(node("x", ""), "available_resources", []any{}), []string{"resource.attributes.available_resources"}},
			{"pattern", attr(platform("x", ""), "endpoint", "ftp://x"), []string{"resource.attributes.endpoint"}},
			{"zero byte", attr(platform("x", ""), "contact", "a\x00"), []string{"resource.attributes.contact"}},
			{"large", attr(platform("x", ""), "contact", strings.Repeat("x", 65<<10)), []string{"resource.attributes"}},
			{"no such owners", with(compute("x", "nope"), func(r *inventory.Resource) {}), []string{"resource.parent_id"}},
			{"no such platform and center", with(compute("x", ""), func(r *inventory.Resource) { r.PlatformID, r.CenterID = "gpu0", "c9" }), []string{"resource.platform_id", "resource.ai_center_id"}},
			{"no such node", compute("x", "node:c1:a"), []string{"resource.parent_id"}},
			{"no such center", compute("x", "center:c1"), []string{"resource.parent_id"}},
			{"wrong kind of parent", platform("x", "gpu0"), []string{"resource.parent_id"}},
			{"its own parent", compute("x", "x"), []string{"resource.parent_id"}},
		} {
			_, err := w.Create(ctx, x.in)
			wantPaths(t, x.what, err, x.paths...)
		}
		same(t, "resources after refusals", w.ids(t, ctx, inventory.Filter{}), []string{"gpu0", "p1"})
		_, err := w.Create(t.Context(), platform("x", ""))
		wantKind(t, "nobody calls", err, fault.Denied)
	})
}

func TestUpdate(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.create(t, ctx, platform("p1", ""), cloud("k1", "p1"))
		r := w.get(t, ctx, "k1")
		stale := r
		w.clock.advance(time.Second)
		r.Name, r.State, r.Labels = "Other", inventory.Available, map[string]string{"a": "1"}
		got, err := w.Update(ctx, r)
		must(t, err)
		want := r
		want.Version, want.UpdatedAt = 2, w.clock.now().UTC()
		same(t, "updated", got, want)
		same(t, "found by its label", w.ids(t, ctx, inventory.Filter{Labels: []string{"a=1"}}), []string{"k1"})

		_, err = w.Update(ctx, stale)
		wantKind(t, "stale version", err, fault.Conflict)
		stale.Version = 0
		_, err = w.Update(ctx, stale)
		wantPaths(t, "no version", err, "resource.version")
		w.clock.advance(time.Second)
		again, err := w.Update(ctx, got)
		must(t, err)
		same(t, "the same again", again, got)

		got.Type = "platform"
		_, err = w.Update(ctx, got)
		wantPaths(t, "another type", err, "resource.attributes.level", "resource.attributes.managed_compute_types", "resource.attributes.cloud_platform_type")
		missing := cloud("nope", "")
		missing.Version = 1
		_, err = w.Update(ctx, missing)
		wantKind(t, "no such resource", err, fault.NotFound)

		// Retired ends: only registered follows.
		r = again
		r.State, r.Labels = inventory.Retired, nil
		r, err = w.Update(ctx, r)
		must(t, err)
		r.State = inventory.Available
		_, err = w.Update(ctx, r)
		wantPaths(t, "out of retirement", err, "resource.state")
		r.State = inventory.Registered
		_, err = w.Update(ctx, r)
		must(t, err)
		same(t, "found by the label it had", len(w.ids(t, ctx, inventory.Filter{Labels: []string{"a"}})), 0)
	})
}

// Owners follow the parent, also for what is further below and what hangs on
// centers and nodes; owners that were named stay.
func TestMove(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c1", "north", machine("m1", 1))
		w.join(t, "c2", "south")
		named := compute("named", "n1")
		named.PlatformID = "p9"
		w.create(t, ctx, platform("p1", ""), platform("p2", ""), platform("p9", ""), cloud("k1", "p1"), node("n1", "k1"), compute("g1", "n1"), compute("g2", "g1"), named)
		w.create(t, ctx, compute("on-node", "node:c1:m1"), compute("below-on-node", "on-node"), storage("on-center", "center:c1"))
		owners := func(what string, want map[string]string) {
			t.Helper()
			got := map[string]string{}
			for id := range want {
				r := w.get(t, ctx, id)
				got[id] = r.ParentID + " " + r.PlatformID + " " + r.CenterID
			}
			same(t, what, got, want)
		}
		owners("at first", map[string]string{
			"n1": "k1 p1 ", "g2": "g1 p1 ", "named": "n1 p9 ", "center:c1": "  c1", "node:c1:m1": "center:c1  c1", "on-node": "node:c1:m1  c1", "below-on-node": "on-node  c1", "on-center": "center:c1  c1",
		})
		_, err := w.Move(ctx, "k1", "p2")
		must(t, err)
		_, err = w.Move(ctx, "center:c1", "k1")
		must(t, err)
		owners("after moving cloud and center", map[string]string{
			"k1": "p2 p2 ", "n1": "k1 p2 ", "g1": "n1 p2 ", "g2": "g1 p2 ", "named": "n1 p9 ", "center:c1": "k1 p2 c1", "node:c1:m1": "center:c1 p2 c1",
			"on-node": "node:c1:m1 p2 c1", "below-on-node": "on-node p2 c1", "on-center": "center:c1 p2 c1",
		})
		same(t, "below the cloud", w.ids(t, ctx, inventory.Filter{ParentID: "k1"}), []string{"n1", "center:c1"})
		same(t, "of the platform", w.ids(t, ctx, inventory.Filter{PlatformID: "p2"}), []string{"below-on-node", "g1", "g2", "k1", "n1", "on-center", "on-node", "center:c1", "node:c1:m1"})
		_, err = w.Move(ctx, "g1", "center:c2")
		must(t, err)
		owners("to another center", map[string]string{"g1": "center:c2  c2", "g2": "g1  c2"})
		_, err = w.Move(ctx, "k1", "")
		must(t, err)
		owners("to the top", map[string]string{"k1": "  ", "n1": "k1  ", "on-node": "node:c1:m1  c1", "center:c1": "k1  c1", "named": "n1 p9 "})

		// Replacing with what was read moves too.
		r := w.get(t, ctx, "n1")
		r.ParentID = "p1"
		_, err = w.Update(ctx, r)
		must(t, err)
		owners("moved by an update", map[string]string{"n1": "p1 p1 ", "named": "n1 p9 "})

		for what, x := range map[string][2]string{"below itself": {"g1", "g2"}, "no such place": {"g1", "nope"}, "wrong kind": {"p1", "k1"}, "center below compute": {"center:c1", "g1"}, "a node": {"node:c1:m1", "k1"}, "bad": {"g1", "a b"}} {
			_, err := w.Move(ctx, x[0], x[1])
			wantKind(t, what, err, fault.Invalid)
		}
		_, err = w.Move(ctx, "nope", "p1")
		wantKind(t, "no such resource", err, fault.NotFound)
		_, err = w.Move(ctx, "center:c9", "p1")
		wantKind(t, "no such center", err, fault.NotFound)
		_, err = w.Move(member(ctx, "t1"), "center:c1", "")
		wantKind(t, "a center by a member", err, fault.Denied)
	})
}

func TestDepth(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		parent := ""
		for i := range 16 {
			id := fmt.Sprint("p", i)
			w.create(t, ctx, platform(id, parent))
			parent = id
		}
		_, err := w.Create(ctx, platform("p16", parent))
		wantPaths(t, "level 17", err, "resource.parent_id")
	})
}

func TestDelete(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c1", "north")
		elsewhere := cloud("k2", "")
		elsewhere.PlatformID = "p1"
		w.create(t, ctx, platform("p1", ""), cloud("k1", "p1"), elsewhere)
		wantKind(t, "with something below it", w.Delete(ctx, "p1", 0), fault.Conflict)
		_, err := w.Move(ctx, "center:c1", "k1")
		must(t, err)
		wantKind(t, "with a center below it", w.Delete(ctx, "k1", 0), fault.Conflict)
		_, err = w.Move(ctx, "center:c1", "")
		must(t, err)
		wantKind(t, "another version", w.Delete(ctx, "k1", 7), fault.Conflict)
		must(t, w.Delete(ctx, "k1", 1))
		wantKind(t, "owner of others", w.Delete(ctx, "p1", 0), fault.Conflict)
		must(t, w.Delete(ctx, "k2", 0))
		must(t, w.Delete(ctx, "p1", 0))
		wantKind(t, "twice", w.Delete(ctx, "p1", 0), fault.NotFound)
		wantKind(t, "a center", w.Delete(ctx, "center:c1", 0), fault.Invalid)
		wantKind(t, "not an ID", w.Delete(ctx, "a b", 0), fault.Invalid)
	})
}

func TestTenants(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		t1, t2 := member(ctx, "t1"), member(ctx, "t2")
		mine := cloud("mine", "p1")
		mine.TenantID = "t1"
		w.create(t, ctx, platform("p1", ""), mine)
		w.create(t, t1, compute("g1", "mine")) // whose it is follows from who registers it
		if r := w.get(t, t1, "g1"); r.TenantID != "t1" {
			t.Errorf("resource of a member = %+v", r)
		}
		child := compute("g2", "mine")
		w.create(t, ctx, child)
		same(t, "what t1 sees", w.ids(t, t1, inventory.Filter{}), []string{"g1", "g2", "mine", "p1"})
		same(t, "what t2 sees", w.ids(t, t2, inventory.Filter{}), []string{"p1"})
		same(t, "what nobody sees", w.ids(t, t.Context(), inventory.Filter{}), []string{"p1"})
		same(t, "children as t2 sees them", w.get(t, t2, "p1").Children, int64(0))
		same(t, "children as t1 sees them", w.get(t, t1, "p1").Children, int64(1))

		for what, err := range map[string]error{
			"get":    func() error { _, err := w.Get(t2, "mine"); return err }(),
			"update": func() error { r := w.get(t, ctx, "mine"); r.TenantID = "t2"; _, err := w.Update(t2, r); return err }(),
			"delete": w.Delete(t2, "g1", 0),
			"move":   func() error { _, err := w.Move(t2, "g1", ""); return err }(),
			"tree":   func() error { _, err := w.GetTree(t2, "mine", 0, 0); return err }(),
		} {
			wantKind(t, what+" of another tenant", err, fault.NotFound)
		}
		_, err := w.Create(t2, compute("g3", "mine"))
		wantPaths(t, "below another tenant's", err, "resource.parent_id")
		_, err = w.Create(t2, compute("g1", ""))
		wantKind(t, "ID of another tenant's", err, fault.Exists)
		other := compute("g4", "")
		other.TenantID = "t1"
		_, err = w.Create(t2, other)
		wantPaths(t, "for another tenant", err, "resource.tenant_id")
		other.TenantID, other.ParentID = "t2", "mine"
		_, err = w.Create(ctx, other)
		wantPaths(t, "of another tenant than the parent", err, "resource.tenant_id")
		p := w.get(t, t1, "p1")
		p.TenantID = "t1"
		_, err = w.Update(t1, p)
		wantPaths(t, "what is everyone's", err, "resource.resource_id")
		wantKind(t, "deleting what is everyone's", w.Delete(t1, "p1", 0), fault.Denied)
		must(t, w.Delete(t1, "g1", 0))
	})
}
