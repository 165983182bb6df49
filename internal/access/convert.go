package access

import (
	"cmp"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"yunhe.dev/yunhe/internal/core"
)

// Field is what of a center is converted; stored.
type Field int64

// The fields.
const (
	Resource        Field = 1
	Vendor          Field = 2
	Model           Field = 3
	Architecture    Field = 4
	OperatingSystem Field = 5
	Region          Field = 6
	Label           Field = 7
)

// maxFactor bounds what amounts are multiplied and divided by; maxAmount is
// what the registry takes.
const (
	maxFactor   = 1 << 50
	maxAmount   = 1 << 60
	maxWord     = 253
	maxPattern  = 512
	maxPriority = 1000
)

// Conversion converts a word, or an amount, that a source says.
type Conversion struct {
	Meta
	Title    string `json:"title"`
	Source   string `json:"source,omitempty"` // plug-in; "": any
	Field    Field  `json:"field"`
	Match    string `json:"match"`
	Replace  string `json:"replace"`
	Times    int64  `json:"times,omitempty"` // 0: 1
	Per      int64  `json:"per,omitempty"`   // 0: 1
	Priority int64  `json:"priority,omitempty"`
	Enabled  bool   `json:"enabled"`

	re *regexp.Regexp
}

func (c *Conversion) check(at string) error {
	var k core.Check
	k.ID(at+"conversion_id", c.ID)
	if c.Title == "" {
		c.Title = c.ID
	}
	k.Text(at+"title", c.Title, false, maxTitle, 0)
	if c.Source != "" {
		k.ID(at+"source", c.Source)
	}
	k.Range(at+"field", int64(c.Field), int64(Resource), int64(Label))
	k.Text(at+"replace", c.Replace, true, maxWord, 0)
	k.Range(at+"times", c.Times, 0, maxFactor)
	k.Range(at+"per", c.Per, 0, maxFactor)
	k.Range(at+"priority", c.Priority, -maxPriority, maxPriority)
	k.Range(at+"version", c.Version, 0, 1<<40)
	if c.Field != Resource && (c.Times > 1 || c.Per > 1) {
		k.Add(at+"times", "and per are for resources only")
	}
	switch {
	case c.Match == "":
		k.Add(at+"match", "is required")
	case len(c.Match) > maxPattern:
		k.Add(at+"match", "must be at most %d bytes, got %d", maxPattern, len(c.Match))
	case !utf8.ValidString(c.Match) || strings.ContainsRune(c.Match, 0):
		k.Add(at+"match", "must be valid UTF-8 without zero bytes")
	default:
		re, err := regexp.Compile(`^(?:` + c.Match + `)$`)
		if err != nil {
			k.Add(at+"match", "is not a pattern (RE2): %v", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
		c.re = re
	}
	return k.Err()
}

// Item is a word, and of a resource its amount.
type Item struct {
	Field  Field
	Value  string
	Amount int64
}

// Converted is what became of an item.
type Converted struct {
	In, Out Item
	By      string // conversion that did it; "": none matched
	Problem string // why what matched was not used
}

// converter tries conversions in their order. It is safe for concurrent use.
type converter struct {
	list []*Conversion

	mu   sync.Mutex // guards memo
	memo map[memoKey]match
}

// Sources say the same words again and again: those seen last are remembered.
const maxMemo = 10_000

type memoKey struct {
	field Field
	word  string
}

// match is the conversion that matches a word, nil if none does, and what it
// makes of it; "" if that cannot be taken.
type match struct {
	by   *Conversion
	word string
}

// newConverter takes those that apply to a source.
func newConverter(all []*Conversion, source string) *converter {
	k := &converter{memo: map[memoKey]match{}}
	for _, c := range all {
		if c.Enabled && (c.Source == "" || c.Source == source) {
			k.list = append(k.list, c)
		}
	}
	slices.SortFunc(k.list, func(a, b *Conversion) int {
		// What is for this source goes before what is for all.
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), -cmp.Compare(a.Source, b.Source), strings.Compare(a.ID, b.ID))
	})
	return k
}

func (k *converter) find(f Field, word string) match {
	key := memoKey{f, word}
	k.mu.Lock()
	m, ok := k.memo[key]
	k.mu.Unlock()
	if ok {
		return m
	}
	for _, c := range k.list {
		if c.Field != f {
			continue
		}
		if at := c.re.FindStringSubmatchIndex(word); at != nil {
			m.by = c
			if to := strings.TrimSpace(string(c.re.ExpandString(nil, c.Replace, word, at))); isWord(f, to) {
				m.word = to
			}
			break
		}
	}
	k.mu.Lock()
	if len(k.memo) >= maxMemo {
		clear(k.memo)
	}
	k.memo[key] = m
	k.mu.Unlock()
	return m
}

// convert converts an item. What cannot be taken leaves it as it is.
func (k *converter) convert(in Item) Converted {
	out := Converted{In: in, Out: in}
	if len(in.Value) > 2*maxWord || in.Value == "" {
		return out
	}
	m := k.find(in.Field, in.Value)
	if m.by == nil {
		return out
	}
	if out.By = m.by.ID; m.word == "" {
		out.Problem = "it becomes a word that cannot be taken"
		return out
	}
	amount := in.Amount
	if in.Field == Resource {
		var ok bool
		if amount, ok = scale(in.Amount, max(m.by.Times, 1), max(m.by.Per, 1)); !ok {
			out.Problem = "its amount becomes one that cannot be taken"
			return out
		}
	}
	out.Out.Value, out.Out.Amount = m.word, amount
	return out
}

// isWord tells whether the registry takes a word.
func isWord(f Field, s string) bool {
	if s == "" || len(s) > maxWord || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return false
	}
	switch f {
	case Architecture, Vendor, Region:
		return len(s) < 64
	case Model:
		return len(s) < 128
	case Resource:
		return len(s) < 64 && !strings.ContainsFunc(s, unicode.IsSpace)
	case Label:
		name, _, ok := strings.Cut(s, "=")
		return ok && name != ""
	}
	return true
}

// scale is n*times/per; ok is false if that is no amount.
func scale(n, times, per int64) (int64, bool) {
	if n < 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(n), uint64(times))
	if hi >= uint64(per) {
		return 0, false
	}
	q, _ := bits.Div64(hi, lo, uint64(per))
	return int64(q), q <= maxAmount
}

// amounts converts a set of resources; two that become one are added up. It
// returns nil if nothing changed, and never loses an amount.
func (k *converter) amounts(in map[string]int64) map[string]int64 {
	changed := false
	out := make(map[string]int64, len(in))
	for name, n := range in {
		c := k.convert(Item{Resource, name, n})
		if out[c.Out.Value] > maxAmount-c.Out.Amount { // together they are too much
			return nil
		}
		changed = changed || c.Out != c.In
		out[c.Out.Value] += c.Out.Amount
	}
	if !changed {
		return nil
	}
	return out
}

// word converts a word of a field.
func (k *converter) word(f Field, s string) string {
	return k.convert(Item{Field: f, Value: s}).Out.Value
}

// labels converts labels, in the order of their names; a name that is taken
// keeps its value. It returns nil if nothing changed.
func (k *converter) labels(in map[string]string) map[string]string {
	var changes map[string]string
	for name, value := range in {
		if text := name + "=" + value; k.word(Label, text) != text {
			if changes == nil {
				changes = map[string]string{}
			}
			changes[name] = k.word(Label, text)
		}
	}
	if changes == nil {
		return nil
	}
	out := map[string]string{}
	for name, value := range in {
		if changes[name] == "" {
			out[name] = value
		}
	}
	names := make([]string, 0, len(changes))
	for name := range changes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		to, value, _ := strings.Cut(changes[name], "=")
		if _, taken := out[to]; taken {
			to, value = name, in[name]
		}
		out[to] = value
	}
	if maps.Equal(out, in) {
		return nil
	}
	return out
}
