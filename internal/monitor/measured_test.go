package monitor_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/samples"
)

// whole is a measurement with everything in it.
func whole(at time.Time) *adapterv1.Measurement {
	return &adapterv1.Measurement{MeasuredAt: timestamppb.New(at),
		Nodes: []*adapterv1.NodeUse{
			{Name: "n1", CpuBusyPermille: 250, MemoryBusyBytes: 1 << 30, Accelerators: []*adapterv1.AcceleratorUse{
				{Index: 1, BusyPermille: 1000, MemoryBusyBytes: 2 << 30, MemoryTotalBytes: 4 << 30}, {Index: 0, BusyPermille: 500}}},
			{Name: "n2", CpuBusyPermille: 750, MemoryBusyBytes: 3 << 30},
		},
		Storage: &adapterv1.StorageUse{Reads: 100, Writes: 50, ReadBytes: 4096, WrittenBytes: 8192, LatencyMicroseconds: 1500},
		Network: &adapterv1.NetworkUse{ReceivedBytes: 1000, SentBytes: 2000},
		Paths: []*adapterv1.Path{{Peer: "platform", LatencyMicroseconds: 30_000, JitterMicroseconds: 2_000, LossPpm: 100_000, BandwidthBitsPerSecond: 1_000_000},
			{Peer: "gone", LossPpm: 1_000_000}},
	}
}

// pour stores what an intake took.
func pour(t testing.TB, in *monitor.Intake, store monitor.Store) int {
	t.Helper()
	got, err := in.Gather(t.Context())
	must(t, err)
	if len(got) == 0 {
		return 0
	}
	report, err := store.Append(t.Context(), got)
	if err != nil || report.Stored != len(got) {
		t.Fatalf("append: %+v, %v", report, err)
	}
	return len(got)
}

func text(f *monitor.Figures) string {
	v := func(p *float64) string {
		if p == nil {
			return "-"
		}
		return fmt.Sprintf("%g", *p)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "cpu %s memory %s nodes %d accelerator %s skew %s refused %v", v(f.CPUBusy), v(f.MemoryBusy), f.Nodes, v(f.Accelerator), v(f.ClockSkew), f.Refused)
	fmt.Fprintf(&b, "\nstorage %s %s %s %s %s network %s %s", v(f.Storage.Reads), v(f.Storage.Writes), v(f.Storage.Read), v(f.Storage.Written), v(f.Storage.Latency), v(f.Network.Received), v(f.Network.Sent))
	for _, p := range f.Paths {
		fmt.Fprintf(&b, "\npath %s %s %s %s %s", p.Peer, v(p.Latency), v(p.Jitter), v(p.Loss), v(p.Bandwidth))
	}
	for _, a := range f.Accelerators {
		fmt.Fprintf(&b, "\naccelerator %d %s %s", a.Index, v(a.Busy), v(a.MemoryBusy))
	}
	return b.String()
}

func TestMeasurementsBecomeFigures(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, store *samples.Store) {
		now := time.Now().Truncate(time.Second)
		in := monitor.NewIntake(func() time.Time { return now }, slog.New(slog.DiscardHandler))
		in.TakeMessage("c1", whole(now.Add(-250*time.Millisecond)))
		in.TakeMessage("c2", &adapterv1.Measurement{MeasuredAt: timestamppb.New(now)})
		in.TakeMessage("c3", nil)
		pour(t, in, store)
		s := monitor.New(store, slog.New(slog.DiscardHandler))
		s.Now = func() time.Time { return now }
		f, err := s.Figures(t.Context(), "c1", "")
		must(t, err)
		want := `cpu 0.5 memory 4.294967296e+09 nodes 2 accelerator 0.75 skew 0.25 refused []
storage 100 50 4096 8192 0.0015 network 1000 2000
path gone - - 1 -
path platform 0.03 0.002 0.1 1e+06`
		if d := cmp.Diff(want, text(f)); d != "" {
			t.Errorf("figures of a center (-want +got):\n%s", d)
		}
		if !f.At.Equal(now) {
			t.Errorf("measured at %s, want when it came, %s", f.At, now)
		}
		n, err := s.Figures(t.Context(), "c1", "n1")
		must(t, err)
		want = `cpu 0.25 memory 1.073741824e+09 nodes 0 accelerator - skew - refused []
storage - - - - - network - -
accelerator 0 0.5 -
accelerator 1 1 2.147483648e+09`
		if d := cmp.Diff(want, text(n)); d != "" {
			t.Errorf("figures of a node (-want +got):\n%s", d)
		}
		all, err := s.AllFigures(t.Context())
		must(t, err)
		if len(all) != 2 || all["c1"] == nil || text(all["c1"]) != text(f) || all["c2"].CPUBusy != nil || *all["c2"].ClockSkew != 0 {
			t.Errorf("figures of all: %v", all)
		}
		// What is not measured any more is not known any more.
		now = now.Add(2 * time.Minute)
		if f, err := s.Figures(t.Context(), "c1", ""); err != nil || !f.At.IsZero() || f.CPUBusy != nil || f.Paths != nil {
			t.Errorf("figures after two minutes: %v, %v", f, err)
		}
		if _, err := s.Figures(t.Context(), "not an id", "x\ny"); fault.KindOf(err) != fault.Invalid || len(fault.FieldsOf(err)) != 2 {
			t.Errorf("figures of what is none: %v", err)
		}
	})
}

// Impossible figures are refused one by one; the rest counts.
func TestIntakeRefuses(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, x := range map[string]struct {
		change func(*adapterv1.Measurement)
		field  string
		lost   int // samples fewer than of a right one, the count of refusals not counted
	}{
		"above 100 %":           {func(m *adapterv1.Measurement) { m.Nodes[0].CpuBusyPermille = 1001 }, "nodes[].cpu_busy_permille", 1},
		"negative":              {func(m *adapterv1.Measurement) { m.Nodes[1].MemoryBusyBytes = -1 }, "nodes[].memory_busy_bytes", 1},
		"more memory than any":  {func(m *adapterv1.Measurement) { m.Nodes[0].Accelerators[0].MemoryBusyBytes = 5 << 30 }, "nodes[].accelerators[].memory_busy_bytes", 1},
		"an accelerator twice":  {func(m *adapterv1.Measurement) { m.Nodes[0].Accelerators[1].Index = 1 }, "nodes[].accelerators[].index", 1},
		"accelerator -1":        {func(m *adapterv1.Measurement) { m.Nodes[0].Accelerators[0].Index = -1 }, "nodes[].accelerators[].index", 2},
		"a node twice":          {func(m *adapterv1.Measurement) { m.Nodes[1].Name = "n1" }, "nodes[].name", 2},
		"a node without name":   {func(m *adapterv1.Measurement) { m.Nodes[1].Name = "" }, "nodes[].name", 2},
		"a name of two lines":   {func(m *adapterv1.Measurement) { m.Nodes[1].Name = "a\nb" }, "nodes[].name", 2},
		"a name that is broken": {func(m *adapterv1.Measurement) { m.Nodes[1].Name = "a\xff" }, "nodes[].name", 2},
		"operations":            {func(m *adapterv1.Measurement) { m.Storage.Reads = 1 << 60 }, "storage.reads", 1},
		"written":               {func(m *adapterv1.Measurement) { m.Storage.WrittenBytes = -5 }, "storage.written_bytes", 1},
		"latency of storage":    {func(m *adapterv1.Measurement) { m.Storage.LatencyMicroseconds = -5 }, "storage.latency_microseconds", 1},
		"received":              {func(m *adapterv1.Measurement) { m.Network.ReceivedBytes = -5 }, "network.received_bytes", 1},
		"loss above 100 %":      {func(m *adapterv1.Measurement) { m.Paths[0].LossPpm = 1_000_001 }, "paths[].loss_ppm", 1},
		"latency below zero":    {func(m *adapterv1.Measurement) { m.Paths[0].LatencyMicroseconds = -1 }, "paths[].latency_microseconds", 1},
		"bandwidth below zero":  {func(m *adapterv1.Measurement) { m.Paths[0].BandwidthBitsPerSecond = -1 }, "paths[].bandwidth_bits_per_second", 1},
		"a path twice":          {func(m *adapterv1.Measurement) { m.Paths[1].Peer = "platform" }, "paths[].peer", 1},
		"too many paths":        {func(m *adapterv1.Measurement) { m.Paths = make([]*adapterv1.Path, 65) }, "paths", 5},
		"a clock in the future": {func(m *adapterv1.Measurement) { m.MeasuredAt = timestamppb.New(now.Add(time.Hour)) }, "measured_at", 19},
		"a clock of 1970":       {func(m *adapterv1.Measurement) { m.MeasuredAt = timestamppb.New(time.Unix(0, 0)) }, "measured_at", 19},
		"no clock at all":       {func(m *adapterv1.Measurement) { m.MeasuredAt = &timestamppb.Timestamp{Nanos: -1, Seconds: -1 << 62} }, "measured_at", 19},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logs := &logBuffer{}
			clock := now
			in := monitor.NewIntake(func() time.Time { return clock }, logs.logger())
			right := whole(now)
			in.TakeMessage("right", right)
			good, err := in.Gather(t.Context())
			must(t, err)
			m := whole(now)
			x.change(m)
			in.TakeMessage("c", m)
			got, err := in.Gather(t.Context())
			must(t, err)
			var counted []string
			for _, s := range got {
				if s.Name == "yunhe_center_figures_refused" {
					counted = append(counted, s.Labels.Get("field"))
				}
				if s.Labels.Get("ai_center_id") != "c" || !s.At.Equal(now) {
					t.Errorf("sample %+v", s)
				}
			}
			if !cmp.Equal(counted, []string{x.field}) || len(good)-(len(got)-len(counted)) != x.lost {
				t.Errorf("refused %v with %d of %d samples, want %s and %d fewer", counted, len(got)-len(counted), len(good), x.field, x.lost)
			}
			if l := logs.lines(""); len(l) != 1 || !strings.Contains(l[0], x.field) || !strings.Contains(l[0], "ai_center_id=c") {
				t.Errorf("logged %q, want one line that names %s", l, x.field)
			}
			// The same again is not said again; its end is.
			clock = clock.Add(20 * time.Second)
			in.TakeMessage("c", m)
			clock = clock.Add(20 * time.Second)
			in.TakeMessage("c", whole(clock))
			if l := logs.lines(""); len(l) != 2 || !strings.Contains(l[1], "right again") {
				t.Errorf("logged %q, want one line more", l)
			}
		})
	}
}

// No more is stored than anyone looks at, however often a driver sends.
func TestIntakePassesOver(t *testing.T) {
	t.Parallel()
	now := time.Now()
	clock := now
	in := monitor.NewIntake(func() time.Time { return clock }, slog.New(slog.DiscardHandler))
	var few, nodes int
	for clock.Before(now.Add(time.Minute)) {
		m := whole(clock)
		if clock.UnixMilli()%2 == 0 { // the two come apart, too
			m.Nodes = nil
		}
		in.TakeMessage("c", m)
		got, err := in.Gather(t.Context())
		must(t, err)
		for _, s := range got {
			switch s.Name {
			case "yunhe_storage_reads_per_second":
				few++
			case "yunhe_node_cpu_busy_ratio":
				nodes++
			}
		}
		clock = clock.Add(333 * time.Millisecond)
	}
	if few < 12 || few > 13 || nodes < 8 || nodes > 10 {
		t.Errorf("a minute of measurements gave %d samples of the center and %d of its two nodes, want 12 or 13 and 8 to 10", few, nodes)
	}
	// A clock that was set back does not keep an intake silent.
	clock = now.Add(-time.Hour)
	in.TakeMessage("c", whole(clock))
	if got, _ := in.Gather(t.Context()); len(got) == 0 {
		t.Error("nothing is taken after the clock was set back")
	}
}

// A process without the samples reads and writes them where they are.
func TestRelay(t *testing.T) {
	t.Parallel()
	store := openStore(t, t.TempDir())
	log := slog.New(slog.DiscardHandler)
	b, err := bus.Open(t.Context(), bus.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"}, log)
	must(t, err)
	t.Cleanup(b.Close)
	relay := monitor.NewRelay(b)
	if _, err := relay.Query(t.Context(), "x", time.Now()); fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "role watch") {
		t.Errorf("query while nobody keeps samples: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- monitor.Serve(ctx, b, store) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	now := time.Now().Truncate(time.Second)
	for { // until it listens
		if _, err = relay.Query(t.Context(), "1", now); fault.KindOf(err) != fault.Unavailable {
			break
		}
	}
	must(t, err)
	const n = 45_000 // more than one message takes
	batch := make([]samples.Sample, n)
	for i := range batch {
		batch[i] = samples.Sample{Name: "x", Labels: samples.L("i", fmt.Sprint(i%5000)), Value: float64(i), At: now.Add(time.Duration(i/5000-9) * time.Second)}
	}
	report, err := relay.Append(t.Context(), batch)
	if err != nil || report.Stored != n {
		t.Fatalf("append: %+v, %v", report, err)
	}
	for _, expr := range []string{"sum(x)", `x{i="7"}[1m]`, "count(x)", "0/0"} {
		direct, err := store.Query(t.Context(), expr, now)
		must(t, err)
		relayed, err := relay.Query(t.Context(), expr, now)
		must(t, err)
		if fmt.Sprint(direct) != fmt.Sprint(relayed) || len(direct) == 0 {
			t.Errorf("%s over the bus: %v, want %v", expr, relayed, direct)
		}
	}
	if wide, err := relay.QueryWide(t.Context(), "x", now, 5000); err != nil || len(wide) != 5000 {
		t.Errorf("a wide query over the bus: %d series, %v", len(wide), err)
	}
	series, err := relay.QueryRange(t.Context(), "count(x)", now.Add(-time.Minute), now, time.Second)
	if err != nil || len(series) != 1 || series[0].Points[len(series[0].Points)-1].Value != 5000 {
		t.Errorf("range over the bus: %v, %v", series, err)
	}
	for _, bad := range []func() error{
		func() error { _, err := relay.Query(t.Context(), "sum(", now); return err },
		func() error { _, err := relay.QueryRange(t.Context(), "x", now, now, 0); return err },
		func() error { _, err := relay.QueryWide(t.Context(), "x", now, 4999); return err },
		func() error { _, err := relay.QueryWide(t.Context(), "x", now, 0); return err },
		func() error {
			_, err := relay.QueryRange(t.Context(), "x", now, now.Add(-time.Hour), time.Second)
			return err
		},
		func() error {
			_, err := relay.Append(t.Context(), []samples.Sample{{Name: "not a name", At: now}})
			return err
		},
		func() error { _, err := b.Request(t.Context(), "yunhe.samples", []byte("rubbish")); return err },
	} {
		if err := bad(); fault.KindOf(err) != fault.Invalid {
			t.Errorf("a wrong request: %v, want invalid", err)
		}
	}
}

// BenchmarkIntake is 120 centers of 100 nodes with 8 accelerators each, whose
// measurements are taken and stored once.
func BenchmarkIntake(b *testing.B) {
	for _, cards := range []int{0, 8} {
		b.Run(fmt.Sprintf("accelerators=%d", cards), func(b *testing.B) {
			store := openStore(b, b.TempDir())
			clock := time.Now().Add(-time.Hour)
			in := monitor.NewIntake(func() time.Time { return clock }, slog.New(slog.DiscardHandler))
			m := whole(clock)
			m.Nodes, m.MeasuredAt = nil, nil
			for i := range 100 {
				n := &adapterv1.NodeUse{Name: fmt.Sprintf("node-%d", i), CpuBusyPermille: int64(i), MemoryBusyBytes: int64(i)}
				for j := range cards {
					n.Accelerators = append(n.Accelerators, &adapterv1.AcceleratorUse{Index: int32(j), BusyPermille: int64(i), MemoryBusyBytes: 1, MemoryTotalBytes: 2})
				}
				m.Nodes = append(m.Nodes, n)
			}
			total := 0
			for b.Loop() {
				clock = clock.Add(15 * time.Second)
				for c := range 120 {
					if in.TakeMessage(fmt.Sprintf("center-%d", c), m); c%40 == 39 {
						total += pour(b, in, store)
					}
				}
			}
			b.ReportMetric(float64(total)/float64(b.N), "samples/round")
		})
	}
}
