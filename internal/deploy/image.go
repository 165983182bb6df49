package deploy

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"yunhe.dev/yunhe/internal/fault"
)

// WriteImage writes an archive of an image that holds the program at /yunhe, the
// libraries of this machine that it is linked with, and folders for what the
// manifests mount, and nothing else. /lib and /lib64 are links into /usr, so that the
// machine's /usr, mounted there, brings drivers and all that they are linked with.
// Both the layout of OCI and that of `docker save` are in it. The same program,
// libraries and name give the same bytes. It returns fault.Invalid for what is no
// program and for one whose libraries are not here.
func WriteImage(w io.Writer, program io.ReaderAt, size int64, name string) error {
	arch, libraries, err := needs(program)
	if err != nil {
		return err
	}
	layer := func(w io.Writer) error {
		t := tar.NewWriter(w)
		for _, d := range []struct {
			name string
			mode int64
		}{{"etc/", 0o755}, {"etc/yunhe/", 0o755}, {"tmp/", 0o1777}, {"var/", 0o755}, {"var/lib/", 0o755}, {"var/lib/yunhe/", 0o777}} {
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d.name, Mode: d.mode}); err != nil {
				return err
			}
		}
		links := map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(libraries)) {
			path := name
			if dir := strings.SplitN(name, "/", 3)[1]; dir != "usr" { // drivers look for their files from there
				path = "/usr" + name
				if !links[dir] {
					if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: dir, Linkname: "usr/" + dir, Mode: 0o777}); err != nil {
						return err
					}
				}
				links[dir] = true
			}
			for i, c := range path[1:] { // whoever unpacks it makes missing folders as they like
				if c == '/' {
					if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path[1 : i+2], Mode: 0o755}); err != nil {
						return err
					}
				}
			}
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path[1:], Mode: 0o755, Size: int64(len(libraries[name]))}); err != nil {
				return err
			}
			if _, err := t.Write(libraries[name]); err != nil {
				return err
			}
		}
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "yunhe", Mode: 0o755, Size: size}); err != nil {
			return err
		}
		if _, err := io.Copy(t, io.NewSectionReader(program, 0, size)); err != nil {
			return err
		}
		return t.Close()
	}
	// The layer is made twice: its digest is its name, which comes first.
	var length counter
	hash := sha256.New()
	if err := layer(io.MultiWriter(hash, &length)); err != nil {
		return err
	}
	sum := digest.NewDigestFromEncoded(digest.SHA256, hex.EncodeToString(hash.Sum(nil)))
	o := archive{tar: tar.NewWriter(w)}
	config := o.json("", v1.Image{
		Platform: v1.Platform{OS: "linux", Architecture: arch},
		Config:   v1.ImageConfig{User: "65532:65532", Entrypoint: []string{"/yunhe"}, WorkingDir: "/"},
		RootFS:   v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{sum}},
	}, v1.MediaTypeImageConfig)
	o.add(blob(sum), int64(length), layer)
	manifest := o.json("", v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Config: config,
		Layers: []v1.Descriptor{{MediaType: v1.MediaTypeImageLayer, Digest: sum, Size: int64(length)}}}, v1.MediaTypeImageManifest)
	manifest.Annotations = map[string]string{v1.AnnotationRefName: name, "io.containerd.image.name": name}
	o.json("index.json", v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{manifest}}, "")
	o.json("manifest.json", []map[string]any{{"Config": blob(config.Digest), "RepoTags": []string{name}, "Layers": []string{blob(sum)}}}, "")
	o.json(v1.ImageLayoutFile, v1.ImageLayout{Version: v1.ImageLayoutVersion}, "")
	if o.err != nil {
		return o.err
	}
	return o.tar.Close()
}

// needs returns a program's architecture, as images call it, and the files that
// load it and that it is linked with, by their paths.
func needs(program io.ReaderAt) (arch string, files map[string][]byte, err error) {
	f, err := elf.NewFile(program)
	if err != nil {
		return "", nil, fault.New(fault.Invalid, "the program is not one of Linux: %v", err)
	}
	arch = map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[f.Machine]
	if arch == "" {
		return "", nil, fault.New(fault.Invalid, "the program is for %s; only amd64 and arm64 are known", f.Machine)
	}
	files = map[string][]byte{}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(p.Open())
		if err != nil {
			return "", nil, fmt.Errorf("read what loads the program: %w", err)
		}
		loader := path.Clean("/" + strings.TrimRight(string(name), "\x00"))
		if files[loader], err = os.ReadFile(loader); err != nil {
			return "", nil, fault.Wrap(fault.Invalid, err, "the program is loaded by %s, which is not here", loader)
		}
	}
	return arch, files, addLibraries(files, f)
}

// addLibraries adds the libraries that f is linked with and those that they are.
func addLibraries(files map[string][]byte, f *elf.File) error {
	names, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read which libraries the program needs: %w", err)
	}
	for _, name := range names {
		if slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(p string) bool { return path.Base(p) == name }) {
			continue
		}
		at, body, lib := library(name, f.Machine)
		if lib == nil {
			return fault.New(fault.Invalid, "the program needs %s for %s, which is not in %s", name, f.Machine, strings.Join(libraryFolders(f.Machine), ", "))
		}
		files[at] = body
		if err := addLibraries(files, lib); err != nil {
			return err
		}
	}
	return nil
}

// libraryFolders are where the loaders of distributions look by themselves.
func libraryFolders(m elf.Machine) []string {
	triplet := map[elf.Machine]string{elf.EM_X86_64: "x86_64-linux-gnu", elf.EM_AARCH64: "aarch64-linux-gnu"}[m]
	return []string{"/lib/" + triplet, "/usr/lib/" + triplet, "/lib64", "/usr/lib64", "/lib", "/usr/lib"}
}

// library finds one for a machine; a nil file: there is none.
func library(name string, m elf.Machine) (at string, body []byte, f *elf.File) {
	for _, dir := range libraryFolders(m) {
		at := path.Join(dir, name)
		body, err := os.ReadFile(at)
		if err != nil {
			continue
		}
		if f, err := elf.NewFile(bytes.NewReader(body)); err == nil && f.Machine == m {
			return at, body, f
		}
	}
	return "", nil, nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// archive is written until the first error.
type archive struct {
	tar *tar.Writer
	err error
}

func blob(d digest.Digest) string { return "blobs/sha256/" + d.Encoded() }

func (a *archive) add(name string, size int64, content func(io.Writer) error) {
	if a.err == nil {
		a.err = a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size})
	}
	if a.err == nil {
		a.err = content(a.tar)
	}
}

// json adds a document; without a name it is a blob.
func (a *archive) json(name string, v any, kind string) v1.Descriptor {
	b, err := json.Marshal(v)
	if err != nil && a.err == nil {
		a.err = err
	}
	d := v1.Descriptor{MediaType: kind, Digest: digest.FromBytes(b), Size: int64(len(b))}
	if name == "" {
		name = blob(d.Digest)
	}
	a.add(name, d.Size, func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(b))
		return err
	})
	return d
}
