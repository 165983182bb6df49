//go:build linux

package pool_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/pool"
)

// TestMusl: programs of musl's C library (Alpine) load the same client library and loader as
// those of glibc, and say the same: over the ring, over TCP and with cards of two nodes.
func TestMusl(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	link := filepath.Join(loader(), "libOpenCL.so.1")
	near, far, cards, apart := over(t, a.unix), over(t, a.tcp), over(t, a.unix, b.tcp), over(t, a.tcp, b.tcp)
	type way = func(args ...string) *exec.Cmd
	for _, c := range []struct {
		name string
		args []string
		ways []way
	}{
		{"pool", []string{"add", "4"}, []way{near, far}},
		{"habits", []string{"all"}, []way{near, far, cards}},
		{"walk", []string{"3", "400", "1"}, []way{near, far, cards}},
		{"graph", []string{"7", "10"}, []way{near, far, cards, apart}},
	} {
		source := "../../shim/test/" + c.name + ".c"
		musl := enginetest.Musl(t, source, link)
		natively := compiled(t, c.name, source, "-l:libOpenCL.so.1")
		want, err := exec.CommandContext(t.Context(), natively, c.args...).Output()
		if err != nil {
			t.Fatalf("%s natively: %v", c.name, err)
		}
		for i, run := range c.ways {
			if got := output(t, withLoader(run(append([]string{musl}, c.args...)...))); got != string(want) {
				t.Errorf("%s, way %d: %s", c.name, i, firstDifference(got, string(want)))
			}
		}
	}
	// A loader of the system's opens the library.
	vendor := enginetest.Musl(t, "testdata/vendor.c")
	if got := output(t, apart(vendor, filepath.Join(filepath.Dir(loader()), "libyunhe-pool.so"))); got != "platforms 1 devices 2\n" {
		t.Errorf("opened by a loader: %q", got)
	}
}
