package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// Policies as data by the command line alone, against the real platform: from
// a file to rolling back, the next job following it each time.
func TestPolicyCommands(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	a.Join(t, apptest.Center{ID: "near", Region: "north", Prices: map[string]int64{"small": 900}, Performance: 2000, Play: apptest.Succeed})
	a.Join(t, apptest.Center{ID: "far", Region: "south", Prices: map[string]int64{"small": 100}, Performance: 500, Play: apptest.Succeed})
	work := t.TempDir()
	run := func(args ...string) (string, int) {
		var o, e bytes.Buffer
		c := newCLI()
		c.in, c.out, c.err = strings.NewReader(""), &o, &e
		c.env = func(name string) string {
			return map[string]string{"YUNHE_SERVER": a.URL(), "YUNHE_KEY": a.Admin.Key, "YUNHE_CONFIG": filepath.Join(work, "config.yaml")}[name]
		}
		status := c.run(t.Context(), args)
		return o.String() + e.String(), status
	}
	want := func(status int, pattern string, args ...string) string {
		t.Helper()
		got, code := run(args...)
		if !regexp.MustCompile(`(?s)`+pattern).MatchString(got) || code != status {
			t.Errorf("yunhe %s: exit %d, want %d and %s, got:\n%s", strings.Join(args, " "), code, status, pattern, got)
		}
		return got
	}
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(work, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	follows := func(center, policy string) {
		t.Helper()
		id := a.Admin.Submit(t, apptest.Job("next", 1))
		a.Admin.Await(t, id, "ended", func(j *jobsv1.Job) bool { return j.EndedAt != nil })
		got, _ := run("job", "explain", id, "-o", "json")
		if !strings.Contains(got, `"policy": "`+policy) || center != "" && !strings.HasPrefix(got[strings.Index(got, `"aiCenterId"`):], `"aiCenterId": "`+center+`"`) {
			t.Errorf("want it at %s by %s:\n%s", center, policy, got)
		}
	}
	gold := file("gold.yaml", `
policy_id: gold
title: Cheap for night work
priority: 10
match_rules:
  - expression: job.priority >= 0 && "small" in job.specs
    description: everyone who waits
rules:
  weights: {lowest-price: 3}
effective_from: 2026-01-01T00:00:00Z
`)
	bad := file("bad.yaml", `
policy_id: gold
match_rules:
  - expression: "true &&\n job.tenat == 'x'"
rules: {weights: {cheapest: 3}}
`)
	want(1, `error  rules.weights.cheapest: there is no built-in policy.*error  match_rules\[0\].expression line 2, column 2: undeclared reference to 'job.tenat'`, "policy", "validate", bad)
	want(1, `unknown field`, "policy", "validate", file("typo.yaml", "policy_id: gold\nrule: {}\n"))
	want(1, `match_rules\[0\].expression: line 2, column 2`, "policy", "create", bad)
	want(0, `valid`, "policy", "validate", gold)
	want(0, `valid.*job.tenant +string.*security_grade`, "policy", "validate", gold, "--variables")
	want(0, `gold  version 1, draft; not in force`, "policy", "create", gold, "--note", "first")
	want(0, `valid`, "policy", "validate", "--policy", "gold")
	job := file("job.yaml", "name: j\ntasks: [{name: t, command: 'true', image_id: base, resource_spec_id: small, replica_number: 1}]\nlabels: {tier: y}\n")
	if got, _ := run("image", "list", "-o", "name"); !strings.Contains(got, "base") {
		job = file("job.yaml", "name: j\ntasks: [{name: t, command: 'true', image_id: "+strings.Fields(got)[0]+", resource_spec_id: small, replica_number: 1}]\nlabels: {tier: y}\n")
	}
	want(0, `With the policy, by gold@1:.*→ Center far.*Now, by balanced`, "policy", "try", "--policy", "gold", "--job", job)
	want(0, `Jobs +0, of which the policy matches 0`, "policy", "simulate", gold)
	want(0, `version 1 in force \(everywhere\)`, "policy", "issue", "gold", "--reason", "night")
	follows("far", "gold@1")
	want(0, `Jobs +1, of which the policy matches 1.*CENTER +NOW`, "policy", "simulate", "--policy", "gold")

	text := want(0, `lowest-price: 3`, "policy", "get", "gold")
	text = text[:strings.Index(text, "version 1")]
	next := file("next.yaml", strings.Replace(text, "lowest-price: 3", "highest-performance: 3", 1))
	want(0, `gold  version 2, draft; version 1 in force`, "policy", "update", next, "--base", "1", "--note", "faster")
	want(1, `has version 2, not 1`, "policy", "update", gold, "--base", "1")
	want(0, `rules.weights.highest-performance +- +3.*rules.weights.lowest-price +3 +-`, "policy", "diff", "gold", "--from", "1")
	test := regexp.MustCompile(`ptest_[0-9A-Z]{26}`).FindString(want(0, `policy gold, running.*a +1 +50%.*b +2 +50%`, "policy", "ab", "start", "gold", "--arm", "1:50", "--arm", "b=2:50%"))
	follows("", "gold@")
	want(0, `waiting_seconds +- +- +not known yet|too few jobs`, "policy", "ab", "status", test)
	want(2, `want VERSION:PERCENT`, "policy", "ab", "start", "gold", "--arm", "1")
	want(0, `gold +running +a=1:50% b=2:50%`, "policy", "ab", "list")
	want(0, `ended, winner b`, "policy", "ab", "end", test, "--winner", "b", "--reason", "faster")
	follows("near", "gold@2")
	want(0, `version 1 in force`, "policy", "rollback", "gold", "--reason", "too dear")
	follows("far", "gold@1")
	want(0, `tenants=physics`, "policy", "issue", "gold", "--version", "1", "--tenant", "physics")
	follows("", "balanced")
	want(0, `POLICY +IN FORCE.*gold +1 +2 +issued +10 +tenants=physics`, "policy", "records", "night", "--issued")
	want(0, `2 +withdrawn.*1 +issued`, "policy", "versions", "gold")
	want(0, `rolled back +1 +admin +too dear`, "policy", "history", "gold")
	want(0, `MODULE +VERSION.*headroom +1 +yes +yes`, "policy", "module", "upload", "headroom", "../../examples/policy-wasm/headroom.wasm")
	want(0, `headroom.*ready`, "policy", "module", "list")
	want(0, `headroom.*ready`, "policy", "module", "restore", "headroom", "--version", "1")
	want(0, `deleted`, "policy", "module", "delete", "headroom", "--version", "1")
	want(1, `is in force; withdraw it first`, "policy", "delete", "gold")
	want(0, `not in force`, "policy", "withdraw", "gold")
	want(0, `gold deleted`, "policy", "delete", "gold", "--reason", "done")
	want(1, `there is no policy gold.*policy records`, "policy", "get", "gold")
}
