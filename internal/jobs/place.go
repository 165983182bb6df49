package jobs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/network"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Waiting returns the jobs with replicas in the queue, put there at or after
// since (microseconds; 0: all), but for those known says it knows, and those
// of again.
func (s *Service) Waiting(ctx context.Context, since int64, known func(id string, since int64) bool, again []string) ([]scheduler.Item, error) {
	var rs []*record
	var ids []string
	err := s.db.Read(ctx, func(tx *db.Tx) error {
		rs, ids = nil, slices.Clone(again)
		return tx.Query(ctx, `SELECT job_id, waiting_since, version FROM jobs WHERE unplaced > 0 AND NOT pause_asked AND waiting_since >= $1`, []any{since}, func(row db.Row) error {
			var id string
			var at, version int64
			err := row.Scan(&id, &at, &version)
			if known(id, at) || slices.Contains(again, id) {
				return err
			}
			if r := s.fresh.get(id, version); r != nil {
				rs = append(rs, r)
			} else {
				ids = append(ids, id)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 && s.crowd.empty() && !slices.ContainsFunc(rs, func(r *record) bool { return !r.plain() }) {
		return s.items(ctx, nil, rs)
	}
	var items []scheduler.Item
	err = s.db.View(ctx, func(tx *db.Tx) error {
		more, err := s.uncrowd(ctx, tx)
		if err != nil {
			return err
		}
		more = slices.DeleteFunc(more, func(id string) bool {
			return slices.Contains(ids, id) || slices.ContainsFunc(rs, func(r *record) bool { return r.id == id })
		})
		read, err := loadJobs(ctx, tx, append(slices.Clip(ids), more...))
		if err != nil {
			return err
		}
		s.fresh.keep(read)
		items, err = s.items(ctx, tx, append(slices.Clip(rs), read...))
		return err
	})
	return items, err
}

// items describes what of jobs waits. Where all are plain, tx may be nil.
func (s *Service) items(ctx context.Context, tx *db.Tx, rs []*record) ([]scheduler.Item, error) {
	// The order the queue keeps, so that it need not sort.
	slices.SortFunc(rs, func(a, b *record) int { return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.id, b.id)) })
	items := make([]scheduler.Item, 0, len(rs))
	b := &reading{queue: true}
	for _, r := range rs {
		if r.unplaced == 0 || r.pauseAsked {
			continue // one of again that waits no more
		}
		it, err := s.item(ctx, tx, r, b)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	s.crowd.stand(rs, b.crowd)
	return items, nil
}

// plain reports whether a job alone says what of it waits, and where it may go.
func (r *record) plain() bool {
	return !r.touched() && r.spec.ReservationId == "" && r.spec.NearJob == "" && !slices.ContainsFunc(r.spec.Tasks, wantsPool)
}

// WaitingByTenant returns what of each tenant is in the queue, the most jobs
// first.
func (s *Service) WaitingByTenant(ctx context.Context) (out []scheduler.TenantQueue, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		return tx.Query(ctx, `SELECT tenant_id, COUNT(*), CAST(SUM(unplaced) AS BIGINT), MIN(waiting_since) FROM jobs WHERE unplaced > 0 AND NOT pause_asked
			GROUP BY tenant_id ORDER BY 2 DESC, tenant_id`, nil, func(row db.Row) error {
			var t scheduler.TenantQueue
			var oldest int64
			err := row.Scan(&t.Tenant, &t.Jobs, &t.Replicas, &oldest)
			t.Oldest = db.Time(oldest)
			out = append(out, t)
			return err
		})
	})
	return out, err
}

// newestJobs are looked at for the scheduling times of the last ones.
const newestJobs = 20000

// SchedulingTimes returns the scheduling times of the newest jobs that are
// completely issued, at most limit: of those received at or after since or,
// for the zero time, of the last [newestJobs]. See scheduler.Source.
func (s *Service) SchedulingTimes(ctx context.Context, since time.Time, limit int) (out []int64, err error) {
	newest, first := newestJobs, ""
	if !since.IsZero() {
		newest, first = 10*limit, core.FirstID("job", since) // IDs sort by time
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		return tx.Query(ctx, `SELECT scheduling_us FROM (SELECT job_id, scheduling_us, issued, total FROM jobs WHERE job_id >= $1 ORDER BY job_id DESC LIMIT $2) AS newest
			WHERE issued >= total ORDER BY job_id DESC LIMIT $3`, []any{first, newest, limit}, func(row db.Row) error {
			var us int64
			err := row.Scan(&us)
			out = append(out, us)
			return err
		})
	})
	return out, err
}

// reading is what is read once for all that a transaction describes.
type reading struct {
	queue   bool // for the scheduler's
	local   localRooms
	without map[adapterv1.Feature]map[string]string // centers, with why they are not for what needs it
	asked   *pool.Asked
	least   *int64 // priority of those that have shares of the pool
	crowd   []crowded
}

// item describes what of a job waits, for the scheduler.
func (s *Service) item(ctx context.Context, tx *db.Tx, r *record, b *reading) (scheduler.Item, error) {
	var as []*attempt
	if r.touched() {
		var err error
		if as, err = standings(ctx, tx, r.id); err != nil {
			return scheduler.Item{}, err
		}
	}
	it := itemOf(r, as)
	if err := s.keepFromPoolless(ctx, tx, r.spec, &it, b); err != nil {
		return it, err
	}
	if err := s.keepLocal(ctx, tx, r, &it, &b.local); err != nil {
		return it, err
	}
	if id := r.spec.ReservationId; id != "" && s.reserved != nil {
		over, err := s.reserved.OverTx(ctx, tx, id)
		if err != nil {
			return it, err
		}
		if !over { // else it is placed as any other
			it.AllocationID = id
		}
	}
	if err := s.waitForPool(ctx, tx, r, &it, b); err != nil {
		return it, err
	}
	if r.spec.NearJob == "" {
		return it, nil
	}
	near, err := placesOf(ctx, tx, r.spec.NearJob, r.tenant)
	if err != nil {
		return it, err
	}
	it.KeepNear(r.spec.NearJob, near)
	return it, nil
}

// itemOf is item, but for what other jobs decide; as are the [standings].
func itemOf(r *record, as []*attempt) scheduler.Item {
	it := scheduler.Item{Since: r.waitingSince, Weights: r.spec.PolicyWeights, AllocationID: r.spec.AllocationId, User: r.user, Labels: r.spec.Labels,
		NotBefore: max(r.notBefore, micros(r.spec.NotBefore)), Deadline: micros(r.spec.Deadline), NoPreemption: r.spec.NoPreemption}
	it.RunSeconds, it.GraceSeconds = expectations(r.spec)
	it.Kin = kin(r.user, r.spec)
	it.Work = place.Work{ID: r.id, Origin: place.Origin{Name: network.From(r.spec.OriginId, r.user)}, Tenant: r.tenant, Priority: r.priority, Arrival: r.created, Gang: r.spec.Gang, Distributed: r.spec.Distributed, Groups: groupNames(r.tenant, r.spec.Groups)}
	placed := map[[2]int64]bool{}
	ran := map[[2]int64]bool{}
	restarting := 0
	if as != nil {
		it.Work.Placed = map[string]int{}
	}
	for _, a := range as { // by number: the last attempt decides
		placed[[2]int64{a.task, a.replica}], ran[[2]int64{a.task, a.replica}] = !follows(a), true
		if a.ended == 0 {
			it.Work.Placed[a.center]++
			if a.takenAs == takenRestarted {
				restarting++
			}
		}
	}
	var waits []verdict
	if depends(r.spec) {
		waits = verdicts(r.spec, r.skippedTasks(), as)
	}
	there, leaving := present(r, as)
	for i, t := range r.spec.Tasks {
		pt := task(r.tenant, r.spec, i)
		for n := range int(t.ReplicaNumber) {
			at := [2]int64{int64(i), int64(n)}
			if !placed[at] && (ran[at] || !r.settled()) {
				pt.Indices = append(pt.Indices, n)
			}
		}
		if r.spec.Elastic {
			it.Least = append(it.Least, least(t))
			more := pt
			first := min(len(pt.Indices), max(0, least(t)-there[i]))
			pt.Indices, more.Indices = pt.Indices[:first], pt.Indices[first:]
			if more.Replicas = len(more.Indices); more.Replicas > 0 && (waits == nil || waits[i].waits == "" && !waits[i].never) {
				it.More = append(it.More, more)
			}
		}
		pt.Replicas = len(pt.Indices)
		switch {
		case pt.Replicas == 0:
		case r.spec.Gang && leaving > 0:
			it.Held = append(it.Held, scheduler.Held{Cause: scheduler.Restart, Task: i, Replicas: pt.Replicas, Text: fmt.Sprintf("waits until the %d runs of its gang that were taken back have ended", leaving)})
		case restarting > 0:
			it.Held = append(it.Held, scheduler.Held{Cause: scheduler.Restart, Task: i, Replicas: pt.Replicas, Text: fmt.Sprintf("waits until the %d other runs of its gang have ended", restarting)})
		case waits != nil && waits[i].never: // counted as stopped, or about to be
		case waits != nil && waits[i].waits != "":
			it.Held = append(it.Held, scheduler.Held{Cause: scheduler.Dependency, Task: i, Replicas: pt.Replicas, Text: waits[i].waits})
		default:
			it.Work.Tasks = append(it.Work.Tasks, pt)
		}
	}
	return it
}

// expectations are how long the longest task of a job will run, 0 if nobody
// says, and how long its runs may take to end when they are asked to.
func expectations(j *jobsv1.JobSpec) (run, grace int64) {
	known := true
	for _, t := range j.Tasks {
		one := t.ExpectedSeconds
		if one == 0 || t.TimeoutSeconds > 0 && t.TimeoutSeconds < one {
			one = t.TimeoutSeconds
		}
		known = known && one > 0
		run = max(run, one)
		if t.StopGraceSeconds == 0 {
			grace = max(grace, defaultGrace)
		}
		grace = max(grace, t.StopGraceSeconds)
	}
	if !known {
		run = 0
	}
	return run, grace
}

// Running returns the open runs. See scheduler.Source.
func (s *Service) Running(ctx context.Context) (out []scheduler.Running, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		as, err := queryAttempts(ctx, tx, `ended_at = 0`)
		if err == nil {
			out, err = runningOf(ctx, tx, as)
		}
		return err
	})
	return out, err
}

// Open returns which runs are open, and those that are not known. See scheduler.Source.
func (s *Service) Open(ctx context.Context, known func(attemptID string) bool) (ids []string, fresh []scheduler.Running, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		ids, fresh = nil, nil
		var unknown []string
		err := tx.Query(ctx, `SELECT attempt_id FROM attempts WHERE ended_at = 0 AND allocation_id = ''`, nil, func(row db.Row) error {
			var id string
			err := row.Scan(&id)
			if ids = append(ids, id); !known(id) {
				unknown = append(unknown, id)
			}
			return err
		})
		if err != nil || len(unknown) == 0 {
			return err
		}
		among, arg := tx.In(1, unknown)
		as, err := queryAttempts(ctx, tx, `ended_at = 0 AND attempt_id `+among, arg)
		if err == nil {
			fresh, err = runningOf(ctx, tx, as)
		}
		return err
	})
	return ids, fresh, err
}

// runningOf describes open attempts.
func runningOf(ctx context.Context, tx *db.Tx, as []*attempt) (out []scheduler.Running, err error) {
	ids := map[string]bool{}
	for _, a := range as {
		ids[a.job] = true
	}
	rs, err := loadJobs(ctx, tx, slices.Sorted(maps.Keys(ids)))
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*record, len(rs))
	var elastic []string
	for _, r := range rs {
		if byID[r.id] = r; r.spec.Elastic {
			elastic = append(elastic, r.id)
		}
	}
	cores, err := coresOf(ctx, tx, elastic, byID)
	if err != nil {
		return nil, err
	}
	for _, a := range as {
		r := byID[a.job]
		if r == nil {
			continue
		}
		gang, low := r.spec.Gang, 0
		if r.spec.Elastic {
			gang, low = cores[a.id], least(r.spec.Tasks[a.task])
		}
		run, grace := expectations(r.spec)
		out = append(out, scheduler.Running{AttemptID: a.id, JobID: a.job, Tenant: r.tenant, Center: a.center, Task: int(a.task), Gang: gang, Least: low, Resources: a.resources, Priority: r.priority,
			Since: a.placed, RunSeconds: run, GraceSeconds: grace, Keep: r.spec.NoPreemption || a.stopAsked || r.outcome != 0, AllocationID: a.allocation, Kin: kin(r.user, r.spec)})
	}
	return out, nil
}

func micros(t *timestamppb.Timestamp) int64 {
	if t == nil {
		return 0
	}
	return db.Micros(t.AsTime())
}

// placesOf returns where the replicas of a job run or, if none does, ran last;
// nil if it has no place yet, or there is no such job of the tenant.
func placesOf(ctx context.Context, tx *db.Tx, id, tenant string) ([]string, error) {
	r, err := loadJob(ctx, tx, id)
	if err != nil || r == nil || r.tenant != tenant {
		return nil, err
	}
	as, err := jobAttempts(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	open, last := map[string]bool{}, map[[2]int64]string{}
	for _, a := range as {
		if a.ended == 0 {
			open[a.center] = true
		}
		if a.started > 0 {
			last[[2]int64{a.task, a.replica}] = a.center
		}
	}
	if len(open) == 0 {
		for _, c := range last {
			open[c] = true
		}
	}
	if len(open) == 0 {
		return nil, nil
	}
	return slices.Sorted(maps.Keys(open)), nil
}

// businessLabel is the label of a job by which the policy business-fit looks for
// centers that suit it.
const businessLabel = "business"

// task translates a task for the engine; what the specification amounts to is
// filled in by the scheduler from its snapshot.
func task(tenant string, j *jobsv1.JobSpec, i int) place.Task {
	t := j.Tasks[i]
	pt := place.Task{ID: strconv.Itoa(i), Spec: t.ResourceSpecId, Image: t.ImageId, Kind: "cpu", RunSeconds: place.Known(defaultExpected), Business: j.Labels[businessLabel]}
	if t.ExpectedSeconds > 0 {
		pt.RunSeconds = place.Known(t.ExpectedSeconds)
	}
	if k := t.Constraints; k != nil {
		pt.MinGrade, pt.Expression = k.MinSecurityGrade, k.Expression
		if len(k.Centers) > 0 {
			pt.Pinned = k.Centers
		}
		if len(k.Regions) > 0 {
			pt.Regions = k.Regions
		}
		if k.MaxPrice > 0 {
			pt.MaxPrice = place.Known(k.MaxPrice)
		}
		pt.Rules = rules(tenant, k.Rules)
	}
	needs(&pt, t)
	return pt
}

// PlacedTx records where replicas go and returns the placements it took: not
// those of jobs that were stopped or paused meanwhile. The centers are told after the
// commit.
func (s *Service) PlacedTx(ctx context.Context, tx *db.Tx, ps []scheduler.Placement) ([]scheduler.Placement, error) {
	records := map[string]*record{}
	var order []string
	for _, p := range ps {
		if _, seen := records[p.JobID]; !seen {
			records[p.JobID] = nil
			order = append(order, p.JobID)
		}
	}
	rs, err := s.fresh.loadFresh(ctx, tx, order)
	if err != nil {
		return nil, err
	}
	for _, r := range rs {
		records[r.id] = r
	}
	next := map[string]map[[2]int64]nextRun{} // of replicas that ran before
	for id, among := range spansOf(ps, records) {
		if next[id], err = nextNumbers(ctx, tx, id, among); err != nil {
			return nil, err
		}
	}
	var taken []scheduler.Placement
	var as []*attempt
	sends := map[string][]*adapterv1.Attempt{}
	for _, p := range ps {
		r := records[p.JobID]
		if r == nil || r.unplaced == 0 || r.outcome != 0 || r.pauseAsked || p.Replica >= int(r.spec.Tasks[p.Task].ReplicaNumber) {
			continue
		}
		run := nextRun{number: 1}
		if n, ok := next[p.JobID][[2]int64{int64(p.Task), int64(p.Replica)}]; ok {
			if n.number == 0 {
				continue // runs already
			}
			run = n
		}
		a := &attempt{id: core.NewID("att"), job: p.JobID, task: int64(p.Task), replica: int64(p.Replica), number: run.number, spared: run.spared, center: p.Center,
			spec: p.Spec, resources: p.Resources, price: p.Price, decision: p.DecisionID, state: dispatching, placed: db.Micros(tx.Now),
			allocation: p.AllocationID, onNodes: p.OnNodes, pooled: r.spec.Tasks[p.Task].Pool != nil}
		as = append(as, a)
		p.AttemptID = a.id
		taken = append(taken, p)
		r.unplaced--
		r.active++
		if r.unplaced == 0 && r.placed == 0 {
			r.placed = a.placed
		}
		if !a.pooled { // others are sent with what [Service.Lend] gets them
			sends[p.Center] = append(sends[p.Center], s.message(r, a))
		}
	}
	if err := insertAttempts(ctx, tx, as); err != nil {
		return nil, err
	}
	if err := unmarkRetries(ctx, tx, as); err != nil {
		return nil, err
	}
	changed := make([]*record, 0, len(order))
	for _, id := range order {
		if r := records[id]; r != nil && r.active > 0 {
			changed = append(changed, r)
		}
	}
	if err := savePlaced(ctx, tx, changed); err != nil {
		return nil, err
	}
	if len(changed) > 0 {
		if err := s.changed(ctx, tx, changed...); err != nil {
			return nil, err
		}
	}
	tx.AfterCommit(func() {
		for center, list := range sends {
			s.ad.Send(center, list)
		}
		if slices.ContainsFunc(as, func(a *attempt) bool { return a.pooled }) {
			s.wakeLend()
		}
		s.fresh.drop(order)
	})
	return taken, nil
}

// nextRun is the number of a replica's next attempt, 0 if it must not get one,
// and how many of those before used up no retry.
type nextRun struct{ number, spared int64 }

// span are the replicas of a task from the first that is placed to the last.
type span struct{ first, last int }

// spansOf are those of jobs that may have attempts, by task.
func spansOf(ps []scheduler.Placement, records map[string]*record) map[string]map[int]span {
	out := map[string]map[int]span{}
	for _, p := range ps {
		if r := records[p.JobID]; r == nil || !r.touched() {
			continue
		}
		if out[p.JobID] == nil {
			out[p.JobID] = map[int]span{}
		}
		x, known := out[p.JobID][p.Task]
		if !known {
			x = span{p.Replica, p.Replica}
		}
		out[p.JobID][p.Task] = span{min(x.first, p.Replica), max(x.last, p.Replica)}
	}
	return out
}

// nextNumbers returns the next run of each of these replicas that has an attempt.
func nextNumbers(ctx context.Context, tx *db.Tx, jobID string, among map[int]span) (map[[2]int64]nextRun, error) {
	out := map[[2]int64]nextRun{}
	for task, x := range among {
		as, err := queryAttempts(ctx, tx, `job_id = $1 AND task_index = $2 AND replica_index BETWEEN $3 AND $4 ORDER BY replica_index, attempt`, jobID, int64(task), int64(x.first), int64(x.last))
		if err != nil {
			return nil, err
		}
		for _, a := range as {
			key := [2]int64{a.task, a.replica}
			out[key] = nextRun{}
			if follows(a) {
				out[key] = nextRun{number: a.number + 1, spared: a.spared}
				if spares(a) || a.takenAs == takenScaled {
					out[key] = nextRun{number: a.number + 1, spared: a.spared + 1}
				}
			}
		}
	}
	return out, nil
}

// unmarkRetries clears the mark of attempts whose replicas wait no more.
func unmarkRetries(ctx context.Context, tx *db.Tx, as []*attempt) error {
	for _, a := range as {
		if a.number == 1 {
			continue
		}
		if _, err := tx.Exec(ctx, `UPDATE attempts SET retry = $5 WHERE job_id = $1 AND task_index = $2 AND replica_index = $3 AND attempt = $4`,
			a.job, a.task, a.replica, a.number-1, false); err != nil {
			return err
		}
	}
	return nil
}

// Unsettled returns the centers for which Outstanding may have something. See
// adapters.Work.
func (s *Service) Unsettled(ctx context.Context, before time.Time) (centers []string, err error) {
	found := map[string]bool{}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		clear(found)
		return tx.Query(ctx, `SELECT ai_center_id, attempt_id, state = $2 AND NOT stop_asked AND NOT pause_asked FROM attempts
			WHERE ended_at = 0 AND placed_at <= $1 AND (state IN ($2, $3) OR stop_asked OR pause_asked)
			UNION ALL SELECT ai_center_id, attempt_id, FALSE FROM attempts WHERE lost`, []any{db.Micros(before), int64(dispatching), int64(paused)}, func(row db.Row) error {
			var center, id string
			var onlySent bool
			if err := row.Scan(&center, &id, &onlySent); err != nil {
				return err
			}
			if !onlySent || !s.wasIssued(id) {
				found[center] = true
			}
			return nil
		})
	})
	return sortedKeys(found), err
}

// Outstanding returns what a center should run and may not know, and what it
// should stop, suspend or resume. See adapters.Work.
func (s *Service) Outstanding(ctx context.Context, centerID string, before time.Time, all bool) (out adapters.Wanted, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = adapters.Wanted{}
		as, err := queryAttempts(ctx, tx, `ai_center_id = $1 AND ended_at = 0 AND placed_at <= $2 ORDER BY placed_at, attempt_id`, centerID, db.Micros(before))
		if err != nil {
			return err
		}
		records := map[string]*record{}
		for _, a := range as {
			switch {
			case a.stopAsked:
				out.Stop = append(out.Stop, a.id)
			case a.pauseAsked && a.state == running:
				out.Suspend = append(out.Suspend, a.id)
			case !a.pauseAsked && a.state == paused:
				out.Resume = append(out.Resume, a.id)
			}
			if !all && (a.state != dispatching || s.wasIssued(a.id)) {
				continue
			}
			if a.pooled && a.started == 0 { // Lend sends it, again if the center has forgotten
				if all {
					s.dropIssued([]string{a.id})
				}
				continue
			}
			r := records[a.job]
			if r == nil {
				if r, err = loadJob(ctx, tx, a.job); err != nil {
					return err
				}
				records[a.job] = r
			}
			// One to be stopped before its center knew of it is sent too: only the
			// center can say for certain that it never started.
			out.Apply = append(out.Apply, s.message(r, a))
		}
		lost, err := s.outstandingLost(ctx, tx, centerID, &out.Stop)
		if all { // between two connections a center forgets nothing
			out.Apply = append(out.Apply, lost...)
		}
		return err
	})
	return out, err
}

// Issued notes when centers accepted attempts; the first report stores it.
func (s *Service) Issued(attemptIDs []string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range attemptIDs {
		if _, ok := s.issued[id]; !ok {
			s.issued[id] = at
		}
	}
	// A run so short that its end was recorded before its center's answer came
	// leaves a note that nobody drops. What is forgotten early is only sent again.
	if len(s.issued) >= s.issuedLimit {
		maps.DeleteFunc(s.issued, func(_ string, noted time.Time) bool { return at.Sub(noted) > issuedKeep })
		s.issuedLimit = max(minIssued, 2*len(s.issued))
	}
}

const (
	// issuedKeep is how long a note on an accepted attempt is kept at least.
	issuedKeep = 10 * time.Minute
	// minIssued notes are kept without a look at their age.
	minIssued = 10000
)

func (s *Service) wasIssued(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.issued[id]
	return ok
}

// takeIssued returns when the attempt was accepted, def if that is not known
// here (another process sent it, or this one restarted).
func (s *Service) takeIssued(id string, def int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.issued[id]
	if !ok {
		return def
	}
	return db.Micros(at)
}

func (s *Service) dropIssued(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.issued, id)
	}
}

// Explained returns what the scheduler needs to explain a job.
func (s *Service) Explained(ctx context.Context, jobID string) (*scheduler.Explained, error) {
	var out *scheduler.Explained
	err := s.db.View(ctx, func(tx *db.Tx) error {
		r, err := visible(ctx, tx, jobID)
		if err != nil {
			return err
		}
		out = &scheduler.Explained{JobID: r.id, Paused: r.pauseAsked, Priority: r.priority}
		for _, t := range r.spec.Tasks {
			out.TaskNames, out.Specs = append(out.TaskNames, t.Name), append(out.Specs, t.ResourceSpecId)
		}
		as, err := jobAttempts(ctx, tx, jobID)
		if err != nil {
			return err
		}
		for _, a := range as {
			out.Placed = append(out.Placed, scheduler.PlacedReplica{Task: int(a.task), Replica: int(a.replica), Attempt: int(a.number), CenterID: a.center,
				DecisionID: a.decision, At: db.Time(a.placed)})
			if a.pooled && a.ended == 0 && a.started == 0 && a.message != "" {
				out.Lacking = append(out.Lacking, scheduler.Held{Cause: schedulerv1.Wait_CAUSE_POOL, Task: int(a.task), Replicas: 1, Text: a.message})
			}
		}
		sort.SliceStable(out.Placed, func(i, j int) bool {
			a, b := out.Placed[i], out.Placed[j]
			return a.Task < b.Task || a.Task == b.Task && a.Replica < b.Replica
		})
		if r.unplaced > 0 {
			it, err := s.item(ctx, tx, r, &reading{})
			if err != nil {
				return err
			}
			out.Waiting = &it
		}
		return nil
	})
	return out, err
}

// FirstTask returns the engine's view of a job's first task, for scoring.
func (s *Service) FirstTask(ctx context.Context, jobID string) (place.Task, error) {
	var t place.Task
	err := s.db.View(ctx, func(tx *db.Tx) error {
		r, err := visible(ctx, tx, jobID)
		if err != nil {
			return err
		}
		t = task(r.tenant, r.spec, 0)
		t.Replicas = 1
		return nil
	})
	return t, err
}
