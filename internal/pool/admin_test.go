//go:build linux

package pool_test

import (
	"strings"
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
