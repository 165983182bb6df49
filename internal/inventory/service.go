package inventory

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"sync"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/seal"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Service keeps the inventory. It is safe for concurrent use. Who calls is
// read from the context ([core.CallerFrom]); without a caller only what
// everyone sees is there, and nothing can be changed.
type Service struct {
	db  *db.DB
	reg *registry.Service
	box *seal.Box
	log *slog.Logger

	mu sync.Mutex // guards the fields below

	signer    *signer // set once there is one
	created   int     // resources, by batches of this process
	estimated int     // of them, when the database last estimated its tables
}

// New brings the tables up to date and returns the service, ready for calls.
// The box seals the key that signs registration codes.
func New(ctx context.Context, d *db.DB, reg *registry.Service, box *seal.Box, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "inventory", migrations); err != nil {
		return nil, err
	}
	s := &Service{db: d, reg: reg, box: box, log: log.With("component", "inventory")}
	return s, s.indexAll(ctx)
}

// visible is what a caller may see.
type visible struct {
	all    bool
	tenant string
}

func visibleTo(ctx context.Context) visible {
	c := core.CallerFrom(ctx)
	return visible{c.AllTenants, c.Tenant("")}
}

func (v visible) sees(tenantID string) bool { return v.all || tenantID == "" || tenantID == v.tenant }

// limit adds the condition to a query of resources r.
func (v visible) limit(q *query) {
	if !v.all {
		q.and("(r.tenant_id = '' OR r.tenant_id = " + q.param(v.tenant) + ")")
	}
}

func noResource(id string) error { return fault.New(fault.NotFound, "there is no resource %s", id) }

// Create registers a resource; it gets an ID if it has none. It returns
// fault.Invalid with paths below "resource.", and fault.Exists if the ID is
// taken.
func (s *Service) Create(ctx context.Context, r Resource) (Resource, error) {
	if r.ID == "" {
		r.ID = core.NewID("res")
	}
	r.Version = 0
	return s.write(ctx, r, func(old *record, see visible) error {
		if old != nil {
			return fault.New(fault.Exists, "resource %s exists already", r.ID)
		}
		return nil
	})
}

// Update replaces a resource whose version is r.Version. It returns
// fault.Invalid with paths below "resource.", fault.NotFound, and
// fault.Conflict if the resource has another version.
func (s *Service) Update(ctx context.Context, r Resource) (Resource, error) {
	if r.Version < 1 {
		return Resource{}, fault.Fields(fault.Field{Path: "resource.version", Problem: "is required: the version you saw"})
	}
	return s.write(ctx, r, func(old *record, see visible) error {
		if old == nil || !see.sees(old.TenantID) {
			return noResource(r.ID)
		}
		return versionFault(old, r.Version)
	})
}

func versionFault(old *record, version int64) error {
	if version != 0 && old.Version != version {
		return fault.New(fault.Conflict, "resource %s has version %d, not %d: it was changed meanwhile; read it and try again", old.ID, old.Version, version)
	}
	return nil
}

// write is Apply of one, with faults in place of results.
func (s *Service) write(ctx context.Context, r Resource, precondition func(old *record, see visible) error) (Resource, error) {
	var c core.Check
	if r.check(&c, "resource."); c.Err() != nil {
		return Resource{}, c.Err()
	}
	world, err := s.survey(ctx, []Resource{r})
	if err != nil {
		return Resource{}, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		p, err := s.plan(ctx, tx, world, []Resource{r})
		if err != nil {
			return err
		}
		if err := precondition(p.have[r.ID], p.see); err != nil {
			return err
		}
		if v := p.results[0].Violations; len(v) > 0 {
			var c core.Check
			for _, x := range v {
				c.Add("resource."+x.Field, "%s", x.Problem)
			}
			return c.Err()
		}
		return p.write(ctx)
	})
	if err != nil {
		return Resource{}, err
	}
	s.log.Info("resource written", "resource_id", r.ID, "type", r.Type)
	return s.Get(ctx, r.ID)
}

// Apply makes resources be as given: it creates those that are new, replaces
// those that differ and leaves equal ones alone, all of them or none; with
// dryRun none in any case. Their order does not matter. A version of 0
// replaces whichever is stored. applied is false if any was refused; then the
// results say of each what is wrong. It returns fault.Invalid for a batch of
// none or of more than [MaxBatch].
func (s *Service) Apply(ctx context.Context, batch []Resource, dryRun bool) (results []Result, applied bool, err error) {
	if len(batch) == 0 || len(batch) > MaxBatch {
		return nil, false, fault.Fields(fault.Field{Path: "resources", Problem: fmt.Sprintf("must be 1 to %d, got %d", MaxBatch, len(batch))})
	}
	world, err := s.survey(ctx, batch)
	if err != nil {
		return nil, false, err
	}
	run := s.db.Tx
	if dryRun {
		run = s.db.View
	}
	err = run(ctx, func(tx *db.Tx) error {
		p, err := s.plan(ctx, tx, world, batch)
		if err != nil {
			return err
		}
		results, applied = p.results, !dryRun && !p.refused()
		if !applied {
			return nil
		}
		return p.write(ctx)
	})
	if err != nil {
		return nil, false, err
	}
	if applied {
		var n [Refused + 1]int
		for _, r := range results {
			n[r.Outcome]++
		}
		s.log.Info("resources applied", "created", n[Created], "updated", n[Updated], "unchanged", n[Unchanged])
		s.estimate(ctx, n[Created])
	}
	return results, applied, nil
}

// fewCreated is after how many new resources tables are first estimated anew.
const fewCreated = 500

// estimate has PostgreSQL look at its tables again once they have doubled. It
// does so by itself after a minute or so; until then it reads all of a table
// it believes empty with every batch: BenchmarkApply wrote 1,700 resources/s
// of the first 20,000, and fewer with each batch, against 8,400/s.
func (s *Service) estimate(ctx context.Context, created int) {
	s.mu.Lock()
	s.created += created
	due := s.db.Engine() == db.Postgres && s.created-s.estimated >= max(fewCreated, s.estimated)
	if due {
		s.estimated = s.created
	}
	s.mu.Unlock()
	if !due {
		return
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		for _, table := range []string{"resources", "resource_labels", "resource_terms"} {
			if _, err := tx.Exec(ctx, `ANALYZE `+table); err != nil {
				return fmt.Errorf("estimate %s: %w", table, err)
			}
		}
		return nil
	})
	if err != nil {
		s.log.Warn("the database could not estimate the tables of resources; it will do so by itself", "error", err)
	}
}

// Get returns a resource, also one of the view. It returns fault.Invalid for
// what is not an ID, and fault.NotFound, also if the caller may not see it.
func (s *Service) Get(ctx context.Context, id string) (Resource, error) {
	var c core.Check
	if checkRef(&c, "resource_id", id); c.Err() != nil {
		return Resource{}, c.Err()
	}
	if centerID, node, ok := viewed(id); ok {
		return s.getViewed(ctx, centerID, node)
	}
	var out []Resource
	err := s.db.View(ctx, func(tx *db.Tx) error {
		r, err := getRecord(ctx, tx, id)
		if err != nil {
			return err
		}
		if r == nil || !visibleTo(ctx).sees(r.TenantID) {
			return noResource(id)
		}
		k, err := r.open()
		out = []Resource{k}
		if err != nil {
			return err
		}
		return complete(ctx, tx, out)
	})
	if err != nil {
		return Resource{}, err
	}
	return out[0], nil
}

// complete sets what is not in the record.
func complete(ctx context.Context, tx *db.Tx, rows []Resource) error {
	ids, counts := make([]string, len(rows)), map[string]int64{}
	for i := range rows {
		ids[i] = rows[i].ID
	}
	if err := countChildren(ctx, tx, visibleTo(ctx), ids, counts); err != nil {
		return err
	}
	issued, err := validIdentifiers(ctx, tx, ids)
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].Children += counts[rows[i].ID]
		rows[i].Identifier = issued[rows[i].ID]
	}
	return nil
}

// Delete deletes a resource with nothing below it and revokes its identifier;
// version 0 deletes whichever version. It returns fault.Invalid,
// fault.NotFound, fault.Denied, and fault.Conflict if something is below it or
// belongs to it, or for another version.
func (s *Service) Delete(ctx context.Context, id string, version int64) error {
	var c core.Check
	if checkRef(&c, "resource_id", id); c.Err() != nil {
		return c.Err()
	}
	if _, _, view := viewed(id); view {
		return viewFault("resource_id", id)
	}
	see := visibleTo(ctx)
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := getRecord(ctx, tx, id)
		if err != nil {
			return err
		}
		if r == nil || !see.sees(r.TenantID) {
			return noResource(id)
		}
		if !see.all && r.TenantID == "" {
			return fault.New(fault.Denied, "resource %s belongs to everyone; only who sees all tenants may delete it", id)
		}
		if err := versionFault(r, version); err != nil {
			return err
		}
		if err := unreferenced(ctx, tx, r); err != nil {
			return err
		}
		if err := revokeOf(ctx, tx, id, "the resource was deleted"); err != nil {
			return err
		}
		if err := emitChanged(ctx, tx); err != nil {
			return err
		}
		return deleteRecord(ctx, tx, r)
	})
	if err == nil {
		s.log.Info("resource deleted", "resource_id", id)
	}
	return err
}

func unreferenced(ctx context.Context, tx *db.Tx, r *record) error {
	counts := map[string]int64{}
	if err := countChildren(ctx, tx, visible{all: true}, []string{r.ID}, counts); err != nil {
		return err
	}
	if n := counts[r.ID]; n > 0 {
		return fault.New(fault.Conflict, "resource %s has %d resources below it; delete or move them first", r.ID, n)
	}
	if r.Type != typePlatform {
		return nil
	}
	var n int64
	if _, err := tx.Get(ctx, `SELECT COUNT(*) FROM resources WHERE platform_id = $1 AND platform_id <> ''`, []any{r.ID}, &n); err != nil {
		return fmt.Errorf("count resources of platform %s: %w", r.ID, err)
	}
	if n > 0 {
		return fault.New(fault.Conflict, "%d resources belong to platform %s; give them another one first", n, r.ID)
	}
	return nil
}

// Move puts a resource or a center below another one, "" for the top, with
// all that is below it; owners that followed from the old place follow from
// the new one. It returns fault.Invalid with path "parent_id" for a place
// that cannot be, fault.NotFound and fault.Denied.
func (s *Service) Move(ctx context.Context, id, parentID string) (Resource, error) {
	var c core.Check
	checkRef(&c, "resource_id", id)
	if parentID != "" {
		checkRef(&c, "parent_id", parentID)
	}
	if err := c.Err(); err != nil {
		return Resource{}, err
	}
	centerID, node, view := viewed(id)
	if node != "" {
		return Resource{}, viewFault("resource_id", id)
	}
	old, err := s.Get(ctx, id)
	if err != nil {
		return Resource{}, err
	}
	old.ParentID = parentID
	world, err := s.survey(ctx, []Resource{old})
	if err != nil {
		return Resource{}, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if view {
			return s.moveCenter(ctx, tx, world, centerID, parentID)
		}
		r, err := getRecord(ctx, tx, id)
		if err != nil {
			return err
		}
		if r == nil {
			return noResource(id)
		}
		next, err := r.open()
		if err != nil {
			return err
		}
		next.ParentID, next.Version = parentID, 0
		p, err := s.plan(ctx, tx, world, []Resource{next})
		if err != nil {
			return err
		}
		var c core.Check
		for _, v := range p.results[0].Violations {
			c.Add(v.Field, "%s", v.Problem)
		}
		if err := c.Err(); err != nil {
			return err
		}
		return p.write(ctx)
	})
	if err != nil {
		return Resource{}, err
	}
	s.log.Info("resource moved", "resource_id", id, "parent_id", parentID)
	return s.Get(ctx, id)
}

func viewFault(path, id string) error {
	return fault.Fields(fault.Field{Path: path, Problem: id + " is recorded by what joins the network and cannot be changed here"})
}
