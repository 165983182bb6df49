package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// A hundredth of the work: every row is there, with what programs read.
func TestSimBench(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	c := &cli{
		in: strings.NewReader(""), out: &out, err: &errs, env: func(string) string { return "" }, now: time.Now,
		screen: func(io.Writer) (int, int, bool) { return 0, 0, false },
	}
	if code := c.run(t.Context(), []string{"sim", "bench", "--part", "100", "--only", "network,pool,gangs,spread,million", "-o", "json"}); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	var rows []map[string]any
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 5 {
		t.Fatalf("%d rows, want 5: %s", len(rows), out.String())
	}
	for _, r := range rows {
		for _, field := range []string{"candidates", "jobs", "per_second", "p99_ms", "peak_mib"} {
			if n, ok := r[field].(float64); !ok || n <= 0 {
				t.Errorf("%v: %s is %v", r["work"], field, r[field])
			}
		}
		if r["ok"] != nil {
			t.Errorf("%v: a part of the work was judged", r["work"])
		}
	}
	if !strings.Contains(errs.String(), "one part in 100") {
		t.Errorf("it does not say that it is a part: %q", errs.String())
	}
}
