package main

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"testing"
)

func TestRoomToCollect(t *testing.T) {
	growth, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		debug.SetGCPercent(growth)
		debug.SetMemoryLimit(limit)
	})
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Setenv(name, "") // set back in the end
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	roomToCollect(slog.New(slog.DiscardHandler))
	if got := debug.SetGCPercent(100); got != heapGrowth {
		t.Errorf("memory is collected when it has grown by %d %%, want %d", got, heapGrowth)
	}
	if got := debug.SetMemoryLimit(math.MaxInt64); got <= 0 || got == math.MaxInt64 {
		t.Errorf("memory is bounded at %d bytes, want a part of the machine's", got)
	}
	t.Setenv("GOGC", "100")
	t.Setenv("GOMEMLIMIT", "4GiB")
	roomToCollect(slog.New(slog.DiscardHandler))
	if growth, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1); growth != 100 || limit != math.MaxInt64 {
		t.Errorf("with variables of Go's set, growth was made %d and the bound %d", growth, limit)
	}
}
