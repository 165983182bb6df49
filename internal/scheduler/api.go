package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/gen/yunhe/scheduler/v1/schedulerv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/rpc"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

type handler struct{ s *Service }

// Register mounts the component's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(schedulerv1connect.NewSchedulerServiceHandler(handler{s}, srv.Options()...))
	srv.Service(schedulerv1connect.NewQueueServiceHandler(queueHandler{s}, srv.Options()...))
	srv.RawErrors("GET /scheduler/algorithm/{algorithmId}/score/{centerId}", "scheduler.read", s.scoreA5, rpc.FailEnvelope)
	srv.RawErrors("GET /scheduler/evaluate/score/{centerId}", "scheduler.read", s.evaluateA6, rpc.FailEnvelope)
}

func (h handler) ListPolicies(context.Context, *schedulerv1.ListPoliciesRequest) (*schedulerv1.ListPoliciesResponse, error) {
	res := &schedulerv1.ListPoliciesResponse{}
	for _, p := range place.Policies() {
		out := &schedulerv1.Policy{PolicyId: p.ID, Title: p.Title, TitleZh: p.TitleZH, Doc: p.Doc}
		for _, f := range p.Factors {
			out.Factors = append(out.Factors, f.ID)
		}
		res.Policies = append(res.Policies, out)
	}
	for _, p := range place.Presets() {
		res.Presets = append(res.Presets, &schedulerv1.Preset{Name: p.ID, Weights: presetWeights(p)})
	}
	return res, nil
}

func policySetOut(p PolicySet) *schedulerv1.PolicySet {
	out := &schedulerv1.PolicySet{Weights: p.Weights, Preset: p.Preset}
	if !p.Updated.IsZero() {
		out.UpdatedAt = timestamppb.New(p.Updated)
	}
	return out
}

func (h handler) GetPolicySet(ctx context.Context, _ *schedulerv1.GetPolicySetRequest) (*schedulerv1.PolicySet, error) {
	p, err := h.s.GetPolicySet(ctx)
	if err != nil {
		return nil, err
	}
	return policySetOut(p), nil
}

func (h handler) SetPolicySet(ctx context.Context, r *schedulerv1.SetPolicySetRequest) (*schedulerv1.PolicySet, error) {
	if r.PolicySet == nil {
		return nil, fault.Fields(fault.Field{Path: "policy_set", Problem: "is required"})
	}
	p, err := h.s.SetPolicySet(ctx, r.PolicySet.Preset, r.PolicySet.Weights)
	if err != nil {
		return nil, err
	}
	return policySetOut(p), nil
}

func (h handler) ScoreCenter(ctx context.Context, r *schedulerv1.ScoreCenterRequest) (*schedulerv1.ScoreCenterResponse, error) {
	n, err := h.s.Score(ctx, r.PolicyId, r.AiCenterId, r.JobId)
	if err != nil {
		return nil, err
	}
	return &schedulerv1.ScoreCenterResponse{Score: int32(n)}, nil
}

func (h handler) EvaluateCenter(ctx context.Context, r *schedulerv1.EvaluateCenterRequest) (*schedulerv1.EvaluateCenterResponse, error) {
	scores := make([]int, len(r.Scores))
	for i, n := range r.Scores {
		scores[i] = int(n)
	}
	n, err := h.s.Evaluate(ctx, r.AiCenterId, r.PolicyIds, scores)
	if err != nil {
		return nil, named("policy_ids", "scores", err)
	}
	return &schedulerv1.EvaluateCenterResponse{Score: int32(n)}, nil
}

func (h handler) GetSchedulingStats(ctx context.Context, r *schedulerv1.GetSchedulingStatsRequest) (*schedulerv1.GetSchedulingStatsResponse, error) {
	var c core.Check
	if c.Range("window_seconds", r.WindowSeconds, 0, int64(maxWindow/time.Second)); c.Err() != nil {
		return nil, c.Err()
	}
	st, err := h.s.Stats(ctx, time.Duration(r.WindowSeconds)*time.Second)
	if err != nil {
		return nil, err
	}
	seconds := int64(st.Window / time.Second)
	res := &schedulerv1.GetSchedulingStatsResponse{JobsScheduled: st.Jobs, ReplicasPlaced: st.Replicas, TotalMicroseconds: st.Busy.Microseconds(), ThroughputPerSecond: throughput(st.Jobs, st.Busy),
		SchedulingP50Microseconds: st.P50, SchedulingP95Microseconds: st.P95, SchedulingP99Microseconds: st.P99, Queued: st.Queued, Since: timestamppb.New(st.Since),
		Window: &schedulerv1.SchedulingFigures{Seconds: seconds, JobsScheduled: st.WindowJobs, ReplicasPlaced: st.WindowReplicas, TotalMicroseconds: st.WindowBusy.Microseconds(),
			ThroughputPerSecond: throughput(st.WindowJobs, st.WindowBusy), JobsPerSecond: float64(st.WindowJobs) / float64(seconds), MeasuredJobs: st.Measured,
			SchedulingP50Microseconds: st.Window50, SchedulingP95Microseconds: st.Window95, SchedulingP99Microseconds: st.Window99, SchedulingMaxMicroseconds: st.WindowMax}}
	for _, t := range st.Tenants {
		res.Tenants = append(res.Tenants, &schedulerv1.TenantQueue{TenantId: t.Tenant, Jobs: t.Jobs, Replicas: t.Replicas, OldestAt: timestamppb.New(t.Oldest)})
	}
	return res, nil
}

// DecisionProto is a decision as the API shows it.
func DecisionProto(d *place.Decision) *schedulerv1.Decision {
	out := &schedulerv1.Decision{AiCenterId: d.Chosen, Summary: summary(d), Policy: d.Set}
	for _, row := range d.Table {
		c := &schedulerv1.CandidateScore{AiCenterId: row.Candidate, CenterName: row.Name, Rank: int32(row.Rank), Chosen: row.Chosen, FinalScoreRounded: int32(row.Final),
			NetworkSource: row.Network}
		for _, f := range row.Filtered {
			c.FilterReasons = append(c.FilterReasons, f.Text)
		}
		if row.Rank == 0 { // else they did not keep it out
			for _, f := range row.Rules {
				c.FilterReasons = append(c.FilterReasons, f.Text)
			}
		}
		if row.Exact != nil && row.Exact.Den > 0 {
			c.FinalScore = float64(row.Exact.Num) / float64(row.Exact.Den)
		}
		for i, p := range d.Policies {
			if i >= len(row.Scores) {
				break
			}
			ps := &schedulerv1.PolicyScore{PolicyId: p.ID, Score: int32(row.Scores[i])}
			if d.WeightSum > 0 {
				ps.Weight = float64(p.Weight) / float64(d.WeightSum)
				ps.Weighted = float64(row.Weighted[i]) / float64(d.WeightSum)
			}
			var facts []string
			for k, f := range p.Factors {
				if i < len(row.Values) && k < len(row.Values[i]) {
					facts = append(facts, place.Text(f.Unit, row.Values[i][k]))
				}
			}
			ps.Fact = strings.Join(facts, ", ")
			c.Scores = append(c.Scores, ps)
		}
		out.Candidates = append(out.Candidates, c)
	}
	return out
}

// summary says in one sentence what decided.
func summary(d *place.Decision) string {
	switch {
	case d.Chosen == "":
		return "not placed: " + d.Reason
	case d.Margin == nil:
		return fmt.Sprintf("%s is the only one of %d centers that can run it", d.Chosen, d.Candidates)
	case d.Margin.ByRule:
		return fmt.Sprintf("%s comes before %s by a preferred placement rule", d.Chosen, d.Margin.RunnerUp)
	case d.Margin.ByID:
		return fmt.Sprintf("%s and %s score the same; the lower ID wins", d.Chosen, d.Margin.RunnerUp)
	}
	text := fmt.Sprintf("%s is ahead of %s by %.2f points", d.Chosen, d.Margin.RunnerUp, float64(d.Margin.Gap.Num)/float64(max(1, d.Margin.Gap.Den)))
	if d.Margin.DecidedBy != "" {
		text += ", mostly by " + d.Margin.DecidedBy
	}
	if f := d.Margin.Flip; f != nil && f.Above.Den > 0 {
		text += fmt.Sprintf("; a weight of %s above %.2f (now %d) would have chosen %s", f.Policy, float64(f.Above.Num)/float64(f.Above.Den), f.Weight, d.Margin.RunnerUp)
	}
	return text
}

// recordOf is a decision as S 6.2.1, Table 5 has it. What the center and the
// specification are is read as it is now, all else as it was decided by.
func recordOf(d *place.Decision, id string, ex *Explained, spec string, snap *registry.Snapshot) *schedulerv1.SchedulingRecord {
	r := &schedulerv1.SchedulingRecord{ScheduleTaskId: id, ScheduleTaskType: "compute", Priority: int32(ex.Priority), AiAlgorithm: cmp.Or(d.Algorithm, "none"),
		FactorWeights: map[string]float64{}, Location: &schedulerv1.ScheduledLocation{}}
	if s := snap.Specs[spec]; s != nil {
		r.ComputeType = kindOf(s.Quantity)
	}
	if c := centerOf(snap, d.Chosen); c != nil {
		r.Location.Region = c.Region
		if p := c.Position; p != nil {
			r.Location.Longitude, r.Location.Latitude = degrees(p.Longitude), degrees(p.Latitude)
		}
	}
	for i := range d.Table {
		if d.Table[i].Chosen {
			values := d.Table[i].Values
			r.NetworkLatency = fact(d, values, "latency", 1e3)
			r.EnergyConsumption = fact(d, values, "energy", 1e3)
			r.Performance = fact(d, values, "speed", 1e3)
		}
	}
	most := int64(0)
	for _, p := range d.Policies {
		if p.Weight == 0 {
			continue
		}
		r.FactorWeights[p.ID] = float64(p.Weight) / float64(d.WeightSum)
		if p.Weight > most {
			most, r.OptimizationGoal = p.Weight, p.ID
		}
	}
	return r
}

// fact is what is known of a factor, in units of so many of the engine's; nil:
// nothing.
func fact(d *place.Decision, values [][]place.Fact, factor string, unit float64) *float64 {
	for i, p := range d.Policies {
		for k, f := range p.Factors {
			if f.ID == factor && i < len(values) && k < len(values[i]) && values[i][k].Known {
				return new(float64(values[i][k].Value) / unit)
			}
		}
	}
	return nil
}

func degrees(micro int64) *float64 { return new(float64(micro) / 1e6) }

// scoreA5 is T/AI 123.6 A.5.
func (s *Service) scoreA5(w http.ResponseWriter, r *http.Request) error {
	if err := rpc.OnlyParams(r, "jobId"); err != nil {
		return err
	}
	n, err := s.Score(r.Context(), r.PathValue("algorithmId"), r.PathValue("centerId"), r.URL.Query().Get("jobId"))
	if err != nil {
		return err
	}
	rpc.WriteEnvelope(w, map[string]int{"score": n})
	return nil
}

// named puts what is wrong with an evaluation down to the parameter at fault.
func named(ids, scores string, err error) error {
	msg, _ := fault.Message(err)
	switch {
	case fault.KindOf(err) != fault.Invalid:
		return err
	case strings.HasPrefix(msg, "scores["):
		return fault.Fields(fault.Field{Path: scores, Problem: "each " + msg[strings.Index(msg, "]")+2:]})
	default:
		return fault.Fields(fault.Field{Path: ids, Problem: msg})
	}
}

// evaluateA6 is T/AI 123.6 A.6: arrays travel as repeated or comma-separated
// query parameters.
func (s *Service) evaluateA6(w http.ResponseWriter, r *http.Request) error {
	if err := rpc.OnlyParams(r, "algorithmIds", "algorithmScores"); err != nil {
		return err
	}
	list := func(name string) []string {
		var out []string
		for _, v := range r.URL.Query()[name] {
			out = append(out, strings.Split(v, ",")...)
		}
		return out
	}
	ids, texts := list("algorithmIds"), list("algorithmScores")
	const most = 32
	for name, n := range map[string]int{"algorithmIds": len(ids), "algorithmScores": len(texts)} {
		if n < 1 || n > most {
			return fault.Fields(fault.Field{Path: name, Problem: fmt.Sprintf("must have 1 to %d entries, got %d", most, n)})
		}
	}
	scores := make([]int, len(texts))
	for i, t := range texts {
		n, err := strconv.Atoi(strings.TrimSpace(t))
		if err != nil {
			return fault.Fields(fault.Field{Path: fmt.Sprintf("algorithmScores[%d]", i), Problem: fmt.Sprintf("must be an integer from 0 to 100, got %q", clip(t))})
		}
		scores[i] = n
	}
	n, err := s.Evaluate(r.Context(), r.PathValue("centerId"), ids, scores)
	if err != nil {
		return named("algorithmIds", "algorithmScores", err)
	}
	rpc.WriteEnvelope(w, map[string]int{"score": n})
	return nil
}

// Cause is what holds work back.
type Cause = schedulerv1.Wait_Cause

// Causes that the owner of jobs knows.
const (
	Dependency = schedulerv1.Wait_CAUSE_DEPENDENCY
	Restart    = schedulerv1.Wait_CAUSE_RESTART
	NearJob    = schedulerv1.Wait_CAUSE_NEAR_JOB
)

func (h handler) ExplainJob(ctx context.Context, r *schedulerv1.ExplainJobRequest) (*schedulerv1.ExplainJobResponse, error) {
	ex, err := h.s.src.Explained(ctx, r.JobId)
	if err != nil {
		return nil, err
	}
	res := &schedulerv1.ExplainJobResponse{JobId: ex.JobID}
	records, err := h.s.decisions(ctx, ex.JobID)
	if err != nil {
		return nil, err
	}
	snap, err := h.s.reg.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range ex.Placed {
		d := records[p.DecisionID]
		if d == nil {
			return nil, fmt.Errorf("decision %s of %s is missing", p.DecisionID, ex.JobID)
		}
		out := DecisionProto(d)
		out.TaskIndex, out.ReplicaIndex, out.Attempt = int32(p.Task), int32(p.Replica), int32(p.Attempt)
		out.DecidedAt = timestamppb.New(p.At)
		out.Record = recordOf(d, p.DecisionID, ex, ex.Specs[p.Task], snap)
		res.Decisions = append(res.Decisions, out)
	}
	if ex.Waiting != nil {
		p, err := h.s.Preview(ctx, ex.Waiting)
		if err != nil {
			return nil, err
		}
		if ex.Paused {
			n := 0
			for _, d := range p.Decisions {
				d.Summary = "is not placed while the job is paused"
				n++
			}
			p.Waits, p.Start, p.Basis = []*schedulerv1.Wait{{Cause: schedulerv1.Wait_CAUSE_PAUSED, TaskIndex: -1, Replicas: int32(n), Message: "the job is paused"}}, time.Time{}, "the job is paused"
		}
		for _, d := range p.Decisions { // what would be chosen is not decided
			if d.AiCenterId != "" && !ex.Paused {
				d.Summary = "waits for its turn in the queue; center " + d.AiCenterId + " would be chosen now"
			}
			d.AiCenterId = ""
		}
		res.Decisions = append(res.Decisions, p.Decisions...)
		res.Waits, res.EstimateBasis = p.Waits, p.Basis
		if !p.Start.IsZero() {
			res.EstimatedStart = timestamppb.New(p.Start)
		}
		if e, basis, ok := h.s.forecast(ex.Waiting); ok {
			res.RunForecast = &schedulerv1.RunForecast{MedianSeconds: (e.Median + 999_999) / 1e6, HighSeconds: (e.High + 999_999) / 1e6, Runs: int32(e.Samples),
				Basis: basis, StatedSeconds: ex.Waiting.RunSeconds}
		}
	}
	for _, h := range ex.Lacking {
		if i := slices.IndexFunc(res.Waits, func(w *schedulerv1.Wait) bool {
			return w.Cause == h.Cause && int(w.TaskIndex) == h.Task && w.Message == h.Text
		}); i >= 0 {
			res.Waits[i].Replicas += int32(h.Replicas)
			continue
		}
		res.Waits = append(res.Waits, &schedulerv1.Wait{Cause: h.Cause, TaskIndex: int32(h.Task), Replicas: int32(h.Replicas), Message: h.Text})
		res.EstimateBasis = cmp.Or(res.EstimateBasis, PoolBasis)
	}
	for _, d := range res.Decisions {
		if int(d.TaskIndex) < len(ex.TaskNames) {
			d.TaskName = ex.TaskNames[d.TaskIndex]
		}
	}
	sort.SliceStable(res.Decisions, func(i, j int) bool {
		a, b := res.Decisions[i], res.Decisions[j]
		return a.TaskIndex < b.TaskIndex || a.TaskIndex == b.TaskIndex && a.ReplicaIndex < b.ReplicaIndex
	})
	return res, nil
}

// PoolBasis is why nobody can say when work starts that waits for the accelerator pool.
const PoolBasis = "when shares of the accelerator pool end is not known"

// Preview is what would become of work now, with nothing placed.
type Preview struct {
	// Decisions about what waits, one per replica; Placed of them found a place.
	Decisions []*schedulerv1.Decision
	Placed    int
	Waits     []*schedulerv1.Wait
	Start     time.Time // when it may start; zero: nobody can say
	Basis     string    // what that rests on
}

// Preview says what a cycle would decide now about work that waits, or would
// wait if it were submitted, and what holds it back.
func (s *Service) Preview(ctx context.Context, it *Item) (*Preview, error) {
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	out := &Preview{}
	it = it.offered(out)
	for _, h := range it.Held {
		out.Waits = append(out.Waits, &schedulerv1.Wait{Cause: h.Cause, TaskIndex: int32(h.Task), Replicas: int32(h.Replicas), Message: h.Text})
		if h.Task >= 0 {
			out.Decisions = append(out.Decisions, &schedulerv1.Decision{TaskIndex: int32(h.Task), Summary: h.Text})
		}
	}
	if at := db.Time(it.NotBefore); it.NotBefore > 0 && at.After(s.db.Now()) {
		out.Waits = append(out.Waits, &schedulerv1.Wait{Cause: schedulerv1.Wait_CAUSE_TIME, TaskIndex: -1, Replicas: replicasOf(it), Message: "is not placed before " + at.UTC().Format(time.RFC3339),
			Until: timestamppb.New(at)})
		out.Start, out.Basis = at, "its time has not come; whether there is room then is not known"
	}
	if len(it.Work.Tasks) > 0 {
		if err := s.preview(ctx, snap, it, out); err != nil {
			return nil, err
		}
	} else if len(it.Held) > 0 {
		if out.Basis = "what it waits for has no certain time"; !slices.ContainsFunc(it.Held, func(h Held) bool { return h.Cause != schedulerv1.Wait_CAUSE_POOL }) {
			out.Basis = PoolBasis
		}
	}
	return out, nil
}

// offered is what the queue is offered of a job now: of an elastic gang that
// has its least the others, one by one. Before that it says that they wait.
func (it *Item) offered(out *Preview) *Item {
	switch {
	case len(it.More) == 0:
		return it
	case len(it.Work.Tasks) == 0:
		own := *it
		own.Work.Tasks, own.Work.Gang = it.More, false
		return &own
	}
	const why = "follows when the gang has its least"
	for _, t := range it.More {
		i := taskIndex(t.ID)
		out.Waits = append(out.Waits, &schedulerv1.Wait{Cause: schedulerv1.Wait_CAUSE_GANG, TaskIndex: i, Replicas: int32(t.Replicas), Message: why})
		for _, n := range t.Indices {
			out.Decisions = append(out.Decisions, &schedulerv1.Decision{TaskIndex: i, ReplicaIndex: int32(n), Summary: why})
		}
	}
	return it
}

// preview adds what the engine says of what waits for a place.
func (s *Service) preview(ctx context.Context, snap *registry.Snapshot, it *Item, out *Preview) error {
	set, err := s.policySet(ctx)
	if err != nil {
		return err
	}
	w, ok := fill(it, snap)
	if !ok {
		n := 0
		for _, t := range it.Work.Tasks {
			for _, i := range t.Indices {
				out.Decisions = append(out.Decisions, &schedulerv1.Decision{TaskIndex: taskIndex(t.ID), ReplicaIndex: int32(i), Summary: "its resource specification no longer exists"})
				n++
			}
		}
		out.Waits = append(out.Waits, &schedulerv1.Wait{Cause: schedulerv1.Wait_CAUSE_ROOM, TaskIndex: -1, Replicas: int32(n), Message: "its resource specification no longer exists"})
		out.Basis = "its resource specification no longer exists"
		return nil
	}
	if IsReservation(it.AllocationID) && s.calendar != nil {
		drawn, err := s.calendar.Drawn(ctx, []string{it.AllocationID})
		if err != nil {
			return err
		}
		if r := drawn[it.AllocationID]; r.Why != "" {
			wait := &schedulerv1.Wait{Cause: schedulerv1.Wait_CAUSE_WINDOW, TaskIndex: -1, Replicas: replicasOf(it), Message: r.Why}
			if !r.At.IsZero() {
				out.Start, out.Basis, wait.Until = r.At, "the begin of its reservation", timestamppb.New(r.At)
			}
			out.Waits = append(out.Waits, wait)
		}
	}
	of := s.askLine(ctx, it.question(snap))
	if err := s.avoid(ctx, &w, it, of); err != nil {
		return err
	}
	res, err := s.plan(ctx, snap, []place.Work{w}, []*Item{it}, set)
	if err != nil {
		return err
	}
	add := func(task string, replica int, d *place.Decision) *schedulerv1.Decision {
		o := DecisionProto(d)
		o.TaskIndex, o.ReplicaIndex = taskIndex(task), int32(replica)
		out.Decisions = append(out.Decisions, o)
		return o
	}
	short := map[int32]*schedulerv1.Wait{}
	for _, u := range res.Unplaced {
		o := add(u.Task, u.Replica, u.Decision)
		o.AiCenterId, o.Summary = "", "waits: "+u.Reason
		i := taskIndex(u.Task)
		if short[i] == nil {
			short[i] = &schedulerv1.Wait{Cause: schedulerv1.Wait_CAUSE_ROOM, TaskIndex: i, Message: u.Reason}
			out.Waits = append(out.Waits, short[i])
		}
		short[i].Replicas++
	}
	for _, p := range res.Placements {
		add(p.Task, p.Replica, p.Decision).AiCenterId = p.Candidate
	}
	out.Placed = len(res.Placements)
	out.addQueue(of, s.db.Now())
	never := 0
	for _, u := range res.Unplaced {
		if hopeless(u.Decision) {
			never++
		}
	}
	if never > 0 && (it.Work.Gang || out.Placed == 0 && never == len(res.Unplaced)) {
		out.Start, out.Basis = time.Time{}, "it is not a matter of room: no center meets what it asks for"
	}
	return s.askBudgets(ctx, snap, it, res.Placements, out)
}

// hopeless reports whether every center is kept out by something else than what
// runs there or happened there lately.
func hopeless(d *place.Decision) bool {
	lasting := func(r place.Reason) bool {
		return !slices.Contains([]string{"status", "excluded", "capacity"}, r.Filter)
	}
	return d != nil && d.Omitted == 0 && !slices.ContainsFunc(d.Table, func(e place.Entry) bool { return !slices.ContainsFunc(e.Filtered, lasting) })
}

// askBudgets adds what budgets say of what waits: of what has found a place,
// what they have too little for goes on waiting.
func (s *Service) askBudgets(ctx context.Context, snap *registry.Snapshot, it *Item, found []place.Placement, out *Preview) error {
	if s.budgets == nil || it.AllocationID != "" {
		return nil
	}
	now := s.db.Now()
	list, err := s.budgets.Budgets(ctx, now.Add(-purseFresh))
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(b Budget) bool { return !b.covers(it) })
	if len(list) == 0 {
		return nil
	}
	prices := map[[2]int]core.Fen{} // by task and replica
	for _, p := range found {
		prices[[2]int{int(taskIndex(p.Task)), p.Replica}] = centerOf(snap, p.Candidate).Offers[specOf(it, p.Task)]
	}
	taken := make([]int64, len(list))
	short := map[[2]int]*Budget{}
	var poor *Budget
	for _, placed := range []bool{true, false} { // what has a place goes first
		for _, t := range it.Work.Tasks {
			for _, n := range t.Indices {
				at := [2]int{int(taskIndex(t.ID)), n}
				price, ok := prices[at]
				if ok != placed {
					continue
				}
				if !ok {
					price = cheapest(snap, t.Spec)
				}
				var b *Budget
				for i := range list {
					if !list[i].has(plus(taken[i], list[i].cost(price, it.expectedRun(), now))) {
						b = &list[i]
					}
				}
				if b != nil {
					short[at], poor = b, b
					continue
				}
				for i := range list {
					taken[i] = plus(taken[i], list[i].cost(price, it.expectedRun(), now))
				}
			}
		}
	}
	if poor == nil {
		return nil
	}
	n, all := int32(0), true
	for _, d := range out.Decisions {
		at := [2]int{int(d.TaskIndex), int(d.ReplicaIndex)}
		_, placed := prices[at]
		if short[at] == nil && !it.Work.Gang {
			all = all && !placed
			continue
		}
		if n++; placed {
			d.AiCenterId, d.Summary = "", "waits: "+poor.Text
			out.Placed--
		}
	}
	wait := &schedulerv1.Wait{Cause: schedulerv1.Wait_CAUSE_BUDGET, TaskIndex: -1, Replicas: n, Message: poor.Text}
	if !poor.Ends.IsZero() {
		wait.Until = timestamppb.New(poor.Ends)
	}
	// The queue has it that there is no room, for the same reason.
	out.Waits = slices.DeleteFunc(out.Waits, func(w *schedulerv1.Wait) bool {
		return w.Cause == schedulerv1.Wait_CAUSE_ROOM && w.Message == wait.Message
	})
	out.Waits = append(out.Waits, wait)
	if all {
		if out.Start, out.Basis = poor.Ends, "the next period of budget "+poor.ID+"; sooner if what runs costs less than expected"; poor.Ends.IsZero() {
			out.Basis = "budget " + poor.ID + " has no other period: it starts if more is budgeted, or what runs costs less than expected"
		}
	}
	return nil
}

// waitCauses are the queue's, in the API.
var waitCauses = map[queue.Cause]Cause{queue.CauseTime: schedulerv1.Wait_CAUSE_TIME, queue.CauseLimit: schedulerv1.Wait_CAUSE_QUOTA, queue.CauseRoom: schedulerv1.Wait_CAUSE_ROOM,
	queue.CauseReserved: schedulerv1.Wait_CAUSE_RESERVATION, queue.CauseKept: schedulerv1.Wait_CAUSE_RESERVATION, queue.CauseWindow: schedulerv1.Wait_CAUSE_WINDOW, queue.CauseOrder: schedulerv1.Wait_CAUSE_ORDER}

// bases of an expected start, in words.
var bases = map[queue.Basis]string{
	queue.BasisTime:        "its time has not come; whether there is room then is not known",
	queue.BasisReservation: "room is kept for it: the expected ends of what runs, and what it takes then",
	queue.BasisEnds:        "the expected ends of what runs at the centers it can go to",
	queue.BasisRate:        "how many of its tenant go before it, and how fast its tenant's work started lately",
}

// addQueue adds what the queue says of work that waits: what holds it back
// where that is not room, and when it may start.
func (o *Preview) addQueue(of *told, now time.Time) {
	switch {
	case of == nil:
		if o.Basis == "" {
			o.Basis = "the process that schedules does not answer; only what centers have is looked at"
		}
		return
	case !of.Queued:
		if o.Basis == "" && o.Start.IsZero() {
			o.Basis = "it is not in the queue: others that wait are not looked at"
			if o.Placed > 0 {
				o.Start = now
			}
		}
		return
	}
	first := int64(0)
	for _, p := range of.Parts {
		if p.Start > 0 && (first == 0 || p.Start < first) {
			first, o.Start, o.Basis = p.Start, db.Time(p.Start), bases[p.Basis]
		}
		cause := waitCauses[p.Cause]
		had := slices.ContainsFunc(o.Waits, func(w *schedulerv1.Wait) bool {
			return w.Cause == cause && (w.TaskIndex == p.Task || w.TaskIndex == -1) || cause == schedulerv1.Wait_CAUSE_ROOM || cause == schedulerv1.Wait_CAUSE_ORDER && w.Cause == schedulerv1.Wait_CAUSE_ROOM
		})
		if !had { // else it is said already, by the centers' own words
			o.Waits = append(o.Waits, &schedulerv1.Wait{Cause: cause, TaskIndex: p.Task, Replicas: p.Replicas, Message: p.Text})
		}
	}
	if o.Basis == "" {
		o.Basis = "the expected ends of what runs are not known, and too little of its tenant started lately"
	}
}

func replicasOf(it *Item) (n int32) {
	for _, t := range it.Work.Tasks {
		n += int32(t.Replicas)
	}
	return n
}

// taskIndex of an ID made by strconv.Itoa.
func taskIndex(id string) int32 {
	n, _ := strconv.Atoi(id)
	return int32(n)
}

type queueHandler struct{ s *Service }

var queueOrders = map[schedulerv1.QueueSettings_Order]QueueOrder{
	schedulerv1.QueueSettings_ORDER_UNSPECIFIED: PriorityFirst,
	schedulerv1.QueueSettings_ORDER_PRIORITY:    PriorityFirst,
	schedulerv1.QueueSettings_ORDER_FAIR:        FairShares,
	schedulerv1.QueueSettings_ORDER_FIRST_COME:  FirstCome,
}

func amountsOut(q core.Quantities) map[string]string {
	out := map[string]string{}
	for name, n := range q {
		out[name] = core.FormatQuantity(name, n)
	}
	return out
}

func queueOut(q *Queue) *schedulerv1.Queue {
	return &schedulerv1.Queue{QueueId: q.ID, ParentId: q.Parent, Weight: q.Weight, Guaranteed: amountsOut(q.Guaranteed), Borrowable: amountsOut(q.Borrowable), Limit: amountsOut(q.Limit),
		Used: amountsOut(q.Used), WaitingJobs: q.Waiting, SharePpm: q.SharePPM, UpdatedAt: timestamppb.New(q.Updated)}
}

func (h queueHandler) ListQueues(ctx context.Context, _ *schedulerv1.ListQueuesRequest) (*schedulerv1.ListQueuesResponse, error) {
	qs, err := h.s.Queues(ctx)
	if err != nil {
		return nil, err
	}
	res := &schedulerv1.ListQueuesResponse{}
	for i := range qs {
		res.Queues = append(res.Queues, queueOut(&qs[i]))
	}
	return res, nil
}

func (h queueHandler) GetQueue(ctx context.Context, r *schedulerv1.GetQueueRequest) (*schedulerv1.Queue, error) {
	q, err := h.s.GetQueue(ctx, r.QueueId)
	if err != nil {
		return nil, err
	}
	return queueOut(q), nil
}

func (h queueHandler) SetQueue(ctx context.Context, r *schedulerv1.SetQueueRequest) (*schedulerv1.Queue, error) {
	if r.Queue == nil {
		return nil, fault.Fields(fault.Field{Path: "queue", Problem: "is required"})
	}
	if id := r.Queue.QueueId; id != "" && id != r.QueueId {
		return nil, fault.Fields(fault.Field{Path: "queue.queue_id", Problem: "must be the queue_id of the request, or empty"})
	}
	q, err := h.s.SetQueue(ctx, NewQueue{ID: r.QueueId, Parent: r.Queue.ParentId, Weight: r.Queue.Weight, Guaranteed: r.Queue.Guaranteed, Borrowable: r.Queue.Borrowable, Limit: r.Queue.Limit})
	if err != nil {
		return nil, err
	}
	return queueOut(q), nil
}

func (h queueHandler) DeleteQueue(ctx context.Context, r *schedulerv1.DeleteQueueRequest) (*schedulerv1.DeleteQueueResponse, error) {
	return &schedulerv1.DeleteQueueResponse{}, h.s.DeleteQueue(ctx, r.QueueId)
}

func settingsOut(s QueueSettings) *schedulerv1.QueueSettings {
	out := &schedulerv1.QueueSettings{HalfLifeSeconds: s.HalfLifeSeconds, AgeingSeconds: s.AgeingSeconds, AgeingMost: s.AgeingMost, Backfill: s.Backfill,
		PreemptPriority: s.PreemptPriority, PreemptReclaim: s.PreemptReclaim}
	for o, name := range queueOrders {
		if name == s.Order && o != schedulerv1.QueueSettings_ORDER_UNSPECIFIED {
			out.Order = o
		}
	}
	if !s.Updated.IsZero() {
		out.UpdatedAt = timestamppb.New(s.Updated)
	}
	return out
}

func (h queueHandler) GetQueueSettings(ctx context.Context, _ *schedulerv1.GetQueueSettingsRequest) (*schedulerv1.QueueSettings, error) {
	s, err := h.s.QueueSettings(ctx)
	if err != nil {
		return nil, err
	}
	return settingsOut(s), nil
}

func (h queueHandler) SetQueueSettings(ctx context.Context, r *schedulerv1.SetQueueSettingsRequest) (*schedulerv1.QueueSettings, error) {
	in := r.Settings
	if in == nil {
		return nil, fault.Fields(fault.Field{Path: "settings", Problem: "is required"})
	}
	order, ok := queueOrders[in.Order]
	if !ok {
		return nil, fault.Fields(fault.Field{Path: "settings.order", Problem: "is not one of its values"})
	}
	s, err := h.s.SetQueueSettings(ctx, QueueSettings{Order: order, HalfLifeSeconds: in.HalfLifeSeconds, AgeingSeconds: in.AgeingSeconds, AgeingMost: in.AgeingMost, Backfill: in.Backfill,
		PreemptPriority: in.PreemptPriority, PreemptReclaim: in.PreemptReclaim})
	if err != nil {
		return nil, err
	}
	return settingsOut(s), nil
}
