package adapters

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/plugin"
	"yunhe.dev/yunhe/internal/registry"
)

// Source says where a plug-in comes from.
type Source int64

// The sources; the numbers are stored.
const (
	BuiltIn    Source = 1
	Configured Source = 2
	Registered Source = 3
)

// Known is a plug-in this process knows without the database.
type Known struct {
	plugin.Config
	Source Source
	// Of a plug-in that is no process of its own, the compute gateway: what
	// others say when they are asked.
	Version string
	Parts   []string
	Schema  string
}

// GatewayPlugin names the plug-in whose instances are the compute gateways.
const GatewayPlugin = "gateway"

// Plugin as listed.
type Plugin struct {
	Name, Version    string
	Parts, Endpoints []string
	Source           Source
	Schema           string
	Count            int
	State            string
	Instances        []Instance
}

// Instance is a connection to a center through a plug-in.
type Instance struct {
	Plugin, CenterID, Endpoint string
	// State is one of the states below, Message what an operator should know.
	State, Message, Version string
	Enabled                 bool
	CreatedAt, ChangedAt    time.Time
	Origin                  Origin
	Config                  string // JSON with secrets hidden; GetInstance only

	id         string
	made       bool // through the API; the others follow from plug-ins
	config     []byte
	generation int64
}

// Origin says where an instance comes from; the numbers are the API's.
type Origin int

// The origins.
const (
	FromAPI           Origin = 1
	FromConfiguration Origin = 2
	FromAddress       Origin = 3
	FromJoining       Origin = 4
)

// States of an instance, from the best to the worst.
const (
	Up       = "up"       // the center is reached
	Standby  = "standby"  // another instance serves the center
	Disabled = "disabled" // out of service
	Starting = "starting" // not reached yet
	Trouble  = "trouble"  // the plug-in answers, its center does not
	Down     = "down"     // the plug-in does not answer
	idle     = "idle"     // of a plug-in without instances
)

var badness = []string{Up, Standby, Disabled, Starting, Trouble, Down}

const (
	maxConfig    = 256 << 10
	maxEndpoints = 128
	maxMessage   = 1000
)

// Plugins lists the plug-ins by name, without schemas and instances.
func (s *Service) Plugins(ctx context.Context) ([]Plugin, error) { return s.plugins(ctx, "") }

// GetPlugin returns a plug-in with everything; fault.NotFound if there is none.
func (s *Service) GetPlugin(ctx context.Context, name string) (Plugin, error) {
	list, err := s.plugins(ctx, name)
	if err == nil && len(list) == 0 {
		err = noPlugin(name)
	}
	if err != nil {
		return Plugin{}, err
	}
	return list[0], nil
}

func noPlugin(name string) error { return fault.New(fault.NotFound, "there is no plug-in %q", name) }

// plugins reads the named plug-in, or all ("").
func (s *Service) plugins(ctx context.Context, name string) ([]Plugin, error) {
	var out []Plugin
	err := s.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		err := tx.Query(ctx, `SELECT name, source, endpoints, version, parts, config_schema FROM plugins WHERE $1 = '' OR name = $1 ORDER BY name`, []any{name}, func(row db.Row) error {
			var p Plugin
			var endpoints, parts string
			if err := row.Scan(&p.Name, &p.Source, &endpoints, &p.Version, &parts, &p.Schema); err != nil {
				return err
			}
			p.Endpoints, p.Parts = strings.Fields(endpoints), strings.Fields(parts)
			out = append(out, p)
			return nil
		})
		if err != nil {
			return err
		}
		list, err := readInstances(ctx, tx, name)
		if err != nil {
			return err
		}
		for i := range out {
			for _, in := range list {
				if in.Plugin == out[i].Name {
					switch {
					case in.made:
						in.Origin = FromAPI
					case out[i].Source == Registered:
						in.Origin = FromAddress
					default:
						in.Origin = FromConfiguration
					}
					out[i].Instances = append(out[i].Instances, in)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		if out[i].Name == GatewayPlugin {
			if out[i].Instances, err = s.gatewayInstances(ctx); err != nil {
				return nil, err
			}
		}
		out[i].Count, out[i].State = len(out[i].Instances), idle
		for j, in := range out[i].Instances {
			if j == 0 || slices.Index(badness, in.State) > slices.Index(badness, out[i].State) {
				out[i].State = in.State
			}
		}
	}
	return out, nil
}

// gatewayInstances shows the compute gateways as instances.
func (s *Service) gatewayInstances(ctx context.Context) ([]Instance, error) {
	gs, err := s.Gateways(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Instance, 0, len(gs))
	for _, g := range gs {
		in := Instance{Plugin: GatewayPlugin, CenterID: g.CenterID, Version: g.Version, Enabled: true, CreatedAt: g.JoinedAt, ChangedAt: g.LastSeen, State: Up, Origin: FromJoining}
		if !g.Connected {
			in.State, in.Message = Down, "it has not been heard of for "+registry.SeenWithin.String()
		}
		out = append(out, in)
	}
	return out, nil
}

const instanceColumns = `instance_id, plugin, ai_center_id, endpoint, made, config, enabled, generation, state, message, version, created_at, changed_at`

// readInstances reads those of a plug-in, or all (""), by ID.
func readInstances(ctx context.Context, tx *db.Tx, plugin string) ([]Instance, error) {
	var out []Instance
	err := tx.Query(ctx, `SELECT `+instanceColumns+` FROM instances WHERE $1 = '' OR plugin = $1 ORDER BY instance_id`, []any{plugin}, func(row db.Row) error {
		var in Instance
		var created, changed int64
		err := row.Scan(&in.id, &in.Plugin, &in.CenterID, &in.Endpoint, &in.made, &in.config, &in.Enabled, &in.generation, &in.State, &in.Message, &in.Version, &created, &changed)
		in.CreatedAt, in.ChangedAt = db.Time(created), db.Time(changed)
		if !in.Enabled {
			in.State = Disabled
		}
		out = append(out, in)
		return err
	})
	return out, err
}

func insertInstance(ctx context.Context, tx *db.Tx, in Instance) error {
	now := db.Micros(tx.Now)
	return tx.Insert(ctx, "instances", strings.Split(strings.ReplaceAll(instanceColumns, " ", ""), ","),
		[][]any{{in.id, in.Plugin, in.CenterID, in.Endpoint, in.made, in.config, in.Enabled, int64(1), Starting, "", "", now, now}})
}

func madeID(plugin, center string) string { return plugin + ":" + center }

func purpose(center string) string { return "instance " + center }

// CreateInstance connects a center through a plug-in. It returns
// fault.NotFound for an unknown plug-in, fault.Conflict for a center that is
// connected already, and fault.Invalid for a configuration that the plug-in's
// schema refuses.
func (s *Service) CreateInstance(ctx context.Context, name, center, config string) (Instance, error) {
	var c core.Check
	c.ID("ai_center_id", center)
	if err := c.Err(); err != nil {
		return Instance{}, err
	}
	value, err := parseConfig("config", config)
	if err != nil {
		return Instance{}, err
	}
	var out Instance
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := checkConfig(ctx, tx, name, value); err != nil {
			return err
		}
		if err := s.checkFree(ctx, tx, center); err != nil {
			return err
		}
		in := Instance{id: madeID(name, center), Plugin: name, CenterID: center, made: true, Enabled: true, config: s.box.Seal([]byte(config), purpose(center))}
		if err := insertInstance(ctx, tx, in); err != nil {
			return fmt.Errorf("insert instance %s: %w", in.id, err)
		}
		if s.joined != nil {
			if err := s.joined(ctx, tx, center, "an instance of plug-in "+name+" was made"); err != nil {
				return err
			}
		}
		var err error
		out, err = getMade(ctx, tx, name, center)
		return err
	})
	s.wakeInstances()
	return out, err
}

// checkFree fails if something serves the center already.
func (s *Service) checkFree(ctx context.Context, tx *db.Tx, center string) error {
	var by string
	found, err := tx.Get(ctx, `SELECT plugin FROM instances WHERE ai_center_id = $1`, []any{center}, &by)
	if err == nil && !found {
		by = GatewayPlugin
		found, err = tx.Get(ctx, `SELECT public_key FROM gateways WHERE ai_center_id = $1 AND NOT removed`, []any{center}, new(string))
	}
	if err == nil && found {
		return fault.Wrap(fault.Conflict, fault.Fields(fault.Field{Path: "ai_center_id", Problem: "is connected already"}), "center %q is connected already, through %s", center, by)
	}
	return err
}

// getMade reads an instance that was made through the API.
func getMade(ctx context.Context, tx *db.Tx, name, center string) (Instance, error) {
	list, err := readInstances(ctx, tx, name)
	if err != nil {
		return Instance{}, err
	}
	for _, in := range list {
		if in.CenterID != center {
			continue
		}
		in.Origin = FromAPI
		if !in.made {
			return in, fault.New(fault.Conflict, "the instance of plug-in %q at center %q comes from the platform's configuration or a registered address: change it there", name, center)
		}
		return in, nil
	}
	return Instance{}, fault.New(fault.NotFound, "plug-in %q has no instance at center %q", name, center)
}

// UpdateInstance changes a configuration, as a whole or by a merge patch, or takes an
// instance out of service; nil leaves things as they are.
func (s *Service) UpdateInstance(ctx context.Context, name, center string, config, patch *string, enabled *bool) (Instance, error) {
	if config != nil && patch != nil {
		return Instance{}, fault.Fields(fault.Field{Path: "config_patch", Problem: "must not be given together with config"})
	}
	var out Instance
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in, err := getMade(ctx, tx, name, center)
		if err != nil {
			return err
		}
		if config != nil || patch != nil {
			next, err := s.changedConfig(in, config, patch)
			if err != nil {
				return err
			}
			if err := checkConfig(ctx, tx, name, next); err != nil {
				return err
			}
			b, err := json.Marshal(next)
			if err != nil {
				return fmt.Errorf("encode configuration: %w", err)
			}
			in.config = s.box.Seal(b, purpose(center))
		}
		if enabled != nil {
			in.Enabled = *enabled
		}
		_, err = tx.Exec(ctx, `UPDATE instances SET config = $2, enabled = $3, generation = generation + 1, state = $4, message = '', changed_at = $5 WHERE instance_id = $1`,
			in.id, in.config, in.Enabled, Starting, db.Micros(tx.Now))
		if err != nil {
			return fmt.Errorf("update instance %s: %w", in.id, err)
		}
		if !in.Enabled {
			if err := s.markDown(ctx, tx, center); err != nil {
				return err
			}
		}
		out, err = getMade(ctx, tx, name, center)
		return err
	})
	s.wakeInstances()
	return out, err
}

// DeleteInstance disconnects a center. What runs there goes on.
func (s *Service) DeleteInstance(ctx context.Context, name, center string) error {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in, err := getMade(ctx, tx, name, center)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM instances WHERE instance_id = $1`, in.id); err != nil {
			return fmt.Errorf("delete instance %s: %w", in.id, err)
		}
		return s.markDown(ctx, tx, center)
	})
	s.wakeInstances()
	return err
}

// markDown marks a center that may never have been there.
func (s *Service) markDown(ctx context.Context, tx *db.Tx, center string) error {
	if err := s.reg.MarkDownTx(ctx, tx, center); fault.KindOf(err) != fault.NotFound {
		return err
	}
	return nil
}

// SetPlugin registers a plug-in that runs elsewhere, or changes where.
func (s *Service) SetPlugin(ctx context.Context, name string, endpoints []string) (Plugin, error) {
	var c core.Check
	c.ID("name", name)
	if n := len(endpoints); n < 1 || n > maxEndpoints {
		c.Add("endpoints", "must have 1 to %d addresses, got %d", maxEndpoints, n)
	}
	seen := map[string]bool{}
	for i, e := range endpoints {
		path := fmt.Sprintf("endpoints[%d]", i)
		u, err := url.Parse(e)
		if len(e) > 256 || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || strings.ContainsAny(e, " \t\n") {
			c.Add(path, "must be http(s)://host:port of at most 256 characters, got %.300q", e)
		} else if seen[e] {
			c.Add(path, "is there twice: %s", e)
		}
		seen[e] = true
	}
	if err := c.Err(); err != nil {
		return Plugin{}, err
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		var source Source
		found, err := tx.Get(ctx, `SELECT source FROM plugins WHERE name = $1`, []any{name}, &source)
		if err != nil {
			return err
		}
		if found && source != Registered {
			return fault.New(fault.Conflict, "there is a plug-in %q already, which is not a registered one", name)
		}
		if _, err := tx.Exec(ctx, `INSERT INTO plugins (name, source, endpoints, version, parts, config_schema, restarts, created_at) VALUES ($1, $2, $3, '', '', '', 0, $4)
			ON CONFLICT (name) DO UPDATE SET endpoints = $3`, name, int64(Registered), strings.Join(endpoints, " "), db.Micros(tx.Now)); err != nil {
			return fmt.Errorf("store plug-in %s: %w", name, err)
		}
		return s.setEndpoints(ctx, tx, name, endpoints)
	})
	if err != nil {
		return Plugin{}, err
	}
	s.wakeInstances()
	return s.GetPlugin(ctx, name)
}

// setEndpoints makes a plug-in's instances those of its addresses.
func (s *Service) setEndpoints(ctx context.Context, tx *db.Tx, name string, endpoints []string) error {
	list, err := readInstances(ctx, tx, name)
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for _, in := range list {
		if in.made {
			continue
		}
		if have[in.Endpoint] = true; slices.Contains(endpoints, in.Endpoint) {
			continue
		}
		if err := s.drop(ctx, tx, in); err != nil {
			return err
		}
	}
	for _, e := range endpoints {
		if have[e] {
			continue
		}
		id := name
		if e != "" {
			id += "@" + e
		}
		if err := insertInstance(ctx, tx, Instance{id: id, Plugin: name, Endpoint: e, Enabled: true}); err != nil {
			return fmt.Errorf("insert instance %s: %w", id, err)
		}
	}
	return nil
}

// drop deletes an instance; its center is down unless another stands by.
func (s *Service) drop(ctx context.Context, tx *db.Tx, in Instance) error {
	if _, err := tx.Exec(ctx, `DELETE FROM instances WHERE instance_id = $1`, in.id); err != nil {
		return fmt.Errorf("delete instance %s: %w", in.id, err)
	}
	if in.CenterID == "" {
		return nil
	}
	others, err := tx.Get(ctx, `SELECT instance_id FROM instances WHERE ai_center_id = $1`, []any{in.CenterID}, new(string))
	if err != nil || others {
		return err
	}
	return s.markDown(ctx, tx, in.CenterID)
}

// DeletePlugin forgets a registered plug-in; fault.Conflict for others.
func (s *Service) DeletePlugin(ctx context.Context, name string) error {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		var source Source
		found, err := tx.Get(ctx, `SELECT source FROM plugins WHERE name = $1`, []any{name}, &source)
		switch {
		case err != nil:
			return err
		case !found:
			return noPlugin(name)
		case source != Registered:
			return fault.New(fault.Conflict, "plug-in %q is built in or configured and cannot be deleted; its instances can", name)
		}
		if err := s.setEndpoints(ctx, tx, name, nil); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM plugins WHERE name = $1`, name)
		return err
	})
	s.wakeInstances()
	return err
}

// RestartPlugin starts the processes of a plug-in anew.
func (s *Service) RestartPlugin(ctx context.Context, name string) error {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE plugins SET restarts = restarts + 1 WHERE name = $1 AND name <> $2`, name, GatewayPlugin)
		if err == nil && n == 0 {
			if name == GatewayPlugin {
				return fault.New(fault.Invalid, "compute gateways are started where they run, not by the platform")
			}
			return noPlugin(name)
		}
		return err
	})
	s.wakeInstances()
	return err
}
