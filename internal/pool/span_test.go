//go:build linux

package pool_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
)

// over returns what runs a program that has a share at each of some addresses.
func over(t *testing.T, at ...string) func(args ...string) *exec.Cmd {
	t.Helper()
	return with(t, shares(t, pool.Spec{Device: "opencl-0", Compute: 10, Memory: 64 * mib}, at...))
}

// with returns what runs a program with an environment.
func with(t *testing.T, env []string) func(args ...string) *exec.Cmd {
	return func(args ...string) *exec.Cmd {
		cmd := program(t, "", "", "", args...)
		cmd.Env = append(cmd.Env, env...)
		return cmd
	}
}

// TestCards: a program that was not changed has cards of two nodes in one
// context. What one wrote the other reads, whole and in parts, in buffers and
// images, mapped and copied, and events wait for what is elsewhere.
func TestCards(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s\n%s", a.log, b.log)
		}
	})
	for _, at := range [][]string{{a.unix, b.tcp}, {a.tcp, b.tcp}, {a.unix, b.unix, b.tcp}, {a.unix}} {
		if got, want := output(t, over(t, at...)("cards", "4")), fmt.Sprintf("cards %d\nrounds 4\n", len(at)); got != want {
			t.Errorf("%v: got %q, want %q", at, got, want)
		}
	}
	// A program that uses one device only does not see that there is another.
	if got, want := output(t, over(t, a.unix, b.tcp)("add", "4")), native(t, "add", "4"); got != want {
		t.Errorf("on the first of two cards: %q, natively %q", got, want)
	}
	// What is released while it is mapped or has parts goes when it is not, in the order in which it does natively.
	habits := compiled(t, "habits", "../../shim/test/habits.c", "-l:libOpenCL.so.1")
	want, err := exec.CommandContext(t.Context(), habits, "all").Output()
	if err != nil {
		t.Fatalf("natively: %v", err)
	}
	for _, at := range [][]string{{a.unix, b.tcp}, {a.tcp, b.unix}} {
		if got := output(t, over(t, at...)(habits, "all")); got != string(want) {
			t.Errorf("%v: got\n%s\nwant\n%s", at, got, want)
		}
	}
	if clinfo, err := exec.LookPath("clinfo"); err == nil {
		got := output(t, over(t, a.unix, b.tcp)(clinfo, "--raw"))
		if n := len(regexp.MustCompile(`(?m)CL_DEVICE_GLOBAL_MEM_SIZE +67108864$`).FindAllString(got, -1)); n != 2 {
			t.Errorf("clinfo shows %d devices of 64 MiB, not 2:\n%s", n, got)
		}
	}
}

// TestCardsApart: while one card computes for long nobody waits for that who need
// not: neither who sets an event that a command there and elsewhere waits for, nor
// a thread that uses another card while one waits for what the first computes, nor a
// call whose command waits for that. What each reads was written before, also beside
// callbacks of the program's that do not return.
func TestCardsApart(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	env := shares(t, pool.Spec{Device: "opencl-0", Memory: 64 * mib}, a.unix, b.tcp)
	if got := output(t, with(t, env)("apart")); got != "apart\n" {
		t.Error(got)
	}
}

// TestCardsMemory: the cards' memory is one store: buffers that are used at one
// of them only need no room at the other.
func TestCardsMemory(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	if got, want := output(t, over(t, a.unix, b.tcp)("store", "200")), "buffers 128 of 2 cards\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// keeps has a program go on with its two cards; when one of them is gone fails sees that it ends.
func keeps(t *testing.T, cards func(args ...string) *exec.Cmd) (fails func()) {
	t.Helper()
	cmd := cards("cards", "1000000")
	_, said := converse(t, cmd)
	if line, _ := said.ReadString('\n'); line != "cards 2\n" {
		t.Fatalf("it says %q", line)
	}
	return func() {
		t.Helper()
		if line, _ := said.ReadString('\n'); !strings.HasPrefix(line, "failed ") {
			t.Errorf("after a node's end it says %q", line)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("it ends without an error")
		}
	}
}

// TestCardsCut: when one of the nodes ends, the program's calls fail; none waits for ever.
func TestCardsCut(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	fails := keeps(t, over(t, a.unix, b.tcp))
	b.stop()
	fails()
	if got := output(t, over(t, a.unix)("cards", "1")); got != "cards 1\nrounds 1\n" {
		t.Errorf("the other node: %q", got)
	}
}

// TestWalk: after the same random steps on memory of all kinds programs read the
// same natively and in the pool, of one node and of two.
func TestWalk(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	walk := compiled(t, "walk", "../../shim/test/walk.c", "-l:libOpenCL.so.1")
	for _, at := range [][]string{{a.unix}, {a.tcp}, {a.unix, b.tcp}} {
		run := over(t, at...)
		for seed := range 4 {
			args := []string{strconv.Itoa(seed), "400", strconv.Itoa(seed % 2)}
			want, err := exec.CommandContext(t.Context(), walk, args...).Output()
			if err != nil {
				t.Fatalf("natively: %v", err)
			}
			if got := output(t, run(append([]string{walk}, args...)...)); got != string(want) {
				t.Errorf("%v, seed %d: %s", at, seed, firstDifference(got, string(want)))
			}
		}
	}
}

// TestGraph: whatever order queues of one device or of two nodes' run commands in,
// each reads what was written by those that it waits for, where no more of them are
// named than must be, and events that the program sets later hold back the rest.
func TestGraph(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	graph := compiled(t, "graph", "../../shim/test/graph.c", "-l:libOpenCL.so.1")
	for _, at := range [][]string{nil, {a.unix}, {a.unix, b.tcp}, {a.tcp, b.unix}} {
		run := func(args ...string) *exec.Cmd { return exec.CommandContext(t.Context(), args[0], args[1:]...) }
		if at != nil {
			run = over(t, at...)
		}
		for seed := range 2 {
			args := []string{graph, strconv.Itoa(2*len(at) + seed), "10"}
			if got, want := output(t, run(args...)), fmt.Sprintf("graph %s %s rounds\n", args[1], args[2]); got != want {
				t.Errorf("%v: got %q, want %q", at, got, want)
			}
		}
	}
}

func firstDifference(got, want string) string {
	w := strings.Split(want, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(w) || line != w[i] {
			return fmt.Sprintf("line %d is %q, natively %q, after\n%s", i, line, w[min(i, len(w)-1)], strings.Join(w[max(0, i-20):min(i, len(w))], "\n"))
		}
	}
	return fmt.Sprintf("it ends after line %d of %d", strings.Count(got, "\n"), len(w))
}
