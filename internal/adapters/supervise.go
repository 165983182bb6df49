package adapters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/plugin"
)

// runner is an instance that this process runs.
type runner struct {
	generation, restarts int64
	proc                 *plugin.Process
	stop                 context.CancelFunc
	done                 chan struct{}
}

// lookInstances is how soon changes made by other processes are noticed.
const lookInstances = time.Second

func (s *Service) wakeInstances() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// RunInstances runs the instances of all plug-ins until ctx ends. known are
// the plug-ins this process brings along. One process at a time may run it.
func (s *Service) RunInstances(ctx context.Context, known []Known) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	configs := map[string]plugin.Config{}
	for _, k := range known {
		if k.Version == "" {
			configs[k.Name] = k.Config
		}
	}
	for {
		err := s.declare(ctx, known)
		if err == nil {
			break
		}
		s.log.Warn("plug-ins not recorded, will try again", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	for _, c := range configs {
		if c.OnDemand { // others are described by their instance
			wg.Go(func() { s.describeAlone(ctx, c) })
		}
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		clear(s.running)
	}()
	tick := time.NewTicker(lookInstances)
	defer tick.Stop()
	for {
		core.Round(ctx, lookInstances)
		if err := s.reconcile(ctx, &wg, configs); err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("instances not read, will try again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-tick.C:
		}
	}
}

// declare records the plug-ins this process brings along, and that others of
// such sources are gone.
func (s *Service) declare(ctx context.Context, known []Known) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		here := map[string]bool{}
		for _, k := range known {
			here[k.Name] = true
			if _, err := tx.Exec(ctx, `INSERT INTO plugins (name, source, endpoints, version, parts, config_schema, restarts, created_at) VALUES ($1, $2, '', $3, $4, $5, 0, $6)
				ON CONFLICT (name) DO UPDATE SET source = $2`, k.Name, int64(k.Source), k.Version, strings.Join(k.Parts, " "), k.Schema, db.Micros(tx.Now)); err != nil {
				return fmt.Errorf("store plug-in %s: %w", k.Name, err)
			}
			if k.Version != "" {
				if err := describe(ctx, tx, k.Name, k.Version, k.Parts, k.Schema); err != nil {
					return err
				}
			}
			var own []string
			if k.Version == "" && !k.OnDemand {
				own = []string{k.Endpoint}
			}
			if err := s.setEndpoints(ctx, tx, k.Name, own); err != nil {
				return err
			}
		}
		var gone []string
		err := tx.Query(ctx, `SELECT name FROM plugins WHERE source <> $1`, []any{int64(Registered)}, func(row db.Row) error {
			var name string
			err := row.Scan(&name)
			if !here[name] {
				gone = append(gone, name)
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, name := range gone {
			if err := s.setEndpoints(ctx, tx, name, nil); err != nil {
				return err
			}
			// Instances made through it stay, and say that it is missing.
			if _, err := tx.Exec(ctx, `DELETE FROM plugins WHERE name = $1 AND NOT EXISTS (SELECT 1 FROM instances WHERE plugin = $1)`, name); err != nil {
				return err
			}
		}
		return nil
	})
}

func describe(ctx context.Context, tx *db.Tx, name, version string, parts []string, schema string) error {
	_, err := tx.Exec(ctx, `UPDATE plugins SET version = $2, parts = $3, config_schema = $4 WHERE name = $1`, name, version, strings.Join(parts, " "), schema)
	return err
}

// describeAlone asks a plug-in that may have no instance what it is, until it
// says so.
func (s *Service) describeAlone(ctx context.Context, cfg plugin.Config) {
	p, err := plugin.New(cfg, plugin.Instance{Name: "describe-" + cfg.Name}, s.dir, s.log)
	if err != nil {
		s.log.Warn("plug-in cannot be described", "plugin", cfg.Name, "error", err)
		return
	}
	pctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Run(pctx) // it never fails
	}()
	defer func() { stop(); <-ended }()
	slow := time.Now().Add(time.Minute)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		_, _, err := s.describe(ctx, p)
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Now().After(slow) {
			s.log.Warn("plug-in does not say what it is, will ask again", "plugin", cfg.Name, "error", err)
			slow = slow.Add(time.Hour)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// describe asks a plug-in what it is and records that; it returns the version
// and the names of its features and parts.
func (s *Service) describe(ctx context.Context, p *plugin.Process) (version, features string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := p.Client().Describe(ctx, &adapterv1.DescribeRequest{})
	if err != nil {
		return "", "", err
	}
	if len(res.ConfigSchema) > maxConfig {
		return "", "", fault.New(fault.Unavailable, "plug-in %s has a configuration schema of %d bytes, at most %d are read", p.Name(), len(res.ConfigSchema), maxConfig)
	}
	parts := make([]string, 0, len(res.Parts))
	for _, part := range res.Parts {
		parts = append(parts, partName(part))
	}
	slices.Sort(parts)
	parts = slices.Compact(parts)
	version = clip(clean(res.Version), 64)
	return version, offerNames(res.Features, res.Parts), s.db.Tx(ctx, func(tx *db.Tx) error {
		return describe(ctx, tx, p.Name(), version, parts, clean(res.ConfigSchema))
	})
}

// reconcile starts and stops runners until they are those that should run.
func (s *Service) reconcile(ctx context.Context, wg *sync.WaitGroup, configs map[string]plugin.Config) error {
	var list []Instance
	restarts := map[string]int64{}
	registered := map[string]bool{}
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		clear(restarts)
		clear(registered)
		if list, err = readInstances(ctx, tx, ""); err != nil {
			return err
		}
		return tx.Query(ctx, `SELECT name, source, restarts FROM plugins`, nil, func(row db.Row) error {
			var name string
			var source Source
			var n int64
			err := row.Scan(&name, &source, &n)
			restarts[name], registered[name] = n, source == Registered
			return err
		})
	})
	if err != nil {
		return err
	}
	want := map[string]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range list {
		if !in.Enabled {
			continue
		}
		want[in.id] = true
		r := s.running[in.id]
		if r != nil && r.generation == in.generation {
			if n := restarts[in.Plugin]; n != r.restarts {
				r.restarts = n
				r.proc.Restart()
			}
			continue
		}
		if r != nil {
			r.stop()
			select {
			case <-r.done:
			default:
				continue // the next look starts its successor
			}
		}
		cfg, ok := configs[in.Plugin]
		if registered[in.Plugin] {
			cfg, ok = plugin.Config{Name: in.Plugin, Endpoint: in.Endpoint}, true
		}
		r, err := s.start(ctx, wg, in, cfg, ok)
		if err != nil {
			s.log.Warn("instance not started", "instance", in.id, "error", err)
			s.say(ctx, in.id, "", Down, err)
			continue
		}
		if r != nil {
			r.restarts = restarts[in.Plugin]
			s.running[in.id] = r
		}
	}
	for id, r := range s.running {
		if want[id] {
			continue
		}
		r.stop()
		select {
		case <-r.done:
			delete(s.running, id)
		default: // the next look does
		}
	}
	return nil
}

// start runs an instance until its runner is stopped; s.mu is held.
func (s *Service) start(ctx context.Context, wg *sync.WaitGroup, in Instance, cfg plugin.Config, known bool) (*runner, error) {
	if !known {
		return nil, fault.New(fault.Unavailable, "plug-in %q is neither built in nor configured here any more", in.Plugin)
	}
	inst := plugin.Instance{Name: in.Plugin}
	if in.made {
		config, err := s.box.Open(in.config, purpose(in.CenterID))
		if err != nil {
			return nil, err
		}
		inst = plugin.Instance{Name: "i-" + in.CenterID, Center: in.CenterID, Config: config}
	} else if in.Endpoint != "" {
		inst.Name = in.id
	}
	p, err := plugin.New(cfg, inst, s.dir, s.log)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	r := &runner{generation: in.generation, proc: p, stop: stop, done: make(chan struct{})}
	wg.Go(func() {
		defer close(r.done)
		var both sync.WaitGroup
		both.Go(func() { _ = p.Run(ctx) }) // it never fails
		both.Go(func() { s.serve(ctx, p, in.id, in.CenterID) })
		both.Wait()
	})
	return r, nil
}

// PluginPID is the process number of an instance that runs here by its name
// (a configured plug-in's name, or "i-" and the center), 0 while it has none.
func (s *Service) PluginPID(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		if r.proc.Instance().Name == name {
			return r.proc.PID()
		}
	}
	return 0
}

// InstanceChangedSubject is the subject of the event that an instance of a
// plug-in is in another state. It carries nothing.
const InstanceChangedSubject = "adapters.instance"

// say records an instance's state; err, if there is one, is the message.
func (s *Service) say(ctx context.Context, id, center, state string, why error) {
	message := ""
	if why != nil {
		message = reason(why)
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE instances SET state = $2, message = $3, changed_at = $4, ai_center_id = CASE WHEN made OR $5 = '' THEN ai_center_id ELSE $5 END
			WHERE instance_id = $1 AND (state <> $2 OR message <> $3 OR ai_center_id <> $5 AND $5 <> '')`, id, state, message, db.Micros(tx.Now), center)
		if err != nil || n == 0 {
			return err
		}
		return tx.Emit(ctx, InstanceChangedSubject, nil)
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("state of an instance not recorded", "instance", id, "state", state, "message", message, "error", err)
	}
}

// reason is an error as an operator should read it.
func reason(err error) string {
	var ce *connect.Error
	if errors.As(err, &ce) && ce.Message() != "" {
		if msg, ok := fault.Message(err); ok {
			return clip(clean(msg+": "+ce.Message()), maxMessage)
		}
		return clip(clean(ce.Message()), maxMessage)
	}
	return clip(clean(err.Error()), maxMessage)
}

// clip shortens text to at most n characters.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
