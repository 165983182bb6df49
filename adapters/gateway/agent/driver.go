package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	pools "yunhe.dev/yunhe/internal/pools/agent"
)

// A run whose shares are of the pool node on its machine is shown that node's shared
// socket. One for programs of CUDA has the driver itself, too: the files of its cards,
// those that every user of them needs, and the driver's libraries, which an image cannot
// bring as they are of the driver's version.

// Where such runs find these.
const (
	poolNodes  = "/run/yunhe-pool/node-" // and its place among the gateway's
	poolDriver = "/run/yunhe-pool/driver"
)

// driverLibraries are those of NVIDIA's driver with which programs compute.
var driverLibraries = []string{"libcuda.so", "libcudadebugger.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so", "libnvidia-nvvm.so", "libnvidia-nvvm70.so", "libnvidia-gpucomp.so", "libnvidia-fatbinaryloader.so"}

// driverFolders are where systems keep them.
var driverFolders = map[string][]string{
	"amd64": {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"},
	"arm64": {"/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64", "/usr/lib/aarch64-linux-gnu/tegra", "/run/opengl-driver/lib"},
}

// findDriver returns the driver's libraries, by their names, of the first folder that has
// its main one.
func findDriver(folders []string) map[string]string {
	found := map[string]string{}
	for _, folder := range folders {
		if _, err := os.Stat(filepath.Join(folder, "libcuda.so.1")); err != nil {
			continue
		}
		for _, library := range driverLibraries {
			files, _ := filepath.Glob(filepath.Join(folder, library+"*")) // the pattern is right
			for _, f := range files {
				if real, err := filepath.EvalSymlinks(f); err == nil {
					found[filepath.Base(f)] = real
				}
			}
		}
		return found
	}
	return found
}

// beside is the folder of the shared socket of the node that has a slice, as a run is
// shown it; false: that is no node of this machine that its runs may use.
func (a *Agent) beside(p *adapterv1.PoolPass) (shown sandbox.Tool, is bool) {
	if p.Host == "" || p.Host != pool.Host() {
		return shown, false
	}
	for i, dir := range a.cfg.PoolNodes {
		m, err := pools.Load(dir)
		if err != nil || m == nil || m.Node != p.NodeId {
			continue
		}
		folder := filepath.Join(dir, pool.SharedFolder)
		if _, err := os.Stat(folder); err != nil {
			continue // of a node of an older version
		}
		return sandbox.Tool{Path: poolNodes + strconv.Itoa(i), Source: folder}, true
	}
	return shown, false
}

// drive shows a run the driver of CUDA with the cards of its shares.
func (a *Agent) drive(spec *sandbox.Spec, passes []*adapterv1.PoolPass) error {
	var buses []string
	for _, p := range passes {
		buses = append(buses, p.Bus)
	}
	if err := a.devices.cards(spec, buses); err != nil {
		return err
	}
	folders := driverFolders[runtime.GOARCH]
	if a.cfg.PoolLibraries != "" {
		folders = slices.Concat([]string{a.cfg.PoolLibraries}, folders)
	}
	libraries := findDriver(folders)
	if len(libraries) == 0 {
		return fault.New(fault.Invalid, "the driver of CUDA is in none of %s: --pool-libraries says to the gateway where it is", strings.Join(folders, " "))
	}
	for _, name := range slices.Sorted(maps.Keys(libraries)) {
		spec.Tools = append(spec.Tools, sandbox.Tool{Path: filepath.Join(poolDriver, name), Source: libraries[name]})
	}
	spec.Env["LD_LIBRARY_PATH"] = strings.TrimSuffix(poolDriver+":"+spec.Env["LD_LIBRARY_PATH"], ":")
	return nil
}

// cards adds the files of NVIDIA's cards at these places on the bus, and those that their
// driver shares. A machine that does not tell of any card has none of these files.
func (d *devices) cards(spec *sandbox.Spec, buses []string) error {
	folder := filepath.Join(d.root, pool.NVIDIACards)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var list []device
	for _, bus := range buses {
		minor := pool.NVIDIAMinor(folder, bus)
		if minor < 0 {
			return fault.New(fault.Exhausted, "%s does not say which device file is of the card at %q", folder, bus)
		}
		list = append(list, device{kind: nvidia, index: minor, file: fmt.Sprintf("nvidia%d", minor)})
	}
	d.files(spec, list)
	return nil
}
