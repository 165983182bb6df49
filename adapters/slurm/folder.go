package slurm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// folder is the shared directory as this machine sees it. Jobs write there, so
// nothing found there is trusted: links are not followed out of it, and only
// plain files are read. It is safe for concurrent use.
type folder struct {
	base, center string

	mu   sync.Mutex // guards root
	root *os.Root
}

const tombstones = ".forgotten"

// tombstoneAge is how long a tombstone is kept. A job that could still start
// its attempt would have to wait longer in Slurm, after it was canceled.
const tombstoneAge = 30 * 24 * time.Hour

// open returns the center's folder. It is an error if there is none: then
// either nothing has run yet, or the file system is not mounted here.
func (f *folder) open() (*os.Root, error) {
	f.mu.Lock()
	root := f.root
	f.mu.Unlock()
	if root != nil {
		if _, err := root.Stat("."); err == nil {
			return root, nil
		}
	}
	root, err := os.OpenRoot(path.Join(f.base, f.center))
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.root = root // one that was there before is closed by its finalizer, once nobody reads
	return root, nil
}

// list names the attempts that have a folder.
func (f *folder) list() ([]string, error) {
	root, err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close() // read only
	names, err := dir.Readdirnames(-1)
	out := names[:0]
	for _, name := range names {
		if idRule.MatchString(name) {
			out = append(out, name)
		}
	}
	return out, err
}

// read returns what is known of an attempt here.
func (f *folder) read(attempt string) *record {
	r := &record{}
	root, err := f.open()
	if err != nil {
		r.readErr = err
		return r
	}
	was, err := root.Readlink(attempt + "/.started")
	if errors.Is(err, fs.ErrNotExist) {
		return r
	}
	if err != nil {
		r.readErr = err
		return r
	}
	r.started = true
	r.job, r.restarts, r.from = startedJob(was)
	b, err := readFile(root, attempt+"/.told", 64<<10)
	if err == nil {
		r.parseTold(attempt, b)
	}
	b, err = readFile(root, attempt+"/exit", 256)
	if err == nil {
		r.parseExit(string(b))
	}
	if b, err = readFile(root, attempt+"/.times", 256); err == nil && r.ended {
		r.cpu = parseTimes(string(b))
	}
	return r
}

// ready reports whether an attempt's script has come to its command.
func (f *folder) ready(attempt string) bool {
	root, err := f.open()
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // what cannot be looked at is not waited for
	}
	_, err = root.Lstat(attempt + "/.ready")
	return !errors.Is(err, fs.ErrNotExist)
}

// suspended reports whether an attempt's command stands still as asked.
func (f *folder) suspended(attempt string) bool {
	root, err := f.open()
	if err != nil {
		return false
	}
	_, err = root.Lstat(attempt + "/.suspended")
	return err == nil
}

// startedJob reads the job, how often Slurm had put it back, and when it began,
// from the link that says who runs an attempt.
func startedJob(link string) (job, restarts, from int64) {
	parts := strings.Split(link, ":")
	if len(parts) != 4 || parts[0] != "yunhe" {
		return 0, 0, 0
	}
	job, err := strconv.ParseInt(parts[1], 10, 48)
	restarts, err1 := strconv.ParseInt(parts[2], 10, 32)
	from, err2 := strconv.ParseInt(parts[3], 10, 48)
	if errors.Join(err, err1, err2) != nil || job < 0 || restarts < 0 || from < 0 || from > 1<<40 {
		return 0, 0, 0
	}
	return job, restarts, from
}

// parseTold reads what tell wrote.
func (r *record) parseTold(attempt string, b []byte) {
	st := &adapterv1.Status{}
	if proto.Unmarshal(b, st) == nil && st.AttemptId == attempt && st.Phase == adapterv1.Phase_PHASE_ENDED {
		r.kept = st
	}
}

// tell keeps what was told of an attempt's end beside its output, so that a
// later process says the same when Slurm does not know the job any more.
func (f *folder) tell(st *adapterv1.Status) error {
	root, err := f.open()
	if err != nil {
		return err
	}
	b, err := proto.Marshal(st)
	if err != nil {
		return fmt.Errorf("encode the status of %s: %w", st.AttemptId, err)
	}
	name := st.AttemptId + "/.told"
	if err := root.WriteFile(name+".new", b, 0o640); err != nil {
		return err
	}
	return root.Rename(name+".new", name)
}

// parseExit reads "CODE WHY SECONDS LOGBYTES".
func (r *record) parseExit(s string) {
	parts := strings.Fields(s)
	if len(parts) != 4 {
		return
	}
	code, err1 := strconv.ParseUint(parts[0], 10, 8)
	at, err2 := strconv.ParseInt(parts[2], 10, 48)
	size, err3 := strconv.ParseInt(parts[3], 10, 62)
	if errors.Join(err1, err2, err3) != nil || at < 0 || at > 1<<40 || size < 0 {
		return
	}
	switch parts[1] {
	case "done", "stopped", "limit", "nostart":
		r.ended, r.code, r.why, r.at, r.logSize = true, int(code), parts[1], at, size
	}
}

// parseTimes adds up what the shell's times prints of its children, the second
// line: "1m2.345s 0m0.120s".
func parseTimes(s string) int64 {
	lines := strings.Split(s, "\n")
	if len(lines) < 2 {
		return 0
	}
	var sum int64
	for _, one := range strings.Fields(lines[1]) {
		m, sec, ok := strings.Cut(strings.TrimSuffix(one, "s"), "m")
		minutes, err := strconv.ParseInt(m, 10, 32)
		seconds, err2 := strconv.ParseFloat(strings.ReplaceAll(sec, ",", "."), 64)
		if !ok || err != nil || err2 != nil || minutes < 0 || !(seconds >= 0 && seconds < 61) {
			return 0
		}
		sum += minutes*60*second + int64(seconds*second)
	}
	return sum
}

// plain opens a file for reading if it is one: a job may have put a link or a
// pipe in its place.
func plain(root *os.Root, name string) (*os.File, int64, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, 0, err
	}
	if !before.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a plain file", name)
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	now, err := file.Stat()
	if err == nil && !os.SameFile(before, now) {
		err = fmt.Errorf("%s was replaced while it was opened", name)
	}
	if err != nil {
		_ = file.Close() // read only
		return nil, 0, err
	}
	return file, now.Size(), nil
}

func readFile(root *os.Root, name string, limit int64) ([]byte, error) {
	file, _, err := plain(root, name)
	if err != nil {
		return nil, err
	}
	defer file.Close() // read only
	return io.ReadAll(io.LimitReader(file, limit))
}

// log reads a piece of an attempt's output and its size so far.
func (f *folder) log(attempt string, offset, limit int64) (data []byte, size int64, err error) {
	root, err := f.open()
	if err != nil {
		return nil, 0, err
	}
	file, size, err := plain(root, attempt+"/log")
	if err != nil {
		return nil, 0, err
	}
	defer file.Close() // read only
	data = make([]byte, max(0, min(limit, size-offset)))
	n, err := file.ReadAt(data, offset)
	if errors.Is(err, io.EOF) || len(data) == 0 {
		err = nil
	}
	return data[:n], size, err
}

// What a tombstone says of its attempt.
const (
	wasForgotten = "forgotten"
	wasStopped   = "stopped before it was submitted"
)

// buried returns what an attempt's tombstone says, "" if it has none.
func (f *folder) buried(attempt string) string {
	root, err := f.open()
	if err != nil {
		return ""
	}
	if _, err := root.Lstat(tombstones + "/" + attempt); err != nil {
		return ""
	}
	b, err := readFile(root, tombstones+"/"+attempt, 64)
	if err != nil || string(b) != wasStopped {
		return wasForgotten
	}
	return wasStopped
}

// bury deletes what is kept of an attempt and sees to it that it never runs:
// first the tombstone, which the script looks for after it made its link.
func (f *folder) bury(attempt, why string) error {
	root, err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no job has run yet; the folder is for the first one to make, as its user
	}
	if err != nil {
		return err
	}
	if err := root.Mkdir(tombstones, 0o775); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := root.WriteFile(tombstones+"/"+attempt, []byte(why), 0o644); err != nil {
		return err
	}
	return root.RemoveAll(attempt)
}

// sweep removes old tombstones.
func (f *folder) sweep(now time.Time) error {
	root, err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := root.Open(tombstones)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close() // read only
	for {
		entries, err := dir.ReadDir(1000)
		for _, e := range entries {
			info, err := e.Info()
			if err == nil && now.Sub(info.ModTime()) > tombstoneAge {
				if err := root.Remove(tombstones + "/" + e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
