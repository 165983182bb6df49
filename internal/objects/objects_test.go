package objects

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
)

// contextBackground is for the process that is killed: it has no test.
func contextBackground() context.Context { return context.Background() }

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	const at = "?endpoint=http://127.0.0.1:9000"
	for _, test := range []struct {
		url  string
		want string // in the error; "" if valid
	}{
		{"data/objects", ""},
		{"/var/lib/yunhe/objects", ""},
		{"file:///var/lib/yunhe/objects", ""},
		{"s3://bucket" + at, ""},
		{"s3://bucket/a/prefix/" + at + "&region=r1&style=path", ""},
		{"", "url: must be a folder"},
		{"file://relative/path", "url: must be file:///"},
		{"file:///a?b=c", "url: must be file:///"},
		{"ftp://host/path", `url: must be a path or begin with file:// or s3://, got "ftp://"`},
		{"s3://user:hunter2@bucket" + at, "url: must not hold credentials"},
		{"s3://bucket", "url: endpoint is missing"},
		{"s3://bucket?endpoint=127.0.0.1:9000", `url: endpoint must be http(s)://host:port, got "127.0.0.1:9000"`},
		{"s3://bucket?endpoint=http://h/path", "url: endpoint must be"},
		{"s3://b" + at, `url: bucket name must have 3 to 63 characters, got "b"`},
		{"s3://bucket/a/../b" + at, "url: prefix must be a key"},
		{"s3://bucket/" + strings.Repeat("p/", 300) + at, "url: prefix must be a key of at most 511 bytes"},
		{"s3://bucket" + at + "&regoin=x", `url: unknown parameter "regoin"`},
		{"s3://bucket" + at + "&style=x", `url: style must be path or host, got "x"`},
		{"s3://bu cket:hunter2" + at, "url: is not an address"},
	} {
		err := Config{URL: test.url, AccessKey: "a", SecretKey: "s"}.Validate()
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%q: %v", test.url, err)
		case test.want != "" && (err == nil || fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%q: got %v, want an invalid field with %q", test.url, err, test.want)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%q: error shows the password: %v", test.url, err)
		}
	}
	err := Config{URL: "s3://b?style=x"}.Validate()
	if got := len(fault.FieldsOf(err)); got != 5 {
		t.Errorf("got %d problems, want all 5 at once: %v", got, err)
	}
	if err := (Config{URL: "data/objects"}).Validate(); err != nil {
		t.Errorf("a folder: %v", err)
	}
}

func TestConfigHidesSecrets(t *testing.T) {
	t.Parallel()
	c := Config{URL: "s3://bucket", AccessKey: "hunter1", SecretKey: "hunter2"}
	for _, format := range []string{"%v", "%+v", "%s", "%#v"} {
		if got := fmt.Sprintf(format, c); strings.Contains(got, "hunter") || !strings.Contains(got, "s3://bucket") {
			t.Errorf("%s: got %q, want the address without credentials", format, got)
		}
	}
}

func BenchmarkFolderPut4K(b *testing.B) {
	s, err := openFolder(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 4096)
	b.SetBytes(4096)
	for i := 0; b.Loop(); i++ {
		if _, err := s.Put(b.Context(), fmt.Sprintf("d/%d", i%1000), bytes.NewReader(data), 4096, ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkS3Put4K(b *testing.B) {
	s, err := Open(b.Context(), realS3(b))
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 4096)
	b.SetBytes(4096)
	for i := 0; b.Loop(); i++ {
		if _, err := s.Put(b.Context(), fmt.Sprintf("d/%d", i%1000), bytes.NewReader(data), 4096, ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFolderGet64M(b *testing.B) {
	s, err := openFolder(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	const size = 64 << 20
	if _, err := s.Put(b.Context(), "k", bytes.NewReader(make([]byte, size)), size, ""); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		r, _, err := s.Get(b.Context(), "k", 0, -1)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}

// BenchmarkChunksAppend shows that an append does not slow down with the
// length of the log it extends.
func BenchmarkChunksAppend(b *testing.B) {
	for _, chunks := range []int{1, 10000} {
		b.Run(fmt.Sprintf("folder with %d chunks", chunks), func(b *testing.B) {
			s, err := openFolder(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			benchAppend(b, s, chunks)
		})
		b.Run(fmt.Sprintf("s3 with %d chunks", chunks), func(b *testing.B) {
			s, err := Open(b.Context(), realS3(b))
			if err != nil {
				b.Fatal(err)
			}
			benchAppend(b, s, chunks)
		})
	}
}

func benchAppend(b *testing.B, s Store, chunks int) {
	data := make([]byte, 4096)
	for i := range chunks {
		if _, err := s.Put(b.Context(), chunkName("log", int64(i)*4096), bytes.NewReader(data), 4096, ""); err != nil {
			b.Fatal(err)
		}
	}
	c, end := NewChunks(s), int64(chunks)*4096
	for b.Loop() {
		var err error
		if end, err = c.Append(b.Context(), "log", end, data); err != nil {
			b.Fatal(err)
		}
	}
}
