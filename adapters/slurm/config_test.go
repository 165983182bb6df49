package slurm_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"yunhe.dev/yunhe/adapters/slurm"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/sdk/adapter"
)

func TestConfigViolations(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]string{
		`"url":"ftp://x"`:                        `url: must be http://host:port, https://host or unix:/path, got "ftp://x"`,
		`"url":"unix:x"`:                         "url: must be unix: and the absolute path of a socket",
		`"url":"http://u:p@x"`:                   "url: must be http://",
		`"token":""`:                             "token_file: must name a file with a token",
		`"token_file":"/t"`:                      "token: must not be given together with token_file",
		`"token":"a b"`:                          "token: must be one word",
		`"user":""`:                              "user: must be the user the token is of",
		`"directory":"rel"`:                      `directory: must be an absolute path at the cluster, got "rel"`,
		`"directory":"/"`:                        "directory: must be",
		`"output_dir":"o"`:                       "output_dir: must be an absolute path on this machine",
		`"pool_program":"yunhe"`:                 `pool_program: must be an absolute path at the cluster, got "yunhe"`,
		`"pool_program":"/yunhe"`:                "output_dir: must be set beside pool_program",
		`"pool_folder":"/x/shared"`:              "pool_program: must be set beside pool_folder",
		`"pool_folder":"shared"`:                 `pool_folder: must be an absolute path at the nodes, got "shared"`,
		`"pool_nodes":{"n1":"p1"}`:               "pool_nodes.n1: goes with pool_folder",
		`"timeout_seconds":999`:                  "timeout_seconds: must be 1 to 120, got 999",
		`"poll_milliseconds":1`:                  "poll_milliseconds: must be 100 to 60000, got 1",
		`"api_version":"38"`:                     "api_version: must be for example v0.0.38",
		`"qos":"a b"`:                            "qos: must be a name of Slurm's",
		`"gres":{"cpu":"x"}`:                     "gres: must map a resource such as gpu",
		`"images":{"i":{"env":{"A-B":"x"}}}`:     `images.i.env: has the name "A-B"`,
		`"capacity":{"cpu":-1}`:                  "capacity.cpu: must be at least 0, got -1",
		`"partitions":[{"name":"","price":1}]`:   "partitions[0].name: must be a name of Slurm's",
		`"partitions":[{"name":"p","price":-1}]`: "partitions[0].price: must be at least 0, got -1",
		`"partitions":[{"name":"p","price":1,"quantity":{"cpu":-5}}]`:                    "partitions[0].quantity.cpu: must be at least 0, got -5",
		`"partitions":[{"name":"p","price":1},{"name":"q","spec":"p","price":1}]`:        `partitions[1].spec: "p" is offered twice`,
		`"prices":{"p":1},"partitions":[{"name":"p","price":1}]`:                         "has a price here and in prices",
		`"partitions":[{"name":"p","spec":"` + strings.Repeat("x", 33) + `","price":1}]`: "partitions[0].spec: must be at most 32 characters, got 33",
		`"ca_file":"/nowhere/ca.pem"`:                                                    "ca_file /nowhere/ca.pem cannot be read",
	} {
		var cfg slurm.Config // the later key counts
		if err := adapter.ParseConfig([]byte(`{"url":"http://x","user":"u","token":"a","directory":"/d",`+change+`}`), &cfg); err != nil {
			t.Fatal(err)
		}
		d, err := slurm.New(t.Context(), "c1", cfg, slog.New(slog.DiscardHandler))
		if err == nil {
			d.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", change, err, want)
		}
	}
	if _, err := slurm.New(t.Context(), "../c", slurm.Config{URL: "unix:/x", Directory: "/d"}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "center") {
		t.Errorf("%v", err)
	}
}

// TestHowtoConfig: the example an operator copies is a configuration.
func TestHowtoConfig(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "howto", "slurm.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "```json\n")
	text, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("docs/howto/slurm.md has no example")
	}
	var cfg slurm.Config
	if err := adapter.ParseConfig([]byte(text), &cfg); err != nil {
		t.Fatal(err)
	}
	d, err := slurm.New(t.Context(), "c1", cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	res, err := d.Describe(t.Context(), &adapterv1.DescribeRequest{})
	if err != nil || res.Name != slurm.Name || !json.Valid([]byte(res.ConfigSchema)) || !strings.Contains(res.ConfigSchema, `"required":["url","directory"]`) {
		t.Errorf("%v, %v", res, err)
	}
	if _, err := d.Discover(t.Context(), &adapterv1.DiscoverRequest{}); err == nil {
		t.Error("discover succeeds without a cluster")
	}
}
