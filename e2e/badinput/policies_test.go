package badinput

import (
	"encoding/base64"
	"os"
	"testing"
)

// policyDocument is a policy with every field set.
func policyDocument(id string) object {
	return object{"policy_id": id, "title": "One", "description": "d", "priority": 1, "match_rules": []any{object{"expression": "job.priority >= 0", "description": "d"}},
		"scope": object{"regions": []any{"nowhere"}, "businesses": []any{"b"}, "tenants": []any{"t9"}, "labels": object{"k": "v"}, "centers": []any{"c1"}, "users": []any{"u"}},
		"rules": object{"weights": object{"lowest-price": 1}, "preset": "", "ranking": []any{}, "evaluator": "weighted", "filters": []any{object{"filter_id": "f", "expression": "running < 9", "message": "m"}},
			"scores": []any{object{"score_id": "s", "expression": "", "module": object{"module_id": "m1", "version": 1, "on_failure": 1}}}},
		"combination": 2, "includes": []any{object{"policy_id": "p2", "version": 1}}, "job_weights": 1, "effective_from": "2026-01-01T00:00:00Z", "effective_to": "2099-01-01T00:00:00Z"}
}

func policyModule(tb testing.TB) string {
	tb.Helper()
	b, err := os.ReadFile("../../examples/policy-wasm/headroom.wasm")
	if err != nil {
		tb.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b)
}

// seedPolicies makes a module, policies in force that match nothing, and a
// comparison.
func (p *platform) seedPolicies(tb testing.TB) {
	tb.Helper()
	p.module = policyModule(tb)
	p.must(tb, "POST", "/v1/policy-modules", p.admin, `{"module_id": "m1", "code": "`+p.module+`"}`, nil)
	for _, id := range []string{"p1", "p2", "p3"} {
		const rest = `, "scope": {"tenants": ["t9"]}, "rules": {"weights": {"lowest-price": `
		p.must(tb, "POST", "/v1/policy-records", p.admin, `{"document": {"policy_id": "`+id+`"`+rest+`1}}}}`, nil)
		p.must(tb, "PUT", "/v1/policy-records/"+id, p.admin, `{"policy_id": "`+id+`"`+rest+`2}}}`, nil)
		p.must(tb, "POST", "/v1/policy-records/"+id+"/issue", p.admin, `{"version": 1}`, nil)
	}
	var t struct {
		TestID string `json:"testId"`
	}
	p.must(tb, "POST", "/v1/policy-tests", p.admin, `{"policy_id": "p2", "arms": [{"version": 1, "percent": 50}, {"version": 2, "percent": 50}]}`, &t)
	p.test = t.TestID
}

// policyExample puts into o what fits together.
func (p *platform) policyExample(name string, o object) {
	put(o, object{"document": policyDocument("p4"), "policy_id": "p1", "version": 1, "base_version": 0, "note": "n", "reason": "r", "module_id": "m1", "code": p.module, "job_id": p.job,
		"test_id": p.test, "winner": "", "from": 1, "to": 2, "issued": true, "not_issued": false, "query": "p", "jobs": 10, "scope": object{"regions": []any{}, "businesses": []any{}, "tenants": []any{"t9"},
			"labels": object{}, "centers": []any{}, "users": []any{}}})
	switch name {
	case "UpdatePolicy":
		o["document"] = policyDocument("p1")
	case "ValidatePolicy", "TryPolicy", "SimulatePolicy":
		delete(o, "document") // not together with a stored policy
		delete(o, "job")
	case "StartPolicyTest":
		o["policy_id"], o["arms"] = "p3", []any{object{"name": "a", "version": 1, "percent": 50}, object{"name": "b", "version": 2, "percent": 50}}
	case "DeletePolicy":
		o["policy_id"] = "p9"
	case "DeletePolicyModule":
		o["version"] = 9
	}
}
