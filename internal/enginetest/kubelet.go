package enginetest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// KubeletImage is the image that containers on a real kubelet can be made of:
// busybox, nothing else. It is there without a registry.
const KubeletImage = "docker.io/library/yunhe-busybox:1"

const pauseImage = "docker.io/library/yunhe-pause:1"

// Kubelet is a real kubelet on a real containerd: a node of a Kubernetes whose
// containers are processes of this machine.
type Kubelet struct {
	Node    string // its name
	Address string // this machine's, as its containers reach it

	bridge string
	lock   *os.File
	proc   *process
}

// kubeletScript runs containerd and kubelet in namespaces of their own, so
// that all they start ends with it and nothing they mount is left: $1 folder,
// $2 containerd, $3 kubelet, then the kubelet's arguments.
const kubeletScript = `set -eu
dir=$1 containerd=$2 kubelet=$3
shift 3
mount --make-rprivate /
mount -t proc proc /proc
mkdir -p /var/lib/cni
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib/cni
mkdir -p /run/netns /run/containerd
ln -s "$dir/containerd.sock" /run/containerd/containerd.sock # where figures of containers are taken from
trap 'exit 0' TERM
"$containerd" --config "$dir/containerd.toml" >"$dir/containerd.log" 2>&1 &
until [ -e "$dir/images" ]; do sleep 0.05; done
"$kubelet" "$@" &
wait`

// KubeletConfig says what kubelet to start.
type KubeletConfig struct {
	Labels     map[string]string // of its node
	LogMaxSize string            // at which logs are cut; 10Mi if empty
	// Images are further ones: by name, the programs of this machine that are in one
	// beside busybox, each with the libraries that it is linked with.
	Images   map[string][]string
	Archives []string // files with images
}

// StartKubelet adds a real kubelet to a control plane. It
// needs root, and runs once at a time on a machine: kubelets share the
// machine's control groups. The caller must Close it before the control plane.
func (k *Kubernetes) StartKubelet(ctx context.Context, cfg KubeletConfig) (*Kubelet, error) {
	paths := map[string]string{}
	for _, name := range []string{"kubelet", "containerd", "ctr", "busybox", "runc", "ip"} {
		path, ok := find(name, builtDir())
		if !ok {
			return nil, &MissingError{Engine: "the kubelet", Need: "no " + name + " found", Fix: fixEngines}
		}
		paths[name] = path
	}
	plugins := "/usr/lib/cni"
	if !executable(filepath.Join(plugins, "bridge")) {
		if plugins = "/opt/cni/bin"; !executable(filepath.Join(plugins, "bridge")) {
			return nil, &MissingError{Engine: "the kubelet", Need: "no network plug-ins found", Fix: fixEngines}
		}
	}
	if os.Geteuid() != 0 {
		return nil, &MissingError{Engine: "the kubelet", Need: "it needs root", Fix: "the tests as root"}
	}
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), dirPrefix+"kubelet.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the kubelet: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the kubelet: %w", err), lock.Close())
	}
	l := &Kubelet{Node: "kubelet-" + strconv.Itoa(rand.IntN(1e6)), lock: lock}
	if err := k.bootKubelet(ctx, l, paths, plugins, cfg); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (k *Kubernetes) bootKubelet(ctx context.Context, l *Kubelet, paths map[string]string, plugins string, cfg KubeletConfig) error {
	dir := k.path("kubelet")
	for _, d := range []string{dir, filepath.Join(dir, "cni"), filepath.Join(dir, "root"), filepath.Join(dir, "logs")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("folders of the kubelet: %w", err)
		}
	}
	net, bridge := 0, ""
	for there := true; there; { // a test that was killed may have left its own
		net = 1 + rand.IntN(254)
		bridge = fmt.Sprintf("ynkl%d", net)
		_, err := os.Stat("/sys/class/net/" + bridge)
		there = err == nil
	}
	address := fmt.Sprintf("10.99.%d.1", net)
	for _, args := range [][]string{{"link", "add", bridge, "type", "bridge"}, {"addr", "add", address + "/24", "dev", bridge}, {"link", "set", bridge, "up"}} {
		if err := runTo(ctx, command{name: "ip " + strings.Join(args, " "), path: paths["ip"], args: args, dir: dir}); err != nil {
			return err
		}
		l.bridge, l.Address = bridge, address
	}
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	socket := filepath.Join(dir, "containerd.sock")
	files := map[string]string{
		"containerd.toml": fmt.Sprintf(containerdConfig, filepath.Join(dir, "containerd"), filepath.Join(dir, "state"), socket, pauseImage, plugins, filepath.Join(dir, "cni")),
		"cni/10-net.conflist": fmt.Sprintf(`{"cniVersion":"0.4.0","name":"net","plugins":[{"type":"bridge","bridge":%q,"ipam":{"type":"host-local","subnet":"10.99.%d.0/24","rangeStart":"10.99.%d.10"}},{"type":"loopback"}]}`,
			bridge, net, net),
		"kubelet.yaml": fmt.Sprintf(kubeletConfig, address, ports[0], ports[1], socket, filepath.Join(dir, "logs"), cmp.Or(cfg.LogMaxSize, "10Mi")),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	var set []string
	for key, value := range cfg.Labels {
		set = append(set, key+"="+value)
	}
	l.proc, err = start(command{name: "kubelet", path: "/bin/sh", dir: dir, clone: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, args: []string{"-c", kubeletScript, "kubelet",
		dir, paths["containerd"], paths["kubelet"],
		"--config=" + filepath.Join(dir, "kubelet.yaml"), "--kubeconfig=" + k.Kubeconfig, "--hostname-override=" + l.Node, "--node-ip=" + address,
		"--root-dir=" + filepath.Join(dir, "root"), "--cert-dir=" + filepath.Join(dir, "pki"), "--node-labels=" + strings.Join(set, ",")}})
	if err != nil {
		return err
	}
	ctr := func(ctx context.Context, args ...string) error {
		return runTo(ctx, command{name: "ctr " + args[0], path: paths["ctr"], dir: dir, args: append([]string{"-a", socket, "-n", "k8s.io"}, args...)})
	}
	if err := l.proc.ready(ctx, func(ctx context.Context) error { return ctr(ctx, "version") }); err != nil {
		return fmt.Errorf("containerd: %w; its log ends:\n%s", err, tail(filepath.Join(dir, "containerd.log")))
	}
	archives := slices.Clone(cfg.Archives)
	image := func(name string, entry, programs []string) error {
		archives = append(archives, filepath.Join(dir, fmt.Sprintf("image%d.tar", len(archives))))
		return writeImage(archives[len(archives)-1], paths["busybox"], name, entry, programs)
	}
	if err := errors.Join(image(KubeletImage, nil, nil), image(pauseImage, []string{"/bin/sleep", "2147483647"}, nil)); err != nil {
		return err
	}
	for name, programs := range cfg.Images {
		if err := image(name, nil, programs); err != nil {
			return err
		}
	}
	for _, archive := range archives {
		if err := ctr(ctx, "images", "import", archive); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "images"), nil, 0o600); err != nil {
		return fmt.Errorf("images of the kubelet: %w", err)
	}
	return l.proc.ready(ctx, func(ctx context.Context) error { return k.nodeReady(ctx, l.Node) })
}

// nodeReady is a readiness probe of a node.
func (k *Kubernetes) nodeReady(ctx context.Context, name string) error {
	client := k.Client(1)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.URL+"/api/v1/nodes/"+name, nil)
	if err != nil {
		return fmt.Errorf("read node: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+k.Token)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var node struct {
		Spec struct {
			Taints []struct{ Key string }
		}
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&node); err != nil {
		return fmt.Errorf("read node: %w", err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" && len(node.Spec.Taints) == 0 {
			return nil
		}
	}
	return fmt.Errorf("node %s is not ready: %+v", name, node)
}

// Kill ends the kubelet, containerd and all containers as a power cut would.
func (l *Kubelet) Kill() error { return l.proc.kill() }

// Close ends the kubelet and all its containers.
func (l *Kubelet) Close() error {
	var errs []error
	if l.proc != nil {
		errs = append(errs, l.proc.kill()) // its containers end with it
	}
	if l.bridge != "" {
		if path, ok := find("ip"); ok {
			out, err := exec.Command(path, "link", "del", l.bridge).CombinedOutput()
			if err != nil && !bytes.Contains(out, []byte("Cannot find device")) {
				errs = append(errs, fmt.Errorf("remove bridge %s: %w: %s", l.bridge, err, out))
			}
		}
	}
	removeCgroups()
	return errors.Join(append(errs, l.lock.Close())...)
}

// removeCgroups removes what the kubelet's pods leave: empty groups.
func removeCgroups() {
	groups, err := filepath.Glob("/sys/fs/cgroup/*/kubepods")
	if err != nil {
		return
	}
	for _, top := range groups {
		var all []string
		_ = filepath.WalkDir(top, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all = append(all, path)
			}
			return nil
		})
		for i := len(all) - 1; i >= 0; i-- {
			_ = syscall.Rmdir(all[i]) // one that is still dying stays
		}
	}
}

// withLibraries are files and what the system's loader finds for them.
func withLibraries(files []string) []string {
	var all []string
	for _, file := range files {
		out, _ := exec.Command("ldd", file).Output() // says nothing of a static one
		for line := range strings.Lines(string(out)) {
			for field := range strings.FieldsSeq(line) {
				if filepath.IsAbs(field) {
					all = append(all, field)
				}
			}
		}
		all = append(all, file)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// writeImage writes an OCI archive of an image whose only layer is busybox, and
// programs with their libraries.
func writeImage(path, busybox, name string, entry, programs []string) error {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("applets of busybox: %w", err)
	}
	var layer bytes.Buffer
	lw := tar.NewWriter(&layer)
	var errs []error
	put := func(w *tar.Writer, h *tar.Header, body []byte) {
		h.Size = int64(len(body))
		errs = append(errs, w.WriteHeader(h))
		_, err := w.Write(body)
		errs = append(errs, err)
	}
	for _, d := range []string{"bin/", "etc/", "root/"} {
		put(lw, &tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	put(lw, &tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	put(lw, &tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, program)
	put(lw, &tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\n"))
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			put(lw, &tar.Header{Name: "bin/" + applet, Linkname: "busybox", Typeflag: tar.TypeSymlink, Mode: 0o777}, nil)
		}
	}
	for _, file := range withLibraries(programs) {
		body, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
		put(lw, &tar.Header{Name: file[1:], Typeflag: tar.TypeReg, Mode: 0o755}, body) // folders come by themselves
	}
	errs = append(errs, lw.Close())

	digest := func(b []byte) string {
		sum := sha256.Sum256(b)
		return hex.EncodeToString(sum[:])
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	blob := func(kind string, b []byte) map[string]any {
		put(w, &tar.Header{Name: "blobs/sha256/" + digest(b), Typeflag: tar.TypeReg, Mode: 0o644}, b)
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest(b), "size": len(b)}
	}
	text := func(v any) []byte {
		b, err := json.Marshal(v)
		errs = append(errs, err)
		return b
	}
	put(w, &tar.Header{Name: "oci-layout", Typeflag: tar.TypeReg, Mode: 0o644}, []byte(`{"imageLayoutVersion":"1.0.0"}`))
	config := blob("config.v1+json", text(map[string]any{"architecture": "amd64", "os": "linux", "config": map[string]any{"Entrypoint": entry, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer.Bytes())}}}))
	manifest := blob("manifest.v1+json", text(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
		"layers": []any{blob("layer.v1.tar", layer.Bytes())}}))
	manifest["annotations"] = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": "1"}
	put(w, &tar.Header{Name: "index.json", Typeflag: tar.TypeReg, Mode: 0o644}, text(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}}))
	errs = append(errs, w.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	return os.WriteFile(path, out.Bytes(), 0o600)
}

// containerdConfig has places for root, state, socket, pause image, plug-ins
// and their configuration.
const containerdConfig = `version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`

// kubeletConfig has places for address, ports, socket, the folder of logs and
// the size at which they are cut.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %s
port: %d
healthzBindAddress: 127.0.0.1
healthzPort: %d
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /
cgroupsPerQOS: true
enforceNodeAllocatable: [pods]
failSwapOn: false
failCgroupV1: false
makeIPTablesUtilChains: false
protectKernelDefaults: false
containerRuntimeEndpoint: unix://%s
oomScoreAdj: 0
serverTLSBootstrap: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "50Mi"}
clusterDomain: cluster.local
resolvConf: ""
podLogsDir: %s
containerLogMaxSize: %s
containerLogMaxFiles: 2
containerLogMonitorInterval: 3s
maxPods: 60
volumeStatsAggPeriod: 1s
`
