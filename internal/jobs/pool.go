package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Pool lends runs shares of accelerators; implemented by pools.
type Pool interface {
	// Lendable says whether a run could have its shares, now or later, and in
	// which group; one that is local, of one of these nodes.
	Lendable(ctx context.Context, w pool.Shares, nodes []string) (group string, err error)
	// LocalTx returns what says of runs that are local whether they could have their
	// shares of one of some nodes: now, and now or later.
	LocalTx(ctx context.Context, tx *db.Tx) (func(w pool.Shares, nodes []string) (now, ever bool, err error), error)
	// Lend returns passes to a run's shares, or what they wait for: "" if it has
	// begun. It is called until then, and never gives a run two. One that is local has
	// them of one of these nodes; [pool.ErrNoNode]: none lends any now.
	Lend(ctx context.Context, w pool.Shares, nodes []string) (passes []pool.Pass, waits string, err error)
	// Placed returns the runs whose shares have a place and have not begun.
	Placed(ctx context.Context) (map[string]bool, error)
	// RunEndedTx takes them back.
	RunEndedTx(ctx context.Context, tx *db.Tx, id string) error
}

// SetPool says who lends accelerators. It is called before the first call; without
// it no job can ask for any.
func (s *Service) SetPool(p Pool) { s.pool = p }

// reasonPool is how a run ends that the pool refuses its shares.
const reasonPool = "pool_refused"

const lendWaits = "waits for its shares of the accelerator pool: "

// sharesOf is what a run of a task asks the pool for.
func sharesOf(r *record, i int64) pool.Shares {
	t := r.spec.Tasks[i]
	p := t.Pool
	return pool.Shares{Job: r.id, Task: t.Name, TaskIndex: int32(i), Project: r.spec.Labels[scheduler.ProjectLabel], Tenant: r.tenant, User: r.user, UserName: r.userName, Group: p.GroupId, Spec: p.SpecId, API: p.Api, Model: p.Model,
		Compute: p.ComputePercent, Memory: p.MemoryMib, Cards: p.Cards, Priority: int64(p.Priority), Weighted: p.Weighted, Across: p.AcrossNodes, Whole: p.Physical,
		Node: p.NodeId, Affinity: p.Affinity, Anti: p.AntiAffinity, Local: p.Local}
}

// checkPool checks what tasks ask the accelerator pool for, and notes the group.
func (s *Service) checkPool(ctx context.Context, c *core.Check, prefix string, j *jobsv1.JobSpec) error {
	var nodes []string // on machines of centers
	if slices.ContainsFunc(j.Tasks, func(t *jobsv1.Task) bool { return t.GetPool().GetLocal() }) && s.pool != nil {
		err := s.db.View(ctx, func(tx *db.Tx) error {
			all, err := s.ad.PoolNodesTx(ctx, tx)
			nodes = slices.Concat(slices.Collect(maps.Values(all))...)
			return err
		})
		if err != nil {
			return err
		}
	}
	for i, t := range j.Tasks {
		if t.GetPool() == nil {
			continue
		}
		at := fmt.Sprintf("%stasks[%d].pool", prefix, i)
		if s.pool == nil {
			c.Add(at, "there is no accelerator pool here")
			continue
		}
		if t.Pool.Local && t.Pool.AcrossNodes {
			c.Add(at+".across_nodes", "is not for shares that are local: they are of one node, on the run's machine")
			continue
		}
		if !t.Network && !(t.Pool.Local && t.Pool.Api == pool.CUDA) { // whose programs have the node's socket and the driver
			c.Add(fmt.Sprintf("%stasks[%d].network", prefix, i), "must be true beside pool: its programs reach the accelerators over the network")
		}
		caller := core.CallerFrom(ctx)
		group, err := s.pool.Lendable(ctx, sharesOf(&record{spec: j, tenant: caller.TenantID, user: caller.UserID, userName: caller.UserName}, int64(i)), nodes)
		if fields := fault.FieldsOf(err); len(fields) > 0 {
			for _, f := range fields {
				c.Add(at+"."+f.Path, "%s", f.Problem)
			}
			continue
		}
		switch fault.KindOf(err) {
		case fault.Invalid, fault.NotFound, fault.Denied, fault.Exhausted:
			if err != nil {
				msg, _ := fault.Message(err)
				c.Add(at, "%s", msg)
				continue
			}
		}
		if err != nil {
			return err
		}
		t.Pool.GroupId = group
	}
	return nil
}

// keepFromPoolless keeps tasks that want shares of the accelerator pool from centers
// whose runs cannot have any.
func (s *Service) keepFromPoolless(ctx context.Context, tx *db.Tx, j *jobsv1.JobSpec, it *scheduler.Item) error {
	for _, x := range []struct {
		feature adapterv1.Feature
		wants   func(t *jobsv1.Task) bool
		why     string
	}{
		{adapterv1.Feature_FEATURE_POOL, func(t *jobsv1.Task) bool { return t.Pool != nil && t.Pool.Api != pool.CUDA }, "cannot give its runs shares of the accelerator pool (pool_image of its configuration has Kubernetes do so, pool_program Slurm)"},
		{adapterv1.Feature_FEATURE_POOL_CUDA, func(t *jobsv1.Task) bool { return t.Pool != nil && t.Pool.Api == pool.CUDA }, "cannot give its runs shares of the accelerator pool for programs of CUDA (pool_image of its configuration has Kubernetes do so, pool_program Slurm; a gateway of an older version cannot)"},
		{adapterv1.Feature_FEATURE_POOL_LOCAL, func(t *jobsv1.Task) bool { return t.Pool.GetLocal() }, "has no pool node on its machine that its runs may use there (a gateway offers that with --pool-node)"},
	} {
		if !slices.ContainsFunc(j.Tasks, x.wants) {
			continue
		}
		without, err := s.ad.WithoutTx(ctx, tx, x.feature)
		if err != nil {
			return err
		}
		not := map[string]string{}
		for _, c := range without {
			not[c] = x.why
		}
		exclude(it, func(n int) map[string]string {
			if x.wants(j.Tasks[n]) {
				return not
			}
			return nil
		})
	}
	return nil
}

// exclude keeps tasks, by their indices, from centers, beside those that they are kept
// from already.
func exclude(it *scheduler.Item, from func(task int) map[string]string) {
	for _, list := range [][]place.Task{it.Work.Tasks, it.More} {
		for i := range list {
			n, err := strconv.Atoi(list[i].ID)
			if err != nil {
				continue
			}
			not := from(n)
			if had := list[i].Excluded; len(had) > 0 && len(not) > 0 {
				not = maps.Clone(not) // others have it, too
				maps.Copy(not, had)
			}
			if len(not) > 0 {
				list[i].Excluded = not
			}
		}
	}
}

// localRooms is where runs could have shares of a pool node on their own machine.
type localRooms struct {
	nodes map[string][]string // by center
	room  func(w pool.Shares, nodes []string) (now, ever bool, err error)
	of    map[pool.Shares]rooms
}

// rooms are centers that are not for a run: at none of whose nodes it could have its
// shares, and, if there are others, at none of whose nodes it could now.
type rooms struct{ never, busy map[string]string }

// keepLocal keeps tasks whose shares are of their machine's pool node from centers
// whose node lends none such, and at first from those whose node has no room while another's has.
func (s *Service) keepLocal(ctx context.Context, tx *db.Tx, r *record, it *scheduler.Item, local *localRooms) error {
	var failed error
	exclude(it, func(n int) map[string]string {
		if !r.spec.Tasks[n].GetPool().GetLocal() || failed != nil || s.pool == nil {
			return nil
		}
		it.Anew = true
		w := sharesOf(r, int64(n))
		w.Job, w.Task, w.TaskIndex, w.Project, w.UserName = "", "", 0, "", ""
		found, known := local.of[w]
		if !known {
			if found, failed = s.notLocal(ctx, tx, w, local); failed != nil {
				return nil
			}
		}
		if tx.Now.Sub(db.Time(r.waitingSince)) >= spreadFor {
			return found.never
		}
		return found.busy
	})
	return failed
}

func (s *Service) notLocal(ctx context.Context, tx *db.Tx, w pool.Shares, local *localRooms) (rooms, error) {
	if local.of == nil {
		var err error
		if local.nodes, err = s.ad.PoolNodesTx(ctx, tx); err != nil {
			return rooms{}, err
		}
		if local.room, err = s.pool.LocalTx(ctx, tx); err != nil {
			return rooms{}, err
		}
		local.of = map[pool.Shares]rooms{}
	}
	x := rooms{map[string]string{}, map[string]string{}}
	free := false
	for center, nodes := range local.nodes {
		now, ever, err := local.room(w, nodes)
		switch {
		case err != nil:
			return rooms{}, err
		case !ever:
			x.never[center], x.busy[center] = "no pool node on its machine lends such shares now", "no pool node on its machine lends such shares now"
		case !now:
			x.busy[center] = "the pool node on its machine has no room for its shares now, another center's has"
		}
		free = free || now
	}
	if !free {
		x.busy = x.never
	}
	local.of[w] = x
	return x, nil
}

const (
	// lendEvery is how often is looked for runs that wait for shares.
	lendEvery = 250 * time.Millisecond
	// resendPool is after how long a run is sent again that its center has not
	// accepted: as other messages to centers.
	resendPool = 5 * time.Second
	// askPool is how often the pool is asked for a run whose shares have no place, or
	// that its center has and that has not begun: the pool forgets what nobody asks for,
	// and passes are good for a minute.
	askPool = 5 * time.Second
	// localPatience is how long a run waits at its center until a pool node there lends
	// again, as after its machine was started anew.
	localPatience = 30 * time.Second
	// spreadFor is how long a run that is local waits for the centers whose nodes have no
	// room while others' have: it may be that those cannot have it for other reasons.
	spreadFor = 10 * time.Second
)

// Lend gets runs their shares of the accelerator pool and sends them to their
// centers with passes, until ctx ends. One process at a time does. Passes are
// stored nowhere.
func (s *Service) Lend(ctx context.Context) error {
	tick := time.NewTicker(lendEvery)
	defer tick.Stop()
	last := lent{asked: map[string]time.Time{}, sent: map[string]time.Time{}}
	for {
		core.Round(ctx, lendEvery)
		if err := s.lendRound(ctx, last); err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("runs not lent their shares of the pool, will try again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// lent is when the pool was last asked for runs, and when they were sent.
type lent struct{ asked, sent map[string]time.Time }

func (s *Service) lendRound(ctx context.Context, last lent) error {
	var as []*attempt
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		as, err = queryAttempts(ctx, tx, `pooled AND ended_at = 0 AND started_at = 0 ORDER BY attempt_id`)
		return err
	})
	if err != nil {
		return err
	}
	open := map[string]bool{}
	for _, a := range as {
		open[a.id] = true
	}
	for _, times := range []map[string]time.Time{last.asked, last.sent} {
		maps.DeleteFunc(times, func(id string, _ time.Time) bool { return !open[id] })
	}
	if len(as) == 0 {
		return nil
	}
	placed, err := s.pool.Placed(ctx)
	if err != nil {
		return err
	}
	now, records := s.db.Now(), map[string]*record{}
	as = slices.DeleteFunc(as, func(a *attempt) bool {
		if s.accepted(a) {
			return a.stopAsked || now.Sub(last.asked[a.id]) < askPool
		}
		return now.Sub(last.sent[a.id]) < resendPool || !placed[a.id] && !a.stopAsked && now.Sub(last.asked[a.id]) < askPool
	})
	for _, a := range as {
		records[a.job] = nil
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		rs, err := loadJobs(ctx, tx, sortedKeys(records))
		for _, r := range rs {
			records[r.id] = r
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, a := range as {
		r := records[a.job]
		if r == nil {
			continue
		}
		m := s.message(r, a)
		// Only its center can say that one never ran which is to be stopped.
		if m.Pool.Lacking = "the run is to be stopped"; !a.stopAsked {
			last.asked[a.id] = s.db.Now()
			ready, err := s.lend(ctx, r, a, m)
			if err != nil {
				return err
			}
			if !ready {
				continue
			}
		}
		last.sent[a.id] = s.db.Now()
		s.ad.Send(a.center, []*adapterv1.Attempt{m})
	}
	return nil
}

// elsewhere has a run that its center does not know placed anew.
func (s *Service) elsewhere(ctx context.Context, a *attempt, why string) error {
	_, _, err := s.report(ctx, a.center, []*adapterv1.Status{{AttemptId: a.id, Phase: adapterv1.Phase_PHASE_ENDED, Reason: reasonRefused, Message: why}}, map[string]bool{a.id: true}, false)
	return err
}

// accepted reports whether a run's center has it.
func (s *Service) accepted(a *attempt) bool { return a.state != dispatching || s.wasIssued(a.id) }

// lend puts the passes of a run into its message; false: it waits, or has ended.
func (s *Service) lend(ctx context.Context, r *record, a *attempt, m *adapterv1.Attempt) (ready bool, err error) {
	w := sharesOf(r, a.task)
	var nodes []string
	if w.Local {
		err := s.db.View(ctx, func(tx *db.Tx) error {
			all, err := s.ad.PoolNodesTx(ctx, tx)
			nodes = all[a.center]
			return err
		})
		if err != nil {
			return false, err
		}
	}
	w.Run, w.Replica, w.Number = a.id, int32(a.replica), int32(a.number)
	passes, waits, err := s.pool.Lend(ctx, w, nodes)
	if errors.Is(err, pool.ErrNoNode) { // it is being started, or lends no more
		if s.accepted(a) || s.db.Now().Sub(db.Time(a.placed)) < localPatience {
			return false, s.awaits(ctx, a, lendWaits+pool.ErrNoNode.Error())
		}
		return false, s.elsewhere(ctx, a, pool.ErrNoNode.Error())
	}
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound, fault.Denied, fault.Exhausted:
		if err != nil {
			why, _ := fault.Message(err)
			if s.accepted(a) { // its center has it end
				return false, s.awaits(ctx, a, why)
			}
			_, _, err = s.Report(ctx, a.center, []*adapterv1.Status{{AttemptId: a.id, Phase: adapterv1.Phase_PHASE_ENDED, Reason: reasonPool, Message: why}})
			return false, err
		}
	}
	if err != nil {
		return false, err
	}
	if waits != "" {
		waits = lendWaits + waits
	}
	if s.accepted(a) && waits == "" && !strings.HasPrefix(a.message, lendWaits) {
		waits = a.message // its center's word
	}
	if len(passes) == 0 {
		return false, s.awaits(ctx, a, waits)
	}
	for _, p := range passes {
		m.Pool.Passes = append(m.Pool.Passes, &adapterv1.PoolPass{SliceId: p.Slice, Addresses: p.Addresses, Host: p.Host, Ticket: p.Ticket, TicketKey: p.Key, NodeId: p.Node, Bus: p.Bus})
	}
	m.Pool.Lacking = ""
	return true, s.awaits(ctx, a, waits)
}

// awaits has people told what a run waits for.
func (s *Service) awaits(ctx context.Context, a *attempt, why string) error {
	if why = clipText(why, 500); a.message == why {
		return nil
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE attempts SET message = $2 WHERE attempt_id = $1 AND ended_at = 0`, a.id, why)
		if err != nil || n == 0 {
			return err
		}
		r, err := loadJob(ctx, tx, a.job)
		if err != nil || r == nil {
			return err
		}
		if err := saveJob(ctx, tx, r); err != nil {
			return err
		}
		return s.changed(ctx, tx, r)
	})
}
