package kill_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"yunhe.dev/yunhe/internal/enginetest"
)

// TestUpgrade replaces every process of a platform under load, one after the
// other, by one of this version, and the gateways after them. Two versions work
// side by side meanwhile, on tables that the first new process has changed. No
// call fails that is not answered when it is made again, and nothing is lost.
func TestUpgrade(t *testing.T) {
	fresh, old, _ := enginetest.Upgrade(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	servers, keys := startBus(t)
	c := startMany(t, ctx, many{groups: planned(t, fresh, 3), copies: 3, database: enginetest.Postgres(t), bus: servers.URL(), bin: old}, keys, 16)
	pause(ctx, 2*time.Second) // a version before may refuse for a second what another of its processes has just stored
	proofs := newProofs(t)
	p := &progress{done: map[string]bool{}}
	proofs.first = p.add
	l := &load{c: c, p: p, proofs: proofs, kinds: map[string]string{}, first: map[string]bool{}, stops: make(chan string, 1<<16)}
	u := &users{load: l, rng: rand.New(rand.NewPCG(1, 2))}
	group, gctx := errgroup.WithContext(ctx)
	lctx, end := context.WithCancel(gctx)
	begin := time.Now()
	u.run(gctx, lctx, group)
	group.Go(func() error {
		defer end()
		pause(gctx, 5*time.Second)
		for _, n := range c.nodes {
			at := time.Now()
			if err := n.prog.Stop(); err != nil {
				return err
			}
			n.bin = fresh
			if err := n.start(); err != nil {
				return err
			}
			if n.url != "" {
				if err := n.ready(gctx); err != nil {
					return err
				}
			}
			t.Logf("%s replaced in %.1f s", n.name, time.Since(at).Seconds())
			pause(gctx, 4*time.Second) // both versions do their work
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, c.tails())
	}
	took := time.Since(begin)
	if err := c.await(ctx, int64(len(l.kinds))); err != nil {
		t.Fatalf("%v\n%s", err, c.tails())
	}
	r := l.check(t, ctx)
	u.check(t, took)
	if u.again > 0 {
		t.Errorf("%d calls failed also when they were made again", u.again)
	}
	c.stop(t)
	t.Logf("%d processes replaced, %d jobs, %d runs", len(c.nodes), len(l.kinds), r.runs)
}
