//go:build linux

package worker

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair is a line and the other end of its connection.
func pair(t testing.TB) (*Line, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	l, err := NewLine(ends[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); _ = ends[1].Close() })
	return l, ends[1].(*net.UnixConn)
}

func TestLine(t *testing.T) {
	t.Parallel()
	l, other := pair(t)
	much := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	wrote := make(chan error, 1)
	go func() { wrote <- l.write([]byte("head"), much, -1) }()
	got := make([]byte, 4+len(much))
	if _, err := io.ReadFull(other, got); err != nil || !bytes.Equal(got[4:], much) || string(got[:4]) != "head" {
		t.Errorf("what was written does not come: %v", err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}

	// A descriptor comes along with the first byte.
	if err := l.write([]byte("x"), nil, l.alarm); err != nil {
		t.Fatal(err)
	}
	oob := make([]byte, unix.CmsgSpace(4))
	if n, k, _, _, err := other.ReadMsgUnix(make([]byte, 8), oob); n != 1 || k == 0 || err != nil {
		t.Errorf("%d bytes and %d of control, %v", n, k, err)
	} else if all, err := unix.ParseSocketControlMessage(oob[:k]); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	} else if got, err := unix.ParseUnixRights(&all[0]); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	} else {
		_ = unix.Close(got[0])
	}

	// Who waits is woken, at once and again until that is undone; nothing is lost.
	type read struct {
		text string
		err  error
	}
	reads := make(chan read)
	next := func() {
		b := make([]byte, 16)
		n, err := l.Read(b)
		reads <- read{string(b[:n]), err}
	}
	go next()
	time.AfterFunc(5*keep, func() { _ = l.SetReadDeadline(time.Unix(1, 0)) }) // it waits without its processor by then
	if r := <-reads; !errors.Is(r.err, os.ErrDeadlineExceeded) {
		t.Errorf("woken: %+v", r)
	}
	if _, err := other.Write([]byte("kept")); err != nil {
		t.Fatal(err)
	}
	go next()
	if r := <-reads; !errors.Is(r.err, os.ErrDeadlineExceeded) {
		t.Errorf("while the alarm rings: %+v", r)
	}
	if err := l.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kept", "late"} {
		go next()
		if want == "late" {
			time.AfterFunc(5*keep, func() { _, _ = other.Write([]byte(want)) })
		}
		if r := <-reads; r.err != nil || r.text != want {
			t.Errorf("%+v, want %q", r, want)
		}
	}

	// Closing ends who waits, here and there.
	go next()
	time.AfterFunc(5*keep, func() { _ = l.Close() })
	if r := <-reads; r.err != io.EOF {
		t.Errorf("closed: %+v", r)
	}
	if _, err := other.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("closed, at the other end: %v", err)
	}
}
