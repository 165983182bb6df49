package registry

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Service keeps the registry. It is safe for concurrent use.
type Service struct {
	// InUse reports whether waiting or running work uses the record of kind
	// "spec" or "image". It is set before the first call; nil: nothing does.
	InUse func(ctx context.Context, tx *db.Tx, kind, id string) (bool, error)

	db      *db.DB
	log     *slog.Logger
	cached  atomic.Pointer[cached]
	changes atomic.Uint64 // committed changes of the catalog by this process
	loading chan struct{} // held by the one caller that reads the catalog
	seen    atomic.Pointer[seen]
}

// New brings the tables up to date and returns the service, ready for calls.
func New(ctx context.Context, d *db.DB, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "registry", migrations); err != nil {
		return nil, err
	}
	return &Service{db: d, log: log.With("component", "registry"), loading: make(chan struct{}, 1)}, nil
}

// Defaults makes a new registry usable: the specifications "small" and
// "medium" and the image "host", which is usable at the centers that declare
// it. It does so once; what an operator deletes does not come back.
func (s *Service) Defaults(ctx context.Context) error {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		first, err := markFirst(ctx, tx, "defaults")
		if err != nil || !first {
			return err
		}
		for _, n := range []NewSpec{
			{ID: "small", Name: "1 CPU, 512 MiB", Quantity: map[string]string{core.CPU: "1", core.Memory: "512Mi"}, Price: 100},
			{ID: "medium", Name: "2 CPUs, 2 GiB", Quantity: map[string]string{core.CPU: "2", core.Memory: "2Gi"}, Price: 240},
		} {
			if _, err := s.createSpec(ctx, tx, n); err != nil && fault.KindOf(err) != fault.Exists {
				return err
			}
		}
		if _, err := insertImage(ctx, tx, Image{ID: "host", Name: "Host system (read-only)"}); err != nil {
			return err
		}
		return s.changed(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("create defaults: %w", err)
	}
	return nil
}

// CreateCenter creates a center; its name is its ID if it has none. Total is
// its capacity. It returns fault.Invalid, and fault.Exists if the ID is taken.
func (s *Service) CreateCenter(ctx context.Context, k Center) (Center, error) {
	if k.Name == "" {
		k.Name = k.ID
	}
	var c core.Check
	checkCenter(&c, centerPaths, k)
	checkCapacity(&c, "center.resources", k.Total)
	if err := c.Err(); err != nil {
		return Center{}, err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		k.CreatedAt, k.UpdatedAt = tx.Now, tx.Now
		// Made by hand, so it counts as edited.
		ok, err := insertCenter(ctx, tx, k, true)
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.Exists, "center %s exists already", k.ID)
		}
		if _, err := setCapacity(ctx, tx, k.ID, k.Total); err != nil {
			return err
		}
		return s.changed(ctx, tx)
	})
	if err != nil {
		return Center{}, err
	}
	s.log.Info("center created", "ai_center_id", k.ID)
	return s.GetCenter(ctx, k.ID)
}

// GetCenter returns a center with its live use. It returns fault.Invalid for
// what is not an ID and fault.NotFound.
func (s *Service) GetCenter(ctx context.Context, id string) (Center, error) {
	if err := checkIDs("ai_center_id", id); err != nil {
		return Center{}, err
	}
	var k Center
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		if k, err = getCenter(ctx, tx, id); err != nil {
			return err
		}
		one := []Center{k}
		err = summarize(ctx, tx, one)
		k = one[0]
		return err
	})
	return k, err
}

func getCenter(ctx context.Context, tx *db.Tx, id string) (Center, error) {
	rows, err := readCenters(ctx, tx, `WHERE ai_center_id = $1`, id)
	if err != nil {
		return Center{}, err
	}
	if len(rows) == 0 {
		return Center{}, noCenter(id)
	}
	return rows[0], enliven(ctx, tx, rows)
}

// enliven sets capacity and live use of centers ordered by ID.
func enliven(ctx context.Context, tx *db.Tx, rows []Center) error {
	if len(rows) == 0 {
		return nil
	}
	byID := map[string]*Center{}
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	first, last := rows[0].ID, rows[len(rows)-1].ID
	if err := readCapacity(ctx, tx, byID, first, last, true); err != nil {
		return err
	}
	return readLive(ctx, tx, byID, first, last, func(*Center, bool) {})
}

// ListCenters returns a page of centers by ID, of one region if it is named,
// and the token of the next page, "" on the last. It returns fault.Invalid.
func (s *Service) ListCenters(ctx context.Context, region string, size int32, token string) ([]Center, string, error) {
	var c core.Check
	c.Text("region", region, false, 0, 64)
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	return page(ctx, s, size, token, func(k Center) string { return k.ID }, func(tx *db.Tx, after string, n int) (rows []Center, err error) {
		if region == "" {
			rows, err = readCenters(ctx, tx, `WHERE ai_center_id > $1 ORDER BY ai_center_id LIMIT $2`, after, n)
		} else {
			rows, err = readCenters(ctx, tx, `WHERE ai_center_id > $1 AND region = $3 ORDER BY ai_center_id LIMIT $2`, after, n, region)
		}
		if err != nil {
			return nil, err
		}
		if err := enliven(ctx, tx, rows); err != nil {
			return nil, err
		}
		return rows, summarize(ctx, tx, rows)
	})
}

// UpdateCenter replaces what an operator decides about a center: name,
// region, position, security grade, power, performance, labels and whether it
// is drained. Whatever but drained it changes, declarations no longer change.
// It returns fault.Invalid (the name is required, so that half a record does
// not wipe the other half) and fault.NotFound.
func (s *Service) UpdateCenter(ctx context.Context, k Center) (Center, error) {
	k.Adapter = ""
	var c core.Check
	checkCenter(&c, centerPaths, k)
	if err := c.Err(); err != nil {
		return Center{}, err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		old, err := getCenter(ctx, tx, k.ID)
		if err != nil {
			return err
		}
		edited, err := isEdited(ctx, tx, k.ID)
		if err != nil {
			return err
		}
		next := k
		next.Adapter, next.UpdatedAt = old.Adapter, tx.Now
		if sameRecord(old, next) {
			return nil
		}
		if err := updateCenter(ctx, tx, next, edited || !sameDecided(old, next)); err != nil {
			return err
		}
		if next.Performance != old.Performance {
			if err := statedTx(ctx, tx, k.ID); err != nil {
				return err
			}
		}
		if err := emitCenter(ctx, tx, k.ID); err != nil {
			return err
		}
		return s.changed(ctx, tx)
	})
	if err != nil {
		return Center{}, err
	}
	s.log.Info("center updated", "ai_center_id", k.ID, "drained", k.Drained)
	return s.GetCenter(ctx, k.ID)
}

// DeleteCenter deletes a center, its offers and its place in images. It
// returns fault.Invalid, fault.NotFound, and fault.Conflict while replicas
// run or wait there, or anything is held.
func (s *Service) DeleteCenter(ctx context.Context, id string) error {
	if err := checkIDs("ai_center_id", id); err != nil {
		return err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		k, err := getCenter(ctx, tx, id)
		if err != nil {
			return err
		}
		if k.Running+k.Waiting > 0 {
			return fault.New(fault.Conflict, "center %s has %d running and %d waiting replicas; drain it and wait for them, or stop them", id, k.Running, k.Waiting)
		}
		for _, name := range sorted(k.Used) {
			if k.Used[name] > 0 { // by an allocation: no replica is there
				return fault.New(fault.Conflict, "center %s has allocations that hold %s of %s; release them first", id, core.FormatQuantity(name, k.Used[name]), name)
			}
		}
		if err := deleteCenter(ctx, tx, id); err != nil {
			return err
		}
		if err := emitCenter(ctx, tx, id); err != nil {
			return err
		}
		return s.changed(ctx, tx)
	})
	if err == nil {
		s.log.Info("center deleted", "ai_center_id", id)
	}
	return err
}

// CreateSpec creates a specification with its offers. It returns
// fault.Invalid (also for an offer at a center that does not exist) and
// fault.Exists if the ID is taken.
func (s *Service) CreateSpec(ctx context.Context, n NewSpec) (Spec, error) {
	var sp Spec
	err := s.db.Tx(ctx, func(tx *db.Tx) (err error) {
		if sp, err = s.createSpec(ctx, tx, n); err != nil {
			return err
		}
		return s.changed(ctx, tx)
	})
	if err != nil {
		return Spec{}, err
	}
	s.log.Info("specification created", "resource_spec_id", n.ID)
	return sp, nil
}

func (s *Service) createSpec(ctx context.Context, tx *db.Tx, n NewSpec) (Spec, error) {
	sp, err := n.spec()
	if err != nil {
		return Spec{}, err
	}
	var c core.Check
	for i, o := range sp.Offers {
		found, err := hasCenter(ctx, tx, o.CenterID)
		if err != nil {
			return Spec{}, err
		}
		if !found {
			c.Add("spec.offers["+strconv.Itoa(i)+"].ai_center_id", "there is no center %s", o.CenterID)
		}
	}
	if err := c.Err(); err != nil {
		return Spec{}, err
	}
	if err := insertSpec(ctx, tx, sp); err != nil {
		return Spec{}, err
	}
	if err := rememberDeleted(ctx, tx, sp.ID, false); err != nil {
		return Spec{}, err
	}
	for _, o := range sp.Offers {
		if err := setOffer(ctx, tx, sp.ID, o.CenterID, o.Price, true); err != nil {
			return Spec{}, err
		}
	}
	return getSpec(ctx, tx, sp.ID)
}

// GetSpec returns a specification with its offers. It returns fault.Invalid
// for what is not an ID and fault.NotFound.
func (s *Service) GetSpec(ctx context.Context, id string) (Spec, error) {
	if err := checkIDs("resource_spec_id", id); err != nil {
		return Spec{}, err
	}
	var sp Spec
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		sp, err = getSpec(ctx, tx, id)
		return err
	})
	return sp, err
}

func getSpec(ctx context.Context, tx *db.Tx, id string) (Spec, error) {
	rows, err := readSpecs(ctx, tx, `WHERE resource_spec_id = $1`, id)
	if err != nil {
		return Spec{}, err
	}
	if len(rows) == 0 {
		return Spec{}, noSpec(id)
	}
	return rows[0], nil
}

func noSpec(id string) error  { return fault.New(fault.NotFound, "there is no specification %s", id) }
func noImage(id string) error { return fault.New(fault.NotFound, "there is no image %s", id) }

// ListSpecs returns a page of specifications by ID and the token of the next
// page, "" on the last. It returns fault.Invalid.
func (s *Service) ListSpecs(ctx context.Context, size int32, token string) ([]Spec, string, error) {
	return page(ctx, s, size, token, func(sp Spec) string { return sp.ID }, func(tx *db.Tx, after string, n int) ([]Spec, error) {
		return readSpecs(ctx, tx, `WHERE resource_spec_id > $1 ORDER BY resource_spec_id LIMIT $2`, after, n)
	})
}

// SetOffer offers a specification at a center at a price, whatever the center
// declares. It returns fault.Invalid, and fault.NotFound if either does not
// exist.
func (s *Service) SetOffer(ctx context.Context, specID, centerID string, price core.Fen) (Spec, error) {
	var c core.Check
	c.ID("resource_spec_id", specID)
	c.ID("ai_center_id", centerID)
	c.Range("price", int64(price), 0, maxPrice)
	if err := c.Err(); err != nil {
		return Spec{}, err
	}
	return s.changeOffer(ctx, specID, centerID, func(tx *db.Tx) error {
		return setOffer(ctx, tx, specID, centerID, price, true)
	})
}

// DeleteOffer withdraws a specification from a center, whatever the center
// declares; [Service.SetOffer] brings it back. It returns fault.Invalid, and
// fault.NotFound if there is no such offer.
func (s *Service) DeleteOffer(ctx context.Context, specID, centerID string) (Spec, error) {
	var c core.Check
	c.ID("resource_spec_id", specID)
	c.ID("ai_center_id", centerID)
	if err := c.Err(); err != nil {
		return Spec{}, err
	}
	return s.changeOffer(ctx, specID, centerID, func(tx *db.Tx) error {
		ok, err := withdrawOffer(ctx, tx, specID, centerID)
		if err == nil && !ok {
			err = fault.New(fault.NotFound, "specification %s is not offered at center %s", specID, centerID)
		}
		return err
	})
}

func (s *Service) changeOffer(ctx context.Context, specID, centerID string, change func(tx *db.Tx) error) (sp Spec, err error) {
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if found, err := hasSpec(ctx, tx, specID); err != nil {
			return err
		} else if !found {
			return noSpec(specID)
		}
		if found, err := hasCenter(ctx, tx, centerID); err != nil {
			return err
		} else if !found {
			return noCenter(centerID)
		}
		if err := change(tx); err != nil {
			return err
		}
		if err := touchSpec(ctx, tx, specID); err != nil {
			return err
		}
		if sp, err = getSpec(ctx, tx, specID); err != nil {
			return err
		}
		return s.changed(ctx, tx)
	})
	if err != nil {
		return Spec{}, err
	}
	s.log.Info("offer changed", "resource_spec_id", specID, "ai_center_id", centerID)
	return sp, nil
}

// DeleteSpec deletes a specification and the offers operators made of it. It
// returns fault.Invalid, fault.NotFound, and fault.Conflict while it is in
// use.
func (s *Service) DeleteSpec(ctx context.Context, id string) error {
	if err := checkIDs("resource_spec_id", id); err != nil {
		return err
	}
	return s.remove(ctx, "spec", id, noSpec, deleteSpec)
}

// CreateImage creates an image; its name is its ID if it has none, and
// without Centers it is usable everywhere. It returns fault.Invalid (also for
// a center that does not exist) and fault.Exists if the ID is taken.
func (s *Service) CreateImage(ctx context.Context, m Image) (Image, error) {
	if m.Name == "" {
		m.Name = m.ID
	}
	m.Everywhere = len(m.Centers) == 0
	if err := checkImage(m); err != nil {
		return Image{}, err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := checkImageCenters(ctx, tx, m); err != nil {
			return err
		}
		ok, err := insertImage(ctx, tx, m)
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.Exists, "image %s exists already", m.ID)
		}
		return s.changed(ctx, tx)
	})
	if err != nil {
		return Image{}, err
	}
	s.log.Info("image created", "image_id", m.ID)
	return s.GetImage(ctx, m.ID)
}

func checkImageCenters(ctx context.Context, tx *db.Tx, m Image) error {
	var c core.Check
	check := func(path, id string) error {
		found, err := hasCenter(ctx, tx, id)
		if err == nil && !found {
			c.Add(path, "there is no center %s", id)
		}
		return err
	}
	if m.CenterID != "" {
		if err := check("image.ai_center_id", m.CenterID); err != nil {
			return err
		}
	}
	for i, id := range m.Centers {
		if err := check("image.centers["+strconv.Itoa(i)+"]", id); err != nil {
			return err
		}
	}
	return c.Err()
}

// GetImage returns an image. It returns fault.Invalid for what is not an ID
// and fault.NotFound.
func (s *Service) GetImage(ctx context.Context, id string) (Image, error) {
	if err := checkIDs("image_id", id); err != nil {
		return Image{}, err
	}
	var m Image
	err := s.db.View(ctx, func(tx *db.Tx) error {
		rows, err := readImages(ctx, tx, `WHERE image_id = $1`, id)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return noImage(id)
		}
		m = rows[0]
		return nil
	})
	return m, err
}

// ListImages returns a page of images by ID and the token of the next page,
// "" on the last. It returns fault.Invalid.
func (s *Service) ListImages(ctx context.Context, size int32, token string) ([]Image, string, error) {
	return page(ctx, s, size, token, func(m Image) string { return m.ID }, func(tx *db.Tx, after string, n int) ([]Image, error) {
		return readImages(ctx, tx, `WHERE image_id > $1 ORDER BY image_id LIMIT $2`, after, n)
	})
}

// DeleteImage deletes an image's record. It returns fault.Invalid,
// fault.NotFound, and fault.Conflict while it is in use.
func (s *Service) DeleteImage(ctx context.Context, id string) error {
	if err := checkIDs("image_id", id); err != nil {
		return err
	}
	return s.remove(ctx, "image", id, noImage, deleteImage)
}

func (s *Service) remove(ctx context.Context, kind, id string, missing func(string) error, del func(context.Context, *db.Tx, string) (bool, error)) error {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		ok, err := del(ctx, tx, id)
		if err != nil {
			return err
		}
		if !ok {
			return missing(id)
		}
		if s.InUse != nil {
			used, err := s.InUse(ctx, tx, kind, id)
			if err != nil {
				return fmt.Errorf("ask whether %s %s is in use: %w", kind, id, err)
			}
			if used {
				return fault.New(fault.Conflict, "%s %s is used by waiting or running jobs; wait for them, or stop them", kind, id)
			}
		}
		return s.changed(ctx, tx)
	})
	if err == nil {
		s.log.Info("record deleted", "kind", kind, "id", id)
	}
	return err
}

func checkIDs(path, id string) error {
	var c core.Check
	c.ID(path, id)
	return c.Err()
}

// page reads one row more than wanted to learn whether there is another page.
func page[T any](ctx context.Context, s *Service, wanted int32, token string, key func(T) string, read func(tx *db.Tx, after string, n int) ([]T, error)) ([]T, string, error) {
	size, err := core.PageSize(wanted, 100)
	if err != nil {
		return nil, "", err
	}
	after := ""
	k, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	if k != nil {
		if after = k[0]; checkIDs("", after) != nil {
			return nil, "", fault.Fields(fault.Field{Path: "page_token", Problem: "is not a token of this list; leave it empty to start anew"})
		}
	}
	var rows []T
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		rows, err = read(tx, after, size+1)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if len(rows) <= size {
		return rows, "", nil
	}
	return rows[:size], core.PageToken(key(rows[size-1])), nil
}
