package loopfs_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/adapters/gateway/loopfs"
	"yunhe.dev/yunhe/internal/fault"
)

const mib = 1 << 20

// disk returns a new file system with room for so many bytes.
func disk(t *testing.T, size int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: loop devices need root")
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := loopfs.Make(t.Context(), file, 65533, size); errors.Is(err, loopfs.ErrCannot) {
		t.Skipf("SKIPPED: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return file
}

func look(t *testing.T, file string) loopfs.Room {
	t.Helper()
	r, err := loopfs.Look(file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// write puts a file of so many bytes into the file system a handle is on.
func write(fd int, name string, size int) error {
	to, err := unix.Openat(fd, name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(to), name)
	_, err = f.Write(make([]byte, size))
	return errors.Join(err, f.Sync(), f.Close())
}

func mount(t *testing.T, file string) int {
	t.Helper()
	fd, err := loopfs.Mount(file)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// bound counts the loop devices of a file.
func bound(t *testing.T, file string) (n int) {
	t.Helper()
	var want unix.Stat_t
	if err := unix.Stat(file, &want); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		dev, err := os.Open("/dev/" + filepath.Base(filepath.Dir(name)))
		if err != nil {
			continue // it is gone meanwhile
		}
		if got, err := unix.IoctlLoopGetStatus64(int(dev.Fd())); err == nil && got.Device == want.Dev && got.Inode == want.Ino {
			n++
		}
		dev.Close()
	}
	return n
}

// It has the room asked for, all of it, whatever its size, and the file has its blocks.
func TestMake(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{4 * mib, 5*mib + 1, 16 * mib, 100 * mib, 700 * mib} {
		file := disk(t, size)
		if r := look(t, file); r.Free < size || r.Free > size+4096 || r.Used > 4096 {
			t.Errorf("made for %d: %+v", size, r)
		}
		var st unix.Stat_t
		if err := unix.Stat(file, &st); err != nil || st.Blocks*512 < size {
			t.Errorf("of %d its file has %d on the disk, %v", size, st.Blocks*512, err)
		}
		fd := mount(t, file)
		var root unix.Stat_t
		if err := unix.Fstat(fd, &root); err != nil || root.Uid != 65533 || root.Gid != 65533 || root.Mode&0o777 != 0o700 {
			t.Errorf("its root folder: %+v, %v", root, err)
		}
		unix.Close(fd)
	}
	file := filepath.Join(t.TempDir(), "large")
	if err := loopfs.Make(t.Context(), file, 65533, 1<<50); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("larger than the disk: %v", err)
	}
	if st, err := os.Stat(file); err != nil || st.Size() != 0 {
		t.Errorf("refused, it has taken %v, %v", st.Size(), err)
	}
}

// They have it also when the kernel unmounts late, as it does while many are made and
// the machine starts processes.
func TestMakeMany(t *testing.T) {
	t.Parallel()
	disk(t, 4*mib) // or this machine makes none
	stop := make(chan struct{})
	var busy, made sync.WaitGroup
	for range 6 {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	for range 4 {
		made.Go(func() {
			for range 20 {
				file := filepath.Join(t.TempDir(), "disk")
				if err := loopfs.Make(t.Context(), file, 65533, 8*mib); err != nil {
					t.Error(err)
				} else if r, err := loopfs.Look(file); err != nil || r.Free != 8*mib {
					t.Errorf("made for %d: %+v, %v", 8*mib, r, err)
				}
			}
		})
	}
	made.Wait()
	close(stop)
	busy.Wait()
}

// However many use it at once, they see one file system, on one device that
// goes with the last of them.
func TestMount(t *testing.T) {
	t.Parallel()
	file := disk(t, 8*mib)
	var wg sync.WaitGroup
	fds := make([]int, 8)
	for i := range fds {
		wg.Go(func() {
			fd, err := loopfs.Mount(file)
			if err != nil {
				t.Error(err)
				return
			}
			fds[i] = fd
			if err := write(fd, string(rune('a'+i)), 1000); err != nil {
				t.Error(err)
			}
			if _, err := loopfs.Look(file); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if n := bound(t, file); n != 1 {
		t.Errorf("it has %d devices", n)
	}
	for _, fd := range fds {
		for i := range fds {
			if err := unix.Faccessat(fd, string(rune('a'+i)), unix.F_OK, 0); err != nil {
				t.Errorf("one does not see the file of another: %v", err)
			}
		}
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	for range 3 { // again and again
		fd := mount(t, file)
		if err := unix.Faccessat(fd, "a", unix.F_OK, 0); err != nil {
			t.Error(err)
		}
		unix.Close(fd)
	}
}

func TestFull(t *testing.T) {
	t.Parallel()
	file, other := disk(t, 4*mib), disk(t, 4*mib)
	fd := mount(t, file)
	defer unix.Close(fd)
	if err := write(fd, "much", 16*mib); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("written beyond its size: %v", err)
	}
	if r := look(t, other); r.Used > 4096 {
		t.Errorf("another: %+v", r)
	}
	if r := look(t, file); r.Free != 0 || r.Used < 4*mib {
		t.Errorf("full: %+v", r)
	}
}

// It grows with what is in it, while it is mounted where the kernel lets this process do that.
func TestGrow(t *testing.T) {
	t.Parallel()
	file := disk(t, 4*mib)
	fd := mount(t, file)
	if err := write(fd, "kept", 3*mib); err != nil {
		t.Fatal(err)
	}
	if err := loopfs.Grow(t.Context(), file, 64*mib); err != nil && fault.KindOf(err) != fault.Unavailable {
		t.Errorf("grown while mounted: %v", err)
	} else if err != nil {
		t.Log(err)
	} else if r := look(t, file); r.Free < 60*mib {
		t.Errorf("grown while mounted: %+v", r)
	}
	unix.Close(fd)
	for _, size := range []int64{64 * mib, 64 * mib, 300 * mib} {
		if err := loopfs.Grow(t.Context(), file, size); err != nil {
			t.Fatal(err)
		}
		if r := look(t, file); r.Used < 3*mib || r.Used+r.Free < size || r.Used+r.Free > size+8192 {
			t.Errorf("grown to %d: %+v", size, r)
		}
	}
	fd = mount(t, file)
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstatat(fd, "kept", &st, 0); err != nil || st.Size != 3*mib {
		t.Errorf("what was in it: %d bytes, %v", st.Size, err)
	}
	if err := write(fd, "more", 200*mib); err != nil {
		t.Error(err)
	}
}

// What is no file system is not mounted, and keeps no device.
func TestDamaged(t *testing.T) {
	t.Parallel()
	file := disk(t, 4*mib)
	if err := os.WriteFile(file, make([]byte, 12*mib), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loopfs.Look(file); err == nil {
		t.Error("zeros were mounted")
	}
	if err := loopfs.Grow(t.Context(), file, 20*mib); err == nil {
		t.Error("zeros grew")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if _, err := loopfs.Mount(link); err == nil {
		t.Error("a link was followed")
	}
}
