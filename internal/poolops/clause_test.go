package poolops_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	alarmsv1 "yunhe.dev/yunhe/gen/yunhe/alarms/v1"
	noticesv1 "yunhe.dev/yunhe/gen/yunhe/notices/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/notices/noticestest"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/agent"
	"yunhe.dev/yunhe/internal/release"
)

// These tests follow the steps of clauses 12.18 to 12.21 on a platform with nodes
// that lend the real devices of this machine. What people look at is tested in a
// browser, web/e2e/pool-operation.test.mjs.

func TestMain(m *testing.M) { os.Exit(apptest.Main(m)) }

// join has a node of this machine's devices join a platform, and returns what ends
// it.
func join(t *testing.T, a *apptest.App, name string) (stop func()) {
	t.Helper()
	if !pool.Built() {
		t.Skip("SKIPPED: the accelerator pool was not built (scripts/pool.sh needs gcc and opencl-c-headers)")
	}
	dir, err := os.MkdirTemp("", "yp") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	token, err := a.Admin.Pool.CreateNodeToken(t.Context(), &poolv1.CreateNodeTokenRequest{})
	must(t, err)
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	m, err := agent.Join(t.Context(), dir, a.Admin.URL, name, token.Token, poolv1connect.NewPoolServiceClient(client, a.Admin.URL))
	must(t, err)
	member, err := m.Member()
	must(t, err)
	spool, err := agent.OpenSpool(dir)
	must(t, err)
	n, err := pool.NewNode(pool.NodeConfig{Dir: dir, Listen: []string{"unix:" + filepath.Join(dir, "s")}, Member: member}, slog.New(spool.Handler(slog.DiscardHandler)))
	if k := fault.KindOf(err); k == fault.Unavailable || k == fault.NotFound {
		t.Skipf("SKIPPED: no device of OpenCL (pocl-opencl-icd): %v", err)
	}
	must(t, err)
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	var loops sync.WaitGroup
	loops.Go(func() { _ = n.Run(ctx) })
	loops.Go(func() {
		_ = n.Attend(ctx, m.Tell(poolv1connect.NewPoolServiceClient(client, a.Admin.URL), "v1"))
	})
	loops.Go(func() {
		m.Operate(ctx, poolv1connect.NewPoolOperationServiceClient(client, a.Admin.URL), "v1", n, spool, release.Folder(filepath.Join(dir, "programs")))
	})
	stop = sync.OnceFunc(func() { end(); loops.Wait(); spool.Close(); transport.CloseIdleConnections() })
	t.Cleanup(stop)
	_, err = a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(t, err)
	apptest.Until(t, "node "+name+" is there with its components", func() bool {
		res, err := a.Admin.PoolOps.ListPoolComponents(t.Context(), &poolv1.ListPoolComponentsRequest{})
		must(t, err)
		for _, x := range res.Nodes {
			if x.NodeId == name && x.Online && len(x.Components) == 3 {
				return true
			}
		}
		return false
	})
	return stop
}

// task begins a task on a node, which lasts until end is called.
func task(t *testing.T, a *apptest.App, node string, mem int64) (slice string, end func()) {
	t.Helper()
	x, err := a.Admin.Pool.RequestSlice(t.Context(), &poolv1.RequestSliceRequest{ComputePercent: 30, MemoryMib: mem, NodeId: node, Name: "program"})
	must(t, err)
	k, err := agent.Take(t.Context(), a.Admin.Pool, agent.Awaited{Slice: x.SliceId, Waits: func(*poolv1.Slice) {}})
	must(t, err)
	end = sync.OnceFunc(k.Client.Close)
	t.Cleanup(end)
	return x.SliceId, end
}

func found(t *testing.T, a *apptest.App, r *poolv1.SearchPoolLogsRequest) []*poolv1.PoolLogEntry {
	t.Helper()
	res, err := a.Admin.PoolOps.SearchPoolLogs(t.Context(), r)
	must(t, err)
	return res.Entries
}

// 12.18: logs are collected, filtered by level, time and task, and exported.
func TestClause12_18(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	stop := join(t, a, "n1")
	slice, end := task(t, a, "n1", 64)
	end()
	of := func(source, message string) *poolv1.PoolLogEntry {
		t.Helper()
		var got *poolv1.PoolLogEntry
		apptest.Until(t, source+" says "+message, func() bool {
			for _, e := range found(t, a, &poolv1.SearchPoolLogsRequest{SliceId: slice}) {
				if e.Source == source && e.Message == message {
					got = e
				}
			}
			return got != nil
		})
		return got
	}
	for _, message := range []string{"slice requested", "slice placed", "slice ended"} {
		of("platform", message)
	}
	of("n1", "task started")
	last := of("n1", "task ended")
	if last.Level != poolv1.LogLevel_LOG_LEVEL_INFO || last.NodeId != "n1" || last.DeviceId != "opencl-0" || last.UserId == "" || last.GroupId != "g" || !strings.Contains(last.Details, "reason=") {
		t.Errorf("the node's entry is %v", last)
	}
	_, err := a.Admin.Pool.RequestSlice(t.Context(), &poolv1.RequestSliceRequest{ComputePercent: 30, MemoryMib: 1 << 20, NodeId: "n1"})
	if err == nil {
		t.Error("more memory than there is was given")
	}
	if got := found(t, a, &poolv1.SearchPoolLogsRequest{Level: poolv1.LogLevel_LOG_LEVEL_WARN, Text: "REFUSED"}); len(got) != 1 || !strings.Contains(got[0].Details, "memory_mib=1048576") {
		t.Errorf("refused: %v", got)
	}
	if got := found(t, a, &poolv1.SearchPoolLogsRequest{SliceId: slice, To: last.At}); len(got) == 0 || got[0].At.AsTime().After(last.At.AsTime()) {
		t.Errorf("before the last: %v", got)
	}
	file, err := a.Admin.PoolOps.ExportPoolLogs(t.Context(), &poolv1.ExportPoolLogsRequest{Format: poolv1.ExportPoolLogsRequest_FORMAT_CSV, SliceId: slice})
	if must(t, err); !strings.Contains(string(file.Content), "task ended,n1,opencl-0,"+slice) {
		t.Errorf("exported: %s", file.Content)
	}
	stop()
	apptest.Until(t, "the node's last words come", func() bool {
		return len(found(t, a, &poolv1.SearchPoolLogsRequest{NodeId: "n1", Text: "offline"})) > 0
	})
}

// 12.19: what is abnormal raises alarms by rules that are enabled, disabled and
// edited; records are filtered; people are told in the console and by mail.
func TestClause12_19(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	mails := noticestest.Serve(t)
	stop := join(t, a, "n1")
	_, err := a.Admin.Notices.SetNoticeSettings(t.Context(), &noticesv1.SetNoticeSettingsRequest{Settings: &noticesv1.NoticeSettings{InSite: true, Mail: true, Cleared: true, Recipients: []string{"ops@example.org"},
		Sender: "yunhe@example.org", Server: mails.Addr().String(), Security: noticesv1.NoticeSettings_SECURITY_NONE}})
	must(t, err)
	set := func(kind poolv1.PoolAlarmRule_Kind, enabled bool, threshold int64) {
		t.Helper()
		_, err := a.Admin.PoolOps.SetPoolAlarmRule(t.Context(), &poolv1.SetPoolAlarmRuleRequest{Kind: kind, Rule: &poolv1.PoolAlarmRule{Enabled: enabled, Threshold: threshold, Severity: 2}})
		must(t, err)
	}
	raised := func(kind alarmsv1.AlarmKind, state alarmsv1.AlarmState) *alarmsv1.Alarm {
		t.Helper()
		var got *alarmsv1.Alarm
		apptest.Until(t, fmt.Sprintf("%v is %v", kind, state), func() bool {
			res, err := a.Admin.Alarms.ListAlarms(t.Context(), &alarmsv1.ListAlarmsRequest{Kinds: []alarmsv1.AlarmKind{kind}, States: []alarmsv1.AlarmState{state}, Node: "n1", Severity: alarmsv1.Severity_SEVERITY_MAJOR})
			if must(t, err); len(res.Alarms) > 0 {
				got = res.Alarms[0]
			}
			return got != nil
		})
		return got
	}
	const active, cleared = alarmsv1.AlarmState_ALARM_STATE_ACTIVE, alarmsv1.AlarmState_ALARM_STATE_CLEARED
	_, _ = task(t, a, "n1", 64)
	set(poolv1.PoolAlarmRule_KIND_COMPUTE_FULL, true, 25)
	alarm := raised(alarmsv1.AlarmKind_ALARM_KIND_POOL_COMPUTE_FULL, active)
	one, err := a.Admin.Alarms.GetAlarm(t.Context(), &alarmsv1.GetAlarmRequest{AlarmId: alarm.AlarmId})
	if must(t, err); !strings.Contains(one.Alarm.Message, "n1/opencl-0") {
		t.Errorf("the alarm is %v", one.Alarm)
	}
	if l := <-mails.Got; !strings.Contains(l.Subject, "n1/opencl-0") || !strings.Contains(l.Body, alarm.AlarmId) {
		t.Errorf("the mail is %+v", l)
	}
	set(poolv1.PoolAlarmRule_KIND_COMPUTE_FULL, true, 31) // edited: it is not so full
	raised(alarmsv1.AlarmKind_ALARM_KIND_POOL_COMPUTE_FULL, cleared)
	if l := <-mails.Got; !strings.Contains(l.Subject, "cleared") {
		t.Errorf("the mail is %+v", l)
	}
	res, err := a.Admin.Notices.ListNotices(t.Context(), &noticesv1.ListNoticesRequest{})
	if must(t, err); len(res.Notices) != 2 || res.Unread != 2 || !res.Notices[0].Cleared || res.Notices[1].AlarmId != alarm.AlarmId {
		t.Errorf("notices are %v", res)
	}
	none, err := a.Admin.Alarms.ListAlarms(t.Context(), &alarmsv1.ListAlarmsRequest{Node: "n1", To: timestamppb.New(alarm.FirstAt.AsTime()), States: []alarmsv1.AlarmState{active, cleared}})
	if must(t, err); len(none.Alarms) != 0 {
		t.Errorf("raised before the first: %v", none.Alarms)
	}
	set(poolv1.PoolAlarmRule_KIND_NODE_OFFLINE, true, 0)
	stop()
	raised(alarmsv1.AlarmKind_ALARM_KIND_POOL_NODE_OFFLINE, active)
	set(poolv1.PoolAlarmRule_KIND_NODE_OFFLINE, false, 0)
	raised(alarmsv1.AlarmKind_ALARM_KIND_POOL_NODE_OFFLINE, cleared)
}

// 12.20, but for upgrades: the state of all components is seen; one node and several
// are configured while tasks run.
func TestClause12_20(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	join(t, a, "n1")
	join(t, a, "n2")
	configure := func(cfg *poolv1.PoolConfig, nodes ...string) {
		t.Helper()
		_, err := a.Admin.PoolOps.ConfigurePoolNodes(t.Context(), &poolv1.ConfigurePoolNodesRequest{NodeIds: nodes, Config: cfg})
		must(t, err)
		apptest.Until(t, fmt.Sprintf("%v have taken their configuration", nodes), func() bool {
			res, err := a.Admin.PoolOps.ListPoolComponents(t.Context(), &poolv1.ListPoolComponentsRequest{})
			must(t, err)
			for _, n := range res.Nodes {
				if n.Generation != n.AppliedGeneration {
					return false
				}
			}
			return true
		})
	}
	one, _ := task(t, a, "n1", 64)
	two, _ := task(t, a, "n2", 64)
	configure(&poolv1.PoolConfig{LogLevel: poolv1.LogLevel_LOG_LEVEL_WARN}, "n1", "n2")
	configure(&poolv1.PoolConfig{LogLevel: poolv1.LogLevel_LOG_LEVEL_INFO, IdleLimitSeconds: 1}, "n1")
	ended := func(slice string) *poolv1.Slice {
		t.Helper()
		res, err := a.Admin.Pool.AwaitSlice(t.Context(), &poolv1.AwaitSliceRequest{SliceId: slice})
		must(t, err)
		return res.Slice
	}
	apptest.Until(t, "the task that is not used ends", func() bool { return ended(one).State == poolv1.Slice_STATE_ENDED })
	if why := ended(one).Reason; why != "virtual resource released: it was not used for the node's limit of 1s" {
		t.Errorf("it ended because %s", why)
	}
	if x := ended(two); x.State == poolv1.Slice_STATE_ENDED {
		t.Errorf("the other node's task ended because %s", x.Reason)
	}
	apptest.Until(t, "n1 logs again, at the level it was set to", func() bool {
		return len(found(t, a, &poolv1.SearchPoolLogsRequest{SliceId: one, Text: "task ended"})) > 0
	})
}

// 12.21: use is counted, and the reports on resources, tasks and operation are
// written.
func TestClause12_21(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	join(t, a, "n1")
	slice, _ := task(t, a, "n1", 64)
	apptest.Until(t, "use is counted", func() bool {
		must(t, a.PoolOps.Count(t.Context()))
		st, err := a.Admin.PoolOps.GetPoolStatistics(t.Context(), &poolv1.GetPoolStatisticsRequest{})
		must(t, err)
		return len(st.Devices) > 0 && st.Devices[0].SliceSeconds > 0 && st.Devices[0].ComputeThere > 0
	})
	_, err := a.Admin.Pool.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: slice})
	must(t, err)
	for kind, says := range map[poolv1.ExportPoolReportRequest_Kind]string{poolv1.ExportPoolReportRequest_KIND_RESOURCES: "n1/opencl-0", poolv1.ExportPoolReportRequest_KIND_TASKS: "it was released", poolv1.ExportPoolReportRequest_KIND_OPERATION: "Compute lent"} {
		for format, begins := range map[poolv1.ExportPoolReportRequest_Format]string{poolv1.ExportPoolReportRequest_FORMAT_CSV: "Accelerator pool", poolv1.ExportPoolReportRequest_FORMAT_HTML: "<!doctype html>", poolv1.ExportPoolReportRequest_FORMAT_PDF: "%PDF-1.7"} {
			file, err := a.Admin.PoolOps.ExportPoolReport(t.Context(), &poolv1.ExportPoolReportRequest{Kind: kind, Format: format})
			if must(t, err); !strings.HasPrefix(string(file.Content), begins) || !strings.Contains(string(file.Content), says) {
				t.Errorf("%v as %v lacks %q: %s", kind, format, says, file.Content)
			}
		}
	}
}
