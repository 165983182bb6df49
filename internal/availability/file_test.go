package availability_test

import (
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/availability"
	"yunhe.dev/yunhe/internal/fault"
)

func TestDecode(t *testing.T) {
	s, err := availability.Decode([]byte("modules: [{name: a, submodules: [{name: x, availability: 0.95}, {name: y}]}]\ntarget: 0.999\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Instances != 3 || s.Target != 0.999 || s.Modules[0].Submodules[1].Availability != availability.DefaultAvailability {
		t.Errorf("%+v", s)
	}
	if _, err := availability.Decode([]byte(`{"modules":[{"name":"a","submodules":[{"name":"x"}]}]}`)); err != nil {
		t.Errorf("JSON: %v", err)
	}
	for text, want := range map[string]string{
		"":                                "empty",
		"modules: 3":                      "line 1",
		"moduls: []":                      "moduls",
		"modules: []":                     "modules",
		"modules: [{name: a}]\n---\na: 1": "more than one",
		"modules: [{name: a, submodules: [{name: x, availability: 99}]}]": "at most 1",
		"modules: [{name: a/b, submodules: [{name: x}]}]":                 "without a slash",
		`{"moduls":[]}`: `unknown member "moduls"`,
	} {
		if _, err := availability.Decode([]byte(text)); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want one with %q", text, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("modules: [{name: a, submodules: [{name: x, availability: 0.95}, {name: y}]}]\ntarget: 0.999\nsites: [{name: s, availability: 0.9}, {name: u, availability: 1}]\ncommon_cause: 0.1")
	f.Add("modules: [{name: a, instances: 1, cost: 3, submodules: [{name: x}]}]\ndependencies: [{from: a/x, to: a/x}]")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := availability.Decode([]byte(text))
		if err != nil {
			return
		}
		for _, m := range s.Modules {
			if len(m.Submodules) > 8 {
				return
			}
		}
		if len(s.Modules) > 3 {
			return
		}
		for _, method := range availability.Methods() {
			plan, err := availability.Make(s, method)
			if err != nil {
				continue
			}
			if !(plan.Availability >= 0 && plan.Availability <= 1) {
				t.Errorf("%s: availability %v", method, plan.Availability)
			}
			if method != availability.Clustered {
				whole(t, s, plan)
			}
		}
	})
}
