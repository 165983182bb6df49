package measure

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// uncached opens f once more for reads past the page cache. Where the file
// system has no such thing it returns f itself.
func uncached(f *os.File) (direct *os.File, close func(), err error) {
	direct, err = os.OpenFile(f.Name(), os.O_RDONLY|unix.O_DIRECT, 0)
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

// device names the file system dir is on.
func device(dir string) string {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if unix.Stat(dir, &st) != nil || unix.Statfs(dir, &fs) != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d %d %d", unix.Major(st.Dev), unix.Minor(st.Dev), fs.Type, fs.Blocks)
}
