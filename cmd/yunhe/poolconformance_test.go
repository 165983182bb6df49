package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/pools/conformance"
)

// The node that a conformance check starts has the drivers that show devices, and
// the last of several is a card that comes and goes; without any the check is not
// provided.
func TestCardSlot(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "yunhe") // finds a device of CUDA, and one for each driver that is good
	script := "#!/bin/sh\necho '{\"version\": \"v1\", \"devices\": '$(($(cat \"$OCL_ICD_VENDORS\"/*.icd 2>/dev/null | grep -c good) + 1))'}'\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		drivers map[string]string
		at      []string // first
		card    string
		absent  string
	}{
		"none":           {absent: "no vendor's file"},
		"one of nothing": {drivers: map[string]string{"a.icd": "bad"}, absent: "no vendor's file"},
		"one":            {drivers: map[string]string{"a.icd": "good", "b.icd": "bad", "c.conf": "good"}, at: []string{"a.icd"}},
		"several":        {drivers: map[string]string{"a.icd": "good", "b.icd": "bad", "c.icd": "good", "d.icd": "good"}, at: []string{"a.icd", "c.icd"}, card: "d.icd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vendors, dir := t.TempDir(), t.TempDir()
			for file, is := range x.drivers {
				if err := os.WriteFile(filepath.Join(vendors, file), []byte(is+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := newCLI()
			c.env = func(name string) string { return map[string]string{"OCL_ICD_VENDORS": vendors}[name] }
			var n conformance.Node
			env, err := c.cardSlot(t.Context(), program, dir, &n)
			if x.absent != "" {
				if err == nil || !strings.Contains(err.Error(), x.absent) {
					t.Errorf("it is not absent: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			slots := filepath.Join(dir, "slots")
			has := func(want ...string) {
				t.Helper()
				var got []string
				files, err := os.ReadDir(slots)
				for _, f := range files {
					got = append(got, f.Name())
				}
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("the node has %v, %v, not %v", got, err, want)
				}
			}
			if has(x.at...); !slices.Equal(env, []string{"OCL_ICD_VENDORS=" + slots}) {
				t.Errorf("its environment is %v", env)
			}
			if n.Card == nil || x.card == "" {
				if (n.Card == nil) != (x.card == "") {
					t.Error("a card can be put in, or cannot, where it is otherwise")
				}
				return
			}
			for _, in := range []bool{true, false, true} {
				if err := n.Card(in); err != nil {
					t.Fatal(err)
				}
				if in {
					has(append(slices.Clone(x.at), x.card)...)
				} else {
					has(x.at...)
				}
			}
		})
	}
}
