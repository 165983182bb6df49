package sandbox

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

// Spec is one attempt: a command and its bounds. A zero bound means its
// default where one is given; CPUMilli and MemoryBytes have none.
type Spec struct {
	ID        string            // names the attempt for ever: letters, digits, '.', '_', '-', at most 64
	Command   string            // for /bin/sh -c; or
	Args      []string          // a program and its arguments; a name without slash is looked up in PATH
	Env       map[string]string // besides PATH, HOME, TMPDIR and LANG, which it may replace
	BesideEnv map[string]string // in place of Env for commands beside it ([Sandbox.Exec]); nil: Env
	Files     []File            // inputs below the working folder, [runner.Dir]; they use up DiskBytes
	RootFS    string            // folder of an unpacked image, shown read-only; "": the host's own programs
	ImageUser string            // what the image calls its user: the command's user is called so there, or "yunhe"
	Devices   []Device          // of the machine, besides those every run has
	Volumes   []Volume          // folders of the machine it can write to
	Tools     []Tool            // of the gateway, which it finds read-only, also beside an image

	CPUMilli    int64 // thousandths of one CPU, at least 10
	MemoryBytes int64 // at least 4 MiB; includes what lies in the scratch space
	DiskBytes   int64 // scratch space of /tmp, /dev/shm and the working folder together; default 64 MiB
	Pids        int64 // processes and threads, at least 4; default 512
	Network     bool  // use the host's network; else the command has a loopback of its own and nothing else

	WallTime  time.Duration // ended after this long, pauses not counted; 0: never
	StopGrace time.Duration // between SIGTERM and SIGKILL; default 10 s

	LogFileBytes int64 // output is kept in files of this size, at least 4 KiB; default 8 MiB
	LogFiles     int   // of which the newest so many stay; default 4
}

// Tool is a file or folder of this machine, shown at Path, below /run.
type Tool struct{ Path, Source string }

// File is an input: Path is relative to the working folder, Mode its
// permission bits (0: 0644).
type File struct {
	Path string
	Data []byte
	Mode os.FileMode
}

// Bounds of a Spec. Those on texts are the kernel's for one argument; those
// on inputs keep spec.json small enough to be read at every start.
const (
	maxText     = 128<<10 - 1
	maxTexts    = 1 << 20
	maxInputs   = 8 << 20
	maxFiles    = 4096
	minCPU      = 10 // a quota of 1 ms per period, the kernel's least
	maxCPU      = 1 << 20
	minMemory   = 4 << 20
	maxBytes    = 1 << 50
	minPids     = 4
	maxPids     = 1 << 22
	maxDuration = 10 * 365 * 24 * time.Hour
	minLogFile  = 4 << 10
	maxLogFile  = 1 << 30
	maxLogFiles = 1000
)

// withDefaults returns s with its zero bounds filled in.
func (s Spec) withDefaults() Spec {
	for _, d := range []struct {
		to  *int64
		def int64
	}{{&s.DiskBytes, 64 << 20}, {&s.Pids, 512}, {&s.LogFileBytes, 8 << 20}} {
		if *d.to == 0 {
			*d.to = d.def
		}
	}
	if s.StopGrace == 0 {
		s.StopGrace = 10 * time.Second
	}
	if s.LogFiles == 0 {
		s.LogFiles = 4
	}
	return s
}

// Validate returns an Invalid fault that lists every field out of bounds.
func (s Spec) Validate() error {
	var v violations
	if !validID(s.ID) {
		v.add("id", "must be 1 to 64 letters, digits, '.', '_' or '-', not starting with '.' or '-', got %q", s.ID)
	}
	s.validateCommand(&v)
	s.validateFiles(&v)
	s.validateDevices(&v)
	s.validateVolumes(&v)
	for i, t := range s.Tools {
		if filepath.Clean(t.Path) != t.Path || !strings.HasPrefix(t.Path, "/run/") {
			v.add(fmt.Sprintf("tools[%d].path", i), "must be a clean path below /run, got %q", t.Path)
		}
		if !filepath.IsAbs(t.Source) {
			v.add(fmt.Sprintf("tools[%d].source", i), "must be absolute, got %q", t.Source)
		}
	}
	if s.RootFS != "" && (!filepath.IsAbs(s.RootFS) || filepath.Clean(s.RootFS) != s.RootFS || s.RootFS == "/" || strings.ContainsRune(s.RootFS, 0)) {
		v.add("rootfs", "must be a clean absolute path below /, got %q", s.RootFS)
	}
	d := s.withDefaults()
	v.within("cpu_milli", d.CPUMilli, minCPU, maxCPU)
	v.within("memory_bytes", d.MemoryBytes, minMemory, maxBytes)
	v.within("disk_bytes", d.DiskBytes, 64<<10, maxBytes)
	v.within("pids", d.Pids, minPids, maxPids)
	v.within("log_file_bytes", d.LogFileBytes, minLogFile, maxLogFile)
	v.within("log_files", int64(d.LogFiles), 1, maxLogFiles)
	for _, t := range []struct {
		name string
		is   time.Duration
	}{{"wall_time", d.WallTime}, {"stop_grace", d.StopGrace}} {
		if t.is < 0 || t.is > maxDuration {
			v.add(t.name, "must be between 0s and %s, got %s", maxDuration, t.is)
		}
	}
	return fault.Fields(v...)
}

func (s Spec) validateCommand(v *violations) {
	if (s.Command == "") == (len(s.Args) == 0) {
		v.add("command", "exactly one of command and args must be given")
	}
	if len(s.Args) > 0 && s.Args[0] == "" {
		v.add("args[0]", "must not be empty")
	}
	total := 0
	text := func(name, t string) {
		total += len(t) + 1
		if len(t) > maxText {
			v.add(name, "must be at most %d bytes, got %d", maxText, len(t))
		}
		if strings.ContainsRune(t, 0) {
			v.add(name, "must not contain a zero byte")
		}
	}
	text("command", s.Command)
	for i, a := range s.Args {
		text(fmt.Sprintf("args[%d]", i), a)
	}
	env := func(field string, env map[string]string) {
		for k, e := range env {
			if !validEnvName(k) {
				v.add(fmt.Sprintf("%s[%q]", field, k), "must be a name of letters, digits and '_', not starting with a digit")
			}
			text(fmt.Sprintf("%s[%q]", field, k), k+"="+e)
		}
	}
	env("env", s.Env)
	if total > maxTexts {
		v.add("command", "command, arguments and environment must be at most %d bytes together, got %d", maxTexts, total)
	}
	total = 0
	if env("beside_env", s.BesideEnv); total > maxTexts {
		v.add("beside_env", "must be at most %d bytes together, got %d", maxTexts, total)
	}
}

func (s Spec) validateFiles(v *violations) {
	if len(s.Files) > maxFiles {
		v.add("files", "must be at most %d, got %d", maxFiles, len(s.Files))
		return
	}
	total := int64(0)
	given := map[string]bool{}
	for i, f := range s.Files {
		name := fmt.Sprintf("files[%d].path", i)
		total += int64(len(f.Data))
		if f.Path == "" || len(f.Path) > 1024 || path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "." ||
			f.Path == ".." || strings.HasPrefix(f.Path, "../") || strings.ContainsRune(f.Path, 0) {
			v.add(name, "must be a clean path below the working folder, at most 1024 bytes, got %q", f.Path)
		}
		if slices.ContainsFunc(strings.Split(f.Path, "/"), func(part string) bool { return len(part) > 255 }) {
			v.add(name, "must not have a part longer than 255 bytes")
		}
		if given[f.Path] {
			v.add(name, "%q is given twice", f.Path)
		}
		given[f.Path] = true
		if f.Mode&^os.ModePerm != 0 {
			v.add(fmt.Sprintf("files[%d].mode", i), "must be permission bits, got %v", f.Mode)
		}
	}
	for i, f := range s.Files {
		for at, c := range f.Path {
			if c == '/' && given[f.Path[:at]] {
				v.add(fmt.Sprintf("files[%d].path", i), "%q lies below %q, which is a file", f.Path, f.Path[:at])
			}
		}
	}
	if limit := min(maxInputs, s.withDefaults().DiskBytes); total > limit {
		v.add("files", "must hold at most %d bytes together, got %d", limit, total)
	}
}

type violations []fault.Field

func (v *violations) add(field, format string, args ...any) {
	*v = append(*v, fault.Field{Path: field, Problem: fmt.Sprintf(format, args...)})
}

func (v *violations) within(field string, n, lo, hi int64) {
	if n < lo || n > hi {
		v.add(field, "must be between %d and %d, got %d", lo, hi, n)
	}
}

func validID(s string) bool {
	if s == "" || len(s) > 64 || s[0] == '.' || s[0] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

func validEnvName(s string) bool {
	for i, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || i > 0 && '0' <= c && c <= '9') {
			return false
		}
	}
	return s != ""
}

// plan turns a valid Spec into what the runner is told.
func (s Spec) plan(uid uint32, root []runner.Node, devices []runner.Device, volumes []runner.Volume, groups runner.Groups) *runner.Spec {
	s = s.withDefaults()
	argv := s.Args
	if s.Command != "" {
		argv = []string{"/bin/sh", "-c", s.Command}
	}
	// A host name is at most 64 bytes, as is an ID; dots would make it a
	// domain's.
	host := strings.ToLower(strings.NewReplacer(".", "-", "_", "-").Replace(s.ID))
	p := &runner.Spec{
		Version: runner.Version, ID: s.ID, Argv: argv, Env: environment(s.Env), Hostname: host, UID: uid,
		Root:      append(root[:len(root):len(root)], accounts(uid, host, s.RootFS == "")...),
		DiskBytes: s.DiskBytes + skeletonBytes, DiskInodes: s.DiskBytes/4096 + 1024 + int64(len(s.Files)),
		Devices: devices, Volumes: volumes, HostNetwork: s.Network, Groups: groups, OpenFiles: 65536,
		WallTimeUsec: s.WallTime.Microseconds(), GraceUsec: s.StopGrace.Microseconds(),
		LogFileBytes: s.LogFileBytes, LogFiles: s.LogFiles,
	}
	if s.BesideEnv != nil {
		p.BesideEnv = environment(s.BesideEnv)
	}
	for _, t := range s.Tools {
		p.Root = append(p.Root, runner.Node{Path: t.Path, Bind: t.Source})
	}
	for _, f := range s.Files {
		mode := uint32(f.Mode)
		if mode == 0 {
			mode = 0o644
		}
		p.Files = append(p.Files, runner.File{Path: f.Path, Data: f.Data, Mode: mode})
	}
	return p
}

func environment(given map[string]string) []string {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME": runner.Dir, "PWD": runner.Dir, "TMPDIR": "/tmp", "LANG": "C.UTF-8",
	}
	maps.Copy(env, given)
	return sortedPairs(env)
}
