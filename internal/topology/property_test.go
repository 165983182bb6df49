package topology_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/topology"
)

// whole checks in the tables what the package promises: versions of an item
// follow each other without overlap, times only grow, and what a change closed
// begins again at once unless it went.
func (w *world) whole(t testing.TB) {
	t.Helper()
	type row struct {
		from, until, validFrom, validUntil, opened, closed int64
	}
	items, at := map[string][]row{}, map[int64]int64{}
	must(t, w.d.View(t.Context(), func(tx *db.Tx) error {
		if err := tx.Query(t.Context(), `SELECT seq, at FROM topology_revisions`, nil, func(r db.Row) error {
			var seq, when int64
			err := r.Scan(&seq, &when)
			at[seq] = when
			return err
		}); err != nil {
			return err
		}
		return tx.Query(t.Context(), `SELECT item_id, from_seq, until_seq, valid_from, valid_until, opened, closed FROM topology_versions ORDER BY item_id, from_seq`, nil, func(r db.Row) error {
			var id string
			var x row
			err := r.Scan(&id, &x.from, &x.until, &x.validFrom, &x.validUntil, &x.opened, &x.closed)
			items[id] = append(items[id], x)
			return err
		})
	}))
	last := int64(0)
	for _, seq := range slices.Sorted(maps.Keys(at)) {
		if at[seq] <= last {
			t.Errorf("revision %d is not after the one before it", seq)
		}
		last = at[seq]
	}
	if len(at) > 0 && slices.Max(slices.Collect(maps.Keys(at)))-slices.Min(slices.Collect(maps.Keys(at)))+1 != int64(len(at)) {
		t.Errorf("%d revisions with gaps", len(at))
	}
	for id, rows := range items {
		for i, x := range rows {
			if x.validFrom != at[x.from] || x.closed > 0 && x.validUntil != at[x.until] {
				t.Errorf("%s: times %+v are not those of its revisions", id, x)
			}
			if i == 0 {
				if x.opened != 1 {
					t.Errorf("%s begins with a change", id)
				}
				continue
			}
			b := rows[i-1]
			if b.closed == 0 || x.from < b.until || (b.closed == 2) != (x.from == b.until && x.opened == 2) || b.closed == 3 && x.opened != 1 {
				t.Errorf("%s: %+v then %+v", id, b, x)
			}
		}
		if rows[len(rows)-1].closed == 2 {
			t.Errorf("%s changed into nothing", id)
		}
	}
}

// Whatever happens, in whatever order, with a clock that jumps, processes that
// watch at once, restarts and breaks in the middle: history is whole, and each
// time looks as it looked then.
func TestHistoryIsWhole(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		topology.SetMaxEdits(w.Service, 3)
		rng := rand.New(rand.NewPCG(7, uint64(time.Now().UnixNano())))
		have := map[string]map[string]*adapterv1.Node{}
		type moment struct {
			at   time.Time
			tree string
		}
		var moments []moment
		other := w.process(t)
		steps := 60
		for step := range steps {
			for range rng.IntN(4) {
				c := fmt.Sprintf("c%d", rng.IntN(3))
				if have[c] == nil {
					have[c] = map[string]*adapterv1.Node{}
					w.join(t, c, fmt.Sprintf("r%d", rng.IntN(2)))
				}
				n := fmt.Sprintf("n%d", rng.IntN(6))
				switch rng.IntN(4) {
				case 0:
					delete(have[c], n)
				default:
					have[c][n] = machine(n, adapterv1.NodeState(1+rng.IntN(3)))
				}
				w.join(t, c, fmt.Sprintf("r%d", rng.IntN(2)), slices.Collect(maps.Values(have[c]))...)
			}
			// The clock goes on, stands, or goes back.
			w.clock.advance([]time.Duration{time.Second, time.Second, 20 * time.Second, 0, -3 * time.Second}[rng.IntN(5)])
			switch rng.IntN(6) {
			case 0: // two at once
				var wg sync.WaitGroup
				for _, s := range []*topology.Service{w.Service, other} {
					wg.Go(func() {
						if _, err := s.Sync(ctx, true); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
			case 1: // one that is stopped in the middle
				broken, cancel := context.WithCancel(ctx)
				left := rng.IntN(8)
				topology.OnEdit(w.Service, func() {
					if left--; left < 0 {
						cancel()
					}
				})
				_, _ = w.Sync(broken, true)
				topology.OnEdit(w.Service, nil)
				cancel()
			case 2:
				w.reopen(t)
				other = w.process(t)
			}
			if _, err := w.Sync(ctx, true); err != nil {
				t.Fatal(err)
			}
			w.whole(t)
			if t.Failed() {
				t.Fatalf("step %d", step)
			}
			now := w.tree(t, ctx, "", time.Time{}, 4, 0)
			if also := other; also != nil {
				p, err := also.Topology(ctx, "", time.Time{}, 4, 0)
				must(t, err)
				if show(p) != now {
					t.Fatalf("step %d: two processes see\n%s\n%s", step, now, show(p))
				}
			}
			rows, _, _, err := w.Changes(ctx, topology.ChangeFilter{Newest: true}, 1, "")
			must(t, err)
			if len(rows) == 1 {
				moments = append(moments, moment{rows[0].At, now})
			}
		}
		w.clock.advance(time.Hour)
		seen := map[time.Time]string{} // later steps may have seen the same revision
		for _, m := range moments {
			seen[m.at] = m.tree
		}
		for at, tree := range seen {
			if got := w.tree(t, ctx, "", at, 4, 0); got != tree {
				t.Errorf("as of %s:\n%s\nwant\n%s", at, got, tree)
			}
		}
		// The changes, applied one after the other, give what is valid now.
		applied := map[string]string{}
		for token := ""; ; {
			rows, next, _, err := w.Changes(ctx, topology.ChangeFilter{}, 50, token)
			must(t, err)
			for _, c := range rows {
				_, there := applied[c.ID]
				if there != (c.Kind != topology.Added) || (c.After == nil) != (c.Kind == topology.Removed) {
					t.Fatalf("%s of %s, which is there: %v", []string{"", "added", "changed", "removed"}[c.Kind], c.ID, there)
				}
				if delete(applied, c.ID); c.After != nil {
					applied[c.ID] = fmt.Sprint(c.After.Parent, c.After.State)
				}
			}
			if token = next; token == "" {
				break
			}
		}
		p, err := w.Topology(ctx, "", time.Time{}, 4, 5000)
		must(t, err)
		n := 0
		for _, v := range p.Vertices {
			if v.Level == topology.LevelCard || v.ID == "network" {
				continue
			}
			if n++; applied[v.ID] != fmt.Sprint(v.Parent, v.State) {
				t.Errorf("%s is %q by its changes", v.ID, applied[v.ID])
			}
		}
		links := 0
		for id := range applied {
			if strings.HasPrefix(id, "link:") {
				links++
			}
		}
		if n != len(applied)-links || n == 0 {
			t.Errorf("%d vertices, %d by the changes", n, len(applied)-links)
		}
	})
}
