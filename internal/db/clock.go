package db

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// clock tells the time of a PostgreSQL server: what that said when it was last
// asked, and the time that has passed since, which no one can set. All processes
// of a platform so write times of one clock, whatever their own says.
//
// The server's clock was read between question and answer, so that each answer
// bounds it from both sides. The clock of this machine is taken while it is within
// these bounds; else the estimate moves as far as they ask and no farther, so that
// an answer that took long does no harm.
type clock struct {
	log *slog.Logger

	mu    sync.Mutex // guards the fields below
	base  time.Time  // the server's time
	at    time.Time  // when it was, by this process
	asked time.Time
	off   bool // this process's time of day is not the server's
}

const (
	// askEvery is how old an answer may be; what drifts meanwhile is less than a millisecond.
	askEvery = 5 * time.Second
	// clockSlack is by how much clocks may differ without anyone being told.
	clockSlack = time.Second
)

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base.Add(time.Since(c.at))
}

// due reports whether the server is to be asked, to one caller in askEvery.
func (c *clock) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.asked) < askEvery {
		return false
	}
	c.asked = time.Now()
	return true
}

// ask reads the server's clock.
func (c *clock) ask(ctx context.Context, from interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) error {
	begin := time.Now()
	var said time.Time
	if err := from.QueryRowContext(ctx, `SELECT clock_timestamp()`).Scan(&said); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	c.heard(begin, time.Now(), said)
	return nil
}

// heard takes in what the server said between begin and end.
func (c *clock) heard(begin, end, said time.Time) {
	least, most := said, said.Add(end.Sub(begin)) // at end
	own := end.Round(0)                           // the time of day of this machine, which may be set
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.at.IsZero()
	if first {
		c.base, c.at = own, end
	}
	was := c.base.Add(end.Sub(c.at))
	is := was
	if !own.Before(least) && !own.After(most) {
		is = own // it is right, as far as one can tell, and nearer than any estimate
	} else if was.Before(least) {
		is = least
	} else if was.After(most) {
		is = most
	}
	c.base, c.at, c.asked = is, end, end
	if by := is.Sub(was); by.Abs() > clockSlack && !first {
		c.log.Warn("the clock of the database was set", "by", by)
	}
	ahead := own.Sub(is)
	if off := ahead.Abs() > clockSlack; off != c.off {
		c.off = off
		if off {
			c.log.Warn("the clock of this machine is not the database's, which is used: set it, best with NTP", "ahead", ahead)
		} else {
			c.log.Info("the clock of this machine is right again")
		}
	}
}

// even tells the time of day of this machine as it was at the start and goes on
// evenly from there, whatever is set: a machine's clock that is set an hour back
// or ahead neither takes an hour from what waits nor has it time out. SQLite has
// it. By how much the clock was set is taken up slowly, a hundredth of the time
// that passes; a start takes it at once.
type even struct {
	log   *slog.Logger
	start time.Time
	slept time.Duration // of the machine, until start

	mu     sync.Mutex // guards the fields below
	passed time.Duration
	last   time.Time // told, at passed
	off    bool
}

func newEven(log *slog.Logger) *even {
	start := time.Now()
	return &even{log: log, start: start, slept: slept(), last: start.Round(0)}
}

func (e *even) now() time.Time {
	own := time.Now()
	return e.tell(own.Round(0), own.Sub(e.start)+slept()-e.slept)
}

// tell returns the time when the machine's clock says own and passed has passed
// since the start.
func (e *even) tell(own time.Time, passed time.Duration) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	step := max(0, passed-e.passed) // callers may come in another order than they looked
	is := e.last.Add(step)
	ahead := own.Sub(is)
	is = is.Add(max(-step/100, min(ahead, step/100)))
	e.passed, e.last = e.passed+step, is
	if off := ahead.Abs() > clockSlack; off != e.off {
		e.off = off
		if off {
			e.log.Warn("the clock of this machine was set: the difference is taken up slowly; restart the platform to take it at once", "ahead", ahead)
		} else {
			e.log.Info("the time is the machine's again")
		}
	}
	return is
}
