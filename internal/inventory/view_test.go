package inventory_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/registry"
)

func TestView(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c1", "north", machine("m1", 1), machine("m2", 2), machine("m 3:x", 3))
		w.join(t, "c2", "south", machine("m1", 1))
		w.join(t, "c3", "south")
		w.create(t, ctx, platform("p1", ""), compute("g1", "node:c1:m 3:x"))
		now := w.clock.now().UTC()
		same(t, "node", w.get(t, ctx, "node:c1:m 3:x"), inventory.Resource{
			ID: "node:c1:m 3:x", Type: "node", Name: "m 3:x", ParentID: "center:c1", CenterID: "c1", Region: "north", State: inventory.Maintenance,
			Attributes: map[string]any{
				"architecture": "amd64", "operating_system": "Ubuntu 24.04 LTS",
				"available_resources": []any{
					map[string]any{"kind": "cpu", "scale": 63.5, "unit": "cores"}, map[string]any{"kind": "gpu", "scale": 8.0}, map[string]any{"kind": "memory", "scale": float64(1 << 39), "unit": "bytes"},
				},
				"chips": []any{map[string]any{"chip_type": "GPU", "chip_model": "H800", "vendor": "NVIDIA", "count": 8.0, "memory_bytes": float64(80 << 30)}},
			},
			Labels: map[string]string{"rack": "r1"}, CreatedAt: now, UpdatedAt: now, Children: 1,
		})
		k := w.get(t, ctx, "center:c1")
		if k.State != inventory.Available || k.Children != 3 || k.Attributes["nodes"] != 3.0 || k.Labels["tier"] != "gold" || k.Region != "north" {
			t.Errorf("center = %+v", k)
		}
		for _, id := range []string{"center:c9", "node:c1:nope", "node:c9:m1"} {
			_, err := w.Get(ctx, id)
			wantKind(t, id, err, fault.NotFound)
		}
		for _, id := range []string{"center:", "node:c1", "node:c1:", "node::m1", "center:a b", "other:c1"} {
			_, err := w.Get(ctx, id)
			wantKind(t, id, err, fault.Invalid)
		}
		for _, x := range []struct {
			f    inventory.Filter
			want string
		}{
			{inventory.Filter{}, "[g1 p1 center:c1 center:c2 center:c3 node:c1:m 3:x node:c1:m1 node:c1:m2 node:c2:m1]"},
			{inventory.Filter{Type: "node"}, "[node:c1:m 3:x node:c1:m1 node:c1:m2 node:c2:m1]"},
			{inventory.Filter{Type: "center", Region: "south"}, "[center:c2 center:c3]"},
			{inventory.Filter{Region: "south"}, "[center:c2 center:c3 node:c2:m1]"},
			{inventory.Filter{ParentID: "center:c1"}, "[node:c1:m 3:x node:c1:m1 node:c1:m2]"},
			{inventory.Filter{ParentID: "center:c1", CenterID: "c2"}, "[]"},
			{inventory.Filter{ParentID: "node:c1:m 3:x"}, "[g1]"},
			{inventory.Filter{CenterID: "c1"}, "[g1 center:c1 node:c1:m 3:x node:c1:m1 node:c1:m2]"},
			{inventory.Filter{CenterID: "c9"}, "[]"},
			{inventory.Filter{State: inventory.Available}, "[center:c1 center:c2 center:c3 node:c1:m1 node:c2:m1]"},
			{inventory.Filter{State: inventory.Registered}, "[g1 p1]"},
			{inventory.Filter{Labels: []string{"rack=r1", "rack"}}, "[node:c1:m 3:x node:c1:m1 node:c1:m2 node:c2:m1]"},
			{inventory.Filter{Labels: []string{"tier=gold"}}, "[center:c1 center:c2 center:c3]"},
			{inventory.Filter{Type: "compute", Labels: []string{"tier"}}, "[]"},
			{inventory.Filter{Attributes: []string{"chip_type=GPU"}}, "[g1]"},
			{inventory.Filter{Attributes: []string{"chip_type", "performance.fp16=989000"}}, "[g1]"},
			{inventory.Filter{Attributes: []string{"performance"}}, "[g1]"},
			{inventory.Filter{Attributes: []string{"performance=989000"}}, "[]"},
			{inventory.Filter{Attributes: []string{"chip_type=gpu"}}, "[]"},
			{inventory.Filter{Type: "node", Attributes: []string{"chips.chip_model=H800", "architecture=amd64"}}, "[node:c1:m 3:x node:c1:m1 node:c1:m2 node:c2:m1]"},
			{inventory.Filter{Attributes: []string{"nodes=3"}}, "[center:c1]"},
		} {
			same(t, fmt.Sprintf("%+v", x.f), fmt.Sprint(w.ids(t, ctx, x.f)), x.want)
		}
		for what, f := range map[string]inventory.Filter{
			"type": {Type: "x"}, "parent": {ParentID: "a b"}, "platform": {PlatformID: "a:b"}, "center": {CenterID: "?"}, "region": {Region: "\x00"}, "state": {State: 6}, "label": {Labels: []string{"=a"}}, "labels": {Labels: make([]string, 9)},
			"attribute": {Attributes: []string{"=GPU"}}, "attribute's member": {Attributes: []string{"a..b=1"}}, "attributes": {Attributes: make([]string, 9)},
		} {
			_, _, err := w.List(ctx, f, 0, "")
			wantKind(t, "filter by "+what, err, fault.Invalid)
		}
		for _, token := range []string{"junk", core.PageToken("x", "y"), core.PageToken("r"), core.PageToken("c", "junk"), core.PageToken("n", "junk")} {
			_, _, err := w.List(ctx, inventory.Filter{}, 0, token)
			wantKind(t, "token "+token, err, fault.Invalid)
		}
		_, _, err := w.List(ctx, inventory.Filter{}, 1001, "")
		wantKind(t, "page size", err, fault.Invalid)
	})
}

// TestListAttributesPages: what has an attribute is found however far apart.
func TestListAttributesPages(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		var all []inventory.Resource
		for i := range 2500 {
			r := network(fmt.Sprintf("n%04d", i), "")
			if i%500 == 7 {
				r.Attributes["specification"] = "rare"
			}
			all = append(all, r)
		}
		for part := range slices.Chunk(all, 1000) {
			_, applied, err := w.Apply(ctx, part, false)
			must(t, err)
			if !applied {
				t.Fatal("the batch was refused")
			}
		}
		same(t, "rare ones", fmt.Sprint(w.ids(t, ctx, inventory.Filter{Attributes: []string{"specification=rare"}})), "[n0007 n0507 n1007 n1507 n2007]")
	})
}

// What the view shows of centers and nodes is what the schemas of their types
// allow: whoever reads one can rely on it.
func TestViewMatchesSchemas(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c1", "north", machine("m1", 1), machine("m2", 2))
		rows, _, err := w.List(ctx, inventory.Filter{}, 0, "")
		must(t, err)
		if len(rows) != 3 {
			t.Fatalf("%d resources, want a center and two nodes", len(rows))
		}
		for _, r := range rows {
			if err := inventory.CheckAttributes(r.Type, r.Attributes); err != nil {
				t.Errorf("%s: %v", r.ID, err)
			}
		}
	})
}

// A node that goes and comes back has below it what was there before.
func TestNodeGoesAndReturns(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c1", "north", machine("m1", 1))
		w.create(t, ctx, compute("g1", "node:c1:m1"))
		w.join(t, "c1", "north")
		_, err := w.Get(ctx, "node:c1:m1")
		wantKind(t, "node that is gone", err, fault.NotFound)
		r := w.get(t, ctx, "g1")
		r.Name = "still here"
		r, err = w.Update(ctx, r)
		must(t, err)
		if r.ParentID != "node:c1:m1" || r.CenterID != "c1" {
			t.Errorf("what was below it = %+v", r)
		}
		_, err = w.Create(ctx, compute("g2", "node:c1:m1"))
		wantPaths(t, "below a node that is gone", err, "resource.parent_id")
		w.join(t, "c1", "north", machine("m1", 1))
		same(t, "below the node again", w.get(t, ctx, "node:c1:m1").Children, int64(1))
	})
}

func sketch(t *inventory.Tree) string {
	s := "*"
	if t.Resource != nil {
		s = t.Resource.ID
	}
	for i, c := range t.Children {
		s += map[bool]string{true: "(", false: " "}[i == 0] + sketch(c)
	}
	if len(t.Children) > 0 {
		s += ")"
	}
	if t.More {
		s += "+"
	}
	return s
}

func TestTree(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c1", "north", machine("m1", 1), machine("m2", 1), machine("m3", 1))
		w.join(t, "c2", "north")
		w.create(t, ctx, platform("p1", ""), cloud("k1", "p1"), node("n1", "k1"), compute("g1", "n1"), compute("g2", "n1"), compute("alone", ""), compute("on-m2", "node:c1:m2"))
		_, err := w.Move(ctx, "center:c1", "k1")
		must(t, err)
		for _, x := range []struct {
			id           string
			depth, width int32
			want         string
		}{
			{"", 1, 0, "*(alone p1+ center:c2)"},
			{"", 0, 0, "*(alone p1(k1+) center:c2)"},
			{"", 8, 0, "*(alone p1(k1(n1(g1 g2) center:c1(node:c1:m1 node:c1:m2(on-m2) node:c1:m3))) center:c2)"},
			{"p1", 4, 2, "p1(k1(n1(g1 g2) center:c1(node:c1:m1 node:c1:m2(on-m2))+))"},
			{"node:c1:m1", 3, 0, "node:c1:m1"},
			{"n1", 1, 1, "n1(g1)+"},
		} {
			got, err := w.GetTree(ctx, x.id, x.depth, x.width)
			must(t, err)
			same(t, fmt.Sprintf("tree of %q, depth %d, width %d", x.id, x.depth, x.width), sketch(got), x.want)
		}
		_, err = w.GetTree(ctx, "nope", 0, 0)
		wantKind(t, "no such resource", err, fault.NotFound)
		_, err = w.GetTree(ctx, "a b", 9, 201)
		wantPaths(t, "limits", err, "resource_id", "depth", "width")
	})
}

// A filter that few nodes pass gives short pages, and all of them in the end.
func TestSparseFilter(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c1", "north")
		w.join(t, "c2", "south", machine("found", 1))
		must(t, w.d.Tx(ctx, func(tx *db.Tx) error { return w.reg.SyncNodesTx(ctx, tx, "c1", true, machines(500), nil) }))
		got, pages, token := []string{}, 0, ""
		for {
			rows, next, err := w.List(ctx, inventory.Filter{Type: "node", Region: "south"}, 2, token)
			must(t, err)
			for _, r := range rows {
				got = append(got, r.ID)
			}
			if pages++; next == "" {
				break
			}
			token = next
		}
		same(t, "nodes of the other region", got, []string{"node:c2:found"})
		if pages < 2 {
			t.Errorf("%d pages, want the first to give up early", pages)
		}
	})
}

func TestStatesOfCenters(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.join(t, "c1", "north")
		k, err := w.reg.GetCenter(ctx, "c1")
		must(t, err)
		k.Drained = true
		_, err = w.reg.UpdateCenter(ctx, k)
		must(t, err)
		same(t, "drained", w.get(t, ctx, "center:c1").State, inventory.Maintenance)
		k.Drained = false
		_, err = w.reg.UpdateCenter(ctx, k)
		must(t, err)
		w.clock.advance(2 * registry.SeenWithin)
		same(t, "not heard of", w.get(t, ctx, "center:c1").State, inventory.Unavailable)
	})
}
