package policies

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/tags"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Deps are the components that policies read.
type Deps struct {
	Identity  *identity.Service
	Registry  *registry.Service
	Tags      *tags.Service
	Scheduler *scheduler.Service
	Jobs      *jobs.Service
}

// Service keeps policies and chooses among them. It is safe for concurrent
// use.
type Service struct {
	db    *db.DB
	ids   *identity.Service
	reg   *registry.Service
	tags  *tags.Service
	sched *scheduler.Service
	jobs  *jobs.Service
	log   *slog.Logger
	mods  *modules

	changed func() // after a change of what is in force

	playing chan struct{} // full while a simulation that someone waits for runs

	loading sync.Mutex // held while what is in force is read
	mu      sync.Mutex // guards the fields below

	book    *book
	changes int64 // of what is in force, by this process
}

// New brings the tables up to date and returns the service, ready for calls.
// There is no loop.
func New(ctx context.Context, d *db.DB, deps Deps, metrics prometheus.Registerer, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "policies", migrations); err != nil {
		return nil, err
	}
	s := &Service{db: d, ids: deps.Identity, reg: deps.Registry, tags: deps.Tags, sched: deps.Scheduler, jobs: deps.Jobs, log: log.With("component", "policies"),
		playing: make(chan struct{}, 1)}
	if deps.Scheduler != nil {
		s.changed = deps.Scheduler.Wake
	}
	s.mods = newModules(metrics, s.log)
	return s, nil
}

// Close frees what modules hold.
func (s *Service) Close() { s.mods.close() }

func noPolicy(id string) error { return fault.New(fault.NotFound, "there is no policy %s", clip(id)) }

func noVersion(id string, version int64) error {
	return fault.New(fault.NotFound, "policy %s has no version %d", clip(id), version)
}

// reasonCheck checks the fields that most calls have.
func reasonCheck(path, reason string, more func(c *core.Check)) error {
	var c core.Check
	c.Text(path, reason, false, maxNote, 0)
	if more != nil {
		more(&c)
	}
	return c.Err()
}

// Create makes a policy with its first version, a draft. It returns
// fault.Invalid with paths below "document.", fault.Exists and
// fault.Exhausted.
func (s *Service) Create(ctx context.Context, d Document, note string) (Record, error) {
	return s.write(ctx, d, note, func(tx *db.Tx, h *head) error {
		if h != nil {
			return fault.New(fault.Exists, "policy %s exists already; add a version to it", d.ID)
		}
		n, err := count(ctx, tx, `SELECT COUNT(*) FROM policies`)
		if err == nil && n >= maxPolicies {
			err = fault.New(fault.Exhausted, "there are %d policies, which is the most", maxPolicies)
		}
		return err
	})
}

// Update adds a version, a draft, to a policy whose latest version is base (0:
// any). It returns fault.Invalid with paths below "document.", fault.NotFound
// and fault.Conflict.
func (s *Service) Update(ctx context.Context, d Document, base int64, note string) (Record, error) {
	if base < 0 {
		return Record{}, fault.Fields(fault.Field{Path: "base_version", Problem: fmt.Sprintf("must be at least 0, got %d", base)})
	}
	return s.write(ctx, d, note, func(_ *db.Tx, h *head) error {
		switch {
		case h == nil:
			return noPolicy(d.ID)
		case base != 0 && base != h.latest:
			return fault.New(fault.Conflict, "policy %s has version %d, not %d: it was changed meanwhile; read it and try again", d.ID, h.latest, base)
		}
		return nil
	})
}

func (s *Service) write(ctx context.Context, d Document, note string, may func(tx *db.Tx, h *head) error) (Record, error) {
	k, problems := compile(d, 0)
	err := invalid("document.", problems)
	if bad := reasonCheck("note", note, nil); bad != nil {
		err = fault.Fields(append(fault.FieldsOf(err), fault.FieldsOf(bad)...)...)
	}
	if err != nil {
		return Record{}, err
	}
	body := toJSON(&k.Document)
	var version int64
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		h, err := getHead(ctx, tx, d.ID)
		if err != nil {
			return err
		}
		if h != nil {
			v, err := getVersion(ctx, tx, d.ID, h.latest)
			if err != nil {
				return err
			}
			if v != nil && toJSON(&v.Document) == body { // asked again
				version = h.latest
				return s.ids.AuditTx(ctx, tx, d.ID)
			}
		}
		if err := may(tx, h); err != nil {
			return err
		}
		if err := s.errorsOf(ctx, tx, k, "document."); err != nil {
			return err
		}
		last, err := count(ctx, tx, `SELECT COALESCE(MAX(version), 0) FROM policy_versions WHERE policy_id = $1`, d.ID)
		if err != nil {
			return err
		}
		version = last + 1
		action := "updated"
		if h == nil {
			h, action = &head{id: d.ID}, "created"
		}
		h.latest, h.words = version, words(&k.Document)
		if err := writeHead(ctx, tx, h); err != nil {
			return err
		}
		if err := insertVersion(ctx, tx, d.ID, &Version{Version: version, State: Draft, Note: note, CreatedAt: tx.Now, CreatedBy: core.CallerFrom(ctx).UserID}, body); err != nil {
			return err
		}
		if err := event(ctx, tx, d.ID, action, version, "", note); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, d.ID)
	})
	if err != nil {
		return Record{}, err
	}
	s.log.Info("policy written", "policy_id", d.ID, "version", version)
	return s.Get(ctx, d.ID, version)
}

// Get returns a policy with a version of it; 0: that in force, or the latest.
// It returns fault.Invalid and fault.NotFound.
func (s *Service) Get(ctx context.Context, id string, version int64) (out Record, err error) {
	if err := checkIDs("policy_id", id, "version", version); err != nil {
		return out, err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		h, err := getHead(ctx, tx, id)
		if err != nil {
			return err
		}
		if h == nil {
			return noPolicy(id)
		}
		out, err = record(ctx, tx, h, version)
		return err
	})
	return out, err
}

func checkIDs(path, id, versionPath string, version int64) error {
	var c core.Check
	c.ID(path, id)
	c.Range(versionPath, version, 0, 1<<40)
	return c.Err()
}

func record(ctx context.Context, tx *db.Tx, h *head, version int64) (Record, error) {
	out := Record{ID: h.id, Latest: h.latest, Issued: h.issued, IssuedAt: db.Time(h.at), IssuedBy: h.by, TestID: h.test}
	var err error
	if out.IssuedScope, err = scopeFrom(h.scope); err != nil {
		return out, fmt.Errorf("scope of policy %s: %w", h.id, err)
	}
	if version == 0 {
		if version = h.issued; version == 0 {
			version = h.latest
		}
	}
	v, err := getVersion(ctx, tx, h.id, version)
	if err != nil {
		return out, err
	}
	if v == nil {
		return out, noVersion(h.id, version)
	}
	out.Version = *v
	return out, nil
}

// Filter says which policies are wanted; zero values: all.
type Filter struct {
	Issued, NotIssued bool
	Query             string
}

// List returns a page of the policies by ID. It returns fault.Invalid.
func (s *Service) List(ctx context.Context, f Filter, size int32, token string) (out []Record, next string, err error) {
	var c core.Check
	c.Text("query", f.Query, false, 64, 0)
	if f.Issued && f.NotIssued {
		c.Add("not_issued", "excludes what issued asks for")
	}
	if err := c.Err(); err != nil {
		return nil, "", err
	}
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
		rest := `WHERE policy_id > $1`
		if f.Issued {
			rest += ` AND issued > 0`
		} else if f.NotIssued {
			rest += ` AND issued = 0`
		}
		rows, err := readHeads(ctx, tx, rest+` ORDER BY policy_id`, after) // at most maxPolicies
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(h head) bool { return !strings.Contains(h.words, strings.ToLower(f.Query)) })
		if len(rows) > n {
			rows = rows[:n]
			next = core.PageToken(rows[n-1].id)
		}
		for i := range rows {
			r, err := record(ctx, tx, &rows[i], 0)
			if err != nil {
				return err
			}
			out = append(out, r)
		}
		return nil
	})
	return out, next, err
}

// Versions returns the versions of a policy, latest first. It returns
// fault.Invalid and fault.NotFound.
func (s *Service) Versions(ctx context.Context, id string) (out []Version, err error) {
	if err := checkIDs("policy_id", id, "", 0); err != nil {
		return nil, err
	}
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readVersions(ctx, tx, `WHERE policy_id = $1 ORDER BY version DESC LIMIT $2`, id, int64(maxListed))
		return err
	})
	if err == nil && len(out) == 0 {
		err = noPolicy(id)
	}
	return out, err
}

// Events returns a page of what was done with policies, or with one if it is
// named, latest first. It returns fault.Invalid and fault.NotFound.
func (s *Service) Events(ctx context.Context, id string, size int32, token string) (out []Event, next string, err error) {
	if id != "" {
		if err := checkIDs("policy_id", id, "", 0); err != nil {
			return nil, "", err
		}
	}
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	before := "pevu" // after all IDs of events
	if key != nil {
		before = key[0]
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		rest, args := `WHERE event_id < $1 `, []any{before, int64(n) + 1}
		if id != "" {
			rest, args = rest+`AND policy_id = $3 `, append(args, id)
		}
		rows, err := readEvents(ctx, tx, rest+`ORDER BY event_id DESC LIMIT $2`, args...)
		if err != nil {
			return err
		}
		if len(rows) == 0 && key == nil && id != "" {
			return noPolicy(id)
		}
		if len(rows) > n {
			rows = rows[:n]
			next = core.PageToken(rows[n-1].ID)
		}
		for _, e := range rows {
			out = append(out, e.Event)
		}
		return nil
	})
	return out, next, err
}

// Difference is a field in which two documents differ.
type Difference struct{ Path, Before, After string }

// Diff returns what differs between two versions, by path; to 0 is the latest.
// It returns fault.Invalid and fault.NotFound.
func (s *Service) Diff(ctx context.Context, id string, from, to int64) ([]Difference, error) {
	var c core.Check
	c.ID("policy_id", id)
	c.Range("from", from, 1, 1<<40)
	c.Range("to", to, 0, 1<<40)
	if err := c.Err(); err != nil {
		return nil, err
	}
	var docs [2]map[string]string
	err := s.db.View(ctx, func(tx *db.Tx) error {
		if to == 0 {
			last, err := count(ctx, tx, `SELECT COALESCE(MAX(version), 0) FROM policy_versions WHERE policy_id = $1`, id)
			if err != nil {
				return err
			}
			to = last
		}
		for i, n := range [2]int64{from, to} {
			v, err := getVersion(ctx, tx, id, n)
			if err != nil {
				return err
			}
			if v == nil {
				return noVersion(id, n)
			}
			docs[i] = map[string]string{}
			var any any
			if err := json.Unmarshal([]byte(toJSON(&v.Document)), &any); err != nil {
				return fmt.Errorf("decode policy %s: %w", id, err)
			}
			flatten("", any, docs[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := maps.Clone(docs[0])
	maps.Copy(all, docs[1])
	out := []Difference{}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if docs[0][path] != docs[1][path] {
			out = append(out, Difference{path, docs[0][path], docs[1][path]})
		}
	}
	return out, nil
}

// flatten lists the leaves of a JSON value by path.
func flatten(at string, v any, out map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			flatten(strings.TrimPrefix(at+"."+k, "."), x, out)
		}
	case []any:
		for i, x := range v {
			flatten(fmt.Sprintf("%s[%d]", at, i), x, out)
		}
	default:
		out[at] = toJSON(v)
	}
}

// Delete deletes a policy that is not in force and not compared; its versions
// and events stay. It returns fault.Invalid, fault.NotFound and
// fault.Conflict.
func (s *Service) Delete(ctx context.Context, id, reason string) error {
	if err := reasonCheck("reason", reason, func(c *core.Check) { c.ID("policy_id", id) }); err != nil {
		return err
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		h, err := getHead(ctx, tx, id)
		if err != nil {
			return err
		}
		switch {
		case h == nil:
			return noPolicy(id)
		case h.issued > 0:
			return fault.New(fault.Conflict, "version %d of policy %s is in force; withdraw it first", h.issued, id)
		}
		if _, err := tx.Exec(ctx, `DELETE FROM policies WHERE policy_id = $1`, id); err != nil {
			return err
		}
		if err := event(ctx, tx, id, "deleted", h.latest, "", reason); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
}

// recheck is how long changes by other processes may go unseen.
const recheck = 500 * time.Millisecond
