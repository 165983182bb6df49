package policies

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// Limits of what a book remembers.
const (
	maxClasses = 8192
	maxJudged  = 1024
)

// class is what jobs have in common that policies look at.
type class struct {
	key   string
	facts expr.Facts
	chain []link
}

// link is a policy that decides about a class, with those after it.
type link struct {
	*entry
	filtersOnly bool
	flat        map[*tree][]*compiled // of each that may decide: those whose rules count
}

// around is what a choice rests on beside the policies and the queue.
type around struct {
	now time.Time
	// centers are the facts of centers by ID, as far as the platform has them, with
	// their version.
	centers func(ctx context.Context) (ids []string, facts []expr.Facts, version int64, err error)
	// module runs a function of a module for n centers.
	module func(ctx context.Context, m *module, function string, n int, facts func(i int) expr.Facts, took func(i int, result uint64)) error
}

// around is what the platform has now.
func (s *Service) around() *around { return &around{s.db.Now(), s.tags.PlacementFacts, s.evaluate} }

// evaluate runs a module and keeps account of its faults.
func (s *Service) evaluate(ctx context.Context, m *module, function string, n int, facts func(i int) expr.Facts, took func(i int, result uint64)) error {
	isolate, err := m.evaluate(ctx, function, n, facts, took)
	if err == nil {
		return nil
	}
	if was, _ := m.state(); !was || isolate {
		s.faulted(ctx, m, isolate, line(err))
	}
	return err
}

// cycle is the work of one Choose.
type cycle struct {
	*around
	b        *book
	ctx      context.Context // of the call that the cycle is
	snap     *place.Snapshot
	platform *place.Set
	prefix   string // of the keys of classes: which policies are effective
	active   []bool

	known   map[string]expr.Facts // of centers, by ID; nil: not read yet
	version int64
	facts   []expr.Facts // by candidate, with the live ones; nil: not made yet
	holds   []*class     // by candidate: whose job facts are in facts
	judged  map[judgeKey]*judged
}

// judgeKey names what a rule says of all centers.
type judgeKey struct {
	rule  *rule
	class string // "": of any job
}

// judged is what a rule says of centers, by ID.
type judged struct {
	out    map[string]string     // of a filter: why a center is out
	scores map[string]place.Fact // of a score
	failed string                // of a module: why it failed
}

// verdict is what a Choose rests on.
type verdict struct {
	generation int64
	arms       map[string][][2]string // by job: test and arm
}

// Choose implements [scheduler.Policies].
func (s *Service) Choose(ctx context.Context, snap *place.Snapshot, items []*scheduler.Item, works []place.Work, platform *place.Set) (scheduler.Verdict, error) {
	b, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	return s.around().choose(ctx, b, snap, items, works, platform)
}

// Generation implements [scheduler.Policies].
func (s *Service) Generation(ctx context.Context) (int64, error) {
	b, err := s.current(ctx)
	if err != nil {
		return 0, err
	}
	return b.generation, nil
}

// Class implements [scheduler.Policies].
func (s *Service) Class(it *scheduler.Item) string {
	s.mu.Lock()
	b := s.book
	s.mu.Unlock()
	if b == nil || len(b.entries) == 0 {
		return ""
	}
	r := b.reads
	r.time = false
	return string(r.appendClass(nil, it, &it.Work, time.Time{}))
}

// CommitTx implements [scheduler.Verdict].
func (v *verdict) CommitTx(ctx context.Context, tx *db.Tx, placed []scheduler.Placement) error {
	if err := tx.CheckLater(ctx, "read which policies are in force", `SELECT 1 FROM policy_state WHERE one = 1 AND generation = $1`, []any{v.generation}, func(n int64) error {
		if n == 0 {
			return fault.New(fault.Conflict, "other policies are in force than those that decided")
		}
		return nil
	}); err != nil {
		return err
	}
	var rows [][]any
	seen := map[string]bool{}
	for _, p := range placed {
		if seen[p.JobID] {
			continue
		}
		seen[p.JobID] = true
		for _, a := range v.arms[p.JobID] {
			rows = append(rows, []any{a[0], p.JobID, a[1], db.Micros(tx.Now)})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := tx.InsertNew(ctx, "policy_test_jobs", []string{"test_id", "job_id", "arm", "at"}, 2, rows); err != nil {
		return fmt.Errorf("record arms: %w", err)
	}
	return nil
}

// setKey names a set of a cycle.
type setKey struct {
	class *class
	arms  string
	own   *place.Set
}

func (a *around) choose(ctx context.Context, b *book, snap *place.Snapshot, items []*scheduler.Item, works []place.Work, platform *place.Set) (*verdict, error) {
	v := &verdict{generation: b.generation, arms: map[string][][2]string{}}
	if len(b.entries) == 0 {
		return v, nil
	}
	c := &cycle{around: a, b: b, ctx: ctx, snap: snap, platform: platform, judged: map[judgeKey]*judged{}}
	c.effective()
	sets := map[setKey]*place.Set{}
	var key []byte
	for i := range works {
		w := &works[i]
		key = b.reads.appendClass(append(key[:0], c.prefix...), items[i], w, c.now)
		k := c.class(key, items[i], w)
		if len(k.chain) == 0 {
			continue
		}
		arms, chosen := "", []*arm(nil)
		for _, l := range k.chain {
			if l.test == nil {
				continue
			}
			job := items[i].Work.ID // which several works may be of
			a := l.test.arm(job)
			arms += a.name + "\x00"
			chosen = append(chosen, a)
			if at := [2]string{l.test.id, a.name}; !slices.Contains(v.arms[job], at) {
				v.arms[job] = append(v.arms[job], at)
			}
		}
		at := setKey{k, arms, w.Set}
		set, ok := sets[at]
		if !ok {
			var err error
			if set, err = c.set(k, chosen, w.Set); err != nil {
				return nil, err
			}
			sets[at] = set
		}
		w.Set = set
	}
	return v, nil
}

// effective finds which policies' dates include now.
func (c *cycle) effective() {
	dated := false
	for _, e := range c.b.entries {
		d := &e.base.Document
		dated = dated || !d.From.IsZero() || !d.To.IsZero()
		c.active = append(c.active, !c.now.Before(d.From) && (d.To.IsZero() || c.now.Before(d.To)))
	}
	if dated {
		c.prefix = fmt.Sprint(c.active)
	}
}

// class returns the class of a job.
func (c *cycle) class(key []byte, it *scheduler.Item, w *place.Work) *class {
	b := c.b
	b.mu.Lock()
	k := b.classes[string(key)]
	b.mu.Unlock()
	if k != nil {
		return k
	}
	k = &class{key: string(key), facts: jobFacts(it, w, c.now)}
	filtersOnly := false
	for i, e := range b.entries {
		if !c.active[i] || e.scope.why(it, w) != "" || !e.base.matches(k.facts) {
			continue
		}
		l := link{entry: e, filtersOnly: filtersOnly, flat: map[*tree][]*compiled{}}
		for _, t := range e.trees() {
			l.flat[t] = t.flatten(it, w, k.facts, true, nil)
		}
		k.chain = append(k.chain, l)
		how := e.base.Combination
		if how != Merge && how != Filters {
			break
		}
		filtersOnly = filtersOnly || how == Filters
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if have := b.classes[k.key]; have != nil {
		return have
	}
	if len(b.classes) >= maxClasses {
		clear(b.classes)
	}
	b.classes[k.key] = k
	return k
}

// matches reports whether all match rules hold.
func (c *compiled) matches(f expr.Facts) bool {
	for _, m := range c.match {
		if ok, _ := m.Holds(f); !ok { // what cannot be said does not hold
			return false
		}
	}
	return true
}

// flatten returns those of t and what it includes whose rules count for a job;
// its own do, its parts' where they match it.
func (t *tree) flatten(it *scheduler.Item, w *place.Work, f expr.Facts, top bool, out []*compiled) []*compiled {
	if !top && (t.Scope.why(it, w) != "" || !t.matches(f)) {
		return out
	}
	out = append(out, t.compiled)
	for _, p := range t.parts {
		out = p.flatten(it, w, f, false, out)
	}
	return out
}

// set makes the set that decides about a class. Own is the set of the job's
// own weights, nil if it has none.
func (c *cycle) set(k *class, arms []*arm, own *place.Set) (*place.Set, error) {
	set := &place.Set{}
	names := []string{}
	weights, least := map[string]int64{}, map[string]int{}
	type score struct {
		*rule
		weight int64
		judged *judged
	}
	var scores []score
	var evaluator *place.Evaluator
	var parts [][]*compiled
	var only []bool
	for _, l := range k.chain {
		t, name := l.base, l.base.name()
		if l.test != nil {
			t, name = arms[0].tree, fmt.Sprintf("%s[%s/%s]", arms[0].tree.name(), l.test.id, arms[0].name)
			arms = arms[1:]
		}
		names = append(names, name)
		parts, only = append(parts, l.flat[t]), append(only, l.filtersOnly)
		if t.JobWeights == Ignore {
			own = nil
		}
	}
	for i, part := range parts {
		for _, p := range part {
			for _, r := range p.filters {
				if f, ok := c.filter(r, k); ok {
					set.Filters = append(set.Filters, f)
				}
			}
			for id, n := range p.Rules.Minimums {
				least[id] = max(least[id], int(n))
			}
			if only[i] || own != nil {
				continue
			}
			if evaluator == nil {
				evaluator = p.evaluator
			}
			if p.Algorithm != "" && len(p.weights) > 0 && !strings.Contains(set.Algorithm, p.Algorithm) {
				set.Algorithm += map[bool]string{true: " + "}[set.Algorithm != ""] + p.Algorithm
			}
			mine := map[string]int64{}
			for _, w := range p.weights {
				if slices.ContainsFunc(p.scores, func(r *rule) bool { return r.id == w.Policy }) {
					mine[w.Policy] = w.Weight
				} else {
					weights[w.Policy] += w.Weight
				}
			}
			for _, r := range p.scores {
				j := c.judge(r, k, false)
				if j.failed == "" {
					scores = append(scores, score{r, mine[r.id], j})
				} else if r.use.OnFailure == Refuse {
					set.Filters = append(set.Filters, refuse(r, j))
				}
			}
		}
	}
	counts := false
	for _, p := range place.Policies() { // in the engine's order
		if w := weights[p.ID]; w > 0 {
			set.Uses, counts = append(set.Uses, place.Use{Policy: p, Weight: w}), true
		}
	}
	for _, s := range scores {
		counts = counts || s.weight > 0
	}
	switch {
	case own != nil && len(set.Filters)+len(least) == 0:
		return own, nil // no policy has a say
	case own != nil:
		set.Uses, set.Evaluator = slices.Clone(own.Uses), own.Evaluator
		names = append([]string{own.ID}, names...)
	case !counts:
		set.Uses, set.Evaluator = slices.Clone(c.platform.Uses), c.platform.Evaluator
		names = append(names, c.platform.ID)
	}
	if evaluator != nil {
		set.Evaluator = *evaluator
	}
	veto(set, least)
	taken := map[string]int{}
	for _, s := range scores {
		id := s.id
		if taken[s.id]++; taken[s.id] > 1 {
			id = fmt.Sprintf("%s~%d", s.id, taken[s.id])
		}
		set.Uses = append(set.Uses, place.Use{Policy: scorePolicy(id, s.rule, s.judged), Weight: s.weight})
	}
	set.ID = strings.Join(names, " + ")
	if err := set.Check(); err != nil {
		return nil, fmt.Errorf("set of %s: %w", set.ID, err)
	}
	return set, nil
}

// veto adds least scores to a set; policies that are not in it count for nothing
// else.
func veto(set *place.Set, least map[string]int) {
	for _, p := range place.Policies() { // in the engine's order
		n, ok := least[p.ID]
		if !ok {
			continue
		}
		i := slices.IndexFunc(set.Uses, func(u place.Use) bool { return u.Policy.ID == p.ID })
		if i < 0 {
			i = len(set.Uses)
			set.Uses = append(set.Uses, place.Use{Policy: p})
		}
		set.Uses[i].Min = max(set.Uses[i].Min, n)
	}
}

// filter makes a filter of a rule; ok is false if it lets everything pass.
func (c *cycle) filter(r *rule, k *class) (f place.Filter, ok bool) {
	j := c.judge(r, k, true)
	if j.failed != "" {
		return refuse(r, j), r.use.OnFailure == Refuse
	}
	return place.Filter{ID: "policy." + r.id, Doc: "a filter of policy " + r.owner, Reads: place.ReadsNothing, Check: func(_ *place.Ask, s *place.Site) string { return j.out[s.ID] }}, true
}

// refuse lets no center pass: the module of r failed.
func refuse(r *rule, j *judged) place.Filter {
	why := fmt.Sprintf("cannot be judged: module %s of policy %s failed: %s", r.use.ID, r.owner, j.failed)
	return place.Filter{ID: "policy." + r.id, Doc: "policy " + r.owner, Reads: place.ReadsNothing, Check: func(*place.Ask, *place.Site) string { return why }}
}

// scorePolicy makes a policy of the engine of an own score.
func scorePolicy(id string, r *rule, j *judged) place.Policy {
	return place.Policy{ID: id, Title: id, Doc: "a score of policy " + r.owner, Factors: []place.Factor{{
		ID: id, Better: place.Higher, Absolute: true, Reads: place.ReadsNothing, // the job was looked at before
		Measure: func(_ *place.Ask, s *place.Site) place.Fact { return j.scores[s.ID] },
	}}}
}

// judge asks a rule about all centers.
func (c *cycle) judge(r *rule, k *class, filter bool) *judged {
	key := judgeKey{rule: r}
	if r.expr == nil || r.expr.ReadsAny("job.") || r.expr.ReadsAny("time.") {
		key.class = k.key
	}
	if j := c.judged[key]; j != nil {
		return j
	}
	if err := c.load(); err != nil {
		// Only reading the centers can fail; the cycle's own reads would too.
		return &judged{out: c.each("the centers cannot be read: " + line(err))}
	}
	keep := r.expr != nil && !r.expr.Live()
	if keep {
		if j := c.b.remembered(key, c.version); j != nil {
			c.judged[key] = j
			return j
		}
	}
	j := &judged{}
	if r.expr != nil {
		c.byExpression(r, k, filter, j)
	} else {
		c.byModule(r, k, filter, j)
	}
	c.judged[key] = j
	if keep {
		c.b.remember(key, c.version, j)
	}
	return j
}

func (b *memory) remembered(key judgeKey, version int64) *judged {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.places != version {
		clear(b.judged)
		b.places = version
	}
	return b.judged[key]
}

func (b *memory) remember(key judgeKey, version int64, j *judged) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.places != version {
		return
	}
	if len(b.judged) >= maxJudged {
		clear(b.judged)
	}
	b.judged[key] = j
}

// each says the same of every center.
func (c *cycle) each(why string) map[string]string {
	out := make(map[string]string, len(c.snap.Candidates))
	for i := range c.snap.Candidates {
		out[c.snap.Candidates[i].ID] = why
	}
	return out
}

// load reads what is known of centers.
func (c *cycle) load() error {
	if c.known != nil {
		return nil
	}
	ids, facts, version, err := c.centers(c.ctx)
	if err != nil {
		return err
	}
	c.known, c.version = make(map[string]expr.Facts, len(ids)), version
	for i, id := range ids {
		c.known[id] = facts[i]
	}
	c.facts, c.holds = make([]expr.Facts, len(c.snap.Candidates)), make([]*class, len(c.snap.Candidates))
	return nil
}

// of returns what a rule reads of candidate i for a class.
func (c *cycle) of(i int, k *class) expr.Facts {
	if c.facts[i] == nil {
		f := expr.PolicyCenter.Facts()
		x := &c.snap.Candidates[i]
		if known, ok := c.known[x.ID]; ok {
			maps.Copy(f, known)
		} else { // it came this moment
			f["id"], f["name"], f["region"], f["security_grade"] = x.ID, x.Name, x.Region, x.SecurityGrade
			if x.Attributes != nil {
				f["labels"] = x.Attributes
			}
		}
		liveFacts(f, x)
		c.facts[i] = f
	}
	if c.holds[i] != k {
		maps.Copy(c.facts[i], k.facts)
		c.holds[i] = k
	}
	return c.facts[i]
}

// said is what the owner of a job reads where a filter does not let a center
// pass.
func (r *rule) said(why string) string {
	if r.message != "" {
		why = r.message
	}
	return why + " (policy " + r.owner + ")"
}

func (c *cycle) byExpression(r *rule, k *class, filter bool, j *judged) {
	j.out, j.scores = map[string]string{}, map[string]place.Fact{}
	for i := range c.snap.Candidates {
		id, f := c.snap.Candidates[i].ID, c.of(i, k)
		if filter {
			if ok, _ := r.expr.Holds(f); !ok {
				j.out[id] = r.said(r.expr.Why(f))
			}
		} else if n, known, err := r.expr.Number(f); err == nil && known {
			j.scores[id] = score(n)
		}
	}
}

func (c *cycle) byModule(r *rule, k *class, filter bool, j *judged) {
	j.out, j.scores = map[string]string{}, map[string]place.Fact{}
	if r.module == nil {
		j.failed = "it is not there"
		return
	}
	function := scoreFunction
	if filter {
		function = filterFunction
	}
	// In the order of IDs: a module that remembers says the same again.
	order := make([]int, len(c.snap.Candidates))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(c.snap.Candidates[a].ID, c.snap.Candidates[b].ID) })
	err := c.module(c.ctx, r.module, function, len(order), func(i int) expr.Facts { return c.of(order[i], k) }, func(i int, result uint64) {
		id := c.snap.Candidates[order[i]].ID
		if !filter {
			if n := math.Float64frombits(result); !math.IsNaN(n) {
				j.scores[id] = score(n)
			}
		} else if int32(result) == 0 {
			j.out[id] = r.said("module " + r.use.ID + " keeps it out")
		}
	})
	if err != nil {
		j.failed = line(err)
	}
}

// score rounds and cuts a score.
func score(n float64) place.Fact {
	return place.Known(int64(math.Round(min(max(n, 0), place.MaxScore))))
}
