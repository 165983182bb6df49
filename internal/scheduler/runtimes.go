package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/scheduler/forecast"
)

const (
	// learnFrom are the latest runs that are read at the start.
	learnFrom = 5000
	// learnEvery is how often runs that ended are read at most.
	learnEvery = 5 * time.Second
	// learnMost runs are kept in mind until they are read.
	learnMost = 5000
)

// Kin is by what runs are compared to tell how long they take.
type Kin struct {
	User, Name, Shape string
	LimitSeconds      int64 // runs are ended after that; 0: never
}

// EndedRun is a run that ended by itself.
type EndedRun struct {
	AttemptID, Tenant string
	Kin               Kin
	StatedSeconds     int64 // how long it was expected to run by its owner; 0: not stated
	Micros            int64 // from its placement to its end: how long it held its room
}

// runtimes tells how long work runs by what like it ran. It reads the latest runs
// when scheduling begins, and after that those the lineup saw end; in a process
// that does not schedule it knows nothing.
type runtimes struct {
	mu    sync.Mutex // guards the fields below; held in no I/O
	model *forecast.Model
	ended []string // attempts to be read
	at    time.Time
}

// note keeps in mind that an attempt ended.
func (r *runtimes) note(attempt string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.model != nil && len(r.ended) < learnMost {
		r.ended = append(r.ended, attempt)
	}
}

// due returns what is to be read: the latest runs if first, else those named.
func (r *runtimes) due(now time.Time) (ids []string, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.model == nil {
		return nil, true
	}
	if len(r.ended) == 0 || now.Sub(r.at) < learnEvery {
		return nil, false
	}
	ids, r.ended, r.at = r.ended, nil, now
	return ids, false
}

// learn shows the model what ended since the last time. That it cannot be read
// does not keep work from being scheduled.
func (s *Service) learn(ctx context.Context) {
	now := s.db.Now()
	ids, first := s.runs.due(now)
	if len(ids) == 0 && !first {
		return
	}
	runs, err := s.src.EndedRuns(ctx, ids, learnFrom)
	if err != nil {
		s.log.Warn("how long runs took was not read", "error", err)
		return
	}
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	if s.runs.model == nil {
		s.runs.model, s.runs.at = &forecast.Model{}, now
	}
	for i := range runs {
		r := &runs[i]
		s.runs.model.Observe(r.Kin.work(r.Tenant, r.StatedSeconds), r.Micros)
	}
}

func (k *Kin) work(tenant string, stated int64) *forecast.Work {
	return &forecast.Work{Tenant: tenant, User: k.User, Name: k.Name, Shape: k.Shape, Stated: stated * 1e6, Limit: k.LimitSeconds * 1e6}
}

// tell forecasts a run; false: nothing is known but what is stated.
func (r *runtimes) tell(tenant string, k *Kin, stated int64) (forecast.Estimate, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.model == nil {
		return forecast.Estimate{}, false
	}
	e := r.model.Run(k.work(tenant, stated))
	return e, e.Basis != forecast.NoBasis
}

// expected is how long the queue is told that work runs, microseconds; 0: nobody
// knows. It is the upper estimate: promises rest on it.
func (r *runtimes) expected(tenant string, k *Kin, stated int64) int64 {
	if e, ok := r.tell(tenant, k, stated); ok {
		return min(e.High, maxRun)
	}
	return stated * 1e6
}

// maxRun that the queue is told of: ten years.
const maxRun = 10 * 365 * 24 * 3600 * 1_000_000

// likeness are bases of a forecast, in words.
var likeness = map[forecast.Basis]string{
	forecast.OfName: "runs of the same name, user and request", forecast.OfUser: "runs of the same user and request", forecast.OfOwner: "runs of the same user", forecast.OfLast: "runs of the same user",
	forecast.OfTenant: "runs of the same tenant and request", forecast.OfShape: "runs of the same request", forecast.OfAll: "all runs",
	forecast.OfHabit: "runs of the same user, as a part of what was stated", forecast.OfHabits: "all runs, as a part of what was stated",
}

// forecast says how long the runs of a job that waits will take, and what that
// rests on; false: nobody knows.
func (s *Service) forecast(it *Item) (e forecast.Estimate, basis string, ok bool) {
	if e, ok = s.runs.tell(it.Work.Tenant, &it.Kin, it.RunSeconds); !ok {
		e = forecast.Estimate{Median: it.RunSeconds * 1e6, High: it.RunSeconds * 1e6, Basis: forecast.Stated}
	}
	basis = "what is stated"
	if text, learned := likeness[e.Basis]; learned {
		basis = fmt.Sprintf("the last %d %s", e.Samples, text)
	}
	return e, basis, e.Median > 0
}
