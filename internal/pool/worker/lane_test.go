//go:build linux

package worker

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestLaneAsks: a connection that a worker is given for a lane asks the other machine for a sign
// of life soon: one that is cut off says nothing, and who waits for it sends nothing.
func TestLaneAsks(t *testing.T) {
	t.Parallel()
	given, _ := ends(t)
	s := session(silent{})
	id := laneID{1}
	l := s.lanes.add(id, &lane{})
	s.laneCame(given, nil, id[:])
	if l.connected() == nil {
		t.Fatal("there is no lane")
	}
	raw, err := l.raw.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, option := range map[string]int{"after": unix.TCP_KEEPIDLE, "each": unix.TCP_KEEPINTVL} {
		var got int
		if e := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option) }); e != nil || err != nil || got != 1 {
			t.Errorf("it asks %s %d s: %v, %v", name, got, e, err)
		}
	}
}
