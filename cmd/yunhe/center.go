package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	monitorv1 "yunhe.dev/yunhe/gen/yunhe/monitor/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	standingv1 "yunhe.dev/yunhe/gen/yunhe/standing/v1"
)

func centerCommand(c *cli) *cobra.Command {
	return group("center", groupNetwork, "Computing centers: how full, in or out of use, joining",
		centerListCommand(c), centerShowCommand(c), centerDrainCommand(c, true), centerDrainCommand(c, false), isolateCommand(c, false), restoreCommand(c, false), reclaimCommand(c, false), centerJoinCommand(c), centerLeaveCommand(c), joinTokenCommand(c), centerAccountCommand(c), centerStandingCommand(c), centerGraceCommand(c), centerForgetCommand(c), centerMaintenanceCommand(c), centerDeleteCommand(c))
}

func centerListCommand(c *cli) *cobra.Command {
	var p paging
	var region string
	cmd := &cobra.Command{
		Use: "list", Short: "List centers and how full they are",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			centers, next, err := pages(p, func(size int32, token string) ([]*registryv1.Center, string, error) {
				res, err := a.registry.ListCenters(cmd.Context(), &registryv1.ListCentersRequest{PageSize: size, PageToken: token, Region: region})
				return res.GetCenters(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(centers))
			for i, k := range centers {
				names[i] = k.GetAiCenterId()
			}
			err = c.print(result{
				msg: &registryv1.ListCentersResponse{Centers: centers, NextPageToken: next}, names: names,
				print: func(w io.Writer, color bool) error {
					if len(centers) == 0 {
						c.note("no centers; `yunhe center join-token` lets a gateway join")
						return nil
					}
					return c.centerTable(centers).Write(w, color)
				},
			})
			c.noteMore(len(centers), next)
			return err
		},
	}
	cmd.Flags().StringVar(&region, "region", "", "only centers of this region")
	pageFlags(cmd, &p, 200)
	return cmd
}

func (c *cli) centerTable(centers []*registryv1.Center) *text.Table {
	columns := []string{"CENTER", "NAME", "STATUS", ">RUNNING", ">WAITING", ">CPU USED", ">MEMORY USED", "SEEN"}
	if c.wide() {
		columns = append(columns, ">GPU USED", ">NPU USED", ">MLU USED", "REGION", ">SECURITY", ">PERFORMANCE", ">CPU BUSY", "ADAPTER", "LABELS")
	}
	t := text.NewTable(columns...)
	for _, k := range centers {
		m := k.GetMonitoring()
		row := []any{
			k.GetAiCenterId(), k.GetName(), centerStatus(k), m.GetRunningTaskNum(), m.GetWaitingTaskNum(),
			usedOf(m.GetCpuUsed(), m.GetCpuFree()), usedOfMB(m.GetMemoryUsed(), m.GetMemoryFree()), c.ago(k.GetLastSeenAt()),
		}
		if c.wide() {
			row = append(row, usedOf(m.GetGpuUsed(), m.GetGpuFree()), usedOf(m.GetNpuUsed(), m.GetNpuFree()), usedOf(m.GetMluUsed(), m.GetMluFree()),
				k.GetRegion(), k.GetSecurityGrade(), k.GetPerformance(), permille(m.GetCpuBusyPermille()), k.GetAdapter(), pairs(k.GetLabels()))
		}
		t.Row(row...)
	}
	return t
}

func centerStatus(k *registryv1.Center) text.Cell {
	switch {
	case k.GetDrained():
		return text.Cell{Text: "drained", Color: text.Yellow}
	case k.GetStatus() == registryv1.CenterStatus_CENTER_STATUS_AVAILABLE:
		return text.Cell{Text: "available", Color: text.Green}
	}
	return text.Cell{Text: enumName(k.GetStatus().String(), "CENTER_STATUS_"), Color: text.Red}
}

// usedOf formats "3/8", "-" if there is none at all.
func usedOf(used, free int64) string {
	if used+free == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", used, used+free)
}

func usedOfMB(used, free int64) string {
	if used+free == 0 {
		return "-"
	}
	return text.Bytes(used<<20) + "/" + text.Bytes((used+free)<<20)
}

// permille formats thousandths as a percentage.
func permille(n int64) string { return fmt.Sprintf("%d.%d%%", n/10, n%10) }

func centerShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show CENTER", Short: "Show a center with its resources and live use",
		Args: takes(1, 1, "the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			k, err := a.registry.GetCenter(cmd.Context(), &registryv1.GetCenterRequest{AiCenterId: args[0]})
			if err != nil {
				return err
			}
			return c.print(result{msg: k, names: []string{k.GetAiCenterId()}, print: func(w io.Writer, color bool) error {
				standing := standingOf(cmd.Context(), a, k.GetAiCenterId())
				if err := c.showCenter(w, color, k, presentFigures(cmd.Context(), a, k.GetAiCenterId(), ""), standing); err != nil || standing == nil {
					return err
				}
				return c.writeRefusals(w, color, standing)
			}})
		},
	}
}

func (c *cli) showCenter(w io.Writer, color bool, k *registryv1.Center, now *monitorv1.Figures, standing *standingv1.Standing) error {
	var f text.Facts
	status := centerStatus(k)
	f.Add("Center", k.GetAiCenterId())
	f.Add("Name", k.GetName())
	f.AddColor("Status", status.Text, status.Color)
	if standing != nil {
		link := linkOf(standing)
		f.AddColor("Link", link.Text+"; "+giveUpAfter(standing.GetLostGraceSeconds()), link.Color)
	}
	f.Add("Region", k.GetRegion())
	if g := k.GetGeometry(); g != nil {
		f.Add("Place", fmt.Sprintf("%s, %s (longitude, latitude)", number(g.GetLongitude(), 4), number(g.GetLatitude(), 4)))
	}
	f.Add("Adapter", k.GetAdapter())
	f.Add("Security grade", fmt.Sprint(k.GetSecurityGrade()))
	if k.GetPerformance() > 0 {
		f.Add("Performance", fmt.Sprintf("%d (the reference machine is 1000)", k.GetPerformance()))
	}
	if list := k.GetSpeeds(); len(list) > 0 {
		f.Add("Accelerators", speedText(list)+" (an NVIDIA A100 is 1000)")
	}
	if p := k.GetPower(); p != nil {
		f.Add("Power", fmt.Sprintf("%d mW per core held, %d mW per core in use", p.GetStaticMilliwattsPerCpu(), p.GetActiveMilliwattsPerCpu()))
	}
	f.Add("Labels", pairs(k.GetLabels()))
	f.Add("Created", c.stamp(k.GetCreatedAt()))
	f.Add("Last seen", c.stamp(k.GetLastSeenAt()))
	m := k.GetMonitoring()
	if m != nil {
		f.Add("Replicas", fmt.Sprintf("%d running, %d waiting", m.GetRunningTaskNum(), m.GetWaitingTaskNum()))
		f.Add("Machine busy", fmt.Sprintf("CPU %s, memory %s", permille(m.GetCpuBusyPermille()), text.Bytes(m.GetMemoryBusy()<<20)))
		f.Add("Measured", c.stamp(m.GetMeasuredAt()))
	}
	c.addFigures(&f, now)
	if err := f.Write(w, color); err != nil {
		return err
	}
	r := k.GetResources()
	t := text.NewTable("RESOURCE", ">TOTAL", ">USED", ">FREE")
	size := func(unit int) func(int64) string { return func(n int64) string { return text.Bytes(n << unit) } }
	count := func(n int64) string { return fmt.Sprint(n) }
	for _, x := range []struct {
		name              string
		total, used, free int64
		format            func(int64) string
	}{
		{"cpu", r.GetCpu(), m.GetCpuUsed(), m.GetCpuFree(), count},
		{"gpu", r.GetGpu(), m.GetGpuUsed(), m.GetGpuFree(), count},
		{"npu", r.GetNpu(), m.GetNpuUsed(), m.GetNpuFree(), count},
		{"mlu", r.GetMlu(), m.GetMluUsed(), m.GetMluFree(), count},
		{"memory", r.GetMemory(), m.GetMemoryUsed(), m.GetMemoryFree(), size(20)},
		{"storage", r.GetStorage(), m.GetStorageUsed(), m.GetStorageFree(), size(30)},
		{"user-defined", r.GetUserDefine(), m.GetDefineresUsed(), m.GetDefineresFree(), count},
	} {
		switch {
		case x.total == 0 && x.used == 0 && x.free == 0:
		case m == nil:
			t.Row(x.name, x.format(x.total))
		default:
			t.Row(x.name, x.format(x.total), x.format(x.used), x.format(x.free))
		}
	}
	if t.Len() == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Write(w, color)
}

// centerDrainCommand makes drain, or undrain.
func centerDrainCommand(c *cli, drain bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain CENTER...", Short: "Send no new work to centers; what runs goes on",
		Args: takes(1, -1, "the ID of a center"),
	}
	if !drain {
		cmd.Use, cmd.Short = "undrain CENTER...", "Send work to centers again"
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a, err := c.api()
		if err != nil {
			return err
		}
		res, names := &registryv1.ListCentersResponse{}, []string{}
		err = c.each(args, func(id string) error {
			k, err := setDrained(cmd.Context(), a, id, drain)
			if err == nil {
				res.Centers, names = append(res.Centers, k), append(names, id)
			}
			return err
		})
		return errors.Join(err, c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
			for _, k := range res.GetCenters() {
				status := centerStatus(k)
				if _, err := fmt.Fprintf(w, "%s  %s\n", k.GetAiCenterId(), text.Paint(status.Text, status.Color, color)); err != nil {
					return err
				}
			}
			return nil
		}}))
	}
	return cmd
}

// setDrained changes one field of a center. The API takes all that an
// operator decides about a center at once, hence the read before.
func setDrained(ctx context.Context, a *api, id string, drained bool) (*registryv1.Center, error) {
	k, err := a.registry.GetCenter(ctx, &registryv1.GetCenterRequest{AiCenterId: id})
	if err != nil || k.GetDrained() == drained {
		return k, err
	}
	k = proto.CloneOf(k)
	k.Drained = drained
	return a.registry.UpdateCenter(ctx, &registryv1.UpdateCenterRequest{Center: k})
}

func joinTokenCommand(c *cli) *cobra.Command {
	var center, ttl string
	cmd := &cobra.Command{
		Use: "join-token", Short: "Make a token with which one gateway may join",
		Long: `Makes a token with which one gateway may join, once. Start the gateway on the
center's machine with the token; it connects by itself.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			seconds, err := ttlSeconds(ttl)
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.adapters.CreateJoinToken(cmd.Context(), &adaptersv1.CreateJoinTokenRequest{AiCenterId: center, TtlSeconds: seconds})
			if err != nil {
				return err
			}
			return c.print(result{msg: res, names: []string{res.GetToken()}, print: func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintln(w, res.GetToken())
				c.note("valid once, until %s; it is not shown again", c.stamp(res.GetExpiresAt()))
				return err
			}})
		},
	}
	cmd.Flags().StringVar(&center, "center", "", "ID of the center that joins (default: the gateway names it)")
	cmd.Flags().StringVar(&ttl, "ttl", "", "how long the token is valid, such as 30m or 2d (default 1h)")
	return cmd
}

// ttlSeconds reads a lifetime; empty is 0, the server's default.
func ttlSeconds(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	d, err := parseDuration(s)
	if err != nil || d < time.Second {
		return 0, usagef("--ttl: want a length of time of at least 1s, such as 30m or 2d, got %q", s)
	}
	return int64(d / time.Second), nil
}

// speedText says how fast accelerators are: "gpu FP16 1000, FP32 960 measured".
func speedText(list []*registryv1.Speed) string {
	var b strings.Builder
	for i, s := range list {
		switch {
		case i > 0 && list[i-1].GetKind() == s.GetKind():
			b.WriteString(", ")
		case i > 0:
			b.WriteString("; " + s.GetKind() + " ")
		default:
			b.WriteString(s.GetKind() + " ")
		}
		fmt.Fprintf(&b, "%s %d", s.GetPrecision(), s.GetMilli())
		if s.GetMeasured() {
			b.WriteString(" measured")
		}
	}
	return b.String()
}
