package sim

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/forecast"
)

// worth is a job as run times are learned from it.
func (l *line) worth(i int32) *forecast.Work {
	j := &l.s.jobs[i]
	w := &forecast.Work{Tenant: j.Tenant, User: j.User, Name: j.ID, Shape: l.shape(i).name}
	if l.stated {
		w.Stated = j.Expected
	}
	return w
}

// statesRuns tells whether jobs say themselves how long they will run. Where every
// job is said to run for exactly as long as it did, that was filled in.
func statesRuns(jobs []Job) bool {
	return slices.ContainsFunc(jobs, func(j Job) bool { return j.Expected != j.Run })
}

// expected is how long the queue is told that a job runs; 0: nobody knows.
func (l *line) expected(i int32) int64 {
	if l.runs != nil {
		if e := l.runs.Run(l.worth(i)); e.Basis != forecast.NoBasis {
			return min(e.High, MaxTime)
		}
	}
	return l.s.jobs[i].Expected
}

// Foretold says how well run times were told before they were known, by one way
// of telling them.
type Foretold struct {
	Way  string `json:"way"`  // forecast, stated, last-two or mean
	Jobs int    `json:"jobs"` // of which it said something
	// Off is the median of how many times too long or too short it was, 1 being
	// exact; Twice the part of the jobs it was off by no more than twice, in per
	// cent; Error the mean of the absolute error in seconds; Short the part of the
	// jobs that took longer than it said, in per cent.
	Off   float64 `json:"off"`
	Twice float64 `json:"within_twice_percent"`
	Error float64 `json:"mean_error_seconds"`
	Short float64 `json:"took_longer_percent"`
	// Within is the part of the jobs that took no longer than its upper estimate,
	// which is meant to hold for 90 %; only of forecasts.
	Within float64 `json:"within_high_percent,omitempty"`
}

// Forecasts tells the run time of every job when it arrives, by what has ended by
// then, each having started when it arrived, and compares. Of the first part of
// the jobs, from 0 to 1, is only learned. Ways that say nothing of any job are
// left out.
func Forecasts(in *Input, first float64) ([]Foretold, error) {
	if !(first >= 0 && first < 1) {
		return nil, fault.New(fault.Invalid, "the part of the jobs to learn from must be at least 0 and below 1, got %v", first)
	}
	order := make([]int32, 0, len(in.Jobs))
	for i := range in.Jobs {
		if r := in.Jobs[i].Run; r > 0 && r != Forever {
			order = append(order, int32(i))
		}
	}
	if len(order) == 0 {
		return nil, fault.New(fault.Invalid, "no job has a run time")
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(in.Jobs[a].Arrival, in.Jobs[b].Arrival) })
	l := &line{s: &sim{in: in, jobs: in.Jobs}, shapes: map[askKey]*lineShape{}, of: make([]*lineShape, len(in.Jobs)), stated: statesRuns(in.Jobs)}
	var model forecast.Model
	var open ends
	lately := map[[2]string][]int64{} // the last two runs of each user
	sum, n := 0.0, 0.0
	ways := [4]teller{{Foretold: Foretold{Way: "forecast"}}, {Foretold: Foretold{Way: "stated"}}, {Foretold: Foretold{Way: "last-two"}}, {Foretold: Foretold{Way: "mean"}}}
	for k, i := range order {
		j := &in.Jobs[i]
		for len(open) > 0 && open[0].at <= j.Arrival {
			e := heap.Pop(&open).(end)
			o := &in.Jobs[e.job]
			model.Observe(l.worth(e.job), o.Run)
			user := [2]string{o.Tenant, o.User}
			lately[user] = append(lately[user], o.Run)[max(0, len(lately[user])-1):]
			sum, n = sum+float64(o.Run), n+1
		}
		heap.Push(&open, end{at: j.Arrival + j.Run, job: i})
		if float64(k) < first*float64(len(order)) {
			continue
		}
		e := model.Run(l.worth(i))
		ways[0].tell(e.Median, e.High, j.Run)
		if l.stated {
			ways[1].tell(j.Expected, 0, j.Run)
		}
		if two := lately[[2]string{j.Tenant, j.User}]; len(two) == 2 {
			ways[2].tell(two[0]/2+two[1]/2, 0, j.Run)
		}
		if n > 0 {
			ways[3].tell(int64(sum/n), 0, j.Run)
		}
	}
	var out []Foretold
	for i := range ways {
		if ways[i].Jobs > 0 {
			out = append(out, ways[i].done())
		}
	}
	return out, nil
}

// teller counts how well run times were told; its percentages are counts until
// it is done.
type teller struct {
	Foretold
	off []float64 // logarithms
}

func (t *teller) tell(said, high, run int64) {
	if said <= 0 {
		return
	}
	t.Jobs++
	off := math.Abs(math.Log(float64(said) / float64(run)))
	t.off = append(t.off, off)
	if off <= math.Ln2 {
		t.Twice++
	}
	if run > said {
		t.Short++
	}
	if high > 0 && run <= high {
		t.Within++
	}
	t.Error += math.Abs(float64(said-run)) / float64(Second)
}

func (t *teller) done() Foretold {
	slices.Sort(t.off)
	n := float64(t.Jobs)
	t.Off = math.Exp(t.off[len(t.off)/2])
	t.Twice, t.Short, t.Within, t.Error = 100*t.Twice/n, 100*t.Short/n, 100*t.Within/n, t.Error/n
	return t.Foretold
}
