package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

func getVersion(ctx context.Context, tx *db.Tx) (v int64, err error) {
	if _, err = tx.Get(ctx, `SELECT version FROM registry_version WHERE name = 'catalog'`, nil, &v); err != nil {
		return 0, fmt.Errorf("read catalog version: %w", err)
	}
	return v, nil
}

func bumpVersion(ctx context.Context, tx *db.Tx) error {
	if _, err := tx.Exec(ctx, `UPDATE registry_version SET version = version + 1 WHERE name = 'catalog'`); err != nil {
		return fmt.Errorf("count catalog change: %w", err)
	}
	return nil
}

// markFirst reports whether this is the first call for the name, ever.
func markFirst(ctx context.Context, tx *db.Tx, name string) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO registry_version (name, version) VALUES ($1, 1) ON CONFLICT DO NOTHING`, name)
	if err != nil {
		return false, fmt.Errorf("mark %s: %w", name, err)
	}
	return n == 1, nil
}

const centerColumns = `ai_center_id, name, region, located, longitude, latitude, security_grade, static_power, active_power,
	performance, adapter, drained, labels, created_at, updated_at`

func scanCenter(row db.Row, k *Center) error {
	var located bool
	var at Position
	var labels string
	var created, updated int64
	if err := row.Scan(&k.ID, &k.Name, &k.Region, &located, &at.Longitude, &at.Latitude, &k.SecurityGrade, &k.Power.Static, &k.Power.Active,
		&k.Performance, &k.Adapter, &k.Drained, &labels, &created, &updated); err != nil {
		return err
	}
	if located {
		k.Position = &at
	}
	k.CreatedAt, k.UpdatedAt = db.Time(created), db.Time(updated)
	if err := json.Unmarshal([]byte(labels), &k.Labels); err != nil {
		return fmt.Errorf("labels of center %s: %w", k.ID, err)
	}
	return nil
}

// readCenters reads the records that match the rest of the query.
func readCenters(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]Center, error) {
	var out []Center
	err := tx.Query(ctx, `SELECT `+centerColumns+` FROM centers `+rest, args, func(row db.Row) error {
		var k Center
		err := scanCenter(row, &k)
		out = append(out, k)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read centers: %w", err)
	}
	return out, nil
}

func hasCenter(ctx context.Context, tx *db.Tx, id string) (bool, error) {
	var one int
	found, err := tx.Get(ctx, `SELECT 1 FROM centers WHERE ai_center_id = $1`, []any{id}, &one)
	if err != nil {
		return false, fmt.Errorf("read center %s: %w", id, err)
	}
	return found, nil
}

func isEdited(ctx context.Context, tx *db.Tx, id string) (edited bool, err error) {
	if _, err = tx.Get(ctx, `SELECT edited FROM centers WHERE ai_center_id = $1`, []any{id}, &edited); err != nil {
		return false, fmt.Errorf("read center %s: %w", id, err)
	}
	return edited, nil
}

// insertCenter inserts a record and its live rows; false means that the ID is taken.
func insertCenter(ctx context.Context, tx *db.Tx, k Center, edited bool) (bool, error) {
	at, labels := flat(k)
	n, err := tx.Exec(ctx, `INSERT INTO centers (`+centerColumns+`, edited)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ON CONFLICT DO NOTHING`,
		k.ID, k.Name, k.Region, k.Position != nil, at.Longitude, at.Latitude, k.SecurityGrade, k.Power.Static, k.Power.Active,
		k.Performance, k.Adapter, k.Drained, labels, db.Micros(k.CreatedAt), db.Micros(k.UpdatedAt), edited)
	if err == nil && n == 1 {
		_, err = tx.Exec(ctx, `INSERT INTO center_load (ai_center_id, running, waiting) VALUES ($1, 0, 0)`, k.ID)
	}
	if err == nil && n == 1 {
		_, err = tx.Exec(ctx, `INSERT INTO center_monitor (ai_center_id, last_seen, down, measured_at, cpu_busy_permille, memory_busy,
			memory_total, storage_busy, storage_total) VALUES ($1, 0, FALSE, 0, 0, 0, 0, 0, 0)`, k.ID)
	}
	if err != nil {
		return false, fmt.Errorf("insert center %s: %w", k.ID, err)
	}
	return n == 1, nil
}

func updateCenter(ctx context.Context, tx *db.Tx, k Center, edited bool) error {
	at, labels := flat(k)
	if _, err := tx.Exec(ctx, `UPDATE centers SET name = $2, region = $3, located = $4, longitude = $5, latitude = $6, security_grade = $7,
		static_power = $8, active_power = $9, performance = $10, adapter = $11, drained = $12, labels = $13, updated_at = $14, edited = $15
		WHERE ai_center_id = $1`,
		k.ID, k.Name, k.Region, k.Position != nil, at.Longitude, at.Latitude, k.SecurityGrade, k.Power.Static, k.Power.Active,
		k.Performance, k.Adapter, k.Drained, labels, db.Micros(k.UpdatedAt), edited); err != nil {
		return fmt.Errorf("update center %s: %w", k.ID, err)
	}
	return nil
}

func flat(k Center) (Position, string) {
	var at Position
	if k.Position != nil {
		at = *k.Position
	}
	return at, toJSON(k.Labels)
}

// toJSON is for maps and structs of strings, which always marshal.
func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("marshal %T: %v", v, err))
	}
	return string(b)
}

func deleteCenter(ctx context.Context, tx *db.Tx, id string) error {
	for _, q := range []string{
		`DELETE FROM node_labels WHERE ai_center_id = $1`,
		`DELETE FROM node_accelerators WHERE ai_center_id = $1`,
		`DELETE FROM nodes WHERE ai_center_id = $1`,
		`DELETE FROM center_speeds WHERE ai_center_id = $1`,
		`DELETE FROM center_capacity WHERE ai_center_id = $1`,
		`DELETE FROM center_load WHERE ai_center_id = $1`,
		`DELETE FROM center_monitor WHERE ai_center_id = $1`,
		`DELETE FROM spec_offers WHERE ai_center_id = $1`,
		`DELETE FROM image_centers WHERE ai_center_id = $1`,
		`UPDATE images SET ai_center_id = '' WHERE ai_center_id = $1`, // they may be in use elsewhere
		`DELETE FROM centers WHERE ai_center_id = $1`,
	} {
		if _, err := tx.Exec(ctx, q, id); err != nil {
			return fmt.Errorf("delete center %s: %w", id, err)
		}
	}
	return nil
}

// between limits a query to the IDs from first to last; to none if both are
// empty, which no ID is.
func between(column, first, last string) (string, []any) {
	if first == "" && last == "" {
		return "", nil
	}
	return ` WHERE ` + column + ` BETWEEN $1 AND $2`, []any{first, last}
}

// readCapacity sets Total and, with used, Used of the centers.
func readCapacity(ctx context.Context, tx *db.Tx, centers map[string]*Center, first, last string, used bool) error {
	for _, k := range centers {
		k.Total = core.Quantities{}
		if used {
			k.Used = core.Quantities{}
		}
	}
	where, args := between("ai_center_id", first, last)
	err := tx.Query(ctx, `SELECT ai_center_id, resource, total, used FROM center_capacity`+where, args, func(row db.Row) error {
		var id, resource string
		var total, held int64
		if err := row.Scan(&id, &resource, &total, &held); err != nil {
			return err
		}
		if k := centers[id]; k != nil {
			k.Total[resource] = total
			if used {
				k.Used[resource] = held
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read capacity: %w", err)
	}
	return nil
}

// readLive sets what is live of the centers but Used, and calls each for
// those that exist, with whether it said that it goes away.
func readLive(ctx context.Context, tx *db.Tx, centers map[string]*Center, first, last string, each func(k *Center, down bool)) error {
	where, args := between("l.ai_center_id", first, last)
	err := tx.Query(ctx, `SELECT l.ai_center_id, l.running, l.waiting, `+monitorColumns+` FROM center_load l JOIN center_monitor m ON m.ai_center_id = l.ai_center_id`+where, args,
		func(row db.Row) error {
			var id string
			var v Live
			var m monitorRow
			if err := row.Scan(append([]any{&id, &v.Running, &v.Waiting}, m.dest()...)...); err != nil {
				return err
			}
			k := centers[id]
			if k == nil {
				return nil
			}
			v.LastSeen, v.Measured = m.live()
			v.Used, v.Status = k.Used, statusAt(k.Drained, m.down, v.LastSeen, tx.Now)
			k.Live = v
			each(k, m.down)
			return nil
		})
	if err != nil {
		return fmt.Errorf("read live use: %w", err)
	}
	return nil
}

// setCapacity makes the center's totals q and reports whether that changed
// anything. A resource no longer declared goes once nothing holds it.
func setCapacity(ctx context.Context, tx *db.Tx, id string, q core.Quantities) (changed bool, err error) {
	k := Center{ID: id}
	if err := readCapacity(ctx, tx, map[string]*Center{id: &k}, id, id, true); err != nil {
		return false, err
	}
	for _, name := range sorted(q) {
		if have, ok := k.Total[name]; ok && have == q[name] {
			continue
		}
		changed = true
		if _, err := tx.Exec(ctx, `INSERT INTO center_capacity (ai_center_id, resource, total, used) VALUES ($1, $2, $3, 0)
			ON CONFLICT (ai_center_id, resource) DO UPDATE SET total = $3`, id, name, q[name]); err != nil {
			return false, fmt.Errorf("set capacity of %s at %s: %w", name, id, err)
		}
	}
	for _, name := range sorted(k.Total) {
		if _, ok := q[name]; ok || k.Total[name] == 0 && k.Used[name] > 0 {
			continue
		}
		changed = true
		query := `DELETE FROM center_capacity WHERE ai_center_id = $1 AND resource = $2`
		if k.Used[name] > 0 {
			query = `UPDATE center_capacity SET total = 0 WHERE ai_center_id = $1 AND resource = $2`
		}
		if _, err := tx.Exec(ctx, query, id, name); err != nil {
			return false, fmt.Errorf("drop capacity of %s at %s: %w", name, id, err)
		}
	}
	return changed, nil
}

// offerRow is a stored offer of a center.
type offerRow struct {
	price     core.Fen
	edited    bool
	withdrawn bool
}

func offersOfCenter(ctx context.Context, tx *db.Tx, id string) (map[string]offerRow, error) {
	out := map[string]offerRow{}
	err := tx.Query(ctx, `SELECT resource_spec_id, price, edited, withdrawn FROM spec_offers WHERE ai_center_id = $1`, []any{id}, func(row db.Row) error {
		var spec string
		var o offerRow
		err := row.Scan(&spec, &o.price, &o.edited, &o.withdrawn)
		out[spec] = o
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read offers of %s: %w", id, err)
	}
	return out, nil
}

func setOffer(ctx context.Context, tx *db.Tx, specID, centerID string, price core.Fen, edited bool) error {
	if _, err := tx.Exec(ctx, `INSERT INTO spec_offers (resource_spec_id, ai_center_id, price, edited, withdrawn) VALUES ($1, $2, $3, $4, FALSE)
		ON CONFLICT (resource_spec_id, ai_center_id) DO UPDATE SET price = $3, edited = $4, withdrawn = FALSE`,
		specID, centerID, int64(price), edited); err != nil {
		return fmt.Errorf("set offer of %s at %s: %w", specID, centerID, err)
	}
	return nil
}

func dropOffer(ctx context.Context, tx *db.Tx, specID, centerID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM spec_offers WHERE resource_spec_id = $1 AND ai_center_id = $2`, specID, centerID); err != nil {
		return fmt.Errorf("drop offer of %s at %s: %w", specID, centerID, err)
	}
	return nil
}

// withdrawOffer keeps the row, so that the center's next declaration does not
// bring the offer back. It reports whether there was an offer.
func withdrawOffer(ctx context.Context, tx *db.Tx, specID, centerID string) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE spec_offers SET withdrawn = TRUE, edited = TRUE
		WHERE resource_spec_id = $1 AND ai_center_id = $2 AND NOT withdrawn`, specID, centerID)
	if err != nil {
		return false, fmt.Errorf("withdraw offer of %s at %s: %w", specID, centerID, err)
	}
	return n == 1, nil
}

// readSpecs reads the specifications that match the rest of the query, with
// their offers.
func readSpecs(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]Spec, error) {
	var out []Spec
	err := tx.Query(ctx, `SELECT resource_spec_id, name, quantity, service_types, price, created_at, updated_at FROM specs `+rest, args, func(row db.Row) error {
		var sp Spec
		var quantity, types string
		var created, updated int64
		if err := row.Scan(&sp.ID, &sp.Name, &quantity, &types, &sp.Price, &created, &updated); err != nil {
			return err
		}
		sp.ServiceTypes, sp.CreatedAt, sp.UpdatedAt = splitList(types), db.Time(created), db.Time(updated)
		if err := json.Unmarshal([]byte(quantity), &sp.Quantity); err != nil {
			return fmt.Errorf("quantity of specification %s: %w", sp.ID, err)
		}
		out = append(out, sp)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read specifications: %w", err)
	}
	byID := map[string]*Spec{}
	first, last := "", ""
	for i := range out {
		byID[out[i].ID] = &out[i]
	}
	if rest != "" { // a page or one: the rows come ordered by ID
		if len(out) == 0 {
			return nil, nil
		}
		first, last = out[0].ID, out[len(out)-1].ID
	}
	where, oargs := between("resource_spec_id", first, last)
	err = tx.Query(ctx, `SELECT resource_spec_id, ai_center_id, price, withdrawn FROM spec_offers`+where+` ORDER BY resource_spec_id, ai_center_id`, oargs, func(row db.Row) error {
		var id string
		var o Offer
		var withdrawn bool
		if err := row.Scan(&id, &o.CenterID, &o.Price, &withdrawn); err != nil {
			return err
		}
		if sp := byID[id]; sp != nil && !withdrawn {
			sp.Offers = append(sp.Offers, o)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read offers: %w", err)
	}
	return out, nil
}

func hasSpec(ctx context.Context, tx *db.Tx, id string) (bool, error) {
	var one int
	found, err := tx.Get(ctx, `SELECT 1 FROM specs WHERE resource_spec_id = $1`, []any{id}, &one)
	if err != nil {
		return false, fmt.Errorf("read specification %s: %w", id, err)
	}
	return found, nil
}

func insertSpec(ctx context.Context, tx *db.Tx, sp Spec) error {
	n, err := tx.Exec(ctx, `INSERT INTO specs (resource_spec_id, name, quantity, service_types, price, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT DO NOTHING`,
		sp.ID, sp.Name, toJSON(sp.Quantity), strings.Join(sp.ServiceTypes, ","), int64(sp.Price), db.Micros(tx.Now))
	if err != nil {
		return fmt.Errorf("insert specification %s: %w", sp.ID, err)
	}
	if n == 0 {
		return fault.New(fault.Exists, "specification %s exists already", sp.ID)
	}
	return nil
}

func touchSpec(ctx context.Context, tx *db.Tx, id string) error {
	if _, err := tx.Exec(ctx, `UPDATE specs SET updated_at = $2 WHERE resource_spec_id = $1`, id, db.Micros(tx.Now)); err != nil {
		return fmt.Errorf("update specification %s: %w", id, err)
	}
	return nil
}

// deleteSpec reports whether there was one. Offers that centers declared stay
// remembered.
func deleteSpec(ctx context.Context, tx *db.Tx, id string) (bool, error) {
	n, err := tx.Exec(ctx, `DELETE FROM specs WHERE resource_spec_id = $1`, id)
	if err == nil {
		_, err = tx.Exec(ctx, `DELETE FROM spec_offers WHERE resource_spec_id = $1 AND edited`, id)
	}
	if err == nil && n == 1 {
		err = rememberDeleted(ctx, tx, id, true)
	}
	if err != nil {
		return false, fmt.Errorf("delete specification %s: %w", id, err)
	}
	return n == 1, nil
}

// readImages reads the images that match the rest of the query, with their
// centers.
func readImages(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]Image, error) {
	var out []Image
	err := tx.Query(ctx, `SELECT image_id, name, ai_center_id, base_os, framework, specs, everywhere, created_at, updated_at FROM images `+rest, args, func(row db.Row) error {
		var m Image
		var base, specs string
		var created, updated int64
		if err := row.Scan(&m.ID, &m.Name, &m.CenterID, &base, &m.Framework, &specs, &m.Everywhere, &created, &updated); err != nil {
			return err
		}
		m.Specs, m.CreatedAt, m.UpdatedAt = splitList(specs), db.Time(created), db.Time(updated)
		if err := json.Unmarshal([]byte(base), &m.BaseOS); err != nil {
			return fmt.Errorf("base of image %s: %w", m.ID, err)
		}
		out = append(out, m)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read images: %w", err)
	}
	byID := map[string]*Image{}
	first, last := "", ""
	for i := range out {
		byID[out[i].ID] = &out[i]
	}
	if rest != "" {
		if len(out) == 0 {
			return nil, nil
		}
		first, last = out[0].ID, out[len(out)-1].ID
	}
	where, cargs := between("image_id", first, last)
	err = tx.Query(ctx, `SELECT image_id, ai_center_id FROM image_centers`+where+` ORDER BY image_id, ai_center_id`, cargs, func(row db.Row) error {
		var id, center string
		if err := row.Scan(&id, &center); err != nil {
			return err
		}
		if m := byID[id]; m != nil {
			m.Centers = append(m.Centers, center)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read centers of images: %w", err)
	}
	return out, nil
}

// insertImage reports whether it was inserted; false means the ID is taken.
func insertImage(ctx context.Context, tx *db.Tx, m Image) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO images (image_id, name, ai_center_id, base_os, framework, specs, everywhere, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8) ON CONFLICT DO NOTHING`,
		m.ID, m.Name, m.CenterID, toJSON(m.BaseOS), m.Framework, strings.Join(m.Specs, ","), m.Everywhere, db.Micros(tx.Now))
	if err != nil {
		return false, fmt.Errorf("insert image %s: %w", m.ID, err)
	}
	if n == 0 {
		return false, nil
	}
	for _, id := range m.Centers {
		if err := addImageCenter(ctx, tx, m.ID, id, false); err != nil {
			return false, err
		}
	}
	return true, nil
}

func addImageCenter(ctx context.Context, tx *db.Tx, imageID, centerID string, declared bool) error {
	if _, err := tx.Exec(ctx, `INSERT INTO image_centers (image_id, ai_center_id, declared) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		imageID, centerID, declared); err != nil {
		return fmt.Errorf("add image %s to %s: %w", imageID, centerID, err)
	}
	return nil
}

func dropImageCenter(ctx context.Context, tx *db.Tx, imageID, centerID string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM image_centers WHERE image_id = $1 AND ai_center_id = $2`, imageID, centerID); err != nil {
		return fmt.Errorf("take image %s from %s: %w", imageID, centerID, err)
	}
	return nil
}

// imagesOfCenter returns the images listed for the center, with whether it
// declared them itself.
func imagesOfCenter(ctx context.Context, tx *db.Tx, id string) (map[string]bool, error) {
	out := map[string]bool{}
	err := tx.Query(ctx, `SELECT image_id, declared FROM image_centers WHERE ai_center_id = $1`, []any{id}, func(row db.Row) error {
		var image string
		var declared bool
		err := row.Scan(&image, &declared)
		out[image] = declared
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read images of %s: %w", id, err)
	}
	return out, nil
}

// imageEverywhere reports whether the image exists and is usable everywhere.
func imageEverywhere(ctx context.Context, tx *db.Tx, id string) (found, everywhere bool, err error) {
	found, err = tx.Get(ctx, `SELECT everywhere FROM images WHERE image_id = $1`, []any{id}, &everywhere)
	if err != nil {
		return false, false, fmt.Errorf("read image %s: %w", id, err)
	}
	return found, everywhere, nil
}

func deleteImage(ctx context.Context, tx *db.Tx, id string) (bool, error) {
	_, err := tx.Exec(ctx, `DELETE FROM image_centers WHERE image_id = $1`, id)
	var n int64
	if err == nil {
		n, err = tx.Exec(ctx, `DELETE FROM images WHERE image_id = $1`, id)
	}
	if err != nil {
		return false, fmt.Errorf("delete image %s: %w", id, err)
	}
	return n == 1, nil
}
