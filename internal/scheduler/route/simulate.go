package route

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// A Strategy shares requests out.
type Strategy string

// Strategies; all but MeanTime are there to be compared with.
const (
	MeanTime Strategy = "mean-time" // the plan of Solve, by forecast, eased
	Nearest  Strategy = "nearest"   // all to the place with the least latency
	Even     Strategy = "capacity"  // in proportion to capacity, wherever it is
	Spill    Strategy = "spill"     // the nearest until its allowed use is reached, then the next nearest
)

// Strategies lists them all.
func Strategies() []Strategy { return []Strategy{MeanTime, Nearest, Even, Spill} }

// Day of traffic that is simulated request by request.
type Traffic struct {
	Origins []TrafficOrigin
	Places  []Place
	Latency [][]int64 // as in Problem
	Hours   int       // 1 to 240; 0: 24
	// Every is how often demand is told and shares are made anew, seconds; 0: 60.
	Every int
	// Swing is how far demand goes up and down over a day, 0 to 1 of its mean.
	Swing float64
	// Work are service times to draw from, relative to their mean; empty:
	// exponential.
	Work []float64
}

// Dice are thrown; math/rand/v2 has them.
type Dice interface {
	Float64() float64
	ExpFloat64() float64
	IntN(n int) int
}

// TrafficOrigin is a region with its mean demand; at Hour its day is busiest.
type TrafficOrigin struct {
	ID   string
	Mean float64 // requests per second
	Peak float64 // hours after midnight UTC, 0 to 24
}

// Outcome of a simulated day.
type Outcome struct {
	Strategy Strategy `json:"strategy"`
	Requests int      `json:"requests"`
	// Seconds from sending a request to its answer.
	Mean float64 `json:"mean_seconds"`
	P50  float64 `json:"p50_seconds"`
	P95  float64 `json:"p95_seconds"`
	P99  float64 `json:"p99_seconds"`
	// Waited is the mean time in queues, part of the mean.
	Waited float64 `json:"waited_seconds"`
	// Late is the share of requests that waited longer than ten mean service times.
	Late float64 `json:"late_share"`
	// Moved is the share of users whose place changes with a new plan, in the mean.
	Moved float64 `json:"moved_share"`
}

// Check refuses traffic that breaks its contract and fills in defaults.
func (t *Traffic) Check() error {
	var c core.Check
	if t.Hours == 0 {
		t.Hours = 24
	}
	if t.Every == 0 {
		t.Every = 60
	}
	c.Range("hours", int64(t.Hours), 1, 240)
	c.Range("every", int64(t.Every), 1, 3600)
	if !(t.Swing >= 0 && t.Swing <= 1) {
		c.Add("swing", "must be 0 to 1, got %v", t.Swing)
	}
	if err := c.Err(); err != nil {
		return err
	}
	p := t.problem()
	for i := range t.Origins {
		p.Origins[i].Demand = t.Origins[i].Mean
	}
	return p.Check()
}

func (t *Traffic) problem() *Problem {
	p := &Problem{Places: t.Places, Latency: t.Latency}
	for _, o := range t.Origins {
		p.Origins = append(p.Origins, Origin{ID: o.ID})
	}
	return p
}

// demand of an origin at a second: a day's wave.
func (t *Traffic) demand(o *TrafficOrigin, second float64) float64 {
	return o.Mean * (1 + t.Swing*math.Cos(2*math.Pi*(second/3600-o.Peak)/24))
}

// request on its way to a place, in seconds.
type request struct {
	there, way, work float64
	place            int
}

// servers are the times at which the replicas of a place are free again.
type servers []float64

func (s servers) Len() int           { return len(s) }
func (s servers) Less(i, j int) bool { return s[i] < s[j] }
func (s servers) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *servers) Push(any)          {}
func (s *servers) Pop() any          { return nil }

// Simulate plays the traffic request by request: each waits in the queue of
// the place it is sent to, first come, first served. Shares are made from what
// was observed in the period before, never from what is to come. Dice from the
// same seed play the same day.
func Simulate(t *Traffic, s Strategy, dice Dice) (*Outcome, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	free := make([]servers, len(t.Places))
	for q := range t.Places {
		free[q] = make(servers, t.Places[q].Replicas)
	}
	p := t.problem()
	seen := make([]Forecast, len(t.Origins))
	var share [][]float64
	out := &Outcome{Strategy: s}
	var times []float64
	var under []request // on their way
	late, moved, plans := 0, 0.0, 0
	for begin := 0.0; begin < float64(t.Hours)*3600; begin += float64(t.Every) {
		for o := range t.Origins {
			if begin == 0 {
				p.Origins[o].Demand = t.demand(&t.Origins[o], 0)
			} else {
				p.Origins[o].Demand = seen[o].In(float64(t.Every))
			}
		}
		next, err := shares(p, s, share)
		if err != nil {
			return nil, err
		}
		if share != nil {
			moved, plans = moved+movedShare(p, share, next), plans+1
		}
		share = next
		end := begin + float64(t.Every)
		for o := range t.Origins {
			rate, count := t.demand(&t.Origins[o], (begin+end)/2), 0
			for at := begin; rate > 0; count++ {
				if at += dice.ExpFloat64() / rate; at >= end {
					break
				}
				q, work := draw(dice, share[o]), dice.ExpFloat64()
				if len(t.Work) > 0 {
					work = t.Work[dice.IntN(len(t.Work))]
				}
				if q >= 0 {
					way := float64(t.Latency[o][q]) / 1e6
					under = append(under, request{at + way/2, way, work / t.Places[q].Rate, q})
				}
			}
			seen[o].Add(int64(end*1e6), float64(count)/float64(t.Every))
		}
		slices.SortStableFunc(under, func(a, b request) int { return cmp.Compare(a.there, b.there) })
		n := 0
		for ; n < len(under) && under[n].there < end; n++ {
			r := &under[n]
			queue := &free[r.place]
			start := max(r.there, (*queue)[0])
			(*queue)[0] = start + r.work
			heap.Fix(queue, 0)
			out.Waited += start - r.there
			if start-r.there > 10/t.Places[r.place].Rate {
				late++
			}
			times = append(times, start-r.there+r.work+r.way)
		}
		under = append(under[:0], under[n:]...)
	}
	out.Requests = len(times)
	if len(times) == 0 {
		return out, nil
	}
	for _, x := range times {
		out.Mean += x
	}
	n := float64(len(times))
	out.Mean, out.Waited, out.Late = out.Mean/n, out.Waited/n, float64(late)/n
	slices.Sort(times)
	at := func(part float64) float64 { return times[min(len(times)-1, int(part*n))] }
	out.P50, out.P95, out.P99 = at(.5), at(.95), at(.99)
	if plans > 0 {
		out.Moved = moved / float64(plans)
	}
	return out, nil
}

// step is how much of an origin's requests may be moved by a new plan.
const step = 0.2

// shares by a strategy, for the demand expected.
func shares(p *Problem, s Strategy, old [][]float64) ([][]float64, error) {
	switch s {
	case MeanTime:
		return Next(p, old, step)
	case Nearest, Even, Spill:
	default:
		return nil, fault.New(fault.Invalid, "strategy must be one of %v, got %q", Strategies(), s)
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	room := make([]float64, len(p.Places))
	for q := range p.Places {
		room[q] = p.Places[q].Capacity() * p.MaxUse
	}
	out := make([][]float64, len(p.Origins))
	for o := range p.Origins {
		row := make([]float64, len(p.Places))
		var usable []int // the nearest first
		all := 0.0
		for q, l := range p.Latency[o] {
			if l != Unreachable && p.Places[q].Replicas > 0 {
				usable, all = append(usable, q), all+p.Places[q].Capacity()
			}
		}
		slices.SortStableFunc(usable, func(a, b int) int { return cmp.Compare(p.Latency[o][a], p.Latency[o][b]) })
		left := p.Origins[o].Demand
		for _, q := range usable {
			switch {
			case s == Even:
				row[q] = p.Places[q].Capacity() / all
			case s == Spill && left > 0:
				take := min(left, room[q])
				room[q], left = room[q]-take, left-take
				row[q] = take / p.Origins[o].Demand
			}
		}
		if len(usable) > 0 && (s == Nearest || p.Origins[o].Demand == 0 || s == Spill && left > 0) {
			row[usable[0]] += 1 - sum(row)
		}
		out[o] = row
	}
	return out, nil
}

// Next makes the shares that follow old ones (nil: none): the plan of Solve,
// eased by step for each origin, unless that would fill a place above its
// allowed use that the plan itself does not.
func Next(p *Problem, old [][]float64, step float64) ([][]float64, error) {
	plan, err := Solve(p)
	if err != nil {
		return nil, err
	}
	if len(old) != len(p.Origins) {
		return plan.Share, nil
	}
	eased := make([][]float64, len(old))
	for o := range old {
		eased[o] = Ease(old[o], plan.Share[o], step)
		for q, s := range eased[o] {
			if s > 0 && (p.Latency[o][q] == Unreachable || p.Places[q].Replicas == 0) {
				eased[o] = plan.Share[o] // it is gone
			}
		}
	}
	what, err := Judge(p, eased)
	if err != nil {
		return nil, err
	}
	if sum(what.Over) > sum(plan.Over)*(1+1e-9)+1e-9 {
		return plan.Share, nil
	}
	return eased, nil
}

func sum(xs []float64) float64 {
	s := 0.0
	for _, x := range xs {
		s += x
	}
	return s
}

// movedShare is the part of all requests that goes to another place now.
func movedShare(p *Problem, old, now [][]float64) float64 {
	moved, all := 0.0, 0.0
	for o := range now {
		for q := range now[o] {
			moved += p.Origins[o].Demand * max(0, now[o][q]-old[o][q])
		}
		all += p.Origins[o].Demand
	}
	if all == 0 {
		return 0
	}
	return moved / all
}

// draw a place by shares, -1 where there is none.
func draw(dice Dice, shares []float64) int {
	x, last := dice.Float64(), -1
	for q, s := range shares {
		if s <= 0 {
			continue
		}
		if last = q; x < s {
			return q
		}
		x -= s
	}
	return last
}
