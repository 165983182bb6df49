//go:build linux

package pool_test

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
)

// loader is the folder of our loader of OpenCL; withLoader has a program find it first.
func loader() string {
	b, _ := built() // start saw that it is
	return filepath.Join(filepath.Dir(b.vendors), pool.LoaderFolder)
}

func withLoader(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(slices.DeleteFunc(cmd.Env, func(e string) bool { return strings.HasPrefix(e, "OCL_ICD_") }), "LD_LIBRARY_PATH="+loader())
	return cmd
}

// functions are those that a library has, each with its version.
func functions(t *testing.T, path string) (out []string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			out = append(out, s.Name+"@"+s.Version)
		}
	}
	slices.Sort(out)
	return out
}

// TestLoader: programs whose system has no loader of OpenCL find in ours what they
// find in another, by the same versions, and say the same.
func TestLoader(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	system, err := filepath.Glob("/usr/lib/*-linux-gnu/libOpenCL.so.1")
	if err != nil || len(system) != 1 {
		t.Skipf("SKIPPED: no loader of OpenCL where Debian has it: %v, %v", system, err)
	}
	want := functions(t, system[0])
	has := functions(t, filepath.Join(loader(), "libOpenCL.so.1"))
	for _, f := range want {
		if _, found := slices.BinarySearch(has, f); !found {
			t.Errorf("ours has no %s", f)
		}
	}
	later := "clGetKernelSuggestedLocalWorkSize@OPENCL_3.1" // newer loaders have it
	if i, found := slices.BinarySearch(has, later); found {
		has = slices.Delete(has, i, i+1)
	} else {
		t.Errorf("ours has no %s", later)
	}
	if want = slices.DeleteFunc(want, func(f string) bool { return f == later }); len(has) < 130 || len(has) > len(want) {
		t.Errorf("ours has %d functions, %s %d", len(has), system[0], len(want))
	}
	_, run := share(t, a.unix, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 100 * mib})
	for _, args := range [][]string{{"add", "3"}, {"print"}, {"threads"}, {"asks"}} {
		if got, want := output(t, withLoader(run(args...))), output(t, run(args...)); got != want {
			t.Errorf("%v: with our loader it says %q, with the system's %q", args, got, want)
		}
	}
	cards := over(t, a.unix, b.tcp)
	if got := output(t, withLoader(cards("cards", "8"))); got != "cards 2\nrounds 8\n" {
		t.Errorf("over two nodes: %q", got)
	}
	maps := withLoader(run("walk", "4"))
	w := walk(t, maps)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", maps.Process.Pid))
	if err != nil || !strings.Contains(string(text), loader()) || strings.Contains(string(text), system[0]) {
		t.Errorf("it has loaded %s: %v", regexp.MustCompile(`\S*OpenCL\S*`).FindAllString(string(text), -1), err)
	}
	w.end()
}

// TestLoaderAlone: in a root that has the C library and no loader, a program that is
// linked with one starts and computes, and one that opens it finds it.
func TestLoaderAlone(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: to run in a root of its own needs root")
	}
	n := start(t, pool.NodeConfig{})
	opens := compiled(t, "opens", "testdata/opens.c", "-ldl")
	b, _ := built()
	root := t.TempDir()
	copied := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(root, to)), 0o755)
		}
		if err == nil {
			err = install(filepath.Join(root, to), text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{b.program, opens, filepath.Join(loader(), "libOpenCL.so.1")} {
		out, err := exec.CommandContext(t.Context(), "ldd", p).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
			if !strings.Contains(m[1], "OpenCL") {
				copied(m[1], m[1])
			}
		}
	}
	copied(b.program, "program")
	copied(opens, "opens")
	task, token := ask(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 100 * mib})
	run := func(args ...string) (string, error) {
		path := pool.SearchPath(root, "/opt/lib", "/pool/"+pool.LoaderFolder)
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.SysProcAttr, cmd.Env = "/", &syscall.SysProcAttr{Chroot: root}, append(pool.Environment(0, pool.OpenCL, n.tcp, task.ID, token), "LD_LIBRARY_PATH="+path)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("/program", "add", "3"); err == nil || !strings.Contains(out, "libOpenCL.so.1") {
		t.Fatalf("without any loader: %v: %s", err, out)
	}
	copied(filepath.Join(loader(), "libOpenCL.so.1"), "pool/"+pool.LoaderFile)
	if err := os.Symlink("libOpenCL.so.1", filepath.Join(root, "pool", pool.LoaderFolder, "libOpenCL.so")); err != nil {
		t.Fatal(err)
	}
	if out, err := run("/program", "add", "3"); err != nil || out != native(t, "add", "3") {
		t.Errorf("linked: %v: %s", err, out)
	}
	for _, name := range []string{"libOpenCL.so.1", "libOpenCL.so"} {
		if out, err := run("/opens", name); err != nil || out != "1 platform, 1 device\n" {
			t.Errorf("opened as %s: %v: %s", name, err, out)
		}
	}
}

// TestWrapped: what layers and wrappers export by the names of OpenCL's functions, the
// client library does not take for its own.
func TestWrapped(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	wraps := compiled(t, "wraps", "testdata/wraps.c", "-rdynamic", "-ldl", "-pthread")
	for _, at := range [][]string{{a.unix}, {a.unix, b.tcp}} {
		want := fmt.Sprintf("0 0 0: 1 platform, OpenCL 3, %d device\nno such function: 1 1\n", len(at))
		for name, cmd := range map[string]*exec.Cmd{"the system's": over(t, at...)(wraps), "ours": withLoader(over(t, at...)(wraps))} {
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
				t.Errorf("%d nodes, by %s loader: %v: %s", len(at), name, err, out)
			}
		}
	}
}

// TestSearchPath: ours is looked for where there is no other, and last.
func TestSearchPath(t *testing.T) {
	t.Parallel()
	if !pool.Built() {
		t.Skip("SKIPPED: the accelerator pool was not built (scripts/pool.sh needs gcc and opencl-c-headers)")
	}
	dir := t.TempDir()
	if _, err := pool.Library(dir); err != nil {
		t.Fatal(err)
	}
	right, err := os.ReadFile(filepath.Join(dir, pool.LoaderFile))
	if err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(right)
	other[18], other[19] = byte(elf.EM_386), 0
	folder := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	type tree map[string]string // files' texts; "> TO" is a link
	for name, c := range map[string]struct {
		has        tree
		path, want string
	}{
		"nothing":               {tree{}, "", "/ours"},
		"nothing, with a path":  {tree{}, "/a:/b", "/a:/b:/ours"},
		"Debian's":              {tree{"usr/lib/" + folder + "/libOpenCL.so.1": "> libOpenCL.so.1.0.0", "usr/lib/" + folder + "/libOpenCL.so.1.0.0": string(right)}, "", ""},
		"Red Hat's":             {tree{"usr/lib64/libOpenCL.so.1": string(right)}, "/a", "/a"},
		"a link from the root":  {tree{"usr/lib64/libOpenCL.so.1": "> /opt/libOpenCL.so.1"}, "", ""},
		"a link to nothing":     {tree{"usr/lib64/libOpenCL.so.1": "> libOpenCL.so.1.0.0"}, "", "/ours"},
		"of another machine":    {tree{"usr/lib/libOpenCL.so.1": string(other)}, "", "/ours"},
		"no library":            {tree{"usr/lib/libOpenCL.so.1": "INPUT(-lOpenCL)"}, "", "/ours"},
		"a folder":              {tree{"usr/lib/libOpenCL.so.1/x": ""}, "", "/ours"},
		"in its path":           {tree{"opt/x/libOpenCL.so.1": string(right)}, "/a:/opt/x", "/a:/opt/x"},
		"not in its path":       {tree{"opt/x/libOpenCL.so.1": string(right)}, "", "/ours"},
		"in the list":           {tree{"usr/local/x/libOpenCL.so.1": string(right), "etc/ld.so.cache": "glibc-ld.so.cache1.1\x00\x00libOpenCL.so.1\x00/usr/local/x/libOpenCL.so.1\x00"}, "", ""},
		"in the list, but gone": {tree{"etc/ld.so.cache": "libOpenCL.so.1\x00/usr/local/x/libOpenCL.so.1\x00"}, "", "/ours"},
		"a list out of it":      {tree{"etc/ld.so.cache": "libOpenCL.so.1\x00/usr/../../../../../../.." + dir + "/" + pool.LoaderFile + "\x00"}, "", "/ours"},
		"a list that is a link": {tree{"etc/ld.so.cache": "> /dev/zero"}, "", "/ours"},
	} {
		root := t.TempDir()
		for path, text := range c.has {
			path = filepath.Join(root, path)
			err := os.MkdirAll(filepath.Dir(path), 0o755)
			if to, link := strings.CutPrefix(text, "> "); link && err == nil {
				err = os.Symlink(to, path)
			} else if err == nil {
				err = os.WriteFile(path, []byte(text), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := pool.SearchPath(root, c.path, "/ours"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := pool.SearchPath(filepath.Join(dir, "none"), "/a", "/ours"); got != "/a:/ours" {
		t.Errorf("of a root that is not there: %q", got)
	}
}
