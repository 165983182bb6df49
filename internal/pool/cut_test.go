//go:build linux

package pool_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/pool"
)

// holds is the address of the node that this process, started anew by a test on
// a host of its own, holds a task of.
const holds = "YUNHE_POOL_TEST_HOLDS"

func holdTask(at string) error {
	c, err := pool.Dial(context.Background(), at, "a", key)
	if err != nil {
		return err
	}
	defer c.Close()
	idle, err := pool.Dial(context.Background(), at, "a", key)
	if err != nil {
		return err
	}
	defer idle.Close()
	task, token, err := c.Run(pool.Spec{Compute: 40, Memory: 64 * mib})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "task %s\ntoken %s\n", task.ID, token)
	_, err = c.Ended()
	fmt.Fprintf(os.Stderr, "ended %v\n", err)
	return nil
}

// TestCut: what a client had comes back when its network is cut, though nobody
// says so, and the client hears of it, too; one that only stands still keeps it. Of a
// connection that nobody sends anything over the node hears, too.
func TestCut(t *testing.T) {
	t.Parallel()
	hosts := enginetest.Network(t, 2)
	n := startAt(t, pool.NodeConfig{}, "tcp:"+hosts.Address+":0")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var clients []*enginetest.Program
	var tasks []string
	for i, name := range []string{"cut", "stopped"} {
		p, err := enginetest.StartProgramOn(hosts.Host(i), name, self, dir, []string{holds + "=" + n.tcp})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Kill() })
		clients, tasks = append(clients, p), append(tasks, said(t, p, "task "))
	}
	if err := clients[1].Freeze(); err != nil {
		t.Fatal(err)
	}
	if err := hosts.Host(0).Cut(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	n.log.await(t, "task_id="+tasks[0]+` slice_id="" device=opencl-0 reason="its client cannot be reached any more"`)
	t.Logf("missed after %s", time.Since(began))
	if n := connections(t, hosts.Host(0).Address); n != 1 {
		t.Errorf("%d connections of it are open, it had one that nobody sends anything over", n)
	}
	left, err := dial(t, n.unix).Tasks()
	if err != nil || len(left) != 1 || left[0].ID != tasks[1] {
		t.Errorf("left is %+v, %v", left, err)
	}
	said(t, clients[0], "ended ")
	<-time.After(3 * time.Second) // longer than silence is borne
	if left, err = dial(t, n.unix).Tasks(); err != nil || len(left) != 1 {
		t.Errorf("of a client that stands still: %+v, %v", left, err)
	}
	if err := clients[1].Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := dial(t, n.unix).Stop(tasks[1]); err != nil {
		t.Error(err)
	}
	said(t, clients[1], "ended ")
	for connections(t, hosts.Host(0).Address) > 0 && t.Context().Err() == nil && time.Since(began) < time.Minute {
		<-time.After(100 * time.Millisecond)
	}
	if took := time.Since(began); took >= time.Minute {
		t.Errorf("a connection that nobody sends anything over is still open after %s", took)
	}
}

// connections is how many of this machine's are open to an address.
func connections(t *testing.T, address string) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr(address).As4()
	const established = "01"
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if strings.HasPrefix(f[2], fmt.Sprintf("%02X%02X%02X%02X:", a[3], a[2], a[1], a[0])) && f[3] == established {
			n++
		}
	}
	return n
}

// said waits until a program has said something.
func said(t *testing.T, p *enginetest.Program, what string) string {
	t.Helper()
	for t.Context().Err() == nil {
		rest, ok, err := p.Line(what)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return rest
		}
		select {
		case <-p.Done():
			if rest, ok, _ := p.Line(what); ok {
				return rest
			}
			t.Fatalf("it ended: %s", p.Tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return ""
}
