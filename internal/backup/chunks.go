package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"yunhe.dev/yunhe/internal/fault"
)

// chunkSize is a multiple of the database's pages, so that a page that
// changes changes one chunk.
const chunkSize = 256 << 10

func (r *Repository) chunkPath(sum string) string {
	return filepath.Join(r.dir, "chunks", sum[:2], sum)
}

// chunk reads a chunk and checks it.
func (r *Repository) chunk(sum string) ([]byte, error) {
	packed, err := os.ReadFile(r.chunkPath(sum))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.Internal, "it is missing")
	}
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "it cannot be read")
	}
	body, err := unpacker.DecodeAll(packed, nil)
	if err != nil || hexSum(body) != sum {
		return nil, fault.New(fault.Internal, "its checksum is wrong")
	}
	return body, nil
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

var (
	packer, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	// A chunk cannot unpack to more than chunkSize.
	unpacker, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(chunkSize), zstd.WithDecoderConcurrency(0))
)

// writing keeps chunks for one snapshot. It is safe for concurrent use.
type writing struct {
	r *Repository
	// anew writes chunks that are there already.
	anew bool

	mu     sync.Mutex
	known  map[string]bool // chunks met by this snapshot
	fresh  []string        // paths of files written
	bytes  atomic.Int64    // read
	chunks int64           // new
	stored int64           // new, compressed
}

// put keeps one chunk and returns its name.
func (w *writing) put(body []byte) (string, error) {
	sum := hexSum(body)
	w.mu.Lock()
	met := w.known[sum]
	w.known[sum] = true
	w.mu.Unlock()
	if met {
		return sum, nil
	}
	path := w.r.chunkPath(sum)
	if _, err := os.Stat(path); err == nil && !w.anew {
		return sum, nil
	}
	packed := packer.EncodeAll(body, nil)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", w.r.failed(err)
	}
	tmp := filepath.Join(w.r.dir, "tmp", sum)
	if err := os.WriteFile(tmp, packed, 0o600); err != nil {
		return "", w.r.failed(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return "", w.r.failed(err)
	}
	w.mu.Lock()
	w.fresh = append(w.fresh, path)
	w.chunks += int64(len(body))
	w.stored += int64(len(packed))
	w.mu.Unlock()
	return sum, nil
}

// file keeps what src gives and returns the names of its chunks.
func (w *writing) file(ctx context.Context, src io.Reader) (chunks []string, size int64, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.NumCPU())
	var names []*string
	for {
		body := make([]byte, chunkSize)
		n, err := io.ReadFull(src, body)
		if n > 0 {
			name := new(string)
			names, size = append(names, name), size+int64(n)
			w.bytes.Add(int64(n))
			g.Go(func() (err error) {
				*name, err = w.put(body[:n])
				return err
			})
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, 0, errors.Join(err, g.Wait())
		}
	}
	if err := g.Wait(); err != nil {
		return nil, 0, err
	}
	for _, name := range names {
		chunks = append(chunks, *name)
	}
	return chunks, size, nil
}

// sync brings what was written to the disk.
func (w *writing) sync() error {
	var g errgroup.Group
	g.SetLimit(8)
	folders := map[string]bool{filepath.Join(w.r.dir, "chunks"): true}
	for _, path := range w.fresh {
		folders[filepath.Dir(path)] = true
		g.Go(func() error { return flush(path) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for dir := range folders {
		if err := flush(dir); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repository) failed(err error) error {
	return fault.Wrap(fault.Unavailable, err, "the backup %s cannot be written", r.dir)
}

// write makes a file whole or not at all.
func (r *Repository) write(path string, body []byte) error {
	tmp := filepath.Join(r.dir, "tmp", filepath.Base(path))
	if err := os.WriteFile(tmp, body, 0o600); err != nil {
		return r.failed(err)
	}
	if err := flush(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return r.failed(err)
	}
	return flush(filepath.Dir(path))
}

// eachChunk calls f for each chunk there is.
func (r *Repository) eachChunk(ctx context.Context, f func(sum, path string, size int64) error) error {
	return filepath.WalkDir(filepath.Join(r.dir, "chunks"), func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return f(d.Name(), path, info.Size())
	})
}

// empty empties a folder.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("clear %s: %w", dir, err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("clear %s: %w", dir, err)
		}
	}
	return nil
}

// flush brings a file or a folder to the disk.
func flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return errors.Join(f.Sync(), f.Close())
}
