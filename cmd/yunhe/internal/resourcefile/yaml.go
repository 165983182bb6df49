package resourcefile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

// YAML reads a YAML file. Lists are read item by item: where one ends is seen
// from the lines that begin with a hyphen at its own depth, which YAML lets
// nothing inside of an item do.
type YAML struct {
	in    *bufio.Reader
	line  int // of the line read last
	ahead *textLine
	state state
	depth int // of the hyphens of the list

	wrapped bool // the list is the member "resources"
	ready   []*Item
	done    bool
}

// state is where in a document the reader is.
type state int

const (
	outside  state = iota // before the content of a document
	inList                // between the items of a list
	inObject              // after "resources:", before its list
	inRest                // after that list
)

type textLine struct {
	text   string
	number int
}

// NewYAML returns a reader of r.
func NewYAML(r io.Reader) *YAML { return &YAML{in: bufio.NewReaderSize(r, 64<<10)} }

var errTooLong = fmt.Errorf("a line is longer than %d MiB", MaxDocument>>20)

// readLine returns the next line with its end, nil at the end of the file.
func (y *YAML) readLine() (*textLine, error) {
	if l := y.ahead; l != nil {
		y.ahead = nil
		return l, nil
	}
	var b []byte
	for {
		part, err := y.in.ReadSlice('\n')
		if b = append(b, part...); len(b) > MaxDocument {
			return nil, fmt.Errorf("line %d: %w", y.line+1, errTooLong)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(b) == 0 {
			return nil, nil
		}
		y.line++
		if y.line == 1 {
			b = bytes.TrimPrefix(b, []byte("\uFEFF"))
		}
		return &textLine{string(b), y.line}, nil
	}
}

// blank tells whether the line has no content.
func (l *textLine) blank() bool {
	s := strings.TrimLeft(l.text, " \t\r\n")
	return s == "" || s[0] == '#'
}

// marker tells whether the line separates documents; rest is what follows it.
func (l *textLine) marker() (rest string, ok bool) {
	s := strings.TrimRight(l.text, "\r\n")
	for _, m := range []string{"---", "..."} {
		if after, found := strings.CutPrefix(s, m); found && (after == "" || after[0] == ' ' || after[0] == '\t') {
			return after, true
		}
	}
	return "", false
}

// hyphen returns the depth of the line's hyphen, -1 if it does not begin an
// item of a list.
func (l *textLine) hyphen() int {
	s := strings.TrimLeft(l.text, " ")
	if s = strings.TrimRight(s, "\r\n"); s == "-" || strings.HasPrefix(s, "- ") || strings.HasPrefix(s, "-\t") {
		return len(l.text) - len(strings.TrimLeft(l.text, " "))
	}
	return -1
}

var (
	resourcesKey = regexp.MustCompile(`^resources:([ \t]+#.*|[ \t]*)\r?\n?$`)
	tokenKey     = regexp.MustCompile(`^(nextPageToken|next_page_token):`)
)

// Next is of [Reader].
func (y *YAML) Next() (*Item, error) {
	for {
		if len(y.ready) > 0 {
			item := y.ready[0]
			y.ready = y.ready[1:]
			return item, nil
		}
		if y.done {
			return nil, io.EOF
		}
		l, err := y.readLine()
		if err != nil {
			return nil, err
		}
		if l == nil {
			y.done = true
			continue
		}
		if err := y.take(l); err != nil {
			return nil, err
		}
	}
}

// take handles a line outside of any item.
func (y *YAML) take(l *textLine) error {
	if rest, ok := l.marker(); ok {
		y.state, y.wrapped = outside, false
		if blanks := strings.TrimSpace(rest); blanks == "" || blanks[0] == '#' {
			return nil
		}
		l = &textLine{"   " + rest + "\n", l.number} // the same columns
	}
	if l.blank() || y.state == outside && l.text[0] == '%' {
		return nil
	}
	depth := l.hyphen()
	switch y.state {
	case outside:
		if depth >= 0 {
			y.state, y.depth = inList, depth
			return y.item(l)
		}
		if resourcesKey.MatchString(l.text) {
			y.state, y.wrapped = inObject, true
			return nil
		}
		return y.document(l)
	case inObject:
		if depth >= 0 {
			y.state, y.depth = inList, depth
			return y.item(l)
		}
		y.state = inRest
	case inList:
		if depth == y.depth {
			return y.item(l)
		}
		y.state = inRest
	}
	if y.wrapped && tokenKey.MatchString(l.text) {
		return nil
	}
	y.bad(l.number, "does not belong to the list of resources")
	return y.skip()
}

func (y *YAML) bad(line int, format string, args ...any) {
	item := &Item{Line: line}
	item.problem(line, "", format, args...)
	y.ready = append(y.ready, item)
}

// skip reads over the rest of the document.
func (y *YAML) skip() error {
	for {
		l, err := y.readLine()
		if err != nil || l == nil {
			return err
		}
		if _, ok := l.marker(); ok {
			y.ahead = l
			return nil
		}
	}
}

// gather reads lines up to one that end tells, or of another document.
func (y *YAML) gather(first *textLine, limit int, end func(l *textLine) bool) (text []byte, whole bool, err error) {
	text, whole = append(text, first.text...), true
	for {
		l, err := y.readLine()
		if err != nil || l == nil {
			return text, whole, err
		}
		if _, ok := l.marker(); ok || end(l) {
			y.ahead = l
			return text, whole, nil
		}
		if len(text)+len(l.text) > limit {
			whole = false // go on to where it ends, without keeping it
			continue
		}
		text = append(text, l.text...)
	}
}

func (y *YAML) item(first *textLine) error {
	text, whole, err := y.gather(first, MaxResource, func(l *textLine) bool {
		return l.hyphen() == y.depth || y.wrapped && !l.blank() && l.hyphen() < 0 && l.text[0] != ' ' && l.text[0] != '\t'
	})
	if err != nil {
		return err
	}
	if !whole {
		y.bad(first.number, "a resource must be at most %d KiB", MaxResource>>10)
		return nil
	}
	y.parse(text, span{first.number - 1, last(first, text)})
	return nil
}

func (y *YAML) document(first *textLine) error {
	text, whole, err := y.gather(first, MaxDocument, func(*textLine) bool { return false })
	if err != nil {
		return err
	}
	if !whole {
		y.bad(first.number, "a document that is no list must be at most %d MiB; write a list, or documents separated by ---", MaxDocument>>20)
		return nil
	}
	y.parse(text, span{first.number - 1, last(first, text)})
	return nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// span is where in the file a piece of YAML is. YAML counts lines that editors
// do not (after a lone carriage return, for example).
type span struct{ before, last int }

func (s span) line(n int) int { return min(s.before+max(n, 1), s.last) }

// last is the last line of a piece of YAML.
func last(first *textLine, text []byte) int {
	return first.number + bytes.Count(bytes.TrimRight(text, "\r\n"), []byte{'\n'})
}

// parse reads the resources of a piece of YAML.
func (y *YAML) parse(text []byte, in span) {
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); err != nil {
		line := 1
		m := yamlLine.FindStringSubmatch(err.Error())
		if m != nil && m[1] != "" {
			line, _ = strconv.Atoi(m[1]) // it is of digits
		}
		y.bad(in.line(line), "not YAML: %s", yamlLine.ReplaceAllString(err.Error(), ""))
		return
	}
	if len(doc.Content) != 1 {
		return
	}
	top := doc.Content[0]
	list := []*yaml.Node{top}
	switch {
	case top.Kind == yaml.SequenceNode:
		list = top.Content
	case top.Kind == yaml.MappingNode && len(top.Content) >= 2 && top.Content[0].Value == "resources":
		for i := 2; i < len(top.Content); i += 2 {
			if k := top.Content[i]; !tokenKey.MatchString(k.Value + ":") {
				y.bad(in.line(k.Line), "%q does not belong to a list of resources", clip(k.Value))
			}
		}
		if list = top.Content[1].Content; top.Content[1].Kind != yaml.SequenceNode {
			y.bad(in.line(top.Content[1].Line), "resources must be a list")
			return
		}
	}
	for _, n := range list {
		y.ready = append(y.ready, itemOf(n, in))
	}
}

// itemOf makes a resource of a node.
func itemOf(n *yaml.Node, in span) *Item {
	item := &Item{Resource: &registryv1.Resource{}, Line: in.line(n.Line), lines: map[string]int{}}
	if n.Kind != yaml.MappingNode {
		item.problem(item.Line, "", "want a resource, which is an object, got %s", describe(n))
		return item
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		line := in.line(k.Line)
		f, known := members[k.Value]
		switch {
		case k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge":
			item.problem(line, "", "a member's name must be text")
			continue
		case !known:
			item.problem(line, clip(k.Value), "unknown member; known are %s", strings.Join(append(slices.Clone(columns), "attributes", "version"), ", "))
			continue
		case f == nil:
			continue // only the server sets it
		}
		name := string(f.Name())
		if seen[name] {
			item.problem(line, name, "is given twice")
			continue
		}
		seen[name], item.lines[name] = true, line
		item.setNode(f, v, in)
	}
	return item
}

func (i *Item) setNode(f protoreflect.FieldDescriptor, v *yaml.Node, in span) {
	name, line := string(f.Name()), in.line(v.Line)
	if v.Kind == yaml.ScalarNode && v.ShortTag() == "!!null" {
		return
	}
	switch name {
	case "labels":
		if _, ok := i.value(v, name, in, 0).(map[string]any); !ok {
			i.problem(line, name, "want an object, got %s", describe(v))
			return
		}
		i.Resource.Labels = map[string]string{}
		for k := 0; k+1 < len(v.Content); k += 2 {
			key, x := v.Content[k].Value, v.Content[k+1]
			if x.Kind != yaml.ScalarNode {
				i.problem(in.line(x.Line), name+"."+clip(key), "want text, got %s", describe(x))
				continue
			}
			i.Resource.Labels[key] = x.Value // as written: 007 is not 7
		}
	case "attributes":
		x, ok := i.value(v, name, in, 0).(map[string]any)
		if !ok {
			i.problem(line, name, "want an object, got %s", describe(v))
			return
		}
		s, err := structpb.NewStruct(x)
		if err != nil {
			i.problem(line, name, "must be valid UTF-8")
			return
		}
		i.Resource.Attributes = s
	default:
		if v.Kind != yaml.ScalarNode {
			i.problem(line, name, "want text, got %s", describe(v))
			return
		}
		i.setScalar(f, line, v.Value)
	}
}

// value makes of a node what JSON has, and notes where its members are.
func (i *Item) value(n *yaml.Node, at string, in span, depth int) any {
	if i.lines[at] == 0 { // the line of its name is noted already
		i.lines[at] = in.line(n.Line)
	}
	if depth > maxDepth {
		i.problem(in.line(n.Line), at, "is nested deeper than %d", maxDepth)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for k := 0; k+1 < len(n.Content); k += 2 {
			key := n.Content[k]
			if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
				i.problem(in.line(key.Line), at, "a member's name must be text")
				continue
			}
			if _, twice := out[key.Value]; twice {
				i.problem(in.line(key.Line), at+"."+clip(key.Value), "is given twice")
				continue
			}
			i.lines[at+"."+key.Value] = in.line(key.Line)
			out[key.Value] = i.value(n.Content[k+1], at+"."+key.Value, in, depth+1)
		}
		return out
	case yaml.SequenceNode:
		out := []any{}
		for k, c := range n.Content {
			out = append(out, i.value(c, at+"["+strconv.Itoa(k)+"]", in, depth+1))
		}
		return out
	case yaml.AliasNode:
		i.problem(in.line(n.Line), at, "aliases are not read here; write the value")
		return nil
	}
	return i.scalar(n, at, in)
}

func (i *Item) scalar(n *yaml.Node, at string, in span) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int", "!!float":
		var f float64
		if n.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
		i.problem(in.line(n.Line), at, "want a finite number, got %s", clip(n.Value))
		return nil
	case "!!binary":
		i.problem(in.line(n.Line), at, "!!binary is not read here; write text")
		return nil
	}
	return n.Value
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	return strconv.Quote(clip(n.Value))
}
