package place_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Generators for the properties. Values are small, so that ties, shortages and
// equal asks are common.

func genFact(t *rapid.T, name string, low, high int64) place.Fact {
	if rapid.IntRange(0, 4).Draw(t, name+" known") == 0 {
		return place.Fact{}
	}
	return place.Known(rapid.Int64Range(low, high).Draw(t, name))
}

func genNetwork(t *rapid.T) place.Network {
	return place.Network{
		LatencyMicros: genFact(t, "latency", 0, 5000), JitterMicros: genFact(t, "jitter", 0, 100),
		LossPPM: genFact(t, "loss", 0, 50), BandwidthKbps: genFact(t, "bandwidth", 1, 10_000_000), FeeFenPerGiB: genFact(t, "fee", 0, 9),
	}
}

func genPosition(t *rapid.T) *place.Position {
	if rapid.IntRange(0, 3).Draw(t, "position known") == 0 {
		return nil
	}
	return &place.Position{
		Longitude: rapid.Int64Range(-180, 180).Draw(t, "longitude") * 1e6,
		Latitude:  rapid.Int64Range(-90, 90).Draw(t, "latitude") * 1e6,
	}
}

// A generator of rapid writes its own name when it is first asked for it:
// tests that run at once must not share one.
func genRegion() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"east", "west", "north"})
}
func genSpec() *rapid.Generator[string]    { return rapid.SampledFrom([]string{"s1", "s2"}) }
func genImage() *rapid.Generator[string]   { return rapid.SampledFrom([]string{"i1", "i2"}) }
func genDataset() *rapid.Generator[string] { return rapid.SampledFrom([]string{"d1", "d2"}) }

func genCandidate(t *rapid.T, id string) place.Candidate {
	c := place.Candidate{
		ID: id, Region: genRegion().Draw(t, "region"), Position: genPosition(t),
		Status:        rapid.SampledFrom([]place.Status{"available", "available", "available", "draining"}).Draw(t, "status"),
		SecurityGrade: rapid.Int64Range(0, 3).Draw(t, "grade"),
		Offers:        map[string]place.Offer{},
		AnyImage:      rapid.Bool().Draw(t, "any image"),
		RunningTasks:  rapid.Int64Range(0, 5).Draw(t, "running"),
		WaitingTasks:  rapid.Int64Range(0, 5).Draw(t, "waiting"),
		PUE:           genFact(t, "pue", 1000, 2000), Carbon: genFact(t, "carbon", 0, 900), Network: genNetwork(t),
	}
	if rapid.IntRange(0, 5).Draw(t, "vector") > 0 {
		c.Free = place.Amounts{"cpu": rapid.Int64Range(0, 8).Draw(t, "cpu") * 500, "gpu": rapid.Int64Range(-1, 6).Draw(t, "gpu")}
		c.Total = place.Amounts{"cpu": 4000, "gpu": 6}
	}
	for _, spec := range []string{"s1", "s2"} {
		if rapid.IntRange(0, 3).Draw(t, "offers "+spec) > 0 {
			o := place.Offer{PriceFenPerHour: genFact(t, "price", 0, 5), Idle: genFact(t, "idle", 0, 4)}
			if o.Idle.Known && rapid.Bool().Draw(t, "total known") {
				o.Total = place.Known(4)
			}
			c.Offers[spec] = o
		}
	}
	if !c.AnyImage {
		c.Images = rapid.SliceOfNDistinct(genImage(), 0, 2, rapid.ID).Draw(t, "images")
	}
	for _, d := range []string{"d1", "d2"} {
		if rapid.Bool().Draw(t, "holds "+d) {
			if c.Data == nil {
				c.Data = place.Amounts{}
			}
			c.Data[d] = rapid.Int64Range(1, 2).Draw(t, "bytes") << 30
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "in a rack") > 0 {
		c.Attributes = map[string]string{"rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack")}
	}
	if rapid.Bool().Draw(t, "says what it suits") {
		c.Business = map[string]int64{rapid.SampledFrom([]string{"b1", ""}).Draw(t, "business"): rapid.Int64Range(0, 100).Draw(t, "fit")}
	}
	if rapid.Bool().Draw(t, "speed known") {
		c.Speeds = []place.Speed{{Kind: "gpu", Milli: rapid.Int64Range(1, 4).Draw(t, "speed") * 500}}
	}
	if rapid.IntRange(0, 3).Draw(t, "power known") > 0 {
		c.Power = map[string]place.Power{
			"cpu": {Per: 1000, Static: 100, Busy: rapid.Int64Range(1, 3).Draw(t, "cpu power") * 1000},
			"gpu": {Static: 500, Busy: rapid.Int64Range(1, 3).Draw(t, "gpu power") * 10_000},
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "devices") {
		c.Devices = append(c.Devices, place.Device{
			ID: fmt.Sprintf("dev%d", i), Model: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "model"),
			Total: place.Amounts{"share": 100}, Free: place.Amounts{"share": rapid.Int64Range(0, 4).Draw(t, "share") * 25},
		})
	}
	return c
}

func genSnapshot(t *rapid.T) *place.Snapshot {
	s := &place.Snapshot{Groups: map[string]map[string]int{"g1": {"c0": 1, "c3": 2, "gone": 1}, "gone": {"c1": 1}}}
	n := rapid.IntRange(0, 6).Draw(t, "candidates")
	for i := range n {
		s.Candidates = append(s.Candidates, genCandidate(t, fmt.Sprintf("c%d", i)))
	}
	names := []string{"beijing"}
	for i := range n {
		names = append(names, fmt.Sprintf("c%d", i))
	}
	for i := range names {
		for j := i + 1; j < len(names); j++ {
			if rapid.IntRange(0, 2).Draw(t, "linked") == 0 {
				s.Links = append(s.Links, place.Link{From: names[i], To: names[j], Network: genNetwork(t)})
			}
		}
	}
	return s
}

func genTask(t *rapid.T, id string) place.Task {
	k := place.Task{
		ID: id, Replicas: rapid.IntRange(0, 4).Draw(t, "replicas"),
		Request: place.Amounts{"cpu": rapid.Int64Range(0, 3).Draw(t, "cpu") * 500, "gpu": rapid.Int64Range(0, 2).Draw(t, "gpu")},
		Kind:    "gpu", MinGrade: rapid.SampledFrom([]int64{0, 0, 1}).Draw(t, "min grade"),
		RunSeconds: genFact(t, "run", 0, 100),
	}
	if rapid.IntRange(0, 3).Draw(t, "has business") == 0 {
		k.Business = rapid.SampledFrom([]string{"b1", "b2"}).Draw(t, "of business")
	}
	if rapid.Bool().Draw(t, "has spec") {
		k.Spec = genSpec().Draw(t, "spec")
		k.MaxPrice = genFact(t, "max price", 3, 10)
	}
	switch rapid.IntRange(0, 9).Draw(t, "constraint") {
	case 0:
		k.Image = genImage().Draw(t, "image")
	case 1:
		k.Pinned = []string{"c1", "c3"}
	case 2:
		k.Regions = []string{genRegion().Draw(t, "wanted region")}
	case 3:
		k.Excluded = map[string]string{"c0": "a replica failed there"}
	case 4:
		k.Devices = &place.DeviceRequest{
			Count: rapid.IntRange(1, 2).Draw(t, "device count"),
			Each:  place.Amounts{"share": rapid.Int64Range(0, 2).Draw(t, "slice") * 25},
		}
	case 5:
		k.QoS = place.QoS{MaxLatencyMicros: genFact(t, "max latency", 0, 5000), FinishSeconds: genFact(t, "finish", 0, 100)}
	}
	for range max(0, rapid.IntRange(-2, 2).Draw(t, "rules")) {
		r := place.Rule{
			Kind: rapid.SampledFrom([]place.RuleKind{place.Spread, place.With, place.Apart}).Draw(t, "rule"),
			Over: rapid.SampledFrom([]string{"", "region", "rack"}).Draw(t, "over"), Preferred: rapid.Bool().Draw(t, "preferred"),
			Of: rapid.SampledFrom([]string{"", "", "g1", "g2", "w0", "w1", "gone"}).Draw(t, "of"),
		}
		if r.Kind == place.Spread {
			r.MaxSkew = rapid.IntRange(1, 2).Draw(t, "max skew")
		}
		k.Rules = append(k.Rules, r)
	}
	for range rapid.IntRange(0, 2).Draw(t, "data") {
		k.Data = append(k.Data, place.DataNeed{Dataset: genDataset().Draw(t, "dataset"), Bytes: 1 << 30,
			Stay: rapid.IntRange(0, 4).Draw(t, "stay") == 0})
	}
	return k
}

func genWork(t *rapid.T, id string) place.Work {
	w := place.Work{
		ID: id, Tenant: rapid.SampledFrom([]string{"t1", "t2", "t3"}).Draw(t, "tenant"),
		Priority: rapid.Int64Range(0, 2).Draw(t, "priority"), Arrival: rapid.Int64Range(0, 3).Draw(t, "arrival"),
		Gang: rapid.Bool().Draw(t, "gang"), Distributed: rapid.IntRange(0, 2).Draw(t, "distributed") == 0,
	}
	if rapid.Bool().Draw(t, "has origin") {
		w.Origin = place.Origin{Name: "beijing", Position: &place.Position{Longitude: 116e6, Latitude: 40e6}}
	}
	if rapid.Bool().Draw(t, "in a group") {
		w.Groups = []string{rapid.SampledFrom([]string{"g1", "g2"}).Draw(t, "group")}
	}
	if rapid.IntRange(0, 3).Draw(t, "runs already") == 0 {
		w.Placed = map[string]int{"c2": 2, "gone": 1}
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "tasks") {
		w.Tasks = append(w.Tasks, genTask(t, fmt.Sprintf("t%d", i)))
	}
	return w
}

func genQueue(t *rapid.T) []place.Work {
	var queue []place.Work
	for i := range rapid.IntRange(0, 6).Draw(t, "works") {
		w := genWork(t, fmt.Sprintf("w%d", i))
		if i > 0 && rapid.Bool().Draw(t, "like the last") {
			w.Tasks, w.Distributed, w.Origin = queue[i-1].Tasks, queue[i-1].Distributed, queue[i-1].Origin
		}
		queue = append(queue, w)
	}
	return queue
}

// genSet draws a set of built-in policies with one of the evaluators.
func genSet(t *rapid.T) *place.Set {
	all := place.Policies()
	pick := rapid.SliceOfNDistinct(rapid.IntRange(0, len(all)-1), 1, len(all), rapid.ID).Draw(t, "policies")
	var weights []place.Weight
	for k, i := range pick {
		low := int64(0)
		if k == 0 {
			low = 1
		}
		weights = append(weights, place.Weight{Policy: all[i].ID, Weight: rapid.Int64Range(low, 4).Draw(t, "weight")})
	}
	set, err := place.NewSet("drawn", rapid.SampledFrom(place.Evaluators()).Draw(t, "evaluator"), weights)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// shuffled returns copies of s and queue in another order, maps rebuilt too.
func shuffled(r *rand.Rand, s *place.Snapshot, queue []place.Work) (*place.Snapshot, []place.Work) {
	c := &place.Snapshot{Candidates: slices.Clone(s.Candidates), Links: slices.Clone(s.Links), Groups: maps.Clone(s.Groups)}
	r.Shuffle(len(c.Candidates), func(i, j int) { c.Candidates[i], c.Candidates[j] = c.Candidates[j], c.Candidates[i] })
	r.Shuffle(len(c.Links), func(i, j int) { c.Links[i], c.Links[j] = c.Links[j], c.Links[i] })
	for i := range c.Candidates {
		k := &c.Candidates[i]
		k.Free, k.Total, k.Data, k.Offers = maps.Clone(k.Free), maps.Clone(k.Total), maps.Clone(k.Data), maps.Clone(k.Offers)
		k.Devices, k.Images, k.Speeds = slices.Clone(k.Devices), slices.Clone(k.Images), slices.Clone(k.Speeds)
		r.Shuffle(len(k.Devices), func(i, j int) { k.Devices[i], k.Devices[j] = k.Devices[j], k.Devices[i] })
		r.Shuffle(len(k.Images), func(i, j int) { k.Images[i], k.Images[j] = k.Images[j], k.Images[i] })
		r.Shuffle(len(k.Speeds), func(i, j int) { k.Speeds[i], k.Speeds[j] = k.Speeds[j], k.Speeds[i] })
	}
	q := slices.Clone(queue)
	r.Shuffle(len(q), func(i, j int) { q[i], q[j] = q[j], q[i] })
	return c, q
}

// short writes where everything went, without tables.
func short(res *place.Result) string {
	var b strings.Builder
	for _, p := range res.Placements {
		fmt.Fprintf(&b, "%s/%s/%d -> %s %v\n", p.Work, p.Task, p.Replica, p.Candidate, p.Devices)
	}
	for _, u := range res.Unplaced {
		fmt.Fprintf(&b, "%s/%s/%d: %s\n", u.Work, u.Task, u.Replica, u.Reason)
	}
	return b.String()
}

// roomy opens a drawn case up: everything is on offer everywhere and few
// constraints are left, so that many replicas are placed and gangs fail, where
// they do, only after some of them had a place.
func roomy(t *rapid.T, s *place.Snapshot, queue []place.Work) {
	for i := range s.Candidates {
		c := &s.Candidates[i]
		c.Status, c.AnyImage = place.Available, true
		c.Free = place.Amounts{"cpu": rapid.Int64Range(0, 24).Draw(t, "more cpu") * 500, "gpu": rapid.Int64Range(0, 8).Draw(t, "more gpu")}
		c.Total = place.Amounts{"cpu": 12_000, "gpu": 8}
		for _, spec := range []string{"s1", "s2"} {
			c.Offers[spec] = place.Offer{PriceFenPerHour: c.Offers[spec].PriceFenPerHour}
		}
	}
	for i := range queue {
		queue[i].Tasks = slices.Clone(queue[i].Tasks)
		for j := range queue[i].Tasks {
			k := &queue[i].Tasks[j]
			k.Pinned, k.Regions, k.Excluded, k.MinGrade, k.MaxPrice = nil, nil, nil, 0, place.Fact{}
			if rapid.Bool().Draw(t, "no rules") {
				k.Rules = nil
			}
			for d := range k.Data {
				k.Data = slices.Clone(k.Data)
				k.Data[d].Stay = false
			}
		}
	}
}

// genCase draws a snapshot and a queue, roomy half the time.
func genCase(t *rapid.T) (*place.Snapshot, []place.Work) {
	s, queue := genSnapshot(t), genQueue(t)
	if rapid.Bool().Draw(t, "roomy") {
		roomy(t, s, queue)
	}
	return s, queue
}
