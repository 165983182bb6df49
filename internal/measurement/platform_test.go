package measurement_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/measurement"
	"yunhe.dev/yunhe/internal/measurement/report"
	"yunhe.dev/yunhe/internal/measurement/score"
	"yunhe.dev/yunhe/internal/registry"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func operator(ctx context.Context) context.Context {
	return core.WithCaller(ctx, core.Caller{UserID: "op", TenantID: "default", AllTenants: true, Permissions: map[string]bool{"registry.write": true, "registry.read": true}})
}

// needPrograms skips a test that sends the benchmark where the build has none.
func needPrograms(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("programs", "yunhe-bench-amd64.gz")); err != nil {
		t.Skip("SKIPPED: the programs of the benchmark were not built: make programs")
	}
}

// figures is an honest report of a machine that is so many times the reference.
func figures(times float64) *report.Report {
	r := &report.Report{Scope: report.Machine, Cores: 1, Host: "n1", Architecture: "amd64", Processor: "Test CPU", MHz: 3000, Medium: "ext4", Seconds: 20, Notes: []string{"a note"}}
	for _, w := range score.Weights() {
		r.Add(w.Indicator, w.Reference*times, -1)
	}
	r.Add(score.RoundTrip, 12, -1)
	return r
}

func devices(fp32 float64) *report.Report {
	r := &report.Report{Scope: report.Devices, Cores: 1, Devices: []report.Device{{API: "cuda", Class: "gpu", Units: 132, MHz: 1980, Name: "NVIDIA H200"}}}
	r.Add(score.DeviceFP32, fp32, 0)
	return r
}

// says plays a center whose runs print what next returns.
func says(next func(*apptest.Replica) (log string, exit int32)) func(*apptest.Replica) {
	return func(r *apptest.Replica) {
		r.Run()
		log, exit := next(r)
		r.Write(log)
		reason := "completed"
		if exit != 0 {
			reason = "exit"
		}
		r.End(reason, exit)
	}
}

func ended(t *testing.T, a *apptest.App, id string) measurement.Run {
	t.Helper()
	var r measurement.Run
	apptest.Until(t, "run "+id+" has ended", func() bool {
		var err error
		r, err = a.Measurement.Get(t.Context(), id)
		must(t, err)
		return r.State > measurement.Running
	})
	return r
}

func performance(t *testing.T, a *apptest.App, id string) (int64, string) {
	t.Helper()
	p, err := a.Measurement.Picture(t.Context(), id, false)
	must(t, err)
	return p.Performance, p.PerformanceFrom
}

func value(p measurement.Picture, indicator, node, part string) (measurement.Value, bool) {
	i := slices.IndexFunc(p.Values, func(v measurement.Value) bool { return v.Indicator == indicator && v.Node == node && v.Part == part })
	if i < 0 {
		return measurement.Value{}, false
	}
	return p.Values[i], true
}

// The benchmark goes through the job path and its figures become the center's
// factor, which placement reads, its history and its indicators.
func TestRun(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := operator(t.Context())
		times := 2.0
		c := a.Join(t, apptest.Center{ID: "c1", Performance: 700, CPU: 1000, Play: says(func(*apptest.Replica) (string, int32) { return "hello\n" + figures(times).Text(), 0 })})
		q := measurement.Request{RequestID: "first", CenterID: "c1"}
		r, err := a.Measurement.Start(ctx, q)
		must(t, err)
		if r.State != measurement.Running || r.JobID == "" || r.RequestedBy != "op" || r.SpecID == "" || r.ImageID != "host" {
			t.Errorf("started: %+v", r)
		}
		// What it sends is an ordinary job of the platform's tenant, at this center only.
		j := a.Admin.Job(t, r.JobID)
		task := j.Spec.Tasks[0]
		if j.TenantId != "default" || j.Spec.Labels[measurement.JobLabel] != r.ID || !slices.Equal(task.Constraints.Centers, []string{"c1"}) || len(task.Files) != 1 ||
			task.Files[0].Path != "yunhe-bench.gz" || len(task.Files[0].Content) < 100_000 || task.TimeoutSeconds == 0 || task.Network {
			t.Errorf("job of tenant %s, labels %v, task %s with %d files", j.TenantId, j.Spec.Labels, task.Command, len(task.Files))
		}
		if again, err := a.Measurement.Start(ctx, q); err != nil || again.ID != r.ID {
			t.Errorf("the same request again: %+v, %v", again, err)
		}
		r = ended(t, a, r.ID)
		if r.State != measurement.Succeeded || r.Performance != 2000 || r.Decision != measurement.Accepted || r.DecidedBy != "policy" || r.Result.Report.Processor != "Test CPU" {
			t.Fatalf("ended: %+v", r)
		}
		if got, from := performance(t, a, "c1"); got != 2000 || from != "measured" {
			t.Errorf("factor %d, %s", got, from)
		}
		k, err := a.Admin.Registry.GetCenter(ctx, &registryv1.GetCenterRequest{AiCenterId: "c1"})
		if err != nil || k.Performance != 2000 {
			t.Errorf("the registry's factor: %v, %v", k.GetPerformance(), err)
		}
		// It outlives what the center declares of itself.
		c.Disconnect()
		c.Connect()
		if got, _ := performance(t, a, "c1"); got != 2000 {
			t.Errorf("after the center declared itself again: %d", got)
		}
		p, err := a.Measurement.Picture(ctx, "c1", true)
		must(t, err)
		for indicator, want := range map[string]struct {
			number float64
			origin measurement.Origin
		}{
			"compute.cores": {1, measurement.Declared}, "memory.bandwidth": {10000, measurement.Measured}, "service.measured": {2000, measurement.Derived},
			"service.computing": {2000, measurement.Derived}, "service.storage": {2000, measurement.Derived}, "service.network": {2000, measurement.Derived},
			"service.performance": {2000, measurement.Measured}, "compute.frequency": {3000, measurement.Measured},
		} {
			if v, ok := value(p, indicator, "", ""); !ok || v.Number != want.number || v.Origin != want.origin || v.At.IsZero() {
				t.Errorf("%s: %+v, want %v of origin %d", indicator, v, want.number, want.origin)
			}
		}
		if v, _ := value(p, "compute.processor", "", ""); v.Text != "Test CPU" || len(p.Shares) != len(score.Weights()) || len(p.Runs) != 1 || !slices.Contains(p.Notes, "a note") {
			t.Errorf("processor %+v, %d shares, %d runs, notes %q", v, len(p.Shares), len(p.Runs), p.Notes)
		}
		// History stays.
		times = 1.5
		second, err := a.Measurement.Start(ctx, measurement.Request{CenterID: "c1"})
		must(t, err)
		if got := ended(t, a, second.ID); got.Performance != 1500 {
			t.Errorf("second run: %+v", got)
		}
		rows, next, err := a.Measurement.List(ctx, "c1", 1, "")
		if err != nil || len(rows) != 1 || rows[0].ID != second.ID || next == "" {
			t.Fatalf("page: %v, %q, %v", rows, next, err)
		}
		if rows, next, err = a.Measurement.List(ctx, "c1", 1, next); err != nil || len(rows) != 1 || rows[0].ID != r.ID || next != "" {
			t.Errorf("next page: %v, %q, %v", rows, next, err)
		}
		// The audit knows who asked.
		if res := a.Admin.REST(t, "POST", "/v1/measurement-runs", `{"aiCenterId":"c1"}`); res.Status != 200 {
			t.Errorf("by REST: %d %s", res.Status, res.Body)
		} else if ev := a.Admin.REST(t, "GET", "/v1/audit-events?page_size=20", ""); !strings.Contains(string(ev.Body), "RunMeasurement") {
			t.Errorf("audit: %s", ev.Body)
		}
	})
}

// What fails, cannot be, or is no report never becomes a factor.
func TestRunFails(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	a := apptest.Start(t, apptest.Options{})
	ctx := operator(t.Context())
	impossible := figures(1)
	for i := range impossible.Figures {
		impossible.Figures[i].Number *= 1000
	}
	many := figures(1)
	many.Cores = 64
	cut := figures(1).Text()
	for name, c := range map[string]struct {
		log   string
		exit  int32
		state measurement.State
		want  string
	}{
		"the program fails":     {"this node is riscv64 and the benchmark that came is for amd64\n", 3, measurement.Failed, "it printed: this node is riscv64"},
		"beyond the possible":   {impossible.Text(), 0, measurement.Refused, "more than"},
		"more cores than given": {many.Text(), 0, measurement.Refused, "64 cores worked"},
	} {
		id := "c-" + strings.ReplaceAll(name, " ", "-")
		a.Join(t, apptest.Center{ID: id, Performance: 700, CPU: 1000, Play: says(func(*apptest.Replica) (string, int32) { return c.log, c.exit })})
		r, err := a.Measurement.Start(ctx, measurement.Request{CenterID: id})
		must(t, err)
		r = ended(t, a, r.ID)
		if r.State != c.state || !strings.Contains(r.Message, c.want) || r.Performance != 0 || r.Decision != 0 {
			t.Errorf("%s: state %d, %q", name, r.State, r.Message)
		}
		if got, from := performance(t, a, id); got != 700 || from != "declared" {
			t.Errorf("%s: factor %d, %s", name, got, from)
		}
		if _, err := a.Measurement.Decide(ctx, r.ID, true); fault.KindOf(err) != fault.Conflict {
			t.Errorf("%s: accepted: %v", name, err)
		}
	}
	// A cut log is waited for, and the run goes on being open meanwhile.
	a.Join(t, apptest.Center{ID: "cut", Play: says(func(*apptest.Replica) (string, int32) { return cut[:len(cut)-20], 0 })})
	r, err := a.Measurement.Start(ctx, measurement.Request{CenterID: "cut"})
	must(t, err)
	a.Admin.AwaitState(t, r.JobID, jobsv1.State_STATE_SUCCEEDED)
	if _, err := a.Measurement.Start(ctx, measurement.Request{CenterID: "cut"}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a second run meanwhile: %v", err)
	}
	// A run whose job is deleted has failed.
	if res := a.Admin.REST(t, "DELETE", "/v1/jobs/"+r.JobID, ""); res.Status != 200 {
		t.Fatalf("delete: %s", res.Body)
	}
	if r = ended(t, a, r.ID); r.State != measurement.Failed || !strings.Contains(r.Message, "deleted") {
		t.Errorf("job deleted: %+v", r)
	}
}

func TestDevices(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	a := apptest.Start(t, apptest.Options{})
	ctx := operator(t.Context())
	fp32 := 58.0
	a.Join(t, apptest.Center{ID: "c1", Performance: 700, Play: says(func(*apptest.Replica) (string, int32) { return devices(fp32).Text(), 0 })})
	r, err := a.Measurement.Start(ctx, measurement.Request{CenterID: "c1", Scope: measurement.Devices})
	must(t, err)
	if r = ended(t, a, r.ID); r.State != measurement.Succeeded || r.Performance != 0 || r.Decision != 0 {
		t.Fatalf("devices: %+v", r)
	}
	p, err := a.Measurement.Picture(ctx, "c1", false)
	must(t, err)
	if v, ok := value(p, "accelerator.measured.fp32", "", "0 NVIDIA H200 (cuda)"); !ok || v.Number != 58 {
		t.Errorf("values %+v", p.Values)
	}
	if p.Performance != 700 {
		t.Errorf("an accelerator's rate became the factor: %d", p.Performance)
	}
	// A run of the center's cards is what they are said to do from then on.
	_, err = a.Registry.CreateSpec(ctx, registry.NewSpec{ID: "card", Quantity: map[string]string{core.CPU: "1", core.Memory: "1Gi", "gpu": "1"}, Price: 100})
	must(t, err)
	cards := 58.5
	a.Join(t, apptest.Center{ID: "cards", GPU: 8, Prices: map[string]int64{"card": 100}, Play: says(func(*apptest.Replica) (string, int32) { return devices(cards).Text(), 0 })})
	speeds := func() []registry.Speed {
		k, err := a.Registry.GetCenter(ctx, "cards")
		must(t, err)
		return k.Speeds
	}
	measure := func() measurement.Run {
		r, err := a.Measurement.Start(ctx, measurement.Request{CenterID: "cards", Scope: measurement.Devices})
		must(t, err)
		return ended(t, a, r.ID)
	}
	want := []registry.Speed{{Kind: "gpu", Precision: "FP32", Milli: 3000, Measured: true}}
	if r := measure(); r.Decision != measurement.Accepted || !slices.Equal(r.Result.Speeds, want) || !slices.Equal(speeds(), want) {
		t.Errorf("measured %+v, the center has %v", r, speeds())
	}
	// With the policy "confirm" somebody decides.
	set, err := a.Measurement.Settings(ctx)
	must(t, err)
	set.Policy = measurement.Confirm
	_, err = a.Measurement.SetSettings(ctx, set)
	must(t, err)
	cards = 39
	first, second := measure(), measure()
	if second.Decision != measurement.Awaited || !slices.Equal(speeds(), want) {
		t.Errorf("to be confirmed: %+v, the center has %v", second, speeds())
	}
	if _, err := a.Measurement.Decide(ctx, first.ID, true); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a run that was replaced: %v", err)
	}
	want[0].Milli = 2000
	if _, err := a.Measurement.Decide(ctx, second.ID, true); err != nil || !slices.Equal(speeds(), want) {
		t.Errorf("accepted: %v, the center has %v", err, speeds())
	}
	// More than the published peak is refused, and said.
	fp32 = 120
	r, err = a.Measurement.Start(ctx, measurement.Request{CenterID: "c1", Scope: measurement.Devices})
	must(t, err)
	if r = ended(t, a, r.ID); r.State != measurement.Refused || !strings.Contains(r.Message, "published peak of NVIDIA H200") {
		t.Errorf("beyond the peak: %+v", r)
	}
}

// With the policy "confirm", and where an operator stated a factor, somebody decides.
func TestDecide(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := operator(t.Context())
		a.Join(t, apptest.Center{ID: "c1", Performance: 700, CPU: 1000, Play: says(func(*apptest.Replica) (string, int32) { return figures(2).Text(), 0 })})
		set, err := a.Measurement.Settings(ctx)
		must(t, err)
		if set.Policy != measurement.Automatic || set.OnJoin || set.EveryDays != 0 || len(set.Weights) != len(score.Weights()) || set.Version != 1 {
			t.Errorf("settings at first: %+v", set)
		}
		set.Policy = measurement.Confirm
		set.Weights = []score.Weight{{Indicator: score.MemoryBandwidth, Reference: 2500, Weight: 1}}
		if set, err = a.Measurement.SetSettings(ctx, set); err != nil || set.Version != 2 {
			t.Fatalf("settings: %+v, %v", set, err)
		}
		old := set
		old.Version = 1
		if _, err := a.Measurement.SetSettings(ctx, old); fault.KindOf(err) != fault.Conflict {
			t.Errorf("an old version: %v", err)
		}
		measure := func() measurement.Run {
			r, err := a.Measurement.Start(ctx, measurement.Request{CenterID: "c1"})
			must(t, err)
			return ended(t, a, r.ID)
		}
		first := measure()
		if first.Performance != 4000 || first.Decision != measurement.Awaited {
			t.Fatalf("by other weights, to be confirmed: %+v", first)
		}
		second := measure()
		if got, _ := a.Measurement.Get(ctx, first.ID); got.Decision != measurement.Replaced {
			t.Errorf("the first after the second: %+v", got)
		}
		if _, err := a.Measurement.Decide(ctx, first.ID, true); fault.KindOf(err) != fault.Conflict {
			t.Errorf("accept a replaced one: %v", err)
		}
		if got, _ := performance(t, a, "c1"); got != 700 {
			t.Errorf("factor before the decision: %d", got)
		}
		for range 2 { // the same decision again changes nothing
			if r, err := a.Measurement.Decide(ctx, second.ID, false); err != nil || r.Decision != measurement.Rejected || r.DecidedBy != "op" {
				t.Errorf("reject: %+v, %v", r, err)
			}
		}
		if r, err := a.Measurement.Decide(ctx, second.ID, true); err != nil || r.Decision != measurement.Accepted {
			t.Errorf("accept after all: %+v, %v", r, err)
		}
		if got, from := performance(t, a, "c1"); got != 4000 || from != "measured" {
			t.Errorf("factor after the decision: %d, %s", got, from)
		}
		if _, err := a.Measurement.Decide(ctx, second.ID, false); fault.KindOf(err) != fault.Conflict {
			t.Errorf("reject what is in use: %v", err)
		}
		// An operator's word holds against the policy "automatic".
		set.Policy = measurement.Automatic
		set, err = a.Measurement.SetSettings(ctx, set)
		must(t, err)
		k, err := a.Registry.GetCenter(ctx, "c1")
		must(t, err)
		k.Performance = 1234
		_, err = a.Registry.UpdateCenter(ctx, k)
		must(t, err)
		if r := measure(); r.Decision != measurement.Awaited {
			t.Errorf("against an operator's word: %+v", r)
		}
		if got, from := performance(t, a, "c1"); got != 1234 || from != "operator" {
			t.Errorf("factor %d, %s", got, from)
		}
	})
}

// Runs are followed to their end across a restart, and one asked for at the same
// time by many is one.
func TestRestartAndConcurrency(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := operator(t.Context())
		c := a.Join(t, apptest.Center{ID: "c1", CPU: 1000})
		var mu sync.Mutex
		ids, refused := map[string]bool{}, 0
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				q := measurement.Request{CenterID: "c1"}
				if i%2 == 0 {
					q.RequestID = "same"
				}
				r, err := a.Measurement.Start(ctx, q)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					ids[r.ID] = true
				case fault.KindOf(err) == fault.Conflict:
					refused++
				default:
					t.Errorf("start: %v", err)
				}
			})
		}
		wg.Wait()
		if len(ids) != 1 {
			t.Fatalf("runs %v, %d refused", ids, refused)
		}
		x := c.Await(1)[0]
		a.Restart()
		x.Run()
		x.Write(figures(1).Text())
		x.End("completed", 0)
		for id := range ids {
			if r := ended(t, a, id); r.State != measurement.Succeeded || r.Performance != 1000 {
				t.Errorf("after a restart: %+v", r)
			}
		}
		if n := len(c.Await(1)); n != 1 {
			t.Errorf("%d jobs were sent", n)
		}
	})
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	a := apptest.Start(t, apptest.Options{})
	ctx := operator(t.Context())
	a.Join(t, apptest.Center{ID: "c1"})
	a.Join(t, apptest.Center{ID: "bare", Prices: map[string]int64{}})
	for name, c := range map[string]struct {
		q    measurement.Request
		kind fault.Kind
		want []string
	}{
		"everything wrong": {measurement.Request{RequestID: strings.Repeat("x", 65), CenterID: "no such", Node: "\n", Scope: 7, SpecID: "a b", ImageID: "a b"}, fault.Invalid,
			[]string{"request_id", "ai_center_id", "node", "scope", "resource_spec_id", "image_id"}},
		"no center":       {measurement.Request{CenterID: "none"}, fault.NotFound, nil},
		"no such node":    {measurement.Request{CenterID: "c1", Node: "n1"}, fault.NotFound, nil},
		"nothing offered": {measurement.Request{CenterID: "bare"}, fault.Conflict, nil},
		"unknown spec":    {measurement.Request{CenterID: "c1", SpecID: "none"}, fault.Invalid, []string{"resource_spec_id"}},
		"not offered":     {measurement.Request{CenterID: "bare", SpecID: "small"}, fault.Invalid, []string{"resource_spec_id"}},
		"unknown image":   {measurement.Request{CenterID: "c1", ImageID: "none"}, fault.Invalid, []string{"image_id"}},
		"image not there": {measurement.Request{CenterID: "c1", ImageID: "elsewhere"}, fault.Invalid, []string{"image_id"}},
	} {
		_, err := a.Measurement.Start(ctx, c.q)
		var got []string
		for _, f := range fault.FieldsOf(err) {
			got = append(got, f.Path)
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if fault.KindOf(err) != c.kind || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v (%v), want %s of %v", name, err, got, c.kind, c.want)
		}
	}
	if _, err := a.Measurement.Get(ctx, "mrn_none"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("get: %v", err)
	}
	if _, err := a.Measurement.Picture(ctx, "none", false); fault.KindOf(err) != fault.NotFound {
		t.Errorf("picture: %v", err)
	}
	bad := measurement.Settings{Policy: 9, EveryDays: -1, Weights: []score.Weight{{Indicator: "x", Reference: -1, Weight: 101}, {Indicator: "x", Reference: 1}}}
	if _, err := a.Measurement.SetSettings(ctx, bad); len(fault.FieldsOf(err)) < 6 {
		t.Errorf("settings: %v", err)
	}
}

// Centers that are due are measured when they are idle, and only if asked for.
func TestSchedule(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	a := apptest.Start(t, apptest.Options{})
	ctx := operator(t.Context())
	var seen sync.Map
	play := says(func(r *apptest.Replica) (string, int32) {
		seen.Store(r.Env["YUNHE_CENTER_ID"], true)
		return figures(1).Text(), 0
	})
	busy := a.Join(t, apptest.Center{ID: "busy"})
	a.Join(t, apptest.Center{ID: "idle", Play: play})
	id := a.Admin.Submit(t, busy.Pin(apptest.Job("work", 1)))
	busy.Of(id, 1)[0].Run()
	must(t, a.Measurement.Schedule(ctx))
	if rows, _, err := a.Measurement.List(ctx, "", 0, ""); err != nil || len(rows) != 0 {
		t.Fatalf("nobody asked: %v, %v", rows, err)
	}
	set, err := a.Measurement.Settings(ctx)
	must(t, err)
	set.OnJoin = true
	set, err = a.Measurement.SetSettings(ctx, set)
	must(t, err)
	must(t, a.Measurement.Schedule(ctx))
	rows, _, err := a.Measurement.List(ctx, "", 0, "")
	if err != nil || len(rows) != 1 || rows[0].CenterID != "idle" || rows[0].RequestedBy != measurement.Scheduled {
		t.Fatalf("runs %+v, %v", rows, err)
	}
	ended(t, a, rows[0].ID)
	a.Admin.AwaitState(t, rows[0].JobID, jobsv1.State_STATE_SUCCEEDED)
	must(t, a.Measurement.Schedule(ctx))
	set.EveryDays = 7
	_, err = a.Measurement.SetSettings(ctx, set)
	must(t, err)
	must(t, a.Measurement.Schedule(ctx))
	if rows, _, _ := a.Measurement.List(ctx, "", 0, ""); len(rows) != 1 {
		t.Errorf("measured too early: %+v", rows)
	}
	must(t, a.Measurement.Age(ctx, rows[0].ID, 8*24*time.Hour))
	must(t, a.Measurement.Schedule(ctx))
	if rows, _, _ := a.Measurement.List(ctx, "idle", 0, ""); len(rows) != 2 {
		t.Errorf("not measured again: %+v", rows)
	}
}

// Nodes, accelerators and live figures, each with its origin; peaks of different
// precision stay apart.
func TestPicture(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	ctx := operator(t.Context())
	c := a.Join(t, apptest.Center{ID: "c1", CPU: 8000})
	node := &adapterv1.Node{Name: "n1", State: adapterv1.NodeState_NODE_STATE_READY, Architecture: "amd64", OperatingSystem: "linux",
		Capacity:     map[string]int64{core.CPU: 64000, core.Memory: 1 << 38, "gpu": 8},
		Accelerators: []*adapterv1.Accelerator{{Vendor: "NVIDIA", Model: "H200 SXM 141GB", Count: 8, MemoryBytes: 141 << 30, Resource: "gpu"}, {Vendor: "X", Model: "Odd 1", Count: 2, Resource: "gpu"}},
		Labels:       map[string]string{"cpu.model": "Xeon", "cpu.mhz": "3500", "network.mbps": "200000", "disk.write.mbps": "700", "disk.reads.per-second": "odd", "cpu.feature.avx2": "true", "cpu.feature.fma": "true"}}
	live := &adapterv1.Measurement{MeasuredAt: timestamppb.Now(), CpuBusyPermille: 250, MemoryBusyBytes: 1 << 30, MemoryTotalBytes: 4 << 30, StorageBusyBytes: 1, StorageTotalBytes: 3,
		Storage: &adapterv1.StorageUse{Reads: 7, ReadBytes: 700}, Network: &adapterv1.NetworkUse{ReceivedBytes: 1000, SentBytes: 2000},
		Paths: []*adapterv1.Path{{Peer: "platform", LatencyMicroseconds: 400}}}
	beat := func() {
		live.MeasuredAt = timestamppb.Now()
		must(t, c.Ask("heartbeat", &adapterv1.HeartbeatRequest{Inventory: c.Inventory(), Node: node, Measurement: live}, &adapterv1.HeartbeatResponse{}))
	}
	beat()
	// What it does now, from the samples. The center's own beats, without these
	// figures, come in between: it is told again.
	for at, want := range map[[2]string]float64{{"network.received", ""}: 1000, {"network.sent", ""}: 2000, {"storage.reads", ""}: 7, {"path.latency", "platform"}: 0.0004} {
		var v measurement.Value
		apptest.Until(t, fmt.Sprint(at, " is known"), func() bool {
			p, err := a.Measurement.Picture(ctx, "c1", false)
			must(t, err)
			found := false
			if v, found = value(p, at[0], "", at[1]); !found {
				beat()
			}
			return found
		})
		if v.Number != want || v.Origin != measurement.Measured {
			t.Errorf("%v: %+v, want %g", at, v, want)
		}
	}
	var p measurement.Picture
	apptest.Until(t, "its own beats leave the figures alone for a moment", func() bool {
		beat()
		var err error
		p, err = a.Measurement.Picture(ctx, "c1", true)
		must(t, err)
		v, _ := value(p, "memory.free", "", "")
		return v.Origin == measurement.Measured
	})
	for at, want := range map[[3]string]string{
		{"compute.cores", "", ""}: "8 1", {"compute.cores", "n1", ""}: "64 2", {"compute.processor", "n1", ""}: "Xeon 2", {"compute.frequency", "n1", ""}: "3500 2",
		{"compute.features", "n1", ""}: "avx2 fma 2", {"network.interface", "n1", ""}: "200000 2", {"storage.write.sequential", "n1", "data folder"}: "700 2", {"storage.read.random", "n1", "data folder"}: "0 0", {"accelerator.count", "n1", "H200 SXM 141GB"}: "8 2",
		{"accelerator.peak.fp64", "n1", ""}: "536 4", {"accelerator.peak.fp16", "n1", ""}: "7916 4", {"accelerator.peak.fp16", "", ""}: "7916 4", {"compute.nodes", "", ""}: "1 2",
		{"memory.free", "", ""}: fmt.Sprint(3<<30, " 3"), {"storage.free", "", ""}: "2 3",
	} {
		v, _ := value(p, at[0], at[1], at[2])
		got := fmt.Sprint(v.Text, v.Number, " ", int(v.Origin))
		if v.Text != "" {
			got = fmt.Sprint(v.Text, " ", int(v.Origin))
		}
		if got = strings.Replace(got, "3.221225472e+09", fmt.Sprint(3<<30), 1); got != want {
			t.Errorf("%v: %q, want %q", at, got, want)
		}
	}
	if !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, "Odd 1") }) || !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, "never measured") }) {
		t.Errorf("notes %q", p.Notes)
	}
	a.Join(t, apptest.Center{ID: "c2", CPU: 4000})
	rows, err := a.Measurement.Compare(ctx, []string{"c1", "c2"})
	must(t, err)
	i := slices.IndexFunc(rows, func(r measurement.Compared) bool { return r.Indicator == "compute.cores" })
	if i < 0 || rows[i].Values[0].Number != 8 || rows[i].Values[1].Number != 4 {
		t.Errorf("compared %+v", rows)
	}
	if res := a.Admin.REST(t, "GET", "/v1/measurement-comparison?ai_center_ids=c1&ai_center_ids=c2", ""); res.Status != 200 || !strings.Contains(string(res.Body), `"ratioPermille":"500"`) {
		t.Errorf("by REST: %d %s", res.Status, res.Body)
	}
	if _, err := a.Measurement.Compare(ctx, []string{"c1", "c1"}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("twice the same: %v", err)
	}
}

// The scheme is whole: every indicator has what it needs, every precision an
// indicator of its own, and what the benchmark measures is in it.
func TestIndicators(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	count := map[string]int{}
	for _, x := range measurement.Indicators() {
		if seen[x.ID] || x.Title == "" || x.TitleZH == "" || x.Source == "" || x.Clause == "" ||
			!slices.Contains([]measurement.Kind{measurement.Static, measurement.Dynamic, measurement.Combined}, x.Kind) ||
			!slices.Contains([]string{"compute", "storage", "network", "service"}, x.Domain) || !slices.Contains([]string{"specification", "function", "performance"}, x.Aspect) {
			t.Errorf("indicator %+v", x)
		}
		seen[x.ID] = true
		count[string(x.Kind)]++
		count[string(x.Kind)+" "+x.Domain]++
		count[x.Domain+" "+x.Aspect]++
	}
	// G 6.5 a and b, H M6.2: each kind for each resource, each side of it.
	for _, want := range []string{"static compute", "static storage", "static network", "dynamic compute", "dynamic storage", "dynamic network", "combined compute", "combined storage",
		"combined network", "combined service", "compute specification", "compute function", "compute performance", "storage specification", "storage performance", "network performance"} {
		if count[want] == 0 {
			t.Errorf("no indicator is %s", want)
		}
	}
	for _, id := range append(score.Weighable(), score.DeviceFP32, score.DeviceFP64, score.DeviceBandwidth) {
		if !seen[id] {
			t.Errorf("the benchmark measures %s, which is no indicator", id)
		}
	}
	for _, p := range []string{"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4"} {
		if !seen["accelerator.peak."+p] {
			t.Errorf("no peak of %s", p)
		}
	}
}
