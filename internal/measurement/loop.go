package measurement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/accelerators"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/jobs"
	"yunhe.dev/yunhe/internal/measurement/report"
	"yunhe.dev/yunhe/internal/measurement/score"
	"yunhe.dev/yunhe/internal/registry"
)

const (
	// lookAgain is how long an open run may go unseen when events are lost.
	lookAgain = 30 * time.Second
	// logAgain is how soon a log that is not there yet is looked for again.
	logAgain = 2 * time.Second
	// schedulePause is how often centers that are due are looked for.
	schedulePause = time.Minute
	// atOnce is how many scheduled runs may be open.
	atOnce = 4
)

// Run follows the runs and starts those that are due, until ctx ends. It must
// run once per platform. It reads the database when a job of a run changed, and
// every half minute while a run is open.
func (s *Service) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	stir := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	stopRuns, err := s.Bus.Listen("measurement.changed", func(string, []byte) { stir() })
	if err != nil {
		return err
	}
	defer stopRuns()
	stopJobs, err := s.Bus.Listen("job.changed", func(_ string, payload []byte) {
		if s.concerns(payload) {
			stir()
		}
	})
	if err != nil {
		return err
	}
	defer stopJobs()
	plan := make(chan struct{}, 1)
	nudge := func() {
		select {
		case plan <- struct{}{}:
		default:
		}
	}
	stopPlans, err := s.Bus.Listen("measurement.schedule", func(string, []byte) { nudge() })
	if err != nil {
		return err
	}
	defer stopPlans()
	due := time.NewTicker(schedulePause)
	defer due.Stop()
	stir()
	nudge()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		core.Round(ctx, schedulePause)
		select {
		case <-ctx.Done():
			return nil
		case <-due.C:
			nudge()
			if err := s.schedule(ctx); err != nil && ctx.Err() == nil {
				core.RoundFailed(ctx, err)
				s.log.Warn("centers that are due not measured", "error", err)
			}
		case <-plan:
			if err := s.measureNodes(ctx); err != nil && ctx.Err() == nil {
				core.RoundFailed(ctx, err)
				s.log.Warn("schedules of nodes not followed", "error", err)
			}
		case <-wake:
			timer.Reset(s.lookAt(ctx, nudge))
		case <-timer.C:
			timer.Reset(s.lookAt(ctx, nudge))
		}
	}
}

// concerns reports whether an event is about the job of an open run.
func (s *Service) concerns(payload []byte) bool {
	var list []struct {
		ID string `json:"id"`
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watched) == 0 || json.Unmarshal(payload, &list) != nil {
		return false
	}
	for _, c := range list {
		if s.watched[c.ID] {
			return true
		}
	}
	return false
}

// lookAt brings every open run forward and returns when to look again. It says
// when one of a schedule of nodes ended, as another may begin.
func (s *Service) lookAt(ctx context.Context, ended func()) time.Duration {
	var open []Run
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		open, err = readRuns(ctx, tx, `WHERE state <= $1 ORDER BY run_id`, int64(Running))
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("runs of the benchmark not read", "error", err)
		}
		return lookAgain
	}
	again := time.Hour
	watched := map[string]bool{}
	for i := range open {
		core.GetsOn(ctx)
		r := &open[i]
		pause, err := s.advance(ctx, r)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("run of the benchmark not followed", "run_id", r.ID, "error", err)
			pause = logAgain
		}
		if r.open() {
			watched[r.JobID] = true
			again = min(again, pause)
		} else if r.ScheduleNode != "" {
			ended()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = watched
	return again
}

// submit submits the job of a run; the same run has the same job.
func (s *Service) submit(ctx context.Context, r *Run) error {
	packed, err := program(r.Scope, r.Architecture)
	if err != nil {
		return err
	}
	cat, err := s.Registry.Catalog(ctx)
	if err != nil {
		return err
	}
	spec := cat.Specs[r.SpecID]
	if spec == nil {
		return fault.New(fault.Invalid, "there is no resource specification %q any more", r.SpecID)
	}
	chooses := false
	if r.Node != "" {
		if chooses, err = s.Jobs.ChoosesNode(ctx, r.CenterID); err != nil {
			return err
		}
	}
	ids, err := s.Jobs.Submit(itself(ctx), r.ID, []*jobsv1.JobSpec{r.job(packed, spec.Quantity, chooses)}, false)
	if err != nil {
		return err
	}
	r.JobID, r.State = ids[0], Running
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if _, err := saveRun(ctx, tx, r, Waiting); err != nil {
			return err
		}
		return tx.Emit(ctx, "measurement.changed", []byte(r.ID))
	})
	return err
}

// advance brings an open run forward as far as its job has come, and returns
// when to look again.
func (s *Service) advance(ctx context.Context, r *Run) (time.Duration, error) {
	now := s.db.Now()
	if r.State == Waiting {
		switch err := s.submit(ctx, r); fault.KindOf(err) {
		case fault.Invalid, fault.NotFound, fault.Conflict, fault.Denied: // it will never be taken
			return 0, s.fail(ctx, r, Failed, "the job cannot be submitted: "+message(err))
		default:
			if err != nil && now.Sub(r.CreatedAt) > maxAge {
				return 0, s.fail(ctx, r, Failed, "the job could not be submitted: "+message(err))
			}
			if err != nil {
				return lookAgain, err
			}
		}
	}
	// Before it is looked at: what changes from here on is heard.
	s.mu.Lock()
	s.watched[r.JobID] = true
	s.mu.Unlock()
	j, err := s.Jobs.Get(itself(ctx), r.JobID)
	if fault.KindOf(err) == fault.NotFound {
		return 0, s.fail(ctx, r, Failed, "its job was deleted")
	}
	if err != nil {
		return 0, err
	}
	if len(j.Replicas) > 0 && j.Replicas[0].Node != "" {
		r.Node = j.Replicas[0].Node
	}
	switch j.State {
	case jobsv1.State_STATE_SUCCEEDED:
		return s.read(ctx, r, j)
	case jobsv1.State_STATE_FAILED, jobsv1.State_STATE_STOPPED:
		return 0, s.fail(ctx, r, Failed, s.why(ctx, j))
	}
	if r.ScheduleNode != "" {
		if gone, err := s.givesWay(ctx, r, j); gone || err != nil {
			return lookAgain, err
		}
	}
	if now.Sub(r.CreatedAt) > maxAge {
		if _, err := s.Jobs.Stop(itself(ctx), r.JobID, "the measurement took too long"); err != nil {
			return 0, err
		}
		return 0, s.fail(ctx, r, Failed, fmt.Sprintf("the job had not ended after %s", maxAge))
	}
	return lookAgain, nil
}

// why says why a job failed, with the last line it printed.
func (s *Service) why(ctx context.Context, j *jobsv1.Job) string {
	parts := []string{"the job " + jobs.StateName(j.State)}
	for _, t := range []string{j.Reason, j.Message} {
		if t != "" {
			parts = append(parts, t)
		}
	}
	if len(j.Replicas) > 0 && j.Replicas[0].Message != "" && j.Replicas[0].Message != j.Message {
		parts = append(parts, j.Replicas[0].Message)
	}
	if log, err := s.Jobs.LogText(itself(ctx), j.JobId, 0, 0, maxLog); err == nil {
		lines := strings.Split(strings.TrimSpace(log), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
			parts = append(parts, "it printed: "+clip(strings.ToValidUTF8(last, "")))
		}
	}
	return strings.Join(parts, ": ")
}

// message is an error for people.
func message(err error) string {
	if m, ok := fault.Message(err); ok {
		return m
	}
	return "the platform has trouble, see its log"
}

// fail ends a run that has no result, or one that does not count.
func (s *Service) fail(ctx context.Context, r *Run, state State, why string) error {
	return s.end(ctx, r, state, why, false)
}

// end is fail, also of a run that gave way.
func (s *Service) end(ctx context.Context, r *Run, state State, why string, gaveWay bool) error {
	was := r.State
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r.State, r.Message, r.EndedAt = state, strings.ToValidUTF8(why[:min(len(why), 1024)], ""), tx.Now
		ok, err := saveRun(ctx, tx, r, was)
		if err != nil || !ok || r.ScheduleNode == "" {
			return err
		}
		if err := nodeFailed(ctx, tx, r.CenterID, r.ScheduleNode, r.Message, gaveWay); err != nil {
			return err
		}
		return pruneNodeRuns(ctx, tx, r.CenterID, r.ScheduleNode, keptNodeRuns)
	})
	if err == nil {
		s.log.Warn("center not measured", "run_id", r.ID, "ai_center_id", r.CenterID, "job_id", r.JobID, "why", r.Message)
	}
	return err
}

// read ends a run whose job succeeded.
func (s *Service) read(ctx context.Context, r *Run, j *jobsv1.Job) (time.Duration, error) {
	log, err := s.Jobs.LogText(itself(ctx), r.JobID, 0, 0, maxLog)
	if err != nil {
		return 0, err
	}
	rep, err := report.Parse(log)
	if err == nil && rep.Scope != r.Scope.String() {
		err = errors.New("the report is of " + rep.Scope)
	}
	if err != nil {
		if s.db.Now().Sub(j.EndedAt.AsTime()) < logWithin { // the log may still be on its way
			return logAgain, nil
		}
		return 0, s.fail(ctx, r, Failed, err.Error())
	}
	given := int64(0)
	cat, err := s.Registry.Catalog(ctx)
	if err != nil {
		return 0, err
	}
	if spec := cat.Specs[r.SpecID]; spec != nil {
		given = cores(spec.Quantity)
		r.Result.Speeds = speeds(rep, spec.Quantity)
	}
	r.Result.Report = *rep
	if bad := score.Implausible(rep, given, peak); len(bad) > 0 {
		return 0, s.fail(ctx, r, Refused, strings.Join(bad, "; "))
	}
	several := false
	if j.GetSpec().GetTasks()[0].GetConstraints().GetNode() != "" {
		_, next, err := s.Registry.ListNodes(ctx, registry.NodeFilter{CenterID: r.CenterID}, 1, "")
		if err != nil {
			return 0, err
		}
		several = next != ""
	}
	return 0, s.succeed(ctx, r, several)
}

// peak is the published rate of a device the table knows.
func peak(model, precision string) (float64, bool) {
	a, ok := accelerators.Known().Find(model)
	if !ok {
		return 0, false
	}
	rate, ok := a.PeakOf(accelerators.Precision(precision))
	return rate.Tera(), ok
}

// succeed stores the result of a run and what becomes of its factor. That of a node
// that was chosen among several speaks for the center only if somebody says so.
func (s *Service) succeed(ctx context.Context, r *Run, chosen bool) error {
	ctx = core.WithAudit(itself(ctx), &core.Audit{Method: "measurement.result"})
	was := r.State
	applied := false
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		applied = false
		set, err := readSettings(ctx, tx)
		if err != nil {
			return err
		}
		r.State, r.EndedAt, r.Performance, r.Decision, r.DecidedBy = Succeeded, tx.Now, 0, 0, ""
		if r.Scope == Machine {
			figures := map[string]float64{}
			for _, f := range r.Result.Report.Figures {
				figures[f.Indicator] = f.Number
			}
			r.Result.Shares, r.Performance = score.Combine(figures, r.Result.Report.Cores, set.Weights)
		}
		if (r.Performance > 0 || r.Result.Speeds != nil) && !(chosen && r.ScheduleNode != "") {
			r.Decision = Awaited
			if set.Policy == Automatic && !chosen {
				applied, err = s.apply(ctx, tx, r, false)
				if err != nil && fault.KindOf(err) != fault.NotFound {
					return err
				}
				if applied {
					r.Decision, r.DecidedBy = Accepted, "policy"
				}
			}
			if err := replaceAwaited(ctx, tx, r); err != nil {
				return err
			}
		}
		ok, err := saveRun(ctx, tx, r, was)
		if err != nil {
			return err
		}
		if !ok { // somebody else followed it
			return fault.New(fault.Conflict, "run %s has ended already", r.ID)
		}
		if r.ScheduleNode != "" {
			if err := nodeWell(ctx, tx, r); err != nil {
				return err
			}
			if err := pruneNodeRuns(ctx, tx, r.CenterID, r.ScheduleNode, keptNodeRuns); err != nil {
				return err
			}
		}
		return s.Identity.AuditTx(ctx, tx, r.ID)
	})
	if err == nil {
		s.log.Info("center measured", "run_id", r.ID, "ai_center_id", r.CenterID, "scope", r.Scope.String(), "performance", r.Performance, "applied", applied)
	}
	return err
}

// apply makes what a run measured the center's: its factor, or the speeds of its
// accelerators. It reports whether it is now.
func (s *Service) apply(ctx context.Context, tx *db.Tx, r *Run, force bool) (bool, error) {
	if r.Result.Speeds == nil {
		return s.Registry.SetPerformanceTx(ctx, tx, r.CenterID, r.Performance, force)
	}
	err := s.Registry.SetSpeedsTx(ctx, tx, r.CenterID, r.Result.Speeds)
	return err == nil, err
}

// speeds are those of a report of a specification's accelerators: of each
// precision that of the slowest. nil: there are none.
func speeds(rep *report.Report, q core.Quantities) []registry.Speed {
	i := slices.IndexFunc(accelerators.Classes(), func(name string) bool { return q[name] > 0 })
	if rep.Scope != report.Devices || i < 0 {
		return nil
	}
	var out []registry.Speed
	for indicator, p := range map[string]accelerators.Precision{score.DeviceFP32: accelerators.FP32, score.DeviceFP64: accelerators.FP64} {
		least := math.Inf(1)
		for _, f := range rep.Figures {
			if f.Indicator == indicator && f.Device >= 0 && rep.Devices[f.Device].Class != "cpu" {
				least = min(least, f.Number)
			}
		}
		if math.IsInf(least, 1) {
			continue
		}
		if v, ok := registry.MeasuredSpeed(accelerators.Classes()[i], p, least); ok {
			out = append(out, v)
		}
	}
	return out
}

// schedule starts runs at centers that are due and idle.
func (s *Service) schedule(ctx context.Context) error {
	var set Settings
	var last map[Scope]map[string]int64
	var retry map[string]time.Time
	open := 0
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		if set, err = readSettings(ctx, tx); err != nil || !set.OnJoin && set.EveryDays == 0 {
			return err
		}
		last = map[Scope]map[string]int64{}
		for _, scope := range []Scope{Machine, Devices} {
			if last[scope], err = lastRuns(ctx, tx, scope); err != nil {
				return err
			}
		}
		if retry, err = centerRetries(ctx, tx); err != nil {
			return err
		}
		runs, err := readRuns(ctx, tx, `WHERE state <= $1 AND schedule_node = ''`, int64(Running))
		open = len(runs)
		return err
	})
	if err != nil || last == nil {
		return err
	}
	snap, err := s.Registry.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, k := range snap.Centers {
		scope := due(k, set, last, snap.At)
		if scope == 0 || snap.At.Before(retry[k.ID]) || open >= atOnce {
			continue
		}
		caller := core.Caller{UserID: Scheduled, TenantID: identity.PlatformTenant, AllTenants: true}
		ctx := core.WithAudit(core.WithCaller(ctx, caller), &core.Audit{Method: "measurement.schedule"})
		if _, err := s.Start(ctx, Request{CenterID: k.ID, Scope: scope}); err != nil {
			if err := s.db.Tx(ctx, func(tx *db.Tx) error { return nodeFailed(ctx, tx, k.ID, "", message(err), false) }); err != nil {
				return err
			}
			s.log.Info("center not measured though due", "ai_center_id", k.ID, "error", err)
			continue
		}
		if _, tried := retry[k.ID]; tried {
			if err := s.db.Tx(ctx, func(tx *db.Tx) error { return forgetRetry(ctx, tx, k.ID) }); err != nil {
				return err
			}
		}
		open++
	}
	return nil
}

// due returns what of a center is to be measured now: 0 for nothing. Devices
// are measured where there are some, after the machine.
func due(k *registry.Center, set Settings, last map[Scope]map[string]int64, now time.Time) Scope {
	if k.Status != registry.Available || k.Drained || k.Running+k.Waiting > 0 {
		return 0
	}
	for _, scope := range []Scope{Machine, Devices} {
		if scope == Devices && !hasAccelerators(k) {
			continue
		}
		at, ever := last[scope][k.ID]
		if !ever && set.OnJoin || ever && set.EveryDays > 0 && now.Sub(db.Time(at)) >= time.Duration(set.EveryDays)*24*time.Hour || !ever && set.EveryDays > 0 {
			return scope
		}
	}
	return 0
}

func hasAccelerators(k *registry.Center) bool {
	for name, n := range k.Total {
		if isAccelerator(name) && n > 0 {
			return true
		}
	}
	return false
}
