// Package expr compiles and evaluates the expressions of tag rules, selectors
// and placement constraints. The language is CEL, the Common Expression
// Language: it has no loops without an end, no effects and no clock.
//
// What it keeps true:
//
//   - An expression that compiles reads nothing but the variables of its
//     [Scope] and answers what was asked of it: true or false, or a text.
//     Everything else is a [Problem] with its line and column, before anything
//     is evaluated.
//   - Evaluating ends: an evaluation that costs more than [MaxCost] is given
//     up. What cannot be evaluated, such as a tag that is not there, does not
//     hold; it never counts as true.
//   - An Expr does not change after it is compiled and may be used by many
//     goroutines at once.
package expr

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/parser"
)

// Limits of an expression.
const (
	MaxLength = 2048   // bytes
	MaxCost   = 20_000 // steps of one evaluation, about 2 ms
	maxDepth  = 32
	maxNodes  = 512
	maxValue  = 256 // bytes of a computed text that are kept
)

// Problem is what is wrong with an expression.
type Problem struct {
	Line, Column int // from 1
	Message      string
}

// String writes the problem as "line 1, column 8: …".
func (p Problem) String() string {
	return "line " + strconv.Itoa(p.Line) + ", column " + strconv.Itoa(p.Column) + ": " + p.Message
}

// Facts are the values of the variables of a scope; see [Scope.Facts].
type Facts map[string]any

// Expr is an expression that was compiled.
type Expr struct {
	text  string
	scope Scope
	parts []part // all must hold; one if it answers a text
	refs  []ref
	reads string
}

// part is an operand of the outermost "&&".
type part struct {
	text string
	run  cel.Program
	refs []ref
}

// ref is a variable that is read, or one entry of it.
type ref struct {
	name, key string
	keyed     bool
}

func (r ref) String() string {
	if !r.keyed {
		return r.name
	}
	return r.name + "[" + strconv.Quote(r.key) + "]"
}

// Compile compiles an expression that is true or false.
func Compile(s Scope, text string) (*Expr, []Problem) { return compile(s, text, cel.BoolType) }

// CompileText compiles an expression whose value is a text, such as "region".
func CompileText(s Scope, text string) (*Expr, []Problem) { return compile(s, text, cel.StringType) }

// CompileNumber compiles an expression whose value is a number.
func CompileNumber(s Scope, text string) (*Expr, []Problem) { return compile(s, text, cel.DoubleType) }

func compile(s Scope, text string, want *cel.Type) (*Expr, []Problem) {
	one := func(format string, args ...any) (*Expr, []Problem) {
		return nil, []Problem{{1, 1, fmt.Sprintf(format, args...)}}
	}
	switch {
	case strings.TrimSpace(text) == "":
		return one("is empty")
	case len(text) > MaxLength:
		return one("must be at most %d bytes, got %d", MaxLength, len(text))
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return one("must be valid UTF-8 without zero bytes")
	}
	env, err := s.env()
	if err != nil {
		return one("%v", err)
	}
	checked, issues := env.Compile(text)
	if issues != nil && issues.Err() != nil {
		return nil, s.spell(text, problems(issues))
	}
	if got := checked.OutputType(); !got.IsExactType(want) && !got.IsExactType(cel.DynType) && (want != cel.DoubleType || !got.IsExactType(cel.IntType) && !got.IsExactType(cel.UintType)) {
		return one("must be %s, is of type %s", article(want), got)
	}
	e := &Expr{text: text, scope: s}
	tree := checked.NativeRep()
	operands := []ast.Expr{tree.Expr()}
	if want == cel.BoolType {
		operands = conjuncts(tree.Expr(), nil)
	}
	for _, o := range operands {
		sub := ast.NewCheckedAST(ast.NewAST(o, tree.SourceInfo()), tree.TypeMap(), tree.ReferenceMap())
		run, err := env.PlanProgram(sub, cel.CostLimit(MaxCost), cel.EvalOptions(cel.OptOptimize))
		if err != nil {
			return one("%v", err)
		}
		p := part{run: run, refs: references(o, s.variables())}
		if p.text, err = parser.Unparse(o, tree.SourceInfo()); err != nil {
			p.text = text
		}
		e.parts = append(e.parts, p)
		for _, r := range p.refs {
			if !slices.Contains(e.refs, r) {
				e.refs = append(e.refs, r)
			}
		}
	}
	for _, r := range e.refs {
		e.reads += r.String() + " "
	}
	return e, nil
}

func article(t *cel.Type) string {
	switch t {
	case cel.BoolType:
		return "true or false"
	case cel.DoubleType:
		return "a number"
	}
	return "a text"
}

// maxProblems is enough to mend an expression in one go.
const maxProblems = 8

func problems(issues *cel.Issues) []Problem {
	var out []Problem
	for _, e := range issues.Errors() {
		if len(out) == maxProblems {
			break
		}
		p := Problem{max(e.Location.Line(), 1), max(e.Location.Column()+1, 1), strings.ToValidUTF8(e.Message, "�")}
		if len(p.Message) > 300 {
			p.Message = strings.ToValidUTF8(p.Message[:300], "") + "…"
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		out = []Problem{{1, 1, issues.Err().Error()}}
	}
	return out
}

// spell names what is not declared in full where names have dots: of
// "job.tenat" the library says "job" only.
func (s Scope) spell(text string, list []Problem) []Problem {
	lines := strings.Split(text, "\n")
	for i := range list {
		p := &list[i]
		root, _, found := strings.Cut(strings.TrimPrefix(p.Message, "undeclared reference to '"), "'")
		if !found || !strings.HasPrefix(p.Message, "undeclared") || p.Line > len(lines) || !slices.ContainsFunc(declared[s], func(v variable) bool { return strings.HasPrefix(v.name, root+".") }) {
			continue
		}
		line := []rune(lines[p.Line-1]) // columns count characters
		if p.Column-1 >= len(line) {
			continue
		}
		rest := line[p.Column-1:]
		end := 0
		for end < len(rest) && (rest[end] == '.' || rest[end] == '_' || rest[end] >= 'a' && rest[end] <= 'z' || rest[end] >= 'A' && rest[end] <= 'Z' || rest[end] >= '0' && rest[end] <= '9') {
			end++
		}
		p.Message = "undeclared reference to '" + clip(string(rest[:end]), 64) + "'"
	}
	return list
}

func conjuncts(e ast.Expr, out []ast.Expr) []ast.Expr {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.LogicalAnd {
		for _, a := range e.AsCall().Args() {
			out = conjuncts(a, out)
		}
		return out
	}
	return append(out, e)
}

// references lists the variables that e reads, in the order of the text.
func references(e ast.Expr, variables map[string]bool) []ref {
	var out []ref
	add := func(r ref) {
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	name := func(e ast.Expr) string {
		if e.Kind() == ast.IdentKind && variables[e.AsIdent()] {
			return e.AsIdent()
		}
		return ""
	}
	text := func(e ast.Expr) (string, bool) {
		if e.Kind() != ast.LiteralKind {
			return "", false
		}
		s, ok := e.AsLiteral().(types.String)
		return string(s), ok
	}
	var walk func(e ast.Expr)
	walk = func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			if n := name(e); n != "" {
				add(ref{name: n})
			}
		case ast.SelectKind:
			s := e.AsSelect()
			if n := name(s.Operand()); n != "" {
				add(ref{n, s.FieldName(), true})
				return
			}
			walk(s.Operand())
		case ast.CallKind:
			c := e.AsCall()
			if args := c.Args(); len(args) == 2 {
				m, k := args[0], args[1]
				if c.FunctionName() == operators.In {
					m, k = k, m
				}
				key, literal := text(k)
				if n := name(m); n != "" && literal && (c.FunctionName() == operators.In || c.FunctionName() == operators.Index) {
					add(ref{n, key, true})
					return
				}
			}
			if c.IsMemberFunction() {
				walk(c.Target())
			}
			for _, a := range c.Args() {
				walk(a)
			}
		case ast.ListKind:
			for _, x := range e.AsList().Elements() {
				walk(x)
			}
		case ast.MapKind:
			for _, x := range e.AsMap().Entries() {
				walk(x.AsMapEntry().Key())
				walk(x.AsMapEntry().Value())
			}
		case ast.StructKind:
			for _, x := range e.AsStruct().Fields() {
				walk(x.AsStructField().Value())
			}
		case ast.ComprehensionKind:
			c := e.AsComprehension()
			for _, x := range []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()} {
				walk(x)
			}
		}
	}
	walk(e)
	return out
}

// String is the text that was compiled.
func (e *Expr) String() string { return e.text }

// Live reports whether e reads what changes while work runs.
func (e *Expr) Live() bool {
	return slices.ContainsFunc(e.refs, func(r ref) bool { return e.scope.live(r.name) })
}

// Tags returns the keys of the tags that e names, and whether it reads tags in
// another way too.
func (e *Expr) Tags() (keys []string, others bool) {
	for _, r := range e.refs {
		switch {
		case r.name != "tags":
		case r.keyed:
			keys = append(keys, r.key)
		default:
			others = true
		}
	}
	return keys, others
}

// Holds evaluates e. The error is for a person: the evaluation was given up,
// or met something it cannot compute with. What is merely not there, such as a
// tag, is no error: e does not hold.
func (e *Expr) Holds(f Facts) (bool, error) {
	for i := range e.parts {
		if ok, err := e.parts[i].holds(f); !ok {
			return false, err
		}
	}
	return true, nil
}

func (p *part) holds(f Facts) (bool, error) {
	v, _, err := p.run.Eval(map[string]any(f))
	if err != nil {
		return false, evalError(err)
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, errors.New("the value is not true or false but " + v.Type().TypeName())
	}
	return bool(b), nil
}

// evalError is nil for what is merely not there.
func evalError(err error) error {
	msg := err.Error()
	switch {
	case strings.HasPrefix(msg, "no such key"), strings.HasPrefix(msg, "no such attribute"):
		return nil
	case strings.Contains(msg, "cost limit exceeded"):
		return fmt.Errorf("takes more than %d steps; make it simpler", MaxCost)
	}
	return errors.New(msg)
}

// Why says for a person why e does not hold; "" if it does. It names the first
// operand of "&&" that does not, with the values it read.
func (e *Expr) Why(f Facts) string {
	for i := range e.parts {
		p := &e.parts[i]
		ok, err := p.holds(f)
		if ok {
			continue
		}
		text := "does not meet " + clip(p.text, 200)
		if err != nil {
			return text + ": " + clip(err.Error(), 200)
		}
		var values []string
		for _, r := range p.refs {
			if len(values) == 4 {
				values = append(values, "…")
				break
			}
			values = append(values, r.show(f))
		}
		if len(values) > 0 {
			text += ": " + strings.Join(values, "; ")
		}
		return text
	}
	return ""
}

// Values says for a person what e reads, at most 8 values.
func (e *Expr) Values(f Facts) string {
	var out []string
	for _, r := range e.refs {
		if len(out) == 8 {
			out = append(out, "…")
			break
		}
		out = append(out, r.show(f))
	}
	return strings.Join(out, "; ")
}

func (r ref) show(f Facts) string {
	v, ok := r.value(f)
	if !ok {
		if r.name == "tags" && r.keyed {
			return "has no tag " + r.key
		}
		return r.String() + " is not set"
	}
	if s, is := v.(string); is {
		return r.String() + " is " + clip(strconv.Quote(s), 80)
	}
	return r.String() + " is " + clip(fmt.Sprint(v), 80)
}

func (r ref) value(f Facts) (any, bool) {
	v, ok := f[r.name]
	if !r.keyed || !ok {
		return v, ok
	}
	switch m := v.(type) {
	case map[string]string:
		v, ok := m[r.key]
		return v, ok
	case map[string]int64:
		v, ok := m[r.key]
		return v, ok
	case map[string]any:
		v, ok := m[r.key]
		return v, ok
	}
	return nil, false
}

// Text evaluates an expression made by [CompileText], cut to 256 bytes. It is
// "" for what is not there; the error is as that of [Expr.Holds].
func (e *Expr) Text(f Facts) (string, error) {
	v, _, err := e.parts[0].run.Eval(map[string]any(f))
	if err != nil {
		return "", evalError(err)
	}
	s, ok := v.(types.String)
	if !ok {
		return "", errors.New("the value is not a text but " + v.Type().TypeName())
	}
	text := string(s)
	if len(text) > maxValue {
		text = strings.ToValidUTF8(text[:maxValue], "")
	}
	return text, nil
}

// Number evaluates an expression made by [CompileNumber]; known is false for
// what is not there and for what is no number, such as 0 divided by 0. The
// error is as that of [Expr.Holds].
func (e *Expr) Number(f Facts) (n float64, known bool, err error) {
	v, _, err := e.parts[0].run.Eval(map[string]any(f))
	if err != nil {
		return 0, false, evalError(err)
	}
	switch v := v.(type) {
	case types.Int:
		n = float64(v)
	case types.Uint:
		n = float64(v)
	case types.Double:
		n = float64(v)
	default:
		return 0, false, errors.New("the value is not a number but " + v.Type().TypeName())
	}
	return n, !math.IsNaN(n), nil
}

// ReadsAny reports whether e reads a variable whose name begins with prefix.
func (e *Expr) ReadsAny(prefix string) bool {
	return slices.ContainsFunc(e.refs, func(r ref) bool { return strings.HasPrefix(r.name, prefix) })
}

// Reads names what e reads; expressions with equal Reads have equal keys.
func (e *Expr) Reads() string { return e.reads }

// AppendKey appends what e reads of f: facts with equal keys give equal
// answers and reasons.
func (e *Expr) AppendKey(b []byte, f Facts) []byte {
	for _, r := range e.refs {
		v, ok := r.value(f)
		if !ok {
			b = append(b, '-', ',')
			continue
		}
		switch v := v.(type) {
		case string:
			b = append(strconv.AppendInt(b, int64(len(v)), 10), ':')
			b = append(b, v...)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		default:
			b = fmt.Appendf(b, "%#v", v) // maps print in the order of their keys
		}
		b = append(b, ',')
	}
	return b
}

func clip(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}
