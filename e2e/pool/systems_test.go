package pool_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// systems are those of scripts/deps.sh: Ubuntu 16.04, 18.04, 20.04, 22.04 and 24.04,
// Debian 11, 12, 13 and what becomes 14. Their glibc is 2.23 to 2.43, their PoCL 1.1
// to 7.1; the first has none.
var systems = []string{"xenial", "bionic", "focal", "jammy", "noble", "bullseye", "bookworm", "trixie", "forky"}

// enter starts a program with a system's folder as its root: of the machine it has
// the kernel, the network, /proc, /dev and /sys, a folder, this program and busybox.
const enter = `set -e
root=$1 folder=$2 yunhe=$3 busybox=$4
shift 4
mount --bind "$root" "$root"
cd "$root"
mkdir -p .was ".$folder"
touch yunhe busybox
for d in proc dev sys; do mount --rbind /$d $d; done
mount --bind "$folder" ".$folder"
mount --bind "$yunhe" yunhe
mount --bind "$busybox" busybox
pivot_root . .was
exec ./busybox chroot . /busybox sh -c '/busybox umount -l /.was && exec "$@"' sh "$@"`

// older is loaded into programs of systems whose PoCL does not know this machine's
// processor, and so compiles nothing: it takes it for an older one.
const older = `struct name { const char *at; unsigned long bytes; };
struct name _ZN4llvm3sys14getHostCPUNameEv(void) { return (struct name){"x86-64", 6}; }
`

// system is one that is unpacked; folder is what it shares with the machine.
type system struct {
	t                            *testing.T
	name, root, folder           string
	self, busybox, program, want string
	env                          []string
}

func (s *system) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), "unshare", append([]string{"-m", "--propagation", "private", "sh", "-c", enter, "sh", s.root, s.folder, s.self, s.busybox}, args...)...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}, s.env...)
	return cmd
}

func (s *system) file(name string) string { return filepath.Join(s.folder, name) }

// TestSystems: in each of the systems programs compute on a slice of a node outside,
// by that system's loader of OpenCL; a node there lends that system's PoCL to
// programs outside, which move between nodes of one driver and stay where they are
// if another has a different one; and a platform there runs jobs, also on its pool.
func TestSystems(t *testing.T) {
	if os.Getenv("YUNHE_TEST_POOL") == "" {
		t.Skip("SKIPPED: other systems are downloaded; make test-pool does that, and runs this")
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: to run in a root of its own needs root")
	}
	engines := os.Getenv("YUNHE_ENGINES")
	if engines == "" {
		engines = "../../.cache/engines"
	}
	w := &world{t: t}
	var err error
	w.dir, err = os.MkdirTemp("", "yhs") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(w.dir) })
	s := system{folder: w.dir}
	s.self, err = filepath.Abs(binary)
	must(t, err)
	s.busybox, err = exec.LookPath("busybox")
	must(t, err)
	s.program, err = pool.TestProgram(w.dir)
	must(t, err)
	must(t, os.WriteFile(s.file("groups.yaml"), []byte("groups:\n  - {name: g, key: "+poolKey+"}\n"), 0o600))
	must(t, os.WriteFile(s.file("key"), []byte(poolKey), 0o600))
	must(t, os.WriteFile(s.file("older.c"), []byte(older), 0o600))
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-nostdlib", "-o", s.file("older.so"), s.file("older.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	vendors := w.vendors("one", "pocl.icd")
	native := exec.Command(s.program, "add", "3")
	native.Env = append(os.Environ(), "OCL_ICD_VENDORS="+vendors)
	sum, err := native.CombinedOutput()
	if s.want = string(sum); err != nil {
		t.Fatalf("natively: %v: %s", err, sum)
	}
	cmd := exec.Command(s.self, "pool", "node", "--data", s.file("outside"), "--groups", s.file("groups.yaml"), "--listen", "unix:"+s.file("s"), "--listen", "tcp:127.0.0.1:0")
	cmd.Env = append(os.Environ(), "OCL_ICD_VENDORS="+vendors)
	said, _ := w.serve(cmd, listening)
	cmd = exec.Command(s.self, "pool", "node", "--data", s.file("encrypts"), "--groups", s.file("groups.yaml"), "--listen", "tcp:127.0.0.1:0", "--encryption")
	cmd.Env = append(os.Environ(), "OCL_ICD_VENDORS="+vendors)
	encrypts, _ := w.serve(cmd, listening)
	for _, name := range systems {
		t.Run(name, func(t *testing.T) {
			s := s
			s.t, s.name = t, name
			s.unpack(filepath.Join(engines, "systems", name+".tar.zst"))
			t.Run("uses", func(t *testing.T) { s.uses(t, "unix:"+s.file("s"), said[1]) })
			t.Run("encrypts", func(t *testing.T) { s.encrypts(t, encrypts[1]) })
			t.Run("lends", func(t *testing.T) { s.lends(t, said[1]) })
			t.Run("serves", func(t *testing.T) { s.serves(t) })
		})
	}
}

const poolKey = "a key of the group that is long enough"

var listening = regexp.MustCompile(`pool node listens.*[= "]((?:tcp|tls):[0-9.:]+)`)

func (s *system) unpack(archive string) {
	s.t.Helper()
	if _, err := os.Stat(archive); errors.Is(err, fs.ErrNotExist) {
		s.t.Skipf("SKIPPED: %s is not there, as its mirror did not serve it: scripts/deps.sh pool", archive)
	}
	var err error
	s.root, err = os.MkdirTemp("", "yhs-"+s.name+"-")
	must(s.t, err)
	s.t.Cleanup(func() { _ = os.RemoveAll(s.root) }) // what is mounted there is so for its programs only
	if out, err := exec.Command("tar", "--zstd", "-xf", archive, "-C", s.root).CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}

// uses: programs compute on a node outside, and the system's clinfo shows its device.
func (s *system) uses(t *testing.T, at ...string) {
	for _, x := range at {
		run := func(args ...string) string {
			t.Helper()
			out, err := s.command(append([]string{"/yunhe", "pool", "run", "--node", x, "--group", "g", "--key-file", s.file("key"), "--compute", "37", "--memory", "300MiB", "--"}, args...)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v: %v: %s", x, args, err, out)
			}
			return string(out)
		}
		if got := run(s.program, "add", "3"); got != s.want {
			t.Errorf("%s: it says %q, outside %q", x, got, s.want)
		}
		if got := run("clinfo", "-l"); !strings.Contains(got, "Yunhe accelerator pool") {
			t.Errorf("%s: clinfo says %q", x, got)
		}
	}
}

// encrypts: a program computes on a node outside that encrypts, by the system's
// OpenSSL; where that is too old, it says so.
func (s *system) encrypts(t *testing.T, at string) {
	out, err := s.command("/yunhe", "pool", "run", "--node", at, "--group", "g", "--key-file", s.file("key"), "--memory", "300MiB", "--", s.program, "add", "3").CombinedOutput()
	const cannot = "what is said to the pool node cannot be encrypted: "
	switch {
	case strings.Contains(string(out), cannot+"there is no OpenSSL here"):
		t.Skip("SKIPPED: it was unpacked without OpenSSL; remove it from .cache/engines/systems and run make test-pool")
	case s.name == "xenial":
		if err == nil || !strings.Contains(string(out), cannot+"libssl.so.1.0.0 is too old") {
			t.Errorf("its OpenSSL has no TLS 1.3: %v, %s", err, out)
		}
	case err != nil || string(out) != s.want:
		t.Errorf("it says %q, %v, outside %q", out, err, s.want)
	}
}

// natively says what the program says without the pool.
func (s *system) natively(args ...string) (string, bool) {
	out, err := s.command(append([]string{s.program}, args...)...).CombinedOutput()
	return string(out), err == nil
}

func (s *system) lends(t *testing.T, outside string) {
	got, ok := s.natively("add", "3")
	if strings.Contains(got, "failed platform") {
		t.Skip("SKIPPED: it has no driver")
	}
	if !ok {
		s.env = append(s.env, "LD_PRELOAD="+s.file("older.so"))
		if got, ok = s.natively("add", "3"); ok {
			t.Log("its driver takes the processor for an older one, as it does not know it")
		}
	}
	if got != s.want {
		t.Skipf("SKIPPED: its driver says %q natively, outside it is %q", got, s.want)
	}
	var nodes []string
	for _, name := range []string{"a", "b"} {
		said, _ := (&world{t: t}).serve(s.command("/yunhe", "pool", "node", "--data", "/var/"+name, "--groups", s.file("groups.yaml"), "--listen", "tcp:127.0.0.1:0", "--listen", "unix:"+s.file(s.name+"-"+name)), listening)
		nodes = append(nodes, said[1])
	}
	_, driver := s.dial(t, nodes[0])
	t.Logf("glibc %s, %s", s.glibc(), driver)
	for _, args := range [][]string{{"add", "3"}, {"print"}, {"fill", "40"}} {
		want, ok := s.natively(args...)
		out, err := s.on(t, nodes[0], args...).CombinedOutput()
		if !ok || err != nil || string(out) != want {
			t.Errorf("%v: outside it says %q, %v; natively %q", args, out, err, want)
		}
	}
	if out, err := s.command("/busybox", "sh", "-c", `{ /busybox sleep 8; echo; } | "$0" walk 8`, s.program).CombinedOutput(); err != nil {
		t.Logf("NO PROGRAM IS MOVED: natively it says %q", out)
		return
	}
	_, another := s.dial(t, outside)
	cmd := s.on(t, nodes[0], "walk", "8")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // or it has ended
	var task pool.Task
	(&world{t: t}).until("the program computes", func() bool {
		c, _ := s.dial(t, nodes[0])
		all, err := c.Tasks()
		must(t, err)
		for _, x := range all {
			if x.Programs > 0 && x.Used > 0 && x.Busy > 0 {
				task = x
			}
		}
		return task.ID != ""
	})
	here := nodes[0]
	for _, to := range []string{outside, nodes[1], nodes[0], outside} {
		c, _ := s.dial(t, here)
		switch _, took, err := c.Migrate(task.ID, to, ""); {
		case to == outside && driver != another:
			if fault.KindOf(err) != fault.NotFound || !strings.Contains(err.Error(), driver) {
				t.Fatalf("to a node whose driver is %s: %v", another, err)
			}
		case err != nil:
			t.Fatalf("to %s: %v", to, err)
		default:
			t.Logf("moved in %s", took.Round(time.Millisecond))
			here = to
		}
	}
	_, err = io.WriteString(in, "\n")
	must(t, err)
	text, err := io.ReadAll(bufio.NewReader(out))
	if e := cmd.Wait(); err != nil || e != nil || !strings.Contains(string(text), "walked") {
		t.Errorf("the program that moved says %q, %v, %v", text, err, e)
	}
}

// dial connects to a node, which ends what holds nothing for long, and says what its
// device's driver is.
func (s *system) dial(t *testing.T, at string) (*pool.Client, string) {
	t.Helper()
	c, err := pool.Dial(t.Context(), at, "g", poolKey)
	must(t, err)
	t.Cleanup(c.Close)
	all, err := c.Devices()
	must(t, err)
	return c, all[0].Driver
}

// on is a program outside with a slice of a node.
func (s *system) on(t *testing.T, at string, args ...string) *exec.Cmd {
	t.Helper()
	c, _ := s.dial(t, at)
	vendors, err := pool.Library(s.folder)
	must(t, err)
	task, token, err := c.Run(pool.Spec{Compute: 20, Memory: 300 << 20})
	must(t, err)
	cmd := exec.Command(s.program, args...)
	cmd.Env = append(append(os.Environ(), "OCL_ICD_VENDORS="+vendors), pool.Environment(0, pool.OpenCL, at, task.ID, token)...)
	return cmd
}

// glibc is the version of it that the system has.
func (s *system) glibc() string {
	for _, pattern := range []string{"lib/x86_64-linux-gnu/libc.so.6", "lib/aarch64-linux-gnu/libc.so.6"} {
		if b, err := os.ReadFile(filepath.Join(s.root, pattern)); err == nil {
			if v := regexp.MustCompile(`GNU C Library .* version (\d+\.\d+)`).FindSubmatch(b); v != nil {
				return string(v[1])
			}
		}
	}
	return "unknown"
}

// serves: a platform there runs a job that sees that system, and, where that has a
// driver, one on a slice of a node there.
func (s *system) serves(t *testing.T) {
	p := &world{t: t, dir: s.folder}
	data := s.file(s.name + "-data")
	said, _ := p.serve(s.command("/yunhe", "up", "--data", data, "--listen", "127.0.0.1:"+port(t, "127.0.0.1")), regexp.MustCompile(`^Console and API: (\S+)$`))
	p.connect(said[1], data)
	job := func(args ...string) string {
		t.Helper()
		yunhe := func(args ...string) string {
			t.Helper()
			cmd := exec.Command(s.self, args...)
			cmd.Env = append(os.Environ(), "YUNHE_SERVER="+p.url, "YUNHE_KEY="+p.key)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("yunhe %s: %v: %s", strings.Join(args, " "), err, out)
			}
			return string(out)
		}
		id := regexp.MustCompile(`job_\w+`).FindString(yunhe(append([]string{"job", "submit", "--image", "host", "--spec", "small"}, args...)...))
		yunhe("job", "wait", id) // which fails if the job does
		return yunhe("job", "logs", id)
	}
	release, err := os.ReadFile(filepath.Join(s.root, "usr/lib/os-release"))
	must(t, err)
	if got := job("--name", "which", "--command", "cat /usr/lib/os-release"); !strings.Contains(got, strings.TrimSpace(string(release))) {
		t.Errorf("the job says it is in %q, want\n%s", got, release)
	}
	if got, _ := s.natively("add", "3"); got != s.want {
		t.Logf("no job on its own driver, which says %q natively", got)
		return
	}
	_, err = p.bench.API.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(t, err)
	token, err := p.bench.API.CreateNodeToken(t.Context(), &poolv1.CreateNodeTokenRequest{})
	must(t, err)
	p.serve(s.command("/yunhe", "pool", "node", "--data", "/var/joined", "--name", s.name, "--join", p.url, "--token", token.Token, "--listen", "tcp:127.0.0.1:0"), listening)
	p.online(1)
	if got := job("--name", "computes", "--pool", "compute=40,memory=300MiB,group=g", "--add-file", s.program+":program", "--command", "./program add 3"); !strings.Contains(got, s.want) {
		t.Errorf("the job on a slice says %q, want %q", got, s.want)
	}
}
