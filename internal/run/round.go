package run

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// patience is how long a round may take beside the rest after it, and for how
	// long all of them may fail: far longer than any that was seen, and than a
	// database that does not answer is waited for.
	patience = 2 * time.Minute
	// enough rounds in a row have failed.
	enough = 3
)

// rounds watches a loop: whether it begins a round again and again or stands
// still, and whether they do anything.
type rounds struct {
	name string
	e    *Elector
	stop chan string // why the loop is to end

	mu     sync.Mutex // guards the fields below
	rest   time.Duration
	timer  *time.Timer // nil before the first round and at the end
	failed bool        // this round
	since  time.Time   // all rounds have failed; zero: the last one did not
	times  int         // in a row
	err    error       // of the last one that failed
}

func (e *Elector) watchRounds(name string) *rounds {
	r := &rounds{name: name, e: e, stop: make(chan string, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running[name] = r
	return r
}

// Begun takes in that a round has begun, with a rest after it.
func (r *rounds) Begun(rest time.Duration) {
	r.e.begun.WithLabelValues(r.name).SetToCurrentTime()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed {
		r.since, r.times, r.err = time.Time{}, 0, nil
		r.e.failing.WithLabelValues(r.name).Set(0)
	}
	r.failed, r.rest = false, rest
	r.wind()
}

// GetsOn takes in that a round gets on.
func (r *rounds) GetsOn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wind()
}

// wind lets the round have its time from now on.
func (r *rounds) wind() {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(r.rest+patience, func() { r.end("stands still") })
}

// Failed takes in that the round that has begun failed.
func (r *rounds) Failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed {
		r.times++
	}
	if r.since.IsZero() {
		r.since = time.Now()
	}
	r.failed, r.err = true, err
	r.e.failing.WithLabelValues(r.name).Set(float64(r.since.Unix()))
	if r.times >= enough && time.Since(r.since) >= patience {
		r.end("fails again and again")
	}
}

func (r *rounds) end(why string) {
	select {
	case r.stop <- why:
	default:
	}
}

// close ends watching.
func (r *rounds) close() {
	r.e.mu.Lock()
	delete(r.e.running, r.name)
	r.e.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.e.failing.WithLabelValues(r.name).Set(0)
}

// Failure is that the last rounds of a loop all failed.
type Failure struct {
	Loop  string
	Since time.Time
	Times int
	Err   error // of the last one
}

// String is for people.
func (f Failure) String() string {
	return fmt.Sprintf("%s has failed %d times since %s: %s", f.Loop, f.Times, f.Since.UTC().Format(time.RFC3339), f.Err)
}

// Failing returns the loops of this process of which enough rounds in a row have
// failed to say so, in the order of their names.
func (e *Elector) Failing() []Failure {
	e.mu.Lock()
	running := make([]*rounds, 0, len(e.running))
	for _, r := range e.running {
		running = append(running, r)
	}
	e.mu.Unlock()
	slices.SortFunc(running, func(a, b *rounds) int { return cmp.Compare(a.name, b.name) })
	var list []Failure
	for _, r := range running {
		r.mu.Lock()
		if r.times >= enough {
			list = append(list, Failure{r.name, r.since, r.times, r.err})
		}
		r.mu.Unlock()
	}
	return list
}
