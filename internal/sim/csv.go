package sim

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/pack"
)

// Columns of the CSV forms: those of this simulator, and those of public traces.
var (
	nodeColumns = []string{"id", "sn", "count", "cpu", "cpu_milli", "memory", "memory_mib", "cards", "gpu", "model", "price", "core_price", "idle", "busy", "core_busy", "base", "pue", "carbon", "speed", "mtbf", "mttr"}
	jobColumns  = []string{"id", "name", "tenant", "qos", "priority", "replicas", "cpu", "cpu_milli", "memory", "memory_mib", "cards", "num_gpu", "share", "gpu_milli", "models", "gpu_spec",
		"kind", "spec", "arrival", "creation_time", "duration", "deletion_time", "scheduled_time", "pod_phase", "expected", "deadline", "preemptible", "checkpoint", "split", "min_replicas", "not_before", "user"}
)

// readCSV calls each for every line after the first, which has the columns.
func readCSV(in io.Reader, known []string, need [][]string, each func(n int, r *row)) error {
	r := csv.NewReader(in)
	r.ReuseRecord = true
	r.FieldsPerRecord = -1
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "the file is empty; its first line must name columns, such as %s", strings.Join(known[:8], ","))
	}
	if err != nil {
		return fault.New(fault.Invalid, "the file is not CSV: %v", err)
	}
	at, check := map[string]int{}, &core.Check{}
	for i, name := range head {
		name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		if _, twice := at[name]; twice {
			check.Add("line 1 "+name, "is named twice")
		}
		if at[name] = i; !slices.Contains(known, name) {
			check.Add("line 1 "+name, "is no column that is known; there are %s", strings.Join(known, ", "))
		}
	}
	for _, any := range need {
		if !slices.ContainsFunc(any, func(n string) bool { _, ok := at[n]; return ok }) {
			check.Add("line 1", "must have the column %s", strings.Join(any, " or "))
		}
	}
	if err := check.Err(); err != nil {
		return err
	}
	width, n := len(head), 0
	var cells []string
	x := &row{check: check,
		get: func(name string) (string, bool) {
			if i, ok := at[name]; ok && i < len(cells) {
				return cells[i], true
			}
			return "", false
		},
	}
	x.many = func(name string) []string {
		s, _ := x.get(name)
		if s == "" {
			return nil
		}
		return strings.Split(s, "|")
	}
	for ; ; n++ {
		cells, err = r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fault.New(fault.Invalid, "the file is not CSV: %v", err)
		}
		line, _ := r.FieldPos(0)
		x.at = fmt.Sprintf("line %d ", line)
		if len(cells) != width {
			check.Add(fmt.Sprintf("line %d", line), "must have %d columns as line 1 has, got %d", width, len(cells))
			continue
		}
		if n >= MaxJobs {
			return fault.New(fault.Invalid, "the file has more than %d lines", MaxJobs)
		}
		each(n, x)
	}
	return check.Err()
}

// Timeless tells whether a table of jobs says neither when they come nor how
// long they run: its nodes can be filled, and nothing else be played.
func Timeless(in io.Reader) bool {
	head, err := csv.NewReader(in).Read()
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(head, func(name string) bool {
		return slices.Contains([]string{"arrival", "creation_time", "duration", "deletion_time"}, strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))
	})
}

// readNodes reads nodes from CSV.
func readNodes(in io.Reader) ([]Node, error) {
	var out []Node
	err := readCSV(in, nodeColumns, [][]string{{"id", "sn"}, {"cpu", "cpu_milli"}, {"memory", "memory_mib"}, {"cards", "gpu"}}, func(_ int, r *row) {
		out = append(out, r.nodes(nil, len(out))...)
	})
	return out, err
}

// nodes is a node, or count equal ones that are told apart by a number.
func (r *row) nodes(models map[string]Supply, have int) []Node {
	n := Node{Node: pack.Node{ID: r.text(r.either("id", "sn"), 128), CPU: r.cpu(1<<31 - 1), Memory: r.memory(1<<31 - 1), Model: r.text("model", 64)}}
	if n.ID == "" {
		r.bad("id", "is required")
	}
	n.Cards = int(r.number(r.either("cards", "gpu"), 0, pack.MaxCards))
	n.Supply = r.supply(models[n.Model])
	if !r.has("count") {
		return []Node{n}
	}
	count := int(r.number("count", 1, MaxNodes))
	if have+count > MaxNodes {
		r.bad("count", "must leave no more than %d nodes in all, got %d", MaxNodes, have+count)
		return nil
	}
	out := make([]Node, count)
	for i := range out {
		out[i] = n
		out[i].ID = fmt.Sprintf("%s-%d", n.ID, i)
	}
	return out
}

// readJobs reads jobs from CSV; without times they need none, for they arrive
// in an order that is drawn.
func readJobs(in io.Reader, times bool) ([]Job, error) {
	var out []Job
	names := map[string]string{} // tenants and kinds are few: one copy of each
	one := func(s string) string {
		if v, ok := names[s]; ok {
			return v
		}
		names[s] = s
		return s
	}
	need := [][]string{{"cpu", "cpu_milli"}}
	if times {
		need = append(need, []string{"arrival", "creation_time"}, []string{"duration", "deletion_time"})
	}
	err := readCSV(bufio.NewReaderSize(in, 1<<16), jobColumns, need, func(n int, r *row) {
		j := r.job(n, times)
		j.ID, j.Tenant, j.Kind, j.Spec = strings.Clone(j.ID), one(strings.Clone(j.Tenant)), one(strings.Clone(j.Kind)), one(j.Spec)
		if !j.asks() {
			r.bad("cpu", "must be more than 0 where no memory and no card is asked for")
		}
		out = append(out, j)
	})
	return out, err
}
