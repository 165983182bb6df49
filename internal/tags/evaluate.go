package tags

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

const (
	// lookEvery is how soon a change of catalog or library is noticed.
	lookEvery = time.Second
	// liveEvery is how often rules over live figures are looked at.
	liveEvery = 10 * time.Second
	// sweepEvery is how often all is looked at, and what nothing tells of:
	// nodes, registered resources, what was deleted.
	sweepEvery = 15 * time.Second
	// gap is how long nobody may have looked for a condition to count as
	// having lasted.
	gap = time.Minute
)

// Run looks at the rules until ctx ends. In a cluster it belongs under
// a lease (run.Elector): two would do the same work twice.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var seen struct {
		catalog, tags       int64
		live, sweep, forget time.Time
	}
	for {
		core.Round(ctx, lookEvery)
		now := s.db.Now()
		catalog, tags, err := s.versions(ctx)
		if err == nil {
			var kinds []Kind
			switch {
			case tags != seen.tags || now.Sub(seen.sweep) >= sweepEvery || now.Before(seen.sweep):
				kinds = allKinds
			case catalog != seen.catalog:
				kinds = []Kind{Center, Spec, Image}
			case now.Sub(seen.live) >= liveEvery && s.anyLive():
				kinds = []Kind{Center}
			}
			if len(kinds) > 0 {
				if _, err = s.Evaluate(ctx, kinds...); err == nil {
					seen.catalog, seen.tags, seen.live = catalog, tags, now
					if len(kinds) == len(allKinds) {
						seen.sweep = now
					}
				}
			}
		}
		if err == nil && (now.Sub(seen.forget) >= purge || now.Before(seen.forget)) {
			err = s.db.Tx(ctx, func(tx *db.Tx) error { return forgetOld(ctx, tx) })
			seen.forget = now
		}
		if err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("rules not looked at, will try again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *Service) versions(ctx context.Context) (catalog, tags int64, err error) {
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return 0, 0, err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		tags, _, err = getVersions(ctx, tx)
		return err
	})
	return cat.Version, tags, err
}

// anyLive tells whether a rule compiled here reads live figures.
func (s *Service) anyLive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.compiled {
		if r.Live && r.Mode == Automatic {
			return true
		}
	}
	return false
}

// Looked is what a look at the rules did.
type Looked struct {
	Objects int // looked at
	Changed int // values written
}

// look is one look at the rules.
type look struct {
	s       *Service
	w       *world
	now     time.Time
	paused  bool                            // nobody looked for a while
	rules   []*rule                         // best first
	was     []RuleSpec                      // those and the ones that do not compile
	states  map[string]map[string]*standing // by rule and object
	moved   map[string]map[string]standing
	matched map[string]int64
	trouble map[string]string
}

// standing is where a rule with a memory stands for an object.
type standing struct {
	on    bool
	since int64 // when the condition to change was first seen; 0: it is not met
}

// Evaluate looks at the rules for all objects of the kinds and writes what
// follows. It is safe to call at any time; Run does at intervals.
func (s *Service) Evaluate(ctx context.Context, kinds ...Kind) (Looked, error) {
	ctx = everything(ctx)
	l := &look{s: s, now: s.db.Now(), states: map[string]map[string]*standing{}, moved: map[string]map[string]standing{}, matched: map[string]int64{}, trouble: map[string]string{}}
	s.mu.Lock()
	since := l.now.Sub(s.round)
	l.paused = s.round.IsZero() || since > gap || since < 0
	s.mu.Unlock()
	if err := l.load(ctx); err != nil {
		return Looked{}, err
	}
	if s.res == nil {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return k == Resource })
	}
	w, found, err := s.survey(ctx, kinds)
	if err != nil {
		return Looked{}, err
	}
	l.w = w
	var edits []edit
	for _, o := range found {
		edits = append(edits, l.object(o)...)
	}
	edits = append(edits, l.leftovers(kinds, found)...)
	l.forget(kinds, found)
	out := Looked{Objects: len(found)}
	if out.Changed, err = l.write(ctx, edits); err != nil {
		return Looked{}, err
	}
	if err := l.remember(ctx, kinds); err != nil {
		return Looked{}, err
	}
	s.mu.Lock()
	s.round = l.now
	s.mu.Unlock()
	if out.Changed > 0 {
		s.log.Info("rules changed tags", "objects", out.Objects, "changed", out.Changed)
	}
	return out, nil
}

// load reads the rules that are on, best first, and where they stand.
func (l *look) load(ctx context.Context) error {
	return l.s.db.View(ctx, func(tx *db.Tx) error {
		specs, err := readRules(ctx, tx, `WHERE r.mode = 1`)
		if err != nil {
			return err
		}
		l.rules, l.was = nil, specs
		for i := range specs {
			if r := l.s.compiledRule(&specs[i]); r != nil {
				l.rules = append(l.rules, r)
			} else {
				l.trouble[specs[i].ID] = specs[i].Error
			}
		}
		slices.SortStableFunc(l.rules, func(a, b *rule) int {
			return cmp.Or(-cmp.Compare(a.Priority, b.Priority), strings.Compare(a.ID, b.ID))
		})
		clear(l.states)
		return tx.Query(ctx, `SELECT rule_id, object, is_on, since FROM tag_rule_states`, nil, func(row db.Row) error {
			var id, object string
			st := &standing{}
			if err := row.Scan(&id, &object, &st.on, &st.since); err != nil {
				return err
			}
			if l.states[id] == nil {
				l.states[id] = map[string]*standing{}
			}
			l.states[id][object] = st
			return nil
		})
	})
}

// object returns what rules change about an object.
func (l *look) object(o *object) []edit {
	var facts map[string]any // made when a rule needs them
	wanted := map[string]stored{}
	held := map[string]bool{} // tags of rules that could not be evaluated
	for _, r := range l.rules {
		when := r.when[o.kind]
		d := l.w.defs[r.Key]
		if when == nil || d == nil || d.Status != Active {
			continue
		}
		if facts == nil {
			facts = l.w.facts(o, true)
		}
		on, err := l.stands(r, o, facts)
		if err != nil {
			l.say(r, o, err.Error())
			held[r.Key] = true
			continue
		}
		if !on {
			continue
		}
		v := r.Value
		if e := r.value[o.kind]; e != nil {
			if v, err = e.Text(facts); err != nil {
				l.say(r, o, err.Error())
				held[r.Key] = true
				continue
			}
			if v == "" {
				continue
			}
			if p := d.problem(v); p != "" {
				l.say(r, o, "the value "+p)
				continue
			}
		}
		l.matched[r.ID]++
		if _, taken := wanted[r.Key]; !taken {
			wanted[r.Key] = stored{object: o.ref, key: r.Key, kind: o.kind, State: State{Value: v}, actor: actor{Rule, r.ID, "", r.Title}}
		}
	}
	return l.differences(o, wanted, held)
}

func (l *look) differences(o *object, wanted map[string]stored, held map[string]bool) []edit {
	var edits []edit
	for _, v := range l.w.values[o.ref] {
		next, want := wanted[v.key]
		delete(wanted, v.key)
		switch {
		case v.source == Person: // stays, whatever rules say
		case held[v.key] && !want:
		case !want:
			edits = append(edits, edit{old: v, next: stored{object: o.ref, key: v.key, kind: o.kind, actor: actor{Rule, v.origin, "", "the rule no longer applies"}}, gone: true})
		case v.Value != next.Value || v.origin != next.origin:
			edits = append(edits, edit{old: v, next: next})
		}
	}
	for _, key := range sorted(wanted) {
		edits = append(edits, edit{next: wanted[key]})
	}
	return edits
}

// stands tells whether a rule is on for an object now.
func (l *look) stands(r *rule, o *object, facts map[string]any) (bool, error) {
	when, err := r.when[o.kind].Holds(facts)
	if !r.sticky() {
		return when, err
	}
	st := standing{}
	if have := l.states[r.ID][o.ref]; have != nil {
		st = *have
	}
	if err != nil {
		l.say(r, o, err.Error())
		return st.on, nil // as it was
	}
	flip := when
	if st.on {
		if flip = !when; r.Until != "" {
			if flip, err = r.until[o.kind].Holds(facts); err != nil {
				l.say(r, o, err.Error())
				return st.on, nil
			}
		}
	}
	next := standing{on: st.on}
	if flip {
		if next.since = st.since; next.since == 0 || l.paused || next.since > db.Micros(l.now) {
			next.since = db.Micros(l.now)
		}
		if db.Micros(l.now)-next.since >= r.Hold*int64(time.Second/time.Microsecond) {
			next = standing{on: !st.on}
		}
	}
	if next != st {
		l.move(r.ID, o.ref, next)
	}
	return next.on, nil
}

// say keeps the first thing that is wrong with a rule.
func (l *look) say(r *rule, o *object, problem string) {
	if l.trouble[r.ID] == "" {
		l.trouble[r.ID] = "on " + o.ref + ": " + problem
	}
}

// leftovers are values of objects that were deleted. A node may come back: it
// keeps what people set.
func (l *look) leftovers(kinds []Kind, found []*object) []edit {
	there := make(map[string]bool, len(found))
	for _, o := range found {
		there[o.ref] = true
	}
	var edits []edit
	for _, ref := range sorted(l.w.values) {
		for _, v := range l.w.values[ref] {
			if there[ref] || !slices.Contains(kinds, v.kind) || v.kind == Node && v.source == Person {
				continue
			}
			edits = append(edits, edit{old: v, next: stored{object: ref, key: v.key, kind: v.kind, actor: actor{Rule, "", "", "the object was deleted"}}, gone: true})
		}
	}
	return edits
}

// write writes edits, except where a value is no longer what they saw.
func (l *look) write(ctx context.Context, edits []edit) (changed int, err error) {
	const step = 1000 // so that people's writes come in between
	for ; len(edits) > 0; edits = edits[min(len(edits), step):] {
		part, n := edits[:min(len(edits), step)], 0
		err := l.s.db.Tx(ctx, func(tx *db.Tx) error {
			refs := make([]string, 0, len(part))
			for _, e := range part {
				refs = append(refs, e.next.object)
			}
			have, err := readValuesOf(ctx, tx, slices.Compact(refs))
			if err != nil {
				return err
			}
			defs, err := readDefinitions(ctx, tx, "")
			if err != nil {
				return err
			}
			var still []edit
			for _, e := range part {
				i := slices.IndexFunc(have[e.next.object], func(v *stored) bool { return v.key == e.next.key })
				if defs[e.next.key] == nil || (i < 0) != (e.old == nil) || i >= 0 && *have[e.next.object][i] != *e.old {
					continue // somebody was faster; the next look sees that
				}
				still = append(still, e)
			}
			if n = len(still); n == 0 {
				return nil
			}
			placement, err := writeEdits(ctx, tx, still, func(int) {})
			if err != nil {
				return err
			}
			return l.s.changed(ctx, tx, placement)
		})
		if err != nil {
			return changed, fmt.Errorf("write what rules say: %w", err)
		}
		changed += n
	}
	return changed, nil
}

// forget drops where rules stood for objects that were deleted.
func (l *look) forget(kinds []Kind, found []*object) {
	there := make(map[string]bool, len(found))
	for _, o := range found {
		there[o.ref] = true
	}
	for id, states := range l.states {
		for object := range states {
			if k, _, _, _ := split(object); !there[object] && slices.Contains(kinds, k) {
				l.move(id, object, standing{})
			}
		}
	}
}

func (l *look) move(ruleID, object string, to standing) {
	if l.moved[ruleID] == nil {
		l.moved[ruleID] = map[string]standing{}
	}
	l.moved[ruleID][object] = to
}

// remember writes where rules stand and what the look found.
func (l *look) remember(ctx context.Context, kinds []Kind) error {
	var looks [][]any
	if len(kinds) >= 5 { // counts are of all kinds, or say too little
		for _, r := range l.was {
			n, problem := l.matched[r.ID], clipTo(l.trouble[r.ID], 300)
			if r.Matched != n || r.Error != problem || l.now.Sub(r.EvaluatedAt) >= 10*time.Minute {
				looks = append(looks, []any{r.ID, n, problem, db.Micros(l.now)})
			}
		}
	}
	if len(l.moved) == 0 && len(looks) == 0 {
		return nil
	}
	return l.s.db.Tx(ctx, func(tx *db.Tx) error {
		now := map[string]int64{}
		err := tx.Query(ctx, `SELECT rule_id, version FROM tag_rules`, nil, func(row db.Row) error {
			var id string
			var version int64
			err := row.Scan(&id, &version)
			now[id] = version
			return err
		})
		if err != nil {
			return fmt.Errorf("read versions of rules: %w", err)
		}
		for _, r := range l.was {
			if now[r.ID] != r.Version {
				continue // it was changed or deleted meanwhile and stands nowhere
			}
			for _, object := range sorted(l.moved[r.ID]) {
				st := l.moved[r.ID][object]
				q, args := `DELETE FROM tag_rule_states WHERE rule_id = $1 AND object = $2`, []any{r.ID, object}
				if st != (standing{}) {
					q = `INSERT INTO tag_rule_states (rule_id, object, is_on, since) VALUES ($1, $2, $3, $4) ON CONFLICT (rule_id, object) DO UPDATE SET is_on = $3, since = $4`
					args = append(args, st.on, st.since)
				}
				if _, err := tx.Exec(ctx, q, args...); err != nil {
					return fmt.Errorf("remember rule %s: %w", r.ID, err)
				}
			}
		}
		for _, x := range looks {
			if now[x[0].(string)] == 0 {
				continue
			}
			if _, err := tx.Exec(ctx, `INSERT INTO tag_rule_looks (rule_id, matched, problem, evaluated_at) VALUES ($1, $2, $3, $4)
				ON CONFLICT (rule_id) DO UPDATE SET matched = $2, problem = $3, evaluated_at = $4`, x...); err != nil {
				return fmt.Errorf("remember rule %s: %w", x[0], err)
			}
		}
		return nil
	})
}

func clipTo(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}
