package bench

import (
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

const second = int64(1_000_000) // the queue counts microseconds

// scheduler is the queue and one pool, as the platform joins them.
type scheduler struct {
	q    *queue.Queue
	c    *pack.Cluster
	asks map[string]*pack.Ask  // by shape
	gang map[string]*pack.Gang // by shape
	task map[string]pack.Task  // by shape
	want map[string]queue.Amounts
	runs map[string]run // by job
	keep bool           // remember where jobs run
	one  []queue.Hold
}

type run struct {
	shape string
	p     pack.Placement
}

// newScheduler has a pool and ten tenants with weights 1 to 10.
func newScheduler(n int, tasks []pack.Task, cfg queue.Config) (*scheduler, error) {
	fleet := nodes(n, false)
	c, err := pack.New(fleet, pack.BestFit, tasks, 1)
	if err != nil {
		return nil, err
	}
	for i := range 10 {
		cfg.Tenants = append(cfg.Tenants, queue.Tenant{Name: tenant(i), Weight: int64(i + 1)})
	}
	q, err := queue.New(cfg)
	if err != nil {
		return nil, err
	}
	all := queue.Amounts{}
	for i := range fleet {
		all["cpu"] += fleet[i].CPU
		all["memory"] += fleet[i].Memory
		all["card"] += int64(fleet[i].Cards) * pack.Whole
	}
	s := &scheduler{q: q, c: c, asks: map[string]*pack.Ask{}, gang: map[string]*pack.Gang{}, task: map[string]pack.Task{}, want: map[string]queue.Amounts{}, runs: map[string]run{}, one: make([]queue.Hold, 1)}
	if err := q.SetPlace("pool", all); err != nil {
		return nil, err
	}
	for i, t := range tasks {
		a, err := c.Prepare(t)
		if err != nil {
			return nil, err
		}
		s.asks[shape(i)], s.task[shape(i)], s.want[shape(i)] = a, t, amounts(t)
	}
	return s, nil
}

func tenant(i int) string { return fmt.Sprint("tenant-", i%10) }
func shape(i int) string  { return fmt.Sprint("shape-", i) }

func amounts(t pack.Task) queue.Amounts {
	return queue.Amounts{"cpu": t.CPU, "memory": t.Memory, "card": t.Demand()}
}

// cycle tries what waits until nothing more can start, and tells how many
// members did. It takes the time of every decision if m is not nil.
func (s *scheduler) cycle(now int64, m *meter) (placed int, err error) {
	if m != nil {
		m.on()
		defer m.off()
	}
	before := time.Now()
	r := s.q.Round(now)
	for {
		o, ok := r.Next()
		if !ok {
			return placed, nil
		}
		n := max(o.Work.Min, 1)
		var p pack.Placement
		switch {
		case r.Constrained() && r.Allows("pool", n) < n:
			ok = false
		case n > 1:
			_, ok = s.c.PutGang(s.gang[o.Work.Shape])
		default:
			p, ok = s.c.Put(s.asks[o.Work.Shape])
		}
		if ok {
			placed += n
			if s.keep {
				s.runs[o.Work.ID] = run{o.Work.Shape, p}
			}
			s.one[0] = queue.Hold{Place: "pool", Members: n}
			if err := r.Start(s.one); err != nil {
				return placed, err
			}
		} else {
			r.Refuse("no node has room", nil)
		}
		if m != nil {
			t := time.Now()
			m.add(t.Sub(before))
			before = t
		}
	}
}

// pool fills an empty fleet in one cycle.
func pool(r *Row, m *meter) error {
	tasks := asks(24)
	s, err := newScheduler(r.Candidates, tasks, queue.Config{})
	if err != nil {
		return err
	}
	d := dice(5)
	for i := range r.Jobs {
		k := d.IntN(len(tasks))
		if err := s.q.Put(queue.Work{ID: fmt.Sprintf("job-%06d", i), Tenant: tenant(i), Arrival: int64(i), Shape: shape(k), Amounts: s.want[shape(k)], Run: 600 * second}); err != nil {
			return err
		}
	}
	r.P99Of = "decision"
	r.Placed, err = s.cycle(second, m)
	return err
}

// gangs fills an empty fleet with gangs of 8 whole cards, each within one cluster.
func gangs(r *Row, m *meter) error {
	tasks := asks(8)
	for i := range tasks { // so that 4,000 gangs of 8 fill 8,000 cards
		tasks[i].Share = pack.Whole / 4
	}
	s, err := newScheduler(r.Candidates, tasks, queue.Config{})
	if err != nil {
		return err
	}
	for i, t := range tasks {
		members := make([]pack.Task, 8)
		for k := range members {
			members[k] = t
		}
		if s.gang[shape(i)], err = s.c.PrepareGang(members, "cluster"); err != nil {
			return err
		}
	}
	d := dice(6)
	for i := range r.Jobs {
		k := d.IntN(len(tasks))
		if err := s.q.Put(queue.Work{ID: fmt.Sprintf("gang-%06d", i), Tenant: tenant(i), Arrival: int64(i), Shape: shape(k), Amounts: s.want[shape(k)], Min: 8, OnePlace: true, Run: 600 * second}); err != nil {
			return err
		}
	}
	r.P99Of = "decision"
	r.Placed, err = s.cycle(second, m)
	return err
}

// million keeps a full fleet busy for a minute while a million jobs wait: in
// each cycle, a second apart, 1,000 jobs end and 1,000 come. A cycle's time has
// all of that in it.
func million(r *Row, m *meter) error {
	tasks := asks(24)
	s, err := newScheduler(r.Candidates, tasks, queue.Config{HalfLife: 3600 * second})
	if err != nil {
		return err
	}
	s.keep = true
	d := dice(7)
	put := func(i int, now int64) error {
		k := d.IntN(len(tasks))
		return s.q.Put(queue.Work{ID: fmt.Sprintf("job-%07d", i), Tenant: tenant(i), Priority: int64(i % 3), Arrival: now + int64(i), Shape: shape(k), Amounts: s.want[shape(k)], Run: 600 * second})
	}
	jobs := 0
	room := 32 * r.Candidates // what runs beside those that wait, nearly
	for ; jobs < r.Jobs+room; jobs++ {
		if err := put(jobs, 0); err != nil {
			return err
		}
	}
	now := second
	if _, err := s.cycle(now, nil); err != nil {
		return err
	}
	for ; s.q.Len() < r.Jobs; jobs++ {
		if err := put(jobs, now); err != nil {
			return err
		}
	}
	flow := max(1, r.Candidates/10)
	running := make([]string, 0, len(s.runs))
	for id := range jobs { // in the order of arrival: what ran first ends first
		if name := fmt.Sprintf("job-%07d", id); s.runs[name].shape != "" {
			running = append(running, name)
		}
	}
	for range 120 {
		now += second
		m.on()
		start := time.Now()
		for _, id := range running[:min(flow, len(running))] {
			x := s.runs[id]
			delete(s.runs, id)
			s.c.Release(s.task[x.shape], x.p)
			if !s.q.Ended(id, now) {
				return fault.New(fault.Internal, "%s ran and the queue does not know", id)
			}
		}
		for range flow {
			if err := put(jobs, now); err != nil {
				return err
			}
			jobs++
		}
		n, err := s.cycle(now, nil)
		if err != nil {
			return err
		}
		m.add(time.Since(start))
		m.off()
		r.Placed += n
		running = running[min(flow, len(running)):]
	}
	r.P99Of = "cycle with 1,000 ends, 1,000 arrivals and as many starts"
	return nil
}
