package pool

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// load is a worker that always has work: kernels of one length, given to the
// device whenever it is its turn.
type load struct {
	share    int64
	now      atomic.Int64 // the share, if it is not 0
	weighted bool
	kernel   time.Duration
	away     time.Duration // before its first work

	account account
	common  *account // with others
	user    *user
	turn    chan time.Duration
	yield   chan struct{}
	ran     time.Duration
}

func (l *load) wants() int64 {
	if n := l.now.Load(); n != 0 {
		return n
	}
	return l.share
}

func (l *load) run(a *arbiter, stop <-chan struct{}) {
	l.turn, l.yield = make(chan time.Duration, 1), make(chan struct{}, 1)
	if l.common == nil {
		l.common = &l.account
	}
	l.user = &user{account: l.common, share: l.wants, weighted: func() bool { return l.weighted }, say: func(what byte, d time.Duration) {
		if what == 'G' {
			l.turn <- d
			return
		}
		select {
		case l.yield <- struct{}{}:
		default:
		}
	}}
	a.add(l.user)
	defer a.remove(l.user)
	time.Sleep(l.away)
	a.want(l.user)
	for {
		var d time.Duration
		select {
		case d = <-l.turn:
		case <-stop:
			return
		}
		begin := time.Now()
		for over := false; !over; {
			time.Sleep(l.kernel)
			select {
			case <-l.yield:
				over = true
			case <-stop:
				over = true
			default:
				over = time.Since(begin) >= d
			}
		}
		l.ran += time.Since(begin)
		a.done(l.user, time.Since(begin), true)
	}
}

const span = 10 * time.Second

func share(t *testing.T, concurrent bool, loads ...*load) {
	t.Helper()
	a := newArbiter()
	a.concurrent.Store(concurrent)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for _, l := range loads {
		all.Go(func() { l.run(a, stop) })
	}
	time.Sleep(span)
	close(stop)
	all.Wait()
	a.timer.Stop()
}

func percent(l *load) float64 { return 100 * l.ran.Seconds() / 10 }

// TestFixedShares: whoever else wants the device, and if nobody does, a task
// has the share it was given, within one percentage point over ten seconds.
func TestFixedShares(t *testing.T) {
	t.Parallel()
	for _, shares := range [][]int64{{1}, {37}, {99}, {1, 50}, {2, 3}, {10, 90}, {30, 70}, {1, 1, 1}, {20, 30, 50}, {50, 50}} {
		t.Run(fmt.Sprint(shares), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var loads []*load
				for _, s := range shares {
					loads = append(loads, &load{share: s, kernel: time.Millisecond})
				}
				share(t, false, loads...)
				for i, l := range loads {
					within := 1.0
					if shares[i] > 50 {
						within = 2
					}
					if got := percent(l); math.Abs(got-float64(shares[i])) > within {
						t.Errorf("a share of %d%% had %.2f%% of the device", shares[i], got)
					}
				}
			})
		})
	}
}

// TestWeights: a task whose share is a weight uses what others leave.
func TestWeights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		loads []*load
		want  []float64
	}{
		{"alone", []*load{{share: 10, weighted: true}}, []float64{100}},
		{"two alike", []*load{{share: 100, weighted: true}, {share: 100, weighted: true}}, []float64{50, 50}},
		{"by weight", []*load{{share: 20, weighted: true}, {share: 60, weighted: true}}, []float64{25, 75}},
		{"beside a fixed share", []*load{{share: 30}, {share: 50, weighted: true}}, []float64{30, 70}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, l := range c.loads {
					l.kernel = time.Millisecond
				}
				share(t, false, c.loads...)
				for i, l := range c.loads {
					if got := percent(l); math.Abs(got-c.want[i]) > 2 {
						t.Errorf("load %d had %.2f%% of the device, want %.0f%%", i, got, c.want[i])
					}
				}
			})
		})
	}
}

// TestConcurrent: on a device that is used by all at once, who has the most
// weight is never kept waiting, and the others compute beside it as their weight
// is to that; a fixed share is a limit there, too. Who does nothing, or never
// ends, keeps nobody waiting.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		loads []*load
		want  []float64
	}{
		{"alone", []*load{{share: 10, weighted: true}}, []float64{100}},
		{"two alike", []*load{{share: 40, weighted: true}, {share: 40, weighted: true}}, []float64{100, 100}},
		{"by weight", []*load{{share: 20, weighted: true}, {share: 60, weighted: true}}, []float64{33.3, 100}},
		{"beside a fixed share", []*load{{share: 30}, {share: 50, weighted: true}}, []float64{30, 100}},
		{"beside a fixed share of long kernels", []*load{{share: 30, kernel: 50 * time.Millisecond}, {share: 50, weighted: true}}, []float64{30, 100}},
		{"beside one that never ends", []*load{{share: 30, weighted: true, kernel: time.Hour}, {share: 30, weighted: true}}, []float64{0, 100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, l := range c.loads {
					if l.kernel == 0 {
						l.kernel = time.Millisecond
					}
				}
				share(t, true, c.loads...)
				for i, l := range c.loads {
					if got := percent(l); l.kernel < time.Hour && math.Abs(got-c.want[i]) > 2 {
						t.Errorf("load %d had %.2f%% of the device, want %.0f%%", i, got, c.want[i])
					}
				}
			})
		})
	}
}

// twoUsers are of an arbiter, by weight; heard checks what they were told so far.
func twoUsers(t *testing.T) (a *arbiter, users []*user, heard func(want string)) {
	a = newArbiter()
	var said []string
	for i := range 2 {
		u := &user{account: &account{}, share: func() int64 { return 50 }, weighted: func() bool { return true }}
		u.say = func(what byte, _ time.Duration) { said = append(said, fmt.Sprintf("%c%d", what, i)) }
		a.add(u)
		users = append(users, u)
	}
	return a, users, func(want string) {
		t.Helper()
		a.mu.Lock() // under which it is said
		defer a.mu.Unlock()
		if got := fmt.Sprint(said); got != want {
			t.Errorf("said %s, want %s", got, want)
		}
	}
}

// TestCloseAccount: what a task has used when it ends has the turn that it has then,
// and that is counted once, however it is given back.
func TestCloseAccount(t *testing.T) {
	t.Parallel()
	for how, giveBack := range map[string]func(*arbiter, *user){
		"the worker ends":        func(a *arbiter, u *user) { a.remove(u) },
		"it gives its turn back": func(a *arbiter, u *user) { a.done(u, 25*time.Millisecond, false) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, users, heard := twoUsers(t)
				a.want(users[0])
				time.Sleep(20 * time.Millisecond)
				for i, want := range []time.Duration{20 * time.Millisecond, 0} {
					if got := a.close(users[i].account); got != want {
						t.Errorf("user %d has used %s at the end, want %s", i, got, want)
					}
				}
				time.Sleep(5 * time.Millisecond)
				giveBack(a, users[0])
				if used, _ := a.usage(users[0].account); used != 25*time.Millisecond {
					t.Errorf("%s are counted for 25 ms", used)
				}
				heard("[G0]")
				a.timer.Stop()
			})
		})
	}
}

// TestTurnWaitsForMemory: a turn begins when its memory is there, and is longer
// the longer that took; that time is nobody's.
func TestTurnWaitsForMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, users, heard := twoUsers(t)
		a.want(users[0])
		a.loading(users[0])
		a.want(users[1])
		time.Sleep(5 * time.Second)
		a.loaded(users[0], time.Second)
		time.Sleep(990 * time.Millisecond)
		heard("[G0]")
		time.Sleep(20 * time.Millisecond)
		a.done(users[0], time.Hour, false)
		heard("[G0 Y0 G1]")
		if used, _ := a.usage(users[0].account); used < time.Second || used > 1100*time.Millisecond {
			t.Errorf("%s are counted for a turn of a second", used)
		}
		a.timer.Stop()
	})
}

// TestLoadEnds: a turn does not wait for its memory for ever while others want the
// device, nor does one wait that was said to load before it began.
func TestLoadEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, users, heard := twoUsers(t)
		a.loading(users[1]) // it has no turn
		a.want(users[0])
		a.loading(users[0])
		a.want(users[1])
		time.Sleep(longestLoad - time.Millisecond)
		heard("[G0]")
		time.Sleep(2 * time.Millisecond)
		heard("[G0 Y0]")
		time.Sleep(patience)
		heard("[G0 Y0 G1]")
		a.want(users[0])
		time.Sleep(turnLength + time.Millisecond)
		heard("[G0 Y0 G1 Y1]")
		a.timer.Stop()
	})
}

// TestFetching: a turn of who has the driver itself begins when it says that its memory is
// there, if it was told that this is away, and no later than fetching that can take; who was
// not told is charged from when it has the device, whatever it says. Others wait no longer.
func TestFetching(t *testing.T) {
	t.Parallel()
	const bytes = 2 * fetchSlow
	for _, c := range []struct {
		name          string
		away          bool
		takes, charge time.Duration
	}{
		{"it was not told", false, time.Second, time.Second},
		{"it was told", true, time.Second, 0},
		{"it takes too long", true, 5 * time.Second, 3*time.Second - fetchBegins},
	} {
		for how, says := range map[string]bool{"it says when its memory is there": true, "it says nothing": false} {
			t.Run(c.name+", "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					a, users, _ := twoUsers(t)
					a.crowded = func() bool { return c.away }
					a.want(users[1])
					a.done(users[1], 0, false)
					a.want(users[0])
					if got := a.fetching(users[0], bytes); got != c.away {
						t.Errorf("it fetches: %v", got)
					}
					if a.fetching(users[0], bytes) || a.fetching(users[1], bytes) {
						t.Error("it fetches twice in a turn, or without one")
					}
					<-time.After(c.takes)
					if says {
						a.loaded(users[0], 0)
					}
					used := time.Duration(0)
					if !c.away {
						used = time.Hour
					}
					a.done(users[0], used, true)
					if got, _ := a.usage(users[0].account); got != c.charge {
						t.Errorf("%v are charged, want %v", got, c.charge)
					}
					a.timer.Stop()
				})
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		a, users, heard := twoUsers(t)
		a.crowded = func() bool { return true }
		a.want(users[1])
		a.done(users[1], 0, false)
		a.want(users[0])
		a.fetching(users[0], bytes)
		a.want(users[1])
		<-time.After(2*time.Second + fetchBegins + time.Millisecond)
		heard("[Z1 G1 Z0 G0 Y0]")
		a.loaded(users[0], time.Second) // it has not heard that
		<-time.After(time.Second + time.Millisecond)
		heard("[Z1 G1 Z0 G0 Y0 Y0]")
		<-time.After(patience)
		heard("[Z1 G1 Z0 G0 Y0 Y0 Z1 G1]")
		a.timer.Stop()
	})
}

// TestResizeShare: a new share counts from the moment it is set.
func TestResizeShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &load{share: 10, kernel: time.Millisecond}
		a, stop := newArbiter(), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() { l.run(a, stop) })
		time.Sleep(10 * time.Second)
		used, _ := a.usage(&l.account)
		l.now.Store(60)
		time.Sleep(10 * time.Second)
		after, _ := a.usage(&l.account)
		close(stop)
		all.Wait()
		a.timer.Stop()
		if got := 100 * (after - used).Seconds() / 10; math.Abs(used.Seconds()*10-10) > 1 || math.Abs(got-60) > 2 {
			t.Errorf("10%% had %.2f%%, and 60%% then %.2f%%", used.Seconds()*10, got)
		}
	})
}

// TestEndlessKernel: who does not give the device back is not waited for for
// longer than a second, and its time is counted.
func TestEndlessKernel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck, other := &load{share: 50, kernel: time.Hour}, &load{share: 50, kernel: time.Millisecond}
		a, stop := newArbiter(), make(chan struct{})
		var all sync.WaitGroup
		go stuck.run(a, stop)
		time.Sleep(5 * time.Second) // it has been alone for long
		all.Go(func() { other.run(a, stop) })
		time.Sleep(10 * time.Second)
		close(stop)
		all.Wait()
		if got := percent(other); got < 40 {
			t.Errorf("beside a kernel that never ends, a share of 50%% had %.1f%%", got)
		}
		a.remove(stuck.user) // its worker is killed
		if used, _ := a.usage(&stuck.account); used < 14*time.Second {
			t.Errorf("a kernel that ran for 15 s is counted with %v", used)
		}
		a.timer.Stop()
		time.Sleep(time.Hour)
	})
}

// TestArbiterTurns: programs of one task have turns in turn. (The first had nearly all.)
func TestArbiterTurns(t *testing.T) {
	t.Parallel()
	for _, concurrent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := newArbiter()
			a.concurrent.Store(concurrent)
			var common account
			var all []*load
			stop := make(chan struct{})
			var done sync.WaitGroup
			for range 3 {
				l := &load{share: 20, kernel: time.Millisecond, common: &common}
				all = append(all, l)
				done.Go(func() { l.run(a, stop) })
			}
			time.Sleep(10 * time.Second)
			close(stop)
			done.Wait()
			a.timer.Stop()
			for _, l := range all {
				if l.ran < all[0].ran/2 || l.ran > 2*all[0].ran {
					t.Errorf("programs of one task had %v, %v and %v", all[0].ran, all[1].ran, all[2].ran)
				}
			}
			time.Sleep(time.Hour)
		})
	}
}

// TestArbiterRejects: a worker that says it is done without a turn changes nothing.
func TestArbiterRejects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newArbiter()
		u := &user{account: &account{}, share: func() int64 { return 50 }, weighted: func() bool { return false }, say: func(byte, time.Duration) {}}
		a.add(u)
		a.done(u, time.Hour, true)
		if used, _ := a.usage(u.account); used != 0 {
			t.Errorf("%v were counted without a turn", used)
		}
		u.account.credit = time.Millisecond
		a.want(u)
		a.done(u, -time.Hour, false)
		if used, _ := a.usage(u.account); used != 0 {
			t.Errorf("%v were counted for a turn of less than nothing", used)
		}
		a.remove(u)
	})
}

// TestAway: who may have had its memory moved off the device is told so before its turn:
// others had it while they had more memory together than it has, whether they still have
// when the turn comes or not.
func TestAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newArbiter()
		crowded := false
		a.crowded = func() bool { return crowded }
		said := ""
		of := func(name string) *user {
			u := &user{account: &account{}, share: func() int64 { return 50 }, weighted: func() bool { return true }, say: func(what byte, _ time.Duration) { said += fmt.Sprintf("%s:%c ", name, what) }}
			a.add(u)
			return u
		}
		one, two := of("1"), of("2")
		turn := func(u *user, want string) {
			t.Helper()
			said = ""
			a.want(u)
			a.done(u, time.Millisecond, false)
			if said != want {
				t.Errorf("said %q, want %q", said, want)
			}
		}
		turn(one, "1:G ")
		turn(two, "2:G ")
		crowded = true
		turn(two, "2:G ")
		turn(one, "1:Z 1:G ")
		turn(one, "1:G ")
		turn(two, "2:Z 2:G ")
		crowded = false
		turn(one, "1:Z 1:G ") // there was too much while the other had it
		turn(two, "2:G ")
		turn(one, "1:G ")
		crowded = true
		a.concurrent.Store(true) // all have it at once
		turn(two, "2:G ")
		for _, u := range []*user{one, two} {
			a.remove(u)
		}
		a.timer.Stop()
	})
}

// TestComesLater: who comes, or comes back, when another has used the device for long
// does not keep that waiting for the time that it did not use itself.
func TestComesLater(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		concurrent bool
		away       time.Duration // between the beginning of its worker and its first work
		fixed      bool          // there is a fixed share of 30 %, too
		least      float64       // of the other's share meanwhile
	}{
		{"in turns, at once", false, 0, false, 48},
		{"in turns, later", false, time.Second, false, 48},
		{"in turns, beside a fixed share", false, time.Second, true, 33},
		{"beside others, at once", true, 0, false, 98},
		{"beside others, later", true, time.Second, false, 98},
		{"beside others, and a fixed share", true, time.Second, true, 98},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, stop := newArbiter(), make(chan struct{})
				a.concurrent.Store(c.concurrent)
				first := &load{share: 50, weighted: true, kernel: time.Millisecond}
				second := &load{share: 50, weighted: true, kernel: time.Millisecond, away: c.away}
				var all sync.WaitGroup
				all.Go(func() { first.run(a, stop) })
				if c.fixed {
					all.Go(func() { (&load{share: 30, kernel: time.Millisecond}).run(a, stop) })
				}
				time.Sleep(time.Minute)
				all.Go(func() { second.run(a, stop) })
				time.Sleep(c.away)
				before, _ := a.usage(&first.account)
				time.Sleep(span)
				after, _ := a.usage(&first.account)
				close(stop)
				all.Wait()
				a.timer.Stop()
				if got := 100 * (after - before).Seconds() / span.Seconds(); got < c.least {
					t.Errorf("who has computed for a minute had %.1f%% of the device when another came, want %.0f%%", got, c.least)
				}
			})
		})
	}
}

// TestGang: of two programs that each have a device and wait for the other's, as kernels of one
// do that wait for each other, one soon has both, and then the other; who waits for no other
// device is given the time that a kernel may take.
func TestGang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var saying sync.Mutex
		said := ""
		at := [2]*arbiter{newArbiter(), newArbiter()}
		var users [2][2]*user // program, device
		var gangs [2]gang
		for p := range users {
			for d := range users[p] {
				users[p][d] = &user{account: &account{}, gang: &gangs[p], share: func() int64 { return 50 }, weighted: func() bool { return true },
					say: func(what byte, _ time.Duration) {
						saying.Lock()
						defer saying.Unlock()
						said += fmt.Sprintf("%c%d%d ", what, p, d)
					}}
				at[d].add(users[p][d])
			}
		}
		heard := func(want string) {
			t.Helper()
			synctest.Wait()
			saying.Lock()
			defer saying.Unlock()
			if said != want {
				t.Errorf("%q, want %q", said, want)
			}
			said = ""
		}
		both := func(p, d int) { at[d].want(users[p][d]) }
		both(0, 0)
		both(1, 1)
		heard("G00 G11 ")
		both(0, 1)
		time.Sleep(turnLength)
		heard("Y11 ")
		time.Sleep(patience/2 + haste/4) // program 1 has one device, and waits for none
		heard("")
		both(1, 0)
		time.Sleep(turnLength + 2*haste)
		heard("Y00 G01 ") // whose kernels end now
		for d := range at {
			at[d].done(users[0][d], time.Millisecond, false)
		}
		heard("G10 ")
		if n := gangs[0].waits.Load() + gangs[1].waits.Load(); n != 0 {
			t.Errorf("nobody waits, and it is said that %d do", n)
		}
		// Another process of the program that waits for the same device is no reason.
		for d := range at {
			at[d].done(users[1][d], time.Millisecond, false)
		}
		beside := &user{account: users[0][0].account, gang: &gangs[0], share: users[0][0].share, weighted: users[0][0].weighted, say: func(byte, time.Duration) {}}
		at[0].add(beside)
		both(0, 0)
		at[0].want(beside)
		both(1, 0)
		time.Sleep(patience / 2)
		heard("G00 Y00 ")
		at[0].remove(beside)
		if n := gangs[0].waits.Load(); n != 0 {
			t.Errorf("who went waits still: %d", n)
		}
		time.Sleep(patience)
		heard("G10 ")
		at[0].timer.Stop()
		at[1].timer.Stop()
	})
}
