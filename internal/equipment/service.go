package equipment

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/network"
	"yunhe.dev/yunhe/internal/registry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ChangedSubject is the event that equipment or a rule changed: its payload are
// the centers.
const ChangedSubject = "equipment.changed"

// pluginSource begins the names of sources that are plug-ins or gateways.
const pluginSource = "plugin:"

// Service keeps the equipment. It is safe for concurrent use.
type Service struct {
	db  *db.DB
	ids *identity.Service
	reg *registry.Service
	inv *inventory.Service
	net *network.Service
	log *slog.Logger

	mu   sync.Mutex // guards held
	held map[portKey]time.Time
}

// portKey names a rate of a port; rates of none are not kept.
type portKey struct {
	center, name, port string
	loss               bool
}

// New brings the tables up to date and returns the service, ready for calls.
func New(ctx context.Context, d *db.DB, ids *identity.Service, reg *registry.Service, inv *inventory.Service, net *network.Service, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "equipment", migrations); err != nil {
		return nil, err
	}
	return &Service{db: d, ids: ids, reg: reg, inv: inv, net: net, log: log.With("component", "equipment"), held: map[portKey]time.Time{}}, nil
}

// Report is what a source says.
type Report struct {
	CenterID  string
	Source    string
	Equipment []Equipment
	Gone      []string
	Whole     bool          // what the source reported before and is not in it is gone
	Silence   time.Duration // how long the source may say nothing; 0: as long as it likes
}

func (r *Report) check() error {
	var c core.Check
	c.ID("ai_center_id", r.CenterID)
	if !sourceForm.MatchString(r.Source) {
		c.Add("source", `must be 1 to 32 letters, digits, "-", "_" and ".", got %q`, tidy(r.Source))
	}
	if len(r.Equipment) > maxReport {
		c.Add("equipment", "must be at most %d, got %d", maxReport, len(r.Equipment))
	}
	if len(r.Gone) > maxReport {
		c.Add("gone", "must be at most %d, got %d", maxReport, len(r.Gone))
	}
	c.Range("silence_seconds", int64(r.Silence/time.Second), 0, maxSilence)
	if err := c.Err(); err != nil {
		return err
	}
	return checkAll(r.Equipment)
}

func checkAll(list []Equipment) error {
	var c core.Check
	seen := make(map[string]bool, len(list))
	for i := range list {
		at := fmt.Sprintf("equipment[%d]", i)
		if list[i].check(&c, at); seen[list[i].Name] {
			c.Add(at+".name", "is there twice: %q", tidy(list[i].Name))
		}
		seen[list[i].Name] = true
	}
	return c.Err()
}

// Report records what a source that is no plug-in says of a center, and returns
// how much of it changed. It returns fault.Invalid, fault.NotFound for a center
// that is not there, and fault.Exists for equipment that another source reports.
func (s *Service) Report(ctx context.Context, r Report) (changed int64, err error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	if _, err := s.reg.GetCenter(ctx, r.CenterID); err != nil {
		return 0, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		var due time.Time
		if r.Silence > 0 {
			due = tx.Now.Add(r.Silence)
		}
		if err := saveSource(ctx, tx, r.CenterID, r.Source, due); err != nil {
			return err
		}
		if changed, err = s.reportTx(ctx, tx, r); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, r.CenterID+" "+r.Source)
	})
	return changed, err
}

// PluginTx records what a plug-in or gateway of a center says. What cannot be
// taken is passed over and logged: a bad switch must not cost a center its nodes.
func (s *Service) PluginTx(ctx context.Context, tx *db.Tx, r Report) error {
	r.Source = pluginSource + r.Source
	taken := r.Equipment[:0:0]
	seen := map[string]bool{}
	for i := range r.Equipment {
		var c core.Check
		e := &r.Equipment[i]
		if e.check(&c, "equipment"); seen[e.Name] {
			c.Add("equipment.name", "is there twice: %q", tidy(e.Name))
		}
		if err := c.Err(); err != nil {
			s.log.Warn("equipment not taken", "ai_center_id", r.CenterID, "name", tidy(e.Name), "error", err)
			continue
		}
		seen[e.Name] = true
		taken = append(taken, *e)
	}
	r.Equipment = taken
	_, err := s.reportTx(ctx, tx, r)
	return err
}

func (s *Service) reportTx(ctx context.Context, tx *db.Tx, r Report) (changed int64, err error) {
	names := make([]string, len(r.Equipment))
	for i := range r.Equipment {
		names[i] = r.Equipment[i].Name
	}
	among, arg := tx.In(2, append(slices.Clone(names), r.Gone...))
	rest, args := `WHERE ai_center_id = $1 AND name `+among, []any{r.CenterID, arg}
	if r.Whole {
		among, arg = tx.In(2, names)
		rest, args = `WHERE ai_center_id = $1 AND (source = $3 OR name `+among+`)`, []any{r.CenterID, arg, r.Source}
		if strings.HasPrefix(r.Source, pluginSource) { // also of the plug-in that served the center before
			rest, args = `WHERE ai_center_id = $1 AND (source >= 'plugin:' AND source < 'plugin;' OR name `+among+`)`, args[:2]
		}
	}
	rows, err := readEquipment(ctx, tx, rest, args...)
	if err != nil {
		return 0, err
	}
	have := make(map[string]*Equipment, len(rows))
	for _, e := range rows {
		have[e.Name] = e
	}
	for i := range r.Equipment {
		e := &r.Equipment[i]
		old := have[e.Name]
		delete(have, e.Name)
		if old != nil && !mayReplace(r.Source, old.Source) {
			if strings.HasPrefix(r.Source, pluginSource) {
				s.log.Warn("equipment not taken", "ai_center_id", r.CenterID, "name", e.Name, "error", "it is reported by "+old.Source)
				continue
			}
			return 0, fault.New(fault.Exists, "equipment %s of center %s is reported by %s; only one source may", e.Name, r.CenterID, old.Source)
		}
		e.CenterID, e.Source = r.CenterID, r.Source
		s.carryOver(e, old, tx.Now)
		if same(e, old) {
			continue
		}
		if err := saveEquipment(ctx, tx, e, old); err != nil {
			return 0, err
		}
		changed++
	}
	var gone []string
	for _, name := range sorted(have) { // of r.Gone, or of what is whole
		if mayReplace(r.Source, have[name].Source) {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		if err := deleteEquipment(ctx, tx, r.CenterID, gone); err != nil {
			return 0, err
		}
		changed += int64(len(gone))
	}
	if changed == 0 {
		return 0, nil
	}
	return changed, emit(ctx, tx, r.CenterID)
}

// mayReplace: the plug-in that serves a center may change.
func mayReplace(source, old string) bool {
	return source == old || strings.HasPrefix(source, pluginSource) && strings.HasPrefix(old, pluginSource)
}

// carryOver makes what was reported what is kept: since when states are, and rates
// in steps, the highest of a minute.
func (s *Service) carryOver(e, old *Equipment, now time.Time) {
	e.Reason = tidy(e.Reason)
	if e.Kind == 0 {
		e.Kind = lastKind
	}
	if e.Since = now; old != nil && old.State == e.State {
		e.Since = old.Since
	}
	was := map[string]*Port{}
	if old != nil {
		for i := range old.Ports {
			was[old.Ports[i].Name] = &old.Ports[i]
		}
	}
	slices.SortFunc(e.Ports, func(a, b Port) int { return strings.Compare(a.Name, b.Name) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range e.Ports {
		p := &e.Ports[i]
		before := was[p.Name]
		p.Reason, p.Since = tidy(p.Reason), db.Micros(now)
		if before == nil {
			before = &Port{}
		} else if before.State == p.State {
			p.Since = before.Since
		}
		p.Errors = s.highest(portKey{e.CenterID, e.Name, p.Name, false}, step(p.Errors), before.Errors, now)
		p.Loss = s.highest(portKey{e.CenterID, e.Name, p.Name, true}, step(p.Loss), before.Loss, now)
	}
	e.sum()
}

// highest is what is kept of a rate: a lower one only once the higher one has not
// been seen for so long. Who has just started holds what is stored. s.mu is held.
func (s *Service) highest(k portKey, rate, stored int64, now time.Time) int64 {
	seen, known := s.held[k]
	switch {
	case rate >= stored && rate > 0, rate < stored && !known:
		s.held[k] = now
		return max(rate, stored)
	case rate < stored && now.Sub(seen).Abs() < hold:
		return stored
	case rate == 0:
		delete(s.held, k)
	default:
		s.held[k] = now
	}
	return rate
}

func same(e, old *Equipment) bool {
	return old != nil && e.Source == old.Source && e.Kind == old.Kind && e.State == old.State && e.Reason == old.Reason && e.Vendor == old.Vendor && e.Model == old.Model &&
		e.Address == old.Address && slices.Equal(e.Ports, old.Ports)
}

// List returns a page of equipment by center and name, without ports, and the
// token of the next page, "" on the last. It returns fault.Invalid.
func (s *Service) List(ctx context.Context, f Filter, size int32, token string) (rows []*Equipment, next string, err error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 2)
	if err != nil {
		return nil, "", err
	}
	if err := f.check(); err != nil {
		return nil, "", err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		rows, err = page(ctx, tx, f, key, n+1)
		return err
	})
	if err != nil || len(rows) <= n {
		return rows, "", err
	}
	return rows[:n], core.PageToken(rows[n-1].CenterID, rows[n-1].Name), nil
}

// Get returns equipment with its ports. It returns fault.Invalid and
// fault.NotFound.
func (s *Service) Get(ctx context.Context, center, name string) (e *Equipment, err error) {
	var c core.Check
	c.ID("ai_center_id", center)
	c.Text("name", name, true, 253, 0)
	if err := c.Err(); err != nil {
		return nil, err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		rows, err := readEquipment(ctx, tx, `WHERE ai_center_id = $1 AND name = $2`, center, name)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return fault.New(fault.NotFound, "center %s has no equipment %s", center, name)
		}
		e = rows[0]
		sources, err := readSources(ctx, tx)
		for _, x := range sources {
			e.Silent = e.Silent || x.center == e.CenterID && x.name == e.Source && x.due.Before(tx.Now)
		}
		return err
	})
	return e, err
}

// Forget drops what is known of centers that are no more.
func (s *Service) Forget(ctx context.Context) error {
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, k := range snap.Centers {
		known[k.ID] = true
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		var gone []string
		if err := tx.Query(ctx, `SELECT ai_center_id FROM equipment UNION SELECT ai_center_id FROM equipment_sources`, nil, func(row db.Row) error {
			var id string
			err := row.Scan(&id)
			if !known[id] {
				gone = append(gone, id)
			}
			return err
		}); err != nil {
			return fmt.Errorf("read centers of equipment: %w", err)
		}
		for _, id := range gone {
			if err := deleteCenter(ctx, tx, id); err != nil {
				return err
			}
		}
		if len(gone) == 0 {
			return nil
		}
		return emit(ctx, tx, gone...)
	})
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
