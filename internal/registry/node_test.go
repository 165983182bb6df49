package registry_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"

	"connectrpc.com/connect"
)

// machine is a node of 64 cores with 8 accelerators.
func machine(name string) *adapterv1.Node {
	return &adapterv1.Node{
		Name: name, State: adapterv1.NodeState_NODE_STATE_READY, Architecture: "amd64", OperatingSystem: "Ubuntu 24.04.1 LTS",
		Capacity:     map[string]int64{core.CPU: 64000, core.Memory: 512 << 30, "gpu": 8, "hugepages-1Gi": 0},
		Allocatable:  map[string]int64{core.CPU: 63500, core.Memory: 500 << 30, "gpu": 8},
		Accelerators: []*adapterv1.Accelerator{{Vendor: "NVIDIA", Model: "H800", Count: 8, MemoryBytes: 80 << 30, Resource: "gpu"}},
		Labels:       map[string]string{"kubernetes.io/os": "linux", "rack": "r1"},
	}
}

func machines(n int) []*adapterv1.Node {
	out := make([]*adapterv1.Node, n)
	for i := range out {
		out[i] = machine(fmt.Sprintf("node-%04d", i))
	}
	return out
}

func (w *world) sync(t *testing.T, center string, whole bool, nodes []*adapterv1.Node, gone ...string) {
	t.Helper()
	w.tx(t, func(tx *db.Tx) error { return w.SyncNodesTx(t.Context(), tx, center, whole, nodes, gone) })
}

func (w *world) nodes(t *testing.T, f registry.NodeFilter) (out []registry.Node) {
	t.Helper()
	token := ""
	for {
		rows, next, err := w.ListNodes(t.Context(), f, 3, token)
		must(t, err)
		if len(rows) > 3 {
			t.Fatalf("page of 3 has %d rows", len(rows))
		}
		if out, token = append(out, rows...), next; token == "" {
			return out
		}
	}
}

func (w *world) nodeNames(t *testing.T, f registry.NodeFilter) (out []string) {
	t.Helper()
	for _, n := range w.nodes(t, f) {
		out = append(out, n.CenterID+"/"+n.Name)
	}
	return out
}

func TestSyncNodes(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.declare(t, site("c1"))
		w.declare(t, site("c2"))
		if k := w.center(t, "c1"); k.Nodes != nil {
			t.Errorf("nodes of a center that reported none: %+v", k.Nodes)
		}
		a, b, c := machine("a"), machine("b"), machine("c")
		b.State, b.Reason = adapterv1.NodeState_NODE_STATE_NOT_READY, "kubelet\nstopped posting\x00 status\xff"
		b.Accelerators[0].Model, b.Labels["rack"] = "A100", "r2"
		c.State, c.Accelerators = adapterv1.NodeState_NODE_STATE_DRAINED, append(c.Accelerators, &adapterv1.Accelerator{Vendor: "Huawei", Model: "910B", Count: 2, Resource: "npu"})
		w.sync(t, "c1", true, []*adapterv1.Node{c, a, b})
		w.sync(t, "c2", true, []*adapterv1.Node{machine("a")})

		first := w.clock.now().UTC()
		got, err := w.GetNode(ctx, "c1", "b")
		must(t, err)
		same(t, "node", got, registry.Node{
			CenterID: "c1", Name: "b", State: registry.NodeNotReady, Reason: "kubelet stopped posting status\uFFFD", Capacity: b.Capacity, Allocatable: b.Allocatable,
			Architecture: "amd64", OS: "Ubuntu 24.04.1 LTS", Accelerators: []registry.Accelerator{{Vendor: "NVIDIA", Model: "A100", Count: 8, Memory: 80 << 30, Resource: "gpu"}},
			Labels: b.Labels, CreatedAt: first, UpdatedAt: first,
		})
		sums := func() (out []string) {
			rows, _, err := w.ListCenters(ctx, "", 0, "")
			must(t, err)
			for _, k := range rows {
				same(t, "summary of "+k.ID+" alone and in the list", *w.center(t, k.ID).Nodes, *k.Nodes)
				out = append(out, fmt.Sprintf("%s %d ready %d not %d drained of %d %v", k.ID, k.Nodes.Ready, k.Nodes.NotReady, k.Nodes.Drained, k.Nodes.Total(), k.Nodes.Accelerators))
			}
			return out
		}
		same(t, "summaries", sums(), []string{
			"c1 1 ready 1 not 1 drained of 3 [{NVIDIA A100 8 0 gpu} {NVIDIA H800 16 0 gpu} {Huawei 910B 2 0 npu}]",
			"c2 1 ready 0 not 0 drained of 1 [{NVIDIA H800 8 0 gpu}]",
		})

		for _, x := range []struct {
			f    registry.NodeFilter
			want string
		}{
			{registry.NodeFilter{}, "[c1/a c1/b c1/c c2/a]"},
			{registry.NodeFilter{CenterID: "c1"}, "[c1/a c1/b c1/c]"},
			{registry.NodeFilter{State: registry.NodeReady}, "[c1/a c2/a]"},
			{registry.NodeFilter{Model: "H800"}, "[c1/a c1/c c2/a]"},
			{registry.NodeFilter{Model: "h800"}, "[]"},
			{registry.NodeFilter{Labels: []string{"rack"}}, "[c1/a c1/b c1/c c2/a]"},
			{registry.NodeFilter{Labels: []string{"rack=r1", "kubernetes.io/os"}}, "[c1/a c1/c c2/a]"},
			{registry.NodeFilter{Labels: []string{"rack="}}, "[]"},
			{registry.NodeFilter{CenterID: "c1", State: registry.NodeDrained, Model: "910B", Labels: []string{"rack=r1"}}, "[c1/c]"},
			{registry.NodeFilter{CenterID: "c3"}, "[]"},
		} {
			same(t, fmt.Sprintf("nodes of %+v", x.f), fmt.Sprint(w.nodeNames(t, x.f)), x.want)
		}

		// Changes: b is ready and has another rack, c is gone, d is new.
		w.clock.advance(time.Second)
		b.State, b.Reason, b.Labels["rack"], b.Accelerators = adapterv1.NodeState_NODE_STATE_READY, "", "r9", nil
		w.sync(t, "c1", false, []*adapterv1.Node{machine("d"), b}, "c", "never-was")
		w.reopen(t)
		same(t, "after changes", sums(), []string{
			"c1 3 ready 0 not 0 drained of 3 [{NVIDIA H800 16 0 gpu}]",
			"c2 1 ready 0 not 0 drained of 1 [{NVIDIA H800 8 0 gpu}]",
		})
		same(t, "found by its new label", w.nodeNames(t, registry.NodeFilter{Labels: []string{"rack=r9"}}), []string{"c1/b"})
		same(t, "found by its old label and model", w.nodeNames(t, registry.NodeFilter{Labels: []string{"rack=r2"}}), w.nodeNames(t, registry.NodeFilter{Model: "A100"}))
		if n, err := w.GetNode(ctx, "c1", "b"); err != nil || !n.CreatedAt.Equal(first) || !n.UpdatedAt.Equal(w.clock.now()) || n.Reason != "" {
			t.Errorf("changed node = %+v, %v", n, err)
		}
		if n, err := w.GetNode(ctx, "c1", "a"); err != nil || !n.UpdatedAt.Equal(first) {
			t.Errorf("node that was not mentioned = %+v, %v", n, err)
		}
		_, err = w.GetNode(ctx, "c1", "c")
		wantKind(t, "node that is gone", err, fault.NotFound)

		// The whole again: what is not in it is gone.
		w.sync(t, "c1", true, []*adapterv1.Node{b})
		same(t, "after the whole", w.nodeNames(t, registry.NodeFilter{}), []string{"c1/b", "c2/a"})
		w.sync(t, "c1", true, nil)
		must(t, w.DeleteCenter(ctx, "c2"))
		same(t, "in the end", len(w.nodes(t, registry.NodeFilter{})), 0)
	})
}

// Reporting what is known already reads and does not write, also when it is
// the whole.
// Nodes are found by the pool's node on their machine, or else by what names that; a
// change of either is one.
func TestPooled(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.declare(t, site("c1"))
		w.declare(t, site("c2"))
		at := func(name, host, pool string) *adapterv1.Node {
			n := machine(name)
			n.Host, n.PoolNode = host, pool
			return n
		}
		w.sync(t, "c1", true, []*adapterv1.Node{at("a", "h1", ""), at("b", "h2", "p2"), at("c", "h3", ""), at("d", "", "")})
		w.sync(t, "c2", true, []*adapterv1.Node{at("a", "h1", "")})
		found := func(pool, hosts []string) (names string) {
			t.Helper()
			w.tx(t, func(tx *db.Tx) error {
				list, err := w.PooledTx(t.Context(), tx, pool, hosts)
				names = ""
				for _, n := range list {
					names += n.CenterID + "/" + n.Name + "=" + n.Host + n.PoolNode + " "
				}
				return err
			})
			return strings.TrimSpace(names)
		}
		many := []string{"h1", "h2", ""}
		for i := range 1000 {
			many = append(many, fmt.Sprint("other ", i))
		}
		for _, x := range []struct {
			pool, hosts []string
			want        string
		}{{nil, nil, ""}, {nil, many, "c1/a=h1 c2/a=h1"}, {[]string{"p1", "p2", ""}, many, "c1/a=h1 c1/b=h2p2 c2/a=h1"}, {nil, append(many, "h3"), "c1/a=h1 c1/c=h3 c2/a=h1"}} {
			if got := found(x.pool, x.hosts); got != x.want {
				t.Errorf("on %v and %d machines are %q, want %q", x.pool, len(x.hosts), got, x.want)
			}
		}
		w.sync(t, "c1", false, []*adapterv1.Node{at("a", "h9", ""), at("c", "h3", "p3")})
		if got := found([]string{"p3"}, []string{"h9"}); got != "c1/a=h9 c1/c=h3p3" {
			t.Errorf("after they changed there are %q", got)
		}
	})
}

func TestSyncNodesSteadyState(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.declare(t, site("c1"))
		w.sync(t, "c1", true, machines(100))
		w.clock.advance(time.Hour)
		again := func(tx *db.Tx) error {
			if err := w.SyncNodesTx(ctx, tx, "c1", true, machines(100), nil); err != nil {
				return err
			}
			return w.SyncNodesTx(ctx, tx, "c1", false, machines(7), []string{"unknown"})
		}
		if w.d.Engine() == db.Postgres {
			must(t, w.d.View(ctx, again)) // the server refuses to write
			return
		}
		w.tx(t, func(tx *db.Tx) error {
			changes := func() (n int64) {
				_, err := tx.Get(ctx, `SELECT total_changes()`, nil, &n)
				must(t, err)
				return n
			}
			before := changes()
			err := again(tx)
			if n := changes() - before; n != 0 {
				t.Errorf("reporting 100 nodes again wrote %d rows", n)
			}
			return err
		})
	})
}

// Whatever the order of reports, what is stored is what was reported last.
func TestSyncNodesFollowsReports(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		const centers, rounds = 4, 25
		var wg sync.WaitGroup
		for c := range centers {
			id := fmt.Sprintf("c%d", c)
			w.declare(t, site(id))
			wg.Go(func() {
				r := rand.New(rand.NewPCG(7, uint64(c)))
				want := map[string]*adapterv1.Node{}
				for range rounds {
					whole := r.IntN(4) == 0
					var nodes []*adapterv1.Node
					var gone []string
					named := map[string]bool{}
					for range r.IntN(45) {
						n := machine(fmt.Sprintf("n%02d", r.IntN(50)))
						if named[n.Name] {
							continue
						}
						named[n.Name] = true
						if !whole && r.IntN(3) == 0 {
							gone = append(gone, n.Name)
							continue
						}
						n.State = adapterv1.NodeState(1 + r.IntN(3))
						n.Labels["rack"] = fmt.Sprint("r", r.IntN(2))
						nodes = append(nodes, n)
					}
					if whole {
						clear(want)
					}
					for _, n := range nodes {
						want[n.GetName()] = n
					}
					for _, name := range gone {
						delete(want, name)
					}
					// Too many writers at once is no mistake: a report is sent again.
					var err error
					for err = fault.New(fault.Conflict, ""); fault.KindOf(err) == fault.Conflict; {
						err = w.d.Tx(ctx, func(tx *db.Tx) error { return w.SyncNodesTx(ctx, tx, id, whole, nodes, gone) })
					}
					if err != nil {
						t.Errorf("center %s: %v", id, err)
						return
					}
				}
				got := w.nodes(t, registry.NodeFilter{CenterID: id})
				if len(got) != len(want) {
					t.Errorf("center %s has %d nodes, want %d", id, len(got), len(want))
				}
				racks := map[string]int{}
				for _, n := range got {
					x := want[n.Name]
					if x == nil || int(n.State) != int(x.GetState()) || n.Labels["rack"] != x.GetLabels()["rack"] {
						t.Errorf("center %s: node %+v, want %v", id, n, x)
					}
					racks[n.Labels["rack"]]++
				}
				for rack, n := range racks {
					if found := len(w.nodes(t, registry.NodeFilter{CenterID: id, Labels: []string{"rack=" + rack}})); found != n {
						t.Errorf("center %s: %d nodes found by label rack=%s, want %d", id, found, rack, n)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestSyncNodesRejects(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.declare(t, site("c1"))
		w.sync(t, "c1", true, machines(2))
		with := func(change func(n *adapterv1.Node)) []*adapterv1.Node {
			n := machine("x")
			change(n)
			return []*adapterv1.Node{machine("fine"), n}
		}
		many := map[string]string{}
		amounts := map[string]int64{}
		for i := range 257 {
			many[fmt.Sprint("l", i)], amounts[fmt.Sprint("r", i)] = "", 1
		}
		for _, x := range []struct {
			what  string
			nodes []*adapterv1.Node
			gone  []string
			paths []string
		}{
			{"nothing in it", []*adapterv1.Node{nil}, nil, []string{"nodes[0].name", "nodes[0].state"}},
			{"twice", []*adapterv1.Node{machine("a"), machine("a")}, nil, []string{"nodes[1].name"}},
			{"here and gone", []*adapterv1.Node{machine("a")}, []string{"a", ""}, []string{"gone[0]", "gone[1]"}},
			{"name", with(func(n *adapterv1.Node) { n.Name = strings.Repeat("n", 254) }), nil, []string{"nodes[1].name"}},
			{"state", with(func(n *adapterv1.Node) { n.State = 4 }), nil, []string{"nodes[1].state"}},
			{"texts", with(func(n *adapterv1.Node) { n.Architecture, n.OperatingSystem = strings.Repeat("a", 64), "a\x00" }), nil, []string{"nodes[1].architecture", "nodes[1].operating_system"}},
			{"amounts", with(func(n *adapterv1.Node) { n.Capacity["gpu"], n.Allocatable[""] = -1, 1 }), nil, []string{"nodes[1].capacity.gpu", "nodes[1].allocatable"}},
			{"too many amounts", with(func(n *adapterv1.Node) { n.Capacity = amounts }), nil, []string{"nodes[1].capacity"}},
			{"accelerator", with(func(n *adapterv1.Node) { n.Accelerators = []*adapterv1.Accelerator{{MemoryBytes: -1}} }), nil,
				[]string{"nodes[1].accelerators[0].count", "nodes[1].accelerators[0].memory_bytes", "nodes[1].accelerators[0].resource"}},
			{"too many accelerators", with(func(n *adapterv1.Node) { n.Accelerators = make([]*adapterv1.Accelerator, 65) }), nil, []string{"nodes[1].accelerators"}},
			{"labels", with(func(n *adapterv1.Node) { n.Labels[""], n.Labels["v"] = "", strings.Repeat("v", 254) }), nil, []string{"nodes[1].labels", "nodes[1].labels.v"}},
			{"too many labels", with(func(n *adapterv1.Node) { n.Labels = many }), nil, []string{"nodes[1].labels"}},
			{"too many nodes", make([]*adapterv1.Node, 100_001), nil, []string{"nodes"}},
		} {
			err := w.d.Tx(ctx, func(tx *db.Tx) error { return w.SyncNodesTx(ctx, tx, "c1", true, x.nodes, x.gone) })
			wantPaths(t, x.what, err, x.paths...)
		}
		for center, want := range map[string]fault.Kind{"c9": fault.NotFound, "": fault.Invalid, "a b": fault.Invalid} {
			wantKind(t, "center "+center, w.d.Tx(ctx, func(tx *db.Tx) error { return w.SyncNodesTx(ctx, tx, center, true, nil, nil) }), want)
		}
		same(t, "nodes after refusals", w.nodeNames(t, registry.NodeFilter{}), []string{"c1/node-0000", "c1/node-0001"})

		for what, f := range map[string]registry.NodeFilter{
			"center": {CenterID: "a b"}, "state": {State: 9}, "model": {Model: "a\x00"}, "label": {Labels: []string{"=x"}}, "labels": {Labels: make([]string, 9)},
		} {
			_, _, err := w.ListNodes(ctx, f, 0, "")
			wantKind(t, "filter by "+what, err, fault.Invalid)
		}
		for _, token := range []string{"junk", core.PageToken("c1"), core.PageToken("a", "b\x00")} {
			_, _, err := w.ListNodes(ctx, registry.NodeFilter{}, 0, token)
			wantKind(t, "token "+token, err, fault.Invalid)
		}
		_, _, err := w.ListNodes(ctx, registry.NodeFilter{}, 1001, "")
		wantKind(t, "page size", err, fault.Invalid)
		_, err = w.GetNode(ctx, "c1", "")
		wantPaths(t, "no name", err, "name")
		_, err = w.GetNode(ctx, "c1", "nope")
		wantKind(t, "no such node", err, fault.NotFound)
	})
}

func TestDeclaredSpecs(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		_, err := w.CreateSpec(ctx, spec("mine", 7))
		must(t, err)
		inv := &adapterv1.Inventory{
			AiCenterId: "c1", Capacity: map[string]int64{core.CPU: 64000},
			Specs: []*adapterv1.SpecDeclaration{
				{ResourceSpecId: "part-gpu", Desc: "Partition gpu", Quantity: map[string]int64{core.CPU: 8500, core.Memory: 64 << 30, "gpu": 1}},
				{ResourceSpecId: "mine", Quantity: map[string]int64{core.CPU: 1000, core.Memory: 1 << 40}},
				{ResourceSpecId: "free", Quantity: map[string]int64{core.CPU: 1000, core.Memory: 1 << 30}},
			},
			Offers: []*adapterv1.SpecOffer{{ResourceSpecId: "part-gpu", Price: 900}, {ResourceSpecId: "mine", Price: 1}, {ResourceSpecId: "unknown", Price: 5}},
		}
		join := func() { w.tx(t, func(tx *db.Tx) error { return w.JoinTx(ctx, tx, inv, "slurm") }) }
		join()
		now := w.clock.now().UTC()
		c := w.catalog(t)
		same(t, "declared specification", *c.Specs["part-gpu"], registry.Spec{
			ID: "part-gpu", Name: "part-gpu", Quantity: core.Quantities{core.CPU: 8500, core.Memory: 64 << 30, "gpu": 1}, ServiceTypes: registry.ServiceTypes(),
			Price: 900, Offers: []registry.Offer{{CenterID: "c1", Price: 900}}, CreatedAt: now, UpdatedAt: now,
		})
		if sp := c.Specs["mine"]; sp.Price != 7 || sp.Quantity[core.Memory] != 1<<30 || len(sp.Offers) != 1 {
			t.Errorf("specification of an operator after the declaration = %+v", sp)
		}
		if sp := c.Specs["free"]; sp == nil || sp.Price != 0 || len(sp.Offers) != 0 {
			t.Errorf("specification without an offer = %+v", sp)
		}
		if c.Specs["unknown"] != nil {
			t.Error("an offer created a specification")
		}
		w.clock.advance(time.Second)
		join()
		if w.catalog(t).Version != c.Version {
			t.Error("declaring the same again changed the catalog")
		}

		// What an operator deleted does not come back by itself.
		must(t, w.DeleteSpec(ctx, "free"))
		w.reopen(t)
		join()
		if w.catalog(t).Specs["free"] != nil {
			t.Error("a deleted specification came back with a declaration")
		}
		_, err = w.CreateSpec(ctx, spec("free", 3))
		must(t, err)

		long := make([]*adapterv1.SpecDeclaration, 1001)
		for _, x := range []struct {
			what  string
			specs []*adapterv1.SpecDeclaration
			paths []string
		}{
			{"nothing", []*adapterv1.SpecDeclaration{nil}, []string{"inventory.specs[0].resource_spec_id", "inventory.specs[0].quantity.cpu", "inventory.specs[0].quantity.memory"}},
			{"half", []*adapterv1.SpecDeclaration{{ResourceSpecId: "a b", Desc: "a\x00", Quantity: map[string]int64{core.CPU: 1, core.Memory: -5, "Big": 1}}},
				[]string{"inventory.specs[0].desc", "inventory.specs[0].resource_spec_id", "inventory.specs[0].quantity", "inventory.specs[0].quantity.memory"}},
			{"twice", []*adapterv1.SpecDeclaration{inv.Specs[2], inv.Specs[2]}, []string{"inventory.specs[1].resource_spec_id"}},
			{"too many", long, []string{"inventory.specs"}},
		} {
			err := w.d.Tx(ctx, func(tx *db.Tx) error {
				return w.JoinTx(ctx, tx, &adapterv1.Inventory{AiCenterId: "c1", Specs: x.specs}, "slurm")
			})
			wantPaths(t, x.what, err, x.paths...)
		}
	})
}

func TestAPINodes(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		c := w.serve(t)
		w.declare(t, site("c1"))
		n := machine("gpu/1 ä")
		n.State = adapterv1.NodeState_NODE_STATE_DRAINED
		w.sync(t, "c1", true, []*adapterv1.Node{n, machine("b")})
		record := `{"aiCenterId":"c1","name":"gpu/1 ä","state":"NODE_STATE_DRAINED","capacity":{"cpu":"64","memory":"512Gi","gpu":"8","hugepages-1Gi":"0"},
			"allocatable":{"cpu":"63500m","memory":"500Gi","gpu":"8"},"architecture":"amd64","operatingSystem":"Ubuntu 24.04.1 LTS",
			"accelerators":[{"vendor":"NVIDIA","model":"H800","count":"8","memoryBytes":"85899345920","resource":"gpu"}],
			"labels":{"kubernetes.io/os":"linux","rack":"r1"},` + stamps + `}`
		got, err := c.GetNode(ctx, &registryv1.GetNodeRequest{AiCenterId: "c1", Name: "gpu/1 ä"})
		must(t, err)
		wantMessage(t, "node", got, record)
		list, err := c.ListNodes(ctx, &registryv1.ListNodesRequest{State: registryv1.NodeState_NODE_STATE_DRAINED, AcceleratorModel: "H800", Labels: []string{"rack=r1"}, AiCenterId: "c1"})
		must(t, err)
		wantMessage(t, "nodes", list, `{"nodes":[`+record+`],"total":"1"}`)
		page, err := c.ListNodes(ctx, &registryv1.ListNodesRequest{PageSize: 1})
		must(t, err)
		if len(page.GetNodes()) != 1 || page.GetNextPageToken() == "" || page.GetTotal() != 2 {
			t.Errorf("first page = %v", page)
		}
		last, err := c.ListNodes(ctx, &registryv1.ListNodesRequest{PageSize: 1, PageToken: page.GetNextPageToken(), AiCenterId: "c1", AcceleratorModel: "H800"})
		must(t, err)
		if len(last.GetNodes()) != 1 || last.GetNextPageToken() != "" || last.GetTotal() != 2 {
			t.Errorf("last page = %v", last)
		}
		k, err := c.GetCenter(ctx, &registryv1.GetCenterRequest{AiCenterId: "c1"})
		must(t, err)
		wantMessage(t, "summary", k.GetNodes(), `{"ready":"1","drained":"1","total":"2","accelerators":[{"vendor":"NVIDIA","model":"H800","count":"16","resource":"gpu"}]}`)
		_, err = c.GetNode(ctx, &registryv1.GetNodeRequest{AiCenterId: "c1", Name: "nope"})
		wantCode(t, "unknown node", err, connect.CodeNotFound)
		_, err = c.ListNodes(ctx, &registryv1.ListNodesRequest{PageSize: -1})
		wantCode(t, "bad page size", err, connect.CodeInvalidArgument)
	})
}

// BenchmarkNodes measures a whole report of a center's nodes: new, unchanged,
// and with one of a hundred changed.
func BenchmarkNodes(b *testing.B) {
	eachEngine(b, func(b *testing.B, d *db.DB) {
		ctx := b.Context()
		s, err := registry.New(ctx, d, quiet)
		if err != nil {
			b.Fatal(err)
		}
		tx := func(f func(tx *db.Tx) error) {
			b.Helper()
			if err := d.Tx(ctx, f); err != nil {
				b.Fatal(err)
			}
		}
		tx(func(tx *db.Tx) error { return s.DeclareTx(ctx, tx, site("c1")) })
		sync := func(ctx context.Context, nodes []*adapterv1.Node) {
			tx(func(tx *db.Tx) error { return s.SyncNodesTx(ctx, tx, "c1", true, nodes, nil) })
		}
		for _, n := range []int{100, 1000} {
			nodes := machines(n)
			b.Run(fmt.Sprint("new-", n), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					sync(ctx, nil)
					b.StartTimer()
					sync(ctx, nodes)
				}
			})
			b.Run(fmt.Sprint("same-", n), func(b *testing.B) {
				for b.Loop() {
					sync(ctx, nodes)
				}
			})
			b.Run(fmt.Sprint("changed-", n/100, "-of-", n), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					for _, n := range slices.Collect(slices.Chunk(nodes, 100)) {
						n[0].State = adapterv1.NodeState(1 + i%2)
					}
					sync(ctx, nodes)
				}
			})
		}
	})
}
