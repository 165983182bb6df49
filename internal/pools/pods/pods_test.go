package pods_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pools/pods"
)

var options = pods.Options{Image: "yunhe:1", Server: "https://yunhe.example.org", Secret: "yunhe-pool"}

const asks = `"resources":{"limits":{"cpu":"1","yunhe.dev/pool-compute":"37","yunhe.dev/pool-memory":"1234"},"requests":{"yunhe.dev/pool-compute":"37","yunhe.dev/pool-memory":"1234"}}`

func TestPatch(t *testing.T) {
	t.Parallel()
	ops, err := pods.Patch([]byte(`{"metadata":{"annotations":{"pool.yunhe.dev/group":"team-a","pool.yunhe.dev/weighted":"true","pool.yunhe.dev/across-nodes":"false"}},
		"spec":{"containers":[{"name":"side"},{"name":"main",`+asks+`,"env":[{"name":"A","value":"1"}]}],"initContainers":[{"name":"first"}]}}`), options)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"op":"remove","path":"/spec/containers/1/resources/limits/yunhe.dev~1pool-compute"}`,
		`{"op":"remove","path":"/spec/containers/1/resources/requests/yunhe.dev~1pool-memory"}`,
		`{"op":"add","path":"/spec/containers/1/volumeMounts","value":[]}`,
		`{"op":"add","path":"/spec/containers/1/env/-","value":{"name":"YUNHE_POOL_FILE","value":"/yunhe-pool/slice.env"}}`,
		`{"op":"add","path":"/spec/volumes","value":[]}`,
		`{"op":"add","path":"/spec/initContainers/0","value":{`,
		`"args":["pool","run","--platform","--into","/yunhe-pool","--compute","37","--memory","1234MiB","--group=team-a","--weighted"]`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for _, not := range []string{"containers/0", `"path":"/spec/containers/1/env","value":[]`, `"path":"/spec/initContainers","value"`, "limits/cpu"} {
		if strings.Contains(string(text), not) {
			t.Errorf("%s is in %s", not, text)
		}
	}

	ops, err = pods.Patch([]byte(`{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"1"}}}]}}`), options)
	if ops != nil || err != nil {
		t.Errorf("a pod that asks for nothing: %v, %v", ops, err)
	}
}

// An init container that goes on beside the others has a slice, too; what is put in before it moves it.
func TestPatchBeside(t *testing.T) {
	t.Parallel()
	ops, err := pods.Patch([]byte(`{"spec":{"containers":[{"name":"main",`+asks+`}],"initContainers":[{"name":"first"},{"name":"beside","restartPolicy":"Always",`+asks+`}]}}`), options)
	if err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, op := range ops {
		if strings.Contains(op.Path, "/spec/initContainers/") {
			at = append(at, op.Op+" "+strings.TrimPrefix(op.Path, "/spec/initContainers/"))
		}
	}
	if want := "remove 1/resources/limits/yunhe.dev~1pool-compute"; at[0] != want {
		t.Errorf("first %s, want %s", at[0], want)
	}
	if got := at[len(at)-2:]; got[0] != "add 0" || got[1] != "add 1" {
		t.Errorf("last %q", got)
	}
}

// What is put beside containers that are given just what they may use is so, too.
func TestPatchExact(t *testing.T) {
	t.Parallel()
	pod := func(limits, requests, first string) string {
		return `{"spec":{"containers":[{"name":"main","resources":{"limits":{` + limits + `,"yunhe.dev/pool-compute":"37","yunhe.dev/pool-memory":"1234"},"requests":{` + requests + `}}}],"initContainers":[` + first + `]}}`
	}
	for object, want := range map[string]bool{
		pod(`"cpu":"1","memory":"1Gi"`, ``, ``):                                                                true,
		pod(`"cpu":1,"memory":"1Gi"`, `"cpu":"1000m","memory":"1024Mi"`, ``):                                   true,
		pod(`"cpu":"1","memory":"1Gi"`, `"cpu":"500m"`, ``):                                                    false,
		pod(`"cpu":"1"`, ``, ``):                                                                               false,
		pod(`"cpu":"1","memory":"1Gi"`, ``, `{"name":"a"}`):                                                    false,
		pod(`"cpu":"1","memory":"1Gi"`, ``, `{"name":"a","resources":{"limits":{"cpu":"1","memory":"64Mi"}}}`): true,
	} {
		ops, err := pods.Patch([]byte(object), options)
		text, _ := json.Marshal(ops)
		if exact := strings.Contains(string(text), `"resources":{"limits":{"cpu":"250m","memory":"256Mi"}}`); err != nil || exact != want {
			t.Errorf("%s: %v, %v, %s", object, exact, err, text)
		}
	}
}

// A container finds a loader of OpenCL where the system's search ends, but not where
// it has something of its own, and one of CUDA none.
func TestPatchLoader(t *testing.T) {
	t.Parallel()
	at := func(place string) string {
		return `{"op":"add","path":"/spec/containers/0/volumeMounts/-","value":{"mountPath":"` + place + `","name":"yunhe-pool-main","readOnly":true,"subPath":"loader/libOpenCL.so.1"}}`
	}
	for _, x := range []struct {
		api, mounts string
		has         string
	}{
		{"opencl", ``, "/usr/lib/libOpenCL.so.1 /usr/lib64/libOpenCL.so.1"},
		{"opencl", `{"name":"a","mountPath":"/usr/libexec"},{"name":"b","mountPath":"/usr/lib/x"}`, "/usr/lib/libOpenCL.so.1 /usr/lib64/libOpenCL.so.1"},
		{"opencl", `{"name":"a","mountPath":"/usr/lib/"}`, "/usr/lib64/libOpenCL.so.1"},
		{"opencl", `{"name":"a","mountPath":"/usr/lib64/libOpenCL.so.1"}`, "/usr/lib/libOpenCL.so.1"},
		{"opencl", `{"name":"a","mountPath":"/usr"}`, ""},
		{"cuda", ``, ""},
	} {
		ops, err := pods.Patch([]byte(`{"metadata":{"annotations":{"pool.yunhe.dev/api":"`+x.api+`"}},"spec":{"containers":[{"name":"main",`+asks+`,"volumeMounts":[`+x.mounts+`]}]}}`), options)
		text, _ := json.Marshal(ops)
		if err != nil {
			t.Fatal(err)
		}
		for _, place := range []string{"/usr/lib/libOpenCL.so.1", "/usr/lib64/libOpenCL.so.1"} {
			if got := strings.Contains(string(text), at(place)); got != strings.Contains(x.has+" ", place+" ") {
				t.Errorf("%s, %s: at %s %v: %s", x.api, x.mounts, place, got, text)
			}
		}
	}
}

// A container of CUDA is given the library that is its driver.
func TestPatchCUDA(t *testing.T) {
	t.Parallel()
	pod := func(api, env string) string {
		return `{"metadata":{"annotations":{"pool.yunhe.dev/api":"` + api + `"}},"spec":{"containers":[{"name":"main",` + asks + `,"env":[` + env + `]}]}}`
	}
	const loads = `{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"LD_PRELOAD","value":"/yunhe-pool/cuda/libcuda.so.1"}}`
	for api, has := range map[string]bool{"cuda": true, "opencl": false} {
		ops, err := pods.Patch([]byte(pod(api, "")), options)
		text, _ := json.Marshal(ops)
		if err != nil || strings.Contains(string(text), loads) != has || !strings.Contains(string(text), `"--api=`+api+`"`) {
			t.Errorf("%s: %v: %s", api, err, text)
		}
	}
	for object, want := range map[string]string{
		pod("metal", ""): `metadata.annotations[pool.yunhe.dev/api]: must be "opencl" or "cuda", got "metal"`,
		pod("cuda", `{"name":"LD_PRELOAD","value":"x"}`):                               "spec.containers[0].env: must not set LD_PRELOAD",
		strings.Replace(pod("cuda", ""), `"cpu":"1"`, `"yunhe.dev/pool-cards":"2"`, 1): "[yunhe.dev/pool-cards]: must be 1 for programs of CUDA",
	} {
		if ops, err := pods.Patch([]byte(object), options); fault.KindOf(err) != fault.Invalid || ops != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", object, ops, err, want)
		}
	}
}

// local is of a cluster on whose machines nodes of the pool share their sockets.
var local = pods.Options{Image: "yunhe:1", Server: "https://yunhe.example.org", Secret: "yunhe-pool", NodeFolder: "/var/lib/yunhe-pool/shared", RuntimeClass: "nvidia"}

// patched is an object after a patch, whose every path is looked for as an API server does.
func patched(t *testing.T, object string, o pods.Options) map[string]any {
	t.Helper()
	ops, err := pods.Patch([]byte(object), o)
	if err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	b, err := json.Marshal(ops)
	var list []struct {
		Op, Path string
		Value    any
	}
	var doc any
	if err = errors.Join(err, json.Unmarshal(b, &list), json.Unmarshal([]byte(object), &doc)); err != nil {
		t.Fatal(err)
	}
	for _, op := range list {
		keys := strings.Split(op.Path, "/")[1:]
		for i, k := range keys {
			keys[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(k)
		}
		if doc, err = changed(doc, keys, op.Op, op.Value); err != nil {
			t.Fatalf("%s %s: %v", op.Op, op.Path, err)
		}
	}
	return doc.(map[string]any)
}

// changed is a document with an operation done at a path.
func changed(doc any, keys []string, op string, value any) (any, error) {
	key, last := keys[0], len(keys) == 1
	switch d := doc.(type) {
	case map[string]any:
		inner, has := d[key]
		switch {
		case last && op == "add":
			d[key] = value
		case !has || last && op != "remove":
			return nil, fmt.Errorf("nothing is at %s", key)
		case last:
			delete(d, key)
		default:
			to, err := changed(inner, keys[1:], op, value)
			d[key] = to
			return d, err
		}
		return d, nil
	case []any:
		if key == "-" && last && op == "add" {
			return append(d, value), nil
		}
		i, err := strconv.Atoi(key)
		switch {
		case err != nil || i < 0 || i > len(d) || !last && i == len(d):
			return nil, fmt.Errorf("nothing is at %s", key)
		case last && op == "add":
			return slices.Insert(d, i, value), nil
		case last:
			return nil, fmt.Errorf("%s of an element", op)
		}
		d[i], err = changed(d[i], keys[1:], op, value)
		return d, err
	}
	return nil, fmt.Errorf("nothing is at %s", key)
}

// A pod whose slices are on its own machine goes to one with a node, is shown its shared
// socket, and its programs of CUDA have the driver themselves, on several cards, too.
func TestPatchLocal(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	pod := func(api, spec, of string) string {
		return `{"metadata":{"annotations":{"pool.yunhe.dev/local":"true","pool.yunhe.dev/api":"` + api + `"}},"spec":{` + spec + `"containers":[{"name":"other"},{"name":"node",` + asks + of + `}]}}`
	}
	const shown = `{"mountPath":"/yunhe-pool-node","name":"yunhe-node","readOnly":true}`
	const hostPath = `{"hostPath":{"path":"/var/lib/yunhe-pool/shared","type":"Directory"},"name":"yunhe-node"}`

	spec := patched(t, strings.Replace(pod("cuda", "", ""), `"cpu":"1"`, `"yunhe.dev/pool-cards":"2"`, 1), local)["spec"].(object)
	side, c := spec["initContainers"].([]any)[0].(object), spec["containers"].([]any)[1].(object)
	for what, x := range map[string]struct{ got, want any }{
		"args":    {side["args"], []string{"pool", "run", "--platform", "--into", "/yunhe-pool", "--cards", "2", "--compute", "37", "--memory", "1234MiB", "--api=cuda", "--local", "only", "--node-socket", "/yunhe-pool-node/pool.sock"}},
		"volumes": {spec["volumes"], json.RawMessage(`[` + hostPath + `,{"emptyDir":{},"name":"yunhe-pool-node"}]`)}, // the container's name is node
		"where":   {spec["nodeSelector"], object{"pool.yunhe.dev/node": "true"}},
		"class":   {spec["runtimeClassName"], "nvidia"},
		"mounts":  {c["volumeMounts"], json.RawMessage(`[{"mountPath":"/yunhe-pool","name":"yunhe-pool-node","readOnly":true},` + shown + `]`)},
		"beside":  {side["volumeMounts"], json.RawMessage(`[{"mountPath":"/yunhe-pool","name":"yunhe-pool-node"},` + shown + `]`)},
		"env": {c["env"], json.RawMessage(`[{"name":"OCL_ICD_VENDORS","value":"/yunhe-pool/vendors"},{"name":"YUNHE_POOL_FILE","value":"/yunhe-pool/slice.env"},{"name":"LD_PRELOAD","value":"/yunhe-pool/libyunhe-cuda.so"},` +
			`{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"},{"name":"NVIDIA_DRIVER_CAPABILITIES","value":"compute,utility"}]`)},
	} {
		if got, want := text(x.got), text(x.want); got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
	}

	// What the pod says itself stays, and one volume is enough for two containers.
	both := strings.Replace(pod("cuda", `"runtimeClassName":"gvisor","nodeSelector":{"zone":"a","pool.yunhe.dev/node":"true"},"volumes":[{"name":"v"}],`, `,"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"0"}],"volumeMounts":[{"mountPath":"/v","name":"v"}]`), `{"name":"other"}`, `{"name":"other",`+asks+`}`, 1)
	spec = patched(t, both, local)["spec"].(object)
	if got, want := text(spec["nodeSelector"]), `{"pool.yunhe.dev/node":"true","zone":"a"}`; got != want || spec["runtimeClassName"] != "gvisor" {
		t.Errorf("it goes to %s, as %v, want %s", got, spec["runtimeClassName"], want)
	}
	if got := text(spec); strings.Count(got, hostPath) != 1 || strings.Count(got, shown) != 4 || strings.Count(got, `"NVIDIA_VISIBLE_DEVICES"`) != 2 || !strings.Contains(got, `{"name":"NVIDIA_VISIBLE_DEVICES","value":"0"}`) {
		t.Errorf("two containers: %s", got)
	}

	// One of OpenCL comes by the socket and needs nothing of NVIDIA's; one that is not to be there is as any.
	if got := text(patched(t, pod("opencl", `"nodeSelector":null,`, ""), local)); strings.Count(got, shown) != 2 || strings.Contains(got, "LD_PRELOAD") || strings.Contains(got, "NVIDIA") || strings.Contains(got, "runtimeClassName") || !strings.Contains(got, "/usr/lib/libOpenCL.so.1") {
		t.Errorf("of OpenCL: %s", got)
	}
	if got := text(patched(t, strings.Replace(pod("cuda", "", ""), `local":"true"`, `local":"false"`, 1), local)); strings.Contains(got, "node-socket") || strings.Contains(got, "nodeSelector") || strings.Contains(got, "hostPath") || !strings.Contains(got, "/yunhe-pool/cuda/libcuda.so.1") {
		t.Errorf("one that is not to be local: %s", got)
	}
}

func TestPatchLocalRefuses(t *testing.T) {
	t.Parallel()
	pod := func(annotations, spec string) string {
		return `{"metadata":{"annotations":{"pool.yunhe.dev/local":"true"` + annotations + `}},"spec":{` + spec + `"containers":[{"name":"main",` + asks + `}]}}`
	}
	const at = "metadata.annotations[pool.yunhe.dev/local]: "
	for _, x := range []struct {
		object string
		o      pods.Options
		want   string
	}{
		{pod("", ""), options, at + "is not offered in this cluster: its operator has to start the webhook with --node-folder"},
		{pod(`,"pool.yunhe.dev/across-nodes":"true"`, ""), local, at + "does not go with pool.yunhe.dev/across-nodes"},
		{pod(`,"pool.yunhe.dev/node":"n1"`, ""), local, at + "does not go with pool.yunhe.dev/node"},
		{pod("", `"nodeSelector":{"pool.yunhe.dev/node":"false"},`), local, `spec.nodeSelector[pool.yunhe.dev/node]: must be "true"`},
		{strings.Replace(pod("", ""), `"true"`, `"only"`, 1), local, at + `must be "true" or "false", got "only"`},
		{strings.Replace(pod(`,"pool.yunhe.dev/api":"cuda"`, ""), `"resources"`, `"env":[{"name":"LD_PRELOAD","value":"x"}],"resources"`, 1), local, "spec.containers[0].env: must not set LD_PRELOAD"},
		{strings.Replace(pod("", ""), asks, `"image":"x"`, 1), local, "and none does"},
	} {
		if ops, err := pods.Patch([]byte(x.object), x.o); fault.KindOf(err) != fault.Invalid || ops != nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, %v, want %q", x.object, ops, err, x.want)
		}
	}
}

func TestPatchRefuses(t *testing.T) {
	t.Parallel()
	pod := func(annotations, limits string) string {
		return `{"metadata":{"annotations":{` + annotations + `}},"spec":{"containers":[{"name":"main","resources":{"limits":{` + limits + `}}}]}}`
	}
	const both = `"yunhe.dev/pool-compute":"37","yunhe.dev/pool-memory":"1234"`
	for object, wants := range map[string][]string{
		`{"spec":7}`:                             {"the pod cannot be read"},
		pod("", `"yunhe.dev/pool-compute":"37"`): {"spec.containers[0].resources.limits: must have yunhe.dev/pool-compute and yunhe.dev/pool-memory"},
		pod("", `"yunhe.dev/pool-compute":"101","yunhe.dev/pool-memory":"0"`):                                 {`[yunhe.dev/pool-compute]: must be a whole number from 1 to 100, got "101"`, `[yunhe.dev/pool-memory]: must be a whole number from 1 to`},
		pod("", both+`,"yunhe.dev/pool-cards":"17"`):                                                          {`from 1 to 16, got "17"`},
		pod("", both+`,"yunhe.dev/pool-gpus":"1"`):                                                            {"[yunhe.dev/pool-gpus]: is not known"},
		pod("", `"yunhe.dev/pool-compute":"1k","yunhe.dev/pool-memory":"1"`):                                  {`got "1k"`},
		pod(`"pool.yunhe.dev/spec":"small"`, both):                                                            {"must have yunhe.dev/pool-cards only"},
		pod(`"pool.yunhe.dev/colour":"red"`, both):                                                            {"metadata.annotations[pool.yunhe.dev/colour]: is not known"},
		pod(`"pool.yunhe.dev/priority":"101","pool.yunhe.dev/weighted":"yes"`, both):                          {`must be a number from 0 to 100, got "101"`, `must be "true" or "false", got "yes"`},
		pod(`"pool.yunhe.dev/group":""`, both):                                                                {"must not be empty"},
		pod(`"pool.yunhe.dev/group":"a"`, `"cpu":"1"`):                                                        {"none does"},
		strings.Replace(pod("", both), `"main"`, `"`+strings.Repeat("x", 60)+`"`, 1):                          {"must be at most 52 characters long"},
		`{"spec":{"containers":[{"name":"main"}],"initContainers":[{"name":"a"},{"name":"b",` + asks + `}]}}`: {"spec.initContainers[1].resources.limits: must not ask for yunhe.dev/pool-…", "restartPolicy is Always"},
	} {
		ops, err := pods.Patch([]byte(object), options)
		if fault.KindOf(err) != fault.Invalid || ops != nil {
			t.Errorf("%s: %v, %v", object, ops, err)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", object, err, want)
			}
		}
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	h := pods.Handler(options, slog.New(slog.DiscardHandler))
	ask := func(body string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/pods", strings.NewReader(body)))
		b, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.Code, string(b)
	}
	review := func(object string) string {
		return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","namespace":"a","operation":"CREATE","object":` + object + `}}`
	}
	if code, out := ask(review(`{"spec":{"containers":[{"name":"main",` + asks + `}]}}`)); code != 200 || !strings.Contains(out, `"uid":"u1","allowed":true,"patch":"`) || !strings.Contains(out, `"patchType":"JSONPatch"`) {
		t.Errorf("%d %s", code, out)
	}
	if code, out := ask(review(`{"spec":{"containers":[{"name":"main"}]}}`)); code != 200 || !strings.Contains(out, `"allowed":true}`) {
		t.Errorf("%d %s", code, out)
	}
	if code, out := ask(review(`{"spec":{"containers":[{"name":"main","resources":{"limits":{"yunhe.dev/pool-x":"1"}}}]}}`)); code != 200 || !strings.Contains(out, `"allowed":false`) || !strings.Contains(out, "yunhe pool: ") {
		t.Errorf("%d %s", code, out)
	}
	for _, bad := range []string{"", "{}", `{"kind":"AdmissionReview"}`, "[1"} {
		if code, _ := ask(bad); code != 400 {
			t.Errorf("%q: %d", bad, code)
		}
	}
}

// FuzzPatch: whatever a pod is, it is refused, left alone, or patched with operations that are JSON.
func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"spec":{"containers":[{"name":"main",` + asks + `}]}}`))
	f.Add([]byte(`{"metadata":{"annotations":{"pool.yunhe.dev/spec":"a"}},"spec":{"containers":[{"resources":{"limits":{"yunhe.dev/pool-cards":1}}}]}}`))
	f.Add([]byte(`{"metadata":{"annotations":{"pool.yunhe.dev/local":"true","pool.yunhe.dev/api":"cuda"}},"spec":{"nodeSelector":{"a":"b"},"containers":[{"name":"main",` + asks + `}]}}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		ops, err := pods.Patch(object, local)
		if err != nil && (ops != nil || fault.KindOf(err) != fault.Invalid) {
			t.Errorf("%v, %v", ops, err)
		}
		if _, err := json.Marshal(ops); err != nil {
			t.Error(err)
		}
	})
}
