package tags

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// Get returns the tags of an object. It returns fault.Invalid for what names
// none, and fault.NotFound, also if the caller may not see it.
func (s *Service) Get(ctx context.Context, ref string) (Tagged, error) {
	o, err := s.object(ctx, ref)
	if err != nil {
		return Tagged{}, err
	}
	w, err := s.around(ctx, o)
	if err != nil {
		return Tagged{}, err
	}
	return w.show(o), nil
}

// List returns a page of the objects a selector names, by name of the object,
// and the token of the next page, "" on the last. It returns fault.Invalid.
func (s *Service) List(ctx context.Context, sel Selector, size int32, token string) ([]Tagged, string, error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	w, found, troubles, err := s.find(ctx, sel)
	if err != nil {
		return nil, "", err
	}
	if len(troubles) > 0 {
		t := troubles[0]
		return nil, "", fault.New(fault.NotFound, "%s", t.Problem)
	}
	if key != nil {
		i, _ := slices.BinarySearchFunc(found, key[0], func(o *object, k string) int { return strings.Compare(o.ref, k) })
		if i < len(found) && found[i].ref == key[0] {
			i++
		}
		found = found[i:]
	}
	next := ""
	if len(found) > n {
		found, next = found[:n], core.PageToken(found[n-1].ref)
	}
	out := make([]Tagged, len(found))
	for i, o := range found {
		out[i] = w.show(o)
	}
	return out, next, nil
}

// find returns the objects a selector names, by name, and what is wrong with
// those it names one by one.
func (s *Service) find(ctx context.Context, sel Selector) (*world, []*object, []Trouble, error) {
	var c core.Check
	checkKinds(&c, "selector.kinds", sel.Kinds)
	if len(sel.Objects) > MaxNamed {
		c.Add("selector.objects", "must be at most %d, got %d", MaxNamed, len(sel.Objects))
		return nil, nil, nil, c.Err()
	}
	if len(sel.Kinds) == 0 && len(sel.Objects) == 0 {
		c.Add("selector.kinds", "is required unless objects are named")
	}
	for i, ref := range sel.Objects {
		checkObject(&c, "selector.objects["+itoa(i)+"]", ref)
	}
	if sel.CenterID != "" {
		c.ID("selector.ai_center_id", sel.CenterID)
	}
	if err := c.Err(); err != nil {
		return nil, nil, nil, err
	}
	wanted := sel.Kinds
	if len(wanted) == 0 {
		seen := int64(0)
		for _, ref := range sel.Objects {
			k, _, _, _ := split(ref)
			seen |= 1 << k
		}
		wanted = kindsOf(seen)
	}
	conditions, err := compileFor("selector.expression", sel.Expression, wanted, false)
	if err != nil {
		return nil, nil, nil, err
	}
	var w *world
	var all []*object
	var troubles []Trouble
	if len(sel.Objects) > 0 {
		for _, ref := range slices.Compact(slices.Sorted(slices.Values(sel.Objects))) {
			o, err := s.object(ctx, ref)
			switch {
			case fault.KindOf(err) == fault.NotFound:
				msg, _ := fault.Message(err)
				troubles = append(troubles, Trouble{ref, "", msg})
			case err != nil:
				return nil, nil, nil, err
			case slices.Contains(wanted, o.kind):
				all = append(all, o)
			}
		}
		w, err = s.around(ctx, all...)
	} else {
		w, all, err = s.survey(ctx, wanted)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	var out []*object
	for _, o := range all {
		if sel.CenterID != "" && o.center != sel.CenterID {
			continue
		}
		if e := conditions[o.kind]; e != nil {
			ok, err := e.Holds(w.facts(o, false))
			if err != nil {
				return nil, nil, nil, fault.Fields(fault.Field{Path: "selector.expression", Problem: "on " + o.ref + ": " + err.Error()})
			}
			if !ok {
				continue
			}
		}
		out = append(out, o)
	}
	return w, out, troubles, nil
}

// compileFor compiles an expression for each of the kinds; none for "".
func compileFor(path, text string, kinds []Kind, value bool) (map[Kind]*expr.Expr, error) {
	if text == "" {
		return nil, nil
	}
	compile := expr.Compile
	if value {
		compile = expr.CompileText
	}
	out := map[Kind]*expr.Expr{}
	var c core.Check
	seen := map[string]bool{}
	for _, k := range kinds {
		e, problems := compile(k.scope(), text)
		for _, p := range problems {
			msg := p.String()
			if len(kinds) > 1 {
				msg += " (for kind " + k.String() + ")"
			}
			if !seen[msg] {
				c.Add(path, "%s", msg)
			}
			seen[msg] = true
		}
		out[k] = e
	}
	return out, c.Err()
}

// Batch is a request to change tags.
type Batch struct {
	Selector  Selector
	Changes   []Change
	DryRun    bool
	RequestID string // "": doing it again is another request
	Reason    string
	// Progress is told how far it is, if it is set. It MUST NOT block: it is
	// called inside the transaction. Counts may begin anew.
	Progress func(step string, done, total int)
}

// Apply makes changes on all objects of a selector, all of them or none. If
// any cannot be made nothing is written and the result says why. Making the
// same request again within a day answers what the first did. It returns
// fault.Invalid, fault.Conflict if another request had the same ID, and
// fault.Exhausted for more than [MaxObjects] objects.
func (s *Service) Apply(ctx context.Context, b Batch) (Result, error) {
	if err := b.check(); err != nil {
		return Result{}, err
	}
	tell := func(step string, done, total int) {
		if b.Progress != nil {
			b.Progress(step, done, total)
		}
	}
	if b.RequestID != "" {
		if res, err := s.repeated(ctx, &b); res != nil || err != nil {
			return orZero(res), err
		}
	}
	tell("find", 0, 0)
	w, found, troubles, err := s.find(ctx, b.Selector)
	if err != nil {
		return Result{}, err
	}
	if len(found) > MaxObjects || len(found)*len(b.Changes) > maxWrites {
		return Result{}, fault.New(fault.Exhausted, "%d objects and %d changes are too much for one batch; at most %d objects and %d values", len(found), len(b.Changes), MaxObjects, maxWrites)
	}
	tell("check", 0, len(found))
	if err := checkKnown(w, b.Changes); err != nil {
		return Result{}, err
	}
	var res Result
	run := s.db.Tx
	if b.DryRun {
		run = s.db.View
	}
	err = run(ctx, func(tx *db.Tx) error {
		res = Result{Objects: int64(len(found)), Problems: troubles}
		if b.RequestID != "" { // another may have been faster
			again, err := getRequest(ctx, tx, &b)
			if again != nil || err != nil {
				res = orZero(again)
				return err
			}
		}
		edits, err := b.plan(ctx, tx, found, &res, tell)
		if err != nil || b.DryRun || len(res.Problems) > 0 {
			return err
		}
		if len(edits) > 0 {
			res.BatchID = edits[0].next.batchID
		}
		done := 0
		placement, err := writeEdits(ctx, tx, edits, func(n int) { done += n; tell("write", done, len(edits)) })
		if err != nil {
			return err
		}
		if res.Applied = true; b.RequestID != "" {
			if err := putRequest(ctx, tx, &b, &res); err != nil {
				return err
			}
		}
		if len(edits) == 0 {
			return nil
		}
		return s.changed(ctx, tx, placement)
	})
	if err != nil {
		return Result{}, err
	}
	if res.Applied && !res.Repeated {
		s.log.Info("tags changed", "batch_id", res.BatchID, "objects", res.Objects, "changed", res.Changed)
	}
	tell("done", len(found), len(found))
	return res, nil
}

func orZero(r *Result) Result {
	if r == nil {
		return Result{}
	}
	return *r
}

func (b *Batch) check() error {
	var c core.Check
	if len(b.Changes) == 0 || len(b.Changes) > MaxChanges {
		c.Add("changes", "must be 1 to %d, got %d", MaxChanges, len(b.Changes))
		return c.Err()
	}
	b.Changes = slices.Clone(b.Changes)
	seen := map[string]bool{}
	for i := range b.Changes {
		x, at := &b.Changes[i], "changes["+itoa(i)+"]."
		x.Op = orDefault(x.Op, Set)
		checkKey(&c, at+"key", x.Key)
		c.Range(at+"op", int64(x.Op), int64(Set), int64(Block))
		if x.Op != Set && x.Value != "" {
			c.Add(at+"value", "must be empty unless the tag is set")
		}
		if seen[x.Key] {
			c.Add(at+"key", "names %s a second time", x.Key)
		}
		seen[x.Key] = true
	}
	c.Text("request_id", b.RequestID, false, 64, 0)
	c.Text("reason", b.Reason, false, 0, 256)
	return c.Err()
}

// checkKnown checks changes against the library.
func checkKnown(w *world, changes []Change) error {
	var c core.Check
	for i, x := range changes {
		at := "changes[" + itoa(i) + "]."
		d := w.defs[x.Key]
		switch {
		case d == nil:
			c.Add(at+"key", "there is no tag %q; see yunhe tag list", x.Key)
		case x.Op != Set:
		case d.Status != Active:
			c.Add(at+"key", "tag %s is retired", x.Key)
		default:
			if p := d.problem(x.Value); p != "" {
				c.Add(at+"value", "%s", p)
			}
		}
	}
	return c.Err()
}

// plan says what is to be written.
func (b *Batch) plan(ctx context.Context, tx *db.Tx, found []*object, res *Result, tell func(string, int, int)) ([]edit, error) {
	trouble := func(o *object, i int, err string) {
		if len(res.Problems) < maxProblems {
			res.Problems = append(res.Problems, Trouble{o.ref, "changes[" + itoa(i) + "].key", err})
		}
	}
	refs := make([]string, len(found))
	for i, o := range found {
		refs[i] = o.ref
	}
	defs, err := readDefinitions(ctx, tx, "")
	if err != nil {
		return nil, err
	}
	have, err := readValuesOf(ctx, tx, refs)
	if err != nil {
		return nil, err
	}
	by := person(ctx, core.NewID("tgb"), b.Reason)
	var edits []edit
	for n, o := range found {
		if n%512 == 0 {
			tell("check", n, len(found))
		}
		own := map[string]*stored{}
		for _, v := range have[o.ref] {
			own[v.key] = v
		}
		for i, x := range b.Changes {
			d := defs[x.Key]
			if d == nil {
				return nil, noTag(x.Key)
			}
			if !slices.Contains(d.Kinds, o.kind) {
				trouble(o, i, fmt.Sprintf("tag %s applies to %s, not to %s", x.Key, list(d.Kinds), o.kind))
				continue
			}
			if err := mayWrite(ctx, d, o); err != nil {
				msg, _ := fault.Message(err)
				trouble(o, i, msg)
				continue
			}
			e := edit{old: own[x.Key], next: stored{object: o.ref, key: x.Key, kind: o.kind, actor: by}}
			mine := e.old != nil && e.old.source == Person
			switch x.Op {
			case Set:
				e.next.Value = x.Value
				mine = mine && !e.old.Blocked && e.old.Value == x.Value
			case Block:
				e.next.Blocked = true
				mine = mine && e.old.Blocked
			case Clear:
				e.gone = true
				mine = !mine
			}
			if mine {
				res.Unchanged++
				continue
			}
			res.Changed++
			if len(res.Changes) < maxShown {
				a := Applied{Object: o.ref, Key: x.Key, After: e.next.State}
				if e.old != nil {
					a.Before = e.old.State
				}
				res.Changes = append(res.Changes, a)
			}
			edits = append(edits, e)
		}
	}
	return edits, nil
}

// fingerprint says what a request asks for.
func (b *Batch) fingerprint() string {
	sum := sha256.Sum256([]byte(toJSON([]any{b.Selector, b.Changes, b.Reason})))
	return hex.EncodeToString(sum[:16])
}

// repeated returns what the request did before; nil if it is new. A dry run
// leaves no trace, so that the same ID can then be used in earnest.
func (s *Service) repeated(ctx context.Context, b *Batch) (res *Result, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		res, err = getRequest(ctx, tx, b)
		return err
	})
	return res, err
}

func getRequest(ctx context.Context, tx *db.Tx, b *Batch) (*Result, error) {
	var fingerprint, text string
	found, err := tx.Get(ctx, `SELECT fingerprint, result FROM tag_requests WHERE request_id = $1 AND origin = $2`, []any{b.RequestID, core.CallerFrom(ctx).UserID}, &fingerprint, &text)
	if err != nil || !found {
		return nil, err
	}
	if fingerprint != b.fingerprint() {
		return nil, fault.New(fault.Conflict, "request %s was another one; choose another request_id", b.RequestID)
	}
	res := &Result{}
	if err := json.Unmarshal([]byte(text), res); err != nil {
		return nil, fmt.Errorf("stored result of request %s: %w", b.RequestID, err)
	}
	res.Repeated = true
	return res, nil
}

func putRequest(ctx context.Context, tx *db.Tx, b *Batch, res *Result) error {
	_, err := tx.Exec(ctx, `INSERT INTO tag_requests (request_id, origin, fingerprint, result, at) VALUES ($1, $2, $3, $4, $5)`,
		b.RequestID, core.CallerFrom(ctx).UserID, b.fingerprint(), toJSON(res), db.Micros(tx.Now))
	if err != nil {
		return fmt.Errorf("remember request %s: %w", b.RequestID, err)
	}
	return nil
}
