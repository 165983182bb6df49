package place

import (
	"cmp"
	"math/big"
	"math/bits"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/fault"
)

// Limits of policy sets. Within them every weighted sum fits an int64.
const (
	MaxScore  = 100
	MaxWeight = int64(1_000_000_000_000)
	MaxUses   = 64
)

// Set is a weighted set of policies and the model that evaluates their scores.
type Set struct {
	ID      string
	Title   string
	TitleZH string
	Doc     string
	Uses    []Use
	// Evaluator compares candidates; the zero value is [Weighted].
	Evaluator Evaluator
	// Filters are asked after the built-in ones and those of the options, for
	// works that this set decides about.
	Filters []Filter
	// Algorithm is what learned the weights; empty: people chose them.
	Algorithm string
}

// Use is a policy with its weight in a set. Only the ratio of weights matters:
// they are normalised to sum 1. A policy of weight 0 is shown and not counted.
type Use struct {
	Policy Policy
	Weight int64
	// Min is a veto: candidates that score less by the policy are not chosen,
	// whatever their total and the weight. 0: there is none. Scores are relative
	// to what is on offer, so the best on offer passes the veto of one policy;
	// several may leave nobody, and the replica waits.
	Min int
}

// Weight names a policy, its weight and its veto.
type Weight struct {
	Policy string `json:"policy"`
	Weight int64  `json:"weight"`
	Min    int    `json:"min,omitempty"`
}

// NewSet returns a checked set of the named policies, built in or among extra.
func NewSet(id string, e Evaluator, weights []Weight, extra ...Policy) (*Set, error) {
	s := &Set{ID: id, Evaluator: e}
	for _, w := range weights {
		p, ok := PolicyByID(w.Policy)
		for i := range extra {
			if extra[i].ID == w.Policy {
				p, ok = extra[i], true
			}
		}
		if !ok {
			return nil, fault.New(fault.Invalid, "policy %q is unknown", w.Policy)
		}
		s.Uses = append(s.Uses, Use{p, w.Weight, w.Min})
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s, nil
}

// Check reports the first thing that makes the set unusable as fault.Invalid.
func (s *Set) Check() error {
	if len(s.Uses) == 0 || len(s.Uses) > MaxUses {
		return fault.New(fault.Invalid, "policy set %q must have 1 to %d policies, got %d", s.ID, MaxUses, len(s.Uses))
	}
	weights := make([]int64, len(s.Uses))
	seen := make(map[string]bool, len(s.Uses))
	for i := range s.Uses {
		p := &s.Uses[i].Policy
		weights[i] = s.Uses[i].Weight
		switch {
		case p.ID == "" || len(p.ID) > 32:
			return fault.New(fault.Invalid, "policy id %q must have 1 to 32 bytes", p.ID)
		case seen[p.ID]:
			return fault.New(fault.Invalid, "policy %q is in set %q twice", p.ID, s.ID)
		case s.Uses[i].Min < 0 || s.Uses[i].Min > MaxScore:
			return fault.New(fault.Invalid, "min of policy %q must be 0 to %d, got %d", p.ID, MaxScore, s.Uses[i].Min)
		case len(p.Factors) == 0:
			return fault.New(fault.Invalid, "policy %q must have at least 1 factor", p.ID)
		}
		seen[p.ID] = true
		for j := range p.Factors {
			if f := &p.Factors[j]; f.Measure == nil || f.Unknown < 0 || f.Unknown > MaxScore {
				return fault.New(fault.Invalid, "factor %q of policy %q needs a Measure and an unknown score of 0 to %d, got %d",
					f.ID, p.ID, MaxScore, f.Unknown)
			}
		}
	}
	for i := range s.Filters {
		if f := &s.Filters[i]; f.ID == "" || len(f.ID) > 32 || f.Check == nil {
			return fault.New(fault.Invalid, "filter %q of policy set %q needs an id of 1 to 32 bytes and a Check", f.ID, s.ID)
		}
	}
	return checkWeights(weights)
}

// evaluator returns the evaluation model of s.
func (s *Set) evaluator() *Evaluator {
	if s.Evaluator.Compare == nil {
		return &Weighted
	}
	return &s.Evaluator
}

// readsPeers tells whether a factor of s depends on where replicas are.
func (s *Set) readsPeers() bool {
	for i := range s.Uses {
		for j := range s.Uses[i].Policy.Factors {
			if s.Uses[i].Policy.Factors[j].Varies == WithPeers {
				return true
			}
		}
	}
	return false
}

// ranks returns weights by which the highest sum of weight times score is what
// the evaluator of s finds best, nil if there are none.
func (s *Set) ranks() []int64 {
	switch e := s.evaluator(); {
	case e.Ranks != nil:
		return e.Ranks(s.Weights())
	case e.Compare == nil:
		return s.Weights()
	}
	return nil
}

// Weights returns the weights in the order of Uses.
func (s *Set) Weights() []int64 {
	w := make([]int64, len(s.Uses))
	for i := range s.Uses {
		w[i] = s.Uses[i].Weight
	}
	return w
}

// Evaluate is eq. (2) over the named policies of the set: the final score of
// one candidate from one score per policy. IDs may come in any order; the
// weights of those named are normalised to sum 1. It returns fault.Invalid for
// an unknown or repeated ID, for lengths that differ, and as [Evaluate] does.
func (s *Set) Evaluate(ids []string, scores []int) (Exact, error) {
	if len(ids) != len(scores) {
		return Exact{}, fault.New(fault.Invalid, "%d scores do not match %d algorithms", len(scores), len(ids))
	}
	weights := make([]int64, len(ids))
	for i, id := range ids {
		j := slices.IndexFunc(s.Uses, func(u Use) bool { return u.Policy.ID == id })
		switch {
		case j >= 0:
			weights[i] = s.Uses[j].Weight
		case !knownPolicy(id):
			return Exact{}, fault.New(fault.Invalid, "algorithm %q is unknown", id)
		default:
			return Exact{}, fault.New(fault.Invalid, "algorithm %q has no weight in policy set %q", id, s.ID)
		}
		if slices.Contains(ids[:i], id) {
			return Exact{}, fault.New(fault.Invalid, "algorithm %q is given twice", id)
		}
	}
	return Evaluate(weights, scores)
}

func knownPolicy(id string) bool {
	_, ok := PolicyByID(id)
	return ok
}

// Exact is a final score as the fraction it is: Num is Σ w·s, Den is Σ w.
type Exact struct {
	Num int64 `json:"num"`
	Den int64 `json:"den"`
}

// Rounded returns the score rounded half away from zero.
func (e Exact) Rounded() int {
	if e.Den <= 0 {
		return 0
	}
	return int((2*e.Num + e.Den) / (2 * e.Den))
}

// Evaluate is eq. (2), S_k = Σ w_i·s_ik with the weights normalised to sum 1,
// exactly. It returns fault.Invalid unless there is one weight per score,
// every score is 0 to 100, every weight 0 to [MaxWeight] and one above 0.
func Evaluate(weights []int64, scores []int) (Exact, error) {
	if len(weights) != len(scores) {
		return Exact{}, fault.New(fault.Invalid, "%d scores do not match %d weights", len(scores), len(weights))
	}
	if err := checkWeights(weights); err != nil {
		return Exact{}, err
	}
	var e Exact
	for i, s := range scores {
		if s < 0 || s > MaxScore {
			return Exact{}, fault.New(fault.Invalid, "scores[%d] must be 0 to %d, got %d", i, MaxScore, s)
		}
		e.Num += weights[i] * int64(s)
		e.Den += weights[i]
	}
	return e, nil
}

func checkWeights(weights []int64) error {
	if len(weights) == 0 || len(weights) > MaxUses {
		return fault.New(fault.Invalid, "there must be 1 to %d weights, got %d", MaxUses, len(weights))
	}
	var any bool
	for i, w := range weights {
		if w < 0 || w > MaxWeight {
			return fault.New(fault.Invalid, "weights[%d] must be 0 to %d, got %d", i, MaxWeight, w)
		}
		any = any || w > 0
	}
	if !any {
		return fault.New(fault.Invalid, "at least one of %d weights must be above 0", len(weights))
	}
	return nil
}

// ParseWeights reads weights written as decimals ("0.25") or fractions
// ("1/3"), and returns integers in exactly the same ratio.
func ParseWeights(texts []string) ([]int64, error) {
	rats := make([]*big.Rat, len(texts))
	den := big.NewInt(1)
	for i, t := range texts {
		r, ok := new(big.Rat), len(t) > 0 && len(t) <= 32 && strings.Trim(t, "0123456789./") == ""
		if ok {
			_, ok = r.SetString(t)
		}
		if !ok {
			return nil, fault.New(fault.Invalid, "weights[%d] must be a decimal or a fraction of at least 0, got %q", i, t)
		}
		rats[i] = r
		// den = lcm(den, r.Denom())
		g := new(big.Int).GCD(nil, nil, den, r.Denom())
		den.Mul(den, new(big.Int).Quo(r.Denom(), g))
	}
	ints, g := make([]*big.Int, len(rats)), new(big.Int)
	for i, r := range rats {
		ints[i] = new(big.Int).Quo(new(big.Int).Mul(r.Num(), den), r.Denom())
		g.GCD(nil, nil, g, ints[i])
	}
	out := make([]int64, len(ints))
	for i, n := range ints {
		if g.Sign() > 0 {
			n.Quo(n, g)
		}
		if !n.IsInt64() || n.Int64() > MaxWeight {
			return nil, fault.New(fault.Invalid, "weights[%d] %q needs a ratio above %d to one", i, texts[i], MaxWeight)
		}
		out[i] = n.Int64()
	}
	return out, checkWeights(out)
}

// Evaluator is a result-evaluation model: it compares two candidates by their
// scores. Compare returns more than 0 if a is better, less if b is, 0 if the
// lower ID decides; it MUST be a total order of score vectors up to ties and
// MUST keep neither slice. Scores and weights are in the order of the set.
type Evaluator struct {
	ID      string
	Title   string
	TitleZH string
	Doc     string
	Compare func(weights []int64, a, b []uint8) int
	// Ranks returns weights by which a higher Σ rank·score is better exactly
	// where Compare says so, or nil if these weights have none: the engine then
	// need not compare candidates one by one. Their sum times 200 MUST fit an
	// int64. nil: there are none.
	Ranks func(weights []int64) []int64
	// Decides returns the policy that put a before b, for records; nil: the
	// heaviest one in which they differ.
	Decides func(weights []int64, a, b []uint8) int
}

// Evaluators returns the built-in evaluation models.
func Evaluators() []Evaluator { return []Evaluator{Weighted, Lexicographic, Pareto} }

// Weighted is eq. (2), the default. It has no Compare: the engine keeps its
// sums up to date instead.
var Weighted = Evaluator{
	ID: "weighted", Title: "Weighted sum", TitleZH: "加权求和",
	Doc: "the highest sum of weight times score wins",
}

// Lexicographic lets the heaviest policy decide alone, the next one among
// equals, and so on; equal weights go in the order of the set.
var Lexicographic = Evaluator{
	ID: "lexicographic", Title: "Lexicographic order", TitleZH: "字典序",
	Doc: "the heaviest policy decides; the next one only breaks its ties",
	Compare: func(weights []int64, a, b []uint8) int {
		for last := uint64(0); ; {
			// The heaviest policy not looked at yet; no memory for sorting.
			best := -1
			for i, w := range weights {
				if last>>i&1 == 0 && w > 0 && (best < 0 || w > weights[best]) {
					best = i
				}
			}
			if best < 0 {
				return 0
			}
			if c := cmp.Compare(a[best], b[best]); c != 0 {
				return c
			}
			last |= 1 << best
			if bits.OnesCount64(last) == len(weights) {
				return 0
			}
		}
	},
	Ranks: func(weights []int64) []int64 {
		order := sortedIndex(len(weights), func(a, b int) int {
			return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b))
		})
		out, rank := make([]int64, len(weights)), int64(1)
		for _, i := range slices.Backward(order) {
			if weights[i] == 0 {
				continue
			}
			if rank > 1<<54 {
				return nil // nine policies can be summed that way
			}
			out[i], rank = rank, rank*(MaxScore+1)
		}
		return out
	},
}

// Pareto chooses a candidate that no other beats everywhere, and of those the
// most even one: the worst score counts first, then the second worst, and so on
// (leximin). If a is at least as good as b by every policy and better by one, a
// comes before b, so what is chosen is never dominated; weights decide only
// between candidates with the same scores in another order, and by being 0 or
// not. (Dominance first and the weighted sum among the best would be no model of
// its own: the weighted sum never chooses what is dominated.)
var Pareto = Evaluator{
	ID: "pareto", Title: "Pareto, most even", TitleZH: "帕累托最优",
	Doc: "none better by every policy; of those, the one whose worst score is highest",
	Compare: func(weights []int64, a, b []uint8) int {
		var x, y [MaxUses]uint8
		p, q := counted(x[:0], weights, a), counted(y[:0], weights, b)
		if c := slices.Compare(p, q); c != 0 {
			return c
		}
		var lead int64
		for i, w := range weights {
			lead += w * (int64(a[i]) - int64(b[i]))
		}
		return cmp.Compare(lead, 0)
	},
	Decides: func(weights []int64, a, b []uint8) int {
		var x, y [MaxUses]uint8
		p, q := counted(x[:0], weights, a), counted(y[:0], weights, b)
		for k := range p {
			if p[k] == q[k] {
				continue
			}
			for i, w := range weights { // the one by which b is that bad
				if w > 0 && b[i] == q[k] && a[i] > b[i] {
					return i
				}
			}
		}
		return heaviest(weights, a, b)
	},
}

// counted returns the scores of policies with a weight, ascending.
func counted(out []uint8, weights []int64, scores []uint8) []uint8 {
	for i, w := range weights {
		if w > 0 {
			out = append(out, scores[i])
		}
	}
	slices.Sort(out)
	return out
}

// heaviest returns the heaviest policy by which a is not like b, -1 if there is
// none.
func heaviest(weights []int64, a, b []uint8) int {
	best, most := -1, int64(0)
	for i, w := range weights {
		if a[i] != b[i] && w > most {
			best, most = i, w
		}
	}
	return best
}

// Presets returns the built-in policy sets; the first is the default.
func Presets() []*Set { return slices.Clone(presets) }

// Preset returns the built-in policy set with the given ID. "best-overall" is
// another name of the default.
func Preset(id string) (*Set, bool) {
	if id == "best-overall" {
		return presets[0], true
	}
	for _, s := range presets {
		if s.ID == id {
			return s, true
		}
	}
	return nil, false
}

var presets = []*Set{
	preset("balanced", "Best overall", "综合最优", "every policy has a say; load, price and data weigh most", []Weight{
		{Policy: "least-load", Weight: 3}, {Policy: "idle-spec", Weight: 3}, {Policy: "data-topology", Weight: 2}, {Policy: "lowest-price", Weight: 3}, {Policy: "lowest-energy", Weight: 2},
		{Policy: "highest-performance", Weight: 2}, {Policy: "highest-security", Weight: 1}, {Policy: "load-fairness", Weight: 1}, {Policy: "network", Weight: 2}, {Policy: "data-aware", Weight: 3},
		{Policy: "qos", Weight: 2}, {Policy: "nearest", Weight: 1}}),
	preset("lowest-cost", "Lowest cost", "成本最低", "price first; then bring little data and avoid crowds",
		[]Weight{{Policy: "lowest-price", Weight: 8}, {Policy: "data-aware", Weight: 1}, {Policy: "least-load", Weight: 1}}),
	inOrder(preset("cheapest-first", "Cheapest first", "最低价先占", "the lowest price that has room, whatever else; the next when it is full",
		[]Weight{{Policy: "lowest-price", Weight: 3}, {Policy: "lowest-transfer-cost", Weight: 2}, {Policy: "least-load", Weight: 1}})),
	preset("nearest", "Nearest", "距离最近", "close to the users, over a good path",
		[]Weight{{Policy: "nearest", Weight: 6}, {Policy: "network", Weight: 3}, {Policy: "least-load", Weight: 1}}),
	preset("best-performance", "Best performance", "性能最优", "fast devices, idle ones first, close together",
		[]Weight{{Policy: "highest-performance", Weight: 6}, {Policy: "idle-spec", Weight: 2}, {Policy: "network", Weight: 1}, {Policy: "data-topology", Weight: 1}}),
	preset("greenest", "Greenest", "绿色低碳", "little energy, and that of little carbon",
		[]Weight{{Policy: "lowest-energy", Weight: 5}, {Policy: "lowest-carbon", Weight: 4}, {Policy: "least-load", Weight: 1}}),
	preset("most-secure", "Most secure", "安全优先", "the highest security grade; load only among equals",
		[]Weight{{Policy: "highest-security", Weight: 8}, {Policy: "least-load", Weight: 1}, {Policy: "idle-spec", Weight: 1}}),
	preset("spread", "Spread", "均衡分布", "the same number of jobs everywhere",
		[]Weight{{Policy: "load-fairness", Weight: 6}, {Policy: "least-load", Weight: 2}, {Policy: "idle-spec", Weight: 2}}),
}

// preset builds a set of built-in policies. An unknown ID is a slip in the
// table above.
func preset(id, title, titleZH, doc string, weights []Weight) *Set {
	s, err := NewSet(id, Weighted, weights)
	if err != nil {
		panic("place: preset " + id + ": " + err.Error())
	}
	s.Title, s.TitleZH, s.Doc = title, titleZH, doc
	return s
}

// inOrder makes a set one whose heaviest policy decides.
func inOrder(s *Set) *Set {
	s.Evaluator = Lexicographic
	return s
}
