package alarms

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/budgets"
	"yunhe.dev/yunhe/internal/control"
	"yunhe.dev/yunhe/internal/equipment"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/poolops"
	"yunhe.dev/yunhe/internal/registry"
)

// facts are what causes are found in, as of one look.
type facts struct {
	at       time.Time
	centers  []*registry.Center
	notReady []registry.Node
	gateways []adapters.Gateway
	plugins  []adapters.Plugin
	unset    []*control.NodeControl
	unplaced []jobs.Unplaced
	refused  []jobs.Refusal
	atRisk   map[string][]jobs.Run // by center that is down
	waiting  []*control.Allocation
	reclaims []*control.Operation
	losing   map[string][]jobs.Run // by reclaim
	reached  []budgets.Standing
	pool     []poolops.Trouble
	poolDue  time.Time // when the clock may make more of them; zero: never
	network  *equipment.Found
	due      time.Time // when the clock alone may change what is wrong
}

// look gathers the facts.
func (s *Service) look(ctx context.Context) (*facts, error) {
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	f := &facts{at: snap.At, centers: snap.Centers, atRisk: map[string][]jobs.Run{}, losing: map[string][]jobs.Run{}}
	for token := ""; len(f.notReady) < most; {
		rows, next, err := s.reg.ListNodes(ctx, registry.NodeFilter{State: registry.NodeNotReady}, most, token)
		if err != nil {
			return nil, err
		}
		f.notReady = append(f.notReady, rows...)
		if token = next; token == "" {
			break
		}
	}
	if f.gateways, err = s.ad.Gateways(ctx); err != nil {
		return nil, err
	}
	if f.plugins, err = s.ad.Plugins(ctx); err != nil {
		return nil, err
	}
	if f.unset, err = s.control.Unset(ctx, f.at.Add(-s.cfg.UnsetAfter)); err != nil {
		return nil, err
	}
	if f.unplaced, err = s.jobs.UnplacedSince(ctx, f.at.Add(-s.cfg.UnplacedAfter), most); err != nil {
		return nil, err
	}
	if f.refused, err = s.jobs.RefusedSince(ctx, f.at.Add(-recently), most); err != nil {
		return nil, err
	}
	if f.waiting, err = s.control.Ungranted(ctx, f.at.Add(-s.cfg.WaitingAfter), f.at.Add(-recently)); err != nil {
		return nil, err
	}
	if f.reclaims, err = s.control.Reclaims(ctx); err != nil {
		return nil, err
	}
	for _, k := range f.centers {
		if down(k) != "" && k.Running+k.Waiting > 0 {
			if f.atRisk[k.ID], err = s.jobs.Runs(ctx, jobs.RunFilter{CenterID: k.ID}); err != nil {
				return nil, err
			}
		}
	}
	for _, o := range f.reclaims {
		if f.losing[o.ID], err = s.jobs.Runs(ctx, jobs.RunFilter{CenterID: o.CenterID, Node: o.Node}); err != nil {
			return nil, err
		}
	}
	if f.reached, err = s.budgets.Reached(ctx); err != nil {
		return nil, err
	}
	if f.pool, f.poolDue, err = s.pool.Troubles(ctx); err != nil {
		return nil, err
	}
	if f.network, err = s.equipment.Troubles(ctx, f.known(), f.nodes()); err != nil {
		return nil, err
	}
	return f, s.setDue(ctx, f)
}

// known are the centers that are there.
func (f *facts) known() map[string]bool {
	out := make(map[string]bool, len(f.centers))
	for _, k := range f.centers {
		out[k.ID] = true
	}
	return out
}

// nodes are those that are not ready.
func (f *facts) nodes() []equipment.NodeRef {
	out := make([]equipment.NodeRef, len(f.notReady))
	for i, n := range f.notReady {
		out[i] = equipment.NodeRef{Center: n.CenterID, Name: n.Name}
	}
	return out
}

// setDue finds the time from which on silence or waiting is an alarm that is
// none yet.
func (s *Service) setDue(ctx context.Context, f *facts) error {
	unplaced, err := s.jobs.UnplacedFrom(ctx, f.at.Add(-s.cfg.UnplacedAfter))
	if err != nil {
		return err
	}
	unset, waiting, err := s.control.DueFrom(ctx, f.at.Add(-s.cfg.UnsetAfter), f.at.Add(-s.cfg.WaitingAfter))
	if err != nil {
		return err
	}
	f.due = s.cfg.due(f.at, f.centers, unplaced, unset, waiting)
	if !f.poolDue.IsZero() && f.poolDue.Before(f.due) {
		f.due = f.poolDue
	}
	if next := f.network.Next; !next.IsZero() && next.Before(f.due) {
		f.due = next
	}
	return nil
}

// due is when the clock makes an alarm of what has waited since the times,
// which may be zero, or of a center that is not heard of. What begins to wait
// after the look at it is due after its whole time.
func (c Config) due(at time.Time, centers []*registry.Center, unplaced, unset, waiting time.Time) time.Time {
	due := at.Add(min(c.UnplacedAfter, c.UnsetAfter, c.WaitingAfter))
	sooner := func(since time.Time, after time.Duration) {
		// A moment later: longer than that is too long, as long is not.
		if t := since.Add(after + time.Millisecond); !since.IsZero() && t.Before(due) {
			due = t
		}
	}
	sooner(unplaced, c.UnplacedAfter)
	sooner(unset, c.UnsetAfter)
	sooner(waiting, c.WaitingAfter)
	for _, k := range centers {
		if !k.Drained && at.Sub(k.LastSeen) <= registry.SeenWithin {
			sooner(k.LastSeen, registry.SeenWithin)
		}
	}
	return due
}

// down says what is wrong with a center, "" if nothing is. One that an
// operator took out of use is not down, and neither is one that was never
// heard of: nothing has failed there yet.
func down(k *registry.Center) string {
	switch {
	case k.Drained || k.LastSeen.IsZero() || k.LastSeen.UnixMicro() == 0:
		return ""
	case k.Status == registry.Unknown:
		return "it has not been heard of for " + registry.SeenWithin.String()
	case k.Status == registry.Unavailable:
		return "it says that it is down, or its gateway was removed"
	}
	return ""
}

// causes are what is wrong, by key. A cause names its parent if that is one.
func (f *facts) causes() map[string]*cause {
	out := map[string]*cause{}
	add := func(c cause) {
		if out[c.parent] == nil {
			c.parent = ""
		}
		if out[c.key] == nil {
			out[c.key] = &c
		}
	}
	center := func(id string) string { return "center/" + id }
	for _, k := range f.centers {
		if why := down(k); why != "" {
			text := fmt.Sprintf("center %s: %s", k.ID, why)
			if n := k.Running + k.Waiting; n > 0 {
				text += fmt.Sprintf("; %d runs are there", n)
			}
			add(cause{key: center(k.ID), kind: CenterDown, severity: Critical, About: About{CenterID: k.ID}, message: text})
		}
	}
	for _, g := range f.gateways {
		if g.Connected || g.LastSeen.IsZero() || g.LastSeen.UnixMicro() == 0 {
			continue // one that has not been here yet has not failed
		}
		add(cause{key: "gateway/" + g.CenterID, parent: center(g.CenterID), kind: GatewaySilent, severity: Major, About: About{CenterID: g.CenterID, InstanceID: adapters.GatewayPlugin + ":" + g.CenterID},
			message: "the gateway of center " + g.CenterID + " is silent"})
	}
	for _, p := range f.plugins {
		if p.Name == adapters.GatewayPlugin {
			continue
		}
		for _, in := range p.Instances {
			bad := in.State == adapters.Down || in.State == adapters.Trouble
			if in.Enabled && bad {
				at := About{CenterID: in.CenterID, InstanceID: p.Name + ":" + in.CenterID}
				add(cause{key: "instance/" + p.Name + "/" + in.CenterID + in.Endpoint, parent: center(in.CenterID), kind: InstanceTrouble, severity: Major, About: at,
					message: fmt.Sprintf("plug-in %s at center %s is %s: %s", p.Name, in.CenterID, in.State, in.Message)})
			}
		}
	}
	f.equipment(out, add, center)
	for _, n := range f.notReady[:min(len(f.notReady), most)] {
		parent := center(n.CenterID)
		if out[parent] == nil {
			parent = f.network.Behind[equipment.NodeRef{Center: n.CenterID, Name: n.Name}]
		}
		add(cause{key: "node/" + n.CenterID + "/" + n.Name, parent: parent, kind: NodeNotReady, severity: Major, About: About{CenterID: n.CenterID, Node: n.Name},
			message: strings.TrimSuffix(fmt.Sprintf("node %s of center %s is not ready: %s", n.Name, n.CenterID, n.Reason), ": ")})
	}
	for _, n := range f.unset {
		add(cause{key: "set/" + n.CenterID + "/" + n.Node, parent: center(n.CenterID), kind: NodeNotSet, severity: Warning, About: About{CenterID: n.CenterID, Node: n.Node},
			message: fmt.Sprintf("node %s of center %s is not as it was asked to be: %s", n.Node, n.CenterID, n.Problem)})
	}
	for i := range f.reached {
		b := &f.reached[i]
		c := cause{key: "budget/" + b.ID + "/" + b.From.Format(time.RFC3339), kind: BudgetReached, severity: Warning, About: About{TenantID: b.Tenant}, message: b.Alarm()}
		if b.Reached == 100 {
			c.severity = Major
		}
		if b.Tenant == "" {
			c.TenantID = allTenants
		}
		add(c)
	}
	f.work(out, add, center)
	for i, t := range f.pool {
		if i < most {
			add(cause{key: t.Key, parent: t.Parent, kind: PoolRule + Kind(t.Rule.Kind), severity: Severity(t.Rule.Severity), About: About{Node: t.Node, TenantID: t.Tenant}, message: t.Message})
		}
	}
	return out
}

// equipment adds what is wrong with the network, at most so many of a kind.
func (f *facts) equipment(found map[string]*cause, add func(cause), center func(string) string) {
	of := map[equipment.RuleKind]int{}
	for _, t := range f.network.Troubles {
		if of[t.Rule.Kind]++; of[t.Rule.Kind] > most {
			continue
		}
		parent := t.Parent
		if found[parent] == nil {
			parent = center(t.Center)
		}
		add(cause{key: t.Key, parent: parent, kind: EquipmentRule + Kind(t.Rule.Kind), severity: Severity(t.Rule.Severity), About: About{CenterID: t.Center, Equipment: t.Name, TenantID: t.Tenant}, message: t.Message})
	}
}

// allTenants is whose an alarm is that only who may see all tenants sees: no
// tenant has this ID.
const allTenants = "-"

// work adds what is wrong with jobs and allocations.
func (f *facts) work(found map[string]*cause, add func(cause), center func(string) string) {
	for _, o := range f.reclaims {
		where, key := "center "+o.CenterID, "reclaim/"+o.CenterID+"/"+o.Node
		if o.Node != "" {
			where = "node " + o.Node + " of " + where
		}
		when := ""
		if !o.StopAt.IsZero() {
			when = " at " + o.StopAt.UTC().Format(time.RFC3339)
		}
		add(cause{key: key, parent: center(o.CenterID), kind: ReclaimAnnounced, severity: Warning, About: About{CenterID: o.CenterID, Node: o.Node}, message: where + " is being reclaimed"})
		eachJob(f.losing[o.ID], func(r jobs.Run, n int) {
			add(cause{key: "losing/" + r.JobID + "/" + key, parent: key, kind: JobAtRisk, severity: Warning, About: About{CenterID: o.CenterID, Node: o.Node, JobID: r.JobID, TenantID: r.TenantID},
				message: fmt.Sprintf("%d runs of job %s are stopped%s: %s is being reclaimed", n, r.JobName, when, where)})
		})
	}
	for _, k := range f.centers {
		eachJob(f.atRisk[k.ID], func(r jobs.Run, n int) {
			add(cause{key: "risk/" + r.JobID + "/" + k.ID, parent: center(k.ID), kind: JobAtRisk, severity: Major, About: About{CenterID: k.ID, JobID: r.JobID, TenantID: r.TenantID},
				message: fmt.Sprintf("%d runs of job %s are at center %s, which is down", n, r.JobName, k.ID)})
		})
	}
	for _, a := range f.waiting {
		text := "allocation " + a.ID + " is not granted: " + a.Reason
		add(cause{key: "allocation/" + a.ID, parent: center(a.CenterID), kind: AllocationNotGranted, severity: Warning, About: About{CenterID: a.CenterID, AllocationID: a.ID, TenantID: a.TenantID}, message: text})
	}
	for _, j := range f.unplaced {
		c := cause{key: "unplaced/" + j.JobID, kind: JobUnplaced, severity: Warning, About: About{JobID: j.JobID, AllocationID: j.AllocationID, TenantID: j.TenantID},
			message: fmt.Sprintf("job %s has waited for a place since %s", j.Name, j.Since.UTC().Format(time.RFC3339))}
		if j.AllocationID != "" {
			c.parent = "allocation/" + j.AllocationID
		} else if len(j.Centers) > 0 && !slices.ContainsFunc(j.Centers, func(id string) bool { return found[center(id)] == nil }) {
			c.parent, c.CenterID = center(j.Centers[0]), j.Centers[0] // all that it may run at are down
		}
		add(c)
	}
	for _, r := range f.refused {
		add(cause{key: "refused/" + r.JobID + "/" + r.CenterID, parent: center(r.CenterID), kind: PlacementRefused, severity: Warning, About: About{CenterID: r.CenterID, JobID: r.JobID, TenantID: r.TenantID},
			message: fmt.Sprintf("center %s did not take a run of job %s: %s", r.CenterID, r.Name, r.Message)})
	}
}

// eachJob calls f once for each job of the runs, at most [most] of them.
func eachJob(runs []jobs.Run, f func(r jobs.Run, n int)) {
	count := map[string]int{}
	for _, r := range runs {
		count[r.JobID]++
	}
	var seen []string
	for _, r := range runs {
		if len(seen) < most && !slices.Contains(seen, r.JobID) {
			seen = append(seen, r.JobID)
			f(r, count[r.JobID])
		}
	}
}
