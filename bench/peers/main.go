// Command peers measures how fast Slurm and Kubernetes take jobs on this
// machine, with the durability they have by default: etcd calls fsync, Slurm
// saves its state every few seconds.
//
// It starts real engines (see internal/enginetest), submits N jobs in each
// mode and prints one line of JSON for each: {system, mode, clients, n,
// seconds, per_second, p50_ms, p99_ms}. A mode is a way in and what the jobs
// do there: "held" jobs are only accepted; "live" ones may run, so that
// scheduling competes with acceptance. "api alone" is Kubernetes without its
// controllers and scheduler: etcd and the API server.
// A line "... killed" of each system says how many of the jobs it had just
// accepted it lost when its server was killed (SIGKILL, not a loss of power)
// and started again.
//
// It fails, printing no line, when an engine refuses a job or does not know it
// afterwards.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/enginetest"
)

// options are the flags.
type options struct {
	n       int
	clients int
	systems []string
	limit   time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.IntVar(&o.n, "n", 2000, "jobs to submit in each mode")
	flags.IntVar(&o.clients, "clients", 32, "clients at once")
	system := flags.String("system", "all", "slurm, kubernetes or all")
	flags.DurationVar(&o.limit, "limit", 15*time.Minute, "give up after this long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all := []string{"slurm", "kubernetes"}
	switch {
	case *system == "all":
		o.systems = all
	case slices.Contains(all, *system):
		o.systems = []string{*system}
	default:
		return fmt.Errorf("-system must be slurm, kubernetes or all, got %q", *system)
	}
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	for _, system := range o.systems {
		measure := slurm
		if system == "kubernetes" {
			measure = kubernetes
		}
		if err := measure(ctx, o); err != nil {
			return fmt.Errorf("measure %s: %w", system, err)
		}
	}
	return nil
}

// slurm measures sbatch from one client and from all, and slurmrestd.
func slurm(ctx context.Context, o options) (err error) {
	s, err := enginetest.StartSlurm(ctx, enginetest.SlurmConfig{Nodes: 4, MaxJobCount: 10*o.n + 10_000})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	all := enginetest.Load{Clients: o.clients, N: o.n}
	live := all
	live.Live = true
	for _, step := range []struct {
		measure func(context.Context, enginetest.Load) (enginetest.Rate, error)
		load    enginetest.Load
	}{
		// A process for each job: a tenth of them tells the rate of one client.
		{s.MeasureSbatch, enginetest.Load{Clients: 1, N: max(o.n/10, 1)}},
		{s.MeasureSbatch, all},
		{s.MeasureREST, enginetest.Load{Clients: 1, N: o.n}},
		{s.MeasureREST, all},
		{s.MeasureLoss, all},
		{s.MeasureREST, live}, // last: its jobs go on running
	} {
		if err := printed(step.measure(ctx, step.load)); err != nil {
			return err
		}
	}
	return nil
}

// kubernetes measures the API alone, then the whole control plane.
func kubernetes(ctx context.Context, o options) error {
	held := enginetest.Load{Clients: o.clients, N: o.n}
	live := held
	live.Live = true
	alone := enginetest.KubernetesConfig{NoControllers: true}
	err := controlPlane(ctx, alone, func(k *enginetest.Kubernetes) error {
		return printed(k.MeasureJobs(ctx, held))
	})
	if err != nil {
		return err
	}
	return controlPlane(ctx, enginetest.KubernetesConfig{}, func(k *enginetest.Kubernetes) error {
		return errors.Join(
			printed(k.MeasureJobs(ctx, held)),
			printed(k.MeasureLoss(ctx, held)),
			printed(k.MeasureJobs(ctx, live)),
		)
	})
}

// controlPlane starts one for the time of use.
func controlPlane(ctx context.Context, cfg enginetest.KubernetesConfig, use func(*enginetest.Kubernetes) error) error {
	k, err := enginetest.StartKubernetes(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(use(k), k.Close())
}

// printed prints a rate as a line of JSON, unless measuring it failed.
func printed(rate enginetest.Rate, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(rate)
}
