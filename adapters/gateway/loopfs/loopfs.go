// Package loopfs keeps a file system in a file, so that the kernel bounds what
// is written to it: beyond its size a write fails, and nothing beside it is touched.
//
// # What stays true
//
//   - The file's blocks are taken when it is made. What has been promised can
//     be written, however full the disk around the file becomes.
//   - A file has one loop device at a time: two would be two writers that do not
//     know each other. Who looks for one or makes one holds the file's lock.
//   - Nothing of it is mounted where the machine sees it. A mount is held by who
//     made it, and by the mount namespaces it was moved to; the last of them ends it
//     and the kernel gives the loop device back. So a process that dies leaves nothing behind.
//
// The file system is ext4, with a journal: after a crash of the machine the next mount
// makes it whole. Its free room is set to the size asked for; what it needs
// for itself comes on top. It has one file for each 16 KiB.
package loopfs

import (
	"errors"
	"fmt"

	"yunhe.dev/yunhe/internal/fault"
)

// MinBytes is the least room: a smaller file system would be mostly its journal.
const MinBytes = 4 << 20

const (
	block      = 4096
	minJournal = 4 << 20
	maxJournal = 128 << 20
	minFile    = 12 << 20 // ext4 keeps no journal in a smaller one
)

// ErrCannot says that this machine keeps no file systems in files: it has no
// loop devices, no mkfs.ext4, or a file system below that cannot take blocks ahead.
var ErrCannot = errors.New("this machine keeps no file systems in files")

func cannot(err error) error { return fmt.Errorf("%w: %w", ErrCannot, err) }

// Room is what a file system holds, and what can be written to it.
type Room struct{ Used, Free int64 }

// fileSize is that of the file for bytes of room. On top come the table of files, a
// 64th, with bitmaps and descriptors; what ext4 holds back, a 50th and at most 16 MiB; and the journal.
func fileSize(bytes int64) int64 {
	size := bytes + bytes/56 + min(bytes/48, 17<<20) + journal(bytes) + 1<<20
	return max(minFile, (size+1<<20-1)>>20<<20)
}

func journal(bytes int64) int64 { return min(max(minJournal, bytes/64), maxJournal) >> 20 << 20 }

func noRoom(err error, bytes int64) error {
	return fault.Wrap(fault.Exhausted, err, "there is no room: the disk has no %d bytes for a volume that may hold %d", fileSize(bytes), bytes)
}
