package access_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	accessv1 "yunhe.dev/yunhe/gen/yunhe/access/v1"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

func TestAccess(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		for _, c := range []struct {
			name string
			f    func(*testing.T, *apptest.App)
		}{
			{"rules are kept in versions", testVersions},
			{"a rule that cannot be is refused", testRefused},
			{"what a center says is converted when it comes", testConverted},
			{"a record has every field of Table 12", testRecord},
			{"registered resources and nodes are judged", testOthers},
			{"who may what", testCallers},
		} {
			t.Run(c.name, func(t *testing.T) { c.f(t, a) })
		}
	})
}

// do makes a request that must be answered with the status.
func do(t *testing.T, a *apptest.App, method, path string, body, into proto.Message, want int) string {
	t.Helper()
	text := ""
	if body != nil {
		b, err := protojson.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	name, query, _ := strings.Cut(path, "?")
	res := a.Admin.REST(t, method, strings.ReplaceAll(name, ":", "%3A")+"?"+query, text)
	if res.Status != want {
		t.Fatalf("%s %s %s: %d %s, want %d", method, path, text, res.Status, res.Body, want)
	}
	if into != nil {
		if err := protojson.Unmarshal(res.Body, into); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, res.Body)
		}
	}
	return string(res.Body)
}

func rule(id, condition string) *accessv1.AccessRule {
	return &accessv1.AccessRule{RuleId: id, Kind: accessv1.ResourceKind_RESOURCE_KIND_CENTER, Severity: accessv1.Severity_SEVERITY_MAJOR, Condition: condition, Message: "mend it", Enabled: true}
}

func put(t *testing.T, a *apptest.App, r *accessv1.AccessRule, want int) *accessv1.AccessRule {
	t.Helper()
	out := &accessv1.AccessRule{}
	if want != http.StatusOK {
		do(t, a, "PUT", "/v1/access-rules/"+r.RuleId, r, nil, want)
		return nil
	}
	do(t, a, "PUT", "/v1/access-rules/"+r.RuleId, r, out, want)
	return out
}

func report(t *testing.T, a *apptest.App, id string) (*accessv1.AccessReport, map[string]*accessv1.Verdict) {
	t.Helper()
	r := &accessv1.AccessReport{}
	do(t, a, "GET", "/v1/access-reports/"+id, nil, r, 200)
	by := map[string]*accessv1.Verdict{}
	for _, v := range r.Verdicts {
		by[v.RuleId] = v
	}
	return r, by
}

func testVersions(t *testing.T, a *apptest.App) {
	list := &accessv1.ListAccessRulesResponse{}
	do(t, a, "GET", "/v1/access-rules", nil, list, 200)
	if len(list.Rules) < 15 || list.Rules[0].Version != 1 || list.Rules[0].UpdatedBy != "" {
		t.Errorf("rules that come with the program: %v", list.Rules)
	}
	one := put(t, a, rule("v", `region == "a"`), 200)
	if one.Version != 1 || one.Title != "v" || one.UpdatedBy != "admin" {
		t.Errorf("a new rule: %v", one)
	}
	if again := put(t, a, rule("v", `region == "a"`), 200); again.Version != 1 {
		t.Errorf("the same again made version %d", again.Version)
	}
	put(t, a, rule("v", `region == "b"`), 409)
	r := rule("v", `region == "b"`)
	r.Version = 1
	if two := put(t, a, r, 200); two.Version != 2 {
		t.Errorf("replaced: %v", two)
	}
	if two := put(t, a, r, 200); two.Version != 2 {
		t.Errorf("replaced again with the same request: %v", two)
	}
	stale := rule("v", `region == "c"`)
	stale.Version = 1
	put(t, a, stale, 409)
	missing := rule("none", "true")
	missing.Version = 4
	put(t, a, missing, 404)

	do(t, a, "DELETE", "/v1/access-rules/v", nil, nil, 200)
	do(t, a, "DELETE", "/v1/access-rules/v", nil, nil, 404)
	versions := &accessv1.ListAccessVersionsResponse{}
	do(t, a, "GET", "/v1/access-versions?kind=DOCUMENT_KIND_RULE&id=v", nil, versions, 200)
	if len(versions.Versions) != 3 || versions.Versions[0].Body != "" || !json.Valid([]byte(versions.Versions[2].Body)) {
		t.Errorf("versions: %v", versions.Versions)
	}
	back := &accessv1.AccessVersion{}
	req := &accessv1.RestoreAccessVersionRequest{Kind: accessv1.DocumentKind_DOCUMENT_KIND_RULE, Id: "v", Version: 1}
	for range 2 { // the second changes nothing
		do(t, a, "POST", "/v1/access-versions", req, back, 200)
		if back.Version != 4 || !strings.Contains(back.Body, `\"a\"`) {
			t.Errorf("restored: %v", back)
		}
	}
	req.Version = 3 // the deletion
	do(t, a, "POST", "/v1/access-versions", req, nil, 404)
	do(t, a, "GET", "/v1/access-versions?kind=DOCUMENT_KIND_RULE&id=nothing", nil, nil, 404)
	do(t, a, "DELETE", "/v1/access-rules/v", nil, nil, 200)

	// What was deleted stays deleted when the platform starts again, and what
	// was changed stays changed.
	do(t, a, "DELETE", "/v1/access-rules/cloud-version", nil, nil, 200)
	a.Restart()
	do(t, a, "GET", "/v1/access-rules", nil, list, 200)
	for _, r := range list.Rules {
		if r.RuleId == "cloud-version" {
			t.Error("a deleted rule is back after a restart")
		}
	}
}

func testRefused(t *testing.T, a *apptest.App) {
	bad := &accessv1.AccessRule{RuleId: "bad", Kind: accessv1.ResourceKind_RESOURCE_KIND_NODE, Severity: 9, Condition: "nothing_such == 1", Known: "1 + 1", Applies: "(", Title: strings.Repeat("x", 200)}
	body := do(t, a, "PUT", "/v1/access-rules/bad", bad, nil, 400)
	for _, path := range []string{"rule.severity", "rule.condition", "rule.known", "rule.applies", "rule.title"} {
		if !strings.Contains(body, path) {
			t.Errorf("not all that is wrong is named: %s misses %s", body, path)
		}
	}
	do(t, a, "GET", "/v1/access-reports/center:none", nil, nil, 404)
	do(t, a, "GET", "/v1/access-records/center:none", nil, nil, 404)
	do(t, a, "GET", "/v1/access-reports?status=COMPLIANCE_UNKNOWN&page_token=xx", nil, nil, 400)
}

func testConverted(t *testing.T, a *apptest.App) {
	c := &accessv1.Conversion{ConversionId: "bj", Source: "gateway", Field: accessv1.Field_FIELD_REGION, Match: "Peking|cn-bj-[0-9]", Replace: "beijing", Enabled: true}
	do(t, a, "PUT", "/v1/access-conversions/bj", c, nil, 200)
	out := &accessv1.TestConversionResponse{}
	try := &accessv1.TestConversionRequest{Source: "gateway", Items: []*accessv1.ConversionItem{
		{Field: accessv1.Field_FIELD_REGION, Value: "cn-bj-3"}, {Field: accessv1.Field_FIELD_REGION, Value: "elsewhere"}, {Field: accessv1.Field_FIELD_RESOURCE, Value: "memMB", Amount: 3}},
		Conversion: &accessv1.Conversion{ConversionId: "new", Field: accessv1.Field_FIELD_RESOURCE, Match: "memMB", Replace: "memory", Times: 1 << 20}}
	do(t, a, "POST", "/v1/access-conversion-tests", try, out, 200)
	if r := out.Results; len(r) != 3 || r[0].Output.Value != "beijing" || r[0].ConversionId != "bj" || r[1].ConversionId != "" || r[1].Output.Value != "elsewhere" ||
		r[2].ConversionId != "new" || r[2].Output.Value != "memory" || r[2].Output.Amount != 3<<20 {
		t.Errorf("test of conversions: %v", r)
	}
	f := a.Join(t, apptest.Center{ID: "c-conv", Region: "cn-bj-7"})
	k, err := a.Access.Report(t.Context(), "center:c-conv")
	if err != nil {
		t.Fatal(err)
	}
	region := func() string {
		cat, err := a.Registry.Catalog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return cat.Centers["c-conv"].Region
	}
	if k == nil || region() != "beijing" {
		t.Errorf("region %q, want beijing", region())
	}
	// A node, too.
	if err := f.Ask("heartbeat", &adapterv1.HeartbeatRequest{Inventory: f.Inventory(), Node: &adapterv1.Node{Name: "n1", State: adapterv1.NodeState_NODE_STATE_READY, Architecture: "x86_64",
		Capacity: map[string]int64{"cpu": 4000, "memory": 8 << 30}}}, &adapterv1.HeartbeatResponse{}); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Registry.GetNode(t.Context(), "c-conv", "n1"); err != nil || n.Architecture != "amd64" {
		t.Errorf("architecture %q, %v, want amd64", n.Architecture, err)
	}
	// A conversion whose result the registry does not take loses nothing.
	wrong := &accessv1.Conversion{ConversionId: "wrong", Source: "gateway", Priority: -5, Field: accessv1.Field_FIELD_RESOURCE, Match: "cpu", Replace: "no/such//name!", Enabled: true}
	do(t, a, "PUT", "/v1/access-conversions/wrong", wrong, nil, 200)
	inv := f.Inventory()
	inv.SecurityGrade = 2
	if err := f.Ask("heartbeat", &adapterv1.HeartbeatRequest{Inventory: inv}, &adapterv1.HeartbeatResponse{}); err != nil {
		t.Fatalf("an inventory was lost: %v", err)
	}
	cat, err := a.Registry.Catalog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if k := cat.Centers["c-conv"]; k.SecurityGrade != 2 || k.Total["cpu"] == 0 && k.Total["no/such//name!"] == 0 {
		t.Errorf("after a wrong conversion: %+v", k)
	}
	do(t, a, "DELETE", "/v1/access-conversions/wrong", nil, nil, 200)
}

func testRecord(t *testing.T, a *apptest.App) {
	f := a.Join(t, apptest.Center{ID: "c-record", Region: "r"})
	measured := &adapterv1.Measurement{CpuBusyPermille: 250, MemoryBusyBytes: 1, MemoryTotalBytes: 4,
		Storage: &adapterv1.StorageUse{Reads: 7}, Network: &adapterv1.NetworkUse{SentBytes: 9}, Paths: []*adapterv1.Path{{Peer: "platform", LatencyMicroseconds: 30_000}}}
	if err := f.Ask("heartbeat", &adapterv1.HeartbeatRequest{Measurement: measured}, &adapterv1.HeartbeatResponse{}); err != nil {
		t.Fatal(err)
	}
	r := &accessv1.AccessRecord{}
	apptest.Until(t, "the figures are stored", func() bool {
		proto.Reset(r)
		do(t, a, "GET", "/v1/access-records/center:c-record", nil, r, 200)
		if r.StorageMetrics.GetReads() != 7 { // the intake takes one in five seconds
			_ = f.Ask("heartbeat", &adapterv1.HeartbeatRequest{Measurement: measured}, &adapterv1.HeartbeatResponse{})
		}
		return r.StorageMetrics.GetReads() == 7 && r.NetworkMetrics.GetSentBytes() == 9 && len(r.Paths) == 1
	})
	if r.ResourceType != "center" || r.SourceType != accessv1.SourceType_SOURCE_TYPE_MACHINE || r.ProtocolType != "nats" || r.Plugin != "gateway" || r.PluginVersion != "fake" ||
		r.HealthStatus != accessv1.Health_HEALTH_HEALTHY || r.ComplianceStatus != accessv1.Compliance_COMPLIANCE_COMPLIANT || r.SyncedAt == nil || r.ClassId != "general" ||
		r.GuideFlowId != "/connect?plugin=gateway" || len(r.ConversionConfig) < 10 || r.Paths[0].GetLatencySeconds() != 0.03 {
		t.Errorf("record: %v", r)
	}
	var steps []string
	for _, st := range r.AuditLog {
		steps = append(steps, st.Step)
	}
	text := strings.Join(steps, " ")
	for _, want := range []string{"join_token", "joined", "connected"} {
		if !strings.Contains(text, want) {
			t.Errorf("steps %q lack %s", text, want)
		}
	}
	f.Disconnect()
	do(t, a, "DELETE", "/v1/gateways/c-record", nil, nil, 200)
	do(t, a, "GET", "/v1/access-records/center:c-record", nil, r, 200)
	if r.AuditLog[0].Step != "removed" || r.AuditLog[0].UserId != "admin" || r.HealthStatus != accessv1.Health_HEALTH_UNREACHABLE {
		t.Errorf("after its gateway was removed: %v, %v", r.HealthStatus, r.AuditLog[0])
	}
	list := &accessv1.ListAccessRecordsResponse{}
	do(t, a, "GET", "/v1/access-records?page_size=1", nil, list, 200)
	if len(list.Records) != 1 || list.NextPageToken == "" || list.Records[0].AuditLog != nil {
		t.Errorf("a page of records: %v", list)
	}
	seen := map[string]bool{}
	for token := ""; ; {
		do(t, a, "GET", "/v1/access-records?page_size=1&page_token="+token, nil, list, 200)
		for _, r := range list.Records {
			if seen[r.ResourceId] {
				t.Errorf("%s is listed twice", r.ResourceId)
			}
			seen[r.ResourceId] = true
		}
		if token = list.NextPageToken; token == "" {
			break
		}
	}
	if !seen["center:c-record"] {
		t.Errorf("pages list %v", seen)
	}
}

func testOthers(t *testing.T, a *apptest.App) {
	for _, x := range []struct{ id, endpoint string }{{"cloud-a", "https://a.example"}, {"cloud-b", "http://b.example"}} {
		body := fmt.Sprintf(`{"resource_id":%q,"type":"cloud","name":"Cloud","service_provider":"p","attributes":{"cloud_platform_type":"public","endpoint":%q}}`, x.id, x.endpoint)
		if res := a.Admin.REST(t, "POST", "/v1/resources", body); res.Status != 200 {
			t.Fatalf("register: %d %s", res.Status, res.Body)
		}
	}
	if r, by := report(t, a, "cloud-b"); r.Status != accessv1.Compliance_COMPLIANCE_NON_COMPLIANT || by["resource-endpoint"].GetStatus() != accessv1.Compliance_COMPLIANCE_NON_COMPLIANT || by["resource-endpoint"].GetObserved() == "" {
		t.Errorf("an open interface: %v", r)
	}
	if _, by := report(t, a, "cloud-a"); by["resource-endpoint"].GetStatus() != accessv1.Compliance_COMPLIANCE_COMPLIANT {
		t.Errorf("an encrypted interface: %v", by["resource-endpoint"])
	}
	r := &accessv1.AccessRecord{}
	do(t, a, "GET", "/v1/access-records/cloud-a", nil, r, 200)
	if r.ResourceType != "cloud" || r.SourceType != accessv1.SourceType_SOURCE_TYPE_PUBLIC_CLOUD || r.ProtocolType != "https" || len(r.AuditLog) == 0 || r.AuditLog[0].Step != "registered" {
		t.Errorf("record of a cloud: %v", r)
	}
	if res := a.Admin.REST(t, "POST", "/v1/resource-batches", `{"resources":[{"resource_id":"cloud-c","type":"cloud","name":"Cloud","service_provider":"p","attributes":{"cloud_platform_type":"edge"}}]}`); res.Status != 200 {
		t.Fatalf("apply: %d %s", res.Status, res.Body)
	}
	r = &accessv1.AccessRecord{}
	do(t, a, "GET", "/v1/access-records/cloud-c", nil, r, 200)
	if len(r.AuditLog) != 1 || r.AuditLog[0].Step != "registered" || r.AuditLog[0].At.AsTime() != r.CreatedAt.AsTime() {
		t.Errorf("log of what was registered with others: %v", r.AuditLog)
	}
	if _, by := report(t, a, "node:c-conv:n1"); by["node-architecture"].GetStatus() != accessv1.Compliance_COMPLIANCE_COMPLIANT {
		t.Errorf("a node: %v", by)
	}
	do(t, a, "GET", "/v1/access-records/node:c-conv:n1", nil, nil, 404)
	apptest.Until(t, "the loop has judged everything", func() bool {
		s := &accessv1.AccessSummary{}
		do(t, a, "GET", "/v1/access-summary", nil, s, 200)
		return s.EvaluatedAt != nil && len(s.Kinds) == 3 && s.Kinds[0].Compliant+s.Kinds[0].NonCompliant+s.Kinds[0].Unknown > 0
	})
	// By pages of one, each record is in the list of its compliance and in no other.
	pages := func(compliance accessv1.Compliance) map[string]bool {
		ids, list := map[string]bool{}, &accessv1.ListAccessRecordsResponse{}
		for token := ""; ; {
			do(t, a, "GET", fmt.Sprintf("/v1/access-records?page_size=1&compliance=%d&page_token=%s", compliance, token), nil, list, 200)
			for _, r := range list.Records {
				if ids[r.ResourceId] || compliance != 0 && r.ComplianceStatus != compliance {
					t.Errorf("%s is %v and listed twice or as %v", r.ResourceId, r.ComplianceStatus, compliance)
				}
				ids[r.ResourceId] = true
			}
			if token = list.NextPageToken; token == "" {
				return ids
			}
		}
	}
	apptest.Until(t, "records are listed by their compliance", func() bool {
		all, n := pages(0), 0
		by := map[accessv1.Compliance]map[string]bool{}
		for c := range accessv1.Compliance(4) {
			by[c] = pages(c)
			n += len(by[c])
		}
		return n == 2*len(all) && all["cloud-a"] && !by[accessv1.Compliance_COMPLIANCE_NON_COMPLIANT]["cloud-a"] && by[accessv1.Compliance_COMPLIANCE_NON_COMPLIANT]["cloud-b"]
	})
	apptest.Until(t, "the summary counts what the reports say", func() bool {
		s, reports := &accessv1.AccessSummary{}, &accessv1.ListAccessReportsResponse{}
		do(t, a, "GET", "/v1/access-summary", nil, s, 200)
		do(t, a, "GET", "/v1/access-reports?page_size=1000", nil, reports, 200)
		count := map[string]int64{}
		for _, r := range reports.Reports {
			count[fmt.Sprint(r.Kind, r.Status)]++
			for _, v := range r.Verdicts {
				count[fmt.Sprint(v.RuleId, v.Status)]++
			}
		}
		same := func(of any, compliant, non, unknown int64) bool {
			return compliant == count[fmt.Sprint(of, accessv1.Compliance_COMPLIANCE_COMPLIANT)] && non == count[fmt.Sprint(of, accessv1.Compliance_COMPLIANCE_NON_COMPLIANT)] &&
				unknown == count[fmt.Sprint(of, accessv1.Compliance_COMPLIANCE_UNKNOWN)]
		}
		for _, k := range s.Kinds {
			if !same(k.Kind, k.Compliant, k.NonCompliant, k.Unknown) {
				return false
			}
		}
		for _, r := range s.Rules {
			if !same(r.Rule.RuleId, r.Compliant, r.NonCompliant, r.Unknown) {
				return false
			}
		}
		return len(reports.Reports) > 3
	})
	classes := &accessv1.ListAccessClassesResponse{}
	do(t, a, "GET", "/v1/access-classes", nil, classes, 200)
	if len(classes.Classes) != 4 || classes.Classes[3].ClassId != "general" || len(classes.Classes[1].Protocols) == 0 {
		t.Errorf("classes: %v", classes)
	}
}

func testCallers(t *testing.T, a *apptest.App) {
	u := a.User(t, "t-access", "u-access", identityv1.Role_ROLE_USER)
	for _, path := range []string{"/v1/access-records", "/v1/access-summary", "/v1/access-rules"} {
		if res := u.REST(t, "GET", path, ""); res.Status != 403 {
			t.Errorf("a user reads %s: %d", path, res.Status)
		}
	}
	o := a.User(t, "t-access", "o-access", identityv1.Role_ROLE_AUDITOR)
	if res := o.REST(t, "GET", "/v1/access-records", ""); res.Status != 200 {
		t.Errorf("an auditor reads records: %d %s", res.Status, res.Body)
	}
	if res := o.REST(t, "PUT", "/v1/access-settings", `{"enforce":true}`); res.Status != 403 {
		t.Errorf("an auditor turns the switch: %d", res.Status)
	}
}

// With the switch on, a center that does not meet the conditions takes no new
// work, and the job's owner reads why; what is mended takes it at once.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		c := a.Join(t, apptest.Center{ID: "c-held", Region: "r", Play: apptest.Succeed})
		strict := put(t, a, rule("strict", "security_grade >= 3"), 200)
		apptest.Until(t, "the loop finds that the center does not comply", func() bool {
			list := &accessv1.ListAccessReportsResponse{}
			do(t, a, "GET", "/v1/access-reports?status=COMPLIANCE_NON_COMPLIANT&kind=RESOURCE_KIND_CENTER", nil, list, 200)
			return len(list.Reports) == 1 && list.Reports[0].ResourceId == "center:c-held"
		})
		// Off by default: work goes there.
		a.Admin.AwaitState(t, a.Admin.Submit(t, c.Pin(apptest.Job("free", 1))), jobsv1.State_STATE_SUCCEEDED)
		do(t, a, "PUT", "/v1/access-settings", &accessv1.AccessSettings{Enforce: true}, nil, 200)
		apptest.Until(t, "the switch is seen", func() bool { held, err := a.Access.Held(t.Context()); return err == nil && held["c-held"] != "" })
		id := a.Admin.Submit(t, c.Pin(apptest.Job("held", 1)))
		apptest.Until(t, "the job says why it waits", func() bool {
			res := a.Admin.REST(t, "GET", "/v1/jobs/"+id+"/explain", "")
			return res.Status == 200 && strings.Contains(string(res.Body), "conditions of access: strict")
		})
		if n := len(c.Of(id, 0)); n != 0 {
			t.Errorf("%d replicas were sent to a center that is held back", n)
		}
		// Off again is on again for work.
		strict.Enabled = false
		put(t, a, strict, 200)
		a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
		r, by := report(t, a, "center:c-held")
		if by["strict"] != nil {
			t.Errorf("a rule that is off is judged: %v", r)
		}
	})
}
