package pools_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/pool"
)

// BenchmarkLending is what lending costs a platform, by its API: of a pool of 1,000 nodes, the
// most there can be, with eight cards each, the report of a node, and a slice that is
// requested, placed and released; and of 100 nodes that are lent whole, with 2,000 slices
// that wait, one that is released, whose place another has then. Make targets: bench-lend.
func BenchmarkLending(b *testing.B) {
	for _, pg := range []bool{false, true} {
		of := map[bool]string{false: "sqlite", true: "postgres"}[pg]
		b.Run("1000 nodes/"+of, func(b *testing.B) {
			a, machines := lendingOf(b, pg, 1000, eight...)
			slice := func(i int) string {
				x, err := a.Admin.Pool.RequestSlice(b.Context(), &poolv1.RequestSliceRequest{RequestId: fmt.Sprint("r", i), GroupId: "g", Api: "cuda", ComputePercent: 1 + (int64(i)%60+60)%60, MemoryMib: 10, Fixed: true})
				must(b, err)
				return x.SliceId
			}
			for i := range 2000 {
				slice(-1 - i)
			}
			n := 0
			b.Run("report", func(b *testing.B) {
				for range b.N {
					machines[n%len(machines)].tell()
					n++
				}
			})
			b.Run("request and release", func(b *testing.B) {
				for range b.N {
					n++
					_, err := a.Admin.Pool.ReleaseSlice(b.Context(), &poolv1.ReleaseSliceRequest{SliceId: slice(n)})
					must(b, err)
				}
			})
		})
		b.Run("2000 that wait/"+of, func(b *testing.B) {
			a, _ := lendingOf(b, pg, 100, eight...)
			n := 0
			ask := func() string {
				n++
				x, err := a.Admin.Pool.RequestSlice(b.Context(), &poolv1.RequestSliceRequest{RequestId: fmt.Sprint("r", n), GroupId: "g", Api: "cuda", ComputePercent: 100, MemoryMib: 10, Fixed: true})
				must(b, err)
				return x.SliceId
			}
			var have []string
			for range 100*8 + 2000 {
				have = append(have, ask())
			}
			b.Run("release and request", func(b *testing.B) {
				for range b.N {
					_, err := a.Admin.Pool.ReleaseSlice(b.Context(), &poolv1.ReleaseSliceRequest{SliceId: have[0]})
					must(b, err)
					have = append(have[1:], ask())
				}
			})
		})
	}
}

// BenchmarkAsking is what jobs cost that wait for the pool: of 8,000 that want one of eight cards
// each, how much of a core the platform needs while nothing comes or ends, and how long each
// run takes it where these end at once. Make targets: bench-lend.
func BenchmarkAsking(b *testing.B) {
	for _, pg := range []bool{false, true} {
		b.Run(map[bool]string{false: "sqlite", true: "postgres"}[pg], func(b *testing.B) {
			a, _ := lendingOf(b, pg, 1, eight...)
			came := make(chan *apptest.Replica, 8)
			a.Join(b, apptest.Center{ID: "lends", CPU: 64000, Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_POOL, adapterv1.Feature_FEATURE_POOL_CUDA}, Play: func(r *apptest.Replica) { came <- r }})
			r := &jobsv1.SubmitJobsRequest{}
			for range 4000 {
				r.Jobs = append(r.Jobs, shared("many", &jobsv1.PoolShares{Api: "cuda", ComputePercent: 100, MemoryMib: 10}))
			}
			for range 2 {
				_, err := a.Admin.Jobs.SubmitJobs(b.Context(), r)
				must(b, err)
			}
			apptest.Until(b, "all cards are lent", func() bool { return len(came) == 8 })
			b.Run("wait", func(b *testing.B) {
				used := func() int64 {
					var u unix.Rusage
					must(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
					return u.Utime.Nano() + u.Stime.Nano()
				}
				before := used()
				for range b.N { // all of them are looked at every few seconds
					<-time.After(10 * time.Second)
				}
				b.ReportMetric(float64(used()-before)/float64(b.N)/1e8, "%core")
			})
			b.Run("run", func(b *testing.B) {
				for range b.N {
					apptest.Succeed(<-came)
				}
			})
		})
	}
}

// BenchmarkNext is how long a card stands still between a run and the next one of the same job,
// of which 64 wait: from its end until the other is at its center, with its pass. Make targets:
// bench-lend.
func BenchmarkNext(b *testing.B) {
	for _, pg := range []bool{false, true} {
		b.Run(map[bool]string{false: "sqlite", true: "postgres"}[pg], func(b *testing.B) {
			a, _ := lendingOf(b, pg, 1, "A")
			came := make(chan *apptest.Replica, 1)
			a.Join(b, apptest.Center{ID: "lends", CPU: 64000, Features: []adapterv1.Feature{adapterv1.Feature_FEATURE_POOL, adapterv1.Feature_FEATURE_POOL_CUDA}, Play: func(r *apptest.Replica) { came <- r }})
			job := shared("next", &jobsv1.PoolShares{Api: "cuda", ComputePercent: 100, MemoryMib: 10})
			job.Tasks[0].ReplicaNumber = 10000
			a.Admin.Submit(b, job)
			run := <-came
			b.ResetTimer()
			for range b.N {
				apptest.Succeed(run)
				run = <-came
			}
		})
	}
}

// BenchmarkYield is how long it takes to find which runs 16 replicas of a higher priority have
// taken back, where all cards of 200 nodes are lent to others. Make targets: bench-lend.
func BenchmarkYield(b *testing.B) {
	for _, pg := range []bool{false, true} {
		b.Run(map[bool]string{false: "sqlite", true: "postgres"}[pg], func(b *testing.B) {
			a, machines := lendingOf(b, pg, 200, eight...)
			ask := func(name string, n int, priority int64) (list []pool.Shares) {
				for i := range n {
					wish := fmt.Sprintf("%s-%d/0/0", name, i)
					list = append(list, pool.Shares{Wish: wish, Run: wish + ".1", Job: wish, JobPriority: priority, Task: "main", Tenant: "default", User: "admin", UserName: "admin", Group: "g", API: "cuda", Compute: 100, Memory: 10, Cards: 1})
				}
				_, not, err := a.Pools.Ask(b.Context(), list)
				if must(b, err); len(not) > 0 {
					b.Fatal(not)
				}
				return list
			}
			var from []pool.Yield
			on := map[string][]*adapterv1.PoolPass{}
			for i := range 40 { // each has its program before it would lapse
				here := map[string]bool{}
				for _, w := range ask(fmt.Sprint("low-", i), 40, 0) {
					passes, _, err := a.Pools.Lend(b.Context(), w, pool.Home{})
					must(b, err)
					node := passes[0].Node
					here[node], on[node] = true, append(on[node], &adapterv1.PoolPass{SliceId: passes[0].Slice})
					from = append(from, pool.Yield{Runs: []string{w.Run}, Lost: int64(len(from))})
				}
				for _, m := range machines {
					if id := m.report.NodeId; here[id] {
						m.runs(on[id]...)
					}
				}
			}
			var claims []pool.Claim
			for _, w := range ask("high", 16, 1) {
				claims = append(claims, pool.Claim{Wishes: []string{w.Wish}, From: from})
			}
			b.ResetTimer()
			for range b.N {
				b.StopTimer() // the platform knows no such jobs and has them wait no more, soon
				ask("high", 16, 1)
				b.StartTimer()
				taken, err := a.Pools.Yield(b.Context(), claims, nil)
				if must(b, err); len(taken) != 16 || len(taken[15]) != 1 {
					b.Fatal(taken)
				}
			}
		})
	}
}

var eight = []string{"A", "A", "A", "A", "A", "A", "A", "A"}

// lendingOf is a platform with so many nodes of these cards, which have reported.
func lendingOf(b *testing.B, pg bool, nodes int, cards ...string) (a *apptest.App, machines []*machine) {
	b.Helper()
	a = apptest.Start(b, apptest.Options{Postgres: pg})
	_, err := a.Admin.Pool.SetPoolGroup(b.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(b, err)
	for i := range nodes {
		m := newMachine(b, a, fmt.Sprintf("n%04d", i), cards...)
		m.lives()
		machines = append(machines, m)
	}
	return a, machines
}
