package place_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

func plan(t *rapid.T, s *place.Snapshot, q []place.Work, set *place.Set, o place.Options) *place.Result {
	res, err := place.Plan(s, q, set, o)
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	return res
}

func drawOptions(t *rapid.T) place.Options {
	o := place.Options{Devices: rapid.SampledFrom([]place.DeviceRule{place.BalancedDevices, place.CompactDevices}).Draw(t, "devices")}
	o.Order = rapid.SampledFrom(orders()).Draw(t, "order")
	return o
}

func orders() []place.Order { return []place.Order{nil, firstCome} }

// firstCome places works in order of arrival, whatever their priority.
func firstCome(queue []*place.Work) place.Turn {
	order := make([]int, len(queue))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(queue[a].Arrival, queue[b].Arrival), cmp.Compare(queue[a].ID, queue[b].ID))
	})
	next := -1
	return func(place.Amounts) (int, bool) {
		if next++; next >= len(order) {
			return 0, false
		}
		return order[next], true
	}
}

// TestPlanKeepsCapacity adds up what was placed, independently of the engine.
func TestPlanKeepsCapacity(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, q := genCase(t)
		res := plan(t, s, q, genSet(t), drawOptions(t))
		free := map[string]place.Amounts{}
		idle := map[string]int64{}
		share := map[string]int64{}
		for _, c := range s.Candidates {
			free[c.ID] = maps.Clone(c.Free)
			for spec, o := range c.Offers {
				if o.Idle.Known {
					idle[c.ID+spec] = o.Idle.Value
				}
			}
			for _, d := range c.Devices {
				share[c.ID+d.ID] = d.Free["share"]
			}
		}
		tasks := tasksOf(q)
		for _, p := range res.Placements {
			k := tasks[p.Work+"/"+p.Task]
			if f := free[p.Candidate]; f != nil {
				for name, n := range k.Request {
					if f[name] -= n; f[name] < 0 && n > 0 {
						t.Fatalf("%s has %d %s after %v", p.Candidate, f[name], name, p)
					}
				}
			}
			if n, ok := idle[p.Candidate+k.Spec]; ok {
				if idle[p.Candidate+k.Spec] = n - 1; n < 1 {
					t.Fatalf("%s has no package of %s for %v", p.Candidate, k.Spec, p)
				}
			}
			if d := k.Devices; d != nil {
				if len(p.Devices) != d.Count || len(slices.Compact(slices.Sorted(slices.Values(p.Devices)))) != d.Count {
					t.Fatalf("%d different devices wanted, got %v", d.Count, p.Devices)
				}
				for _, id := range p.Devices {
					if share[p.Candidate+id] -= d.Each["share"]; share[p.Candidate+id] < 0 {
						t.Fatalf("device %s/%s is over its share", p.Candidate, id)
					}
				}
			}
		}
	})
}

func tasksOf(q []place.Work) map[string]place.Task {
	tasks := map[string]place.Task{}
	for _, w := range q {
		for _, k := range w.Tasks {
			tasks[w.ID+"/"+k.ID] = k
		}
	}
	return tasks
}

// TestPlanAccountsForEveryReplicaOnce: placed or left with a reason, never
// both, never twice; gangs whole or not at all.
func TestPlanAccountsForEveryReplicaOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, q := genCase(t)
		res := plan(t, s, q, genSet(t), drawOptions(t))
		seen := map[string]bool{}
		placed := map[string]int{}
		note := func(work, task string, replica int) {
			key := fmt.Sprintf("%s/%s/%d", work, task, replica)
			if seen[key] {
				t.Fatalf("%s twice", key)
			}
			seen[key] = true
		}
		for _, p := range res.Placements {
			note(p.Work, p.Task, p.Replica)
			placed[p.Work]++
			if p.Decision.Chosen != p.Candidate {
				t.Fatalf("%v: the decision chose %q", p, p.Decision.Chosen)
			}
		}
		for _, u := range res.Unplaced {
			note(u.Work, u.Task, u.Replica)
			if u.Reason == "" || u.Decision.Reason != u.Reason || u.Decision.Chosen != "" {
				t.Fatalf("%v: reason %q, decision %q %q", u, u.Reason, u.Decision.Reason, u.Decision.Chosen)
			}
		}
		total := 0
		for _, w := range q {
			n := 0
			for _, k := range w.Tasks {
				n += k.Replicas
			}
			total += n
			if w.Gang && placed[w.ID] != 0 && placed[w.ID] != n {
				t.Fatalf("gang %s has %d of %d", w.ID, placed[w.ID], n)
			}
		}
		if len(seen) != total {
			t.Fatalf("%d of %d replicas accounted for", len(seen), total)
		}
	})
}

// TestPlanIgnoresInputOrder: decisions included, byte for byte.
func TestPlanIgnoresInputOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, q := genCase(t)
		set, o := genSet(t), drawOptions(t)
		want, err := json.Marshal(plan(t, s, q, set, o))
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		s2, q2 := shuffled(r, s, q)
		got, err := json.Marshal(plan(t, s2, q2, set, o))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Fatalf("another order gave another plan\ngot  %s\nwant %s", got, want)
		}
	})
}

// TestPlanWithoutTablesIsTheSame, reasons included.
func TestPlanWithoutTablesIsTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, q := genCase(t)
		set, o := genSet(t), drawOptions(t)
		want := short(plan(t, s, q, set, o))
		o.NoTables = true
		if got := short(plan(t, s, q, set, o)); got != want {
			t.Fatalf("without tables\n%swant\n%s", got, want)
		}
	})
}

// TestDecisionsAreAsIfMadeAlone compares every decision of a plan, which the
// engine makes from what changed, with one made from scratch on a snapshot in
// which the placements before it are facts.
func TestDecisionsAreAsIfMadeAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, q := genCase(t)
		set := genSet(t)
		if rapid.IntRange(0, 3).Draw(t, "veto") == 0 {
			set.Uses[0].Min = rapid.IntRange(1, 100).Draw(t, "least score")
		}
		res := plan(t, s, q, set, place.Options{})
		works := map[string]*place.Work{}
		for i := range q {
			works[q[i].ID] = &q[i]
		}
		now := &place.Snapshot{Links: s.Links, Groups: map[string]map[string]int{}}
		for name, at := range s.Groups {
			now.Groups[name] = maps.Clone(at)
		}
		for i := range q {
			now.Groups[q[i].ID] = maps.Clone(q[i].Placed)
		}
		at := map[string]*place.Candidate{}
		for _, c := range s.Candidates {
			c.Free, c.Offers, c.Devices = maps.Clone(c.Free), maps.Clone(c.Offers), slices.Clone(c.Devices)
			total := maps.Clone(c.Total) // idle shares are of the whole
			c.Total = total
			now.Candidates = append(now.Candidates, c)
		}
		for i := range now.Candidates {
			c := &now.Candidates[i]
			at[c.ID] = c
			for name, n := range c.Free {
				if c.Total != nil {
					c.Total[name] = max(c.Total[name], n)
				}
			}
		}
		for _, p := range res.Placements {
			w := *works[p.Work]
			task := slices.IndexFunc(w.Tasks, func(k place.Task) bool { return k.ID == p.Task })
			want, err := place.Score(now, &w, task, set, place.Options{})
			if err != nil {
				t.Fatal(err)
			}
			same(t, p, want)
			c, k := at[p.Candidate], &w.Tasks[task]
			c.RunningTasks++
			if c.Free != nil {
				for name, n := range k.Request {
					c.Free[name] -= n
				}
			}
			if o, ok := c.Offers[k.Spec]; ok && o.Idle.Known {
				o.Idle.Value--
				c.Offers[k.Spec] = o
			}
			for _, id := range p.Devices {
				d := slices.IndexFunc(c.Devices, func(d place.Device) bool { return d.ID == id })
				c.Devices[d].Free = maps.Clone(c.Devices[d].Free)
				for name, n := range k.Devices.Each {
					c.Devices[d].Free[name] -= n
				}
			}
			placed := maps.Clone(works[p.Work].Placed)
			if placed == nil {
				placed = map[string]int{}
			}
			placed[p.Candidate]++
			works[p.Work].Placed = placed
			for _, name := range append([]string{w.ID}, w.Groups...) {
				if now.Groups[name] == nil {
					now.Groups[name] = map[string]int{}
				}
				now.Groups[name][p.Candidate]++
			}
		}
	})
}

// same compares all that scoring decides.
func same(t *rapid.T, p place.Placement, want *place.Decision) {
	got := p.Decision
	if got.Chosen != want.Chosen || got.Feasible != want.Feasible || got.Load != want.Load {
		t.Fatalf("%s/%s/%d: chose %s of %d under %v, from scratch %s of %d under %v", p.Work, p.Task, p.Replica,
			got.Chosen, got.Feasible, got.Load, want.Chosen, want.Feasible, want.Load)
	}
	for k := range got.Table {
		g, w := got.Table[k], want.Table[k]
		if g.Candidate != w.Candidate || g.Rank != w.Rank || !slices.Equal(g.Scores, w.Scores) ||
			!slices.EqualFunc(g.Values, w.Values, slices.Equal[[]place.Fact]) || len(g.Filtered) != len(w.Filtered) {
			t.Fatalf("%s/%s/%d: row %d is %+v, from scratch %+v", p.Work, p.Task, p.Replica, k, *g.Row, *w.Row)
		}
	}
}

// TestScoresAndTotals checks a table against the definitions in the package
// comment, written down again in rationals.
func TestScoresAndTotals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, w, set := genSnapshot(t), genWork(t, "w"), genSet(t)
		w.Tasks[0].Rules = nil // they do not change scores
		d, err := place.Score(s, &w, 0, set, place.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Table) != len(s.Candidates) {
			t.Fatalf("%d rows for %d candidates", len(d.Table), len(s.Candidates))
		}
		var fit []place.Entry
		for k, e := range d.Table {
			if (len(e.Filtered) == 0) != (e.Rank > 0) || e.Rank != 0 && e.Rank != k+1 || e.Chosen != (e.Candidate == d.Chosen) {
				t.Fatalf("row %d: %+v", k, e)
			}
			if e.Rank > 0 {
				fit = append(fit, e)
			}
		}
		if len(fit) != d.Feasible || (d.Chosen == "") != (len(fit) == 0) || len(fit) > 0 && !fit[0].Chosen {
			t.Fatalf("%d rows fit, %d counted, chosen %q", len(fit), d.Feasible, d.Chosen)
		}
		for u := range set.Uses {
			checkPolicy(t, &set.Uses[u].Policy, u, fit)
		}
		for k, e := range fit {
			checkTotal(t, set, e)
			if k > 0 && set.Evaluator.Compare == nil {
				if p := fit[k-1]; p.Exact.Num < e.Exact.Num || p.Exact.Num == e.Exact.Num && p.Candidate > e.Candidate {
					t.Fatalf("%s ranks before %s", p.Candidate, e.Candidate)
				}
			}
		}
	})
}

func checkPolicy(t *rapid.T, p *place.Policy, u int, fit []place.Entry) {
	sums := make([]int64, len(fit))
	for f := range p.Factors {
		var low, high *big.Rat
		for _, e := range fit {
			if v := e.Values[u][f]; v.Known {
				r := big.NewRat(v.Value, 1)
				if low == nil || r.Cmp(low) < 0 {
					low = r
				}
				if high == nil || r.Cmp(high) > 0 {
					high = r
				}
			}
		}
		for k, e := range fit {
			score := int64(p.Factors[f].Unknown)
			if v := e.Values[u][f]; v.Known && p.Factors[f].Absolute {
				score = v.Value
			} else if v.Known && low.Cmp(high) == 0 {
				score = 100
			} else if v.Known {
				part := new(big.Rat).Sub(big.NewRat(v.Value, 1), low)
				if p.Factors[f].Better == place.Lower {
					part.Sub(high, big.NewRat(v.Value, 1))
				}
				score = halfAway(part.Mul(part.Quo(part, new(big.Rat).Sub(high, low)), big.NewRat(100, 1)))
			}
			sums[k] += score
		}
	}
	for k, e := range fit {
		want := halfAway(big.NewRat(sums[k], int64(len(p.Factors))))
		if got := int64(e.Scores[u]); got != want || got < 0 || got > 100 {
			t.Fatalf("%s scores %d under %s, want %d from %v", e.Candidate, got, p.ID, want, e.Values[u])
		}
	}
}

// checkTotal is eq. (2) in rationals.
func checkTotal(t *rapid.T, set *place.Set, e place.Entry) {
	sum, total := new(big.Rat), new(big.Rat)
	for _, w := range set.Weights() {
		sum.Add(sum, big.NewRat(w, 1))
	}
	for u, w := range set.Weights() {
		share := new(big.Rat).Quo(big.NewRat(w, 1), sum)
		total.Add(total, share.Mul(share, big.NewRat(int64(e.Scores[u]), 1)))
	}
	if total.Cmp(big.NewRat(e.Exact.Num, e.Exact.Den)) != 0 || halfAway(total) != int64(e.Final) {
		t.Fatalf("%s: total %v rounded %d, want %v", e.Candidate, *e.Exact, e.Final, total)
	}
}

// halfAway rounds a number that is at least 0.
func halfAway(r *big.Rat) int64 {
	twice := new(big.Rat).Add(new(big.Rat).Mul(r, big.NewRat(2, 1)), big.NewRat(1, 1))
	return new(big.Int).Quo(twice.Num(), new(big.Int).Mul(twice.Denom(), big.NewInt(2))).Int64()
}

// TestScaledWeightsPlanTheSame: only the ratio of weights matters.
func TestScaledWeightsPlanTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, q := genCase(t)
		set := genSet(t)
		scaled := *set
		scaled.Uses = slices.Clone(set.Uses)
		by := rapid.Int64Range(2, 1_000_000).Draw(t, "by")
		for i := range scaled.Uses {
			scaled.Uses[i].Weight *= by
		}
		want, got := plan(t, s, q, set, place.Options{}), plan(t, s, q, &scaled, place.Options{})
		if short(got) != short(want) {
			t.Fatalf("weights times %d\n%swant\n%s", by, short(got), short(want))
		}
		for k, p := range got.Placements {
			for i, e := range p.Decision.Table {
				if w := want.Placements[k].Decision.Table[i]; e.Final != w.Final {
					t.Fatalf("final of %s is %d, want %d", e.Candidate, e.Final, w.Final)
				}
			}
		}
	})
}

// TestCheaperNeverScoresLess under lowest-price, nor ranks later.
func TestCheaperNeverScoresLess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &place.Snapshot{}
		for i := range rapid.IntRange(1, 6).Draw(t, "candidates") {
			s.Candidates = append(s.Candidates, place.Candidate{
				ID: fmt.Sprintf("c%d", i), Status: place.Available, Free: place.Amounts{},
				Offers: map[string]place.Offer{"s": {PriceFenPerHour: genFact(t, "price", 0, 1000)}},
			})
		}
		w := &place.Work{ID: "w", Tasks: []place.Task{{ID: "t", Replicas: 1, Spec: "s"}}}
		set, err := place.NewSet("price", place.Weighted, []place.Weight{{Policy: "lowest-price", Weight: 1}})
		if err != nil {
			t.Fatal(err)
		}
		row := func(id string) place.Entry {
			d, err := place.Score(s, w, 0, set, place.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return d.Table[slices.IndexFunc(d.Table, func(e place.Entry) bool { return e.Candidate == id })]
		}
		c := &s.Candidates[rapid.IntRange(0, len(s.Candidates)-1).Draw(t, "which")]
		old := c.Offers["s"].PriceFenPerHour
		before := row(c.ID)
		c.Offers["s"] = place.Offer{PriceFenPerHour: place.Known(rapid.Int64Range(0, max(old.Value, 0)).Draw(t, "new price"))}
		if !old.Known {
			c.Offers["s"] = place.Offer{PriceFenPerHour: place.Known(rapid.Int64Range(0, 2000).Draw(t, "first price"))}
		}
		if after := row(c.ID); after.Scores[0] < before.Scores[0] || old.Known && after.Rank > before.Rank {
			t.Fatalf("%s from %v to %v: score %d to %d, rank %d to %d", c.ID, old, c.Offers["s"].PriceFenPerHour,
				before.Scores[0], after.Scores[0], before.Rank, after.Rank)
		}
	})
}

// TestLoadFairnessIsTheVariance scores by the variance itself, in floats.
func TestLoadFairnessIsTheVariance(t *testing.T) {
	t.Parallel()
	set, err := place.NewSet("fair", place.Weighted, []place.Weight{{Policy: "load-fairness", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		s, w := genSnapshot(t), genWork(t, "w")
		w.Tasks[0].Rules = nil
		d, err := place.Score(s, &w, 0, set, place.Options{})
		if err != nil {
			t.Fatal(err)
		}
		variance := func(id string) float64 {
			var sum, n float64
			jobs := func(c place.Candidate) float64 {
				if x := float64(c.RunningTasks + c.WaitingTasks); c.ID != id {
					return x
				} else {
					return x + 1
				}
			}
			for _, c := range s.Candidates {
				sum, n = sum+jobs(c), n+1
			}
			var squares float64
			for _, c := range s.Candidates {
				squares += (jobs(c) - sum/n) * (jobs(c) - sum/n)
			}
			return squares / n
		}
		low, high := math.Inf(1), math.Inf(-1)
		for _, e := range d.Table[:d.Feasible] {
			v := variance(e.Candidate)
			low, high = min(low, v), max(high, v)
		}
		for _, e := range d.Table[:d.Feasible] {
			v := variance(e.Candidate)
			if got := d.Load.Variance(e.Values[0][0].Value); math.Abs(got-v) > 1e-9 {
				t.Fatalf("variance with %s is %g, want %g", e.Candidate, got, v)
			}
			want := 100.0
			if high-low > 1e-9 {
				want = 100 * (high - v) / (high - low)
			}
			if math.Abs(float64(e.Scores[0])-want) > 0.5+1e-6 {
				t.Fatalf("%s scores %d, want %g", e.Candidate, e.Scores[0], want)
			}
		}
	})
}

// TestDecisionSurvivesJSON: what is stored is what was decided.
func TestDecisionSurvivesJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, w, set := genSnapshot(t), genWork(t, "w"), genSet(t)
		d, err := place.Score(s, &w, 0, set, place.Options{})
		if err != nil {
			t.Fatal(err)
		}
		first, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back place.Decision
		if err := json.Unmarshal(first, &back); err != nil {
			t.Fatal(err)
		}
		second, err := json.Marshal(&back)
		if err != nil {
			t.Fatal(err)
		}
		if string(first) != string(second) {
			t.Fatalf("stored   %s\nread back %s", first, second)
		}
	})
}

// TestFlipFlips raises the weight a margin names and expects the runner-up to
// win; exactly at the bound it must not lead.
func TestFlipFlips(t *testing.T) {
	t.Parallel()
	flips := 0
	rapid.Check(t, func(t *rapid.T) {
		s, q, set := genSnapshot(t), []place.Work{genWork(t, "w")}, genSet(t)
		roomy(t, s, q)
		w := q[0]
		set.Evaluator = place.Weighted
		d, err := place.Score(s, &w, 0, set, place.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d.Margin == nil || d.Margin.Flip == nil {
			return
		}
		flips++
		f := d.Margin.Flip
		totals := func(num, den int64) (chosen, runner int64) {
			for _, e := range d.Table {
				if e.Candidate != d.Chosen && e.Candidate != d.Margin.RunnerUp {
					continue
				}
				var sum int64
				for u := range set.Uses {
					weight := set.Uses[u].Weight * den
					if set.Uses[u].Policy.ID == f.Policy {
						weight = num
					}
					sum += weight * int64(e.Scores[u])
				}
				if e.Candidate == d.Chosen {
					chosen = sum
				} else {
					runner = sum
				}
			}
			return chosen, runner
		}
		if c, r := totals(f.Above.Num+1, f.Above.Den); r <= c {
			t.Fatalf("above the bound: %d against %d, margin %+v %+v", c, r, *d.Margin, *f)
		}
		if c, r := totals(f.Above.Num, f.Above.Den); r != c {
			t.Fatalf("at the bound: %d against %d, margin %+v %+v", c, r, *d.Margin, *f)
		}
	})
	if flips == 0 {
		t.Fatal("no drawn case had a flip")
	}
}

// TestWorkThatStaysLeavesNoTrace: without the works of which nothing was
// placed, all others are placed the same. It is what makes the roll-back of a
// gang exact.
func TestWorkThatStaysLeavesNoTrace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, q := genSnapshot(t), genQueue(t)
		roomy(t, s, q)
		set, o := genSet(t), place.Options{NoTables: true}
		res := plan(t, s, q, set, o)
		placed := map[string]bool{}
		for _, p := range res.Placements {
			placed[p.Work] = true
		}
		for _, w := range q { // rules may name it all the same
			if !placed[w.ID] {
				s.Groups[w.ID] = w.Placed
			}
		}
		q = slices.DeleteFunc(q, func(w place.Work) bool { return !placed[w.ID] })
		res.Unplaced = slices.DeleteFunc(res.Unplaced, func(u place.Unplaced) bool { return !placed[u.Work] })
		if got, want := short(plan(t, s, q, set, o)), short(res); got != want {
			t.Fatalf("without them\n%swith them\n%s", got, want)
		}
	})
}

// TestLimitedTablesAreTheTop of full ones, at every decision of a plan.
func TestLimitedTablesAreTheTop(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, q := genCase(t)
		set, o := genSet(t), drawOptions(t)
		full := plan(t, s, q, set, o)
		o.TableRows = rapid.IntRange(1, 4).Draw(t, "rows")
		for i, p := range plan(t, s, q, set, o).Placements {
			want := *full.Placements[i].Decision
			if n := len(want.Table); n > o.TableRows {
				want.Table, want.Omitted = want.Table[:o.TableRows], n-o.TableRows
			}
			a, errA := json.Marshal(p.Decision)
			b, errB := json.Marshal(want)
			if errA != nil || errB != nil || string(a) != string(b) {
				t.Fatalf("%d rows of %s/%s/%d\n%s\nwant\n%s\n%v %v", o.TableRows, p.Work, p.Task, p.Replica, a, b, errA, errB)
			}
		}
	})
}
