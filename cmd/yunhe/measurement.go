package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	measurementv1 "yunhe.dev/yunhe/gen/yunhe/measurement/v1"
	"yunhe.dev/yunhe/internal/core"
)

func measurementCommand(c *cli) *cobra.Command {
	return group("measurement", groupNetwork, "What centers are, do and reach: indicators, and the benchmark",
		measurementShowCommand(c), measurementCompareCommand(c), measurementRunCommand(c), measurementListCommand(c), measurementDescribeCommand(c),
		measurementDecideCommand(c, true), measurementDecideCommand(c, false), measurementIndicatorsCommand(c), measurementSettingsCommand(c), measurementScheduleCommand(c), measurementNodesCommand(c))
}

// scheme is the indicators by ID, with where each stands.
type scheme struct {
	list []*measurementv1.Indicator
	by   map[string]*measurementv1.Indicator
}

func readScheme(ctx context.Context, a *api) (scheme, error) {
	res, err := a.measurement.ListIndicators(ctx, &measurementv1.ListIndicatorsRequest{})
	if err != nil {
		return scheme{}, err
	}
	s := scheme{res.GetIndicators(), map[string]*measurementv1.Indicator{}}
	for _, x := range s.list {
		s.by[x.GetIndicatorId()] = x
	}
	return s, nil
}

func (s scheme) title(id string) string {
	if x := s.by[id]; x.GetTitle() != "" {
		return x.GetTitle()
	}
	return id
}

// amount is a number with its unit, as people read it.
func (s scheme) amount(id string, v float64) string {
	switch unit := s.by[id].GetUnit(); unit {
	case "bytes":
		return text.Bytes(int64(v))
	case "ratio":
		return strconv.FormatFloat(100*v, 'f', 1, 64) + "%"
	case "":
		return figure(v)
	default:
		return figure(v) + " " + unit
	}
}

// figure is a number with about four digits.
func figure(v float64) string {
	switch abs := max(v, -v); {
	case abs == 0 || abs >= 1000 && abs < 1e15:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 10 && abs < 1000:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

func measurementShowCommand(c *cli) *cobra.Command {
	var nodes bool
	cmd := &cobra.Command{
		Use: "show CENTER", Short: "Show what is known of a center, with where each figure is from",
		Args: takes(1, 1, "the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			s, err := readScheme(cmd.Context(), a)
			if err != nil {
				return err
			}
			m, err := a.measurement.GetMeasurement(cmd.Context(), &measurementv1.GetMeasurementRequest{AiCenterId: args[0], Nodes: nodes})
			if err != nil {
				return err
			}
			return c.print(result{msg: m, names: []string{m.GetAiCenterId()}, print: func(w io.Writer, color bool) error { return c.showMeasurement(w, color, s, m) }})
		},
	}
	cmd.Flags().BoolVar(&nodes, "nodes", false, "also each node")
	return cmd
}

func (c *cli) showMeasurement(w io.Writer, color bool, s scheme, m *measurementv1.Measurement) error {
	var f text.Facts
	f.Add("Center", m.GetAiCenterId())
	f.Add("Name", m.GetName())
	factor := "none"
	if m.GetPerformance() > 0 {
		factor = fmt.Sprintf("%d, %s (1000 is the reference machine)", m.GetPerformance(), m.GetPerformanceFrom())
	}
	f.Add("Factor in use", factor)
	if err := f.Write(w, color); err != nil {
		return err
	}
	for _, kind := range []measurementv1.IndicatorKind{measurementv1.IndicatorKind_INDICATOR_KIND_STATIC, measurementv1.IndicatorKind_INDICATOR_KIND_DYNAMIC,
		measurementv1.IndicatorKind_INDICATOR_KIND_COMBINED} {
		t := text.NewTable(strings.ToUpper(enumName(kind.String(), "INDICATOR_KIND_")), "OF", ">VALUE", "ORIGIN", "WHEN")
		for _, v := range m.GetValues() {
			if s.by[v.GetIndicatorId()].GetKind() != kind {
				continue
			}
			value := v.GetText()
			if value == "" {
				value = s.amount(v.GetIndicatorId(), v.GetNumber())
			}
			t.Row(s.title(v.GetIndicatorId()), orDash(joinNonEmpty(" ", v.GetNode(), v.GetPart())), value, enumName(v.GetOrigin().String(), "ORIGIN_"), text.Ago(c.now(), v.GetAt().AsTime()))
		}
		if t.Len() > 0 {
			fmt.Fprintln(w)
			if err := t.Write(w, color); err != nil {
				return err
			}
		}
	}
	if len(m.GetShares()) > 0 {
		fmt.Fprintln(w)
		t := text.NewTable("MEASURED FACTOR", ">VALUE", ">REFERENCE", ">WEIGHT", ">SCORE")
		for _, x := range m.GetShares() {
			each := ""
			if x.GetPerCore() {
				each = " a core"
			}
			t.Row(s.title(x.GetIndicatorId()), s.amount(x.GetIndicatorId(), x.GetValue())+each, figure(x.GetReference()), x.GetWeight(), x.GetScore())
		}
		if err := t.Write(w, color); err != nil {
			return err
		}
	}
	for i, n := range m.GetNotes() {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, "Note: "+text.Clean(n))
	}
	return nil
}

func measurementCompareCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "compare CENTER CENTER...", Short: "Show centers side by side, each beside the first",
		Args: takes(2, 8, "two to eight IDs of centers"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			s, err := readScheme(cmd.Context(), a)
			if err != nil {
				return err
			}
			res, err := a.measurement.CompareMeasurements(cmd.Context(), &measurementv1.CompareMeasurementsRequest{AiCenterIds: args})
			if err != nil {
				return err
			}
			columns := []string{"INDICATOR"}
			for i, id := range res.GetAiCenterIds() {
				columns = append(columns, ">"+strings.ToUpper(id))
				if i > 0 {
					columns = append(columns, ">RATIO")
				}
			}
			t := text.NewTable(columns...)
			for _, r := range res.GetRows() {
				row := []any{joinNonEmpty(" ", s.title(r.GetIndicatorId()), r.GetPart())}
				for i, v := range r.GetValues() {
					value, ratio := "-", "-"
					if v.GetKnown() {
						value = s.amount(r.GetIndicatorId(), v.GetNumber())
					}
					if v.GetRatioPermille() > 0 {
						ratio = strconv.FormatFloat(float64(v.GetRatioPermille())/1000, 'f', 2, 64)
					}
					if row = append(row, value); i > 0 {
						row = append(row, ratio)
					}
				}
				t.Row(row...)
			}
			return c.print(result{msg: res, print: t.Write})
		},
	}
}

func measurementRunCommand(c *cli) *cobra.Command {
	var wait, devices bool
	req := &measurementv1.RunMeasurementRequest{}
	cmd := &cobra.Command{
		Use: "run CENTER", Short: "Measure a center with the benchmark, as a job",
		Long: `Sends the benchmark to a center as an ordinary job of the platform's tenant, on
the largest specification that is free there. It measures processor, memory, disk
and network in about 25 seconds, or with --devices each OpenCL or CUDA device.
The figures are checked against what is physically possible; by the settings the
factor becomes the center's at once, or waits for ` + "`yunhe measurement accept`" + `.`,
		Example: `  yunhe measurement run gz-1 --wait
  yunhe measurement run gz-1 --devices --spec gpu-8`,
		Args: takes(1, 1, "the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			req.AiCenterId = args[0]
			if devices {
				req.Scope = measurementv1.Scope_SCOPE_DEVICES
			}
			if req.RequestId == "" {
				req.RequestId = core.NewID("req")
			}
			r, err := a.measurement.RunMeasurement(cmd.Context(), req)
			if err != nil {
				return err
			}
			if wait {
				if r, err = c.waitForRun(cmd.Context(), a, r); err != nil {
					return err
				}
			}
			if err := c.printRun(cmd.Context(), a, r); err != nil {
				return err
			}
			if wait && r.GetState() != measurementv1.RunState_RUN_STATE_SUCCEEDED {
				return fmt.Errorf("%s is %s: %s", r.GetRunId(), runState(r), r.GetMessage())
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&wait, "wait", false, "wait until it has ended; the exit status says how")
	f.BoolVar(&devices, "devices", false, "measure OpenCL and CUDA devices instead of the machine")
	f.StringVar(&req.Node, "node", "", "the node to measure; a center of several must let jobs choose one")
	f.StringVar(&req.ResourceSpecId, "spec", "", "what it runs on (default: the largest that is free)")
	f.StringVar(&req.ImageId, "image", "", "what it runs in; must have a shell and gzip (default: one usable there)")
	f.StringVar(&req.RequestId, "request-id", "", "start it at most once under this name")
	return cmd
}

// lookRun is how often a run is asked for while somebody waits.
const lookRun = time.Second

func (c *cli) waitForRun(ctx context.Context, a *api, r *measurementv1.MeasurementRun) (*measurementv1.MeasurementRun, error) {
	tick := time.NewTicker(lookRun)
	defer tick.Stop()
	for r.GetEndedAt() == nil {
		select {
		case <-ctx.Done():
			c.note("%s goes on; see it again with `yunhe measurement describe %[1]s`", r.GetRunId())
			return nil, ctx.Err()
		case <-tick.C:
		}
		next, err := a.measurement.GetMeasurementRun(ctx, &measurementv1.GetMeasurementRunRequest{RunId: r.GetRunId()})
		if err != nil {
			return nil, err
		}
		r = next
	}
	return r, nil
}

func runState(r *measurementv1.MeasurementRun) string {
	return enumName(r.GetState().String(), "RUN_STATE_")
}

func decision(r *measurementv1.MeasurementRun) string {
	if r.GetDecision() == 0 {
		return "-"
	}
	return enumName(r.GetDecision().String(), "DECISION_")
}

func (c *cli) printRun(ctx context.Context, a *api, r *measurementv1.MeasurementRun) error {
	s, err := readScheme(ctx, a)
	if err != nil {
		return err
	}
	return c.print(result{msg: r, names: []string{r.GetRunId()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Run", r.GetRunId())
		f.Add("Center", r.GetAiCenterId())
		f.Add("Node", r.GetNode())
		f.Add("Of", enumName(r.GetScope().String(), "SCOPE_"))
		f.Add("State", runState(r))
		f.Add("Message", r.GetMessage())
		f.Add("Job", r.GetJobId())
		f.Add("Ran on", joinNonEmpty(", ", r.GetResourceSpecId(), "image "+r.GetImageId()))
		f.Add("Asked for by", r.GetRequestedBy()+", "+text.Ago(c.now(), r.GetCreatedAt().AsTime()))
		if r.GetCores() > 0 {
			f.Add("Processor", joinNonEmpty(", ", r.GetProcessor(), text.Count(int(r.GetCores()), "core")+" worked"))
		}
		if r.GetPerformance() > 0 {
			f.Add("Factor", fmt.Sprintf("%d (1000 is the reference machine)", r.GetPerformance()))
			f.Add("Decision", joinNonEmpty(" by ", decision(r), r.GetDecidedBy()))
		}
		if err := f.Write(w, color); err != nil {
			return err
		}
		figures := slices.Clone(r.GetFigures())
		at := map[string]int{}
		for i, x := range s.list {
			at[x.GetIndicatorId()] = i
		}
		slices.SortStableFunc(figures, func(x, y *measurementv1.Figure) int {
			return cmp.Compare(at[x.GetIndicatorId()], at[y.GetIndicatorId()])
		})
		t := text.NewTable("FIGURE", "OF", ">VALUE")
		for _, x := range figures {
			t.Row(s.title(x.GetIndicatorId()), orDash(x.GetPart()), s.amount(x.GetIndicatorId(), x.GetNumber()))
		}
		if t.Len() > 0 {
			fmt.Fprintln(w)
			if err := t.Write(w, color); err != nil {
				return err
			}
		}
		for i, n := range r.GetNotes() {
			if i == 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintln(w, "Note: "+text.Clean(n))
		}
		return nil
	}})
}

func measurementListCommand(c *cli) *cobra.Command {
	var p paging
	var center string
	cmd := &cobra.Command{
		Use: "list", Short: "List runs of the benchmark, newest first",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			runs, next, err := pages(p, func(size int32, token string) ([]*measurementv1.MeasurementRun, string, error) {
				res, err := a.measurement.ListMeasurementRuns(cmd.Context(), &measurementv1.ListMeasurementRunsRequest{PageSize: size, PageToken: token, AiCenterId: center})
				return res.GetRuns(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(runs))
			t := text.NewTable("RUN", "CENTER", "OF", "STATE", ">FACTOR", "DECISION", "BY", "WHEN", "MESSAGE")
			for i, r := range runs {
				names[i] = r.GetRunId()
				factor := "-"
				if r.GetPerformance() > 0 {
					factor = strconv.FormatInt(r.GetPerformance(), 10)
				}
				t.Row(r.GetRunId(), r.GetAiCenterId(), enumName(r.GetScope().String(), "SCOPE_"), runState(r), factor, decision(r), r.GetRequestedBy(),
					text.Ago(c.now(), r.GetCreatedAt().AsTime()), orDash(r.GetMessage()))
			}
			err = c.print(result{msg: &measurementv1.ListMeasurementRunsResponse{Runs: runs, NextPageToken: next}, names: names, print: func(w io.Writer, color bool) error {
				if len(runs) == 0 {
					c.note("no center was measured; `yunhe measurement run CENTER` measures one")
					return nil
				}
				return t.Write(w, color)
			}})
			c.noteMore(len(runs), next)
			return err
		},
	}
	cmd.Flags().StringVar(&center, "center", "", "only runs of this center")
	pageFlags(cmd, &p, 50)
	return cmd
}

func measurementDescribeCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "describe RUN", Short: "Show a run of the benchmark with its figures",
		Args: takes(1, 1, "the ID of a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			r, err := a.measurement.GetMeasurementRun(cmd.Context(), &measurementv1.GetMeasurementRunRequest{RunId: args[0]})
			if err != nil {
				return err
			}
			return c.printRun(cmd.Context(), a, r)
		},
	}
}

func measurementDecideCommand(c *cli, accept bool) *cobra.Command {
	use, short := "accept RUN", "Make the factor of a run the center's"
	if !accept {
		use, short = "reject RUN", "Do not use the factor of a run"
	}
	return &cobra.Command{
		Use: use, Short: short,
		Args: takes(1, 1, "the ID of a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			r, err := a.measurement.DecideMeasurementRun(cmd.Context(), &measurementv1.DecideMeasurementRunRequest{RunId: args[0], Accept: accept})
			if err != nil {
				return err
			}
			return c.print(result{msg: r, names: []string{r.GetRunId()}, print: func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintf(w, "%s  %s\n", r.GetRunId(), decision(r))
				return err
			}})
		},
	}
}

func measurementIndicatorsCommand(c *cli) *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use: "indicators", Short: "List the indicators with their kind, unit and source",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := enumFlag("--kind", kind, measurementv1.IndicatorKind_value, "INDICATOR_KIND_")
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			s, err := readScheme(cmd.Context(), a)
			if err != nil {
				return err
			}
			out := &measurementv1.ListIndicatorsResponse{}
			var names []string
			t := text.NewTable("INDICATOR", "TITLE", "中文", "KIND", "DOMAIN", "ASPECT", "UNIT", "SOURCE", "CLAUSE")
			for _, x := range s.list {
				if want != 0 && int32(x.GetKind()) != want {
					continue
				}
				out.Indicators, names = append(out.Indicators, x), append(names, x.GetIndicatorId())
				t.Row(x.GetIndicatorId(), x.GetTitle(), x.GetTitleZh(), enumName(x.GetKind().String(), "INDICATOR_KIND_"), enumName(x.GetDomain().String(), "DOMAIN_"),
					enumName(x.GetAspect().String(), "ASPECT_"), orDash(x.GetUnit()), x.GetSource(), x.GetClause())
			}
			return c.print(result{msg: out, names: names, print: t.Write})
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "only these: static, dynamic, combined")
	return cmd
}

func measurementSettingsCommand(c *cli) *cobra.Command {
	var policy string
	var onJoin bool
	var days int32
	var weights []string
	cmd := &cobra.Command{
		Use: "settings", Short: "Show or change when centers are measured and what becomes of it",
		Example: `  yunhe measurement settings --policy confirm --on-join --every-days 30
  yunhe measurement settings --weight compute.integer.all=8000:6 --weight memory.bandwidth=5000:4`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			set, err := a.measurement.GetMeasurementSettings(cmd.Context(), &measurementv1.GetMeasurementSettingsRequest{})
			if err != nil {
				return err
			}
			next := proto.CloneOf(set)
			if n, err := enumFlag("--policy", policy, measurementv1.Policy_value, "POLICY_"); err != nil {
				return err
			} else if n != 0 {
				next.Policy = measurementv1.Policy(n)
			}
			if cmd.Flags().Changed("on-join") {
				next.OnJoin = onJoin
			}
			if cmd.Flags().Changed("every-days") {
				next.EveryDays = days
			}
			if len(weights) > 0 {
				if next.Weights, err = readWeights(weights); err != nil {
					return err
				}
			}
			if !proto.Equal(set, next) {
				if set, err = a.measurement.UpdateMeasurementSettings(cmd.Context(), &measurementv1.UpdateMeasurementSettingsRequest{Settings: next}); err != nil {
					return err
				}
			}
			s, err := readScheme(cmd.Context(), a)
			if err != nil {
				return err
			}
			return c.print(result{msg: set, print: func(w io.Writer, color bool) error { return printSettings(w, color, s, set) }})
		},
	}
	f := cmd.Flags()
	f.StringVar(&policy, "policy", "", "what becomes of a factor: automatic (used at once) or confirm (somebody accepts it)")
	f.BoolVar(&onJoin, "on-join", false, "measure a center that never was, once it is idle")
	f.Int32Var(&days, "every-days", 0, "measure again after so many days, once idle; 0: never")
	f.StringArrayVar(&weights, "weight", nil, "replace all weights: INDICATOR=REFERENCE:WEIGHT (repeatable)")
	return cmd
}

func measurementScheduleCommand(c *cli) *cobra.Command {
	var hours, atOnce int32
	cmd := &cobra.Command{
		Use: "schedule CENTER", Short: "Show or change when the nodes of a center are measured",
		Long: `Measures each node of a center once in an interval, as a job of the lowest priority.
No node is begun while work waits that could run at the center; one that does not
start within five minutes gives way and is tried later.`,
		Example: `  yunhe measurement schedule gz-1 --every-hours 168 --at-once 2
  yunhe measurement schedule gz-1 --every-hours 0      # no more`,
		Args: takes(1, 1, "the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			sch, err := a.measurement.GetNodeSchedule(cmd.Context(), &measurementv1.GetNodeScheduleRequest{AiCenterId: args[0]})
			if err != nil {
				return err
			}
			next := proto.CloneOf(sch)
			if cmd.Flags().Changed("every-hours") {
				next.IntervalHours = hours
			}
			if cmd.Flags().Changed("at-once") {
				next.AtOnce = atOnce
			}
			if !proto.Equal(sch, next) {
				if sch, err = a.measurement.UpdateNodeSchedule(cmd.Context(), &measurementv1.UpdateNodeScheduleRequest{Schedule: next}); err != nil {
					return err
				}
			}
			return c.print(result{msg: sch, names: []string{sch.GetAiCenterId()}, print: func(w io.Writer, color bool) error {
				var f text.Facts
				f.Add("Center", sch.GetAiCenterId())
				each := "not measured by a schedule"
				if sch.GetIntervalHours() > 0 {
					each = "every " + text.Count(int(sch.GetIntervalHours()), "hour") + ", " + strconv.Itoa(int(sch.GetAtOnce())) + " at once"
				}
				f.Add("Each node", each)
				f.Add("Held by", sch.GetMessage())
				if sch.GetVersion() > 0 {
					f.Add("Set by", sch.GetUpdatedBy()+", "+text.Ago(c.now(), sch.GetUpdatedAt().AsTime()))
				}
				return f.Write(w, color)
			}})
		},
	}
	cmd.Flags().Int32Var(&hours, "every-hours", 0, "measure each node once in so many hours, 1 to 8760; 0: never")
	cmd.Flags().Int32Var(&atOnce, "at-once", 1, "how many nodes at the same time, 1 to 16")
	return cmd
}

func measurementNodesCommand(c *cli) *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "nodes CENTER", Short: "List the nodes of a center with when each was measured and is due",
		Args: takes(1, 1, "the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			nodes, next, err := pages(p, func(size int32, token string) ([]*measurementv1.MeasuredNode, string, error) {
				res, err := a.measurement.ListMeasuredNodes(cmd.Context(), &measurementv1.ListMeasuredNodesRequest{AiCenterId: args[0], PageSize: size, PageToken: token})
				return res.GetNodes(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(nodes))
			t := text.NewTable("NODE", "MEASURED", ">FACTOR", "DUE", ">FAILURES", "RUN", "MESSAGE")
			for i, n := range nodes {
				names[i] = n.GetNode()
				at, factor, due := "never", "-", "-"
				if n.GetMeasuredAt() != nil {
					at = text.Ago(c.now(), n.GetMeasuredAt().AsTime())
				}
				if n.GetPerformance() > 0 {
					factor = strconv.FormatInt(n.GetPerformance(), 10)
				}
				switch {
				case n.GetOpen():
					due = "being measured"
				case n.GetDueAt() == nil:
				case n.GetDueAt().AsTime().After(c.now()):
					due = "in " + text.Duration(n.GetDueAt().AsTime().Sub(c.now()))
				default:
					due = "now"
				}
				t.Row(n.GetNode(), at, factor, due, n.GetFailures(), orDash(n.GetRunId()), orDash(n.GetMessage()))
			}
			err = c.print(result{msg: &measurementv1.ListMeasuredNodesResponse{Nodes: nodes, NextPageToken: next}, names: names, print: func(w io.Writer, color bool) error {
				if len(nodes) == 0 {
					c.note("center %s reports no nodes", args[0])
					return nil
				}
				return t.Write(w, color)
			}})
			c.noteMore(len(nodes), next)
			return err
		},
	}
	pageFlags(cmd, &p, 50)
	return cmd
}

func readWeights(list []string) ([]*measurementv1.Weight, error) {
	var out []*measurementv1.Weight
	for _, arg := range list {
		id, rest, _ := strings.Cut(arg, "=")
		reference, weight, _ := strings.Cut(rest, ":")
		r, err1 := strconv.ParseFloat(reference, 64)
		n, err2 := strconv.ParseInt(weight, 10, 64)
		if id == "" || err1 != nil || err2 != nil {
			return nil, usagef("--weight: want INDICATOR=REFERENCE:WEIGHT such as memory.bandwidth=5000:4, got %q", arg)
		}
		out = append(out, &measurementv1.Weight{IndicatorId: id, Reference: r, Weight: n})
	}
	return out, nil
}

func printSettings(w io.Writer, color bool, s scheme, set *measurementv1.MeasurementSettings) error {
	var f text.Facts
	f.Add("Policy", enumName(set.GetPolicy().String(), "POLICY_"))
	f.Add("On joining", yesNo(set.GetOnJoin()))
	again := "never"
	if set.GetEveryDays() > 0 {
		again = "after " + text.Count(int(set.GetEveryDays()), "day") + ", once idle"
	}
	f.Add("Again", again)
	if err := f.Write(w, color); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t := text.NewTable("INDICATOR", "TITLE", ">REFERENCE", ">WEIGHT")
	for _, x := range set.GetWeights() {
		each := ""
		if x.GetPerCore() {
			each = " a core"
		}
		t.Row(x.GetIndicatorId(), s.title(x.GetIndicatorId()), s.amount(x.GetIndicatorId(), x.GetReference())+each, x.GetWeight())
	}
	return t.Write(w, color)
}
