package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/sim"
)

// story plays an input and returns its events as lines, with the result.
func story(t *testing.T, in *sim.Input, cfg sim.Config) ([]string, *sim.Result) {
	t.Helper()
	if err := in.Fleet.Check(); err != nil {
		t.Fatal(err)
	}
	if err := in.Workload.Check(); err != nil {
		t.Fatal(err)
	}
	if cfg.Policy.Name == "" {
		list, err := sim.ParsePolicies(nil, len(in.Centers) > 0)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Policy = list[0]
	}
	var out bytes.Buffer
	cfg.Log = func(e sim.Event) { sim.WriteEvent(&out, in, e) }
	r, err := sim.Run(in, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n"), r
}

func wantStory(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func nodes(n, cards int) (out []sim.Node) {
	for i := range n {
		out = append(out, sim.Node{Node: pack.Node{ID: fmt.Sprintf("n%d", i), CPU: 64_000, Memory: 1 << 18, Cards: cards}})
	}
	return out
}

func cardJob(id string, replicas, seconds int) sim.Job {
	return sim.Job{ID: id, Tenant: "t", Run: int64(seconds) * sim.Second, Expected: int64(seconds) * sim.Second, Replicas: replicas, Ask: sim.Ask{CPU: 1000, Cards: 1, Share: 1000}}
}

// What runs on a node that fails waits again from its last checkpoint, and
// nothing is placed there until it is repaired.
func TestOutage(t *testing.T) {
	t.Parallel()
	j := cardJob("a", 1, 100)
	j.Checkpoint = 30 * sim.Second
	in := &sim.Input{Fleet: sim.Fleet{Nodes: nodes(1, 1), Outages: []sim.Outage{{Place: "n0", At: 70 * sim.Second, Long: 50 * sim.Second}}}, Workload: sim.Workload{Jobs: []sim.Job{j}}}
	got, r := story(t, in, sim.Config{})
	// 60 of 100 s are saved; 40 s are left at 120 s.
	wantStory(t, got, "0,arrives,a,", "0,starts,a,n0:0", "70000000,fails,,n0", "70000000,is interrupted,a,n0:0", "120000000,is repaired,,n0", "120000000,starts,a,n0:0", "160000000,ends,a,n0:0")
	if f := r.Failures; f.Outages != 1 || f.Interrupted != 1 || f.DownHours != 50.0/3600 || f.LostCardHours != 10.0/3600 || r.LostCardHours != 0 || r.Preemptions != 0 {
		t.Errorf("failures %+v, lost otherwise %v, taken back %d", f, r.LostCardHours, r.Preemptions)
	}
}

// Failures that are drawn are the same for the same seed, whatever the policy;
// every job ends all the same, and a node is never given more than it has.
func TestFailuresDrawn(t *testing.T) {
	t.Parallel()
	in := &sim.Input{Fleet: sim.Fleet{Nodes: nodes(4, 4)}}
	for i := range in.Nodes {
		in.Nodes[i].MTBF, in.Nodes[i].MTTR = 2*sim.Hour, sim.Hour/4
	}
	dice := rand.New(rand.NewPCG(3, 3))
	for i := range 200 {
		j := cardJob(fmt.Sprintf("j%d", i), 1+dice.IntN(3), 600+dice.IntN(3600))
		j.Arrival, j.Checkpoint = int64(i)*120*sim.Second, 300*sim.Second
		in.Jobs = append(in.Jobs, j)
	}
	fails := func(p pack.Policy, seed uint64) (out []string) {
		got, r := story(t, in, sim.Config{Policy: sim.Policy{Name: string(p), Pack: p}, Seed: seed})
		if r.Jobs.Done != 200 || r.Failures.Outages < 5 || r.Failures.Interrupted == 0 {
			t.Errorf("%s: %+v, %+v", p, r.Jobs, r.Failures)
		}
		for _, e := range got {
			if strings.Contains(e, ",fails,") && len(out) < 5 {
				out = append(out, e)
			}
		}
		return out
	}
	first := fails(pack.Waste, 1)
	if again := fails(pack.Random, 1); !slices.Equal(first, again) {
		t.Errorf("another policy, other failures: %v and %v", first, again)
	}
	if other := fails(pack.Waste, 2); slices.Equal(first, other) {
		t.Errorf("another seed, the same failures: %v", other)
	}
}

// A job that waits for a node that fails for ever does not keep the simulation
// from ending.
func TestNeverRepaired(t *testing.T) {
	t.Parallel()
	in := &sim.Input{Fleet: sim.Fleet{Nodes: nodes(1, 1), Outages: []sim.Outage{{Place: "n0", At: 1, Long: sim.MaxTime}}}, Workload: sim.Workload{Jobs: []sim.Job{cardJob("a", 1, 100)}}}
	in.Nodes[0].MTBF, in.Nodes[0].MTTR = sim.Hour, sim.Hour
	_, r := story(t, in, sim.Config{})
	if r.Jobs.Done+r.Jobs.Waiting+r.Jobs.Running != 1 || r.Failures.Interrupted == 0 {
		t.Errorf("%+v, %+v", r.Jobs, r.Failures)
	}
}

// An elastic job starts with what there is, and grows when others end.
func TestElastic(t *testing.T) {
	t.Parallel()
	wide := cardJob("wide", 4, 100)
	wide.Least, wide.Arrival = 2, 10*sim.Second
	in := &sim.Input{Fleet: sim.Fleet{Nodes: nodes(2, 2)}, Workload: sim.Workload{Jobs: []sim.Job{cardJob("first", 2, 50), wide}}}
	got, r := story(t, in, sim.Config{})
	// 400 card seconds: 2 cards for 40 s, then 4 for 80 s.
	wantStory(t, got, "0,arrives,first,", "0,starts,first,n0:0 n0:1", "10000000,arrives,wide,", "10000000,starts,wide,n1:0 n1:1", "50000000,ends,first,n0:0 n0:1", "50000000,grows,wide,n0:0 n0:1",
		"130000000,ends,wide,n1:0 n1:1 n0:0 n0:1")
	if r.Jobs.Done != 2 || r.Growths != 1 || r.Seconds != 130 {
		t.Errorf("%+v, grew %d times, %v s; want 130 s\n%s", r.Jobs, r.Growths, r.Seconds, strings.Join(got, "\n"))
	}
	in.Jobs[1].Least = 0
	if _, r := story(t, in, sim.Config{}); r.Seconds != 150 || r.Growths != 0 {
		t.Errorf("not elastic: %v s, want 150", r.Seconds)
	}
	in.Jobs[1].Least, in.Jobs[1].Split = 2, true
	if err := in.Workload.Check(); err == nil || !strings.Contains(err.Error(), "min_replicas") {
		t.Errorf("elastic and split: %v", err)
	}
}

// Data is brought once: the job waits for it, pays for it, and draws what it
// draws idle until then (equation 1).
func TestDataIsBrought(t *testing.T) {
	t.Parallel()
	supply := sim.Supply{Idle: 100_000, Busy: 500_000, Price: place.Known(0)}
	in := &sim.Input{Fleet: sim.Fleet{Centers: []sim.Center{
		{ID: "far", CPU: 64_000, Memory: 1 << 18, Cards: 1, Data: place.Amounts{"set": 10 << 30}, Supply: supply, Model: "old"},
		{ID: "near", CPU: 64_000, Memory: 1 << 18, Cards: 1, Supply: supply, Model: "new"},
	}, Links: []place.Link{{From: "far", To: "near", Network: place.Network{BandwidthKbps: place.Known(8 * (1 << 30) / 1000), FeeFenPerGiB: place.Known(25)}}}}}
	for i, at := range []int64{0, 1000} {
		j := cardJob(fmt.Sprintf("j%d", i), 1, 100)
		j.Arrival, j.Ask.Models, j.Data = at*sim.Second, []string{"new"}, []place.DataNeed{{Dataset: "set", Bytes: 10 << 30}}
		in.Jobs = append(in.Jobs, j)
	}
	_, r := story(t, in, sim.Config{})
	x := r.Transfers
	if x.Count != 1 || x.GiB != 10 || x.FeeFen != 250 || x.NoFee != 0 || x.Seconds < 9.9 || x.Seconds > 10.1 {
		t.Errorf("transfers %+v, want 10 GiB in about 10 s for 250 fen, once", x)
	}
	if r.CostFen == nil || *r.CostFen != 250 {
		t.Errorf("cost %v fen, want 250", r.CostFen)
	}
	if r.Completion.Mean < 104.9 || r.Completion.Mean > 105.1 {
		t.Errorf("completion %v s, want 110 and 100", r.Completion)
	}
	// Two runs of 100 s at 400 W beyond idling; nothing more while data comes.
	if want := 2 * 100 * 400.0 / 3_600_000; r.WorkEnergy == nil || *r.WorkEnergy < want*0.999 || *r.WorkEnergy > want*1.001 {
		t.Errorf("energy of the work %v kWh, want %v", r.WorkEnergy, want)
	}
}

// recorded is an input as a platform records it.
func recorded() *sim.Input {
	in := &sim.Input{Recorded: &sim.Recording{Queue: "priority,backfill=greedy,strict=on,block-after=10m0s", Weights: map[string]int64{"lowest-price": 3, "lowest-energy": 0}, Policies: []json.RawMessage{json.RawMessage(`{"policy_id":"p"}`)}}}
	for i, price := range []int64{500, 300} {
		total := place.Amounts{"cpu": 8000, "memory": 8 << 30, "gpu": 3}
		in.Centers = append(in.Centers, sim.RecordedCenter(place.Candidate{ID: fmt.Sprintf("c-%d", i+1), Status: place.Available, Total: total, Attributes: map[string]string{"zone": "a"},
			Images: []string{"img"}, Offers: map[string]place.Offer{"small": {PriceFenPerHour: place.Known(price)}}, Speeds: []place.Speed{{Kind: "cpu", Milli: 2000}},
			Power: map[string]place.Power{"cpu": {Per: 1000, Static: 1000, Busy: 5000}, "memory": {}, "gpu": {}}}))
	}
	for i := range 5 {
		j := sim.Job{ID: fmt.Sprintf("job_%d", i), Tenant: "t", User: "u", Arrival: int64(i) * 1_500_000, Run: 7_000_001, Expected: 60 * sim.Second, Labels: map[string]string{"k": "v"}, Preemptible: true}
		if i == 3 {
			j.Weights = map[string]int32{"highest-performance": 1}
		}
		j.Recorded(place.Work{ID: j.ID, Tenant: "t", Arrival: j.Arrival, Tasks: []place.Task{
			{ID: "0", Replicas: 1, Spec: "small", Image: "img", Kind: "cpu", Request: place.Amounts{"cpu": 4000, "memory": 1 << 30, "gpu": 1}, RunSeconds: place.Known(60)},
			{ID: "1", Replicas: 2, Spec: "small", Image: "img", Kind: "cpu", Request: place.Amounts{"cpu": 1000, "memory": 1 << 30, "gpu": 1}, RunSeconds: place.Known(60)}}})
		in.Jobs = append(in.Jobs, j)
	}
	return in
}

// A recorded platform is written as a file, and read from it as it was.
func TestRecordedFile(t *testing.T) {
	t.Parallel()
	in := recorded()
	var file bytes.Buffer
	if err := in.WriteRecorded(&file); err != nil {
		t.Fatal(err)
	}
	back, err := sim.ReadFleet(sim.Document, bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatalf("%v\n%s", err, file.String())
	}
	var again bytes.Buffer
	if err := back.WriteRecorded(&again); err != nil {
		t.Fatal(err)
	}
	if file.String() != again.String() {
		t.Errorf("written again:\n%s\nwas\n%s", again.String(), file.String())
	}
	set, err := in.Recorded.Set()
	if err != nil {
		t.Fatal(err)
	}
	q, err := sim.ParseQueue(in.Recorded.Queue)
	if err != nil {
		t.Fatal(err)
	}
	if q.Text() != in.Recorded.Queue {
		t.Errorf("queue %q, was %q", q.Text(), in.Recorded.Queue)
	}
	cfg := sim.Config{Policy: sim.Policy{Name: "x", Set: set}, Queue: q}
	one, r := story(t, in, cfg)
	two, _ := story(t, back, cfg)
	if !slices.Equal(one, two) {
		t.Errorf("played\n%s\nfrom the file\n%s", strings.Join(one, "\n"), strings.Join(two, "\n"))
	}
	if !strings.HasPrefix(one[1], "0,starts,job_0,c-2") || r.Jobs.Done != 5 || r.CostFen == nil || *r.CostFen == 0 || r.WorkEnergy == nil || r.Allocation.Most != 100 {
		t.Errorf("want all on the cheap center first, priced, all 6 accelerators used: %+v %+v\n%s", r.Jobs, r.Allocation, strings.Join(one, "\n"))
	}
	for text, want := range map[string]string{
		`"small":{"price_fen_per_hour":500,`: "snapshot",
		`"lowest-price":3`:                   "recorded.weights",
		`"backfill=greedy`:                   "recorded",
	} {
		bad := strings.Replace(file.String(), text, strings.NewReplacer("price_fen_per_hour", "prize", "lowest-price", "lowest-prize", "backfill=greedy", "backfill=often").Replace(text), 1)
		if _, err := sim.ReadFleet(sim.Document, strings.NewReader(bad)); bad != file.String() && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("with %s spoiled: %v", text, err)
		}
	}
}

// The tables of decisions are those of the choices made.
func TestDecided(t *testing.T) {
	t.Parallel()
	in := recorded()
	set, err := in.Recorded.Set()
	if err != nil {
		t.Fatal(err)
	}
	chosen := map[int]string{}
	cfg := sim.Config{Policy: sim.Policy{Name: "x", Set: set}, Decided: func(_ int64, job int, d *place.Decision) { chosen[job] = d.Chosen }}
	got, _ := story(t, in, cfg)
	without, _ := story(t, in, sim.Config{Policy: cfg.Policy})
	if !slices.Equal(got, without) {
		t.Errorf("with tables it decides otherwise")
	}
	for _, e := range got {
		if f := strings.Split(e, ","); f[1] == "starts" {
			var k int
			fmt.Sscanf(f[2], "job_%d", &k)
			if chosen[k] == "" || !strings.HasPrefix(f[3], chosen[k]) {
				t.Errorf("%s, decided %q", e, chosen[k])
			}
		}
	}
	if len(chosen) != 5 {
		t.Errorf("decisions about %d jobs, want 5", len(chosen))
	}
}
