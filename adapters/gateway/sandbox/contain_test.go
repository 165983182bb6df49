//go:build linux

package sandbox_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
)

// image is a folder to be a RootFS: the probe, which needs nothing else, and
// a copy of it that is setuid root.
var image = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "image")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "probe"), "./testdata/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build probe: %w\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "probe"))
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(dir, "probe-dir"), 0o777); err != nil {
		return "", err
	}
	if err := os.Chmod(filepath.Join(dir, "probe-dir"), 0o777); err != nil { // writable but for the mount
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "rootly"), b, 0o755); err != nil {
		return "", err
	}
	return dir, os.Chmod(filepath.Join(dir, "rootly"), 0o4755|os.ModeSetuid)
})

// probing is a spec that runs the probe.
func probing(t testing.TB, id string, args ...string) sandbox.Spec {
	t.Helper()
	needHost(t)
	dir, err := image()
	if err != nil {
		t.Skip("skipped: the probe cannot be built:", err)
	}
	spec := small(id, "")
	spec.RootFS, spec.Args = dir, append([]string{"/probe"}, args...)
	return spec
}

// answers parses the probe's lines.
func answers(out string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(out) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		m[k] = strings.TrimSpace(v)
	}
	return m
}

func TestCommandHasNoPrivilege(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	res, out := run(t, s, probing(t, "p", "privileges"))
	expect(t, res, "completed", 0)
	got := answers(out)
	const eperm = "operation not permitted"
	want := map[string]string{
		"clone3 user": "function not implemented", "io_uring_setup": "function not implemented",
		"socket vsock": "address family not supported by protocol", "socket packet": "address family not supported by protocol",
		"socket alg": "address family not supported by protocol", "socket raw ip": eperm,
		"see process 1": "stat /proc/1: no such file or directory",
		// Neither process 1 nor its own files are there for the command.
		"read root of process 1": "open /proc/1/root: no such file or directory",
		"see /sys":               "stat /sys: no such file or directory",
		"read /proc/kcore":       "open /proc/kcore: no such file or directory",
		"create in /":            "open //x: permission denied", "create in /etc": "open /etc/x: no such file or directory",
		"create in /dev": "open /dev/x: permission denied", "create in /proc": "open /proc/x: no such file or directory",
		"create in /probe-dir": "open /probe-dir/x: read-only file system",
		"CapInh":               "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000",
		"CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2", "Groups": "",
		"Uid": "200000 200000 200000 200000", "Gid": "200000 200000 200000 200000",
	}
	for _, k := range []string{"mount", "umount", "pivot_root", "chroot", "fsopen", "open_tree", "mknod null", "mknod disk", "unshare user",
		"unshare mount", "unshare net", "clone user", "setns", "bpf", "keyctl", "add_key", "request_key", "perf_event_open", "userfaultfd",
		"open_by_handle_at", "init_module", "kexec_load", "reboot", "swapon", "acct", "syslog", "settimeofday", "sethostname",
		"setuid 0", "setgid 0", "setgroups", "kill 1", "ptrace 1", "raise open files"} {
		want[k] = eperm
	}
	for k, w := range want {
		// Some kernels have the file, and then it is empty.
		if k == "read /proc/kcore" && got[k] == "no data available" {
			continue
		}
		if got[k] != w {
			t.Errorf("%s: got %q, want %q", k, got[k], w)
		}
	}
	for k, v := range got {
		if v == "ALLOWED" {
			t.Errorf("%s: allowed", k)
		}
		if strings.HasPrefix(k, "cannot write") {
			t.Error(k, v)
		}
		if strings.HasPrefix(k, "write /proc") && !strings.HasSuffix(v, "read-only file system") && !strings.HasSuffix(v, "permission denied") &&
			!strings.HasSuffix(v, "no such file or directory") && !strings.HasSuffix(v, eperm) {
			t.Errorf("%s: %s", k, v)
		}
	}
}

func TestSetuidProgramHasNoEffect(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	spec := probing(t, "p")
	spec.Args = []string{"/rootly", "setuid"}
	res, out := run(t, s, spec)
	expect(t, res, "completed", 0)
	if want := "setuid: user 200000\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	res, out = run(t, s, small("su", "su root -c id </dev/null 2>&1; unshare -r id 2>&1; mount -t tmpfs x /tmp 2>&1; chroot / id 2>&1; echo 1 >/proc/sysrq-trigger"))
	if strings.Contains(out, "uid=0") {
		t.Errorf("became root: %+v %s", res, out)
	}
	if !strings.Contains(out, "unshare: unshare failed: Operation not permitted") {
		t.Errorf("unshare is not what stopped it: %s", out)
	}
}

// TestCommandSeesNothingOfTheHost looks for what lies around on a gateway:
// another replica's files, the gateway's own, homes, keys, everyone may read
// or not.
func TestCommandSeesNothingOfTheHost(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := open(t, cfg)
	key := filepath.Join(t.TempDir(), "tls.key")
	if err := os.WriteFile(key, []byte("SECRET-KEY"), 0o666); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(key); dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(cfg.Dir, 0o755); err != nil { // as careless as can be
		t.Fatal(err)
	}
	victim, err := s.Start(t.Context(), small("victim", "echo SECRET-JOB >secret; chmod 777 . secret; echo SECRET-JOB >/tmp/s; echo SECRET-JOB >/dev/shm/s; id -u; sleep 60"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, victim, "200000\n")
	res, out := run(t, s, small("thief", `
for p in `+key+` `+cfg.Dir+` `+cfg.Dir+`/victim /root /home /var/log /var/lib /boot /opt /srv /mnt /run /sys /etc/shadow /etc/ssh /lost+found; do
	test -e $p && echo VISIBLE $p
done
grep -rls SECRET /tmp /dev/shm /workspace /var /etc/hosts /proc/[0-9]*/environ 2>/dev/null
ls -d /proc/[0-9]* | wc -l
ls / | tr '\n' ' '
id -u; hostname; cat secret 2>&1; ipcs -m | grep -c 0x`))
	if res.Reason != "exit" && res.Reason != "completed" {
		t.Errorf("thief: %+v", res)
	}
	if strings.Contains(out, "VISIBLE") || strings.Contains(out, "SECRET") {
		t.Errorf("sees too much:\n%s", out)
	}
	// The shell, ls, wc, and what is left of the pipe: no one else.
	lines := strings.Split(out, "\n")
	if n := strings.TrimSpace(lines[0]); n != "2" && n != "3" && n != "4" {
		t.Errorf("sees %s processes, want only its own:\n%s", n, out)
	}
	if !strings.Contains(out, "200001\nthief\n") {
		t.Errorf("not its own user and host name:\n%s", out)
	}
	if err := victim.Stop(); err != nil {
		t.Fatal(err)
	}
	expect(t, wait(t, victim), "stopped", -1)
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	name := fmt.Sprintf("@yunhe-test-%d", os.Getpid())
	u, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	spec := probing(t, "alone", "dial", "tcp="+l.Addr().String(), "unix="+name, "tcp=192.0.2.1:80")
	res, out := run(t, s, spec)
	expect(t, res, "completed", 0)
	want := "dial tcp: dial tcp " + l.Addr().String() + ": connect: connection refused\n" +
		"dial unix: dial unix " + name + ": connect: connection refused\n" +
		"dial tcp: dial tcp 192.0.2.1:80: connect: network is unreachable\ninterface lo\n"
	if out != want {
		t.Errorf("without network: got\n%swant\n%s", out, want)
	}
	spec = probing(t, "together", "dial", "tcp="+l.Addr().String())
	spec.Network = true
	res, out = run(t, s, spec)
	expect(t, res, "completed", 0)
	if !strings.HasPrefix(out, "dial tcp: ALLOWED\n") {
		t.Errorf("with the host's network: got\n%s", out)
	}
}
