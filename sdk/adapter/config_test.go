package adapter_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"yunhe.dev/yunhe/sdk/adapter"
)

type config struct {
	adapter.Declared
	Server string `json:"server" jsonschema:"where it is"`
	Retry  int    `json:"retry,omitempty"`
}

func TestConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	t.Setenv(adapter.ConfigEnv, path)
	t.Setenv(adapter.CenterEnv, "c1")
	var c config
	if err := adapter.Config(&c); err == nil {
		t.Error("a missing file is no error")
	}
	for text, want := range map[string]string{
		`{"server":"x","retries":1}`: `"retries"`,
		`{"server":1}`:               "server",
		`{"server":"x"} {}`:          "one JSON object",
		`[`:                          "not right",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := adapter.Config(&config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %s", text, err, want)
		}
	}
	if err := os.WriteFile(path, []byte(`{"server":"x","region":"r","static_watts_per_cpu":1.5,"prices":{"small":7}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := adapter.Config(&c); err != nil {
		t.Fatal(err)
	}
	inv := c.Inventory(adapter.Center("other"))
	if c.Server != "x" || inv.AiCenterId != "c1" || inv.Region != "r" || inv.StaticMilliwattsPerCpu != 1500 || len(inv.Offers) != 1 || inv.Offers[0].Price != 7 {
		t.Errorf("got %+v and %v", c, inv)
	}
}

func TestSchemaNamesWhatIsRequired(t *testing.T) {
	t.Parallel()
	s, err := adapter.Schema[config]()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"required":["server"]`, `"where it is"`, `"region"`, `"additionalProperties":false`} {
		if !strings.Contains(s, want) {
			t.Errorf("schema lacks %s: %s", want, s)
		}
	}
}
