package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/scheduler"
)

// batch gathers what a transaction of reports changes.
type batch struct {
	s        *Service
	tx       *db.Tx
	center   string
	jobs     map[string]*record
	order    []*record
	usage    []metering.Record
	release  core.Quantities
	drawn    map[string]core.Quantities // given back to allocations
	freed    [2]int64                   // replicas that end: were running, were waiting
	started  int64
	wake     bool
	final    bool // what fails now is not tried again
	recorded []string
	unwanted []string
	over     []string        // attempts that end with this
	began    []*record       // whose tasks may wait for the start of a run
	later    map[string]bool // attempts that their center may take another time
	remember bool            // what is refused counts against the center
}

// Report records what a center says, in one transaction. See adapters.Work.
func (s *Service) Report(ctx context.Context, centerID string, statuses []*adapterv1.Status) (recorded, unwanted []string, err error) {
	if err := s.hear(ctx, statuses); err != nil {
		return nil, nil, err
	}
	return s.report(ctx, centerID, statuses, nil, true)
}

// report is Report; later are the attempts that their center refuses for now
// only.
func (s *Service) report(ctx context.Context, centerID string, statuses []*adapterv1.Status, later map[string]bool, remember bool) (recorded, unwanted []string, err error) {
	var b *batch
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		b = &batch{s: s, tx: tx, center: centerID, jobs: map[string]*record{}, release: core.Quantities{}, later: later, remember: remember}
		for _, st := range statuses {
			if err := b.one(ctx, st); err != nil {
				return fmt.Errorf("report of %s: %w", st.AttemptId, err)
			}
		}
		if slices.ContainsFunc(statuses, func(st *adapterv1.Status) bool { return st.Reason == reasonRefused }) {
			if err := tx.Emit(ctx, RefusedSubject, nil); err != nil {
				return err
			}
		}
		return b.finish(ctx)
	})
	if err != nil {
		return nil, nil, err
	}
	s.dropIssued(b.recorded)
	s.sched.Ended(b.over)
	if b.wake {
		s.sched.Wake()
	}
	return b.recorded, b.unwanted, nil
}

// Refused ends attempts a center does not take.
func (s *Service) Refused(ctx context.Context, centerID string, refusals []*adapterv1.Refusal) error {
	sts, later := make([]*adapterv1.Status, len(refusals)), map[string]bool{}
	for i, r := range refusals {
		sts[i] = &adapterv1.Status{AttemptId: r.AttemptId, Phase: adapterv1.Phase_PHASE_ENDED, Reason: reasonRefused, Message: r.Reason}
		if r.Later {
			later[r.AttemptId] = true
		}
	}
	_, _, err := s.report(ctx, centerID, sts, later, true)
	return err
}

// Owns reports whether the attempt was placed at the center.
func (s *Service) Owns(ctx context.Context, centerID, attemptID string) (owns bool, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		var one int
		owns, err = tx.Get(ctx, `SELECT 1 FROM attempts WHERE attempt_id = $1 AND ai_center_id = $2`, []any{attemptID, centerID}, &one)
		return err
	})
	return owns, err
}

func (b *batch) one(ctx context.Context, st *adapterv1.Status) error {
	over := st.Phase == adapterv1.Phase_PHASE_ENDED
	var a *attempt
	as, err := queryAttempts(ctx, b.tx, `attempt_id = $1`, st.AttemptId)
	if err != nil {
		return err
	}
	if len(as) > 0 && as[0].center == b.center {
		a = as[0]
	}
	if over {
		b.recorded = append(b.recorded, st.AttemptId)
	}
	if a != nil && a.lost && over { // it came back and is over there too: nothing is left to say
		if _, err := b.tx.Exec(ctx, `UPDATE attempts SET lost = $2 WHERE attempt_id = $1`, a.id, false); err != nil {
			return err
		}
	}
	if a == nil || a.ended > 0 {
		if !over { // it should not exist (any more)
			b.unwanted = append(b.unwanted, st.AttemptId)
		}
		return nil
	}
	r, err := b.job(ctx, a.job)
	if err != nil {
		return err
	}
	begun := a.started > 0
	if a.started == 0 && st.StartedAt > 0 {
		a.started = b.believed(a, st.StartedAt, a.placed)
		if r.started == 0 || a.started < r.started { // centers report in any order
			r.started = a.started
		}
	}
	if a.state == dispatching && a.number == 1 {
		b.issued(r, a)
	}
	if a.started > 0 && !begun {
		a.message = "" // what it waited for
	}
	if begins := a.started > 0 && !begun; begins && !over && depends(r.spec) {
		b.began = append(b.began, r)
	}
	says := clipText(st.Message, 500)
	moved := st.Node != "" && st.Node != a.node
	if moved {
		a.node = clipText(st.Node, 253)
	}
	switch {
	case over:
		return b.end(ctx, r, a, st)
	case st.Phase == adapterv1.Phase_PHASE_PENDING && (a.state == dispatching || a.state == pending && says != "" && says != a.message):
		a.state = pending
		if says != "" { // why it has not begun
			a.message = says
		}
		return saveAttempt(ctx, b.tx, a)
	case st.Phase == adapterv1.Phase_PHASE_RUNNING && (a.state == dispatching || a.state == pending):
		a.state = running
		r.running++
		b.started++
		b.wish(a)
		return saveAttempt(ctx, b.tx, a)
	case st.Phase == adapterv1.Phase_PHASE_RUNNING && a.state == paused:
		a.state = running
		r.paused--
		r.running++
		b.wish(a)
		return saveAttempt(ctx, b.tx, a)
	case st.Phase == adapterv1.Phase_PHASE_SUSPENDED && a.state != paused:
		if a.state == running {
			r.running--
		} else {
			b.started++
		}
		a.state = paused
		r.paused++
		b.wish(a)
		return saveAttempt(ctx, b.tx, a)
	}
	if moved {
		return saveAttempt(ctx, b.tx, a)
	}
	return nil
}

// wish tells the center of an attempt that has just begun to run or to stand
// still if it shall do the other.
func (b *batch) wish(a *attempt) {
	if a.stopAsked || a.pauseAsked == (a.state == paused) {
		return
	}
	id, pause := a.id, a.pauseAsked
	b.tx.AfterCommit(func() {
		if pause {
			b.s.ad.Suspend(b.center, []string{id}, nil)
		} else {
			b.s.ad.Suspend(b.center, nil, []string{id})
		}
	})
}

// skew is how far a center's clock may be off. A time beyond it cannot be of
// this attempt: the platform's own is taken, so that a broken clock neither
// makes a user pay for years nor keeps the end from being recorded.
const skew = 24 * time.Hour

func (b *batch) believed(a *attempt, us, own int64) int64 {
	if us < a.placed-skew.Microseconds() || us > db.Micros(b.tx.Now.Add(skew)) {
		return own
	}
	return us
}

func (b *batch) job(ctx context.Context, id string) (*record, error) {
	if r, ok := b.jobs[id]; ok {
		return r, nil
	}
	r, err := loadJob(ctx, b.tx, id)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fault.New(fault.Internal, "attempt of job %s, which is not there", id)
	}
	b.jobs[id] = r
	b.order = append(b.order, r)
	return r, nil
}

// issued counts the first runs that their centers accepted; with the last one
// the scheduling time of equation 3 is known.
func (b *batch) issued(r *record, a *attempt) {
	if r.issued >= r.total {
		return
	}
	r.issued++
	at := b.s.takeIssued(a.id, db.Micros(b.tx.Now))
	r.schedulingUS = max(r.schedulingUS, at-r.created)
	if r.issued >= toIssue(r) {
		r.issued = r.total
		us := r.schedulingUS
		b.tx.AfterCommit(func() { b.s.sched.Scheduled(us) })
	}
}

// end records how an attempt ended and what that means for its job.
func (b *batch) end(ctx context.Context, r *record, a *attempt, st *adapterv1.Status) error {
	r.active--
	b.over = append(b.over, a.id)
	switch a.state {
	case running:
		r.running--
		b.freed[0]++
	case paused:
		r.paused--
		b.freed[0]++
	default:
		b.freed[1]++
	}
	b.free(a)
	now := db.Micros(b.tx.Now)
	switch {
	case a.started == 0 && st.EndedAt == 0: // it never started
		a.ended = now
	case a.started == 0:
		a.ended = max(b.believed(a, st.EndedAt, now), a.placed)
	case st.EndedAt == 0: // nobody knows when
		a.ended = a.started
	default:
		a.ended = max(b.believed(a, st.EndedAt, now), a.started)
	}
	a.exitCode, a.cpuUS, a.peak = int64(st.ExitCode), max(0, st.CpuMicroseconds), max(0, st.MemoryPeakBytes)
	a.reason, a.message = clipText(st.Reason, 64), clipText(st.Message, 500)
	if st.LogInline {
		a.logInline = st.Log
		if a.logInline == nil {
			a.logInline = []byte{}
		}
	}
	if a.reason == reasonRefused {
		if b.later[a.id] && a.takenAs == "" {
			a.takenAs = takenRefused
		}
		if b.remember {
			if err := b.s.stand.RefusedTx(ctx, b.tx, a.center, a.spec, r.spec.Tasks[a.task].ImageId, a.message); err != nil {
				return err
			}
		}
	}
	if err := b.unlent(ctx, a); err != nil {
		return err
	}
	if err := b.outcome(ctx, r, a, st.Reason); err != nil {
		return err
	}
	if a.started > 0 {
		b.usage = append(b.usage, metering.Record{AttemptID: a.id, JobID: r.id, TenantID: r.tenant, UserName: r.user, TaskName: r.spec.Tasks[a.task].Name,
			TaskIndex: int32(a.task), ReplicaIndex: int32(a.replica), Attempt: int32(a.number), AICenterID: a.center, ResourceSpecID: a.spec,
			StartedAt: db.Time(a.started), EndedAt: db.Time(a.ended), CPUMicros: a.cpuUS, MemoryPeakBytes: a.peak, Price: a.price,
			Project: r.spec.Labels[scheduler.ProjectLabel]})
	}
	if a.pooled && b.s.pool != nil {
		b.tx.AfterCommit(b.s.wakeLend) // others have its shares
		if err := b.s.pool.RunEndedTx(ctx, b.tx, a.id); err != nil {
			return err
		}
	}
	r.lastEnd = max(r.lastEnd, a.ended)
	if r.spec.Gang && r.unplaced > 0 { // what waits may wait for this end
		r.waitingSince = now
	}
	b.wake = true
	if err := saveAttempt(ctx, b.tx, a); err != nil {
		return err
	}
	if r.outcome != 0 {
		return nil
	}
	if depends(r.spec) {
		if _, err := follow(ctx, b.tx, r); err != nil {
			return err
		}
	}
	outcome := outcomeOf(r)
	switch {
	case outcome == failed && a.state == failed:
		return b.s.conclude(ctx, b.tx, r, failed, a.reason, fmt.Sprintf("task %s replica %d: %s", r.spec.Tasks[a.task].Name, a.replica, describe(a)), a.ended)
	case outcome == failed:
		return b.s.conclude(ctx, b.tx, r, failed, "policy", "all replicas have ended and not enough of them succeeded", a.ended)
	case outcome == succeeded:
		return b.s.conclude(ctx, b.tx, r, succeeded, "", "", a.ended)
	}
	return nil
}

// outcome says what the end of a run means for its replica, and counts it.
func (b *batch) outcome(ctx context.Context, r *record, a *attempt, reason string) error {
	if a.takenAs == takenScaled && a.replica >= int64(r.spec.Tasks[a.task].ReplicaNumber) {
		// However it ended, there is no such replica any more.
		if a.state = failed; reason == "completed" {
			a.state, a.reason = succeeded, ""
		} else if reason == "stopped" {
			a.state, a.reason, a.message = stopped, takenScaled, a.taken
		}
		r.total--
		r.issued = min(r.issued, r.total)
		return nil
	}
	switch {
	case reason == "completed":
		a.state, a.reason = succeeded, ""
		if r.succeeded++; r.spec.Elastic && r.outcome == 0 {
			return b.giveUpWaiting(ctx, r)
		}
		return nil
	case reason == "stopped" && (a.taken == "" || r.outcome != 0 || r.settled() && a.takenAs == takenPreempted):
		a.state = stopped
		r.stopped++
		return nil
	case reason == "stopped":
		if a.reason, a.message = takenReclaimed, a.taken; a.takenAs != "" {
			a.reason = a.takenAs
		}
	case reason == reasonRefused && a.takenAs == takenRefused && r.outcome != 0:
		// It would be placed again, but the job ends: it is one more that never ran.
		a.state, a.reason, a.message = stopped, "stopped", ""
		r.stopped++
		return nil
	}
	a.state = failed
	if r.outcome != 0 || b.final {
		r.failed++
		return nil
	}
	earlier, err := b.earlierRuns(ctx, r, a)
	if err != nil {
		return err
	}
	yes, pause := again(r.spec, a, earlier)
	if !yes {
		r.failed++
		return nil
	}
	a.retry = true
	r.unplaced++
	r.waitingSince = db.Micros(b.tx.Now)
	if pause > 0 {
		r.notBefore = max(r.notBefore, db.Micros(b.tx.Now.Add(pause)))
	}
	return b.restartOthers(ctx, r, a)
}

// free counts what an attempt held: its center's, or an allocation's.
func (b *batch) free(a *attempt) {
	to := b.release
	if a.allocation != "" {
		if b.drawn == nil {
			b.drawn = map[string]core.Quantities{}
		}
		if b.drawn[a.allocation] == nil {
			b.drawn[a.allocation] = core.Quantities{}
		}
		to = b.drawn[a.allocation]
	}
	for name, n := range a.resources {
		to[name] += n
	}
}

// describe says in a few words how a run failed.
func describe(a *attempt) string {
	switch {
	case a.message != "":
		return a.message
	case a.reason == "exit":
		return fmt.Sprintf("exit code %d", a.exitCode)
	case a.reason == "oom":
		return "used more memory than its specification has"
	case a.reason == "lost":
		return "its center was lost"
	case a.reason == "wall_time":
		return "ran longer than its timeout"
	default:
		return a.reason
	}
}

// clipText makes what a center says fit to be stored: PostgreSQL keeps no
// zero bytes in text.
func clipText(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// finish writes what the whole batch changed.
func (b *batch) finish(ctx context.Context) error {
	if len(b.order) == 0 {
		return nil
	}
	if err := b.book(ctx); err != nil {
		return err
	}
	for _, r := range b.began { // after the runs are stored
		if r.outcome != 0 {
			continue
		}
		if _, err := follow(ctx, b.tx, r); err != nil {
			return err
		}
		b.wake = true
	}
	for _, r := range b.order {
		if err := saveJob(ctx, b.tx, r); err != nil {
			return err
		}
	}
	return b.s.changed(ctx, b.tx, b.order...)
}

// book tells metering and the registry what started and what ended.
func (b *batch) book(ctx context.Context) error {
	if err := b.s.meter.RecordTx(ctx, b.tx, b.usage); err != nil {
		return err
	}
	// Allocations first, as everywhere where both are locked.
	for _, id := range sortedKeys(b.drawn) {
		if err := b.s.allocs.GiveBackTx(ctx, b.tx, id, b.drawn[id]); err != nil {
			return err
		}
	}
	if b.started > 0 {
		if err := b.s.reg.StartedTx(ctx, b.tx, b.center, b.started); err != nil {
			return err
		}
	}
	if b.freed[0]+b.freed[1] > 0 {
		return b.s.reg.ReleaseTx(ctx, b.tx, b.center, b.release, b.freed[0], b.freed[1])
	}
	return nil
}
