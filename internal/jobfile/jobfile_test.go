package jobfile_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/jobfile"
)

var folder = fstest.MapFS{
	"train.py":     {Data: []byte("print(1)\n"), Mode: 0o644},
	"bin/run.sh":   {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
	"data":         {Mode: fs.ModeDir | 0o755},
	"large":        {Data: make([]byte, jobfile.MaxBytes+1), Mode: 0o644},
	"half":         {Data: make([]byte, jobfile.MaxBytes/2+1), Mode: 0o644},
	"..hidden/a.b": {Data: []byte("x"), Mode: 0o644},
}

// Every accepted way of writing a job gives the spec that the API's own JSON
// reader gives for want.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"the example of the repository", exampleJob(t), exampleJob(t)},
		{
			"tasks as an object, in numeric order",
			`{"name":"a1","tasks":{"task10":{"name":"j"},"task2":{"name":"b"},"task1":{"name":"a"},"task3":{"name":"c"},"task4":{"name":"d"},
			"task5":{"name":"e"},"task6":{"name":"f"},"task7":{"name":"g"},"task8":{"name":"h"},"task9":{"name":"i"}}}`,
			`{"name":"a1","tasks":[{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"},{"name":"e"},{"name":"f"},{"name":"g"},{"name":"h"},{"name":"i"},{"name":"j"}]}`,
		},
		{
			"every field in lowerCamel",
			everything, everything,
		},
		{
			"snake_case",
			"name: s\nmax_retries: 2\nsuccess_policy: any\ntasks:\n- {name: a, image_id: host, resource_spec_id: small, replica_number: 3, timeout_seconds: 60}\n",
			`{"name":"s","maxRetries":2,"successPolicy":"SUCCESS_POLICY_ANY","tasks":[{"name":"a","imageId":"host","resourceSpecId":"small","replicaNumber":3,"timeoutSeconds":60}]}`,
		},
		{
			"enumerations in full, short, upper case and as numbers",
			"name: e\nsuccessPolicy: ALL\nfailurePolicy: 1",
			`{"name":"e","successPolicy":"SUCCESS_POLICY_ALL","failurePolicy":"FAILURE_POLICY_ALL"}`,
		},
		{
			"numbers in quotes, with an exponent, and in YAML's other notations",
			"priority: \"-7\"\nmaxRetries: 1e1\ntasks: [{timeoutSeconds: 1_000, scratchMib: 0x40, replicaNumber: 2.0}]",
			`{"priority":-7,"maxRetries":10,"tasks":[{"timeoutSeconds":"1000","scratchMib":"64","replicaNumber":2}]}`,
		},
		{
			"environment and labels keep numbers and truth values as written",
			"labels: {v: 1.20}\ntasks: [{env: {PORT: 8080, DEBUG: true, EMPTY: '', HEX: 0x1F}}]",
			`{"labels":{"v":"1.20"},"tasks":[{"env":{"PORT":"8080","DEBUG":"true","EMPTY":"","HEX":"0x1F"}}]}`,
		},
		{
			"null is the same as left out",
			`{"name":"n","desc":null,"tasks":[{"name":"a","constraints":null,"env":null}]}`,
			`{"name":"n","tasks":[{"name":"a"}]}`,
		},
		{
			"a block of text as command",
			"name: b\ntasks:\n  - name: t\n    command: |\n      set -e\n      echo \"hi\"\n",
			`{"name":"b","tasks":[{"name":"t","command":"set -e\necho \"hi\"\n"}]}`,
		},
		{
			"anchors and merges",
			"name: m\ntasks:\n- &base {name: a, imageId: host, replicaNumber: 2}\n- <<: *base\n  name: b\n- <<: [{command: x}, *base]\n  name: c\n",
			`{"name":"m","tasks":[{"name":"a","imageId":"host","replicaNumber":2},{"name":"b","imageId":"host","replicaNumber":2},{"name":"c","imageId":"host","replicaNumber":2,"command":"x"}]}`,
		},
		{
			"local files take path and mode from the file",
			"tasks: [{files: [{local: train.py}, {local: ./bin/run.sh, path: go.sh}, {local: bin/run.sh, executable: false}]}]",
			`{"tasks":[{"files":[{"path":"train.py","content":"cHJpbnQoMSkK"},{"path":"go.sh","content":"IyEvYmluL3NoCg==","executable":true},{"path":"run.sh","content":"IyEvYmluL3NoCg=="}]}]}`,
		},
		{
			"files as text and as base64 of either alphabet, padded or not",
			`{"tasks":[{"files":[{"path":"a","text":"hé\n"},{"path":"b","content":"-_8"},{"path":"c","content":"+/8="}]}]}`,
			`{"tasks":[{"files":[{"path":"a","content":"aMOpCg=="},{"path":"b","content":"+/8="},{"path":"c","content":"+/8="}]}]}`,
		},
		{"a byte order mark", "\xef\xbb\xbf{\"name\":\"bom\"}", `{"name":"bom"}`},
		{"YAML in JSON's look", "{name: flow, tasks: [{name: a}]}", `{"name":"flow","tasks":[{"name":"a"}]}`},
		{"text that looks like a time", "name: 2026-01-02", `{"name":"2026-01-02"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			jobs, err := jobfile.Parse("job", []byte(c.in), folder)
			if err != nil {
				t.Fatalf("Parse(%s): %v", c.in, err)
			}
			want := &jobsv1.JobSpec{}
			if err := protojson.Unmarshal([]byte(c.want), want); err != nil {
				t.Fatalf("want %s: %v", c.want, err)
			}
			if len(jobs.Specs) != 1 || jobs.Batch {
				t.Fatalf("got %d jobs, batch %v, want 1 and false", len(jobs.Specs), jobs.Batch)
			}
			if diff := cmp.Diff(want, jobs.Specs[0], protocmp.Transform()); diff != "" {
				t.Errorf("Parse(%s) (-want +got):\n%s", c.in, diff)
			}
		})
	}
}

const everything = `{
  "name": "all", "desc": "d", "priority": -100, "successPolicy": "SUCCESS_POLICY_ANY", "failurePolicy": "FAILURE_POLICY_ALL",
  "maxRetries": 100, "gang": true, "policyWeights": {"lowest-price": 60, "load-aware": 40}, "labels": {"team": "物理"},
  "tasks": [{
    "name": "t", "command": "true", "imageId": "host", "resourceSpecId": "small", "replicaNumber": 10000, "env": {"A": "b"},
    "files": [{"path": "p", "content": "AAEC", "executable": true}], "timeoutSeconds": "2592000", "network": true,
    "constraints": {"centers": ["a", "b"], "regions": ["r"], "minSecurityGrade": "5", "maxPrice": "120"},
    "expectedSeconds": "60", "stopGraceSeconds": "600", "scratchMib": "64"
  }]
}`

func exampleJob(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../examples/digits/job.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestParseBatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"a list", `[{"name":"a"},{"name":"b"}]`, "a b"},
		{"a list of one", `[{"name":"a"}]`, "a"},
		{"JSON values in sequence", "{\"name\":\"a\"}\n{\"name\":\"b\"}", "a b"},
		{"documents, empty ones left out", "name: a\n---\n---\n# nothing\n---\nname: b\n---\n", "a b"},
		{"documents and lists", "- name: a\n- name: b\n---\nname: c\n", "a b c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			jobs, err := jobfile.Parse("job", []byte(c.in), nil)
			if err != nil {
				t.Fatalf("Parse(%q): %v", c.in, err)
			}
			var names []string
			for _, s := range jobs.Specs {
				names = append(names, s.GetName())
			}
			if got := strings.Join(names, " "); got != c.want || !jobs.Batch {
				t.Errorf("Parse(%q) = %q, batch %v, want %q and true", c.in, got, jobs.Batch, c.want)
			}
		})
	}
}

func TestParseRejects(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'i'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9)+fmt.Sprintf("*%c", c-1))
	}
	for _, c := range []struct{ name, in, want string }{
		{"nothing", " \n", "job: holds no job"},
		{"an empty list", "[]", "job: holds no job"},
		{"only empty documents", "---\n---\n", "job: holds no job"},
		{"a scalar", "hello", `job:1: want an object, got "hello"`},
		{"an unknown field", "name: a\nfoo: 1\n", "job:2: foo: unknown field; known are allocationId, deadline, desc, distributed, elastic, failurePolicy, gang, groups, labels, lostGraceSeconds, maxRetries, name, nearJob, noPreemption, notBefore, originId, policyWeights, priority, reservationId, restartWhole, retryRules, successPolicy, tasks"},
		{"a near miss", "tasks:\n- nmae: a\n", `job:2: tasks[0].nmae: unknown field; did you mean "name"?`},
		{"another notation", "{\"tasks\": [\n{\"image-ID\": \"a\"}]}", `job:2: tasks[0].image-ID: unknown field; did you mean "imageId"?`},
		{"a near miss in a numbered task", `{"tasks":{"task1":{"replicas":1}}}`, `job:1: tasks.task1.replicas: unknown field; known are`},
		{"a field given twice", "name: a\nname: b\n", `job:2: "name" is given twice`},
		{"a field given twice in JSON", "{\"name\":\"a\",\n\n\"name\":\"b\"}", `job:3: "name" is given twice`},
		{"a field under both names", `{"tasks":[{"imageId":"a","image_id":"b"}]}`, `job:1: tasks[0].image_id: is the same as "imageId", which is given too`},
		{"a gap in the numbers", `{"tasks":{"task1":{},"task3":{}}}`, "job:1: tasks: has task3 but no task2"},
		{"no first number", `{"tasks":{"task2":{}}}`, "job:1: tasks: has task2 but no task1"},
		{"another member among the numbers", `{"tasks":{"task1":{},"train":{}}}`, "job:1: tasks.train: tasks as an object has members task1 to taskN only; or write a list"},
		{"a number with a leading zero", `{"tasks":{"task01":{}}}`, "job:1: tasks.task01: tasks as an object"},
		{"text for a number", "tasks:\n- name: a\n  replicaNumber: two\n", `job:3: tasks[0].replicaNumber: want a whole number of at most 32 bits, got "two"`},
		{"a fraction", `{"priority":1.5}`, `job:1: priority: want a whole number of at most 32 bits, got 1.5`},
		{"a number too large", `{"maxRetries":4294967296}`, "job:1: maxRetries: want a whole number of at most 32 bits, got 4294967296"},
		{"a number too large for 64 bits", `{"tasks":[{"timeoutSeconds":1e30}]}`, "want a whole number of at most 64 bits, got 1e30"},
		{"a huge exponent", `{"priority":1e999999999}`, "want a whole number of at most 32 bits"},
		{"a number for text", "name: 12", "job:1: name: want text in quotes, got 12"},
		{"a truth value for text", "name: yes\ndesc: true", "job:2: desc: want text in quotes, got true"},
		{"text for a truth value", `{"gang":"yes"}`, `job:1: gang: want true or false, got "yes"`},
		{"an unknown policy", `{"successPolicy":"some"}`, `job:1: successPolicy: want one of all, any, got "some"`},
		{"a list for text", `{"name":["a"]}`, "job:1: name: want text, got a list"},
		{"an object for a list", `{"tasks":[{"files":{}}]}`, "job:1: tasks[0].files: want a list, got an object"},
		{"text for an object", `{"tasks":["a"]}`, `job:1: tasks[0]: want an object, got "a"`},
		{"nothing for a variable", "tasks: [{env: {A: }}]", "job:1: tasks[0].env.A: want text, got nothing"},
		{"a list for a map", `{"labels":[]}`, "job:1: labels: want an object, got a list"},
		{"bad base64", `{"tasks":[{"files":[{"content":"%%"}]}]}`, "job:1: tasks[0].files[0].content: want base64 (for plain text use text, for a file local), got"},
		{"two contents", `{"tasks":[{"files":[{"text":"a","local":"train.py"}]}]}`, "job:1: tasks[0].files[0]: takes one of content, text and local"},
		{"a local file that is missing", `{"tasks":[{"files":[{"local":"nope"}]}]}`, `job:1: tasks[0].files[0].local: cannot read "nope": file does not exist`},
		{"a local folder", `{"tasks":[{"files":[{"local":"data"}]}]}`, `"data" is not a regular file`},
		{"a local file above", `{"tasks":[{"files":[{"local":"../secret"}]}]}`, `"../secret" is not a file in the folder of the job file`},
		{"a local file from the root", `{"tasks":[{"files":[{"local":"/etc/passwd"}]}]}`, `"/etc/passwd" is not a file in the folder of the job file`},
		{"a local file too large", `{"tasks":[{"files":[{"local":"large"}]}]}`, "the local files are larger than 16 MiB in all"},
		{"local files too large together", `{"tasks":[{"files":[{"local":"half"},{"local":"half"}]}]}`, "job:1: tasks[0].files[1].local: the local files are larger than 16 MiB in all"},
		{"a mistake in the second document", "name: a\n---\nname: b\ntask: 1\n", `job:4: document 2.task: unknown field; did you mean "tasks"?`},
		{"a mistake in a list", "[{\"name\":\"a\"},\n{\"gnag\":true}]", `job:2: [1].gnag: unknown field; did you mean "gang"?`},
		{"YAML that is none", "name: a\n  b: c\n", "job:2: not YAML: mapping values are not allowed in this context"},
		{"a tab in YAML", "tasks:\n\t- name: a\n", "job:2: not YAML: found character that cannot start any token"},
		{"an unknown alias", "name: *x\n", "not YAML: unknown anchor 'x' referenced"},
		{"JSON that ends early", "{\"name\":\n\"a\"", "job:2: JSON ends too early"},
		{"JSON with a comma too many", "{\n\"name\":\"a\",\n}", "job:3: not JSON: invalid character '}'"},
		{"JSON with more behind", `{"name":"a"} x`, "job:1: not JSON: invalid character 'x'"},
		{"values too deep", deep, "nested deeper than 64"},
		{"YAML too deep", "a: " + deep, "nested deeper than 64"},
		{"an alias in itself", "a: &a [*a]", "job"},
		{"a bomb of aliases", bomb, "more than 1000000 values"},
		{"a list as a member's name", "? [a]\n: b\n", "job:1: a member's name must be text"},
		{"a merge of text", "<<: a", "job:1: << takes an object or a list of objects"},
		{"YAML's binary", "tasks: [{files: [{content: !!binary AAEC}]}]", "!!binary is not known here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			jobs, err := jobfile.Parse("job", []byte(c.in), folder)
			if err == nil {
				t.Fatalf("Parse(%.200q) = %v, want an error with %q", c.in, jobs, c.want)
			}
			if got := fault.KindOf(err); got != fault.Invalid {
				t.Errorf("kind %v, want %v", got, fault.Invalid)
			}
			if !strings.HasPrefix(err.Error(), "job") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse(%.200q):\n got %q\nwant %q in it", c.in, err, c.want)
			}
		})
	}
}

func TestParseNamesTheField(t *testing.T) {
	t.Parallel()
	_, err := jobfile.Parse("j.yaml", []byte("tasks:\n- replicaNumber: x\n"), nil)
	want := []fault.Field{{Path: "tasks[0].replicaNumber", Problem: `want a whole number of at most 32 bits, got "x"`}}
	if diff := cmp.Diff(want, fault.FieldsOf(err)); diff != "" {
		t.Errorf("fields of %v (-want +got):\n%s", err, diff)
	}
}

func TestParseRejectsLargeFiles(t *testing.T) {
	t.Parallel()
	_, err := jobfile.Parse("job", bytes.Repeat([]byte{' '}, jobfile.MaxBytes+1), nil)
	if fault.KindOf(err) != fault.TooLarge || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("got %v, want TooLarge", err)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"job.yaml": "name: a\ntasks: [{files: [{local: sub/x}]}]", "sub/x": "data", "out.yaml": "tasks: [{files: [{local: link}]}]",
		"flow.yaml": `{"name": a}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}

	jobs, err := jobfile.Read(filepath.Join(dir, "job.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(jobs.Specs[0].GetTasks()[0].GetFiles()[0].GetContent()); got != "data" {
		t.Errorf("local file holds %q, want %q", got, "data")
	}
	if jobs, err = jobfile.Read("-", strings.NewReader("name: b")); err != nil || jobs.Specs[0].GetName() != "b" {
		t.Errorf("from stdin: %v, %v", jobs, err)
	}
	if jobs, err = jobfile.Read(filepath.Join(dir, "flow.yaml"), nil); err != nil || jobs.Specs[0].GetName() != "a" {
		t.Errorf("a .yaml file in JSON's look: %v, %v", jobs, err)
	}
	if _, err = jobfile.Read(filepath.Join(dir, "out.yaml"), nil); err == nil || !strings.Contains(err.Error(), `cannot read "link"`) {
		t.Errorf("a link out of the folder: %v, want it refused", err)
	}
	if _, err = jobfile.Read(filepath.Join(dir, "nope"), nil); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a missing file: %v, want NotFound", err)
	}
	if _, err = jobfile.Read(dir, nil); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a folder: %v, want Invalid", err)
	}
}

// Whatever the bytes, there is a valid spec or an error that names the file.
// What was accepted survives the API's own JSON.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		everything, "name: a\ntasks:\n- {name: b, replica_number: 2}\n---\nname: c", `{"tasks":{"task1":{"name":"x","env":{"A":1}}}}`,
		"a: &a {<<: *a}", "[{}]", "? {a: b}\n: c", "{\"name\":\"\\ud800\"}", "tasks: [{files: [{local: train.py, text: !!binary a}]}]", "name: !!str 1",
		"%YAML 1.2\n---\nname: a", "<<: [*a]", "\xff\xfe", "name: \"\\x00\"", "priority: 0x7fffffffffffffff", "- - - -",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		jobs, err := jobfile.Parse("job", data, folder)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "job") || fault.KindOf(err) == fault.Internal {
				t.Fatalf("unclassified or unnamed error %v", err)
			}
			return
		}
		if len(jobs.Specs) == 0 {
			t.Fatal("no error and no job")
		}
		for _, spec := range jobs.Specs {
			wire, err := protojson.Marshal(spec)
			if err != nil {
				t.Fatalf("accepted a spec that cannot be sent: %v", err)
			}
			again, err := jobfile.Parse("job", wire, nil)
			if err != nil {
				t.Fatalf("Parse(%s): %v", wire, err)
			}
			if diff := cmp.Diff(spec, again.Specs[0], protocmp.Transform()); diff != "" {
				t.Fatalf("not the same after a round trip (-first +second):\n%s", diff)
			}
		}
	})
}
