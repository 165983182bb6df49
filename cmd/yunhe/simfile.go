package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/sim"
)

// maxTrace is how much a packed trace may come to: far above what is simulated.
const maxTrace = 4 << 30

// open calls read with a file, unpacked if its name ends in .gz; errors name it.
func open(path string, read func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if !strings.HasSuffix(path, ".gz") {
		return inFile(path, read(f))
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: is not packed with gzip, as its name says: %w", path, err)
	}
	in := &limited{z, maxTrace}
	return inFile(path, read(in))
}

// limited fails where more comes than there may be.
type limited struct {
	io.Reader
	left int64
}

var errLong = errors.New("comes to more than 4 GiB")

func (l *limited) Read(b []byte) (int, error) {
	n, err := l.Reader.Read(b)
	if l.left -= int64(n); l.left < 0 {
		return 0, errLong
	}
	return n, err
}

// formOf is the form of a file, packed or not.
func formOf(path string) sim.Form { return sim.FormOf(strings.TrimSuffix(path, ".gz")) }

// inFile names the file in an error; of a file with several faults, each is
// listed.
func inFile(path string, err error) error {
	if err == nil {
		return nil
	}
	if fields := fault.FieldsOf(err); len(fields) > 0 {
		return &badFile{path, fields}
	}
	return fmt.Errorf("%s: %w", path, err)
}

// badFile is a file that is refused.
type badFile struct {
	path   string
	fields []fault.Field
}

func (e *badFile) Error() string { return e.path + " is refused" }
