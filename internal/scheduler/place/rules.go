package place

import (
	"cmp"
	"slices"
	"strconv"

	"yunhe.dev/yunhe/internal/fault"
)

// Rule places the replicas of a task by where others are. Rules choose among
// the candidates that can run a replica; its scores do not depend on them.
//
// A rule that is not preferred keeps candidates out. Preferred ones come before
// the scores: a replica goes where all of them hold, else where all but the
// last hold, and so on.
type Rule struct {
	Kind RuleKind `json:"kind"`
	// Over is the kind of place that counts: "" is the candidate itself,
	// "region" its region, anything else its attribute of that name. A candidate
	// without it meets no rule.
	Over string `json:"over,omitempty"`
	// Of says whose replicas count: "" those of the same work, else those of the
	// works in the group of that name, or of the work with that ID.
	Of string `json:"of,omitempty"`
	// MaxSkew is, for [Spread], by how many replicas a place may be ahead of the
	// one with the fewest, of those with a candidate that passes all filters;
	// at least 1.
	MaxSkew int `json:"max_skew,omitempty"`
	// Preferred rules are given up where they cannot be met.
	Preferred bool `json:"preferred,omitempty"`
}

// RuleKind is what a rule asks for.
type RuleKind string

// The kinds of rules.
const (
	Spread RuleKind = "spread" // about as many replicas in each place
	// With asks for a place where replicas of others are. While there are none,
	// a work that is one of them itself may go anywhere.
	With  RuleKind = "with"
	Apart RuleKind = "apart" // asks for a place where there are none
)

// Limits of rules.
const (
	MaxRules  = 8  // of a task
	MaxGroups = 64 // of a work
)

func (r *Rule) check() error {
	switch {
	case r.Kind != Spread && r.Kind != With && r.Kind != Apart:
		return fault.New(fault.Invalid, "kind must be %s, %s or %s, got %q", Spread, With, Apart, r.Kind)
	case r.Kind == Spread && (r.MaxSkew < 1 || r.MaxSkew > maxCount):
		return fault.New(fault.Invalid, "max_skew must be 1 to %d, got %d", maxCount, r.MaxSkew)
	case r.Kind != Spread && r.MaxSkew != 0:
		return fault.New(fault.Invalid, "max_skew is for %s only, got %d", Spread, r.MaxSkew)
	}
	return nil
}

// domains are the places of one kind.
type domains struct {
	over  string
	of    []int32 // by site; -1: it has none
	names []string
	sites [][]int32 // by domain, ascending
	at    []int32   // by site: where in the list of its domain
}

func (p *planner) domainsOf(over string) *domains {
	if d, ok := p.domains[over]; ok {
		return d
	}
	d := &domains{over: over, of: make([]int32, len(p.sites)), at: make([]int32, len(p.sites))}
	index := map[string]int32{}
	for i := range p.sites {
		s := &p.sites[i]
		name := s.ID
		switch over {
		case "":
		case "region":
			name = s.Region
		default:
			name = s.Attributes[over]
		}
		k, ok := index[name]
		switch {
		case name == "":
			d.of[i] = -1
			continue
		case !ok:
			k = int32(len(d.names))
			index[name] = k
			d.names, d.sites = append(d.names, name), append(d.sites, nil)
		}
		d.of[i], d.at[i] = k, int32(len(d.sites[k]))
		d.sites[k] = append(d.sites[k], int32(i))
	}
	p.domains[over] = d
	return d
}

// group is where the replicas of its works are.
type group struct {
	sites   map[int32]int64
	total   int64
	tallies []*tally
}

// tally counts a group by domain.
type tally struct {
	*domains
	group  *group
	counts []int64 // nil: each site is a domain
	skews  []*skew
}

// count returns how many replicas domain k has.
func (t *tally) count(k int32) int64 {
	if t.counts == nil {
		return t.group.sites[k]
	}
	return t.counts[k]
}

// skew knows the fewest replicas in a domain that counts.
type skew struct {
	mask  *mask
	in    []bool          // by domain: some candidate passes the filters
	level map[int64]int64 // domains that count, by replicas
	least int64
}

// setGroups makes the groups that rules name.
func (p *planner) setGroups(s *Snapshot, queue []*Work) {
	named := map[string]bool{}
	for _, w := range queue {
		for i := range w.Tasks {
			for _, r := range w.Tasks[i].Rules {
				named[cmp.Or(r.Of, w.ID)] = true
			}
		}
	}
	if len(named) == 0 {
		return
	}
	p.groups = make(map[string]*group, len(named))
	for name := range named {
		p.groups[name] = &group{sites: map[int32]int64{}}
	}
	waits := map[string]bool{}
	for _, w := range queue {
		waits[w.ID] = true
		if g := p.groups[w.ID]; g != nil {
			g.seed(p, w.Placed)
		}
	}
	for name, g := range p.groups {
		if !waits[name] {
			g.seed(p, s.Groups[name])
		}
	}
}

func (g *group) seed(p *planner, placed map[string]int) {
	for id, n := range placed {
		if i, ok := p.siteIndex[id]; ok && n > 0 {
			g.sites[i] += int64(n)
			g.total += int64(n)
		}
	}
}

// groupsOf returns the groups w counts in.
func (p *planner) groupsOf(w *Work) []*group {
	var out []*group
	for _, name := range append([]string{w.ID}, w.Groups...) {
		if g := p.groups[name]; g != nil && !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out
}

// tallyOf counts g by domains of a kind.
func (g *group) tallyOf(d *domains) *tally {
	for _, t := range g.tallies {
		if t.domains == d {
			return t
		}
	}
	t := &tally{domains: d, group: g}
	if d.over != "" {
		t.counts = make([]int64, len(d.names))
		for i, n := range g.sites {
			if k := d.of[i]; k >= 0 {
				t.counts[k] += n
			}
		}
	}
	g.tallies = append(g.tallies, t)
	return t
}

// add puts one replica more (or, negative, less) at site i.
func (g *group) add(i int32, n int64) {
	for _, t := range g.tallies {
		k := t.of[i]
		if k < 0 {
			continue
		}
		had := t.count(k)
		for _, s := range t.skews {
			if s.in[k] {
				s.move(had, had+n)
			}
		}
		if t.counts != nil {
			t.counts[k] += n
		}
	}
	g.total += n
	if g.sites[i] += n; g.sites[i] == 0 {
		delete(g.sites, i)
	}
}

// move notes that one domain has another number of replicas, one more or less.
func (s *skew) move(from, to int64) {
	if s.level[from]--; s.level[from] == 0 {
		delete(s.level, from)
		if from == s.least {
			s.least = to
		}
	}
	s.level[to]++
	s.least = min(s.least, to)
}

// reach is the domains in which some candidate passes the filters.
type reach struct {
	in []bool
	n  int64
}

func (m *mask) reach(d *domains) *reach {
	if r, ok := m.reaches[d]; ok {
		return r
	}
	r := &reach{in: make([]bool, len(d.names))}
	for i, ok := range m.pass {
		if k := d.of[i]; ok && k >= 0 && !r.in[k] {
			r.in[k] = true
			r.n++
		}
	}
	if m.reaches == nil {
		m.reaches = map[*domains]*reach{}
	}
	m.reaches[d] = r
	return r
}

// skewOf returns the fewest replicas in domains where something passes m.
func (t *tally) skewOf(m *mask) *skew {
	for _, s := range t.skews {
		if s.mask == m {
			return s
		}
	}
	r := m.reach(t.domains)
	s := &skew{mask: m, in: r.in, level: map[int64]int64{}}
	some := int64(0)
	count := func(k int32, n int64) {
		if n > 0 && r.in[k] {
			s.level[n]++
			some++
			if some == 1 || n < s.least {
				s.least = n
			}
		}
	}
	if t.counts == nil {
		for k, n := range t.group.sites {
			count(k, n)
		}
	} else {
		for k, n := range t.counts {
			count(int32(k), n)
		}
	}
	if some < r.n {
		s.least, s.level[0] = 0, r.n-some
	}
	t.skews = append(t.skews, s)
	return s
}

// ruling is a rule of a task during a plan.
type ruling struct {
	*Rule
	*tally
	skew   *skew
	member bool   // the work is itself one of those that count
	whose  string // for reasons
}

// rulingsOf returns the rules of t, those that are not preferred first.
func (p *planner) rulingsOf(w *Work, t *Task) []*ruling {
	var out []*ruling
	for _, preferred := range []bool{false, true} {
		for i := range t.Rules {
			r := &t.Rules[i]
			if r.Preferred != preferred {
				continue
			}
			g := p.groups[cmp.Or(r.Of, w.ID)]
			out = append(out, &ruling{
				Rule: r, tally: g.tallyOf(p.domainsOf(r.Over)),
				member: slices.Contains(p.groupsOf(w), g), whose: cmp.Or(r.Of, "the work itself"),
			})
		}
	}
	return out
}

// hard returns how many of the rules are not preferred.
func hard(rules []*ruling) int {
	n := slices.IndexFunc(rules, func(r *ruling) bool { return r.Preferred })
	if n < 0 {
		return len(rules)
	}
	return n
}

// meet readies the rules for the table of h.
func meet(rules []*ruling, h *shape) {
	for _, r := range rules {
		if r.Kind == Spread {
			r.skew = r.skewOf(h.mask)
		}
	}
}

// open tells whether a replica may go to domain k.
func (r *ruling) open(k int32) bool {
	if k < 0 {
		return false
	}
	switch r.Kind {
	case Spread:
		return r.count(k)+1-r.skew.least <= int64(r.MaxSkew)
	case With:
		return r.count(k) > 0 || r.member && r.group.total == 0
	}
	return r.count(k) == 0
}

// why says why a replica may not go to site i, "" if it may.
func (r *ruling) why(i int32) string {
	k := r.of[i]
	if r.open(k) {
		return ""
	}
	if k < 0 {
		return "has no " + r.over + ", over which rule " + string(r.Kind) + " counts"
	}
	place := ""
	if r.over != "" {
		place = r.over + " " + r.names[k] + " "
	}
	n := strconv.FormatInt(r.count(k), 10) + " replicas of " + r.whose
	if r.count(k) == 1 {
		n = "1 replica of " + r.whose
	}
	switch {
	case r.Kind == Spread:
		return place + "has " + n + ", the place with the fewest " + strconv.FormatInt(r.skew.least, 10) +
			": one more would be more than " + strconv.Itoa(r.MaxSkew) + " ahead"
	case r.Kind == Apart:
		return place + "has " + n + ", from which it is to be apart"
	case r.group.total == 0:
		return "has to wait for a first replica of " + r.whose + ", with which it is to be"
	}
	return place + "has no replica of " + r.whose + ", with which it is to be"
}

// tier returns how many of the rules hold at site i before the first that does
// not.
func tier(rules []*ruling, i int32) int {
	for n, r := range rules {
		if !r.open(r.of[i]) {
			return n
		}
	}
	return len(rules)
}

// choose returns the best site for one replica of t by scores and rules, -1 if
// there is none.
func (p *planner) choose(t *part) int32 {
	p.refresh(t.shape)
	if len(t.rules) == 0 {
		return p.pick(t.shape, nil)
	}
	meet(t.rules, t.shape)
	for n := len(t.rules); ; n-- {
		if best := p.pick(t.shape, t.rules[:n]); best >= 0 || n == hard(t.rules) {
			return best
		}
	}
}

// pick returns the best site where all the rules hold, -1 if there is none.
func (p *planner) pick(h *shape, rules []*ruling) int32 {
	t := h.table
	if h.nfit == 0 {
		return -1
	}
	if len(rules) == 0 && len(t.vetoes) == 0 {
		return p.pickAny(t)
	}
	allow := func(i int32) bool { return tier(rules, i) == len(rules) && h.veto(i) < 0 }
	if t.keys == nil {
		return t.sheet.best(t, allow)
	}
	sel := &selection{first: t.keys.first, allow: allow}
	for _, r := range rules {
		if r.Kind == With && r.group.total > 0 && r.over == "" {
			return t.bestOf(r.group.sites, allow)
		}
		if r.over != "" {
			g := p.groveOf(t, r.domains)
			sel.first = func() int32 { return g.first(t.keys.key, rules) }
		}
	}
	return p.search(t, sel)
}

// pickAny returns the best site whatever rules and vetoes say.
func (p *planner) pickAny(t *table) int32 {
	if t.keys == nil {
		return t.sheet.best(t, nil)
	}
	return p.search(t, &selection{first: t.keys.first})
}

// veto returns the first policy whose least score site i does not reach, -1 if
// there is none.
func (h *shape) veto(i int32) int {
	for _, u := range h.vetoes {
		if h.scoreAt(u, i, nil) < int64(h.set.Uses[u].Min) {
			return u
		}
	}
	return -1
}

// vetoAt says why site i is not chosen by the policies' least scores.
func (h *shape) vetoAt(i int32) (out []Reason) {
	for _, u := range h.vetoes {
		if n, use := h.scoreAt(u, i, nil), &h.set.Uses[u]; n < int64(use.Min) {
			out = append(out, Reason{"veto", "scores " + strconv.FormatInt(n, 10) + " by " + use.Policy.ID +
				", at least " + strconv.Itoa(use.Min) + " wanted"})
		}
	}
	return out
}

// bestOf returns the best of a few sites.
func (t *table) bestOf(sites map[int32]int64, allow func(i int32) bool) int32 {
	best, most := int32(-1), int64(never)
	for i := range sites {
		if now := t.total(i, nil, t.fixMoved); now != never && (now > most || now == most && i < best) && allow(i) {
			best, most = i, now
		}
	}
	return best
}

// grove is the tree of a table once more, one for each domain.
type grove struct {
	*domains
	trees []*tree
}

func (p *planner) groveOf(t *table, d *domains) *grove {
	for _, g := range t.groves {
		if g.domains == d {
			return g
		}
	}
	g := &grove{domains: d}
	for _, sites := range d.sites {
		g.trees = append(g.trees, newTree(make([]int64, len(sites))))
	}
	g.copy(t.keys.key)
	t.groves = append(t.groves, g)
	return g
}

// copy takes all keys over.
func (g *grove) copy(keys []int64) {
	for k, tree := range g.trees {
		for n, i := range g.sites[k] {
			tree.key[n] = keys[i]
		}
		tree.build()
	}
}

func (g *grove) set(i int32, key int64) {
	if k := g.of[i]; k >= 0 {
		g.trees[k].set(g.at[i], key)
	}
}

// first returns the site with the highest key of the domains that are open by
// all rules over this kind, -1 if there is none.
func (g *grove) first(keys []int64, rules []*ruling) int32 {
	best := int32(-1)
	for k, tree := range g.trees {
		n := tree.first()
		if n < 0 {
			continue
		}
		i := g.sites[k][n]
		if best >= 0 && (keys[i] < keys[best] || keys[i] == keys[best] && i > best) {
			continue
		}
		if !slices.ContainsFunc(rules, func(r *ruling) bool { return r.domains == g.domains && !r.open(int32(k)) }) {
			best = i
		}
	}
	return best
}

// outAt returns why the rules and the policies' least scores keep site i out,
// and which preferred rules do not hold there.
func (t *part) outAt(i int32) []Reason {
	out := t.shape.vetoAt(i)
	for _, r := range t.rules {
		if why := r.why(i); why != "" {
			out = append(out, Reason{string(r.Kind), why})
		}
	}
	return out
}

// ruledOut says why t goes nowhere although it fits somewhere.
func (p *planner) ruledOut(t *part) string {
	noun := cmp.Or(p.opts.Noun, "center")
	best := p.pickAny(t.shape.table)
	fit := "fit"
	if t.shape.nfit == 1 {
		fit = "fits"
	}
	text := strconv.Itoa(t.shape.nfit) + " of " + strconv.Itoa(len(p.sites)) + " " + noun + "s " + fit +
		", none by rules and least scores; best is " + p.sites[best].ID
	if why := t.outAt(best); len(why) > 0 {
		text += ", which " + why[0].Text
	}
	return text
}
