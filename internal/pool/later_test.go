//go:build linux

package pool_test

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// TestLater: what OpenCL 2.1 and 2.2 tell of clocks and sub-groups, and constants of programs
// in intermediate language, are a program's in the pool, too, if the driver has
// them: on this machine, over TCP, with cards of two nodes, and when it moves
// before a program is built, when it is, and before it is built again. It is not
// parallel: which driver there is is said by the environment.
func TestLater(t *testing.T) {
	later := compiled(t, "later", "../../shim/test/later.c", "-l:libOpenCL.so.1")
	spec := pool.Spec{Device: "opencl-0", Compute: 20, Memory: 64 * mib}
	for name, args := range map[string][]string{"2.1": nil, "2.0": {"-DOLD"}} {
		t.Run(name, func(t *testing.T) {
			of(t, "later", compiled(t, "liblater.so", append(args, "-shared", "-fPIC", "testdata/later.c", "-ldl")...))
			natively, err := exec.CommandContext(t.Context(), later).CombinedOutput()
			if err != nil || !strings.Contains(string(natively), "2034 of 16: 0, 8 bytes: 10 77") {
				t.Fatalf("natively %v: %s", err, natively)
			}
			a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
			for _, at := range []string{a.unix, a.tcp} {
				_, run := share(t, at, spec)
				if got := output(t, run(later)); got != string(natively) {
					t.Errorf("%s: got\n%s\nnatively\n%s", at, got, natively)
				}
			}
			before, token := ask(t, a.tcp, spec)
			got := output(t, program(t, ofBefore(t, a.tcp), before.ID, token, later))
			if name == "2.1" && (!strings.Contains(got, "timers of 0 ns: -59 -59 -59") || !strings.Contains(got, "2034 of 16: -59") || !strings.Contains(got, "constants 101: 0")) {
				t.Errorf("by a worker of before: got\n%s", got)
			}
			libraries, _ := built() // start saw that it is
			cmd := exec.CommandContext(t.Context(), later)
			cmd.Env = append(append(cmd.Environ(), "OCL_ICD_VENDORS="+libraries.vendors), shares(t, spec, a.unix, b.tcp)...)
			said := func(text string) []string { // by any device
				lines := strings.Split(text, "\n")
				slices.Sort(lines)
				return slices.Compact(lines)
			}
			if got = output(t, cmd); !slices.Equal(said(got), said(string(natively))) {
				t.Errorf("with cards of two nodes: got\n%s\nnatively\n%s", got, natively)
			}
			task, run := share(t, a.tcp, spec)
			in, out := converse(t, run(later))
			at, to := a.tcp, b.tcp
			var all strings.Builder
			for {
				line, err := out.ReadString('\n')
				all.WriteString(line)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if line != "step\n" {
					continue
				}
				if _, _, err := dial(t, at).Migrate(task.ID, to, ""); err != nil {
					t.Fatalf("it does not move: %v\n%s\n%s", err, a.log, b.log)
				}
				at, to = to, at
				_, _ = io.WriteString(in, "\n")
			}
			if all.String() != string(natively) {
				t.Errorf("moved: got\n%s\nnatively\n%s", all.String(), natively)
			}
		})
	}
}

// ofBefore is an address at which a node is reached whose workers do not say that
// they know what came later.
func ofBefore(t *testing.T, at string) string {
	const flags = 8 + 32 + 10 // behind greeting and challenge, in the worker's first
	return door(t, at, func(from, node net.Conn) {
		go func() { _, _ = io.Copy(node, from); _ = node.Close() }()
		first := make([]byte, flags+1)
		for i := range first { // the program answers the challenge first
			if _, err := io.ReadFull(node, first[i:i+1]); err != nil {
				t.Error(err)
			}
			if i == flags {
				first[i] &^= wire.FlagLater
			}
			_, _ = from.Write(first[i : i+1])
		}
		_, _ = io.Copy(from, node)
		_ = from.Close()
	})
}

// TestMoveKeeps: a program with variables of its own on the device does not move,
// as nobody can read them, and they stay as they are. It is not parallel, as above.
func TestMoveKeeps(t *testing.T) {
	program := compiled(t, "later", "../../shim/test/later.c", "-l:libOpenCL.so.1")
	of(t, "later", compiled(t, "liblater.so", "-shared", "-fPIC", "testdata/later.c", "-ldl"))
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	task, run := share(t, a.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	in, out := converse(t, run(program, "keeps"))
	for i := range 3 {
		line, err := out.ReadString('\n')
		if want := fmt.Sprintf("of 4 bytes: %d\n", 5+i); line != want {
			t.Fatalf("it says %q, not %q: %v", line, want, err)
		}
		if _, _, err := dial(t, a.tcp).Migrate(task.ID, b.tcp, ""); err == nil || !strings.Contains(err.Error(), "has variables of its own") {
			t.Errorf("it moves: %v", err)
		}
		_, _ = out.ReadString('\n') // step
		_, _ = io.WriteString(in, "\n")
	}
}

// TestLacks: of what the pool does not have, pipes and queues on devices, it tells
// nothing, whatever the driver has. It is not parallel, as above.
func TestLacks(t *testing.T) {
	program := compiled(t, "later", "../../shim/test/later.c", "-l:libOpenCL.so.1")
	of(t, "later", compiled(t, "liblater.so", "-shared", "-fPIC", "testdata/later.c", "-ldl"))
	natively, err := exec.CommandContext(t.Context(), program, "lacks").CombinedOutput()
	if err != nil || !strings.Contains(string(natively), " __opencl_c_pipes __opencl_c_fp64 __opencl_c_device_enqueue -30") {
		t.Fatalf("natively %v: %s", err, natively)
	}
	n := start(t, pool.NodeConfig{})
	_, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	if got, want := output(t, run(program, "lacks")), "4:0 4:0 4:0 4:0 8:0 8:0 4:0 4:0 4:0 4:0 __opencl_c_fp64 -30\n"; got != want {
		t.Errorf("it tells %q, not %q", got, want)
	}
}
