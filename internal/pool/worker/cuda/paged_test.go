//go:build linux

package cuda

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/wire"
	"yunhe.dev/yunhe/internal/pool/worker"
)

// TestFetch: where more of a device is lent than it has, memory is managed, and what there
// is of it is on the device again before a turn begins, if others had that. What was freed,
// or has gone with its context, is not.
func TestFetch(t *testing.T) {
	t.Parallel()
	s := session(t, silent{})
	s.memory.SetOver(true)
	node, theirs := net.Pipe()
	t.Cleanup(func() { _ = node.Close() })
	s.turn = worker.NewTurn(node, func() {})
	s.turn.Drains(func() {})
	s.turn.Fetches(s.fetch)
	var mu sync.Mutex // guards what follows
	var said []string
	away, in := true, make(chan struct{}, 2)
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, fmt.Sprintf(format, args...))
	}
	heard := func() []string { mu.Lock(); defer mu.Unlock(); all := said; said = nil; return all }
	go func() {
		for {
			f, err := between.Read(theirs)
			switch {
			case err != nil:
				return
			case f.What == between.Want, f.What == between.More:
				mu.Lock()
				moved := away
				mu.Unlock()
				if moved {
					_, _ = theirs.Write(between.Put(between.Away, 0))
				}
				_, _ = theirs.Write(between.Put(between.Granted, 1)) // over at once
			case f.What == between.Room:
				note("room for %d", f.Time)
				_, _ = theirs.Write(between.Put(between.Space, 1))
			case f.What == between.In:
				in <- struct{}{}
			}
		}
	}()
	next, current := uintptr(4096), uintptr(0)
	callback := func(f any) uintptr { return purego.NewCallback(f) }
	s.d.named["cuMemAllocManaged"] = callback(func(to *uint64, n, flags uintptr) uintptr {
		*to, next = uint64(next), next+4096
		note("made %d, %d", n, flags)
		return success
	})
	s.d.byOp[wire.CUDAMemFreeV2] = callback(func(uintptr) uintptr { return success })
	s.d.byOp[wire.CUDAStreamCreate] = callback(func(to *uintptr, flags uintptr) uintptr { *to = current + 1; return success })
	s.d.byOp[wire.CUDAStreamSynchronize] = callback(func(stream uintptr) uintptr { note("waits for %d", stream); return success })
	s.d.named["cuCtxSetCurrent"] = callback(func(c uintptr) uintptr { current = c; return success })
	s.d.named["cuMemPrefetchAsync"] = callback(func(p, n, device, stream uintptr) uintptr {
		note("fetches %d bytes at %d by %d", n, p, stream)
		return success
	})
	go s.keep()
	one, two := s.mint(wire.CUDACtx, 100, nil), s.mint(wire.CUDACtx, 200, nil)
	th := &thread{s: s, id: 1, cells: &cells{}}
	do := func(op wire.Op, w ...uint64) {
		t.Helper()
		if err := th.do(&message{Header: wire.Header{Op: op}, body: words(append([]uint64{1}, w...)...)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []*object{one, one, two} {
		th.stack = []*object{c}
		do(wire.CUDAMemAllocV2, 1000)
	}
	do(wire.CUDAMemAllocPitchV2, 100, 2, 4)
	if got, want := heard(), []string{"made 1000, 1", "made 1000, 1", "made 1000, 1", "made 1024, 1"}; !slices.Equal(got, want) {
		t.Fatalf("made: %q", got)
	}
	do(wire.CUDAMemFreeV2, 8192)
	work := func() []string {
		t.Helper()
		if r := th.work(0, func() int32 { note("work"); return success }); r != success {
			t.Fatal(r)
		}
		return heard()
	}
	got := work()
	// Contexts come in any order; all is asked for before any is waited for.
	if len(got) > 6 {
		slices.Sort(got[1:4])
		slices.Sort(got[4:6])
	}
	if want := []string{"room for 0", "fetches 1000 bytes at 12288 by 201", "fetches 1000 bytes at 4096 by 101", "fetches 1024 bytes at 16384 by 201", "waits for 101", "waits for 201", "work"}; !slices.Equal(got, want) {
		t.Errorf("when others had the device: %q", got)
	}
	th.endContext(two.ptr)
	got = work()
	for ; len(got) == 1; got = work() { // the turn is not over
		<-time.After(time.Millisecond)
	}
	if want := []string{"room for 0", "fetches 1000 bytes at 4096 by 101", "waits for 101", "work"}; !slices.Equal(got, want) {
		t.Errorf("when a context has ended: %q", got)
	}
	<-in
	<-in // the node was told each time
	mu.Lock()
	away = false
	mu.Unlock()
	if got := work(); !slices.Equal(got, []string{"work"}) {
		t.Errorf("when nobody else had the device: %q", got)
	}
}
