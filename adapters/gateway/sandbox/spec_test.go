package sandbox_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/internal/fault"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	valid := func() sandbox.Spec {
		return sandbox.Spec{ID: "a", Command: "true", CPUMilli: 10, MemoryBytes: 4 << 20}
	}
	if err := valid().Validate(); err != nil {
		t.Errorf("least spec: %v", err)
	}
	full := sandbox.Spec{
		ID: "job_01J.x-9", Args: []string{"/bin/echo", "", strings.Repeat("x", 128<<10-1)}, Env: map[string]string{"_A1": "", "a": "="},
		Files:  []sandbox.File{{Path: "a/b"}, {Path: "a/c", Mode: 0o777}, {Path: "..a/...", Data: make([]byte, 8<<20)}},
		RootFS: "/images/x", CPUMilli: 1 << 20, MemoryBytes: 1 << 50, DiskBytes: 1 << 50, Pids: 1 << 22, Network: true,
		WallTime: 10 * 365 * 24 * time.Hour, StopGrace: time.Nanosecond, LogFileBytes: 4 << 10, LogFiles: 1000,
	}
	if err := full.Validate(); err != nil {
		t.Errorf("largest spec: %v", err)
	}
	for _, c := range []struct {
		field string
		want  string // in the problem
		edit  func(*sandbox.Spec)
	}{
		{"id", `got ""`, func(s *sandbox.Spec) { s.ID = "" }},
		{"id", `got "../x"`, func(s *sandbox.Spec) { s.ID = "../x" }},
		{"id", `got ".hidden"`, func(s *sandbox.Spec) { s.ID = ".hidden" }},
		{"id", `got "-x"`, func(s *sandbox.Spec) { s.ID = "-x" }},
		{"id", "1 to 64", func(s *sandbox.Spec) { s.ID = strings.Repeat("x", 65) }},
		{"command", "exactly one", func(s *sandbox.Spec) { s.Command = "" }},
		{"command", "exactly one", func(s *sandbox.Spec) { s.Args = []string{"true"} }},
		{"command", "zero byte", func(s *sandbox.Spec) { s.Command = "a\x00b" }},
		{"command", "at most 131071 bytes, got 131072", func(s *sandbox.Spec) { s.Command = strings.Repeat("x", 128<<10) }},
		{"command", "at most 1048576 bytes together", func(s *sandbox.Spec) {
			s.Env = map[string]string{}
			for i := range 9 {
				s.Env[strings.Repeat("x", i+1)] = strings.Repeat("x", 120<<10)
			}
		}},
		{"args[0]", "not be empty", func(s *sandbox.Spec) { s.Command, s.Args = "", []string{""} }},
		{"args[1]", "zero byte", func(s *sandbox.Spec) { s.Command, s.Args = "", []string{"x", "\x00"} }},
		{`env["1A"]`, "must be a name", func(s *sandbox.Spec) { s.Env = map[string]string{"1A": ""} }},
		{`env["A=B"]`, "must be a name", func(s *sandbox.Spec) { s.Env = map[string]string{"A=B": ""} }},
		{`env[""]`, "must be a name", func(s *sandbox.Spec) { s.Env = map[string]string{"": ""} }},
		{`env["A"]`, "zero byte", func(s *sandbox.Spec) { s.Env = map[string]string{"A": "\x00"} }},
		{"files", "at most 8388608 bytes together, got 8388609", func(s *sandbox.Spec) {
			s.Files = []sandbox.File{{Path: "x", Data: make([]byte, 8<<20+1)}}
		}},
		{"files", "at most 65536 bytes together, got 65537", func(s *sandbox.Spec) {
			s.DiskBytes, s.Files = 64<<10, []sandbox.File{{Path: "x", Data: make([]byte, 64<<10+1)}}
		}},
		{"files", "at most 4096, got 4097", func(s *sandbox.Spec) { s.Files = make([]sandbox.File, 4097) }},
		{"files[0].path", `got ""`, func(s *sandbox.Spec) { s.Files = []sandbox.File{{}} }},
		{"files[0].path", `got "/x"`, func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/x"}} }},
		{"files[0].path", `got "../x"`, func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "../x"}} }},
		{"files[0].path", `got "a/../../x"`, func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "a/../../x"}} }},
		{"files[0].path", `got "."`, func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "."}} }},
		{"files[0].path", `got ".."`, func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: ".."}} }},
		{"files[0].path", "255 bytes", func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: strings.Repeat("x", 256)}} }},
		{"files[1].path", "given twice", func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "x"}, {Path: "x"}} }},
		{"files[0].path", `lies below "x"`, func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "x/y"}, {Path: "x"}} }},
		{"files[1].path", `lies below "x"`, func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "x"}, {Path: "x/y/z"}} }},
		{"files[0].mode", "permission bits", func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "x", Mode: os.ModeSetuid | 0o755}} }},
		{"rootfs", `got "images"`, func(s *sandbox.Spec) { s.RootFS = "images" }},
		{"rootfs", `got "/"`, func(s *sandbox.Spec) { s.RootFS = "/" }},
		{"rootfs", `got "/images/../root"`, func(s *sandbox.Spec) { s.RootFS = "/images/../root" }},
		{"cpu_milli", "between 10 and 1048576, got 9", func(s *sandbox.Spec) { s.CPUMilli = 9 }},
		{"memory_bytes", "between 4194304 and 1125899906842624, got 0", func(s *sandbox.Spec) { s.MemoryBytes = 0 }},
		{"disk_bytes", "got -1", func(s *sandbox.Spec) { s.DiskBytes = -1 }},
		{"pids", "between 4 and 4194304, got 3", func(s *sandbox.Spec) { s.Pids = 3 }},
		{"wall_time", "got -1ns", func(s *sandbox.Spec) { s.WallTime = -1 }},
		{"stop_grace", "got 87600h0m0.000000001s", func(s *sandbox.Spec) { s.StopGrace = 10*365*24*time.Hour + 1 }},
		{"log_file_bytes", "between 4096 and 1073741824, got 4095", func(s *sandbox.Spec) { s.LogFileBytes = 4095 }},
		{"log_files", "between 1 and 1000, got 1001", func(s *sandbox.Spec) { s.LogFiles = 1001 }},
	} {
		s := valid()
		c.edit(&s)
		err := s.Validate()
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s (%s): got %v, want Invalid", c.field, c.want, err)
			continue
		}
		found := false
		for _, f := range fault.FieldsOf(err) {
			found = found || f.Path == c.field && strings.Contains(f.Problem, c.want)
		}
		if !found {
			t.Errorf("%s (%s): got %+v", c.field, c.want, fault.FieldsOf(err))
		}
	}
}

// FuzzValidate looks for specs that pass and are yet out of bounds, above all
// for inputs that would land outside the working folder.
func FuzzValidate(f *testing.F) {
	for _, s := range []sandbox.Spec{
		{ID: "a", Command: "true", CPUMilli: 100, MemoryBytes: 8 << 20, Files: []sandbox.File{{Path: "a/b", Data: []byte("x")}}},
		{ID: "../a", Args: []string{"x"}, Env: map[string]string{"A=": "\x00"}, RootFS: "/x/.."},
	} {
		b, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s sandbox.Spec
		if json.Unmarshal(b, &s) != nil || s.Validate() != nil {
			return
		}
		if strings.ContainsAny(s.ID, "/\x00") || s.ID[0] == '.' || len(s.ID) > 64 {
			t.Errorf("id %q", s.ID)
		}
		for _, file := range s.Files {
			root, err := os.OpenRoot(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := root.MkdirAll(file.Path, 0o700); err != nil {
				t.Errorf("file %q: %v", file.Path, err)
			}
			root.Close()
		}
		for k, v := range s.Env {
			if strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") || k == "" {
				t.Errorf("env %q=%q", k, v)
			}
		}
		if s.CPUMilli < 10 || s.MemoryBytes < 4<<20 || s.WallTime < 0 || s.Pids < 0 || (s.Command == "") == (len(s.Args) == 0) {
			t.Errorf("bounds of %+v", s)
		}
	})
}
