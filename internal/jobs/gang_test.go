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

// TestGangMembers: a member of a gang finds a link that says who else is there, as
// soon as that changes, and nothing to anybody else.
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
		State, AiCenterID                string
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
	if !ok || runs[1].Attempt.Env["YUNHE_GANG_URL"] != runs[0].Attempt.Env["YUNHE_GANG_URL"] {
		t.Fatalf("the link is %q", runs[0].Attempt.Env["YUNHE_GANG_URL"])
	}
	get := func(of, query string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL()+"/v1/gangs/"+of+query, nil)
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
	if m := see(""); len(m.Members) != 2 || m.Version < foreign {
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
	runs[0].End("completed", 0)
	grown.End("completed", 0)
	a.Admin.AwaitState(t, id, succeeded)
	if code, text := get(id, link+"&after=1"); code != http.StatusNotFound {
		t.Errorf("after its end: %d %s", code, text)
	}
}
