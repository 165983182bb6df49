// Command probe runs inside a sandbox and tries what must not work there. It
// prints one line per attempt: its name and the answer.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	switch os.Args[1] {
	case "privileges":
		privileges()
	case "dial":
		for _, a := range os.Args[2:] {
			network, address, _ := strings.Cut(a, "=")
			c, err := net.DialTimeout(network, address, 2*time.Second)
			if err == nil {
				c.Close()
			}
			say("dial "+network, err)
		}
		interfaces, err := net.Interfaces()
		if err != nil {
			say("interfaces", err)
		}
		for _, i := range interfaces {
			fmt.Println("interface", i.Name)
		}
	case "setuid":
		// A setuid program of root's: itself, copied by the test.
		if os.Geteuid() == 0 {
			fmt.Println("setuid: I AM ROOT")
			return
		}
		fmt.Println("setuid: user", os.Geteuid())
	case "memory":
		// Touch so many MiB and keep them.
		var n int
		fmt.Sscan(os.Args[2], &n)
		for i := range n {
			b := make([]byte, 1<<20)
			for j := 0; j < len(b); j += 4096 {
				b[j] = byte(i)
			}
			kept = append(kept, b)
		}
		fmt.Println("touched", len(kept))
	case "hold":
		time.Sleep(time.Hour) // until it is stopped
	case "orphans":
		// Children whose parent ends first: somebody must collect them.
		for range 20 {
			c := exec.Command("/probe", "orphan")
			if err := c.Run(); err != nil {
				fmt.Println(err)
			}
		}
		fmt.Println("made")
	case "orphan":
		c := exec.Command("/probe", "nothing")
		if err := c.Start(); err != nil {
			fmt.Println(err)
		}
	}
}

var kept [][]byte

func say(name string, err error) {
	if err == nil {
		fmt.Printf("%s: ALLOWED\n", name)
		return
	}
	fmt.Printf("%s: %v\n", name, err)
}

func call(name string, nr uintptr, args ...uintptr) {
	var a [6]uintptr
	copy(a[:], args)
	_, _, e := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if e != 0 {
		say(name, e)
		return
	}
	say(name, nil)
}

func write(path string) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("1")
		f.Close()
	}
	say("write "+path, err)
}

func privileges() {
	here, _ := unix.BytePtrFromString("/workspace")
	tmpfs, _ := unix.BytePtrFromString("tmpfs")
	dot := uintptr(unsafe.Pointer(here))
	call("mount", unix.SYS_MOUNT, uintptr(unsafe.Pointer(tmpfs)), dot, uintptr(unsafe.Pointer(tmpfs)))
	call("umount", unix.SYS_UMOUNT2, dot, 0)
	call("pivot_root", unix.SYS_PIVOT_ROOT, dot, dot)
	call("chroot", unix.SYS_CHROOT, dot)
	call("fsopen", unix.SYS_FSOPEN, uintptr(unsafe.Pointer(tmpfs)), 0)
	call("open_tree", unix.SYS_OPEN_TREE, 0, dot, 1)
	say("mknod null", unix.Mknod("/workspace/n", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	say("mknod disk", unix.Mknod("/workspace/d", unix.S_IFBLK|0o666, int(unix.Mkdev(254, 0))))
	call("unshare user", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	call("unshare mount", unix.SYS_UNSHARE, unix.CLONE_NEWNS)
	call("unshare net", unix.SYS_UNSHARE, unix.CLONE_NEWNET)
	call("clone user", unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD))
	args := unix.CloneArgs{Flags: unix.CLONE_NEWUSER, Exit_signal: uint64(unix.SIGCHLD)}
	call("clone3 user", unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args))
	call("setns", unix.SYS_SETNS, 0, 0)
	call("bpf", unix.SYS_BPF, 0, 0, 0)
	call("keyctl", unix.SYS_KEYCTL, 0, 0)
	call("add_key", unix.SYS_ADD_KEY)
	call("request_key", unix.SYS_REQUEST_KEY)
	call("perf_event_open", unix.SYS_PERF_EVENT_OPEN)
	call("userfaultfd", unix.SYS_USERFAULTFD, 0)
	call("io_uring_setup", unix.SYS_IO_URING_SETUP, 1, 0)
	call("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT)
	call("init_module", unix.SYS_INIT_MODULE)
	call("kexec_load", unix.SYS_KEXEC_LOAD)
	call("reboot", unix.SYS_REBOOT, 0, 0, 0)
	call("swapon", unix.SYS_SWAPON)
	call("acct", unix.SYS_ACCT)
	call("syslog", unix.SYS_SYSLOG, 3, 0, 0)
	call("settimeofday", unix.SYS_SETTIMEOFDAY)
	call("sethostname", unix.SYS_SETHOSTNAME, dot, 3)
	call("setuid 0", unix.SYS_SETUID, 0)
	call("setgid 0", unix.SYS_SETGID, 0)
	call("setgroups", unix.SYS_SETGROUPS, 0, 0)
	for _, f := range []struct {
		name   string
		family uintptr
		kind   uintptr
	}{{"vsock", unix.AF_VSOCK, unix.SOCK_STREAM}, {"packet", unix.AF_PACKET, unix.SOCK_RAW}, {"alg", unix.AF_ALG, unix.SOCK_SEQPACKET},
		{"raw ip", unix.AF_INET, unix.SOCK_RAW}} {
		call("socket "+f.name, unix.SYS_SOCKET, f.family, f.kind, 1)
	}
	say("kill 1", unix.Kill(1, unix.SIGKILL))
	call("ptrace 1", unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1, 0, 0)
	_, err := os.Stat("/proc/1")
	say("see process 1", err)
	_, err = os.ReadDir("/proc/1/root")
	say("read root of process 1", err)
	say("raise open files", unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}))
	for _, p := range []string{"/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches",
		"/proc/sysrq-trigger", "/proc/self/uid_map"} {
		write(p)
	}
	for _, dir := range []string{"/", "/etc", "/dev", "/proc", "/probe-dir"} {
		say("create in "+dir, os.WriteFile(dir+"/x", nil, 0o644))
	}
	_, err = os.Stat("/sys")
	say("see /sys", err)
	for _, p := range []string{"/proc/kcore", "/proc/kallsyms", "/proc/keys"} {
		b, err := os.ReadFile(p)
		if err == nil && len(b) == 0 {
			err = syscall.ENODATA
		}
		say("read "+p, err)
	}
	for _, p := range []string{"/workspace/x", "/tmp/x", "/dev/shm/x", "/dev/null"} {
		if err := os.WriteFile(p, []byte("x"), 0o644); err != nil {
			fmt.Println("cannot write", p, err)
		}
	}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fmt.Println(err)
	}
	for line := range strings.Lines(string(b)) {
		for _, k := range []string{"Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:"} {
			if strings.HasPrefix(line, k) {
				fmt.Print(strings.Join(strings.Fields(line), " "), "\n")
			}
		}
	}
}
