package agent_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"yunhe.dev/yunhe/adapters/gateway/agent"
	"yunhe.dev/yunhe/adapters/gateway/images"
	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/fault"
)

// shell returns a static program that is a shell: the machine's busybox.
func shell(t *testing.T) []byte {
	t.Helper()
	const busybox = "/bin/busybox"
	f, err := elf.Open(busybox)
	if err != nil || slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Skipf("SKIPPED: %s, a static one, is missing (make deps installs it): %v", busybox, err)
	}
	defer f.Close()
	b, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type entry struct{ name, text, link string }

func layer(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o700, Typeflag: tar.TypeReg, Size: int64(len(e.text))}
		if e.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// archive is an OCI archive with the given layers, the last one packed.
func archive(t *testing.T, ref string, config v1.ImageConfig, layers ...[]byte) string {
	t.Helper()
	blobs := []entry{{name: "oci-layout", text: `{"imageLayoutVersion":"1.0.0"}`}}
	put := func(media string, b []byte) v1.Descriptor {
		d := digest.FromBytes(b)
		blobs = append(blobs, entry{name: "blobs/sha256/" + d.Encoded(), text: string(b)})
		return v1.Descriptor{MediaType: media, Digest: d, Size: int64(len(b))}
	}
	asJSON := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	img := v1.Image{Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, Config: config, RootFS: v1.RootFS{Type: "layers"}}
	var man v1.Manifest
	man.SchemaVersion = 2
	for i, l := range layers {
		img.RootFS.DiffIDs = append(img.RootFS.DiffIDs, digest.FromBytes(l))
		if i == len(layers)-1 {
			var z bytes.Buffer
			w := gzip.NewWriter(&z)
			if _, err := w.Write(l); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			l = z.Bytes()
		}
		man.Layers = append(man.Layers, put(v1.MediaTypeImageLayerGzip, l))
	}
	man.Config = put(v1.MediaTypeImageConfig, asJSON(img))
	m := put(v1.MediaTypeImageManifest, asJSON(man))
	m.Annotations = map[string]string{v1.AnnotationRefName: ref}
	var index v1.Index
	index.SchemaVersion, index.Manifests = 2, []v1.Descriptor{m}
	p := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(p, layer(t, append(blobs, entry{name: "index.json", text: string(asJSON(index))})...), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// at reports whether the platform knows the image at the center.
func at(t *testing.T, a *apptest.App, center, image string) bool {
	t.Helper()
	list, err := a.Admin.Registry.ListImages(t.Context(), &registryv1.ListImagesRequest{PageSize: 200})
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list.Images, func(m *registryv1.Image) bool { return m.ImageId == image && slices.Contains(m.Centers, center) })
}

// An image is loaded while the gateway runs, used, and goes, and the platform
// hears of all that.
func TestImages(t *testing.T) {
	t.Parallel()
	apptest.NeedRoot(t)
	a := apptest.Start(t, apptest.Options{})
	g := a.Gateway(t)
	program := string(shell(t))
	store, err := images.Open(agent.ImagesDir(g.Dir))
	if err != nil {
		t.Fatal(err)
	}
	// Something of the host's no image has.
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("host only"), 0o644); err != nil {
		t.Fatal(err)
	}
	links := []entry{{name: "bin/busybox", text: program}, {name: "bin/sh", link: "/bin/busybox"}}
	for _, applet := range []string{"cat", "ls", "echo", "id", "touch", "sleep"} {
		links = append(links, entry{name: "bin/" + applet, link: "busybox"})
	}
	config := v1.ImageConfig{Env: []string{"FROM_IMAGE=yes", "BOTH=image", "HOME=/root"}, WorkingDir: "/app", User: "app:app", Entrypoint: []string{"/bin/false"}}
	path := archive(t, "example.com/tools/box:1", config, layer(t, links...), layer(t, entry{name: "app/data", text: "from the image"}, entry{name: "etc/issue", text: "box 1"},
		entry{name: "etc/passwd", text: "root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/app:/bin/sh\n"}, entry{name: "etc/group", text: "root:x:0:\napp:x:1000:"}))
	if _, _, err := store.Load(t.Context(), images.Request{Path: path}); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "the platform knows the image", func() bool { return at(t, a, g.ID, "box-1") })

	in := func(name, text string) *jobsv1.JobSpec {
		j := command(name, text)
		j.Tasks[0].ImageId = "box-1"
		return j
	}
	j := in("inside", strings.Join([]string{"echo env $FROM_IMAGE $BOTH $HOME $YUNHE_IMAGE_WORKDIR", "pwd", "cat /app/data /etc/issue in", "echo", "ls /",
		"id", "touch out", "echo", "ls /workspace", "touch /etc/x /app/x /bin/x", "cat " + secret, "cat /etc/shadow /etc/hostname /proc/1/cmdline", "ls /dev", "echo end"}, ";"))
	j.Tasks[0].Env = map[string]string{"BOTH": "job"}
	j.Tasks[0].Files = []*jobsv1.File{{Path: "in", Content: []byte(" input")}}
	id := a.Admin.Submit(t, j)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
	log, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"env yes job /workspace /app\n/workspace\n", "from the imagebox 1 input\n", "\napp\nbin\ndev\netc\nproc\ntmp\nworkspace\n", "\nin\nout\n", "end\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	// The image's user is the name of the command's, whose number is the gateway's.
	if !strings.Contains(log, "(app) gid=") || !strings.Contains(log, "(app)\n") || strings.Contains(log, "1000(") {
		t.Errorf("the command is not called as the image's user:\n%s", log)
	}
	if strings.Contains(log, "host only") || strings.Contains(log, "root:") || strings.Contains(log, "uid=0") || strings.Contains(log, "vda") || strings.Contains(log, "kmsg") {
		t.Errorf("the host shows:\n%s", log)
	}
	if n := strings.Count(log, "/x: ") + strings.Count(log, "/x'"); n < 1 {
		t.Errorf("the image can be written:\n%s", log)
	}
	for _, p := range []string{"etc/x", "app/x", "bin/x"} {
		if _, err := os.Lstat(filepath.Join(agent.ImagesDir(g.Dir), "box-1", "rootfs", p)); err == nil {
			t.Errorf("%s was written", p)
		}
	}

	// In use: it stays. The attempt outlives the gateway, and is in use still.
	hold := a.Admin.Submit(t, in("hold", "echo up; sleep 1000"))
	a.Admin.AwaitState(t, hold, jobsv1.State_STATE_RUNNING)
	users := func(root string) ([]string, error) { return sandbox.Using(agent.RunsDir(g.Dir), root) }
	if err := store.Remove("box-1", users); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "in use by") {
		t.Errorf("removal while it is in use: %v", err)
	}
	g.Stop()
	if err := store.Remove("box-1", users); fault.KindOf(err) != fault.Conflict {
		t.Errorf("removal while the gateway is away: %v", err)
	}
	g.Start()
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: hold}); err != nil {
		t.Fatal(err)
	}
	a.Admin.AwaitState(t, hold, jobsv1.State_STATE_STOPPED)

	// Without a shell it is not even declared; who asks for it all the same is told.
	if _, _, err := store.Load(t.Context(), images.Request{Path: archive(t, "bare:1", v1.ImageConfig{}, layer(t, entry{name: "etc/issue", text: "x"}))}); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "the image can be removed", func() bool { return store.Remove("box-1", users) == nil })
	apptest.Until(t, "the platform knows that it is gone", func() bool { return !at(t, a, g.ID, "box-1") })
	if at(t, a, g.ID, "bare-1") {
		t.Error("an image without a shell is declared")
	}
	if _, err := a.Admin.Registry.CreateImage(t.Context(), &registryv1.CreateImageRequest{Image: &registryv1.Image{ImageId: "bare-1", Name: "bare", Centers: []string{g.ID}}}); err != nil {
		t.Fatal(err)
	}
	bare := command("bare", "true")
	bare.Tasks[0].ImageId = "bare-1"
	end := a.Admin.AwaitState(t, a.Admin.Submit(t, bare), jobsv1.State_STATE_FAILED)
	if want := `no command can be run in image "bare-1": it has no /bin/sh`; end.Reason != "refused" || !strings.Contains(end.Message, want) {
		t.Errorf("without a shell: %q %q, want %q", end.Reason, end.Message, want)
	}
	fmt.Fprintln(t.Output(), "shell of", len(program), "bytes")
}
