package pool_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
)

// TestNodeInContainer: a pool node in a container of the image that the binary
// writes, as docs/howto/lend-devices.md says: with the machine's drivers and a folder for what it
// keeps, without rights and with nothing else that it may write. It lends its device
// to programs outside, which move between it and a node outside; stopped and made
// anew it is the node that it was.
func TestNodeInContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: containers are made by root")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("SKIPPED: there is no runc")
	}
	w := open(t, true)
	if !w.spaces {
		t.Skip("SKIPPED: no network namespaces can be made here")
	}
	w.node("outside", w.vendors("one", "pocl.icd"))
	b := w.bundle()
	token, err := w.bench.API.CreateNodeToken(t.Context(), &poolv1.CreateNodeTokenRequest{})
	must(t, err)
	run := []string{"pool", "node", "--data", "/var/lib/yunhe", "--listen", "tcp:" + b.host.address + ":7420"}
	stop := b.run(append(slices.Clone(run), "--name", "boxed", "--join", w.url, "--token", token.Token))
	w.online(2)
	_, err = w.bench.API.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(t, err)
	native, err := exec.Command(w.bench.Program, "add", "3").Output()
	must(t, err)
	computes := func() {
		t.Helper()
		out, err := w.bench.Yunhe(t.Context(), "", nil, "pool", "run", "--group", "g", "--on", "boxed", "--compute", "37", "--memory", "100MiB", "--", w.bench.Program, "add", "3").CombinedOutput()
		if err != nil || string(out) != string(native) {
			t.Fatalf("it says %q, %v, natively %q", out, err, native)
		}
	}
	computes()

	running := func() []*poolv1.Slice {
		res, err := w.bench.API.ListSlices(t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_RUNNING}})
		must(t, err)
		return res.Slices
	}
	w.until("its slice is released", func() bool { return len(running()) == 0 })
	cmd := w.bench.Yunhe(context.WithoutCancel(t.Context()), "", nil, "pool", "run", "--group", "g", "--on", "boxed", "--compute", "37", "--memory", "100MiB", "--", w.bench.Program, "walk", "8")
	in, err := cmd.StdinPipe()
	must(t, err)
	var says strings.Builder
	cmd.Stdout, cmd.Stderr = &says, &says
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var slice *poolv1.Slice
	w.until("the program computes", func() bool {
		for _, x := range running() {
			if x.DeviceMicros > 0 && x.MemoryUsedBytes > 0 {
				slice = x
			}
		}
		return slice != nil
	})
	for _, to := range []string{"outside", "boxed"} {
		if out, err := w.bench.Yunhe(t.Context(), "", nil, "pool", "slice", "migrate", slice.SliceId, "--to", to).CombinedOutput(); err != nil {
			t.Fatalf("to %s: %v: %s", to, err, out)
		}
	}
	_, err = io.WriteString(in, "\n")
	must(t, err)
	if err := <-ended; err != nil || !strings.Contains(says.String(), "walked") {
		t.Errorf("the program that moved: %v: %s", err, says.String())
	}

	stop()
	b.run(run)
	w.until("it is back", func() bool {
		res, err := w.bench.API.ListPoolNodes(t.Context(), &poolv1.ListPoolNodesRequest{})
		must(t, err)
		return len(res.Nodes) == 2 && !slices.ContainsFunc(res.Nodes, func(x *poolv1.PoolNode) bool { return !x.Online })
	})
	computes()
}

// bundle is what runc makes a container of.
type bundle struct {
	w           *world
	dir, folder string
	vendors     string
	host        host // whose network it has
	image       v1.Image
}

// bundle unpacks an image that the binary writes.
func (w *world) bundle() bundle {
	w.t.Helper()
	b := bundle{w: w, dir: filepath.Join(w.dir, "bundle"), folder: filepath.Join(w.dir, "kept"), host: w.host(), vendors: w.vendors("one", "pocl.icd")}
	archive, layers, root := filepath.Join(w.dir, "image.tar"), filepath.Join(w.dir, "image"), filepath.Join(b.dir, "rootfs")
	for _, d := range []string{layers, root, b.folder} {
		must(w.t, os.MkdirAll(d, 0o755))
	}
	must(w.t, os.Chmod(b.folder, 0o777))
	must(w.t, os.Chmod(b.vendors, 0o755)) // the container's user is not root
	must(w.t, os.Chmod(filepath.Join(b.vendors, "pocl.icd"), 0o644))
	tar := func(args ...string) {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			w.t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	tar(binary, "availability", "image", "--name", "yunhe:test", "--out", archive)
	tar("tar", "-xf", archive, "-C", layers)
	var saved []struct {
		Config string
		Layers []string
	}
	read := func(name string, into any) {
		text, err := os.ReadFile(filepath.Join(layers, name))
		must(w.t, err)
		must(w.t, json.Unmarshal(text, into))
	}
	read("manifest.json", &saved)
	read(saved[0].Config, &b.image)
	if b.image.Config.User != "65532:65532" {
		w.t.Fatalf("the image's user is %q", b.image.Config.User)
	}
	for _, l := range saved[0].Layers {
		tar("tar", "-xf", filepath.Join(layers, l), "-C", root)
	}
	return b
}

// run starts the container, and waits until the node in it listens.
func (b bundle) run(args []string) (stop func()) {
	t := b.w.t
	t.Helper()
	_ = os.Remove(filepath.Join(b.dir, "config.json")) // of the container before
	spec := exec.Command("runc", "spec")
	spec.Dir = b.dir
	if out, err := spec.CombinedOutput(); err != nil {
		t.Fatalf("runc spec: %v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(b.dir, "config.json"))
	must(t, err)
	var config struct { // of what runc's specification has, what is looked at; the rest is kept
		Process  map[string]any   `json:"process"`
		Mounts   []map[string]any `json:"mounts"`
		Linux    map[string]any   `json:"linux"`
		Root     any              `json:"root"` // read-only
		Version  any              `json:"ociVersion"`
		Hostname any              `json:"hostname"`
	}
	must(t, json.Unmarshal(text, &config))
	config.Process["terminal"], config.Process["args"] = false, append(slices.Clone(b.image.Config.Entrypoint), args...)
	config.Process["user"], config.Process["capabilities"] = map[string]any{"uid": 65532, "gid": 65532}, map[string]any{}
	for to, from := range map[string]string{"/usr": "/usr", "/etc/OpenCL/vendors": b.vendors} {
		config.Mounts = append(config.Mounts, map[string]any{"destination": to, "source": from, "type": "bind", "options": []string{"rbind", "ro"}})
	}
	config.Mounts = append(config.Mounts, map[string]any{"destination": "/var/lib/yunhe", "source": b.folder, "type": "bind", "options": []string{"rbind", "rw"}},
		map[string]any{"destination": "/tmp", "source": "tmpfs", "type": "tmpfs", "options": []string{"nosuid", "nodev", "mode=1777"}})
	for _, n := range config.Linux["namespaces"].([]any) {
		if n := n.(map[string]any); n["type"] == "network" {
			n["path"] = "/run/netns/" + b.host.space
		}
	}
	text, err = json.Marshal(config)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(b.dir, "config.json"), text, 0o600))
	_, stop = b.w.serve(exec.Command("runc", "--root", filepath.Join(b.w.dir, "runc"), "run", "--bundle", b.dir, b.host.space), regexp.MustCompile("pool node listens"))
	return stop
}
