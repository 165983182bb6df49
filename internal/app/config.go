package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/alarms"
	"yunhe.dev/yunhe/internal/backup"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/objects"
	"yunhe.dev/yunhe/internal/plugin"
	"yunhe.dev/yunhe/internal/poolops"
	"yunhe.dev/yunhe/internal/samples"
)

// Config is everything that can be set, one field per component. The zero
// values of DefaultConfig run the whole platform embedded in one process.
type Config struct {
	// Data is the folder of this process: keys, and all state when embedded.
	Data string `yaml:"data"`
	// Roles this process runs; empty means all. See Roles.
	Roles  []string     `yaml:"roles"`
	Listen ListenConfig `yaml:"listen"`
	// Database keeps the state.
	Database DatabaseConfig `yaml:"database"`
	// Bus carries the signals.
	Bus BusConfig `yaml:"bus"`
	// Samples keeps metrics over time.
	Samples SamplesConfig `yaml:"samples"`
	// Objects keeps logs and files.
	Objects ObjectsConfig `yaml:"objects"`
	// Topology keeps how the network hangs together, and how it did.
	Topology TopologyConfig `yaml:"topology"`
	// Alarms says from when on waiting is one.
	Alarms alarms.Config `yaml:"alarms"`
	// Adapters reach centers of other kinds than compute gateways.
	Adapters AdaptersConfig `yaml:"adapters"`
	Log      LogConfig      `yaml:"log"`
	Trace    TraceConfig    `yaml:"trace"`
	// Version of this program.
	Version string `yaml:"-"`
	// Program of this process, if it can become another.
	Program poolops.Program `yaml:"-"`
}

// ListenConfig says where the API and the console answer.
type ListenConfig struct {
	// Address is host:port; port 0 picks a free one.
	Address string `yaml:"address"`
	// URL is how runs of jobs reach the API; empty: they are not told.
	URL string `yaml:"url"`
	// CertFile and KeyFile turn on TLS.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// OpenStatus answers /healthz, /readyz and /metrics to other machines too.
	OpenStatus bool `yaml:"open_status"`
}

// DatabaseConfig: an empty URL is a SQLite file in the data folder.
type DatabaseConfig struct {
	URL string `yaml:"url"`
}

// BusConfig: an empty URL is NATS in this process.
type BusConfig struct {
	URL string `yaml:"url"`
	// Listen is where gateways dial the bus in this process.
	Listen string `yaml:"listen"`
	// Advertise are the addresses told to gateways, where they differ.
	Advertise []string `yaml:"advertise"`
	// Keys is the folder of the bus's keys, shared by the processes of one
	// platform; empty: below the data folder.
	Keys string `yaml:"keys"`
	// Replicas of the event stream on a cluster.
	Replicas int `yaml:"replicas"`
}

// SamplesConfig: an empty URL is a folder below the data folder.
type SamplesConfig struct {
	URL       string        `yaml:"url"`
	WriteURL  string        `yaml:"write_url"`
	Token     string        `yaml:"token"`
	Retention time.Duration `yaml:"retention"`
}

// ObjectsConfig: an empty URL is a folder below the data folder.
type ObjectsConfig struct {
	URL       string `yaml:"url"`
	AccessKey string `yaml:"access_key"`
	SecretKey string `yaml:"secret_key"`
}

// TopologyConfig says how much of the past is kept.
type TopologyConfig struct {
	// History is how long states that ended are kept, at least 1h; 0 means
	// 2160h (90 days).
	History time.Duration `yaml:"history"`
}

// AdaptersConfig lists the plug-ins beside those built in. Where several
// processes have the role reach, all must have the same list.
type AdaptersConfig struct {
	Plugins []plugin.Config `yaml:"plugins"`
	// BuiltIn are those that come with the program.
	BuiltIn []adapters.Known `yaml:"-"`
}

// LogConfig of the process.
type LogConfig struct {
	// Level: debug, info, warn, error.
	Level string `yaml:"level"`
	// Format: text or json.
	Format string `yaml:"format"`
}

// TraceConfig: an empty endpoint means no tracing.
type TraceConfig struct {
	// Endpoint of an OTLP collector over HTTP, for example http://127.0.0.1:4318.
	Endpoint string `yaml:"endpoint"`
	// Ratio of calls traced, 0 to 1.
	Ratio float64 `yaml:"ratio"`
}

// DefaultConfig returns what runs if nothing is set.
func DefaultConfig() Config {
	return Config{Data: "data", Listen: ListenConfig{Address: "127.0.0.1:8180"}, Bus: BusConfig{Listen: "127.0.0.1:0"},
		Log: LogConfig{Level: "info", Format: "text"}, Trace: TraceConfig{Ratio: 1}}
}

// LoadConfig reads a YAML file over the defaults. Unknown keys are errors.
func LoadConfig(path string) (Config, error) {
	cfg := DefaultConfig()
	b, err := os.ReadFile(path)
	if err != nil {
		return cfg, fault.Wrap(fault.Invalid, err, "the configuration %s cannot be read", path)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&cfg); err != nil && !errors.Is(err, io.EOF) {
		return cfg, fault.New(fault.Invalid, "the configuration %s is not right: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return cfg, fault.New(fault.Invalid, "the configuration %s must be one document; it has something after the first", path)
	}
	return cfg, nil
}

// Validate reports every problem at once, by full key.
func (c *Config) Validate() error {
	var k core.Check
	if c.Data == "" {
		k.Add("data", "must name a folder")
	}
	if !hostPort(c.Listen.Address) {
		k.Add("listen.address", "must be host:port, got %q", c.Listen.Address)
	}
	if u, err := url.Parse(c.Listen.URL); c.Listen.URL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "") {
		k.Add("listen.url", "must be an address such as https://yunhe.example.com, got %q", c.Listen.URL)
	}
	if (c.Listen.CertFile == "") != (c.Listen.KeyFile == "") {
		k.Add("listen.cert_file", "and listen.key_file must both be set, or neither")
	}
	if c.Bus.URL == "" && !hostPort(c.Bus.Listen) {
		k.Add("bus.listen", "must be host:port, got %q", c.Bus.Listen)
	}
	k.Range("bus.replicas", int64(c.Bus.Replicas), 0, 5)
	if scheme, _, ok := strings.Cut(c.Database.URL, "://"); ok && !c.postgres() {
		k.Add("database.url", "must be postgres://... or the path of a SQLite file, got %s://...", scheme)
	}
	for _, f := range fault.FieldsOf(c.samples().Validate()) {
		k.Add("samples."+f.Path, "%s", f.Problem)
	}
	for _, f := range fault.FieldsOf(c.objects().Validate()) {
		k.Add("objects."+f.Path, "%s", f.Problem)
	}
	if h := c.Topology.History; h != 0 && h < time.Hour {
		k.Add("topology.history", "must be a time of at least 1h such as 720h, 0 for the default, got %s", h)
	}
	for name, d := range map[string]time.Duration{"unplaced_after": c.Alarms.UnplacedAfter, "waiting_after": c.Alarms.WaitingAfter, "unset_after": c.Alarms.UnsetAfter} {
		if d < 0 {
			k.Add("alarms."+name, "must be a time such as 1m, 0 for the default, got %s", d)
		}
	}
	for i, r := range c.Roles {
		if !slices.Contains(Roles, r) {
			k.Add(fmt.Sprintf("roles[%d]", i), "must be one of %s, got %q", strings.Join(Roles, ", "), r)
		}
	}
	if len(c.Roles) > 0 && !c.postgres() {
		k.Add("roles", "may be chosen only with PostgreSQL: with SQLite one process runs them all")
	}
	if len(c.Roles) > 0 && c.postgres() && c.Bus.URL == "" {
		k.Add("roles", "may be chosen only with a bus all processes share: set bus.url")
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		k.Add("log.level", "must be debug, info, warn or error, got %q", c.Log.Level)
	}
	if !slices.Contains([]string{"text", "json"}, c.Log.Format) {
		k.Add("log.format", "must be text or json, got %q", c.Log.Format)
	}
	names := map[string]bool{adapters.GatewayPlugin: true}
	for _, b := range c.Adapters.BuiltIn {
		names[b.Name] = true
	}
	for i, p := range c.Adapters.Plugins {
		path := fmt.Sprintf("adapters.plugins[%d]", i)
		p.Check(&k, path)
		if names[p.Name] {
			k.Add(path+".name", "%q is taken already", p.Name)
		}
		names[p.Name] = true
	}
	if !(c.Trace.Ratio >= 0 && c.Trace.Ratio <= 1) { // not a number is neither
		k.Add("trace.ratio", "must be between 0 and 1, got %g", c.Trace.Ratio)
	}
	return k.Err()
}

func hostPort(s string) bool {
	_, port, err := net.SplitHostPort(s)
	n, perr := strconv.ParseUint(port, 10, 16)
	return err == nil && perr == nil && n <= 65535
}

func (c *Config) postgres() bool {
	return strings.HasPrefix(c.Database.URL, "postgres://") || strings.HasPrefix(c.Database.URL, "postgresql://")
}

func (c *Config) path(set, name string) string {
	if set != "" {
		return set
	}
	return filepath.Join(c.Data, name)
}

// samples is the configuration of the engine that keeps samples.
func (c *Config) samples() samples.Config {
	sc := samples.DefaultConfig()
	sc.URL, sc.WriteURL, sc.Token = c.path(c.Samples.URL, "samples"), c.Samples.WriteURL, c.Samples.Token
	if c.Samples.Retention != 0 {
		sc.Retention = c.Samples.Retention
	}
	return sc
}

// objects is the configuration of the engine that keeps objects.
func (c *Config) objects() objects.Config {
	return objects.Config{URL: c.path(c.Objects.URL, "objects"), AccessKey: c.Objects.AccessKey, SecretKey: c.Objects.SecretKey}
}

// BackupSource says where the parts of a platform with this configuration
// are. Samples and objects that lie elsewhere than in folders are not parts.
func (c *Config) BackupSource() backup.Source {
	keys := c.path(c.Bus.Keys, "bus")
	s := backup.Source{
		Database: c.path(c.Database.URL, "yunhe.db"), Stage: filepath.Join(c.Data, "backup-stage"),
		Keys: map[string]string{
			"admin.key": filepath.Join(c.Data, "admin.key"), "bus/keys.json": filepath.Join(keys, "keys.json"), "bus/secrets.key": filepath.Join(keys, "secrets.key"),
			"bus/port": filepath.Join(keys, "port"), // where gateways look for the bus
		},
	}
	if url := c.objects().URL; !strings.Contains(url, "://") {
		s.Objects = url
	}
	if url := c.samples().URL; !strings.Contains(url, "://") {
		s.Samples = url
	}
	return s
}
