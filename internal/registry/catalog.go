package registry

import (
	"context"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// Catalog is the part of the registry that changes rarely, as of one moment.
// It belongs to everyone: it is never changed, and no one may change it.
type Catalog struct {
	Version int64
	Centers map[string]*Center // without Live
	Specs   map[string]*Spec
	Images  map[string]*Image
}

// cached is a catalog and how long to believe it.
type cached struct {
	*Catalog
	changes uint64    // local changes when its read began
	checked time.Time // when the database last said that it is right
}

// recheck is how long other processes' changes may go unseen.
const recheck = time.Second

// Catalog returns the catalog. It reads the database only if this process has
// changed the catalog since the last call, or once a second to see other
// processes' changes; while one caller does the latter, others get the
// catalog at hand.
func (s *Service) Catalog(ctx context.Context) (*Catalog, error) {
	c := s.cached.Load()
	current := c != nil && c.changes == s.changes.Load()
	if current {
		if age := s.db.Now().Sub(c.checked); age >= 0 && age < recheck {
			return c.Catalog, nil
		}
	}
	select {
	case s.loading <- struct{}{}:
	default:
		if current {
			return c.Catalog, nil
		}
		select {
		case s.loading <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-s.loading }()
	return s.reload(ctx, recheck)
}

// Fresh returns the catalog with all that any process had stored before the
// call. It always reads the database, the whole catalog only if it has changed:
// it is for what refuses by what the catalog lacks, and for rare changes.
func (s *Service) Fresh(ctx context.Context) (*Catalog, error) {
	select {
	case s.loading <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.loading }()
	return s.reload(ctx, 0)
}

// reload checks or replaces the catalog at hand, unless another caller has
// within so long. Only one caller runs it.
func (s *Service) reload(ctx context.Context, within time.Duration) (*Catalog, error) {
	old := s.cached.Load()
	c := &cached{changes: s.changes.Load(), checked: s.db.Now()} // both before the read: the catalog is no older than they say
	if old != nil && old.changes == c.changes {
		if age := c.checked.Sub(old.checked); age >= 0 && age < within {
			return old.Catalog, nil
		}
	}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		version, err := getVersion(ctx, tx)
		if err != nil {
			return err
		}
		if old != nil && old.Version == version {
			c.Catalog = old.Catalog
			return nil
		}
		c.Catalog, err = loadCatalog(ctx, tx, version)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.cached.Store(c)
	return c.Catalog, nil
}

func loadCatalog(ctx context.Context, tx *db.Tx, version int64) (*Catalog, error) {
	c := &Catalog{Version: version, Centers: map[string]*Center{}, Specs: map[string]*Spec{}, Images: map[string]*Image{}}
	centers, err := readCenters(ctx, tx, "")
	if err != nil {
		return nil, err
	}
	for i := range centers {
		k := &centers[i]
		k.Offers, k.Images = map[string]core.Fen{}, map[string]bool{}
		c.Centers[k.ID] = k
	}
	if err := readCapacity(ctx, tx, c.Centers, "", "", false); err != nil {
		return nil, err
	}
	if err := readSpeeds(ctx, tx, c.Centers, "", ""); err != nil {
		return nil, err
	}
	specs, err := readSpecs(ctx, tx, "")
	if err != nil {
		return nil, err
	}
	for i := range specs {
		c.Specs[specs[i].ID] = &specs[i]
		for _, o := range specs[i].Offers {
			if k := c.Centers[o.CenterID]; k != nil {
				k.Offers[specs[i].ID] = o.Price
			}
		}
	}
	images, err := readImages(ctx, tx, "")
	if err != nil {
		return nil, err
	}
	for i := range images {
		m := &images[i]
		c.Images[m.ID] = m
		if m.Everywhere {
			for _, k := range c.Centers {
				k.Images[m.ID] = true
			}
		}
		for _, id := range m.Centers {
			if k := c.Centers[id]; k != nil {
				k.Images[m.ID] = true
			}
		}
	}
	return c, nil
}

// changed counts a change of the catalog in tx, for this process and others.
func (s *Service) changed(ctx context.Context, tx *db.Tx) error {
	if err := bumpVersion(ctx, tx); err != nil {
		return err
	}
	tx.AfterCommit(func() { s.changes.Add(1) })
	return nil
}
