package accelerators_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunhe.dev/yunhe/internal/accelerators"
	"yunhe.dev/yunhe/internal/fault"
)

func rate(t testing.TB, p accelerators.Precision, v float64) accelerators.Rate {
	t.Helper()
	r, err := accelerators.NewRate(p, v)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRate(t *testing.T) {
	t.Parallel()
	a, b := rate(t, accelerators.FP16, 312), rate(t, accelerators.FP16, 989.5)
	sum, err := a.Add(b)
	if err != nil || sum != rate(t, accelerators.FP16, 1301.5) || sum.String() != "1301.5 TFLOPS FP16" {
		t.Errorf("%v, %v", sum, err)
	}
	if got := a.Times(8); got != rate(t, accelerators.FP16, 2496) {
		t.Errorf("eight: %v", got)
	}
	if got := a.Times(-1); got.Tera() != 0 {
		t.Errorf("minus one: %v", got)
	}
	for _, p := range accelerators.Precisions() {
		for _, q := range accelerators.Precisions() {
			got, err := rate(t, p, 1).Add(rate(t, q, 2))
			switch {
			case p == q && (err != nil || got != rate(t, p, 3)):
				t.Errorf("%s + %s: %v, %v", p, q, got, err)
			case p != q && (fault.KindOf(err) != fault.Invalid || got != accelerators.Rate{}):
				t.Errorf("%s + %s: %v, %v, want it refused", p, q, got, err)
			}
		}
	}
	zero := accelerators.Rate{}
	if got, err := zero.Add(a); got != a || err != nil {
		t.Errorf("none and one: %v, %v", got, err)
	}
	if got, err := a.Add(zero); got != a || err != nil {
		t.Errorf("one and none: %v, %v", got, err)
	}
	for _, v := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := accelerators.NewRate(accelerators.FP16, v); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%v: %v", v, err)
		}
	}
	if _, err := accelerators.NewRate("FP12", 1); fault.KindOf(err) != fault.Invalid {
		t.Errorf("FP12: %v", err)
	}
	if u := accelerators.INT8.Unit() + " " + accelerators.BF16.Unit(); u != "TOPS TFLOPS" {
		t.Errorf("units %s", u)
	}
}

func TestTotals(t *testing.T) {
	t.Parallel()
	got := accelerators.Totals(rate(t, accelerators.INT8, 4), rate(t, accelerators.FP16, 1), rate(t, accelerators.INT8, 5), accelerators.Rate{}, rate(t, accelerators.FP16, 2))
	if len(got) != 2 || got[0] != rate(t, accelerators.FP16, 3) || got[1] != rate(t, accelerators.INT8, 9) {
		t.Errorf("totals %v", got)
	}
}

func TestRateJSON(t *testing.T) {
	t.Parallel()
	want := []accelerators.Rate{rate(t, accelerators.INT8, 1979), {}, rate(t, accelerators.FP64, 0.8)}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `{"precision":"INT8","tera":1979,"unit":"TOPS"}`) {
		t.Errorf("written %s", b)
	}
	var got []accelerators.Rate
	if err := json.Unmarshal(b, &got); err != nil || len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("read %v, %v", got, err)
	}
	for _, bad := range []string{`{"precision":"FP16","tera":-1}`, `{"precision":"x","tera":1}`, `{"tera":1}`, `7`} {
		if err := json.Unmarshal([]byte(bad), new(accelerators.Rate)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestKnown reads the data that ship and asks for what a national network
// must know.
func TestKnown(t *testing.T) {
	t.Parallel()
	table := accelerators.Known()
	all := table.All()
	if len(all) < 60 {
		t.Errorf("%d accelerators, want at least 60", len(all))
	}
	classes, vendors := map[string]int{}, map[string]int{}
	for _, a := range all {
		classes[a.Class]++
		vendors[a.Vendor]++
		for _, n := range append([]string{a.Model, a.Vendor + " " + a.Model, strings.ToUpper(strings.ReplaceAll(a.Model, " ", "-"))}, a.Names...) {
			if got, ok := table.Find(n); !ok || got.Model != a.Model {
				t.Errorf("%q finds %v %v, want %s", n, got.Model, ok, a.Model)
			}
		}
		for _, r := range a.Peak {
			if got, ok := a.PeakOf(r.Precision()); !ok || got != r {
				t.Errorf("%s in %s: %v", a.Model, r.Precision(), got)
			}
		}
	}
	for _, c := range []string{"gpu", "npu", "mlu", "tpu", "fpga"} {
		if classes[c] == 0 {
			t.Errorf("no %s", c)
		}
	}
	for _, v := range []string{"NVIDIA", "AMD", "Intel", "Huawei", "Cambricon", "Moore Threads", "Google", "AWS"} {
		if vendors[v] == 0 {
			t.Errorf("none of %s", v)
		}
	}
}

// TestFind uses names as drivers and cluster plug-ins write them, and a figure of
// each that is known from elsewhere.
func TestFind(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		model string
		p     accelerators.Precision
		tera  float64
		gib   int64
	}{
		"NVIDIA-H800-80GB-HBM3":             {"H800 SXM5 80GB", accelerators.FP64, 1, 80},
		"NVIDIA H100 80GB HBM3":             {"H100 SXM5 80GB", accelerators.FP8, 1979, 80},
		"NVIDIA-H100-80GB-HBM3-SHARED":      {"H100 SXM5 80GB", accelerators.FP16, 989.5, 80},
		"NVIDIA A100-SXM4-80GB":             {"A100 SXM4 80GB", accelerators.BF16, 312, 80},
		"A100-SXM4-40GB":                    {"A100 SXM4 40GB", accelerators.FP64, 19.5, 40},
		"Tesla V100-SXM2-32GB":              {"V100 SXM2 32GB", accelerators.FP16, 125, 32},
		"Tesla-T4":                          {"T4", accelerators.INT8, 130, 16},
		"NVIDIA H200":                       {"H200 SXM 141GB", accelerators.FP16, 989.5, 141},
		"AMD Instinct MI300X OAM":           {"Instinct MI300X", accelerators.FP64, 163.4, 192},
		"Intel(R) Data Center GPU Max 1550": {"Data Center GPU Max 1550", accelerators.FP64, 52, 128},
		"Ascend910A":                        {"Ascend 910", accelerators.FP16, 256, 32},
		"MLU370-X8":                         {"MLU370-X8", accelerators.INT8, 256, 48},
		"tpu-v5p-slice":                     {"TPU v5p", accelerators.BF16, 459, 95},
	} {
		a, ok := accelerators.Known().Find(name)
		r, stated := a.PeakOf(want.p)
		if !ok || a.Model != want.model || !stated || r.Tera() != want.tera || a.MemoryBytes != want.gib<<30 {
			t.Errorf("%s: %+v, %v, want %+v", name, a, ok, want)
		}
	}
	for _, name := range []string{"", "NVIDIA", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "H", "GPU", "A10G", "NVIDIA H8000", "shared", "\xff"} {
		if a, ok := accelerators.Known().Find(name); ok {
			t.Errorf("%q finds %s", name, a.Model)
		}
	}
	if _, ok := accelerators.Known().All()[0].PeakOf(accelerators.INT4); ok {
		t.Error("a figure nobody states")
	}
}

// No caller can change the table.
func TestAllIsACopy(t *testing.T) {
	t.Parallel()
	a := accelerators.Known().All()
	first := a[0]
	a[0] = accelerators.Accelerator{}
	if diff := cmp.Diff(first.Model, accelerators.Known().All()[0].Model); diff != "" {
		t.Error(diff)
	}
}

const good = `
- vendor: V
  model: M1
  names: [N1]
  class: gpu
  memory: 16
  bandwidth: 300
  power: 70
  peak: {FP32: 8, FP16: 65, INT8: 130}
  halved: [FP16]
  source: https://example.com/m1
  checked:
    https://example.com/other: [FP32, memory]
`

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	tab, err := accelerators.Read([]byte(good))
	if err != nil || len(tab.All()) != 1 {
		t.Fatalf("the base: %v", err)
	}
	if diff := cmp.Diff([]accelerators.Check{{Page: "https://example.com/other", Figures: []string{"FP32", "memory"}}}, tab.All()[0].Checked); diff != "" {
		t.Error(diff)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"no model":               {"model: M1", "model: ''", "required"},
		"a name of nothing":      {"[N1]", "['--']", "required"},
		"another class":          {"class: gpu", "class: cpu", "class must be"},
		"no source":              {"https://example.com/m1", "a book", "https address"},
		"a plain source":         {"https://", "http://", "https address"},
		"memory in bytes":        {"memory: 16", "memory: 17179869184", "memory must be between"},
		"no memory":              {"memory: 16", "memory: 0", "memory must be between"},
		"bandwidth in TB/s":      {"bandwidth: 300", "bandwidth: 0.3", "bandwidth must be between"},
		"power of a rack":        {"power: 70", "power: 120000", "power must be between"},
		"FLOPS for TFLOPS":       {"FP32: 8", "FP32: 8000000000000", "peak FP32 must be between"},
		"PFLOPS for TFLOPS":      {"FP32: 8", "FP32: 0.008", "peak FP32 must be between"},
		"not a number":           {"FP32: 8", "FP32: .nan", "peak FP32 must be between"},
		"a precision of no kind": {"FP32: 8", "FP31: 8", "figures of"},
		"no figures":             {"{FP32: 8, FP16: 65, INT8: 130}", "{}", "figures of"},
		"swapped":                {"FP16: 65, INT8: 130", "FP16: 130, INT8: 65", "is less than"},
		"halved and not there":   {"[FP16]", "[FP8]", "has no figure"},
		"checked and not there":  {"[FP32, memory]", "[FP64]", "checked names FP64"},
		"checked from memory":    {"https://example.com/other", "a book", "must name addresses"},
		"an unknown key":         {"power:", "watts:", "cannot be read"},
		"no YAML":                {"- vendor", "- : - vendor", "cannot be read"},
		"reported without why":   {"power: 70", "power: 70\n  reported: true", "need a note"},
		"the same name twice":    {good, good + strings.ReplaceAll(good, "M1", "M2"), "is also that of"},
		"the same but for case":  {good, good + strings.ReplaceAll(strings.ReplaceAll(good, "M1", "NVIDIA n-1"), "[N1]", "[]"), "is also that of"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if _, err := accelerators.Read([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add("NVIDIA-A100-SXM4-80GB")
	f.Add("(R) (TM)")
	f.Fuzz(func(t *testing.T, name string) {
		a, ok := accelerators.Known().Find(name)
		if !ok {
			return
		}
		if again, ok := accelerators.Known().Find(strings.ToUpper(name)); ok && again.Model != a.Model {
			t.Errorf("%q is %s, in capitals %s", name, a.Model, again.Model)
		}
	})
}
