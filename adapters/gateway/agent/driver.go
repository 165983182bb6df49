package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

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

// socketTime is how long a node may take to be reached by its socket.
const socketTime = 2 * time.Second

// driverLibraries are those of NVIDIA's driver with which programs compute.
var driverLibraries = []string{"libcuda.so", "libcudadebugger.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so", "libnvidia-nvvm.so", "libnvidia-nvvm70.so", "libnvidia-gpucomp.so", "libnvidia-fatbinaryloader.so"}

// driverFolders are where systems keep them.
var driverFolders = map[string][]string{
	"amd64": {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib"},
	"arm64": {"/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib"},
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

// poolNodes are the nodes of this machine that runs may use here.
func (a *Agent) poolNodes() (ids []string) {
	if !a.lends {
		return nil
	}
	for _, dir := range a.cfg.PoolNodes {
		if m, err := pools.Load(dir); err == nil && m != nil { // else it has not joined, or does so just now
			ids = append(ids, m.Node)
		}
	}
	return ids
}

// beside is the folder of the shared socket of the node that has a slice, as a run is
// shown it. Kinds: Exhausted where that is no node of this machine that runs may use here,
// as after the node or the gateway was started anew.
func (a *Agent) beside(p *adapterv1.PoolPass) (shown sandbox.Tool, err error) {
	i := slices.IndexFunc(a.cfg.PoolNodes, func(dir string) bool {
		m, err := pools.Load(dir)
		return err == nil && m != nil && m.Node == p.NodeId
	})
	switch {
	case i < 0 || p.NodeId == "":
		return shown, fault.New(fault.Exhausted, "pool node %q is none of those that runs may use here (yunhe gateway --pool-node)", p.NodeId)
	case p.Host == "" || p.Host != pool.Host():
		return shown, fault.New(fault.Exhausted, "pool node %s says that it is on another machine", p.NodeId)
	}
	c, err := net.DialTimeout("unix", filepath.Join(a.cfg.PoolNodes[i], pool.SharedSocket), socketTime)
	if err != nil {
		return shown, fault.Wrap(fault.Exhausted, err, "pool node %s is not reached by its shared socket", p.NodeId)
	}
	_ = c.Close()
	return sandbox.Tool{Path: poolNodes + strconv.Itoa(i), Source: filepath.Join(a.cfg.PoolNodes[i], pool.SharedFolder)}, nil
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
// driver shares. A machine that tells of no cards has none of these files, as one on which
// the driver is played.
func (d *devices) cards(spec *sandbox.Spec, buses []string) error {
	folder := filepath.Join(d.root, pool.NVIDIACards)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var list []device
	for _, bus := range buses {
		minor := pool.NVIDIAMinor(folder, bus)
		if minor < 0 {
			return fault.New(fault.Invalid, "%s does not say which device file is of the card at %q", folder, bus)
		}
		list = append(list, device{kind: nvidia, index: minor, file: fmt.Sprintf("nvidia%d", minor)})
	}
	d.files(spec, list)
	return nil
}
