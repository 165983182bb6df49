package expr_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/tags/expr"
)

func facts() expr.Facts {
	return expr.Center.Facts().Merge(expr.Facts{
		"id": "gz-1", "region": "guizhou", "security_grade": int64(3), "tags": map[string]string{"green": "true", "pue": "1.2"}, "labels": map[string]string{"rack": "7"},
		"capacity": map[string]int64{"cpu": 64, "gpu": 8}, "specs": []string{"small"}, "models": []string{"A100", "H800"},
		"accelerators": []any{map[string]any{"model": "H800", "count": int64(8)}}, "running": int64(5),
	})
}

func TestHolds(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		text string
		want bool
		why  string
	}{
		{`tags["green"] == "true" && region in ["guizhou", "anhui"]`, true, ""},
		{`tags["green"] == "true" && region in ["anhui"] && security_grade > 5`, false, `does not meet region in ["anhui"]: region is "guizhou"`},
		{`tags.green == "false"`, false, `does not meet tags.green == "false": tags["green"] is "true"`},
		{`tags["blue"] == "true"`, false, `does not meet tags["blue"] == "true": has no tag blue`},
		{`tags["blue"] == "true" || region == "guizhou"`, true, ""},
		{`!("blue" in tags)`, true, ""},
		{`has(tags.blue)`, false, `does not meet has(tags.blue): has no tag blue`},
		{`double(tags["pue"]) < 1.3`, true, ""},
		{`double(tags["green"]) < 1.3`, false, `does not meet double(tags["green"]) < 1.3: type conversion error from 'string' to 'double'`},
		{`capacity["gpu"] >= 8 && capacity.cpu >= 8.5`, true, ""},
		{`capacity["npu"] >= 8`, false, `does not meet capacity["npu"] >= 8: capacity["npu"] is not set`},
		{`accelerators.exists(a, a.model == "H800" && a.count >= 8)`, true, ""},
		{`models.exists(m, m.startsWith("B"))`, false, `does not meet models.exists(m, m.startsWith("B")): models is [A100 H800]`},
		{`"small" in specs && labels["rack"].matches("^[0-9]+$")`, true, ""},
		{`security_grade >= 4`, false, `does not meet security_grade >= 4: security_grade is 3`},
	} {
		e, bad := expr.Compile(expr.Center, x.text)
		if bad != nil {
			t.Errorf("%s: %v", x.text, bad)
			continue
		}
		got, _ := e.Holds(facts())
		if why := e.Why(facts()); got != x.want || why != x.why {
			t.Errorf("%s: %v, %q; want %v, %q", x.text, got, why, x.want, x.why)
		}
	}
}

func TestCompileRejects(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		scope      expr.Scope
		text, want string
	}{
		{expr.Center, "", "line 1, column 1: is empty"},
		{expr.Center, strings.Repeat("a", 2049), "line 1, column 1: must be at most 2048 bytes, got 2049"},
		{expr.Center, "true\x00", "line 1, column 1: must be valid UTF-8 without zero bytes"},
		{expr.Center, `region == 5`, "line 1, column 8: found no matching overload for '_==_' applied to '(string, int)'"},
		{expr.Center, "region == \"a\" &&\n  nowhere > 1", "line 2, column 3: undeclared reference to 'nowhere' (in container '')"},
		{expr.Center, `region`, "line 1, column 1: must be true or false, is of type string"},
		{expr.Placement, `running > 5`, "line 1, column 1: undeclared reference to 'running' (in container '')"},
		{expr.Placement, `region == "a`, "line 1, column 11: "},
		{expr.Node, `id.matches("(")`, "line 1, column 12: invalid matches argument"},
		{expr.Node, strings.Repeat("(", 60) + "true" + strings.Repeat(")", 60), "line "},
		{expr.Node, `models.all(a, models.all(b, models.all(c, a == b && b == c)))`, "line 1, column "},
		{expr.Node, strings.Repeat("1<2||", 300) + "true", "line "},
	} {
		_, bad := expr.Compile(x.scope, x.text)
		if len(bad) == 0 || !strings.HasPrefix(bad[0].String(), x.want) {
			t.Errorf("%.60q: %v, want %q", x.text, bad, x.want)
		}
	}
	if _, bad := expr.CompileText(expr.Node, `architecture == "x"`); len(bad) == 0 {
		t.Error("a condition passes for a text")
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`region`: "guizhou", `region + "-" + string(security_grade)`: "guizhou-3", `capacity["cpu"] >= 32 ? "large" : "small"`: "large", `tags["none"]`: "", `id + "x"`: "gz-1x",
	} {
		e, bad := expr.CompileText(expr.Center, text)
		if bad != nil {
			t.Fatalf("%s: %v", text, bad)
		}
		if got, err := e.Text(facts()); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}

// A list is long and the expression walks it for every entry: the evaluation
// is given up and does not count as true.
func TestCostLimit(t *testing.T) {
	t.Parallel()
	f := facts()
	long := make([]string, 2000)
	for i := range long {
		long[i] = strings.Repeat("x", 10)
	}
	f["models"] = long
	e, bad := expr.Compile(expr.Center, `models.all(a, models.all(b, a == b))`)
	if bad != nil {
		t.Fatal(bad)
	}
	ok, err := e.Holds(f)
	if ok || err == nil || err.Error() != "takes more than 20000 steps; make it simpler" {
		t.Errorf("%v, %v", ok, err)
	}
	if got, want := e.Why(f), "does not meet models.all(a, models.all(b, a == b)): takes more than 20000 steps; make it simpler"; got != want {
		t.Errorf("why = %q", got)
	}
}

func TestLiveAndTags(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{`running > 3`: true, `free["gpu"] > 1`: true, `region == "x"`: false, `id == "running"`: false} {
		e, _ := expr.Compile(expr.Center, text)
		if e.Live() != want {
			t.Errorf("%s: live = %v", text, e.Live())
		}
	}
	e, _ := expr.Compile(expr.Center, `tags["a"] == "x" && "b" in tags && tags.c == "y"`)
	if keys, others := e.Tags(); strings.Join(keys, " ") != "a b c" || others {
		t.Errorf("tags = %v, %v", keys, others)
	}
	e, _ = expr.Compile(expr.Center, `tags.exists(k, tags[k] == "x")`)
	if _, others := e.Tags(); !others {
		t.Error("reads all tags and does not say so")
	}
}

// Equal keys mean equal answers: whatever the expression reads is in the key.
func TestKey(t *testing.T) {
	t.Parallel()
	for text, change := range map[string]expr.Facts{
		`tags["green"] == "x"`:            {"tags": map[string]string{"green": "x"}},
		`"blue" in tags`:                  {"tags": map[string]string{"green": "true", "blue": ""}},
		`region == "a"`:                   {"region": "a"},
		`capacity.gpu > 2`:                {"capacity": map[string]int64{"gpu": 2}},
		`models.size() > 2`:               {"models": []string{"A100 H800"}},
		`tags.exists(k, tags[k] == "x")`:  {"tags": map[string]string{"other": "x"}},
		`accelerators[0].model == "H800"`: {"accelerators": []any{map[string]any{"model": "A", "count": int64(8)}}},
	} {
		e, bad := expr.Compile(expr.Center, text)
		if bad != nil {
			t.Fatalf("%s: %v", text, bad)
		}
		a, b := facts(), facts().Merge(change)
		if string(e.AppendKey(nil, a)) == string(e.AppendKey(nil, b)) {
			t.Errorf("%s: the key %q does not show the change", text, e.AppendKey(nil, a))
		}
		if c := facts().Merge(expr.Facts{"adapter": "other"}); string(e.AppendKey(nil, a)) != string(e.AppendKey(nil, c)) {
			t.Errorf("%s: the key shows what is not read", text)
		}
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	for s := expr.Placement; s <= expr.Image; s++ {
		f := s.Facts()
		for _, v := range s.Variables() {
			if _, ok := f[v.Name]; !ok {
				t.Errorf("scope %d has no value of %s", s, v.Name)
			}
			e, bad := expr.Compile(s, "type("+v.Name+") == type("+v.Name+")")
			if bad != nil {
				t.Errorf("scope %d: %v", s, bad)
			} else if ok, err := e.Holds(f); !ok || err != nil {
				t.Errorf("scope %d: %s: %v, %v", s, v.Name, ok, err)
			}
			if s == expr.Placement && v.Live {
				t.Errorf("%s changes during a plan", v.Name)
			}
		}
	}
}

func FuzzExpression(f *testing.F) {
	for _, s := range []string{`tags["green"] == "true" && region in ["guizhou","anhui"]`, `models.exists(m, m.matches("^H[0-9]+$"))`, `capacity["gpu"] > 3 ? true : has(tags.x)`, `[[[`, `a.b.c`, "\"\\u", `1/0 == 1`, `tags.all(k, k != '')`, `true && !false || id == name`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		slow := time.AfterFunc(5*time.Second, func() { panic("takes too long: " + strconv.Quote(text)) })
		defer slow.Stop()
		e, bad := expr.Compile(expr.Center, text)
		if (e == nil) == (len(bad) == 0) {
			t.Fatalf("%q: %v and %v", text, e, bad)
		}
		for _, p := range bad {
			if p.Line < 1 || p.Column < 1 || p.Message == "" {
				t.Fatalf("%q: problem %+v", text, p)
			}
		}
		if e == nil {
			return
		}
		ok, err := e.Holds(facts())
		if ok && err != nil {
			t.Fatalf("%q holds and fails: %v", text, err)
		}
		if why := e.Why(facts()); (why == "") != ok {
			t.Fatalf("%q: holds %v, why %q", text, ok, why)
		}
		e.AppendKey(nil, facts())
	})
}

func BenchmarkHolds(b *testing.B) {
	e, _ := expr.Compile(expr.Placement, `tags["green"] == "true" && region in ["guizhou","anhui"]`)
	f := facts()
	for b.Loop() {
		if ok, _ := e.Holds(f); !ok {
			b.Fatal("does not hold")
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	f := expr.PolicyCenter.Facts()
	f["free"] = map[string]int64{"gpu": 3}
	f["job.labels"] = map[string]string{"tier": "gold"}
	for text, want := range map[string]string{
		`7`: "7 true", `free.gpu * 10`: "30 true", `0.5 + 1.0`: "1.5 true", `free.npu`: "0 false", `0.0 / 0.0`: "NaN false", `job.labels.tier == "gold" ? 80 : 20`: "80 true",
	} {
		e, problems := expr.CompileNumber(expr.PolicyCenter, text)
		if e == nil {
			t.Errorf("%s: %v", text, problems)
			continue
		}
		n, known, err := e.Number(f)
		if got := fmt.Sprint(n, " ", known); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", text, got, err, want)
		}
	}
	e, _ := expr.CompileNumber(expr.PolicyCenter, `job.labels.tier == "gold" ? 1 : 0`)
	if !e.ReadsAny("job.") || e.ReadsAny("time.") || e.Live() {
		t.Error("it reads a label of the job and nothing else")
	}
	_, problems := expr.Compile(expr.PolicyJob, "true && job.tenat == 'x'")
	if len(problems) != 1 || problems[0].String() != "line 1, column 9: undeclared reference to 'job.tenat'" {
		t.Errorf("problems %v", problems)
	}
}
