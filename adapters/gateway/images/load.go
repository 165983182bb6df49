package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// Limits bound what an archive may unpack to.
type Limits struct {
	Bytes int64 // of all files together
	Files int64 // files, folders and links, also those a later layer removes
}

// DefaultLimits are ample for the largest images in common use (some 30 GiB
// and 300,000 files) and small beside a machine that runs them.
var DefaultLimits = Limits{Bytes: 64 << 30, Files: 1_000_000}

// Request says what to load.
type Request struct {
	Path   string // of the archive; "-" is Input
	Input  io.Reader
	ID     string // empty: made from the name the archive gives the image
	Ref    string // which image of the archive; empty: its only one
	Limits Limits // zero: DefaultLimits
}

// Load unpacks an archive and returns its image, and whether it is new: the
// same image under the same ID is there already and nothing is done. It
// returns Invalid for an archive that is damaged, does not match its digests,
// is for another kind of machine or is over a limit, Conflict if the ID is
// another image's, and Unavailable or Exhausted if the disk refuses. After an
// error, or a death in the middle, nothing is left that counts.
func (s *Store) Load(ctx context.Context, r Request) (m Image, loaded bool, err error) {
	r.Limits.Bytes = cmp.Or(r.Limits.Bytes, DefaultLimits.Bytes)
	r.Limits.Files = cmp.Or(r.Limits.Files, DefaultLimits.Files)
	if r.ID != "" {
		if err := CheckID(r.ID); err != nil {
			return Image{}, false, err
		}
	}
	dir, held, err := s.workspace(ctx)
	if err != nil {
		return Image{}, false, refused(err, "nothing can be loaded into %s", s.dir)
	}
	defer func() {
		err = errors.Join(err, os.RemoveAll(dir), held.Close()) // dir is gone by its name if all went well
	}()
	m, loaded, err = s.load(ctx, r, dir)
	if err != nil {
		return Image{}, false, refused(err, "%s cannot be loaded", r.Path)
	}
	return m, loaded, nil
}

// refused gives errors of the machine a kind.
func refused(err error, format string, args ...any) error {
	switch {
	case fault.KindOf(err) != fault.Internal, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.Wrap(fault.Exhausted, err, format+": the disk is full", args...)
	}
	return fault.Wrap(fault.Unavailable, err, format, args...)
}

// bad says what is wrong with an archive.
func bad(format string, args ...any) error { return fault.New(fault.Invalid, format, args...) }

func (s *Store) load(ctx context.Context, r Request, dir string) (Image, bool, error) {
	// 1. What the archive holds.
	a, err := openArchive(ctx, r, dir)
	if err != nil {
		return Image{}, false, err
	}
	defer a.close()
	src, err := a.image(r.Ref)
	if err != nil {
		return Image{}, false, err
	}
	m := src.describe()
	if m.ID, err = chooseID(r.ID, m.Ref); err != nil {
		return Image{}, false, err
	}
	// A plain archive's digest is known once it has been read.
	if have, err := s.Get(m.ID); err == nil && m.Digest != "" {
		return same(have, m)
	}

	// 2. Unpack. The files other images have are linked to, so they stay
	// until this is over.
	pool, err := lockFolderOfFiles(s.dir)
	if err != nil {
		return Image{}, false, err
	}
	defer func() { _ = pool.Close() }() // empty
	u, err := newUnpacker(ctx, s.dir, filepath.Base(dir), r.Limits)
	if err != nil {
		return Image{}, false, err
	}
	defer u.close()
	if err := src.unpack(u, &m); err != nil {
		return Image{}, false, err
	}
	m.Files, m.Bytes, m.Version, m.LoadedAt = u.files, u.bytes, version, time.Now().UTC().Truncate(time.Second)
	m.NoShell = u.noShell()

	// 3. Make it durable, then visible.
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return Image{}, false, err
	}
	if err := os.WriteFile(filepath.Join(dir, recordFile), b, 0o600); err != nil {
		return Image{}, false, err
	}
	if err := os.Remove(filepath.Join(dir, spoolFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Image{}, false, err
	}
	if err := syncTree(dir); err != nil {
		return Image{}, false, err
	}
	if err := u.share(); err != nil {
		return Image{}, false, err
	}
	err = os.Rename(dir, filepath.Join(s.dir, m.ID))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		have, err := s.Get(m.ID)
		if err != nil {
			return Image{}, false, err
		}
		return same(have, m)
	}
	if err != nil {
		return Image{}, false, err
	}
	return m, true, syncFolder(s.dir)
}

// same says that an image is there already, or another one of its name.
func same(have, m Image) (Image, bool, error) {
	if have.Digest != m.Digest {
		return Image{}, false, fault.New(fault.Conflict, "another image is called %s already (%s; this one is %s): remove it first or choose another ID",
			have.ID, short(have.Digest), short(m.Digest))
	}
	return have, false, nil
}

func short(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }

// chooseID returns the ID asked for, else one made from the image's name:
// "registry.example.com/team/tool:1.2" is "tool-1.2".
func chooseID(id, ref string) (string, error) {
	if id != "" {
		return id, nil
	}
	name, _, _ := strings.Cut(ref, "@")
	name = name[strings.LastIndexByte(name, '/')+1:]
	id = strings.TrimSuffix(strings.ReplaceAll(name, ":", "-"), "-latest")
	if strings.Trim(id, "v.0123456789") == "" || id == "latest" { // nothing, or a tag without a name
		return "", bad("the archive does not name its image: give it an ID (--id)")
	}
	if err := CheckID(id); err != nil {
		return "", bad("%q, made from the image's name %q, cannot be an ID: give it one (--id)", id, ref)
	}
	return id, nil
}

// lockFolderOfFiles keeps the pool of files from being cleared.
func lockFolderOfFiles(dir string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Join(dir, filesPool), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, filesPool+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, lockShared); err != nil {
		_ = f.Close() // empty
		return nil, err
	}
	return f, nil
}
