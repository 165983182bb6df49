package topology_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/topology"
)

func links(rows []topology.Connection) string {
	var out []string
	for _, l := range rows {
		text := l.LinkID() + ": " + l.Link.From + " = " + l.Link.To
		if l.Dangling {
			text += " dangling"
		}
		out = append(out, text)
	}
	return strings.Join(out, "\n")
}

// Links are declared, replaced and deleted, once each however often it is
// asked for, and history knows.
func TestLinks(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.build(t, ctx)
		w.sync(t)
		start := w.clock.now()
		w.clock.advance(time.Second)
		l := topology.DeclaredLink{ID: "l1", From: "center:gz", To: "center:nx", Kind: topology.DedicatedNetwork, Bandwidth: 1e10, Latency: 1200, Provider: "carrier"}
		got, err := w.PutLink(ctx, l)
		must(t, err)
		if got.LinkID() != "l1" || got.Name != "l1" || got.Link.Version != 1 || got.Link.Source != topology.Declared || !got.Added.Equal(w.clock.now()) {
			t.Errorf("declared: %+v, %+v", got.Item, got.Link)
		}
		w.clock.advance(time.Second)
		again, err := w.PutLink(ctx, l)
		must(t, err)
		if again.Link.Version != 1 || !again.Since.Equal(got.Since) {
			t.Errorf("declared again: %+v", again.Link)
		}
		l.Bandwidth, l.Version = 2e10, 7
		_, err = w.PutLink(ctx, l)
		wantKind(t, err, fault.Conflict)
		l.Version = 1
		changed, err := w.PutLink(ctx, l)
		must(t, err)
		if changed.Link.Version != 2 || !changed.Added.Equal(got.Added) || changed.Since.Equal(got.Since) {
			t.Errorf("replaced: %+v", changed.Link)
		}
		if n := w.sync(t); n != 0 {
			t.Errorf("the watch changed %d things", n)
		}
		rows, next, err := w.Links(ctx, topology.LinkFilter{}, 0, "")
		must(t, err)
		wantText(t, links(rows), `
l1: center:gz = center:nx
path:gz:platform: center:gz = network
path:nx:platform: center:nx = network
path:sh:platform: center:sh = network
resource:line: center:sh = center:gz`)
		if next != "" {
			t.Errorf("next page %q", next)
		}
		rows, next, err = w.Links(ctx, topology.LinkFilter{VertexID: "center:gz"}, 2, "")
		must(t, err)
		wantText(t, links(rows), "l1: center:gz = center:nx\npath:gz:platform: center:gz = network")
		rows, _, err = w.Links(ctx, topology.LinkFilter{VertexID: "center:gz"}, 2, next)
		must(t, err)
		wantText(t, links(rows), "resource:line: center:sh = center:gz")
		rows, _, err = w.Links(ctx, topology.LinkFilter{Source: topology.Declared, At: start}, 0, "")
		must(t, err)
		wantText(t, links(rows), "")

		t.Run("what cannot be", func(t *testing.T) {
			for field, bad := range map[string]topology.DeclaredLink{
				"link.link_id":                   {ID: "a b", From: "center:gz", To: "network", Kind: topology.Internet},
				"link.from_id":                   {ID: "x", From: "center:none", To: "network", Kind: topology.Internet},
				"link.to_id":                     {ID: "x", From: "network", To: "network", Kind: topology.Internet},
				"link.kind":                      {ID: "x", From: "center:gz", To: "network", Kind: topology.Path},
				"link.bandwidth_bits_per_second": {ID: "x", From: "center:gz", To: "network", Kind: topology.Internet, Bandwidth: -1},
				"link.latency_us":                {ID: "x", From: "center:gz", To: "network", Kind: topology.Internet, Latency: 1 << 60},
				"link.name":                      {ID: "x", Name: strings.Repeat("x", 200), From: "center:gz", To: "network", Kind: topology.Internet},
			} {
				_, err := w.PutLink(ctx, bad)
				wantKind(t, err, fault.Invalid)
				if f := fault.FieldsOf(err); len(f) != 1 || f[0].Path != field {
					t.Errorf("got %v, want a violation of %s", err, field)
				}
			}
			_, err := w.PutLink(ctx, topology.DeclaredLink{ID: "x", From: "card:gz/n1/gpu/0", To: "network", Kind: topology.Internet})
			wantKind(t, err, fault.Invalid)
		})
		t.Run("an end that goes", func(t *testing.T) {
			must(t, w.reg.DeleteCenter(ctx, "nx"))
			w.sync(t)
			rows, _, err := w.Links(ctx, topology.LinkFilter{VertexID: "center:nx"}, 0, "")
			must(t, err)
			wantText(t, links(rows), "l1: center:gz = center:nx dangling")
			got, err := w.Link(ctx, "l1")
			if err != nil || !got.Dangling {
				t.Errorf("got %+v, %v", got, err)
			}
		})
		wantKind(t, w.DeleteLink(ctx, "l1", 1), fault.Conflict)
		must(t, w.DeleteLink(ctx, "l1", 2))
		wantKind(t, w.DeleteLink(ctx, "l1", 0), fault.NotFound)
		wantKind(t, w.DeleteLink(ctx, "path:gz:platform", 0), fault.Invalid)
		_, err = w.Link(ctx, "l1")
		wantKind(t, err, fault.NotFound)
		all, _, _, err := w.Changes(ctx, topology.ChangeFilter{ItemID: "link:l1"}, 0, "")
		must(t, err)
		wantText(t, changes(all, start), "1s added link:l1\n2s changed link:l1 [bandwidth_bits_per_second version]\n2.000002s removed link:l1")
		w.whole(t)
	})
}

// Many who declare links at once all succeed, and none is lost.
func TestLinksAtOnce(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.build(t, ctx)
		w.sync(t)
		var wg sync.WaitGroup
		for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
			wg.Go(func() {
				for kind := topology.LeasedLine; kind < topology.OtherKind; kind++ {
					if _, err := w.PutLink(ctx, topology.DeclaredLink{ID: id, From: "center:gz", To: "network", Kind: kind}); err != nil {
						t.Errorf("link %s: %v", id, err)
					}
				}
			})
		}
		wg.Wait()
		rows, _, err := w.Links(ctx, topology.LinkFilter{Source: topology.Declared}, 0, "")
		must(t, err)
		if len(rows) != 6 {
			t.Errorf("%d links", len(rows))
		}
		for _, r := range rows {
			if r.Link.Version != 5 || r.Link.Kind != topology.ClusterFabric {
				t.Errorf("link %s: %+v", r.LinkID(), r.Link)
			}
		}
		w.whole(t)
	})
}

// What belongs to a tenant is there for that tenant and for those who see all,
// and for nobody else: in the graph, its counts, links, changes and diffs.
func TestTenants(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.build(t, ctx)
		w.sync(t)
		start := w.clock.now()
		w.clock.advance(time.Second)
		w.resource(t, ctx, inventory.Resource{ID: "cloud", Type: "cloud", Name: "Cloud", TenantID: "acme", Provider: "p", Attributes: map[string]any{"cloud_platform_type": "public"}})
		w.resource(t, ctx, inventory.Resource{ID: "net", Type: "network", Name: "Net", TenantID: "acme", ParentID: "cloud", Region: "r", Provider: "p", State: inventory.Unavailable,
			Attributes: map[string]any{"network_type": "internet", "specification": "x", "endpoints": []any{"center:gz", "cloud", "center:sh"}}})
		w.sync(t)
		acme, other := member(ctx, "acme"), member(ctx, "other")
		own, err := w.PutLink(acme, topology.DeclaredLink{ID: "mine", From: "cloud", To: "center:gz", Kind: topology.Internet})
		must(t, err)
		if own.TenantID != "acme" {
			t.Errorf("a link that ends at something of acme belongs to %q", own.TenantID)
		}
		_, err = w.PutLink(acme, topology.DeclaredLink{ID: "ours", From: "center:nx", To: "center:gz", Kind: topology.Internet})
		wantKind(t, err, fault.Denied)
		_, err = w.PutLink(other, topology.DeclaredLink{ID: "x", From: "cloud", To: "center:gz", Kind: topology.Internet, TenantID: "other"})
		wantKind(t, err, fault.Invalid) // there is no such vertex
		_, err = w.PutLink(ctx, topology.DeclaredLink{ID: "x", From: "cloud", To: "center:gz", Kind: topology.Internet, TenantID: "other"})
		wantKind(t, err, fault.Invalid)
		wantKind(t, w.DeleteLink(other, "mine", 0), fault.NotFound)

		for name, who := range map[string]struct {
			ctx  context.Context
			sees bool
		}{"operator": {ctx, true}, "acme": {acme, true}, "other": {other, false}, "nobody": {t.Context(), false}} {
			tree := w.tree(t, who.ctx, "", time.Time{}, 3, 0)
			if strings.Contains(tree, "cloud") != who.sees || strings.Contains(tree, "net ") != who.sees || strings.Contains(tree, "mine") != who.sees {
				t.Errorf("%s sees\n%s", name, tree)
			}
			rows, _, _, err := w.Changes(who.ctx, topology.ChangeFilter{Span: topology.Span{From: start}}, 0, "")
			must(t, err)
			d, err := w.Diff(who.ctx, topology.Span{From: start}, "", 0, "")
			must(t, err)
			n, err := w.Density(who.ctx, topology.Span{From: start}, 1, "")
			must(t, err)
			_, verr := w.Vertex(who.ctx, "cloud", time.Time{})
			if want := map[bool]int{true: 6}[who.sees]; len(rows) != want || len(d.Changes) != want || n.Added[0] != int64(want) || (verr == nil) != who.sees {
				t.Errorf("%s: %d changes, %d differences, %d counted, %v", name, len(rows), len(d.Changes), n.Added[0], verr)
			}
			view, err := w.View(who.ctx, time.Time{}, "")
			must(t, err)
			if len(view.Links) != map[bool]int{true: 8, false: 4}[who.sees] {
				t.Errorf("%s sees %d links", name, len(view.Links))
			}
		}
	})
}
