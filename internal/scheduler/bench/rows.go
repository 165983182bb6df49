package bench

import (
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// What others were measured to do on the machine of docs/benchmarks.md; the
// sources are there.
const (
	karmada   = "Karmada 92 to 125"
	armada    = "Armada 9,120 to 15,300; Volcano 467 to 557"
	armada5   = "Armada 10,100 to 12,200; Volcano 182 to 257"
	armada100 = "Armada 9,520 to 14,700"
	armadas   = "Armada 24,800 to 28,900"
	nomad     = "Nomad 15,200 to 26,000, looking at some of the nodes"
	nomadRack = "Nomad 27, on 5,000 nodes"
)

func items(parts int) []item {
	fast := func(n float64) string { return fmt.Sprintf("at least %d,000/s", int(n)/1000) }
	networked := func(name, work string, kinds, jobs int, goal float64) item {
		x := item{Row: Row{Name: name, Work: work, Candidates: 1000 / parts, Jobs: jobs / parts, Peer: karmada}, perSecond: goal, again: 2}
		if goal > 0 {
			x.Goal = fast(goal)
		}
		x.run = func(r *Row, m *meter) error { return network(r, m, kinds) }
		return x
	}
	pooled := func(name string, nodes, jobs int, peer string) item {
		return item{Row: Row{Name: name, Work: "pool level, 10 tenants in fair share, 24 asks", Candidates: nodes / parts, Jobs: jobs / parts, Goal: fast(150_000), Peer: peer},
			perSecond: 150_000, again: 3, run: pool}
	}
	packed := func(name, work string, s scored) item {
		jobs := 200_000
		if s.policy == pack.Waste {
			jobs = 20_000
		}
		x := item{Row: Row{Name: name, Work: work, Candidates: 10_000 / parts, Jobs: jobs / parts, Peer: s.peer}, perSecond: s.goal, again: 3,
			run: func(r *Row, m *meter) error { return score(r, m, s) }}
		if s.goal > 0 {
			x.Goal = fast(s.goal)
		}
		return x
	}
	return []item{
		networked("network", "network level, 8 weighted policies, all asks equal", 1, 10_000, 100_000),
		networked("network-100", "network level, 8 weighted policies, 100 asks", 100, 10_000, 100_000),
		networked("network-all", "network level, 8 weighted policies, every ask different", 1000, 1000, 0),
		pooled("pool", 1000, 32_000, armada),
		pooled("pool-5000", 5000, 32_000, armada5),
		pooled("pool-100k", 1000, 100_000, armada100),
		pooled("pool-5000-100k", 5000, 100_000, ""),
		{Row: Row{Name: "gangs", Work: "gangs of 8 in one of 4 clusters, 10 tenants in fair share", Candidates: 1000 / parts, Jobs: 4000 / parts, Goal: fast(290_000) + " members", Peer: armadas},
			perSecond: 290_000, again: 3, run: gangs},
		packed("scored", "all nodes scored, 24 asks", scored{goal: 100_000, peer: nomad}),
		packed("spread", "all nodes scored, 24 asks, spread over 250 racks by 1 at most", scored{goal: 50_000, peer: nomadRack, spread: true}),
		packed("different", "all nodes scored, 24 asks, every node different", scored{different: true}),
		packed("balanced", "all nodes scored, 24 asks, loading all nodes alike", scored{policy: pack.Balanced}),
		packed("waste", "all nodes scored, 24 asks, leaving the least over", scored{policy: pack.Waste}),
		{Row: Row{Name: "ten-times", Work: "time of a decision against that on a tenth of the nodes", Candidates: 10_000 / parts, Jobs: 200_000 / parts, Goal: "ratio at most 1.3"},
			ratio: 1.3, run: tenTimes},
		{Row: Row{Name: "million", Work: "1 M jobs waiting, 1,000 come and 1,000 end each second", Candidates: 10_000 / parts, Jobs: 1_000_000 / parts,
			Goal: "p99 under 20 ms, under 1,536 MiB"}, p99: 20, mib: 1536, again: 2, run: million},
	}
}

// network plans jobs for centers that have room for all of them.
func network(r *Row, m *meter, kinds int) error {
	s, set, err := centers(r.Candidates)
	if err != nil {
		return err
	}
	jobs := backlog(r.Jobs, kinds)
	for range max(1, min(10, r.Jobs/200)) { // plans enough to tell one from the other
		m.on()
		start := time.Now()
		res, err := place.Plan(s, jobs, set, place.Options{NoTables: true})
		m.add(time.Since(start))
		m.off()
		if err != nil {
			return err
		}
		r.Placed += len(res.Placements)
	}
	r.P99Of = fmt.Sprintf("plan of %d", r.Jobs)
	return nil
}

// scored says how the rows about single placements differ.
type scored struct {
	goal      float64
	peer      string
	policy    pack.Policy
	spread    bool
	different bool
}

// score places one task after the other in a pool.
func score(r *Row, m *meter, s scored) error {
	if s.policy == "" {
		s.policy = pack.BestFit
	}
	tasks := asks(24)
	if s.spread {
		for i := range tasks {
			tasks[i].Group = fmt.Sprint("job-", i)
			tasks[i].Spread = []pack.Spread{{Label: "rack", Skew: 1}}
		}
	}
	c, err := pack.New(nodes(r.Candidates, s.different), s.policy, tasks, 1)
	if err != nil {
		return err
	}
	prepared, err := prepare(c, tasks)
	if err != nil {
		return err
	}
	dice := dice(2)
	m.on()
	defer m.off()
	before := time.Now()
	for range r.Jobs {
		_, ok := c.Put(prepared[dice.IntN(len(prepared))])
		now := time.Now()
		m.add(now.Sub(before))
		before = now
		if ok {
			r.Placed++
		}
	}
	r.P99Of = "decision"
	return nil
}

func prepare(c *pack.Cluster, tasks []pack.Task) ([]*pack.Ask, error) {
	var out []*pack.Ask
	for _, t := range tasks {
		a, err := c.Prepare(t)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// tenTimes has the same work on a tenth of the nodes, a tenth of it ten times,
// so that both fill up alike. Five runs of each, the fastest counts, by
// processor time where that is known.
func tenTimes(r *Row, m *meter) error {
	best := [2]time.Duration{}
	for range 5 {
		for i, n := range []int{r.Candidates / 10, r.Candidates} {
			var busy, cpu time.Duration
			placed := 0
			for range r.Candidates / max(n, 1) {
				x := Row{Candidates: n, Jobs: r.Jobs * n / r.Candidates}
				one := &meter{}
				if err := score(&x, one, scored{}); err != nil {
					return err
				}
				busy, cpu, placed = busy+one.busy, cpu+one.cpu, placed+x.Placed
			}
			if placed == 0 {
				return fault.New(fault.Internal, "nothing was placed on %d nodes", n)
			}
			per := busy / time.Duration(placed)
			if cpu > 0 {
				per = cpu / time.Duration(placed) // it waits for nothing; others on the machine do not count
			}
			if per = max(per, 1); best[i] == 0 || per < best[i] {
				best[i] = per
			}
			if i == 1 {
				m.busy, m.cpu, r.Placed = m.busy+busy, m.cpu+cpu, r.Placed+placed
			}
		}
	}
	r.Ratio = float64(best[1]) / float64(best[0])
	r.P99Of = "-"
	return nil
}
