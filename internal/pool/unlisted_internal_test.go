//go:build linux

package pool

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
)

// TestUnlisted: where the devices of CUDA cannot be listed once, those that are known stay;
// they are gone when they cannot be listed again; and when they can be, they are found by
// themselves, also by a node that was started before.
func TestUnlisted(t *testing.T) {
	if !Built() {
		t.Skip("SKIPPED: this build has no worker")
	}
	broken := filepath.Join(t.TempDir(), "broken")
	driver := cardstest.Build(t, "cuda -DBROKEN=\""+broken+"\"", "opencl")
	vendors := t.TempDir()
	if err := os.WriteFile(filepath.Join(vendors, "fake.icd"), []byte(filepath.Join(driver, "libfakecl.so")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OCL_ICD_VENDORS", vendors)
	breaks := func(is bool) {
		t.Helper()
		err := os.WriteFile(broken, nil, 0o600)
		if !is {
			err = os.Remove(broken)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	start := func(after time.Duration) *Node {
		t.Helper()
		n, err := NewNode(NodeConfig{Dir: t.TempDir(), Listen: []string{"unix:" + filepath.Join(t.TempDir(), "s")}, Libraries: driver, looksAgain: after}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return n
	}
	// has counts devices that can be had.
	has := func(n *Node, api string) (found int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, d := range n.devices {
			if d.API == api && !d.Gone {
				found++
			}
		}
		return found
	}
	look := func(n *Node, want int, when string) {
		t.Helper()
		if err := n.Rescan(); err != nil {
			t.Fatal(err)
		}
		if cuda, other := has(n, CUDA), has(n, OpenCL); cuda != want || other != 1 {
			t.Errorf("%s it has %d of CUDA and %d of OpenCL", when, cuda, other)
		}
	}
	n := start(time.Hour)
	look(n, 2, "at first")
	breaks(true)
	look(n, 2, "when they cannot be listed once")
	look(n, 0, "when they cannot be listed twice")
	breaks(false)
	look(n, 2, "afterwards")
	breaks(true)
	look(n, 2, "when they cannot be listed for another time")

	early := start(20 * time.Millisecond)
	if got := has(early, CUDA); got != 0 {
		t.Fatalf("of a driver that does not start it has %d", got)
	}
	breaks(false)
	for deadline := time.Now().Add(30 * time.Second); has(early, CUDA) != 2; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("they are not found by themselves")
		}
	}
}
