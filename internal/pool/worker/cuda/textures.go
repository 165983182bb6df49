//go:build linux

package cuda

import (
	"encoding/binary"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// texture is a texture or a surface. Kernels are given its number, which is the driver's.
type texture struct {
	surface bool
	number  uint64
}

// Kinds of resources that a texture or surface is of; others are memory, at an address.
const (
	ofArray  = 0
	ofMipmap = 1
)

// makeTexture makes a texture or a surface. In the description of its resource is the
// number of an array, which the driver knows by its own.
func (t *thread) makeTexture(k *call) int32 {
	of := in(k, 1, 144)
	kind, array := wire.CUDAArray, true
	switch binary.LittleEndian.Uint32(of) {
	case ofArray:
	case ofMipmap:
		kind = wire.CUDAMipmap
	default:
		array = false
	}
	if array {
		t.s.mu.Lock()
		o, e := t.s.get(binary.LittleEndian.Uint64(of[8:]), kind)
		t.s.mu.Unlock()
		if e != success {
			return e
		}
		binary.LittleEndian.PutUint64(of[8:], uint64(o.ptr))
	}
	r := k.do()
	if r == success {
		t.s.mu.Lock()
		t.s.textures[texture{t.m.Op == wire.CUDASurfObjectCreate, *k.out(0)}] = true
		t.s.mu.Unlock()
	}
	return r
}

// endTexture ends one that there is: the driver may take a number at its word.
func (t *thread) endTexture(k *call) int32 {
	x := texture{t.m.Op == wire.CUDASurfObjectDestroy, uint64(k.args[0])}
	t.s.mu.Lock()
	there := t.s.textures[x]
	delete(t.s.textures, x)
	t.s.mu.Unlock()
	if !there {
		return invalidValue
	}
	return k.do()
}
