package place

import (
	"math"
	"math/bits"
	"slices"
)

// mulDiv returns a*b/d rounded down, for a and b at least 0 and d above 0,
// without overflow in between; what exceeds an int64 becomes its maximum.
func mulDiv(a, b, d int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi == 0 {
		return int64(min(lo/uint64(d), math.MaxInt64))
	}
	if hi >= uint64(d) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(d))
	return int64(min(q, math.MaxInt64))
}

// addSat adds two numbers that are at least 0 and stays at the maximum.
func addSat(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxInt64
}

// clamp cuts a fact to the range in which differences cannot overflow.
func clamp(v int64) int64 { return min(max(v, -1<<61), 1<<61) }

// spread maps d of span to 0…100, rounded half away from zero.
// It needs 0 <= d <= span and span >= 1.
func spread(d, span int64) uint8 {
	if span < 1<<55 {
		return uint8((200*uint64(d) + uint64(span)) / (2 * uint64(span)))
	}
	hi, lo := bits.Mul64(200, uint64(d))
	lo, carry := bits.Add64(lo, uint64(span), 0)
	q, _ := bits.Div64(hi+carry, lo, 2*uint64(span))
	return uint8(q)
}

// sortedIndex returns 0…n-1 sorted by compare.
func sortedIndex(n int, compare func(a, b int) int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	slices.SortFunc(out, compare)
	return out
}
