package measurement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/registry"
)

const (
	// nodeWait is how long the job of a scheduled run may wait for its node.
	nodeWait = 5 * time.Minute
	// roomRetry is how long a node without room is left alone.
	roomRetry = 10 * time.Minute
	// failRetry is how long a node is left alone after a run failed; it doubles
	// with each that fails, up to failRetryMost.
	failRetry     = time.Hour
	failRetryMost = 24 * time.Hour
	// keptNodeRuns are the runs of a node, begun by its schedule, that are kept.
	keptNodeRuns = 5
	// lowest of all priorities.
	lowest = -100

	maxInterval = 8760 // hours
	maxAtOnce   = 16
	// settles is how long a job may wait for a place before it stands in the way:
	// most are placed at once.
	settles = 10 * time.Second
	// looked is how many jobs that wait are looked at for one in the way.
	looked = 1000
)

// NodeSchedule says when the nodes of a center are measured.
type NodeSchedule struct {
	CenterID      string
	IntervalHours int64 // 0: never
	AtOnce        int64 // 0: 1
	Version       int64 // 0: none is stored
	UpdatedAt     time.Time
	UpdatedBy     string
	Message       string // why no node is begun now
}

func (n *NodeSchedule) check() error {
	var c core.Check
	c.ID("schedule.ai_center_id", n.CenterID)
	c.Range("schedule.interval_hours", n.IntervalHours, 0, maxInterval)
	n.AtOnce = cmp.Or(n.AtOnce, 1)
	c.Range("schedule.at_once", n.AtOnce, 1, maxAtOnce)
	c.Range("schedule.version", n.Version, 0, 1<<53)
	return c.Err()
}

// MeasuredNode is what the schedule of a center knows of a node.
type MeasuredNode struct {
	CenterID, Node string
	MeasuredAt     time.Time // zero: never
	Performance    int64
	RunID          string
	Failures       int64
	RetryAt        time.Time // zero: the last run was well
	Message        string

	DueAt time.Time // zero: there is no schedule
	Open  bool      // it is being measured
}

// due is when a node is to be measured next by a schedule.
func (n *MeasuredNode) due(sch NodeSchedule) time.Time {
	switch {
	case !n.RetryAt.IsZero():
		return n.RetryAt
	case n.MeasuredAt.IsZero():
		return sch.UpdatedAt
	default:
		return n.MeasuredAt.Add(time.Duration(sch.IntervalHours) * time.Hour)
	}
}

// NodeSchedule returns the schedule of a center. It returns fault.Invalid and
// fault.NotFound.
func (s *Service) NodeSchedule(ctx context.Context, centerID string) (out NodeSchedule, err error) {
	if _, err := s.Registry.GetCenter(ctx, centerID); err != nil {
		return out, err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = getNodeSchedule(ctx, tx, centerID)
		return err
	})
	return out, err
}

// SetNodeSchedule sets the schedule of a center whose version is given. It
// returns fault.Invalid and fault.NotFound; fault.Unimplemented if nodes cannot
// be chosen there; fault.Conflict if the schedule was changed meanwhile.
func (s *Service) SetNodeSchedule(ctx context.Context, want NodeSchedule) (out NodeSchedule, err error) {
	if err := want.check(); err != nil {
		return out, err
	}
	if _, err := s.Registry.GetCenter(ctx, want.CenterID); err != nil {
		return out, err
	}
	if want.IntervalHours > 0 {
		if _, err := s.several(ctx, want.CenterID); err != nil {
			return out, err
		}
	}
	want.UpdatedBy = core.CallerFrom(ctx).UserID
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		ok, err := writeNodeSchedule(ctx, tx, want)
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.Conflict, "the schedule of center %s was changed meanwhile: read it again", want.CenterID)
		}
		if err := s.Identity.AuditTx(ctx, tx, want.CenterID); err != nil {
			return err
		}
		if out, err = getNodeSchedule(ctx, tx, want.CenterID); err != nil {
			return err
		}
		return tx.Emit(ctx, "measurement.schedule", []byte(want.CenterID))
	})
	return out, err
}

// several reports whether a center has several nodes; it returns
// fault.Unimplemented if it has and jobs cannot choose one.
func (s *Service) several(ctx context.Context, centerID string) (bool, error) {
	_, next, err := s.Registry.ListNodes(ctx, registry.NodeFilter{CenterID: centerID}, 1, "")
	if err != nil || next == "" {
		return false, err
	}
	chooses, err := s.Jobs.ChoosesNode(ctx, centerID)
	if err == nil && !chooses {
		err = fault.New(fault.Unimplemented, "center %s has several nodes and chooses itself where a job runs: leave the node empty, the result says where it ran", centerID)
	}
	return true, err
}

// MeasuredNodes returns a page of the nodes of a center, and the token of the
// next page. It returns fault.Invalid and fault.NotFound.
func (s *Service) MeasuredNodes(ctx context.Context, centerID string, size int32, token string) (out []MeasuredNode, next string, err error) {
	sch, err := s.NodeSchedule(ctx, centerID)
	if err != nil {
		return nil, "", err
	}
	n, err := core.PageSize(size, 50)
	if err != nil {
		return nil, "", err
	}
	list, next, err := s.Registry.ListNodes(ctx, registry.NodeFilter{CenterID: centerID}, int32(n), token)
	if err != nil || len(list) == 0 {
		return nil, next, err
	}
	var known map[string]MeasuredNode
	var open []Run
	err = s.db.View(ctx, func(tx *db.Tx) error {
		if known, err = readNodes(ctx, tx, centerID, list[0].Name, list[len(list)-1].Name); err != nil {
			return err
		}
		open, err = openNodeRuns(ctx, tx, centerID)
		return err
	})
	for _, x := range list {
		m := known[x.Name]
		m.CenterID, m.Node = centerID, x.Name
		if sch.IntervalHours > 0 {
			m.DueAt = m.due(sch)
		}
		m.Open = slices.ContainsFunc(open, func(r Run) bool { return r.ScheduleNode == x.Name })
		out = append(out, m)
	}
	return out, next, err
}

// measureNodes begins what is due at the centers whose nodes have a schedule,
// and forgets centers that left.
func (s *Service) measureNodes(ctx context.Context) error {
	var schedules []NodeSchedule
	var known []string
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		if schedules, err = readNodeSchedules(ctx, tx, `WHERE interval_hours > 0 ORDER BY ai_center_id`); err != nil {
			return err
		}
		known, err = scheduledCenters(ctx, tx)
		return err
	})
	if err != nil || len(known) == 0 {
		return err
	}
	snap, err := s.Registry.Snapshot(ctx)
	if err != nil {
		return err
	}
	centers := map[string]*registry.Center{}
	for _, k := range snap.Centers {
		centers[k.ID] = k
	}
	for _, id := range known {
		if centers[id] != nil {
			continue
		}
		if err := s.db.Tx(ctx, func(tx *db.Tx) error { return forgetCenter(ctx, tx, id) }); err != nil {
			return err
		}
	}
	for _, sch := range schedules {
		k := centers[sch.CenterID]
		if k == nil {
			continue
		}
		core.GetsOn(ctx)
		why, err := s.measureNodesOf(ctx, sch, k, snap.At)
		if err == nil && why != sch.Message {
			err = s.db.Tx(ctx, func(tx *db.Tx) error { return saveWhy(ctx, tx, sch.CenterID, sch.Version, why) })
		}
		if err != nil && ctx.Err() == nil { // the other centers are measured
			core.RoundFailed(ctx, err)
			s.log.Warn("nodes that are due not measured", "ai_center_id", sch.CenterID, "error", err)
		}
	}
	return nil
}

// measureNodesOf begins what is due at one center. It returns why it begins
// nothing more though something is due.
func (s *Service) measureNodesOf(ctx context.Context, sch NodeSchedule, k *registry.Center, now time.Time) (why string, err error) {
	if k.Status == registry.Unavailable {
		return "the center is not available", nil
	}
	due, gone, err := s.nodesDue(ctx, sch, now)
	if err != nil {
		return "", err
	}
	if len(gone) > 0 {
		if err := s.db.Tx(ctx, func(tx *db.Tx) error { return forgetNodes(ctx, tx, k.ID, gone) }); err != nil {
			return "", err
		}
	}
	if len(due) == 0 {
		return "", nil
	}
	var open, asked []Run
	if err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		if open, err = openNodeRuns(ctx, tx, k.ID); err != nil {
			return err
		}
		asked, err = readRuns(ctx, tx, `WHERE ai_center_id = $1 AND schedule_node = '' AND state <= $2`, k.ID, int64(Running))
		return err
	}); err != nil {
		return "", err
	}
	switch {
	case k.Status != registry.Available || k.Drained:
		return "the center takes no work", nil
	case len(asked) > 0:
		return fmt.Sprintf("the center is being measured: run %s", asked[0].ID), nil
	case k.Waiting > int64(len(open)):
		return "replicas at the center have not started", nil
	}
	if why, err = s.queued(ctx, k.ID); err != nil || why != "" {
		return why, err
	}
	caller := core.Caller{UserID: Scheduled, TenantID: identity.PlatformTenant, AllTenants: true}
	for _, name := range due {
		if int64(len(open)) >= sch.AtOnce {
			return "", nil
		}
		if slices.ContainsFunc(open, func(r Run) bool { return r.ScheduleNode == name }) {
			continue
		}
		ctx := core.WithAudit(core.WithCaller(ctx, caller), &core.Audit{Method: "measurement.schedule"})
		r, err := s.Start(ctx, Request{CenterID: k.ID, Node: name, atOnce: sch.AtOnce})
		switch fault.KindOf(err) {
		case fault.Exhausted:
			return message(err), nil
		case fault.Conflict, fault.Invalid, fault.NotFound, fault.Unimplemented, fault.Unavailable:
			s.log.Info("node not measured though due", "ai_center_id", k.ID, "node", name, "error", err)
			err = s.db.Tx(ctx, func(tx *db.Tx) error { return nodeFailed(ctx, tx, k.ID, name, message(err), false) })
		default:
			if err == nil {
				open = append(open, r)
			}
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// nodesDue returns the ready nodes that are due, the longest first, and those
// that are known and not there any more.
func (s *Service) nodesDue(ctx context.Context, sch NodeSchedule, now time.Time) (due, gone []string, err error) {
	var known map[string]MeasuredNode
	if err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		known, err = readNodes(ctx, tx, sch.CenterID, "", "")
		return err
	}); err != nil {
		return nil, nil, err
	}
	at := map[string]time.Time{}
	for token := ""; ; {
		list, next, err := s.Registry.ListNodes(ctx, registry.NodeFilter{CenterID: sch.CenterID}, maxNodes, token)
		if err != nil {
			return nil, nil, err
		}
		for _, x := range list {
			n := known[x.Name]
			delete(known, x.Name)
			if when := n.due(sch); x.State == registry.NodeReady && !when.After(now) {
				due, at[x.Name] = append(due, x.Name), when
			}
		}
		if token = next; token == "" {
			break
		}
	}
	slices.SortStableFunc(due, func(a, b string) int { return at[a].Compare(at[b]) })
	return due, slices.Sorted(keys(known)), nil
}

// queued names a job of somebody else that waits for a place it could have at a
// center; "": there is none.
func (s *Service) queued(ctx context.Context, centerID string) (string, error) {
	rows, err := s.Jobs.UnplacedSince(itself(ctx), s.db.Now().Add(-s.settles), looked)
	if err != nil {
		return "", err
	}
	own := map[string]bool{}
	if err := s.db.View(ctx, func(tx *db.Tx) error {
		open, err := readRuns(ctx, tx, `WHERE state <= $1`, int64(Running))
		for _, r := range open {
			own[r.JobID] = true
		}
		return err
	}); err != nil {
		return "", err
	}
	for _, u := range rows {
		if !own[u.JobID] && (len(u.Centers) == 0 || slices.Contains(u.Centers, centerID)) {
			return fmt.Sprintf("job %s waits for a place it could have at the center", u.JobID), nil
		}
	}
	return "", nil
}

// givesWay ends a scheduled run whose job has not begun, if it stands in
// somebody's way or its node has no room.
func (s *Service) givesWay(ctx context.Context, r *Run, j *jobsv1.Job) (bool, error) {
	switch j.State {
	case jobsv1.State_STATE_QUEUED, jobsv1.State_STATE_SCHEDULING, jobsv1.State_STATE_DISPATCHING, jobsv1.State_STATE_PENDING:
	default:
		return false, nil
	}
	why := fmt.Sprintf("node %s had no room within %s", r.ScheduleNode, strings.TrimSuffix(nodeWait.String(), "0s"))
	if s.db.Now().Sub(r.CreatedAt) < nodeWait {
		var err error
		if why, err = s.queued(ctx, r.CenterID); err != nil || why == "" {
			return false, err
		}
	}
	if _, err := s.Jobs.Stop(itself(ctx), r.JobID, "the measurement gives way"); err != nil {
		return false, err
	}
	return true, s.end(ctx, r, Failed, "gave way: "+why, true)
}
