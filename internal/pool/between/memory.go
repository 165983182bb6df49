//go:build linux

package between

import (
	"math"
	"sync/atomic"
	"unsafe"
)

// Memory is what a task may hold and what it holds: a page that the node and all
// workers of the task map, so that a limit changes for all at once and a worker
// that dies leaves behind how much it held. A device has such a page, too, of
// what is on it.
type Memory struct {
	words *[pageWords]atomic.Uint64
	slot  int
}

const (
	pageWords = 512
	pageLimit = 0
	pageUsed  = 1
	pageOver  = 2
	pageSlots = 8
)

// PageSize is how large the page is, Slots how many workers a task has at most.
const (
	PageSize = pageWords * 8
	Slots    = pageWords - pageSlots
)

// NewMemory is over a mapped page, for the worker with a slot.
func NewMemory(page []byte, slot int) *Memory {
	return &Memory{(*[pageWords]atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(page))), slot}
}

// SetLimit sets how many bytes the task may hold. What it holds already stays.
func (m *Memory) SetLimit(n uint64) { m.words[pageLimit].Store(n) }

// Limit is how many bytes the task may hold.
func (m *Memory) Limit() uint64 { return m.words[pageLimit].Load() }

// SetOver says whether more of a device is lent than it has, and Over tells.
func (m *Memory) SetOver(over bool) {
	n := uint64(0)
	if over {
		n = 1
	}
	m.words[pageOver].Store(n)
}

// Over is what SetOver said last.
func (m *Memory) Over() bool { return m.words[pageOver].Load() != 0 }

// Used is how many bytes the task holds.
func (m *Memory) Used() uint64 { return m.words[pageUsed].Load() }

// Held is how many bytes the worker of a slot holds.
func (m *Memory) Held(slot int) uint64 { return m.words[pageSlots+slot].Load() }

// Slot is which of the task's workers this one is.
func (m *Memory) Slot() int { return m.slot }

// Has is how many bytes the worker of this slot holds.
func (m *Memory) Has() uint64 { return m.Held(m.slot) }

// Take takes n bytes or none.
func (m *Memory) Take(n uint64) bool { return m.TakeOver(n, 0) }

// TakeOver is Take where the task may hold so many bytes more than its limit.
func (m *Memory) TakeOver(n, more uint64) bool {
	for {
		used, limit := m.Used(), m.Limit()
		if limit += min(more, math.MaxUint64-limit); n > limit || used > limit-n {
			return false
		}
		if m.words[pageUsed].CompareAndSwap(used, used+n) {
			m.words[pageSlots+m.slot].Add(n)
			return true
		}
	}
}

// Give gives n bytes back.
func (m *Memory) Give(n uint64) {
	m.words[pageSlots+m.slot].Add(-n)
	m.words[pageUsed].Add(-n)
}

// Reap gives back what the worker of a slot held when it ended.
func (m *Memory) Reap(slot int) { m.words[pageUsed].Add(-m.words[pageSlots+slot].Swap(0)) }
