package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	topologyv1 "yunhe.dev/yunhe/gen/yunhe/topology/v1"
)

func topologyCommand(c *cli) *cobra.Command {
	return group("topology", groupNetwork, "How the network hangs together, and how it did",
		topologyShowCommand(c), topologyDescribeCommand(c), topologyHistoryCommand(c), topologyDiffCommand(c), topologyLinkCommand(c), topologyBindingCommand(c))
}

const vertexHelp = `Vertices are named network (the whole), region:NAME, center:ID, node:CENTER:NAME,
card:CENTER/NODE/RESOURCE/INDEX, and registered resources by their ID.`

const atHelp = "as of this time, date, or so long ago, such as 2h (default: now)"

func topologyShowCommand(c *cli) *cobra.Command {
	req := &topologyv1.GetTopologyRequest{}
	var at string
	var dot bool
	cmd := &cobra.Command{
		Use: "show [VERTEX]", Short: "Show the network, or a part of it, as a tree with its links",
		Long: "Shows the network, or what is below a vertex, as a tree with its links.\n\n" + vertexHelp + "\n\nWhat does not fit is counted; what is worst stays.",
		Example: `  yunhe topology show --depth 3
  yunhe topology show center:gz-1 --at 2h
  yunhe topology show --dot | dot -Tsvg > network.svg`,
		Args: takes(0, 1, "at most one vertex"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if req.At, err = c.parseTime("--at", at); err != nil {
				return err
			}
			if len(args) > 0 {
				req.RootId = args[0]
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			t, err := a.topology.GetTopology(cmd.Context(), req)
			if err != nil {
				return err
			}
			if dot {
				return writeDot(c.out, t)
			}
			var names []string
			for _, v := range t.GetVertices() {
				names = append(names, v.GetNodeId())
			}
			return c.print(result{msg: t, names: names, print: func(w io.Writer, color bool) error { return c.showTopology(w, color, t) }})
		},
	}
	f := cmd.Flags()
	f.StringVar(&at, "at", "", atHelp)
	f.Int32Var(&req.Depth, "depth", 0, "levels below, 1 to 16 (default 2)")
	f.Int32Var(&req.Limit, "limit", 0, "vertices shown, 1 to 5000 (default 500)")
	f.BoolVar(&dot, "dot", false, "print the graph for Graphviz")
	return cmd
}

var healthColors = map[topologyv1.Health]text.Color{
	topologyv1.Health_HEALTH_HEALTHY: text.Green, topologyv1.Health_HEALTH_BUSY: text.Cyan, topologyv1.Health_HEALTH_WARNING: text.Yellow,
	topologyv1.Health_HEALTH_DOWN: text.Red, topologyv1.Health_HEALTH_UNKNOWN: text.Magenta, topologyv1.Health_HEALTH_ISOLATED: text.Blue,
}

func healthCell(h topologyv1.Health) text.Cell {
	if h == topologyv1.Health_HEALTH_UNSPECIFIED {
		return text.Cell{Text: "-"}
	}
	return text.Cell{Text: enumName(h.String(), "HEALTH_"), Color: healthColors[h]}
}

// countsText formats "40: 38 healthy, 2 down"; "" of none.
func countsText(n *topologyv1.Counts) string {
	if n.GetTotal() == 0 {
		return ""
	}
	var parts []string
	for _, x := range []struct {
		n    int64
		name string
	}{{n.GetHealthy(), "healthy"}, {n.GetBusy(), "busy"}, {n.GetWarning(), "warning"}, {n.GetDown(), "down"}, {n.GetUnknown(), "unknown"}, {n.GetIsolated(), "isolated"}} {
		if x.n == n.GetTotal() {
			return fmt.Sprintf("%d %s", x.n, x.name)
		}
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.name))
		}
	}
	return fmt.Sprintf("%d: %s", n.GetTotal(), strings.Join(parts, ", "))
}

func (c *cli) showTopology(w io.Writer, color bool, t *topologyv1.Topology) error {
	columns := []string{"VERTEX", "NAME", "HEALTH", "NODES", "CARDS", "SINCE"}
	if c.wide() {
		columns = append(columns, "STATE", "REASON", "REGION")
	}
	table := text.NewTable(columns...)
	kids := map[string][]*topologyv1.Vertex{}
	for _, v := range t.GetVertices()[min(1, len(t.GetVertices())):] {
		kids[v.GetDisplay().GetParentId()] = append(kids[v.GetDisplay().GetParentId()], v)
	}
	var walk func(v *topologyv1.Vertex, lead, branch string)
	walk = func(v *topologyv1.Vertex, lead, branch string) {
		row := []any{lead + branch + v.GetNodeId(), v.GetName(), healthCell(v.GetHealth()), countsText(v.GetNodes()), countsText(v.GetCards()), c.ago(v.GetSince())}
		if c.wide() {
			row = append(row, enumName(v.GetState().String(), "VERTEX_STATE_"), v.GetReason(), v.GetRegion())
		}
		table.Row(row...)
		below := kids[v.GetNodeId()]
		inner := lead
		switch branch {
		case "├ ":
			inner += "│ "
		case "└ ":
			inner += "  "
		}
		for i, k := range below {
			if i < len(below)-1 || len(below) > 0 && v.GetMore() {
				walk(k, inner, "├ ")
			} else {
				walk(k, inner, "└ ")
			}
		}
		if len(below) > 0 && v.GetMore() {
			table.Row(inner+"└ …", " ", " ", countsText(v.GetHiddenNodes()), " ", " ")
		}
	}
	walk(t.GetVertices()[0], "", "")
	if err := table.Write(w, color); err != nil || len(t.GetLinks()) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := c.linkTable(t.GetLinks()).Write(w, color); err != nil {
		return err
	}
	if n := t.GetMoreLinks(); n > 0 {
		c.note("%d more links are not shown; `yunhe topology link list` shows them all", n)
	}
	return nil
}

// writeDot prints the graph in the language of Graphviz.
func writeDot(w io.Writer, t *topologyv1.Topology) error {
	colors := map[topologyv1.Health]string{
		topologyv1.Health_HEALTH_UNSPECIFIED: "#9aa0a6", topologyv1.Health_HEALTH_HEALTHY: "#2e9e6b", topologyv1.Health_HEALTH_BUSY: "#3b82c4", topologyv1.Health_HEALTH_WARNING: "#d9a400",
		topologyv1.Health_HEALTH_DOWN: "#c0392b", topologyv1.Health_HEALTH_UNKNOWN: "#8e6bb0", topologyv1.Health_HEALTH_ISOLATED: "#5f6b7a",
	}
	var b strings.Builder
	b.WriteString("graph network {\n\tnode [shape=box, style=filled, fontcolor=white, fontname=\"sans-serif\"]\n")
	for i, v := range t.GetVertices() {
		name := v.GetName()
		if n := v.GetNodes().GetTotal(); n > 0 {
			name += fmt.Sprintf("\n%d nodes", n)
		}
		fmt.Fprintf(&b, "\t%s [label=%s, fillcolor=%q]\n", dotText(v.GetNodeId()), dotText(name), colors[v.GetHealth()])
		if i > 0 {
			fmt.Fprintf(&b, "\t%s -- %s\n", dotText(v.GetDisplay().GetParentId()), dotText(v.GetNodeId()))
		}
	}
	for _, l := range t.GetLinks() {
		fmt.Fprintf(&b, "\t%s -- %s [style=dashed, constraint=false, color=%q, label=%s]\n", dotText(l.GetFromId()), dotText(l.GetToId()), colors[l.GetHealth()], dotText(l.GetName()))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// dotText quotes for Graphviz, which knows only \" and \n.
func dotText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

func topologyDescribeCommand(c *cli) *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use: "describe VERTEX", Short: "Show one vertex with what is measured of it and its links",
		Long: "Shows one vertex with what is measured of it and its links.\n\n" + vertexHelp,
		Args: takes(1, 1, "a vertex such as center:gz-1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			when, err := c.parseTime("--at", at)
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			v, err := a.topology.GetVertex(cmd.Context(), &topologyv1.GetVertexRequest{NodeId: args[0], At: when})
			if err != nil {
				return err
			}
			return c.print(result{msg: v, names: []string{v.GetNodeId()}, print: func(w io.Writer, color bool) error { return c.describeVertex(w, color, v) }})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", atHelp)
	return cmd
}

func (c *cli) describeVertex(w io.Writer, color bool, v *topologyv1.Vertex) error {
	var f text.Facts
	health := healthCell(v.GetHealth())
	f.Add("Vertex", v.GetNodeId())
	f.Add("Name", v.GetName())
	f.Add("Kind", v.GetKind())
	f.Add("Part of", v.GetDisplay().GetParentId())
	f.AddColor("Health", health.Text, health.Color)
	f.Add("State", strings.TrimPrefix(enumName(v.GetState().String(), "VERTEX_STATE_"), "unspecified"))
	f.Add("Reason", v.GetReason())
	f.Add("Region", v.GetRegion())
	f.Add("Provider", v.GetServiceProvider())
	f.Add("Nodes", countsText(v.GetNodes()))
	f.Add("Cards", countsText(v.GetCards()))
	for _, e := range v.GetEquipment() {
		what := strings.TrimSpace(fmt.Sprintf("%d %s %s", e.GetCount(), e.GetVendor(), e.GetModel()))
		if m := e.GetMemoryBytes(); m > 0 {
			what += " of " + text.Bytes(m)
		}
		f.Add("Equipment", what+" ("+e.GetResource()+")")
	}
	f.Add("Capacity", pairs(v.GetCapacity()))
	f.Add("Labels", pairs(v.GetLabels()))
	f.Add("Since", c.stamp(v.GetSince()))
	f.Add("There since", c.stamp(v.GetFirstSeen()))
	if err := f.Write(w, color); err != nil {
		return err
	}
	t := text.NewTable("MEASURED", ">VALUE", "UNIT", "HEALTH", "BINDING")
	for _, x := range v.GetPerformanceBinding().GetFigures() {
		t.Row(x.GetTitle(), measuredText(x), x.GetUnit(), healthCell(x.GetHealth()), x.GetBindingId())
	}
	for _, t := range []*text.Table{t, c.linkTable(v.GetConnections())} {
		if t.Len() == 0 {
			continue
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := t.Write(w, color); err != nil {
			return err
		}
	}
	return nil
}

// measuredText formats a value with the digits that say something.
func measuredText(x *topologyv1.Figure) string { return strconv.FormatFloat(x.GetValue(), 'g', 4, 64) }

func topologyHistoryCommand(c *cli) *cobra.Command {
	var p paging
	var from, to string
	req := &topologyv1.ListTopologyChangesRequest{NewestFirst: true}
	cmd := &cobra.Command{
		Use: "history [VERTEX]", Short: "List what changed in the network, the last first",
		Long: "Lists what changed in the network, or about a vertex or a link (link:ID), the last first.\n\n" + vertexHelp,
		Example: `  yunhe topology history --from 2h
  yunhe topology history node:gz-1:node-7`,
		Args: takes(0, 1, "at most one vertex"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if req.From, err = c.parseTime("--from", from); err != nil {
				return err
			}
			if req.To, err = c.parseTime("--to", to); err != nil {
				return err
			}
			if len(args) > 0 {
				req.NodeId = args[0]
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			out := &topologyv1.ListTopologyChangesResponse{}
			rows, next, err := pages(p, func(size int32, token string) ([]*topologyv1.TopologyChange, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.topology.ListTopologyChanges(cmd.Context(), req)
				out.HistoryFrom = res.GetHistoryFrom()
				return res.GetChanges(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			out.Changes, out.NextPageToken = rows, next
			err = c.print(result{msg: out, names: changedNames(rows), print: func(w io.Writer, color bool) error {
				if len(rows) == 0 {
					c.note("nothing changed")
					return nil
				}
				return c.changeTable(rows).Write(w, color)
			}})
			c.noteMore(len(rows), next)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "after this time, date, or so long ago, such as 2h")
	f.StringVar(&to, "to", "", "up to this time, date, or so long ago")
	f.StringVar(&req.AiCenterId, "center", "", "only of this center and what is part of it")
	pageFlags(cmd, &p, 100)
	return cmd
}

func topologyDiffCommand(c *cli) *cobra.Command {
	var p paging
	var from, to string
	req := &topologyv1.DiffTopologyRequest{}
	cmd := &cobra.Command{
		Use: "diff --from TIME", Short: "Compare the network at two times",
		Long:    "Compares the network at two times: what is not the same at the second as at the first, whatever happened in between.",
		Example: "  yunhe topology diff --from 24h\n  yunhe topology diff --from 2026-05-01 --to 2026-05-02 --center gz-1",
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				return usagef("--from: say from which time on, such as 24h")
			}
			var err error
			if req.From, err = c.parseTime("--from", from); err != nil {
				return err
			}
			if req.To, err = c.parseTime("--to", to); err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			out := &topologyv1.DiffTopologyResponse{}
			rows, next, err := pages(p, func(size int32, token string) ([]*topologyv1.TopologyChange, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.topology.DiffTopology(cmd.Context(), req)
				if err == nil {
					out = res
				}
				return res.GetChanges(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			out.Changes, out.NextPageToken = rows, next
			err = c.print(result{msg: out, names: changedNames(rows), print: func(w io.Writer, color bool) error {
				if len(rows) > 0 {
					if err := c.changeTable(rows).Write(w, color); err != nil {
						return err
					}
				}
				_, err := fmt.Fprintf(w, "%d added, %d changed, %d removed\n", out.GetAdded(), out.GetChanged(), out.GetRemoved())
				return err
			}})
			c.noteMore(len(rows), next)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "the first time, date, or so long ago, such as 24h")
	f.StringVar(&to, "to", "", "the second time (default: now)")
	f.StringVar(&req.AiCenterId, "center", "", "only of this center and what is part of it")
	pageFlags(cmd, &p, 1000)
	return cmd
}

func changedName(x *topologyv1.TopologyChange) string {
	if x.GetLinkId() != "" {
		return "link:" + x.GetLinkId()
	}
	return x.GetNodeId()
}

func changedNames(rows []*topologyv1.TopologyChange) []string {
	out := make([]string, len(rows))
	for i, x := range rows {
		out[i] = changedName(x)
	}
	return out
}

// shownLabels is how many labels a line of history names.
const shownLabels = 4

// changedFields names what is different; of labels, which.
func changedFields(x *topologyv1.TopologyChange) string {
	fields := slices.Clone(x.GetFields())
	at := slices.Index(fields, "labels")
	if at < 0 {
		return strings.Join(fields, ", ")
	}
	was, is := x.GetBefore().GetLabels(), x.GetAfter().GetLabels()
	names := slices.Concat(slices.Collect(maps.Keys(was)), slices.Collect(maps.Keys(is)))
	slices.Sort(names)
	var out []string
	for _, name := range slices.Compact(names) {
		o, had := was[name]
		n, has := is[name]
		switch {
		case !had:
			out = append(out, "+"+name+"="+n)
		case !has:
			out = append(out, "-"+name)
		case o != n:
			out = append(out, name+"="+o+" → "+n)
		}
	}
	if more := len(out) - shownLabels; more > 0 {
		out = append(out[:shownLabels], fmt.Sprintf("and %d more", more))
	}
	fields[at] = "labels (" + strings.Join(out, ", ") + ")"
	return strings.Join(fields, ", ")
}

func (c *cli) changeTable(rows []*topologyv1.TopologyChange) *text.Table {
	t := text.NewTable("WHEN", "VERTEX", "CHANGE", "STATE", "REASON", "FIELDS")
	colors := map[topologyv1.ChangeKind]text.Color{topologyv1.ChangeKind_CHANGE_KIND_ADDED: text.Green, topologyv1.ChangeKind_CHANGE_KIND_CHANGED: text.Yellow, topologyv1.ChangeKind_CHANGE_KIND_REMOVED: text.Red}
	state := func(r *topologyv1.VertexRecord) string {
		if r == nil || r.GetState() == topologyv1.VertexState_VERTEX_STATE_UNSPECIFIED {
			return "-"
		}
		return enumName(r.GetState().String(), "VERTEX_STATE_")
	}
	for _, x := range rows {
		was, is := state(x.GetBefore()), state(x.GetAfter())
		if was != is && was != "-" && is != "-" {
			is = was + " → " + is
		} else if is == "-" {
			is = was
		}
		t.Row(x.GetAt().AsTime().Format("2006-01-02 15:04:05Z"), changedName(x), text.Cell{Text: enumName(x.GetKind().String(), "CHANGE_KIND_"), Color: colors[x.GetKind()]}, is, orDash(x.GetAfter().GetReason()), orDash(changedFields(x)))
	}
	return t
}
