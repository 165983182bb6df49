package equipment_test

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

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/equipment"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/network"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/samples"
	"yunhe.dev/yunhe/internal/seal"
)

var quiet = slog.New(slog.DiscardHandler)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type noTopology struct{}

func (noTopology) NetworkLinks(context.Context) ([]network.Link, error) { return nil, nil }
func (noTopology) Availability(context.Context, time.Time) (map[string]int64, error) {
	return nil, nil
}

// world is the service with a center c1, on a clock that the test moves.
type world struct {
	*equipment.Service
	t       testing.TB
	ctx     context.Context
	d       *db.DB
	process func() *equipment.Service // one more on the same state
	us      atomic.Int64
}

func (w *world) now() time.Time { return time.UnixMicro(w.us.Load()).UTC() }

func (w *world) later(d time.Duration) { w.us.Add(d.Microseconds()) }

func newWorld(t testing.TB, url string) *world {
	w := &world{t: t}
	w.us.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
	store, err := samples.Open(samples.Config{URL: t.TempDir()}, quiet, w.now)
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	w.d, err = db.Open(t.Context(), db.Config{URL: url, Now: w.now}, quiet)
	must(t, err)
	t.Cleanup(func() { _ = w.d.Close() })
	ids, err := identity.New(t.Context(), w.d, quiet)
	must(t, err)
	reg, err := registry.New(t.Context(), w.d, quiet)
	must(t, err)
	box, err := seal.Open(filepath.Join(t.TempDir(), "secrets.key"))
	must(t, err)
	inv, err := inventory.New(t.Context(), w.d, reg, box, quiet)
	must(t, err)
	net, err := network.New(t.Context(), w.d, ids, reg, store, noTopology{}, quiet)
	must(t, err)
	w.ctx = core.WithAudit(core.WithCaller(t.Context(), core.Caller{UserID: "op", TenantID: "default", AllTenants: true}), &core.Audit{Method: "test"})
	must(t, w.d.Tx(w.ctx, func(tx *db.Tx) error {
		return reg.JoinTx(w.ctx, tx, &adapterv1.Inventory{AiCenterId: "c1", Name: "c1", Region: "east", Capacity: map[string]int64{core.CPU: 1000}}, "gateway")
	}))
	w.process = func() *equipment.Service {
		s, err := equipment.New(t.Context(), w.d, ids, reg, inv, net, quiet)
		must(t, err)
		return s
	}
	w.Service = w.process()
	return w
}

func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, newWorld(t, filepath.Join(t.TempDir(), "yunhe.db"))) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, newWorld(t, enginetest.Postgres(t))) })
}

func (w *world) report(list ...equipment.Equipment) int64 {
	w.t.Helper()
	n, err := w.Report(w.ctx, equipment.Report{CenterID: "c1", Source: "nms", Equipment: list})
	must(w.t, err)
	return n
}

// found is what is wrong, as kind and what it is about, with what each follows from.
func (w *world) found(nodes ...string) (out []string, f *equipment.Found) {
	w.t.Helper()
	var refs []equipment.NodeRef
	for _, n := range nodes {
		refs = append(refs, equipment.NodeRef{Center: "c1", Name: n})
	}
	f, err := w.Troubles(w.ctx, map[string]bool{"c1": true}, refs)
	must(w.t, err)
	for _, t := range f.Troubles {
		x := strings.TrimPrefix(t.Key, "equipment/")
		if t.Parent != "" {
			x += " < " + strings.TrimPrefix(t.Parent, "equipment/")
		}
		out = append(out, x)
	}
	for _, n := range refs {
		if k := f.Behind[n]; k != "" {
			out = append(out, n.Name+" < "+strings.TrimPrefix(k, "equipment/"))
		}
	}
	slices.Sort(out)
	return out, f
}

func (w *world) want(what string, want ...string) {
	w.t.Helper()
	if got, _ := w.found("n1", "n2"); !slices.Equal(got, want) {
		w.t.Errorf("%s: found %q, want %q", what, got, want)
	}
}

func sw(name string, state equipment.State, ports ...equipment.Port) equipment.Equipment {
	return equipment.Equipment{Name: name, Kind: equipment.Switch, State: state, Ports: ports}
}

// port is "name state peer", where the peer is a node, or "equipment:port".
func port(name string, state equipment.PortState, peer string) equipment.Port {
	p := equipment.Port{Name: name, State: state}
	if e, x, far := strings.Cut(peer, ":"); far {
		p.PeerEquipment, p.PeerPort = e, x
	} else {
		p.PeerNode = peer
	}
	return p
}

const (
	up, down = equipment.PortUp, equipment.PortDown
)

// What a source says is what there is, and only what it says.
func TestReport(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		if n := w.report(sw("a", equipment.Up, port("1", up, "n1")), sw("b", equipment.Up)); n != 2 {
			t.Errorf("%d changed, want 2", n)
		}
		names := func() (out []string) {
			rows, _, err := w.process().List(w.ctx, equipment.Filter{CenterID: "c1"}, 0, "")
			must(t, err)
			for _, e := range rows {
				out = append(out, e.Name+" "+e.Source)
			}
			return out
		}
		plugin := func(list []equipment.Equipment, whole bool, name string) {
			t.Helper()
			must(t, w.d.Tx(w.ctx, func(tx *db.Tx) error {
				return w.PluginTx(w.ctx, tx, equipment.Report{CenterID: "c1", Source: name, Equipment: list, Whole: whole})
			}))
		}
		// A plug-in's that another reports, that is there twice or that cannot be is passed over.
		plugin([]equipment.Equipment{sw("a", equipment.Down), sw("p", equipment.Up), sw("p", equipment.Down), sw("q", 99), sw("", equipment.Up)}, true, "slurm")
		if got, want := names(), []string{"a nms", "b nms", "p plugin:slurm"}; !slices.Equal(got, want) {
			t.Errorf("there is %q, want %q", got, want)
		}
		// Another plug-in takes over, with what it has.
		plugin([]equipment.Equipment{sw("r", equipment.Up)}, true, "gateway")
		if got, want := names(), []string{"a nms", "b nms", "r plugin:gateway"}; !slices.Equal(got, want) {
			t.Errorf("there is %q, want %q", got, want)
		}
		for name, x := range map[string]struct {
			r    equipment.Report
			kind fault.Kind
			path string
		}{
			"another source":  {equipment.Report{CenterID: "c1", Source: "other", Equipment: []equipment.Equipment{sw("a", equipment.Up)}}, fault.Exists, ""},
			"no such center":  {equipment.Report{CenterID: "c9", Source: "nms"}, fault.NotFound, ""},
			"a plug-in's":     {equipment.Report{CenterID: "c1", Source: "plugin:x"}, fault.Invalid, "source"},
			"no state":        {equipment.Report{CenterID: "c1", Source: "nms", Equipment: []equipment.Equipment{sw("x", 0)}}, fault.Invalid, "equipment[0].state"},
			"twice":           {equipment.Report{CenterID: "c1", Source: "nms", Equipment: []equipment.Equipment{sw("x", 1), sw("x", 1)}}, fault.Invalid, "equipment[1].name"},
			"a port twice":    {equipment.Report{CenterID: "c1", Source: "nms", Equipment: []equipment.Equipment{sw("x", 1, port("1", up, ""), port("1", up, ""))}}, fault.Invalid, "equipment[0].ports[1].name"},
			"two peers":       {equipment.Report{CenterID: "c1", Source: "nms", Equipment: []equipment.Equipment{sw("x", 1, equipment.Port{Name: "1", State: up, PeerEquipment: "a", PeerNode: "n"})}}, fault.Invalid, "equipment[0].ports[0].peer_node"},
			"rates above all": {equipment.Report{CenterID: "c1", Source: "nms", Equipment: []equipment.Equipment{sw("x", 1, equipment.Port{Name: "1", State: up, Errors: 1e6 + 1})}}, fault.Invalid, "equipment[0].ports[0].errors_ppm"},
			"silent too long": {equipment.Report{CenterID: "c1", Source: "nms", Silence: 8 * 24 * time.Hour}, fault.Invalid, "silence_seconds"},
			"too many":        {equipment.Report{CenterID: "c1", Source: "nms", Equipment: make([]equipment.Equipment, 1001)}, fault.Invalid, "equipment"},
			"too many ports":  {equipment.Report{CenterID: "c1", Source: "nms", Equipment: []equipment.Equipment{sw("x", 1, make([]equipment.Port, 1025)...)}}, fault.Invalid, "equipment[0].ports"},
		} {
			_, err := w.Report(w.ctx, x.r)
			if fault.KindOf(err) != x.kind || x.path != "" && (len(fault.FieldsOf(err)) == 0 || fault.FieldsOf(err)[0].Path != x.path) {
				t.Errorf("%s: %v, want %v of %q", name, err, x.kind, x.path)
			}
		}
		if got := len(names()); got != 3 {
			t.Errorf("%d are there after what was refused, want 3", got)
		}
		n, err := w.Report(w.ctx, equipment.Report{CenterID: "c1", Source: "nms", Equipment: []equipment.Equipment{sw("b", equipment.Up)}, Gone: []string{"r", "nothing"}})
		if must(t, err); n != 0 {
			t.Errorf("%d changed by the same and by what is another's, want none", n)
		}
		n, err = w.Report(w.ctx, equipment.Report{CenterID: "c1", Source: "nms", Equipment: []equipment.Equipment{sw("c", equipment.Up)}, Whole: true})
		if must(t, err); n != 3 || !slices.Equal(names(), []string{"c nms", "r plugin:gateway"}) {
			t.Errorf("%d changed and %q is there, want c for a and b", n, names())
		}
		_, err = w.Report(w.ctx, equipment.Report{CenterID: "c1", Source: "nms", Gone: []string{"c"}})
		if must(t, err); !slices.Equal(names(), []string{"r plugin:gateway"}) {
			t.Errorf("%q is there", names())
		}
		if _, err := w.Get(w.ctx, "c1", "c"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("what is gone: %v", err)
		}
	})
}

// A rate is kept in steps, the highest of a minute, also by who has just started.
func TestRates(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		say := func(s *equipment.Service, ppm, want, changed int64) {
			t.Helper()
			n, err := s.Report(w.ctx, equipment.Report{CenterID: "c1", Source: "nms", Equipment: []equipment.Equipment{sw("a", equipment.Up, equipment.Port{Name: "1", State: up, Errors: ppm})}})
			must(t, err)
			e, err := s.Get(w.ctx, "c1", "a")
			if must(t, err); e.Ports[0].Errors != want || e.WorstErrors != want || n != changed {
				t.Errorf("after %d ppm there are %d, %d changed; want %d, %d", ppm, e.Ports[0].Errors, n, want, changed)
			}
		}
		say(w.Service, 0, 0, 1)
		say(w.Service, 123, 100, 1)
		say(w.Service, 199, 100, 0)
		say(w.Service, 3, 100, 0)
		w.later(59 * time.Second)
		say(w.Service, 120, 100, 0)
		w.later(59 * time.Second)
		say(w.Service, 7, 100, 0)
		fresh := w.process()
		say(fresh, 7, 100, 0)
		w.later(time.Minute)
		say(fresh, 7, 5, 1)
		say(fresh, 1_000_000, 1_000_000, 1)
		w.later(time.Minute)
		say(fresh, 0, 0, 1)
	})
}

// What is wrong has one cause where one is known, and is an alarm once it has been
// so for long enough.
func TestCauses(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		leaf := func(state equipment.State, n1, link equipment.PortState) equipment.Equipment {
			return sw("leaf", state, port("1", n1, "n1"), port("9", link, "spine:7"))
		}
		other := sw("other", equipment.Up, port("2", up, "n2"))
		spine := func(state equipment.State, link equipment.PortState) equipment.Equipment {
			return sw("spine", state, port("7", link, "leaf:9"))
		}
		w.report(leaf(equipment.Up, up, up), spine(equipment.Up, up), other)
		w.want("all is well")
		w.report(leaf(equipment.Up, down, up))
		if got, f := w.found("n1"); len(got) != 0 || !f.Next.Equal(w.now().Add(10*time.Second)) {
			t.Errorf("at once: %q, next at %v", got, f.Next)
		}
		w.later(10 * time.Second)
		w.want("the link of a node", "3/c1/leaf:1", "n1 < 3/c1/leaf:1")
		// A link is one, whichever ends tell of it; a node with another way is not behind.
		w.report(sw("leaf", equipment.Up, port("1", down, "n1"), port("2", down, "n2"), port("9", down, "spine:7")), spine(equipment.Up, down))
		w.later(10 * time.Second)
		w.want("the link between switches", "3/c1/leaf:1", "3/c1/leaf:2", "3/c1/leaf:9=spine:7", "n1 < 3/c1/leaf:1")
		w.report(leaf(equipment.Down, down, down))
		w.later(10 * time.Second)
		w.want("the switch", "1/c1/leaf", "3/c1/leaf:1 < 1/c1/leaf", "3/c1/leaf:9=spine:7 < 1/c1/leaf", "n1 < 1/c1/leaf")
		// Out of reach behind what is down.
		w.report(leaf(equipment.Unreachable, up, up), spine(equipment.Down, down))
		if got, _ := w.found(); !slices.Equal(got, []string{}) && len(got) != 0 {
			t.Errorf("links come before the alarm they follow from: %q", got)
		}
		w.later(10 * time.Second)
		w.want("out of reach", "1/c1/leaf < 1/c1/spine", "1/c1/spine", "3/c1/leaf:9=spine:7 < 1/c1/spine", "n1 < 1/c1/leaf")
		_, err := w.SetRule(w.ctx, equipment.Rule{Kind: equipment.EquipmentDown, Threshold: 10, Severity: 1})
		must(t, err)
		w.want("without the rule of equipment", "3/c1/leaf:9=spine:7")
		if _, err := w.SetRule(w.ctx, equipment.Rule{Kind: 99}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("a rule that is none: %v", err)
		}
		if _, err := w.SetRule(w.ctx, equipment.Rule{Kind: equipment.LinkErrors, Severity: 4}); len(fault.FieldsOf(err)) != 2 {
			t.Errorf("a rule of nothing and no severity: %v", err)
		}
		// A center that is no more has none.
		f, err := w.Troubles(w.ctx, map[string]bool{}, nil)
		if must(t, err); len(f.Troubles) != 0 {
			t.Errorf("found %v", f.Troubles)
		}
	})
}

// A source that said it would not be silent is missed, and what it said stays.
func TestSilence(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		say := func(silence time.Duration) {
			t.Helper()
			_, err := w.Report(w.ctx, equipment.Report{CenterID: "c1", Source: "nms", Equipment: []equipment.Equipment{sw("a", equipment.Up)}, Silence: silence})
			must(t, err)
		}
		silent := func() bool {
			e, err := w.Get(w.ctx, "c1", "a")
			must(t, err)
			return e.Silent
		}
		say(30 * time.Second)
		w.later(29 * time.Second)
		if got, f := w.found(); len(got) != 0 || silent() || !f.Next.Equal(w.now().Add(time.Second)) {
			t.Errorf("before: %q", got)
		}
		w.later(2 * time.Second)
		if w.want("after", "6/c1/nms"); !silent() {
			t.Error("it is not shown as silent")
		}
		say(0)
		w.later(time.Hour)
		if w.want("as long as it likes"); silent() {
			t.Error("it is shown as silent")
		}
	})
}

// BenchmarkTroubles: 200 switches with 10,000 links, of which none or a spine with
// 50 is down.
func BenchmarkTroubles(b *testing.B) {
	for _, broken := range []bool{false, true} {
		b.Run(fmt.Sprintf("broken=%v", broken), func(b *testing.B) {
			w := newWorld(b, filepath.Join(b.TempDir(), "yunhe.db"))
			var list []equipment.Equipment
			for i := range 200 {
				e := sw(fmt.Sprintf("s%03d", i), equipment.Up)
				for p := range 50 {
					e.Ports = append(e.Ports, port(fmt.Sprintf("p%02d", p), up, fmt.Sprintf("n%05d", i*50+p)))
				}
				list = append(list, e)
			}
			if broken {
				list[7].State = equipment.Down
				for p := range list[7].Ports {
					list[7].Ports[p].State = down
				}
			}
			start := time.Now()
			w.report(list...)
			b.Logf("first report: %v", time.Since(start))
			start = time.Now()
			w.report(list...)
			b.Logf("the same again: %v", time.Since(start))
			w.later(time.Minute)
			for b.Loop() {
				if got, _ := w.found("n00350", "n00001"); (len(got) == 52) != broken {
					b.Fatal(got)
				}
			}
		})
	}
}
