package images

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/fault"
)

// syncTree writes everything below path to the disk: the whole file system in one
// call, which is far less work than one call for each of 100,000 files.
func syncTree(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}

// Watch calls changed after images came or went, until ctx ends. Calls never
// overlap; several changes may be told by one. It is called once at first, when
// later changes can no longer be missed.
func (s *Store) Watch(ctx context.Context, changed func()) error {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the folder of images %s cannot be watched", s.dir)
	}
	f := os.NewFile(uintptr(fd), "inotify") // nonblocking: Close wakes the reader
	defer func() { _ = f.Close() }()        // read only
	if _, err := unix.InotifyAddWatch(fd, s.dir, unix.IN_MOVED_TO|unix.IN_MOVED_FROM|unix.IN_DELETE|unix.IN_ONLYDIR); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the folder of images %s cannot be watched", s.dir)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer stop()
	// What exactly happened is of no interest: the folder says what is.
	for buf := make([]byte, 64<<10); ; {
		changed()
		if _, err := f.Read(buf); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fault.Wrap(fault.Unavailable, err, "the folder of images %s cannot be watched", s.dir)
		}
	}
}
