package metering_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/metering/rate"
)

// What payers spent in the times between any moments sums to what all their
// records cost, but for what is rounded down where a record lies over an edge;
// and what was recorded until a moment and since it are the whole.
func TestSpent(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := open(t, d)
		rng := rand.New(rand.NewPCG(1, 2))
		whole := map[metering.Payer]int64{}
		edges := int64(0)
		at := func() time.Time { return epoch.Add(time.Duration(rng.Int64N(1000)) * time.Minute) }
		cuts := []time.Time{epoch, epoch.Add(100 * time.Minute), epoch.Add(450 * time.Minute), epoch.Add(900 * time.Minute), {}}
		var middle time.Time
		for i := range 200 {
			r := run("j", i)
			r.TenantID, r.UserName, r.Project = fmt.Sprint("t", i%3), fmt.Sprint("u", i%2), []string{"", "p"}[i%2]
			r.StartedAt = at()
			r.EndedAt = r.StartedAt.Add(time.Duration(rng.Int64N(300)) * time.Minute)
			record(t, d, s, r)
			if i == 100 {
				must(t, d.View(t.Context(), func(tx *db.Tx) error { middle = tx.Now; return nil }))
			}
			micros, err := rate.Cost(r.Price, r.Duration())
			must(t, err)
			whole[metering.Payer{Tenant: r.TenantID, User: r.UserName, Project: r.Project}] += micros
			for _, c := range cuts[1:4] {
				if r.StartedAt.Before(c) && r.EndedAt.After(c) {
					edges++
				}
			}
		}
		must(t, d.View(t.Context(), func(tx *db.Tx) error {
			sum := map[metering.Payer]int64{}
			add := func(q metering.Spent) {
				got, err := s.SpentTx(t.Context(), tx, q)
				must(t, err)
				for p, n := range got {
					sum[p] += n
				}
			}
			add(metering.Spent{From: epoch, RecordedBefore: middle})
			add(metering.Spent{From: epoch, RecordedFrom: middle})
			if !maps.Equal(sum, whole) {
				t.Errorf("recorded before and since: %v, want %v", sum, whole)
			}
			clear(sum)
			for i := range cuts[1:] {
				add(metering.Spent{From: cuts[i], To: cuts[i+1]})
			}
			missing := int64(0)
			for p, n := range whole {
				if missing += n - sum[p]; n < sum[p] {
					t.Errorf("%v spent %d in parts, %d in all", p, sum[p], n)
				}
			}
			if missing > 4*edges { // a record has five parts at most
				t.Errorf("%d micro-yuan are missing, with %d records over edges", missing, edges)
			}
			return nil
		}))
	})
}
