package sim

import (
	"math/big"
	"math/bits"
)

// exact is a sum of products too large for an int64; it never rounds.
type exact struct{ hi, lo uint64 }

// add adds a × b, neither below 0.
func (e *exact) add(a, b int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	var carry uint64
	e.lo, carry = bits.Add64(e.lo, lo, 0)
	e.hi, _ = bits.Add64(e.hi, hi, carry)
}

func (e *exact) rat() *big.Rat {
	n := new(big.Int).SetUint64(e.hi)
	n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(e.lo))
	return new(big.Rat).SetInt(n)
}

// over is the sum divided by the product of parts.
func (e *exact) over(parts ...int64) float64 {
	f, _ := e.ratOver(parts...).Float64()
	return f
}

func (e *exact) ratOver(parts ...int64) *big.Rat {
	r := e.rat()
	for _, p := range parts {
		if p == 0 {
			return new(big.Rat)
		}
		r.Quo(r, new(big.Rat).SetInt64(p))
	}
	return r
}

// round is the nearest whole number, halves up.
func round(r *big.Rat) int64 {
	x := new(big.Rat).Add(r, big.NewRat(1, 2))
	return new(big.Int).Div(x.Num(), x.Denom()).Int64()
}
