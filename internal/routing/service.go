package routing

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/registry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Router routes the requests of services. It is safe for concurrent use.
type Router struct {
	db   *db.DB
	ids  *identity.Service
	reg  *registry.Service
	jobs *jobs.Service
	log  *slog.Logger
}

// New returns the router; its loop is Run.
func New(ctx context.Context, d *db.DB, ids *identity.Service, reg *registry.Service, work *jobs.Service, log *slog.Logger) (*Router, error) {
	if err := d.Migrate(ctx, "routing", migrations); err != nil {
		return nil, err
	}
	return &Router{db: d, ids: ids, reg: reg, jobs: work, log: log.With("component", "routing")}, nil
}

// roundEvery is how often weights are made anew.
const roundEvery = 5 * time.Second

// Run makes weights anew until ctx ends.
func (r *Router) Run(ctx context.Context) error {
	tick := time.NewTicker(roundEvery)
	defer tick.Stop()
	for {
		core.Round(ctx, roundEvery)
		if err := r.Round(ctx); err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			r.log.Warn("weights not made, will try again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Round does once what Run does again and again.
func (r *Router) Round(ctx context.Context) error {
	var list []*Service
	err := r.db.View(ctx, func(tx *db.Tx) (err error) {
		list, err = readServices(ctx, tx, `ORDER BY service_id`)
		return err
	})
	if err != nil || len(list) == 0 {
		return err
	}
	return r.weigh(ctx, list...)
}

// weigh makes the weights of services anew.
func (r *Router) weigh(ctx context.Context, list ...*Service) error {
	snap, err := r.reg.Snapshot(ctx)
	if err != nil {
		return err
	}
	centers := make(map[string]*registry.Center, len(snap.Centers))
	for _, c := range snap.Centers {
		centers[c.ID] = c
	}
	for _, s := range list {
		if err := r.route(ctx, s, centers); err != nil {
			return fmt.Errorf("service %s: %w", s.ID, err)
		}
	}
	return nil
}

// route makes the weights of a service anew and stores what changed.
func (r *Router) route(ctx context.Context, s *Service, centers map[string]*registry.Center) error {
	var next *Routes
	changed := false
	err := r.db.View(ctx, func(tx *db.Tx) error {
		known, err := readOrigins(ctx, tx, s.ID)
		if err != nil {
			return err
		}
		replicas, err := r.jobs.ServingTx(ctx, tx, s.JobIDs)
		if err != nil {
			return err
		}
		old, err := readRoutes(ctx, tx, s.ID)
		if err != nil {
			return err
		}
		if next, err = weigh(s, known, replicas, centers, old); err != nil {
			return err
		}
		next.Generation, next.MadeAt = 1, tx.Now
		if old != nil {
			next.Generation, next.MadeAt = old.Generation, old.MadeAt
			if changed = !same(old, next); changed {
				next.Generation, next.MadeAt = old.Generation+1, tx.Now
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = r.db.Tx(ctx, func(tx *db.Tx) error {
		now, err := getService(ctx, tx, s.ID)
		if err != nil {
			return err
		}
		if !now.UpdatedAt.Equal(s.UpdatedAt) {
			return nil // the next round has it
		}
		return putRoutes(ctx, tx, next)
	})
	if fault.KindOf(err) == fault.NotFound {
		return nil // deleted meanwhile
	}
	if changed && err == nil {
		r.log.Info("weights changed", "service", s.ID, "generation", next.Generation)
	}
	return err
}

// Create stores a service of the caller's tenant.
func (r *Router) Create(ctx context.Context, s *Service, requestID, digest string) (*Service, error) {
	var c core.Check
	if c.Text("request_id", requestID, false, 64, 0); c.Err() != nil {
		return nil, c.Err()
	}
	if err := s.check("service."); err != nil {
		return nil, err
	}
	tenant := core.CallerFrom(ctx).TenantID
	out := s
	err := r.db.Tx(ctx, func(tx *db.Tx) error {
		if requestID != "" {
			var id, before string
			found, err := tx.Get(ctx, `SELECT service_id, digest FROM services WHERE tenant_id = $1 AND request_id = $2`, []any{tenant, requestID}, &id, &before)
			if err != nil {
				return fmt.Errorf("look for the request: %w", err)
			}
			if found && before != digest {
				return fault.Wrap(fault.Conflict, fault.Fields(fault.Field{Path: "request_id", Problem: "was used for another request"}), "request_id %q was used for a different request", requestID)
			}
			if found {
				out, err = getService(ctx, tx, id)
				return err
			}
		}
		out = s
		s.ID, s.TenantID, s.CreatedAt, s.UpdatedAt = core.NewID("svc"), tenant, tx.Now, tx.Now
		if err := r.jobs.OwnedTx(ctx, tx, tenant, s.JobIDs); err != nil {
			return err
		}
		if err := putService(ctx, tx, s, requestID, digest); err != nil {
			return err
		}
		return r.ids.AuditTx(ctx, tx, s.ID)
	})
	if err != nil {
		return nil, err
	}
	if err := r.weigh(ctx, out); err != nil {
		r.log.Warn("first weights not made, the next round makes them", "service", out.ID, "error", err)
	}
	return out, nil
}

// Update replaces a service.
func (r *Router) Update(ctx context.Context, s *Service) (*Service, error) {
	if err := checkID("service.service_id", s.ID); err != nil {
		return nil, err
	}
	if err := s.check("service."); err != nil {
		return nil, err
	}
	err := r.db.Tx(ctx, func(tx *db.Tx) error {
		old, err := visible(ctx, tx, s.ID)
		if err != nil {
			return err
		}
		s.TenantID, s.CreatedAt, s.UpdatedAt = old.TenantID, old.CreatedAt, tx.Now
		if err := r.jobs.OwnedTx(ctx, tx, s.TenantID, s.JobIDs); err != nil {
			return err
		}
		for _, o := range old.Origins {
			if !slices.ContainsFunc(s.Origins, func(n Origin) bool { return n.ID == o.ID }) {
				if _, err := tx.Exec(ctx, `DELETE FROM service_origins WHERE service_id = $1 AND origin_id = $2`, s.ID, o.ID); err != nil {
					return fmt.Errorf("forget origin %s: %w", o.ID, err)
				}
			}
		}
		if err := putService(ctx, tx, s, "", ""); err != nil {
			return err
		}
		return r.ids.AuditTx(ctx, tx, s.ID)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func checkID(field, id string) error {
	var c core.Check
	c.ID(field, id)
	return c.Err()
}

// visible returns a service the caller may see.
func visible(ctx context.Context, tx *db.Tx, id string) (*Service, error) {
	s, err := getService(ctx, tx, id)
	if err == nil && !core.CallerFrom(ctx).Sees(s.TenantID) {
		return nil, noService(id)
	}
	return s, err
}

// Get returns a service.
func (r *Router) Get(ctx context.Context, id string) (out *Service, err error) {
	if err := checkID("service_id", id); err != nil {
		return nil, err
	}
	err = r.db.View(ctx, func(tx *db.Tx) error {
		out, err = visible(ctx, tx, id)
		return err
	})
	return out, err
}

// List returns a page, newest first, and the token of the next, "" on the last.
func (r *Router) List(ctx context.Context, size int32, token string) ([]*Service, string, error) {
	n, err := core.PageSize(size, 50)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	after := "~" // behind every ID
	if key != nil {
		after = key[0]
	}
	var rows []*Service
	err = r.db.View(ctx, func(tx *db.Tx) (err error) {
		tenant := core.CallerFrom(ctx).Tenant("")
		rows, err = readServices(ctx, tx, `WHERE service_id < $1 AND ($2 = '' OR tenant_id = $2) ORDER BY service_id DESC LIMIT $3`, after, tenant, n+1)
		return err
	})
	if err != nil || len(rows) <= n {
		return rows, "", err
	}
	return rows[:n], core.PageToken(rows[n-1].ID), nil
}

// Delete deletes a service.
func (r *Router) Delete(ctx context.Context, id string) error {
	if err := checkID("service_id", id); err != nil {
		return err
	}
	return r.db.Tx(ctx, func(tx *db.Tx) error {
		if _, err := visible(ctx, tx, id); err != nil {
			return err
		}
		if err := deleteService(ctx, tx, id); err != nil {
			return err
		}
		return r.ids.AuditTx(ctx, tx, id)
	})
}

// Report takes what came from origins. Reports are measurements, of which many
// come: they leave no audit event.
func (r *Router) Report(ctx context.Context, id string, reports []Report) error {
	if err := checkID("service_id", id); err != nil {
		return err
	}
	if err := checkReports(reports, r.db.Now()); err != nil {
		return err
	}
	return r.db.Tx(ctx, func(tx *db.Tx) error {
		s, err := visible(ctx, tx, id)
		if err != nil {
			return err
		}
		known, err := readOrigins(ctx, tx, id)
		if err != nil {
			return err
		}
		var c core.Check
		for i, x := range reports {
			if !slices.ContainsFunc(s.Origins, func(o Origin) bool { return o.ID == x.OriginID }) {
				c.Add(fmt.Sprintf("reports[%d].origin_id", i), "must be an origin of the service, got %q", x.OriginID)
				continue
			}
			o := known[x.OriginID]
			if o == nil {
				o = &origin{}
			}
			if o.take(x) {
				if err := putOrigin(ctx, tx, id, x.OriginID, o); err != nil {
					return err
				}
			}
		}
		return c.Err()
	})
}

// Routes returns the weights in force and the service they are of.
func (r *Router) Routes(ctx context.Context, id string) (s *Service, out *Routes, err error) {
	if err := checkID("service_id", id); err != nil {
		return nil, nil, err
	}
	err = r.db.View(ctx, func(tx *db.Tx) error {
		if s, err = visible(ctx, tx, id); err != nil {
			return err
		}
		if out, err = readRoutes(ctx, tx, id); err == nil && out == nil {
			err = fault.New(fault.NotFound, "the weights of service %s are not made yet; ask again in %d s", id, int(roundEvery.Seconds()))
		}
		return err
	})
	return s, out, err
}
