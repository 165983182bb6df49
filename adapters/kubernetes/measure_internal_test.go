package kubernetes

import (
	"testing"
	"time"
)

// What passed of a count of Prometheus is told of the time until it changed,
// and a count that stands still is one of nothing used.
func TestUseNow(t *testing.T) {
	t.Parallel()
	began := time.Now()
	var u use
	for _, x := range []struct{ after, cpu, milli int64 }{
		{10, 5_000_000, 500}, {20, 5_000_000, 500}, {40, 65_000_000, 2000}, {55, 65_000_000, 2000}, {105, 65_000_000, 0}, {115, 70_000_000, 500},
	} {
		if u.count(x.cpu, began.Add(time.Duration(x.after)*time.Second), began); u.milli != x.milli || u.cpu != x.cpu {
			t.Errorf("after %d s: %d milli, %d µs, want %d, %d", x.after, u.milli, u.cpu, x.milli, x.cpu)
		}
	}
}
