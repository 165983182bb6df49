package images

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// unpacker puts layers on top of each other.
//
// Two walls keep an archive from writing elsewhere. Every path is resolved
// here, with the image's own folder as the root of links, as the job will see
// it; the result has no links. It is then used through an [os.Root], which
// refuses whatever leads out of its folder.
type unpacker struct {
	ctx    context.Context
	store  *os.Root // DIR
	root   *os.Root // DIR/.tmp-*/rootfs
	tmp    string   // .tmp-*
	limits Limits

	files, bytes int64
	stream       int64 // bytes that came out of packers, padding included
	buffer       []byte

	// parents is where the last file went: files of one folder follow each
	// other.
	parent     *os.Root
	parentPath string
	resolved   map[string]string // folders by how archives call them; emptied when a link comes or goes
	made       map[string]bool   // paths of the present layer, and the folders above them
}

// poolFrom bytes on a file is worth a name in the pool: a smaller one takes
// no more room than the name does.
const poolFrom = 4 << 10

const (
	maxPath  = 4096 // the kernel's bounds
	maxName  = 255
	maxLinks = 40
)

func newUnpacker(ctx context.Context, storeDir, tmp string, limits Limits) (*unpacker, error) {
	store, err := os.OpenRoot(storeDir)
	if err != nil {
		return nil, err
	}
	u := &unpacker{ctx: ctx, store: store, tmp: tmp, limits: limits, resolved: map[string]string{}}
	err = errors.Join(store.Mkdir(path.Join(tmp, rootFolder), 0o755), store.Mkdir(path.Join(tmp, freshFolder), 0o700))
	if err == nil {
		u.root, err = store.OpenRoot(path.Join(tmp, rootFolder))
	}
	if err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

func (u *unpacker) close() {
	for _, r := range []*os.Root{u.parent, u.root, u.store} {
		if r != nil {
			_ = r.Close() // a folder's handle: nothing is written through it
		}
	}
}

// packed bounds what comes out of a packer: a small archive can hold a lot of
// nothing, also between and behind its files.
type packed struct {
	r io.Reader
	u *unpacker
}

func (p packed) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	// A file takes a header, and some more for long names; then there is padding.
	if p.u.stream += int64(n); p.u.stream > p.u.limits.Bytes+p.u.limits.Files*2048+1<<20 {
		return 0, p.u.tooBig()
	}
	if cerr := p.u.ctx.Err(); cerr != nil {
		return 0, cerr
	}
	return n, err
}

func (u *unpacker) tooBig() error {
	return bad("the image unpacks to more than %d bytes (--max-bytes)", u.limits.Bytes)
}

// layer applies one layer, unpacked. whiteouts says that files called .wh.*
// remove those of earlier layers.
func (u *unpacker) layer(r io.Reader, whiteouts bool) error {
	u.made = map[string]bool{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			// The digest is over all of it.
			_, err := io.Copy(io.Discard, r)
			return readError(err)
		}
		if err != nil {
			return readError(err)
		}
		if err := u.entry(h, tr, whiteouts); err != nil {
			return err
		}
	}
}

// readError tells a bad archive from a bad disk.
func readError(err error) error {
	if err == nil {
		return nil
	}
	var path *fs.PathError
	var ours *fault.Error
	if errors.As(err, &path) || errors.As(err, &ours) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return bad("the archive is damaged: %v", err)
}

// about says which file of the archive an error is about.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	if msg, ok := fault.Message(err); ok {
		return fault.New(fault.KindOf(err), "%q: %s", name, msg)
	}
	return fmt.Errorf("unpack %q: %w", name, err)
}

func (u *unpacker) entry(h *tar.Header, r io.Reader, whiteouts bool) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if u.files++; u.files > u.limits.Files {
		return bad("the image has more than %d files (--max-files)", u.limits.Files)
	}
	name, err := cleanName(h.Name)
	if err != nil {
		return err
	}
	if name == "." {
		return nil // the root, which is there
	}
	dir, base := path.Split(name)
	if whiteouts && strings.HasPrefix(base, ".wh.") {
		return about(name, u.whiteout(dir, base))
	}
	if dir, err = u.folder(dir); err != nil {
		return about(name, err)
	}
	at := path.Join(dir, base)
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.makeFolder(at)
	case tar.TypeReg, tar.TypeGNUSparse:
		err = u.file(at, h, r)
	case tar.TypeSymlink:
		err = u.symlink(at, h.Linkname)
	case tar.TypeLink:
		err = u.link(at, h.Linkname)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		// Jobs get a /dev of their own; what images carry there is left over from
		// how they were made.
		if at == "dev" || strings.HasPrefix(at, "dev/") {
			return nil
		}
		return bad("%q is a device or a pipe: images hold files, folders and links only", name)
	default:
		return bad("%q is of an unknown kind (%q)", name, h.Typeflag)
	}
	if err != nil {
		return about(name, err)
	}
	u.mark(at)
	return nil
}

// cleanName returns a name in an archive as a path below the root.
func cleanName(name string) (string, error) {
	if len(name) > maxPath {
		return "", bad("a name of %d bytes is longer than %d", len(name), maxPath)
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return "", bad("%q leads out of the image", name)
		case len(part) > maxName:
			return "", bad("%q has a part longer than %d bytes", name, maxName)
		}
	}
	if strings.ContainsRune(name, 0) {
		return "", bad("%q has a zero byte", name)
	}
	return path.Join(".", strings.TrimLeft(name, "/")), nil
}

func (u *unpacker) mark(p string) {
	for ; p != "." && !u.made[p]; p = path.Dir(p) {
		u.made[p] = true
	}
}

// folder returns the path without links of a folder, which it makes if there
// is none. A file in its place gives way, as in other programs.
func (u *unpacker) folder(dir string) (string, error) {
	dir = path.Clean(dir)
	if real, ok := u.resolved[dir]; ok {
		return real, nil
	}
	real, err := u.walk(dir, func(p string, st fs.FileInfo) error {
		if st != nil {
			if err := u.remove(p); err != nil {
				return err
			}
		}
		if u.files++; u.files > u.limits.Files {
			return bad("the image has more than %d files (--max-files)", u.limits.Files)
		}
		return u.mkdir(p)
	})
	if err != nil {
		return "", err
	}
	u.resolved[dir] = real
	return real, nil
}

// walk resolves p as a process in the image would. repair is called for a
// part that is no folder (st nil: not there).
func (u *unpacker) walk(p string, repair func(p string, st fs.FileInfo) error) (string, error) {
	at := "."
	rest := strings.Split(p, "/")
	for followed := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at) // of "." it is ".": the root is above itself
			continue
		}
		next := path.Join(at, part)
		if len(next) > maxPath {
			return "", bad("the path is longer than %d bytes", maxPath)
		}
		st, err := u.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			st = nil
		case err != nil:
			return "", err
		case st.IsDir():
			at = next
			continue
		case st.Mode()&fs.ModeSymlink != 0:
			if followed++; followed > maxLinks {
				return "", bad("%q leads through more than %d links", p, maxLinks)
			}
			to, err := u.root.Readlink(next)
			if err != nil {
				return "", err
			}
			if strings.HasPrefix(to, "/") {
				at = "."
			}
			rest = append(strings.Split(to, "/"), rest...)
			continue
		}
		if err := repair(next, st); err != nil {
			return "", err
		}
		at = next
	}
	return at, nil
}

// in returns the folder a path without links lies in, and its last part.
func (u *unpacker) in(at string) (*os.Root, string, error) {
	dir, base := path.Split(at)
	dir = path.Clean(dir)
	if u.parent != nil && u.parentPath == dir {
		return u.parent, base, nil
	}
	u.leave()
	r, err := u.root.OpenRoot(dir)
	if err != nil {
		return nil, "", err
	}
	u.parent, u.parentPath = r, dir
	return r, base, nil
}

func (u *unpacker) leave() {
	if u.parent != nil {
		_ = u.parent.Close() // a folder's handle
		u.parent = nil
	}
}

// remove takes away what is at a path without links, if anything.
func (u *unpacker) remove(at string) error {
	st, err := u.root.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.IsDir() {
		u.leave()
	}
	if st.IsDir() || st.Mode()&fs.ModeSymlink != 0 {
		clear(u.resolved)
	}
	return u.root.RemoveAll(at)
}

func (u *unpacker) makeFolder(at string) error {
	if st, err := u.root.Lstat(at); err == nil && st.IsDir() {
		return nil
	}
	if err := u.remove(at); err != nil {
		return err
	}
	return u.mkdir(at)
}

// mkdir makes a folder everyone can read, whatever the umask.
func (u *unpacker) mkdir(at string) error {
	if err := u.root.Mkdir(at, 0o755); err != nil {
		return err
	}
	return u.root.Chmod(at, 0o755)
}

// fileMode is what is kept of permissions: see the package comment.
func fileMode(h *tar.Header) fs.FileMode {
	if h.Mode&0o100 != 0 {
		return 0o755
	}
	return 0o644
}

func (u *unpacker) file(at string, h *tar.Header, r io.Reader) error {
	if h.Size > u.limits.Bytes-u.bytes {
		return u.tooBig()
	}
	if err := u.remove(at); err != nil {
		return err
	}
	dir, base, err := u.in(at)
	if err != nil {
		return err
	}
	mode := fileMode(h)
	f, err := dir.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	sum := sha256.New()
	if u.buffer == nil {
		u.buffer = make([]byte, 256<<10)
	}
	n, err := io.CopyBuffer(io.MultiWriter(f, sum), onlyReader{r}, u.buffer)
	if err == nil && n != h.Size {
		err = io.ErrUnexpectedEOF
	}
	if cerr := f.Chmod(mode); err == nil { // the umask may have taken bits
		err = cerr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return readError(err)
	}
	u.bytes += n
	when := h.ModTime
	if when.Unix() < 0 || when.Unix() > maxTime {
		when = time.Unix(0, 0)
	}
	if err := dir.Chtimes(base, when, when); err != nil {
		return err
	}
	if n < poolFrom {
		return nil
	}
	return u.pool(at, fmt.Sprintf("%x-%d-%o", sum.Sum(nil), when.UnixNano(), mode))
}

// maxTime is the last second every file system can keep, and the pool's names
// in nanoseconds too.
const maxTime = 1 << 33

type onlyReader struct{ io.Reader }

// pool replaces a file just written by the same one that is there already. A
// file that is not goes to the pool once it is durable; until then a link to it
// lies beside the image. That link is made now, because a later layer may put
// another file at the path, and what the pool holds is never looked at again.
func (u *unpacker) pool(at, what string) error {
	sum := sha256.Sum256([]byte(what))
	key := hex.EncodeToString(sum[:])
	fresh := path.Join(u.tmp, freshFolder, key)
	for _, have := range []string{poolName(key), fresh} {
		err := u.store.Link(have, path.Join(u.tmp, rootFolder, at)+poolSuffix)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, syscall.EMLINK), errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENAMETOOLONG):
			return nil // as many links as the file system takes, or the name is taken: it stays a file of its own
		case err != nil:
			return err
		}
		return u.root.Rename(at+poolSuffix, at)
	}
	return u.store.Link(path.Join(u.tmp, rootFolder, at), fresh)
}

func poolName(key string) string { return path.Join(filesPool, key[:2], key[2:]) }

const (
	// poolSuffix is that of a name which exists for a moment only.
	poolSuffix  = ".\x01shared"
	freshFolder = "fresh"
)

// share gives the pool what was new, once it is on the disk.
func (u *unpacker) share() error {
	folder := path.Join(u.tmp, freshFolder)
	d, err := u.store.Open(folder)
	if err != nil {
		return err
	}
	keys, err := d.Readdirnames(-1)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	for _, key := range keys {
		if err := u.store.Mkdir(path.Dir(poolName(key)), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// Another load may have been first.
		if err := u.store.Link(path.Join(folder, key), poolName(key)); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.EMLINK) {
			return err
		}
	}
	return u.store.RemoveAll(folder)
}

func (u *unpacker) symlink(at, to string) error {
	if to == "" || len(to) >= maxPath || strings.ContainsRune(to, 0) {
		return bad("a link's target must be 1 to %d bytes, none of them zero, got %d", maxPath-1, len(to))
	}
	if err := u.remove(at); err != nil {
		return err
	}
	dir, base, err := u.in(at)
	if err != nil {
		return err
	}
	clear(u.resolved)
	// Where it leads is of no interest here: it is resolved inside the image.
	return dir.Symlink(to, base)
}

func (u *unpacker) link(at, to string) error {
	to, err := cleanName(to)
	if err != nil {
		return err
	}
	missing := bad("it is a hard link to %q, which is no file of the image", to)
	dir, base := path.Split(to)
	dir, err = u.walk(dir, func(string, fs.FileInfo) error { return missing })
	if err != nil {
		return err
	}
	target := path.Join(dir, base)
	st, err := u.root.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !st.Mode().IsRegular() && st.Mode()&fs.ModeSymlink == 0 {
		return missing
	}
	if err != nil || target == at {
		return err
	}
	if err := u.remove(at); err != nil {
		return err
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		clear(u.resolved)
	}
	err = u.root.Link(target, at)
	if errors.Is(err, syscall.EMLINK) {
		return bad("it is one hard link more than the file system takes")
	}
	return err
}

// whiteout removes what earlier layers made.
func (u *unpacker) whiteout(dir, base string) error {
	real, err := u.walk(path.Clean(dir), func(string, fs.FileInfo) error { return errAbsent })
	if errors.Is(err, errAbsent) {
		return nil // nothing is there to be removed
	}
	if err != nil {
		return err
	}
	if base == ".wh..wh..opq" {
		return u.empty(real)
	}
	name := strings.TrimPrefix(base, ".wh.")
	if strings.HasPrefix(name, ".wh.") {
		return nil // notes of the program that made the layer
	}
	if name == "" || name == "." || name == ".." {
		return bad("%q removes nothing that has a name", path.Join(dir, base))
	}
	at := path.Join(real, name)
	if u.made[at] {
		return u.empty(at) // what this layer put there stays
	}
	return u.remove(at)
}

var errAbsent = errors.New("absent")

// empty removes what is below at and not from the present layer.
func (u *unpacker) empty(at string) error {
	st, err := u.root.Lstat(at)
	if err != nil || !st.IsDir() {
		return err
	}
	d, err := u.root.Open(at)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	for _, name := range names {
		p := path.Join(at, name)
		if u.made[p] {
			err = u.empty(p)
		} else {
			err = u.remove(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// own are the folders attempts get from the sandbox instead of the image's.
var own = []string{"proc", "dev", "sys", "tmp", "run", "workspace"}

// noShell says why no command can be run in the image, nothing if one can.
func (u *unpacker) noShell() string {
	const none = "it has no /bin/sh, which commands are run by"
	dir, err := u.walk("bin", func(string, fs.FileInfo) error { return errAbsent })
	if err != nil {
		return none
	}
	at := path.Join(dir, "sh")
	for range maxLinks {
		st, err := u.root.Lstat(at)
		if err != nil {
			return none
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			top, _, _ := strings.Cut(at, "/")
			switch {
			case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
				return "its /bin/sh is no program"
			case slices.Contains(own, top):
				return fmt.Sprintf("its /bin/sh is in /%s, which jobs have of their own", top)
			}
			return ""
		}
		to, err := u.root.Readlink(at)
		if err != nil {
			return none
		}
		if !strings.HasPrefix(to, "/") {
			to = path.Join("/", path.Dir(at)) + "/" + to
		}
		head, base := path.Split(filepath.Clean(to))
		if dir, err = u.walk(head, func(string, fs.FileInfo) error { return errAbsent }); err != nil {
			return none
		}
		at = path.Join(dir, base)
	}
	return "its /bin/sh is a link in a circle"
}
