package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"connectrpc.com/connect"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

// link is the connection of one command, shared by its streams: it tells the
// user once when it is lost and once when it is back.
//
// A stream that breaks is tried again for as long as the server has not been
// away longer than the limit, which outlasts a restart. The very first
// connection is not tried again: who mistyped an address wants to know now.
type link struct {
	c *cli

	mu       sync.Mutex
	reached  bool // the server has answered once
	lostSaid bool
}

// newLink returns a link; reached says that the first failure is tried again
// too.
func (c *cli) newLink(reached bool) *link { return &link{c: c, reached: reached} }

func (l *link) up() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lostSaid {
		l.c.note("connected again")
	}
	l.reached, l.lostSaid = true, false
}

func (l *link) down(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lostSaid {
		server := "the server"
		var call *callError
		if errors.As(err, &call) {
			server = call.target.server
		}
		l.c.note("connection to %s lost; trying again for %s", server, text.Duration(l.c.retry.limit))
	}
	l.lostSaid = true
}

func (l *link) everReached() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reached
}

// try returns the state of one stream's tries.
func (l *link) try() *try { return &try{link: l, start: time.Now()} }

type try struct {
	link  *link
	start time.Time // of this try
	since time.Time // of the outage; zero: none
	wait  time.Duration
}

// ok says that the server answered.
func (t *try) ok() {
	t.since = time.Time{}
	t.link.up()
}

// again waits before the next try. It returns err if trying again is of no
// use: the server said no, was never reached, or has been away too long.
func (t *try) again(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !transient(err) || !t.link.everReached() {
		return err
	}
	conf := t.link.c.retry
	// A stream that stayed open without a message was a connection too.
	if t.since.IsZero() || time.Since(t.start) > 2*conf.most {
		t.since, t.wait = time.Now(), conf.first
	}
	if time.Since(t.since) > conf.limit {
		return err
	}
	t.link.down(err)
	return t.sleep(ctx)
}

// errNotOver stands for a stream that ended in order while there is more to
// come: a server that stops ends its streams, too.
var errNotOver = errors.New("the stream ended early")

// pause is again, but takes errNotOver for no outage.
func (t *try) pause(ctx context.Context, err error) error {
	if err != errNotOver {
		return t.again(ctx, err)
	}
	t.wait = max(t.wait, t.link.c.retry.first)
	return t.sleep(ctx)
}

// sleep waits for about t.wait and doubles it for the next time.
func (t *try) sleep(ctx context.Context) error {
	timer := time.NewTimer(t.wait/2 + rand.N(t.wait/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	t.wait = min(2*t.wait, t.link.c.retry.most)
	t.start = time.Now()
	return nil
}

// transient tells whether an error may go away by itself: the server could
// not be reached, went away in the middle, or is on its way down or up.
func transient(err error) bool {
	var e *connect.Error
	if !errors.As(err, &e) {
		return false
	}
	if connect.IsWireError(e) {
		return e.Code() == connect.CodeUnavailable || e.Code() == connect.CodeCanceled
	}
	switch e.Code() {
	case connect.CodeUnavailable, connect.CodeInternal, connect.CodeUnknown, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return true
	}
	return false
}

// dialFailed tells whether no connection was made.
func dialFailed(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// watchJob calls fn with the job as it is now and after every change, replicas
// included, until fn says it is done. It survives restarts of the server.
func watchJob(ctx context.Context, a *api, l *link, id string, fn func(*jobsv1.Job) (done bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const method = "/yunhe.jobs.v1.JobService/WatchJobs"
	errDone := errors.New("done")
	seen := int64(-1)
	t := l.try()
	for {
		s, err := a.jobs.WatchJobs(ctx, &jobsv1.WatchJobsRequest{JobId: id})
		err = stream(a, method, s, err, func(m *jobsv1.WatchJobsResponse) error {
			t.ok()
			job := m.GetJob()
			if job.GetVersion() != 0 && job.GetVersion() <= seen {
				return nil // an older state than GetJob has answered
			}
			// Events may leave the replicas out; the answer to GetJob has them.
			if len(job.GetReplicas()) == 0 && job.GetReplicasTotal() > 0 {
				full, err := a.jobs.GetJob(ctx, &jobsv1.GetJobRequest{JobId: id})
				if err != nil {
					return err
				}
				job = full
			}
			seen = job.GetVersion()
			done, err := fn(job)
			if err == nil && done {
				err = errDone
			}
			return err
		})
		switch {
		case err == errDone:
			return nil
		case err == nil:
			// The server ended the stream in order: it is stopping.
			err = &callError{a.target, method, connect.NewError(connect.CodeUnavailable, errors.New("the server ended the stream"))}
		}
		if err := t.again(ctx, err); err != nil {
			return err
		}
	}
}
