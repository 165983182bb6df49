package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Issue puts a version (0: the latest) in force, to a scope other than the
// document's if one is given. It returns fault.Invalid, with what is wrong
// with the version below "document.", fault.NotFound, fault.Conflict and
// fault.Exhausted.
func (s *Service) Issue(ctx context.Context, id string, version int64, scope *Scope, reason string) (Record, error) {
	err := reasonCheck("reason", reason, func(c *core.Check) {
		c.ID("policy_id", id)
		c.Range("version", version, 0, 1<<40)
		if scope != nil {
			k := &checker{}
			scope.check(k, "scope.")
			for _, f := range fault.FieldsOf(k.Err()) {
				c.Add(f.Path, "%s", f.Problem)
			}
		}
	})
	if err != nil {
		return Record{}, err
	}
	return s.turn(ctx, id, func(tx *db.Tx, h *head) error {
		if version == 0 {
			version = h.latest
		}
		return s.issueTx(ctx, tx, h, version, scope, "issued", reason)
	})
}

// turn changes what of a policy is in force.
func (s *Service) turn(ctx context.Context, id string, f func(tx *db.Tx, h *head) error) (out Record, err error) {
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		h, err := getHead(ctx, tx, id)
		if err != nil {
			return err
		}
		if h == nil {
			return noPolicy(id)
		}
		if err := f(tx, h); err != nil {
			return err
		}
		if out, err = record(ctx, tx, h, 0); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
	return out, err
}

// issueTx puts a version in force; the same again changes nothing.
func (s *Service) issueTx(ctx context.Context, tx *db.Tx, h *head, version int64, scope *Scope, action, reason string) error {
	if h.test != "" {
		return fault.New(fault.Conflict, "versions of policy %s are compared in test %s; end it first", h.id, h.test)
	}
	v, err := getVersion(ctx, tx, h.id, version)
	if err != nil {
		return err
	}
	if v == nil {
		return noVersion(h.id, version)
	}
	k, problems := compile(v.Document, version)
	if err := invalid("document.", problems); err != nil {
		return err // stored by another version of the program
	}
	if err := s.errorsOf(ctx, tx, k, "document."); err != nil {
		return err
	}
	to := v.Document.Scope
	if scope != nil {
		to = *scope
	}
	text := toJSON(to)
	if h.issued == version && h.scope == text {
		return nil
	}
	if h.issued == 0 {
		n, err := count(ctx, tx, `SELECT COUNT(*) FROM policies WHERE issued > 0`)
		if err != nil {
			return err
		}
		if n >= maxIssued {
			return fault.New(fault.Exhausted, "%d policies are in force, which is the most; withdraw one", maxIssued)
		}
	} else if h.issued != version {
		if err := setState(ctx, tx, h.id, h.issued, Withdrawn); err != nil {
			return err
		}
	}
	h.issued, h.scope, h.at, h.by = version, text, db.Micros(tx.Now), core.CallerFrom(ctx).UserID
	if err := writeHead(ctx, tx, h); err != nil {
		return err
	}
	if err := setState(ctx, tx, h.id, version, Issued); err != nil {
		return err
	}
	if err := event(ctx, tx, h.id, action, version, text, reason); err != nil {
		return err
	}
	if err := s.whole(ctx, tx, h.id); err != nil {
		return err
	}
	return s.bump(ctx, tx)
}

// Withdraw takes a policy out of force; one that is not in force stays as it
// is. It returns fault.Invalid, fault.NotFound and fault.Conflict.
func (s *Service) Withdraw(ctx context.Context, id, reason string) (Record, error) {
	if err := reasonCheck("reason", reason, func(c *core.Check) { c.ID("policy_id", id) }); err != nil {
		return Record{}, err
	}
	return s.turn(ctx, id, func(tx *db.Tx, h *head) error {
		switch {
		case h.issued == 0:
			return nil
		case h.test != "":
			return fault.New(fault.Conflict, "versions of policy %s are compared in test %s; end it first", id, h.test)
		}
		was := h.issued
		h.issued, h.scope, h.at, h.by = 0, "", 0, ""
		if err := writeHead(ctx, tx, h); err != nil {
			return err
		}
		if err := setState(ctx, tx, id, was, Withdrawn); err != nil {
			return err
		}
		if err := event(ctx, tx, id, "withdrawn", was, "", reason); err != nil {
			return err
		}
		if err := s.whole(ctx, tx, id); err != nil {
			return err
		}
		return s.bump(ctx, tx)
	})
}

// RollBack puts a version in force again that was, with the scope it had; 0:
// the one before that in force, or the last one if none is. It returns
// fault.Invalid, fault.NotFound and fault.Conflict.
func (s *Service) RollBack(ctx context.Context, id string, version int64, reason string) (Record, error) {
	err := reasonCheck("reason", reason, func(c *core.Check) {
		c.ID("policy_id", id)
		c.Range("version", version, 0, 1<<40)
	})
	if err != nil {
		return Record{}, err
	}
	return s.turn(ctx, id, func(tx *db.Tx, h *head) error {
		events, err := readEvents(ctx, tx, `WHERE policy_id = $1 AND action IN ('issued', 'rolled back') ORDER BY event_id`, id)
		if err != nil {
			return err
		}
		scopes := map[int64]string{}
		var stack []int64 // versions in force, one above the other
		for _, e := range events {
			scopes[e.Version] = e.scope
			if i := slices.Index(stack, e.Version); i >= 0 && e.Action == "rolled back" {
				stack = stack[:i]
			} else if n := len(stack); n > 0 && stack[n-1] == e.Version {
				stack = stack[:n-1]
			}
			stack = append(stack, e.Version)
		}
		to := version
		if to == 0 {
			n := len(stack)
			if h.issued != 0 {
				n--
			}
			if n < 1 {
				return fault.New(fault.Conflict, "policy %s has no version that was in force before", id)
			}
			to = stack[n-1]
		}
		text, was := scopes[to]
		if !was {
			return fault.New(fault.Conflict, "version %d of policy %s was never in force; issue it", to, id)
		}
		scope, err := scopeFrom(text)
		if err != nil {
			return fmt.Errorf("scope of policy %s: %w", id, err)
		}
		return s.issueTx(ctx, tx, h, to, &scope, "rolled back", reason)
	})
}

// errorsOf returns what k names that is not there as fault.Invalid.
func (s *Service) errorsOf(ctx context.Context, tx *db.Tx, k *compiled, prefix string) error {
	problems, err := s.refer(ctx, tx, k)
	if err != nil {
		return err
	}
	return invalid(prefix, problems)
}

// refer says what a document names that is not there: included policies, which
// must not come round to it, and modules; and what it names in vain, which are
// warnings.
func (s *Service) refer(ctx context.Context, tx *db.Tx, k *compiled) ([]Problem, error) {
	var out []Problem
	add := func(field, format string, args ...any) {
		out = append(out, Problem{Field: field, Text: fmt.Sprintf(format, args...)})
	}
	total := 0
	var walk func(field string, list []Include, path []string) error
	walk = func(field string, list []Include, path []string) error {
		for i, x := range list {
			at := field
			if at == "" {
				at = fmt.Sprintf("includes[%d]", i)
			}
			way := strings.Join(append(slices.Clone(path), x.ID), " → ")
			if slices.Contains(path, x.ID) {
				add(at, "policies include each other: %s", way)
				continue
			}
			if total++; total > maxIncluded || len(path) > maxDepth {
				add(at, "includes more than %d policies, or deeper than %d: %s", maxIncluded, maxDepth, way)
				return nil
			}
			version := x.Version
			if version == 0 {
				h, err := getHead(ctx, tx, x.ID)
				if err != nil {
					return err
				}
				if h == nil || h.issued == 0 {
					add(at, "no version of policy %s is in force (%s)", x.ID, way)
					continue
				}
				version = h.issued
			}
			v, err := getVersion(ctx, tx, x.ID, version)
			if err != nil {
				return err
			}
			if v == nil {
				add(at, "there is no version %d of policy %s (%s)", version, x.ID, way)
				continue
			}
			if err := walk(at, v.Document.Includes, append(slices.Clone(path), x.ID)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk("", k.Includes, []string{k.ID}); err != nil {
		return nil, err
	}
	uses := func(at string, u *ModuleUse, filter bool) error {
		if u == nil {
			return nil
		}
		m, err := getModule(ctx, tx, u.ID, u.Version)
		if err != nil {
			return err
		}
		switch {
		case m == nil:
			add(at+".module", "there is no version %d of module %s", u.Version, u.ID)
		case filter && !m.Filters:
			add(at+".module", "module %s does not export the function filter", u.ID)
		case !filter && !m.Scores:
			add(at+".module", "module %s does not export the function score", u.ID)
		case m.Isolated:
			out = append(out, Problem{Field: at + ".module", Text: fmt.Sprintf("module %s is isolated: %s", u.ID, m.Fault), Warning: true})
		}
		return nil
	}
	for i, f := range k.Rules.Filters {
		if err := uses(fmt.Sprintf("rules.filters[%d]", i), f.Module, true); err != nil {
			return nil, err
		}
	}
	for i, r := range k.Rules.Scores {
		if err := uses(fmt.Sprintf("rules.scores[%d]", i), r.Module, false); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// warn says what a document does in vain.
func (s *Service) warn(ctx context.Context, k *compiled) ([]Problem, error) {
	var out []Problem
	add := func(field, format string, args ...any) {
		out = append(out, Problem{Field: field, Text: fmt.Sprintf(format, args...), Warning: true})
	}
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	regions := map[string]bool{}
	for _, c := range cat.Centers {
		regions[c.Region] = true
	}
	for i, id := range k.Scope.Centers {
		if cat.Centers[id] == nil {
			add(fmt.Sprintf("scope.centers[%d]", i), "there is no center %q", id)
		}
	}
	for i, r := range k.Scope.Regions {
		if !regions[r] {
			add(fmt.Sprintf("scope.regions[%d]", i), "no center lies in region %q", r)
		}
	}
	weighed := map[string]bool{}
	for _, w := range k.weights {
		weighed[w.Policy] = true
	}
	for i, r := range k.Rules.Scores {
		if !weighed[r.ID] {
			add(fmt.Sprintf("rules.scores[%d]", i), "has no weight: it is shown and does not count")
		}
	}
	if k.Rules.IsZero() && len(k.Includes) == 0 {
		add("rules", "there are none: the policy decides nothing")
	}
	if !k.To.IsZero() && !k.To.After(s.db.Now()) {
		add("effective_to", "is past: the policy is not in force")
	}
	return out, nil
}

// whole checks, after a change of one policy, that all that is in force still
// finds what it includes.
func (s *Service) whole(ctx context.Context, tx *db.Tx, changed string) error {
	heads, err := readHeads(ctx, tx, `WHERE issued > 0 AND policy_id <> $1 ORDER BY policy_id`, changed)
	if err != nil {
		return err
	}
	for _, h := range heads {
		v, err := getVersion(ctx, tx, h.id, h.issued)
		if err != nil {
			return err
		}
		if v == nil || len(v.Document.Includes) == 0 {
			continue
		}
		problems, err := s.refer(ctx, tx, &compiled{Document: Document{ID: h.id, Includes: v.Document.Includes}, version: h.issued})
		if err != nil {
			return err
		}
		if len(problems) > 0 {
			return fault.New(fault.Conflict, "policy %s, which is in force, includes it: %s", h.id, problems[0].Text)
		}
	}
	return nil
}

// Subject is a document, or a stored version of a policy (0: the latest).
type Subject struct {
	Document *Document
	ID       string
	Version  int64
}

// subject returns what x names, which may not compile.
func (s *Service) subject(ctx context.Context, x *Subject) (*Document, error) {
	if (x.Document == nil) == (x.ID == "") {
		return nil, fault.Fields(fault.Field{Path: "document", Problem: "either document or policy_id is required, not both"})
	}
	if x.Document != nil {
		if x.Version != 0 {
			return nil, fault.Fields(fault.Field{Path: "version", Problem: fmt.Sprintf("must be 0 beside a document, got %d", x.Version)})
		}
		return x.Document, nil
	}
	if x.Version == 0 {
		if err := checkIDs("policy_id", x.ID, "version", 0); err != nil {
			return nil, err
		}
		err := s.db.View(ctx, func(tx *db.Tx) error {
			h, err := getHead(ctx, tx, x.ID)
			if err == nil && h == nil {
				err = noPolicy(x.ID)
			}
			if err == nil {
				x.Version = h.latest
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	r, err := s.Get(ctx, x.ID, x.Version)
	if err != nil {
		return nil, err
	}
	return &r.Version.Document, nil
}

// Validate says all that is wrong with a document or a stored version; a
// stored draft without errors becomes validated. It returns fault.Invalid for
// a subject that names nothing, and fault.NotFound.
func (s *Service) Validate(ctx context.Context, x Subject) ([]Problem, error) {
	d, err := s.subject(ctx, &x)
	if err != nil {
		return nil, err
	}
	k, problems := compile(*d, x.Version)
	if k == nil {
		return problems, nil
	}
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		problems, err = s.refer(ctx, tx, k)
		return err
	})
	if err != nil {
		return nil, err
	}
	warnings, err := s.warn(ctx, k)
	if err != nil {
		return nil, err
	}
	if problems = append(problems, warnings...); x.ID == "" || invalid("", problems) != nil {
		return problems, nil
	}
	return problems, s.checkedAs(ctx, x.ID, x.Version, Validated, "static", "validated")
}

func (s *Service) checkedAs(ctx context.Context, id string, version int64, to State, how, action string) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := setChecked(ctx, tx, id, version, to, how); err != nil {
			return err
		}
		if err := event(ctx, tx, id, action, version, "", ""); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
}
