package policies

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// book is what is in force, compiled; it does not change.
type book struct {
	generation int64
	checked    time.Time
	changes    int64    // of this process that it has
	entries    []*entry // highest priority first, then by ID
	reads      reads
	*memory
}

// memory is what was worked out of a generation.
type memory struct {
	mu sync.Mutex // guards the fields below

	classes map[string]*class
	judged  map[judgeKey]*judged // what reads nothing live, while placement holds
	places  int64                // version of the facts of judged
}

// entry is a policy in force.
type entry struct {
	base  *tree // of the version in force
	scope Scope // it was issued to
	test  *test // nil: no versions are compared
}

// tree is a version with what it includes.
type tree struct {
	*compiled
	parts []*tree
}

// test is a comparison under way.
type test struct {
	id   string
	arms []arm
}

// arm of a comparison.
type arm struct {
	name string
	upTo uint64 // of 100, the arms before included
	tree *tree
}

// arm is that of a job.
func (t *test) arm(job string) *arm {
	sum := sha256.Sum256([]byte(t.id + "\x00" + job))
	n := binary.BigEndian.Uint64(sum[:8]) % 100
	for i := range t.arms {
		if n < t.arms[i].upTo {
			return &t.arms[i]
		}
	}
	return &t.arms[len(t.arms)-1]
}

// trees returns all that may decide for e.
func (e *entry) trees() []*tree {
	out := []*tree{e.base}
	if e.test != nil {
		for i := range e.test.arms {
			out = append(out, e.test.arms[i].tree)
		}
	}
	return out
}

// walk calls f for t and all it includes.
func (t *tree) walk(f func(*compiled)) {
	f(t.compiled)
	for _, p := range t.parts {
		p.walk(f)
	}
}

// uses names a policy that uses a version of a module; "": none.
func (b *book) uses(id string, version int64) (user string) {
	for _, e := range b.entries {
		for _, t := range e.trees() {
			t.walk(func(c *compiled) {
				for _, r := range c.own() {
					if r.use != nil && r.use.ID == id && r.use.Version == version {
						user = c.name()
					}
				}
			})
		}
	}
	return user
}

// current returns what is in force: with all that this process changed before the
// call, and at most recheck old. While one caller reads what others changed, the
// rest get the one at hand.
func (s *Service) current(ctx context.Context) (*book, error) {
	now := s.db.Now()
	s.mu.Lock()
	had, changes := s.book, s.changes
	s.mu.Unlock()
	if had != nil && had.changes >= changes {
		if age := now.Sub(had.checked); age >= 0 && age < recheck || !s.loading.TryLock() {
			return had, nil
		}
	} else {
		s.loading.Lock()
	}
	defer s.loading.Unlock()
	s.mu.Lock()
	b, seen := s.book, s.changes // what changes from now on is seen by the next
	s.mu.Unlock()
	if b != had && b.changes >= changes {
		return b, nil // another caller read it meanwhile
	}
	var next *book
	err := s.db.View(ctx, func(tx *db.Tx) error {
		g, err := generation(ctx, tx)
		if err != nil {
			return err
		}
		if b != nil && b.generation == g {
			same := *b
			next = &same
			return nil
		}
		next, err = s.read(ctx, tx)
		return err
	})
	if err != nil {
		return nil, err
	}
	next.checked, next.changes = now, seen
	s.mu.Lock()
	s.book = next
	s.mu.Unlock()
	return next, nil
}

// before is the order in which policies have their say.
func before(a, b *entry) int {
	return cmp.Or(cmp.Compare(b.base.Priority, a.base.Priority), strings.Compare(a.base.ID, b.base.ID))
}

func newMemory() *memory {
	return &memory{classes: map[string]*class{}, judged: map[judgeKey]*judged{}}
}

// read compiles what is in force. What another version of the program stored
// and this one cannot compile is left out, and the log says so.
func (s *Service) read(ctx context.Context, tx *db.Tx) (*book, error) {
	b := &book{memory: newMemory()}
	var err error
	if b.generation, err = generation(ctx, tx); err != nil {
		return nil, err
	}
	heads, err := readHeads(ctx, tx, `WHERE issued > 0 ORDER BY policy_id`)
	if err != nil {
		return nil, err
	}
	issued := map[string]int64{}
	for _, h := range heads {
		issued[h.id] = h.issued
	}
	for _, h := range heads {
		e := &entry{}
		if e.base, err = s.tree(ctx, tx, h.id, h.issued, issued, 0); err == nil {
			e.scope, err = scopeFrom(h.scope)
		}
		if err == nil && h.test != "" {
			e.test, err = s.readTest(ctx, tx, &h, issued)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			s.log.Error("policy left out", "policy_id", h.id, "version", h.issued, "error", err)
			continue
		}
		b.entries = append(b.entries, e)
	}
	slices.SortFunc(b.entries, before)
	b.reads = readsOf(b.entries)
	return b, nil
}

func (s *Service) readTest(ctx context.Context, tx *db.Tx, h *head, issued map[string]int64) (*test, error) {
	t, err := getTest(ctx, tx, h.test)
	if err != nil {
		return nil, err
	}
	out := &test{id: t.ID}
	upTo := uint64(0)
	for _, a := range t.Arms {
		upTo += uint64(a.Percent)
		tr, err := s.tree(ctx, tx, h.id, a.Version, issued, 0)
		if err != nil {
			return nil, fmt.Errorf("arm %s: %w", a.Name, err)
		}
		out.arms = append(out.arms, arm{name: a.Name, upTo: upTo, tree: tr})
	}
	return out, nil
}

// tree compiles a version and what it includes.
func (s *Service) tree(ctx context.Context, tx *db.Tx, id string, version int64, issued map[string]int64, depth int) (*tree, error) {
	if version == 0 {
		version = issued[id]
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("policies are included deeper than %d", maxDepth)
	}
	v, err := getVersion(ctx, tx, id, version)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, noVersion(id, version)
	}
	return s.grow(ctx, tx, v.Document, version, issued, depth)
}

// grow compiles a document, which may not be stored.
func (s *Service) grow(ctx context.Context, tx *db.Tx, d Document, version int64, issued map[string]int64, depth int) (*tree, error) {
	c, problems := compile(d, version)
	if err := invalid("document.", problems); err != nil {
		return nil, err
	}
	for _, r := range c.own() {
		if r.use == nil {
			continue
		}
		var err error
		if r.module, err = s.module(ctx, tx, r.use.ID, r.use.Version); err != nil {
			return nil, err
		}
	}
	out := &tree{compiled: c}
	for _, x := range d.Includes {
		part, err := s.tree(ctx, tx, x.ID, x.Version, issued, depth+1)
		if err != nil {
			return nil, fmt.Errorf("policy %s includes %s: %w", d.ID, x.ID, err)
		}
		out.parts = append(out.parts, part)
	}
	return out, nil
}

// module returns a stored module, ready to run.
func (s *Service) module(ctx context.Context, tx *db.Tx, id string, version int64) (*module, error) {
	meta, err := getModule(ctx, tx, id, version)
	if err != nil {
		return nil, err
	}
	if meta == nil {
		return nil, noModule(id, version)
	}
	var code []byte
	if _, err := tx.Get(ctx, `SELECT code FROM policy_modules WHERE module_id = $1 AND version = $2`, []any{id, version}, &code); err != nil {
		return nil, fmt.Errorf("read module %s: %w", id, err)
	}
	m, err := s.mods.load(ctx, id, version, code)
	if err != nil {
		return nil, fmt.Errorf("load module %s: %w", id, err)
	}
	m.set(meta.Isolated, meta.Fault)
	return m, nil
}

// reads says what of a job decides which policies match it and what they say.
type reads struct {
	user, labels, priority, gang, tasks, time bool
}

func readsOf(entries []*entry) (r reads) {
	look := func(e *expr.Expr) {
		if e == nil {
			return
		}
		r.user = r.user || e.ReadsAny("job.user")
		r.labels = r.labels || e.ReadsAny("job.labels") || e.ReadsAny("job.business")
		r.priority = r.priority || e.ReadsAny("job.priority")
		r.gang = r.gang || e.ReadsAny("job.gang")
		for _, name := range []string{"job.replicas", "job.kinds", "job.specs", "job.images", "job.datasets", "job.regions", "job.centers", "job.tasks"} {
			r.tasks = r.tasks || e.ReadsAny(name)
		}
		r.time = r.time || e.ReadsAny("time.")
	}
	scope := func(s *Scope) {
		r.user = r.user || len(s.Users) > 0
		r.labels = r.labels || len(s.Labels)+len(s.Businesses) > 0
		r.tasks = r.tasks || len(s.Regions)+len(s.Centers) > 0
	}
	for _, e := range entries {
		scope(&e.scope)
		for _, t := range e.trees() {
			t.walk(func(c *compiled) {
				scope(&c.Scope)
				for _, m := range c.match {
					look(m)
				}
				for _, x := range c.own() {
					if look(x.expr); x.use != nil { // a module may read anything
						r = reads{true, true, true, true, true, true}
					}
				}
			})
		}
	}
	return r
}
