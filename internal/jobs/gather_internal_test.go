package jobs

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// stores is a database for gatherers: it keeps the groups it was given and
// refuses those that hold a bad submission.
type stores struct {
	began chan struct{} // receives when a transaction begins
	gate  chan struct{} // each transaction waits for one token
	bad   string
	fault error

	mu     sync.Mutex // guards groups
	groups [][]string
}

func (s *stores) store(_ context.Context, group []*submission) error {
	s.began <- struct{}{}
	<-s.gate
	var ids []string
	for _, x := range group {
		ids = append(ids, x.id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = append(s.groups, ids)
	if slices.Contains(ids, s.bad) {
		return s.fault
	}
	return nil
}

// gathered starts submissions a to h: gatherWidth transactions hold one each
// while the others queue up, and returns the errors by ID and the groups.
func gathered(t *testing.T, bad string, err error, canceled string) (map[string]error, [][]string) {
	t.Helper()
	s := &stores{began: make(chan struct{}, 64), gate: make(chan struct{}, 64), bad: bad, fault: err}
	g := newGatherer(s.store)
	errs := map[string]error{}
	var mu sync.Mutex // guards errs
	var wg sync.WaitGroup
	start := func(id string) {
		ctx, cancel := context.WithCancel(t.Context())
		if id == canceled {
			cancel()
		}
		wg.Go(func() {
			defer cancel()
			x := &submission{ctx: ctx, id: id, records: []*record{{}}}
			g.do(x)
			mu.Lock()
			errs[id] = x.err
			mu.Unlock()
		})
	}
	for _, id := range []string{"a", "b"} {
		start(id)
		<-s.began
	}
	for _, id := range []string{"c", "d", "e", "f"} {
		before := len(g.queued())
		start(id)
		for len(g.queued()) == before { // it is about to queue
			runtime.Gosched()
		}
	}
	for range 64 {
		s.gate <- struct{}{}
	}
	wg.Wait()
	return errs, s.groups
}

func (g *gatherer) queued() []*submission {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.queue)
}

func TestGatherer(t *testing.T) {
	t.Parallel()
	t.Run("what waits is stored together, each once", func(t *testing.T) {
		t.Parallel()
		errs, groups := gathered(t, "", nil, "")
		want := map[string]int{}
		for _, g := range groups {
			for _, id := range g {
				want[id]++
			}
		}
		for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
			if errs[id] != nil || want[id] != 1 {
				t.Errorf("%s: stored %d times with error %v, want once; groups %v", id, want[id], errs[id], groups)
			}
		}
		if len(groups) != 3 {
			t.Errorf("got %d transactions %v, want a, b and one for the rest", len(groups), groups)
		}
	})
	t.Run("one that is wrong fails alone", func(t *testing.T) {
		t.Parallel()
		boom := errors.New("boom")
		errs, _ := gathered(t, "d", boom, "")
		for id, err := range errs {
			if (id == "d") != errors.Is(err, boom) {
				t.Errorf("%s: got error %v", id, err)
			}
		}
	})
	t.Run("a database that is away fails them all at once", func(t *testing.T) {
		t.Parallel()
		errs, groups := gathered(t, "d", fault.New(fault.Unavailable, "away"), "")
		if fault.KindOf(errs["c"]) != fault.Unavailable || fault.KindOf(errs["d"]) != fault.Unavailable || len(groups) != 3 {
			t.Errorf("got %v in %v, want one try of the whole group", errs, groups)
		}
	})
	t.Run("one whose caller gave up is left out", func(t *testing.T) {
		t.Parallel()
		errs, groups := gathered(t, "", nil, "e")
		if !errors.Is(errs["e"], context.Canceled) || slices.ContainsFunc(groups, func(g []string) bool { return slices.Contains(g, "e") }) {
			t.Errorf("got %v in %v, want e canceled and stored nowhere", errs["e"], groups)
		}
	})
}

func TestGathererTake(t *testing.T) {
	t.Parallel()
	g := newGatherer(nil)
	for _, n := range []int{gatherJobs * 2, 1, gatherJobs - 1, 1} {
		g.queue = append(g.queue, &submission{records: make([]*record, n)})
	}
	for i, want := range []int{1, 2, 1, 0} {
		if got := len(g.take()); got != want {
			t.Errorf("take %d: got %d submissions, want %d", i, got, want)
		}
	}
}

func TestIssuedForgetsWhatIsOld(t *testing.T) {
	t.Parallel()
	s := &Service{issued: map[string]time.Time{}, issuedLimit: minIssued}
	begin := time.Unix(1e9, 0)
	for i := range 5 * minIssued {
		s.Issued([]string{strconv.Itoa(i)}, begin.Add(time.Duration(i)*time.Second))
	}
	if n := len(s.issued); n > minIssued {
		t.Errorf("%d notes are kept, want at most %d", n, minIssued)
	}
	if last := strconv.Itoa(5*minIssued - 1); !s.wasIssued(last) || !s.wasIssued(strconv.Itoa(5*minIssued-599)) {
		t.Errorf("a note younger than %s is forgotten", issuedKeep)
	}
}
