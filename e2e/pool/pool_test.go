// Package pool_test plays the tests of clause 12 on a platform, two pool nodes and
// a client of their own: each a process in a network namespace, with real compute
// and a real browser. The checks are those of "yunhe pool conformance"
// (internal/pools/conformance); here nodes and cards can be put in and taken out,
// and the console is looked at.
package pool_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"yunhe.dev/yunhe/gen/yunhe/alarms/v1/alarmsv1connect"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	"yunhe.dev/yunhe/gen/yunhe/identity/v1/identityv1connect"
	"yunhe.dev/yunhe/gen/yunhe/notices/v1/noticesv1connect"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/internal/pools/conformance"
)

const (
	binary = "../../bin/yunhe"
	subnet = "10.213.77."
	bridge = "yhpool0"
)

// world is a platform with its pool.
type world struct {
	t        *testing.T
	bin      string // what runs
	dir      string
	spaces   bool // there are network namespaces
	hosts    int
	platform *exec.Cmd
	url      string
	key      string
	auth     connect.ClientOption
	bench    conformance.Bench
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ip(args string) error {
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

// host is a machine: a namespace with an address, and a file that says which kernel runs; "": this machine's.
type host struct{ space, address, kernel string }

// host makes one more.
func (w *world) host() host {
	w.t.Helper()
	if !w.spaces {
		return host{address: "127.0.0.1"}
	}
	w.hosts++
	h := host{space: fmt.Sprintf("yhpool%d", w.hosts), address: fmt.Sprintf("%s%d", subnet, 10+w.hosts)}
	end := fmt.Sprintf("yhp%d", w.hosts)
	must(w.t, ip("netns add "+h.space))
	w.t.Cleanup(func() { _ = ip("netns del " + h.space) }) // its end of the wire goes with it
	for _, do := range []string{"link add " + end + " type veth peer name eth0 netns " + h.space, "link set " + end + " master " + bridge + " up",
		"-n " + h.space + " link set lo up", "-n " + h.space + " addr add " + h.address + "/24 dev eth0", "-n " + h.space + " link set eth0 up"} {
		must(w.t, ip(do))
	}
	return h
}

// command runs on a host.
func (h host) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if h.kernel != "" { // in the mounts of its own that ip makes
		name, args = "sh", append([]string{"-c", `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, h.kernel, name}, args...)
	}
	if h.space != "" {
		name, args = "ip", append([]string{"netns", "exec", h.space, name}, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// serve starts what runs until the test ends, and waits until it says something.
func (w *world) serve(cmd *exec.Cmd, ready *regexp.Regexp) (said []string, stop func()) {
	w.t.Helper()
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	must(w.t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		_ = in.Close()
		close(ended)
	}()
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // or it has ended
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	w.t.Cleanup(stop)
	lines := bufio.NewScanner(out)
	var all strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&all, lines.Text())
		if said = ready.FindStringSubmatch(lines.Text()); said != nil {
			rest := make(chan string, 1)
			go func() { rest <- end(out) }()
			w.t.Cleanup(func() {
				if stop(); w.t.Failed() {
					w.t.Logf("%s said at last:\n%s", cmd, <-rest)
				}
			})
			return said, stop
		}
	}
	w.t.Fatalf("%s ended: %s", cmd, all.String())
	return nil, nil
}

// end reads to the end, and returns what came last.
func end(r io.Reader) string {
	const most = 16 << 10
	var last []byte
	b := make([]byte, most)
	for {
		n, err := r.Read(b)
		last = append(last, b[:n]...)
		last = last[max(len(last)-most, 0):]
		if err != nil {
			return string(last)
		}
	}
}

// oclgrind is another vendor's driver: a device that is simulated by
// interpreting kernels, so that they really compute.
const oclgrind = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"

// rusticl is a third one's, where it is installed (package mesa-opencl-icd): make
// deps does not bring it, because it would be among every program's devices.
const rusticl = "/usr/lib/x86_64-linux-gnu/libRusticlOpenCL.so.1"

// vendors is a folder with the drivers of these files of the machine's.
func (w *world) vendors(name, pattern string) string {
	w.t.Helper()
	dir := filepath.Join(w.dir, name)
	must(w.t, os.MkdirAll(dir, 0o700))
	files, err := filepath.Glob("/etc/OpenCL/vendors/" + pattern)
	must(w.t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		must(w.t, err)
		must(w.t, os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o600))
	}
	return dir
}

// node starts a pool node on a host of its own.
func (w *world) node(name, vendors string) (cmd *exec.Cmd, stop func()) {
	w.t.Helper()
	return w.nodeOn(w.host(), name, vendors)
}

// apart makes a host one whose kernel is another, as far as programs there see.
func (w *world) apart(h host) host {
	w.t.Helper()
	if h.space != "" {
		h.kernel = filepath.Join(w.dir, h.space+".boot_id")
		must(w.t, os.WriteFile(h.kernel, []byte("00000000-0000-4000-8000-0000000000"+strconv.Itoa(10+w.hosts)+"\n"), 0o600))
	}
	return h
}

func (w *world) nodeOn(h host, name, vendors string) (cmd *exec.Cmd, stop func()) {
	w.t.Helper()
	token, err := w.bench.API.CreateNodeToken(w.t.Context(), &poolv1.CreateNodeTokenRequest{})
	must(w.t, err)
	cmd = h.command(context.Background(), w.bin, "pool", "node", "--join", w.url, "--token", token.Token, "--name", name, "--data", filepath.Join(w.dir, name), "--listen", "tcp:"+h.address+":0")
	cmd.Env = append(os.Environ(), "OCL_ICD_VENDORS="+vendors, "RUSTICL_ENABLE=llvmpipe")
	_, stop = w.serve(cmd, regexp.MustCompile("pool node listens"))
	return cmd, stop
}

// online waits until so many nodes are there.
func (w *world) online(n int) {
	w.t.Helper()
	w.until("the nodes are there", func() bool {
		res, err := w.bench.API.ListPoolNodes(w.t.Context(), &poolv1.ListPoolNodesRequest{})
		must(w.t, err)
		return len(res.Nodes) == n && !slices.ContainsFunc(res.Nodes, func(x *poolv1.PoolNode) bool { return !x.Online || len(x.Devices) == 0 })
	})
}

// lend has nodes lend what these vendors' files show, to group g.
func (w *world) lend(vendors string, nodes ...string) {
	w.t.Helper()
	for _, name := range nodes {
		w.node(name, vendors)
	}
	w.online(len(nodes))
	w.group()
}

// group makes group g.
func (w *world) group() {
	w.t.Helper()
	_, err := w.bench.API.SetPoolGroup(w.t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(w.t, err)
}

// yunhe is what the command says, which must not fail.
func (w *world) yunhe(args ...string) string {
	w.t.Helper()
	out, err := w.bench.Yunhe(context.WithoutCancel(w.t.Context()), "", nil, args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("yunhe %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// until waits for something that is asked for again and again.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !is(); <-time.After(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("never seen: %s", what)
		}
	}
}

// twoCards is a driver that has no devices, and has PoCL show two.
const twoCards = `#include <stdlib.h>
__attribute__((constructor)) static void two(void) { setenv("POCL_DEVICES", "pthread basic", 1); }
void *clGetExtensionFunctionAddress(const char *name) { (void)name; return 0; }
`

// moved moves a slice and waits until it has moved, or why it did not.
func (w *world) moved(slice, node string) (x *poolv1.Slice) {
	w.t.Helper()
	w.until("slice "+slice+" has moved to "+node, func() bool {
		var err error
		x, err = w.bench.API.MoveSlice(w.t.Context(), &poolv1.MoveSliceRequest{SliceId: slice, NodeId: node, WaitMs: 5000})
		must(w.t, err)
		return x.MovingToNodeId == ""
	})
	return x
}

// addNode starts a node into which a card can be put.
func (w *world) addNode(context.Context) (conformance.Node, error) {
	dir := w.vendors("slots", "pocl.icd")
	source, lib, slot := filepath.Join(w.dir, "two.c"), filepath.Join(w.dir, "two.so"), filepath.Join(dir, "a.icd")
	if err := os.WriteFile(source, []byte(twoCards), 0o600); err != nil {
		return conformance.Node{}, err
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", lib, source).CombinedOutput(); err != nil {
		return conformance.Node{}, fmt.Errorf("%w: %s", err, out)
	}
	_, stop := w.node("added", dir)
	return conformance.Node{ID: "added", Stop: stop, Card: func(in bool) error {
		if in {
			return os.WriteFile(slot, []byte(lib+"\n"), 0o600)
		}
		return os.Remove(slot)
	}}, nil
}

// port is one that is free.
func port(t *testing.T, at string) string {
	l, err := net.Listen("tcp", at+":0")
	must(t, err)
	defer l.Close()
	_, p, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	return p
}

// open brings a platform up.
func open(t *testing.T, spaces bool) *world {
	return openOf(t, binary, spaces)
}

// openOf brings one of a version up.
func openOf(t *testing.T, binary string, spaces bool) *world {
	if _, err := os.Stat(binary); err != nil {
		t.Fatal("bin/yunhe is not there: make build")
	}
	w := &world{t: t, bin: binary}
	var err error
	w.dir, err = os.MkdirTemp("", "yhp") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(w.dir) })
	listen := "127.0.0.1"
	if !spaces {
		// all on one address
	} else if err := ip("link add " + bridge + " type bridge"); err != nil {
		t.Logf("WITHOUT NETWORK NAMESPACES, all on one address: %v", err)
	} else {
		t.Cleanup(func() { _ = ip("link del " + bridge) })
		w.spaces, listen = true, subnet+"1"
		must(t, ip("addr add "+listen+"/24 dev "+bridge))
		must(t, ip("link set "+bridge+" up"))
	}
	data, config := filepath.Join(w.dir, "data"), filepath.Join(w.dir, "config.yaml")
	must(t, os.WriteFile(config, []byte("bus: {listen: \""+listen+":0\"}\n"), 0o600))                                                           // of gateways on hosts of their own
	w.platform = host{}.command(context.Background(), binary, "up", "--config", config, "--data", data, "--listen", listen+":"+port(t, listen)) // the same when it is upgraded
	said, _ := w.serve(w.platform, regexp.MustCompile(`^Console and API: (\S+)$`))
	w.connect(said[1], data)
	w.bench.Program = filepath.Join(w.dir, "program")
	if out, err := exec.Command("gcc", "-std=gnu11", "-O2", "-o", w.bench.Program, "../../shim/test/pool.c", "-l:libOpenCL.so.1", "-pthread").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	client, none := w.host(), w.vendors("none", "nothing")
	w.bench.Yunhe = func(ctx context.Context, key string, env []string, args ...string) *exec.Cmd {
		if key == "" {
			key = w.key
		}
		cmd := client.command(ctx, w.bin, args...)
		cmd.Env = append(append(os.Environ(), "YUNHE_SERVER="+w.url, "YUNHE_KEY="+key, "OCL_ICD_VENDORS="+none), env...)
		return cmd
	}
	return w
}

// connect has the API called of a platform that keeps what it has in a folder.
func (w *world) connect(url, data string) {
	w.t.Helper()
	w.url = url
	key, err := os.ReadFile(filepath.Join(data, "admin.key"))
	must(w.t, err)
	w.key = strings.TrimSpace(string(key))
	w.auth = connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			r.Header().Set("Authorization", "Bearer "+w.key)
			return next(ctx, r)
		}
	}))
	w.bench.API = poolv1connect.NewPoolServiceClient(http.DefaultClient, w.url, w.auth)
}

// start brings all up.
func start(t *testing.T) *world {
	if os.Getenv("YUNHE_TEST_POOL") == "" {
		t.Skip("SKIPPED: the 27 tests of clause 12 take minutes; make test-pool runs them")
	}
	w := open(t, true)
	w.bench.Operation, w.bench.Alarms, w.bench.Notices = poolv1connect.NewPoolOperationServiceClient(http.DefaultClient, w.url, w.auth), alarmsv1connect.NewAlarmServiceClient(http.DefaultClient, w.url, w.auth), noticesv1connect.NewNoticeServiceClient(http.DefaultClient, w.url, w.auth)
	w.bench.Tenant, w.bench.AddNode = "default", w.addNode
	people := identityv1connect.NewIdentityServiceClient(http.DefaultClient, w.url, w.auth)
	for _, user := range []string{"ann", "bob"} {
		_, err := people.CreateUser(t.Context(), &identityv1.CreateUserRequest{User: &identityv1.User{UserId: user, TenantId: "default", Name: user, Role: identityv1.Role_ROLE_USER}})
		must(t, err)
		key, err := people.CreateKey(t.Context(), &identityv1.CreateKeyRequest{UserId: user})
		must(t, err)
		w.bench.Clients = append(w.bench.Clients, conformance.Client{User: user, Key: key.Secret})
	}
	w.bench.Release = filepath.Join(w.dir, "yunhe-next")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=v999.0.0-next", "-o", w.bench.Release, "../../cmd/yunhe")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.node("n1", w.vendors("one", "pocl.icd"))
	two := w.vendors("two", "pocl.icd")
	for name, library := range map[string]string{"oclgrind": oclgrind, "rusticl": rusticl} {
		if _, err := os.Stat(library); err == nil {
			must(t, os.WriteFile(filepath.Join(two, name+".icd"), []byte(library+"\n"), 0o600))
		}
	}
	w.nodeOn(w.apart(w.host()), "n2", two)
	w.browser()
	return w
}

// browser has what people see looked at, where there is a browser.
func (w *world) browser() {
	w.t.Helper()
	if _, err := os.Stat("../../web/node_modules/playwright-core"); err != nil {
		w.t.Log("WITHOUT A BROWSER: the console is not looked at (web/node_modules is not there); the API is asked instead")
		return
	}
	cmd := exec.Command("node", "../../web/e2e/look.mjs")
	cmd.Env = append(os.Environ(), "YUNHE_URL="+w.url, "YUNHE_KEY="+w.key)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(w.t, err)
	out, err := cmd.StdoutPipe()
	must(w.t, err)
	must(w.t, cmd.Start())
	w.t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	answers := bufio.NewReader(out)
	ask := func(tab string, want []string, press, choose string) error {
		if err := json.NewEncoder(in).Encode(map[string]any{"tab": tab, "want": want, "press": press, "choose": choose}); err != nil {
			return err
		}
		line, err := answers.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the browser ended: %w", err)
		}
		if line = strings.TrimSpace(line); line != "seen" {
			return fmt.Errorf("the console does not show %v on %s, or has no %q: %s", want, tab, press, line)
		}
		return nil
	}
	w.bench.Look = func(_ context.Context, tab string, want ...string) error { return ask(tab, want, "", "") }
	w.bench.Press = func(_ context.Context, tab, key, button, choose string) error {
		return ask(tab, []string{key}, button, choose)
	}
}

// TestClause12 plays each test, by its name. What it needs is to be there: without
// network namespaces, a browser or a test it fails.
func TestClause12(t *testing.T) {
	w := start(t)
	if !w.spaces {
		t.Error("there are no network namespaces: nodes and clients are all on one address (this needs root and ip, of iproute2)")
	}
	if w.bench.Look == nil {
		t.Error("there is no browser: the console is not looked at (web/node_modules is not there: npm ci in web)")
	}
	var all []string
	w.online(2)
	r := conformance.Report{}
	for _, x := range conformance.Tests {
		t.Run(x.ID, func(t *testing.T) {
			got := conformance.Run(t.Context(), w.bench, []string{x.ID}, func(conformance.Verdict) {})
			v := got.Tests[0]
			r.Tests = append(r.Tests, v)
			switch v.Result {
			case conformance.NotProvided:
				all = append(all, x.ID)
				t.Skipf("NOT PROVIDED: %s: %s", x.Title, v.Reason)
			case conformance.Failed:
				t.Errorf("%s: %s", x.Title, v.Reason)
			}
		})
	}
	if level := conformance.Level(r.Tests); len(r.Tests) == len(conformance.Tests) && level != 5 { // all were asked for
		t.Errorf("level %d of table A.1, not 5; not provided: %s", level, strings.Join(all, " "))
	} else {
		t.Logf("level %d of table A.1", level)
	}
}
