package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// TestJobExec runs commands beside a real run, through a real platform.
func TestJobExec(t *testing.T) {
	t.Parallel()
	apptest.NeedRoot(t)
	a := apptest.Start(t, apptest.Options{})
	a.Gateway(t)
	j := apptest.Job("beside", 1)
	j.Tasks[0].Command = "echo data >file; exec sleep 1000"
	id := a.Admin.Submit(t, j)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
	yunhe := func(in string, args ...string) (out, errs string, code int) {
		t.Helper()
		var o, e bytes.Buffer
		c := newCLI()
		c.in, c.out, c.err = strings.NewReader(in), &o, &e
		c.env = func(string) string { return "" }
		c.screen = func(io.Writer) (int, int, bool) { return 77, 22, true }
		ctx, cancel := context.WithTimeout(t.Context(), apptest.Patience)
		defer cancel()
		code = c.run(ctx, append([]string{"--server", a.URL(), "--key", a.Admin.Key, "--no-color"}, args...))
		return o.String(), e.String(), code
	}
	for _, c := range []struct {
		name, in string
		args     []string
		out, err string
		code     int
	}{
		{"its files, its exit code", "", []string{"job", "exec", id, "--", "sh", "-c", "cat file; echo no >&2; exit 9"}, "data\n", "no\n", 9},
		{"input", "one\ntwo\n", []string{"job", "exec", id, "-i", "--", "sort", "-r"}, "two\none\n", "", 0},
		{"no input", "one\n", []string{"job", "exec", id, "--task", "0", "--replica", "0", "--", "cat"}, "", "", 0},
		{"flags after -- are the command's", "", []string{"job", "exec", id, "--", "ls", "-1", "-t"}, "file\n", "", 0},
		{"a terminal", "", []string{"job", "exec", "-t", id, "--", "stty", "size"}, "22 77\r\n", "", 0},
		{"a terminal with input", "stty -echo; stty size; exit 4\n", []string{"job", "exec", "-it", id, "--", "sh"}, "22 77\r\n", "", 4},
	} {
		out, errs, code := yunhe(c.in, c.args...)
		if !strings.HasSuffix(out, c.out) && !strings.Contains(out, "\n"+c.out) || errs != c.err || code != c.code {
			t.Errorf("%s: %q, %q, %d; want %q, %q, %d", c.name, out, errs, code, c.out, c.err, c.code)
		}
	}
	if _, errs, code := yunhe("", "job", "exec", id, "--", "nonesuch"); code != 1 || !strings.Contains(errs, "nonesuch") {
		t.Errorf("no such program: %q, %d", errs, code)
	}
	if out, _, code := yunhe("", "job", "pause", id); code != 0 || !strings.Contains(out, "paus") {
		t.Errorf("pause: %q, %d", out, code)
	}
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_PAUSED)
	if _, errs, code := yunhe("", "job", "exec", id, "--", "true"); code != 1 || !strings.Contains(errs, "is paused") {
		t.Errorf("beside a paused run: %q, %d", errs, code)
	}
	if _, _, code := yunhe("", "job", "resume", id); code != 0 {
		t.Errorf("resume: %d", code)
	}
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
}
