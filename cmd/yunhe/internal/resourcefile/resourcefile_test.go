package resourcefile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"yunhe.dev/yunhe/cmd/yunhe/internal/resourcefile"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

// kinds of the attributes that tests use.
func kinds(typ, name string) string {
	if typ != "compute" {
		return ""
	}
	return map[string]string{"count": "integer", "scale": "number", "performance": "object", "zones": "array", "shared": "boolean", "chip_model": "string"}[name]
}

// read returns everything a reader gives, as lines.
func read(t testing.TB, r resourcefile.Reader) []string {
	t.Helper()
	var out []string
	for {
		item, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			return append(out, "stopped: "+err.Error())
		}
		if len(item.Problems) > 0 {
			for _, p := range item.Problems {
				out = append(out, p.String())
			}
			continue
		}
		b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(item.Resource)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%d %s", item.Line, strings.ReplaceAll(string(b), `, "`, `,"`)))
	}
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	plain := func(s string) string { return strings.ReplaceAll(s, " ", "") } // protojson varies its spaces
	if len(got) == len(want) {
		equal := true
		for i := range got {
			equal = equal && plain(got[i]) == plain(want[i])
		}
		if equal {
			return
		}
	}
	t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
}

func TestYAML(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		what, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"comments only", "# nothing\n---\n# here\n...\n", nil},
		{"a list", "- resource_id: a\n  type: cloud\n- resourceId: b\n", []string{`1 {"resource_id":"a","type":"cloud"}`, `3 {"resource_id":"b"}`}},
		{"an indented list after comments", "# two\n\n  - resource_id: a\n\n  # the other\n  - resource_id: b\n", []string{`3 {"resource_id":"a"}`, `6 {"resource_id":"b"}`}},
		{"what the API answers", "resources:\n  - resourceId: a\n    createdAt: \"2030-01-01T00:00:00Z\"\n    children: \"3\"\n    version: \"7\"\n    labels: {}\n  - resourceId: b\nnextPageToken: \"\"\n",
			[]string{`2 {"resource_id":"a","version":"7"}`, `7 {"resource_id":"b"}`}},
		{"the same without indentation", "resources: # all\n- resource_id: a\n- resource_id: b\nnext_page_token: x\n", []string{`2 {"resource_id":"a"}`, `3 {"resource_id":"b"}`}},
		{"documents", "resource_id: a\n---\nresource_id: b\n--- {resource_id: c}\n...\n---\n- resource_id: d\n", []string{`1 {"resource_id":"a"}`, `3 {"resource_id":"b"}`, `4 {"resource_id":"c"}`, `7 {"resource_id":"d"}`}},
		{"JSON", `{"resources":[{"resourceId":"a","state":"RESOURCE_STATE_RETIRED"},{"resourceId":"b"}],"nextPageToken":""}`, []string{`1 {"resource_id":"a","state":"RESOURCE_STATE_RETIRED"}`, `1 {"resource_id":"b"}`}},
		{"a JSON list", "[{\"resource_id\":\"a\"},\n {\"resource_id\":\"b\"}]", []string{`1 {"resource_id":"a"}`, `2 {"resource_id":"b"}`}},
		{"values", "- resource_id: 007\n  state: available\n  labels: {rack: 007, on: true, none: ~}\n  attributes:\n    count: 85899345920\n    scale: 1.5\n    list: [1, x, null, true]\n    text: |\n      - not an item\n      --- nor a document\n    deep: {a: {b: \"c\"}}\n",
			[]string{`1 {"resource_id":"007","state":"RESOURCE_STATE_AVAILABLE","attributes":{"count":85899345920,"deep":{"a":{"b":"c"}},"list":[1,"x",null,true],"scale":1.5,"text":"- not an item\n--- nor a document\n"},"labels":{"none":"~","on":"true","rack":"007"}}`}},
		{"Windows", "\uFEFF- resource_id: a\r\n  name: x\r\n- resource_id: b\r\n", []string{`1 {"resource_id":"a","name":"x"}`, `3 {"resource_id":"b"}`}},
		{"problems, each with its line", "- resource_id: a\n  colour: red\n  type: cloud\n  type: cloud\n- [x]\n- resource_id: b\n  state: broken\n  version: 1.5\n  labels: [x]\n  attributes: {a: .nan, a: 1, b: *x}\n- resource_id: c\n  name: [1]\n  labels: {x: [y]}\n  attributes: 5\n- resource_id: ok\n",
			[]string{
				`line 2: colour: unknown member; known are resource_id, type, name, parent_id, platform_id, ai_center_id, tenant_id, region, service_provider, state, labels, attributes, version`,
				`line 4: type: is given twice`,
				`line 5: want a resource, which is an object, got a list`,
				`line 6: not YAML: unknown anchor 'x' referenced`,
				`line 12: name: want text, got a list`, `line 13: labels.x: want text, got a list`, `line 14: attributes: want an object, got "5"`,
				`15 {"resource_id":"ok"}`,
			}},
		{"more problems", "- resource_id: b\n  state: broken\n  version: 1.5\n  labels: [x]\n  attributes: {a: .nan, a: 1, c: &x 1, b: *x}\n- resource_id: d\n  attributes: {<<: {a: 1}, z: !!binary aGk=}\n",
			[]string{
				`line 2: state: want one of registered, available, unavailable, maintenance, retired, got "broken"`, `line 3: version: want a whole number, got "1.5"`, `line 4: labels: want an object, got a list`,
				`line 5: attributes.a: want a finite number, got .nan`, `line 5: attributes.a: is given twice`, `line 5: attributes.b: aliases are not read here; write the value`,
				`line 7: attributes: a member's name must be text`, `line 7: attributes.z: !!binary is not read here; write text`,
			}},
		{"not YAML, and on", "- resource_id: a\n  x: [\n- resource_id: b\n", []string{`line 2: not YAML: did not find expected node content`, `3 {"resource_id":"b"}`}},
		{"what is no list", "- resource_id: a\nmore: 1\n- x\n---\nresources:\nother: 1\n", []string{
			"line 1: not YAML: did not find expected '-' indicator", `line 3: want a resource, which is an object, got "x"`, "line 6: does not belong to the list of resources",
		}},
		{"too deep", "- attributes: " + strings.Repeat("{a: ", 40) + "1" + strings.Repeat("}", 40) + "\n", []string{"line 1: attributes" + strings.Repeat(".a", 33) + ": is nested deeper than 32"}},
	} {
		same(t, x.what, read(t, resourcefile.NewYAML(strings.NewReader(x.in))), x.want...)
	}
}

func TestYAMLLimits(t *testing.T) {
	t.Parallel()
	big := "- resource_id: a\n  name: |\n" + strings.Repeat("    0123456789abcdef0123456789abcdef\n", 40_000) + "- resource_id: b\n"
	same(t, "a large resource", read(t, resourcefile.NewYAML(strings.NewReader(big))), "line 1: a resource must be at most 1024 KiB", `40003 {"resource_id":"b"}`)
	doc := "name: |\n" + strings.Repeat("    0123456789abcdef0123456789abcdef\n", 500_000) + "---\nresource_id: b\n"
	same(t, "a large document", read(t, resourcefile.NewYAML(strings.NewReader(doc))), "line 1: a document that is no list must be at most 16 MiB; write a list, or documents separated by ---", `500003 {"resource_id":"b"}`)
	same(t, "a large line", read(t, resourcefile.NewYAML(strings.NewReader(strings.Repeat("x", 17<<20)))), "stopped: line 1: a line is longer than 16 MiB")
	boom := errors.New("disk on fire")
	same(t, "a broken file", read(t, resourcefile.NewYAML(io.MultiReader(strings.NewReader("- resource_id: a\n"), failing{boom}))), "stopped: disk on fire")
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestAt(t *testing.T) {
	t.Parallel()
	item, err := resourcefile.NewYAML(strings.NewReader("- resource_id: a\n  name: x\n  attributes:\n    chips:\n      - {a: 1}\n      - a: 2\n        b: 3\n")).Next()
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]int{"": 1, "resource_id": 1, "name": 2, "attributes.chips[1].b": 7, "attributes.chips[1].missing": 6, "attributes.missing": 3, "type": 1} {
		if got := item.At(field); got != want {
			t.Errorf("%s is on line %d, want %d", field, got, want)
		}
	}
}

func newCSV(t testing.TB, in string) resourcefile.Reader {
	t.Helper()
	r, err := resourcefile.NewCSV(strings.NewReader(in), kinds)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCSV(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		what, in string
		want     []string
	}{
		{"a header", "resource_id,type\n", nil},
		{"rows", "\uFEFFresource_id,type,state,children\na,cloud,available,7\nb,node,,\n", []string{`2 {"resource_id":"a","type":"cloud","state":"RESOURCE_STATE_AVAILABLE"}`, `3 {"resource_id":"b","type":"node"}`}},
		{"attributes as their schema says", "resource_id,type,attributes.chip_model,attributes.count,attributes.scale,attributes.shared,attributes.zones,attributes.performance,attributes\n" +
			`a,compute,4090,8,1.5,TRUE,"[""x"",1]","{""fp16"":1}","{""extra"":{""a"":""b""}}"` + "\nb,node,,,,,,,\n",
			[]string{`2 {"resource_id":"a","type":"compute","attributes":{"chip_model":"4090","count":8,"extra":{"a":"b"},"performance":{"fp16":1},"scale":1.5,"shared":true,"zones":["x",1]}}`, `3 {"resource_id":"b","type":"node"}`}},
		{"labels", "resource_id,type,labels.rack,labels\na,node,007,\"{\"\"x\"\":\"\"y\"\"}\"\n", []string{`2 {"resource_id":"a","type":"node","labels":{"rack":"007","x":"y"}}`}},
		{"lines in cells", "resource_id,type,name\na,node,\"x\ny\"\nb,node,z\n", []string{`2 {"resource_id":"a","type":"node","name":"x\ny"}`, `4 {"resource_id":"b","type":"node","name":"z"}`}},
		{"problems, each with its line", "resource_id,type,state,labels,attributes.count,attributes.shared,attributes.zones,attributes.performance,attributes,version\n" +
			"a,compute,broken,x,many,maybe,1,[],5,x\nb,compute\nc,compute,,\"{\"\"a\"\":1}\",NaN,,,,\"{\"\"count\"\":1}\",\nok,compute,,,,,,,,\n",
			[]string{
				`line 2: state: want one of registered, available, unavailable, maintenance, retired, got "broken"`, `line 2: labels: want a JSON object of texts such as {"rack":"7"}, got "x"`,
				`line 2: attributes.count: want a number, got "many"`, `line 2: attributes.shared: want true or false, got "maybe"`, `line 2: attributes.zones: want a JSON list such as ["a","b"], got "1"`,
				`line 2: attributes.performance: want a JSON object such as {"a":1}, got "[]"`, `line 2: attributes: want a JSON object, got "5"`, `line 2: version: want a whole number, got "x"`,
				`line 3: has 2 columns, want 10 as in the header`, `line 4: labels: want a JSON object of texts such as {"rack":"7"}, got "{\"a\":1}"`, `line 4: attributes.count: want a number, got "NaN"`,
				`5 {"resource_id":"ok","type":"compute"}`,
			}},
		{"twice", "resource_id,type,attributes.count,attributes,labels.a,labels\nx,compute,1,\"{\"\"count\"\":1}\",1,\"{\"\"a\"\":\"\"1\"\"}\"\n", []string{"line 2: attributes.count: is given twice", "line 2: labels.a: is given twice"}},
		{"not CSV, and on", "resource_id,type\na,x\"y\nb,node\n", []string{`line 2: not CSV: bare " in non-quoted-field`, `3 {"resource_id":"b","type":"node"}`}},
	} {
		same(t, x.what, read(t, newCSV(t, x.in)), x.want...)
	}
	for in, want := range map[string]string{
		"": "the file is empty", "resource_id\n": `no column "type"`, "type\n": `no column "resource_id"`, "resource_id,type,colour\n": `unknown column "colour"`, "resource_id,type,type\n": `"type" is there twice`,
		"resource_id,type,labels.\n": "unknown column", "a\"b\n": "not CSV",
	} {
		if _, err := resourcefile.NewCSV(strings.NewReader(in), kinds); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("header %q: %v, want line 1 and %q", in, err, want)
		}
	}
}

func roundTrip(t *testing.T, r *registryv1.Resource) {
	t.Helper()
	var b, c bytes.Buffer
	y := resourcefile.NewYAMLWriter(&b)
	v, err := resourcefile.NewCSVWriter(&c, []string{"chip_model", "count", "scale", "shared", "zones", "performance"})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []resourcefile.Writer{y, v} {
		for range 2 {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for name, in := range map[string]resourcefile.Reader{"YAML": resourcefile.NewYAML(bytes.NewReader(b.Bytes())), "CSV": newCSV(t, c.String())} {
		n := 0
		for ; ; n++ {
			item, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || len(item.Problems) > 0 || !proto.Equal(item.Resource, r) {
				t.Fatalf("%s: %v, %v\n got %v\nwant %v\n%s\n%s", name, err, item.Problems, item.Resource, r, b.String(), c.String())
			}
		}
		if n != 2 {
			t.Fatalf("%s has %d resources, want 2\n%s\n%s", name, n, b.String(), c.String())
		}
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add("gpu-1", "八卡", "4090", "rack", "007", "- x", 8.0, true)
	f.Add("~", "null", "true", "a.b", "1e3", "line\r\nline\n  more", 1.5, false)
	f.Add("a", "---", "", "x", "", "\u0085\u2028", math.Copysign(0, -1), false)
	f.Fuzz(func(t *testing.T, id, name, model, label, value, note string, n float64, b bool) {
		for _, s := range []string{id, name, model, label, value, note} {
			if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				return
			}
		}
		for _, s := range []string{id, name, value} { // the server refuses control characters in these
			if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				return
			}
		}
		if n != n || n > 1e300 || n < -1e300 || label == "" {
			return
		}
		attributes, err := structpb.NewStruct(map[string]any{
			"chip_model": model, "count": n, "shared": b, "zones": []any{note, n, b, nil}, "performance": map[string]any{label: n}, "extra": map[string]any{label: note}, "note": note,
		})
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, &registryv1.Resource{ResourceId: id, Type: "compute", Name: name, State: registryv1.ResourceState_RESOURCE_STATE_MAINTENANCE, Labels: map[string]string{label: value}, Attributes: attributes})
	})
}

// FuzzYAML: reading ends, problems are on lines of the file, and what is read
// without a problem is what a reader of the whole file sees.
func FuzzYAML(f *testing.F) {
	f.Add("- resource_id: a\n  name: |\n    - x\n- resource_id: b\n")
	f.Add("resources:\n- resource_id: a\nnextPageToken: x\n---\nname: y\n")
	f.Add("[{name: a},\n{name: b}]\n--- |\n - x\n")
	f.Add("- name: \"x\n- y\"\n")
	f.Add("%YAML 1.1\n---\n- name: 'a\n\n  b'\n  labels:\n   - 1\n")
	f.Fuzz(func(t *testing.T, in string) {
		r := resourcefile.NewYAML(strings.NewReader(in))
		var names []string
		clean := true
		for {
			item, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return
			}
			if lines := strings.Count(in, "\n") + 1; item.Line < 1 || item.Line > lines {
				t.Fatalf("item on line %d of %d", item.Line, lines)
			}
			if len(item.Problems) > 0 {
				clean = false
				continue
			}
			names = append(names, item.Resource.GetResourceId()+"/"+item.Resource.GetName())
		}
		if !clean {
			return
		}
		want, ok := wholeFile(in)
		if ok && strings.Join(want, "\n") != strings.Join(names, "\n") {
			t.Errorf("read %q, the whole file has %q", names, want)
		}
	})
}

// wholeFile is what a YAML library makes of the file; ok is false if it makes
// nothing of it.
func wholeFile(in string) (names []string, ok bool) {
	dec := yaml.NewDecoder(strings.NewReader(in))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return names, true
		}
		if err != nil {
			return nil, false
		}
		if len(doc.Content) != 1 {
			continue
		}
		top := doc.Content[0]
		list := []*yaml.Node{top}
		if top.Kind == yaml.MappingNode && len(top.Content) > 1 && top.Content[0].Value == "resources" {
			top = top.Content[1]
			list = top.Content
		}
		if top.Kind == yaml.SequenceNode {
			list = top.Content
		}
		for _, n := range list {
			id, name := "", ""
			for i := 0; i+1 < len(n.Content); i += 2 {
				if v := n.Content[i+1]; v.ShortTag() != "!!null" {
					switch n.Content[i].Value {
					case "resource_id", "resourceId":
						id = v.Value
					case "name":
						name = v.Value
					}
				}
			}
			if n.Kind == yaml.MappingNode {
				names = append(names, id+"/"+name)
			}
		}
	}
}

// FuzzCSV: reading ends, problems are on lines of the file, and what is read
// is what was in the cells.
func FuzzCSV(f *testing.F) {
	f.Add("resource_id,type,name\na,node,x\n")
	f.Add("resource_id,type,attributes.count,labels\na,compute,1,\"{\"\"a\"\":\"\"b\"\"}\"\n\"b\nb\",compute,,\n")
	f.Add("type,resource_id,state\n\"a\"b,c,d\n")
	f.Fuzz(func(t *testing.T, in string) {
		r, err := resourcefile.NewCSV(strings.NewReader(in), kinds)
		if err != nil {
			if !strings.Contains(err.Error(), "line ") {
				t.Errorf("%v does not name a line", err)
			}
			return
		}
		for n := 0; ; n++ {
			item, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil || n > len(in) {
				t.Fatalf("item %d: %v", n, err)
			}
			lines := strings.Count(in, "\n") + 1
			for _, p := range item.Problems {
				if p.Line < 1 || p.Line > lines || p.Text == "" {
					t.Errorf("problem %+v of a file of %d lines", p, lines)
				}
			}
			if len(item.Problems) == 0 && !strings.Contains(strings.ReplaceAll(in, "\r\n", "\n"), strings.ReplaceAll(item.Resource.GetResourceId(), `"`, `""`)) {
				t.Errorf("ID %q is not in the file", item.Resource.GetResourceId())
			}
		}
	})
}
