package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/sim"
	"yunhe.dev/yunhe/internal/sim/report"
)

// asHTML is a form that only simulations have.
const asHTML = "html"

type simFlags struct {
	nodes, jobs, throughputs, generate string
	policies, queues, modules          []string
	baseline, speed, out, events       string
	seed                               uint64
	seeds                              int
	fill, load                         float64
	untimed                            bool
}

func simRunCommand(c *cli) *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use: "run (--nodes FILE --jobs FILE | --generate RECIPE)", Short: "Play work on nodes or centers and compare policies",
		Long: `Plays jobs on a pool of nodes, or on a network of centers, event by event, with
the same code that schedules on the live platform, and says what each policy
comes to. The same input and seed give the same result.

Files are CSV, YAML or JSON (docs/howto/simulate.md has their members). Public
traces are read as they are: openb (nodes and tasks in CSV) and gavel (jobs in
.trace with --throughputs). "yunhe sim record" writes what a live platform did.

--policy is, for nodes, one of those of "yunhe sim packing"; for centers a preset
such as balanced or lowest-cost, or weights such as "price=3,energy=1", with an
evaluator before them if wanted ("lexicographic:price=3,energy=1"); the file of a
policy document, decided as if it were in force (--module ID@VERSION=FILE for what it
names); or, of a recorded platform, live: what decided there. Several are separated
by commas; weights are one policy, so give the flag again for more.

--queue is an order (fair, priority or fcfs) and settings: backfill=on|greedy|off,
preempt=on|off, strict=on|off, half-life=24h, ageing=1h, assumed-run=1h,
starve-after=1h, block-after=1h, reservations=8. Give it again to compare several.

--load 1.1 brings the arrivals nearer together, or further apart, until the jobs
ask for 1.1 times the cards while they come; run times stay.

--fill 1.3 plays another game, that of "Beware of Fragmentation" (ATC 2023): jobs
are drawn at random until they have asked for 1.3 times the cards; they do not
end, and what does not fit is dropped. So are nodes filled, by ten seeds, for jobs
that have no times.

Ctrl-C ends it with what there is until then, marked as partial.`,
		Example: `  yunhe sim run --generate nodes=100,jobs=20000,load=1.1 --policy waste,best-fit
  yunhe sim run --nodes nodes.csv --jobs jobs.csv --queue fcfs,backfill=off --queue fair
  yunhe sim run --nodes state.json --jobs state.json --policy balanced,lowest-cost -o html --out report.html`,
		Args: takes(0, 0, ""),
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if c.flags.output == asHTML {
				return nil
			}
			return c.checkGlobals()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := c.simulate(cmd.Context(), f)
			var bad *badFile
			if errors.As(err, &bad) {
				c.complain(bad.Error(), bad.fields, "")
				return exitStatus(exitFailed)
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&c.flags.output, "output", "o", asTable, "output: table, wide, json, yaml, name, html")
	fl.StringVar(&f.nodes, "nodes", "", "file with nodes or centers")
	fl.StringVar(&f.jobs, "jobs", "", "file with jobs; may be the same")
	fl.StringVar(&f.throughputs, "throughputs", "", "file with the steps per second of a gavel trace")
	fl.StringVar(&f.generate, "generate", "", "make up nodes and jobs, such as nodes=1000,jobs=100000,load=1.2")
	fl.StringArrayVar(&f.policies, "policy", nil, "policies, separated by commas; or the weights of one")
	fl.StringArrayVar(&f.modules, "module", nil, "ID@VERSION=FILE: a module that a policy document names (repeatable)")
	fl.StringArrayVar(&f.queues, "queue", nil, "order and settings of the queue (default fair)")
	fl.StringVar(&f.baseline, "baseline", "", "name of the result to set the others against")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of what is drawn")
	fl.IntVar(&f.seeds, "seeds", 1, "how many seeds to fill with, from --seed on")
	fl.Float64Var(&f.fill, "fill", 0, "draw jobs until they ask for so many times the cards")
	fl.Float64Var(&f.load, "load", 0, "change the times of arrival so that the jobs ask for so many times the cards")
	fl.StringVar(&f.speed, "speed", "max", "max, or how many simulated seconds pass in one")
	fl.StringVar(&f.out, "out", "", "write the result to this file")
	fl.StringVar(&f.events, "events", "", "write every event of a single run to this file, as CSV")
	fl.BoolVar(&f.untimed, "no-timing", false, "leave out how long it took, so that the output repeats")
	return cmd
}

// game is one run to be made.
type game struct {
	name   string
	config sim.Config
}

func (c *cli) simulate(ctx context.Context, f simFlags) error {
	pace := 0.0
	if f.speed != "max" {
		v, err := strconv.ParseFloat(f.speed, 64)
		if err != nil || !(v > 0 && v <= 1e12) {
			return usagef("--speed must be max or a number above 0, got %q", f.speed)
		}
		pace = v
	}
	if err := c.fillTimeless(&f); err != nil {
		return err
	}
	switch {
	case f.seeds < 1 || f.seeds > 1000:
		return usagef("--seeds must be 1 to 1000, got %d", f.seeds)
	case f.seeds > 1 && f.fill == 0:
		return usagef("--seeds goes with --fill; use --seed, or another seed of --generate, where jobs have their times")
	case f.fill < 0 || f.fill > 100:
		return usagef("--fill must be above 0 and at most 100, got %v", f.fill)
	case f.load < 0 || f.load > 100:
		return usagef("--load must be above 0 and at most 100, got %v", f.load)
	case f.load > 0 && f.fill > 0:
		return usagef("--load does not go with --fill: nothing has a time there")
	case f.fill > 0 && len(f.queues) > 0:
		return usagef("--queue does not go with --fill: nothing waits")
	case c.flags.output == asHTML && f.out == "" && c.color(c.out):
		return usagef("-o html needs --out FILE, or a redirection")
	}
	in, err := c.readSim(f)
	if err != nil {
		return err
	}
	if f.load > 0 {
		if err := in.Rescale(f.load); err != nil {
			return err
		}
	}
	games, done, err := c.gamesOf(ctx, f, in)
	if err != nil {
		return err
	}
	defer done()
	if f.baseline != "" && !hasName(games, f.baseline) {
		return usagef("--baseline must be one of the results, got %q", f.baseline)
	}
	results, err := c.playAll(ctx, f, in, games, pace)
	if err != nil {
		return err
	}
	if err := c.fillIdle(ctx, f, in, games, results); err != nil {
		return err
	}
	summary := sim.Summarize(in)
	if summary.Fill, summary.Made = f.fill, f.generate; f.seeds > 1 {
		summary.Seeds = f.seeds
	}
	return c.showComparison(f, sim.Compare(summary, results, f.baseline))
}

// fillTimeless fills the nodes where the jobs have no times, which is all that
// can be played then.
func (c *cli) fillTimeless(f *simFlags) error {
	if f.fill != 0 || f.load != 0 || len(f.queues) > 0 || f.jobs == "" || f.jobs == f.nodes || formOf(f.jobs) != sim.Table {
		return nil
	}
	return open(f.jobs, func(r io.Reader) error {
		if sim.Timeless(r) {
			if f.fill = fillLoad; f.seeds == 1 && f.events == "" {
				f.seeds = fillSeeds
			}
			c.note("the jobs have no times: the nodes are filled until jobs have asked for 130 %% of the cards (--fill)")
		}
		return nil
	})
}

func hasName(games []game, name string) bool {
	for _, g := range games {
		if g.name == name {
			return true
		}
	}
	return false
}

// gamesOf are all policies with all queues; done frees what they hold.
func (c *cli) gamesOf(ctx context.Context, f simFlags, in *sim.Input) (out []game, done func(), err error) {
	list, err := c.simPolicies(ctx, f, in)
	free := func() {
		for _, p := range list {
			p.close()
		}
	}
	defer func() {
		if err != nil {
			free()
		}
	}()
	if err != nil {
		return nil, nil, err
	}
	if len(f.queues) == 0 {
		f.queues = []string{""}
		if in.Recorded != nil {
			f.queues[0] = in.Recorded.Queue
		}
	}
	for _, text := range f.queues {
		q, err := sim.ParseQueue(text)
		if err != nil {
			return nil, nil, err
		}
		for _, x := range list {
			p, err := x.make()
			if err != nil {
				return nil, nil, err
			}
			g := game{name: p.Name, config: sim.Config{Policy: p, Queue: q, Seed: f.seed, Fill: f.fill}}
			if len(f.queues) > 1 {
				g.name = p.Name + " / " + q.Name
			}
			if hasName(out, g.name) {
				return nil, nil, usagef("--queue %q is given twice", text)
			}
			out = append(out, g)
		}
	}
	if f.events != "" && (len(out) > 1 || f.seeds > 1) {
		return nil, nil, usagef("--events goes with one policy, one queue and one seed")
	}
	return out, free, nil
}

// readSim reads or makes up what is played.
func (c *cli) readSim(f simFlags) (*sim.Input, error) {
	if f.generate != "" {
		if f.nodes != "" || f.jobs != "" {
			return nil, usagef("--generate does not go with --nodes and --jobs")
		}
		r, err := sim.ParseRecipe(f.generate)
		if err != nil {
			return nil, err
		}
		return r.Make(), nil
	}
	if f.nodes == "" || f.jobs == "" {
		return nil, usagef("--nodes and --jobs are required, or --generate")
	}
	speeds, err := readThroughputs(f)
	if err != nil {
		return nil, err
	}
	var fleet, jobs *sim.Input
	if err := open(f.nodes, func(r io.Reader) (err error) {
		fleet, err = sim.ReadFleet(formOf(f.nodes), r)
		return err
	}); err != nil {
		return nil, err
	}
	if f.jobs == f.nodes && f.fill == 0 {
		jobs = fleet
	} else if jobs, err = readJobs(f, speeds); err != nil {
		return nil, err
	}
	in := &sim.Input{Fleet: fleet.Fleet, Workload: jobs.Workload, Recorded: fleet.Recorded}
	if len(in.Tenants) == 0 {
		in.Tenants = fleet.Tenants
	}
	if err := in.Fleet.Check(); err != nil {
		return nil, inFile(f.nodes, err)
	}
	if err := in.Workload.Check(); err != nil {
		return nil, inFile(f.jobs, err)
	}
	if speeds != nil {
		if n := len(speeds.Assumed); n > 0 {
			c.note("%d kinds of jobs were measured on one card only; on several they are taken to be that many times as fast", n)
		}
		if without := speeds.Apply(&in.Fleet); len(without) > 0 {
			return nil, fmt.Errorf("%s has no throughputs of the models %s", f.throughputs, strings.Join(without, ", "))
		}
	}
	return in, nil
}

// readThroughputs returns nil where no file is given.
func readThroughputs(f simFlags) (speeds *sim.Throughputs, err error) {
	if f.throughputs != "" {
		err = open(f.throughputs, func(r io.Reader) (err error) { speeds, err = sim.ReadThroughputs(r); return err })
	}
	return speeds, err
}

func readJobs(f simFlags, speeds *sim.Throughputs) (jobs *sim.Input, err error) {
	err = open(f.jobs, func(r io.Reader) (err error) {
		jobs, err = sim.ReadJobs(formOf(f.jobs), r, speeds, f.fill == 0)
		return err
	})
	return jobs, err
}

// playAll runs the games beside each other, as many as there are cores; those
// that are paced one after the other, for someone watches.
func (c *cli) playAll(ctx context.Context, f simFlags, in *sim.Input, games []game, pace float64) ([]*sim.Result, error) {
	results := make([][]*sim.Result, len(games))
	errs := make([]error, len(games)*f.seeds)
	n := runtime.GOMAXPROCS(0)
	if pace > 0 {
		n = 1
	}
	slots := make(chan struct{}, n)
	var wg sync.WaitGroup
	for i := range games {
		results[i] = make([]*sim.Result, f.seeds)
		for k := range f.seeds {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				g := games[i]
				g.config.Seed += uint64(k)
				results[i][k], errs[i*f.seeds+k] = c.play(ctx, f, in, g, pace)
			})
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, err := range errs {
			if err != nil {
				return nil, err
			}
		}
	}
	out := make([]*sim.Result, len(games))
	for i, seeds := range results {
		out[i] = sim.Merge(seeds)
	}
	return out, nil
}

func (c *cli) play(ctx context.Context, f simFlags, in *sim.Input, g game, pace float64) (*sim.Result, error) {
	begin, first, calls := time.Now(), int64(-1), 0
	said := begin
	g.config.Watch = func(now int64, r *sim.Result) error {
		if calls++; pace == 0 && calls%256 != 0 {
			return nil
		}
		if first < 0 {
			first = now
		}
		if pace == 0 {
			return ctx.Err()
		}
		at := begin.Add(time.Duration(float64(now-first) / float64(sim.Second) / pace * float64(time.Second)))
		if wait := time.Until(at); wait > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
		if time.Since(said) >= time.Second {
			said = time.Now()
			c.note("%s: %s simulated, %d events", g.name, report.Length(float64(now-first)/float64(sim.Second)), r.Events)
		}
		return ctx.Err()
	}
	if ctx.Err() != nil {
		g.config.Watch = func(int64, *sim.Result) error { return ctx.Err() }
	}
	flush := func() error { return nil }
	if f.events != "" {
		file, err := os.Create(f.events)
		if err != nil {
			return nil, err
		}
		w := bufio.NewWriter(file)
		flush = func() error { return errors.Join(w.Flush(), file.Close()) }
		sim.WriteEventHead(w)
		g.config.Log = func(e sim.Event) { sim.WriteEvent(w, in, e) }
	}
	r, err := sim.Run(in, g.config)
	if err = errors.Join(err, flush()); err != nil {
		return nil, err
	}
	r.Name = g.name
	if took := time.Since(begin).Seconds(); !f.untimed && took > 0 {
		r.Timing = &sim.Timing{Seconds: took, Events: float64(r.Events) / took, Decisions: float64(r.Decisions) / took}
	}
	return r, nil
}

// idleBelow is the mean allocation, in per cent, below which policies for nodes
// cannot be told apart by the work as it came.
const idleBelow = 5

// How nodes are filled where nobody says otherwise: as in the paper.
const (
	fillLoad  = 1.3
	fillSeeds = 10
)

// fillIdle fills a fleet that the work hardly uses as well, since that tells
// policies apart.
func (c *cli) fillIdle(ctx context.Context, f simFlags, in *sim.Input, games []game, results []*sim.Result) error {
	cards := false
	for i := range in.Nodes {
		cards = cards || in.Nodes[i].Cards > 0
	}
	asked := false
	for i := range in.Jobs {
		asked = asked || in.Jobs[i].Ask.Cards > 0
	}
	if f.fill > 0 || f.events != "" || !cards || !asked || ctx.Err() != nil {
		return nil
	}
	for _, r := range results {
		if r.Partial || r.Allocation.Mean >= idleBelow {
			return nil
		}
	}
	c.note("the work uses less than %d %% of the cards; what is left over when the nodes are filled until jobs have asked for 130 %% of them is shown as well (--load, --fill)", idleBelow)
	fill := f
	fill.fill, fill.seeds = fillLoad, fillSeeds
	list := make([]game, len(games))
	for i, g := range games {
		list[i] = g
		list[i].config.Fill = fill.fill
	}
	filled, err := c.playAll(ctx, fill, in, list, 0)
	if err != nil {
		return err
	}
	for i, r := range filled {
		if !r.Partial {
			results[i].Filled = &sim.Filled{Load: fill.fill, LeftOver: r.LeftOver, BySeed: r.BySeed}
		}
	}
	return nil
}

// showComparison prints the result, or writes it to a file.
func (c *cli) showComparison(f simFlags, cmp *sim.Comparison) (err error) {
	names := make([]string, len(cmp.Results))
	partial := false
	for i, r := range cmp.Results {
		names[i] = r.Name
		partial = partial || r.Partial
	}
	out := c.out
	color := c.color(c.out)
	if f.out != "" {
		file, err := os.Create(f.out)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out, color = file, false
	}
	if c.flags.output == asHTML {
		err = report.HTML(out, cmp)
	} else {
		shown := *c
		shown.out = out
		err = shown.print(result{msg: cmp, names: names, print: func(w io.Writer, _ bool) error { return c.simTable(w, color, cmp) }})
	}
	if err == nil && f.out != "" {
		c.note("wrote %s", f.out)
	}
	if partial {
		c.note("stopped early: the figures are those up to then, and jobs that had not ended count as not done")
	}
	return err
}

// simTable has a row for each measure and a column for each result.
func (c *cli) simTable(w io.Writer, color bool, cmp *sim.Comparison) error {
	columns := []string{"MEASURE"}
	for _, r := range cmp.Results {
		name := r.Name
		if r.Partial {
			name += " (partial)"
		}
		columns = append(columns, ">"+name)
	}
	t := text.NewTable(columns...)
	for _, m := range sim.Measures() {
		row := []any{report.Title(m)}
		any := false
		for _, r := range cmp.Results {
			v, ok := m.Of(r)
			if !ok {
				row = append(row, "")
				continue
			}
			any = true
			cell := text.Cell{Text: report.Number(m, v)}
			if cmp.IsBest(m, r) {
				cell.Text, cell.Color = cell.Text+" *", text.Green
			} else if len(cmp.Best[m.ID]) > 0 {
				cell.Text += "  "
			}
			row = append(row, cell)
		}
		if any {
			t.Row(row...)
		}
	}
	for _, x := range []struct {
		title string
		of    func(*sim.Result) int64
	}{{"Waiting at the end", func(r *sim.Result) int64 { return r.Jobs.Waiting }}, {"Running at the end", func(r *sim.Result) int64 { return r.Jobs.Running }},
		{"Dropped", func(r *sim.Result) int64 { return r.Jobs.Dropped }}, {"Fit nowhere", func(r *sim.Result) int64 { return r.Jobs.Never }}, {"Never arrived", func(r *sim.Result) int64 { return r.Jobs.Later }}} {
		row, any := []any{x.title}, false
		for _, r := range cmp.Results {
			any = any || x.of(r) > 0
			row = append(row, strconv.FormatInt(x.of(r), 10))
		}
		if any {
			t.Row(row...)
		}
	}
	row, timed := []any{"Decisions per second"}, false
	for _, r := range cmp.Results {
		if r.Timing == nil {
			row = append(row, "")
			continue
		}
		timed = true
		row = append(row, fmt.Sprintf("%.0f", r.Timing.Decisions))
	}
	if timed {
		t.Row(row...)
	}
	if err := t.Write(w, color); err != nil {
		return err
	}
	if len(cmp.Best) > 0 {
		fmt.Fprintln(w, "\n* the best")
	}
	return c.againstBaseline(w, color, cmp)
}

// againstBaseline prints the change to the baseline, in per cent.
func (c *cli) againstBaseline(w io.Writer, color bool, cmp *sim.Comparison) error {
	var base *sim.Result
	columns := []string{"AGAINST " + cmp.Baseline}
	for _, r := range cmp.Results {
		if r.Name == cmp.Baseline {
			base = r
		} else {
			columns = append(columns, ">"+r.Name)
		}
	}
	if base == nil || len(columns) == 1 {
		return nil
	}
	t := text.NewTable(columns...)
	for _, m := range sim.Measures() {
		was, ok := m.Of(base)
		if !ok || was == 0 {
			continue
		}
		row := []any{m.Title}
		for _, r := range cmp.Results {
			if r == base {
				continue
			}
			if v, ok := m.Of(r); ok {
				cell := text.Cell{Text: fmt.Sprintf("%+.1f %%", 100*(v-was)/was)}
				switch {
				case v != was && (v > was) == m.More:
					cell.Color = text.Green
				case v != was:
					cell.Color = text.Red
				}
				row = append(row, cell)
			} else {
				row = append(row, "")
			}
		}
		t.Row(row...)
	}
	fmt.Fprintln(w)
	return t.Write(w, color)
}
