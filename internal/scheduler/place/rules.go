package place

// Rule places the replicas of a task by where others are.
type Rule struct {
	Kind RuleKind `json:"kind"`
	// Over is the kind of place counted: "" is the candidate itself, "region"
	// its region, anything else its attribute of that name.
	Over string `json:"over,omitempty"`
	// Of says whose replicas count: "" those of the same work, else those of the
	// works in the group of that name, or of the work with that ID.
	Of string `json:"of,omitempty"`
	// MaxSkew is, for [Spread], how many more replicas a place may have than the
	// one with the fewest; at least 1.
	MaxSkew int `json:"max_skew,omitempty"`
	// Preferred rules choose among candidates; the others keep candidates out.
	Preferred bool `json:"preferred,omitempty"`
}

// RuleKind is what a rule asks for.
type RuleKind string

// The kinds of rules.
const (
	Spread RuleKind = "spread" // as many replicas in each place
	With   RuleKind = "with"   // only where others are; anywhere while there are none
	Apart  RuleKind = "apart"  // only where no others are
)
