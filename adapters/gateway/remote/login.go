package remote

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"yunhe.dev/yunhe/internal/fault"
)

// Login says how to get into a machine.
type Login struct {
	Target

	// Identity is a private key file; "": the agent's keys, then the usual
	// files of KeyDir.
	Identity string
	KeyDir   string // "~/.ssh"
	Agent    string // socket of an agent; "": none
	// Passphrase is asked for the passphrase of a key file; nil: such a key
	// cannot be used.
	Passphrase func(file string) ([]byte, error)

	// KnownHosts are files of known host keys; those that do not exist count
	// as empty. A key somebody agreed to is added to the first.
	KnownHosts []string
	// Fingerprint is the host key's, "SHA256:..."; then KnownHosts do not count.
	Fingerprint string
	// Agree is asked about a host nobody knows yet; nil: it is refused.
	Agree func(host, keyType, fingerprint string) (bool, error)
}

// dialTimeout bounds connecting and logging in.
const dialTimeout = 20 * time.Second

// hostKeyKinds are the kinds of host keys, best first.
var hostKeyKinds = [][]string{
	{ssh.KeyAlgoED25519},
	{ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521},
	{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
}

// Connect logs in. It returns fault.Invalid for a key file or a known hosts
// file that cannot be used, fault.Denied for a host key that is not trusted,
// fault.Unauthenticated if the machine accepts no key, and fault.Unavailable
// if it does not answer. Every message says what to do.
func Connect(ctx context.Context, l Login) (*Machine, error) {
	auth, tried, done, err := l.auth()
	if err != nil {
		return nil, err
	}
	defer done()
	var m *Machine
	if l.Fingerprint == "" {
		m, err = l.connectKnown(ctx, auth)
	} else {
		m, err = l.connectPinned(ctx, auth)
	}
	if err != nil {
		return nil, l.explain(err, tried)
	}
	return m, nil
}

// connectKnown checks the host key against the known hosts.
func (l *Login) connectKnown(ctx context.Context, auth []ssh.AuthMethod) (*Machine, error) {
	var files []string
	for _, f := range l.KnownHosts {
		if _, err := os.Stat(f); err == nil {
			files = append(files, f)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fault.Wrap(fault.Invalid, err, "the known hosts in %s cannot be read", f)
		}
	}
	check, err := knownhosts.New(files...)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the known hosts cannot be read; correct the file or name another with --known-hosts")
	}
	// A machine has several keys and shows the one asked for first: ask for the
	// kinds that are known, or the key shown would differ from the known one.
	kinds := slices.Concat(hostKeyKinds...)
	if known := knownKinds(check, l.Address()); len(known) > 0 {
		kinds = known
	}
	return l.dial(ctx, auth, kinds, func(host string, addr net.Addr, key ssh.PublicKey) error {
		err := check(host, addr, key)
		var diff *knownhosts.KeyError
		var revoked *knownhosts.RevokedError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &revoked):
			return fault.New(fault.Denied, "the host key of %s (%s) is marked as revoked in %s:%d", l.Address(), ssh.FingerprintSHA256(key), revoked.Revoked.Filename, revoked.Revoked.Line)
		case !errors.As(err, &diff):
			return err
		case len(diff.Want) > 0:
			return fault.New(fault.Denied, "the host key of %s is %s, but %s:%d knows another: the machine was set up anew, or somebody listens in; if it is right, remove that line and try again",
				l.Address(), ssh.FingerprintSHA256(key), diff.Want[0].Filename, diff.Want[0].Line)
		}
		return l.meet(key)
	})
}

// knownKinds returns the kinds of host keys known for an address, by what the
// check misses when it sees a key nobody has.
func knownKinds(check ssh.HostKeyCallback, address string) []string {
	none, err := ssh.NewPublicKey(ed25519.PublicKey(make([]byte, ed25519.PublicKeySize)))
	if err != nil {
		return nil
	}
	var diff *knownhosts.KeyError
	if !errors.As(check(address, &net.TCPAddr{IP: net.IPv4zero}, none), &diff) {
		return nil
	}
	var out []string
	for _, k := range diff.Want {
		switch t := k.Key.Type(); t {
		case ssh.KeyAlgoRSA:
			out = append(out, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		default:
			out = append(out, t)
		}
	}
	return out
}

// meet decides about a host that is not known.
func (l *Login) meet(key ssh.PublicKey) error {
	print := ssh.FingerprintSHA256(key)
	if l.Agree == nil {
		return fault.New(fault.Denied, "the host key of %s is not known: it shows %s %s; compare it on the machine (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub) and give --host-key %s, or add it to the known hosts",
			l.Address(), key.Type(), print, print)
	}
	ok, err := l.Agree(l.Address(), key.Type(), print)
	if err != nil {
		return err
	}
	if !ok {
		return fault.New(fault.Denied, "the host key of %s was not agreed to", l.Address())
	}
	if len(l.KnownHosts) == 0 {
		return nil
	}
	path := l.KnownHosts[0]
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fault.Wrap(fault.Invalid, err, "the host key cannot be remembered in %s", path)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "the host key cannot be remembered in %s", path)
	}
	_, err = fmt.Fprintln(f, knownhosts.Line([]string{l.Address()}, key))
	if err = errors.Join(err, f.Close()); err != nil {
		return fault.Wrap(fault.Invalid, err, "the host key cannot be remembered in %s", path)
	}
	return nil
}

// connectPinned asks for one kind of host key after the other until one has
// the fingerprint.
func (l *Login) connectPinned(ctx context.Context, auth []ssh.AuthMethod) (*Machine, error) {
	var shown []string
	for _, kinds := range hostKeyKinds {
		differs := errors.New("another host key")
		m, err := l.dial(ctx, auth, kinds, func(_ string, _ net.Addr, key ssh.PublicKey) error {
			print := ssh.FingerprintSHA256(key)
			if print == l.Fingerprint {
				return nil
			}
			shown = append(shown, print)
			return differs
		})
		var none *ssh.AlgorithmNegotiationError
		if !errors.Is(err, differs) && !errors.As(err, &none) {
			return m, err
		}
	}
	return nil, fault.New(fault.Denied, "no host key of %s has the fingerprint %s; it shows %s", l.Address(), l.Fingerprint, strings.Join(shown, ", "))
}

func (l *Login) dial(ctx context.Context, auth []ssh.AuthMethod, kinds []string, check ssh.HostKeyCallback) (*Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Address())
	if err != nil {
		return nil, err
	}
	// Closing the connection is the one way to interrupt a handshake.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	print := ""
	c, chans, reqs, err := ssh.NewClientConn(conn, l.Address(), &ssh.ClientConfig{User: l.User, Auth: auth, HostKeyAlgorithms: kinds,
		HostKeyCallback: func(host string, addr net.Addr, key ssh.PublicKey) error {
			print = ssh.FingerprintSHA256(key)
			return check(host, addr, key)
		}})
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close() // it may be closed already
		return nil, err
	}
	return &Machine{Target: l.Target, Fingerprint: print, client: ssh.NewClient(c, chans, reqs)}, nil
}

// auth returns the ways to authenticate, what they are for people, and what
// to call when logging in is over.
func (l *Login) auth() (methods []ssh.AuthMethod, tried []string, done func(), err error) {
	done = func() {}
	if l.Identity != "" {
		s, err := l.load(l.Identity)
		if err != nil {
			return nil, nil, done, err
		}
		return []ssh.AuthMethod{ssh.PublicKeys(s)}, []string{l.Identity}, done, nil
	}
	var signers []ssh.Signer
	if l.Agent != "" {
		conn, err := net.DialTimeout("unix", l.Agent, 5*time.Second)
		if err != nil {
			tried = append(tried, "no agent at "+l.Agent)
		} else {
			done = func() { _ = conn.Close() } // nothing is lost
			keys, err := agent.NewClient(conn).Signers()
			if err != nil {
				tried = append(tried, "an agent that gives no keys: "+err.Error())
			}
			signers = append(signers, keys...)
			tried = append(tried, fmt.Sprintf("%d keys of the agent", len(keys)))
		}
	}
	for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
		path := filepath.Join(l.KeyDir, name)
		if _, err := os.Stat(path); l.KeyDir == "" || err != nil {
			continue
		}
		s, err := l.load(path)
		if err != nil {
			tried = append(tried, err.Error())
			continue
		}
		signers, tried = append(signers, s), append(tried, path)
	}
	if len(signers) == 0 {
		done()
		return nil, nil, func() {}, fault.New(fault.Unauthenticated, "there is no key to log in with (%s); name one with --identity", strings.Join(append(tried, "nothing in "+l.KeyDir), "; "))
	}
	return []ssh.AuthMethod{ssh.PublicKeys(signers...)}, tried, done, nil
}

func (l *Login) load(path string) (ssh.Signer, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the key %s cannot be read", path)
	}
	s, err := ssh.ParsePrivateKey(b)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		if l.Passphrase == nil {
			return nil, fault.New(fault.Invalid, "the key %s has a passphrase; add it to an agent (ssh-add) or run this on a terminal", path)
		}
		phrase, perr := l.Passphrase(path)
		if perr != nil {
			return nil, perr
		}
		s, err = ssh.ParsePrivateKeyWithPassphrase(b, phrase)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the key %s cannot be used", path)
	}
	return s, nil
}

// explain gives an error of the library words and a way out.
func (l *Login) explain(err error, tried []string) error {
	var dns *net.DNSError
	var op *net.OpError
	var none *ssh.AlgorithmNegotiationError
	if kind := fault.KindOf(err); kind != fault.Internal {
		if msg, ok := fault.Message(err); ok { // ours, without what the library put before it
			return fault.New(kind, "%s", msg)
		}
		return err
	}
	switch {
	case errors.As(err, &dns):
		return fault.Wrap(fault.Unavailable, err, "no machine has the name %s", l.Host)
	case errors.As(err, &none):
		return fault.Wrap(fault.Denied, err, "%s has no host key of the kind that is known of it", l.Address())
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fault.New(fault.Unauthenticated, "%s accepts none of the keys for %s (%s); name another with --identity, or add the public key to ~%s/.ssh/authorized_keys there",
			l.Address(), l.User, strings.Join(tried, ", "), l.User)
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &op) && op.Timeout():
		return fault.New(fault.Unavailable, "%s does not answer within %s; check the address, the port and the firewall", l.Address(), dialTimeout)
	case errors.Is(err, context.Canceled):
		return err
	}
	return fault.Wrap(fault.Unavailable, err, "no SSH at %s", l.Address())
}
