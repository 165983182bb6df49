package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	monitorv1 "yunhe.dev/yunhe/gen/yunhe/monitor/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

func nodeCommand(c *cli) *cobra.Command {
	return group("node", groupNetwork, "Nodes of centers, as their drivers report them",
		nodeListCommand(c), nodeShowCommand(c), isolateCommand(c, true), restoreCommand(c, true), reclaimCommand(c, true))
}

func nodeListCommand(c *cli) *cobra.Command {
	var p paging
	var center, state, model string
	var labels []string
	cmd := &cobra.Command{
		Use: "list", Short: "List nodes with their state and accelerators",
		Example: `  yunhe node list --center gz-1 --state not-ready
  yunhe node list --model H800 --label rack=7`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := enumFlag("--state", state, registryv1.NodeState_value, "NODE_STATE_")
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			var total int64
			nodes, next, err := pages(p, func(size int32, token string) ([]*registryv1.Node, string, error) {
				res, err := a.registry.ListNodes(cmd.Context(), &registryv1.ListNodesRequest{
					PageSize: size, PageToken: token, AiCenterId: center, State: registryv1.NodeState(want), AcceleratorModel: model, Labels: labels,
				})
				total = res.GetTotal()
				return res.GetNodes(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(nodes))
			for i, n := range nodes {
				names[i] = n.GetAiCenterId() + " " + n.GetName()
			}
			err = c.print(result{
				msg: &registryv1.ListNodesResponse{Nodes: nodes, NextPageToken: next, Total: total}, names: names,
				print: func(w io.Writer, color bool) error {
					if len(nodes) == 0 {
						c.note("no nodes; centers behind drivers report them, `yunhe center list` shows the centers")
						return nil
					}
					return c.nodeTable(nodes).Write(w, color)
				},
			})
			c.noteMore(len(nodes), next)
			return err
		},
	}
	cmd.Flags().StringVar(&center, "center", "", "only nodes of this center")
	cmd.Flags().StringVar(&state, "state", "", "only nodes in this state: ready, not-ready, drained")
	cmd.Flags().StringVar(&model, "model", "", "only nodes with an accelerator of this model, such as H800")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only nodes with this label, NAME or NAME=VALUE (repeatable)")
	pageFlags(cmd, &p, 200)
	return cmd
}

// enumFlag reads the short name of an enumeration's value; "" is 0.
func enumFlag(flag, s string, values map[string]int32, prefix string) (int32, error) {
	if s == "" {
		return 0, nil
	}
	var names []string
	for full, n := range values {
		name := enumName(full, prefix)
		if name == strings.ToLower(s) && n != 0 {
			return n, nil
		}
		if n != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return 0, usagef("%s: want one of %s, got %q", flag, strings.Join(names, ", "), s)
}

func nodeState(n *registryv1.Node) text.Cell {
	color := text.Red
	switch n.GetState() {
	case registryv1.NodeState_NODE_STATE_READY:
		color = text.Green
	case registryv1.NodeState_NODE_STATE_DRAINED:
		color = text.Yellow
	}
	return text.Cell{Text: enumName(n.GetState().String(), "NODE_STATE_"), Color: color}
}

// acceleratorList formats "8 H800, 2 npu".
func acceleratorList(list []*registryv1.Accelerator) string {
	var out []string
	for _, a := range list {
		name := a.GetModel()
		if name == "" {
			name = a.GetResource()
		}
		out = append(out, fmt.Sprintf("%d %s", a.GetCount(), name))
	}
	return strings.Join(out, ", ")
}

func (c *cli) nodeTable(nodes []*registryv1.Node) *text.Table {
	columns := []string{"CENTER", "NODE", "STATE", ">CPU", ">MEMORY", "ACCELERATORS", "CHANGED"}
	if c.wide() {
		columns = append(columns, "ARCHITECTURE", "SYSTEM", "REASON", "LABELS")
	}
	t := text.NewTable(columns...)
	for _, n := range nodes {
		row := []any{n.GetAiCenterId(), n.GetName(), nodeState(n), n.GetCapacity()["cpu"], n.GetCapacity()["memory"], acceleratorList(n.GetAccelerators()), c.ago(n.GetUpdatedAt())}
		if c.wide() {
			row = append(row, n.GetArchitecture(), n.GetOperatingSystem(), n.GetReason(), pairs(n.GetLabels()))
		}
		t.Row(row...)
	}
	return t
}

func nodeShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show CENTER NODE", Short: "Show a node with what it has",
		Args: takes(2, 2, "the ID of a center and the name of one of its nodes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			n, err := a.registry.GetNode(cmd.Context(), &registryv1.GetNodeRequest{AiCenterId: args[0], Name: args[1]})
			if err != nil {
				return err
			}
			return c.print(result{msg: n, names: []string{n.GetAiCenterId() + " " + n.GetName()}, print: func(w io.Writer, color bool) error {
				return c.showNode(w, color, n, presentFigures(cmd.Context(), a, n.GetAiCenterId(), n.GetName()))
			}})
		},
	}
}

func (c *cli) showNode(w io.Writer, color bool, n *registryv1.Node, now *monitorv1.Figures) error {
	var f text.Facts
	state := nodeState(n)
	f.Add("Node", n.GetName())
	f.Add("Center", n.GetAiCenterId())
	f.AddColor("State", state.Text, state.Color)
	f.Add("Reason", n.GetReason())
	f.Add("Architecture", n.GetArchitecture())
	f.Add("System", n.GetOperatingSystem())
	for _, a := range n.GetAccelerators() {
		what := strings.TrimSpace(fmt.Sprintf("%d %s %s", a.GetCount(), a.GetVendor(), a.GetModel()))
		if m := a.GetMemoryBytes(); m > 0 {
			what += " of " + text.Bytes(m)
		}
		f.Add("Accelerators", what+" ("+a.GetResource()+")")
	}
	f.Add("Labels", pairs(n.GetLabels()))
	f.Add("Reported", c.stamp(n.GetCreatedAt()))
	f.Add("Changed", c.stamp(n.GetUpdatedAt()))
	c.addFigures(&f, now)
	if err := f.Write(w, color); err != nil {
		return err
	}
	t := text.NewTable("RESOURCE", ">CAPACITY", ">FOR JOBS")
	var names []string
	for name := range n.GetCapacity() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Row(name, n.GetCapacity()[name], n.GetAllocatable()[name])
	}
	if t.Len() == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Write(w, color)
}
