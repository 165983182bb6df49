package pool_test

import (
	"bufio"
	"context"
	"net/http"
	"syscall"
	"testing"
	"time"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
)

// TestCutOff: what a node had that is cut off from its platform is taken back at
// once, though nobody says so, and it lends again when it is back; a node that only
// stands still keeps what runs.
func TestCutOff(t *testing.T) {
	w := open(t, true)
	if !w.spaces {
		t.Skip("SKIPPED: no network namespaces: this needs root and ip (iproute2)")
	}
	node, _ := w.node("n1", w.vendors("one", "pocl.icd"))
	w.online(1)
	_, err := w.bench.API.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(t, err)
	state := func() (online bool, live []*poolv1.Slice) {
		nodes, err := w.bench.API.ListPoolNodes(t.Context(), &poolv1.ListPoolNodesRequest{})
		must(t, err)
		slices, err := w.bench.API.ListSlices(t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_RUNNING}})
		must(t, err)
		return nodes.Nodes[0].Online, slices.Slices
	}
	run := func() (end func()) {
		cmd := w.bench.Yunhe(context.Background(), "", nil, "pool", "run", "--compute", "50", "--memory", "16MiB", "--", w.bench.Program, "spin", "600")
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
		t.Cleanup(end)
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "spinning\n" {
			t.Fatalf("the program says %q: %v", line, err)
		}
		w.until("its slice runs", func() bool { _, live := state(); return len(live) == 1 })
		return end
	}

	end := run()
	must(t, node.Process.Signal(syscall.SIGSTOP))
	<-time.After(4 * time.Second) // longer than silence is borne
	online, live := state()
	must(t, node.Process.Signal(syscall.SIGCONT))
	if !online || len(live) != 1 {
		t.Errorf("a node that stood still is online: %v, with %d slices", online, len(live))
	}

	// Its end of the wire is down: nothing comes through, and nothing says so.
	link := "-n yhpool2 link set eth0 "
	must(t, ip(link+"down"))
	began := time.Now()
	w.until("the node is missed", func() bool { online, live := state(); return !online && len(live) == 0 })
	took := time.Since(began)
	t.Logf("a node that was cut off is missed after %s", took)
	if took > 8*time.Second {
		t.Errorf("it is missed as late as one that does not report")
	}
	ended, err := w.bench.API.ListSlices(t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_ENDED}})
	must(t, err)
	if len(ended.Slices) != 1 || ended.Slices[0].Reason != "pool node n1 is gone" {
		t.Errorf("ended are %v", ended.Slices)
	}
	end()
	must(t, ip(link+"up"))
	w.online(1)
	run()

	// Nobody attends without the node's secret.
	anyone := poolv1connect.NewPoolServiceClient(http.DefaultClient, w.url)
	stream, err := anyone.AttendNode(t.Context(), &poolv1.AttendNodeRequest{NodeId: "n1", Secret: "0"})
	must(t, err)
	if stream.Receive() || stream.Err() == nil {
		t.Error("who does not know the node's secret attends for it")
	}
}
