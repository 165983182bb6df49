package place

import "math"

// Data-topology affinity (c): how far, logically, a candidate is from what the
// replica talks to: the replicas of the same work that are placed already, if
// it is distributed, and the nearest whole copy of each dataset it reads. The
// fact is the mean round trip. A path that was not measured is estimated from
// the distance, 10 µs per km there and back in fiber; without positions it is
// unknown. Work that talks to nobody has no opinion.
var dataTopology = Policy{
	ID: "data-topology", Title: "Data-topology affinity", TitleZH: "数据拓扑亲和",
	Doc: "prefers candidates logically close to the work's other replicas and its data",
	Factors: []Factor{{
		ID: "round_trip", Unit: "us", Better: Lower, Unknown: unmeasured, Varies: WithPeers, Reads: ReadsData,
		Measure: roundTrip,
	}},
}

func roundTrip(a *Ask, s *Site) Fact {
	var sum, n int64
	if w := a.peers; w != nil && w.replicas > 0 {
		if w.unknown[s.index] > 0 {
			return Fact{}
		}
		sum, n = w.trips[s.index], w.replicas
	}
	for _, d := range a.data {
		trip := d.trips[s.index]
		if trip < 0 {
			return Fact{}
		}
		sum, n = addSat(sum, trip), n+1
	}
	if n == 0 {
		return Known(0)
	}
	return Known(sum / n)
}

// Data-aware (5 f 7): how long it takes to bring the data. Small data follows
// the work, large data draws the work to it; data that must stay is a filter.
// Work without data has no opinion.
var dataAware = Policy{
	ID: "data-aware", Title: "Data-aware", TitleZH: "数据感知",
	Doc: "prefers candidates that hold the work's data or get it sooner",
	Factors: []Factor{{
		ID: "transfer_time", Unit: "ms", Better: Lower, Reads: ReadsData,
		Measure: func(a *Ask, s *Site) Fact {
			t, _ := a.Transfer(s)
			return Known(t)
		},
	}},
}

// Lowest transfer cost: what it costs to bring the data, each dataset from the
// whole copy from which that is cheapest (data-aware takes the fastest one; the
// two may differ). What is there already costs nothing. A path whose fee nobody
// states is unknown: free carriage is said, not assumed.
var lowestTransferCost = Policy{
	ID: "lowest-transfer-cost", Title: "Lowest transfer cost first", TitleZH: "最低传输成本优先",
	Doc: "prefers candidates to which bringing the work's data costs less",
	Factors: []Factor{{
		ID: "transfer_cost", Unit: "fen", Better: Lower, Reads: ReadsData,
		Measure: func(a *Ask, s *Site) Fact {
			var sum int64
			for _, d := range a.data {
				if d.fee[s.index] < 0 {
					return Fact{}
				}
				sum = addSat(sum, d.fee[s.index])
			}
			return Known(sum)
		},
	}},
}

// Lowest total cost: the price of the run and what it costs to bring the data,
// so that a cheap hour does not win by a long run or far data.
var lowestTotalCost = Policy{
	ID: "lowest-total-cost", Title: "Lowest total cost first", TitleZH: "最低总费用优先",
	Doc: "prefers the lower price of the whole run and of bringing its data",
	Factors: []Factor{{
		ID: "total_cost", Unit: "fen", Better: Lower, Reads: ReadsSpec | ReadsKind | ReadsRun | ReadsData,
		Measure: func(a *Ask, s *Site) Fact {
			o, carriage := a.Offer(s), lowestTransferCost.Factors[0].Measure(a, s)
			if o == nil || !o.PriceFenPerHour.Known || !carriage.Known {
				return Fact{}
			}
			return Known(addSat(mulDiv(o.PriceFenPerHour.Value, s.runTime(a), 3_600_000), carriage.Value))
		},
	}},
}

// AssumedBandwidthKbps is the bandwidth of a path nobody measured, unless
// [Options] names another: 1 Gbit/s.
const AssumedBandwidthKbps = 1_000_000

// Transfer returns how many milliseconds it takes to bring the ask's data to
// s, dataset after dataset, each from the whole copy with the best bandwidth;
// what s holds of a dataset need not travel. Assumed says that the bandwidth
// of a path in it was not measured.
func (a *Ask) Transfer(s *Site) (ms int64, assumed bool) {
	if a.transfer == nil {
		return 0, false
	}
	return a.transfer[s.index], a.assumed[s.index]
}

// prepare looks up what several factors read for every site.
func (a *Ask) prepare(p *planner) {
	a.p = p
	a.offers = p.offersOf(a.Task.Spec)
	a.speeds = p.speedsOf(a.Task.Kind, a.Task.Precision)
	a.whole = p.wholeOf(a)
	a.unmet = p.unmetOf(a.Task.Expression)
	a.from = p.endOf(a.Origin.Name, a.Origin.Region)
	if len(a.Task.Data) == 0 {
		return
	}
	key := string(appendReads(nil, ReadsData, &a.Task, &a.Origin))
	b, ok := p.brought[key]
	if !ok {
		b = p.bring(a.Task.Data)
		if len(p.brought)*len(p.sites) > maxCopies {
			clear(p.brought)
		}
		p.brought[key] = b
	}
	a.data, a.transfer, a.assumed = b.data, b.time, b.assumed
}

// brought is what it takes to bring a list of datasets to every site.
type brought struct {
	data    []*copies
	time    []int64 // ms
	assumed []bool
}

func (p *planner) bring(needs []DataNeed) *brought {
	n := len(p.sites)
	b := &brought{make([]*copies, len(needs)), make([]int64, n), make([]bool, n)}
	for j := range needs {
		d := p.copiesOf(&needs[j])
		b.data[j] = d
		for i, t := range d.time {
			b.time[i] = addSat(b.time[i], t)
			b.assumed[i] = b.assumed[i] || d.assumed[i]
		}
	}
	return b
}

// copies is what every site is to one dataset.
type copies struct {
	trips   []int64 // round trip to the nearest whole copy in µs, -1 unknown
	time    []int64 // ms to bring what is missing
	assumed []bool  // time rests on the assumed bandwidth
	fee     []int64 // fen to bring what is missing, -1 unknown
}

type dataKey struct {
	dataset string
	bytes   int64
	at      string
}

// maxCopies bounds sites × datasets remembered: 18 MB.
const maxCopies = 1 << 20

// copiesOf returns the copies of a dataset as seen from every site.
func (p *planner) copiesOf(need *DataNeed) *copies {
	key := dataKey{need.Dataset, need.Bytes, string(appendStrings(nil, need.At))}
	if d, ok := p.copies[key]; ok {
		return d
	}
	if len(p.copies)*len(p.sites) > maxCopies {
		clear(p.copies)
	}
	n := len(p.sites)
	var holders []int32
	held := make([]int64, n)
	for i := range p.sites {
		have, ok := need.held(&p.sites[i])
		held[i] = have
		if ok && have >= need.Bytes {
			holders = append(holders, int32(i))
		}
	}
	d := &copies{make([]int64, n), make([]int64, n), make([]bool, n), make([]int64, n)}
	from := p.sources(holders)
	for i := range p.sites {
		s := &p.sites[i]
		missing := need.Bytes - held[i]
		if missing <= 0 {
			continue
		}
		var rate int64
		d.trips[i], rate = from.reach(s)
		if rate <= 0 {
			rate, d.assumed[i] = p.assumedKbps, true
		}
		d.time[i] = mulDiv(missing, 8, rate)
		d.fee[i] = -1
		if f := from.fee(s); f.Known {
			d.fee[i] = mulDiv(missing, f.Value, 1<<30)
		}
	}
	p.copies[key] = d
	return d
}

// sources are the sites that hold a dataset whole.
type sources struct {
	p      *planner
	sites  []int32
	points []point // of those with a position
	widest int64   // best bandwidth of one, as far as known
	cheap  Fact    // lowest fee of one's own path
}

func (p *planner) sources(holders []int32) *sources {
	out := &sources{p: p, sites: holders}
	for _, i := range holders {
		if p.sites[i].Position != nil {
			out.points = append(out.points, p.point(i))
		}
		out.widest = max(out.widest, p.sites[i].Network.BandwidthKbps.Value)
		out.cheap = cheaper(out.cheap, p.sites[i].Network.FeeFenPerGiB)
	}
	return out
}

// reach returns the shortest round trip in µs from one of the sources to s, -1
// if none is known, and the bandwidth of [planner.bandwidth].
func (o *sources) reach(s *Site) (trip, kbps int64) {
	if len(o.p.links) > 0 || len(o.sites) == 0 {
		return o.p.nearestTrip(o.sites, s), o.p.bandwidth(o.sites, s)
	}
	trip = -1
	if s.Position != nil && len(o.points) > 0 {
		square, q := math.Inf(1), o.p.point(s.index)
		for i := range o.points {
			square = min(square, o.points[i].square(q))
		}
		trip = fiberTrip(square)
	}
	return trip, min(o.widest, s.Network.BandwidthKbps.Value) // 0 where unknown
}

// fee returns the lowest fee per GiB from one of the sources to s or, if there
// is none, from outside.
func (o *sources) fee(s *Site) Fact {
	own := s.Network.FeeFenPerGiB
	if len(o.sites) == 0 {
		return own
	}
	var best Fact
	if own.Known && o.cheap.Known {
		best = Known(own.Value + o.cheap.Value)
	}
	if len(o.p.links) == 0 {
		return best
	}
	best = Fact{}
	for _, i := range o.sites {
		from := &o.p.sites[i]
		if l := between(o.p.siteEnd(i), o.p.siteEnd(s.index)); l.FeeFenPerGiB.Known {
			best = cheaper(best, l.FeeFenPerGiB)
		} else if f := from.Network.FeeFenPerGiB; f.Known && own.Known {
			best = cheaper(best, Known(f.Value+own.Value))
		}
	}
	return best
}

// cheaper returns the lower of two facts, or the one that is known.
func cheaper(a, b Fact) Fact {
	if !a.Known || b.Known && b.Value < a.Value {
		return b
	}
	return a
}

// bandwidth returns the best measured bandwidth from one of the holders to s,
// or what s can take in if the data comes from outside, 0 if nothing was
// measured. A path that was not measured itself is as wide as the narrower of
// its two ends.
func (p *planner) bandwidth(holders []int32, s *Site) int64 {
	if len(holders) == 0 {
		return s.Network.BandwidthKbps.Value // 0 if unknown
	}
	var best int64
	for _, h := range holders {
		from := &p.sites[h]
		if l := between(p.siteEnd(h), p.siteEnd(s.index)); l.BandwidthKbps.Known {
			best = max(best, l.BandwidthKbps.Value)
		} else if from.Network.BandwidthKbps.Known && s.Network.BandwidthKbps.Known {
			best = max(best, min(from.Network.BandwidthKbps.Value, s.Network.BandwidthKbps.Value))
		}
	}
	return best
}

// nearestTrip returns the shortest round trip from one of the sites to s in
// µs, -1 if none is known.
func (p *planner) nearestTrip(from []int32, s *Site) int64 {
	best, square := int64(-1), math.Inf(1)
	for _, i := range from {
		if l := between(p.siteEnd(i), p.siteEnd(s.index)); l.LatencyMicros.Known {
			if best < 0 || l.LatencyMicros.Value < best {
				best = l.LatencyMicros.Value
			}
		} else if s.Position != nil && p.sites[i].Position != nil {
			square = min(square, p.point(i).square(p.point(s.index)))
		}
	}
	if !math.IsInf(square, 1) {
		if t := fiberTrip(square); best < 0 || t < best {
			best = t
		}
	}
	return best
}

// fiberTrip estimates the round trip in µs over a distance: 10 µs per km.
func fiberTrip(square float64) int64 { return meters(square) / 100 }

// roundTrips returns the round trip in µs between site i and every site, -1
// where unknown.
func (p *planner) roundTrips(i int32) []int64 {
	if row, ok := p.trips[i]; ok {
		return row
	}
	if len(p.trips) >= maxTripRows {
		clear(p.trips)
	}
	row := make([]int64, len(p.sites))
	for j := range p.sites {
		if int32(j) != i {
			row[j] = p.nearestTrip([]int32{i}, &p.sites[j])
		}
	}
	p.trips[i] = row
	return row
}

// maxTripRows bounds the memory of cached round trips: 256 rows of 10,000
// sites are 20 MB.
const maxTripRows = 256

// peers is where the replicas of one work are, as seen from every site. It
// follows the plan; version changes with it. Sums are kept so that one more
// replica costs the same however many there are.
type peers struct {
	replicas int64
	trips    []int64 // by site: sum of the known round trips to the replicas, in µs
	unknown  []int64 // by site: replicas to which the round trip is unknown
	version  int64
}

// add puts n more replicas (or, negative, fewer) at site.
func (w *peers) add(p *planner, site int32, n int64) {
	w.version++
	w.replicas += n
	if w.trips == nil {
		w.trips, w.unknown = make([]int64, len(p.sites)), make([]int64, len(p.sites))
	}
	for i, d := range p.roundTrips(site) {
		if d < 0 {
			w.unknown[i] += n
		} else {
			w.trips[i] += n * d
		}
	}
}
