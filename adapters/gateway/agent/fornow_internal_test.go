package agent

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
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

// What was refused stays so: a message about it that took longer does not have it
// run here while it runs elsewhere.
func TestRefusedStays(t *testing.T) {
	t.Parallel()
	a := gatewayOn(t, t.TempDir(), fakeMachine(t))
	t.Cleanup(a.close)
	at := &adapterv1.Attempt{AttemptId: "att_1", Command: "true", ImageId: "host", Resources: map[string]int64{"cpu": 100, "memory": 64 << 20}, Node: "another"}
	first, err := a.startOrRefuse(t.Context(), at)
	if err != nil || first == nil || first.AttemptId != "att_1" || first.Later {
		t.Fatalf("for another machine: %v, %v", first, err)
	}
	at.Node = "" // now it could run
	if again, err := a.startOrRefuse(t.Context(), at); err != nil || again.GetReason() != first.Reason {
		t.Errorf("asked again: %v, %v, want the refusal of before", again, err)
	}
	if _, err := a.sb.Get("att_1"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("what was refused: %v", err)
	}
	at.AttemptId = "att_2"
	if other, err := a.startOrRefuse(t.Context(), at); err != nil || other != nil {
		t.Fatalf("another run: %v, %v", other, err)
	}
	run, err := a.sb.Get("att_2")
	must(t, err)
	<-run.Done()
	for i := range keepRefusals { // the oldest are forgotten
		a.refused.put(&adapterv1.Refusal{AttemptId: fmt.Sprint(i)})
	}
	if a.refused.of("att_1") != nil || a.refused.of("0") == nil || len(a.refused.byID) != keepRefusals {
		t.Errorf("%d refusals are kept", len(a.refused.byID))
	}
}
