// Package accelerators knows what common accelerators can do at most, by
// numeric precision, with the source of every figure.
//
// What it keeps true:
//
//   - A figure carries its precision. Figures of different precision are never
//     added: [Rate.Add] refuses, and there is no other way to add two.
//   - Figures are dense: those a vendor states with structured sparsity only
//     are halved, and say so.
//   - A name a driver reports finds one accelerator or none; nothing is
//     guessed from a part of a name.
//   - The data are checked when they are read: known units and classes,
//     plausible sizes, names used once, a source for each. The tests read them, so
//     that a program never meets data that fail.
//
// The data are accelerators.yaml, embedded. An accelerator that is not there is no
// error anywhere: it has no peak figures, and is measured or left out.
package accelerators

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode"

	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/internal/fault"
)

// Precision is the kind of numbers a figure is about.
type Precision string

// The precisions, in the order they are shown.
const (
	FP64 Precision = "FP64"
	FP32 Precision = "FP32"
	TF32 Precision = "TF32"
	FP16 Precision = "FP16"
	BF16 Precision = "BF16"
	FP8  Precision = "FP8"
	INT8 Precision = "INT8"
	INT4 Precision = "INT4"
)

// Precisions are all there are, in the order they are shown.
func Precisions() []Precision { return []Precision{FP64, FP32, TF32, FP16, BF16, FP8, INT8, INT4} }

// Unit is what figures of the precision are stated in: TFLOPS, or TOPS for
// whole numbers.
func (p Precision) Unit() string {
	if p == INT8 || p == INT4 {
		return "TOPS"
	}
	return "TFLOPS"
}

// Rate is how many operations of one precision are done a second. The zero
// Rate is none, of no precision.
type Rate struct {
	precision Precision
	tera      float64
}

// NewRate returns a rate in tera operations a second. It returns Invalid for
// a precision there is not and for what is no amount.
func NewRate(p Precision, tera float64) (Rate, error) {
	if !slices.Contains(Precisions(), p) {
		return Rate{}, fault.New(fault.Invalid, "precision must be one of %v, got %q", Precisions(), p)
	}
	if !(tera >= 0) || math.IsInf(tera, 0) {
		return Rate{}, fault.New(fault.Invalid, "%s must be at least 0, got %v", p, tera)
	}
	return Rate{p, tera}, nil
}

// Precision is what the rate is of; empty for the zero Rate.
func (r Rate) Precision() Precision { return r.precision }

// Tera is the rate in tera operations a second.
func (r Rate) Tera() float64 { return r.tera }

// Times is the rate of n devices together.
func (r Rate) Times(n int64) Rate { return Rate{r.precision, r.tera * float64(max(0, n))} }

// Add returns the sum of two rates of one precision; the zero Rate adds
// nothing to any. It returns Invalid for rates of different precision: a
// machine that does so many of the one and so many of the other does not do both together,
// nor are they worth the same.
func (r Rate) Add(s Rate) (Rate, error) {
	switch {
	case r.precision == "":
		return s, nil
	case s.precision == "" || r.precision == s.precision:
		return Rate{r.precision, r.tera + s.tera}, nil
	}
	return Rate{}, fault.New(fault.Invalid, "a rate in %s cannot be added to one in %s", s.precision, r.precision)
}

// String is for people: "989.5 TFLOPS FP16".
func (r Rate) String() string {
	if r.precision == "" {
		return "none"
	}
	return fmt.Sprintf("%g %s %s", r.tera, r.precision.Unit(), r.precision)
}

// rateJSON is the form of a Rate in JSON.
type rateJSON struct {
	Precision Precision `json:"precision"`
	Tera      float64   `json:"tera"`
	Unit      string    `json:"unit"`
}

// MarshalJSON writes the precision with the figure.
func (r Rate) MarshalJSON() ([]byte, error) {
	return json.Marshal(rateJSON{r.precision, r.tera, r.precision.Unit()})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Rate) UnmarshalJSON(b []byte) error {
	var j rateJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if j.Precision == "" && j.Tera == 0 {
		*r = Rate{}
		return nil
	}
	var err error
	*r, err = NewRate(j.Precision, j.Tera)
	return err
}

// Totals adds up rates, each precision by itself, in the order precisions are
// shown.
func Totals(rates ...Rate) []Rate {
	var out []Rate
	for _, p := range Precisions() {
		sum := Rate{}
		for _, r := range rates {
			if r.precision == p {
				sum = Rate{p, sum.tera + r.tera}
			}
		}
		if sum.precision != "" {
			out = append(out, sum)
		}
	}
	return out
}

// Accelerator is a model.
type Accelerator struct {
	Vendor       string      `json:"vendor"`
	Model        string      `json:"model"`
	Names        []string    `json:"names,omitempty"`                   // as drivers report it
	Class        string      `json:"class"`                             // what it counts as in capacities: gpu, npu, mlu, dcu, tpu, fpga
	MemoryBytes  int64       `json:"memory_bytes"`                      // of one
	BandwidthGBs float64     `json:"bandwidth_gb_per_second,omitempty"` // of its memory; 0: not stated
	PowerWatts   float64     `json:"power_watts,omitempty"`             // at most; 0: not stated
	Peak         []Rate      `json:"peak"`                              // dense, in the order precisions are shown
	Halved       []Precision `json:"halved,omitempty"`
	Source       string      `json:"source"` // where the figures are from
	Checked      []Check     `json:"checked,omitempty"`
	Reported     bool        `json:"reported,omitempty"` // by others than the maker
	Note         string      `json:"note,omitempty"`
}

// Check is a page that was opened, and which figures it was found to state as they are here.
type Check struct {
	Page    string   `json:"page"`
	Figures []string `json:"figures"` // precisions, "memory", "bandwidth", "power"
}

// Uncompared are the precisions whose figures no page that was opened was found
// to state.
func (a Accelerator) Uncompared() []string {
	var out []string
	for _, r := range a.Peak {
		name := string(r.precision)
		if !slices.ContainsFunc(a.Checked, func(c Check) bool { return slices.Contains(c.Figures, name) }) {
			out = append(out, name)
		}
	}
	return out
}

// PeakOf returns the peak rate in a precision; ok is false if none is stated.
func (a Accelerator) PeakOf(p Precision) (r Rate, ok bool) {
	i := slices.IndexFunc(a.Peak, func(r Rate) bool { return r.precision == p })
	if i < 0 {
		return Rate{}, false
	}
	return a.Peak[i], true
}

// Classes are what accelerators count as.
func Classes() []string { return []string{"gpu", "npu", "mlu", "dcu", "tpu", "fpga", "asic"} }

//go:embed accelerators.yaml
var data []byte

var known = sync.OnceValues(func() (*Table, error) { return Read(data) })

// Known is the table that comes with the program.
func Known() *Table {
	t, err := known()
	if err != nil {
		panic("the accelerators that come with the program: " + err.Error()) // a test reads them
	}
	return t
}

// Table is a set of accelerators. It never changes.
type Table struct {
	all    []Accelerator
	byName map[string]int
}

// All returns every accelerator, in the order of the data.
func (t *Table) All() []Accelerator { return slices.Clone(t.all) }

// Find returns the accelerator a driver, or a cluster's plug-in, calls name.
// Case, punctuation and a leading or missing vendor do not matter:
// "NVIDIA-H800-80GB-HBM3" is "NVIDIA H800 80GB HBM3". Nor does "-SHARED",
// which says that several jobs use one.
func (t *Table) Find(name string) (Accelerator, bool) {
	i, ok := t.byName[key(name)]
	if !ok {
		return Accelerator{}, false
	}
	return t.all[i], true
}

// key is what is compared of a name.
func key(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	// "(R)" and "(TM)" are trade marks; makers come with and without.
	words = slices.DeleteFunc(words, func(w string) bool {
		return slices.Contains([]string{"r", "tm", "nvidia", "amd", "intel", "huawei", "cambricon", "corporation", "inc"}, w)
	})
	if n := len(words); n > 1 && words[n-1] == "shared" {
		words = words[:n-1]
	}
	return strings.Join(words, "")
}

// row is an accelerator in the data.
type row struct {
	Vendor    string                `yaml:"vendor"`
	Model     string                `yaml:"model"`
	Names     []string              `yaml:"names"`
	Class     string                `yaml:"class"`
	Memory    float64               `yaml:"memory"`
	Bandwidth float64               `yaml:"bandwidth"`
	Power     float64               `yaml:"power"`
	Peak      map[Precision]float64 `yaml:"peak"`
	Halved    []Precision           `yaml:"halved"`
	Source    string                `yaml:"source"`
	Checked   map[string][]string   `yaml:"checked"`
	Reported  bool                  `yaml:"reported"`
	Note      string                `yaml:"note"`
}

// Read checks data and returns their table. It returns Invalid, with every
// fault of every row.
func Read(data []byte) (*Table, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	var rows []row
	if err := d.Decode(&rows); err != nil {
		return nil, fault.New(fault.Invalid, "the accelerators cannot be read: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	t := &Table{byName: map[string]int{}}
	var bad []error
	for i, r := range rows {
		a, err := r.check()
		if err != nil {
			bad = append(bad, fault.New(fault.Invalid, "accelerators[%d] (%s %s): %v", i, r.Vendor, r.Model, err))
			continue
		}
		keys := []string{key(a.Model)}
		for _, n := range append([]string{a.Vendor + " " + a.Model}, a.Names...) {
			if k := key(n); !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
		for _, k := range keys {
			if j, taken := t.byName[k]; taken {
				bad = append(bad, fault.New(fault.Invalid, "accelerators[%d] (%s %s): the name %q is also that of %s %s", i, r.Vendor, r.Model, k, t.all[j].Vendor, t.all[j].Model))
				continue
			}
			t.byName[k] = len(t.all)
		}
		t.all = append(t.all, a)
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	return t, nil
}

// limits are what a figure of one device can be. A figure outside is in
// another unit, or of a whole machine.
var limits = map[string][2]float64{"memory": {1, 1024}, "bandwidth": {10, 30000}, "power": {5, 3000}, "peak": {0.1, 40000}}

func (r row) check() (Accelerator, error) {
	var bad []error
	add := func(format string, args ...any) { bad = append(bad, fmt.Errorf(format, args...)) }
	within := func(what string, v float64, mayLack bool) {
		l := limits[strings.Fields(what)[0]]
		if mayLack && v == 0 {
			return
		}
		if !(v >= l[0] && v <= l[1]) {
			add("%s must be between %g and %g, got %g", what, l[0], l[1], v)
		}
	}
	if r.Vendor == "" || key(r.Model) == "" || slices.ContainsFunc(r.Names, func(n string) bool { return key(n) == "" }) {
		add("vendor, model and every name are required")
	}
	if !slices.Contains(Classes(), r.Class) {
		add("class must be one of %v, got %q", Classes(), r.Class)
	}
	if u, err := url.Parse(r.Source); err != nil || u.Scheme != "https" || u.Host == "" {
		add("source must be an https address, got %q", r.Source)
	}
	stated := map[string]bool{"memory": true, "bandwidth": r.Bandwidth != 0, "power": r.Power != 0}
	for p := range r.Peak {
		stated[string(p)] = true
	}
	for _, page := range slices.Sorted(maps.Keys(r.Checked)) {
		if u, err := url.Parse(page); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			add("checked must name addresses, got %q", page)
		}
		for _, name := range r.Checked[page] {
			if !stated[name] {
				add("checked names %s, which has no figure", name)
			}
		}
	}
	within("memory", r.Memory, false)
	within("bandwidth", r.Bandwidth, true)
	within("power", r.Power, true)
	a := Accelerator{Vendor: r.Vendor, Model: r.Model, Names: r.Names, Class: r.Class, MemoryBytes: int64(r.Memory * (1 << 30)), BandwidthGBs: r.Bandwidth,
		PowerWatts: r.Power, Halved: r.Halved, Source: r.Source, Reported: r.Reported, Note: r.Note}
	for _, page := range slices.Sorted(maps.Keys(r.Checked)) {
		a.Checked = append(a.Checked, Check{page, r.Checked[page]})
	}
	for _, p := range Precisions() {
		if v, ok := r.Peak[p]; ok {
			within("peak "+string(p), v, false)
			a.Peak = append(a.Peak, Rate{p, v})
		}
	}
	if len(a.Peak) == 0 || len(a.Peak) != len(r.Peak) {
		add("peak must have figures of %v only, got %v", Precisions(), r.Peak)
	}
	// Fewer bits are never slower on one device, so figures the other way
	// round are in each other's place.
	for _, pair := range [][2]Precision{{FP64, FP32}, {FP32, TF32}, {TF32, FP16}, {FP32, FP16}, {FP16, FP8}, {BF16, FP8}, {FP16, INT8}, {INT8, INT4}} {
		wide, ok1 := r.Peak[pair[0]]
		narrow, ok2 := r.Peak[pair[1]]
		if ok1 && ok2 && narrow < wide {
			add("%s (%g) is less than %s (%g)", pair[1], narrow, pair[0], wide)
		}
	}
	for _, p := range r.Halved {
		if _, ok := r.Peak[p]; !ok {
			add("halved names %s, which has no figure", p)
		}
	}
	if r.Reported && r.Note == "" {
		add("figures that others than the maker report need a note")
	}
	return a, errors.Join(bad...)
}
