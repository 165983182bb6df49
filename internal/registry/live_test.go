package registry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"

	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestJoin(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		_, err := w.CreateSpec(ctx, spec("s", 1))
		must(t, err)
		inv := &adapterv1.Inventory{
			AiCenterId: "c1", Region: "north", Longitude: 116.4074, Latitude: 39.9042, SecurityGrade: 4, StaticMilliwattsPerCpu: 700, ActiveMilliwattsPerCpu: 9000,
			Performance: 1234, Capacity: map[string]int64{core.CPU: 16000, core.Memory: 64 << 30, core.Storage: 1 << 40, "npu": 8},
			Offers: []*adapterv1.SpecOffer{{ResourceSpecId: "s", Price: 42}}, Images: []string{"host"}, Labels: map[string]string{"rack": "7"},
		}
		w.tx(t, func(tx *db.Tx) error { return w.JoinTx(ctx, tx, inv, "gateway") })
		k := w.snapshot(t).Centers[0]
		if *k.Position != (registry.Position{Longitude: 116407400, Latitude: 39904200}) {
			t.Errorf("position = %+v", *k.Position)
		}
		k.Position = nil
		now := w.clock.now().UTC()
		same(t, "joined center", *k, registry.Center{
			ID: "c1", Name: "c1", Region: "north", SecurityGrade: 4, Power: registry.Power{Static: 700, Active: 9000}, Performance: 1234, Adapter: "gateway",
			Labels: map[string]string{"rack": "7"}, CreatedAt: now, UpdatedAt: now, Total: inv.Capacity, Offers: map[string]core.Fen{"s": 42}, Images: map[string]bool{"host": true},
			Live: registry.Live{Status: registry.Unknown, Used: core.Quantities{core.CPU: 0, core.Memory: 0, core.Storage: 0, "npu": 0}},
		})

		// The same again writes nothing.
		before := w.catalog(t).Version
		w.clock.advance(time.Second)
		w.tx(t, func(tx *db.Tx) error { return w.JoinTx(ctx, tx, inv, "gateway") })
		if k := w.center(t, "c1"); w.catalog(t).Version != before || !k.UpdatedAt.Equal(now) {
			t.Errorf("declaring the same again changed version %d to %d, updated at %v", before, w.catalog(t).Version, k.UpdatedAt)
		}
		// Not measured is not zero, and no place is no place.
		inv.Performance, inv.Longitude, inv.Latitude = 0, 0, 0
		w.tx(t, func(tx *db.Tx) error { return w.JoinTx(ctx, tx, inv, "gateway") })
		if k := w.center(t, "c1"); k.Performance != 1234 || k.Position != nil || !k.UpdatedAt.Equal(w.clock.now()) {
			t.Errorf("center without a measured performance and place = %+v", k)
		}

		long := make([]*adapterv1.SpecOffer, 1001)
		for _, x := range []struct {
			what    string
			inv     *adapterv1.Inventory
			adapter string
			paths   []string
		}{
			{"nothing", nil, "", []string{"inventory.ai_center_id", "inventory.name"}},
			{"center", &adapterv1.Inventory{AiCenterId: "a b", Longitude: 500, SecurityGrade: -1, StaticMilliwattsPerCpu: -1}, "gateway\n",
				[]string{"inventory.ai_center_id", "inventory.security_grade", "inventory.static_milliwatts_per_cpu", "inventory.adapter", "inventory.longitude"}},
			{"lists", &adapterv1.Inventory{
				AiCenterId: "a", Capacity: map[string]int64{"cpu": -1}, Images: []string{"ok", "not ok"},
				Offers: []*adapterv1.SpecOffer{{ResourceSpecId: "s", Price: -1}, {ResourceSpecId: "s"}, {}},
			}, "", []string{"inventory.capacity.cpu", "inventory.offers[0].price", "inventory.offers[1].resource_spec_id", "inventory.offers[2].resource_spec_id", "inventory.images[1]"}},
			{"too many offers", &adapterv1.Inventory{AiCenterId: "a", Offers: long}, "", []string{"inventory.offers"}},
			{"too many images", &adapterv1.Inventory{AiCenterId: "a", Images: make([]string, 1001)}, "", []string{"inventory.images"}},
		} {
			err := w.d.Tx(ctx, func(tx *db.Tx) error { return w.JoinTx(ctx, tx, x.inv, x.adapter) })
			wantPaths(t, x.what, err, x.paths...)
		}
	})
}

func TestCapacityFollowsDeclarations(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		d := site("c1")
		d.Capacity["gpu"], d.Capacity["npu"] = 4, 2
		w.declare(t, d)
		q := core.Quantities{core.CPU: 3000, "gpu": 3}
		w.tx(t, func(tx *db.Tx) error {
			ok, err := w.ReserveTx(ctx, tx, "c1", q, 1)
			if !ok {
				t.Error("nothing reserved")
			}
			return err
		})
		d.Capacity = core.Quantities{core.CPU: 2000, core.Memory: 8 << 30}
		w.declare(t, d)
		k := w.snapshot(t).Centers[0]
		same(t, "less than is held: total and used", []any{k.Total, k.Used}, []any{
			core.Quantities{core.CPU: 2000, core.Memory: 8 << 30, "gpu": 0}, core.Quantities{core.CPU: 3000, core.Memory: 0, "gpu": 3},
		})
		if free := []int64{k.Free(core.CPU), k.Free("gpu"), k.Free(core.Memory), k.Free("nothing")}; fmt.Sprint(free) != "[0 0 8589934592 0]" {
			t.Errorf("free = %v", free)
		}
		before := w.catalog(t).Version
		w.declare(t, d)
		if w.catalog(t).Version != before {
			t.Error("declaring the same again changed the catalog")
		}
		w.tx(t, func(tx *db.Tx) error {
			if ok, err := w.ReserveTx(ctx, tx, "c1", core.Quantities{core.CPU: 1}, 1); ok || err != nil {
				t.Errorf("reserve at an overfull center = %v, %v; want nothing", ok, err)
			}
			return w.ReleaseTx(ctx, tx, "c1", q, 0, 1)
		})
		w.declare(t, d)
		same(t, "once nothing holds it", w.snapshot(t).Centers[0].Total, d.Capacity)
	})
}

func TestStatus(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		status := func(what string, want registry.Status) {
			t.Helper()
			if got := w.snapshot(t).Centers[0].Status; got != want {
				t.Errorf("%s: snapshot says %d, want %d", what, got, want)
			}
			if got := w.center(t, "c1").Status; got != want {
				t.Errorf("%s: record says %d, want %d", what, got, want)
			}
		}
		w.declare(t, site("c1"))
		status("never heard", registry.Unknown)
		w.seen(t, "c1")
		status("just heard", registry.Available)
		w.clock.advance(registry.SeenWithin)
		status("at the limit", registry.Available)
		w.clock.advance(time.Microsecond)
		status("past the limit", registry.Unknown)
		w.reopen(t)
		w.seen(t, "c1")
		status("heard again", registry.Available)

		k := w.center(t, "c1")
		k.Drained = true
		_, err := w.UpdateCenter(ctx, k)
		must(t, err)
		status("drained", registry.Unavailable)
		k.Drained = false
		_, err = w.UpdateCenter(ctx, k)
		must(t, err)
		status("in use again", registry.Available)

		w.tx(t, func(tx *db.Tx) error { return w.MarkDownTx(ctx, tx, "c1") })
		w.seen(t, "c1")
		status("down", registry.Unavailable)
		w.declare(t, site("c1"))
		status("declared again", registry.Available)
		for what, f := range map[string]func(tx *db.Tx) error{
			"seen":     func(tx *db.Tx) error { return w.MarkSeenTx(ctx, tx, "c1", "c9") },
			"down":     func(tx *db.Tx) error { return w.MarkDownTx(ctx, tx, "c9") },
			"measured": func(tx *db.Tx) error { return w.MeasureTx(ctx, tx, "c9", registry.Measured{}) },
		} {
			wantKind(t, what, w.d.Tx(ctx, f), fault.NotFound)
		}
	})
}

func TestHeartbeat(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		beat := func(m *adapterv1.Measurement) error {
			return w.d.Tx(ctx, func(tx *db.Tx) error { return w.HeartbeatTx(ctx, tx, "c1", m) })
		}
		w.declare(t, site("c1"))
		at := w.clock.now().Add(-time.Second)
		must(t, beat(&adapterv1.Measurement{
			MeasuredAt: timestamppb.New(at), CpuBusyPermille: 250, MemoryBusyBytes: 1 << 30, MemoryTotalBytes: 8 << 30, StorageBusyBytes: 5, StorageTotalBytes: 9,
		}))
		want := registry.Measured{At: at.UTC(), CPUBusyPermille: 250, MemoryBusy: 1 << 30, MemoryTotal: 8 << 30, StorageBusy: 5, StorageTotal: 9}
		same(t, "measured", w.snapshot(t).Centers[0].Measured, want)
		w.clock.advance(time.Second)
		must(t, beat(nil))
		k := w.center(t, "c1")
		same(t, "a beat without figures keeps them", k.Measured, want)
		if !k.LastSeen.Equal(w.clock.now()) {
			t.Errorf("last seen %v, want %v", k.LastSeen, w.clock.now())
		}
		must(t, beat(&adapterv1.Measurement{}))
		if k := w.center(t, "c1"); !k.Measured.At.Equal(w.clock.now()) {
			t.Errorf("measured without a time at %v, want now", k.Measured.At)
		}
		wantPaths(t, "impossible figures", beat(&adapterv1.Measurement{CpuBusyPermille: 1001, MemoryBusyBytes: -1, MemoryTotalBytes: -1, StorageBusyBytes: -1, StorageTotalBytes: -1}),
			"measurement.cpu_busy_permille", "measurement.memory_busy_bytes", "measurement.memory_total_bytes", "measurement.storage_busy_bytes", "measurement.storage_total_bytes")
		for _, at := range []time.Time{time.Unix(-5, 0), w.clock.now().Add(48 * time.Hour)} {
			wantPaths(t, "impossible time", beat(&adapterv1.Measurement{MeasuredAt: timestamppb.New(at)}), "measurement.measured_at")
		}
	})
}

func TestReserveAll(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for _, id := range []string{"c1", "c2", "c3", "c4"} {
			w.declare(t, site(id))
		}
		reserve := func(claims map[string]registry.Claim) error {
			return w.d.Tx(ctx, func(tx *db.Tx) error { return w.ReserveAllTx(ctx, tx, claims) })
		}
		state := func(what string, want map[string][]int64) {
			t.Helper()
			for id, held := range want {
				k := w.center(t, id)
				same(t, what+" at "+id, []int64{k.Used[core.CPU], k.Used[core.Memory], k.Waiting}, held)
			}
		}
		claim := func(cpu, memory, n int64) registry.Claim {
			return registry.Claim{Amounts: core.Quantities{core.CPU: cpu, core.Memory: memory, "gpu": 0}, Replicas: n}
		}
		must(t, reserve(map[string]registry.Claim{"c1": claim(4000, 1<<30, 4), "c2": claim(1000, 0, 1), "c3": {Replicas: 2}}))
		before := map[string][]int64{"c1": {4000, 1 << 30, 4}, "c2": {1000, 0, 1}, "c3": {0, 0, 2}}
		state("all", before)
		w.tx(t, func(tx *db.Tx) error { _, err := w.SetDrainedTx(ctx, tx, "c3", true); return err })
		w.tx(t, func(tx *db.Tx) error { return w.MarkDownTx(ctx, tx, "c4") })
		for what, claims := range map[string]map[string]registry.Claim{
			"one is full":      {"c1": claim(1, 0, 1), "c2": claim(1000, 0, 1)},
			"one is drained":   {"c2": claim(1000, 0, 1), "c3": claim(1000, 0, 1)},
			"one goes away":    {"c2": claim(1000, 0, 1), "c4": claim(1000, 0, 1)},
			"one is not there": {"c2": claim(1000, 0, 1), "c9": claim(1, 0, 1)},
			"no such resource": {"c2": {Amounts: core.Quantities{core.CPU: 1, "npu": 1}, Replicas: 1}},
		} {
			if err := reserve(claims); fault.KindOf(err) != fault.Conflict {
				t.Errorf("%s: %v, want a conflict", what, err)
			}
			state(what, before)
		}
		if err := reserve(map[string]registry.Claim{"c2": claim(-1, 0, 1)}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("less than nothing: %v", err)
		}
	})
}

func TestReserve(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.declare(t, site("c1"))
		reserve := func(id string, q core.Quantities, n int64) (ok bool, err error) {
			err = w.d.Tx(ctx, func(tx *db.Tx) error { ok, err = w.ReserveTx(ctx, tx, id, q, n); return err })
			return ok, err
		}
		state := func(what string, cpu, memory, running, waiting int64) {
			t.Helper()
			k := w.center(t, "c1")
			same(t, what, []int64{k.Used[core.CPU], k.Used[core.Memory], k.Running, k.Waiting}, []int64{cpu, memory, running, waiting})
		}
		for _, x := range []struct {
			what string
			id   string
			q    core.Quantities
			ok   bool
		}{
			{"more than there is", "c1", core.Quantities{core.CPU: 4001}, false},
			{"the last resource is short", "c1", core.Quantities{core.CPU: 1000, core.Memory: 8<<30 + 1}, false},
			{"a resource it does not have", "c1", core.Quantities{core.CPU: 1000, "gpu": 1}, false},
			{"more than any center has", "c1", core.Quantities{core.CPU: 1 << 60}, false},
			{"an unknown center", "c9", core.Quantities{core.CPU: 1}, false},
		} {
			if ok, err := reserve(x.id, x.q, 3); ok != x.ok || err != nil {
				t.Errorf("%s: %v, %v; want %v", x.what, ok, err, x.ok)
			}
			state(x.what+" takes nothing", 0, 0, 0, 0)
		}
		if ok, err := reserve("c1", core.Quantities{core.CPU: 4000, core.Memory: 1 << 30, "gpu": 0}, 4); !ok || err != nil {
			t.Fatalf("exactly what there is: %v, %v", ok, err)
		}
		state("all cores", 4000, 1<<30, 0, 4)
		if ok, _ := reserve("c1", core.Quantities{core.CPU: 1}, 1); ok {
			t.Error("one more than there is was reserved")
		}
		w.tx(t, func(tx *db.Tx) error { return w.StartedTx(ctx, tx, "c1", 3) })
		state("three started", 4000, 1<<30, 3, 1)
		w.tx(t, func(tx *db.Tx) error {
			return w.ReleaseTx(ctx, tx, "c1", core.Quantities{core.CPU: 2000}, 1, 1)
		})
		state("two ended", 2000, 1<<30, 2, 0)
		w.reopen(t)
		state("after a restart", 2000, 1<<30, 2, 0)

		for what, f := range map[string]func(tx *db.Tx) error{
			"more cores than held":    func(tx *db.Tx) error { return w.ReleaseTx(ctx, tx, "c1", core.Quantities{core.CPU: 2001}, 0, 0) },
			"a resource not held":     func(tx *db.Tx) error { return w.ReleaseTx(ctx, tx, "c1", core.Quantities{"gpu": 1}, 0, 0) },
			"more replicas than run":  func(tx *db.Tx) error { return w.ReleaseTx(ctx, tx, "c1", nil, 3, 0) },
			"more replicas than wait": func(tx *db.Tx) error { return w.ReleaseTx(ctx, tx, "c1", nil, 0, 1) },
			"an unknown center":       func(tx *db.Tx) error { return w.ReleaseTx(ctx, tx, "c9", nil, 0, 0) },
			"more starts than wait":   func(tx *db.Tx) error { return w.StartedTx(ctx, tx, "c1", 1) },
		} {
			if err := w.d.Tx(ctx, f); err == nil || fault.KindOf(err) != fault.Internal {
				t.Errorf("%s: %v, want an unclassified error", what, err)
			}
			state(what+" changes nothing", 2000, 1<<30, 2, 0)
		}
		for what, f := range map[string]func(tx *db.Tx) error{
			"reserve less than nothing": func(tx *db.Tx) error {
				_, err := w.ReserveTx(ctx, tx, "c1", core.Quantities{core.CPU: -1}, 1)
				return err
			},
			"reserve for minus one":     func(tx *db.Tx) error { _, err := w.ReserveTx(ctx, tx, "c1", nil, -1); return err },
			"release less than nothing": func(tx *db.Tx) error { return w.ReleaseTx(ctx, tx, "c1", core.Quantities{core.CPU: -1}, 0, 0) },
			"start minus one":           func(tx *db.Tx) error { return w.StartedTx(ctx, tx, "c1", -1) },
		} {
			wantKind(t, what, w.d.Tx(ctx, f), fault.Invalid)
		}

		k := w.center(t, "c1")
		k.Drained = true
		_, err := w.UpdateCenter(ctx, k)
		must(t, err)
		if ok, err := reserve("c1", core.Quantities{core.CPU: 1}, 1); ok || err != nil {
			t.Errorf("a drained center: %v, %v; want nothing reserved", ok, err)
		}
	})
}

// hold is what a worker of the property test holds at a center.
type hold struct {
	center           string
	q                core.Quantities
	running, waiting int64
}

// TestNeverMoreThanThereIs lets workers reserve, start and release at random
// and at once. Watchers and the end state check 0 <= used <= total; in the
// end what is held is what the workers hold.
func TestNeverMoreThanThereIs(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		const workers, steps = 4, 30
		ctx := t.Context()
		centers := []string{"c1", "c2"}
		for _, id := range centers {
			d := site(id)
			d.Capacity = core.Quantities{core.CPU: 10, core.Memory: 20, "gpu": 3}
			w.declare(t, d)
		}
		check := func(what string) {
			s, err := w.Snapshot(ctx)
			if err != nil {
				t.Errorf("%s: %v", what, err)
				return
			}
			for _, k := range s.Centers {
				for name, used := range k.Used {
					if used < 0 || used > k.Total[name] {
						t.Errorf("%s: %s of %s is %d of %d", what, name, k.ID, used, k.Total[name])
					}
				}
			}
		}
		held := make([][]hold, workers)
		var reserved, refused int64
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range workers {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			wg.Go(func() {
				for range steps {
					h, ok, err := step(ctx, w, r, held[i], centers)
					if err != nil && fault.KindOf(err) != fault.Conflict {
						t.Errorf("worker %d: %v", i, err)
						return
					}
					held[i] = h
					mu.Lock()
					if ok {
						reserved++
					} else {
						refused++
					}
					mu.Unlock()
				}
			})
		}
		done := make(chan struct{})
		var watch sync.WaitGroup
		watch.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					check("meanwhile")
				}
			}
		})
		wg.Wait()
		close(done)
		watch.Wait()
		check("in the end")
		for _, id := range centers {
			want, running, waiting := core.Quantities{core.CPU: 0, core.Memory: 0, "gpu": 0}, int64(0), int64(0)
			for _, hs := range held {
				for _, h := range hs {
					if h.center == id {
						for name, n := range h.q {
							want[name] += n
						}
						running, waiting = running+h.running, waiting+h.waiting
					}
				}
			}
			k := w.center(t, id)
			same(t, "held at "+id, []any{k.Used, k.Running, k.Waiting}, []any{want, running, waiting})
		}
		if reserved == 0 || refused == 0 {
			t.Errorf("%d steps succeeded and %d did not: the test tests nothing", reserved, refused)
		}
	})
}

// step does one thing in one transaction and returns what the worker holds
// after it; ok is false if a reservation was refused.
func step(ctx context.Context, w *world, r *rand.Rand, held []hold, centers []string) (_ []hold, ok bool, err error) {
	held = append([]hold(nil), held...)
	if len(held) > 0 && r.IntN(2) == 0 {
		i := r.IntN(len(held))
		h := held[i]
		if h.waiting > 0 && r.IntN(2) == 0 {
			if err := w.d.Tx(ctx, func(tx *db.Tx) error { return w.StartedTx(ctx, tx, h.center, 1) }); err != nil {
				return held, false, err
			}
			held[i].waiting, held[i].running = h.waiting-1, h.running+1
			return held, true, nil
		}
		if err := w.d.Tx(ctx, func(tx *db.Tx) error { return w.ReleaseTx(ctx, tx, h.center, h.q, h.running, h.waiting) }); err != nil {
			return held, false, err
		}
		return append(held[:i], held[i+1:]...), true, nil
	}
	// Two centers in one transaction, as a plan does: either may be refused.
	var got []hold
	wants := []hold{}
	for _, c := range centers {
		wants = append(wants, hold{center: c, waiting: 1 + r.Int64N(3), q: core.Quantities{core.CPU: r.Int64N(6), core.Memory: 1 + r.Int64N(12), "gpu": r.Int64N(2)}})
	}
	err = w.d.Tx(ctx, func(tx *db.Tx) error {
		got = nil
		for _, h := range wants {
			ok, err := w.ReserveTx(ctx, tx, h.center, h.q, h.waiting)
			if err != nil {
				return err
			}
			if ok {
				got = append(got, h)
			}
		}
		return nil
	})
	if err != nil {
		return held, false, err
	}
	return append(held, got...), len(got) == len(wants), nil
}

func TestCatalogIsCached(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.declare(t, site("c1"))
		_, err := w.CreateSpec(ctx, spec("s", 1))
		must(t, err)
		other := w.another(t)
		first := w.catalog(t)
		if again := w.catalog(t); again != first {
			t.Error("an unchanged catalog was read again")
		}
		// Live changes are none of the catalog's.
		w.seen(t, "c1")
		w.tx(t, func(tx *db.Tx) error {
			_, err := w.ReserveTx(ctx, tx, "c1", core.Quantities{core.CPU: 1}, 1)
			return err
		})
		w.clock.advance(time.Second)
		if again := w.catalog(t); again != first {
			t.Error("a heartbeat or a reservation changed the catalog")
		}
		if first.Centers["c1"].Total[core.CPU] != 4000 || first.Centers["c1"].Used != nil {
			t.Errorf("center in the catalog = %+v, want totals and nothing live", first.Centers["c1"])
		}

		theirs, err := other.Catalog(ctx)
		must(t, err)
		// A change is seen at once here, within a second there; what was handed out stays as it was.
		_, err = w.CreateSpec(ctx, spec("t", 1))
		must(t, err)
		if now := w.catalog(t); now.Specs["t"] == nil || first.Specs["t"] != nil || now.Version <= first.Version {
			t.Errorf("specifications after a change = %v, before it %v", now.Specs, first.Specs)
		}
		if still, err := other.Catalog(ctx); err != nil || still != theirs {
			t.Errorf("another process read the catalog again within a second (%v)", err)
		}
		if now, err := other.Fresh(ctx); err != nil || now.Specs["t"] == nil {
			t.Errorf("another process asked for what is fresh: %v, %v", now, err)
		}
		_, err = w.CreateSpec(ctx, spec("u", 1))
		must(t, err)
		w.clock.advance(time.Second)
		if now, err := other.Catalog(ctx); err != nil || now.Specs["u"] == nil {
			t.Errorf("another process after a second: %v, %v", now, err)
		}
		// A change that is rolled back is none.
		before := w.catalog(t)
		if err := w.d.Tx(ctx, func(tx *db.Tx) error {
			if err := w.DeclareTx(ctx, tx, site("c2")); err != nil {
				return err
			}
			return fault.New(fault.Conflict, "no")
		}); fault.KindOf(err) != fault.Conflict {
			t.Fatal(err)
		}
		if w.catalog(t) != before {
			t.Error("a change that was rolled back changed the catalog")
		}
	})
}

// Whoever wrote sees it, however many read and write at once.
func TestCatalogShowsOwnWrites(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				for j := range 5 {
					id := fmt.Sprintf("s%d-%d", i, j)
					if _, err := w.CreateSpec(ctx, spec(id, 1)); err != nil {
						if fault.KindOf(err) != fault.Conflict {
							t.Errorf("create %s: %v", id, err)
						}
						continue
					}
					c, err := w.Catalog(ctx)
					if err != nil || c.Specs[id] == nil {
						t.Errorf("catalog after creating %s lacks it (%v)", id, err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestCatalogReportsTrouble(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.catalog(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w.declare(t, site("c1"))
		if _, err := w.Catalog(ctx); err == nil {
			t.Error("a stale catalog was handed out when it could not be read anew")
		}
		if c := w.catalog(t); c.Centers["c1"] == nil {
			t.Error("the next call did not read it")
		}
	})
}

// A snapshot's centers are the caller's to count on.
func TestSnapshotStays(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for _, id := range []string{"c2", "c1", "c3"} {
			w.declare(t, site(id))
		}
		s := w.snapshot(t)
		var ids []string
		for _, k := range s.Centers {
			ids = append(ids, k.ID)
		}
		same(t, "order", ids, []string{"c1", "c2", "c3"})
		if !s.At.Equal(w.clock.now()) {
			t.Errorf("snapshot of %v, want %v", s.At, w.clock.now())
		}
		w.tx(t, func(tx *db.Tx) error {
			ok, err := w.ReserveTx(t.Context(), tx, "c1", core.Quantities{core.CPU: 1000}, 1)
			if !ok {
				t.Error("there is no room at c1")
			}
			return err
		})
		s.Centers[2] = nil // the list is the caller's
		if k := w.snapshot(t).Centers[0]; k.Used[core.CPU] != 1000 || k.Waiting != 1 {
			t.Errorf("after a reservation: %+v", k)
		}
		if k := s.Centers[0]; k.Used[core.CPU] != 0 || k.Total[core.CPU] != 4000 || k.Waiting != 0 {
			t.Errorf("the snapshot before it has become %+v", k)
		}
		// A center another process deleted is gone although the catalog still has it.
		must(t, w.another(t).DeleteCenter(t.Context(), "c2"))
		if s := w.snapshot(t); len(s.Centers) != 2 {
			t.Errorf("snapshot after a deletion elsewhere has %d centers", len(s.Centers))
		}
	})
}

// TestSnapshotFollows changes centers at random, here and in another process,
// also by transactions that are open meanwhile, and expects each snapshot to be
// as one that is read from nothing.
func TestSnapshotFollows(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx, r := t.Context(), rand.New(rand.NewPCG(3, 9))
		ids := []string{"c1", "c2", "c3", "c4", "c5"}
		other := w.another(t)
		for _, id := range ids {
			w.declare(t, site(id))
		}
		check := func(what string, fresh *registry.Service) {
			t.Helper()
			w.clock.advance(time.Second) // what others did to the catalog is seen
			got, err := w.Snapshot(ctx)
			must(t, err)
			want, err := fresh.Snapshot(ctx)
			must(t, err)
			if len(got.Centers) != len(want.Centers) {
				t.Fatalf("%s: %d centers, want %d", what, len(got.Centers), len(want.Centers))
			}
			for i, k := range want.Centers {
				same(t, what+": "+k.ID, *got.Centers[i], *k)
			}
		}
		any := func() string { return ids[r.IntN(len(ids))] }
		// change does one thing; what is not possible leaves all as it is.
		change := func(s *registry.Service, tx *db.Tx) error {
			id := any()
			var err error
			switch r.IntN(8) {
			case 0, 1:
				_, err = s.ReserveTx(ctx, tx, id, core.Quantities{core.CPU: r.Int64N(2000), core.Memory: 1 << 20}, 1)
			case 2:
				err = s.ReserveAllTx(ctx, tx, map[string]registry.Claim{id: {Amounts: core.Quantities{core.CPU: r.Int64N(900)}, Replicas: 2}})
			case 3:
				err = s.StartedTx(ctx, tx, id, 1)
			case 4:
				err = s.ReleaseTx(ctx, tx, id, core.Quantities{core.CPU: r.Int64N(900)}, r.Int64N(2), 0)
			case 5:
				err = s.MeasureAllTx(ctx, tx, map[string]registry.Measured{id: {CPUBusyPermille: r.Int64N(1000)}})
			case 6:
				err = s.MarkDownTx(ctx, tx, id)
			default:
				d := site(id)
				if d.Capacity["gpu"] = r.Int64N(3); d.Capacity["gpu"] == 0 {
					delete(d.Capacity, "gpu")
				}
				err = s.DeclareTx(ctx, tx, d)
			}
			return err
		}
		impossible := errors.New("left as it is")
		for step := range 120 {
			s, fresh := []*registry.Service{w.Service, other}[r.IntN(2)], w.another(t)
			err := w.d.Tx(ctx, func(tx *db.Tx) error {
				for range 1 + r.IntN(3) {
					if change(s, tx) != nil {
						return impossible
					}
				}
				if r.IntN(3) == 0 { // it is open while snapshots are taken
					check(fmt.Sprintf("step %d, meanwhile", step), fresh)
				}
				return nil
			})
			if err != nil && !errors.Is(err, impossible) && fault.KindOf(err) != fault.Conflict { // that is said when it ends
				t.Fatal(err)
			}
			switch r.IntN(20) {
			case 0:
				w.clock.advance(registry.SeenWithin)
			case 1:
				if id := any(); s.DeleteCenter(ctx, id) == nil {
					check("after "+id+" was deleted", w.another(t))
					w.declare(t, site(id))
				}
			}
			check(fmt.Sprintf("step %d", step), w.another(t))
		}
	})
}
