package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/rpc"
)

// numbered is n bytes of text in which every place is different.
func numbered(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()[:n]
}

func testLogs(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-log"})
	for name, size := range map[string]int{"none": 0, "inline": 8 << 10, "chunked": 8<<10 + 1, "of many pieces": 530<<10 + 123} {
		text := numbered(size)
		id := a.Admin.Submit(t, c.Pin(apptest.Job("log", 1)))
		if got, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id}); err != nil || got != "" {
			t.Errorf("log %s, before it runs: %d bytes, %v", name, len(got), err)
		}
		r := c.Of(id, 1)[0]
		r.Run()
		followed := follow(t, a, &jobsv1.ReadLogRequest{JobId: id, Follow: true})
		half := text[:size/2]
		r.Write(half)
		if got, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id}); err != nil || got != half {
			t.Errorf("log %s, while it runs: %d bytes, %v, want %d", name, len(got), err, len(half))
		}
		seen := ""
		take := func(m *jobsv1.ReadLogResponse) {
			if m.Offset != int64(len(seen)) {
				t.Errorf("log %s: piece at %d, want %d", name, m.Offset, len(seen))
			}
			seen += string(m.Data)
		}
		for len(seen) < len(half) {
			m, ok := <-followed
			if !ok {
				break
			}
			take(m)
		}
		r.Write(text[size/2:])
		r.End("completed", 0)
		for m := range followed { // on from the center to what is kept
			take(m)
		}
		if seen != text {
			t.Errorf("log %s, followed over the end: %d bytes, want %d", name, len(seen), size)
		}
		for _, offset := range []int64{0, 1, int64(size) - 1, int64(size), int64(size) + 10, -1, -7, -int64(size), -int64(size) - 5, 1 << 62, -1 << 63} {
			want := ""
			switch {
			case offset >= 0 && offset < int64(size):
				want = text[offset:]
			case offset < 0:
				want = text[max(0, int64(size)+offset):]
			}
			if got, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id, Offset: offset}); err != nil || got != want {
				t.Errorf("log %s from %d: %d bytes, %v, want %d", name, offset, len(got), err, len(want))
			}
		}
		path := "/v1/jobs/" + id + "/tasks/main/replicas/0/log"
		if res := a.Admin.REST(t, "GET", path+"?download=1", ""); res.Status != 200 || string(res.Body) != text || !strings.Contains(res.Header.Get("Content-Disposition"), id+"-0-0.log") {
			t.Errorf("log %s downloaded: %d, %d bytes, %v", name, res.Status, len(res.Body), res.Header)
		}
		if res := a.Admin.REST(t, "GET", path+"?follow=1&offset=-3", ""); res.Status != 200 || string(res.Body) != text[max(0, size-3):] || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("log %s, last bytes: %d %q", name, res.Status, res.Body)
		}
	}
	id := a.Admin.Submit(t, c.Pin(apptest.Job("log-paths", 1)))
	apptest.Succeed(c.Of(id, 1)[0])
	for path, want := range map[string]int{"tasks/1/replicas/0/log": 404, "tasks/0/replicas/1/log": 404, "tasks/-1/replicas/0/log": 404, "tasks/0/replicas/-1/log": 404, "tasks/x/replicas/0/log": 404,
		"tasks/0/replicas/x/log": 404, "tasks/0/replicas/99999999999999999999/log": 404, "tasks/0/replicas/0/log?offset=x": 400, "tasks/0/replicas/0/log?attempt=9": 404,
		"tasks/0/replicas/0/log?attempt=-1": 404, "tasks/0/replicas/0/log?what=1": 400, "tasks/%00/replicas/0/log": 400} {
		if res := a.Admin.REST(t, "GET", "/v1/jobs/"+id+"/"+path, ""); res.Status != want {
			t.Errorf("GET %s: %d %s, want %d", path, res.Status, res.Body, want)
		}
	}
	if _, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id, TaskIndex: -1}); code(err) != connect.CodeNotFound {
		t.Errorf("task -1: %v", err)
	}
	// A negative offset counts from what is there now.
	id = a.Admin.Submit(t, c.Pin(apptest.Job("log-tail", 1)))
	r := c.Of(id, 1)[0]
	r.Run()
	r.Write("0123456789")
	if got, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id, Offset: -4}); err != nil || got != "6789" {
		t.Errorf("the last 4 bytes of a running log: %q, %v", got, err)
	}
	// The center is away: that is said, not hidden.
	c.Disconnect()
	if _, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id}); code(err) != connect.CodeUnavailable {
		t.Errorf("log of a run whose center is away: %v, want unavailable", err)
	}
}

// follow reads a log in the background; the channel is closed at its end.
func follow(t *testing.T, a *apptest.App, r *jobsv1.ReadLogRequest) <-chan *jobsv1.ReadLogResponse {
	ctx, cancel := context.WithTimeout(t.Context(), apptest.Patience)
	out := make(chan *jobsv1.ReadLogResponse)
	go func() {
		defer cancel()
		defer close(out)
		s, err := a.Admin.Jobs.ReadLog(ctx, r) // returns with the first byte
		if err != nil {
			t.Errorf("follow the log: %v", err)
			return
		}
		defer func() { _ = s.Close() }()
		for s.Receive() {
			select {
			case out <- s.Msg():
			case <-ctx.Done():
			}
		}
		if s.Err() != nil {
			t.Errorf("follow the log: %v", s.Err())
		}
	}()
	return out
}

func testFollowRetry(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-follow"})
	j := c.Pin(apptest.Job("follow", 1))
	j.MaxRetries = 1
	id := a.Admin.Submit(t, j)
	followed := follow(t, a, &jobsv1.ReadLogRequest{JobId: id, Follow: true})
	first := c.Of(id, 1)[0]
	first.Run()
	first.Write("the first run\n")
	if m := <-followed; string(m.GetData()) != "the first run\n" {
		t.Fatalf("got %v", m)
	}
	first.End("exit", 1)
	second := c.Of(id, 2)[1]
	second.Run()
	second.Write("then the second\n")
	second.End("completed", 0)
	rest := ""
	for m := range followed {
		rest += string(m.Data)
	}
	if rest != "then the second\n" {
		t.Errorf("after the retry: %q, want all of the second run", rest)
	}
}

func testSignedLink(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-link"})
	text := numbered(30 << 10)
	id := a.Admin.Submit(t, c.Pin(apptest.Job("link", 2)))
	r := c.Of(id, 2)[0]
	r.Run()
	r.Write(text)
	r.End("completed", 0)
	res := a.Admin.REST(t, "GET", "/openapi/v1/trainjob/"+id+"/task/0/replica/0/log", "")
	var env struct {
		Status int
		Data   struct{ LogURL string }
	}
	if err := json.Unmarshal(res.Body, &env); err != nil || res.Status != 200 || env.Status != 200 {
		t.Fatalf("%d %s: %v", res.Status, res.Body, err)
	}
	anyone := apptest.NewClient(a.URL(), "")
	if got := anyone.REST(t, "GET", env.Data.LogURL, ""); got.Status != 200 || string(got.Body) != text {
		t.Errorf("GET %s without credentials: %d, %d bytes, want %d", env.Data.LogURL, got.Status, len(got.Body), len(text))
	}
	link, err := url.Parse(env.Data.LogURL)
	if err != nil {
		t.Fatal(err)
	}
	q := link.Query()
	expires, err := strconv.ParseInt(q.Get("expires"), 10, 64)
	if in := time.Until(time.Unix(expires, 0)); err != nil || in < 50*time.Minute || in > 70*time.Minute {
		t.Errorf("expires in %s, %v", in, err)
	}
	change := func(path string, k, v string) string {
		u := *link
		if path != "" {
			u.Path = path
		}
		q := link.Query()
		if q.Set(k, v); v == "" {
			q.Del(k)
		}
		u.RawQuery = q.Encode()
		return u.String()
	}
	sig := []byte(q.Get("signature"))
	sig[0] ^= 1
	for name, u := range map[string]string{
		"another replica":       change("/v1/logs/"+id+"/0/1", "", ""),
		"another job":           change("/v1/logs/job_x/0/0", "", ""),
		"same number otherwise": change("/v1/logs/"+id+"/00/0", "", "") + "&x", // the path's text is not what is signed; the parameter is unknown
		"a later end":           change("", "expires", fmt.Sprint(expires+1)),
		"an earlier end":        change("", "expires", "1"),
		"no end":                change("", "expires", ""),
		"no signature":          change("", "signature", ""),
		"another signature":     change("", "signature", string(sig)),
		"not a number":          change("", "expires", "x"),
	} {
		if got := anyone.REST(t, "GET", u, ""); got.Status != 403 && got.Status != 400 || strings.Contains(string(got.Body), "line 1") {
			t.Errorf("%s: %d %.200s, want it refused", name, got.Status, got.Body)
		}
	}
}

type envelope struct {
	Status   int
	Code     string
	ErrorMsg *string
	Data     *struct {
		JobID        string `json:"jobId"`
		Name, Status string
		DetailStatus string
		TaskInfos    []struct {
			Name, Command, ImageID, ResourceSpecID string
			ReplicaNumber                          int
			CenterIDs                              []string
			ReplicaStatus                          []string
		}
		LogURL string
	}
	Details []struct{ Field, Problem string }
}

func open(t *testing.T, res apptest.Answer) envelope {
	t.Helper()
	var e envelope
	if err := json.Unmarshal(res.Body, &e); err != nil {
		t.Fatalf("not an envelope: %s: %v", res.Body, err)
	}
	if e.Status != res.Status || e.Code == "" || e.ErrorMsg == nil || len([]rune(*e.ErrorMsg)) > 128 || (e.Code == "OK") != (res.Status == 200) {
		t.Errorf("envelope of status %d: %s", res.Status, res.Body)
	}
	return e
}

const trainTask = `{"name":"%s","command":"echo hi","imageId":"host","resourceSpecId":"small","replicaNumber":%d}`

// Rows J-A.1.1 to J-A.4.3. These jobs cannot be pinned: annex A has no words
// for it. They run wherever there is room, so the specification is one that
// only this center offers.
func testTrainJob(t *testing.T, a *apptest.App) {
	u := a.User(t, "t-train", "u-train", identityv1.Role_ROLE_USER)
	spec := "train-only"
	createSpec(t, a, spec)
	c := a.Join(t, apptest.Center{ID: "c-train", CPU: 3000, Prices: map[string]int64{spec: 10}})
	task := func(name string, n int) string {
		return strings.Replace(fmt.Sprintf(trainTask, name, n), "small", spec, 1)
	}
	// J-A.1: an object of task1…taskN, in numeric order.
	body := `{"name":"train","tasks":{"task2":` + task("second", 1) + `,"task1":` + task("first", 2) + `}}`
	e := open(t, u.REST(t, "POST", "/openapi/v1/trainjob", body))
	if e.Code != "OK" || *e.ErrorMsg != "" || e.Data == nil || e.Data.JobID == "" || len(e.Data.TaskInfos) != 2 || e.Data.TaskInfos[0].Name != "first" || e.Data.TaskInfos[1].Name != "second" {
		t.Fatalf("A.1: %+v", e)
	}
	id := e.Data.JobID
	rs := c.Of(id, 3)
	get := func(id string) envelope { return open(t, u.REST(t, "GET", "/openapi/v1/trainjob/"+id, "")) }
	status := func(what, want, detail string, replicas ...string) {
		t.Helper()
		e := get(id)
		if e.Data.Status != want || e.Data.DetailStatus != detail || !slices.Equal(e.Data.TaskInfos[0].ReplicaStatus, replicas) {
			t.Errorf("A.3, %s: %s (%s), replicas %v, want %s (%s), %v", what, e.Data.Status, e.Data.DetailStatus, e.Data.TaskInfos[0].ReplicaStatus, want, detail, replicas)
		}
	}
	// J-A.3: every field, every status.
	e = get(id)
	if i := e.Data.TaskInfos[0]; e.Data.Name != "train" || i.Name != "first" || i.Command != "echo hi" || i.ImageID != "host" || i.ResourceSpecID != spec || i.ReplicaNumber != 2 || !slices.Equal(i.CenterIDs, []string{c.ID}) {
		t.Errorf("A.3: %+v", e.Data)
	}
	status("placed", "pending", "dispatching", "pending", "pending")
	rs[0].Run()
	status("one runs", "running", "running", "running", "pending")
	rs[0].Write("log of one\n")
	rs[0].End("completed", 0)
	rs[1].Run()
	status("one has completed", "running", "running", "completed", "running")
	// J-A.4: named by index and by ID, before and after the end.
	for _, path := range []string{"/task/0/replica/0/log", "/task/first/replica/" + rs[0].AttemptId + "/log"} {
		e := open(t, u.REST(t, "GET", "/openapi/v1/trainjob/"+id+path, ""))
		if got := apptest.NewClient(a.URL(), "").REST(t, "GET", e.Data.LogURL, ""); got.Status != 200 || string(got.Body) != "log of one\n" {
			t.Errorf("A.4 %s: %d %q", path, got.Status, got.Body)
		}
	}
	// J-A.2: stop, no data, and again.
	for range 2 {
		res := u.REST(t, "POST", "/openapi/v1/trainjob/"+id+"/stop", "")
		if e := open(t, res); e.Code != "OK" || strings.Contains(string(res.Body), `"data"`) {
			t.Errorf("A.2: %s", res.Body)
		}
	}
	status("stopping", "running", "stopping", "completed", "running")
	rs[1].AwaitStop()
	rs[1].End("stopped", 0)
	rs[2].End("stopped", 0)
	status("stopped", "failed", "stopped", "completed", "failed")
	if e := open(t, u.REST(t, "POST", "/openapi/v1/trainjob/"+id+"/stop", "")); e.Code != "OK" {
		t.Errorf("A.2 after the end: %+v", e)
	}
	// J-A.1: an array; it answers soon also when nothing can be placed.
	full := open(t, u.REST(t, "POST", "/openapi/v1/trainjob", `{"name":"array","tasks":[`+task("only", 9)+`]}`))
	if full.Data == nil || full.Data.TaskInfos[0].CenterIDs == nil {
		t.Errorf("A.1 with room for some only: %+v", full)
	}
	over := 0
	for over < 9 { // three at a time
		for _, r := range c.Of(full.Data.JobID, over+1) {
			if r.Status().Phase == adapterv1.Phase_PHASE_PENDING {
				apptest.Succeed(r)
				over++
			}
		}
	}
	u.AwaitState(t, full.Data.JobID, succeeded)
	done := open(t, u.REST(t, "POST", "/openapi/v1/trainjob", `{"name":"done","tasks":[`+task("only", 1)+`]}`, "Idempotency-Key", "k1"))
	again := open(t, u.REST(t, "POST", "/openapi/v1/trainjob", `{"name":"done","tasks":[`+task("only", 1)+`]}`, "Idempotency-Key", "k1"))
	if again.Data.JobID != done.Data.JobID {
		t.Errorf("A.1 with one key twice: %s and %s", done.Data.JobID, again.Data.JobID)
	}
	if e := open(t, u.REST(t, "POST", "/openapi/v1/trainjob", `{"name":"other","tasks":[`+task("only", 1)+`]}`, "Idempotency-Key", "k1")); e.Status != 409 || e.Code != "CONFLICT" || e.Data != nil {
		t.Errorf("A.1 with the key of another: %+v", e)
	}
}

func testTrainErrors(t *testing.T, a *apptest.App) {
	u := a.User(t, "t-err", "u-err", identityv1.Role_ROLE_USER)
	reader := a.User(t, "t-err", "u-auditor", identityv1.Role_ROLE_AUDITOR)
	ok := `{"name":"err","tasks":[` + fmt.Sprintf(trainTask, "t", 1) + `]}`
	const path = "/openapi/v1/trainjob"
	for _, x := range []struct {
		name, method, path, body string
		c                        *apptest.Client
		header                   []string
		status                   int
		code, field              string
	}{
		{"no credentials", "POST", path, ok, apptest.NewClient(a.URL(), ""), nil, 401, "UNAUTHENTICATED", ""},
		{"wrong key", "POST", path, ok, apptest.NewClient(a.URL(), "yk_wrong"), nil, 401, "UNAUTHENTICATED", ""},
		{"no key at get", "GET", path + "/x", "", apptest.NewClient(a.URL(), ""), nil, 401, "UNAUTHENTICATED", ""},
		{"may only read", "POST", path, ok, reader, nil, 403, "PERMISSION_DENIED", ""},
		{"may not stop", "POST", path + "/x/stop", "", reader, nil, 403, "PERMISSION_DENIED", ""},
		{"empty body", "POST", path, "", u, nil, 400, "INVALID_ARGUMENT", "body"},
		{"no JSON", "POST", path, "{", u, nil, 400, "INVALID_ARGUMENT", "body"},
		{"no name", "POST", path, `{"tasks":[` + fmt.Sprintf(trainTask, "t", 1) + `]}`, u, nil, 400, "INVALID_ARGUMENT", "name"},
		{"no tasks", "POST", path, `{"name":"x"}`, u, nil, 400, "INVALID_ARGUMENT", "tasks"},
		{"no task", "POST", path, `{"name":"x","tasks":{}}`, u, nil, 400, "INVALID_ARGUMENT", "tasks"},
		{"name of 33 characters", "POST", path, strings.Replace(ok, "err", strings.Repeat("名", 33), 1), u, nil, 400, "INVALID_ARGUMENT", "name"},
		{"no replicas", "POST", path, `{"name":"x","tasks":[` + fmt.Sprintf(trainTask, "t", 0) + `]}`, u, nil, 400, "INVALID_ARGUMENT", "tasks[0].replicaNumber"},
		{"unknown image", "POST", path, strings.Replace(ok, "host", "nope", 1), u, nil, 400, "INVALID_ARGUMENT", "tasks[0].imageId"},
		{"unknown specification", "POST", path, strings.Replace(ok, "small", "nope", 1), u, nil, 400, "INVALID_ARGUMENT", "tasks[0].resourceSpecId"},
		{"unknown member", "POST", path, strings.Replace(ok, "{", `{"x":1,`, 1), u, nil, 400, "INVALID_ARGUMENT", "body"},
		{"unknown parameter", "POST", path + "?x=1", ok, u, nil, 400, "INVALID_ARGUMENT", "x"},
		{"too large", "POST", path, `{"name":"` + strings.Repeat("x", rpc.MaxBody) + `"}`, u, nil, 400, "TOO_LARGE", ""},
		{"key too long", "POST", path, ok, u, []string{"Idempotency-Key", strings.Repeat("k", 65)}, 400, "INVALID_ARGUMENT", "request_id"},
		{"get of nothing", "GET", path + "/job_none", "", u, nil, 404, "NOT_FOUND", ""},
		{"stop of nothing", "POST", path + "/job_none/stop", "", u, nil, 404, "NOT_FOUND", ""},
		{"log of nothing", "GET", path + "/job_none/task/0/replica/0/log", "", u, nil, 404, "NOT_FOUND", ""},
	} {
		e := open(t, x.c.REST(t, x.method, x.path, x.body, x.header...))
		if e.Status != x.status || e.Code != x.code || *e.ErrorMsg == "" || e.Data != nil {
			t.Errorf("%s: %d %s %q, want %d %s", x.name, e.Status, e.Code, *e.ErrorMsg, x.status, x.code)
		}
		if x.field != "" && (len(e.Details) != 1 || e.Details[0].Field != x.field) {
			t.Errorf("%s: details %+v, want one at %s", x.name, e.Details, x.field)
		}
	}
	id := u.Submit(t, waiting("waits"))
	for p, want := range map[string]int{"/task/1/replica/0/log": 404, "/task/0/replica/7/log": 404, "/task/x/replica/0/log": 404, "/task/0/replica/0/log?x=1": 400} {
		if e := open(t, u.REST(t, "GET", path+"/"+id+p, "")); e.Status != want {
			t.Errorf("log %s: %+v, want %d", p, e, want)
		}
	}
}
