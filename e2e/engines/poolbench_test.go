package engines_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"

	"yunhe.dev/yunhe/adapters/kubernetes"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/plugin"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
	"yunhe.dev/yunhe/internal/pools/pods"
	"yunhe.dev/yunhe/sdk/adapter"
)

// Images that the cluster of a bench has: of Yunhe, and of a system with a shell.
const poolImage, systemImage = "docker.io/library/yunhe:test", "docker.io/library/system:1"

// bench is a cluster with a real kubelet, a platform, and a node of its pool on the
// kubelet's machine, which lends PoCL's device and those of a stand-in of CUDA's driver.
type bench struct {
	t                *testing.T
	bin, dir         string
	programs, driver string // folders: with opencl, cuda and the driver beside them; with the driver
	vendors          string // what shows OpenCL's loader PoCL alone
	node             string // folder of the pool's node
	cluster          *enginetest.Kubernetes
	app              *apptest.App
}

func poolBench(t *testing.T) *bench {
	t.Helper()
	if !*flagEngines {
		t.Skip("SKIPPED: real clusters take minutes; run make test-engines")
	}
	if !pool.Built() {
		t.Skip("SKIPPED: the accelerator pool was not built (scripts/pool.sh needs gcc and opencl-c-headers)")
	}
	bin, err := enginetest.Binary()
	must(t, err)
	dir, err := os.MkdirTemp("", "yp") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755)) // of what pods are shown
	w := &bench{t: t, bin: bin, dir: dir, programs: filepath.Join(dir, "programs"), driver: cardstest.Build(t, "cuda"), vendors: onlyPoCL(t), node: filepath.Join(dir, "node"), cluster: enginetest.KubernetesCluster(t)}
	must(t, os.Mkdir(w.programs, 0o755))
	for to, from := range map[string]string{"cuda": "cuda.c", "opencl": "pool.c"} {
		args := []string{"-std=gnu11", "-O2", "-o", filepath.Join(w.programs, to), "../../shim/test/" + from, "-L" + w.driver, "-ldl", "-pthread", map[string]string{"cuda": "-l:libcuda.so.1", "opencl": "-l:libOpenCL.so.1"}[to]}
		if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", to, err, out)
		}
	}
	text, err := os.ReadFile(filepath.Join(w.driver, "libcuda.so.1"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(w.programs, "libcuda.so.1"), text, 0o755))
	archive := filepath.Join(dir, "yunhe.tar")
	if out, err := exec.CommandContext(t.Context(), bin, "availability", "image", "--name", poolImage, "--out", archive).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	base := []string{filepath.Join(w.programs, "opencl")}
	for _, name := range []string{"libpthread.so.0", "librt.so.1", "libdl.so.2"} {
		found, err := filepath.Glob("/lib/*-linux-gnu/" + name)
		must(t, err)
		base = append(base, found...)
	}
	l, err := w.cluster.StartKubelet(t.Context(), enginetest.KubeletConfig{Labels: map[string]string{pods.NodeLabel: "true"}, Images: map[string][]string{systemImage: base}, Archives: []string{archive}})
	must(t, err)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	w.app = apptest.Start(t, apptest.Options{Config: func(c *app.Config) {
		c.Listen.Address = l.Address + ":0"
		c.Adapters.Plugins = append(c.Adapters.Plugins, plugin.Config{Name: kubernetes.Name, Command: []string{bin, "driver", kubernetes.Name}, OnDemand: true})
	}})
	_, err = w.app.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "team", Group: &poolv1.PoolGroup{GroupId: "team", TenantIds: []string{"default"}}})
	must(t, err)
	token, err := w.app.Admin.Pool.CreateNodeToken(t.Context(), &poolv1.CreateNodeTokenRequest{})
	must(t, err)
	w.begin("pool node listens", []string{"OCL_ICD_VENDORS=" + w.vendors}, "pool", "node", "--data", w.node, "--libraries", w.driver, "--listen", "tcp:"+l.Address+":0", "--join", w.app.URL(), "--token", token.Token, "--name", "n1")
	return w
}

// begin starts the program, and returns what it says when it is ready, and what ends it.
func (w *bench) begin(ready string, env []string, args ...string) (said []string, end func()) {
	t := w.t
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, w.bin, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	var all strings.Builder
	for b := make([]byte, 4096); said == nil; {
		n, err := out.Read(b)
		all.Write(b[:n])
		if said = regexp.MustCompile(ready).FindStringSubmatch(all.String()); said == nil && err != nil {
			t.Fatalf("yunhe %s: %s", strings.Join(args, " "), &all)
		}
	}
	go func() { _, _ = io.Copy(t.Output(), out) }()
	end = func() { stop(); _ = cmd.Wait() }
	t.Cleanup(end)
	return said, end
}

// live are the slices that have not ended and are of one kind.
func (w *bench) live(is func(x *poolv1.Slice) bool) []*poolv1.Slice {
	w.t.Helper()
	res, err := w.app.Admin.Pool.ListSlices(w.t.Context(), &poolv1.ListSlicesRequest{})
	must(w.t, err)
	return slices.DeleteFunc(res.Slices, func(x *poolv1.Slice) bool { return !is(x) })
}

// holds waits until a program has 37 MiB of such a slice's memory.
func (w *bench) holds(is func(x *poolv1.Slice) bool) {
	w.t.Helper()
	apptest.Until(w.t, "a card's memory is held", func() bool {
		return slices.ContainsFunc(w.live(is), func(x *poolv1.Slice) bool { return x.MemoryUsedBytes == 37<<20 })
	})
}

// native is what the program of OpenCL prints without the pool.
func (w *bench) native(args ...string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), filepath.Join(w.programs, "opencl"), args...)
	cmd.Env = append(os.Environ(), "OCL_ICD_VENDORS="+w.vendors)
	out, err := cmd.Output()
	must(w.t, err)
	return string(out)
}

// kubernetes makes the cluster a center, k8s, of which jobs use the pool.
func (w *bench) kubernetes(folder string) {
	w.t.Helper()
	kubeconfig, err := os.ReadFile(w.cluster.Kubeconfig)
	must(w.t, err)
	connect(w.t, w.app, kubernetes.Name, "k8s", kubernetes.Config{Kubeconfig: string(kubeconfig), Images: map[string]string{"system": systemImage}, ImagePullPolicy: "Never", PoolImage: poolImage,
		PoolFolder: folder, KeepNetworkOpen: true, Declared: adapter.Declared{Prices: map[string]int64{"small": 100}}})
	await(w.t, w.app, "k8s", registryv1.CenterStatus_CENTER_STATUS_AVAILABLE)
}

// files are some of the bench's programs, as a job brings them.
func (w *bench) files(names ...string) (files []*jobsv1.File) {
	w.t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(w.programs, name))
		must(w.t, err)
		files = append(files, &jobsv1.File{Path: name, Content: text, Executable: true})
	}
	return files
}

// onlyPoCL is a folder that shows the loader of OpenCL PoCL and nothing else.
func onlyPoCL(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile("/etc/OpenCL/vendors/pocl.icd")
	if err != nil {
		t.Skipf("SKIPPED: no PoCL (pocl-opencl-icd): %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pocl.icd"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
