package queue

import (
	"math/big"
	"math/bits"
)

// ratio is num / (total · weight). Shares are compared exactly: two tenants
// that are equal by the rules never differ by rounding.
type ratio struct {
	num    uint64
	total  uint64
	weight uint64
}

// compare is -1, 0 or 1. Both products have up to 192 bits.
func (x *ratio) compare(y *ratio) int {
	ah, al := bits.Mul64(x.num, y.total)
	bh, bl := bits.Mul64(y.num, x.total)
	if x.weight == y.weight {
		return order128(ah, al, bh, bl)
	}
	a2, a1, a0 := mul192(ah, al, y.weight)
	b2, b1, b0 := mul192(bh, bl, x.weight)
	if a2 != b2 {
		return order(a2, b2)
	}
	return order128(a1, a0, b1, b0)
}

func order(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func order128(ah, al, bh, bl uint64) int {
	if ah != bh {
		return order(ah, bh)
	}
	return order(al, bl)
}

// mul192 is (hi·2⁶⁴ + lo) · f, highest word first.
func mul192(hi, lo, f uint64) (top, mid, low uint64) {
	h1, low := bits.Mul64(lo, f)
	h2, m := bits.Mul64(hi, f)
	mid, carry := bits.Add64(h1, m, 0)
	return h2 + carry, mid, low
}

// fixed is a number with 64 bits before and 64 after the point.
type fixed struct{ hi, lo uint64 }

// one is 1 as a fraction with 63 bits after the point.
const one = uint64(1) << 63

// scale is x·f for a fraction f ≤ one.
func (x fixed) scale(f uint64) fixed {
	top, mid, low := mul192(x.hi, x.lo, f)
	return fixed{top<<1 | mid>>63, mid<<1 | low>>63}
}

func (x fixed) add(y fixed) fixed {
	lo, carry := bits.Add64(x.lo, y.lo, 0)
	return fixed{x.hi + y.hi + carry, lo}
}

// halves has 2^-(i/256), 2^-(i/256²) … for each byte of a fraction. It is
// computed in integers, so that it is the same on every processor.
var halves = func() (t [4][256]uint64) {
	root := new(big.Int).SetUint64(one) // 2^-(1/2ⁿ), one bit of the exponent after the other
	root.Rsh(root, 1)
	for level := range t {
		var bit [8]uint64
		for i := 7; i >= 0; i-- {
			root.Sqrt(new(big.Int).Lsh(root, 63))
			bit[i] = root.Uint64()
		}
		for i := range t[level] {
			f := one
			for k, b := range bit {
				if i&(1<<k) != 0 {
					hi, lo := bits.Mul64(f, b)
					f = hi<<1 | lo>>63
				}
			}
			t[level][i] = f
		}
	}
	return t
}()

// decay is 2^-(dt/halfLife) as a fraction with 63 bits after the point.
func decay(dt, halfLife int64) uint64 {
	whole := dt / halfLife
	if whole > 62 {
		return 0
	}
	x, _ := bits.Div64(uint64(dt%halfLife), 0, uint64(halfLife))
	f := one >> uint(whole)
	for level := range halves {
		hi, lo := bits.Mul64(f, halves[level][x>>56])
		f, x = hi<<1|lo>>63, x<<8
	}
	return f
}
