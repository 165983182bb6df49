package pack

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// plain is a cluster without an index: it looks at every node for every task,
// and counts the tasks of groups anew. Only the rating itself is shared.
type plain struct {
	c       *Cluster // for its policy and kinds; never placed into
	rooms   []room
	drained []bool
	held    []held
}

type held struct {
	t Task
	p Placement
}

func (x *plain) usable(t *Task, node int) bool {
	n := &x.c.nodes[node]
	if t.Cards > 0 && len(t.Models) > 0 && !slices.Contains(t.Models, n.Model) {
		return false
	}
	for k, v := range t.Select {
		if have, ok := n.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

func (x *plain) count(group, label, value string) (n int) {
	for _, h := range x.held {
		if v, ok := x.c.nodes[h.p.Node].Labels[label]; h.t.Group == group && ok && v == value {
			n++
		}
	}
	return n
}

func (x *plain) meets(t *Task, node int, soft bool) bool {
	for _, r := range t.Spread {
		if r.Soft && !soft {
			continue
		}
		if r.Label == "" {
			n := 0
			for _, h := range x.held {
				if h.t.Group == t.Group && h.p.Node == node {
					n++
				}
			}
			if n >= r.Most {
				return false
			}
			continue
		}
		value, ok := x.c.nodes[node].Labels[r.Label]
		if !ok {
			return false
		}
		here := x.count(t.Group, r.Label, value)
		if r.Most > 0 && here >= r.Most {
			return false
		}
		if r.Skew > 0 {
			usable, live := map[string]bool{}, map[string]bool{}
			for i := range x.c.nodes {
				if v, ok := x.c.nodes[i].Labels[r.Label]; ok {
					usable[v] = usable[v] || x.usable(t, i)
					live[v] = live[v] || !x.drained[i]
				}
			}
			least := math.MaxInt
			for v := range usable {
				if usable[v] && live[v] {
					least = min(least, x.count(t.Group, r.Label, v))
				}
			}
			if here+1-least > r.Skew {
				return false
			}
		}
	}
	return true
}

func (x *plain) place(t Task, within, value string) (Placement, bool) {
	s := shapeOf(&t)
	for _, soft := range []bool{true, false} {
		for _, some := range [][]int{t.Prefer, nil} {
			if some == nil {
				for i := range x.rooms {
					some = append(some, i)
				}
			}
			node, cost, at := -1, math.Inf(1), cards(0)
			for _, i := range some {
				sorted := x.rooms[i].sorted()
				if !x.c.ilks {
					sorted.ilks = 0
				}
				if v, ok := x.c.nodes[i].Labels[within]; within != "" && (!ok || v != value) {
					continue
				}
				if x.drained[i] || !x.usable(&t, i) || !x.rooms[i].fits(&s.need) || x.rooms[i].memory < s.memory || !x.meets(&t, i, soft) {
					continue
				}
				if c, a := x.c.policy.rate(&sorted, &s.need, &x.c.kinds[x.c.kindOf[i]]); c < cost || c == cost && i < node {
					node, cost, at = i, c, a
				}
			}
			if node < 0 {
				continue
			}
			r := &x.rooms[node]
			p := Placement{Node: node}
			sorted := r.sorted()
			for i := 0; i < int(r.cards) && len(p.Cards) < t.Cards; i++ {
				good := r.free[i] == Whole
				if s.partial() {
					good = false
					for k := range int(r.cards) {
						good = good || at&(1<<k) != 0 && sorted.free[k] == r.free[i]
					}
				}
				if good {
					p.Cards = append(p.Cards, i)
				}
			}
			card := 0
			if len(p.Cards) > 0 {
				card = p.Cards[0]
			}
			r.take(&s.need, card)
			x.held = append(x.held, held{t, p})
			return p, true
		}
	}
	return Placement{}, false
}

func (x *plain) release(k int) held {
	h := x.held[k]
	x.held = slices.Delete(x.held, k, k+1)
	r := &x.rooms[h.p.Node]
	r.cpu += int32(h.t.CPU)
	r.memory += int32(h.t.Memory)
	for _, card := range h.p.Cards {
		r.free[card] += int16(h.t.Share)
	}
	if r.left() == int32(r.cards)*Whole {
		r.ilks = 0
	}
	return h
}

func (x *plain) gang(tasks []Task, within string) ([]Placement, bool) {
	before, holds := slices.Clone(x.rooms), slices.Clone(x.held)
	values := []string{""}
	if within != "" {
		type value struct {
			name string
			cost float64
			node int
		}
		best := map[string]value{}
		s := shapeOf(&tasks[0])
		for i := range x.rooms {
			v, ok := x.c.nodes[i].Labels[within]
			full := x.excluded(&tasks[0], i)
			if !ok || x.drained[i] || full || !x.usable(&tasks[0], i) || !x.rooms[i].fits(&s.need) || x.rooms[i].memory < s.memory {
				continue
			}
			sorted := x.rooms[i].sorted()
			if !x.c.ilks {
				sorted.ilks = 0
			}
			cost, _ := x.c.policy.rate(&sorted, &s.need, &x.c.kinds[x.c.kindOf[i]])
			if b, ok := best[v]; !ok || cost < b.cost {
				best[v] = value{v, cost, i}
			}
		}
		values = nil
		for _, v := range slices.SortedFunc(maps.Values(best), func(a, b value) int {
			if a.cost < b.cost || a.cost == b.cost && a.node < b.node {
				return -1
			}
			return 1
		}) {
			values = append(values, v.name)
		}
	}
	for _, v := range values {
		var out []Placement
		for _, t := range tasks {
			p, ok := x.place(t, within, v)
			if !ok {
				break
			}
			out = append(out, p)
		}
		if len(out) == len(tasks) {
			return out, true
		}
		copy(x.rooms, before)
		x.held = slices.Clone(holds)
	}
	return nil, false
}

// excluded reports whether a rule for single nodes keeps a task from a node.
func (x *plain) excluded(t *Task, node int) bool {
	for _, r := range t.Spread {
		if r.Label == "" && !x.meets(&Task{Group: t.Group, Spread: []Spread{{Most: r.Most}}}, node, true) {
			return true
		}
	}
	return false
}

func randomFleet(dice *rand.Rand, nodes int, alike bool) []Node {
	var out []Node
	for i := range nodes {
		n := Node{ID: fmt.Sprint(i), CPU: 64000, Memory: 256 << 10, Cards: 4, Model: "a", Labels: map[string]string{}}
		if !alike {
			n.CPU, n.Memory, n.Cards, n.Model = 1000*dice.Int64N(65), 1024*dice.Int64N(257), dice.IntN(9), []string{"a", "b"}[dice.IntN(2)]
		}
		if dice.IntN(8) > 0 {
			n.Labels["rack"] = fmt.Sprint("r", dice.IntN(4))
		}
		n.Labels["zone"] = fmt.Sprint("z", dice.IntN(2))
		out = append(out, n)
	}
	return out
}

func randomTasks(dice *rand.Rand, nodes int) []Task {
	var out []Task
	for range 1 + dice.IntN(10) {
		t := Task{CPU: 500 * dice.Int64N(16), Memory: 512 * dice.Int64N(32)}
		switch dice.IntN(5) {
		case 0:
			t.Cards, t.Share = 1, 1+dice.IntN(Whole)
		case 1:
			t.Cards, t.Share = 1+dice.IntN(4), Whole
		case 2:
			t.Cards, t.Share, t.Models = 1, 500, []string{"b"}
		case 3:
			t.Cards, t.Share, t.Models = 1, 250, []string{"b", "a"}
		}
		if dice.IntN(4) == 0 {
			t.Select = map[string]string{"zone": fmt.Sprint("z", dice.IntN(2))}
		}
		if dice.IntN(2) == 0 {
			t.Group = fmt.Sprint("g", dice.IntN(3))
			if dice.IntN(2) == 0 {
				t.Spread = append(t.Spread, Spread{Label: "rack", Skew: 1 + dice.IntN(2), Soft: dice.IntN(3) == 0})
			}
			if dice.IntN(3) == 0 {
				t.Spread = append(t.Spread, Spread{Label: "zone", Most: 1 + dice.IntN(6)})
			}
			if dice.IntN(3) == 0 {
				t.Spread = append(t.Spread, Spread{Most: 1 + dice.IntN(2), Soft: dice.IntN(3) == 0})
			}
		}
		if dice.IntN(6) == 0 {
			t.Prefer = []int{dice.IntN(nodes), dice.IntN(nodes)}
		}
		out = append(out, t)
	}
	return out
}

// Whatever happens, the index decides what a look at every node decides.
func TestIndexIsPlainScan(t *testing.T) {
	t.Parallel()
	for _, policy := range Policies() {
		if policy == Random {
			continue // it casts dice
		}
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			placed, gangs, refused := 0, 0, 0
			for seed := range uint64(30) {
				dice := rand.New(rand.NewPCG(seed, 5))
				n := 1 + dice.IntN(24)
				nodes := randomFleet(dice, n, seed%2 == 0)
				tasks := randomTasks(dice, n)
				c, err := New(nodes, policy, tasks, seed)
				if err != nil {
					t.Fatal(err)
				}
				twin, err := New(nodes, policy, tasks, seed)
				if err != nil {
					t.Fatal(err)
				}
				switch seed % 3 { // slots are used again at once, rows forgotten
				case 0:
					c.keep = 0
				case 1:
					c.keep, c.maxCells = 2, 2*n
				}
				x := &plain{c: twin, rooms: slices.Clone(twin.rooms), drained: make([]bool, n)}
				var asks []*Ask
				for _, task := range tasks {
					a, err := c.Prepare(task)
					if err != nil {
						t.Fatal(err)
					}
					asks = append(asks, a)
				}
				for step := range 120 {
					switch k := dice.IntN(12); {
					case k < 4 && len(x.held) > 0:
						h := x.release(dice.IntN(len(x.held)))
						c.Release(h.t, h.p)
					case k == 4:
						i, drain := dice.IntN(n), dice.IntN(2) == 0
						x.drained[i] = drain
						c.Drain(i, drain)
					case k == 5:
						gang := slices.Repeat([]Task{tasks[dice.IntN(len(tasks))]}, 1+dice.IntN(5))
						gang = append(gang, tasks[dice.IntN(len(tasks))])
						within := []string{"", "rack", "zone"}[dice.IntN(3)]
						want, ok := x.gang(gang, within)
						got, also := c.PlaceGang(gang, within)
						if ok != also || !reflect.DeepEqual(got, want) {
							t.Fatalf("seed %d, step %d: gang %+v within %q goes to %v %v, a plain scan says %v %v", seed, step, gang, within, got, also, want, ok)
						}
						if gangs++; !ok {
							refused++
						}
					default:
						i := dice.IntN(len(tasks))
						want, ok := x.place(tasks[i], "", "")
						got, also := c.Put(asks[i])
						if ok != also || !reflect.DeepEqual(got, want) {
							t.Fatalf("seed %d, step %d: %+v goes to %v %v, a plain scan says %v %v", seed, step, tasks[i], got, also, want, ok)
						}
						placed++
					}
					if !slices.Equal(c.rooms, x.rooms) {
						t.Fatalf("seed %d, step %d: the rooms differ", seed, step)
					}
					left := int64(0)
					for i := range c.rooms {
						left += int64(c.rooms[i].left())
					}
					if left != c.Left() {
						t.Fatalf("seed %d, step %d: %d is left, the cluster says %d", seed, step, left, c.Left())
					}
				}
				for len(x.held) > 0 {
					h := x.release(0)
					c.Release(h.t, h.p)
				}
				if len(c.groups) > 0 || c.Left() != c.Whole() || len(c.free) > len(c.states) {
					t.Fatalf("seed %d: after all releases %d groups, %d of %d cards free, %d slots of %d listed", seed, len(c.groups), c.Left(), c.Whole(), len(c.free), len(c.states))
				}
			}
			if placed == 0 || gangs == 0 || refused == 0 || refused == gangs {
				t.Errorf("%d tasks, %d gangs, %d of them refused: too little was tried", placed, gangs, refused)
			}
		})
	}
}
