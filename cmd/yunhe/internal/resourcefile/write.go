package resourcefile

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

// Writer writes resources one after the other.
type Writer interface {
	Write(r *registryv1.Resource) error
	// Flush writes what is held back. It is called once, at the end.
	Flush() error
}

type yamlWriter struct{ w io.Writer }

// NewYAMLWriter writes a list that [YAML] reads.
func NewYAMLWriter(w io.Writer) Writer { return yamlWriter{w} }

// text returns a member that is neither labels nor attributes.
func text(r *registryv1.Resource, name string) string {
	if name == "state" {
		if r.GetState() == 0 {
			return ""
		}
		return shortState(r.GetState().String())
	}
	return r.ProtoReflect().Get(members[name]).String()
}

func (y yamlWriter) Write(r *registryv1.Resource) error {
	item := &yaml.Node{Kind: yaml.MappingNode}
	add := func(name string, v *yaml.Node) { item.Content = append(item.Content, textNode(name), v) }
	for _, name := range columns {
		if name == "labels" {
			continue
		}
		if v := text(r, name); v != "" {
			add(name, textNode(v))
		}
	}
	if len(r.GetLabels()) > 0 {
		labels := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.Sorted(maps.Keys(r.GetLabels())) {
			labels.Content = append(labels.Content, textNode(name), textNode(r.GetLabels()[name]))
		}
		add("labels", labels)
	}
	if len(r.GetAttributes().GetFields()) > 0 {
		add("attributes", nodeOf(r.GetAttributes().AsMap()))
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := enc.Encode(&yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{item}})
	if err == nil {
		err = enc.Close()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", r.GetResourceId(), err)
	}
	_, err = y.w.Write(b.Bytes())
	return err
}

func (y yamlWriter) Flush() error { return nil }

// textNode is a text: the library quotes what would be read as something
// else, and is told to where it gets lines and spaces wrong.
func textNode(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.TrimSpace(s) != s {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// nodeOf makes a node of what JSON has. Whole numbers are written as such:
// 85899345920, not 8.589934592e+10.
func nodeOf(v any) *yaml.Node {
	switch v := v.(type) {
	case string:
		return textNode(v)
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}
	case float64:
		if n := int64(v); float64(n) == v && n > -1<<53 && n < 1<<53 {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(n, 10)}
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: strconv.FormatFloat(v, 'g', -1, 64)}
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, x := range v {
			n.Content = append(n.Content, nodeOf(x))
		}
		return n
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, textNode(name), nodeOf(v[name]))
		}
		return n
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
}

type csvWriter struct {
	w          *csv.Writer
	attributes []string
}

// NewCSVWriter writes a table that [CSV] reads, with a column for each of the
// attributes and one, "attributes", for others.
func NewCSVWriter(w io.Writer, attributes []string) (Writer, error) {
	c := &csvWriter{csv.NewWriter(w), attributes}
	header := append(slices.Clone(columns), "attributes")
	for _, a := range attributes {
		header = append(header, attributeColumn+a)
	}
	if err := c.w.Write(header); err != nil {
		return nil, fmt.Errorf("write the header: %w", err)
	}
	return c, nil
}

func (c *csvWriter) Write(r *registryv1.Resource) error {
	row := make([]string, 0, len(columns)+1+len(c.attributes))
	for _, name := range columns {
		if name != "labels" {
			row = append(row, text(r, name))
			continue
		}
		cell := ""
		if len(r.GetLabels()) > 0 {
			b, err := json.Marshal(r.GetLabels())
			if err != nil {
				return fmt.Errorf("write labels of %s: %w", r.GetResourceId(), err)
			}
			cell = string(b)
		}
		row = append(row, cell)
	}
	rest := r.GetAttributes().AsMap()
	cells := make([]string, len(c.attributes))
	for i, name := range c.attributes {
		v, has := rest[name]
		if s, isText := v.(string); !has || v == nil || isText && (s == "" || strings.ContainsRune(s, '\r')) {
			continue // an empty cell would be read as left out, and CSV drops \r
		}
		cell, err := cellOf(v)
		if err != nil {
			return fmt.Errorf("write %s of %s: %w", name, r.GetResourceId(), err)
		}
		cells[i] = cell
		delete(rest, name)
	}
	cell := ""
	if len(rest) > 0 {
		b, err := json.Marshal(rest)
		if err != nil {
			return fmt.Errorf("write attributes of %s: %w", r.GetResourceId(), err)
		}
		cell = string(b)
	}
	if err := c.w.Write(append(append(row, cell), cells...)); err != nil {
		return fmt.Errorf("write %s: %w", r.GetResourceId(), err)
	}
	return nil
}

func cellOf(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}

func (c *csvWriter) Flush() error {
	c.w.Flush()
	return c.w.Error()
}
