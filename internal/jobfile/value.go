package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// kind is what a value is, whichever notation it came from.
type kind int

const (
	null kind = iota
	boolean
	number
	text
	list
	object
)

func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "text", "a list", "an object"}[k]
}

// value is a parsed value with its line.
type value struct {
	kind    kind
	line    int
	text    string // of a scalar, as written
	items   []*value
	members []member // in the order written, names unique
}

type member struct {
	name  string
	line  int
	value *value
}

func (v *value) describe() string {
	switch v.kind {
	case number, boolean:
		return v.text
	case text:
		s := v.text
		if utf8.RuneCountInString(s) > 40 {
			s = string([]rune(s)[:40]) + "…"
		}
		return strconv.Quote(s)
	}
	return v.kind.String()
}

// parseJSON reads one or more JSON values.
func parseJSON(data []byte) ([]*value, error) {
	p := jsonParser{dec: json.NewDecoder(bytes.NewReader(data)), data: data, line: 1, room: MaxValues}
	p.dec.UseNumber()
	var docs []*value
	for {
		tok, err := p.next()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}
		doc, err := p.value(tok, 1)
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
}

type jsonParser struct {
	dec  *json.Decoder
	data []byte
	at   int // offset up to which line is counted
	line int
	room int // values that may still be made
}

// next returns the next token and moves p.line to the line it ends on.
func (p *jsonParser) next() (json.Token, error) {
	tok, err := p.dec.Token()
	end := int(p.dec.InputOffset())
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		end = int(syntax.Offset)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		end = len(p.data)
	}
	if end = min(end, len(p.data)); end > p.at {
		p.line += bytes.Count(p.data[p.at:end], []byte{'\n'})
		p.at = end
	}
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return tok, err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &problem{line: p.line, text: "JSON ends too early"}
	default:
		return nil, &problem{line: p.line, text: "not JSON: " + strings.TrimPrefix(err.Error(), "json: ")}
	}
}

// inner is next inside of a value, where the end of the file is an error.
func (p *jsonParser) inner() (json.Token, error) {
	tok, err := p.next()
	if errors.Is(err, io.EOF) {
		return nil, &problem{line: p.line, text: "JSON ends too early"}
	}
	return tok, err
}

func (p *jsonParser) value(tok json.Token, depth int) (*value, error) {
	if depth > MaxDepth {
		return nil, &problem{line: p.line, text: fmt.Sprintf("nested deeper than %d", MaxDepth)}
	}
	if p.room--; p.room < 0 {
		return nil, &problem{line: p.line, text: fmt.Sprintf("more than %d values", MaxValues)}
	}
	v := &value{line: p.line}
	switch t := tok.(type) {
	case nil:
		v.kind = null
	case bool:
		v.kind, v.text = boolean, strconv.FormatBool(t)
	case json.Number:
		v.kind, v.text = number, t.String()
	case string:
		v.kind, v.text = text, t
	case json.Delim:
		if t == '[' {
			return v, p.list(v, depth)
		}
		return v, p.object(v, depth)
	}
	return v, nil
}

func (p *jsonParser) list(v *value, depth int) error {
	v.kind = list
	for {
		tok, err := p.inner()
		if err != nil {
			return err
		}
		if tok == json.Delim(']') {
			return nil
		}
		item, err := p.value(tok, depth+1)
		if err != nil {
			return err
		}
		v.items = append(v.items, item)
	}
}

func (p *jsonParser) object(v *value, depth int) error {
	v.kind = object
	seen := map[string]bool{}
	for {
		tok, err := p.inner()
		if err != nil {
			return err
		}
		if tok == json.Delim('}') {
			return nil
		}
		name, line := tok.(string), p.line // the decoder lets only text be a member's name
		if seen[name] {
			return &problem{line: line, text: fmt.Sprintf("%q is given twice", name)}
		}
		seen[name] = true
		if tok, err = p.inner(); err != nil {
			return err
		}
		item, err := p.value(tok, depth+1)
		if err != nil {
			return err
		}
		v.members = append(v.members, member{name, line, item})
	}
}

// parseYAML reads one or more YAML documents; empty ones do not count.
func parseYAML(data []byte) ([]*value, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	p := yamlParser{room: MaxValues}
	var docs []*value
	for {
		var node yaml.Node
		err := dec.Decode(&node)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, yamlProblem(err)
		}
		if len(node.Content) != 1 {
			continue
		}
		doc, err := p.value(node.Content[0], 1)
		if err != nil {
			return nil, err
		}
		if doc.kind != null {
			docs = append(docs, doc)
		}
	}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func yamlProblem(err error) error {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return &problem{text: "not YAML: " + err.Error()}
	}
	line, _ := strconv.Atoi(m[1]) // "": not known, 0
	return &problem{line: line, text: "not YAML: " + strings.TrimPrefix(err.Error(), m[0])}
}

type yamlParser struct {
	room int // values that may still be made
}

func (p *yamlParser) value(n *yaml.Node, depth int) (*value, error) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if depth > MaxDepth {
		return nil, &problem{line: n.Line, text: fmt.Sprintf("nested deeper than %d", MaxDepth)}
	}
	if p.room--; p.room < 0 {
		return nil, &problem{line: n.Line, text: fmt.Sprintf("more than %d values", MaxValues)}
	}
	v := &value{line: n.Line}
	switch n.Kind {
	case yaml.SequenceNode:
		v.kind = list
		for _, c := range n.Content {
			item, err := p.value(c, depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
		return v, nil
	case yaml.MappingNode:
		return v, p.object(v, n, depth)
	}
	switch n.ShortTag() {
	case "!!null":
		v.kind = null
	case "!!bool":
		v.kind, v.text = boolean, n.Value
	case "!!int", "!!float":
		v.kind, v.text = number, n.Value
	case "!!binary":
		return nil, &problem{line: n.Line, text: "!!binary is not known here; write base64 as text"}
	default: // text, and what only looks like a time
		v.kind, v.text = text, n.Value
	}
	return v, nil
}

func (p *yamlParser) object(v *value, n *yaml.Node, depth int) error {
	v.kind = object
	seen := map[string]bool{}
	var merged []*value
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		for k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			return &problem{line: k.Line, text: "a member's name must be text"}
		}
		item, err := p.value(n.Content[i+1], depth+1)
		if err != nil {
			return err
		}
		if k.ShortTag() == "!!merge" {
			merged = append(merged, item)
			continue
		}
		if seen[k.Value] {
			return &problem{line: k.Line, text: fmt.Sprintf("%q is given twice", k.Value)}
		}
		seen[k.Value] = true
		v.members = append(v.members, member{k.Value, k.Line, item})
	}
	// "<<: *base" and "<<: [*a, *b]" add what is not there; the first wins.
	for _, m := range merged {
		from := []*value{m}
		if m.kind == list {
			from = m.items
		}
		for _, f := range from {
			if f.kind != object {
				return &problem{line: f.line, text: "<< takes an object or a list of objects"}
			}
			for _, fm := range f.members {
				if !seen[fm.name] {
					seen[fm.name] = true
					v.members = append(v.members, fm)
				}
			}
		}
	}
	return nil
}
