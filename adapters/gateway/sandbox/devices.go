package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

// Device is a character device of the machine a command may use, read and
// write. It is made anew in the command's own /dev and belongs to the
// command's user, whoever may use it on the host.
type Device struct {
	Path   string // in the run, below /dev
	Source string // on the host; empty: Path
}

func (d Device) source() string {
	if d.Source == "" {
		return d.Path
	}
	return d.Source
}

// maxDevices is more than the largest machines have accelerators.
const maxDevices = 256

func (s Spec) validateDevices(v *violations) {
	if len(s.Devices) > maxDevices {
		v.add("devices", "must be at most %d, got %d", maxDevices, len(s.Devices))
		return
	}
	given := map[string]bool{}
	for i, d := range s.Devices {
		name := fmt.Sprintf("devices[%d]", i)
		switch rest, below := strings.CutPrefix(d.Path, "/dev/"); {
		case !below || filepath.Clean(d.Path) != d.Path || rest == "" || len(d.Path) > 255 || strings.ContainsRune(d.Path, 0):
			v.add(name, "must be a clean path below /dev, got %q", d.Path)
		case slices.Contains([]string{"null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout", "stderr", "shm"}, strings.Split(rest, "/")[0]):
			v.add(name, "must not be one every run has, got %q", d.Path)
		case given[d.Path]:
			v.add(name, "%q is given twice", d.Path)
		}
		given[d.Path] = true
		if src := d.source(); !filepath.IsAbs(src) || filepath.Clean(src) != src || strings.ContainsRune(src, 0) {
			v.add(name, "its source must be a clean absolute path, got %q", src)
		}
	}
}

// hostDevices looks up what the devices are.
func hostDevices(list []Device) ([]runner.Device, error) {
	var out []runner.Device
	for _, d := range list {
		st, err := os.Stat(d.source())
		if err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "devices: %s is not on this machine", d.source())
		}
		if st.Mode()&fs.ModeCharDevice == 0 {
			return nil, fault.New(fault.Invalid, "devices: %s is no character device", d.source())
		}
		major, minor := deviceNumber(st)
		out = append(out, runner.Device{Path: d.Path, Source: d.source(), Major: major, Minor: minor})
	}
	return out, nil
}

// deviceGroup lets an attempt use the devices every run has and its own, and no
// other. It is a second wall, on control groups version 1 only: the first is
// that a command has no other device file and can make none.
func (c *cgroups) deviceGroup(id string, list []runner.Device) runner.Group {
	g := runner.Group{Path: filepath.Join(c.devices, id), Controllers: []string{"devices"}, Limits: []runner.Setting{{File: "devices.deny", Value: "a"}}}
	own := []string{"1:3", "1:5", "1:7", "1:8", "1:9", "5:0"} // null, zero, full, random, urandom, tty
	for _, d := range list {
		own = append(own, fmt.Sprintf("%d:%d", d.Major, d.Minor))
	}
	for _, n := range own {
		g.Limits = append(g.Limits, runner.Setting{File: "devices.allow", Value: "c " + n + " rw"})
	}
	return g
}

// Devices returns where on the host the devices of the run are.
func (r *Run) Devices() []string { return slices.Clone(r.devices) }

func sources(list []runner.Device) []string {
	var out []string
	for _, d := range list {
		out = append(out, d.Source)
	}
	return out
}

// below reports whether p is the folder dir or lies in it.
func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// Using returns the IDs of the runs kept in dir that have not ended and are
// shown something at or below path. It needs no Sandbox on dir, and is right about
// every run whose Start has returned.
func Using(dir, path string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the folder of runs %s cannot be read", dir)
	}
	var ids []string
	for _, e := range entries {
		run := filepath.Join(dir, e.Name())
		if !e.IsDir() || !validID(e.Name()) || exists(filepath.Join(run, runner.ExitFile)) {
			continue
		}
		spec, err := runner.ReadSpec(run)
		if err != nil {
			continue // cut short: it never ran; or gone meanwhile
		}
		if slices.ContainsFunc(spec.Root, func(n runner.Node) bool { return below(n.Bind, path) }) ||
			slices.ContainsFunc(spec.Volumes, func(v runner.Volume) bool { return below(v.Source, path) }) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}
