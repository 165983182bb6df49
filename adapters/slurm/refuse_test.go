package slurm_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"

	"yunhe.dev/yunhe/adapters/slurm"
)

// What Slurm refuses for now is refused for now; what it refuses for good, for
// good; and of what nobody knows what it means the platform asks again.
func TestRefusesForNow(t *testing.T) {
	t.Parallel()
	number := map[string]int{"busy": 2016, "limit": 2050, "drained": 2070, "access": 2002, "strange": 1234}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := strings.TrimPrefix(r.URL.Path, "/slurm/v0.0.40/"); {
		case r.URL.Path == "/openapi/v3":
			js(w, `{"paths":{"/slurm/v0.0.40/job/submit":{}}}`)
		case path == "jobs":
			js(w, `{"jobs":[],"errors":[]}`)
		case path == "partitions":
			js(w, `{"partitions":[{"name":"main","partition":{"state":["UP"]}}],"errors":[]}`)
		case path == "nodes":
			js(w, `{"nodes":[{"name":"n1","state":["IDLE"],"partitions":["main"],"cpus":4,"real_memory":1000}],"errors":[]}`)
		case path == "job/submit":
			body := new(strings.Builder)
			if err := r.Write(body); err != nil {
				http.Error(w, "bad", http.StatusBadRequest)
				return
			}
			for id, n := range number {
				if strings.Contains(body.String(), "att_"+id) {
					js(w, fmt.Sprintf(`{"errors":[{"error":"no","error_number":%d}]}`, n))
					return
				}
			}
		default:
			js(w, `{"errors":[]}`)
		}
	}))
	defer server.Close()
	v := start(t, slurm.Config{URL: server.URL, User: "u", Token: "x", Directory: "/shared", PollMillis: 100, Partitions: []slurm.Partition{{Name: "main", Spec: "small"}}, Images: map[string]slurm.Image{"host": {}}})
	for id, later := range map[string]bool{"busy": true, "limit": true, "drained": true, "access": false} {
		res, err := v.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{{AttemptId: "att_" + id, JobId: "job_1", Command: "true", ImageId: "host", ResourcespecId: "small", Resources: map[string]int64{"cpu": 1000, "memory": 1 << 20}}}})
		if err != nil || len(res.Refusals) != 1 || res.Refusals[0].Later != later {
			t.Errorf("%s: %v, %v, want one refusal, later: %v", id, res, err, later)
		}
	}
	if res, err := v.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{{AttemptId: "att_strange", JobId: "job_1", Command: "true", ImageId: "host", ResourcespecId: "small"}}}); err == nil {
		t.Errorf("a strange answer: %v, want an error", res)
	}
}
