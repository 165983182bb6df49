//go:build linux

package between

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// Dial is what a worker asks its node for: a connection to another worker of its program.
type Dial struct {
	Lane [wire.LaneSize]byte
	Key  []byte
	Task string // that worker's,
	Slot uint64 // and which of its workers it is
	At   string // its node
}

func (d Dial) Text() []byte {
	b := append(append(d.Lane[:], d.Key...), d.Task...)
	return append(binary.LittleEndian.AppendUint64(b, d.Slot), d.At...)
}

// ReadDial reads what was said with [Dials].
func ReadDial(text []byte) (d Dial, ok bool) {
	const task = wire.LaneSize + wire.MACSize
	const slot = task + wire.TaskIDSize
	const at = slot + 8
	if len(text) <= at {
		return d, false
	}
	copy(d.Lane[:], text)
	d.Key, d.Task, d.Slot, d.At = text[wire.LaneSize:task:task], string(text[task:slot]), binary.LittleEndian.Uint64(text[slot:]), string(text[at:])
	return d, true
}

// LaneKey is what who comes for a lane proves: the program makes it of the token of
// the worker's task there.
func LaneKey(token, id []byte) []byte {
	h := hmac.New(sha256.New, token)
	h.Write([]byte("yunhe pool lane"))
	h.Write(id)
	return h.Sum(nil)
}
