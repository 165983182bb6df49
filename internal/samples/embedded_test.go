package samples

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// killedVar makes the test binary the process that TestEmbeddedSurvivesKill
// kills, restVar the one whose memory BenchmarkEmbeddedAtRest reads: the value
// is the folder to open.
const (
	killedVar = "YUNHE_SAMPLES_TEST_KILL"
	roundVar  = "YUNHE_SAMPLES_TEST_ROUND"
	restVar   = "YUNHE_SAMPLES_TEST_REST"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedVar); dir != "" {
		appendUntilKilled(dir)
	}
	if dir := os.Getenv(restVar); dir != "" {
		rest(dir)
	}
	os.Exit(m.Run())
}

func openFolder(t testing.TB, dir string, l limits) *Store {
	t.Helper()
	s, err := open(Config{URL: dir}, quiet, time.Now, l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func batch(from time.Time, n, series int) []Sample {
	out := make([]Sample, 0, n)
	for i := range n {
		out = append(out, Sample{
			Name: "use", Labels: L("center", strconv.Itoa(i%series%50), "node", strconv.Itoa(i%series)),
			Value: float64(i), At: from.Add(time.Duration(i/series) * time.Second),
		})
	}
	return out
}

func count(t testing.TB, s *Store, expr string, at time.Time) float64 {
	t.Helper()
	got, err := s.Query(context.Background(), expr, at)
	if err != nil {
		t.Fatalf("query %s: %v", expr, err)
	}
	if len(got) == 0 {
		return 0
	}
	return got[0].Points[0].Value
}

func TestEmbeddedSurvivesClose(t *testing.T) {
	t.Parallel()
	dir, at := t.TempDir(), time.Now().Add(-time.Minute)
	for round := range 3 {
		s := openFolder(t, dir, defaultLimits)
		if got := count(t, s, "sum(count_over_time(use[10m]))", time.Now()); got != float64(round*100) {
			t.Errorf("round %d: got %v samples, want %d", round, got, round*100)
		}
		report, err := s.Append(t.Context(), batch(at.Add(time.Duration(round)*10*time.Second), 100, 10))
		if err != nil || report.Stored != 100 {
			t.Fatalf("append: %+v, %v", report, err)
		}
		if err := s.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
}

// appendUntilKilled appends batches and says on standard output which are
// stored.
func appendUntilKilled(dir string) {
	s, err := Open(Config{URL: dir}, quiet, time.Now)
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	// Each round has a minute of its own: it appends a batch per millisecond of
	// that, faster than the clock, and the same sample twice is one sample.
	round, err := strconv.Atoi(os.Getenv(roundVar))
	if err != nil {
		fmt.Println("round:", err)
		os.Exit(1)
	}
	from := time.Now().Add(time.Duration(round-8) * time.Minute)
	for i := 0; ; i++ {
		b := batch(from.Add(time.Duration(i)*time.Millisecond), 100, 100)
		if report, err := s.Append(context.Background(), b); err != nil || report.Stored != len(b) {
			fmt.Println("append:", report, err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

func TestEmbeddedSurvivesKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stored := 0
	for round := range 3 {
		child := exec.Command(os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), killedVar+"="+dir, roundVar+"="+strconv.Itoa(round))
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		last := -1
		for last < 20 {
			if _, err := fmt.Fscanln(out, &last); err != nil {
				t.Fatalf("child: %v", err)
			}
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(out) // what it said before the signal came
		for line := range strings.Lines(string(rest)) {
			if strings.HasSuffix(line, "\n") {
				_, _ = fmt.Sscan(line, &last)
			}
		}
		_ = child.Wait() // it was killed
		stored += 100 * (last + 1)

		s := openFolder(t, dir, defaultLimits)
		// One batch may have been stored whose report was lost.
		got := int(count(t, s, "sum(count_over_time(use[1h]))", time.Now()))
		if got < stored || got > stored+100 {
			t.Errorf("after kill: got %d samples, want the %d reported as stored and at most one batch of 100 more", got, stored)
		}
		stored = got
		if report, err := s.Append(t.Context(), []Sample{{Name: "after_kill", At: time.Now()}}); err != nil || report.Stored != 1 {
			t.Errorf("append after kill: %+v, %v", report, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func TestEmbeddedIsOpenedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openFolder(t, dir, defaultLimits)
	_, err := Open(Config{URL: dir}, quiet, time.Now)
	if err == nil || fault.KindOf(err) != fault.Conflict {
		t.Errorf("open twice: got %v, want a conflict", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openFolder(t, dir, defaultLimits)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file := dir + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Config{URL: file}, quiet, time.Now)
	if err == nil || fault.KindOf(err) != fault.Invalid {
		t.Errorf("open a file as folder: got %v, want an invalid argument", err)
	}
}

func TestEmbeddedLimits(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(-time.Minute)
	for _, test := range []struct {
		name   string
		change func(*limits)
		want   string
	}{
		{"samples read", func(l *limits) { l.read = 50 }, "more than 50 samples"},
		{"time", func(l *limits) { l.timeout = time.Nanosecond }, "longer than 1ns"},
		{"series", func(l *limits) { l.series = 9 }, "10 series, 9 are allowed"},
		{"points", func(l *limits) { l.points = 5 }, "6 points per series, 5 are allowed"},
	} {
		l := defaultLimits
		test.change(&l)
		s := openFolder(t, t.TempDir(), l)
		if _, err := s.Append(t.Context(), batch(at, 100, 10)); err != nil {
			t.Fatal(err)
		}
		_, err := s.QueryRange(t.Context(), "use", at, at.Add(10*time.Second), 2*time.Second)
		if err == nil || fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), test.want) {
			t.Errorf("limit of %s: got %v, want an invalid argument with %q", test.name, err, test.want)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func TestEmbeddedQueriesWaitForEachOther(t *testing.T) {
	t.Parallel()
	l := defaultLimits
	l.timeout = 50 * time.Millisecond
	s := openFolder(t, t.TempDir(), l)
	defer s.Close()
	e := s.engine.(*embedded)
	for range parallelQueries {
		e.running <- struct{}{}
	}
	if _, err := s.Query(t.Context(), "1", time.Now()); err == nil || fault.KindOf(err) != fault.Invalid {
		t.Errorf("with all places taken: got %v, want it to give up", err)
	}
	<-e.running
	if _, err := s.Query(t.Context(), "1", time.Now()); err != nil {
		t.Errorf("with a free place: %v", err)
	}
}

// rest opens a store, says how long that took, and waits for its end.
func rest(dir string) {
	start := time.Now()
	s, err := Open(Config{URL: dir}, quiet, time.Now)
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	took := time.Since(start)
	if _, err := s.Append(context.Background(), batch(time.Now(), 100, 100)); err != nil {
		fmt.Println("append:", err)
		os.Exit(1)
	}
	if _, err := s.Query(context.Background(), "sum(use)", time.Now()); err != nil {
		fmt.Println("query:", err)
		os.Exit(1)
	}
	fmt.Println(took.Microseconds())
	_, _ = io.ReadAll(os.Stdin) // until the benchmark has read our memory
	os.Exit(0)
}

// BenchmarkEmbeddedAtRest measures a process that holds an open store: the
// time to open it and the memory it takes at rest.
func BenchmarkEmbeddedAtRest(b *testing.B) {
	var us, anon, rss float64
	for range b.N {
		child := exec.Command(os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), restVar+"="+b.TempDir())
		in, err := child.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		out, err := child.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := child.Start(); err != nil {
			b.Fatal(err)
		}
		var took float64
		if _, err := fmt.Fscanln(out, &took); err != nil {
			b.Fatal(err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child.Process.Pid))
		if err != nil {
			b.Fatal(err)
		}
		in.Close()
		if err := child.Wait(); err != nil {
			b.Fatal(err)
		}
		us += took
		anon += kilobytes(b, status, "RssAnon:")
		rss += kilobytes(b, status, "VmRSS:")
	}
	n := float64(b.N)
	b.ReportMetric(us/1000/n, "open-ms")
	b.ReportMetric(anon/1024/n, "anon-MB")
	b.ReportMetric(rss/1024/n, "rss-MB")
	b.ReportMetric(0, "ns/op")
}

func kilobytes(b *testing.B, status []byte, field string) float64 {
	_, after, _ := bytes.Cut(status, []byte(field))
	n, err := strconv.ParseFloat(string(bytes.Fields(after)[0]), 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func BenchmarkEmbeddedAppend(b *testing.B) {
	s := openFolder(b, b.TempDir(), defaultLimits)
	defer s.Close()
	const series = 3000
	from, n := time.Now().Add(-24*time.Hour), 0
	samples := batch(from, series, series)
	for b.Loop() {
		for i := range samples {
			samples[i].At = from.Add(time.Duration(n) * time.Second)
		}
		report, err := s.Append(b.Context(), samples)
		if err != nil || report.Stored != series {
			b.Fatalf("append: %+v, %v", report, err)
		}
		n++
	}
	b.ReportMetric(float64(n)*series/b.Elapsed().Seconds(), "samples/s")
}

func BenchmarkEmbeddedQueryRange(b *testing.B) {
	s := openFolder(b, b.TempDir(), defaultLimits)
	defer s.Close()
	const series, hour = 3000, 240 // every 15 s
	from := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range hour {
		samples := batch(from.Add(time.Duration(i)*15*time.Second), series, series)
		if _, err := s.Append(b.Context(), samples); err != nil {
			b.Fatal(err)
		}
	}
	for _, expr := range []string{"use", "avg by (center) (use)", "topk(10, avg_over_time(use[5m]))"} {
		b.Run(expr, func(b *testing.B) {
			for b.Loop() {
				got, err := s.QueryRange(b.Context(), expr, from, from.Add(time.Hour), 45*time.Second)
				if err != nil || len(got) == 0 {
					b.Fatalf("%d series, %v", len(got), err)
				}
			}
		})
	}
}
