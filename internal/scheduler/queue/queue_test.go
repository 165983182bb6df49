package queue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

const (
	second = int64(1_000_000)
	minute = 60 * second
	hour   = 60 * minute
)

// rig is a queue over one place, with what is free there.
type rig struct {
	t testing.TB
	*queue.Queue
}

func newRig(t testing.TB, c queue.Config, capacity queue.Amounts) *rig {
	t.Helper()
	q, err := queue.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.SetPlace("p", capacity); capacity != nil && err != nil {
		t.Fatal(err)
	}
	return &rig{t, q}
}

func (r *rig) put(ws ...queue.Work) {
	r.t.Helper()
	for _, w := range ws {
		if err := r.Put(w); err != nil {
			r.t.Fatal(err)
		}
	}
}

// round starts whatever the places have room for, by amounts, and returns what
// started, in order.
func (r *rig) round(now int64, free queue.Amounts) string {
	r.t.Helper()
	var out []string
	round := r.Queue.Round(now)
	for o, ok := round.Next(); ok; o, ok = round.Next() {
		n := o.Most
		for name, a := range o.Amounts {
			if a > 0 {
				n = min(n, int(free[name]/a))
			}
		}
		if n >= o.Least {
			n = round.Allows("p", n)
		}
		if n < o.Least {
			round.Refuse("full", nil)
			continue
		}
		for name, a := range o.Amounts {
			free[name] -= a * int64(n)
		}
		out = append(out, o.ID)
		if err := round.Start([]queue.Hold{{Place: "p", Members: n}}); err != nil {
			r.t.Fatal(err)
		}
	}
	return strings.Join(out, " ")
}

func job(id, tenant string, arrival int64, gpu int64) queue.Work {
	return queue.Work{ID: id, Tenant: tenant, Arrival: arrival, Amounts: queue.Amounts{"gpu": gpu}}
}

// TestFairShare: two tenants of equal weight take turns; the one of weight 2
// gets two for each of the others'.
func TestFairShare(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Config{Tenants: []queue.Tenant{{Name: "a"}, {Name: "b", Weight: 2}}}, queue.Amounts{"gpu": 9})
	for i := range 9 {
		r.put(job(fmt.Sprintf("a%d", i), "a", int64(i), 1), job(fmt.Sprintf("b%d", i), "b", int64(100+i), 1))
	}
	// Shares of 9: a0 (0, first to come), b0 (0 against 1/9), b1 (1/18 against
	// 1/9), then 1/9 each: a1 came first, b2, b3, and so on.
	if got, want := r.round(1000, queue.Amounts{"gpu": 9}), "a0 b0 b1 a1 b2 b3 a2 b4 b5"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	works := []queue.Work{job("x", "a", 3, 1), job("y", "a", 1, 1), job("z", "b", 2, 1), job("w", "b", 2, 1)}
	works[0].Priority = 5
	for _, c := range []struct {
		cfg  queue.Config
		want string
	}{
		{queue.Config{Order: queue.FirstCome}, "y w z x"},
		{queue.Config{Order: queue.PriorityOrder}, "x y w z"},
		{queue.Config{}, "w x y z"},                    // equal shares: x's place is by its arrival, 3
		{queue.Config{StrictClasses: true}, "x w y z"}, // then a has 1/10, b 0; then both 1/10, and y came first
		{queue.Config{Ageing: queue.Ageing{Step: 1, Max: 1}}, "w x y z"},
	} {
		r := newRig(t, c.cfg, queue.Amounts{"gpu": 10})
		for _, w := range works {
			r.put(w)
		}
		s := r.round(100, queue.Amounts{"gpu": 10})
		r2 := newRig(t, c.cfg, queue.Amounts{"gpu": 10})
		for _, w := range slices.Backward(works) {
			r2.put(w)
		}
		if s2 := r2.round(100, queue.Amounts{"gpu": 10}); s != s2 || s != c.want {
			t.Errorf("%+v: started %q, and %q in reverse, want %q", c.cfg, s, s2, c.want)
		}
	}
}
