package pack

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// maxRows of a trace.
const maxRows = 2_000_000

// ReadNodes reads nodes from CSV with the columns sn, cpu_milli, memory_mib,
// gpu (a number of cards) and, if it is there, model, in any order.
func ReadNodes(r io.Reader) ([]Node, error) {
	var out []Node
	err := read(r, []string{"sn", "cpu_milli", "memory_mib", "gpu"}, func(x *line) {
		out = append(out, Node{ID: x.text("sn"), CPU: x.number("cpu_milli"), Memory: x.number("memory_mib"), Cards: int(x.number("gpu")), Model: x.text("model")})
	})
	if err == nil && len(out) == 0 {
		err = fault.New(fault.Invalid, "there are no nodes")
	}
	if err == nil {
		err = Check(out, nil)
	}
	return out, err
}

// ReadTasks reads tasks from CSV with the columns cpu_milli, memory_mib,
// num_gpu and, if they are there, gpu_milli (thousandths of each card; without the
// column, all ask for whole ones) and gpu_spec (models of cards, separated by
// bars), in any order.
func ReadTasks(r io.Reader) ([]Task, error) {
	var out []Task
	err := read(r, []string{"cpu_milli", "memory_mib", "num_gpu"}, func(x *line) {
		t := Task{CPU: x.number("cpu_milli"), Memory: x.number("memory_mib"), Cards: int(x.number("num_gpu")), Share: int(x.number("gpu_milli"))}
		if _, ok := x.by["gpu_milli"]; !ok && t.Cards > 0 {
			t.Share = Whole
		}
		for m := range strings.SplitSeq(x.text("gpu_spec"), "|") {
			if m != "" {
				t.Models = append(t.Models, m)
			}
		}
		out = append(out, t)
	})
	if err == nil && len(out) == 0 {
		err = fault.New(fault.Invalid, "there are no tasks")
	}
	if err == nil {
		err = Check([]Node{{}}, out)
	}
	return out, err
}

// line is a line of CSV with its columns by name.
type line struct {
	at    string
	by    map[string]int
	cells []string
	check *core.Check
}

func (x *line) text(column string) string {
	if i, ok := x.by[column]; ok && i < len(x.cells) {
		return x.cells[i]
	}
	return ""
}

func (x *line) number(column string) int64 {
	text := x.text(column)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n != n || n < 0 || n > maxAmount {
		x.check.Add(x.at+"."+column, "must be a number from 0 to %d, got %q", maxAmount, text)
		return 0
	}
	return int64(n)
}

func read(r io.Reader, columns []string, row func(*line)) error {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	head, err := in.Read()
	if errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "the file is empty; it needs the columns %s", strings.Join(columns, ", "))
	}
	if err != nil {
		return fault.New(fault.Invalid, "the file is not CSV: %v", err)
	}
	x := line{by: map[string]int{}, check: &core.Check{}}
	var names, missing []string
	for i, name := range head {
		name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		if _, twice := x.by[name]; twice {
			return fault.New(fault.Invalid, "the file names the column %s twice", name)
		}
		x.by[name], names = i, append(names, name)
	}
	for _, name := range columns {
		if _, ok := x.by[name]; !ok {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return fault.New(fault.Invalid, "the file has no column %s; it has %s", strings.Join(missing, ", "), strings.Join(names, ", "))
	}
	for n := 0; ; n++ {
		if x.cells, err = in.Read(); errors.Is(err, io.EOF) {
			return x.check.Err()
		}
		if err != nil {
			return fault.New(fault.Invalid, "the file is not CSV: %v", err)
		}
		if n == maxRows {
			return fault.New(fault.Invalid, "the file has more than %d rows", maxRows)
		}
		x.at = fmt.Sprintf("[%d]", n)
		row(&x)
	}
}

// Fill lets tasks, drawn at random with replacement, arrive until they have
// asked for load times the cards of the nodes; what does not fit is dropped. It
// answers the share of all cards that nobody has then, in per cent.
//
// Nodes are in the order of [Order].
func Fill(nodes []Node, tasks []Task, policy Policy, load float64, seed uint64) (unallocated float64, err error) {
	mixed := make([]Node, len(nodes))
	for i, k := range Order(len(nodes), seed) {
		mixed[i] = nodes[k]
	}
	c, err := New(mixed, policy, tasks, seed)
	if err != nil {
		return 0, err
	}
	if err := arrive(nodes, tasks, load, seed, func(t *Task) { c.Place(*t) }); err != nil {
		return 0, err
	}
	return 100 * float64(c.Left()) / float64(c.Whole()), nil
}

// Order is the order in which [Fill] has nodes, by their number. Where a policy
// finds many equally good the first is taken, so that a mean over seeds that all
// have one order would be that of a single draw.
func Order(nodes int, seed uint64) []int { return rand.New(rand.NewPCG(seed, 7)).Perm(nodes) }

// arrive tells each task of Fill in its turn.
func arrive(nodes []Node, tasks []Task, load float64, seed uint64, each func(*Task)) error {
	if !slices.ContainsFunc(tasks, func(t Task) bool { return t.Cards > 0 }) {
		return fault.New(fault.Invalid, "no task asks for a card")
	}
	if !(load > 0 && load <= 100) {
		return fault.New(fault.Invalid, "the load must be above 0 and at most 100, got %v", load)
	}
	whole := int64(0)
	for i := range nodes {
		whole += int64(nodes[i].Cards) * Whole
	}
	if whole == 0 {
		return fault.New(fault.Invalid, "no node has a card")
	}
	dice := rand.New(rand.NewPCG(seed, 7))
	for arrived := int64(0); float64(arrived) < load*float64(whole); {
		t := &tasks[dice.IntN(len(tasks))]
		arrived += t.Demand()
		each(t)
	}
	return nil
}
