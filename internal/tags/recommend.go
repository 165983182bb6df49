package tags

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Recommendation is a tag an object might carry.
type Recommendation struct {
	Key, Value, Title string

	Score  int // 1 to 100
	Reason string
	RuleID string // of a rule that recommends it
	Alike  []Alike
}

// Alike is an object that is alike and carries the tag.
type Alike struct {
	Object, Name string
	Similarity   int // hundredths of facts in common
	Common       []string
}

// How recommendations are made.
const (
	minAlike      = 0.5 // facts in common that make two objects alike
	maxNeighbors  = 20
	minSupporters = 2
	minScore      = 50
	ruleScore     = 90
	maxCommon     = 5
	maxRecommend  = 50
)

// Recommend returns tags an object might carry, best first: those that rules
// recommend, and those that objects alike carry. Likeness is the share of
// facts two objects of a kind have in common (Jaccard); a tag is recommended
// if at least two alike objects carry it and they are, weighed by likeness,
// half of the 20 most alike. What the object has in any way, what rules alone
// set, and what was dismissed is not recommended. It returns fault.Invalid and
// fault.NotFound.
func (s *Service) Recommend(ctx context.Context, ref string) ([]Recommendation, error) {
	target, err := s.object(ctx, ref)
	if err != nil {
		return nil, err
	}
	w, all, err := s.survey(ctx, []Kind{target.kind})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(o *object) bool { return o.ref == ref })
	if i < 0 {
		return nil, fault.New(fault.NotFound, "there is no %s", ref)
	}
	target = all[i]
	not, err := s.dismissed(ctx, ref)
	if err != nil {
		return nil, err
	}
	has := w.tags(ref, false)
	for _, v := range w.values[ref] {
		not[v.key+"\x00"] = true // also if it is blocked
	}
	open := func(key, value string) bool {
		d := w.defs[key]
		return d != nil && d.Status == Active && d.Setter != RulesOnly && slices.Contains(d.Kinds, target.kind) && has[key] == nil &&
			!not[key+"\x00"] && !not[key+"\x00"+value] && d.problem(value) == ""
	}
	out, err := s.recommendedByRules(ctx, w, target, open)
	if err != nil {
		return nil, err
	}
	for _, r := range alike(w, target, all, open) {
		if !slices.ContainsFunc(out, func(x Recommendation) bool { return x.Key == r.Key }) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b Recommendation) int {
		return cmp.Or(-cmp.Compare(a.Score, b.Score), strings.Compare(a.Key, b.Key))
	})
	return out[:min(len(out), maxRecommend)], nil
}

func (s *Service) recommendedByRules(ctx context.Context, w *world, o *object, open func(key, value string) bool) ([]Recommendation, error) {
	var specs []RuleSpec
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		specs, err = readRules(ctx, tx, `WHERE r.mode = 2`)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(specs, func(a, b RuleSpec) int { return -cmp.Compare(a.Priority, b.Priority) })
	facts := w.facts(o, true)
	var out []Recommendation
	for i := range specs {
		r := s.compiledRule(&specs[i])
		if r == nil || r.when[o.kind] == nil {
			continue
		}
		if ok, err := r.when[o.kind].Holds(facts); !ok || err != nil {
			continue // checking the expression on the object says why
		}
		v := r.Value
		if e := r.value[o.kind]; e != nil {
			if v, err = e.Text(facts); err != nil {
				continue
			}
		}
		if v == "" || !open(r.Key, v) || slices.ContainsFunc(out, func(x Recommendation) bool { return x.Key == r.Key }) {
			continue
		}
		out = append(out, Recommendation{Key: r.Key, Value: v, Title: w.defs[r.Key].Title, Score: ruleScore, RuleID: r.ID,
			Reason: fmt.Sprintf("rule %s applies: %s", r.ID, clipTo(r.When, 200))})
	}
	return out, nil
}

// neighbor is an object that is alike.
type neighbor struct {
	*object
	likeness float64
	common   []string
}

// alike recommends what the objects most like the target carry.
func alike(w *world, target *object, all []*object, open func(key, value string) bool) []Recommendation {
	mine := features(target)
	if len(mine) == 0 {
		return nil
	}
	var near []neighbor
	for _, o := range all {
		if o == target {
			continue
		}
		theirs, n := features(o), 0
		for f := range theirs {
			if mine[f] {
				n++
			}
		}
		if l := float64(n) / float64(len(mine)+len(theirs)-n); l >= minAlike {
			near = append(near, neighbor{object: o, likeness: l})
		}
	}
	slices.SortStableFunc(near, func(a, b neighbor) int { return -cmp.Compare(a.likeness, b.likeness) }) // ties by name: all is sorted
	near = near[:min(len(near), maxNeighbors)]
	total, weight, who := 0.0, map[[2]string]float64{}, map[[2]string][]int{}
	for i := range near {
		n := &near[i]
		theirs := features(n.object)
		for _, f := range sorted(theirs) {
			if mine[f] && len(n.common) < maxCommon {
				n.common = append(n.common, f)
			}
		}
		total += n.likeness
		for _, v := range w.values[n.ref] {
			if !v.Blocked && open(v.key, v.Value) {
				k := [2]string{v.key, v.Value}
				weight[k] += n.likeness
				who[k] = append(who[k], i)
			}
		}
	}
	best := map[string]Recommendation{}
	for _, k := range slices.SortedFunc(maps.Keys(who), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		score := int(weight[k] / total * 100)
		if len(who[k]) < minSupporters || score < minScore || score <= best[k[0]].Score {
			continue
		}
		r := Recommendation{Key: k[0], Value: k[1], Title: w.defs[k[0]].Title, Score: score}
		for _, i := range who[k][:min(len(who[k]), maxCommon)] {
			r.Alike = append(r.Alike, Alike{near[i].ref, near[i].name, int(near[i].likeness * 100), near[i].common})
		}
		r.Reason = fmt.Sprintf("%d of the %d %ss most alike carry it", len(who[k]), len(near), target.kind)
		best[k[0]] = r
	}
	var out []Recommendation
	for _, key := range sorted(best) {
		out = append(out, best[key])
	}
	return out
}

// features are the facts by which objects of a kind are compared. Amounts
// count by their magnitude, what names one object alone does not count.
func features(o *object) map[string]bool {
	out := map[string]bool{}
	add := func(name, v string) {
		if v != "" {
			out[name+"="+v] = true
		}
	}
	for name, v := range o.facts {
		switch name {
		case "id", "name", "parent", "center", "status", "state", "running", "waiting", "used", "free", "measured", "longitude", "latitude", "located",
			"cpu_busy_percent", "memory_busy_percent", "storage_busy_percent", "accelerators", "nodes", "main_model", "centers", "performance", "drained", "allocatable":
			continue
		}
		switch v := v.(type) {
		case string:
			add(name, v)
		case int64:
			if v != 0 {
				add(name, fmt.Sprint(v))
			}
		case []string:
			for _, x := range v {
				add(name, x)
			}
		case map[string]string:
			for k, x := range v {
				add(name+"."+k, x)
			}
		case map[string]int64:
			for k, x := range v {
				if x > 0 {
					add(name+"."+k, fmt.Sprintf("≥%d", 1<<(bits.Len64(uint64(x))-1)))
				}
			}
		case map[string]any:
			for k, x := range v {
				if t, ok := x.(string); ok {
					add(name+"."+k, t)
				}
			}
		}
	}
	return out
}

func (s *Service) dismissed(ctx context.Context, ref string) (map[string]bool, error) {
	out := map[string]bool{}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		return tx.Query(ctx, `SELECT tag_key, value FROM tag_dismissals WHERE object = $1`, []any{ref}, func(row db.Row) error {
			var key, value string
			err := row.Scan(&key, &value)
			out[key+"\x00"+value] = true
			return err
		})
	})
	return out, err
}

// Answer accepts a recommendation, which sets the tag as a person does, or
// dismisses it for good. It returns fault.Invalid, fault.NotFound,
// fault.Denied, and fault.Conflict if it is not recommended any more. Giving
// the same answer again changes nothing.
func (s *Service) Answer(ctx context.Context, ref, key, value string, accept bool) (Tagged, error) {
	var c core.Check
	checkObject(&c, "object", ref)
	checkKey(&c, "key", key)
	if c.Text("value", value, true, 0, maxValue); c.Err() != nil {
		return Tagged{}, c.Err()
	}
	o, err := s.object(ctx, ref)
	if err != nil {
		return Tagged{}, err
	}
	w, err := s.around(ctx, o)
	if err != nil {
		return Tagged{}, err
	}
	d := w.defs[key]
	if d == nil {
		return Tagged{}, noTag(key)
	}
	if err := mayWrite(ctx, d, o); err != nil {
		return Tagged{}, err
	}
	not, err := s.dismissed(ctx, ref)
	if err != nil {
		return Tagged{}, err
	}
	own := slices.IndexFunc(w.values[ref], func(v *stored) bool { return v.key == key && v.Value == value && v.source == Person })
	if accept && own >= 0 || !accept && not[key+"\x00"+value] {
		return w.show(o), nil
	}
	open, err := s.Recommend(ctx, ref)
	if err != nil {
		return Tagged{}, err
	}
	i := slices.IndexFunc(open, func(r Recommendation) bool { return r.Key == key && r.Value == value })
	if i < 0 {
		return Tagged{}, fault.New(fault.Conflict, "%s=%s is not recommended for %s any more", key, value, ref)
	}
	if accept {
		res, err := s.Apply(ctx, Batch{Selector: Selector{Objects: []string{ref}}, Changes: []Change{{Key: key, Value: value}}, Reason: clipTo("recommended: "+open[i].Reason, 200)})
		if err != nil {
			return Tagged{}, err
		}
		if len(res.Problems) > 0 {
			return Tagged{}, fault.New(fault.Conflict, "%s", res.Problems[0].Problem)
		}
		return s.Get(ctx, ref)
	}
	by := person(ctx, "", "recommendation dismissed")
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO tag_dismissals (object, tag_key, value, origin, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
			ref, key, value, by.origin, db.Micros(tx.Now))
		return err
	})
	if err != nil {
		return Tagged{}, err
	}
	return s.Get(ctx, ref)
}
