package slurm

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// TestDecodeVersions reads the same job in the form of each version. That of
// v0.0.38 is a real answer, shortened; the others were made by hand after the
// published descriptions, for there is no later Slurm here.
func TestDecodeVersions(t *testing.T) {
	t.Parallel()
	want := job{ID: number{12, true}, Name: "yunhe:att_1", Comment: "yunhe center=c1", State: words{"FAILED"}, Reason: "NonZeroExitCode", Exit: exit{code: 7},
		Submitted: number{1795250994, true}, Started: number{1795250995, true}, Ended: number{1795250999, true}, Restarts: number{0, true},
		Partition: "main", Nodes: "n1", TRES: "cpu=1,mem=50M,node=1,billing=1"}
	for _, file := range []string{"jobs-v0.0.38.json", "jobs-v0.0.39-handmade.json", "jobs-v0.0.40-handmade.json", "jobs-v0.0.43-handmade.json"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			var got []*job
			a, err := decode(bytes.NewReader(b), "jobs", func(j *job) { got = append(got, j) })
			if err != nil || !a.present || len(a.problems) > 0 || len(got) != 1 {
				t.Fatalf("%+v, %v, %d jobs", a, err, len(got))
			}
			got[0].Flags, got[0].PerNode = nil, ""
			if diff := cmp.Diff(want, *got[0], cmp.AllowUnexported(number{}, exit{})); diff != "" {
				t.Errorf("job (-want +got):\n%s", diff)
			}
			if a.release == "" {
				t.Error("no release")
			}
		})
	}
}

func TestDecodeForms(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]number{
		`5`: {5, true}, `"5"`: {5, true}, `5.0`: {5, true}, `{"set":true,"infinite":false,"number":5}`: {5, true}, `{"set":false,"number":5}`: {},
		`{"set":true,"infinite":true,"number":0}`: {}, `null`: {}, `"N/A"`: {}, `[]`: {}, `true`: {}, `1e300`: {}, `{"number":{"set":true,"number":7}}`: {7, true}, `{"set":"x"}`: {},
	} {
		var n number
		if err := json.Unmarshal([]byte(in), &n); err != nil || n != want {
			t.Errorf("%s: %+v, %v, want %+v", in, n, err, want)
		}
	}
	for in, want := range map[string]exit{
		`0`: {}, `1792`: {code: 7}, `9`: {signal: 9}, `{"set":true,"number":1792}`: {code: 7}, `{"status":["SUCCESS"],"return_code":{"set":true,"number":0}}`: {},
		`{"status":["ERROR"],"return_code":{"set":true,"number":3},"signal":{"id":{"set":false,"number":0},"name":""}}`: {code: 3},
		`{"status":["SIGNALED"],"return_code":{"set":false},"signal":{"signal_id":62,"name":"RTMAX-2"}}`:                {signal: 62}, `"x"`: {}, `[1]`: {}, `null`: {},
	} {
		var e exit
		if err := json.Unmarshal([]byte(in), &e); err != nil || e != want {
			t.Errorf("%s: %+v, %v, want %+v", in, e, err, want)
		}
	}
	for in, want := range map[string]words{`"RUNNING"`: {"RUNNING"}, `["IDLE","DRAIN"]`: {"IDLE", "DRAIN"}, `"main, high"`: {"main", "high"}, `null`: nil, `3`: nil, `[1,"a",null]`: {"a"}, `""`: nil} {
		var w words
		if err := json.Unmarshal([]byte(in), &w); err != nil || !slices.Equal(w, want) {
			t.Errorf("%s: %q, %v, want %q", in, w, err, want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		``: "broke off", `{`: "broke off", `{"jobs":[{"job_id":1},`: "broke off", `[]`: "not a JSON object", `{"jobs":{}}`: "want a list", `{"jobs":[}`: "invalid", `<html>`: "invalid",
	} {
		if _, err := decode(strings.NewReader(in), "jobs", func(*job) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
	if a, err := decode(strings.NewReader(`{"jobs":null,"errors":[{"error":"x","error_number":5},7],"last_update":{"set":true,"number":3},"meta":[]}`), "jobs", func(*job) {}); err != nil || !a.present || len(a.problems) != 1 || a.updated.n != 3 {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestParseGRES(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]gres{
		"gpu:h20:4":                           {{"gpu", "h20", 4}},
		"gpu:h20:4(S:0-1),gpu:a100:2,shard:8": {{"gpu", "h20", 4}, {"gpu", "a100", 2}, {"shard", "", 8}},
		"gpu:h20:2(IDX:0,3),npu:0(IDX:N/A)":   {{"gpu", "h20", 2}, {"npu", "", 0}},
		"gres:gpu:h20:1":                      {{"gpu", "h20", 1}},
		"gres/gpu=2,gres/gpu:a100=1":          {{"gpu", "", 2}, {"gpu", "a100", 1}},
		"gpu":                                 {{"gpu", "", 1}},
		"gpu:h20":                             {{"gpu", "h20", 1}},
		"bandwidth:lustre:no_consume:4K":      {{"bandwidth", "lustre:no_consume", 4096}},
		"":                                    nil,
		"N/A":                                 nil,
		"(null)":                              nil,
	} {
		if got := parseGRES(in); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", in, got, want)
		}
	}
	const tres = "cpu=2,mem=1.50G,node=1,billing=2,gres/gpu=1"
	if cpu, mem := parseTRES(tres, "cpu"), parseTRES(tres, "mem"); cpu != 2 || mem != 3<<29 {
		t.Errorf("cpu %d, mem %d", cpu, mem)
	}
}

func TestDescribedVersions(t *testing.T) {
	t.Parallel()
	got, err := described(strings.NewReader(`{"paths":{"/slurm/v0.0.38/job/submit":{},"/slurm/v0.0.40/job/submit":{},"/slurm/v0.0.41/jobs/":{},"/slurmdb/v0.0.42/job/submit":{},"/x":1},"tags":[]}`))
	slices.Sort(got)
	if err != nil || !slices.Equal(got, []int{38, 40}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := described(strings.NewReader(`{"paths":{`)); err == nil {
		t.Error("half a document is no error")
	}
}

func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"jobs":[{"job_id":{"set":1},"exit_code":[],"job_state":{"a":"b"},"name":5}],"errors":{},"meta":null,"statistics":7}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		whole := json.Valid(b)
		var jobs []*job
		if _, err := decode(bytes.NewReader(b), "jobs", func(j *job) { jobs = append(jobs, j) }); err == nil && !whole && json.Valid(bytes.TrimRight(b, " \t\r\n")) {
			t.Errorf("accepted what is no JSON: %q", b)
		}
		for _, j := range jobs {
			st := judge(facts{attempt: "a", jobs: []*job{j}})
			if st.Phase == adapterv1.Phase_PHASE_UNSPECIFIED || st.EndedAt != 0 && st.EndedAt < st.StartedAt || st.Reason == "completed" && st.ExitCode != 0 {
				t.Errorf("%+v is {%v}", j, st)
			}
		}
		_, _ = decode(bytes.NewReader(b), "nodes", func(n *node) {
			if s, _ := stateOf(n); s == adapterv1.NodeState_NODE_STATE_UNSPECIFIED {
				t.Errorf("%+v has no state", n)
			}
			parseGRES(string(n.GRES))
		})
		_, _ = described(bytes.NewReader(b))
		parseTRES(string(b), "mem")
		r := &record{}
		if r.parseExit(string(b)); r.ended && (r.code > 255 || r.at < 0 || r.logSize < 0) {
			t.Errorf("exit is %+v", r)
		}
		if cpu := parseTimes(string(b)); cpu < 0 {
			t.Errorf("times are %d", cpu)
		}
		startedJob(string(b))
		noted(string(b), "center")
		readClaims(string(b))
	})
}
