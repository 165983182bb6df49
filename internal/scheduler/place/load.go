package place

// Least load first (a): the number of jobs running. Waiting work does not
// count: the standard's load is what runs.
var leastLoad = Policy{
	ID: "least-load", Title: "Least cluster load first", TitleZH: "集群负载最小优先",
	Doc: "prefers the candidate that runs fewer jobs",
	Factors: []Factor{{
		ID: "running_jobs", Unit: "jobs", Better: Lower, Varies: WithLoad, Worsens: true, Reads: ReadsNothing,
		Measure: func(_ *Ask, s *Site) Fact { return Known(s.Running()) },
	}},
}

// Idle specification first (b): the share of a candidate's packages of the
// requested specification that are idle. It is a share, so that a large busy
// center does not look idler than a small empty one.
var idleSpec = Policy{
	ID: "idle-spec", Title: "Idle specification first", TitleZH: "规格空闲优先",
	Doc: "prefers the candidate where more of the requested specification is idle",
	Factors: []Factor{{
		ID: "idle_share", Unit: "bp", Better: Higher, Varies: WithLoad, Worsens: true, Reads: ReadsSpec | ReadsRequest,
		Measure: func(a *Ask, s *Site) Fact {
			idle, total := s.packages(a)
			if !idle.Known || !total.Known || total.Value <= 0 {
				return Fact{}
			}
			return Known(mulDiv(10000, min(idle.Value, total.Value), total.Value))
		},
	}},
}

// Load fairness (h): the candidate that leaves the smallest variance of job
// counts over all candidates, feasible or not. With n counts of sum S and sum
// of squares Q, a job more at a candidate that has x makes the variance
// (Q+2x+1)/n - ((S+1)/n)². Only x differs between candidates, linearly, so
// min-max over x gives exactly the scores that min-max over the variance
// would; [Load.Variance] shows the variance itself. Unlike least-load it
// counts waiting jobs as well: those are jobs of the center too.
var loadFairness = Policy{
	ID: "load-fairness", Title: "Cluster load fairness", TitleZH: "集群负载公平",
	Doc: "prefers the candidate that makes the variance of job counts over all candidates smallest",
	Factors: []Factor{{
		ID: "jobs", Unit: "jobs", Better: Lower, Varies: WithLoad, Worsens: true, Reads: ReadsNothing,
		Measure: func(_ *Ask, s *Site) Fact { return Known(s.Running() + s.WaitingTasks) },
	}},
}

// Compact: fill what is in use before opening what is empty, so that large
// requests still find room and idle places can be shut. The opposite of
// idle-spec.
var compact = Policy{
	ID: "compact", Title: "Compact", TitleZH: "紧凑优先",
	Doc: "prefers the candidate that is left with the smallest idle share",
	Factors: []Factor{{
		ID: "idle_share", Unit: "bp", Better: Lower, Varies: WithLoad, Reads: ReadsSpec | ReadsRequest,
		Measure: idleSpec.Factors[0].Measure,
	}},
}

// Load is the spread of jobs over all candidates before a decision.
type Load struct {
	Candidates int64 `json:"candidates"`
	Jobs       int64 `json:"jobs"`        // running and waiting
	JobSquares int64 `json:"job_squares"` // sum of the squares
}

// Variance returns the variance of job counts that one job more at a candidate
// with x of them leaves.
func (l Load) Variance(x int64) float64 {
	n := float64(l.Candidates)
	mean := float64(l.Jobs+1) / n
	return float64(l.JobSquares+2*x+1)/n - mean*mean
}
