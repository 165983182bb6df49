package jobs

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/fault"
)

const oneTask = `{"name":"t","command":"true","imageId":"host","resourceSpecId":"small","replicaNumber":2}`

func TestParseTrainJob(t *testing.T) {
	t.Parallel()
	named := func(name string) string { return strings.Replace(oneTask, `"t"`, `"`+name+`"`, 1) }
	for _, c := range []struct {
		name, body string
		want       []string // task names
		wrong      string   // path
	}{
		{"array", `{"name":"n","tasks":[` + named("a") + `,` + named("b") + `]}`, []string{"a", "b"}, ""},
		{"object in numeric order", `{"name":"n","tasks":{"task10":` + named("j") + `,"task2":` + named("b") + `,"task1":` + named("a") + `}}`, []string{"a", "b", "j"}, ""},
		{"object with a gap", `{"name":"n","tasks":{"task3":` + named("c") + `,"task1":` + named("a") + `}}`, []string{"a", "c"}, ""},
		{"empty array, refused later", `{"name":"n","tasks":[]}`, []string{}, ""},
		{"empty object, refused later", `{"name":"n","tasks":{}}`, []string{}, ""},
		{"object with another name", `{"name":"n","tasks":{"first":` + oneTask + `}}`, nil, "tasks.first"},
		{"object counted from 0", `{"name":"n","tasks":{"task0":` + oneTask + `}}`, nil, "tasks.task0"},
		{"object with leading zero", `{"name":"n","tasks":{"task01":` + oneTask + `}}`, nil, "tasks.task01"},
		{"object with a sign", `{"name":"n","tasks":{"task+1":` + oneTask + `}}`, nil, "tasks.task+1"},
		{"no tasks", `{"name":"n"}`, nil, "tasks"},
		{"tasks null", `{"name":"n","tasks":null}`, nil, "tasks"},
		{"tasks a string", `{"name":"n","tasks":"x"}`, nil, "tasks"},
		{"tasks a number", `{"name":"n","tasks":7}`, nil, "tasks"},
		{"unknown member", `{"name":"n","tasks":[` + oneTask + `],"more":1}`, nil, "body"},
		{"unknown member of a task", `{"name":"n","tasks":[{"name":"a","cpu":1}]}`, nil, "tasks[0]"},
		{"replica number a string", `{"name":"n","tasks":[{"name":"a","replicaNumber":"2"}]}`, nil, "tasks[0].replicaNumber"},
		{"replica number a fraction", `{"name":"n","tasks":[` + oneTask + `,{"name":"a","replicaNumber":1.5}]}`, nil, "tasks[1].replicaNumber"},
		{"replica number too large", `{"name":"n","tasks":[{"name":"a","replicaNumber":4294967296}]}`, nil, "tasks[0].replicaNumber"},
		{"name a number", `{"name":7,"tasks":[]}`, nil, "name"},
		{"task a string", `{"name":"n","tasks":["x"]}`, nil, "tasks[0]"},
		{"body empty", ``, nil, "body"},
		{"body an array", `[1]`, nil, "body"},
		{"body cut short", `{"name":"n"`, nil, "body"},
		{"body twice", `{"name":"n","tasks":[]}{}`, nil, "body"},
		{"body not JSON", `name=n`, nil, "body"},
	} {
		spec, err := parseTrainJob([]byte(c.body))
		if c.wrong != "" {
			if fs := fault.FieldsOf(err); fault.KindOf(err) != fault.Invalid || len(fs) != 1 || fs[0].Path != c.wrong {
				t.Errorf("%s: error %v (%+v), want one at %q", c.name, err, fs, c.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := []string{}
		for _, k := range spec.Tasks {
			got = append(got, k.Name)
		}
		if !slices.Equal(got, c.want) || spec.Name != "n" {
			t.Errorf("%s: name %q, tasks %q, want n, %q", c.name, spec.Name, got, c.want)
		}
	}
	spec, err := parseTrainJob([]byte(`{"name":"n","tasks":[` + oneTask + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	k := spec.Tasks[0]
	if k.Command != "true" || k.ImageId != "host" || k.ResourceSpecId != "small" || k.ReplicaNumber != 2 {
		t.Errorf("task = %v", k)
	}
}

func FuzzParseTrainJob(f *testing.F) {
	for _, s := range []string{`{"name":"n","tasks":[` + oneTask + `]}`, `{"name":"n","tasks":{"task1":` + oneTask + `,"task12":` + oneTask + `}}`, `{"tasks":{"task9223372036854775808":{}}}`,
		`[]`, `{"name":null,"tasks":[null]}`, `{"tasks":[{"replicaNumber":1e400}]}`, "{\"name\":\"\xff\",\"tasks\":[]}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		spec, err := parseTrainJob(body)
		if err != nil {
			fs := fault.FieldsOf(err)
			if fault.KindOf(err) != fault.Invalid || len(fs) == 0 || fs[0].Path == "" || !utf8.ValidString(fs[0].Path) {
				t.Fatalf("%q: error is not for the user: %v (%+v)", body, err, fs)
			}
			return
		}
		for _, x := range append([]string{spec.Name}, names(spec.Tasks)...) {
			if !utf8.ValidString(x) {
				t.Fatalf("%q: name %q is not UTF-8", body, x)
			}
		}
	})
}

func names(ts []*jobsv1.Task) []string {
	out := make([]string, len(ts))
	for i, k := range ts {
		out[i] = k.Name
	}
	return out
}
