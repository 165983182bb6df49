package budgets_test

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	alarmsv1 "yunhe.dev/yunhe/gen/yunhe/alarms/v1"
	budgetsv1 "yunhe.dev/yunhe/gen/yunhe/budgets/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

const yuan = 1_000_000

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hour is a job whose replicas cost a yuan each.
func hour(name string, replicas int32) *jobsv1.JobSpec {
	j := apptest.Job(name, replicas)
	j.Tasks[0].ExpectedSeconds = 3600
	return j
}

func set(t testing.TB, c *apptest.Client, id string, b *budgetsv1.Budget) *budgetsv1.Budget {
	t.Helper()
	if b.Period == 0 {
		b.Period = budgetsv1.Budget_PERIOD_ONCE // no period ends while the test runs
	}
	got, err := c.Budgets.SetBudget(t.Context(), &budgetsv1.SetBudgetRequest{BudgetId: id, Budget: b})
	must(t, err)
	return got
}

// held waits until explain says that so many replicas wait for a budget.
func held(t testing.TB, c *apptest.Client, job string, n int32) *schedulerv1.ExplainJobResponse {
	t.Helper()
	var x *schedulerv1.ExplainJobResponse
	apptest.Until(t, "replicas wait for a budget", func() bool {
		var err error
		x, err = c.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: job})
		must(t, err)
		for _, w := range x.Waits {
			if w.Cause == schedulerv1.Wait_CAUSE_BUDGET && w.Replicas == n {
				return true
			}
		}
		return false
	})
	return x
}

// What would cost more than is left waits and is told so, also before it is
// submitted; others do not wait. What ends early leaves more, after a restart
// too, and so does a greater amount.
func TestHold(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		f := a.Join(t, apptest.Center{ID: "c1"})
		ann, bob := a.User(t, "physics", "ann", identityv1.Role_ROLE_USER), a.User(t, "biology", "bob", identityv1.Role_ROLE_USER)
		set(t, a.Admin, "b1", &budgetsv1.Budget{TenantId: "physics", AmountMicros: 3 * yuan})
		job := ann.Submit(t, hour("five", 5))
		rs := f.Of(job, 3)
		x := held(t, ann, job, 2)
		if text := x.Waits[len(x.Waits)-1].Message; !strings.Contains(text, "budget b1 of tenant physics has 0.00 CNY of 3.00 CNY in all left") || !strings.Contains(x.EstimateBasis, "b1") && x.EstimatedStart != nil {
			t.Errorf("explained by %q, %q", text, x.EstimateBasis)
		}
		plan, err := ann.Jobs.PlanJob(t.Context(), &jobsv1.PlanJobRequest{Job: hour("plan", 2)})
		must(t, err)
		if plan.ReplicasPlaced != 0 || len(plan.Waits) != 1 || plan.Waits[0].Cause != schedulerv1.Wait_CAUSE_BUDGET || plan.Waits[0].Replicas != 2 || plan.EstimatedStart != nil {
			t.Errorf("planned %v", plan)
		}
		f.Of(bob.Submit(t, hour("other", 4)), 4) // the same, of another tenant
		b, err := ann.Budgets.GetBudget(t.Context(), &budgetsv1.GetBudgetRequest{BudgetId: "b1"})
		must(t, err)
		if b.SpentMicros != 0 || b.CommittedMicros != 3*yuan {
			t.Errorf("%v", b)
		}
		rs[0].Run()
		rs[0].End("completed", 0) // within a moment: it gives back most of its yuan, not all
		a.Restart()
		if n := len(f.Of(job, 3)); n != 3 {
			t.Errorf("%d replicas run, though less than a yuan is left", n)
		}
		set(t, a.Admin, "b1", &budgetsv1.Budget{TenantId: "physics", AmountMicros: 3*yuan + yuan/2})
		f.Of(job, 4)
		held(t, a.Admin, job, 1)
		_, err = a.Admin.Budgets.DeleteBudget(t.Context(), &budgetsv1.DeleteBudgetRequest{BudgetId: "b1"})
		must(t, err)
		f.Of(job, 5)
	})
}

// Of several budgets each bounds its own; a gang waits as a whole; what is dear
// is not taken where something cheap does.
func TestBounds(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	dear := a.Join(t, apptest.Center{ID: "dear", Region: "r", Prices: map[string]int64{"small": 300}})
	ann := a.User(t, "physics", "ann", identityv1.Role_ROLE_USER)
	bob := a.User(t, "physics", "bob", identityv1.Role_ROLE_USER)
	set(t, a.Admin, "all", &budgetsv1.Budget{TenantId: "physics", AmountMicros: 100 * yuan})
	set(t, a.Admin, "ann", &budgetsv1.Budget{UserId: "ann", AmountMicros: 2 * yuan})
	set(t, a.Admin, "collider", &budgetsv1.Budget{TenantId: "physics", Project: "collider", AmountMicros: 7 * yuan})

	one := ann.Submit(t, hour("one", 1)) // 3 yuan: too dear for her
	held(t, ann, one, 1)
	dear.Of(bob.Submit(t, hour("bobs", 1)), 1) // not for him

	gang := hour("gang", 3)
	gang.Gang, gang.Labels = true, map[string]string{"project": "collider"}
	whole := bob.Submit(t, gang)
	if x := held(t, bob, whole, 3); !strings.Contains(x.Waits[0].Message, "project collider") {
		t.Errorf("waits for %v", x.Waits)
	}
	two := hour("two", 2)
	two.Labels = gang.Labels
	dear.Of(bob.Submit(t, two), 2) // 6 of 7 yuan

	cheap := a.Join(t, apptest.Center{ID: "cheap"})
	cheap.Of(one, 1) // there is a center that is cheap enough
	held(t, bob, whole, 3)
	set(t, a.Admin, "collider", &budgetsv1.Budget{TenantId: "physics", Project: "collider", AmountMicros: 10 * yuan})
	cheap.Of(whole, 3) // 3 yuan there
}

// What is reached raises alarms; when all is spent what runs is stopped, and
// what was stopped is told why.
func TestStop(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		f := a.Join(t, apptest.Center{ID: "c1"})
		ann := a.User(t, "physics", "ann", identityv1.Role_ROLE_USER)
		bob := a.User(t, "biology", "bob", identityv1.Role_ROLE_USER)
		set(t, a.Admin, "b1", &budgetsv1.Budget{TenantId: "physics", Period: budgetsv1.Budget_PERIOD_YEAR, AmountMicros: 1 << 50, WarnPercents: []int32{50, 80}, Action: budgetsv1.Budget_ACTION_STOP})
		mine, other := ann.Submit(t, hour("mine", 2)), bob.Submit(t, hour("other", 1))
		began := time.Now().Add(-3 * time.Hour)
		for _, r := range f.Of(mine, 2) { // 6 yuan until now
			r.RunSince(began)
		}
		f.Of(other, 1)[0].RunSince(began)
		awaitAlarm := func(severity alarmsv1.Severity, text string) {
			t.Helper()
			apptest.Until(t, "an alarm says "+text, func() bool {
				res, err := ann.Alarms.ListAlarms(t.Context(), &alarmsv1.ListAlarmsRequest{Kinds: []alarmsv1.AlarmKind{alarmsv1.AlarmKind_ALARM_KIND_BUDGET}})
				must(t, err)
				return len(res.Alarms) == 1 && res.Alarms[0].Severity == severity && strings.Contains(res.Alarms[0].Message, text)
			})
		}
		since := spentIn(t, ann) // less in the first hours of a year
		b := &budgetsv1.Budget{TenantId: "physics", Period: budgetsv1.Budget_PERIOD_YEAR, AmountMicros: since * 3 / 2, WarnPercents: []int32{50, 80}, Action: budgetsv1.Budget_ACTION_STOP}
		set(t, a.Admin, "b1", b)
		awaitAlarm(alarmsv1.Severity_SEVERITY_WARNING, "50 % of budget b1 of tenant physics")
		b.AmountMicros = since / 2
		set(t, a.Admin, "b1", b)
		awaitAlarm(alarmsv1.Severity_SEVERITY_MAJOR, "is spent")
		for _, r := range f.Of(mine, 2) {
			r.AwaitStop()
			r.End("stopped", 143)
		}
		j := ann.AwaitState(t, mine, jobsv1.State_STATE_STOPPED)
		if j.Reason != "budget" || !strings.Contains(j.Message, "budget b1") {
			t.Errorf("stopped for %q: %q", j.Reason, j.Message)
		}
		if j := bob.Job(t, other); j.State != jobsv1.State_STATE_RUNNING {
			t.Errorf("the job of another tenant is %s", j.State)
		}
		if got := spentIn(t, ann); got < since { // metered now
			t.Errorf("spent %d after %d", got, since)
		}
		held(t, ann, ann.Submit(t, hour("late", 1)), 1)
		_, err := a.Admin.Budgets.DeleteBudget(t.Context(), &budgetsv1.DeleteBudgetRequest{BudgetId: "b1"})
		must(t, err)
		apptest.Until(t, "no alarm is left", func() bool {
			res, err := ann.Alarms.ListAlarms(t.Context(), &alarmsv1.ListAlarmsRequest{Kinds: []alarmsv1.AlarmKind{alarmsv1.AlarmKind_ALARM_KIND_BUDGET}})
			must(t, err)
			return len(res.Alarms) == 0
		})
	})
}

func spentIn(t testing.TB, c *apptest.Client) int64 {
	t.Helper()
	b, err := c.Budgets.GetBudget(t.Context(), &budgetsv1.GetBudgetRequest{BudgetId: "b1"})
	must(t, err)
	return b.SpentMicros
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	ann, bob := a.User(t, "physics", "ann", identityv1.Role_ROLE_USER), a.User(t, "biology", "bob", identityv1.Role_ROLE_USER)
	set(t, a.Admin, "b1", &budgetsv1.Budget{TenantId: "physics", AmountMicros: yuan})
	set(t, a.Admin, "b2", &budgetsv1.Budget{AmountMicros: yuan})
	for _, x := range []struct {
		name string
		c    *apptest.Client
		ids  []string
	}{{"administrator", a.Admin, []string{"b1", "b2"}}, {"ann", ann, []string{"b1"}}, {"bob", bob, nil}} {
		res, err := x.c.Budgets.ListBudgets(t.Context(), &budgetsv1.ListBudgetsRequest{})
		must(t, err)
		var ids []string
		for _, b := range res.Budgets {
			ids = append(ids, b.BudgetId)
		}
		if strings.Join(ids, " ") != strings.Join(x.ids, " ") {
			t.Errorf("%s sees %v, want %v", x.name, ids, x.ids)
		}
	}
	if _, err := bob.Budgets.GetBudget(t.Context(), &budgetsv1.GetBudgetRequest{BudgetId: "b1"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("of another tenant: %v", err)
	}
	if _, err := ann.Budgets.SetBudget(t.Context(), &budgetsv1.SetBudgetRequest{BudgetId: "b1", Budget: &budgetsv1.Budget{AmountMicros: 2}}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a user sets a budget: %v", err)
	}
	wrong := a.Admin.REST(t, "PUT", "/v1/budgets/-b3", `{"tenant_id": "?", "amount_micros": -1, "period": 9, "time_zone": "Mars/Olympus", "warn_percents": [50, 50, 100], "action": "ACTION_HOLD", "grace_seconds": 5}`)
	for _, field := range []string{"budget_id", "budget.tenant_id", "budget.amount_micros", "budget.period", "budget.time_zone", "budget.warn_percents[1]", "budget.warn_percents[2]", "budget.grace_seconds"} {
		if !strings.Contains(string(wrong.Body), field) {
			t.Errorf("%s is not refused: %s", field, wrong.Body)
		}
	}
	_, err := a.Admin.Budgets.SetBudget(t.Context(), &budgetsv1.SetBudgetRequest{BudgetId: "b3", Budget: &budgetsv1.Budget{TenantId: "nobody", AmountMicros: 1}})
	if err == nil || !strings.Contains(err.Error(), "budget.tenant_id") {
		t.Errorf("of a tenant that is not there: %v", err)
	}
	if _, err := a.Admin.Budgets.DeleteBudget(t.Context(), &budgetsv1.DeleteBudgetRequest{BudgetId: "b9"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("deletes what is not there: %v", err)
	}
}
