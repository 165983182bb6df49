package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/samples"
)

// open are the runs of a test: by attempt, tenant/job@center.
type open map[string]string

func (o open) owners(_ context.Context, ids []string) (map[string]monitor.Owner, error) {
	out := map[string]monitor.Owner{}
	for _, id := range ids {
		if text, ok := o[id]; ok {
			tenant, rest, _ := strings.Cut(text, "/")
			job, center, _ := strings.Cut(rest, "@")
			out[id] = monitor.Owner{TenantID: tenant, JobID: job, JobName: "name of " + job, CenterID: center, Task: "main", Replica: 3, Reserved: core.Quantities{core.CPU: 2000, core.Memory: 1 << 30}}
		}
	}
	return out, nil
}

func uses(at time.Time, list ...*adapterv1.AttemptUse) *adapterv1.Measurement {
	return &adapterv1.Measurement{MeasuredAt: timestamppb.New(at), Attempts: list}
}

func use(id string, milli, memory int64) *adapterv1.AttemptUse {
	return &adapterv1.AttemptUse{AttemptId: id, CpuMilli: milli, MemoryBytes: memory}
}

func TestGatherRuns(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	clock, logs := now, &logBuffer{}
	in := monitor.NewIntake(func() time.Time { return clock }, logs.logger())
	runs, asked, broken := open{"a1": "t1/j1@c1", "a2": "t2/j2@c2"}, []string(nil), error(nil)
	in.Owners = func(ctx context.Context, ids []string) (map[string]monitor.Owner, error) {
		asked = append(asked, ids...)
		if broken != nil {
			return nil, broken
		}
		return runs.owners(ctx, ids)
	}
	gather := func() []string {
		t.Helper()
		got, err := in.GatherRuns(t.Context())
		must(t, err)
		var out []string
		for _, s := range got {
			if !s.At.Equal(clock) {
				t.Errorf("sample of %s, want %s, when it came", s.At, clock)
			}
			out = append(out, fmt.Sprintf("%s %s %s/%s of %s/%s at %s = %g", s.Name, s.Labels.Get("attempt_id"), s.Labels.Get("task"), s.Labels.Get("replica"),
				s.Labels.Get("tenant"), s.Labels.Get("job_id"), s.Labels.Get("ai_center_id"), s.Value))
		}
		return out
	}
	want := func(what string, lines ...string) {
		t.Helper()
		if d := cmp.Diff(lines, gather()); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	// A center cannot say anything of what runs elsewhere, or nowhere.
	in.TakeMessage("c1", uses(clock, use("a1", 1500, 1<<20), use("a2", 9000, 1), use("nobody's", 9000, 1)))
	want("only what runs at the center", "yunhe_run_cpu_cores a1 main/3 of t1/j1 at c1 = 1.5", "yunhe_run_memory_bytes a1 main/3 of t1/j1 at c1 = 1.048576e+06")
	want("nothing twice")

	// Who owns a run is asked once; what comes sooner than anyone looks is passed over.
	asked = nil
	clock = now.Add(time.Second)
	in.TakeMessage("c1", uses(clock, use("a1", 1, 1)))
	want("sooner than anyone looks")
	clock = now.Add(10 * time.Second)
	in.TakeMessage("c1", uses(clock, use("a1", 0, 0)))
	want("nothing used is a figure", "yunhe_run_cpu_cores a1 main/3 of t1/j1 at c1 = 0", "yunhe_run_memory_bytes a1 main/3 of t1/j1 at c1 = 0")
	if len(asked) != 0 {
		t.Errorf("asked again whose %v are", asked)
	}

	// What cannot be is refused, and said once though it is in some messages only.
	for _, m := range []*adapterv1.Measurement{
		uses(clock, use("a1", -1, 1), use("a1", 1, 1), use("", 1, 1), use("a2", 1, -1), use("a3", 1<<40, 1)), uses(clock), uses(clock, use("a1", -1, 1)), uses(clock),
	} {
		clock = clock.Add(10 * time.Second)
		m.MeasuredAt = timestamppb.New(clock)
		in.TakeMessage("c1", m)
		want("what is refused has no sample")
	}
	var said []string
	for _, l := range logs.lines("") {
		said = append(said, l[strings.Index(l, "msg="):])
	}
	if len(said) != 2 || !strings.Contains(said[0], "attempts[].cpu_milli") || !strings.Contains(said[0], "attempts[].memory_bytes") || !strings.Contains(said[0], "attempts[].attempt_id") {
		t.Errorf("logged %q, want what is refused, and once that it is less", said)
	}

	// Where nobody can say whose a run is, there is no figure, and there is one again.
	clock = clock.Add(5 * time.Minute) // forgotten
	broken = errors.New("no database")
	in.TakeMessage("c1", uses(clock, use("a1", 1, 1)))
	if _, err := in.GatherRuns(t.Context()); !errors.Is(err, broken) {
		t.Errorf("owners cannot be asked: %v", err)
	}
	broken = nil
	delete(runs, "a1")
	clock = clock.Add(10 * time.Second)
	in.TakeMessage("c1", uses(clock, use("a1", 1, 1)))
	want("a run that has ended")
}

func TestRunFigures(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, store *samples.Store) {
		now := time.Now().Truncate(time.Second)
		clock := now
		runs := open{"a1": "t1/j1@c1", "a2": "t1/j1@c1", "a3": "t1/j2@c1", "b1": "t2/k1@c1", "gone": "t1/j1@c1"}
		in := monitor.NewIntake(func() time.Time { return clock }, slog.New(slog.DiscardHandler))
		in.Owners = runs.owners
		s := monitor.New(store, slog.New(slog.DiscardHandler))
		s.Now = func() time.Time { return clock }
		s.Owners = runs.owners
		s.Job = func(ctx context.Context, id string) error {
			for text := range maps.Values(runs) {
				if tenant, rest, _ := strings.Cut(text, "/"); strings.HasPrefix(rest, id+"@") && core.CallerFrom(ctx).Sees(tenant) {
					return nil
				}
			}
			return fault.New(fault.NotFound, "there is no job %q", id)
		}
		take := func(list ...*adapterv1.AttemptUse) {
			in.TakeMessage("c1", uses(clock, list...))
			got, err := in.GatherRuns(t.Context())
			must(t, err)
			fill(t, store, got)
		}
		clock = now.Add(-20 * time.Second)
		take(use("a1", 4000, 1<<30), use("a2", 100, 1<<20), use("a3", 1500, 5), use("b1", 7000, 6), use("gone", 9000, 7))
		clock = now
		take(use("a1", 500, 2<<30), use("b1", 7500, 6))
		delete(runs, "gone")

		figures := func(c core.Caller, job string, limit int) string {
			t.Helper()
			list, err := s.RunFigures(as(t.Context(), c), job, limit)
			if err != nil {
				return fault.KindOf(err).String()
			}
			var out []string
			for _, f := range list {
				out = append(out, fmt.Sprintf("%s %s %g %d", f.AttemptID, f.JobID, f.CPU, f.Memory))
				if f.JobName != "name of "+f.JobID || f.Task != "main" || f.Replica != 3 || f.CenterID != "c1" || f.Reserved[core.CPU] != 2000 {
					t.Errorf("%s is of %+v", f.AttemptID, f.Owner)
				}
				if at := map[bool]time.Time{true: now, false: now.Add(-20 * time.Second)}[f.AttemptID == "a1" || f.AttemptID == "b1"]; !f.At.Equal(at) {
					t.Errorf("%s was measured at %s, want %s", f.AttemptID, f.At, at)
				}
			}
			return strings.Join(out, ", ")
		}
		own, other, all := core.Caller{TenantID: "t1"}, core.Caller{TenantID: "t2"}, core.Caller{AllTenants: true}
		for _, x := range []struct {
			what   string
			caller core.Caller
			job    string
			limit  int
			want   string
		}{
			{"own runs, the most CPU first, none that has ended", own, "", 0, "a3 j2 1.5 5, a1 j1 0.5 2147483648, a2 j1 0.1 1048576"},
			{"of one job", own, "j1", 0, "a1 j1 0.5 2147483648, a2 j1 0.1 1048576"},
			{"of another tenant", other, "", 0, "b1 k1 7.5 6"},
			{"a job of another tenant", other, "j1", 0, fault.NotFound.String()},
			{"of all tenants", all, "", 0, "b1 k1 7.5 6, a3 j2 1.5 5, a1 j1 0.5 2147483648, a2 j1 0.1 1048576"},
			{"the first of all", all, "", 1, "b1 k1 7.5 6"},
			{"of no tenant", core.Caller{}, "", 0, fault.Denied.String()},
			{"too many", all, "", 201, fault.Invalid.String()},
			{"fewer than none", all, "", -1, fault.Invalid.String()},
			{"no ID", all, `x"}`, 0, fault.Invalid.String()},
		} {
			if got := figures(x.caller, x.job, x.limit); got != x.want {
				t.Errorf("%s: got %q, want %q", x.what, got, x.want)
			}
		}
		// A tenant's own query shows its own curves.
		series, err := s.QueryRange(as(t.Context(), own), monitor.Range{Query: "yunhe_run_cpu_cores", Start: now.Add(-time.Minute), End: now})
		must(t, err)
		var ids []string
		for _, x := range series {
			ids = append(ids, x.Labels.Get("attempt_id"))
		}
		if slices.Sort(ids); !slices.Equal(ids, []string{"a1", "a2", "a3", "gone"}) {
			t.Errorf("curves of %v", ids)
		}
		// What is not measured any more is not known any more.
		clock = now.Add(30 * time.Second)
		if got := figures(own, "", 0); got != "a1 j1 0.5 2147483648" {
			t.Errorf("after 30 s: %s", got)
		}
		clock = now.Add(time.Minute)
		if got := figures(own, "", 0); got != "" {
			t.Errorf("after a minute: %s", got)
		}
	})
}
