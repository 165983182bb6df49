package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// Kubernetes reads a log from its beginning or from a second, never from a
// byte, and its nodes drop the beginning of long ones. So a log is read with
// the times of its lines, which are taken out again, by a cursor that stays at
// its place while somebody reads: it counts bytes from the beginning, follows,
// and goes on after a cut by the time and number of the line it was in.
//
// A cursor that is not used is given up; the next begins again and passes over
// what was read. If meanwhile the node has dropped the beginning, which shows
// in the time of the first line (kept at the Job once a log is long), offsets
// before are gone: what is left goes on at the offset asked for, behind a line
// that says so.
//
// The kubelet loses lines itself: while it begins a new file, what is still
// written to the old one is not read by who follows, usually a few milliseconds' worth.
// Nothing in the log shows it, so nothing is said. Clusters whose logs matter to
// the line need files larger than a run's log (containerLogMaxSize).

const (
	window     = 1 << 20 // bytes a cursor holds
	behind     = 512 << 10
	maxRead    = 512 << 10
	inlineMax  = 8 << 10
	markAfter  = 1 << 20 // bytes from which a log may have been cut: nodes keep more
	idleAfter  = 30 * time.Second
	maxCursors = 128
	reopen     = 300 * time.Millisecond
)

// dropped stands in a log for what its node has thrown away.
const dropped = "[yunhe: the node has dropped what came before]\n"

// source is what a cursor reads from.
type source struct {
	io.ReadCloser
	final bool   // the command is over: at the end of this nothing more comes
	first string // time of the log's first line if that is known
}

// cursors are the logs being read.
type cursors struct {
	// open reads the log of an attempt from a time on (its beginning if zero).
	open func(ctx context.Context, id string, since time.Time, follow bool) (source, error)
	mark func(id, first string) // keeps the time of a long log's first line

	mu    sync.Mutex // guards what follows
	byID  map[string]*cursor
	ended bool
}

// cursor is one log being read.
type cursor struct {
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex // guards what follows
	changed chan struct{}
	base    int64 // offset of buf's first byte
	buf     []byte
	floor   int64 // what is before may be dropped
	end     bool  // all was read
	err     error // why there is no more for now
	used    time.Time
	readers int
}

// signal wakes who waits; c.mu is held.
func (c *cursor) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// get returns the cursor of an attempt that can serve an offset.
func (s *cursors) get(id string, offset int64) (*cursor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, context.Canceled
	}
	if c := s.byID[id]; c != nil {
		c.mu.Lock()
		ok := offset >= c.base && (c.err == nil || c.base+int64(len(c.buf)) > offset)
		if ok {
			c.readers++
			c.used, c.floor = time.Now(), offset
			c.signal()
		}
		c.mu.Unlock()
		if ok {
			return c, nil
		}
		c.stop()
		delete(s.byID, id)
	}
	if len(s.byID) >= maxCursors {
		s.evict()
	}
	ctx, stop := context.WithCancel(context.Background()) // ended by sweep, drop and close
	c := &cursor{stop: stop, done: make(chan struct{}), changed: make(chan struct{}), floor: offset, used: time.Now(), readers: 1}
	if s.byID == nil {
		s.byID = map[string]*cursor{}
	}
	s.byID[id] = c
	go func() {
		defer close(c.done)
		c.pump(ctx, s, id)
	}()
	return c, nil
}

// evict gives up the cursor that was not used for longest; s.mu is held.
func (s *cursors) evict() {
	var oldest string
	var at time.Time
	for id, c := range s.byID {
		c.mu.Lock()
		if c.readers == 0 && (oldest == "" || c.used.Before(at)) {
			oldest, at = id, c.used
		}
		c.mu.Unlock()
	}
	if c := s.byID[oldest]; c != nil {
		c.stop()
		delete(s.byID, oldest)
	}
}

// sweep gives up cursors nobody uses until ctx ends.
func (s *cursors) sweep(ctx context.Context) {
	tick := time.NewTicker(idleAfter / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.mu.Lock()
			for id, c := range s.byID {
				c.mu.Lock()
				idle := c.readers == 0 && now.Sub(c.used) > idleAfter
				c.mu.Unlock()
				if idle {
					c.stop()
					delete(s.byID, id)
				}
			}
			s.mu.Unlock()
		}
	}
}

// drop gives up an attempt's cursor.
func (s *cursors) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.byID[id]; c != nil {
		c.stop()
		delete(s.byID, id)
	}
}

// close gives up all and waits for them.
func (s *cursors) close() {
	s.mu.Lock()
	s.ended = true
	all := s.byID
	s.byID = nil
	s.mu.Unlock()
	for _, c := range all {
		c.stop()
		<-c.done
	}
}

// read returns bytes from offset, waiting for the first until ctx ends; if it is
// not patient, only for the node to answer. end says that nothing comes after
// them.
func (s *cursors) read(ctx context.Context, id string, offset, limit int64, patient bool) (data []byte, at int64, end bool, err error) {
	c, err := s.get(id, offset)
	if err != nil {
		return nil, offset, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		c.readers--
		c.used = time.Now()
	}()
	for {
		at = max(offset, c.base)
		last := c.base + int64(len(c.buf))
		if at < last {
			data = bytes.Clone(c.buf[at-c.base : min(at-c.base+limit, int64(len(c.buf)))])
			return data, at, c.end && at+int64(len(data)) == last, nil
		}
		if c.end {
			return nil, offset, true, nil
		}
		if c.err != nil {
			return nil, offset, false, c.err
		}
		if !patient && last > 0 && last >= offset {
			return nil, offset, false, nil // it has answered, and has no more
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		case <-c.done:
		}
		c.mu.Lock()
		if ctx.Err() != nil {
			return nil, offset, c.end && offset >= c.base+int64(len(c.buf)), nil
		}
	}
}

// place is where in a log a cursor is: in a line, known by its time and its
// number among those of that time, after so many of its bytes.
type place struct {
	time  time.Time
	nth   int
	bytes int

	// While it catches up after a cut: lines of that time that came by again,
	// and bytes of the present one.
	catching   bool
	seen, pass int
}

// restart prepares for the same lines to come again.
func (p *place) restart() { p.catching, p.seen, p.pass = p.nth > 0, 0, 0 }

// take returns what of a piece of a line is new. begins says that the line,
// written at that time, begins with it. lost: the place was not there again.
func (p *place) take(at time.Time, begins bool, text []byte) (news []byte, lost bool) {
	if p.catching && begins {
		switch {
		case at.Before(p.time):
		case at.Equal(p.time):
			p.seen, p.pass = p.seen+1, 0
		default:
			p.catching, lost = false, p.seen < p.nth
		}
		if p.seen > p.nth {
			p.catching = false
		}
	}
	if p.catching {
		if p.seen < p.nth {
			return nil, false
		}
		if p.pass += len(text); p.pass <= p.bytes {
			return nil, false
		}
		news = text[len(text)-(p.pass-p.bytes):]
		p.bytes, p.catching = p.pass, false
		return news, false
	}
	if begins {
		if !at.Equal(p.time) {
			p.time, p.nth = at, 0
		}
		p.nth, p.bytes = p.nth+1, 0
	}
	p.bytes += len(text)
	return text, lost
}

// lines calls f with the pieces of a log's lines, without the times before
// them, until it ends. A cut is no error.
func lines(r io.Reader, f func(at time.Time, begins bool, text []byte) error) error {
	b := bufio.NewReaderSize(r, 64<<10)
	begins, at := true, time.Time{}
	for {
		text, err := b.ReadSlice('\n')
		if len(text) > 0 {
			begun := begins
			begins = text[len(text)-1] == '\n'
			if begun {
				if stamp, rest, ok := bytes.Cut(text, []byte{' '}); ok {
					if t, terr := time.Parse(time.RFC3339Nano, string(stamp)); terr == nil {
						at, text = t, rest
					}
				}
			}
			if ferr := f(at, begun, text); ferr != nil {
				return ferr
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return errCut
		}
	}
}

var errCut = errors.New("the log was cut off")

// pump reads the log into the window until all was read, it cannot be opened,
// or ctx ends.
func (c *cursor) pump(ctx context.Context, s *cursors, id string) {
	var p place
	first, total, tries := "", int64(0), 0
	for ctx.Err() == nil {
		src, err := s.open(ctx, id, p.time, true)
		if tries++; errors.Is(err, errAway) && tries < awayTries {
			pause(ctx)
			continue
		}
		if err != nil {
			c.fail(err)
			return
		}
		tries = 0
		p.restart()
		err = lines(src, func(at time.Time, begins bool, text []byte) error {
			if first == "" {
				first = at.UTC().Format(time.RFC3339Nano)
				if src.first != "" && src.first != first {
					if err := c.skip(ctx); err != nil {
						return err
					}
				}
			}
			news, lost := p.take(at, begins, text)
			if lost {
				if err := c.put(ctx, []byte(dropped)); err != nil {
					return err
				}
			}
			before := total
			total += int64(len(news))
			if before <= markAfter && total > markAfter && src.first == "" && s.mark != nil {
				s.mark(id, first)
			}
			return c.put(ctx, news)
		})
		_ = src.Close() // read only
		if err == nil && src.final && first == "" && src.first != "" {
			err = c.skip(ctx) // the node began a new file after the last line
		}
		if err == nil && src.final {
			c.finish()
			return
		}
		pause(ctx) // cut, or the command has just ended
	}
	c.fail(context.Canceled)
}

// pause waits a little before a log is opened again.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(reopen):
	}
}

func (c *cursor) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.signal()
}

func (c *cursor) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = true
	c.signal()
}

// skip begins at the offset asked for: what was before is not there any more.
func (c *cursor) skip(ctx context.Context) error {
	c.mu.Lock()
	c.base = c.floor
	c.mu.Unlock()
	return c.put(ctx, []byte(dropped))
}

// put appends to the window; while that is full of what nobody has read it
// waits.
func (c *cursor) put(ctx context.Context, text []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if len(c.buf)+len(text) > window {
			// What was read stays a little, for who asks again.
			if n := min(max(c.floor-behind-c.base, 0), int64(len(c.buf))); n > 0 {
				c.buf = append(c.buf[:0], c.buf[n:]...)
				c.base += n
			}
		}
		if len(c.buf)+len(text) <= window {
			c.buf = append(c.buf, text...)
			c.signal()
			return nil
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// ReadLog reads a piece of an attempt's log.
func (d *Driver) ReadLog(ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
	if r.Offset < 0 || r.Limit < 0 || r.WaitMilliseconds < 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("offset, limit and wait_milliseconds must not be negative, got %d, %d and %d", r.Offset, r.Limit, r.WaitMilliseconds))
	}
	limit := min(r.Limit, maxRead)
	if limit == 0 {
		limit = maxRead
	}
	if err := d.wait(ctx, d.known); err != nil {
		return nil, err
	}
	// Without a wait it is still asked for what there is.
	wait, cancel := context.WithTimeout(ctx, max(time.Duration(r.WaitMilliseconds)*time.Millisecond, leastWait))
	defer cancel()
	st, err := d.begun(wait, r.AttemptId, r.WaitMilliseconds > 0)
	if err != nil {
		return nil, err
	}
	if err := given(ctx); err != nil {
		return nil, err
	}
	if st == nil || st.StartedAt == 0 {
		return &adapterv1.ReadLogResponse{Offset: r.Offset, End: st != nil && st.Phase == adapterv1.Phase_PHASE_ENDED}, nil
	}
	patient := r.WaitMilliseconds > 0 || st.Phase == adapterv1.Phase_PHASE_ENDED
	data, at, end, err := d.logs.read(wait, r.AttemptId, r.Offset, limit, patient)
	if err := given(ctx); err != nil && len(data) == 0 {
		return nil, err
	}
	if err != nil {
		if errors.Is(err, errNoLog) || errors.Is(err, errAway) && st.Phase == adapterv1.Phase_PHASE_ENDED {
			return &adapterv1.ReadLogResponse{Offset: r.Offset, End: st.Phase == adapterv1.Phase_PHASE_ENDED}, nil
		}
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return &adapterv1.ReadLogResponse{Data: data, Offset: at, End: end}, nil
}

// given is the error for a caller whose own time is over.
func given(ctx context.Context) error {
	switch ctx.Err() {
	case nil:
		return nil
	case context.Canceled:
		return connect.NewError(connect.CodeCanceled, ctx.Err())
	default:
		return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	}
}

// leastWait is for a node to answer at all.
const leastWait = 5 * time.Second

// begun waits until an attempt has begun or ended and returns its status, nil
// if ctx ends before that.
func (d *Driver) begun(ctx context.Context, id string, wait bool) (*adapterv1.Status, error) {
	d.mu.Lock()
	a := d.attempts[id]
	var st *adapterv1.Status
	if a != nil {
		if st = a.told; st == nil || !a.over { // its end may be about to be told
			st = decide(id, a.now()).status
		}
	}
	d.mu.Unlock()
	if a == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("attempt %q is not known at center %s", id, d.center))
	}
	if !wait || st.GetStartedAt() > 0 || st.GetPhase() == adapterv1.Phase_PHASE_ENDED {
		return st, nil
	}
	found := errors.New("found")
	err := d.statuses.Watch(ctx, func(set map[string]*adapterv1.Status, _ []string) error {
		if now := set[id]; now != nil {
			if st = now; st.StartedAt > 0 || st.Phase == adapterv1.Phase_PHASE_ENDED {
				return found
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, found) {
		return nil, err
	}
	return st, nil
}

// errAway says that the log is not there although its pod is: its node may be
// cutting it at this moment.
var errAway = errors.New("the node does not find the log")

// awayTries is how often a log that is away is asked for, reopen apart.
const awayTries = 10

// errNoLog says that there is no log and will be none.
var errNoLog = errors.New("there is no log")

// openLog reads an attempt's log from its node.
func (d *Driver) openLog(ctx context.Context, id string, since time.Time, follow bool) (source, error) {
	d.mu.Lock()
	a, c := d.attempts[id], d.clients
	if a == nil {
		d.mu.Unlock()
		return source{}, errNoLog
	}
	v := a.now()
	var out source
	if v.job != nil {
		out.first = v.job.log
	}
	d.mu.Unlock()
	if v.pod == nil || v.pod.gone {
		return source{}, errNoLog
	}
	out.final = v.pod.over()
	options := &corev1.PodLogOptions{Container: container, Follow: follow && !out.final, Timestamps: true}
	if !since.IsZero() {
		options.SinceTime = &metav1.Time{Time: since.Truncate(time.Second)}
	}
	stream, err := c.logs.CoreV1().Pods(d.cfg.Namespace).GetLogs(v.pod.name, options).Stream(ctx)
	switch {
	case err == nil:
		out.ReadCloser = stream
		return out, nil
	case apierrors.IsNotFound(err):
		return source{}, errAway
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return source{}, errors.New(explain(err, c.server, 0))
	default:
		return source{}, fmt.Errorf("node %s does not give the log of pod %s: %s", v.pod.node, v.pod.name, serverWords(err))
	}
}

// markLog keeps at the Job when its log begins: a longer log may lose that.
func (d *Driver) markLog(id, first string) {
	d.mu.Lock()
	a, c := d.attempts[id], d.clients
	d.mu.Unlock()
	if a == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout) // of its own: who reads may go
	defer cancel()
	if err := d.patch(ctx, c, objectName(d.center, id), map[string]any{noteLog: first}, nil); err != nil {
		d.log.Warn("beginning of log not noted", "attempt_id", id, "error", err)
	}
}

// sum puts into an ended attempt's status how long its log is, and the log if
// it is short. What cannot be read is said in the message. It returns an error
// if the log broke off: it may be whole the next time.
func (d *Driver) sum(ctx context.Context, id string, st *adapterv1.Status) error {
	var short bytes.Buffer
	src, err := d.openLog(ctx, id, time.Time{}, false)
	for tries := 1; errors.Is(err, errAway) && tries < awayTries/2; tries++ {
		pause(ctx)
		src, err = d.openLog(ctx, id, time.Time{}, false)
	}
	if err == nil {
		defer src.Close() // read only
		err = lines(src, func(_ time.Time, _ bool, text []byte) error {
			if st.LogBytes += int64(len(text)); st.LogBytes <= inlineMax {
				short.Write(text)
			}
			return nil
		})
	}
	switch {
	case errors.Is(err, errNoLog), errors.Is(err, errAway):
	case err != nil:
		d.log.Debug("log of ended attempt not read", "attempt_id", id, "error", err)
		st.LogBytes = 0
		if st.Message != "" {
			st.Message += "; "
		}
		st.Message += "its log cannot be read: " + err.Error()
	case st.LogBytes <= inlineMax && src.first == "":
		st.Log, st.LogInline = short.Bytes(), true
	}
	if errors.Is(err, errCut) {
		return err
	}
	return nil
}
