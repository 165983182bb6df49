//go:build linux

package pool_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
