package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/agent"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/bus"
)

func TestCheckClock(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	date := at.Format(http.TimeFormat) // anything in [0 s, 1 s) after it
	for _, x := range []struct {
		ours time.Time
		ok   bool
		want string
	}{
		{at.Add(500 * time.Millisecond), true, "within 1s"},
		{at.Add(20 * time.Second), true, "within 20s"},
		{at.Add(-29 * time.Second), true, "within 30s"},
		{at.Add(32 * time.Second), false, "differs from the platform's by 32s, 30s is the most"},
		{at.Add(-2 * time.Hour), false, "by -2h0m1s"},
	} {
		k := checkClock(date, x.ours)
		if k.OK != x.ok || !strings.Contains(k.Found+k.Problem, x.want) || k.OK == (k.Todo != "") {
			t.Errorf("ours is %s: %+v, want %v, %q", x.ours.Sub(at), k, x.ok, x.want)
		}
	}
	if k := checkClock("", at); k.OK || k.Problem == "" {
		t.Errorf("no date: %+v", k)
	}
}

func TestCheckPlatform(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body)) // the client reads it or not
		}))
		t.Cleanup(s.Close)
		return s
	}
	a := apptest.Start(t, apptest.Options{})
	for _, x := range []struct {
		name, url string
		ok        bool
		want      string
	}{
		{"a platform", a.URL(), true, "answers within"},
		{"a portal", answer(200, "<html>log in</html>").URL, false, "is no Yunhe platform (HTTP 200)"},
		{"another API", answer(400, `{"code":"bad"}`).URL, false, "is no Yunhe platform (HTTP 400)"},
		{"nothing", "http://127.0.0.1:1", false, "cannot be reached"},
		{"no address", "http://\x7f", false, "is no address"},
	} {
		got := checkPlatform(t.Context(), x.url, time.Now)
		if got[0].OK != x.ok || !strings.Contains(got[0].Found+got[0].Problem, x.want) || x.ok && (len(got) != 2 || !got[1].OK) {
			t.Errorf("%s: %+v, want %v, %q", x.name, got, x.ok, x.want)
		}
	}
}

func TestCheckDisk(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "a", "b") // judged by what it would lie in
	if k := checkDisk(missing); k.Found+k.Problem == "" || !strings.Contains(k.Found+k.Problem, filepath.Dir(filepath.Dir(missing))) {
		t.Errorf("%+v", k)
	}
	if k := checkDisk("/proc"); k.OK || !strings.Contains(k.Problem, "1.0 GiB are needed") {
		t.Errorf("/proc has no room: %+v", k)
	}
}

// The command on this machine: what it finds, as a table and as JSON.
func TestGatewayCheck(t *testing.T) {
	t.Parallel()
	apptest.NeedRoot(t)
	s := startFake(t)
	dir := t.TempDir()
	seed, pub, err := bus.NewAgentKey()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"seed": seed, "ai_center_id": "lab", "bus_jwt": "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gateway.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, s, nil, "gateway", "check", "--data", dir, "-o", "json")
	c.end(t, 0)
	var r machineReport
	if err := json.Unmarshal([]byte(c.out.String()), &r); err != nil {
		t.Fatalf("%v in %s", err, c.out)
	}
	if r.AiCenterID != "lab" || r.PublicKey != pub || !r.Joined || len(r.Checks) != 4 || !r.Checks[0].OK || !r.Checks[2].OK {
		t.Errorf("%+v", r)
	}
	if strings.Contains(c.out.String(), seed) {
		t.Error("the gateway's key was shown")
	}
	c = start(t, s, nil, "gateway", "check", "--data", dir, "--server", "http://127.0.0.1:1")
	c.end(t, 1)
	for _, want := range []string{"isolation  ok", "platform   missing  http://127.0.0.1:1 cannot be reached"} {
		if !strings.Contains(c.out.String(), want) {
			t.Errorf("no %q in:\n%s", want, c.out)
		}
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/yunhe/check-*"); len(left) > 0 {
		for _, p := range left {
			if strings.HasSuffix(p, "check-"+strconv.Itoa(os.Getpid())) {
				t.Errorf("%s was left", p)
			}
		}
	}
}

func TestDescribeCenter(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "center.yaml")
	if err := os.WriteFile(file, []byte("name: From the file\nregion: north\nprices: {small: 90, medium: 200}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	was := agent.Center{ID: "lab", Name: "Before", CPU: "4", Prices: map[string]int64{"small": 100}, Labels: map[string]string{"rack": "a3"}}
	for _, x := range []struct {
		name string
		o    joinOptions
		want agent.Center
		err  string
	}{
		{"nothing given", joinOptions{}, was, ""},
		{"flags", joinOptions{name: "Now", prices: []string{"medium=2.40", "small=1.5"}, labels: []string{"rack=b1", "floor="}},
			agent.Center{ID: "lab", Name: "Now", CPU: "4", Prices: map[string]int64{"small": 150, "medium": 240}, Labels: map[string]string{"rack": "b1", "floor": ""}}, ""},
		{"a file replaces all but the ID", joinOptions{config: file}, agent.Center{ID: "lab", Name: "From the file", Region: "north", Prices: map[string]int64{"small": 90, "medium": 200}}, ""},
		{"flags win over a file", joinOptions{config: file, region: "south", prices: []string{"small=1"}},
			agent.Center{ID: "lab", Name: "From the file", Region: "south", Prices: map[string]int64{"small": 100, "medium": 200}}, ""},
		{"a file that is not there", joinOptions{config: file + ".none"}, agent.Center{}, "cannot be read"},
		{"a price without one", joinOptions{prices: []string{"small="}}, agent.Center{}, `--price: want SPEC=YUAN such as small=1.20, got "small="`},
		{"a label without a name", joinOptions{labels: []string{"=x"}}, agent.Center{}, `--label: want NAME=VALUE, got "=x"`},
		{"no memory", joinOptions{memory: "much"}, agent.Center{}, "--memory: "},
		{"no ID", joinOptions{center: "a b"}, agent.Center{}, "--center"},
	} {
		got, err := x.o.describe(was)
		if x.err != "" {
			if err == nil || !strings.Contains(err.Error(), x.err) {
				t.Errorf("%s: %v, want %q", x.name, err, x.err)
			}
			continue
		}
		if err != nil || !sameJoined(joined{Center: got}, joined{Center: x.want}) {
			t.Errorf("%s: %+v, %v, want %+v", x.name, got, err, x.want)
		}
	}
	if was.Prices["small"] != 100 || len(was.Labels) != 1 {
		t.Errorf("what was given was changed: %+v", was)
	}
	if sameJoined(joined{Center: was}, joined{Center: agent.Center{ID: "lab"}}) || sameJoined(joined{Platform: "a"}, joined{Platform: "b"}) || sameJoined(joined{Shares: []string{"/a"}}, joined{}) {
		t.Error("two that differ are the same")
	}
}
