package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"yunhe.dev/yunhe/internal/fault"
)

// Machine is a machine that let us in. Its methods may be called at once.
type Machine struct {
	Target

	// Fingerprint is of the host key it showed.
	Fingerprint string

	client *ssh.Client
	sudo   bool // set by Facts
}

// commandTimeout bounds a command that has no reason to take long.
const commandTimeout = time.Minute

// Close ends the connection. What was started goes on.
func (m *Machine) Close() error { return m.client.Close() }

// Facts are what is known of a machine before anything is put there.
type Facts struct {
	System  string // "Linux"
	Kernel  string // "6.1.0-40-amd64"
	Arch    string // as Go names it: "amd64"; "" if it is not known here
	Machine string // as the machine names it: "x86_64"
	Root    bool   // commands run as root, by themselves or with sudo
	Sudo    bool   // with sudo
	SudoNo  string // what sudo said if it did not let us
	Systemd bool   // it runs there
	Missing []string
}

// goArch are the machines Linux names that Go builds for.
var goArch = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64", "loongarch64": "loong64", "ppc64le": "ppc64le", "s390x": "s390x", "mips64": "mips64"}

// needed are the programs the scripts use. All are in coreutils or BusyBox.
const needed = "cat chmod cp cut date grep kill ln ls mkdir mv rm sed sha256sum sleep stat tail tr wc"

// Facts asks the machine about itself.
func (m *Machine) Facts(ctx context.Context) (Facts, error) {
	out, err := m.run(ctx, false, `
echo "system=$(uname -s)"
echo "kernel=$(uname -r)"
echo "machine=$(uname -m)"
echo "uid=$(id -u)"
[ -d /run/systemd/system ] && command -v systemctl >/dev/null && echo systemd=yes
for p in `+needed+`; do command -v $p >/dev/null || echo "missing=$p"; done
if [ "$(id -u)" != 0 ]; then
	if said=$(sudo -n true 2>&1); then echo sudo=yes; else echo "sudono=$(echo "$said" | tail -n 1)"; fi
fi
true`, nil)
	if err != nil {
		return Facts{}, err
	}
	var f Facts
	for line := range strings.Lines(out) {
		k, v, _ := strings.Cut(strings.TrimRight(line, "\n"), "=")
		switch k {
		case "system":
			f.System = v
		case "kernel":
			f.Kernel = v
		case "machine":
			f.Machine, f.Arch = v, goArch[v]
		case "uid":
			f.Root = v == "0"
		case "systemd":
			f.Systemd = true
		case "missing":
			f.Missing = append(f.Missing, v)
		case "sudo":
			f.Sudo, f.Root = true, true
		case "sudono":
			f.SudoNo = v
		}
	}
	m.sudo = f.Sudo
	return f, nil
}

// Run runs a script for /bin/sh as root and returns what it printed. The
// script must hold no secrets. The error is a [Failed] if it did not exit
// with 0.
func (m *Machine) Run(ctx context.Context, script string, stdin io.Reader) (string, error) {
	return m.run(ctx, m.sudo, script, stdin)
}

func (m *Machine) run(ctx context.Context, sudo bool, script string, stdin io.Reader) (string, error) {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, commandTimeout)
		defer cancel()
	}
	s, err := m.client.NewSession()
	if err != nil {
		return "", &Failed{Status: -1, Err: fmt.Errorf("the connection to %s is lost: %w", m.Address(), err)}
	}
	defer func() { _ = s.Close() }() // it is over by then
	var out, errs tail
	out.most, errs.most = 1<<20, 8<<10
	s.Stdin, s.Stdout, s.Stderr = stdin, &out, &errs
	stop := context.AfterFunc(ctx, func() {
		_ = s.Signal(ssh.SIGTERM) // not every server passes it on
		_ = s.Close()
	})
	err = s.Run(command(sudo, script))
	if !stop() && ctx.Err() != nil {
		err = ctx.Err()
		if errors.Is(err, context.DeadlineExceeded) {
			err = fault.New(fault.Unavailable, "%s took too long", m.Address())
		}
		return out.String(), &Failed{Status: -1, Said: errs.String(), Err: err}
	}
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return out.String(), nil
	case errors.As(err, &exit):
		said := errs.String()
		if strings.TrimSpace(said) == "" {
			said = out.String()
		}
		return out.String(), &Failed{Status: exit.ExitStatus(), Said: lastLines(said, 4)}
	default:
		return out.String(), &Failed{Status: -1, Said: lastLines(errs.String(), 4), Err: fmt.Errorf("the connection to %s is lost: %w", m.Address(), err)}
	}
}

func command(sudo bool, script string) string {
	c := "/bin/sh -c " + Quote(script)
	if sudo {
		c = "sudo -n " + c
	}
	return c
}

// Quote makes one word of s for a shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// tail keeps the last bytes written to it.
type tail struct {
	bytes.Buffer

	most int
}

func (t *tail) Write(p []byte) (int, error) {
	n, err := t.Buffer.Write(p)
	if over := t.Len() - t.most; over > 0 {
		t.Next(over)
	}
	return n, err
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// File is something to put on a machine.
type File struct {
	Path string
	Mode int
	Data []byte
}

// Put writes a file: whole, with its mode from the first moment, or not at all.
func (m *Machine) Put(ctx context.Context, f File) error {
	sum := sha256.Sum256(f.Data)
	return m.PutFrom(ctx, f.Path, f.Mode, bytes.NewReader(f.Data), hex.EncodeToString(sum[:]))
}

// PutFrom is Put of what r reads, whose SHA-256 is sum.
func (m *Machine) PutFrom(ctx context.Context, name string, mode int, r io.Reader, sum string) error {
	_, err := m.Run(ctx, putScript(name, mode, sum), r)
	return err
}

func putScript(name string, mode int, sum string) string {
	part := Quote(path.Join(path.Dir(name), "."+path.Base(name)+".part"))
	return `set -e
umask 077
rm -f ` + part + `
trap 'rm -f ` + strings.ReplaceAll(part, "'", `'\''`) + `' EXIT
cat >` + part + `
got=$(sha256sum <` + part + ` | cut -c 1-64)
if [ "$got" != ` + sum + ` ]; then echo "what arrived is damaged: its SHA-256 is $got" >&2; exit 1; fi
chmod 0` + strconv.FormatInt(int64(mode), 8) + ` ` + part + `
mv -f ` + part + ` ` + Quote(name)
}

// Read returns a small file, nil if there is none.
func (m *Machine) Read(ctx context.Context, name string) ([]byte, error) {
	q := Quote(name)
	out, err := m.Run(ctx, `if [ -e `+q+` ]; then echo found; cat `+q+`; fi`, nil)
	if err != nil || out == "" {
		return nil, err
	}
	return []byte(strings.TrimPrefix(out, "found\n")), nil
}
