package place

import (
	"encoding/binary"
	"slices"
)

// Reads says what of an ask a factor or a filter reads. Asks that agree in it
// share the facts, so that they are read once for all of them. The zero value
// is anything: only equal asks share.
type Reads uint32

// The parts of an ask. [ReadsNothing] is of those that look at the candidate
// alone.
const (
	ReadsNothing    Reads = 1 << iota
	ReadsSpec             // specification
	ReadsRequest          // amounts and slices
	ReadsImage            // image
	ReadsKind             // compute kind and precision
	ReadsPinned           // named candidates
	ReadsRegions          // wanted regions
	ReadsExcluded         // excluded candidates
	ReadsRequire          // required attributes
	ReadsExpression       // expression
	ReadsGrade            // least security grade
	ReadsPrice            // highest price
	ReadsRun              // run time
	ReadsData             // datasets
	ReadsQoS              // targets of quality
	ReadsOrigin           // where its users are
	ReadsBusiness         // kind of business
	readsEnd
)

// readsAll is every part.
const readsAll = readsEnd - 1

// appendReads appends what r names of t and o, so that asks with equal bytes
// are the same to whoever reads only that.
func appendReads(b []byte, r Reads, t *Task, o *Origin) []byte {
	if r == 0 {
		r = readsAll
	}
	if r&ReadsSpec != 0 {
		b = appendString(b, t.Spec)
	}
	if r&ReadsRequest != 0 {
		b = appendRequest(b, t)
	}
	if r&ReadsImage != 0 {
		b = appendString(b, t.Image)
	}
	if r&ReadsKind != 0 {
		b = appendString(appendString(b, t.Kind), t.Precision)
	}
	if r&ReadsPinned != 0 {
		b = appendStrings(b, t.Pinned)
	}
	if r&ReadsRegions != 0 {
		b = appendStrings(b, t.Regions)
	}
	if r&ReadsExcluded != 0 {
		b = appendMap(b, t.Excluded)
	}
	if r&ReadsRequire != 0 {
		b = appendMap(b, t.Require)
	}
	if r&ReadsExpression != 0 {
		b = appendString(b, t.Expression)
	}
	if r&ReadsGrade != 0 {
		b = binary.AppendVarint(b, t.MinGrade)
	}
	if r&ReadsPrice != 0 {
		b = appendFact(b, t.MaxPrice)
	}
	if r&ReadsRun != 0 {
		b = appendFact(b, t.RunSeconds)
	}
	if r&ReadsData != 0 {
		b = binary.AppendUvarint(b, uint64(len(t.Data)))
		for _, n := range t.Data {
			b = binary.AppendVarint(appendString(b, n.Dataset), n.Bytes)
			b = appendStrings(appendBool(b, n.Stay), n.At)
		}
	}
	if r&ReadsQoS != 0 {
		for _, f := range t.QoS.targets() {
			b = appendFact(b, f)
		}
		b = appendBool(b, t.QoS.Required)
	}
	if r&ReadsOrigin != 0 {
		b = appendString(appendString(b, o.Name), o.Region)
		b = appendBool(b, o.Position != nil)
		if o.Position != nil {
			b = binary.AppendVarint(binary.AppendVarint(b, o.Position.Longitude), o.Position.Latitude)
		}
	}
	if r&ReadsBusiness != 0 {
		b = appendString(b, t.Business)
	}
	return b
}

func appendRequest(b []byte, t *Task) []byte {
	b = appendAmounts(b, t.Request)
	d := t.Devices
	if d == nil {
		return append(b, 0)
	}
	b = binary.AppendVarint(append(b, 1), int64(d.Count))
	b = appendAmounts(b, d.Each)
	return appendString(b, d.Model)
}

// appendKey appends everything of t and o that an Ask shows, so that equal
// keys mean equal asks. A test changes every field and expects another key.
func appendKey(b []byte, t *Task, o *Origin) []byte { return appendReads(b, readsAll, t, o) }

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendFact(b []byte, f Fact) []byte {
	if !f.Known {
		return append(b, 0)
	}
	return binary.AppendVarint(append(b, 1), f.Value)
}

// appendStrings keeps order and tells nil from empty: an empty list of pinned
// candidates allows none.
func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(appendBool(b, list != nil), uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func appendAmounts(b []byte, m Amounts) []byte {
	b = binary.AppendUvarint(b, uint64(len(m)))
	var buf [16]string
	for _, k := range sortedKeys(buf[:0], m) {
		b = binary.AppendVarint(appendString(b, k), m[k])
	}
	return b
}

func appendMap(b []byte, m map[string]string) []byte {
	b = binary.AppendUvarint(b, uint64(len(m)))
	var buf [16]string
	for _, k := range sortedKeys(buf[:0], m) {
		b = appendString(appendString(b, k), m[k])
	}
	return b
}

// sortedKeys appends the keys of m to buf, sorted; small maps cost no memory.
func sortedKeys[V any](buf []string, m map[string]V) []string {
	for k := range m {
		buf = append(buf, k)
	}
	slices.Sort(buf)
	return buf
}
