package arch_test

import (
	"encoding/csv"
	"errors"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// testFuncs are the names of the tests, fuzz tests and benchmarks there are,
// by package.
func testFuncs(t *testing.T) map[string]map[string]bool {
	t.Helper()
	out := map[string]map[string]bool{}
	for _, f := range all(t) {
		if !f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz") || strings.HasPrefix(fn.Name.Name, "Benchmark")) {
				if out[f.pkg] == nil {
					out[f.pkg] = map[string]bool{}
				}
				out[f.pkg][fn.Name.Name] = true
			}
		}
	}
	return out
}

// TestConformance: docs/conformance.csv has every requirement once, and what
// it calls done is proven by a test that exists.
func TestConformance(t *testing.T) {
	t.Parallel()
	in, err := os.Open("../../docs/conformance.csv")
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatal("docs/conformance.csv is missing")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }() // only read
	rows, err := csv.NewReader(in).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := func(name string) int {
		i := slices.IndexFunc(rows[0], func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), name) })
		if i < 0 {
			t.Fatalf("the table has the columns %v, want one named %s", rows[0], name)
		}
		return i
	}
	id, status, proof := column("id"), column("status"), column("proof")
	wanted, err := os.ReadFile("testdata/requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{}
	for _, r := range strings.Fields(string(wanted)) {
		open[r] = true
	}
	if len(open) != 891 {
		t.Fatalf("the list has %d requirements, want 891", len(open))
	}
	tests := testFuncs(t)
	for n, row := range rows[1:] {
		line := n + 2
		if !open[row[id]] {
			t.Errorf("line %d: %s is given twice or is no requirement", line, row[id])
		}
		delete(open, row[id])
		if !slices.Contains([]string{"done", "partial", "open", "n/a"}, row[status]) {
			t.Errorf("line %d: %s has the status %q, want done, partial, open or n/a", line, row[id], row[status])
		}
		proofs := strings.Fields(row[proof])
		if row[status] == "done" && len(proofs) == 0 {
			t.Errorf("line %d: %s is done without proof", line, row[id])
		}
		for _, p := range proofs {
			if why := unproven(p, tests); why != "" {
				t.Errorf("line %d: %s: %s", line, row[id], why)
			}
		}
	}
	for r := range open {
		t.Errorf("%s is missing", r)
	}
}

// unproven says why a proof is none, "" if it is one: package:TestName, or a
// file below e2e/ or web/.
func unproven(proof string, tests map[string]map[string]bool) string {
	pkg, name, isTest := strings.Cut(proof, ":")
	if isTest && tests[pkg] != nil {
		if name, _, _ = strings.Cut(name, "/"); !tests[pkg][name] {
			return "there is no test " + name + " in " + pkg
		}
		return ""
	}
	if strings.HasPrefix(pkg, "e2e/") || strings.HasPrefix(pkg, "web/") {
		if st, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(pkg))); err != nil || st.IsDir() {
			return "there is no file " + pkg
		}
		return ""
	}
	return "there is no test " + proof
}

func TestUnproven(t *testing.T) {
	t.Parallel()
	tests := testFuncs(t)
	for proof, want := range map[string]bool{
		"internal/arch:TestUnproven": true, "internal/arch:TestUnproven/with a subtest": true, "internal/arch:TestNothing": false, "internal/nosuch:TestUnproven": false,
		"web/package.json": true, "web/nosuch.json": false, "go.mod": false, "internal/arch": false,
	} {
		if why := unproven(proof, tests); (why == "") != want {
			t.Errorf("%s: %q, want proven = %v", proof, why, want)
		}
	}
}
