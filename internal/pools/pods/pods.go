// Package pods has pods of Kubernetes use the accelerator pool: it says what a
// pod becomes that asks for shares among its containers' limits.
//
// What it keeps true: a pod that asks for nothing is left alone; one that asks
// for what cannot be is refused whole, with every reason; asking changes nothing
// anywhere, so that a dry run is like any other.
//
// No node of a cluster has what is asked for, so the limits are taken out. A
// container beside (an init container that goes on) has the slice as long as the
// pod lives, and puts what programs need to find it into a volume. It starts
// before the others, which wait until the slice has a place.
//
// A pod that says so has its slices on the machine that it runs on: it goes to such
// machines only, and its containers are shown the socket that the pool's node there
// shares. Programs of CUDA have the driver themselves then.
package pods

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// What a container asks for among its limits, and a pod among its annotations.
const (
	Prefix      = "yunhe.dev/pool-"
	Compute     = Prefix + "compute" // percent of each card's time
	Memory      = Prefix + "memory"  // MiB of each card
	Cards       = Prefix + "cards"   // how many; 1 if it is not said
	Annotations = "pool.yunhe.dev/"
	// NodeLabel is a label of the machines of a cluster that have a node of the pool: its value is "true".
	NodeLabel = Annotations + "node"
)

const (
	dir      = "/yunhe-pool"
	preload  = "LD_PRELOAD"
	ours     = "yunhe-pool-"      // names of containers and volumes, before the container's they are for
	shared   = "yunhe-node"       // name of the volume that is the shared folder of the machine's node, no container's
	nodeDir  = "/yunhe-pool-node" // where containers are shown that
	maxCards = 16
	maxMiB   = 1 << 30
	goesOn   = "Always"
)

// flags are the annotations, and what they are of "yunhe pool run".
var flags = map[string]string{
	"api": "--api", "group": "--group", "spec": "--spec", "model": "--model", "priority": "--priority", "weighted": "--weighted", "across-nodes": "--across-nodes", "node": "--on", "idle": "--idle", "local": "--local",
}

// switches are those of them that are said by "true" and "false".
var switches = []string{"across-nodes", "local", "weighted"}

// Options say what is put beside a container.
type Options struct {
	Image  string // of Yunhe
	Server string // the platform's address, as pods reach it
	Secret string // of the pod's namespace: its entry "key" is the API key whose user asks for slices

	NodeFolder   string // the shared folder of the pool's node on machines that have [NodeLabel]; "": pods have no slices on their own machine
	RuntimeClass string // of pods whose programs have the driver of CUDA themselves, if they name none; "": the cluster's
}

// pod is what of a pod matters here. What it has besides is not touched.
type pod struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Containers     []container       `json:"containers"`
		InitContainers []container       `json:"initContainers"`
		Volumes        []json.RawMessage `json:"volumes"`
		NodeSelector   map[string]string `json:"nodeSelector"`
		RuntimeClass   string            `json:"runtimeClassName"`
	} `json:"spec"`
}

type container struct {
	Name          string `json:"name"`
	RestartPolicy string `json:"restartPolicy"` // of an init container; goesOn: it goes on beside the others
	Resources     struct {
		Limits   map[string]any `json:"limits"`
		Requests map[string]any `json:"requests"`
	} `json:"resources"`
	Env          []variable `json:"env"`
	VolumeMounts []mount    `json:"volumeMounts"`
}

// mount is where a container is shown a volume.
type mount struct {
	Path string `json:"mountPath"`
}

// variable is one of a container's environment.
type variable struct {
	Name string `json:"name"`
}

// Op is an operation of a JSON patch.
type Op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// way is how the containers of a pod have their slices.
type way struct {
	Options
	cuda  bool
	local bool // on the machine's own node
	exact bool // each container is given just what it may use
}

// Patch says what a pod becomes; nil if it asks for nothing.
func Patch(object []byte, o Options) ([]Op, error) {
	var p pod
	if err := json.Unmarshal(object, &p); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the pod cannot be read")
	}
	var check core.Check
	said := p.annotations(&check)
	var out []Op
	var sides []any
	w := &way{Options: o, cuda: said["api"] == pool.CUDA, local: said["local"] == "true", exact: p.exact()}
	p.goesLocal(&check, w, said)
	for _, all := range []struct {
		name string
		of   []container
	}{{"initContainers", p.Spec.InitContainers}, {"containers", p.Spec.Containers}} {
		for i := range all.of {
			c := &all.of[i]
			asked := c.asked()
			if len(asked) == 0 {
				continue
			}
			at := fmt.Sprintf("spec.%s[%d]", all.name, i)
			if all.name == "initContainers" && c.RestartPolicy != goesOn {
				check.Add(at+".resources.limits", "must not ask for %s…: slices are held as long as the pod lives, so an init container has one only if its restartPolicy is %s", Prefix, goesOn)
				continue
			}
			args := c.args(&check, at+".resources.limits", asked, said)
			c.fits(&check, at, asked, w)
			out = append(out, c.ops("/spec/"+all.name+"/"+strconv.Itoa(i), asked, w)...)
			sides = append(sides, beside(c.Name, args, w))
		}
	}
	if check.Err() != nil {
		return nil, check.Err()
	}
	if len(sides) == 0 {
		if len(said) > 0 {
			check.Add("metadata.annotations", "%s… are for containers that ask for %s and %s, and none does", Annotations, Compute, Memory)
		}
		return nil, check.Err()
	}
	if p.Spec.Volumes == nil {
		out = append(out, Op{"add", "/spec/volumes", []any{}})
	}
	if p.Spec.InitContainers == nil {
		out = append(out, Op{"add", "/spec/initContainers", []any{}})
	}
	if w.local {
		out = append(out, p.localOps(w)...)
	}
	for i, side := range sides { // before the pod's own, which may compute
		out = append(out, Op{"add", "/spec/initContainers/" + strconv.Itoa(i), side})
		out = append(out, Op{"add", "/spec/volumes/-", map[string]any{"name": side.(map[string]any)["name"], "emptyDir": map[string]any{}}})
	}
	return out, nil
}

// goesLocal checks that a pod can have its slices on its own machine, if it is to.
func (p *pod) goesLocal(check *core.Check, w *way, said map[string]string) {
	if !w.local {
		return
	}
	at := "metadata.annotations[" + Annotations + "local]"
	if w.NodeFolder == "" {
		check.Add(at, `is not offered in this cluster: its operator has to start the webhook with --node-folder, and to give machines with a node of the pool the label %s: "true"`, NodeLabel)
	}
	if said["across-nodes"] == "true" {
		check.Add(at, "does not go with %sacross-nodes: its slices are on the node of the machine on which the pod runs", Annotations)
	}
	if said["node"] != "" {
		check.Add(at, "does not go with %snode: the machine on which the pod runs says which node it is, and spec.nodeSelector which machine", Annotations)
	}
	if is, has := p.Spec.NodeSelector[NodeLabel]; has && is != "true" {
		check.Add("spec.nodeSelector["+NodeLabel+"]", `must be "true" with %slocal, got %q`, Annotations, is)
	}
}

// localOps have a pod run on a machine with a node of the pool, whose shared folder is a volume of it.
func (p *pod) localOps(w *way) []Op {
	out := []Op{{"add", "/spec/volumes/-", map[string]any{"name": shared, "hostPath": map[string]any{"path": w.NodeFolder, "type": "Directory"}}}}
	if p.Spec.NodeSelector == nil {
		out = append(out, Op{"add", "/spec/nodeSelector", map[string]any{}})
	}
	out = append(out, Op{"add", "/spec/nodeSelector/" + escaped(NodeLabel), "true"})
	if w.cuda && w.RuntimeClass != "" && p.Spec.RuntimeClass == "" {
		out = append(out, Op{"add", "/spec/runtimeClassName", w.RuntimeClass})
	}
	return out
}

// escaped is a name as a path of a patch has it.
func escaped(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// annotations are those that are for the pool, by their names.
func (p *pod) annotations(check *core.Check) map[string]string {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(p.Metadata.Annotations)) {
		key, is := strings.CutPrefix(name, Annotations)
		if !is {
			continue
		}
		value := p.Metadata.Annotations[name]
		at := "metadata.annotations[" + name + "]"
		switch {
		case slices.Contains(switches, key):
			if value != "true" && value != "false" {
				check.Add(at, `must be "true" or "false", got %q`, value)
			}
		case key == "api":
			if value != pool.OpenCL && value != pool.CUDA {
				check.Add(at, "must be %q or %q, got %q", pool.OpenCL, pool.CUDA, value)
			}
		case key == "priority":
			if n, err := strconv.Atoi(value); err != nil || n < 0 || n > 100 {
				check.Add(at, "must be a number from 0 to 100, got %q", value)
			}
		default:
			if flags[key] == "" {
				check.Add(at, "is not known; there are %s%s", Annotations, strings.Join(slices.Sorted(maps.Keys(flags)), ", "+Annotations))
			} else if value == "" {
				check.Add(at, "must not be empty")
			}
		}
		out[key] = value
	}
	return out
}

// asked is what a container asks for of the pool.
func (c *container) asked() map[string]any {
	out := map[string]any{}
	for name, amount := range c.Resources.Limits {
		if strings.HasPrefix(name, Prefix) {
			out[name] = amount
		}
	}
	for name, amount := range c.Resources.Requests { // of such resources both are one
		if _, has := out[name]; !has && strings.HasPrefix(name, Prefix) {
			out[name] = amount
		}
	}
	return out
}

// args are those of "yunhe pool run" that ask for what a container asks for.
func (c *container) args(check *core.Check, at string, asked map[string]any, said map[string]string) []string {
	args := []string{"pool", "run", "--platform", "--into", dir}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		most := map[string]int64{Compute: 100, Memory: maxMiB, Cards: maxCards}[name]
		if most == 0 {
			check.Add(at+"["+name+"]", "is not known; there are %s, %s and %s", Compute, Memory, Cards)
			continue
		}
		text := fmt.Sprint(asked[name])
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 || n > most {
			check.Add(at+"["+name+"]", "must be a whole number from 1 to %d, got %q", most, text)
			continue
		}
		switch name {
		case Compute:
			args = append(args, "--compute", text)
		case Memory:
			args = append(args, "--memory", text+"MiB")
		case Cards:
			args = append(args, "--cards", text)
		}
	}
	_, compute := asked[Compute]
	_, memory := asked[Memory]
	switch {
	case said["spec"] != "" && (compute || memory):
		check.Add(at, "must have %s only, as the annotation %sspec says how much each is", Cards, Annotations)
	case said["spec"] == "" && !(compute && memory):
		check.Add(at, "must have %s and %s, or the pod the annotation %sspec", Compute, Memory, Annotations)
	}
	for _, key := range slices.Sorted(maps.Keys(said)) {
		switch {
		case !slices.Contains(switches, key):
			args = append(args, flags[key]+"="+said[key])
		case said[key] == "true" && key == "local":
			args = append(args, flags[key], "only", "--node-socket", nodeDir+"/"+path.Base(pool.SharedSocket))
		case said[key] == "true":
			args = append(args, flags[key])
		}
	}
	return args
}

// fits checks that the container can be given what it asks for.
func (c *container) fits(check *core.Check, at string, asked map[string]any, w *way) {
	if len(ours)+len(c.Name) > 63 {
		check.Add(at+".name", "must be at most %d characters long to have a container beside it, got %d", 63-len(ours), len(c.Name))
	}
	if !w.cuda {
		return
	}
	if c.sets(preload) {
		check.Add(at+".env", "must not set %s, by which programs of CUDA find the slice", preload)
	}
	if n, has := asked[Cards]; has && fmt.Sprint(n) != "1" && !w.local {
		check.Add(at+".resources.limits["+Cards+"]", `must be 1 for programs of CUDA, which find one device, unless the pod has the annotation %slocal: "true", got %q`, Annotations, fmt.Sprint(n))
	}
}

// sets reports whether the container's environment is said to have a variable.
func (c *container) sets(name string) bool {
	return slices.ContainsFunc(c.Env, func(e variable) bool { return e.Name == name })
}

// exact reports whether each container is given just what it may use of processors and
// memory: Kubernetes treats such a pod better (its QoS class is Guaranteed).
func (p *pod) exact() bool {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, name := range []string{core.CPU, core.Memory} {
			limit, err := core.ParseQuantity(name, fmt.Sprint(c.Resources.Limits[name]))
			if err != nil {
				return false
			}
			if said, has := c.Resources.Requests[name]; has {
				if request, err := core.ParseQuantity(name, fmt.Sprint(said)); err != nil || request != limit {
					return false
				}
			}
		}
	}
	return true
}

// ops take out what was asked for, and have the container at a path find the slice.
func (c *container) ops(at string, asked map[string]any, w *way) (out []Op) {
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if _, has := c.Resources.Limits[name]; has {
			out = append(out, Op{Op: "remove", Path: at + "/resources/limits/" + escaped(name)})
		}
		if _, has := c.Resources.Requests[name]; has {
			out = append(out, Op{Op: "remove", Path: at + "/resources/requests/" + escaped(name)})
		}
	}
	if c.Env == nil {
		out = append(out, Op{"add", at + "/env", []any{}})
	}
	if c.VolumeMounts == nil {
		out = append(out, Op{"add", at + "/volumeMounts", []any{}})
	}
	env := [][2]string{{"OCL_ICD_VENDORS", dir + "/" + pool.Vendors}, {pool.FileVariable, dir + "/" + pool.SliceFile}}
	switch {
	case w.cuda && w.local: // the driver is the machine's, which a runtime of NVIDIA's shows who sets these
		env = append(env, [2]string{preload, dir + "/" + pool.CUDABefore})
		for _, e := range pool.DriverShown() {
			if !c.sets(e[0]) {
				env = append(env, e)
			}
		}
	case w.cuda:
		env = append(env, [2]string{preload, dir + "/" + pool.CUDALoaded})
	}
	for _, e := range env {
		out = append(out, Op{"add", at + "/env/-", map[string]any{"name": e[0], "value": e[1]}})
	}
	out = append(out, Op{"add", at + "/volumeMounts/-", map[string]any{"name": ours + c.Name, "mountPath": dir, "readOnly": true}})
	if w.local {
		out = append(out, Op{"add", at + "/volumeMounts/-", nodeMount()})
	}
	if w.cuda {
		return out
	}
	var mounted []string
	for _, m := range c.VolumeMounts {
		mounted = append(mounted, m.Path)
	}
	for _, place := range pool.LoaderPlaces(mounted) {
		out = append(out, Op{"add", at + "/volumeMounts/-", map[string]any{"name": ours + c.Name, "mountPath": place, "subPath": pool.LoaderFile, "readOnly": true}})
	}
	return out
}

// nodeMount shows a container the shared folder of its machine's node.
func nodeMount() map[string]any {
	return map[string]any{"name": shared, "mountPath": nodeDir, "readOnly": true}
}

// beside is the container that has a container's slice. Where each is given just what it may
// use, so is it.
func beside(name string, args []string, w *way) map[string]any {
	resources := map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "128Mi"}, "limits": map[string]any{"cpu": "1", "memory": "256Mi"}}
	if w.exact {
		resources = map[string]any{"limits": map[string]any{"cpu": "250m", "memory": "256Mi"}}
	}
	secret := map[string]any{"secretKeyRef": map[string]any{"name": w.Secret, "key": "key"}}
	mounts := []any{map[string]any{"name": ours + name, "mountPath": dir}}
	if w.local {
		mounts = append(mounts, nodeMount())
	}
	return map[string]any{
		"name": ours + name, "image": w.Image, "args": args,
		"restartPolicy": "Always", "terminationMessagePolicy": "FallbackToLogsOnError",
		"env":          []any{map[string]any{"name": "YUNHE_SERVER", "value": w.Server}, map[string]any{"name": "YUNHE_KEY", "valueFrom": secret}},
		"volumeMounts": mounts,
		// A slice may wait in the queue for as long as it takes.
		"startupProbe": map[string]any{"exec": map[string]any{"command": []any{"/yunhe", "pool", "ready", dir}}, "periodSeconds": 1, "failureThreshold": 1 << 30},
		"resources":    resources,
		"securityContext": map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}, "runAsNonRoot": true, "runAsUser": 65532,
			"readOnlyRootFilesystem": true, "seccompProfile": map[string]any{"type": "RuntimeDefault"}},
	}
}
