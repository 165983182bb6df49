// Command yunhe-bench is the benchmark that a measurement sends to a center as
// a job: it measures processor, memory, disk and network of the machine it runs
// on and prints a report that the platform reads (package report).
//
// The environment says what the job was given, because not every sandbox lets
// its guest see that: YUNHE_BENCH_CORES, and YUNHE_BENCH_MEMORY and
// YUNHE_BENCH_DISK in bytes.
package main

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"yunhe.dev/yunhe/internal/measurement/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r, err := bench.Machine(ctx, bench.Options{Dir: ".", Cores: int(env("YUNHE_BENCH_CORES")), MemoryBytes: env("YUNHE_BENCH_MEMORY"), DiskBytes: env("YUNHE_BENCH_DISK"),
		Quick: env("YUNHE_BENCH_QUICK") == 1})
	stop()
	if err != nil {
		_, _ = os.Stderr.WriteString("error: " + err.Error() + "\n") // nowhere else to tell
		os.Exit(1)
	}
	if _, err := os.Stdout.WriteString(r.Text()); err != nil {
		os.Exit(1)
	}
}

// env reads a whole number; 0 if there is none.
func env(name string) int64 {
	n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
