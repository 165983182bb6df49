package rpc

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A colon that is written as %3A is part of a name, not the beginning of a verb.
func TestKeepColons(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"/v1/access-records/center%3Abj-1":     "/v1/access-records/center%3Abj-1",
		"/v1/access-records/center%3abj%2520x": "/v1/access-records/center%3Abj%2520x",
		"/v1/jobs/job_1:stop":                  "/v1/jobs/job_1:stop",
		"/v1/jobs/job%201":                     "/v1/jobs/job 1",
	} {
		got := ""
		h := keepColons(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.URL.Path }))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", in, nil))
		if got != want {
			t.Errorf("%s is handed on as %s, want %s", in, got, want)
		}
	}
}
