package pods_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	f.Fuzz(func(t *testing.T, object []byte) {
		ops, err := pods.Patch(object, options)
		if err != nil && (ops != nil || fault.KindOf(err) != fault.Invalid) {
			t.Errorf("%v, %v", ops, err)
		}
		if _, err := json.Marshal(ops); err != nil {
			t.Error(err)
		}
	})
}
