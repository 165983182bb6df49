package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
)

// tree makes a folder that looks like a hierarchy: files by name and text.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

var limited = Spec{ID: "r", CPUMilli: 1500, MemoryBytes: 64 << 20, Pids: 7}

// settings flattens a plan: path below root, value, and whether it is late.
func settings(c *cgroups, root string) map[string]string {
	m := map[string]string{}
	for _, g := range c.plan("r", limited).All {
		for _, l := range g.Limits {
			v := l.Value
			if l.Late {
				v += " late"
			}
			m[strings.TrimPrefix(filepath.Join(g.Path, l.File), root)] = v
		}
	}
	return m
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	for k, w := range want {
		if got[k] != w {
			t.Errorf("%s: got %q, want %q", k, got[k], w)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s: got %q, want nothing", k, got[k])
		}
	}
}

func TestUnifiedHierarchy(t *testing.T) {
	t.Parallel()
	// A folder has no controllers: what a kernel would make is there before.
	root := tree(t, map[string]string{
		"cgroup.controllers": "cpuset cpu io memory pids\n", "cgroup.subtree_control": "", "yunhe/cgroup.subtree_control": "",
		"yunhe/g/cgroup.subtree_control": "", "yunhe/g/memory.swap.max": "max",
	})
	c, err := openCgroups(root, "yunhe/g")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"", "yunhe", "yunhe/g"} {
		if b, err := os.ReadFile(filepath.Join(root, f, "cgroup.subtree_control")); err != nil || string(b) != "+cpu +memory +pids" {
			t.Errorf("%s passes on %q, %v", f, b, err)
		}
	}
	g := c.plan("r", limited)
	if !g.V2 || g.Park != filepath.Join(root, "yunhe/g/.runners") {
		t.Errorf("plan %+v", g)
	}
	if st, err := os.Stat(g.Park); err != nil || !st.IsDir() {
		t.Errorf("runners have no group: %v", err)
	}
	compare(t, settings(c, root), map[string]string{
		"/yunhe/g/r/cpu.max": "150000 100000", "/yunhe/g/r/cpu.weight": "59", "/yunhe/g/r/memory.max": "67108864",
		"/yunhe/g/r/memory.swap.max": "0", "/yunhe/g/r/pids.max": "7 late",
	})
	if ids, err := c.leftover(); err != nil || len(ids) != 0 {
		t.Errorf("leftover %q, %v: the runners' group is not an attempt", ids, err)
	}
	if err := os.Mkdir(filepath.Join(root, "yunhe/g/r"), 0o755); err != nil {
		t.Fatal(err)
	}
	if ids, err := c.leftover(); err != nil || len(ids) != 1 || ids[0] != "r" {
		t.Errorf("leftover %q, %v, want r", ids, err)
	}
}

func TestSeparateHierarchies(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"cpu,cpuacct/tasks": "", "memory/tasks": "", "memory/yunhe/g/memory.memsw.limit_in_bytes": "", "pids/tasks": "", "freezer/tasks": ""})
	for _, l := range []string{"cpu", "cpuacct"} {
		if err := os.Symlink("cpu,cpuacct", filepath.Join(root, l)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := openCgroups(root, "yunhe/g")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.plan("r", limited).All); n != 4 {
		t.Errorf("%d groups, want 4: cpu and cpuacct are one", n)
	}
	want := map[string]string{
		"/cpu,cpuacct/yunhe/g/r/cpu.cfs_quota_us": "150000", "/cpu,cpuacct/yunhe/g/r/cpu.shares": "1536",
		"/memory/yunhe/g/r/memory.limit_in_bytes":       "67108864",
		"/memory/yunhe/g/r/memory.memsw.limit_in_bytes": "67108864", "/pids/yunhe/g/r/pids.max": "7",
	}
	compare(t, settings(c, root), want)
	c.swap = false
	delete(want, "/memory/yunhe/g/r/memory.memsw.limit_in_bytes")
	want["/memory/yunhe/g/r/memory.swappiness"] = "0"
	compare(t, settings(c, root), want)
}

func TestMissingController(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"pids": {"cgroup.controllers": "cpu memory\n", "cgroup.subtree_control": ""},
		"cpu":  {"memory/tasks": "", "pids/tasks": "", "freezer/tasks": "", "cpuacct/tasks": ""},
	} {
		_, err := openCgroups(tree(t, files), "yunhe/g")
		if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "lack the "+name+" controller") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
