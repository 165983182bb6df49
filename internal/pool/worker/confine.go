//go:build linux

package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/seccomp"
)

// What a program says reaches compilers and drivers, which open files for it: a
// source includes one by its path, and its build log shows it. So a worker may
// read the system's software and what drivers need to know of the machine, write
// in its caches and to accelerators, and nothing else: the kernel sees to it
// (Landlock), for all that it starts, too. Nor may it connect or listen, or send
// signals to others. A kernel may be code of the worker's process, as on processors: so
// workers have few of root's powers where the node has them, make no sockets (with NVIDIA's
// driver such that reach nobody), and nothing in their caches that leads out of these to
// whoever opens it later.

// confined is set where a worker is confined already: it is started anew then,
// because a thread confines itself and what it starts only.
const confined = "YUNHE_POOL_CONFINED"

var (
	// readable are software, and what it looks at.
	readable = []string{
		"/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/opt", "/nix/store", "/gnu/store", "/run/opengl-driver",
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/OpenCL", "/etc/alternatives", "/etc/localtime", "/etc/drirc", "/etc/nvidia",
		"/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/devices", "/proc/modules", "/proc/filesystems", "/proc/driver", "/proc/sys/vm", "/proc/sys/kernel", "/sys", "/run/udev",
	}
	// named are variables of the environment that name more of it, of which drivers are
	// found, and writable those that name folders for what drivers keep.
	named    = []string{"LD_LIBRARY_PATH", "LD_PRELOAD", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "HWLOC_FSROOT"}
	writable = []string{"TMPDIR", "XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH", "MESA_SHADER_CACHE_DIR"}
)

const (
	readFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	readDir  = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR

	writeFile = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// led are what nobody may make in a cache: others follow links, and open devices.
const led = unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK

// powers are what workers keep of root's: cards are files that may be another user's, and
// drivers keep memory in its place and have threads run first.
var powers = []int{unix.CAP_DAC_OVERRIDE, unix.CAP_IPC_LOCK, unix.CAP_SYS_NICE}

// Confine starts this program anew, confined, unless it is already; cuda says that it is to
// load the driver of CUDA. Where the kernel has no Landlock, files and ports are not kept from
// it, and without seccomp no calls: the node tells of that.
func Confine(cuda bool) error {
	if os.Getenv(confined) != "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // this thread is what is confined; the others end when it becomes the program anew
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if version := between.Landlock(); version > 0 {
		err = restrict(version, self)
	}
	if err == nil {
		err = drop()
	}
	if err == nil && seccomp.Has() {
		err = calls(cuda).Set()
	}
	if err != nil {
		return fmt.Errorf("the worker cannot be confined: %w", err)
	}
	return unix.Exec(self, os.Args, append(os.Environ(), confined+"=1"))
}

// calls are what workers may not ask the kernel for. Theirs are what they are given.
func calls(cuda bool) seccomp.Rules {
	r := seccomp.Rules{Denied: []uint32{unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL}}
	// The driver of CUDA, which NVIDIA's of OpenCL starts, too, listens at a socket of its own
	// (cuda-uvmfd-…) for processes that share memory, and does not start if it cannot.
	_, err := os.Stat("/dev/nvidiactl")
	r.Listens = cuda || err == nil
	if os.Getenv(between.RDMAEnv) != "" { // librdmacm makes sockets, and asks ibacm
		r.Families, r.Listens = seccomp.Sockets, false
	}
	return r
}

func restrict(version int, self string) error {
	all := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1)
	if version >= 2 {
		all |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		all |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: all}
	if version >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	rules, _, bad := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if bad != 0 {
		return bad
	}
	defer unix.Close(int(rules))
	allow := func(path string, file, dir uint64, how int) error {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|how, 0)
		if err != nil {
			return nil // there is none, or it may not be used anyway
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		rule := unix.LandlockPathBeneathAttr{Allowed_access: file & all, Parent_fd: int32(fd)}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			rule.Allowed_access = dir & all
		}
		if _, _, bad := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); bad != 0 {
			return fmt.Errorf("%s: %w", path, bad)
		}
		return nil
	}
	errs := []error{allow(self, readFile, 0, 0)}
	for _, path := range append(drivers(), readable...) {
		errs = append(errs, allow(path, readFile, readDir, 0))
	}
	for _, name := range writable {
		if dir := os.Getenv(name); dir != "" {
			_ = os.MkdirAll(dir, 0o700)                                                    // drivers make those that are missing, and may not any more
			errs = append(errs, allow(dir, 0, all&^led, unix.O_NOFOLLOW|unix.O_DIRECTORY)) // what is in a cache may be anything
		}
	}
	for _, path := range devices() {
		errs = append(errs, allow(path, readFile|writeFile, readDir|writeFile, 0))
	}
	// NVIDIA's driver names a thread that it has started, and does not start without.
	errs = append(errs, allow("/proc/self/task", 0, writeFile, 0))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if _, _, bad := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0); bad != 0 {
		return bad
	}
	return nil
}

// drop gives root's powers up that workers do not need. Who has none has nothing to give up.
func drop() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&hdr, &has[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	var keep [2]unix.CapUserData
	for _, c := range powers {
		bit := uint32(1) << (c % 32)
		keep[c/32].Permitted |= has[c/32].Permitted & bit
		keep[c/32].Effective |= has[c/32].Effective & bit
	}
	for c := range unix.CAP_LAST_CAP + 1 {
		if slices.Contains(powers, c) || has[0].Effective&(1<<unix.CAP_SETPCAP) == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EINVAL { // the kernel may be older
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
	if err := unix.Capset(&hdr, &keep[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// drivers are the files and folders in which the loader of OpenCL, by the node's
// environment, finds drivers outside of the system's.
func drivers() (all []string) {
	vendors := []string{"/etc/OpenCL/vendors"}
	for _, name := range named {
		for path := range strings.SplitSeq(os.Getenv(name), ":") {
			if filepath.IsAbs(path) {
				all, vendors = append(all, path), append(vendors, path)
			}
		}
	}
	for _, dir := range vendors {
		files, _ := filepath.Glob(filepath.Join(dir, "*.icd")) // the pattern is one
		for _, f := range append(files, dir) {
			if b, err := os.ReadFile(f); err == nil && strings.HasSuffix(f, ".icd") && filepath.IsAbs(strings.TrimSpace(string(b))) {
				all = append(all, strings.TrimSpace(string(b)))
			}
		}
	}
	return all
}

func devices() []string {
	all := []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
	for _, card := range append([]string{"devmm_svm", "hisi_hdc", "infiniband"}, between.Cards...) { // the first are what davinci needs, too, and what RDMA does
		found, _ := filepath.Glob("/dev/" + card + "*") // the pattern is one
		all = append(all, found...)
	}
	return all
}
