package adapter_test

import (
	"testing"
	"time"

	"yunhe.dev/yunhe/sdk/adapter"
)

func TestPathOf(t *testing.T) {
	if p := adapter.PathOf("x", nil); p != nil {
		t.Errorf("no probes: %v", p)
	}
	p := adapter.PathOf("x", []time.Duration{3 * time.Millisecond, adapter.Lost, 5 * time.Millisecond, 4 * time.Millisecond})
	if p.Peer != "x" || p.LatencyMicroseconds != 4000 || p.JitterMicroseconds != 1500 || p.LossPpm != 250_000 {
		t.Errorf("%v", p)
	}
	if p := adapter.PathOf("x", []time.Duration{adapter.Lost}); p.LossPpm != 1_000_000 || p.LatencyMicroseconds != 0 {
		t.Errorf("all lost: %v", p)
	}
}
