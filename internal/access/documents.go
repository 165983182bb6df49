package access

import (
	"context"
	"encoding/json"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// library is the rules and conversions there are, compiled.
type library struct {
	changes     int64
	enforce     bool
	checked     time.Time
	rules       []*Rule       // by ID
	conversions []*Conversion // by ID
	converters  map[string]*converter
}

// recheck is how long changes by other processes may go unseen.
const recheck = time.Second

// load returns the library as it is, at most a second old. While one caller
// reads it, others get the one at hand.
func (s *Service) load(ctx context.Context) (*library, error) {
	now := s.db.Now()
	s.mu.Lock()
	lib, stale := s.lib, s.stale
	s.mu.Unlock()
	if lib != nil && !stale {
		if age := now.Sub(lib.checked); age >= 0 && age < recheck || !s.loading.TryLock() {
			return lib, nil
		}
	} else {
		s.loading.Lock()
	}
	defer s.loading.Unlock()
	var st state
	var docs []document
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		if st, err = readState(ctx, tx); err != nil || lib != nil && lib.changes == st.changes {
			return err
		}
		docs, err = readDocuments(ctx, tx)
		return err
	})
	if err != nil {
		return nil, err
	}
	next := &library{changes: st.changes, enforce: st.enforce, checked: now, converters: map[string]*converter{}}
	if lib != nil && lib.changes == st.changes {
		next.rules, next.conversions, next.converters = lib.rules, lib.conversions, lib.converters
	} else {
		next.read(s, docs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lib, s.stale = next, false
	return next, nil
}

// read compiles what is stored. What an older version of the program stored
// and this one cannot compile is left out, and the log says so.
func (l *library) read(s *Service, docs []document) {
	sources := map[string]bool{"": true}
	for _, d := range docs {
		meta := Meta{d.id, d.version, db.Time(d.at), d.by}
		var err error
		switch d.kind {
		case kindRule:
			r := &Rule{}
			if err = json.Unmarshal([]byte(d.body), r); err == nil {
				r.Meta = meta
				if err = r.check(); err == nil {
					l.rules = append(l.rules, r)
				}
			}
		case kindConversion:
			c := &Conversion{}
			if err = json.Unmarshal([]byte(d.body), c); err == nil {
				c.Meta = meta
				if err = c.check(""); err == nil {
					l.conversions = append(l.conversions, c)
					sources[c.Source] = true
				}
			}
		}
		if err != nil {
			s.log.Warn("rule or conversion left out", "id", d.id, "version", d.version, "error", err)
		}
	}
	for source := range sources {
		l.converters[source] = newConverter(l.conversions, source)
	}
}

// converter returns that of a source.
func (l *library) converter(source string) *converter {
	if k := l.converters[source]; k != nil {
		return k
	}
	return l.converters[""]
}

// Rules returns the rules by ID.
func (s *Service) Rules(ctx context.Context) ([]*Rule, error) {
	l, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	return l.rules, nil
}

// Conversions returns the conversions that apply to a source in the order they
// are tried, those that are off included; "": all, by ID.
func (s *Service) Conversions(ctx context.Context, source string) ([]*Conversion, error) {
	l, err := s.load(ctx)
	if err != nil || source == "" {
		if err != nil {
			return nil, err
		}
		return l.conversions, nil
	}
	return l.converter(source).list, nil
}

// PutRule creates a rule whose version is 0, or replaces the one of its
// version; the same again changes nothing. It returns fault.Invalid with paths
// below "rule.", fault.Exists, fault.NotFound, fault.Conflict and
// fault.Exhausted.
func (s *Service) PutRule(ctx context.Context, r Rule) (*Rule, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	d, err := s.put(ctx, kindRule, r.ID, r.Version, toJSON(&r))
	if err != nil {
		return nil, err
	}
	r.Meta = Meta{d.id, d.version, db.Time(d.at), d.by}
	return &r, nil
}

// PutConversion is [Service.PutRule] of a conversion, with paths below
// "conversion.".
func (s *Service) PutConversion(ctx context.Context, c Conversion) (*Conversion, error) {
	if err := c.check("conversion."); err != nil {
		return nil, err
	}
	d, err := s.put(ctx, kindConversion, c.ID, c.Version, toJSON(&c))
	if err != nil {
		return nil, err
	}
	c.Meta = Meta{d.id, d.version, db.Time(d.at), d.by}
	return &c, nil
}

var nouns = [...]string{kindRule: "rule", kindConversion: "conversion"}

func (s *Service) put(ctx context.Context, kind int64, id string, version int64, body string) (next document, err error) {
	err = s.change(ctx, func(tx *db.Tx) error {
		old, found, err := readDocument(ctx, tx, kind, id)
		if err != nil {
			return err
		}
		next = document{kind: kind, id: id, body: body, at: db.Micros(tx.Now), by: core.CallerFrom(ctx).UserID}
		switch {
		case found && old.body == body && (version == 0 || version == old.version || version == old.version-1):
			next = old // asked again
			return s.ids.AuditTx(ctx, tx, id)
		case found && version == 0:
			return fault.New(fault.Exists, "%s %s exists already; give its version to replace it", nouns[kind], id)
		case !found && version != 0:
			return noDocument(kind, id)
		case found && version != old.version:
			return fault.New(fault.Conflict, "%s %s has version %d, not %d: it was changed meanwhile; read it and try again", nouns[kind], id, old.version, version)
		}
		next.version, err = s.write(ctx, tx, next, found)
		return err
	})
	return next, err
}

// write stores the next version of a document with its audit event, and
// returns which it is.
func (s *Service) write(ctx context.Context, tx *db.Tx, d document, found bool) (version int64, err error) {
	if !found && d.body != "" {
		n, err := count(ctx, tx, `SELECT COUNT(*) FROM access_documents WHERE kind = $1`, d.kind)
		if err != nil {
			return 0, err
		}
		if n >= maxDocuments {
			return 0, fault.New(fault.Exhausted, "there are %d %ss, which is the most", n, nouns[d.kind])
		}
	}
	last, err := count(ctx, tx, `SELECT COALESCE(MAX(version), 0) FROM access_versions WHERE kind = $1 AND id = $2`, d.kind, d.id)
	if err != nil {
		return 0, err
	}
	d.version = last + 1
	if err := writeDocument(ctx, tx, d, false); err != nil {
		return 0, err
	}
	return d.version, s.ids.AuditTx(ctx, tx, d.id)
}

// change runs a change of the library and has it read anew.
func (s *Service) change(ctx context.Context, f func(tx *db.Tx) error) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		tx.AfterCommit(func() {
			s.mu.Lock()
			s.stale = true
			s.mu.Unlock()
			select {
			case s.wake <- struct{}{}:
			default:
			}
		})
		return nil
	})
}

func noDocument(kind int64, id string) error {
	return fault.New(fault.NotFound, "there is no %s %s", nouns[kind], id)
}

// DeleteRule deletes a rule; its versions stay. It returns fault.NotFound.
func (s *Service) DeleteRule(ctx context.Context, id string) error {
	return s.remove(ctx, kindRule, "rule_id", id)
}

// DeleteConversion deletes a conversion; its versions stay. It returns
// fault.NotFound.
func (s *Service) DeleteConversion(ctx context.Context, id string) error {
	return s.remove(ctx, kindConversion, "conversion_id", id)
}

func (s *Service) remove(ctx context.Context, kind int64, path, id string) error {
	var c core.Check
	if c.ID(path, id); c.Err() != nil {
		return c.Err()
	}
	return s.change(ctx, func(tx *db.Tx) error {
		_, found, err := readDocument(ctx, tx, kind, id)
		if err != nil {
			return err
		}
		if !found {
			return noDocument(kind, id)
		}
		_, err = s.write(ctx, tx, document{kind: kind, id: id, at: db.Micros(tx.Now), by: core.CallerFrom(ctx).UserID}, true)
		return err
	})
}

func checkDocument(kind int64, id string) error {
	var c core.Check
	c.Range("kind", kind, kindRule, kindConversion)
	c.ID("id", id)
	return c.Err()
}

// versions returns the versions of a document, latest first, at most 100. It
// returns fault.Invalid and fault.NotFound.
func (s *Service) versions(ctx context.Context, kind int64, id string) (out []document, err error) {
	if err := checkDocument(kind, id); err != nil {
		return nil, err
	}
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readVersions(ctx, tx, kind, id, maxVersions)
		return err
	})
	if err == nil && len(out) == 0 {
		err = noDocument(kind, id)
	}
	return out, err
}

// restore makes a version the latest one again, as a new one; if it is, nothing
// changes. It returns fault.Invalid and fault.NotFound.
func (s *Service) restore(ctx context.Context, kind int64, id string, version int64) (next document, err error) {
	if err := checkDocument(kind, id); err != nil {
		return next, err
	}
	err = s.change(ctx, func(tx *db.Tx) error {
		next = document{kind: kind, id: id, at: db.Micros(tx.Now), by: core.CallerFrom(ctx).UserID}
		found, err := tx.Get(ctx, `SELECT body FROM access_versions WHERE kind = $1 AND id = $2 AND version = $3`, []any{kind, id, version}, &next.body)
		if err != nil {
			return err
		}
		if !found || next.body == "" {
			return fault.New(fault.NotFound, "there is no version %d of %s %s to restore", version, nouns[kind], id)
		}
		old, have, err := readDocument(ctx, tx, kind, id)
		if err != nil {
			return err
		}
		if have && old.body == next.body {
			next = old
			return s.ids.AuditTx(ctx, tx, id)
		}
		next.version, err = s.write(ctx, tx, next, have)
		return err
	})
	return next, err
}

// Enforced tells whether centers that do not meet the conditions are held back.
func (s *Service) Enforced(ctx context.Context) (bool, error) {
	l, err := s.load(ctx)
	if err != nil {
		return false, err
	}
	return l.enforce, nil
}

// SetEnforced turns the switch.
func (s *Service) SetEnforced(ctx context.Context, on bool) error {
	return s.change(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE access_state SET enforce = $1, changes = changes + 1 WHERE name = 'access' AND enforce <> $1`, on); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, "access")
	})
}

// Try shows what becomes of items of a source; candidate is tried with what is
// stored, in place of the one of its ID, if it is not nil. It returns
// fault.Invalid.
func (s *Service) Try(ctx context.Context, source string, items []Item, candidate *Conversion) ([]Converted, error) {
	var c core.Check
	if source != "" {
		c.ID("source", source)
	}
	if len(items) > maxItems {
		c.Add("items", "must be at most %d, got %d", maxItems, len(items))
		return nil, c.Err()
	}
	for i, x := range items {
		at := "items[" + itoa(i) + "]."
		c.Range(at+"field", int64(x.Field), int64(Resource), int64(Label))
		c.Text(at+"value", x.Value, true, maxWord, 0)
		c.Range(at+"amount", x.Amount, 0, maxAmount)
	}
	if candidate != nil {
		err := candidate.check("conversion.")
		for _, f := range fault.FieldsOf(err) {
			c.Add(f.Path, "%s", f.Problem)
		}
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	l, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]*Conversion, 0, len(l.conversions)+1)
	for _, x := range l.conversions {
		if candidate == nil || x.ID != candidate.ID {
			all = append(all, x)
		}
	}
	if candidate != nil {
		all = append(all, candidate)
	}
	k := newConverter(all, source)
	out := make([]Converted, len(items))
	for i, x := range items {
		out[i] = k.convert(x)
	}
	return out, nil
}
