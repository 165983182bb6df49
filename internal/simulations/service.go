package simulations

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/objects"
	"yunhe.dev/yunhe/internal/policies"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/sim"
)

//go:embed migrations/*.sql
var migrations embed.FS

// subject of the event that a simulation changed; its payload is a list of IDs.
const subject = "simulation.changed"

// Service keeps and plays simulations. It is safe for concurrent use.
type Service struct {
	db    *db.DB
	ids   *identity.Service
	pol   *policies.Service
	store objects.Store
	log   *slog.Logger
	feed  *bus.Feed
	wake  chan struct{}
}

// New returns the service; its loops are Run and Watch.
func New(ctx context.Context, d *db.DB, b *bus.Bus, ids *identity.Service, pol *policies.Service, store objects.Store, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "simulations", migrations); err != nil {
		return nil, err
	}
	log = log.With("component", "simulations")
	return &Service{db: d, ids: ids, pol: pol, store: store, log: log, feed: bus.NewFeed(b, subject, log), wake: make(chan struct{}, 1)}, nil
}

// Watch hears of what other processes change, until ctx ends.
func (s *Service) Watch(ctx context.Context) error { return s.feed.Run(ctx) }

func key(id, name string) string { return "simulations/" + id + "/" + name }

// Start checks and stores a simulation of the caller's tenant. Digest tells
// requests of one ID apart. It returns fault.Invalid with all that is wrong,
// fault.NotFound for a policy, fault.Exhausted, fault.Conflict and fault.Denied.
func (s *Service) Start(ctx context.Context, x Spec, requestID, digest string) (*Simulation, error) {
	var c core.Check
	c.Text("request_id", requestID, false, 64, 0)
	if x.check(&c); c.Err() != nil {
		return nil, c.Err()
	}
	caller := core.CallerFrom(ctx)
	if caller.TenantID == "" {
		return nil, fault.New(fault.Denied, "user %s belongs to no tenant, whose the simulation would be", caller.UserID)
	}
	out := &Simulation{ID: core.NewID("simulation"), TenantID: caller.TenantID, UserID: caller.UserID, State: Waiting}
	if known, err := s.asked(ctx, requestID, digest); known != nil || err != nil {
		return known, err
	}
	in, err := s.prepare(ctx, &x, out)
	if err != nil {
		return nil, err
	}
	if x.Seed == 0 {
		x.Seed = 1
	}
	if err := s.resolve(ctx, &x, in); err != nil {
		return nil, err
	}
	out.Spec, out.Places, out.Jobs = x, int64(len(in.Nodes)+len(in.Centers)), int64(len(in.Jobs))
	if err := s.putInput(ctx, out.ID, &x); err != nil {
		return nil, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		for _, l := range []struct {
			where string
			most  int64
			what  string
		}{{`tenant_id = $1 AND state IN (1, 2)`, maxOpen, "have not ended; wait for one, or cancel it"}, {`tenant_id = $1`, maxKept, "are kept; delete one"}} {
			n, err := count(ctx, tx, l.where, out.TenantID)
			if err != nil {
				return err
			}
			if n >= l.most {
				return fault.New(fault.Exhausted, "%d simulations of tenant %s %s", n, out.TenantID, l.what)
			}
		}
		out.CreatedAt, out.Version = tx.Now, 1
		if err := insert(ctx, tx, out, requestID, digest); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, out.ID); err != nil {
			return err
		}
		tx.AfterCommit(s.wakeUp)
		return tell(ctx, tx, out.ID)
	})
	if err != nil {
		s.deleteObjects(context.WithoutCancel(ctx), out.ID)
		if requestID != "" { // it may have been asked twice at once
			if known, e := s.asked(ctx, requestID, digest); known != nil && e == nil {
				return known, nil
			}
		}
		return nil, err
	}
	return out, nil
}

// asked returns the simulation that the same request made before.
func (s *Service) asked(ctx context.Context, requestID, digest string) (out *Simulation, err error) {
	if requestID == "" {
		return nil, nil
	}
	tenant := core.CallerFrom(ctx).TenantID
	err = s.db.View(ctx, func(tx *db.Tx) error {
		var id, before string
		found, err := tx.Get(ctx, `SELECT simulation_id, digest FROM simulations WHERE tenant_id = $1 AND request_id = $2`, []any{tenant, requestID}, &id, &before)
		if err != nil || !found {
			return err
		}
		if before != digest {
			return fault.Wrap(fault.Conflict, fault.Fields(fault.Field{Path: "request_id", Problem: "was used for another request"}), "request_id %q was used for a different request", requestID)
		}
		out, err = find(ctx, tx, id)
		return err
	})
	return out, err
}

func (s *Service) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// prepare reads, records or makes up what is played. What the platform is
// becomes a file.
func (s *Service) prepare(ctx context.Context, x *Spec, out *Simulation) (*sim.Input, error) {
	if x.Source == Platform {
		rec, err := s.record(ctx, x.Since, x.Jobs)
		if err != nil {
			return nil, err
		}
		if len(rec.Jobs) == 0 {
			return nil, fault.Fields(fault.Field{Path: "platform", Problem: "there is no job to play in that time"})
		}
		var file bytes.Buffer
		if err := rec.WriteRecorded(&file); err != nil {
			return nil, fmt.Errorf("write what was recorded: %w", err)
		}
		x.Nodes, x.NodesName = file.Bytes(), "recorded.json"
		out.Message = recordedMessage(rec)
	}
	return x.input()
}

func recordedMessage(r *policies.Recorded) string {
	var parts []string
	if r.Open > 0 {
		parts = append(parts, fmt.Sprintf("%d jobs had not ended when it was recorded: they run as long as is expected of them", r.Open))
	}
	n := 0
	for _, k := range r.LeftOut {
		n += k
	}
	if n > 0 {
		parts = append(parts, fmt.Sprintf("%d were left out", n))
	}
	return strings.Join(parts, "; ")
}

// record takes the platform as the caller may see it.
func (s *Service) record(ctx context.Context, since int64, jobs int) (*policies.Recorded, error) {
	if since == 0 {
		since = defaultDays * 24 * 3600
	}
	if jobs == 0 {
		jobs = defaultJobs
	}
	return s.pol.Record(ctx, s.db.Now().Add(-time.Duration(since)*time.Second), jobs)
}

// Record writes the platform as a file. It returns fault.Invalid.
func (s *Service) Record(ctx context.Context, since int64, jobs int) (*policies.Recorded, []byte, error) {
	var c core.Check
	c.Range("since_seconds", since, 0, maxSince)
	if c.Range("jobs", int64(jobs), 0, policies.MaxRecorded); c.Err() != nil {
		return nil, nil, c.Err()
	}
	rec, err := s.record(ctx, since, jobs)
	if err != nil {
		return nil, nil, err
	}
	var file bytes.Buffer
	if err := rec.WriteRecorded(&file); err != nil {
		return nil, nil, fmt.Errorf("write what was recorded: %w", err)
	}
	return rec, file.Bytes(), nil
}

// input reads what is played from the files of a spec, or makes it up.
func (x *Spec) input() (*sim.Input, error) {
	var in *sim.Input
	if x.Source == Made {
		r, err := sim.ParseRecipe(x.Recipe)
		if err != nil {
			return nil, below("recipe", err)
		}
		if r.Jobs > maxJobs || r.Nodes > maxNodes || r.Centers > maxCenters {
			return nil, fault.Fields(fault.Field{Path: "recipe", Problem: fmt.Sprintf("must make at most %d jobs, %d nodes or %d centers", maxJobs, maxNodes, maxCenters)})
		}
		in = r.Make()
	} else {
		fleet, err := sim.ReadFleet(sim.FormOf(x.NodesName), bytes.NewReader(x.Nodes))
		if err != nil {
			return nil, below("files.nodes", err)
		}
		work := fleet
		if len(x.JobsFile) > 0 {
			if sim.FormOf(x.JobsName) == sim.Steps {
				return nil, fault.Fields(fault.Field{Path: "files.jobs_name", Problem: "must end in csv, yaml or json; traces are played by yunhe sim run"})
			}
			if work, err = sim.ReadJobs(sim.FormOf(x.JobsName), bytes.NewReader(x.JobsFile), nil, true); err != nil {
				return nil, below("files.jobs", err)
			}
		}
		in = &sim.Input{Fleet: fleet.Fleet, Workload: work.Workload, Recorded: fleet.Recorded}
		if len(in.Tenants) == 0 {
			in.Tenants = fleet.Tenants
		}
	}
	at := "files"
	if x.Source != Files {
		at = string(x.Source)
	}
	for _, err := range []error{bounds(in), in.Fleet.Check(), in.Workload.Check()} {
		if err != nil {
			return nil, below(at, err)
		}
	}
	if x.Load > 0 {
		if err := in.Rescale(x.Load); err != nil {
			return nil, below("load", err)
		}
	}
	return in, nil
}

// below says of an input's faults in which field they are.
func below(at string, err error) error {
	var out []fault.Field
	for _, f := range fault.FieldsOf(err) {
		out = append(out, fault.Field{Path: at, Problem: f.Path + ": " + f.Problem})
	}
	if len(out) == 0 && fault.KindOf(err) == fault.Invalid {
		out = append(out, fault.Field{Path: at, Problem: err.Error()})
	}
	if len(out) == 0 {
		return err
	}
	return fault.Fields(out...)
}

// resolve makes of what was asked for what is compared: versions are fixed,
// documents kept, names given, and all of it is known to be right.
func (s *Service) resolve(ctx context.Context, x *Spec, in *sim.Input) error {
	if len(x.Policies) == 0 {
		if x.Policies = []Compare{{InForce: true}}; in.Recorded == nil {
			p, err := sim.ParsePolicies(nil, len(in.Centers) > 0)
			if err != nil {
				return err
			}
			x.Policies = []Compare{{Preset: p[0].Name}}
		}
	}
	for i := range x.Policies {
		p, at := &x.Policies[i], fmt.Sprintf("policies[%d]", i)
		if p.ID != "" {
			r, err := s.pol.Get(ctx, p.ID, p.Version)
			if err != nil {
				return err
			}
			if p.Version == 0 && r.Latest != r.Version.Version {
				if r, err = s.pol.Get(ctx, p.ID, r.Latest); err != nil {
					return err
				}
			}
			p.Version, p.Document = r.Version.Version, &r.Version.Document
		}
		switch {
		case p.InForce:
			p.Name = "in force"
		case p.ID != "":
			p.Name = fmt.Sprintf("%s@%d", p.ID, p.Version)
		case p.Document != nil:
			p.Name = p.Document.ID
		default:
			p.Name = p.Preset
		}
		if p.Preset == "" && len(in.Centers) == 0 {
			return fault.Fields(fault.Field{Path: at, Problem: "is for centers, and there are nodes; name a policy such as best-fit"})
		}
		if p.InForce && x.Source != Platform && in.Recorded == nil {
			return fault.Fields(fault.Field{Path: at + ".in_force", Problem: "goes with the platform, or with a file that was recorded of one"})
		}
		if err := s.tryPolicy(ctx, x, p, in); err != nil {
			return prefixed(at, err)
		}
	}
	if len(x.Queues) == 0 {
		x.Queues = []string{""}
		if in.Recorded != nil {
			x.Queues[0] = in.Recorded.Queue
		}
	}
	for i, q := range x.Queues {
		if _, err := sim.ParseQueue(q); err != nil {
			return below(fmt.Sprintf("queues[%d]", i), err)
		}
	}
	return x.name()
}

// prefixed puts the paths of faults below at.
func prefixed(at string, err error) error {
	fields := fault.FieldsOf(err)
	if len(fields) == 0 {
		return below(at, err)
	}
	out := make([]fault.Field, len(fields))
	for i, f := range fields {
		out[i] = fault.Field{Path: at + "." + f.Path, Problem: f.Problem}
	}
	return fault.Fields(out...)
}

// tryPolicy makes a policy, to see that it can be made.
func (s *Service) tryPolicy(ctx context.Context, x *Spec, p *Compare, in *sim.Input) error {
	_, bench, err := s.policy(ctx, x, p, in)
	if bench != nil {
		bench.Close()
	}
	return err
}

// policy makes what decides; bench is nil for presets.
func (s *Service) policy(ctx context.Context, x *Spec, p *Compare, in *sim.Input) (out sim.Policy, bench *policies.Bench, err error) {
	if p.Preset != "" {
		list, err := sim.ParsePolicies([]string{p.Preset}, len(in.Centers) > 0)
		if err != nil {
			return out, nil, below("preset", err)
		}
		if len(list) > 1 {
			return out, nil, fault.Fields(fault.Field{Path: "preset", Problem: fmt.Sprintf("must be one policy, got %q", p.Preset)})
		}
		return list[0], nil, nil
	}
	rec, set := in.Recorded, place.Presets()[0]
	if rec == nil {
		rec = &sim.Recording{Start: time.Unix(0, 0).UTC()}
	} else if set, err = rec.Set(); err != nil {
		return out, nil, err
	}
	var subject *policies.Subject
	if p.Document != nil {
		subject = &policies.Subject{Document: p.Document}
	}
	switch {
	case x.Source == Platform:
		bench, err = s.pol.Bench(ctx, subject)
	case subject != nil:
		bench, err = s.pol.Alone(ctx, subject)
	default:
		bench, err = policies.NewBench(ctx, rec.Policies, nil, nil)
	}
	if err != nil {
		return out, nil, err
	}
	return bench.Policy(ctx, p.Name, set, rec.Start), bench, nil
}

func (s *Service) putInput(ctx context.Context, id string, x *Spec) error {
	for _, f := range []struct {
		name string
		data []byte
	}{{"nodes", x.Nodes}, {"jobs", x.JobsFile}} {
		if len(f.data) == 0 {
			continue
		}
		if err := s.put(ctx, key(id, f.name), f.data); err != nil {
			return err
		}
	}
	return nil
}

// put stores data, compressed.
func (s *Service) put(ctx context.Context, at string, data []byte) error {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("compressor: %w", err)
	}
	packed := enc.EncodeAll(data, nil)
	if _, err := s.store.Put(ctx, at, bytes.NewReader(packed), int64(len(packed)), "application/zstd"); err != nil {
		return fmt.Errorf("store %s: %w", at, err)
	}
	return nil
}

// maxUnpacked bounds what is made of an object.
const maxUnpacked = 512 << 20

// get reads what put stored. It returns fault.NotFound.
func (s *Service) get(ctx context.Context, at string) ([]byte, error) {
	r, _, err := s.store.Get(ctx, at, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	dec, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		return nil, fmt.Errorf("decompressor: %w", err)
	}
	defer dec.Close()
	data, err := io.ReadAll(io.LimitReader(dec, maxUnpacked))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", at, err)
	}
	return data, nil
}

// deleteObjects deletes all that is kept of a simulation; what cannot be
// deleted now is when the loop begins.
func (s *Service) deleteObjects(ctx context.Context, id string) {
	list, err := s.store.List(ctx, key(id, ""), "", objects.MaxList)
	for _, o := range list {
		if err == nil {
			err = s.store.Delete(ctx, o.Key)
		}
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("objects of a simulation not deleted", "simulation_id", id, "error", err)
	}
}

// Get returns a simulation. It returns fault.NotFound and fault.Invalid.
func (s *Service) Get(ctx context.Context, id string) (out *Simulation, err error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = find(ctx, tx, id)
		return err
	})
	return out, err
}

func checkID(id string) error {
	var c core.Check
	c.Text("simulation_id", id, true, 64, 0)
	return c.Err()
}

// List returns a page of the simulations the caller may see, latest first.
func (s *Service) List(ctx context.Context, size int32, token string) (list []*Simulation, next string, err error) {
	n, err := core.PageSize(size, 50)
	if err != nil {
		return nil, "", err
	}
	before, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	if len(before) == 0 {
		before = []string{"simulatioo"} // after all IDs
	}
	scope := core.CallerFrom(ctx).TenantID
	if core.CallerFrom(ctx).AllTenants {
		scope = "*"
	}
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		list, err = read(ctx, tx, `WHERE simulation_id < $1 AND ($2 = '*' OR tenant_id = $2) ORDER BY simulation_id DESC LIMIT $3`, before[0], scope, int64(n)+1)
		return err
	})
	if err == nil && len(list) > n {
		list = list[:n]
		next = core.PageToken(list[n-1].ID)
	}
	return list, next, err
}

// Follow calls f with a simulation now and whenever it changes, until it has
// ended or is deleted.
func (s *Service) Follow(ctx context.Context, id string, f func(*Simulation) error) error {
	w := s.feed.Watch()
	defer w.Close()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	seen := int64(0)
	for {
		x, err := s.Get(ctx, id)
		if err != nil && (seen == 0 || fault.KindOf(err) != fault.NotFound) {
			return err
		}
		if err != nil {
			return nil
		}
		if x.Version != seen {
			seen = x.Version
			if err := f(x); err != nil {
				return err
			}
		}
		if x.State.Ended() {
			return nil
		}
		for again := false; !again; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-w.Changed:
				again = slices.Contains(w.Take(), id)
			case <-tick.C:
				again = true
			}
		}
	}
}

// Cancel ends a simulation early; one that has ended stays as it is.
func (s *Service) Cancel(ctx context.Context, id string) (out *Simulation, err error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if out, err = find(ctx, tx, id); err != nil {
			return err
		}
		switch {
		case out.State == Waiting:
			out.State, out.EndedAt = Canceled, tx.Now
		case out.State == Running && !out.CancelAsked:
			out.CancelAsked = true
		default:
			return s.ids.AuditTx(ctx, tx, id)
		}
		if err := save(ctx, tx, out); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
	return out, err
}

// Delete deletes a simulation that has ended with all that is kept of it. It
// returns fault.Conflict for one that has not, and fault.NotFound.
func (s *Service) Delete(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		x, err := find(ctx, tx, id)
		if err != nil {
			return err
		}
		if !x.State.Ended() {
			return fault.New(fault.Conflict, "simulation %s has not ended; cancel it first", id)
		}
		if _, err := tx.Exec(ctx, `DELETE FROM simulations WHERE simulation_id = $1`, id); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
	if err == nil {
		s.deleteObjects(ctx, id)
	}
	return err
}

// Report returns the report as "json" or "html" with its content type. It
// returns fault.NotFound while there is none.
func (s *Service) Report(ctx context.Context, id, format string) ([]byte, string, error) {
	types := map[string]string{"": "application/json", "json": "application/json", "html": "text/html; charset=utf-8"}
	if types[format] == "" {
		return nil, "", fault.Fields(fault.Field{Path: "format", Problem: fmt.Sprintf("must be json or html, got %q", format)})
	}
	if _, err := s.Get(ctx, id); err != nil {
		return nil, "", err
	}
	name := "report.json"
	if format == "html" {
		name = "report.html"
	}
	data, err := s.get(ctx, key(id, name))
	if fault.KindOf(err) == fault.NotFound {
		err = fault.New(fault.NotFound, "simulation %s has no report", id)
	}
	return data, types[format], err
}

// Events returns a page of what happened in a result, of one job if it is
// named; cut says that more happened than is kept.
func (s *Service) Events(ctx context.Context, id, name, job string, size int32, token string) (out []Event, next string, cut bool, err error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", false, err
	}
	var c core.Check
	c.Text("name", name, false, 2048, 0)
	if c.Text("job_id", job, false, 256, 0); c.Err() != nil {
		return nil, "", false, c.Err()
	}
	from := 0
	if keys, err := core.ParsePageToken(token, 1); err != nil {
		return nil, "", false, err
	} else if keys != nil {
		if _, err := fmt.Sscanf(keys[0], "%d", &from); err != nil || from < 0 {
			return nil, "", false, fault.Fields(fault.Field{Path: "page_token", Problem: "is not one that was answered"})
		}
	}
	x, err := s.Get(ctx, id)
	if err != nil {
		return nil, "", false, err
	}
	k := -1
	for i, have := range x.Spec.Names {
		if have == name || name == "" && i == 0 {
			k = i
		}
	}
	if k < 0 {
		return nil, "", false, fault.Fields(fault.Field{Path: "name", Problem: fmt.Sprintf("must be one of %q, got %q", x.Spec.Names, name)})
	}
	data, err := s.get(ctx, key(id, fmt.Sprintf("events-%d", k)))
	if fault.KindOf(err) == fault.NotFound {
		return nil, "", false, fault.New(fault.NotFound, "simulation %s has no events of %s", id, x.Spec.Names[k])
	}
	if err != nil {
		return nil, "", false, err
	}
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	cut = len(lines) > maxEvents
	for i := from; i < min(len(lines), maxEvents); i++ {
		if len(lines[i]) == 0 || job != "" && !bytes.Contains(lines[i], []byte(job)) {
			continue
		}
		var e Event
		if err := json.Unmarshal(lines[i], &e); err != nil {
			return nil, "", false, fmt.Errorf("stored event: %w", err)
		}
		if job != "" && e.Job != job {
			continue
		}
		if len(out) == n {
			return out, core.PageToken(fmt.Sprint(i)), cut, nil
		}
		out = append(out, e)
	}
	return out, "", cut, nil
}

// sweep deletes objects of simulations that there are not, older than an hour.
func (s *Service) sweep(ctx context.Context) error {
	after := ""
	for {
		list, err := s.store.List(ctx, "simulations/", after, objects.MaxList)
		if err != nil || len(list) == 0 {
			return err
		}
		ids := map[string]bool{}
		for _, o := range list {
			after = o.Key
			if id := path.Base(path.Dir(o.Key)); s.db.Now().Sub(o.Modified) > time.Hour {
				ids[id] = true
			}
		}
		for id := range ids {
			var n int64
			err := s.db.View(ctx, func(tx *db.Tx) (err error) {
				n, err = count(ctx, tx, `simulation_id = $1`, id)
				return err
			})
			if err != nil {
				return err
			}
			if n == 0 {
				s.deleteObjects(ctx, id)
			}
		}
		if len(list) < objects.MaxList {
			return nil
		}
	}
}
