//go:build linux

package pool_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// TestSharedSocket: a node of a platform has a socket that anybody may open: who comes
// by it with a ticket has its slice, and who has none is let do nothing, not even see
// what there is. It is none of the node's addresses, and one without a platform has none.
func TestSharedSocket(t *testing.T) {
	t.Parallel()
	alone := start(t, pool.NodeConfig{}) // or it is skipped
	dir := func(at string) string { return filepath.Dir(strings.TrimPrefix(at, "unix:")) }
	if _, err := os.Stat(filepath.Join(dir(alone.unix), pool.SharedSocket)); !os.IsNotExist(err) {
		t.Errorf("a node without a platform shares its socket: %v", err)
	}
	m := joined(t, "n1")
	r := <-m.told
	close(m.gate)
	shared := filepath.Join(dir(m.at[0]), pool.SharedSocket)
	if slices.ContainsFunc(slices.Concat(m.at, r.Addresses), func(at string) bool { return strings.Contains(at, pool.SharedFolder) }) {
		t.Errorf("it listens at %v, and reports %v", m.at, r.Addresses)
	}
	for path, want := range map[string]os.FileMode{shared: 0o666, filepath.Dir(shared): 0o755} {
		if i, err := os.Stat(path); err != nil || i.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, i.Mode(), err, want)
		}
	}
	if c, err := pool.Dial(t.Context(), "unix:"+shared, "", ""); fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("who shows no ticket is answered %v, %v", c, err)
	}
	text, key := m.pass(t, r, "s", "one", false)
	client, task, _, at, err := pool.Pass{Slice: "s", Addresses: m.at, Host: "another machine's name", Ticket: text, Key: key, Socket: shared}.Redeem(t.Context())
	if err != nil || at != "unix:"+shared || task.Slice != "s" {
		t.Fatalf("with a ticket: %v, at %s, %+v", err, at, task)
	}
	client.Close()
}

// Who opens connections without end, and says nothing, does not take all of the node's
// files: those beyond a number wait, others' addresses are not touched, and all are let in
// when it has gone. Who has shown who it is may stay, however many there are.
func TestStrangers(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	for range 1100 {
		c, err := pool.Dial(t.Context(), n.tcp, "a", key)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	greets := func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(n.tcp, "tcp:"))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		b, err := io.ReadAtLeast(c, make([]byte, 64), 8)
		return err == nil && b > 0
	}
	for len(open) < 2000 && greets() {
	}
	if len(open) == 2000 {
		t.Error("2,000 strangers are let in")
	}
	t.Logf("figure: %d strangers are let in", len(open)-1)
	answers := func(at string) bool {
		ctx, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		c, err := pool.Dial(ctx, at, "none", "")
		if err == nil {
			c.Close()
		}
		return fault.KindOf(err) == fault.Unauthenticated
	}
	if answers(n.tcp) || !answers(n.unix) {
		t.Error("one more is answered there, or none at the other address")
	}
	for _, c := range open {
		_ = c.Close()
	}
	open = nil
	for deadline := time.Now().Add(10 * time.Second); !greets() && time.Now().Before(deadline); {
	}
	if !answers(n.tcp) {
		t.Error("when they have gone nobody is answered")
	}
}
