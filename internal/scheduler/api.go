package scheduler

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/gen/yunhe/scheduler/v1/schedulerv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
	"yunhe.dev/yunhe/internal/scheduler/place"
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

// decisions returns the stored decisions of a job by ID.
func (s *Service) decisions(ctx context.Context, jobID string) (map[string]*place.Decision, error) {
	out := map[string]*place.Decision{}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		return tx.Query(ctx, `SELECT decision_id, body FROM decisions WHERE job_id = $1`, []any{jobID}, func(row db.Row) error {
			var id string
			var body []byte
			if err := row.Scan(&id, &body); err != nil {
				return err
			}
			d, err := s.unpack(body)
			out[id] = d
			return err
		})
	})
	return out, err
}

// DecisionProto is a decision as the API shows it.
func DecisionProto(d *place.Decision) *schedulerv1.Decision {
	out := &schedulerv1.Decision{AiCenterId: d.Chosen, Summary: summary(d), Policy: d.Set}
	for _, row := range d.Table {
		c := &schedulerv1.CandidateScore{AiCenterId: row.Candidate, CenterName: row.Name, Rank: int32(row.Rank), Chosen: row.Chosen, FinalScoreRounded: int32(row.Final)}
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
