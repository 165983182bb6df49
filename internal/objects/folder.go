package objects

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// trailerSize is fixed so that List knows sizes without opening files.
const trailerSize = 256

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// formatTrailer returns the text that follows an object's content. Its length
// cannot exceed trailerSize: 24 + 20 + 8 + MaxContentType + the words.
func formatTrailer(size int64, crc uint32, contentType string) []byte {
	t := fmt.Appendf(nil, "\nyunhe object 1 size=%d crc32c=%08x type=%s", size, crc, contentType)
	for len(t) < trailerSize-1 {
		t = append(t, ' ')
	}
	return append(t, '\n')
}

func parseTrailer(t []byte) (size int64, crc uint32, contentType string, err error) {
	var rest string
	head, rest, ok := strings.Cut(string(t), " type=")
	if !ok {
		return 0, 0, "", errors.New("has no trailer")
	}
	if _, err := fmt.Sscanf(head, "\nyunhe object 1 size=%d crc32c=%x", &size, &crc); err != nil {
		return 0, 0, "", fmt.Errorf("has a damaged trailer: %w", err)
	}
	return size, crc, strings.TrimRight(rest, " \n"), nil
}

// folder keeps objects in files.
type folder struct {
	root    string
	objects string
	tmp     string
}

// orphanAge is how long an unlocked file in tmp is left alone: its writer may
// be about to lock it.
const orphanAge = time.Minute

func openFolder(root string) (*folder, error) {
	f := &folder{root: root, objects: filepath.Join(root, "objects"), tmp: filepath.Join(root, "tmp")}
	for _, dir := range []string{f.objects, f.tmp} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission) {
				return nil, fault.Wrap(fault.Invalid, err, "object folder %q cannot be used", root)
			}
			return nil, fmt.Errorf("create object folder: %w", err)
		}
	}
	if err := syncDir(root); err != nil {
		return nil, fmt.Errorf("sync object folder: %w", err)
	}
	return f, f.sweep()
}

// sweep removes what killed writers left in tmp. A living writer, in whatever
// process, holds a lock on its file.
func (f *folder) sweep() error {
	entries, err := os.ReadDir(f.tmp)
	if err != nil {
		return fmt.Errorf("sweep object folder: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < orphanAge {
			continue
		}
		path := filepath.Join(f.tmp, e.Name())
		file, err := os.Open(path)
		if err != nil {
			continue // its writer has just finished
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			err = os.Remove(path)
		}
		file.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweep object folder: %w", err)
		}
	}
	return nil
}

func (f *folder) path(key string) string { return filepath.Join(f.objects, filepath.FromSlash(key)) }

func (f *folder) Put(ctx context.Context, key string, r io.Reader, size int64, contentType string) (Info, error) {
	return f.write(ctx, key, r, size, contentType, os.Rename)
}

func (f *folder) Create(ctx context.Context, key string, r io.Reader, size int64, contentType string) (Info, error) {
	// Spare the upload if the answer is known; link decides.
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	if info, err := os.Lstat(f.path(key)); err == nil && info.Mode().IsRegular() {
		return Info{}, exists(key)
	}
	return f.write(ctx, key, r, size, contentType, os.Link)
}

// write stores an object; place moves the finished file to its name.
func (f *folder) write(ctx context.Context, key string, r io.Reader, size int64, contentType string,
	place func(from, to string) error,
) (Info, error) {
	if err := checkPut(key, size, contentType); err != nil {
		return Info{}, err
	}
	if contentType == "" {
		contentType = DefaultContentType
	}

	// 1. Write and sync a file that nobody sees.
	tmp, err := os.CreateTemp(f.tmp, "put-*")
	if err != nil {
		return Info{}, f.failed(err, "create file for", key)
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := syscall.Flock(int(tmp.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return Info{}, f.failed(err, "lock file for", key)
	}
	src := &source{ctx: ctx, r: r, key: key, size: size}
	sum := crc32.New(castagnoli)
	n, err := io.CopyBuffer(io.MultiWriter(tmp, sum), onlyReader{src}, make([]byte, 128<<10))
	if err != nil {
		if src.failed() != nil {
			return Info{}, src.failed()
		}
		return Info{}, f.failed(err, "write", key)
	}
	if _, err := tmp.Write(formatTrailer(n, sum.Sum32(), contentType)); err != nil {
		return Info{}, f.failed(err, "write", key)
	}
	if err := tmp.Sync(); err != nil {
		return Info{}, f.failed(err, "sync", key)
	}
	info, err := tmp.Stat()
	if err != nil {
		return Info{}, f.failed(err, "stat", key)
	}

	// 2. Give it its name, and make the name last.
	if err := f.place(key, tmp.Name(), place); err != nil {
		return Info{}, err
	}
	return Info{Key: key, Size: n, Modified: info.ModTime().UTC(), ContentType: contentType}, nil
}

// onlyReader keeps io.CopyBuffer from finding other methods and so from
// passing over source's checks.
type onlyReader struct{ io.Reader }

// place moves the file at from to the name of key. A concurrent Delete may
// remove a parent that we have just made, so it tries again; each further
// attempt needs another Delete to hit the same gap.
func (f *folder) place(key, from string, move func(from, to string) error) error {
	to := f.path(key)
	var err error
	for range 100 {
		if err = f.makeDirs(filepath.Dir(to)); err == nil {
			err = move(from, to)
		}
		if err == nil {
			if err = syncDir(filepath.Dir(to)); err == nil || errors.Is(err, fs.ErrNotExist) {
				return nil // not there: deleted again at once, and its folder with it
			}
			return f.failed(err, "sync folder of", key)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if errors.Is(err, syscall.ENOTDIR) {
			return crossed(key)
		}
		info, lerr := os.Lstat(to)
		switch {
		case lerr == nil && info.IsDir():
			// Folders that a kill left empty are not in anyone's way.
			if !removeEmpty(to) {
				return crossed(key)
			}
		case errors.Is(err, fs.ErrExist):
			return exists(key)
		default:
			return f.failed(err, "name", key)
		}
	}
	return f.failed(err, "name", key)
}

// makeDirs is MkdirAll with every new entry synced into its parent.
func (f *folder) makeDirs(dir string) error {
	err := os.Mkdir(dir, 0o700)
	switch {
	case err == nil:
		return syncDir(filepath.Dir(dir))
	case errors.Is(err, fs.ErrExist):
		if info, err := os.Stat(dir); err == nil && !info.IsDir() {
			return syscall.ENOTDIR
		}
		return nil
	case errors.Is(err, fs.ErrNotExist) && dir != f.objects:
		if err := f.makeDirs(filepath.Dir(dir)); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return syncDir(filepath.Dir(dir))
	}
	return err
}

// removeEmpty removes dir if it holds no file at any depth.
func removeEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	for _, e := range entries {
		if !e.IsDir() || !removeEmpty(filepath.Join(dir, e.Name())) {
			return false
		}
	}
	err = syscall.Rmdir(dir)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (f *folder) Stat(ctx context.Context, key string) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	file, info, _, err := f.open(key)
	if err != nil {
		return Info{}, err
	}
	file.Close()
	return info, nil
}

// open opens the file of an object and reads its trailer.
func (f *folder) open(key string) (*os.File, Info, uint32, error) {
	file, err := os.Open(f.path(key))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, Info{}, 0, notFound(key)
	}
	if err != nil {
		return nil, Info{}, 0, f.failed(err, "open", key)
	}
	info, crc, err := f.describe(file, key)
	if err != nil {
		file.Close()
		return nil, Info{}, 0, err
	}
	return file, info, crc, nil
}

func (f *folder) describe(file *os.File, key string) (Info, uint32, error) {
	st, err := file.Stat()
	if err != nil {
		return Info{}, 0, f.failed(err, "stat", key)
	}
	if st.IsDir() {
		return Info{}, 0, notFound(key)
	}
	var t [trailerSize]byte
	if _, err := file.ReadAt(t[:], max(0, st.Size()-trailerSize)); err != nil {
		return Info{}, 0, fmt.Errorf("file of object %q is damaged: read trailer: %w", key, err)
	}
	size, crc, contentType, err := parseTrailer(t[:])
	if err != nil {
		return Info{}, 0, fmt.Errorf("file of object %q %w", key, err)
	}
	if size+trailerSize != st.Size() {
		return Info{}, 0, fmt.Errorf("file of object %q is damaged: it has %d bytes, its trailer says %d", key, st.Size(), size+trailerSize)
	}
	return Info{Key: key, Size: size, Modified: st.ModTime().UTC(), ContentType: contentType}, crc, nil
}

func (f *folder) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, Info, error) {
	if err := checkRange(key, offset, length); err != nil {
		return nil, Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return nil, Info{}, err
	}
	file, info, crc, err := f.open(key)
	if err != nil {
		return nil, Info{}, err
	}
	if offset > info.Size {
		file.Close()
		return nil, Info{}, pastEnd(key, offset, info.Size)
	}
	left := info.Size - offset
	if length >= 0 {
		left = min(left, length)
	}
	return &fileReader{
		ctx: ctx, file: file, r: io.NewSectionReader(file, offset, left), left: left,
		key: key, whole: left == info.Size, want: crc,
	}, info, nil
}

// fileReader reads a range of an object, and checks it if it is the whole.
type fileReader struct {
	ctx   context.Context
	file  *os.File
	r     io.Reader
	left  int64
	key   string
	whole bool
	want  uint32
	sum   uint32
}

func (r *fileReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(p)
	r.left -= int64(n)
	if r.whole {
		r.sum = crc32.Update(r.sum, castagnoli, p[:n])
	}
	if err == io.EOF && r.left > 0 {
		return n, fmt.Errorf("file of object %q is damaged: %d bytes are missing", r.key, r.left)
	}
	if err == io.EOF && r.whole && r.sum != r.want {
		return n, fmt.Errorf("file of object %q is damaged: checksum is %08x, its trailer says %08x", r.key, r.sum, r.want)
	}
	return n, err
}

func (r *fileReader) Close() error { return r.file.Close() }

func (f *folder) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	path := f.path(key)
	// Not os.Remove, which would take an empty directory for an object.
	err := syscall.Unlink(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR),
		errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EPERM) && isDir(path):
		return nil
	case err != nil:
		return f.failed(err, "delete", key)
	}
	if err := syncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f.failed(err, "sync folder of", key)
	}
	// Rmdir refuses a directory with anything in it, so this races with nobody.
	for dir := filepath.Dir(path); dir != f.objects; dir = filepath.Dir(dir) {
		if syscall.Rmdir(dir) != nil {
			break
		}
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

func (f *folder) List(ctx context.Context, prefix, after string, limit int) ([]Info, error) {
	if err := checkList(prefix, after, limit); err != nil {
		return nil, err
	}
	l := &lister{ctx: ctx, prefix: prefix, after: after, limit: limit}
	base := prefix[:strings.LastIndexByte(prefix, '/')+1]
	if err := l.walk(f.path(base), base); err != nil {
		return nil, err
	}
	return l.found, nil
}

// lister walks the folder in the order of keys.
type lister struct {
	ctx    context.Context
	prefix string
	after  string
	limit  int
	found  []Info
}

// walk lists dir, whose keys begin with base. A directory takes part in the
// order with its slash ("a-b" < "a/b"), as its keys do.
func (l *lister) walk(dir, base string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list objects: %w", err)
	}
	entries, err := d.ReadDir(-1)
	d.Close()
	if errors.Is(err, syscall.ENOTDIR) {
		return nil // the prefix names an object and a slash
	}
	if err != nil {
		return fmt.Errorf("list objects: %w", err)
	}
	// A heap, because a page is often a small part of a large directory.
	var h entryHeap
	for _, e := range entries {
		key := base + e.Name()
		if e.IsDir() {
			key += "/"
			if (strings.HasPrefix(key, l.prefix) || strings.HasPrefix(l.prefix, key)) &&
				(key > l.after || strings.HasPrefix(l.after, key)) {
				h = append(h, entry{key, e})
			}
		} else if strings.HasPrefix(key, l.prefix) && key > l.after {
			h = append(h, entry{key, e})
		}
	}
	heap.Init(&h)
	for len(h) > 0 && len(l.found) < l.limit {
		e := heap.Pop(&h).(entry)
		if e.IsDir() {
			if err := l.walk(filepath.Join(dir, e.Name()), e.key); err != nil {
				return err
			}
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return fmt.Errorf("list objects: %w", err)
		}
		l.found = append(l.found, Info{Key: e.key, Size: max(0, info.Size()-trailerSize), Modified: info.ModTime().UTC()})
	}
	return nil
}

type entry struct {
	key string
	fs.DirEntry
}

type entryHeap []entry

func (h entryHeap) Len() int           { return len(h) }
func (h entryHeap) Less(i, j int) bool { return h[i].key < h[j].key }
func (h entryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *entryHeap) Push(x any)        { *h = append(*h, x.(entry)) }
func (h *entryHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// failed classifies an error of the file system.
func (f *folder) failed(err error, verb, key string) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fault.Wrap(fault.Exhausted, err, "object %q cannot be stored: the object folder is full", key)
	}
	return fmt.Errorf("%s object %q: %w", verb, key, err)
}
