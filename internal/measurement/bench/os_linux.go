package bench

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// uncached opens f once more for what goes past the page cache. Where the file
// system has no such thing it returns f itself.
func uncached(f *os.File, write bool) (direct *os.File, close func(), err error) {
	mode := os.O_RDONLY
	if write {
		mode = os.O_RDWR
	}
	direct, err = os.OpenFile(f.Name(), mode|unix.O_DIRECT, 0)
	if errors.Is(err, syscall.EINVAL) {
		return f, func() {}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if _, err := direct.ReadAt(aligned(page), 0); errors.Is(err, syscall.EINVAL) { // refused only now
		_ = direct.Close() // read only
		return f, func() {}, nil
	}
	return direct, func() { _ = direct.Close() }, nil // read only
}

// busy is how long the calling thread has worked: what a core does in it is
// the same on a machine that has other work, too.
func busy() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return wall()
	}
	return time.Duration(t.Nano())
}

// mediums are file systems by the number the kernel gives them.
var mediums = map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x858458f6: "ramfs", 0x794c7630: "overlay",
	0x6969: "nfs", 0x2fc12fc1: "zfs", 0x0bd00bd0: "lustre", 0x00c36400: "ceph", 0x65735546: "fuse", 0xf2f52010: "f2fs", 0x47504653: "gpfs", 0x4d44: "vfat", 0xff534d42: "cifs"}

// Medium names the file system of dir; inMemory says that no disk is below it.
func Medium(dir string) (name string, inMemory bool) {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return "", false
	}
	kind := int64(uint32(fs.Type))
	if name = mediums[kind]; name == "" {
		name = "0x" + strconv.FormatInt(kind, 16)
	}
	return name, name == "tmpfs" || name == "ramfs"
}

// room is how many bytes can still be written to dir.
func room(dir string) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return 0
	}
	return int64(fs.Bavail) * int64(fs.Bsize)
}
