package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// Recording says how the platform decided that an input was recorded of.
type Recording struct {
	At    time.Time `json:"at"`
	Start time.Time `json:"start"` // the time 0 of the jobs
	// Queue is for [ParseQueue], Weights are the platform's, by policy.
	Queue   string           `json:"queue"`
	Weights map[string]int64 `json:"weights"`
	// Policies in force, as the platform writes them, for whoever can read them.
	Policies []json.RawMessage `json:"policies,omitempty"`
}

// Set is what decides where no policy in force does.
func (r *Recording) Set() (*place.Set, error) {
	var list []place.Weight
	for _, p := range place.Policies() { // in the engine's order
		if w, ok := r.Weights[p.ID]; ok {
			list = append(list, place.Weight{Policy: p.ID, Weight: w})
		}
	}
	return place.NewSet("platform", place.Weighted, list)
}

// recordedFile is the JSON of a recorded input.
type recordedFile struct {
	Recorded *Recording      `json:"recorded"`
	Snapshot *place.Snapshot `json:"snapshot"`
	Tenants  []fileTenant    `json:"tenants,omitempty"`
	Jobs     []fileJob       `json:"jobs"`
}

type fileTenant struct {
	ID         string         `json:"id"`
	Parent     string         `json:"parent,omitempty"`
	Weight     int64          `json:"weight,omitempty"`
	Guaranteed map[string]any `json:"guaranteed,omitempty"`
	Borrowable map[string]any `json:"borrowable,omitempty"`
	Limit      map[string]any `json:"limit,omitempty"`
}

type fileJob struct {
	ID          string            `json:"id"`
	Tenant      string            `json:"tenant,omitempty"`
	User        string            `json:"user,omitempty"`
	Priority    int64             `json:"priority,omitempty"`
	Arrival     json.Number       `json:"arrival"` // seconds
	Duration    json.Number       `json:"duration"`
	Expected    string            `json:"expected"`
	NotBefore   json.Number       `json:"not_before,omitempty"`
	Deadline    json.Number       `json:"deadline,omitempty"`
	Preemptible bool              `json:"preemptible"`
	Labels      map[string]string `json:"labels,omitempty"`
	Weights     map[string]int32  `json:"weights,omitempty"`
	Work        *place.Work       `json:"work"`
}

// seconds writes a time exactly.
func seconds(us int64) json.Number {
	if us == 0 {
		return ""
	}
	return json.Number(strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%06d", us/Second, us%Second), "0"), "."))
}

// WriteRecorded writes a recorded input as a file that [ReadFleet] reads.
func (in *Input) WriteRecorded(w io.Writer) error {
	out := recordedFile{Recorded: in.Recorded, Snapshot: &place.Snapshot{Candidates: []place.Candidate{}, Links: in.Links, Unmet: in.Unmet}, Jobs: []fileJob{}}
	for i := range in.Centers {
		out.Snapshot.Candidates = append(out.Snapshot.Candidates, in.Centers[i].candidate())
	}
	for i := range in.Tenants {
		t := &in.Tenants[i]
		out.Tenants = append(out.Tenants, fileTenant{t.ID, t.Parent, t.Weight, texts(t.Guaranteed), texts(t.Borrowable), texts(t.Limit)})
	}
	for i := range in.Jobs {
		j := &in.Jobs[i]
		f := fileJob{ID: j.ID, Tenant: j.Tenant, User: j.User, Priority: j.Priority, Arrival: seconds(j.Arrival), Duration: seconds(j.Run), Expected: "unknown", NotBefore: seconds(j.NotBefore),
			Deadline: seconds(j.Deadline), Preemptible: j.Preemptible, Labels: j.Labels, Weights: j.Weights, Work: j.Work}
		if f.Arrival == "" {
			f.Arrival = "0"
		}
		if j.Expected > 0 {
			f.Expected = string(seconds(j.Expected))
		}
		out.Jobs = append(out.Jobs, f)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(out)
}

// texts writes amounts of a tenant in the units of files.
func texts(a map[string]int64) map[string]any {
	if a == nil {
		return nil
	}
	out := make(map[string]any, len(a))
	for name, n := range a {
		switch name {
		case cardName:
			out[name] = float64(n) / 1000
		case "cpu":
			out[name] = fmt.Sprintf("%dm", n)
		case "memory":
			out[name] = fmt.Sprintf("%dMi", n)
		default:
			out[name] = n
		}
	}
	return out
}

// strict decodes a node by the JSON names of to, which must know them all.
func (d *document) strict(n *yaml.Node, at string, to any) bool {
	var any any
	if err := n.Decode(&any); err != nil {
		d.bad(n, at, "cannot be read: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return false
	}
	text, err := json.Marshal(any)
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		err = dec.Decode(to)
	}
	if err != nil {
		d.bad(n, at, "is not as \"yunhe sim record\" writes it: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return err == nil
}

// recorded reads what a platform was.
func (d *document) recorded(top map[string]*yaml.Node) {
	if n := top["recorded"]; n != nil && n.Kind == yaml.MappingNode { // a text: when, of files written before
		r := &Recording{}
		if d.strict(n, "recorded", r) {
			if _, err := ParseQueue(r.Queue); err != nil {
				d.bad(n, "recorded.queue", "%v", err)
			}
			if _, err := r.Set(); err != nil {
				d.bad(n, "recorded.weights", "%v", err)
			}
			d.out.Recorded = r
		}
	}
	n := top["snapshot"]
	if n == nil {
		return
	}
	s := &place.Snapshot{}
	if !d.strict(n, "snapshot", s) {
		return
	}
	if len(s.Candidates) > MaxCenters {
		d.bad(n, "snapshot.candidates", "must be at most %d, got %d", MaxCenters, len(s.Candidates))
		return
	}
	for _, k := range s.Candidates {
		d.out.Centers = append(d.out.Centers, RecordedCenter(k))
	}
	d.out.Links, d.out.Unmet = s.Links, s.Unmet
}

// ofPolicies reads what policies look at, and a recorded work.
func (d *document) ofPolicies(j *Job, m map[string]*yaml.Node, at string) {
	if n := m["labels"]; n != nil {
		d.strict(n, at+".labels", &j.Labels)
	}
	if n := m["weights"]; n != nil && d.strict(n, at+".weights", &j.Weights) {
		for _, name := range slices.Sorted(maps.Keys(j.Weights)) {
			if _, ok := place.PolicyByID(name); !ok {
				d.bad(n, at+".weights", "there is no policy %q", name)
			}
			if w := j.Weights[name]; w < 0 || w > 1000 {
				d.bad(n, at+".weights."+name, "must be 0 to 1000, got %d", w)
			}
		}
	}
	if n := m["work"]; n != nil {
		w := place.Work{}
		if d.strict(n, at+".work", &w) {
			j.Recorded(w)
		}
	}
}

// bytes reads datasets with their size.
func (d *document) bytes(n *yaml.Node, at string) place.Amounts {
	out := place.Amounts{}
	members := d.members(n, at)
	r := d.row(n, at, members)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		out[name] = r.quantity(name, "memory", maxBytes)
	}
	return out
}

// Text is the queue as [ParseQueue] reads it, without its tenants.
func (q *Queue) Text() string {
	c := &q.Config
	out := []string{map[queue.Order]string{queue.FairShare: "fair", queue.PriorityOrder: "priority", queue.FirstCome: "fcfs"}[c.Order],
		"backfill=" + map[queue.Backfill]string{queue.BackfillReserve: "on", queue.BackfillGreedy: "greedy", queue.BackfillNone: "off"}[c.Backfill]}
	for _, x := range []struct {
		name string
		on   bool
	}{{"preempt", c.Preempt}, {"strict", c.StrictClasses}, {"forecast", q.Forecast}} {
		if x.on {
			out = append(out, x.name+"=on")
		}
	}
	for _, x := range []struct {
		name string
		us   int64
	}{{"half-life", c.HalfLife}, {"ageing", c.Ageing.Step}, {"assumed-run", c.AssumedRun}, {"starve-after", c.StarveAfter}, {"block-after", c.BlockAfter}, {"deadline-margin", c.DeadlineMargin}} {
		if x.us > 0 {
			out = append(out, fmt.Sprintf("%s=%s", x.name, time.Duration(x.us)*time.Microsecond))
		}
	}
	if c.Ageing.Step > 0 {
		out = append(out, fmt.Sprintf("ageing-max=%d", c.Ageing.Max))
	}
	if c.Reservations > 0 {
		out = append(out, fmt.Sprintf("reservations=%d", c.Reservations))
	}
	return strings.Join(out, ",")
}
