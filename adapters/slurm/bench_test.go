package slurm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"yunhe.dev/yunhe/adapters/slurm"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/enginetest"
)

// BenchmarkApply measures submissions through the driver, 256 in a call, and
// the same jobs sent plainly to the same slurmrestd from as many clients, in
// turns; the ratio is that of their rates. The jobs wait, so that running them
// does not count.
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
	const clients, rounds, each = 8, 4, 256 // clients: as the driver uses
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: clients, MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
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
			direct, err := enginetest.MeasureSubmit(b.Context(), enginetest.Load{Clients: clients, N: each}, func(ctx context.Context, _, _ int) error {
				return submitPlainly(ctx, client, s, cfg.Token)
			})
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

// scriptSize is about that of the driver's script.
const scriptSize = 3000

// submitPlainly sends the least request that makes the job the driver makes.
func submitPlainly(ctx context.Context, client *http.Client, s *enginetest.Slurm, token string) error {
	name := core.NewID("att")
	body, err := json.Marshal(map[string]any{"script": "#!/bin/bash\n# " + strings.Repeat("x", scriptSize) + "\n", "job": map[string]any{
		"name": name, "comment": "attempt=" + name, "partition": "main", "tasks": 1, "cpus_per_task": 1, "memory_per_node": 50, "no_requeue": true,
		"current_working_directory": "/", "standard_output": "/dev/null", "standard_error": "/dev/null", "environment": map[string]string{"PATH": "/usr/bin:/bin"},
	}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.RESTURL+"/slurm/v0.0.38/job/submit", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "X-Slurm-User-Name": {user}, "X-Slurm-User-Token": {token}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"job_id"`))) {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return err
}
