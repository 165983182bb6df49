package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
)

// The output forms.
const (
	asTable = "table"
	asWide  = "wide"
	asJSON  = "json"
	asYAML  = "yaml"
	asName  = "name"
)

var outputs = []string{asTable, asWide, asJSON, asYAML, asName}

func (c *cli) wide() bool { return c.flags.output == asWide }

// forPeople tells whether the output is read by people rather than programs.
func (c *cli) forPeople() bool { return c.flags.output == asTable || c.flags.output == asWide }

// result is what a command answers, in every form it can be printed.
type result struct {
	msg   any // proto.Message, or what encoding/json takes
	names []string
	print func(w io.Writer, color bool) error // table and wide
}

func (c *cli) print(r result) error {
	switch c.flags.output {
	case asJSON:
		data, err := encodeJSON(r.msg)
		if err != nil {
			return err
		}
		_, err = c.out.Write(append(data, '\n'))
		return err
	case asYAML:
		data, err := encodeYAML(r.msg)
		if err != nil {
			return err
		}
		_, err = c.out.Write(data)
		return err
	case asName:
		for _, name := range r.names {
			if _, err := fmt.Fprintln(c.out, name); err != nil {
				return err
			}
		}
		return nil
	}
	return r.print(c.out, c.color(c.out))
}

// printLine prints one of a sequence of results: JSON as one line, YAML as a
// document.
func (c *cli) printLine(r result) error {
	switch c.flags.output {
	case asJSON:
		data, err := encodeJSON(r.msg)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := json.Compact(&b, data); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		b.WriteByte('\n')
		_, err = c.out.Write(b.Bytes())
		return err
	case asYAML:
		if _, err := io.WriteString(c.out, "---\n"); err != nil {
			return err
		}
	}
	return c.print(r)
}

// printDone prints what was done to things that are gone now.
func (c *cli) printDone(member string, ids []string, done string) error {
	return c.print(result{msg: map[string][]string{member: ids}, names: ids, print: func(w io.Writer, _ bool) error {
		for _, id := range ids {
			if _, err := fmt.Fprintf(w, "%s  %s\n", text.Clean(id), done); err != nil {
				return err
			}
		}
		return nil
	}})
}

// note tells people something beside the result.
func (c *cli) note(format string, args ...any) {
	fmt.Fprintln(c.err, c.paint(c.err, fmt.Sprintf(format, args...), text.Dim))
}

// encodeJSON returns indented JSON with every field present. protojson varies
// its spacing on purpose; indenting again makes it the same every time.
func encodeJSON(v any) ([]byte, error) {
	var data []byte
	var err error
	if m, ok := v.(proto.Message); ok {
		data, err = protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(m)
	} else {
		data, err = json.Marshal(v)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return b.Bytes(), nil
}

// encodeYAML returns the same content and order as encodeJSON.
func encodeYAML(v any) ([]byte, error) {
	data, err := encodeJSON(v)
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(data, &node); err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	blockStyle(&node)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&node); err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return b.Bytes(), nil
}

func blockStyle(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && strings.ContainsFunc(n.Value, func(r rune) bool { return r < ' ' && r != '\n' }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		blockStyle(child)
	}
}

// when returns the time of ts, the zero time if it is unset.
func when(ts *timestamppb.Timestamp) time.Time {
	if ts == nil {
		return time.Time{}
	}
	return ts.AsTime()
}

func (c *cli) ago(ts *timestamppb.Timestamp) string { return text.Ago(c.now(), when(ts)) }

// stamp formats a time in full, with how long ago it was; "" if unset.
func (c *cli) stamp(ts *timestamppb.Timestamp) string {
	if ts == nil {
		return ""
	}
	return ts.AsTime().Format("2006-01-02 15:04:05Z") + " (" + c.ago(ts) + ")"
}

// span formats the time from one point to another, to now if the second is
// unset, "-" if the first is.
func (c *cli) span(from, to *timestamppb.Timestamp) string {
	if from == nil {
		return "-"
	}
	end := c.now()
	if to != nil {
		end = to.AsTime()
	}
	return text.Duration(end.Sub(from.AsTime()))
}

// enumName returns the short lower-case name of an enumeration's value.
func enumName(full, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(full, prefix), "_", "-"))
}
