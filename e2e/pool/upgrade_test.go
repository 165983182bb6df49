package pool_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
	"yunhe.dev/yunhe/internal/release"
)

// TestUpgrade: two nodes of the version before become this one, one goes back, both
// become it again, and then their platform, while programs compute that clients of
// both versions have started: of OpenCL (on PoCL) and, on a stand-in of the driver, of
// CUDA. At each step clients of both versions have programs computed for at each node
// that say what they say natively.
func TestUpgrade(t *testing.T) {
	fresh, old, tree := enginetest.Upgrade(t)
	w := &cudaWorld{world: openOf(t, old, false), driver: cardstest.BuildFrom(t, filepath.Join(tree, "internal/pool/cards/testdata"), "cuda")}
	w.vendors = w.world.vendors("one", "pocl.icd")
	w.far = w.compile(filepath.Join(tree, "shim/test/cudaremote.c"))
	w.group()
	nodes := []string{"n1", "n2"}
	for _, name := range nodes {
		w.start(name, false)
	}
	w.online(len(nodes))

	cases := []struct{ run, program []string }{{nil, []string{w.bench.Program, "add", "3"}}}
	for _, what := range [][]string{{"copies"}, {"streams"}, {"threads", "3"}, {"fill"}} {
		cases = append(cases, struct{ run, program []string }{[]string{"--api", "cuda"}, append([]string{w.far}, what...)})
	}
	native := make([]string, len(cases))
	for i, c := range cases[:len(cases)-1] {
		cmd := exec.CommandContext(t.Context(), c.program[0], c.program[1:]...)
		cmd.Env = append(os.Environ(), "OCL_ICD_VENDORS="+w.vendors, "LD_LIBRARY_PATH="+w.driver)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("natively %v: %v", c.program, err)
		}
		native[i] = string(out)
	}
	native[len(cases)-1] = "filled 200, error 2\nagain 0\n"
	compute := func(when string) {
		t.Helper()
		for _, client := range []string{old, fresh} {
			w.bin = client
			for _, node := range nodes {
				for i, c := range cases {
					args := append(append([]string{"--on", node, "--compute", "10", "--memory", "200MiB"}, c.run...), "--")
					if out, err := w.run(append(args, c.program...)...); err != nil || out != native[i] {
						t.Errorf("%s, %s at %s, %v: %v: %q, natively %q", when, filepath.Base(client), node, c.program[1:], err, out, native[i])
					}
				}
			}
		}
	}
	compute("before")

	var walks, holds []*talk
	var walking []*poolv1.Slice
	for _, client := range []string{old, fresh} {
		w.bin = client
		for _, node := range nodes {
			k := w.talk("--on", node, "--compute", "10", "--memory", "16MiB", "--", w.bench.Program, "walk", "4")
			k.expect("", "walking")
			res, err := w.bench.API.ListSlices(t.Context(), &poolv1.ListSlicesRequest{}) // the newest first
			must(t, err)
			walking = append(walking, res.Slices[0])
			h := w.talk("--on", node, "--api", "cuda", "--compute", "10", "--memory", "16MiB", "--", w.far, "hold", "16")
			h.expect("", "filled 16, error 0")
			walks, holds = append(walks, k), append(holds, h)
		}
	}
	operation := poolv1connect.NewPoolOperationServiceClient(http.DefaultClient, w.url, w.auth)
	reach := func(id string, want poolv1.PoolUpgrade_State) {
		t.Helper()
		w.until(fmt.Sprintf("upgrade %s is %v", id, want), func() bool {
			res, err := operation.ListPoolUpgrades(t.Context(), &poolv1.ListPoolUpgradesRequest{})
			if connect.CodeOf(err) == connect.CodeUnavailable {
				return false // the platform is upgraded
			}
			must(t, err)
			for _, u := range res.Upgrades {
				if u.UpgradeId == id && u.Reason != "" && want == poolv1.PoolUpgrade_STATE_DONE {
					t.Fatalf("upgrade %s: %s", id, u.Reason)
				} else if u.UpgradeId == id {
					return u.State == want
				}
			}
			return false
		})
	}
	w.yunhe("pool", "upgrade", "upload", fresh)
	sum, err := release.Sum(fresh)
	must(t, err)
	upgrade := func(platform bool, names ...string) (id string) {
		t.Helper()
		x, err := operation.StartPoolUpgrade(t.Context(), &poolv1.StartPoolUpgradeRequest{Sha256: sum, NodeIds: names, Platform: platform})
		must(t, err)
		reach(x.UpgradeId, poolv1.PoolUpgrade_STATE_DONE)
		return x.UpgradeId
	}
	before := w.versions()["n1"]
	runs := func(when string, want map[string]bool) { // whether each runs this version
		t.Helper()
		w.online(len(nodes))
		for node, version := range w.versions() {
			if (version != before) != want[node] {
				t.Errorf("%s %s runs %s", when, node, version)
			}
		}
		for _, h := range holds {
			h.expect("m", "more 2")
		}
		compute(when)
	}
	shares := func(node string) bool { // whether its shared socket is listened at
		conn, err := net.Dial("unix", filepath.Join(w.dir, node, pool.SharedSocket))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	had := shares("n1") // one of a version before has none, and gives none away
	first := upgrade(false, "n1")
	runs("one is upgraded:", map[string]bool{"n1": true})
	if !shares("n1") {
		t.Error("a node that was upgraded shares no socket")
	}

	for _, x := range []*poolv1.Slice{walking[0], walking[3]} { // from each to the other
		to := map[string]string{"n1": "n2", "n2": "n1"}[x.NodeId]
		_, err := w.bench.API.MoveSlice(t.Context(), &poolv1.MoveSliceRequest{SliceId: x.SliceId, NodeId: to, WaitMs: 5000})
		if connect.CodeOf(err) != connect.CodeAborted || !strings.Contains(err.Error(), "between nodes of one version") {
			t.Errorf("moved from %s to %s, of another version: %v", x.NodeId, to, err)
		}
	}

	_, err = operation.ChangePoolUpgrade(t.Context(), &poolv1.ChangePoolUpgradeRequest{UpgradeId: first, Action: poolv1.ChangePoolUpgradeRequest_ACTION_ROLL_BACK})
	must(t, err)
	reach(first, poolv1.PoolUpgrade_STATE_ROLLED_BACK)
	runs("it went back:", nil)
	if shares("n1") != had {
		t.Errorf("a node that went back shares a socket: %v, it did: %v", !had, had)
	}
	upgrade(false, nodes...)
	both := map[string]bool{"n1": true, "n2": true}
	runs("both are upgraded:", both)
	if x := w.moved(walking[0].SliceId, "n2"); (x.NodeId == "n2") != (x.MoveError == "") { // its worker is of the version before
		t.Errorf("after both are upgraded, what the version before began moves: %v", x)
	}
	upgrade(true)
	runs("the platform is upgraded:", both)

	for _, k := range walks {
		must(t, k.in.Close())
		if !k.out.Scan() || !regexp.MustCompile(`^walked [1-9]`).MatchString(k.out.Text()) {
			t.Errorf("%v: %q, %s", k.cmd.Args, k.out.Text(), k.errs.String())
		}
	}
	for _, k := range append(walks, holds...) {
		_ = k.in.Close() // or it is
		if err := k.cmd.Wait(); err != nil {
			t.Errorf("%v: %v: %s", k.cmd.Args, err, k.errs.String())
		}
	}
}

// versions are those of the nodes.
func (w *world) versions() map[string]string {
	w.t.Helper()
	res, err := w.bench.API.ListPoolNodes(context.WithoutCancel(w.t.Context()), &poolv1.ListPoolNodesRequest{})
	must(w.t, err)
	out := map[string]string{}
	for _, n := range res.Nodes {
		out[n.NodeId] = n.Version
	}
	return out
}
