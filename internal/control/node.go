package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/registry"
)

// Target is a node, or with an empty Node a whole center.
type Target struct{ CenterID, Node string }

func (t Target) String() string {
	if t.Node == "" {
		return "center " + t.CenterID
	}
	return "node " + t.Node + " of center " + t.CenterID
}

func (t Target) check(r Request, reason string) error {
	var c core.Check
	checkRequest(&c, r)
	c.ID("ai_center_id", t.CenterID)
	c.Text("node", t.Node, t.Node != "", 253, 0)
	c.Text("reason", reason, false, 0, 128)
	return c.Err()
}

// exists reports fault.NotFound if there is no such center or node.
func (s *Service) exists(ctx context.Context, t Target) error {
	if t.Node != "" {
		_, err := s.reg.GetNode(ctx, t.CenterID, t.Node)
		return err
	}
	_, err := s.reg.GetCenter(ctx, t.CenterID)
	return err
}

// Isolate has a node, or a center, take no new work. It returns fault.Invalid,
// fault.NotFound, and fault.Unimplemented if what reaches the center cannot
// control nodes. The operation runs on while the center does not answer.
func (s *Service) Isolate(ctx context.Context, t Target, reason string, r Request) (*Operation, error) {
	return s.request(ctx, &Operation{Kind: Isolate, CenterID: t.CenterID, Node: t.Node, Reason: reason}, r)
}

// Restore has an isolated node, or center, take work again; errors as for
// [Service.Isolate]. What was to be reclaimed is not any more.
func (s *Service) Restore(ctx context.Context, t Target, r Request) (*Operation, error) {
	return s.request(ctx, &Operation{Kind: Restore, CenterID: t.CenterID, Node: t.Node}, r)
}

// Reclaim takes a node, or a center, back; errors as for [Service.Isolate],
// and fault.Conflict if that is under way already.
func (s *Service) Reclaim(ctx context.Context, t Target, reason string, grace int64, thenFree bool, r Request) (*Operation, error) {
	var c core.Check
	if c.Range("grace_seconds", grace, 0, maxGrace); c.Err() != nil {
		return nil, c.Err()
	}
	return s.request(ctx, &Operation{Kind: Reclaim, CenterID: t.CenterID, Node: t.Node, Reason: reason, grace: grace, thenFree: thenFree}, r)
}

// request stores what is asked of a resource, tries it once, and returns what
// became of it so far.
func (s *Service) request(ctx context.Context, o *Operation, r Request) (*Operation, error) {
	t := Target{o.CenterID, o.Node}
	if err := t.check(r, o.Reason); err != nil {
		return nil, err
	}
	if err := s.exists(ctx, t); err != nil {
		return nil, err
	}
	id := ""
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		fresh := *o // the transaction may run again
		known, err := s.begin(ctx, tx, &fresh, r)
		if err != nil {
			return err
		}
		if known != nil {
			id = known.ID
			return nil
		}
		id = fresh.ID
		if err := s.supersede(ctx, tx, &fresh); err != nil {
			return err
		}
		if err := s.want(ctx, tx, t, fresh.Kind != Restore, fresh.Reason, fresh.UserID); err != nil {
			return err
		}
		if t.Node == "" {
			what := "it takes no new work"
			if fresh.Kind == Restore {
				what = "it takes work again"
			}
			if fresh.step(tx.Now, "set", true, what, t.CenterID); fresh.Kind != Reclaim {
				fresh.end(tx.Now, Succeeded, what)
			}
		} else {
			fresh.Message = "waits for center " + t.CenterID + " to set the node"
		}
		return saveOperation(ctx, tx, &fresh)
	})
	if err != nil {
		return nil, s.failed(ctx, o, r, err)
	}
	s.log.Info("resource to be set", "operation_id", id, "kind", int(o.Kind), "ai_center_id", t.CenterID, "node", t.Node)
	if t.Node == "" {
		s.sched.Wake()
	} else if err := s.applyNode(ctx, t); fault.KindOf(err) == fault.Unimplemented && err != nil {
		return nil, err
	}
	if o.Kind == Reclaim {
		s.advanceAll(ctx)
	}
	got, err := s.GetOperation(ctx, id)
	if err == nil && got.State == Failed && !strings.HasPrefix(got.Message, "superseded") { // the loop was told before this call was
		return nil, fault.New(fault.Unimplemented, "%s", got.Message)
	}
	return got, err
}

// supersede ends what was asked of the same resource before and is not done.
func (s *Service) supersede(ctx context.Context, tx *db.Tx, o *Operation) error {
	rows, err := readOperations(ctx, tx, `WHERE ended_at = 0 AND ai_center_id = $1 AND node = $2 AND kind IN ($3, $4, $5) AND operation_id <> $6 ORDER BY operation_id`,
		o.CenterID, o.Node, int64(Isolate), int64(Restore), int64(Reclaim), o.ID)
	if err != nil {
		return err
	}
	for _, old := range rows {
		if old.Kind == Reclaim && o.Kind != Restore {
			return fault.New(fault.Conflict, "%s is being reclaimed already, by operation %s", Target{o.CenterID, o.Node}, old.ID)
		}
		state := Failed
		if old.phase > 0 {
			state = Partly
		}
		old.step(tx.Now, "superseded", false, "operation "+o.ID+" asked for something else", o.ID)
		old.end(tx.Now, state, "superseded by operation "+o.ID)
		if err := saveOperation(ctx, tx, old); err != nil {
			return err
		}
		if err := s.changed(ctx, tx, old); err != nil {
			return err
		}
	}
	return nil
}

// want stores how a resource is to be.
func (s *Service) want(ctx context.Context, tx *db.Tx, t Target, isolated bool, reason, by string) error {
	if t.Node == "" {
		_, err := s.reg.SetDrainedTx(ctx, tx, t.CenterID, isolated)
		return err
	}
	n, err := getControl(ctx, tx, t.CenterID, t.Node)
	if err != nil {
		return err
	}
	n.Isolated, n.Reason, n.UserID = isolated, reason, by
	n.settle()
	return putControl(ctx, tx, n)
}

// Maintain has these nodes, and no others, out of use for maintenance: by node
// the ID of the maintenance. It may be called again and again.
func (s *Service) Maintain(ctx context.Context, nodes map[Target]string) error {
	changed := false
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		changed = false
		rows, err := readControls(ctx, tx, `WHERE maintenance_id <> '' ORDER BY ai_center_id, node`)
		if err != nil {
			return err
		}
		is := map[Target]*NodeControl{}
		for _, n := range rows {
			is[Target{n.CenterID, n.Node}] = n
		}
		all := slices.Collect(maps.Keys(is))
		for t := range nodes {
			if is[t] == nil {
				all = append(all, t)
			}
		}
		slices.SortFunc(all, func(a, b Target) int {
			return cmp.Or(cmp.Compare(a.CenterID, b.CenterID), cmp.Compare(a.Node, b.Node))
		})
		for _, t := range all {
			n := is[t]
			if n == nil {
				if n, err = getControl(ctx, tx, t.CenterID, t.Node); err != nil {
					return err
				}
			}
			if n.MaintenanceID == nodes[t] {
				continue
			}
			n.MaintenanceID, changed = nodes[t], true
			n.settle()
			if err := putControl(ctx, tx, n); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && changed {
		s.poke()
	}
	return err
}

// Maintained returns the nodes of a center that are out of use for maintenance.
func (s *Service) Maintained(ctx context.Context, centerID string) (out []*NodeControl, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readControls(ctx, tx, `WHERE ai_center_id = $1 AND maintenance_id <> '' ORDER BY node`, centerID)
		return err
	})
	return out, err
}

// try is when a node may be set again.
type try struct {
	at    time.Time
	pause time.Duration
}

const (
	// setTimeout bounds one try to set a node.
	setTimeout = 10 * time.Second
	// firstPause and longestPause are between tries.
	firstPause, longestPause = time.Second, 30 * time.Second
	// settleTime is how long a center may take to report a node as it was set.
	settleTime = 5 * time.Second
	// holdAgain is how often a center is told that a node is held: it does not
	// report that.
	holdAgain = time.Minute
)

// applyNode tells a center how a node is to be, if it has not confirmed that.
func (s *Service) applyNode(ctx context.Context, t Target) error {
	var n *NodeControl
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		n, err = getControl(ctx, tx, t.CenterID, t.Node)
		return err
	})
	if err != nil || n.Applied && n.generation > 0 || n.generation == 0 {
		return err
	}
	sctx, cancel := context.WithTimeout(ctx, setTimeout)
	err = s.ad.SetNode(sctx, t.CenterID, adapters.NodeSetting{Name: t.Node, Isolated: n.away(), AllocationID: n.AllocationID, Reason: n.Reason})
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if rerr := s.applied(ctx, n, err); rerr != nil {
		return rerr
	}
	return err
}

// applied records what a center said to being asked to set a node.
func (s *Service) applied(ctx context.Context, n *NodeControl, said error) error {
	key := [2]string{n.CenterID, n.Node}
	s.mu.Lock()
	if said == nil {
		delete(s.tries, key)
	} else {
		pause := min(max(2*s.tries[key].pause, firstPause), longestPause)
		s.tries[key] = try{s.db.Now().Add(pause), pause}
	}
	s.mu.Unlock()
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		now, err := getControl(ctx, tx, n.CenterID, n.Node)
		if err != nil || now.generation != n.generation || now.Applied && now.generation > 0 {
			return err // something else is asked meanwhile, or another told the center too
		}
		problem := ""
		switch {
		case now.free() && (said == nil || fault.KindOf(said) == fault.NotFound): // a node that is no more is free
			_, err = tx.Exec(ctx, `DELETE FROM node_controls WHERE ai_center_id = $1 AND node = $2`, n.CenterID, n.Node)
		case said == nil:
			_, err = tx.Exec(ctx, `UPDATE node_controls SET applied = generation, applied_at = $3, problem = '' WHERE ai_center_id = $1 AND node = $2`, n.CenterID, n.Node, db.Micros(tx.Now))
		case fault.KindOf(said) == fault.Unimplemented:
			_, err = tx.Exec(ctx, `DELETE FROM node_controls WHERE ai_center_id = $1 AND node = $2 AND allocation_id = '' AND maintenance_id = ''`, n.CenterID, n.Node)
			fallthrough
		default:
			var ok bool
			if problem, ok = fault.Message(said); !ok {
				problem = "the center does not answer as it should"
			}
			if err == nil {
				_, err = tx.Exec(ctx, `UPDATE node_controls SET problem = $3 WHERE ai_center_id = $1 AND node = $2`, n.CenterID, n.Node, problem)
			}
		}
		if err != nil {
			return fmt.Errorf("record the control of node %s of %s: %w", n.Node, n.CenterID, err)
		}
		return s.tell(ctx, tx, n, said, problem)
	})
}

// tell the operations that wait for a node to be set.
func (s *Service) tell(ctx context.Context, tx *db.Tx, n *NodeControl, said error, problem string) error {
	rows, err := readOperations(ctx, tx, `WHERE ended_at = 0 AND ai_center_id = $1 AND node = $2 AND kind IN ($3, $4, $5) ORDER BY operation_id`,
		n.CenterID, n.Node, int64(Isolate), int64(Restore), int64(Reclaim))
	if err != nil {
		return err
	}
	for _, o := range rows {
		switch {
		case said == nil:
			what := "it takes no new work"
			switch {
			case !n.Isolated && n.MaintenanceID != "":
				what = "it is isolated no more, and takes work again after maintenance " + n.MaintenanceID
			case !n.Isolated:
				what = "it takes work again"
			}
			o.step(tx.Now, "set", true, what, n.Node)
			if o.Message = what; o.Kind != Reclaim {
				o.end(tx.Now, Succeeded, what)
			}
		case fault.KindOf(said) == fault.Unimplemented:
			o.step(tx.Now, "set", false, problem, n.Node)
			o.end(tx.Now, Failed, problem)
		case o.Message == problem+"; it is tried again":
			continue
		default:
			o.Message = problem + "; it is tried again"
			o.step(tx.Now, "set", false, problem, n.Node)
		}
		if err := saveOperation(ctx, tx, o); err != nil {
			return err
		}
		if err := s.changed(ctx, tx, o); err != nil {
			return err
		}
	}
	return nil
}

// Controls returns a page of the nodes that are to be otherwise than free, by
// center and name, and the token of the next page, "" on the last.
func (s *Service) Controls(ctx context.Context, centerID string, size int32, token string) ([]*NodeControl, string, error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 2)
	if err != nil {
		return nil, "", err
	}
	var c core.Check
	if checkFilterIDs(&c, "ai_center_id", centerID); c.Err() != nil {
		return nil, "", c.Err()
	}
	var q conditions
	if centerID != "" {
		q.and("ai_center_id = ?", centerID)
	}
	if key != nil {
		q.and("(ai_center_id, node) > (?, ?)", key[0], key[1])
	}
	rest, args := q.text("ai_center_id, node", n+1)
	var rows []*NodeControl
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		rows, err = readControls(ctx, tx, rest, args...)
		return err
	})
	if err != nil || len(rows) <= n {
		return rows, "", err
	}
	return rows[:n], core.PageToken(rows[n-1].CenterID, rows[n-1].Node), nil
}

// Unset returns the nodes that are not as they were asked to be since before
// the time: for alarms.
func (s *Service) Unset(ctx context.Context, before time.Time) (out []*NodeControl, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readControls(ctx, tx, `WHERE applied <> generation AND changed_at < $1 ORDER BY ai_center_id, node LIMIT 1000`, db.Micros(before))
		return err
	})
	return out, err
}

// RunsAt is the filter of what runs on a resource. A run of which no node is
// known counts where its center has one node only.
func (s *Service) RunsAt(ctx context.Context, t Target) (jobs.RunFilter, error) {
	f := jobs.RunFilter{CenterID: t.CenterID, Node: t.Node}
	if t.Node == "" {
		return f, nil
	}
	nodes, _, err := s.reg.ListNodes(ctx, registry.NodeFilter{CenterID: t.CenterID}, 2, "")
	f.Unknown = len(nodes) == 1
	return f, err
}

// The phases of a reclaim.
const (
	phaseIsolate = iota
	phaseNotice
	phaseStop
	phaseFree
)

// advance carries a reclaim on and reports whether it did anything.
func (s *Service) advance(ctx context.Context, o *Operation) error {
	f, err := s.RunsAt(ctx, Target{o.CenterID, o.Node})
	if err != nil {
		return err
	}
	runs, err := s.jobs.Runs(ctx, f)
	if err != nil {
		return err
	}
	now := s.db.Now()
	due := o.phase == phaseNotice && !now.Before(o.StopAt) || o.phase == phaseStop
	var stopped []jobs.Run
	if due && len(runs) > 0 {
		why := fmt.Sprintf("%s was reclaimed", Target{o.CenterID, o.Node})
		if o.Reason != "" {
			why += ": " + o.Reason
		}
		if stopped, err = s.jobs.TakeAway(ctx, f, why); err != nil {
			return err
		}
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		rows, err := readOperations(ctx, tx, `WHERE operation_id = $1 AND ended_at = 0`, o.ID)
		if err != nil || len(rows) == 0 || rows[0].phase != o.phase {
			return err // another process was here, or it was superseded
		}
		cur := rows[0]
		changed, err := s.carryOn(ctx, tx, cur, due, runs, stopped)
		if err != nil || !changed {
			return err
		}
		if err := saveOperation(ctx, tx, cur); err != nil {
			return err
		}
		return s.changed(ctx, tx, cur)
	})
}

// carryOn is the decision of advance. The grace period is over when due says
// so and not by the transaction's clock: that is later than the one by which
// runs were asked to stop or not.
func (s *Service) carryOn(ctx context.Context, tx *db.Tx, o *Operation, due bool, runs, stopped []jobs.Run) (changed bool, err error) {
	ids := make([]string, len(stopped))
	for i, r := range stopped {
		ids[i] = r.AttemptID
	}
	slices.Sort(ids)
	switch o.phase {
	case phaseIsolate:
		if o.Node != "" {
			n, err := getControl(ctx, tx, o.CenterID, o.Node)
			if err != nil || n.generation == 0 || !n.Applied {
				return false, err
			}
		}
		o.phase, o.StopAt = phaseNotice, tx.Now.Add(time.Duration(o.grace)*time.Second)
		var concerned []string
		for _, r := range runs {
			if !slices.Contains(concerned, r.JobID) {
				concerned = append(concerned, r.JobID)
			}
		}
		o.Message = fmt.Sprintf("%d runs go on until %s", len(runs), o.StopAt.UTC().Format(time.RFC3339))
		o.step(tx.Now, "notice", true, o.Message, concerned...)
		return true, nil
	case phaseNotice:
		if len(runs) > 0 && !due {
			return false, nil
		}
		o.phase = phaseStop
		if len(runs) == 0 {
			o.step(tx.Now, "stop", true, "nothing runs any more")
		} else {
			o.Message = "waits for " + strconv.Itoa(len(runs)) + " runs to end"
			o.step(tx.Now, "stop", true, strconv.Itoa(len(ids))+" runs were asked to stop", ids...)
		}
		return true, nil
	case phaseStop:
		if len(runs) > 0 {
			if len(ids) > 0 { // they came while it was isolated
				o.step(tx.Now, "stop", true, strconv.Itoa(len(ids))+" more runs were asked to stop", ids...)
			}
			o.Message = "waits for " + strconv.Itoa(len(runs)) + " runs to end"
			return len(ids) > 0, nil
		}
		o.step(tx.Now, "stopped", true, "all runs have ended")
		if !o.thenFree {
			o.end(tx.Now, Succeeded, "reclaimed; it takes no new work")
			return true, nil
		}
		o.phase, o.Message = phaseFree, "waits to take work again"
		if err := s.want(ctx, tx, Target{o.CenterID, o.Node}, false, "", o.UserID); err != nil {
			return false, err
		}
		if o.Node == "" {
			o.step(tx.Now, "free", true, "it takes work again", o.CenterID)
			o.end(tx.Now, Succeeded, "reclaimed; it takes work again")
			tx.AfterCommit(s.sched.Wake)
		}
		return true, nil
	}
	n, err := getControl(ctx, tx, o.CenterID, o.Node)
	if err != nil || n.generation > 0 && !n.Applied {
		return false, err
	}
	o.step(tx.Now, "free", true, "it takes work again", o.Node)
	o.end(tx.Now, Succeeded, "reclaimed; it takes work again")
	return true, nil
}

// NodesTx returns by center and node which allocation holds it: see jobs.Allocations.
func (s *Service) NodesTx(ctx context.Context, tx *db.Tx) (map[string]map[string]string, error) {
	held, err := s.HeldTx(ctx, tx)
	out := map[string]map[string]string{}
	for _, a := range held {
		for _, name := range a.Nodes {
			if out[a.CenterID] == nil {
				out[a.CenterID] = map[string]string{}
			}
			out[a.CenterID][name] = a.ID
		}
	}
	return out, err
}
