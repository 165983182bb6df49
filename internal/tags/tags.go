// Package tags keeps the tags of the compute network (S 6.3.3): the library of
// tags there are, their values on objects, the rules that set them, and the
// history of all of that.
//
// What it keeps true:
//
//   - A value is of a tag of the library, of its type, among its allowed
//     values, on a kind of object it applies to.
//   - An object has at most one value of its own of a tag. What a person set or
//     blocked is never changed by a rule.
//   - A batch is written whole or not at all; the same request done again
//     changes nothing and answers the same.
//   - Every change, of a value or of the library, leaves a record in the same
//     transaction: who or which rule, before, after.
//   - Expressions are checked before they are stored; see package expr.
//
// # Inheritance
//
//	platform ─▶ [registered platforms, clouds] ─▶ center ─▶ node ─▶ device
//
// What is below an object has the object's value of an inherited tag unless a
// nearer one has a value, or a person blocked it. The tree is that of package
// inventory, which this one reads through [Resources]; centers that are placed
// nowhere, specifications and images are right below the platform.
//
// # Rules
//
// A rule is on or off for an object:
//
//	        "when" holds for "hold" seconds
//	off ──────────────────────────────────────▶ on
//	    ◀──────────────────────────────────────
//	        "until" holds (none: "when" does not) for "hold" seconds
//
// While it is on, it has its value there, unless a person decided, or another
// rule of higher priority did. Rules are looked at when the catalog or the
// library changed (within a second), those over live figures every 10 s, nodes
// and registered resources every 15 s. Rules read tags that people set and not
// those of other rules, so that they cannot drive each other in circles. What
// cannot be evaluated leaves a rule as it is for that object, and the rule says
// why. The time a condition lasts counts from when it was first seen, anew if
// nobody looked for a minute.
//
// If the process stops, rules pause; values stay. If an object is deleted, its
// values go with the next look; a node's own go only from rules, since nodes
// come back.
package tags

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// Kind is a kind of object.
type Kind int

// The kinds.
const (
	Platform Kind = 1
	Center   Kind = 2
	Node     Kind = 3
	Resource Kind = 4
	Spec     Kind = 5
	Image    Kind = 6
)

var kindNames = []string{"", "platform", "center", "node", "resource", "spec", "image"}

// String is the kind's word.
func (k Kind) String() string {
	if k < 1 || int(k) >= len(kindNames) {
		return "kind " + strconv.Itoa(int(k))
	}
	return kindNames[k]
}

var allKinds = []Kind{Platform, Center, Node, Resource, Spec, Image}

// scope is what expressions may read of objects of the kind.
func (k Kind) scope() expr.Scope {
	return [...]expr.Scope{expr.Placement, expr.Platform, expr.Center, expr.Node, expr.Resource, expr.Spec, expr.Image}[k]
}

// PlatformObject names the whole network.
const PlatformObject = "platform"

// split takes the name of an object apart.
func split(object string) (k Kind, id, node string, ok bool) {
	if object == PlatformObject {
		return Platform, "", "", true
	}
	word, rest, _ := strings.Cut(object, ":")
	k = Kind(slices.Index(kindNames, word))
	switch {
	case k < Center || rest == "":
		return 0, "", "", false
	case k == Node:
		id, node, ok = strings.Cut(rest, ":")
		return k, id, node, ok && id != "" && node != ""
	}
	return k, rest, "", true
}

func checkObject(c *core.Check, path, object string) {
	k, id, node, ok := split(object)
	switch {
	case !ok:
		c.Add(path, `must be "platform", "center:ID", "node:CENTER:NAME", "resource:ID", "spec:ID" or "image:ID", got %q`, clip(object))
	case k == Node:
		c.ID(path, id)
		c.Text(path, node, true, 253, 0)
	case k != Platform:
		c.ID(path, id)
	}
}

// ValueType is what values a tag has.
type ValueType int

// The types of value; all are stored as texts.
const (
	Text    ValueType = 1
	Boolean ValueType = 2
	Number  ValueType = 3
)

// Setter says who may set a tag.
type Setter int

// Who may.
const (
	Operators      Setter = 1
	Administrators Setter = 2
	RulesOnly      Setter = 3
)

// Status says whether a tag is in use.
type Status int

// The states of a tag.
const (
	Active  Status = 1
	Retired Status = 2
)

// Source is who or what set a value.
type Source int

// The sources.
const (
	Person Source = 1
	Rule   Source = 2
)

// Group of tags.
type Group struct {
	ID, Title, TitleZH, Description string

	Kinds     []Kind // tags of it apply to these at most; empty: all
	Tags      int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Definition is a tag of the library.
type Definition struct {
	Key, Title, TitleZH, GroupID, Description string

	Type      ValueType
	Allowed   []string // empty: any of the type
	Kinds     []Kind   // empty when given: those of the group
	Setter    Setter
	Inherited bool
	Hidden    bool // from expressions
	Status    Status
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time

	Objects int64    // that carry an own value; set by reads
	Rules   []string // that set it; set by reads
}

// Op is what a change does.
type Op int

// The changes a person makes.
const (
	Set   Op = 1
	Clear Op = 2 // takes back what a person set or blocked
	Block Op = 3 // no value, whatever rules and parents say
)

// Change of a tag.
type Change struct {
	Key   string
	Value string
	Op    Op // 0: Set
}

// State is what an object has of its own of a tag.
type State struct {
	Value   string // "": none
	Blocked bool
}

// Tag is the value an object has of a tag.
type Tag struct {
	Key       string
	Value     string
	Blocked   bool
	From      string // the object whose own value it is
	Source    Source
	Origin    string // the user's or the rule's ID
	BatchID   string
	Reason    string
	CreatedAt time.Time
	UpdatedAt time.Time
	Hides     []Hidden
}

// Hidden is a value that a nearer one hides.
type Hidden struct{ From, Value string }

// Tagged is an object with its tags.
type Tagged struct {
	Object  string
	Kind    Kind
	Name    string
	Parents []string // nearest first
	Tags    []Tag    // by key
}

// Selector says which objects are meant: what is set must all hold.
type Selector struct {
	Kinds      []Kind
	Objects    []string
	CenterID   string
	Expression string
}

// Applied is what a change did or would do to an object.
type Applied struct {
	Object, Key   string
	Before, After State
}

// Trouble is what is wrong with an object of a batch.
type Trouble struct{ Object, Field, Problem string }

// Result of a batch.
type Result struct {
	BatchID   string
	Objects   int64
	Changed   int64
	Unchanged int64
	Applied   bool
	Changes   []Applied // at most maxShown
	Problems  []Trouble // at most maxProblems
	Repeated  bool      `json:"-"`
}

// Mode is what a rule does.
type Mode int

// The modes.
const (
	Automatic Mode = 1
	Recommend Mode = 2
	Off       Mode = 3
)

// RuleSpec is a rule.
type RuleSpec struct {
	ID, Title, Description string

	Key             string
	Kinds           []Kind // empty when given: those of the tag
	When, Until     string
	Value           string // or
	ValueExpression string
	Hold            int64 // seconds
	Priority        int64
	Mode            Mode
	Version         int64
	CreatedAt       time.Time
	UpdatedAt       time.Time

	Matched     int64 // at the last look; set by reads
	EvaluatedAt time.Time
	Error       string
	Live        bool // set by reads
}

// Record is a change that was made.
type Record struct {
	ID            string
	At            time.Time
	Subject       string
	Key           string
	Before, After State
	Source        Source
	Origin        string
	BatchID       string
	Reason        string
}

// RecordFilter says which records are wanted; the zero value: all.
type RecordFilter struct{ Subject, Key, BatchID string }

// Limits.
const (
	MaxObjects = 20_000 // of one batch
	MaxNamed   = 1000   // objects named in one request
	MaxChanges = 50     // of one request

	maxWrites      = 100_000 // values of one batch
	maxGroups      = 100
	maxDefinitions = 1000
	maxRules       = 500
	maxAllowed     = 200
	maxValue       = 128 // bytes, less than
	maxShown       = 1000
	maxProblems    = 100
	maxHold        = 86_400
	maxPriority    = 1000
	minLiveHold    = 30
	defaultHold    = 60 // of a rule over live figures
)

var keyPattern = regexp.MustCompile(`^[a-z][a-z0-9._/-]{0,62}$`)

func checkKey(c *core.Check, path, key string) {
	if !keyPattern.MatchString(key) {
		c.Add(path, "must be 1 to 63 of a-z, 0-9, '.', '_', '/' and '-', beginning with a letter, got %q", clip(key))
	}
}

func checkKinds(c *core.Check, path string, kinds []Kind) {
	for i, k := range kinds {
		if k < Platform || k > Image {
			c.Add(path+"["+strconv.Itoa(i)+"]", "must be between %d and %d, got %d", Platform, Image, k)
		}
	}
	if len(kinds) > len(allKinds) {
		c.Add(path, "must be at most %d, got %d", len(allKinds), len(kinds))
	}
}

func (g *Group) check(c *core.Check) {
	c.ID("group.group_id", g.ID)
	checkTexts(c, "group.", g.Title, g.TitleZH, g.Description)
	checkKinds(c, "group.kinds", g.Kinds)
}

func checkTexts(c *core.Check, path, title, titleZH, description string) {
	c.Text(path+"title", title, false, 0, 128)
	c.Text(path+"title_zh", titleZH, false, 0, 128)
	c.Text(path+"description", description, false, 512, 0)
}

// check completes d with what it follows from its group.
func (d *Definition) check(c *core.Check, group *Group) {
	checkKey(c, "tag.key", d.Key)
	checkTexts(c, "tag.", d.Title, d.TitleZH, d.Description)
	if c.ID("tag.group_id", d.GroupID); group == nil && d.GroupID != "" {
		c.Add("tag.group_id", "there is no group %q", clip(d.GroupID))
	}
	d.Type, d.Setter, d.Status = orDefault(d.Type, Text), orDefault(d.Setter, Operators), orDefault(d.Status, Active)
	c.Range("tag.value_type", int64(d.Type), int64(Text), int64(Number))
	c.Range("tag.setter", int64(d.Setter), int64(Operators), int64(RulesOnly))
	c.Range("tag.status", int64(d.Status), int64(Active), int64(Retired))
	checkKinds(c, "tag.kinds", d.Kinds)
	allowed := allKinds
	if group != nil && len(group.Kinds) > 0 {
		allowed = group.Kinds
	}
	if len(d.Kinds) == 0 {
		d.Kinds = slices.Clone(allowed)
	}
	for _, k := range d.Kinds {
		if !slices.Contains(allowed, k) {
			c.Add("tag.kinds", "tags of group %s apply to %s only, got %s", d.GroupID, list(allowed), k)
		}
	}
	if len(d.Allowed) > maxAllowed {
		c.Add("tag.allowed_values", "must be at most %d, got %d", maxAllowed, len(d.Allowed))
		return
	}
	seen := map[string]bool{}
	free := Definition{Key: d.Key, Type: d.Type}
	for i, v := range d.Allowed {
		at := "tag.allowed_values[" + strconv.Itoa(i) + "]"
		if p := free.problem(v); p != "" {
			c.Add(at, "%s", p)
		}
		if seen[v] {
			c.Add(at, "names %q a second time", clip(v))
		}
		seen[v] = true
	}
}

// problem says why v is no value of the tag; "" if it is.
func (d *Definition) problem(v string) string {
	var c core.Check
	if c.Text("", v, true, 0, maxValue); c.Err() != nil {
		return strings.TrimPrefix(c.Err().Error(), ": ")
	}
	switch d.Type {
	case Boolean:
		if v != "true" && v != "false" {
			return `must be "true" or "false", got ` + strconv.Quote(clip(v))
		}
	case Number:
		if !numberPattern.MatchString(v) {
			return "must be a decimal number, got " + strconv.Quote(clip(v))
		}
	}
	if len(d.Allowed) > 0 && !slices.Contains(d.Allowed, v) {
		show := d.Allowed
		if len(show) > 10 {
			show = append(slices.Clone(show[:10]), "…")
		}
		return "must be one of " + strings.Join(show, ", ") + ", got " + strconv.Quote(clip(v))
	}
	return ""
}

var numberPattern = regexp.MustCompile(`^-?[0-9]{1,15}(\.[0-9]{1,9})?$`)

// visible tells whether expressions see the tag.
func (d *Definition) visible() bool { return d != nil && !d.Hidden && d.Status == Active }

func orDefault[T ~int](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

func list[T interface{ String() string }](items []T) string {
	out := make([]string, len(items))
	for i, x := range items {
		out[i] = x.String()
	}
	return strings.Join(out, ", ")
}

// maskOf packs kinds for storing.
func maskOf(kinds []Kind) (out int64) {
	for _, k := range kinds {
		out |= 1 << k
	}
	return out
}

func kindsOf(mask int64) (out []Kind) {
	for _, k := range allKinds {
		if mask&(1<<k) != 0 {
			out = append(out, k)
		}
	}
	return out
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
