package runner

import (
	"fmt"
	"os"
	"sync"
)

// logWriter keeps the newest bytes of the command's output in files of equal
// size. A write that fails loses those bytes, not the command: once writing
// works again a line in their place says how many they were.
type logWriter struct {
	dir      string
	fileSize int64
	keep     int64

	// mu guards what follows: at the end the runner reads it while a copy
	// may still be under way.
	mu    sync.Mutex
	total int64 // kept, or deleted since
	lost  int64 // after these, not told of yet
	file  *os.File
	index int64 // of file
	err   error // first failure
}

func (w *logWriter) write(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell()
	if w.lost == 0 {
		p = p[w.put(p):]
	}
	w.lost += int64(len(p))
}

// tell writes how much was lost, if anything was and if that can be written.
func (w *logWriter) tell() {
	if w.lost == 0 {
		return
	}
	if text := fmt.Appendf(nil, "[%d bytes of output were lost: they could not be written]\n", w.lost); w.put(text) == len(text) {
		w.lost = 0
	}
}

// put returns how much of p is written.
func (w *logWriter) put(p []byte) (n int) {
	for n < len(p) {
		i, at := w.total/w.fileSize, w.total%w.fileSize
		err := w.open(i)
		k := 0
		if err == nil {
			k, err = w.file.WriteAt(p[n:n+int(min(int64(len(p)-n), w.fileSize-at))], at)
		}
		n += k
		w.total += int64(k)
		if err != nil {
			if w.err == nil {
				w.err = err
			}
			return n
		}
	}
	return n
}

// open makes file n the current one and deletes the one that leaves the
// window. The first byte opens the first file: no output, no file.
func (w *logWriter) open(n int64) error {
	if w.file != nil && w.index == n {
		return nil
	}
	f, err := os.OpenFile(LogName(w.dir, n), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if w.file != nil {
		w.file.Close() // its bytes are with the kernel; sync opens it again if it is still kept at the end
	}
	w.file, w.index = f, n
	if old := n - w.keep; old >= 0 {
		_ = os.Remove(LogName(w.dir, old))
	}
	return nil
}

// finish makes what is kept durable and returns how much was written and how
// much of it is gone.
func (w *logWriter) finish() (total, dropped int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell()
	if w.file == nil {
		return w.total + w.lost, w.total + w.lost, w.err
	}
	oldest := max(0, w.index-w.keep+1)
	for n := oldest; n < w.index; n++ {
		if f, err := os.OpenFile(LogName(w.dir, n), os.O_RDWR, 0); err == nil {
			if err := f.Sync(); err != nil && w.err == nil {
				w.err = err
			}
			f.Close()
		}
	}
	if err := w.file.Sync(); err != nil && w.err == nil {
		w.err = err
	}
	return w.total + w.lost, oldest * w.fileSize, w.err
}
