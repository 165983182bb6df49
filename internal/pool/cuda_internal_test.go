//go:build linux

package pool

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFollow: the end of a process is seen, and it can be ended, also where the kernel
// gives no descriptors of processes.
func TestFollow(t *testing.T) {
	for how, open := range map[string]func(pid, flags int) (int, error){
		"by descriptor": unix.PidfdOpen, "by number": func(int, int) (int, error) { return -1, unix.ENOSYS },
		"by number, in a container": func(int, int) (int, error) { return -1, unix.EPERM },
	} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "sleep", "60")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			p, err := follow(cmd.Process.Pid, open)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			if p.ended(20 * time.Millisecond) {
				t.Error("it has ended, it is said, and has not")
			}
			p.kill()
			if !p.ended(10 * time.Second) { // nobody has waited for it yet
				t.Error("it has not ended, it is said, and was killed")
			}
			_ = cmd.Wait() // it was killed
			if !p.ended(0) {
				t.Error("afterwards it has not ended")
			}
			p.kill() // nobody's process
			if _, err := follow(cmd.Process.Pid, open); err == nil {
				t.Error("one that has ended is followed")
			}
		})
	}
}

// TestFollowOthers: a program that the node may not end is refused: nothing else would
// give back what it has on the card.
func TestFollowOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can be another user")
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for how, open := range map[string]func(pid, flags int) (int, error){"by descriptor": unix.PidfdOpen, "by number": func(int, int) (int, error) { return -1, unix.ENOSYS }} {
		told := make(chan error)
		go func() {
			runtime.LockOSThread() // which ends with the goroutine
			const nobody = 65534
			if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); no != 0 {
				told <- no
				return
			}
			_, err := follow(cmd.Process.Pid, open)
			told <- err
		}()
		if err := <-told; err == nil || !strings.Contains(err.Error(), "start the node as root") {
			t.Errorf("%s: %v", how, err)
		}
	}
	_ = cmd.Process.Kill() // or the test's end does
	_ = cmd.Wait()
}
