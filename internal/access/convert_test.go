package access

import (
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// with is a service that has these conversions, checked, beside the defaults.
func with(t testing.TB, list ...Conversion) *Service {
	t.Helper()
	lib := &library{converters: map[string]*converter{}}
	for _, c := range append(defaultConversions(), list...) {
		if err := c.check("conversion."); err != nil {
			t.Fatalf("%s: %v", c.ID, err)
		}
		lib.conversions = append(lib.conversions, &c)
	}
	for _, source := range []string{"", "other", "slurm"} {
		lib.converters[source] = newConverter(lib.conversions, source)
	}
	return &Service{lib: lib, log: slog.New(slog.DiscardHandler)}
}

// convert is Convert without a database behind it.
func (s *Service) convert(source string, inv *adapterv1.Inventory, n *adapterv1.Node) (*adapterv1.Inventory, *adapterv1.Node) {
	k := s.lib.converter(source)
	return k.inventory(inv), k.node(n)
}

func conv(id string, f Field, match, replace string) Conversion {
	return Conversion{Meta: Meta{ID: id}, Field: f, Match: match, Replace: replace, Enabled: true}
}

func TestDefaultConversions(t *testing.T) {
	t.Parallel()
	k := with(t).lib.converter("kubernetes")
	for _, x := range []struct {
		field    Field
		in, want string
	}{
		{Architecture, "x86_64", "amd64"}, {Architecture, "AArch64", "arm64"}, {Architecture, "loongarch64", "loong64"}, {Architecture, "amd64", "amd64"}, {Architecture, "z80", "z80"},
		{OperatingSystem, "Linux", "linux"}, {Vendor, "nvidia", "NVIDIA"}, {Vendor, "华为", "Huawei"}, {Vendor, "Acme", "Acme"},
		{Model, "NVIDIA-A100-SXM4-80GB", "A100"}, {Model, "Tesla V100-PCIE-16GB", "V100"}, {Model, "ascend910b", "Ascend 910b"}, {Model, "H800", "H800"}, {Model, "L40S-PCIE", "L40S"},
		{Resource, "nvidia.com/gpu", "gpu"}, {Resource, "huawei.com/Ascend910", "npu"}, {Resource, "example.com/fpga", "example.com/fpga"},
		{Region, "cn-beijing", "cn-beijing"}, // off
	} {
		if got := k.word(x.field, x.in); got != x.want {
			t.Errorf("field %d %q becomes %q, want %q", x.field, x.in, got, x.want)
		}
	}
	for _, c := range defaultConversions() {
		if c.UpdatedBy != "" || c.Title == "" {
			t.Errorf("default %s: %+v", c.ID, c)
		}
	}
}

func TestConvertInventory(t *testing.T) {
	t.Parallel()
	mega := conv("mem-mb", Resource, "memory_mb", "memory")
	mega.Times, mega.Source = 1<<20, "slurm"
	half := conv("half", Resource, "thread", "cpu")
	half.Times, half.Per = 1000, 2
	s := with(t, mega, half, conv("north", Region, "HB|TJ", "north"), conv("rack", Label, `failure-domain/rack=(.+)`, "rack=$1"), conv("zone", Label, `zone=(.+)`, "region=$1"))
	inv := &adapterv1.Inventory{AiCenterId: "c", Region: "HB", Capacity: map[string]int64{"thread": 64, "memory_mb": 2, "nvidia.com/gpu": 4, "gpu": 1},
		Labels: map[string]string{"failure-domain/rack": "7", "a": "b", "zone": "z", "region": "kept"}, Specs: []*adapterv1.SpecDeclaration{{ResourceSpecId: "s", Quantity: map[string]int64{"nvidia.com/gpu": 1}}}}
	node := &adapterv1.Node{Name: "n", Architecture: "x86_64", OperatingSystem: "LINUX", Capacity: map[string]int64{"nvidia.com/gpu": 8}, Allocatable: map[string]int64{"nvidia.com/gpu": 7},
		Accelerators: []*adapterv1.Accelerator{{Vendor: "nvidia", Model: "A100-SXM4-80GB", Count: 8, Resource: "nvidia.com/gpu"}}}
	before, nodeBefore := proto.CloneOf(inv), proto.CloneOf(node)
	got, gotNode := s.convert("slurm", inv, node)
	want := &adapterv1.Inventory{AiCenterId: "c", Region: "north", Capacity: map[string]int64{"cpu": 32_000, "memory": 2 << 20, "gpu": 5},
		Labels: map[string]string{"rack": "7", "a": "b", "zone": "z", "region": "kept"}, Specs: []*adapterv1.SpecDeclaration{{ResourceSpecId: "s", Quantity: map[string]int64{"gpu": 1}}}}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("inventory (-want +got):\n%s", d)
	}
	wantNode := &adapterv1.Node{Name: "n", Architecture: "amd64", OperatingSystem: "linux", Capacity: map[string]int64{"gpu": 8}, Allocatable: map[string]int64{"gpu": 7},
		Accelerators: []*adapterv1.Accelerator{{Vendor: "NVIDIA", Model: "A100", Count: 8, Resource: "gpu"}}}
	if d := cmp.Diff(wantNode, gotNode, protocmp.Transform()); d != "" {
		t.Errorf("node (-want +got):\n%s", d)
	}
	if !proto.Equal(inv, before) || !proto.Equal(node, nodeBefore) {
		t.Error("what came in was changed")
	}
	// What is for one source is not for another.
	if other, _ := s.convert("other", inv, nil); other.Capacity["memory_mb"] != 2 {
		t.Errorf("a conversion for slurm was applied to another source: %v", other.Capacity)
	}
	// What says our words already is handed on as it is.
	if again, againNode := s.convert("slurm", got, gotNode); again != got || againNode != gotNode {
		t.Error("what needs no conversion was copied")
	}
}

// Wrong conversions lose nothing.
func TestWrongConversions(t *testing.T) {
	t.Parallel()
	huge := conv("huge", Resource, "cpu", "cpu")
	huge.Times = maxFactor
	inv := &adapterv1.Inventory{Region: "r", Capacity: map[string]int64{"cpu": 1 << 40, "memory": 5}, Labels: map[string]string{"a": "1", "b": "2"}}
	for name, c := range map[string]Conversion{
		"an amount out of range":    huge,
		"an empty name":             conv("x", Resource, "(cpu)", "$2"),
		"a name with spaces":        conv("x", Resource, "cpu", "c p u"),
		"a label without a name":    conv("x", Label, "a=(.*)", "=$1"),
		"labels that fall together": conv("x", Label, "[ab]=(.*)", "b=$1"),
	} {
		got, _ := with(t, c).convert("", inv, nil)
		if len(got.Capacity) != 2 || got.Capacity["cpu"] != 1<<40 || got.Capacity["memory"] != 5 || len(got.Labels) != 2 || got.Region != "r" {
			t.Errorf("%s: %v", name, got)
		}
	}
	both := conv("x", Resource, "cpu|memory", "memory")
	big := &adapterv1.Inventory{Capacity: map[string]int64{"cpu": maxAmount, "memory": maxAmount}}
	if got, _ := with(t, both).convert("", big, nil); len(got.Capacity) != 2 {
		t.Errorf("amounts that are too much together: %v", got.Capacity)
	}
	if n, ok := scale(math.MaxInt64, maxFactor, 1); ok {
		t.Errorf("scale gave %d", n)
	}
	if n, ok := scale(3<<50, maxFactor, maxFactor); !ok || n != 3<<50 {
		t.Errorf("scale by one gave %d, %t", n, ok)
	}
}

func TestCheckConversion(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Conversion){
		"match: is required":   func(c *Conversion) { c.Match = "" },
		"is not a pattern":     func(c *Conversion) { c.Match = "(" },
		"must be at most 512":  func(c *Conversion) { c.Match = strings.Repeat("x", 513) },
		"replace: is required": func(c *Conversion) { c.Replace = "" },
		"field: must be":       func(c *Conversion) { c.Field = 9 },
		"times: must be":       func(c *Conversion) { c.Times = -1 },
		"for resources only":   func(c *Conversion) { c.Times = 2 },
		"priority: must be":    func(c *Conversion) { c.Priority = 1001 },
		"conversion_id":        func(c *Conversion) { c.ID = "not an id" },
		"conversion.source":    func(c *Conversion) { c.Source = "not an id" },
		"valid UTF-8 without":  func(c *Conversion) { c.Match = "a\x00" },
		"conversion.title":     func(c *Conversion) { c.Title = strings.Repeat("x", 200) },
		"conversion.version":   func(c *Conversion) { c.Version = -1 },
	} {
		c := conv("c", Vendor, "a", "b")
		change(&c)
		if err := c.check("conversion."); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want a problem with %q, got %v", name, err)
		}
	}
}

// Whatever a source says, and whatever the conversion: nothing is lost, and
// what comes out can be stored.
func FuzzConvert(f *testing.F) {
	f.Add("(.*)", "$1", "cpu", int64(5), int64(1024), int64(1), "a=b")
	f.Add("x|y", "", "x", int64(-5), int64(0), int64(0), "=")
	f.Add(`(?i)nvidia\.com/(.+)`, "$1${1}", "nvidia.com/gpu", int64(math.MaxInt64), int64(1)<<50, int64(7), "a\xff=b")
	f.Fuzz(func(t *testing.T, match, replace, word string, amount, times, per int64, label string) {
		c := Conversion{Meta: Meta{ID: "fuzz"}, Field: Resource, Match: match, Replace: replace, Times: times, Per: per, Enabled: true}
		if c.check("conversion.") != nil {
			return
		}
		l := c
		l.Field, l.Times, l.Per = Label, 0, 0
		if l.check("conversion.") != nil {
			l.Enabled = false
		}
		k := newConverter([]*Conversion{&c, &l}, "x")
		got := k.convert(Item{Resource, word, amount})
		if got.Out != got.In && (!isWord(Resource, got.Out.Value) || got.Out.Amount < 0 || got.Out.Amount > maxAmount) {
			t.Errorf("%q %d becomes %q %d", word, amount, got.Out.Value, got.Out.Amount)
		}
		name, value, _ := strings.Cut(label, "=")
		in := map[string]string{name: value, "other": "1"}
		if out := k.labels(in); out != nil && len(out) != len(in) {
			t.Errorf("labels %v become %v", in, out)
		}
		if out := k.amounts(map[string]int64{"cpu": 1, word: max(amount, 0) % maxAmount}); out != nil && len(out) == 0 {
			t.Error("all amounts are lost")
		}
	})
}

func BenchmarkConvert(b *testing.B) {
	s := with(b)
	k := s.lib.converter("slurm")
	nodes := make([]*adapterv1.Node, 100)
	for i := range nodes {
		nodes[i] = &adapterv1.Node{Name: "n", Architecture: "x86_64", OperatingSystem: "Linux", Capacity: map[string]int64{"cpu": 1, "memory": 2, "gpu": 8}, Allocatable: map[string]int64{"cpu": 1, "memory": 2, "gpu": 8},
			Labels: map[string]string{"a": "b", "c": "d"}, Accelerators: []*adapterv1.Accelerator{{Vendor: "NVIDIA", Model: "A100-SXM4-80GB", Count: 8, Resource: "gpu"}}}
	}
	for b.Loop() {
		for _, n := range nodes {
			k.node(n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(nodes)), "ns/node")
}
