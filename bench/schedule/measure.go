package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	"yunhe.dev/yunhe/bench/platform"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// patience is how long nothing may come to the centers before that is a failure.
const patience = 60 * time.Second

// measure measures on one kind of database.
func measure(ctx context.Context, o options, database string) (figures []platform.Figure, err error) {
	args := []string{"serve"}
	var server *enginetest.PostgresServer
	if database == "postgres" {
		if server, err = enginetest.StartPostgres(ctx, enginetest.PostgresConfig{}); err != nil {
			var missing *enginetest.MissingError
			if errors.As(err, &missing) {
				fmt.Fprintln(os.Stderr, "schedule: left out:", missing)
				return nil, nil
			}
			return nil, err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		dsn, _, err := server.NewDatabase(ctx)
		if err != nil {
			return nil, err
		}
		args = append(args, "--database", dsn)
	}
	fs, err := measurePlatform(ctx, o, database, args)
	figures = append(figures, fs...)
	if err != nil || server == nil || !slices.Contains(o.parts, "peer") {
		return figures, err
	}
	dsn, _, err := server.NewDatabase(ctx)
	if err != nil {
		return figures, err
	}
	rate, err := plainSQL(ctx, dsn, o.centers, o.jobs)
	if err != nil {
		return figures, fmt.Errorf("measure plain SQL: %w", err)
	}
	figures = append(figures, platform.Figure{Name: "plain SQL of as many rows", Database: database, Value: rate, Unit: "jobs/s", Note: fmt.Sprintf("one connection, %d jobs in a transaction", peerBatch)})
	for _, f := range fs {
		if f.Unit == "jobs/s" && f.Target > 0 {
			figures = append(figures, platform.Figure{Name: f.Name + " : plain SQL", Database: database, Value: f.Value / rate, Unit: "times"})
		}
	}
	return figures, nil
}

// bench is a platform with its centers.
type bench struct {
	*platform.Platform
	o        options
	database string
	centers  *exec.Cmd
	say      io.WriteCloser
	answers  *json.Decoder
	figures  []platform.Figure
}

func (b *bench) add(f platform.Figure) {
	f.Database = b.database
	b.figures = append(b.figures, f)
}

func measurePlatform(ctx context.Context, o options, database string, args []string) (figures []platform.Figure, err error) {
	p, _, err := platform.Start(ctx, o.clients, args...)
	if err != nil {
		return nil, err
	}
	b := &bench{Platform: p, o: o, database: database}
	defer func() { err = errors.Join(err, b.end()); figures = b.figures }()
	began := time.Now()
	if err := b.join(ctx); err != nil {
		return nil, err
	}
	b.add(platform.Figure{Name: "centers joined and connected", Value: time.Since(began).Seconds(), Unit: "s", Note: fmt.Sprintf("%d centers", o.centers)})
	if err := b.idle(ctx); err != nil {
		return nil, err
	}
	if slices.Contains(o.parts, "queue") {
		if err := b.queue(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(o.parts, "steady") {
		if err := b.steady(ctx); err != nil {
			return nil, err
		}
	}
	peak, err := p.PeakMiB()
	if err != nil {
		return nil, err
	}
	b.add(platform.Figure{Name: "memory of the platform, at most", Value: peak, Unit: "MiB"})
	return nil, nil
}

// join starts the centers and waits until the platform hears all of them.
func (b *bench) join(ctx context.Context) error {
	cfg := centersConfig{URL: b.URL, Run: b.o.run}
	// Room for all jobs, wherever they go.
	cfg.CPU = int64(4 * (b.o.jobs + b.o.rate*int(b.o.steady/time.Second+1)) / b.o.centers)
	for range b.o.centers {
		t, err := b.Adapters.CreateJoinToken(ctx, &adaptersv1.CreateJoinTokenRequest{})
		if err != nil {
			return fmt.Errorf("make join token: %w", err)
		}
		cfg.Tokens = append(cfg.Tokens, t.Token)
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b.centers = exec.CommandContext(ctx, self)
	b.centers.Stderr = os.Stderr
	b.centers.Env = append(os.Environ(), centersEnv+"="+string(text))
	if b.say, err = b.centers.StdinPipe(); err != nil {
		return err
	}
	out, err := b.centers.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.centers.Start(); err != nil {
		b.centers = nil
		return fmt.Errorf("start the centers: %w", err)
	}
	b.answers = json.NewDecoder(bufio.NewReader(out))
	var ready string
	if err := b.answers.Decode(&ready); err != nil {
		return fmt.Errorf("the centers did not join: %w; the platform's log ends:\n%s", err, b.Tail())
	}
	for {
		res, err := b.Adapters.ListGateways(ctx, &adaptersv1.ListGatewaysRequest{})
		if err != nil {
			return err
		}
		n := 0
		for _, g := range res.Gateways {
			if g.Connected {
				n++
			}
		}
		if n == b.o.centers {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d centers connected: %w", n, b.o.centers, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// asked asks the centers and decodes the answer.
func (b *bench) asked(what string, into any) error {
	if _, err := io.WriteString(b.say, what+"\n"); err != nil {
		return fmt.Errorf("ask the centers: %w", err)
	}
	if err := b.answers.Decode(into); err != nil {
		return fmt.Errorf("the centers' answer: %w", err)
	}
	return nil
}

func (b *bench) end() error {
	var err error
	if b.centers != nil {
		_ = b.say.Close() // it is how they are told to end
		err = b.centers.Wait()
	}
	return errors.Join(err, b.Close())
}

// used is processor time.
type used struct{ platform, database time.Duration }

func (b *bench) used() used {
	u := used{platform: b.CPU()}
	if b.database == "postgres" {
		u.database = platform.CPUOf("postgres")
	}
	return u
}

// spent adds figures of the processor time since before, for n jobs or, if 0,
// as a share of the time.
func (b *bench) spent(part string, before used, n int, since time.Time) {
	now := b.used()
	for _, x := range []struct {
		who  string
		took time.Duration
	}{{"the platform", now.platform - before.platform}, {"PostgreSQL", now.database - before.database}} {
		f := platform.Figure{Name: part + ", CPU of " + x.who, Value: float64(x.took.Microseconds()) / float64(max(n, 1)), Unit: "us/job"}
		if n == 0 {
			f.Value, f.Unit = 100*x.took.Seconds()/time.Since(since).Seconds(), "% of a CPU"
		}
		if x.took > 0 {
			b.add(f)
		}
	}
}

// idle measures what the centers cost while nothing is asked of them.
func (b *bench) idle(ctx context.Context) error {
	before, since := b.used(), time.Now()
	if err := pause(ctx, b.o.idle); err != nil {
		return err
	}
	b.spent("idle", before, 0, since)
	return nil
}

// job is the i-th of a part. Kinds differ in the price they allow, which all
// centers are below: whether two jobs ask for the same is told by all they say.
func (b *bench) job(part string, i int, due time.Time) *jobsv1.JobSpec {
	j := &jobsv1.JobSpec{Name: fmt.Sprintf("%s-%d", part, i), Tasks: []*jobsv1.Task{{Name: "main", Command: "exit 0", ImageId: "host", ResourceSpecId: "small",
		ReplicaNumber: 1, Constraints: &jobsv1.Constraints{MaxPrice: int64(1000 + i%b.o.kinds)}}}}
	if !due.IsZero() {
		j.NotBefore = timestamppb.New(due)
	}
	return j
}

func (b *bench) submit(ctx context.Context, part string, first, n int, due time.Time) error {
	req := &jobsv1.SubmitJobsRequest{RequestId: fmt.Sprintf("%s-%d", part, first)}
	for i := range n {
		req.Jobs = append(req.Jobs, b.job(part, first+i, due))
	}
	res, err := b.Jobs.SubmitJobs(ctx, req)
	if err == nil && len(res.JobIds) != n {
		err = fmt.Errorf("a batch of %d jobs made %d", n, len(res.JobIds))
	}
	return err
}

// all waits until the centers have so many jobs.
func (b *bench) all(ctx context.Context, n int) error {
	have, at := 0, time.Now()
	for {
		now := 0
		if err := b.asked("count", &now); err != nil {
			return err
		}
		if now > have {
			have, at = now, time.Now()
		}
		if have >= n {
			return nil
		}
		if time.Since(at) > patience {
			return fmt.Errorf("the centers have %d of %d jobs, and none came for %s; the platform's log ends:\n%s", have, n, patience, b.Tail())
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// arrivals returns when the jobs of a part came to their centers; each once.
func (b *bench) arrivals(part string, n int) ([]time.Time, error) {
	var h heard
	if err := b.asked("heard", &h); err != nil {
		return nil, err
	}
	if len(h.Twice) > 0 {
		return nil, fmt.Errorf("%d jobs were placed twice, such as %s", len(h.Twice), h.Twice[0])
	}
	out := make([]time.Time, n)
	for i := range out {
		at, ok := h.At[fmt.Sprintf("%s-%d", part, i)]
		if !ok {
			return nil, fmt.Errorf("job %s-%d came to no center", part, i)
		}
		out[i] = time.Unix(0, at)
	}
	return out, nil
}

// queue measures how fast a queue drains.
func (b *bench) queue(ctx context.Context) error {
	const batch = 500
	due := time.Now().Add(3*time.Second + time.Duration(b.o.jobs)*time.Second/4000).Truncate(time.Millisecond)
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for first := 0; first < b.o.jobs; first += batch {
		group.Go(func() error { return b.submit(gctx, "queue", first, min(batch, b.o.jobs-first), due) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	late := ""
	if time.Now().After(due) { // then the figure is lower than the rate was
		late = "; it was due before it was whole"
	}
	if err := pause(ctx, time.Until(due)); err != nil {
		return err
	}
	before := b.used()
	if err := b.all(ctx, b.o.jobs); err != nil {
		return err
	}
	at, err := b.arrivals("queue", b.o.jobs)
	if err != nil {
		return err
	}
	last := slices.MaxFunc(at, time.Time.Compare)
	b.add(platform.Figure{Name: "queue to center", Value: float64(b.o.jobs) / last.Sub(due).Seconds(), Unit: "jobs/s", Target: b.target(rateTarget),
		Note: fmt.Sprintf("%d jobs of %d kinds, %d centers%s", b.o.jobs, b.o.kinds, b.o.centers, late)})
	b.spent("queue to center", before, b.o.jobs, due)
	return nil
}

// target is set for PostgreSQL and at least as many centers as it names.
func (b *bench) target(n float64) float64 {
	if b.database != "postgres" || b.o.centers < 1000 {
		return 0
	}
	return n
}

// steady measures T while jobs arrive.
func (b *bench) steady(ctx context.Context) error {
	batches := int(b.o.steady.Seconds() * float64(b.o.rate) / float64(b.o.batch))
	if batches == 0 {
		return errors.New("-steady, -rate and -batch leave no batch to send")
	}
	n := batches * b.o.batch
	every := time.Duration(float64(time.Second) * float64(b.o.batch) / float64(b.o.rate))
	earlier := 0
	if err := b.asked("count", &earlier); err != nil {
		return err
	}
	accepted := make([]time.Duration, batches)
	before, start := b.used(), time.Now()
	sent := func(i int) time.Time { return start.Add(time.Duration(i) * every) }
	group, gctx := errgroup.WithContext(ctx)
	var next int
	var mu sync.Mutex // guards next
	for range b.o.clients {
		group.Go(func() error {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= batches {
					return nil
				}
				if err := pause(gctx, time.Until(sent(i))); err != nil {
					return err
				}
				if err := b.submit(gctx, "steady", i*b.o.batch, b.o.batch, time.Time{}); err != nil {
					return fmt.Errorf("submit: %w", err)
				}
				accepted[i] = time.Since(sent(i))
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := b.all(ctx, earlier+n); err != nil {
		return err
	}
	at, err := b.arrivals("steady", n)
	if err != nil {
		return err
	}
	took := make([]time.Duration, n)
	for i := range took {
		took[i] = at[i].Sub(sent(i / b.o.batch))
	}
	slices.Sort(took)
	slices.Sort(accepted)
	last := slices.MaxFunc(at, time.Time.Compare)
	note := fmt.Sprintf("%d/s arrived for %.0f s in batches of %d", b.o.rate, b.o.steady.Seconds(), b.o.batch)
	b.add(platform.Figure{Name: "steady, to center", Value: float64(n) / last.Sub(start).Seconds(), Unit: "jobs/s", Note: note})
	for _, q := range []float64{.5, .95, .99, 1} {
		f := platform.Figure{Name: "steady, T, " + strings.Replace(fmt.Sprintf("p%g", 100*q), "p100", "longest", 1), Value: platform.Quantile(took, q), Unit: "ms"}
		if q == .99 {
			f.Target, f.AtMost = b.target(p99Target), true
		}
		b.add(f)
	}
	b.add(platform.Figure{Name: "steady, accepted, p99", Value: platform.Quantile(accepted, .99), Unit: "ms", Note: "the part of T until the submission is durable"})
	b.spent("steady", before, n, start)
	return b.own(ctx)
}

// own adds what the platform says of T itself: it knows that of jobs whose
// centers have reported.
func (b *bench) own(ctx context.Context) error {
	if b.o.run == 0 {
		return nil
	}
	res, err := b.Scheduler.GetSchedulingStats(ctx, &schedulerv1.GetSchedulingStatsRequest{})
	if err != nil {
		return fmt.Errorf("read the platform's figures: %w", err)
	}
	w := res.Window
	b.add(platform.Figure{Name: "T by the platform's own figures, p99", Value: float64(w.SchedulingP99Microseconds) / 1000, Unit: "ms",
		Note: fmt.Sprintf("equation 3, newest %d jobs", w.MeasuredJobs)})
	return nil
}
