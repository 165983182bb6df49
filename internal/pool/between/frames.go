//go:build linux

package between

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// What a worker and its node say to each other: a byte, and a word. That is a
// duration in nanoseconds, or how many bytes of text follow.
const (
	Want      = 'W' // worker: there is work
	Done      = 'R' // worker: the device is given back, after so long
	More      = 'M' // worker: the same, and there is more work
	Granted   = 'G' // node: the device is the task's for so long
	Yield     = 'Y' // node: another wants it
	FrameSize = 9

	Move   = 'V' // node: move to the worker at the other end of the connection that comes along; text: session and address
	Ready  = 'P' // worker: the other has all, and the session is stopped
	Failed = 'F' // worker: it does not move; text: why
	Commit = 'C' // node: it is the other's now
	Abort  = 'X' // node: it is not
	Moved  = 'D' // worker: it has moved, and was stopped so long
	Attach = 'A' // node: the program has followed, its connection comes along; text: how many messages it sent elsewhere

	SaysSecret   = 'S' // node, first: the task's token; text: that, and the hello of a connection that is to be encrypted
	MoveSealed   = 'v' // node: Move, over a connection that is to be encrypted; its hello comes first
	AttachSealed = 'a' // node: Attach, so
	Refused      = 'B' // worker: the connection of a program that followed is not used; text: why

	Dials      = 'L' // worker: connect to another worker of the program's; [Dial], in words
	Lane       = 'J' // node: the connection to it, or none if none comes along; text: the lane's number
	LaneSealed = 'j' // node: the same, one that is to be encrypted; its hello comes first

	Room  = 'N' // worker: so many bytes are needed on the device, which has not as many left
	Space = 'K' // node: they are there now; or, if the word is 0, nobody can give them
	In    = 'I' // worker: what was to be put there is, which took so long
	Evict = 'E' // node: another needs the memory: take all off the device
	Away  = 'Z' // node, before Granted: others had the device since the task last had it, and all together have more memory than it has
	Out   = 'O' // worker: it was taken off
)

// Put writes what is said about turns.
func Put(what byte, d time.Duration) []byte {
	return binary.LittleEndian.AppendUint64([]byte{what}, uint64(d))
}

// Frame is what was said.
type Frame struct {
	What byte
	Time time.Duration
	Text []byte
	Conn net.Conn // that came along, or nil
}

// PutText writes what is said with a text.
func PutText(what byte, text []byte) []byte {
	return append(Put(what, time.Duration(len(text))), text...)
}

// Hello takes what comes first in the text of a frame whose connection is to be
// encrypted; none: it is not.
func (f *Frame) Hello(sealed byte) []byte {
	if f.What != sealed {
		return nil
	}
	n := min(wire.MACSize, len(f.Text))
	hello := f.Text[:n:n]
	f.Text = f.Text[n:]
	return hello
}

const MaxText = 8 << 10

// brings is with what a connection may come along.
var brings = []byte{Move, MoveSealed, Attach, AttachSealed, Lane, LaneSealed}

// Read reads what was said.
func Read(r net.Conn) (f Frame, err error) {
	defer func() {
		if err != nil || !slices.Contains(brings, f.What) {
			f.drop()
		}
	}()
	b := make([]byte, FrameSize)
	if err := f.read(r, b, true); err != nil {
		return f, err
	}
	f.What = b[0]
	n := binary.LittleEndian.Uint64(b[1:])
	switch f.What {
	case Dials:
		return f, f.readInWords(r, n)
	case Move, Failed, Attach, SaysSecret, MoveSealed, AttachSealed, Refused, Lane, LaneSealed:
		if n > MaxText {
			return f, fmt.Errorf("a text of %d bytes", n)
		}
		f.Text = make([]byte, n)
		return f, f.read(r, f.Text, false)
	}
	f.Time = time.Duration(n)
	return f, nil
}

// PutInWords writes what is said with a text as frames without one, so that a node of
// before, which does not know what is said, passes over it.
func PutInWords(what byte, text []byte) []byte {
	b := Put(what, time.Duration(len(text)))
	for len(text) > 0 {
		var word [8]byte
		n := copy(word[:], text)
		b, text = append(append(b, what), word[:]...), text[n:]
	}
	return b
}

// readInWords reads the text, of n bytes, that PutInWords wrote.
func (f *Frame) readInWords(r net.Conn, n uint64) error {
	if n > MaxText {
		return fmt.Errorf("a text of %d bytes", n)
	}
	b := make([]byte, (n+7)/8*FrameSize)
	if err := f.read(r, b, false); err != nil {
		return err
	}
	for ; len(b) > 0; b = b[FrameSize:] {
		if b[0] != f.What {
			return fmt.Errorf("%q within what is said by %q", b[0], f.What)
		}
		f.Text = append(f.Text, b[1:FrameSize]...)
	}
	f.Text = f.Text[:n]
	return nil
}

// restTime is more than enough for that.
const restTime = time.Second

// read fills b, and keeps a connection that comes along. A deadline is for what begins a frame: the
// rest has been written with that.
func (f *Frame) read(r net.Conn, b []byte, begins bool) error {
	u, ok := r.(*net.UnixConn)
	if !ok {
		_, err := io.ReadFull(r, b)
		return err
	}
	oob := make([]byte, unix.CmsgSpace(4))
	for len(b) > 0 {
		n, k, _, _, err := u.ReadMsgUnix(b, oob)
		if !begins && errors.Is(err, os.ErrDeadlineExceeded) {
			begins = true
			_ = r.SetReadDeadline(time.Now().Add(restTime))
			continue
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			return err
		}
		b = b[n:]
		if k == 0 {
			continue
		}
		if err := f.take(oob[:k]); err != nil {
			return err
		}
	}
	return nil
}

// take keeps a connection that came. What else came is closed: who says something may send
// along what it likes, and as much as it likes.
func (f *Frame) take(oob []byte) (err error) {
	all, _ := unix.ParseSocketControlMessage(oob) // the kernel's, which is whole
	for i := range all {
		fds, _ := unix.ParseUnixRights(&all[i]) // of something else there are none
		for _, fd := range fds {
			file := os.NewFile(uintptr(fd), "connection")
			if len(fds) == 1 && f.Conn == nil {
				f.Conn, err = net.FileConn(file)
			}
			_ = file.Close()
		}
	}
	return err
}

// drop closes a connection that came along.
func (f *Frame) drop() {
	if f.Conn != nil {
		_ = f.Conn.Close()
		f.Conn = nil
	}
}

// SwapTurn is how many times longer a turn is at least than it took to put its
// memory on the device.
const SwapTurn = 4
