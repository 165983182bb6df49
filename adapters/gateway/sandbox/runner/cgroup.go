//go:build unix

package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Groups are the control groups of one attempt: one per hierarchy on cgroup
// v1, a single one on v2. They hold the command and what it starts, never
// the runner, so that their counters are the command's own.
type Groups struct {
	V2   bool    `json:"v2,omitempty"`
	All  []Group `json:"all"`
	Park string  `json:"park,omitempty"` // v2: the group the runner returns to once the command is inside
}

// Group is one control group and its limits.
type Group struct {
	Path        string    `json:"path"`
	Controllers []string  `json:"controllers"`
	Limits      []Setting `json:"limits,omitempty"`
}

// Setting is a value for a control file. A Late one is written once the
// runner has left the group: on v2 the runner's own threads pass through it
// and would meet a small limit on processes.
type Setting struct {
	File  string `json:"file"`
	Value string `json:"value"`
	Late  bool   `json:"late,omitempty"`
}

// Usage is what the kernel counted for an attempt.
type Usage struct {
	CPUUsec        int64
	MemoryBytes    int64 // now, with page cache and the files of its tmpfs
	MaxMemoryBytes int64
	Pids           int64 // processes and threads now
	OOMKills       int64
	PidsLimitHits  int64
}

// dir is where the controller's files are; "" if the attempt has none.
func (g Groups) dir(controller string) string {
	for _, x := range g.All {
		for _, c := range x.Controllers {
			if c == controller {
				return x.Path
			}
		}
	}
	return ""
}

// create makes the groups and sets their limits. Groups a dead runner of the
// same attempt left behind are taken over: they are empty, it died with its
// process namespace.
func (g Groups) create() error {
	for _, x := range g.All {
		if err := os.Mkdir(x.Path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for _, s := range x.Limits {
			if !s.Late {
				if err := put(filepath.Join(x.Path, s.File), s.Value); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// join moves the calling thread (v1) or process (v2) into the groups. v1
// accepts single threads, which spares the runner from entering.
func (g Groups) join() error {
	file := "tasks"
	if g.V2 {
		file = "cgroup.procs"
	}
	for _, x := range g.All {
		if err := put(filepath.Join(x.Path, file), "0"); err != nil {
			return err
		}
	}
	return nil
}

// leave takes the runner out again on v2 and sets the limits it would have
// met. On v1 the thread that joined has only to end.
func (g Groups) leave() error {
	if g.V2 {
		if err := put(filepath.Join(g.Park, "cgroup.procs"), "0"); err != nil {
			return err
		}
	}
	for _, x := range g.All {
		for _, s := range x.Limits {
			if s.Late {
				if err := put(filepath.Join(x.Path, s.File), s.Value); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Usage reads the counters. A counter this kernel does not have is zero; ok
// is false when there are no groups (any more).
func (g Groups) Usage() (u Usage, ok bool) {
	cpu, mem, pids := g.dir("cpuacct"), g.dir("memory"), g.dir("pids")
	if g.V2 {
		u.CPUUsec, ok = keyed(filepath.Join(g.dir("cpu"), "cpu.stat"), "usage_usec")
		u.MemoryBytes, _ = number(filepath.Join(mem, "memory.current"))
		u.MaxMemoryBytes, _ = number(filepath.Join(mem, "memory.peak"))
		u.OOMKills, _ = keyed(filepath.Join(mem, "memory.events"), "oom_kill")
	} else {
		u.CPUUsec, ok = number(filepath.Join(cpu, "cpuacct.usage"))
		u.CPUUsec /= 1000
		u.MemoryBytes, _ = number(filepath.Join(mem, "memory.usage_in_bytes"))
		u.MaxMemoryBytes, _ = number(filepath.Join(mem, "memory.max_usage_in_bytes"))
		u.OOMKills, _ = keyed(filepath.Join(mem, "memory.oom_control"), "oom_kill")
	}
	u.Pids, _ = number(filepath.Join(pids, "pids.current"))
	u.PidsLimitHits, _ = keyed(filepath.Join(pids, "pids.events"), "max")
	return u, ok
}

// Freeze stops (or continues) every process of the attempt where it is. It
// returns once the kernel has been told; Frozen says when that is done.
func (g Groups) Freeze(on bool) error {
	dir := g.dir("freezer")
	switch {
	case g.V2 && on:
		return put(filepath.Join(dir, "cgroup.freeze"), "1")
	case g.V2:
		return put(filepath.Join(dir, "cgroup.freeze"), "0")
	case on:
		return put(filepath.Join(dir, "freezer.state"), "FROZEN")
	default:
		return put(filepath.Join(dir, "freezer.state"), "THAWED")
	}
}

// Frozen tells whether every process of the attempt stands still.
func (g Groups) Frozen() (bool, error) {
	dir := g.dir("freezer")
	if g.V2 {
		n, ok := keyed(filepath.Join(dir, "cgroup.events"), "frozen")
		if !ok {
			return false, fmt.Errorf("read frozen from %s: %w", filepath.Join(dir, "cgroup.events"), fs.ErrNotExist)
		}
		return n == 1, nil
	}
	b, err := get(filepath.Join(dir, "freezer.state"))
	return strings.TrimSpace(string(b)) == "FROZEN", err
}

// Kill sends SIGKILL to whatever is still inside and waits, a second at
// most, until nothing is. A healthy runner does not need it: its process
// namespace ends with it.
func (g Groups) Kill() error {
	if g.dir("freezer") != "" {
		_ = g.Freeze(false) // v1: a frozen process does not die; fails where the group is gone
	}
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		left := 0
		for _, x := range g.All {
			b, err := get(filepath.Join(x.Path, "cgroup.procs"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			for _, f := range strings.Fields(string(b)) {
				left++
				// 0 is how the kernel shows a process of another namespace.
				if pid, err := strconv.Atoi(f); err == nil && pid > 1 && pid != os.Getpid() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d processes in %s do not end", left, g.All[0].Path)
		}
	}
}

// Remove deletes the groups; they must be empty. On a busy machine a process
// that was waited for may keep its group for a while: Remove tries for some
// seconds.
func (g Groups) Remove() error {
	var first error
	end := time.Now().Add(5 * time.Second)
	for _, x := range g.All {
		err := os.Remove(x.Path)
		for pause := 200 * time.Microsecond; errors.Is(err, syscall.EBUSY) && time.Now().Before(end); pause = min(2*pause, 20*time.Millisecond) {
			time.Sleep(pause)
			err = os.Remove(x.Path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && first == nil {
			first = err
		}
	}
	return first
}

// put writes a control file. It and get use bare system calls: os.File would
// set up polling for them, which costs the runner more than the write.
func put(path, value string) error {
	// No O_CREAT: a missing control file is an error, not a file to make.
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	_, err = syscall.Write(fd, []byte(value))
	syscall.Close(fd)
	if err != nil {
		return fmt.Errorf("write %q to %s: %w", value, path, err)
	}
	return nil
}

func get(path string) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	var all []byte
	for buf := make([]byte, 4096); ; {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return all, nil
		}
		all = append(all, buf[:n]...)
	}
}

func number(path string) (int64, bool) {
	b, err := get(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil
}

// keyed reads the value after key in a file of "key value" lines.
func keyed(path, key string) (int64, bool) {
	b, err := get(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if k, v, _ := strings.Cut(strings.TrimSpace(line), " "); k == key {
			n, err := strconv.ParseInt(v, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
