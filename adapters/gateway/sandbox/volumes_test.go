package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"yunhe.dev/yunhe/adapters/gateway/loopfs"
	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/internal/fault"
)

// folder makes one of the machine that belongs to the user of volumes.
func folder(t testing.TB, s *sandbox.Sandbox) string {
	t.Helper()
	dir := t.TempDir()
	if err := s.CanMapVolumes(dir); err != nil {
		t.Skipf("SKIPPED: this machine has no mounts with mapped owners: %v", err)
	}
	if err := os.Chown(dir, s.VolumeUID(), s.VolumeUID()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What one run writes another reads, changes and deletes, each as its own user;
// a run that may only read cannot, and one without the volume does not see it.
func TestVolumes(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	dir := folder(t, s)
	with := func(id, command string, readOnly bool) sandbox.Spec {
		spec := small(id, command)
		spec.Volumes = []sandbox.Volume{{Source: dir, Path: "/data/in", ReadOnly: readOnly}}
		return spec
	}
	r, out := run(t, s, with("one", "cd /data/in && mkdir d && echo kept >d/file && chmod 600 d/file && stat -c '%u %g' d/file && id -u && ls -ld / /data | cut -c1-10", false))
	expect(t, r, "completed", 0)
	lines := strings.Fields(out)
	if len(lines) < 3 || lines[0] != lines[2] || lines[1] != lines[2] {
		t.Errorf("what it wrote belongs to %q, it is user %q", lines[:2], lines[2:])
	}
	st, err := os.Stat(filepath.Join(dir, "d/file"))
	if err != nil || int(st.Sys().(*syscall.Stat_t).Uid) != s.VolumeUID() {
		t.Errorf("on the machine the file is %v, %v; want user %d", st, err, s.VolumeUID())
	}
	r, out = run(t, s, with("two", "cat /data/in/d/file && echo more >>/data/in/d/file && chmod 640 /data/in/d/file && cat /data/in/d/file", false))
	if expect(t, r, "completed", 0); out != "kept\nkept\nmore\n" {
		t.Errorf("another run finds %q", out)
	}
	r, out = run(t, s, with("reader", "cat /data/in/d/file; echo x >/data/in/d/file || echo refused; rm /data/in/d/file || echo refused", true))
	if expect(t, r, "completed", 0); !strings.HasPrefix(out, "kept\nmore\n") || strings.Count(out, "refused\n") != 2 {
		t.Errorf("one that may only read: %q", out)
	}
	r, out = run(t, s, small("without", "ls /data "+dir))
	if r.ExitCode == 0 || strings.Contains(out, "d\n") {
		t.Errorf("a run without the volume sees %q", out)
	}
	// It has no more rights there than elsewhere.
	r, out = run(t, s, with("rights", "cd /data/in && cp /bin/sh own && chmod u+s own && ls -l own; mknod dev c 1 3 || echo no device; ln -s /etc/passwd link && cat link | head -1", false))
	if expect(t, r, "completed", 0); !strings.Contains(out, "no device") || !strings.Contains(out, "root:x:0:0:root:/:") {
		t.Errorf("rights in a volume: %q", out)
	}
	// Beside a run that goes on, too.
	started(t, s, with("on", "", false))
	if out, errs, code := sh(t, s, "on", "cat /data/in/d/file && touch /data/in/beside", ""); out != "kept\nmore\n" || code != 0 {
		t.Errorf("beside the command: %q, %q, %d", out, errs, code)
	}
	if _, err := os.Stat(filepath.Join(dir, "beside")); err != nil {
		t.Error(err)
	}
}

// A file system in a file is a volume as a folder is, and the kernel bounds it:
// for one run, for another beside it, and for what is run beside them.
func TestVolumeInFile(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	folder(t, s) // or this machine maps no owners
	file := filepath.Join(t.TempDir(), "disk")
	if err := loopfs.Make(t.Context(), file, s.VolumeUID(), 8<<20); errors.Is(err, loopfs.ErrCannot) {
		t.Skipf("SKIPPED: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	with := func(id, command string, readOnly bool) sandbox.Spec {
		spec := small(id, command)
		spec.Volumes = []sandbox.Volume{{Source: file, Path: "/data", ReadOnly: readOnly}}
		return spec
	}
	started(t, s, with("on", "", false))
	r, out := run(t, s, with("one", "cd /data && ls -a && echo kept >file && stat -c '%u' file && id -u && mknod dev c 1 3 || echo no device; head -c 9000000 /dev/zero >big; rm big && echo after >after", false))
	expect(t, r, "completed", 0)
	if lines := strings.Fields(out); len(lines) < 4 || lines[0] != "." || lines[1] != ".." || lines[2] != lines[3] || !strings.Contains(out, "no device") || !strings.Contains(out, "No space left on device") {
		t.Errorf("it writes %q", out)
	}
	if out, errs, code := sh(t, s, "on", "cat /data/file /data/after && head -c 9000000 /dev/zero >/data/more", ""); out != "kept\nafter\n" || code == 0 || !strings.Contains(errs, "No space left") {
		t.Errorf("beside the command: %q, %q, %d", out, errs, code)
	}
	r, out = run(t, s, with("reader", "cat /data/file; echo x >/data/file || echo refused", true))
	if expect(t, r, "completed", 0); !strings.HasPrefix(out, "kept\n") || !strings.Contains(out, "refused\n") {
		t.Errorf("one that may only read: %q", out)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), filepath.Dir(file)) {
		t.Errorf("the machine shows it, %v", err)
	}
}

// A volume in use is known by the folder of its run, whichever gateway asks.
func TestVolumeInUse(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := open(t, cfg)
	dir := folder(t, s)
	spec := small("user", "")
	spec.Volumes = []sandbox.Volume{{Source: filepath.Join(dir), Path: "/data"}}
	started(t, s, spec)
	using := func() string {
		ids, err := sandbox.Using(cfg.Dir, filepath.Dir(dir))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(ids, " ")
	}
	if got := using(); got != "user" {
		t.Errorf("in use by %q, want user", got)
	}
	s.Close()
	if got := using(); got != "user" {
		t.Errorf("while no gateway runs it is in use by %q, want user", got)
	}
	s = open(t, cfg)
	runs, err := s.Adopt(t.Context())
	if err != nil || len(runs) != 1 {
		t.Fatalf("adopted %v, %v", runs, err)
	}
	r := runs[0]
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	wait(t, r)
	if got := using(); got != "" {
		t.Errorf("ended, it is in use by %q", got)
	}
}

// A link of an image leads a volume nowhere, above all not out of the root.
func TestVolumeBehindLink(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	dir, outside := folder(t, s), t.TempDir()
	image := t.TempDir()
	for _, sub := range []string{"bin", "lib", "lib64", "usr"} {
		if _, err := os.Stat("/" + sub); err == nil {
			if err := os.Symlink("/"+sub, filepath.Join(image, sub)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink(outside, filepath.Join(image, "data")); err != nil {
		t.Fatal(err)
	}
	for id, path := range map[string]string{"a": "/data", "b": "/data/new"} {
		spec := small(id, "true")
		spec.RootFS, spec.Volumes = image, []sandbox.Volume{{Source: dir, Path: path}}
		if r, _ := run(t, s, spec); r.Reason != "start_failed" || !strings.Contains(r.Message, "for a volume") {
			t.Errorf("a volume at %s, a link: %+v", path, r)
		}
	}
	if made, err := os.ReadDir(outside); err != nil || len(made) > 0 {
		t.Errorf("outside of the root it made %v, %v", made, err)
	}
}

func TestVolumesRefused(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{"/data": true, "/workspace/in": true, "/data/../etc": false, "/": false, "data": false, "/etc/x": false, "/proc": false,
		"/workspace": false, "/usr/lib": false, "/.shm": false, "/a\x00b": false, "/" + strings.Repeat("x", 255): false} {
		spec := small("v", "true")
		spec.Volumes = []sandbox.Volume{{Source: "/srv/volumes/v", Path: path}}
		if err := spec.Validate(); (err == nil) != want || err != nil && fault.KindOf(err) != fault.Invalid {
			t.Errorf("a volume at %q: %v, want accepted: %v", path, err, want)
		}
	}
	spec := small("v", "true")
	spec.Volumes = []sandbox.Volume{{Source: "/srv/v", Path: "/data"}, {Source: "/srv/w", Path: "/data/in"}}
	if err := spec.Validate(); err == nil || !strings.Contains(err.Error(), "lie in one another") {
		t.Errorf("one volume in another: %v", err)
	}
	spec.Volumes = []sandbox.Volume{{Source: "srv/../etc", Path: "/data"}}
	if err := spec.Validate(); err == nil {
		t.Error("a source that is not clean was accepted")
	}
}
