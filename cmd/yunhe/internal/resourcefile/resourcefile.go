// Package resourcefile reads and writes files of resources, YAML and CSV, one
// resource at a time: a file may be larger than memory.
//
// # Shapes
//
// YAML is a list of resources, an object whose member "resources" is that list
// (what the API answers), or one document for each resource. Members have
// their lowerCamel or snake_case names; what only the server sets (times,
// children, identifier) is read over, so that what was listed can be imported.
//
//   - resource_id: gpu-1
//     type: compute
//     attributes: {supply_mode: bare_metal, chip_type: GPU, ...}
//
// CSV has a header line. Columns are the members; "labels" and "attributes"
// hold JSON objects, "labels.NAME" and "attributes.NAME" one member of them.
// An empty cell is a member left out. Which attribute is a number and which is
// text follows from the schema of the row's type, not from how it looks: the
// model "4090" stays text.
//
// # What it keeps true
//
// Nothing is read that the writer did not write: a member nobody knows, one
// given twice and a value of the wrong kind are problems with their line, and
// the reader goes on with the next resource, so that one run finds them all.
// What was written is read back the same. Memory is bounded by the largest
// resource (1 MiB), or document that is not a list (16 MiB).
package resourcefile

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

// Limits of what is held in memory.
const (
	MaxResource = 1 << 20
	MaxDocument = 16 << 20
	maxDepth    = 32
)

// Item is a resource of a file, or what is wrong with it.
type Item struct {
	Resource *registryv1.Resource
	Line     int
	Problems []Problem // if there are any, Resource is not to be used

	lines map[string]int // by member
}

// Problem is what is wrong, and where.
type Problem struct {
	Line  int
	Field string // "" if it is of the whole
	Text  string
}

func (p Problem) String() string {
	if p.Field == "" {
		return fmt.Sprintf("line %d: %s", p.Line, p.Text)
	}
	return fmt.Sprintf("line %d: %s: %s", p.Line, p.Field, p.Text)
}

// At returns the line of a field as the server names it, the line of the
// nearest member around it, or of the resource.
func (i *Item) At(field string) int {
	for field != "" {
		if line, ok := i.lines[field]; ok {
			return line
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return i.Line
}

func (i *Item) problem(line int, field, format string, args ...any) {
	i.Problems = append(i.Problems, Problem{line, field, fmt.Sprintf(format, args...)})
}

// Reader reads resources one after the other.
type Reader interface {
	// Next returns the next resource. It returns io.EOF at the end and another
	// error if the file cannot be read on.
	Next() (*Item, error)
}

// Kinds tells the JSON type ("string", "number", "integer", "boolean",
// "array", "object") of an attribute of a type; "" if it is not known.
type Kinds func(typ, attribute string) string

// members of a resource by both names; those only the server sets are nil.
var members = func() map[string]protoreflect.FieldDescriptor {
	fields := (&registryv1.Resource{}).ProtoReflect().Descriptor().Fields()
	out := map[string]protoreflect.FieldDescriptor{}
	for i := range fields.Len() {
		f := fields.Get(i)
		known := f
		if slices.Contains(output, string(f.Name())) {
			known = nil
		}
		out[string(f.Name())], out[f.JSONName()] = known, known
	}
	return out
}()

// output is set by the server.
var output = []string{"created_at", "updated_at", "children", "identifier"}

// Columns of a CSV file besides attributes, in the order they are written.
var columns = []string{
	"resource_id", "type", "name", "parent_id", "platform_id", "ai_center_id", "tenant_id", "region", "service_provider", "state", "labels",
}

// setScalar sets a member that is neither labels nor attributes.
func (i *Item) setScalar(f protoreflect.FieldDescriptor, line int, text string) {
	m := i.Resource.ProtoReflect()
	switch f.Kind() {
	case protoreflect.StringKind:
		m.Set(f, protoreflect.ValueOfString(text))
	case protoreflect.Int64Kind:
		var n int64
		if _, err := fmt.Sscanf(text, "%d", &n); err != nil || fmt.Sprint(n) != text {
			i.problem(line, string(f.Name()), "want a whole number, got %q", clip(text))
			return
		}
		m.Set(f, protoreflect.ValueOfInt64(n))
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		full := strings.ToUpper(text)
		if !strings.HasPrefix(full, statePrefix) {
			full = statePrefix + full
		}
		v := values.ByName(protoreflect.Name(full))
		if v == nil {
			var names []string
			for k := 1; k < values.Len(); k++ {
				names = append(names, shortState(string(values.Get(k).Name())))
			}
			i.problem(line, string(f.Name()), "want one of %s, got %q", strings.Join(names, ", "), clip(text))
			return
		}
		m.Set(f, protoreflect.ValueOfEnum(v.Number()))
	}
}

const statePrefix = "RESOURCE_STATE_"

func shortState(full string) string { return strings.ToLower(strings.TrimPrefix(full, statePrefix)) }

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
