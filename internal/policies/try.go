package policies

import (
	"context"
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// candidate chooses as if a policy were in force.
type candidate struct {
	s    *Service
	book *book
	own  *entry
	seen map[string]place.Work // what was chosen for, by job
}

// Choose implements [scheduler.Chooser].
func (c *candidate) Choose(ctx context.Context, snap *place.Snapshot, items []*scheduler.Item, works []place.Work, platform *place.Set) (scheduler.Verdict, error) {
	for i, w := range works {
		c.seen[items[i].Work.ID] = w
	}
	return c.s.around().choose(ctx, c.book, snap, items, works, platform)
}

// candidate returns what would be in force if x were issued to its own scope.
// Its dates are not looked at: it is tried now.
func (s *Service) candidate(ctx context.Context, x *Subject) (*candidate, error) {
	d, err := s.subject(ctx, x)
	if err != nil {
		return nil, err
	}
	k, problems := compile(*d, x.Version)
	if err := invalid("document.", problems); err != nil {
		return nil, err
	}
	now, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	out := &candidate{s: s, seen: map[string]place.Work{}, own: &entry{scope: d.Scope}}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		if err := s.errorsOf(ctx, tx, k, "document."); err != nil {
			return err
		}
		heads, err := readHeads(ctx, tx, `WHERE issued > 0`)
		if err != nil {
			return err
		}
		issued := map[string]int64{}
		for _, h := range heads {
			issued[h.id] = h.issued
		}
		doc := k.Document
		doc.From, doc.To = time.Time{}, time.Time{}
		out.own.base, err = s.grow(ctx, tx, doc, x.Version, issued, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	b := &book{generation: now.generation, memory: newMemory()}
	for _, e := range now.entries {
		if e.base.ID != d.ID {
			b.entries = append(b.entries, e)
		}
	}
	b.entries = append(b.entries, out.own)
	slices.SortFunc(b.entries, before)
	b.reads = readsOf(b.entries)
	out.book = b
	return out, nil
}

// Trial is what would be decided about a job.
type Trial struct {
	Matches       bool
	Reason        string // why not
	With, Present []scheduler.Tried
}

// Try says what would be decided about a job now if a policy were issued, and
// what is. It returns fault.Invalid with what is wrong below "document.", and
// fault.NotFound.
func (s *Service) Try(ctx context.Context, x Subject, it scheduler.Item) (out Trial, err error) {
	c, err := s.candidate(ctx, &x)
	if err != nil {
		return out, err
	}
	t, err := s.sched.NewTrial(ctx)
	if err != nil {
		return out, err
	}
	items := []scheduler.Item{it}
	with, err := t.Decide(ctx, items, c, 0)
	if err != nil {
		return out, err
	}
	present, err := t.Decide(ctx, items, nil, 0)
	if err != nil {
		return out, err
	}
	out.With, out.Present = with[0], present[0]
	out.Matches, out.Reason = c.matches(ctx, &it, s)
	return out, nil
}

// matches says whether the candidate has a say in a job, and why not.
func (c *candidate) matches(ctx context.Context, it *scheduler.Item, s *Service) (bool, string) {
	w, ok := c.seen[it.Work.ID]
	if !ok {
		return false, "its resource specification no longer exists"
	}
	now := s.db.Now()
	if why := c.own.scope.why(it, &w); why != "" {
		return false, why
	}
	f := jobFacts(it, &w, now)
	for i, m := range c.own.base.match {
		if ok, _ := m.Holds(f); !ok {
			return false, fmt.Sprintf("match_rules[%d] %s", i, m.Why(f))
		}
	}
	cy := &cycle{around: s.around(), b: c.book, ctx: ctx}
	cy.effective()
	k := cy.class(c.book.reads.appendClass([]byte(cy.prefix), it, &w, now), it, &w)
	for _, l := range k.chain {
		if l.entry == c.own {
			return true, ""
		}
	}
	if n := len(k.chain); n > 0 {
		return false, fmt.Sprintf("policy %s goes first and decides alone", k.chain[n-1].base.name())
	}
	return false, "it does not match"
}

// needJob checks that one job is given.
func needJob(jobID string, spec bool) error {
	if (jobID == "") == !spec {
		return fault.Fields(fault.Field{Path: "job", Problem: "either job or job_id is required, not both"})
	}
	return nil
}
