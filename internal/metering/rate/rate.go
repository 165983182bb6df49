// Package rate prices what ran, in whole numbers only.
//
// What it keeps true:
//
//   - A cost is the exact product of price and duration, rounded half up once,
//     to a micro-yuan. Nothing rounded is ever rounded again.
//   - The lines of a bill, in fen, sum exactly to its total; each line differs
//     from its exact amount by less than one fen, and the total by at most
//     half a fen.
//   - The same input gives the same output: no clock, no floats, no map order.
//
// What exceeds a limit is refused with its name, never cut short: a price
// beyond [MaxPrice], a duration beyond [MaxDuration], a cost beyond [MaxCost].
package rate

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

const (
	// MaxPrice is the highest price, in fen per package and hour: ten thousand
	// million yuan, which is what the registry accepts.
	MaxPrice = 1_000_000_000_000
	// MaxDuration is the longest a run may last: 100 years of 365.25 days.
	MaxDuration = 36525 * 24 * time.Hour

	// MaxCost is the highest cost of one run, in micro-yuan: 9.2 million million
	// yuan. A run of 100 years at ten million yuan an hour is below it.
	MaxCost = math.MaxInt64

	// MicrosPerFen is how many micro-yuan are a fen.
	MicrosPerFen = 10_000
	// nanosPerMicro is the duration, in nanoseconds, that costs one micro-yuan
	// at one fen an hour: 3.6e12 ns an hour / 1e4 micro-yuan a fen.
	nanosPerMicro = uint64(time.Hour) / MicrosPerFen
)

// Cost returns what d costs at a price in fen per hour, in micro-yuan (10^-6
// yuan), rounded half up. It returns fault.Invalid for a price outside 0 to
// MaxPrice, a duration outside 0 to MaxDuration and a cost beyond MaxCost.
func Cost(priceFenPerHour int64, d time.Duration) (micros int64, err error) {
	if d < 0 || d > MaxDuration {
		return 0, fault.New(fault.Invalid, "duration must be between 0 and %s, got %s", MaxDuration, d)
	}
	return cost(priceFenPerHour, uint64(d), nanosPerMicro, d)
}

// Held is as Cost for packages that are held: packageMicros is their number
// times how long, in microseconds, with no limit of its own.
func Held(priceFenPerHour, packageMicros int64) (micros int64, err error) {
	if packageMicros < 0 {
		return 0, fault.New(fault.Invalid, "held time must be at least 0 package-microseconds, got %d", packageMicros)
	}
	return cost(priceFenPerHour, uint64(packageMicros), nanosPerMicro/uint64(time.Microsecond), held(packageMicros))
}

// held is a number of package-microseconds.
type held int64

func (h held) String() string { return fmt.Sprintf("%d package-microseconds", int64(h)) }

func cost(price int64, amount, amountPerMicro uint64, name fmt.Stringer) (int64, error) {
	if price < 0 || price > MaxPrice {
		return 0, fault.New(fault.Invalid, "price must be between 0 and %d fen per hour, got %d", int64(MaxPrice), price)
	}
	hi, lo := bits.Mul64(uint64(price), amount)
	lo, carry := bits.Add64(lo, amountPerMicro/2, 0)
	if hi += carry; hi < amountPerMicro { // else the quotient exceeds 2^64
		if q, _ := bits.Div64(hi, lo, amountPerMicro); q <= MaxCost {
			return int64(q), nil
		}
	}
	return 0, fault.New(fault.Invalid, "cost must be at most %d micro-yuan, but %s at %d fen per hour is more", int64(MaxCost), name, price)
}

// Split rounds the amounts of a bill's lines, in micro-yuan, to fen so that
// they sum exactly to total, which is their exact sum rounded half up to fen.
// The fen missing after rounding down go to the lines with the largest
// remainders; among equals, to the first. Negative lines (credits) are
// allowed: half up is then toward zero.
//
// It does not overflow for any 10,000 lines, nor for any number of lines
// whose amounts rounded down sum to less than 2^63 fen.
func Split(lines []int64) (fen []int64, total int64) {
	fen = make([]int64, len(lines))
	rest := make([]int64, len(lines)) // 0 to MicrosPerFen-1
	order := make([]int, len(lines))
	var rests int64
	for i, n := range lines {
		fen[i], rest[i] = n/MicrosPerFen, n%MicrosPerFen
		if rest[i] < 0 { // Go rounds toward zero; here it is down
			fen[i], rest[i] = fen[i]-1, rest[i]+MicrosPerFen
		}
		total += fen[i]
		rests += rest[i]
		order[i] = i
	}
	missing := (rests + MicrosPerFen/2) / MicrosPerFen
	// Fewer are missing than there are lines with a remainder, or as many.
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	for _, i := range order[:missing] {
		fen[i]++
	}
	return fen, total + missing
}
