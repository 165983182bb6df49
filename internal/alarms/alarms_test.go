package alarms_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	alarmsv1 "yunhe.dev/yunhe/gen/yunhe/alarms/v1"
	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/alarms"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/app/apptest"
)

func TestMain(m *testing.M) { os.Exit(apptest.Main(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// soon makes waiting an alarm after moments.
func soon(c *app.Config) {
	c.Alarms = alarms.Config{UnplacedAfter: 200 * time.Millisecond, WaitingAfter: 200 * time.Millisecond, UnsetAfter: 200 * time.Millisecond}
}

func each(t *testing.T, f func(t *testing.T, a *apptest.App)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, apptest.Start(t, apptest.Options{Config: soon})) })
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		f(t, apptest.Start(t, apptest.Options{Config: soon, Postgres: true}))
	})
}

func list(t testing.TB, c *apptest.Client, r *alarmsv1.ListAlarmsRequest) []*alarmsv1.Alarm {
	t.Helper()
	res, err := c.Alarms.ListAlarms(t.Context(), r)
	must(t, err)
	return res.Alarms
}

// await waits until there is an alarm of the kind in the state and returns it.
func await(t testing.TB, a *apptest.App, kind alarmsv1.AlarmKind, state alarmsv1.AlarmState) *alarmsv1.Alarm {
	t.Helper()
	var found *alarmsv1.Alarm
	apptest.Until(t, fmt.Sprintf("%v is %v", kind, state), func() bool {
		for _, x := range list(t, a.Admin, &alarmsv1.ListAlarmsRequest{Kinds: []alarmsv1.AlarmKind{kind}, States: []alarmsv1.AlarmState{state}}) {
			found = x
			return true
		}
		return false
	})
	return found
}

const (
	active  = alarmsv1.AlarmState_ALARM_STATE_ACTIVE
	cleared = alarmsv1.AlarmState_ALARM_STATE_CLEARED
)

// A center that falls silent is the root of what follows: its gateway, its
// node and the job with a run there. All clear by themselves when it is back,
// and the same alarm counts when it goes again.
func TestLinked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		user := a.User(t, "acme", "ann", identityv1.Role_ROLE_USER)
		bob := a.User(t, "other", "bob", identityv1.Role_ROLE_USER)
		f := a.Join(t, apptest.Center{ID: "c1"})
		must(t, f.Ask("heartbeat", &adapterv1.HeartbeatRequest{Inventory: f.Inventory(), Node: &adapterv1.Node{Name: "m1", State: adapterv1.NodeState_NODE_STATE_NOT_READY, Reason: "disk"}}, &adapterv1.HeartbeatResponse{}))
		node := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_NODE_NOT_READY, active)
		if node.ParentId != "" || node.Node != "m1" || !strings.Contains(node.Message, "disk") || node.Severity != alarmsv1.Severity_SEVERITY_MAJOR {
			t.Errorf("node: %v", node)
		}
		job := user.Submit(t, f.Pin(apptest.Job("run", 1)))
		f.Of(job, 1)[0].Run()
		f.Disconnect()
		root := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_CENTER_DOWN, active)
		risk := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_JOB_AT_RISK, active)
		gateway := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_GATEWAY_SILENT, active)
		if root.ParentId != "" || root.Severity != alarmsv1.Severity_SEVERITY_CRITICAL || risk.ParentId != root.AlarmId || gateway.ParentId != root.AlarmId || risk.JobId != job {
			t.Errorf("root %v\nrisk %v\ngateway %v", root, risk, gateway)
		}
		waits := user.Submit(t, f.Pin(apptest.Job("waits", 1)))
		unplaced := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_JOB_UNPLACED, active)
		if unplaced.JobId != waits || unplaced.ParentId != root.AlarmId {
			t.Errorf("a job that can run nowhere else: %v", unplaced)
		}
		got, err := a.Admin.Alarms.GetAlarm(ctx, &alarmsv1.GetAlarmRequest{AlarmId: root.AlarmId})
		must(t, err)
		var kinds []int
		for _, x := range got.Affected {
			kinds = append(kinds, int(x.Kind))
		}
		if slices.Sort(kinds); !slices.Equal(kinds, []int{2, 4, 6, 8}) || got.Alarm.Affected != 4 {
			t.Errorf("affected %v: %v", kinds, got)
		}
		for _, x := range list(t, a.Admin, &alarmsv1.ListAlarmsRequest{RootsOnly: true}) {
			if x.ParentId != "" {
				t.Errorf("no root: %v", x)
			}
		}
		// Others see the resources and not the jobs.
		for _, x := range list(t, bob, &alarmsv1.ListAlarmsRequest{}) {
			if x.JobId != "" {
				t.Errorf("another tenant sees %v", x)
			}
		}
		theirs, err := bob.Alarms.GetAlarm(ctx, &alarmsv1.GetAlarmRequest{AlarmId: root.AlarmId})
		if must(t, err); theirs.Alarm.Affected != 2 {
			t.Errorf("another tenant sees %v", theirs)
		}
		_, err = bob.Alarms.GetAlarm(ctx, &alarmsv1.GetAlarmRequest{AlarmId: risk.AlarmId})
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("another tenant's: %v", err)
		}
		_, err = user.Alarms.AcknowledgeAlarm(ctx, &alarmsv1.AcknowledgeAlarmRequest{AlarmId: root.AlarmId})
		if connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("a tenant acknowledges a resource's: %v", err)
		}
		_, err = user.Alarms.AcknowledgeAlarm(ctx, &alarmsv1.AcknowledgeAlarmRequest{AlarmId: risk.AlarmId, Note: "known"})
		must(t, err)
		ack, err := a.Admin.Alarms.AcknowledgeAlarm(ctx, &alarmsv1.AcknowledgeAlarmRequest{AlarmId: root.AlarmId, Note: "on my way"})
		must(t, err)
		if ack.State != alarmsv1.AlarmState_ALARM_STATE_ACKNOWLEDGED || ack.AcknowledgedBy == "" || ack.Note != "on my way" {
			t.Errorf("acknowledged %v", ack)
		}
		a.Restart() // nothing is raised twice
		f.Connect()
		back := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_CENTER_DOWN, cleared)
		if back.AlarmId != root.AlarmId || back.ClearedAt == nil {
			t.Errorf("cleared %v", back)
		}
		await(t, a, alarmsv1.AlarmKind_ALARM_KIND_JOB_AT_RISK, cleared)
		f.Of(waits, 1)[0].Run()
		await(t, a, alarmsv1.AlarmKind_ALARM_KIND_JOB_UNPLACED, cleared)
		f.Disconnect()
		again := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_CENTER_DOWN, active)
		if again.AlarmId != root.AlarmId || again.Count < 2 || again.AcknowledgedBy != "" {
			t.Errorf("it is back as %v, was %v", again, root)
		}
	})
}

// Work that finds no place, is refused, or loses it is an alarm of its tenant.
func TestScheduling(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		refuse := func(at *adapterv1.Attempt) string {
			if at.Name == "no" {
				return "no such image"
			}
			return ""
		}
		f := a.Join(t, apptest.Center{ID: "c1", CPU: 2000, Refuse: refuse})
		j := apptest.Job("no", 1)
		j.Tasks[0].Name = "no"
		no := a.Admin.Submit(t, j)
		a.Admin.AwaitState(t, no, jobsv1.State_STATE_FAILED)
		x := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_PLACEMENT_REFUSED, active)
		if x.JobId != no || x.AiCenterId != "c1" || !strings.Contains(x.Message, "no such image") {
			t.Errorf("refused: %v", x)
		}
		run := f.Of(a.Admin.Submit(t, apptest.Job("run", 1)), 1)[0]
		run.Run()
		al, err := a.Admin.Control.ApplyAllocation(ctx, &controlv1.ApplyAllocationRequest{ResourceSpecId: "small", Count: 2})
		must(t, err)
		late := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_ALLOCATION_NOT_GRANTED, active)
		j = apptest.Job("own", 1)
		j.AllocationId = al.AllocationId
		own := a.Admin.Submit(t, j)
		unplaced := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_JOB_UNPLACED, active)
		if late.AllocationId != al.AllocationId || unplaced.JobId != own || unplaced.ParentId != late.AlarmId {
			t.Errorf("allocation %v\njob %v", late, unplaced)
		}
		_, err = a.Admin.Control.ReclaimResource(ctx, &controlv1.ReclaimResourceRequest{AiCenterId: "c1", GraceSeconds: 600})
		must(t, err)
		root := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_RECLAIM, active)
		risk := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_JOB_AT_RISK, active)
		if risk.ParentId != root.AlarmId || risk.JobId != run.JobId {
			t.Errorf("reclaim %v\njob %v", root, risk)
		}
		_, err = a.Admin.Control.RestoreResource(ctx, &controlv1.RestoreResourceRequest{AiCenterId: "c1"})
		must(t, err)
		await(t, a, alarmsv1.AlarmKind_ALARM_KIND_RECLAIM, cleared)
		run.End("completed", 0)
		await(t, a, alarmsv1.AlarmKind_ALARM_KIND_ALLOCATION_NOT_GRANTED, cleared)
		await(t, a, alarmsv1.AlarmKind_ALARM_KIND_JOB_UNPLACED, cleared)
	})
}

func TestWatch(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{Config: soon})
	st, err := a.Admin.Alarms.WatchAlarms(t.Context(), &alarmsv1.WatchAlarmsRequest{})
	must(t, err)
	job := a.Admin.Submit(t, apptest.Job("nowhere", 1))
	for st.Receive() {
		if x := st.Msg().GetAlarm(); x.GetJobId() == job {
			if x.State == cleared {
				return
			}
			_, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: job})
			must(t, err)
		}
	}
	t.Fatalf("the stream ended: %v", st.Err())
}
