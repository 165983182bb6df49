package runner

import (
	"os"
	"sync"
)

// logWriter keeps the newest bytes of the command's output in files of equal
// size. A write that fails loses those bytes, not the command: they are
// counted and leave a hole of zeros.
type logWriter struct {
	dir      string
	fileSize int64
	keep     int64

	// mu guards what follows: at the end the runner reads it while a copy
	// may still be under way.
	mu    sync.Mutex
	total int64
	file  *os.File
	index int64 // of file
	err   error // first failure
}

func (w *logWriter) write(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(p) > 0 {
		n, at := w.total/w.fileSize, w.total%w.fileSize
		part := p[:min(int64(len(p)), w.fileSize-at)]
		err := w.open(n)
		if err == nil {
			_, err = w.file.WriteAt(part, at)
		}
		if err != nil && w.err == nil {
			w.err = err
		}
		w.total += int64(len(part))
		p = p[len(part):]
	}
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
	if w.file == nil {
		return w.total, w.total, w.err
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
	return w.total, oldest * w.fileSize, w.err
}
