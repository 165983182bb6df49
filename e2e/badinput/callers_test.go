package badinput

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// routes returns every path of /openapi.json with its verbs, parameters filled
// with value.
func (p *platform) routes(t *testing.T, value string) []request {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	p.must(t, "GET", "/openapi.json", "", "", &doc)
	var out []request
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, verb := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			filled := path
			for strings.Contains(filled, "{") {
				i, k := strings.IndexByte(filled, '{'), strings.IndexByte(filled, '}')
				filled = filled[:i] + value + filled[k+1:]
			}
			if verb = strings.ToUpper(verb); slices.Contains([]string{"GET", "POST", "PUT", "PATCH", "DELETE"}, verb) {
				r := request{verb: verb, path: filled, reads: verb == "GET"}
				if verb != "GET" && verb != "DELETE" {
					r.body = []byte("{}")
				}
				out = append(out, r)
			}
		}
	}
	if len(out) < 40 {
		t.Fatalf("/openapi.json describes %d calls, want at least 40", len(out))
	}
	return out
}

// public reports whether a path asks for no key.
func public(path string) bool {
	return slices.Contains([]string{"/v1/join", "/v1/pool/join", "/v1/pool/report", "/v1/pool/tell", "/v1/pool/releases/fetch"}, path) ||
		strings.HasPrefix(path, "/v1/logs/") || strings.HasPrefix(path, "/v1/gangs/") // links that are signed
}

// TestCredentials calls everything with credentials that are none.
func TestCredentials(t *testing.T) {
	t.Parallel()
	p := start(t, "")
	revoked := p.newKey(t, "alice", 0)
	var me struct{ KeyID string }
	p.must(t, "GET", "/v1/whoami", revoked, "", &me)
	p.must(t, "DELETE", "/v1/keys/"+me.KeyID, p.alice, "", nil)
	expired := p.newKey(t, "alice", 1)
	for p.call(t, "GET", "/v1/whoami", expired, nil, nil).status != http.StatusUnauthorized {
	}
	headers := map[string]string{
		"none": "", "empty": "Bearer ", "garbage": "Bearer garbage", "another scheme": "Basic YWRtaW46YWRtaW4=", "no scheme": p.admin, "revoked": "Bearer " + revoked,
		"expired": "Bearer " + expired, "cut short": "Bearer " + p.admin[:len(p.admin)-1], "longer": "Bearer " + p.admin + "x", "another secret": "Bearer " + flip(p.admin),
		"huge": "Bearer " + strings.Repeat("a", 30000), "hostile": "Bearer ' OR '1'='1", "not UTF-8": "Bearer \xff\xfe",
	}
	w := watch(t, p)
	for name, header := range headers {
		calls := p.routes(t, "x")
		for _, m := range methods(t) {
			if m.permission != "public" {
				calls = append(calls, connectRequest(m, p.example(m)))
			}
		}
		for _, r := range calls {
			if public(r.path) {
				continue
			}
			r.header = maps.Clone(r.header)
			if r.header == nil {
				r.header = map[string]string{}
			}
			if r.header["Authorization"] = header; header == "" {
				delete(r.header, "Authorization")
			}
			if f := w.send(t, later(r), ""); f == nil || !strings.EqualFold(f.Code, "unauthenticated") {
				t.Errorf("%s: %v answered %+v, want it unauthenticated", name, r, f)
			}
		}
	}
	if d := diff(w.last, p.state(t)); d != "" {
		t.Errorf("calls without credentials changed %s", d)
	}
}

// flip changes the last character.
func flip(s string) string {
	if strings.HasSuffix(s, "a") {
		return s[:len(s)-1] + "b"
	}
	return s[:len(s)-1] + "a"
}

// TestPermissions calls every method as a user and as an auditor: what they
// may not do is denied, changes nothing and is audited.
func TestPermissions(t *testing.T) {
	t.Parallel()
	p := start(t, "")
	w := watch(t, p)
	for name, token := range map[string]string{"alice": p.alice, "audrey": p.auditor} {
		var me struct{ Permissions []string }
		p.must(t, "GET", "/v1/whoami", token, "", &me)
		denied := 0
		for _, m := range methods(t) {
			if m.permission == "public" || m.permission == "self" || slices.Contains(me.Permissions, m.permission) {
				continue
			}
			for _, r := range both(m, p.example(m)) {
				w.refused(t, r, token, m.permission)
				if strings.HasSuffix(m.permission, ".write") {
					denied++
				}
			}
		}
		var audit struct {
			Events []struct{ Outcome string }
		}
		p.must(t, "GET", "/v1/audit-events?pageSize=1000&userId="+name, p.admin, "", &audit)
		got := 0
		for _, e := range audit.Events {
			if e.Outcome == "PERMISSION_DENIED" {
				got++
			}
		}
		if denied == 0 || got != denied {
			t.Errorf("%s: %d denials are audited, want %d", name, got, denied)
		}
	}
}

// TestOtherTenants asks for what belongs to another tenant: the answer is that
// there is no such thing, word for word as for an ID that never was.
func TestOtherTenants(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p *platform) {
		w := watch(t, p)
		calls := 0
		for _, m := range methods(t) {
			if m.desc.Input().Fields().ByName("job_id") == nil || m.name() == "ListUsage" || m.name() == "ScoreCenter" {
				continue
			}
			const none = "job_00000000000000000000000000"
			for i, r := range both(m, with(p.example(m), []any{"job_id"}, p.bobsJob).(object)) {
				calls++
				theirs := w.send(t, r, p.alice)
				absent := w.send(t, both(m, with(p.example(m), []any{"job_id"}, none).(object))[i], p.alice)
				if theirs == nil || absent == nil || strings.ReplaceAll(theirs.text(), p.bobsJob, none) != absent.text() {
					if theirs != nil && strings.Contains(theirs.text(), "PERMISSION_DENIED") || theirs != nil && theirs.Code == "permission_denied" {
						continue // the role lacks the permission, whoever's job it is
					}
					t.Errorf("%v for another tenant's job: %+v, want what an unknown job answers: %+v", r, theirs, absent)
				}
			}
		}
		for _, path := range []string{"/openapi/v1/trainjob/%s", "/openapi/v1/trainjob/%s/task/0/replica/0/log", "/v1/jobs/%s/events", "/v1/jobs/%s/tasks/0/replicas/0/log"} {
			calls++
			w.refused(t, request{verb: "GET", path: fmt.Sprintf(path, p.bobsJob), reads: true}, p.alice, "NOT_FOUND")
		}
		w.refused(t, request{verb: "POST", path: "/openapi/v1/trainjob/" + p.bobsJob + "/stop"}, p.alice, "NOT_FOUND")
		if calls < 15 {
			t.Errorf("%d calls take a job, want at least 15", calls)
		}
		for _, list := range []string{"/v1/jobs?tenantId=other", "/v1/usage?tenantId=other", "/v1/jobs?userName=bob", "/v1/keys?userId=bob"} {
			a := p.call(t, "GET", list, p.alice, nil, nil)
			if strings.Contains(string(a.body), p.bobsJob) || a.status == http.StatusOK && strings.Contains(string(a.body), `"bob"`) {
				t.Errorf("%s shows another tenant's records: %s", list, a.body)
			}
		}
	})
}

// TestRequestID sends one ID with two bodies.
func TestRequestID(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p *platform) {
		const job = `{"request_id":"once","job":{"name":"%s","tasks":[{"name":"t","command":"true","image_id":"i1","resource_spec_id":"s1","replica_number":1}]}}`
		var first, second struct{ JobID string }
		p.must(t, "POST", "/v1/jobs", p.alice, fmt.Sprintf(job, "one"), &first)
		w := watch(t, p)
		p.must(t, "POST", "/v1/jobs", p.alice, fmt.Sprintf(job, "one"), &second)
		if first != second {
			t.Errorf("the same request made %s and then %s", first.JobID, second.JobID)
		}
		w.refused(t, request{verb: "POST", path: "/v1/jobs", body: fmt.Appendf(nil, job, "two")}, p.alice, "CONFLICT", "request_id")
		var bobs struct{ JobID string }
		p.must(t, "POST", "/v1/jobs", p.bob, fmt.Sprintf(job, "one"), &bobs)
		if bobs == first {
			t.Error("a request ID of one tenant answered another")
		}
	})
}

// TestBodies sends bodies that are too large, too deep or no JSON.
func TestBodies(t *testing.T) {
	t.Parallel()
	p := start(t, "")
	w := watch(t, p)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write([]byte(`{"job":{"name":"`))
	_, _ = z.Write(bytes.Repeat([]byte("a"), 64<<20))
	_, _ = z.Write([]byte(`"}}`))
	_ = z.Close() // a buffer takes everything
	big := append(append([]byte(`{"request_id":"`), bytes.Repeat([]byte("a"), 16<<20)...), `"}`...)
	deep := strings.Repeat(`{"job":`, 20000) + "1" + strings.Repeat("}", 20000)
	for _, path := range []string{"/v1/jobs", "/v1/jobs:batch", "/openapi/v1/trainjob", "/yunhe.jobs.v1.JobService/SubmitJob"} {
		for _, x := range []struct {
			name   string
			body   []byte
			header map[string]string
			words  []string
		}{
			{"over the limit", big, nil, []string{"16777216"}},
			{"gzip bomb", bomb.Bytes(), map[string]string{"Content-Encoding": "gzip"}, nil},
			{"false gzip", []byte("nothing"), map[string]string{"Content-Encoding": "gzip"}, nil},
			{"unknown encoding", []byte("{}"), map[string]string{"Content-Encoding": "zip"}, nil},
			{"empty", []byte(""), nil, nil},
			{"a number", []byte("7"), nil, nil},
			{"a list", []byte("[]"), nil, nil},
			{"null", []byte("null"), nil, nil},
			{"cut short", []byte(`{"job":{"name":`), nil, nil},
			{"two values", []byte(`{} {}`), nil, nil},
			{"binary", []byte{0, 1, 2, 0xff}, nil, nil},
			{"deep", []byte(deep), nil, nil},
			{"deep lists", []byte(strings.Repeat("[", 200000)), nil, nil},
			{"a key twice", []byte(`{"request_id":"a","request_id":"b"}`), nil, nil},
			{"not UTF-8", []byte("{\"request_id\":\"\xc3\x28\"}"), nil, nil},
			{"lone surrogate", []byte(`{"request_id":"\ud800"}`), nil, nil},
			{"another type", []byte("<a/>"), map[string]string{"Content-Type": "text/xml"}, nil},
			{"unknown field", []byte(`{"nosuch":1}`), nil, []string{"nosuch"}},
		} {
			header := map[string]string{}
			if strings.HasPrefix(path, "/yunhe.") {
				header["Connect-Protocol-Version"] = "1"
			}
			maps.Copy(header, x.header)
			t.Run(x.name+path, func(t *testing.T) {
				w.refused(t, request{verb: "POST", path: path, header: header, body: x.body}, p.alice, x.words...)
			})
		}
	}
}

// takesAnyID reports whether a path is right with an ID that nothing has: a
// group of tags and an origin are made by naming them, and whether an identifier
// is one is the question.
func takesAnyID(path string) bool {
	return strings.HasPrefix(path, "/v1/tag-groups/") || strings.HasPrefix(path, "/v1/network/origins/") || strings.HasSuffix(path, "/verification")
}

// TestRoutes calls every described path with IDs that lead elsewhere, with
// verbs it does not have and with parameters nobody knows.
func TestRoutes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p *platform) {
		w := watch(t, p)
		for _, id := range []string{"nosuch", "..%2f..%2fetc%2fpasswd", "%2e%2e", "%00", "%ff%fe", "a%20b", "%27%20OR%201=1%20--", "%25", "%E9%95%BF", strings.Repeat("a", 5000), "-1", "9999999999999999999999"} {
			for _, r := range p.routes(t, id) {
				if public(r.path) && r.verb == "POST" || !strings.Contains(r.path, id) || takesAnyID(r.path) {
					continue
				}
				if f := w.send(t, r, p.admin); f == nil {
					t.Errorf("%v succeeded", r)
				}
			}
		}
		for _, r := range p.routes(t, "c1") {
			if strings.HasPrefix(r.path, "/v1/logs/") {
				continue // refused for its signature first
			}
			q := r
			q.path += "?no_such_parameter=1"
			w.refused(t, q, p.admin, "no_such_parameter")
			q.path = r.path + "?%zz=1"
			if f := w.send(t, q, p.admin); f == nil {
				t.Errorf("%v succeeded", q)
			}
			q = r
			q.verb = "TRACE"
			if f := w.send(t, q, p.admin); f == nil {
				t.Errorf("%v succeeded", q)
			}
		}
		for _, path := range []string{"/v1/nosuch", "/openapi/v1/nosuch", "/scheduler/nosuch", "/yunhe.nosuch.v1.NoService/Call", "/yunhe.jobs.v1.JobService/NoMethod"} {
			for _, verb := range []string{"GET", "POST"} {
				w.refused(t, request{verb: verb, path: path, header: map[string]string{"Connect-Protocol-Version": "1"}, body: []byte("{}")}, p.admin)
			}
		}
	})
}

// TestPageTokens hands every list the tokens of all others.
func TestPageTokens(t *testing.T) {
	t.Parallel()
	p := start(t, "")
	tokens := map[string]string{"garbage": "garbage", "not a list": "eyJhIjoxfQ", "hostile": "WyInIE9SIDE9MSAtLSJd", "numbers": "WzEsMl0", "zero": "WyJcdTAwMDAiXQ", "long": strings.Repeat("A", 5000)}
	lists := map[string]string{}
	for _, m := range methods(t) {
		if m.desc.Input().Fields().ByName("page_token") == nil || strings.Contains(m.path, "{") {
			continue // the others need something that is there
		}
		// Some do not list everything.
		ask := "?" + map[string]string{"ListTaggedObjects": "selector.kinds=OBJECT_KIND_CENTER&", "DiffTopology": "from=" + time.Now().UTC().Format(time.RFC3339Nano) + "&"}[m.name()]
		lists[m.path+ask] = m.name()
		var page struct{ NextPageToken string }
		if p.must(t, "GET", m.path+ask+"pageSize=1", p.admin, "", &page); page.NextPageToken != "" {
			tokens[m.name()] = page.NextPageToken
		}
	}
	if len(lists) < 8 || len(tokens) < 10 {
		t.Fatalf("%d lists gave the tokens %v, want at least 8 and 4 real ones", len(lists), tokens)
	}
	w := watch(t, p)
	for path, name := range lists {
		for from, token := range tokens {
			r := request{verb: "GET", path: path + "pageToken=" + token, reads: true}
			f := w.send(t, r, p.admin)
			if f != nil && !strings.Contains(f.text(), "page_token") {
				t.Errorf("%s with the token of %s was refused with %q, want it to name page_token", name, from, f.text())
			}
			if f == nil && slices.Contains([]string{"garbage", "not a list", "numbers", "long"}, from) {
				t.Errorf("%s took the token %q", name, token)
			}
		}
	}
}
