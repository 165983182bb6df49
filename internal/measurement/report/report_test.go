package report_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunhe.dev/yunhe/internal/measurement/report"
)

func example() *report.Report {
	return &report.Report{Scope: report.Machine, Cores: 2, Host: "n1", Architecture: "amd64", Processor: "AMD EPYC", MHz: 2596.1, Medium: "ext4", Seconds: 21.5,
		Devices: []report.Device{{API: "opencl", Class: "cpu", Units: 2, MHz: 2596, Name: "pthread-AMD EPYC"}},
		Figures: []report.Figure{{Indicator: "memory.bandwidth", Number: 20310.25, Device: -1}, {Indicator: "accelerator.measured.fp32", Number: 0.12, Device: 0}},
		Notes:   []string{"one note"}}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	want := example()
	for _, around := range [][2]string{{"", ""}, {"hello\n", "bye\n"}, {"x\nyunhe-measurement is next\n", ""}} {
		got, err := report.Parse(around[0] + want.Text() + around[1])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("read back (-want +got):\n%s", diff)
		}
	}
	odd := example()
	odd.Processor, odd.Notes = "  a\tb\nc\xff ", []string{strings.Repeat("é", 300)}
	if got, err := report.Parse(odd.Text()); err != nil || got.Processor != "a b c" || len(got.Notes[0]) > 256 {
		t.Errorf("odd text: %+v, %v", got, err)
	}
	odd.Add("zero", 0, -1)
	if len(odd.Figures) != 2 {
		t.Errorf("what is 0 is a figure: %v", odd.Figures)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := example().Text()
	with := func(change func(*report.Report)) string { r := example(); change(r); return r.Text() }
	for name, c := range map[string]struct{ log, want string }{
		"nothing":           {"all well\n", "no report"},
		"another version":   {"yunhe-measurement 9 begin machine\n", "version 1"},
		"two":               {good + good, "several"},
		"cut":               {good[:len(good)-30], "cut"},
		"a line missing":    {strings.Replace(good, "fact\thost\tn1\n", "", 1), "damaged"},
		"a figure changed":  {strings.Replace(good, "20310.25", "90310.25", 1), "damaged"},
		"written into":      {strings.Replace(good, "fact\thost", "kernel: hi\nfact\thost", 1), "damaged"},
		"no scope":          {with(func(r *report.Report) { r.Scope = "all" }), "machine or devices"},
		"no cores":          {with(func(r *report.Report) { r.Cores = 0 }), "cores must be"},
		"a slow clock":      {with(func(r *report.Report) { r.MHz = -1 }), "mhz must be"},
		"no indicator":      {with(func(r *report.Report) { r.Figures[0].Indicator = "A b" }), "a figure has"},
		"twice":             {with(func(r *report.Report) { r.Figures = append(r.Figures, r.Figures[0]) }), "twice"},
		"no such device":    {with(func(r *report.Report) { r.Figures[1].Device = 1 }), "not there"},
		"negative":          {with(func(r *report.Report) { r.Figures[0].Number = -1 }), "more than 0"},
		"no such class":     {with(func(r *report.Report) { r.Devices[0].Class = "tpu" }), "device cannot be read"},
		"too many figures":  {with(func(r *report.Report) { r.Figures = make([]report.Figure, 600) }), "more than 512 lines"},
		"an empty note":     {with(func(r *report.Report) { r.Notes = []string{""} }), "a note"},
		"a report in a row": {"x" + good, "no report"},
	} {
		if _, err := report.Parse(c.log); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
}

// FuzzParse: whatever is read can be written and is read the same again.
func FuzzParse(f *testing.F) {
	f.Add(example().Text())
	f.Add("x\n" + example().Text() + "y")
	f.Add("yunhe-measurement 1 begin devices\nyunhe-measurement 1 end\t0\t00000000\n")
	f.Fuzz(func(t *testing.T, log string) {
		r, err := report.Parse(log)
		if err != nil {
			return
		}
		again, err := report.Parse(r.Text())
		if err != nil {
			t.Fatalf("not read again: %v\n%q", err, r.Text())
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Fatalf("read again (-first +second):\n%s", diff)
		}
	})
}
