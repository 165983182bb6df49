package topology_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/rpc"
)

// anyKey lets every key in as an operator.
type anyKey struct{}

func (anyKey) Authenticate(context.Context, string) (core.Caller, error) {
	return core.Caller{UserID: "op", TenantID: "default", AllTenants: true, Permissions: map[string]bool{"registry.read": true, "registry.write": true}}, nil
}
func (anyKey) Audit(context.Context, core.Audit, string, string) error { return nil }

// rest makes a call of the REST API.
func (w *world) rest(t *testing.T) func(method, path, body string, into any) int {
	t.Helper()
	srv := rpc.New(rpc.Config{Ready: func(context.Context) error { return nil }}, anyKey{}, prometheus.NewRegistry(), quiet)
	w.Register(srv)
	h, err := srv.Handler()
	must(t, err)
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	return func(method, path, body string, into any) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, hs.URL+path, bytes.NewReader([]byte(body)))
		must(t, err)
		req.Header.Set("Authorization", "Bearer any")
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		must(t, err)
		if into != nil {
			if err := json.Unmarshal(data, into); err != nil {
				t.Fatalf("%s %s: %v: %s", method, path, err, data)
			}
		}
		return res.StatusCode
	}
}

// A record of the topology has every field of Table 10.
func TestTable10(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.build(t, ctx)
		w.measure(t, "yunhe_center_cpu_busy_permille{center=gz}", 250)
		w.sync(t)
		call := w.rest(t)
		var v struct {
			NodeID      string `json:"nodeId"`
			NodeType    string `json:"nodeType"`
			Connections []struct{ LinkID, FromID, ToID, Kind string }
			Performance struct {
				Figures []struct {
					BindingID, Unit, Health string
					Value                   float64
				}
			} `json:"performanceBinding"`
			Display struct{ Level, ParentID, Changes, HistoryFrom string }
		}
		if status := call("GET", "/v1/topology/vertex?node_id=center:gz", "", &v); status != 200 {
			t.Fatal(status)
		}
		if v.NodeID != "center:gz" || v.NodeType != "NODE_TYPE_COMPUTE" || len(v.Connections) != 2 || v.Connections[1].Kind != "LINK_KIND_LEASED_LINE" ||
			len(v.Performance.Figures) != 1 || v.Performance.Figures[0].BindingID != "center.cpu" || v.Performance.Figures[0].Value != 0.25 ||
			v.Display.Level != "LEVEL_CENTER" || v.Display.ParentID != "region:guizhou" || v.Display.Changes != "1" || v.Display.HistoryFrom == "" {
			t.Errorf("record: %+v", v)
		}
		for id, kind := range map[string]string{"line": "NODE_TYPE_NETWORK", "disk": "NODE_TYPE_STORAGE", "node:gz:n1": "NODE_TYPE_COMPUTE"} {
			if call("GET", "/v1/topology/vertex?node_id="+id, "", &v); v.NodeType != kind {
				t.Errorf("%s is %s, want %s", id, v.NodeType, kind)
			}
		}
	})
}

// The view packs what the tree has: names, healths and layouts in one order,
// values in the same.
func TestView(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.build(t, ctx)
		plain := machine("n0", ready)
		plain.Accelerators = nil
		w.nodes(t, "gz", nil, plain)
		w.sync(t)
		w.measure(t, "yunhe_accelerator_busy_ratio{ai_center_id=gz,node=n1,index=2}", 0.9)
		w.measure(t, "yunhe_path_latency_seconds{ai_center_id=gz,peer=platform}", 0.01)
		call := w.rest(t)
		var v struct {
			Sequence, Revision string
			Unchanged          bool
			Vertices           []struct{ NodeID, ParentID, Health string }
			Centers            []struct {
				Center             struct{ NodeID, ParentID, Health string }
				Names              []string
				Health, CardHealth []byte
				Layouts            []int
				LayoutTable        []struct {
					Cards []struct{ Count, Model string }
				}
			}
			Links []struct{ LinkID, Health string }
			Nodes struct{ Total, Down string }
		}
		if status := call("GET", "/v1/topology/view", "", &v); status != 200 {
			t.Fatal(status)
		}
		var groups []string
		for _, x := range v.Vertices {
			groups = append(groups, x.ParentID+"/"+x.NodeID)
		}
		wantText(t, strings.Join(groups, "\n"), "/network\nnetwork/east\nnetwork/region:guizhou\nnetwork/region:ningxia\neast/line\ncenter:gz/disk")
		gz := v.Centers[0]
		if gz.Center.NodeID != "center:gz" || len(v.Centers) != 3 || cmp.Diff(gz.Names, []string{"n0", "n1", "n2"}) != "" || !bytes.Equal(gz.Health, []byte{1, 1, 4}) || cmp.Diff(gz.Layouts, []int{0, 1, 1}) != "" ||
			len(gz.LayoutTable) != 2 || gz.LayoutTable[1].Cards[0].Count != "8" || !bytes.Equal(gz.CardHealth, []byte{1, 1, 2, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4, 4, 4}) {
			t.Errorf("center: %+v", gz)
		}
		if v.Nodes.Total != "5" || v.Nodes.Down != "1" || len(v.Links) != 4 || v.Links[0].Health != "HEALTH_HEALTHY" {
			t.Errorf("nodes %+v, links %+v", v.Nodes, v.Links)
		}
		var again struct {
			Unchanged bool
			Centers   []any
		}
		if call("GET", "/v1/topology/view?known_revision="+v.Revision, "", &again); !again.Unchanged || len(again.Centers) != 0 {
			t.Errorf("asked again: %+v", again)
		}
		var values struct {
			Sequence string
			Centers  []struct {
				AiCenterID   string
				Value        any
				Nodes, Cards []any
			}
			Links []struct {
				LinkID string
				Value  float64
			}
		}
		call("GET", "/v1/topology/values?binding_id=card.busy", "", &values)
		x := values.Centers[0]
		if values.Sequence != v.Sequence || x.AiCenterID != "gz" || len(x.Nodes) != 3 || len(x.Cards) != 16 || x.Cards[2] != 0.9 || x.Cards[3] != "NaN" || x.Nodes[0] != "NaN" || x.Value != 0.9 {
			t.Errorf("values: %+v", x)
		}
		call("GET", "/v1/topology/values?binding_id=link.latency", "", &values)
		if len(values.Links) != 1 || values.Links[0].LinkID != "path:gz:platform" || values.Links[0].Value != 0.01 {
			t.Errorf("values of links: %+v", values.Links)
		}
		var link struct{ LinkID, Version string }
		if status := call("PUT", "/v1/topology/links/l1", `{"fromId":"center:gz","toId":"center:nx","kind":"LINK_KIND_INTERNET"}`, &link); status != 200 || link.Version != "1" {
			t.Errorf("put: %d, %+v", status, link)
		}
		if status := call("GET", "/v1/topology/link?link_id=path:gz:platform", "", &link); status != 200 || link.LinkID != "path:gz:platform" {
			t.Errorf("get: %d, %+v", status, link)
		}
		if status := call("DELETE", "/v1/topology/links/l1", "", nil); status != 200 {
			t.Errorf("delete: %d", status)
		}
	})
}
