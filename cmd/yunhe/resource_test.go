package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/rpc"
	"yunhe.dev/yunhe/internal/seal"
)

// anyKey lets every key in as an operator.
type anyKey struct{}

func (anyKey) Authenticate(context.Context, string) (core.Caller, error) {
	return core.Caller{UserID: "op", TenantID: "default", AllTenants: true, Permissions: map[string]bool{"registry.read": true, "registry.write": true}}, nil
}
func (anyKey) Audit(context.Context, core.Audit, string, string) error { return nil }

// registrar is a server with the real registry and inventory.
type registrar struct {
	t    testing.TB
	url  string
	work string
	d    *db.DB
	reg  *registry.Service
}

func startRegistrar(t testing.TB, database string) *registrar {
	t.Helper()
	s := &registrar{t: t, work: t.TempDir()}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	var err error
	s.d, err = db.Open(t.Context(), db.Config{URL: database}, quiet)
	check(err)
	t.Cleanup(func() {
		if err := s.d.Close(); err != nil {
			t.Error(err)
		}
	})
	s.reg, err = registry.New(t.Context(), s.d, quiet)
	check(err)
	box, err := seal.Open(filepath.Join(s.work, "secrets.key"))
	check(err)
	inv, err := inventory.New(t.Context(), s.d, s.reg, box, quiet)
	check(err)
	srv := rpc.New(rpc.Config{Ready: func(context.Context) error { return nil }}, anyKey{}, prometheus.NewRegistry(), quiet)
	s.reg.Register(srv)
	inv.Register(srv)
	h, err := srv.Handler()
	check(err)
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	s.url = hs.URL
	return s
}

// run returns what a command prints and its exit status.
func (s *registrar) run(stdin string, args ...string) (out, errs string, status int) {
	var o, e bytes.Buffer
	c := newCLI()
	c.in, c.out, c.err = strings.NewReader(stdin), &o, &e
	c.env = func(name string) string {
		return map[string]string{"YUNHE_SERVER": s.url, "YUNHE_KEY": "any", "YUNHE_CONFIG": filepath.Join(s.work, "config.yaml"), "YUNHE_DATA": s.work}[name]
	}
	status = c.run(s.t.Context(), args)
	return o.String(), e.String(), status
}

// want runs a command and compares all it says; times and rates are masked.
func (s *registrar) want(what, stdin, want string, args ...string) {
	s.t.Helper()
	out, errs, status := s.run(stdin, args...)
	got := out
	if errs != "" {
		got += "2> " + strings.ReplaceAll(strings.TrimSuffix(errs, "\n"), "\n", "\n2> ") + "\n"
	}
	if status != 0 {
		got += fmt.Sprintf("exit %d\n", status)
	}
	got = masked.ReplaceAllString(strings.ReplaceAll(got, s.work, "$WORK"), "…")
	got = trailing.ReplaceAllString(got, "\n")
	if d := cmp.Diff(strings.TrimPrefix(want, "\n"), got); d != "" {
		s.t.Errorf("%s: yunhe %s (-want +got):\n%s", what, strings.Join(args, " "), d)
	}
}

var (
	masked   = regexp.MustCompile(`in [0-9.]+m?µ?s, [0-9]+ per second|[0-9-]+ [0-9:]+Z \([^)]*\)|[0-9]+(ms|s) ago|just now|now\b|eyJ[A-Za-z0-9_.-]+`)
	trailing = regexp.MustCompile(` +\n`)
)

const tree = `
- resource_id: gpu-1
  type: compute
  parent_id: rack-1
  labels: {slot: 01}
  attributes: {supply_mode: bare_metal, chip_type: GPU, chip_arch: Hopper, chip_model: "4090", serial_number: SN-1, performance: {fp16: 989000}}
- resource_id: rack-1
  type: node
  parent_id: edge
  region: guizhou
  attributes:
    available_resources:
      - {kind: gpu, scale: 8}
- resource_id: edge
  type: cloud
  name: 边缘云
  parent_id: prov
  service_provider: Example
  attributes: {cloud_platform_type: edge}
- resource_id: prov
  type: platform
  attributes: {level: provincial, managed_compute_types: [general, intelligent]}
`

func TestResourceImport(t *testing.T) {
	t.Parallel()
	s := startRegistrar(t, filepath.Join(t.TempDir(), "yunhe.db"))
	s.want("a dry run of children before parents", tree, "would be 4 created, 0 updated, 0 unchanged\n2> 4 resources …\n", "resource", "import", "-", "--dry-run", "--batch", "1")
	s.want("nothing yet", "", "2> nothing is registered; `yunhe resource import FILE` registers resources\n", "resource", "tree")
	s.want("children before parents, one by one", tree, "4 created, 0 updated, 0 unchanged\n2> 4 resources …\n", "resource", "import", "-", "--batch", "1")
	s.want("again", tree, "0 created, 0 updated, 4 unchanged\n2> 4 resources …\n", "resource", "import", "-")
	s.want("with a change", strings.Replace(tree, "边缘云", "Edge", 1), "{\n  \"created\": 0,\n  \"updated\": 1,\n  \"unchanged\": 3,\n  \"refused\": 0,\n  \"errors\": 0,\n  \"dryRun\": false\n}\n", "resource", "import", "-", "-o", "json")
	s.want("the tree", "", `
prov  platform  registered
  edge  cloud  registered  Edge
    rack-1  node  registered  (0 of 1 below it shown)
`, "resource", "tree")
	s.want("a part of it", "", "edge  cloud  registered  Edge\n  rack-1  node  registered  (0 of 1 below it shown)\n", "resource", "tree", "edge", "--depth", "1")
	s.want("mistakes, each with its line; the batch without one is written", `
- resource_id: gpu-2
  type: compute
  parent_id: rack-1
  attributes:
    supply_mode: bare_metal
    chip_type: XPU
    chip_arch: x
- resource_id: gpu-3
  colour: red
- resource_id: sec-1
  type: security
  attributes: {security_type: firewall}
- resource_id: sec-2
  type: security
  attributes: {security_type: waf}
- resource_id: lost
  type: security
  parent_id: nowhere
  attributes: {security_type: waf}
`, `
1 created, 0 updated, 0 unchanged, 4 not written
2> error: line 10: colour: unknown member; known are resource_id, type, name, parent_id, platform_id, ai_center_id, tenant_id, region, service_provider, state, labels, attributes, version
2> error: line 5: gpu-2: attributes.chip_model: is required
2> error: line 7: gpu-2: attributes.chip_type: must be one of CPU, GPU, NPU, MLU, DCU, TPU, FPGA, ASIC, QPU, got "XPU"
2> error: lines 2 to 11: 3 resources not written
2> error: line 19: lost: parent_id: there is no resource nowhere
2> 1 resource …
exit 1
`, "resource", "import", "-", "--batch", "3")
	s.want("a file that is not there", "", "2> error: open $WORK/nope.yaml: no such file or directory\nexit 1\n", "resource", "import", filepath.Join(s.work, "nope.yaml"))
	s.want("a header nobody knows", "a,b\n", "2> error: line 1: unknown column \"a\"; known are resource_id, type, name, parent_id, platform_id, ai_center_id, tenant_id, region, service_provider, state, labels, labels.NAME, attributes, attributes.NAME\nexit 1\n", "resource", "import", "-", "--format", "csv")
	s.want("usage", "", "2> error: --batch: want 1 to 1000, got 0\nexit 2\n", "resource", "import", "-", "--batch", "0")
	s.want("another version", "- {resource_id: prov, type: platform, version: 9, attributes: {level: hub, managed_compute_types: [general]}}", `
0 created, 0 updated, 0 unchanged, 1 not written
2> error: line 1: prov: version: must be 1, the stored one, got 9: it was changed meanwhile
2> error: lines 1 to 1: 1 resource not written
exit 1
`, "resource", "import", "-", "--check-versions")
}

// What was exported is imported elsewhere the same, from either form.
func TestResourceExport(t *testing.T) {
	t.Parallel()
	s := startRegistrar(t, filepath.Join(t.TempDir(), "yunhe.db"))
	if _, errs, status := s.run(tree, "resource", "import", "-"); status != 0 {
		t.Fatal(errs)
	}
	want, _, _ := s.run("", "resource", "export")
	for _, file := range []string{"all.yaml", "all.csv"} {
		path := filepath.Join(s.work, file)
		s.want("export", "", "2> 4 resources in $WORK/"+file+"\n", "resource", "export", "-f", path)
		other := startRegistrar(t, filepath.Join(t.TempDir(), "yunhe.db"))
		if _, errs, status := other.run("", "resource", "import", path); status != 0 {
			t.Errorf("import %s: %s", file, errs)
		}
		if got, _, _ := other.run("", "resource", "export"); got != want {
			t.Errorf("%s came back as (-want +got):\n%s", file, cmp.Diff(want, got))
		}
		// What lists answer can be imported too.
		listed, _, _ := s.run("", "resource", "list", "-o", "yaml", "--all")
		third := startRegistrar(t, filepath.Join(t.TempDir(), "yunhe.db"))
		if _, errs, status := third.run(listed, "resource", "import", "-"); status != 0 {
			t.Errorf("import of a list: %s", errs)
		}
	}
	s.want("one type as CSV", "", `
resource_id,type,name,parent_id,platform_id,ai_center_id,tenant_id,region,service_provider,state,labels,attributes,attributes.api_version,attributes.availability_zones,attributes.cloud_platform_type,attributes.endpoint,attributes.extra
edge,cloud,边缘云,prov,prov,,,,Example,registered,,,,,edge,,
`, "resource", "export", "--type", "cloud", "--format", "csv")
	s.want("a type that joins by itself", "", "2> error: --type: want a type that can be registered, see `yunhe resource types`, got \"center\"\nexit 2\n", "resource", "export", "--type", "center")
}

func TestResourceCommands(t *testing.T) {
	t.Parallel()
	s := startRegistrar(t, filepath.Join(t.TempDir(), "yunhe.db"))
	if _, errs, status := s.run(tree, "resource", "import", "-"); status != 0 {
		t.Fatal(errs)
	}
	err := s.d.Tx(t.Context(), func(tx *db.Tx) error {
		inv := &adapterv1.Inventory{AiCenterId: "gz-1", Region: "guizhou", Capacity: map[string]int64{core.CPU: 64000}}
		if err := s.reg.JoinTx(t.Context(), tx, inv, "kubernetes"); err != nil {
			return err
		}
		nodes := []*adapterv1.Node{
			{Name: "n1", State: 1, Capacity: map[string]int64{core.CPU: 64000, core.Memory: 1 << 39, "gpu": 8}, Allocatable: map[string]int64{core.CPU: 63000, "gpu": 8}, Architecture: "amd64", OperatingSystem: "Ubuntu", Labels: map[string]string{"rack": "7"},
				Accelerators: []*adapterv1.Accelerator{{Vendor: "NVIDIA", Model: "H800", Count: 8, MemoryBytes: 80 << 30, Resource: "gpu"}}},
			{Name: "n2", State: 2, Reason: "kubelet is silent", Capacity: map[string]int64{core.CPU: 8000}},
		}
		return s.reg.SyncNodesTx(t.Context(), tx, "gz-1", true, nodes, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	s.want("nodes", "", `
CENTER  NODE  STATE      CPU  MEMORY  ACCELERATORS  CHANGED
gz-1    n1    ready       64   512Gi  8 H800        …
gz-1    n2    not-ready    8       -  -             …
`, "node", "list")
	s.want("one state", "", "gz-1 n2\n", "node", "list", "--state", "not-ready", "-o", "name")
	s.want("one model and label", "", "gz-1 n1\n", "node", "list", "--model", "H800", "--label", "rack=7", "--center", "gz-1", "-o", "name")
	s.want("none", "", "2> no nodes; centers behind drivers report them, `yunhe center list` shows the centers\n", "node", "list", "--model", "A100")
	s.want("a state nobody knows", "", "2> error: --state: want one of drained, not-ready, ready, got \"asleep\"\nexit 2\n", "node", "list", "--state", "asleep")
	s.want("a node", "", `
Node          n1
Center        gz-1
State         ready
Architecture  amd64
System        Ubuntu
Accelerators  8 NVIDIA H800 of 80.0 GiB (gpu)
Labels        rack=7
Reported      …
Changed       …

RESOURCE  CAPACITY  FOR JOBS
cpu             64        63
gpu              8         8
memory       512Gi         -
`, "node", "show", "gz-1", "n1")
	s.want("no such node", "", "2> error: center gz-1 has no node n9\nexit 1\n", "node", "show", "gz-1", "n9")
	s.want("resources", "", `
RESOURCE      TYPE      NAME    STATE        BELOW        REGION   CHILDREN
edge          cloud     边缘云  registered   prov         -               1
gpu-1         compute   gpu-1   registered   rack-1       -               0
prov          platform  prov    registered   -            -               1
rack-1        node      rack-1  registered   edge         guizhou         1
center:gz-1   center    gz-1    unavailable  -            guizhou         2
node:gz-1:n1  node      n1      available    center:gz-1  guizhou         0
node:gz-1:n2  node      n2      unavailable  center:gz-1  guizhou         0
`, "resource", "list")
	s.want("moving a center", "", "center:gz-1\n", "resource", "move", "center:gz-1", "edge", "-o", "name")
	s.want("of an attribute", "", "edge\n", "resource", "list", "--attribute", "cloud_platform_type=edge", "-o", "name")
	s.want("children of a cloud", "", "rack-1\ncenter:gz-1\n", "resource", "list", "--parent", "edge", "-o", "name")
	s.want("to the top", "", "center:gz-1\n", "resource", "move", "center:gz-1", "--top", "-o", "name")
	s.want("neither place", "", "2> error: want one of a parent and --top\nexit 2\n", "resource", "move", "gpu-1")
	s.want("a resource", "", `
Resource    gpu-1
Type        compute
Name        gpu-1
State       registered
Below       rack-1
Platform    prov
Labels      slot=01
Version     1
Registered  …
Changed     …

ATTRIBUTE      VALUE
chip_arch      Hopper
chip_model     4090
chip_type      GPU
performance    {"fp16":989000}
serial_number  SN-1
supply_mode    bare_metal
`, "resource", "show", "gpu-1")
	s.want("attributes of a type", "", `
ATTRIBUTE        KIND            NEEDED  ABOUT
extra            object          -       Anything else worth keeping, as text.
protects         list of string  -       Resources it protects, by ID.
security_type    string          yes     Kind of protection. One of firewall, waf, ids, ips, vpn_gateway, bastion_host, ddos_protection, key_management, hardware_security_module, other.
specification    string          -       Specification as its provider names it.
throughput_mbps  integer         -       Megabits per second.
vendor           string          -       Who makes it.
`, "resource", "types", "security")
	s.want("a list of objects", "", `
ATTRIBUTE            KIND            NEEDED  ABOUT
architecture         string          -       For example amd64.
available_resources  list of object  yes     Kinds of compute on offer and how much of each (S Table 9).
  kind               string          yes     For example cpu, memory, gpu, npu.
  scale              number          yes     How much, in unit.
  unit               string          -       For example cores, bytes, cards; empty: pieces.
chips                list of object  -       Chips it carries, beside its processors.
  chip_arch          string          -       Instruction set or architecture, for example x86_64, Hopper, DaVinci.
  chip_model         string          -       For example EPYC 9654, H800, Ascend 910B.
  chip_type          string          -       Kind of chip carried. One of CPU, GPU, NPU, MLU, DCU, TPU, FPGA, ASIC, QPU.
  count              integer         yes     How many.
  memory_bytes       integer         -       Of each.
  vendor             string          -       Who makes it.
extra                object          -       Anything else worth keeping, as text.
operating_system     string          -       As it names itself.
reason               string          -       Why it cannot be used.
`, "resource", "types", "node")
	s.want("types", "", "platform\ncloud\ncenter\nnode\ncompute\nnetwork\nstorage\nsecurity\n", "resource", "types", "-o", "name")
	s.want("with something below it", "", "2> error: resource edge has 1 resources below it; delete or move them first\nexit 1\n", "resource", "delete", "edge")

	issue := []string{"identifier", "issue", "gpu-1", "--city", "520100", "--industry", "I65", "--enterprise", "91350100M000100Y43", "--resource-type", "IC", "--data-center", "GA1", "--service-type", "CL", "--network", "R400G", "--zone", "gz-a"}
	const id = "CI1-520100-I65-91350100M000100Y43-IC-GA1-CL-H989T-0-R400G-GPU-SN1-"
	full, _, _ := s.run("", append(issue, "-o", "name")...)
	full = strings.TrimSpace(full)
	if !strings.HasPrefix(full, id) || len(full) != len(id)+2 {
		t.Fatalf("identifier = %q", full)
	}
	s.want("issued again", "", "Identifier  "+full+"\nResource    gpu-1\nZone        gz-a\nIssued      …\nCode        …\n", issue...)
	code, _, _ := s.run("", "identifier", "list", "-o", "json")
	code = regexp.MustCompile(`"registrationCode": "([^"]+)"`).FindStringSubmatch(code)[1]
	s.want("verified", "", "Identifier     "+full+`
Form           right
Status         valid
Code           genuine
City           520100
Industry       I65
Enterprise     91350100M000100Y43
Resource type  IC
Data center    GA1
Service type   CL
Capability     H989T
Storage        0
Network        R400G
Chip           GPU SN1
Resource       gpu-1
Zone           gz-a
Issued         …
`, "identifier", "verify", strings.ToLower(full), "--code", code)
	typo := strings.Replace(full, "GA1", "GA2", 1)
	s.want("a typing mistake", "", "Identifier  "+typo+"\nForm        wrong: its check characters do not fit: some character is wrong\nexit 1\n", "identifier", "verify", typo)
	s.want("a wrong code", "", full+"\nexit 1\n", "identifier", "verify", full, "--code", code+"x", "-o", "name")
	s.want("without a reason", "", "2> error: --reason: say why\nexit 2\n", "identifier", "revoke", full)
	if _, errs, status := s.run("", "identifier", "revoke", full, "--reason", "sold"); status != 0 {
		t.Error(errs)
	}
	if list, _, _ := s.run("", "identifier", "list"); !regexp.MustCompile(full + `  gpu-1     gz-a  .*: sold\n`).MatchString(list) {
		t.Errorf("identifiers = %s", list)
	}
	s.want("deleted", "", "gpu-1  deleted\n", "resource", "delete", "gpu-1")
}

// A run that is cut short goes on where it ended when it is run again, and
// nothing is half done.
func TestResourceImportResumes(t *testing.T) {
	t.Parallel()
	s := startRegistrar(t, filepath.Join(t.TempDir(), "yunhe.db"))
	var b strings.Builder
	b.WriteString("resource_id,type,attributes.security_type\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "s%04d,security,waf\n", i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := newCLI()
	var out, errs bytes.Buffer
	c.out, c.err = &out, &errs
	c.env = func(name string) string { return map[string]string{"YUNHE_SERVER": s.url, "YUNHE_KEY": "any"}[name] }
	c.in = &cutReader{strings.NewReader(b.String()), 10_000, cancel}
	if status := c.run(ctx, []string{"resource", "import", "-", "--format", "csv", "--batch", "100"}); status == 0 {
		t.Fatalf("the run that was cut short ended well: %s", out.String())
	}
	again, _, status := s.run(b.String(), "resource", "import", "-", "--format", "csv")
	var created, updated, unchanged int
	_, err := fmt.Sscanf(again, "%d created, %d updated, %d unchanged", &created, &updated, &unchanged)
	if err != nil || status != 0 || created+unchanged != 1000 || created == 0 || unchanged == 0 || unchanged%100 != 0 {
		t.Errorf("run again: %s, %v; want what is left of 1000 after whole batches of 100", again, err)
	}
}

// cutReader gives the first n bytes and then ends the run.
type cutReader struct {
	r   io.Reader
	n   int
	end func()
}

func (c *cutReader) Read(p []byte) (int, error) {
	if c.n <= 0 {
		c.end()
		return 0, context.Canceled
	}
	n, err := c.r.Read(p[:min(len(p), c.n, 512)])
	c.n -= n
	return n, err
}

// On a terminal the progress is shown in one line, and gone in the end.
func TestResourceImportProgress(t *testing.T) {
	t.Parallel()
	s := startRegistrar(t, filepath.Join(t.TempDir(), "yunhe.db"))
	path := filepath.Join(s.work, "many.csv")
	var b strings.Builder
	b.WriteString("resource_id,type,attributes.security_type\n")
	for i := range 50 {
		fmt.Fprintf(&b, "s%04d,security,waf\n", i)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCLI()
	var out, errs bytes.Buffer
	c.out, c.err = &out, &errs
	c.env = func(name string) string {
		return map[string]string{"YUNHE_SERVER": s.url, "YUNHE_KEY": "any", "NO_COLOR": "1"}[name]
	}
	c.screen = func(io.Writer) (int, int, bool) { return 60, 20, true }
	at := fakeNow
	c.now = func() time.Time { at = at.Add(time.Second); return at }
	if status := c.run(t.Context(), []string{"resource", "import", path, "--batch", "25"}); status != 0 {
		t.Fatal(errs.String())
	}
	shown := errs.String()
	if !regexp.MustCompile(`\r100%  25 resources, [0-9]+ per second`).MatchString(shown) || !strings.Contains(shown, "\r100%  50 resources") {
		t.Errorf("progress = %q", shown)
	}
	if last := shown[strings.LastIndex(shown, "\r")+1:]; !strings.HasPrefix(last, "50 resources in") {
		t.Errorf("what is left of it = %q", last)
	}
}

// BenchmarkResourceImport measures imports of 20,000 resources through the
// command line, HTTP and the database, new and unchanged.
func BenchmarkResourceImport(b *testing.B) {
	const n = 20_000
	var y strings.Builder
	y.WriteString("- {resource_id: n1, type: node, region: guizhou, attributes: {available_resources: [{kind: gpu, scale: 8}]}}\n")
	csv := "resource_id,type,region,parent_id,labels.rack,attributes.supply_mode,attributes.chip_type,attributes.chip_arch,attributes.chip_model,attributes.serial_number,attributes.available_resources\n" +
		"n1,node,guizhou,,,,,,,,\"[{\"\"kind\"\":\"\"gpu\"\",\"\"scale\"\":8}]\"\n"
	var c strings.Builder
	c.WriteString(csv)
	for i := range n - 1 {
		fmt.Fprintf(&y, "- resource_id: gpu-%06d\n  type: compute\n  parent_id: n1\n  labels: {rack: r%d}\n  attributes:\n    supply_mode: bare_metal\n    chip_type: GPU\n    chip_arch: Hopper\n    chip_model: H800\n    serial_number: SN%d\n", i, i%100, i)
		fmt.Fprintf(&c, "gpu-%06d,compute,,n1,r%d,bare_metal,GPU,Hopper,H800,SN%d,\n", i, i%100, i)
	}
	for _, e := range []struct {
		name string
		url  func() string
	}{
		{"sqlite", func() string { return filepath.Join(b.TempDir(), "yunhe.db") }},
		{"postgres", func() string { return enginetest.Postgres(b) }},
	} {
		for _, f := range []struct{ format, text string }{{"yaml", y.String()}, {"csv", c.String()}} {
			b.Run(e.name+"/"+f.format, func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					s := startRegistrar(b, e.url())
					b.StartTimer()
					for _, what := range []string{"new", "same"} {
						start := time.Now()
						if out, errs, status := s.run(f.text, "resource", "import", "-", "--format", f.format); status != 0 {
							b.Fatal(out, errs)
						}
						b.ReportMetric(n/time.Since(start).Seconds(), what+"/s")
					}
				}
			})
		}
	}
}
