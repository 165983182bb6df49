package main

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	budgetsv1 "yunhe.dev/yunhe/gen/yunhe/budgets/v1"
	"yunhe.dev/yunhe/gen/yunhe/budgets/v1/budgetsv1connect"
)

// fakeBudgets keeps one budget.
type fakeBudgets struct {
	budgetsv1connect.UnimplementedBudgetServiceHandler
	budget *budgetsv1.Budget
}

func (f *fakeBudgets) SetBudget(_ context.Context, req *budgetsv1.SetBudgetRequest) (*budgetsv1.Budget, error) {
	b := proto.CloneOf(req.GetBudget())
	b.BudgetId, b.UpdatedAt, b.SpentMicros, b.CommittedMicros, b.RateMicrosPerHour, b.PeriodStart = req.GetBudgetId(), fakeTime(time.Minute), 412_345_678, 20_000_000, 1_200_000, fakeTime(time.Hour)
	if b.Period != budgetsv1.Budget_PERIOD_ONCE {
		b.PeriodEnd = fakeTime(-time.Hour)
	}
	f.budget = b
	return b, nil
}

func (f *fakeBudgets) ListBudgets(context.Context, *budgetsv1.ListBudgetsRequest) (*budgetsv1.ListBudgetsResponse, error) {
	res := &budgetsv1.ListBudgetsResponse{}
	if f.budget != nil {
		res.Budgets = append(res.Budgets, f.budget)
	}
	return res, nil
}

func (f *fakeBudgets) GetBudget(_ context.Context, req *budgetsv1.GetBudgetRequest) (*budgetsv1.Budget, error) {
	if f.budget == nil || f.budget.BudgetId != req.GetBudgetId() {
		return nil, missing("budget", req.GetBudgetId())
	}
	return f.budget, nil
}

func (f *fakeBudgets) DeleteBudget(_ context.Context, req *budgetsv1.DeleteBudgetRequest) (*budgetsv1.DeleteBudgetResponse, error) {
	if f.budget == nil || f.budget.BudgetId != req.GetBudgetId() {
		return nil, missing("budget", req.GetBudgetId())
	}
	f.budget = nil
	return &budgetsv1.DeleteBudgetResponse{}, nil
}
