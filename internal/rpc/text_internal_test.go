package rpc

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

// However the bytes come, a body is bad if it is not UTF-8; one that breaks
// off within a character is refused by whoever reads it.
func FuzzTextBody(f *testing.F) {
	for _, s := range []string{"", "abc", "运河", "a\xe0b", "\xff", "x\xe8\xbf", "\xf0\x9f\x98\x80"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, wrap := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "halves": iotest.HalfReader} {
			body := &textBody{ReadCloser: io.NopCloser(wrap(bytes.NewReader(b)))}
			if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, b) {
				t.Fatalf("%s: read %q %v", name, got, err)
			}
			if got, want := body.bad || len(body.part) > 0, !utf8.Valid(b); got != want {
				t.Errorf("%s: %q bad %v, want %v", name, b, got, want)
			}
		}
	})
}
