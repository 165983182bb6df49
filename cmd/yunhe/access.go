package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	accessv1 "yunhe.dev/yunhe/gen/yunhe/access/v1"
	monitorv1 "yunhe.dev/yunhe/gen/yunhe/monitor/v1"
)

func accessCommand(c *cli) *cobra.Command {
	return group("access", groupNetwork, "How resources are accessed: records, compliance, conversion",
		accessListCommand(c), accessShowCommand(c), accessReportCommand(c), accessClassesCommand(c), accessEnforceCommand(c),
		accessRuleCommand(c), accessConversionCommand(c))
}

const resourceHelp = `Resources are named center:ID, node:CENTER:NAME, or by the ID under which they
are registered. The ID of a center alone will do.`

// accessID completes the ID of a center.
func accessID(s string) string {
	if strings.Contains(s, ":") {
		return s
	}
	return "center:" + s
}

func compliance(s accessv1.Compliance) text.Cell {
	cell := text.Cell{Text: enumName(s.String(), "COMPLIANCE_"), Color: text.Yellow}
	switch s {
	case accessv1.Compliance_COMPLIANCE_COMPLIANT:
		cell.Color = text.Green
	case accessv1.Compliance_COMPLIANCE_NON_COMPLIANT:
		cell.Color = text.Red
	}
	return cell
}

func health(s accessv1.Health) text.Cell {
	cell := text.Cell{Text: enumName(s.String(), "HEALTH_"), Color: text.Yellow}
	switch s {
	case accessv1.Health_HEALTH_HEALTHY:
		cell.Color = text.Green
	case accessv1.Health_HEALTH_UNREACHABLE:
		cell.Color = text.Red
	}
	return cell
}

func accessListCommand(c *cli) *cobra.Command {
	var p paging
	var status string
	cmd := &cobra.Command{
		Use: "list", Short: "List what is accessed, with compliance, health and figures",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := enumFlag("--compliance", status, accessv1.Compliance_value, "COMPLIANCE_")
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			rows, next, err := pages(p, func(size int32, token string) ([]*accessv1.AccessRecord, string, error) {
				res, err := a.access.ListAccessRecords(cmd.Context(), &accessv1.ListAccessRecordsRequest{PageSize: size, PageToken: token, Compliance: accessv1.Compliance(want)})
				return res.GetRecords(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("RESOURCE", "TYPE", "SOURCE", "PROTOCOL", "COMPLIANCE", "HEALTH", ">CPU", ">LATENCY", ">LOSS", "CLASS", "SYNCED")
			for _, r := range rows {
				names = append(names, r.GetResourceId())
				cpu, latency, loss := "-", "-", "-"
				if m := r.GetComputeMetrics(); m != nil && m.CpuBusyRatio != nil {
					cpu = asPercent(m.GetCpuBusyRatio())
				}
				if ps := r.GetPaths(); len(ps) > 0 {
					if ps[0].LatencySeconds != nil {
						latency = milliseconds(ps[0].GetLatencySeconds())
					}
					if ps[0].LossRatio != nil {
						loss = asPercent(ps[0].GetLossRatio())
					}
				}
				t.Row(r.GetResourceId(), r.GetResourceType(), enumName(r.GetSourceType().String(), "SOURCE_TYPE_"), r.GetProtocolType(), compliance(r.GetComplianceStatus()),
					health(r.GetHealthStatus()), cpu, latency, loss, orDash(r.GetClassId()), c.ago(r.GetSyncedAt()))
			}
			err = c.print(result{msg: &accessv1.ListAccessRecordsResponse{Records: rows, NextPageToken: next}, names: names, print: t.Write})
			c.noteMore(len(rows), next)
			return err
		},
	}
	cmd.Flags().StringVar(&status, "compliance", "", "only those: compliant, non-compliant, unknown")
	pageFlags(cmd, &p, 200)
	return cmd
}

func accessShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show RESOURCE", Short: "Show how a resource is accessed, with the log of every step", Long: resourceHelp,
		Args: takes(1, 1, "a resource"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			r, err := a.access.GetAccessRecord(cmd.Context(), &accessv1.GetAccessRecordRequest{ResourceId: accessID(args[0])})
			if isNotFound(err) && !strings.Contains(args[0], ":") { // not a center: something that is registered
				r, err = a.access.GetAccessRecord(cmd.Context(), &accessv1.GetAccessRecordRequest{ResourceId: args[0]})
			}
			if err != nil {
				return err
			}
			return c.print(result{msg: r, names: []string{r.GetResourceId()}, print: func(w io.Writer, color bool) error { return c.showAccess(w, color, r) }})
		},
	}
}

func (c *cli) showAccess(w io.Writer, color bool, r *accessv1.AccessRecord) error {
	var f text.Facts
	f.Add("Resource", r.GetResourceId())
	f.Add("Type", r.GetResourceType())
	f.Add("Name", r.GetName())
	f.Add("Source", enumName(r.GetSourceType().String(), "SOURCE_TYPE_"))
	f.Add("Protocol", r.GetProtocolType())
	f.Add("Plug-in", strings.TrimSpace(r.GetPlugin()+" "+r.GetPluginVersion()))
	f.Add("Class", r.GetClassId())
	status := compliance(r.GetComplianceStatus())
	f.AddColor("Compliance", status.Text, status.Color)
	h := health(r.GetHealthStatus())
	if m := r.GetHealthMessage(); m != "" {
		h.Text += ": " + m
	}
	f.AddColor("Health", h.Text, h.Color)
	f.Add("Synced", c.stamp(r.GetSyncedAt()))
	if m := r.GetComputeMetrics(); m != nil {
		c.addFigures(&f, &monitorv1.Figures{CpuBusyRatio: m.CpuBusyRatio, MemoryBusyBytes: m.MemoryBusyBytes, AcceleratorBusyRatio: m.AcceleratorBusyRatio})
	}
	c.addFigures(&f, &monitorv1.Figures{Storage: r.GetStorageMetrics(), Network: r.GetNetworkMetrics(), Paths: r.GetPaths()})
	f.Add("Guide", r.GetGuideFlowId())
	f.Add("Conversions", fmt.Sprint(len(r.GetConversionConfig())))
	if err := f.Write(w, color); err != nil || len(r.GetAuditLog()) == 0 {
		return err
	}
	t := text.NewTable("AT", "STEP", "BY", "OUTCOME", "MESSAGE")
	for _, st := range r.GetAuditLog() {
		t.Row(c.stamp(st.GetAt()), st.GetStep(), orDash(st.GetUserId()), st.GetOutcome(), orDash(st.GetMessage()))
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Write(w, color)
}

func accessReportCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "report [RESOURCE]", Short: "Show whether the conditions of access are met, of a resource or of the whole network", Long: resourceHelp,
		Args: takes(0, 1, "a resource"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				s, err := a.access.GetAccessSummary(cmd.Context(), &accessv1.GetAccessSummaryRequest{})
				if err != nil {
					return err
				}
				return c.print(result{msg: s, print: func(w io.Writer, color bool) error { return c.showSummary(w, color, s) }})
			}
			r, err := a.access.GetAccessReport(cmd.Context(), &accessv1.GetAccessReportRequest{ResourceId: accessID(args[0])})
			if isNotFound(err) && !strings.Contains(args[0], ":") {
				r, err = a.access.GetAccessReport(cmd.Context(), &accessv1.GetAccessReportRequest{ResourceId: args[0]})
			}
			if err != nil {
				return err
			}
			return c.print(result{msg: r, names: []string{r.GetResourceId()}, print: func(w io.Writer, color bool) error {
				status := compliance(r.GetStatus())
				if _, err := fmt.Fprintf(w, "%s  %s\n\n", r.GetResourceId(), text.Paint(status.Text, status.Color, color)); err != nil {
					return err
				}
				t := text.NewTable("RULE", "SEVERITY", "VERDICT", "OBSERVED", "WHAT TO DO")
				for _, v := range r.GetVerdicts() {
					t.Row(v.GetRuleId(), enumName(v.GetSeverity().String(), "SEVERITY_"), compliance(v.GetStatus()), text.Cut(orDash(v.GetObserved()), 60), orDash(v.GetMessage()))
				}
				return t.Write(w, color)
			}})
		},
	}
}

func (c *cli) showSummary(w io.Writer, color bool, s *accessv1.AccessSummary) error {
	t := text.NewTable("KIND", ">COMPLIANT", ">NON-COMPLIANT", ">UNKNOWN")
	for _, k := range s.GetKinds() {
		t.Row(enumName(k.GetKind().String(), "RESOURCE_KIND_"), k.GetCompliant(), k.GetNonCompliant(), k.GetUnknown())
	}
	if err := t.Write(w, color); err != nil {
		return err
	}
	held := "centers that do not comply take work all the same"
	if s.GetEnforce() {
		held = "centers that do not comply take no new work"
	}
	if _, err := fmt.Fprintf(w, "\nJudged %s; %s.\n\n", c.stamp(s.GetEvaluatedAt()), held); err != nil {
		return err
	}
	t = text.NewTable("RULE", "KIND", "SEVERITY", "ON", ">COMPLIANT", ">NON-COMPLIANT", ">UNKNOWN", "TITLE")
	for _, r := range s.GetRules() {
		t.Row(r.GetRule().GetRuleId(), enumName(r.GetRule().GetKind().String(), "RESOURCE_KIND_"), enumName(r.GetRule().GetSeverity().String(), "SEVERITY_"), onOff(r.GetRule().GetEnabled()),
			r.GetCompliant(), r.GetNonCompliant(), r.GetUnknown(), r.GetRule().GetTitle())
	}
	return t.Write(w, color)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func accessClassesCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "classes", Short: "List the classes of compute and how each is connected",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.access.ListAccessClasses(cmd.Context(), &accessv1.ListAccessClassesRequest{})
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("CLASS", "TITLE", ">CENTERS", "PLUG-INS", "PROTOCOLS", "CONDITION")
			for _, k := range res.GetClasses() {
				names = append(names, k.GetClassId())
				t.Row(k.GetClassId(), k.GetTitle(), k.GetCenters(), strings.Join(k.GetPlugins(), ", "), strings.Join(k.GetProtocols(), ", "), k.GetCondition())
			}
			return c.print(result{msg: res, names: names, print: t.Write})
		},
	}
}

func accessEnforceCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "enforce on|off", Short: "Keep new work from centers that do not meet the conditions of access",
		Args: takes(1, 1, "on or off"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "on" && args[0] != "off" {
				return usagef("want on or off, got %q", args[0])
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.access.SetAccessSettings(cmd.Context(), &accessv1.SetAccessSettingsRequest{Settings: &accessv1.AccessSettings{Enforce: args[0] == "on"}})
			if err != nil {
				return err
			}
			return c.print(result{msg: res, names: []string{onOff(res.GetEnforce())}, print: func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintln(w, "enforce", onOff(res.GetEnforce()))
				return err
			}})
		},
	}
}

// readMessage reads a message as JSON from a file, or from standard input ("-").
func (c *cli) readMessage(path string, m proto.Message) error {
	var b []byte
	var err error
	if path == "-" {
		b, err = io.ReadAll(io.LimitReader(c.in, 1<<20))
	} else {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return usagef("%s cannot be read: %v", path, err)
	}
	if err := protojson.Unmarshal(b, m); err != nil {
		return usagef("%s is not right: %v", path, err)
	}
	return nil
}

func accessVersionsCommand(c *cli, kind accessv1.DocumentKind, what string) *cobra.Command {
	return &cobra.Command{
		Use: "history " + strings.ToUpper(what), Short: "List the versions of a " + what,
		Args: takes(1, 1, "the ID of a "+what),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.access.ListAccessVersions(cmd.Context(), &accessv1.ListAccessVersionsRequest{Kind: kind, Id: args[0]})
			if err != nil {
				return err
			}
			t := text.NewTable(">VERSION", "AT", "BY", "BODY")
			for _, v := range res.GetVersions() {
				body := v.GetBody()
				if body == "" {
					body = "deleted"
				}
				t.Row(v.GetVersion(), c.stamp(v.GetAt()), orDash(v.GetUserId()), body)
			}
			return c.print(result{msg: res, print: t.Write})
		},
	}
}

func accessRestoreCommand(c *cli, kind accessv1.DocumentKind, what string) *cobra.Command {
	var version int64
	cmd := &cobra.Command{
		Use: "restore " + strings.ToUpper(what) + " --version N", Short: "Make an earlier version of a " + what + " the latest again",
		Args: takes(1, 1, "the ID of a "+what),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			v, err := a.access.RestoreAccessVersion(cmd.Context(), &accessv1.RestoreAccessVersionRequest{Kind: kind, Id: args[0], Version: version})
			if err != nil {
				return err
			}
			return c.print(result{msg: v, names: []string{v.GetId()}, print: func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintf(w, "%s  version %d\n", v.GetId(), v.GetVersion())
				return err
			}})
		},
	}
	cmd.Flags().Int64Var(&version, "version", 0, "the version to restore (see history)")
	_ = cmd.MarkFlagRequired("version") // it was just declared
	return cmd
}
