package resourcefile

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

// CSV reads a CSV file.
type CSV struct {
	in      *csv.Reader
	kinds   Kinds
	columns []string
}

const (
	labelColumn     = "labels."
	attributeColumn = "attributes."
)

// NewCSV returns a reader of r, after it has read the header. It returns an
// error if that names a column nobody knows, one twice, or not those that
// every resource needs.
func NewCSV(r io.Reader, kinds Kinds) (*CSV, error) {
	b := bufio.NewReader(r)
	if mark, err := b.Peek(3); err == nil && string(mark) == "\uFEFF" {
		_, _ = b.Discard(3) // they are buffered
	}
	in := csv.NewReader(b)
	in.FieldsPerRecord = -1 // checked here, with the line
	header, err := in.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("line 1: the file is empty; want a line that names the columns")
	}
	if err != nil {
		return nil, csvError(err)
	}
	c := &CSV{in: in, kinds: kinds}
	for i, name := range header {
		line, _ := in.FieldPos(i)
		name = strings.TrimSpace(name)
		switch {
		case slices.Contains(columns, name), name == "attributes", name == "version", slices.Contains(output, name):
		case strings.HasPrefix(name, labelColumn) && len(name) > len(labelColumn), strings.HasPrefix(name, attributeColumn) && len(name) > len(attributeColumn):
		default:
			return nil, fmt.Errorf("line %d: unknown column %q; known are %s, labels.NAME, attributes, attributes.NAME", line, clip(name), strings.Join(columns, ", "))
		}
		if slices.Contains(c.columns, name) {
			return nil, fmt.Errorf("line %d: column %q is there twice", line, name)
		}
		c.columns = append(c.columns, name)
	}
	for _, name := range []string{"resource_id", "type"} {
		if !slices.Contains(c.columns, name) {
			return nil, fmt.Errorf("line 1: there is no column %q", name)
		}
	}
	return c, nil
}

func csvError(err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return fmt.Errorf("line %d: not CSV: %w", p.Line, p.Err)
	}
	return err
}

// Next is of [Reader].
func (c *CSV) Next() (*Item, error) {
	row, err := c.in.Read()
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		item := &Item{Line: parse.StartLine}
		item.problem(parse.Line, "", "not CSV: %v", parse.Err)
		return item, nil
	}
	if err != nil {
		return nil, err
	}
	line, _ := c.in.FieldPos(0)
	item := &Item{Resource: &registryv1.Resource{}, Line: line, lines: map[string]int{}}
	if len(row) != len(c.columns) {
		item.problem(line, "", "has %d columns, want %d as in the header", len(row), len(c.columns))
		return item, nil
	}
	typ := strings.TrimSpace(row[slices.Index(c.columns, "type")])
	attributes := map[string]any{}
	for i, cell := range row {
		if cell == "" {
			continue
		}
		at, _ := c.in.FieldPos(i)
		c.set(item, typ, attributes, c.columns[i], cell, at)
	}
	if len(attributes) == 0 {
		return item, nil
	}
	s, err := structpb.NewStruct(attributes)
	if err != nil {
		item.problem(line, "attributes", "must be valid UTF-8")
		return item, nil
	}
	item.Resource.Attributes = s
	return item, nil
}

func (c *CSV) set(item *Item, typ string, attributes map[string]any, column, cell string, line int) {
	item.lines[column] = line
	label := func(name, value string) {
		if item.Resource.Labels == nil {
			item.Resource.Labels = map[string]string{}
		}
		if _, twice := item.Resource.Labels[name]; twice {
			item.problem(line, labelColumn+clip(name), "is given twice")
		}
		item.Resource.Labels[name] = value
	}
	attribute := func(name string, value any) {
		if _, twice := attributes[name]; twice {
			item.problem(line, attributeColumn+clip(name), "is given twice")
		}
		attributes[name] = value
	}
	switch {
	case column == "labels":
		var labels map[string]string
		if err := json.Unmarshal([]byte(cell), &labels); err != nil {
			item.problem(line, column, `want a JSON object of texts such as {"rack":"7"}, got %q`, clip(cell))
			return
		}
		for name, value := range labels {
			label(name, value)
		}
	case column == "attributes":
		var all map[string]any
		if err := json.Unmarshal([]byte(cell), &all); err != nil {
			item.problem(line, column, "want a JSON object, got %q", clip(cell))
			return
		}
		for name, value := range all {
			attribute(name, value)
		}
	case strings.HasPrefix(column, labelColumn):
		label(strings.TrimPrefix(column, labelColumn), cell)
	case strings.HasPrefix(column, attributeColumn):
		name := strings.TrimPrefix(column, attributeColumn)
		value, want := typed(c.kinds(typ, name), cell)
		if want != "" {
			item.problem(line, column, "want %s, got %q", want, clip(cell))
			return
		}
		attribute(name, value)
	default:
		if f := members[column]; f != nil {
			item.setScalar(f, line, cell)
		}
	}
}

// typed reads a cell as a JSON type; want says what would be right if it is not.
func typed(kind, cell string) (value any, want string) {
	switch kind {
	case "number", "integer":
		f, err := strconv.ParseFloat(strings.TrimSpace(cell), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, "a number"
		}
		return f, ""
	case "boolean":
		switch strings.ToLower(strings.TrimSpace(cell)) {
		case "true":
			return true, ""
		case "false":
			return false, ""
		}
		return nil, "true or false"
	case "array":
		var v []any
		if json.Unmarshal([]byte(cell), &v) != nil {
			return nil, `a JSON list such as ["a","b"]`
		}
		return v, ""
	case "object":
		var v map[string]any
		if json.Unmarshal([]byte(cell), &v) != nil {
			return nil, `a JSON object such as {"a":1}`
		}
		return v, ""
	}
	return cell, "" // text, and what the server will not know
}
