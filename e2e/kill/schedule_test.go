package kill_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// killsEnv is how often TestScheduleKill kills on each database.
const killsEnv = "YUNHE_TEST_SCHEDULE_KILLS"

// jobsPerKill keep the queue full between two kills.
const jobsPerKill = 20

// TestScheduleKill kills the process that schedules, at random moments within
// two milliseconds after a decision is seen in the database: that is when the
// center is told. The centers are small, so that every decision needs room that
// another run has just left.
func TestScheduleKill(t *testing.T) {
	kills := 5
	if text := os.Getenv(killsEnv); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil || kills < 1 {
			t.Fatalf("%s must be a number of kills, got %q", killsEnv, text)
		}
	}
	t.Run("sqlite", func(t *testing.T) { scheduleKill(t, layout{cpus: 1}, kills) })
	t.Run("postgres", func(t *testing.T) {
		scheduleKill(t, layout{database: enginetest.Postgres(t), cpus: 1, split: true}, kills)
	})
}

// deadFor is how long the process stays dead at least: a run that a center had
// been told of before tells within that time.
const deadFor = time.Second

// killed is a time in which nothing was scheduled.
type killed struct{ at, back time.Time }

func scheduleKill(t *testing.T, cut layout, kills int) {
	seed := *flagSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	jobs := kills * jobsPerKill
	t.Logf("%d jobs, %d kills, -kill.seed=%d", jobs, kills, seed)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	proofs := newProofs(t)
	c := startCluster(t, ctx, cut)
	work := makeWork(rand.New(rand.NewPCG(seed, 1)), jobs, proofs.command)
	p := &progress{done: map[string]bool{}}
	proofs.first = p.add
	l := &load{c: c, p: p, proofs: proofs, work: work, jobs: jobs, kinds: map[string]string{}, first: map[string]bool{}, stops: make(chan string, jobs)}
	clients, cctx := errgroup.WithContext(ctx)
	for range 4 {
		clients.Go(func() error { return l.submit(cctx) })
	}
	clients.Go(func() error { return l.stop(cctx) })
	victim := c.nodes[0]
	if c.split {
		victim = c.nodes[len(c.nodes)-1]
	}
	decisions := c.decisions(t)
	var gaps []killed
	rng := rand.New(rand.NewPCG(seed, 2))
	clients.Go(func() error {
		for i := range kills {
			if err := p.reach(cctx, i*jobs/kills*95/100); err != nil {
				return err
			}
			if err := nextDecision(cctx, decisions); err != nil {
				return err
			}
			pause(cctx, time.Duration(rng.IntN(2000))*time.Microsecond)
			at := time.Now()
			if _, err := victim.killAndRestart(cctx, deadFor+time.Duration(rng.IntN(100))*time.Millisecond); err != nil {
				return err
			}
			gaps = append(gaps, killed{at, victim.since})
		}
		return nil
	})
	if err := clients.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, c.tails())
	}
	if err := c.await(ctx, int64(jobs)); err != nil {
		t.Fatalf("%v\n%s", err, c.tails())
	}
	r := l.check(t, ctx)
	spans := l.checkRoom(t, ctx)
	c.stop(t)
	hits := 0
	for _, g := range gaps {
		if slices.ContainsFunc(spans, func(s span) bool { return s.placed.Before(g.at) && s.told.After(g.back) }) {
			hits++
		}
	}
	t.Logf("%d jobs, %d runs, %d kills; %d of them between a decision and its dispatch", jobs, r.runs, kills, hits)
	if kills >= 100 && hits == 0 {
		t.Error("no kill was between a decision and its dispatch: this shows nothing")
	}
}

// decisions returns a look into the database from outside.
func (c *cluster) decisions(t *testing.T) *sql.DB {
	driver, dsn := "pgx", c.database
	if dsn == "" {
		driver, dsn = "sqlite", "file:"+filepath.Join(c.dir, "platform", "yunhe.db")+"?mode=ro"
	}
	d, err := sql.Open(driver, dsn)
	must(t, err)
	d.SetMaxOpenConns(1)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

// nextDecision waits until a run gets its place, at most three seconds: all may
// have theirs.
func nextDecision(ctx context.Context, d *sql.DB) error {
	first := int64(-1)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && ctx.Err() == nil; pause(ctx, 100*time.Microsecond) {
		var placed int64
		if err := d.QueryRowContext(ctx, `SELECT COALESCE(MAX(placed_at), 0) FROM attempts WHERE ended_at = 0`).Scan(&placed); err != nil {
			return fmt.Errorf("look for decisions: %w", err)
		}
		if first < 0 {
			first = placed
		}
		if placed > first {
			return nil
		}
	}
	return ctx.Err()
}

// span is a run that has its place, from the decision to its end.
type span struct {
	center              string
	placed, told, ended time.Time
}

// perCPU is how many runs of [spec] a CPU has room for.
const perCPU = 10

// checkRoom checks that at no moment more runs had their place at a center than
// it has room for. Only the last run of each replica says when it was placed.
func (l *load) checkRoom(t *testing.T, ctx context.Context) (spans []span) {
	type step struct {
		at time.Time
		n  int
	}
	steps := map[string][]step{}
	for id := range l.kinds {
		j, err := l.c.jobs.GetJob(ctx, &jobsv1.GetJobRequest{JobId: id})
		must(t, err)
		for _, r := range j.Replicas {
			if r.AttemptId == "" {
				continue
			}
			s := span{r.AiCenterId, r.PlacedAt.AsTime(), l.proofs.when(runKey{id, r.TaskIndex, r.ReplicaIndex, r.Attempt}), r.EndedAt.AsTime()}
			spans = append(spans, s)
			steps[s.center] = append(steps[s.center], step{s.placed, 1}, step{s.ended, -1})
		}
	}
	room := perCPU * l.c.cpus
	for center, list := range steps {
		slices.SortFunc(list, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.n, b.n)) })
		now, most := 0, 0
		for _, s := range list {
			now += s.n
			most = max(most, now)
		}
		if most > room {
			t.Errorf("center %s had %d runs at once, and has room for %d", center, most, room)
		}
		t.Logf("center %s: at most %d of %d runs at once", center, most, room)
	}
	return spans
}
