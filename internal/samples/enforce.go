package samples

import (
	"fmt"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"yunhe.dev/yunhe/internal/fault"
)

// promParser leaves experimental functions off. Enforce relies on it: info()
// reads series that no selector in the expression names.
var promParser = parser.NewParser(parser.Options{})

// Enforce returns an expression that reads only series whose label has this
// value, or that do not have the label if value is empty, and is otherwise the
// same: every selector gets one more matcher, which narrows what the selector
// says itself about the label. Kinds: Invalid if expr is not PromQL, or label
// or value cannot be enforced. The expression may come from anyone.
func Enforce(expr, label, value string) (string, error) {
	if err := checkExpr(expr); err != nil {
		return "", err
	}
	if err := checkLabelName(label); err != nil {
		return "", err
	}
	if len(value) > MaxLabelValue || !utf8.ValidString(value) {
		return "", fault.New(fault.Invalid, "value of label %s must be at most %d bytes of UTF-8, got %q", label, MaxLabelValue, value)
	}
	parsed, err := promParser.ParseExpr(expr)
	if err != nil {
		return "", fault.New(fault.Invalid, "expression is wrong: %v", err)
	}
	matcher, err := labels.NewMatcher(labels.MatchEqual, label, value)
	if err != nil {
		return "", fmt.Errorf("enforce label %s: %w", label, err)
	}
	for _, s := range selectors(parsed) {
		s.LabelMatchers = append(s.LabelMatchers, matcher)
	}
	enforced := parsed.String()

	// Printing and parsing are not ours: trust the text only if it says what
	// the tree said.
	again, err := promParser.ParseExpr(enforced)
	if err != nil || again.String() != enforced {
		return "", fault.New(fault.Invalid, "expression cannot be confined to %s=%q: write it in a simpler way", label, value)
	}
	if n := len(selectors(parsed)); len(selectors(again)) != n || !confined(again, label, value) {
		return "", fault.New(fault.Invalid, "expression cannot be confined to %s=%q: write it in a simpler way", label, value)
	}
	return enforced, nil
}

// selectors returns every part of an expression that reads series.
func selectors(expr parser.Expr) []*parser.VectorSelector {
	var out []*parser.VectorSelector
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			out = append(out, s)
		}
		return nil
	})
	return out
}

// confined tells if every selector matches label exactly with value.
func confined(expr parser.Expr, label, value string) bool {
	for _, s := range selectors(expr) {
		found := false
		for _, m := range s.LabelMatchers {
			found = found || m.Type == labels.MatchEqual && m.Name == label && m.Value == value
		}
		if !found {
			return false
		}
	}
	return true
}
