// Package deploy_test starts deployments that `yunhe availability deploy`
// wrote: units as processes on a real PostgreSQL and a NATS cluster, and the
// manifests at a real Kubernetes API server.
package deploy_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/enginetest"
)

// patience is how long anything may take, on machines that do many things.
const patience = 2 * time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, done func() (bool, error)) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		ok, err := done()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain until %s: %v", patience, what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// The image that manifests name holds the program and all it needs: it runs in
// a root that has nothing else.
func TestImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: to run in a root of its own needs root")
	}
	binary, err := enginetest.Binary()
	must(t, err)
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	version := run(binary, "version")
	run(binary, "availability", "image", "--name", "yunhe:test", "--out", "image.tar")
	run("tar", "-xf", "image.tar")
	var saved []struct{ Layers []string }
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	must(t, err)
	must(t, json.Unmarshal(text, &saved))
	root := filepath.Join(dir, "root")
	must(t, os.Mkdir(root, 0o755))
	run("tar", "-xf", saved[0].Layers[0], "-C", root)
	if got := run("chroot", "--userspec=65532:65532", root, "/yunhe", "version"); got != version {
		t.Errorf("in the image it says %q, want %q", got, version)
	}
}

const roles = `modules:
  - name: platform
    submodules: [{name: api}, {name: control}, {name: reach}, {name: watch}]
instances: 2
target: 0.999
`

// written plans the roles and writes the deployment with the built program.
func written(t *testing.T, bin string, args ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	file := filepath.Join(dir, "roles.yaml")
	must(t, os.WriteFile(file, []byte(roles), 0o600))
	plan, err := exec.CommandContext(t.Context(), bin, "availability", "plan", "-f", file, "-o", "json").Output()
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "plan.json"), plan, 0o600))
	out := filepath.Join(dir, "out")
	cmd := exec.CommandContext(t.Context(), bin, append([]string{"availability", "deploy", "--plan", filepath.Join(dir, "plan.json"), "--out", out}, args...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

func binary(t *testing.T) string {
	t.Helper()
	bin, err := enginetest.Binary()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	return bin
}

// The processes of a plan are started as their units say. The platform answers
// at every one with the role api, each role is measured, and it goes on when
// one of each group is killed.
func TestProcesses(t *testing.T) {
	t.Parallel()
	bin := binary(t)
	dir := t.TempDir()
	keys := filepath.Join(dir, "bus")
	must(t, os.MkdirAll(keys, 0o700))
	trust, err := bus.LoadTrust(keys)
	must(t, err)
	servers := enginetest.NATSCluster(t, 3, func(_ int, o *server.Options) {
		o.MaxPayload = 8 << 20
		must(t, trust.Apply(o))
	})
	config := filepath.Join(dir, "yunhe.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "database: {url: %q}\nbus: {url: %q, keys: %q, replicas: 3}\nobjects: {url: %q}\n",
		enginetest.Postgres(t), servers.URL(), keys, filepath.Join(dir, "objects")), 0o600))
	port, err := enginetest.FreePort()
	must(t, err)
	units := written(t, bin, "--format", "systemd", "--hosts", "here", "--binary", bin, "--config", config, "--data", dir, "--address", "127.0.0.1", "--port", fmt.Sprint(port))

	files, err := filepath.Glob(filepath.Join(units, "here", "*.service"))
	must(t, err)
	if len(files) < 2 {
		t.Fatalf("units %v", files)
	}
	var urls []string
	var progs []*enginetest.Program
	ended := map[string]bool{} // groups of which one was killed
	for i, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		_, line, _ := strings.Cut(string(text), "\nExecStart=")
		line, _, _ = strings.Cut(line, "\n")
		args := strings.Fields(line)
		// The ports that a unit names are for hosts of its own: here another
		// program may have taken one meanwhile.
		for k, a := range args {
			if a == "--listen" {
				args[k+1] = "127.0.0.1:0"
			}
			if a == "--data" {
				must(t, os.MkdirAll(args[k+1], 0o700))
			}
		}
		p, err := enginetest.StartProgram(fmt.Sprintf("unit-%d", i), args[0], dir, nil, args[1:]...)
		must(t, err)
		t.Cleanup(func() {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		})
		progs, urls = append(progs, p), append(urls, "")
		until(t, "a process answers", func() (bool, error) {
			select {
			case <-p.Done():
				t.Fatalf("%s ended: %s", file, p.Tail())
			default:
			}
			url, ok, err := p.Line("Console and API: ")
			if !ok || err != nil {
				return false, err
			}
			urls[i] = url
			return get(t.Context(), url+"/readyz", "", nil)
		})
	}
	key := adminKey(t, dir)
	alive := func(what string) {
		t.Helper()
		until(t, what, func() (bool, error) {
			for i, url := range urls {
				if progs[i] == nil || !strings.Contains(files[i], "api") {
					continue
				}
				var centers struct{}
				if ok, err := get(t.Context(), url+"/v1/centers", key, &centers); !ok {
					return false, err
				}
			}
			return true, nil
		})
	}
	alive("each process with the role api answers")
	until(t, "every role is measured", func() (bool, error) {
		var measured struct {
			Roles []struct {
				Role      string `json:"role"`
				Instances int    `json:"instances"`
			} `json:"roles"`
		}
		ok, err := get(t.Context(), urls[first(files, "api")]+"/v1/availability/measured", key, &measured)
		if !ok || len(measured.Roles) != 4 {
			return false, err
		}
		for _, r := range measured.Roles {
			if r.Instances != 2 {
				return false, fmt.Errorf("role %s has %d instances", r.Role, r.Instances)
			}
		}
		return true, nil
	})
	for i, file := range files {
		if group := file[:strings.LastIndexByte(file, '-')]; !ended[group] {
			ended[group] = true
			must(t, progs[i].Kill())
			progs[i] = nil
		}
	}
	alive("the others go on")
}

func first(files []string, role string) int {
	for i, f := range files {
		if strings.Contains(filepath.Base(f), role) {
			return i
		}
	}
	return 0
}

// adminKey finds the key that the process that was first has written.
func adminKey(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "admin.key"))
	must(t, err)
	if len(found) == 0 {
		t.Fatal("no process has written the key of the first administrator")
	}
	key, err := os.ReadFile(found[0])
	must(t, err)
	return strings.TrimSpace(string(key))
}

// get reports whether the answer is OK, and decodes it into out unless that is nil.
func get(ctx context.Context, url, key string, out any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s: %s %s: %w", url, res.Status, body, err)
	}
	if out != nil {
		err = json.Unmarshal(body, out)
	}
	return err == nil, err
}

// The API server of a real Kubernetes takes every object, with its schemas
// checked, and applying the same again changes nothing.
func TestKubernetesAccepts(t *testing.T) {
	t.Parallel()
	bin := binary(t)
	k := enginetest.KubernetesCluster(t)
	out := written(t, bin, "--format", "kubernetes", "--image", "registry.example/yunhe:1", "--namespace", "net")
	text, err := os.ReadFile(filepath.Join(out, "kustomization.yaml"))
	must(t, err)
	var list struct {
		Resources []string `yaml:"resources"`
	}
	must(t, yaml.Unmarshal(text, &list))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(k.CA)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	generations := map[string]int64{} // 0 of kinds that have none
	for round := range 2 {
		for _, path := range list.Resources {
			text, err := os.ReadFile(filepath.Join(out, path))
			must(t, err)
			dec := yaml.NewDecoder(bytes.NewReader(text))
			for {
				var object map[string]any
				if err := dec.Decode(&object); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				kind, generation := apply(t, client, k, object)
				id := path + "/" + kind
				if round > 0 && generations[id] != generation {
					t.Errorf("applying %s again changed it", id)
				}
				generations[id] = generation
			}
		}
	}
	if len(generations) < 5 {
		t.Errorf("objects %v", generations)
	}
}

var collections = map[string]string{"Namespace": "", "ServiceAccount": "serviceaccounts", "Service": "services", "Deployment": "deployments", "PodDisruptionBudget": "poddisruptionbudgets"}

// apply applies an object as kubectl apply --server-side does.
func apply(t *testing.T, client *http.Client, k *enginetest.Kubernetes, object map[string]any) (kind string, generation int64) {
	t.Helper()
	kind = object["kind"].(string)
	meta := object["metadata"].(map[string]any)
	group := "/apis/" + object["apiVersion"].(string)
	if object["apiVersion"] == "v1" {
		group = "/api/v1"
	}
	url := k.URL + group + "/namespaces/" + fmt.Sprint(meta["name"])
	if kind != "Namespace" {
		url = k.URL + group + "/namespaces/" + fmt.Sprint(meta["namespace"]) + "/" + collections[kind] + "/" + fmt.Sprint(meta["name"])
	}
	body, err := json.Marshal(object)
	must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, url+"?fieldManager=yunhe&fieldValidation=Strict", bytes.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", "application/apply-patch+yaml")
	req.Header.Set("Authorization", "Bearer "+k.Token)
	res, err := client.Do(req)
	must(t, err)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	must(t, err)
	if res.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s %s", kind, meta["name"], res.Status, answer)
	}
	if w := res.Header.Values("Warning"); len(w) > 0 {
		t.Errorf("%s %s: %v", kind, meta["name"], w)
	}
	var got struct {
		Metadata struct {
			Generation int64 `json:"generation"`
		} `json:"metadata"`
	}
	must(t, json.Unmarshal(answer, &got))
	return kind, got.Metadata.Generation
}
