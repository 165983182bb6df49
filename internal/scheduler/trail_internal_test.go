package scheduler

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

// packer is a service that can pack trails, and nothing else.
func packer(tb testing.TB) *Service {
	tb.Helper()
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		tb.Fatal(err)
	}
	dec, err := zstd.NewReader(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return &Service{enc: enc, dec: dec}
}

// someWork makes a fleet and a queue of work of a few kinds.
func someWork(r *rand.Rand, centers, works int) (*place.Snapshot, []place.Work) {
	snap := &place.Snapshot{}
	for i := range centers {
		c := place.Candidate{ID: fmt.Sprintf("c%04d", i), Name: fmt.Sprintf("Center %d", i), Region: fmt.Sprint("r", i%3), Status: place.Available,
			Total: place.Amounts{"cpu": 4000 + r.Int64N(4000)}, Free: place.Amounts{}, Offers: map[string]place.Offer{"a": {PriceFenPerHour: place.Known(r.Int64N(50))}},
			Images: []string{"host"}, SecurityGrade: r.Int64N(4)}
		c.Free["cpu"] = c.Total["cpu"] - 1000*r.Int64N(3)
		if r.IntN(3) > 0 {
			c.Offers["b"] = place.Offer{PriceFenPerHour: place.Known(r.Int64N(50))}
		}
		if r.IntN(8) == 0 {
			c.Status, c.StatusReason = place.Unavailable, "it is away"
		}
		snap.Candidates = append(snap.Candidates, c)
	}
	var queue []place.Work
	for i := range works {
		t := place.Task{ID: "0", Spec: []string{"a", "b", "gone"}[min(r.IntN(7)/3, 2)], Image: "host", Kind: "cpu", Replicas: 1 + r.IntN(3), RunSeconds: place.Known(60),
			MinGrade: r.Int64N(2), Request: place.Amounts{"cpu": 500 * (1 + r.Int64N(3))}}
		for k := range t.Replicas {
			t.Indices = append(t.Indices, k)
		}
		w := place.Work{ID: fmt.Sprintf("job%03d", i), Tenant: "t", Arrival: int64(i), Gang: r.IntN(4) == 0, Tasks: []place.Task{t}}
		if r.IntN(4) == 0 {
			w.Tasks[0].Rules = []place.Rule{{Kind: place.Spread, Over: "region", MaxSkew: 1, Preferred: r.IntN(2) == 0}}
		}
		queue = append(queue, w)
	}
	return snap, queue
}

func TestTrailKeepsEveryTable(t *testing.T) {
	t.Parallel()
	s, changes := packer(t), 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		snap, queue := someWork(r, 1+r.IntN(60), 1+r.IntN(40))
		sets := place.Presets()
		opts := place.Options{}
		if r.IntN(4) == 0 {
			opts.TableRows = 1 + r.IntN(10)
		}
		set := sets[r.IntN(len(sets))]
		decisions := func(changes bool) (all []*place.Decision) {
			opts.Changes = changes
			res, err := place.Plan(snap, queue, set, opts)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range res.Placements {
				all = append(all, p.Decision)
			}
			for _, u := range res.Unplaced {
				all = append(all, u.Decision)
			}
			return all
		}
		whole, told := decisions(false), decisions(seed%2 == 0)
		tr := newTrail()
		var want []*place.Decision
		var at []int
		for i, d := range told {
			if seed%4 < 2 || r.IntN(2) == 0 { // not all that was decided is stored
				want, at = append(want, whole[i]), append(at, tr.add(d))
				if d.Change != nil {
					changes++
				}
			}
		}
		body, err := s.packTrail(tr, &packing{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.unpackTrail(body)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range want {
			back, err := got.decision(at[i])
			if err != nil {
				t.Fatalf("seed %d, decision %d: %v", seed, i, err)
			}
			a, errA := json.Marshal(d)
			b, errB := json.Marshal(back)
			if errA != nil || errB != nil || string(a) != string(b) {
				t.Fatalf("seed %d, decision %d (%v, %v):\n%s\ncame back as\n%s", seed, i, errA, errB, a, b)
			}
		}
	}
	if changes == 0 {
		t.Error("no decision told of a change")
	}
}

func TestTrailRefusesRubbish(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `{"steps":[{"chain":0}]}`, `{"chains":[{"candidates":1}],"steps":[{"chain":0,"new":[[0,0,1,1,[],[],"",[1],[1]]]}]}`,
		`{"chains":[{"candidates":1}],"candidates":["a"],"names":["A"],"steps":[{"chain":0,"new":[[0,0,1,1,[],[],"",[1],[1]]]}]}`,
	} {
		tr := &trail{}
		if err := json.Unmarshal([]byte(text), tr); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if d, err := tr.decision(0); err == nil {
			t.Errorf("%s is decision %+v", text, d)
		}
	}
	if err := json.Unmarshal([]byte(`{"steps":[{"new":[[1,2]]}]}`), &trail{}); err == nil {
		t.Error("an entry of two parts was read")
	}
}

func FuzzTrail(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	snap, queue := someWork(r, 4, 4)
	res, err := place.Plan(snap, queue, place.Presets()[0], place.Options{Changes: true})
	if err != nil {
		f.Fatal(err)
	}
	tr := newTrail()
	for _, p := range res.Placements {
		tr.add(p.Decision)
	}
	text, err := json.Marshal(tr)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"chains":[null],"steps":[{"chain":0,"gone":[3,1]}]}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		tr := &trail{}
		if json.Unmarshal(text, tr) != nil {
			return
		}
		for at := range tr.Steps {
			if at > 20 {
				break
			}
			_, _ = tr.decision(at) // no matter which; it must not panic
		}
	})
}

// BenchmarkTrail packs what a cycle decides about 256 jobs of ten kinds with
// 1,000 centers, and states what that is for each decision.
func BenchmarkTrail(b *testing.B) {
	s := packer(b)
	r := rand.New(rand.NewPCG(1, 1))
	snap, _ := someWork(r, 1000, 0)
	var queue []place.Work
	for i := range 256 {
		queue = append(queue, place.Work{ID: fmt.Sprintf("job%03d", i), Arrival: int64(i), Tasks: []place.Task{{ID: "0", Spec: "a", Image: "host", Kind: "cpu", Replicas: 1, Indices: []int{0},
			RunSeconds: place.Known(60), MaxPrice: place.Known(int64(100 + i%10)), Request: place.Amounts{"cpu": 500}}}})
	}
	set, _ := place.Preset("balanced")
	for _, part := range []string{"decide", "pack"} {
		b.Run(part, func(b *testing.B) {
			res, err := place.Plan(snap, queue, set, place.Options{Changes: true})
			if err != nil || len(res.Placements) != len(queue) {
				b.Fatal(err, len(res.Placements))
			}
			size := 0
			b.ReportAllocs()
			for b.Loop() {
				if part == "decide" {
					if _, err := place.Plan(snap, queue, set, place.Options{Changes: true}); err != nil {
						b.Fatal(err)
					}
					continue
				}
				tr := newTrail()
				for _, p := range res.Placements {
					tr.add(p.Decision)
				}
				body, err := s.packTrail(tr, &packing{})
				if err != nil {
					b.Fatal(err)
				}
				size = len(body)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(queue)), "us/decision")
			if size > 0 {
				b.ReportMetric(float64(size)/float64(len(queue)), "B/decision")
			}
		})
	}
}
