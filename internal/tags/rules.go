package tags

import (
	"context"
	"slices"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// rule is a rule that was compiled.
type rule struct {
	RuleSpec
	when, until, value map[Kind]*expr.Expr
}

// compile compiles a rule; fault.Invalid with paths below "rule.".
func compile(r RuleSpec) (*rule, error) {
	out := &rule{RuleSpec: r}
	var c core.Check
	take := func(dst *map[Kind]*expr.Expr, path, text string, value bool) {
		m, err := compileFor(path, text, r.Kinds, value)
		for _, f := range fault.FieldsOf(err) {
			c.Add(f.Path, "%s", f.Problem)
		}
		*dst = m
	}
	take(&out.when, "rule.when", r.When, false)
	take(&out.until, "rule.until", r.Until, false)
	take(&out.value, "rule.value_expression", r.ValueExpression, true)
	if err := c.Err(); err != nil {
		return nil, err
	}
	for _, m := range []map[Kind]*expr.Expr{out.when, out.until, out.value} {
		for _, e := range m {
			out.Live = out.Live || e.Live()
		}
	}
	return out, nil
}

// sticky tells whether the rule has a memory.
func (r *rule) sticky() bool { return r.Hold > 0 || r.Until != "" }

// check completes r and compiles it.
func (r *RuleSpec) check(d *Definition) (*rule, error) {
	var c core.Check
	c.ID("rule.rule_id", r.ID)
	if r.Title == "" {
		r.Title = r.ID
	}
	c.Text("rule.title", r.Title, false, 0, 128)
	c.Text("rule.description", r.Description, false, 512, 0)
	if checkKey(&c, "rule.key", r.Key); d == nil && c.Err() == nil {
		c.Add("rule.key", "there is no tag %q; see yunhe tag list", r.Key)
	}
	checkKinds(&c, "rule.kinds", r.Kinds)
	c.Range("rule.hold_seconds", r.Hold, 0, maxHold)
	c.Range("rule.priority", r.Priority, -maxPriority, maxPriority)
	r.Mode = orDefault(r.Mode, Automatic)
	c.Range("rule.mode", int64(r.Mode), int64(Automatic), int64(Off))
	if r.When == "" {
		c.Add("rule.when", "is required; true means always")
	}
	if (r.Value == "") == (r.ValueExpression == "") {
		c.Add("rule.value", "either value or value_expression is required, not both")
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	if len(r.Kinds) == 0 {
		r.Kinds = slices.Clone(d.Kinds)
	}
	for _, k := range r.Kinds {
		if !slices.Contains(d.Kinds, k) {
			c.Add("rule.kinds", "tag %s applies to %s, not to %s", d.Key, list(d.Kinds), k)
		}
	}
	if r.Value != "" {
		if p := d.problem(r.Value); p != "" {
			c.Add("rule.value", "%s", p)
		}
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	out, err := compile(*r)
	if err != nil {
		return nil, err
	}
	if out.Live && r.Until == "" {
		switch {
		case r.Hold == 0:
			r.Hold = defaultHold
		case r.Hold < minLiveHold:
			c.Add("rule.hold_seconds", "must be at least %d for a rule over live figures without an until, got %d", minLiveHold, r.Hold)
		}
	}
	r.Live, out.RuleSpec = out.Live, *r
	out.Live = r.Live
	return out, c.Err()
}

// Rules returns the rules by ID, of one tag if it is named. It returns
// fault.Invalid.
func (s *Service) Rules(ctx context.Context, key string) ([]RuleSpec, error) {
	rest, args := "", []any(nil)
	if key != "" {
		var c core.Check
		if checkKey(&c, "key", key); c.Err() != nil {
			return nil, c.Err()
		}
		rest, args = `WHERE r.tag_key = $1`, []any{key}
	}
	var out []RuleSpec
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readRules(ctx, tx, rest, args...)
		return err
	})
	for i := range out {
		if r := s.compiledRule(&out[i]); r != nil {
			out[i].Live = r.Live
		}
	}
	return out, err
}

// compiledRule returns r compiled; nil if it no longer compiles, which
// r.Error then says.
func (s *Service) compiledRule(r *RuleSpec) *rule {
	s.mu.Lock()
	have := s.compiled[r.ID]
	s.mu.Unlock()
	if have != nil && have.Version == r.Version && have.UpdatedAt.Equal(r.UpdatedAt) {
		return have
	}
	c, err := compile(*r)
	if err != nil {
		r.Error = err.Error()
		return nil
	}
	s.mu.Lock()
	if len(s.compiled) > 2*maxRules {
		clear(s.compiled)
	}
	s.compiled[r.ID] = c
	s.mu.Unlock()
	return c
}

// Rule returns a rule. It returns fault.Invalid and fault.NotFound.
func (s *Service) Rule(ctx context.Context, id string) (RuleSpec, error) {
	var c core.Check
	if c.ID("rule_id", id); c.Err() != nil {
		return RuleSpec{}, c.Err()
	}
	var r *RuleSpec
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		r, err = getRule(ctx, tx, id)
		return err
	})
	if err != nil {
		return RuleSpec{}, err
	}
	if k := s.compiledRule(r); k != nil {
		r.Live = k.Live
	}
	return *r, nil
}

func getRule(ctx context.Context, tx *db.Tx, id string) (*RuleSpec, error) {
	rows, err := readRules(ctx, tx, `WHERE r.rule_id = $1`, id)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fault.New(fault.NotFound, "there is no rule %s", id)
	}
	return &rows[0], nil
}

// CreateRule adds a rule. It returns fault.Invalid with paths below "rule.",
// fault.Exists, and fault.Exhausted if there are too many.
func (s *Service) CreateRule(ctx context.Context, r RuleSpec) (RuleSpec, error) {
	return s.putRule(ctx, r, func(tx *db.Tx, old *RuleSpec) error {
		if old != nil {
			return fault.New(fault.Exists, "rule %s exists already", r.ID)
		}
		n, err := count(ctx, tx, `SELECT COUNT(*) FROM tag_rules`)
		if err == nil && n >= maxRules {
			err = fault.New(fault.Exhausted, "there are %d rules, which is the most", maxRules)
		}
		return err
	})
}

// UpdateRule replaces a rule whose version is r.Version; where it stood is
// forgotten. It returns fault.Invalid with paths below "rule.", fault.NotFound
// and fault.Conflict.
func (s *Service) UpdateRule(ctx context.Context, r RuleSpec) (RuleSpec, error) {
	return s.putRule(ctx, r, func(tx *db.Tx, old *RuleSpec) error {
		switch {
		case old == nil:
			return fault.New(fault.NotFound, "there is no rule %s", r.ID)
		case old.Version != r.Version:
			return fault.New(fault.Conflict, "rule %s has version %d, not %d: it was changed meanwhile; read it and try again", r.ID, old.Version, r.Version)
		}
		return nil
	})
}

func (s *Service) putRule(ctx context.Context, in RuleSpec, precondition func(tx *db.Tx, old *RuleSpec) error) (RuleSpec, error) {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r := in
		r.Kinds = slices.Clone(in.Kinds)
		defs, err := readDefinitions(ctx, tx, r.Key)
		if err != nil {
			return err
		}
		if _, err := r.check(defs[r.Key]); err != nil {
			return err
		}
		var old *RuleSpec
		if rows, err := readRules(ctx, tx, `WHERE r.rule_id = $1`, r.ID); err != nil {
			return err
		} else if len(rows) == 1 {
			old = &rows[0]
		}
		if err := precondition(tx, old); err != nil {
			return err
		}
		var before any
		if old == nil {
			_, err = insertRule(ctx, tx, &r)
		} else {
			before = ruleRecord(old)
			if toJSON(before) == toJSON(ruleRecord(&r)) {
				return nil
			}
			r.Version = old.Version + 1
			if err = updateRule(ctx, tx, &r); err == nil {
				_, err = tx.Exec(ctx, `DELETE FROM tag_rule_states WHERE rule_id = $1`, r.ID)
			}
		}
		if err != nil {
			return err
		}
		if err := record(ctx, tx, person(ctx, "", ""), "rule:"+r.ID, r.Key, before, ruleRecord(&r)); err != nil {
			return err
		}
		return s.changed(ctx, tx, false)
	})
	if err != nil {
		return RuleSpec{}, err
	}
	s.log.Info("rule written", "rule_id", in.ID)
	return s.Rule(ctx, in.ID)
}

func ruleRecord(r *RuleSpec) any {
	return map[string]any{"title": r.Title, "description": r.Description, "key": r.Key, "kinds": words(r.Kinds), "when": r.When, "until": r.Until, "value": r.Value,
		"value_expression": r.ValueExpression, "hold_seconds": r.Hold, "priority": r.Priority, "mode": r.Mode}
}

// DeleteRule deletes a rule; what it set goes with the next look. It returns
// fault.Invalid and fault.NotFound.
func (s *Service) DeleteRule(ctx context.Context, id string) error {
	var c core.Check
	if c.ID("rule_id", id); c.Err() != nil {
		return c.Err()
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := s.deleteRuleTx(ctx, tx, id, person(ctx, "", "")); err != nil {
			return err
		}
		return s.changed(ctx, tx, false)
	})
}

func (s *Service) deleteRuleTx(ctx context.Context, tx *db.Tx, id string, by actor) error {
	r, err := getRule(ctx, tx, id)
	if err != nil {
		return err
	}
	if err := deleteRule(ctx, tx, id); err != nil {
		return err
	}
	return record(ctx, tx, by, "rule:"+id, r.Key, ruleRecord(r), nil)
}

// Checked is what is known of an expression.
type Checked struct {
	Problems  []expr.Problem
	Variables []expr.Variable
	Evaluated bool
	Holds     bool
	Value     string
	Reason    string
	Facts     expr.Facts
}

// CheckExpression compiles an expression for a kind of object (0: the
// placement of a task) and evaluates it on an object if one is named. It
// returns fault.Invalid and fault.NotFound for what is not an object of the
// kind; what is wrong with the expression is part of the answer.
func (s *Service) CheckExpression(ctx context.Context, kind Kind, text, ref string, value bool) (Checked, error) {
	var c core.Check
	if c.Range("kind", int64(kind), 0, int64(Image)); c.Err() != nil {
		return Checked{}, c.Err()
	}
	if k, _, _, ok := split(ref); ref != "" && ok && k != kind && !(kind == 0 && k == Center) {
		want := kind
		if kind == 0 {
			want = Center
		}
		return Checked{}, fault.Fields(fault.Field{Path: "object", Problem: "must be of kind " + want.String() + ", got " + clip(ref)})
	}
	scope := kind.scope()
	out := Checked{Variables: scope.Variables()}
	do := expr.Compile
	if value {
		do = expr.CompileText
	}
	e, problems := do(scope, text)
	out.Problems = problems
	if ref == "" {
		return out, nil
	}
	o, err := s.object(ctx, ref)
	if err != nil {
		return Checked{}, err
	}
	w, err := s.around(ctx, o)
	if err != nil {
		return Checked{}, err
	}
	all := w.facts(o, false)
	out.Facts = expr.Facts{}
	for _, v := range out.Variables {
		out.Facts[v.Name] = all[v.Name]
	}
	if e == nil {
		return out, nil
	}
	out.Evaluated = true
	if value {
		if out.Value, err = e.Text(out.Facts); err != nil {
			out.Reason = err.Error()
		}
		return out, nil
	}
	out.Holds, _ = e.Holds(out.Facts)
	out.Reason = e.Why(out.Facts)
	return out, nil
}
