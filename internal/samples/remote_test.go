package samples

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"yunhe.dev/yunhe/internal/fault"
)

// fakeServer answers what no healthy server does.
func fakeServer(t *testing.T, c Config, answer http.HandlerFunc) *Store {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c.URL = server.URL + c.URL
	s, err := open(c, quiet, time.Now, defaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantKind(t *testing.T, what string, err error, want fault.Kind, words ...string) {
	t.Helper()
	if err == nil || fault.KindOf(err) != want {
		t.Errorf("%s: got kind %v, want %v (error: %v)", what, fault.KindOf(err), want, err)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: error does not say %q: %v", what, word, err)
		}
	}
}

// decode reads a remote-write request as a server does.
func decode(t *testing.T, r *http.Request) []prompb.TimeSeries {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Errorf("read request: %v", err)
	}
	raw, err := snappy.Decode(nil, body)
	if err != nil {
		t.Errorf("request is not snappy: %v", err)
	}
	var req prompb.WriteRequest
	if err := req.Unmarshal(raw); err != nil {
		t.Errorf("request is not protobuf: %v", err)
	}
	return req.Timeseries
}

func TestRemoteWritesTheProtocol(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(time.Now().UnixMilli())
	s := fakeServer(t, Config{URL: "/tenant/", Token: "secret"}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/tenant/api/v1/write" || r.Method != http.MethodPost {
			t.Errorf("got %s %s", r.Method, r.URL.Path)
		}
		for name, want := range map[string]string{
			"Authorization": "Bearer secret", "Content-Encoding": "snappy", "Content-Type": "application/x-protobuf",
			"X-Prometheus-Remote-Write-Version": "0.1.0",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("header %s: got %q, want %q", name, got, want)
			}
		}
		got := fmt.Sprint(decode(t, r))
		want := fmt.Sprint([]prompb.TimeSeries{
			{
				Labels:  []prompb.Label{{Name: "Z", Value: "1"}, {Name: "__name__", Value: "m"}, {Name: "a", Value: "2"}},
				Samples: []prompb.Sample{{Value: 1, Timestamp: at.UnixMilli()}, {Value: 2, Timestamp: at.UnixMilli() + 1}},
			},
			{Labels: []prompb.Label{{Name: "__name__", Value: "m"}}, Samples: []prompb.Sample{{Value: 3, Timestamp: at.UnixMilli()}}},
		})
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	report, err := s.Append(t.Context(), []Sample{
		{Name: "m", Labels: L("a", "2", "Z", "1"), Value: 2, At: at.Add(time.Millisecond)},
		{Name: "m", Value: 3, At: at},
		{Name: "m", Labels: L("Z", "1", "a", "2", "empty", ""), Value: 1, At: at},
	})
	if err != nil || report != (Report{Stored: 3}) {
		t.Errorf("append: %+v, %v", report, err)
	}
}

func TestRemoteWritesElsewhere(t *testing.T) {
	t.Parallel()
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { paths = append(paths, r.URL.Path) }))
	defer server.Close()
	s, err := Open(Config{URL: server.URL + "/prometheus", WriteURL: server.URL + "/api/v1/push"}, quiet, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), []Sample{{Name: "m", At: time.Now()}}); err != nil || !slices.Equal(paths, []string{"/api/v1/push"}) {
		t.Errorf("append: %v, to %v", err, paths)
	}
}

// refusing is a server that refuses a whole request for one sample with a
// negative value, as Prometheus 2.x does.
func refusing(t *testing.T, requests *atomic.Int64, stored *[]float64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		var values []float64
		for _, s := range decode(t, r) {
			for _, sample := range s.Samples {
				switch sample.Value {
				case -1:
					http.Error(w, "out of order sample", http.StatusBadRequest)
					return
				case -2:
					http.Error(w, "duplicate sample for timestamp", http.StatusBadRequest)
					return
				case -3:
					http.Error(w, "too old sample", http.StatusInternalServerError)
					return
				}
				values = append(values, sample.Value)
			}
		}
		*stored = append(*stored, values...)
	}
}

func TestRemoteFindsWhatIsRefused(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	var stored []float64
	s := fakeServer(t, Config{}, refusing(t, &requests, &stored))
	b := batch(time.Now().Add(-time.Minute), 1000, 1000)
	b[17].Value, b[500].Value, b[999].Value = -1, -2, -3
	report, err := s.Append(t.Context(), b)
	if err != nil || report != (Report{Stored: 997, Late: 2, Duplicate: 1}) {
		t.Errorf("append: %+v, %v, want 3 refused", report, err)
	}
	slices.Sort(stored)
	if len(stored) != 997 || len(slices.Compact(stored)) != 997 {
		t.Errorf("server has %d samples, want each of the other 997 once", len(stored))
	}
	if n := requests.Load(); n > 3*2*11 {
		t.Errorf("took %d requests, want at most two per halving", n)
	}
}

func TestRemoteSearchHasAnEnd(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	var stored []float64
	s := fakeServer(t, Config{}, refusing(t, &requests, &stored))
	b := batch(time.Now().Add(-time.Minute), 4096, 4096)
	for i := range b {
		b[i].Value = -1
	}
	report, err := s.Append(t.Context(), b)
	if err != nil || report != (Report{Late: len(b)}) {
		t.Errorf("append: %+v, %v, want all late", report, err)
	}
	if n := requests.Load(); n > 2*maxRequests {
		t.Errorf("took %d requests, want about %d", n, maxRequests)
	}
}

func TestRemoteRetriesWithAnEnd(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusInternalServerError} {
		var requests, heal atomic.Int64
		heal.Store(3)
		s := fakeServer(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
			if n := requests.Add(1); n < heal.Load() {
				http.Error(w, "busy", status)
			}
		})
		one := []Sample{{Name: "m", At: time.Now()}}
		if report, err := s.Append(t.Context(), one); err != nil || report.Stored != 1 || requests.Load() != 3 {
			t.Errorf("status %d, then recovery: %+v, %v after %d requests, want success after 3", status, report, err, requests.Load())
		}
		requests.Store(0)
		heal.Store(1000)
		report, err := s.Append(t.Context(), one)
		wantKind(t, fmt.Sprintf("status %d forever", status), err, fault.Unavailable, "tried 4 times")
		if report.Stored != 0 || requests.Load() != tries {
			t.Errorf("status %d forever: %+v after %d requests, want none stored after %d", status, report, requests.Load(), tries)
		}
	}
}

func TestRemoteErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		body   string
		want   fault.Kind
		words  string
	}{
		{http.StatusUnauthorized, "no", fault.Denied, "refuses the token"},
		{http.StatusForbidden, "no", fault.Denied, "refuses the token"},
		{http.StatusNotFound, "404", fault.Unavailable, "no API"},
		{http.StatusBadRequest, `{"status":"error","errorType":"bad_data","error":"1:2: parse error"}`, fault.Invalid, "1:2: parse error"},
		{http.StatusUnprocessableEntity, `{"status":"error","errorType":"execution","error":"many-to-many"}`, fault.Invalid, "many-to-many"},
		{http.StatusServiceUnavailable, `{"status":"error","errorType":"timeout","error":"x"}`, fault.Invalid, "longer than"},
		{http.StatusOK, `<html>a proxy's page</html>`, fault.Internal, "not that of Prometheus"},
		{http.StatusOK, `{"status":"success","data":{"resultType":"novel","result":[]}}`, fault.Internal, "novel"},
		{http.StatusOK, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":["x","y"]}]}}`, fault.Internal, ""},
	} {
		s := fakeServer(t, Config{Token: "hunter2"}, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
		})
		_, err := s.Query(t.Context(), "up", time.Now())
		wantKind(t, fmt.Sprintf("status %d %s", test.status, test.body), err, test.want, test.words)
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error shows the token: %v", err)
		}
	}
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // the port is now closed
	s, err := Open(Config{URL: server.URL}, quiet, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Query(t.Context(), "up", time.Now())
	wantKind(t, "query where nobody listens", err, fault.Unavailable, "tried 4 times")
	_, err = s.Append(t.Context(), []Sample{{Name: "m", At: time.Now()}})
	wantKind(t, "append where nobody listens", err, fault.Unavailable, "tried 4 times")
}

func TestRemoteSkipsHistograms(t *testing.T) {
	t.Parallel()
	s := fakeServer(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[
			{"metric":{"__name__":"h"},"histogram":[1,{"count":"1"}]},
			{"metric":{"__name__":"f"},"value":[1700000000.123,"+Inf"]}]}}`)
	})
	got, err := s.Query(t.Context(), "x", time.Now())
	if err != nil || len(got) != 1 || got[0].Name != "f" || got[0].Points[0].At != time.UnixMilli(1700000000123).UTC() {
		t.Errorf("got %+v, %v, want only the float, to the millisecond", got, err)
	}
}

func FuzzPoint(f *testing.F) {
	f.Add(`[1700000000.123,"1.5"]`)
	f.Add(`[1,"NaN"]`)
	f.Add(`["",1]`)
	f.Add(`[1e400,"x"]`)
	f.Fuzz(func(t *testing.T, text string) {
		var p point
		if err := json.Unmarshal([]byte(text), &p); err == nil && p.At.Location() != time.UTC && text != "null" {
			t.Errorf("%q: got %v, want a time in UTC", text, p)
		}
	})
}
