//go:build linux

package between

import (
	"bytes"
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// FuzzTurns reads what workers and nodes say to each other: a kernel may be code of a worker's
// process, and say what it likes to the node. What is read is what was written.
func FuzzTurns(f *testing.F) {
	dial := Dial{Key: bytes.Repeat([]byte{7}, wire.MACSize), Task: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Slot: 3, At: "tcp:10.0.0.5:7420"}
	f.Add(PutInWords(Dials, dial.Text()))
	f.Add(PutInWords(Dials, dial.Text())[:20])
	f.Add(PutInWords(Dials, nil))
	f.Add(append(PutInWords(Dials, dial.Text()), PutText(Lane, dial.Lane[:])...))
	f.Add(Put(Dials, MaxText+1))
	f.Add(PutText(Failed, []byte("why")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4<<10 {
			return // it would take long
		}
		for rest := b; ; {
			frame, err := Read(reader(t, rest))
			if err != nil {
				return
			}
			put := Put(frame.What, frame.Time)
			switch {
			case frame.What == Dials:
				put = PutInWords(frame.What, frame.Text)
				if d, ok := ReadDial(frame.Text); ok && !bytes.Equal(d.Text(), frame.Text) {
					t.Fatalf("%q is read as %+v", frame.Text, d)
				}
			case frame.Text != nil:
				put = PutText(frame.What, frame.Text)
			}
			if again, err := Read(reader(t, put)); err != nil || again.What != frame.What || again.Time != frame.Time || !bytes.Equal(again.Text, frame.Text) {
				t.Fatalf("%+v is written as %q, and read as %+v: %v", frame, put, again, err)
			}
			if len(put) > len(rest) {
				t.Fatalf("of %d bytes %d were read", len(rest), len(put))
			}
			rest = rest[len(put):]
		}
	})
}

// reader is a connection from which b can be read.
func reader(t *testing.T, b []byte) net.Conn {
	near, far := net.Pipe()
	go func() { _, _ = far.Write(b); _ = far.Close() }()
	t.Cleanup(func() { _ = near.Close() })
	return near
}

// TestRead: a deadline, by which a node that is upgraded stops hearing a worker, is for what
// begins a frame. What it has begun to say is read to its end, but not waited for for long.
func TestRead(t *testing.T) {
	t.Parallel()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "end")
		if ends[i], err = net.FileConn(file); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		defer ends[i].Close()
	}
	near, far := ends[0], ends[1].(*net.UnixConn)
	raw, err := far.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	told := PutText(Failed, []byte("why it does not move"))
	read := make(chan error, 1)
	var f Frame
	begin := func() {
		go func() { var err error; f, err = Read(near); read <- err }()
		if _, err := far.Write(told[:FrameSize]); err != nil {
			t.Fatal(err)
		}
		for unread := 1; unread > 0; runtime.Gosched() {
			select {
			case err := <-read:
				t.Fatalf("it reads %+v, %v", f, err)
			default:
			}
			if e := raw.Control(func(fd uintptr) { unread, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); e != nil || err != nil {
				t.Fatal(e, err)
			}
		}
		_ = near.SetReadDeadline(time.Unix(1, 0))
	}
	begin()
	if _, err := far.Write(told[FrameSize:]); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil || string(f.Text) != "why it does not move" {
		t.Errorf("%+v, %v", f, err)
	}
	_ = near.SetReadDeadline(time.Time{})
	begin()
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("what does not come: %v", err)
	}
}
