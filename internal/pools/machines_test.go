package pools_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	controlv1 "yunhe.dev/yunhe/gen/yunhe/control/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/sdk/adapter"
)

// fakeCluster is the driver of a center of many machines that are not there. What it
// accepts runs as the test says.
type fakeCluster struct {
	adapter.Unimplemented
	id       string
	machines adapter.Board[*adapterv1.Node]
	statuses adapter.Board[*adapterv1.Status]

	mu       sync.Mutex // guards what follows
	attempts map[string]*adapterv1.Attempt
}

func (d *fakeCluster) Describe(context.Context, *adapterv1.DescribeRequest) (*adapterv1.DescribeResponse, error) {
	return &adapterv1.DescribeResponse{Name: "fake-cluster", Version: "1", Parts: []adapterv1.Part{adapterv1.Part_PART_RESOURCE, adapterv1.Part_PART_JOB},
		Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_NODE, adapterv1.Feature_FEATURE_POOL, adapterv1.Feature_FEATURE_POOL_CUDA, adapterv1.Feature_FEATURE_POOL_LOCAL}}, nil
}

func (d *fakeCluster) Watch(ctx context.Context, _ *adapterv1.WatchRequest, out *connect.ServerStream[adapterv1.WatchResponse]) error {
	declared := adapter.Declared{Region: "r", Prices: map[string]int64{"small": 10}}
	inv := declared.Inventory(d.id)
	inv.Capacity, inv.Images = map[string]int64{"cpu": 64000, "memory": 1 << 40}, []string{"host"}
	go func() {
		for ctx.Err() == nil { // it is alive
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
				if m, ok := d.machines.Get("m1"); ok {
					d.machines.Set("m1", m)
				}
			}
		}
	}()
	return d.machines.Watch(ctx, func(set map[string]*adapterv1.Node, gone []string) error {
		m := &adapterv1.WatchResponse{Inventory: inv, Gone: gone}
		for _, n := range set {
			m.Nodes = append(m.Nodes, n)
		}
		inv = nil
		return out.Send(m)
	})
}

func (d *fakeCluster) Apply(_ context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	res := &adapterv1.ApplyResponse{}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range r.Attempts {
		if d.attempts[a.AttemptId] == nil {
			if len(a.GetPool().GetPasses()) == 0 || a.Node == "" {
				res.Refusals = append(res.Refusals, &adapterv1.Refusal{AttemptId: a.AttemptId, Reason: "no passes, or no node", Later: true})
				continue
			}
			d.statuses.Set(a.AttemptId, &adapterv1.Status{AttemptId: a.AttemptId, Phase: adapterv1.Phase_PHASE_PENDING})
		}
		d.attempts[a.AttemptId] = a
	}
	return res, nil
}

func (d *fakeCluster) Remove(_ context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
	for _, id := range r.Stop {
		d.ends(id, "stopped")
	}
	for _, id := range r.Forget {
		d.statuses.Delete(id)
	}
	return &adapterv1.RemoveResponse{}, nil
}

func (d *fakeCluster) SetNode(context.Context, *adapterv1.SetNodeRequest) (*adapterv1.SetNodeResponse, error) {
	return &adapterv1.SetNodeResponse{}, nil
}

func (d *fakeCluster) ends(id, reason string) {
	now := time.Now().UnixMicro()
	d.statuses.Set(id, &adapterv1.Status{AttemptId: id, Phase: adapterv1.Phase_PHASE_ENDED, StartedAt: now, EndedAt: now, Reason: reason, LogInline: true})
}

func (d *fakeCluster) Observe(ctx context.Context, _ *adapterv1.ObserveRequest, out *connect.ServerStream[adapterv1.ObserveResponse]) error {
	return d.statuses.Watch(ctx, func(set map[string]*adapterv1.Status, _ []string) error {
		m := &adapterv1.ObserveResponse{}
		for _, st := range set {
			m.Statuses = append(m.Statuses, st)
		}
		return out.Send(m)
	})
}

// of waits for the run of a job, with passes.
func (d *fakeCluster) of(t *testing.T, job string) (run *adapterv1.Attempt) {
	t.Helper()
	apptest.Until(t, job+" has come", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, a := range d.attempts {
			if a.JobId == job && (run == nil || run.AttemptId < a.AttemptId) {
				run = a
			}
		}
		return run != nil
	})
	return run
}

// has says that a center has a machine now.
func (d *fakeCluster) has(name, host string, cpu int64, state adapterv1.NodeState) {
	amounts := map[string]int64{"cpu": cpu, "memory": 1 << 39}
	d.machines.Set(name, &adapterv1.Node{Name: name, State: state, Host: host, Architecture: "amd64", Capacity: amounts, Allocatable: amounts})
}

func (d *fakeCluster) serve(t *testing.T, a *apptest.App) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var served sync.WaitGroup
	served.Go(func() {
		if err := adapter.ServeListener(ctx, l, d); err != nil {
			t.Errorf("driver: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); served.Wait() })
	_, err = a.Admin.Adapters.SetPlugin(t.Context(), &adaptersv1.SetPluginRequest{Name: "fake-cluster", Endpoints: []string{"http://" + l.Addr().String()}})
	must(t, err)
	apptest.Until(t, "the cluster is there", func() bool {
		p, err := a.Admin.Adapters.GetPlugin(t.Context(), &adaptersv1.GetPluginRequest{Name: "fake-cluster"})
		return err == nil && len(p.List) == 1 && p.List[0].State == "up"
	})
}

// What waits at a node of a cluster keeps its place in the pool's queue wherever it waits,
// goes to another node when its own lends no more, and stays what it is when its
// specification is deleted. It is never lent two slices.
func TestJobsMachinesWait(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		_, err := a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
		must(t, err)
		_, err = a.Admin.Pool.SetSliceSpec(t.Context(), &poolv1.SetSliceSpecRequest{SpecId: "s", Spec: &poolv1.SliceSpec{ComputePercent: 60, MemoryMib: 10}})
		must(t, err)
		one, two := newMachine(t, a, "one", "A"), newMachine(t, a, "two", "A")
		one.lives()
		two.lives()
		d := &fakeCluster{id: "many", attempts: map[string]*adapterv1.Attempt{}}
		d.has("m1", "one.1", 8000, adapterv1.NodeState_NODE_STATE_READY)
		d.has("m2", "two.1", 8000, adapterv1.NodeState_NODE_STATE_READY)
		d.serve(t, a)
		job := func(name string, p *jobsv1.PoolShares, on ...string) string {
			t.Helper()
			p.Api, p.Local = "cuda", true
			if p.SpecId == "" {
				p.MemoryMib = 10
			}
			j := shared(name, p)
			j.Tasks[0].ResourceSpecId = "small"
			if len(on) > 0 {
				j.Tasks[0].Constraints = &jobsv1.Constraints{Centers: []string{"many"}, Node: on[0]}
			}
			return a.Admin.Submit(t, j)
		}
		at := func(id, machine, node string) *adapterv1.Attempt {
			t.Helper()
			run := d.of(t, id)
			if p := run.Pool.GetPasses(); run.Node != machine || len(p) != 1 || p[0].NodeId != node {
				t.Fatalf("%s is sent to %q with %v, want %s with a slice of %s", run.Name, run.Node, run.Pool, machine, node)
			}
			return run
		}
		waits := func(ids ...string) {
			t.Helper()
			for _, id := range ids {
				a.Admin.Await(t, id, "it waits", func(j *jobsv1.Job) bool {
					return len(j.Replicas) > 0 && strings.Contains(j.Replicas[0].Message, "waits for its shares of the accelerator pool")
				})
			}
		}
		first := at(job("first", &jobsv1.PoolShares{ComputePercent: 100}), "m1", "one")
		one.runs(first.Pool.Passes...)
		second := at(job("second", &jobsv1.PoolShares{ComputePercent: 40}), "m2", "two")
		two.runs(second.Pool.Passes...)
		other := job("other", &jobsv1.PoolShares{ComputePercent: 100}) // at one, which comes first
		waits(other)
		// At two there is room for what comes later, and not for those before it.
		large := job("large", &jobsv1.PoolShares{ComputePercent: 100}, "m2")
		waits(large)
		asked := job("asked", &jobsv1.PoolShares{SpecId: "s"}) // 60 %, as two has left, were it not for what is before
		waits(asked)
		_, err = a.Admin.Pool.DeleteSliceSpec(t.Context(), &poolv1.DeleteSliceSpecRequest{SpecId: "s"})
		must(t, err)
		// Its node lends no more.
		_, err = a.Admin.Pool.SetPoolNode(t.Context(), &poolv1.SetPoolNodeRequest{NodeId: "one", Mode: poolv1.PoolNode_MODE_DISABLED})
		must(t, err)
		later := job("later", &jobsv1.PoolShares{ComputePercent: 60})
		waits(later)
		<-time.After(11 * time.Second) // they are asked for twice
		slices := func(id string) (out []*poolv1.Slice) {
			res, err := a.Admin.Pool.ListSlices(t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_WAITING, poolv1.Slice_STATE_ASSIGNED, poolv1.Slice_STATE_RUNNING, poolv1.Slice_STATE_ENDED}})
			must(t, err)
			for _, x := range res.Slices {
				if x.JobId == id {
					out = append(out, x)
				}
			}
			return out
		}
		for _, id := range []string{other, large, asked, later} {
			if x := slices(id); len(x) != 1 || x[0].State != poolv1.Slice_STATE_WAITING {
				t.Errorf("%s has %v", id, x)
			}
			if r := a.Admin.Job(t, id).Replicas[0]; r.Attempt != 1 {
				t.Errorf("%s is %v", id, r)
			}
		}
		d.ends(second.AttemptId, "completed")
		two.runs()
		run := at(other, "m2", "two") // it is older, though it came there later
		two.runs(run.Pool.Passes...)
		d.ends(run.AttemptId, "completed")
		two.runs()
		run = at(large, "m2", "two")
		two.runs(run.Pool.Passes...)
		d.ends(run.AttemptId, "completed")
		two.runs()
		run = at(asked, "m2", "two") // before the one that asked later
		two.runs(run.Pool.Passes...)
		waits(later)
		d.ends(run.AttemptId, "completed")
		two.runs()
		at(later, "m2", "two")
	})
}

// Where a center has many machines, a run whose shares are local goes to one that has a
// node of the pool, whose shares it is lent: one that has room for it, if there is; the one
// that it names, if it does; none that takes no work, or of which nobody can tell which
// node is on it. It says where it is to run before it does, also when the platform is
// started anew, and does not wait at a node while another one has room.
func TestJobsMachines(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		_, err := a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
		must(t, err)
		var one, two *machine
		var machines []*machine
		for id, models := range map[string][]string{"one": {"A"}, "two": {"A", "B"}, "four": {"D"}, "five": {"E"}, "six": {"E"}, "seven": {"F"}} {
			m := newMachine(t, a, id, models...)
			machines = append(machines, m)
			switch id {
			case "one":
				one = m
			case "two":
				two = m
			case "six":
				m.boot("five.1") // on the machine of another
			}
			m.lives()
		}
		const ready = adapterv1.NodeState_NODE_STATE_READY
		d := &fakeCluster{id: "many", attempts: map[string]*adapterv1.Attempt{}}
		d.has("m1", "one.1", 1000, ready)
		d.has("m2", "two.1", 8000, ready)
		d.has("m3", "", 64000, ready)
		d.has("m4", "four.1", 64000, ready) // a cluster in containers
		d.has("m4b", "four.1", 64000, ready)
		d.has("m5", "five.1", 64000, ready)
		d.has("m7", "seven.1", 8000, ready)
		d.serve(t, a)
		job := func(name string, p *jobsv1.PoolShares, on string) *jobsv1.JobSpec {
			p.Api, p.Local, p.MemoryMib = "cuda", true, 10
			j := shared(name, p)
			j.Tasks[0].ResourceSpecId = "small"
			if on != "" {
				j.Tasks[0].Constraints = &jobsv1.Constraints{Centers: []string{"many"}, Node: on}
			}
			return j
		}
		for _, model := range []string{"D", "E"} {
			if _, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: job("bad", &jobsv1.PoolShares{ComputePercent: 1, Model: model}, "")}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("of the model %q", model)) {
				t.Errorf("on a machine that nobody knows: %v", err)
			}
		}
		at := func(id, machine, node string) *adapterv1.Attempt {
			t.Helper()
			run := d.of(t, id)
			if p := run.Pool.GetPasses(); run.Node != machine || !run.Pool.GetLocal() || len(p) == 0 || p[0].NodeId != node {
				t.Errorf("%s is sent to %q with %v, want %s with slices of %s", run.Name, run.Node, run.Pool, machine, node)
			}
			if r := a.Admin.Job(t, id).Replicas[0]; r.Node != machine {
				t.Errorf("%s is said to go to %q, want %s", run.Name, r.Node, machine)
			}
			return run
		}
		excluded := func(id string) {
			t.Helper()
			apptest.Until(t, "it is kept from the center", func() bool {
				ex, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: id})
				must(t, err)
				return strings.Contains(fmt.Sprint(ex), "no pool node on its machine lends such shares now")
			})
		}
		waits := func(id, why string) {
			t.Helper()
			a.Admin.Await(t, id, "it waits", func(j *jobsv1.Job) bool {
				return len(j.Replicas) > 0 && strings.Contains(j.Replicas[0].Message, why)
			})
		}
		// Of a machine whose driver names the node, it is known.
		d.machines.Set("m6", &adapterv1.Node{Name: "m6", State: ready, PoolNode: "six", Architecture: "amd64"})
		apptest.Until(t, "its driver has told of it", func() bool {
			n, err := a.Admin.Registry.GetNode(t.Context(), &registryv1.GetNodeRequest{AiCenterId: "many", Name: "m6"})
			return err == nil && n.Name == "m6"
		})
		at(a.Admin.Submit(t, job("sixth", &jobsv1.PoolShares{ComputePercent: 50, Model: "E"}, "")), "m6", "six")
		// One that an allocation holds is for runs of that.
		held, err := a.Admin.Control.ApplyAllocation(t.Context(), &controlv1.ApplyAllocationRequest{AiCenterId: "many", Nodes: []string{"m7"}})
		must(t, err)
		apptest.Until(t, "the machine is held", func() bool {
			x, err := a.Admin.Control.GetAllocation(t.Context(), &controlv1.GetAllocationRequest{AllocationId: held.AllocationId})
			return err == nil && x.State == controlv1.AllocationState_ALLOCATION_STATE_GRANTED
		})
		others := a.Admin.Submit(t, job("others", &jobsv1.PoolShares{ComputePercent: 50, Model: "F"}, ""))
		excluded(others)
		own := job("own", &jobsv1.PoolShares{ComputePercent: 50, Model: "F"}, "")
		own.AllocationId = held.AllocationId
		at(a.Admin.Submit(t, own), "m7", "seven")
		first := a.Admin.Submit(t, job("first", &jobsv1.PoolShares{ComputePercent: 50}, ""))
		one.runs(at(first, "m1", "one").Pool.Passes...)
		// Its card has room, its machine has not.
		second := at(a.Admin.Submit(t, job("second", &jobsv1.PoolShares{ComputePercent: 50}, "")), "m2", "two")
		two.runs(second.Pool.Passes...)
		// But one that names it waits there, which is the cluster's business.
		at(a.Admin.Submit(t, job("named", &jobsv1.PoolShares{ComputePercent: 50}, "m1")), "m1", "one")
		for _, m := range machines { // they say nothing meanwhile
			m.mu.Lock()
		}
		a.Restart() // where they go is stored
		for _, m := range machines {
			m.client = apptest.NewClient(a.URL(), "").Pool
			m.mu.Unlock()
		}
		d.has("m2", "two.1", 8000, adapterv1.NodeState_NODE_STATE_DRAINED)
		drained := a.Admin.Submit(t, job("drained", &jobsv1.PoolShares{ComputePercent: 10, Model: "B"}, ""))
		excluded(drained)
		d.has("m2", "two.1", 8000, ready)
		at(drained, "m2", "two")
		// What waits at one node goes to another one's when that has room first.
		whole := a.Admin.Submit(t, job("whole", &jobsv1.PoolShares{ComputePercent: 100, Model: "A"}, ""))
		waits(whole, "waits for its shares of the accelerator pool")
		d.ends(second.AttemptId, "completed")
		two.runs()
		at(whole, "m2", "two")
		// A machine that is started anew has another name, and runs what was lent then.
		again := a.Admin.Submit(t, job("again", &jobsv1.PoolShares{ComputePercent: 90, Model: "B"}, "m2"))
		run := at(again, "m2", "two")
		two.boot("two.2")
		waits(again, "no pool node on its machine lends such shares now")
		d.has("m2", "two.2", 8000, ready)
		var last []*adapterv1.PoolPass
		apptest.Until(t, "it is sent again", func() bool {
			last = d.of(t, again).Pool.Passes
			return len(last) > 0 && last[0].Host == "two.2"
		})
		if d.of(t, again).AttemptId != run.AttemptId || !slices.ContainsFunc(last, func(p *adapterv1.PoolPass) bool { return p.NodeId == "two" }) {
			t.Errorf("it is sent %v", last)
		}
		// One whose machine lends no more is placed anew, and its center is told.
		two.boot("two.3")
		a.Admin.Await(t, again, "it waits for another place", func(j *jobsv1.Job) bool { return j.State == jobsv1.State_STATE_QUEUED })
		apptest.Until(t, "its center is told", func() bool {
			st, has := d.statuses.Get(run.AttemptId)
			return !has || st.Reason == "stopped"
		})
		d.has("m2", "two.3", 8000, ready)
		apptest.Until(t, "it is there again", func() bool { return d.of(t, again).AttemptId != run.AttemptId })
	})
}
