package policies

import (
	"context"
	"errors"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/sim"
)

// Limits of simulations that someone waits for.
const (
	simulated    = 200 // jobs
	maxSimulated = 1000
	maxMoves     = 100
	simulateFor  = 60 * time.Second
)

// Simulation is what the latest jobs would come to. Its pieces are what starts
// together: a gang, else a replica.
type Simulation struct {
	Jobs, Matched, Pieces, Moved, Gained, Lost int
	Present, With                              Figures
	PresentCenters, WithCenters                map[string]int
	Moves                                      []Move // at most maxMoves
}

// Figures are what all pieces come to.
type Figures struct {
	CostFen                 int64
	EnergyJoules            float64
	EnergyPieces            int     // that started where power is stated
	MeanWaiting, P95Waiting float64 // seconds
	NotStarted              int
}

// Move is a piece that would start elsewhere; no center: it would not start.
type Move struct {
	JobID, From, To string
	Now, Then       float64 // seconds it waits
}

// Simulate plays the latest jobs on the centers as they are, by the policies in
// force and as if x were issued. It returns fault.Invalid, fault.NotFound, and
// fault.Exhausted if it takes too long. A process plays one at a time.
func (s *Service) Simulate(ctx context.Context, x Subject, jobs int) (out Simulation, err error) {
	var k core.Check
	if k.Range("jobs", int64(jobs), 0, maxSimulated); k.Err() != nil {
		return out, k.Err()
	}
	if jobs == 0 {
		jobs = simulated
	}
	c, err := s.candidate(ctx, &x)
	if err != nil {
		return out, err
	}
	end, err := s.await(ctx)
	if err != nil {
		return out, err
	}
	defer end()
	rec, err := s.Record(ctx, time.Unix(0, 0), jobs)
	if err != nil {
		return out, err
	}
	out.PresentCenters, out.WithCenters = map[string]int{}, map[string]int{}
	if len(rec.Jobs) > 0 {
		if err := s.compare(ctx, rec, c, &out); err != nil {
			return out, err
		}
	}
	if x.ID != "" {
		err = s.checkedAs(ctx, x.ID, x.Version, Simulated, "simulation", "simulated")
	}
	return out, err
}

// await waits until no other simulation runs here.
func (s *Service) await(ctx context.Context) (end func(), err error) {
	wait, cancel := context.WithTimeout(ctx, simulateFor)
	defer cancel()
	select {
	case s.playing <- struct{}{}:
		return func() { <-s.playing }, nil
	case <-wait.Done():
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fault.New(fault.Exhausted, "other simulations have run for %s; try again, or start one that nobody waits for (yunhe simulation start)", simulateFor)
	}
}

// started is where and when a piece first started.
type started struct {
	center string
	at     int64
}

func (s *Service) compare(ctx context.Context, rec *Recorded, c *candidate, out *Simulation) error {
	set, err := rec.Recorded.Set()
	if err != nil {
		return err
	}
	now, err := s.Bench(ctx, nil)
	if err != nil {
		return err
	}
	run, cancel := context.WithTimeout(ctx, simulateFor)
	defer cancel()
	a, before, err := rec.play(run, now.Policy(run, "now", set, rec.Recorded.Start))
	if err != nil {
		return err
	}
	b, after, err := rec.play(run, newBench(c.book, s.tags.PlacementFacts).Policy(run, "then", set, rec.Recorded.Start))
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range rec.Jobs {
		j := &rec.Jobs[i]
		if id := j.Work.ID; !seen[id] {
			seen[id] = true
			it := scheduler.Item{Work: *j.Work, User: j.User, Labels: j.Labels, Weights: j.Weights}
			c.seen[id] = *j.Work
			if ok, _ := c.matches(ctx, &it, s); ok {
				out.Matched++
			}
		}
		out.piece(j, before[i], after[i])
	}
	out.Jobs, out.Pieces = len(seen), len(rec.Jobs)
	out.Present, out.With = rec.figures(a, before), rec.figures(b, after)
	return nil
}

// play plays a recording, and says where each job started first.
func (r *Recorded) play(ctx context.Context, p sim.Policy) (*sim.Result, []started, error) {
	first := make([]started, len(r.Jobs))
	q, err := sim.ParseQueue(r.Recorded.Queue)
	if err != nil {
		return nil, nil, err
	}
	res, err := sim.Run(r.Input, sim.Config{Policy: p, Queue: q, Seed: 1, Watch: func(int64, *sim.Result) error { return ctx.Err() }, Log: func(e sim.Event) {
		if e.What == sim.Starts && first[e.Job].center == "" {
			first[e.Job] = started{r.Centers[e.Spots[0].At].ID, e.At}
		}
	}})
	if res != nil && res.Partial || err != nil && ctx.Err() != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, nil, fault.New(fault.Exhausted, "the simulation takes longer than %s; simulate fewer jobs, or start one that nobody waits for (yunhe simulation start)", simulateFor)
		}
		return nil, nil, ctx.Err()
	}
	return res, first, err
}

func (r *Recorded) figures(res *sim.Result, first []started) Figures {
	f := Figures{MeanWaiting: res.Waiting.Mean, P95Waiting: res.Waiting.P95}
	if res.CostFen != nil {
		f.CostFen = *res.CostFen
	}
	if res.WorkEnergy != nil {
		f.EnergyJoules = *res.WorkEnergy * 3_600_000
	}
	stated := map[string]bool{}
	for i := range r.Centers {
		stated[r.Centers[i].ID] = r.Centers[i].CoreBusy > 0
	}
	for _, x := range first {
		switch {
		case x.center == "":
			f.NotStarted++
		case stated[x.center]:
			f.EnergyPieces++
		}
	}
	return f
}

// piece compares where one starts.
func (s *Simulation) piece(j *sim.Job, a, b started) {
	if a.center != "" {
		s.PresentCenters[a.center]++
	}
	if b.center != "" {
		s.WithCenters[b.center]++
	}
	switch {
	case a.center == b.center:
		return
	case a.center == "":
		s.Gained++
	case b.center == "":
		s.Lost++
	default:
		s.Moved++
	}
	if len(s.Moves) < maxMoves {
		wait := func(x started) float64 {
			if x.center == "" {
				return 0
			}
			return float64(x.at-j.Arrival) / float64(sim.Second)
		}
		s.Moves = append(s.Moves, Move{j.Work.ID, a.center, b.center, wait(a), wait(b)})
	}
}
