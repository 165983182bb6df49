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

// TestConnectionsAlong: who says something to a node may send open files along, as a worker whose
// kernels are its own code could, and leaves none open there.
func TestConnectionsAlong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		frame  []byte
		files  int // sockets, with one message
		more   int // messages of a byte before the rest, with as many
		pipes  bool
		kept   bool
		failed bool
	}{
		"a connection":                 {frame: PutText(Lane, []byte("its number")), files: 1, kept: true},
		"none is wanted":               {frame: Put(Want, 0), files: 1},
		"two":                          {frame: PutText(Lane, []byte("its number")), files: 2},
		"two for nothing":              {frame: Put(Want, 0), files: 2},
		"one after the other":          {frame: PutText(Lane, []byte("its number")), files: 1, more: 3, kept: true},
		"in the middle of a text":      {frame: PutText(Lane, []byte("its number")), files: 1, more: FrameSize + 4, kept: true},
		"no connection":                {frame: Put(Want, 0), files: 1, pipes: true, failed: true},
		"no connections":               {frame: Put(Want, 0), files: 2, pipes: true},
		"with a text that is too long": {frame: Put(Lane, MaxText+1), files: 1, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(pair[1])
			file := os.NewFile(uintptr(pair[0]), "end")
			near, err := net.FileConn(file)
			_ = file.Close()
			if err != nil {
				t.Fatal(err)
			}
			defer near.Close()
			var ends []int // of what is sent along: the other end, which ends when nobody has it open
			send := func(b []byte) {
				var given []int
				for range c.files {
					two := make([]int, 2)
					if c.pipes {
						err = unix.Pipe2(two, unix.O_CLOEXEC)
					} else {
						var s [2]int
						s, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
						two = s[:]
					}
					if err != nil {
						t.Fatal(err)
					}
					ends, given = append(ends, two[0]), append(given, two[1])
				}
				if err := unix.Sendmsg(pair[1], b, unix.UnixRights(given...), nil, 0); err != nil {
					t.Fatal(err)
				}
				for _, fd := range given {
					_ = unix.Close(fd)
				}
			}
			for i := range c.more {
				send(c.frame[i : i+1])
			}
			send(c.frame[c.more:])
			f, err := Read(near)
			if (err != nil) != c.failed || (f.Conn != nil) != c.kept {
				t.Errorf("%+v, %v", f, err)
			}
			open := 0
			for _, fd := range ends {
				p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
				if n, err := unix.Poll(p, 0); err != nil || n == 0 {
					open++
				}
				_ = unix.Close(fd)
			}
			if c.kept {
				open--
				_ = f.Conn.Close()
			}
			if open != 0 {
				t.Errorf("%d of %d are still open", open, len(ends))
			}
			runtime.KeepAlive(f) // a connection that is forgotten is closed in the end, too
		})
	}
}
