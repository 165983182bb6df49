package agent_test

import (
	"os/exec"
	"strings"
	"testing"

	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// A gateway's machine is isolated, stays so when the gateway starts anew, and
// takes work again; a reclaim stops what runs there and says what.
func TestNode(t *testing.T) {
	t.Parallel()
	apptest.NeedRoot(t)
	a := apptest.Start(t, apptest.Options{})
	g := a.Gateway(t)
	ctx := t.Context()
	long := a.Admin.Submit(t, command("long", "exec sleep 1000"))
	run := a.Admin.AwaitState(t, long, jobsv1.State_STATE_RUNNING).Replicas[0]
	var name string
	state := func() registryv1.NodeState {
		res, err := a.Admin.Registry.ListNodes(ctx, &registryv1.ListNodesRequest{AiCenterId: g.ID})
		if err != nil || len(res.Nodes) != 1 {
			return 0
		}
		name = res.Nodes[0].Name
		return res.Nodes[0].State
	}
	apptest.Until(t, "the machine is known", func() bool { return state() == registryv1.NodeState_NODE_STATE_READY })
	if run.Node != name {
		t.Errorf("the run is on %q, the machine is %q", run.Node, name)
	}
	if _, err := a.Admin.Control.IsolateResource(ctx, &controlv1.IsolateResourceRequest{AiCenterId: g.ID, Node: name, Reason: "fan"}); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "it is drained", func() bool { return state() == registryv1.NodeState_NODE_STATE_DRAINED })
	waits := a.Admin.Submit(t, command("waits", "true"))
	g.Stop()
	g.Start()
	apptest.Until(t, "it has nothing for new work", func() bool {
		k, err := a.Registry.GetCenter(ctx, g.ID)
		return err == nil && k.Total["cpu"] == 0 && state() == registryv1.NodeState_NODE_STATE_DRAINED
	})
	o, err := a.Admin.Control.ReclaimResource(ctx, &controlv1.ReclaimResourceRequest{AiCenterId: g.ID, Node: name, ThenFree: true})
	if err != nil {
		t.Fatal(err)
	}
	if j := a.Admin.AwaitState(t, long, jobsv1.State_STATE_FAILED); j.Reason != "reclaimed" {
		t.Errorf("the job ended for %q", j.Reason)
	}
	apptest.Until(t, "the reclaim has ended", func() bool {
		o, err = a.Admin.Control.GetOperation(ctx, &controlv1.GetOperationRequest{OperationId: o.OperationId})
		return err == nil && o.State == controlv1.OperationState_OPERATION_STATE_SUCCEEDED
	})
	a.Admin.AwaitState(t, waits, jobsv1.State_STATE_SUCCEEDED)
}

// What a (fake) program of a vendor says of its cards is what the platform
// knows of the machine.
func TestUseOfCards(t *testing.T) {
	t.Parallel()
	apptest.NeedRoot(t)
	a := apptest.Start(t, apptest.Options{})
	g := a.Gateway(t)
	g.Stop()
	g.Root = t.TempDir()
	const script = "#!/bin/sh\necho '0, 37, 1024, 81559'; echo '1, 90, 40000, 81559'\n"
	cmd := exec.Command("/bin/sh", "-c", `cd "$0" && ln -s /proc proc && mkdir -p usr/bin && cat >usr/bin/nvidia-smi && chmod 755 usr/bin/nvidia-smi`, g.Root)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	g.Start()
	apptest.Until(t, "the platform knows how busy the cards are", func() bool {
		return strings.Contains(string(a.Admin.REST(t, "GET", "/v1/centers/"+g.ID+"/figures", "").Body), `"acceleratorBusyRatio":0.635`)
	})
}
