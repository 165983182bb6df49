package kubernetes_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"yunhe.dev/yunhe/adapters/kubernetes"
	"yunhe.dev/yunhe/sdk/adapter"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}, {name: e, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}}, {name: f, user: {tokenFile: /etc/shadow}}]
contexts: [{name: x, context: {cluster: c, user: u}}, {name: exec, context: {cluster: c, user: e}}, {name: file, context: {cluster: c, user: f}}]
current-context: x
`

func open(cfg kubernetes.Config) error {
	d, err := kubernetes.New(context.Background(), "c", cfg, slog.New(slog.DiscardHandler))
	if err == nil {
		d.Close()
	}
	return err
}

func TestConfig(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		`{"kubeconfig":"x","kubeconfig_file":"y","namespace":"A","run_as_user":-1}`:                                         {"must not both be set", `got "y"`, `namespace must be`, "run_as_user"},
		`{"resources":[{"resource":"cpu","extended":"gpu"}]}`:                                                               {"resources[0].resource", "resources[0].extended"},
		`{"images":{"a":"-"},"image_pull_policy":"x"}`:                                                                      {"images.a", "image_pull_policy"},
		`{"priority_classes":[{"from":101,"class":""}]}`:                                                                    {"priority_classes[0].from", "priority_classes[0].class"},
		`{"extra_labels":{"yunhe.dev/attempt":"x"},"node_selector":{"a":"b c"}}`:                                            {"extra_labels", "node_selector"},
		`{"tolerations":[{"operator":"Is","effect":"Never"}]}`:                                                              {"tolerations[0].operator", "tolerations[0].effect"},
		`{"prometheus_url":"ftp://x","prometheus_token_file":"t","device_metrics":[{"busy":"a b","node":"","index":"x)"}]}`: {"prometheus_url must be", "prometheus_token_file must be", "device_metrics[0].busy", "device_metrics[0].node", "device_metrics[0].index"},
		`{"device_metrics":[{"busy":"a","node":"n","index":"i"}]}`:                                                          {"need prometheus_url"},
		`{"kubeconfig":"{"}`:             {"is not a kubeconfig"},
		`{"kubeconfig_file":"/nowhere"}`: {"cannot be read"},
	} {
		var cfg kubernetes.Config
		if err := adapter.ParseConfig([]byte(text), &cfg); err != nil {
			t.Fatal(err)
		}
		err := open(cfg)
		for _, words := range want {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v, want an error with %q", text, err, words)
			}
		}
	}
	for name, c := range map[string]struct {
		cfg  kubernetes.Config
		want string
	}{
		"text":               {kubernetes.Config{Kubeconfig: kubeconfig}, ""},
		"file":               {kubernetes.Config{KubeconfigFile: path}, ""},
		"no such context":    {kubernetes.Config{Kubeconfig: kubeconfig, Context: "y"}, "it has: exec, file, x"},
		"a program":          {kubernetes.Config{Kubeconfig: kubeconfig, Context: "exec"}, "set allow_exec"},
		"a program that may": {kubernetes.Config{Kubeconfig: kubeconfig, Context: "exec", AllowExec: true}, ""},
		"text with a file":   {kubernetes.Config{Kubeconfig: kubeconfig, Context: "file"}, "must not name files"},
		"not in a pod":       {kubernetes.Config{}, "must run in a pod"},
	} {
		if err := open(c.cfg); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestDescription(t *testing.T) {
	t.Parallel()
	d, err := kubernetes.Description()
	if err != nil || d.Name != kubernetes.Name || d.Version == "" || len(d.Parts) != 4 || len(d.Features) != 3 {
		t.Errorf("got %v, %v", d, err)
	}
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal([]byte(d.GetConfigSchema()), &schema); err != nil || schema.Properties["kubeconfig_file"] == nil || schema.Properties["region"] == nil {
		t.Errorf("schema %s, %v", d.GetConfigSchema(), err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(`{"kubeconfig":"x"}`)
	b, err := json.Marshal(kubernetes.Config{Kubeconfig: kubeconfig, Namespace: "n", Images: map[string]string{"a": "b:1"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Fuzz(func(t *testing.T, text string) {
		var cfg kubernetes.Config
		if adapter.ParseConfig([]byte(text), &cfg) != nil || cfg.AllowExec || cfg.KubeconfigFile != "" {
			return
		}
		_ = open(cfg) // it may be wrong; it must not break
	})
}
