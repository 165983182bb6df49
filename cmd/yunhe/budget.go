package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	budgetsv1 "yunhe.dev/yunhe/gen/yunhe/budgets/v1"
)

func budgetCommand(c *cli) *cobra.Command {
	return group("budget", groupNetwork, "Bound what work may cost in a period",
		budgetListCommand(c), budgetShowCommand(c), budgetSetCommand(c), budgetDeleteCommand(c))
}

// microsPerFen is how many micro-yuan are a fen.
const microsPerFen = 10_000

// money is an amount to the fen, rounded down.
func money(micros int64) string { return text.Fen(micros / microsPerFen) }

// budgetOf says whose work a budget is for.
func budgetOf(b *budgetsv1.Budget) string {
	var out []string
	for _, x := range [][2]string{{"tenant", b.GetTenantId()}, {"user", b.GetUserId()}, {"project", b.GetProject()}} {
		if x[1] != "" {
			out = append(out, x[0]+"="+x[1])
		}
	}
	if out == nil {
		return "all"
	}
	return strings.Join(out, " ")
}

func budgetShare(b *budgetsv1.Budget) string {
	return permille(int64(float64(b.GetSpentMicros()) / float64(max(1, b.GetAmountMicros())) * 1000))
}

func budgetListCommand(c *cli) *cobra.Command {
	req := &budgetsv1.ListBudgetsRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List budgets with what is spent",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.budgets.ListBudgets(cmd.Context(), req)
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("BUDGET", "OF", ">AMOUNT", "PERIOD", ">SPENT", ">COMMITTED", ">SHARE", "WHEN SPENT")
			for _, b := range res.GetBudgets() {
				names = append(names, b.GetBudgetId())
				t.Row(b.GetBudgetId(), budgetOf(b), money(b.GetAmountMicros()), enumName(b.GetPeriod().String(), "PERIOD_"), money(b.GetSpentMicros()), money(b.GetCommittedMicros()), budgetShare(b),
					enumName(b.GetAction().String(), "ACTION_"))
			}
			return c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
				if t.Len() == 0 {
					c.note("there are no budgets: work may cost what it costs")
					return nil
				}
				return t.Write(w, color)
			}})
		},
	}
	cmd.Flags().StringVar(&req.TenantId, "tenant", "", "only this tenant's")
	return cmd
}

func budgetShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show BUDGET", Short: "Show a budget with what is spent",
		Args: takes(1, 1, "the ID of a budget"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			b, err := a.budgets.GetBudget(cmd.Context(), &budgetsv1.GetBudgetRequest{BudgetId: args[0]})
			if err != nil {
				return err
			}
			return c.printBudget(b)
		},
	}
}

func (c *cli) printBudget(b *budgetsv1.Budget) error {
	return c.print(result{msg: b, names: []string{b.GetBudgetId()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Budget", b.GetBudgetId())
		f.Add("Of", budgetOf(b))
		f.Add("Amount", money(b.GetAmountMicros()))
		f.Add("Period", enumName(b.GetPeriod().String(), "PERIOD_"))
		f.Add("Time zone", b.GetTimeZone())
		var warns []string
		for _, p := range b.GetWarnPercents() {
			warns = append(warns, fmt.Sprintf("%d%%", p))
		}
		f.Add("Warns at", strings.Join(warns, " "))
		f.Add("When spent", enumName(b.GetAction().String(), "ACTION_"))
		if b.GetGraceSeconds() > 0 {
			f.Add("Grace", text.Duration(time.Duration(b.GetGraceSeconds())*time.Second))
		}
		f.Add("Spent", money(b.GetSpentMicros())+" ("+budgetShare(b)+")")
		f.Add("Committed", money(b.GetCommittedMicros()))
		f.Add("Spends now", money(b.GetRateMicrosPerHour())+"/h")
		f.Add("Since", c.stamp(b.GetPeriodStart()))
		if b.GetPeriodEnd() != nil {
			f.Add("Until", c.stamp(b.GetPeriodEnd()))
		}
		if b.GetReachedPercent() > 0 {
			f.Add("Reached", fmt.Sprintf("%d%%", b.GetReachedPercent()))
		}
		f.Add("Updated", c.stamp(b.GetUpdatedAt()))
		return f.Write(w, color)
	}})
}

// budgetPeriods and budgetActions by what the command line calls them.
var (
	budgetPeriods = map[string]budgetsv1.Budget_Period{"once": budgetsv1.Budget_PERIOD_ONCE, "day": budgetsv1.Budget_PERIOD_DAY, "week": budgetsv1.Budget_PERIOD_WEEK,
		"month": budgetsv1.Budget_PERIOD_MONTH, "year": budgetsv1.Budget_PERIOD_YEAR}
	budgetActions = map[string]budgetsv1.Budget_Action{"warn": budgetsv1.Budget_ACTION_WARN, "hold": budgetsv1.Budget_ACTION_HOLD, "stop": budgetsv1.Budget_ACTION_STOP}
)

func budgetSetCommand(c *cli) *cobra.Command {
	b := &budgetsv1.Budget{}
	var amount, period, action, start string
	var grace time.Duration
	cmd := &cobra.Command{
		Use: "set BUDGET --amount YUAN", Short: "Make a budget, or replace all that is said of it",
		Long: `Makes a budget, or replaces all that is said of it. It is for the work that is of
the tenant, the user and the project given; a project is the label "project" of a
job. Where several budgets apply to a job, all of them do.

  --when-spent warn  alarms only
  --when-spent hold  work that would cost more than is left waits
  --when-spent stop  as hold, and jobs that run are stopped when all is spent`,
		Example: `  yunhe budget set physics --tenant physics --amount 20000 --per month --zone Asia/Shanghai --warn 80,95
  yunhe budget set ann --tenant physics --user ann --amount 500 --per week --when-spent stop --grace 10m`,
		Args: takes(1, 1, "the ID of a budget"),
		RunE: func(cmd *cobra.Command, args []string) error {
			fen, err := text.ParseFen(amount)
			if err != nil || fen > 1<<62/microsPerFen {
				return usagef("--amount: want yuan with at most two decimals, such as 500 or 1.20, got %q", amount)
			}
			b.AmountMicros = fen * microsPerFen
			var ok bool
			if b.Period, ok = budgetPeriods[period]; !ok {
				return usagef("--per: want once, day, week, month or year, got %q", period)
			}
			if b.Action, ok = budgetActions[action]; !ok {
				return usagef("--when-spent: want warn, hold or stop, got %q", action)
			}
			if b.GraceSeconds, err = wholeSeconds("--grace", grace); err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			if b.StartAt, err = c.parseTime("--from", start); err != nil {
				return err
			}
			got, err := a.budgets.SetBudget(cmd.Context(), &budgetsv1.SetBudgetRequest{BudgetId: args[0], Budget: b})
			if err != nil {
				return err
			}
			return c.printBudget(got)
		},
	}
	f := cmd.Flags()
	f.StringVar(&b.TenantId, "tenant", "", "whose work (default: every tenant's)")
	f.StringVar(&b.UserId, "user", "", "the user who submits it (default: anybody)")
	f.StringVar(&b.Project, "project", "", `the label "project" of jobs (default: any)`)
	f.StringVar(&amount, "amount", "", "how much, in yuan")
	f.StringVar(&period, "per", "month", "once, day, week, month or year")
	f.StringVar(&b.TimeZone, "zone", "", "time zone in which periods begin (default UTC)")
	f.StringVar(&start, "from", "", "with --per once: when it begins, or how long ago (default: now, or as it was)")
	f.Int32SliceVar(&b.WarnPercents, "warn", nil, "percents of the amount that raise an alarm, such as 80,95")
	f.StringVar(&action, "when-spent", "hold", "warn, hold or stop")
	f.DurationVar(&grace, "grace", 0, "with --when-spent stop: how long after that runs are stopped")
	return cmd
}

func budgetDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete BUDGET...", Short: "Delete budgets",
		Args: takes(1, -1, "the ID of a budget"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.eachDone(args, "budgetIds", "deleted", func(a *api, id string) error {
				_, err := a.budgets.DeleteBudget(cmd.Context(), &budgetsv1.DeleteBudgetRequest{BudgetId: id})
				return err
			})
		},
	}
}
