//go:build linux

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/adapters/gateway/images"
	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/fault"
)

// fakeMachine makes a root with device files called like accelerators'. They
// are fakes: behind each is the driver of /dev/zero, which every Linux has.
func fakeMachine(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		p := filepath.Join(root, "dev", name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		if err := unix.Mknod(p, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil {
			t.Skipf("SKIPPED: no device files can be made here: %v", err)
		}
	}
	return root
}

// drm tells the fake machine of which vendor and where a render node is.
func drm(t *testing.T, root, node, vendor, address string) {
	t.Helper()
	pci := filepath.Join(root, "sys/devices", address)
	must(t, os.MkdirAll(pci, 0o755))
	must(t, os.WriteFile(filepath.Join(pci, "vendor"), []byte(vendor+"\n"), 0o644))
	class := filepath.Join(root, "sys/class/drm", node)
	must(t, os.MkdirAll(class, 0o755))
	must(t, os.Symlink(pci, filepath.Join(class, "device")))
}

func TestFindDevices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files []string
		drm   [][3]string
		want  map[string]int64
	}{
		"none":           {[]string{"null"}, nil, map[string]int64{}},
		"nvidia":         {[]string{"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidiax"}, nil, map[string]int64{"gpu": 3}},
		"nvidia twice":   {[]string{"nvidia0", "nvidiactl", "dri/renderD128", "dri/card0"}, [][3]string{{"renderD128", "0x10de", "0000:3b:00.0"}}, map[string]int64{"gpu": 1}},
		"amd":            {[]string{"kfd", "dri/renderD128", "dri/renderD129"}, [][3]string{{"renderD128", "0x1002", "0000:03:00.0"}}, map[string]int64{"gpu": 2}},
		"amd, no kfd":    {[]string{"dri/renderD128"}, [][3]string{{"renderD128", "0x1002", "0000:03:00.0"}}, map[string]int64{}},
		"own graphics":   {[]string{"dri/renderD128"}, [][3]string{{"renderD128", "0x8086", "0000:00:02.0"}}, map[string]int64{}},
		"a card":         {[]string{"dri/renderD128"}, [][3]string{{"renderD128", "0x8086", "0000:4d:00.0"}}, map[string]int64{"gpu": 1}},
		"ascend":         {[]string{"davinci0", "davinci7", "davinci_manager", "devmm_svm", "hisi_hdc"}, nil, map[string]int64{"npu": 2}},
		"no manager":     {[]string{"davinci0"}, nil, map[string]int64{}},
		"two kinds":      {[]string{"nvidia0", "davinci0", "davinci_manager"}, nil, map[string]int64{"gpu": 1, "npu": 1}},
		"no number ever": {[]string{"nvidia99999999999999999999"}, nil, map[string]int64{}},
	} {
		root := fakeMachine(t, c.files...)
		for _, d := range c.drm {
			drm(t, root, d[0], d[1], d[2])
		}
		must(t, os.WriteFile(filepath.Join(root, "dev", "nvidia7"), []byte("a file is no device"), 0o644))
		d, err := newDevices(root, false)
		if err != nil || !maps.Equal(d.count(), c.want) {
			t.Errorf("%s: %v, %v, want %v", name, d.count(), err, c.want)
		}
		if d, err := newDevices(root, true); err != nil || len(d.count()) != 0 {
			t.Errorf("%s: none asked for, got %v, %v", name, d.count(), err)
		}
	}
	if d, err := newDevices(filepath.Join(t.TempDir(), "absent"), false); err != nil || len(d.all) != 0 {
		t.Errorf("no /dev: %v, %v", d, err)
	}
}

func TestTake(t *testing.T) {
	t.Parallel()
	root := fakeMachine(t, "nvidia0", "nvidia1", "nvidia2", "kfd", "dri/renderD128", "dri/renderD129", "davinci0", "davinci_manager")
	d, err := newDevices(root, false)
	must(t, err)
	files := func(list []device) string {
		var out []string
		for _, x := range list {
			out = append(out, x.file)
		}
		return strings.Join(out, " ")
	}
	want := func(attempt string, gpu, npu int64, wantFiles string, kind fault.Kind) {
		t.Helper()
		got, err := d.take(attempt, map[string]int64{"gpu": gpu, "npu": npu, "cpu": 1000})
		if files(got) != wantFiles || (err != nil) != (wantFiles == "" && gpu+npu > 0) || err != nil && fault.KindOf(err) != kind {
			t.Errorf("%s asks for %d, %d: %q, %v, want %q", attempt, gpu, npu, files(got), err, wantFiles)
		}
	}
	want("a", 0, 0, "", 0)
	want("b", 2, 0, "nvidia0 nvidia1", 0)
	want("c", 2, 1, "dri/renderD128 dri/renderD129 davinci0", 0) // not one of each kind
	want("d", 2, 0, "", fault.Unavailable)
	want("e", 1, 1, "", fault.Unavailable) // all or nothing
	want("f", 1, 0, "nvidia2", 0)
	want("g", 4, 0, "", fault.Invalid)
	want("g", 0, 2, "", fault.Invalid)
	d.release("b")
	want("h", 1, 0, "nvidia0", 0)
}

// Who has accelerators that others want is waited for a little; then others are
// refused for now, for another center to take them.
func TestBusyDevices(t *testing.T) {
	t.Parallel()
	root := fakeMachine(t, "nvidia0", "nvidia1")
	synctest.Test(t, func(t *testing.T) {
		d, err := newDevices(root, false)
		must(t, err)
		take := func(attempt string, n int64, kind fault.Kind) {
			t.Helper()
			_, err := d.take(attempt, map[string]int64{"gpu": n})
			if _, later := forNow(err); (err != nil) != (kind != 0) || err != nil && fault.KindOf(err) != kind || later != (kind == fault.Exhausted) {
				t.Errorf("%s: %v", attempt, err)
			}
		}
		take("a", 2, 0)
		take("b", 1, fault.Unavailable)
		time.Sleep(waitForDevices - 1)
		take("b", 1, fault.Unavailable)
		take("c", 2, fault.Unavailable)
		d.release("a")
		take("b", 1, 0)
		time.Sleep(time.Nanosecond)
		take("c", 2, fault.Unavailable)
		time.Sleep(waitForDevices)
		take("c", 2, fault.Exhausted)
		take("c", 2, fault.Unavailable) // were it placed here again
		time.Sleep(20 * waitForDevices)
		take("d", 2, fault.Unavailable)
		if len(d.lacking) != 1 {
			t.Errorf("%d attempts that nobody tells again are kept", len(d.lacking)-1)
		}
	})
}

var gateways atomic.Int64

// gatewayOn starts what an agent starts attempts with, on a fake machine.
func gatewayOn(t *testing.T, dir, root string) *Agent {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("SKIPPED: the sandbox needs root, this is user %d", os.Geteuid())
	}
	log := slog.New(slog.DiscardHandler)
	a := &Agent{cfg: Config{Dir: dir}, log: log, dirty: map[string]bool{}, wake: make(chan struct{}, 1), resync: make(chan struct{}, 1),
		never: map[string]verdict{}, early: map[string]bool{}, adopted: map[string]bool{}}
	var err error
	a.devices, err = newDevices(root, false)
	must(t, err)
	a.images, err = images.Open(ImagesDir(dir))
	must(t, err)
	a.ledger, err = openLedger(filepath.Join(dir, "recorded"))
	must(t, err)
	id, err := os.ReadFile(filepath.Join(dir, "id"))
	if err != nil {
		id = fmt.Appendf(nil, "apptest-%d-agent-%d", os.Getpid(), gateways.Add(1))
		must(t, os.WriteFile(filepath.Join(dir, "id"), id, 0o600))
	}
	a.sb, err = sandbox.New(sandbox.Config{Dir: RunsDir(dir), GatewayID: string(id)}, log)
	must(t, err)
	runs, err := a.sb.Adopt(t.Context())
	must(t, err)
	for _, r := range runs {
		a.devices.restore(r)
		a.follow(t.Context(), r)
	}
	return a
}

func (a *Agent) close() { a.sb.Close(); a.ledger.close() }

// Attempts have the accelerators they asked for and no other, also when a
// second gateway takes over.
func TestAccelerators(t *testing.T) {
	t.Parallel()
	root := fakeMachine(t, "nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm", "davinci0", "davinci1", "davinci_manager", "hisi_hdc")
	dir := t.TempDir()
	a := gatewayOn(t, dir, root)
	stopAll := func() {
		runs, err := a.sb.Adopt(context.Background())
		must(t, err)
		for _, r := range runs {
			must(t, r.Stop())
			<-r.Done()
		}
		a.close()
	}
	t.Cleanup(func() { stopAll() })
	start := func(id, command string, resources map[string]int64) (string, error) {
		t.Helper()
		all := map[string]int64{"cpu": 1000, "memory": 64 << 20}
		maps.Copy(all, resources)
		return a.start(t.Context(), &adapterv1.Attempt{AttemptId: id, Command: command, ImageId: "host", Resources: all, Env: map[string]string{"CUDA_VISIBLE_DEVICES": "9"}})
	}
	const look = `echo "[$NVIDIA_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES $ASCEND_VISIBLE_DEVICES $ASCEND_RT_VISIBLE_DEVICES]"; cd /dev; echo nvidia* davinci* hisi*; exec sleep 1000`
	sees := func(id, want string) {
		t.Helper()
		run, err := a.sb.Get(id)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		log := run.Log(0, true)
		defer log.Close()
		var got strings.Builder
		for strings.Count(got.String(), "\n") < 2 {
			c, err := log.Next(ctx)
			must(t, err)
			got.Write(c.Data)
		}
		if got.String() != want {
			t.Errorf("%s sees\n%swant\n%s", id, got.String(), want)
		}
	}
	ok := func(id string, resources map[string]int64) {
		t.Helper()
		if refusal, err := start(id, look, resources); refusal != "" || err != nil {
			t.Fatalf("%s: %q, %v", id, refusal, err)
		}
	}
	ok("one", map[string]int64{"gpu": 2})
	sees("one", "[0,1 0,1  ]\nnvidia-uvm nvidia0 nvidia1 nvidiactl davinci* hisi*\n")
	ok("two", map[string]int64{"gpu": 1, "npu": 1})
	sees("two", "[2 0 0 0]\nnvidia-uvm nvidia2 nvidiactl davinci0 davinci_manager hisi_hdc\n")
	ok("none", nil)
	sees("none", "[ 9  ]\nnvidia* davinci* hisi*\n")
	if refusal, err := start("wait", look, map[string]int64{"gpu": 2}); refusal != "" || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("more than are free: %q, %v, want it asked again", refusal, err)
	}
	if refusal, err := start("many", look, map[string]int64{"gpu": 5}); !strings.Contains(refusal, "this machine has 4") || err != nil {
		t.Errorf("more than there are: %q, %v", refusal, err)
	}
	ok("two", map[string]int64{"gpu": 1, "npu": 1}) // a repetition takes nothing

	a.close()
	a = gatewayOn(t, dir, root)
	if refusal, err := start("wait", look, map[string]int64{"gpu": 2}); refusal != "" || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("after a restart: %q, %v, want it asked again", refusal, err)
	}
	ok("three", map[string]int64{"gpu": 1, "npu": 1})
	sees("three", "[3 0 1 0]\nnvidia-uvm nvidia3 nvidiactl davinci1 davinci_manager hisi_hdc\n")
	run, err := a.sb.Get("one")
	must(t, err)
	must(t, run.Stop())
	<-run.Done()
	// Released by who follows the run, an instant later.
	for end := time.Now().Add(time.Minute); ; {
		refusal, err := start("wait", look, map[string]int64{"gpu": 2})
		if err == nil && refusal == "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("never released: %q, %v", refusal, err)
		}
	}
	sees("wait", "[0,1 0,1  ]\nnvidia-uvm nvidia0 nvidia1 nvidiactl davinci* hisi*\n")
	if got := run.Devices(); len(got) != 4 || !slices.Contains(got, filepath.Join(root, "dev/nvidia1")) {
		t.Errorf("devices of an ended run: %v", got)
	}
}
