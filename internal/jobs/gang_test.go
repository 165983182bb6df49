package jobs_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// TestGangMembers: a member of a gang finds a link that says who else is there and
// by which address, as soon as that changes, and nothing to anybody else.
func TestGangMembers(t *testing.T) {
	t.Parallel()
	for _, postgres := range []bool{false, true} {
		t.Run(fmt.Sprintf("postgres %v", postgres), func(t *testing.T) {
			t.Parallel()
			a := apptest.Start(t, apptest.Options{Postgres: postgres, Config: func(c *app.Config) { c.Listen.URL = "https://yunhe.example.org/" }})
			gangMembers(t, a)
		})
	}
}

type members struct {
	JobID   string
	Version int64
	Tasks   []struct {
		Name            string
		Least, Replicas int64
	}
	Members []struct {
		TaskIndex, ReplicaIndex, Attempt int64
		State, AiCenterID, Address       string
		Leaving                          bool
	}
}

func gangMembers(t *testing.T, a *apptest.App) {
	createSpec(t, a, "core")
	one := a.Join(t, apptest.Center{ID: "c-one", CPU: 2000, Prices: map[string]int64{"core": 1}})
	spec := elasticGang("knows", 2, 4)
	spec.Tasks[0].Network = true
	id := a.Admin.Submit(t, spec)
	runs := one.Of(id, 2)
	link, ok := strings.CutPrefix(runs[0].Attempt.Env["YUNHE_GANG_URL"], "https://yunhe.example.org/v1/gangs/"+id)
	second, too := strings.CutPrefix(runs[1].Attempt.Env["YUNHE_GANG_URL"], "https://yunhe.example.org/v1/gangs/"+id)
	if !ok || !too || link == second {
		t.Fatalf("the links are %q and %q", link, second)
	}
	call := func(method, of, query, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, a.URL()+"/v1/gangs/"+of+query, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Error(err)
		}
		return res.StatusCode, string(b)
	}
	get := func(of, query string) (int, string) { return call(http.MethodGet, of, query, "") }
	see := func(query string) (m members) {
		t.Helper()
		if code, text := get(id, link+query); code != http.StatusOK || json.Unmarshal([]byte(text), &m) != nil {
			t.Fatalf("%d %s", code, text)
		}
		return m
	}
	// until asks as a member does, for what is newer than it has.
	until := func(what string, is func(members) bool) (m members) {
		t.Helper()
		for m = see(""); !is(m); m = see(fmt.Sprintf("&after=%d", m.Version)) {
			if t.Context().Err() != nil {
				t.Fatalf("waited in vain until %s: %+v", what, m)
			}
		}
		return m
	}
	for _, r := range runs {
		r.Run()
	}
	m := until("two run", func(m members) bool {
		return len(m.Members) == 2 && m.Members[0].State == "running" && m.Members[1].State == "running"
	})
	if m.JobID != id || len(m.Tasks) != 1 || m.Tasks[0].Name != "main" || m.Tasks[0].Least != 2 || m.Tasks[0].Replicas != 4 || m.Members[1].AiCenterID != "c-one" || m.Members[0].Attempt != 1 {
		t.Errorf("there are %+v", m)
	}
	for _, body := range []string{"", "\n", "a b", "\x00", "地址", strings.Repeat("x", 257), strings.Repeat("x", 1<<20)} {
		if code, text := call(http.MethodPut, id, second, body); code != http.StatusBadRequest {
			t.Errorf("the address %.20q: %d %s", body, code, text)
		}
	}
	for query, body := range map[string]string{link: "10.0.0.1:29500\n", second: strings.Repeat("x", 256)} {
		for range 2 {
			if code, text := call(http.MethodPut, id, query, body); code != http.StatusNoContent {
				t.Errorf("an address: %d %s", code, text)
			}
		}
	}
	told := until("both have said where they are", func(m members) bool { return m.Members[0].Address != "" && m.Members[1].Address != "" })
	if told.Members[0].Address != "10.0.0.1:29500" || len(told.Members[1].Address) != 256 || told.Version != m.Version+2 {
		t.Errorf("after %+v they are at %+v", m, told)
	}
	stolen := strings.Replace(link, runs[0].Attempt.AttemptId, runs[1].Attempt.AttemptId, 1)
	if code, text := call(http.MethodPut, id, stolen, "x"); code != http.StatusForbidden {
		t.Errorf("another's address: %d %s", code, text)
	}
	other := a.Admin.Submit(t, apptest.Job("alone", 1))
	foreign := see("").Version
	for query, want := range map[string]int{"": 403, "?signature=00": 403, link + "&after=x": 400, link + "&after=-1": 400, link + "&x=1": 400} {
		if code, text := get(id, query); code != want {
			t.Errorf("%q: %d %s, want %d", query, code, text, want)
		}
	}
	if code, text := get(other, link); code != http.StatusForbidden {
		t.Errorf("another job: %d %s", code, text)
	}
	a.Restart()
	if m := see(""); len(m.Members) != 2 || m.Version < foreign || m.Members[0].Address != "10.0.0.1:29500" {
		t.Errorf("after a restart there are %+v", m)
	}
	two := a.Join(t, apptest.Center{ID: "c-two", CPU: 1000, Prices: map[string]int64{"core": 1}})
	grown := two.Of(id, 1)[0]
	m = until("a third is there", func(m members) bool { return len(m.Members) == 3 })
	if m.Members[2].AiCenterID != "c-two" {
		t.Errorf("the third is %+v", m.Members[2])
	}
	grown.Run()
	runs[1].End("completed", 0)
	until("one has succeeded", func(m members) bool { return len(m.Members) == 3 && m.Members[1].State == "succeeded" })
	if code, text := call(http.MethodPut, id, second, "late:1"); code != http.StatusConflict {
		t.Errorf("an address of who has ended: %d %s", code, text)
	}
	runs[0].End("completed", 0)
	grown.End("completed", 0)
	a.Admin.AwaitState(t, id, succeeded)
	if code, text := get(id, link+"&after=1"); code != http.StatusNotFound {
		t.Errorf("after its end: %d %s", code, text)
	}
}
