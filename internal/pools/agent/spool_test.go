package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func opened(t *testing.T, dir string) *Spool {
	t.Helper()
	s, err := OpenSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// What a node logs outlives it until the platform has it, in its order.
func TestSpool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, dir)
	log := slog.New(s.Handler(slog.DiscardHandler)).With("component", "pool")
	log.Debug("too little")
	log.Info("task started", "task_id", "t1", "slice_id", "slice_1", "device", "d0", "said", "a b")
	log.Warn("program ended", "slice_id", "slice_1")
	s.level.Set(slog.LevelWarn)
	log.Info("too little now")
	s.Close()
	if f, err := os.OpenFile(filepath.Join(dir, spoolFile), os.O_APPEND|os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	} else {
		_, _ = f.WriteString(`{"sequence":`) // it was killed while it wrote
		_ = f.Close()
	}
	s = opened(t, dir)
	got := s.next()
	if len(got) != 2 || got[0].Message != "task started" || got[0].Slice != "slice_1" || got[0].Device != "d0" || got[0].Details != `task_id=t1 said="a b"` || got[1].Level != slog.LevelWarn || got[1].Sequence <= got[0].Sequence {
		t.Fatalf("after a restart there is %+v", got)
	}
	select {
	case <-s.added:
	default:
		t.Error("nobody is told that there is something to send")
	}
	s.sent(got[0].Sequence)
	s.add(entry{Message: "later"})
	s.Close()
	s = opened(t, dir)
	if got = s.next(); len(got) != 2 || got[0].Message != "program ended" || got[1].Message != "later" || got[1].Sequence <= got[0].Sequence {
		t.Errorf("what the platform has is forgotten, the rest is there: %+v", got)
	}
}

// A platform that is away for long costs the oldest entries, a node that logs too
// much the latest, and the log says so.
func TestSpoolIsBounded(t *testing.T) {
	t.Parallel()
	s := opened(t, t.TempDir())
	now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	s.now = func() time.Time { return now }
	for range mostSpooled + 1 {
		now = now.Add(time.Minute / mostInMinute)
		s.add(entry{Message: "m"})
	}
	got := s.next()
	if len(got) != mostSent || len(s.entries) > mostSpooled || got[0].Details != "dropped_before=500" {
		t.Errorf("%d of %d entries, the first %+v", len(got), len(s.entries), got[0])
	}
	s.sent(got[len(got)-1].Sequence)
	if got = s.next(); got[0].Details != "" {
		t.Errorf("it is said twice: %+v", got[0])
	}
	s.sent(s.last)
	now = now.Add(time.Hour)
	for range mostInMinute + 7 {
		s.add(entry{Message: "m"})
	}
	if got = s.next(); len(s.entries) != mostInMinute || got[0].Details != "dropped_before=7" {
		t.Errorf("a minute adds %d entries, the first %+v", len(s.entries), got[0])
	}
}

// What was logged that is long, or cannot be read, keeps neither what comes after it
// nor the node.
func TestSpoolOfAnything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, dir)
	log := slog.New(s.Handler(slog.DiscardHandler))
	log.Warn("program ended", "error", strings.Repeat("云", 100_000))
	log.Warn("\xff")
	s.Close()
	s = opened(t, dir)
	if got := s.next(); len(got) != 2 || got[0].Message != "program ended" || got[1].Message != "\uFFFD" {
		t.Errorf("after a restart there are %d entries: %.100v", len(got), got)
	}
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, spoolFile), 0o700); err != nil {
		t.Fatal(err)
	}
	s = opened(t, dir)
	slog.New(s.Handler(slog.DiscardHandler)).Warn("it goes on")
	if got := s.next(); len(got) != 2 || !strings.Contains(got[0].Message, "not known") || got[1].Message != "it goes on" {
		t.Errorf("beside what cannot be read there is %+v", got)
	}
}
