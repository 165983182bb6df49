package pool

import (
	"math"
	"slices"
	"sync"
	"time"
)

// quota is what of devices' time a group's tasks may have together, on all devices of
// the node. Its fixed shares are within it when they are given ([Node.room]), and have
// theirs whatever the others do; those whose share is a weight have what these leave of
// it. It is a limit: what it does not let a group have is others', or nobody's.
type quota struct {
	mu      sync.Mutex // guards what follows
	percent int64      // of one device's time; 0: any
	credit  time.Duration
	at      time.Time // when credit was counted
}

// set says how much it is from now on.
func (q *quota) set(now time.Time, percent int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.earn(now)
	if q.percent == 0 { // nothing was counted
		q.credit = 0
	}
	q.percent = percent
}

// earnedIn is in how long a share earns so much.
func earnedIn(d time.Duration, percent int64) time.Duration {
	return d * 100 / time.Duration(max(percent, 1))
}

// earned is what a share has after so long that had so much: however long that is, and however
// large the share.
func earned(credit, d time.Duration, percent int64) time.Duration {
	if percent > 0 && d >= earnedIn(savings-credit, percent) {
		return savings
	}
	return credit + d*time.Duration(percent)/100
}

// earn counts what was earned. The caller has the lock.
func (q *quota) earn(now time.Time) {
	if q.at.IsZero() {
		q.at = now
	}
	if d := now.Sub(q.at); d > 0 { // who asks may have looked at the clock before another did
		q.credit, q.at = earned(q.credit, d, q.percent), now
	}
}

// charge counts time that a task of the group had.
func (q *quota) charge(now time.Time, used time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.earn(now)
	q.credit -= used
}

// left is how much may be used now.
func (q *quota) left(now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.earn(now)
	if q.percent == 0 {
		return math.MaxInt64
	}
	return q.credit
}

// wait is in how long a weight of the group may have a turn; not above 0: now.
func (q *quota) wait(now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.earn(now)
	if q.percent == 0 {
		return 0
	}
	return earnedIn(turnLeast-q.credit, q.percent)
}

// level sees to it that who had to wait for its group's quota does not come back with
// all the time it did not have: the group is put beside who did not have to wait, and
// stays as it is within. The caller has the lock.
func (a *arbiter) level(bound []*quota) {
	least := math.Inf(1)
	for _, u := range a.users {
		if (u.wants || u.over) && !u.limited() && !slices.Contains(bound, u.account.quota) {
			least = min(least, u.account.virtual)
		}
	}
	for _, q := range bound {
		most, all := math.Inf(-1), map[*account]bool{}
		for _, u := range a.users {
			if u.weighted() && u.account.quota == q {
				most, all[u.account] = max(most, u.account.virtual), true
			}
		}
		for c := range all {
			if !math.IsInf(least, 1) && most < least {
				c.virtual += least - most
			}
		}
	}
}

// quotas are those of groups that have one, by name.
func quotas(groups []Group) map[string]*quota {
	out := map[string]*quota{}
	for _, g := range groups {
		if g.Compute > 0 {
			out[g.Name] = &quota{percent: g.Compute}
		}
	}
	return out
}
