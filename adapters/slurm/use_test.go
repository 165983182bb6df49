package slurm

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestUseOfAccounts: a job that ended long ago is read once and counts for ever; one
// whose end slurmdbd may still hear of is read again.
func TestUseOfAccounts(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix()
	jobs := func(all ...[3]int64) (out string) { // of start, end and elapsed time
		for i, j := range all {
			if i > 0 {
				out += ","
			}
			out += fmt.Sprintf(`{"account":"lab","time":{"start":%d,"end":%d,"elapsed":{"set":true,"number":%d}},
				"tres":{"allocated":[{"type":"cpu","name":null,"count":4},{"type":"gres","name":"gpu","count":2},{"type":"gres","name":"gpu:h20","count":2},{"type":"node","count":1}]}}`, j[0], j[1], j[2])
		}
		return out
	}
	long, recent, runs, waits := [3]int64{now - 300_000, now - 200_000, 1000}, [3]int64{now - 700, now - 600, 100}, [3]int64{now - 10, 0, 10}, [3]int64{}
	said, asked, status := "", "", http.StatusOK
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query().Get("start_time")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"errors":[],"jobs":[%s]}`, said)
	}))
	t.Cleanup(front.Close)
	cfg := Config{URL: front.URL, User: "u", Token: "t", APIVersion: "v0.0.40", GRES: map[string]string{"gpu": "gpu:h20"}}
	api, err := newClient(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.close)
	d := &Driver{cfg: cfg, api: api, log: slog.New(slog.NewTextHandler(io.Discard, nil)), accounts: accounts{used: map[string]settled{}}}
	want := func(what, from string, seconds, runs int64) {
		t.Helper()
		u, err := d.usedBy(t.Context(), "c", "lab")
		if err != nil || u.CpuCoreSeconds != 4*seconds || u.AcceleratorSeconds != 2*seconds || u.Runs != runs {
			t.Errorf("%s: got {%v}, %v, want %d runs of %d s with 4 cores and 2 GPUs", what, u, err, runs, seconds)
		}
		if asked < from {
			t.Errorf("%s: asked for jobs from %s, want not before %s", what, asked, from)
		}
	}
	said = jobs(long, recent, runs, waits)
	later := time.Unix(now, 0).UTC().AddDate(0, 0, -2).Format(time.DateOnly)
	want("first", "2000-01-01", 1110, 3)
	said = jobs(recent, [3]int64{runs[0], 0, 20}, waits)
	want("again", later, 1120, 3)
	said = jobs(recent, [3]int64{runs[0], now, 30}, waits)
	want("after its end", later, 1130, 3)
	said = jobs(long, recent)
	want("a version that tells of all jobs", "2000-01-01", 1100, 2)
	status = http.StatusInternalServerError
	if u, err := d.usedBy(t.Context(), "c", "lab"); err == nil {
		t.Errorf("got {%v} of slurmdbd that fails", u)
	}
}
