package slurm_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"yunhe.dev/yunhe/adapters/slurm"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// BenchmarkApply measures submissions through the driver, 256 in a call, and
// plain ones to the same slurmrestd from as many clients, in turns; the ratio
// is that of their rates. The jobs wait, so that running them does not count.
func BenchmarkApply(b *testing.B) {
	s, err := enginetest.StartSlurm(b.Context(), enginetest.SlurmConfig{Nodes: 1, Conf: "MaxJobCount=100000\nSchedulerParameters=defer\n"})
	if err != nil {
		b.Skipf("SKIPPED: %v", err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	// A job that has all of the node keeps the others waiting.
	if _, err := s.Run(b.Context(), "#!/bin/sh\nsleep 100000\n", "sbatch", "--cpus-per-task=8", "--mem=31999", "--output=/dev/null"); err != nil {
		b.Fatal(err)
	}
	cfg := config(b, s)
	cfg.PollMillis = 0
	d, err := slurm.New(b.Context(), "c1", cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	const clients, rounds, each = 8, 4, 256
	var ours, plain, oursTime, plainTime float64
	for b.Loop() {
		for range rounds {
			rate, err := enginetest.MeasureSubmit(b.Context(), enginetest.Load{Clients: 1, N: 1}, func(ctx context.Context, _, _ int) error {
				r := &adapterv1.ApplyRequest{}
				for range each {
					r.Attempts = append(r.Attempts, attempt("exit 0"))
				}
				res, err := d.Apply(ctx, r)
				if err == nil && len(res.Refusals) > 0 {
					err = fmt.Errorf("refused: %v", res.Refusals[0])
				}
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
			ours, oursTime = ours+each, oursTime+rate.Seconds
			direct, err := s.MeasureREST(b.Context(), enginetest.Load{Clients: clients, N: each})
			if err != nil {
				b.Fatal(err)
			}
			plain, plainTime = plain+each, plainTime+direct.Seconds
		}
	}
	b.ReportMetric(ours/oursTime, "apply/s")
	b.ReportMetric(plain/plainTime, "plain/s")
	b.ReportMetric((ours/oursTime)/(plain/plainTime), "ratio")
	b.ReportMetric(0, "ns/op")
}
