package slurm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// The types of this file read what every version of the interface says.
// Versions differ in form, not in meaning: a number is 5, "5" or {"set":true,
// "infinite":false,"number":5}; a state "RUNNING" or ["RUNNING"]; an exit code
// a wait status or an object. So the decoders look at the form that comes, and
// what they cannot read is "not set", never an error: one odd field must not
// hide a thousand jobs. Malformed JSON is an error, of course.

// number is an integer that may not be set.
type number struct {
	n   int64
	set bool
}

// or returns the number, def if it is not set.
func (n number) or(def int64) int64 {
	if !n.set {
		return def
	}
	return n.n
}

func (n *number) UnmarshalJSON(b []byte) error {
	*n = number{}
	switch b = bytes.TrimSpace(b); {
	case len(b) == 0:
	case b[0] == '{':
		var o struct {
			Set      *bool  `json:"set"`
			Infinite bool   `json:"infinite"`
			Number   number `json:"number"`
		}
		if err := json.Unmarshal(b, &o); err != nil {
			return skipped(err)
		}
		if o.Infinite || o.Set != nil && !*o.Set {
			return nil
		}
		*n = o.Number
	case b[0] == '"':
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return skipped(err)
		}
		n.parse(s)
	default: // a number; true, false, null and lists do not parse
		n.parse(string(b))
	}
	return nil
}

func (n *number) parse(s string) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		*n = number{i, true}
		return
	}
	f, err := strconv.ParseFloat(s, 64)
	if err == nil && !math.IsNaN(f) && math.Abs(f) < 1<<62 {
		*n = number{int64(f), true}
	}
}

// skipped drops an error of form; one of syntax is returned by the decoder
// that calls UnmarshalJSON before it does.
func skipped(err error) error {
	var form *json.UnmarshalTypeError
	if errors.As(err, &form) {
		return nil
	}
	return err
}

// text is a string; anything else is empty.
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	var s string
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &s); err != nil {
			return skipped(err)
		}
	}
	*t = text(s)
	return nil
}

// words is a list of words: one string, with commas between them or not, or a
// list of strings.
type words []string

func (w *words) UnmarshalJSON(b []byte) error {
	*w = nil
	switch {
	case len(b) == 0:
	case b[0] == '"':
		var s text
		if err := json.Unmarshal(b, &s); err != nil {
			return skipped(err)
		}
		for _, one := range strings.Split(string(s), ",") {
			if one = strings.TrimSpace(one); one != "" {
				*w = append(*w, one)
			}
		}
	case b[0] == '[':
		var list []text
		if err := json.Unmarshal(b, &list); err != nil {
			return skipped(err)
		}
		for _, one := range list {
			if one != "" {
				*w = append(*w, string(one))
			}
		}
	}
	return nil
}

// has reports whether a word is in the list, in whatever case.
func (w words) has(word string) bool {
	for _, one := range w {
		if strings.EqualFold(one, word) {
			return true
		}
	}
	return false
}

// exit is how a process ended.
type exit struct {
	code, signal int
}

func (e *exit) UnmarshalJSON(b []byte) error {
	*e = exit{}
	if len(b) > 0 && b[0] == '{' {
		var o struct {
			Number number `json:"number"`      // v0.0.39: a wait status
			Code   number `json:"return_code"` // from v0.0.40
			Signal struct {
				ID  number `json:"id"`
				Old number `json:"signal_id"`
			} `json:"signal"`
		}
		if err := json.Unmarshal(b, &o); err != nil {
			return skipped(err)
		}
		if !o.Number.set {
			e.code, e.signal = int(o.Code.or(0)&0xff), int(o.Signal.ID.or(o.Signal.Old.or(0))&0x7f)
			return nil
		}
		e.status(o.Number.n)
		return nil
	}
	var n number
	if err := n.UnmarshalJSON(b); err != nil {
		return err
	}
	e.status(n.or(0))
	return nil
}

// status reads what wait(2) says.
func (e *exit) status(n int64) { e.code, e.signal = int(n>>8&0xff), int(n&0x7f) }

// job is what the driver reads of a job.
type job struct {
	ID          number `json:"job_id"`
	Name        text   `json:"name"`
	Account     text   `json:"account"`
	Comment     text   `json:"comment"`
	State       words  `json:"job_state"`
	Flags       words  `json:"flags"`
	Reason      text   `json:"state_reason"`
	Description text   `json:"state_description"`
	Exit        exit   `json:"exit_code"`
	Submitted   number `json:"submit_time"`
	Started     number `json:"start_time"`
	Ended       number `json:"end_time"`
	Restarts    number `json:"restart_cnt"`
	Partition   text   `json:"partition"`
	Nodes       text   `json:"nodes"`
	TRES        text   `json:"tres_alloc_str"`
	PerNode     text   `json:"tres_per_node"`
}

// node is what the driver reads of a node.
type node struct {
	Name         text   `json:"name"`
	Architecture text   `json:"architecture"`
	System       text   `json:"operating_system"`
	State        words  `json:"state"`
	StateFlags   words  `json:"state_flags"`
	Reason       text   `json:"reason"`
	CPUs         number `json:"cpus"`
	Effective    number `json:"effective_cpus"`
	Memory       number `json:"real_memory"` // MiB
	Reserved     number `json:"specialized_memory"`
	Disk         number `json:"temporary_disk"` // MiB
	GRES         text   `json:"gres"`
	GRESUsed     text   `json:"gres_used"`
	UsedCPUs     number `json:"alloc_cpus"`
	UsedMemory   number `json:"alloc_memory"` // MiB
	Free         number `json:"free_mem"`     // MiB
	FreeOld      number `json:"free_memory"`  // its name in v0.0.38
	Load         number `json:"cpu_load"`     // hundredths
	Partitions   words  `json:"partitions"`
	Features     words  `json:"features"`
	Version      text   `json:"slurmd_version"`
}

// is reports whether a node's state, or what is added to it, is a word.
func (n *node) is(word string) bool { return n.State.has(word) || n.StateFlags.has(word) }

// problem is one entry of the errors of an answer.
type problem struct {
	Description text   `json:"description"`
	Error       text   `json:"error"`
	Number      number `json:"error_number"`
	Code        number `json:"error_code"`
	Source      text   `json:"source"`
}

func (p problem) number() int64 { return p.Number.or(p.Code.or(0)) }

func (p problem) String() string {
	parts := make([]string, 0, 2)
	for _, t := range []text{p.Description, p.Error} {
		if t != "" && (len(parts) == 0 || string(t) != parts[0]) {
			parts = append(parts, string(t))
		}
	}
	if n := p.number(); n > 0 {
		parts = append(parts, "error "+strconv.FormatInt(n, 10))
	}
	if len(parts) == 0 {
		return "no reason given"
	}
	return clip(strings.Join(parts, ", "), 400)
}

// answer is what is around the values of an answer.
type answer struct {
	problems []problem
	updated  number // last_update, the cluster's time of what is told
	present  bool   // the list wanted was there, be it empty
	jobID    number
	now      number // statistics.req_time, the cluster's clock
	release  string // of Slurm
}

// decode reads an answer and calls each with every element of the list of that
// name, one at a time: an answer can be large. An answer that breaks off, or
// that is something else, is an error.
func decode[T any](r io.Reader, list string, each func(*T)) (answer, error) {
	var a answer
	d := json.NewDecoder(r)
	if t, err := d.Token(); err != nil {
		return a, cut(err)
	} else if t != json.Delim('{') {
		return a, fmt.Errorf("the answer is not a JSON object: it begins with %v", t)
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return a, cut(err)
		}
		key, _ := t.(string) // keys are strings
		if err := a.field(d, key, list, func() error { return elements(d, each) }); err != nil {
			return a, cut(err)
		}
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return a, cut(err)
	}
	return a, nil
}

func (a *answer) field(d *json.Decoder, key, list string, elements func() error) error {
	switch key {
	case list:
		a.present = true
		return elements()
	case "errors":
		var ps problems
		err := d.Decode(&ps)
		a.problems = ps
		return err
	case "last_update":
		return d.Decode(&a.updated)
	case "job_id":
		return d.Decode(&a.jobID)
	case "statistics":
		var s struct {
			Now number `json:"req_time"`
		}
		err := skipped(d.Decode(&s))
		a.now = s.Now
		return err
	case "meta":
		var m struct {
			Old   struct{ Release text } `json:"Slurm"`
			Slurm struct{ Release text } `json:"slurm"`
		}
		err := skipped(d.Decode(&m))
		if a.release = string(m.Slurm.Release); a.release == "" {
			a.release = string(m.Old.Release)
		}
		return err
	}
	var ignored json.RawMessage
	return d.Decode(&ignored)
}

// problems tolerates everything but a list of objects.
type problems []problem

func (p *problems) UnmarshalJSON(b []byte) error {
	var list []json.RawMessage
	*p = nil
	if json.Unmarshal(b, &list) != nil {
		return nil // null, or no list
	}
	for _, raw := range list {
		var one problem
		if json.Unmarshal(raw, &one) == nil {
			*p = append(*p, one)
		}
	}
	return nil
}

// elements reads a list; null is an empty one.
func elements[T any](d *json.Decoder, each func(*T)) error {
	t, err := d.Token()
	if err != nil || t == nil {
		return err
	}
	if t != json.Delim('[') {
		return fmt.Errorf("want a list, got %v", t)
	}
	for d.More() {
		v := new(T)
		if err := skipped(d.Decode(v)); err != nil {
			return err
		}
		if each != nil {
			each(v)
		}
	}
	_, err = d.Token()
	return err
}

// cut names an answer that ends too early as what it is.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the answer broke off before its end")
	}
	return err
}

// gres is one kind of generic resources of a node.
type gres struct {
	name, model string
	count       int64
}

// parseGRES reads "gpu:h20:4(S:0-1),gpu:a100:2,shard:8", as in gres_used
// "gpu:h20:2(IDX:0-1)", and as in tres_per_node "gres:gpu:h20:2" or
// "gres/gpu=2". What has no number counts as one.
func parseGRES(s string) []gres {
	var out []gres
	for _, one := range splitOutside(s) {
		if i := strings.IndexByte(one, '('); i >= 0 {
			one = one[:i]
		}
		one = strings.TrimSpace(one)
		if rest, ok := strings.CutPrefix(one, "gres"); ok && rest != "" && (rest[0] == ':' || rest[0] == '/') {
			one = rest[1:] // as in tres_per_node
		}
		parts := strings.Split(strings.Replace(one, "=", ":", 1), ":")
		g := gres{name: parts[0], count: 1}
		if g.name == "" || g.name == "N/A" {
			continue
		}
		if last := parts[len(parts)-1]; len(parts) > 1 {
			if n, ok := parseCount(last); ok {
				g.count, parts = n, parts[:len(parts)-1]
			}
		}
		if len(parts) > 1 {
			g.model = strings.Join(parts[1:], ":")
		}
		out = append(out, g)
	}
	return out
}

// splitOutside splits at commas that are not in parentheses: "(IDX:0,2)".
func splitOutside(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth = max(depth-1, 0)
		case ',':
			if depth == 0 {
				out, from = append(out, s[from:i]), i+1
			}
		}
	}
	return append(out, s[from:])
}

// parseCount reads 4, 4K or 2M.
func parseCount(s string) (int64, bool) {
	unit := int64(1)
	switch {
	case strings.HasSuffix(s, "K"):
		s, unit = s[:len(s)-1], 1<<10
	case strings.HasSuffix(s, "M"):
		s, unit = s[:len(s)-1], 1<<20
	case strings.HasSuffix(s, "G"):
		s, unit = s[:len(s)-1], 1<<30
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return 0, false
	}
	return n * unit, true
}

// parseTRES reads one amount of "cpu=2,mem=50M,node=1,gres/gpu:h20=1"; memory is
// in bytes.
func parseTRES(s, name string) int64 {
	var sum int64
	for _, one := range strings.Split(s, ",") {
		key, value, _ := strings.Cut(one, "=")
		if key != name {
			continue
		}
		unit := int64(1)
		if name == "mem" && value != "" {
			switch value[len(value)-1] {
			case 'K':
				unit = 1 << 10
			case 'M':
				unit = 1 << 20
			case 'G':
				unit = 1 << 30
			case 'T':
				unit = 1 << 40
			default:
				value, unit = value+"M", 1<<20
			}
			value = value[:len(value)-1]
		}
		if f, err := strconv.ParseFloat(value, 64); err == nil && f > 0 && f*float64(unit) < 1<<62 {
			sum = int64(f * float64(unit))
		}
	}
	return sum
}

// clip shortens what others wrote before it goes into a message.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
