package engines_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"

	"yunhe.dev/yunhe/adapters/kubernetes"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/plugin"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/sdk/adapter"
)

// TestPoolAtKubernetes: a job's run in a pod of a real kubelet computes on a share
// of a card that a node outside the cluster lends, in an image that has OpenCL's
// loader and knows nothing of Yunhe; its share is resized while
// it computes; one that waits for its share says so; shares end with their runs.
func TestPoolAtKubernetes(t *testing.T) {
	if !*flagEngines {
		t.Skip("SKIPPED: real clusters take minutes; run make test-engines")
	}
	if !pool.Built() {
		t.Skip("SKIPPED: the accelerator pool was not built (scripts/pool.sh needs gcc and opencl-c-headers)")
	}
	bin, err := enginetest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "yunhe.tar")
	const image, opencl = "docker.io/library/yunhe:test", "docker.io/library/opencl:1"
	if out, err := exec.CommandContext(t.Context(), bin, "availability", "image", "--name", image, "--out", archive).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := pool.TestProgram(dir)
	if err != nil {
		t.Fatal(err)
	}
	// What any system has that an image is made of: glibc's libraries apart, too.
	base := []string{program}
	for _, name := range []string{"libpthread.so.0", "librt.so.1", "libdl.so.2"} {
		found, err := filepath.Glob("/lib/*-linux-gnu/" + name)
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %v, %v", name, found, err)
		}
		base = append(base, found[0])
	}
	k := enginetest.KubernetesCluster(t)
	l, err := k.StartKubelet(t.Context(), enginetest.KubeletConfig{Images: map[string][]string{opencl: base}, Archives: []string{archive}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	a := apptest.Start(t, apptest.Options{Config: func(c *app.Config) {
		c.Adapters.Plugins = append(c.Adapters.Plugins, plugin.Config{Name: kubernetes.Name, Command: []string{bin, "driver", kubernetes.Name}, OnDemand: true})
	}})
	kubeconfig, err := os.ReadFile(k.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	connect(t, a, kubernetes.Name, "k8s", kubernetes.Config{Kubeconfig: string(kubeconfig), Images: map[string]string{"opencl": opencl}, ImagePullPolicy: "Never", PoolImage: image,
		KeepNetworkOpen: true, Declared: adapter.Declared{Prices: map[string]int64{"small": 100}}})
	await(t, a, "k8s", registryv1.CenterStatus_CENTER_STATUS_AVAILABLE)

	if _, err := a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "team", Group: &poolv1.PoolGroup{GroupId: "team", TenantIds: []string{"default"}}}); err != nil {
		t.Fatal(err)
	}
	token, err := a.Admin.Pool.CreateNodeToken(t.Context(), &poolv1.CreateNodeTokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	node := exec.CommandContext(ctx, bin, "pool", "node", "--data", filepath.Join(dir, "node"), "--listen", "unix:"+filepath.Join(dir, "s"), "--listen", "tcp:"+l.Address+":0",
		"--join", a.URL(), "--token", token.Token, "--name", "n1")
	node.Env = append(os.Environ(), "OCL_ICD_VENDORS="+onlyPoCL(t))
	node.Stderr = t.Output()
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { stop(); _ = node.Wait() }()
	var device *poolv1.PoolDevice
	apptest.Until(t, "the pool's node lends", func() bool {
		res, err := a.Admin.Pool.ListPoolNodes(t.Context(), &poolv1.ListPoolNodesRequest{})
		if err != nil || len(res.Nodes) != 1 || !res.Nodes[0].Online || len(res.Nodes[0].Devices) == 0 {
			return false
		}
		device = res.Nodes[0].Devices[0]
		return true
	})
	t.Logf("it lends %s", device.Model)

	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	job := func(name, command string, compute int64) string {
		return a.Admin.Submit(t, &jobsv1.JobSpec{Name: name, Tasks: []*jobsv1.Task{{Name: name, Command: command, ImageId: "opencl", ResourceSpecId: "small", ReplicaNumber: 1, Network: true,
			Files: []*jobsv1.File{{Path: "program", Content: content, Executable: true}}, Pool: &jobsv1.PoolShares{GroupId: "team", ComputePercent: compute, MemoryMib: 64}}}})
	}
	first := job("first", `env | grep -c YUNHE_POOL_PASSES; ./program add 3; mkfifo f && exec 3<>f && { (sleep 5; echo >&3) & ./program walk 4 <f; } >/tmp/walk && grep -c walked /tmp/walk`, 70)
	slices := func(state poolv1.Slice_State) []*poolv1.Slice {
		res, err := a.Admin.Pool.ListSlices(t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{state}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Slices
	}
	apptest.Until(t, "its slice runs", func() bool { return len(slices(poolv1.Slice_STATE_RUNNING)) == 1 })
	if x := slices(poolv1.Slice_STATE_RUNNING)[0]; x.JobId != first || x.ComputePercent != 70 || x.MemoryMib != 64 || x.GroupId != "team" {
		t.Errorf("its slice is %v", x)
	}
	// Its share is resized while it computes; the pod goes on.
	if x, err := a.Admin.Pool.ResizeSlice(t.Context(), &poolv1.ResizeSliceRequest{SliceId: slices(poolv1.Slice_STATE_RUNNING)[0].SliceId, ComputePercent: 60, MemoryMib: 48}); err != nil || x.ComputePercent != 60 || x.MemoryMib != 48 {
		t.Errorf("resized: %v, %v", x, err)
	}
	second := job("second", `./program add 3`, 50) // waits for the first
	apptest.Until(t, "the second says what it waits for", func() bool {
		res, err := a.Admin.Jobs.GetJob(t.Context(), &jobsv1.GetJobRequest{JobId: second})
		return err == nil && len(res.Replicas) == 1 && strings.Contains(res.Replicas[0].Message, "accelerator pool")
	})
	native := exec.CommandContext(t.Context(), program, "add", "3")
	native.Env = append(os.Environ(), "OCL_ICD_VENDORS="+onlyPoCL(t))
	want, err := native.Output()
	if err != nil {
		t.Fatal(err)
	}
	for id, text := range map[string]string{first: "0\n" + string(want) + "1\n", second: string(want)} {
		end := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
		if r := end.Replicas[0]; r.AiCenterId != "k8s" || r.Attempt != 1 {
			t.Errorf("%s ran as %v", id, r)
		}
		if got := readLog(t, a, id, 0); got != text {
			t.Errorf("%s printed %q, want %q", id, got, text)
		}
	}
	begun := time.Now()
	apptest.Until(t, "the slices end", func() bool { return len(slices(poolv1.Slice_STATE_ENDED)) == 2 })
	t.Logf("figure: slices had ended %s after their jobs", time.Since(begun).Round(10*time.Millisecond))
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
