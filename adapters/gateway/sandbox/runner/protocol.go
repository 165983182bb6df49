package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// Version is the on-disk protocol's. A runner refuses a spec of another
// version; a gateway reads the records of every version up to its own.
//
// Version 2 brought devices, which a runner of version 1 would leave out.
// Version 3 brought pauses that the wall time does not count, and commands
// beside the attempt's own, which a runner ends with it.
// Version 4 brought volumes.
const Version = 4

// execVersion is the first whose runs take commands beside their own.
const execVersion = 3

// The files of an attempt's folder. The runner holds a lock (flock) on the
// folder itself all its life. Log files are LogPrefix plus a number:
// file n holds the output bytes from n*LogFileBytes on, so that a byte's
// place never changes however much was dropped before it.
const (
	SpecFile    = "spec.json" // gateway, before the runner starts
	StartedFile = "started"   // runner, linked, which one of several can, before the command: whoever does may run it
	StopFile    = "stop"      // gateway: the attempt is to stop, whether or not the runner hears the signal
	PauseFile   = "pauses"    // gateway: when it was paused and went on, on the machine's monotonic clock
	ExitFile    = "exit.json" // runner, or the gateway in its place: how it ended; never changed
	LogPrefix   = "log."
)

// Room for the claim and for the record is taken before the runner starts: a
// disk that fills up then keeps nobody from saying what became of the attempt.
// What is not used of it is blank, which readers pass over.
const (
	reserved     = ".new" // after the name of the file it becomes
	reserveBytes = 4096
)

// Reserve takes the room in dir. The gateway calls it before the runner starts.
func Reserve(dir string) error {
	for _, name := range []string{StartedFile, ExitFile} {
		if err := os.WriteFile(filepath.Join(dir, name+reserved), bytes.Repeat([]byte{'\n'}, reserveBytes), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// fill writes what the named file of dir is to hold over the room taken for it
// and returns it open, behind what was written.
func fill(dir, name string, b []byte) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name+reserved), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	whole := append(b[:len(b):len(b)], bytes.Repeat([]byte{'\n'}, max(0, reserveBytes-len(b)))...)
	_, err = f.Write(whole)
	if err == nil {
		err = f.Truncate(int64(len(whole))) // of an attempt to write more
	}
	if err == nil {
		_, err = f.Seek(int64(len(b)), io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Dir is where the command starts, its home and its scratch space.
const Dir = "/workspace"

// Spec says what one attempt runs and within which bounds. The gateway has
// already turned policy into mechanism: a runner adds nothing of its own.
type Spec struct {
	Version      int      `json:"version"`
	ID           string   `json:"id"`
	Argv         []string `json:"argv"` // Argv[0] is looked up in PATH if it has no slash
	Env          []string `json:"env"`
	BesideEnv    []string `json:"beside_env,omitempty"` // of commands beside it; none: Env
	Hostname     string   `json:"hostname"`
	UID          uint32   `json:"uid"` // also the group; unlike any other running attempt's
	Root         []Node   `json:"root"`
	Files        []File   `json:"files,omitempty"` // written below Dir
	DiskBytes    int64    `json:"disk_bytes"`      // size of the root tmpfs
	DiskInodes   int64    `json:"disk_inodes"`
	Devices      []Device `json:"devices,omitempty"`
	Volumes      []Volume `json:"volumes,omitempty"`
	HostNetwork  bool     `json:"host_network,omitempty"`
	Groups       Groups   `json:"groups"`
	OpenFiles    uint64   `json:"open_files"`              // upper bound; never above the host's
	WallTimeUsec int64    `json:"wall_time_usec,omitzero"` // 0: unlimited
	GraceUsec    int64    `json:"grace_usec"`              // between SIGTERM and SIGKILL
	LogFileBytes int64    `json:"log_file_bytes"`
	LogFiles     int      `json:"log_files"` // newest ones kept
}

// A Node is one entry of the root file system besides /proc, /dev, /tmp and
// Dir. Exactly one of Bind, Link and Data says what it is.
type Node struct {
	Path     string `json:"path"`           // absolute, in the new root
	Bind     string `json:"bind,omitempty"` // host path, mounted read-only
	Link     string `json:"link,omitempty"` // symbolic link's target
	Data     string `json:"data,omitempty"` // text of a read-only file
	Over     bool   `json:"over,omitempty"` // Data takes the place of a file of a folder that was bound before
	Optional bool   `json:"optional,omitempty"`
}

// Device is a character device the command may use.
type Device struct {
	Path   string `json:"path"`   // below /dev in the new root
	Source string `json:"source"` // on the host, for who wants to know
	Major  uint32 `json:"major"`
	Minor  uint32 `json:"minor"`
}

// Volume is a folder of the host, or the file system in a file, that the command
// finds in its root. Its owners are mapped by the user namespace the runner is
// given as OwnersFD.
type Volume struct {
	Path     string `json:"path"`
	Source   string `json:"source"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// File is an input the command finds below Dir.
type File struct {
	Path string `json:"path"` // relative, clean
	Data []byte `json:"data"`
	Mode uint32 `json:"mode"` // permission bits
}

// Started is what StartedFile holds: the first line, written before the
// command runs, says who runs it; the second, when it began.
type Started struct {
	PID        int    `json:"pid"`         // of the runner, as the gateway sees it
	StartTicks uint64 `json:"start_ticks"` // field 22 of its /proc/PID/stat: tells a reused PID
	StartedAt  int64  `json:"started_at"`  // unix microseconds; 0 until the command runs
}

// Reason says why an attempt ended. The strings are part of the protocol.
type Reason string

// The reasons.
const (
	Completed    Reason = "completed"     // the command exited with 0
	Exited       Reason = "exit"          // the command exited with another code
	Signaled     Reason = "signal"        // a signal nobody here sent killed the command
	OOM          Reason = "oom"           // it met its memory limit and the kernel killed one of its processes
	WallTime     Reason = "wall_time"     // it was still running at its time limit
	Stopped      Reason = "stopped"       // it was asked to stop
	StartFailed  Reason = "start_failed"  // the command could not be run at all
	Lost         Reason = "lost"          // the runner died; how the command would have ended is unknown
	NeverStarted Reason = "never_started" // the gateway died before the runner began
)

// Exit is how an attempt ended.
type Exit struct {
	Version        int    `json:"version"`
	Reason         Reason `json:"reason"`
	ExitCode       int    `json:"exit_code"` // -1 unless the command exited by itself
	Signal         int    `json:"signal,omitempty"`
	Message        string `json:"message,omitempty"`
	StartedAt      int64  `json:"started_at"` // unix microseconds; 0 if the command never ran
	EndedAt        int64  `json:"ended_at"`   // StartedAt plus the monotonic duration
	CPUUsec        int64  `json:"cpu_usec"`
	MaxMemoryBytes int64  `json:"max_memory_bytes"`
	OOMKills       int64  `json:"oom_kills"`
	PidsLimitHits  int64  `json:"pids_limit_hits"` // forks refused
	OutputBytes    int64  `json:"output_bytes"`    // written by the command
	DroppedBytes   int64  `json:"dropped_bytes"`   // of these, the oldest, no longer kept
}

// WriteExit makes e the record of the attempt in dir, durably: when it
// returns nil, a power failure does not undo it. The caller holds the lock.
func WriteExit(dir string, e *Exit) error {
	e.Version = Version
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := fill(dir, ExitFile, b)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(filepath.Join(dir, ExitFile+reserved), filepath.Join(dir, ExitFile))
	}
	if err == nil {
		err = syncDir(dir)
	}
	return err
}

// ReadExit returns the record of the attempt in dir; the error is
// os.ErrNotExist if there is none.
func ReadExit(dir string) (*Exit, error) {
	b, err := os.ReadFile(filepath.Join(dir, ExitFile))
	if err != nil {
		return nil, err
	}
	e := new(Exit)
	if err := json.Unmarshal(b, e); err != nil {
		return nil, &os.PathError{Op: "decode", Path: filepath.Join(dir, ExitFile), Err: err}
	}
	return e, nil
}

// ReadStarted returns what is known of the attempt's start; the error is
// os.ErrNotExist if no runner has claimed it. A claim whose text a power
// failure cut short is still a claim: its fields are zero.
func ReadStarted(dir string) (Started, error) {
	f, err := os.Open(filepath.Join(dir, StartedFile))
	if err != nil {
		return Started{}, err
	}
	defer f.Close()
	var s Started
	for d := json.NewDecoder(f); d.Decode(&s) == nil; {
	}
	return s, nil
}

// ReadSpec returns the attempt's spec.
func ReadSpec(dir string) (*Spec, error) {
	path := filepath.Join(dir, SpecFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := new(Spec)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, &os.PathError{Op: "decode", Path: path, Err: err}
	}
	return s, nil
}

// LogName is the path of the attempt's log file n.
func LogName(dir string, n int64) string {
	return filepath.Join(dir, LogPrefix+strconv.FormatInt(n, 10))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
