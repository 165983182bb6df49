package place

import (
	"cmp"
	"slices"
)

// Decision explains one choice, or why there was none. It is stored and shown;
// its JSON names are stable. Replicas decided alike share one Decision, and
// Decisions share rows: treat both as read-only.
type Decision struct {
	Set       string        `json:"set"`
	Evaluator string        `json:"evaluator"`
	Algorithm string        `json:"algorithm,omitempty"` // that learned the weights
	Policies  []PolicyInUse `json:"policies"`            // columns of the table
	WeightSum int64         `json:"weight_sum"`

	Candidates int     `json:"candidates"`       // how many there are
	Feasible   int     `json:"feasible"`         // how many could take the replica
	Chosen     string  `json:"chosen,omitempty"` // empty: not placed, see Reason
	Reason     string  `json:"reason,omitempty"` // why it was not placed, for the job's owner
	Margin     *Margin `json:"margin,omitempty"` // nil unless two or more were feasible
	Load       Load    `json:"load"`             // before the decision; load-fairness judges by it

	// Table has the feasible candidates, best first (where preferred rules hold,
	// before where they do not), then those a rule keeps out, then the others by
	// ID.
	// Omitted counts rows left out by [Options].TableRows.
	Table   []Entry `json:"table"`
	Omitted int     `json:"omitted,omitempty"`

	// Change, with [Options.Changes], stands for the table: it is that of an
	// earlier decision but for what is said here. nil: Table is whole.
	Change *Change `json:"-"`
}

// Change makes the table of a decision of an earlier one: entries of that are
// left out, then others put in.
type Change struct {
	Since *Decision
	Gone  []int32 // places in the earlier table, ascending
	New   []Put   // ascending by their places in this one
}

// Put is an entry and its place in a table.
type Put struct {
	At int
	Entry
}

// PolicyInUse is a column of a decision's table.
type PolicyInUse struct {
	ID      string        `json:"id"`
	Weight  int64         `json:"weight"`
	Min     int           `json:"min,omitempty"` // the least score that may be chosen
	Factors []FactorInUse `json:"factors"`
}

// FactorInUse names what the raw values of a column are.
type FactorInUse struct {
	ID   string `json:"id"`
	Unit string `json:"unit,omitempty"`
}

// Entry is a candidate's place in a decision's table.
type Entry struct {
	Rank   int  `json:"rank,omitempty"` // from 1; 0: filtered, or kept out by a rule
	Chosen bool `json:"chosen,omitempty"`
	// Rules are the least scores of policies it does not reach and the rules of
	// the task that do not hold there: first what keeps it out, then what makes
	// others come before it.
	Rules []Reason `json:"rules,omitempty"`
	*Row
}

// Row is what a decision knows of one candidate.
type Row struct {
	Candidate string   `json:"candidate"`
	Name      string   `json:"name,omitempty"`
	Filtered  []Reason `json:"filtered,omitempty"` // why it cannot run the replica; all that apply
	Scores    []int    `json:"scores,omitempty"`   // by policy, 0…100
	Weighted  []int64  `json:"weighted,omitempty"` // by policy: weight × score
	Values    [][]Fact `json:"values,omitempty"`   // by policy and factor: what was measured
	Exact     *Exact   `json:"exact,omitempty"`    // Σ weighted over Σ weights
	Final     int      `json:"final"`              // Exact rounded half away from zero
	// Network says where what is known of the path to it is from; "": nobody says.
	Network string `json:"network,omitempty"`
}

// Reason is why one filter keeps a candidate out.
type Reason struct {
	Filter string `json:"filter"`
	Text   string `json:"text"`
}

// Margin says how clear a choice was and what would have changed it.
type Margin struct {
	RunnerUp string `json:"runner_up"`
	// Gap is how far the runner-up is behind in the final score. It can be
	// negative under an evaluator other than the weighted sum.
	Gap  Exact `json:"gap"`
	ByID bool  `json:"by_id,omitempty"` // scores were equal: the lower ID won
	// ByRule says that a preferred rule decided, whatever the scores.
	ByRule bool `json:"by_rule,omitempty"`
	// DecidedBy is the policy that put the chosen one ahead most; under another
	// evaluator than the weighted sum, the one that decided. Empty: there is none.
	DecidedBy string `json:"decided_by,omitempty"`
	// Flip is the policy whose weight needs the least raise, relative to the
	// sum of weights, to make the runner-up win; nil if no raise of a single
	// weight can.
	Flip *Flip `json:"flip,omitempty"`
}

// Flip is a weight that would have changed a choice.
type Flip struct {
	Policy string `json:"policy"`
	Weight int64  `json:"weight"` // as it is
	Above  Exact  `json:"above"`  // a weight above this fraction, others unchanged, favors the runner-up
}

// header is the part of a Decision that depends on the set only.
type header struct {
	policies []PolicyInUse
	sum      int64
}

func (p *planner) header(s *Set) *header {
	if h, ok := p.setHeaders[s]; ok {
		return h
	}
	h := &header{}
	for i := range s.Uses {
		u := &s.Uses[i]
		col := PolicyInUse{ID: u.Policy.ID, Weight: u.Weight, Min: u.Min}
		for j := range u.Policy.Factors {
			col.Factors = append(col.Factors, FactorInUse{u.Policy.Factors[j].ID, u.Policy.Factors[j].Unit})
		}
		h.policies = append(h.policies, col)
		h.sum += u.Weight
	}
	p.setHeaders[s] = h
	return h
}

// explain keeps the rows of a table between decisions, so that only those that
// changed are written again.
type explain struct {
	rows   []*Row
	fresh  []bool
	order  []int32 // the last ranking; most of it holds for the next
	ranked bool    // order is a ranking, but for the sites of moved
	moved  []int32 // sites that changed since, each once
	isIn   []bool  // moved, by site
	spare  []int32 // of the length of order
	last   *Decision
	seen   int // changes when last was made
	peers  int64
}

func newExplain(n int) *explain {
	e := &explain{rows: make([]*Row, n), fresh: make([]bool, n), order: make([]int32, n), isIn: make([]bool, n), spare: make([]int32, n)}
	for i := range e.order {
		e.order[i] = int32(i)
	}
	return e
}

// stale marks the row of site i as changed. A nil explain keeps nothing.
func (e *explain) stale(i int32) {
	if e == nil {
		return
	}
	e.fresh[i] = false
	if e.ranked && !e.isIn[i] {
		e.isIn[i], e.moved = true, append(e.moved, i)
	}
}

func (e *explain) staleAll() {
	if e != nil {
		clear(e.fresh)
		e.ranked = false
	}
}

// decision explains the choice of best for a part whose table is up to date. It
// must come before best is taken.
func (p *planner) decision(of *part, best int32) *Decision {
	if p.opts.NoTables {
		return nil
	}
	h := of.shape
	t := h.table
	n := len(p.sites)
	if t.show == nil {
		t.show = newExplain(n)
	}
	e := t.show
	limited := len(of.rules)+len(t.vetoes) > 0
	if !limited && e.last != nil && e.seen == len(p.changes) && e.peers == t.peers {
		return e.last
	}
	shown := n
	if r := p.opts.TableRows; r > 0 && r < n {
		shown = r
	}
	gone, at, whole := e.rank(t)
	order, out := e.order, []Entry(nil)
	if limited {
		order, out = p.ruled(of)
	}
	head := p.header(h.set)
	d := &Decision{
		Set: h.set.ID, Evaluator: h.set.evaluator().ID, Algorithm: h.set.Algorithm, Policies: head.policies, WeightSum: head.sum,
		Candidates: n, Feasible: t.nfit, Load: p.load, Omitted: n - shown,
	}
	if p.opts.Changes && !whole && !limited && shown == n && e.last != nil {
		d.Change = &Change{Since: e.last, Gone: gone, New: make([]Put, len(at))}
		for k, place := range at {
			e.spare[k] = order[place]
		}
		p.writeRows(h, e.spare[:len(at)])
		for k, place := range at {
			d.Change.New[k] = Put{int(place), Entry{Row: e.rows[order[place]]}}
		}
	} else {
		p.writeRows(h, order[:shown])
		d.Table = make([]Entry, shown)
	}
	for k, i := range order[:len(d.Table)] {
		if out != nil {
			d.Table[k].Rules = out[k].Rules
		}
		d.Table[k].Row = e.rows[i]
	}
	if out != nil {
		d.Feasible = 0
		for k, i := range order {
			if of.standing(i) >= 0 {
				d.Feasible = k + 1
			}
		}
	}
	for k := range d.Table[:min(len(d.Table), d.Feasible)] {
		d.Table[k].Rank = k + 1
		d.Table[k].Chosen = order[k] == best
	}
	switch {
	case best >= 0:
		d.Chosen = p.sites[best].ID
	case t.nfit > 0:
		d.Reason = p.ruledOut(of)
	default:
		d.Reason = p.nearMiss(h)
	}
	if best >= 0 && d.Feasible > 1 {
		d.Margin = p.margin(h, best, order[1])
		if out != nil && tier(of.rules, best) != tier(of.rules, order[1]) {
			d.Margin.ByRule, d.Margin.ByID, d.Margin.DecidedBy, d.Margin.Flip = true, false, "", nil
		}
	}
	if out != nil {
		e.last = nil // what changes next is told of no table
		return d
	}
	e.last, e.seen, e.peers = d, len(p.changes), t.peers
	return d
}

// ruled returns the sites in the order of the rules of a part and, among those
// alike, of the table; and which rules do not hold at each.
func (p *planner) ruled(of *part) ([]int32, []Entry) {
	t := of.shape.table
	order := slices.Clone(t.show.order)
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(of.standing(b), of.standing(a)) })
	out := make([]Entry, len(order))
	for k, i := range order {
		if t.fits[i] {
			out[k].Rules = of.outAt(i)
		}
	}
	return order, out
}

// standing returns how many rules hold at a site, -1 if one of those that must
// does not, or a veto stands against it, and -2 if nothing fits there.
func (of *part) standing(i int32) int {
	n := tier(of.rules, i)
	switch {
	case !of.shape.fits[i]:
		return -2
	case n < hard(of.rules) || of.shape.veto(i) >= 0:
		return -1
	}
	return n
}

// withdrawn returns d as it stands when the choice is given up: a gang as a
// whole has no place although one of its replicas may have had one.
func (d *Decision) withdrawn(why string) *Decision {
	out := *d
	out.Reason = why
	if d.Chosen == "" {
		return &out // no row is marked: the table can be shared
	}
	out.Chosen, out.Margin = "", nil
	out.Table = slices.Clone(d.Table)
	for k := range out.Table {
		out.Table[k].Chosen = false
	}
	return &out
}

// writeRows brings the rows of the given sites up to date. New rows share a few
// allocations.
func (p *planner) writeRows(h *shape, sites []int32) {
	t, e := h.table, h.table.show
	var stale int
	for _, i := range sites {
		if !e.fresh[i] {
			stale++
		}
	}
	if stale == 0 {
		return
	}
	policies, columns := len(t.weights), len(t.columns)
	m := p.opts.Rows
	if m == nil {
		m = &Rows{}
	}
	rows, exact := m.rows.take(stale), m.exact.take(stale)
	scores, weighted := m.scores.take(stale*policies), m.weighted.take(stale*policies)
	facts, lists := m.facts.take(stale*columns), m.lists.take(stale*policies)
	for _, i := range sites {
		if e.fresh[i] {
			continue
		}
		e.fresh[i] = true
		r := &rows[0]
		rows = rows[1:]
		r.Candidate, r.Name, r.Network = p.sites[i].ID, p.sites[i].Name, p.sites[i].sources(&h.ask)
		e.rows[i] = r
		if !t.fits[i] {
			r.Filtered = t.reasonsAt(h.filters, i)
			if text := p.shortage(i, h); text != "" {
				r.Filtered = append(slices.Clip(r.Filtered), Reason{capacityFilter, text})
			}
			continue
		}
		r.Scores, scores = scores[:policies:policies], scores[policies:]
		r.Weighted, weighted = weighted[:policies:policies], weighted[policies:]
		r.Values, lists = lists[:policies:policies], lists[policies:]
		for u := range r.Scores {
			r.Scores[u] = int(t.sheet.scores[int(i)*policies+u])
			r.Weighted[u] = t.weights[u] * int64(r.Scores[u])
			k := t.first[u+1] - t.first[u]
			r.Values[u], facts = facts[:k:k], facts[k:]
			for j := range r.Values[u] {
				if v := t.columns[t.first[u]+j].value[i]; v != noFact {
					r.Values[u][j] = Known(v)
				}
			}
		}
		r.Exact, exact = &exact[0], exact[1:]
		*r.Exact = Exact{t.sheet.final[i], t.sum}
		r.Final = r.Exact.Rounded()
	}
}

// Rows is memory for the rows of decisions, which plan after plan can use: see
// [Options.Rows]. The zero value is empty.
type Rows struct {
	rows     slab[Row]
	exact    slab[Exact]
	scores   slab[int]
	weighted slab[int64]
	facts    slab[Fact]
	lists    slab[[]Fact]
}

// Reset has the next plan use the memory again. Nobody may look at decisions
// made with it any more.
func (m *Rows) Reset() {
	m.rows.reset()
	m.exact.reset()
	m.scores.reset()
	m.weighted.reset()
	m.facts.reset()
	m.lists.reset()
}

// slab hands out slices of one array.
type slab[T any] struct {
	all  []T
	used int // so many were asked for since the last reset
}

// take returns n zeros.
func (s *slab[T]) take(n int) []T {
	from := s.used
	if s.used += n; s.used > len(s.all) { // reset makes room for as many
		return make([]T, n)
	}
	out := s.all[from:s.used:s.used]
	clear(out)
	return out
}

func (s *slab[T]) reset() {
	if s.used > len(s.all) || s.used < len(s.all)/8 {
		s.all = make([]T, s.used)
	}
	s.used = 0
}

// rank sorts the sites: those that fit, best first, then the others by ID. It
// returns at which places of the last ranking those were that changed, and at
// which of this one they are, both ascending; with whole, all may have.
func (e *explain) rank(t *table) (gone, at []int32, whole bool) {
	compare := func(a, b int32) int {
		if fa, fb := t.fits[a], t.fits[b]; fa != fb {
			if fa {
				return -1
			}
			return 1
		} else if fa {
			if c := t.better(b, a); c != 0 {
				return c
			}
		}
		return cmp.Compare(a, b)
	}
	defer func() {
		for _, i := range e.moved {
			e.isIn[i] = false
		}
		e.moved = e.moved[:0]
	}()
	if !e.ranked || len(e.moved) > len(e.order)/8 {
		e.ranked = true
		slices.SortFunc(e.order, compare)
		return nil, nil, true
	}
	if len(e.moved) == 0 {
		return nil, nil, false
	}
	slices.SortFunc(e.moved, compare)
	gone, at = make([]int32, 0, len(e.moved)), make([]int32, 0, len(e.moved))
	stay := e.spare[:0]
	for k, i := range e.order {
		if e.isIn[i] {
			gone = append(gone, int32(k))
		} else {
			stay = append(stay, i)
		}
	}
	order := e.order[:0]
	for _, i := range e.moved {
		k, _ := slices.BinarySearchFunc(stay, i, compare)
		order = append(order, stay[:k]...)
		stay = stay[k:]
		at = append(at, int32(len(order)))
		order = append(order, i)
	}
	e.order = append(order, stay...)
	return gone, at, false
}

// margin compares the chosen site with the runner-up.
func (p *planner) margin(h *shape, best, next int32) *Margin {
	t := h.table
	m := &Margin{RunnerUp: p.sites[next].ID, Gap: Exact{t.sheet.final[best] - t.sheet.final[next], t.sum}}
	win, lose := t.sheet.of(best), t.sheet.of(next)
	if t.compare != nil {
		m.ByID = t.compare(t.weights, win, lose) == 0
	} else {
		m.ByID = m.Gap.Num == 0
	}
	var most int64
	var raise Exact // the least so far
	for u, w := range t.weights {
		lead := int64(win[u]) - int64(lose[u])
		if says := w * lead; says > most && t.compare == nil {
			most, m.DecidedBy = says, h.set.Uses[u].Policy.ID
		}
		if lead >= 0 || t.compare != nil {
			continue
		}
		// The runner-up gains -lead points per unit of weight and needs more
		// than the gap (exactly the gap leaves a tie, which the ID decides).
		r := Exact{m.Gap.Num, -lead}
		if m.Flip == nil || lessFraction(r, raise) {
			raise = r
			m.Flip = &Flip{Policy: h.set.Uses[u].Policy.ID, Weight: w, Above: Exact{w*-lead + m.Gap.Num, -lead}}
		}
	}
	if t.compare != nil {
		decides := h.set.Evaluator.Decides
		if decides == nil {
			decides = heaviest
		}
		if u := decides(t.weights, win, lose); u >= 0 {
			m.DecidedBy = h.set.Uses[u].Policy.ID
		}
	}
	return m
}

// lessFraction compares two fractions with denominators of 1 to 100.
func lessFraction(a, b Exact) bool { return a.Num*b.Den < b.Num*a.Den }
