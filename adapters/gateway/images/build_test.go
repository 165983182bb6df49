package images_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"yunhe.dev/yunhe/adapters/gateway/images"
)

// entry of a tar archive under construction.
type entry struct {
	name, text string
	kind       byte // 0: a file
	link       string
	mode       int64
	pax        map[string]string
	time       time.Time
}

func dir(name string) entry           { return entry{name: name, kind: tar.TypeDir, mode: 0o700} }
func link(name, to string) entry      { return entry{name: name, kind: tar.TypeSymlink, link: to} }
func hard(name, to string) entry      { return entry{name: name, kind: tar.TypeLink, link: to} }
func file(name, text string) entry    { return entry{name: name, text: text, mode: 0o600} }
func program(name, text string) entry { return entry{name: name, text: text, mode: 0o4700} }

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Size: int64(len(e.text)), PAXRecords: e.pax, ModTime: e.time, Uid: 1234, Gid: 5678}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1_700_000_000, 0)
		}
		if e.pax != nil {
			h.Format = tar.FormatPAX
		}
		must(t, w.WriteHeader(h))
		_, err := w.Write([]byte(e.text))
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func gz(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	must(t, err)
	must(t, w.Close())
	return out.Bytes()
}

func zst(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	must(t, err)
	_, err = w.Write(b)
	must(t, err)
	must(t, w.Close())
	return out.Bytes()
}

// picture is an image under construction. The hooks spoil it on the way.
type picture struct {
	ref    string
	config v1.ImageConfig
	arch   string
	layers [][]byte                           // tar archives
	pack   func(int, []byte) []byte           // of layer i; nil: none
	blob   func(name string, b []byte) []byte // what is put into the archive instead
	desc   func(*v1.Descriptor)               // of each layer
	man    func(*v1.Manifest)
	image  func(*v1.Image)
	index  func(*v1.Index)
	more   []entry
}

func (p picture) parts(t testing.TB) (img v1.Image, layers []v1.Descriptor, blobs map[string][]byte) {
	t.Helper()
	blobs = map[string][]byte{}
	img = v1.Image{Platform: v1.Platform{OS: "linux", Architecture: p.arch}, Config: p.config, RootFS: v1.RootFS{Type: "layers"}}
	if img.Architecture == "" {
		img.Architecture = runtime.GOARCH
	}
	for i, l := range p.layers {
		img.RootFS.DiffIDs = append(img.RootFS.DiffIDs, digest.FromBytes(l))
		if p.pack != nil {
			l = p.pack(i, l)
		}
		d := v1.Descriptor{MediaType: v1.MediaTypeImageLayerGzip, Digest: digest.FromBytes(l), Size: int64(len(l))}
		if p.desc != nil {
			p.desc(&d)
		}
		layers = append(layers, d)
		blobs[d.Digest.Encoded()] = l
	}
	if p.image != nil {
		p.image(&img)
	}
	return img, layers, blobs
}

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return b
}

// oci returns the image as an archive of an OCI layout.
func (p picture) oci(t testing.TB) []byte {
	t.Helper()
	img, layers, blobs := p.parts(t)
	config := asJSON(t, img)
	blobs[digest.FromBytes(config).Encoded()] = config
	man := v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: v1.Descriptor{MediaType: v1.MediaTypeImageConfig, Digest: digest.FromBytes(config), Size: int64(len(config))}, Layers: layers}
	if p.man != nil {
		p.man(&man)
	}
	m := asJSON(t, man)
	blobs[digest.FromBytes(m).Encoded()] = m
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []v1.Descriptor{
		{MediaType: v1.MediaTypeImageManifest, Digest: digest.FromBytes(m), Size: int64(len(m)), Annotations: map[string]string{v1.AnnotationRefName: p.ref}}}}
	if p.index != nil {
		p.index(&index)
	}
	es := []entry{file("oci-layout", `{"imageLayoutVersion":"1.0.0"}`), file("index.json", string(asJSON(t, index)))}
	for name, b := range blobs {
		if p.blob != nil {
			b = p.blob(name, b)
		}
		if b != nil {
			es = append(es, file("blobs/sha256/"+name, string(b)))
		}
	}
	return tarOf(t, append(es, p.more...)...)
}

// docker returns the image as "docker save" wrote it for many years.
func (p picture) docker(t testing.TB) []byte {
	t.Helper()
	img, layers, blobs := p.parts(t)
	config := asJSON(t, img)
	var es []entry
	var names []string
	for i, d := range layers {
		name := fmt.Sprintf("%x/layer.tar", sha256.Sum256([]byte{byte(i)}))
		if i > 0 && d.Digest == layers[0].Digest {
			es = append(es, link(name, "../"+names[0]))
		} else {
			es = append(es, file(name, string(blobs[d.Digest.Encoded()])))
		}
		names = append(names, name)
	}
	configName := digest.FromBytes(config).Encoded() + ".json"
	if p.blob != nil {
		config = p.blob("config", config)
	}
	man := []map[string]any{{"Config": configName, "RepoTags": []string{p.ref}, "Layers": names}}
	es = append(es, file(configName, string(config)), file("manifest.json", string(asJSON(t, man))))
	return tarOf(t, append(es, p.more...)...)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sum(b []byte) digest.Digest { return digest.FromBytes(b) }

func save(t testing.TB, b []byte) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "*.tar")
	must(t, err)
	_, err = f.Write(b)
	must(t, err)
	must(t, f.Close())
	return f.Name()
}

func open(t testing.TB) (*images.Store, string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "images")
	s, err := images.Open(folder)
	must(t, err)
	return s, folder
}

// tree lists what is below a folder: links with their targets, files with
// their mode and text.
func tree(t testing.TB, folder string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(folder, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(folder, p)
		if err != nil || rel == "." {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			out[rel] = fmt.Sprintf("%v", st.Mode())
		case e.Type() == fs.ModeSymlink:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			out[rel] = "-> " + to
		default:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			out[rel] = fmt.Sprintf("%v %s", st.Mode(), b)
		}
		return nil
	}))
	return out
}
