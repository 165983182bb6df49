package agent

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/logs"
	"yunhe.dev/yunhe/internal/release"
)

const (
	tellWait = 5 * time.Second
	tellSoon = 300 * time.Millisecond // what is logged meanwhile goes along
	tellLate = 10 * time.Second
	// byeTime is how long a node that stops may take to send its last entries.
	byeTime = 2 * time.Second
)

// Operated is what of a node is configured.
type Operated interface {
	SetLimits(l pool.Limits)
	Parts() []pool.Part
	Replace(ctx context.Context, program string) error
	GivenBack() string
	Libraries() string
}

// Operate sends what a node logs and the state of its parts to the platform, and
// configures and upgrades it as that says, until ctx is done. programs is where
// the programs are that it is upgraded to.
func (m *Membership) Operate(ctx context.Context, client poolv1connect.PoolOperationServiceClient, version string, n Operated, s *Spool, programs release.Folder) {
	o := &operator{m: m, client: client, version: version, node: n, spool: s, programs: programs, reached: make(chan struct{}), say: make(chan struct{}, 1), stop: func() {}}
	o.self, _ = release.Self() // if it cannot be read, the platform hears of no program
	o.begin(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { // says what came of an upgrade
		for {
			select {
			case <-ctx.Done():
				return
			case <-o.say:
				for o.tell(ctx, nil, 0) != nil && ctx.Err() == nil {
					pause(ctx, time.Second)
				}
			}
		}
	})
	loops.Go(func() { // waits at the platform for what is to change
		late := time.Second
		for ctx.Err() == nil {
			if o.tell(ctx, nil, tellWait) == nil {
				o.once.Do(func() { close(o.reached) })
				o.heed(ctx)
				late = time.Second
				continue
			}
			pause(ctx, late)
			late = min(2*late, tellLate)
		}
	})
	loops.Go(func() {
		for {
			select {
			case <-ctx.Done():
				bye, done := context.WithTimeout(context.WithoutCancel(ctx), byeTime)
				defer done()
				for o.send(bye) {
				}
				return
			case <-s.added:
			}
			if pause(ctx, tellSoon); !o.send(ctx) && ctx.Err() == nil && len(s.next()) > 0 {
				pause(ctx, time.Second)
				s.wake()
			}
		}
	})
	loops.Wait()
	o.stop()
	o.work.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

type operator struct {
	m       *Membership
	client  poolv1connect.PoolOperationServiceClient
	version string
	node    Operated
	spool   *Spool

	self     string // the SHA-256 of the program it is; "": unknown
	programs release.Folder
	reached  chan struct{} // closed when the platform has answered
	once     sync.Once
	say      chan struct{} // what came of an upgrade is to be told
	work     sync.WaitGroup
	stop     context.CancelFunc // the upgrade under way

	mu             sync.Mutex // guards what follows
	generation     int64
	attempt        int64 // to upgrade it
	attemptProblem string
	wanted         *poolv1.PoolRelease // nil: it is begun
}

// send sends what waits, and reports whether it did.
func (o *operator) send(ctx context.Context) bool {
	list := o.spool.next()
	if len(list) == 0 || o.tell(ctx, list, 0) != nil {
		return false
	}
	o.spool.sent(list[len(list)-1].Sequence)
	return true
}

// tell calls the platform once. What goes wrong is not logged: it would be one
// entry more to send, each time.
func (o *operator) tell(ctx context.Context, list []entry, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait+10*time.Second)
	defer cancel()
	o.mu.Lock()
	r := &poolv1.TellNodeRequest{NodeId: o.m.Node, Secret: o.m.Secret, Generation: o.generation, Program: o.self, Attempt: o.attempt, AttemptProblem: line(o.attemptProblem, 400), WaitMs: wait.Milliseconds(), Components: []*poolv1.PoolComponent{{Kind: poolv1.PoolComponent_KIND_NODE, Version: o.version, Running: 1}}}
	o.mu.Unlock()
	for _, p := range o.node.Parts() {
		kind := poolv1.PoolComponent_KIND_WORKER
		if p.Name == "library" {
			kind = poolv1.PoolComponent_KIND_LIBRARY
		}
		r.Components = append(r.Components, &poolv1.PoolComponent{Kind: kind, Version: p.Version, Running: int64(p.Running)})
	}
	for _, e := range list {
		r.Entries = append(r.Entries, &poolv1.TellNodeRequest_Entry{Sequence: e.Sequence, At: timestamppb.New(e.At), Level: levelOut(e.Level), Message: first(e.Message, logs.MostMessage), DeviceId: line(e.Device, 64),
			SliceId: line(e.Slice, 64), Details: first(e.Details, logs.MostDetails)})
	}
	res, err := o.client.TellNode(ctx, r)
	if err != nil {
		return err
	}
	o.take(res)
	return nil
}

// heed begins the upgrade that the platform wants, and ends one before it.
func (o *operator) heed(ctx context.Context) {
	o.mu.Lock()
	to, attempt := o.wanted, o.attempt
	o.wanted = nil
	o.mu.Unlock()
	if to == nil {
		return
	}
	o.stop()
	o.work.Wait()
	ctx, o.stop = context.WithCancel(ctx)
	o.work.Go(func() { o.upgrade(ctx, to, attempt) })
}

// unavailable says whether a call may be made again.
func unavailable(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded || code == connect.CodeAborted
}

// first is what the platform takes of a text. It refuses all that comes with one that is
// longer, or not of its characters: what drivers say may be anything.
func first(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if utf8.RuneCountInString(s) > n {
		return string([]rune(s)[:n])
	}
	return s
}

// line is first of what is one line.
func line(s string, n int) string {
	return first(strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)), n)
}

func levelOut(l slog.Level) poolv1.LogLevel {
	switch {
	case l < slog.LevelInfo:
		return poolv1.LogLevel_LOG_LEVEL_DEBUG
	case l < slog.LevelWarn:
		return poolv1.LogLevel_LOG_LEVEL_INFO
	case l < slog.LevelError:
		return poolv1.LogLevel_LOG_LEVEL_WARN
	}
	return poolv1.LogLevel_LOG_LEVEL_ERROR
}

var slogLevels = map[poolv1.LogLevel]slog.Level{poolv1.LogLevel_LOG_LEVEL_DEBUG: slog.LevelDebug, poolv1.LogLevel_LOG_LEVEL_WARN: slog.LevelWarn, poolv1.LogLevel_LOG_LEVEL_ERROR: slog.LevelError}

// take configures the node. Answers may come in another order than they were made.
func (o *operator) take(r *poolv1.TellNodeResponse) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Release != nil && r.Attempt > o.attempt && o.self != "" {
		o.attempt, o.attemptProblem, o.wanted = r.Attempt, "", r.Release
	}
	if r.Generation <= o.generation {
		return
	}
	o.generation = r.Generation
	c := r.Config
	o.spool.level.Set(slogLevels[c.GetLogLevel()]) // info, if it says nothing
	o.node.SetLimits(pool.Limits{Idle: time.Duration(c.GetIdleLimitSeconds()) * time.Second, Run: time.Duration(c.GetRunLimitSeconds()) * time.Second})
}
