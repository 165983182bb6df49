package agent

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
)

// A full machine refuses for now; what is wrong for a moment only has the
// platform ask again.
func TestForNow(t *testing.T) {
	t.Parallel()
	full := &os.PathError{Op: "mkdir", Path: "/x", Err: syscall.ENOSPC}
	for _, x := range []struct {
		name  string
		err   error
		later bool
	}{
		{"nothing is wrong", nil, false},
		{"the disk is full", full, true},
		{"below what the sandbox says of it", fault.Wrap(fault.Unavailable, fmt.Errorf("folder of the run: %w", full), "the run cannot be started"), true},
		{"the quota of the disk is", &os.PathError{Op: "write", Path: "/x", Err: syscall.EDQUOT}, true},
		{"no memory", fmt.Errorf("fork: %w", syscall.ENOMEM), true},
		{"all users are taken", fault.New(fault.Exhausted, "all 5 user ids are taken by running runs"), true},
		{"accelerators are not free yet", fault.New(fault.Unavailable, "fewer than 2 gpu of one kind are free at present"), false},
		{"something else", errors.New("strange"), false},
	} {
		if why, later := forNow(x.err); later != x.later || later != (why != "") {
			t.Errorf("%s: %q, %v, want %v", x.name, why, later, x.later)
		}
	}
}
