package sim

// Result is what one run came to. Its JSON is stable: fields are added, never
// renamed. Times are seconds.
type Result struct {
	Name   string `json:"name"` // policy and queue
	Policy string `json:"policy"`
	Queue  string `json:"queue"`
	Seed   uint64 `json:"seed"`
	// Partial says that it was stopped before it was over: jobs that would have
	// been done are not, and the figures are those up to then.
	Partial bool `json:"partial,omitempty"`

	Jobs Jobs `json:"jobs"`
	// Seconds is how long was simulated, from the first arrival to the last
	// event.
	Seconds float64 `json:"seconds"`

	// Allocation is how much of the cards was held, in per cent of all: the mean
	// over the time until everything had come and nothing waited, the most, and
	// at the end; of cores where there are no cards.
	Allocation Share `json:"allocation_percent"`
	// LeftOver is how much of the cards nobody had at the end, in per cent.
	LeftOver float64 `json:"left_over_percent"`
	// BySeed is the same by seed, where there are several; LeftOver is then
	// their mean, and Loads are means; all else is of the first seed.
	BySeed []float64 `json:"left_over_by_seed,omitempty"`
	// Fragmentation is how much of all cards was free and of no use to work like
	// that which came (Weng et al., ATC 2023), in per cent; only of nodes.
	Fragmentation *Share `json:"fragmentation_percent,omitempty"`

	// Waiting is from arrival to the first start, of jobs that started.
	// Completion is from arrival to the end, of jobs that are done.
	Waiting    Spread `json:"waiting_seconds"`
	Completion Spread `json:"completion_seconds"`
	// Slowdown is completion over run time, where at least 10 s count as run
	// time, at least 1: of jobs that are done.
	Slowdown Spread `json:"bounded_slowdown"`

	// Filled is what was left over when the fleet was filled as well, because
	// the work alone hardly used it.
	Filled *Filled `json:"filled,omitempty"`

	Fairness Fairness `json:"fairness"`

	// CostFen is what the cards and cores held cost, exact and rounded once;
	// null where no price is stated. Unpriced is the card hours without one.
	CostFen  *int64  `json:"cost_fen"`
	Unpriced float64 `json:"unpriced_card_hours,omitempty"`
	// Energy of the whole fleet with its overhead; null where no power is
	// stated. WorkEnergy is the part that is there because of the work: what
	// cards and cores in use draw beyond idling.
	Energy     *float64 `json:"energy_kwh"`
	WorkEnergy *float64 `json:"work_energy_kwh"`
	Carbon     *float64 `json:"carbon_kg"` // null unless all carbon is stated

	Preemptions   int64   `json:"preemptions"`
	LostCardHours float64 `json:"lost_card_hours"` // run again because work was taken back
	Deadlines     Met     `json:"deadlines"`
	// Failures of nodes or centers; Transfers of data; Growths of elastic jobs.
	Failures  Failures  `json:"failures,omitzero"`
	Transfers Transfers `json:"transfers,omitzero"`
	Growths   int64     `json:"growths,omitempty"`

	Events    int64 `json:"events"`    // arrivals, starts, ends, preemptions
	Decisions int64 `json:"decisions"` // how often a place was looked for

	Series    []Point   `json:"series"`               // over time, at most 240 points
	WaitCDF   []float64 `json:"waiting_percentiles"`  // seconds, at 0 to 100 %
	Loads     []Load    `json:"by_load,omitempty"`    // over arrived load, when filling
	NotDone   []Left    `json:"not_done,omitempty"`   // at most 100
	NeverFits []Left    `json:"never_fits,omitempty"` // at most 100
	Timing    *Timing   `json:"timing,omitempty"`
}

// Jobs counts jobs. Total is the sum of the others.
type Jobs struct {
	Total   int64 `json:"total"`
	Done    int64 `json:"done"`
	Running int64 `json:"running"` // at the end
	Waiting int64 `json:"waiting"` // at the end
	Dropped int64 `json:"dropped"` // when filling: did not fit when they came
	Never   int64 `json:"never"`   // ask for what no node or center has
	Later   int64 `json:"later"`   // had not arrived when it was stopped
}

// Share is a mean over time and an extreme.
type Share struct {
	Mean float64 `json:"mean"`
	Most float64 `json:"most"`
	End  float64 `json:"end"`
}

// Spread is the distribution of a measure; percentiles are values that occurred
// (nearest rank).
type Spread struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Most float64 `json:"most"`
}

// Fairness compares how tenants fared.
type Fairness struct {
	// Jain is (Σx)²/(n·Σx²) over the tenants' paces: 1 if all are equal, 1/n if
	// one has all.
	Jain    float64        `json:"jain"`
	Tenants []TenantResult `json:"tenants"` // by ID; at most 1,000, those with most card hours
}

// TenantResult is how one tenant fared.
type TenantResult struct {
	ID   string `json:"id"`
	Jobs int64  `json:"jobs"`
	Done int64  `json:"done"`
	// Pace is the sum of its jobs' run times at the speed they got over the sum
	// of the time from their arrival to their end, or to the end of the
	// simulation: 1 if nothing ever waited.
	Pace        float64 `json:"pace"`
	MeanWaiting float64 `json:"mean_waiting_seconds"`
	CardHours   float64 `json:"card_hours"`
	Preempted   int64   `json:"preempted"`
}

// Failures are what outages came to.
type Failures struct {
	Outages       int64   `json:"outages"`         // of nodes or centers
	Interrupted   int64   `json:"interrupted"`     // runs
	DownHours     float64 `json:"down_hours"`      // of all nodes or centers together
	LostCardHours float64 `json:"lost_card_hours"` // run again because of them
}

// Transfers are data that was brought to centers.
type Transfers struct {
	Count   int64   `json:"count"`
	GiB     float64 `json:"gib"`
	Seconds float64 `json:"seconds"` // in which jobs held their places and waited for it
	FeeFen  int64   `json:"fee_fen"` // part of cost_fen
	// NoFee is what went over paths whose fee nobody states.
	NoFee float64 `json:"gib_without_fee,omitempty"`
}

func (t *Transfers) add(s *seat) {
	for _, c := range s.bring {
		size := float64(c.bytes) / (1 << 30)
		t.Count++
		if t.GiB += size; c.fee.Known {
			t.FeeFen += c.fee.Value
		} else {
			t.NoFee += size
		}
	}
	t.Seconds += float64(s.delay) / float64(Second)
}

// Met counts deadlines.
type Met struct {
	Met    int64 `json:"met"`
	Missed int64 `json:"missed"` // ended later, or not at all and it passed
}

// Point of a series: shares are means over the time up to the next point,
// counts are of its beginning.
type Point struct {
	At            float64  `json:"at"` // seconds
	Allocation    float64  `json:"allocation_percent"`
	Fragmentation *float64 `json:"fragmentation_percent,omitempty"` // at its beginning
	Running       int64    `json:"running"`
	Waiting       int64    `json:"waiting"`
}

// Load is the state when work asking for a share of all cards had arrived.
type Load struct {
	Arrived       float64 `json:"arrived_percent"`
	Allocation    float64 `json:"allocation_percent"`
	Fragmentation float64 `json:"fragmentation_percent"`
}

// Left is a job that was not done.
type Left struct {
	ID    string `json:"id"`
	State string `json:"state"` // waiting or running at the end, dropped, never, later
	Why   string `json:"why,omitempty"`
}

// Timing is how fast the simulation itself was.
type Timing struct {
	Seconds   float64 `json:"seconds"`
	Events    float64 `json:"events_per_second"`
	Decisions float64 `json:"decisions_per_second"`
}

// Filled is what is left over of all cards, in per cent, when jobs drawn at
// random have asked for Load times the cards: the mean of seeds, and each.
type Filled struct {
	Load     float64   `json:"load"`
	LeftOver float64   `json:"left_over_percent"`
	BySeed   []float64 `json:"left_over_by_seed"`
}
