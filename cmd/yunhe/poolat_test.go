package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What waits for a node or the platform ends when it is asked to, and says what goes on.
func TestPoolWaitsAreEnded(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	for name, x := range map[string]struct {
		args        []string
		asked, says string
	}{
		"migrate":                  {args: []string{"migrate", "01J", "--device", "opencl-1"}, asked: "migrate", says: "the node goes on moving task 01J; `yunhe pool tasks`, here and there, shows where it is"},
		"rescan":                   {args: []string{"node", "rescan"}, asked: "rescan"},
		"devices":                  {args: []string{"devices"}, asked: "devices"},
		"a task that is not given": {args: []string{"run", "--", "true"}, asked: "run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := startPoolNode(t, map[string]string{"run": "\n"}) // it answers nothing else
			c := start(t, s, func(c *cli) {
				c.env = func(name string) string { return map[string]string{"YUNHE_POOL_NODE": n.at}[name] }
			}, append([]string{"pool"}, x.args...)...)
			n.has(t, x.asked)
			c.cancel()
			c.end(t, exitInterrupted)
			if !strings.Contains(c.err.String(), x.says) {
				t.Errorf("it says %q, not %q", c.err, x.says)
			}
		})
	}
	t.Run("a move of the platform's", func(t *testing.T) {
		t.Parallel()
		c := start(t, s, nil, "pool", "slice", "migrate", "slice_01", "--to", "n8")
		c.cancel()
		c.end(t, exitInterrupted)
		if want := "if slice slice_01 was on its way, it goes on"; !strings.Contains(c.err.String(), want) {
			t.Errorf("it says %q, not %q", c.err, want)
		}
	})
	t.Run("the queue", func(t *testing.T) {
		t.Parallel()
		s := startFake(t)
		c := start(t, s, nil, "pool", "run", "--platform", "--group", "team-a", "--memory", "1GiB", "--", "true")
		c.err.wait(t, "slice slice_01 waits, 1 in the queue: all nodes are full", 1)
		c.cancel()
		c.end(t, exitInterrupted)
		c = start(t, s, nil, "pool", "slice", "list", "-o", "name")
		if c.end(t, 0); c.out.String() != "" {
			t.Errorf("the place in the queue is not given up: %s", c.out)
		}
	})
}

// What a command line says that would be ignored is refused, and both flags are named.
func TestPoolFlagsOfOthers(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const none = "unix:/nowhere/pool.sock"
	for _, x := range []struct {
		args  string
		node  string // $YUNHE_POOL_NODE
		wants string
	}{
		{args: "run --node NODE --spec small -- true", wants: "--spec is of a platform, and does not go with --node: a pool node is asked"},
		{args: "run --node NODE --server http://x -- true", wants: "--server is of a platform, and does not go with --node: a pool node is asked"},
		{args: "run --node NODE --platform -- true", wants: "--platform is of a platform, and does not go with --node: a pool node is asked"},
		{args: "run --node NODE --cards 2 --across-nodes -- true", wants: "--cards is of a platform, and does not go with --node: a pool node is asked"},
		{args: "run --node NODE --into DIR", wants: "--into is of a platform, and does not go with --node: a pool node is asked"},
		{args: "run --local first -- true", node: none, wants: "--local is of a platform, and does not go with $YUNHE_POOL_NODE: a pool node is asked"},
		{args: "run --platform --key-file KEY -- true", node: none, wants: "--key-file is of a group of one pool node, and does not go with --platform: the platform is asked"},
		{args: "run --key-file KEY -- true", wants: "--key-file is of a group of one pool node: name that with --node"},
		{args: "run --on n1 --device opencl-0 -- true", wants: "--device names a device of one pool node; one of the platform's pool is named by --on NODE/DEVICE"},
		{args: "run --slice slice_01 --compute 5 -- true", wants: "--compute does not go with --slice: what is held stays as it is"},
		{args: "run --spec small --memory 2GiB -- true", wants: "--memory does not go with --spec: a specification says how much"},
		{args: "slice hold --physical --weighted", wants: "--weighted does not go with --physical: a card is given whole"},
		{args: "devices --node NODE --server http://x", wants: "--server is of a platform, and does not go with --node: a pool node is asked"},
		{args: "tasks --context prod", wants: "--context is of a platform, and does not go with --node: a pool node is asked"},
		{args: "stop 01J --key yk_1", node: none, wants: "--key is of a platform, and does not go with $YUNHE_POOL_NODE: a pool node is asked"},
		{args: "devices --node nonsense", wants: `--node: "nonsense" is not the address of a pool node: unix:PATH, tcp:HOST:PORT, tls:HOST:PORT or rdma:HOST:PORT`},
		{args: "devices", node: "nonsense", wants: `$YUNHE_POOL_NODE: "nonsense" is not the address of a pool node: unix:PATH, tcp:HOST:PORT, tls:HOST:PORT or rdma:HOST:PORT`},
	} {
		args := strings.Fields(strings.NewReplacer("NODE", none, "KEY", key, "DIR", dir).Replace(x.args))
		c := start(t, s, func(c *cli) {
			before := c.env
			c.env = func(name string) string {
				if name == "YUNHE_POOL_NODE" {
					return x.node
				}
				return before(name)
			}
		}, append([]string{"pool"}, args...)...)
		c.end(t, exitUsage)
		if got, _, _ := strings.Cut(c.err.String(), "\n"); got != "error: "+x.wants {
			t.Errorf("%s: %q, want %q", x.args, got, x.wants)
		}
	}
	// A flag says more than the environment.
	c := start(t, s, func(c *cli) {
		before := c.env
		c.env = func(name string) string {
			if name == "YUNHE_POOL_NODE" {
				return none
			}
			return before(name)
		}
	}, "pool", "run", "--platform", "--group", "no", "--memory", "2GiB", "--", "true")
	c.end(t, exitFailed)
	if want := "there is no group of the pool that user admin may use"; !strings.Contains(c.err.String(), want) {
		t.Errorf("--platform: %s", c.err)
	}
}

// Who shows no key to a node that wants one is told how.
func TestPoolKeyIsMissing(t *testing.T) {
	t.Parallel()
	n := startPoolNode(t, map[string]string{"hello": `{"error":"no","kind":"unauthenticated"}`})
	s := startFake(t)
	for _, given := range [][]string{nil, {"--group", "a"}} {
		c := start(t, s, nil, append([]string{"pool", "devices", "--node", n.at}, given...)...)
		c.end(t, exitFailed)
		if want := "error: no\nhint: say for which group with --group, and with which key with --key-file\n"; c.err.String() != want {
			t.Errorf("%v: %q, want %q", given, c.err, want)
		}
	}
}

// What a program reads is an object with one array, also where there is nothing; what is
// done is said.
func TestPoolNodeAnswers(t *testing.T) {
	t.Parallel()
	n := startPoolNode(t, map[string]string{"devices": "{}", "tasks": "{}", "stop": "{}", "disable": "{}", "enable": "{}", "power": "{}"})
	s := startFake(t)
	for args, want := range map[string]string{
		"devices -o json":         "{\n  \"devices\": []\n}\n",
		"tasks -o json":           "{\n  \"tasks\": []\n}\n",
		"tasks -o name":           "",
		"stop 01J":                "01J  stopped\n",
		"stop 01J -o json":        "{\n  \"tasks\": [\n    \"01J\"\n  ]\n}\n",
		"disable opencl-0":        "opencl-0  disabled\n",
		"enable opencl-0 -o name": "opencl-0\n",
		"power opencl-0 200":      "opencl-0  draws at most 200 W\n",
		"power opencl-0 default":  "opencl-0  draws what its maker lets it\n",
	} {
		c := start(t, s, nil, append(append([]string{"pool"}, strings.Fields(args)...), "--node", n.at)...)
		if c.end(t, exitOK); c.out.String() != want {
			t.Errorf("%s: %q, want %q", args, c.out, want)
		}
	}
}
