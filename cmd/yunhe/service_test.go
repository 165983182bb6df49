package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// The commands of services, against the real platform.
func TestService(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	f := a.Join(t, apptest.Center{ID: "gz-1"})
	work := t.TempDir()
	run := func(args ...string) (string, int) {
		var o, e bytes.Buffer
		c := newCLI()
		c.in, c.out, c.err = strings.NewReader(""), &o, &e
		c.env = func(name string) string {
			return map[string]string{"YUNHE_SERVER": a.URL(), "YUNHE_KEY": a.Admin.Key, "YUNHE_CONFIG": filepath.Join(work, "config.yaml")}[name]
		}
		status := c.run(t.Context(), args)
		return o.String() + prefixed(e.String()), status
	}
	want := func(status int, want []string, args ...string) string {
		t.Helper()
		got, code := run(args...)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("yunhe %s: no %q in\n%s", strings.Join(args, " "), w, got)
			}
		}
		if code != status {
			t.Errorf("yunhe %s: exit %d, want %d\n%s", strings.Join(args, " "), code, status, got)
		}
		return strings.TrimSpace(got)
	}
	job := a.Admin.Submit(t, f.Pin(apptest.Job("serve", 2)))
	for _, r := range f.Of(job, 2) {
		r.Run()
	}
	a.Admin.Await(t, job, "both replicas run", func(j *jobsv1.Job) bool { return j.ReplicasRunning == 2 })
	want(2, []string{"--origin north=1: want ID=LONGITUDE,LATITUDE"}, "service", "create", "chat", "--job", job, "--rate", "4", "--origin", "north=1")
	want(1, []string{"replica_rate", "must be above 0"}, "service", "create", "chat", "--job", job, "--origin", "north")
	id := want(0, nil, "service", "create", "Chat", "--job", job, "--rate", "4", "--origin", "north=116.4,39.9", "--origin", "south", "--max-latency", "40ms", "-o", "name")
	want(0, []string{id, "Chat", "4/s", "40 ms"}, "service", "list")
	want(2, []string{`--latency north/gz-1=38: want ORIGIN/CENTER=TIME`}, "service", "report", id, "--traffic", "north=2.5", "--latency", "north/gz-1=38")
	want(0, []string{"1 origins reported"}, "service", "report", id, "--traffic", "north=2.5", "--latency", "north/gz-1=38ms")
	if err := a.Routing.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "the report is weighed", func() bool {
		got, _ := run("service", "routes", id)
		return strings.Contains(got, "measured")
	})
	want(0, []string{"north          2.5", "gz-1", "1000", "38 ms", "measured", "50 ms", "estimated", "8", "31 %", "expected time of a request"}, "service", "routes", id)
	want(1, []string{"has no endpoint for center gz-1", "--replace " + id}, "service", "routes", id, "--format", "zone")
	want(0, nil, "service", "create", "Chat", "--replace", id, "--job", job, "--rate", "4", "--origin", "north", "--endpoint", "gz-1=gz1.example.com:443")
	apptest.Until(t, "the origin that went is not routed any more", func() bool {
		if err := a.Routing.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, _ := run("service", "routes", id)
		return !strings.Contains(got, "south")
	})
	if got := want(0, nil, "service", "routes", id, "--format", "zone"); got != "_chat-north._tcp 15 IN SRV 0 1000 443 gz1.example.com." {
		t.Error(got)
	}
	if got := want(0, nil, "service", "routes", id, "--format", "nginx"); got != "upstream chat-north {\n    server gz1.example.com:443 weight=1000;\n}" {
		t.Error(got)
	}
	want(2, []string{`--format must be zone or nginx, got "bind"`}, "service", "routes", id, "--format", "bind")
	want(0, []string{"deleted"}, "service", "delete", id)
	want(1, []string{"no service"}, "service", "show", id)
}
