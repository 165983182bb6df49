package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// Throughputs are measured: how many steps a second a kind of job makes on
// cards of a model, on one machine and spread over several.
type Throughputs struct {
	// Assumed are kinds that were measured on one card only. They are taken to be
	// as many times as fast as they have cards.
	Assumed []string

	by map[string]map[string]float64 // model, with _unconsolidated for spread; then kind
}

// spreadOf is how the file marks figures of jobs on several machines.
const spreadOf = "_unconsolidated"

var kindName = regexp.MustCompile(`^\('(.{1,100})', ([0-9]{1,4})\)$`)

// kindOf names a kind of job on a number of cards.
func kindOf(job string, cards int) string { return fmt.Sprintf("%s x%d", job, cards) }

// ReadThroughputs reads the JSON file that comes with gavel's traces. Only the
// figures of jobs that have their cards to themselves are used.
func ReadThroughputs(in io.Reader) (*Throughputs, error) {
	var raw map[string]map[string]map[string]json.RawMessage
	if err := json.NewDecoder(io.LimitReader(in, MaxDocument)).Decode(&raw); err != nil {
		return nil, fault.New(fault.Invalid, "the throughputs are not JSON of the form {model: {kind: {\"null\": steps per second}}}: %v", err)
	}
	t, check := &Throughputs{by: map[string]map[string]float64{}}, &core.Check{}
	for _, model := range slices.Sorted(maps.Keys(raw)) {
		t.by[model] = map[string]float64{}
		for _, name := range slices.Sorted(maps.Keys(raw[model])) {
			m := kindName.FindStringSubmatch(name)
			var v float64
			alone, ok := raw[model][name]["null"]
			switch {
			case m == nil:
				check.Add(model+" "+name, "must be named ('job', cards)")
			case !ok:
				check.Add(model+" "+name, `must have "null": steps per second of the job alone`)
			case json.Unmarshal(alone, &v) != nil || v < 0 || v > 1e9 || math.IsNaN(v):
				check.Add(model+" "+name, "must be steps per second from 0 to 1e9, got %.40s", alone)
			default:
				t.by[model][m[1]+" x"+m[2]] = v
			}
		}
	}
	if len(t.by) == 0 {
		return nil, fault.New(fault.Invalid, "the throughputs name no model")
	}
	return t, check.Err()
}

// reference is the slowest throughput of a kind on one machine: run times are
// stated for it. 0: it was measured nowhere.
func (t *Throughputs) reference(kind string) float64 {
	least := 0.0
	for model, kinds := range t.by {
		if v := kinds[kind]; v > 0 && !strings.HasSuffix(model, spreadOf) && (least == 0 || v < least) {
			least = v
		}
	}
	return least
}

// complete assumes figures of a job on a number of cards from those on one.
func (t *Throughputs) complete(job string, cards int) {
	kind, one, any := kindOf(job, cards), kindOf(job, 1), false
	for _, kinds := range t.by {
		if v := kinds[one]; v > 0 {
			kinds[kind], any = v*float64(cards), true
		}
	}
	if any {
		t.Assumed = append(t.Assumed, kind)
	}
}

// Apply gives nodes and centers the speeds of their cards: those of the model
// whose name theirs begins with. It answers the models it has no figures of.
func (t *Throughputs) Apply(f *Fleet) (without []string) {
	type table struct{ speeds, spread map[string]int64 }
	made := map[string]*table{}
	of := func(model string) *table {
		if k, ok := made[model]; ok {
			return k
		}
		made[model] = nil
		for _, name := range slices.Sorted(maps.Keys(t.by)) {
			if strings.HasSuffix(name, spreadOf) || !strings.HasPrefix(strings.ToLower(model), strings.ToLower(name)) {
				continue
			}
			k := &table{map[string]int64{}, map[string]int64{}}
			for kind, v := range t.by[name] {
				ref := t.reference(kind)
				if ref == 0 {
					continue
				}
				k.speeds[kind] = int64(math.Round(1000 * v / ref))
				if s, ok := t.by[name+spreadOf][kind]; ok {
					k.spread[kind] = int64(math.Round(1000 * s / ref))
				}
			}
			made[model] = k
		}
		if made[model] == nil && model != "" {
			without = append(without, model)
		}
		return made[model]
	}
	for i := range f.Nodes {
		if k := of(f.Nodes[i].Model); k != nil {
			f.Nodes[i].Speeds, f.Nodes[i].Spread = k.speeds, k.spread
		}
	}
	for i := range f.Centers {
		if k := of(f.Centers[i].Model); k != nil {
			f.Centers[i].Speeds, f.Centers[i].Spread = k.speeds, k.spread
		}
	}
	slices.Sort(without)
	return without
}

// readSteps reads a gavel trace: job type, command, name of the steps argument,
// needs data, steps, arrival in seconds, cards; separated by tabs.
func readSteps(in io.Reader, speeds *Throughputs) ([]Job, error) {
	if speeds == nil {
		return nil, fault.New(fault.Invalid, "a trace counts steps: it needs the file of throughputs that says how long they take")
	}
	var out []Job
	check := &core.Check{}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 1<<16), 1<<20)
	for n := 1; lines.Scan(); n++ {
		at := fmt.Sprintf("line %d ", n)
		cells := strings.Split(lines.Text(), "\t")
		if len(cells) != 7 {
			check.Add(fmt.Sprintf("line %d", n), "must have 7 columns separated by tabs, got %d", len(cells))
			continue
		}
		if len(out) >= MaxJobs {
			return nil, fault.New(fault.Invalid, "the file has more than %d lines", MaxJobs)
		}
		by := map[string]string{"steps": cells[4], "arrival": cells[5], "cards": cells[6]}
		r := &row{at: at, check: check, get: func(name string) (string, bool) { s, ok := by[name]; return s, ok }}
		j := Job{ID: fmt.Sprintf("job-%d", n-1), Tenant: strings.Clone(strings.SplitN(cells[0], " (", 2)[0]), Replicas: 1, Split: true, Preemptible: true}
		steps := r.number("steps", 1, 1<<50)
		j.Arrival = r.span("arrival")
		cards := int(r.number("cards", 1, 1024))
		j.Ask.Cards, j.Ask.Share = cards, 1000
		if cards > 8 { // more than a machine has: on several, whole ones where that goes
			j.Ask.Cards = 8
			for cards%j.Ask.Cards != 0 {
				j.Ask.Cards /= 2
			}
			j.Replicas = cards / j.Ask.Cards
		}
		j.Kind = strings.Clone(kindOf(cells[0], max(cards, 1)))
		ref := speeds.reference(j.Kind)
		if ref == 0 && cards > 1 {
			speeds.complete(cells[0], cards)
			ref = speeds.reference(j.Kind)
		}
		if ref == 0 {
			check.Add(at+"type", "has no throughput on %d cards: %.60q", cards, cells[0])
			continue
		}
		run := float64(steps) / ref * float64(Second)
		if run < 1 || run > float64(MaxTime) {
			r.bad("steps", "must take 1 µs to %d s at %.4g steps per second, got %d", MaxTime/Second, ref, steps)
			continue
		}
		j.Run = int64(run)
		j.Expected = j.Run
		out = append(out, j)
	}
	if err := lines.Err(); err != nil {
		return nil, fault.New(fault.Invalid, "the trace cannot be read: %v", err)
	}
	return out, check.Err()
}
