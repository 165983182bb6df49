package place_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

func one(id string, t place.Task) place.Work {
	t.ID, t.Replicas = "t", max(t.Replicas, 1)
	return place.Work{ID: id, Tasks: []place.Task{t}}
}

func TestPlanRejects(t *testing.T) {
	t.Parallel()
	center := func(change func(*place.Candidate)) *place.Snapshot {
		c := place.Candidate{ID: "a"}
		change(&c)
		return &place.Snapshot{Candidates: []place.Candidate{c}}
	}
	empty := &place.Snapshot{}
	for _, c := range []struct {
		name  string
		s     *place.Snapshot
		queue []place.Work
		want  string
	}{
		{"a candidate without id", &place.Snapshot{Candidates: []place.Candidate{{}}}, nil, "candidates[0].id is empty"},
		{"a candidate twice", &place.Snapshot{Candidates: []place.Candidate{{ID: "a"}, {ID: "a"}}}, nil, `candidates[1].id "a" is given twice`},
		{"negative load", center(func(c *place.Candidate) { c.WaitingTasks = -1 }), nil,
			"candidate a: running_tasks 0 and waiting_tasks -1 must be 0 to 10000000"},
		{"load out of range", center(func(c *place.Candidate) { c.RunningTasks = 10_000_001 }), nil,
			"candidate a: running_tasks 10000001 and waiting_tasks 0 must be 0 to 10000000"},
		{"negative power", center(func(c *place.Candidate) { c.Power = map[string]place.Power{"gpu": {Busy: -5}} }), nil,
			"candidate a: power of gpu must be at least 0, got static 0 and busy -5 mW per 0"},
		{"no speed", center(func(c *place.Candidate) { c.Speeds = []place.Speed{{Kind: "gpu"}} }), nil,
			"candidate a: speed of gpu must be at least 1 thousandth, got 0"},
		{"a speed twice", center(func(c *place.Candidate) {
			c.Speeds = []place.Speed{{Kind: "gpu", Precision: "FP16", Milli: 1}, {Kind: "gpu", Precision: "FP16", Milli: 2}}
		}), nil, "candidate a: speed of gpu FP16 is given twice"},
		{"a negative price", center(func(c *place.Candidate) {
			c.Offers = map[string]place.Offer{"s": {PriceFenPerHour: place.Known(-1)}}
		}), nil, "candidate a: price of specification s must be at least 0, got -1 fen per hour"},
		{"a device twice", center(func(c *place.Candidate) { c.Devices = []place.Device{{ID: "g"}, {ID: "g"}} }), nil,
			`candidate a: device id "g" is empty or given twice`},
		{"no bandwidth", center(func(c *place.Candidate) { c.Network.BandwidthKbps = place.Known(0) }), nil,
			"candidate a: bandwidth_kbps must be 1 to 1152921504606846976, got 0"},
		{"too much capacity", center(func(c *place.Candidate) { c.Free = place.Amounts{"cpu": 1<<60 + 1} }), nil,
			"candidate a: free cpu must be within ±1152921504606846976, got 1152921504606846977"},
		{"a position off the earth", center(func(c *place.Candidate) { c.Position = &place.Position{Latitude: 90_000_001} }), nil,
			"candidate a: position must be within ±180 and ±90 degrees, got 0 and 90000001 millionths"},
		{"too many packages", center(func(c *place.Candidate) { c.Offers = map[string]place.Offer{"s": {Idle: place.Known(1 << 61)}} }), nil,
			"candidate a: packages of specification s must be within ±1152921504606846976, got 2305843009213693952 idle of 0"},
		{"too much of a device", center(func(c *place.Candidate) {
			c.Devices = []place.Device{{ID: "g", Free: place.Amounts{"share": 1 << 61}}}
		}), nil, "candidate a device g: free share must be within ±1152921504606846976, got 2305843009213693952"},
		{"negative PUE", center(func(c *place.Candidate) { c.PUE = place.Known(-1) }), nil,
			"candidate a: pue must be at least 0, got -1"},
		{"negative carbon", center(func(c *place.Candidate) { c.Carbon = place.Known(-1) }), nil,
			"candidate a: carbon must be at least 0, got -1"},
		{"too good a fit", center(func(c *place.Candidate) { c.Business = map[string]int64{"video": 101} }), nil,
			`candidate a: fit for business "video" must be 0 to 100, got 101`},
		{"a negative fee", center(func(c *place.Candidate) { c.Network.FeeFenPerGiB = place.Known(-1) }), nil,
			"candidate a: fee_fen_per_gib must be 0 to 1000000000, got -1"},
		{"a link twice", &place.Snapshot{Links: []place.Link{{From: "a", To: "b"}, {From: "a", To: "b"}}}, nil,
			`links[1] from "a" to "b" is given twice`},
		{"a negative latency", &place.Snapshot{Links: []place.Link{{Network: place.Network{LatencyMicros: place.Known(-1)}}}}, nil,
			"links[0]: latency_us must be 0 to 1000000000, got -1"},
		{"a work without id", empty, []place.Work{{}}, `work id "" is empty or given twice`},
		{"a work twice", empty, []place.Work{{ID: "w"}, {ID: "w"}}, `work id "w" is empty or given twice`},
		{"negative replicas", empty, []place.Work{{ID: "w", Tasks: []place.Task{{ID: "t", Replicas: -1}}}},
			"work w task t: replicas must be 0 to 1000000, got -1"},
		{"a negative placement", empty, []place.Work{{ID: "w", Placed: map[string]int{"a": -1}}},
			"work w: replicas placed at a must be 0 to 1000000, got -1"},
		{"a replica twice", empty, []place.Work{{ID: "w", Tasks: []place.Task{{ID: "t", Indices: []int{3}}, {ID: "t", Indices: []int{1, 3}}}}},
			"work w task t: replica 3 is given twice"},
		{"a task twice", empty, []place.Work{{ID: "w", Tasks: []place.Task{{ID: "t", Replicas: 1}, {ID: "t", Replicas: 1}}}},
			"work w task t: replica 0 is given twice"},
		{"a negative request", empty, []place.Work{one("w", place.Task{Request: place.Amounts{"gpu": -1}})},
			"work w task t: request of gpu must be 0 to 1152921504606846976, got -1"},
		{"no device wanted", empty, []place.Work{one("w", place.Task{Devices: &place.DeviceRequest{}})},
			"work w task t: device count must be 1 to 1000000, got 0"},
		{"a negative slice", empty, []place.Work{one("w", place.Task{Devices: &place.DeviceRequest{Count: 1, Each: place.Amounts{"share": -1}}})},
			"work w task t: share of a device must be 0 to 1152921504606846976, got -1"},
		{"negative data", empty, []place.Work{one("w", place.Task{Data: []place.DataNeed{{Dataset: "d", Bytes: -1}}})},
			"work w task t: dataset d must have at least 0 bytes, got -1"},
		{"a negative run time", empty, []place.Work{one("w", place.Task{RunSeconds: place.Known(-1)})},
			"work w task t: run_seconds must be at least 0, got -1"},
		{"a negative finish", empty, []place.Work{one("w", place.Task{QoS: place.QoS{FinishSeconds: place.Known(-1)}})},
			"work w task t: qos targets must be at least 0, got -1"},
		{"a policy set without policies", empty, []place.Work{{ID: "w", Set: &place.Set{ID: "s"}}},
			`policy set "s" must have 1 to 64 policies, got 0`},
		{"a least score above the best", empty, []place.Work{{ID: "w", Set: &place.Set{ID: "s", Uses: []place.Use{
			{Policy: place.Policies()[0], Weight: 1, Min: 101}}}}}, `min of policy "least-load" must be 0 to 100, got 101`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := place.Plan(c.s, c.queue, place.Presets()[0], place.Options{})
			wantInvalid(t, err, c.want)
		})
	}
}

func TestScoreRejectsTaskOutOfRange(t *testing.T) {
	t.Parallel()
	w := one("w", place.Task{})
	_, err := place.Score(&place.Snapshot{}, &w, 1, place.Presets()[0], place.Options{})
	wantInvalid(t, err, "work w has 1 tasks, task 1 wanted")
}

// TestPlanLeavesItsInputAlone, byte for byte.
func TestPlanLeavesItsInputAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, q := genCase(t)
		dump := func() string {
			b, err := json.Marshal([]any{s, q})
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		before := dump()
		plan(t, s, q, genSet(t), place.Options{})
		if after := dump(); after != before {
			t.Fatalf("input before %s\nafter %s", before, after)
		}
	})
}

// gpus is a snapshot of available candidates with that many free.
func gpus(free ...int64) *place.Snapshot {
	s := &place.Snapshot{}
	for i, n := range free {
		s.Candidates = append(s.Candidates, place.Candidate{ID: string(rune('a' + i)), Status: place.Available,
			Free: place.Amounts{"gpu": n}, Total: place.Amounts{"gpu": n}})
	}
	return s
}

func mustPlan(t *testing.T, s *place.Snapshot, q []place.Work, set *place.Set, o place.Options) *place.Result {
	t.Helper()
	res, err := place.Plan(s, q, set, o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestOwnPoliciesAndFilters(t *testing.T) {
	t.Parallel()
	s := gpus(1, 2, 3)
	likes := place.Policy{ID: "likes-b", Factors: []place.Factor{{ID: "b", Absolute: true,
		Measure: func(_ *place.Ask, s *place.Site) place.Fact {
			return place.Known(map[string]int64{"a": -5, "b": 70, "c": 900}[s.ID])
		}}}}
	set, err := place.NewSet("own", place.Weighted, []place.Weight{{Policy: "likes-b", Weight: 1}}, likes)
	if err != nil {
		t.Fatal(err)
	}
	notC := place.Filter{ID: "not-c", Check: func(_ *place.Ask, s *place.Site) string {
		if s.ID == "c" {
			return "is called c"
		}
		return ""
	}}
	res := mustPlan(t, s, []place.Work{one("w", place.Task{})}, set, place.Options{Filters: []place.Filter{notC}})
	d := res.Placements[0].Decision
	if d.Chosen != "b" || d.Table[0].Scores[0] != 70 || d.Table[1].Scores[0] != 0 ||
		!slices.Equal(d.Table[2].Filtered, []place.Reason{{Filter: "not-c", Text: "is called c"}}) {
		t.Errorf("chose %s from %+v %+v %+v", d.Chosen, *d.Table[0].Row, *d.Table[1].Row, *d.Table[2].Row)
	}
}

// TestHugeFactsKeepTheirOrder: facts at the ends of the range neither overflow
// nor tie.
func TestHugeFactsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	values := map[string]int64{"a": -1 << 63, "b": 0, "c": 1<<63 - 1}
	p := place.Policy{ID: "huge", Factors: []place.Factor{{ID: "v", Better: place.Higher,
		Measure: func(_ *place.Ask, s *place.Site) place.Fact { return place.Known(values[s.ID]) }}}}
	set, err := place.NewSet("own", place.Weighted, []place.Weight{{Policy: "huge", Weight: 1}}, p)
	if err != nil {
		t.Fatal(err)
	}
	w := one("w", place.Task{})
	d, err := place.Score(gpus(1, 1, 1), &w, 0, set, place.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, e := range d.Table {
		got = append(got, e.Scores[0])
	}
	if d.Chosen != "c" || !slices.Equal(got, []int{100, 50, 0}) {
		t.Errorf("chose %s with scores %v", d.Chosen, got)
	}
}

func TestTableRowsLimitsTheTableOnly(t *testing.T) {
	t.Parallel()
	q := []place.Work{one("w", place.Task{Request: place.Amounts{"gpu": 2}})}
	all := mustPlan(t, gpus(2, 9, 4, 1), q, place.Presets()[0], place.Options{}).Placements[0]
	some := mustPlan(t, gpus(2, 9, 4, 1), q, place.Presets()[0], place.Options{TableRows: 2}).Placements[0]
	if some.Candidate != all.Candidate || len(some.Decision.Table) != 2 || some.Decision.Omitted != 2 ||
		some.Decision.Margin == nil || some.Decision.Margin.RunnerUp != all.Decision.Margin.RunnerUp {
		t.Errorf("limited to 2 rows: %+v, all: %+v", *some.Decision, *all.Decision)
	}
}

func TestReplicasThatStayShareOneDecision(t *testing.T) {
	t.Parallel()
	q := []place.Work{one("w1", place.Task{Replicas: 50, Request: place.Amounts{"gpu": 2}}),
		one("w2", place.Task{Replicas: 50, Request: place.Amounts{"gpu": 2}})}
	res := mustPlan(t, gpus(1, 1), q, place.Presets()[0], place.Options{})
	if len(res.Unplaced) != 100 {
		t.Fatalf("%d of 100 stay", len(res.Unplaced))
	}
	for _, u := range res.Unplaced {
		if u.Decision != res.Unplaced[0].Decision {
			t.Fatalf("%s/%d has a decision of its own", u.Work, u.Replica)
		}
	}
}

// TestOrderSharesOut uses the seam for fair shares: the order sees what each
// work got and lets the tenant with less go next.
func TestOrderSharesOut(t *testing.T) {
	t.Parallel()
	var q []place.Work
	for i, tenant := range []string{"big", "big", "big", "small", "small"} {
		w := one(string(rune('p'+i)), place.Task{Request: place.Amounts{"gpu": 1}})
		w.Tenant, w.Arrival = tenant, int64(i)
		q = append(q, w)
	}
	fair := func(queue []*place.Work) place.Turn {
		used, last := map[string]int64{}, ""
		done := make([]bool, len(queue))
		return func(got place.Amounts) (int, bool) {
			used[last] += got["gpu"]
			best := -1
			for i, w := range queue {
				if !done[i] && (best < 0 || used[w.Tenant] < used[queue[best].Tenant]) {
					best = i
				}
			}
			if best < 0 {
				return 0, false
			}
			done[best], last = true, queue[best].Tenant
			return best, true
		}
	}
	var got []string
	for _, p := range mustPlan(t, gpus(4), q, place.Presets()[0], place.Options{Order: fair}).Placements {
		got = append(got, p.Work)
	}
	if want := "p s q t"; strings.Join(got, " ") != want {
		t.Errorf("placed %v, want %s", got, want)
	}
}

func TestPlanRejectsOrderThatRepeats(t *testing.T) {
	t.Parallel()
	again := func([]*place.Work) place.Turn { return func(place.Amounts) (int, bool) { return 0, true } }
	_, err := place.Plan(gpus(4), []place.Work{one("w", place.Task{})}, place.Presets()[0], place.Options{Order: again})
	wantInvalid(t, err, "order names work 0 of 1 out of range or twice")
}

func TestIndicesNameTheReplicas(t *testing.T) {
	t.Parallel()
	q := []place.Work{{ID: "w", Tasks: []place.Task{
		{ID: "t", Indices: []int{7, 2}, Request: place.Amounts{"gpu": 1}},
		{ID: "t", Indices: []int{4}, Request: place.Amounts{"gpu": 1}, Excluded: map[string]string{"a": "failed there"}},
	}}}
	got := short(mustPlan(t, gpus(2, 1), q, place.Presets()[0], place.Options{NoTables: true}))
	want := "w/t/2 -> a []\nw/t/7 -> b []\nw/t/4: none of 2 centers fits (capacity: 1, excluded: 1); " +
		"closest is b: wants 1 gpu, 0 of 1 free\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestHoldSeesWhatIsLeft: the hook is asked once per work that stays, after it.
func TestHoldSeesWhatIsLeft(t *testing.T) {
	t.Parallel()
	var asked []string
	hold := func(w *place.Work, sites []*place.Site) []place.Hold {
		n, unlimited := sites[0].Left("gpu")
		asked = append(asked, w.ID)
		if n != 3 || unlimited {
			t.Errorf("%s: %d gpu left (unlimited %v), want 3", w.ID, n, unlimited)
		}
		return []place.Hold{{Candidate: "a", Amounts: place.Amounts{"gpu": n}}, {Candidate: "nobody"}}
	}
	q := []place.Work{
		one("1 fits", place.Task{Request: place.Amounts{"gpu": 1}}), one("2 wide", place.Task{Request: place.Amounts{"gpu": 8}}),
		one("3 late", place.Task{Request: place.Amounts{"gpu": 1}}),
	}
	res := mustPlan(t, gpus(4), q, place.Presets()[0], place.Options{Hold: hold})
	if !slices.Equal(asked, []string{"2 wide", "3 late"}) || len(res.Placements) != 1 || len(res.Holds) != 2 || res.Holds[0].Work != "2 wide" {
		t.Errorf("asked for %v, placed %d, holds %v", asked, len(res.Placements), res.Holds)
	}
	if want := "wants 1 gpu, 3 of 4 free, 3 of it held for 2 wide"; !strings.HasSuffix(res.Unplaced[1].Reason, want) {
		t.Errorf("reason %q, want ...%q", res.Unplaced[1].Reason, want)
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	beijing, shanghai := place.Position{Longitude: 116_397_000, Latitude: 39_909_000}, place.Position{Longitude: 121_474_000, Latitude: 31_230_000}
	for _, c := range []struct {
		name     string
		a, b     place.Position
		low, top int64
	}{
		{"to itself", beijing, beijing, 0, 0},
		{"Beijing to Shanghai", beijing, shanghai, 1_066_000, 1_068_500},
		{"to the antipode", place.Position{}, place.Position{Longitude: 180e6}, 20_015_000, 20_016_000},
		{"over the date line", place.Position{Longitude: 179e6}, place.Position{Longitude: -179e6}, 222_000, 223_000},
	} {
		if d, back := place.Distance(c.a, c.b), place.Distance(c.b, c.a); d < c.low || d > c.top || d != back {
			t.Errorf("%s: %d m (back %d), want %d to %d", c.name, d, back, c.low, c.top)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unit string
		v    int64
		want string
	}{
		{"fen/h", 1250, "12.50 CNY/h"}, {"fen/h", 5, "0.05 CNY/h"}, {"", 3, "3"}, {"milli", 1500, "1.5"}, {"bp", 8750, "87.5 %"},
		{"permille", 1000, "100 %"}, {"ppm", 100, "0.01 %"}, {"us", 2500, "2.5 ms"}, {"ms", 90_000, "90 s"}, {"mJ", 1500, "1.5 J"},
		{"mJ", 3_600_000_000, "3600 kJ"}, {"m", 1500, "1.5 km"}, {"kbit/s", 10_000_000, "10000 Mbit/s"}, {"mg", 18_000, "18 g CO2"},
		{"jobs", 1, "1 job"}, {"jobs", 2, "2 jobs"}, {"jobs", -1, "-1 jobs"}, {"knots", 7, "7 knots"}, {"milli", -1500, "-1.5"},
		{"B", 0, "0 B"}, {"B", 1023, "1023 B"}, {"B", 1024, "1 KiB"}, {"B", 1536 << 20, "1.5 GiB"}, {"B", -1 << 63, "-8 EiB"},
		{"B", 1<<63 - 1, "7.99 EiB"}, {"mg", -1 << 63, "-9223372036854775.808 g CO2"},
	} {
		if got := place.Text(c.unit, place.Known(c.v)); got != c.want {
			t.Errorf("Text(%q, %d) = %q, want %q", c.unit, c.v, got, c.want)
		}
	}
	if got := place.Text("fen/h", place.Fact{}); got != "unknown" {
		t.Errorf("an unknown fact is %q", got)
	}
	for name, want := range map[string]string{"cpu": "1.5 cpu", "memory": "1.46 KiB memory", "gpu": "1500 gpu"} {
		if got := place.Amount(name, 1500); got != want {
			t.Errorf("Amount(%q, 1500) = %q, want %q", name, got, want)
		}
	}
}

// TestDecisionJSON fixes the names under which decisions are stored.
func TestDecisionJSON(t *testing.T) {
	t.Parallel()
	set, err := place.NewSet("mine", place.Weighted, []place.Weight{{Policy: "lowest-price", Weight: 3}, {Policy: "idle-spec", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	s := gpus(4, 1, 0)
	for i, price := range []int64{900, 500, 100} {
		s.Candidates[i].Name = "Center " + s.Candidates[i].ID
		s.Candidates[i].Offers = map[string]place.Offer{"s": {PriceFenPerHour: place.Known(price)}}
	}
	s.Candidates[0].Total["gpu"], s.Candidates[1].Total["gpu"] = 4, 4
	w := one("w", place.Task{Spec: "s", Request: place.Amounts{"gpu": 1}})
	d, err := place.Score(s, &w, 0, set, place.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"set":"mine","evaluator":"weighted","policies":[` +
		`{"id":"lowest-price","weight":3,"factors":[{"id":"price","unit":"fen/h"}]},` +
		`{"id":"idle-spec","weight":1,"factors":[{"id":"idle_share","unit":"bp"}]}],"weight_sum":4,` +
		`"candidates":3,"feasible":2,"chosen":"b",` +
		`"margin":{"runner_up":"a","gap":{"num":200,"den":4},"decided_by":"lowest-price",` +
		`"flip":{"policy":"idle-spec","weight":1,"above":{"num":300,"den":100}}},` +
		`"load":{"candidates":3,"jobs":0,"job_squares":0},"table":[` +
		`{"rank":1,"chosen":true,"candidate":"b","name":"Center b","scores":[100,0],"weighted":[300,0],"values":[[500],[2500]],"exact":{"num":300,"den":4},"final":75},` +
		`{"rank":2,"candidate":"a","name":"Center a","scores":[0,100],"weighted":[0,100],"values":[[900],[10000]],"exact":{"num":100,"den":4},"final":25},` +
		`{"candidate":"c","name":"Center c","filtered":[{"filter":"capacity","text":"wants 1 gpu, 0 of 0 free"}],"final":0}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestFaultsAreInvalid(t *testing.T) {
	t.Parallel()
	_, err := place.Plan(&place.Snapshot{}, nil, &place.Set{ID: "s"}, place.Options{})
	if fault.KindOf(err) != fault.Invalid {
		t.Errorf("got %v (%v)", err, fault.KindOf(err))
	}
}

// TestNothingFitsWhereNothingIsWanted: a candidate overdrawn in a resource can
// still take a replica that wants none of it.
func TestNothingFitsWhereNothingIsWanted(t *testing.T) {
	t.Parallel()
	s := gpus(-3)
	s.Candidates[0].Devices = []place.Device{{ID: "g", Free: place.Amounts{"share": -20}}}
	q := []place.Work{one("w", place.Task{Request: place.Amounts{"gpu": 0},
		Devices: &place.DeviceRequest{Count: 1, Each: place.Amounts{"share": 0}}})}
	if res := mustPlan(t, s, q, place.Presets()[0], place.Options{}); len(res.Placements) != 1 {
		t.Errorf("it stays: %v", res.Unplaced)
	}
}
