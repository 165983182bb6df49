package pool_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
)

// TestContainers plays tests 12.4 and 12.9 with programs in containers: runs of
// jobs at a gateway, each in namespaces and control groups of its own, where no
// accelerator is. One has cards of two nodes in one context; of two with the same
// affinity each has all of one card, of which twice the compute is lent.
func TestContainers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: gateways need root to isolate what they run")
	}
	w := open(t, false)
	w.lend(w.vendors("one", "pocl.icd"), "n1", "n2")
	ids := map[string]string{}
	// submit has a job compute until it is told to end.
	submit := func(name, shares, program string) {
		t.Helper()
		const until = `mkfifo f && exec 3<>f && { (while [ ! -e go ]; do sleep 0.2; done; echo >&3) & ./program `
		out := w.yunhe("job", "submit", "--name", name, "--image", "host", "--spec", "small", "--pool", shares, "--add-file", w.bench.Program+":program", "--command", until+program+" <f; }")
		if ids[name] = regexp.MustCompile(`job_\w+`).FindString(out); ids[name] == "" {
			t.Fatalf("submitted as %q", out)
		}
	}
	slicesOf := func() (out []*poolv1.Slice) {
		t.Helper()
		res, err := w.bench.API.ListSlices(t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_RUNNING}})
		must(t, err)
		for _, x := range res.Slices {
			if x.JobId != "" && x.DeviceMicros > 0 && x.MemoryUsedBytes > 0 {
				out = append(out, x)
			}
		}
		return out
	}
	ended := func() bool {
		res, err := w.bench.API.ListSlices(t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_WAITING, poolv1.Slice_STATE_ASSIGNED, poolv1.Slice_STATE_RUNNING}})
		must(t, err)
		return len(res.Slices) == 0
	}
	result := func(name, want string) {
		t.Helper()
		w.yunhe("job", "exec", ids[name], "--", "touch", "go")
		w.yunhe("job", "wait", ids[name]) // which fails if the job does
		if log := w.yunhe("job", "logs", ids[name]); !strings.Contains(log, want) {
			t.Errorf("%s printed %q, want %q", name, log, want)
		}
	}

	// 12.4
	submit("aggregated", "compute=40,memory=64MiB,cards=2,across,group=g", "cards 0")
	var cards []*poolv1.Slice
	w.until("the cards of both nodes are used", func() bool { cards = slicesOf(); return len(cards) == 2 })
	if cards[0].NodeId == cards[1].NodeId {
		t.Errorf("both cards are at %s", cards[0].NodeId)
	}
	result("aggregated", "cards 2\n")
	w.until("its cards are released", ended)

	// 12.9
	nodes, err := w.bench.API.ListPoolNodes(t.Context(), &poolv1.ListPoolNodesRequest{})
	must(t, err)
	for _, n := range nodes.Nodes {
		_, err := w.bench.API.SetPoolDevice(t.Context(), &poolv1.SetPoolDeviceRequest{NodeId: n.NodeId, DeviceId: n.Devices[0].DeviceId, ComputeLimitPercent: 200})
		must(t, err)
	}
	lent := func() map[string]int64 {
		nodes, err := w.bench.API.ListPoolNodes(t.Context(), &poolv1.ListPoolNodesRequest{})
		must(t, err)
		out := map[string]int64{}
		for _, n := range nodes.Nodes {
			out[n.NodeId] = n.Devices[0].ComputeLentPercent
		}
		return out
	}
	for _, x := range []struct {
		word, shares string
		lent         []int64 // of the nodes' cards
	}{{"near", "affinity=near", []int64{0, 200}}, {"far", "apart=far", []int64{100, 100}}} {
		for i := range 2 {
			submit(fmt.Sprint(x.word, i), "compute=100,memory=64MiB,group=g,"+x.shares, "walk 4")
		}
		w.until("both compute, on the cards they should", func() bool {
			all := slicesOf()
			is := slices.Sorted(maps.Values(lent()))
			return len(all) == 2 && (all[0].NodeId == all[1].NodeId) == (x.word == "near") && slices.Equal(is, x.lent)
		})
		for i := range 2 {
			result(fmt.Sprint(x.word, i), "walked")
		}
		w.until("what they had is released", ended)
	}
}
