package access

import (
	"context"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/registry"
)

// Record is the access of a resource (Table 12).
type Record struct {
	ResourceID, Type, Name string
	Source                 string // as rules call it
	Protocol               string
	Plugin, Version        string
	Measured               registry.Measured
	Figures                *monitor.Figures // nil: none
	Status                 Status
	Health                 Health
	HealthMessage          string
	SyncedAt               time.Time // zero: never
	Conversions            []Meta
	Guide                  string
	Class                  string
	Log                    []Step
	CreatedAt              time.Time
}

// protocols by plug-in; others speak the plug-in contract.
var protocols = map[string]string{adapters.GatewayPlugin: "nats", "kubernetes": "https+kubernetes", "slurm": "https+slurmrestd"}

// guide is the path of the console by which a center of a plug-in is connected.
func guide(plugin string) string {
	if plugin == "" {
		return "/connect"
	}
	return "/connect?plugin=" + plugin
}

// centerRecord is the record of a center; v knows it.
func (v *view) centerRecord(lib *library, k *registry.Center, status Status) Record {
	r := Record{ResourceID: inventory.CenterID(k.ID), Type: "center", Name: k.Name, Source: v.source(k), Plugin: k.Adapter, Status: status, Measured: k.Measured,
		Figures: v.figures[k.ID], SyncedAt: k.LastSeen, CreatedAt: k.CreatedAt, Guide: guide(k.Adapter)}
	switch {
	case protocols[k.Adapter] != "":
		r.Protocol = protocols[k.Adapter]
	case k.Adapter == "":
		r.Protocol = "none"
	default:
		r.Protocol = "grpc"
	}
	in, reached := v.reached[k.ID]
	if reached {
		r.Version = in.Version
	}
	n := v.summaries[k.ID]
	switch {
	case k.Drained:
		r.Health, r.HealthMessage = OutOfUse, "an operator took it out of use"
	case k.LastSeen.IsZero():
		r.Health, r.HealthMessage = HealthUnknown, "it was never heard of"
	case k.Status != registry.Available:
		r.Health, r.HealthMessage = Unreachable, in.Message
	case reached && in.State != adapters.Up && in.State != adapters.Standby:
		r.Health, r.HealthMessage = Degraded, in.Message
	case n != nil && n.NotReady > 0:
		r.Health, r.HealthMessage = Degraded, itoa(int(n.NotReady))+" of "+itoa(int(n.Total()))+" nodes are not ready"
	default:
		r.Health = Healthy
	}
	for _, c := range lib.converter(k.Adapter).list {
		r.Conversions = append(r.Conversions, c.Meta)
	}
	r.Class = classify(status, v.facts(k))
	return r
}

var resourceHealth = map[inventory.State]Health{inventory.Available: Healthy, inventory.Unavailable: Unreachable, inventory.Maintenance: OutOfUse}

func resourceRecord(x *inventory.Resource, status Status) Record {
	r := Record{ResourceID: x.ID, Type: x.Type, Name: x.Name, Source: "other", Protocol: "none", Status: status, Health: HealthUnknown, SyncedAt: x.UpdatedAt,
		CreatedAt: x.CreatedAt, Guide: "/connect"}
	if kind, ok := x.Attributes["cloud_platform_type"].(string); ok {
		r.Source = cloudSource(kind)
	}
	if endpoint, ok := x.Attributes["endpoint"].(string); ok {
		r.Protocol, _, _ = strings.Cut(endpoint, ":")
	}
	if h, ok := resourceHealth[x.State]; ok {
		r.Health = h
	}
	return r
}

// Records returns a page of the access records by ID, without logs: those of
// centers, then of what is registered; status 0: all. It returns fault.Invalid.
func (s *Service) Records(ctx context.Context, status Status, size int32, token string) (rows []Record, next string, err error) {
	var c core.Check
	if c.Range("compliance", int64(status), 0, int64(Unknown)); c.Err() != nil {
		return nil, "", c.Err()
	}
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 2)
	if err != nil {
		return nil, "", err
	}
	if key == nil {
		key = []string{"center", ""}
	}
	if !slices.Contains([]string{"center", "resource", "report"}, key[0]) {
		return nil, "", fault.Fields(fault.Field{Path: "page_token", Problem: "is not a token of this list; leave it empty to start anew"})
	}
	lib, err := s.load(ctx)
	if err != nil {
		return nil, "", err
	}
	if key[0] == "center" {
		known, err := s.statuses(ctx, ofCenters)
		if err != nil {
			return nil, "", err
		}
		v, err := s.look(ctx, nil)
		if err != nil {
			return nil, "", err
		}
		for _, k := range v.snap.Centers {
			st := known(inventory.CenterID(k.ID))
			if k.ID <= key[1] && key[1] != "" || status != 0 && st != status {
				continue
			}
			if len(rows) == n {
				return rows, core.PageToken("center", strings.TrimPrefix(rows[n-1].ResourceID, "center:")), nil
			}
			rows = append(rows, v.centerRecord(lib, k, st))
		}
		if key = []string{"resource", ""}; status != 0 && status != Unknown {
			key[0] = "report"
		}
		if len(rows) == n {
			return rows, core.PageToken(key...), nil
		}
	}
	if key[0] == "report" {
		more, next, err := s.reported(ctx, status, n-len(rows), key[1])
		return append(rows, more...), next, err
	}
	for token := key[1]; len(rows) < n; {
		page, more, err := s.inv.List(platform(ctx), inventory.Filter{}, int32(n-len(rows)), token)
		if err != nil {
			return nil, "", err
		}
		ids := make([]string, len(page))
		for i := range page {
			ids[i] = page[i].ID
		}
		known, err := s.statuses(ctx, func(tx *db.Tx) (string, any) {
			in, arg := tx.In(1, ids)
			return "resource_id " + in, arg
		})
		if err != nil {
			return nil, "", err
		}
		for i := range page {
			if !registered(page[i].ID) { // what is registered comes first
				return rows, "", nil
			}
			if st := known(page[i].ID); status == 0 || st == status {
				rows = append(rows, resourceRecord(&page[i], st))
			}
		}
		if token = more; more == "" {
			return rows, "", nil
		}
		if len(rows) == n {
			return rows, core.PageToken("resource", more), nil
		}
	}
	return rows, core.PageToken("resource", ""), nil
}

// reported returns a page of the records of what is registered and was judged
// to have the status.
func (s *Service) reported(ctx context.Context, status Status, n int, after string) (rows []Record, next string, err error) {
	var reports []Report
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		reports, err = readReports(ctx, tx, reportFilter{after: after, status: status, kind: Registered, limit: n + 1})
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if len(reports) > n {
		reports = reports[:n]
		next = core.PageToken("report", reports[n-1].ResourceID)
	}
	ids := make([]string, len(reports))
	for i := range reports {
		ids[i] = reports[i].ResourceID
	}
	found, err := s.inv.Read(platform(ctx), ids)
	if err != nil {
		return nil, "", err
	}
	for i := range reports {
		if x, is := found[reports[i].ResourceID]; is { // else it was deleted meanwhile
			rows = append(rows, resourceRecord(&x, reports[i].Status))
		}
	}
	return rows, next, nil
}

func ofCenters(*db.Tx) (string, any) { return "kind = $1", int64(Center) }

// statuses returns what the stored reports say of the resources that
// where means, a condition with one parameter.
func (s *Service) statuses(ctx context.Context, where func(tx *db.Tx) (string, any)) (func(id string) Status, error) {
	known := map[string]Status{}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		clear(known)
		cond, arg := where(tx)
		return tx.Query(ctx, `SELECT resource_id, status FROM access_reports WHERE `+cond, []any{arg}, func(row db.Row) error {
			var id string
			var st Status
			err := row.Scan(&id, &st)
			known[id] = st
			return err
		})
	})
	return func(id string) Status {
		if st, ok := known[id]; ok {
			return st
		}
		return Unknown
	}, err
}

// Record returns the access of a center or a registered resource, with its
// log. It returns fault.Invalid and fault.NotFound.
func (s *Service) Record(ctx context.Context, id string) (*Record, error) {
	rep, _, v, err := s.report(ctx, id)
	if err != nil {
		return nil, err
	}
	var r Record
	id = rep.ResourceID
	switch rep.Kind {
	case Center:
		lib, err := s.load(ctx)
		if err != nil {
			return nil, err
		}
		r = v.centerRecord(lib, v.center(strings.TrimPrefix(id, "center:")), rep.Status)
	case Registered:
		x, err := s.inv.Get(platform(ctx), id)
		if err != nil {
			return nil, err
		}
		r = resourceRecord(&x, rep.Status)
	default:
		return nil, fault.New(fault.NotFound, "node %s has no access of its own: see that of its center", id)
	}
	if r.Log, err = s.steps(ctx, id); err != nil {
		return nil, err
	}
	// The call that registers many names none of them.
	if rep.Kind == Registered && len(r.Log) < maxSteps && !slices.ContainsFunc(r.Log, func(st Step) bool { return st.Step == "registered" }) {
		r.Log = append(r.Log, Step{At: r.CreatedAt, Step: "registered", Message: "with others in one call", Outcome: "OK"})
	}
	return &r, nil
}

// apiSteps are the words for calls of the API that are steps of an access.
var apiSteps = map[string]string{
	"yunhe.adapters.v1.AdapterService/CreateJoinToken": "join_token", "yunhe.adapters.v1.AdapterService/RemoveGateway": "removed",
	"yunhe.adapters.v1.AdapterService/CreateInstance": "configured", "yunhe.adapters.v1.AdapterService/UpdateInstance": "configured",
	"yunhe.adapters.v1.AdapterService/DeleteInstance": "removed", "yunhe.registry.v1.RegistryService/CreateCenter": "registered",
	"yunhe.registry.v1.RegistryService/DeleteCenter": "removed", "yunhe.registry.v1.ResourceService/CreateResource": "registered",
	"yunhe.registry.v1.ResourceService/UpdateResource": "configured", "yunhe.registry.v1.ResourceService/DeleteResource": "removed",
}

// steps returns the log of an access, latest first: what is in the audit
// trail about it, and what happened without a call.
func (s *Service) steps(ctx context.Context, id string) (out []Step, err error) {
	subject := strings.TrimPrefix(id, "center:")
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = readSteps(ctx, tx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	events, _, err := s.ids.ListEvents(ctx, identity.EventFilter{Subject: subject}, maxSteps, "")
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		word := apiSteps[e.Method]
		if word == "" {
			_, word, _ = strings.Cut(e.Method, "/")
		}
		out = append(out, Step{At: e.At, Step: word, UserID: e.UserID, Outcome: e.Outcome})
	}
	slices.SortStableFunc(out, func(a, b Step) int { return b.At.Compare(a.At) })
	return out[:min(len(out), maxSteps)], nil
}

// Note records a step of a center's access that is no call of the API, if it
// is another than the last: "connected", "trouble", "down", "refused" and so
// on. It is for what happens anyway: a failure is logged.
func (s *Service) Note(ctx context.Context, centerID, step, message string) {
	id := inventory.CenterID(centerID)
	text := step + "\n" + message
	s.mu.Lock()
	same := s.said[id] == text
	if len(s.said) > 10_000 {
		clear(s.said)
	}
	s.said[id] = text
	s.mu.Unlock()
	if same {
		return
	}
	outcome := "OK"
	switch step {
	case "trouble", "down":
		outcome = fault.Unavailable.String()
	case "refused":
		outcome = fault.Invalid.String()
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		last, err := readSteps(ctx, tx, id)
		if err != nil {
			return err
		}
		if len(last) > 0 && last[0].Step == step && last[0].Message == message && step != "connected" {
			return nil // as before this process started
		}
		return writeStep(ctx, tx, id, Step{Step: step, Message: message, Outcome: outcome})
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("step of an access not recorded", "ai_center_id", centerID, "step", step, "error", err)
	}
}

// Classes returns the classes of compute, with how many centers are of each.
func (s *Service) Classes(ctx context.Context) ([]Class, error) {
	known, err := s.statuses(ctx, ofCenters)
	if err != nil {
		return nil, err
	}
	v, err := s.look(ctx, nil)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(classes())
	for _, k := range v.snap.Centers {
		id := classify(known(inventory.CenterID(k.ID)), v.facts(k))
		if i := slices.IndexFunc(out, func(c Class) bool { return c.ID == id }); i >= 0 {
			out[i].Centers++
		}
	}
	return out, nil
}
