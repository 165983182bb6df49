package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunhe.dev/yunhe/internal/app/apptest"
)

// The commands that control resources, against the real platform.
func TestControl(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	f := a.Join(t, apptest.Center{ID: "c1", Region: "north", CPU: 4000, Memory: 8 << 30})
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
	masks := []*regexp.Regexp{regexp.MustCompile(`(alc|opr|alm)_[0-9A-Z]{26}`), regexp.MustCompile(`[0-9-]+ [0-9:]+Z \([^)]*\)`), regexp.MustCompile(`[0-9]+(ms|s) ago|just now|\bnow\b`), regexp.MustCompile(` {2,}`), regexp.MustCompile(` +\n`)}
	with := []string{"$1", "…", "…", "  ", "\n"}
	want := func(status int, want string, args ...string) {
		t.Helper()
		got, code := run(args...)
		for i, m := range masks {
			got = m.ReplaceAllString(got, with[i])
		}
		if d := cmp.Diff(strings.TrimPrefix(want, "\n"), got); d != "" || code != status {
			t.Errorf("yunhe %s: exit %d (-want +got):\n%s", strings.Join(args, " "), code, d)
		}
	}
	want(0, `
REGION  CENTER  STATUS  FREE  ALLOCATED  NODES  PACKAGES
north  c1  available  cpu=4 memory=8Gi  -  0  2 medium, 4 small
`, "allocation", "view")
	want(0, `
ALLOCATION  NAME  STATE  CENTER  HOLDS  USED  ENDS  REASON
alc  mine  granted  c1  3 × small  -  -  -
`, "allocation", "apply", "--spec", "small", "--count", "3", "--name", "mine")
	id, _ := run("allocation", "list", "-o", "name")
	id = strings.TrimSpace(id)
	want(1, "2> error: center c1 has not so much more free, or takes no new work\n", "allocation", "adjust", id, "--count", "5")
	want(0, `
ALLOCATION  NAME  STATE  CENTER  HOLDS  USED  ENDS  REASON
alc  mine  granted  c1  2 × small  -  -  -
`, "allocation", "adjust", id, "--count", "2")
	want(0, `
ALLOCATION  NAME  STATE  CENTER  HOLDS  USED  ENDS  REASON
alc  mine  released  c1  2 × small  -  -  released by admin
`, "allocation", "release", id)
	want(0, `
OPERATION  KIND  STATE  TARGET  WHO  ASKED  MESSAGE
opr  release  succeeded  alc  admin  …  released by admin
opr  adjust  succeeded  alc  admin  …  adjusted
opr  adjust  failed  alc  admin  …  center c1 has not so much more free, or takes no new work
opr  apply  succeeded  alc  admin  …  granted at center c1
opr  join  succeeded  c1  -  …  its gateway joined
`, "operation", "list")
	want(2, "2> error: --for: want a time such as 2h or 2026-12-01T08:00:00Z, got \"soon\"\n", "allocation", "apply", "--spec", "small", "--for", "soon")
	want(0, `
Operation  opr
Kind  isolate
State  succeeded
Message  it takes no new work
Target  c1
Reason  disk
Asked by  admin of default
Asked  …
Ended  …

STEP  AT  RESULT  MESSAGE  ABOUT
set  …  ok  it takes no new work  c1
`, "center", "isolate", "c1", "--reason", "disk")
	want(1, "2> error: center c1 has no node m9\n", "node", "isolate", "c1", "m9")
	out, code := run("center", "restore", "c1", "--wait", "-o", "json")
	if code != 0 || !strings.Contains(out, `"state": "OPERATION_STATE_SUCCEEDED"`) {
		t.Errorf("restore: %d %s", code, out)
	}
	want(0, "2> no alarms\n", "alarm", "list")
	f.Disconnect()
	apptest.Until(t, "the alarm is there", func() bool { out, _ := run("alarm", "list", "-o", "name"); return strings.Count(out, "alm_") == 2 })
	want(0, `
ALARM  SEVERITY  STATE  TIMES  SINCE  MESSAGE
alm  critical  active  1  …  center c1: it has not been heard of for 10s
alm  major  active  1  …  the gateway of center c1 is silent
`, "alarm", "list")
	names, _ := run("alarm", "list", "-o", "name", "--severity", "critical")
	want(0, `
ALARM  SEVERITY  STATE  TIMES  SINCE  MESSAGE
alm  critical  acknowledged  1  …  center c1: it has not been heard of for 10s (1 alarm below)
`, "alarm", "ack", strings.TrimSpace(names), "--note", "on my way")
	if out, code := run("alarm", "show", strings.TrimSpace(names)); code != 0 || !strings.Contains(out, "on my way") || !strings.Contains(out, "is silent") {
		t.Errorf("show: %d %s", code, out)
	}
}

func prefixed(s string) string {
	if s == "" {
		return ""
	}
	return "2> " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n2> ") + "\n"
}
