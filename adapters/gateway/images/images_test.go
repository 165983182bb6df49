package images_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/adapters/gateway/images"
	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "runner":
			os.Exit(runner.Main(os.Args[2:]))
		case "load":
			os.Exit(helperLoad(os.Args[2], os.Args[3]))
		}
	}
	os.Exit(m.Run())
}

// helperLoad is another process's load, of standard input.
func helperLoad(folder, id string) int {
	s, err := images.Open(folder)
	if err == nil {
		_, _, err = s.Load(context.Background(), images.Request{Path: "-", Input: os.Stdin, ID: id})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// shell is a layer with what every image must have.
func shell(t testing.TB, more ...entry) []byte {
	return tarOf(t, append([]entry{dir("bin"), program("bin/sh", "not really a shell")}, more...)...)
}

func layered(t testing.TB) picture {
	big := strings.Repeat("0123456789abcdef", 1000)
	return picture{
		ref:    "registry.example.com/team/tool:1.2",
		config: v1.ImageConfig{Env: []string{"A=1", "PATH=/opt/bin:/bin", "HOME=/root", "bad"}, WorkingDir: "app", User: "app", Entrypoint: []string{"/entry"}, Cmd: []string{"x"}},
		layers: [][]byte{
			tarOf(t, dir("usr"), dir("usr/bin"), link("bin", "usr/bin"), program("usr/bin/busybox", big), link("bin/sh", "/bin/busybox"),
				dir("etc"), file("etc/old", "old"), file("etc/keep", "keep"), dir("opt"), file("opt/a", "a"), dir("opt/sub"), file("opt/sub/b", "b"),
				link("lib64", "/usr/lib64"), dir("var"), file("var/was-a-file", "x"), dir("dev"), entry{name: "dev/console", kind: tar.TypeChar, mode: 0o600}),
			tarOf(t, file("etc/.wh.old", ""), file("opt/new", "new"), file("opt/.wh..wh..opq", ""), file("lib64/ld.so", "ld"), file("var/was-a-file/now-below", "y"),
				hard("usr/bin/ash", "bin/busybox"), hard("etc/link-to-link", "bin/sh"), file("etc/.wh.nothing", ""), file("none/.wh.x", ""), file("etc/.wh..wh.plnk", "")),
			tarOf(t, dir("etc/.wh.new-folder"), dir("lib64"), file("etc/keep", "kept anew"), entry{name: "etc/run-me", text: "#!", mode: 0o2755}),
		},
	}
}

var layeredTree = map[string]string{
	"usr": "drwxr-xr-x", "usr/bin": "drwxr-xr-x", "bin": "-> usr/bin", "usr/bin/busybox": "-rwxr-xr-x " + strings.Repeat("0123456789abcdef", 1000),
	"usr/bin/ash": "-rwxr-xr-x " + strings.Repeat("0123456789abcdef", 1000), "usr/bin/sh": "-> /bin/busybox", "etc": "drwxr-xr-x", "etc/keep": "-rw-r--r-- kept anew",
	"etc/link-to-link": "-> /bin/busybox", "etc/run-me": "-rwxr-xr-x #!", "opt": "drwxr-xr-x", "opt/new": "-rw-r--r-- new", "usr/lib64": "drwxr-xr-x", "usr/lib64/ld.so": "-rw-r--r-- ld",
	"lib64": "drwxr-xr-x", // the third layer says that it is a folder
	"var":   "drwxr-xr-x", "var/was-a-file": "drwxr-xr-x", "var/was-a-file/now-below": "-rw-r--r-- y", "dev": "drwxr-xr-x",
}

func TestLoad(t *testing.T) {
	t.Parallel()
	packs := map[string]func(int, []byte) []byte{
		"plain": nil, "gzip": func(_ int, b []byte) []byte { return gz(t, b) }, "zstd": func(_ int, b []byte) []byte { return zst(t, b) },
		"mixed": func(i int, b []byte) []byte { return [][]byte{b, gz(t, b), zst(t, b)}[i] },
	}
	for name, pack := range packs {
		for format, build := range map[string]func(picture) []byte{"oci": func(p picture) []byte { return p.oci(t) }, "docker": func(p picture) []byte { return p.docker(t) }} {
			for outer, wrap := range map[string]func([]byte) []byte{"": func(b []byte) []byte { return b }, ".gz": func(b []byte) []byte { return gz(t, b) }, ".zst": func(b []byte) []byte { return zst(t, b) }} {
				t.Run(format+"/"+name+outer, func(t *testing.T) {
					t.Parallel()
					p := layered(t)
					p.pack = pack
					s, folder := open(t)
					m, loaded, err := s.Load(t.Context(), images.Request{Path: save(t, wrap(build(p)))})
					if err != nil || !loaded {
						t.Fatalf("%v, %v", loaded, err)
					}
					if m.ID != "tool-1.2" || m.Ref != p.ref || m.Format != format || m.Layers != 3 || m.NoShell != "" || m.User != "app" || m.Bytes < 16000 || m.Files < 20 {
						t.Errorf("image %+v", m)
					}
					if diff := cmp.Diff(layeredTree, tree(t, filepath.Join(folder, m.ID, "rootfs"))); diff != "" {
						t.Errorf("files (-want +got):\n%s", diff)
					}
					u, err := s.Use(m.ID)
					must(t, err)
					defer u.Close()
					if diff := cmp.Diff(map[string]string{"A": "1", "PATH": "/opt/bin:/bin", "YUNHE_IMAGE_WORKDIR": "/app"}, u.Environ()); diff != "" {
						t.Errorf("environment (-want +got):\n%s", diff)
					}
					if again, loaded, err := s.Load(t.Context(), images.Request{Path: save(t, wrap(build(p)))}); err != nil || loaded || again.LoadedAt != m.LoadedAt {
						t.Errorf("again: %+v, %v, %v", again, loaded, err)
					}
					leftovers(t, folder)
				})
			}
		}
	}
}

// leftovers fails the test for what a finished or failed load has left.
func leftovers(t testing.TB, folder string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".tmp-") || strings.HasPrefix(e.Name(), ".trash-") {
			t.Errorf("left: %s", e.Name())
		}
	}
}

func TestLoadPlain(t *testing.T) {
	t.Parallel()
	s, folder := open(t)
	b := shell(t, file("./etc/.wh.kept", "a plain archive has no whiteouts"), entry{name: "dev/null", kind: tar.TypeChar}, entry{name: "/opt/abs", text: "x"},
		entry{name: "opt/cap", text: "c", pax: map[string]string{"SCHILY.xattr.security.capability": "\x01", "SCHILY.xattr.user.x": "y"}})
	if _, _, err := s.Load(t.Context(), images.Request{Path: save(t, b)}); !says(err, fault.Invalid, "--id") {
		t.Errorf("without a name: %v", err)
	}
	m, loaded, err := s.Load(t.Context(), images.Request{Path: save(t, gz(t, b)), ID: "plain"})
	if err != nil || !loaded || m.Format != "rootfs" || m.Layers != 1 {
		t.Fatalf("%+v, %v, %v", m, loaded, err)
	}
	want := map[string]string{"bin": "drwxr-xr-x", "bin/sh": "-rwxr-xr-x not really a shell", "etc": "drwxr-xr-x", "etc/.wh.kept": "-rw-r--r-- a plain archive has no whiteouts",
		"opt": "drwxr-xr-x", "dev": "drwxr-xr-x", "opt/abs": "-rw-r--r-- x", "opt/cap": "-rw-r--r-- c"}
	root := filepath.Join(folder, "plain", "rootfs")
	if diff := cmp.Diff(want, tree(t, root)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for _, attr := range []string{"security.capability", "user.x"} {
		if _, err := unix.Lgetxattr(filepath.Join(root, "opt/cap"), attr, make([]byte, 64)); err == nil {
			t.Errorf("the attribute %s came along", attr)
		}
	}
	if st, err := os.Stat(filepath.Join(root, "opt/cap")); err != nil || st.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) || !st.ModTime().Equal(time.Unix(1_700_000_000, 0)) {
		t.Errorf("owner and time: %+v, %v", st, err)
	}
	// The same, packed otherwise: nothing to do. Another: refused.
	if m2, loaded, err := s.Load(t.Context(), images.Request{Path: save(t, zst(t, b)), ID: "plain"}); err != nil || loaded || m2.Digest != m.Digest {
		t.Errorf("the same: %+v, %v, %v", m2, loaded, err)
	}
	if _, _, err := s.Load(t.Context(), images.Request{Path: save(t, shell(t)), ID: "plain"}); !says(err, fault.Conflict, "another image") {
		t.Errorf("another: %v", err)
	}
	leftovers(t, folder)
}

func says(err error, k fault.Kind, text string) bool {
	msg, ok := fault.Message(err)
	return ok && fault.KindOf(err) == k && strings.Contains(msg, text)
}

func TestSeveralImages(t *testing.T) {
	t.Parallel()
	a, b := picture{ref: "a:1", layers: [][]byte{shell(t, file("who", "a"))}}, picture{ref: "b:1", layers: [][]byte{shell(t, file("who", "b"))}}
	var other v1.Index
	b.index = func(i *v1.Index) { other = *i }
	b.oci(t)
	img, layers, blobs := b.parts(t)
	for name, blob := range blobs {
		a.more = append(a.more, file("blobs/sha256/"+name, string(blob)))
	}
	// The manifest and the configuration of b, as b's own archive has them.
	config := asJSON(t, img)
	man := v1.Manifest{MediaType: v1.MediaTypeImageManifest, Layers: layers}
	man.SchemaVersion = 2
	man.Config = v1.Descriptor{MediaType: v1.MediaTypeImageConfig, Digest: sum(config), Size: int64(len(config))}
	m := asJSON(t, man)
	a.more = append(a.more, file("blobs/sha256/"+sum(config).Encoded(), string(config)), file("blobs/sha256/"+sum(m).Encoded(), string(m)))
	if got := other.Manifests[0].Digest; got != sum(m) {
		t.Fatalf("the archives differ: %s, %s", got, sum(m))
	}
	elsewhere := v1.Descriptor{MediaType: v1.MediaTypeImageManifest, Digest: sum([]byte("absent")), Size: 6, Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}
	a.index = func(i *v1.Index) { i.Manifests = append(append(i.Manifests, other.Manifests...), elsewhere) }
	s, folder := open(t)
	path := save(t, a.oci(t))
	if _, _, err := s.Load(t.Context(), images.Request{Path: path}); !says(err, fault.Invalid, "2 images") {
		t.Errorf("not said which: %v", err)
	}
	if _, _, err := s.Load(t.Context(), images.Request{Path: path, Ref: "c:1"}); !says(err, fault.Invalid, `no image "c:1"`) {
		t.Errorf("one that is not there: %v", err)
	}
	if m, _, err := s.Load(t.Context(), images.Request{Path: path, Ref: "b:1"}); err != nil || m.ID != "b-1" || tree(t, filepath.Join(folder, "b-1", "rootfs"))["who"] != "-rw-r--r-- b" {
		t.Errorf("b: %+v, %v", m, err)
	}
	// An index in the index, as multi-platform images have.
	var nested v1.Index
	c := picture{ref: "c:1", layers: [][]byte{shell(t)}}
	c.index = func(i *v1.Index) {
		i.Manifests[0].Annotations = nil
		i.Manifests = append(i.Manifests, elsewhere)
		nested = *i
		inner := asJSON(t, nested)
		i.Manifests = []v1.Descriptor{{MediaType: v1.MediaTypeImageIndex, Digest: sum(inner), Size: int64(len(inner)), Annotations: map[string]string{"io.containerd.image.name": "docker.io/library/c:1", v1.AnnotationRefName: "1"}}}
	}
	c.oci(t)
	inner := asJSON(t, nested)
	c.more = []entry{file("blobs/sha256/"+sum(inner).Encoded(), string(inner))}
	if m, _, err := s.Load(t.Context(), images.Request{Path: save(t, c.oci(t))}); err != nil || m.ID != "c-1" {
		t.Errorf("nested: %+v, %v", m, err)
	}
}

func TestNoShell(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for id, c := range map[string]struct {
		entries []entry
		why     string
	}{
		"none": {[]entry{file("etc/passwd", "")}, "no /bin/sh"}, "text": {[]entry{file("bin/sh", "text")}, "no program"}, "folder": {[]entry{dir("bin/sh")}, "no program"},
		"circle": {[]entry{link("bin/sh", "sh")}, "circle"}, "circle2": {[]entry{link("bin", "bin")}, "no /bin/sh"}, "dangling": {[]entry{link("bin/sh", "../../../etc/sh")}, "no /bin/sh"},
		"hidden": {[]entry{program("run/sh", "x"), link("bin/sh", "/run/sh")}, "of their own"}, "outside": {[]entry{link("bin", "../../../../../../bin")}, "no /bin/sh"},
	} {
		m, _, err := s.Load(t.Context(), images.Request{Path: save(t, tarOf(t, c.entries...)), ID: id})
		if err != nil || !strings.Contains(m.NoShell, c.why) {
			t.Errorf("%s: %q, %v, want %q", id, m.NoShell, err, c.why)
		}
		if _, err := s.Use(id); !says(err, fault.Invalid, c.why) {
			t.Errorf("use of %s: %v", id, err)
		}
	}
	for id, entries := range map[string][]entry{"relative": {program("usr/bin/dash", "x"), link("bin", "usr/bin"), link("usr/bin/sh", "dash")}, "absolute": {program("opt/sh", "x"), link("bin/sh", "/a/sh"), link("a", "/opt")}} {
		if m, _, err := s.Load(t.Context(), images.Request{Path: save(t, tarOf(t, entries...)), ID: id}); err != nil || m.NoShell != "" {
			t.Errorf("%s: %q, %v", id, m.NoShell, err)
		}
	}
	if _, err := s.Use("absent"); !says(err, fault.NotFound, `"absent"`) {
		t.Errorf("absent: %v", err)
	}
	for _, id := range []string{"host", "", "../x", ".tmp-x", strings.Repeat("x", 33), "a/b"} {
		if _, err := s.Use(id); fault.KindOf(err) != fault.Invalid {
			t.Errorf("use of %q: %v", id, err)
		}
		if _, _, err := s.Load(t.Context(), images.Request{Path: save(t, shell(t)), ID: id}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("load as %q: %v", id, err)
		}
		if err := s.Remove(id, nobody); fault.KindOf(err) != fault.Invalid {
			t.Errorf("removal of %q: %v", id, err)
		}
	}
}

func nobody(string) ([]string, error) { return nil, nil }

func TestRemove(t *testing.T) {
	t.Parallel()
	s, folder := open(t)
	big := file("big", strings.Repeat("x", 100_000))
	for _, id := range []string{"a", "b"} {
		_, _, err := s.Load(t.Context(), images.Request{Path: save(t, shell(t, big, file("id", id))), ID: id})
		must(t, err)
	}
	a, err := os.Stat(filepath.Join(folder, "a", "rootfs", "big"))
	must(t, err)
	if b, err := os.Stat(filepath.Join(folder, "b", "rootfs", "big")); err != nil || !os.SameFile(a, b) {
		t.Errorf("the same file is kept twice: %v", err)
	}
	u, err := s.Use("a")
	must(t, err)
	if err := s.Remove("a", nobody); !says(err, fault.Conflict, "being started") {
		t.Errorf("while it is looked at: %v", err)
	}
	u.Close()
	asked := ""
	err = s.Remove("a", func(root string) ([]string, error) {
		asked = root
		return []string{"att_1", "att_2", "att_3", "att_4", "att_5"}, nil
	})
	if !says(err, fault.Conflict, "att_1, att_2, att_3 and 2 more") || asked != u.Rootfs {
		t.Errorf("in use: %v, asked for %q, want %q", err, asked, u.Rootfs)
	}
	if err := s.Remove("a", func(string) ([]string, error) { return nil, errors.New("unreadable") }); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("not known: %v", err)
	}
	must(t, s.Remove("a", nobody))
	if err := s.Remove("a", nobody); !says(err, fault.NotFound, `"a"`) {
		t.Errorf("again: %v", err)
	}
	if _, err := s.Use("a"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("use of what is gone: %v", err)
	}
	if files := pooled(t, folder); len(files) != 1 {
		t.Errorf("the pool holds %v while b is there, want one file", files)
	}
	must(t, s.Remove("b", nobody))
	if files := pooled(t, folder); len(files) != 0 {
		t.Errorf("the pool holds %v, want nothing", files)
	}
	leftovers(t, folder)
}

func pooled(t testing.TB, folder string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, ".files", "*", "*"))
	must(t, err)
	return found
}

// A later layer with another file at the same path, of the same size and time,
// must not get into the pool under the first one's name.
func TestPoolIsNotPoisoned(t *testing.T) {
	t.Parallel()
	s, folder := open(t)
	good, evil := strings.Repeat("good", 5000), strings.Repeat("evil", 5000)
	_, _, err := s.Load(t.Context(), images.Request{Path: save(t, picture{ref: "evil:1", layers: [][]byte{shell(t, file("lib", good)), tarOf(t, file("lib", evil))}}.oci(t))})
	must(t, err)
	_, _, err = s.Load(t.Context(), images.Request{Path: save(t, picture{ref: "good:1", layers: [][]byte{shell(t, file("lib", good))}}.oci(t))})
	must(t, err)
	for id, want := range map[string]string{"evil-1": evil, "good-1": good} {
		if b, err := os.ReadFile(filepath.Join(folder, id, "rootfs", "lib")); err != nil || string(b) != want {
			t.Errorf("%s has %.4q, %v, want %.4q", id, b, err, want)
		}
	}
}

func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	s, folder := open(t)
	for _, id := range []string{"a", "b", "c"} {
		_, _, err := s.Load(t.Context(), images.Request{Path: save(t, shell(t)), ID: id})
		must(t, err)
	}
	must(t, os.WriteFile(filepath.Join(folder, "b", "image.json"), []byte("{"), 0o600))
	must(t, os.WriteFile(filepath.Join(folder, "c", "image.json"), []byte(`{"version":99,"image_id":"c"}`), 0o600))
	must(t, os.Mkdir(filepath.Join(folder, "no image"), 0o700))
	list, err := s.List()
	if len(list) != 1 || list[0].ID != "a" || err == nil || !strings.Contains(err.Error(), "image b") || !strings.Contains(err.Error(), "image c") {
		t.Errorf("%v, %v", list, err)
	}
	must(t, s.Remove("b", nobody)) // the way out
}

func TestCanceled(t *testing.T) {
	t.Parallel()
	s, folder := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Load(ctx, images.Request{Path: save(t, shell(t)), ID: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	leftovers(t, folder)
	if _, _, err := s.Load(t.Context(), images.Request{Path: filepath.Join(folder, "absent"), ID: "x"}); !says(err, fault.Invalid, "no such file") {
		t.Errorf("no archive: %v", err)
	}
}

// TestKill kills loads in every part of them and looks at what is there.
func TestKill(t *testing.T) {
	t.Parallel()
	s, folder := open(t)
	archive := picture{ref: "killed:1", layers: [][]byte{shell(t, slices.Collect(func(yield func(entry) bool) {
		for i := range 300 {
			if !yield(file(fmt.Sprintf("data/%d", i), strings.Repeat(fmt.Sprint(i), 3000))) {
				return
			}
		}
	})...)}, pack: func(_ int, b []byte) []byte { return gz(t, b) }}.oci(t)
	// The load reads a pipe that stops at some byte: it is killed while it waits
	// for the next one, which it never gets.
	for _, part := range []int{0, 1000, len(archive) / 3, len(archive) - 1} {
		cmd, in := startLoad(t, folder, "killed")
		if _, err := in.Write(archive[:part]); err != nil {
			t.Fatal(err)
		}
		until(t, "the load is under way", func() bool {
			if found, _ := filepath.Glob(filepath.Join(folder, ".tmp-*")); part == 0 && len(found) > 0 {
				return true
			}
			found, _ := filepath.Glob(filepath.Join(folder, ".tmp-*", "archive"))
			st, err := os.Stat(first(found))
			return err == nil && st.Size() >= int64(part)/2
		})
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
		_ = in.Close() // by Wait already
		if list, err := s.List(); err != nil || len(list) != 0 {
			t.Fatalf("after %d bytes: %v, %v", part, list, err)
		}
	}
	// And while it unpacks: at some moment after the archive was read.
	for i := range 6 {
		cmd, in := startLoad(t, folder, "killed")
		_, err := in.Write(archive)
		must(t, err)
		must(t, in.Close())
		until(t, "some is unpacked", func() bool {
			found, _ := filepath.Glob(filepath.Join(folder, ".tmp-*", "rootfs", "data", "*"))
			_, err := os.Stat(filepath.Join(folder, "killed"))
			return len(found) > 50*i || err == nil
		})
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()                                                      // killed
		if _, err := os.Stat(filepath.Join(folder, "killed")); err == nil { // it was faster: then it is whole
			if n := len(tree(t, filepath.Join(folder, "killed", "rootfs"))); n != 303 {
				t.Fatalf("%d files of a visible image, want 303", n)
			}
			must(t, s.Remove("killed", nobody))
		}
	}
	m, loaded, err := s.Load(t.Context(), images.Request{Path: save(t, archive)})
	if err != nil || !loaded || m.ID != "killed-1" || len(tree(t, filepath.Join(folder, "killed-1", "rootfs"))) != 303 {
		t.Errorf("%+v, %v, %v", m, loaded, err)
	}
	leftovers(t, folder)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func startLoad(t *testing.T, folder, id string) (*exec.Cmd, io.WriteCloser) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "load", folder, id)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	return cmd, in
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(30 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited 30 s for: %s", what)
		}
	}
}

// Loads at once, of the same image and of others, while images go.
func TestTogether(t *testing.T) {
	t.Parallel()
	s, folder := open(t)
	common := file("common", strings.Repeat("c", 50_000))
	paths := map[string]string{}
	for _, id := range []string{"a", "b"} {
		paths[id] = save(t, shell(t, common, file("id", id)))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	fresh := map[string]int{}
	for i := range 12 {
		id := []string{"a", "b"}[i%2]
		wg.Go(func() {
			m, loaded, err := s.Load(context.Background(), images.Request{Path: paths[id], ID: id})
			if err != nil || m.ID != id {
				t.Errorf("%+v, %v", m, err)
			}
			if loaded {
				mu.Lock()
				fresh[id]++
				mu.Unlock()
			}
		})
	}
	for i := range 6 {
		id := fmt.Sprint("gone", i)
		wg.Go(func() {
			if _, _, err := s.Load(context.Background(), images.Request{Path: paths["a"], ID: id}); err != nil {
				t.Error(err)
			}
			if err := s.Remove(id, nobody); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if !maps.Equal(fresh, map[string]int{"a": 1, "b": 1}) {
		t.Errorf("made new: %v, want each once", fresh)
	}
	for id := range paths {
		if got := tree(t, filepath.Join(folder, id, "rootfs")); got["id"] != "-rw-r--r-- "+id || len(got["common"]) != len("-rw-r--r-- ")+50_000 {
			t.Errorf("%s: %q", id, got["id"])
		}
	}
	leftovers(t, folder)
}

func TestWatch(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan []string, 100)
	done := make(chan error, 1)
	go func() {
		done <- s.Watch(ctx, func() {
			list, err := s.List()
			if err != nil {
				t.Error(err)
			}
			var ids []string
			for _, m := range list {
				ids = append(ids, m.ID)
			}
			told <- ids
		})
	}()
	await := func(want ...string) {
		t.Helper()
		for end := time.After(time.Minute); ; {
			select {
			case got := <-told:
				if slices.Equal(got, want) {
					return
				}
			case <-end:
				t.Fatalf("not told of %v", want)
			}
		}
	}
	await()
	_, _, err := s.Load(ctx, images.Request{Path: save(t, shell(t)), ID: "a"})
	must(t, err)
	await("a")
	_, _, err = s.Load(ctx, images.Request{Path: save(t, shell(t)), ID: "b"})
	must(t, err)
	await("a", "b")
	must(t, s.Remove("a", nobody))
	await("b")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("watch: %v", err)
	}
}
