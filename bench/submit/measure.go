package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"yunhe.dev/yunhe/bench/platform"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// The targets.
const (
	batchesSQLite   = 10_000 // jobs/s
	batchesPostgres = 5_000
	singlesTarget   = 1_500 // jobs/s
	singlesP99      = 60    // ms
	startTarget     = 50    // ms
	readyTarget     = 2000  // ms
	memoryTarget    = 150   // MiB
	peerTarget      = 20    // times a peer
)

// measureDatabase measures on one kind of database.
func measureDatabase(ctx context.Context, o options, database string) (figures []platform.Figure, err error) {
	args := []string{"serve"}
	if database == "postgres" {
		s, err := enginetest.StartPostgres(ctx, enginetest.PostgresConfig{})
		var missing *enginetest.MissingError
		if errors.As(err, &missing) {
			fmt.Fprintln(os.Stderr, "submit: left out:", missing)
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		for _, part := range []string{"center", "alone"} { // each with a database of its own
			if !slices.Contains(o.parts, part) && !(part == "center" && slices.Contains(o.parts, "start")) {
				continue
			}
			dsn, _, err := s.NewDatabase(ctx)
			if err != nil {
				return figures, err
			}
			fs, err := measurePart(ctx, o, database, part, append(args, "--database", dsn))
			figures = append(figures, fs...)
			if err != nil {
				return figures, err
			}
		}
		return figures, nil
	}
	for _, part := range []string{"center", "alone"} {
		fs, err := measurePart(ctx, o, database, part, args)
		figures = append(figures, fs...)
		if err != nil {
			return figures, err
		}
	}
	return figures, nil
}

// measurePart measures with a center or without on a fresh platform.
func measurePart(ctx context.Context, o options, database, part string, args []string) (figures []platform.Figure, err error) {
	start := part == "center" && slices.Contains(o.parts, "start")
	if !start && !slices.Contains(o.parts, part) {
		return nil, nil
	}
	pl, _, err := platform.Start(ctx, max(o.singleClients, o.batchClients), args...)
	if err != nil {
		return nil, err
	}
	p := &measured{Platform: pl}
	defer func() { err = errors.Join(err, p.close()) }()
	var list []platform.Figure
	add := func(fs ...platform.Figure) {
		for _, f := range fs {
			f.Database = database
			list = append(list, f)
		}
	}
	defer func() { figures = list }()
	where := "without a center"
	if part == "center" {
		where = "with a center"
		if err := p.join(ctx, 1); err != nil {
			return nil, err
		}
	}
	if start {
		fs, err := p.starts(ctx, o.starts)
		if add(fs...); err != nil {
			return nil, err
		}
	}
	if !slices.Contains(o.parts, part) {
		return nil, nil
	}
	cpu := p.CPU()
	single, err := p.singles(ctx, o)
	if err != nil {
		return nil, err
	}
	cpu = p.CPU() - cpu
	add(platform.Figure{Name: "single submissions " + where, Value: single.PerSecond, Unit: "jobs/s", Target: singlesTarget, Note: fmt.Sprintf("%d clients, %d jobs", o.singleClients, o.singles)},
		platform.Figure{Name: "single submission " + where + ", p50", Value: single.P50, Unit: "ms"},
		platform.Figure{Name: "single submission " + where + ", p99", Value: single.P99, Unit: "ms", Target: singlesP99, AtMost: true},
		platform.Figure{Name: "single submission " + where + ", CPU of the platform", Value: float64(cpu.Microseconds()) / float64(o.singles), Unit: "us", Note: "whatever else the machine does; without the database's processes"})
	batch, err := p.batches(ctx, o)
	if err != nil {
		return nil, err
	}
	target := float64(batchesSQLite)
	if database == "postgres" {
		target = batchesPostgres
	}
	add(platform.Figure{Name: "batches " + where, Value: batch.PerSecond * float64(o.batchSize), Unit: "jobs/s", Target: target,
		Note: fmt.Sprintf("%d clients, %d batches of %d, p50 %.0f ms", o.batchClients, o.batches, o.batchSize, batch.P50)})
	return nil, p.verify(ctx, int64(o.singles+o.batches*o.batchSize))
}

// job is what is submitted: small, as most are.
func job(name string) *jobsv1.JobSpec {
	return &jobsv1.JobSpec{Name: name, Tasks: []*jobsv1.Task{{Name: "main", Command: "exit 0", ImageId: "host", ResourceSpecId: "small", ReplicaNumber: 1}}}
}

func (p *measured) singles(ctx context.Context, o options) (enginetest.Rate, error) {
	return enginetest.MeasureSubmit(ctx, enginetest.Load{Clients: o.singleClients, N: o.singles}, func(ctx context.Context, _, i int) error {
		res, err := p.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{RequestId: fmt.Sprintf("single-%d", i), Job: job(fmt.Sprintf("single-%d", i))})
		if err == nil && res.JobId == "" {
			err = errors.New("the answer has no job ID")
		}
		return err
	})
}

func (p *measured) batches(ctx context.Context, o options) (enginetest.Rate, error) {
	return enginetest.MeasureSubmit(ctx, enginetest.Load{Clients: o.batchClients, N: o.batches}, func(ctx context.Context, _, i int) error {
		req := &jobsv1.SubmitJobsRequest{RequestId: fmt.Sprintf("batch-%d", i)}
		for n := range o.batchSize {
			req.Jobs = append(req.Jobs, job(fmt.Sprintf("batch-%d-%d", i, n)))
		}
		res, err := p.Jobs.SubmitJobs(ctx, req)
		if err == nil && len(res.JobIds) != o.batchSize {
			err = fmt.Errorf("a batch of %d jobs made %d", o.batchSize, len(res.JobIds))
		}
		return err
	})
}

// verify checks that the platform has every job that it acknowledged.
func (p *measured) verify(ctx context.Context, n int64) error {
	res, err := p.Jobs.GetJobStats(ctx, &jobsv1.GetJobStatsRequest{})
	if err != nil {
		return fmt.Errorf("count jobs: %w", err)
	}
	have := int64(0)
	for _, c := range res.JobsByState {
		have += c
	}
	if have < n {
		return fmt.Errorf("the platform acknowledged %d jobs and has %d", n, have)
	}
	return nil
}

// starts submits jobs one after another to an idle center.
func (p *measured) starts(ctx context.Context, n int) ([]platform.Figure, error) {
	var started, ended []time.Duration
	for i := range n {
		begin := time.Now()
		j, err := p.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: job(fmt.Sprintf("start-%d", i))})
		if err != nil {
			return nil, fmt.Errorf("submit: %w", err)
		}
		last, err := p.end(ctx, j.JobId)
		if err != nil {
			return nil, err
		}
		ended = append(ended, time.Since(begin))
		if last.State != jobsv1.State_STATE_SUCCEEDED {
			return nil, fmt.Errorf("job %s ended %s: %s", last.JobId, last.State, last.Message)
		}
		started = append(started, last.Replicas[0].StartedAt.AsTime().Sub(begin))
	}
	slices.Sort(started)
	slices.Sort(ended)
	note := fmt.Sprintf("%d jobs one after another", n)
	return []platform.Figure{
		{Name: "submit to start, median", Value: platform.Quantile(started, .5), Unit: "ms", Target: startTarget, AtMost: true, Note: note},
		{Name: "submit to start, p99", Value: platform.Quantile(started, .99), Unit: "ms"},
		{Name: "submit to end seen, median", Value: platform.Quantile(ended, .5), Unit: "ms", Note: "command: exit 0"},
		{Name: "submit to end seen, p99", Value: platform.Quantile(ended, .99), Unit: "ms"},
	}, nil
}

// end watches a job to its end and returns it.
func (p *measured) end(ctx context.Context, id string) (*jobsv1.Job, error) {
	stream, err := p.Jobs.WatchJobs(ctx, &jobsv1.WatchJobsRequest{JobId: id})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", id, err)
	}
	defer stream.Close()
	var last *jobsv1.Job
	for stream.Receive() {
		last = stream.Msg().Job
	}
	if err := stream.Err(); err != nil {
		return nil, fmt.Errorf("watch %s: %w", id, err)
	}
	if last == nil || last.EndedAt == nil {
		return nil, fmt.Errorf("watch %s: ended before the job did", id)
	}
	return last, nil
}

// measureUp measures the start of a whole platform and what it needs when idle.
func measureUp(ctx context.Context, o options) (figures []platform.Figure, err error) {
	var took []time.Duration
	for i := range 5 {
		p, t, err := platform.Start(ctx, 1, "up")
		if err != nil {
			return nil, err
		}
		took = append(took, t)
		if i == 4 {
			select {
			case <-ctx.Done():
				return nil, errors.Join(ctx.Err(), p.Close())
			case <-time.After(o.idle):
			}
			rss, err := p.ResidentMiB()
			if err != nil {
				return nil, errors.Join(err, p.Close())
			}
			figures = append(figures, platform.Figure{Name: "memory of an idle platform", Value: rss, Unit: "MiB", Target: memoryTarget, AtMost: true,
				Note: fmt.Sprintf("resident, after %s, without its gateway process", o.idle)})
		}
		if err := p.Close(); err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return append([]platform.Figure{{Name: "yunhe up until ready, median", Value: platform.Quantile(took, .5), Unit: "ms", Target: readyTarget, AtMost: true, Note: "5 starts in an empty folder"}}, figures...), nil
}
