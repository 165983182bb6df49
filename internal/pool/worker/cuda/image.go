//go:build linux

package cuda

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
)

// Drivers before CUDA 12.4 do not tell how large a kernel's arguments are; its
// image does, in a section for each: entries of a byte that says how long it is,
// one that says what it is, a size, and values.
const (
	infoPrefix = ".nv.info."
	infoSized  = 4    // a form: the size is that of the value, which follows
	infoParam  = 0x17 // what is said: number, ordinal, offset, and bits of which the upper 14 are the size
	paramSize  = 12
	fatMagic   = 0xBA55ED50
	fatHeader  = 16
	fatEntry   = 64
	fatCubin   = 2
)

// layoutsOf reads the kernels' arguments from an image: a cubin, or a fat binary
// with cubins that are not packed. What is not one has none.
func layoutsOf(image []byte) map[string]*layout {
	all := map[string]*layout{}
	if len(image) >= fatHeader && binary.LittleEndian.Uint32(image) == fatMagic {
		rest := image[min(int(binary.LittleEndian.Uint16(image[6:])), len(image)):]
		for len(rest) >= fatEntry {
			head, size := uint64(binary.LittleEndian.Uint32(rest[4:])), binary.LittleEndian.Uint64(rest[8:])
			if head < fatEntry || head > uint64(len(rest)) || size > uint64(len(rest))-head {
				break
			}
			if binary.LittleEndian.Uint16(rest) == fatCubin {
				readCubin(rest[head:head+size], all)
			}
			rest = rest[head+size:]
		}
		return all
	}
	readCubin(image, all)
	return all
}

// readCubin adds the kernels of a cubin.
func readCubin(image []byte, all map[string]*layout) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return
	}
	for _, section := range f.Sections {
		name, is := strings.CutPrefix(section.Name, infoPrefix)
		if !is || section.Size > uint64(len(image)) || section.Flags&elf.SHF_COMPRESSED != 0 {
			continue
		}
		text, err := section.Data()
		if err != nil {
			continue
		}
		if l := readInfo(text); l != nil {
			all[name] = l
		}
	}
}

// readInfo reads what a section says of arguments; nil: it cannot be.
func readInfo(text []byte) *layout {
	type param struct{ ordinal, offset, size uint64 }
	var params []param
	for len(text) >= 4 {
		form, what, size := text[0], text[1], int(binary.LittleEndian.Uint16(text[2:]))
		text = text[4:]
		if form != infoSized {
			continue // its value is in what was the size
		}
		if size > len(text) {
			return nil
		}
		if what == infoParam {
			if size < paramSize {
				return nil
			}
			params = append(params, param{uint64(binary.LittleEndian.Uint16(text[4:])), uint64(binary.LittleEndian.Uint16(text[6:])), uint64(binary.LittleEndian.Uint32(text[8:]) >> 18)})
		}
		text = text[size:]
	}
	slices.SortStableFunc(params, func(a, b param) int { return int(a.ordinal) - int(b.ordinal) })
	l := &layout{}
	for i, p := range params {
		if p.ordinal != uint64(i) || !l.add(p.offset, p.size) {
			return nil
		}
	}
	return l
}
