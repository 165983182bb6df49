package slurm_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"yunhe.dev/yunhe/adapters/slurm"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// laterSlurm answers as a slurmrestd of v0.0.40 is described to: no Slurm of
// that age was there to test with.
type laterSlurm struct {
	mu     sync.Mutex // guards the fields below
	state  []string
	reason string
	refuse bool
	sent   []string // what was asked of the node
}

func (l *laterSlurm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	node, _ := json.Marshal(map[string]any{"name": "n1", "state": l.state, "reason": l.reason, "partitions": []string{"main"}, "cpus": 4, "real_memory": 1000}) // cannot fail
	nodes := fmt.Sprintf(`{"nodes":[%s],"errors":[]}`, node)
	switch path := strings.TrimPrefix(r.URL.Path, "/slurm/v0.0.40/"); {
	case r.URL.Path == "/openapi/v3":
		js(w, `{"paths":{"/slurm/v0.0.40/job/submit":{}}}`)
	case path == "jobs":
		js(w, `{"jobs":[],"errors":[]}`)
	case path == "partitions":
		js(w, `{"partitions":[{"name":"main","partition":{"state":["UP"]}}],"errors":[]}`)
	case path == "nodes", path == "node/n1" && r.Method == http.MethodGet:
		js(w, nodes)
	case path == "node/n1" && l.refuse:
		js(w, `{"errors":[{"error":"Access/permission denied","error_number":2002}]}`)
	case path == "node/n1":
		var change struct {
			State  []string `json:"state"`
			Reason string   `json:"reason"`
		}
		if err := json.NewDecoder(r.Body).Decode(&change); err != nil || len(change.State) != 1 {
			http.Error(w, "bad", http.StatusBadRequest)
			return
		}
		l.sent = append(l.sent, change.State[0]+" "+change.Reason)
		if l.state = []string{"IDLE"}; change.State[0] == "DRAIN" {
			l.state, l.reason = []string{"IDLE", "DRAIN"}, change.Reason
		}
		js(w, `{"errors":[]}`)
	default:
		js(w, `{"errors":[]}`)
	}
}

func TestSetNode(t *testing.T) {
	t.Parallel()
	l := &laterSlurm{state: []string{"IDLE"}}
	server := httptest.NewServer(l)
	defer server.Close()
	v := start(t, slurm.Config{URL: server.URL, User: "u", Token: "x", Directory: "/shared", PollMillis: 100, Partitions: []slurm.Partition{{Name: "main"}}})
	set := func(isolated bool, name, allocation string) error {
		_, err := v.SetNode(t.Context(), &adapterv1.SetNodeRequest{Name: name, Isolated: isolated, AllocationId: allocation, Reason: "a fan is loud"})
		return err
	}
	sent := func(want ...string) {
		t.Helper()
		l.mu.Lock()
		defer l.mu.Unlock()
		if got := strings.Join(l.sent, "; "); got != strings.Join(want, "; ") {
			t.Errorf("sent %q, want %q", got, want)
		}
		l.sent = nil
	}
	for range 2 { // the second changes nothing
		if err := set(true, "n1", ""); err != nil {
			t.Fatal(err)
		}
	}
	sent("DRAIN yunhe: a fan is loud")
	for range 2 {
		if err := set(false, "n1", ""); err != nil {
			t.Fatal(err)
		}
	}
	sent("RESUME ")
	l.mu.Lock()
	l.state, l.reason = []string{"IDLE", "DRAIN"}, "by hand"
	l.mu.Unlock()
	for _, isolated := range []bool{true, false} { // an administrator's drain is not ours to end
		if err := set(isolated, "n1", ""); err != nil {
			t.Fatal(err)
		}
	}
	sent()
	l.mu.Lock()
	l.state, l.refuse = []string{"IDLE"}, true
	l.mu.Unlock()
	for want, err := range map[connect.Code]error{
		connect.CodeFailedPrecondition: set(true, "n1", ""), connect.CodeNotFound: set(true, "ghost", ""), connect.CodeUnimplemented: set(true, "n1", "alc_1"),
	} {
		if connect.CodeOf(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	d, err := v.Describe(t.Context(), &adapterv1.DescribeRequest{})
	if err != nil || len(d.Parts) != 2 || len(d.Features) != 1 {
		t.Errorf("describe: %v, %v; want jobs and resources, and without output_dir only that nodes may be chosen", d, err)
	}
}
