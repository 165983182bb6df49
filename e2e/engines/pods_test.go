package engines_test

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"

	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/pool"
)

// TestPodsAtKubelet: pods that ask the webhook's cluster for slices by themselves compute
// on them in containers of a real kubelet: one of OpenCL over the network, one of OpenCL
// by the socket of the node on its own machine, and one of CUDA that has the driver
// itself there, on two cards. Slices end with their pods, and a program with its slice.
// The driver of CUDA is a stand-in; the pods bring it, as no container toolkit does here.
func TestPodsAtKubelet(t *testing.T) {
	w := poolBench(t)
	a, k, dir := w.app, w.cluster, w.dir
	// The webhook, registered as its manifest says, but for where it runs.
	cert, key, ca := enginetest.Certificate(t, dir)
	listens, _ := w.begin(`webhook listens" address=(\S+)`, nil, "pool", "webhook", "--listen", "127.0.0.1:0", "--cert", cert, "--cert-key", key, "--image", poolImage, "--platform-url", a.URL(), "--node-folder", filepath.Join(w.node, pool.SharedFolder))
	client := k.Client(4)
	api := func(method, path, kind string, body any) (int, []byte) {
		t.Helper()
		b, err := json.Marshal(body)
		must(t, err)
		r, err := http.NewRequestWithContext(t.Context(), method, k.URL+path, strings.NewReader(string(b)))
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+k.Token)
		r.Header.Set("Content-Type", kind)
		res, err := client.Do(r)
		must(t, err)
		defer res.Body.Close()
		out, err := io.ReadAll(res.Body)
		must(t, err)
		return res.StatusCode, out
	}
	create := func(path string, body any) []byte {
		t.Helper()
		code, out := api(http.MethodPost, path, "application/json", body)
		if code != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, code, out)
		}
		return out
	}
	create("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": map[string]any{"name": "yunhe-pool"},
		"webhooks": []any{map[string]any{"name": "pool.yunhe.dev", "sideEffects": "None", "admissionReviewVersions": []any{"v1"}, "clientConfig": map[string]any{"url": "https://" + listens[1] + "/pods", "caBundle": ca},
			"rules": []any{map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"pods"}, "operations": []any{"CREATE"}}}}}})
	create("/api/v1/namespaces/default/secrets", map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "yunhe-pool"}, "stringData": map[string]any{"key": a.Admin.Key}})

	const path = "/api/v1/namespaces/default/pods"
	pod := func(name, command string, annotations map[string]string, limits map[string]string) map[string]any {
		said := map[string]any{"pool.yunhe.dev/group": "team"}
		for k, v := range annotations {
			said["pool.yunhe.dev/"+k] = v
		}
		asks := map[string]any{}
		for k, v := range limits {
			asks["yunhe.dev/pool-"+k] = v
		}
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "annotations": said}, "spec": map[string]any{
			"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
			"volumes": []any{map[string]any{"name": "programs", "hostPath": map[string]any{"path": w.programs}}},
			"containers": []any{map[string]any{"name": "main", "image": systemImage, "imagePullPolicy": "Never", "command": []any{"sh", "-c", command},
				"env":          []any{map[string]any{"name": "LD_LIBRARY_PATH", "value": "/programs"}},
				"volumeMounts": []any{map[string]any{"name": "programs", "mountPath": "/programs", "readOnly": true}},
				"resources":    map[string]any{"limits": asks}}}}}
	}
	apptest.Until(t, "the webhook is asked", func() bool { // a registration is heeded after a moment
		_, out := api(http.MethodPost, path+"?dryRun=All", "application/json", pod("asks", "true", nil, map[string]string{"compute": "37", "memory": "64"}))
		return strings.Contains(string(out), "yunhe-pool-main")
	})
	phase := func(name string) string {
		t.Helper()
		_, out := api(http.MethodGet, path+"/"+name, "application/json", nil)
		var p struct{ Status struct{ Phase string } }
		must(t, json.Unmarshal(out, &p))
		return p.Status.Phase
	}
	logOf := func(name, container string) string {
		t.Helper()
		_, out := api(http.MethodGet, path+"/"+name+"/log?container="+container, "application/json", nil)
		return string(out)
	}
	of := func(name string) func(x *poolv1.Slice) bool {
		return func(x *poolv1.Slice) bool { return x.Name == name }
	}
	ends := func(name, want string) string {
		t.Helper()
		apptest.Until(t, name+" ends: "+logOf(name, "yunhe-pool-main"), func() bool { p := phase(name); return p == "Succeeded" || p == "Failed" })
		if got := phase(name); got != want {
			t.Errorf("%s has %s, want %s: %s: %s", name, got, want, logOf(name, "main"), logOf(name, "yunhe-pool-main"))
		}
		apptest.Until(t, "the slices of "+name+" end", func() bool { return len(w.live(of(name))) == 0 })
		return logOf(name, "main")
	}

	create(path, pod("opencl", "/programs/opencl add 3; grep -o ADDRESS=[a-z]*: $YUNHE_POOL_FILE", nil, map[string]string{"compute": "37", "memory": "64"}))
	create(path, pod("local", "YUNHE_POOL_TRANSPORT=ring /programs/opencl add 3; grep -o ADDRESS=[a-z]*: $YUNHE_POOL_FILE", map[string]string{"local": "true"}, map[string]string{"compute": "37", "memory": "64"}))
	for name, by := range map[string]string{"opencl": "tcp", "local": "unix"} {
		if got, want := ends(name, "Succeeded"), w.native("add", "3")+"ADDRESS="+by+":\n"; got != want {
			t.Errorf("%s printed %q, want %q", name, got, want)
		}
	}
	cuda := map[string]string{"api": "cuda", "local": "true"}
	two := map[string]string{"compute": "50", "memory": "37", "cards": "2"}
	create(path, pod("cuda", "/programs/cuda linked cards 1000 && /programs/cuda proc env && /programs/cuda dlsym add 5", cuda, two))
	if got := ends("cuda", "Succeeded"); !strings.Contains(got, ", then 101\n") || strings.Count(got, "has 37 MiB, 36 of 37 free, then it uses 10, 6, 11\n") != 2 || !strings.HasSuffix(got, "filled 37, error 2\nagain 0 2\nsum 327680\n") {
		t.Errorf("of CUDA: %s", got)
	}
	// A pod that is deleted gives back what its programs had, and a slice that is taken back ends them.
	create(path, pod("deleted", "sleep 1000 | /programs/cuda linked hold 37", cuda, two))
	w.holds(of("deleted"))
	begun := time.Now()
	if code, out := api(http.MethodDelete, path+"/deleted", "application/json", nil); code != http.StatusOK {
		t.Fatalf("%d %s", code, out)
	}
	apptest.Until(t, "its slices end", func() bool { return len(w.live(of("deleted"))) == 0 })
	t.Logf("figure: its slices had ended %s after the pod was to be deleted", time.Since(begun).Round(10*time.Millisecond))
	create(path, pod("taken", "mkfifo /tmp/f; (sleep 1000 >/tmp/f &); /programs/cuda linked hold 37 </tmp/f; echo ended with $?", cuda, two))
	w.holds(of("taken"))
	_, err := a.Admin.Pool.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: w.live(of("taken"))[0].SliceId})
	must(t, err)
	apptest.Until(t, "its program is killed", func() bool { return strings.Contains(logOf("taken", "main"), "ended with 137") })
}
