// Package pack chooses the node, and the cards of the node, for tasks that ask
// for parts of cards. It is what decides how much of a pool of accelerators is
// left over that nobody can use.
//
// It is pure: no I/O, no clock, no goroutine; the same input gives the same
// placements. Equal nodes are told apart by their order.
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
// The others are here to be compared with: fragmentation gradient descent
// (Weng et al., "Beware of Fragmentation", USENIX ATC 2023) and the five
// baselines of that paper, with scores as coarse as theirs, since which nodes
// count as equal matters.
package pack

import (
	"fmt"
	"math"
	"slices"

	"yunhe.dev/yunhe/internal/core"
)

// Limits of what can be packed.
const (
	Whole        = 1000 // shares of a card
	MaxCards     = 16   // of a node
	MaxNodes     = 200_000
	maxAmount    = math.MaxInt32
	maxRemembers = 1 << 20 // states of nodes whose rating is kept
)

// Node is a machine with cards.
type Node struct {
	ID     string
	CPU    int64 // thousandths of a core
	Memory int64 // MiB
	Cards  int
	Model  string // of the cards
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

// shape is a task in the form it is compared in.
type shape struct {
	cpu, memory  int32
	cards, share int16
	models       string // names between bars; empty: all
}

func shapeOf(t Task) shape {
	s := shape{cpu: int32(t.CPU), memory: int32(t.Memory), cards: int16(t.Cards), share: int16(t.Share)}
	if len(t.Models) > 0 {
		for _, m := range slices.Sorted(slices.Values(t.Models)) {
			s.models += "|" + m
		}
		s.models += "|"
	}
	return s
}

func (s *shape) demand() int32 { return int32(s.cards) * int32(s.share) }

// partial reports whether it asks for a part of one card.
func (s *shape) partial() bool { return s.cards == 1 && s.share < Whole }

// kind tells apart how many cards a task asks for, as a bit.
func (s *shape) kind() uint32 {
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
	kinds       uint32 // of tasks that have come since it was empty
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
func (r *room) fits(s *shape) bool {
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
func (r *room) take(s *shape, card int) {
	r.cpu -= s.cpu
	r.memory -= s.memory
	if s.cards > 0 {
		r.kinds |= s.kind()
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

// tightest is the fullest card that a part fits on.
func (r *room) tightest(s *shape) int {
	best := 0
	if s.partial() {
		best = -1
		for i := range int(r.cards) {
			if r.free[i] >= s.share && (best < 0 || r.free[i] < r.free[best]) {
				best = i
			}
		}
	}
	return best
}

// state is the room as ratings see it: which card is which, and who came, does
// not matter.
func (r room) state() room {
	r.kinds = 0
	slices.Sort(r.free[:r.cards])
	return r
}
