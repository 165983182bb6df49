package pool

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
)

// FuzzTicket: nobody is let in by a text that the platform did not sign, and
// what it signed, whatever that is, is for this node or refused.
func FuzzTicket(f *testing.F) {
	m := &Member{ID: "n1", Secret: []byte("a secret of the node and its platform")}
	challenge := []byte("0123456789abcdef0123456789abcdef")
	for _, t := range []Ticket{{Node: "n1", Boot: "b", Serial: "s", Slice: "slice_1", Spec: Spec{Device: "opencl-0", Compute: 10, Memory: 1 << 20}}, {Node: "n2"}, {}} {
		text, key, err := t.Sign(m.Secret)
		if err != nil {
			f.Fatal(err)
		}
		k, _ := hex.DecodeString(key)
		f.Add(text, hex.EncodeToString(ticketMAC(k, challenge, text)))
		f.Add(text, strings.Repeat("0", 64))
	}
	f.Add("eyJub2RlIjoibjEifQ", "")
	f.Add(strings.Repeat("e30", 3000), "zz")
	f.Fuzz(func(t *testing.T, text, mac string) {
		right := hex.EncodeToString(ticketMAC(ticketKey(m.Secret, text), challenge, text))
		got, err := m.redeem(text, mac, challenge)
		if (got == nil) == (err == nil) || err != nil && fault.KindOf(err) != fault.Unauthenticated {
			t.Fatalf("%q: %v, %v", text, got, err)
		}
		if got != nil && !strings.EqualFold(mac, right) {
			t.Fatalf("%q was let in by %q", text, mac)
		}
		got, err = m.redeem(text, right, challenge)
		if got != nil && (got.Node != m.ID || len(text) > maxTicket || got.key == "") || (got == nil) == (err == nil) {
			t.Fatalf("signed, %q: %v, %v", text, got, err)
		}
		if got, err := m.redeem(text, right, challenge[1:]); got != nil || err == nil {
			t.Fatalf("%q was let in by what proved it to another challenge", text)
		}
	})
}

// TestAddressOrder: of a node's addresses the best is tried first, and the Unix
// socket only on the node's machine.
func TestAddressOrder(t *testing.T) {
	t.Parallel()
	sock := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(sock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all := []string{"tcp:10.0.0.5:1", "rdma:10.0.0.5:2", "unix:" + sock, "tcp:10.0.0.6:1", "unix:" + sock + "none"}
	for host, want := range map[string][]string{Host(): {"unix:" + sock, "rdma:10.0.0.5:2", "tcp:10.0.0.5:1", "tcp:10.0.0.6:1"}, "another": {"rdma:10.0.0.5:2", "tcp:10.0.0.5:1", "tcp:10.0.0.6:1"}} {
		if got := (Pass{Addresses: all, Host: host}).order(); !slices.Equal(got, want) {
			t.Errorf("at %q: %v, want %v", host, got, want)
		}
	}
}
