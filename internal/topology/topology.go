// Package topology keeps how the compute network hangs together, how it is,
// and how it was: platforms, clouds, regions, centers, nodes and cards, the
// registered resources, and the links between them (S 6.3.2, Table 10).
//
// What it keeps true:
//
//   - History has neither gaps nor overlaps: each vertex and link has at every
//     time since history begins at most one version, and what was seen
//     together changes together. It holds also when the clock goes back, two
//     processes watch at once, or one dies in the middle.
//   - Times of changes only grow. Where the clock goes back, changes are
//     recorded a microsecond after the last one until it has caught up.
//   - What did not change writes nothing.
//   - A vertex or link of a tenant is seen by that tenant and by those who see
//     all; so are its changes.
//   - Answers are bounded, and say what they leave out.
//
// # What is kept
//
// registry and inventory are the truth; this is a picture of them with a
// memory. A version is one row with the revision it holds from and the one it
// ends before; "as of T" is the rows around the revision of T. Cards have no
// rows: a node's record says what cards it has, which makes 10,000 rows of
// 80,000 cards. The whole network is not a row either, because it never
// changes. What is measured is not kept here but in the samples, and put on
// the picture by bindings when someone looks.
//
// # How changes come in
//
//	registry ──"registry.nodes"──▶ names that changed ──┐
//	inventory ─"inventory.changed"─▶ tree changed ──────┼─▶ compare ─▶ one transaction:
//	centers: state follows from time, looked at every 3 s│   with the    revision + versions
//	sweep every minute: marks of everything ────────────┘   image       + "topology.changed"
//
// Events may be lost; the sweep finds what they told of, by comparing the time
// of change of each node and resource, and reads only what is new. One process
// leads the watch. Should two write at once, the transaction of the second
// finds that the last revision is not the one it compared with, and compares
// again.
//
// Every process has an image of what is valid now, in memory, and brings it up
// to date by the revisions it has not seen: one read of one row when there are
// none. Declared links are written to history in the transaction that declares
// them.
//
// # Health
//
// A state gives a health (not ready: down; isolated: isolated). Where the state
// is good, thresholds of bindings may make it busy or warning. A node whose
// center is not heard of is unknown, whatever it last said. The health of a
// whole is its own, if that is bad; else what all its parts are, if they are
// the same; else warning, if a part is down, unknown or warns; else busy, if
// half of it is. Counts and the worst say the rest.
package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/registry"
)

// Level is how far up something is.
type Level int

// The levels; LevelLink is of bindings only.
const (
	AnyLevel      Level = 0
	LevelNetwork  Level = 1
	LevelPlatform Level = 2
	LevelRegion   Level = 3
	LevelCenter   Level = 4
	LevelNode     Level = 5
	LevelCard     Level = 6
	LevelResource Level = 7
	LevelLink     Level = 8
)

// NodeType is what something is for.
type NodeType int

// The node types.
const (
	AnyType  NodeType = 0
	Compute  NodeType = 1
	Network  NodeType = 2
	Storage  NodeType = 3
	Security NodeType = 4
)

// State is what a vertex says of itself.
type State int

// The states.
const (
	NoState    State = 0
	Ready      State = 1
	NotReady   State = 2
	NotHeard   State = 3
	Isolated   State = 4
	Registered State = 5
	Retired    State = 6
)

// LinkKind is the kind of a link.
type LinkKind int

// The kinds of link; AnyKind is none of them.
const (
	AnyKind          LinkKind = 0
	LeasedLine       LinkKind = 1
	PrivateNetwork   LinkKind = 2
	DedicatedNetwork LinkKind = 3
	Internet         LinkKind = 4
	ClusterFabric    LinkKind = 5
	OtherKind        LinkKind = 6
	Path             LinkKind = 7
)

// Source is where a link is known from.
type Source int

// The sources; AnySource is none of them.
const (
	AnySource    Source = 0
	Declared     Source = 1
	FromResource Source = 2
	Measured     Source = 3
)

// ChangeKind is what a change was.
type ChangeKind int

// The kinds of change.
const (
	Added   ChangeKind = 1
	Changed ChangeKind = 2
	Removed ChangeKind = 3
)

// Cards are equal cards of a node.
type Cards struct {
	Resource string `json:"resource"`
	Vendor   string `json:"vendor,omitempty"`
	Model    string `json:"model,omitempty"`
	Count    int64  `json:"count"`
	Memory   int64  `json:"memory,omitempty"` // bytes of each
}

// Record is a vertex or a link as history keeps it. It is never changed.
type Record struct {
	ID       string `json:"-"` // of a link: "link:" and its ID
	CenterID string `json:"-"`
	TenantID string `json:"-"`

	Parent       string             `json:"parent,omitempty"`
	Name         string             `json:"name,omitempty"`
	Kind         string             `json:"kind,omitempty"`
	Level        Level              `json:"level,omitempty"`
	Type         NodeType           `json:"type,omitempty"`
	State        State              `json:"state,omitempty"`
	Reason       string             `json:"reason,omitempty"`
	Region       string             `json:"region,omitempty"`
	Provider     string             `json:"provider,omitempty"`
	Equipment    []Cards            `json:"cards,omitempty"`
	Capacity     core.Quantities    `json:"capacity,omitempty"`
	Architecture string             `json:"arch,omitempty"`
	OS           string             `json:"os,omitempty"`
	Adapter      string             `json:"adapter,omitempty"`
	Position     *registry.Position `json:"position,omitempty"`
	Labels       map[string]string  `json:"labels,omitempty"`
	Link         *Link              `json:"link,omitempty"`
}

// Link is what a link is beside its name, provider and tenant.
type Link struct {
	From       string   `json:"from"`
	To         string   `json:"to"`
	Kind       LinkKind `json:"kind"`
	Source     Source   `json:"source"`
	Bandwidth  int64    `json:"bandwidth,omitempty"`  // bits per second
	Latency    int64    `json:"latency_us,omitempty"` // round trip
	ResourceID string   `json:"resource_id,omitempty"`
	Version    int64    `json:"version,omitempty"` // of declared ones
}

// IDs of vertices.
const (
	NetworkID    = "network"
	regionPrefix = "region:"
	centerPrefix = "center:"
	nodePrefix   = "node:"
	cardPrefix   = "card:"
	linkPrefix   = "link:"
	pathPrefix   = "path:"
)

func regionID(name string) string       { return regionPrefix + name }
func centerID(id string) string         { return centerPrefix + id }
func nodeID(center, name string) string { return nodePrefix + center + ":" + name }

func cardID(center, node, resource string, index int64) string {
	return cardPrefix + center + "/" + node + "/" + resource + "/" + strconv.FormatInt(index, 10)
}

// splitCard takes the ID of a card apart. Names of nodes and resources may
// have slashes: the center's ID has none, the index is a number, and resource
// is left to be compared with what the node has.
func splitCard(id string) (center, rest string, index int64, ok bool) {
	rest, ok = strings.CutPrefix(id, cardPrefix)
	if !ok {
		return "", "", 0, false
	}
	center, rest, ok = strings.Cut(rest, "/")
	at := strings.LastIndexByte(rest, '/')
	if !ok || center == "" || at < 1 {
		return "", "", 0, false
	}
	n, err := strconv.ParseInt(rest[at+1:], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != rest[at+1:] {
		return "", "", 0, false
	}
	return center, rest[:at], n, true
}

// maxID is the most bytes of a vertex's ID: a card of the longest node.
const maxID = 512

// checkVertex checks the form of a vertex's ID.
func checkVertex(c *core.Check, path, id string) {
	var own core.Check
	own.Text(path, id, true, 0, maxID)
	if own.Err() != nil {
		c.Text(path, id, true, 0, maxID)
		return
	}
	word, rest, prefixed := strings.Cut(id, ":")
	center, name, _ := strings.Cut(rest, ":")
	var id2 core.Check
	switch {
	case id == NetworkID:
		return
	case !prefixed:
		c.ID(path, id)
		return
	case word == "region" && rest != "":
		return
	case word == "center":
		id2.ID(path, rest)
	case word == "node" && name != "":
		id2.ID(path, center)
	case word == "card":
		if center, _, _, ok := splitCard(id); ok {
			id2.ID(path, center)
			break
		}
		fallthrough
	default:
		id2.Add(path, "is none")
	}
	if id2.Err() != nil {
		c.Add(path, `must be "network", "region:NAME", "center:ID", "node:CENTER:NAME", "card:CENTER/NODE/RESOURCE/INDEX" or the ID of a resource, got %q`, clip(id))
	}
}

// body is the one form in which records are stored and compared.
func (r *Record) body() (string, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("record of %s: %w", r.ID, err)
	}
	return string(b), nil
}

// isLink tells links from vertices.
func (r *Record) isLink() bool { return r.Link != nil }

// cards is how many cards a node has.
func (r *Record) cards() (n int64) {
	for _, c := range r.Equipment {
		n += c.Count
	}
	return n
}

// maxCards bounds what one node makes of a picture: a node that says it has
// more is shown with so many.
const maxCards = 4096

// Item is a record with its time.
type Item struct {
	Record
	Since time.Time // of this version
	Added time.Time // since when it is there

	seq  int64
	text string
}

// Change is a change of a vertex or a link.
type Change struct {
	Seq    int64
	At     time.Time
	Kind   ChangeKind
	ID     string
	Before *Item // nil: it was not there
	After  *Item // nil: it is not there
}

// differences names what differs between two versions.
func differences(a, b *Record) []string {
	if a == nil || b == nil {
		return nil
	}
	var out []string
	add := func(name string, differs bool) {
		if differs {
			out = append(out, name)
		}
	}
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	add("parent_id", a.Parent != b.Parent)
	add("name", a.Name != b.Name)
	add("state", a.State != b.State)
	add("reason", a.Reason != b.Reason)
	add("region", a.Region != b.Region)
	add("service_provider", a.Provider != b.Provider)
	add("tenant_id", a.TenantID != b.TenantID)
	add("ai_center_id", a.CenterID != b.CenterID)
	add("equipment", text(a.Equipment) != text(b.Equipment))
	add("capacity", text(a.Capacity) != text(b.Capacity))
	add("architecture", a.Architecture != b.Architecture)
	add("operating_system", a.OS != b.OS)
	add("adapter", a.Adapter != b.Adapter)
	add("position", text(a.Position) != text(b.Position))
	add("labels", !maps.Equal(a.Labels, b.Labels))
	if a.Link != nil && b.Link != nil {
		add("from_id", a.Link.From != b.Link.From)
		add("to_id", a.Link.To != b.Link.To)
		add("kind", a.Link.Kind != b.Link.Kind)
		add("bandwidth_bits_per_second", a.Link.Bandwidth != b.Link.Bandwidth)
		add("latency_us", a.Link.Latency != b.Link.Latency)
		add("version", a.Link.Version != b.Link.Version)
	}
	return out
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
