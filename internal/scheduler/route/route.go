// Package route shares the requests of a deployed service out over the centers
// its replicas run at: business scheduling, the second half of placing. Where
// replicas run is decided by package place; who is served where changes with
// every hour of the day, and costs nothing to change.
//
// # Model
//
// Requests come from origins (regions of users), each with a demand; places
// serve them, each with a number of replicas and a rate per replica. A request
// from o served at p takes
//
//	latency(o, p) + wait(p) + service time
//
// The wait is that of a queue before c equal servers at use ρ, by Sakasegawa's
// approximation ρ^(√(2(c+1))−1) / (c·(1−ρ)) service times: little until a place is
// nearly full, without bound there. A place is not used above a share of its
// capacity while any other has room.
//
// # Method
//
// The plan with the least mean time is a minimum-cost flow with convex costs:
// demand is cut into units, and each unit takes the shortest path, on which
// others may be moved on to make room. With convex costs that is exact for units;
// the least shares are 1/[Problem].Units of all demand. Fullness comes before
// the latency limit, the limit before time: a place beyond the latency limit
// is used only if those within it are full.
//
// Everything here is pure: no I/O, no clock, and randomness from dice that are given.
package route

import (
	"fmt"
	"math"

	"yunhe.dev/yunhe/internal/core"
)

// Limits of a problem.
const (
	MaxOrigins = 200
	MaxPlaces  = 200
	MaxUnits   = 10_000
)

// Unreachable is the latency of a pair that cannot be used.
const Unreachable = int64(-1)

// Origin is where requests come from.
type Origin struct {
	ID     string
	Demand float64 // requests per second
}

// Place serves requests.
type Place struct {
	ID       string
	Replicas int
	// Rate is how many requests a second one replica can serve at most.
	Rate float64
}

// Capacity is what a place can serve at most, requests per second.
func (p *Place) Capacity() float64 { return float64(p.Replicas) * p.Rate }

// Problem is a service at a moment.
type Problem struct {
	Origins []Origin
	Places  []Place
	Latency [][]int64 // [origin][place], round trip in microseconds, or Unreachable
	// MaxLatency in microseconds; 0: none.
	MaxLatency int64
	// MaxUse is the share of a place's capacity that is planned with; 0: 0.85.
	MaxUse float64
	// Units demand is cut into; 0: 2000.
	Units int
}

// Plan says who is served where.
type Plan struct {
	// Share of an origin's requests that go to a place: [origin][place], each
	// row adds up to 1 or, for an origin that reaches nothing, 0.
	Share [][]float64
	Load  []float64 // requests per second, by place
	// MeanMicros is the expected time of a request, those of origins without
	// a place left out; infinite where a place gets more than it can serve.
	MeanMicros float64
	// Over is what places get above the share of their capacity that may be
	// used, requests per second, by place.
	Over []float64
	// Far is the share of all requests that are served beyond the latency limit.
	Far float64
}

// Check refuses a problem that breaks its contract and fills in defaults.
func (p *Problem) Check() error {
	var c core.Check
	if n := len(p.Origins); n == 0 || n > MaxOrigins {
		c.Add("origins", "must be 1 to %d origins, got %d", MaxOrigins, n)
	}
	if n := len(p.Places); n == 0 || n > MaxPlaces {
		c.Add("places", "must be 1 to %d places, got %d", MaxPlaces, n)
	}
	for i, o := range p.Origins {
		if !(o.Demand >= 0) || math.IsInf(o.Demand, 0) {
			c.Add(fmt.Sprintf("origins[%d].demand", i), "must be 0 requests per second or more, got %v", o.Demand)
		}
	}
	for i, q := range p.Places {
		if q.Replicas < 0 {
			c.Add(fmt.Sprintf("places[%d].replicas", i), "must be 0 or more, got %d", q.Replicas)
		}
		if !(q.Rate > 0) || math.IsInf(q.Rate, 0) {
			c.Add(fmt.Sprintf("places[%d].rate", i), "must be above 0 requests per second, got %v", q.Rate)
		}
	}
	if len(p.Latency) != len(p.Origins) {
		c.Add("latency", "must have a row for each of %d origins, got %d", len(p.Origins), len(p.Latency))
	}
	for i, row := range p.Latency {
		if len(row) != len(p.Places) {
			c.Add(fmt.Sprintf("latency[%d]", i), "must have a value for each of %d places, got %d", len(p.Places), len(row))
		}
		for j, l := range row {
			if l < Unreachable || l > 1e9 {
				c.Add(fmt.Sprintf("latency[%d][%d]", i, j), "must be 0 to 1000000000 microseconds, or %d for none, got %d", Unreachable, l)
			}
		}
	}
	if p.MaxUse == 0 {
		p.MaxUse = 0.85
	}
	if !(p.MaxUse > 0 && p.MaxUse < 1) {
		c.Add("max_use", "must be above 0 and below 1, got %v", p.MaxUse)
	}
	if p.Units == 0 {
		p.Units = 2000
	}
	c.Range("units", int64(p.Units), 1, MaxUnits)
	c.Range("max_latency", p.MaxLatency, 0, 1e9)
	return c.Err()
}

// Wait is the mean time a request waits at a place that gets x requests per
// second, in seconds; infinite where that is what it can serve, or more.
func (p *Place) Wait(x float64) float64 {
	c := float64(p.Replicas)
	use := x / p.Capacity()
	switch {
	case x <= 0:
		return 0
	case !(use < 1):
		return math.Inf(1)
	}
	return math.Pow(use, math.Sqrt(2*(c+1))-1) / (c * (1 - use)) / p.Rate
}
