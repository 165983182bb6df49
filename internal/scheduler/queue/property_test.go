package queue_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// tree draws tenants, two levels deep at most. Guarantees and limits are of gpu.
func tree(t *rapid.T, guarantees bool) []queue.Tenant {
	n := rapid.IntRange(1, 6).Draw(t, "tenants")
	var out []queue.Tenant
	for i := range n {
		x := queue.Tenant{Name: fmt.Sprintf("t%d", i), Weight: rapid.Int64Range(0, 3).Draw(t, "weight")}
		if i > 0 && rapid.Bool().Draw(t, "below") {
			x.Parent = out[rapid.IntRange(0, i-1).Draw(t, "parent")].Name
		}
		if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
			x.Limit = queue.Amounts{"gpu": rapid.Int64Range(0, 20).Draw(t, "limit")}
		} else if guarantees && rapid.Bool().Draw(t, "borrows") {
			x.Borrowable = queue.Amounts{"gpu": rapid.Int64Range(0, 10).Draw(t, "borrowable")}
		}
		out = append(out, x)
	}
	if guarantees {
		for i := range out { // only of those with nobody below, so that sums hold
			if !slices.ContainsFunc(out, func(x queue.Tenant) bool { return x.Parent == out[i].Name }) && out[i].Limit == nil {
				out[i].Guaranteed = queue.Amounts{"gpu": rapid.Int64Range(0, 6).Draw(t, "guaranteed")}
			}
		}
		for i := range out {
			if out[i].Limit != nil {
				out[i].Limit["gpu"] += 40 // above what those below are guaranteed
			}
		}
	}
	return out
}

func works(t *rapid.T, tenants []queue.Tenant, n int) []queue.Work {
	var out []queue.Work
	for i := range n {
		w := queue.Work{
			ID:       fmt.Sprintf("w%02d", i),
			Tenant:   tenants[rapid.IntRange(0, len(tenants)-1).Draw(t, "tenant")].Name,
			Priority: rapid.Int64Range(0, 2).Draw(t, "priority"),
			Arrival:  rapid.Int64Range(0, 5).Draw(t, "arrival"),
			Amounts:  queue.Amounts{"gpu": rapid.Int64Range(0, 4).Draw(t, "gpu"), "cpu": rapid.Int64Range(1, 4).Draw(t, "cpu")},
			Run:      rapid.Int64Range(0, 4).Draw(t, "run") * minute,
		}
		out = append(out, w)
	}
	return out
}

// model is the queue written down plainly, with rationals, and everything
// computed anew for each start.
type model struct {
	cfg     queue.Config
	total   queue.Amounts
	tenants map[string]queue.Tenant
	used    map[string]queue.Amounts // by tenant, with those below
	waiting []queue.Work
	running map[string]queue.Work
	skipped map[string]bool // in this round
	memo    struct {        // of one decision
		next  map[string]*queue.Work
		parts map[string]map[string]*big.Rat
	}
}

func newModel(cfg queue.Config, total queue.Amounts) *model {
	m := &model{cfg: cfg, total: total, tenants: map[string]queue.Tenant{}, used: map[string]queue.Amounts{"": {}}, running: map[string]queue.Work{}}
	for _, x := range cfg.Tenants {
		m.tenants[x.Name] = x
		m.used[x.Name] = queue.Amounts{}
		m.used["own "+x.Name] = queue.Amounts{}
	}
	return m
}

func (m *model) children(of string) (out []string) {
	for name, x := range m.tenants {
		if x.Parent == of {
			out = append(out, name)
		}
	}
	if len(out) > 0 && of != "" {
		out = append(out, "own "+of)
	}
	return out
}

// path is the tenant of w and all above it.
func (m *model) path(tenant string) (out []string) {
	if len(m.children(tenant)) > 0 {
		out = append(out, "own "+tenant)
	}
	for ; tenant != ""; tenant = m.tenants[tenant].Parent {
		out = append(out, tenant)
	}
	return append(out, "")
}

func (m *model) guaranteed(name string) int64 {
	sum := int64(0)
	for _, c := range m.children(name) {
		sum += m.guaranteed(c)
	}
	return max(sum, m.tenants[name].Guaranteed["gpu"])
}

func (m *model) limit(name string) int64 {
	x := m.tenants[name]
	l := int64(1) << 60
	if n, ok := x.Limit["gpu"]; ok {
		l = n
	}
	if n, ok := x.Borrowable["gpu"]; ok {
		l = min(l, m.guaranteed(name)+n)
	}
	return l
}

func (m *model) add(w queue.Work, sign int64) {
	for _, n := range m.path(w.Tenant) {
		for r, a := range w.Amounts {
			m.used[n][r] += sign * a
		}
	}
}

func (m *model) limited(w queue.Work) bool {
	for _, n := range m.path(w.Tenant) {
		if w.Amounts["gpu"] > 0 && m.used[n]["gpu"]+w.Amounts["gpu"] > m.limit(n) {
			return true
		}
	}
	return false
}

func (m *model) weight(name string) *big.Rat {
	return big.NewRat(max(m.tenants[name].Weight, 1), 1)
}

// parts are what counts of what a tenant holds, of all there is: of one with
// others below it the sum of theirs, each scaled down to the lowest share by
// weight of those with something to try, and one work more.
func (m *model) parts(name string) map[string]*big.Rat {
	if v := m.memo.parts[name]; v != nil {
		return v
	}
	out := map[string]*big.Rat{}
	for r := range m.total {
		out[r] = big.NewRat(m.used[name][r], m.total[r])
	}
	if kids := m.children(name); len(kids) > 0 {
		for r := range out {
			out[r] = new(big.Rat)
		}
		var low *big.Rat
		turn := m.next(name)
		for _, k := range kids {
			if w := m.next(k); w != nil && (low == nil || m.share(k).Cmp(low) < 0) && (!m.cfg.StrictClasses || w.Priority >= turn.Priority) {
				low = m.share(k)
			}
		}
		for _, k := range kids {
			v, scale := m.parts(k), big.NewRat(1, 1)
			if low != nil && top(v).Sign() > 0 {
				to := new(big.Rat).Mul(low, m.weight(k))
				if to.Add(to, m.piece(k)).Cmp(top(v)) < 0 {
					scale.Quo(to, top(v))
				}
			}
			for r, x := range v {
				out[r].Add(out[r], new(big.Rat).Mul(x, scale))
			}
		}
	}
	m.memo.parts[name] = out
	return out
}

// piece is the mean work of a tenant that runs, or the largest of those below.
func (m *model) piece(name string) *big.Rat {
	best := new(big.Rat)
	for _, k := range m.children(name) {
		if x := m.piece(k); x.Cmp(best) > 0 {
			best = x
		}
	}
	n := int64(0)
	for _, w := range m.running {
		if m.path(w.Tenant)[0] == name {
			n++
		}
	}
	if n > 0 {
		best.Quo(top(m.parts(name)), big.NewRat(n, 1))
	}
	return best
}

func top(v map[string]*big.Rat) *big.Rat {
	best := new(big.Rat)
	for _, x := range v {
		if x.Cmp(best) > 0 {
			best = x
		}
	}
	return best
}

func (m *model) share(name string) *big.Rat {
	return new(big.Rat).Quo(top(m.parts(name)), m.weight(name))
}

// next is the work of a tenant, or of those below it, that goes first.
func (m *model) next(name string) *queue.Work {
	w, ok := m.memo.next[name]
	if !ok {
		w = m.find(name)
		m.memo.next[name] = w
	}
	return w
}

func (m *model) find(name string) *queue.Work {
	var best *queue.Work
	var of string
	kids := m.children(name)
	if len(kids) == 0 {
		for i := range m.waiting {
			w := &m.waiting[i]
			if m.path(w.Tenant)[0] != name || m.skipped[w.ID] {
				continue
			}
			if best == nil || cmp.Or(cmp.Compare(best.Priority, w.Priority), cmp.Compare(w.Arrival, best.Arrival), cmp.Compare(w.ID, best.ID)) < 0 {
				best = w
			}
		}
		return best
	}
	entitled := func(name string, w *queue.Work) int {
		g := m.guaranteed(name)
		if g > 0 && w.Amounts["gpu"] > 0 && m.used[name]["gpu"]+w.Amounts["gpu"] <= g {
			return 1
		}
		return 0
	}
	for _, k := range kids {
		w := m.next(k)
		if w == nil {
			continue
		}
		class := 0
		if best != nil && m.cfg.StrictClasses {
			class = cmp.Compare(best.Priority, w.Priority)
		}
		if best == nil || cmp.Or(cmp.Compare(entitled(of, best), entitled(k, w)), class, m.share(k).Cmp(m.share(of)),
			cmp.Compare(w.Arrival, best.Arrival), cmp.Compare(w.ID, best.ID)) < 0 {
			best, of = w, k
		}
	}
	return best
}

// first is what goes first of all, as things are now.
func (m *model) first() *queue.Work {
	m.memo.next, m.memo.parts = map[string]*queue.Work{}, map[string]map[string]*big.Rat{}
	return m.next("")
}

// round starts what fits, and returns it in order.
func (m *model) round(free queue.Amounts) (out []string) {
	m.skipped = map[string]bool{}
	for w := m.first(); w != nil; w = m.first() {
		room := w.Amounts["gpu"] <= free["gpu"] && w.Amounts["cpu"] <= free["cpu"]
		if !room || m.limited(*w) {
			for _, v := range m.waiting { // equal ones are passed over together
				if maps.Equal(v.Amounts, w.Amounts) && (!room || v.Tenant == w.Tenant && v.Priority == w.Priority) {
					m.skipped[v.ID] = true
				}
			}
			continue
		}
		started := *w
		m.waiting = slices.DeleteFunc(m.waiting, func(v queue.Work) bool { return v.ID == started.ID })
		m.running[started.ID] = started
		m.add(started, 1)
		for r, a := range started.Amounts {
			free[r] -= a
		}
		out = append(out, started.ID)
	}
	return out
}

// TestAgainstModel: the same works start in the same order as in the model,
// whatever ends and comes between rounds; no limit is exceeded.
func TestAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		total := queue.Amounts{"gpu": rapid.Int64Range(1, 24).Draw(rt, "gpus"), "cpu": rapid.Int64Range(1, 40).Draw(rt, "cpus")}
		cfg := queue.Config{Tenants: tree(rt, rapid.Bool().Draw(rt, "guarantees")), StrictClasses: rapid.Bool().Draw(rt, "strict"), Backfill: queue.BackfillGreedy}
		m := newModel(cfg, total)
		r := newRig(t, cfg, total)
		free := maps.Clone(total)
		all := works(rt, cfg.Tenants, rapid.IntRange(1, 40).Draw(rt, "works"))
		for i, now := 0, int64(100); i < len(all) || now < 110; now++ {
			k := min(len(all), i+rapid.IntRange(1, 20).Draw(rt, "come"))
			m.waiting = append(m.waiting, all[i:k]...)
			r.put(all[i:k]...)
			i = k
			left := maps.Clone(free)
			want := fmt.Sprint(m.round(free))
			if got := "[" + r.round(now, left) + "]"; got != want {
				rt.Fatalf("at %d: started %s, want %s\ntenants %+v\nworks %+v\nwait %+v run %+v", now, got, want, cfg.Tenants, all, m.waiting, m.running)
			}
			for name := range m.used {
				if u := m.used[name]["gpu"]; u > m.limit(name) {
					rt.Fatalf("%s uses %d, at most %d", name, u, m.limit(name))
				}
			}
			for _, u := range r.Usage(now) {
				if u.Used["gpu"] != m.used[u.Name]["gpu"] || u.Used["cpu"] != m.used[u.Name]["cpu"] {
					rt.Fatalf("%s uses %v, want %v", u.Name, u.Used, m.used[u.Name])
				}
			}
			for _, id := range slices.Sorted(maps.Keys(m.running)) {
				if rapid.IntRange(0, 2).Draw(rt, "ends") > 0 {
					continue
				}
				w := m.running[id]
				m.add(w, -1)
				delete(m.running, id)
				for name, a := range w.Amounts {
					free[name] += a
				}
				if !r.Ended(id, now) {
					rt.Fatalf("%s does not run", id)
				}
			}
		}
	})
}
