package wire

import (
	"encoding/binary"
	"fmt"
)

// MoveVersion is of the form in which a program moves between workers. Both
// nodes have the same, or it does not move. A worker that began before its node
// became another program sends the form of then: a form has all frames of those
// before, so that who receives it understands.
const MoveVersion = 4

// Frames are what a worker sends of a program that moves: a header of 16 bytes
// (size and kind) and words. From FrameGo on the connection carries messages.
const (
	FrameCall      = 1 // a call, and the parameters it was made with
	FrameProgram   = 2 // number, context, what of, kind of binary, built with options, how; text, options, binary
	FrameData      = 3 // number, offset; bytes of a memory object
	FrameEvent     = 4 // number, status; times
	FrameStatus    = 5 // number of a queue, what a call that nobody waited for failed with
	FrameFinal     = 6 // messages taken, messages sent: an answer is waited for
	FrameGo        = 7
	FrameAnswer    = 8  // to the worker that sends: a word that is 0 if all went well; text
	FrameTold      = 9  // number of a program; for each answer of the driver: of what, device or argument, what, status; kernel, data
	FrameHeld      = 10 // call, flags and number of a message whose command waits for events that the program has not set; its parameters
	FrameConstants = 11 // number of a program, which may be yet to come; for each of its constants its number and value
)

// ParseFrame reads a frame's header.
func ParseFrame(b []byte, limit uint64) (size int, kind uint64, err error) {
	n, kind := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	if n > limit || kind < FrameCall || kind > FrameConstants {
		return 0, 0, fmt.Errorf("a frame of kind %d with %d bytes", kind, n)
	}
	return int(n), kind, nil
}

// AppendFrame adds a frame's header for n bytes.
func AppendFrame(b []byte, n int, kind uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, uint64(n)), kind)
}

// AppendBytes adds a counted string of bytes and its padding, as Body.Bytes reads it.
func AppendBytes(b, s []byte) []byte {
	b = append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
	return append(b, make([]byte, -len(s)&7)...)
}
