package metering_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/metering/rate"
)

// epoch is when the runs of these tests take place.
var epoch = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func open(t *testing.T, d *db.DB) (*metering.Service, *logBuffer) {
	t.Helper()
	logs := &logBuffer{}
	s, err := metering.New(t.Context(), d, slog.New(slog.NewTextHandler(logs, nil)))
	must(t, err)
	return s, logs
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// logBuffer holds what was logged.
type logBuffer struct {
	mu sync.Mutex // guards b

	b bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) lines(with string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, with) {
			out = append(out, line)
		}
	}
	return out
}

func record(t *testing.T, d *db.DB, s *metering.Service, records ...metering.Record) {
	t.Helper()
	must(t, d.Tx(t.Context(), func(tx *db.Tx) error { return s.RecordTx(t.Context(), tx, records) }))
}

// run is a record of job j, replica i, of an hour at 5 yuan.
func run(j string, i int) metering.Record {
	return metering.Record{
		AttemptID: fmt.Sprintf("att_%s_%04d", j, i), JobID: j, TenantID: "ten_a", UserName: "lin", TaskName: "train",
		TaskIndex: 1, ReplicaIndex: int32(i), Attempt: 2, AICenterID: "center-1", ResourceSpecID: "spec-1",
		StartedAt: epoch, EndedAt: epoch.Add(time.Hour), CPUMicros: 3_599_000_000, MemoryPeakBytes: 1 << 31, Price: 500,
	}
}

// priced is r as it is kept, by exact fractions.
func priced(r metering.Record) metering.Record {
	exact := new(big.Rat).SetFrac64(r.EndedAt.Sub(r.StartedAt).Microseconds(), 3_600_000_000)
	exact.Mul(exact, new(big.Rat).SetInt64(r.Price*10_000))
	exact.Add(exact, big.NewRat(1, 2))
	r.CostMicros = new(big.Int).Div(exact.Num(), exact.Denom()).Int64()
	return r
}

// random returns n records of a few tenants, jobs, centers, users and times,
// with many equal ends, in no order.
func random(r *rand.Rand, n int) []metering.Record {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	out := make([]metering.Record, n)
	for i := range out {
		tenant := pick("ten_a", "ten_b", "ten_c")
		end := epoch.Add(time.Duration(r.IntN(40)) * time.Minute)
		if r.IntN(2) == 0 {
			end = end.Add(time.Duration(r.IntN(60_000_000)) * time.Microsecond)
		}
		out[i] = priced(metering.Record{
			AttemptID: fmt.Sprintf("att_%08x_%d", r.Uint32(), i), JobID: "job_" + tenant + pick("1", "2", "3", "4"), TenantID: tenant,
			UserName: pick("lin", "陈", "o'hara", ""), TaskName: pick("train", "=1+1", "@SUM(A1)", "-x", "a,\"b\"", "'quoted", "评估"),
			TaskIndex: r.Int32N(3), ReplicaIndex: r.Int32N(5), Attempt: 1 + r.Int32N(4),
			AICenterID: pick("center-1", "center-2", "+center"), ResourceSpecID: pick("cpu-1", "gpu-8"),
			StartedAt: end.Add(-time.Duration(r.Int64N(1<<(1+r.IntN(40)))) * time.Microsecond), EndedAt: end,
			CPUMicros: r.Int64N(1 << 40), MemoryPeakBytes: r.Int64N(1 << 40), Price: r.Int64N(20_000),
		})
	}
	return out
}

// newestFirst sorts as lists do.
func newestFirst(records []metering.Record) {
	slices.SortFunc(records, func(a, b metering.Record) int {
		if c := b.EndedAt.Compare(a.EndedAt); c != 0 {
			return c
		}
		return strings.Compare(b.AttemptID, a.AttemptID)
	})
}

// all returns every record f selects, in pages of size.
func all(t *testing.T, s *metering.Service, f metering.Filter, size int) []metering.Record {
	t.Helper()
	var out []metering.Record
	for token := ""; ; {
		page, next, err := s.List(t.Context(), f, size, token)
		must(t, err)
		if len(page) > size {
			t.Fatalf("a page of %d records, at most %d wanted", len(page), size)
		}
		out = append(out, page...)
		if next == "" {
			return out
		}
		token = next
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, logs := open(t, d)
		records := random(rand.New(rand.NewPCG(5, 6)), 333) // chunks of every size
		given := slices.Clone(records)
		for i := range records {
			records[i].CostMicros = 7 // whoever records does not price
		}
		before := slices.Clone(records)
		record(t, d, s, records...)
		if diff := cmp.Diff(before, records); diff != "" {
			t.Errorf("RecordTx changed its argument: %s", diff)
		}
		newestFirst(given)
		if diff := cmp.Diff(given, all(t, s, metering.Filter{}, 1000)); diff != "" {
			t.Errorf("kept records differ (-given +kept): %s", diff)
		}
		record(t, d, s) // none is fine
		if got := logs.lines(""); len(got) > 0 {
			t.Errorf("logged %q", got)
		}
	})
}

func TestRecordCutsTimesToMicroseconds(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := open(t, d)
		r := run("job_1", 0)
		r.StartedAt = epoch.Add(999).In(time.FixedZone("CST", 8*3600))
		r.EndedAt = epoch.Add(720*time.Millisecond + 999)
		r.Price = 1
		record(t, d, s, r)
		got := all(t, s, metering.Filter{}, 10)
		if len(got) != 1 || !got[0].StartedAt.Equal(epoch) || got[0].Duration() != 720*time.Millisecond || got[0].CostMicros != 2 {
			t.Errorf("kept %+v, want 720ms from %s at 2 micro-yuan", got, epoch)
		}
	})
}

func TestRecordOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, logs := open(t, d)
		first := run("job_1", 0)
		record(t, d, s, first)

		record(t, d, s, first)
		if got := logs.lines(""); len(got) > 0 {
			t.Errorf("the same usage again logged %q", got)
		}

		other := first
		other.StartedAt, other.EndedAt = epoch.Add(time.Minute), epoch.Add(3*time.Hour)
		record(t, d, s, other, run("job_1", 1))
		want := []string{"level=WARN", "component=metering", "attempt_id=" + first.AttemptID, "job_id=job_1",
			"kept_started_at=2026-03-01T08:00:00.000Z", "kept_ended_at=2026-03-01T09:00:00.000Z",
			"refused_started_at=2026-03-01T08:01:00.000Z", "refused_ended_at=2026-03-01T11:00:00.000Z"}
		got := logs.lines("")
		if len(got) != 1 {
			t.Fatalf("logged %q, want one line", got)
		}
		for _, w := range want {
			if !strings.Contains(got[0], w) {
				t.Errorf("log %q lacks %q", got[0], w)
			}
		}
		kept := all(t, s, metering.Filter{}, 10)
		if diff := cmp.Diff([]metering.Record{priced(run("job_1", 1)), priced(first)}, kept); diff != "" {
			t.Errorf("kept (-want +got): %s", diff)
		}

		dearer := first
		dearer.Price++
		record(t, d, s, dearer)
		if got := logs.lines(first.AttemptID); len(got) != 2 {
			t.Errorf("another price logged %q, want a second line", got)
		}
	})
}

func TestRecordOnceInOneCall(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, logs := open(t, d)
		first, same, other := run("job_1", 0), run("job_1", 0), run("job_1", 0)
		other.EndedAt = other.EndedAt.Add(time.Second)
		record(t, d, s, run("job_1", 1), first, same, other)
		if diff := cmp.Diff([]metering.Record{priced(run("job_1", 1)), priced(first)}, all(t, s, metering.Filter{}, 10)); diff != "" {
			t.Errorf("kept (-want +got): %s", diff)
		}
		if got := logs.lines(first.AttemptID); len(got) != 1 {
			t.Errorf("logged %q, want one line for the one that differs", got)
		}
	})
}

func TestRecordFollowsTheTransaction(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, logs := open(t, d)
		record(t, d, s, run("job_1", 0))
		other := run("job_1", 0)
		other.EndedAt = other.EndedAt.Add(time.Second)
		boom := errors.New("boom")
		err := d.Tx(t.Context(), func(tx *db.Tx) error {
			if err := s.RecordTx(t.Context(), tx, []metering.Record{other, run("job_1", 1)}); err != nil {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatalf("transaction: %v, want boom", err)
		}
		if got := all(t, s, metering.Filter{}, 10); len(got) != 1 {
			t.Errorf("kept %d records after a rollback, want 1", len(got))
		}
		if got := logs.lines(""); len(got) > 0 {
			t.Errorf("a rollback logged %q", got)
		}
	})
}

func TestRecordRejects(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	s, _ := open(t, d)
	for _, c := range []struct {
		path, problem string
		change        func(*metering.Record)
	}{
		{"usage[1].attempt_id", "is required", func(r *metering.Record) { r.AttemptID = "" }},
		{"usage[1].job_id", "is required", func(r *metering.Record) { r.JobID = "" }},
		{"usage[1].tenant_id", "is required", func(r *metering.Record) { r.TenantID = "" }},
		{"usage[1].ai_center_id", "is required", func(r *metering.Record) { r.AICenterID = "" }},
		{"usage[1].resource_spec_id", "at most 128 characters, got 129", func(r *metering.Record) { r.ResourceSpecID = strings.Repeat("x", 129) }},
		{"usage[1].user_name", "valid UTF-8", func(r *metering.Record) { r.UserName = "\xff" }},
		{"usage[1].task_name", "control characters", func(r *metering.Record) { r.TaskName = "a\x00" }},
		{"usage[1].task_index", "at least 0, got -1", func(r *metering.Record) { r.TaskIndex = -1 }},
		{"usage[1].replica_index", "at least 0, got -2", func(r *metering.Record) { r.ReplicaIndex = -2 }},
		{"usage[1].attempt", "at least 0, got -3", func(r *metering.Record) { r.Attempt = -3 }},
		{"usage[1].cpu_microseconds", "at least 0, got -4", func(r *metering.Record) { r.CPUMicros = -4 }},
		{"usage[1].memory_peak_bytes", "at least 0, got -5", func(r *metering.Record) { r.MemoryPeakBytes = -5 }},
		{"usage[1].price", "between 0 and 1000000000000 fen per hour, got -6", func(r *metering.Record) { r.Price = -6 }},
		{"usage[1].price", "between 0 and 1000000000000 fen per hour, got 1000000000001", func(r *metering.Record) { r.Price = rate.MaxPrice + 1 }},
		{"usage[1].started_at", "1970 and 9999", func(r *metering.Record) { r.StartedAt = time.Time{} }},
		{"usage[1].ended_at", "1970 and 9999", func(r *metering.Record) { r.EndedAt = time.Time{} }},
		{"usage[1].ended_at", "not be before started_at 2026-03-01T08:00:00Z, got 2026-03-01T07:59:59.999999Z", func(r *metering.Record) { r.EndedAt = epoch.Add(-time.Microsecond) }},
		{"usage[1].ended_at", "duration must be between 0 and 876600h0m0s", func(r *metering.Record) { r.EndedAt = epoch.AddDate(101, 0, 0) }},
		{"usage[1].ended_at", "cost must be at most", func(r *metering.Record) { r.Price, r.EndedAt = rate.MaxPrice, epoch.AddDate(99, 0, 0) }},
	} {
		r := run("job_1", 1)
		c.change(&r)
		err := d.Tx(t.Context(), func(tx *db.Tx) error {
			return s.RecordTx(t.Context(), tx, []metering.Record{run("job_1", 0), r})
		})
		fields := fault.FieldsOf(err)
		if fault.KindOf(err) != fault.Invalid || len(fields) != 1 || fields[0].Path != c.path || !strings.Contains(fields[0].Problem, c.problem) {
			t.Errorf("%s: got %v, want %q", c.path, err, c.problem)
		}
	}
	if got := all(t, s, metering.Filter{}, 10); len(got) != 0 {
		t.Errorf("refused batches left %d records", len(got))
	}
}

func TestRecordIsOnceUnderConcurrency(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, logs := open(t, d)
		const writers, runs = 8, 40
		var wg sync.WaitGroup
		var mu sync.Mutex
		committed := 0
		for w := range writers {
			wg.Go(func() {
				mine := make([]metering.Record, runs)
				for i := range mine {
					mine[i] = run("job_1", i)
					mine[i].EndedAt = epoch.Add(time.Duration(w+1) * time.Hour) // each says something else
				}
				rand.New(rand.NewPCG(uint64(w), 1)).Shuffle(runs, func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
				for half := range slices.Chunk(mine, runs/2) {
					err := d.Tx(t.Context(), func(tx *db.Tx) error { return s.RecordTx(t.Context(), tx, half) })
					if err != nil && fault.KindOf(err) != fault.Conflict {
						t.Errorf("writer %d: %v", w, err)
					}
					if err == nil {
						mu.Lock()
						committed += len(half)
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		kept := all(t, s, metering.Filter{}, 1000)
		var micros int64
		seen := map[string]bool{}
		for _, r := range kept {
			if seen[r.AttemptID] {
				t.Errorf("run %s has two records", r.AttemptID)
			}
			seen[r.AttemptID] = true
			micros += r.CostMicros
			if want := r.Duration().Hours() * 5_000_000; float64(r.CostMicros) != want || r.Duration()%time.Hour != 0 {
				t.Errorf("record %+v mixes two writers", r)
			}
		}
		// Every committed record was either kept or reported, none both.
		if got := len(logs.lines("recorded again")); len(kept)+got != committed || len(kept) == 0 {
			t.Errorf("%d records kept and %d discrepancies logged of %d committed", len(kept), got, committed)
		}
		sum, n, err := s.Summary(t.Context(), "ten_a", time.Time{})
		if err != nil || sum != micros || n != int64(len(kept)) {
			t.Errorf("summary = %d micro-yuan of %d runs, %v; want %d of %d", sum, n, err, micros, len(kept))
		}
	})
}

func TestRestartKeepsRecords(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "y.db") },
		"postgres": func(t *testing.T) string { return enginetest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := url(t)
			var before metering.Cost
			for i := range 3 { // a process, its restart, and one more
				d, err := db.Open(t.Context(), db.Config{URL: at}, slog.New(slog.DiscardHandler))
				must(t, err)
				s, logs := open(t, d)
				record(t, d, s, run("job_1", 0), run("job_1", 1)) // told again after each restart
				got, err := s.JobCost(t.Context(), "", "job_1")
				must(t, err)
				if i == 0 {
					before = got
				}
				if diff := cmp.Diff(before, got); diff != "" || got.TotalMicros != 10_000_000 || len(logs.lines("")) > 0 {
					t.Errorf("start %d: cost %+v, logs %q; difference to the first start: %s", i, got, logs.lines(""), diff)
				}
				must(t, d.Close())
			}
		})
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := open(t, d)
		r := rand.New(rand.NewPCG(7, 8))
		records := random(r, 400)
		record(t, d, s, records...)
		newestFirst(records)
		pick := func(values ...string) string { return values[r.IntN(len(values))] }
		at := func() time.Time {
			if r.IntN(3) > 0 {
				return time.Time{}
			}
			// Some between two microseconds, some exactly at an end.
			return records[r.IntN(len(records))].EndedAt.Add(time.Duration(r.IntN(3)-1) * 500)
		}
		some := 0
		for range 150 {
			f := metering.Filter{
				TenantID: pick("", "", "ten_a", "ten_b", "ten_x"), JobID: pick("", "", "", "job_ten_a1", "job_ten_b2"),
				AICenterID: pick("", "", "center-1", "+center"), UserName: pick("", "", "陈", "o'hara"), EndedAfter: at(), EndedBefore: at(),
			}
			if f.EndedBefore.Before(f.EndedAfter) {
				f.EndedBefore = time.Time{}
			}
			var want []metering.Record
			for _, x := range records {
				if (f.TenantID == "" || x.TenantID == f.TenantID) && (f.JobID == "" || x.JobID == f.JobID) &&
					(f.AICenterID == "" || x.AICenterID == f.AICenterID) && (f.UserName == "" || x.UserName == f.UserName) &&
					!x.EndedAt.Before(f.EndedAfter) && (f.EndedBefore.IsZero() || x.EndedAt.Before(f.EndedBefore)) {
					want = append(want, x)
				}
			}
			some += len(want)
			size := 1 + r.IntN(60)
			if diff := cmp.Diff(want, all(t, s, f, size)); diff != "" {
				t.Fatalf("list %+v in pages of %d (-want +got): %s", f, size, diff)
			}
		}
		if some == 0 {
			t.Error("no filter selected anything: the test tests nothing")
		}
	})
}

func TestListWhileRecording(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := open(t, d)
		r := rand.New(rand.NewPCG(9, 10))
		there := random(r, 100)
		record(t, d, s, there...)
		seen := map[string]int{}
		for token := ""; ; {
			page, next, err := s.List(t.Context(), metering.Filter{}, 7, token)
			must(t, err)
			for _, x := range page {
				seen[x.AttemptID]++
			}
			if token = next; token == "" {
				break
			}
			record(t, d, s, random(r, 1)...)
		}
		for _, x := range there {
			if seen[x.AttemptID] != 1 {
				t.Errorf("run %s, there from the start, was listed %d times", x.AttemptID, seen[x.AttemptID])
			}
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("run %s was listed %d times", id, n)
			}
		}
	})
}

func TestListRejects(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	s, _ := open(t, d)
	record(t, d, s, run("job_1", 0), run("job_1", 1))
	_, token, err := s.List(t.Context(), metering.Filter{}, 1, "")
	must(t, err)
	if token == "" {
		t.Fatal("no token for the second page")
	}
	for _, c := range []struct {
		path  string
		f     metering.Filter
		size  int
		token string
	}{
		{"page_size", metering.Filter{}, 0, ""},
		{"page_size", metering.Filter{}, 1001, ""},
		{"page_token", metering.Filter{}, 1, "x"},
		{"page_token", metering.Filter{}, 1, token + "A"},
		{"page_token", metering.Filter{}, 1, "WyJ4IiwieSJd"},         // ["x","y"]
		{"page_token", metering.Filter{}, 1, "WyIxIiwiYVx1MDAwMCJd"}, // ["1","a\u0000"]
		{"page_token", metering.Filter{}, 1, strings.Repeat("A", 2000)},
		{"job_id", metering.Filter{JobID: "a\x00"}, 1, ""},
		{"user_name", metering.Filter{UserName: strings.Repeat("x", 129)}, 1, ""},
		{"ended_before", metering.Filter{EndedAfter: epoch, EndedBefore: epoch.Add(-1)}, 1, ""},
	} {
		_, _, err := s.List(t.Context(), c.f, c.size, c.token)
		fields := fault.FieldsOf(err)
		if fault.KindOf(err) != fault.Invalid || len(fields) != 1 || fields[0].Path != c.path {
			t.Errorf("List(%+v, %d, %q): %v; want %s invalid", c.f, c.size, c.token, err, c.path)
		}
	}
}

// fill adds n runs of job_1, each of an hour at 5 yuan, in one statement:
// record by record takes a minute under the race detector.
func fill(t *testing.T, d *db.DB, n int, spec string) {
	t.Helper()
	must(t, d.Tx(t.Context(), func(tx *db.Tx) error {
		added, err := tx.Exec(t.Context(), `WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $1)
			INSERT INTO usage (attempt_id, job_id, tenant_id, user_name, task_name, task_index, replica_index, attempt, ai_center_id,
				resource_spec_id, started_at, ended_at, cpu_micros, memory_peak, price, cost_micros)
			SELECT CAST(i AS TEXT), 'job_1', 'ten_a', 'lin', 'train', 0, i, 1, 'center-1', $2, 1, 3600000001, 0, 0, 500, 5000000 FROM n`, n, spec)
		if added != int64(n) {
			t.Errorf("filled %d rows, want %d", added, n)
		}
		return err
	}))
}

// jobs is the tenants of known jobs.
type jobs map[string]string

func (j jobs) JobTenant(_ context.Context, id string) (string, bool, error) {
	if id == "job_broken" {
		return "", false, errors.New("disk on fire")
	}
	tenant, ok := j[id]
	return tenant, ok, nil
}

func TestJobCost(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := open(t, d)
		third := func(i int) metering.Record {
			r := run("job_1", i)
			r.Price, r.EndedAt = 1, epoch.Add(20*time.Minute) // 3333.33 micro-yuan
			return r
		}
		record(t, d, s, third(2), third(0), third(1), run("job_2", 0))
		s.Jobs = jobs{"job_1": "ten_a", "job_2": "ten_a", "job_idle": "ten_a"}

		got, err := s.JobCost(t.Context(), "ten_a", "job_1")
		must(t, err)
		want := metering.Cost{JobID: "job_1", TotalMicros: 9_999, TotalFen: 1, Lines: []metering.CostLine{
			{Record: priced(third(0)), Fen: 1}, {Record: priced(third(1))}, {Record: priced(third(2))},
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("cost (-want +got): %s", diff)
		}
		for _, tenant := range []string{"ten_a", ""} {
			got, err = s.JobCost(t.Context(), tenant, "job_idle")
			if diff := cmp.Diff(metering.Cost{JobID: "job_idle", Lines: []metering.CostLine{}}, got); err != nil || diff != "" {
				t.Errorf("cost of a job without usage for tenant %q: %v, %s", tenant, err, diff)
			}
		}
		for _, c := range []struct {
			tenant, job string
			kind        fault.Kind
		}{
			{"ten_b", "job_1", fault.NotFound}, {"ten_b", "job_idle", fault.NotFound}, {"ten_a", "job_x", fault.NotFound},
			{"", "job_x", fault.NotFound}, {"ten_a", "job_broken", fault.Internal}, {"ten_a", "", fault.Invalid}, {"ten_a", "a\x00", fault.Invalid},
		} {
			if _, err := s.JobCost(t.Context(), c.tenant, c.job); err == nil || fault.KindOf(err) != c.kind {
				t.Errorf("JobCost(%q, %q): %v, want %s", c.tenant, c.job, err, c.kind)
			}
		}
		s.Jobs = nil
		if _, err := s.JobCost(t.Context(), "ten_a", "job_idle"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("without Jobs: %v, want not found", err)
		}
	})
}

func TestJobCostIsBounded(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	s, _ := open(t, d)
	fill(t, d, 10_000, "spec-1")
	got, err := s.JobCost(t.Context(), "ten_a", "job_1")
	if err != nil || len(got.Lines) != 10_000 || got.TotalFen != 10_000*500 {
		t.Errorf("cost of 10000 runs: %d lines, %d fen, %v", len(got.Lines), got.TotalFen, err)
	}
	record(t, d, s, run("job_1", 0))
	if _, err = s.JobCost(t.Context(), "ten_a", "job_1"); fault.KindOf(err) != fault.TooLarge || !strings.Contains(err.Error(), "10000") {
		t.Errorf("cost of 10001 runs: %v, want too large", err)
	}
}

func TestSumsThatDoNotFit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := open(t, d)
		a, b := run("job_1", 0), run("job_1", 1)
		a.Price, a.EndedAt = 1_000_000_000, epoch.Add(rate.MaxDuration)
		b.Price, b.EndedAt = a.Price, a.EndedAt
		record(t, d, s, a, b)
		if _, err := s.JobCost(t.Context(), "", "job_1"); err == nil || !strings.Contains(err.Error(), "2^63") {
			t.Errorf("JobCost: %v, want an error", err)
		}
		if got, _, err := s.Summary(t.Context(), "", time.Time{}); err == nil {
			t.Errorf("Summary = %d, want an error", got)
		}
	})
}

func TestJobCostsTx(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := open(t, d)
		var records []metering.Record
		var ids []string
		want := map[string]int64{}
		for j := range 150 {
			id := fmt.Sprintf("job_%d", j)
			ids = append(ids, id)
			for i := range j % 4 {
				r := run(id, i)
				r.Price = int64(j)
				records = append(records, r)
				want[id] += priced(r).CostMicros
			}
		}
		ids = append(ids, ids[:10]...) // asked twice
		err := d.Tx(t.Context(), func(tx *db.Tx) error {
			if err := s.RecordTx(t.Context(), tx, records); err != nil {
				return err
			}
			got, err := s.JobCostsTx(t.Context(), tx, ids) // sees its own transaction
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("costs (-want +got): %s", diff)
			}
			if none, err := s.JobCostsTx(t.Context(), tx, nil); err != nil || len(none) != 0 {
				t.Errorf("costs of no jobs: %v, %v", none, err)
			}
			return err
		})
		must(t, err)
	})
}

func TestSummary(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := open(t, d)
		records := random(rand.New(rand.NewPCG(11, 12)), 200)
		record(t, d, s, records...)
		for _, tenant := range []string{"", "ten_a", "ten_x"} {
			for _, since := range []time.Time{{}, epoch.Add(20 * time.Minute), epoch.Add(24 * time.Hour)} {
				var micros, runs int64
				for _, r := range records {
					if (tenant == "" || r.TenantID == tenant) && !r.EndedAt.Before(since) {
						micros, runs = micros+r.CostMicros, runs+1
					}
				}
				gotMicros, gotRuns, err := s.Summary(t.Context(), tenant, since)
				if err != nil || gotMicros != micros || gotRuns != runs {
					t.Errorf("Summary(%q, %s) = %d, %d, %v; want %d, %d", tenant, since, gotMicros, gotRuns, err, micros, runs)
				}
			}
		}
	})
}
