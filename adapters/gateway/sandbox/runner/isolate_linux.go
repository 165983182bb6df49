package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/adapters/gateway/loopfs"
	"yunhe.dev/yunhe/internal/seccomp"
)

// launch runs the command isolated and returns its process id (in this
// namespace) and when it began. All of it happens on one thread that is
// thrown away afterwards: on Linux a mount namespace, a user and a system
// call filter belong to the thread, and a child inherits those of the thread
// that forked it. The runner's other threads stay on the host, where their
// folder is. The command runs only once ready has given nil.
func launch(s *Spec, output *os.File, ready <-chan error, now func() int64) (pid int, at int64, err error) {
	type result struct {
		pid int
		at  int64
		err error
	}
	done := make(chan result)
	var body func()
	body = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			// The process's first thread cannot end; leave it as it is and
			// take another. It waits in the channel it never receives from.
			go body()
			select {}
		}
		var r result
		if r.err = enter(s); r.err == nil {
			r.pid, r.at, r.err = start(s, output, ready, now)
		}
		done <- r
	}
	go body()
	r := <-done
	return r.pid, r.at, r.err
}

// enter gives the calling thread its own view of the machine.
func enter(s *Spec) error {
	// 1. Namespaces. The process namespace is the runner's own already, made
	// by the gateway; the control group one comes after joining the groups,
	// because the group at that time becomes its root.
	flags := unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if !s.HostNetwork {
		flags |= unix.CLONE_NEWNET
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if !s.HostNetwork {
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("bring up lo: %w", err)
		}
	}
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	unix.Umask(0o022) // modes below are meant as written with it: files 0644, folders 0755

	// 2. A tmpfs becomes the root. It is mounted on a folder every Linux has;
	// nothing outside this thread sees it.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	const base = "/proc"
	opts := fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", s.DiskBytes, s.DiskInodes)
	if err := mountAt("tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		return err
	}
	if err := unix.Chdir(base); err != nil {
		return fmt.Errorf("chdir to new root: %w", err)
	}
	if err := populate(s); err != nil {
		return err
	}

	// 3. From here on the command's limits count: what came before is ours.
	if err := s.Groups.join(); err != nil {
		return fmt.Errorf("join control groups: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare control groups: %w", err)
	}

	// 4. Leave the host behind.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach host root: %w", err)
	}
	if err := unix.Chdir(Dir); err != nil {
		return fmt.Errorf("chdir to %s: %w", Dir, err)
	}
	return nil
}

// populate fills the new root, which is the current directory.
func populate(s *Spec) error {
	for _, n := range s.Root {
		if err := n.make(); err != nil {
			return err
		}
	}
	for _, d := range []struct {
		path string
		mode uint32
	}{{"proc", 0o555}, {"dev", 0o755}, {"tmp", 0o1777}, {Dir[1:], 0o700}, {".shm", 0o1777}, {".empty", 0o555}} {
		if err := unix.Mkdir(d.path, d.mode); err != nil {
			return fmt.Errorf("mkdir /%s: %w", d.path, err)
		}
		if d.mode&0o022 != 0 { // the umask took these bits
			if err := unix.Chmod(d.path, d.mode); err != nil {
				return fmt.Errorf("chmod /%s: %w", d.path, err)
			}
		}
	}
	if err := populateDev(s); err != nil {
		return err
	}
	if err := populateProc(); err != nil {
		return err
	}
	for _, v := range s.Volumes {
		if err := v.mount(); err != nil {
			return err
		}
	}
	return writeInputs(s)
}

// makeFolder makes a folder and those above it below the new root, as far as
// they are missing, and returns a handle on it. It follows no link: the image's
// folders are there already, and the host is not yet out of reach of a link in one.
func makeFolder(p string) (fd int, err error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err = unix.Open(".", flags, 0)
	for _, name := range strings.Split(p, "/") {
		if err != nil {
			return -1, err
		}
		above := fd
		if err = unix.Mkdirat(above, name, 0o755); err == nil || errors.Is(err, fs.ErrExist) || err == unix.EROFS {
			fd, err = unix.Openat(above, name, flags, 0)
		}
		unix.Close(above)
	}
	return fd, err
}

// open returns a mount of the volume that is nowhere yet: of its folder, without what
// is mounted below it, or of the file system in its file.
func (v Volume) open() (fd int, err error) {
	if st, err := os.Lstat(v.Source); err == nil && st.Mode().IsRegular() {
		return loopfs.Mount(v.Source)
	}
	return unix.OpenTree(unix.AT_FDCWD, v.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
}

// mount shows a volume, with its owners mapped. No link of it is followed: what is in it was written by commands.
func (v Volume) mount() error {
	fd, err := v.open()
	if err != nil {
		return fmt.Errorf("open volume for %s: %w", v.Path, err)
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Userns_fd: OwnersFD}
	if v.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("map owners of the volume at %s: %w", v.Path, err)
	}
	at, err := makeFolder(strings.TrimPrefix(v.Path, "/"))
	if err != nil {
		return fmt.Errorf("make %s for a volume: %w", v.Path, err)
	}
	defer unix.Close(at)
	if err := unix.MoveMount(fd, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount volume at %s: %w", v.Path, err)
	}
	return nil
}

// make creates one entry. Sources are bound without what is mounted below
// them: only what was listed shows.
func (n Node) make() error {
	target := strings.TrimPrefix(path.Clean(n.Path), "/")
	if err := makeParents(target); err != nil {
		return fmt.Errorf("make parents of %s: %w", n.Path, err)
	}
	switch {
	case n.Link != "":
		if err := unix.Symlink(n.Link, target); err != nil {
			return fmt.Errorf("link %s: %w", n.Path, err)
		}
		return nil
	case n.Over:
		if err := cover(target, []byte(n.Data)); err != nil {
			return fmt.Errorf("cover %s: %w", n.Path, err)
		}
		return nil
	case n.Bind == "":
		if err := writeNew(target, []byte(n.Data), 0o644); err != nil {
			return fmt.Errorf("make %s: %w", n.Path, err)
		}
		return nil
	}
	var st unix.Stat_t
	err := unix.Stat(n.Bind, &st)
	if n.Optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "stat", Path: n.Bind, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = unix.Mkdir(target, 0o755)
	} else {
		err = writeNew(target, nil, 0o444)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", n.Path, err)
	}
	return bindReadOnly(n.Bind, target)
}

// cover shows a text in place of a file that cannot be written.
func cover(target string, data []byte) error {
	const name = ".cover"
	if err := writeNew(name, data, 0o644); err != nil {
		return err
	}
	if err := bindReadOnly(name, target); err != nil {
		return err
	}
	return unix.Unlink(name)
}

// makeParents makes the folders above p, outermost first.
func makeParents(p string) error {
	for i, c := range p {
		if c != '/' {
			continue
		}
		if err := unix.Mkdir(p[:i], 0o755); err != nil && err != unix.EEXIST {
			return err
		}
	}
	return nil
}

// populateDev makes the devices every program expects, those of the spec and
// no other.
func populateDev(s *Spec) error {
	opts := fmt.Sprintf("mode=0755,size=64k,nr_inodes=%d", 64+4*len(s.Devices))
	if err := mountAt("tmpfs", "dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, opts); err != nil {
		return err
	}
	for _, d := range []struct {
		name         string
		major, minor uint32
	}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}} {
		name := "dev/" + d.name
		if err := unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("make /%s: %w", name, err)
		}
		if err := unix.Chmod(name, 0o666); err != nil { // the umask took bits
			return fmt.Errorf("chmod /%s: %w", name, err)
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := unix.Symlink(to, "dev/"+name); err != nil {
			return fmt.Errorf("link /dev/%s: %w", name, err)
		}
	}
	for _, d := range s.Devices {
		name := d.Path[1:]
		if err := makeParents(name); err != nil {
			return fmt.Errorf("make parents of %s: %w", d.Path, err)
		}
		if err := unix.Mknod(name, unix.S_IFCHR|0o600, int(unix.Mkdev(d.Major, d.Minor))); err != nil {
			return fmt.Errorf("make %s: %w", d.Path, err)
		}
		if err := unix.Lchown(name, int(s.UID), int(s.UID)); err != nil {
			return fmt.Errorf("chown %s: %w", d.Path, err)
		}
	}
	// Shared memory lies on the root tmpfs: its size counts as scratch space.
	if err := unix.Mkdir("dev/shm", 0o755); err != nil {
		return fmt.Errorf("make /dev/shm: %w", err)
	}
	return mountAt(".shm", "dev/shm", "", unix.MS_BIND, "")
}

// populateProc mounts a /proc of the new process namespace. hidepid=2 hides
// every process the command does not own, the runner above all. What tells
// about or steers the whole machine is covered or read-only, although an
// unprivileged user could not use it anyway: two walls are better than one.
func populateProc() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := mountAt("proc", "proc", "proc", flags, "hidepid=2"); err != nil {
		return err
	}
	for _, f := range []string{"kcore", "keys", "key-users", "kmsg", "kallsyms", "latency_stats", "sched_debug",
		"timer_list", "timer_stats", "vmallocinfo", "kpagecgroup", "kpagecount", "kpageflags"} {
		if err := mountAt("dev/null", "proc/"+f, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, d := range []string{"acpi", "asound", "scsi"} {
		if err := bindReadOnly(".empty", "proc/"+d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, p := range []string{"bus", "fs", "irq", "sys", "sysrq-trigger"} {
		if err := bindReadOnly("proc/"+p, "proc/"+p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeInputs puts the job's files into its folder and makes it the owner.
func writeInputs(s *Spec) error {
	uid := int(s.UID)
	own := func(p string) error {
		if err := unix.Lchown(p, uid, uid); err != nil {
			return fmt.Errorf("chown /%s: %w", p, err)
		}
		return nil
	}
	for _, f := range s.Files {
		p := filepath.Join(Dir[1:], f.Path)
		for i := len(Dir); i < len(p); i++ { // parents below Dir, outermost first
			if p[i] != '/' {
				continue
			}
			err := unix.Mkdir(p[:i], 0o755)
			if errors.Is(err, fs.ErrExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("make /%s: %w", p[:i], err)
			}
			if err := own(p[:i]); err != nil {
				return err
			}
		}
		if err := writeNew(p, f.Data, 0o600); err != nil {
			return fmt.Errorf("write input /%s: %w", p, err)
		}
		if err := own(p); err != nil {
			return err
		}
		if err := unix.Chmod(p, f.Mode&0o777); err != nil {
			return fmt.Errorf("chmod /%s: %w", p, err)
		}
	}
	return own(Dir[1:])
}

// start gives up every privilege on this thread and runs the command from it.
func start(s *Spec, output *os.File, ready <-chan error, now func() int64) (pid int, at int64, err error) {
	argv0, err := lookPath(s)
	if err != nil {
		return 0, 0, err
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("open /dev/null: %w", err)
	}
	defer unix.Close(null)
	if err := drop(s.UID); err != nil {
		return 0, 0, err
	}
	if err := <-ready; err != nil {
		return 0, 0, err
	}
	out := output.Fd()
	at = now()
	pid, err = syscall.ForkExec(argv0, s.Argv, &syscall.ProcAttr{
		Env:   s.Env,
		Files: []uintptr{uintptr(null), out, out},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, 0, fmt.Errorf("run %s: %w", argv0, err)
	}
	return pid, at, nil
}

// drop makes the thread an ordinary user that cannot become anything else.
// The raw calls concern this thread only; Go's own would change all.
func drop(uid uint32) error {
	for c := uintptr(0); ; c++ {
		if _, _, e := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0); e == unix.EINVAL {
			break // past the last capability of this kernel
		} else if e != 0 {
			return fmt.Errorf("drop capability %d: %w", c, e)
		}
	}
	id := uintptr(uid)
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return fmt.Errorf("clear groups: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id); e != 0 {
		return fmt.Errorf("set group %d: %w", uid, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); e != 0 {
		return fmt.Errorf("set user %d: %w", uid, e)
	}
	// Leaving root cleared the permitted, effective and ambient sets; the
	// inheritable one survives it.
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&hdr, &none[0]); err != nil {
		return fmt.Errorf("clear capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return seccomp.Rules{Families: seccomp.Sockets}.Set()
}

// limitProcess sets what the command inherits from the whole process, hence
// outside the throw-away thread. Limits are only lowered: the host may not
// allow more.
func limitProcess(s *Spec) error {
	if err := syscall.Setrlimit(unix.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("set core limit: %w", err)
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("get open file limit: %w", err)
	}
	files.Max = min(files.Max, s.OpenFiles)
	files.Cur = files.Max
	if err := syscall.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("set open file limit %d: %w", files.Max, err)
	}
	return nil
}

// lookPath finds the command inside the new root, as the shell would.
func lookPath(s *Spec) (string, error) {
	name := s.Argv[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	list := ""
	for _, e := range s.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			list = v
		}
	}
	for _, dir := range filepath.SplitList(list) {
		p := path.Join("/", dir, name)
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("run %s: not found in PATH %s", name, strconv.Quote(list))
}

// loopbackUp lets the command's own processes talk over 127.0.0.1. The
// interface is the namespace's own; nothing else is on it.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

func bindReadOnly(source, target string) error {
	if err := mountAt(source, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return mountAt("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

func mountAt(source, target, kind string, flags uintptr, opts string) error {
	if err := unix.Mount(source, target, kind, flags, opts); err != nil {
		return fmt.Errorf("mount %s%s on %s: %w", kind, source, target, err)
	}
	return nil
}

func writeNew(p string, data []byte, mode uint32) error {
	fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
