//go:build linux && (amd64 || arm64)

package seccomp

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// answer runs the filter as the kernel would.
func answer(t *testing.T, p []unix.SockFilter, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	var data [64]byte // struct seccomp_data
	binary.LittleEndian.PutUint32(data[0:], nr)
	binary.LittleEndian.PutUint32(data[4:], arch)
	for i, arg := range args {
		binary.LittleEndian.PutUint64(data[16+8*i:], arg)
	}
	var a uint32
	for pc := 0; pc < len(p); pc++ {
		in := p[pc]
		skip := func(yes bool) {
			if yes {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = binary.LittleEndian.Uint32(data[in.K:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= in.K
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
		case unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ:
			skip(a == in.K)
		case unix.BPF_JMP | unix.BPF_K | unix.BPF_JGE:
			skip(a >= in.K)
		case unix.BPF_JMP | unix.BPF_K | unix.BPF_JSET:
			skip(a&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d has code %#x", pc, in.Code)
		}
	}
	t.Fatalf("call %d runs off the end", nr)
	return 0
}

func TestFilter(t *testing.T) {
	t.Parallel()
	families, more := []uint32{unix.AF_INET, unix.AF_NETLINK}, []uint32{unix.SYS_PTRACE, unix.SYS_GETPID}
	p := Rules{Families: families, Denied: more}.filter()
	const no = unix.SECCOMP_RET_ERRNO
	want := map[uint32]uint32{}
	for _, nr := range slices.Concat(denied, more) {
		want[nr] = no | uint32(unix.EPERM)
	}
	for _, nr := range absent {
		want[nr] = no | uint32(unix.ENOSYS)
	}
	want[unix.SYS_SOCKET] = no | uint32(unix.EAFNOSUPPORT) // of family 0
	for nr := range uint32(2000) {
		w, ok := want[nr]
		if !ok {
			w = unix.SECCOMP_RET_ALLOW
		}
		if got := answer(t, p, auditArch, nr, 0); got != w {
			t.Errorf("call %d: got %#x, want %#x", nr, got, w)
		}
		if got := answer(t, p, auditArch^1, nr, 0); got != no|uint32(unix.EPERM) {
			t.Errorf("call %d of another architecture: got %#x", nr, got)
		}
	}
	if x32Bit != 0 {
		if got := answer(t, p, auditArch, x32Bit|unix.SYS_GETPID, 0); got != no|uint32(unix.ENOSYS) {
			t.Errorf("x32 call: got %#x", got)
		}
	}
	for family := range uint64(60) {
		w := uint32(no | uint32(unix.EAFNOSUPPORT))
		for _, f := range families {
			if uint64(f) == family {
				w = unix.SECCOMP_RET_ALLOW
			}
		}
		if got := answer(t, p, auditArch, unix.SYS_SOCKET, family); got != w {
			t.Errorf("socket of family %d: got %#x, want %#x", family, got, w)
		}
	}
	for flag := range 32 {
		for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
			bad := uint32(namespaces)
			if nr == unix.SYS_UNSHARE {
				bad |= unix.CLONE_NEWTIME
			}
			w := uint32(unix.SECCOMP_RET_ALLOW)
			if bad&(1<<flag) != 0 {
				w = no | uint32(unix.EPERM)
			}
			if got := answer(t, p, auditArch, nr, 1<<flag); got != w {
				t.Errorf("call %d with flag %#x: got %#x, want %#x", nr, 1<<flag, got, w)
			}
		}
	}
}

// TestFilterListens: of Unix sockets those for whole messages can be made, and none is
// connected.
func TestFilterListens(t *testing.T) {
	t.Parallel()
	p := Rules{Listens: true}.filter()
	const no = unix.SECCOMP_RET_ERRNO
	for family := range uint64(60) {
		for kind := range uint64(16) {
			for _, flags := range []uint64{0, unix.SOCK_CLOEXEC, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK} {
				w := uint32(no | uint32(unix.EAFNOSUPPORT))
				if family == unix.AF_UNIX && kind == unix.SOCK_SEQPACKET {
					w = unix.SECCOMP_RET_ALLOW
				}
				if got := answer(t, p, auditArch, unix.SYS_SOCKET, family, kind|flags); got != w {
					t.Errorf("socket of family %d and kind %#x: got %#x, want %#x", family, kind|flags, got, w)
				}
			}
		}
	}
	for nr, w := range map[uint32]uint32{unix.SYS_CONNECT: no | uint32(unix.EPERM), unix.SYS_BIND: unix.SECCOMP_RET_ALLOW, unix.SYS_LISTEN: unix.SECCOMP_RET_ALLOW} {
		if got := answer(t, p, auditArch, nr); got != w {
			t.Errorf("call %d: got %#x, want %#x", nr, got, w)
		}
	}
}
