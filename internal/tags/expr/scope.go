package expr

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"cel.dev/cel-go/cel"
)

// Scope is a set of variables.
type Scope int

// The scopes: what is known of an object of each kind. Placement is what of a
// center a job may ask for: what does not change while a plan is made.
const (
	Placement Scope = iota
	Platform
	Center
	Node
	Resource
	Spec
	Image
	// What is known of resources of each kind when their access is judged.
	AccessCenter
	AccessNode
	AccessResource
	// What a scheduling policy may read of a job when it is matched, and of a
	// center too when the center is filtered or scored for the job.
	PolicyJob
	PolicyCenter
	scopes
)

// Variable is something an expression may read.
type Variable struct {
	Name string
	Type string // as CEL writes it
	Doc  string
	Live bool // changes while work runs
}

var (
	text    = cel.StringType
	whole   = cel.IntType
	yes     = cel.BoolType
	degrees = cel.DoubleType
	texts   = cel.ListType(cel.StringType)
	pairs   = cel.MapType(cel.StringType, cel.StringType)
	counts  = cel.MapType(cel.StringType, cel.IntType)
	object  = cel.MapType(cel.StringType, cel.DynType)
)

type variable struct {
	name string
	kind *cel.Type
	doc  string
	live bool
}

var (
	common = []variable{
		{"id", text, "the identifier", false},
		{"name", text, "the name for people", false},
		{"labels", pairs, "free-form labels", false},
		{"tags", pairs, "tags by key, inherited ones included; in a rule those that people set", false},
	}
	placement = []variable{
		{"region", text, "the region", false},
		{"security_grade", whole, "0 to 5", false},
		{"adapter", text, "which adapter reaches it, such as \"gateway\"", false},
		{"performance", whole, "measured; 1000 is the reference machine, 0: not measured", false},
		{"static_milliwatts_per_cpu", whole, "held while data is copied", false},
		{"active_milliwatts_per_cpu", whole, "while tasks execute", false},
		{"capacity", counts, "what it has: cpu in cores, memory and storage in GiB, others in pieces", false},
		{"located", yes, "whether its place is known", false},
		{"longitude", degrees, "degrees; 0 if not known", false},
		{"latitude", degrees, "degrees; 0 if not known", false},
		{"specs", texts, "specifications it offers", false},
		{"images", texts, "images that can be used there", false},
	}
	machine = []variable{
		{"accelerators", cel.ListType(object), "its accelerators: vendor, model, count, memory (GiB of each), resource", false},
		{"models", texts, "models of its accelerators, sorted", false},
		{"main_model", text, "the model it has most of; \"\": none", false},
		{"main_vendor", text, "the vendor of that; \"\": none", false},
	}
	center = []variable{
		{"drained", yes, "whether an operator took it out of use", false},
		{"nodes", counts, "nodes: ready, not_ready, drained, total", false},
		{"status", text, "available, unavailable or unknown", true},
		{"running", whole, "replicas that run", true},
		{"waiting", whole, "replicas sent and not yet running", true},
		{"used", counts, "held by replicas, units as of capacity", true},
		{"free", counts, "not held by replicas, units as of capacity", true},
		{"measured", yes, "whether the figures below are of the last minute", true},
		{"cpu_busy_percent", whole, "of all cores, as the machine measured; 0 if not measured", true},
		{"memory_busy_percent", whole, "as the machine measured", true},
		{"storage_busy_percent", whole, "as the machine measured", true},
	}
	node = []variable{
		{"center", text, "its center", false},
		{"region", text, "of its center", false},
		{"state", text, "ready, not_ready or drained", false},
		{"architecture", text, "such as \"amd64\"", false},
		{"operating_system", text, "", false},
		{"capacity", counts, "cpu in cores, memory and storage in GiB, others in pieces", false},
		{"allocatable", counts, "what of it jobs may use", false},
	}
	resource = []variable{
		{"type", text, "such as \"compute\"", false},
		{"parent", text, "what it is part of", false},
		{"center", text, "the center it belongs to; \"\": none", false},
		{"region", text, "", false},
		{"provider", text, "the service provider", false},
		{"state", text, "registered, available, unavailable, maintenance or retired", false},
		{"attributes", object, "as the schema of its type says", false},
	}
	spec = []variable{
		{"capacity", counts, "cpu in cores, memory and storage in GiB, others in pieces", false},
		{"price", whole, "list price, fen per hour", false},
		{"service_types", texts, "interactive, batch, streaming, others", false},
		{"centers", texts, "centers that offer it", false},
	}
	image = []variable{
		{"center", text, "the owner; \"\": the platform", false},
		{"base_os", text, "", false},
		{"cuda_version", text, "", false},
		{"driver_version", text, "", false},
		{"framework", text, "comma separated", false},
		{"everywhere", yes, "usable at every center", false},
		{"centers", texts, "otherwise where", false},
	}
)

// policyJob is what policies read of a job, and of the clock.
var policyJob = []variable{
	{"job.tenant", text, "the tenant", false},
	{"job.user", text, "who submitted it", false},
	{"job.labels", pairs, "its labels", false},
	{"job.business", text, "its business type: the label \"business\"; \"\": none", false},
	{"job.priority", whole, "-100 to 100", false},
	{"job.gang", yes, "whether all replicas are placed at once or none", false},
	{"job.replicas", whole, "that wait", false},
	{"job.kinds", texts, "compute kinds of its tasks: cpu, gpu, npu, mlu; sorted", false},
	{"job.specs", texts, "specifications of its tasks, sorted", false},
	{"job.images", texts, "images of its tasks, sorted", false},
	{"job.datasets", texts, "datasets its tasks read, sorted", false},
	{"job.regions", texts, "regions it may go to, sorted; none: any", false},
	{"job.centers", texts, "centers it may go to, sorted; none: any", false},
	{"job.tasks", cel.ListType(object), "tasks that wait: spec, image, kind, replicas, run_seconds, min_security_grade, max_price (fen per hour, 0: none), request (units as of capacity), regions, centers, datasets", false},
	{"time.hour", whole, "0 to 23, UTC", true},
	{"time.minute", whole, "0 to 59", true},
	{"time.weekday", whole, "1 (Monday) to 7, UTC", true},
}

// policyCenter is what policies read of a center besides its placement facts.
var policyCenter = []variable{
	{"status", text, "available, unavailable, unknown or draining", true},
	{"running", whole, "replicas that run", true},
	{"waiting", whole, "replicas sent and not yet running", true},
	{"free", counts, "not held by replicas, units as of capacity", true},
	{"prices", counts, "by specification, fen per hour", true},
}

// untagged is common without tags: access is judged without them.
var untagged = common[:3]

// accessCenter is what decides whether a center meets the conditions of access.
var accessCenter = []variable{
	{"region", text, "the region", false},
	{"located", yes, "whether its place is known", false},
	{"longitude", degrees, "degrees; 0 if not known", false},
	{"latitude", degrees, "degrees; 0 if not known", false},
	{"security_grade", whole, "0 to 5", false},
	{"performance", whole, "measured; 1000 is the reference machine, 0: not measured", false},
	{"capacity", counts, "what it has: cpu in cores, memory and storage in GiB, others in pieces", false},
	{"adapter", text, "which plug-in reaches it, such as \"gateway\"", false},
	{"class", text, "of compute, see yunhe access classes", false},
	{"class_plugins", texts, "how centers of its class are connected", false},
	{"version", text, "of the plug-in or gateway; \"\": not known", false},
	{"connection", text, "up, standby, starting, trouble, down, disabled; \"\": nothing reaches it", true},
	{"source_type", text, "public_cloud, dedicated_cloud, edge_cloud, hybrid_cloud, machine, container_cluster, batch_cluster, other", false},
	{"status", text, "available, unavailable or unknown", true},
	{"drained", yes, "whether an operator took it out of use", false},
	{"nodes", counts, "nodes: ready, not_ready, drained, total", true},
	{"architectures", texts, "of its nodes; \"\": not known", false},
	{"models", texts, "models of its accelerators", false},
	{"seen", yes, "whether it was ever heard of", false},
	{"seen_seconds", whole, "since it was last heard of", true},
	{"measured", yes, "whether it measures anything", true},
	{"refused", texts, "figures that were refused because they cannot be", true},
	{"clock_known", yes, "whether its clock is known", true},
	{"clock_skew_seconds", degrees, "how far its clock is behind; negative: ahead", true},
	{"path_known", yes, "whether a path was measured; of several the worst figures count", true},
	{"latency_ms", degrees, "round trip", true},
	{"jitter_ms", degrees, "", true},
	{"loss_percent", degrees, "", true},
	{"bandwidth_mbps", degrees, "0: not measured", true},
}

var declared = [scopes][]variable{
	Placement: slices.Concat(common, placement),
	Platform:  common,
	Center:    slices.Concat(common, placement, machine, center),
	Node:      slices.Concat(common, node, machine),
	Resource:  slices.Concat(common, resource),
	Spec:      slices.Concat(common, spec),
	Image:     slices.Concat(common, image),

	AccessCenter:   slices.Concat(untagged, accessCenter),
	AccessNode:     slices.Concat(untagged, node, machine),
	AccessResource: slices.Concat(untagged, resource),

	PolicyJob:    policyJob,
	PolicyCenter: slices.Concat(common, placement, policyCenter, policyJob),
}

// Variables lists what expressions of the scope may read.
func (s Scope) Variables() []Variable {
	var out []Variable
	for _, v := range declared[s] {
		out = append(out, Variable{v.name, v.kind.String(), v.doc, v.live})
	}
	return out
}

// Facts returns the variables of the scope with values that say nothing: "",
// 0, false, no entries. They are the caller's.
func (s Scope) Facts() Facts {
	f := make(Facts, len(declared[s]))
	for _, v := range declared[s] {
		switch v.kind {
		case text:
			f[v.name] = ""
		case whole:
			f[v.name] = int64(0)
		case yes:
			f[v.name] = false
		case degrees:
			f[v.name] = float64(0)
		case texts:
			f[v.name] = []string{}
		case pairs:
			f[v.name] = map[string]string{}
		case counts:
			f[v.name] = map[string]int64{}
		case object:
			f[v.name] = map[string]any{}
		default:
			f[v.name] = []any{}
		}
	}
	return f
}

func (s Scope) variables() map[string]bool { return known[s] }

func (s Scope) live(name string) bool {
	return slices.ContainsFunc(declared[s], func(v variable) bool { return v.live && v.name == name })
}

var known = func() (out [scopes]map[string]bool) {
	for s := range out {
		out[s] = map[string]bool{}
		for _, v := range declared[s] {
			out[s][v.name] = true
		}
	}
	return out
}()

func (s Scope) env() (*cel.Env, error) {
	if s < 0 || s >= scopes {
		return nil, fmt.Errorf("there is no scope %d", s)
	}
	return envs[s]()
}

// envs are made when first used: each takes about a millisecond.
var envs = func() (out [scopes]func() (*cel.Env, error)) {
	base := sync.OnceValues(func() (*cel.Env, error) {
		return cel.NewEnv(
			cel.CrossTypeNumericComparisons(true), cel.EnableMacroCallTracking(), cel.EagerlyValidateDeclarations(true),
			cel.ParserExpressionSizeLimit(MaxLength), cel.ParserRecursionLimit(maxDepth), cel.ParserErrorRecoveryLimit(4), cel.ExpressionNodeLimit(maxNodes),
			cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateComprehensionNestingLimit(2)),
		)
	})
	for s := range out {
		out[s] = sync.OnceValues(func() (*cel.Env, error) {
			env, err := base()
			if err != nil {
				return nil, err
			}
			var opts []cel.EnvOption
			for _, v := range declared[s] {
				opts = append(opts, cel.Variable(v.name, v.kind))
			}
			return env.Extend(opts...)
		})
	}
	return out
}()

// Merge returns f with some values replaced; f is not changed.
func (f Facts) Merge(with Facts) Facts {
	out := maps.Clone(f)
	maps.Copy(out, with)
	return out
}
