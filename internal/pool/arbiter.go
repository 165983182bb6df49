package pool

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Times of turns. A turn of a task that is alone is long, because giving the
// device back waits until it is idle; it is cut short when another wants it.
const (
	turnLength = 10 * time.Millisecond
	turnAlone  = 200 * time.Millisecond
	turnLeast  = 500 * time.Microsecond
	// savings is how much time a task that has a fixed share may put by.
	savings = 50 * time.Millisecond
	// patience is how long a device waits for a task whose turn is over: a
	// kernel that never ends must not stop the others, who then compute beside it.
	patience = time.Second
	// haste is that for a program that waits for another device meanwhile, whose kernel
	// may wait for one there; who has that device may wait for this one.
	haste = 20 * time.Millisecond
	// longestLoad is how long a turn waits for its memory while others want the device:
	// those who are to give it back have half of that.
	longestLoad = time.Minute
	// A program that has the driver itself is believed to fetch its memory for so long, and
	// no slower: one that says that it does may compute.
	fetchBegins = 100 * time.Millisecond
	fetchSlow   = 1 << 30 // bytes a second: a third of the slowest way to a card
)

// user is a worker that uses a device, as the arbiter sees it.
type user struct {
	share    func() int64 // percent of the device's time, of the whole task
	weighted func() bool  // the share is of what others leave, not a limit
	say      func(what byte, d time.Duration)
	account  *account
	gang     *gang // of a program of CUDA with the driver in it, which may have several devices; nil: it has one

	wants bool
	since time.Time     // of the turn it has
	asked time.Time     // when it was asked to give the device back; zero: it was not
	over  bool          // it computes beside the others: turns are not exclusive, or it did not give the device back in time
	loads bool          // its memory is put on the device, which its turn waits for
	least time.Duration // of its turn, after that
	most  time.Duration // that it may wait so; 0: as long as [longestLoad]
	away  bool          // others had the device while there was more memory than that has
	told  bool          // it was told so, for the turn it has, and has not said yet that it fetches
}

// gang is what programs have in common that use several devices together.
type gang struct {
	waits atomic.Int64 // turns of any of them that they wait for
}

// want notes whether a user waits for a turn. The caller has the arbiter's lock.
func (u *user) want(is bool) {
	if u.gang != nil && u.wants != is {
		u.gang.waits.Add(map[bool]int64{true: 1, false: -1}[is])
	}
	u.wants = is
}

// limited says whether it has no more than its share, though nobody else wants the device.
func (u *user) limited() bool { return !u.weighted() && u.share() < 100 }

// account is the time of a task, which all its workers use.
type account struct {
	credit  time.Duration // of a task with a fixed share: may be used now; below 0 is waited for
	at      time.Time     // when credit was counted
	virtual float64       // time used, by share: who has the least is next
	used    time.Duration
	active  time.Time // when the device was last wanted or used
	quota   *quota    // of its group; nil: that has none
}

// arbiter gives a device to one user at a time. Who has used the least of its
// share is next; a user with a fixed share waits until it has earned a turn,
// even if nobody else wants the device.
//
// A device whose turns are not exclusive is given to all who want it at once.
// There, who has used more than [savings] more of its share than another that
// wants the device waits for that, but for one that may have no more.
type arbiter struct {
	now        func() time.Time
	concurrent atomic.Bool
	crowded    func() bool // whether users have more memory than the device; nil: they do not

	mu     sync.Mutex
	users  []*user // in the order they came
	holder *user
	last   *user // that had the device alone
	timer  *time.Timer
}

func newArbiter() *arbiter {
	a := &arbiter{now: time.Now}
	a.timer = time.AfterFunc(time.Hour, a.tick)
	a.timer.Stop()
	return a
}

func (a *arbiter) add(u *user) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if u.account.at.IsZero() {
		u.account.at, u.account.active = a.now(), a.now()
	}
	a.users = append(a.users, u)
}

func (a *arbiter) remove(u *user) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, x := range a.users {
		if x == u {
			a.users = append(a.users[:i], a.users[i+1:]...)
			u.want(false)
			break
		}
	}
	if a.holder == u || u.over {
		a.charge(u, a.now().Sub(u.since))
	}
	if a.holder == u {
		a.holder = nil
	}
	if a.last == u {
		a.last = nil
	}
	a.next()
}

// want is said by a user that has work.
func (a *arbiter) want(u *user) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u.want(true)
	away := u.account.virtual == 0 || a.now().Sub(u.account.active) > savings // or it begins
	u.account.active = a.now()
	least, leastLimited := math.Inf(1), math.Inf(1)
	for _, x := range a.users { // who was away does not come back with all the time it did not use
		if x == u || x.account == u.account || !x.wants && x != a.holder && !x.over {
			continue
		}
		virtual := x.account.virtual
		if x.over {
			virtual += float64(a.now().Sub(x.since)) / float64(max(x.share(), 1)) // which is counted when it gives the device back
		}
		if x.limited() { // it has less than others because it may have no more
			leastLimited = min(leastLimited, virtual)
		} else {
			least = min(least, virtual)
		}
	}
	if math.IsInf(least, 1) {
		least = leastLimited
	}
	if away && !math.IsInf(least, 1) {
		u.account.virtual = max(u.account.virtual, least)
	}
	a.next()
}

// done is said by a user that gives the device back, which it used for so long,
// and whether it wants it again: who is next is decided knowing that.
func (a *arbiter) done(u *user, used time.Duration, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holder != u && !u.over {
		return // a worker that says so without a turn
	}
	a.charge(u, min(max(used, a.beyond(u)), a.now().Sub(u.since)))
	u.want(more)
	u.over = false
	if a.holder == u {
		a.holder = nil
	}
	a.next()
}

// loading is said by a user that waits for memory in its turn, which it does not do
// for longer than [longestLoad] while others want the device.
func (a *arbiter) loading(u *user) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if u.loads = a.holder == u || u.over; u.loads {
		u.most = 0
		a.next()
	}
}

// fetching is loading of a user that has the driver itself. It is heard once in a turn
// before which the user was told that its memory is away; time is charged beyond what
// fetching so many bytes could take. It reports whether it was heard.
func (a *arbiter) fetching(u *user, bytes uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !u.told || a.holder != u && !u.over {
		return false
	}
	u.told, u.loads = false, true
	u.most = min(longestLoad, fetchBegins+time.Duration(float64(bytes)/fetchSlow*1e9))
	a.next()
	return true
}

// beyond is for how long a user has fetched its memory that is charged. The caller has the lock.
func (a *arbiter) beyond(u *user) time.Duration {
	if !u.loads || u.most == 0 {
		return 0
	}
	return max(a.now().Sub(u.since)-u.most, 0)
}

// loaded is said by a user whose memory is there, or will not be: its turn begins
// then, and is not cut short before least.
func (a *arbiter) loaded(u *user, least time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if u.loads {
		if d := a.beyond(u); d > 0 {
			a.charge(u, d)
		}
		// Who was asked for the device meanwhile has not heard that: it is asked again.
		u.loads, u.since, u.least, u.asked = false, a.now(), least, time.Time{}
		a.next()
	}
}

// close returns what an account has used by now, turns that are not over among it: its
// task is ending, and is told of before its workers have ended.
func (a *arbiter) close(c *account) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.users {
		if u.account == c && (a.holder == u || u.over) {
			a.charge(u, a.now().Sub(u.since))
			u.since = a.now()
		}
	}
	return c.used
}

func (a *arbiter) charge(u *user, used time.Duration) {
	c := u.account
	a.earn(u)
	c.used += used
	c.credit -= used
	c.virtual += float64(used) / float64(max(u.share(), 1))
	c.active = a.now()
	if c.quota != nil {
		c.quota.charge(c.active, used)
	}
}

// earn counts what a fixed share has earned since it was last counted.
func (a *arbiter) earn(u *user) {
	c, now := u.account, a.now()
	c.credit = earned(c.credit, now.Sub(c.at), u.share())
	c.at = now
}

func (a *arbiter) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next()
}

// next gives the device to who is next, or sees to it that somebody looks again in time.
func (a *arbiter) next() {
	if h := a.holder; h != nil {
		others := false
		for _, u := range a.users {
			others = others || u != h && u.wants
		}
		now := a.now()
		switch held := now.Sub(h.since); {
		case !others:
		case h.loads && held < cmp.Or(h.most, longestLoad):
			a.timer.Reset(cmp.Or(h.most, longestLoad) - held)
		case held < max(turnLength, h.least):
			a.timer.Reset(max(turnLength, h.least) - held)
		case h.asked.IsZero():
			h.asked = now
			h.say('Y', 0)
			a.timer.Reset(h.looked(patience))
		case now.Sub(h.asked) >= patience, now.Sub(h.asked) >= haste && a.elsewhere(h):
			h.over, a.holder = true, nil
		default:
			a.timer.Reset(h.looked(patience - now.Sub(h.asked)))
		}
		if a.holder != nil {
			return
		}
	}
	for {
		best, wanting, wait := a.choose()
		if best != nil {
			a.grant(best, wanting)
		}
		if best == nil && wait >= 0 {
			a.timer.Reset(wait + 10*time.Microsecond)
		}
		if best == nil || !a.concurrent.Load() {
			return
		}
	}
}

// looked is after how long it is looked again whether a user has given the device back, for
// which there is so much time.
func (u *user) looked(left time.Duration) time.Duration {
	if u.gang == nil {
		return left
	}
	return min(left, haste)
}

// elsewhere reports whether the programs of a user's gang wait for other devices. The caller
// has the lock.
func (a *arbiter) elsewhere(u *user) bool {
	if u.gang == nil {
		return false
	}
	here := int64(0)
	for _, x := range a.users {
		if x.gang == u.gang && x.wants {
			here++
		}
	}
	return u.gang.waits.Load() > here
}

// choose finds who is next. The caller has the lock.
func (a *arbiter) choose() (best *user, wanting int, wait time.Duration) {
	wait = -1
	var bound []*quota
	for _, u := range a.users {
		if !u.wants {
			continue
		}
		wanting++
		a.earn(u)
		d, q := time.Duration(0), u.account.quota
		switch {
		case u.weighted() && q != nil:
			if d = q.wait(u.account.at); d > 0 && !slices.Contains(bound, q) {
				bound = append(bound, q)
			}
		case u.limited():
			d = earnedIn(turnLeast-u.account.credit, u.share())
		}
		if d > 0 {
			if wait < 0 || d < wait {
				wait = d
			}
			continue
		}
		if best == nil || u.account.virtual < best.account.virtual {
			best = u
		}
	}
	a.level(bound)
	if best == nil || !a.concurrent.Load() {
		return best, wanting, wait
	}
	for _, u := range a.users { // who is ahead waits for who computes
		if !u.over || u.account == best.account || u.limited() {
			continue
		}
		share := float64(max(u.share(), 1))
		ahead := best.account.virtual - float64(savings)/float64(max(best.share(), 1)) - u.account.virtual - float64(a.now().Sub(u.since))/share
		if ahead > 0 {
			return nil, wanting, time.Duration(ahead * share)
		}
	}
	return best, wanting, wait
}

// grant gives a user a turn. The caller has the lock.
func (a *arbiter) grant(best *user, wanting int) {
	length := turnLength
	if wanting == 1 && (len(a.users) == 1 || !a.concurrent.Load()) {
		length = turnAlone
	}
	if best.limited() {
		length = min(length, max(best.account.credit, turnLeast))
	} else if q := best.account.quota; best.weighted() && q != nil {
		length = min(length, max(q.left(a.now()), turnLeast))
	}
	if i := slices.Index(a.users, best); i >= 0 { // of a task's programs, those that have waited longer are next
		a.users = append(slices.Delete(a.users, i, i+1), best)
	}
	best.want(false)
	best.since, best.asked, best.least, best.loads, best.told = a.now(), time.Time{}, 0, false, false
	if a.concurrent.Load() {
		best.over = true
	} else {
		a.passes(best)
		a.holder, a.last = best, best
	}
	best.say('G', length)
	if wanting > 1 {
		a.timer.Reset(turnLength)
	}
}

// passes tells who is next if others may have had its memory moved off the device. The caller has the lock.
func (a *arbiter) passes(next *user) {
	crowded := a.crowded != nil && a.crowded()
	if next.away || crowded && next != a.last {
		next.say('Z', 0)
		next.told = true
	}
	next.away = false
	for _, u := range a.users { // also if there is room when their turn comes
		u.away = u.away || crowded && u != next
	}
}

// spent adds device time that a task had elsewhere.
func (a *arbiter) spent(c *account, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.used += d
}

// usage is a task's device time and when it last wanted the device.
func (a *arbiter) usage(c *account) (used time.Duration, active time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.users {
		if u.account == c && (a.holder == u || u.over || u.wants) {
			return c.used, a.now()
		}
	}
	return c.used, c.active
}
