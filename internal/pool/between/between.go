//go:build linux

// Package between is what a pool node and its workers say to each other, over a socket pair,
// and map both: turns, moves, connections that are given, and how much memory there is. It is
// of neither, and opens no library: a node does not have in its process what workers have.
package between

import "golang.org/x/sys/unix"

// Device is what a pool node knows of one.
type Device struct {
	Platform int    `json:"platform"` // which of the loader's
	Index    int    `json:"index"`    // which of the platform's
	Model    string `json:"model"`
	Vendor   string `json:"vendor"`
	Driver   string `json:"driver"`  // platform and version
	Version  string `json:"version"` // of OpenCL
	Type     string `json:"type"`
	Units    int64  `json:"units"`
	Memory   int64  `json:"memory_bytes"`
	Bus      string `json:"bus,omitempty"`  // as cards.Bus writes it; "": OpenCL does not say
	UUID     string `json:"uuid,omitempty"` // in hexadecimal; "": as before
}

// Cards begin the names that drivers give accelerators in /dev.
var Cards = []string{"nvidia", "dri", "kfd", "accel", "davinci", "cambricon", "hct", "xdxct"}

// RDMAEnv names in a worker's environment the addresses of its machine at which
// programs may go on over RDMA, with blanks between.
const RDMAEnv = "YUNHE_POOL_WORKER_RDMA"

// Landlock is the version of what the kernel offers to confine processes, 0 for
// nothing.
func Landlock() int {
	n, _, bad := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if bad != 0 {
		return 0
	}
	return int(n)
}
