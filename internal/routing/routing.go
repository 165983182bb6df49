// Package routing is business scheduling: it routes the requests of deployed
// services to the centers where their replicas run. The decision is the pure
// package route; this one keeps services, takes reports of traffic, makes
// weights anew and hands them out.
//
//	DNS server, gateway ──ReportTraffic──▶ forecast per origin ─┐
//	replicas that run (jobs), centers heard of (registry) ──────┼─▶ route.Next ─▶ weights ──GetRoutes──▶ DNS server, gateway
//	latencies reported, else estimated from the distance ───────┘
//
// What it keeps true:
//
//   - Yunhe carries no request itself: whoever does asks for weights and
//     keeps the last ones when the platform does not answer.
//   - A new generation begins only when a weight changed; a change moves at
//     most a share of an origin's requests, unless a center is full or gone.
//   - All that was learned is in the database: a restart goes on where it was.
//   - One process at a time makes weights (run.Elector).
//
// A center that is not heard of, or that cannot be used, has no replicas here:
// its users are sent elsewhere with the next round, and come back when it does.
package routing

import (
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/scheduler/route"
)

// Origin is a region of users.
type Origin struct {
	ID       string             `json:"id"`
	Name     string             `json:"name,omitempty"`
	Position *registry.Position `json:"position,omitempty"` // nil: unknown
}

// Service is deployed as long-running jobs.
type Service struct {
	ID          string            `json:"-"`
	Name        string            `json:"-"`
	TenantID    string            `json:"-"`
	JobIDs      []string          `json:"job_ids"`
	Origins     []Origin          `json:"origins"`
	ReplicaRate float64           `json:"replica_rate"`          // requests per second
	MaxLatency  int64             `json:"max_latency,omitempty"` // microseconds; 0: none
	MaxUse      int32             `json:"max_use"`               // per cent
	Move        int32             `json:"move"`                  // per cent
	Endpoints   map[string]string `json:"endpoints,omitempty"`
	CreatedAt   time.Time         `json:"-"`
	UpdatedAt   time.Time         `json:"-"`
}

// Limits of a service.
const (
	maxJobs      = 16
	maxRate      = 1e6
	maxLatency   = 10_000_000
	maxEndpoints = 200
)

// check names every mistake and fills in defaults.
func (s *Service) check(at string) error {
	var c core.Check
	c.Text(at+"name", s.Name, true, 64, 0)
	c.Range(at+"job_ids", int64(len(s.JobIDs)), 1, maxJobs)
	seen := map[string]bool{}
	for i, id := range s.JobIDs {
		field := fmt.Sprintf("%sjob_ids[%d]", at, i)
		if c.ID(field, id); seen[id] {
			c.Add(field, "is named twice")
		}
		seen[id] = true
	}
	c.Range(at+"origins", int64(len(s.Origins)), 1, route.MaxOrigins)
	seen = map[string]bool{}
	for i, o := range s.Origins {
		field := fmt.Sprintf("%sorigins[%d].", at, i)
		if c.ID(field+"origin_id", o.ID); seen[o.ID] {
			c.Add(field+"origin_id", "must differ from the others, got %q twice", o.ID)
		}
		seen[o.ID] = true
		c.Text(field+"name", o.Name, false, 64, 0)
		if p := o.Position; p != nil {
			c.Range(field+"longitude", p.Longitude, -180_000_000, 180_000_000)
			c.Range(field+"latitude", p.Latitude, -90_000_000, 90_000_000)
		}
	}
	if !(s.ReplicaRate > 0 && s.ReplicaRate <= maxRate) {
		c.Add(at+"replica_rate", "must be above 0 and at most %d requests per second, got %v", int(maxRate), s.ReplicaRate)
	}
	c.Range(at+"max_latency_microseconds", s.MaxLatency, 0, maxLatency)
	if s.MaxUse == 0 {
		s.MaxUse = 85
	}
	c.Range(at+"max_use_percent", int64(s.MaxUse), 1, 99)
	if s.Move == 0 {
		s.Move = 20
	}
	c.Range(at+"move_percent", int64(s.Move), 1, 100)
	c.Range(at+"endpoints", int64(len(s.Endpoints)), 0, maxEndpoints)
	for _, id := range slices.Sorted(maps.Keys(s.Endpoints)) {
		field := fmt.Sprintf("%sendpoints[%s]", at, id)
		c.ID(field, id)
		host, port, err := net.SplitHostPort(s.Endpoints[id])
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 || !isHost(host) {
			c.Add(field, "must be host:port, got %q", s.Endpoints[id])
		}
	}
	return c.Err()
}

// isHost allows what may stand in a zone file or a balancer's configuration.
func isHost(s string) bool {
	if net.ParseIP(s) != nil {
		return true
	}
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.') {
			return false
		}
	}
	return s != "" && len(s) <= 253
}

// Report is what came from an origin.
type Report struct {
	OriginID string
	Rate     float64 // requests per second
	At       time.Time
	Latency  map[string]int64 // microseconds by center
}

func checkReports(rs []Report, now time.Time) error {
	var c core.Check
	c.Range("reports", int64(len(rs)), 1, route.MaxOrigins)
	seen := map[string]bool{}
	for i := range rs {
		r, at := &rs[i], fmt.Sprintf("reports[%d].", i)
		if c.ID(at+"origin_id", r.OriginID); seen[r.OriginID] {
			c.Add(at+"origin_id", "must differ from the others, got %q twice", r.OriginID)
		}
		seen[r.OriginID] = true
		if !(r.Rate >= 0 && r.Rate <= 1e9) {
			c.Add(at+"requests_per_second", "must be 0 to 1000000000, got %v", r.Rate)
		}
		if r.At.IsZero() {
			r.At = now
		}
		if r.At.After(now.Add(time.Minute)) {
			c.Add(at+"at", "must be at most a minute ahead, got %s", r.At.Format(time.RFC3339))
		}
		if len(r.Latency) > route.MaxPlaces {
			c.Add(at+"latency_microseconds", "must be at most %d centers, got %d", route.MaxPlaces, len(r.Latency))
		}
		for _, id := range slices.Sorted(maps.Keys(r.Latency)) {
			c.ID(fmt.Sprintf("%slatency_microseconds[%s]", at, id), id)
			c.Range(fmt.Sprintf("%slatency_microseconds[%s]", at, id), r.Latency[id], 0, maxLatency)
		}
	}
	return c.Err()
}

// origin is what is known of one.
type origin struct {
	Forecast route.Forecast   `json:"forecast"`
	Last     float64          `json:"last"`
	Latency  map[string]int64 `json:"latency,omitempty"` // microseconds by center, smoothed
}

// take learns from a report; it reports false if it came too late to count.
func (o *origin) take(r Report) bool {
	at := r.At.UnixMicro()
	if at <= o.Forecast.At {
		return false
	}
	o.Forecast.Add(at, r.Rate)
	o.Last = r.Rate
	if o.Latency == nil {
		o.Latency = map[string]int64{}
	}
	for id, l := range r.Latency {
		if old, ok := o.Latency[id]; ok {
			l = old + (l-old)/4 // one slow probe does not turn traffic round
		}
		o.Latency[id] = l
	}
	if len(o.Latency) > route.MaxPlaces { // of centers that are long gone, mostly
		for _, id := range slices.Sorted(maps.Keys(o.Latency)) {
			if _, now := r.Latency[id]; !now && len(o.Latency) > route.MaxPlaces {
				delete(o.Latency, id)
			}
		}
	}
	return true
}

const (
	// ahead is how far demand is looked ahead, seconds: weights have to reach
	// users, and hold until the next.
	ahead = 60
	// valid is how long who routes may keep weights, seconds.
	valid = 15
	// assumedLatency stands in where nothing is known, microseconds.
	assumedLatency = 50_000
)

// estimate a round trip from the distance: light in fiber takes 5 µs a
// kilometer, ways are half as long again as straight lines, and both ends add 2 ms.
func estimate(a, b *registry.Position) int64 {
	if a == nil || b == nil {
		return assumedLatency
	}
	meters := place.Distance(place.Position{Longitude: a.Longitude, Latitude: a.Latitude}, place.Position{Longitude: b.Longitude, Latitude: b.Latitude})
	return 2000 + meters*2*5*3/2/1000
}

// Place is a center in a table of routes.
type Place struct {
	CenterID string  `json:"center"`
	Replicas int     `json:"replicas"`
	Capacity float64 `json:"capacity"`
	Load     float64 `json:"load"`
}

// Weight is a center's part of an origin.
type Weight struct {
	CenterID string `json:"center"`
	Weight   int    `json:"weight"` // out of 1000
	Latency  int64  `json:"latency"`
	Measured bool   `json:"measured"`
}

// OriginRoute says where an origin's requests go.
type OriginRoute struct {
	OriginID string             `json:"origin"`
	Demand   float64            `json:"demand"`
	Expected float64            `json:"expected"`
	Weights  []Weight           `json:"weights"`
	Exact    map[string]float64 `json:"exact"` // shares before rounding: what the next ones are eased from
}

// Routes are the weights in force.
type Routes struct {
	ServiceID  string        `json:"-"`
	Generation int64         `json:"-"`
	MadeAt     time.Time     `json:"-"`
	Places     []Place       `json:"places"`
	Origins    []OriginRoute `json:"origins"`
	Mean       int64         `json:"mean"` // microseconds; 0: not known
	Overload   float64       `json:"overload"`
	Far        float64       `json:"far"`
}

// weigh makes the table that follows old, nil if there was none.
func weigh(s *Service, known map[string]*origin, replicas map[string]int, centers map[string]*registry.Center, old *Routes) (*Routes, error) {
	p := &route.Problem{MaxLatency: s.MaxLatency, MaxUse: float64(s.MaxUse) / 100}
	var ids []string
	for id, n := range replicas {
		if c := centers[id]; n > 0 && c != nil && c.Status == registry.Available {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	ids = ids[:min(len(ids), route.MaxPlaces)]
	out := &Routes{ServiceID: s.ID}
	for _, id := range ids {
		p.Places = append(p.Places, route.Place{ID: id, Replicas: replicas[id], Rate: s.ReplicaRate})
	}
	measured := make([][]bool, len(s.Origins))
	for i, o := range s.Origins {
		k := known[o.ID]
		if k == nil {
			k = &origin{}
		}
		row := OriginRoute{OriginID: o.ID, Demand: k.Last, Expected: k.Forecast.In(ahead)}
		p.Origins = append(p.Origins, route.Origin{ID: o.ID, Demand: row.Expected})
		latency := make([]int64, len(ids))
		measured[i] = make([]bool, len(ids))
		for q, id := range ids {
			if latency[q], measured[i][q] = k.Latency[id]; !measured[i][q] {
				latency[q] = estimate(o.Position, centers[id].Position)
			}
		}
		p.Latency = append(p.Latency, latency)
		out.Origins = append(out.Origins, row)
	}
	if len(ids) == 0 {
		return out, nil
	}
	share, err := route.Next(p, sharesOf(old, s, ids), float64(s.Move)/100)
	if err != nil {
		return nil, err
	}
	for i, row := range share {
		whole, exact := route.Whole(row, 1000), map[string]float64{}
		for q, w := range whole {
			if row[q] > 0 {
				exact[ids[q]] = row[q]
			}
			if w > 0 {
				out.Origins[i].Weights = append(out.Origins[i].Weights, Weight{ids[q], w, p.Latency[i][q], measured[i][q]})
			}
		}
		out.Origins[i].Exact = exact
		slices.SortStableFunc(out.Origins[i].Weights, func(a, b Weight) int { return b.Weight - a.Weight })
	}
	plan, err := route.Judge(p, share)
	if err != nil {
		return nil, err
	}
	for q := range p.Places {
		out.Places = append(out.Places, Place{ids[q], p.Places[q].Replicas, p.Places[q].Capacity(), plan.Load[q]})
		out.Overload += plan.Over[q]
	}
	out.Far = plan.Far
	if !math.IsInf(plan.MeanMicros, 0) {
		out.Mean = int64(plan.MeanMicros)
	}
	return out, nil
}

// sharesOf are the shares of old routes in the order of origins and centers;
// nil if they do not fit. An origin whose centers are gone has none.
func sharesOf(old *Routes, s *Service, ids []string) [][]float64 {
	if old == nil {
		return nil
	}
	by := map[string]map[string]float64{}
	for _, o := range old.Origins {
		by[o.OriginID] = o.Exact
	}
	out := make([][]float64, len(s.Origins))
	for i, o := range s.Origins {
		out[i] = make([]float64, len(ids))
		for q, id := range ids {
			out[i][q] = by[o.ID][id]
		}
	}
	return out
}

// same reports whether two tables send everyone to the same centers by the
// same weights.
func same(a, b *Routes) bool {
	return slices.EqualFunc(a.Origins, b.Origins, func(x, y OriginRoute) bool {
		return x.OriginID == y.OriginID && slices.EqualFunc(x.Weights, y.Weights, func(v, w Weight) bool { return v.CenterID == w.CenterID && v.Weight == w.Weight })
	})
}
