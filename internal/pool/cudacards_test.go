//go:build linux

package pool_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/pool"
)

// cards asks for a slice of each device and returns the tasks with what runs the
// program on all of them.
func (n cudaNode) cards(t *testing.T, specs ...pool.Spec) ([]pool.Task, func(args ...string) *exec.Cmd) {
	t.Helper()
	var tasks []pool.Task
	var env []string
	for i, s := range specs {
		task, token := ask(t, n.unix, s)
		tasks = append(tasks, task)
		env = append(env, pool.Environment(i, pool.CUDA, n.unix, task.ID, token)...)
	}
	return tasks, func(args ...string) *exec.Cmd {
		cmd := n.run(t, n.unix, tasks[0].ID, "", args...)
		cmd.Env = append(cmd.Env, env...)
		return cmd
	}
}

// TestCUDACards: a program with slices of two cards sees both, in their order, each with
// its slice's memory; what it has is of the card that it says, or that is current, and
// each is charged what was computed on it.
func TestCUDACards(t *testing.T) {
	n := startCUDA(t)
	const alone = 30_000 // microseconds on the first; twice that on the second
	for _, way := range []string{"linked", "dlsym", "proc", "proc-own"} {
		tasks, run := n.cards(t, pool.Spec{Device: "cuda-1", Compute: 50, Memory: 37 * mib}, pool.Spec{Device: "cuda-0", Compute: 50, Memory: 53 * mib})
		want := "0000:65:00.0 0000:17:00.0, then 101\n" +
			"card 0 has 37 MiB, 36 of 37 free, then it uses 10, 6, 11\n" +
			"card 1 has 53 MiB, 52 of 53 free, then it uses 10, 6, 11\n" +
			"sum 6\n" +
			"at the end 0, at the end 0\n"
		if got := output(t, run(way, "cards", fmt.Sprint(alone))); got != want {
			t.Errorf("%s: got %q, want %q", way, got, want)
		}
		if a, b := n.show(t, tasks[0].ID).Busy, n.show(t, tasks[1].ID).Busy; a < alone*time.Microsecond || b < 2*alone*time.Microsecond || b < a {
			t.Errorf("%s: charged %v and %v", way, a, b)
		}
		for _, k := range tasks {
			if err := dial(t, n.unix).Stop(k.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestCUDACardsShown: a program sees of its cards those that its list names, by the
// machine's numbers, by UUID, or by their places among its own; a list of others' shows all.
func TestCUDACardsShown(t *testing.T) {
	n := startCUDA(t)
	const first, second = "GPU-02020202-0202-0202-0202-020202020202", "GPU-01010101-0101-0101-0101-010101010101"
	const a, b = "0000:65:00.0", "0000:17:00.0"
	_, run := n.cards(t, pool.Spec{Device: "cuda-1", Compute: 50, Memory: 37 * mib}, pool.Spec{Device: "cuda-0", Compute: 50, Memory: 53 * mib})
	for _, c := range []struct{ given, list, want string }{
		{"1,0", "1,0", a + " " + b},
		{"1,0", "1", a},
		{"1,0", "0", b},
		{"1,0", "0, 1", b + " " + a},
		{"1,0", "0,7,1", b},
		{"1,0", "0,0", b},
		{"0,2", "0,1", a + " " + b}, // the first number is one of the machine's, but not the second
		{"0,2", "0,2", a + " " + b},
		{"0,2", "2,0", b + " " + a},
		{"0,2", "2,5", b},
		{"1,0", "7", a + " " + b},
		{"1,0", second, b},
		{"1,0", "GPU-02," + second, a + " " + b},
		{"5,7", "7", b},
		{"5,7", "0", a},
		{"5,7", "1,0", b + " " + a},
		{first + "," + second, "1", b},
	} {
		cmd := run("proc", "shows")
		cmd.Env = append(cmd.Env, "YUNHE_POOL_CARD="+first+","+second, "YUNHE_POOL_VISIBLE="+c.given, "CUDA_VISIBLE_DEVICES="+c.list)
		if got := output(t, cmd); got != c.want+", then 101\n" {
			t.Errorf("of %s with %q: got %q, want %s", c.given, c.list, got, c.want)
		}
	}
	cmd := run("proc", "shows")
	cmd.Env = append(cmd.Env, "YUNHE_POOL_CARD="+first+","+second, "YUNHE_POOL_VISIBLE=1,0", "CUDA_VISIBLE_DEVICES=-1")
	if out, err := cmd.CombinedOutput(); err == nil || string(out) != "cuInit: error 100\n" {
		t.Errorf("a program that hides all: %v: %s", err, out)
	}
}

// TestCUDACardsGreen: work that a thread gives a stream of a green context, which is current
// to another, is the card's that it is computed on, and so is its memory.
func TestCUDACardsGreen(t *testing.T) {
	n := startCUDA(t)
	const micros = 40_000
	tasks, run := n.cards(t, pool.Spec{Device: "cuda-1", Compute: 50, Memory: 37 * mib}, pool.Spec{Device: "cuda-0", Compute: 50, Memory: 53 * mib})
	if got, want := output(t, run("proc", "lends", fmt.Sprint(micros))), "0000:65:00.0 0000:17:00.0, then 101\nthe first has 0, the second 1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if a, b := n.show(t, tasks[0].ID).Busy, n.show(t, tasks[1].ID).Busy; a >= micros*time.Microsecond || b < micros*time.Microsecond {
		t.Errorf("charged %v and %v", a, b)
	}
}

// TestCUDACardsApart: who waits for a turn of one card computes on another meanwhile; and
// programs whose kernels wait for each other's turns all end, as a card waits for none
// that does not end.
func TestCUDACardsApart(t *testing.T) {
	n := startCUDA(t)
	specs := []pool.Spec{{Device: "cuda-0", Compute: 30, Memory: 37 * mib}, {Device: "cuda-1", Compute: 30, Memory: 37 * mib}}
	_, run := n.cards(t, specs...)
	_, neighbor := n.share(t, pool.Spec{Device: "cuda-0", Compute: 30, Memory: mib})
	long := hold(t, neighbor("proc", "long", "2000000"))
	if got := long.line(t); got != "began" {
		t.Fatal(got)
	}
	if got := output(t, run("proc", "apart")); !strings.HasSuffix(got, "asks\nsecond\nfirst\n") {
		t.Errorf("while another has the first card: %q", got)
	}
	_ = long.cmd.Wait()
	if got := output(t, run("proc", "apart-ends")); !strings.HasSuffix(got, "101\nended\n") {
		t.Errorf("a context that ends while its card waits for another: %q", got)
	}

	tasks, other := n.cards(t, specs...)
	gangs := []*holding{hold(t, run("proc", "gang", "0")), hold(t, other("proc", "gang", "1"))}
	for _, g := range gangs {
		if a, b := g.line(t), g.line(t); a != "0000:17:00.0 0000:65:00.0, then 101" || b != "waits" {
			t.Fatal(a, b)
		}
	}
	for _, g := range gangs {
		if _, err := g.in.Write([]byte("g")); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range gangs {
		if got := g.line(t); got != "ended" {
			t.Error(got)
		}
		_ = g.cmd.Wait()
	}

	// One that is killed while a card computes leaves nothing at either.
	killed := hold(t, other("proc", "gang", "0"))
	if a, b := killed.line(t), killed.line(t); b != "waits" {
		t.Fatal(a, b)
	}
	if a, b := n.show(t, tasks[0].ID), n.show(t, tasks[1].ID); a.Programs != 1 || b.Programs != 1 || a.Used != mib {
		t.Errorf("it has %+v and %+v", a, b)
	}
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.cmd.Wait()
	for at := time.Now(); ; {
		a, b := n.show(t, tasks[0].ID), n.show(t, tasks[1].ID)
		if a.Programs+b.Programs == 0 && a.Used+b.Used == 0 {
			break
		}
		if time.Since(at) > 2*time.Second {
			t.Fatalf("it was killed, and has %+v and %+v", a, b)
		}
	}
	if got := output(t, other("proc", "shows")); got != "0000:17:00.0 0000:65:00.0, then 101\n" {
		t.Errorf("after it: %q", got)
	}
}

// TestCUDASanitized: the library reads and writes nothing that is not its own, does nothing
// that C leaves open, and its threads do not race, with one card and with several.
func TestCUDASanitized(t *testing.T) {
	t.Parallel()
	n := startCUDA(t)
	for check, runtime := range map[string]string{"address,undefined": "libasan.so", "thread": "libtsan.so"} {
		t.Run(check, func(t *testing.T) {
			dir := t.TempDir()
			gcc := func(args ...string) string {
				t.Helper()
				out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput()
				if err != nil && strings.Contains(string(out), "san") {
					t.Skipf("SKIPPED: gcc has not what checks %s: %s", check, out)
				} else if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				return strings.TrimSpace(string(out))
			}
			checked := []string{"-std=gnu11", "-O1", "-g", "-fsanitize=" + check, "-fno-sanitize-recover=all", "-pthread"}
			sources, err := filepath.Glob("../../shim/cuda/*.c")
			if err != nil {
				t.Fatal(err)
			}
			hook := slices.IndexFunc(sources, func(s string) bool { return strings.HasSuffix(s, "/hook.c") }) // what checks calls its dlsym before it begins
			gcc("-std=gnu11", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-DDEFINES_DLOPEN", "-c", "-o", dir+"/hook.o", sources[hook])
			gcc(slices.Concat(checked, []string{"-fPIC", "-shared", "-fvisibility=hidden", "-DDEFINES_DLOPEN", "-o", dir + "/library.so", dir + "/hook.o"}, slices.Delete(sources, hook, hook+1), []string{"../../shim/src/given.c", "../../shim/src/own.c", "../../shim/src/sha256.c", "-ldl"})...)
			gcc(slices.Concat(checked, []string{"-o", dir + "/program", "../../shim/test/cuda.c", "-L" + n.driver, "-l:libcuda.so.1", "-ldl"})...)
			preload := "LD_PRELOAD=" + gcc("-print-file-name="+runtime) + ":" + dir + "/library.so"
			sanitized := func(cmd *exec.Cmd) *exec.Cmd {
				cmd.Path = dir + "/program"
				cmd.Env = append(cmd.Env, preload, "ASAN_OPTIONS=detect_leaks=0", "TSAN_OPTIONS=halt_on_error=1:die_after_fork=0")
				return cmd
			}
			one, share := n.share(t, pool.Spec{Device: "cuda-0", Compute: 20, Memory: 60 * mib})
			tasks, cards := n.cards(t, pool.Spec{Device: "cuda-0", Compute: 30, Memory: 60 * mib}, pool.Spec{Device: "cuda-1", Compute: 30, Memory: 60 * mib})
			beside := hold(t, sanitized(share("proc", "rate", "500", "4"))) // who wants a card, too
			if got := beside.line(t); got != "ready" {
				t.Fatal(got)
			}
			if _, err := beside.in.Write([]byte("g")); err != nil {
				t.Fatal(err)
			}
			for _, args := range []string{"cards 2000", "lends 3000", "apart", "apart-ends", "shows"} {
				if out, err := sanitized(cards(append([]string{"proc"}, strings.Fields(args)...)...)).CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s", args, err, out)
				}
			}
			if got := beside.line(t); !strings.HasPrefix(got, "did ") || beside.cmd.Wait() != nil {
				t.Errorf("beside them: %q", got)
			}
			for _, args := range []string{"kinds", "fill", "greens 2000 1", "contexts", "canceled", "forks", "pools", "imports", "add 5"} {
				if out, err := sanitized(share(append([]string{"linked"}, strings.Fields(args)...)...)).CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s", args, err, out)
				}
			}
			for _, k := range append(tasks, one) {
				if err := dial(t, n.unix).Stop(k.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
