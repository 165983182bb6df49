//go:build linux

// Package makers asks the libraries of makers, in processes that package cards starts: one for
// each of [cards.Names].
package makers

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/ebitengine/purego"

	"yunhe.dev/yunhe/internal/pool/cards"
)

// maker is a library that was loaded.
type maker interface {
	open() error
	cards() ([]cards.Card, error)
	// limit sets what a card may draw.
	limit(index int, milliwatts int64) error
}

// makers are the libraries that are known, where they are, and what speaks to them.
var makers = []struct {
	name  string
	files []string
	make  func(library) maker
}{
	{"nvml", []string{"libnvidia-ml.so.1"}, func(l library) maker { return &nvml{library: l} }},
	{"dcmi", []string{"libdcmi.so", "/usr/local/dcmi/libdcmi.so"}, func(l library) maker { return &dcmi{library: l} }},
	{"cndev", []string{"libcndev.so", "/usr/local/neuware/lib64/libcndev.so"}, func(l library) maker { return &cndev{library: l} }},
	{"rocm-smi", []string{"librocm_smi64.so", "librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5", "librocm_smi64.so.2", "librocm_smi64.so.1", "/opt/rocm/lib/librocm_smi64.so", "/opt/hyhal/lib/librocm_smi64.so", "/opt/dtk/lib/librocm_smi64.so"}, func(l library) maker { return &rsmi{library: l} }},
}

type library struct{ handle uintptr }

// bind finds a function of the library; what it has not stays nil.
func (l library) bind(functions map[string]any) {
	for name, f := range functions {
		if at, err := purego.Dlsym(l.handle, name); err == nil {
			purego.RegisterFunc(f, at)
		}
	}
}

var errNoLimit = errors.New("the maker's library sets no limit of power")

// Serve is a driver's process: it loads the library and answers until in ends. In
// folder the library is looked for first; "": where the system looks.
func Serve(name, folder string, in io.Reader, out io.Writer) error {
	i := slices.IndexFunc(makers, func(m struct {
		name  string
		files []string
		make  func(library) maker
	}) bool {
		return m.name == name
	})
	if i < 0 {
		return fmt.Errorf("there is no driver %q", name)
	}
	say := json.NewEncoder(out)
	m, err := load(makers[i].files, folder, makers[i].make)
	switch {
	case err != nil:
		return say.Encode(cards.Answer{Last: true, Error: err.Error()})
	case m == nil:
		return say.Encode(cards.Answer{Last: true, Absent: true})
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var q cards.Request
		var a cards.Answer
		err := json.Unmarshal(lines.Bytes(), &q)
		switch {
		case err != nil:
		case q.Limit != nil:
			err = m.limit(q.Limit.Index, q.Limit.Milliwatts)
		default:
			a.Cards, err = m.cards()
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := say.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

// load opens the first of the files that there is; nil: there is none.
func load(files []string, folder string, with func(library) maker) (maker, error) {
	if folder != "" {
		files = append([]string{filepath.Join(folder, files[0])}, files...)
	}
	for _, f := range files {
		h, err := purego.Dlopen(f, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err != nil {
			continue
		}
		m := with(library{h})
		return m, m.open()
	}
	return nil, nil
}

// told keeps what a call said, if it did.
func told[T int32 | uint32 | uint64](code int32, v *T, times int64) *int64 {
	if code != 0 {
		return nil
	}
	return new(int64(*v) * times)
}

// text is a C string in a buffer.
func text(b []byte) string {
	if i := slices.Index(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
