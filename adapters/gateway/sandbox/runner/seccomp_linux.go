//go:build linux && (amd64 || arm64)

package runner

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denied are calls a job has no business with: they change the machine, or
// reach kernel code that has often let users out. Without capabilities most
// would fail anyway; the filter keeps their code from running at all.
var denied = append([]uint32{
	// mounts and roots
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, openTreeAttr,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	// namespaces
	unix.SYS_SETNS,
	// kernel code, memory and keys
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY,
	unix.SYS_REQUEST_KEY, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
	unix.SYS_KEXEC_FILE_LOAD, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL, unix.SYS_SYSLOG,
	// the machine
	unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
}, deniedHere...)

// absent answer "no such call", for which programs have a way out: the C
// library falls back from clone3, whose flags a filter cannot see, to clone;
// io_uring would run other calls behind the filter's back.
var absent = []uint32{unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}

// families are the socket families a job may use. Others are out of reach of
// network namespaces (vsock leads to the hypervisor) or seldom-tested code.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

const (
	openTreeAttr = 467 // open_tree_attr, Linux 6.15; the same number everywhere
	namespaces   = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// filter assembles the program the kernel runs on every call. Whatever it
// decides from the number alone the kernel remembers, so that an allowed
// call costs nothing more.
func filter() []unix.SockFilter {
	const (
		number, arch, arg0 = 0, 4, 16 // offsets in struct seccomp_data; arg0's low half, both machines being little-endian
		allow              = unix.SECCOMP_RET_ALLOW
		fail               = unix.SECCOMP_RET_ERRNO
	)
	var p []unix.SockFilter
	load := func(off uint32) {
		p = append(p, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off})
	}
	ret := func(v uint32) { p = append(p, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: v}) }
	// when runs the next n instructions if the test holds, else skips them.
	when := func(test uint16, k uint32, n uint8) {
		p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | test, K: k, Jt: 0, Jf: n})
	}

	// Another architecture's calls have other numbers: none of them passes.
	load(arch)
	p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ, K: auditArch, Jt: 1})
	ret(fail | uint32(unix.EPERM))
	load(number)
	if x32Bit != 0 {
		when(unix.BPF_JGE, x32Bit, 1)
		ret(fail | uint32(unix.ENOSYS))
	}
	for _, nr := range denied {
		when(unix.BPF_JEQ, nr, 1)
		ret(fail | uint32(unix.EPERM))
	}
	for _, nr := range absent {
		when(unix.BPF_JEQ, nr, 1)
		ret(fail | uint32(unix.ENOSYS))
	}
	for _, c := range []struct {
		nr, mask uint32
	}{{unix.SYS_CLONE, namespaces}, {unix.SYS_UNSHARE, namespaces | unix.CLONE_NEWTIME}} {
		when(unix.BPF_JEQ, c.nr, 4)
		load(arg0)
		when(unix.BPF_JSET, c.mask, 1)
		ret(fail | uint32(unix.EPERM))
		ret(allow)
	}
	when(unix.BPF_JEQ, unix.SYS_SOCKET, uint8(2+2*len(families)))
	load(arg0)
	for _, f := range families {
		when(unix.BPF_JEQ, f, 1)
		ret(allow)
	}
	ret(fail | uint32(unix.EAFNOSUPPORT))
	ret(allow)
	return p
}

// restrictSyscalls puts the filter on the calling thread.
func restrictSyscalls() error {
	p := filter()
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if _, _, e := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
		uintptr(unsafe.Pointer(&prog))); e != 0 {
		return fmt.Errorf("set system call filter: %w", e)
	}
	return nil
}
