package deploy

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"yunhe.dev/yunhe/internal/fault"
)

// WriteImage writes an archive of an image that holds the program at /yunhe and folders
// for what the manifests mount, and nothing else. /lib and /lib64 are links into /usr, so
// that the machine's /usr, mounted there, brings drivers and all that they are linked with.
// Both the layout of OCI and that of `docker save` are in it. The same program and name
// give the same bytes. It returns fault.Invalid for what is no program and for one that
// needs libraries.
func WriteImage(w io.Writer, program io.ReaderAt, size int64, name string) error {
	arch, err := architecture(program)
	if err != nil {
		return err
	}
	layer := func(w io.Writer) error {
		t := tar.NewWriter(w)
		for _, d := range []struct {
			name string
			mode int64
		}{{"etc/", 0o755}, {"etc/yunhe/", 0o755}, {"tmp/", 0o1777}, {"usr/", 0o755}, {"var/", 0o755}, {"var/lib/", 0o755}, {"var/lib/yunhe/", 0o777}} {
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d.name, Mode: d.mode}); err != nil {
				return err
			}
		}
		for _, dir := range []string{"lib", "lib64"} {
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: dir, Linkname: "usr/" + dir, Mode: 0o777}); err != nil {
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

// architecture is a program's, as images call it.
func architecture(program io.ReaderAt) (string, error) {
	f, err := elf.NewFile(program)
	if err != nil {
		return "", fault.New(fault.Invalid, "the program is not one of Linux: %v", err)
	}
	arch := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[f.Machine]
	if arch == "" {
		return "", fault.New(fault.Invalid, "the program is for %s; only amd64 and arm64 are known", f.Machine)
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "", fault.New(fault.Invalid, "the program needs libraries, which the image does not have: build it with CGO_ENABLED=0")
	}
	return arch, nil
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
