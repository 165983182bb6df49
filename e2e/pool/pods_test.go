package pool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	yaml "go.yaml.in/yaml/v3"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// asking is a pod whose container asks for a part of a card.
const asking = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME","annotations":{"pool.yunhe.dev/group":"team-a"}},"spec":{"containers":[
	{"name":"main","image":"any","command":["program","add","3"],"resources":{"limits":{"cpu":"1","memory":"64Mi","yunhe.dev/pool-compute":"COMPUTE","yunhe.dev/pool-memory":"64"}}}]}}`

func podAsking(name, compute string) string {
	return strings.NewReplacer("NAME", name, "COMPUTE", compute).Replace(asking)
}

// played is what of a pod is played here: its containers, as processes of this machine.
type played struct {
	Spec struct {
		InitContainers []playedContainer `json:"initContainers"`
		Containers     []playedContainer `json:"containers"`
	} `json:"spec"`
}

type playedContainer struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
	Args    []string `json:"args"`
	Env     []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	StartupProbe struct {
		Exec struct {
			Command []string `json:"command"`
		} `json:"exec"`
	} `json:"startupProbe"`
	Resources struct {
		Limits   map[string]string `json:"limits"`
		Requests map[string]string `json:"requests"`
	} `json:"resources"`
}

// process is a container's, with dir for the volume.
func (c *playedContainer) process(w *world, ctx context.Context, dir string, program string, args []string, env ...string) *exec.Cmd {
	here := func(s string) string { return strings.ReplaceAll(s, "/yunhe-pool", dir) }
	for i := range args {
		args[i] = here(args[i])
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(env, "HOME="+w.t.TempDir(), "HOSTNAME=pod-1")
	for _, e := range c.Env {
		if e.Value != "" {
			cmd.Env = append(cmd.Env, e.Name+"="+here(e.Value))
		}
	}
	return cmd
}

// play plays a pod as a cluster admitted it: what it asked for is gone from its
// limits; its container finds the slice, which ends with the pod.
func (w *world) play(object []byte, vendors string) {
	w.t.Helper()
	t := w.t
	var p played
	must(t, json.Unmarshal(object, &p))
	if len(p.Spec.InitContainers) != 1 || len(p.Spec.Containers) != 1 {
		t.Fatalf("the pod is %s", object)
	}
	main, side := &p.Spec.Containers[0], &p.Spec.InitContainers[0]
	if _, still := main.Resources.Limits["yunhe.dev/pool-compute"]; still || main.Resources.Limits["cpu"] != "1" {
		t.Errorf("limits are %v", main.Resources.Limits)
	}
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	beside := side.process(w, ctx, dir, binary, side.Args, "YUNHE_KEY="+w.key)
	var said bytes.Buffer
	beside.Stderr = &said
	must(t, beside.Start())
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for ready, end := false, time.Now().Add(30*time.Second); !ready; <-look.C {
		probe := side.StartupProbe.Exec.Command
		ready = side.process(w, ctx, dir, binary, append([]string(nil), probe[1:]...)).Run() == nil
		if !ready && time.Now().After(end) {
			t.Fatalf("the slice is not ready: %s", &said)
		}
	}
	had := func(state poolv1.Slice_State) []*poolv1.Slice {
		res, err := w.bench.API.ListSlices(ctx, &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{state}})
		must(t, err)
		return res.Slices
	}
	before := len(had(poolv1.Slice_STATE_ENDED))
	native := exec.Command(w.bench.Program, main.Command[1:]...)
	native.Env = []string{"OCL_ICD_VENDORS=" + vendors, "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")} // PoCL starts a linker
	want, err := native.CombinedOutput()
	must(t, err)
	got, err := main.process(w, ctx, dir, w.bench.Program, main.Command[1:]).CombinedOutput()
	if err != nil || string(got) != string(want) {
		t.Errorf("in the pod: %v, %s; natively: %s", err, got, want)
	}
	if list := had(poolv1.Slice_STATE_RUNNING); len(list) != 1 || list[0].ComputePercent != 37 || list[0].MemoryMib != 64 || list[0].GroupId != "team-a" || list[0].Name != "pod-1" {
		t.Errorf("slices are %v", list)
	}
	stop() // as when the pod ends
	if err := beside.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("the container beside: %v: %s", err, &said)
	}
	for end := time.Now().Add(5 * time.Second); ; <-look.C { // when the node has said so
		res, err := w.bench.API.ListSlices(t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_ENDED}})
		must(t, err)
		if len(res.Slices) == before+1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the slice has not ended: %v", res.Slices)
		}
	}
}

// TestPods: a cluster's API server asks the webhook about pods that ask for the
// pool, and only about these; what it makes of one finds its slice. The containers
// of the pod are played as processes.
func TestPods(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	k, err := enginetest.StartKubernetes(ctx, enginetest.KubernetesConfig{NotDurable: true})
	if missing := (*enginetest.MissingError)(nil); errors.As(err, &missing) {
		t.Skipf("SKIPPED: %v", missing)
	}
	must(t, err)
	defer func() { must(t, k.Close()) }()
	w := open(t, false)
	vendors := w.vendors("one", "pocl.icd")
	w.node("n1", vendors)
	w.online(1)
	_, err = w.bench.API.SetPoolGroup(ctx, &poolv1.SetPoolGroupRequest{GroupId: "team-a", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(t, err)

	client := k.Client(4)
	api := func(path, body string) (int, []byte) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, k.URL+path, strings.NewReader(body))
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+k.Token)
		r.Header.Set("Content-Type", "application/json")
		res, err := client.Do(r)
		must(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		must(t, err)
		return res.StatusCode, b
	}
	const pods = "/api/v1/namespaces/default/pods"

	cert, key, ca := enginetest.Certificate(t, t.TempDir())
	hook := exec.Command(binary, "pool", "webhook", "--listen", "127.0.0.1:0", "--cert", cert, "--cert-key", key, "--image", "yunhe:test", "--platform-url", w.url, "--node-folder", "/var/lib/yunhe-pool/shared")
	listens, end := w.serve(hook, regexp.MustCompile(`webhook listens" address=(\S+)`))
	manifest, err := exec.Command(binary, "pool", "webhook", "manifest", "--image", "yunhe:test", "--platform-url", w.url).Output()
	must(t, err)
	registered := false
	for docs := yaml.NewDecoder(bytes.NewReader(manifest)); ; {
		var doc map[string]any
		if err := docs.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else {
			must(t, err)
		}
		path := map[string]string{"Namespace": "/api/v1/namespaces", "Secret": "/api/v1/namespaces/yunhe-pool/secrets", "Service": "/api/v1/namespaces/yunhe-pool/services", "Deployment": "/apis/apps/v1/namespaces/yunhe-pool/deployments",
			"MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"}[doc["kind"].(string)]
		if doc["kind"] == "MutatingWebhookConfiguration" { // it runs outside of the cluster here
			registered = true
			doc["webhooks"].([]any)[0].(map[string]any)["clientConfig"] = map[string]any{"url": "https://" + listens[1] + "/pods", "caBundle": ca}
		}
		body, err := json.Marshal(doc)
		must(t, err)
		if code, out := api(path, string(body)); code != http.StatusCreated {
			t.Fatalf("%s: %d %s", doc["kind"], code, out)
		}
	}
	if !registered {
		t.Fatal("the manifest registers no webhook")
	}

	// A registration is heeded after a moment.
	var object []byte
	for look := time.NewTicker(200 * time.Millisecond); ; <-look.C {
		if _, object = api(pods+"?dryRun=All", podAsking("asks", "37")); strings.Contains(string(object), "yunhe-pool-main") || ctx.Err() != nil {
			look.Stop()
			break
		}
	}
	code, object := api(pods, podAsking("asks", "37"))
	if code != http.StatusCreated {
		t.Fatalf("%d %s", code, object)
	}
	w.play(object, vendors)
	if !strings.Contains(string(object), `"qosClass":"Guaranteed"`) { // as it was without the pool
		t.Errorf("the pod is %s", object)
	}
	local := strings.Replace(podAsking("asks-local", "37"), `"pool.yunhe.dev/group"`, `"pool.yunhe.dev/local":"true","pool.yunhe.dev/api":"cuda","pool.yunhe.dev/group"`, 1)
	if code, out := api(pods, local); code != http.StatusCreated || !strings.Contains(string(out), `"nodeSelector":{"pool.yunhe.dev/node":"true"}`) || !strings.Contains(string(out), `"hostPath":{"path":"/var/lib/yunhe-pool/shared","type":"Directory"}`) {
		t.Errorf("%d %s", code, out)
	}
	goesOn := strings.NewReplacer(`"containers"`, `"initContainers"`, `"resources"`, `"restartPolicy":"Always","resources"`, `}]}}`, `}],"containers":[{"name":"other","image":"any"}]}}`).Replace(podAsking("asks-beside", "37"))
	if code, out := api(pods, goesOn); code != http.StatusCreated || !strings.Contains(string(out), "yunhe-pool-main") || strings.Contains(string(out), `"yunhe.dev/pool-compute":"`) {
		t.Errorf("%d %s", code, out)
	}
	if code, out := api(pods, strings.Replace(goesOn, `"restartPolicy":"Always",`, "", 1)); code != http.StatusUnprocessableEntity || !strings.Contains(string(out), "only if its restartPolicy is Always") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := api(pods, podAsking("asks-too-much", "101")); code != http.StatusUnprocessableEntity || !strings.Contains(string(out), `must be a whole number from 1 to 100, got \"101\"`) {
		t.Errorf("%d %s", code, out)
	}
	end()
	if code, out := api(pods, podAsking("asks-nobody", "37")); code < 500 {
		t.Errorf("without the webhook: %d %s", code, out)
	}
	if code, out := api(pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"other"},"spec":{"containers":[{"name":"main","image":"any"}]}}`); code != http.StatusCreated {
		t.Errorf("a pod that does not ask, without the webhook: %d %s", code, out)
	}
}
