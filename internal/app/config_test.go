package app_test

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/fault"
)

func load(t *testing.T, text string) (app.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "yunhe.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return app.LoadConfig(path)
}

func TestDefaultConfig(t *testing.T) {
	t.Parallel()
	cfg := app.DefaultConfig()
	if err := cfg.Validate(); err != nil {
		t.Errorf("the defaults are not valid: %v", err)
	}
	if !strings.HasPrefix(cfg.Listen.Address, "127.0.0.1:") || !strings.HasPrefix(cfg.Bus.Listen, "127.0.0.1:") || cfg.Listen.OpenStatus {
		t.Errorf("the defaults open the machine to others: %+v, %+v", cfg.Listen, cfg.Bus)
	}
	for _, text := range []string{"", "# nothing\n", "---\n"} {
		if got, err := load(t, text); err != nil || !reflect.DeepEqual(got, cfg) {
			t.Errorf("%q gives %+v, %v, want the defaults", text, got, err)
		}
	}
}

func TestLoadConfig(t *testing.T) {
	t.Parallel()
	got, err := load(t, `
data: /var/lib/yunhe
roles: [api, control]
listen: {address: "0.0.0.0:443", url: "https://yunhe.example.com", cert_file: c.pem, key_file: k.pem, open_status: true}
database: {url: "postgres://db/yunhe"}
bus: {url: "nats://a:4222,nats://b:4222", listen: "0.0.0.0:4222", advertise: ["nats://x:4222"], keys: /keys, replicas: 3}
samples: {url: "http://127.0.0.1:9090", write_url: "http://127.0.0.1:9091", token: t, retention: 720h}
objects: {url: "s3://bucket/prefix?endpoint=https://host:9000", access_key: a, secret_key: s}
log: {level: debug, format: json}
trace: {endpoint: "http://127.0.0.1:4318", ratio: 0.5}
`)
	want := app.Config{
		Data: "/var/lib/yunhe", Roles: []string{app.API, app.Control},
		Listen:   app.ListenConfig{Address: "0.0.0.0:443", URL: "https://yunhe.example.com", CertFile: "c.pem", KeyFile: "k.pem", OpenStatus: true},
		Database: app.DatabaseConfig{URL: "postgres://db/yunhe"},
		Bus:      app.BusConfig{URL: "nats://a:4222,nats://b:4222", Listen: "0.0.0.0:4222", Advertise: []string{"nats://x:4222"}, Keys: "/keys", Replicas: 3},
		Samples:  app.SamplesConfig{URL: "http://127.0.0.1:9090", WriteURL: "http://127.0.0.1:9091", Token: "t", Retention: 720 * time.Hour},
		Objects:  app.ObjectsConfig{URL: "s3://bucket/prefix?endpoint=https://host:9000", AccessKey: "a", SecretKey: "s"},
		Log:      app.LogConfig{Level: "debug", Format: "json"}, Trace: app.TraceConfig{Endpoint: "http://127.0.0.1:4318", Ratio: 0.5},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("a configuration with everything set is refused: %v", err)
	}
	// Every field was set, so that a new one is added to this test too.
	for _, v := range []any{got.Listen, got.Database, got.Bus, got.Samples, got.Objects, got.Log, got.Trace} {
		for i := range reflect.TypeOf(v).NumField() {
			if reflect.ValueOf(v).Field(i).IsZero() {
				t.Errorf("%T.%s is not set by this test", v, reflect.TypeOf(v).Field(i).Name)
			}
		}
	}
}

func TestLoadConfigRejects(t *testing.T) {
	t.Parallel()
	for text, word := range map[string]string{
		"dta: x\n":                     "dta",
		"listen: {adress: x}\n":        "adress",
		"data: [x]\n":                  "line 1",
		"bus: {replicas: many}\n":      "many",
		"samples: {retention: soon}\n": "soon",
		"data: 'x\n":                   "line",
		"data: a\ndata: b\n":           "already defined",
		"data: a\n---\ndata: b\n":      "one document",
		"\x00":                         "control characters",
		"data: \xff":                   "UTF-8",
	} {
		_, err := load(t, text)
		if msg, _ := fault.Message(err); fault.KindOf(err) != fault.Invalid || !strings.Contains(msg, word) || !strings.Contains(msg, "yunhe.yaml") {
			t.Errorf("%q: %v, want it refused with the file and %q", text, err, word)
		}
	}
	if _, err := app.LoadConfig(filepath.Join(t.TempDir(), "none")); fault.KindOf(err) != fault.Invalid {
		t.Errorf("no file: %v, want it refused", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		change func(c *app.Config)
		path   string
		word   string
	}{
		"no data folder":      {func(c *app.Config) { c.Data = "" }, "data", "folder"},
		"no port":             {func(c *app.Config) { c.Listen.Address = "127.0.0.1" }, "listen.address", `"127.0.0.1"`},
		"port too large":      {func(c *app.Config) { c.Listen.Address = "127.0.0.1:65536" }, "listen.address", "65536"},
		"port by name":        {func(c *app.Config) { c.Listen.Address = "127.0.0.1:" }, "listen.address", "host:port"},
		"no address":          {func(c *app.Config) { c.Listen.URL = "yunhe.example.com" }, "listen.url", `"yunhe.example.com"`},
		"certificate alone":   {func(c *app.Config) { c.Listen.CertFile = "c" }, "listen.cert_file", "listen.key_file"},
		"key alone":           {func(c *app.Config) { c.Listen.KeyFile = "k" }, "listen.cert_file", "listen.key_file"},
		"bus without a port":  {func(c *app.Config) { c.Bus.Listen = "x" }, "bus.listen", `"x"`},
		"too many replicas":   {func(c *app.Config) { c.Bus.Replicas = 6 }, "bus.replicas", "between 0 and 5, got 6"},
		"another database":    {func(c *app.Config) { c.Database.URL = "mysql://user:secret@h/d" }, "database.url", "mysql://"},
		"time that runs back": {func(c *app.Config) { c.Samples.Retention = -time.Hour }, "samples.retention", "-1h"},
		"time too short":      {func(c *app.Config) { c.Samples.Retention = time.Minute }, "samples.retention", "1m0s"},
		"another store":       {func(c *app.Config) { c.Objects.URL = "ftp://x" }, "objects.url", "ftp://"},
		"history too short":   {func(c *app.Config) { c.Topology.History = time.Minute }, "topology.history", "1m0s"},
		"unknown role": {func(c *app.Config) {
			c.Database.URL, c.Bus.URL = "postgres://x", "nats://x"
			c.Roles = []string{"api", "boss"}
		}, "roles[1]", `"boss"`},
		"roles without a bus":   {func(c *app.Config) { c.Database.URL = "postgres://x"; c.Roles = []string{"api"} }, "roles", "bus.url"},
		"roles on SQLite":       {func(c *app.Config) { c.Roles = []string{"api"} }, "roles", "PostgreSQL"},
		"unknown level":         {func(c *app.Config) { c.Log.Level = "loud" }, "log.level", `"loud"`},
		"unknown format":        {func(c *app.Config) { c.Log.Format = "xml" }, "log.format", `"xml"`},
		"ratio above 1":         {func(c *app.Config) { c.Trace.Ratio = 1.5 }, "trace.ratio", "1.5"},
		"ratio that is nothing": {func(c *app.Config) { c.Trace.Ratio = math.NaN() }, "trace.ratio", "NaN"},
	} {
		cfg := app.DefaultConfig()
		x.change(&cfg)
		err := cfg.Validate()
		if f := fault.FieldsOf(err); len(f) != 1 || f[0].Path != x.path || !strings.Contains(f[0].Problem, x.word) {
			t.Errorf("%s: %v, want %s refused with %q", name, err, x.path, x.word)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v shows a secret", name, err)
		}
	}
	var none app.Config
	if n := len(fault.FieldsOf(none.Validate())); n < 5 {
		t.Errorf("an empty configuration has %d problems reported, want all of them at once", n)
	}
}
