package inventory

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"yunhe.dev/yunhe/internal/core"
)

// Type is a type of resource.
type Type struct {
	Name     string          `json:"type"`
	Title    string          `json:"title"`
	Clause   string          `json:"clause"`
	Parents  []string        `json:"parents"`  // types its parent may have
	Requires []string        `json:"requires"` // members beside attributes that must be set
	ReadOnly bool            `json:"read_only"`
	Schema   json.RawMessage `json:"schema"` // of its attributes

	schema   *jsonschema.Schema
	resolved *jsonschema.Resolved
}

//go:embed types/*.json
var typeFiles embed.FS

// typeIndex are the types of resource.
type typeIndex struct {
	all             []*Type
	byName          map[string]*Type
	names, writable []string // writable: names of those that can be registered
}

// types returns the types as they are embedded; they never change.
var types = sync.OnceValue(func() *typeIndex { return index(loadTypes()) })

// typeOf returns a type; nil if there is none.
func typeOf(name string) *Type { return types().byName[name] }

func loadTypes() []*Type {
	names, err := fs.Glob(typeFiles, "types/*.json")
	if err != nil {
		panic(err)
	}
	slices.Sort(names)
	var out []*Type
	for _, name := range names {
		b, err := typeFiles.ReadFile(name)
		if err != nil {
			panic(err)
		}
		t := &Type{}
		if err := json.Unmarshal(b, t); err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
		if err := json.Unmarshal(t.Schema, &t.schema); err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
		if t.resolved, err = t.schema.Resolve(nil); err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
		out = append(out, t)
	}
	return out
}

// Types returns the types of resource, from the widest to the narrowest. They
// are the caller's.
func Types() []Type {
	all := types().all
	out := make([]Type, len(all))
	for i, t := range all {
		out[i] = *t
		out[i].Parents, out[i].Requires, out[i].Schema = slices.Clone(t.Parents), slices.Clone(t.Requires), slices.Clone(t.Schema)
	}
	return out
}

func index(all []*Type) *typeIndex {
	x := &typeIndex{all: all, byName: map[string]*Type{}}
	for _, t := range all {
		x.byName[t.Name] = t
		x.names = append(x.names, t.Name)
		if !t.ReadOnly {
			x.writable = append(x.writable, t.Name)
		}
	}
	return x
}

// check reports everything about attributes that the schema does not allow.
// The library, which decides, stops at the first and names it in its own
// words; walk finds them all and says what a person can act on.
func (t *Type) check(c *core.Check, path string, attributes map[string]any) {
	if attributes == nil {
		attributes = map[string]any{}
	}
	text, err := canonical(attributes)
	if err != nil {
		c.Add(path, "cannot be written as JSON: numbers must be finite")
		return
	}
	if len(text) > maxAttributes {
		c.Add(path, "must be at most %d bytes as JSON, got %d", maxAttributes, len(text))
		return
	}
	if p := badText(path, attributes); p != "" {
		c.Add(p, "must be valid UTF-8 without zero bytes")
		return
	}
	err = t.resolved.Validate(attributes)
	if err == nil {
		return
	}
	found := false
	walk(t.schema, path, attributes, func(path, format string, args ...any) {
		found = true
		c.Add(path, format, args...)
	})
	if !found {
		c.Add(path, "does not match the schema of type %s: %v", t.Name, err)
	}
}

// badText returns the path of a text that no database takes, "" if there is none.
func badText(path string, v any) string {
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return path
		}
	case []any:
		for i, x := range v {
			if p := badText(path+"["+strconv.Itoa(i)+"]", x); p != "" {
				return p
			}
		}
	case map[string]any:
		for _, name := range sorted(v) {
			if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
				return path
			}
			if p := badText(path+"."+name, v[name]); p != "" {
				return p
			}
		}
	}
	return ""
}

// walk reports violations of the part of JSON Schema that the types use.
func walk(s *jsonschema.Schema, path string, v any, report func(path, format string, args ...any)) {
	if got := kindOf(v); s.Type != "" && got != s.Type && !(s.Type == "number" && got == "integer") {
		report(path, "must be %s, got %s", article(s.Type), show(v))
		return
	}
	switch v := v.(type) {
	case map[string]any:
		walkObject(s, path, v, report)
	case []any:
		if s.MinItems != nil && len(v) < *s.MinItems {
			report(path, "must have at least %d, got %d", *s.MinItems, len(v))
		}
		if s.MaxItems != nil && len(v) > *s.MaxItems {
			report(path, "must have at most %d, got %d", *s.MaxItems, len(v))
			return
		}
		seen := map[string]bool{}
		for i, x := range v {
			at := path + "[" + strconv.Itoa(i) + "]"
			if s.Items != nil {
				walk(s.Items, at, x, report)
			}
			if key := show(x); s.UniqueItems && seen[key] {
				report(at, "names %s a second time", key)
			} else {
				seen[key] = true
			}
		}
	case string:
		n := utf8.RuneCountInString(v)
		switch {
		case s.Enum != nil && !slices.Contains(s.Enum, any(v)):
			report(path, "must be one of %s, got %s", choices(s.Enum), show(v))
		case s.MinLength != nil && n < *s.MinLength:
			report(path, "must have at least %d characters, got %d", *s.MinLength, n)
		case s.MaxLength != nil && n > *s.MaxLength:
			report(path, "must be at most %d characters, got %d", *s.MaxLength, n)
		case s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v):
			report(path, "must match %s, got %s", s.Pattern, show(v))
		}
	case float64:
		switch {
		case s.Minimum != nil && v < *s.Minimum, s.Maximum != nil && v > *s.Maximum:
			lo, hi := math.Inf(-1), math.Inf(1)
			if s.Minimum != nil {
				lo = *s.Minimum
			}
			if s.Maximum != nil {
				hi = *s.Maximum
			}
			report(path, "must be between %s and %s, got %s", number(lo), number(hi), number(v))
		}
	}
}

func walkObject(s *jsonschema.Schema, path string, v map[string]any, report func(path, format string, args ...any)) {
	for _, name := range s.Required {
		if _, has := v[name]; !has {
			report(path+"."+name, "is required")
		}
	}
	if s.MaxProperties != nil && len(v) > *s.MaxProperties {
		report(path, "must have at most %d members, got %d", *s.MaxProperties, len(v))
		return
	}
	for _, name := range sorted(v) {
		sub := s.Properties[name]
		if sub == nil {
			sub = s.AdditionalProperties
		}
		switch {
		case sub == nil:
		case sub.Not != nil: // how false is read
			report(path+"."+clip(name), "is not known; known are %s", strings.Join(sorted(s.Properties), ", "))
		default:
			walk(sub, path+"."+clip(name), v[name], report)
		}
	}
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

func article(kind string) string {
	switch kind {
	case "array", "integer", "object":
		return map[string]string{"array": "a list", "integer": "a whole number", "object": "an object"}[kind]
	case "string":
		return "text"
	case "boolean":
		return "true or false"
	}
	return "a " + kind
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return clip(string(b))
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func choices(values []any) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprint(v)
	}
	return strings.Join(out, ", ")
}
