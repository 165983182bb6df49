// Package remote puts a compute gateway on a machine that is reached by SSH,
// keeps it running there, upgrades it in place, and takes it away again.
//
// What it keeps true:
//
//   - No machine is spoken to whose host key is not known: it is in a known
//     hosts file, has the fingerprint that was asked for, or somebody looked
//     at it and agreed. A key that differs from the known one is refused,
//     whoever agrees.
//   - No secret is an argument of a command, here or there: passwords are not
//     supported at all, files are written through standard input, and those
//     with secrets are created for their owner only.
//   - Every file appears whole or not at all: it is written beside its place,
//     checked by its SHA-256, and moved. The program has its hash in its name
//     and is switched by moving a link, so a running one is never overwritten.
//   - Every step may be done again. A second join finds what the first one
//     left, at whatever point that one ended, and goes on from there.
//   - Two joins of one machine do not mix: the folder is locked on that
//     machine, by the connection; a connection that breaks lets go.
//
// # What lies on the machine
//
//	/opt/yunhe-gateway/          the folder (--dir), mode 0700
//	    bin/yunhe-<sha256>       programs: the one in use and the one before
//	    bin/yunhe                link to the one in use
//	    data/                    the gateway's own: key, runs, ledger
//	    center.yaml              what the center declares
//	    join.yaml                how it was joined, once that is done
//	    start.sh                 starts the gateway
//	    token                    join token, gone once it is used
//	    keeper.sh  keeper.pid    without systemd: a loop that restarts it
//	    gateway.log              without systemd: what it says
//	/etc/systemd/system/yunhe-gateway.service    with systemd
//
// # Failures
//
// A command that fails says what the machine said ([Failed]). A lost
// connection ends the step under way; nothing that runs there depends on the
// connection. What runs in the sandbox outlives the gateway (package sandbox),
// so stopping, upgrading and restarting it touches no job.
package remote

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/fault"
)

// Target is a machine and who to be there.
type Target struct {
	User, Host string
	Port       int
}

// ParseTarget reads ssh://[user@]host[:port]; user is who to be where none is
// named. It returns fault.Invalid for anything else, a password above all.
func ParseTarget(s, user string) (Target, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "ssh" || u.Hostname() == "":
		return Target{}, fault.New(fault.Invalid, "want ssh://[user@]host[:port], got %q", s)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return Target{}, fault.New(fault.Invalid, "want nothing behind the host in ssh://[user@]host[:port], got %q", s)
	}
	t := Target{User: user, Host: u.Hostname(), Port: 22}
	if u.User != nil {
		if _, has := u.User.Password(); has {
			return Target{}, fault.New(fault.Invalid, "a password has no place in an address; use a key (--identity) or an agent")
		}
		t.User = u.User.Username()
	}
	if t.User == "" {
		return Target{}, fault.New(fault.Invalid, "nobody to log in as: want ssh://user@%s", t.Host)
	}
	if p := u.Port(); p != "" {
		if t.Port, err = strconv.Atoi(p); err != nil || t.Port < 1 || t.Port > 65535 {
			return Target{}, fault.New(fault.Invalid, "the port must be between 1 and 65535, got %q", p)
		}
	}
	return t, nil
}

// Address is host:port.
func (t Target) Address() string { return net.JoinHostPort(t.Host, strconv.Itoa(t.Port)) }

// String is the form ParseTarget reads.
func (t Target) String() string {
	s := "ssh://" + t.User + "@" + t.Host
	if strings.Contains(t.Host, ":") {
		s = "ssh://" + t.User + "@[" + t.Host + "]"
	}
	if t.Port != 22 {
		s += ":" + strconv.Itoa(t.Port)
	}
	return s
}

// Local reports whether the target is this machine by its name or address.
func (t Target) Local() bool {
	ip := net.ParseIP(t.Host)
	return t.Host == "localhost" || ip != nil && ip.IsLoopback()
}

// Failed is a command that did not do what it should on the machine.
type Failed struct {
	Status int    // exit status, -1 if it was killed or the connection broke
	Said   string // the end of what it wrote to standard error, else output
	Err    error
}

// Error is one line.
func (f *Failed) Error() string {
	said := strings.Join(strings.Fields(f.Said), " ")
	switch {
	case said != "":
		return said
	case f.Err != nil:
		return f.Err.Error()
	}
	return fmt.Sprintf("exit status %d, without a word", f.Status)
}

// Unwrap returns the cause.
func (f *Failed) Unwrap() error { return f.Err }
