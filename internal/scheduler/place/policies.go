package place

import "slices"

// Policy scores candidates from 0, the worst, to 100, the best on offer.
type Policy struct {
	ID      string // at most 32 characters, stable, lower case
	Title   string
	TitleZH string
	Doc     string   // one line
	Factors []Factor // what it reads; the score is their rounded mean
}

// Factor is one fact about a candidate as seen by an ask.
type Factor struct {
	ID     string
	Unit   string    // see [Text]
	Better Direction // which end scores 100
	// Unknown is the score of a candidate whose fact is unknown: 0 where the
	// provider declares the fact, 50 where the platform measures it.
	Unknown int
	// Absolute facts are scores already, 0…100, and are not spread by min-max.
	// Values outside are cut. Better is not used.
	Absolute bool
	Varies   Varies
	// Worsens says of a factor that varies with load that work placed at a
	// candidate never makes its score there better. The engine then looks at
	// such a candidate again only when it might be chosen.
	Worsens bool
	// Reads is what of the ask Measure reads, so that asks that agree in it
	// share what is measured; 0: anything.
	Reads Reads
	// Measure MUST depend on nothing but its arguments, and MUST NOT change
	// them. Values beyond ±2^61 are cut there.
	Measure func(a *Ask, s *Site) Fact
}

// Direction says which values of a factor are better.
type Direction uint8

// The directions.
const (
	Lower Direction = iota
	Higher
)

// Varies says what can change a factor during a plan, so that the engine
// measures it again only then.
type Varies uint8

// What a factor can depend on.
const (
	Fixed     Varies = iota // nothing a plan changes
	WithLoad                // free capacity and load of the candidate itself
	WithPeers               // where the replicas of the same work were placed
)

// Policies returns the built-in policies. The slice is the caller's.
func Policies() []Policy { return slices.Clone(policies) }

// PolicyByID returns the built-in policy with the given ID.
func PolicyByID(id string) (Policy, bool) {
	for _, p := range policies {
		if p.ID == id {
			return p, true
		}
	}
	return Policy{}, false
}

// policies lists every built-in policy: a) to h) of clause 6.6.2 of T/AI 123.6
// first, then those of its clause 5 f) that are not among them, then ours.
// Manual choice (5 f 1) is the "pinned" filter; first come, first served
// (5 f 2) is an order of the queue, not of candidates.
var policies = []Policy{
	leastLoad,
	idleSpec,
	dataTopology,
	lowestPrice,
	lowestEnergy,
	highestPerformance,
	highestSecurity,
	loadFairness,
	network,
	dataAware,
	qos,
	nearest,
	lowestCarbon,
	compact,
	computeType,
	lowestLatency,
	lowestTransferCost,
	lowestTotalCost,
	businessFit,
}

// Lowest price first: the provider's price of the specification. Buys cheap
// hours, not cheap results: a slow center may cost more per run.
var lowestPrice = Policy{
	ID: "lowest-price", Title: "Lowest price first", TitleZH: "最低价格优先",
	Doc: "prefers the lower price of the requested specification",
	Factors: []Factor{{
		ID: "price", Unit: "fen/h", Better: Lower, Reads: ReadsSpec,
		Measure: func(a *Ask, s *Site) Fact {
			if o := a.Offer(s); o != nil {
				return o.PriceFenPerHour
			}
			return Fact{}
		},
	}},
}

// Highest performance first: measured speed of the compute kind and precision
// the task names. A task that names none has no opinion.
var highestPerformance = Policy{
	ID: "highest-performance", Title: "Highest compute performance first", TitleZH: "最高算力性能优先",
	Doc: "prefers the faster candidate for the task's compute kind and precision",
	Factors: []Factor{{
		ID: "speed", Unit: "milli", Better: Higher, Reads: ReadsKind,
		Measure: func(a *Ask, s *Site) Fact { return s.speed(a) },
	}},
}

// Compute type: the task's kind and precision of computing as a wish. A
// candidate that states a speed for both scores 100; one that states it for the
// kind alone, or only has a resource of that name, 50, and 100 if the task names
// no precision; another 0. A task that names no kind has no opinion. Where only
// some kinds can run the task at all, demand it by attribute, expression or
// specification.
var computeType = Policy{
	ID: "compute-type", Title: "Compute type", TitleZH: "算力类型匹配",
	Doc: "prefers candidates with the task's kind and precision of computing",
	Factors: []Factor{{
		ID: "kind_fit", Unit: "points", Absolute: true, Reads: ReadsKind,
		Measure: func(a *Ask, s *Site) Fact {
			if a.Task.Kind == "" {
				return Known(MaxScore)
			}
			has := s.Total[a.Task.Kind] > 0
			for i := range s.Speeds {
				if sp := &s.Speeds[i]; sp.Kind == a.Task.Kind {
					if has = true; sp.Precision == a.Task.Precision {
						return Known(MaxScore)
					}
				}
			}
			switch {
			case !has:
				return Known(0)
			case a.Task.Precision == "":
				return Known(MaxScore)
			}
			return Known(MaxScore / 2)
		},
	}},
}

// Business fit: how well a candidate says it suits the task's kind of business.
// One that says nothing of it and nothing of others ("") scores 0: silence does
// not pay. A task that names no business has no opinion.
var businessFit = Policy{
	ID: "business-fit", Title: "Business fit", TitleZH: "业务类型匹配",
	Doc: "prefers candidates that suit the task's kind of business",
	Factors: []Factor{{
		ID: "business_fit", Unit: "points", Absolute: true, Reads: ReadsBusiness,
		Measure: func(a *Ask, s *Site) Fact {
			if a.Task.Business == "" {
				return Known(MaxScore)
			}
			fit, ok := s.Business[a.Task.Business]
			if !ok {
				if fit, ok = s.Business[""]; !ok {
					return Fact{}
				}
			}
			return Known(fit)
		},
	}},
}

// Highest security grade first. Sends ordinary work to scarce graded centers
// too; where that hurts, demand a grade (MinGrade) and leave this out.
var highestSecurity = Policy{
	ID: "highest-security", Title: "Highest security grade first", TitleZH: "最高安全等级优先",
	Doc: "prefers the higher security grade",
	Factors: []Factor{{
		ID: "security_grade", Better: Higher, Reads: ReadsNothing,
		Measure: func(_ *Ask, s *Site) Fact { return Known(s.SecurityGrade) },
	}},
}

// speed returns the relative speed of s for the ask's kind and precision.
func (s *Site) speed(a *Ask) Fact { return a.speeds[s.index] }
