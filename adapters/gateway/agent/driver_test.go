//go:build linux

package agent

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// TestDriver: a run whose shares are local is shown its node's socket, and one for CUDA
// the driver's libraries and the files of its own cards; what is not there refuses it.
func TestDriver(t *testing.T) {
	t.Parallel()
	root := fakeMachine(t, "nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm")
	for minor, bus := range []string{"0000:9b:00.0", "0000:17:00.0", "0000:65:00.0"} {
		dir := filepath.Join(root, pool.NVIDIACards, bus)
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "information"), fmt.Appendf(nil, "Model: \t FAKE\nDevice Minor: \t %d\n", minor), 0o644))
	}
	driver := t.TempDir()
	for _, name := range []string{"libcuda.so.550.1", "libnvidia-ml.so.1", "libGLX_nvidia.so.0"} {
		must(t, os.WriteFile(filepath.Join(driver, name), nil, 0o644))
	}
	must(t, os.Symlink("libcuda.so.550.1", filepath.Join(driver, "libcuda.so.1")))
	short, err := os.MkdirTemp("", "yp") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	nodes := []string{t.TempDir(), short, t.TempDir()} // of them the first is none's, the last of a version before
	for i, name := range []string{"", "n1", "n2"} {
		if name != "" {
			must(t, os.WriteFile(filepath.Join(nodes[i], "membership.json"), []byte(`{"platform":"p","node":"`+name+`","secret":"00"}`), 0o600))
		}
	}
	must(t, os.Mkdir(filepath.Join(nodes[1], pool.SharedFolder), 0o755))
	l, err := net.Listen("unix", filepath.Join(nodes[1], pool.SharedSocket))
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	devs, err := newDevices(root, true)
	must(t, err)
	a := &Agent{cfg: Config{PoolNodes: nodes, PoolLibraries: driver, Dir: t.TempDir()}, lends: true, devices: devs, log: slog.New(slog.DiscardHandler)}
	if !slices.Equal(a.poolNodes(), []string{"n1", "n2"}) || !slices.Contains(a.features(), adapterv1.Feature_FEATURE_POOL_LOCAL) {
		t.Errorf("its nodes are %v, and it offers %v", a.poolNodes(), a.features())
	}
	share := func(local bool, api string, passes ...*adapterv1.PoolPass) (*sandbox.Spec, error) {
		spec := &sandbox.Spec{Command: "true", Env: map[string]string{"LD_LIBRARY_PATH": "/mine", "LD_PRELOAD": "mine.so", "CUDA_VISIBLE_DEVICES": "0"}}
		return spec, a.share(spec, &adapterv1.PoolShares{Passes: passes, Api: api, Local: local})
	}
	pass := func(node, bus string) *adapterv1.PoolPass {
		return &adapterv1.PoolPass{SliceId: "s", Addresses: []string{"tcp:10.0.0.1:1"}, Host: pool.Host(), NodeId: node, Bus: bus}
	}
	shown := func(spec *sandbox.Spec) string {
		var out []string
		for _, x := range spec.Devices {
			out = append(out, x.Path)
		}
		for _, x := range spec.Tools {
			out = append(out, strings.TrimPrefix(x.Path, "/run/yunhe-pool/"))
		}
		return strings.Join(out, " ")
	}

	spec, err := share(true, pool.CUDA, pass("n1", "0000:65:00.0"), pass("n1", "0000:9B:00.0"))
	must(t, err)
	if got, want := shown(spec), "/dev/nvidia2 /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia0 node-1 driver/libcuda.so.1 driver/libcuda.so.550.1 driver/libnvidia-ml.so.1 yunhe lib"; got != want {
		t.Errorf("it is shown %s, want %s", got, want)
	}
	if i := slices.IndexFunc(spec.Tools, func(x sandbox.Tool) bool { return strings.HasSuffix(x.Path, "/libcuda.so.1") }); spec.Tools[i].Source != filepath.Join(driver, "libcuda.so.550.1") {
		t.Errorf("the driver is %v", spec.Tools[i])
	}
	for name, want := range map[string]string{"LD_LIBRARY_PATH": "/run/yunhe-pool/driver:/mine", "LD_PRELOAD": "mine.so", "CUDA_VISIBLE_DEVICES": "0", DriverVariable: "1"} {
		if spec.Env[name] != want {
			t.Errorf("%s is %q, want %q", name, spec.Env[name], want)
		}
	}
	if got := spec.BesideEnv["LD_PRELOAD"]; got != "/run/yunhe-pool/lib/libyunhe-cuda.so:mine.so" || spec.BesideEnv["LD_LIBRARY_PATH"] != "/run/yunhe-pool/driver:/mine" {
		t.Errorf("beside it %v", spec.BesideEnv)
	}
	if got := spec.Env[pool.PassesVariable]; strings.Count(got, `"socket":"/run/yunhe-pool/node-1/pool.sock"`) != 2 {
		t.Errorf("its passes are %s", got)
	}

	// Where the driver is not its own it is beside the node all the same, if it may be.
	for _, c := range []struct {
		local     bool
		api, node string
		want      string
	}{
		{true, pool.OpenCL, "n1", "node-1 yunhe lib"},
		{false, pool.OpenCL, "n1", "node-1 yunhe lib"},
		{false, pool.CUDA, "n1", "node-1 yunhe lib"},
		{false, pool.OpenCL, "n2", "yunhe lib"},
	} {
		spec, err := share(c.local, c.api, pass(c.node, "0000:65:00.0"))
		if got := shown(spec); err != nil || got != c.want || spec.Env[DriverVariable] != "" {
			t.Errorf("local %v, %s of %s: %v, it is shown %s, want %s", c.local, c.api, c.node, err, got, c.want)
		}
	}
	elsewhere := pass("n1", "0000:65:00.0")
	elsewhere.Host = "another"
	for what, c := range map[string]struct {
		pass *adapterv1.PoolPass
		kind fault.Kind
		says string
	}{
		"a node of before":         {pass("n2", "0000:65:00.0"), fault.Exhausted, "pool node n2 is not reached by its shared socket"},
		"an unknown node":          {pass("n3", "0000:65:00.0"), fault.Exhausted, `pool node "n3" is none of those that runs may use here`},
		"one of another machine":   {elsewhere, fault.Exhausted, "pool node n1 says that it is on another machine"},
		"a card that is not there": {pass("n1", "0000:66:00.0"), fault.Invalid, `which device file is of the card at "0000:66:00.0"`},
	} {
		if _, err := share(true, pool.CUDA, c.pass); fault.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	a.cfg.PoolLibraries = t.TempDir()
	if found := findDriver(driverFolders[runtime.GOARCH]); len(found) > 0 {
		t.Logf("this machine has a driver: %v", found)
	} else if _, err := share(true, pool.CUDA, pass("n1", "0000:65:00.0")); fault.KindOf(err) != fault.Invalid || !strings.Contains(fmt.Sprint(err), "--pool-libraries") {
		t.Errorf("without a driver: %v", err)
	}
	a.cfg.PoolNodes = nil
	if a.poolNodes() != nil || slices.Contains(a.features(), adapterv1.Feature_FEATURE_POOL_LOCAL) {
		t.Errorf("without a node it offers %v", a.features())
	}
}
