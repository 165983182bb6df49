package loopfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/fault"
)

// Make writes a file with an empty file system that has room for so many bytes, at
// least MinBytes. Its root folder belongs to owner. It returns Exhausted if the disk has no room, and
// ErrCannot if this machine does not do that. What it leaves on failure is of no use.
func Make(ctx context.Context, file string, owner int, size int64) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := take(f, size); err != nil {
		return err
	}
	err = tool(ctx, "mkfs.ext4", "-q", "-F", "-b", strconv.Itoa(block), "-i", "16384", "-I", "256", "-m", "0", "-J", fmt.Sprint("size=", journal(size)>>20),
		"-O", "64bit,metadata_csum,meta_bg,^resize_inode", "-E", fmt.Sprintf("nodiscard,lazy_itable_init=1,root_owner=%d:%d", owner, owner), "-e", "remount-ro", file)
	if err != nil {
		return err
	}
	free, err := prepare(file)
	if err != nil {
		return err
	}
	if free < size {
		return fmt.Errorf("the file system has room for %d bytes, %d are wanted", free, size)
	}
	if err := keep(ctx, f, (free-size)/block); err != nil {
		return err
	}
	return f.Sync()
}

// take gives a file the blocks of one with so much room.
func take(f *os.File, size int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &disk); err != nil {
		return err
	}
	// Asked for more than there is, some file systems take all there is before they say so.
	if fileSize(size)-st.Size() > int64(disk.Bavail)*disk.Bsize {
		return noRoom(unix.ENOSPC, size)
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, fileSize(size))
	switch err {
	case unix.ENOSPC, unix.EFBIG, unix.EDQUOT:
		return noRoom(err, size)
	case unix.EOPNOTSUPP, unix.ENOSYS:
		return cannot(fmt.Errorf("take blocks for %s: %w", f.Name(), err))
	}
	return err
}

// prepare makes the root folder of a new file system as empty as that of a
// volume is, and returns how much can be written.
func prepare(file string) (free int64, err error) {
	fd, err := Mount(file)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	root, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(root)
	if err := errors.Join(unix.Fchmod(root, 0o700), unix.Unlinkat(root, "lost+found", unix.AT_REMOVEDIR), unix.Syncfs(root)); err != nil {
		return 0, err
	}
	r, err := room(root)
	return r.Free, err
}

// keep holds blocks back that commands may not have: they are not root. The caller has
// locked the file and closed its mounts: until the kernel is through with those it writes
// what it knows, over what a tool does meanwhile.
func keep(ctx context.Context, f *os.File, blocks int64) error {
	const within = 30 * time.Second
	if !isLeft(ctx, f, within) {
		if err := ctx.Err(); err != nil {
			return err
		}
		return fault.New(fault.Unavailable, "%s is still mounted after %v", f.Name(), within)
	}
	return tool(ctx, "tune2fs", "-r", strconv.FormatInt(blocks, 10), f.Name())
}

// Grow gives a file system more room; one that has it is left as it is. It
// returns Exhausted if the disk has none, and Unavailable if it is mounted and can
// grow only when it is not.
func Grow(ctx context.Context, file string, size int64) error {
	f, err := lock(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := take(f, size); err != nil {
		return err
	}
	dev, err := bound(f)
	if err != nil {
		return err
	}
	if dev != nil {
		err := growMounted(dev, fileSize(size))
		_ = dev.Close()
		if !errors.Is(err, unix.EPERM) {
			return err
		}
		if !isLeft(ctx, f, time.Second) {
			return fault.Wrap(fault.Unavailable, err, "it grows when no run has it: the gateway lacks CAP_SYS_RESOURCE")
		}
	}
	if err := tool(ctx, "e2fsck", "-f", "-p", file); err != nil {
		return err
	}
	if err := tool(ctx, "resize2fs", file); err != nil {
		return err
	}
	if err := keep(ctx, f, 0); err != nil {
		return err
	}
	r, err := look(f)
	if err == nil {
		err = keep(ctx, f, max(0, r.Used+r.Free-size)/block)
	}
	return errors.Join(err, f.Sync())
}

// isLeft reports whether nobody has a file system, a while later at most: the kernel
// unmounts what was closed after the call that does so.
func isLeft(ctx context.Context, f *os.File, within time.Duration) bool {
	const look = 5 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		dev, err := bound(f)
		if err != nil {
			return false
		}
		if dev == nil {
			return true
		}
		_ = dev.Close()
		select {
		case <-ctx.Done():
			return false
		case <-time.After(look):
		}
	}
}

// growMounted tells the loop device and the file system on it that their file is larger now.
func growMounted(dev *os.File, size int64) error {
	if _, err := unix.IoctlRetInt(int(dev.Fd()), unix.LOOP_SET_CAPACITY); err != nil {
		return fmt.Errorf("grow %s: %w", dev.Name(), err)
	}
	fd, err := mountDevice(dev)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	root, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	const resizeFS = 0x40086610 // EXT4_IOC_RESIZE_FS
	blocks := uint64(size / block)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(root), resizeFS, uintptr(unsafe.Pointer(&blocks))); e != 0 {
		return fmt.Errorf("grow the file system on %s: %w", dev.Name(), e)
	}
	return nil
}

// Look returns how much room a file system has.
func Look(file string) (Room, error) {
	f, err := lock(file)
	if err != nil {
		return Room{}, err
	}
	defer f.Close()
	return look(f)
}

func look(f *os.File) (Room, error) {
	fd, err := mount(f)
	if err != nil {
		return Room{}, err
	}
	defer unix.Close(fd)
	return room(fd)
}

func room(fd int) (Room, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return Room{}, err
	}
	return Room{Used: int64(st.Blocks-st.Bfree) * st.Bsize, Free: int64(st.Bavail) * st.Bsize}, nil
}

// Mount returns a handle on the root folder of the file system in a file. It is
// mounted as long as the handle is open, or where the caller moves it.
func Mount(file string) (fd int, err error) {
	f, err := lock(file)
	if err != nil {
		return -1, err
	}
	defer f.Close()
	return mount(f)
}

// lock opens a file, alone.
func lock(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			return f, nil
		}
		if err != unix.EINTR {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", file, err)
		}
	}
}

// mount mounts the file system in a file that the caller has locked.
func mount(f *os.File) (fd int, err error) {
	dev, err := bound(f)
	if err == nil && dev == nil {
		dev, err = bind(f)
	}
	if err != nil {
		return -1, err
	}
	defer dev.Close() // the mount holds it from now on
	return mountDevice(dev)
}

func mountDevice(dev *os.File) (fd int, err error) {
	made, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err == unix.ENODEV || err == unix.ENOSYS {
		return -1, cannot(fmt.Errorf("open ext4: %w", err))
	}
	if err != nil {
		return -1, fmt.Errorf("open ext4: %w", err)
	}
	defer unix.Close(made)
	if err = unix.FsconfigSetString(made, "source", dev.Name()); err == nil {
		err = unix.FsconfigCreate(made)
	}
	if err == nil {
		fd, err = unix.Fsmount(made, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	}
	if err != nil {
		return -1, fmt.Errorf("mount %s: %w", dev.Name(), err)
	}
	return fd, nil
}

// bound returns the loop device a file has, nil if it has none. While it is open
// the kernel does not take it away.
func bound(f *os.File) (*os.File, error) {
	var want unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &want); err != nil {
		return nil, err
	}
	devices, err := os.ReadDir("/sys/block")
	if err != nil {
		return nil, cannot(err) // which loop devices there are must be known
	}
	for _, d := range devices {
		if !strings.HasPrefix(d.Name(), "loop") {
			continue
		}
		if _, err := os.Stat(filepath.Join("/sys/block", d.Name(), "loop")); errors.Is(err, fs.ErrNotExist) {
			continue // it has no file
		}
		dev, err := os.OpenFile("/dev/"+d.Name(), os.O_RDONLY, 0)
		if errors.Is(err, unix.ENXIO) || errors.Is(err, fs.ErrNotExist) {
			continue // it is going away
		}
		if err != nil {
			return nil, cannot(err)
		}
		got, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
		if err == nil && got.Device == want.Dev && got.Inode == want.Ino {
			return dev, nil
		}
		dev.Close()
		if err != nil && err != unix.ENXIO {
			return nil, fmt.Errorf("ask %s for its file: %w", dev.Name(), err)
		}
	}
	return nil, nil
}

// bind gives a file a loop device, which goes when nothing uses it any more.
func bind(f *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, cannot(err)
	}
	defer control.Close()
	// The device keeps what it is given open, and a lock is that of an open file.
	given, err := os.OpenFile(f.Name(), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer given.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, cannot(fmt.Errorf("find a free loop device: %w", err))
		}
		name := fmt.Sprintf("/dev/loop%d", n)
		dev, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return nil, cannot(err)
		}
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &unix.LoopConfig{Fd: uint32(given.Fd()), Size: block, Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}})
		if err == nil {
			// Some kernels mount no device that is open for writing.
			held, err := os.OpenFile(name, os.O_RDONLY, 0)
			dev.Close()
			return held, err
		}
		dev.Close()
		switch err {
		case unix.EBUSY: // another was faster
		case unix.EINVAL, unix.ENOTTY:
			return nil, cannot(fmt.Errorf("give %s a file: %w", name, err))
		default:
			return nil, fmt.Errorf("give %s a file: %w", name, err)
		}
	}
}

// tool runs one of ext4's programs.
func tool(ctx context.Context, name string, args ...string) error {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if err != nil {
			path, err = exec.LookPath(filepath.Join(dir, name))
		}
	}
	if err != nil {
		return cannot(fmt.Errorf("%s (of e2fsprogs) is not installed", name))
	}
	cmd := exec.CommandContext(ctx, path, args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if name == "e2fsck" && errors.As(err, &exit) && exit.ExitCode() == 1 { // it mended something
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %.300s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
