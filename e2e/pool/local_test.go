package pool_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
)

// gateway starts one whose center is near the nodes of these names: its runs use them
// beside it.
func (w *world) gateway(center string, nodes []string, more ...string) (dir string, stop func()) {
	w.t.Helper()
	return w.gatewayOn(host{}, center, nodes, more...)
}

// gatewayOn starts it on a host, with this machine's files.
func (w *world) gatewayOn(h host, center string, nodes []string, more ...string) (dir string, stop func()) {
	w.t.Helper()
	dir = filepath.Join(w.dir, center)
	must(w.t, os.WriteFile(dir+".yaml", []byte("id: "+center+"\nprices: {small: 100}\naccelerators: none\n"), 0o600))
	token := regexp.MustCompile(`yj_[\w-]+`).FindString(w.yunhe("center", "join-token", "--center", center, "-o", "json"))
	args := append([]string{"gateway", "--server", w.url, "--data", dir, "--center", dir + ".yaml", "--measure", "no", "--token", token}, more...)
	for _, n := range nodes {
		args = append(args, "--pool-node", filepath.Join(w.dir, n))
	}
	name := w.bin
	if h.space != "" { // "ip netns exec" would hide the control groups
		name, args = "nsenter", append([]string{"--net=/run/netns/" + h.space, name}, args...)
	}
	_, stop = w.serve(exec.Command(name, args...), regexp.MustCompile("connected to the platform"))
	return dir, stop
}

// submit submits a job whose run has shares of the pool.
func (w *world) submit(shares, command string, more ...string) (id string) {
	w.t.Helper()
	out := w.yunhe(append([]string{"job", "submit", "--name", "job", "--image", "host", "--spec", "small", "--pool", shares, "--command", command}, more...)...)
	if id = regexp.MustCompile(`job_\w+`).FindString(out); id == "" {
		w.t.Fatal(out)
	}
	return id
}

// TestCUDALocal: the run of a job whose shares are local goes to a center with a pool
// node on its machine, and has the driver of CUDA itself there: bounded, on several
// cards, also beside its command and in an image; whatever ends either ends both.
func TestCUDALocal(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: gateways need root to isolate what they run")
	}
	w := openCUDA(t)
	node := w.start("n1", false)
	w.online(1)
	program := []string{"--add-file", w.near + ":program"}
	if out, err := w.bench.Yunhe(t.Context(), "", nil, "job", "submit", "--name", "early", "--image", "host", "--spec", "small", "--pool", "api=cuda,local,compute=10,memory=1MiB,group=g", "--command", "true").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "no center has a pool node on its machine") {
		t.Errorf("without such a center: %v: %s", err, out)
	}
	dir, stop := w.gateway("near", []string{"n1"}, "--pool-libraries", w.driver)

	id := w.submit("api=cuda,local,compute=40,memory=37MiB,group=g", "./program linked info && ./program proc env && ./program dlsym add 5", program...)
	w.yunhe("job", "wait", id)
	if log := w.yunhe("job", "logs", id); !strings.HasPrefix(log, "devices 1, ") || !strings.Contains(log, "37 of 37 free") || !strings.Contains(log, "filled 37, error 2\nagain 0 2\nsum 327680\n") {
		t.Errorf("it says %s", log)
	}
	if out := w.yunhe("job", "show", id); !strings.Contains(out, "near") {
		t.Errorf("it ran at %s", out)
	}
	two := w.submit("api=cuda,local,cards=2,compute=30,memory=37MiB,group=g", "./program linked cards 1000", program...)
	w.yunhe("job", "wait", two)
	if log := w.yunhe("job", "logs", two); !strings.Contains(log, ", then 101\n") || strings.Count(log, "has 37 MiB, 36 of 37 free, then it uses 10, 6, 11\n") != 2 {
		t.Errorf("on two cards it says %s", log)
	}

	// Beside the run, without its gateway, and until it is stopped.
	beside := w.submit("api=cuda,local,cards=2,compute=40,memory=37MiB,group=g", "sleep 1000 | ./program linked hold 37", program...)
	of := func(job string) (out []*poolv1.Slice) {
		res, err := w.bench.API.ListSlices(t.Context(), &poolv1.ListSlicesRequest{})
		must(t, err)
		return slices.DeleteFunc(res.Slices, func(x *poolv1.Slice) bool { return x.JobId != job })
	}
	holds := func(job string) bool {
		return slices.ContainsFunc(of(job), func(x *poolv1.Slice) bool { return x.MemoryUsedBytes == 37<<20 })
	}
	w.until("it holds what it asked for", func() bool { return holds(beside) })
	if out := w.yunhe("job", "exec", beside, "--", "./program", "proc", "shows"); !strings.HasPrefix(out, "0000:17:00.0 0000:65:00.0") {
		t.Errorf("beside the run it sees %s", out)
	}
	if out := w.yunhe("job", "exec", beside, "--", "./program", "proc", "hold", "1"); out != "holds 2\n" {
		t.Errorf("beside what has all of a card's memory: %s", out)
	}
	stop()
	if !holds(beside) {
		t.Errorf("without the gateway its slices are %v", of(beside))
	}
	_, stop = w.gateway("near", []string{"n1"}, "--pool-libraries", w.driver)
	if out := w.yunhe("job", "exec", beside, "--", "./program", "proc", "shows"); !strings.HasPrefix(out, "0000:17:00.0 0000:65:00.0") {
		t.Errorf("under the next gateway it sees %s", out)
	}
	w.yunhe("job", "stop", beside)
	w.until("its slices have ended", func() bool { return len(of(beside)) == 0 })

	// A slice that is taken back ends its program, and so the run.
	taken := w.submit("api=cuda,local,compute=40,memory=37MiB,group=g", "sleep 1000 | ./program linked hold 37; echo it ended", program...)
	w.until("it holds what it asked for", func() bool { return holds(taken) })
	_, err := w.bench.API.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: of(taken)[0].SliceId})
	must(t, err)
	w.until("its program has ended", func() bool { return strings.Contains(w.yunhe("job", "logs", taken), "Killed") })
	w.yunhe("job", "stop", taken)

	// The node is killed: a program that computes is told, and the next run has the next node.
	cut := w.submit("api=cuda,local,compute=40,memory=37MiB,group=g", "./program linked spin 1000 600; echo it ended with $?", program...)
	w.until("it computes", func() bool { x := of(cut); return len(x) == 1 && x[0].Programs == 1 })
	must(t, node.Process.Kill())
	w.until("its program has ended", func() bool { return strings.Contains(w.yunhe("job", "logs", cut), "it ended with") })
	t.Logf("without its node it says %s", w.yunhe("job", "logs", cut))
	w.start("n1", false)
	id = w.submit("api=cuda,local,compute=40,memory=37MiB,group=g", "./program proc env", program...)
	w.yunhe("job", "wait", id)
	if log := w.yunhe("job", "logs", id); log != "filled 37, error 2\nagain 0 2\n" {
		t.Errorf("under the next node it says %s", log)
	}

	// An image brings its own programs, and has the machine's driver.
	root := w.root("image", w.near, w.libraries("libcuda", w.near))
	if out, err := exec.Command("tar", "-C", root, "-cf", root+".tar", ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.yunhe("gateway", "image", "load", "--data", dir, "--id", "image", root+".tar")
	w.until("the image is known", func() bool {
		out, err := w.bench.Yunhe(t.Context(), "", nil, "job", "submit", "--name", "image", "--image", "image", "--spec", "small", "--pool", "api=cuda,local,compute=40,memory=37MiB,group=g",
			"--command", "program linked info && program dlsym add 5").CombinedOutput()
		id = regexp.MustCompile(`job_\w+`).FindString(string(out))
		return err == nil && id != ""
	})
	w.yunhe("job", "wait", id)
	if log := w.yunhe("job", "logs", id); !strings.HasPrefix(log, "devices 1, ") || !strings.Contains(log, "sum 327680\n") {
		t.Errorf("in an image it says %s", log)
	}

	for shares, says := range map[string]string{
		"api=cuda,local,cards=3,compute=10,memory=1MiB":        "3 cards of one pool node are wanted: none has more than 2",
		"api=cuda,local,cards=2,across,compute=10,memory=1MiB": "pool.across_nodes: is not for shares that are local",
		"api=cuda,cards=2,compute=10,memory=1MiB":              "pool.cards: must be 1 with the api cuda, but for slices that are local",
		"api=cuda,local,model=none,compute=10,memory=1MiB":     "of the model",
	} {
		if out, err := w.bench.Yunhe(t.Context(), "", nil, "job", "submit", "--name", "no", "--image", "host", "--spec", "small", "--pool", shares, "--command", "true").CombinedOutput(); err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%s: %v: %s", shares, err, out)
		}
	}
	stop()
}

// TestLocal: programs of OpenCL of such a run reach the node by its socket, with the
// memory that both share; they go on where the slice moves.
func TestLocal(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: gateways need root to isolate what they run")
	}
	w := open(t, false)
	vendors := w.vendors("one", "pocl.icd")
	w.node("n1", vendors)
	w.online(1)
	w.group()
	w.gateway("near", []string{"n1"})
	native := exec.Command(w.bench.Program, "add", "3")
	native.Env = append(os.Environ(), "OCL_ICD_VENDORS="+vendors)
	sum, err := native.Output()
	must(t, err)
	id := w.submit("local,compute=40,memory=64MiB,group=g", "env | grep POOL_ADDRESS; YUNHE_POOL_TRANSPORT=ring ./program add 3; while [ ! -e go ]; do sleep 0.2; done; ./program add 3", "--add-file", w.bench.Program+":program")
	const at = "YUNHE_POOL_ADDRESS=unix:/run/yunhe-pool/node-0/pool.sock\n"
	w.until("it has computed", func() bool { return strings.Contains(w.yunhe("job", "logs", id), "sum ") })
	if log := w.yunhe("job", "logs", id); log != at+string(sum) {
		t.Errorf("it says %q, natively %q", log, sum)
	}
	if got := w.yunhe("job", "exec", id, "--", "./program", "add", "3"); got != string(sum) {
		t.Errorf("beside the run it says %q, natively %q", got, sum)
	}
	res, err := w.bench.API.ListSlices(t.Context(), &poolv1.ListSlicesRequest{})
	must(t, err)
	if len(res.Slices) != 1 {
		t.Fatalf("slices are %v", res.Slices)
	}
	w.node("n2", vendors)
	w.online(2)
	w.moved(res.Slices[0].SliceId, "n2")
	w.yunhe("job", "exec", id, "--", "touch", "go")
	w.yunhe("job", "wait", id)
	if log := w.yunhe("job", "logs", id); log != at+string(sum)+string(sum) {
		t.Errorf("where the slice has gone: %q", log)
	}
}
