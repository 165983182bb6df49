package measurement_test

import (
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/measurement"
	"yunhe.dev/yunhe/internal/measurement/score"
	"yunhe.dev/yunhe/internal/registry"
)

// The benchmark for real, in the sandbox of a real gateway: what it prints is
// read, believed, and becomes the center's factor. Where there is no OpenCL the
// second program says so, which is no failure.
func TestGateway(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	a := apptest.Start(t, apptest.Options{})
	g := a.Gateway(t)
	ctx := operator(t.Context())
	apptest.Until(t, "the gateway has joined", func() bool {
		k, err := a.Registry.GetCenter(ctx, g.ID)
		return err == nil && k.Status == registry.Available
	})
	r, err := a.Measurement.Start(ctx, measurement.Request{CenterID: g.ID})
	must(t, err)
	r = ended(t, a, r.ID)
	rep := &r.Result.Report
	if r.State != measurement.Succeeded || r.Performance <= 0 || r.Decision != measurement.Accepted || rep.Host == "" || rep.Seconds > 60 {
		t.Fatalf("machine: %+v", r)
	}
	for _, id := range []string{score.IntegerSingle, score.IntegerAll, score.FloatSingle, score.FloatAll, score.MemoryBandwidth, score.Loopback, score.RoundTrip} {
		if _, ok := rep.Find(id); !ok {
			t.Errorf("no figure of %s; notes %q", id, rep.Notes)
		}
	}
	if rep.Medium == "tmpfs" {
		if _, ok := rep.Find(score.DiskWrite); ok || !strings.Contains(strings.Join(rep.Notes, " "), "in memory") {
			t.Errorf("a disk in memory: %+v", rep)
		}
	}
	if got, from := performance(t, a, g.ID); got != r.Performance || from != "measured" {
		t.Errorf("factor %d, %s", got, from)
	}
	r, err = a.Measurement.Start(ctx, measurement.Request{CenterID: g.ID, Scope: measurement.Devices})
	must(t, err)
	if r = ended(t, a, r.ID); r.State != measurement.Succeeded {
		t.Fatalf("devices: %+v", r)
	}
	if n, notes := len(r.Result.Report.Devices), strings.Join(r.Result.Report.Notes, " "); n == 0 && !strings.Contains(notes, "no OpenCL") && !strings.Contains(notes, "no platform") {
		t.Errorf("no device, and no reason: %q", notes)
	}
	t.Logf("devices %+v, figures %+v, notes %q", r.Result.Report.Devices, r.Result.Report.Figures, r.Result.Report.Notes)
}
