package registry_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
)

func TestCreateCenter(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		in := registry.Center{
			ID: "east-1", Region: "east", Position: registry.NewPosition(121.473701, -31.2), SecurityGrade: 5, Power: registry.Power{Static: 800, Active: 12000},
			Performance: 1100, Adapter: "manual", Labels: map[string]string{"tier": "gold", "empty": ""}, Total: core.Quantities{core.CPU: 8000, core.Memory: 1 << 34, "gpu": 2},
		}
		got, err := w.CreateCenter(ctx, in)
		must(t, err)
		want := in
		want.Name, want.CreatedAt, want.UpdatedAt = "east-1", w.clock.now().UTC(), w.clock.now().UTC()
		want.Used, want.Status = core.Quantities{core.CPU: 0, core.Memory: 0, "gpu": 0}, registry.Unknown
		if got.Position == nil || *got.Position != (registry.Position{Longitude: 121473701, Latitude: -31200000}) {
			t.Errorf("position = %v", got.Position)
		}
		got.Position, want.Position = nil, nil
		same(t, "created center", got, want)

		w.reopen(t)
		again := w.center(t, "east-1")
		again.Position = nil
		same(t, "after a restart", again, want)
		_, err = w.CreateCenter(ctx, in)
		wantKind(t, "taken ID", err, fault.Exists)
	})
}

func TestCreateCenterRejects(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		many := map[string]string{}
		for i := range 33 {
			many[strings.Repeat("l", i+1)] = ""
		}
		for _, x := range []struct {
			what  string
			in    registry.Center
			paths []string
		}{
			{"nothing", registry.Center{}, []string{"center.ai_center_id", "center.name"}},
			{"long", registry.Center{ID: strings.Repeat("i", 33), Name: strings.Repeat("n", 64), Region: strings.Repeat("r", 64)}, []string{"center.ai_center_id", "center.name", "center.region"}},
			{"out of range", registry.Center{ID: "a", SecurityGrade: 6, Power: registry.Power{Static: -1, Active: 1 << 40}, Performance: -1, Position: registry.NewPosition(180.1, -90.1)},
				[]string{"center.security_grade", "center.power.static_milliwatts_per_cpu", "center.power.active_milliwatts_per_cpu", "center.performance", "center.geometry.longitude", "center.geometry.latitude"}},
			{"not numbers", registry.Center{ID: "a", Position: registry.NewPosition(math.NaN(), math.Inf(-1))}, []string{"center.geometry.longitude", "center.geometry.latitude"}},
			{"labels", registry.Center{ID: "a", Labels: map[string]string{"": "x", "a\nb": "", "ok": strings.Repeat("v", 64), strings.Repeat("n", 64): ""}}, []string{"center.labels", "center.labels", "center.labels", "center.labels.ok"}},
			{"too many labels", registry.Center{ID: "a", Labels: many}, []string{"center.labels"}},
			{"capacity", registry.Center{ID: "a", Total: core.Quantities{core.CPU: -1, "GPU": 1, "npu": 1<<53 + 1}}, []string{"center.resources", "center.resources.cpu", "center.resources.npu"}},
			{"control characters", registry.Center{ID: "a\x00", Name: "a\x00", Region: "\x7f"}, []string{"center.ai_center_id", "center.name", "center.region"}},
		} {
			_, err := w.CreateCenter(t.Context(), x.in)
			wantPaths(t, x.what, err, x.paths...)
		}
		if rows, _, err := w.ListCenters(t.Context(), "", 0, ""); err != nil || len(rows) != 0 {
			t.Errorf("centers = %v, %v; want none", rows, err)
		}
	})
}

func TestGetRejects(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for what, get := range map[string]func(id string) error{
			"get center":    func(id string) error { _, err := w.GetCenter(ctx, id); return err },
			"get spec":      func(id string) error { _, err := w.GetSpec(ctx, id); return err },
			"get image":     func(id string) error { _, err := w.GetImage(ctx, id); return err },
			"delete center": func(id string) error { return w.DeleteCenter(ctx, id) },
			"delete spec":   func(id string) error { return w.DeleteSpec(ctx, id) },
			"delete image":  func(id string) error { return w.DeleteImage(ctx, id) },
			"update center": func(id string) error { _, err := w.UpdateCenter(ctx, registry.Center{ID: id, Name: "n"}); return err },
		} {
			wantKind(t, what+" unknown", get("nowhere"), fault.NotFound)
			for _, bad := range []string{"", "a b", "a\x00", strings.Repeat("a", 33), "é"} {
				wantKind(t, what+" "+bad, get(bad), fault.Invalid)
			}
		}
	})
}

func TestLists(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		var want []string
		for _, id := range []string{"c3", "c1", "c5", "c2", "c4"} {
			d := site(id)
			if id > "c3" {
				d.Center.Region = "south"
			}
			w.declare(t, d)
			_, err := w.CreateSpec(ctx, registry.NewSpec{ID: "s" + id, Quantity: map[string]string{core.CPU: "1", core.Memory: "1Gi"}, Offers: []registry.Offer{{CenterID: id, Price: 5}}})
			must(t, err)
			_, err = w.CreateImage(ctx, registry.Image{ID: "i" + id, Centers: []string{id}})
			must(t, err)
			want = append(want, id)
		}
		slices.Sort(want)
		collect := func(size int32, list func(size int32, token string) ([]string, string, error)) (all []string) {
			token := ""
			for {
				ids, next, err := list(size, token)
				must(t, err)
				if len(ids) > int(size) {
					t.Fatalf("page of %d has %d rows", size, len(ids))
				}
				all = append(all, ids...)
				if token = next; token == "" {
					return all
				}
			}
		}
		for size := int32(1); size <= 6; size++ {
			same(t, "centers", collect(size, func(size int32, token string) (ids []string, _ string, _ error) {
				rows, next, err := w.ListCenters(ctx, "", size, token)
				for _, r := range rows {
					if r.Total[core.CPU] != 4000 {
						t.Errorf("center %s has total %v", r.ID, r.Total)
					}
					ids = append(ids, r.ID)
				}
				return ids, next, err
			}), want)
			same(t, "centers of a region", collect(size, func(size int32, token string) (ids []string, _ string, _ error) {
				rows, next, err := w.ListCenters(ctx, "south", size, token)
				for _, r := range rows {
					ids = append(ids, r.ID)
				}
				return ids, next, err
			}), want[3:])
			same(t, "specifications", collect(size, func(size int32, token string) (ids []string, _ string, _ error) {
				rows, next, err := w.ListSpecs(ctx, size, token)
				for _, r := range rows {
					same(t, "offers of "+r.ID, r.Offers, []registry.Offer{{CenterID: r.ID[1:], Price: 5}})
					ids = append(ids, r.ID[1:])
				}
				return ids, next, err
			}), want)
			same(t, "images", collect(size, func(size int32, token string) (ids []string, _ string, _ error) {
				rows, next, err := w.ListImages(ctx, size, token)
				for _, r := range rows {
					same(t, "centers of "+r.ID, r.Centers, []string{r.ID[1:]})
					ids = append(ids, r.ID[1:])
				}
				return ids, next, err
			}), want)
		}
		for _, bad := range []func() error{
			func() error { _, _, err := w.ListCenters(ctx, "", 1001, ""); return err },
			func() error { _, _, err := w.ListCenters(ctx, "a\x00", 0, ""); return err },
			func() error { _, _, err := w.ListSpecs(ctx, -1, ""); return err },
			func() error { _, _, err := w.ListImages(ctx, 0, "junk"); return err },
			func() error { _, _, err := w.ListImages(ctx, 0, core.PageToken("a\x00")); return err },
		} {
			wantKind(t, "bad list", bad(), fault.Invalid)
		}
	})
}

func TestUpdateCenter(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.declare(t, site("c1"))
		k := w.center(t, "c1")

		// Draining alone protects nothing else from declarations.
		w.clock.advance(time.Second)
		k.Drained = true
		got, err := w.UpdateCenter(ctx, k)
		must(t, err)
		if !got.Drained || got.Status != registry.Unavailable || !got.UpdatedAt.Equal(w.clock.now()) || got.Adapter != "gateway" {
			t.Errorf("drained center = %+v", got)
		}
		d := site("c1")
		d.Center.Name, d.Center.SecurityGrade = "Declared later", 3
		w.declare(t, d)
		if k = w.center(t, "c1"); k.Name != "Declared later" || k.SecurityGrade != 3 || !k.Drained {
			t.Errorf("center declared after draining = %+v", k)
		}

		// What an operator decided stays; what they do not decide follows.
		k.Name, k.SecurityGrade, k.Drained, k.Labels = "Chosen", 1, false, map[string]string{"by": "operator"}
		_, err = w.UpdateCenter(ctx, k)
		must(t, err)
		d.Center.Region, d.Center.Adapter, d.Capacity = "west", "other", core.Quantities{core.CPU: 9000, core.Memory: 1 << 30}
		w.declare(t, d)
		w.reopen(t)
		w.declare(t, d)
		k = w.center(t, "c1")
		if k.Name != "Chosen" || k.SecurityGrade != 1 || k.Region != "north" || k.Labels["by"] != "operator" || k.Drained {
			t.Errorf("edited center after a declaration = %+v", k)
		}
		if k.Adapter != "other" || k.Total[core.CPU] != 9000 {
			t.Errorf("adapter and capacity of an edited center = %s, %v; want those declared", k.Adapter, k.Total)
		}

		_, err = w.UpdateCenter(ctx, registry.Center{ID: "c1", Drained: true})
		wantPaths(t, "half a record", err, "center.name")
		before := w.catalog(t).Version
		_, err = w.UpdateCenter(ctx, k)
		must(t, err)
		if after := w.catalog(t).Version; after != before {
			t.Errorf("an update that changes nothing counts as a change")
		}
	})
}

func TestDeleteCenter(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		d := site("c1")
		d.Offers, d.Images = []registry.SpecPrice{{SpecID: "s", Price: 1}}, []string{"host"}
		w.declare(t, d)
		_, err := w.CreateSpec(ctx, spec("s", 5))
		must(t, err)
		_, err = w.CreateImage(ctx, registry.Image{ID: "own", CenterID: "c1"})
		must(t, err)
		q := core.Quantities{core.CPU: 1000}
		w.tx(t, func(tx *db.Tx) error {
			ok, err := w.ReserveTx(ctx, tx, "c1", q, 2)
			if !ok {
				t.Error("nothing reserved")
			}
			return err
		})
		wantKind(t, "replicas wait", w.DeleteCenter(ctx, "c1"), fault.Conflict)
		w.tx(t, func(tx *db.Tx) error { return w.StartedTx(ctx, tx, "c1", 2) })
		wantKind(t, "replicas run", w.DeleteCenter(ctx, "c1"), fault.Conflict)
		w.tx(t, func(tx *db.Tx) error { return w.ReleaseTx(ctx, tx, "c1", q, 2, 0) })
		must(t, w.DeleteCenter(ctx, "c1"))
		_, err = w.GetCenter(ctx, "c1")
		wantKind(t, "deleted center", err, fault.NotFound)
		wantKind(t, "deleted twice", w.DeleteCenter(ctx, "c1"), fault.NotFound)

		s := w.snapshot(t)
		if len(s.Centers) != 0 || len(s.Specs["s"].Offers) != 0 || len(s.Images["host"].Centers) != 0 || s.Images["own"].CenterID != "" {
			t.Errorf("left of the center: %+v, %+v, %+v", s.Centers, s.Specs["s"], s.Images)
		}
		w.declare(t, d) // it may come back
		if k := w.snapshot(t).Centers[0]; k.Offers["s"] != 1 || !k.Images["host"] || k.Used[core.CPU] != 0 {
			t.Errorf("center after it came back = %+v", k)
		}
	})
}

func TestCreateSpec(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.declare(t, site("c1"))
		w.declare(t, site("c2"))
		got, err := w.CreateSpec(ctx, registry.NewSpec{
			ID: "a100", Quantity: map[string]string{core.CPU: "500m", core.Memory: "1.5Gi", "gpu": "1", "nvidia.com/mig-1g.5gb": "2"}, ServiceType: "streaming, batch,batch",
			Price: 1_000_000_000_000, Offers: []registry.Offer{{CenterID: "c2", Price: 0}, {CenterID: "c1", Price: 7}},
		})
		must(t, err)
		want := registry.Spec{
			ID: "a100", Name: "a100", Quantity: core.Quantities{core.CPU: 500, core.Memory: 3 << 29, "gpu": 1, "nvidia.com/mig-1g.5gb": 2},
			ServiceTypes: []string{"batch", "streaming"}, Price: 1_000_000_000_000, Offers: []registry.Offer{{CenterID: "c1", Price: 7}, {CenterID: "c2", Price: 0}},
			CreatedAt: w.clock.now().UTC(), UpdatedAt: w.clock.now().UTC(),
		}
		same(t, "created specification", got, want)
		w.reopen(t)
		again, err := w.GetSpec(ctx, "a100")
		must(t, err)
		same(t, "after a restart", again, want)
		_, err = w.CreateSpec(ctx, spec("a100", 1))
		wantKind(t, "taken ID", err, fault.Exists)

		all, err := w.CreateSpec(ctx, spec("any", 1))
		must(t, err)
		same(t, "service types by default", all.ServiceTypes, registry.ServiceTypes())
	})
}

func TestCreateSpecRejects(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.declare(t, site("c1"))
		many := map[string]string{core.CPU: "1", core.Memory: "1Gi"}
		for len(many) < 17 {
			many[strings.Repeat("r", len(many))] = "1"
		}
		offers := func(o ...registry.Offer) registry.NewSpec {
			n := spec("s", 1)
			n.Offers = o
			return n
		}
		for _, x := range []struct {
			what  string
			in    registry.NewSpec
			paths []string
		}{
			{"nothing", registry.NewSpec{}, []string{"spec.resource_spec_id", "spec.resource_quantity.cpu", "spec.resource_quantity.memory"}},
			{"long name and low price", registry.NewSpec{ID: "s", Name: strings.Repeat("n", 64), Price: -1, Quantity: map[string]string{core.CPU: "1", core.Memory: "1"}}, []string{"spec.resource_spec_name", "spec.price"}},
			{"high price", spec("s", 1_000_000_000_001), []string{"spec.price"}},
			{"quantities", registry.NewSpec{ID: "s", Quantity: map[string]string{core.CPU: "0", core.Memory: "-1Gi", "gpu": "0.5", "npu": "", "Big": "1", "x y": "1"}},
				[]string{"spec.resource_quantity", "spec.resource_quantity.cpu", "spec.resource_quantity.gpu", "spec.resource_quantity.memory", "spec.resource_quantity.npu", "spec.resource_quantity"}},
			{"too many resources", registry.NewSpec{ID: "s", Quantity: many}, []string{"spec.resource_quantity"}},
			{"service type", registry.NewSpec{ID: "s", Quantity: map[string]string{core.CPU: "1", core.Memory: "1"}, ServiceType: "batch,fun"}, []string{"spec.service_type"}},
			{"offers", offers(registry.Offer{CenterID: "c1", Price: -1}, registry.Offer{CenterID: "c1"}, registry.Offer{}),
				[]string{"spec.offers[0].price", "spec.offers[1].ai_center_id", "spec.offers[2].ai_center_id"}},
			{"offer nowhere", offers(registry.Offer{CenterID: "c1"}, registry.Offer{CenterID: "c9"}), []string{"spec.offers[1].ai_center_id"}},
		} {
			_, err := w.CreateSpec(t.Context(), x.in)
			wantPaths(t, x.what, err, x.paths...)
		}
	})
}

func TestOffers(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		prices := func() map[string]core.Fen { t.Helper(); return w.snapshot(t).Centers[0].Offers }
		d := site("c1")
		d.Offers = []registry.SpecPrice{{SpecID: "s", Price: 10}, {SpecID: "later", Price: 20}}
		w.declare(t, d)
		_, err := w.CreateSpec(ctx, spec("s", 1))
		must(t, err)
		same(t, "offers declared before the specification", prices(), map[string]core.Fen{"s": 10})
		_, err = w.CreateSpec(ctx, spec("later", 1))
		must(t, err)
		same(t, "with the other specification", prices(), map[string]core.Fen{"later": 20, "s": 10})

		d.Offers = []registry.SpecPrice{{SpecID: "s", Price: 11}}
		w.declare(t, d)
		same(t, "one price changed, one offer dropped", prices(), map[string]core.Fen{"s": 11})

		w.clock.advance(time.Second)
		sp, err := w.SetOffer(ctx, "s", "c1", 99)
		must(t, err)
		if len(sp.Offers) != 1 || sp.Offers[0].Price != 99 || !sp.UpdatedAt.Equal(w.clock.now()) {
			t.Errorf("specification with a set price = %+v", sp)
		}
		w.declare(t, d)
		same(t, "a set price wins", prices(), map[string]core.Fen{"s": 99})
		d.Offers = nil
		w.declare(t, d)
		same(t, "also when no longer declared", prices(), map[string]core.Fen{"s": 99})

		sp, err = w.DeleteOffer(ctx, "s", "c1")
		must(t, err)
		if len(sp.Offers) != 0 {
			t.Errorf("offers after withdrawal = %v", sp.Offers)
		}
		d.Offers = []registry.SpecPrice{{SpecID: "s", Price: 11}, {SpecID: "later", Price: 21}}
		w.declare(t, d)
		same(t, "a withdrawn offer does not come back", prices(), map[string]core.Fen{"later": 21})
		_, err = w.DeleteOffer(ctx, "s", "c1")
		wantKind(t, "withdrawn twice", err, fault.NotFound)
		_, err = w.SetOffer(ctx, "s", "c1", 5)
		must(t, err)
		same(t, "offered again by hand", prices(), map[string]core.Fen{"later": 21, "s": 5})

		// Deleting the specification drops the operator's price, not what the center says.
		must(t, w.DeleteSpec(ctx, "later"))
		must(t, w.DeleteSpec(ctx, "s"))
		same(t, "without specifications", prices(), map[string]core.Fen{})
		for _, id := range []string{"s", "later"} {
			_, err = w.CreateSpec(ctx, spec(id, 1))
			must(t, err)
		}
		same(t, "created anew", prices(), map[string]core.Fen{"later": 21})
		w.declare(t, d)
		same(t, "and declared anew", prices(), map[string]core.Fen{"later": 21, "s": 11})

		_, err = w.SetOffer(ctx, "nothing", "c1", 1)
		wantKind(t, "unknown specification", err, fault.NotFound)
		_, err = w.SetOffer(ctx, "s", "c9", 1)
		wantKind(t, "unknown center", err, fault.NotFound)
		_, err = w.SetOffer(ctx, "", "c 1", -1)
		wantPaths(t, "bad offer", err, "resource_spec_id", "ai_center_id", "price")
		_, err = w.DeleteOffer(ctx, "", "c 1")
		wantPaths(t, "bad withdrawal", err, "resource_spec_id", "ai_center_id")
	})
}

func TestImages(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.declare(t, site("c1"))
		w.declare(t, site("c2"))
		in := registry.Image{
			ID: "torch", Name: "PyTorch", CenterID: "c1", BaseOS: registry.BaseOS{Name: "Ubuntu 24.04", CUDA: "12.4", Driver: "550", Packages: []string{"torch", "numpy"}},
			Framework: "PyTorch", Specs: []string{"s1", "s2"}, Centers: []string{"c2"},
		}
		got, err := w.CreateImage(ctx, in)
		must(t, err)
		in.CreatedAt, in.UpdatedAt = w.clock.now().UTC(), w.clock.now().UTC()
		same(t, "created image", got, in)
		everywhere, err := w.CreateImage(ctx, registry.Image{ID: "any"})
		must(t, err)
		if !everywhere.Everywhere || everywhere.Name != "any" {
			t.Errorf("image without centers = %+v, want it everywhere", everywhere)
		}
		w.reopen(t)
		again, err := w.GetImage(ctx, "torch")
		must(t, err)
		same(t, "after a restart", again, in)
		usable := func() (out []string) {
			for _, k := range w.snapshot(t).Centers {
				for _, id := range []string{"any", "new", "torch"} {
					if k.Images[id] {
						out = append(out, k.ID+" "+id)
					}
				}
			}
			return out
		}
		same(t, "usable", usable(), []string{"c1 any", "c2 any", "c2 torch"})

		// A center adds itself; it neither takes an image from others nor from itself what an operator gave it.
		d1, d2 := site("c1"), site("c2")
		d1.Images = []string{"torch", "any", "new", "new"}
		w.declare(t, d1)
		w.declare(t, d2)
		same(t, "declared", usable(), []string{"c1 any", "c1 new", "c1 torch", "c2 any", "c2 torch"})
		if m, err := w.GetImage(ctx, "any"); err != nil || !m.Everywhere || len(m.Centers) != 0 {
			t.Errorf("image usable everywhere after a declaration = %+v, %v", m, err)
		}
		if m, err := w.GetImage(ctx, "new"); err != nil || m.Everywhere || m.CenterID != "" || m.Name != "new" {
			t.Errorf("image made by a declaration = %+v, %v", m, err)
		}
		d1.Images = nil
		w.declare(t, d1)
		same(t, "no longer declared", usable(), []string{"c1 any", "c2 any", "c2 torch"})

		_, err = w.CreateImage(ctx, registry.Image{ID: "torch"})
		wantKind(t, "taken ID", err, fault.Exists)
		must(t, w.DeleteImage(ctx, "torch"))
		_, err = w.GetImage(ctx, "torch")
		wantKind(t, "deleted image", err, fault.NotFound)
		for _, x := range []struct {
			what  string
			in    registry.Image
			paths []string
		}{
			{"nothing", registry.Image{}, []string{"image.image_id", "image.name"}},
			{"long", registry.Image{ID: "a", Name: strings.Repeat("n", 64), Framework: strings.Repeat("f", 256), BaseOS: registry.BaseOS{Name: strings.Repeat("n", 64), CUDA: "\n", Driver: "\n", Packages: []string{""}}},
				[]string{"image.name", "image.base_os.base_os", "image.base_os.cuda_version", "image.base_os.driver_version", "image.framework", "image.base_os.packages[0]"}},
			{"lists", registry.Image{ID: "a", CenterID: "c 1", Specs: []string{"s s"}, Centers: []string{"c1", "c1"}}, []string{"image.ai_center_id", "image.resource_spec", "image.centers[1]"}},
			{"unknown centers", registry.Image{ID: "a", CenterID: "c8", Centers: []string{"c1", "c9"}}, []string{"image.ai_center_id", "image.centers[1]"}},
			{"too many packages", registry.Image{ID: "a", BaseOS: registry.BaseOS{Packages: make([]string, 257)}}, []string{"image.base_os.packages"}},
		} {
			_, err := w.CreateImage(ctx, x.in)
			wantPaths(t, x.what, err, x.paths...)
		}
	})
}

func TestRecordsInUseStay(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		_, err := w.CreateSpec(ctx, spec("s", 1))
		must(t, err)
		_, err = w.CreateImage(ctx, registry.Image{ID: "m"})
		must(t, err)
		var asked []string
		answer, trouble := true, error(nil)
		w.InUse = func(_ context.Context, tx *db.Tx, kind, id string) (bool, error) {
			if tx == nil {
				t.Error("asked outside of the transaction")
			}
			asked = append(asked, kind+" "+id)
			return answer, trouble
		}
		wantKind(t, "specification in use", w.DeleteSpec(ctx, "s"), fault.Conflict)
		wantKind(t, "image in use", w.DeleteImage(ctx, "m"), fault.Conflict)
		same(t, "questions", asked, []string{"spec s", "image m"})
		trouble = errors.New("boom")
		if err := w.DeleteSpec(ctx, "s"); !errors.Is(err, trouble) {
			t.Errorf("delete while nobody can say = %v", err)
		}
		if _, err := w.GetSpec(ctx, "s"); err != nil {
			t.Errorf("specification after refusals: %v", err)
		}
		answer, trouble = false, nil
		must(t, w.DeleteSpec(ctx, "s"))
		must(t, w.DeleteImage(ctx, "m"))
	})
}

func TestDefaults(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		must(t, w.Defaults(ctx))
		c := w.catalog(t)
		same(t, "small", []any{c.Specs["small"].Quantity, c.Specs["small"].Price}, []any{core.Quantities{core.CPU: 1000, core.Memory: 512 << 20}, core.Fen(100)})
		same(t, "medium", []any{c.Specs["medium"].Quantity, c.Specs["medium"].Price}, []any{core.Quantities{core.CPU: 2000, core.Memory: 2 << 30}, core.Fen(240)})
		if m := c.Images["host"]; m == nil || m.Name != "Host system (read-only)" || m.Everywhere {
			t.Errorf("image host = %+v", m)
		}
		w.declare(t, site("without"))
		d := site("with")
		d.Images = []string{"host"}
		w.declare(t, d)
		s := w.snapshot(t)
		if !s.Centers[0].Images["host"] || s.Centers[1].Images["host"] {
			t.Errorf("host is usable at %v and %v, want only where declared", s.Centers[0], s.Centers[1])
		}
		must(t, w.DeleteSpec(ctx, "small"))
		must(t, w.DeleteImage(ctx, "host"))
		w.reopen(t)
		must(t, w.Defaults(ctx))
		if c := w.catalog(t); c.Specs["small"] != nil || c.Images["host"] != nil || c.Specs["medium"] == nil {
			t.Errorf("after deletion and restart: specifications %v, images %v", c.Specs, c.Images)
		}
	})
}

// What is there already is left alone.
func TestDefaultsMeetExistingRecords(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		_, err := w.CreateSpec(ctx, spec("small", 7))
		must(t, err)
		_, err = w.CreateImage(ctx, registry.Image{ID: "host", Name: "Mine"})
		must(t, err)
		must(t, w.Defaults(ctx))
		if c := w.catalog(t); c.Specs["small"].Price != 7 || c.Images["host"].Name != "Mine" || c.Specs["medium"] == nil {
			t.Errorf("specifications %+v, images %+v", c.Specs["small"], c.Images["host"])
		}
	})
}
