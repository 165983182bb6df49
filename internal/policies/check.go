package policies

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// compiled is a version ready for use. It does not change.
type compiled struct {
	Document
	version   int64
	match     []*expr.Expr
	filters   []*rule
	scores    []*rule
	weights   []place.Weight // of built-in policies and own scores, those above 0
	evaluator *place.Evaluator
}

// rule filters or scores centers, by an expression or a module.
type rule struct {
	id      string
	owner   string // the policy with its version, for people
	message string
	expr    *expr.Expr
	use     *ModuleUse
	module  *module // of use; nil: there is none
}

// checker gathers problems.
type checker struct {
	core.Check
	in []Problem // in expressions
}

// maxExpressionProblems keeps an answer small.
const maxExpressionProblems = 40

func (c *checker) expression(path string, problems []expr.Problem) {
	for _, p := range problems {
		if len(c.in) < maxExpressionProblems {
			c.in = append(c.in, Problem{Field: path, Text: p.Message, Line: p.Line, Column: p.Column})
		}
	}
}

func (c *checker) problems() []Problem {
	var out []Problem
	for _, f := range fault.FieldsOf(c.Err()) {
		out = append(out, Problem{Field: f.Path, Text: f.Problem})
	}
	return append(out, c.in...)
}

// invalid makes of problems a fault.Invalid with paths below prefix; nil if
// there are warnings at most.
func invalid(prefix string, problems []Problem) error {
	var fields []fault.Field
	for _, p := range problems {
		if p.Warning {
			continue
		}
		text := p.Text
		if p.Line > 0 {
			text = expr.Problem{Line: p.Line, Column: p.Column, Message: p.Text}.String()
		}
		fields = append(fields, fault.Field{Path: prefix + p.Field, Problem: text})
	}
	return fault.Fields(fields...)
}

// compile checks a document by itself and compiles it; nil if there are
// problems.
func compile(d Document, version int64) (*compiled, []Problem) {
	c := &checker{}
	out := &compiled{Document: d, version: version}
	c.ID("policy_id", d.ID)
	c.Text("title", d.Title, false, maxTitle, 0)
	c.Text("description", strings.NewReplacer("\n", " ", "\t", " ").Replace(d.Description), false, maxDescription, 0)
	c.Text("ai_algorithm", d.Algorithm, false, maxAlgorithm, 0)
	c.Range("priority", d.Priority, -maxPriority, maxPriority)
	c.Range("combination", int64(d.Combination), 0, int64(Filters))
	c.Range("job_weights", int64(d.JobWeights), 0, int64(Ignore))
	if !d.From.IsZero() && !d.To.IsZero() && !d.From.Before(d.To) {
		c.Add("effective_to", "must be after effective_from")
	}
	few(c, "match_rules", len(d.Match), maxRules)
	for i, m := range d.Match {
		at := fmt.Sprintf("match_rules[%d].", i)
		c.Text(at+"description", m.Description, false, maxText, 0)
		e, problems := expr.Compile(expr.PolicyJob, m.Expression)
		c.expression(at+"expression", problems)
		out.match = append(out.match, e)
	}
	d.Scope.check(c, "scope.")
	few(c, "includes", len(d.Includes), maxRules)
	for i, x := range d.Includes {
		at := fmt.Sprintf("includes[%d].", i)
		c.ID(at+"policy_id", x.ID)
		c.Range(at+"version", x.Version, 0, 1<<40)
		if x.ID == d.ID {
			c.Add(at+"policy_id", "is the policy itself")
		}
		if slices.ContainsFunc(d.Includes[:i], func(o Include) bool { return o.ID == x.ID }) {
			c.Add(at+"policy_id", "%q is included twice", x.ID)
		}
	}
	out.rules(c)
	if problems := c.problems(); len(problems) > 0 {
		return nil, problems
	}
	if out.Title == "" {
		out.Title = out.ID
	}
	return out, nil
}

func few(c *checker, path string, n, most int) {
	if n > most {
		c.Add(path, "must be at most %d, got %d", most, n)
	}
}

func (s *Scope) check(c *checker, at string) {
	for _, l := range []struct {
		name string
		list []string
		id   bool
	}{{"regions", s.Regions, false}, {"businesses", s.Businesses, false}, {"tenants", s.Tenants, true}, {"centers", s.Centers, true}, {"users", s.Users, false}} {
		few(c, at+l.name, len(l.list), maxScope)
		for i, v := range l.list {
			path := fmt.Sprintf("%s%s[%d]", at, l.name, i)
			if l.id {
				c.ID(path, v)
			} else {
				c.Text(path, v, true, 64, 0)
			}
		}
	}
	few(c, at+"labels", len(s.Labels), maxScope)
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		if k == "" {
			c.Add(at+"labels", "keys must not be empty")
		}
		c.Text(at+"labels", k, false, 0, 64)
		c.Text(at+"labels", s.Labels[k], false, 0, 64)
	}
}

// rules checks and compiles the rules of p.
func (p *compiled) rules(c *checker) {
	r := &p.Rules
	own := map[string]bool{}
	few(c, "rules.scores", len(r.Scores), maxRules)
	for i, s := range r.Scores {
		at := fmt.Sprintf("rules.scores[%d].", i)
		p.ruleID(c, at+"score_id", s.ID)
		if _, ok := place.PolicyByID(s.ID); ok {
			c.Add(at+"score_id", "%q is a built-in policy", s.ID)
		}
		if own[s.ID] {
			c.Add(at+"score_id", "%q is given twice", s.ID)
		}
		own[s.ID] = true
		p.scores = append(p.scores, p.rule(c, at, s.ID, "", s.Expression, s.Module, expr.CompileNumber))
	}
	few(c, "rules.filters", len(r.Filters), maxRules)
	for i, f := range r.Filters {
		at := fmt.Sprintf("rules.filters[%d].", i)
		p.ruleID(c, at+"filter_id", f.ID)
		if slices.ContainsFunc(r.Filters[:i], func(o FilterRule) bool { return o.ID == f.ID }) {
			c.Add(at+"filter_id", "%q is given twice", f.ID)
		}
		c.Text(at+"message", f.Message, false, maxText, 0)
		p.filters = append(p.filters, p.rule(c, at, f.ID, f.Message, f.Expression, f.Module, expr.Compile))
	}
	if e := r.Evaluator; e != "" {
		all := place.Evaluators()
		i := slices.IndexFunc(all, func(x place.Evaluator) bool { return x.ID == e })
		if i < 0 {
			var names []string
			for _, x := range all {
				names = append(names, x.ID)
			}
			c.Add("rules.evaluator", "must be one of %s, got %q", strings.Join(names, ", "), clip(e))
		} else {
			p.evaluator = &all[i]
		}
	}
	p.weigh(c, own)
	few(c, "rules.minimums", len(r.Minimums), place.MaxUses)
	for _, id := range slices.Sorted(maps.Keys(r.Minimums)) {
		path := mapPath("rules.minimums", id)
		_, builtIn := place.PolicyByID(id)
		switch {
		case own[id]:
			c.Add(path, "is an own score: write a filter")
		case !builtIn:
			c.Add(path, "there is no built-in policy %q", clip(id))
		}
		c.Range(path, r.Minimums[id], 1, place.MaxScore)
	}
}

// mapPath is the path of an entry of a map, or of the map where its key is no ID.
func mapPath(path, id string) string {
	var name core.Check
	if name.ID("", id); name.Err() == nil {
		return path + "." + id
	}
	return path
}

// weigh turns weights, preset or ranking into weights.
func (p *compiled) weigh(c *checker, own map[string]bool) {
	r := &p.Rules
	given := 0
	for _, is := range []bool{len(r.Weights) > 0, r.Preset != "", len(r.Ranking) > 0} {
		if is {
			given++
		}
	}
	if given > 1 {
		c.Add("rules.weights", "only one of weights, preset and ranking may be given")
		return
	}
	known := func(path, id string) bool {
		if _, ok := place.PolicyByID(id); !ok && !own[id] {
			c.Add(path, "there is no built-in policy and no own score %q", clip(id))
			return false
		}
		return true
	}
	switch {
	case r.Preset != "":
		set, ok := place.Preset(r.Preset)
		if !ok {
			c.Add("rules.preset", "there is no preset %q", clip(r.Preset))
			return
		}
		for _, u := range set.Uses {
			p.weights = append(p.weights, place.Weight{Policy: u.Policy.ID, Weight: u.Weight})
		}
		if p.evaluator == nil && set.Evaluator.Compare != nil {
			p.evaluator = &set.Evaluator
		}
	case len(r.Ranking) > 0:
		few(c, "rules.ranking", len(r.Ranking), place.MaxUses)
		for i, id := range r.Ranking {
			path := fmt.Sprintf("rules.ranking[%d]", i)
			if slices.Contains(r.Ranking[:i], id) {
				c.Add(path, "%q is ranked twice", clip(id))
			} else if known(path, id) {
				p.weights = append(p.weights, place.Weight{Policy: id, Weight: int64(len(r.Ranking) - i)})
			}
		}
	case len(r.Weights) > 0:
		few(c, "rules.weights", len(r.Weights), place.MaxUses)
		for _, id := range slices.Sorted(maps.Keys(r.Weights)) {
			path := mapPath("rules.weights", id)
			if w := r.Weights[id]; w < 0 || w > maxWeight {
				c.Add(path, "must be between 0 and %d, got %d", maxWeight, w)
			} else if known(path, id) && w > 0 {
				p.weights = append(p.weights, place.Weight{Policy: id, Weight: w})
			}
		}
		if len(p.weights) == 0 {
			c.Add("rules.weights", "at least one must be above 0")
		}
	}
}

func (p *compiled) ruleID(c *checker, path, id string) {
	if c.ID(path, id); len(id) > maxRuleID {
		c.Add(path, "must be at most %d characters, got %d", maxRuleID, len(id))
	}
}

func (p *compiled) rule(c *checker, at, id, message, text string, use *ModuleUse, do func(expr.Scope, string) (*expr.Expr, []expr.Problem)) *rule {
	out := &rule{id: id, owner: p.name(), message: message, use: use}
	if (text == "") == (use == nil) {
		c.Add(at+"expression", "either expression or module is required, not both")
		return out
	}
	if use != nil {
		c.ID(at+"module.module_id", use.ID)
		c.Range(at+"module.version", use.Version, 1, 1<<40)
		c.Range(at+"module.on_failure", int64(use.OnFailure), 0, int64(Refuse))
		return out
	}
	var problems []expr.Problem
	out.expr, problems = do(expr.PolicyCenter, text)
	c.expression(at+"expression", problems)
	return out
}

// name is the policy with its version, such as "gold@3".
func (p *compiled) name() string { return fmt.Sprintf("%s@%d", p.ID, p.version) }

// own returns all rules of p.
func (p *compiled) own() []*rule { return append(slices.Clip(p.filters), p.scores...) }

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
