package registry_test

import (
	"slices"
	"strings"
	"testing"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/accelerators"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
)

// What the makers publish of a center's slowest model counts until it was
// measured; of a model that nobody knows, nothing is said.
func TestSpeeds(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		inv := &adapterv1.Inventory{AiCenterId: "c1", Capacity: map[string]int64{core.CPU: 1000, "gpu": 16}}
		w.tx(t, func(tx *db.Tx) error { return w.JoinTx(ctx, tx, inv, "gateway") })
		other := w.another(t)
		of := func(model, resource string) *adapterv1.Node {
			n := machine(model)
			n.Accelerators[0].Model, n.Accelerators[0].Resource = model, resource
			return n
		}
		want := func(speeds ...registry.Speed) {
			t.Helper()
			for _, s := range []*registry.Service{w.Service, other} {
				c, err := s.Fresh(ctx)
				must(t, err)
				if got := c.Centers["c1"].Speeds; !slices.Equal(got, speeds) {
					t.Errorf("catalog: %v\nwant %v", got, speeds)
				}
			}
			if got := w.center(t, "c1").Speeds; !slices.Equal(got, speeds) {
				t.Errorf("center: %v\nwant %v", got, speeds)
			}
		}
		gpu := func(p accelerators.Precision, milli int64, measured bool) registry.Speed {
			return registry.Speed{Kind: "gpu", Precision: p, Milli: milli, Measured: measured}
		}
		want()
		w.sync(t, "c1", true, []*adapterv1.Node{of("NVIDIA H200", "gpu")})
		want(gpu("FP16", 3171, false), gpu("FP32", 3436, false), gpu("FP64", 3436, false), gpu("INT8", 3171, false))
		a100 := of("NVIDIA A100-SXM4-80GB", "gpu")
		w.sync(t, "c1", false, []*adapterv1.Node{a100})
		reference := []registry.Speed{gpu("FP16", 1000, false), gpu("FP32", 1000, false), gpu("FP64", 1000, false), gpu("INT8", 1000, false)}
		want(reference...)
		w.sync(t, "c1", false, []*adapterv1.Node{of("Odd 1", "gpu"), of("Odd 2", "npu")})
		want()
		w.sync(t, "c1", true, []*adapterv1.Node{a100})
		want(reference...)

		set := func(id string, speeds ...registry.Speed) error {
			return w.d.Tx(ctx, func(tx *db.Tx) error { return w.SetSpeedsTx(ctx, tx, id, speeds) })
		}
		fp32, ok := registry.MeasuredSpeed("gpu", accelerators.FP32, 18.72)
		fp64, ok2 := registry.MeasuredSpeed("gpu", accelerators.FP64, 9.7)
		if _, more := registry.MeasuredSpeed("gpu", accelerators.INT8, 1); !ok || !ok2 || more {
			t.Fatal("FP32 and FP64 have a reference, INT8 has none")
		}
		must(t, set("c1", fp32, fp64))
		want(gpu("FP16", 1000, false), gpu("FP32", 960, true), gpu("FP64", 1000, true), gpu("INT8", 1000, false))
		fp32.Milli = 950
		must(t, set("c1", fp32)) // the later measurement stands in the place of all of the former
		want(gpu("FP16", 1000, false), gpu("FP32", 950, true), gpu("FP64", 1000, false), gpu("INT8", 1000, false))

		for _, x := range []struct {
			id     string
			speed  registry.Speed
			kind   fault.Kind
			naming string
		}{
			{"none", fp32, fault.NotFound, "none"}, {"", fp32, fault.Invalid, "ai_center_id"}, {"c1", gpu("FP31", 1, true), fault.Invalid, "speeds[0].precision"},
			{"c1", gpu("FP32", 0, true), fault.Invalid, "speeds[0].milli"}, {"c1", registry.Speed{Precision: "FP32", Milli: 1}, fault.Invalid, "speeds[0].kind"},
		} {
			if err := set(x.id, x.speed); fault.KindOf(err) != x.kind || !strings.Contains(err.Error(), x.naming) {
				t.Errorf("%q %v: %v, want %s naming %s", x.id, x.speed, err, x.kind, x.naming)
			}
		}
		must(t, w.DeleteCenter(ctx, "c1"))
	})
}
