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
	// HostsTx returns the pool's nodes, and which is on a machine, by what names that; of
	// several on one none.
	HostsTx(ctx context.Context, tx *db.Tx) (all []string, at map[string]string, err error)
	// LocalTx returns what says of runs that are local of which of some nodes they could
	// have their shares: now, and now or later.
	LocalTx(ctx context.Context, tx *db.Tx) (func(w pool.Shares, nodes []string) (now, ever []string, err error), error)
	// AskedTx returns what replicas that wait to be placed have asked for.
	AskedTx(ctx context.Context, tx *db.Tx) (pool.Asked, error)
	// RoomTx returns what says why a run could not have its shares now; "": it could.
	RoomTx(ctx context.Context, tx *db.Tx) (func(w pool.Shares) (string, error), error)
	// Ask has replicas that are to be placed ask for their shares, those that have not, in
	// their order, and returns what those wait for that have none yet, by their wishes, and
	// why others may not ask now.
	Ask(ctx context.Context, all []pool.Shares) (waits, not map[string]string, err error)
	// Keep says that replicas still wait, by their wishes: the pool forgets what nobody
	// waits for.
	Keep(ctx context.Context, wishes []string) error
	// Lend returns passes to a run's shares, or what they wait for: "" if it has
	// begun. It is called until then, and never gives a run two. One that is local has
	// them of its home; [pool.ErrNoNode]: it has none, and no shares with a place.
	Lend(ctx context.Context, w pool.Shares, home pool.Home) (passes []pool.Pass, waits string, err error)
	// Hold has replicas that wait for room keep the shares that they have until then, by
	// their wishes.
	Hold(ctx context.Context, wishes []string, until time.Time) error
	// PriorityTx changes what the priority of their job is for runs, and wishes.
	PriorityTx(ctx context.Context, tx *db.Tx, ids []string, priority int64) error
	// Yield returns for which replicas that wait for their shares which runs are to be taken
	// back, so that they have them.
	Yield(ctx context.Context, claims []pool.Claim, ending []string) ([][]string, error)
	// Placed returns the runs whose shares have a place and have not begun, and such
	// wishes.
	Placed(ctx context.Context) (map[string]bool, error)
	// FateTx says what became of the shares of a run that began then and has failed, before
	// they are taken back.
	FateTx(ctx context.Context, tx *db.Tx, run string, began time.Time) (pool.Fate, error)
	// RunEndedTx takes the shares of a run back, or of a wish.
	RunEndedTx(ctx context.Context, tx *db.Tx, id string) error
}

// SetPool says who lends accelerators. It is called before the first call; without
// it no job can ask for any.
func (s *Service) SetPool(p Pool) { s.pool = p }

// reasonPool is how a run ends that the pool refuses its shares.
const reasonPool = "pool_refused"

// reasonUnlent is how a run ends that fails when its shares of the pool are gone.
const reasonUnlent = "pool_lost"

// mostUnlent is how many runs of a replica may use up no retry before one does whose program
// had had the shares that it lost: programs end nodes, too.
const mostUnlent = 5

// hearNodes is how long the end of a run is not looked at that failed and has shares: its node
// may have ended with it, which is heard of another way.
const hearNodes = 300 * time.Millisecond

// failedItself reports whether a run ended so by its program's failing, whatever made that fail.
func failedItself(reason string) bool { return reason == "exit" || reason == "signal" }

// hear waits where runs failed that have shares of the pool.
func (s *Service) hear(ctx context.Context, statuses []*adapterv1.Status) error {
	var ids []string
	for _, st := range statuses {
		if st.Phase == adapterv1.Phase_PHASE_ENDED && failedItself(st.Reason) {
			ids = append(ids, st.AttemptId)
		}
	}
	if s.pool == nil || len(ids) == 0 {
		return nil
	}
	var pooled bool
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		var one int
		among, arg := tx.In(1, ids)
		pooled, err = tx.Get(ctx, `SELECT 1 FROM attempts WHERE pooled AND ended_at = 0 AND attempt_id `+among+` LIMIT 1`, []any{arg}, &one)
		return err
	})
	if err != nil || !pooled {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(hearNodes):
		return nil
	}
}

// unlent finds out whether a run failed for what became of its shares.
func (b *batch) unlent(ctx context.Context, a *attempt) error {
	if !a.pooled || b.s.pool == nil || a.stopAsked || !failedItself(a.reason) {
		return nil
	}
	f, err := b.s.pool.FateTx(ctx, b.tx, a.id, db.Time(a.started))
	if err != nil || f.Why == "" {
		return err
	}
	why := lostShares + f.Why
	if a.message != "" { // its center's
		why += "; " + a.message
	}
	if a.message = clipText(why, 500); !f.Lost {
		return nil
	}
	a.reason = reasonUnlent
	if a.takenAs == "" && (!f.Begun || a.spared < mostUnlent) {
		a.takenAs = takenUnlent
	}
	return nil
}

const lostShares = "its shares of the accelerator pool ended: "

const lendWaits = "waits for its shares of the accelerator pool: "

// sharesOf is what a run of a task asks the pool for.
func sharesOf(r *record, i int64) pool.Shares {
	t := r.spec.Tasks[i]
	p := t.Pool
	return pool.Shares{Job: r.id, Task: t.Name, TaskIndex: int32(i), Project: r.spec.Labels[scheduler.ProjectLabel], Tenant: r.tenant, User: r.user, UserName: r.userName, Group: p.GroupId, Spec: p.SpecId, API: p.Api, Model: p.Model,
		Compute: p.ComputePercent, Memory: p.MemoryMib, Cards: p.Cards, Priority: int64(p.Priority), JobPriority: r.priority, Weighted: p.Weighted, Across: p.AcrossNodes, Whole: p.Physical,
		Node: p.NodeId, Affinity: p.Affinity, Anti: p.AntiAffinity, Local: p.Local}
}

// checkPool checks what tasks ask the accelerator pool for, and notes the group.
func (s *Service) checkPool(ctx context.Context, c *core.Check, prefix string, j *jobsv1.JobSpec) error {
	var nodes []string // on machines of centers
	if slices.ContainsFunc(j.Tasks, func(t *jobsv1.Task) bool { return t.GetPool().GetLocal() }) && s.pool != nil {
		err := s.db.View(ctx, func(tx *db.Tx) error {
			all, err := s.spotsTx(ctx, tx)
			if err == nil {
				nodes = all.nodes()
			}
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
func (s *Service) keepFromPoolless(ctx context.Context, tx *db.Tx, j *jobsv1.JobSpec, it *scheduler.Item, b *reading) error {
	for _, x := range []struct {
		feature adapterv1.Feature
		wants   func(t *jobsv1.Task) bool
		why     string
	}{
		{adapterv1.Feature_FEATURE_POOL, func(t *jobsv1.Task) bool { return t.Pool != nil && t.Pool.Api != pool.CUDA }, "cannot give its runs shares of the accelerator pool (pool_image of its configuration has Kubernetes do so, pool_program Slurm)"},
		{adapterv1.Feature_FEATURE_POOL_CUDA, func(t *jobsv1.Task) bool { return t.Pool != nil && t.Pool.Api == pool.CUDA }, "cannot give its runs shares of the accelerator pool for programs of CUDA (pool_image of its configuration has Kubernetes do so, pool_program Slurm; a gateway of an older version cannot)"},
		{adapterv1.Feature_FEATURE_POOL_LOCAL, func(t *jobsv1.Task) bool { return t.Pool.GetLocal() }, "has no pool node on its machine that its runs may use there (a gateway offers that with --pool-node, Kubernetes and Slurm with pool_folder of their configuration)"},
	} {
		if !slices.ContainsFunc(j.Tasks, x.wants) {
			continue
		}
		not, known := b.without[x.feature]
		if !known {
			without, err := s.ad.WithoutTx(ctx, tx, x.feature)
			if err != nil {
				return err
			}
			not = map[string]string{}
			for _, c := range without {
				not[c] = x.why
			}
			if b.without == nil {
				b.without = map[adapterv1.Feature]map[string]string{}
			}
			b.without[x.feature] = not
		}
		exclude(it, func(n int, _ place.Amounts) map[string]string {
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
func exclude(it *scheduler.Item, from func(task int, wants place.Amounts) map[string]string) {
	for _, list := range [][]place.Task{it.Work.Tasks, it.More} {
		for i := range list {
			n, err := strconv.Atoi(list[i].ID)
			if err != nil {
				continue
			}
			not := from(n, list[i].Request)
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
)

// Lend gets runs their shares of the accelerator pool and sends them to their
// centers with passes, until ctx ends. One process at a time does. Passes are
// stored nowhere.
func (s *Service) Lend(ctx context.Context) error {
	tick := time.NewTicker(lendEvery)
	defer tick.Stop()
	last := &lent{asked: map[string]time.Time{}, sent: map[string]time.Time{}, none: map[string]time.Time{}, woken: map[string]bool{}}
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
		case <-s.lendSoon:
		}
	}
}

// wakeLend has Lend look at once, if it is in this process.
func (s *Service) wakeLend() {
	select {
	case s.lendSoon <- struct{}{}:
	default:
	}
}

// lent is when the pool was last asked for runs, when they were sent, and since when no
// node lends what they are to have on their machine; which jobs were looked at again for
// a wish, and when was last said that they wait.
type lent struct {
	asked, sent, none map[string]time.Time
	woken             map[string]bool
	kept              time.Time
}

func (s *Service) lendRound(ctx context.Context, last *lent) error {
	placed, err := s.pool.Placed(ctx)
	if err != nil {
		return err
	}
	if err := s.tend(ctx, last, placed); err != nil {
		return err
	}
	var as []*attempt
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
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
	for _, times := range []map[string]time.Time{last.asked, last.sent, last.none} {
		maps.DeleteFunc(times, func(id string, _ time.Time) bool { return !open[id] })
	}
	if len(as) == 0 {
		return nil
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
	near := &nearby{}
	for _, a := range as {
		r := records[a.job]
		if r == nil {
			continue
		}
		m := s.message(r, a)
		// Only its center can say that one never ran which is to be stopped.
		if m.Pool.Lacking = "the run is to be stopped"; !a.stopAsked {
			last.asked[a.id] = s.db.Now()
			ready, err := s.lend(ctx, r, a, m, near, last.none)
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

// elsewhere has a run placed anew that has not begun. A center that has it stops it first.
func (s *Service) elsewhere(ctx context.Context, a *attempt, why string) error {
	if s.accepted(a) {
		return s.db.Tx(ctx, func(tx *db.Tx) error {
			as, err := queryAttempts(ctx, tx, `attempt_id = $1 AND ended_at = 0 AND started_at = 0 AND NOT stop_asked`, a.id)
			if err != nil || len(as) == 0 {
				return err
			}
			r, err := loadJob(ctx, tx, a.job)
			if err != nil || r == nil {
				return err
			}
			return s.takeBack(ctx, tx, r, as, takenRefused, why)
		})
	}
	_, _, err := s.report(ctx, a.center, []*adapterv1.Status{{AttemptId: a.id, Phase: adapterv1.Phase_PHASE_ENDED, Reason: reasonRefused, Message: why}}, map[string]bool{a.id: true}, false)
	return err
}

// accepted reports whether a run's center has it.
func (s *Service) accepted(a *attempt) bool { return a.state != dispatching || s.wasIssued(a.id) }

// lend puts the passes of a run into its message; false: it waits, or has ended.
func (s *Service) lend(ctx context.Context, r *record, a *attempt, m *adapterv1.Attempt, near *nearby, none map[string]time.Time) (ready bool, err error) {
	w := sharesOf(r, a.task)
	var home pool.Home
	var better bool
	if w.Local {
		if home, better, err = s.homeOf(ctx, near, r, a, w); err != nil {
			return false, err
		}
	}
	if w.Run, w.Replica, w.Number = a.id, int32(a.replica), int32(a.number); !w.Local {
		w.Wish = wishOf(a.job, int(a.task), int(a.replica))
	}
	passes, waits, err := s.pool.Lend(ctx, w, home)
	lends := !errors.Is(err, pool.ErrNoNode) // else it is being started, or lends no more
	if !lends {
		waits, err = pool.ErrNoNode.Error(), nil
	}
	if err == nil && len(passes) == 0 && (!lends || better && waits != "") {
		since, known := none[a.id]
		if !known {
			since = s.db.Now()
			none[a.id] = since
		}
		if s.db.Now().Sub(since) < localPatience {
			return false, s.awaits(ctx, a, lendWaits+waits)
		}
		return false, s.elsewhere(ctx, a, waits)
	}
	delete(none, a.id)
	if err == nil && waits != "" && home.Room { // others are before it there
		near.refuse(r, a, home.Node)
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
	if w.Local {
		settled, err := s.settle(ctx, near, a, m)
		if err != nil {
			return false, err
		}
		if !settled { // its center tells of that machine no more, or not yet
			return false, s.awaits(ctx, a, lendWaits+pool.ErrNoNode.Error())
		}
	}
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
