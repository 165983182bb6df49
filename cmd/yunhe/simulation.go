package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	simulationsv1 "yunhe.dev/yunhe/gen/yunhe/simulations/v1"
	"yunhe.dev/yunhe/internal/sim"
	"yunhe.dev/yunhe/internal/sim/report"
)

func simulationCommand(c *cli) *cobra.Command {
	return group("simulation", groupJobs, "Play scheduling on the platform and compare policies",
		simulationStartCommand(c), simulationListCommand(c), simulationShowCommand(c), simulationWaitCommand(c), simulationReportCommand(c), simulationEventsCommand(c),
		simulationCancelCommand(c), simulationDeleteCommand(c))
}

func simulationStartCommand(c *cli) *cobra.Command {
	req := &simulationsv1.StartSimulationRequest{}
	var since, nodes, jobsFile string
	var most int32
	var list []string
	var wait bool
	cmd := &cobra.Command{
		Use: "start", Short: "Play the platform's jobs, files, or made-up work",
		Long: `Starts a simulation on the platform. It plays what the platform has and did, with
the jobs you may see; or --nodes and --jobs, files as for "yunhe sim run" (8 MiB
together); or --generate, what a recipe makes up.

--policy is "live" (what decides now), a policy kept as data (POLICY or
POLICY@VERSION; drafts too), the file of a policy document, or a preset or weights as for
"yunhe sim run". Give it again to compare. A name that is a preset is that.`,
		Example: `  yunhe simulation start --since 7d --policy live --policy gold@3 --policy new.yaml --wait
  yunhe simulation start --generate centers=20,jobs=2000,load=1.1 --policy balanced --policy lowest-cost`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case nodes != "":
				f := &simulationsv1.SimulationFiles{NodesName: filepath.Base(nodes)}
				var err error
				if f.Nodes, err = os.ReadFile(nodes); err != nil {
					return err
				}
				if jobsFile != "" && jobsFile != nodes {
					f.JobsName = filepath.Base(jobsFile)
					if f.Jobs, err = os.ReadFile(jobsFile); err != nil {
						return err
					}
				}
				req.Files = f
			case jobsFile != "":
				return usagef("--jobs needs --nodes")
			case req.Recipe == "":
				at, err := c.parseTime("--since", since)
				if err != nil {
					return err
				}
				req.Platform = &simulationsv1.SimulationPlatform{SinceSeconds: max(int64(c.now().Sub(at.AsTime()).Seconds()), 1), Jobs: most}
			}
			for _, text := range list {
				p, err := c.comparedPolicy(text, req.Platform != nil || nodes != "")
				if err != nil {
					return err
				}
				req.Policies = append(req.Policies, p)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			x, err := a.simulations.StartSimulation(cmd.Context(), req)
			if err != nil {
				return err
			}
			if !wait {
				return c.printSimulations([]*simulationsv1.Simulation{x}, x)
			}
			return c.waitSimulation(cmd.Context(), a, x.GetSimulationId())
		},
	}
	f := cmd.Flags()
	f.StringVar(&since, "since", "168h", "the platform's jobs submitted since: a time, a date, or how long ago (2h, 7d)")
	f.Int32Var(&most, "most", 0, "the latest of them, at most 20,000 (0: 5,000)")
	f.StringVar(&nodes, "nodes", "", "play this file with nodes or centers")
	f.StringVar(&jobsFile, "jobs", "", "file with jobs; without it they are in that of --nodes")
	f.StringVar(&req.Recipe, "generate", "", "make up what is played, such as centers=20,jobs=2000,load=1.1")
	f.StringArrayVar(&list, "policy", nil, "a policy to compare (repeatable)")
	f.StringArrayVar(&req.Queues, "queue", nil, "order and settings of the queue (repeatable)")
	f.StringVar(&req.Title, "title", "", "a title")
	f.StringVar(&req.Baseline, "baseline", "", "name of the result to set the others against")
	f.Uint64Var(&req.Seed, "seed", 1, "seed of what is drawn")
	f.Float64Var(&req.Load, "load", 0, "change the times of arrival so that the jobs ask for so many times the cards")
	f.Float64Var(&req.Speed, "speed", 0, "simulated seconds that pass in one (0: as fast as it goes)")
	f.StringVar(&req.RequestId, "request-id", "", "makes the call safe to repeat")
	f.BoolVar(&wait, "wait", false, "wait until it has ended, and print what it came to")
	return cmd
}

// comparedPolicy reads a policy as --policy names it.
func (c *cli) comparedPolicy(s string, centers bool) (*simulationsv1.SimulationPolicy, error) {
	if s == "live" {
		return &simulationsv1.SimulationPolicy{InForce: true}, nil
	}
	if isDocument(s) {
		d, err := c.readPolicy(s)
		if err != nil {
			return nil, err
		}
		return &simulationsv1.SimulationPolicy{Document: d}, nil
	}
	for _, centers := range []bool{true, false} {
		if _, err := sim.ParsePolicies([]string{s}, centers); err == nil {
			return &simulationsv1.SimulationPolicy{Preset: s}, nil
		}
	}
	id, version, pinned := strings.Cut(s, "@")
	if !centers || strings.ContainsAny(id, "=,:") {
		return &simulationsv1.SimulationPolicy{Preset: s}, nil // the server says what is wrong with it
	}
	p := &simulationsv1.SimulationPolicy{PolicyId: id}
	if pinned {
		n, err := strconv.ParseInt(version, 10, 64)
		if err != nil || n < 1 {
			return nil, usagef("--policy: want POLICY@VERSION, got %q", s)
		}
		p.Version = n
	}
	return p, nil
}

// isDocument reports whether a name is that of a policy's file.
func isDocument(s string) bool {
	switch strings.ToLower(filepath.Ext(s)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

func simulationState(x *simulationsv1.Simulation) text.Cell {
	cell := text.Cell{Text: enumName(x.GetState().String(), "SIMULATION_STATE_"), Color: text.Yellow}
	switch x.GetState() {
	case simulationsv1.SimulationState_SIMULATION_STATE_DONE:
		cell.Color = text.Green
	case simulationsv1.SimulationState_SIMULATION_STATE_FAILED, simulationsv1.SimulationState_SIMULATION_STATE_INTERRUPTED:
		cell.Color = text.Red
	case simulationsv1.SimulationState_SIMULATION_STATE_RUNNING:
		cell.Text += fmt.Sprintf(" %d%%", x.GetProgressPermille()/10)
	}
	return cell
}

func (c *cli) printSimulations(list []*simulationsv1.Simulation, msg any) error {
	names := make([]string, len(list))
	for i, x := range list {
		names[i] = x.GetSimulationId()
	}
	return c.print(result{msg: msg, names: names, print: func(w io.Writer, color bool) error {
		columns := []string{"SIMULATION", "STATE", "OF", ">PLACES", ">JOBS", "COMPARED", "CREATED", "TITLE"}
		if c.wide() {
			columns = append(columns, "TENANT", "USER", "MESSAGE")
		}
		t := text.NewTable(columns...)
		for _, x := range list {
			compared := strings.Join(x.GetCompared(), ", ")
			if !c.wide() {
				compared = text.Cut(compared, 40)
			}
			row := []any{x.GetSimulationId(), simulationState(x), x.GetSource(), x.GetPlaces(), x.GetJobs(), compared, c.ago(x.GetCreatedAt()), orDash(x.GetTitle())}
			if c.wide() {
				row = append(row, x.GetTenantId(), x.GetUserId(), orDash(x.GetMessage()))
			}
			t.Row(row...)
		}
		return t.Write(w, color)
	}})
}

func simulationListCommand(c *cli) *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "list", Short: "List simulations, latest first", Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			list, next, err := pages(p, func(size int32, token string) ([]*simulationsv1.Simulation, string, error) {
				res, err := a.simulations.ListSimulations(cmd.Context(), &simulationsv1.ListSimulationsRequest{PageSize: size, PageToken: token})
				return res.GetSimulations(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			if len(list) == 0 && c.forPeople() {
				c.note("no simulations; `yunhe simulation start` starts one")
				return nil
			}
			c.noteMore(len(list), next)
			return c.printSimulations(list, &simulationsv1.ListSimulationsResponse{Simulations: list, NextPageToken: next})
		},
	}
	pageFlags(cmd, &p, 50)
	return cmd
}

func simulationShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show SIMULATION", Short: "Show a simulation with what it came to", Args: takes(1, 1, "the ID of a simulation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			x, err := a.simulations.GetSimulation(cmd.Context(), &simulationsv1.GetSimulationRequest{SimulationId: args[0]})
			if err != nil {
				return err
			}
			return c.printSimulation(x)
		},
	}
}

// printSimulation prints one, with a row for each measure.
func (c *cli) printSimulation(x *simulationsv1.Simulation) error {
	return c.print(result{msg: x, names: []string{x.GetSimulationId()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Simulation", x.GetSimulationId())
		f.Add("State", simulationState(x).Text)
		f.Add("Of", fmt.Sprintf("%s: %d places, %d jobs", x.GetSource(), x.GetPlaces(), x.GetJobs()))
		if x.GetTitle() != "" {
			f.Add("Title", x.GetTitle())
		}
		if x.GetMessage() != "" {
			f.Add("Message", x.GetMessage())
		}
		if err := f.Write(w, color); err != nil || len(x.GetMeasures()) == 0 {
			return err
		}
		columns := []string{"MEASURE"}
		for _, name := range x.GetCompared() {
			columns = append(columns, ">"+name)
		}
		t := text.NewTable(columns...)
		for _, m := range x.GetMeasures() {
			like := sim.Measure{ID: m.GetMeasureId(), Title: m.GetTitle(), Unit: m.GetUnit()}
			cells := map[string]any{}
			for _, g := range m.GetFigures() {
				cell := text.Cell{Text: report.Number(like, g.GetValue())}
				if g.GetBest() {
					cell.Text, cell.Color = cell.Text+" *", text.Green
				}
				cells[g.GetName()] = cell
			}
			row := []any{report.Title(like)}
			for _, name := range x.GetCompared() {
				if cells[name] == nil {
					cells[name] = ""
				}
				row = append(row, cells[name])
			}
			t.Row(row...)
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		return t.Write(w, color)
	}})
}

func simulationWaitCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "wait SIMULATION", Short: "Wait until a simulation has ended", Args: takes(1, 1, "the ID of a simulation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			return c.waitSimulation(cmd.Context(), a, args[0])
		},
	}
}

// waitSimulation follows a simulation to its end; one that is not done is a
// failure.
func (c *cli) waitSimulation(ctx context.Context, a *api, id string) error {
	var last *simulationsv1.Simulation
	stream, err := a.simulations.WatchSimulation(ctx, &simulationsv1.WatchSimulationRequest{SimulationId: id})
	if err != nil {
		return err
	}
	defer stream.Close()
	said := ""
	for stream.Receive() {
		last = stream.Msg().GetSimulation()
		if line := simulationState(last).Text; line != said {
			said = line
			c.note("%s %s", id, line)
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if last == nil {
		return errors.New("the simulation was deleted")
	}
	if err := c.printSimulation(last); err != nil {
		return err
	}
	if last.GetState() != simulationsv1.SimulationState_SIMULATION_STATE_DONE {
		return exitStatus(exitFailed)
	}
	return nil
}

func simulationReportCommand(c *cli) *cobra.Command {
	req := &simulationsv1.GetSimulationReportRequest{}
	var out string
	cmd := &cobra.Command{
		Use: "report SIMULATION", Short: "Write the report: all figures as JSON, or a page with charts",
		Example: "  yunhe simulation report simulation_01J9Z3Y5D8T0M4B6K7N2Q1R0SX --format html --out report.html",
		Args:    takes(1, 1, "the ID of a simulation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Format == "html" && out == "" && c.color(c.out) {
				return usagef("--format html needs --out FILE, or a redirection")
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			req.SimulationId = args[0]
			res, err := a.simulations.GetSimulationReport(cmd.Context(), req)
			if err != nil {
				return err
			}
			if out == "" {
				_, err = c.out.Write(res.GetContent())
				return err
			}
			if err := os.WriteFile(out, res.GetContent(), 0o644); err != nil {
				return err
			}
			c.note("wrote %s", out)
			return nil
		},
	}
	cmd.Flags().StringVar(&req.Format, "format", "json", "json or html")
	cmd.Flags().StringVar(&out, "out", "", "write to this file")
	return cmd
}

func simulationEventsCommand(c *cli) *cobra.Command {
	req := &simulationsv1.ListSimulationEventsRequest{}
	var p paging
	cmd := &cobra.Command{
		Use: "events SIMULATION", Short: "Show what happened, event by event, and why each job went where it did",
		Long: `Lists what happened in one of the results. With --job, the score table of each
decision about it is shown as well.`,
		Example: "  yunhe simulation events simulation_01J9Z3Y5D8T0M4B6K7N2Q1R0SX --of gold@3 --job job_01J9Z3Y5D8T0M4B6K7N2Q1R0SX",
		Args:    takes(1, 1, "the ID of a simulation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			req.SimulationId = args[0]
			cut := false
			list, next, err := pages(p, func(size int32, token string) ([]*simulationsv1.SimulationEvent, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.simulations.ListSimulationEvents(cmd.Context(), req)
				cut = res.GetCut()
				return res.GetEvents(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			c.noteMore(len(list), next)
			if cut && next == "" {
				c.note("more happened than is kept")
			}
			return c.printEvents(list, next, req.JobId != "")
		},
	}
	cmd.Flags().StringVar(&req.Name, "of", "", "the result (default: the first)")
	cmd.Flags().StringVar(&req.JobId, "job", "", "only this job, with its decisions")
	pageFlags(cmd, &p, 100)
	return cmd
}

func (c *cli) printEvents(list []*simulationsv1.SimulationEvent, next string, decisions bool) error {
	return c.print(result{msg: &simulationsv1.ListSimulationEventsResponse{Events: list, NextPageToken: next}, print: func(w io.Writer, color bool) error {
		t := text.NewTable(">SECONDS", "WHAT", "JOB", "WHERE")
		for _, e := range list {
			var places []string
			for _, id := range slices.Sorted(maps.Keys(e.GetPlaces())) {
				if n := e.GetPlaces()[id]; n > 1 {
					id += fmt.Sprintf(" ×%d", n)
				}
				places = append(places, id)
			}
			t.Row(strconv.FormatFloat(e.GetSeconds(), 'f', 3, 64), e.GetWhat(), orDash(e.GetJobId()), orDash(strings.Join(places, ", ")))
		}
		if err := t.Write(w, color); err != nil || !decisions {
			return err
		}
		for _, e := range list {
			if e.GetDecision() == nil {
				continue
			}
			if _, err := fmt.Fprintf(w, "\n%s, %.3f s:\n", text.Paint(e.GetWhat(), text.Bold, color), e.GetSeconds()); err != nil {
				return err
			}
			if err := c.explainDecision(w, color, e.GetDecision()); err != nil {
				return err
			}
		}
		return nil
	}})
}

func simulationCancelCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "cancel SIMULATION", Short: "End a simulation early; what is done of it is kept", Args: takes(1, 1, "the ID of a simulation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			x, err := a.simulations.CancelSimulation(cmd.Context(), &simulationsv1.CancelSimulationRequest{SimulationId: args[0]})
			if err != nil {
				return err
			}
			return c.printSimulations([]*simulationsv1.Simulation{x}, x)
		},
	}
}

func simulationDeleteCommand(c *cli) *cobra.Command {
	return removal{
		use: "delete SIMULATION...", short: "Delete simulations with all that is kept of them",
		long: "Deletes simulations that have ended, with their reports.",
		one:  "simulation", some: "simulations", member: "simulationIds", done: "deleted",
		remove: func(cmd *cobra.Command, a *api, id string) error {
			_, err := a.simulations.DeleteSimulation(cmd.Context(), &simulationsv1.DeleteSimulationRequest{SimulationId: id})
			return err
		},
	}.command(c)
}
