package runner

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestExitRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := ReadExit(dir); !os.IsNotExist(err) {
		t.Errorf("none there: %v, want not exist", err)
	}
	want := Exit{Reason: OOM, ExitCode: -1, Signal: 9, Message: "m", StartedAt: 1, EndedAt: 2, CPUUsec: 3, MaxMemoryBytes: 4,
		OOMKills: 5, PidsLimitHits: 6, OutputBytes: 7, DroppedBytes: 8}
	if err := WriteExit(dir, &want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadExit(dir)
	if err != nil || *got != want || got.Version != Version {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("files %v, %v, want the record only", entries, err)
	}
}

func TestReadStarted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Started{
		"":                              {},
		`{"pid":`:                       {},
		`{"pid":7,"start_ticks":8}`:     {PID: 7, StartTicks: 8},
		"{\"pid\":7}\n{\"started_at\":": {PID: 7},
		"{\"pid\":7,\"start_ticks\":8,\"started_at\":0}\n{\"pid\":7,\"start_ticks\":8,\"started_at\":9}\n": {PID: 7, StartTicks: 8, StartedAt: 9},
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{StartedFile: text})
		if got, err := ReadStarted(dir); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestLogWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := logWriter{dir: dir, fileSize: 4, keep: 2}
	if total, dropped, err := w.finish(); total != 0 || dropped != 0 || err != nil {
		t.Errorf("nothing written: %d, %d, %v", total, dropped, err)
	}
	for _, s := range []string{"ab", "", "cd", "efghijklmn"} {
		w.write([]byte(s))
	}
	total, dropped, err := w.finish()
	if total != 14 || dropped != 8 || err != nil {
		t.Errorf("got %d, %d, %v, want 14, 8", total, dropped, err)
	}
	if got := read(t, LogName(dir, 2)) + "|" + read(t, LogName(dir, 3)); got != "ijkl|mn" {
		t.Errorf("kept %q", got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("files %v, %v, want two", entries, err)
	}
}

// TestLostOutput: where bytes could not be written a line says how many they were.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := logWriter{dir: dir, fileSize: 128, keep: 2}
	if err := os.Mkdir(LogName(dir, 0), 0o700); err != nil { // stands where the file should be
		t.Fatal(err)
	}
	w.write([]byte("lost"))
	w.write([]byte(" too"))
	if err := os.Remove(LogName(dir, 0)); err != nil {
		t.Fatal(err)
	}
	w.write([]byte("kept"))
	want := "[8 bytes of output were lost: they could not be written]\nkept"
	total, dropped, err := w.finish()
	if got := read(t, LogName(dir, 0)); got != want || total != int64(len(want)) || dropped != 0 || err == nil {
		t.Errorf("got %q, %d, %d, %v, want %q", got, total, dropped, err, want)
	}
}

// TestExitRecordOverRoom: a record takes the place of one that was written in part.
func TestExitRecordOverRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Reserve(dir); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{strings.Repeat("long", 2000), "short"} {
		write(t, dir, map[string]string{ExitFile + reserved: strings.Repeat("x", 5000)})
		want := Exit{Reason: Exited, Message: text}
		if err := WriteExit(dir, &want); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadExit(dir); err != nil || *got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

// TestUnifiedGroups runs the v2 code against files; the kernel's part is in
// TestUnifiedGroupsOnKernel as far as it goes.
func TestUnifiedGroups(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, park := filepath.Join(root, "r"), filepath.Join(root, "park")
	for _, d := range []string{dir, park} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, map[string]string{
		"cgroup.procs": "", "cpu.max": "", "pids.max": "", "cgroup.freeze": "", "cgroup.events": "populated 1\nfrozen 1\n",
		"cpu.stat": "usage_usec 1234\nuser_usec 1000\n", "memory.current": "10\n", "memory.peak": "20\n",
		"memory.events": "low 0\noom 2\noom_kill 1\noom_group_kill 0\n", "pids.current": "3\n", "pids.events": "max 4\n",
	})
	write(t, park, map[string]string{"cgroup.procs": ""})
	g := Groups{V2: true, Park: park, All: []Group{{Path: dir, Controllers: []string{"cpu", "memory", "pids", "freezer"},
		Limits: []Setting{{File: "cpu.max", Value: "50000 100000"}, {File: "pids.max", Value: "5", Late: true}}}}}
	is := func(path, want string) {
		t.Helper()
		if got := read(t, path); got != want {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
	if err := g.create(); err != nil {
		t.Fatal(err)
	}
	is(filepath.Join(dir, "cpu.max"), "50000 100000")
	is(filepath.Join(dir, "pids.max"), "")
	if err := g.join(); err != nil {
		t.Fatal(err)
	}
	is(filepath.Join(dir, "cgroup.procs"), "0")
	is(filepath.Join(park, "cgroup.procs"), "")
	if err := g.leave(); err != nil {
		t.Fatal(err)
	}
	is(filepath.Join(park, "cgroup.procs"), "0")
	is(filepath.Join(dir, "pids.max"), "5")
	want := Usage{CPUUsec: 1234, MemoryBytes: 10, MaxMemoryBytes: 20, Pids: 3, OOMKills: 1, PidsLimitHits: 4}
	if u, ok := g.Usage(); !ok || u != want {
		t.Errorf("usage %+v, %v, want %+v", u, ok, want)
	}
	if err := g.Freeze(true); err != nil {
		t.Fatal(err)
	}
	is(filepath.Join(dir, "cgroup.freeze"), "1")
	if frozen, err := g.Frozen(); !frozen || err != nil {
		t.Errorf("frozen %v, %v", frozen, err)
	}
	if err := g.Freeze(false); err != nil {
		t.Fatal(err)
	}
	is(filepath.Join(dir, "cgroup.freeze"), "0")
	g.All[0].Limits[0].File = "cpu.nope"
	if err := g.create(); err == nil || !strings.Contains(err.Error(), "cpu.nope") {
		t.Errorf("a limit the kernel lacks: %v, want an error that names it", err)
	}
	gone := Groups{V2: true, All: []Group{{Path: filepath.Join(root, "gone"), Controllers: []string{"cpu", "memory", "pids", "freezer"}}}}
	if _, ok := gone.Usage(); ok {
		t.Error("usage of no groups")
	}
	if err := gone.Kill(); err != nil {
		t.Error(err)
	}
	if err := gone.Remove(); err != nil {
		t.Error(err)
	}
}

// FuzzProtocol feeds the decoders of files that a crash or a stranger may
// have written: whatever they hold, reading gives a value or an error.
func FuzzProtocol(f *testing.F) {
	b, err := json.Marshal(Spec{Version: Version, ID: "r", Argv: []string{"x"}, Files: []File{{Path: "x", Data: []byte("y")}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"pid":1,"start_ticks":2}` + "\n" + `{"started_at":3}`))
	f.Add([]byte(`{"reason":"exit","exit_code":3}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		write(t, dir, map[string]string{SpecFile: string(b), StartedFile: string(b), ExitFile: string(b)})
		if s, err := ReadSpec(dir); (s == nil) == (err == nil) {
			t.Errorf("spec %v, %v", s, err)
		}
		if _, err := ReadStarted(dir); err != nil {
			t.Errorf("a claim is a claim whatever it says: %v", err)
		}
		e, err := ReadExit(dir)
		if (e == nil) == (err == nil) {
			t.Fatalf("exit %v, %v", e, err)
		}
		if err != nil {
			return
		}
		if err := WriteExit(dir, e); err != nil {
			t.Fatal(err)
		}
		if again, err := ReadExit(dir); err != nil || *again != *e {
			t.Errorf("written %+v, read %+v, %v", e, again, err)
		}
	})
}
