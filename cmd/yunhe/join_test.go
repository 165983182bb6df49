package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// The program that join puts on the machine is this test binary: under its
// name there it is the command.
func TestMain(m *testing.M) {
	if strings.HasPrefix(filepath.Base(os.Args[0]), "yunhe") && !strings.HasSuffix(os.Args[0], ".test") {
		main()
		return
	}
	if filepath.Base(os.Args[0]) == "hears" {
		hearSignals()
		return
	}
	os.Exit(apptest.Main(m))
}

// sshd is a real OpenSSH server on loopback with its own keys and files.
type sshd struct {
	dir, addr      string
	identity       string // a key it accepts for root
	hostKey        ssh.PublicKey
	hosts          string // a known hosts file that knows it
	authorizedKeys string
}

func newKey(t *testing.T, path string) ssh.PublicKey {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sshdOptions are for machines out of the ordinary.
type sshdOptions struct {
	wrap []string // the command that runs it
	env  string   // what commands have of it, too
}

func startSSHD(t *testing.T, o sshdOptions) *sshd {
	t.Helper()
	apptest.NeedRoot(t)
	program := "/usr/sbin/sshd"
	if _, err := os.Stat(program); err != nil {
		t.Skipf("SKIPPED: there is no OpenSSH server: %v", err)
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // where it shuts itself in before a login
		t.Fatal(err)
	}
	s := &sshd{dir: t.TempDir()}
	s.identity, s.authorizedKeys, s.hosts = filepath.Join(s.dir, "id"), filepath.Join(s.dir, "authorized_keys"), filepath.Join(s.dir, "known_hosts")
	s.hostKey = newKey(t, filepath.Join(s.dir, "host_ed25519"))
	if err := os.WriteFile(s.authorizedKeys, ssh.MarshalAuthorizedKey(newKey(t, s.identity)), 0o600); err != nil {
		t.Fatal(err)
	}
	// A second host key of another kind: clients must ask for the one they know.
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", filepath.Join(s.dir, "host_ecdsa")).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(s.addr)
	// SHLVL: bash reads a person's start-up file when it runs a command for SSH, unless
	// another shell runs it. What is in this machine's is not what is tested, and may be slow.
	config := fmt.Sprintf(`Port %s
SetEnv SHLVL=1 %[3]s
ListenAddress 127.0.0.1
HostKey %[2]s/host_ecdsa
HostKey %[2]s/host_ed25519
AuthorizedKeysFile %[2]s/authorized_keys
PidFile %[2]s/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
`, port, s.dir, o.env)
	path := filepath.Join(s.dir, "sshd_config")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.hosts, []byte(knownhosts.Line([]string{s.addr}, s.hostKey)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	words := append(slices.Clone(o.wrap), program, "-D", "-e", "-f", path)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // ended by the signal
		if t.Failed() {
			t.Logf("sshd said:\n%s", said.String())
		}
	})
	apptest.Until(t, "sshd listens", func() bool {
		conn, err := net.Dial("tcp", s.addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return s
}

// lab is a platform, a machine and where on it a gateway is put.
type lab struct {
	*apptest.App

	t      *testing.T
	sshd   *sshd
	dir    string
	center string
}

var labs atomic.Int64

func newLab(t *testing.T, o sshdOptions) *lab {
	t.Helper()
	s := startSSHD(t, o)
	l := &lab{App: apptest.Start(t, apptest.Options{}), t: t, sshd: s, dir: filepath.Join(t.TempDir(), "gateway"), center: fmt.Sprintf("apptest-%d-join%d", os.Getpid(), labs.Add(1))}
	t.Cleanup(l.kill)
	return l
}

// kill ends what a test that failed left.
func (l *lab) kill() {
	for _, pid := range append(l.processes("/bin/sh "+l.dir+"/keeper.sh"), l.processes(l.dir+"/bin/yunhe gateway")...) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if l.t.Failed() {
		b, _ := os.ReadFile(filepath.Join(l.dir, "gateway.log"))
		l.t.Logf("the gateway said:\n%s", b)
	}
}

// processes are those whose command line begins so.
func (l *lab) processes(command string) (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range found {
		b, err := os.ReadFile(f)
		var pid int
		if _, serr := fmt.Sscanf(f, "/proc/%d/", &pid); err == nil && serr == nil && strings.HasPrefix(strings.ReplaceAll(string(b), "\x00", " "), command) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (l *lab) gateways() []int { return l.processes(l.dir + "/bin/yunhe gateway") }

// start runs a command line as a person with the key would.
func (l *lab) start(setup func(*cli), args ...string) *call {
	l.t.Helper()
	c := &call{out: newWatched(), err: newWatched(), status: make(chan int, 1)}
	env := map[string]string{"YUNHE_SERVER": l.URL(), "YUNHE_KEY": l.Admin.Key, "YUNHE_CONFIG": filepath.Join(l.t.TempDir(), "config.yaml"), "HOME": l.sshd.dir, "USER": "root"}
	c.cli = &cli{in: strings.NewReader(""), out: c.out, err: c.err, env: func(k string) string { return env[k] }, now: time.Now,
		screen: func(io.Writer) (int, int, bool) { return 0, 0, false }, retry: backoff{first: time.Millisecond, most: 5 * time.Millisecond, limit: time.Minute}}
	if setup != nil {
		setup(c.cli)
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	c.cancel = cancel
	l.t.Cleanup(cancel)
	go func() { c.status <- c.cli.run(ctx, args) }()
	return c
}

func (l *lab) target() string { return "ssh://root@" + l.sshd.addr }

func (l *lab) join(args ...string) *call {
	return l.start(nil, append([]string{"center", "join", l.target(), "--identity", l.sshd.identity, "--known-hosts", l.sshd.hosts, "--dir", l.dir, "-o", "json"}, args...)...)
}

func (l *lab) leave(args ...string) *call {
	return l.start(nil, append([]string{"center", "leave", l.target(), "--identity", l.sshd.identity, "--known-hosts", l.sshd.hosts, "--dir", l.dir, "-o", "json"}, args...)...)
}

// joined joins and returns what it answered.
func (l *lab) joined(args ...string) joinResult {
	l.t.Helper()
	c := l.join(append([]string{"--timeout", "90s"}, args...)...)
	return l.result(c)
}

func (l *lab) result(c *call) (r joinResult) {
	l.t.Helper()
	c.endWithin(l.t, 0, 2*apptest.Patience)
	if err := json.Unmarshal([]byte(c.out.String()), &r); err != nil {
		l.t.Fatalf("%v in:\n%s", err, c.out)
	}
	return r
}

// endWithin is end for what takes longer than a call of the API.
func (c *call) endWithin(t *testing.T, want int, patience time.Duration) {
	t.Helper()
	select {
	case got := <-c.status:
		if got != want {
			t.Fatalf("exit status %d, want %d\nstdout:\n%s\nstderr:\n%s", got, want, c.out, c.err)
		}
	case <-time.After(patience):
		t.Fatalf("does not end\nstdout:\n%s\nstderr:\n%s", c.out, c.err)
	}
}

func (l *lab) pin(j *jobsv1.JobSpec) *jobsv1.JobSpec {
	for _, t := range j.Tasks {
		t.Constraints = &jobsv1.Constraints{Centers: []string{l.center}}
	}
	return j
}

func (l *lab) shell(name, command string) *jobsv1.JobSpec {
	j := l.pin(apptest.Job(name, 1))
	j.Tasks[0].Command = command
	return j
}

// another is this program with another hash.
func another(t *testing.T, extra string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "yunhe")
	if err := os.WriteFile(path, append(b, extra...), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// A machine's whole life: joined, used, upgraded while a job runs, left.
func TestJoin(t *testing.T) {
	t.Parallel()
	l := newLab(t, sshdOptions{})
	gate := t.TempDir()
	if err := os.Chmod(gate, 0o755); err != nil {
		t.Fatal(err)
	}
	first := l.joined("--center", l.center, "--price", "small=1.00", "--name", "Lab", "--label", "rack=a3", "--share", gate+"=/gate")
	if first.AiCenterID != l.center || first.Status != "available" || !first.Restarted || first.HostKey != ssh.FingerprintSHA256(l.sshd.hostKey) {
		t.Errorf("joined: %+v", first)
	}
	var names []string
	for _, s := range first.Steps {
		names = append(names, s.Step)
	}
	if want := []string{"connect", "machine", "folder", "platform", "program", "check", "membership", "description", "start", "available", "tidy"}; !slices.Equal(names, want) {
		t.Errorf("steps %v, want %v", names, want)
	}
	k, err := l.Admin.Registry.GetCenter(t.Context(), &registryv1.GetCenterRequest{AiCenterId: l.center})
	if err != nil || k.Name != "Lab" || k.Labels["rack"] != "a3" {
		t.Errorf("center: %v, %v", k, err)
	}
	for name, mode := range map[string]os.FileMode{"": 0o700, "center.yaml": 0o600, "join.yaml": 0o600, "start.sh": 0o700, "data/gateway.json": 0o600, "gateway.log": 0o600} {
		if st, err := os.Stat(filepath.Join(l.dir, name)); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%q: %v, %v, want mode %v", name, st.Mode(), err, mode)
		}
	}
	if _, err := os.Stat(filepath.Join(l.dir, "token")); err == nil {
		t.Error("the token is still there")
	}
	done := l.Admin.Submit(t, l.shell("hello", "echo hello from there"))
	l.Admin.AwaitState(t, done, succeeded)
	if log, err := l.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: done}); err != nil || log != "hello from there\n" {
		t.Errorf("log %q, %v", log, err)
	}

	// Killed, it comes back.
	before := l.gateways()
	if len(before) != 1 {
		t.Fatalf("gateways %v, want one", before)
	}
	if err := syscall.Kill(before[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "it is started again", func() bool { now := l.gateways(); return len(now) == 1 && now[0] != before[0] })

	// A job runs on through an upgrade.
	id := l.Admin.Submit(t, l.shell("through", "echo began; until [ -e /gate/open ]; do sleep 0.1; done; echo survived"))
	l.Admin.Await(t, id, "it runs", func(j *jobsv1.Job) bool { return j.ReplicasRunning == 1 })
	before = l.gateways()
	up := l.joined("--binary", another(t, "\nnewer"), "--price", "small=1.50")
	if up.Program == first.Program || !up.Restarted || up.Status != "available" {
		t.Errorf("upgraded: %+v", up)
	}
	if now := l.gateways(); len(now) != 1 || now[0] == before[0] {
		t.Errorf("gateways %v after the upgrade, %v before", now, before)
	}
	k, err = l.Admin.Registry.GetCenter(t.Context(), &registryv1.GetCenterRequest{AiCenterId: l.center})
	if err != nil || k.Name != "Lab" || k.Labels["rack"] != "a3" {
		t.Errorf("what was not given is forgotten: %v, %v", k, err)
	}
	// The same once more touches nothing.
	before = l.gateways()
	if same := l.joined("--binary", filepath.Join(l.dir, "bin", "yunhe")); same.Restarted || !slices.Equal(before, l.gateways()) {
		t.Errorf("joined again without a change: %+v, gateways %v then %v", same, before, l.gateways())
	}
	// It is not left while the job runs, and takes work after that.
	c := l.leave()
	c.endWithin(t, 1, apptest.Patience)
	if !strings.Contains(c.err.String(), `step "work": center `+l.center+` has 1 running and 0 waiting replicas`) || !strings.Contains(c.err.String(), "--force") {
		t.Errorf("leaving while it runs a job: %s", c.err)
	}
	if k, err := l.Admin.Registry.GetCenter(t.Context(), &registryv1.GetCenterRequest{AiCenterId: l.center}); err != nil || k.Drained {
		t.Errorf("a center that was not left: %v, %v", k, err)
	}
	if err := os.WriteFile(filepath.Join(gate, "open"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	j := l.Admin.AwaitState(t, id, succeeded)
	if log, err := l.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id}); err != nil || log != "began\nsurvived\n" || j.Replicas[0].Attempt != 1 {
		t.Errorf("log %q, %v; %v", log, err, j.Replicas)
	}

	left := l.result(l.leave("--wait", "30s"))
	if left.Status != "left" || left.AiCenterID != l.center {
		t.Errorf("left: %+v", left)
	}
	l.gone()
	// Nothing is there to leave, and it can be joined again.
	if again := l.result(l.leave()); again.AiCenterID != "" {
		t.Errorf("left again: %+v", again)
	}
	l.joined("--center", l.center, "--price", "small=1.00")
	// With a job that does not end, only by force.
	id = l.Admin.Submit(t, l.shell("endless", "sleep 100000"))
	l.Admin.Await(t, id, "it runs", func(j *jobsv1.Job) bool { return j.ReplicasRunning == 1 })
	l.result(l.leave("--force"))
	if _, err := os.Stat(l.dir); err == nil || len(l.gateways()) > 0 {
		t.Errorf("left by force and still there: %v %v", err, l.gateways())
	}
	if got, err := l.Admin.Jobs.WriteOffJob(t.Context(), &jobsv1.WriteOffJobRequest{JobId: id}); err != nil || got.State != failed {
		t.Errorf("written off: %v, %v", got, err)
	}
	if _, err := l.Admin.Registry.DeleteCenter(t.Context(), &registryv1.DeleteCenterRequest{AiCenterId: l.center}); err != nil {
		t.Errorf("delete the center: %v", err)
	}
}

// gone checks that nothing of the gateway is left anywhere.
func (l *lab) gone() {
	l.t.Helper()
	if _, err := os.Stat(l.dir); !os.IsNotExist(err) {
		l.t.Errorf("%s is still there: %v", l.dir, err)
	}
	if left := append(l.gateways(), l.processes("/bin/sh "+l.dir+"/keeper.sh")...); len(left) > 0 {
		l.t.Errorf("processes %v still run", left)
	}
	if res, err := l.Admin.Adapters.ListGateways(l.t.Context(), &adaptersv1.ListGatewaysRequest{}); err != nil || len(res.Gateways) != 0 {
		l.t.Errorf("gateways: %v, %v", res, err)
	}
	if res, err := l.Admin.Registry.ListCenters(l.t.Context(), &registryv1.ListCentersRequest{}); err != nil || len(res.Centers) != 0 {
		l.t.Errorf("centers: %v, %v", res, err)
	}
}

// Wherever a join is interrupted, the next one gets to the end.
func TestJoinGoesOn(t *testing.T) {
	t.Parallel()
	l := newLab(t, sshdOptions{})
	for _, step := range []string{"folder", "program", "membership", "description", "start", "available"} {
		c := l.join("--center", l.center, "--price", "small=1.00")
		c.err.wait(t, "ok    "+step, 1)
		c.cancel()
		select {
		case <-c.status: // it may have come to its end
		case <-time.After(apptest.Patience):
			t.Fatalf("interrupted after %q, it does not end:\n%s", step, c.err)
		}
	}
	r := l.joined("--center", l.center, "--price", "small=1.00")
	if r.Status != "available" || len(l.gateways()) != 1 || len(l.processes("/bin/sh "+l.dir+"/keeper.sh")) != 1 {
		t.Errorf("joined in the end: %+v; gateways %v", r, l.gateways())
	}
	id := l.Admin.Submit(t, l.shell("after", "true"))
	l.Admin.AwaitState(t, id, succeeded)
	// Removed by an operator, the machine joins as a new member.
	if _, err := l.Admin.Adapters.RemoveGateway(t.Context(), &adaptersv1.RemoveGatewayRequest{AiCenterId: l.center}); err != nil {
		t.Fatal(err)
	}
	if r := l.joined(); r.Status != "available" || !r.Restarted {
		t.Errorf("joined after it was removed: %+v", r)
	}
	id = l.Admin.Submit(t, l.shell("anew", "true"))
	l.Admin.AwaitState(t, id, succeeded)
	l.standStill()
	l.result(l.leave())
	l.gone()
}

// standStill has the gateway stand still until the platform gives it up. Its
// run is written off; when it goes on, on the same connection, it ends the run
// and the books stay as they are.
func (l *lab) standStill() {
	t := l.t
	sleep := fmt.Sprintf("sleep 1%d", os.Getpid()+1_000_000)
	id := l.Admin.Submit(t, l.shell("still", "exec "+sleep))
	l.Admin.Await(t, id, "it runs", func(j *jobsv1.Job) bool { return j.ReplicasRunning == 1 })
	apptest.Until(t, "its command runs", func() bool { return len(l.processes(sleep)) == 1 })
	pid := l.gateways()[0]
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "the center is given up", func() bool {
		k, err := l.Admin.Registry.GetCenter(t.Context(), &registryv1.GetCenterRequest{AiCenterId: l.center})
		return err == nil && k.Status == registryv1.CenterStatus_CENTER_STATUS_UNKNOWN
	})
	off, err := l.Admin.Jobs.WriteOffJob(t.Context(), &jobsv1.WriteOffJobRequest{JobId: id})
	if err != nil || off.State != failed || off.Reason != "lost" {
		t.Errorf("written off: %v, %v", off, err)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "the lost run is ended", func() bool { return len(l.processes(sleep)) == 0 })
	if j := l.Admin.Job(t, id); j.Version != off.Version || j.CostFen != off.CostFen {
		t.Errorf("after the center came back: %v, before: %v", j, off)
	}
}

// Half a join is left as well.
func TestLeaveHalfJoined(t *testing.T) {
	t.Parallel()
	l := newLab(t, sshdOptions{})
	c := l.join("--center", l.center, "--price", "small=1.00")
	c.err.wait(t, "ok    description", 1)
	c.cancel()
	<-c.status
	if left := l.result(l.leave()); left.AiCenterID != l.center {
		t.Errorf("left: %+v", left)
	}
	l.gone()
}

// Every failure names the step, says what is wrong and what to do; and leaves
// nothing that runs.
func TestJoinFails(t *testing.T) {
	t.Parallel()
	l := newLab(t, sshdOptions{})
	stranger := filepath.Join(t.TempDir(), "id")
	newKey(t, stranger)
	other := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(other, []byte(knownhosts.Line([]string{l.sshd.addr}, newKey(t, filepath.Join(t.TempDir(), "k")))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(t.TempDir(), "locked")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", locked).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v %s", err, out)
	}
	foreign := another(t, "")
	patch(t, foreign, 18, []byte{183, 0}) // e_machine: AArch64
	notProgram := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(notProgram, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	broken := another(t, "")
	patch(t, broken, 24, make([]byte, 8)) // e_entry: starts nowhere
	notPlatform := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(notPlatform.Close)
	full := filepath.Join(t.TempDir(), "full")
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", full, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(full, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	taken := l.Join(t, apptest.Center{ID: "taken"})
	weak := l.User(t, "t-join", "u-join", identityv1.Role_ROLE_USER)
	member := []string{"--center", l.center}
	for _, x := range []struct {
		name string
		args []string
		want []string // in what it says
	}{
		{"nobody listens", []string{"center", "join", "ssh://root@127.0.0.1:1", "--center", "x", "--identity", l.sshd.identity}, []string{`step "connect": no SSH at 127.0.0.1:1`, "connection refused"}},
		{"no such machine", []string{"center", "join", "ssh://root@nowhere.invalid", "--center", "x", "--identity", l.sshd.identity}, []string{`step "connect": no machine has the name nowhere.invalid`}},
		{"host not known", l.args("--known-hosts", filepath.Join(t.TempDir(), "none")), []string{`step "connect": the host key of ` + l.sshd.addr + " is not known", ssh.FingerprintSHA256(l.sshd.hostKey), "--host-key"}},
		{"host is another", l.args("--known-hosts", other), []string{`step "connect": the host key of`, other + ":1 knows another", "somebody listens in"}},
		{"fingerprint of another", l.args("--host-key", "SHA256:AAAA"), []string{`step "connect": no host key of`, "has the fingerprint SHA256:AAAA; it shows " + ssh.FingerprintSHA256(l.sshd.hostKey)}},
		{"key of a stranger", l.args("--identity", stranger), []string{`step "connect":`, "accepts none of the keys for root", stranger, "authorized_keys"}},
		{"locked key", l.args("--identity", locked), []string{`step "connect":`, "has a passphrase", "ssh-add"}},
		{"no key at all", []string{"center", "join", l.target(), "--known-hosts", l.sshd.hosts, "--center", "x"}, []string{`step "connect":`, "no key to log in with", "--identity"}},
		{"program for another machine", l.args(append(member, "--binary", foreign)...), []string{`step "program":`, "is for arm64, the machine is x86_64", "GOARCH=amd64"}},
		{"no program", l.args(append(member, "--binary", notProgram)...), []string{`step "program":`, "is not a program for Linux"}},
		{"program that does not start", l.args(append(member, "--binary", broken)...), []string{`step "check": the program does not work there`}},
		{"no room", l.args(append(member, "--dir", full+"/gateway")...), []string{`step "program":`, "No space left on device", "--dir"}},
		{"no center named", l.args(), []string{"--center: is required"}},
		{"platform not reached", l.args(append(member, "--platform", "http://127.0.0.1:1")...), []string{`step "check": platform: http://127.0.0.1:1 cannot be reached`, "let this machine reach that address"}},
		{"no platform", l.args(append(member, "--platform", notPlatform.URL)...), []string{`step "check": platform:`, "is no Yunhe platform (HTTP 404)"}},
		{"center of another machine", l.args("--center", taken.ID), []string{`step "membership": center taken has a gateway already`, "yunhe gateway remove taken"}},
		{"not allowed", l.args(append(member, "--key", weak.Key)...), []string{`step "platform": u-join may not let gateways join`}},
		{"wrong key of the platform", l.args(append(member, "--key", "yk_wrong")...), []string{`step "platform":`}},
		{"a price that is none", l.args(append(member, "--price", "small")...), []string{"--price: want SPEC=YUAN"}},
		{"a description that is wrong", l.args(append(member, "--cpu", "many")...), []string{"--cpu: "}},
		{"a folder that is none", l.args(append(member, "--dir", "relative")...), []string{"--dir: want a clean absolute path"}},
		{"a gateway that does not start", l.args(append(member, "--timeout", "15s", "--share", "relative")...), []string{`step "available": the platform has not heard of center`, "within 15s; the gateway says:", `clean absolute path`}},
	} {
		c := l.start(nil, x.args...)
		select {
		case status := <-c.status:
			if status == 0 {
				t.Errorf("%s: done\n%s", x.name, c.err)
			}
		case <-time.After(apptest.Patience):
			t.Fatalf("%s: does not end\n%s", x.name, c.err)
		}
		for _, want := range x.want {
			if !strings.Contains(c.err.String(), want) {
				t.Errorf("%s: no %q in:\n%s", x.name, want, c.err)
			}
		}
		if left := append(l.gateways(), l.processes("/bin/sh "+l.dir)...); len(left) > 0 {
			t.Errorf("%s: processes %v were left running", x.name, left)
		}
	}
	// After all that it works; another center or another join at once does not.
	l.joined("--center", l.center, "--price", "small=1.00")
	c := l.join("--center", "another")
	c.endWithin(t, 1, apptest.Patience)
	if !strings.Contains(c.err.String(), "the machine is center "+l.center+", not another") {
		t.Errorf("joined as another center: %s", c.err)
	}
	l.lockedOut()
	// An upgrade that does not start leaves what was there.
	before := l.gateways()
	c = l.join("--binary", another(t, "\nbad"), "--timeout", "15s", "--share", "relative")
	c.endWithin(t, 1, apptest.Patience)
	if !strings.Contains(c.err.String(), "the gateway runs again as before") {
		t.Errorf("failed upgrade: %s", c.err)
	}
	if now := l.gateways(); len(now) != 1 || now[0] == before[0] {
		t.Errorf("gateways %v, before %v", now, before)
	}
	if same := l.joined(); same.Restarted {
		t.Errorf("the program before is not in use again: %+v", same)
	}
	l.result(l.leave("--keep-center"))
	k, err := l.Admin.Registry.GetCenter(t.Context(), &registryv1.GetCenterRequest{AiCenterId: l.center})
	if err != nil || k.Drained {
		t.Errorf("a center that was kept: %v, %v", k, err)
	}
}

// args is a join with what works but for the arguments.
func (l *lab) args(args ...string) []string {
	base := []string{"center", "join", l.target()}
	for _, x := range [][2]string{{"--identity", l.sshd.identity}, {"--known-hosts", l.sshd.hosts}, {"--dir", l.dir}} {
		if !slices.Contains(args, x[0]) {
			base = append(base, x[0], x[1])
		}
	}
	return append(base, args...)
}

// lockedOut joins while another join holds the folder.
func (l *lab) lockedOut() {
	l.t.Helper()
	f, err := os.OpenFile(filepath.Join(l.dir, ".lock"), os.O_RDWR, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		l.t.Fatal(err)
	}
	c := l.join()
	c.endWithin(l.t, 1, apptest.Patience)
	if !strings.Contains(c.err.String(), "another join or leave works in") {
		l.t.Errorf("a second join at once: %s", c.err)
	}
}

func patch(t *testing.T, path string, at int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// On a terminal an unknown host is asked about, and remembered; an agent's
// key does as well as a file's.
func TestJoinAsksAboutTheHost(t *testing.T) {
	t.Parallel()
	s := startSSHD(t, sshdOptions{})
	platform := startFake(t)
	ring := agent.NewKeyring()
	b, err := os.ReadFile(s.identity)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParseRawPrivateKey(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Add(agent.AddedKey{PrivateKey: key}); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "agent")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(ring, conn) }() // until it hangs up
		}
	}()
	home := t.TempDir()
	for _, x := range []struct {
		answer string
		asked  bool
		want   string // the step it fails at: the fake platform knows no permissions
	}{{"no", true, `step "connect": the host key of`}, {"yes", true, `step "platform"`}, {"", false, `step "platform"`}} {
		c := start(t, platform, func(c *cli) {
			env := c.env
			c.in, c.person = strings.NewReader(x.answer+"\n"), func() bool { return true }
			c.env = func(k string) string {
				switch k {
				case "HOME":
					return home
				case "SSH_AUTH_SOCK":
					return socket
				}
				return env(k)
			}
		}, "center", "join", "ssh://root@"+s.addr, "--center", "x", "--dir", filepath.Join(t.TempDir(), "gw"))
		c.end(t, 1)
		said := c.err.String()
		if strings.Contains(said, "is not known. It shows the ssh-ed25519 key "+ssh.FingerprintSHA256(s.hostKey)) != x.asked || !strings.Contains(said, x.want) {
			t.Errorf("answer %q: %s", x.answer, said)
		}
	}
	if b, err := os.ReadFile(filepath.Join(home, ".ssh", "known_hosts")); err != nil || strings.Count(string(b), "\n") != 1 || !strings.Contains(string(b), "ssh-ed25519") {
		t.Errorf("remembered %q, %v", b, err)
	}
}

// Somebody who is not root needs sudo, and it must not ask. The machine's id
// and sudo are stand-ins: who logs in to the tests' machine is root.
func TestJoinWithSudo(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	write := func(name, script string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("id", "echo 1000\n")
	write("sudo", "echo 'sudo: a password is required' >&2\nexit 1\n")
	l := newLab(t, sshdOptions{env: "PATH=" + tools + ":/usr/sbin:/usr/bin:/sbin:/bin"})
	c := l.start(nil, l.args("--center", l.center)...)
	c.endWithin(t, 1, apptest.Patience)
	for _, want := range []string{`step "machine": root is not root there, and sudo says: sudo: a password is required`, "use sudo without a password"} {
		if !strings.Contains(c.err.String(), want) {
			t.Errorf("no %q in:\n%s", want, c.err)
		}
	}
	write("sudo", `[ "$1" = -n ] || exit 9
shift
echo "$1" >>`+tools+`/did
exec "$@"
`)
	if r := l.joined("--center", l.center, "--price", "small=1"); r.Status != "available" || !strings.Contains(l.steps(r, "machine"), ", with sudo") {
		t.Errorf("joined with sudo: %+v", r)
	}
	l.result(l.leave())
	l.gone()
	if did, err := os.ReadFile(filepath.Join(tools, "did")); err != nil || strings.Count(string(did), "/bin/sh\n") < 10 {
		t.Errorf("sudo did %q, %v", did, err)
	}
}
