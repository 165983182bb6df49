package adaptertest

import (
	"context"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

var nodeChecks = []check{
	{"node/unknown", needsNode, nodeUnknown},
	{"node/isolated", needsNode, nodeIsolated},
	{"node/restart", needsNode, nodeRestart},
	{"node/work", needsNode, nodeWork},
	{"node/chosen", needsChoice, nodeChosen},
}

func (e *env) setNode(name string, isolated bool) error {
	ctx, cancel := e.call()
	defer cancel()
	_, err := e.client.SetNode(ctx, &adapterv1.SetNodeRequest{Name: name, Isolated: isolated, Reason: "adaptertest"})
	return err
}

// node finds a node that takes work and has it be so again when the check ends.
// alone: there is no other.
func (e *env) node(w *watcher) (name string, alone bool) {
	e.Helper()
	v := w.whole()
	ready := 0
	for _, n := range v.nodes {
		if n.State == adapterv1.NodeState_NODE_STATE_READY {
			ready++
			if name == "" || n.Name < name {
				name = n.Name
			}
		}
	}
	if name == "" {
		e.Skip("NOT CHECKED: Watch tells of no node that is ready")
	}
	e.undo = append(e.undo, func() { _ = e.setNode(name, false) }) // the instance may have ended
	return name, ready == 1
}

func (w *watcher) state(name string, want adapterv1.NodeState, why string) *adapterv1.Node {
	w.e.Helper()
	v := w.until("node "+name+" in state "+want.String()+": "+why, func(v view) bool { return v.nodes[name].GetState() == want })
	return v.nodes[name]
}

func nodeUnknown(e *env) {
	e.wantCode(e.setNode("no-such-node", true), "SetNode of no-such-node, which is no node here,", connect.CodeNotFound)
	e.wantCode(e.setNode("", true), "SetNode without a name", connect.CodeNotFound, connect.CodeInvalidArgument)
}

// nodeIsolated: it is told, with a reason, may be asked again, and ends.
func nodeIsolated(e *env) {
	w := e.watch()
	name, _ := e.node(w)
	for range 2 {
		if err := e.setNode(name, true); err != nil {
			e.Fatalf("SetNode(%s, isolated): %v; asking again is safe", name, err)
		}
		if n := w.state(name, adapterv1.NodeState_NODE_STATE_DRAINED, "it was isolated"); n.Reason == "" {
			e.Errorf("an isolated node is told without a reason: {%v}", n)
		}
	}
	for range 2 {
		if err := e.setNode(name, false); err != nil {
			e.Fatalf("SetNode(%s, not isolated): %v; asking again is safe", name, err)
		}
		w.state(name, adapterv1.NodeState_NODE_STATE_READY, "its isolation was ended")
	}
}

func nodeRestart(e *env) {
	w := e.watch()
	name, _ := e.node(w)
	if err := e.setNode(name, true); err != nil {
		e.Fatalf("SetNode(%s, isolated): %v", name, err)
	}
	w.state(name, adapterv1.NodeState_NODE_STATE_DRAINED, "it was isolated")
	e.restart()
	if n := e.watch().whole().nodes[name]; n.GetState() != adapterv1.NodeState_NODE_STATE_DRAINED {
		e.Errorf("isolated and after a restart of the driver the node is {%v}; the isolation must be kept at the center, not in the driver", n)
	}
}

// nodeWork: what runs goes on, and where it is the only node nothing new starts.
func nodeWork(e *env) {
	w, o := e.watch(), e.observe()
	name, alone := e.node(w)
	before := e.attempt(e.c.Commands.Wait)
	e.apply(before)
	o.running(before.AttemptId)
	if err := e.setNode(name, true); err != nil {
		e.Fatalf("SetNode(%s, isolated): %v", name, err)
	}
	w.state(name, adapterv1.NodeState_NODE_STATE_DRAINED, "it was isolated")
	o.stays(before.AttemptId, "its node was isolated: what runs goes on")
	after := e.attempt(e.c.Commands.Exit(0))
	if alone {
		// It may wait here, or be sent back for later; a refusal would be for good.
		res, err := e.tryApply(after)
		if err != nil {
			e.wantCode(err, "Apply while the only node is isolated", connect.CodeUnavailable)
		} else if len(res.Refusals) > 0 {
			e.Errorf("while the only node is isolated Apply refuses for good: %v; the work has to wait", res.Refusals)
		}
		ctx, cancel := context.WithTimeout(e.Context(), 2*time.Second)
		defer cancel()
		<-ctx.Done()
		if st := o.last(after.AttemptId); st.GetPhase() == adapterv1.Phase_PHASE_RUNNING || st.GetPhase() == adapterv1.Phase_PHASE_ENDED {
			e.Errorf("while the only node is isolated new work has become {%v}; it must wait", st)
		}
	}
	if err := e.setNode(name, false); err != nil {
		e.Fatalf("SetNode(%s, not isolated): %v", name, err)
	}
	w.state(name, adapterv1.NodeState_NODE_STATE_READY, "its isolation was ended")
	e.apply(after)
	o.ended(after.AttemptId)
	e.stop(before.AttemptId)
	o.endedBy(before.AttemptId, "stopped")
}

// nodeChosen: an attempt runs on the node it names, whichever that is, and one that
// names none that is there is refused.
func nodeChosen(e *env) {
	o := e.observe()
	a := e.attempt(e.c.Commands.Exit(0))
	a.Node = "no-such-node"
	e.refused(a, "a node that is not there", a.Node)
	nodes := e.watch().whole().nodes
	for _, name := range slices.Sorted(maps.Keys(nodes))[:min(len(nodes), 3)] {
		if nodes[name].State != adapterv1.NodeState_NODE_STATE_READY {
			continue
		}
		a := e.attempt(e.c.Commands.Exit(0))
		a.Node = name
		e.apply(a)
		if st := o.endedBy(a.AttemptId, "completed"); st.Node != "" && st.Node != name {
			e.Errorf("an attempt that names node %s is told to have run on %q", name, st.Node)
		}
	}
}
