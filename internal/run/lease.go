package run

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

const (
	leaseTime  = 10 * time.Second
	renewEvery = 500 * time.Millisecond
	// giveUp leaves a loop time to end before its lease does.
	giveUp = 7 * time.Second
	// orphaned is how long the owner of a lease must neither renew it nor have
	// a session: more than two renewals.
	orphaned = 1200 * time.Millisecond
	// roundTime bounds one look at the leases.
	roundTime = 3 * time.Second
)

// Elector holds the leases of one process. It is safe for concurrent use.
type Elector struct {
	db   *db.DB
	me   string
	log  *slog.Logger
	wake chan struct{}

	begun   *prometheus.GaugeVec
	failing *prometheus.GaugeVec
	ended   *prometheus.CounterVec

	mu      sync.Mutex // guards the fields below
	seats   map[string]*seat
	running map[string]*rounds  // loops, by name
	known   map[string]sighting // leases of others, by name
	at      time.Time           // of the last look that succeeded
	soon    time.Duration       // after which an orphan may be taken; at most renewEvery
}

// seat is a lease that this process wants, or has.
type seat struct {
	got  chan int64    // the term, once
	lost chan struct{} // closed when it is not held any more
	dog  *time.Timer   // nil until it is held
}

// sighting is a lease as last seen.
type sighting struct {
	owner  string
	until  int64
	since  time.Time // it looks like this
	live   bool
	orphan bool // its owner has no session
}

// NewElector returns the elector of the process named me; its loop is Run. No
// two processes may have one name at the same time.
func NewElector(d *db.DB, me string, log *slog.Logger) *Elector {
	e := &Elector{db: d, me: me, log: log.With("component", "run"), wake: make(chan struct{}, 1), seats: map[string]*seat{}, running: map[string]*rounds{}, known: map[string]sighting{}}
	e.begun = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "yunhe_run_round_begun_seconds", Help: "When a loop of this process last began a round, in seconds since 1970."}, []string{"loop"})
	e.failing = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "yunhe_run_failing_since_seconds", Help: "Since when all rounds of a loop of this process have failed, in seconds since 1970; 0: the last one did not."}, []string{"loop"})
	e.ended = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "yunhe_run_given_up_total", Help: "How often a loop of this process was canceled because it stood still or failed again and again."}, []string{"loop"})
	return e
}

// Register has the metrics of loops under leases collected.
func (e *Elector) Register(reg prometheus.Registerer) { reg.MustRegister(e.begun, e.failing, e.ended) }

// Session is what the sessions of an instance at the database are called.
func Session(instance string) string {
	name, _, _ := strings.Cut(instance, "@")
	return name
}

// Run renews and takes leases until ctx ends.
func (e *Elector) Run(ctx context.Context) error {
	if e.db.Engine() == db.SQLite {
		<-ctx.Done()
		return nil
	}
	for failed := false; ; {
		err := e.round(ctx)
		if err != nil && ctx.Err() == nil && !failed {
			e.log.Warn("leases not renewed, will try again", "error", err)
		}
		failed = err != nil
		pause := time.NewTimer(e.pause())
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		case <-e.wake:
			pause.Stop()
		}
	}
}

// pause is how long to wait for the next round.
func (e *Elector) pause() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	soon := e.soon
	if e.soon = 0; soon == 0 {
		return renewEvery // the round has failed
	}
	return soon
}

// Lead runs fn whenever this process holds the named lease, and again when it
// gets it back after losing it. On SQLite, where there is one process, it runs
// fn at once. It returns when ctx ends or fn does. A fn that stands still or fails
// again and again ([core.Round], [core.RoundFailed]) is canceled, and another process
// has the lease, or this one begins anew; if it does not end then, Lead returns an error.
func (e *Elector) Lead(ctx context.Context, name string, fn Loop) error {
	for ctx.Err() == nil && e.db.Engine() == db.SQLite {
		if again, err := e.watch(ctx, name, fn, nil, func() {}); !again || err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		s := &seat{got: make(chan int64, 1), lost: make(chan struct{})}
		e.mu.Lock()
		e.seats[name] = s
		e.mu.Unlock()
		e.hurry()
		select {
		case <-ctx.Done():
		case term := <-s.got:
			e.log.Info("lease taken", "lease", name, "term", term)
			again, err := e.hold(ctx, name, term, s, fn)
			e.log.Info("lease ended", "lease", name, "term", term)
			if err != nil {
				return err
			}
			if again { // others first
				select {
				case <-ctx.Done():
				case <-time.After(leaseTime):
				}
			}
		}
		e.mu.Lock()
		delete(e.seats, name)
		e.mu.Unlock()
	}
	return nil
}

func (e *Elector) hurry() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// hold runs fn until it ends, ctx ends or the lease is lost, or given up because
// fn does not do its work.
func (e *Elector) hold(ctx context.Context, name string, term int64, s *seat, fn Loop) (again bool, err error) {
	return e.watch(db.Fenced(ctx, e.fence(name, term)), name, fn, s.lost, func() { e.vacate(ctx, name) })
}

// watch runs fn until it ends, ctx ends, lost is closed or fn does not do its
// work and is to begin again, and calls free when the lease is not needed any more.
func (e *Elector) watch(ctx context.Context, name string, fn Loop, lost <-chan struct{}, free func()) (again bool, err error) {
	r := e.watchRounds(name)
	defer r.close()
	fctx, cancel := context.WithCancel(core.WithRounds(ctx, r))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- guarded(fctx, fn) }()
	var why string
	select {
	case err := <-ended:
		free()
		if ctx.Err() != nil {
			return false, nil
		}
		return false, err
	case <-lost:
		cancel()
		<-ended
		return false, nil
	case why = <-r.stop:
	}
	e.ended.WithLabelValues(name).Inc()
	e.log.Error("loop does not do its work, is canceled", "loop", name, "why", why)
	cancel()
	free() // what it still writes is refused
	select {
	case <-ended:
		return true, nil
	case <-time.After(grace):
		return true, fmt.Errorf("loop %s %s and does not end", name, why)
	}
}

// fence refuses transactions once the lease has had another owner.
func (e *Elector) fence(name string, term int64) func(context.Context, *db.Tx) error {
	return func(ctx context.Context, tx *db.Tx) error {
		return tx.CheckLater(ctx, "term of the lease "+name, `SELECT 1 FROM lease_terms WHERE name = $1 AND term = $2`, []any{name, term}, func(n int64) error {
			if n == 0 {
				return fault.New(fault.Unavailable, "the lease %s was taken by another process", name)
			}
			return nil
		})
	}
}

// Live reports whether some process holds the lease, as seen within the last
// seconds. On SQLite there is one process, which does.
func (e *Elector) Live(name string) bool {
	if e.db.Engine() == db.SQLite {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.at) < giveUp && e.known[name].live
}

// round looks at all leases, and renews and takes those of this process.
func (e *Elector) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	begin := time.Now() // before the database's clock is read
	seen, err := e.look(ctx)
	if err != nil {
		return err
	}
	mine, free := e.judge(seen, begin)
	if len(mine)+len(free) == 0 {
		return nil
	}
	renewed, taken := map[string]bool{}, map[string]int64{}
	err = e.db.Tx(ctx, func(tx *db.Tx) error {
		clear(renewed)
		clear(taken)
		for _, name := range mine {
			n, err := tx.Exec(ctx, `UPDATE leases SET until = `+clock+` + $3 WHERE name = $1 AND owner = $2`, name, e.me, leaseTime.Microseconds())
			if err != nil {
				return fmt.Errorf("renew the lease %s: %w", name, err)
			}
			renewed[name] = n == 1
		}
		for name, was := range free {
			term, err := e.take(ctx, tx, name, was)
			if err != nil {
				return fmt.Errorf("take the lease %s: %w", name, err)
			}
			if term > 0 {
				taken[name] = term
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.settle(begin, renewed, taken)
	return nil
}

// clock is the database's, in microseconds.
const clock = `CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)`

// look reads all leases. An owner has no session only if its sessions have a
// name, which those of older versions have not, and if sessions can be seen.
func (e *Elector) look(ctx context.Context) (map[string]sighting, error) {
	seen := map[string]sighting{}
	err := e.db.View(ctx, func(tx *db.Tx) error {
		clear(seen)
		return tx.Query(ctx, `SELECT l.name, l.owner, l.until, l.until >= `+clock+`, t.name IS NOT NULL
			AND EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.pid = pg_backend_pid() AND a.application_name = $1)
			AND NOT EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.application_name = split_part(l.owner, '@', 1))
			FROM leases l LEFT JOIN lease_terms t ON t.name = l.name AND t.owner = l.owner`, []any{Session(e.me)}, func(row db.Row) error {
			var name string
			var s sighting
			err := row.Scan(&name, &s.owner, &s.until, &s.live, &s.orphan)
			seen[name] = s
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	return seen, nil
}

// judge notes what was seen and says which leases are held by this process and
// which of those it wants are free, as they were seen.
func (e *Elector) judge(seen map[string]sighting, now time.Time) (mine []string, free map[string]sighting) {
	free = map[string]sighting{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, s := range seen {
		s.since = now
		if was, ok := e.known[name]; ok && was.owner == s.owner && was.until == s.until && was.orphan && s.orphan {
			s.since = was.since
		}
		seen[name] = s
	}
	e.known, e.at, e.soon = seen, now, renewEvery
	for name, s := range e.seats {
		was, exists := seen[name]
		switch {
		case s.dog != nil:
			mine = append(mine, name)
		case !exists, !was.live, was.owner == e.me, was.orphan && now.Sub(was.since) >= orphaned:
			free[name] = was
		case was.orphan:
			e.soon = min(e.soon, orphaned-now.Sub(was.since))
		}
	}
	return mine, free
}

// take makes a lease this process's if it is still as it was seen, and returns
// its term; 0: it is not.
func (e *Elector) take(ctx context.Context, tx *db.Tx, name string, was sighting) (term int64, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO leases (name, owner, until) VALUES ($1, $2, `+clock+` + $3)
		ON CONFLICT (name) DO UPDATE SET owner = $2, until = `+clock+` + $3
		WHERE leases.owner = $2 OR leases.until < `+clock+` OR (leases.owner = $4 AND leases.until = $5)`,
		name, e.me, leaseTime.Microseconds(), was.owner, was.until)
	if err != nil || n == 0 {
		return 0, err
	}
	_, err = tx.Get(ctx, `INSERT INTO lease_terms (name, owner, term) VALUES ($1, $2, 1)
		ON CONFLICT (name) DO UPDATE SET owner = $2, term = lease_terms.term + 1 RETURNING term`, []any{name, e.me}, &term)
	return term, err
}

// settle tells those who hold leases what became of them.
func (e *Elector) settle(begin time.Time, renewed map[string]bool, taken map[string]int64) {
	left := giveUp - time.Since(begin)
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, ok := range renewed {
		s := e.seats[name]
		if s == nil || s.dog == nil {
			continue // its loop has ended meanwhile
		}
		if !ok {
			s.lose()
		} else if s.dog.Stop() { // else it is given up
			s.dog.Reset(left)
		}
	}
	for name, term := range taken {
		if s := e.seats[name]; s != nil && s.dog == nil {
			s.dog = time.AfterFunc(left, func() {
				e.mu.Lock()
				defer e.mu.Unlock()
				s.lose()
			})
			s.got <- term
		}
	}
}

// lose tells that the lease is not held any more; Elector.mu is held.
func (s *seat) lose() {
	s.dog.Stop()
	select {
	case <-s.lost:
	default:
		close(s.lost)
	}
}

// vacate gives a lease back. If this fails it ends by itself.
func (e *Elector) vacate(ctx context.Context, name string) {
	e.mu.Lock()
	e.seats[name].lose()
	delete(e.seats, name)
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = e.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM leases WHERE name = $1 AND owner = $2`, name, e.me)
		return err
	})
}
