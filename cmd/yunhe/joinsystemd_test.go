package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// systemctl does for one unit what systemd does, as far as join asks: starts
// ExecStart, again whenever it ends, and stops that process only
// (KillMode=process). It writes down what it was asked.
const systemctl = `#!/bin/sh
dir=WORK
echo "$*" >>$dir/asked
for unit; do :; done
file=/etc/systemd/system/$unit
stop() {
	[ -s $dir/main.pid ] || return 0
	kill -TERM "$(cat $dir/main.pid)" 2>/dev/null
	while kill -0 "$(cat $dir/main.pid)" 2>/dev/null; do sleep 0.05; done
	rm -f $dir/main.pid
}
case "$1" in
daemon-reload) ;;
enable | cat) [ -e $file ] ;;
disable) ;;
is-active) [ -s $dir/main.pid ] && kill -0 "$(cat $dir/main.pid)" ;;
stop) stop ;;
restart)
	stop
	exec=$(sed -n 's/^ExecStart=//p' $file)
	setsid $exec </dev/null >>$dir/journal 2>&1 &
	echo $! >$dir/main.pid
	;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac
`

// withSystemd shows what it runs a machine with systemd: in a mount namespace
// of its own, where the place of units is empty and systemctl is ours.
const withSystemd = `set -e
mount --make-rprivate /
mkdir -p /etc/systemd/system
mount -t tmpfs tmpfs /etc/systemd/system
mount -t tmpfs tmpfs /run/systemd
mkdir /run/systemd/system
mount --bind WORK/systemctl "$(readlink -f "$(command -v systemctl)")"
mount --bind WORK/journalctl "$(readlink -f "$(command -v journalctl)")"
exec "$@"
`

// The same with systemd, which the machine of the tests has not got running:
// what join asks of it is asked of a stand-in, and the unit is judged by
// systemd's own check.
func TestJoinSystemd(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"systemctl", "journalctl", "systemd-analyze", "unshare"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("SKIPPED: the stand-in takes the place of %s, which is not here: %v", p, err)
		}
	}
	apptest.NeedRoot(t)
	work := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(work, name), []byte(strings.ReplaceAll(text, "WORK", work)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("systemctl", systemctl)
	write("journalctl", "#!/bin/sh\ncat WORK/journal\n")
	write("run", withSystemd)
	l := newLab(t, sshdOptions{wrap: []string{"unshare", "-m", "/bin/sh", filepath.Join(work, "run")}})

	r := l.joined("--center", l.center, "--price", "small=1.00")
	if !strings.Contains(l.steps(r, "description"), "kept running by yunhe-gateway-") {
		t.Errorf("description: %q", l.steps(r, "description"))
	}
	before := l.gateways()
	if len(before) != 1 || len(l.processes("/bin/sh "+l.dir+"/keeper.sh")) != 0 {
		t.Fatalf("gateways %v, want one and no keeper", before)
	}
	id := l.Admin.Submit(t, l.shell("through", "sleep 100000"))
	l.Admin.Await(t, id, "it runs", func(j *jobsv1.Job) bool { return j.ReplicasRunning == 1 })
	up := l.joined("--binary", another(t, "\nnewer"))
	if now := l.gateways(); !up.Restarted || len(now) != 1 || now[0] == before[0] {
		t.Errorf("upgraded: %+v, gateways %v, before %v", up, now, before)
	}
	if same := l.joined("--binary", filepath.Join(l.dir, "bin", "yunhe")); same.Restarted {
		t.Errorf("joined again without a change: %+v", same)
	}
	l.verify(work)
	if _, err := l.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil {
		t.Fatal(err)
	}
	if j := l.Admin.AwaitState(t, id, stopped); j.Replicas[0].Attempt != 1 || j.Replicas[0].Reason != "stopped" {
		t.Errorf("a job through an upgrade: %v", j.Replicas)
	}
	l.result(l.leave("--wait", "30s"))
	l.gone()
	asked, err := os.ReadFile(filepath.Join(work, "asked"))
	if err != nil {
		t.Fatal(err)
	}
	unit := unitOf(t, string(asked))
	for _, want := range []string{"daemon-reload", "enable --quiet " + unit, "restart " + unit, "stop " + unit, "disable --quiet " + unit} {
		if !strings.Contains(string(asked), want+"\n") {
			t.Errorf("systemd was not asked to %s:\n%s", want, asked)
		}
	}
}

func (l *lab) steps(r joinResult, name string) string {
	for _, s := range r.Steps {
		if s.Step == name {
			return s.Result
		}
	}
	return ""
}

func unitOf(t *testing.T, asked string) string {
	t.Helper()
	for _, w := range strings.Fields(asked) {
		if strings.HasPrefix(w, "yunhe-gateway") && strings.HasSuffix(w, ".service") {
			return w
		}
	}
	t.Fatalf("systemd was asked of no unit:\n%s", asked)
	return ""
}

// verify has systemd check the unit. It lies in sshd's mount namespace.
func (l *lab) verify(work string) {
	l.t.Helper()
	pid, err := os.ReadFile(filepath.Join(work, "main.pid"))
	if err != nil {
		l.t.Fatal(err)
	}
	found, err := filepath.Glob("/proc/" + strings.TrimSpace(string(pid)) + "/root/etc/systemd/system/yunhe-gateway*.service")
	if err != nil || len(found) != 1 {
		l.t.Fatalf("units %v, %v, want one", found, err)
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		l.t.Fatal(err)
	}
	copied := filepath.Join(l.t.TempDir(), filepath.Base(found[0]))
	if err := os.WriteFile(copied, b, 0o644); err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command("systemd-analyze", "verify", "--man=no", copied)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), filepath.Base(copied)) {
		l.t.Errorf("systemd does not like the unit: %v\n%s\n%s", err, out, b)
	}
}
