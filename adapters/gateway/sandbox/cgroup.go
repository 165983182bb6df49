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

// cpuPeriod is over how long a CPU limit is balanced, in microseconds: the
// kernel's default, short enough that a limited command answers.
const cpuPeriod = 100_000

// cgroups is where this gateway's groups are.
type cgroups struct {
	v2      bool
	dirs    []controllerDir
	park    string // v2: where runners live
	swap    bool   // the kernel counts swap
	devices string // v1: the parent group that bounds devices, for runs that have some; empty: there is none
}

// controllerDir is this gateway's parent group in one hierarchy.
type controllerDir struct {
	path        string
	controllers []string
}

// openCgroups finds the hierarchies below root (/sys/fs/cgroup) and makes
// the parent groups, named parent, in them. Every bound of a Spec is kept by
// a controller; it returns an Unavailable fault if one is missing.
func openCgroups(root, parent string) (*cgroups, error) {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return openV2(root, parent)
	}
	c := &cgroups{}
	for _, name := range []string{"cpu", "cpuacct", "memory", "pids", "freezer"} {
		// cpu and cpuacct are often links to one hierarchy with both.
		dir, err := filepath.EvalSymlinks(filepath.Join(root, name))
		if err == nil {
			_, err = os.Stat(filepath.Join(dir, "tasks"))
		}
		if err != nil {
			return nil, fault.Wrap(fault.Unavailable, err,
				"the machine's control groups lack the %s controller (looked in %s); jobs cannot be limited", name, root)
		}
		path := filepath.Join(dir, parent)
		if i := slices.IndexFunc(c.dirs, func(d controllerDir) bool { return d.path == path }); i >= 0 {
			c.dirs[i].controllers = append(c.dirs[i].controllers, name)
			continue
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "control group %s cannot be made; jobs cannot be limited", path)
		}
		c.dirs = append(c.dirs, controllerDir{path, []string{name}})
	}
	_, err := os.Stat(filepath.Join(c.dir("memory"), "memory.memsw.limit_in_bytes"))
	c.swap = err == nil
	if dir := filepath.Join(root, "devices"); exists(filepath.Join(dir, "devices.allow")) || exists(filepath.Join(dir, "devices.list")) {
		c.devices = filepath.Join(dir, parent)
		if err := os.MkdirAll(c.devices, 0o755); err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "control group %s cannot be made; devices cannot be limited", c.devices)
		}
	}
	return c, nil
}

func openV2(root, parent string) (*cgroups, error) {
	b, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	have := strings.Fields(string(b))
	for _, name := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(have, name) {
			return nil, fault.New(fault.Unavailable,
				"the machine's control groups lack the %s controller (%s offers %q); jobs cannot be limited", name, root, have)
		}
	}
	// A controller works in a group if every group above passes it on.
	dir := root
	for _, part := range append([]string{""}, strings.Split(parent, "/")...) {
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fault.Wrap(fault.Unavailable, err, "control group %s cannot be made; jobs cannot be limited", dir)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu +memory +pids"), 0); err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "control group %s does not pass its controllers on", dir)
		}
	}
	// Only groups without children hold processes: runners get one of their
	// own. An ID cannot start with a dot, so no attempt is called this.
	park := filepath.Join(dir, ".runners")
	if err := os.Mkdir(park, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fault.Wrap(fault.Unavailable, err, "control group %s cannot be made", park)
	}
	_, err = os.Stat(filepath.Join(dir, "memory.swap.max"))
	return &cgroups{v2: true, park: park, swap: err == nil, dirs: []controllerDir{{dir, []string{"cpu", "memory", "pids", "freezer"}}}}, nil
}

func (c *cgroups) dir(controller string) string {
	for _, d := range c.dirs {
		if slices.Contains(d.controllers, controller) {
			return d.path
		}
	}
	return ""
}

// plan names the groups of an attempt and its limits. With a zero Spec it
// only names them.
func (c *cgroups) plan(id string, s Spec) runner.Groups {
	g := runner.Groups{V2: c.v2, Park: c.park}
	for _, d := range c.dirs {
		x := runner.Group{Path: filepath.Join(d.path, id), Controllers: d.controllers}
		for _, name := range d.controllers {
			x.Limits = append(x.Limits, c.limits(name, s)...)
		}
		g.All = append(g.All, x)
	}
	if s.ID == "" && c.devices != "" {
		g.All = append(g.All, runner.Group{Path: filepath.Join(c.devices, id), Controllers: []string{"devices"}})
	}
	return g
}

func (c *cgroups) limits(controller string, s Spec) []runner.Setting {
	set := func(file string, value int64) runner.Setting {
		return runner.Setting{File: file, Value: fmt.Sprint(value)}
	}
	quota := s.CPUMilli * cpuPeriod / 1000
	shares := max(2, min(s.CPUMilli*1024/1000, 262144)) // the kernel's bounds
	switch {
	case s.ID == "":
		return nil
	case controller == "cpu" && c.v2:
		return []runner.Setting{{File: "cpu.max", Value: fmt.Sprint(quota, cpuPeriod)}, set("cpu.weight", 1+(shares-2)*9999/262142)}
	case controller == "cpu":
		return []runner.Setting{set("cpu.cfs_quota_us", quota), set("cpu.shares", shares)} // the period is new groups' already
	case controller == "memory" && c.v2 && !c.swap:
		return []runner.Setting{set("memory.max", s.MemoryBytes)}
	case controller == "memory" && c.v2:
		// Swap would make the limit soft.
		return []runner.Setting{set("memory.max", s.MemoryBytes), set("memory.swap.max", 0)}
	case controller == "memory" && c.swap:
		return []runner.Setting{set("memory.limit_in_bytes", s.MemoryBytes), set("memory.memsw.limit_in_bytes", s.MemoryBytes)}
	case controller == "memory":
		return []runner.Setting{set("memory.limit_in_bytes", s.MemoryBytes), set("memory.swappiness", 0)}
	case controller == "pids":
		return []runner.Setting{{File: "pids.max", Value: fmt.Sprint(s.Pids), Late: c.v2}}
	}
	return nil
}

// leftover returns the IDs that have groups.
func (c *cgroups) leftover() ([]string, error) {
	seen := map[string]bool{}
	var ids []string
	dirs := c.dirs
	if c.devices != "" {
		dirs = append(slices.Clip(dirs), controllerDir{path: c.devices})
	}
	for _, d := range dirs {
		entries, err := os.ReadDir(d.path)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() && validID(e.Name()) && !seen[e.Name()] {
				seen[e.Name()] = true
				ids = append(ids, e.Name())
			}
		}
	}
	return ids, nil
}
