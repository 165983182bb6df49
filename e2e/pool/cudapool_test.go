package pool_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	"yunhe.dev/yunhe/gen/yunhe/identity/v1/identityv1connect"
	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
	"yunhe.dev/yunhe/gen/yunhe/metering/v1/meteringv1connect"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
	"yunhe.dev/yunhe/internal/pools/pods"
)

// These tests lend slices of CUDA devices through a platform, on a stand-in of the
// driver (internal/pool/cards/testdata/fakecuda.c): nothing here says how cards
// behave.

// cudaWorld is a platform whose nodes have what plays two cards, cuda-0 and cuda-1,
// of which OpenCL shows the second, too, as opencl-0.
type cudaWorld struct {
	*world
	driver  string // the folder of what plays the driver
	near    string // a program that runs where the driver is
	far     string // one that runs anywhere
	vendors string
}

func openCUDA(t *testing.T) *cudaWorld {
	if _, err := os.Stat(binary); err != nil {
		t.Skip("SKIPPED: bin/yunhe is not built")
	}
	w := &cudaWorld{world: open(t, false), driver: cardstest.Build(t, "cuda", "opencl")}
	w.vendors = w.world.vendors("fake", "nothing")
	must(t, os.WriteFile(filepath.Join(w.vendors, "fake.icd"), []byte(filepath.Join(w.driver, "libfakecl.so")+"\n"), 0o600))
	for _, x := range []struct {
		to   *string
		name string
	}{{&w.near, "cuda"}, {&w.far, "cudaremote"}} {
		*x.to = w.compile("../../shim/test/" + x.name + ".c")
	}
	w.group()
	return w
}

// compile compiles a program that is linked with the driver.
func (w *cudaWorld) compile(source string) (to string) {
	w.t.Helper()
	to = filepath.Join(w.dir, strings.TrimSuffix(filepath.Base(source), ".c"))
	if out, err := exec.CommandContext(w.t.Context(), "gcc", "-std=gnu11", "-O2", "-o", to, source, "-L"+w.driver, "-l:libcuda.so.1", "-ldl", "-pthread").CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	return to
}

// start starts a node, one that joined before again. On its machine programs reach it
// by its Unix socket, if they are to.
func (w *cudaWorld) start(name string, near bool) (cmd *exec.Cmd) {
	w.t.Helper()
	dir := filepath.Join(w.dir, name)
	args := []string{"pool", "node", "--data", dir, "--libraries", w.driver, "--listen", "tcp:127.0.0.1:0"}
	if near {
		args = append(args, "--listen", "unix:"+dir+".s")
	}
	if _, err := os.Stat(dir); err != nil {
		token, err := w.bench.API.CreateNodeToken(w.t.Context(), &poolv1.CreateNodeTokenRequest{})
		must(w.t, err)
		args = append(args, "--name", name, "--join", w.url, "--token", token.Token)
	}
	cmd = exec.Command(w.bin, args...)
	cmd.Env = append(os.Environ(), "OCL_ICD_VENDORS="+w.vendors)
	w.serve(cmd, regexp.MustCompile("pool node listens"))
	return cmd
}

// run runs yunhe pool run with these arguments, the program's driver being there.
func (w *cudaWorld) run(args ...string) (string, error) {
	out, err := w.bench.Yunhe(w.t.Context(), "", []string{"LD_LIBRARY_PATH=" + w.driver}, append([]string{"pool", "run", "--platform"}, args...)...).CombinedOutput()
	return string(out), err
}

// live are the slices that have not ended, by their names: of each the newest.
func (w *cudaWorld) live() map[string]*poolv1.Slice {
	w.t.Helper()
	res, err := w.bench.API.ListSlices(w.t.Context(), &poolv1.ListSlicesRequest{})
	must(w.t, err)
	out := map[string]*poolv1.Slice{}
	for _, x := range res.Slices { // the newest first
		if out[x.Name] == nil {
			out[x.Name] = x
		}
	}
	return out
}

// ended waits until a slice has ended, and returns why.
func (w *cudaWorld) ended(id string) string {
	w.t.Helper()
	var last *poolv1.Slice
	w.until("slice "+id+" has ended", func() bool {
		res, err := w.bench.API.AwaitSlice(w.t.Context(), &poolv1.AwaitSliceRequest{SliceId: id})
		must(w.t, err)
		last = res.Slice
		return last.State == poolv1.Slice_STATE_ENDED
	})
	return last.Reason
}

// talk is a program that waits for what it is told.
type talk struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	errs bytes.Buffer
}

func (w *cudaWorld) talk(args ...string) *talk {
	w.t.Helper()
	return talkTo(w.t, w.bench.Yunhe(context.WithoutCancel(w.t.Context()), "", []string{"LD_LIBRARY_PATH=" + w.driver}, append([]string{"pool", "run", "--platform"}, args...)...))
}

func talkTo(t *testing.T, cmd *exec.Cmd) *talk {
	t.Helper()
	k := &talk{t: t, cmd: cmd}
	var err error
	k.in, err = k.cmd.StdinPipe()
	must(t, err)
	out, err := k.cmd.StdoutPipe()
	must(t, err)
	k.out, k.cmd.Stderr = bufio.NewScanner(out), &k.errs
	must(t, k.cmd.Start())
	t.Cleanup(func() { _ = k.cmd.Process.Kill(); _ = k.cmd.Wait() }) // or it has ended
	return k
}

// expect says something and wants an answer.
func (k *talk) expect(say, want string) {
	k.t.Helper()
	_, err := io.WriteString(k.in, say)
	must(k.t, err)
	if !k.out.Scan() || k.out.Text() != want {
		k.t.Fatalf("after %q: %q, want %q; %s", say, k.out.Text(), want, k.errs.String())
	}
}

// TestCUDAPool: a platform lends slices of CUDA devices as it lends those of OpenCL,
// to programs on the node's machine and to others.
func TestCUDAPool(t *testing.T) {
	w := openCUDA(t)
	node := w.start("n1", true)
	w.online(1)
	nodes, err := w.bench.API.ListPoolNodes(t.Context(), &poolv1.ListPoolNodesRequest{})
	must(t, err)
	listed := ""
	for _, d := range nodes.Nodes[0].Devices {
		listed += fmt.Sprintf("%s %s %s(%s) ", d.DeviceId, d.Api, d.Model, d.SameCardDeviceId)
	}
	if want := "cuda-0 cuda FAKE H200() cuda-1 cuda FAKE H100(opencl-0) opencl-0 opencl FAKE H100(cuda-1) "; listed != want {
		t.Errorf("the node has %q, want %q", listed, want)
	}

	// To the byte, with the driver in the program and without.
	on := []string{"--on", "n1/cuda-0", "--compute", "30", "--memory", "37MiB"}
	for range 2 { // what one had is the next one's
		if out, err := w.run(append(on, "--", w.near, "proc", "env")...); err != nil || out != "filled 37, error 2\nagain 0 2\n" {
			t.Errorf("memory: %v: %s", err, out)
		}
	}
	if out, err := w.run("--api", "cuda", "--memory", "37MiB", "--", w.near, "linked", "info"); err != nil || !strings.HasPrefix(out, "devices 1, ") || !strings.Contains(out, "37 of 37 free") {
		t.Errorf("what it sees: %v: %s", err, out)
	}
	if out, err := w.run("--api", "cuda", "--memory", "37MiB", "--remote", "--", w.far, "fill"); err != nil || out != "filled 37, error 2\nagain 0\n" {
		t.Errorf("by a worker: %v: %s", err, out)
	}

	// Two neighbors, and one who waits.
	a := w.talk("--on", "n1/cuda-0", "--compute", "30", "--memory", "16MiB", "--", w.near, "dlsym", "hold", "16")
	a.expect("", "holds 0")
	b := w.talk("--on", "n1/cuda-0", "--compute", "40", "--memory", "20MiB", "--remote", "--", w.far, "hold", "20")
	b.expect("", "filled 20, error 0")
	a.expect("m", "more 2")
	b.expect("m", "more 2")
	w.until("what they have is told", func() bool {
		x, y := w.live()["cuda"], w.live()["cudaremote"]
		return x != nil && y != nil && x.MemoryUsedBytes == 16<<20 && y.MemoryUsedBytes == 20<<20 && x.Programs == 1 && y.Programs == 1
	})
	first := w.live()["cuda"].SliceId
	if first == "" || w.live()["cuda"].Api != "cuda" {
		t.Errorf("shown as %v", w.live()["cuda"])
	}
	waits := w.talk("--api", "cuda", "--on", "n1/cuda-0", "--compute", "60", "--memory", "1MiB", "--", w.near, "linked", "add", "5")
	w.until("the third waits", func() bool { return w.live()["cuda"].Position == 1 })
	_, err = w.bench.API.MoveSlice(t.Context(), &poolv1.MoveSliceRequest{SliceId: first, NodeId: "n1", DeviceId: "cuda-1"})
	if err == nil || !strings.Contains(err.Error(), "does not move") {
		t.Errorf("moving it: %v", err)
	}
	_, err = w.bench.API.ResizeSlice(t.Context(), &poolv1.ResizeSliceRequest{SliceId: first, MemoryMib: 17})
	must(t, err)
	for deadline := time.Now().Add(10 * time.Second); ; { // the node hears of it in a moment
		_, err := io.WriteString(a.in, "m")
		must(t, err)
		if a.out.Scan(); a.out.Text() == "more 0" || time.Now().After(deadline) {
			break
		}
	}
	a.expect("m", "more 2")
	a.expect("u", "uses 17")
	must(t, a.in.Close())
	must(t, a.cmd.Wait())
	if why := w.ended(first); !strings.Contains(why, "ended") {
		t.Errorf("it ended as %q", why)
	}
	waits.expect("", "sum 327680")
	must(t, waits.cmd.Wait())
	used, err := meteringv1connect.NewMeteringServiceClient(http.DefaultClient, w.url, w.auth).ListUsage(t.Context(), &meteringv1.ListUsageRequest{AllocationId: first})
	if err != nil || len(used.Usage) == 0 || used.Usage[0].AiCenterId != "pool/n1" || used.Usage[0].PackageMicroseconds <= 0 {
		t.Errorf("metered as %v, %v", used, err)
	}
	b.expect("m", "more 2")

	// A device that is disabled, a card that OpenCL shows, too, and who may use what.
	off, onAgain := true, false
	_, err = w.bench.API.SetPoolDevice(t.Context(), &poolv1.SetPoolDeviceRequest{NodeId: "n1", DeviceId: "cuda-0", Disabled: &off})
	must(t, err)
	held, err := w.bench.API.RequestSlice(t.Context(), &poolv1.RequestSliceRequest{ComputePercent: 10, MemoryMib: 16, Api: "cuda", NodeId: "n1", Fixed: true, Name: "held"})
	must(t, err)
	if held.DeviceId != "cuda-1" || held.State != poolv1.Slice_STATE_ASSIGNED {
		t.Fatalf("beside a disabled device it gets %v", held)
	}
	twin, err := w.bench.API.RequestSlice(t.Context(), &poolv1.RequestSliceRequest{ComputePercent: 10, MemoryMib: 16, Fixed: true, Name: "twin"})
	must(t, err)
	if twin.State != poolv1.Slice_STATE_WAITING {
		t.Errorf("a card that is lent by CUDA is lent by OpenCL: %v", twin)
	}
	for range 2 {
		if out, err := w.run("--slice", held.SliceId, "--", w.near, "proc", "fill"); err != nil || out != "filled 16, error 2\nagain 0 2\n" {
			t.Errorf("on a slice that is held: %v: %s", err, out)
		}
	}
	x := w.talk("--slice", held.SliceId, "--", w.near, "dlsym", "hold", "10")
	x.expect("", "holds 0")
	y := w.talk("--slice", held.SliceId, "--", w.near, "proc", "hold", "6") // of what the other leaves
	y.expect("", "holds 0")
	y.expect("m", "more 2")
	must(t, x.in.Close())
	must(t, x.cmd.Wait())
	y.expect("m", "more 0")
	must(t, y.in.Close())
	must(t, y.cmd.Wait())
	_, err = w.bench.API.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: held.SliceId})
	must(t, err)
	w.until("OpenCL has the card", func() bool { return w.live()["twin"].State == poolv1.Slice_STATE_ASSIGNED })
	_, err = w.bench.API.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: twin.SliceId})
	must(t, err)
	_, err = w.bench.API.SetPoolDevice(t.Context(), &poolv1.SetPoolDeviceRequest{NodeId: "n1", DeviceId: "cuda-0", Disabled: &onAgain})
	must(t, err)
	w.refuses(nodes.Nodes[0])

	for flag, says := range map[string]string{"--limit": "it ran for its limit", "--idle": "idle timeout"} {
		k := w.talk("--on", "n1/cuda-0", "--compute", "10", "--memory", "16MiB", flag, "1s", "--", w.near, "dlsym", "hold", "16")
		k.expect("", "holds 0")
		if err := k.cmd.Wait(); err == nil || !strings.Contains(k.errs.String(), says) {
			t.Errorf("%s: %v: %s", flag, err, k.errs.String())
		}
	}

	// A node that is killed, and comes back.
	c := w.talk("--on", "n1/cuda-0", "--compute", "10", "--memory", "16MiB", "--", w.near, "dlsym", "hold", "16")
	c.expect("", "holds 0")
	local, remote := w.live()["cuda"].SliceId, w.live()["cudaremote"].SliceId
	must(t, node.Process.Kill())
	for _, id := range []string{local, remote} {
		if why := w.ended(id); why != "pool node n1 is gone" {
			t.Errorf("it ended as %q", why)
		}
	}
	for _, k := range []*talk{b, c} {
		_, _ = io.WriteString(k.in, "m") // or it has been ended
		if k.out.Scan(); k.out.Text() == "more 0" || !strings.HasPrefix(k.out.Text(), "more ") {
			t.Errorf("after its node was killed a program says %q: %s", k.out.Text(), k.errs.String())
		}
		_ = k.in.Close()
		_ = k.cmd.Wait() // which may end well: it does not ask for more
	}
	w.start("n1", true)
	w.online(1)
	if out, err := w.run(append(on, "--", w.near, "proc", "fill")...); err != nil || out != "filled 37, error 2\nagain 0 2\n" {
		t.Errorf("after it was started again: %v: %s", err, out)
	}

	// Another machine's: there is no socket here.
	w.start("n2", false)
	w.online(2)
	if out, err := w.run("--api", "cuda", "--on", "n2", "--memory", "37MiB", "--", w.far, "fill"); err != nil || out != "filled 37, error 2\nagain 0\n" {
		t.Errorf("over TCP: %v: %s", err, out)
	}
}

// refuses has those who may not use the pool try.
func (w *cudaWorld) refuses(n *poolv1.PoolNode) {
	t := w.t
	t.Helper()
	people := identityv1connect.NewIdentityServiceClient(http.DefaultClient, w.url, w.auth)
	_, err := people.CreateUser(t.Context(), &identityv1.CreateUserRequest{User: &identityv1.User{UserId: "eve", TenantId: "default", Name: "eve", Role: identityv1.Role_ROLE_USER}})
	must(t, err)
	key, err := people.CreateKey(t.Context(), &identityv1.CreateKeyRequest{UserId: "eve"})
	must(t, err)
	_, err = w.bench.API.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}, UserIds: []string{"admin"}, ComputeLimitPercent: 90}})
	must(t, err)
	at := ""
	for _, a := range n.Addresses {
		if strings.HasPrefix(a, "tcp:") {
			at = a
		}
	}
	must(t, os.WriteFile(filepath.Join(w.dir, "key"), []byte("a key of no group, long enough"), 0o600))
	for _, x := range []struct {
		key  string
		args []string
		says string
	}{
		{"yk_wrong", []string{"--platform", "--api", "cuda"}, "error"},
		{key.Secret, []string{"--platform", "--api", "cuda"}, "may use no group"},
		{"", []string{"--platform", "--api", "cuda", "--compute", "91"}, "exceeds the quota of group g"},
		{"", []string{"--platform", "--api", "metal"}, "--api must be opencl or cuda"},
		{"", []string{"--node", at, "--group", "g", "--key-file", filepath.Join(w.dir, "key"), "--api", "cuda"}, "ticket"},
	} {
		args := append(append([]string{"pool", "run", "--memory", "1MiB"}, x.args...), "--", w.far, "fill")
		if out, err := w.bench.Yunhe(t.Context(), x.key, nil, args...).CombinedOutput(); err == nil || !strings.Contains(string(out), x.says) || strings.Contains(string(out), "filled") {
			t.Errorf("%v: %v: %s, want %q", x.args, err, out, x.says)
		}
	}
	_, err = w.bench.API.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(t, err)
}

// TestCUDAJobs: the run of a job at a gateway has a slice of a CUDA device, which is
// in none of its sandbox's devices, whichever machine the node is on.
func TestCUDAJobs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: gateways need root to isolate what they run")
	}
	w := openCUDA(t)
	w.start("n1", true)
	w.online(1)
	yunhe := func(args ...string) (string, error) {
		out, err := w.bench.Yunhe(context.WithoutCancel(t.Context()), "", nil, args...).CombinedOutput()
		return string(out), err
	}
	submit := func(shares, command string) string {
		t.Helper()
		out, err := yunhe("job", "submit", "--name", "cuda", "--image", "host", "--spec", "small", "--pool", shares, "--add-file", w.far+":program", "--command", command)
		id := regexp.MustCompile(`job_\w+`).FindString(out)
		if err != nil || id == "" {
			t.Fatalf("%v: %s", err, out)
		}
		return id
	}
	id := submit("api=cuda,compute=40,memory=37MiB,group=g", "./program fill && ./program late")
	if out, err := yunhe("job", "wait", id); err != nil {
		log, _ := yunhe("job", "logs", id)
		t.Fatalf("%v: %s: %s", err, out, log)
	}
	if out, err := yunhe("job", "logs", id); err != nil || !strings.Contains(out, "filled 37, error 2") || !strings.Contains(out, "then 700 700 700 700") {
		t.Errorf("it says %v: %s", err, out)
	}
	beside := submit("api=cuda,compute=40,memory=37MiB,group=g", "echo here; while [ ! -e go ]; do sleep 0.2; done")
	w.until("the next one runs", func() bool {
		out, err := yunhe("job", "logs", beside)
		return err == nil && strings.Contains(out, "here")
	})
	for range 2 { // what one had is the next one's
		if out, err := yunhe("job", "exec", beside, "--", "./program", "fill"); err != nil || out != "filled 37, error 2\nagain 0\n" {
			t.Errorf("beside the run: %v: %s", err, out)
		}
	}
	if out, err := yunhe("job", "exec", beside, "--", "touch", "go"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := yunhe("job", "wait", beside); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	res, err := w.bench.API.ListSlices(t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_ENDED}})
	must(t, err)
	res.Slices = slices.DeleteFunc(res.Slices, func(x *poolv1.Slice) bool { return x.JobId == beside })
	if len(res.Slices) != 1 || res.Slices[0].JobId != id || res.Slices[0].Api != "cuda" || !strings.HasPrefix(res.Slices[0].DeviceId, "cuda-") {
		t.Errorf("its slices: %v", res.Slices)
	}
	for shares, says := range map[string]string{"api=cuda,compute=10,memory=1MiB,cards=2": "pool.cards: must be 1", "api=x,compute=10,memory=1MiB": "pool.api: must be opencl or cuda"} {
		if out, err := yunhe("job", "submit", "--name", "no", "--image", "host", "--spec", "small", "--pool", shares, "--command", "true"); err == nil || !strings.Contains(out, says) {
			t.Errorf("%s: %v: %s", shares, err, out)
		}
	}
}

// podded is what the webhook makes of a pod of group g with these annotations and limits:
// the arguments of the container beside and the environment of its own. paths are those
// that they are shown, and where they are here.
func podded(t *testing.T, annotations, limits string, o pods.Options, paths ...string) (side, env []string) {
	t.Helper()
	ops, err := pods.Patch([]byte(`{"metadata":{"annotations":{"pool.yunhe.dev/group":"g",`+annotations+`}},"spec":{"containers":[{"name":"main","resources":{"limits":{`+limits+`}}}]}}`), o)
	must(t, err)
	here := strings.NewReplacer(paths...)
	for _, op := range ops {
		value, _ := op.Value.(map[string]any)
		switch {
		case strings.HasSuffix(op.Path, "/env/-"):
			env = append(env, fmt.Sprintf("%s=%s", value["name"], here.Replace(value["value"].(string))))
		case op.Path == "/spec/initContainers/0":
			for _, a := range value["args"].([]string) {
				side = append(side, here.Replace(a))
			}
		}
	}
	return side, env
}

// TestCUDAPods: what the webhook makes of a pod whose container is for CUDA finds the
// slice: the container beside it and its own are played as processes.
func TestCUDAPods(t *testing.T) {
	w := openCUDA(t)
	w.start("n1", false)
	w.online(1)
	dir := t.TempDir()
	side, env := podded(t, `"pool.yunhe.dev/api":"cuda"`, `"yunhe.dev/pool-compute":"40","yunhe.dev/pool-memory":"37"`, pods.Options{Image: "yunhe:1", Server: w.url, Secret: "s"}, "/yunhe-pool", dir)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	beside := w.bench.Yunhe(ctx, "", nil, side...)
	var said bytes.Buffer
	beside.Stderr = &said
	must(t, beside.Start())
	w.until("the slice is ready", func() bool { return exec.Command(binary, "pool", "ready", dir).Run() == nil })
	for range 2 { // processes of one container, one after the other
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", w.far+" fill")
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "filled 37, error 2\nagain 0\n" {
			t.Errorf("with %q: %v: %s", env, err, out)
		}
	}
	stop()
	_ = beside.Wait() // it was told to end
	w.until("the slice has ended", func() bool { return len(w.live()) == 0 })
	if !strings.Contains(said.String(), "LD_PRELOAD="+dir+"/cuda/libcuda.so.1") {
		t.Errorf("the container beside says %s", &said)
	}
}

// TestCUDAPages: an administrator has a card of 8 GiB lend more than twice as much; three
// programs of 6 GiB each compute on it, two with the driver in them and one by a worker.
func TestCUDAPages(t *testing.T) {
	w := openCUDA(t)
	w.start("n1", true)
	w.online(1)
	yunhe := func(args ...string) string {
		t.Helper()
		out, err := w.bench.Yunhe(t.Context(), "", nil, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out := yunhe("pool", "node", "enable", "n1/cuda-0", "--memory-limit", "225"); !strings.Contains(out, "of 18") {
		t.Errorf("the device: %s", out)
	}
	start := func(program string, more ...string) *talk {
		args := append([]string{"pool", "run", "--platform", "--on", "n1/cuda-0", "--compute", "30", "--memory", "6GiB"}, more...)
		return talkTo(t, w.bench.Yunhe(context.WithoutCancel(t.Context()), "", []string{"LD_LIBRARY_PATH=" + w.driver, "FAKE_CARD=" + filepath.Join(w.dir, "card")}, append(args, "--", program, "proc", "paged", "6144", "1")...))
	}
	near := []*talk{start(w.near), start(w.near)}
	all := append(slices.Clone(near), start(w.near, "--remote"))
	for _, k := range all {
		k.expect("", "has 6144 of 6144, 0 free")
	}
	for _, k := range all {
		_, err := io.WriteString(k.in, "g")
		must(t, err)
	}
	for _, k := range all {
		k.expect("", "right, 0 left")
		must(t, k.cmd.Wait())
	}
	for _, k := range near { // the stand-in does not see from them what a worker has
		if said := k.errs.String(); !strings.Contains(said, ", 0 faults") || strings.Contains(said, " 0 fetched") {
			t.Errorf("a program on the node's machine: %s", said)
		}
	}
}
