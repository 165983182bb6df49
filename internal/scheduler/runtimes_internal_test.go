package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/db/dbtest"
)

// history is a source of runs that ended.
type history struct {
	Source
	asked [][]string
	fails bool
}

func (h *history) EndedRuns(_ context.Context, ids []string, latest int) (out []EndedRun, err error) {
	h.asked = append(h.asked, ids)
	if h.fails {
		return nil, errors.New("the database is away")
	}
	n := len(ids)
	if ids == nil {
		n = 6
	}
	for range min(n, latest) {
		out = append(out, EndedRun{Tenant: "t", Kin: Kin{User: "u", Name: "train-7", Shape: "s"}, StatedSeconds: 3600, Micros: 60_000_000})
	}
	return out, nil
}

// The latest runs are read once, later ones when they ended, no more often than
// learnEvery; what cannot be read the first time is read the next.
func TestLearn(t *testing.T) {
	t.Parallel()
	h := &history{fails: true}
	s := &Service{db: dbtest.SQLite(t), src: h, log: slog.New(slog.DiscardHandler)}
	k := Kin{User: "u", Name: "train-8", Shape: "s"}
	s.runs.note("before") // of no use: the latest are read
	s.learn(t.Context())
	if got := s.runs.expected("t", &k, 3600); got != 3_600_000_000 {
		t.Errorf("knowing nothing it tells %d", got)
	}
	h.fails = false
	s.learn(t.Context())
	if got := s.runs.expected("t", &k, 3600); got > 61_000_000 {
		t.Errorf("runs of a minute are told to take %d µs", got)
	}
	if got := s.runs.expected("another", &Kin{User: "v", Shape: "x"}, 0); got > 61_000_000 {
		t.Errorf("of all runs it tells %d µs", got)
	}
	k.LimitSeconds = 10
	if got := s.runs.expected("t", &k, 3600); got != 10_000_000 {
		t.Errorf("beyond the limit of 10 s it tells %d µs", got)
	}
	s.runs.note("a")
	s.learn(t.Context()) // too early
	if n := len(h.asked); n != 2 || h.asked[0] != nil || h.asked[1] != nil {
		t.Fatalf("asked for %v", h.asked)
	}
	ids, first := s.runs.due(time.Now().Add(2 * learnEvery))
	if first || !slices.Equal(ids, []string{"a"}) {
		t.Errorf("due are %v, %v", ids, first)
	}
	for i := range learnMost + 5 {
		s.runs.note(fmt.Sprint(i))
	}
	if ids, _ := s.runs.due(time.Now().Add(4 * learnEvery)); len(ids) != learnMost {
		t.Errorf("%d runs are kept in mind", len(ids))
	}
}
