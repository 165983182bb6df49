package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGatewayImages(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, body := range map[string]string{"bin/sh": "#!", "etc/issue": "box"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(body)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	archive := filepath.Join(t.TempDir(), "box.tar")
	if err := os.WriteFile(archive, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startFake(t)
	do := func(want int, args ...string) (out, errs string) {
		t.Helper()
		c := start(t, s, func(c *cli) { c.in = bytes.NewReader(b.Bytes()) }, append([]string{"gateway", "image"}, args...)...)
		c.end(t, want)
		return c.out.String(), c.err.String()
	}
	if _, errs := do(1, "load", archive, "--data", data); !strings.Contains(errs, "--id") {
		t.Errorf("without an ID: %s", errs)
	}
	if out, errs := do(0, "load", archive, "--data", data, "--id", "box"); !strings.Contains(out, "box ") || errs != "" {
		t.Errorf("load: %s %s", out, errs)
	}
	if _, errs := do(0, "load", "-", "--data", data, "--id", "box"); !strings.Contains(errs, "already") {
		t.Errorf("again, from standard input: %s", errs)
	}
	out, _ := do(0, "list", "--data", data, "-o", "json")
	var list struct {
		Images []struct {
			ImageID string `json:"image_id"`
			Files   int
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Images) != 1 || list.Images[0].ImageID != "box" || list.Images[0].Files != 4 {
		t.Errorf("list: %v, %s", err, out)
	}
	if _, errs := do(1, "load", archive, "--data", data, "--id", "two", "--max-files", "3"); !strings.Contains(errs, "more than 3 files") {
		t.Errorf("too many files: %s", errs)
	}
	for _, bad := range [][]string{{"--max-bytes", "x"}, {"--max-files", "-1"}, {"--id", "host"}, {"--id", "no/id"}} {
		if _, errs := do(1, append([]string{"load", archive, "--data", data}, bad...)...); errs == "" {
			t.Errorf("%v: no reason", bad)
		}
	}
	if _, errs := do(1, "list", "--data", filepath.Join(data, "absent")); !strings.Contains(errs, "not the folder of a gateway") {
		t.Errorf("a mistyped folder: %s", errs)
	}
	if _, err := os.Stat(filepath.Join(data, "absent")); err == nil {
		t.Error("the mistyped folder was made")
	}
	if out, _ := do(0, "remove", "box", "--data", data); out != "box  removed\n" {
		t.Errorf("remove: %q", out)
	}
	if out, _ := do(0, "list", "--data", data, "-o", "json"); !strings.Contains(out, `"images": []`) {
		t.Errorf("list of none: %s", out)
	}
	if _, errs := do(1, "remove", "box", "--data", data); !strings.Contains(errs, "not here") {
		t.Errorf("remove what is gone: %s", errs)
	}
}

func TestGatewayMeasure(t *testing.T) {
	t.Parallel()
	data, s := t.TempDir(), startFake(t)
	do := func(want int, args ...string) (out, errs string) {
		t.Helper()
		c := start(t, s, nil, append([]string{"gateway", "measure", "--data", data}, args...)...)
		c.end(t, want)
		return c.out.String(), c.err.String()
	}
	var first, second struct {
		Performance int64
		MeasuredAt  string `json:"measured_at"`
		Machine     struct{ CPU struct{ Threads int } }
	}
	out, _ := do(0, "-o", "json")
	if err := json.Unmarshal([]byte(out), &first); err != nil || first.Performance <= 0 || first.MeasuredAt == "" || first.Machine.CPU.Threads < 1 {
		t.Fatalf("%v: %s", err, out)
	}
	out, _ = do(0, "-o", "json")
	if err := json.Unmarshal([]byte(out), &second); err != nil || second != first {
		t.Errorf("again: %v: %s, want what was kept", err, out)
	}
	if out, _ := do(0); !strings.Contains(out, "Performance") || !strings.Contains(out, "1000 is the reference machine") || !strings.Contains(out, "Memory bandwidth") {
		t.Errorf("table: %s", out)
	}
	data = filepath.Join(data, "absent")
	if _, errs := do(1); !strings.Contains(errs, "is not a folder") {
		t.Errorf("no folder: %s", errs)
	}
	for value, want := range map[string]string{"once": "once", "again": "again", "no": ""} {
		if got, err := measureFlag(value); got != want || err != nil {
			t.Errorf("--measure %s: %q, %v", value, got, err)
		}
	}
	if _, err := measureFlag("twice"); err == nil {
		t.Error("--measure twice is taken")
	}
}
