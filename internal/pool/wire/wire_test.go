package wire_test

import (
	"encoding/binary"
	"testing"

	"yunhe.dev/yunhe/internal/pool/wire"
)

func header(size uint64, op uint16) []byte {
	b := binary.LittleEndian.AppendUint64(nil, size)
	return append(binary.LittleEndian.AppendUint16(b, op), 1, 0, 9, 0, 0, 0)
}

func TestParseHeader(t *testing.T) {
	t.Parallel()
	h, err := wire.ParseHeader(header(40, uint16(wire.OpFinish)), 100)
	if err != nil || h != (wire.Header{Size: 40, Op: wire.OpFinish, Flags: wire.FlagAnswer, Call: 9}) {
		t.Errorf("got %+v, %v", h, err)
	}
	for name, b := range map[string][]byte{"too small": header(15, 1), "too large": header(101, 1), "no such call": header(40, 9999)} {
		if _, err := wire.ParseHeader(b, 100); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for op, want := range map[uint16]bool{uint16(wire.OpFinish): false, uint16(wire.CUDAEnds): true, 65535: true} {
		if _, err := wire.ParseCUDAHeader(header(40, op), 100); (err == nil) != want {
			t.Errorf("of CUDA, the call %d: %v", op, err)
		}
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	b := binary.LittleEndian.AppendUint64(nil, 3)
	b = append(b, 'a', 'b', 'c', 0, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, 7)
	body := wire.NewBody(b)
	if s, w := body.Bytes(), body.Word(); string(s) != "abc" || w != 7 || body.Err() {
		t.Errorf("got %q, %d, %v", s, w, body.Err())
	}
	if w := body.Word(); w != 0 || !body.Err() {
		t.Errorf("past the end: %d, %v", w, body.Err())
	}
	body = wire.NewBody(binary.LittleEndian.AppendUint64(nil, 1<<40))
	if n := body.Count(8); n != 0 || !body.Err() {
		t.Errorf("a count of more than there is: %d, %v", n, body.Err())
	}
}

func FuzzBody(f *testing.F) {
	f.Add(header(40, 1), []byte{0, 1, 2, 3})
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c'}, []byte{2, 3, 2})
	f.Fuzz(func(t *testing.T, b, how []byte) {
		if len(b) >= wire.HeaderSize {
			if h, err := wire.ParseHeader(b, 1<<20); err == nil && h.Size > 1<<20 {
				t.Fatalf("a size of %d is accepted", h.Size)
			}
		}
		body, took := wire.NewBody(b), 0
		for _, x := range how {
			switch x % 4 {
			case 0:
				body.Word()
			case 1:
				took += len(body.Bytes())
			case 2:
				if n := body.Count(8); n*8 > len(b) {
					t.Fatalf("%d words in %d bytes", n, len(b))
				}
			case 3:
				body.Words(make([]uint64, 3))
			}
		}
		if took > len(b) {
			t.Fatalf("%d bytes of %d", took, len(b))
		}
	})
}
