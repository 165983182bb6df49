package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
)

// followPause is how often a waiting LogReader looks for more. Looking costs
// two system calls, so even a thousand followers are no load; a watch per
// file would need one of the few inotify instances a machine has.
const followPause = 50 * time.Millisecond

// chunkBytes is the most a Chunk holds.
const chunkBytes = 64 << 10

// Chunk is a piece of a run's output. Offset counts from the first byte the
// command wrote, kept or not.
type Chunk struct {
	Offset  int64
	Data    []byte // the caller's
	Dropped int64  // bytes before Offset that are no longer kept and were asked for
}

// DropMarker is a line to show in place of n bytes that are not kept.
func DropMarker(n int64) string { return fmt.Sprintf("[%d bytes of output not kept]\n", n) }

// LogReader reads a run's output, standard output and error interleaved as
// the command wrote them. It is for one goroutine.
type LogReader struct {
	run    *Run
	follow bool
	offset int64
	file   *os.File
	index  int64 // of file
	buf    []byte
}

// Log returns a reader from the given offset on, negative meaning 0. With
// follow it waits for more until the run has ended. The caller closes it.
func (r *Run) Log(offset int64, follow bool) *LogReader {
	return &LogReader{run: r, offset: max(0, offset), follow: follow}
}

// Next returns the next piece. It returns io.EOF after the last: with
// follow, once the run has ended and all of its output was returned; else at
// the end of what is there now. The next offset is the Chunk's plus its
// length.
func (l *LogReader) Next(ctx context.Context) (Chunk, error) {
	for {
		// Asked before reading: if it has ended by now, what the read finds
		// is all there will be.
		ended := false
		select {
		case <-l.run.done:
			ended = true
		default:
		}
		c, err := l.read()
		if err != nil || len(c.Data) > 0 {
			return c, err
		}
		if ended || !l.follow {
			return Chunk{}, io.EOF
		}
		t := time.NewTimer(followPause)
		select {
		case <-ctx.Done():
			t.Stop()
			return Chunk{}, ctx.Err()
		case <-l.run.done:
			t.Stop()
		case <-t.C:
		}
	}
}

// Close releases the reader.
func (l *LogReader) Close() error {
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}

// read returns what is there at the offset, nothing if that is the end.
func (l *LogReader) read() (Chunk, error) {
	size := l.run.logFileBytes
	var dropped int64
	for {
		n := l.offset / size
		if l.file == nil || l.index != n {
			if err := l.Close(); err != nil {
				return Chunk{}, err
			}
			f, err := os.Open(runner.LogName(l.run.dir, n))
			if errors.Is(err, fs.ErrNotExist) {
				// Not written yet, or not kept any more: then newer ones are.
				first, _, err := logFiles(l.run.dir, n+1)
				if err != nil || first < 0 {
					return Chunk{}, err
				}
				dropped += first*size - l.offset
				l.offset = first * size
				continue
			}
			if err != nil {
				return Chunk{}, fmt.Errorf("open output of run %s: %w", l.run.id, err)
			}
			l.file, l.index = f, n
		}
		if l.buf == nil {
			l.buf = make([]byte, min(chunkBytes, size))
		}
		k, err := l.file.ReadAt(l.buf[:min(int64(len(l.buf)), (n+1)*size-l.offset)], l.offset%size)
		if err != nil && err != io.EOF {
			return Chunk{}, fmt.Errorf("read output of run %s: %w", l.run.id, err)
		}
		if k == 0 {
			if dropped > 0 {
				l.offset -= dropped // report it with the bytes that follow
			}
			return Chunk{}, nil
		}
		c := Chunk{Offset: l.offset, Data: bytes.Clone(l.buf[:k]), Dropped: dropped}
		l.offset += int64(k)
		return c, nil
	}
}

// logFiles returns the lowest and highest number, from on, of the log files
// in dir; -1 if there is none.
func logFiles(dir string, from int64) (first, last int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return -1, -1, err
	}
	first, last = -1, -1
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), runner.LogPrefix)
		n, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil || n < from {
			continue
		}
		if first < 0 || n < first {
			first = n
		}
		last = max(last, n)
	}
	return first, last, nil
}

// measureLog finds out what a dead runner did not write down.
func measureLog(dir string, fileBytes int64) (total, dropped int64, err error) {
	first, last, err := logFiles(dir, 0)
	if err != nil || last < 0 {
		return 0, 0, err
	}
	st, err := os.Stat(runner.LogName(dir, last))
	if err != nil {
		return 0, 0, err
	}
	return last*fileBytes + st.Size(), first * fileBytes, nil
}
