package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

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
func measureDatabase(ctx context.Context, o options, database string) (figures []figure, err error) {
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
func measurePart(ctx context.Context, o options, database, part string, args []string) (figures []figure, err error) {
	start := part == "center" && slices.Contains(o.parts, "start")
	if !start && !slices.Contains(o.parts, part) {
		return nil, nil
	}
	p, _, err := startPlatform(ctx, max(o.singleClients, o.batchClients), args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	var list []figure
	add := func(fs ...figure) {
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
	cpu := p.cpu()
	single, err := p.singles(ctx, o)
	if err != nil {
		return nil, err
	}
	cpu = p.cpu() - cpu
	add(figure{Name: "single submissions " + where, Value: single.PerSecond, Unit: "jobs/s", Target: singlesTarget, Note: fmt.Sprintf("%d clients, %d jobs", o.singleClients, o.singles)},
		figure{Name: "single submission " + where + ", p50", Value: single.P50, Unit: "ms"},
		figure{Name: "single submission " + where + ", p99", Value: single.P99, Unit: "ms", Target: singlesP99, AtMost: true},
		figure{Name: "single submission " + where + ", CPU of the platform", Value: float64(cpu.Microseconds()) / float64(o.singles), Unit: "us", Note: "whatever else the machine does; without the database's processes"})
	batch, err := p.batches(ctx, o)
	if err != nil {
		return nil, err
	}
	target := float64(batchesSQLite)
	if database == "postgres" {
		target = batchesPostgres
	}
	add(figure{Name: "batches " + where, Value: batch.PerSecond * float64(o.batchSize), Unit: "jobs/s", Target: target,
		Note: fmt.Sprintf("%d clients, %d batches of %d, p50 %.0f ms", o.batchClients, o.batches, o.batchSize, batch.P50)})
	return nil, p.verify(ctx, int64(o.singles+o.batches*o.batchSize))
}

// cpu is the CPU time that the platform's process has used, 0 if that cannot be read.
func (p *platform) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.program.PID()))
	if err != nil {
		return 0
	}
	// Fields count from the end of the name, which may hold spaces; 14 and 15
	// of the whole are in ticks of 10 ms.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// job is what is submitted: small, as most are.
func job(name string) *jobsv1.JobSpec {
	return &jobsv1.JobSpec{Name: name, Tasks: []*jobsv1.Task{{Name: "main", Command: "exit 0", ImageId: "host", ResourceSpecId: "small", ReplicaNumber: 1}}}
}

func (p *platform) singles(ctx context.Context, o options) (enginetest.Rate, error) {
	return enginetest.MeasureSubmit(ctx, enginetest.Load{Clients: o.singleClients, N: o.singles}, func(ctx context.Context, _, i int) error {
		res, err := p.jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{RequestId: fmt.Sprintf("single-%d", i), Job: job(fmt.Sprintf("single-%d", i))})
		if err == nil && res.JobId == "" {
			err = errors.New("the answer has no job ID")
		}
		return err
	})
}

func (p *platform) batches(ctx context.Context, o options) (enginetest.Rate, error) {
	return enginetest.MeasureSubmit(ctx, enginetest.Load{Clients: o.batchClients, N: o.batches}, func(ctx context.Context, _, i int) error {
		req := &jobsv1.SubmitJobsRequest{RequestId: fmt.Sprintf("batch-%d", i)}
		for n := range o.batchSize {
			req.Jobs = append(req.Jobs, job(fmt.Sprintf("batch-%d-%d", i, n)))
		}
		res, err := p.jobs.SubmitJobs(ctx, req)
		if err == nil && len(res.JobIds) != o.batchSize {
			err = fmt.Errorf("a batch of %d jobs made %d", o.batchSize, len(res.JobIds))
		}
		return err
	})
}

// verify checks that the platform has every job that it acknowledged.
func (p *platform) verify(ctx context.Context, n int64) error {
	res, err := p.jobs.GetJobStats(ctx, &jobsv1.GetJobStatsRequest{})
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
func (p *platform) starts(ctx context.Context, n int) ([]figure, error) {
	var started, ended []time.Duration
	for i := range n {
		begin := time.Now()
		j, err := p.jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: job(fmt.Sprintf("start-%d", i))})
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
	return []figure{
		{Name: "submit to start, median", Value: quantile(started, .5), Unit: "ms", Target: startTarget, AtMost: true, Note: note},
		{Name: "submit to start, p99", Value: quantile(started, .99), Unit: "ms"},
		{Name: "submit to end seen, median", Value: quantile(ended, .5), Unit: "ms", Note: "command: exit 0"},
		{Name: "submit to end seen, p99", Value: quantile(ended, .99), Unit: "ms"},
	}, nil
}

// end watches a job to its end and returns it.
func (p *platform) end(ctx context.Context, id string) (*jobsv1.Job, error) {
	stream, err := p.jobs.WatchJobs(ctx, &jobsv1.WatchJobsRequest{JobId: id})
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

// quantile of sorted durations in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	return float64(sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]) / float64(time.Millisecond)
}

// measureUp measures the start of a whole platform and what it needs when idle.
func measureUp(ctx context.Context, o options) (figures []figure, err error) {
	var took []time.Duration
	for i := range 5 {
		p, t, err := startPlatform(ctx, 1, "up")
		if err != nil {
			return nil, err
		}
		took = append(took, t)
		if i == 4 {
			select {
			case <-ctx.Done():
				return nil, errors.Join(ctx.Err(), p.close())
			case <-time.After(o.idle):
			}
			rss, err := residentMiB(p.program.PID())
			if err != nil {
				return nil, errors.Join(err, p.close())
			}
			figures = append(figures, figure{Name: "memory of an idle platform", Value: rss, Unit: "MiB", Target: memoryTarget, AtMost: true,
				Note: fmt.Sprintf("resident, after %s, without its gateway process", o.idle)})
		}
		if err := p.close(); err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return append([]figure{{Name: "yunhe up until ready, median", Value: quantile(took, .5), Unit: "ms", Target: readyTarget, AtMost: true, Note: "5 starts in an empty folder"}}, figures...), nil
}

// residentMiB reads a process's resident memory.
func residentMiB(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kib); err == nil {
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmRSS", pid)
}
