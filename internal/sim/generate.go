package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Recipe says what fleet and work to make up where there is no data. All of it
// is an assumption, stated here; nothing of it was measured.
type Recipe struct {
	Nodes   int // of a pool, or
	Centers int // of a network
	Cards   int // of a node
	Jobs    int
	// Load is what the jobs ask of the cards over the time in which they arrive,
	// as a multiple of what there is.
	Load    float64
	Seed    uint64
	Tenants int
	// Diurnal arrivals come five times as often at the height of the day as at
	// night; else they come at any time alike (a Poisson process).
	Diurnal bool
	// Run times are log-normal: the median in µs, and the sigma of the logarithm.
	Median int64
	Sigma  float64
	// Shares, Gangs and CPUOnly are the parts of jobs that ask for a part of one
	// card, for several nodes, and for no card.
	Shares, Gangs, CPUOnly float64
	Preemptible            float64 // part of jobs that may be taken back
	Estimates              string  // exact, rough (up to five times too long) or none
}

// DefaultRecipe is what a text that names nothing means.
var DefaultRecipe = Recipe{Nodes: 100, Cards: 8, Jobs: 10_000, Load: 0.9, Seed: 1, Tenants: 10, Median: 1800 * Second, Sigma: 1.5, Shares: 0.3, Gangs: 0.05, CPUOnly: 0.1, Preemptible: 0.5, Estimates: "exact"}

// ParseRecipe reads a recipe such as "nodes=1000,jobs=100000,load=1.2".
func ParseRecipe(text string) (Recipe, error) {
	r, check := DefaultRecipe, core.Check{}
	for item := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		at := "generate." + name
		x := &row{check: &check, at: "generate.", get: func(string) (string, bool) { return value, value != "" }}
		share := func() float64 {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil || !(v >= 0 && v <= 1) {
				check.Add(at, "must be a number from 0 to 1, got %q", value)
			}
			return v
		}
		real := func(lo, hi float64) float64 {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil || !(v >= lo && v <= hi) {
				check.Add(at, "must be a number from %g to %g, got %q", lo, hi, value)
			}
			return v
		}
		whole := func(lo, hi int64) int {
			if value == "" {
				check.Add(at, "must be a number from %d to %d, got nothing", lo, hi)
			}
			return int(x.number(name, lo, hi))
		}
		switch name {
		case "":
		case "nodes":
			r.Nodes, r.Centers = whole(1, MaxNodes), 0
		case "centers":
			r.Centers, r.Nodes = whole(1, MaxCenters), 0
		case "cards":
			r.Cards = whole(1, pack.MaxCards)
		case "jobs":
			r.Jobs = whole(1, MaxJobs)
		case "load":
			r.Load = real(0.001, 100)
		case "seed":
			r.Seed = uint64(whole(0, 1<<40))
		case "tenants":
			r.Tenants = whole(1, MaxTenants)
		case "arrivals":
			if value != "poisson" && value != "diurnal" {
				check.Add(at, "must be poisson or diurnal, got %q", value)
			}
			r.Diurnal = value == "diurnal"
		case "duration":
			if r.Median = x.span(name); r.Median < Second {
				check.Add(at, "must be at least 1 s, got %q", value)
			}
		case "sigma":
			r.Sigma = real(0, 4)
		case "shares":
			r.Shares = share()
		case "gangs":
			r.Gangs = share()
		case "cpu":
			r.CPUOnly = share()
		case "preemptible":
			r.Preemptible = share()
		case "estimates":
			if r.Estimates = value; value != "exact" && value != "rough" && value != "none" {
				check.Add(at, "must be exact, rough or none, got %q", value)
			}
		default:
			check.Add("generate", "has no setting %q; there are nodes, centers, cards, jobs, load, seed, tenants, arrivals, duration, sigma, shares, gangs, cpu, preemptible and estimates", name)
		}
	}
	if r.Shares+r.CPUOnly > 1 {
		check.Add("generate.shares", "and cpu must be at most 1 together, got %g", r.Shares+r.CPUOnly)
	}
	return r, check.Err()
}

// maker draws from one source, in one order.
type maker struct {
	Recipe
	dice *rand.Rand
}

// Make makes up a fleet and its work; the same recipe makes the same.
func (r Recipe) Make() *Input {
	m := maker{r, rand.New(rand.NewPCG(r.Seed, 0x6d616b65))}
	in := &Input{}
	if r.Centers > 0 {
		in.Centers = m.centers()
	} else {
		in.Nodes = m.nodes()
	}
	whole, fast := int64(0), 0.0
	for s, cards := range in.Fleet.supplies() {
		whole += cards
		fast += float64(cards) * float64(s.Speed) / 1000
	}
	in.Tenants, in.Jobs = m.tenants(), m.jobs(whole, fast)
	return in
}

// models that are made up nodes and centers of; figures of price, power and
// speed are round numbers, not any vendor's.
var makes = []struct {
	model     string
	cores, gi int64 // by card
	Supply
}{
	{"fast", 16, 128, Supply{Price: place.Known(1200), CorePrice: place.Known(10), Idle: 70_000, Busy: 400_000, CoreBusy: 4_000, Speed: 2000}},
	{"plain", 16, 64, Supply{Price: place.Known(500), CorePrice: place.Known(8), Idle: 50_000, Busy: 250_000, CoreBusy: 4_000, Speed: 1000}},
}

func (m *maker) nodes() []Node {
	out := make([]Node, m.Nodes)
	for i := range out {
		k := makes[i%len(makes)]
		n := Node{Node: pack.Node{ID: fmt.Sprintf("node-%05d", i), CPU: 1000 * k.cores * int64(m.Cards), Memory: 1024 * k.gi * int64(m.Cards), Cards: m.Cards, Model: k.model}, Supply: k.Supply}
		n.Base, n.PUE, n.Carbon = 300_000, place.Known(1300), place.Known(550)
		out[i] = n
	}
	return out
}

func (m *maker) centers() []Center {
	out := make([]Center, m.Centers)
	for i := range out {
		k := makes[m.dice.IntN(len(makes))]
		cards := int64(m.Cards) * (8 + m.dice.Int64N(120))
		c := Center{ID: fmt.Sprintf("center-%04d", i), Region: fmt.Sprintf("region-%d", i%8), CPU: 1000 * k.cores * cards, Memory: 1024 * k.gi * cards, Cards: cards, Model: k.model, Supply: k.Supply}
		c.Price.Value = c.Price.Value * (70 + m.dice.Int64N(61)) / 100
		c.Base = cards * 40_000
		c.PUE, c.Carbon = place.Known(1080+m.dice.Int64N(520)), place.Known(100+m.dice.Int64N(700))
		c.Position = &place.Position{Longitude: 75e6 + m.dice.Int64N(60e6), Latitude: 20e6 + m.dice.Int64N(30e6)}
		c.Network = place.Network{LatencyMicros: place.Known(1000 + m.dice.Int64N(60_000)), JitterMicros: place.Known(m.dice.Int64N(3000)), LossPPM: place.Known(m.dice.Int64N(500)), BandwidthKbps: place.Known(1_000_000 * (1 + m.dice.Int64N(100)))}
		c.Grade = m.dice.Int64N(6)
		out[i] = c
	}
	return out
}

// tenants have weights 1, 2, 3, 4 in turn.
func (m *maker) tenants() []Tenant {
	out := make([]Tenant, m.Tenants)
	for i := range out {
		out[i] = Tenant{ID: fmt.Sprintf("tenant-%03d", i), Weight: int64(1 + i%4)}
	}
	return out
}

// jobs for a number of cards, which are worth fast cards of the reference's speed.
func (m *maker) jobs(cards int64, fast float64) []Job {
	out := make([]Job, m.Jobs)
	asked := 0.0 // card thousandths × µs
	for i := range out {
		out[i] = m.job(i, cards)
		asked += float64(out[i].Demand()) * float64(out[i].Run)
	}
	if asked == 0 {
		asked = float64(m.Jobs) * float64(m.Median) // nobody asks for a card
	}
	span := min(asked/(m.Load*fast*pack.Whole), float64(MaxTime)/2)
	at := make([]int64, len(out))
	for i := range at {
		at[i] = int64(m.moment(span))
	}
	slices.Sort(at)
	for i := range out {
		out[i].Arrival = at[i]
	}
	return out
}

// moment is when a job arrives; the times of a Poisson process, their number
// given, are independent and alike.
func (m *maker) moment(span float64) float64 {
	for {
		t := m.dice.Float64() * span
		const day = 24 * float64(Hour)
		if !m.Diurnal || m.dice.Float64() < (3-2*math.Cos(2*math.Pi*t/day))/5 {
			return t
		}
	}
}

func (m *maker) job(i int, cards int64) Job {
	run := float64(m.Median) * math.Exp(m.Sigma*m.dice.NormFloat64())
	j := Job{ID: fmt.Sprintf("job-%07d", i), Replicas: 1, Run: int64(min(max(run, float64(Second)), 100*float64(m.Median)))}
	// A few tenants have most of the work, as everywhere.
	who := int(float64(m.Tenants) * math.Pow(m.dice.Float64(), 2))
	j.Tenant = fmt.Sprintf("tenant-%03d", who)
	j.Priority = []int64{0, 0, 0, 5, 10}[m.dice.IntN(5)]
	j.Preemptible = m.dice.Float64() < m.Preemptible
	if j.Preemptible {
		j.Checkpoint = 600 * Second
	}
	switch kind := m.dice.Float64(); {
	case kind < m.CPUOnly:
		j.Ask.CPU = []int64{2000, 4000, 8000, 16_000}[m.dice.IntN(4)]
		j.Ask.Memory = j.Ask.CPU / 1000 * 4096
	case kind < m.CPUOnly+m.Shares:
		j.Ask.Cards, j.Ask.Share = 1, []int{100, 200, 250, 500}[m.dice.IntN(4)]
		j.Ask.CPU, j.Ask.Memory = 2000, 8192
	default:
		j.Ask.Cards, j.Ask.Share = min([]int{1, 1, 1, 1, 2, 2, 4, 8}[m.dice.IntN(8)], m.Cards), pack.Whole
		j.Ask.CPU, j.Ask.Memory = 8000*int64(j.Ask.Cards), 32_768*int64(j.Ask.Cards)
	}
	if m.dice.Float64() < m.Gangs && j.Ask.Share == pack.Whole {
		j.Replicas = int(min([]int64{2, 4, 8}[m.dice.IntN(3)], max(cards/(4*int64(j.Ask.Cards)), 1)))
	}
	switch m.Estimates {
	case "exact":
		j.Expected = j.Run
	case "rough":
		j.Expected = int64(float64(j.Run) * (1 + 4*m.dice.Float64()))
	}
	return j
}
