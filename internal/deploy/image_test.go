package deploy_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/adapters/gateway/images"
	"yunhe.dev/yunhe/internal/deploy"
	"yunhe.dev/yunhe/internal/fault"
)

// TestImage: the archive is read by who reads the images of OCI and Docker, what
// is in it runs with nothing beside it, and it is the same each time.
func TestImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(`package main; import "os"; func main() { d, _ := os.ReadDir("/"); for _, e := range d { println(e.Name()) } }`), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := deploy.WriteImage(w, bytes.NewReader(b), int64(len(b)), "yunhe:1.2"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of one program differ")
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(first.Bytes())); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	var saved []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &saved); err != nil || len(saved) != 1 || len(saved[0].Layers) != 1 || saved[0].RepoTags[0] != "yunhe:1.2" || files[saved[0].Config] == nil {
		t.Fatalf("manifest.json says %s, %v", files["manifest.json"], err)
	}
	// A gateway reads it as the one and as the other, and checks each digest.
	for name, gone := range map[string]string{"both": "", "OCI": "manifest.json", "docker": "index.json"} {
		var a bytes.Buffer
		w := tar.NewWriter(&a)
		for _, n := range slices.Sorted(maps.Keys(files)) {
			if n == gone {
				continue
			}
			if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: n, Mode: 0o644, Size: int64(len(files[n]))}), write(w, files[n])); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		store, err := images.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if image, _, err := store.Load(t.Context(), images.Request{Path: "-", Input: &a}); err != nil || image.ID != "yunhe-1.2" {
			t.Errorf("%s: the archive is not read: %+v, %v", name, image, err)
		}
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", root)
	unpack.Stdin = bytes.NewReader(files[saved[0].Layers[0]])
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: to run in a root of its own needs root")
	}
	out, err := exec.CommandContext(t.Context(), "chroot", root, "/yunhe").CombinedOutput()
	if got := strings.Fields(string(out)); err != nil || strings.Join(got, " ") != "etc lib lib64 tmp usr var yunhe" {
		t.Errorf("in the image are %q, %v", got, err)
	}
}

func write(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}

func TestImageRefuses(t *testing.T) {
	t.Parallel()
	if err := deploy.WriteImage(&bytes.Buffer{}, strings.NewReader("#!/bin/sh"), 9, "x"); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a script gives %v, want that it is not a program", err)
	}
	shell, err := os.Open("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	defer shell.Close()
	if err := deploy.WriteImage(&bytes.Buffer{}, shell, 1, "x"); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "needs libraries") {
		t.Errorf("a program that needs libraries gives %v", err)
	}
}
