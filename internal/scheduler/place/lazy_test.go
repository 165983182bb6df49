package place_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

// crowd returns n candidates of little room whose facts are few and coarse, so
// that they fill up, tie, and take the ends of ranges with them.
func crowd(r *rand.Rand, n int) *place.Snapshot {
	s := &place.Snapshot{}
	fact := func(low, high int64) place.Fact {
		if r.IntN(6) == 0 {
			return place.Fact{}
		}
		return place.Known(low + r.Int64N(high-low+1))
	}
	coarse := r.Int64N(20) + 1
	for i := range n {
		gpus := r.Int64N(9)
		c := place.Candidate{
			ID: fmt.Sprintf("c%03d", i), Region: fmt.Sprintf("r%d", r.IntN(5)), Status: place.Available, SecurityGrade: r.Int64N(4), AnyImage: r.IntN(5) > 0,
			Free: place.Amounts{"gpu": gpus, "cpu": 1000 * r.Int64N(64)}, Total: place.Amounts{"gpu": 8, "cpu": 64000},
			RunningTasks: r.Int64N(coarse), WaitingTasks: r.Int64N(3), Carbon: fact(0, 900), PUE: fact(1000, 2000),
			Power:   map[string]place.Power{"cpu": {Per: 1000, Busy: 100 * r.Int64N(9)}, "gpu": {Static: 9, Busy: 1000 * r.Int64N(9)}},
			Network: place.Network{LatencyMicros: fact(0, 5000), JitterMicros: fact(0, 9), LossPPM: fact(0, 50), BandwidthKbps: fact(1, 10_000)},
			Offers:  map[string]place.Offer{"s1": {PriceFenPerHour: fact(1, 20)}},
			Data:    place.Amounts{fmt.Sprintf("d%d", i%7): 1 << 30},
		}
		if r.IntN(3) > 0 {
			c.Speeds = []place.Speed{{Kind: "gpu", Milli: 500 + 100*r.Int64N(20)}}
		}
		if r.IntN(3) > 0 {
			c.Position = &place.Position{Longitude: r.Int64N(100) * 1e6, Latitude: r.Int64N(60) * 1e6}
		}
		if r.IntN(2) == 0 {
			c.Offers["s2"] = place.Offer{Idle: fact(0, 6), Total: place.Known(6)}
		}
		if r.IntN(20) == 0 {
			c.Status = place.Draining
		}
		s.Candidates = append(s.Candidates, c)
	}
	return s
}

// demand returns n works for the crowd, of a few kinds of tasks.
func demand(r *rand.Rand, n int) []place.Work {
	var kinds []place.Task
	for range 8 {
		t := place.Task{Kind: "gpu", RunSeconds: place.Known(60 * (1 + r.Int64N(3))),
			Request: place.Amounts{"gpu": 1 + r.Int64N(3), "cpu": 1000 * r.Int64N(8)}}
		switch r.IntN(6) {
		case 0:
			t.Spec = "s1"
		case 1:
			t.Spec = "s2"
		case 2:
			t.MinGrade = 2
		case 3:
			t.Image = "i"
		}
		if r.IntN(3) == 0 {
			t.Data = []place.DataNeed{{Dataset: fmt.Sprintf("d%d", r.IntN(7)), Bytes: 1 << 30}}
		}
		kinds = append(kinds, t)
	}
	var queue []place.Work
	for i := range n {
		w := place.Work{ID: fmt.Sprintf("w%04d", i), Arrival: int64(i), Priority: r.Int64N(3), Gang: r.IntN(4) == 0, Distributed: r.IntN(12) == 0}
		for k := range 1 + r.IntN(2) {
			t := kinds[r.IntN(len(kinds))]
			t.ID, t.Replicas = fmt.Sprintf("t%d", k), 1+r.IntN(4)
			if w.Gang && r.IntN(3) == 0 {
				t.Replicas = 30 // more than there is room for, sometimes
			}
			w.Tasks = append(w.Tasks, t)
		}
		if r.IntN(3) == 0 {
			w.Origin.Position = &place.Position{Longitude: 50e6, Latitude: 30e6}
		}
		queue = append(queue, w)
	}
	return queue
}

// someSet draws weights for a few policies, or for all.
func someSet(t *testing.T, r *rand.Rand) *place.Set {
	t.Helper()
	all := place.Policies()
	n := 1 + r.IntN(4)
	if r.IntN(2) == 0 {
		n = len(all)
	}
	var weights []place.Weight
	for _, i := range r.Perm(len(all))[:n] {
		weights = append(weights, place.Weight{Policy: all[i].ID, Weight: r.Int64N(9)})
	}
	weights[0].Weight++
	if r.IntN(4) == 0 {
		weights[len(weights)-1].Min = 1 + r.IntN(60)
	}
	evaluators := place.Evaluators()
	set, err := place.NewSet("drawn", evaluators[max(0, r.IntN(2*len(evaluators))-len(evaluators))], weights)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestSearchFindsWhatTheSheetDoes plans for hundreds of candidates twice: with
// records, where every score is kept up to date and all are compared, and
// without, where the engine looks only at what might be chosen. The plan is the
// same. TestDecisionsAreAsIfMadeAlone holds the sheet against scores made from
// scratch.
func TestSearchFindsWhatTheSheetDoes(t *testing.T) {
	t.Parallel()
	placed, left := 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		s, queue, set := crowd(r, 1+r.IntN(200)), demand(r, 60), someSet(t, r)
		if r.IntN(2) == 0 {
			own := someSet(t, r)
			for i := range queue {
				if r.IntN(2) == 0 {
					queue[i].Set = own
				}
			}
		}
		want := mustPlan(t, s, queue, set, place.Options{TableRows: 2})
		got := mustPlan(t, s, queue, set, place.Options{NoTables: true})
		if a, b := short(got), short(want); a != b {
			t.Fatalf("seed %d: without records\n%s\nwith them\n%s", seed, a, b)
		}
		placed, left = placed+len(got.Placements), left+len(got.Unplaced)
		for _, p := range want.Placements {
			for u, use := range p.Decision.Policies {
				if e := p.Decision.Table[0]; e.Scores[u] < use.Min {
					t.Fatalf("seed %d: %s scores %d by %s, at least %d wanted", seed, e.Candidate, e.Scores[u], use.ID, use.Min)
				}
			}
		}
	}
	if placed < 500 || left < 500 {
		t.Errorf("the cases are too easy: %d placed, %d left", placed, left)
	}
}

// TestLikeAsksShareATable plans works whose asks differ by limits that nobody
// reaches, and expects what each is told to be as if no two shared anything:
// with a policy set of its own each has a table of its own.
func TestLikeAsksShareATable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 11))
		s, queue := crowd(r, 5+r.IntN(40)), demand(r, 20+r.IntN(40))
		sets := place.Presets()
		set := sets[r.IntN(len(sets))]
		for i := range queue {
			for k := range queue[i].Tasks {
				t := &queue[i].Tasks[k]
				if r.IntN(2) == 0 {
					t.MaxPrice = place.Known(30 - 20*r.Int64N(2)) // some are kept out by it
				}
				if r.IntN(4) == 0 {
					t.MinGrade = r.Int64N(2)
				}
			}
		}
		alone := slices.Clone(queue)
		for i := range alone {
			own := *set
			alone[i].Set = &own
		}
		for _, opts := range []place.Options{{}, {NoTables: true}, {TableRows: 3}} {
			got, err := place.Plan(s, queue, set, opts)
			want, err2 := place.Plan(s, alone, set, opts)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, %s, %+v: sharing gives\n%.3000v\nalone\n%.3000v", seed, set.ID, opts, got, want)
			}
		}
	}
}

// TestRowsAreUsedAgain plans one thing after the other in the same memory and
// expects the decisions of plans that have their own.
func TestRowsAreUsedAgain(t *testing.T) {
	t.Parallel()
	var rows place.Rows
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 11))
		s, queue, set := crowd(r, 1+r.IntN(120)), demand(r, 1+r.IntN(40)), someSet(t, r)
		o := place.Options{Changes: r.IntN(2) == 0, TableRows: r.IntN(2) * 5}
		want := mustPlan(t, s, queue, set, o)
		rows.Reset()
		o.Rows = &rows
		if got := mustPlan(t, s, queue, set, o); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: decisions differ:\n%s\nwant\n%s", seed, short(got), short(want))
		}
	}
}

// TestSoundCandidatesAreNotLookedAt: but that each is there once is seen in any order.
func TestSoundCandidatesAreNotLookedAt(t *testing.T) {
	t.Parallel()
	bad := func(ids ...string) *place.Snapshot {
		s := &place.Snapshot{Sound: make([]bool, len(ids))}
		for _, id := range ids {
			s.Candidates = append(s.Candidates, place.Candidate{ID: id, RunningTasks: -1})
		}
		return s
	}
	for _, c := range []struct {
		ids   []string
		sound int // so many of them
		want  string
	}{
		{[]string{"a", "b"}, 2, ""},
		{[]string{"b", "a", "c"}, 3, ""},
		{[]string{"a", "b"}, 1, "candidate b: running_tasks"},
		{[]string{"a", "a"}, 2, "given twice"},
		{[]string{"b", "a", "b"}, 3, "given twice"},
		{[]string{"a", "c", "b", "c"}, 4, "given twice"},
	} {
		s := bad(c.ids...)
		for i := range c.sound {
			s.Sound[i] = true
		}
		_, err := place.Plan(s, nil, place.Presets()[0], place.Options{})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, %d of them sound: got %v, want %q", c.ids, c.sound, err, c.want)
		}
	}
}
