package samples

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"yunhe.dev/yunhe/internal/fault"
)

func TestEnforce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ expr, want string }{
		{`up`, `up{tenant="t1"}`},
		{`up{}`, `up{tenant="t1"}`},
		{`{job="x"}`, `{job="x",tenant="t1"}`},
		{`up{tenant="t2"}`, `up{tenant="t2",tenant="t1"}`},
		{`up{tenant=~".*"} offset 5m`, `up{tenant="t1",tenant=~".*"} offset 5m`},
		{`rate(a[5m]) / on (x) group_left () b`, `rate(a{tenant="t1"}[5m]) / on (x) group_left () b{tenant="t1"}`},
		{`sum by (x) (max_over_time(a[1h:5m] @ 10))`, `sum by (x) (max_over_time(a{tenant="t1"}[1h:5m] @ 10.000))`},
		{`absent(a) or vector(1) unless -b`, `absent(a{tenant="t1"}) or vector(1) unless -b{tenant="t1"}`},
		{`label_replace(a, "tenant", "t2", "", "")`, `label_replace(a{tenant="t1"}, "tenant", "t2", "", "")`},
		{`topk(scalar(k), a)`, `topk(scalar(k{tenant="t1"}), a{tenant="t1"})`},
		{`1 + 1`, `1 + 1`},
		{`{__name__="a"}`, `{__name__="a",tenant="t1"}`},
	} {
		got, err := Enforce(test.expr, "tenant", "t1")
		if err != nil {
			t.Errorf("%s: %v", test.expr, err)
			continue
		}
		// Printing orders matchers as it likes: compare what they parse to.
		gotTree, err1 := promParser.ParseExpr(got)
		wantTree, err2 := promParser.ParseExpr(test.want)
		if err1 != nil || err2 != nil {
			t.Fatalf("%s: %v, %v", test.expr, err1, err2)
		}
		if normal(gotTree) != normal(wantTree) {
			t.Errorf("%s: got %s, want %s", test.expr, got, test.want)
		}
		if !confined(gotTree, "tenant", "t1") {
			t.Errorf("%s: a selector of %s is not confined", test.expr, got)
		}
		again, err := Enforce(got, "tenant", "t1")
		if tree, perr := promParser.ParseExpr(again); err != nil || perr != nil || !confined(tree, "tenant", "t1") {
			t.Errorf("%s enforced twice: %s, %v, %v", test.expr, again, err, perr)
		}
	}
}

func TestEnforceNone(t *testing.T) {
	t.Parallel()
	got, err := Enforce(`sum(a{job="x"}) / on () b`, "tenant", "")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := promParser.ParseExpr(got)
	if err != nil || !confined(tree, "tenant", "") || len(selectors(tree)) != 2 {
		t.Errorf("got %s, %v", got, err)
	}
	for expr, label := range map[string]string{"a{": "tenant", "": "tenant", "a": "__name__"} {
		if _, err := Enforce(expr, label, ""); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q without %s: %v", expr, label, err)
		}
	}
}

// normal prints an expression with its matchers in one order.
func normal(expr parser.Expr) string {
	for _, s := range selectors(expr) {
		for i := range s.LabelMatchers {
			for j := i; j > 0 && s.LabelMatchers[j].String() < s.LabelMatchers[j-1].String(); j-- {
				s.LabelMatchers[j], s.LabelMatchers[j-1] = s.LabelMatchers[j-1], s.LabelMatchers[j]
			}
		}
	}
	return expr.String()
}

func TestEnforceRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ expr, label, value string }{
		{"", "tenant", "t"},
		{"up{", "tenant", "t"},
		{"up} or secret{", "tenant", "t"},
		{"info(up)", "tenant", "t"}, // reads target_info of everyone
		{strings.Repeat("(", MaxExpr/2) + "up" + strings.Repeat(")", MaxExpr/2), "tenant", "t"},
		{"up", "", "t"},
		{"up", "__name__", "t"},
		{"up", "a-b", "t"},
		{"up", "tenant", "\xff"},
		{"up", "tenant", strings.Repeat("x", MaxLabelValue+1)},
	} {
		got, err := Enforce(test.expr, test.label, test.value)
		if err == nil || fault.KindOf(err) != fault.Invalid {
			t.Errorf("%.30q, %q, %.30q: got %q, %v, want an invalid argument", test.expr, test.label, test.value, got, err)
		}
	}
}

func TestEnforceQuotesTheValue(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`"`, `\`, "\n", `t"} or secret{x="`, "租户", "`", "\x00"} {
		got, err := Enforce("up", "tenant", value)
		if err != nil {
			t.Errorf("value %q: %v", value, err)
			continue
		}
		tree, err := promParser.ParseExpr(got)
		if err != nil || len(selectors(tree)) != 1 || !confined(tree, "tenant", value) {
			t.Errorf("value %q: got %s, %v, want one confined selector", value, got, err)
		}
	}
}

func FuzzEnforce(f *testing.F) {
	for _, seed := range []string{
		"up", "up{a=\"b\"}[5m:1m] offset -1h @ start()", "sum without (a) (rate({__name__=~\"x.*\", 'utf-8 ü'=\"v\"}[1m]))",
		"a + on(b) group_right(c) d", "{\"metric.name\", l!~\"\\\\d\"}", "a or b unless c and d ^ -e % 2 == bool 1", "((((a))))", "'text'",
		"histogram_quantile(0.9, sum by (le) (rate(b_bucket[5m])))", "a[1h30m] @ 1.5e3", "1e309", "NaN", "-Inf", "0x1F", "a{b=`c`} # comment",
		"info(a)", "a smoothed", "start()", "quantile_over_time(0.5, a[5m:])",
	} {
		f.Add(seed, "t1")
		f.Add(seed, "\"} or b{\"")
	}
	f.Fuzz(func(t *testing.T, expr, value string) {
		got, err := Enforce(expr, "tenant", value)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Fatalf("%q: got %v, want kind INVALID_ARGUMENT", expr, err)
			}
			return
		}
		before, err := promParser.ParseExpr(expr)
		if err != nil {
			t.Fatalf("%q was enforced but does not parse: %v", expr, err)
		}
		after, err := promParser.ParseExpr(got)
		if err != nil {
			t.Fatalf("%q became %q, which does not parse: %v", expr, got, err)
		}
		if a, b := len(selectors(before)), len(selectors(after)); a != b {
			t.Fatalf("%q with %d selectors became %q with %d", expr, a, got, b)
		}
		for _, s := range selectors(after) {
			found := false
			for _, m := range s.LabelMatchers {
				// Not confined(): this is the definition it is checked against.
				found = found || m.String() == promMatcher(value)
			}
			if !found {
				t.Fatalf("%q became %q: selector %s reads other tenants", expr, got, s)
			}
		}
	})
}

func promMatcher(value string) string {
	tree, err := promParser.ParseExpr("x")
	if err != nil {
		panic(err)
	}
	s := selectors(tree)[0]
	s.LabelMatchers = append(s.LabelMatchers, parser.MustLabelMatcher(0, "tenant", value))
	return s.LabelMatchers[len(s.LabelMatchers)-1].String()
}
