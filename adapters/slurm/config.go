package slurm

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/sdk/adapter"
)

// Config of a driver. What it asks for is checked by New; what the cluster
// thinks of it shows in Watch.
type Config struct {
	adapter.Declared
	URL       string `json:"url" jsonschema:"slurmrestd: http://host:6820, https://host, or unix:/path/of/socket"`
	User      string `json:"user,omitempty" jsonschema:"whose jobs they are at the cluster; needed with a token"`
	Token     string `json:"token,omitempty" jsonschema:"JWT of the user (scontrol token); not together with token_file"`
	TokenFile string `json:"token_file,omitempty" jsonschema:"file with the JWT, read again whenever it changes"`
	CAFile    string `json:"ca_file,omitempty" jsonschema:"certificates (PEM) that https answers are checked against; the machine's if empty"`
	// APIVersion fixes the version of the interface.
	APIVersion     string `json:"api_version,omitempty" jsonschema:"for example v0.0.38; the newest both sides know if empty"`
	TimeoutSeconds int64  `json:"timeout_seconds,omitempty" jsonschema:"how long slurmrestd may take for one answer; 8 if 0, at most 120"`

	Directory string `json:"directory" jsonschema:"folder at the cluster, on a file system all nodes share, where the user may write: attempts run and keep their output below it"`
	OutputDir string `json:"output_dir,omitempty" jsonschema:"where this driver's machine sees that folder; without it there are no logs"`

	Account    string              `json:"account,omitempty" jsonschema:"account jobs are charged to"`
	QOS        string              `json:"qos,omitempty" jsonschema:"quality of service of jobs"`
	Partitions []Partition         `json:"partitions,omitempty" jsonschema:"partitions jobs may use, the first for specifications of no partition; all, and Slurm's default one, if empty"`
	GRES       map[string]string   `json:"gres,omitempty" jsonschema:"generic resource by the platform's name: gpu: gpu, or gpu: gpu:h20; gpu: gpu if empty"`
	Models     map[string]GPUModel `json:"models,omitempty" jsonschema:"accelerators by their type in Slurm"`
	Images     map[string]Image    `json:"images,omitempty" jsonschema:"how images run, by ID; host, programs of the nodes, if empty"`
	Setup      []string            `json:"setup,omitempty" jsonschema:"lines of bash before every command, for example module load cuda/12"`
	Capacity   map[string]int64    `json:"capacity,omitempty" jsonschema:"most that jobs of the platform may use in all, by resource: cpu in thousandths, memory in bytes, pieces"`
	Requeue    bool                `json:"requeue,omitempty" jsonschema:"let Slurm start a preempted job again from its beginning; otherwise it ends as lost"`
	Accounting bool                `json:"accounting,omitempty" jsonschema:"ask slurmdbd for jobs that slurmctld has dropped; slurmrestd needs its openapi/dbv0.0.N"`
	Accounts   bool                `json:"accounts,omitempty" jsonschema:"make accounts of tenants in slurmdbd, where the user must be an administrator; slurmrestd needs its openapi/dbv0.0.N"`
	// PoolProgram offers shares of the accelerator pool.
	PoolProgram string `json:"pool_program,omitempty" jsonschema:"where the nodes have the program yunhe, for example /shared/bin/yunhe: with it, and output_dir, jobs can have shares of the accelerator pool"`
	// PoolFolder offers those of the pool's node on the job's machine.
	PoolFolder string            `json:"pool_folder,omitempty" jsonschema:"on machines with a node of that pool, the shared folder in its folder (DIR/shared), which users may look into: with it and pool_program jobs can have shares of their own machine's node, and programs of CUDA there the driver itself"`
	PoolNodes  map[string]string `json:"pool_nodes,omitempty" jsonschema:"by a node of Slurm's the pool's node on it, where that has another name; empty: it has none"`
	Cluster    string            `json:"cluster,omitempty" jsonschema:"what slurmdbd calls this cluster, for accounts; the only one it has if empty"`
	PollMillis int64             `json:"poll_milliseconds,omitempty" jsonschema:"pause between two looks at the jobs; 1000 if 0, 100 to 60000"`
}

// Partition is a partition jobs may use.
type Partition struct {
	Name  string `json:"name"`
	Spec  string `json:"spec,omitempty" jsonschema:"specification it is offered as; its name if empty"`
	Price int64  `json:"price" jsonschema:"fen per package and hour"`
	// Quantity declares the specification.
	Quantity map[string]int64 `json:"quantity,omitempty" jsonschema:"what one package has: cpu in thousandths, memory in bytes, pieces; declares the specification if it is not known"`
	Desc     string           `json:"desc,omitempty"`
	Account  string           `json:"account,omitempty"`
	QOS      string           `json:"qos,omitempty"`
	Setup    []string         `json:"setup,omitempty" jsonschema:"lines of bash before commands in this partition"`
}

// Image says how commands of an image run.
type Image struct {
	Prefix []string          `json:"prefix,omitempty" jsonschema:"words before the command, for example apptainer exec --nv /shared/torch.sif; the node's own programs if empty"`
	Env    map[string]string `json:"env,omitempty"`
	Setup  []string          `json:"setup,omitempty" jsonschema:"lines of bash before commands of this image"`
}

// GPUModel says what a type of Slurm's is.
type GPUModel struct {
	Vendor      string `json:"vendor,omitempty"`
	Model       string `json:"model,omitempty"`
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
}

var (
	// idRule is what an attempt or center may be called: it becomes the name of
	// a folder.
	idRule     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	slurmName  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,127}$`)
	apiVersion = regexp.MustCompile(`^v0\.0\.[0-9]{1,4}$`)
)

// complete fills in what is not given and returns every violation.
func (c *Config) complete(center string) error {
	var k core.Check
	if !idRule.MatchString(center) {
		k.Add("center", "must be letters, digits, _, - and . to be the name of a folder, got %q", center)
	}
	c.checkAccess(&k)
	if !path.IsAbs(c.Directory) || path.Clean(c.Directory) == "/" || strings.ContainsAny(c.Directory, "\x00\n") {
		k.Add("directory", "must be an absolute path at the cluster, got %q", c.Directory)
	}
	if c.OutputDir != "" && !path.IsAbs(c.OutputDir) {
		k.Add("output_dir", "must be an absolute path on this machine, got %q", c.OutputDir)
	}
	if c.PoolProgram != "" && (!path.IsAbs(c.PoolProgram) || strings.ContainsAny(c.PoolProgram, "\x00\n")) {
		k.Add("pool_program", "must be an absolute path at the cluster, got %q", c.PoolProgram)
	}
	if c.PoolFolder != "" && (!path.IsAbs(c.PoolFolder) || strings.ContainsAny(c.PoolFolder, "\x00\n")) {
		k.Add("pool_folder", "must be an absolute path at the nodes, got %q", c.PoolFolder)
	}
	if c.PoolFolder != "" && c.PoolProgram == "" {
		k.Add("pool_program", "must be set beside pool_folder")
	}
	for _, name := range slices.Sorted(maps.Keys(c.PoolNodes)) {
		if c.PoolFolder == "" {
			k.Add("pool_nodes."+clip(name, 100), "goes with pool_folder")
		}
	}
	if c.PoolProgram != "" && c.OutputDir == "" {
		k.Add("output_dir", "must be set beside pool_program: passes to shares come by it")
	}
	if c.TimeoutSeconds < 0 || c.TimeoutSeconds > 120 {
		k.Add("timeout_seconds", "must be 1 to 120, got %d", c.TimeoutSeconds)
	}
	if c.PollMillis != 0 && (c.PollMillis < 100 || c.PollMillis > 60000) {
		k.Add("poll_milliseconds", "must be 100 to 60000, got %d", c.PollMillis)
	}
	c.checkNames(&k)
	if len(c.Images) == 0 {
		c.Images = map[string]Image{"host": {}}
	}
	if len(c.GRES) == 0 {
		c.GRES = map[string]string{"gpu": "gpu"}
	}
	return k.Err()
}

func (c *Config) checkAccess(k *core.Check) {
	socket, isUnix := strings.CutPrefix(c.URL, "unix:")
	u, err := url.Parse(c.URL)
	switch {
	case isUnix && !path.IsAbs(strings.TrimPrefix(socket, "//")):
		k.Add("url", "must be unix: and the absolute path of a socket, got %q", c.URL)
	case isUnix:
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "":
		k.Add("url", "must be http://host:port, https://host or unix:/path, got %q", clip(c.URL, 100))
	}
	if c.Token != "" && c.TokenFile != "" {
		k.Add("token", "must not be given together with token_file")
	}
	if c.Token == "" && c.TokenFile == "" && !isUnix {
		k.Add("token_file", "must name a file with a token (scontrol token), or token must be one")
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		k.Add("token", "must be one word without spaces")
	}
	if (c.Token != "" || c.TokenFile != "") && c.User == "" || c.User != "" && !slurmName.MatchString(c.User) {
		k.Add("user", "must be the user the token is of, got %q", clip(c.User, 60))
	}
	if c.APIVersion != "" && !apiVersion.MatchString(c.APIVersion) {
		k.Add("api_version", "must be for example v0.0.38, got %q", clip(c.APIVersion, 60))
	}
}

func (c *Config) checkNames(k *core.Check) {
	name := func(at, v string, required bool) {
		if !slurmName.MatchString(v) && (required || v != "") {
			k.Add(at, "must be a name of Slurm's, got %q", clip(v, 60))
		}
	}
	name("account", c.Account, false)
	name("qos", c.QOS, false)
	name("cluster", c.Cluster, false)
	if c.Accounts && c.User == "" {
		k.Add("user", "must be set to make accounts for it")
	}
	specs := map[string]bool{}
	for i := range c.Partitions {
		p := &c.Partitions[i]
		at := fmt.Sprintf("partitions[%d].", i)
		if p.Spec == "" {
			p.Spec = p.Name
		}
		name(at+"name", p.Name, true)
		name(at+"account", p.Account, false)
		name(at+"qos", p.QOS, false)
		if len([]rune(p.Spec)) > 32 {
			k.Add(at+"spec", "must be at most 32 characters, got %d", len([]rune(p.Spec)))
		}
		if specs[p.Spec] {
			k.Add(at+"spec", "%q is offered twice", p.Spec)
		}
		if _, twice := c.Prices[p.Spec]; twice {
			k.Add(at+"spec", "%q has a price here and in prices", p.Spec)
		}
		specs[p.Spec] = true
		if p.Price < 0 {
			k.Add(at+"price", "must be at least 0, got %d", p.Price)
		}
		checkAmounts(k, at+"quantity", p.Quantity)
	}
	checkAmounts(k, "capacity", c.Capacity)
	for _, r := range slices.Sorted(maps.Keys(c.GRES)) {
		if r == "cpu" || r == "memory" || r == "storage" || !slurmName.MatchString(r) || !slurmName.MatchString(c.GRES[r]) {
			k.Add("gres", "must map a resource such as gpu to a generic resource such as gpu or gpu:h20, got %q: %q", clip(r, 60), clip(c.GRES[r], 60))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.Images)) {
		env := c.Images[id].Env
		for _, key := range slices.Sorted(maps.Keys(env)) {
			if !envName.MatchString(key) || strings.ContainsRune(env[key], 0) {
				k.Add("images."+id+".env", "has the name %q, which a shell cannot set", clip(key, 60))
			}
		}
	}
}

func checkAmounts(k *core.Check, at string, q map[string]int64) {
	for _, r := range slices.Sorted(maps.Keys(q)) {
		if q[r] < 0 {
			k.Add(at+"."+r, "must be at least 0, got %d", q[r])
		}
	}
}

func (c *Config) timeout() time.Duration {
	if c.TimeoutSeconds == 0 {
		return 8 * time.Second
	}
	return time.Duration(c.TimeoutSeconds) * time.Second
}

func (c *Config) poll() time.Duration {
	if c.PollMillis == 0 {
		return time.Second
	}
	return time.Duration(c.PollMillis) * time.Millisecond
}

// partition finds where an attempt of a specification goes.
func (c *Config) partition(spec string) (Partition, error) {
	for _, p := range c.Partitions {
		if p.Spec == spec {
			return p, nil
		}
	}
	if _, priced := c.Prices[spec]; !priced && spec != "" {
		return Partition{}, fmt.Errorf("specification %q is not offered here", clip(spec, 60))
	}
	if len(c.Partitions) > 0 {
		return c.Partitions[0], nil
	}
	return Partition{}, nil
}

// allows reports whether jobs may use a partition.
func (c *Config) allows(partition string) bool {
	return len(c.Partitions) == 0 || slices.ContainsFunc(c.Partitions, func(p Partition) bool { return p.Name == partition })
}
