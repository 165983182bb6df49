package place

import "cmp"

// Order decides in which order works are placed. It gets them sorted by
// priority, arrival and ID, whatever order the caller had, and returns a Turn.
type Order func(queue []*Work) Turn

// Turn returns the index of the work to place next, false when none is left.
// It is called once before each work with what the work before got (nil at
// first), so that an order can share out as it goes. Each index comes once;
// works it never names stay unplaced.
type Turn func(got Amounts) (next int, ok bool)

// ByPriority places higher priorities first, and equal ones in order of
// arrival. It is the default.
func ByPriority(queue []*Work) Turn {
	next := -1
	return func(Amounts) (int, bool) {
		next++
		return next, next < len(queue)
	}
}

// byPriority is the canonical order of a queue.
func byPriority(a, b *Work) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.ID, b.ID))
}
