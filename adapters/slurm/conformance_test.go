package slurm_test

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"yunhe.dev/yunhe/adapters/slurm"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/sdk/adapter"
	"yunhe.dev/yunhe/sdk/adaptertest"
)

// TestMain lets this program be the driver, in a process that can be killed.
func TestMain(m *testing.M) {
	adaptertest.Main(m, func(ctx context.Context) error {
		var cfg slurm.Config
		if err := adapter.Config(&cfg); err != nil {
			return err
		}
		d, err := slurm.New(ctx, adapter.Center("c1"), cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		if err != nil {
			return err
		}
		defer d.Close()
		return adapter.Serve(ctx, d)
	})
}

// needEngines leaves a test that takes minutes to make test-engines, aloud.
func needEngines(t *testing.T) {
	t.Helper()
	if os.Getenv("YUNHE_TEST_ENGINES") == "" {
		t.Skip("SKIPPED: this takes minutes on a real cluster; run make test-engines")
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	needEngines(t)
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 2, GPUs: 1, Accounting: true, Conf: quick})
	administrator(t, s)
	for _, node := range []string{"n1", "n2"} { // all GPUs are in use
		if _, err := s.Run(t.Context(), "#!/bin/sh\nsleep 100000\n", "sbatch", "--gres=gpu:h20:1", "--mem=50", "--nodelist="+node, "--output=/dev/null"); err != nil {
			t.Fatal(err)
		}
	}
	self := adaptertest.Self()
	cfg := config(t, s)
	cfg.Accounts = true
	self.Center, self.Config = "c1", cfg
	adaptertest.Run(t, adaptertest.Config{
		Start: self.Start, ImageID: "host", SpecID: "small", Resources: map[string]int64{"cpu": 1000, "memory": 50 << 20},
		Shared: s.Work, Waiting: map[string]int64{"cpu": 1000, "memory": 50 << 20, "gpu": 1}, Patience: patience,
		Break: func(t testing.TB) {
			if err := s.KillREST(); err != nil {
				t.Fatal(err)
			}
		},
		Repair: func(t testing.TB) {
			if err := s.StartREST(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		Delete: func(t testing.TB, id string) {
			if _, err := s.Run(t.Context(), "", "scancel", "--name=yunhe:"+id); err != nil {
				t.Fatal(err)
			}
		},
		Change: func(t testing.TB) func() {
			if _, err := s.Run(t.Context(), "", "scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test"); err != nil {
				t.Fatal(err)
			}
			return func() {
				if _, err := s.Run(context.WithoutCancel(t.Context()), "", "scontrol", "update", "NodeName=n2", "State=RESUME"); err != nil {
					t.Error(err)
				}
			}
		},
	})
}
