package adapters_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/sdk/adapter"
)

const (
	// asMany makes this test's program so many fake drivers, each at an address
	// of its own, so that their work is not counted as the platform's.
	asMany    = "YUNHE_TEST_FAKE_DRIVERS"
	many      = 120
	manyNodes = 100
)

func serveMany() {
	for i := range many {
		d := newFake(fmt.Sprintf("many-%03d", i))
		d.nodes = manyNodes
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("http://" + l.Addr().String())
		go func() { _ = adapter.ServeListener(context.Background(), l, d) }() // it ends with the process
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the benchmark ends
}

// BenchmarkMany runs jobs one after another beside 120 plug-ins of 100 nodes
// each that beat once a second, all well, and with one more that hangs. It
// states the time until all are up, and the platform's processor time and
// memory (of this process, which is the platform and the benchmark's client)
// while nothing runs: over the ten seconds in which the new nodes are tagged and
// drawn into the topology, and over ten seconds half a minute later.
func BenchmarkMany(b *testing.B) {
	a := apptest.Start(b, apptest.Options{})
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asMany+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	var urls []string
	for sc := bufio.NewScanner(out); len(urls) < many && sc.Scan(); {
		urls = append(urls, sc.Text())
	}
	start := time.Now()
	if _, err := a.Admin.Adapters.SetPlugin(b.Context(), &adaptersv1.SetPluginRequest{Name: "many", Endpoints: urls}); err != nil {
		b.Fatal(err)
	}
	allUp := func() bool {
		p, err := a.Admin.Adapters.GetPlugin(b.Context(), &adaptersv1.GetPluginRequest{Name: "many"})
		if err != nil {
			b.Fatal(err)
		}
		return p.State == adapters.Up
	}
	apptest.Until(b, "all plug-ins are up", allUp)
	up := time.Since(start)
	busy := func() float64 { // this is what is measured
		before := processor(b)
		<-time.After(10 * time.Second)
		return 100 * (processor(b) - before).Seconds() / 10
	}
	first := busy()
	<-time.After(30 * time.Second)
	later := busy()
	n := 0
	jobs := func(b *testing.B) {
		b.Helper()
		for b.Loop() {
			j := apptest.Job("beside", 1)
			j.Tasks[0].Constraints = &jobsv1.Constraints{Centers: []string{fmt.Sprintf("many-%03d", n%many)}}
			n++
			a.Admin.AwaitState(b, a.Admin.Submit(b, j), jobsv1.State_STATE_SUCCEEDED)
		}
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/job")
	}
	b.Run("well", func(b *testing.B) {
		jobs(b)
		b.ReportMetric(up.Seconds(), "s-until-up")
		b.ReportMetric(first, "cpu-percent-at-first")
		b.ReportMetric(later, "cpu-percent")
		b.ReportMetric(resident(b), "MiB")
		b.ReportMetric(0, "ns/op")
	})
	b.Run("one-hangs", func(b *testing.B) {
		h := hung{newFake("many-hung"), make(chan struct{}, 1)}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		b.Cleanup(cancel)
		go func() { _ = adapter.ServeListener(ctx, l, h) }() // it ends with ctx
		if _, err := a.Admin.Adapters.SetPlugin(b.Context(), &adaptersv1.SetPluginRequest{Name: "hung", Endpoints: []string{"http://" + l.Addr().String()}}); err != nil {
			b.Fatal(err)
		}
		<-h.called
		jobs(b)
		b.ReportMetric(0, "ns/op")
	})
	if !allUp() {
		b.Error("a plug-in did not stay up")
	}
}

// processor is the processor time this process has used.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is the memory of this process in MiB.
func resident(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	var kib float64
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kib); err == nil {
			return kib / 1024
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
