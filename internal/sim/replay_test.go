package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/sim"
)

// anyInput makes up a small input with everything in it.
func anyInput(dice *rand.Rand) *sim.Input {
	in := &sim.Input{}
	supply := func() sim.Supply {
		return sim.Supply{Price: place.Known(dice.Int64N(2000)), CorePrice: place.Known(dice.Int64N(20)), Idle: 50_000, Busy: 50_000 + dice.Int64N(300_000), CoreBusy: dice.Int64N(5000), Speed: 500 + dice.Int64N(2000)}
	}
	models := []string{"a", "b"}
	if dice.IntN(3) == 0 {
		for i := range 1 + dice.IntN(4) {
			in.Centers = append(in.Centers, sim.Center{ID: fmt.Sprintf("c%d", i), CPU: 1000 * (8 + dice.Int64N(64)), Memory: 1 << 16, Cards: dice.Int64N(16), Model: models[dice.IntN(2)], Supply: supply()})
		}
	} else {
		for i := range 1 + dice.IntN(6) {
			in.Nodes = append(in.Nodes, sim.Node{Node: pack.Node{ID: fmt.Sprintf("n%d", i), CPU: 1000 * (4 + dice.Int64N(60)), Memory: 1024 * (4 + dice.Int64N(60)), Cards: dice.IntN(9), Model: models[dice.IntN(2)]}, Supply: supply()})
		}
	}
	for i := range 3 {
		t := sim.Tenant{ID: fmt.Sprintf("t%d", i), Weight: 1 + dice.Int64N(3)}
		if i == 0 {
			t.Guaranteed = map[string]int64{"card": 2000}
		}
		if i == 1 {
			t.Limit = map[string]int64{"card": 8000}
		}
		in.Tenants = append(in.Tenants, t)
	}
	at := int64(0)
	for i := range 20 + dice.IntN(200) {
		at += dice.Int64N(200) * sim.Second
		j := sim.Job{ID: fmt.Sprintf("j%d", i), Tenant: fmt.Sprintf("t%d", dice.IntN(4)), Arrival: at, Run: 1 + dice.Int64N(4000*sim.Second), Replicas: 1, Priority: dice.Int64N(3), Preemptible: dice.IntN(2) == 0}
		j.Ask.CPU, j.Ask.Memory = 500*dice.Int64N(9), 512*(1+dice.Int64N(8))
		switch dice.IntN(4) {
		case 0:
			j.Ask.Cards, j.Ask.Share = 1, 1+dice.IntN(1000)
		case 1:
			j.Ask.Cards, j.Ask.Share = 1+dice.IntN(8), 1000
			j.Split = dice.IntN(2) == 0
		case 2:
			j.Ask.Cards, j.Ask.Share, j.Replicas = 1, 1000, 1+dice.IntN(4)
		}
		if j.Preemptible && dice.IntN(2) == 0 {
			j.Checkpoint = 60 * sim.Second
		}
		if dice.IntN(4) == 0 {
			j.Ask.Models = models[:1]
		}
		switch dice.IntN(3) {
		case 0:
			j.Expected = j.Run
		case 1:
			j.Expected = 1 + j.Run/2
		}
		if dice.IntN(5) == 0 {
			j.Deadline = at + 1 + dice.Int64N(8000*sim.Second)
		}
		in.Jobs = append(in.Jobs, j)
	}
	return in
}

var queues = []string{"fcfs,backfill=off", "fcfs,backfill=greedy", "fair", "priority", "fair,preempt=on", "fair,preempt=on,strict=on,half-life=1h", "fair,ageing=10m,assumed-run=30m"}

// replay checks a run from its events alone.
type replay struct {
	t      *testing.T
	in     *sim.Input
	now    int64
	cpu    []int64
	memory []int64
	cards  [][]int // of nodes; of centers one number
	state  []string
	began  []int64
	first  map[int]int64
	spots  [][]sim.Spot
	left   []int64
	back   int64
	cost   *big.Rat
	ends   map[int]int64
	busy   *big.Int // milli × µs
}

func newReplay(t *testing.T, in *sim.Input) *replay {
	r := &replay{t: t, in: in, state: make([]string, len(in.Jobs)), began: make([]int64, len(in.Jobs)), spots: make([][]sim.Spot, len(in.Jobs)), left: make([]int64, len(in.Jobs)),
		first: map[int]int64{}, ends: map[int]int64{}, cost: new(big.Rat), busy: new(big.Int)}
	for i := range in.Nodes {
		r.cpu, r.memory = append(r.cpu, in.Nodes[i].CPU), append(r.memory, in.Nodes[i].Memory)
		cards := make([]int, in.Nodes[i].Cards)
		for k := range cards {
			cards[k] = 1000
		}
		r.cards = append(r.cards, cards)
	}
	for i := range in.Centers {
		r.cpu, r.memory, r.cards = append(r.cpu, in.Centers[i].CPU), append(r.memory, in.Centers[i].Memory), append(r.cards, []int{int(in.Centers[i].Cards) * 1000})
	}
	for i := range in.Jobs {
		r.left[i] = in.Jobs[i].Run
	}
	return r
}

// change takes (1) or gives back (-1) what a job has.
func (r *replay) change(e sim.Event, spots []sim.Spot, sign int64) {
	j := &r.in.Jobs[e.Job]
	cards := 0
	for _, s := range spots {
		n, per := int64(s.Replicas), int64(1)
		if len(r.in.Nodes) > 0 {
			if cards += len(s.Cards); len(spots) > j.Replicas { // a card at a time
				per = int64(j.Ask.Cards)
				if len(s.Cards) != 1 {
					r.t.Fatalf("%s: a part of a split job has cards %v", j.ID, s.Cards)
				}
			}
			for _, c := range s.Cards {
				r.cards[s.At][c] -= int(sign) * j.Ask.Share
				if f := r.cards[s.At][c]; f < 0 || f > 1000 {
					r.t.Fatalf("at %d %s: card %d of node %d has %d free", e.At, j.ID, c, s.At, f)
				}
			}
		} else {
			r.cards[s.At][0] -= int(sign * n * j.Ask.Demand())
			cards += int(n) * j.Ask.Cards
		}
		r.cpu[s.At] -= sign * n * (j.Ask.CPU / per)
		r.memory[s.At] -= sign * n * (j.Ask.Memory / per)
		if r.cpu[s.At] < 0 || r.memory[s.At] < 0 || len(r.cards[s.At]) > 0 && r.cards[s.At][0] < 0 {
			r.t.Fatalf("at %d %s: place %d has %d cores and %d MiB free", e.At, j.ID, s.At, r.cpu[s.At], r.memory[s.At])
		}
		if m := r.model(s.At); len(j.Ask.Models) > 0 && j.Ask.Cards > 0 && m != j.Ask.Models[0] {
			r.t.Fatalf("%s wants %v, is on %s", j.ID, j.Ask.Models, m)
		}
	}
	if want := j.Replicas * j.Ask.Cards; cards != want {
		r.t.Fatalf("%s has %d cards, asks for %d", j.ID, cards, want)
	}
}

func (r *replay) model(at int) string {
	if len(r.in.Nodes) > 0 {
		return r.in.Nodes[at].Model
	}
	return r.in.Centers[at].Model
}

func (r *replay) supply(at int) *sim.Supply {
	if len(r.in.Nodes) > 0 {
		return &r.in.Nodes[at].Supply
	}
	return &r.in.Centers[at].Supply
}

// slowest is the speed of a job where it is.
func (r *replay) slowest(spots []sim.Spot) int64 {
	least := int64(1 << 60)
	for _, s := range spots {
		least = min(least, r.supply(s.At).Speed)
	}
	return least
}

// used counts what a run cost.
func (r *replay) used(e sim.Event) {
	j, dt := &r.in.Jobs[e.Job], e.At-r.began[e.Job]
	r.busy.Add(r.busy, new(big.Int).Mul(big.NewInt(j.Demand()), big.NewInt(dt)))
	for _, s := range r.spots[e.Job] {
		per := int64(1)
		if len(r.in.Nodes) > 0 && len(r.spots[e.Job]) > j.Replicas {
			per = int64(j.Ask.Cards)
		}
		u := r.supply(s.At)
		rate := int64(s.Replicas) * (j.Ask.Demand()/per*u.Price.Value + j.Ask.CPU/per*u.CorePrice.Value)
		r.cost.Add(r.cost, new(big.Rat).Mul(big.NewRat(rate, 1000), big.NewRat(dt, sim.Hour)))
	}
}

func (r *replay) event(e sim.Event) {
	j := &r.in.Jobs[e.Job]
	was := r.state[e.Job]
	must := func(state string) {
		if was != state {
			r.t.Fatalf("at %d %s %v while %q", e.At, j.ID, e.What, was)
		}
	}
	if e.At < r.now {
		r.t.Fatalf("time goes back from %d to %d", r.now, e.At)
	}
	r.now = e.At
	switch e.What {
	case sim.Arrives:
		if must(""); e.At != j.Arrival {
			r.t.Fatalf("%s arrives at %d, not at %d", j.ID, e.At, j.Arrival)
		}
		r.state[e.Job] = "waiting"
	case sim.NeverFits:
		must("waiting")
		r.state[e.Job] = "never"
	case sim.Starts:
		must("waiting")
		if _, again := r.first[e.Job]; !again {
			r.first[e.Job] = e.At
		}
		r.state[e.Job], r.began[e.Job], r.spots[e.Job] = "running", e.At, e.Spots
		r.change(e, e.Spots, 1)
	case sim.Ends:
		must("running")
		r.change(e, r.spots[e.Job], -1)
		r.used(e)
		speed := r.slowest(r.spots[e.Job])
		run := (r.left[e.Job]*1000 + speed - 1) / speed
		if got := e.At - r.began[e.Job]; got < run-1 || got > run+1 {
			r.t.Fatalf("%s ran %d µs at %d thousandths, %d were left", j.ID, got, speed, r.left[e.Job])
		}
		r.state[e.Job], r.ends[e.Job] = "done", e.At
	case sim.TakenBack:
		must("running")
		if !j.Preemptible {
			r.t.Fatalf("%s is taken back, but must not be", j.ID)
		}
		r.change(e, r.spots[e.Job], -1)
		r.used(e)
		if ran := e.At - r.began[e.Job]; j.Checkpoint > 0 {
			r.left[e.Job] -= int64(float64(ran/j.Checkpoint*j.Checkpoint) * float64(r.slowest(r.spots[e.Job])) / 1000)
		}
		r.back++
		r.state[e.Job] = "waiting"
	}
}

// Whatever the input, the policy and the queue: nothing is given twice, nothing
// is lost, run times are kept, and the measures are those of the events.
func TestReplay(t *testing.T) {
	t.Parallel()
	taken := int64(0)
	for seed := range uint64(30) {
		dice := rand.New(rand.NewPCG(seed, 11))
		in := anyInput(dice)
		if err := in.Fleet.Check(); err != nil {
			t.Fatal(err)
		}
		q, err := sim.ParseQueue(queues[dice.IntN(len(queues))])
		if err != nil {
			t.Fatal(err)
		}
		all := []string{"waste", "fgd", "best-fit", "packing", "random"}
		name := []string{all[dice.IntN(len(all))]}
		if len(in.Centers) > 0 {
			name = []string{"price=3,energy=1"}
		}
		policies, err := sim.ParsePolicies(name, len(in.Centers) > 0)
		if err != nil {
			t.Fatal(err)
		}
		r := newReplay(t, in)
		config := sim.Config{Policy: policies[0], Queue: q, Seed: seed, Log: r.event}
		res, err := sim.Run(in, config)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		what := fmt.Sprintf("seed %d, %s, %s", seed, name[0], q.Name)
		r.agree(what, res)
		taken += r.back
		config.Log = nil
		again, err := sim.Run(in, config)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(res)
		if b, _ := json.Marshal(again); !bytes.Equal(a, b) {
			t.Errorf("%s: another run says something else:\n%s\n%s", what, a, b)
		}
	}
	if taken == 0 {
		t.Error("nothing was ever taken back: the test does not see preemption")
	}
}

// agree compares what was counted from events with the result.
func (r *replay) agree(what string, res *sim.Result) {
	count := map[string]int64{}
	for _, s := range r.state {
		count[s]++
	}
	j := res.Jobs
	if j.Done != count["done"] || j.Waiting != count["waiting"] || j.Running != 0 || j.Never != count["never"] || j.Later != 0 ||
		j.Total != int64(len(r.in.Jobs)) || j.Total != j.Done+j.Waiting+j.Never {
		r.t.Errorf("%s: %+v, from events %v", what, j, count)
	}
	if listed := int64(len(res.NotDone)); listed != min(j.Waiting, 100) || int64(len(res.NeverFits)) != min(j.Never, 100) {
		r.t.Errorf("%s: %d and %d are listed as not done: %+v", what, listed, len(res.NeverFits), j)
	}
	if res.Preemptions != r.back {
		r.t.Errorf("%s: %d taken back, from events %d", what, res.Preemptions, r.back)
	}
	fen := new(big.Rat).Add(r.cost, big.NewRat(1, 2))
	if want := new(big.Int).Div(fen.Num(), fen.Denom()); res.CostFen == nil || *res.CostFen != want.Int64() {
		r.t.Errorf("%s: costs %v fen, from events %v", what, res.CostFen, want)
	}
	wait := 0.0
	for i, at := range r.first {
		wait += float64(at-r.in.Jobs[i].Arrival) / float64(sim.Second)
	}
	if n := len(r.first); n > 0 && !near(res.Waiting.Mean, wait/float64(n)) {
		r.t.Errorf("%s: waits %v s on average, from events %v", what, res.Waiting.Mean, wait/float64(n))
	}
	hours, _ := new(big.Rat).SetFrac(r.busy, big.NewInt(1000*sim.Hour)).Float64()
	sum := 0.0
	for _, t := range res.Fairness.Tenants {
		sum += t.CardHours
	}
	if !near(sum, hours) {
		r.t.Errorf("%s: tenants had %v card hours, from events %v", what, sum, hours)
	}
	met, missed := int64(0), int64(0)
	for i := range r.in.Jobs {
		x := &r.in.Jobs[i]
		end, ok := r.ends[i]
		switch {
		case x.Deadline == 0 || r.state[i] == "never":
		case ok && end <= x.Deadline:
			met++
		case ok || r.now > x.Deadline:
			missed++
		}
	}
	if res.Deadlines.Met != met || res.Deadlines.Missed != missed {
		r.t.Errorf("%s: deadlines %+v, from events %d met and %d missed", what, res.Deadlines, met, missed)
	}
}

func near(a, b float64) bool { return a == b || (a-b)*(a-b) <= 1e-18*(a*a+b*b) }
