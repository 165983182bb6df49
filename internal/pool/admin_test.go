//go:build linux

package pool_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// TestAdministrators: a group of administrators lends no more of devices, looks for
// others, and sees, resizes and stops the tasks of all, within the quotas of those; other
// groups do none of that, and the log says who did.
func TestAdministrators(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{Groups: []pool.Group{{Name: "a", Key: key, Compute: 50}, {Name: "b", Key: key + "b"}, {Name: "ops", Key: key + "ops", Admin: true, Devices: []string{"none"}}}})
	as := func(group, key string) *pool.Client {
		t.Helper()
		c, err := pool.Dial(t.Context(), n.tcp, group, key)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	owner := dial(t, n.tcp)
	task, _, err := owner.Run(pool.Spec{Device: "opencl-0", Compute: 10, Memory: 8 * mib})
	if err != nil {
		t.Fatal(err)
	}
	other, ops := as("b", key+"b"), as("ops", key+"ops")
	if list, err := ops.Tasks(); err != nil || len(list) != 1 || list[0].ID != task.ID || list[0].Group != "a" {
		t.Errorf("administrators see %+v, %v", list, err)
	}
	if list, err := ops.Devices(); err != nil || len(list) == 0 || list[0].ID != "opencl-0" {
		t.Errorf("administrators see %+v, %v", list, err)
	}
	if _, _, err := ops.Run(pool.Spec{Device: "opencl-0", Compute: 1, Memory: mib}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a task where their tasks may not be: %v", err)
	}
	_, rescan := other.Rescan()
	_, resize := other.Resize(task.ID, 20, 0)
	for what, err := range map[string]error{"enable": other.Enable("opencl-0", true), "disable": other.Enable("opencl-0", false), "power": other.LimitPower("opencl-0", 100), "rescan": rescan} {
		if fault.KindOf(err) != fault.Denied || !strings.Contains(err.Error(), "admin: true") {
			t.Errorf("%s by a group that is none of administrators: %v", what, err)
		}
		n.log.await(t, `msg="request refused" component=pool group=b request=`+what)
	}
	for what, err := range map[string]error{"resize": resize, "stop": other.Stop(task.ID)} {
		if fault.KindOf(err) != fault.NotFound {
			t.Errorf("%s of another group's task: %v", what, err)
		}
	}
	if err := ops.Enable("opencl-0", false); err != nil {
		t.Fatal(err)
	}
	n.log.await(t, `msg="pool node administered" component=pool group=ops request=disable device=opencl-0`)
	if _, _, err := other.Run(pool.Spec{Device: "opencl-0", Compute: 1, Memory: mib}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a share of a device that was disabled: %v", err)
	}
	if err := ops.Enable("opencl-0", true); err != nil {
		t.Error(err)
	}
	if err := ops.Enable("opencl-99", true); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a device that is none: %v", err)
	}
	if _, err := ops.Rescan(); err != nil {
		t.Error(err)
	}
	if x, err := ops.Resize(task.ID, 40, 0); err != nil || x.Compute != 40 {
		t.Errorf("resized: %+v, %v", x, err)
	}
	if _, err := ops.Resize(task.ID, 60, 0); fault.KindOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "quota of group a") {
		t.Errorf("beyond the quota of its group: %v", err)
	}
	if err := ops.Stop(task.ID); err != nil {
		t.Error(err)
	}
	if why, err := owner.Ended(); err != nil || why != "it was stopped by group ops" {
		t.Errorf("its holder heard %q, %v", why, err)
	}
}

// administers is the address of a node that this process, started anew by a test, is to
// administer.
const administers = "YUNHE_POOL_TEST_ADMINISTERS"

// administer asks a node without groups for what is its own business, and says how that
// was answered.
func administer(ctx context.Context, at string) (answers string) {
	c, err := pool.Dial(ctx, at, "", "")
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_, rescan := c.Rescan()
	for _, err := range []error{rescan, c.LimitPower("no such", 1), c.Enable("no such", true)} {
		if answers += " " + fault.KindOf(err).String(); err == nil {
			answers += " none"
		}
	}
	if list, err := c.Devices(); err != nil || len(list) == 0 {
		return answers + ", and no devices"
	}
	return strings.TrimSpace(answers)
}

// TestContainersDoNotAdminister: who was given the Unix socket in a container uses the
// node, and does not administer it, though root there is root to the node.
func TestContainersDoNotAdminister(t *testing.T) {
	t.Parallel()
	start(t, pool.NodeConfig{})        // or it is skipped
	dir, err := os.MkdirTemp("", "yp") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	alone, err := pool.NewNode(pool.NodeConfig{Dir: dir, Listen: []string{"unix:" + dir + "/s"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- alone.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	for _, c := range []struct{ at, here, there string }{
		{alone.Addresses()[0], "INTERNAL none NOT_FOUND NOT_FOUND", "PERMISSION_DENIED PERMISSION_DENIED PERMISSION_DENIED"},
		{joined(t, "n1").at[0], "INTERNAL none NOT_FOUND PERMISSION_DENIED", "PERMISSION_DENIED PERMISSION_DENIED PERMISSION_DENIED"},
	} {
		if got := administer(t.Context(), c.at); got != c.here {
			t.Errorf("on its machine the answers are %q, want %q", got, c.here)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), administers+"="+c.at)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		out, err := cmd.Output()
		if os.Geteuid() != 0 && err != nil {
			t.Skipf("SKIPPED: only root makes a container here: %v", err)
		}
		if got := strings.TrimSpace(string(out)); err != nil || got != c.there {
			t.Errorf("in a container the answers are %q, %v, want %q", got, err, c.there)
		}
	}
}
