package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Largest inputs, in bytes.
const (
	MaxDocument = 128 << 20 // YAML or JSON
	MaxTable    = 1 << 30   // CSV
)

// Input is what a file holds: any part of what a simulation needs.
type Input struct {
	Fleet
	Workload
	// Recorded says how the platform decided that was recorded; nil: the input is
	// of no platform.
	Recorded *Recording
}

// Form of an input file.
type Form int

// The forms.
const (
	Document Form = iota // YAML or JSON: nodes, centers, jobs, all that there is
	Table                // CSV
	Steps                // jobs of a gavel trace
)

// FormOf tells the form of a file by its name.
func FormOf(name string) Form {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return Document
	case ".trace":
		return Steps
	}
	return Table
}

// ReadFleet reads nodes from CSV, or what a document holds.
func ReadFleet(form Form, in io.Reader) (*Input, error) {
	switch form {
	case Steps:
		return nil, fault.New(fault.Invalid, "a trace has no nodes; nodes come from CSV, YAML or JSON")
	case Document:
		return readDocument(in, true)
	}
	nodes, err := readNodes(&limited{in, MaxTable})
	return &Input{Fleet: Fleet{Nodes: nodes}}, err
}

// ReadJobs reads jobs from CSV, from a trace or from a document. Throughputs
// are needed by traces only; without times, jobs need no arrival and no
// duration, since they arrive in an order that is drawn.
func ReadJobs(form Form, in io.Reader, speeds *Throughputs, times bool) (*Input, error) {
	switch form {
	case Document:
		return readDocument(in, times)
	case Steps:
		jobs, err := readSteps(&limited{in, MaxTable}, speeds)
		return &Input{Workload: Workload{Jobs: jobs}}, err
	}
	jobs, err := readJobs(&limited{in, MaxTable}, times)
	return &Input{Workload: Workload{Jobs: jobs}}, err
}

// limited refuses what is larger than left.
type limited struct {
	io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, fault.New(fault.Invalid, "the file must be at most %d MiB", MaxTable>>20)
	}
	return n, err
}

func readDocument(in io.Reader, times bool) (*Input, error) {
	data, err := io.ReadAll(io.LimitReader(in, MaxDocument+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxDocument {
		return nil, fault.New(fault.Invalid, "the file must be at most %d MiB; write jobs as CSV where they are many", MaxDocument>>20)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var root yaml.Node
	if err := dec.Decode(&root); errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Invalid, "the file is empty")
	} else if err != nil {
		return nil, fault.New(fault.Invalid, "the file is neither YAML nor JSON: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Invalid, "the file holds more than one document")
	}
	d := &document{check: &core.Check{}, times: times}
	d.read(root.Content[0])
	return &d.out, d.check.Err()
}

// document is a file on the way to becoming an input.
type document struct {
	check *core.Check
	times bool
	out   Input
}

func (d *document) bad(n *yaml.Node, at, format string, args ...any) {
	d.check.Add(fmt.Sprintf("line %d %s", n.Line, at), format, args...)
}

func follow(n *yaml.Node) *yaml.Node {
	for range 8 { // an anchor may name another; more is a riddle
		if n.Kind != yaml.AliasNode {
			break
		}
		n = n.Alias
	}
	return n
}

// members are the values of a mapping by name, in which only known ones are.
func (d *document) members(n *yaml.Node, at string, known ...string) map[string]*yaml.Node {
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		d.bad(n, at, "must be a mapping of names to values")
		return nil
	}
	out := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if _, twice := out[name]; twice {
			d.bad(n.Content[i], at, "has %q twice", name)
		}
		if len(known) > 0 && !slices.Contains(known, name) {
			d.bad(n.Content[i], at, "has %q, which is not known; there are %s", name, strings.Join(known, ", "))
			continue
		}
		out[name] = follow(n.Content[i+1])
	}
	return out
}

// list calls each for the items of a sequence.
func (d *document) list(n *yaml.Node, at string, most int, each func(at string, n *yaml.Node)) {
	if n == nil || n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.bad(n, at, "must be a list")
		return
	}
	if len(n.Content) > most {
		d.bad(n, at, "must have at most %d items, got %d", most, len(n.Content))
		return
	}
	for i, x := range n.Content {
		each(at+"["+strconv.Itoa(i)+"]", follow(x))
	}
}

// row reads scalars of a mapping by name.
func (d *document) row(n *yaml.Node, at string, members map[string]*yaml.Node) *row {
	return &row{
		at: fmt.Sprintf("line %d %s.", n.Line, at), check: d.check,
		get: func(name string) (string, bool) {
			v := members[name]
			if v == nil || v.Tag == "!!null" {
				return "", false
			}
			if v.Kind != yaml.ScalarNode {
				d.bad(v, at+"."+name, "must be a single value")
				return "", false
			}
			return v.Value, true
		},
		many: func(name string) (out []string) {
			v := members[name]
			if v != nil && v.Kind == yaml.ScalarNode && v.Value != "" {
				return strings.Split(v.Value, "|")
			}
			d.list(v, at+"."+name, 64, func(_ string, n *yaml.Node) { out = append(out, n.Value) })
			return out
		},
	}
}

// amounts reads a mapping of resources to quantities. Cards are counted in
// thousandths, memory in MiB.
func (d *document) amounts(n *yaml.Node, at string) map[string]int64 {
	if n == nil {
		return nil
	}
	out := map[string]int64{}
	members := d.members(n, at)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		r := d.row(n, at, members)
		switch name {
		case "card":
			out[name] = r.decimal(name, 1000, 0, 1<<30)
		case core.CPU:
			out[name] = r.quantity(name, core.CPU, 1<<50)
		case core.Memory:
			out[name] = r.quantity(name, core.Memory, 1<<52) >> 20
		default:
			out[name] = r.quantity(name, name, 1<<50)
		}
	}
	return out
}

func (d *document) read(n *yaml.Node) {
	top := d.members(n, "the file", "models", "nodes", "centers", "links", "outages", "tenants", "jobs", "recorded", "snapshot")
	d.recorded(top)
	models := map[string]Supply{}
	if m := top["models"]; m != nil {
		byName := d.members(m, "models")
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			models[name] = d.model(byName[name], "models."+name)
		}
	}
	d.list(top["nodes"], "nodes", MaxNodes, func(at string, n *yaml.Node) {
		r := d.row(n, at, d.members(n, at, append(nodeColumns[:len(nodeColumns):len(nodeColumns)], "")...))
		d.out.Nodes = append(d.out.Nodes, r.nodes(models, len(d.out.Nodes))...)
	})
	d.list(top["centers"], "centers", MaxCenters, func(at string, n *yaml.Node) { d.out.Centers = append(d.out.Centers, d.center(n, at, models)) })
	d.list(top["links"], "links", 1_000_000, func(at string, n *yaml.Node) {
		r := d.row(n, at, d.members(n, at, "from", "to", "latency", "jitter", "loss", "bandwidth", "fee"))
		d.out.Links = append(d.out.Links, place.Link{From: r.text("from", 64), To: r.text("to", 64), Network: r.network()})
	})
	d.list(top["outages"], "outages", maxOutages, func(at string, n *yaml.Node) {
		r := d.row(n, at, d.members(n, at, "place", "at", "duration"))
		d.out.Outages = append(d.out.Outages, Outage{r.text("place", 128), r.span("at"), r.span("duration")})
	})
	d.list(top["tenants"], "tenants", MaxTenants, func(at string, n *yaml.Node) {
		m := d.members(n, at, "id", "parent", "weight", "guaranteed", "borrowable", "limit")
		r := d.row(n, at, m)
		t := Tenant{ID: r.text("id", 64), Parent: r.text("parent", 64), Weight: r.number("weight", 1, 1_000_000),
			Guaranteed: d.amounts(m["guaranteed"], at+".guaranteed"), Borrowable: d.amounts(m["borrowable"], at+".borrowable"), Limit: d.amounts(m["limit"], at+".limit")}
		if t.ID == "" {
			r.bad("id", "is required")
		}
		d.out.Tenants = append(d.out.Tenants, t)
	})
	d.list(top["jobs"], "jobs", MaxJobs, func(at string, n *yaml.Node) {
		m := d.members(n, at, append(jobColumns[:len(jobColumns):len(jobColumns)], "resources", "data", "labels", "weights", "work")...)
		r := d.row(n, at, m)
		j := r.job(len(d.out.Jobs), d.times)
		if j.Resources = d.amounts(m["resources"], at+".resources"); len(j.Resources) == 0 {
			j.Resources = nil
		}
		if m["data"] != nil {
			held := d.bytes(m["data"], at+".data")
			for _, name := range slices.Sorted(maps.Keys(held)) {
				j.Data = append(j.Data, place.DataNeed{Dataset: name, Bytes: held[name]})
			}
		}
		d.ofPolicies(&j, m, at)
		if !j.asks() {
			r.bad("cpu", "must be more than 0 where nothing else is asked for")
		}
		d.out.Jobs = append(d.out.Jobs, j)
	})
}

// model is what all cards of a model have in common.
func (d *document) model(n *yaml.Node, at string) Supply {
	m := d.members(n, at, "price", "core_price", "idle", "busy", "core_busy", "base", "pue", "carbon", "speed", "speeds", "spread")
	s := d.row(n, at, m).supply(Supply{})
	for name, to := range map[string]*map[string]int64{"speeds": &s.Speeds, "spread": &s.Spread} {
		if m[name] == nil {
			continue
		}
		kinds := d.members(m[name], at+"."+name)
		*to = make(map[string]int64, len(kinds))
		r := d.row(m[name], at+"."+name, kinds)
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			(*to)[kind] = r.decimal(kind, 1000, 0, 1000)
		}
	}
	return s
}

func (d *document) center(n *yaml.Node, at string, models map[string]Supply) Center {
	m := d.members(n, at, "id", "region", "cpu", "memory", "cards", "model", "resources", "offers", "grade", "longitude", "latitude",
		"latency", "jitter", "loss", "bandwidth", "fee", "data", "labels", "price", "core_price", "idle", "busy", "core_busy", "base", "pue", "carbon", "speed", "mtbf", "mttr")
	r := d.row(n, at, m)
	c := Center{ID: r.text("id", 64), Region: r.text("region", 64), CPU: r.cpu(maxCPU), Memory: r.memory(1 << 40),
		Cards: r.number("cards", 0, maxCards), Model: r.text("model", 64), Grade: r.number("grade", 0, 5), Network: r.network()}
	if c.ID == "" {
		r.bad("id", "is required")
	}
	c.Supply = r.supply(models[c.Model])
	if c.Resources = d.amounts(m["resources"], at+".resources"); len(c.Resources) == 0 {
		c.Resources = nil
	}
	if m["labels"] != nil {
		d.strict(m["labels"], at+".labels", &c.Labels)
	}
	if m["data"] != nil {
		c.Data = d.bytes(m["data"], at+".data")
	}
	if r.has("longitude") || r.has("latitude") {
		c.Position = &place.Position{Longitude: r.decimal("longitude", 1_000_000, -180, 180), Latitude: r.decimal("latitude", 1_000_000, -90, 90)}
	}
	if m["offers"] != nil {
		c.Offers = map[string]place.Offer{}
		prices := d.members(m["offers"], at+".offers")
		r := d.row(m["offers"], at+".offers", prices)
		for _, id := range slices.Sorted(maps.Keys(prices)) {
			c.Offers[id] = place.Offer{PriceFenPerHour: r.fact(id, 100, 0, maxRate/100)}
		}
	}
	return c
}

// network reads latency and jitter in ms, loss as a share, bandwidth in Mbit/s
// and the fee in yuan per GiB.
func (r *row) network() place.Network {
	n := place.Network{LatencyMicros: r.fact("latency", 1000, 0, 1_000_000), JitterMicros: r.fact("jitter", 1000, 0, 1_000_000),
		LossPPM: r.fact("loss", 1_000_000, 0, 1), BandwidthKbps: r.fact("bandwidth", 1000, 0, 1<<40),
		FeeFenPerGiB: r.fact("fee", 100, 0, maxRate/100)}
	if n.BandwidthKbps.Known && n.BandwidthKbps.Value == 0 {
		r.bad("bandwidth", "must be more than 0 Mbit/s")
	}
	return n
}
