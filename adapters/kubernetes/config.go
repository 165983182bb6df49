package kubernetes

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"yunhe.dev/yunhe/sdk/adapter"
)

// Config is the driver's configuration. The zero value is right for a driver
// that runs as a pod of the cluster it serves.
type Config struct {
	adapter.Declared

	// How the cluster is reached. With neither kubeconfig nor
	// kubeconfig_file the driver uses the service account of its own pod.
	Kubeconfig     string `json:"kubeconfig,omitempty" jsonschema:"text of a kubeconfig; what it refers to must be in it, not in files"`
	KubeconfigFile string `json:"kubeconfig_file,omitempty" jsonschema:"absolute path of a kubeconfig, read again when the cluster refuses what it says"`
	Context        string `json:"context,omitempty" jsonschema:"context of the kubeconfig, its current one if empty"`
	AllowExec      bool   `json:"allow_exec,omitempty" jsonschema:"lets a kubeconfig start the program it names to get credentials"`

	Namespace      string            `json:"namespace,omitempty" jsonschema:"where jobs run, yunhe if empty; made if it is not there"`
	ServiceAccount string            `json:"service_account,omitempty" jsonschema:"of the pods; they get no token of it"`
	Labels         map[string]string `json:"extra_labels,omitempty" jsonschema:"added to every object made"`

	Images          map[string]string `json:"images,omitempty" jsonschema:"image reference by image ID; another image ID is refused"`
	AnyImage        bool              `json:"any_image,omitempty" jsonschema:"an image ID that is an image reference is used as it is"`
	ImagePullPolicy string            `json:"image_pull_policy,omitempty" jsonschema:"Always, IfNotPresent (if empty) or Never"`
	ImagePullSecret []string          `json:"image_pull_secrets,omitempty" jsonschema:"names of secrets in the namespace"`

	PoolImage        string `json:"pool_image,omitempty" jsonschema:"image of yunhe, as make image makes it: with it runs can have shares of the platform's accelerator pool (Kubernetes 1.29 or later)"`
	PoolFolder       string `json:"pool_folder,omitempty" jsonschema:"on machines with a node of that pool, the shared folder in its folder (DIR/shared): with it and pool_image runs can have shares of their own machine's node, and programs of CUDA there the driver itself"`
	PoolRuntimeClass string `json:"pool_runtime_class,omitempty" jsonschema:"RuntimeClass of pods whose programs have the driver of CUDA themselves, the cluster's default one if empty"`

	Resources       []Mapping         `json:"resources,omitempty" jsonschema:"what extended resources count as; looked up before what is built in"`
	NodeSelector    map[string]string `json:"node_selector,omitempty" jsonschema:"labels of the nodes that belong to this center"`
	Tolerations     []Toleration      `json:"tolerations,omitempty" jsonschema:"taints of nodes that jobs may run on all the same"`
	PriorityClasses []PriorityClass   `json:"priority_classes,omitempty" jsonschema:"priority class by lowest priority of a job"`

	StorageClass  string `json:"storage_class,omitempty" jsonschema:"StorageClass of volumes, the cluster's default one if empty"`
	StorageAccess string `json:"storage_access,omitempty" jsonschema:"access mode of volumes: ReadWriteMany (if empty), or ReadWriteOnce where the class provides no other; runs that share one then run on one node"`

	PrometheusURL       string          `json:"prometheus_url,omitempty" jsonschema:"base address of a Prometheus that scrapes the cluster's kubelets and exporters of devices: use of jobs by counters, and of accelerators"`
	PrometheusTokenFile string          `json:"prometheus_token_file,omitempty" jsonschema:"absolute path of a file with the bearer token for it"`
	DeviceMetrics       []DeviceMetrics `json:"device_metrics,omitempty" jsonschema:"further exporters of devices beside NVIDIA's"`

	RunAsUser          int64 `json:"run_as_user,omitempty" jsonschema:"user ID of commands; with it pods keep the restricted security standard. 0: what the image says"`
	KeepNetworkOpen    bool  `json:"keep_network_open,omitempty" jsonschema:"makes no network policy for jobs without network"`
	StartPatience      int64 `json:"start_patience_seconds,omitempty" jsonschema:"how long an image may fail to load before the job has failed, 120 if 0"`
	RequestsPerSecond  int64 `json:"requests_per_second,omitempty" jsonschema:"most requests to the API server per second, 500 if 0"`
	ConcurrentRequests int64 `json:"concurrent_requests,omitempty" jsonschema:"most jobs created at a time, 32 if 0"`
}

// Mapping says what an extended resource of nodes counts as, and how a job
// that wants it asks for it.
type Mapping struct {
	Resource string `json:"resource" jsonschema:"of the platform, for example gpu, npu, mlu or dcu"`
	Extended string `json:"extended" jsonschema:"name at the nodes, for example nvidia.com/gpu"`
	Vendor   string `json:"vendor,omitempty" jsonschema:"for example NVIDIA"`
	Model    string `json:"model,omitempty" jsonschema:"if the name says it, for example Ascend910B"`
	// Slices: what every container that gets some of it asks for besides.
	With map[string]int64 `json:"with,omitempty" jsonschema:"further resources of each job that asks for it, for slices: for example nvidia.com/gpumem: 8000"`
}

// Toleration lets jobs run on nodes with a taint.
type Toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty" jsonschema:"Equal (if empty) or Exists"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty" jsonschema:"NoSchedule, PreferNoSchedule, NoExecute; all if empty"`
}

// PriorityClass is used by jobs of at least a priority.
type PriorityClass struct {
	From  int32  `json:"from" jsonschema:"lowest priority, -100 to 100"`
	Class string `json:"class" jsonschema:"name of a PriorityClass of the cluster"`
}

// builtin is what the usual device plug-ins call their devices. An entry of
// the configuration with the same extended name goes before.
var builtin = []Mapping{
	{Resource: "gpu", Extended: "nvidia.com/gpu", Vendor: "NVIDIA"},
	{Resource: "gpu", Extended: "amd.com/gpu", Vendor: "AMD"},
	{Resource: "npu", Extended: "huawei.com/Ascend910", Vendor: "Huawei", Model: "Ascend910"},
	{Resource: "npu", Extended: "huawei.com/Ascend910A", Vendor: "Huawei", Model: "Ascend910A"},
	{Resource: "npu", Extended: "huawei.com/Ascend910B", Vendor: "Huawei", Model: "Ascend910B"},
	{Resource: "npu", Extended: "huawei.com/Ascend910B2", Vendor: "Huawei", Model: "Ascend910B2"},
	{Resource: "npu", Extended: "huawei.com/Ascend910B3", Vendor: "Huawei", Model: "Ascend910B3"},
	{Resource: "npu", Extended: "huawei.com/Ascend910B4", Vendor: "Huawei", Model: "Ascend910B4"},
	{Resource: "npu", Extended: "huawei.com/Ascend310", Vendor: "Huawei", Model: "Ascend310"},
	{Resource: "npu", Extended: "huawei.com/Ascend310P", Vendor: "Huawei", Model: "Ascend310P"},
	{Resource: "mlu", Extended: "cambricon.com/mlu", Vendor: "Cambricon"},
	{Resource: "mlu", Extended: "cambricon.com/mlu370", Vendor: "Cambricon", Model: "MLU370"},
	{Resource: "mlu", Extended: "cambricon.com/mlu590", Vendor: "Cambricon", Model: "MLU590"},
	{Resource: "mlu", Extended: "cambricon.com/vmlu", Vendor: "Cambricon"},
	{Resource: "dcu", Extended: "hygon.com/dcu", Vendor: "Hygon"},
	{Resource: "dcu", Extended: "hygon.com/dcunum", Vendor: "Hygon"},
}

// mappings is the configured table with what is built in behind it.
func (c Config) mappings() []Mapping {
	out := slices.Clone(c.Resources)
	for _, m := range builtin {
		if !slices.ContainsFunc(c.Resources, func(own Mapping) bool { return own.Extended == m.Extended }) {
			out = append(out, m)
		}
	}
	return out
}

const (
	defaultNamespace = "yunhe"
	defaultPatience  = 120
	defaultRate      = 500
	defaultParallel  = 32
)

// plain are resources of the platform that are no pieces.
var plain = []string{resourceCPU, resourceMemory, resourceStorage}

// complete fills in what is left out and returns every violation at once.
func (c Config) complete() (Config, error) {
	if c.Namespace == "" {
		c.Namespace = defaultNamespace
	}
	if c.StartPatience == 0 {
		c.StartPatience = defaultPatience
	}
	if c.RequestsPerSecond == 0 {
		c.RequestsPerSecond = defaultRate
	}
	if c.ConcurrentRequests == 0 {
		c.ConcurrentRequests = defaultParallel
	}
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = "IfNotPresent"
	}
	if c.StorageAccess == "" {
		c.StorageAccess = string(corev1.ReadWriteMany)
	}
	c.PriorityClasses = slices.Clone(c.PriorityClasses)
	slices.SortStableFunc(c.PriorityClasses, func(a, b PriorityClass) int { return int(a.From) - int(b.From) })
	return c, errors.Join(c.violations()...)
}

func (c Config) violations() []error {
	var out []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			out = append(out, fmt.Errorf(format, args...))
		}
	}
	name := func(field, value string) {
		if why := validation.IsDNS1123Subdomain(value); value != "" && len(why) > 0 {
			bad(false, "%s must be a name of Kubernetes, got %q: %s", field, value, why[0])
		}
	}
	bad(c.Kubeconfig == "" || c.KubeconfigFile == "", "kubeconfig and kubeconfig_file must not both be set")
	bad(c.KubeconfigFile == "" || filepath.IsAbs(c.KubeconfigFile), "kubeconfig_file must be an absolute path, got %q", c.KubeconfigFile)
	bad(c.Context == "" || c.Kubeconfig+c.KubeconfigFile != "", "context needs kubeconfig or kubeconfig_file, got %q", c.Context)
	if why := validation.IsDNS1123Label(c.Namespace); len(why) > 0 {
		bad(false, "namespace must be a name of Kubernetes, got %q: %s", c.Namespace, why[0])
	}
	name("service_account", c.ServiceAccount)
	name("storage_class", c.StorageClass)
	bad(c.StorageAccess == string(corev1.ReadWriteMany) || c.StorageAccess == string(corev1.ReadWriteOnce), "storage_access must be ReadWriteMany or ReadWriteOnce, got %q", c.StorageAccess)
	for _, s := range c.ImagePullSecret {
		name("image_pull_secrets", s)
	}
	bad(c.PoolImage == "" || imageReference(c.PoolImage), "pool_image must be an image reference, got %q", c.PoolImage)
	bad(c.PoolFolder == "" || filepath.IsAbs(c.PoolFolder), "pool_folder must be an absolute path, got %q", c.PoolFolder)
	bad(c.PoolFolder == "" || c.PoolImage != "", "pool_folder needs pool_image, got %q", c.PoolFolder)
	bad(c.PoolRuntimeClass == "" || c.PoolFolder != "", "pool_runtime_class needs pool_folder, got %q", c.PoolRuntimeClass)
	name("pool_runtime_class", c.PoolRuntimeClass)
	bad(slices.Contains([]string{"Always", "IfNotPresent", "Never"}, c.ImagePullPolicy), "image_pull_policy must be Always, IfNotPresent or Never, got %q", c.ImagePullPolicy)
	for _, id := range slices.Sorted(maps.Keys(c.Images)) {
		bad(imageReference(c.Images[id]), "images.%s must be an image reference, got %q", id, c.Images[id])
	}
	labels := func(field string, set map[string]string) {
		for _, k := range slices.Sorted(maps.Keys(set)) {
			bad(len(validation.IsQualifiedName(k)) == 0 && len(validation.IsValidLabelValue(set[k])) == 0, "%s must be labels of Kubernetes, got %q: %q", field, k, set[k])
			bad(field == "node_selector" || !strings.HasPrefix(k, domain), "%s must not begin with %s, got %q", field, domain, k)
		}
	}
	labels("extra_labels", c.Labels)
	labels("node_selector", c.NodeSelector)
	for i, m := range c.Resources {
		at := fmt.Sprintf("resources[%d]", i)
		bad(m.Resource != "" && !slices.Contains(plain, m.Resource), "%s.resource must be pieces of something, got %q", at, m.Resource)
		bad(extendedName(m.Extended), "%s.extended must be the name of an extended resource such as nvidia.com/gpu, got %q", at, m.Extended)
		for _, k := range slices.Sorted(maps.Keys(m.With)) {
			bad(extendedName(k) && m.With[k] > 0, "%s.with must be positive quantities of extended resources, got %q: %d", at, k, m.With[k])
		}
	}
	for i, t := range c.Tolerations {
		bad(slices.Contains([]string{"", "Equal", "Exists"}, t.Operator), "tolerations[%d].operator must be Equal or Exists, got %q", i, t.Operator)
		bad(slices.Contains([]string{"", "NoSchedule", "PreferNoSchedule", "NoExecute"}, t.Effect), "tolerations[%d].effect must be NoSchedule, PreferNoSchedule or NoExecute, got %q", i, t.Effect)
		bad(t.Key != "" || t.Operator == "Exists", "tolerations[%d].key must be set unless the operator is Exists", i)
	}
	for i, p := range c.PriorityClasses {
		bad(p.From >= -100 && p.From <= 100, "priority_classes[%d].from must be -100 to 100, got %d", i, p.From)
		bad(p.Class != "", "priority_classes[%d].class must be set", i)
		name(fmt.Sprintf("priority_classes[%d].class", i), p.Class)
	}
	if c.PrometheusURL != "" {
		u, err := url.Parse(c.PrometheusURL)
		bad(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "", "prometheus_url must be http:// or https:// with a host, without user and query, got %q", c.PrometheusURL)
	}
	bad(c.PrometheusTokenFile == "" || filepath.IsAbs(c.PrometheusTokenFile), "prometheus_token_file must be an absolute path, got %q", c.PrometheusTokenFile)
	bad(c.PrometheusURL != "" || c.PrometheusTokenFile == "" && len(c.DeviceMetrics) == 0, "prometheus_token_file and device_metrics need prometheus_url")
	for i, m := range c.DeviceMetrics {
		for field, value := range map[string]string{"busy": m.Busy, "memory_used": m.MemoryUsed, "memory_free": m.MemoryFree, "memory_total": m.MemoryTotal} {
			bad(value == "" && field != "busy" || metricName.MatchString(value), "device_metrics[%d].%s must be the name of a metric, got %q", i, field, value)
		}
		for field, value := range map[string]string{"node": m.Node, "index": m.Index} {
			bad(labelName.MatchString(value), "device_metrics[%d].%s must be the name of a label, got %q", i, field, value)
		}
	}
	bad(c.RunAsUser >= 0 && c.RunAsUser < 1<<31, "run_as_user must be 0 to 2147483647, got %d", c.RunAsUser)
	bad(c.StartPatience > 0, "start_patience_seconds must not be negative, got %d", c.StartPatience)
	bad(c.RequestsPerSecond > 0 && c.RequestsPerSecond <= 100_000, "requests_per_second must be 1 to 100000, got %d", c.RequestsPerSecond)
	bad(c.ConcurrentRequests > 0 && c.ConcurrentRequests <= 1000, "concurrent_requests must be 1 to 1000, got %d", c.ConcurrentRequests)
	return out
}

// Names in Prometheus; they become parts of queries.
var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]{0,199}$`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,199}$`)
)

// extendedName reports whether name is one of an extended resource: with a
// domain that is not Kubernetes' own.
func extendedName(name string) bool {
	return strings.Contains(name, "/") && len(validation.IsQualifiedName(name)) == 0 && !strings.HasPrefix(name, "kubernetes.io/")
}

// reference is the form of image references: [host[:port]/]path[:tag][@digest].
var reference = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)

func imageReference(s string) bool { return len(s) <= 512 && reference.MatchString(s) }

// image returns the reference of an image ID, or why there is none.
func (c Config) image(id string) (ref, refusal string) {
	if ref, ok := c.Images[id]; ok {
		return ref, ""
	}
	if c.AnyImage && strings.ContainsAny(id, "/:@") {
		if imageReference(id) {
			return id, ""
		}
		return "", fmt.Sprintf("image %q is not the reference of an image", id)
	}
	if c.AnyImage {
		return "", fmt.Sprintf("image %q is neither known here nor an image reference such as name:tag", id)
	}
	return "", fmt.Sprintf("image %q is not known here: an operator adds it to images in the center's configuration", id)
}

// credentials returns how the cluster is reached and a text that changes when
// that does. It reads files if the configuration names one.
func (c Config) credentials() (*rest.Config, string, error) {
	if c.Kubeconfig == "" && c.KubeconfigFile == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, "", fmt.Errorf("without kubeconfig or kubeconfig_file the driver must run in a pod of the cluster: %w", err)
		}
		return cfg, "pod", nil // client-go reads a renewed token by itself
	}
	field, text := "kubeconfig", []byte(c.Kubeconfig)
	if c.KubeconfigFile != "" {
		field = "kubeconfig_file"
		var err error
		if text, err = os.ReadFile(c.KubeconfigFile); err != nil {
			return nil, "", fmt.Errorf("kubeconfig_file cannot be read: %w", err)
		}
	}
	raw, err := clientcmd.Load(text)
	if err != nil {
		return nil, "", fmt.Errorf("%s is not a kubeconfig: %w", field, err)
	}
	if c.KubeconfigFile != "" {
		for _, cl := range raw.Clusters {
			cl.LocationOfOrigin = c.KubeconfigFile
		}
		for _, u := range raw.AuthInfos {
			u.LocationOfOrigin = c.KubeconfigFile
		}
		if err := clientcmd.ResolveLocalPaths(raw); err != nil {
			return nil, "", fmt.Errorf("kubeconfig_file: %w", err)
		}
	}
	if err := c.allowed(field, raw); err != nil {
		return nil, "", err
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("%s cannot be used: %w", field, err)
	}
	return cfg, string(text), nil
}

// allowed refuses what would make a kubeconfig reach into the machine of the
// driver: whoever writes the configuration need not be its administrator.
func (c Config) allowed(field string, raw *clientcmdapi.Config) error {
	current := c.Context
	if current == "" {
		current = raw.CurrentContext
	}
	ctx := raw.Contexts[current]
	if ctx == nil {
		return fmt.Errorf("%s has no context %q; it has: %s", field, current, strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", "))
	}
	if cl := raw.Clusters[ctx.Cluster]; cl == nil || cl.Server == "" {
		return fmt.Errorf("%s: context %q names no cluster with a server", field, current)
	} else if cl.CertificateAuthority != "" && c.Kubeconfig != "" {
		return fmt.Errorf("%s must not name files: put certificate-authority-data in place of certificate-authority", field)
	}
	user := raw.AuthInfos[ctx.AuthInfo]
	if user == nil {
		return nil
	}
	if c.Kubeconfig != "" && user.ClientCertificate+user.ClientKey+user.TokenFile != "" {
		return fmt.Errorf("%s must not name files: put token, client-certificate-data and client-key-data in it", field)
	}
	if user.Exec != nil && !c.AllowExec {
		return fmt.Errorf("%s starts %q to get credentials: set allow_exec, or use a token of a service account", field, user.Exec.Command)
	}
	if user.AuthProvider != nil {
		return fmt.Errorf("%s uses the auth provider %q, which Kubernetes has dropped: use a token, a certificate or exec", field, user.AuthProvider.Name)
	}
	return nil
}
