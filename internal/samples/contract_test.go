package samples_test

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/samples"
	"yunhe.dev/yunhe/internal/samples/samplestest"
)

func openStore(t testing.TB, c samples.Config) *samples.Store {
	t.Helper()
	s, err := samples.Open(c, slog.New(slog.NewTextHandler(io.Discard, nil)), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestEmbeddedContract(t *testing.T) {
	t.Parallel()
	samplestest.Run(t, func(t *testing.T) *samples.Store { return openStore(t, samples.Config{URL: t.TempDir()}) })
}

// realPrometheus accepts late samples as the embedded engine does.
const realPrometheus = "storage:\n  tsdb:\n    out_of_order_time_window: 10m\n"

func TestPrometheusContract(t *testing.T) {
	t.Parallel()
	enginetest.Prometheus(t) // skips if it is missing; the one below has a configuration
	server, err := enginetest.StartPrometheus(t.Context(), realPrometheus)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close Prometheus: %v", err)
		}
	})
	samplestest.Run(t, func(t *testing.T) *samples.Store { return openStore(t, samples.Config{URL: server.URL}) })
}
