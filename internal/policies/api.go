package policies

import (
	"context"
	"maps"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	policiesv1 "yunhe.dev/yunhe/gen/yunhe/policies/v1"
	"yunhe.dev/yunhe/gen/yunhe/policies/v1/policiesv1connect"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// Register mounts the service's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(policiesv1connect.NewPolicyServiceHandler(api{s}, srv.Options()...))
}

type api struct{ s *Service }

func (a api) ListPolicyRecords(ctx context.Context, r *policiesv1.ListPolicyRecordsRequest) (*policiesv1.ListPolicyRecordsResponse, error) {
	rows, next, err := a.s.List(ctx, Filter{Issued: r.GetIssued(), NotIssued: r.GetNotIssued(), Query: r.GetQuery()}, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &policiesv1.ListPolicyRecordsResponse{Records: each(rows, recordOut(ctx)), NextPageToken: next}, nil
}

func (a api) GetPolicyRecord(ctx context.Context, r *policiesv1.GetPolicyRecordRequest) (*policiesv1.PolicyRecord, error) {
	return answer(recordOut(ctx))(a.s.Get(ctx, r.GetPolicyId(), r.GetVersion()))
}

func (a api) CreatePolicy(ctx context.Context, r *policiesv1.CreatePolicyRequest) (*policiesv1.PolicyRecord, error) {
	d, err := required(r.GetDocument())
	if err != nil {
		return nil, err
	}
	return answer(recordOut(ctx))(a.s.Create(ctx, d, r.GetNote()))
}

func (a api) UpdatePolicy(ctx context.Context, r *policiesv1.UpdatePolicyRequest) (*policiesv1.PolicyRecord, error) {
	d, err := required(r.GetDocument())
	if err != nil {
		return nil, err
	}
	return answer(recordOut(ctx))(a.s.Update(ctx, d, r.GetBaseVersion(), r.GetNote()))
}

func (a api) DeletePolicy(ctx context.Context, r *policiesv1.DeletePolicyRequest) (*policiesv1.DeletePolicyResponse, error) {
	return &policiesv1.DeletePolicyResponse{}, a.s.Delete(ctx, r.GetPolicyId(), r.GetReason())
}

func (a api) ListPolicyVersions(ctx context.Context, r *policiesv1.ListPolicyVersionsRequest) (*policiesv1.ListPolicyVersionsResponse, error) {
	rows, err := a.s.Versions(ctx, r.GetPolicyId())
	if err != nil {
		return nil, err
	}
	return &policiesv1.ListPolicyVersionsResponse{Versions: each(rows, versionOut)}, nil
}

func (a api) DiffPolicyVersions(ctx context.Context, r *policiesv1.DiffPolicyVersionsRequest) (*policiesv1.DiffPolicyVersionsResponse, error) {
	rows, err := a.s.Diff(ctx, r.GetPolicyId(), r.GetFrom(), r.GetTo())
	if err != nil {
		return nil, err
	}
	return &policiesv1.DiffPolicyVersionsResponse{Differences: each(rows, func(d Difference) *policiesv1.PolicyDifference {
		return &policiesv1.PolicyDifference{Path: d.Path, Before: d.Before, After: d.After}
	})}, nil
}

func (a api) ListPolicyEvents(ctx context.Context, r *policiesv1.ListPolicyEventsRequest) (*policiesv1.ListPolicyEventsResponse, error) {
	rows, next, err := a.s.Events(ctx, r.GetPolicyId(), r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &policiesv1.ListPolicyEventsResponse{NextPageToken: next, Events: each(rows, func(e Event) *policiesv1.PolicyEvent {
		return &policiesv1.PolicyEvent{PolicyId: e.PolicyID, At: stamp(e.At), Action: e.Action, Version: e.Version, UserId: e.UserID, Reason: e.Reason}
	})}, nil
}

func (a api) ValidatePolicy(ctx context.Context, r *policiesv1.ValidatePolicyRequest) (*policiesv1.ValidatePolicyResponse, error) {
	problems, err := a.s.Validate(ctx, subjectIn(r.GetDocument(), r.GetPolicyId(), r.GetVersion()))
	if err != nil {
		return nil, err
	}
	variables := func(s expr.Scope) []*policiesv1.PolicyVariable {
		return each(s.Variables(), func(v expr.Variable) *policiesv1.PolicyVariable {
			return &policiesv1.PolicyVariable{Name: v.Name, Type: v.Type, Doc: v.Doc}
		})
	}
	return &policiesv1.ValidatePolicyResponse{Valid: invalid("", problems) == nil, JobVariables: variables(expr.PolicyJob), CenterVariables: variables(expr.PolicyCenter),
		Problems: each(problems, func(p Problem) *policiesv1.PolicyProblem {
			return &policiesv1.PolicyProblem{Field: p.Field, Problem: p.Text, Warning: p.Warning, Line: int32(p.Line), Column: int32(p.Column)}
		})}, nil
}

func (a api) TryPolicy(ctx context.Context, r *policiesv1.TryPolicyRequest) (*policiesv1.TryPolicyResponse, error) {
	if err := needJob(r.GetJobId(), r.GetJob() != nil); err != nil {
		return nil, err
	}
	var it scheduler.Item
	var names []string
	var err error
	if r.GetJob() != nil {
		for _, t := range r.GetJob().GetTasks() {
			names = append(names, t.GetName())
		}
		it, err = a.s.jobs.Preview(ctx, r.GetJob())
	} else {
		it, err = a.s.jobs.Submitted(ctx, r.GetJobId())
	}
	if err != nil {
		return nil, err
	}
	t, err := a.s.Try(ctx, subjectIn(r.GetDocument(), r.GetPolicyId(), r.GetVersion()), it)
	if err != nil {
		return nil, err
	}
	out := func(list []scheduler.Tried) []*schedulerv1.Decision {
		return each(list, func(x scheduler.Tried) *schedulerv1.Decision {
			d := &schedulerv1.Decision{Summary: x.Reason}
			if x.Decision != nil {
				d = scheduler.DecisionProto(x.Decision)
			}
			if d.TaskIndex = int32(x.Task); x.Task < len(names) {
				d.TaskName = names[x.Task]
			}
			return d
		})
	}
	return &policiesv1.TryPolicyResponse{Matches: t.Matches, Reason: t.Reason, WithPolicy: out(t.With), Present: out(t.Present)}, nil
}

// simulation says what SimulatePolicy does.
const simulation = "The latest jobs, played by the code that schedules on the centers as they are, in the times they came and for as long as they ran: once by the policies in force " +
	"and once as if this one were issued. What other work holds is taken off the centers; allocations are not played."

func (a api) SimulatePolicy(ctx context.Context, r *policiesv1.SimulatePolicyRequest) (*policiesv1.SimulatePolicyResponse, error) {
	x, err := a.s.Simulate(ctx, subjectIn(r.GetDocument(), r.GetPolicyId(), r.GetVersion()), int(r.GetJobs()))
	if err != nil {
		return nil, err
	}
	figures := func(f Figures) *policiesv1.PolicyFigures {
		return &policiesv1.PolicyFigures{PriceFen: f.CostFen, EnergyJoules: int64(f.EnergyJoules + .5), EnergyTasks: int32(f.EnergyPieces), WaitingMeanSeconds: f.MeanWaiting, WaitingP95Seconds: f.P95Waiting,
			NotStarted: int32(f.NotStarted)}
	}
	counts := func(m map[string]int) map[string]int32 {
		out := map[string]int32{}
		for k, n := range m {
			out[k] = int32(n)
		}
		return out
	}
	return &policiesv1.SimulatePolicyResponse{Jobs: int32(x.Jobs), Matched: int32(x.Matched), Tasks: int32(x.Pieces), Moved: int32(x.Moved), Gained: int32(x.Gained), Lost: int32(x.Lost),
		Present: figures(x.Present), WithPolicy: figures(x.With), PresentCenters: counts(x.PresentCenters), PolicyCenters: counts(x.WithCenters), Method: simulation,
		Moves: each(x.Moves, func(m Move) *policiesv1.PolicyMove {
			return &policiesv1.PolicyMove{JobId: m.JobID, From: m.From, To: m.To, WaitingSecondsNow: m.Now, WaitingSecondsThen: m.Then}
		})}, nil
}

func (a api) IssuePolicy(ctx context.Context, r *policiesv1.IssuePolicyRequest) (*policiesv1.PolicyRecord, error) {
	var scope *Scope
	if r.GetScope() != nil {
		s := scopeIn(r.GetScope())
		scope = &s
	}
	return answer(recordOut(ctx))(a.s.Issue(ctx, r.GetPolicyId(), r.GetVersion(), scope, r.GetReason()))
}

func (a api) WithdrawPolicy(ctx context.Context, r *policiesv1.WithdrawPolicyRequest) (*policiesv1.PolicyRecord, error) {
	return answer(recordOut(ctx))(a.s.Withdraw(ctx, r.GetPolicyId(), r.GetReason()))
}

func (a api) RollBackPolicy(ctx context.Context, r *policiesv1.RollBackPolicyRequest) (*policiesv1.PolicyRecord, error) {
	return answer(recordOut(ctx))(a.s.RollBack(ctx, r.GetPolicyId(), r.GetVersion(), r.GetReason()))
}

func (a api) StartPolicyTest(ctx context.Context, r *policiesv1.StartPolicyTestRequest) (*policiesv1.PolicyTest, error) {
	arms := each(r.GetArms(), func(a *policiesv1.PolicyArm) Arm {
		return Arm{Name: a.GetName(), Version: a.GetVersion(), Percent: int64(a.GetPercent())}
	})
	return answer(testOut)(a.s.StartTest(ctx, r.GetPolicyId(), arms, r.GetReason()))
}

func (a api) GetPolicyTest(ctx context.Context, r *policiesv1.GetPolicyTestRequest) (*policiesv1.PolicyTest, error) {
	return answer(testOut)(a.s.GetTest(ctx, r.GetTestId()))
}

func (a api) ListPolicyTests(ctx context.Context, r *policiesv1.ListPolicyTestsRequest) (*policiesv1.ListPolicyTestsResponse, error) {
	rows, err := a.s.Tests(ctx, r.GetPolicyId())
	if err != nil {
		return nil, err
	}
	return &policiesv1.ListPolicyTestsResponse{Tests: each(rows, testOut)}, nil
}

func (a api) EndPolicyTest(ctx context.Context, r *policiesv1.EndPolicyTestRequest) (*policiesv1.PolicyTest, error) {
	return answer(testOut)(a.s.EndTest(ctx, r.GetTestId(), r.GetWinner(), r.GetReason()))
}

func (a api) UploadPolicyModule(ctx context.Context, r *policiesv1.UploadPolicyModuleRequest) (*policiesv1.PolicyModule, error) {
	return answer(moduleOut)(a.s.Upload(ctx, r.GetModuleId(), r.GetCode()))
}

func (a api) ListPolicyModules(ctx context.Context, _ *policiesv1.ListPolicyModulesRequest) (*policiesv1.ListPolicyModulesResponse, error) {
	rows, err := a.s.Modules(ctx)
	if err != nil {
		return nil, err
	}
	return &policiesv1.ListPolicyModulesResponse{Modules: each(rows, moduleOut)}, nil
}

func (a api) RestorePolicyModule(ctx context.Context, r *policiesv1.RestorePolicyModuleRequest) (*policiesv1.PolicyModule, error) {
	return answer(moduleOut)(a.s.Restore(ctx, r.GetModuleId(), r.GetVersion()))
}

func (a api) DeletePolicyModule(ctx context.Context, r *policiesv1.DeletePolicyModuleRequest) (*policiesv1.DeletePolicyModuleResponse, error) {
	return &policiesv1.DeletePolicyModuleResponse{}, a.s.DeleteModule(ctx, r.GetModuleId(), r.GetVersion())
}

func required(p *policiesv1.PolicyDocument) (Document, error) {
	if p == nil {
		return Document{}, fault.Fields(fault.Field{Path: "document", Problem: "is required"})
	}
	return DocumentIn(p), nil
}

func subjectIn(d *policiesv1.PolicyDocument, id string, version int64) Subject {
	x := Subject{ID: id, Version: version}
	if d != nil {
		doc := DocumentIn(d)
		x.Document = &doc
	}
	return x
}

// DocumentIn reads a document of the contract.
func DocumentIn(p *policiesv1.PolicyDocument) Document {
	d := Document{ID: p.GetPolicyId(), Title: p.GetTitle(), Description: p.GetDescription(), Priority: int64(p.GetPriority()), Scope: scopeIn(p.GetScope()),
		Combination: Combination(p.GetCombination()), JobWeights: JobWeights(p.GetJobWeights()), From: timeIn(p.GetEffectiveFrom()), To: timeIn(p.GetEffectiveTo()), Algorithm: p.GetAiAlgorithm()}
	for _, m := range p.GetMatchRules() {
		d.Match = append(d.Match, MatchRule{Expression: m.GetExpression(), Description: m.GetDescription()})
	}
	for _, x := range p.GetIncludes() {
		d.Includes = append(d.Includes, Include{ID: x.GetPolicyId(), Version: x.GetVersion()})
	}
	r := p.GetRules()
	d.Rules = Rules{Preset: r.GetPreset(), Ranking: r.GetRanking(), Evaluator: r.GetEvaluator()}
	for id, w := range r.GetWeights() {
		if d.Rules.Weights == nil {
			d.Rules.Weights = map[string]int64{}
		}
		d.Rules.Weights[id] = int64(w)
	}
	for id, n := range r.GetMinimums() {
		if d.Rules.Minimums == nil {
			d.Rules.Minimums = map[string]int64{}
		}
		d.Rules.Minimums[id] = int64(n)
	}
	for _, f := range r.GetFilters() {
		d.Rules.Filters = append(d.Rules.Filters, FilterRule{ID: f.GetFilterId(), Expression: f.GetExpression(), Module: useIn(f.GetModule()), Message: f.GetMessage()})
	}
	for _, x := range r.GetScores() {
		d.Rules.Scores = append(d.Rules.Scores, ScoreRule{ID: x.GetScoreId(), Expression: x.GetExpression(), Module: useIn(x.GetModule())})
	}
	return d
}

func useIn(p *policiesv1.PolicyModuleUse) *ModuleUse {
	if p == nil {
		return nil
	}
	return &ModuleUse{ID: p.GetModuleId(), Version: p.GetVersion(), OnFailure: Failure(p.GetOnFailure())}
}

func scopeIn(p *policiesv1.PolicyScope) Scope {
	return Scope{Regions: p.GetRegions(), Businesses: p.GetBusinesses(), Tenants: p.GetTenants(), Labels: maps.Clone(p.GetLabels()), Centers: p.GetCenters(), Users: p.GetUsers()}
}

func timeIn(p *timestamppb.Timestamp) time.Time {
	if p == nil {
		return time.Time{}
	}
	return p.AsTime().Truncate(time.Microsecond)
}

func documentOut(d *Document) *policiesv1.PolicyDocument {
	out := &policiesv1.PolicyDocument{PolicyId: d.ID, Title: d.Title, Description: d.Description, Priority: int32(d.Priority), Combination: policiesv1.PolicyCombination(d.Combination),
		JobWeights: policiesv1.PolicyJobWeights(d.JobWeights), EffectiveFrom: stamp(d.From), EffectiveTo: stamp(d.To), AiAlgorithm: d.Algorithm}
	if !d.Scope.IsZero() {
		out.Scope = scopeOut(d.Scope)
	}
	for _, m := range d.Match {
		out.MatchRules = append(out.MatchRules, &policiesv1.PolicyMatchRule{Expression: m.Expression, Description: m.Description})
	}
	for _, x := range d.Includes {
		out.Includes = append(out.Includes, &policiesv1.PolicyInclude{PolicyId: x.ID, Version: x.Version})
	}
	if d.Rules.IsZero() {
		return out
	}
	out.Rules = &policiesv1.PolicyRules{Preset: d.Rules.Preset, Ranking: d.Rules.Ranking, Evaluator: d.Rules.Evaluator}
	for id, w := range d.Rules.Weights {
		if out.Rules.Weights == nil {
			out.Rules.Weights = map[string]int32{}
		}
		out.Rules.Weights[id] = int32(w)
	}
	for id, n := range d.Rules.Minimums {
		if out.Rules.Minimums == nil {
			out.Rules.Minimums = map[string]int32{}
		}
		out.Rules.Minimums[id] = int32(n)
	}
	for _, f := range d.Rules.Filters {
		out.Rules.Filters = append(out.Rules.Filters, &policiesv1.PolicyFilterRule{FilterId: f.ID, Expression: f.Expression, Module: useOut(f.Module), Message: f.Message})
	}
	for _, x := range d.Rules.Scores {
		out.Rules.Scores = append(out.Rules.Scores, &policiesv1.PolicyScoreRule{ScoreId: x.ID, Expression: x.Expression, Module: useOut(x.Module)})
	}
	return out
}

func useOut(u *ModuleUse) *policiesv1.PolicyModuleUse {
	if u == nil {
		return nil
	}
	return &policiesv1.PolicyModuleUse{ModuleId: u.ID, Version: u.Version, OnFailure: policiesv1.PolicyFailure(u.OnFailure)}
}

func scopeOut(s Scope) *policiesv1.PolicyScope {
	return &policiesv1.PolicyScope{Regions: s.Regions, Businesses: s.Businesses, Tenants: s.Tenants, Labels: s.Labels, Centers: s.Centers, Users: s.Users}
}

func versionOut(v Version) *policiesv1.PolicyVersion {
	out := &policiesv1.PolicyVersion{Version: v.Version, State: policiesv1.PolicyState(v.State), Document: documentOut(&v.Document), CreatedAt: stamp(v.CreatedAt), CreatedBy: v.CreatedBy,
		Note: v.Note, CheckedAt: stamp(v.CheckedAt), ValidationMethod: v.Checked}
	for _, f := range v.Document.Rules.Filters {
		out.ExtensionMechanism = out.ExtensionMechanism || f.Module != nil
	}
	for _, x := range v.Document.Rules.Scores {
		out.ExtensionMechanism = out.ExtensionMechanism || x.Module != nil
	}
	return out
}

// recordOut writes policies with what the caller may do.
func recordOut(ctx context.Context) func(Record) *policiesv1.PolicyRecord {
	write := core.CallerFrom(ctx).Can("scheduler.write")
	return func(r Record) *policiesv1.PolicyRecord {
		out := &policiesv1.PolicyRecord{PolicyId: r.ID, Version: versionOut(r.Version), LatestVersion: r.Latest, IssuedVersion: r.Issued, TestId: r.TestID}
		if r.Issued > 0 {
			out.IssuedScope, out.IssuedAt, out.IssuedBy = scopeOut(r.IssuedScope), stamp(r.IssuedAt), r.IssuedBy
		}
		if !write {
			return out
		}
		out.Operations = []string{"update", "validate", "simulate"}
		switch {
		case r.TestID != "":
		case r.Issued > 0:
			out.Operations = append(out.Operations, "issue", "withdraw", "rollback", "test")
		default:
			out.Operations = append(out.Operations, "issue", "rollback", "delete")
		}
		return out
	}
}

func testOut(t Test) *policiesv1.PolicyTest {
	out := &policiesv1.PolicyTest{TestId: t.ID, PolicyId: t.PolicyID, Running: t.Running, StartedAt: stamp(t.StartedAt), StartedBy: t.StartedBy, EndedAt: stamp(t.EndedAt), EndedBy: t.EndedBy,
		Winner: t.Winner, Reason: t.Reason}
	mean := func(m Mean) *policiesv1.PolicyMean {
		return &policiesv1.PolicyMean{Jobs: m.Jobs, Mean: m.Mean, StandardError: m.Error}
	}
	for _, a := range t.Arms {
		arm := &policiesv1.PolicyArm{Name: a.Name, Version: a.Version, Percent: int32(a.Percent)}
		if r := a.Result; r != nil {
			arm.Result = &policiesv1.PolicyArmResult{Jobs: r.Jobs, Ended: r.Ended, Failed: r.Failed, WaitingSeconds: mean(r.Waiting), DurationSeconds: mean(r.Duration), CostFen: mean(r.Cost),
				EnergyJoules: mean(r.Energy)}
		}
		out.Arms = append(out.Arms, arm)
	}
	for _, c := range t.Comparisons {
		out.Comparisons = append(out.Comparisons, &policiesv1.PolicyComparison{Arm: c.Arm, Figure: c.Figure, Difference: c.Difference, Low: c.Low, High: c.High, Clear: c.Clear, Note: c.Note})
	}
	return out
}

func moduleOut(m Module) *policiesv1.PolicyModule {
	return &policiesv1.PolicyModule{ModuleId: m.ID, Version: m.Version, Sha256: m.SHA256, SizeBytes: m.Size, Filters: m.Filters, Scores: m.Scores, CreatedAt: stamp(m.CreatedAt),
		CreatedBy: m.CreatedBy, Isolated: m.Isolated, Fault: m.Fault, FaultAt: stamp(m.FaultAt)}
}

// stamp is unset for no time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// answer turns a domain call's result into a handler's.
func answer[T, P any](f func(T) P) func(T, error) (P, error) {
	return func(v T, err error) (p P, _ error) {
		if err != nil {
			return p, err
		}
		return f(v), nil
	}
}

func each[T, P any](rows []T, f func(T) P) []P {
	out := make([]P, len(rows))
	for i, r := range rows {
		out[i] = f(r)
	}
	return out
}
