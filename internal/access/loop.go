package access

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/tags/expr"
)

const (
	// lookEvery is how soon a change of a rule or of the catalog is noticed.
	lookEvery = 2 * time.Second
	// judgeEvery is how often centers are judged though nothing changed, and
	// wideEvery all the others: what is known of those changes with a catalog,
	// not by the second.
	judgeEvery = 15 * time.Second
	wideEvery  = time.Minute
	// keepSteps is how long steps are kept.
	keepSteps = 180 * 24 * time.Hour
)

// judged is what the loop knows from one look to the next.
type judged struct {
	changes, catalog int64
	centers, wide    time.Time
	archs            map[string][]string
	failed           bool
}

// Run judges until ctx ends. One process at a time may run it (run.Elector).
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var j judged
	for {
		core.Round(ctx, lookEvery)
		err := s.round(ctx, &j)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !j.failed:
			s.log.Warn("access not judged, will try again", "error", err)
		case err == nil && j.failed:
			s.log.Info("access judged again")
		}
		if j.failed = err != nil; j.failed {
			core.RoundFailed(ctx, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-tick.C:
		}
	}
}

// round judges what is due.
func (s *Service) round(ctx context.Context, j *judged) error {
	lib, err := s.load(ctx)
	if err != nil {
		return err
	}
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return err
	}
	now := s.db.Now()
	due := func(last time.Time, every time.Duration) bool {
		since := now.Sub(last)
		return since < 0 || since >= every
	}
	rules, catalog := lib.changes != j.changes, cat.Version != j.catalog
	wide := rules || due(j.wide, wideEvery)
	if !wide && !catalog && !due(j.centers, judgeEvery) {
		return nil
	}
	if err := s.judge(ctx, lib, j, wide || j.archs == nil); err != nil {
		return err
	}
	j.changes, j.catalog, j.centers = lib.changes, cat.Version, now
	if wide {
		j.wide = now
	}
	return nil
}

// judge judges the centers, and if it is wide all the rest, and writes what
// became another.
func (s *Service) judge(ctx context.Context, lib *library, j *judged, wide bool) error {
	var nodes []Report
	if wide {
		var err error
		if nodes, err = s.judgeNodes(ctx, lib, j); err != nil {
			return err
		}
	}
	v, err := s.look(ctx, j.archs)
	if err != nil {
		return err
	}
	var fresh []Report
	for _, k := range v.snap.Centers {
		r := Report{ResourceID: inventory.CenterID(k.ID), Kind: Center, Name: k.Name}
		r.Status, r.Verdicts = judge(lib.rules, Center, v.facts(k))
		fresh = append(fresh, r)
	}
	if wide {
		fresh = append(fresh, nodes...)
		// What is registered comes first in a list; the rest was judged already.
		for token, more := "", true; more; {
			rows, next, err := s.inv.List(platform(ctx), inventory.Filter{}, 1000, token)
			if err != nil {
				return err
			}
			for i := range rows {
				if more = registered(rows[i].ID); !more {
					break
				}
				r := Report{ResourceID: rows[i].ID, Kind: Registered, Name: rows[i].Name}
				r.Status, r.Verdicts = judge(lib.rules, Registered, resourceFacts(&rows[i]))
				fresh = append(fresh, r)
			}
			token, more = next, more && next != ""
		}
	}
	return s.store(ctx, fresh, wide)
}

// judgeNodes judges all nodes, and learns the architectures of centers.
func (s *Service) judgeNodes(ctx context.Context, lib *library, j *judged) ([]Report, error) {
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	var out []Report
	archs := map[string]map[string]bool{}
	for token := ""; ; {
		rows, next, err := s.reg.ListNodes(ctx, registry.NodeFilter{}, 1000, token)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			n := &rows[i]
			if archs[n.CenterID] == nil {
				archs[n.CenterID] = map[string]bool{}
			}
			archs[n.CenterID][n.Architecture] = true
			region := ""
			if k := cat.Centers[n.CenterID]; k != nil {
				region = k.Region
			}
			r := Report{ResourceID: inventory.NodeID(n.CenterID, n.Name), Kind: Node, Name: n.Name}
			r.Status, r.Verdicts = judge(lib.rules, Node, nodeFacts(n, region))
			out = append(out, r)
		}
		if token = next; token == "" {
			break
		}
	}
	j.archs = make(map[string][]string, len(archs))
	for id, set := range archs {
		j.archs[id] = slices.Sorted(maps.Keys(set))
	}
	return out, nil
}

// sameVerdicts compares what was judged, not the values that were read.
func sameVerdicts(a, b *Report) bool {
	return a.Status == b.Status && a.Name == b.Name && slices.EqualFunc(a.Verdicts, b.Verdicts, func(x, y Verdict) bool {
		x.Observed, y.Observed = "", ""
		return x == y
	})
}

// writeBatch reports are written in one transaction.
const writeBatch = 500

// store stores the reports that are others than those stored, and forgets
// those of resources that are no more; all says that fresh is all there are.
func (s *Service) store(ctx context.Context, fresh []Report, all bool) error {
	var have []Report
	if err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		have, err = readReports(ctx, tx, reportFilter{})
		return err
	}); err != nil {
		return err
	}
	stored := make(map[string]*Report, len(have))
	for i := range have {
		if all || have[i].Kind == Center {
			stored[have[i].ResourceID] = &have[i]
		}
	}
	var changed []*Report
	for i := range fresh {
		r := &fresh[i]
		old := stored[r.ResourceID]
		delete(stored, r.ResourceID)
		if old == nil || !sameVerdicts(old, r) {
			if changed = append(changed, r); old != nil && old.Status == r.Status {
				r.ChangedAt = old.ChangedAt
			}
		}
	}
	gone := slices.Sorted(maps.Keys(stored))
	for len(changed) > 0 {
		n := min(len(changed), writeBatch)
		if err := s.db.Tx(ctx, func(tx *db.Tx) error {
			for _, r := range changed[:n] {
				if r.EvaluatedAt = tx.Now; r.ChangedAt.IsZero() {
					r.ChangedAt = tx.Now
				}
				if err := writeReport(ctx, tx, r); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		for _, r := range changed[:n] {
			if r.Kind == Center && r.ChangedAt.Equal(r.EvaluatedAt) {
				s.log.Info("compliance of a center changed", "resource_id", r.ResourceID, "status", statusWords[r.Status], "rules", broken(r.Verdicts))
			}
		}
		changed = changed[n:]
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		for _, id := range gone {
			if err := deleteReport(ctx, tx, id); err != nil {
				return err
			}
		}
		// Steps age out where the row is written anyway.
		if _, err := tx.Exec(ctx, `DELETE FROM access_steps WHERE at < $1`, db.Micros(tx.Now.Add(-keepSteps))); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE access_state SET evaluated_at = $1 WHERE name = 'access'`, db.Micros(tx.Now))
		return err
	})
}

var statusWords = [...]string{"", "compliant", "non-compliant", "unknown"}

// broken names the rules above advice that are not met.
func broken(list []Verdict) string {
	var out []string
	for _, v := range list {
		if v.Status == NonCompliant && v.Severity != Advice {
			out = append(out, v.RuleID)
		}
	}
	return strings.Join(out, " ")
}

// gate is which centers take no new work, as last read.
type gate struct {
	at      time.Time
	changes int64
	held    map[string]string
}

// Held returns the centers that take no new work because they do not meet the
// conditions of access, and why, for the owners of jobs; none while the switch
// is off. The map belongs to everyone. It is at most a second old.
func (s *Service) Held(ctx context.Context) (map[string]string, error) {
	lib, err := s.load(ctx)
	if err != nil || !lib.enforce {
		return nil, err
	}
	now := s.db.Now()
	s.mu.Lock()
	g := s.gate
	s.mu.Unlock()
	if age := now.Sub(g.at); g.held != nil && g.changes == lib.changes && age >= 0 && age < recheck {
		return g.held, nil
	}
	var bad []Report
	if err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		bad, err = readReports(ctx, tx, reportFilter{status: NonCompliant, kind: Center})
		return err
	}); err != nil {
		return nil, err
	}
	g = gate{now, lib.changes, map[string]string{}}
	for i := range bad {
		id, ok := strings.CutPrefix(bad[i].ResourceID, "center:")
		if ok {
			g.held[id] = "it does not meet the conditions of access: " + broken(bad[i].Verdicts)
		}
	}
	s.mu.Lock()
	s.gate = g
	s.mu.Unlock()
	return g.held, nil
}

// report returns the report of a resource: as stored, with the values of now
// if it is a center.
func (s *Service) report(ctx context.Context, id string) (*Report, expr.Facts, *view, error) {
	var c core.Check
	if c.Text("resource_id", id, true, 512, 0); c.Err() != nil {
		return nil, nil, nil, c.Err()
	}
	lib, err := s.load(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	var stored []Report
	if err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		stored, err = readReports(ctx, tx, reportFilter{id: id})
		return err
	}); err != nil {
		return nil, nil, nil, err
	}
	r := &Report{ResourceID: id}
	if len(stored) > 0 {
		r.ChangedAt = stored[0].ChangedAt
	}
	res, err := s.inv.Get(platform(ctx), id)
	if fault.KindOf(err) == fault.NotFound && registered(id) { // the ID of a center alone will do
		if k, kerr := s.inv.Get(platform(ctx), inventory.CenterID(id)); kerr == nil {
			return s.report(ctx, k.ID)
		}
	}
	if err != nil {
		return nil, nil, nil, err
	}
	r.Name, r.EvaluatedAt = res.Name, s.db.Now()
	var facts expr.Facts
	var v *view
	switch {
	case registered(id):
		r.Kind, facts = Registered, resourceFacts(&res)
	case res.Type == "node":
		_, name, _ := strings.Cut(strings.TrimPrefix(id, "node:"), ":")
		n, err := s.reg.GetNode(ctx, res.CenterID, name)
		if err != nil {
			return nil, nil, nil, err
		}
		r.Kind, facts = Node, nodeFacts(&n, res.Region)
	default:
		r.Kind = Center
		archs, err := s.architectures(ctx, res.CenterID)
		if err != nil {
			return nil, nil, nil, err
		}
		if v, err = s.look(ctx, map[string][]string{res.CenterID: archs}); err != nil {
			return nil, nil, nil, err
		}
		k := v.center(res.CenterID)
		if k == nil {
			return nil, nil, nil, fault.New(fault.NotFound, "there is no center %s", res.CenterID)
		}
		facts = v.facts(k)
	}
	r.Status, r.Verdicts = judge(lib.rules, r.Kind, facts)
	if len(stored) == 0 || stored[0].Status != r.Status {
		r.ChangedAt = r.EvaluatedAt
	}
	return r, facts, v, nil
}

func (v *view) center(id string) *registry.Center {
	i, ok := slices.BinarySearchFunc(v.snap.Centers, id, func(k *registry.Center, id string) int { return strings.Compare(k.ID, id) })
	if !ok {
		return nil
	}
	return v.snap.Centers[i]
}

// architectures returns those of a center's nodes.
func (s *Service) architectures(ctx context.Context, center string) ([]string, error) {
	set := map[string]bool{}
	for token := ""; ; {
		rows, next, err := s.reg.ListNodes(ctx, registry.NodeFilter{CenterID: center}, 1000, token)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			set[rows[i].Architecture] = true
		}
		if token = next; token == "" {
			return slices.Sorted(maps.Keys(set)), nil
		}
	}
}

// Report judges a resource now. It returns fault.Invalid and fault.NotFound.
func (s *Service) Report(ctx context.Context, id string) (*Report, error) {
	r, _, _, err := s.report(ctx, id)
	return r, err
}

// Reports returns a page of the stored reports by ID, of a status and a kind
// if they are not 0. It returns fault.Invalid.
func (s *Service) Reports(ctx context.Context, status Status, kind Kind, size int32, token string) (rows []Report, next string, err error) {
	var c core.Check
	c.Range("status", int64(status), 0, int64(Unknown))
	c.Range("kind", int64(kind), 0, int64(Registered))
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	f := reportFilter{status: status, kind: kind, limit: n + 1}
	if key != nil {
		f.after = key[0]
	}
	if err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		rows, err = readReports(ctx, tx, f)
		return err
	}); err != nil {
		return nil, "", err
	}
	if len(rows) > n {
		rows = rows[:n]
		next = core.PageToken(rows[n-1].ResourceID)
	}
	return rows, next, nil
}

// Counts of verdicts.
type Counts [4]int64 // by Status

// Summary is the report of the whole network.
type Summary struct {
	Kinds       map[Kind]Counts
	Rules       []*Rule // by ID
	ByRule      map[string]Counts
	Enforce     bool
	EvaluatedAt time.Time
}

// Summarize returns the report of the whole network as last judged.
func (s *Service) Summarize(ctx context.Context) (*Summary, error) {
	lib, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	out := &Summary{Kinds: map[Kind]Counts{}, Rules: lib.rules, ByRule: map[string]Counts{}, Enforce: lib.enforce}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		st, err := readState(ctx, tx)
		if err != nil {
			return err
		}
		out.EvaluatedAt = st.evaluated
		clear(out.Kinds)
		clear(out.ByRule)
		return eachVerdicts(ctx, tx, func(kind Kind, status Status, verdicts []Verdict, n int64) {
			c := out.Kinds[kind]
			c[status] += n
			out.Kinds[kind] = c
			for _, v := range verdicts {
				c := out.ByRule[v.RuleID]
				c[v.Status] += n
				out.ByRule[v.RuleID] = c
			}
		})
	})
	return out, err
}
