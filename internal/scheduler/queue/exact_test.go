package queue

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestCompare: shares are ordered as the rational numbers they are, up to the
// largest.
func TestCompare(t *testing.T) {
	t.Parallel()
	d := rand.New(rand.NewPCG(1, 1))
	edge := []uint64{0, 1, 2, 3, math.MaxInt64, math.MaxInt64 - 1, 1 << 62, 1 << 32}
	draw := func() uint64 {
		if d.IntN(2) == 0 {
			return edge[d.IntN(len(edge))]
		}
		return d.Uint64() >> d.UintN(63) >> 1
	}
	for range 200_000 {
		x := ratio{draw(), max(1, draw()), 1 + d.Uint64N(MaxWeight)}
		y := ratio{draw(), max(1, draw()), 1 + d.Uint64N(MaxWeight)}
		switch d.IntN(4) {
		case 0:
			y.weight = x.weight
		case 1:
			y = x
		}
		rat := func(r ratio) *big.Rat {
			den := new(big.Int).Mul(new(big.Int).SetUint64(r.total), new(big.Int).SetUint64(r.weight))
			return new(big.Rat).SetFrac(new(big.Int).SetUint64(r.num), den)
		}
		if got, want := x.compare(&y), rat(x).Cmp(rat(y)); got != want {
			t.Fatalf("%+v and %+v: %d, want %d", x, y, got, want)
		}
	}
}

// TestDecay: half after each half-life, and in between as the power of 2.
func TestDecay(t *testing.T) {
	t.Parallel()
	d := rand.New(rand.NewPCG(2, 2))
	for range 100_000 {
		life := 1 + d.Int64N(1<<50)
		dt := d.Int64N(1 << 52)
		got := float64(decay(dt, life)) / float64(one)
		want := math.Exp2(-float64(dt) / float64(life))
		if math.Abs(got-want) > 1e-9 {
			t.Fatalf("%d of %d: %g, want %g", dt, life, got, want)
		}
	}
	for k := range int64(62) {
		if got := decay(k*1000, 1000); got != one>>k {
			t.Errorf("after %d half-lives %d", k, got)
		}
	}
	if decay(Never/2, 1) != 0 || decay(0, 1) != one {
		t.Error("the ends are wrong")
	}
	// A mean of half-steps is one of whole steps.
	x := fixed{hi: 1 << 40}
	half := x.scale(decay(500, 1000)).scale(decay(500, 1000))
	if whole := x.scale(decay(1000, 1000)); whole.hi-half.hi > 1<<20 && half.hi-whole.hi > 1<<20 {
		t.Errorf("%v after two halves, %v after one step", half, whole)
	}
}

// TestList: the list is in order, and finds what a plain one finds, whatever
// comes and goes.
func TestList(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		d := rand.New(rand.NewPCG(3, seed))
		var l list
		var plain []*entry
		at := func(e *entry) int { return slices.IndexFunc(plain, func(x *entry) bool { return !x.before(e) }) }
		for i := range 3000 {
			if n := len(plain); n > 0 && (d.IntN(5) < 2 || n > 1200) {
				k := 0
				if d.IntN(2) == 0 {
					k = d.IntN(n)
				}
				l.remove(plain[k])
				plain = slices.Delete(plain, k, k+1)
			} else {
				e := &entry{due: Never, run: d.Int64N(1000)}
				e.work.ID, e.work.Arrival = fmt.Sprint(i), int64(i)
				if d.IntN(3) == 0 {
					e.work.Arrival = d.Int64N(3000)
				}
				if k := at(e); k >= 0 {
					plain = slices.Insert(plain, k, e)
				} else {
					plain = append(plain, e)
				}
				l.insert(e)
			}
			if l.n != len(plain) {
				t.Fatalf("%d works, want %d", l.n, len(plain))
			}
			limit := d.Int64N(30)
			want := slices.IndexFunc(plain, func(e *entry) bool { return e.run < limit })
			if got := l.first(limit); (got == nil) != (want < 0) || got != nil && got != plain[want] {
				t.Fatalf("the first below %d is not number %d", limit, want)
			}
			if len(plain) > 0 {
				k := d.IntN(len(plain))
				if got := l.rank(plain[k]); got != k {
					t.Fatalf("number %d has rank %d", k, got)
				}
			}
		}
	}
}
