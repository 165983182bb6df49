package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/availability"
	"yunhe.dev/yunhe/internal/chart"
)

func availabilityCommand(c *cli) *cobra.Command {
	return group("availability", groupHere, "Plan which submodules share a microservice; needs no server",
		availabilityPlanCommand(c), availabilityReproduceCommand(c), availabilityMeasuredCommand(c), availabilityDeployCommand(c), availabilityImageCommand(c))
}

// planOut is how a plan is printed; availability is in per cent.
type planOut struct {
	Method         availability.Method `json:"method"`
	Microservices  int                 `json:"microservices"`
	Availability   float64             `json:"availability"`
	Unavailability float64             `json:"unavailability"`
	Target         float64             `json:"target"`
	Reachable      bool                `json:"reachable"`
	Minimal        bool                `json:"minimal"`
	AtLeast        int                 `json:"at_least"`
	Cost           int64               `json:"cost"`
	Modules        []planModule        `json:"modules"`

	Advice      *planAdvice              `json:"advice,omitempty"`
	Sensitivity []availability.Influence `json:"sensitivity,omitempty"`
	Simulation  *availability.Simulation `json:"simulation,omitempty"`
}

type planModule struct {
	Name          string     `json:"name"`
	Availability  float64    `json:"availability"`
	Instances     int        `json:"instances"`
	Microservices [][]string `json:"microservices"`
}

type planAdvice struct {
	Instances int     `json:"instances"`
	Submodule float64 `json:"submodule"`
}

type planFlags struct {
	file, method, objective string
	target                  float64
	instances, trials       int
	seed                    uint64
	sensitivity, measured   bool
}

func availabilityPlanCommand(c *cli) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use: "plan -f FILE", Short: "Split modules so that a target is reached with the fewest microservices",
		Long: `Reads a system from YAML or JSON and says which submodules to put together.

  modules:
    - name: trading
      instances: 3                  # of each microservice; default: the system's
      cost: 2                       # of one instance, for --objective cost
      submodules:
        - {name: market, availability: 0.995}
        - {name: matching}          # without one: 0.99
  instances: 3                      # one and two backups; this is the default
  target: 0.9999
  common_cause: 0.01                # instances fail together with this probability
  sites:                            # instances are spread over them in turn
    - {name: north, availability: 0.9995}
    - {name: south, availability: 0.999}
  dependencies:                     # only for --method fca
    - {from: trading/market, to: trading/matching, strength: 2}

The plan is exact where it says "minimal"; elsewhere it says how many are needed
at least. If the target cannot be reached it shows the best there is and what
would reach it.`,
		Example: `  yunhe availability plan -f system.yaml --target 0.9999
  yunhe availability plan -f system.yaml --objective cost --instances 5
  yunhe availability plan -f system.yaml --sensitivity --simulate 1000000`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.planAvailability(cmd, f) },
	}
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "file with the system; - reads standard input")
	cmd.Flags().StringVar(&f.method, "method", string(availability.Aware), "aware, or to compare: none, full, fca")
	cmd.Flags().StringVar(&f.objective, "objective", "microservices", "what to have least of: microservices or cost")
	cmd.Flags().Float64Var(&f.target, "target", 0, "availability wanted, such as 0.9999 (default: the file's)")
	cmd.Flags().IntVar(&f.instances, "instances", 0, "instances of each microservice (default: the file's);\nwith --objective cost: the most there may be")
	cmd.Flags().BoolVar(&f.sensitivity, "sensitivity", false, "say which submodules to improve first")
	cmd.Flags().BoolVar(&f.measured, "measured", false, "submodules named like a role of the platform (api, control, reach,\nwatch) are as available as they were measured; asks the server")
	cmd.Flags().IntVar(&f.trials, "simulate", 0, "check the result by this many random trials")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the trials")
	return cmd
}

func (c *cli) planAvailability(cmd *cobra.Command, f planFlags) error {
	switch {
	case f.file == "":
		return usagef("-f FILE is required: the system to plan")
	case f.objective != "microservices" && f.objective != "cost":
		return usagef("--objective must be microservices or cost, got %q", f.objective)
	case f.objective == "cost" && f.method != string(availability.Aware):
		return usagef("--objective cost goes with the method aware only")
	case f.trials < 0 || f.trials > 1e9:
		return usagef("--simulate must be 0 to 1000000000, got %d", f.trials)
	}
	data, err := c.readInput(f.file, availability.MaxFile)
	if err != nil {
		return err
	}
	s, err := availability.Decode(data)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("target") {
		s.Target = f.target
	}
	if cmd.Flags().Changed("instances") {
		s.Instances = f.instances
		for i := range s.Modules {
			s.Modules[i].Instances = f.instances
		}
	}
	if f.measured {
		if err := c.setMeasured(cmd.Context(), s); err != nil {
			return err
		}
	}
	if err := s.Check(); err != nil {
		return err
	}
	var plan *availability.Plan
	if f.objective == "cost" {
		plan, err = availability.Cheapest(s, s.Instances)
	} else {
		plan, err = availability.Make(s, availability.Method(f.method))
	}
	if err != nil {
		return err
	}
	for i := range s.Modules {
		if plan.Method != availability.Clustered {
			s.Modules[i].Instances = plan.Modules[i].Instances
		}
	}
	out := planned(plan)
	if f.sensitivity || f.trials > 0 {
		if plan.Method == availability.Clustered {
			return usagef("--sensitivity and --simulate need a plan by module, which the method fca does not make")
		}
		if f.sensitivity {
			out.Sensitivity = availability.Sensitivity(s, plan)
		}
		if f.trials > 0 {
			sim := availability.Simulate(s, plan, f.trials, f.seed)
			out.Simulation = &sim
		}
	}
	names := make([]string, len(out.Modules))
	for i, m := range out.Modules {
		names[i] = m.Name
	}
	return c.print(result{msg: out, names: names, print: func(w io.Writer, color bool) error { return showPlan(w, color, out) }})
}

// readInput reads a file, or standard input for "-".
func (c *cli) readInput(path string, limit int64) ([]byte, error) {
	in := c.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

func planned(p *availability.Plan) planOut {
	out := planOut{Method: p.Method, Microservices: p.Microservices, Availability: 100 * p.Availability, Unavailability: p.Unavailability, Target: p.Target,
		Reachable: p.Reachable, Minimal: p.Minimal, AtLeast: p.AtLeast, Cost: p.Cost}
	for _, m := range p.Modules {
		out.Modules = append(out.Modules, planModule{m.Name, 100 * m.Availability, m.Instances, m.Microservices})
	}
	if p.Advice != nil {
		out.Advice = &planAdvice{p.Advice.Instances, p.Advice.Submodule}
	}
	return out
}

// rounded is a share in per cent without the digits that multiplying adds.
func rounded(share float64) string { return strconv.FormatFloat(100*share, 'g', 10, 64) + " %" }

func percent(v float64) string { return strconv.FormatFloat(v, 'f', 7, 64) + " %" }

func showPlan(w io.Writer, color bool, p planOut) error {
	var facts text.Facts
	facts.Add("Availability", fmt.Sprintf("%s (down %.4g of the time)", percent(p.Availability), p.Unavailability))
	switch {
	case p.Target == 0:
	case p.Reachable:
		facts.AddColor("Target", percent(100*p.Target)+" reached", text.Green)
	default:
		facts.AddColor("Target", percent(100*p.Target)+" NOT reached: this is the best there is", text.Red)
	}
	n := strconv.Itoa(p.Microservices)
	switch {
	case p.Minimal:
		n += ", proven to be the least"
	case p.Reachable && p.AtLeast > 0 && p.Method == availability.Aware:
		n += fmt.Sprintf("; at least %d are needed", p.AtLeast)
	}
	facts.Add("Microservices", n)
	facts.Add("Cost of all instances", strconv.FormatInt(p.Cost, 10))
	if p.Advice != nil {
		facts.Add("What would reach it", advice(*p.Advice))
	}
	if s := p.Simulation; s != nil {
		verdict := "agrees"
		if !s.Agrees {
			verdict = "does NOT agree"
		}
		facts.Add("Simulated", fmt.Sprintf("down in %.4g of %d trials, 99 %% sure of %.4g to %.4g: %s", s.Down, s.Trials, s.Low, s.High, verdict))
	}
	if err := facts.Write(w, color); err != nil {
		return err
	}
	t := text.NewTable("MODULE", ">AVAILABILITY", ">INSTANCES", "MICROSERVICES")
	for _, m := range p.Modules {
		var groups []string
		for _, g := range m.Microservices {
			groups = append(groups, "["+strings.Join(g, ", ")+"]")
		}
		t.Row(m.Name, percent(m.Availability), m.Instances, strings.Join(groups, " "))
	}
	fmt.Fprintln(w)
	if err := t.Write(w, color); err != nil || len(p.Sensitivity) == 0 {
		return err
	}
	fmt.Fprintln(w)
	t = text.NewTable("IMPROVE FIRST", ">AVAILABILITY", ">IMPORTANCE", ">GAIN IF DOWN HALF AS OFTEN")
	for _, x := range p.Sensitivity[:min(len(p.Sensitivity), 20)] {
		t.Row(x.Module+"/"+x.Submodule, x.Availability, fmt.Sprintf("%.4g", x.Importance), fmt.Sprintf("%.4g", x.Gain))
	}
	return t.Write(w, color)
}

func advice(a planAdvice) string {
	var ways []string
	if a.Instances > 0 {
		ways = append(ways, fmt.Sprintf("%d instances of each microservice", a.Instances))
	}
	if a.Submodule > 0 {
		ways = append(ways, fmt.Sprintf("submodules that are each available %s", percent(100*a.Submodule)))
	}
	if len(ways) == 0 {
		return "neither more instances nor better submodules"
	}
	return strings.Join(ways, ", or ") + ", each submodule a microservice of its own"
}

func availabilityReproduceCommand(c *cli) *cobra.Command {
	var svg string
	cmd := &cobra.Command{
		Use: "reproduce", Short: "Compute the published study anew and set it beside the print",
		Long: `Computes Table 1 and Figures 9 and 10 of the study this planner follows (ten
modules, 24 submodules, availability-aware split) and prints each cell beside
the published one. One published cell is not the optimum; it is marked.`,
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			r, err := availability.Reproduce()
			if err != nil {
				return err
			}
			if svg != "" {
				if err := c.drawFigures(svg, r); err != nil {
					return err
				}
			}
			return c.print(result{msg: r, print: func(w io.Writer, color bool) error { return showReproduction(w, color, r) }})
		},
	}
	cmd.Flags().StringVar(&svg, "svg", "", "also write figure9.svg and figure10.svg into this folder")
	return cmd
}

func showReproduction(w io.Writer, color bool, r *availability.Reproduction) error {
	t := text.NewTable("METHOD", ">TARGET", ">SUBMODULES", ">AVAILABILITY", ">PRINTED", ">MICROSERVICES", "")
	for _, x := range r.Table1 {
		target, said := "-", ""
		if x.Target != nil {
			target = rounded(*x.Target)
		}
		switch {
		case !x.Reachable:
			said = "target not reached"
		case x.Better:
			said = "better than printed"
		}
		t.Row(string(x.Method), target, x.Submodule, strconv.FormatFloat(x.Availability, 'f', 7, 64), strconv.FormatFloat(x.Paper, 'f', 5, 64), x.Microservices, said)
	}
	if err := t.Write(w, color); err != nil {
		return err
	}
	for _, figure := range studyFigures(r) {
		fmt.Fprintf(w, "\n%s (+ not reached)\n", figure.Title)
		columns := []string{figure.X}
		for _, s := range figure.Series {
			columns = append(columns, ">"+s.Name)
		}
		t := text.NewTable(columns...)
		for i, tick := range figure.Ticks {
			row := []any{tick}
			for _, s := range figure.Series {
				n := strconv.FormatFloat(s.Values[i], 'f', -1, 64)
				if s.Hollow[i] {
					n += "+"
				}
				row = append(row, n)
			}
			t.Row(row...)
		}
		if err := t.Write(w, color); err != nil {
			return err
		}
	}
	return nil
}

func studyFigures(r *availability.Reproduction) []*chart.Chart {
	nine := &chart.Chart{Title: "Figure 9: microservices by availability required, 2 backups", X: "availability required", Y: "microservices"}
	for _, t := range availability.PaperTargets {
		nine.Ticks = append(nine.Ticks, rounded(t))
	}
	ten := &chart.Chart{Title: "Figure 10: microservices by backups, 99.9 % required", X: "backups", Y: "microservices"}
	for _, b := range availability.PaperBackups {
		ten.Ticks = append(ten.Ticks, strconv.Itoa(b))
	}
	for _, f := range []struct {
		chart  *chart.Chart
		points []availability.Count
	}{{nine, r.Figure9}, {ten, r.Figure10}} {
		at := map[float64]int{}
		for _, p := range f.points {
			k, ok := at[p.Submodule]
			if !ok {
				k = len(f.chart.Series)
				at[p.Submodule] = k
				f.chart.Series = append(f.chart.Series, chart.Series{Name: "submodules " + strconv.FormatFloat(p.Submodule, 'f', -1, 64)})
			}
			s := &f.chart.Series[k]
			s.Values, s.Hollow = append(s.Values, float64(p.Microservices)), append(s.Hollow, !p.Reachable)
		}
	}
	return []*chart.Chart{nine, ten}
}

func (c *cli) drawFigures(dir string, r *availability.Reproduction) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, figure := range studyFigures(r) {
		path := filepath.Join(dir, []string{"figure9.svg", "figure10.svg"}[i])
		var b strings.Builder
		if err := figure.Write(&b); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			return err
		}
		c.note("wrote %s", path)
	}
	return nil
}
