package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	noticesv1 "yunhe.dev/yunhe/gen/yunhe/notices/v1"
	"yunhe.dev/yunhe/gen/yunhe/notices/v1/noticesv1connect"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
)

// fakePoolOps has two nodes, of which one takes its configuration at once.
type fakePoolOps struct {
	poolv1connect.UnimplementedPoolOperationServiceHandler

	mu    sync.Mutex // guards what follows
	nodes []*poolv1.PoolNodeComponents
	rules []*poolv1.PoolAlarmRule

	parts    []byte // of the release that is uploaded
	releases []*poolv1.PoolRelease
	upgrades []*poolv1.PoolUpgrade
}

func newFakePoolOps() *fakePoolOps {
	parts := []*poolv1.PoolComponent{{Kind: poolv1.PoolComponent_KIND_NODE, Version: "v1.2.3", Running: 1}, {Kind: poolv1.PoolComponent_KIND_WORKER, Version: "0123456789ab", Running: 3}, {Kind: poolv1.PoolComponent_KIND_LIBRARY, Version: "ba9876543210"}}
	return &fakePoolOps{
		nodes: []*poolv1.PoolNodeComponents{{NodeId: "n1", Online: true, Components: parts, Config: &poolv1.PoolConfig{}}, {NodeId: "n2", Config: &poolv1.PoolConfig{}}},
		rules: []*poolv1.PoolAlarmRule{{Kind: poolv1.PoolAlarmRule_KIND_NODE_OFFLINE, Enabled: true, Threshold: 15, Severity: 2}, {Kind: poolv1.PoolAlarmRule_KIND_DEVICE_GONE, Enabled: true, Severity: 3}, {Kind: poolv1.PoolAlarmRule_KIND_COMPUTE_FULL, Threshold: 95, Severity: 1}},
	}
}

func (f *fakePoolOps) SearchPoolLogs(_ context.Context, r *poolv1.SearchPoolLogsRequest) (*poolv1.SearchPoolLogsResponse, error) {
	all := []*poolv1.PoolLogEntry{
		{LogId: "log_2", At: fakeTime(time.Minute), Level: poolv1.LogLevel_LOG_LEVEL_WARN, Source: "n1", Message: "program ended", NodeId: "n1", DeviceId: "opencl-0", SliceId: "slice_01", UserId: "ann", Details: `error="exit status 1"`},
		{LogId: "log_1", At: fakeTime(time.Hour), Level: poolv1.LogLevel_LOG_LEVEL_INFO, Source: "platform", Message: "slice requested", SliceId: "slice_01", UserId: "ann", Details: "compute_percent=30"},
	}
	return &poolv1.SearchPoolLogsResponse{Entries: slices.DeleteFunc(all, func(e *poolv1.PoolLogEntry) bool { return e.Level < r.Level || !strings.Contains(e.Message, r.Text) })}, nil
}

func (f *fakePoolOps) ExportPoolLogs(_ context.Context, r *poolv1.ExportPoolLogsRequest) (*poolv1.PoolFile, error) {
	return &poolv1.PoolFile{Name: "log", Content: []byte("time,level\n" + r.NodeId + "\n")}, nil
}

func (f *fakePoolOps) ListPoolComponents(context.Context, *poolv1.ListPoolComponentsRequest) (*poolv1.ListPoolComponentsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &poolv1.ListPoolComponentsResponse{Nodes: f.nodes}, nil
}

func (f *fakePoolOps) ConfigurePoolNodes(_ context.Context, r *poolv1.ConfigurePoolNodesRequest) (*poolv1.ListPoolComponentsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &poolv1.ListPoolComponentsResponse{}
	for _, n := range f.nodes {
		if slices.Contains(r.NodeIds, n.NodeId) {
			if n.Config == nil {
				n.Config = &poolv1.PoolConfig{}
			}
			if x := r.Change.LogLevel; x != nil {
				n.Config.LogLevel = *x
			}
			if x := r.Change.IdleLimitSeconds; x != nil {
				n.Config.IdleLimitSeconds = *x
			}
			if x := r.Change.RunLimitSeconds; x != nil {
				n.Config.RunLimitSeconds = *x
			}
			n.Generation++
			if n.Online {
				n.AppliedGeneration = n.Generation
			}
			res.Nodes = append(res.Nodes, n)
		}
	}
	return res, nil
}

func (f *fakePoolOps) UploadPoolRelease(_ context.Context, r *poolv1.UploadPoolReleaseRequest) (*poolv1.UploadPoolReleaseResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts = append(f.parts, r.Content...)
	res := &poolv1.UploadPoolReleaseResponse{Received: int64(len(f.parts))}
	if res.Received == r.Bytes {
		res.Release = &poolv1.PoolRelease{Sha256: r.Sha256, Version: r.Version, Bytes: r.Bytes, UploadedAt: fakeTime(time.Minute)}
		f.releases, f.parts = append(f.releases, res.Release), nil
	}
	return res, nil
}

func (f *fakePoolOps) ListPoolReleases(context.Context, *poolv1.ListPoolReleasesRequest) (*poolv1.ListPoolReleasesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &poolv1.ListPoolReleasesResponse{Releases: f.releases}, nil
}

func (f *fakePoolOps) StartPoolUpgrade(_ context.Context, r *poolv1.StartPoolUpgradeRequest) (*poolv1.PoolUpgrade, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := &poolv1.PoolUpgrade{UpgradeId: "upg_1", State: poolv1.PoolUpgrade_STATE_RUNNING, Release: f.releases[0]}
	ids := r.NodeIds
	if r.Platform {
		ids = append(ids, "")
	}
	for _, id := range ids {
		x.Nodes = append(x.Nodes, &poolv1.PoolUpgrade_Node{NodeId: id, State: poolv1.PoolUpgrade_Node_STATE_WAITING, FromVersion: "v1.2.3"})
	}
	f.upgrades = append(f.upgrades, x)
	return x, nil
}

func (f *fakePoolOps) ListPoolUpgrades(context.Context, *poolv1.ListPoolUpgradesRequest) (*poolv1.ListPoolUpgradesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &poolv1.ListPoolUpgradesResponse{Upgrades: f.upgrades}, nil
}

func (f *fakePoolOps) ChangePoolUpgrade(_ context.Context, r *poolv1.ChangePoolUpgradeRequest) (*poolv1.PoolUpgrade, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.upgrades[0]
	x.State = map[poolv1.ChangePoolUpgradeRequest_Action]poolv1.PoolUpgrade_State{poolv1.ChangePoolUpgradeRequest_ACTION_STOP: poolv1.PoolUpgrade_STATE_STOPPED, poolv1.ChangePoolUpgradeRequest_ACTION_ROLL_BACK: poolv1.PoolUpgrade_STATE_ROLLING_BACK}[r.Action]
	x.Nodes[0].State, x.Nodes[0].Reason = poolv1.PoolUpgrade_Node_STATE_FAILED, "it finds no devices"
	return x, nil
}

func (f *fakePoolOps) ListPoolAlarmRules(context.Context, *poolv1.ListPoolAlarmRulesRequest) (*poolv1.ListPoolAlarmRulesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &poolv1.ListPoolAlarmRulesResponse{Rules: f.rules}, nil
}

func (f *fakePoolOps) SetPoolAlarmRule(_ context.Context, r *poolv1.SetPoolAlarmRuleRequest) (*poolv1.PoolAlarmRule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules[r.Kind-1] = r.Rule
	return r.Rule, nil
}

func (f *fakePoolOps) ExportPoolReport(_ context.Context, r *poolv1.ExportPoolReportRequest) (*poolv1.PoolFile, error) {
	return &poolv1.PoolFile{Name: "report", Content: []byte(r.Kind.String() + "," + r.Language + "\n")}, nil
}

// fakeNotices has one notice, and keeps its settings.
type fakeNotices struct {
	noticesv1connect.UnimplementedNoticeServiceHandler

	mu       sync.Mutex // guards settings
	settings *noticesv1.NoticeSettings
}

func (f *fakeNotices) ListNotices(context.Context, *noticesv1.ListNoticesRequest) (*noticesv1.ListNoticesResponse, error) {
	return &noticesv1.ListNoticesResponse{Unread: 1, Notices: []*noticesv1.Notice{{NoticeId: "note_1", AlarmId: "alm_1", Severity: 2, Message: "pool node n2 has been offline", At: fakeTime(time.Minute)}}}, nil
}

func (f *fakeNotices) GetNoticeSettings(context.Context, *noticesv1.GetNoticeSettingsRequest) (*noticesv1.NoticeSettings, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.settings == nil {
		f.settings = &noticesv1.NoticeSettings{InSite: true, Severity: 1}
	}
	return f.settings, nil
}

func (f *fakeNotices) SetNoticeSettings(_ context.Context, r *noticesv1.SetNoticeSettingsRequest) (*noticesv1.NoticeSettings, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settings = r.Settings
	return f.settings, nil
}

func (f *fakeNotices) ListMails(context.Context, *noticesv1.ListMailsRequest) (*noticesv1.ListMailsResponse, error) {
	return &noticesv1.ListMailsResponse{Mails: []*noticesv1.Mail{{MailId: "mail_1", Recipients: []string{"ops@example.org"}, Subject: "[Yunhe] major: pool node n2 has been offline", State: noticesv1.Mail_STATE_SENT, Attempts: 1, CreatedAt: fakeTime(time.Minute)}}}, nil
}

func (f *fakeNotices) TryMail(context.Context, *noticesv1.TryMailRequest) (*noticesv1.TryMailResponse, error) {
	return &noticesv1.TryMailResponse{}, nil
}
