package pools_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// machine is a node that says which machine it is on, and runs nothing.
type machine struct {
	t testing.TB

	mu     sync.Mutex // guards what follows
	client poolv1connect.PoolServiceClient
	report *poolv1.ReportNodeRequest
	boots  int
	still  bool // it says nothing more by itself
}

func newMachine(t testing.TB, a *apptest.App, id string, models ...string) *machine {
	t.Helper()
	token, err := a.Admin.Pool.CreateNodeToken(t.Context(), &poolv1.CreateNodeTokenRequest{})
	must(t, err)
	secret := strings.Repeat("0a", 32)
	m := &machine{t: t, client: apptest.NewClient(a.URL(), "").Pool, report: &poolv1.ReportNodeRequest{NodeId: id, Secret: secret, Version: "1", Addresses: []string{"tcp:10.0.0.1:7420"}}}
	_, err = m.client.JoinNode(t.Context(), &poolv1.JoinNodeRequest{Token: token.Token, NodeId: id, Secret: secret})
	must(t, err)
	for i, model := range models {
		m.report.CudaDevices = append(m.report.CudaDevices, &poolv1.ReportNodeRequest_Device{DeviceId: fmt.Sprintf("cuda-%d", i), Model: model, MemoryMib: 1000, Bus: fmt.Sprintf("0000:%d7:00.0", i+1)})
	}
	m.boot(id + ".1")
	return m
}

// boot is a start of the machine's system, which has a name of its own.
func (m *machine) boot(host string) {
	m.t.Helper()
	m.mu.Lock()
	m.boots++
	m.report.Host, m.report.Boot, m.report.Sequence = host, fmt.Sprintf("boot %d", m.boots), 0
	m.mu.Unlock()
	m.tell()
}

// runs says that these slices have programs, and no others.
func (m *machine) runs(passes ...*adapterv1.PoolPass) {
	m.t.Helper()
	m.mu.Lock()
	m.report.Tasks = nil
	for _, p := range passes {
		m.report.Tasks = append(m.report.Tasks, &poolv1.ReportNodeRequest_Task{SliceId: p.SliceId})
	}
	m.mu.Unlock()
	m.tell()
}

// lives has it tell of itself until the test ends.
func (m *machine) lives() {
	ctx, stop := context.WithCancel(context.WithoutCancel(m.t.Context()))
	var over sync.WaitGroup
	over.Go(func() {
		tick := time.NewTicker(3 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				m.mu.Lock()
				var err error
				if !m.still {
					m.report.Sequence++
					_, err = m.client.ReportNode(ctx, m.report)
				}
				m.mu.Unlock()
				if err != nil && ctx.Err() == nil {
					m.t.Error(err)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	m.t.Cleanup(func() { stop(); over.Wait() })
}

func (m *machine) tell() {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.Sequence++
	_, err := m.client.ReportNode(m.t.Context(), m.report)
	must(m.t, err)
}

// Runs whose shares are local go to centers that have a pool node on their machine: one
// that can have them, and one that has room while another has none. They have shares of
// that node only, wait while it does, and go elsewhere when their center has it no more.
func TestJobsLocal(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		_, err := a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
		must(t, err)
		a.User(t, "others", "eve", identityv1.Role_ROLE_USER) // of another group
		_, err = a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "a", Group: &poolv1.PoolGroup{TenantIds: []string{"others"}}})
		must(t, err)
		one, two := newMachine(t, a, "one", "A"), newMachine(t, a, "two", "B", "B")
		two.lives()
		lends := []adapterv1.Feature{adapterv1.Feature_FEATURE_POOL, adapterv1.Feature_FEATURE_POOL_CUDA}
		local := append(slices.Clone(lends), adapterv1.Feature_FEATURE_POOL_LOCAL)
		refuse := func(*adapterv1.Attempt) string { return "it came here" }
		a.Join(t, apptest.Center{ID: "far", Features: lends, Refuse: refuse})
		shares := func(name string, p *jobsv1.PoolShares) *jobsv1.JobSpec {
			p.Api, p.Local, p.MemoryMib = "cuda", true, 10
			if p.ComputePercent == 0 {
				p.ComputePercent = 100
			}
			return shared(name, p)
		}
		refused := func(p *jobsv1.PoolShares, says string) {
			t.Helper()
			if _, err := a.Admin.Jobs.SubmitJob(t.Context(), &jobsv1.SubmitJobRequest{Job: shares("bad", p)}); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v: %v, want %q", p, err, says)
			}
		}
		refused(&jobsv1.PoolShares{}, "no center has a pool node on its machine that its runs may use there")
		a.Join(t, apptest.Center{ID: "none", Features: local, Refuse: refuse})
		ones := a.Join(t, apptest.Center{ID: "ones", Features: local, PoolNodes: []string{"no such node", "one"}})
		twos := a.Join(t, apptest.Center{ID: "twos", Features: local, PoolNodes: []string{"two"}})
		refused(&jobsv1.PoolShares{Cards: 3}, "at no center that has a pool node on its machine: 3 cards of one pool node are wanted")
		refused(&jobsv1.PoolShares{Cards: 2, AcrossNodes: true}, "pool.across_nodes: is not for shares that are local")
		refused(&jobsv1.PoolShares{Model: "C"}, `no device of the api cuda of the model "C"`)
		refused(&jobsv1.PoolShares{NodeId: "none"}, "has no such device")
		waitsAt := func(id, center string) {
			t.Helper()
			a.Admin.Await(t, id, "it waits at "+center, func(j *jobsv1.Job) bool {
				return len(j.Replicas) > 0 && j.Replicas[0].AiCenterId == center && j.Replicas[0].Message == "waits for its shares of the accelerator pool: no device that is allowed has room now"
			})
		}

		// Where others are that it is to be beside.
		first := a.Admin.Submit(t, twos.Pin(shares("first", &jobsv1.PoolShares{ComputePercent: 10, Affinity: "near"})))
		one1 := twos.Of(first, 1)[0]
		beside := a.Admin.Submit(t, shares("beside", &jobsv1.PoolShares{ComputePercent: 10, Affinity: "near"}))
		one2 := twos.Of(beside, 1)[0]
		if one1.Pool.Passes[0].Bus != one2.Pool.Passes[0].Bus {
			t.Errorf("they are at %v and %v", one1.Pool, one2.Pool)
		}
		for _, run := range []*apptest.Replica{one1, one2} {
			run.Run()
			run.End("completed", 0)
		}

		// Where it can be, and where there is room. The pool's policy is of others.
		_, err = a.Admin.Pool.SetPoolPolicy(t.Context(), &poolv1.SetPoolPolicyRequest{Policy: &poolv1.PoolPolicy{Local: poolv1.PoolPolicy_LOCAL_ONLY}})
		must(t, err)
		cards := a.Admin.Submit(t, shares("cards", &jobsv1.PoolShares{Cards: 2}))
		both := twos.Of(cards, 1)[0]
		two.runs(both.GetPool().GetPasses()...)
		if p := both.GetPool(); !p.GetLocal() || len(p.GetPasses()) != 2 || p.Passes[0].NodeId != "two" || p.Passes[0].Host != "two.1" || p.Passes[0].Bus != "0000:17:00.0" || p.Passes[1].Bus != "0000:27:00.0" {
			t.Errorf("its center is sent %v", p)
		}
		alone := shares("single", &jobsv1.PoolShares{})
		alone.Tasks[0].Network = false // it needs none
		single := a.Admin.Submit(t, alone)
		has := ones.Of(single, 1)[0]
		if p := has.GetPool().GetPasses(); len(p) != 1 || p[0].NodeId != "one" || has.Network {
			t.Errorf("its center is sent %v", p)
		}
		waits := a.Admin.Submit(t, shares("waits", &jobsv1.PoolShares{Model: "A"}))
		waitsAt(waits, "ones")

		// Its machine is started anew, its gateway before its node.
		one.report.Stopping = true
		one.tell()
		ones.Disconnect()
		ones.Connect()
		has.Run()
		has.End("completed", 0)
		one.report.Stopping = false
		one.boot("one.2")
		again := ones.Of(waits, 1)[0]
		if p := again.GetPool().GetPasses(); len(p) != 1 || p[0].Host != "one.2" {
			t.Errorf("after the start its center is sent %v", p)
		}
		again.Run()
		again.End("completed", 0)

		// One that may not go where there is room waits where it may.
		pinned := a.Admin.Submit(t, twos.Pin(shares("pinned", &jobsv1.PoolShares{})))
		waitsAt(pinned, "twos")
		// A node that lends nothing new has none, and one that its center has no more.
		_, err = a.Admin.Pool.SetPoolNode(t.Context(), &poolv1.SetPoolNodeRequest{NodeId: "one", Mode: poolv1.PoolNode_MODE_DISABLED})
		must(t, err)
		second := a.Admin.Submit(t, shares("second", &jobsv1.PoolShares{}))
		waitsAt(second, "twos")
		twos.Disconnect()
		twos.Center.PoolNodes = nil
		twos.Connect()
		const says = "no pool node on its machine lends such shares now"
		a.Admin.Await(t, second, "it is told why", func(j *jobsv1.Job) bool { return strings.Contains(j.Replicas[0].Message, says) })
		a.Admin.AwaitState(t, second, jobsv1.State_STATE_QUEUED)
		apptest.Until(t, "it is kept from all centers", func() bool {
			ex, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: second})
			must(t, err)
			return strings.Contains(fmt.Sprint(ex), says)
		})
		_, err = a.Admin.Pool.SetPoolNode(t.Context(), &poolv1.SetPoolNodeRequest{NodeId: "one", Mode: poolv1.PoolNode_MODE_ENABLED})
		must(t, err)
		one.boot("one.3") // it was silent for long
		if p := ones.Of(second, 1)[0].GetPool().GetPasses(); len(p) != 1 || p[0].NodeId != "one" {
			t.Errorf("at last its center is sent %v", p)
		}
		if j := a.Admin.Job(t, second); j.Replicas[0].Attempt != 2 {
			t.Errorf("it was refused once, and is %v", j.Replicas[0])
		}
		both.Run()
		both.End("completed", 0)
		two.runs()
	})
}

// Where no node has room, a few of a tenant's runs wait with a place on its machine, the others in
// the queue, and without room at a center. They come as those have theirs.
func TestJobsLocalMany(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		_, err := a.Admin.Pool.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
		must(t, err)
		one, other := newMachine(t, a, "one", "A"), newMachine(t, a, "other", "A")
		one.lives()
		other.lives()
		features := []adapterv1.Feature{adapterv1.Feature_FEATURE_POOL, adapterv1.Feature_FEATURE_POOL_CUDA, adapterv1.Feature_FEATURE_POOL_LOCAL}
		var brief atomic.Bool
		center := a.Join(t, apptest.Center{ID: "ones", Features: features, PoolNodes: []string{"one"}, Play: func(r *apptest.Replica) {
			if brief.Load() {
				apptest.Succeed(r)
			}
		}})
		a.Join(t, apptest.Center{ID: "others", Features: features, PoolNodes: []string{"other"}}) // it has room
		job := func(name string, replicas int32) string {
			j := center.Pin(shared(name, &jobsv1.PoolShares{Api: "cuda", Local: true, ComputePercent: 100, MemoryMib: 10}))
			j.Tasks[0].ReplicaNumber = replicas
			return a.Admin.Submit(t, j)
		}
		busy := center.Of(job("busy", 1), 1)[0]
		one.runs(busy.Pool.Passes...)
		busy.Run()
		x := &asking{real: real{t: t, app: a}, center: center}
		many := job("many", 40)
		const crowded = "waits for its shares of the accelerator pool: others of its tenant wait for such shares before it"
		x.await(many, 24, crowded)
		if c, err := a.Registry.GetCenter(t.Context(), "ones"); err != nil || c.Running+c.Waiting > 1+16 {
			t.Errorf("%d and %d hold room at the center: %v", c.Running, c.Waiting, err)
		}
		brief.Store(true)
		one.runs()
		busy.End("completed", 0)
		a.Admin.AwaitState(t, many, jobsv1.State_STATE_SUCCEEDED)
	})
}
