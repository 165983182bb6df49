package tags

import (
	"context"
	"maps"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// placement is what expressions of tasks read of centers, and what they said.
// It does not change while catalog, tags and places are the same.
type placement struct {
	catalog, tags int64
	serial        int64 // another for other facts
	places        map[string]string
	ids           []string
	facts         []expr.Facts
	answers       map[string]map[string]string // by expression; see Exclude
	compiled      map[string]*expr.Expr        // outlives changes; nil: does not compile
}

// maxAnswers is how many expressions are remembered: with 1,000 centers they
// take at most about 100 MB, mostly far less.
const maxAnswers = 2048

// PlacementVersion changes whenever what [Service.Exclude] says may have
// because tags changed.
func (s *Service) PlacementVersion(ctx context.Context) (version int64, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		_, version, err = getVersions(ctx, tx)
		return err
	})
	return version, err
}

// Exclude says of each expression which centers do not meet it, and why. It
// answers from memory while nothing changed. The maps are shared and must not
// be changed. An expression that does not compile excludes every center.
func (s *Service) Exclude(ctx context.Context, expressions []string) (map[string]map[string]string, error) {
	if len(expressions) == 0 {
		return nil, nil
	}
	p, err := s.place(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]map[string]string, len(expressions))
	var fresh map[string]map[string]string
	var compiled map[string]*expr.Expr
	alike := map[string]*groups{}
	for _, text := range expressions {
		if out[text] != nil {
			continue
		}
		have := p.answers[text]
		if have == nil {
			if fresh == nil {
				fresh, compiled = map[string]map[string]string{}, map[string]*expr.Expr{}
			}
			e := p.compiled[text]
			if e == nil {
				var problems []expr.Problem
				if e, problems = expr.Compile(expr.Placement, text); e == nil {
					have = p.all("cannot be judged by the task's expression: " + problems[0].String())
				}
			}
			if e != nil {
				have, compiled[text] = p.exclude(e, alike), e
			}
			fresh[text] = have
		}
		out[text] = have
	}
	if fresh != nil {
		// A new record, since others may read the one at hand.
		next := *p
		next.answers, next.compiled = maps.Clone(p.answers), maps.Clone(p.compiled)
		if next.answers == nil || len(next.answers)+len(fresh) > maxAnswers {
			next.answers = map[string]map[string]string{}
		}
		if next.compiled == nil || len(next.compiled)+len(compiled) > maxAnswers {
			next.compiled = map[string]*expr.Expr{}
		}
		maps.Copy(next.answers, fresh)
		maps.Copy(next.compiled, compiled)
		p = &next
	}
	s.mu.Lock()
	s.placement = p
	s.mu.Unlock()
	return out, nil
}

// loadPlacement reads the facts of all centers.
func (s *Service) loadPlacement(ctx context.Context, cat *registry.Catalog, places map[string]string, version int64) (*placement, error) {
	p := &placement{catalog: cat.Version, tags: version, places: places}
	var objects []*object
	for _, id := range sorted(cat.Centers) {
		f := expr.Placement.Facts()
		placeFacts(f, cat.Centers[id])
		catalogFacts(f, id, cat)
		objects = append(objects, &object{ref: "center:" + id, kind: Center, parent: placed(places, id), center: id, facts: f})
	}
	w, err := s.around(ctx, objects...)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		p.ids, p.facts = append(p.ids, o.center), append(p.facts, w.facts(o, false))
	}
	return p, nil
}

// PlacementFacts returns what is known of every center, by ID, as expressions
// of tasks read it, and a version, which is another when any of it may have
// changed. The facts are shared and must not be changed.
func (s *Service) PlacementFacts(ctx context.Context) (ids []string, facts []expr.Facts, version int64, err error) {
	p, err := s.place(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	return p.ids, p.facts, p.serial, nil
}

// place returns what is known of centers, from memory while nothing changed.
func (s *Service) place(ctx context.Context) (*placement, error) {
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	places, err := s.centerPlaces(ctx)
	if err != nil {
		return nil, err
	}
	version, err := s.PlacementVersion(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	p := s.placement
	s.mu.Unlock()
	if p != nil && p.catalog == cat.Version && p.tags == version && maps.Equal(p.places, places) {
		return p, nil
	}
	old := p
	if p, err = s.loadPlacement(ctx, cat, places, version); err != nil {
		return nil, err
	}
	if old != nil {
		p.compiled, p.serial = old.compiled, old.serial+1
	}
	s.mu.Lock()
	s.placement = p
	s.mu.Unlock()
	return p, nil
}

// all says the same of every center.
func (p *placement) all(why string) map[string]string {
	out := make(map[string]string, len(p.ids))
	for _, id := range p.ids {
		out[id] = why
	}
	return out
}

// exclude evaluates one expression on all centers. Centers that are alike in
// what it reads are asked once.
func (p *placement) exclude(e *expr.Expr, alike map[string]*groups) map[string]string {
	g := alike[e.Reads()]
	if g == nil {
		g = p.group(e)
		alike[e.Reads()] = g
	}
	whys := make([]string, len(g.first))
	for j, i := range g.first {
		whys[j] = e.Why(p.facts[i])
	}
	out := map[string]string{}
	for i, j := range g.of {
		if whys[j] != "" {
			out[p.ids[i]] = whys[j]
		}
	}
	return out
}

// groups are the centers, those together that are alike in what expressions
// with equal Reads see.
type groups struct {
	first []int // of each group, a center
	of    []int // of each center, its group
}

func (p *placement) group(e *expr.Expr) *groups {
	g := &groups{of: make([]int, len(p.facts))}
	seen := map[string]int{}
	var key []byte
	for i, f := range p.facts {
		key = e.AppendKey(key[:0], f)
		j, ok := seen[string(key)]
		if !ok {
			j = len(g.first)
			seen[string(key)] = j
			g.first = append(g.first, i)
		}
		g.of[i] = j
	}
	return g
}
