package sim

import (
	"cmp"
	"iter"
	"maps"
	"math/big"
	"slices"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

const (
	maxPoints = 240
	maxLeft   = 100
	// floor of the run time in slowdowns: a job of a second that waits ten is
	// not eleven times as bad as one of ten that does.
	floor = 10 * Second
	kWh   = 3_600_000 * 1_000_000_000 // nJ
)

// meter counts during a run.
type meter struct {
	from  int64 // when time began
	now   int64
	cores bool  // there are no cards: cores are counted
	whole int64 // thousandths of cards; of cores where there are none
	held  int64
	most  int64
	total exact // held over the time in which work came or waited
	span  int64 // that time
	cost  exact // milli × fen per hour × µs
	free  exact // card milli × µs without a price
	// work is milli × mW × PUE milli × µs beyond idling, by grams of carbon.
	work     map[place.Fact]*exact
	series   []bin
	width    int64
	tenant   []tally
	waits    []int64
	ends     []int64 // completion times
	slow     []float64
	lost     exact          // by being taken back
	broken   exact          // by failures
	frag     func() float64 // in per cent; nil: not measured
	fragMost float64
}

// bin is a stretch of time.
type bin struct {
	held             float64 // milli × µs
	running, waiting int64
	frag             float64
}

// tally is what is counted of a tenant.
type tally struct {
	jobs, done, preempted int64
	started               int64
	wait, run, stay, card exact
}

// advance moves the time on; what is held is held until then. State is called
// at the beginning of each stretch.
func (m *meter) advance(to int64, more bool, running, waiting int64) {
	if more || waiting > 0 {
		m.span += to - m.now
		m.total.add(m.held, to-m.now)
	}
	for m.now < to {
		k := (m.now - m.from) / m.width
		for k >= maxPoints {
			m.fold()
			k = (m.now - m.from) / m.width
		}
		for int64(len(m.series)) <= k {
			b := bin{running: running, waiting: waiting}
			if m.frag != nil {
				b.frag = m.frag()
				m.fragMost = max(m.fragMost, b.frag)
			}
			m.series = append(m.series, b)
		}
		next := min(to, m.from+(k+1)*m.width)
		m.series[k].held += float64(m.held) * float64(next-m.now)
		m.now = next
	}
}

// fold makes stretches twice as long.
func (m *meter) fold() {
	n := 0
	for i := 0; i < len(m.series); i += 2 {
		b := m.series[i]
		if i+1 < len(m.series) {
			b.held += m.series[i+1].held
		}
		m.series[n] = b
		n++
	}
	m.series, m.width = m.series[:n], 2*m.width
}

func (m *meter) hold(milli int64) {
	m.held += milli
	m.most = max(m.most, m.held)
}

// used counts what a stay at a place cost.
// Held for dt, of which it was at work for busy.
func (m *meter) used(s *Supply, cardMilli, cpuMilli, perHour, dt, busy int64) {
	switch {
	case perHour >= 0: // a specification's price
		m.cost.add(1000*perHour, dt)
	default:
		if s.Price.Known {
			m.cost.add(cardMilli*s.Price.Value, dt)
		} else {
			m.free.add(cardMilli, dt)
		}
		if s.CorePrice.Known {
			m.cost.add(cpuMilli*s.CorePrice.Value, dt)
		}
	}
	e := m.energyOf(s)
	e.add(cardMilli*(s.Busy-s.Idle)*s.pue(), busy)
	e.add(cpuMilli*s.CoreBusy*s.pue(), busy)
}

// energyOf is where the energy drawn where carbon is that of s is counted.
func (m *meter) energyOf(s *Supply) *exact {
	e := m.work[s.Carbon]
	if e == nil {
		if e = (&exact{}); m.work == nil {
			m.work = map[place.Fact]*exact{}
		}
		m.work[s.Carbon] = e
	}
	return e
}

func (s *Supply) pue() int64 {
	if s.PUE.Known {
		return s.PUE.Value
	}
	return 1000
}

// energy of the fleet, and the part that is there because of the work, in kWh;
// nil where no power is stated. Carbon is in kg, nil unless all of it is known.
func (m *meter) energy(f *Fleet) (all, work, carbon *float64) {
	idle, stated := map[place.Fact]*exact{}, false
	for s, cards := range f.supplies() {
		e := idle[s.Carbon]
		if e == nil {
			e = &exact{}
			idle[s.Carbon] = e
		}
		e.add((cards*s.Idle+s.Base)*1000*s.pue(), m.now-m.from)
		stated = stated || s.Busy > 0 || s.Base > 0 || s.CoreBusy > 0
	}
	if !stated {
		return nil, nil, nil
	}
	all, work, carbon = new(float64), new(float64), new(float64)
	for _, g := range slices.SortedFunc(maps.Keys(idle), func(a, b place.Fact) int { return cmp.Compare(a.Value, b.Value) }) {
		busy, sum := 0.0, idle[g].over(1_000_000, kWh)
		if w := m.work[g]; w != nil {
			busy = w.over(1_000_000, kWh)
		}
		*work += busy
		*all += sum + busy
		if carbon != nil && g.Known {
			*carbon += (sum + busy) * float64(g.Value) / 1000
		} else {
			carbon = nil
		}
	}
	return all, work, carbon
}

// supplies are those of all nodes and centers, with the cards there.
func (f *Fleet) supplies() iter.Seq2[*Supply, int64] {
	return func(yield func(*Supply, int64) bool) {
		for i := range f.Nodes {
			if !yield(&f.Nodes[i].Supply, int64(f.Nodes[i].Cards)) {
				return
			}
		}
		for i := range f.Centers {
			if !yield(&f.Centers[i].Supply, f.Centers[i].cards()) {
				return
			}
		}
	}
}

// priced reports whether any price is stated.
func (f *Fleet) priced() bool {
	for s := range f.supplies() {
		if s.Price.Known || s.CorePrice.Known {
			return true
		}
	}
	for i := range f.Centers {
		for _, o := range f.Centers[i].Offers {
			if o.PriceFenPerHour.Known {
				return true
			}
		}
	}
	return false
}

// spreadOfTimes answers the distribution of times in µs, in seconds; it sorts them.
func spreadOfTimes(v []int64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	slices.Sort(v)
	var sum exact
	for _, x := range v {
		sum.add(x, 1)
	}
	at := func(p int) float64 { return float64(v[rank(len(v), p)]) / float64(Second) }
	return Spread{Mean: sum.over(int64(len(v)), Second), P50: at(50), P95: at(95), P99: at(99), Most: at(100)}
}

func spreadOfRatios(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	slices.Sort(v)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	at := func(p int) float64 { return v[rank(len(v), p)] }
	return Spread{Mean: sum / float64(len(v)), P50: at(50), P95: at(95), P99: at(99), Most: at(100)}
}

// rank is the index of the percentile p of n values, by nearest rank.
func rank(n, p int) int { return max((n*p+99)/100, 1) - 1 }

// Jain is the index of fairness of shares; 1 for none.
func jain(x []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(x)) * squares)
}

func per(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return 100 * a / b
}

// fill writes what was counted into a result.
func (m *meter) fill(r *Result, f *Fleet, names []string) {
	span := m.now - m.from
	r.Seconds = float64(span) / float64(Second)
	r.Allocation = Share{Mean: 100 * m.total.over(m.whole, m.span), Most: per(float64(m.most), float64(m.whole)), End: per(float64(m.held), float64(m.whole))}
	r.LeftOver = per(float64(m.whole-m.held), float64(m.whole))
	r.Waiting, r.Completion, r.Slowdown = spreadOfTimes(m.waits), spreadOfTimes(m.ends), spreadOfRatios(m.slow)
	r.WaitCDF = []float64{}
	for p := 0; p <= 100 && len(m.waits) > 0; p++ {
		r.WaitCDF = append(r.WaitCDF, float64(m.waits[rank(len(m.waits), p)])/float64(Second))
	}
	if f.priced() || r.Transfers.FeeFen > 0 {
		fen := round(m.cost.ratOver(1000, Hour)) + r.Transfers.FeeFen
		r.CostFen, r.Unpriced = &fen, m.free.over(1000, Hour)
	}
	r.Energy, r.WorkEnergy, r.Carbon = m.energy(f)
	r.LostCardHours, r.Failures.LostCardHours = m.lost.over(1000, Hour), m.broken.over(1000, Hour)
	m.points(r)
	m.tenants(r, names)
}

func (m *meter) points(r *Result) {
	r.Series = []Point{}
	mean := 0.0
	for i, b := range m.series {
		at := int64(i) * m.width
		p := Point{At: float64(at) / float64(Second), Allocation: per(b.held, float64(m.whole)*float64(min(m.width, m.now-m.from-at))), Running: b.running, Waiting: b.waiting}
		if m.frag != nil {
			p.Fragmentation = &m.series[i].frag
			mean += b.frag / float64(len(m.series))
		}
		r.Series = append(r.Series, p)
	}
	if m.frag != nil {
		end := m.frag()
		r.Fragmentation = &Share{Mean: mean, Most: max(m.fragMost, end), End: end}
	}
}

func (m *meter) tenants(r *Result, names []string) {
	paces := []float64{}
	for i, name := range names {
		t := &m.tenant[i]
		if t.jobs == 0 {
			continue
		}
		x := TenantResult{ID: name, Jobs: t.jobs, Done: t.done, Preempted: t.preempted, MeanWaiting: t.wait.over(max(t.started, 1), Second), CardHours: t.card.over(1000, Hour), Pace: 1}
		if stay := t.stay.rat(); stay.Sign() > 0 {
			x.Pace, _ = new(big.Rat).Quo(t.run.rat(), stay).Float64()
		}
		paces = append(paces, x.Pace)
		r.Fairness.Tenants = append(r.Fairness.Tenants, x)
	}
	r.Fairness.Jain = jain(paces)
	if most := 1000; len(r.Fairness.Tenants) > most {
		slices.SortStableFunc(r.Fairness.Tenants, func(a, b TenantResult) int { return cmp.Compare(b.CardHours, a.CardHours) })
		r.Fairness.Tenants = r.Fairness.Tenants[:most]
	}
	slices.SortFunc(r.Fairness.Tenants, func(a, b TenantResult) int { return cmp.Compare(a.ID, b.ID) })
}
