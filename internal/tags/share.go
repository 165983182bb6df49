package tags

import (
	"context"
	"slices"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// Shared is a part of a library that another platform can adopt.
type Shared struct {
	Groups      []Group
	Definitions []Definition
	Rules       []RuleSpec
}

const (
	maxSharedKeys = 200
	maxShared     = 1000
)

// Outcome is what became of a thing that was shared.
type Outcome string

// The outcomes.
const (
	Created   Outcome = "created"
	Replaced  Outcome = "replaced"
	Same      Outcome = "same"
	Different Outcome = "different" // and left as it is
	Refused   Outcome = "refused"
)

// Adopted says what became of one group, tag or rule.
type Adopted struct {
	Kind, ID string
	Outcome  Outcome
	Message  string
}

// Share returns tags of the library, those with the keys or of the group if
// these are set, with their groups and the rules that set them. It returns
// fault.Invalid, and fault.NotFound for a key there is not.
func (s *Service) Share(ctx context.Context, keys []string, groupID string) (Shared, error) {
	var c core.Check
	if len(keys) > maxSharedKeys {
		c.Add("keys", "must be at most %d, got %d", maxSharedKeys, len(keys))
	}
	if c.Err() != nil {
		return Shared{}, c.Err()
	}
	defs, err := s.Definitions(ctx, groupID, 0)
	if err != nil {
		return Shared{}, err
	}
	if len(keys) > 0 {
		for _, key := range keys {
			if !slices.ContainsFunc(defs, func(d Definition) bool { return d.Key == key }) {
				return Shared{}, noTag(key)
			}
		}
		defs = slices.DeleteFunc(defs, func(d Definition) bool { return !slices.Contains(keys, d.Key) })
	}
	groups, err := s.Groups(ctx)
	if err != nil {
		return Shared{}, err
	}
	rules, err := s.Rules(ctx, "")
	if err != nil {
		return Shared{}, err
	}
	has := func(key string) bool {
		return slices.ContainsFunc(defs, func(d Definition) bool { return d.Key == key })
	}
	out := Shared{Rules: slices.DeleteFunc(rules, func(r RuleSpec) bool { return !has(r.Key) })}
	for _, g := range groups {
		if slices.ContainsFunc(defs, func(d Definition) bool { return d.GroupID == g.ID }) {
			out.Groups = append(out.Groups, bareGroup(g))
		}
	}
	for _, d := range defs {
		out.Definitions = append(out.Definitions, bareDefinition(d))
	}
	for i, r := range out.Rules {
		out.Rules[i] = bareRule(r)
	}
	return out, nil
}

// bareGroup, bareDefinition and bareRule leave out what belongs to one platform.
func bareGroup(g Group) Group {
	return Group{ID: g.ID, Title: g.Title, TitleZH: g.TitleZH, Description: g.Description, Kinds: append([]Kind{}, g.Kinds...)}
}

func bareDefinition(d Definition) Definition {
	return Definition{Key: d.Key, Title: d.Title, TitleZH: d.TitleZH, GroupID: d.GroupID, Description: d.Description, Type: d.Type, Allowed: append([]string{}, d.Allowed...), Kinds: append([]Kind{}, d.Kinds...),
		Setter: d.Setter, Inherited: d.Inherited, Hidden: d.Hidden, Status: d.Status}
}

func bareRule(r RuleSpec) RuleSpec {
	return RuleSpec{ID: r.ID, Title: r.Title, Description: r.Description, Key: r.Key, Kinds: append([]Kind{}, r.Kinds...), When: r.When, Until: r.Until, Value: r.Value,
		ValueExpression: r.ValueExpression, Hold: r.Hold, Priority: r.Priority, Mode: r.Mode}
}

// Adopt takes over what another platform shares, each thing by itself, groups
// first. What is here and different stays unless replace is set; with dry
// nothing is stored. The error is fault.Invalid for more than can be taken at
// once; what is wrong with one thing is in its result.
func (s *Service) Adopt(ctx context.Context, shared Shared, replace, dry bool) ([]Adopted, error) {
	var c core.Check
	if n := len(shared.Groups) + len(shared.Definitions) + len(shared.Rules); n < 1 || n > maxShared {
		c.Add("shared", "must have 1 to %d groups, tags and rules, got %d", maxShared, n)
		return nil, c.Err()
	}
	here, err := s.Share(ctx, nil, "")
	if err != nil {
		return nil, err
	}
	groups, err := s.Groups(ctx) // also those without tags
	if err != nil {
		return nil, err
	}
	defs, err := s.Definitions(ctx, "", 0) // with their versions
	if err != nil {
		return nil, err
	}
	rules, err := s.Rules(ctx, "")
	if err != nil {
		return nil, err
	}
	for i := range groups {
		groups[i] = bareGroup(groups[i])
	}
	a := adoption{replace: replace, dry: dry}
	for _, g := range shared.Groups {
		i := slices.IndexFunc(groups, func(x Group) bool { return x.ID == g.ID })
		a.one("group", g.ID, i >= 0, i >= 0 && toJSON(groups[i]) == toJSON(bareGroup(g)), func() error {
			_, err := s.PutGroup(ctx, bareGroup(g))
			return err
		})
	}
	for _, d := range shared.Definitions {
		i := slices.IndexFunc(here.Definitions, func(x Definition) bool { return x.Key == d.Key })
		a.one("tag", d.Key, i >= 0, i >= 0 && toJSON(here.Definitions[i]) == toJSON(bareDefinition(d)), func() error {
			next := bareDefinition(d)
			if i < 0 {
				_, err := s.CreateDefinition(ctx, next)
				return err
			}
			next.Version = defs[slices.IndexFunc(defs, func(x Definition) bool { return x.Key == d.Key })].Version
			_, err := s.UpdateDefinition(ctx, next)
			return err
		})
	}
	for _, r := range shared.Rules {
		i := slices.IndexFunc(rules, func(x RuleSpec) bool { return x.ID == r.ID })
		a.one("rule", r.ID, i >= 0, i >= 0 && toJSON(bareRule(rules[i])) == toJSON(bareRule(r)), func() error {
			next := bareRule(r)
			if i < 0 {
				_, err := s.CreateRule(ctx, next)
				return err
			}
			next.Version = rules[i].Version
			_, err := s.UpdateRule(ctx, next)
			return err
		})
	}
	return a.out, a.err
}

type adoption struct {
	replace, dry bool
	out          []Adopted
	err          error // what is nobody's fault: the rest is not tried
}

// one adopts a thing that is here already or not.
func (a *adoption) one(kind, id string, there, same bool, store func() error) {
	if a.err != nil {
		return
	}
	x := Adopted{Kind: kind, ID: clip(id), Outcome: Created}
	switch {
	case same:
		x.Outcome = Same
	case there && !a.replace:
		x.Outcome = Different
	case there:
		x.Outcome = Replaced
	}
	if !same && (a.replace || !there) && !a.dry {
		switch err := store(); fault.KindOf(err) {
		case fault.Invalid, fault.Conflict, fault.Exists, fault.Exhausted, fault.NotFound, fault.Denied:
			if err != nil {
				x.Outcome, x.Message = Refused, err.Error()
			}
		default:
			if a.err = err; err != nil {
				return
			}
		}
	}
	a.out = append(a.out, x)
}
