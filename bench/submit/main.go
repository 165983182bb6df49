// Command submit measures how fast Yunhe takes jobs and starts them, with its
// state on SQLite and on PostgreSQL, and how fast Slurm and Kubernetes take
// jobs on the same machine in the same run.
//
// The platform, its gateway and the databases are processes of their own; the
// clients are this process, over the public API (Connect with protobuf). Every
// submission counted was durable when it was acknowledged: SQLite and
// PostgreSQL wait for fsync, with their default settings.
//
// What is measured on each database:
//
//   - start: jobs submitted one after another to an idle gateway, from the
//     client's call to the start of the command as the kernel saw it, and to
//     the end as the client saw it.
//   - batches and singles with a center whose capacity is so small that the
//     queue stays long: scheduling, starting and reporting compete with
//     acceptance. This is the honest figure.
//   - the same without a center: acceptance alone.
//
// Beside them: the time until `yunhe up` is ready, and the memory of an idle
// platform. Peers that are not installed are named and left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/bench/platform"
	"yunhe.dev/yunhe/internal/enginetest"
)

// options are the flags.
type options struct {
	databases, parts                         []string
	batchClients, batchSize, batches         int
	singleClients, singles, starts, peerJobs int
	idle                                     time.Duration
	output                                   string
	limit                                    time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "submit:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("submit", flag.ContinueOnError)
	databases := flags.String("databases", "sqlite,postgres", "where the platform keeps its state: sqlite, postgres")
	parts := flags.String("parts", "start,center,alone,up,peers", "what to measure")
	flags.IntVar(&o.batchClients, "batch-clients", 4, "clients that send batches")
	flags.IntVar(&o.batchSize, "batch-size", 1000, "jobs in a batch, at most 5000")
	flags.IntVar(&o.batches, "batches", 60, "batches to send")
	flags.IntVar(&o.singleClients, "single-clients", 32, "clients that send single jobs")
	flags.IntVar(&o.singles, "singles", 20000, "single jobs to send")
	flags.IntVar(&o.starts, "starts", 200, "jobs to start one after another")
	flags.IntVar(&o.peerJobs, "peer-jobs", 2000, "jobs to send to each peer in each way")
	flags.DurationVar(&o.idle, "idle", 30*time.Second, "how long the platform idles before its memory is read")
	flags.StringVar(&o.output, "o", "table", "table or json")
	flags.DurationVar(&o.limit, "limit", 30*time.Minute, "give up after this long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.databases, o.parts = strings.Split(*databases, ","), strings.Split(*parts, ",")
	for _, x := range []struct {
		flag       string
		given, all []string
	}{{"-databases", o.databases, []string{"sqlite", "postgres"}}, {"-parts", o.parts, []string{"start", "center", "alone", "up", "peers"}}, {"-o", []string{o.output}, []string{"table", "json"}}} {
		for _, v := range x.given {
			if !slices.Contains(x.all, v) {
				return fmt.Errorf("%s must be of %s, got %q", x.flag, strings.Join(x.all, ", "), v)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	figures, err := measure(ctx, o)
	return errors.Join(platform.Print(o.output, figures), err)
}

func measure(ctx context.Context, o options) (figures []platform.Figure, err error) {
	add := func(fs []platform.Figure, err error) error {
		figures = append(figures, fs...)
		return err
	}
	for _, database := range o.databases {
		if err := add(measureDatabase(ctx, o, database)); err != nil {
			return figures, fmt.Errorf("measure on %s: %w", database, err)
		}
	}
	if slices.Contains(o.parts, "up") {
		if err := add(measureUp(ctx, o)); err != nil {
			return figures, fmt.Errorf("measure up: %w", err)
		}
	}
	if slices.Contains(o.parts, "peers") {
		return figures, add(measurePeers(ctx, o, figures))
	}
	return figures, nil
}

// measurePeers measures Slurm and Kubernetes, with jobs that may run, and how
// many times as fast Yunhe takes jobs.
func measurePeers(ctx context.Context, o options, ours []platform.Figure) (figures []platform.Figure, err error) {
	// Neither peer takes more than one job in a request, so that batches are
	// compared with their single submissions from many clients.
	load := enginetest.Load{Clients: o.singleClients, N: o.peerJobs, Live: true}
	best, live := map[string]float64{}, map[string]float64{}
	rate := func(r enginetest.Rate, err error) error {
		if err == nil {
			figures = append(figures, platform.Figure{Name: r.System + ": " + r.Mode, Value: r.PerSecond, Unit: "jobs/s", Note: fmt.Sprintf("%d clients, p50 %.1f ms, p99 %.1f ms", r.Clients, r.P50, r.P99)})
			best[r.System] = max(best[r.System], r.PerSecond)
			if strings.HasSuffix(r.Mode, " live") {
				live[r.System] = r.PerSecond
			}
		}
		return err
	}
	held := load
	held.Live = false
	slurm := func() error {
		s, err := enginetest.StartSlurm(ctx, enginetest.SlurmConfig{Nodes: 4, MaxJobCount: 10*o.peerJobs + 10_000})
		if err != nil {
			return err
		}
		return errors.Join(rate(s.MeasureSbatch(ctx, held)), rate(s.MeasureREST(ctx, held)), rate(s.MeasureREST(ctx, load)), s.Close())
	}
	kubernetes := func() error {
		k, err := enginetest.StartKubernetes(ctx, enginetest.KubernetesConfig{})
		if err != nil {
			return err
		}
		return errors.Join(rate(k.MeasureJobs(ctx, held)), rate(k.MeasureJobs(ctx, load)), k.Close())
	}
	for _, peer := range []struct {
		name    string
		measure func() error
	}{{"slurm", slurm}, {"kubernetes", kubernetes}} {
		err := peer.measure()
		var missing *enginetest.MissingError
		if errors.As(err, &missing) {
			fmt.Fprintln(os.Stderr, "submit: left out:", missing)
			continue
		}
		if err != nil {
			return figures, fmt.Errorf("measure %s: %w", peer.name, err)
		}
		for _, f := range ours {
			if f.Unit != "jobs/s" || !strings.HasSuffix(f.Name, "with a center") {
				continue
			}
			target := 0.0
			if strings.HasPrefix(f.Name, "batches") {
				target = peerTarget
			}
			figures = append(figures,
				platform.Figure{Name: f.Name + " : " + peer.name + ", its best", Database: f.Database, Value: f.Value / best[peer.name], Unit: "times", Target: target},
				platform.Figure{Name: f.Name + " : " + peer.name + ", jobs that may run", Database: f.Database, Value: f.Value / live[peer.name], Unit: "times", Target: target})
		}
	}
	return figures, nil
}
