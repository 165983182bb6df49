// Package pack chooses the node, and the cards of the node, for tasks that ask
// for parts of cards. It is what decides how much of a pool of accelerators is
// left over that nobody can use.
//
// It is pure: no I/O, no clock, no goroutine; the same input gives the same
// placements. Equal nodes are told apart by their order. These things stay true:
//
//   - No card, and no node, gives more than it has; what fits somewhere, within
//     its rules, is placed.
//   - A gang is placed whole or not at all, and a refused one leaves the cluster
//     as it was.
//   - Every node counts in every decision: the index (see type index) finds the
//     node that a look at all of them finds.
//
// A [Cluster] is made of nodes and filled by [Cluster.Place], or faster by
// [Cluster.Prepare] once for each task that differs and [Cluster.Put] each time;
// [Cluster.PlaceGang] places several together. [Cluster.Release] gives back,
// [Cluster.Drain] keeps new tasks off a node. [Fill] and [Bound] measure what is
// left over of a full cluster.
//
// # Policies
//
// A [Policy] rates placing a task on a node, and says which card it would
// take; the lowest rate wins, the first node among equals. [Waste], the
// default, minimizes what is expected to be left over: the waste of a node is
// how much of its cards is still free after tasks like those seen before have
// come to it, in random order, until nothing fits; a placement costs by how
// much it raises that. It is estimated by playing fixed sequences of such
// tasks on the node, so that rates are comparable and repeatable, and kept by
// the state of a node.
//
// [BestFit] fills the fullest node that has room, [Balanced] loads all alike;
// both look at amounts alone and are fast. The others are here to be compared
// with: fragmentation gradient descent (Weng et al., "Beware of Fragmentation",
// USENIX ATC 2023) and the baselines of that paper, BestFit being one, with
// scores as coarse as theirs, since which nodes count as equal matters.
package pack

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"yunhe.dev/yunhe/internal/core"
)

// Limits of what can be packed.
const (
	Whole        = 1000 // shares of a card
	MaxCards     = 16   // of a node
	MaxNodes     = 200_000
	maxAmount    = math.MaxInt32
	maxRemembers = 1 << 20 // states of nodes whose rating is kept
	maxRules     = 8       // of one task
)

// Node is a machine with cards.
type Node struct {
	ID     string
	CPU    int64 // thousandths of a core
	Memory int64 // MiB
	Cards  int
	Model  string // of the cards
	// Labels say more of it, such as its rack; tasks select by them and spread
	// over them.
	Labels map[string]string
}

// Task is what asks for room.
type Task struct {
	CPU    int64
	Memory int64
	Cards  int // 0: none
	// Share of each card in thousandths; less than a whole one only of one card.
	Share int
	// Models of cards it can use; none: all.
	Models []string
	// Select names labels that a node must have, with the value it must have.
	Select map[string]string
	// Group is what the rules of Spread count: all tasks of one group that have
	// a place. Tasks without rules may have one, too.
	Group  string
	Spread []Spread
	// Prefer names nodes by their number: one of them is taken if it has room.
	Prefer []int
}

// Spread is a rule for where the tasks of a group may be beside each other.
type Spread struct {
	// Label whose values are counted; nodes without it are not used. Empty: each
	// node by itself.
	Label string
	// Skew is how many more tasks a value may have than the value with the
	// fewest, among those with a node that the task could use if it were empty.
	// 0: no bound; it needs a label.
	Skew int
	// Most is how many tasks a value may have; 1 keeps them apart. 0: no bound.
	Most int
	// Soft rules are given up, all at once, where no node meets them.
	Soft bool
}

// Demand is what a task asks of cards, in thousandths of one.
func (t Task) Demand() int64 { return int64(t.Cards) * int64(t.Share) }

func (n *Node) check(c *core.Check, at string) {
	c.Range(at+".cpu_milli", n.CPU, 0, maxAmount)
	c.Range(at+".memory_mib", n.Memory, 0, maxAmount)
	c.Range(at+".gpu", int64(n.Cards), 0, MaxCards)
}

func (t *Task) check(c *core.Check, at string) {
	c.Range(at+".cpu_milli", t.CPU, 0, maxAmount)
	c.Range(at+".memory_mib", t.Memory, 0, maxAmount)
	c.Range(at+".num_gpu", int64(t.Cards), 0, MaxCards)
	switch {
	case t.Cards == 0 && t.Share != 0:
		c.Add(at+".gpu_milli", "must be 0 where num_gpu is 0, got %d", t.Share)
	case t.Cards == 1:
		c.Range(at+".gpu_milli", int64(t.Share), 1, Whole)
	case t.Cards > 1 && t.Share != Whole:
		c.Add(at+".gpu_milli", "must be %d where num_gpu is above 1, got %d", Whole, t.Share)
	}
	if len(t.Spread) > maxRules {
		c.Add(at+".spread", "must have at most %d rules, got %d", maxRules, len(t.Spread))
	}
	for i, r := range t.Spread {
		field := fmt.Sprintf("%s.spread[%d]", at, i)
		switch {
		case t.Group == "":
			c.Add(field, "needs a group, of which it counts the tasks")
		case r.Skew < 0 || r.Most < 0 || r.Skew > maxAmount || r.Most > maxAmount:
			c.Add(field, "must have a skew and a most of 0 to %d, got %d and %d", maxAmount, r.Skew, r.Most)
		case r.Skew == 0 && r.Most == 0:
			c.Add(field, "must have a skew or a most")
		case r.Label == "" && r.Skew > 0:
			c.Add(field, "must have a label where it has a skew")
		}
	}
}

// Check refuses nodes and tasks outside the limits, naming each.
func Check(nodes []Node, tasks []Task) error {
	var c core.Check
	if len(nodes) == 0 || len(nodes) > MaxNodes {
		c.Add("nodes", "must be 1 to %d nodes, got %d", MaxNodes, len(nodes))
	}
	for i := range nodes {
		nodes[i].check(&c, fmt.Sprintf("nodes[%d]", i))
	}
	for i := range tasks {
		tasks[i].check(&c, fmt.Sprintf("tasks[%d]", i))
	}
	return c.Err()
}

// need is what a task asks for of a node, in few bytes: the policies go through
// many of them.
type need struct {
	cpu, memory  int32
	cards, share int16
}

// shape is a task in the form it is compared in.
type shape struct {
	need
	models string // names between bars; empty: all
	labels string // that it selects: pairs, quoted
	over   string // labels whose values are told apart, quoted
}

func shapeOf(t *Task) shape {
	s := shape{need: need{int32(t.CPU), int32(t.Memory), int16(t.Cards), int16(t.Share)}}
	if len(t.Models) > 0 {
		for _, m := range slices.Sorted(slices.Values(t.Models)) {
			s.models += "|" + m
		}
		s.models += "|"
	}
	for _, k := range slices.Sorted(maps.Keys(t.Select)) {
		s.labels += strconv.Quote(k) + strconv.Quote(t.Select[k])
	}
	return s
}

func (s *need) demand() int32 { return int32(s.cards) * int32(s.share) }

// partial reports whether it asks for a part of one card.
func (s *need) partial() bool { return s.cards == 1 && s.share < Whole }

// ilk tells apart how many cards a task asks for, as a bit.
func (s *need) ilk() uint32 {
	if s.partial() {
		return 1
	}
	return 1 << s.cards
}

// room is what is free on a node.
type room struct {
	cpu, memory int32
	class       int16 // of its cards
	cards       int16
	ilks        uint32 // of tasks that have come since it was empty
	free        [MaxCards]int16
}

// left is what is free of all cards.
func (r *room) left() int32 {
	n := int32(0)
	for _, f := range r.free[:r.cards] {
		n += int32(f)
	}
	return n
}

// fits reports whether a task fits, but for its memory and the model of the cards.
func (r *room) fits(s *need) bool {
	if r.cpu < s.cpu {
		return false
	}
	need := s.cards
	for i := int16(0); i < r.cards && need > 0; i++ {
		if r.free[i] >= s.share {
			need--
		}
	}
	return need == 0
}

// take gives a task its place: a part of the card named, or the first cards
// that are wholly free.
func (r *room) take(s *need, card int) {
	r.cpu -= s.cpu
	r.memory -= s.memory
	if s.cards > 0 {
		r.ilks |= s.ilk()
	}
	if s.partial() {
		r.free[card] -= s.share
		return
	}
	need := s.cards
	for i := 0; need > 0; i++ {
		if r.free[i] == Whole {
			r.free[i] = 0
			need--
		}
	}
}

// cards are some of a node's cards, as bits.
type cards uint16

// tight is the fullest card that a part fits on, in a sorted room.
func (r *room) tight(s *need) cards {
	if s.partial() {
		for i := range int(r.cards) {
			if r.free[i] >= s.share {
				return 1 << i
			}
		}
	}
	return 1
}

// holds is fits for a sorted room.
func (r *room) holds(s *need) bool {
	return r.cpu >= s.cpu && r.memory >= s.memory && (s.cards == 0 || r.cards >= s.cards && r.free[r.cards-s.cards] >= s.share)
}

// sorted is the room as ratings see it: which card is which does not matter.
func (r room) sorted() room {
	free := r.free[:r.cards]
	for i := 1; i < len(free); i++ { // a few cards, mostly in order
		for k := i; k > 0 && free[k] < free[k-1]; k-- {
			free[k], free[k-1] = free[k-1], free[k]
		}
	}
	return r
}

// state is the room without who came, either.
func (r room) state() room {
	r.ilks = 0
	return r.sorted()
}
