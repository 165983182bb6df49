package pool

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestQuota: what a group's tasks have together is at most its quota, on devices with
// turns and on those without, on one and on several. Its fixed shares have theirs, and
// weights what these leave, by weight; the weights of others have what they had.
func TestQuota(t *testing.T) {
	t.Parallel()
	const turns, beside = false, true
	for _, c := range []struct {
		name       string
		concurrent bool
		quota      int64
		loads      []*load // of the group
		want       []float64
		others     []*load
		theirs     []float64
		devices    int // each has all these loads
	}{
		{"alone", turns, 40, []*load{{share: 100, weighted: true}}, []float64{40}, nil, nil, 1},
		{"alone, beside nobody", beside, 40, []*load{{share: 100, weighted: true}}, []float64{40}, nil, nil, 1},
		{"little", beside, 1, []*load{{share: 100, weighted: true}}, []float64{1}, nil, nil, 1},
		{"by weight", turns, 40, []*load{{share: 20, weighted: true}, {share: 60, weighted: true}}, []float64{10, 30}, nil, nil, 1},
		{"more than there is", turns, 150, []*load{{share: 20, weighted: true}, {share: 60, weighted: true}}, []float64{25, 75}, nil, nil, 1},
		{"beside its fixed share", turns, 70, []*load{{share: 50}, {share: 10, weighted: true}}, []float64{50, 20}, nil, nil, 1},
		{"beside its fixed share, at once", beside, 70, []*load{{share: 50}, {share: 10, weighted: true}}, []float64{50, 20}, nil, nil, 1},
		{"its fixed shares leave nothing", beside, 50, []*load{{share: 20}, {share: 30}, {share: 10, weighted: true}}, []float64{20, 30, 0}, nil, nil, 1},
		{"beside others", turns, 20, []*load{{share: 90, weighted: true}}, []float64{20}, []*load{{share: 10, weighted: true}}, []float64{80}, 1},
		{"beside others, at once", beside, 20, []*load{{share: 90, weighted: true}}, []float64{20}, []*load{{share: 10, weighted: true}}, []float64{100}, 1},
		{"that does not bind", turns, 90, []*load{{share: 60, weighted: true}}, []float64{75}, []*load{{share: 20, weighted: true}}, []float64{25}, 1},
		{"that does not bind, at once", beside, 150, []*load{{share: 60, weighted: true}}, []float64{100}, []*load{{share: 20, weighted: true}}, []float64{33.3}, 1},
		{"two beside others, by weight", turns, 40, []*load{{share: 30, weighted: true}, {share: 90, weighted: true}}, []float64{10, 30}, []*load{{share: 1, weighted: true}}, []float64{60}, 1},
		{"two devices", turns, 50, []*load{{share: 100, weighted: true}}, []float64{25}, []*load{{share: 100, weighted: true}}, []float64{75}, 2},
		{"two devices, more than one", beside, 150, []*load{{share: 100, weighted: true}}, []float64{75}, nil, nil, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := quotas([]Group{{Name: "a", Compute: c.quota}, {Name: "b"}})["a"]
				var all sync.WaitGroup
				stop := make(chan struct{})
				var arbiters []*arbiter
				loads, want := []*load{}, []float64{}
				for range c.devices {
					a := newArbiter()
					a.concurrent.Store(c.concurrent)
					arbiters = append(arbiters, a)
					for i, l := range append(c.loads[:len(c.loads):len(c.loads)], c.others...) {
						x := &load{share: l.share, weighted: l.weighted, kernel: time.Millisecond}
						if i < len(c.loads) {
							x.account.quota = q
						}
						all.Go(func() { x.run(a, stop) })
						loads = append(loads, x)
					}
					want = append(append(want, c.want...), c.theirs...)
				}
				time.Sleep(span)
				close(stop)
				all.Wait()
				sum := 0.0
				for i, l := range loads {
					if got := percent(l); math.Abs(got-want[i]) > 3 && c.devices == 1 || c.devices > 1 && l.account.quota == nil && math.Abs(got-want[i]) > 10 {
						t.Errorf("load %d had %.2f%% of the device, want %.0f%%", i, got, want[i])
					}
					if l.account.quota != nil {
						sum += percent(l)
					}
				}
				if sum > float64(c.quota)+2 {
					t.Errorf("the group had %.2f%%, and may have %d%%", sum, c.quota)
				}
				for _, a := range arbiters {
					a.timer.Stop()
				}
			})
		})
	}
}

// TestQuotaSet: a quota may be set while a weight computes, and be none.
func TestQuotaSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &quota{}
		l := &load{share: 10, weighted: true, kernel: time.Millisecond}
		l.account.quota = q
		a, stop := newArbiter(), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() { l.run(a, stop) })
		had := func() time.Duration { used, _ := a.usage(&l.account); return used }
		for _, c := range []struct{ percent, want int64 }{{0, 100}, {40, 40}, {5, 5}, {70, 70}, {0, 100}} {
			q.set(time.Now(), c.percent)
			before := had()
			time.Sleep(10 * time.Second)
			if got := float64(had()-before) / float64(10*time.Second) * 100; math.Abs(got-float64(c.want)) > 2 {
				t.Errorf("with a quota of %d it had %.1f%%, want %d", c.percent, got, c.want)
			}
		}
		close(stop)
		all.Wait()
		a.timer.Stop()
	})
}

// TestQuotaFree: who waited long for its group's quota does not have the device for
// itself when that binds no more.
func TestQuotaFree(t *testing.T) {
	t.Parallel()
	for _, concurrent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := &quota{percent: 90}
			fixed, weight, other := &load{share: 90, kernel: time.Millisecond}, &load{share: 10, weighted: true, kernel: time.Millisecond}, &load{share: 10, weighted: true, kernel: time.Millisecond}
			fixed.account.quota, weight.account.quota = q, q
			a, first, stop := newArbiter(), make(chan struct{}), make(chan struct{})
			a.concurrent.Store(concurrent)
			var all, ended sync.WaitGroup
			ended.Go(func() { fixed.run(a, first) })
			all.Go(func() { weight.run(a, stop) })
			all.Go(func() { other.run(a, stop) })
			time.Sleep(10 * span)
			close(first)
			ended.Wait()
			before, _ := a.usage(&other.account)
			time.Sleep(time.Second)
			after, _ := a.usage(&other.account)
			close(stop)
			all.Wait()
			a.timer.Stop()
			if got := (after - before).Seconds() * 100; got < 45 {
				t.Errorf("in the second after that, at once: %v, another of the same weight had %.1f%%", concurrent, got)
			}
			time.Sleep(time.Hour)
		})
	}
}

// TestQuotaLarge: a quota counts as what it is after whatever time in which the group did nothing, however large it is.
func TestQuotaLarge(t *testing.T) {
	t.Parallel()
	for _, percent := range []int64{1, 25_600, 1_000_000, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			q := &quota{percent: percent}
			q.charge(time.Now(), time.Second)
			time.Sleep(MaxSeconds * time.Second)
			if d, left := q.wait(time.Now()), q.left(time.Now()); d > 0 || left != savings {
				t.Errorf("of a quota of %d%% a group that has rested for a year has %v left and waits %v", percent, left, d)
			}
			q.charge(time.Now(), time.Second)
			if d := q.wait(time.Now()); d > time.Second*100/time.Duration(min(percent, 100)) {
				t.Errorf("of a quota of %d%% it waits %v after a second", percent, d)
			}
		})
	}
}
