package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/rpc"
	"yunhe.dev/yunhe/internal/samples"
	"yunhe.dev/yunhe/internal/seal"
	"yunhe.dev/yunhe/internal/topology"
)

// startDrawer is a server with a real topology of two centers, and a function
// that brings it up to date.
func startDrawer(t *testing.T) (*registrar, func()) {
	t.Helper()
	s := &registrar{t: t, work: t.TempDir()}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, quiet := t.Context(), slog.New(slog.DiscardHandler)
	var err error
	s.d, err = db.Open(ctx, db.Config{URL: filepath.Join(s.work, "yunhe.db")}, quiet)
	check(err)
	t.Cleanup(func() { check(s.d.Close()) })
	s.reg, err = registry.New(ctx, s.d, quiet)
	check(err)
	box, err := seal.Open(filepath.Join(s.work, "secrets.key"))
	check(err)
	inv, err := inventory.New(ctx, s.d, s.reg, box, quiet)
	check(err)
	b, err := bus.Open(ctx, bus.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"}, quiet)
	check(err)
	t.Cleanup(b.Close)
	store, err := samples.Open(samples.Config{URL: t.TempDir()}, quiet, time.Now)
	check(err)
	t.Cleanup(func() { check(store.Close()) })
	drawer, err := topology.New(ctx, topology.Config{}, s.d, b, s.reg, inv, store, quiet)
	check(err)
	for _, id := range []string{"gz", "nx"} {
		check(s.d.Tx(ctx, func(tx *db.Tx) error {
			if err := s.reg.JoinTx(ctx, tx, &adapterv1.Inventory{AiCenterId: id, Region: "west"}, "kubernetes"); err != nil {
				return err
			}
			if err := s.reg.MarkSeenTx(ctx, tx, id); err != nil {
				return err
			}
			return s.reg.SyncNodesTx(ctx, tx, id, true, []*adapterv1.Node{
				{Name: "n1", State: 1, Accelerators: []*adapterv1.Accelerator{{Vendor: "NVIDIA", Model: "H800", Count: 2, MemoryBytes: 80 << 30, Resource: "gpu"}}}, {Name: "n2", State: 2, Reason: "no disk", Labels: map[string]string{"old": "x", "rack": "r1"}},
			}, nil)
		}))
	}
	if r, err := store.Append(ctx, []samples.Sample{{Name: "yunhe_node_cpu_busy_ratio", Labels: samples.L("ai_center_id", "gz", "node", "n1"), Value: 0.9, At: time.Now()}}); err != nil || r.Stored != 1 {
		t.Fatal(r, err)
	}
	srv := rpc.New(rpc.Config{Ready: func(context.Context) error { return nil }}, anyKey{}, prometheus.NewRegistry(), quiet)
	drawer.Register(srv)
	h, err := srv.Handler()
	check(err)
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	s.url = hs.URL
	sync := func() {
		t.Helper()
		_, err := drawer.Sync(ctx, true)
		check(err)
	}
	sync()
	return s, sync
}

// spaces makes columns whose width follows from times comparable.
func spaces(s string) string {
	var b strings.Builder
	for line := range strings.Lines(masked.ReplaceAllString(s, "…")) {
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return b.String()
}

func TestTopologyCommands(t *testing.T) {
	t.Parallel()
	s, sync := startDrawer(t)
	want := func(what, text string, args ...string) {
		t.Helper()
		out, errs, status := s.run("", args...)
		if got := spaces(out); got != spaces(strings.TrimPrefix(text, "\n")) || errs != "" || status != 0 {
			t.Errorf("%s:\n%s%s%d", what, got, errs, status)
		}
	}
	out, _, status := s.run("", "topology", "link", "set", "l1", "--from", "center:gz", "--to", "center:nx", "--kind", "leased-line", "--bandwidth", "10G", "--latency", "18ms", "-o", "name")
	if out != "l1\n" || status != 0 {
		t.Fatalf("link set: %q, %d", out, status)
	}
	out, errs, status := s.run("", "topology", "show", "--depth", "3", "--limit", "8")
	if status != 0 || errs != "" {
		t.Fatalf("show: %q, %d", errs, status)
	}
	lines := strings.Split(out, "\n")
	for i, prefix := range []string{"VERTEX ", "network ", "└ region:west ", "  ├ center:gz ", "  │ ├ node:gz:n1 ", "  │ └ node:gz:n2 ", "  └ center:nx ", "    ├ node:nx:n1 ", "    └ node:nx:n2 ", "", "LINK ", "l1 ", "path:gz:platform ", "path:nx:platform "} {
		if !strings.HasPrefix(lines[i], prefix) {
			t.Errorf("line %d of the tree is %q, want %q...", i, lines[i], prefix)
		}
	}
	for i, part := range []string{"4: 1 healthy, 1 busy, 2 down", "10Gbit/s"} {
		if !strings.Contains(out, part) {
			t.Errorf("the tree lacks %d: %q\n%s", i, part, out)
		}
	}
	out, _, _ = s.run("", "topology", "show", "--depth", "3", "--limit", "6")
	if !strings.Contains(out, "  │ └ … ") || !strings.Contains(out, "node:gz:n2") || strings.Contains(out, "node:gz:n1") {
		t.Errorf("cut short:\n%s", out)
	}
	want("names", "node:gz:n1\ncard:gz/n1/gpu/0\ncard:gz/n1/gpu/1\n", "topology", "show", "node:gz:n1", "-o", "name")
	out, _, _ = s.run("", "topology", "show", "center:gz", "--dot", "--depth", "1")
	if !strings.HasPrefix(out, "graph network {\n") || !strings.Contains(out, `"center:gz" -- "node:gz:n2"`) || !strings.HasSuffix(out, "}\n") {
		t.Errorf("dot:\n%s", out)
	}
	out, _, _ = s.run("", "topology", "describe", "node:gz:n1")
	if got := spaces(out); !strings.Contains(got, "Equipment: 2 NVIDIA H800 of 80 GiB (gpu)") && !strings.Contains(got, "2 NVIDIA H800") || !strings.Contains(got, "CPU busy 0.9 ratio busy node.cpu") {
		t.Errorf("describe:\n%s", got)
	}
	s.want("no such vertex", "", "\n2> error: there is no center:none in the topology\nexit 1\n", "topology", "describe", "center:none")

	if err := s.d.Tx(t.Context(), func(tx *db.Tx) error {
		return s.reg.SyncNodesTx(t.Context(), tx, "gz", false, []*adapterv1.Node{{Name: "n2", State: 1, Labels: map[string]string{"new": "y", "rack": "r2"}}}, nil)
	}); err != nil {
		t.Fatal(err)
	}
	sync()
	out, _, status = s.run("", "topology", "history", "node:gz:n2")
	if got := strings.Split(out, "\n"); status != 0 || len(got) != 4 || !strings.Contains(got[1], "changed  not-ready → ready") || !strings.Contains(got[1], "state, reason, labels (+new=y, -old, rack=r1 → r2)") || !strings.Contains(got[2], "added    not-ready") {
		t.Errorf("history:\n%s", out)
	}
	out, errs, status = s.run("", "topology", "diff", "--from", "1h")
	if status != 1 || !strings.Contains(errs, "must not be before history begins") {
		t.Errorf("a time before history: %q, %q, %d", out, errs, status)
	}
	s.want("no time", "", "\n2> error: --from: say from which time on, such as 24h\nexit 2\n", "topology", "diff")
	out, _, status = s.run("", "topology", "diff", "--from", "0s")
	if status != 0 || !strings.HasSuffix(out, "0 added, 0 changed, 0 removed\n") {
		t.Errorf("diff: %q, %d", out, status)
	}

	s.want("a bad bandwidth", "", "\n2> error: --bandwidth: want bits per second such as 10G or 100M, got \"fast\"\nexit 2\n",
		"topology", "link", "set", "l1", "--from", "center:gz", "--to", "center:nx", "--kind", "internet", "--bandwidth", "fast")
	want("links", `
LINK FROM TO KIND HEALTH BANDWIDTH LATENCY MEASURED
l1 center:gz center:nx leased-line - 10Gbit/s 18ms -
`, "topology", "link", "list", "--source", "declared")
	s.want("deleted", "", "l1  deleted\n", "topology", "link", "delete", "l1", "--yes")

	out, _, _ = s.run("", "topology", "binding", "list", "--level", "node", "-o", "json")
	if !strings.Contains(out, `"bindingId": "node.cpu"`) {
		t.Errorf("bindings: %s", out)
	}
	file := filepath.Join(s.work, "binding.json")
	if err := os.WriteFile(file, []byte(`{"bindingId":"node.cpu","title":"CPU","level":"LEVEL_NODE","expression":"yunhe_node_cpu_busy_ratio","warning":0.5,"high":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	want("a binding", `
BINDING LEVEL TITLE UNIT BUSY WARNING EXPRESSION OF
node.cpu node CPU - - 0.5 yunhe_node_cpu_busy_ratio people, version 1
`, "topology", "binding", "set", "-f", file)
	out, _, _ = s.run("", "topology", "describe", "node:gz:n1")
	if !strings.Contains(spaces(out), "CPU 0.9 - warning node.cpu") {
		t.Errorf("a threshold of one's own:\n%s", out)
	}
	s.want("as at first", "", "node.cpu  deleted\n", "topology", "binding", "delete", "node.cpu", "-y")
	_, errs, status = s.run("{", "topology", "binding", "set", "-f", "-")
	if status != 2 || !strings.Contains(errs, "is not a binding in JSON") {
		t.Errorf("a broken file: %q, %d", errs, status)
	}
}

// Whatever names are like, the graph can be read by Graphviz.
func TestDotText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{`a"b`: `"a\"b"`, `a\`: `"a\\"`, "a\nb": `"a\nb"`, "节点": `"节点"`} {
		if got := dotText(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	var b bytes.Buffer
	b.WriteString(bitRate(1e10) + " " + bitRate(1500) + " " + bitRate(7) + " " + bitRate(0))
	if b.String() != "10Gbit/s 1.5kbit/s 7bit/s " {
		t.Error(b.String())
	}
}
