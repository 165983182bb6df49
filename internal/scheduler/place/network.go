package place

import "math"

// unmeasured is the score of a fact the platform has not measured.
const unmeasured = 50

// Network-aware (5 f 6): the mean of four facts of the path from the work's
// origin, or from the platform where that path is not measured.
var network = Policy{
	ID: "network", Title: "Better network first", TitleZH: "网络感知",
	Doc: "prefers higher bandwidth and lower latency, jitter and loss",
	Factors: []Factor{
		{ID: "bandwidth", Unit: "kbit/s", Better: Higher, Unknown: unmeasured, Reads: ReadsOrigin,
			Measure: func(a *Ask, s *Site) Fact { return s.path(a).BandwidthKbps }},
		{ID: "latency", Unit: "us", Better: Lower, Unknown: unmeasured, Reads: ReadsOrigin,
			Measure: func(a *Ask, s *Site) Fact { return s.path(a).LatencyMicros }},
		{ID: "jitter", Unit: "us", Better: Lower, Unknown: unmeasured, Reads: ReadsOrigin,
			Measure: func(a *Ask, s *Site) Fact { return s.path(a).JitterMicros }},
		{ID: "loss", Unit: "ppm", Better: Lower, Unknown: unmeasured, Reads: ReadsOrigin,
			Measure: func(a *Ask, s *Site) Fact { return s.path(a).LossPPM }},
	},
}

// Lowest latency: the round trip of the same path alone, for work that waits for
// answers and moves little.
var lowestLatency = Policy{
	ID: "lowest-latency", Title: "Lowest latency first", TitleZH: "最低时延优先",
	Doc:     "prefers the shorter round trip from the work's origin",
	Factors: []Factor{network.Factors[1]},
}

// Nearest: the great-circle distance to the work's origin. Without a position
// of both it has no opinion; the network policy knows the path better.
var nearest = Policy{
	ID: "nearest", Title: "Nearest first", TitleZH: "就近优先",
	Doc: "prefers the candidate closer to the work's users",
	Factors: []Factor{{
		ID: "distance", Unit: "m", Better: Lower, Unknown: unmeasured, Reads: ReadsOrigin,
		Measure: func(a *Ask, s *Site) Fact {
			if a.Origin.Position == nil || s.Position == nil {
				return Fact{}
			}
			return Known(Distance(*a.Origin.Position, *s.Position))
		},
	}},
}

// QoS/QoE (5 f 8): how well the job's targets are met, network path and cluster
// in balance. A target that is met counts fully, one missed counts as limit
// over actual (or actual over limit), one that cannot be judged counts half;
// the fact is the mean. Work without targets has no opinion.
var qos = Policy{
	ID: "qos", Title: "Quality of service first", TitleZH: "服务质量优先",
	Doc: "prefers the candidate that meets more of the work's quality targets",
	Factors: []Factor{{
		ID: "targets_met", Unit: "permille", Better: Higher, Unknown: unmeasured,
		Reads:   ReadsQoS | ReadsOrigin | ReadsRun | ReadsData | ReadsKind,
		Measure: targetsMet,
	}},
}

// target is one of the work's and what there is of it at a site.
type target struct {
	name, unit    string
	limit, actual Fact
	better        Direction
}

// targets returns the six of an ask, those that are not set with an unknown
// limit.
func (s *Site) targets(a *Ask) [6]target {
	q, n := &a.Task.QoS, s.path(a)
	out := [6]target{
		{"latency", "us", q.MaxLatencyMicros, n.LatencyMicros, Lower},
		{"jitter", "us", q.MaxJitterMicros, n.JitterMicros, Lower},
		{"loss", "ppm", q.MaxLossPPM, n.LossPPM, Lower},
		{"bandwidth", "kbit/s", q.MinBandwidthKbps, n.BandwidthKbps, Higher},
		{"availability", "ppm", q.MinAvailabilityPPM, s.Availability, Higher},
		{"time to finish", "ms", Fact{}, Fact{}, Lower},
	}
	if q.FinishSeconds.Known {
		out[5].limit = Known(mulDiv(q.FinishSeconds.Value, 1000, 1))
		if a.Task.RunSeconds.Known {
			copyTime, _ := a.Transfer(s)
			out[5].actual = Known(addSat(copyTime, s.runTime(a)))
		}
	}
	return out
}

func targetsMet(a *Ask, s *Site) Fact {
	var sum, set, judged int64
	add := func(limit, actual Fact, better Direction) {
		if !limit.Known {
			return
		}
		set++
		if !actual.Known {
			sum += 500
			return
		}
		judged++
		l, v := limit.Value, actual.Value
		if better == Higher {
			l, v = v, l
		}
		if v <= l {
			sum += 1000
		} else {
			sum += mulDiv(1000, max(l, 0), v)
		}
	}
	for _, t := range s.targets(a) {
		add(t.limit, t.actual, t.better)
	}
	switch {
	case set == 0:
		return Known(1000)
	case judged == 0:
		return Fact{}
	}
	return Known(sum / set)
}

// Distance returns the great-circle distance of a and b in meters, on a sphere
// of the earth's mean radius; that is within 0.6 % of the ellipsoid.
func Distance(a, b Position) int64 {
	return meters(a.point().square(b.point()))
}

// point is a place as a unit vector. Products are converted explicitly: that
// forbids fused multiply-add, so every machine gets the same bits.
type point [3]float64

func (p Position) point() point {
	const rad = math.Pi / 180 / 1e6
	lat, lon := float64(p.Latitude)*rad, float64(p.Longitude)*rad
	return point{float64(math.Cos(lat) * math.Cos(lon)), float64(math.Cos(lat) * math.Sin(lon)), math.Sin(lat)}
}

// square returns the square of the chord between two places, which grows with
// their distance and is cheaper to compare.
func (p point) square(q point) float64 {
	x, y, z := p[0]-q[0], p[1]-q[1], p[2]-q[2]
	return float64(float64(x*x)+float64(y*y)) + float64(z*z)
}

// meters returns the distance along the surface for the square of a chord.
func meters(square float64) int64 {
	const diameter = 2 * 6_371_009
	return int64(math.Round(diameter * math.Asin(min(1, math.Sqrt(square)/2))))
}
