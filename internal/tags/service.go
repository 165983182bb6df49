package tags

import (
	"context"
	"embed"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Service keeps tags. It is safe for concurrent use. Who calls is read from
// the context ([core.CallerFrom]).
type Service struct {
	db      *db.DB
	reg     *registry.Service
	res     Resources // nil: none are registered
	log     *slog.Logger
	changes atomic.Uint64 // committed changes by this process

	mu sync.Mutex // guards the fields below

	compiled  map[string]*rule // by rule ID
	placement *placement
	places    map[string]string // parents of centers
	placesAt  time.Time
	round     time.Time // when rules were last looked at
}

// New brings the tables up to date and returns the service, ready for calls.
// The loop is Run.
func New(ctx context.Context, d *db.DB, reg *registry.Service, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "tags", migrations); err != nil {
		return nil, err
	}
	return &Service{db: d, reg: reg, log: log.With("component", "tags"), compiled: map[string]*rule{}}, nil
}

// SetResources says what knows the registered resources. It is called before
// the first call, if at all.
func (s *Service) SetResources(r Resources) { s.res = r }

// changed counts a change in tx, for this process and others.
func (s *Service) changed(ctx context.Context, tx *db.Tx, placement bool) error {
	if err := bumpVersion(ctx, tx, placement); err != nil {
		return err
	}
	tx.AfterCommit(func() { s.changes.Add(1) })
	return nil
}

// mayWrite reports why the caller may not set values of d on o, nil if it may.
func mayWrite(ctx context.Context, d *Definition, o *object) error {
	c := core.CallerFrom(ctx)
	switch {
	case d.Setter == RulesOnly:
		return fault.New(fault.Denied, "tag %s is set by rules only", d.Key)
	case d.Setter == Administrators && !c.Can("identity.write"):
		return fault.New(fault.Denied, "tag %s is set by administrators only", d.Key)
	case o != nil && !c.AllTenants && !(o.kind == Resource && o.tenant != "" && c.Sees(o.tenant)):
		return fault.New(fault.Denied, "%s belongs to everyone; only who sees all tenants may change its tags", o.ref)
	}
	return nil
}

// actor is who or what makes a change.
type actor struct {
	source  Source
	origin  string
	batchID string
	reason  string
}

func person(ctx context.Context, batchID, reason string) actor {
	return actor{Person, core.CallerFrom(ctx).UserID, batchID, reason}
}
