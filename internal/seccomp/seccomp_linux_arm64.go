package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	x32Bit    = 0 // no second ABI within the same architecture
)

// deniedHere are calls only this architecture has.
var deniedHere []uint32
