package route

import "math"

// Forecast follows a demand that comes and goes: its level and trend (Holt's
// linear method, for observations at any times), and what the same time of
// day was like before. The zero value has seen nothing.
type Forecast struct {
	Level float64 // requests per second
	Trend float64 // requests per second, per second
	At    int64   // of the last observation, microseconds
	Days  Day
}

// Day remembers demand by time of day, in slots of a quarter of an hour.
type Day [96]struct {
	Mean float64
	Seen int32 // observations, at most maxSeen
}

const (
	slotMicros = 15 * 60 * 1e6
	maxSeen    = 64
	// levelTime and trendTime are the seconds after which an observation counts
	// for 1/e of a new one.
	levelTime, trendTime = 60.0, 300.0
)

// slot at a time, UTC.
func slot(at int64) int {
	n := at / slotMicros % 96
	return int((n + 96) % 96)
}

// Add takes an observation. Those not after the last one are dropped.
func (f *Forecast) Add(at int64, demand float64) {
	if at <= f.At || !(demand >= 0) || math.IsInf(demand, 0) {
		return
	}
	d := &f.Days[slot(at)]
	d.Seen = min(d.Seen+1, maxSeen)
	d.Mean += (demand - d.Mean) / float64(d.Seen)
	if f.At == 0 {
		f.Level, f.At = demand, at
		return
	}
	dt := float64(at-f.At) / 1e6
	keepLevel, keepTrend := math.Exp(-dt/levelTime), math.Exp(-dt/trendTime)
	before := f.Level
	f.Level = keepLevel*(f.Level+f.Trend*dt) + (1-keepLevel)*demand
	f.Trend = keepTrend*f.Trend + (1-keepTrend)*(f.Level-before)/dt
	f.At = at
}

// In returns what is expected after so many seconds: the level moved on by the
// trend or, if both times of day were seen before, by what changed between
// them then. It is at least 0.
func (f *Forecast) In(seconds float64) float64 {
	now, then := f.Days[slot(f.At)], f.Days[slot(f.At+int64(seconds*1e6))]
	if now.Seen >= 2 && then.Seen >= 2 && now.Mean > 0 {
		return max(0, f.Level*then.Mean/now.Mean)
	}
	return max(0, f.Level+f.Trend*seconds)
}

// Ease moves the shares of one origin from old toward wanted, by at most step
// of all its requests: users that are moved lose warm caches and sessions. It
// returns a new slice. Old shares may name other numbers of places: then, and
// where there were none, wanted holds at once.
func Ease(old, wanted []float64, step float64) []float64 {
	out := append([]float64(nil), wanted...)
	if len(old) != len(wanted) {
		return out
	}
	had, moved := 0.0, 0.0
	for i := range wanted {
		had += old[i]
		moved += max(0, wanted[i]-old[i])
	}
	if had < 1-1e-9 || moved <= step {
		return out
	}
	for i := range out {
		out[i] = old[i] + (wanted[i]-old[i])*step/moved
	}
	return out
}

// Whole writes shares as whole weights that add up to total, by the largest
// remainder: what DNS and load balancers take. All 0 stays all 0.
func Whole(shares []float64, total int) []int {
	out := make([]int, len(shares))
	sum := 0.0
	for _, s := range shares {
		sum += s
	}
	if !(sum > 0) {
		return out
	}
	left := total
	for i, s := range shares {
		out[i] = int(s / sum * float64(total))
		left -= out[i]
	}
	for ; left > 0; left-- {
		best, most := -1, -1.0
		for i, s := range shares {
			if rest := s/sum*float64(total) - float64(out[i]); s > 0 && rest > most+1e-12 {
				best, most = i, rest
			}
		}
		out[best]++
	}
	return out
}
