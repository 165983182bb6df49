package control_test

import (
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// code expects an error of the kind.
func code(t testing.TB, what string, err error, want connect.Code) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// held is what is held of CPU at a center, in cores.
func held(t testing.TB, a *apptest.App, id string) int64 {
	t.Helper()
	k, err := a.Registry.GetCenter(t.Context(), id)
	must(t, err)
	return k.Used[core.CPU] / 1000
}

// backend is the far end of a center with nodes: what was set there, as a
// driver would keep it.
type backend struct {
	t      testing.TB
	center *apptest.FakeCenter
	base   *adapterv1.Inventory

	mu    sync.Mutex // guards the fields below
	nodes map[string]*adapterv1.SetNodeRequest
	sets  map[string]int
	away  bool
}

// withNode joins a center of one node whose amounts are the center's.
func withNode(t testing.TB, a *apptest.App, c apptest.Center, node string) (*apptest.FakeCenter, *backend) {
	t.Helper()
	b := &backend{t: t, nodes: map[string]*adapterv1.SetNodeRequest{}, sets: map[string]int{}}
	c.Other = b.answer
	f := a.Join(t, c)
	b.center, b.base = f, f.Inventory()
	b.report(node)
	return f, b
}

// answer is the center's side of SetNode.
func (b *backend) answer(what string, data []byte) ([]byte, error) {
	if what != "setnode" {
		return nil, fault.New(fault.Unimplemented, "no %s", what)
	}
	r := &adapterv1.SetNodeRequest{}
	if err := proto.Unmarshal(data, r); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return nil, fault.New(fault.Unavailable, "the machine room is dark")
	}
	if b.nodes[r.Name] == nil {
		return nil, fault.New(fault.NotFound, "no node %s", r.Name)
	}
	changed := b.nodes[r.Name].Isolated != r.Isolated
	b.nodes[r.Name] = r
	b.sets[r.Name]++
	if changed {
		go b.report(r.Name)
	}
	return proto.Marshal(&adapterv1.SetNodeResponse{})
}

func (b *backend) dark(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

func (b *backend) setting(name string) (s *adapterv1.SetNodeRequest, times int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[name], b.sets[name]
}

// forget has the backend lose what it was told, as a rebuilt node does.
func (b *backend) forget(name string) {
	b.mu.Lock()
	b.nodes[name] = &adapterv1.SetNodeRequest{Name: name}
	b.mu.Unlock()
	b.report(name)
}

// report tells the platform of the node as a gateway does, which goes on until it
// has heard.
func (b *backend) report(name string) {
	b.t.Helper()
	b.mu.Lock()
	if b.nodes[name] == nil {
		b.nodes[name] = &adapterv1.SetNodeRequest{Name: name}
	}
	f, isolated := b.center, b.nodes[name].Isolated
	b.mu.Unlock()
	inv := proto.CloneOf(b.base)
	n := &adapterv1.Node{Name: name, State: adapterv1.NodeState_NODE_STATE_READY, Capacity: inv.Capacity, Allocatable: maps.Clone(inv.Capacity)}
	if isolated {
		n.State = adapterv1.NodeState_NODE_STATE_DRAINED
		for what := range inv.Capacity {
			inv.Capacity[what] = 0
		}
	}
	f.Declare(inv)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(apptest.Patience); b.t.Context().Err() == nil; <-again.C {
		err := f.Ask("heartbeat", &adapterv1.HeartbeatRequest{Inventory: inv, Node: n}, &adapterv1.HeartbeatResponse{})
		if err == nil {
			return
		}
		if fault.KindOf(err) != fault.Unavailable || time.Now().After(end) {
			b.t.Errorf("report of node %s: %v", name, err)
			return
		}
	}
}

// await waits until an operation has ended.
func await(t testing.TB, a *apptest.App, id string) *controlv1.Operation {
	t.Helper()
	var o *controlv1.Operation
	apptest.Until(t, "operation "+id+" has ended", func() bool {
		var err error
		o, err = a.Admin.Control.GetOperation(t.Context(), &controlv1.GetOperationRequest{OperationId: id})
		must(t, err)
		return o.EndedAt != nil
	})
	return o
}

// running submits a job of one replica to a center and has it run on a node.
func running(t testing.TB, a *apptest.App, f *apptest.FakeCenter, node string, retries int32) (job string, r *apptest.Replica) {
	t.Helper()
	j := apptest.Job("run", 1)
	j.MaxRetries = retries
	if retries == 0 {
		f.Pin(j)
	}
	job = a.Admin.Submit(t, j)
	r = f.Of(job, 1)[0]
	r.Run()
	st := r.Status()
	st.Node = node
	f.Report(st)
	return job, r
}

// reportNode tells the platform of a node whose center cannot set it.
func reportNode(f *apptest.FakeCenter, name string) error {
	return f.Ask("heartbeat", &adapterv1.HeartbeatRequest{Inventory: f.Inventory(), Node: &adapterv1.Node{Name: name, State: adapterv1.NodeState_NODE_STATE_READY}}, &adapterv1.HeartbeatResponse{})
}

// problems is all that an error says, every violation included.
func problems(err error) string {
	out := err.Error()
	var ce *connect.Error
	if errors.As(err, &ce) {
		for _, d := range ce.Details() {
			if v, err := d.Value(); err == nil {
				out += " " + prototext.Format(v)
			}
		}
	}
	return out
}
