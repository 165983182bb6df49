package enginetest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"yunhe.dev/yunhe/internal/enginetest"
)

func TestPrometheus(t *testing.T) {
	t.Parallel()
	base := enginetest.Prometheus(t)
	write := prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "gpu_hours"}, {Name: "site", Value: "a"}},
		Samples: []prompb.Sample{{Value: 2.5, Timestamp: time.Now().UnixMilli()}},
	}}}
	raw, err := write.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/api/v1/write", bytes.NewReader(snappy.Encode(nil, raw)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	if status, body := do(t, req); status != http.StatusNoContent {
		t.Fatalf("remote write answered %d %s", status, body)
	}
	req, err = http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/query?query="+url.QueryEscape(`sum(gpu_hours{site="a"})*2`), nil)
	if err != nil {
		t.Fatal(err)
	}
	status, body := do(t, req)
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || status != http.StatusOK {
		t.Fatalf("query answered %d %s: %v", status, body, err)
	}
	if r := answer.Data.Result; len(r) != 1 || r[0].Value[1] != "5" {
		t.Errorf("query answered %s, want one value of 5", body)
	}
}

func TestPrometheusRejectsBadConfig(t *testing.T) {
	t.Parallel()
	enginetest.Prometheus(t) // skips where there is none
	_, err := enginetest.StartPrometheus(t.Context(), "no_such_key: 1\n")
	if err == nil || !strings.Contains(err.Error(), "no_such_key") {
		t.Errorf("error = %v, want one with the server's log naming no_such_key", err)
	}
}

func do(t *testing.T, req *http.Request) (int, []byte) {
	t.Helper()
	resp, err := (&http.Client{Transport: &http.Transport{Proxy: nil}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}
