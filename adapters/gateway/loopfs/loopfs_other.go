//go:build !linux

package loopfs

import (
	"context"
	"errors"
)

// Make needs Linux.
func Make(context.Context, string, int, int64) error { return cannot(errors.ErrUnsupported) }

// Grow needs Linux.
func Grow(context.Context, string, int64) error { return cannot(errors.ErrUnsupported) }

// Look needs Linux.
func Look(string) (Room, error) { return Room{}, cannot(errors.ErrUnsupported) }

// Mount needs Linux.
func Mount(string) (fd int, err error) { return -1, cannot(errors.ErrUnsupported) }
