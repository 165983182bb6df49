package standing

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/registry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Runs is who owns what runs at the centers, implemented by jobs.
type Runs interface {
	// GiveUp writes off what ran at silent centers for longer than its grace.
	GiveUp(ctx context.Context, silent []Link, graces Graces) error
	// OpenLosses returns the centers with runs that were written off and are not
	// known to be over there.
	OpenLosses(ctx context.Context) (map[string]bool, error)
}

// Service keeps the standing of centers. It is safe for concurrent use.
type Service struct {
	db   *db.DB
	ids  *identity.Service
	reg  *registry.Service
	log  *slog.Logger
	runs Runs

	mu    sync.Mutex // guards the fields below
	fresh bool       // blocks is of blocksAt, and this process changed nothing since
	// blocks are the refusals that hold, as of blocksAt.
	blocks   map[shape]map[string]Refusal
	blocksAt time.Time
}

// shape is what two works that ask for the same have in common.
type shape struct{ spec, image string }

// New brings the tables up to date and returns the service; its loop is Run.
func New(ctx context.Context, d *db.DB, ids *identity.Service, reg *registry.Service, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "standing", migrations); err != nil {
		return nil, err
	}
	return &Service{db: d, ids: ids, reg: reg, log: log.With("component", "standing")}, nil
}

// SetRuns says who owns what runs. It is called before Run.
func (s *Service) SetRuns(r Runs) { s.runs = r }

// Run looks at the links until ctx ends. One process at a time runs it.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	purged := time.Time{}
	for {
		core.Round(ctx, lookEvery)
		if err := s.Look(ctx); err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("links not looked at, will try again", "error", err)
		}
		if now := s.db.Now(); now.Sub(purged) > time.Hour {
			purged = now
			if err := s.purge(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("old refusals not deleted", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Look brings the links up to date and has what is given up written off.
func (s *Service) Look(ctx context.Context) error {
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return err
	}
	open, err := s.runs.OpenLosses(ctx)
	if err != nil {
		return err
	}
	var silent []Link
	var moved []string
	var graces Graces
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		silent, moved = nil, nil
		links, err := readLinks(ctx, tx, "")
		if err != nil {
			return err
		}
		if graces, err = gracesTx(ctx, tx); err != nil {
			return err
		}
		known := make(map[string]Link, len(links))
		for _, l := range links {
			known[l.CenterID] = l
		}
		deaf := deafened(snap, known)
		for _, c := range snap.Centers {
			was, stored := known[c.ID]
			delete(known, c.ID)
			if !stored {
				was = Link{CenterID: c.ID, State: Connected}
			}
			heard := !c.LastSeen.IsZero() && snap.At.Sub(c.LastSeen) <= registry.SeenWithin
			if heard && was.State == Connected || c.LastSeen.IsZero() && !stored {
				continue
			}
			l := was.look(tx.Now, sight{heard: heard, open: open[c.ID], deaf: deaf, grace: graces.ofCenter(c.ID)})
			if err := saveLink(ctx, tx, &l); err != nil {
				return err
			}
			if l.State != was.State {
				moved = append(moved, fmt.Sprintf("%s: %s, was %s", c.ID, l.State, was.State))
			}
			if l.HeardAt = c.LastSeen; l.State == Silent || l.State == Lost {
				silent = append(silent, l)
			}
		}
		for id := range known { // of centers that are no more
			if _, err := tx.Exec(ctx, `DELETE FROM center_links WHERE ai_center_id = $1`, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, m := range moved {
		s.log.Info("link of a center changed", "link", m)
	}
	if len(silent) == 0 {
		return nil
	}
	return s.runs.GiveUp(ctx, silent, graces)
}

// deafened reports whether several centers are silent, not yet lost, and none
// is heard of.
func deafened(snap *registry.Snapshot, known map[string]Link) bool {
	silent := 0
	for _, c := range snap.Centers {
		switch {
		case c.LastSeen.IsZero() || known[c.ID].State == Lost:
		case snap.At.Sub(c.LastSeen) <= registry.SeenWithin:
			return false
		default:
			silent++
		}
	}
	return silent > 1
}

// SilentTx reports whether a center has not been heard of since a look saw
// it silent.
func (s *Service) SilentTx(ctx context.Context, tx *db.Tx, l *Link) (bool, error) {
	at, err := s.reg.LastSeenTx(ctx, tx, l.CenterID)
	return err == nil && at.Equal(l.HeardAt), err
}

func gracesTx(ctx context.Context, tx *db.Tx) (Graces, error) {
	list, err := readGraces(ctx, tx)
	out := Graces{OfPlatform: {}, OfCenter: {}, OfTenant: {}}
	for _, g := range list {
		out[g.Scope][g.ID] = g.Seconds
	}
	return out, err
}

// Graces returns the graces that are set, the widest scope first.
func (s *Service) Graces(ctx context.Context) (out []Grace, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = readGraces(ctx, tx)
		return err
	})
	return out, err
}

// SetGrace sets a grace, or takes it away with 0 seconds, and returns it. Only
// one of center and tenant may be named; neither means the platform.
func (s *Service) SetGrace(ctx context.Context, center, tenant string, seconds int64) (Grace, error) {
	g := Grace{Scope: OfPlatform, Seconds: seconds}
	var c core.Check
	CheckGrace(&c, "seconds", seconds)
	if center != "" {
		g.Scope, g.ID = OfCenter, center
		c.ID("ai_center_id", center)
	}
	if tenant != "" {
		g.Scope, g.ID = OfTenant, tenant
		c.ID("tenant_id", tenant)
	}
	if center != "" && tenant != "" {
		c.Add("tenant_id", "must be empty when ai_center_id is given")
	}
	if err := c.Err(); err != nil {
		return g, err
	}
	if err := s.exists(ctx, g); err != nil {
		return g, err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		all, err := gracesTx(ctx, tx)
		if err != nil {
			return err
		}
		if all[g.Scope][g.ID] == seconds { // 0: none is set
			return nil
		}
		if g.ChangedAt = tx.Now; seconds == 0 {
			_, err = tx.Exec(ctx, `DELETE FROM lost_graces WHERE scope = $1 AND id = $2`, string(g.Scope), g.ID)
		} else {
			err = setGrace(ctx, tx, g)
		}
		if err != nil {
			return fmt.Errorf("set the grace of %s %s: %w", g.Scope, g.ID, err)
		}
		return s.ids.AuditTx(ctx, tx, cmp.Or(g.ID, string(g.Scope)))
	})
	return g, err
}

func (s *Service) exists(ctx context.Context, g Grace) error {
	var err error
	switch g.Scope {
	case OfCenter:
		_, err = s.reg.GetCenter(ctx, g.ID)
	case OfTenant:
		err = s.ids.CheckTenant(ctx, g.ID)
	}
	return err
}

// Standing is how a center stands.
type Standing struct {
	Link
	Grace    time.Duration // negative: without end
	Refusals []Refusal     // the latest first
}

// Get returns the standing of a center; fault.NotFound if there is none.
func (s *Service) Get(ctx context.Context, id string) (Standing, error) {
	k, err := s.reg.GetCenter(ctx, id)
	if err != nil {
		return Standing{}, err
	}
	list, err := s.of(ctx, []registry.Center{k})
	if err != nil {
		return Standing{}, err
	}
	return list[0], nil
}

// List returns a page of standings by the center's ID, and the token of the next.
func (s *Service) List(ctx context.Context, size int32, token string) ([]Standing, string, error) {
	centers, next, err := s.reg.ListCenters(ctx, "", size, token)
	if err != nil {
		return nil, "", err
	}
	out, err := s.of(ctx, centers)
	return out, next, err
}

// of returns the standings of centers ordered by ID.
func (s *Service) of(ctx context.Context, centers []registry.Center) ([]Standing, error) {
	out := make([]Standing, len(centers))
	if len(centers) == 0 {
		return out, nil
	}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		graces, err := gracesTx(ctx, tx)
		if err != nil {
			return err
		}
		first, last := centers[0].ID, centers[len(centers)-1].ID
		links, err := readLinks(ctx, tx, `WHERE ai_center_id BETWEEN $1 AND $2 ORDER BY ai_center_id`, first, last)
		if err != nil {
			return err
		}
		refusals, err := readRefusals(ctx, tx, `WHERE ai_center_id BETWEEN $1 AND $2 AND last_at > $3 ORDER BY last_at DESC, ai_center_id, spec_id, image_id`,
			first, last, db.Micros(tx.Now.Add(-keepRefusals)))
		if err != nil {
			return err
		}
		for i, k := range centers {
			out[i] = Standing{Link: Link{CenterID: k.ID, State: Connected}, Grace: graces.ofCenter(k.ID)}
			if at, ok := slices.BinarySearchFunc(links, k.ID, func(l Link, id string) int { return strings.Compare(l.CenterID, id) }); ok {
				out[i].Link = links[at]
			}
			out[i].HeardAt = k.LastSeen
			for _, r := range refusals {
				if r.CenterID == k.ID {
					out[i].Refusals = append(out[i].Refusals, r)
				}
			}
		}
		return nil
	})
	return out, err
}

// RefusedTx remembers that a center refused work.
func (s *Service) RefusedTx(ctx context.Context, tx *db.Tx, centerID, spec, image, reason string) error {
	known, err := readRefusals(ctx, tx, `WHERE ai_center_id = $1 AND spec_id = $2 AND image_id = $3`, centerID, spec, image)
	if err != nil {
		return err
	}
	r := Refusal{CenterID: centerID, SpecID: spec, ImageID: image}
	if len(known) > 0 {
		r = known[0]
	}
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	r = r.again(tx.Now, reason)
	tx.AfterCommit(s.stale)
	return saveRefusal(ctx, tx, &r)
}

// Forget drops what a center has refused and returns its standing.
func (s *Service) Forget(ctx context.Context, id string) (Standing, error) {
	if _, err := s.reg.GetCenter(ctx, id); err != nil {
		return Standing{}, err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM center_refusals WHERE ai_center_id = $1`, id); err != nil {
			return fmt.Errorf("forget refusals of %s: %w", id, err)
		}
		tx.AfterCommit(s.stale)
		return s.ids.AuditTx(ctx, tx, id)
	})
	if err != nil {
		return Standing{}, err
	}
	return s.Get(ctx, id)
}

func (s *Service) purge(ctx context.Context) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM center_refusals WHERE last_at < $1 AND until < $2`, db.Micros(tx.Now.Add(-keepRefusals)), db.Micros(tx.Now))
		return err
	})
}

func (s *Service) stale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = false
}

// blocksFor is how long the refusals read are believed: another process may
// have recorded one.
const blocksFor = time.Second

// Refused returns the refusals of work of a specification and image that hold
// now, by center; nil: there are none. The map is not to be changed.
func (s *Service) Refused(ctx context.Context, spec, image string) (map[string]Refusal, error) {
	now := s.db.Now()
	s.mu.Lock()
	if age := now.Sub(s.blocksAt); s.fresh && age >= 0 && age < blocksFor {
		defer s.mu.Unlock()
		return s.blocks[shape{spec, image}], nil
	}
	s.fresh, s.blocksAt = true, now // before the read: a change meanwhile makes it stale again
	s.mu.Unlock()
	var list []Refusal
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		list, err = readRefusals(ctx, tx, `WHERE until > $1`, db.Micros(tx.Now))
		return err
	})
	blocks := map[shape]map[string]Refusal{}
	for _, r := range list {
		k := shape{r.SpecID, r.ImageID}
		if blocks[k] == nil {
			blocks[k] = map[string]Refusal{}
		}
		blocks[k][r.CenterID] = r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.fresh = false
		return nil, fault.Wrap(fault.KindOf(err), err, "read which centers refused what")
	}
	s.blocks = blocks
	return blocks[shape{spec, image}], nil
}
