package inventory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory"
)

func outcomes(rs []inventory.Result) string {
	names := []string{"-", "created", "updated", "unchanged", "refused"}
	var out []string
	for _, r := range rs {
		s := fmt.Sprintf("%s %s v%d", r.ID, names[r.Outcome], r.Version)
		for _, v := range r.Violations {
			s += " [" + v.Field + "]"
		}
		if r.ParentMissing {
			s += " parent missing"
		}
		out = append(out, s)
	}
	return strings.Join(out, "\n")
}

func TestApply(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		// Children before their parents, in one batch.
		batch := []inventory.Resource{compute("g1", "n1"), node("n1", "k1"), cloud("k1", "p1"), platform("p1", "")}
		batch[0].Labels = map[string]string{"rack": "1"}
		res, applied, err := w.Apply(ctx, batch, true)
		must(t, err)
		want := "g1 created v1\nn1 created v1\nk1 created v1\np1 created v1"
		if applied || outcomes(res) != want || len(w.ids(t, ctx, inventory.Filter{})) != 0 {
			t.Errorf("dry run: applied %v\n%s\nwant\n%s", applied, outcomes(res), want)
		}
		apply := func(what, want string, batch ...inventory.Resource) {
			t.Helper()
			w.clock.advance(time.Second)
			res, applied, err := w.Apply(ctx, batch, false)
			must(t, err)
			if refused := strings.Contains(want, "refused"); outcomes(res) != want || applied == refused {
				t.Errorf("%s: applied %v\n%s\nwant\n%s", what, applied, outcomes(res), want)
			}
		}
		apply("first", want, batch...)
		if r := w.get(t, ctx, "g1"); r.PlatformID != "p1" || r.Version != 1 {
			t.Errorf("compute resource = %+v", r)
		}
		before := w.get(t, ctx, "g1")
		apply("the same again", "g1 unchanged v1\nn1 unchanged v1\nk1 unchanged v1\np1 unchanged v1", batch...)
		same(t, "after the same again", w.get(t, ctx, "g1"), before)

		batch[0].Labels = map[string]string{"rack": "2"}
		apply("one differs", "g1 updated v2\nn1 unchanged v1\nk1 unchanged v1\np1 unchanged v1\ng2 created v1", append(slices.Clone(batch), compute("g2", "g1"))...)
		same(t, "found by its new label", w.ids(t, ctx, inventory.Filter{Labels: []string{"rack=2"}}), []string{"g1"})

		// One wrong resource refuses all; each says what is wrong with it.
		wrong := compute("g3", "n1")
		wrong.Attributes["chip_type"] = "XPU"
		stale := batch[0]
		stale.Version = 1
		gone := compute("g4", "n1")
		gone.Version = 3
		apply("wrong ones", strings.Join([]string{
			"g3 refused v0 [attributes.chip_type]", "g5 created v1", "g1 refused v0 [version]", "g4 refused v0 [version]", "g6 refused v0 [parent_id]",
			"g7 refused v0 [parent_id] parent missing", "g8 refused v0 [parent_id]", "g5 refused v0 [resource_id]", " refused v0 [resource_id]", "g9 refused v0 [type]",
		}, "\n"), wrong, compute("g5", "n1"), stale, gone, compute("g6", "g3"), compute("g7", "later"), compute("g8", "g7"), compute("g5", "n1"), compute("", "n1"), inventory.Resource{ID: "g9", Type: "x"})
		same(t, "nothing was written", w.ids(t, ctx, inventory.Filter{Type: "compute"}), []string{"g1", "g2"})

		apply("a ring", "a refused v0 [parent_id]\nb refused v0 [parent_id]\nc refused v0 [parent_id]", platform("a", "b"), platform("b", "c"), platform("c", "a"))
		apply("a ring with what is stored", "g1 refused v0 [parent_id]", compute("g1", "g2"))
		apply("a platform that is missing", "x refused v0 [platform_id] parent missing", func() inventory.Resource { r := compute("x", ""); r.PlatformID = "p7"; return r }())
		swap := []inventory.Resource{compute("g2", "n1"), compute("g1", "g2")} // parent and child change places
		swap[1].Labels = map[string]string{"rack": "2"}
		apply("a swap", "g2 updated v2\ng1 updated v3", swap...)

		for what, n := range map[string]int{"none": 0, "too many": inventory.MaxBatch + 1} {
			_, _, err := w.Apply(ctx, make([]inventory.Resource, n), false)
			wantPaths(t, what, err, "resources")
		}
		_, _, err = w.Apply(t.Context(), batch, false)
		wantKind(t, "nobody calls", err, fault.Denied)
	})
}

// Writers of the same resources at once: each batch is there whole or not at
// all, versions count every change, and reading never shows half of one.
func TestApplyConcurrently(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		const writers, rounds, size = 3, 5, 20
		w.create(t, ctx, platform("p1", ""))
		batch := func(mark string) []inventory.Resource {
			out := make([]inventory.Resource, size)
			for i := range out {
				out[i] = compute(fmt.Sprintf("g%02d", i), "p1")
				out[i].Labels = map[string]string{"mark": mark}
			}
			return out
		}
		_, _, err := w.Apply(ctx, batch("start"), false)
		must(t, err)
		var wg sync.WaitGroup
		for k := range writers {
			wg.Go(func() {
				for i := range rounds {
					b := batch(fmt.Sprint(k, "-", i))
					rand.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
					if _, applied, err := w.Apply(ctx, b, false); err != nil || !applied {
						t.Errorf("writer %d: applied %v, %v", k, applied, err)
					}
				}
			})
		}
		done := make(chan struct{})
		wg.Go(func() {
			for {
				rows, _, err := w.List(ctx, inventory.Filter{Type: "compute"}, 100, "")
				if err != nil {
					t.Error(err)
					return
				}
				marks := map[string]bool{}
				for _, r := range rows {
					marks[r.Labels["mark"]] = true
				}
				if len(marks) != 1 || len(rows) != size {
					t.Errorf("a reader sees %d resources of the batches %v", len(rows), marks)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
		go func() {
			defer close(done)
			for {
				if r, err := w.Get(ctx, "g00"); err != nil || r.Version == 1+writers*rounds || t.Context().Err() != nil || t.Failed() {
					return
				}
			}
		}()
		wg.Wait()
		if r := w.get(t, ctx, "g00"); r.Version != 1+writers*rounds {
			t.Errorf("version after %d changes = %d", writers*rounds, r.Version)
		}
	})
}

// Creating the same resource and using one version at once: one wins.
func TestOneWins(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		race := func(what string, lost fault.Kind, do func(i int) error) {
			t.Helper()
			const n = 8
			errs := make([]error, n)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() { errs[i] = do(i) })
			}
			wg.Wait()
			won := 0
			for _, err := range errs {
				if err == nil {
					won++
				} else if fault.KindOf(err) != lost {
					t.Errorf("%s: %v, want kind %s", what, err, lost)
				}
			}
			if won != 1 {
				t.Errorf("%s: %d of %d won", what, won, n)
			}
		}
		race("create", fault.Exists, func(int) error { _, err := w.Create(ctx, platform("p1", "")); return err })
		r := w.get(t, ctx, "p1")
		race("update", fault.Conflict, func(i int) error {
			mine := r
			mine.Name = fmt.Sprint("name ", i)
			_, err := w.Update(ctx, mine)
			return err
		})
		race("delete", fault.NotFound, func(int) error { return w.Delete(ctx, "p1", 0) })
	})
}

// TestModel compares any sequence of changes with a small model of the rules.
func TestModel(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		rng := rand.New(rand.NewPCG(3, 9))
		parents := map[string]string{} // of what exists
		ids := []string{"p0", "p1", "p2", "p3", "p4", "p5"}
		below := func(id, top string) bool {
			for ; id != ""; id = parents[id] {
				if id == top {
					return true
				}
			}
			return false
		}
		for range 150 {
			id, parent := ids[rng.IntN(len(ids))], ids[rng.IntN(len(ids))]
			if rng.IntN(4) == 0 {
				parent = ""
			}
			_, exists := parents[id]
			_, hasParent := parents[parent]
			possible := parent == "" || hasParent
			switch rng.IntN(3) {
			case 0:
				_, err := w.Create(ctx, platform(id, parent))
				if ok := !exists && possible && parent != id; ok != (err == nil) {
					t.Fatalf("create %s below %q in %v: %v", id, parent, parents, err)
				} else if ok {
					parents[id] = parent
				}
			case 1:
				_, err := w.Move(ctx, id, parent)
				if ok := exists && possible && !below(parent, id); ok != (err == nil) {
					t.Fatalf("move %s below %q in %v: %v", id, parent, parents, err)
				} else if ok {
					parents[id] = parent
				}
			case 2:
				err := w.Delete(ctx, id, 0)
				empty := true
				for _, p := range parents {
					empty = empty && p != id
				}
				if ok := exists && empty; ok != (err == nil) {
					t.Fatalf("delete %s of %v: %v", id, parents, err)
				} else if ok {
					delete(parents, id)
				}
			}
			for id, parent := range parents {
				if r := w.get(t, ctx, id); r.ParentID != parent || r.PlatformID != parent {
					t.Fatalf("%s is below %q of platform %q, want %q", id, r.ParentID, r.PlatformID, parent)
				}
			}
		}
	})
}
