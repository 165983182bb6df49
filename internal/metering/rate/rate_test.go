package rate_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/metering/rate"
)

func TestCost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		price int64
		d     time.Duration
		want  int64
	}{
		{"nothing for no time", 500, 0, 0},
		{"nothing for free", 0, time.Hour, 0},
		{"an hour costs the price", 500, time.Hour, 5_000_000},
		{"one fen an hour is 10,000 micro-yuan", 1, time.Hour, 10_000},
		{"half a micro-yuan rounds up", 1, 180 * time.Millisecond, 1},
		{"a microsecond less rounds down", 1, 180*time.Millisecond - time.Microsecond, 0},
		{"one and a half round up", 1, 540 * time.Millisecond, 2},
		{"a run of 12.345678 s at 2.50 yuan", 250, 12_345_678 * time.Microsecond, 8573},
		{"a month at the price of an 8-card machine", 12_800, 30 * 24 * time.Hour, 92_160_000_000},
		{"100 years at ten million yuan an hour", 1_000_000_000, rate.MaxDuration, 8_766_000_000_000_000_000},
		{"the highest price for a day", rate.MaxPrice, 24 * time.Hour, 240_000_000_000_000_000},
		{"about the highest cost", rate.MaxPrice, 3_320_413_933_267_719, 9_223_372_036_854_775_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := rate.Cost(c.price, c.d)
			if err != nil || got != c.want {
				t.Errorf("Cost(%d fen/h, %s) = %d, %v; want %d micro-yuan", c.price, c.d, got, err, c.want)
			}
		})
	}
}

func TestCostNamesTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		price int64
		d     time.Duration
		want  string
	}{
		{-1, time.Hour, "price must be between 0 and 1000000000000 fen per hour, got -1"},
		{rate.MaxPrice + 1, time.Hour, "price must be between 0 and 1000000000000 fen per hour, got 1000000000001"},
		{math.MaxInt64, 0, "price must be between 0 and 1000000000000 fen per hour, got 9223372036854775807"},
		{rate.MaxPrice, rate.MaxDuration, "cost must be at most 9223372036854775807 micro-yuan, but 876600h0m0s at 1000000000000 fen per hour is more"},
		{rate.MaxPrice, 3_320_413_933_267_720, "cost must be at most 9223372036854775807 micro-yuan"},
		{2_000_000_000, rate.MaxDuration, "cost must be at most 9223372036854775807 micro-yuan"},
		{1_100_000_000, rate.MaxDuration, "cost must be at most 9223372036854775807 micro-yuan"},
		{1, -time.Microsecond, "duration must be between 0 and 876600h0m0s, got -1µs"},
		{1, rate.MaxDuration + 1, "duration must be between 0 and 876600h0m0s, got 876600h0m0.000000001s"},
		{1, math.MaxInt64, "duration must be between 0 and 876600h0m0s, got 2562047h47m16.854775807s"},
	} {
		got, err := rate.Cost(c.price, c.d)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.want) || got != 0 {
			t.Errorf("Cost(%d, %d ns) = %d, %v; want invalid: %s", c.price, int64(c.d), got, err, c.want)
		}
	}
}

// A million packages held for an hour are longer than any run.
func TestHeld(t *testing.T) {
	t.Parallel()
	const million = 1_000_000 * 3_600_000_000
	for _, c := range []struct {
		price, packageMicros, want int64
		problem                    string
	}{
		{150, million, 1_500_000_000_000, ""},
		{1, 180_000, 1, ""},
		{1, 179_999, 0, ""},
		{360_000, math.MaxInt64, math.MaxInt64, ""},
		{1, -1, 0, "held time must be at least 0 package-microseconds, got -1"},
		{-1, 1, 0, "price must be between 0 and 1000000000000 fen per hour, got -1"},
		{rate.MaxPrice, million, 0, "but 3600000000000000 package-microseconds at 1000000000000 fen per hour is more"},
	} {
		got, err := rate.Held(c.price, c.packageMicros)
		if c.problem == "" && err != nil || c.problem != "" && (fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.problem)) || got != c.want {
			t.Errorf("Held(%d, %d) = %d, %v; want %d %s", c.price, c.packageMicros, got, err, c.want, c.problem)
		}
	}
}

// oracle is price × hours × 10^4 in exact fractions, rounded half up.
func oracle(price int64, d time.Duration) *big.Int {
	exact := new(big.Rat).SetFrac64(int64(d), int64(time.Hour))
	exact.Mul(exact, new(big.Rat).SetInt64(price))
	exact.Mul(exact, new(big.Rat).SetInt64(10_000))
	return halfUp(exact)
}

// halfUp is the floor of r + 1/2.
func halfUp(r *big.Rat) *big.Int {
	r = new(big.Rat).Add(r, big.NewRat(1, 2))
	return new(big.Int).Div(r.Num(), r.Denom()) // Euclidean: down for a positive divisor
}

func checkCost(t *testing.T, price int64, d time.Duration) {
	t.Helper()
	got, err := rate.Cost(price, d)
	want := oracle(price, d)
	if !want.IsInt64() {
		if fault.KindOf(err) != fault.Invalid || err == nil || got != 0 {
			t.Fatalf("Cost(%d, %d ns) = %d, %v; want invalid: exact fractions say %s", price, int64(d), got, err, want)
		}
		return
	}
	if err != nil || got != want.Int64() {
		t.Fatalf("Cost(%d, %d ns) = %d, %v; exact fractions say %s", price, int64(d), got, err, want)
	}
}

func TestCostEqualsExactFractions(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		price := r.Int64N(1 << (1 + r.IntN(39)))
		us := r.Int64N(1 << (1 + r.IntN(51)))
		checkCost(t, price, time.Duration(us)*time.Microsecond)
	}
	// Exact halves, and their neighbors.
	for price := int64(1); price < 2000; price++ {
		for _, us := range []int64{179_999, 180_000, 180_001, 359_999, 360_000, 540_000, 3_599_999_999, 3_600_000_000} {
			checkCost(t, price, time.Duration(us)*time.Microsecond)
		}
	}
	// Products just below a multiple of 2^64, where rounding up carries.
	for price := int64(6); price < 2000; price++ {
		ns := new(big.Int).Div(new(big.Int).Lsh(big.NewInt(1), 64), big.NewInt(price)).Int64()
		checkCost(t, price, time.Duration(ns))
	}
}

func FuzzCost(f *testing.F) {
	f.Add(int64(1), int64(180_000_000))
	f.Add(int64(rate.MaxPrice), int64(rate.MaxDuration))
	f.Add(int64(-1), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, price, ns int64) {
		d := time.Duration(ns)
		if price < 0 || price > rate.MaxPrice || d < 0 || d > rate.MaxDuration {
			if got, err := rate.Cost(price, d); fault.KindOf(err) != fault.Invalid || err == nil || got != 0 {
				t.Fatalf("Cost(%d, %d ns) = %d, %v; want invalid", price, ns, got, err)
			}
			return
		}
		checkCost(t, price, d)
	})
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		lines []int64
		fen   []int64
		total int64
	}{
		{"no lines", nil, []int64{}, 0},
		{"whole fen stay", []int64{10_000, 20_000}, []int64{1, 2}, 3},
		{"half a fen rounds up", []int64{5_000}, []int64{1}, 1},
		{"less rounds down", []int64{4_999}, []int64{0}, 0},
		{"three thirds are one", []int64{3_334, 3_333, 3_333}, []int64{1, 0, 0}, 1},
		{"the largest remainder gets it", []int64{3_333, 3_334, 3_333}, []int64{0, 1, 0}, 1},
		{"among equals the first", []int64{5_000, 5_000, 5_000}, []int64{1, 1, 0}, 2},
		{"rounding each line would give 0", []int64{4_000, 4_000, 4_000}, []int64{1, 0, 0}, 1},
		{"rounding each line would give 3", []int64{6_000, 6_000, 6_000}, []int64{1, 1, 0}, 2},
		{"a credit", []int64{25_000, -10_000}, []int64{3, -1}, 2},
		{"a credit of part of a fen", []int64{20_000, -2_500}, []int64{2, 0}, 2},
		{"half a fen back rounds toward zero", []int64{-5_000}, []int64{0}, 0},
		{"more than half a fen back", []int64{-5_001}, []int64{-1}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fen, total := rate.Split(c.lines)
			if total != c.total || !equal(fen, c.fen) {
				t.Errorf("Split(%v) = %v, %d; want %v, %d", c.lines, fen, total, c.fen, c.total)
			}
		})
	}
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// checkSplit states what a split is, without computing one.
func checkSplit(t *testing.T, lines []int64) {
	t.Helper()
	given := append([]int64(nil), lines...)
	fen, total := rate.Split(lines)
	if !equal(lines, given) {
		t.Fatalf("Split(%v) changed its argument to %v", given, lines)
	}
	exact, sum := new(big.Int), new(big.Int)
	for i := range lines {
		exact.Add(exact, big.NewInt(lines[i]))
		sum.Add(sum, big.NewInt(fen[i]))
	}
	if want := halfUp(new(big.Rat).SetFrac(exact, big.NewInt(10_000))); !want.IsInt64() || total != want.Int64() {
		t.Fatalf("Split(%v): total %d, exact fractions say %s", lines, total, want)
	}
	if !sum.IsInt64() || sum.Int64() != total {
		t.Fatalf("Split(%v) = %v: lines sum to %s, total is %d", lines, fen, sum, total)
	}
	over := func(i int) *big.Int { // what line i got beyond its exact amount, micro-yuan
		n := new(big.Int).Mul(big.NewInt(fen[i]), big.NewInt(10_000))
		return n.Sub(n, big.NewInt(lines[i]))
	}
	// The lines rounded up are those with the largest remainders: among them
	// the one that gained most still gained no more than any other would have.
	worstUp, worstUpAt := int64(-1), -1
	bestDown, bestDownAt := int64(10_000), -1
	for i := range lines {
		o := over(i)
		if !o.IsInt64() || o.Int64() <= -10_000 || o.Int64() >= 10_000 {
			t.Fatalf("Split(%v) = %v: line %d is off by %s micro-yuan", lines, fen, i, o)
		}
		switch n := o.Int64(); {
		case n > 0 && n >= worstUp:
			worstUp, worstUpAt = n, i
		case n < 0 && n+10_000 < bestDown:
			bestDown, bestDownAt = n+10_000, i
		}
	}
	if worstUpAt >= 0 && bestDownAt >= 0 && (worstUp > bestDown || worstUp == bestDown && worstUpAt > bestDownAt) {
		t.Fatalf("Split(%v) = %v: line %d went up, but line %d has the larger remainder or comes first", lines, fen, worstUpAt, bestDownAt)
	}
}

func TestSplitSumsExactly(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		lines := make([]int64, 2+r.IntN(49))
		bound := int64(1) << (1 + r.IntN(62))
		for i := range lines {
			lines[i] = r.Int64N(bound)
			switch r.IntN(8) {
			case 0:
				lines[i] = -lines[i]
			case 1:
				lines[i] -= lines[i] % 2_500 // many equal remainders
			}
		}
		checkSplit(t, lines)
	}
}

func TestSplitDoesNotOverflow(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{math.MaxInt64, math.MinInt64, math.MaxInt64 - 5_000} {
		lines := make([]int64, 10_000)
		for i := range lines {
			lines[i] = n
		}
		checkSplit(t, lines)
	}
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		lines := make([]int64, len(b)/8)
		for i := range lines {
			for j := range 8 {
				lines[i] = lines[i]<<8 | int64(b[8*i+j])
			}
		}
		checkSplit(t, lines)
	})
}

func BenchmarkCost(b *testing.B) {
	for i := range b.N {
		if _, err := rate.Cost(12_800, time.Duration(i)*time.Microsecond); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSplit50(b *testing.B) {
	lines := make([]int64, 50)
	for i := range lines {
		lines[i] = int64(i) * 1_234_567
	}
	for b.Loop() {
		rate.Split(lines)
	}
}
