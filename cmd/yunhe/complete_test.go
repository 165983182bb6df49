package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

// completed is what a shell is told for the words, with the directive.
func completed(t *testing.T, s *fakeServer, setup func(*cli), words ...string) string {
	t.Helper()
	c := start(t, s, setup, append([]string{cobra.ShellCompRequestCmd}, words...)...)
	c.end(t, 0)
	return c.out.String()
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "first", 1)
	second := submitted(t, s, "second", 1)
	s.api.startRun(second, 0, "bj-1")
	s.api.finish(second, 0, succeeded, 0, "")
	for _, x := range []struct {
		words []string
		want  string
	}{
		{[]string{"job", "show", ""}, second + "\tsecond, succeeded\n" + job1 + "\tfirst, queued\n:4\n"},
		{[]string{"job", "show", job1, ""}, ":4\n"},
		{[]string{"job", "stop", "job_"}, job1 + "\tfirst, queued\n:4\n"},
		{[]string{"job", "stop", "x"}, ":4\n"},
		{[]string{"job", "delete", ""}, second + "\tsecond, succeeded\n:4\n"},
		{[]string{"job", "list", "--state", "r"}, "running\n:4\n"},
		{[]string{"job", "submit", "--image", "t"}, "torch-2\tPyTorch 2\n:4\n"},
		{[]string{"center", "drain", "bj-1", ""}, "sh-1\tShanghai\n:4\n"},
		{[]string{"gateway", "remove", ""}, "bj-1\tv1.2.3\nsh-1\tv1.2.3\n:4\n"},
		{[]string{"spec", "offer", "small", "s"}, "sh-1\tShanghai\n:4\n"},
		{[]string{"image", "delete", "host", ""}, "torch-2\tPyTorch 2\n:4\n"},
		{[]string{"policy", "weights", "set", ""}, "load-aware=\tLoad\nlowest-price=\tPrice\n:6\n"},
		{[]string{"policy", "weights", "set", "load-aware=3", ""}, "lowest-price=\tPrice\n:6\n"},
		{[]string{"policy", "weights", "set", "load-aware="}, ":6\n"},
		{[]string{"key", "revoke", ""}, "k1\tadmin first\n:4\n"},
	} {
		if got := completed(t, s, nil, x.words...); got != x.want {
			t.Errorf("%q (-want +got):\n%s", x.words, cmp.Diff(x.want, got))
		}
	}
}

// Whatever is wrong with the server, a shell hears nothing of it and not late.
func TestCompletionIsSilent(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	submitted(t, s, "first", 1)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for name, flags := range map[string][]string{
		"away":         {"--server", "http://" + gone.Addr().String()},
		"silent":       {"--server", "http://" + silent.Addr().String()},
		"wrong key":    {"--key", "yhk_wrong"},
		"bad address":  {"--server", "::"},
		"no such file": {"--key", "@/nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			c := start(t, s, nil, append(append([]string{cobra.ShellCompRequestCmd, "job", "show"}, flags...), "")...)
			c.end(t, 0)
			if got := c.out.String(); got != ":4\n" {
				t.Errorf("offered %q", got)
			}
			// The library says to the developer of a script which directive it gave.
			for line := range strings.Lines(c.err.String()) {
				if !strings.HasPrefix(line, "Completion ended with directive") {
					t.Errorf("said %q", line)
				}
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

// The table names commands and flags that exist.
func TestCompletionsExist(t *testing.T) {
	t.Parallel()
	cmd := root(newCLI())
	for path, what := range completions {
		sub, rest, err := cmd.Find(strings.Fields(path))
		if err != nil || len(rest) > 0 {
			t.Errorf("there is no command %q", path)
			continue
		}
		for flag := range what.flags {
			if f, ok := sub.GetFlagCompletionFunc(flag); !ok || f == nil {
				t.Errorf("%s --%s is not completed", path, flag)
			}
		}
	}
}

func TestConfirm(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, typed string
		args        []string
		nobody      bool
		status      int
		left        bool // the specification is still there
		asked       string
	}{
		{"yes", "yes\n", nil, false, 0, false, "Delete specification small? [y/N] "},
		{"Y", "Y\n", nil, false, 0, false, "Delete specification small? [y/N] "},
		{"no", "n\n", nil, false, 1, true, "Delete specification small? [y/N] "},
		{"something else", "sure\n", nil, false, 1, true, "Delete specification small? [y/N] "},
		{"nothing", "", nil, false, 1, true, "Delete specification small? [y/N] "},
		{"--yes", "", []string{"--yes"}, false, 0, false, ""},
		{"a script", "", nil, true, 0, false, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := startFake(t)
			c := start(t, s, func(c *cli) {
				c.in, c.person = strings.NewReader(x.typed), func() bool { return !x.nobody }
			}, append([]string{"spec", "delete", "small"}, x.args...)...)
			c.end(t, x.status)
			if _, err := s.api.GetSpec(t.Context(), &registryv1.GetSpecRequest{ResourceSpecId: "small"}); (err == nil) != x.left {
				t.Errorf("is it there: %v, want %v", err == nil, x.left)
			}
			if x.asked == "" && strings.Contains(c.err.String(), "?") || !strings.HasPrefix(c.err.String(), x.asked) {
				t.Errorf("asked %q, want %q", c.err, x.asked)
			}
			if x.status == 1 && !strings.Contains(c.err.String(), "not confirmed; nothing was changed") {
				t.Errorf("said %q", c.err)
			}
		})
	}
	s := startFake(t)
	c := start(t, s, func(c *cli) { c.in, c.person = strings.NewReader("no\n"), func() bool { return true } }, "job", "write-off", "a", "b")
	c.end(t, 1)
	if !strings.HasPrefix(c.err.String(), "Write off the lost runs of a, b? This cannot be undone. [y/N] ") {
		t.Errorf("asked %q", c.err)
	}
	c = start(t, s, func(c *cli) { c.in, c.person = strings.NewReader("no\n"), func() bool { return true } }, "image", "delete", "host", "torch-2")
	c.end(t, 1)
	if !strings.HasPrefix(c.err.String(), "Delete 2 images (host, torch-2)? [y/N] ") {
		t.Errorf("asked %q", c.err)
	}
}
