// Package seccomp has the kernel refuse calls to processes that run what others
// wrote: jobs at gateways, and workers of the accelerator pool. What it keeps true:
// calls that change the machine, or that reach kernel code which has often let users
// out, never run, in whatever architecture's numbers they are made; nor do those that
// would make calls behind the filter's back.
package seccomp

// Rules are what processes may not do beside that. On other systems than Linux, and
// on other architectures than amd64 and arm64, there are none.
type Rules struct {
	// Families are those of the sockets that they may make (AF_INET, …), such as [Sockets].
	Families []uint32
	// Listens lets them make sockets of AF_UNIX and SOCK_SEQPACKET beside these, which
	// reach nobody: connect fails with EPERM then.
	Listens bool
	// Denied are more calls that fail with EPERM.
	Denied []uint32
}
