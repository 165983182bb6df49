package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// trail is the decisions of a cycle as they are stored: each with its whole
// table, which is written once and then only where it changed. Decisions about
// works that ask for the same are a chain: what one placement changes is a row
// or two of a table that may have thousands. What follows from the rest of a
// row is not stored.
type trail struct {
	Chains []*chain `json:"chains"`
	Steps  []step   `json:"steps"`
	// Candidates and Names are those of all rows, by number.
	Candidates []string `json:"candidates"`
	Names      []string `json:"names"`

	number map[string]int
	owner  map[*place.Row]*chain // of each row that a table has at its end so far
	steps  map[*place.Decision]int
	ends   map[*place.Decision]*chain // whose last decision that is
}

// chain has what its decisions have in common.
type chain struct {
	Set        string              `json:"set"`
	Evaluator  string              `json:"evaluator"`
	Algorithm  string              `json:"algorithm,omitempty"`
	Policies   []place.PolicyInUse `json:"policies"`
	WeightSum  int64               `json:"weight_sum"`
	Candidates int                 `json:"candidates"`
	Omitted    int                 `json:"omitted,omitempty"`

	number int
	last   *place.Decision
	table  []place.Entry // of the last decision; nil if that told of a change
}

// step is a decision but for its table, and what of that is different from the
// one before in its chain.
type step struct {
	Chain    int           `json:"chain"`
	Feasible int           `json:"feasible"`
	Chosen   string        `json:"chosen,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Margin   *place.Margin `json:"margin,omitempty"`
	Load     place.Load    `json:"load"`
	Gone     []int32       `json:"gone,omitempty"` // places in the table before, ascending
	New      entries       `json:"new,omitempty"`  // ascending by their places now
}

// put is an entry of a table and its place in it.
type put struct {
	at        int
	candidate int
	entry     place.Entry
}

type entries []put

func newTrail() *trail {
	return &trail{number: map[string]int{}, owner: map[*place.Row]*chain{}, steps: map[*place.Decision]int{}, ends: map[*place.Decision]*chain{}}
}

// add appends a decision and returns its place; one that was added before has
// it already. Those that its table is told by are added with it.
func (t *trail) add(d *place.Decision) int {
	if at, ok := t.steps[d]; ok {
		return at
	}
	path := []*place.Decision{d}
	for first := d; first.Change != nil && t.ends[first.Change.Since] == nil; path = append(path, first) {
		first = first.Change.Since
	}
	for _, d := range slices.Backward(path) {
		t.append(d)
	}
	return t.steps[d]
}

func (t *trail) append(d *place.Decision) {
	var c *chain
	if d.Change != nil {
		c = t.ends[d.Change.Since]
		c.table = nil
	}
	for i := 0; c == nil && i < len(d.Table); i++ {
		c = t.owner[d.Table[i].Row]
	}
	if c == nil || c.table == nil && d.Change == nil {
		c = &chain{Set: d.Set, Evaluator: d.Evaluator, Algorithm: d.Algorithm, Policies: d.Policies, WeightSum: d.WeightSum, Candidates: d.Candidates, Omitted: d.Omitted, number: len(t.Chains)}
		t.Chains = append(t.Chains, c)
	}
	s := step{Chain: c.number, Feasible: d.Feasible, Chosen: d.Chosen, Reason: d.Reason, Margin: d.Margin, Load: d.Load}
	if d.Change != nil {
		s.Gone, s.New = d.Change.Gone, make(entries, len(d.Change.New))
		for i, p := range d.Change.New {
			s.New[i] = put{p.At, t.numberOf(p.Row), p.Entry}
		}
	} else {
		t.differ(c, d.Table, &s)
	}
	t.Steps = append(t.Steps, s)
	delete(t.ends, c.last)
	c.last, t.steps[d], t.ends[d] = d, len(t.Steps)-1, c
}

// differ notes what of a table is not as in the last one of the chain.
func (t *trail) differ(c *chain, table []place.Entry, s *step) {
	i := 0
	if len(c.table) == 0 { // all of it is new
		s.New = make(entries, 0, len(table))
	}
	for k := 0; k < len(table); {
		e := &table[k]
		switch {
		case i < len(c.table) && e.Row == c.table[i].Row && slices.Equal(e.Rules, c.table[i].Rules):
			i++
			k++
		case i < len(c.table) && e.Row != c.table[i].Row && t.owner[e.Row] == c: // it comes later in the old one
			delete(t.owner, c.table[i].Row)
			s.Gone = append(s.Gone, int32(i))
			i++
		default:
			s.New = append(s.New, put{k, t.numberOf(e.Row), *e})
			k++
		}
	}
	for ; i < len(c.table); i++ {
		delete(t.owner, c.table[i].Row)
		s.Gone = append(s.Gone, int32(i))
	}
	for k := range s.New { // after all that is gone: a row may only have moved
		t.owner[s.New[k].entry.Row] = c
	}
	c.table = table
}

func (t *trail) numberOf(r *place.Row) int {
	n, ok := t.number[r.Candidate]
	if !ok {
		n = len(t.Candidates)
		t.number[r.Candidate] = n
		t.Candidates, t.Names = append(t.Candidates, r.Candidate), append(t.Names, r.Name)
	}
	return n
}

// decision returns the decision at a place of a trail that was read.
func (t *trail) decision(at int) (*place.Decision, error) {
	if at < 0 || at >= len(t.Steps) {
		return nil, fmt.Errorf("there is no decision %d of %d", at, len(t.Steps))
	}
	last := &t.Steps[at]
	if last.Chain < 0 || last.Chain >= len(t.Chains) || t.Chains[last.Chain] == nil {
		return nil, fmt.Errorf("decision %d is of chain %d of %d", at, last.Chain, len(t.Chains))
	}
	c := t.Chains[last.Chain]
	var table []place.Entry
	for i := range t.Steps[:at+1] {
		s := &t.Steps[i]
		if s.Chain != last.Chain {
			continue
		}
		next := make([]place.Entry, 0, len(table)+len(s.New)-min(len(s.Gone), len(table)))
		from, gone := 0, s.Gone
		keep := func(until int) { // rows of the table before, until there are so many
			for len(next) < until && from < len(table) {
				if len(gone) > 0 && int(gone[0]) == from {
					gone = gone[1:]
				} else {
					next = append(next, table[from])
				}
				from++
			}
		}
		for _, p := range s.New {
			keep(p.at)
			e, err := t.whole(c, p)
			if err != nil {
				return nil, fmt.Errorf("decision %d: %w", i, err)
			}
			next = append(next, e)
		}
		keep(c.Candidates)
		table = next
	}
	d := &place.Decision{Set: c.Set, Evaluator: c.Evaluator, Algorithm: c.Algorithm, Policies: c.Policies, WeightSum: c.WeightSum, Candidates: c.Candidates, Omitted: c.Omitted,
		Feasible: last.Feasible, Chosen: last.Chosen, Reason: last.Reason, Margin: last.Margin, Load: last.Load, Table: table}
	for k := range table[:min(len(table), max(0, d.Feasible))] {
		table[k].Rank = k + 1
		table[k].Chosen = d.Chosen != "" && table[k].Candidate == d.Chosen
	}
	return d, nil
}

// whole completes an entry that was read by what follows from it.
func (t *trail) whole(c *chain, p put) (place.Entry, error) {
	if p.candidate < 0 || p.candidate >= len(t.Candidates) || len(t.Names) != len(t.Candidates) {
		return place.Entry{}, fmt.Errorf("a row is of candidate %d of %d", p.candidate, len(t.Candidates))
	}
	r := *p.entry.Row
	r.Candidate, r.Name = t.Candidates[p.candidate], t.Names[p.candidate]
	if r.Scores == nil {
		return place.Entry{Rules: p.entry.Rules, Row: &r}, nil
	}
	if len(r.Scores) != len(c.Policies) || r.Exact == nil || len(r.Values) != 1 {
		return place.Entry{}, fmt.Errorf("the row of %s does not fit its policies", r.Candidate)
	}
	flat := r.Values[0]
	r.Values = make([][]place.Fact, len(c.Policies))
	for u := range c.Policies {
		n := len(c.Policies[u].Factors)
		if n > len(flat) {
			return place.Entry{}, fmt.Errorf("the row of %s lacks values", r.Candidate)
		}
		r.Values[u], flat = flat[:n:n], flat[n:]
		r.Weighted = append(r.Weighted, c.Policies[u].Weight*int64(r.Scores[u]))
	}
	r.Final = r.Exact.Rounded()
	return place.Entry{Rules: p.entry.Rules, Row: &r}, nil
}

// appendTo appends a trail as JSON. It is written by hand because there are
// thousands of rows in a cycle.
func (t *trail) appendTo(b []byte) ([]byte, error) {
	chains, err := json.Marshal(t.Chains)
	if err != nil {
		return nil, err
	}
	b = append(append(append(b, `{"chains":`...), chains...), `,"steps":[`...)
	for i := range t.Steps {
		s := t.Steps[i]
		list := s.New
		s.New = nil
		text, err := json.Marshal(&s)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, text...)
		if len(list) > 0 {
			if b, err = list.appendTo(append(b[:len(b)-1], `,"new":`...)); err != nil {
				return nil, err
			}
			b = append(b, '}')
		}
	}
	candidates, err := json.Marshal(t.Candidates)
	if err != nil {
		return nil, err
	}
	names, err := json.Marshal(t.Names)
	if err != nil {
		return nil, err
	}
	b = append(append(b, `],"candidates":`...), candidates...)
	return append(append(append(b, `,"names":`...), names...), '}'), nil
}

// appendTo appends one array per entry: its place, candidate, the parts of its
// exact score, rules, filters, network, scores, values.
func (es entries) appendTo(b []byte) ([]byte, error) {
	b = append(b, '[')
	for i, p := range es {
		r := p.entry.Row
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, '['), int64(p.at), 10)
		b = strconv.AppendInt(append(b, ','), int64(p.candidate), 10)
		exact := place.Exact{}
		if r.Exact != nil {
			exact = *r.Exact
		}
		b = strconv.AppendInt(append(b, ','), exact.Num, 10)
		b = strconv.AppendInt(append(b, ','), exact.Den, 10)
		for _, list := range [][]place.Reason{p.entry.Rules, r.Filtered} {
			if b = append(b, ','); len(list) == 0 {
				b = append(b, "[]"...)
				continue
			}
			text, err := json.Marshal(list)
			if err != nil {
				return nil, err
			}
			b = append(b, text...)
		}
		if b = append(b, ','); r.Network == "" {
			b = append(b, `""`...)
		} else {
			text, err := json.Marshal(r.Network)
			if err != nil {
				return nil, err
			}
			b = append(b, text...)
		}
		b = append(b, ",["...)
		for k, n := range r.Scores {
			if k > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(n), 10)
		}
		b = append(b, "],["...)
		first := true
		for _, list := range r.Values {
			for _, f := range list {
				if !first {
					b = append(b, ',')
				}
				if first = false; f.Known {
					b = strconv.AppendInt(b, f.Value, 10)
				} else {
					b = append(b, "null"...)
				}
			}
		}
		b = append(b, "]]"...)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads what appendTo writes; the values of a row are left in
// one list.
func (es *entries) UnmarshalJSON(b []byte) error {
	var list [][]json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	for _, parts := range list {
		p := put{entry: place.Entry{Row: &place.Row{}}}
		r, exact, values := p.entry.Row, place.Exact{}, []place.Fact(nil)
		into := []any{&p.at, &p.candidate, &exact.Num, &exact.Den, &p.entry.Rules, &r.Filtered, &r.Network, &r.Scores, &values}
		if len(parts) != len(into) {
			return fmt.Errorf("an entry has %d parts, not %d", len(parts), len(into))
		}
		for i := range into {
			if err := json.Unmarshal(parts[i], into[i]); err != nil {
				return err
			}
		}
		if len(p.entry.Rules) == 0 {
			p.entry.Rules = nil
		}
		if len(r.Filtered) == 0 {
			r.Filtered = nil
		}
		if r.Scores, r.Values = nilIfEmpty(r.Scores), [][]place.Fact{values}; r.Scores == nil {
			r.Values = nil
		} else {
			r.Exact = &exact
		}
		*es = append(*es, p)
	}
	return nil
}

func nilIfEmpty(s []int) []int {
	if len(s) == 0 {
		return nil
	}
	return s
}

// packing is memory for packing trails, one after the other.
type packing struct{ text, body []byte }

// packTrail makes of a trail what is stored. It is good until the memory is
// used for the next.
func (s *Service) packTrail(t *trail, m *packing) ([]byte, error) {
	var err error
	if m.text, err = t.appendTo(m.text[:0]); err != nil {
		return nil, fmt.Errorf("encode decisions: %w", err)
	}
	m.body = s.enc.EncodeAll(m.text, m.body[:0])
	return m.body, nil
}

// unpackTrail reads what packTrail made.
func (s *Service) unpackTrail(body []byte) (*trail, error) {
	b, err := s.dec.DecodeAll(body, nil)
	if err != nil {
		return nil, fmt.Errorf("stored decisions: %w", err)
	}
	t := &trail{}
	if err := json.Unmarshal(b, t); err != nil {
		return nil, fmt.Errorf("stored decisions: %w", err)
	}
	return t, nil
}

// storeTrail stores decisions: a row for each, as given (its ID, job, time and
// place in the trail), and the trail.
func storeTrail(ctx context.Context, tx *db.Tx, body []byte, rows [][]any) error {
	id := core.NewID("trl")
	if err := tx.InsertLater(ctx, "store a trail of decisions", "decision_trails", []string{"trail_id", "decisions", "body"}, [][]any{{id, len(rows), body}}); err != nil {
		return err
	}
	full := make([][]any, len(rows))
	for i, r := range rows {
		full[i] = append(slices.Clip(r), id, []byte{})
	}
	return tx.InsertLater(ctx, "store decisions", "decisions", []string{"decision_id", "job_id", "at", "place", "trail_id", "body"}, full)
}

// decisions returns the stored decisions of a job by ID.
func (s *Service) decisions(ctx context.Context, jobID string) (map[string]*place.Decision, error) {
	type found struct {
		id, trail string
		at        int
	}
	var list []found
	var trails map[string]*trail
	out := map[string]*place.Decision{}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		list, trails = nil, map[string]*trail{}
		clear(out)
		err := tx.Query(ctx, `SELECT decision_id, trail_id, place, body FROM decisions WHERE job_id = $1`, []any{jobID}, func(row db.Row) error {
			var f found
			var body []byte
			if err := row.Scan(&f.id, &f.trail, &f.at, &body); err != nil {
				return err
			}
			if f.trail != "" {
				list = append(list, f)
				return nil
			}
			d, err := s.unpack(body)
			out[f.id] = d
			return err
		})
		if err != nil {
			return err
		}
		for _, f := range list {
			if trails[f.trail] != nil {
				continue
			}
			var body []byte
			ok, err := tx.Get(ctx, `SELECT body FROM decision_trails WHERE trail_id = $1`, []any{f.trail}, &body)
			if err != nil {
				return fmt.Errorf("read trail %s of decision %s: %w", f.trail, f.id, err)
			}
			if !ok {
				return fmt.Errorf("trail %s of decision %s is not there", f.trail, f.id)
			}
			if trails[f.trail], err = s.unpackTrail(body); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		if out[f.id], err = trails[f.trail].decision(f.at); err != nil {
			return nil, fmt.Errorf("trail %s: %w", f.trail, err)
		}
	}
	return out, nil
}

// ForgetTx deletes the decisions of a job, and trails that nothing is left of.
func (s *Service) ForgetTx(ctx context.Context, tx *db.Tx, jobID string) error {
	gone := map[string]int64{}
	err := tx.Query(ctx, `SELECT trail_id, COUNT(*) FROM decisions WHERE job_id = $1 AND trail_id <> '' GROUP BY trail_id`, []any{jobID}, func(row db.Row) error {
		var id string
		var n int64
		err := row.Scan(&id, &n)
		gone[id] = n
		return err
	})
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM decisions WHERE job_id = $1`, jobID); err != nil {
		return err
	}
	for _, id := range slices.Sorted(keys(gone)) {
		if _, err := tx.Exec(ctx, `UPDATE decision_trails SET decisions = decisions - $2 WHERE trail_id = $1`, id, gone[id]); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM decision_trails WHERE trail_id = $1 AND decisions <= 0`, id); err != nil {
			return err
		}
	}
	return nil
}
