package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// The commands about access, against the real platform.
func TestAccessCommands(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	f := a.Join(t, apptest.Center{ID: "c1", Region: "north"})
	work := t.TempDir()
	run := func(args ...string) (string, int) {
		var o, e bytes.Buffer
		c := newCLI()
		c.in, c.out, c.err = strings.NewReader(""), &o, &e
		c.env = func(name string) string {
			return map[string]string{"YUNHE_SERVER": a.URL(), "YUNHE_KEY": a.Admin.Key, "YUNHE_CONFIG": filepath.Join(work, "config.yaml")}[name]
		}
		status := c.run(t.Context(), args)
		return o.String() + e.String(), status
	}
	want := func(status int, pattern string, args ...string) {
		t.Helper()
		got, code := run(args...)
		if !regexp.MustCompile(`(?s)`+pattern).MatchString(got) || code != status {
			t.Errorf("yunhe %s: exit %d, want %d and %s, got:\n%s", strings.Join(args, " "), code, status, pattern, got)
		}
	}
	measured := &adapterv1.HeartbeatRequest{Measurement: &adapterv1.Measurement{MemoryTotalBytes: 8 << 30, CpuBusyPermille: 125,
		Storage: &adapterv1.StorageUse{Reads: 120, Writes: 30, ReadBytes: 1 << 20, WrittenBytes: 2 << 20, LatencyMicroseconds: 500}, Network: &adapterv1.NetworkUse{ReceivedBytes: 1 << 10, SentBytes: 2 << 10},
		Paths: []*adapterv1.Path{{Peer: "platform", LatencyMicroseconds: 30_100, JitterMicroseconds: 2000, LossPpm: 10_000, BandwidthBitsPerSecond: 94_000_000}},
		Nodes: []*adapterv1.NodeUse{{Name: "n1", CpuBusyPermille: 250, MemoryBusyBytes: 1 << 30, Accelerators: []*adapterv1.AcceleratorUse{{BusyPermille: 900, MemoryBusyBytes: 1 << 30, MemoryTotalBytes: 2 << 30}}}}}}
	measured.Inventory, measured.Node = f.Inventory(), &adapterv1.Node{Name: "n1", State: adapterv1.NodeState_NODE_STATE_READY, Architecture: "x86_64", Capacity: map[string]int64{"cpu": 4000, "memory": 1 << 33}}
	apptest.Until(t, "the figures are there", func() bool {
		if err := f.Ask("heartbeat", measured, &adapterv1.HeartbeatResponse{}); err != nil {
			t.Fatal(err)
		}
		got, _ := run("center", "show", "c1")
		return strings.Contains(got, "Path to platform")
	})
	want(0, `Use of nodes +CPU 25%, memory 1.0 GiB, accelerators 90%.*Storage +120 reads/s, 30 writes/s, 1.0 MiB/s read, 2.0 MiB/s written, 0.5 ms each.*Network +1.0 KiB/s received, 2.0 KiB/s sent.*Path to platform +latency 30.1 ms, jitter 2 ms, loss 1%, bandwidth 94 Mbit/s`,
		"center", "show", "c1")
	want(0, `Architecture +amd64.*Use +CPU 25%, memory 1.0 GiB.*Accelerator 0 +90% busy, memory 1.0 GiB`, "node", "show", "c1", "n1")
	want(0, `center:c1 +center +machine +nats`, "access", "list")
	want(0, `Source +machine.*Class +general.*Health +healthy.*connected`, "access", "show", "c1")
	want(1, `there is no`, "access", "show", "nope")
	want(0, `center-region +advice +compliant`, "access", "report", "c1")
	want(0, `grade  version 1, on`, "access", "rule", "put", "grade", "--condition", "security_grade >= 2", "--severity", "critical", "--message", "set a grade")
	want(0, `center:c1  non-compliant.*grade +critical +non-compliant +security_grade is 0 +set a grade`, "access", "report", "c1")
	want(0, `grade  version 2, off`, "access", "rule", "off", "grade")
	want(0, `grade  version 3`, "access", "rule", "restore", "grade", "--version", "1")
	want(0, `3 .*admin.*2 .*1 `, "access", "rule", "history", "grade")
	want(1, `condition`, "access", "rule", "put", "bad", "--condition", "nothing_such")
	want(0, `deleted`, "access", "rule", "delete", "grade")
	want(0, `enforce on`, "access", "enforce", "on")
	want(0, `enforce off`, "access", "enforce", "off")
	want(2, `want on or off`, "access", "enforce", "maybe")
	want(0, `architecture +x86_64 +amd64 +arch-amd64.*resource +memMB:2 +memory:2097152 +this`, "access", "conversion", "test", "--field", "resource", "--match", "memMB", "--replace", "memory", "--times", "1048576",
		"architecture=x86_64", "resource=memMB:2")
	want(0, `north  version 1, on`, "access", "conversion", "put", "north", "--field", "region", "--match", "HB|TJ", "--replace", "north")
	want(0, `north +gateway|north +- +region +HB`, "access", "conversion", "list")
	want(0, `deleted`, "access", "conversion", "delete", "north")
	want(0, `general +General computing +1 +gateway, kubernetes`, "access", "classes")
	want(0, `KIND.*center.*Judged.*center-clock`, "access", "report")
}
