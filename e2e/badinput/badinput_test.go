package badinput

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"yunhe.dev/yunhe/internal/enginetest"
)

// each runs a test against a platform on every database.
func each(t *testing.T, f func(t *testing.T, p *platform)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, start(t, "")) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, start(t, enginetest.Postgres(t))) })
}

// internals are words that belong into a log and not into an answer.
var internals = []string{"panic", "goroutine", "sqlite", "sqlstate", "constraint failed", ".go:", "select ", "insert into", "internal error"}

// watcher compares the tables before and after calls.
type watcher struct {
	p       *platform
	read    func(tb testing.TB) state
	last    state
	changes int64 // of the platform, before last was read
}

func watch(tb testing.TB, p *platform) *watcher { return watchBy(tb, p, p.state) }

func watchBy(tb testing.TB, p *platform, read func(testing.TB) state) *watcher {
	w := &watcher{p: p, read: read, changes: p.changes(tb)}
	w.last = read(tb)
	return w
}

// look returns the tables as they are.
func (w *watcher) look(tb testing.TB) state {
	tb.Helper()
	n := w.p.changes(tb)
	if n == w.changes {
		return w.last
	}
	w.changes = n
	return w.read(tb)
}

// watchRows compares the numbers of rows only: for tests of thousands of
// calls, of which many succeed and leave long records.
func watchRows(tb testing.TB, p *platform) *watcher { return watchBy(tb, p, p.counts) }

// send makes a call and checks what must hold for every call, right or wrong.
// It returns what the answer says is wrong, nil if it succeeded.
func (w *watcher) send(tb testing.TB, r request, token string) *faultBody {
	tb.Helper()
	a := w.p.send(tb, r, token)
	f := problem(tb, r, a)
	if a.status >= 500 {
		tb.Errorf("%v answered %d %.400s", r, a.status, a.body)
	}
	if lines := w.p.log.take(); len(lines) > 0 {
		tb.Errorf("%v had the platform log:\n%.2000s", r, strings.Join(lines, "\n"))
	}
	if f == nil && r.reads { // compared at the next call that may change something
		return nil
	}
	now := w.last
	if !r.reads {
		now = w.look(tb)
	}
	if f != nil {
		low := strings.ToLower(f.text())
		for _, word := range internals {
			if strings.Contains(low, word) {
				tb.Errorf("%v answered %q, which speaks of %q", r, f.text(), word)
			}
		}
		if d := diff(w.last, now); d != "" {
			tb.Errorf("%v was refused (%s) and yet changed %s", r, f.text(), d)
		}
	}
	w.last = now
	return f
}

// refused makes a call that must fail and say so with all the words.
func (w *watcher) refused(tb testing.TB, r request, token string, words ...string) {
	tb.Helper()
	r.stays = false // a stream that says nothing yet may still refuse
	f := w.send(tb, r, token)
	if f == nil {
		tb.Errorf("%v succeeded, want it refused with %q", r, words)
		return
	}
	for _, word := range words {
		if !strings.Contains(f.text(), word) {
			tb.Errorf("%v was refused with %q, want it to name %q", r, f.text(), word)
		}
	}
}

// unchanged checks that the calls of a method changed nothing.
func (w *watcher) unchanged(tb testing.TB, m method, before state) {
	tb.Helper()
	w.last = w.look(tb)
	if d := diff(before, w.last); d != "" {
		tb.Errorf("the calls of %s changed %s", m.name(), d)
	}
}

// both sends a message to the method itself and through REST.
func both(m method, o object) []request {
	out := []request{connectRequest(m, o)}
	if m.path != "" {
		out = append(out, restRequest(m, o))
	}
	return out
}

// field of a request, however deep.
type field struct {
	desc protoreflect.FieldDescriptor
	path []any // names and indexes
}

// names reports whether an error says where the mistake is: the field by its
// name in either spelling, the place in the body where the JSON is not, or
// the path where it is none.
func names(got *faultBody, f field) bool {
	return strings.Contains(got.text(), string(f.desc.Name())) || strings.Contains(got.text(), f.desc.JSONName()) || strings.Contains(got.text(), "(line ") || strings.Contains(got.text(), "path: ")
}

func fields(d protoreflect.MessageDescriptor, v object, path []any) []field {
	var out []field
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		here := append(slices.Clone(path), string(f.Name()))
		out = append(out, field{f, here})
		switch x := v[string(f.Name())].(type) {
		case object:
			if f.Kind() == protoreflect.MessageKind && !f.IsMap() && !free(f) {
				out = append(out, fields(f.Message(), x, here)...)
			}
		case []any:
			if first, ok := at(x, 0).(object); ok && f.Kind() == protoreflect.MessageKind {
				out = append(out, fields(f.Message(), first, append(here, 0))...)
			}
		}
	}
	return out
}

// free reports whether a field takes any JSON object.
func free(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && f.Message().FullName() == "google.protobuf.Struct"
}

// at returns an element, nil if there is none.
func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// with returns a copy of v in which the value at path is x.
func with(v any, path []any, x any) any {
	if len(path) == 0 {
		return x
	}
	switch v := v.(type) {
	case object:
		out := maps.Clone(v)
		out[path[0].(string)] = with(v[path[0].(string)], path[1:], x)
		return out
	case []any:
		out := slices.Clone(v)
		out[path[0].(int)] = with(v[path[0].(int)], path[1:], x)
		return out
	}
	return v
}

// wrongTypes are values no field of the kind can hold.
func wrongTypes(f protoreflect.FieldDescriptor) []any {
	timestamp := f.Kind() == protoreflect.MessageKind && f.Message().FullName() == "google.protobuf.Timestamp"
	switch {
	case f.IsMap():
		return []any{7, "x", []any{1}}
	case f.IsList():
		return []any{object{"a": 1}, true, []any{object{"nosuch": 1}}}
	case timestamp:
		return []any{"yesterday", "2026-13-01T00:00:00Z", true, object{"a": 1}, "12026-01-01T00:00:00Z"}
	case free(f):
		return []any{7, "x", []any{1}}
	case f.Kind() == protoreflect.MessageKind:
		return []any{7, "x", []any{1}, object{"nosuch": 1}}
	case f.Kind() == protoreflect.StringKind:
		return []any{7, true, object{"a": 1}, []any{"x"}, raw("\"\xff\xfe\"")}
	case f.Kind() == protoreflect.BytesKind:
		return []any{7, "!", []any{"x"}}
	case f.Kind() == protoreflect.BoolKind:
		return []any{"maybe", 7, object{"a": 1}}
	case f.Kind() == protoreflect.EnumKind:
		return []any{"NO_SUCH_VALUE", true, 1.5, object{"a": 1}}
	case f.Kind() == protoreflect.DoubleKind:
		return []any{"much", true, raw("1e999"), object{"a": 1}}
	case f.Kind() == protoreflect.Int32Kind:
		return []any{"many", true, 1.5, raw("2147483648"), raw("-2147483649"), object{"a": 1}}
	default:
		return []any{"many", true, 1.5, raw("9223372036854775808"), raw("1e30"), object{"a": 1}}
	}
}

// oddValues are values of the right type that may or may not be allowed.
func oddValues(f protoreflect.FieldDescriptor) []any {
	texts := []any{"", " ", strings.Repeat("a", 33), strings.Repeat("長", 33), strings.Repeat("x", 66000), "a\x00b", "a\nb", "../../../etc/passwd", "..", "a/b",
		"' OR 1=1 --", `"; DROP TABLE jobs; --`, "%", "_", "%_%", `\`, "\u202e", "*", "$1"}
	switch {
	case f.IsMap() && f.MapValue().Kind() == protoreflect.StringKind:
		many := object{}
		for i := range 300 {
			many[fmt.Sprint("k", i)] = "v"
		}
		return []any{many, object{"": ""}, object{"\x00": "\x00"}, object{strings.Repeat("k", 70000): "v"}, object{"k": strings.Repeat("v", 70000)}, object{"a.b": "c"}, object{"cpu": "-1"},
			object{"cpu": "1e9"}, object{"cpu": "9999999999999999999P"}, object{"cpu": "NaN"}, object{"长": "1"}}
	case f.IsMap():
		return []any{object{"no-such": 1}, object{"": 1}, object{"lowest-price": -1}, object{"lowest-price": math.MaxInt32}, object{"lowest-price": 0}}
	case f.IsList() && f.Kind() == protoreflect.StringKind:
		many := make([]any, 5000)
		for i := range many {
			many[i] = fmt.Sprint("x", i)
		}
		out := []any{many, []any{"a", "a"}}
		for _, t := range texts {
			out = append(out, []any{t})
		}
		return out
	case f.IsList() && f.Kind() == protoreflect.MessageKind:
		return []any{[]any{}, slices.Repeat([]any{object{}}, 300), []any{raw("null")}}
	case f.IsList():
		return []any{slices.Repeat([]any{1}, 5000), []any{99}, []any{-1}}
	case f.Kind() == protoreflect.MessageKind && f.Message().FullName() == "google.protobuf.Timestamp":
		return []any{"0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "1969-12-31T23:59:59Z"}
	case f.Kind() == protoreflect.MessageKind:
		return []any{raw("null"), object{}}
	case f.Kind() == protoreflect.StringKind:
		return texts
	case f.Kind() == protoreflect.EnumKind:
		return []any{99, -1, math.MaxInt32, 0}
	case f.Kind() == protoreflect.DoubleKind:
		return []any{-1, 1e300, -1e300, "NaN", "Infinity", "-Infinity"}
	case f.Kind() == protoreflect.Int32Kind:
		return []any{0, -1, math.MaxInt32, math.MinInt32}
	case f.Kind() == protoreflect.BoolKind:
		return []any{true}
	case f.Kind() == protoreflect.BytesKind:
		return []any{"", strings.Repeat("YWFh", 400000)}
	default:
		return []any{0, -1, int64(math.MaxInt64), int64(math.MinInt64), int64(1) << 53}
	}
}

// TestWrongTypes gives every field of every method values it cannot hold.
func TestWrongTypes(t *testing.T) {
	t.Parallel()
	p := start(t, "") // none of it comes near the database
	w := watch(t, p)
	for _, m := range methods(t) {
		o := p.example(m)
		before := w.look(t)
		for _, f := range fields(m.desc.Input(), o, nil) {
			for _, x := range wrongTypes(f.desc) {
				bad := with(o, f.path, x).(object)
				w.refused(t, later(connectRequest(m, bad)), p.admin)
				if m.path == "" || !carriesType(m, f, x) {
					continue
				}
				w.refused(t, later(restRequest(m, bad)), p.admin)
			}
		}
		w.unchanged(t, m, before)
	}
}

// later leaves the comparison of the tables to the end of the method: all of
// its calls must be refused, so one comparison is enough.
func later(r request) request {
	r.reads = true
	return r
}

// carriesType reports whether REST can carry this wrong type: a path and a
// query are text, in which 7 and "7" are the same.
func carriesType(m method, f field, x any) bool {
	inBody := m.body == "*" && !strings.Contains(m.path, "{"+fmt.Sprint(f.path[0])) || m.body != "" && m.body == fmt.Sprint(f.path[0])
	if inBody && !strings.Contains(m.path, "{"+dotted(f.path)+"}") {
		return len(f.path) > 1 || m.body == "*"
	}
	_, isText := x.(string)
	return isText && f.desc.Kind() != protoreflect.StringKind && !f.desc.IsList() && !f.desc.IsMap() && f.desc.Message() == nil
}

// dotted writes a path as the routes of the contract do.
func dotted(path []any) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(path), "[]"), " ", ".")
}

// TestOddValues gives every field of every method values that are extreme,
// hostile or long. Whatever is refused must name the field.
func TestOddValues(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p *platform) {
		w := watchRows(t, p)
		for _, m := range methods(t) {
			o := p.example(m)
			before := w.look(t)
			for _, f := range fields(m.desc.Input(), o, nil) {
				for _, x := range oddValues(f.desc) {
					rs := both(m, with(o, f.path, x).(object))
					if p.server { // how a call travels makes no difference to the database
						rs = rs[:1]
					}
					for _, r := range rs {
						if got := w.send(t, r, p.admin); got != nil && strings.Contains(strings.ToUpper(got.Code), "INVALID") && !names(got, f) {
							t.Errorf("%v with an odd %v was refused with %q, want it to name the field", r, f.path, got.text())
						}
					}
				}
			}
			if m.reads() {
				w.unchanged(t, m, before)
			}
		}
	})
}
