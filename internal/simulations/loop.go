package simulations

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/sim"
	"yunhe.dev/yunhe/internal/sim/report"
)

const (
	// lookEvery repairs what signals missed.
	lookEvery = 10 * time.Second
	// tellEvery is how often progress is written, and looked whether it shall end.
	tellEvery = time.Second
)

// Run plays simulations until ctx ends. One process at a time runs it.
func (s *Service) Run(ctx context.Context) error {
	if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("objects of deleted simulations not looked for", "error", err)
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	told := s.feed.Watch() // what other processes store
	defer told.Close()
	recovered := false // nothing counts as running, for nothing does
	for {
		core.Round(ctx, lookEvery)
		var more bool
		var err error
		if !recovered {
			err = s.recover(ctx)
		}
		if err == nil {
			more, err = s.next(ctx)
		}
		recovered = err == nil
		if err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("simulation not played, will try again", "error", err)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-told.Changed:
			told.Take()
		case <-tick.C:
		}
	}
}

// recover has what ran when the platform stopped, or when its end could not be
// stored, played again.
func (s *Service) recover(ctx context.Context) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		rows, err := read(ctx, tx, `WHERE state = $1 ORDER BY simulation_id`, int64(Running))
		if err != nil {
			return err
		}
		for _, x := range rows {
			x.State, x.Progress = Waiting, 0
			if x.CancelAsked {
				x.State, x.EndedAt = Canceled, tx.Now
			} else if x.Runs >= maxRuns {
				x.State, x.EndedAt, x.Message = Interrupted, tx.Now, fmt.Sprintf("the platform stopped %d times while it ran", maxRuns)
			}
			if err := save(ctx, tx, x); err != nil {
				return err
			}
		}
		return nil
	})
}

// next plays the oldest simulation that waits; false: none does.
func (s *Service) next(ctx context.Context) (bool, error) {
	var x *Simulation
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		x = nil
		rows, err := read(ctx, tx, `WHERE state = $1 ORDER BY created_at, simulation_id LIMIT 1`, int64(Waiting))
		if err != nil || len(rows) == 0 {
			return err
		}
		x = rows[0]
		x.State, x.Runs = Running, x.Runs+1
		if x.StartedAt.IsZero() {
			x.StartedAt = tx.Now
		}
		return save(ctx, tx, x)
	})
	if err != nil || x == nil {
		return false, err
	}
	begin := time.Now()
	p := &play{s: s, x: x}
	err = p.run(ctx)
	if ctx.Err() != nil {
		return false, nil // it is played again
	}
	if err := s.finish(ctx, p, err); err != nil {
		return false, err
	}
	s.log.Info("simulation ended", "simulation_id", x.ID, "state", int64(x.State), "seconds", time.Since(begin).Seconds())
	return true, nil
}

// Why a simulation is stopped.
var (
	errCanceled = errors.New("canceled")
	errTooLong  = fault.New(fault.Exhausted, "it took longer than %s; play fewer jobs or compare less", MaxTime)
)

// finish stores how a simulation ended.
func (s *Service) finish(ctx context.Context, p *play, err error) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		rows, e := read(ctx, tx, `WHERE simulation_id = $1`, p.x.ID)
		if e != nil || len(rows) == 0 {
			return e
		}
		x := rows[0]
		switch x.EndedAt = tx.Now; {
		case err == nil:
			x.State, x.Progress = Done, 1000
		case errors.Is(err, errCanceled):
			x.State = Canceled
		default:
			x.State, x.Message = Failed, "internal error; see the platform's log"
			if fault.KindOf(err) != fault.Internal {
				x.Message = err.Error()
			} else {
				s.log.Error("simulation failed", "simulation_id", x.ID, "error", err)
			}
		}
		if x.Measures = p.measures; x.Measures == nil {
			x.Measures = []Measure{}
		}
		*p.x = *x
		return save(ctx, tx, p.x)
	})
}

// play is a simulation being played.
type play struct {
	s        *Service
	x        *Simulation
	in       *sim.Input
	measures []Measure
	begin    time.Time
	since    time.Time // when the result being played was begun
	first    int64     // arrival of all
	told     time.Time
	done     int // results
	calls    int
}

func (p *play) run(ctx context.Context) error {
	x := &p.x.Spec
	p.begin = time.Now()
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{"nodes", &x.Nodes}, {"jobs", &x.JobsFile}} {
		data, err := p.s.get(ctx, key(p.x.ID, f.name))
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return err
		}
		*f.to = data
	}
	var err error
	if p.in, err = x.input(); err != nil {
		return err
	}
	x.Nodes, x.JobsFile = nil, nil
	p.first = slices.MinFunc(p.in.Jobs, func(a, b sim.Job) int { return cmp.Compare(a.Arrival, b.Arrival) }).Arrival
	var results []*sim.Result
	stopped := error(nil)
	for _, c := range x.Policies {
		for _, q := range x.Queues {
			r, err := p.play(ctx, &c, q, p.x.Spec.Names[p.done])
			if r == nil && err != nil && !errors.Is(err, errCanceled) && !errors.Is(err, errTooLong) {
				return fmt.Errorf("%s: %w", p.x.Spec.Names[p.done], err)
			}
			if r != nil {
				results = append(results, r)
				p.done++
			}
			if stopped = err; stopped != nil {
				break
			}
		}
		if stopped != nil {
			break
		}
	}
	if len(results) == 0 {
		return stopped
	}
	summary := sim.Summarize(p.in)
	summary.Made = x.Recipe
	if err := p.keep(ctx, sim.Compare(summary, results, x.Baseline)); err != nil {
		return err
	}
	return stopped
}

// keep stores the report.
func (p *play) keep(ctx context.Context, c *sim.Comparison) error {
	p.measures = measures(c)
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if err := p.s.put(ctx, key(p.x.ID, "report.json"), data); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := report.HTML(&page, c); err != nil {
		return err
	}
	return p.s.put(ctx, key(p.x.ID, "report.html"), page.Bytes())
}

// play plays one policy with one queue. A result beside an error is of what
// was played until then.
func (p *play) play(ctx context.Context, c *Compare, queueText, name string) (*sim.Result, error) {
	q, err := sim.ParseQueue(queueText)
	if err != nil {
		return nil, err
	}
	policy, bench, err := p.s.policy(ctx, &p.x.Spec, c, p.in)
	if err != nil {
		return nil, err
	}
	if bench != nil {
		defer bench.Close()
	}
	ctx, cancel := context.WithDeadline(ctx, p.begin.Add(MaxTime))
	defer cancel()
	log := &eventLog{in: p.in, waits: map[int]bool{}}
	var stop error
	cfg := sim.Config{Policy: policy, Queue: q, Seed: p.x.Spec.Seed, Log: log.event, Watch: func(now int64, r *sim.Result) error {
		stop = p.watch(ctx, now, r)
		return stop
	}}
	if len(p.in.Centers) > 0 {
		cfg.Decided = log.decided
	}
	p.since = time.Now()
	r, err := sim.Run(p.in, cfg)
	if err != nil {
		if stop = p.limit(ctx); stop != nil {
			err = stop
		}
		return nil, err
	}
	r.Name = name
	took := max(time.Since(p.since).Seconds(), 1e-6)
	r.Timing = &sim.Timing{Seconds: took, Events: float64(r.Events) / took, Decisions: float64(r.Decisions) / took}
	if err := p.s.put(context.WithoutCancel(ctx), key(p.x.ID, fmt.Sprintf("events-%d", p.done)), log.bytes()); err != nil {
		return nil, err
	}
	return r, stop
}

// limit says why a simulation must stop, nil if it need not.
func (p *play) limit(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errTooLong
	}
	return ctx.Err()
}

// watch lets time pass as fast as was asked for, writes progress and looks
// whether it shall end.
func (p *play) watch(ctx context.Context, now int64, r *sim.Result) error {
	speed := p.x.Spec.Speed
	if p.calls++; p.calls%64 != 0 && speed == 0 {
		return nil
	}
	for {
		if time.Since(p.told) >= tellEvery {
			p.told = time.Now()
			core.GetsOn(ctx)
			if err := p.tell(ctx, r); err != nil {
				return err
			}
		}
		if speed == 0 {
			return p.limit(ctx)
		}
		seconds := min(float64(now-p.first)/float64(sim.Second)/speed, 2*MaxTime.Seconds()) // it is over by then
		wait := time.Until(p.since.Add(time.Duration(seconds * float64(time.Second))))
		if wait <= 0 {
			return p.limit(ctx)
		}
		select {
		case <-ctx.Done():
			return p.limit(ctx)
		case <-time.After(min(wait, tellEvery)):
		}
	}
}

// tell writes progress; it returns errCanceled if the simulation shall end.
func (p *play) tell(ctx context.Context, r *sim.Result) error {
	all := int64(len(p.x.Spec.Names)) * int64(len(p.in.Jobs))
	ended := int64(p.done)*int64(len(p.in.Jobs)) + r.Jobs.Done + r.Jobs.Never
	canceled := false
	err := p.s.db.Tx(ctx, func(tx *db.Tx) error {
		rows, err := read(ctx, tx, `WHERE simulation_id = $1`, p.x.ID)
		if err != nil || len(rows) == 0 {
			return err
		}
		canceled = rows[0].CancelAsked
		n := min(1000*ended/all, 1000)
		if rows[0].Progress == n || canceled {
			return nil
		}
		rows[0].Progress = n
		return save(ctx, tx, rows[0])
	})
	if canceled {
		return errCanceled
	}
	if err != nil && ctx.Err() == nil {
		p.s.log.Warn("progress of a simulation not written", "simulation_id", p.x.ID, "error", err)
	}
	return nil
}

// eventLog keeps what happened, at most maxEvents and one more, which tells
// that there was more.
type eventLog struct {
	in     *sim.Input
	out    bytes.Buffer
	n      int
	tables int
	last   *place.Decision // made, of job
	job    int
	waits  map[int]bool // jobs of which it was said that they found no room
}

// decided keeps a table until the event that it led to; one that found no room
// is an event of its own, the first time.
func (l *eventLog) decided(at int64, job int, d *place.Decision) {
	if l.last, l.job = nil, job; l.tables >= maxTables {
		return
	}
	if d.Chosen != "" {
		l.last = d
		return
	}
	if l.waits[job] {
		return
	}
	l.waits[job] = true
	l.tables++
	l.add(&Event{At: at, What: "waits", Job: l.in.Jobs[job].ID, Decision: d})
}

func (l *eventLog) event(e sim.Event) {
	x := &Event{At: e.At, What: e.What.String()}
	if e.Job >= 0 {
		x.Job = l.in.Jobs[e.Job].ID
	}
	for _, s := range e.Spots {
		if x.Places == nil {
			x.Places = map[string]int{}
		}
		id := ""
		if len(l.in.Nodes) > 0 {
			id = l.in.Nodes[s.At].ID
		} else {
			id = l.in.Centers[s.At].ID
		}
		x.Places[id] += s.Replicas
	}
	delete(l.waits, e.Job)
	if (e.What == sim.Starts || e.What == sim.Grows) && l.last != nil && l.job == e.Job {
		l.tables++
		x.Decision, l.last = l.last, nil
	}
	l.add(x)
}

func (l *eventLog) add(e *Event) {
	if l.n++; l.n > maxEvents+1 {
		return
	}
	line, err := json.Marshal(e)
	if err != nil {
		return // events always marshal
	}
	l.out.Write(line)
	l.out.WriteByte('\n')
}

func (l *eventLog) bytes() []byte { return l.out.Bytes() }
