package core

import (
	"fmt"
	"math/big"
	"strings"

	"yunhe.dev/yunhe/internal/fault"
)

// Resource names. Every other name counts whole pieces.
const (
	CPU     = "cpu"     // thousandths of a core
	Memory  = "memory"  // bytes
	Storage = "storage" // bytes
)

// Quantities are amounts by resource name, in the units above.
type Quantities map[string]int64

var suffixes = []struct {
	s string
	n int64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50},
	{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15},
}

// ParseQuantity reads an amount in Kubernetes notation ("1", "500m", "2Gi",
// "0.5") of the named resource. It returns fault.Invalid for anything that is
// not a positive whole number of the resource's unit below 2^53.
func ParseQuantity(name, s string) (int64, error) {
	bad := func(why string) (int64, error) {
		return 0, fault.New(fault.Invalid, "%s of %q %s", name, s, why)
	}
	if len(s) > 32 {
		return 0, fault.New(fault.Invalid, "%s must be at most 32 characters, got %d", name, len(s))
	}
	num, mul := s, big.NewRat(1, 1)
	if strings.HasSuffix(s, "m") {
		num, mul = s[:len(s)-1], big.NewRat(1, 1000)
	} else {
		for _, x := range suffixes {
			if strings.HasSuffix(s, x.s) {
				num, mul = s[:len(s)-len(x.s)], new(big.Rat).SetInt64(x.n)
				break
			}
		}
	}
	if num == "" || strings.Trim(num, "0123456789.") != "" || strings.Count(num, ".") > 1 {
		return bad(`is not a quantity such as "1", "500m" or "2Gi"`)
	}
	r, ok := new(big.Rat).SetString(num)
	if !ok {
		return bad(`is not a quantity such as "1", "500m" or "2Gi"`)
	}
	r.Mul(r, mul)
	if name == CPU {
		r.Mul(r, big.NewRat(1000, 1))
	}
	if !r.IsInt() {
		return bad("is not a whole number of its unit")
	}
	if r.Sign() <= 0 {
		return bad("must be more than 0")
	}
	if !r.Num().IsInt64() || r.Num().Int64() >= 1<<53 {
		return bad("is too large")
	}
	return r.Num().Int64(), nil
}

// FormatQuantity is the shortest exact form ParseQuantity reads back.
func FormatQuantity(name string, n int64) string {
	if name == CPU {
		if n%1000 == 0 {
			return itoa(n / 1000)
		}
		return itoa(n) + "m"
	}
	if name == Memory || name == Storage {
		for i := 4; i >= 0; i-- {
			if x := suffixes[i]; n != 0 && n%x.n == 0 {
				return itoa(n/x.n) + x.s
			}
		}
	}
	return itoa(n)
}

// Fen is an amount of money in hundredths of a yuan.
type Fen int64

// String returns the amount in yuan with two decimals.
func (f Fen) String() string {
	sign, n := "", uint64(f)
	if f < 0 {
		sign, n = "-", -n // right for the lowest amount too
	}
	return fmt.Sprintf("%s%d.%02d", sign, n/100, n%100)
}
