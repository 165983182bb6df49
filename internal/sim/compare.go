package sim

import (
	"slices"

	"yunhe.dev/yunhe/internal/fault"
)

// Comparison is several runs over one input, side by side. Its JSON is stable.
type Comparison struct {
	Input    Summary   `json:"input"`
	Baseline string    `json:"baseline,omitempty"` // name of the result the others are set against
	Results  []*Result `json:"results"`
	// Best are the names of the results with the best value of each measure,
	// where they differ.
	Best map[string][]string `json:"best"`
}

// Summary is what was played.
type Summary struct {
	Nodes    int     `json:"nodes,omitempty"`
	Centers  int     `json:"centers,omitempty"`
	Cards    int64   `json:"cards"`
	Jobs     int     `json:"jobs"`
	Tenants  int     `json:"tenants"`
	Fill     float64 `json:"fill,omitempty"` // cards asked for, as a multiple of those there are
	Seeds    int     `json:"seeds,omitempty"`
	Made     string  `json:"generated,omitempty"` // how the input was made up
	CardSum  float64 `json:"card_hours"`          // that jobs ask for at reference speed, of those that end
	Endless  int     `json:"endless_jobs,omitempty"`
	Arriving float64 `json:"arriving_seconds"` // from the first arrival to the last
}

// Summarize says what an input has.
func Summarize(in *Input) Summary {
	s := Summary{Nodes: len(in.Nodes), Centers: len(in.Centers), Jobs: len(in.Jobs)}
	for _, cards := range in.supplies() {
		s.Cards += cards
	}
	tenants := map[string]bool{}
	var sum exact
	first, last := Forever, int64(0)
	for i := range in.Jobs {
		j := &in.Jobs[i]
		tenants[j.Tenant] = true
		if j.Run == Forever {
			s.Endless++
		} else {
			sum.add(j.Demand(), j.Run)
		}
		first, last = min(first, j.Arrival), max(last, j.Arrival)
	}
	s.Tenants, s.CardSum = len(tenants), sum.over(1000, Hour)
	s.Arriving = float64(max(last-first, 0)) / float64(Second)
	return s
}

// Measure is a figure by which results are compared.
type Measure struct {
	ID    string // as in JSON, with dots
	Title string
	Unit  string
	More  bool // more is better
	Of    func(*Result) (float64, bool)
}

// Measures lists them in the order in which they are shown.
func Measures() []Measure {
	known := func(f func(*Result) float64) func(*Result) (float64, bool) {
		return func(r *Result) (float64, bool) { return f(r), true }
	}
	maybe := func(f func(*Result) *float64) func(*Result) (float64, bool) {
		return func(r *Result) (float64, bool) {
			if v := f(r); v != nil {
				return *v, true
			}
			return 0, false
		}
	}
	filled := func(r *Result) bool { return len(r.Loads) > 0 }
	played := func(f func(*Result) float64) func(*Result) (float64, bool) {
		return func(r *Result) (float64, bool) { return f(r), !filled(r) }
	}
	return []Measure{
		{"jobs.done", "Jobs done", "", true, played(func(r *Result) float64 { return float64(r.Jobs.Done) })},
		{"allocation_percent.mean", "Allocated", "%", true, known(func(r *Result) float64 { return r.Allocation.Mean })},
		{"left_over_percent", "Left over at the end", "%", false, func(r *Result) (float64, bool) { return r.LeftOver, filled(r) }},
		{"filled.left_over_percent", "Left over at 130 % arrived load", "%", false, func(r *Result) (float64, bool) {
			if r.Filled == nil {
				return 0, false
			}
			return r.Filled.LeftOver, true
		}},
		{"fragmentation_percent.mean", "Fragmented", "%", false, func(r *Result) (float64, bool) {
			if r.Fragmentation == nil {
				return 0, false
			}
			if filled(r) {
				return r.Fragmentation.End, true
			}
			return r.Fragmentation.Mean, true
		}},
		{"waiting_seconds.mean", "Waiting, mean", "s", false, played(func(r *Result) float64 { return r.Waiting.Mean })},
		{"waiting_seconds.p50", "Waiting, median", "s", false, played(func(r *Result) float64 { return r.Waiting.P50 })},
		{"waiting_seconds.p95", "Waiting, 95 %", "s", false, played(func(r *Result) float64 { return r.Waiting.P95 })},
		{"waiting_seconds.p99", "Waiting, 99 %", "s", false, played(func(r *Result) float64 { return r.Waiting.P99 })},
		{"completion_seconds.mean", "Completion, mean", "s", false, played(func(r *Result) float64 { return r.Completion.Mean })},
		{"completion_seconds.p99", "Completion, 99 %", "s", false, played(func(r *Result) float64 { return r.Completion.P99 })},
		{"bounded_slowdown.mean", "Slowdown, mean", "", false, played(func(r *Result) float64 { return r.Slowdown.Mean })},
		{"bounded_slowdown.p95", "Slowdown, 95 %", "", false, played(func(r *Result) float64 { return r.Slowdown.P95 })},
		{"fairness.jain", "Fairness (Jain)", "", true, played(func(r *Result) float64 { return r.Fairness.Jain })},
		{"cost_fen", "Cost", "yuan", false, func(r *Result) (float64, bool) {
			if r.CostFen == nil || filled(r) {
				return 0, false
			}
			return float64(*r.CostFen) / 100, true
		}},
		{"energy_kwh", "Energy", "kWh", false, maybe(func(r *Result) *float64 { return r.Energy })},
		{"work_energy_kwh", "Energy of the work", "kWh", false, maybe(func(r *Result) *float64 { return r.WorkEnergy })},
		{"carbon_kg", "Carbon", "kg", false, maybe(func(r *Result) *float64 { return r.Carbon })},
		{"preemptions", "Taken back", "", false, func(r *Result) (float64, bool) { return float64(r.Preemptions), r.Preemptions > 0 }},
		{"lost_card_hours", "Lost by that", "card h", false, func(r *Result) (float64, bool) { return r.LostCardHours, r.Preemptions > 0 }},
		{"failures.interrupted", "Interrupted by failures", "", false, func(r *Result) (float64, bool) { return float64(r.Failures.Interrupted), r.Failures.Outages > 0 }},
		{"failures.lost_card_hours", "Lost by failures", "card h", false, func(r *Result) (float64, bool) {
			return r.Failures.LostCardHours, r.Failures.Interrupted > 0
		}},
		{"transfers.gib", "Data brought", "GiB", false, func(r *Result) (float64, bool) { return r.Transfers.GiB, r.Transfers.Count > 0 }},
		{"transfers.seconds", "Waited for data", "s", false, func(r *Result) (float64, bool) { return r.Transfers.Seconds, r.Transfers.Count > 0 }},
		{"transfers.fee_fen", "Fees for data", "yuan", false, func(r *Result) (float64, bool) {
			return float64(r.Transfers.FeeFen) / 100, r.Transfers.FeeFen > 0
		}},
		{"deadlines.missed", "Deadlines missed", "", false, func(r *Result) (float64, bool) { return float64(r.Deadlines.Missed), r.Deadlines != Met{} }},
		{"seconds", "Simulated time", "s", false, played(func(r *Result) float64 { return r.Seconds })},
	}
}

// Compare sets results beside each other. A result that was stopped early is
// never the best.
func Compare(in Summary, results []*Result, baseline string) *Comparison {
	c := &Comparison{Input: in, Results: results, Baseline: baseline, Best: map[string][]string{}}
	for _, m := range Measures() {
		var best float64
		var names []string
		n, differ := 0, false
		for _, r := range results {
			v, ok := m.Of(r)
			if !ok || r.Partial {
				continue
			}
			n++
			switch {
			case len(names) == 0 || m.More && v > best || !m.More && v < best:
				differ = differ || len(names) > 0
				best, names = v, []string{r.Name}
			case v == best:
				names = append(names, r.Name)
			default:
				differ = true
			}
		}
		if n > 1 && differ {
			c.Best[m.ID] = names
		}
	}
	return c
}

// IsBest reports whether a result has the best value of a measure.
func (c *Comparison) IsBest(m Measure, r *Result) bool { return slices.Contains(c.Best[m.ID], r.Name) }

// Merge is what several seeds of one policy came to: the first in full, with
// what was left over by seed, whose mean is that of the merged result.
func Merge(seeds []*Result) *Result {
	out := *seeds[0]
	out.Loads = slices.Clone(out.Loads)
	if len(seeds) == 1 {
		return &out
	}
	sum := 0.0
	for _, r := range seeds {
		out.BySeed = append(out.BySeed, r.LeftOver)
		sum += r.LeftOver
		out.Partial = out.Partial || r.Partial
	}
	out.LeftOver = sum / float64(len(seeds))
	for i := range out.Loads {
		l := &out.Loads[i]
		l.Allocation, l.Fragmentation = 0, 0
		n := 0.0
		for _, r := range seeds {
			if i < len(r.Loads) {
				n++
				l.Allocation += r.Loads[i].Allocation
				l.Fragmentation += r.Loads[i].Fragmentation
			}
		}
		l.Allocation, l.Fragmentation = l.Allocation/n, l.Fragmentation/n
	}
	return &out
}

// Rescale stretches or shrinks the time between arrivals so that the jobs ask,
// over the time in which they come, for load times the cards there are at
// reference speed. It returns fault.Invalid where that cannot be done.
func (in *Input) Rescale(load float64) error {
	var asked exact
	first, last, cards := Forever, int64(0), int64(0)
	for i := range in.Jobs {
		j := &in.Jobs[i]
		if j.Run != Forever {
			asked.add(j.Demand(), j.Run)
		}
		first, last = min(first, j.Arrival), max(last, j.Arrival)
	}
	for _, n := range in.supplies() {
		cards += n
	}
	want := asked.over(1000) / (load * float64(cards))
	if !(load > 0) || last <= first || !(want >= 1 && want < float64(MaxTime)/2) {
		return fault.New(fault.Invalid, "a load of %v cannot be made of these jobs: they must ask for cards, end, and come at different times", load)
	}
	by := want / float64(last-first)
	for i := range in.Jobs {
		j := &in.Jobs[i]
		at := int64(float64(j.Arrival-first) * by)
		if j.Deadline > 0 {
			j.Deadline += at - j.Arrival
		}
		j.Arrival = at
	}
	return nil
}
