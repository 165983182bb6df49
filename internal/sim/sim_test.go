package sim_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/sim"
)

// read reads a document that holds everything.
func read(t *testing.T, text string) *sim.Input {
	t.Helper()
	in, err := sim.ReadFleet(sim.Document, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.Fleet.Check(), in.Workload.Check()); err != nil {
		t.Fatal(err)
	}
	return in
}

func run(t *testing.T, in *sim.Input, policy, queue string, more ...func(*sim.Config)) *sim.Result {
	t.Helper()
	p, err := sim.ParsePolicies([]string{policy}, len(in.Centers) > 0)
	if err != nil {
		t.Fatal(err)
	}
	q, err := sim.ParseQueue(queue)
	if err != nil {
		t.Fatal(err)
	}
	c := sim.Config{Policy: p[0], Queue: q, Seed: 1}
	for _, f := range more {
		f(&c)
	}
	r, err := sim.Run(in, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func want(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !near(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// One node with two cards. A has both from 0 to 3,600 s; B and C come at 600 s,
// wait for A, and run from 3,600 to 5,400 s.
func TestMeasures(t *testing.T) {
	t.Parallel()
	in := read(t, `
models: {m: {price: 12.00, idle: 50, busy: 250}}
nodes: [{id: n, cpu: 8, memory: 8Gi, cards: 2, model: m, pue: 1.2, carbon: 500}]
jobs:
  - {id: A, tenant: x, arrival: 0, duration: 1h, cpu: 1, cards: 2, deadline: 3600}
  - {id: B, tenant: y, arrival: 600, duration: 30m, cpu: 1, cards: 1, deadline: 3600}
  - {id: C, tenant: y, arrival: 600, duration: 30m, cpu: 1, cards: 1, share: 500}
`)
	r := run(t, in, "best-fit", "fcfs,backfill=off")
	want(t, "seconds", r.Seconds, 5400)
	// Until 3,600 s, when nothing waits any more, both cards were held.
	want(t, "allocated", r.Allocation.Mean, 100)
	want(t, "allocated at the end", r.Allocation.End, 0)
	want(t, "waiting, mean", r.Waiting.Mean, 2000) // 0, 3000, 3000
	want(t, "waiting, median", r.Waiting.P50, 3000)
	want(t, "completion, mean", r.Completion.Mean, 4400) // 3600, 4800, 4800
	want(t, "completion, 99 %", r.Completion.P99, 4800)
	want(t, "slowdown, mean", r.Slowdown.Mean, (1+2*4800.0/1800)/3)
	// x never waited: 1; y ran 3,600 of 9,600 s: 0.375.
	want(t, "pace of y", r.Fairness.Tenants[1].Pace, 0.375)
	want(t, "Jain", r.Fairness.Jain, 1.375*1.375/(2*(1+0.375*0.375)))
	if r.CostFen == nil || *r.CostFen != 3300 { // 2 + 0.5 + 0.25 card hours of 1,200 fen
		t.Errorf("costs %v fen, want 3300", r.CostFen)
	}
	want(t, "energy of the work", *r.WorkEnergy, 0.2*2.75*1.2)         // 200 W more for 2.75 card hours
	want(t, "energy", *r.Energy, 0.2*2.75*1.2+2*0.05*1.5*1.2)          // 2 cards idle for 1.5 h
	want(t, "carbon", *r.Carbon, (0.2*2.75*1.2+2*0.05*1.5*1.2)*500e-3) // 500 g/kWh
	if r.Deadlines != (sim.Met{Met: 1, Missed: 1}) || r.Events != 9 || r.Jobs.Done != 3 {
		t.Errorf("deadlines %+v, %d events, %+v", r.Deadlines, r.Events, r.Jobs)
	}
	// The first second, and every one to 3,600, has all cards; the points show it.
	if p := r.Series[0]; p.Allocation != 100 || p.At != 0 || *p.Fragmentation != 0 {
		t.Errorf("the first point is %+v", p)
	}
	sum := 0.0
	for i, p := range r.Series {
		to := r.Seconds
		if i+1 < len(r.Series) {
			to = r.Series[i+1].At
		}
		sum += p.Allocation / 100 * 2 * (to - p.At)
	}
	want(t, "card seconds of the points", sum, 2*3600+1.5*1800)
}

// L has run 1,500 of 3,600 s when H takes its card; its last checkpoint was at
// 1,200 s, so it has 2,400 s left when H ends at 2,100 s.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	in := read(t, `
nodes: [{id: n, cpu: 8, memory: 8Gi, cards: 1}]
jobs:
  - {id: L, tenant: x, arrival: 0, duration: 3600, cpu: 1, cards: 1, preemptible: true, checkpoint: 10m}
  - {id: H, tenant: x, arrival: 1500, duration: 600, cpu: 1, cards: 1, priority: 5}
`)
	r := run(t, in, "best-fit", "fair,preempt=on")
	want(t, "seconds", r.Seconds, 4500)
	want(t, "lost", r.LostCardHours, 300.0/3600)
	want(t, "waiting", r.Waiting.Mean, 0)
	want(t, "completion", r.Completion.Most, 4500)
	want(t, "pace", r.Fairness.Tenants[0].Pace, (3600.0+600)/(4500+600))
	if r.Preemptions != 1 {
		t.Errorf("%d taken back, want 1", r.Preemptions)
	}
	if r := run(t, in, "best-fit", "fair"); r.Preemptions != 0 || r.Waiting.Most != 2100 {
		t.Errorf("without preemption %d are taken back and the longest wait is %v s, want 0 and 2100", r.Preemptions, r.Waiting.Most)
	}
}

// A wide job waits for both cards; small ones pass it only where they do not
// delay it.
func TestBackfill(t *testing.T) {
	t.Parallel()
	in := read(t, `
nodes: [{id: n, cpu: 8, memory: 8Gi, cards: 2}]
jobs:
  - {id: first, tenant: x, arrival: 0, duration: 1000, cpu: 1, cards: 1}
  - {id: wide, tenant: x, arrival: 1, duration: 1000, cpu: 1, cards: 2}
  - {id: short, tenant: x, arrival: 2, duration: 900, cpu: 1, cards: 1}
  - {id: long, tenant: x, arrival: 3, duration: 5000, cpu: 1, cards: 1}
`)
	for queue, starts := range map[string][4]int64{
		"fcfs,backfill=off":    {0, 1000, 2000, 2000},
		"fcfs,backfill=on":     {0, 1000, 2, 2000},
		"fcfs,backfill=greedy": {0, 5902, 2, 902},
	} {
		var got [4]int64
		run(t, in, "best-fit", queue, func(c *sim.Config) {
			c.Log = func(e sim.Event) {
				if e.What == sim.Starts {
					got[e.Job] = e.At / sim.Second
				}
			}
		})
		if got != starts {
			t.Errorf("%s: starts at %v s, want %v", queue, got, starts)
		}
	}
}

// Work goes to the center that the policy prefers while there is room: cheap is
// half the price and half as fast.
func TestCenters(t *testing.T) {
	t.Parallel()
	in := read(t, `
centers:
  - {id: cheap, cpu: 100, memory: 100Gi, cards: 1, price: 5.00, speed: 0.5}
  - {id: fast, cpu: 100, memory: 100Gi, cards: 1, price: 30.00}
jobs:
  - {id: a, tenant: x, arrival: 0, duration: 1h, cpu: 1, memory: 1Gi, cards: 1}
  - {id: b, tenant: x, arrival: 60, duration: 1h, cpu: 1, memory: 1Gi, cards: 1}
`)
	r := run(t, in, "price=1", "fair")
	// a: 2 h at 5.00; b: 1 h at 30.00
	if *r.CostFen != 4000 {
		t.Errorf("cheap first costs %d fen, want 4000", *r.CostFen)
	}
	want(t, "completion, cheap first", r.Completion.Mean, (7200.0+3600)/2)
	in.Jobs = in.Jobs[:1]
	if r := run(t, in, "performance=1", "fair"); *r.CostFen != 3000 || r.Seconds != 3600 {
		t.Errorf("fast first costs %d fen and takes %v s, want 3000 and 3600", *r.CostFen, r.Seconds)
	}
}

// What asks for more than there is is said so, and why.
func TestNeverFits(t *testing.T) {
	t.Parallel()
	in := read(t, `
nodes: [{id: n, cpu: 8, memory: 8Gi, cards: 2, model: T4}]
jobs:
  - {id: wide, tenant: x, arrival: 0, duration: 10, cpu: 1, cards: 4}
  - {id: other, tenant: x, arrival: 0, duration: 10, cpu: 1, cards: 1, models: A100}
  - {id: gang, tenant: x, arrival: 0, duration: 10, cpu: 1, cards: 1, replicas: 3}
  - {id: fits, tenant: x, arrival: 0, duration: 10, cpu: 1, cards: 2}
`)
	r := run(t, in, "best-fit", "fair")
	if r.Jobs.Never != 3 || r.Jobs.Done != 1 {
		t.Fatalf("%+v", r.Jobs)
	}
	for i, why := range []string{"4 cards", "A100", "asks for 3 cards"} {
		if got := r.NeverFits[i].Why; !strings.Contains(got, why) {
			t.Errorf("%s: %q does not say %q", r.NeverFits[i].ID, got, why)
		}
	}
}

// A run that is stopped has what there was until then.
func TestStop(t *testing.T) {
	t.Parallel()
	recipe, err := sim.ParseRecipe("nodes=10,jobs=500,load=1.2")
	if err != nil {
		t.Fatal(err)
	}
	in := recipe.Make()
	n := 0
	r := run(t, in, "best-fit", "fair", func(c *sim.Config) {
		c.Watch = func(int64, *sim.Result) error {
			if n++; n == 300 {
				return errors.New("enough")
			}
			return nil
		}
	})
	j := r.Jobs
	if !r.Partial || j.Done == 0 || j.Later == 0 || j.Total != j.Done+j.Running+j.Waiting+j.Later+j.Never {
		t.Errorf("partial %v, %+v", r.Partial, j)
	}
	if c := sim.Compare(sim.Summarize(in), []*sim.Result{r, run(t, in, "best-fit", "fcfs")}, ""); len(c.Best["jobs.done"]) != 0 {
		t.Errorf("a run that was stopped is compared: %v", c.Best)
	}
}

// A recipe makes the same every time, of the size and load it says.
func TestRecipe(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"nodes=20,jobs=3000,load=0.8,seed=7", "centers=5,jobs=3000,load=0.8,arrivals=diurnal,estimates=rough"} {
		r, err := sim.ParseRecipe(text)
		if err != nil {
			t.Fatal(err)
		}
		a, b := r.Make(), r.Make()
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two are not the same", text)
		}
		if err := errors.Join(a.Fleet.Check(), a.Workload.Check()); err != nil {
			t.Fatal(err)
		}
		s := sim.Summarize(a)
		fast := 0.0
		for i := range a.Nodes {
			fast += float64(a.Nodes[i].Cards) * float64(a.Nodes[i].Speed) / 1000
		}
		for i := range a.Centers {
			fast += float64(a.Centers[i].Cards) * float64(a.Centers[i].Speed) / 1000
		}
		if load := s.CardSum / (fast * s.Arriving / 3600); s.Jobs != 3000 || load < 0.75 || load > 0.85 {
			t.Errorf("%s: %d jobs with a load of %v", text, s.Jobs, load)
		}
		if err := a.Rescale(2); err != nil {
			t.Fatal(err)
		}
		if s := sim.Summarize(a); !close(s.CardSum/(float64(s.Cards)*s.Arriving/3600), 2) {
			t.Errorf("%s: rescaled to %v", text, s.CardSum/(float64(s.Cards)*s.Arriving/3600))
		}
	}
}

func close(a, b float64) bool { return a > 0.999*b && a < 1.001*b }

// Bad input is refused with every fault, by line and name.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		form  sim.Form
		text  string
		wants []string
	}{
		{sim.Table, "", []string{"empty"}},
		{sim.Table, "id,cpu,cards\n", []string{"line 1: must have the column arrival or creation_time", "must have the column duration or deletion_time"}},
		{sim.Table, "id,cpu,wrong,arrival,duration\n", []string{`line 1 wrong: is no column that is known`}},
		{sim.Table, "id,cpu,cards,share,arrival,duration\na,1,2,500,0,10\nb,x,1,1,-1,10\nc,1,0,5,0,0\nd,1\n", []string{
			"line 2 share: must be a number from 1000 to 1000, got \"500\"", "line 3 cpu:", "line 3 arrival: must be seconds", "line 4 share:", "line 4 duration: must be more than 0 s", "line 5: must have 6 columns"}},
		{sim.Document, "jobs: [{id: a, cpu: 1, arrival: 5, duration: 10, deadline: 2, size: 3}]", []string{`has "size", which is not known`, "line 1 jobs[0].deadline: must be after the arrival"}},
		{sim.Document, "nodes:\n- {id: a, cpu: 1, cards: 17}\n- {cpu: 1}\ntenants: [{id: x, limit: {card: 1.0005}}]", []string{"line 2 nodes[0].cards: must be a number from 0 to 16, got \"17\"", "line 3 nodes[1].id: is required", "line 4 tenants[0].limit.card: must be a multiple of 1/1000"}},
		{sim.Document, "centers: [{id: a, cards: 1, price: -1, pue: 9, longitude: 200, idle: 500, busy: 100}]", []string{"price: must be a number from 0", "pue:", "longitude:", "busy: must be at least idle"}},
		{sim.Document, "jobs: 7", []string{"line 1 jobs: must be a list"}},
		{sim.Document, "a: 1\n---\nb: 2", []string{"more than one document"}},
		{sim.Document, "{", []string{"neither YAML nor JSON"}},
		{sim.Steps, "x", []string{"throughputs"}},
	} {
		in, err := sim.ReadJobs(x.form, strings.NewReader(x.text), nil, true)
		if err == nil {
			err = errors.Join(in.Fleet.Check(), in.Workload.Check())
		}
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v", x.text, err)
			continue
		}
		said := err.Error()
		for _, f := range fault.FieldsOf(err) {
			said += "\n" + f.Path + ": " + f.Problem
		}
		for _, w := range x.wants {
			if !strings.Contains(said, w) {
				t.Errorf("%q: %s\ndoes not say %q", x.text, said, w)
			}
		}
	}
	for _, text := range []string{"nodes=0", "jobs=x", "load=0", "shares=0.9,cpu=0.9", "what=1", "estimates=bad", "arrivals=", "sigma=9", "nodes="} {
		if _, err := sim.ParseRecipe(text); fault.KindOf(err) != fault.Invalid {
			t.Errorf("recipe %q: %v", text, err)
		}
	}
	for _, text := range []string{"faire", "backfill=maybe", "half-life=-1h", "reservations=0", "preempt=1", "strict"} {
		if _, err := sim.ParseQueue(text); fault.KindOf(err) != fault.Invalid {
			t.Errorf("queue %q: %v", text, err)
		}
	}
	for text, centers := range map[string]bool{"best": false, "lowest-cost": false, "waste": true, "price=x": true, "e:price=1": true, "price=0": true, "price=1,price=2": true, "waste,waste": false} {
		if _, err := sim.ParsePolicies([]string{text}, centers); fault.KindOf(err) != fault.Invalid {
			t.Errorf("policy %q: %v", text, err)
		}
	}
}

// Traces as they are published, in small.
func TestTraces(t *testing.T) {
	t.Parallel()
	in, err := sim.ReadJobs(sim.Table, strings.NewReader("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"+
		"p-0,12000,16384,1,1000,,LS,Running,0,100,40\np-1,6000,12288,1,460,T4|P100,BE,Succeeded,10,20,\n"), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	a, b := in.Jobs[0], in.Jobs[1]
	if a.ID != "p-0" || a.Ask.CPU != 12000 || a.Run != 60*sim.Second || a.Tenant != "LS" || a.Preemptible {
		t.Errorf("%+v", a)
	}
	if b.Ask.Share != 460 || len(b.Ask.Models) != 2 || b.Run != 10*sim.Second || !b.Preemptible || b.Arrival != 10*sim.Second {
		t.Errorf("%+v", b)
	}
	speeds, err := sim.ReadThroughputs(strings.NewReader(`{"k80": {"('A', 1)": {"null": 2.0, "('B', 1)": [1, 2]}, "('A', 2)": {"null": 3.0}}, "v100": {"('A', 1)": {"null": 10}, "('A', 2)": {"null": 18}}, "v100_unconsolidated": {"('A', 2)": {"null": 9}}}`))
	if err != nil {
		t.Fatal(err)
	}
	in, err = sim.ReadJobs(sim.Steps, strings.NewReader("A\tpython x\t-n\t1\t600\t0.5\t2\nA\tpython x\t-n\t1\t600\t7\t24\n"), speeds, true)
	if err != nil {
		t.Fatal(err)
	}
	// 600 steps at 3 a second, on the slowest; four times as fast spread over
	// two machines is not: 9 a second there, 18 on one.
	if j := in.Jobs[0]; j.Run != 200*sim.Second || j.Arrival != sim.Second/2 || j.Ask.Cards != 2 || !j.Split {
		t.Errorf("%+v", j)
	}
	if j := in.Jobs[1]; j.Replicas != 3 || j.Ask.Cards != 8 || len(speeds.Assumed) != 1 {
		t.Errorf("%+v, assumed %v", j, speeds.Assumed)
	}
	in.Nodes = []sim.Node{{Node: pack.Node{ID: "n", CPU: 1000, Memory: 1024, Cards: 1, Model: "V100M32"}}, {Node: pack.Node{ID: "o", CPU: 1000, Memory: 1024, Cards: 1, Model: "V100M32"}}}
	in.Jobs = in.Jobs[:1]
	if without := speeds.Apply(&in.Fleet); len(without) > 0 {
		t.Fatalf("no throughputs of %v", without)
	}
	if r := run(t, in, "best-fit", "fair"); r.Jobs.Done != 1 || r.Seconds != 600.0/9 && (r.Seconds < 66.66 || r.Seconds > 66.67) {
		t.Errorf("done %d in %v s, want 600 steps at 9 a second", r.Jobs.Done, r.Seconds)
	}
}

// Filling gives what pack.Fill does, and on the public trace the published
// order: waste before FGD before best-fit, random last.
func TestFill(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "..", "shared", "data", "openb")
	nodes, err := os.ReadFile(filepath.Join(dir, "openb_node_list_gpu_node.csv"))
	if err != nil {
		t.Skipf("the public trace is not here, so its order is not checked: %v", err)
	}
	tasks, err := os.ReadFile(filepath.Join(dir, "openb_pod_list_multigpu40.csv"))
	if err != nil {
		t.Skip(err)
	}
	fleet, err := sim.ReadFleet(sim.Table, bytes.NewReader(nodes))
	if err != nil {
		t.Fatal(err)
	}
	in, err := sim.ReadJobs(sim.Table, bytes.NewReader(tasks), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	in.Fleet = fleet.Fleet
	packNodes, err := pack.ReadNodes(bytes.NewReader(nodes))
	if err != nil {
		t.Fatal(err)
	}
	packTasks, err := pack.ReadTasks(bytes.NewReader(tasks))
	if err != nil {
		t.Fatal(err)
	}
	last := 0.0
	for _, policy := range []string{"waste", "fgd", "best-fit", "random"} {
		r := run(t, in, policy, "", func(c *sim.Config) { c.Fill = 1.3 })
		if policy == "best-fit" || policy == "random" { // the others take long
			left, err := pack.Fill(packNodes, packTasks, pack.Policy(policy), 1.3, 1)
			if err != nil {
				t.Fatal(err)
			}
			want(t, policy, r.LeftOver, left)
		}
		if r.LeftOver <= last {
			t.Errorf("%s leaves %v %%, the one before it %v %%", policy, r.LeftOver, last)
		}
		if n := len(r.Loads); n != 131 || r.Loads[130].Arrived != 130 || r.Loads[0].Allocation != 0 {
			t.Errorf("%s: %d loads", policy, n)
		}
		last = r.LeftOver
	}
}
