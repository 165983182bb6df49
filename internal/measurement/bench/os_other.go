//go:build !linux

package bench

import (
	"os"
	"time"
)

// uncached returns f itself: ways past the page cache are Linux's here.
func uncached(f *os.File, _ bool) (*os.File, func(), error) { return f, func() {}, nil }

// busy is the time of the clock on the wall.
func busy() time.Duration { return wall() }

// Medium does not know here.
func Medium(string) (name string, inMemory bool) { return "", false }

func room(string) int64 { return 0 }
