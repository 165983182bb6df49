package images_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"yunhe.dev/yunhe/adapters/gateway/images"
	"yunhe.dev/yunhe/internal/fault"
)

// canary is a folder an archive would like to write into. It lies where ".."
// and links from inside an image's folder would lead.
func canary(t testing.TB, folder string) func() {
	t.Helper()
	for _, p := range []string{"..", "."} {
		must(t, os.MkdirAll(filepath.Join(folder, p, "canary"), 0o755))
		must(t, os.WriteFile(filepath.Join(folder, p, "canary", "bird"), []byte("alive"), 0o644))
	}
	return func() {
		t.Helper()
		for _, p := range []string{"..", "."} {
			if got := tree(t, filepath.Join(folder, p, "canary")); len(got) != 1 || got["bird"] != "-rw-r--r-- alive" {
				t.Errorf("%s/canary: %v", p, got)
			}
		}
		for _, p := range []string{"/yunhe-was-here", filepath.Join(folder, "..", "yunhe-was-here"), filepath.Join(folder, "yunhe-was-here")} {
			if _, err := os.Lstat(p); err == nil {
				t.Errorf("%s was written", p)
			}
		}
	}
}

// Archives that must be refused, each as the only layer of an image and as a
// plain archive.
func TestRefuses(t *testing.T) {
	t.Parallel()
	limits := images.Limits{Bytes: 1 << 20, Files: 100}
	many := make([]entry, 101)
	for i := range many {
		many[i] = file(fmt.Sprint(i), "")
	}
	cases := map[string]struct {
		tar []byte
		why string
	}{
		"a name with ..":             {tarOf(t, file("../yunhe-was-here", "x")), "leads out"},
		"a name with .. inside":      {tarOf(t, file("a/../../yunhe-was-here", "x")), "leads out"},
		"an absolute name with ..":   {tarOf(t, file("/../yunhe-was-here", "x")), "leads out"},
		"a hard link out":            {tarOf(t, hard("a", "../canary/bird")), "leads out"},
		"a hard link to nothing":     {tarOf(t, hard("a", "absent")), "no file of the image"},
		"a hard link to a folder":    {tarOf(t, dir("d"), hard("a", "d")), "no file of the image"},
		"a hard link through a link": {tarOf(t, link("out", "../../canary"), hard("a", "out/bird")), "no file of the image"},
		"a hard link below a file":   {tarOf(t, file("f", ""), hard("a", "f/x")), "no file of the image"},
		"a character device":         {tarOf(t, entry{name: "etc/mem", kind: tar.TypeChar}), "device"},
		"a block device":             {tarOf(t, entry{name: "sda", kind: tar.TypeBlock}), "device"},
		"a device beside /dev":       {tarOf(t, entry{name: "devices", kind: tar.TypeBlock}), "device"},
		"a device through a link":    {tarOf(t, link("dev", "etc"), entry{name: "dev/../etc/mem", kind: tar.TypeChar}), "leads out"},
		"a device below a link":      {tarOf(t, dir("etc"), link("dev", "etc"), entry{name: "dev/mem", kind: tar.TypeChar}), "device"},
		"a pipe":                     {tarOf(t, entry{name: "p", kind: tar.TypeFifo}), "pipe"},
		"an unknown kind":            {tarOf(t, entry{name: "x", kind: 'Z'}), "unknown kind"},
		"links in a circle":          {tarOf(t, link("a", "b"), link("b", "a"), file("a/x", "")), "links"},
		"a link to itself":           {tarOf(t, link("a", "a"), file("a/x", "")), "links"},
		"an empty link":              {tarOf(t, link("a", "")), "target"},
		"a long link":                {tarOf(t, link("a", strings.Repeat("x", 5000))), "target"},
		"a long name":                {tarOf(t, file(strings.Repeat("x", 256), "")), "longer than"},
		"a long path":                {tarOf(t, file(strings.Repeat("x/", 2500)+"x", "")), "longer than"},
		"a path grown by links":      {tarOf(t, link("a", "/"+strings.Repeat("y/", 1500)), link(strings.Repeat("y/", 1500)+"b", "/"+strings.Repeat("z/", 1400)), file("a/b/"+strings.Repeat("w/", 1000)+"x", "")), ""},
		"too many files":             {tarOf(t, many...), "more than 100 files"},
		"too many folders":           {tarOf(t, file(strings.Repeat("d/", 101)+"x", "")), "more than 100 files"},
		"too many bytes":             {tarOf(t, file("big", strings.Repeat("x", 1<<20+1))), "more than 1048576 bytes"},
		"too many bytes together":    {tarOf(t, file("a", strings.Repeat("x", 1<<19+1)), file("b", strings.Repeat("x", 1<<19))), "more than 1048576 bytes"},
		"a sparse file":              {sparse(t, 1<<40), "more than 1048576 bytes"},
		"a size below zero":          {badSize(t), "damaged"},
		"no end":                     {tarOf(t, file("a", strings.Repeat("x", 4000)))[:2000], "damaged"},
		"a spoiled header":           {spoil(tarOf(t, file("a", "x")), 3), "damaged"},
		"nothing":                    {nil, "empty"},
		"noise":                      {bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, 1000), "damaged"},
		"zeros behind the end":       {append(tarOf(t, file("a", "")), make([]byte, 3<<20)...), "more than 1048576 bytes"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for form, b := range map[string][]byte{
				"rootfs": c.tar, "rootfs.gz": gz(t, c.tar), "rootfs.zst": zst(t, c.tar),
				"oci": picture{ref: "x:1", layers: [][]byte{c.tar}}.oci(t), "oci gz": picture{ref: "x:1", layers: [][]byte{c.tar}, pack: func(_ int, b []byte) []byte { return gz(t, b) }}.oci(t),
				"docker": picture{ref: "x:1", layers: [][]byte{c.tar}}.docker(t),
			} {
				if name == "nothing" && form != "rootfs" {
					continue // an image of no files is one that has no shell
				}
				s, folder := open(t)
				alive := canary(t, folder)
				m, _, err := s.Load(t.Context(), images.Request{Path: save(t, b), ID: "x", Limits: limits})
				if k := fault.KindOf(err); k != fault.Invalid || !says(err, k, c.why) {
					t.Errorf("%s: %+v, %v, want it refused for %q", form, m, err, c.why)
				}
				if list, err := s.List(); err != nil || len(list) != 0 {
					t.Errorf("%s: there: %v, %v", form, list, err)
				}
				alive()
				leftovers(t, folder)
			}
		})
	}
}

// sparse returns an archive whose only file is all hole.
func sparse(t *testing.T, size int64) []byte {
	b := tarOf(t, entry{name: "hole", pax: map[string]string{"comment": "x"}})
	// The old GNU form: size of the data 0, real size in the header itself.
	h := b[len(b)-1024-512 : len(b)-1024]
	h[156] = 'S'
	copy(h[257:265], "ustar  \x00")
	clear(h[345:500])
	binary.BigEndian.PutUint64(h[483+4:], uint64(size))
	h[483] = 0x80
	clear(h[386:482])
	checksum(h)
	return b
}

func badSize(t *testing.T) []byte {
	b := tarOf(t, file("a", ""))
	copy(b[124:136], bytes.Repeat([]byte{0xff}, 12))
	checksum(b[:512])
	return b
}

func checksum(h []byte) {
	copy(h[148:156], "        ")
	n := 0
	for _, c := range h[:512] {
		n += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", n))
}

func spoil(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 0x55
	return b
}

// Archives that are odd, and do not leave the image's folder.
func TestStaysInside(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		layers [][]byte
		want   map[string]string
	}{
		"through a link to the root's top": {[][]byte{shell(t, link("out", "/"), file("out/yunhe-was-here", "x"))}, map[string]string{"yunhe-was-here": "-rw-r--r-- x"}},
		"through a link that climbs":       {[][]byte{shell(t, link("out", "../../../../../.."), file("out/yunhe-was-here", "x"))}, map[string]string{"yunhe-was-here": "-rw-r--r-- x"}},
		"through a link to a name":         {[][]byte{shell(t, link("out", "/canary"), file("out/bird", "dead"))}, map[string]string{"canary/bird": "-rw-r--r-- dead"}},
		"through a link, one layer later":  {[][]byte{shell(t, link("out", "../../canary")), tarOf(t, file("out/bird", "dead"))}, map[string]string{"canary/bird": "-rw-r--r-- dead"}},
		"a whiteout through a link":        {[][]byte{shell(t, link("out", "../../canary")), tarOf(t, file("out/.wh.bird", ""), file("out/.wh..wh..opq", ""))}, map[string]string{"out": "-> ../../canary"}},
		"a whiteout of .. is none":         {[][]byte{shell(t), tarOf(t, file("a/.wh.b", ""))}, nil},
		"a file over a link":               {[][]byte{shell(t, link("f", "/canary/bird"), file("f", "x"))}, map[string]string{"f": "-rw-r--r-- x"}},
		"a folder over a link":             {[][]byte{shell(t, link("d", "../../canary"), dir("d"), file("d/bird", "x"))}, map[string]string{"d/bird": "-rw-r--r-- x"}},
		"a link over a folder":             {[][]byte{shell(t, dir("d"), file("d/x", ""), link("d", "/canary"), file("d/bird", "x"))}, map[string]string{"canary/bird": "-rw-r--r-- x", "d": "-> /canary"}},
		"a hard link over its own target":  {[][]byte{shell(t, file("f", "x"), hard("f", "f"))}, map[string]string{"f": "-rw-r--r-- x"}},
		"a hard link to a link":            {[][]byte{shell(t, link("l", "/canary/bird"), hard("h", "l"), file("h", "x"))}, map[string]string{"h": "-rw-r--r-- x", "l": "-> /canary/bird"}},
		"a file twice":                     {[][]byte{shell(t, file("f", "a"), file("f", "b"))}, map[string]string{"f": "-rw-r--r-- b"}},
		"a hard-linked file written anew":  {[][]byte{shell(t, file("f", "a"), hard("g", "f"), file("g", "b"))}, map[string]string{"f": "-rw-r--r-- a", "g": "-rw-r--r-- b"}},
		"a device in /dev":                 {[][]byte{shell(t, entry{name: "dev/mem", kind: tar.TypeChar}, entry{name: "dev/sub/p", kind: tar.TypeFifo})}, nil},
		"a root that is a file":            {[][]byte{shell(t, file(".", ""), dir("/"), dir("./"))}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, folder := open(t)
			alive := canary(t, folder)
			_, _, err := s.Load(t.Context(), images.Request{Path: save(t, picture{ref: "x:1", layers: c.layers}.oci(t)), ID: "x"})
			must(t, err)
			alive()
			got := tree(t, filepath.Join(folder, "x", "rootfs"))
			for p, want := range c.want {
				if got[p] != want {
					t.Errorf("%s is %q, want %q; all: %v", p, got[p], want, got)
				}
			}
			if got["dev/mem"] != "" {
				t.Error("a device came along")
			}
		})
	}
}

// Archives that are not what they say.
func TestWrongDigests(t *testing.T) {
	t.Parallel()
	base := func() picture {
		return picture{ref: "x:1", layers: [][]byte{shell(t), shell(t, file("b", strings.Repeat("x", 9000)))}}
	}
	packed := func() picture {
		p := base()
		p.pack = func(_ int, b []byte) []byte { return gz(t, b) }
		return p
	}
	spoilBlob := func(n int) func(string, []byte) []byte {
		return func(_ string, b []byte) []byte {
			if len(b) > n {
				return spoil(b, n)
			}
			return b
		}
	}
	with := func(p picture, f func(*picture)) picture { f(&p); return p }
	cases := map[string]struct {
		b   []byte
		why string
	}{
		"the text of a layer": {with(base(), func(p *picture) { p.blob = spoilBlob(512 * 5) }).oci(t), "digest"},
		"a packed layer's text": {with(packed(), func(p *picture) {
			p.blob = func(_ string, b []byte) []byte {
				if bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
					return spoil(b, 4) // the time in the header, which unpacking does not look at
				}
				return b
			}
		}).oci(t), "digest"},
		"the configuration": {with(base(), func(p *picture) {
			p.blob = func(_ string, b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"linux"`), []byte(`"Linux"`)) }
		}).oci(t), "digest"},
		"the manifest": {with(base(), func(p *picture) {
			p.blob = func(_ string, b []byte) []byte {
				return bytes.ReplaceAll(b, []byte(`"schemaVersion":2`), []byte(`"schemaVersion":3`))
			}
		}).oci(t), "digest"},
		"a size":                         {with(base(), func(p *picture) { p.desc = func(d *v1.Descriptor) { d.Size++ } }).oci(t), "its descriptor says"},
		"a layer's own digest, unpacked": {with(base(), func(p *picture) { p.image = func(i *v1.Image) { i.RootFS.DiffIDs[1] = digest.FromString("x") } }).oci(t), "digest"},
		"an unknown algorithm": {with(base(), func(p *picture) {
			p.image = func(i *v1.Image) { i.RootFS.DiffIDs[0] = "md5:d41d8cd98f00b204e9800998ecf8427e" }
		}).oci(t), "cannot be checked"},
		"a digest with a path": {with(base(), func(p *picture) {
			p.man = func(m *v1.Manifest) { m.Layers[0].Digest = "sha256:../../../../etc/passwd" }
		}).oci(t), "cannot be checked"},
		"layers and digests": {with(base(), func(p *picture) { p.image = func(i *v1.Image) { i.RootFS.DiffIDs = i.RootFS.DiffIDs[:1] } }).oci(t), "2 layers and 1 digests"},
		"no layers":          {picture{ref: "x:1"}.oci(t), "0 layers"},
		"a blob that is absent": {with(base(), func(p *picture) {
			p.blob = func(_ string, b []byte) []byte {
				if len(b) > 5000 {
					return nil
				}
				return b
			}
		}).oci(t), "lacks blobs/"},
		"another machine":                        {with(base(), func(p *picture) { p.arch = "s390x" }).oci(t), "for s390x"},
		"another system":                         {with(base(), func(p *picture) { p.image = func(i *v1.Image) { i.OS = "windows" } }).oci(t), "for windows"},
		"something else":                         {with(base(), func(p *picture) { p.image = func(i *v1.Image) { i.RootFS.Type = "wasm" } }).oci(t), "something else"},
		"an empty index":                         {with(base(), func(p *picture) { p.index = func(i *v1.Index) { i.Manifests = nil } }).oci(t), "no image for linux/"},
		"a long index":                           {with(base(), func(p *picture) { p.index = func(i *v1.Index) { i.Manifests = make([]v1.Descriptor, 1000) } }).oci(t), "longer than"},
		"a large document":                       {tarOf(t, file("oci-layout", "{}"), file("index.json", strings.Repeat(" ", 5<<20))), "at most"},
		"a document of noise":                    {tarOf(t, file("oci-layout", "{}"), file("index.json", "{")), "cannot be read"},
		"docker: configuration":                  {with(base(), func(p *picture) { p.blob = func(string, []byte) []byte { return []byte(`{"os":"linux"}`) } }).docker(t), "digest"},
		"docker: a layer":                        {spoilText(base().docker(t), strings.Repeat("x", 50)), "digest"},
		"docker: configuration, named otherwise": {tarOf(t, file("manifest.json", `[{"Config":"sha256:`+strings.Repeat("a", 64)+`","RepoTags":["x:1"]}]`), file("sha256:"+strings.Repeat("a", 64), `{"os":"linux"}`)), "digest"},
		"docker: two images":                     {tarOf(t, file("manifest.json", `[{"Config":"a"},{"Config":"b"}]`)), "2 images"},
		"docker: none":                           {tarOf(t, file("manifest.json", `[]`)), "no image"},
		"docker: a link out":                     {tarOf(t, file("manifest.json", `[{"Config":"a"}]`), link("a", "/etc/passwd")), "lacks a"},
		"xz":                                     {append([]byte{0xfd, '7', 'z', 'X', 'Z', 0}, make([]byte, 100)...), "xz"},
		"a cut gzip":                             {gz(t, base().oci(t))[:300], "damaged"},
		"a cut layer": {with(packed(), func(p *picture) {
			p.pack = func(_ int, b []byte) []byte { z := gz(t, b); return z[:len(z)/2] }
		}).oci(t), "damaged"},
		"rubbish behind a gzip": {append(gz(t, shell(t)), "rubbish"...), "damaged"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, folder := open(t)
			m, _, err := s.Load(t.Context(), images.Request{Path: save(t, c.b), ID: "x"})
			if !says(err, fault.Invalid, c.why) {
				t.Errorf("%+v, %v, want it refused for %q", m, err, c.why)
			}
			if list, err := s.List(); err != nil || len(list) != 0 {
				t.Errorf("there: %v, %v", list, err)
			}
			leftovers(t, folder)
		})
	}
}

// spoilText changes the first place where text stands.
func spoilText(b []byte, text string) []byte { return spoil(b, bytes.Index(b, []byte(text))) }

// A bomb must cost neither disk nor memory: what comes out of a packer is
// bounded, whatever it is.
func TestBomb(t *testing.T) {
	t.Parallel()
	inner := append(tarOf(t, file("a", "")), make([]byte, 16<<20)...)
	for name, b := range map[string][]byte{
		"in a layer":             picture{ref: "x:1", layers: [][]byte{inner}, pack: func(_ int, b []byte) []byte { return gz(t, b) }}.oci(t),
		"around a plain archive": zst(t, inner),
	} {
		s, folder := open(t)
		_, _, err := s.Load(t.Context(), images.Request{Path: save(t, b), ID: "x", Limits: images.Limits{Bytes: 4 << 20, Files: 1000}})
		if !says(err, fault.Invalid, "more than 4194304 bytes") {
			t.Errorf("%s of %d bytes: %v", name, len(b), err)
		}
		leftovers(t, folder)
	}
}

// Whatever a layer holds, unpacking it writes below the image's folder only,
// and what is there afterwards are files, folders and links.
func FuzzUnpack(f *testing.F) {
	f.Add(layered(f).layers[1], layered(f).layers[2])
	f.Add(tarOf(f, link("a", "/"), hard("b", "a"), file("a/b", "x")), tarOf(f, file("a/.wh..wh..opq", ""), file(".wh.b", "")))
	f.Add(tarOf(f, link("a", "../.."), dir("a/canary"), file("a/canary/bird", "x")), tarOf(f, file("a/.wh.canary", "")))
	limits := images.Limits{Bytes: 1 << 16, Files: 60}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		folder := filepath.Join(t.TempDir(), "images")
		must(t, os.Mkdir(folder, 0o700))
		alive := canary(t, folder)
		err := images.Unpack(t.Context(), folder, limits, one, two)
		alive()
		if k := fault.KindOf(err); err != nil && k != fault.Invalid {
			t.Errorf("%v: %v", k, err)
		}
		var total int64
		must(t, filepath.Walk(folder, func(p string, st os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			if m := st.Mode().Type(); m != 0 && m != os.ModeDir && m != os.ModeSymlink {
				t.Errorf("%s is %v", p, m)
			}
			if st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
				t.Errorf("%s is %v", p, st.Mode())
			}
			if st.Mode().IsRegular() {
				total += st.Size()
			}
			return nil
		}))
		if total > 3*limits.Bytes {
			t.Errorf("%d bytes of at most %d", total, limits.Bytes)
		}
	})
}

// Random spoiling of a good archive: refused, or the same image.
func TestSpoiled(t *testing.T) {
	t.Parallel()
	b := picture{ref: "x:1", layers: [][]byte{shell(t, file("f", "text"))}, pack: func(_ int, b []byte) []byte { return gz(t, b) }}.oci(t)
	want := map[string]string{"bin": "drwxr-xr-x", "bin/sh": "-rwxr-xr-x not really a shell", "f": "-rw-r--r-- text"}
	s, folder := open(t)
	r := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for i := range 60 {
		c := spoil(b, r.IntN(len(b)))
		if r.IntN(4) == 0 {
			c = c[:r.IntN(len(c))]
		}
		id := fmt.Sprint("x", i)
		_, _, err := s.Load(t.Context(), images.Request{Path: save(t, c), ID: id})
		if err != nil {
			if refused++; fault.KindOf(err) != fault.Invalid {
				t.Errorf("%d: %v", i, err)
			}
			continue
		}
		if got := tree(t, filepath.Join(folder, id, "rootfs")); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d: accepted, and is %v", i, got)
		}
	}
	if refused < 30 {
		t.Errorf("%d of 60 refused", refused)
	}
	leftovers(t, folder)
}
