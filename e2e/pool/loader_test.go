package pool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/pods"
)

// bare makes a root that has a shell, the test's program and what both need of a
// system, but no loader of OpenCL.
func (w *world) bare() string {
	w.t.Helper()
	return w.root("bare", w.bench.Program, w.libraries("OpenCL", w.bench.Program))
}

// libraries are those of a system that programs, a shell and yunhe need, but those with a
// word in their names.
func (w *world) libraries(but string, programs ...string) []string {
	w.t.Helper()
	var libraries []string
	for _, name := range append(programs, busybox(w.t), binary) {
		out, _ := exec.Command("ldd", name).Output() // it says of a static one that it is
		for _, m := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
			libraries = append(libraries, m[1])
		}
	}
	for _, name := range []string{"libpthread.so.0", "librt.so.1", "libdl.so.2"} { // of any system's C library
		found, err := filepath.Glob("/lib/*-linux-gnu/" + name)
		must(w.t, err)
		libraries = append(libraries, found...)
	}
	slices.Sort(libraries)
	return slices.DeleteFunc(slices.Compact(libraries), func(l string) bool { return strings.Contains(l, but) })
}

// bareMusl is the same of a system of musl (Alpine), with nothing of glibc's.
func (w *world) bareMusl(t *testing.T) string {
	t.Helper()
	vendors, err := pool.Library(t.TempDir())
	must(t, err)
	program := enginetest.Musl(t, "../../shim/test/pool.c", filepath.Join(filepath.Dir(vendors), pool.LoaderFile))
	linkers, err := filepath.Glob("/lib/ld-musl-*.so.1")
	must(t, err)
	return w.root("musl", program, linkers)
}

func busybox(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("busybox")
	must(t, err)
	return path
}

func (w *world) root(name, program string, libraries []string) string {
	t := w.t
	t.Helper()
	root := filepath.Join(w.dir, name)
	put := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(from)
		must(t, err)
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, to)), 0o755))
		must(t, os.WriteFile(filepath.Join(root, to), text, 0o755))
	}
	put(busybox(t), "bin/sh")
	put(program, "bin/program")
	for _, l := range libraries {
		put(l, l)
	}
	for _, d := range []string{"tmp", "proc", "dev", "etc", "usr"} {
		must(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	return root
}

// TestNoLoader: programs linked with a loader of OpenCL start and compute on slices
// in a system that has none: as a gateway's job and beside it, by pool run, and in a
// container of what the webhook makes of a pod.
func TestNoLoader(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: to run in roots of their own programs need root")
	}
	w := open(t, false)
	vendors := w.vendors("one", "pocl.icd")
	w.node("n1", vendors)
	w.online(1)
	_, err := w.bench.API.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(t, err)
	root := w.bare()
	native := exec.Command(w.bench.Program, "add", "3")
	native.Env = append(os.Environ(), "OCL_ICD_VENDORS="+vendors)
	sum, err := native.Output()
	must(t, err)
	if out, err := exec.Command("chroot", root, "/bin/program", "add", "3").CombinedOutput(); err == nil || !strings.Contains(string(out), "libOpenCL.so.1") {
		t.Fatalf("it has a loader: %v: %s", err, out)
	}

	asJob := func(t *testing.T, root string) {
		yunhe := func(args ...string) string {
			t.Helper()
			out, err := w.bench.Yunhe(context.WithoutCancel(t.Context()), "", nil, args...).CombinedOutput()
			if err != nil {
				t.Fatalf("yunhe %s: %v: %s", strings.Join(args, " "), err, out)
			}
			return string(out)
		}
		gateways, err := filepath.Glob(filepath.Join(w.dir, "data", "gateways", "*"))
		if err != nil || len(gateways) != 1 {
			t.Fatalf("gateways are %v, %v", gateways, err)
		}
		image := filepath.Base(root)
		archive := root + ".tar"
		if out, err := exec.Command("tar", "-C", root, "-cf", archive, ".").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		yunhe("gateway", "image", "load", "--data", gateways[0], "--id", image, archive)
		var id string
		w.until("the image is known", func() bool {
			out, err := w.bench.Yunhe(t.Context(), "", nil, "job", "submit", "--name", image, "--image", image, "--spec", "small", "--pool", "compute=40,memory=64MiB,group=g",
				"--command", "program add 3; while [ ! -e go ]; do sleep 0.2; done").CombinedOutput()
			id = regexp.MustCompile(`job_\w+`).FindString(string(out))
			return err == nil && id != ""
		})
		w.until("its own command has computed", func() bool { return strings.Contains(yunhe("job", "logs", id), string(sum)) })
		if got := yunhe("job", "exec", id, "--", "program", "add", "3"); got != string(sum) {
			t.Errorf("beside the run it says %q, want %q", got, sum)
		}
		yunhe("job", "exec", id, "--", "sh", "-c", ": >go")
		yunhe("job", "wait", id)
	}
	t.Run("as a job", func(t *testing.T) { asJob(t, root) })
	t.Run("as a job of musl", func(t *testing.T) { asJob(t, w.bareMusl(t)) })

	byPoolRun := func(t *testing.T, root string) {
		self, err := filepath.Abs(binary)
		must(t, err)
		text, err := os.ReadFile(self)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(root, "yunhe"), text, 0o755))
		cmd := exec.Command("chroot", root, "/yunhe", "pool", "run", "--platform", "--group", "g", "--compute", "40", "--memory", "64MiB", "--", "/bin/program", "add", "3")
		cmd.Env = []string{"HOME=/tmp", "YUNHE_SERVER=" + w.url, "YUNHE_KEY=" + w.key}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != string(sum) {
			t.Errorf("%v: %s, want %s", err, out, sum)
		}
		must(t, os.Remove(filepath.Join(root, "yunhe")))
	}
	t.Run("by pool run", func(t *testing.T) { byPoolRun(t, root) })
	t.Run("by pool run in a system of musl", func(t *testing.T) { byPoolRun(t, w.bareMusl(t)) })

	t.Run("in a pod", func(t *testing.T) {
		if _, err := exec.LookPath("runc"); err != nil {
			t.Skip("SKIPPED: there is no runc")
		}
		loaders, err := filepath.Glob("/usr/lib/*-linux-gnu/libOpenCL.so.1")
		if err != nil || len(loaders) != 1 {
			t.Fatalf("loaders of this machine: %v, %v", loaders, err)
		}
		ops, err := pods.Patch([]byte(`{"metadata":{"annotations":{"pool.yunhe.dev/group":"g"}},"spec":{"containers":[{"name":"main","resources":{"limits":{"yunhe.dev/pool-compute":"40","yunhe.dev/pool-memory":"64"}}}]}}`),
			pods.Options{Image: "yunhe:1", Server: w.url, Secret: "s"})
		must(t, err)
		volume := filepath.Join(w.dir, "volume")
		must(t, os.Mkdir(volume, 0o755))
		var side, env []string
		var mounts []map[string]any
		for _, op := range ops {
			value, _ := op.Value.(map[string]any)
			switch {
			case strings.HasSuffix(op.Path, "/env/-"):
				env = append(env, fmt.Sprintf("%s=%s", value["name"], value["value"]))
			case op.Path == "/spec/initContainers/0":
				for _, a := range value["args"].([]string) {
					side = append(side, strings.ReplaceAll(a, "/yunhe-pool", volume))
				}
			case strings.HasSuffix(op.Path, "/volumeMounts/-"):
				from, _ := value["subPath"].(string)
				mounts = append(mounts, map[string]any{"destination": value["mountPath"], "source": filepath.Join(volume, from), "type": "bind", "options": []string{"rbind", "ro"}})
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		beside := w.bench.Yunhe(ctx, "", nil, side...)
		must(t, beside.Start())
		defer func() { stop(); _ = beside.Wait() }()
		w.until("the slice is ready", func() bool { return exec.Command(binary, "pool", "ready", volume).Run() == nil })
		// The file that the loader is told has the volume's place in the container.
		icd := filepath.Join(volume, "vendors", "yunhe.icd")
		text, err := os.ReadFile(icd)
		must(t, err)
		must(t, os.WriteFile(icd, []byte(strings.ReplaceAll(string(text), volume, "/yunhe-pool")), 0o644))
		run := func(name, root string) (string, error) {
			bundle := filepath.Join(w.dir, name)
			must(t, os.Mkdir(bundle, 0o755))
			if out, err := exec.Command("cp", "-a", root, filepath.Join(bundle, "rootfs")).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			spec := exec.Command("runc", "spec", "--bundle", bundle)
			if out, err := spec.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			file := filepath.Join(bundle, "config.json")
			text, err := os.ReadFile(file)
			must(t, err)
			var config map[string]any
			must(t, json.Unmarshal(text, &config))
			process, linux := config["process"].(map[string]any), config["linux"].(map[string]any)
			process["terminal"], process["args"], process["env"] = false, []string{"/bin/program", "add", "3"}, env
			for _, m := range mounts {
				config["mounts"] = append(config["mounts"].([]any), m)
			}
			linux["namespaces"] = slices.DeleteFunc(linux["namespaces"].([]any), func(n any) bool { return n.(map[string]any)["type"] == "network" })
			text, err = json.Marshal(config)
			must(t, err)
			must(t, os.WriteFile(file, text, 0o600))
			out, err := exec.Command("runc", "--root", filepath.Join(w.dir, "runc"), "run", "--bundle", bundle, filepath.Base(w.dir)+name).CombinedOutput()
			return string(out), err
		}
		if out, err := run("with", root); err != nil || out != string(sum) {
			t.Errorf("%v: %s, want %s", err, out, sum)
		}
		if _, err := exec.LookPath("musl-gcc"); err != nil {
			t.Log("SKIPPED: there is no musl-gcc (musl-tools)")
		} else if out, err := run("alpine", w.bareMusl(t)); err != nil || out != string(sum) {
			t.Errorf("of musl: %v: %s, want %s", err, out, sum)
		}
		env = append(env, "LD_DEBUG=libs")
		for name, own := range map[string]string{"ours": "", "own": loaders[0]} { // an image's own loader wins
			from := "/usr/lib/libOpenCL.so.1"
			if own != "" {
				text, err := os.ReadFile(own)
				must(t, err)
				from = own
				must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, own)), 0o755))
				must(t, os.WriteFile(filepath.Join(root, own), text, 0o644))
			}
			if out, err := run(name, root); err != nil || !strings.Contains(out, "calling init: "+from+"\n") || !strings.Contains(out, string(sum)) {
				t.Errorf("with the loader %q: %v: %s", own, err, out)
			}
			if own != "" {
				must(t, os.Remove(filepath.Join(root, own)))
			}
		}
		mounts = mounts[:1]
		if out, err := run("without", root); err == nil || !strings.Contains(out, "libOpenCL.so.1") {
			t.Errorf("without the loader: %v: %s", err, out)
		}
	})
}
