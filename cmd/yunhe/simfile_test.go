package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/sim"
)

// packed is a text packed with gzip.
func packed(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Traces are read as they are or packed; one that is not what its name says, is
// cut off or damaged, or never ends, is refused with its name.
func TestOpenPacked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := packed(t, "name,cpu\nn1,8\n")
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-5] ^= 1
	for _, x := range []struct {
		name, wrong string
		content     []byte
	}{
		{"a.csv", "", []byte("name,cpu\nn1,8\n")},
		{"a.csv.gz", "", whole},
		{"b.csv.gz", "is not packed with gzip", []byte("name,cpu\n")},
		{"c.csv.gz", "unexpected EOF", whole[:len(whole)-9]},
		{"d.csv.gz", "checksum", damaged},
		{"e.csv.gz", "is not packed with gzip", nil},
	} {
		path := filepath.Join(dir, x.name)
		if err := os.WriteFile(path, x.content, 0o600); err != nil {
			t.Fatal(err)
		}
		var got []byte
		err := open(path, func(r io.Reader) (err error) {
			got, err = io.ReadAll(r)
			return err
		})
		switch {
		case x.wrong == "" && (err != nil || string(got) != "name,cpu\nn1,8\n"):
			t.Errorf("%s: %q, %v", x.name, got, err)
		case x.wrong != "" && (err == nil || !strings.Contains(err.Error(), x.name) || !strings.Contains(err.Error(), x.wrong)):
			t.Errorf("%s: %v, want %q", x.name, err, x.wrong)
		}
	}
	if formOf("x.json.gz") != sim.FormOf("x.json") || formOf("x.csv.gz") != sim.FormOf("x.csv") {
		t.Error("a packed file has another form than when it is unpacked")
	}
	in := &limited{strings.NewReader("four more"), 4}
	if _, err := io.ReadAll(in); err == nil || !strings.Contains(err.Error(), "4 GiB") {
		t.Errorf("more than there may be: %v", err)
	}
}

// Whatever bytes a packed file has, it is read or refused.
func FuzzOpenPacked(f *testing.F) {
	f.Add(packed(f, "name,cpu\n"))
	f.Add([]byte("\x1f\x8b\x08"))
	path := filepath.Join(f.TempDir(), "x.csv.gz")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		err := open(path, func(r io.Reader) (err error) {
			n, err = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
			return err
		})
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("after %d bytes: %v does not name the file", n, err)
		}
	})
}

func TestForetold(t *testing.T) {
	t.Parallel()
	for want, x := range map[string]*schedulerv1.RunForecast{
		"runs for 1h00m: its owner says so":                                               {MedianSeconds: 3600, HighSeconds: 3600, Basis: "its owner says so"},
		"runs for 1m30s, nine of ten for no more than 2h00m: 12 runs of the same command": {MedianSeconds: 90, HighSeconds: 7200, Runs: 12, Basis: "12 runs of the same command"},
		"runs for 2m00s, nine of ten for no more than 3m00s: a�b":                         {MedianSeconds: 120, HighSeconds: 180, Runs: 1, Basis: "a\x1bb"},
	} {
		if got := foretold(x); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
