package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// DeclareTx creates the center that a declaration describes, or brings it up
// to date except for what an operator has changed. Declaring the same again
// writes nothing. It does not count as a heartbeat. It returns fault.Invalid
// with every violation.
func (s *Service) DeclareTx(ctx context.Context, tx *db.Tx, d Declaration) error {
	if d.Center.Name == "" {
		d.Center.Name = d.Center.ID
	}
	d.Center.Drained = false
	specs, err := checkDeclaration(d)
	if err != nil {
		return err
	}
	id := d.Center.ID
	recorded, err := s.declareRecord(ctx, tx, d.Center)
	if err != nil {
		return err
	}
	resized, err := setCapacity(ctx, tx, id, d.Capacity)
	if err != nil {
		return err
	}
	created, err := declareSpecs(ctx, tx, specs)
	if err != nil {
		return err
	}
	for _, spec := range created {
		s.log.Info("specification declared", "resource_spec_id", spec, "ai_center_id", id)
	}
	priced, err := s.declareOffers(ctx, tx, id, d.Offers)
	if err != nil {
		return err
	}
	equipped, err := declareImages(ctx, tx, id, d.Images)
	if err != nil {
		return err
	}
	up, err := tx.Exec(ctx, `UPDATE center_monitor SET down = FALSE WHERE ai_center_id = $1 AND down`, id)
	if err != nil {
		return fmt.Errorf("bring up center %s: %w", id, err)
	}
	if up > 0 {
		if err := emitCenter(ctx, tx, id); err != nil {
			return err
		}
	}
	if !recorded && !resized && !priced && !equipped {
		if len(created) == 0 {
			return nil
		}
		return s.changed(ctx, tx)
	}
	if !recorded {
		if _, err := tx.Exec(ctx, `UPDATE centers SET updated_at = $2 WHERE ai_center_id = $1`, id, db.Micros(tx.Now)); err != nil {
			return fmt.Errorf("update center %s: %w", id, err)
		}
	}
	return s.changed(ctx, tx)
}

// declareRecord reports whether it wrote anything.
func (s *Service) declareRecord(ctx context.Context, tx *db.Tx, k Center) (bool, error) {
	have, err := readCenters(ctx, tx, `WHERE ai_center_id = $1`, k.ID)
	if err != nil {
		return false, err
	}
	k.UpdatedAt = tx.Now
	if len(have) == 0 {
		k.CreatedAt = tx.Now
		_, err := insertCenter(ctx, tx, k, false)
		if err == nil {
			s.log.Info("center joined", "ai_center_id", k.ID, "adapter", k.Adapter)
		}
		return true, err
	}
	old := have[0]
	edited, err := isEdited(ctx, tx, k.ID)
	if err != nil {
		return false, err
	}
	next := old
	next.Adapter = k.Adapter
	if !edited {
		next.Name, next.Region, next.Position, next.SecurityGrade = k.Name, k.Region, k.Position, k.SecurityGrade
		next.Power, next.Labels = k.Power, k.Labels
		if k.Performance != 0 {
			from, err := s.PerformanceFromTx(ctx, tx, k.ID)
			if err != nil {
				return false, err
			}
			if from == PerformanceDeclared {
				next.Performance = k.Performance
			}
		}
	}
	if sameRecord(old, next) {
		return false, nil
	}
	next.UpdatedAt = tx.Now
	return true, updateCenter(ctx, tx, next, edited)
}

// sameRecord compares what declarations and operators can change.
func sameRecord(a, b Center) bool {
	return sameDecided(a, b) && a.Drained == b.Drained && a.Adapter == b.Adapter
}

// sameDecided compares what an operator's change protects from declarations.
func sameDecided(a, b Center) bool {
	placed := a.Position == nil && b.Position == nil || a.Position != nil && b.Position != nil && *a.Position == *b.Position
	return placed && a.Name == b.Name && a.Region == b.Region && a.SecurityGrade == b.SecurityGrade && a.Power == b.Power &&
		a.Performance == b.Performance && maps.Equal(a.Labels, b.Labels)
}

func (s *Service) declareOffers(ctx context.Context, tx *db.Tx, id string, offers []SpecPrice) (changed bool, err error) {
	have, err := offersOfCenter(ctx, tx, id)
	if err != nil {
		return false, err
	}
	want := map[string]core.Fen{}
	for _, o := range offers {
		want[o.SpecID] = o.Price
	}
	for _, spec := range sorted(want) {
		if o, ok := have[spec]; ok && (o.edited || o.price == want[spec]) {
			continue
		}
		changed = true
		if err := setOffer(ctx, tx, spec, id, want[spec], false); err != nil {
			return false, err
		}
		if found, err := hasSpec(ctx, tx, spec); err != nil {
			return false, err
		} else if !found {
			s.log.Warn("center offers a specification that does not exist; the offer waits for it", "ai_center_id", id, "resource_spec_id", spec)
		}
	}
	for _, spec := range sorted(have) {
		if _, ok := want[spec]; ok || have[spec].edited {
			continue
		}
		changed = true
		if err := dropOffer(ctx, tx, spec, id); err != nil {
			return false, err
		}
	}
	return changed, nil
}

func declareImages(ctx context.Context, tx *db.Tx, id string, images []string) (changed bool, err error) {
	have, err := imagesOfCenter(ctx, tx, id)
	if err != nil {
		return false, err
	}
	want := slices.Compact(slices.Sorted(slices.Values(images)))
	for _, image := range want {
		if _, ok := have[image]; ok {
			continue
		}
		found, everywhere, err := imageEverywhere(ctx, tx, image)
		if err != nil {
			return false, err
		}
		if everywhere { // a list of one center would read as: there only
			continue
		}
		changed = true
		if !found {
			if _, err := insertImage(ctx, tx, Image{ID: image, Name: image}); err != nil {
				return false, err
			}
		}
		if err := addImageCenter(ctx, tx, image, id, true); err != nil {
			return false, err
		}
	}
	for _, image := range sorted(have) {
		if _, wanted := slices.BinarySearch(want, image); wanted || !have[image] {
			continue
		}
		changed = true
		if err := dropImageCenter(ctx, tx, image, id); err != nil {
			return false, err
		}
	}
	return changed, nil
}

// MarkSeenTx records that the centers were heard of now. It returns
// fault.NotFound if one of them does not exist.
func (s *Service) MarkSeenTx(ctx context.Context, tx *db.Tx, ids ...string) error {
	for _, id := range slices.Sorted(slices.Values(ids)) {
		if err := heardTx(ctx, tx, id, "last_seen = $2"); err != nil {
			return fmt.Errorf("mark center %s: %w", id, err)
		}
	}
	return nil
}

// measuredColumns of center_monitor are what a center measures.
var measuredColumns = []string{"measured_at", "cpu_busy_permille", "memory_busy", "memory_total", "storage_busy", "storage_total"}

// check returns the values of measuredColumns, or fault.Invalid for figures
// that cannot be.
func (m *Measured) check(now time.Time) ([]any, error) {
	if m.At.IsZero() {
		m.At = now
	}
	var c core.Check
	if m.At.Before(time.UnixMicro(1)) || m.At.After(now.Add(24*time.Hour)) {
		c.Add("measurement.measured_at", "must be between 1970 and tomorrow, got %s", m.At.UTC().Format(time.RFC3339))
	}
	c.Range("measurement.cpu_busy_permille", m.CPUBusyPermille, 0, 1000)
	c.Range("measurement.memory_busy_bytes", m.MemoryBusy, 0, maxHeld)
	c.Range("measurement.memory_total_bytes", m.MemoryTotal, 0, maxHeld)
	c.Range("measurement.storage_busy_bytes", m.StorageBusy, 0, maxHeld)
	c.Range("measurement.storage_total_bytes", m.StorageTotal, 0, maxHeld)
	return []any{db.Micros(m.At), m.CPUBusyPermille, m.MemoryBusy, m.MemoryTotal, m.StorageBusy, m.StorageTotal}, c.Err()
}

// MeasureTx records that the center was heard of now, and what it measured.
// It returns fault.NotFound if it does not exist and fault.Invalid for
// figures that cannot be.
func (s *Service) MeasureTx(ctx context.Context, tx *db.Tx, id string, m Measured) error {
	values, err := m.check(tx.Now)
	if err != nil {
		return err
	}
	set := "last_seen = $2"
	for i, c := range measuredColumns {
		set += fmt.Sprintf(", %s = $%d", c, i+4)
	}
	if err := heardTx(ctx, tx, id, set, values...); err != nil {
		return fmt.Errorf("store measurement of %s: %w", id, err)
	}
	return nil
}

// MeasureAllTx is [Service.MeasureTx] for many centers; those that do not
// exist are passed over.
func (s *Service) MeasureAllTx(ctx context.Context, tx *db.Tx, ms map[string]Measured) error {
	columns, set := []string{"id TEXT", "seen BIGINT", "oldest BIGINT"}, "last_seen = v.seen"
	for _, c := range measuredColumns {
		columns, set = append(columns, c+" BIGINT"), set+", "+c+" = v."+c
	}
	rows := make([][]any, 0, len(ms))
	for _, id := range sorted(ms) {
		m := ms[id]
		values, err := m.check(tx.Now)
		if err != nil {
			return fmt.Errorf("measurement of %s: %w", id, err)
		}
		rows = append(rows, append([]any{id, db.Micros(tx.Now), db.Micros(tx.Now.Add(-SeenWithin))}, values...))
	}
	n, err := tx.ExecRows(ctx, columns, rows, `UPDATE center_monitor AS m SET `+set+` FROM v WHERE m.ai_center_id = v.id AND m.last_seen >= v.oldest`)
	if err != nil || int(n) == len(rows) {
		return err
	}
	for _, r := range rows { // some were silent, or are gone
		id := r[0].(string)
		if err := s.MeasureTx(ctx, tx, id, ms[id]); err != nil && fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	return nil
}

// heardTx records that a center is heard of now, and args from $4 on. One that
// was silent is rare; only then a second statement and an event are needed.
func heardTx(ctx context.Context, tx *db.Tx, id, set string, args ...any) error {
	args = append([]any{id, db.Micros(tx.Now), db.Micros(tx.Now.Add(-SeenWithin))}, args...)
	for _, since := range []string{"last_seen >= $3", "last_seen < $3"} {
		n, err := tx.Exec(ctx, `UPDATE center_monitor SET `+set+` WHERE ai_center_id = $1 AND `+since, args...)
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		if since == "last_seen < $3" {
			return emitCenter(ctx, tx, id)
		}
		return nil
	}
	return noCenter(id)
}

// MarkDownTx makes a center unavailable until it declares itself again: its
// membership ended or it said that it goes away. It returns fault.NotFound if
// it does not exist.
func (s *Service) MarkDownTx(ctx context.Context, tx *db.Tx, id string) error {
	n, err := tx.Exec(ctx, `UPDATE center_monitor SET down = TRUE WHERE ai_center_id = $1`, id)
	if err != nil {
		return fmt.Errorf("mark center %s down: %w", id, err)
	}
	if n == 0 {
		return noCenter(id)
	}
	return emitCenter(ctx, tx, id)
}

func noCenter(id string) error { return fault.New(fault.NotFound, "there is no center %s", id) }
