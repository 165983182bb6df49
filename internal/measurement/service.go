package measurement

import (
	"cmp"
	"context"
	"embed"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/registry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Deps are the components below.
type Deps struct {
	Bus       *bus.Bus
	Identity  *identity.Service
	Registry  *registry.Service
	Inventory *inventory.Service
	Monitor   *monitor.Service
	Jobs      *jobs.Service
}

// Service measures centers. It is safe for concurrent use.
type Service struct {
	Deps

	db  *db.DB
	log *slog.Logger

	mu sync.Mutex // guards watched

	watched map[string]bool // jobs of open runs

	settles time.Duration // see the constant
}

// New brings the tables up to date and returns the service, ready for calls.
// Its loop is Run.
func New(ctx context.Context, d *db.DB, deps Deps, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "measurement", migrations); err != nil {
		return nil, err
	}
	return &Service{Deps: deps, db: d, log: log.With("component", "measurement"), watched: map[string]bool{}, settles: settles}, nil
}

// itself is who submits the jobs: nobody's key, in the platform's own tenant.
func itself(ctx context.Context) context.Context {
	return core.WithAudit(core.WithCaller(ctx, core.Caller{UserID: "measurement", UserName: "Measurement", TenantID: identity.PlatformTenant, AllTenants: true}), nil)
}

// Start starts the benchmark at a center. The same request again returns the
// first one's run. It returns fault.Invalid; fault.NotFound if there is no such
// center; fault.Conflict while another run of the center is open, and for a
// request ID that another request had; fault.Unimplemented for a node or an
// architecture that cannot be chosen; fault.Unavailable for a build without
// the benchmark, or a center that is not there.
func (s *Service) Start(ctx context.Context, q Request) (Run, error) {
	if err := q.check(); err != nil {
		return Run{}, err
	}
	if q.RequestID != "" {
		if r, found, err := s.repeated(ctx, q); err != nil || found {
			return r, err
		}
	}
	r, err := s.prepare(ctx, q)
	if err != nil {
		return Run{}, err
	}
	if c := core.CallerFrom(ctx); r.RequestedBy == "" {
		r.RequestedBy = c.UserID
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		r.CreatedAt = tx.Now
		if err := mayBegin(ctx, tx, q); err != nil {
			return err
		}
		made, err := insertRun(ctx, tx, &r, q.RequestID)
		if err != nil {
			return err
		}
		if !made {
			return fault.New(fault.Conflict, "center %s is being measured; `yunhe measurement list --center %s` shows the run", q.CenterID, q.CenterID)
		}
		if err := s.Identity.AuditTx(ctx, tx, r.ID); err != nil {
			return err
		}
		return tx.Emit(ctx, "measurement.changed", []byte(r.ID))
	})
	if err != nil && q.RequestID != "" && fault.KindOf(err) == fault.Conflict { // the same at the same time
		if r, found, rerr := s.repeated(ctx, q); rerr == nil && found {
			return r, nil
		}
	}
	if err != nil {
		return Run{}, err
	}
	// The loop would do it too; this way the answer has the job's ID.
	if err := s.submit(ctx, &r); err != nil {
		s.log.Warn("job of a benchmark not submitted", "run_id", r.ID, "error", err)
	}
	return s.Get(ctx, r.ID)
}

// repeated finds the run of a request that came before.
func (s *Service) repeated(ctx context.Context, q Request) (r Run, found bool, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		rows, err := readRuns(ctx, tx, `WHERE request_id = $1`, q.RequestID)
		if err != nil || len(rows) == 0 {
			return err
		}
		if r, found = rows[0], true; r.CenterID != q.CenterID || r.Scope != q.Scope || q.SpecID != "" && q.SpecID != r.SpecID || q.ImageID != "" && q.ImageID != r.ImageID {
			return fault.New(fault.Conflict, "request %q was another one: run %s of center %s", q.RequestID, r.ID, r.CenterID)
		}
		return nil
	})
	return r, found, err
}

// prepare chooses what a run runs on.
func (s *Service) prepare(ctx context.Context, q Request) (Run, error) {
	r := Run{ID: core.NewID("mrn"), CenterID: q.CenterID, Scope: q.Scope, Node: q.Node, State: Waiting}
	if q.atOnce > 0 {
		r.ScheduleNode = q.Node
	}
	snap, err := s.Registry.Snapshot(ctx)
	if err != nil {
		return r, err
	}
	i := slices.IndexFunc(snap.Centers, func(k *registry.Center) bool { return k.ID == q.CenterID })
	if i < 0 {
		return r, fault.New(fault.NotFound, "there is no center %s", q.CenterID)
	}
	k := snap.Centers[i]
	if k.Status == registry.Unavailable {
		return r, fault.New(fault.Unavailable, "center %s is not available: it cannot be measured now", k.ID)
	}
	if q.Node == "" {
		r.Architecture, err = s.nodesFit(ctx, q.CenterID)
	} else {
		k, r.Architecture, err = s.nodeFits(ctx, k, q.Node)
	}
	if err != nil {
		return r, err
	}
	if _, err := program(r.Scope, r.Architecture); err != nil {
		return r, err
	}
	if r.SpecID = q.SpecID; r.SpecID == "" {
		if r.SpecID = chooseSpec(k, snap.Specs, q.Scope == Devices); r.SpecID == "" {
			return r, fault.New(fault.Conflict, "center %s offers no specification a benchmark could run on; offer one with `yunhe spec offer`", k.ID)
		}
	}
	if r.ImageID = q.ImageID; r.ImageID == "" {
		if r.ImageID = chooseImage(k, snap.Images, r.SpecID); r.ImageID == "" {
			return r, fault.New(fault.Conflict, "center %s has no image that fits specification %s; name one", k.ID, r.SpecID)
		}
	}
	var c core.Check
	if spec := snap.Specs[r.SpecID]; spec == nil {
		c.Add("resource_spec_id", "there is no resource specification %q", r.SpecID)
	} else if _, offered := k.Offers[r.SpecID]; !offered {
		c.Add("resource_spec_id", "center %s does not offer %s", k.ID, r.SpecID)
	}
	if m := snap.Images[r.ImageID]; m == nil {
		c.Add("image_id", "there is no image %q", r.ImageID)
	} else if !k.Images[r.ImageID] {
		c.Add("image_id", "image %s is not at center %s", r.ImageID, k.ID)
	} else if len(m.Specs) > 0 && !slices.Contains(m.Specs, r.SpecID) {
		c.Add("image_id", "image %s fits the specifications %s only", r.ImageID, strings.Join(m.Specs, ", "))
	}
	if err := c.Err(); err != nil || q.atOnce == 0 {
		return r, err
	}
	for _, name := range slices.Sorted(keys(snap.Specs[r.SpecID].Quantity)) {
		if need, free := snap.Specs[r.SpecID].Quantity[name], k.Free(name); need > free {
			return r, fault.New(fault.Exhausted, "specification %s needs %s of %s, center %s has %s free", r.SpecID, core.FormatQuantity(name, need), name, k.ID,
				core.FormatQuantity(name, free))
		}
	}
	return r, nil
}

// nodeFits returns the center as if it had this node only, and the node's
// architecture.
func (s *Service) nodeFits(ctx context.Context, k *registry.Center, name string) (*registry.Center, string, error) {
	n, err := s.Registry.GetNode(ctx, k.ID, name)
	if err != nil {
		return nil, "", err
	}
	if _, err := s.several(ctx, k.ID); err != nil {
		return nil, "", err
	}
	only := *k
	if len(n.Allocatable) > 0 {
		only.Total, only.Used = core.Quantities{}, core.Quantities{}
		for resource, total := range k.Total {
			if has, ok := n.Allocatable[resource]; ok || isAccelerator(resource) {
				total = min(total, has)
			}
			only.Total[resource], only.Used[resource] = total, total-min(total, k.Free(resource))
		}
	}
	switch {
	case n.Architecture == "":
		return &only, architectures[0], nil
	case !slices.Contains(architectures, n.Architecture):
		return nil, "", fault.New(fault.Unimplemented, "the benchmark is built for %s, and node %s of center %s is of %s", strings.Join(architectures, " and "), clip(name), k.ID,
			clip(n.Architecture))
	}
	return &only, n.Architecture, nil
}

// nodesFit returns the architecture of most of a center's nodes. Centers that
// report no nodes are taken for amd64; the job says so if they are not.
func (s *Service) nodesFit(ctx context.Context, centerID string) (string, error) {
	nodes, _, err := s.Registry.ListNodes(ctx, registry.NodeFilter{CenterID: centerID}, maxNodes, "")
	if err != nil {
		return "", err
	}
	count := map[string]int{}
	for _, n := range nodes {
		if n.Architecture != "" {
			count[n.Architecture]++
		}
	}
	most := ""
	for _, a := range architectures {
		if count[a] > count[most] {
			most = a
		}
		delete(count, a)
	}
	if most == "" && len(count) > 0 {
		return "", fault.New(fault.Unimplemented, "the benchmark is built for %s, and the nodes of center %s are of another architecture", strings.Join(architectures, " and "), centerID)
	}
	return cmp.Or(most, architectures[0]), nil
}

// chooseSpec returns the specification of the center that gives most of the
// machine and fits into what is free, or into what there is: with accelerators,
// most of those, or without.
func chooseSpec(k *registry.Center, specs map[string]*registry.Spec, devices bool) string {
	type choice struct {
		fits    bool
		devices int64
		cpu     int64
	}
	best, at := "", choice{}
	for _, id := range slices.Sorted(keys(k.Offers)) {
		spec := specs[id]
		if spec == nil {
			continue
		}
		c, possible := choice{fits: true, cpu: spec.Quantity[core.CPU]}, true
		for name, n := range spec.Quantity {
			possible = possible && n <= k.Total[name]
			c.fits = c.fits && n <= k.Free(name)
			if isAccelerator(name) {
				c.devices += n
			}
		}
		if !possible || c.devices > 0 && !devices {
			continue
		}
		better := best == ""
		switch {
		case better:
		case c.fits != at.fits:
			better = c.fits
		case c.devices != at.devices:
			better = c.devices > at.devices
		default:
			better = c.cpu > at.cpu
		}
		if better {
			best, at = id, c
		}
	}
	return best
}

// chooseImage prefers the machine's own system, where a gateway has it.
func chooseImage(k *registry.Center, images map[string]*registry.Image, specID string) string {
	best := ""
	for _, id := range slices.Sorted(keys(k.Images)) {
		if m := images[id]; m != nil && k.Images[id] && (len(m.Specs) == 0 || slices.Contains(m.Specs, specID)) && (best == "" || id == "host") {
			best = id
		}
	}
	return best
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// Get returns a run. It returns fault.NotFound.
func (s *Service) Get(ctx context.Context, id string) (r Run, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		r, err = getRun(ctx, tx, id)
		return err
	})
	return r, err
}

// List returns a page of runs, newest first, and the token of the next page. It
// returns fault.Invalid.
func (s *Service) List(ctx context.Context, centerID string, size int32, token string) (rows []Run, next string, err error) {
	n, err := core.PageSize(size, 50)
	if err != nil {
		return nil, "", err
	}
	var c core.Check
	if centerID != "" {
		c.ID("ai_center_id", centerID)
	}
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	before := "\x7f" // after every ID
	if key != nil {
		before = key[0]
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		if centerID == "" {
			rows, err = readRuns(ctx, tx, `WHERE run_id < $1 ORDER BY run_id DESC LIMIT $2`, before, n+1)
		} else {
			rows, err = readRuns(ctx, tx, `WHERE ai_center_id = $3 AND run_id < $1 ORDER BY run_id DESC LIMIT $2`, before, n+1, centerID)
		}
		return err
	})
	if err == nil && len(rows) > n {
		rows = rows[:n]
		next = core.PageToken(rows[n-1].ID)
	}
	return rows, next, err
}

// Decide accepts the factor of a run, which makes it the center's, or rejects
// it. It returns fault.NotFound, and fault.Conflict for a run that has no factor,
// one that a later run has replaced, and the rejection of one in use.
func (s *Service) Decide(ctx context.Context, id string, accept bool) (r Run, err error) {
	by := core.CallerFrom(ctx).UserID
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if r, err = getRun(ctx, tx, id); err != nil {
			return err
		}
		last, found, err := lastWell(ctx, tx, r.CenterID, r.Scope)
		switch {
		case err != nil:
			return err
		case r.Decision == 0:
			return fault.New(fault.Conflict, "run %s has no factor to decide about", id)
		case accept && r.Decision == Accepted, !accept && r.Decision == Rejected:
			return nil // the same again
		case r.Decision == Replaced, found && last.ID != id:
			return fault.New(fault.Conflict, "a later run of center %s, %s, has replaced this one", r.CenterID, last.ID)
		case !accept && r.Decision == Accepted:
			return fault.New(fault.Conflict, "the factor of run %s is in use; measure again or state another one for center %s", id, r.CenterID)
		}
		r.Decision, r.DecidedBy = Rejected, by
		if accept {
			if _, err := s.apply(ctx, tx, &r, true); err != nil {
				return err
			}
			r.Decision = Accepted
		}
		if _, err := saveRun(ctx, tx, &r, Succeeded); err != nil {
			return err
		}
		return s.Identity.AuditTx(ctx, tx, id)
	})
	if err != nil {
		return Run{}, err
	}
	s.log.Info("factor decided", "run_id", id, "ai_center_id", r.CenterID, "accepted", accept)
	return r, nil
}

// Settings returns the settings.
func (s *Service) Settings(ctx context.Context) (out Settings, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = readSettings(ctx, tx)
		return err
	})
	return out, err
}

// SetSettings replaces the settings whose version is given. It returns
// fault.Invalid, and fault.Conflict if they were changed meanwhile.
func (s *Service) SetSettings(ctx context.Context, want Settings) (out Settings, err error) {
	if err := want.check(); err != nil {
		return Settings{}, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		ok, err := writeSettings(ctx, tx, want)
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.Conflict, "the settings were changed meanwhile: read them again")
		}
		if err := s.Identity.AuditTx(ctx, tx, "measurement settings"); err != nil {
			return err
		}
		out, err = readSettings(ctx, tx)
		return err
	})
	return out, err
}
