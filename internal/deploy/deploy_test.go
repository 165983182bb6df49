package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/internal/deploy"
	"yunhe.dev/yunhe/internal/fault"
)

var roles = []string{"api", "control", "reach", "watch"}

const plan = `{"method": "aware", "modules": [{"name": "platform", "instances": 3, "microservices": [["watch", "control"], ["api"]]}, {"name": "edge", "instances": 1, "microservices": [["reach"]]}]}`

func read(t *testing.T) []deploy.Group {
	t.Helper()
	groups, err := deploy.Read([]byte(plan), roles)
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

func TestRead(t *testing.T) {
	t.Parallel()
	var names []string
	for _, g := range read(t) {
		names = append(names, g.Name)
	}
	if !slices.Equal(names, []string{"control-watch", "api", "reach"}) {
		t.Errorf("groups %v", names)
	}
	clusters := `{"modules": [{"name": "1", "instances": 2, "microservices": [["platform/api", "platform/reach"]]}, {"name": "2", "instances": 2, "microservices": [["platform/watch", "platform/control"]]}]}`
	if groups, err := deploy.Read([]byte(clusters), roles); err != nil || len(groups) != 2 || groups[0].Name != "api-reach" {
		t.Errorf("of the method fca: %v, %v", groups, err)
	}
	for text, want := range map[string][]string{
		`nonsense`: {"not what"},
		`{}`:       {`"api" is missing`, `"watch" is missing`},
		`{"modules": [{"name": "m", "instances": 0, "microservices": [["api", "api", "x"], []]}]}`: {"modules[0].instances", "modules[0].microservices[0][1]", `got "x"`, "modules[0].microservices[1]", `"control" is missing`},
	} {
		_, err := deploy.Read([]byte(text), roles)
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", text, err)
			continue
		}
		said := err.Error()
		for _, f := range fault.FieldsOf(err) {
			said += "\n" + f.Path + ": " + f.Problem
		}
		for _, w := range want {
			if !strings.Contains(said, w) {
				t.Errorf("%s: %s does not say %q", text, said, w)
			}
		}
	}
}

// documents reads all YAML documents of a file.
func documents(t *testing.T, f deploy.File) (out []map[string]any) {
	t.Helper()
	dec := yaml.NewDecoder(bytes.NewReader([]byte(f.Text)))
	for {
		var d map[string]any
		err := dec.Decode(&d)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", f.Path, err, f.Text)
		}
		out = append(out, d)
	}
}

func at(t *testing.T, v any, path ...string) any {
	t.Helper()
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("%v: %q is in no map", path, p)
		}
		v = m[p]
	}
	return v
}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	files, err := deploy.Write(read(t), deploy.Options{Format: deploy.Kubernetes, Image: "registry.example/yunhe:1.2"})
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	replicas := map[any]any{}
	for _, f := range files {
		paths = append(paths, f.Path)
		for _, d := range documents(t, f) {
			if d["kind"] != "Deployment" {
				continue
			}
			spec := at(t, d, "spec", "template", "spec")
			replicas[at(t, d, "metadata", "name")] = at(t, d, "spec", "replicas")
			container := at(t, spec, "containers").([]any)[0]
			if at(t, container, "image") != "registry.example/yunhe:1.2" || at(t, container, "readinessProbe", "httpGet", "path") != "/readyz" {
				t.Errorf("container %v", container)
			}
			apart, surge := at(t, spec, "affinity"), at(t, d, "spec", "strategy", "rollingUpdate", "maxSurge")
			if one := at(t, d, "spec", "replicas") == 1; one != (apart == nil) || one != (surge == 1) {
				t.Errorf("%s: apart %v, surge %v", f.Path, apart, surge)
			}
		}
	}
	if !slices.Equal(paths, []string{"base.yaml", "control-watch.yaml", "api.yaml", "reach.yaml", "kustomization.yaml"}) {
		t.Errorf("files %v", paths)
	}
	if replicas["yunhe-control-watch"] != 3 || replicas["yunhe-api"] != 3 || replicas["yunhe-reach"] != 1 {
		t.Errorf("replicas %v", replicas)
	}
}

// Instances of a group are on different hosts, each process of a host has its
// own port and folder, and each host has a target of its units.
func TestSystemd(t *testing.T) {
	t.Parallel()
	files, err := deploy.Write(read(t), deploy.Options{Format: deploy.Systemd, Hosts: []string{"a", "b", "c"}, Port: 9000})
	if err != nil {
		t.Fatal(err)
	}
	ports, hosts := map[string]int{}, map[string]int{}
	for _, f := range files {
		host, unit, _ := strings.Cut(f.Path, "/")
		if unit == "yunhe.target" {
			continue
		}
		group := unit[:strings.LastIndexByte(unit, '-')]
		hosts[host+" "+group]++
		_, rest, _ := strings.Cut(f.Text, "--listen ")
		ports[host+" "+strings.Fields(rest)[0]]++
	}
	if len(files) != 10 || len(hosts) != 7 || len(ports) != 7 {
		t.Errorf("%d files; groups by host %v; ports %v", len(files), hosts, ports)
	}
}

func TestCompose(t *testing.T) {
	t.Parallel()
	files, err := deploy.Write(read(t), deploy.Options{Format: deploy.Compose})
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	services := at(t, documents(t, files[0])[0], "services").(map[string]any)
	if len(services) != 3 || at(t, services["api"], "deploy", "replicas") != 3 {
		t.Errorf("services %v", services)
	}
}

// Nothing that would need quoting gets into a manifest.
func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	_, err := deploy.Write(read(t), deploy.Options{Format: deploy.Systemd, Image: "a b", Namespace: "A", Binary: "yunhe", Config: "/etc/x y", Data: "/a\nb", User: "a;b", Address: "here!", Port: 65535, Hosts: []string{"a", "a", "../b"}})
	for _, field := range []string{"image", "namespace", "binary", "config", "data", "user", "address", "port", "hosts[1]", "hosts[2]"} {
		if !slices.ContainsFunc(fault.FieldsOf(err), func(f fault.Field) bool { return f.Path == field }) {
			t.Errorf("%s is not refused: %v", field, err)
		}
	}
	if _, err := deploy.Write(read(t), deploy.Options{Format: "helm"}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("an unknown format: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(plan))
	f.Fuzz(func(t *testing.T, data []byte) {
		groups, err := deploy.Read(data, roles)
		if err != nil {
			return
		}
		seen := 0
		for _, g := range groups {
			seen += len(g.Roles)
		}
		if seen != len(roles) {
			t.Errorf("%d roles in %v", seen, groups)
		}
	})
}
