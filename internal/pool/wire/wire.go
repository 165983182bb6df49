// Package wire is the form of what the client library of the accelerator pool
// (shim/) and a worker say to each other. docs/pool-design.md describes it for those
// who write another client.
//
// A message is a header of 16 bytes and words of eight, little-endian. What a
// client sends is not trusted: reading past the end of a message gives zeros
// and Err, never a panic, and no count in a message makes more be allocated
// than the message has bytes.
package wire

import (
	"encoding/binary"
	"fmt"
)

// Sizes of headers in bytes.
const (
	HeaderSize = 16 // size, op, flags, call
	AnswerSize = 40 // the same, a status and two words
)

// What a connection begins with: the node's greeting with a challenge of 32
// bytes, then the client's, a task's ID and HMAC-SHA256(token, challenge, ID).
const (
	Greeting      = "YHPOOL1\n"
	DataGreeting  = "YHDATA1\n"
	MoveGreeting  = "YHMOVE1\n" // a worker that moves a program here; the number of its session follows the ID
	BackGreeting  = "YHBACK1\n" // a program that was moved here; its session and how many messages it sent elsewhere follow the ID
	LaneGreeting  = "YHLANE1\n" // another worker of the program's; the slot of the one here and the lane's number follow the ID
	CUDAGreeting  = "YHCUDA1\n" // a program of CUDA on the node's machine
	ControlHello  = "YHCTRL1\n"
	TLSGreeting   = "YHTLS_1\n" // one of these follows, and then TLS once the node has said so (OpEncrypt)
	ChallengeSize = 32
	TaskIDSize    = 26
	MACSize       = 32
	SessionSize   = 16
	LaneSize      = 16
)

// Flags of messages from clients.
const (
	FlagAnswer  = 1 // an answer is waited for
	FlagThreads = 2 // the program calls from several threads
)

// Flags of messages to clients.
const (
	FlagFD   = 1 // a descriptor came along
	FlagRing = 2 // in a worker's first: the program may ask for a ring,
	FlagRDMA = 4 // or to go on over RDMA
	FlagMaps = 8 // or, as it was moved here, for memory that both map (OpShare)

	FlagLater = 16 // the worker knows OpSubGroupInfo, OpSpecialize and OpTimer, and folders of header files that no option names
	FlagLanes = 32 // the worker knows OpLane, OpPush and OpPull
	FlagPosts = 64 // the worker knows writes that block and are not waited for, of programs with several threads, too
)

// What a program says of paths: the first word of the call path.
const (
	PathStay = 0 // it does not use what it asked for
	PathUse  = 1 // what follows comes over what it asked for; the answer is the last that does not
	PathRDMA = 3 // it asks for RDMA: the first word is the port, the data what it is to say there
	PathRing = 5 // it asks for a ring: its memory comes along, and the first word is its size (2 and 4 were of other forms)
)

// What a program says of lanes, on which its workers at several nodes send each other
// memory: the first word of the call lane. The lane's number follows.
const (
	LaneAwait = 0 // another worker will come; the answer's first word is this one's slot
	LaneDial  = 1 // go to another; bytes of the key (between.LaneKey) and its task's ID, a word for its slot, bytes of its node's address
	LaneDrop  = 2 // it is used no more
)

// LanePiece is how many bytes a push or a pull moves at most.
const LanePiece = 4 << 20

// Kinds of messages to clients.
const (
	OpAnswer  = 0
	OpData    = 1 // of a read that was not waited for; the first word is its number
	OpRefused = 2 // the connection is refused; the text says why
	OpMoved   = 3 // the program is elsewhere: the words are its session, the text is the address
	OpEnd     = 4 // what follows comes over the connection to where the program was moved
	OpPrinted = 5 // kernels have printed the text
	OpEncrypt = 6 // what follows is TLS
)

// OpBye is what a worker that passes messages on says when the program has
// ended: it is the number of no call.
const OpBye Op = 0xFFFF

// Op is the number of a call.
type Op uint16

func (o Op) String() string {
	for _, list := range [][]string{ops, cudaOps} {
		if s := o.of(list); s != "" {
			return s
		}
	}
	return fmt.Sprintf("op %d", uint16(o))
}

// of is the op's name in a list; "": it is not there.
func (o Op) of(list []string) string {
	if int(o) < len(list) {
		return list[o]
	}
	return ""
}

// CallOf is the call that a worker makes by its parameters; nil: it is not one.
func CallOf(o Op) *Call {
	if int(o) < len(Calls) && Calls[o].Name != "" {
		return &Calls[o]
	}
	return nil
}

// Kind is how a parameter is on the wire; see shim/opencl.table.
type Kind uint8

// The kinds.
const (
	KindQueue Kind = iota + 1
	KindMem
	KindKernel
	KindEvent
	KindU32
	KindI32
	KindFlags
	KindSize
	KindSize3
	KindOsize3
	KindWaits
	KindMems
	KindPattern
	KindColor
	KindOut
)

// Call is a call of OpenCL that a worker makes by its parameters.
type Call struct {
	Name   string
	Work   bool // work for the device, which waits for the task's turn
	Params []Kind
}

// Form is how a parameter of a call of CUDA is on the wire; see shim/cuda.table.
type Form uint8

// The forms.
const (
	FormWord      Form = iota + 1
	FormDevice         // nothing
	FormHandle         // the number of an object
	FormText           // bytes with a 0 at the end
	FormIn             // so many bytes
	FormOutWord        // a word of the answer
	FormOutHandle      // the same, the number of an object
	FormOut            // so many bytes of the answer
)

// Object is a kind of CUDA's objects.
type Object uint8

// CUDAParam is a parameter of a call of CUDA.
type CUDAParam struct {
	Form   Form
	Object Object
	Bytes  int
}

// CUDACall is a call of CUDA that a worker makes by its parameters.
type CUDACall struct {
	Name   string
	Work   bool // work for the device, which waits for the task's turn
	Blocks bool // it may wait for the device
	Params []CUDAParam
}

// Header of a message from a client.
type Header struct {
	Size  uint64 // of the message, header included
	Op    Op
	Flags uint16
	Call  uint32
}

// ParseHeader reads a header. It refuses what is not a message: a size below
// the header's or above limit, or a call there is not.
func ParseHeader(b []byte, limit uint64) (Header, error) {
	return parseHeader(b, limit, func(o Op) bool { return o.of(ops) != "" })
}

// ParseCUDAHeader is [ParseHeader] for programs of CUDA. A number of CUDA's that no
// call has may be that of a later version's: it is refused like a call, by its answer.
func ParseCUDAHeader(b []byte, limit uint64) (Header, error) {
	return parseHeader(b, limit, func(o Op) bool { return o >= CUDABegin })
}

func parseHeader(b []byte, limit uint64, known func(Op) bool) (Header, error) {
	h := Header{binary.LittleEndian.Uint64(b), Op(binary.LittleEndian.Uint16(b[8:])), binary.LittleEndian.Uint16(b[10:]), binary.LittleEndian.Uint32(b[12:])}
	if !known(h.Op) {
		return h, fmt.Errorf("there is no call with the number %d", uint16(h.Op))
	}
	if h.Size < HeaderSize || h.Size > limit {
		return h, fmt.Errorf("%s: a message of %d bytes, want %d to %d", h.Op, h.Size, HeaderSize, limit)
	}
	return h, nil
}

// PutAnswer writes an answer's header: n bytes of data follow it.
func PutAnswer(b []byte, op, flags uint16, call uint32, status int32, a, c uint64, n int) {
	binary.LittleEndian.PutUint64(b, uint64(AnswerSize+n))
	binary.LittleEndian.PutUint16(b[8:], op)
	binary.LittleEndian.PutUint16(b[10:], flags)
	binary.LittleEndian.PutUint32(b[12:], call)
	binary.LittleEndian.PutUint64(b[16:], uint64(int64(status)))
	binary.LittleEndian.PutUint64(b[24:], a)
	binary.LittleEndian.PutUint64(b[32:], c)
}

// Body is what follows a header, read from its beginning.
type Body struct {
	rest []byte
	bad  bool
}

// NewBody reads b, which it does not copy.
func NewBody(b []byte) Body { return Body{rest: b} }

// Err says whether more was read than there is.
func (b *Body) Err() bool { return b.bad }

// Word reads a word.
func (b *Body) Word() uint64 {
	if len(b.rest) < 8 {
		b.bad, b.rest = true, nil
		return 0
	}
	w := binary.LittleEndian.Uint64(b.rest)
	b.rest = b.rest[8:]
	return w
}

// Words reads n words to a slice of the caller's.
func (b *Body) Words(to []uint64) {
	for i := range to {
		to[i] = b.Word()
	}
}

// Rest is what was not read yet. It is a part of the message.
func (b *Body) Rest() []byte { return b.rest }

// Count reads a word that counts what follows, each of size bytes or more.
func (b *Body) Count(size int) int {
	n := b.Word()
	if n > uint64(len(b.rest)/size) {
		b.bad, b.rest = true, nil
		return 0
	}
	return int(n)
}

// Bytes reads a counted string of bytes and its padding. It is a part of the message.
func (b *Body) Bytes() []byte {
	n := b.Count(1)
	s := b.rest[:n:n]
	b.rest = b.rest[min((n+7)/8*8, len(b.rest)):]
	return s
}
