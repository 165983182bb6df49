package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// room is where work runs: a pool of nodes, or a network of centers.
type room interface {
	// place gives replicas of a job their places: as many as it can from least to
	// most, or none.
	place(j int32, least, most int) (seat, bool, error)
	release(j int32, s seat)
	// shut keeps places from getting work, or opens them again.
	shut(places []int32, yes bool)
	// able are the places that could take a replica if they were empty; nil: all.
	able(j int32) []string
	// check says why a job fits nowhere even if all is empty, "" if it does.
	check(j int32) string
	// fragmentation is in per cent of all cards; nil: not measured.
	fragmentation() func() float64
}

// seat is what a running job has.
type seat struct {
	spots   []spot
	members int // replicas
	// speed of the slowest spot, in thousandths.
	speed  int64
	spread bool  // its cards are on several nodes, where they might be on one
	delay  int64 // until its data is there
	bring  []carry
}

// carry is a dataset on its way.
type carry struct {
	at      int32
	dataset string
	bytes   int64
	fee     place.Fact // fen
}

// spot is replicas of a job on a node or in a center.
type spot struct {
	at    int32
	n     int32
	cards []int // on a node: which
	task  int32 // of a recorded work: its index
}

// pool places work on nodes.
type pool struct {
	fleet   *Fleet
	jobs    []Job
	cluster *pack.Cluster
	whole   int64
	asks    []ask // that differ
	of      []int32
	by      map[string]*Supply // by model
	models  []string
	likely  []pack.Task
	free    []nodeRoom
}

// nodeRoom is what is free on a node, as the simulation itself counts it.
type nodeRoom struct {
	cpu, memory int64
	cards       []int16
}

// take gives, or takes back with sign -1, what one task has at cards.
func (r *nodeRoom) take(t *pack.Task, cards []int, sign int64) {
	r.cpu -= sign * t.CPU
	r.memory -= sign * t.Memory
	for _, c := range cards {
		r.cards[c] -= int16(sign) * int16(t.Share)
	}
}

// fits is how many equal tasks, at most up to, have room beside each other.
func (r *nodeRoom) fits(t *pack.Task, up int) int {
	if t.CPU > 0 {
		up = int(min(int64(up), r.cpu/t.CPU))
	}
	if t.Memory > 0 {
		up = int(min(int64(up), r.memory/t.Memory))
	}
	if t.Cards == 0 || up <= 0 {
		return max(up, 0)
	}
	slots := 0
	for _, f := range r.cards {
		if t.Cards > 1 {
			slots += int(f) / pack.Whole
		} else {
			slots += int(f) / t.Share
		}
	}
	return min(up, slots/t.Cards)
}

// ask is what equal replicas ask for.
type ask struct {
	task, single   pack.Task // single: one card, of a job that may be split
	whole, spread  *pack.Ask
	never          string
	known, isSplit bool
}

// askKey tells asks apart.
type askKey struct {
	cpu, memory   int64
	cards, share  int
	models, kind  string
	split, amount bool
}

// samples of asks that policies look ahead with.
const samples = 10_000

func newPool(f *Fleet, w *Workload, policy pack.Policy, seed uint64) (*pool, error) {
	p := &pool{fleet: f, jobs: w.Jobs, by: map[string]*Supply{}, of: make([]int32, len(w.Jobs))}
	nodes := make([]pack.Node, len(f.Nodes))
	for i := range f.Nodes {
		n := &f.Nodes[i]
		nodes[i] = n.Node
		free := nodeRoom{n.CPU, n.Memory, make([]int16, n.Cards)}
		for k := range free.cards {
			free.cards[k] = pack.Whole
		}
		p.free = append(p.free, free)
		p.whole += int64(n.Cards) * pack.Whole
		if p.by[n.Model] == nil {
			p.by[n.Model] = &n.Supply
		}
	}
	p.models = slices.Sorted(maps.Keys(p.by))
	seen := map[askKey]int32{}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		k := askKey{j.Ask.CPU, j.Ask.Memory, j.Ask.Cards, j.Ask.Share, strings.Join(j.Ask.Models, "|"), j.Kind, j.Split, len(j.Resources) > 0 || len(j.Data) > 0 || j.Spec != "" || j.Work != nil}
		at, ok := seen[k]
		if !ok {
			at = int32(len(p.asks))
			seen[k] = at
			p.asks = append(p.asks, p.ask(j))
		}
		p.of[i] = at
	}
	step := max((len(w.Jobs)+samples-1)/samples, 1)
	for i := 0; i < len(w.Jobs); i += step {
		p.likely = append(p.likely, p.asks[p.of[i]].task)
	}
	var err error
	if p.cluster, err = pack.New(nodes, policy, p.likely, seed); err != nil {
		return nil, err
	}
	for i := range p.asks {
		a := &p.asks[i]
		if a.whole, err = p.cluster.Prepare(a.task); err != nil {
			return nil, err
		}
		if a.isSplit {
			if a.spread, err = p.cluster.Prepare(a.single); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// ask is what a replica of j asks for; models that its kind does not run on are
// not among those it can use.
func (p *pool) ask(j *Job) ask {
	t := pack.Task{CPU: j.Ask.CPU, Memory: j.Ask.Memory, Cards: j.Ask.Cards, Share: j.Ask.Share, Models: j.Ask.Models}
	if j.Kind != "" && t.Cards > 0 {
		var can []string
		for _, m := range p.models {
			if (len(t.Models) == 0 || slices.Contains(t.Models, m)) && p.by[m].speed(j.Kind, false) > 0 {
				can = append(can, m)
			}
		}
		switch {
		case len(can) == 0:
			t.Models = []string{"none that it runs on"}
		case len(can) < len(p.models):
			t.Models = can
		}
	}
	a := ask{task: t, isSplit: j.Split && t.Cards > 1}
	if a.isSplit {
		a.single = pack.Task{CPU: t.CPU / int64(t.Cards), Memory: t.Memory / int64(t.Cards), Cards: 1, Share: t.Share, Models: t.Models}
	}
	return a
}

func (p *pool) place(i int32, least, most int) (seat, bool, error) {
	j, a := &p.jobs[i], &p.asks[p.of[i]]
	s, ok := p.put(j, a.whole, a.task, least, most, false)
	if !ok && a.isSplit {
		n := j.Replicas * a.task.Cards
		s, ok = p.put(j, a.spread, a.single, n, n, true)
	}
	if s.members = len(s.spots); s.members > j.Replicas {
		s.members = j.Replicas
	}
	return s, ok, nil
}

func (p *pool) put(j *Job, a *pack.Ask, t pack.Task, least, most int, split bool) (seat, bool) {
	s := seat{spots: make([]spot, 0, most), speed: math.MaxInt64}
	for n := range most {
		x, ok := p.cluster.Put(a)
		if !ok && n >= least {
			break
		}
		if !ok {
			p.back(t, s.spots)
			return seat{}, false
		}
		p.free[x.Node].take(&t, x.Cards, 1)
		s.spots = append(s.spots, spot{at: int32(x.Node), n: 1, cards: x.Cards})
	}
	for _, x := range s.spots {
		s.spread = s.spread || split && x.at != s.spots[0].at
	}
	for _, x := range s.spots {
		s.speed = min(s.speed, p.fleet.Nodes[x.at].speed(j.Kind, s.spread))
	}
	if s.speed == 0 { // it runs here, but not spread
		p.back(t, s.spots)
		return seat{}, false
	}
	return s, true
}

func (p *pool) back(t pack.Task, spots []spot) {
	for _, x := range slices.Backward(spots) {
		p.free[x.at].take(&t, x.cards, -1)
		p.cluster.Release(t, pack.Placement{Node: int(x.at), Cards: x.cards})
	}
}

func (p *pool) release(i int32, s seat) {
	a := &p.asks[p.of[i]]
	if len(s.spots) > p.jobs[i].Replicas {
		p.back(a.single, s.spots)
		return
	}
	p.back(a.task, s.spots)
}

// withoutSome answers a function that tells whether a job has its room on some
// nodes when some jobs, which are where their seats say, are gone.
func (p *pool) withoutSome(i int32) func(places []string, index map[string]int32, n int, gone func(k int) (int32, seat)) bool {
	j, a := &p.jobs[i], &p.asks[p.of[i]]
	known := map[int32]int{} // replicas that fit on a node as it is
	fits := func(n int32, r *nodeRoom) int {
		if len(a.task.Models) > 0 && !slices.Contains(a.task.Models, p.fleet.Nodes[n].Model) {
			return 0
		}
		return r.fits(&a.task, j.Replicas)
	}
	as := func(n int32) int {
		v, ok := known[n]
		if !ok {
			v = fits(n, &p.free[n])
			known[n] = v
		}
		return v
	}
	last, whole, among := []string(nil), 0, map[int32]bool{} // of all those places together
	return func(places []string, index map[string]int32, n int, gone func(k int) (int32, seat)) bool {
		if len(last) != len(places) || len(places) > 0 && &last[0] != &places[0] {
			last, whole = places, 0
			clear(among)
			for _, name := range places {
				whole += as(index[name])
				among[index[name]] = true
			}
		}
		changed := map[int32]*nodeRoom{}
		for k := range n {
			g, s := gone(k)
			t := &p.asks[p.of[g]].task
			if len(s.spots) > p.jobs[g].Replicas {
				t = &p.asks[p.of[g]].single
			}
			for _, x := range s.spots {
				r := changed[x.at]
				if r == nil {
					r = &nodeRoom{p.free[x.at].cpu, p.free[x.at].memory, slices.Clone(p.free[x.at].cards)}
					changed[x.at] = r
				}
				r.take(t, x.cards, -1)
			}
		}
		room := whole
		for at, r := range changed {
			if among[at] { // what else the jobs held does not help
				room += fits(at, r) - as(at)
			}
		}
		return room >= j.Replicas
	}
}

func (p *pool) shut(nodes []int32, yes bool) {
	for _, n := range nodes {
		p.cluster.Drain(int(n), yes)
	}
}

func (p *pool) able(i int32) []string {
	a := &p.asks[p.of[i]]
	if len(a.task.Models) == 0 {
		return nil
	}
	out := []string{}
	for k := range p.fleet.Nodes {
		if n := &p.fleet.Nodes[k]; slices.Contains(a.task.Models, n.Model) {
			out = append(out, n.ID)
		}
	}
	return out
}

func (p *pool) fragmentation() func() float64 {
	if p.whole == 0 {
		return nil
	}
	m := p.cluster.Measure(p.likely)
	return func() float64 { return 100 * m.Amount() / float64(p.whole) }
}

// check looks at single nodes, and at all together: not at how the replicas of
// a job fit beside each other.
func (p *pool) check(i int32) string {
	j, a := &p.jobs[i], &p.asks[p.of[i]]
	if !a.known {
		t := a.task
		switch a.known = true; {
		case len(j.Resources) > 0 || len(j.Data) > 0 || j.Spec != "" || j.Work != nil:
			a.never = "it asks for what only centers have: resources, data, a specification or a recorded work"
		case !p.fits(t) && !(a.isSplit && p.fits(a.single)):
			a.never = fmt.Sprintf("no node has %s cores, %d MiB and %d cards%s", core.FormatQuantity(core.CPU, t.CPU), t.Memory, t.Cards, of(t.Models))
		}
	}
	if need := int64(j.least()) * j.Ask.Demand(); a.never == "" && need > p.whole {
		return fmt.Sprintf("it asks for %d cards in all, there are %d", need/pack.Whole, p.whole/pack.Whole)
	}
	return a.never
}

func of(models []string) string {
	if len(models) == 0 {
		return ""
	}
	return fmt.Sprintf(" of %v", models)
}

// fits reports whether a task fits on an empty node.
func (p *pool) fits(t pack.Task) bool {
	for i := range p.fleet.Nodes {
		n := &p.fleet.Nodes[i]
		if n.CPU >= t.CPU && n.Memory >= t.Memory && n.Cards >= t.Cards && (t.Cards == 0 || len(t.Models) == 0 || slices.Contains(t.Models, n.Model)) {
			return true
		}
	}
	return false
}
