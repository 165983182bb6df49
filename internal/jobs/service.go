package jobs

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/network"
	"yunhe.dev/yunhe/internal/objects"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/standing"
	"yunhe.dev/yunhe/internal/volumes"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Service owns jobs and their attempts.
type Service struct {
	db       *db.DB
	bus      *bus.Bus
	ids      *identity.Service
	reg      *registry.Service
	ad       *adapters.Service
	sched    *scheduler.Service
	meter    *metering.Service
	logs     *objects.Chunks
	allocs   Allocations      // nil: there are none
	reserved Reservations     // nil: there are none
	vols     *volumes.Service // nil: there are none
	pool     Pool             // nil: there is none
	network  *network.Service // nil: nobody knows where users are
	log      *slog.Logger
	hub      *hub
	url      string // as runs reach the API; "": not known
	key      []byte // signs links to logs

	gather *gatherer
	fresh  fresh
	crowd  crowd
	offers offers
	// lendSoon says that there is something for Lend.
	lendSoon chan struct{}

	stand *standing.Service

	mu          sync.Mutex // guards the fields below
	issued      map[string]time.Time
	issuedLimit int             // notes at which the old ones are dropped
	gangs       map[string]gang // who was there when somebody last asked
}

// New returns the service; its loops are Watch and Purge.
func New(ctx context.Context, d *db.DB, b *bus.Bus, ids *identity.Service, reg *registry.Service, ad *adapters.Service, sched *scheduler.Service,
	meter *metering.Service, stand *standing.Service, logs *objects.Chunks, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "jobs", migrations); err != nil {
		return nil, err
	}
	key, err := signingKey(ctx, d)
	if err != nil {
		return nil, err
	}
	s := &Service{db: d, bus: b, ids: ids, reg: reg, ad: ad, sched: sched, meter: meter, stand: stand, logs: logs, log: log.With("component", "jobs"),
		hub: newHub(), key: key, issued: map[string]time.Time{}, issuedLimit: minIssued, gangs: map[string]gang{}, lendSoon: make(chan struct{}, 1)}
	s.gather = newGatherer(s.storeSubmissions)
	return s, nil
}

// Submit stores jobs, all or none, and returns their IDs in the same order. It
// returns when they are durable. The same requestID with the same jobs returns
// the first submission's IDs; with others fault.Conflict.
func (s *Service) Submit(ctx context.Context, requestID string, specs []*jobsv1.JobSpec, batch bool) ([]string, error) {
	ids, _, err := s.submit(ctx, requestID, specs, batch)
	return ids, err
}

// submit is Submit; it returns the new records too, none if the request was
// known.
func (s *Service) submit(ctx context.Context, requestID string, specs []*jobsv1.JobSpec, batch bool) (ids []string, made []*record, err error) {
	if err := s.checkSpecs(ctx, requestID, specs, batch); err != nil {
		return nil, nil, err
	}
	caller := core.CallerFrom(ctx)
	x := &submission{ctx: ctx, id: requestID, records: make([]*record, len(specs))}
	digest := sha256.New()
	for i, j := range specs {
		r, err := newRecord(caller, j)
		if err != nil {
			return nil, nil, err
		}
		fmt.Fprintf(digest, "%d:", len(r.rawSpec))
		digest.Write(r.rawSpec)
		x.records[i] = r
	}
	x.digest = hex.EncodeToString(digest.Sum(nil))
	s.gather.do(x)
	switch {
	case x.err != nil:
		return nil, nil, x.err
	case x.made:
		made = x.records
	}
	return x.ids, made, nil
}

func (s *Service) checkSpecs(ctx context.Context, requestID string, specs []*jobsv1.JobSpec, batch bool) error {
	prefix := func(i int) string {
		if batch {
			return fmt.Sprintf("jobs[%d].", i)
		}
		return "job."
	}
	var c core.Check
	c.Text("request_id", requestID, false, 0, 65)
	if len(specs) < 1 || len(specs) > maxBatch {
		c.Add("jobs", "must be 1 to %d jobs, got %d", maxBatch, len(specs))
		return c.Err()
	}
	cat, err := s.checkCatalog(ctx, &c, specs, prefix)
	if err != nil {
		return err
	}
	for i, j := range specs {
		if j == nil {
			continue
		}
		prefix := prefix(i)
		if err := s.placeVolumes(ctx, &c, prefix, j); err != nil {
			return err
		}
		if err := s.checkNodes(ctx, &c, prefix, j); err != nil {
			return err
		}
		if err := s.checkPool(ctx, &c, prefix, j); err != nil {
			return err
		}
		if err := s.placeInputs(ctx, &c, prefix, j); err != nil {
			return err
		}
		if err := s.checkOrigin(ctx, &c, prefix, j); err != nil {
			return err
		}
		if err := s.checkAllocation(ctx, &c, prefix, j, cat); err != nil {
			return err
		}
		if err := s.checkNear(ctx, &c, prefix, j); err != nil {
			return err
		}
		if err := s.checkRulesOf(ctx, &c, prefix, j); err != nil {
			return err
		}
		if err := s.sched.CheckWeights(j.PolicyWeights); err != nil {
			c.Add(prefix+"policy_weights", "%s", err)
		}
	}
	return c.Err()
}

// checkCatalog checks specifications of jobs against the catalog, which it
// returns. What the one at hand refuses is checked against a fresh one: another
// process may have stored what it lacks.
func (s *Service) checkCatalog(ctx context.Context, c *core.Check, specs []*jobsv1.JobSpec, prefix func(i int) string) (*registry.Catalog, error) {
	check := func(c *core.Check, cat *registry.Catalog) {
		for i, j := range specs {
			if j == nil {
				c.Add(strings.TrimSuffix(prefix(i), "."), "is required")
				continue
			}
			validate(c, prefix(i), j, cat)
		}
	}
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	var first core.Check
	if check(&first, cat); first.Err() == nil {
		return cat, nil
	}
	cat, err = s.reg.Fresh(ctx)
	if err == nil {
		check(c, cat)
	}
	return cat, err
}

// checkNear checks that there is the job that another shall be near to.
func (s *Service) checkNear(ctx context.Context, c *core.Check, prefix string, j *jobsv1.JobSpec) error {
	if j.NearJob == "" {
		return nil
	}
	return s.db.View(ctx, func(tx *db.Tx) error {
		r, err := loadJob(ctx, tx, j.NearJob)
		if err == nil && (r == nil || r.tenant != core.CallerFrom(ctx).TenantID) {
			c.Add(prefix+"near_job", "there is no job %q of this tenant", clip(j.NearJob))
		}
		return err
	})
}

// newRecord makes the record of a valid specification.
func newRecord(caller core.Caller, j *jobsv1.JobSpec) (*record, error) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("encode job: %w", err)
	}
	r := &record{id: core.NewID("job"), tenant: caller.TenantID, user: caller.UserID, userName: caller.UserName, name: j.Name,
		spec: j, rawSpec: raw, priority: int64(j.Priority), state: queued, version: 1}
	for _, t := range j.Tasks {
		r.total += int64(t.ReplicaNumber)
	}
	r.unplaced = r.total
	return r, nil
}

// change is one entry of the event job.changed.
type change struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	State  string `json:"state"`
	Pool   bool   `json:"pool,omitempty"` // it wants shares of the accelerator pool
}

// changed appends the event that tells watchers and other processes.
func (s *Service) changed(ctx context.Context, tx *db.Tx, rs ...*record) error {
	list := make([]change, len(rs))
	for i, r := range rs {
		list[i] = change{r.id, r.tenant, StateName(r.state), slices.ContainsFunc(r.spec.Tasks, wantsPool)}
	}
	payload, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("event job.changed: %w", err)
	}
	return tx.Emit(ctx, "job.changed", payload)
}

// Stop stops a job; one that has ended is returned as it is.
func (s *Service) Stop(ctx context.Context, id, why string) (*jobsv1.Job, error) {
	var c core.Check
	c.Text("reason", why, false, 0, 128)
	if err := c.Err(); err != nil {
		return nil, err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := visible(ctx, tx, id)
		if err != nil {
			return err
		}
		if ended(r.state) || r.outcome != 0 {
			return nil
		}
		if why == "" {
			why = "stopped by " + core.CallerFrom(ctx).UserID
		}
		if err := s.conclude(ctx, tx, r, stopped, "stopped", why, db.Micros(tx.Now)); err != nil {
			return err
		}
		if err := saveJob(ctx, tx, r); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, id); err != nil {
			return err
		}
		return s.changed(ctx, tx, r)
	})
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, id)
}

// conclude fixes a job's outcome at a time: what waits never starts, what is
// active is told to stop.
func (s *Service) conclude(ctx context.Context, tx *db.Tx, r *record, outcome State, reason, message string, at int64) error {
	r.outcome, r.reason, r.message, r.pauseAsked = outcome, reason, message, false
	if r.unplaced > 0 {
		r.lastEnd = max(r.lastEnd, at)
	}
	r.stopped += r.unplaced
	r.unplaced = 0
	if r.active == 0 {
		return nil
	}
	as, err := queryAttempts(ctx, tx, `job_id = $1 AND ended_at = 0`, r.id)
	if err != nil {
		return err
	}
	byCenter := map[string][]string{}
	for _, a := range as {
		a.stopAsked, a.pauseAsked = true, false
		if err := saveAttempt(ctx, tx, a); err != nil {
			return err
		}
		byCenter[a.center] = append(byCenter[a.center], a.id)
	}
	tx.AfterCommit(func() {
		for center, ids := range byCenter {
			s.ad.Stop(center, ids)
		}
	})
	return nil
}

// Update changes description or priority of a job that has not ended.
func (s *Service) Update(ctx context.Context, id string, desc *string, priority *int32) (*jobsv1.Job, error) {
	var c core.Check
	if desc != nil {
		c.Text("desc", *desc, false, 0, 128)
	}
	if priority != nil {
		c.Range("priority", int64(*priority), -100, 100)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := visible(ctx, tx, id)
		if err != nil {
			return err
		}
		if ended(r.state) {
			return fault.New(fault.Conflict, "job %s has ended and cannot be changed", id)
		}
		if desc != nil {
			r.spec.Desc = *desc
		}
		if priority != nil {
			r.spec.Priority, r.priority = *priority, int64(*priority)
			r.waitingSince = db.Micros(tx.Now) // the queue reads it again
			if err := s.repooled(ctx, tx, r); err != nil {
				return err
			}
		}
		if r.rawSpec, err = (proto.MarshalOptions{Deterministic: true}).Marshal(r.spec); err != nil {
			return fmt.Errorf("encode job: %w", err)
		}
		if _, err := tx.Exec(ctx, `UPDATE jobs SET spec = $2 WHERE job_id = $1`, id, r.rawSpec); err != nil {
			return err
		}
		if err := saveJob(ctx, tx, r); err != nil {
			return err
		}
		return s.changed(ctx, tx, r)
	})
	if err != nil {
		return nil, err
	}
	s.sched.Wake()
	return s.Get(ctx, id)
}

// Delete removes the record of a job that has ended, with its logs and
// decisions; fault.Conflict while it has not. Usage records stay.
func (s *Service) Delete(ctx context.Context, id string) error {
	var keys []string
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := visible(ctx, tx, id)
		if err != nil {
			return err
		}
		if !ended(r.state) {
			return fault.New(fault.Conflict, "job %s has not ended; stop it first", id)
		}
		as, err := jobAttempts(ctx, tx, id)
		if err != nil {
			return err
		}
		keys = keys[:0]
		for _, a := range as {
			keys = append(keys, adapters.LogKey(a.id))
		}
		if err := s.sched.ForgetTx(ctx, tx, id); err != nil {
			return err
		}
		for _, q := range []string{`DELETE FROM attempts WHERE job_id = $1`, `DELETE FROM job_groups WHERE job_id = $1`, `DELETE FROM jobs WHERE job_id = $1`} {
			if _, err := tx.Exec(ctx, q, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := s.logs.Delete(ctx, k); err != nil && fault.KindOf(err) != fault.NotFound {
			s.log.Warn("log not deleted", "key", k, "error", err)
		}
	}
	return nil
}

// JobTenant returns whose job it is; ok is false if there is none.
func (s *Service) JobTenant(ctx context.Context, id string) (tenant string, ok bool, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		ok, err = tx.Get(ctx, `SELECT tenant_id FROM jobs WHERE job_id = $1`, []any{id}, &tenant)
		return err
	})
	return tenant, ok, err
}

// InUse reports whether a job that has not ended names the specification or
// image or volume (kind "spec", "image" or "volume").
func (s *Service) InUse(ctx context.Context, tx *db.Tx, kind, id string) (bool, error) {
	used := false
	err := tx.Query(ctx, `SELECT `+jobColumns+` FROM jobs WHERE ended_at = 0`, nil, func(row db.Row) error {
		r, err := scanJob(row)
		if err != nil {
			return err
		}
		for _, t := range r.spec.Tasks {
			used = used || kind == "spec" && t.ResourceSpecId == id || kind == "image" && t.ImageId == id || kind == "volume" && namesVolume(t, id)
		}
		return nil
	})
	return used, err
}

// Purge forgets request IDs after a week, until ctx ends.
func (s *Service) Purge(ctx context.Context) error {
	const keep = 7 * 24 * time.Hour
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		core.Round(ctx, time.Hour)
		err := s.db.Tx(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM requests WHERE at < $1`, db.Micros(tx.Now.Add(-keep)))
			return err
		})
		if err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("old request IDs not deleted", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// message builds what a center is told about an attempt.
func (s *Service) message(r *record, a *attempt) *adapterv1.Attempt {
	t := r.spec.Tasks[a.task]
	env := make(map[string]string, len(t.Env)+7)
	for k, v := range t.Env {
		env[k] = v
	}
	env["YUNHE_JOB_ID"], env["YUNHE_JOB_NAME"], env["YUNHE_TASK_NAME"] = r.id, r.name, t.Name
	env["YUNHE_TASK_INDEX"], env["YUNHE_REPLICA_INDEX"] = fmt.Sprint(a.task), fmt.Sprint(a.replica)
	env["YUNHE_REPLICA_COUNT"], env["YUNHE_ATTEMPT"] = fmt.Sprint(t.ReplicaNumber), fmt.Sprint(a.number)
	env["YUNHE_CENTER_ID"] = a.center
	if r.spec.Gang && t.Network && s.url != "" {
		env[gangVariable] = s.gangLink(r.id, a.id)
	}
	m := &adapterv1.Attempt{AttemptId: a.id, JobId: r.id, Name: t.Name, Command: t.Command, ImageId: t.ImageId, ResourcespecId: a.spec,
		Resources: a.resources, Env: env, TimeoutSeconds: t.TimeoutSeconds, Network: t.Network, StopGraceSeconds: t.StopGraceSeconds, ScratchBytes: scratch(t), Seen: a.started > 0,
		Priority: r.priority, TenantId: r.tenant, UserName: r.userName}
	if m.StopGraceSeconds == 0 {
		m.StopGraceSeconds = defaultGrace
	}
	m.Volumes, m.Node = mounts(t), t.GetConstraints().GetNode()
	if t.Pool != nil {
		m.Pool = &adapterv1.PoolShares{Api: t.Pool.Api, Local: t.Pool.Local}
	}
	if a.onNodes {
		m.AllocationId = a.allocation
	}
	for _, f := range t.Files {
		m.Files = append(m.Files, &adapterv1.File{Path: f.Path, Content: f.Content, Executable: f.Executable})
	}
	return m
}
