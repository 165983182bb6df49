package jobs

import (
	"context"
	"errors"
	"io"
	"time"

	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/metering/rate"
)

const (
	// logPiece is the most read from a center at once.
	logPiece = 256 << 10
	// logWait is how long a center may wait for the next byte.
	logWait = 5 * time.Second
)

// costOf is what a run costs in micro-yuan: so far while it runs, for good
// once it has ended.
func costOf(a *attempt, now int64) int64 {
	until := a.ended
	if until == 0 {
		until = max(now, a.started)
	}
	if a.started == 0 {
		return 0
	}
	micros, err := rate.Cost(a.price, time.Duration(until-a.started)*time.Microsecond)
	if err != nil {
		return 0 // metering refused it too and said so
	}
	return micros
}

// runningCost is what the runs that have not ended cost so far.
func runningCost(as []*attempt, now int64) (micros int64) {
	for _, a := range as {
		if a.ended == 0 {
			micros += costOf(a, now)
		}
	}
	return micros
}

// readLog sends a replica's log from offset on. While the replica runs it is
// read from its center, afterwards from the platform's own copy. With follow
// it goes on until the run has ended; a replica that still waits is waited for.
func (s *Service) readLog(ctx context.Context, jobID string, task, replica, number, offset int64, follow bool, send func(data []byte, offset int64) error) error {
	sub := s.hub.subscribe(jobID)
	defer sub.close()
	run := ""        // the attempt that offset belongs to
	unknown := false // its center did not know it when it was asked last
	for {
		a, open, err := s.attemptFor(ctx, jobID, task, replica, number)
		if err != nil {
			return err
		}
		if a != nil {
			if run != "" && run != a.id { // it is tried again: another log
				offset = 0
			}
			run = a.id
			offset, err = s.readAttempt(ctx, a, offset, follow, send)
			if a.ended == 0 && fault.KindOf(err) == fault.NotFound {
				// Its center does not know it any more, then its end is recorded by
				// now; or not yet, then there is no log so far.
				if unknown = !unknown; unknown {
					continue
				}
			} else if err != nil {
				return err
			}
			if !follow || a.ended > 0 && !(a.retry && open && number == 0) {
				return nil
			}
		} else if !follow || !open {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-sub.wake:
			sub.take()
		case <-time.After(time.Second):
		}
	}
}

// attemptFor finds the run of a replica a caller may see: the numbered one or
// the latest (0). It is nil if there is none yet; open says that one may come.
func (s *Service) attemptFor(ctx context.Context, jobID string, task, replica, number int64) (a *attempt, open bool, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		a = nil
		r, err := visible(ctx, tx, jobID)
		if err != nil {
			return err
		}
		if task < 0 || task >= int64(len(r.spec.Tasks)) || replica < 0 || replica >= int64(r.spec.Tasks[task].ReplicaNumber) {
			return fault.New(fault.NotFound, "job %s has no replica %d of task %d", jobID, replica, task)
		}
		open = r.outcome == 0
		as, err := queryAttempts(ctx, tx, `job_id = $1 AND task_index = $2 AND replica_index = $3 ORDER BY attempt`, jobID, task, replica)
		if err != nil {
			return err
		}
		for _, x := range as {
			if number == 0 || x.number == number {
				a = x
			}
		}
		if a == nil && number != 0 {
			return fault.New(fault.NotFound, "replica %d of task %d has no run %d", replica, task, number)
		}
		if a == nil || a.ended == 0 {
			return nil
		}
		_, err = tx.Get(ctx, `SELECT log_inline FROM attempts WHERE attempt_id = $1`, []any{a.id}, &a.logInline)
		return err
	})
	return a, open, err
}

// readAttempt sends what there is of a run's log and returns the next offset.
func (s *Service) readAttempt(ctx context.Context, a *attempt, offset int64, follow bool, send func([]byte, int64) error) (int64, error) {
	if a.ended > 0 {
		return s.readKept(ctx, a, offset, send)
	}
	if offset < 0 {
		var size int64
		// Its center says how long the log is by coming to its end.
		if _, err := s.readAttempt(ctx, a, 0, false, func(data []byte, at int64) error { size = at + int64(len(data)); return nil }); err != nil {
			return offset, err
		}
		offset = max(0, size+offset)
	}
	for {
		wait := time.Duration(0)
		if follow {
			wait = logWait
		}
		res, err := s.ad.ReadLog(ctx, a.center, a.id, offset, logPiece, wait)
		if err != nil {
			if follow && fault.KindOf(err) == fault.Unavailable {
				return offset, nil // the center is away or has reported the end: look again
			}
			return offset, err
		}
		if len(res.Data) > 0 {
			if err := send(res.Data, res.Offset); err != nil {
				return offset, err
			}
			offset = res.Offset + int64(len(res.Data))
			continue
		}
		return offset, nil
	}
}

// readKept sends the platform's copy of an ended run's log.
func (s *Service) readKept(ctx context.Context, a *attempt, offset int64, send func([]byte, int64) error) (int64, error) {
	if a.logInline != nil {
		size := int64(len(a.logInline))
		if offset < 0 {
			offset = max(0, size+offset)
		}
		if offset >= size {
			return offset, nil
		}
		return size, send(a.logInline[offset:], offset)
	}
	key := adapters.LogKey(a.id)
	size, err := s.logs.Size(ctx, key)
	if fault.KindOf(err) == fault.NotFound {
		return offset, nil // it never wrote anything
	}
	if err != nil {
		return offset, err
	}
	if offset < 0 {
		offset = max(0, size+offset)
	}
	if offset >= size {
		return offset, nil
	}
	in, err := s.logs.Read(ctx, key, offset)
	if err != nil {
		return offset, err
	}
	defer func() { _ = in.Close() }() // read only
	buf := make([]byte, logPiece)
	for {
		n, err := io.ReadFull(in, buf)
		if n > 0 {
			if err := send(buf[:n], offset); err != nil {
				return offset, err
			}
			offset += int64(n)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return offset, nil
		}
		if err != nil {
			return offset, err
		}
	}
}
