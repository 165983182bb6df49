package kill_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
)

// recoveryKills is how often TestRecovery kills a process of each kind, and has
// the time that takes be bounded; without it, it kills once and counts only.
const recoveryKills = "YUNHE_TEST_RECOVERY_KILLS"

// resumed bounds how long nobody runs the loops of a leader that was killed.
const resumed = 3 * time.Second

// TestRecovery kills the process that leads, and processes that answer users.
// The loops of the first go on in another process, which does not wait for its
// leases to end; of the users nobody has more than one call fail.
func TestRecovery(t *testing.T) {
	kills, bounded := 1, false
	if text := os.Getenv(recoveryKills); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil || kills < 1 {
			t.Fatalf("%s must be a number of kills, got %q", recoveryKills, text)
		}
		bounded = true
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	proofs := newProofs(t)
	servers, keys := startBus(t)
	c := startMany(t, ctx, many{groups: [][]string{{"api"}, {"control", "reach", "watch"}}, copies: 2, database: enginetest.Postgres(t), bus: servers.URL()}, keys, 8)
	store, err := db.Open(ctx, db.Config{URL: c.database, Name: "test"}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	p := &progress{done: map[string]bool{}}
	proofs.first = p.add
	r := &recovery{t: t, load: &load{c: c, p: p, proofs: proofs, kinds: map[string]string{}, first: map[string]bool{}, stops: make(chan string, 1)}, store: store, rng: rand.New(rand.NewPCG(1, 1))}
	for range kills {
		r.leader(ctx)
	}
	for i := range kills {
		r.answering(ctx, c.nodes[i%2*2]) // those with the role api
	}
	must(t, c.await(ctx, int64(len(r.kinds))))
	r.check(t, ctx)
	c.stop(t)
	slices.Sort(r.leases)
	slices.Sort(r.runs)
	t.Logf("%d leaders killed: their leases taken by others after %v, a job submitted meanwhile ran after %v (middle and most)", kills, ends(r.leases), ends(r.runs))
	t.Logf("%d processes that answer killed: %d of %d clients had a call fail, none more than one", kills, r.failed, kills*recoveryClients)
	if most := r.leases[len(r.leases)-1]; bounded && most >= resumed {
		t.Errorf("it took %v until the leases of a leader that was killed were taken, want less than %v", most, resumed)
	}
}

// ends returns the middle and the last.
func ends(sorted []time.Duration) [2]time.Duration {
	return [2]time.Duration{sorted[len(sorted)/2].Round(time.Millisecond), sorted[len(sorted)-1].Round(time.Millisecond)}
}

// recovery is what is done to the platform, and seen.
type recovery struct {
	*load
	t      *testing.T
	store  *db.DB
	rng    *rand.Rand
	units  int
	leases []time.Duration
	runs   []time.Duration
	failed int
}

// owners says which node has which lease.
func (r *recovery) owners(ctx context.Context) map[string]*node {
	out := map[string]*node{}
	must(r.t, r.store.View(ctx, func(tx *db.Tx) error {
		clear(out)
		return tx.Query(ctx, `SELECT name, owner FROM leases`, nil, func(row db.Row) error {
			var name, owner string
			if err := row.Scan(&name, &owner); err != nil {
				return err
			}
			for _, n := range r.c.nodes {
				if strings.HasSuffix(owner, ":"+filepath.Join(r.c.dir, n.name)) {
					out[name] = n
				}
			}
			return nil
		})
	}))
	return out
}

// quick makes the next unit: one job, which tells when it runs.
func (r *recovery) quick() *unit {
	r.units++
	return &unit{request: fmt.Sprint("recovery-", r.units), jobs: []*jobsv1.JobSpec{makeJob(r.rng, quick, r.units, r.proofs.command)}}
}

// leader kills the process that schedules, and waits until another has its
// leases and a job has run.
func (r *recovery) leader(ctx context.Context) {
	var had []string
	var victim *node
	must(r.t, r.c.poll(ctx, time.Minute, "someone schedules", func(ctx context.Context) (bool, error) {
		owners := r.owners(ctx)
		had, victim = nil, owners["scheduler.cycle"]
		for name, n := range owners {
			if n == victim {
				had = append(had, name)
			}
		}
		return victim != nil, nil
	}))
	at := time.Now()
	must(r.t, victim.prog.Kill())
	// Whoever waits for the leases to end waits for longer than this test.
	must(r.t, r.store.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE leases SET until = until + $2 WHERE owner LIKE $1`, "%:"+filepath.Join(r.c.dir, victim.name), time.Hour.Microseconds())
		return err
	}))
	var both sync.WaitGroup
	both.Go(func() {
		if ids, err := r.submitUnit(ctx, r.quick()); err != nil {
			r.t.Error(err)
		} else if err := r.proofs.await(ctx, ids[0]); err != nil {
			r.t.Error(err)
		}
		r.runs = append(r.runs, time.Since(at))
	})
	err := r.c.poll(ctx, time.Minute, "the leases of a process that was killed taken by another", func(ctx context.Context) (bool, error) {
		owners := r.owners(ctx)
		return !slices.ContainsFunc(had, func(name string) bool { return owners[name] == victim || owners[name] == nil }), nil
	})
	r.leases = append(r.leases, time.Since(at))
	must(r.t, err)
	both.Wait()
	must(r.t, victim.start())
	must(r.t, victim.ready(ctx))
}

const (
	recoveryClients = 8
	// callsAround a kill are made by each client before and after it.
	callsAround = 10
)

// answering kills a process that answers clients, of which each makes one call
// after the other, and counts what failed.
func (r *recovery) answering(ctx context.Context, victim *node) {
	group, gctx := errgroup.WithContext(ctx)
	var before, after atomic.Int64
	dead, warm, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var fails [recoveryClients]int
	for i := range recoveryClients {
		units := make([]*unit, 0, 4)
		for range cap(units) {
			units = append(units, r.quick())
		}
		group.Go(func() error {
			for calls := 0; ; calls++ {
				err := r.call(gctx, calls, &units)
				if err != nil {
					if !passes(err) {
						return err
					}
					if !connect.IsWireError(err) { // else a process that lives has said so
						fails[i]++
					}
					calls-- // it is made again
				}
				select {
				case <-dead:
					if after.Add(1) == callsAround*recoveryClients {
						close(done)
					}
				default:
					if before.Add(1) == callsAround*recoveryClients {
						close(warm)
					}
				}
				select {
				case <-gctx.Done():
					return gctx.Err()
				case <-done:
					if err == nil { // else it is made again
						return nil
					}
				default:
				}
			}
		})
	}
	group.Go(func() error {
		select {
		case <-gctx.Done():
			return gctx.Err()
		case <-warm:
		}
		err := victim.prog.Kill()
		close(dead)
		return err
	})
	if err := group.Wait(); err != nil {
		r.t.Fatalf("%v\n%s", err, r.c.tails())
	}
	for i, n := range fails {
		if n > 1 {
			r.t.Errorf("client %d had %d calls fail when one process was killed, want at most one", i, n)
		}
		r.failed += min(n, 1)
	}
	must(r.t, victim.start())
	must(r.t, victim.ready(ctx))
}

// call makes a client's next call, once: it lists, and submits a unit now and
// then, which it does again if that failed.
func (r *recovery) call(ctx context.Context, calls int, units *[]*unit) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if calls%5 != 0 || len(*units) == 0 {
		_, err := r.c.jobs.ListJobs(ctx, &jobsv1.ListJobsRequest{PageSize: 5})
		return err
	}
	u := (*units)[0]
	job, err := r.c.jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{RequestId: u.request, Job: u.jobs[0]})
	if err != nil {
		return err
	}
	*units = (*units)[1:]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kinds[job.JobId], r.first[job.JobId] = u.jobs[0].Name, true
	return nil
}
