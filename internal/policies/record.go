package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/sim"
)

// MaxRecorded jobs are recorded at most.
const MaxRecorded = 20_000

// Recorded is what the platform has and did, ready to be played.
type Recorded struct {
	*sim.Input
	Open    int            // jobs that had not ended: how long they run is not what it will be
	LeftOut map[string]int // by why
}

// shortest is the run of a job that ended in no time, microseconds.
const shortest = 1000

// Record takes the centers as they are and the jobs the caller may see that were
// submitted since, or have not ended, at most limit. What other work holds is
// taken off what the centers have.
//
// A run is as long as it was, times the speed of where it was. Of work that runs
// it is what its owner expects, if that is more than it has run for; of work that
// never ran, what the engine assumes. Replicas of a job that need not start
// together are jobs of their own.
func (s *Service) Record(ctx context.Context, since time.Time, limit int) (*Recorded, error) {
	var c core.Check
	if c.Range("jobs", int64(limit), 1, MaxRecorded); c.Err() != nil {
		return nil, c.Err()
	}
	past, err := s.jobs.Past(ctx, since, limit)
	if err != nil {
		return nil, err
	}
	items := make([]scheduler.Item, len(past))
	for i := range past {
		items[i] = past[i].Item
	}
	scene, err := s.sched.Scene(ctx, items)
	if err != nil {
		return nil, err
	}
	out := &Recorded{Input: &sim.Input{}, LeftOut: map[string]int{}}
	now := s.db.Now()
	start := now
	if len(past) > 0 {
		start = past[0].Created
	}
	out.centers(scene, past)
	r := &recorder{Recorded: out, start: start, now: now, centers: map[string]*place.Candidate{}}
	for i := range scene.Snapshot.Candidates {
		k := &scene.Snapshot.Candidates[i]
		r.centers[k.ID] = k
	}
	for i := range past {
		r.job(&past[i], scene.Works[i])
	}
	q := sim.Queue{Config: scene.Queue}
	out.Recorded = &sim.Recording{At: now.UTC(), Start: start.UTC(), Queue: q.Text(), Weights: map[string]int64{}}
	for id, w := range scene.Weights {
		out.Recorded.Weights[id] = int64(w)
	}
	for _, t := range scene.Queue.Tenants {
		out.Tenants = append(out.Tenants, sim.Tenant{ID: t.Name, Parent: t.Parent, Weight: t.Weight, Guaranteed: mebibytes(t.Guaranteed), Borrowable: mebibytes(t.Borrowable), Limit: mebibytes(t.Limit)})
	}
	out.Recorded.Policies, err = s.inForce(ctx)
	return out, err
}

// mebibytes has memory in the unit of simulations.
func mebibytes(a map[string]int64) map[string]int64 {
	if a == nil {
		return nil
	}
	out := make(map[string]int64, len(a))
	for name, n := range a {
		if name == core.Memory {
			n >>= 20
		}
		out[name] = n
	}
	return out
}

// centers keeps of what there is what is free or held by the jobs recorded.
func (r *Recorded) centers(scene *scheduler.Scene, past []jobs.Past) {
	ours := map[string]core.Quantities{}
	for i := range past {
		for _, run := range past[i].Runs {
			if !run.EndedAt.IsZero() {
				continue
			}
			if ours[run.CenterID] == nil {
				ours[run.CenterID] = core.Quantities{}
			}
			for name, n := range run.Resources {
				ours[run.CenterID][name] += n
			}
		}
	}
	for _, k := range scene.Snapshot.Candidates {
		total := place.Amounts{}
		for name, n := range k.Total {
			total[name] = max(n-max(scene.Used[k.ID][name]-ours[k.ID][name], 0), 0)
		}
		k.Total, k.Free, k.RunningTasks, k.WaitingTasks = total, nil, 0, 0
		r.Centers = append(r.Centers, sim.RecordedCenter(k))
	}
	r.Links, r.Unmet = scene.Snapshot.Links, scene.Snapshot.Unmet
}

// recorder makes jobs of a simulation.
type recorder struct {
	*Recorded
	start, now time.Time
	centers    map[string]*place.Candidate
}

func (r *recorder) job(p *jobs.Past, w place.Work) {
	if len(w.Tasks) == 0 {
		r.LeftOut["ask for a specification that is gone"]++
		return
	}
	if !p.Ended {
		r.Open++
	}
	type replica struct{ task, index int }
	runs := map[replica]*jobs.PastRun{}
	for i := range p.Runs {
		runs[replica{p.Runs[i].Task, p.Runs[i].Replica}] = &p.Runs[i]
	}
	if w.Gang {
		var all []*jobs.PastRun
		for i := range p.Runs {
			all = append(all, &p.Runs[i])
		}
		r.add(p, w, p.Item.Work.ID, all)
		return
	}
	for k := range w.Tasks {
		for n := range w.Tasks[k].Replicas {
			one := w
			t := w.Tasks[k]
			t.Replicas, t.Indices = 1, nil
			one.Tasks = []place.Task{t}
			id := p.Item.Work.ID
			if len(w.Tasks) > 1 || t.Replicas != w.Tasks[k].Replicas {
				id = fmt.Sprintf("%s/%d/%d", id, k, n)
			}
			var mine []*jobs.PastRun
			if run := runs[replica{k, n}]; run != nil {
				mine = append(mine, run)
			} else if p.Ended {
				continue // it was stopped before it had a place
			}
			r.add(p, one, id, mine)
		}
	}
}

// add adds work that starts together, with what ran of it.
func (r *recorder) add(p *jobs.Past, w place.Work, id string, runs []*jobs.PastRun) {
	it := &p.Item
	j := sim.Job{ID: id, Tenant: it.Work.Tenant, Arrival: p.Created.Sub(r.start).Microseconds(), Priority: it.Work.Priority, Expected: it.RunSeconds * sim.Second,
		User: it.User, Labels: it.Labels, Weights: it.Weights, Preemptible: !it.NoPreemption}
	for _, t := range []struct {
		to *int64
		us int64
	}{{&j.NotBefore, it.NotBefore}, {&j.Deadline, it.Deadline}} {
		if t.us > 0 {
			*t.to = min(max(t.us-db.Micros(r.start), 0), sim.MaxTime) // nothing is played for longer
		}
	}
	if j.Run = r.run(w, runs); j.Run == 0 && p.Ended {
		r.LeftOut["ended without having run"]++
		return
	}
	if j.Run == 0 {
		j.Run = w.Tasks[0].RunSeconds.Value * sim.Second
	}
	w.ID, w.Tenant = it.Work.ID, it.Work.Tenant
	j.Recorded(w)
	r.Jobs = append(r.Jobs, j)
}

// run is how long work runs at reference speed, 0 if it never did.
func (r *recorder) run(w place.Work, runs []*jobs.PastRun) int64 {
	var from, to time.Time
	speed, open := int64(0), false
	for _, x := range runs {
		if x.StartedAt.IsZero() {
			continue
		}
		if from.IsZero() || x.StartedAt.Before(from) {
			from = x.StartedAt
		}
		if x.EndedAt.IsZero() {
			open = true
		} else if x.EndedAt.After(to) {
			to = x.EndedAt
		}
		v := int64(1000)
		if k := r.centers[x.CenterID]; k != nil {
			v = sim.SpeedOf(k, w.Tasks[0].Kind)
		}
		if speed == 0 || v < speed {
			speed = v
		}
	}
	if from.IsZero() {
		return 0
	}
	if open {
		to = r.now
	}
	n := max(to.Sub(from).Microseconds(), shortest) * speed / 1000
	if t := w.Tasks[0].RunSeconds; open && t.Known {
		n = max(n, t.Value*sim.Second)
	}
	return min(max(n, 1), sim.MaxTime)
}

// inForce writes the policies in force, each with its scope and what it
// includes, as documents that [NewBench] reads.
func (s *Service) inForce(ctx context.Context) ([]json.RawMessage, error) {
	b, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	var out []json.RawMessage
	seen := map[string]bool{}
	for _, e := range b.entries {
		d := e.base.Document
		d.Scope = e.scope
		out = append(out, json.RawMessage(toJSON(&shelved{Document: d, Version: e.base.version, Issued: true})))
		e.base.walk(func(c *compiled) {
			if c == e.base.compiled || seen[c.name()] {
				return
			}
			seen[c.name()] = true
			out = append(out, json.RawMessage(toJSON(&shelved{Document: c.Document, Version: c.version})))
		})
	}
	return out, nil
}
