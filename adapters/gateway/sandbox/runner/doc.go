// Package runner is the supervisor of one attempt, and the files through
// which it and the gateway understand each other.
//
// A runner is given the attempt's folder and nothing else. It needs no
// gateway: it keeps the limits, the wall time and the output, hears a wish to
// stop, and leaves the record of how the attempt ended. It keeps true that
//
//   - the command runs only if this runner holds the lock on the folder and
//     has itself created StartedFile, durably;
//   - ExitFile is written once, when no process is left, after what it says
//     has become true: the output it counts is on disk, the groups are gone;
//   - it ends only after that; a record that cannot be written (the disk fails)
//     is tried again, with the lock held, for as long as it takes. A full disk
//     does not keep it from being written: see [Reserve].
//
// The protocol is versioned because runners live on while gateways are
// upgraded: a gateway MUST understand folders of every earlier version. What
// a running runner hears is SIGTERM, after StopFile was made; what it says is
// the files, and once the start time on ReadyFD.
//
// The package depends on the standard library and x/sys alone and is built
// as a program of its own (cmd): it starts as often as jobs do, and stays as
// long.
package runner
