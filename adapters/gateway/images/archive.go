package images

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	_ "crypto/sha512" // digests may use it
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// maxDocument bytes are ample for a manifest or a configuration.
	maxDocument = 4 << 20
	maxLayers   = 512
	maxIndex    = 256 // images an archive may name
	// maxMembers files are in an archive of layers; one with more is a plain
	// one, whose files are not looked up by name.
	maxMembers = 100_000
	// maxWindow bounds the memory a packed archive can make us take.
	maxWindow = 128 << 20
	spoolFile = "archive"
)

// archive is a file of images, or of the files of one.
type archive struct {
	ctx     context.Context
	file    *os.File
	members map[string]member
}

// member is a file in the archive.
type member struct {
	offset, size int64
	link         string // another member it is the same as
}

// source is one image of an archive.
type source struct {
	a       *archive
	ref     string
	format  string
	config  digest.Digest
	image   v1.Image
	layers  []layer
	entries bool // the archive itself is the only layer
}

type layer struct {
	at     member
	name   string
	digest digest.Digest // as packed; empty: not said
}

// openArchive looks through an archive. One that cannot be read at will is
// unpacked into the folder first.
func openArchive(ctx context.Context, r Request, folder string) (*archive, error) {
	a := &archive{ctx: ctx, members: map[string]member{}}
	from := r.Input
	if r.Path != "-" {
		f, err := os.Open(r.Path)
		if err != nil {
			return nil, bad("the archive cannot be read: %v", err)
		}
		from, a.file = f, f
	}
	if err := a.open(from, r.Limits, filepath.Join(folder, spoolFile)); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *archive) close() {
	if a.file != nil {
		_ = a.file.Close() // read only, or deleted
	}
}

func (a *archive) open(from io.Reader, limits Limits, spool string) error {
	in, how, err := unpacked(from)
	if err != nil {
		return err
	}
	defer in.close()
	whole := false
	if a.file != nil && how == plain {
		st, err := a.file.Stat()
		if err != nil {
			return err
		}
		whole = st.Mode().IsRegular()
	}
	if !whole {
		if err := a.spool(in, limits, spool); err != nil {
			return err
		}
	}
	if _, err := a.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return a.scan()
}

// spool unpacks the archive into a file of ours. It can be no larger than
// what may come out of it.
func (a *archive) spool(in stream, limits Limits, to string) error {
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	most := limits.Bytes + limits.Files*2048
	n, err := io.Copy(f, io.LimitReader(canceled{a.ctx, in}, most+1))
	if err == nil && n > most {
		err = bad("the archive unpacks to more than %d bytes (--max-bytes)", limits.Bytes)
	}
	if err != nil {
		return errors.Join(readError(err), f.Close())
	}
	a.close()
	a.file = f
	return nil
}

type canceled struct {
	ctx context.Context
	r   io.Reader
}

func (c canceled) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// scan notes where the members are.
func (a *archive) scan() error {
	tr := tar.NewReader(a.file)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) && n > 0 {
			return a.checkEnd()
		}
		if errors.Is(err, io.EOF) {
			return bad("the archive is empty or no tar archive")
		}
		if err != nil {
			return readError(err)
		}
		if err := a.ctx.Err(); err != nil {
			return err
		}
		if n >= maxMembers {
			continue
		}
		name := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			at, err := a.file.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			a.members[name] = member{offset: at, size: h.Size}
		case tar.TypeSymlink:
			a.members[name] = member{link: path.Join(path.Dir(name), h.Linkname)}
		case tar.TypeLink:
			a.members[name] = member{link: path.Clean(h.Linkname)}
		}
	}
}

// checkEnd makes sure that the archive ends with what ends an archive: one cut
// short between two files reads well until then.
func (a *archive) checkEnd() error {
	at, err := a.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	var last [512]byte
	if _, err := a.file.ReadAt(last[:], at-int64(len(last))); err != nil {
		return err
	}
	if last != [512]byte{} {
		return bad("the archive is damaged: it is cut short")
	}
	return nil
}

// find returns a member by name, following one link: archives of layers use
// that for equal ones.
func (a *archive) find(name string) (member, bool) {
	m, ok := a.members[path.Clean(name)]
	if ok && m.link != "" {
		m, ok = a.members[m.link]
	}
	return m, ok && m.link == ""
}

func (a *archive) reader(m member) io.Reader { return io.NewSectionReader(a.file, m.offset, m.size) }

// document reads a small member.
func (a *archive) document(name string, into any) ([]byte, error) {
	m, ok := a.find(name)
	if !ok {
		return nil, bad("the archive lacks %s", name)
	}
	if m.size > maxDocument {
		return nil, bad("%s has %d bytes, at most %d", name, m.size, maxDocument)
	}
	b, err := io.ReadAll(a.reader(m))
	if err != nil {
		return nil, readError(err)
	}
	if int64(len(b)) != m.size {
		return nil, bad("the archive is cut short in %s", name)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return nil, bad("%s cannot be read: %v", name, err)
	}
	return b, nil
}

// image returns the image called ref, or the only one.
func (a *archive) image(ref string) (*source, error) {
	_, index := a.find(v1.ImageIndexFile)
	_, layout := a.find(v1.ImageLayoutFile)
	if index && layout {
		return a.fromOCI(ref)
	}
	if _, docker := a.find("manifest.json"); docker {
		return a.fromDocker(ref)
	}
	if index || layout {
		return nil, bad("the archive is damaged: of index.json and oci-layout one is there and one is not")
	}
	if ref != "" {
		return nil, bad("the archive is a plain one of files, which names no image, not %q either", ref)
	}
	return &source{a: a, format: "rootfs", entries: true}, nil
}

// candidate is an image of an index.
type candidate struct {
	ref string
	d   v1.Descriptor
}

func (a *archive) fromOCI(ref string) (*source, error) {
	var index v1.Index
	if _, err := a.document(v1.ImageIndexFile, &index); err != nil {
		return nil, err
	}
	found, err := a.candidates(index, "", 0)
	if err != nil {
		return nil, err
	}
	c, err := choose(found, ref, func(c candidate) (string, string) { return c.ref, string(c.d.Digest) })
	if err != nil {
		return nil, err
	}
	var man v1.Manifest
	if err := a.blob(c.d, &man); err != nil {
		return nil, err
	}
	s := &source{a: a, ref: c.ref, format: "oci", config: man.Config.Digest}
	if err := a.blob(man.Config, &s.image); err != nil {
		return nil, err
	}
	for _, l := range man.Layers {
		name, m, err := a.blobMember(l)
		if err != nil {
			return nil, err
		}
		s.layers = append(s.layers, layer{at: m, name: name, digest: l.Digest})
	}
	return s, s.check()
}

// candidates are the images of an index that run here.
func (a *archive) candidates(index v1.Index, ref string, depth int) ([]candidate, error) {
	if depth > 3 || len(index.Manifests) > maxIndex {
		return nil, bad("the index of the archive is deeper than 3 or longer than %d", maxIndex)
	}
	var found []candidate
	for _, d := range index.Manifests {
		name := ref
		for _, key := range []string{"io.containerd.image.name", v1.AnnotationRefName} {
			if name == "" {
				name = d.Annotations[key]
			}
		}
		p := d.Platform
		if d.Annotations["vnd.docker.reference.type"] != "" || p != nil && (p.OS != "linux" || p.Architecture != runtime.GOARCH) {
			continue // a statement about an image, or one for other machines
		}
		switch d.MediaType {
		case v1.MediaTypeImageIndex, "application/vnd.docker.distribution.manifest.list.v2+json":
			var inner v1.Index
			if err := a.blob(d, &inner); err != nil {
				return nil, err
			}
			below, err := a.candidates(inner, name, depth+1)
			if err != nil {
				return nil, err
			}
			found = append(found, below...)
		case v1.MediaTypeImageManifest, "application/vnd.docker.distribution.manifest.v2+json", "":
			found = append(found, candidate{name, d})
		}
	}
	return found, nil
}

// choose returns the one of name ref, or the only one there is. of returns a
// candidate's name and identity.
func choose[T any](found []T, ref string, of func(T) (name, identity string)) (T, error) {
	var names []string
	distinct := map[string]T{}
	for _, c := range found {
		name, identity := of(c)
		if ref != "" && ref != name {
			names = append(names, fmt.Sprintf("%q", name))
			continue
		}
		if _, again := distinct[identity]; !again {
			names = append(names, fmt.Sprintf("%q", name))
			distinct[identity] = c
		}
	}
	var zero T
	switch {
	case len(distinct) == 1:
		for _, c := range distinct {
			return c, nil
		}
	case len(distinct) > 1:
		return zero, bad("the archive holds %d images, say which (--ref): %s", len(distinct), some(names))
	case ref != "" && len(names) > 0:
		return zero, bad("the archive has no image %q, but %s", ref, some(names))
	}
	return zero, bad("the archive has no image for linux/%s", runtime.GOARCH)
}

// blobMember returns where the bytes of a descriptor are.
func (a *archive) blobMember(d v1.Descriptor) (string, member, error) {
	if err := d.Digest.Validate(); err != nil {
		return "", member{}, bad("the digest %q cannot be checked: %v", short(string(d.Digest)), err)
	}
	name := path.Join(v1.ImageBlobsDir, d.Digest.Algorithm().String(), d.Digest.Encoded())
	m, ok := a.find(name)
	if !ok {
		return "", member{}, bad("the archive lacks %s", name)
	}
	if d.Size != m.size {
		return "", member{}, bad("%s has %d bytes, its descriptor says %d", name, m.size, d.Size)
	}
	return name, m, nil
}

// blob reads a document and checks that it is the one meant.
func (a *archive) blob(d v1.Descriptor, into any) error {
	name, _, err := a.blobMember(d)
	if err != nil {
		return err
	}
	b, err := a.document(name, into)
	if err != nil {
		return err
	}
	if d.Digest.Algorithm().FromBytes(b) != d.Digest {
		return bad("%s does not have the digest it is named by", name)
	}
	return nil
}

// dockerImage is an entry of manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (a *archive) fromDocker(ref string) (*source, error) {
	var all []dockerImage
	if _, err := a.document("manifest.json", &all); err != nil {
		return nil, err
	}
	if len(all) > maxIndex {
		return nil, bad("manifest.json names %d images, at most %d", len(all), maxIndex)
	}
	var named []struct {
		tag string
		dockerImage
	}
	for _, m := range all {
		for _, tag := range append(slices.Clone(m.RepoTags), "")[:max(1, len(m.RepoTags))] {
			named = append(named, struct {
				tag string
				dockerImage
			}{tag, m})
		}
	}
	c, err := choose(named, ref, func(c struct {
		tag string
		dockerImage
	}) (string, string) {
		return c.tag, c.Config
	})
	if err != nil {
		return nil, err
	}
	s := &source{a: a, ref: c.tag, format: "docker"}
	b, err := a.document(c.Config, &s.image)
	if err != nil {
		return nil, err
	}
	// The configuration is named by its digest: HEX.json, blobs/sha256/HEX or
	// sha256:HEX, as the program that saved it likes.
	s.config = digest.FromBytes(b)
	if name := strings.TrimPrefix(strings.TrimSuffix(path.Base(c.Config), ".json"), "sha256:"); digest.SHA256.Validate(name) == nil && name != s.config.Encoded() {
		return nil, bad("%s does not have the digest it is named by", c.Config)
	}
	for _, name := range c.Layers {
		m, ok := a.find(name)
		if !ok {
			return nil, bad("the archive lacks %s", name)
		}
		s.layers = append(s.layers, layer{at: m, name: name})
	}
	return s, s.check()
}

// check makes sure that the image can be unpacked here.
func (s *source) check() error {
	ids := s.image.RootFS.DiffIDs
	switch {
	case s.image.RootFS.Type != "layers":
		return bad("the archive holds something else than an image of layers (%q)", s.image.RootFS.Type)
	case len(ids) != len(s.layers):
		return bad("the image has %d layers and %d digests of them", len(s.layers), len(ids))
	case len(ids) == 0 || len(ids) > maxLayers:
		return bad("the image has %d layers, want 1 to %d", len(ids), maxLayers)
	case s.image.OS != "" && s.image.OS != "linux":
		return bad("the image is for %s, this machine runs linux", s.image.OS)
	case s.image.Architecture != "" && s.image.Architecture != runtime.GOARCH:
		return bad("the image is for %s, this machine is %s", s.image.Architecture, runtime.GOARCH)
	}
	for _, id := range ids {
		if err := id.Validate(); err != nil {
			return bad("the digest %q of a layer cannot be checked: %v", short(string(id)), err)
		}
	}
	return nil
}

func (s *source) describe() Image {
	c := s.image.Config
	return Image{
		Ref: s.ref, Digest: string(s.config), Format: s.format, Architecture: s.image.Architecture, Layers: len(s.layers),
		Env: c.Env, WorkingDir: c.WorkingDir, Entrypoint: c.Entrypoint, Cmd: c.Cmd, User: c.User,
	}
}

// unpack applies the layers, each checked to be the one meant.
func (s *source) unpack(u *unpacker, m *Image) error {
	if s.entries {
		whole, err := s.a.file.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		d := digest.SHA256.Digester()
		if err := u.layer(io.TeeReader(packed{s.a.reader(member{size: whole}), u}, d.Hash()), false); err != nil {
			return err
		}
		m.Digest, m.Layers = string(d.Digest()), 1
		return nil
	}
	for i, l := range s.layers {
		if err := s.layer(u, l, s.image.RootFS.DiffIDs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *source) layer(u *unpacker, l layer, id digest.Digest) error {
	raw := s.a.reader(l.at)
	var packedSum digest.Verifier
	if l.digest != "" {
		packedSum = l.digest.Verifier()
		raw = io.TeeReader(raw, packedSum)
	}
	in, _, err := unpacked(raw)
	if err != nil {
		return err
	}
	defer in.close()
	sum := id.Verifier()
	if err := u.layer(io.TeeReader(packed{in, u}, sum), true); err != nil {
		return about(l.name, err)
	}
	if _, err := io.Copy(io.Discard, raw); err != nil { // what the packer left unread
		return err
	}
	if !sum.Verified() || packedSum != nil && !packedSum.Verified() {
		return bad("%s does not have the digest the image says", l.name)
	}
	return nil
}

// packing is how a stream is packed.
type packing int

const (
	plain packing = iota
	gzipped
	zstandard
)

// stream is what comes out of a packer.
type stream struct {
	io.Reader
	close func()
}

// unpacked tells by the first bytes how r is packed, and unpacks it.
func unpacked(r io.Reader) (stream, packing, error) {
	b := bufio.NewReaderSize(r, 256<<10)
	head, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return stream{}, plain, readError(err)
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return stream{}, gzipped, readError(err)
		}
		return stream{z, func() { _ = z.Close() }}, gzipped, nil // it has no more to say than its reads did
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return stream{}, zstandard, readError(err)
		}
		return stream{z, z.Close}, zstandard, nil
	case bytes.HasPrefix(head, []byte("BZh")), bytes.Equal(head, []byte{0xfd, '7', 'z', 'X'}):
		return stream{}, plain, bad("the archive is packed with bzip2 or xz: unpack it first; gzip and zstd are read as they are")
	}
	return stream{b, func() {}}, plain, nil
}
