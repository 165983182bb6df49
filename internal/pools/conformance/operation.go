package conformance

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	alarmsv1 "yunhe.dev/yunhe/gen/yunhe/alarms/v1"
	noticesv1 "yunhe.dev/yunhe/gen/yunhe/notices/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/release"
)

// collected expects that a task's log comes, from the platform and from its node,
// is filtered by level, time and text, and exported.
func collected(ctx context.Context, b *bench) error {
	began := time.Now()
	t, x, err := b.walking(ctx, "--on", b.first(), "--compute", "30", "--memory", "64"+mib)
	if err != nil {
		return err
	}
	if err := t.end(ctx); err != nil {
		return err
	}
	var last *poolv1.PoolLogEntry
	for source, message := range map[string]string{"platform": "slice ended", b.nodes[0].NodeId: "task ended"} {
		if err := b.until(ctx, source+" logs "+message, func() (bool, error) {
			got, err := b.logged(ctx, &poolv1.SearchPoolLogsRequest{SliceId: x.SliceId, Level: poolv1.LogLevel_LOG_LEVEL_INFO, Text: strings.ToUpper(message)})
			i := slices.IndexFunc(got, func(e *poolv1.PoolLogEntry) bool { return e.Source == source && e.Message == message })
			if i >= 0 {
				last = got[i]
			}
			return i >= 0, err
		}); err != nil {
			return err
		}
	}
	if last.NodeId != b.nodes[0].NodeId || last.GroupId != b.name {
		return fmt.Errorf("the entry is %v", last)
	}
	none, err := b.logged(ctx, &poolv1.SearchPoolLogsRequest{SliceId: x.SliceId, To: timestamppb.New(began.Add(-time.Hour))})
	if err != nil || len(none) > 0 {
		return fmt.Errorf("from before the task began there is %v (%v)", none, err)
	}
	grave, err := b.logged(ctx, &poolv1.SearchPoolLogsRequest{Level: poolv1.LogLevel_LOG_LEVEL_ERROR})
	if err != nil || slices.ContainsFunc(grave, func(e *poolv1.PoolLogEntry) bool { return e.Level < poolv1.LogLevel_LOG_LEVEL_ERROR }) {
		return fmt.Errorf("among errors there is %v (%v)", grave, err)
	}
	for _, format := range []poolv1.ExportPoolLogsRequest_Format{poolv1.ExportPoolLogsRequest_FORMAT_TEXT, poolv1.ExportPoolLogsRequest_FORMAT_JSON, poolv1.ExportPoolLogsRequest_FORMAT_CSV} {
		file, err := b.Operation.ExportPoolLogs(ctx, &poolv1.ExportPoolLogsRequest{Format: format, SliceId: x.SliceId})
		if err != nil {
			return err
		}
		if file.Name == "" || !bytes.Contains(file.Content, []byte(x.SliceId)) || !bytes.Contains(file.Content, []byte("task ended")) {
			return fmt.Errorf("%v: the file %s lacks the task: %s", format, file.Name, file.Content)
		}
	}
	return b.look(ctx, "logs", last.LogId, last.Message)
}

func (b *bench) logged(ctx context.Context, r *poolv1.SearchPoolLogsRequest) ([]*poolv1.PoolLogEntry, error) {
	res, err := b.Operation.SearchPoolLogs(ctx, r)
	if err != nil {
		return nil, err
	}
	return res.Entries, nil
}

// alarmed expects that a rule that is edited, enabled and disabled raises an alarm
// and clears it, that alarms are filtered, and that who is to be told can be set.
func alarmed(ctx context.Context, b *bench) error {
	const kind = poolv1.PoolAlarmRule_KIND_COMPUTE_FULL
	was, err := b.rule(ctx, kind)
	if err != nil {
		return err
	}
	set := func(ctx context.Context, enabled bool, threshold int64, severity int32) error {
		_, err := b.Operation.SetPoolAlarmRule(ctx, &poolv1.SetPoolAlarmRuleRequest{Kind: kind, Rule: &poolv1.PoolAlarmRule{Enabled: enabled, Threshold: threshold, Severity: severity}})
		return err
	}
	b.later(func(ctx context.Context) error { return set(ctx, was.Enabled, was.Threshold, was.Severity) })
	told, err := b.Notices.GetNoticeSettings(ctx, &noticesv1.GetNoticeSettingsRequest{})
	if err != nil {
		return err
	}
	tell := func(ctx context.Context, inSite bool, recipients []string) error {
		x := &noticesv1.NoticeSettings{InSite: inSite, Mail: told.Mail, Severity: told.Severity, Cleared: told.Cleared, Kinds: told.Kinds, Recipients: recipients,
			Sender: told.Sender, Server: told.Server, Security: told.Security, UserName: told.UserName}
		now, err := b.Notices.SetNoticeSettings(ctx, &noticesv1.SetNoticeSettingsRequest{Settings: x})
		if err == nil && (now.InSite != inSite || !slices.Equal(now.Recipients, recipients)) {
			err = fmt.Errorf("the notification is %v", now)
		}
		return err
	}
	b.later(func(ctx context.Context) error { return tell(ctx, told.InSite, told.Recipients) })
	if err := tell(ctx, true, append(slices.Clone(told.Recipients), "conformance@example.org")); err != nil {
		return err
	}
	if err := tell(ctx, true, told.Recipients); err != nil { // nobody else's mail
		return err
	}
	node, device, _ := strings.Cut(b.first(), "/")
	if _, err := b.hold(ctx, &poolv1.RequestSliceRequest{ComputePercent: 30, NodeId: node, DeviceId: device}); err != nil {
		return err
	}
	began := time.Now()
	if err := set(ctx, true, 10, 3); err != nil {
		return err
	}
	var got *alarmsv1.Alarm
	find := func(states ...alarmsv1.AlarmState) error {
		return b.until(ctx, fmt.Sprintf("the alarm is %v", states), func() (bool, error) {
			res, err := b.Alarms.ListAlarms(ctx, &alarmsv1.ListAlarmsRequest{Kinds: []alarmsv1.AlarmKind{alarmsv1.AlarmKind_ALARM_KIND_POOL_COMPUTE_FULL}, States: states, Node: node, Severity: alarmsv1.Severity_SEVERITY_CRITICAL})
			if err != nil {
				return false, err
			}
			i := slices.IndexFunc(res.Alarms, func(a *alarmsv1.Alarm) bool {
				return strings.Contains(a.Message, b.first()) && (got == nil || a.AlarmId == got.AlarmId)
			})
			if i >= 0 {
				got = res.Alarms[i]
			}
			return i >= 0, nil
		})
	}
	const active, acknowledged, cleared = alarmsv1.AlarmState_ALARM_STATE_ACTIVE, alarmsv1.AlarmState_ALARM_STATE_ACKNOWLEDGED, alarmsv1.AlarmState_ALARM_STATE_CLEARED
	if err := find(active, acknowledged); err != nil {
		return err
	}
	one, err := b.Alarms.GetAlarm(ctx, &alarmsv1.GetAlarmRequest{AlarmId: got.AlarmId})
	if err != nil || one.Alarm.GetMessage() != got.Message {
		return fmt.Errorf("the alarm's details are %v (%v)", one, err)
	}
	before, err := b.Alarms.ListAlarms(ctx, &alarmsv1.ListAlarmsRequest{Kinds: []alarmsv1.AlarmKind{got.Kind}, States: []alarmsv1.AlarmState{active, acknowledged}, To: timestamppb.New(began.Add(-time.Hour))})
	if err != nil || slices.ContainsFunc(before.Alarms, func(a *alarmsv1.Alarm) bool { return a.AlarmId == got.AlarmId }) {
		return fmt.Errorf("the alarm is among those of an hour before (%v)", err)
	}
	if err := b.until(ctx, "people are told in the console", func() (bool, error) {
		res, err := b.Notices.ListNotices(ctx, &noticesv1.ListNoticesRequest{})
		return err == nil && slices.ContainsFunc(res.Notices, func(n *noticesv1.Notice) bool { return n.AlarmId == got.AlarmId }), err
	}); err != nil {
		return err
	}
	if err := b.look(ctx, "alarms", got.AlarmId, node); err != nil {
		return err
	}
	if err := set(ctx, false, 10, 3); err != nil {
		return err
	}
	if err := find(cleared); err != nil {
		return err
	}
	now, err := b.rule(ctx, kind)
	if err != nil || now.Enabled || now.Threshold != 10 || now.Severity != 3 {
		return fmt.Errorf("the rule is %v (%v)", now, err)
	}
	return nil
}

func (b *bench) rule(ctx context.Context, kind poolv1.PoolAlarmRule_Kind) (*poolv1.PoolAlarmRule, error) {
	res, err := b.Operation.ListPoolAlarmRules(ctx, &poolv1.ListPoolAlarmRulesRequest{})
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(res.Rules, func(r *poolv1.PoolAlarmRule) bool { return r.Kind == kind }); i >= 0 {
		return res.Rules[i], nil
	}
	return nil, fmt.Errorf("there is no rule %v", kind)
}

// components expects that all components are seen, configured and upgraded, one
// node's and those of several.
func components(ctx context.Context, b *bench) error {
	list := func(ctx context.Context) (map[string]*poolv1.PoolNodeComponents, error) {
		res, err := b.Operation.ListPoolComponents(ctx, &poolv1.ListPoolComponentsRequest{})
		if err == nil && res.PlatformVersion == "" {
			err = fmt.Errorf("the platform says no version")
		}
		if err != nil {
			return nil, err
		}
		out := map[string]*poolv1.PoolNodeComponents{}
		for _, n := range res.Nodes {
			out[n.NodeId] = n
		}
		return out, nil
	}
	var was map[string]*poolv1.PoolNodeComponents
	if err := b.until(ctx, "all nodes say what they consist of", func() (ok bool, err error) { // who has just joined has not yet
		was, err = list(ctx)
		return err == nil && !slices.ContainsFunc(b.nodes, func(n *poolv1.PoolNode) bool { return len(was[n.NodeId].GetComponents()) == 0 }), err
	}); err != nil {
		return err
	}
	var all []string
	for _, n := range b.nodes {
		x := was[n.NodeId]
		if len(x.GetComponents()) != 3 || slices.ContainsFunc(x.Components, func(c *poolv1.PoolComponent) bool { return c.Version == "" }) || !x.Online {
			return fmt.Errorf("node %s has the components %v", n.NodeId, x)
		}
		all = append(all, n.NodeId)
	}
	configure := func(ctx context.Context, c *poolv1.PoolConfig, nodes ...string) error {
		if _, err := b.Operation.ConfigurePoolNodes(ctx, &poolv1.ConfigurePoolNodesRequest{NodeIds: nodes, Config: c}); err != nil {
			return err
		}
		return b.until(ctx, fmt.Sprintf("%v have taken their configuration", nodes), func() (bool, error) {
			now, err := list(ctx)
			return err == nil && !slices.ContainsFunc(nodes, func(id string) bool {
				return now[id].GetAppliedGeneration() != now[id].GetGeneration() || now[id].GetConfig().GetRunLimitSeconds() != c.RunLimitSeconds
			}), err
		})
	}
	for _, id := range all {
		b.later(func(ctx context.Context) error { return configure(ctx, was[id].Config, id) })
	}
	for i, nodes := range [][]string{all[:1], all} {
		if err := configure(ctx, &poolv1.PoolConfig{LogLevel: poolv1.LogLevel_LOG_LEVEL_WARN, RunLimitSeconds: int64(86400 + i)}, nodes...); err != nil {
			return err
		}
	}
	if err := b.look(ctx, "components", all[0]); err != nil {
		return err
	}
	return b.upgrading(ctx, func(sum string) error {
		for _, nodes := range [][]string{all[:1], all} {
			if err := b.upgrade(ctx, sum, false, nodes...); err != nil {
				return err
			}
			now, err := list(ctx)
			if err != nil {
				return err
			}
			for _, id := range nodes {
				if now[id].GetComponents()[0].GetVersion() == was[id].Components[0].Version {
					return fmt.Errorf("node %s has still the version %s", id, was[id].Components[0].Version)
				}
			}
			if err := b.look(ctx, "components", all[0], now[all[0]].Components[0].Version); err != nil {
				return err
			}
		}
		return nil
	})
}

// gray expects that one node is upgraded, and then the platform and another, while
// tasks compute.
func gray(ctx context.Context, b *bench) error {
	if _, _, err := b.two(); err != nil {
		return err
	}
	return b.upgrading(ctx, func(sum string) error {
		if err := b.upgrade(ctx, sum, false, b.nodes[0].NodeId); err != nil {
			return err
		}
		return b.upgrade(ctx, sum, true, b.nodes[1].NodeId)
	})
}

// upgrading has a task compute on each node while something is upgraded to the
// release, and another start after that.
func (b *bench) upgrading(ctx context.Context, do func(sum string) error) error {
	if b.Release == "" {
		return absent{"there is no other program to upgrade to: give one with --release"}
	}
	if out, err := b.Yunhe(ctx, "", nil, "pool", "upgrade", "upload", b.Release).CombinedOutput(); err != nil {
		return fmt.Errorf("upload: %w: %s", err, out)
	}
	sum, err := release.Sum(b.Release)
	if err != nil {
		return err
	}
	var tasks []*task
	for _, n := range b.nodes {
		t, _, err := b.walking(ctx, "--on", n.NodeId, "--compute", "30", "--memory", "64"+mib)
		if err != nil {
			return err
		}
		tasks = append(tasks, t)
	}
	if err := do(sum); err != nil {
		return err
	}
	for _, t := range tasks { // each of its steps was right
		if err := t.end(ctx); err != nil {
			return err
		}
	}
	t, _, err := b.walking(ctx, "--on", b.nodes[0].NodeId, "--compute", "30", "--memory", "64"+mib)
	if err != nil {
		return err
	}
	return t.end(ctx)
}

// upgrade upgrades nodes, has that put back later, and waits until it is done.
func (b *bench) upgrade(ctx context.Context, sum string, platform bool, nodes ...string) error {
	x, err := b.Operation.StartPoolUpgrade(ctx, &poolv1.StartPoolUpgradeRequest{Sha256: sum, NodeIds: nodes, Platform: platform})
	if platform && connect.CodeOf(err) == connect.CodeInvalidArgument {
		return absent{err.Error()}
	}
	if err != nil {
		return err
	}
	reach := func(ctx context.Context, want poolv1.PoolUpgrade_State) error {
		return b.until(ctx, fmt.Sprintf("upgrade %s is %v", x.UpgradeId, want), func() (bool, error) {
			res, err := b.Operation.ListPoolUpgrades(ctx, &poolv1.ListPoolUpgradesRequest{})
			if connect.CodeOf(err) == connect.CodeUnavailable {
				return false, nil // the platform is upgraded
			}
			if err != nil {
				return false, err
			}
			for _, u := range res.Upgrades {
				if u.UpgradeId == x.UpgradeId && u.Reason != "" && want == poolv1.PoolUpgrade_STATE_DONE {
					return false, fmt.Errorf("upgrade %s: %s", x.UpgradeId, u.Reason)
				} else if u.UpgradeId == x.UpgradeId {
					return u.State == want, nil
				}
			}
			return false, fmt.Errorf("upgrade %s is not listed", x.UpgradeId)
		})
	}
	b.later(func(ctx context.Context) error {
		if _, err := b.Operation.ChangePoolUpgrade(ctx, &poolv1.ChangePoolUpgradeRequest{UpgradeId: x.UpgradeId, Action: poolv1.ChangePoolUpgradeRequest_ACTION_ROLL_BACK}); err != nil {
			return err
		}
		return reach(ctx, poolv1.PoolUpgrade_STATE_ROLLED_BACK)
	})
	return reach(ctx, poolv1.PoolUpgrade_STATE_DONE)
}

// reported expects that what a task used is counted, and that the reports on
// resources, tasks and operation are written.
func reported(ctx context.Context, b *bench) error {
	used := func() (device, group int64, err error) {
		st, err := b.Operation.GetPoolStatistics(ctx, &poolv1.GetPoolStatisticsRequest{})
		of := func(list []*poolv1.PoolUse, name string) int64 {
			i := slices.IndexFunc(list, func(u *poolv1.PoolUse) bool { return u.Name == name })
			if i < 0 {
				return 0
			}
			return list[i].SliceSeconds
		}
		return of(st.GetDevices(), b.first()), of(st.GetGroups(), b.name), err
	}
	device, group, err := used()
	if err != nil {
		return err
	}
	t, _, err := b.walking(ctx, "--on", b.first(), "--compute", "30", "--memory", "64"+mib)
	if err != nil {
		return err
	}
	if err := b.until(ctx, "use is counted", func() (bool, error) {
		d, g, err := used()
		return d > device && g > group, err
	}); err != nil {
		return err
	}
	if err := t.end(ctx); err != nil {
		return err
	}
	begins := map[poolv1.ExportPoolReportRequest_Format]string{poolv1.ExportPoolReportRequest_FORMAT_CSV: "", poolv1.ExportPoolReportRequest_FORMAT_HTML: "<!doctype html>", poolv1.ExportPoolReportRequest_FORMAT_PDF: "%PDF-"}
	says := map[poolv1.ExportPoolReportRequest_Kind]string{poolv1.ExportPoolReportRequest_KIND_RESOURCES: b.first(), poolv1.ExportPoolReportRequest_KIND_TASKS: b.name, poolv1.ExportPoolReportRequest_KIND_OPERATION: time.Now().UTC().Format("2006-01-02")}
	for kind, want := range says {
		for format, begin := range begins {
			file, err := b.Operation.ExportPoolReport(ctx, &poolv1.ExportPoolReportRequest{Kind: kind, Format: format})
			if err != nil {
				return err
			}
			if !strings.HasPrefix(string(file.Content), begin) || !strings.Contains(string(file.Content), want) {
				return fmt.Errorf("%v as %v lacks %q", kind, format, want)
			}
		}
	}
	return b.look(ctx, "statistics", b.first())
}
