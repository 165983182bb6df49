package planning

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"time"

	"yunhe.dev/yunhe/internal/availability"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// atOnce is how many systems a process plans at once: planning leaves room
	// for everything else that the process does.
	atOnce = 2
	// patience is how long a request waits for its turn.
	patience = 10 * time.Second
	// Limits of a request. The largest systems are planned by the command line,
	// where they are.
	maxModules      = 1000
	maxSubmodules   = 5000
	maxDependencies = 5000
	// With sites all splits are kept side by side, for each set of sites that
	// may be down.
	maxSites          = 4
	maxSitesSubmodule = 100
	// maxInfluences are told.
	maxInfluences = 100
)

// Service plans, and measures the roles of its process. It is safe for
// concurrent use.
type Service struct {
	db       *db.DB
	instance string
	roles    []string
	works    func(ctx context.Context, role string) error
	log      *slog.Logger
	turn     chan struct{}
}

// New returns the service of a process with an instance's ID and roles, of
// which works says whether one does its work now; its loop is Run.
func New(ctx context.Context, d *db.DB, instance string, roles []string, works func(ctx context.Context, role string) error, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "planning", migrations); err != nil {
		return nil, err
	}
	return &Service{db: d, instance: instance, roles: roles, works: works, log: log.With("component", "planning"), turn: make(chan struct{}, atOnce)}, nil
}

// Plan splits a system by a method or, with leastCost, so that the cost of its
// instances is the least. It returns fault.Invalid and fault.Unavailable.
func (s *Service) Plan(ctx context.Context, sys *availability.System, method availability.Method, leastCost bool) (plan *availability.Plan, influences []availability.Influence, err error) {
	if leastCost && method != availability.Aware {
		return nil, nil, fault.Fields(fault.Field{Path: "least_cost", Problem: "goes with the method aware only"})
	}
	if leastCost && len(sys.Sites) > 0 {
		return nil, nil, fault.Fields(fault.Field{Path: "least_cost", Problem: "goes with systems without sites only"})
	}
	err = s.work(ctx, sys, func() error {
		if leastCost {
			plan, err = availability.Cheapest(sys, sys.Instances)
		} else {
			plan, err = availability.Make(sys, method)
		}
		if err != nil {
			return below("system.", err)
		}
		if method != availability.Clustered {
			influences = influence(sys, plan)
		}
		return nil
	})
	return plan, influences, err
}

// influence returns the submodules to improve first. A plan may have chosen
// other instances than the system.
func influence(sys *availability.System, plan *availability.Plan) []availability.Influence {
	for i := range sys.Modules {
		sys.Modules[i].Instances = plan.Modules[i].Instances
	}
	out := availability.Sensitivity(sys, plan)
	return out[:min(len(out), maxInfluences)]
}

// Evaluate says how available a system is that is split as given.
func (s *Service) Evaluate(ctx context.Context, sys *availability.System, split []availability.ModulePlan) (plan *availability.Plan, influences []availability.Influence, err error) {
	err = s.work(ctx, sys, func() error {
		if plan, err = availability.Evaluate(sys, split); err == nil {
			influences = influence(sys, plan)
		}
		return err
	})
	return plan, influences, err
}

// Compare plans a system by every method that it has the facts for.
func (s *Service) Compare(ctx context.Context, sys *availability.System) (plans []*availability.Plan, err error) {
	err = s.work(ctx, sys, func() error {
		for _, m := range availability.Methods() {
			if m == availability.Aware && sys.Target == 0 || m == availability.Clustered && len(sys.Dependencies) == 0 {
				continue
			}
			p, err := availability.Make(sys, m)
			if err != nil {
				return err
			}
			plans = append(plans, p)
		}
		return nil
	})
	return plans, err
}

// Reproduce computes the published study anew.
func (s *Service) Reproduce(ctx context.Context) (out *availability.Reproduction, err error) {
	err = s.take(ctx, func() error {
		out, err = availability.Reproduce()
		return err
	})
	return out, err
}

// work calls f when it is the turn of a system that can be planned.
func (s *Service) work(ctx context.Context, sys *availability.System, f func() error) error {
	if err := check(sys); err != nil {
		return err
	}
	return s.take(ctx, f)
}

func (s *Service) take(ctx context.Context, f func() error) error {
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
		return fault.New(fault.Unavailable, "many systems are being planned: try again in some seconds")
	}
}

// check refuses what is too much for a request, and what cannot be planned.
func check(sys *availability.System) error {
	var c core.Check
	all := 0
	for i := range sys.Modules {
		all += len(sys.Modules[i].Submodules)
	}
	if len(sys.Modules) > maxModules || all > maxSubmodules {
		c.Add("system.modules", "must be at most %d with %d submodules in all, got %d with %d; the command line plans larger ones", maxModules, maxSubmodules, len(sys.Modules), all)
	}
	if n := len(sys.Sites); n > maxSites {
		c.Add("system.sites", "must be at most %d, got %d; the command line plans more", maxSites, n)
	} else if n > 0 && all > maxSitesSubmodule {
		c.Add("system.sites", "can be planned for at most %d submodules in all, got %d; the command line plans more", maxSitesSubmodule, all)
	}
	c.Range("system.dependencies", int64(len(sys.Dependencies)), 0, maxDependencies)
	if err := c.Err(); err != nil {
		return err
	}
	return below("system.", sys.Check())
}

// below puts the fields of an error below a path.
func below(path string, err error) error {
	fields := fault.FieldsOf(err)
	if len(fields) == 0 {
		return err
	}
	out := make([]fault.Field, len(fields))
	for i, f := range fields {
		out[i] = fault.Field{Path: path + f.Path, Problem: f.Problem}
	}
	return fault.Fields(out...)
}

// Measured says how available the platform's roles were in the last days.
func (s *Service) Measured(ctx context.Context, days int) ([]Role, error) {
	if days == 0 {
		days = 30
	}
	var c core.Check
	c.Range("days", int64(days), 1, MaxDays)
	if err := c.Err(); err != nil {
		return nil, err
	}
	var spans []span
	var from, now time.Time
	err := s.db.View(ctx, func(tx *db.Tx) error {
		spans, now = nil, tx.Now
		from = now.Add(-time.Duration(days) * 24 * time.Hour)
		return tx.Query(ctx, `SELECT role, instance_id, since, seen, ended FROM presence WHERE seen >= $1`, []any{db.Micros(from)}, func(row db.Row) error {
			var x span
			var since, seen int64
			err := row.Scan(&x.role, &x.instance, &since, &seen, &x.ended)
			x.since, x.seen = db.Time(since), db.Time(seen)
			spans = append(spans, x)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read presence: %w", err)
	}
	return measure(spans, from, now), nil
}

// Run gives signs of life for the roles of this process that do their work,
// until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	next := time.NewTimer(beatEvery)
	defer next.Stop()
	began, idle, purged := map[string]bool{}, map[string]bool{}, time.Time{}
	for {
		roles := s.working(ctx, idle)
		if err := s.beat(ctx, roles, began, false); err != nil && ctx.Err() == nil {
			s.log.Warn("no sign of life given, will try again", "error", err)
		}
		if now := s.db.Now(); len(began) > 0 && now.Sub(purged) > 24*time.Hour {
			purged = now
			if err := s.purge(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("old signs of life not deleted", "error", err)
			}
		}
		wait := beatEvery
		if len(began) < len(s.roles) {
			wait /= 10 // it starts
		}
		next.Reset(wait)
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if err := s.beat(last, s.roles, began, true); err != nil {
				s.log.Warn("the end of this process counts as a failure: it was not written down", "error", err)
			}
			return nil
		case <-next.C:
		}
	}
}

// working returns the roles that do their work. idle are those that did not
// when they were last asked.
func (s *Service) working(ctx context.Context, idle map[string]bool) (roles []string) {
	ctx, cancel := context.WithTimeout(ctx, beatEvery)
	defer cancel()
	for _, role := range s.roles {
		err := s.works(ctx, role)
		if err == nil {
			roles = append(roles, role)
		} else if !idle[role] && ctx.Err() == nil {
			s.log.Warn("a role does not do its work", "role", role, "error", err)
		}
		idle[role] = err != nil
	}
	return roles
}

// beat lengthens the open spans of roles, or begins new ones for those that
// have not begun in this process and after silence. With end they end.
func (s *Service) beat(ctx context.Context, roles []string, began map[string]bool, end bool) error {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		now := db.Micros(tx.Now)
		for _, role := range roles {
			var n int64
			var err error
			if began[role] {
				n, err = tx.Exec(ctx, `UPDATE presence SET seen = $3, ended = $5 WHERE role = $1 AND instance_id = $2 AND seen BETWEEN $4 AND $3 AND NOT ended`,
					role, s.instance, now, db.Micros(tx.Now.Add(-silent)), end)
			}
			if err == nil && n == 0 && !end {
				_, err = tx.Exec(ctx, `INSERT INTO presence (role, instance_id, since, seen, ended) VALUES ($1, $2, $3, $3, FALSE) ON CONFLICT DO NOTHING`, role, s.instance, now)
			}
			if err != nil {
				return fmt.Errorf("presence of %s: %w", role, err)
			}
		}
		return nil
	})
	if err == nil {
		for _, role := range roles {
			began[role] = true
		}
	}
	return err
}

func (s *Service) purge(ctx context.Context) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM presence WHERE seen < $1`, db.Micros(tx.Now.Add(-keep)))
		return err
	})
}
