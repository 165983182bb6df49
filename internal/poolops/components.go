package poolops

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pools/logs"
)

// Part is one of the programs of a node; its kind is the API's number.
type Part struct {
	Kind    int64  `json:"kind"`
	Version string `json:"version"`
	Running int64  `json:"running"`
}

// Config is what can be set while the components run.
type Config struct {
	Level     logs.Level // 0: info
	Idle, Run int64      // seconds; 0: none
}

// ConfigChange is what of a configuration is set; what is nil stays.
type ConfigChange struct {
	Level     *logs.Level
	Idle, Run *int64 // seconds

	whole bool // it is all of a configuration
}

// Whole is the change by which a configuration replaces another.
func (c Config) Whole() ConfigChange {
	return ConfigChange{Level: &c.Level, Idle: &c.Idle, Run: &c.Run, whole: true}
}

func (x *ConfigChange) check(c *core.Check) {
	path := map[bool]string{true: "config", false: "change"}[x.whole]
	if x.Level == nil && x.Idle == nil && x.Run == nil {
		c.Add(path, "must set log_level, idle_limit_seconds or run_limit_seconds")
	}
	if x.Level != nil {
		c.Range(path+".log_level", int64(*x.Level), 0, int64(logs.Error))
	}
	if x.Idle != nil {
		c.Range(path+".idle_limit_seconds", *x.Idle, 0, maxLimit)
	}
	if x.Run != nil {
		c.Range(path+".run_limit_seconds", *x.Run, 0, maxLimit)
	}
}

// of returns what becomes of a configuration.
func (x *ConfigChange) of(c Config) Config {
	if x.Level != nil {
		c.Level = *x.Level
	}
	if x.Idle != nil {
		c.Idle = *x.Idle
	}
	if x.Run != nil {
		c.Run = *x.Run
	}
	if c.Level == 0 {
		c.Level = logs.Info
	}
	return c
}

// Components are those of a node.
type Components struct {
	Node       string
	Online     bool
	Parts      []Part
	Config     Config
	Generation int64
	Applied    int64
	Problem    string
	SetAt      time.Time
	ToldAt     time.Time
}

// Told is what a node says of itself.
type Told struct {
	Node, Secret string
	Entries      []logs.Entry // their IDs are the node's sequence numbers
	Sequences    []int64
	Parts        []Part
	Generation   int64
	Problem      string

	Program        string // SHA-256; "": of a version that does not say
	Attempt        int64  // to upgrade it, the last that it has begun
	AttemptProblem string // why that failed
}

const (
	maxEntries = 200
	maxParts   = 16
	maxLimit   = 366 * 24 * 3600
	maxWait    = 5 * time.Second
	maxNodes   = 1000
	// toldEvery is how often it is stored that a node told what it told before.
	toldEvery = 30 * time.Second
)

func (t *Told) check(wait time.Duration) error {
	var c core.Check
	c.ID("node_id", t.Node)
	if len(t.Entries) > maxEntries {
		c.Add("entries", "must be at most %d, got %d", maxEntries, len(t.Entries))
		return c.Err()
	}
	for i, e := range t.Entries {
		path := fmt.Sprintf("entries[%d]", i)
		c.Range(path+".sequence", t.Sequences[i], 1, 1<<53)
		c.Range(path+".level", int64(e.Level), int64(logs.Debug), int64(logs.Error))
		if e.At.IsZero() || e.At.Year() < 2000 || e.At.Year() > 2200 {
			c.Add(path+".at", "is required")
		}
		if e.Message == "" {
			c.Add(path+".message", "is required")
		}
		c.Text(path+".device_id", e.Device, false, 64, 0)
		c.Text(path+".slice_id", e.Slice, false, 64, 0)
	}
	if len(t.Parts) > maxParts {
		c.Add("components", "must be at most %d, got %d", maxParts, len(t.Parts))
	}
	for i, p := range t.Parts {
		path := fmt.Sprintf("components[%d]", i)
		c.Range(path+".kind", p.Kind, 1, 3)
		c.Text(path+".version", p.Version, false, 64, 0)
		c.Range(path+".running", p.Running, 0, 1_000_000)
	}
	c.Range("generation", t.Generation, 0, 1<<53)
	c.Text("problem", t.Problem, false, 500, 0)
	if t.Program != "" {
		checkSum(&c, "program", t.Program)
	}
	c.Range("attempt", t.Attempt, 0, 1<<53)
	c.Text("attempt_problem", t.AttemptProblem, false, 500, 0)
	c.Range("wait_ms", wait.Milliseconds(), 0, maxWait.Milliseconds())
	return c.Err()
}

// Wanted is how a node should be configured, and what it should run.
type Wanted struct {
	Config     Config
	Generation int64
	Release    *Release // nil: what it does
	Attempt    int64
}

// Tell stores what a node says and returns how it should be configured and what
// it should run, at latest after wait. fault.Unauthenticated for who is not a node.
func (s *Service) Tell(ctx context.Context, t Told, wait time.Duration) (Wanted, error) {
	if err := t.check(wait); err != nil {
		return Wanted{}, err
	}
	changed := s.feed.Watch()
	defer changed.Close()
	var known *Components
	var runs *program
	read := func(tx *db.Tx) error {
		all, err := readComponents(ctx, tx)
		if err != nil {
			return err
		}
		if known = all[t.Node]; known == nil {
			known = &Components{Node: t.Node}
		}
		programs, err := readPrograms(ctx, tx)
		if runs = programs[t.Node]; runs == nil {
			runs = &program{node: t.Node}
		}
		return err
	}
	wanted := func() Wanted {
		w := Wanted{Config: known.Config, Generation: known.Generation}
		if runs.attempt > t.Attempt && runs.wanted != "" {
			w.Release, w.Attempt = &Release{Sum: runs.wanted, Version: runs.version, Bytes: runs.bytes}, runs.attempt
		}
		return w
	}
	// Asked before, so that who is no node costs no writer's time, nor who says
	// nothing new.
	err := s.db.View(ctx, func(tx *db.Tx) error {
		if err := s.pools.KnownTx(ctx, tx, t.Node, t.Secret); err != nil {
			return err
		}
		return read(tx)
	})
	if err != nil {
		return Wanted{}, err
	}
	if len(t.Entries) > 0 || t.differs(known, s.db.Now()) || t.runs(runs) {
		err := s.db.Tx(ctx, func(tx *db.Tx) error {
			if err := s.pools.KnownTx(ctx, tx, t.Node, t.Secret); err != nil {
				return err
			}
			if err := read(tx); err != nil {
				return err
			}
			if t.runs(runs) {
				if t.byHand(runs) {
					runs.wanted = ""
				}
				runs.runs, runs.begun, runs.problem = t.Program, t.Attempt, t.AttemptProblem
				if err := putProgram(ctx, tx, runs); err != nil {
					return err
				}
				tx.AfterCommit(s.stir)
			}
			return s.toldTx(ctx, tx, &t, known)
		})
		if err != nil {
			return Wanted{}, err
		}
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	for known.Generation == t.Generation && wanted().Release == nil && wait > 0 {
		select {
		case <-ctx.Done():
			return Wanted{}, fault.Wrap(fault.Canceled, ctx.Err(), "the pool node went away")
		case <-late.C:
			return wanted(), nil
		case <-changed.Changed:
			if !slices.Contains(changed.Take(), t.Node) {
				continue
			}
			if err := s.db.View(ctx, read); err != nil {
				return Wanted{}, err
			}
		}
	}
	return wanted(), nil
}

// runs says whether what a node runs is news; who has never said is no news.
func (t *Told) runs(p *program) bool {
	return t.Program != "" && (t.Program != p.runs || t.Attempt != p.begun || t.AttemptProblem != p.problem)
}

// byHand says whether a node that was upgraded runs what was installed there since: it
// knows of no upgrade any more.
func (t *Told) byHand(p *program) bool {
	return t.Attempt == 0 && p.runs == p.wanted && t.Program != p.wanted
}

func (t *Told) differs(known *Components, now time.Time) bool {
	return !slices.Equal(t.Parts, known.Parts) || t.Generation != known.Applied || t.Generation > known.Generation || t.Problem != known.Problem || now.Sub(known.ToldAt) >= toldEvery
}

func (s *Service) toldTx(ctx context.Context, tx *db.Tx, t *Told, known *Components) error {
	var ids []string
	for _, e := range t.Entries {
		ids = append(ids, e.Slice)
	}
	of, err := s.pools.SlicesTx(ctx, tx, ids)
	if err != nil {
		return err
	}
	for i := range t.Entries {
		e := &t.Entries[i]
		e.ID, e.Source, e.Node = fmt.Sprintf("%s.%016x", t.Node, t.Sequences[i]), t.Node, t.Node
		if e.At.After(tx.Now.Add(time.Minute)) { // a clock that is wrong must not hide what comes later
			e.At = tx.Now
		}
		if x := of[e.Slice]; x != nil && x.Node == t.Node {
			e.User, e.Tenant, e.Group = x.User, x.Tenant, x.Group
		}
	}
	if err := s.logs.AddTx(ctx, tx, t.Entries...); err != nil {
		return err
	}
	if t.differs(known, tx.Now) {
		if t.Generation > known.Generation { // the platform is what it was before; the node takes what is later only
			known.Generation, known.SetAt = t.Generation+1, tx.Now
		}
		known.Parts, known.Applied, known.Problem, known.ToldAt = t.Parts, t.Generation, t.Problem, tx.Now
		return putComponents(ctx, tx, known)
	}
	return nil
}

const componentColumns = `node_id, parts, log_level, idle_s, run_s, generation, set_at, applied, problem, told_at`

func readComponents(ctx context.Context, tx *db.Tx) (map[string]*Components, error) {
	out := map[string]*Components{}
	err := tx.Query(ctx, `SELECT `+componentColumns+` FROM pool_components`, nil, func(row db.Row) error {
		x := &Components{}
		var parts string
		var set, told int64
		if err := row.Scan(&x.Node, &parts, &x.Config.Level, &x.Config.Idle, &x.Config.Run, &x.Generation, &set, &x.Applied, &x.Problem, &told); err != nil {
			return err
		}
		x.SetAt, x.ToldAt, out[x.Node] = db.Time(set), db.Time(told), x
		return json.Unmarshal([]byte(parts), &x.Parts)
	})
	if err != nil {
		return nil, fmt.Errorf("read the components of pool nodes: %w", err)
	}
	return out, nil
}

func putComponents(ctx context.Context, tx *db.Tx, x *Components) error {
	parts, err := json.Marshal(x.Parts)
	if err == nil {
		_, err = tx.Exec(ctx, `INSERT INTO pool_components (`+componentColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
			ON CONFLICT (node_id) DO UPDATE SET parts = $2, log_level = $3, idle_s = $4, run_s = $5, generation = $6, set_at = $7, applied = $8, problem = $9, told_at = $10`,
			x.Node, string(parts), int64(x.Config.Level), x.Config.Idle, x.Config.Run, x.Generation, db.Micros(x.SetAt), x.Applied, x.Problem, db.Micros(x.ToldAt))
	}
	if err != nil {
		return fmt.Errorf("store the components of pool node %s: %w", x.Node, err)
	}
	return nil
}

// Components lists those of all nodes, by the nodes' IDs.
func (s *Service) Components(ctx context.Context) (out []*Components, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = s.componentsTx(ctx, tx)
		return err
	})
	return out, err
}

func (s *Service) componentsTx(ctx context.Context, tx *db.Tx) (out []*Components, err error) {
	nodes, err := s.pools.NodesTx(ctx, tx)
	if err != nil {
		return nil, err
	}
	all, err := readComponents(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		x := all[n.ID]
		if x == nil {
			x = &Components{Node: n.ID}
		}
		x.Online = n.Online
		out = append(out, x)
	}
	return out, nil
}

// Configure configures the components of nodes, all of them or none, and returns
// them. A node that has the configuration already keeps its generation.
func (s *Service) Configure(ctx context.Context, ids []string, change ConfigChange) (out []*Components, err error) {
	var c core.Check
	c.Range("node_ids", int64(len(ids)), 1, maxNodes)
	for i, id := range ids[:min(len(ids), maxNodes)] {
		if c.ID(fmt.Sprintf("node_ids[%d]", i), id); slices.Contains(ids[:i], id) {
			c.Add(fmt.Sprintf("node_ids[%d]", i), "is given twice: %q", id)
		}
	}
	change.check(&c)
	if err := c.Err(); err != nil {
		return nil, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		all, err := s.componentsTx(ctx, tx)
		if err != nil {
			return err
		}
		out = slices.DeleteFunc(all, func(x *Components) bool { return !slices.Contains(ids, x.Node) })
		for _, id := range ids {
			if !slices.ContainsFunc(out, func(x *Components) bool { return x.Node == id }) {
				return fault.New(fault.NotFound, "there is no pool node %q; see yunhe pool node list", id)
			}
		}
		var changed []string
		for _, x := range out {
			cfg := change.of(x.Config)
			if x.Config == cfg {
				continue
			}
			x.Config, x.Generation, x.SetAt = cfg, x.Generation+1, tx.Now
			if err := putComponents(ctx, tx, x); err != nil {
				return err
			}
			e := logs.Entry{Level: logs.Info, Message: "node configured", Node: x.Node, User: core.CallerFrom(ctx).UserID,
				Details: fmt.Sprintf("generation=%d log_level=%s idle_limit_s=%d run_limit_s=%d", x.Generation, cfg.Level, cfg.Idle, cfg.Run)}
			if err := s.logs.AddTx(ctx, tx, e); err != nil {
				return err
			}
			changed = append(changed, x.Node)
		}
		if len(changed) == 0 {
			return nil
		}
		if err := s.ids.AuditTx(ctx, tx, strings.Join(ids[:min(len(ids), 10)], " ")); err != nil {
			return err
		}
		return emit(ctx, tx, changed)
	})
	return out, err
}

func emit(ctx context.Context, tx *db.Tx, ids []string) error {
	payload, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("event %s: %w", ChangedSubject, err)
	}
	return tx.Emit(ctx, ChangedSubject, payload)
}
