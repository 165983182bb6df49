package tags_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/tags"
)

var quiet = slog.New(slog.DiscardHandler)

// clock is a time that tests move.
type clock struct{ us atomic.Int64 }

func (c *clock) now() time.Time          { return time.UnixMicro(c.us.Load()) }
func (c *clock) advance(d time.Duration) { c.us.Add(d.Microseconds()) }

// tree is a small inventory: registered resources, in memory.
type tree struct {
	mu     sync.Mutex
	rows   map[string]tags.Registered
	places map[string]string
}

func (r *tree) put(rows ...tags.Registered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range rows {
		r.rows[x.ID] = x
	}
}

func (r *tree) Resource(ctx context.Context, id string) (tags.Registered, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x, ok := r.rows[id]
	if !ok || !sees(ctx, x) {
		return x, fault.New(fault.NotFound, "there is no resource %s", id)
	}
	return x, nil
}

func (r *tree) EachResource(ctx context.Context, f func(tags.Registered)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(r.rows)) {
		if sees(ctx, r.rows[id]) {
			f(r.rows[id])
		}
	}
	return nil
}

func (r *tree) Places(context.Context) (map[string]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.places), nil
}

func (r *tree) Place(_ context.Context, centerID string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.places[centerID], nil
}

func sees(ctx context.Context, r tags.Registered) bool {
	return r.TenantID == "" || core.CallerFrom(ctx).Sees(r.TenantID)
}

// world is tags and a registry on a database whose clock the test moves.
type world struct {
	*tags.Service
	reg   *registry.Service
	tree  *tree
	clock *clock
	url   string
	d     *db.DB
}

// each runs a test on every engine.
func each(t *testing.T, f func(t *testing.T, ctx context.Context, w *world)) {
	t.Helper()
	t.Parallel()
	for _, e := range []struct {
		name string
		url  func(t testing.TB) string
	}{
		{"sqlite", func(t testing.TB) string { return filepath.Join(t.TempDir(), "yunhe.db") }},
		{"postgres", func(t testing.TB) string { return enginetest.Postgres(t) }},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			f(t, operator(t.Context()), newWorld(t, e.url(t)))
		})
	}
}

func newWorld(t testing.TB, url string) *world {
	t.Helper()
	w := &world{clock: &clock{}, url: url, tree: &tree{rows: map[string]tags.Registered{}, places: map[string]string{}}}
	w.clock.us.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
	w.open(t)
	return w
}

func (w *world) open(t testing.TB) {
	t.Helper()
	d, err := db.Open(t.Context(), db.Config{URL: w.url, Now: w.clock.now}, quiet)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() }) // a second close after reopen is harmless
	w.d = d
	w.reg, err = registry.New(t.Context(), d, quiet)
	must(t, err)
	w.Service, err = tags.New(t.Context(), d, w.reg, quiet)
	must(t, err)
	w.SetResources(w.tree)
}

// reopen is a restart.
func (w *world) reopen(t *testing.T) {
	t.Helper()
	must(t, w.d.Close())
	w.open(t)
}

// operator sees all tenants, member is of one.
func operator(ctx context.Context) context.Context {
	return core.WithCaller(ctx, core.Caller{UserID: "op", TenantID: "default", AllTenants: true, Permissions: map[string]bool{"registry.write": true}})
}

func admin(ctx context.Context) context.Context {
	return core.WithCaller(ctx, core.Caller{UserID: "root", TenantID: "default", AllTenants: true, Permissions: map[string]bool{"registry.write": true, "identity.write": true}})
}

func member(ctx context.Context, tenant string) context.Context {
	return core.WithCaller(ctx, core.Caller{UserID: "u-" + tenant, TenantID: tenant, Permissions: map[string]bool{"registry.write": true}})
}

// join makes a center with nodes.
func (w *world) join(t testing.TB, id, region string, nodes ...*adapterv1.Node) {
	t.Helper()
	must(t, w.d.Tx(t.Context(), func(tx *db.Tx) error {
		inv := &adapterv1.Inventory{AiCenterId: id, Name: "Center " + id, Region: region, SecurityGrade: 3, Capacity: map[string]int64{core.CPU: 1280000, core.Memory: 1 << 40, "gpu": 16}, Labels: map[string]string{"tier": "gold"}}
		if err := w.reg.JoinTx(t.Context(), tx, inv, "kubernetes"); err != nil {
			return err
		}
		if err := w.reg.MarkSeenTx(t.Context(), tx, id); err != nil {
			return err
		}
		return w.reg.SyncNodesTx(t.Context(), tx, id, true, nodes, nil)
	}))
}

func machine(name string) *adapterv1.Node {
	return &adapterv1.Node{
		Name: name, State: 1, Architecture: "amd64", OperatingSystem: "Ubuntu 24.04 LTS", Capacity: map[string]int64{core.CPU: 63500, core.Memory: 1 << 39, "gpu": 8},
		Accelerators: []*adapterv1.Accelerator{{Vendor: "NVIDIA", Model: "H800", Count: 8, MemoryBytes: 80 << 30, Resource: "gpu"}}, Labels: map[string]string{"rack": "r1"},
	}
}

// busy reports how busy the machine of a center is.
func (w *world) busy(t testing.TB, id string, permille int64) {
	t.Helper()
	must(t, w.d.Tx(t.Context(), func(tx *db.Tx) error {
		return w.reg.MeasureTx(t.Context(), tx, id, registry.Measured{At: w.clock.now(), CPUBusyPermille: permille, MemoryBusy: 1, MemoryTotal: 4})
	}))
}

// library makes a group and tags: "color" is inherited text, "size" one of
// three, "pue" a number that stays where it is, "on" true or false.
func (w *world) library(t testing.TB, ctx context.Context) {
	t.Helper()
	_, err := w.PutGroup(ctx, tags.Group{ID: "g", Title: "Group", TitleZH: "组"})
	must(t, err)
	for _, d := range []tags.Definition{
		{Key: "color", GroupID: "g", Inherited: true, TitleZH: "颜色"},
		{Key: "size", GroupID: "g", Allowed: []string{"s", "m", "l"}, Inherited: true, Kinds: []tags.Kind{tags.Platform, tags.Node, tags.Resource}},
		{Key: "pue", GroupID: "g", Type: tags.Number, Kinds: []tags.Kind{tags.Center}},
		{Key: "on", GroupID: "g", Type: tags.Boolean},
	} {
		_, err := w.CreateDefinition(ctx, d)
		must(t, err)
	}
}

// set changes tags and expects that it can: "key=value" sets, "key-" clears,
// "key!" blocks.
func (w *world) set(t testing.TB, ctx context.Context, object string, changes ...string) tags.Result {
	t.Helper()
	res, err := w.Apply(ctx, tags.Batch{Selector: tags.Selector{Objects: []string{object}}, Changes: parse(changes...)})
	must(t, err)
	if !res.Applied {
		t.Fatalf("%s %v: %+v", object, changes, res.Problems)
	}
	return res
}

func parse(changes ...string) (out []tags.Change) {
	for _, c := range changes {
		key, value, is := strings.Cut(c, "=")
		switch {
		case is:
			out = append(out, tags.Change{Key: key, Value: value})
		case strings.HasSuffix(c, "-"):
			out = append(out, tags.Change{Key: strings.TrimSuffix(c, "-"), Op: tags.Clear})
		default:
			out = append(out, tags.Change{Key: strings.TrimSuffix(c, "!"), Op: tags.Block})
		}
	}
	return out
}

// has writes the tags of an object as "key=value@from", blocked ones as "key!".
func (w *world) has(t testing.TB, ctx context.Context, object string) string {
	t.Helper()
	x, err := w.Get(ctx, object)
	must(t, err)
	var out []string
	for _, g := range x.Tags {
		text := g.Key + "=" + g.Value
		if g.Blocked {
			text = g.Key + "!"
		}
		if g.From != object {
			text += "@" + g.From
		}
		if g.Source == tags.Rule {
			text += "(" + g.Origin + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (w *world) want(t testing.TB, ctx context.Context, object, want string) {
	t.Helper()
	if got := w.has(t, ctx, object); got != want {
		t.Errorf("%s has %q, want %q", object, got, want)
	}
}

func (w *world) evaluate(t testing.TB) int {
	t.Helper()
	x, err := w.Evaluate(t.Context(), tags.Platform, tags.Center, tags.Node, tags.Resource, tags.Spec, tags.Image)
	must(t, err)
	return x.Changed
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t testing.TB, what string, err error, kind fault.Kind) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind {
		t.Errorf("%s: %v, want %v", what, err, kind)
	}
}

func wantPaths(t testing.TB, what string, err error, paths ...string) {
	t.Helper()
	var got []string
	for _, f := range fault.FieldsOf(err) {
		got = append(got, f.Path)
	}
	if !slices.Equal(got, paths) {
		t.Errorf("%s: wrong are %v, want %v (%v)", what, got, paths, err)
	}
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestInheritance(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		w.join(t, "c1", "north", machine("m1"), machine("m 2:x"))
		w.tree.put(tags.Registered{ID: "card", Type: "compute", Name: "Card", Parent: "node:c1:m1", CenterID: "c1"}, tags.Registered{ID: "cloud", Type: "cloud", Name: "Cloud"})
		w.set(t, ctx, "platform", "color=red", "size=s", "on=true")
		w.want(t, ctx, "center:c1", "color=red@platform") // size does not apply to centers, on is not inherited
		w.want(t, ctx, "node:c1:m1", "color=red@platform size=s@platform")
		w.want(t, ctx, "resource:card", "color=red@platform size=s@platform")
		w.set(t, ctx, "center:c1", "color=green", "pue=1.25")
		w.set(t, ctx, "node:c1:m1", "size=m")
		w.want(t, ctx, "center:c1", "color=green pue=1.25")
		w.want(t, ctx, "node:c1:m1", "color=green@center:c1 size=m")
		w.want(t, ctx, "node:c1:m 2:x", "color=green@center:c1 size=s@platform")
		w.want(t, ctx, "resource:card", "color=green@center:c1 size=m@node:c1:m1")
		w.set(t, ctx, "node:c1:m1", "color!")
		w.want(t, ctx, "node:c1:m1", "color! size=m")
		w.want(t, ctx, "resource:card", "size=m@node:c1:m1")
		w.set(t, ctx, "resource:card", "color=blue")
		x, err := w.Get(ctx, "resource:card")
		must(t, err)
		equal(t, "parents", x.Parents, []string{"node:c1:m1", "center:c1", "platform"})
		equal(t, "hidden", x.Tags[0].Hides, []tags.Hidden{{From: "center:c1", Value: "green"}, {From: "platform", Value: "red"}})
		w.set(t, ctx, "node:c1:m1", "color-")
		w.want(t, ctx, "node:c1:m1", "color=green@center:c1 size=m")
		// A center that is placed below a registered cloud inherits from it.
		w.tree.mu.Lock()
		w.tree.places["c1"] = "cloud"
		w.tree.mu.Unlock()
		w.set(t, ctx, "center:c1", "color-")
		w.set(t, ctx, "resource:cloud", "color=white")
		w.want(t, ctx, "node:c1:m1", "color=white@resource:cloud size=m")

		w.clock.advance(10 * time.Second) // lists may be some seconds behind a move
		rows, _, err := w.List(ctx, tags.Selector{Kinds: []tags.Kind{tags.Node, tags.Resource}, Expression: `tags["color"] == "white"`}, 0, "")
		must(t, err)
		var names []string
		for _, r := range rows {
			names = append(names, r.Object)
		}
		equal(t, "objects by tag", names, []string{"node:c1:m 2:x", "node:c1:m1", "resource:cloud"})
	})
}

func TestChanges(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		_, err := w.CreateDefinition(ctx, tags.Definition{Key: "grade", GroupID: "g", Setter: tags.Administrators})
		must(t, err)
		_, err = w.CreateDefinition(ctx, tags.Definition{Key: "auto", GroupID: "g", Setter: tags.RulesOnly})
		must(t, err)
		w.join(t, "c1", "north")
		w.tree.put(tags.Registered{ID: "mine", Type: "compute", TenantID: "acme"}, tags.Registered{ID: "all", Type: "compute"})
		equal(t, "first", w.set(t, ctx, "center:c1", "color=red").Changed, int64(1))
		equal(t, "again", w.set(t, ctx, "center:c1", "color=red").Unchanged, int64(1))
		equal(t, "clear what is not there", w.set(t, ctx, "center:c1", "pue-").Unchanged, int64(1))

		apply := func(ctx context.Context, object string, changes ...tags.Change) error {
			res, err := w.Apply(ctx, tags.Batch{Selector: tags.Selector{Objects: []string{object}}, Changes: changes})
			if err == nil && !res.Applied {
				err = errors.New(res.Problems[0].Problem)
			}
			return err
		}
		long := make([]tags.Change, 51)
		for _, x := range []struct {
			what    string
			object  string
			changes []tags.Change
			paths   []string
		}{
			{"nothing", "center:c1", nil, []string{"changes"}},
			{"too much", "center:c1", long, []string{"changes"}},
			{"unknown tag", "center:c1", parse("nope=1"), []string{"changes[0].key"}},
			{"bad key", "center:c1", parse("Nope=1"), []string{"changes[0].key"}},
			{"no value", "center:c1", parse("color="), []string{"changes[0].value"}},
			{"not allowed", "node:c1:m1", parse("size=xl"), []string{"changes[0].value"}},
			{"not a number", "center:c1", parse("pue=1e3"), []string{"changes[0].value"}},
			{"not true or false", "center:c1", parse("on=yes", "color=x"), []string{"changes[0].value"}},
			{"twice", "center:c1", parse("color=x", "color=y"), []string{"changes[1].key"}},
			{"a value to clear", "center:c1", []tags.Change{{Key: "color", Value: "x", Op: tags.Clear}}, []string{"changes[0].value"}},
			{"an op that is none", "center:c1", []tags.Change{{Key: "color", Value: "x", Op: 9}}, []string{"changes[0].op", "changes[0].value"}},
			{"not an object", "c1", parse("color=x"), []string{"selector.objects[0]"}},
			{"control characters", "center:c1", parse("color=a\x00"), []string{"changes[0].value"}},
		} {
			w.join(t, "c1", "north", machine("m1"))
			wantPaths(t, x.what, apply(ctx, x.object, x.changes...), x.paths...)
		}
		for what, x := range map[string]struct {
			ctx     context.Context
			object  string
			change  string
			problem string
		}{
			"wrong kind":        {ctx, "node:c1:m1", "pue=1", "tag pue applies to center, not to node"},
			"no such object":    {ctx, "center:c9", "color=x", "center c9 does not exist"},
			"administrators":    {ctx, "center:c1", "grade=1", "tag grade is set by administrators only"},
			"rules":             {admin(ctx), "center:c1", "auto=1", "tag auto is set by rules only"},
			"everyone's":        {member(ctx, "acme"), "center:c1", "color=x", "center:c1 belongs to everyone; only who sees all tenants may change its tags"},
			"everyone's record": {member(ctx, "acme"), "resource:all", "color=x", "resource:all belongs to everyone; only who sees all tenants may change its tags"},
			"another tenant's":  {member(ctx, "other"), "resource:mine", "color=x", "there is no resource mine"},
		} {
			if err := apply(x.ctx, x.object, parse(x.change)...); err == nil || err.Error() != x.problem && what != "no such object" {
				t.Errorf("%s: %v, want %s", what, err, x.problem)
			}
		}
		must(t, apply(admin(ctx), "center:c1", parse("grade=1")...))
		must(t, apply(member(ctx, "acme"), "resource:mine", parse("color=x")...))
		_, err = w.Get(member(ctx, "other"), "resource:mine")
		wantKind(t, "another tenant's tags", err, fault.NotFound)
		rows, _, err := w.Records(member(ctx, "other"), tags.RecordFilter{}, 0, "")
		must(t, err)
		for _, r := range rows {
			if strings.HasPrefix(r.Subject, "resource:") {
				t.Errorf("another tenant sees the history of %s", r.Subject)
			}
		}
		_, _, err = w.Records(member(ctx, "other"), tags.RecordFilter{Subject: "resource:mine"}, 0, "")
		wantKind(t, "another tenant's history", err, fault.NotFound)
	})
}

func TestBatch(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		for i := range 5 {
			w.join(t, fmt.Sprintf("c%d", i), []string{"north", "south"}[i%2])
		}
		b := tags.Batch{Selector: tags.Selector{Kinds: []tags.Kind{tags.Center}, Expression: `region == "north"`}, Changes: parse("color=red", "pue=1.1"), RequestID: "r1", DryRun: true, Reason: "audit"}
		res, err := w.Apply(ctx, b)
		must(t, err)
		if res.Applied || res.Objects != 3 || res.Changed != 6 || len(res.Changes) != 6 || res.Changes[0] != (tags.Applied{Object: "center:c0", Key: "color", After: tags.State{Value: "red"}}) {
			t.Errorf("dry run = %+v", res)
		}
		w.want(t, ctx, "center:c0", "")
		b.DryRun = false
		var steps []string
		b.Progress = func(step string, done, total int) {
			steps = append(steps, fmt.Sprintf("%s %d/%d", step, done, total))
		}
		first, err := w.Apply(ctx, b)
		must(t, err)
		equal(t, "progress", steps, []string{"find 0/0", "check 0/3", "check 0/3", "write 6/6", "done 3/3"})
		if !first.Applied || first.Changed != 6 || first.BatchID == "" {
			t.Errorf("batch = %+v", first)
		}
		w.want(t, ctx, "center:c2", "color=red pue=1.1")
		w.want(t, ctx, "center:c1", "")
		// The same again, also after a restart and other changes.
		w.set(t, ctx, "center:c0", "color=blue")
		w.reopen(t)
		again, err := w.Apply(ctx, b)
		must(t, err)
		if !again.Repeated || again.BatchID != first.BatchID || again.Changed != 6 {
			t.Errorf("again = %+v", again)
		}
		w.want(t, ctx, "center:c0", "color=blue pue=1.1")
		b.Changes = parse("color=black")
		_, err = w.Apply(ctx, b)
		wantKind(t, "another request of the same ID", err, fault.Conflict)

		// One that cannot be stops all.
		w.join(t, "c0", "north", machine("m1"))
		res, err = w.Apply(ctx, tags.Batch{Selector: tags.Selector{Kinds: []tags.Kind{tags.Center, tags.Node}}, Changes: parse("color=white", "size=s")})
		must(t, err)
		if res.Applied || len(res.Problems) != 5 || res.Problems[0].Field != "changes[1].key" {
			t.Errorf("refused batch = %+v", res)
		}
		w.want(t, ctx, "node:c0:m1", "color=blue@center:c0")
		rows, _, err := w.Records(ctx, tags.RecordFilter{BatchID: first.BatchID}, 0, "")
		must(t, err)
		if len(rows) != 6 || rows[0].Origin != "op" || rows[0].Reason != "audit" || rows[0].Source != tags.Person {
			t.Errorf("records of the batch = %+v", rows)
		}
		for what, x := range map[string]struct {
			sel  tags.Selector
			path string
		}{
			"nothing": {tags.Selector{}, "selector.kinds"}, "kind": {tags.Selector{Kinds: []tags.Kind{9}}, "selector.kinds[0]"}, "center": {tags.Selector{Kinds: []tags.Kind{2}, CenterID: "?"}, "selector.ai_center_id"},
			"expression": {tags.Selector{Kinds: []tags.Kind{2, 5}, Expression: `region == "x"`}, "selector.expression"}, "too many": {tags.Selector{Objects: make([]string, 1001)}, "selector.objects"},
		} {
			_, err := w.Apply(ctx, tags.Batch{Selector: x.sel, Changes: parse("color=x")})
			wantPaths(t, what, err, x.path)
		}
		_, _, err = w.List(ctx, tags.Selector{Kinds: []tags.Kind{2, 5}, Expression: `region == "x"`}, 0, "")
		if err == nil || !strings.Contains(err.Error(), "line 1, column 1: undeclared reference to 'region' (in container '') (for kind spec)") {
			t.Errorf("where it is wrong: %v", err)
		}
	})
}

func TestConcurrentChanges(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.library(t, ctx)
		for i := range 4 {
			w.join(t, fmt.Sprintf("c%d", i), "north")
		}
		_, err := w.CreateRule(ctx, tags.RuleSpec{ID: "r", Key: "on", Kinds: []tags.Kind{tags.Center}, When: "true", Value: "false"})
		must(t, err)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := range 5 {
					res, err := w.Apply(ctx, tags.Batch{Selector: tags.Selector{Kinds: []tags.Kind{tags.Center}}, Changes: []tags.Change{{Key: "color", Value: fmt.Sprint(i)}, {Key: "on", Value: "true"}}, RequestID: fmt.Sprintf("%d-%d", i, n)})
					if err != nil || !res.Applied {
						t.Errorf("%+v, %v", res, err)
					}
				}
			})
			wg.Go(func() {
				if _, err := w.Evaluate(ctx, tags.Center); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// All or nothing: every center has the same color, and the last change
		// of the history says which.
		one := w.has(t, ctx, "center:c0")
		for i := range 4 {
			w.want(t, ctx, fmt.Sprintf("center:c%d", i), one)
		}
		if !strings.HasSuffix(one, "on=true") {
			t.Errorf("a rule wrote over a person: %s", one)
		}
		must(t, w.d.View(ctx, func(tx *db.Tx) error {
			// Each value's latest record is the value.
			return tx.Query(ctx, `SELECT v.object, v.tag_key, v.value, (SELECT h.after FROM tag_history h WHERE h.subject = v.object AND h.tag_key = v.tag_key ORDER BY h.change_id DESC LIMIT 1) FROM tag_values v`, nil, func(row db.Row) error {
				var object, key, value, after string
				err := row.Scan(&object, &key, &value, &after)
				if value != after {
					t.Errorf("%s of %s is %s, its history says %s", key, object, value, after)
				}
				return err
			})
		}))
	})
}
