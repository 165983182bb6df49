// Package sandbox runs commands for the compute gateway: isolated on a Linux
// machine, within bounds the kernel enforces, once, and whether or not the
// gateway lives to see the end.
//
// # What stays true
//
//   - The command of an attempt is executed at most once, whatever dies and
//     however often Start is called for its ID.
//   - An attempt ends with exactly one record, which never changes.
//   - When Done is closed, no process and no control group of the attempt is
//     left and its record and output are on disk.
//   - A command sees its own processes, its own scratch space, and programs it
//     cannot write to; not the host's data, users, processes or network.
//
// # Processes
//
//	gateway ── clone(NEWPID), own session ──> runner (root; process 1 of the namespace; stays in the
//	   │                                        │      host's mounts, so that it reaches its folder)
//	   │                                        └─ a thread: namespaces, root, groups, user, filter
//	   │                                             └─ fork, exec ──> command (own user, no privilege)
//	   └─ pidfd: waits for the runner's end           output ──pipe──> runner ──> log files
//
// One small runner per attempt holds everything together. It is the first
// process of the attempt's process namespace, hence: it collects orphans; the
// command is an ordinary process with ordinary signals; and when the runner
// dies, however it dies, the kernel ends every process of the attempt with
// it. Mounts, user and system call filter belong to a thread on Linux, so one
// thread of the runner takes them on, forks the command and ends; a second
// process between runner and command, which would cost a millisecond and its
// memory, is not needed. The gateway waits on a process handle (pidfd), which
// works for runners it did not start and takes no thread.
//
// A command that is run beside the attempt's own ([Sandbox.Exec]) has a small
// process of the host around it. A thread of that enters the groups and the
// namespaces of a process of the attempt, gives up the same privileges, and
// starts the command. Which process that is is decided through one handle on
// it: the number of one that has ended may be another's, of the host. The
// process around it kills the command when the gateway goes away, and the
// runner when the attempt ends.
//
// A pause ([Run.Pause]) is the kernel's freezer: nothing of the attempt runs,
// and it stays so when the gateway dies. When it was paused is noted in its
// folder, so that the runner does not count the time, and the kernel is asked
// when a gateway adopts it.
//
// # States, and who is right
//
//	            spec.json        started           exit.json
//	(nothing) ──────────> known ─────────> claimed ─────────> ended
//	           gateway      │     runner             runner, or the gateway
//	                        │                        for a dead one: lost
//	                        └──────────────────────> ended
//	                          gateway, for a dead one: never_started
//
// The folder of the attempt is authoritative, see package runner. A runner
// holds the lock of its attempt (flock, gone with the process) all its life
// and links "started", which is there once, before the command. Whoever has the lock
// and finds "started" knows that it is too late to run the command; whoever
// finds exit.json knows that it is over. The gateway takes the same lock
// before it writes a record in a dead runner's place.
//
// What dies, and what follows:
//
//   - The command: exit, signal or oom, see [runner.Reason].
//   - The gateway: runs go on, limits and wall time included. The next one
//     adopts them. A wish to stop is a file, so that it is not lost. Under
//     systemd the gateway's unit needs KillMode=process.
//   - The runner: its processes die with it; the run is lost, with the usage
//     its groups still show.
//   - The machine: everything; claimed attempts are lost, others
//     never_started, or unknown if the machine died before Start returned.
//
// Two moments must survive a power failure and are waited for: the claim
// (fsync of started and of both folders, before the command; it overlaps with
// setting up the isolation) and the end (fsync of output, record and folder,
// before Done). Nothing else is synced: spec.json is of no use once no runner
// is alive.
//
// # Isolation
//
// Namespaces: mount, process, IPC, host name, control group, and network
// unless the host's was asked for; an own network has nothing but its own
// loopback. No user namespace: the command's user id is one of a range that
// no account of the machine uses and no other running attempt has.
//
// Root: a tmpfs of the size DiskBytes with /tmp, /dev/shm and the working
// folder on it; the rest of it belongs to root. On it, read-only, either the
// top folders of an image or the host's programs and a short list from /etc.
// File systems mounted below those are not shown. What is written to the
// scratch space is memory of the command and counts to its limit.
// /proc shows the command's own processes; what concerns the whole machine is
// covered or read-only. /dev has null, zero, full, random, urandom, tty, and the
// devices the spec names: made anew, for the command's user. There is no /sys.
//
// No capabilities, not even in the bounding set; no_new_privs; no setuid and
// no devices on any mount but the device folder, and with control groups
// version 1 no use of others by commands that were given some; a system call filter against mounts, new
// namespaces, io_uring, bpf, keys, unusual socket families and the like. With
// the host's network, its loopback services and abstract sockets are in reach.
// Debuggers work on the command's own processes. Programs of another
// architecture (32-bit ones included) do not run. The kernel is shared: who
// needs a wall against kernel bugs runs a gateway per tenant in virtual
// machines.
//
// Control groups bound CPU time, memory, and processes; both versions are
// supported. The tests exercise version 1 on the kernel and version 2
// partly: joining, leaving and freezing on the kernel where a v2 hierarchy is
// mounted, limits and counters against files only. The first process of a job
// the kernel kills in a shortage of memory is the command, not the runner.
package sandbox
