package policies

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/sim"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// Bench chooses among policies as if they were in force, for simulations. What
// modules do on it counts for nothing but the simulation; one that fails
// faultsInRow times is not asked again. A Bench is for one simulation at a time.
type Bench struct {
	around
	book *book
	bad  map[*module]int
	mods *modules // its own; nil: the service's
}

func newBench(b *book, centers func(context.Context) ([]string, []expr.Facts, int64, error)) *Bench {
	own := *b
	own.memory = newMemory()
	out := &Bench{book: &own, bad: map[*module]int{}}
	out.around = around{centers: centers, module: out.rehearse}
	return out
}

func (b *Bench) rehearse(ctx context.Context, m *module, function string, n int, facts func(i int) expr.Facts, took func(i int, result uint64)) error {
	if isolated, why := m.state(); isolated {
		return fmt.Errorf("is isolated: %s", why)
	}
	if b.bad[m] >= faultsInRow {
		return fmt.Errorf("failed %d times", faultsInRow)
	}
	err := m.run(ctx, function, n, facts, took)
	if err != nil && ctx.Err() == nil {
		b.bad[m]++
	}
	return err
}

// Close frees what its own modules hold.
func (b *Bench) Close() {
	if b.mods != nil {
		b.mods.close()
	}
}

// Policy is one for [sim.Run]: what is on the bench decides, and set where it
// has no say. Start is when the time of the simulation begins.
func (b *Bench) Policy(ctx context.Context, name string, set *place.Set, start time.Time) sim.Policy {
	return sim.Policy{Name: name, Set: set, Judge: func(now int64, snap *place.Snapshot, j *sim.Job, w *place.Work) error {
		it := &scheduler.Item{Work: *w, User: j.User, Labels: j.Labels, Weights: j.Weights}
		if j.Work != nil {
			it.Work.ID = j.Work.ID // by which arms are shared out
		}
		b.now = start.Add(time.Duration(now) * time.Microsecond)
		works := []place.Work{*w}
		if _, err := b.choose(ctx, b.book, snap, []*scheduler.Item{it}, works, set); err != nil {
			return err
		}
		w.Set = works[0].Set
		return nil
	}}
}

// Bench has the policies in force on it and, if x is not nil, that one as if it
// were issued to its own scope; its dates are not looked at. It returns
// fault.Invalid with what is wrong below "document.", and fault.NotFound.
func (s *Service) Bench(ctx context.Context, x *Subject) (*Bench, error) {
	if x == nil {
		b, err := s.current(ctx)
		if err != nil {
			return nil, err
		}
		return newBench(b, s.tags.PlacementFacts), nil
	}
	c, err := s.candidate(ctx, x)
	if err != nil {
		return nil, err
	}
	return newBench(c.book, s.tags.PlacementFacts), nil
}

// Alone is Bench with that policy only, for inputs that are not of the platform:
// nothing is known of their centers but what the input says.
func (s *Service) Alone(ctx context.Context, x *Subject) (*Bench, error) {
	c, err := s.candidate(ctx, x)
	if err != nil {
		return nil, err
	}
	b := &book{entries: []*entry{c.own}, memory: newMemory()}
	b.reads = readsOf(b.entries)
	return newBench(b, noFacts), nil
}

func noFacts(context.Context) ([]string, []expr.Facts, int64, error) { return nil, nil, 0, nil }

// shelved is a document with what is known of it where it was recorded.
type shelved struct {
	Document
	Version int64 `json:"version,omitempty"`
	Issued  bool  `json:"issued,omitempty"`
}

// ModuleFile is a module that documents name.
type ModuleFile struct {
	ID      string
	Version int64
	Code    []byte
}

// NewBench has documents on it that no platform keeps: those that policies in
// force were recorded as, and others, which are taken to be in force. Modules are
// those given. It returns fault.Invalid with all that is wrong.
func NewBench(ctx context.Context, recorded []json.RawMessage, docs []Document, files []ModuleFile) (*Bench, error) {
	f := &folder{docs: map[string][]shelved{}, issued: map[string]int64{}, mods: newModules(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(io.Discard, nil)))}
	for i, text := range recorded {
		var d shelved
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&d); err != nil {
			return nil, fault.Fields(fault.Field{Path: fmt.Sprintf("recorded.policies[%d]", i), Problem: "is not a policy as it is recorded: " + err.Error()})
		}
		f.add(d)
	}
	for i, d := range docs {
		if slices.ContainsFunc(docs[:i], func(o Document) bool { return o.ID == d.ID }) {
			return nil, fault.Fields(fault.Field{Path: "policy_id", Problem: fmt.Sprintf("%q is given twice", clip(d.ID))})
		}
		f.add(shelved{Document: d, Issued: true})
	}
	b := &book{memory: newMemory()}
	for _, m := range files {
		x, err := f.mods.load(ctx, m.ID, m.Version, m.Code)
		if err != nil {
			f.mods.close()
			return nil, err
		}
		f.files = append(f.files, x)
	}
	for id, version := range f.issued {
		d, err := f.get(id, version)
		if err == nil {
			e := &entry{scope: d.Scope}
			if e.base, err = f.grow(d, 0); err == nil {
				b.entries = append(b.entries, e)
			}
		}
		if err != nil {
			f.mods.close()
			return nil, err
		}
	}
	slices.SortFunc(b.entries, before)
	b.reads = readsOf(b.entries)
	out := newBench(b, noFacts)
	out.mods = f.mods
	return out, nil
}

// folder holds documents that no platform keeps.
type folder struct {
	docs   map[string][]shelved
	issued map[string]int64
	mods   *modules
	files  []*module
}

// add adds a document; one without a version replaces what is in force.
func (f *folder) add(d shelved) {
	if d.Issued {
		f.issued[d.ID] = d.Version
	}
	f.docs[d.ID] = append(f.docs[d.ID], d)
}

func (f *folder) get(id string, version int64) (*shelved, error) {
	list := f.docs[id]
	for i := range slices.Backward(list) {
		if d := &list[i]; d.Version == version || version == 0 && d.Version == f.issued[id] {
			return d, nil
		}
	}
	if len(list) == 0 {
		return nil, noPolicy(id)
	}
	return nil, noVersion(id, version)
}

func (f *folder) grow(d *shelved, depth int) (*tree, error) {
	if depth > maxDepth {
		return nil, fault.New(fault.Invalid, "policies are included deeper than %d, or in a circle", maxDepth)
	}
	c, problems := compile(d.Document, d.Version)
	if err := invalid("", problems); err != nil {
		return nil, err
	}
	for _, r := range c.own() {
		if r.use == nil {
			continue
		}
		i := slices.IndexFunc(f.files, func(m *module) bool { return m.id == r.use.ID && m.version == r.use.Version })
		if i < 0 {
			return nil, fault.New(fault.NotFound, "policy %s needs version %d of module %s, which is not given", d.ID, r.use.Version, r.use.ID)
		}
		r.module = f.files[i]
	}
	out := &tree{compiled: c}
	for _, x := range d.Includes {
		of, err := f.get(x.ID, x.Version)
		if err != nil {
			return nil, fmt.Errorf("policy %s includes %s: %w", d.ID, x.ID, err)
		}
		part, err := f.grow(of, depth+1)
		if err != nil {
			return nil, fmt.Errorf("policy %s includes %s: %w", d.ID, x.ID, err)
		}
		out.parts = append(out.parts, part)
	}
	return out, nil
}
