package kill_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"yunhe.dev/yunhe/internal/enginetest"
)

var (
	flagJobs    = flag.Int("kill.jobs", 300, "jobs to submit on each database")
	flagKills   = flag.Int("kill.kills", 6, "processes to kill on each database")
	flagClients = flag.Int("kill.clients", 8, "clients that submit at once")
	flagSeed    = flag.Uint64("kill.seed", 0, "seed of the random choices; 0 picks one")
	flagKeep    = flag.String("kill.keep", "", "folder to keep the data and logs of the processes in")
)

func TestKill(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { kill(t, "") })
	t.Run("postgres", func(t *testing.T) {
		kill(t, enginetest.Postgres(t))
	})
}

// kill runs the whole scenario on one database.
func kill(t *testing.T, database string) {
	seed := *flagSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("%d jobs, %d kills, %d clients, -kill.seed=%d", *flagJobs, *flagKills, *flagClients, seed)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	proofs := newProofs(t)
	c := startCluster(t, ctx, layout{database: database, cpus: 16})
	work := makeWork(rand.New(rand.NewPCG(seed, 1)), *flagJobs, proofs.command)

	begin := time.Now()
	p := &progress{done: map[string]bool{}}
	proofs.first = p.add
	clients, cctx := errgroup.WithContext(ctx)
	l := &load{c: c, p: p, proofs: proofs, work: work, jobs: *flagJobs, kinds: map[string]string{}, first: map[string]bool{}, stops: make(chan string, len(work))}
	for range *flagClients {
		clients.Go(func() error { return l.submit(cctx) })
	}
	clients.Go(func() error { return l.stop(cctx) })
	k := &killer{c: c, p: p, rng: rand.New(rand.NewPCG(seed, 2)), kills: *flagKills, jobs: *flagJobs}
	clients.Go(func() error { return k.run(cctx) })
	if err := clients.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, c.tails())
	}
	submitted := time.Since(begin)
	if err := c.await(ctx, int64(len(l.kinds))); err != nil {
		t.Fatalf("%v\n%s", err, c.tails())
	}
	took := time.Since(begin)

	r := l.check(t, ctx)
	c.stop(t)
	t.Logf("%d jobs, %d runs in %.1f s (%.0f jobs/s; last submitted after %.1f s), %d kills (%d of the platform), %d submissions and stops repeated; platform back after %s at most; slowest job %s",
		len(l.kinds), r.runs, took.Seconds(), float64(len(l.kinds))/took.Seconds(), submitted.Seconds(), k.count, k.platform, l.repeats.Load(), k.slowest.Round(time.Millisecond), r.slowest)
}

// progress counts the jobs that ran or were stopped, so that load and killer
// keep pace with the platform instead of a clock.
type progress struct {
	mu      sync.Mutex // guards the fields below
	done    map[string]bool
	waiters []waiter
}

type waiter struct {
	n     int
	ready chan struct{}
}

func (p *progress) add(job string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[job] = true
	rest := p.waiters[:0]
	for _, w := range p.waiters {
		if len(p.done) >= w.n {
			close(w.ready)
		} else {
			rest = append(rest, w)
		}
	}
	p.waiters = rest
}

// reach waits until n jobs are done.
func (p *progress) reach(ctx context.Context, n int) error {
	p.mu.Lock()
	w := waiter{n, make(chan struct{})}
	if len(p.done) >= n {
		close(w.ready)
	} else {
		p.waiters = append(p.waiters, w)
	}
	p.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ready:
		return nil
	}
}

// killer kills processes spread over the course of the jobs.
type killer struct {
	c           *cluster
	p           *progress
	rng         *rand.Rand
	kills, jobs int

	count, platform int
	slowest         time.Duration
}

func (k *killer) run(ctx context.Context) error {
	at := make([]int, k.kills)
	for i := range at { // one in each of equal stretches, so that they do not gather
		at[i] = (i*k.jobs + k.rng.IntN(k.jobs)) / k.kills * 95 / 100
	}
	for _, n := range at {
		if err := k.p.reach(ctx, n); err != nil {
			return err
		}
		pause(ctx, time.Duration(k.rng.IntN(200))*time.Millisecond)
		victim := k.c.nodes[0]
		if k.rng.IntN(2) == 0 {
			victim = k.c.nodes[1+k.rng.IntN(len(k.c.nodes)-1)]
		} else {
			k.platform++
		}
		dead := time.Duration(k.rng.IntN(500)) * time.Millisecond
		back, err := victim.killAndRestart(ctx, dead)
		if err != nil {
			return err
		}
		k.count++
		k.slowest = max(k.slowest, back)
	}
	return nil
}

// pause is part of what is done to the processes, not a wait for them.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
