package network

import (
	"context"
	"embed"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/registry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// recheck is how long another process's change may go unseen.
const recheck = time.Second

// Service keeps paths and origins. It is safe for concurrent use.
type Service struct {
	db       *db.DB
	ids      *identity.Service
	reg      *registry.Service
	samples  monitor.Store
	topology Topology
	log      *slog.Logger
	changes  atomic.Uint64 // of what is declared, by this process

	mu sync.Mutex // guards the fields below

	stored      *declared // nil: not read yet
	checked     time.Time // when the generation was last compared
	seen        uint64    // changes when it was
	measured    map[ends]measurement
	lookedAt    time.Time // when measured was read
	links       []Link
	available   map[string]int64
	availableAt time.Time
	picture     *Picture // nil: to be put together
	madeAt      time.Time
}

// New brings the tables up to date and returns the service, ready for calls.
// The loop is Follow.
func New(ctx context.Context, d *db.DB, ids *identity.Service, reg *registry.Service, store monitor.Store, t Topology, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "network", migrations); err != nil {
		return nil, err
	}
	return &Service{db: d, ids: ids, reg: reg, samples: store, topology: t, log: log.With("component", "network"), measured: map[ends]measurement{}}, nil
}

// Picture returns the network as it is now; the first call, and one a second,
// read the database.
func (s *Service) Picture(ctx context.Context) (*Picture, error) {
	now := s.db.Now()
	s.mu.Lock()
	d, age, seen := s.stored, now.Sub(s.checked), s.seen
	s.mu.Unlock()
	if d == nil || age < 0 || age >= recheck || seen != s.changes.Load() {
		if err := s.refresh(ctx, d, now); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.picture == nil || now.Sub(s.madeAt).Abs() >= every {
		s.picture, s.madeAt = newPicture(s.stored, s.measured, s.links, s.available, now.Add(-staleAfter)), now
	}
	return s.picture, nil
}

// refresh reads what is declared if it is another than d.
func (s *Service) refresh(ctx context.Context, d *declared, now time.Time) error {
	var next *declared
	changes := s.changes.Load()
	err := s.db.View(ctx, func(tx *db.Tx) error {
		next = d
		n, err := generation(ctx, tx)
		if err != nil || d != nil && d.generation == n {
			return err
		}
		next = &declared{generation: n}
		if next.paths, err = readPaths(ctx, tx, ""); err != nil {
			return err
		}
		next.origins, err = readOrigins(ctx, tx, "")
		return err
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored == nil || next.generation > s.stored.generation {
		s.stored, s.picture = next, nil
	}
	s.checked, s.seen = now, max(s.seen, changes)
	return nil
}

// Generation counts changes of what is declared.
func (s *Service) Generation(ctx context.Context) (int64, error) {
	if _, err := s.Picture(ctx); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored.generation, nil
}

// change makes a change of the tables; f reports whether there was one.
func (s *Service) change(ctx context.Context, subject string, f func(tx *db.Tx) (bool, error)) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		changed, err := f(tx)
		if err != nil || !changed {
			return err
		}
		if err := bump(ctx, tx); err != nil {
			return err
		}
		tx.AfterCommit(func() { s.changes.Add(1) })
		return s.ids.AuditTx(ctx, tx, subject)
	})
}

// SetPath declares a path, replacing what was declared of it. It returns
// fault.Invalid with paths below "path.".
func (s *Service) SetPath(ctx context.Context, d Declaration) (Path, error) {
	if err := d.check(); err != nil {
		return Path{}, err
	}
	cat, err := s.reg.Fresh(ctx)
	if err != nil {
		return Path{}, err
	}
	err = s.change(ctx, d.From+" to "+d.To, func(tx *db.Tx) (bool, error) {
		var c core.Check
		for _, e := range []struct{ path, end string }{{"path.from", d.From}, {"path.to", d.To}} {
			id, ok := strings.CutPrefix(e.end, centerPrefix)
			if ok && cat.Centers[id] == nil {
				c.Add(e.path, "there is no center %q; see yunhe center list", id)
			}
			if id, ok = strings.CutPrefix(e.end, originPrefix); ok {
				list, err := readOrigins(ctx, tx, `WHERE origin_id = $1`, id)
				if err != nil {
					return false, err
				}
				if len(list) == 0 {
					c.Add(e.path, "there is no origin %q; see yunhe network origin list", id)
				}
			}
		}
		if err := c.Err(); err != nil {
			return false, err
		}
		old, err := readPaths(ctx, tx, `WHERE from_end = $1 AND to_end = $2`, d.From, d.To)
		switch {
		case err != nil:
			return false, err
		case len(old) == 1 && old[0] == d:
			return false, nil
		case len(old) == 0:
			n, err := count(ctx, tx, "network_paths")
			if err != nil {
				return false, err
			}
			if n >= maxDeclared {
				return false, fault.New(fault.Exhausted, "at most %d paths can be declared; those between regions count for all centers in them", maxDeclared)
			}
		}
		return true, putPath(ctx, tx, &d)
	})
	if err != nil {
		return Path{}, err
	}
	p, err := s.Picture(ctx)
	if err != nil {
		return Path{}, err
	}
	return p.show(ends{d.From, d.To}), nil
}

// DeletePath forgets what was declared of a path. It returns fault.Invalid and
// fault.NotFound.
func (s *Service) DeletePath(ctx context.Context, from, to string) error {
	var c core.Check
	checkEnd(&c, "from", from, centerPrefix, regionPrefix, originPrefix)
	checkEnd(&c, "to", to, centerPrefix, regionPrefix, originPrefix, Anywhere)
	if err := c.Err(); err != nil {
		return err
	}
	return s.change(ctx, from+" to "+to, func(tx *db.Tx) (bool, error) {
		n, err := tx.Exec(ctx, `DELETE FROM network_paths WHERE from_end = $1 AND to_end = $2`, from, to)
		if err == nil && n == 0 {
			err = fault.New(fault.NotFound, "nothing is declared of the path from %s to %s", from, to)
		}
		return true, err
	})
}

// Paths returns a page of what is known of paths by their ends, and the token
// of the next page, "" on the last. It returns fault.Invalid.
func (s *Service) Paths(ctx context.Context, end string, size int32, token string) ([]Path, string, error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 2)
	if err != nil {
		return nil, "", err
	}
	if end != "" {
		var c core.Check
		if checkEnd(&c, "end", end, centerPrefix, regionPrefix, originPrefix, Anywhere); c.Err() != nil {
			return nil, "", c.Err()
		}
	}
	p, err := s.Picture(ctx)
	if err != nil {
		return nil, "", err
	}
	var after ends
	if key != nil {
		after = ends{key[0], key[1]}
	}
	out, more := p.list(end, after, n)
	if !more {
		return out, "", nil
	}
	last := out[len(out)-1]
	return out, core.PageToken(last.From, last.To), nil
}

// Between returns what placement takes between two places. It returns
// fault.Invalid and fault.NotFound.
func (s *Service) Between(ctx context.Context, from, to string) (Path, error) {
	var c core.Check
	checkEnd(&c, "from", from, centerPrefix, originPrefix)
	checkEnd(&c, "to", to, centerPrefix)
	if from == to && from != "" {
		c.Add("to", "must not be from %q", clip(to))
	}
	if err := c.Err(); err != nil {
		return Path{}, err
	}
	p, err := s.Picture(ctx)
	if err != nil {
		return Path{}, err
	}
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return Path{}, err
	}
	var spots [2]spot
	for i, end := range []string{from, to} {
		if id, ok := strings.CutPrefix(end, centerPrefix); ok {
			k := cat.Centers[id]
			if k == nil {
				return Path{}, fault.New(fault.NotFound, "there is no center %q; see yunhe center list", id)
			}
			spots[i] = centerSpot(k)
			continue
		}
		o := p.origins[strings.TrimPrefix(end, originPrefix)]
		if o == nil {
			return Path{}, noOrigin(strings.TrimPrefix(end, originPrefix))
		}
		spots[i] = spot{end: end, region: o.Region, position: o.Position}
	}
	return p.between(spots[0], spots[1]), nil
}

func noOrigin(id string) error {
	return fault.New(fault.NotFound, "there is no origin %q; see yunhe network origin list", id)
}

// HasOrigin reports whether there is an origin.
func (s *Service) HasOrigin(ctx context.Context, id string) (bool, error) {
	p, err := s.Picture(ctx)
	if err != nil {
		return false, err
	}
	return p.origins[id] != nil, nil
}

// SetOrigin creates or replaces an origin; longitude and latitude are in
// millionths of a degree, or nil. It returns fault.Invalid with paths below
// "origin." and fault.Conflict.
func (s *Service) SetOrigin(ctx context.Context, o Origin, longitude, latitude *int64) (*Origin, error) {
	if err := o.check(longitude, latitude); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = o.ID
	}
	slices.Sort(o.Tenants)
	slices.Sort(o.Users)
	out := &o
	err := s.change(ctx, o.ID, func(tx *db.Tx) (bool, error) {
		old, err := readOrigins(ctx, tx, `WHERE origin_id = $1`, o.ID)
		if err != nil {
			return false, err
		}
		if len(old) == 1 && old[0].same(&o) {
			out = old[0]
			return false, nil
		}
		if len(old) == 0 {
			n, err := count(ctx, tx, "network_origins")
			if err != nil {
				return false, err
			}
			if n >= maxOrigins {
				return false, fault.New(fault.Exhausted, "there can be at most %d origins", maxOrigins)
			}
		}
		o.UpdatedAt, out = tx.Now, &o
		return true, putOrigin(ctx, tx, &o)
	})
	return out, err
}

// same compares all but the time; lists are sorted.
func (o *Origin) same(p *Origin) bool {
	located := (o.Position == nil) == (p.Position == nil) && (o.Position == nil || *o.Position == *p.Position)
	return o.ID == p.ID && o.Name == p.Name && o.Region == p.Region && located && slices.Equal(o.Tenants, p.Tenants) && slices.Equal(o.Users, p.Users)
}

// DeleteOrigin deletes an origin and what was declared of its paths. It returns
// fault.Invalid and fault.NotFound.
func (s *Service) DeleteOrigin(ctx context.Context, id string) error {
	var c core.Check
	if c.ID("origin_id", id); c.Err() != nil {
		return c.Err()
	}
	return s.change(ctx, id, func(tx *db.Tx) (bool, error) {
		found, err := deleteOrigin(ctx, tx, id)
		if err == nil && !found {
			err = noOrigin(id)
		}
		return true, err
	})
}

// Origins returns a page of origins by ID, and the token of the next page, ""
// on the last. It returns fault.Invalid.
func (s *Service) Origins(ctx context.Context, size int32, token string) (out []*Origin, next string, err error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	after := ""
	if key != nil {
		after = key[0]
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = readOrigins(ctx, tx, `WHERE origin_id > $1`, after)
		return err
	})
	if err != nil || len(out) <= n {
		return out, "", err
	}
	return out[:n], core.PageToken(out[n-1].ID), nil
}
