package budgets

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	budgetsv1 "yunhe.dev/yunhe/gen/yunhe/budgets/v1"
	"yunhe.dev/yunhe/gen/yunhe/budgets/v1/budgetsv1connect"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(budgetsv1connect.NewBudgetServiceHandler(api{s}, srv.Options()...))
}

type api struct{ s *Service }

func (a api) ListBudgets(ctx context.Context, r *budgetsv1.ListBudgetsRequest) (*budgetsv1.ListBudgetsResponse, error) {
	all, err := a.s.List(ctx, r.TenantId)
	if err != nil {
		return nil, err
	}
	res := &budgetsv1.ListBudgetsResponse{}
	for i := range all {
		res.Budgets = append(res.Budgets, out(&all[i]))
	}
	return res, nil
}

func (a api) GetBudget(ctx context.Context, r *budgetsv1.GetBudgetRequest) (*budgetsv1.Budget, error) {
	x, err := a.s.Get(ctx, r.BudgetId)
	if err != nil {
		return nil, err
	}
	return out(x), nil
}

func (a api) SetBudget(ctx context.Context, r *budgetsv1.SetBudgetRequest) (*budgetsv1.Budget, error) {
	in := r.Budget
	if in == nil {
		return nil, fault.Fields(fault.Field{Path: "budget", Problem: "is required"})
	}
	if in.BudgetId != "" && in.BudgetId != r.BudgetId {
		return nil, fault.Fields(fault.Field{Path: "budget.budget_id", Problem: "must be the budget_id of the request, or empty"})
	}
	b := Budget{ID: r.BudgetId, Tenant: in.TenantId, User: in.UserId, Project: in.Project, Amount: in.AmountMicros, Period: Period(in.Period), TimeZone: in.TimeZone,
		WarnPercents: in.WarnPercents, Action: Action(in.Action), GraceSeconds: in.GraceSeconds}
	if in.StartAt != nil {
		b.StartAt = in.StartAt.AsTime()
	}
	x, err := a.s.Set(ctx, b)
	if err != nil {
		return nil, err
	}
	return out(x), nil
}

func (a api) DeleteBudget(ctx context.Context, r *budgetsv1.DeleteBudgetRequest) (*budgetsv1.DeleteBudgetResponse, error) {
	return &budgetsv1.DeleteBudgetResponse{}, a.s.Delete(ctx, r.BudgetId)
}

func out(x *Standing) *budgetsv1.Budget {
	b := &budgetsv1.Budget{BudgetId: x.ID, TenantId: x.Tenant, UserId: x.User, Project: x.Project, AmountMicros: x.Amount, Period: budgetsv1.Budget_Period(x.Period), TimeZone: x.TimeZone,
		WarnPercents: x.WarnPercents, Action: budgetsv1.Budget_Action(x.Action), GraceSeconds: x.GraceSeconds, UpdatedAt: timestamppb.New(x.UpdatedAt), SpentMicros: x.Spent,
		CommittedMicros: x.Committed, RateMicrosPerHour: x.Rate, PeriodStart: timestamppb.New(x.From), ReachedPercent: x.Reached}
	if !x.To.IsZero() {
		b.PeriodEnd = timestamppb.New(x.To)
	}
	if x.Period == Once {
		b.StartAt = timestamppb.New(x.StartAt)
	}
	return b
}
