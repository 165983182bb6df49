package registry_test

import (
	"testing"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
)

// What was measured outlives declarations, and what an operator stated outlives
// measurements.
func TestSetPerformance(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		inv := &adapterv1.Inventory{AiCenterId: "c1", Performance: 700, Capacity: map[string]int64{core.CPU: 1000}}
		declare := func() { w.tx(t, func(tx *db.Tx) error { return w.JoinTx(ctx, tx, inv, "gateway") }) }
		set := func(milli int64, force bool) (applied bool) {
			w.tx(t, func(tx *db.Tx) (err error) {
				applied, err = w.SetPerformanceTx(ctx, tx, "c1", milli, force)
				return err
			})
			return applied
		}
		want := func(milli int64, from string) {
			t.Helper()
			got := ""
			w.tx(t, func(tx *db.Tx) (err error) { got, err = w.PerformanceFromTx(ctx, tx, "c1"); return err })
			if k := w.center(t, "c1"); k.Performance != milli || got != from {
				t.Errorf("factor %d, %s; want %d, %s", k.Performance, got, milli, from)
			}
		}
		declare()
		want(700, registry.PerformanceDeclared)
		if !set(1300, false) {
			t.Error("a measured factor does not replace a declared one")
		}
		inv.Performance = 800
		declare()
		want(1300, registry.PerformanceMeasured)
		k := w.center(t, "c1")
		k.Performance = 2000
		_, err := w.UpdateCenter(ctx, k)
		must(t, err)
		if set(1400, false) {
			t.Error("a measured factor replaces one that an operator stated")
		}
		want(2000, registry.PerformanceOperator)
		if !set(1400, true) {
			t.Error("not applied by force")
		}
		want(1400, registry.PerformanceMeasured)
		for id, kind := range map[string]fault.Kind{"none": fault.NotFound, "": fault.Invalid} {
			err := w.d.Tx(ctx, func(tx *db.Tx) error { _, err := w.SetPerformanceTx(ctx, tx, id, 1, true); return err })
			if fault.KindOf(err) != kind {
				t.Errorf("center %q: %v, want %s", id, err, kind)
			}
		}
	})
}
