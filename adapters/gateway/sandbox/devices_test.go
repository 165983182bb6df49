//go:build linux

package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/internal/fault"
)

// fakeDevice makes a device file whose driver every Linux has: it stands for
// an accelerator's, which this machine need not have.
func fakeDevice(t *testing.T, name string, major, minor uint32) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := unix.Mknod(p, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))); err != nil {
		t.Skipf("skipped: no device files can be made here: %v", err)
	}
	return p
}

func TestDevices(t *testing.T) {
	t.Parallel()
	needHost(t)
	s := open(t, config(t))
	zero := fakeDevice(t, "fake-nvidia0", 1, 5) // /dev/zero's driver
	spec := small("with", `stat -c '%F %a %u %t:%T' /dev/nvidia0 /dev/dri/renderD128; head -c 3 /dev/nvidia0 | od -An -tx1; ls /dev /dev/dri; echo x > /dev/dri/renderD128 && echo written`)
	spec.Devices = []sandbox.Device{{Path: "/dev/nvidia0", Source: zero}, {Path: "/dev/dri/renderD128", Source: fakeDevice(t, "fake-render", 1, 3)}}
	r, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, wait(t, r), "completed", 0)
	out := output(t, r)
	for _, want := range []string{"character special file 600 200000 1:5", "character special file 600 200000 1:3", " 00 00 00", "renderD128", "written"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
	if got := r.Devices(); !slices.Equal(got, []string{zero, spec.Devices[1].Source}) {
		t.Errorf("devices %v", got)
	}
	// Another attempt has none of it.
	res, out := run(t, s, small("without", "ls /dev; cat /dev/nvidia0"))
	if res.ExitCode == 0 || strings.Contains(out, "nvidia0\n") || strings.Contains(out, "dri") {
		t.Errorf("without: %+v\n%s", res, out)
	}
}

// TestDeviceGroup puts a command with devices beside device files it was not
// given: with control groups version 1 the kernel refuses them.
func TestDeviceGroup(t *testing.T) {
	t.Parallel()
	needHost(t)
	if _, err := os.Stat("/sys/fs/cgroup/devices/devices.allow"); err != nil {
		t.Skip("skipped: no devices controller of control groups version 1 here")
	}
	s := open(t, config(t))
	spec := small("r", "cat /dev/nvidia0 >/dev/null & echo up; wait")
	spec.Devices = []sandbox.Device{{Path: "/dev/nvidia0", Source: fakeDevice(t, "fake-nvidia0", 1, 5)}}
	r, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	await(t, r, "up\n")
	found, err := filepath.Glob("/sys/fs/cgroup/devices/yunhe/*/r/devices.list")
	mine := slices.DeleteFunc(found, func(p string) bool { return !strings.Contains(p, fmt.Sprintf("/test-%d-", os.Getpid())) })
	if err != nil || len(mine) == 0 {
		t.Fatalf("no group bounds the devices: %v, %v", found, err)
	}
	seen := false
	for _, p := range mine {
		b, err := os.ReadFile(p)
		if err != nil {
			continue // another test's, gone
		}
		list := strings.Split(strings.TrimSpace(string(b)), "\n")
		slices.Sort(list)
		if slices.Equal(list, []string{"c 1:3 rw", "c 1:5 rw", "c 1:5 rw", "c 1:7 rw", "c 1:8 rw", "c 1:9 rw", "c 5:0 rw"}) ||
			slices.Equal(list, []string{"c 1:3 rw", "c 1:5 rw", "c 1:7 rw", "c 1:8 rw", "c 1:9 rw", "c 5:0 rw"}) {
			seen = true
		}
	}
	if !seen {
		t.Error("the group allows something else")
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	wait(t, r)
}

func TestDevicesInvalid(t *testing.T) {
	t.Parallel()
	base := small("r", "true")
	for name, c := range map[string]struct {
		d    []sandbox.Device
		want string
	}{
		"elsewhere": {[]sandbox.Device{{Path: "/etc/x"}}, "below /dev"}, "out": {[]sandbox.Device{{Path: "/dev/../etc/x"}}, "below /dev"}, "itself": {[]sandbox.Device{{Path: "/dev/"}}, "below /dev"},
		"own": {[]sandbox.Device{{Path: "/dev/null"}}, "every run has"}, "shm": {[]sandbox.Device{{Path: "/dev/shm/x"}}, "every run has"},
		"twice": {[]sandbox.Device{{Path: "/dev/a"}, {Path: "/dev/a"}}, "twice"}, "source": {[]sandbox.Device{{Path: "/dev/a", Source: "b"}}, "clean absolute"},
		"many": {make([]sandbox.Device, 257), "at most 256"},
	} {
		spec := base
		spec.Devices = c.d
		if err := spec.Validate(); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	needHost(t)
	s := open(t, config(t))
	for source, want := range map[string]fault.Kind{"/dev/absent": fault.Unavailable, "/etc/hostname": fault.Invalid, "/dev": fault.Invalid} {
		spec := base
		spec.Devices = []sandbox.Device{{Path: "/dev/nvidia0", Source: source}}
		if _, err := s.Start(t.Context(), spec); fault.KindOf(err) != want {
			t.Errorf("%s: %v, want %v", source, err, want)
		}
	}
}

// Devices stay with a run the next gateway finds.
func TestDevicesAdopted(t *testing.T) {
	t.Parallel()
	needHost(t)
	cfg := config(t)
	s := open(t, cfg)
	zero := fakeDevice(t, "fake-davinci0", 1, 5)
	spec := small("r", "exec sleep 1000")
	spec.Devices = []sandbox.Device{{Path: "/dev/davinci0", Source: zero}}
	if _, err := s.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, cfg)
	runs, err := s.Adopt(t.Context())
	if err != nil || len(runs) != 1 || !slices.Equal(runs[0].Devices(), []string{zero}) {
		t.Fatalf("adopted %v, %v", runs, err)
	}
	if err := runs[0].Stop(); err != nil {
		t.Fatal(err)
	}
	wait(t, runs[0])
}

func TestUsing(t *testing.T) {
	t.Parallel()
	needHost(t)
	cfg := config(t)
	if ids, err := sandbox.Using(cfg.Dir, "/x"); err != nil || len(ids) != 0 {
		t.Errorf("no folder: %v, %v", ids, err)
	}
	s := open(t, cfg)
	spec := probing(t, "in-image", "hold")
	r, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	host, err := s.Start(t.Context(), small("on-host", "exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := sandbox.Using(cfg.Dir, spec.RootFS); err != nil || !slices.Equal(ids, []string{"in-image"}) {
		t.Errorf("using: %v, %v", ids, err)
	}
	if ids, err := sandbox.Using(cfg.Dir, spec.RootFS+"x"); err != nil || len(ids) != 0 {
		t.Errorf("using another: %v, %v", ids, err)
	}
	for _, x := range []*sandbox.Run{r, host} {
		if err := x.Stop(); err != nil {
			t.Fatal(err)
		}
		wait(t, x)
	}
	if ids, err := sandbox.Using(cfg.Dir, spec.RootFS); err != nil || len(ids) != 0 {
		t.Errorf("after the end: %v, %v", ids, err)
	}
}
