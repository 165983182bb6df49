package enginetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Hosts are machines on a network of their own: network namespaces, joined by a
// bridge to each other and to this process. Nothing else is theirs alone. The
// kernel removes them when this process ends.
type Hosts struct {
	// Address is this process's on the network.
	Address string

	ip    string
	space *os.File // where the bridge is
	link  string   // our end of the wire to it
	hosts []*Host
}

// Host is one of them.
type Host struct {
	Name, Address string

	hosts *Hosts
	space *os.File
	port  string // of the bridge
}

// StartHosts makes n of them. It needs root. The caller must Close it.
func StartHosts(ctx context.Context, n int) (*Hosts, error) {
	ip, ok := find("ip")
	if !ok {
		return nil, &MissingError{Engine: "a network of hosts", Need: "no ip found", Fix: fixTest}
	}
	if os.Geteuid() != 0 {
		return nil, &MissingError{Engine: "a network of hosts", Need: "it needs root", Fix: "the tests as root"}
	}
	id := make([]byte, 2)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("name the network: %w", err)
	}
	net := fmt.Sprintf("10.%d.%d.", 128+id[0]%64, id[1])
	hs := &Hosts{ip: ip, Address: net + "1", link: "yn" + hex.EncodeToString(id) + "s"}
	if err := hs.make(ctx, net, n); err != nil {
		return nil, errors.Join(fmt.Errorf("make a network of hosts: %w", err), hs.Close())
	}
	return hs, nil
}

func (hs *Hosts) make(ctx context.Context, net string, n int) (err error) {
	if hs.space, err = newSpace(); err != nil {
		return err
	}
	if err := errors.Join(
		hs.run(ctx, nil, "link add "+hs.link+" type veth peer name wire netns "+spacePath(hs.space)),
		hs.run(ctx, nil, "addr add "+hs.Address+"/24 dev "+hs.link),
		hs.run(ctx, nil, "link set "+hs.link+" up"),
		hs.run(ctx, hs.space, "link add bridge type bridge"),
		hs.run(ctx, hs.space, "link set bridge up"),
		hs.run(ctx, hs.space, "link set wire master bridge up")); err != nil {
		return err
	}
	for i := range n {
		h := &Host{Name: fmt.Sprint("host", i+1), Address: fmt.Sprintf("%s%d", net, 10+i), hosts: hs, port: fmt.Sprint("port", i+1)}
		if h.space, err = newSpace(); err != nil {
			return err
		}
		hs.hosts = append(hs.hosts, h)
		if err := errors.Join(
			hs.run(ctx, hs.space, "link add "+h.port+" type veth peer name eth0 netns "+spacePath(h.space)),
			hs.run(ctx, h.space, "link set lo up"),
			hs.run(ctx, h.space, "addr add "+h.Address+"/24 dev eth0"),
			hs.run(ctx, h.space, "link set eth0 up"),
			hs.run(ctx, hs.space, "link set "+h.port+" master bridge up")); err != nil {
			return err
		}
	}
	return nil
}

// Host returns the host of that index.
func (hs *Hosts) Host(i int) *Host { return hs.hosts[i] }

// Close ends the network; the processes on its hosts must have ended.
func (hs *Hosts) Close() error {
	var errs []error
	if hs.space != nil {
		out, err := exec.Command(hs.ip, "link", "del", hs.link).CombinedOutput()
		if err != nil && !strings.Contains(string(out), "Cannot find device") {
			errs = append(errs, fmt.Errorf("remove the network: %w: %s", err, out))
		}
		errs = append(errs, hs.space.Close())
		hs.space = nil
	}
	for _, h := range hs.hosts {
		errs = append(errs, h.space.Close())
	}
	hs.hosts = nil
	return errors.Join(errs...)
}

// Cut has every packet from and to the host get lost, unnoticed by both sides.
func (h *Host) Cut(ctx context.Context) error {
	return h.hosts.run(ctx, h.hosts.space, "link set "+h.port+" nomaster")
}

// Join is the reverse of Cut.
func (h *Host) Join(ctx context.Context) error {
	return h.hosts.run(ctx, h.hosts.space, "link set "+h.port+" master bridge")
}

// run runs ip in a namespace; nil: in our own.
func (hs *Hosts) run(ctx context.Context, space *os.File, args string) error {
	return onSpawner(func() error {
		return within(space, func() error {
			out, err := exec.CommandContext(ctx, hs.ip, strings.Fields(args)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip %s: %w: %s", args, err, strings.TrimSpace(string(out)))
			}
			return nil
		})
	})
}

func spacePath(space *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), space.Fd()) }

// newSpace makes a network namespace that lives as long as the file is open or
// a process is in it.
func newSpace() (space *os.File, err error) {
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("make a network namespace: %w", err)
			return
		}
		space, err = os.Open("/proc/thread-self/ns/net")
	})
	done.Wait()
	return space, err
}

// within runs f on this thread, which must be locked, in a namespace.
func within(space *os.File, f func() error) error {
	if space == nil {
		return f()
	}
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer home.Close() // read only
	if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(fmt.Sprintf("the thread that starts processes cannot leave a network namespace: %v", back))
	}
	return err
}

// enter runs f so that what it starts is on the host; nil: here.
func (h *Host) enter(f func() error) error {
	if h == nil {
		return f()
	}
	return within(h.space, f)
}

// Network makes n hosts for a test.
func Network(tb testing.TB, n int) *Hosts {
	tb.Helper()
	ctx, cancel := testContext(tb)
	defer cancel()
	hs, err := StartHosts(ctx, n)
	check(tb, err)
	closeAtEnd(tb, hs)
	return hs
}
