//go:build linux

package worker

import (
	"bytes"
	"os"
	"runtime/debug"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestMargins: a kernel that reads or writes a little past a buffer, before it or after, meets memory that is nobody's.
func TestMargins(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var all [][]byte
	for range 3 {
		for _, size := range []uint64{sharedFrom, sharedFrom + 4, 640 * 480} {
			fd, b, err := sharedMemory(size)
			if err != nil {
				t.Fatal(err)
			}
			_ = unix.Close(fd)
			all = append(all, b)
		}
	}
	for i, b := range all {
		wide := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&b[0]), -margin)), len(b)+2*margin)
		for j := range wide {
			if wide[j] != 0 {
				t.Fatalf("at %d of memory %d of %d bytes: %d, which another's is", j-margin, i, len(b), wide[j])
			}
			wide[j] = byte(i + 1)
		}
	}
	for i, b := range all {
		for j := range b {
			if b[j] != byte(i+1) {
				t.Fatalf("at %d of memory %d: %d", j, i, b[j])
			}
		}
		unmapShared(b)
	}
	before := mappings(t)
	for range 100 {
		fd, b, err := sharedMemory(sharedFrom + 1)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		unmapShared(b)
	}
	if after := mappings(t); after > before+10 {
		t.Errorf("%d parts of the address space in use, before %d", after, before)
	}
}

func mappings(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte{'\n'})
}
