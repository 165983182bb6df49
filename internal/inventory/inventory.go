// Package inventory records what the compute network is made of beyond the
// centers themselves: scheduling platforms of other levels, clouds, nodes,
// compute, network, storage and security resources (S 6.3.1, Table 9), as one
// tree; and the compute identifiers issued for them.
//
// It is a package of its own and not part of registry because the two change
// for different reasons: registry is what scheduling reads with every job,
// inventory what operators and providers write down. It knows registry and
// registry does not know it.
//
// What it keeps true:
//
//   - The attributes of every resource match the schema of its type; the
//     schemas are data (types/*.json), the same that callers can ask for.
//   - The tree has no cycles and is at most 16 levels deep. A parent exists
//     when it is named; a resource with something below it is not deleted.
//   - Owners follow from the parent unless they are named: a resource belongs
//     to the platform and the center of its parent, also after a move.
//   - No change is lost to another: who replaces a resource names the version
//     they saw.
//   - A batch is written whole or not at all, and writing it again changes
//     nothing.
//   - A resource and a chip have at most one valid identifier, and it never
//     changes. What was revoked stays on record; the registration code of a
//     revoked issue does not count for a later one.
//   - A resource of a tenant is seen by that tenant and by those who see all.
//
// # Centers and nodes
//
// What joins (centers) and what drivers report (nodes) is in the tree too, as
// a view: "center:ID" and "node:CENTER:NAME" are read from registry, not
// copied. Copies would double the writes of every report of 12,000 nodes and
// could be wrong. The IDs cannot meet registered ones, which have no colon.
// Resources can be registered below them; if a node is gone, what was
// registered below it stays and is below it again when the node returns. Only
// a center's place in the tree is stored here.
//
// # States
//
//	registered ──▶ available ◀─▶ unavailable ◀─▶ maintenance
//	    ▲  └─────────────┴──────────────┴─────────────┤
//	    └──────────────────── retired ◀───────────────┘
//
// Any state may follow any other, except that only registered follows
// retired: what was taken out for good comes back as a new registration.
package inventory

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
)

// State says where a resource stands in its life.
type State int

// The states; AnyState is none of them.
const (
	AnyState    State = 0
	Registered  State = 1
	Available   State = 2
	Unavailable State = 3
	Maintenance State = 4
	Retired     State = 5
)

// Types of resource that the code knows by name; see [Types] for all.
const (
	typePlatform = "platform"
	typeCenter   = "center"
	typeNode     = "node"
)

// Resource is something registered, or a center or node in the view of it.
type Resource struct {
	ID         string
	Type       string
	Name       string
	ParentID   string
	PlatformID string // "" when given: that of the parent
	CenterID   string // "" when given: that of the parent
	TenantID   string // "": everyone sees it
	Region     string
	Provider   string
	State      State // AnyState when given: Registered, or what it was
	Attributes map[string]any
	Labels     map[string]string
	Version    int64 // from 1; 0 for centers and nodes
	CreatedAt  time.Time
	UpdatedAt  time.Time

	Children   int64  // directly below it; set by Get and List
	Identifier string // set by Get and List
}

// Filter says which resources are wanted; the zero value: all.
type Filter struct {
	Type       string
	ParentID   string
	PlatformID string
	CenterID   string
	Region     string
	State      State
	Labels     []string // carry all of these: "name", or "name=value"
	Attributes []string // have all of these: "name", "name=value", "name.member=value"

	roots bool // without a parent
}

// Tree is a resource with what is below it.
type Tree struct {
	Resource *Resource // nil at the top of the whole tree
	Children []*Tree
	More     bool // there are more children than listed
}

// Outcome is what became of a resource of a batch.
type Outcome int

// The outcomes.
const (
	Created   Outcome = 1
	Updated   Outcome = 2
	Unchanged Outcome = 3
	Refused   Outcome = 4
)

// Result is the answer for one resource of a batch.
type Result struct {
	ID            string
	Outcome       Outcome
	Version       int64
	Violations    []Violation
	ParentMissing bool // nothing is wrong but that the parent is not registered yet
}

// Violation is what is wrong with a field.
type Violation struct{ Field, Problem string }

// MaxBatch is the most resources of one [Service.Apply].
const MaxBatch = 1000

// Limits of what a record holds.
const (
	maxAttributes   = 64 << 10 // bytes as JSON
	maxDepth        = 16
	maxLabels       = 64
	maxLabelFilters = 8
	maxMoved        = 10_000 // resources that get other owners in one move
)

// IDs of the view.
const (
	centerPrefix = "center:"
	nodePrefix   = "node:"
)

// CenterID is the ID of a center in the tree.
func CenterID(centerID string) string { return centerPrefix + centerID }

// NodeID is the ID of a reported node in the tree.
func NodeID(centerID, name string) string { return nodePrefix + centerID + ":" + name }

// viewed takes an ID of the view apart; ok is false for any other.
func viewed(id string) (centerID, node string, ok bool) {
	if c, is := strings.CutPrefix(id, centerPrefix); is {
		return c, "", c != ""
	}
	if rest, is := strings.CutPrefix(id, nodePrefix); is {
		c, n, found := strings.Cut(rest, ":")
		return c, n, found && c != "" && n != ""
	}
	return "", "", false
}

// checkRef checks the ID of a registered resource or of the view.
func checkRef(c *core.Check, path, id string) {
	center, node, ok := viewed(id)
	if !ok {
		c.ID(path, id)
		return
	}
	c.ID(path, center)
	c.Text(path, node, false, 253, 0)
}

// check reports what is wrong with a resource by itself.
func (r *Resource) check(c *core.Check, path string) {
	if _, _, view := viewed(r.ID); view {
		c.Add(path+"resource_id", "%s is recorded by what joins the network, not here", r.ID)
	} else {
		c.ID(path+"resource_id", r.ID)
	}
	c.Text(path+"name", r.Name, false, 0, 128)
	if r.ParentID != "" {
		checkRef(c, path+"parent_id", r.ParentID)
	}
	if r.PlatformID != "" {
		c.ID(path+"platform_id", r.PlatformID)
	}
	if r.CenterID != "" {
		c.ID(path+"ai_center_id", r.CenterID)
	}
	if r.TenantID != "" {
		c.ID(path+"tenant_id", r.TenantID)
	}
	c.Text(path+"region", r.Region, false, 0, 64)
	c.Text(path+"service_provider", r.Provider, false, 0, 128)
	c.Range(path+"state", int64(r.State), int64(AnyState), int64(Retired))
	c.Range(path+"version", r.Version, 0, 1<<53)
	checkLabels(c, path, r.Labels)
	t := typeOf(r.Type)
	switch {
	case r.Type == "":
		c.Add(path+"type", "is required; the types are %s", strings.Join(types().writable, ", "))
	case t == nil || t.ReadOnly:
		c.Add(path+"type", "must be one of %s, got %q", strings.Join(types().writable, ", "), clip(r.Type))
	default:
		for _, field := range t.Requires {
			if r.member(field) == "" {
				c.Add(path+field, "is required of type %s", r.Type)
			}
		}
		t.check(c, path+"attributes", r.Attributes)
	}
}

// member is the value of a text member by its name in the API.
func (r *Resource) member(field string) string {
	switch field {
	case "region":
		return r.Region
	case "service_provider":
		return r.Provider
	}
	return ""
}

func checkLabels(c *core.Check, path string, labels map[string]string) {
	if len(labels) > maxLabels {
		c.Add(path+"labels", "must be at most %d, got %d", maxLabels, len(labels))
		return
	}
	for _, name := range sorted(labels) {
		var named core.Check
		if named.Text("", name, true, 0, 64); named.Err() != nil || strings.Contains(name, "=") {
			c.Add(path+"labels", "label name %q must be 1 to 63 bytes of text without control characters and =", clip(name))
			continue
		}
		c.Text(path+"labels."+name, labels[name], false, 0, 128)
	}
}

var labelFilter = regexp.MustCompile(`^[^=]+(=.*)?$`)

func (f Filter) check() error {
	var c core.Check
	if f.Type != "" && typeOf(f.Type) == nil {
		c.Add("type", "must be one of %s, got %q", strings.Join(types().names, ", "), clip(f.Type))
	}
	if f.ParentID != "" {
		checkRef(&c, "parent_id", f.ParentID)
	}
	if f.PlatformID != "" {
		c.ID("platform_id", f.PlatformID)
	}
	if f.CenterID != "" {
		c.ID("ai_center_id", f.CenterID)
	}
	c.Text("region", f.Region, false, 0, 64)
	c.Range("state", int64(f.State), int64(AnyState), int64(Retired))
	if len(f.Labels) > maxLabelFilters {
		c.Add("labels", "must be at most %d, got %d", maxLabelFilters, len(f.Labels))
		return c.Err()
	}
	for i, l := range f.Labels {
		at := "labels[" + strconv.Itoa(i) + "]"
		if c.Text(at, l, true, 0, 320); !labelFilter.MatchString(l) {
			c.Add(at, `must be "name" or "name=value", got %q`, clip(l))
		}
	}
	if len(f.Attributes) > maxAttributeFilters {
		c.Add("attributes", "must be at most %d, got %d", maxAttributeFilters, len(f.Attributes))
		return c.Err()
	}
	for i, a := range f.Attributes {
		at := "attributes[" + strconv.Itoa(i) + "]"
		if c.Text(at, a, true, 0, 512); !attributeFilter.MatchString(a) {
			c.Add(at, `must be "name", "name=value" or "name.member=value", got %q`, clip(a))
		}
	}
	return c.Err()
}

// maxAttributeFilters bounds the attributes of a filter.
const maxAttributeFilters = 8

var attributeFilter = regexp.MustCompile(`^[^=.\s]+(\.[^=.]+)*(=.*)?$`)

// hasAttributes reports whether a resource has the attributes that are wanted.
// No database is asked: the two differ in what they find in JSON.
func (f Filter) hasAttributes(r *Resource) bool {
	for _, a := range f.Attributes {
		path, value, exact := strings.Cut(a, "=")
		if !has(r.Attributes, strings.Split(path, "."), value, exact) {
			return false
		}
	}
	return true
}

// has looks for a value at a path; any element of a list will do.
func has(v any, path []string, value string, exact bool) bool {
	switch v := v.(type) {
	case nil:
		return false
	case []any:
		return slices.ContainsFunc(v, func(x any) bool { return has(x, path, value, exact) })
	case map[string]any:
		if len(path) == 0 {
			return !exact
		}
		return has(v[path[0]], path[1:], value, exact)
	}
	if len(path) > 0 {
		return false
	}
	return !exact || scalar(v) == value
}

// matches is for the resources of the view; the database filters the others.
func (f Filter) matches(r *Resource) bool {
	if !f.hasAttributes(r) {
		return false
	}
	for _, l := range f.Labels {
		name, value, exact := strings.Cut(l, "=")
		if got, has := r.Labels[name]; !has || exact && got != value {
			return false
		}
	}
	return (f.Type == "" || f.Type == r.Type) && (f.ParentID == "" || f.ParentID == r.ParentID) && (!f.roots || r.ParentID == "") &&
		(f.PlatformID == "" || f.PlatformID == r.PlatformID) && (f.CenterID == "" || f.CenterID == r.CenterID) &&
		(f.Region == "" || f.Region == r.Region) && (f.State == AnyState || f.State == r.State)
}

// canonical is the one form in which attributes are stored and compared.
func canonical(attributes map[string]any) (string, error) {
	if len(attributes) == 0 {
		return "{}", nil
	}
	b, err := json.Marshal(attributes)
	return string(b), err
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
