//go:build linux

package pool

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
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
		n := opened(t, NodeConfig{Libraries: driver, looksAgain: after})
		stop := running(t, n)
		t.Cleanup(stop)
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
	n.mu.Lock()
	for _, d := range n.devices { // as of a program that has just taken over
		d.had, d.Gone = true, true
	}
	n.mu.Unlock()
	breaks(true)
	look(n, 2, "when they cannot be listed after a handover")
	breaks(false)
	look(n, 2, "once more")
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

// TestUnlistedStops: while a node waits for a driver that does not answer it is not replaced
// by another program, before which it would be silent; and it stops all the same.
func TestUnlistedStops(t *testing.T) {
	if !Built() {
		t.Skip("SKIPPED: this build has no worker")
	}
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	n := opened(t, NodeConfig{})
	n.program = filepath.Join(dir, "program")
	if err := put(n.program, []byte("#!/bin/sh\ntouch "+asked+"\nsleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	stop := running(t, n)
	looked := make(chan error, 1)
	go func() { looked <- n.Rescan() }()
	for deadline := time.Now().Add(30 * time.Second); ; <-time.After(10 * time.Millisecond) {
		if _, err := os.Stat(asked); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("its driver is not asked")
		}
	}
	if err := n.replace("no program"); fault.KindOf(err) != fault.Unavailable || n.freezing.Load() {
		t.Errorf("it is replaced: %v", err)
	}
	stop()
	if err := <-looked; fault.KindOf(err) != fault.Canceled {
		t.Errorf("it looked for devices: %v", err)
	}
}

// opened is a node of a folder of the test's.
func opened(t *testing.T, cfg NodeConfig) *Node {
	t.Helper()
	cfg.Dir, cfg.Listen = t.TempDir(), []string{"unix:" + filepath.Join(t.TempDir(), "s")}
	n, err := NewNode(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// running runs a node until it is stopped, which is no matter of what drivers do.
func running(t *testing.T, n *Node) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(listsWithin / 2):
			t.Error("it does not stop")
		}
	}
}
