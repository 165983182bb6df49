package place

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
		ID: "round_trip", Unit: "us", Better: Lower, Unknown: unmeasured, Varies: WithPeers,
		Measure: roundTrip,
	}},
}

func roundTrip(a *Ask, s *Site) Fact {
	var sum, n int64
	if a.peers != nil {
		for _, p := range a.peers.at {
			d := a.p.roundTrips(p.site)[s.index]
			if d < 0 {
				return Fact{}
			}
			sum = addSat(sum, mulDiv(d, p.replicas, 1))
			n += p.replicas
		}
	}
	for i := range a.Task.Data {
		need := &a.Task.Data[i]
		if s.Data[need.Dataset] >= need.Bytes {
			n++
			continue
		}
		best := int64(-1)
		for _, h := range a.p.holders(need) {
			if d := a.p.roundTrips(h)[s.index]; d >= 0 && (best < 0 || d < best) {
				best = d
			}
		}
		if best < 0 {
			return Fact{}
		}
		sum, n = addSat(sum, best), n+1
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
		ID: "transfer_time", Unit: "ms", Better: Lower,
		Measure: func(a *Ask, s *Site) Fact {
			t, _ := a.Transfer(s)
			return Known(t)
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

// prepare computes the transfer times of a, which several factors read.
func (a *Ask) prepare(p *planner) {
	a.p = p
	if len(a.Task.Data) == 0 {
		return
	}
	a.transfer = make([]int64, len(p.sites))
	a.assumed = make([]bool, len(p.sites))
	for i := range p.sites {
		s := &p.sites[i]
		for j := range a.Task.Data {
			need := &a.Task.Data[j]
			missing := need.Bytes - s.Data[need.Dataset]
			if missing <= 0 {
				continue
			}
			rate := p.bandwidth(p.holders(need), s)
			if rate <= 0 {
				rate = p.assumedKbps
				a.assumed[i] = true
			}
			a.transfer[i] = addSat(a.transfer[i], mulDiv(missing, 8, rate))
		}
	}
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
		if l, ok := p.link(from.ID, s.ID); ok && l.BandwidthKbps.Known {
			best = max(best, l.BandwidthKbps.Value)
		} else if from.Network.BandwidthKbps.Known && s.Network.BandwidthKbps.Known {
			best = max(best, min(from.Network.BandwidthKbps.Value, s.Network.BandwidthKbps.Value))
		}
	}
	return best
}

// holders returns the sites that hold a whole copy of need, ascending.
func (p *planner) holders(need *DataNeed) []int32 {
	key := dataKey{need.Dataset, need.Bytes}
	if h, ok := p.copies[key]; ok {
		return h
	}
	h := []int32{}
	for i := range p.sites {
		if have, ok := p.sites[i].Data[need.Dataset]; ok && have >= need.Bytes {
			h = append(h, int32(i))
		}
	}
	p.copies[key] = h
	return h
}

type dataKey struct {
	dataset string
	bytes   int64
}

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
	from := &p.sites[i]
	for j := range p.sites {
		to := &p.sites[j]
		switch l, ok := p.link(from.ID, to.ID); {
		case from.index == to.index:
			row[j] = 0
		case ok && l.LatencyMicros.Known:
			row[j] = l.LatencyMicros.Value
		case from.Position != nil && to.Position != nil:
			row[j] = p.point(i).distance(p.point(int32(j))) / 100 // 10 µs per 1,000 m
		default:
			row[j] = -1
		}
	}
	p.trips[i] = row
	return row
}

// maxTripRows bounds the memory of cached round trips: 256 rows of 10,000
// sites are 20 MB.
const maxTripRows = 256

// peers is where the replicas of one work are. It grows and shrinks with the
// plan; version changes with it.
type peers struct {
	at      []peer // ascending by site
	version int64
}

type peer struct {
	site     int32
	replicas int64
}

// add puts n more replicas (or, negative, fewer) at site.
func (w *peers) add(site int32, n int64) {
	w.version++
	i := 0
	for i < len(w.at) && w.at[i].site < site {
		i++
	}
	if i < len(w.at) && w.at[i].site == site {
		w.at[i].replicas += n
		if w.at[i].replicas == 0 {
			w.at = append(w.at[:i], w.at[i+1:]...)
		}
		return
	}
	w.at = append(w.at, peer{})
	copy(w.at[i+1:], w.at[i:])
	w.at[i] = peer{site, n}
}
