package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/fault"
)

// mapUser returns a user namespace in which the user of volumes is uid. The
// kernel wants one to mount a folder with its owners mapped.
func mapUser(command []string, volumes, uid int) (*os.File, error) {
	// A process is in it for as long as it takes to get hold of it.
	c := exec.Command(command[0], append(command[1:len(command):len(command)], "hold")...)
	c.Env = runnerEnv
	one := []syscall.SysProcIDMap{{ContainerID: volumes, HostID: uid, Size: 1}}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: one, GidMappings: one}
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("make user namespace: %w", err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", c.Process.Pid))
	_ = in.Close()
	_ = c.Wait() // it says nothing that matters
	return f, err
}

// CanMapVolumes returns nil if folders below dir can be mounted with their
// owners mapped, and otherwise why not: the kernel is older than 5.12, or the
// file system cannot.
func (s *Sandbox) CanMapVolumes(dir string) error {
	ns, err := mapUser(s.runner, s.VolumeUID(), int(s.cfg.FirstUID))
	if err != nil {
		return fault.Wrap(fault.Unimplemented, err, "no user namespaces can be made here")
	}
	defer ns.Close()
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fault.Wrap(fault.Unimplemented, err, "the kernel cannot mount %s by itself", dir)
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fault.Wrap(fault.Unimplemented, err, "the file system of %s cannot map owners", dir)
	}
	return nil
}
