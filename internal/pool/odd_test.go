//go:build linux

package pool_test

import (
	"os/exec"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
)

// TestOdd: calls that are wrong or odd, where nothing else was, come to the same
// natively and in the pool, of one node and of two.
func TestOdd(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	odd := compiled(t, "odd", "../../shim/test/odd.c", "-rdynamic", "-l:libOpenCL.so.1")
	standard := map[string]string{
		"forked":   "the child 0, its parent 1\n",
		"loose":    "mapped 5\nmapped 5\n", // PoCL waits for ever
		"samplers": "they read 20\n",       // PoCL looks where they were
		// PoCL ends the program, or says that a part has gone while it is used.
		"waits": "wrong: -36 -30 -30 -58 -30\n" + strings.Repeat("behind it 0 0, then 1 1\n", 4),
		"newer": "-59 -59\n", // behind PoCL's table is anything
		"links": "not compiled -59\nbroken -15, linked -59\nlinked 0 1\nwith a kernel -59, it is of -cl-kernel-arg-info -DX=1 and has named\n",
		"twice": "images -38 -38\nof another context -65\nsampler -30\nqueue -30\nbuffer -30\n",
		"ends":  strings.Repeat("gone 0, then the part 1, the buffer 2, the context 3\n", 4),
	}
	for _, at := range [][]string{{a.unix}, {a.tcp}, {a.unix, b.tcp}} {
		cases, all, run := "arguments huge refused behind loose clones clocks forked samplers waits empty links twice ends newer", "", over(t, at...)
		if len(at) > 1 {
			all = "all"
		}
		for name := range strings.FieldsSeq(cases) {
			want := standard[name]
			if want == "" {
				out, err := exec.CommandContext(t.Context(), odd, name).Output()
				if err != nil {
					t.Fatalf("%s, natively: %v: %s", name, err, out)
				}
				want = string(out)
			}
			if got, err := run(odd, name, all).CombinedOutput(); err != nil || string(got) != want {
				t.Errorf("%s, %v: %v\n%swant\n%s", name, at, err, got, want)
			}
		}
	}
}

// TestOddDriver: an image of depths is filled with what the program has, and no extension
// is shown that a program could not use.
func TestOddDriver(t *testing.T) {
	of(t, "depths", compiled(t, "libdepths.so", "-shared", "-fPIC", "testdata/depths.c", "-ldl"))
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	odd := compiled(t, "odd", "../../shim/test/odd.c", "-rdynamic", "-l:libOpenCL.so.1")
	for _, at := range [][]string{{a.unix}, {a.tcp}, {a.unix, b.tcp}} {
		all, run := "", over(t, at...)
		if len(at) > 1 {
			all = "all"
		}
		for name, want := range map[string]string{"depths": "it has 0.25 and 0.25\n", "extensions": "cl_khr_fp64\ncl_khr_depth_images\n"} {
			if got, err := run(odd, name, all).CombinedOutput(); err != nil || string(got) != want {
				t.Errorf("%s, %v: %v\n%swant\n%s", name, at, err, got, want)
			}
		}
	}
}
