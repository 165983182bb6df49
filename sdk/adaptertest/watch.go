package adaptertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// beat is the contract's longest silence of Watch, and late what a busy
// machine may add before the suite complains.
const beat, late = 3 * time.Second, 1500 * time.Millisecond

var watchChecks = []check{
	{"watch/whole", needsNothing, watchWhole},
	{"watch/nodes", needsNothing, watchNodes},
	{"watch/equipment", needsNothing, watchEquipment},
	{"watch/beat", needsNothing, watchBeat},
	{"watch/deadline", needsNothing, watchDeadline},
	{"watch/changes", needsChange, watchChanges},
}

// view is what a reader of Watch knows after the messages it had.
type view struct {
	inv     *adapterv1.Inventory
	nodes   map[string]*adapterv1.Node
	network map[string]*adapterv1.Equipment
	trouble string
	whole   bool // the first of it is complete
	count   int  // of messages
}

// watcher is a stream of Watch under way.
type watcher struct {
	e *env

	mu      sync.Mutex // guards the fields below
	view    view
	silence time.Duration // the longest between two messages
	over    error
	wake    chan struct{} // closed and replaced with each message
}

// watch begins to watch, until the check or the instance ends.
func (e *env) watch() *watcher {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	w := &watcher{e: e, wake: make(chan struct{}), view: view{nodes: map[string]*adapterv1.Node{}, network: map[string]*adapterv1.Equipment{}}}
	done := make(chan struct{})
	client := e.client
	go func() {
		defer close(done)
		last := time.Now()
		stream, err := client.Watch(ctx, &adapterv1.WatchRequest{})
		if err == nil {
			for stream.Receive() {
				w.add(stream.Msg(), time.Since(last))
				last = time.Now()
			}
			err = errors.Join(errors.New("the stream ended"), stream.Err())
			_ = stream.Close() // it has ended
		}
		if ctx.Err() == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.over = err
			w.tell()
		}
	}()
	e.dead = append(e.dead, func() {
		cancel()
		<-done
	})
	return w
}

// tell wakes who waits; w.mu is held.
func (w *watcher) tell() {
	close(w.wake)
	w.wake = make(chan struct{})
}

func (w *watcher) add(m *adapterv1.WatchResponse, silence time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.tell()
	w.silence = max(w.silence, silence)
	v := &w.view
	v.count++
	if v.trouble = m.Trouble; m.Trouble != "" {
		if m.Inventory != nil || len(m.Nodes)+len(m.Gone)+len(m.Equipment)+len(m.EquipmentGone) > 0 || m.Measurement != nil || m.More {
			w.e.Errorf("Watch: a message with trouble carries more: {%v}. In trouble nothing is known, so nothing else may be said", m)
		}
		return
	}
	for _, n := range m.Nodes {
		v.nodes[n.Name] = n
	}
	for _, name := range m.Gone {
		if v.nodes[name] == nil {
			w.e.Errorf("Watch: node %q is gone but never was", name)
		}
		delete(v.nodes, name)
	}
	for _, x := range m.Equipment {
		v.network[x.Name] = x
	}
	for _, name := range m.EquipmentGone {
		if v.network[name] == nil {
			w.e.Errorf("Watch: equipment %q is gone but never was", name)
		}
		delete(v.network, name)
	}
	if m.Inventory != nil {
		v.inv = m.Inventory
	}
	if !m.More && !v.whole {
		if v.whole = true; v.inv == nil {
			w.e.Errorf("Watch: no inventory in the first message, which must be the whole (or in several, all but the last marked more): {%v}", m)
		}
	}
}

// until waits until the view is as wanted and returns a copy of it.
func (w *watcher) until(want string, ok func(view) bool) view {
	w.e.Helper()
	deadline := time.After(w.e.c.Patience)
	for late := false; ; {
		w.mu.Lock()
		wake, over, v := w.wake, w.over, w.view
		v.nodes, v.network = maps.Clone(v.nodes), maps.Clone(v.network)
		w.mu.Unlock()
		if ok(v) {
			return v
		}
		if over != nil {
			w.e.Fatalf("Watch ended by itself (%v): it must last until the caller breaks it off, and say trouble while the center cannot be reached. Waited for %s", over, want)
		}
		if late {
			w.e.Fatalf("Watch does not tell %s within %v (Config.Patience). It knows %d nodes, trouble %q and the inventory {%v}", want, w.e.c.Patience, len(v.nodes), v.trouble, v.inv)
		}
		select {
		case <-wake:
		case <-deadline:
			late = true
		case <-w.e.Context().Done():
			w.e.Fatalf("the test ended while it waited for %s", want)
		}
	}
}

// whole waits until all there is has been told.
func (w *watcher) whole() view {
	w.e.Helper()
	return w.until("the whole inventory, without trouble", func(v view) bool { return v.whole && v.inv != nil && v.trouble == "" })
}

func watchWhole(e *env) {
	a, b := e.watch(), e.watch() // two readers: each gets all
	inv := e.discover()
	for _, w := range []*watcher{a, b} {
		v := w.whole()
		e.judge(v.inv, "Watch")
		if !proto.Equal(fixed(v.inv), fixed(inv)) {
			e.Errorf("Watch tells the inventory\n{%v}\nand Discover\n{%v}\nwith nothing changed", v.inv, inv)
		}
	}
	if !maps.Equal(keys(a.whole().nodes2()), keys(b.whole().nodes2())) {
		e.Errorf("two readers of Watch were told different nodes")
	}
}

func (v view) nodes2() map[string]int64 {
	out := map[string]int64{}
	for name := range v.nodes {
		out[name] = 0
	}
	return out
}

var accelerators = []string{"gpu", "npu", "mlu", "dcu"}

func watchEquipment(e *env) {
	v := e.watch().whole()
	if len(v.network) == 0 {
		e.Log("this driver tells of no network equipment")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(v.network)) {
		x := v.network[name]
		if name == "" || len(name) > 253 {
			e.Errorf("Watch: the name of equipment is %q; want 1 to 253 bytes", name)
		}
		if adapterv1.EquipmentState_name[int32(x.State)] == "" || x.State == 0 || adapterv1.EquipmentKind_name[int32(x.Kind)] == "" {
			e.Errorf("Watch: equipment %s has the state %v and the kind %v; want those of the contract", name, x.State, x.Kind)
		}
		if x.State != adapterv1.EquipmentState_EQUIPMENT_STATE_UP && x.State != adapterv1.EquipmentState_EQUIPMENT_STATE_DISABLED && x.Reason == "" {
			e.Errorf("Watch: equipment %s is not well and gives no reason; an operator needs one", name)
		}
		ports := map[string]bool{}
		for _, p := range x.Ports {
			if p.Name == "" || len(p.Name) > 64 || ports[p.Name] || len(x.Ports) > 1024 {
				e.Errorf("Watch: equipment %s has a port %q among %d; want names of 1 to 64 bytes, each once, and at most 1024", name, p.Name, len(x.Ports))
			}
			ports[p.Name] = true
			if adapterv1.PortState_name[int32(p.State)] == "" || p.State == 0 {
				e.Errorf("Watch: port %s of %s has the state %v; want one of the contract", p.Name, name, p.State)
			}
			if min(p.ErrorsPpm, p.LossPpm) < 0 || max(p.ErrorsPpm, p.LossPpm) > 1_000_000 {
				e.Errorf("Watch: of what came in at port %s of %s %d and %d millionths are bad; want 0 to a million", p.Name, name, p.ErrorsPpm, p.LossPpm)
			}
			if p.PeerNode != "" && (p.PeerEquipment != "" || v.nodes[p.PeerNode] == nil) {
				e.Errorf("Watch: port %s of %s leads to node %q, which is not there, or to equipment as well", p.Name, name, p.PeerNode)
			}
		}
	}
}

func watchNodes(e *env) {
	v := e.watch().whole()
	if len(v.nodes) == 0 {
		e.Log("this driver tells of no nodes, so there is nothing to add up")
		return
	}
	sum := map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		n := v.nodes[name]
		if n.Name == "" || len(n.Name) > 253 {
			e.Errorf("Watch: a node's name is %q; want 1 to 253 bytes", n.Name)
		}
		switch n.State {
		case adapterv1.NodeState_NODE_STATE_READY:
			for r, q := range n.Allocatable {
				sum[r] += q
			}
		case adapterv1.NodeState_NODE_STATE_NOT_READY:
			if n.Reason == "" {
				e.Errorf("Watch: node %s is not ready and gives no reason; an operator needs one", name)
			}
		case adapterv1.NodeState_NODE_STATE_DRAINED:
		default:
			e.Errorf("Watch: node %s has no state", name)
		}
		for r, q := range n.Allocatable {
			if c := n.Capacity[r]; q < 0 || q > c {
				e.Errorf("Watch: of node %s jobs may use %d of %s, which has %d", name, q, r, c)
			}
		}
		count := map[string]int64{}
		for _, a := range n.Accelerators {
			if !slices.Contains(accelerators, a.Resource) || a.Count <= 0 || a.Vendor == "" || a.MemoryBytes < 0 {
				e.Errorf("Watch: node %s has the accelerator {%v}; want a vendor, a count above 0 and a resource of %q", name, a, accelerators)
			}
			count[a.Resource] += a.Count
		}
		for r, c := range count {
			if c > n.Capacity[r] {
				e.Errorf("Watch: node %s has %d accelerators that count as %s but a capacity of %d", name, c, r, n.Capacity[r])
			}
		}
	}
	for r, q := range v.inv.Capacity {
		if r != "storage" && q > sum[r] {
			e.Errorf("Watch: the center's capacity of %s is %d, but its ready nodes have %d in all; capacity is what jobs may use, so at most that", r, q, sum[r])
		}
	}
}

// watchBeat: the platform takes a silent driver for a dead one.
func watchBeat(e *env) {
	w := e.watch()
	w.quiet(w.whole().count, "")
}

// quiet fails unless two messages more than n come with no longer silence than
// there may be.
func (w *watcher) quiet(n int, when string) {
	w.e.Helper()
	w.mu.Lock()
	w.silence = 0
	w.mu.Unlock()
	two := time.NewTimer(2*(beat+late) + time.Second)
	defer two.Stop()
	for over := false; ; {
		w.mu.Lock()
		wake, got, silence := w.wake, w.view.count-n, w.silence
		w.mu.Unlock()
		if over || got >= 2 || silence > beat+late {
			if got < 2 || silence > beat+late {
				w.e.Errorf("Watch sent %d messages in %v and was silent for up to %v%s; it must send a message at least every %v, be it empty: the platform takes a silent driver for a dead one", max(got, 0), 2*(beat+late)+time.Second, silence.Round(time.Millisecond), when, beat)
			}
			return
		}
		select {
		case <-wake:
		case <-two.C:
			over = true
		}
	}
}

// after tells a driver a deadline as a caller would, without ending the call
// on this side: then it shows whether the driver does.
type after string

func (a after) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		r.Header().Set("Connect-Timeout-Ms", string(a))
		return next(ctx, r)
	}
}

func (a after) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (a after) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Connect-Timeout-Ms", string(a))
		return conn
	}
}

// watchDeadline: a stream whose caller is gone ends at the driver too, or one
// is left behind by every caller until memory runs out.
func watchDeadline(e *env) {
	// A context with a deadline would put its own into the call.
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	defer time.AfterFunc(e.c.CallTimeout, cancel).Stop()
	client := e.in.Client(connect.WithInterceptors(after("500")))
	streams := map[string]func(context.Context) (interface{ Receive() bool }, error){
		"Watch": func(ctx context.Context) (interface{ Receive() bool }, error) {
			return client.Watch(ctx, &adapterv1.WatchRequest{})
		},
		"Observe": func(ctx context.Context) (interface{ Receive() bool }, error) {
			return client.Observe(ctx, &adapterv1.ObserveRequest{})
		},
	}
	for _, what := range []string{"Watch", "Observe"} {
		s, err := streams[what](ctx)
		for err == nil && s.Receive() {
		}
		if ctx.Err() != nil {
			e.Fatalf("%s goes on %v after it began, with a deadline of 500 ms (sent as the Connect protocol does): the call must end when its context does, or each caller that goes leaves a loop behind", what, e.c.CallTimeout)
		}
	}
	// Many that break off do not keep others out.
	var wg sync.WaitGroup
	many, stop := context.WithTimeout(e.Context(), 300*time.Millisecond)
	defer stop()
	for range 50 {
		for _, open := range streams {
			wg.Go(func() { _, _ = open(many) }) // broken off
		}
	}
	wg.Wait()
	e.watch().whole()
}

func watchChanges(e *env) {
	w := e.watch()
	before := w.whole()
	same := func(v view) bool {
		if len(v.nodes) != len(before.nodes) || !maps.Equal(v.inv.Capacity, before.inv.Capacity) {
			return false
		}
		for name, n := range v.nodes {
			if m := before.nodes[name]; m == nil || m.State != n.State || !maps.Equal(m.Allocatable, n.Allocatable) || !maps.Equal(m.Capacity, n.Capacity) {
				return false
			}
		}
		return true
	}
	undo := sync.OnceFunc(e.c.Change(e.TB))
	e.undo = append(e.undo, undo)
	w.until("that a node or the capacity changed (Config.Change)", func(v view) bool { return !same(v) })
	if v := e.watch().whole(); same(v) {
		e.Error("a second reader of Watch, which came after the change, was told the state before it")
	}
	undo()
	w.until("that the change was undone", same)
}

// troubled waits for trouble and judges its words.
func (w *watcher) troubled() string {
	w.e.Helper()
	v := w.until("trouble, while the backend is cut off", func(v view) bool { return v.trouble != "" })
	if len(strings.Fields(v.trouble)) < 3 {
		w.e.Errorf("Watch: trouble is %q; want a sentence an operator can act on: what was tried and what was answered", v.trouble)
	}
	return v.trouble
}
