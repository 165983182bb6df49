package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/chart"
	"yunhe.dev/yunhe/internal/scheduler/pack"
)

func simCommand(c *cli) *cobra.Command {
	return group("sim", groupHere, "Try scheduling on recorded work; needs no server", simRunCommand(c), simRecordCommand(c), simPackingCommand(c), simForecastCommand(c), simBenchCommand(c), simRoutesCommand(c), simTrainCommand(c))
}

// packingOut is what a policy left over.
type packingOut struct {
	Tasks       string      `json:"tasks,omitempty"` // the file, where there are several
	Policy      pack.Policy `json:"policy"`
	Unallocated struct {
		Mean   float64   `json:"mean"`
		BySeed []float64 `json:"by_seed"`
	} `json:"unallocated_percent"`
	// Bound is what no policy can leave less of, mean of the seeds.
	Bound *float64 `json:"bound_percent,omitempty"`
}

func simPackingCommand(c *cli) *cobra.Command {
	var nodesFile, policies, chartFile string
	var tasksFiles []string
	var seeds int
	var load float64
	var bound bool
	names := make([]string, len(pack.Policies()))
	for i, p := range pack.Policies() {
		names[i] = string(p)
	}
	cmd := &cobra.Command{
		Use: "packing --nodes FILE --tasks FILE", Short: "How much of all cards is left over when a cluster is full",
		Long: `Lets tasks arrive at random, drawn with replacement from a recorded list, until
they have asked for --load times the cards there are; what does not fit is
dropped. Prints the share of all cards that nobody has then. Nodes are in another
order with each seed.

Both files are CSV, packed with gzip if their name ends in .gz, with columns in
any order; others are ignored. Nodes: sn, cpu_milli, memory_mib, gpu (how many
cards) and, if it is there, model. Tasks: cpu_milli, memory_mib, num_gpu,
gpu_milli (thousandths of each card; may be missing where all ask for whole ones)
and gpu_spec (models, separated by bars; may be missing).

Policies: ` + strings.Join(names, ", ") + `. The first is
Yunhe's; the others are here to be compared with (docs/scheduling.md). With
--bound it also prints what is left over at least, whatever the policy: one that
knew all tasks beforehand and was free to drop any could not leave less.
--chart draws the means as SVG; --tasks may be given several times.`,
		Example: `  yunhe sim packing --nodes nodes.csv --tasks tasks.csv --policy waste,fgd
  yunhe sim packing --nodes nodes.csv --tasks a.csv --tasks b.csv --policy waste,fgd --chart left.svg`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if nodesFile == "" || len(tasksFiles) == 0 {
				return usagef("--nodes and --tasks are required")
			}
			if seeds < 1 || seeds > 1000 {
				return usagef("--seeds must be 1 to 1000, got %d", seeds)
			}
			nodes, err := readTrace(nodesFile, pack.ReadNodes)
			if err != nil {
				return err
			}
			var out []packingOut
			for _, file := range tasksFiles {
				list, err := c.packTasks(nodes, file, strings.Split(policies, ","), load, seeds, bound)
				if err != nil {
					return err
				}
				if len(tasksFiles) > 1 {
					for i := range list {
						list[i].Tasks = file
					}
				}
				out = append(out, list...)
			}
			if chartFile != "" {
				if err := drawPacking(chartFile, tasksFiles, out); err != nil {
					return err
				}
			}
			var msg any = out
			if len(out) == 1 {
				msg = out[0]
			}
			return c.print(result{msg: msg, names: strings.Split(policies, ","), print: func(w io.Writer, color bool) error {
				return packingTable(tasksFiles, out).Write(w, color)
			}})
		},
	}
	cmd.Flags().StringVar(&nodesFile, "nodes", "", "CSV file with the nodes")
	cmd.Flags().StringArrayVar(&tasksFiles, "tasks", nil, "CSV file with the tasks (repeatable)")
	cmd.Flags().StringVar(&policies, "policy", string(pack.Waste), "policy, or several separated by commas")
	cmd.Flags().BoolVar(&bound, "bound", false, "also print what no policy can leave less of")
	cmd.Flags().StringVar(&chartFile, "chart", "", "draw the means to this file, as SVG")
	cmd.Flags().IntVar(&seeds, "seeds", 10, "how many random orders to try")
	cmd.Flags().Float64Var(&load, "load", 1.3, "cards asked for, as a multiple of those there are")
	return cmd
}

// packTasks fills the nodes with the tasks of a file by each policy.
func (c *cli) packTasks(nodes []pack.Node, file string, policies []string, load float64, seeds int, bound bool) ([]packingOut, error) {
	tasks, err := readTrace(file, pack.ReadTasks)
	if err != nil {
		return nil, err
	}
	var least *float64
	if bound {
		sum := 0.0
		for i := range seeds {
			x, err := pack.Bound(nodes, tasks, load, uint64(i)+1)
			if err != nil {
				return nil, err
			}
			sum += x
		}
		sum /= float64(seeds)
		least = &sum
	}
	out := make([]packingOut, len(policies))
	for i, p := range policies {
		if out[i], err = c.simulatePacking(nodes, tasks, pack.Policy(p), load, seeds); err != nil {
			return nil, err
		}
		out[i].Bound = least
	}
	return out, nil
}

const noPolicyBelow = "(no policy can leave less)"

// packingTable has a row for each policy and, where that was asked for, one for
// the bound.
func packingTable(files []string, out []packingOut) *text.Table {
	head := []string{"POLICY", ">LEFT OVER, %", ">LEAST", ">MOST"}
	if len(files) > 1 {
		head = append([]string{"TASKS"}, head...)
	}
	t := text.NewTable(head...)
	row := func(x *packingOut, cells ...any) {
		if len(files) > 1 {
			cells = append([]any{variant(x.Tasks)}, cells...)
		}
		t.Row(cells...)
	}
	for i := range out {
		x := &out[i]
		least, most := x.Unallocated.Mean, x.Unallocated.Mean
		for _, u := range x.Unallocated.BySeed {
			least, most = min(least, u), max(most, u)
		}
		row(x, string(x.Policy), fmt.Sprintf("%.2f", x.Unallocated.Mean), fmt.Sprintf("%.2f", least), fmt.Sprintf("%.2f", most))
		if last := i == len(out)-1 || out[i+1].Tasks != x.Tasks; last && x.Bound != nil {
			row(x, noPolicyBelow, fmt.Sprintf("%.2f", *x.Bound))
		}
	}
	return t
}

// variant is the name of a file of tasks without what all have in common.
func variant(file string) string {
	name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".gz"), ".csv")
	return name[strings.LastIndexByte(name, '_')+1:]
}

// drawPacking draws the means of every policy, and the bound, by file of tasks.
func drawPacking(path string, files []string, out []packingOut) error {
	c := chart.Chart{Title: "Cards left over when a cluster is full", X: "tasks", Y: "left over, %"}
	for _, f := range files {
		c.Ticks = append(c.Ticks, variant(f))
	}
	n := len(out) / len(files) // policies
	for k := range n {
		s := chart.Series{Name: string(out[k].Policy)}
		for i := k; i < len(out); i += n {
			s.Values = append(s.Values, out[i].Unallocated.Mean)
		}
		c.Series = append(c.Series, s)
	}
	if out[0].Bound != nil {
		s := chart.Series{Name: "no policy below"}
		for i := 0; i < len(out); i += n {
			s.Values, s.Hollow = append(s.Values, *out[i].Bound), append(s.Hollow, true)
		}
		c.Series = append(c.Series, s)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(c.Write(f), f.Close())
}

func readTrace[T any](path string, read func(io.Reader) ([]T, error)) (out []T, err error) {
	err = open(path, func(r io.Reader) (err error) { out, err = read(r); return err })
	return out, err
}

// simulatePacking runs the seeds beside each other, as many as there are cores.
func (c *cli) simulatePacking(nodes []pack.Node, tasks []pack.Task, p pack.Policy, load float64, seeds int) (packingOut, error) {
	out := packingOut{Policy: p}
	out.Unallocated.BySeed = make([]float64, seeds)
	errs := make([]error, seeds)
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range seeds {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			out.Unallocated.BySeed[i], errs[i] = pack.Fill(nodes, tasks, p, load, uint64(i)+1)
		})
	}
	wg.Wait()
	for i, u := range out.Unallocated.BySeed {
		if errs[i] != nil {
			return out, errs[i]
		}
		out.Unallocated.Mean += u / float64(seeds)
	}
	return out, nil
}
