package remote

import (
	"bufio"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

//go:embed keeper.sh
var keeperScript string

// DefaultDir is where a gateway is put.
const DefaultDir = "/opt/yunhe-gateway"

// Install is a gateway's place on a machine.
type Install struct {
	*Machine

	Dir     string
	Systemd bool // it is kept running by systemd, else by keeper.sh
}

var cleanDir = regexp.MustCompile(`^/[A-Za-z0-9._/-]+$`)

// NewInstall names the place; fault.Invalid for a folder that no shell, unit
// and path would name alike.
func NewInstall(m *Machine, dir string, systemd bool) (*Install, error) {
	if !cleanDir.MatchString(dir) || path.Clean(dir) != dir || strings.Count(dir, "/") < 2 {
		return nil, fault.New(fault.Invalid, "--dir: want a clean absolute path of at least two elements, of letters, digits, '.', '_' and '-', got %q", dir)
	}
	return &Install{Machine: m, Dir: dir, Systemd: systemd}, nil
}

func (i *Install) path(elements ...string) string {
	return path.Join(append([]string{i.Dir}, elements...)...)
}

// Data is the gateway's own folder.
func (i *Install) Data() string { return i.path("data") }

// Program is where the program with this SHA-256 lies.
func (i *Install) Program(sum string) string { return i.path("bin", "yunhe-"+sum) }

// Lock makes the folder and holds it against other joins until unlock is
// called or the connection ends; fault.Conflict if another holds it.
func (i *Install) Lock(ctx context.Context) (unlock func(), err error) {
	if _, err := i.Run(ctx, `set -e
umask 077
mkdir -p `+i.path("bin")+`
chmod 0755 `+i.Dir+`/bin`, nil); err != nil {
		return nil, err
	}
	s, err := i.client.NewSession()
	if err != nil {
		return nil, &Failed{Status: -1, Err: fmt.Errorf("the connection to %s is lost: %w", i.Address(), err)}
	}
	in, err := s.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", i.Dir, err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", i.Dir, err)
	}
	// cat ends with its input: when we say so, or when the connection breaks.
	script := `exec 9>` + i.path(".lock") + `
if command -v flock >/dev/null && ! flock -n 9; then echo taken; exit 0; fi
echo locked
cat >/dev/null`
	if err := s.Start(command(i.sudo, script)); err != nil {
		return nil, &Failed{Status: -1, Err: fmt.Errorf("lock %s: %w", i.Dir, err)}
	}
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n') // "" is an answer too
		answer <- strings.TrimSpace(line)
	}()
	unlock = func() {
		_ = in.Close() // the end of cat
		_ = s.Close()
	}
	select {
	case <-ctx.Done():
		unlock()
		return nil, ctx.Err()
	case got := <-answer:
		if got == "locked" {
			return unlock, nil
		}
		unlock()
		if got == "taken" {
			return nil, fault.New(fault.Conflict, "another join or leave works in %s on that machine; try again when it is done", i.Dir)
		}
		return nil, &Failed{Status: -1, Err: errors.New("the folder cannot be locked")}
	}
}

// State is what is there.
type State struct {
	Exists   bool     // the folder, with something in it
	Current  string   // SHA-256 of the program in use, "" if none
	Programs []string // SHA-256 of all
	Running  bool     // the gateway, or what keeps it
}

// State looks at what is there.
func (i *Install) State(ctx context.Context) (State, error) {
	out, err := i.Run(ctx, `
[ -e `+i.path("bin")+` ] || exit 0
echo exists
for f in `+i.path("bin")+`/yunhe-*; do [ -f "$f" ] && echo "program=${f##*/yunhe-}"; done
if [ -L `+i.path("bin", "yunhe")+` ]; then t=$(ls -l `+i.path("bin", "yunhe")+`); echo "current=${t##* -> yunhe-}"; fi
`+i.findGateways()+`
[ -n "$found" ] && echo running
`+i.runningScript()+`
true`, nil)
	var st State
	if err != nil {
		return st, err
	}
	for line := range strings.Lines(out) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch k {
		case "exists":
			st.Exists = true
		case "program":
			if len(v) == 64 {
				st.Programs = append(st.Programs, v)
			}
		case "current":
			st.Current = v
		case "running":
			st.Running = true
		}
	}
	return st, nil
}

// find sets a variable to the processes of this folder whose command line
// begins so. A process is known by that and not by a number noted earlier,
// which may have passed to another. One grep looks at all: a machine has
// thousands of processes, and a shell that forks for each takes seconds.
func (i *Install) find(variable, command string) string {
	return variable + `=
for f in $(grep -lsF ` + i.Dir + `/ /proc/[0-9]*/cmdline); do
	c=$(tr '\0' ' ' <"$f" 2>/dev/null) || continue
	case "$c" in "` + command + ` "*) f=${f#/proc/}; ` + variable + `="$` + variable + ` ${f%/cmdline}" ;; esac
done`
}

func (i *Install) findGateways() string { return i.find("found", i.path("bin", "yunhe")+" gateway") }

func (i *Install) findKeepers() string { return i.find("keepers", "/bin/sh "+i.path("keeper.sh")) }

func (i *Install) runningScript() string {
	if i.Systemd {
		return `systemctl is-active --quiet ` + i.Unit() + ` && echo running`
	}
	return i.findKeepers() + `
[ -n "$keepers" ] && echo running`
}

// Unit is the name of the systemd unit. Another folder than the usual one has
// another.
func (i *Install) Unit() string {
	if i.Dir == DefaultDir {
		return "yunhe-gateway.service"
	}
	sum := sha256.Sum256([]byte(i.Dir))
	return "yunhe-gateway-" + hex.EncodeToString(sum[:4]) + ".service"
}

func (i *Install) unitPath() string { return "/etc/systemd/system/" + i.Unit() }

// Copy puts a program there and checks it; done at once if it is there whole.
func (i *Install) Copy(ctx context.Context, r io.Reader, size int64, sum string) (copied bool, err error) {
	name := i.Program(sum)
	out, err := i.Run(ctx, `if [ -f `+name+` ] && [ "$(sha256sum <`+name+` | cut -c 1-64)" = `+sum+` ]; then echo there; fi`, nil)
	if err != nil || strings.TrimSpace(out) == "there" {
		return false, err
	}
	// A slow line still gets 100 KiB/s.
	ctx, cancel := context.WithTimeout(ctx, time.Minute+time.Duration(size/(100<<10))*time.Second)
	defer cancel()
	return true, i.PutFrom(ctx, name, 0o755, r, sum)
}

// Call runs the program with this SHA-256 there and returns what it printed,
// also if it failed.
func (i *Install) Call(ctx context.Context, sum string, args ...string) (string, error) {
	words := []string{i.Program(sum)}
	for _, a := range args {
		words = append(words, Quote(a))
	}
	return i.Run(ctx, strings.Join(words, " "), nil)
}

// Configure writes what starts the gateway with these arguments, besides
// --data and --center, and keeps it running.
func (i *Install) Configure(ctx context.Context, args []string, files ...File) error {
	words := []string{"exec", i.path("bin", "yunhe"), "gateway", "--data", i.Data(), "--center", i.path("center.yaml")}
	for _, a := range args {
		words = append(words, Quote(a))
	}
	start := `#!/bin/sh
# Written by "yunhe center join"; it is written anew by the next.
cd ` + i.Dir + ` || exit 1
if [ -r token ]; then
	YUNHE_JOIN_TOKEN=$(cat token)
	export YUNHE_JOIN_TOKEN
fi
` + strings.Join(words, " ") + "\n"
	files = append(files, File{i.path("start.sh"), 0o700, []byte(start)})
	if i.Systemd {
		files = append(files, File{i.unitPath(), 0o644, []byte(i.unit())})
	} else {
		files = append(files, File{i.path("keeper.sh"), 0o700, []byte(keeperScript)})
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Path, "/") {
			f.Path = i.path(f.Path)
		}
		if err := i.Put(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// unit starts the gateway at boot and again whenever it ends. KillMode: what
// runs outlives the gateway. Delegate: the control groups it makes are its own.
func (i *Install) unit() string {
	return `# Written by "yunhe center join"; it is written anew by the next.
[Unit]
Description=Yunhe compute gateway
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=` + i.path("start.sh") + `
Restart=always
RestartSec=1
KillMode=process
Delegate=yes
TasksMax=infinity
LimitNOFILE=1048576

[Install]
WantedBy=multi-user.target
`
}

// Switch makes the program with this SHA-256 the one in use. The gateway runs
// the old one until it is started again.
func (i *Install) Switch(ctx context.Context, sum string) error {
	_, err := i.Run(ctx, `set -e
ln -sfn yunhe-`+sum+` `+i.path("bin", ".yunhe.new")+`
mv -fT `+i.path("bin", ".yunhe.new")+` `+i.path("bin", "yunhe")+` 2>/dev/null ||
	{ rm -f `+i.path("bin", "yunhe")+`; mv -f `+i.path("bin", ".yunhe.new")+` `+i.path("bin", "yunhe")+`; }`, nil)
	return err
}

// Start starts the gateway, now and at every boot where systemd runs.
func (i *Install) Start(ctx context.Context) error {
	script := `systemctl daemon-reload && systemctl enable --quiet ` + i.Unit() + ` && systemctl restart ` + i.Unit()
	if !i.Systemd {
		// Every stream away from the connection, or it would not end.
		script = `set -e
cd /
run=
command -v setsid >/dev/null && run=setsid
$run nohup /bin/sh ` + i.path("keeper.sh") + ` ` + i.Dir + ` </dev/null >/dev/null 2>&1 &
n=0
while [ ! -s ` + i.path("keeper.pid") + ` ]; do
	n=$((n + 1))
	if [ $n -gt 100 ]; then echo "keeper.sh does not start" >&2; exit 1; fi
	sleep 0.1
done`
	}
	_, err := i.Run(ctx, script, nil)
	return err
}

// Stop stops the gateway and what keeps it; what it runs goes on. It returns
// when both are gone, at once if they are.
func (i *Install) Stop(ctx context.Context) error {
	stop := ""
	if i.Systemd {
		stop = `if systemctl cat ` + i.Unit() + ` >/dev/null 2>&1; then systemctl stop ` + i.Unit() + `; fi`
	}
	// Keepers are looked for with systemd too: it may not have run when they
	// were started.
	_, err := i.Run(ctx, stop+`
n=0
while :; do
	`+i.findKeepers()+`
	`+i.findGateways()+`
	[ -z "$keepers$found" ] && break
	n=$((n + 1))
	if [ $n -gt 300 ]; then echo "processes$keepers$found do not end" >&2; exit 1; fi
	sig=TERM
	[ $n -gt 200 ] && sig=KILL
	if [ $n = 1 ] || [ $n -gt 200 ]; then kill -$sig $keepers $found 2>/dev/null; fi
	sleep 0.1
done
rm -f `+i.path("keeper.pid"), nil)
	return err
}

// Tidy removes the token and the programs but the named ones.
func (i *Install) Tidy(ctx context.Context, keep ...string) error {
	keep = slices.DeleteFunc(slices.Clone(keep), func(sum string) bool { return sum == "" })
	script := `rm -f ` + i.path("token") + `
for f in ` + i.path("bin") + `/yunhe-* ` + i.path("bin") + `/.yunhe-*.part; do
	case "${f##*/yunhe-}" in
	` + strings.Join(append(keep, "-"), "|") + `) ;;
	*) rm -f "$f" ;;
	esac
done`
	_, err := i.Run(ctx, script, nil)
	return err
}

// Forget puts the gateway's membership aside, so that it joins as a new one;
// its runs and what it knows of them stay.
func (i *Install) Forget(ctx context.Context) error {
	_, err := i.Run(ctx, `rm -f `+i.path("data", "gateway.json"), nil)
	return err
}

// Remove takes everything away but what systemd itself remembers. The gateway
// must be stopped.
func (i *Install) Remove(ctx context.Context) error {
	unit := ""
	if i.Systemd {
		unit = `systemctl disable --quiet ` + i.Unit() + ` 2>/dev/null
rm -f ` + i.unitPath() + `
systemctl daemon-reload`
	}
	_, err := i.Run(ctx, unit+`
rm -rf `+i.Dir, nil)
	return err
}

// Log is the end of what the gateway said.
func (i *Install) Log(ctx context.Context, lines int) string {
	script := fmt.Sprintf(`tail -n %d %s 2>/dev/null`, lines, i.path("gateway.log"))
	if i.Systemd {
		script = fmt.Sprintf(`journalctl -q --no-pager -o cat -n %d -u %s 2>/dev/null`, lines, i.Unit())
	}
	out, err := i.Run(ctx, script, nil)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}
