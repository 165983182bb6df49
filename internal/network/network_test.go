package network_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
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
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/network"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/samples"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

var quiet = slog.New(slog.DiscardHandler)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// drawn is a topology that says what the test wants.
type drawn struct {
	links     []network.Link
	available map[string]int64
	broken    bool
}

func (d *drawn) NetworkLinks(context.Context) ([]network.Link, error) {
	if d.broken {
		return nil, errors.New("no topology")
	}
	return d.links, nil
}

func (d *drawn) Availability(context.Context, time.Time) (map[string]int64, error) {
	return d.available, nil
}

// world is a network with four centers, on a database whose clock the test
// moves.
type world struct {
	*network.Service
	d       *db.DB
	ids     *identity.Service
	reg     *registry.Service
	samples *samples.Store
	top     *drawn
	us      atomic.Int64
}

func (w *world) now() time.Time { return time.UnixMicro(w.us.Load()).UTC() }

func each(t *testing.T, f func(t *testing.T, ctx context.Context, w *world)) {
	t.Helper()
	t.Parallel()
	for name, url := range map[string]func(t testing.TB) string{
		"sqlite":   func(t testing.TB) string { return filepath.Join(t.TempDir(), "yunhe.db") },
		"postgres": func(t testing.TB) string { return enginetest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{top: &drawn{}}
			w.us.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
			var err error
			w.samples, err = samples.Open(samples.Config{URL: t.TempDir()}, quiet, w.now)
			must(t, err)
			t.Cleanup(func() { must(t, w.samples.Close()) })
			w.d, err = db.Open(t.Context(), db.Config{URL: url(t), Now: w.now}, quiet)
			must(t, err)
			t.Cleanup(func() { _ = w.d.Close() })
			w.ids, err = identity.New(t.Context(), w.d, quiet)
			must(t, err)
			w.reg, err = registry.New(t.Context(), w.d, quiet)
			must(t, err)
			ctx := core.WithAudit(core.WithCaller(t.Context(), core.Caller{UserID: "op", TenantID: "default", AllTenants: true}), &core.Audit{Method: "test"})
			for id, region := range map[string]string{"a1": "east", "a2": "east", "b1": "west", "b2": "west"} {
				must(t, w.d.Tx(ctx, func(tx *db.Tx) error {
					return w.reg.JoinTx(ctx, tx, &adapterv1.Inventory{AiCenterId: id, Name: id, Region: region, Capacity: map[string]int64{core.CPU: 1000}}, "gateway")
				}))
			}
			w.Service = w.process(t)
			f(t, ctx, w)
		})
	}
}

// process is one more on the same state.
func (w *world) process(t testing.TB) *network.Service {
	t.Helper()
	s, err := network.New(t.Context(), w.d, w.ids, w.reg, w.samples, w.top, quiet)
	must(t, err)
	return s
}

func (w *world) measure(t testing.TB, name, center, peer string, value float64) {
	t.Helper()
	r, err := w.samples.Append(t.Context(), []samples.Sample{{Name: "yunhe_path_" + name, Labels: samples.L("ai_center_id", center, "peer", peer), Value: value, At: w.now()}})
	must(t, err)
	if r.Stored != 1 {
		t.Fatalf("%s of %s not stored: %+v", name, center, r)
	}
}

// facts writes what is known, a fact a line.
func facts(p network.Path) string {
	var b strings.Builder
	for _, f := range p.Facts {
		fmt.Fprintf(&b, "%s %d %s", f.Name, f.Value, f.Source)
		if f.Path != "" {
			fmt.Fprintf(&b, " of %s", f.Path)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (w *world) between(t testing.TB, from, to, want string) {
	t.Helper()
	p, err := w.Between(t.Context(), from, to)
	must(t, err)
	if d := cmp.Diff(strings.TrimLeft(want, "\n"), facts(p)); d != "" {
		t.Errorf("%s to %s:\n%s", from, to, d)
	}
}

func known(n int64) place.Fact { return place.Known(n) }

func (w *world) audited(t testing.TB, ctx context.Context) (n int) {
	t.Helper()
	must(t, w.d.View(ctx, func(tx *db.Tx) error {
		_, err := tx.Get(ctx, `SELECT COUNT(*) FROM audit_events WHERE method = 'test'`, nil, &n)
		return err
	}))
	return n
}

// What is declared is kept, audited once, and seen by every process.
func TestDeclare(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		other := w.process(t)
		before, err := other.Generation(ctx)
		must(t, err)
		d := network.Declaration{From: "region:east", To: "region:west", Facts: place.Network{LatencyMicros: known(30_000), FeeFenPerGiB: known(30)}, Note: "by contract"}
		for range 2 { // the same again changes nothing
			p, err := w.SetPath(ctx, d)
			must(t, err)
			if got := facts(p); got != "latency_us 30000 declared\nfee_fen_per_gib 30 declared\n" || p.Note != "by contract" {
				t.Errorf("declared %q %q", got, p.Note)
			}
		}
		if n, err := w.Generation(ctx); err != nil || n != before+1 {
			t.Errorf("generation %d, %v; want %d", n, err, before+1)
		}
		if n := w.audited(t, ctx); n != 1 {
			t.Errorf("%d audit events, want 1", n)
		}
		w.us.Add(int64(time.Second / time.Microsecond))
		if n, err := other.Generation(ctx); err != nil || n != before+1 {
			t.Errorf("another process sees generation %d, %v", n, err)
		}
		again := w.process(t) // a restart
		rows, next, err := again.Paths(ctx, "region:west", 0, "")
		must(t, err)
		if len(rows) != 1 || next != "" {
			t.Errorf("after a restart: %v %q", rows, next)
		}
		must(t, w.DeletePath(ctx, "region:east", "region:west"))
		if err := w.DeletePath(ctx, "region:east", "region:west"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("deleted twice: %v", err)
		}
		if rows, _, err := w.Paths(ctx, "", 0, ""); err != nil || len(rows) != 0 {
			t.Errorf("left: %v, %v", rows, err)
		}
	})
}

func TestRefused(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		for _, c := range []struct {
			name string
			d    network.Declaration
			want string
		}{
			{"everything at once", network.Declaration{From: "a1", To: "center:", Facts: place.Network{LossPPM: known(1_000_001), BandwidthKbps: known(0)}, Note: strings.Repeat("x", 257)},
				"path.from path.to path.loss_ppm path.bandwidth_kbps path.note"},
			{"nothing stated", network.Declaration{From: "center:a1", To: "*"}, "path"},
			{"to itself", network.Declaration{From: "center:a1", To: "center:a1", Facts: place.Network{LossPPM: known(0)}}, "path.to"},
			{"from anywhere", network.Declaration{From: "*", To: "center:a1", Facts: place.Network{LossPPM: known(0)}}, "path.from"},
			{"who is not there", network.Declaration{From: "center:zz", To: "origin:nobody", Facts: place.Network{LossPPM: known(0)}}, "path.from path.to"},
		} {
			_, err := w.SetPath(ctx, c.d)
			var got []string
			for _, f := range fault.FieldsOf(err) {
				got = append(got, f.Path)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
		}
		if _, err := w.SetOrigin(ctx, network.Origin{ID: "x y", Tenants: []string{"t", "t"}}, new(int64(181_000_000)), nil); len(fault.FieldsOf(err)) != 3 {
			t.Errorf("origin: %v", err)
		}
		for _, ends := range [][2]string{{"region:east", "center:a1"}, {"center:a1", "origin:x"}, {"center:a1", "center:a1"}} {
			if _, err := w.Between(ctx, ends[0], ends[1]); fault.KindOf(err) != fault.Invalid {
				t.Errorf("between %v: %v", ends, err)
			}
		}
		for _, ends := range [][2]string{{"center:zz", "center:a1"}, {"origin:x", "center:a1"}} {
			if _, err := w.Between(ctx, ends[0], ends[1]); fault.KindOf(err) != fault.NotFound {
				t.Errorf("between %v: %v", ends, err)
			}
		}
	})
}

// The best source of each fact counts, and what is measured becomes stale.
func TestSources(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.top.links = []network.Link{
			{From: "center:a1", To: "center:b1", Facts: place.Network{BandwidthKbps: known(10_000_000), LatencyMicros: known(20_000)}, Source: network.FromLink},
			{From: "center:a1", To: "center:b1", Facts: place.Network{BandwidthKbps: known(7), JitterMicros: known(9)}, Source: network.FromResource},
			{From: "center:b2", To: "*", Facts: place.Network{BandwidthKbps: known(400_000)}, Source: network.FromResource},
		}
		_, err := w.SetPath(ctx, network.Declaration{From: "center:a1", To: "*", Facts: place.Network{LatencyMicros: known(99_000), FeeFenPerGiB: known(10)}})
		must(t, err)
		_, err = w.SetPath(ctx, network.Declaration{From: "region:west", To: "*", Facts: place.Network{FeeFenPerGiB: known(5)}})
		must(t, err)
		w.measure(t, "latency_seconds", "a1", "platform", 0.004)
		w.measure(t, "loss_ratio", "a1", "platform", 0.001)
		w.measure(t, "bandwidth_bits_per_second", "a1", "platform", 900e6)
		w.measure(t, "latency_seconds", "a1", "10.0.0.1:6443", 0.5) // its driver's own; the platform goes first
		w.measure(t, "latency_seconds", "b1", "center:a1", 0.018)
		w.measure(t, "latency_seconds", "gone", "platform", 0.001)
		must(t, w.Look(ctx))
		_, err = w.SetOrigin(ctx, network.Origin{ID: "hq", Region: "east"}, nil, nil)
		must(t, err)
		w.between(t, "center:a1", "center:b1", `
latency_us 20000 of a link
jitter_us 9 registered
bandwidth_kbps 10000000 of a link
fee_fen_per_gib 15 declared of center:a1 to * and region:west to *
`)
		w.between(t, "center:b1", "center:a1", `
latency_us 18000 measured
jitter_us 9 registered of center:a1 to center:b1
bandwidth_kbps 10000000 of a link of center:a1 to center:b1
fee_fen_per_gib 15 declared of region:west to * and center:a1 to *
`)
		w.between(t, "center:a1", "center:b2", `
bandwidth_kbps 400000 registered of center:b2 to *
fee_fen_per_gib 15 declared of center:a1 to * and region:west to *
`)
		w.between(t, "origin:hq", "center:a1", `
latency_us 4000 measured of center:a1 to *
loss_ppm 1000 measured of center:a1 to *
bandwidth_kbps 900000 measured of center:a1 to *
`)
		// A topology and a store that do not answer cost nothing until what was
		// measured is stale.
		w.top.broken = true
		w.us.Add(int64(90 * time.Second / time.Microsecond))
		if err := w.Look(ctx); err == nil {
			t.Error("a topology that does not answer is no error")
		}
		w.between(t, "origin:hq", "center:a1", `
latency_us 4000 measured of center:a1 to *
loss_ppm 1000 measured of center:a1 to *
bandwidth_kbps 900000 measured of center:a1 to *
`)
		w.us.Add(int64(31 * time.Second / time.Microsecond))
		w.between(t, "origin:hq", "center:a1", `
latency_us 99000 declared of center:a1 to *
`)
	})
}

// Pages of paths are whole and in order.
func TestPages(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		var want, got []string
		for _, from := range []string{"center:a1", "center:a2", "region:east"} {
			for _, to := range []string{"*", "center:b1", "region:west"} {
				_, err := w.SetPath(ctx, network.Declaration{From: from, To: to, Facts: place.Network{JitterMicros: known(1)}})
				must(t, err)
				want = append(want, from+" "+to)
			}
		}
		for token := "first"; token != ""; {
			rows, next, err := w.Paths(ctx, "", 2, strings.TrimPrefix(token, "first"))
			must(t, err)
			for _, p := range rows {
				got = append(got, p.From+" "+p.To)
			}
			token = next
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if rows, _, err := w.Paths(ctx, "center:b1", 0, ""); err != nil || len(rows) != 3 {
			t.Errorf("with one end: %v, %v", rows, err)
		}
	})
}

// Origins say where jobs come from: the job, its user, its tenant.
func TestOrigins(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		set := func(o network.Origin) error {
			_, err := w.SetOrigin(ctx, o, new(int64(121_470_000)), new(int64(31_230_000)))
			return err
		}
		must(t, set(network.Origin{ID: "hq", Region: "east", Tenants: []string{"acme"}}))
		must(t, set(network.Origin{ID: "lab", Region: "west", Users: []string{"ann"}}))
		must(t, set(network.Origin{ID: "lab", Region: "west", Users: []string{"ann"}}))
		if n := w.audited(t, ctx); n != 2 {
			t.Errorf("%d audit events, want 2", n)
		}
		if err := set(network.Origin{ID: "x", Tenants: []string{"acme"}}); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "hq") {
			t.Errorf("a tenant of two origins: %v", err)
		}
		at := &place.Position{Longitude: 121_470_000, Latitude: 31_230_000}
		p, err := w.Picture(ctx)
		must(t, err)
		for _, c := range []struct {
			from, tenant string
			want         place.Origin
		}{
			{network.From("hq", "ann"), "acme", place.Origin{Name: "origin:hq", Region: "east", Position: at}},
			{network.From("", "ann"), "acme", place.Origin{Name: "origin:lab", Region: "west", Position: at}},
			{network.From("", "bob"), "acme", place.Origin{Name: "origin:hq", Region: "east", Position: at}},
			{network.From("", "bob"), "other", place.Origin{}},
			{network.From("gone", "ann"), "acme", place.Origin{}},
		} {
			if d := cmp.Diff(c.want, p.Origin(c.from, c.tenant)); d != "" {
				t.Errorf("%s of %s: %s", c.from, c.tenant, d)
			}
		}
		_, err = w.SetPath(ctx, network.Declaration{From: "origin:hq", To: "center:b1", Facts: place.Network{LatencyMicros: known(7_000)}})
		must(t, err)
		must(t, w.DeleteOrigin(ctx, "hq"))
		if rows, _, err := w.Paths(ctx, "", 0, ""); err != nil || len(rows) != 0 {
			t.Errorf("paths of a deleted origin: %v, %v", rows, err)
		}
		if err := w.DeleteOrigin(ctx, "hq"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("deleted twice: %v", err)
		}
	})
}

// What is shown between two places is what the engine takes.
func TestShownIsTaken(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		_, err := w.SetOrigin(ctx, network.Origin{ID: "hq", Region: "east"}, nil, nil)
		must(t, err)
		for _, d := range []network.Declaration{
			{From: "origin:hq", To: "center:b2", Facts: place.Network{JitterMicros: known(3)}},
			{From: "region:west", To: "region:east", Facts: place.Network{LatencyMicros: known(30_000), JitterMicros: known(5), BandwidthKbps: known(5_000)}},
			{From: "region:east", To: "region:west", Facts: place.Network{LatencyMicros: known(31_000)}},
			{From: "region:west", To: "*", Facts: place.Network{LossPPM: known(70)}},
			{From: "center:b1", To: "*", Facts: place.Network{LossPPM: known(60), BandwidthKbps: known(1)}},
		} {
			_, err := w.SetPath(ctx, d)
			must(t, err)
		}
		w.top.available = map[string]int64{"b1": 999_000}
		must(t, w.Look(ctx))
		p, err := w.Picture(ctx)
		must(t, err)
		snap := &place.Snapshot{}
		for id, region := range map[string]string{"a1": "east", "a2": "east", "b1": "west", "b2": "west"} {
			snap.Candidates = append(snap.Candidates, place.Candidate{ID: id, Region: region, Status: place.Available, AnyImage: true})
		}
		p.Apply(snap)
		set, err := place.NewSet("test", place.Weighted, []place.Weight{{Policy: "network", Weight: 1}})
		must(t, err)
		work := place.Work{ID: "w", Origin: p.Origin(network.From("hq", ""), ""), Tasks: []place.Task{{ID: "0", Replicas: 1}}}
		res, err := place.Plan(snap, []place.Work{work}, set, place.Options{})
		must(t, err)
		if len(res.Placements) != 1 {
			t.Fatalf("placed %v", res.Unplaced)
		}
		for _, row := range res.Placements[0].Decision.Table {
			path, err := w.Between(ctx, "origin:hq", "center:"+row.Candidate)
			must(t, err)
			shown := map[string]place.Fact{}
			for _, f := range path.Facts {
				shown[f.Name] = known(f.Value)
			}
			want := []place.Fact{shown["bandwidth_kbps"], shown["latency_us"], shown["jitter_us"], shown["loss_ppm"]}
			if d := cmp.Diff(want, row.Values[0]); d != "" {
				t.Errorf("%s: shown, taken\n%s", row.Candidate, d)
			}
			if len(path.Facts) > 0 != strings.Contains(row.Network, "declared") {
				t.Errorf("%s: source %q of %v", row.Candidate, row.Network, path.Facts)
			}
		}
		for _, c := range snap.Candidates {
			if want := (place.Fact{Value: w.top.available[c.ID], Known: c.ID == "b1"}); c.Availability != want {
				t.Errorf("availability of %s: %v", c.ID, c.Availability)
			}
		}
	})
}
