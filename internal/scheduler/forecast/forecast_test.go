package forecast_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/forecast"
)

const minute = int64(60_000_000)

func TestNothingKnown(t *testing.T) {
	t.Parallel()
	var m forecast.Model
	if e := m.Run(&forecast.Work{Tenant: "t"}); e != (forecast.Estimate{}) {
		t.Errorf("of nothing, %+v", e)
	}
	want := forecast.Estimate{Median: 5 * minute, High: 5 * minute, Basis: forecast.Stated}
	if e := m.Run(&forecast.Work{Tenant: "t", Stated: 5 * minute}); e != want {
		t.Errorf("got %+v, want %+v", e, want)
	}
	m.Observe(&forecast.Work{Tenant: "t"}, 0)
	m.Observe(&forecast.Work{Tenant: "t"}, -1)
	if m.Len() != 0 {
		t.Errorf("runs without a time made %d groups", m.Len())
	}
}

// Who is believed is who was right: runs of a name, of a shape, what is stated,
// or what is stated times the user's habit.
func TestBelievesWhoWasRight(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name string
		want forecast.Basis
		work func(dice *rand.Rand) (forecast.Work, int64)
		near float64 // of the median of the next estimate to the truth
	}{
		{"each name takes its time", forecast.OfName, func(dice *rand.Rand) (forecast.Work, int64) {
			k := dice.IntN(10)
			return forecast.Work{Tenant: "t", User: "u", Name: fmt.Sprintf("step-%c-%d", 'a'+k, dice.IntN(100)), Shape: "s"}, minute << k
		}, 1.01},
		{"each shape takes its time, whoever runs it", forecast.OfShape, func(dice *rand.Rand) (forecast.Work, int64) {
			k := dice.IntN(10)
			return forecast.Work{Tenant: fmt.Sprint("t", dice.IntN(2000)), User: "u", Name: "n", Shape: fmt.Sprint(k)}, minute << k
		}, 1.01},
		{"users know", forecast.Stated, func(dice *rand.Rand) (forecast.Work, int64) {
			run := minute * (1 + dice.Int64N(5000))
			return forecast.Work{Tenant: "t", User: "u", Name: "n", Shape: "s", Stated: run}, run
		}, 1.0},
		{"a user states four times too much", forecast.OfHabit, func(dice *rand.Rand) (forecast.Work, int64) {
			run, user := minute*(1+dice.Int64N(5000)), dice.IntN(3)
			return forecast.Work{Tenant: "t", User: fmt.Sprint(user), Name: "n", Shape: "s", Stated: run << (2 * user)}, run
		}, 1.01},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			var m forecast.Model
			dice := rand.New(rand.NewPCG(1, 2))
			for range 1000 {
				w, run := x.work(dice)
				m.Observe(&w, run)
			}
			w, run := x.work(dice)
			e := m.Run(&w)
			if off := math.Exp(math.Abs(math.Log(float64(e.Median) / float64(run)))); e.Basis != x.want || off > x.near {
				t.Errorf("%+v, want by %q and near %d", e, x.want, run)
			}
		})
	}
}

// Nine of ten runs are no longer than High, and half of them than Median.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	var m forecast.Model
	dice := rand.New(rand.NewPCG(7, 7))
	w := forecast.Work{Tenant: "t", User: "u", Name: "n", Shape: "s"}
	const runs = 5000
	under, within := 0, 0
	for i := range runs + 100 {
		run := int64(float64(minute) * math.Exp(dice.NormFloat64()))
		if i >= 100 {
			e := m.Run(&w)
			if e.High < e.Median {
				t.Fatalf("%+v", e)
			}
			if run <= e.Median {
				under++
			}
			if run <= e.High {
				within++
			}
		}
		m.Observe(&w, run)
	}
	if p := float64(under) / runs; p < 0.46 || p > 0.54 {
		t.Errorf("%.3f of the runs are within the median", p)
	}
	if p := float64(within) / runs; p < 0.86 || p > 0.94 {
		t.Errorf("%.3f of the runs are within High", p)
	}
}

// What changes is followed; what a limit ends is not estimated beyond it.
func TestFollowsAndLimits(t *testing.T) {
	t.Parallel()
	var m forecast.Model
	w := forecast.Work{Tenant: "t", User: "u", Name: "n", Shape: "s"}
	for range 500 {
		m.Observe(&w, minute)
	}
	for range forecast.Kept {
		m.Observe(&w, 100*minute)
	}
	if e := m.Run(&w); math.Abs(float64(e.Median)/float64(100*minute)-1) > 0.01 {
		t.Errorf("it does not follow: %+v", e)
	}
	w.Limit = 30 * minute
	if e := m.Run(&w); e.Median != w.Limit || e.High != w.Limit {
		t.Errorf("beyond the limit: %+v", e)
	}
}

func BenchmarkObserve(b *testing.B) {
	var m forecast.Model
	dice := rand.New(rand.NewPCG(1, 1))
	works := make([]forecast.Work, 1000)
	for i := range works {
		works[i] = forecast.Work{Tenant: "t", User: fmt.Sprint(i % 50), Name: fmt.Sprint("job-", i), Shape: fmt.Sprint(i % 20), Stated: minute}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.Observe(&works[i%1000], minute*(1+dice.Int64N(100)))
	}
}

func BenchmarkRun(b *testing.B) {
	var m forecast.Model
	w := forecast.Work{Tenant: "t", User: "u", Name: "job", Shape: "s", Stated: minute}
	for i := range 1000 {
		m.Observe(&w, minute*int64(1+i%100))
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Run(&w)
	}
}
