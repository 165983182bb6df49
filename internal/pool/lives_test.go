//go:build linux

package pool_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// lives returns what runs shim/test/lives.c on a share of a node, by a transport.
func lives(t *testing.T, program, at, transport string) func(args ...string) *exec.Cmd {
	t.Helper()
	_, run := share(t, at, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 64 * mib})
	return func(args ...string) *exec.Cmd {
		cmd := run(append([]string{program}, args...)...)
		cmd.Env = append(cmd.Env, pool.TransportVariable+"="+transport)
		return cmd
	}
}

func livesProgram(t *testing.T) string {
	t.Helper()
	return compiled(t, "lives", "../../shim/test/lives.c", "-l:libOpenCL.so.1")
}

// TestClosesDescriptors: a program that closes descriptors which are not its own,
// in a loop, computes on; one that has the library's number for a connection of
// its own is told, and nothing is said or taken there.
func TestClosesDescriptors(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	program := livesProgram(t)
	for _, x := range []struct{ at, transport string }{{n.unix, "socket"}, {n.unix, "ring"}, {n.tcp, ""}} {
		run := lives(t, program, x.at, x.transport)
		for _, limit := range []string{"1024", "2000", "9000"} {
			for _, upto := range []string{"1024", "limit"} {
				if limit == "9000" && upto == "limit" {
					continue
				}
				cmd := run()
				cmd.Args = append([]string{"sh", "-c", `ulimit -Sn "$1" && exec "$2" closes "$3"`, "sh", limit, program}, upto)
				cmd.Path = "/bin/sh"
				if got, want := output(t, cmd), "limit "+limit+", before 1, after 1\n"; got != want {
					t.Errorf("%s: up to %s: %q, want %q", x.transport, upto, got, want)
				}
			}
		}
		for _, how := range []string{"at once", "later"} {
			got := output(t, run("foreign", how))
			const said, want = "yunhe pool: the program has closed the connection to its node", "fails -5, again -5, a child has it 1, said -1, heard 'what is said to the program' 28, open 1\n"
			if strings.Count(got, "yunhe pool:") != 1 || !strings.Contains(got, said) || !strings.HasSuffix(got, want) {
				t.Errorf("%s, %s: %q, want %q", x.transport, how, got, want)
			}
		}
	}
}

// TestForks: children of a program use what it has made and fail, or begin anew,
// all at once, and it computes on.
func TestForks(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	program := livesProgram(t)
	for _, x := range []struct{ at, transport string }{{n.unix, "socket"}, {n.unix, "ring"}, {n.tcp, ""}} {
		got := output(t, lives(t, program, x.at, x.transport)("forks", "6"))
		if !strings.HasSuffix(got, "parent 1, children that failed 0\n") || strings.Count(got, "a child process uses what its parent has made") != 6 {
			t.Errorf("%s: %s", x.transport, got)
		}
	}
}

// TestManyCallbacks: a program that asks for many functions to be called has no
// thread for each, and each is called.
func TestManyCallbacks(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	cmd := lives(t, livesProgram(t), n.unix, "")("notices", "10000")
	var more int
	said := &strings.Builder{}
	cmd.Stderr = said
	got, err := cmd.Output()
	const want = "called 10000 when all is done\ncalled 10000 from the last on\ncalled 200 in a chain, 0 with a wrong status\n"
	if err != nil || string(got) != want {
		t.Errorf("%v: %s%s", err, got, said)
	}
	if _, err := fmt.Sscanf(said.String(), "%d threads more", &more); err != nil || more > 70 {
		t.Errorf("for 10,000 callbacks it has %s", said)
	}
}

// TestProgramsAsTheyAre: what programs do to their signals, threads, stacks, pages and
// ends does not keep the library from computing rightly, over any path.
func TestProgramsAsTheyAre(t *testing.T) {
	t.Parallel()
	n, e := start(t, pool.NodeConfig{}), startAt(t, pool.NodeConfig{Encryption: true}, "tcp:127.0.0.1:0")
	program := livesProgram(t)
	for _, x := range []struct{ at, transport string }{{n.unix, "socket"}, {n.unix, "ring"}, {n.tcp, ""}, {e.tcp, ""}} {
		run := lives(t, program, x.at, x.transport)
		for args, want := range map[string]string{
			"signals 0": "threads that were right 5, signals 1\n", // calls of the system are not restarted
			"signals 1": "threads that were right 5, signals 1\n",
			"stacks 64": "right 1, threads 4\n", // KiB
			"many 1000": "threads that were right 1000\n",
			"cancels":   "right 20, canceled 8, then 1\n",
			"ends":      "at exit it computes 1\n",
			"guards":    "wrong 0, touched 1 and 1\n",
		} {
			if got := output(t, run(strings.Fields(args)...)); got != want {
				t.Errorf("%s %s: %s: %q, want %q", x.at, x.transport, args, got, want)
			}
		}
		var exit *exec.ExitError
		if out, err := run("ends", "abort").CombinedOutput(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGABRT {
			t.Errorf("%s %s: what aborts while it ends: %v: %s", x.at, x.transport, err, out)
		}
	}
}

// TestReopens: a program may close the loader and open it again; the library stays,
// with its one connection.
func TestReopens(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	program := compiled(t, "reopens", "../../shim/test/reopens.c", "-ldl")
	_, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	for name, cmd := range map[string]*exec.Cmd{"the system's loader": run(program, "20"), "ours": withLoader(run(program, "20"))} {
		if got := output(t, cmd); got != "right 20, called 20, sockets 1\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestSanitized: the client library reads and writes nothing that is not its own, does
// nothing that C leaves open, and its threads do not race, whatever programs do.
func TestSanitized(t *testing.T) {
	t.Parallel()
	n, other := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	sources, err := filepath.Glob("../../shim/src/*.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range []string{"address,undefined", "thread"} {
		t.Run(check, func(t *testing.T) {
			dir := t.TempDir()
			build := func(name string, args ...string) string {
				t.Helper()
				path := filepath.Join(dir, name)
				args = append([]string{"-std=gnu11", "-O1", "-g", "-fsanitize=" + check, "-fno-sanitize-recover=all", "-pthread", "-o", path}, args...)
				if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil && strings.Contains(string(out), "san") {
					t.Skipf("SKIPPED: gcc has not what checks %s: %s", check, out)
				} else if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				return path
			}
			library := build("library.so", append([]string{"-fPIC", "-shared", "-fvisibility=hidden"}, append(sources, "-ldl")...)...)
			file := func(name, text string) string {
				t.Helper()
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			}
			vendor := file("yunhe.icd", library+"\n")
			known := file("known", "race:_dl_deallocate_tls\n") // a thread's memory of a library that was loaded later, when it has ended
			programs := map[string]string{}
			for _, name := range []string{"lives", "habits", "walk", "graph", "pool"} {
				programs[name] = build(name, "../../shim/test/"+name+".c", "-l:libOpenCL.so.1")
			}
			sanitized := func(args, transport string, run func(args ...string) *exec.Cmd) {
				t.Helper()
				words := strings.Fields(args)
				cmd := run(append([]string{programs[words[0]]}, words[1:]...)...)
				cmd.Env = append(cmd.Env, "OCL_ICD_VENDORS="+vendor, pool.TransportVariable+"="+transport, "ASAN_OPTIONS=detect_leaks=0", "TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:suppressions="+known)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
				err := cmd.Start()
				if err == nil {
					ends := time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGABRT) })
					err = cmd.Wait()
					ends.Stop()
				}
				if err != nil {
					t.Errorf("%s %s: %v: %s", args, transport, err, &out)
				}
			}
			near, far := over(t, n.unix, other.tcp), over(t, n.tcp, other.tcp)
			for _, args := range []string{"pool cards 1", "graph 5 6", "walk 3 200 1", "walk 2 200 0"} {
				sanitized(args, "", near)
			}
			for _, args := range []string{"pool cards 1", "graph 6 6"} {
				sanitized(args, "", far)
			}
			for _, x := range []struct{ at, transport string }{{n.unix, "ring"}, {n.tcp, ""}} {
				_, run := share(t, x.at, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 256 * mib})
				all := []string{"lives many 20", "lives cancels", "lives ends", "lives forks 2", "lives notices 200", "lives foreign later"}
				if check != "thread" { // gcc 12's leaves signals blocked at times, whatever the program is
					all = append(all, "lives signals 0")
				}
				if x.transport == "ring" {
					all = append(all, "lives guards", "habits")
				}
				for _, args := range all {
					sanitized(args, x.transport, run)
				}
			}
		})
	}
}

// TestProgramsShareSlice: what a program starts computes on its slice, all at once; who
// comes to a slice that has a program is told what to do.
func TestProgramsShareSlice(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	program := livesProgram(t)
	_, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	cmd := run("/bin/sh", "-c", `"$0" many 20 & "$0" stacks 64 & "$0" signals 1 & "$0" guards & wait`, program)
	lines := strings.Split(output(t, cmd), "\n")
	for _, want := range []string{"threads that were right 20", "right 1, threads 4", "threads that were right 5, signals 1", "wrong 0, touched 1 and 1"} {
		if !slices.Contains(lines, want) {
			t.Errorf("jobs of a shell: no %q in %q", want, lines)
		}
	}
	m := joined(t, "a")
	r := <-m.told
	close(m.gate)
	redeem := func(serial string) (*pool.Client, error) {
		text, key := m.pass(t, r, "s", serial, false)
		client, _, _, _, err := pool.Pass{Slice: "s", Addresses: m.at, Host: pool.Host(), Ticket: text, Key: key}.Redeem(t.Context())
		return client, err
	}
	first, err := redeem("one")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := redeem("two"); fault.KindOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "start others from it") {
		t.Errorf("a second run on a slice: %v", err)
	}
}
