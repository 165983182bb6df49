package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
)

// poolFile writes a file that the platform made.
func (c *cli) poolFile(path string, f *poolv1.PoolFile) error {
	if path == "" || path == "-" {
		_, err := c.out.Write(f.Content)
		return err
	}
	return replaceFile(path, func(w io.Writer) error {
		_, err := w.Write(f.Content)
		return err
	})
}

// span is a time that is asked for.
type span struct {
	from, to string
	since    time.Duration
}

func (s *span) flags(cmd *cobra.Command, without string) {
	f := cmd.Flags()
	f.StringVar(&s.from, "from", "", "from this time on, such as 2026-03-01T08:00:00Z (default: "+without+")")
	f.StringVar(&s.to, "to", "", "before this time (default: now)")
	f.DurationVar(&s.since, "since", 0, "of the last time, such as 2h; instead of --from")
}

func (s *span) times() (from, to *timestamppb.Timestamp, err error) {
	if s.since != 0 && s.from != "" {
		return nil, nil, usagef("--since stands for --from: give one of them")
	}
	if s.since < 0 {
		return nil, nil, usagef("--since: want a time above 0, got %s", s.since)
	}
	if s.since > 0 {
		from = timestamppb.New(time.Now().Add(-s.since))
	}
	for _, x := range []struct {
		flag, value string
		to          **timestamppb.Timestamp
	}{{"--from", s.from, &from}, {"--to", s.to, &to}} {
		if x.value == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, x.value)
		if err != nil {
			return nil, nil, usagef("%s: want a time such as 2026-03-01T08:00:00Z, got %q", x.flag, x.value)
		}
		*x.to = timestamppb.New(at)
	}
	return from, to, nil
}

func poolLogCommand(c *cli) *cobra.Command {
	var p paging
	var s span
	var level, format, path string
	req := &poolv1.SearchPoolLogsRequest{}
	cmd := &cobra.Command{
		Use: "log", Short: "Search the log of the platform's pool, or write it to a file",
		Long: `Shows what the platform and its pool nodes did, newest first. With --format or
--file the newest 20000 entries that match are written, oldest first.`,
		Example: `  yunhe pool log --level warn --since 2h
  yunhe pool log --task slice_01J... --text ended
  yunhe pool log --on n1 --format csv --file log.csv`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := enumFlag("--level", level, poolv1.LogLevel_value, "LOG_LEVEL_")
			if err != nil {
				return err
			}
			req.Level = poolv1.LogLevel(n)
			if req.From, req.To, err = s.times(); err != nil {
				return err
			}
			if format == "" && path != "" {
				format = "text"
			}
			if pagers := given(cmd, "limit", "all", "page-token"); format != "" && len(pagers) > 0 {
				return usagef("%s does not go with --format and --file: the newest 20000 entries that match are written", pagers[0])
			}
			kind, err := enumFlag("--format", format, poolv1.ExportPoolLogsRequest_Format_value, "FORMAT_")
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			if format != "" {
				f, err := a.poolOps.ExportPoolLogs(cmd.Context(), &poolv1.ExportPoolLogsRequest{Format: poolv1.ExportPoolLogsRequest_Format(kind), Level: req.Level, From: req.From, To: req.To, NodeId: req.NodeId, SliceId: req.SliceId, Text: req.Text, UserId: req.UserId})
				if err != nil {
					return err
				}
				return c.poolFile(path, f)
			}
			res := &poolv1.SearchPoolLogsResponse{}
			res.Entries, res.NextPageToken, err = pages(p, func(size int32, token string) ([]*poolv1.PoolLogEntry, string, error) {
				req.PageSize, req.PageToken = size, token
				page, err := a.poolOps.SearchPoolLogs(cmd.Context(), req)
				return page.GetEntries(), page.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			t := text.NewTable("TIME", "LEVEL", "SOURCE", "MESSAGE", "DEVICE", "TASK", "USER", "DETAILS")
			var names []string
			for _, e := range res.Entries {
				names = append(names, e.LogId)
				color := text.Plain
				switch e.Level {
				case poolv1.LogLevel_LOG_LEVEL_WARN:
					color = text.Yellow
				case poolv1.LogLevel_LOG_LEVEL_ERROR:
					color = text.Red
				}
				at := e.NodeId
				if e.DeviceId != "" {
					at += "/" + e.DeviceId
				}
				t.Row(e.At.AsTime().UTC().Format("2006-01-02 15:04:05.000"), text.Cell{Text: enumName(e.Level.String(), "LOG_LEVEL_"), Color: color}, e.Source, e.Message, at, e.SliceId, e.UserId, e.Details)
			}
			return c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
				if t.Len() == 0 {
					c.note("nothing in the log of the pool matches")
					return nil
				}
				c.noteMore(len(res.Entries), res.NextPageToken)
				return t.Write(w, color)
			}})
		},
	}
	pageFlags(cmd, &p, 100)
	s.flags(cmd, "all that is kept, 30 days")
	f := cmd.Flags()
	f.StringVar(&level, "level", "", "at least debug, info, warn or error (default: all)")
	f.StringVar(&req.NodeId, "on", "", "about this node")
	f.StringVar(&req.SliceId, "task", "", "about this task, by its slice")
	f.StringVar(&req.UserId, "user", "", "about tasks of this user")
	f.StringVar(&req.Text, "text", "", "with this text")
	f.StringVar(&format, "format", "", "write text, json (one object a line) or csv")
	f.StringVarP(&path, "file", "f", "", "file to write (default: standard output)")
	return cmd
}

func (c *cli) printPoolComponents(res *poolv1.ListPoolComponentsResponse) error {
	t := text.NewTable("NODE", "STATE", "COMPONENT", "VERSION", ">RUNNING", "LOG LEVEL", ">IDLE LIMIT", ">RUN LIMIT", "CONFIGURATION")
	limit := func(seconds int64) string {
		if seconds == 0 {
			return "none"
		}
		return (time.Duration(seconds) * time.Second).String()
	}
	var names []string
	for _, n := range res.Nodes {
		names = append(names, n.NodeId)
		state := map[bool]string{true: "online", false: "offline"}[n.Online]
		level := "info"
		if n.Config.GetLogLevel() != 0 {
			level = enumName(n.Config.LogLevel.String(), "LOG_LEVEL_")
		}
		taken := "as at first"
		switch {
		case n.Generation == 0:
		case n.Generation == n.AppliedGeneration:
			taken = fmt.Sprintf("%d, taken", n.Generation)
		default:
			taken = fmt.Sprintf("%d, not taken yet", n.Generation)
			if n.Problem != "" {
				taken += ": " + n.Problem
			}
		}
		row := []any{n.NodeId, state, "", "", "", level, limit(n.Config.GetIdleLimitSeconds()), limit(n.Config.GetRunLimitSeconds()), taken}
		for _, p := range n.Components {
			row[2], row[3], row[4] = enumName(p.Kind.String(), "KIND_"), p.Version, strconv.FormatInt(p.Running, 10)
			if p.Kind == poolv1.PoolComponent_KIND_LIBRARY {
				row[4] = ""
			}
			t.Row(row...)
			row = []any{n.NodeId, state, "", "", "", "", "", "", ""}
		}
		if len(n.Components) == 0 {
			t.Row(row...)
		}
	}
	return c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
		if t.Len() == 0 {
			c.note("the pool has no nodes; `yunhe pool node token` is the first step")
			return nil
		}
		return t.Write(w, color)
	}})
}

func poolComponentListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the components of the pool's nodes, with versions and configuration",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.poolOps.ListPoolComponents(cmd.Context(), &poolv1.ListPoolComponentsRequest{})
			if err != nil {
				return err
			}
			return c.printPoolComponents(res)
		},
	}
}

func poolComponentSetCommand(c *cli) *cobra.Command {
	var level string
	var idle, run time.Duration
	var everywhere bool
	cmd := &cobra.Command{
		Use: "set NODE...", Short: "Configure the components of one node or several, while they run",
		Long: `Configures nodes of the pool, all of them or none. What is not said stays as it
is at each of them. A node that is offline takes it when it is back.`,
		Example: `  yunhe pool component set n1 --log-level debug
  yunhe pool component set --every-node --idle-limit 30m --run-limit 24h`,
		Args: takes(0, 1000, "nodes of the platform's pool"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if everywhere == (len(args) > 0) {
				return usagef("name nodes, or give --every-node")
			}
			if len(given(cmd, "log-level", "idle-limit", "run-limit")) == 0 {
				return usagef("one of --log-level, --idle-limit and --run-limit is needed")
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			if everywhere {
				all, err := a.poolOps.ListPoolComponents(cmd.Context(), &poolv1.ListPoolComponentsRequest{})
				if err != nil {
					return err
				}
				for _, n := range all.Nodes {
					args = append(args, n.NodeId)
				}
			}
			change := &poolv1.PoolConfigChange{}
			flags := cmd.Flags()
			if flags.Changed("log-level") {
				n, err := enumFlag("--log-level", level, poolv1.LogLevel_value, "LOG_LEVEL_")
				if err != nil {
					return err
				}
				change.LogLevel = new(poolv1.LogLevel(n))
			}
			for _, x := range []struct {
				flag  string
				value time.Duration
				to    **int64
			}{{"idle-limit", idle, &change.IdleLimitSeconds}, {"run-limit", run, &change.RunLimitSeconds}} {
				if !flags.Changed(x.flag) {
					continue
				}
				seconds, err := wholeSeconds("--"+x.flag, x.value)
				if err != nil {
					return err
				}
				*x.to = &seconds
			}
			res, err := a.poolOps.ConfigurePoolNodes(cmd.Context(), &poolv1.ConfigurePoolNodesRequest{NodeIds: args, Change: change})
			if err != nil {
				return err
			}
			return c.printPoolComponents(res)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&everywhere, "every-node", false, "all nodes of the pool")
	f.StringVar(&level, "log-level", "", "debug, info, warn or error: what is less is not logged")
	f.DurationVar(&idle, "idle-limit", 0, "end any task that has not used its device for so long; 0: as tasks were asked")
	f.DurationVar(&run, "run-limit", 0, "end any task after so long; 0: as tasks were asked")
	return cmd
}

func (c *cli) printPoolRules(msg any, list ...*poolv1.PoolAlarmRule) error {
	t := text.NewTable("RULE", "STATE", ">THRESHOLD", "SEVERITY")
	var names []string
	for _, r := range list {
		name := poolRuleName(r.Kind)
		names = append(names, name)
		threshold := ""
		if r.Threshold > 0 {
			threshold = strconv.FormatInt(r.Threshold, 10) + poolRuleUnit(r.Kind)
		}
		t.Row(name, onOff(r.Enabled), threshold, severities[r.Severity&3])
	}
	return c.print(result{msg: msg, names: names, print: t.Write})
}

func poolRuleName(k poolv1.PoolAlarmRule_Kind) string {
	return strings.ReplaceAll(enumName(k.String(), "KIND_"), "_", "-")
}

func poolRuleUnit(k poolv1.PoolAlarmRule_Kind) string {
	switch k {
	case poolv1.PoolAlarmRule_KIND_NODE_OFFLINE, poolv1.PoolAlarmRule_KIND_WAIT_LONG, poolv1.PoolAlarmRule_KIND_NOT_CONFIGURED:
		return " s"
	case poolv1.PoolAlarmRule_KIND_COMPUTE_FULL, poolv1.PoolAlarmRule_KIND_MEMORY_FULL, poolv1.PoolAlarmRule_KIND_TASK_MEMORY_FULL:
		return "%"
	case poolv1.PoolAlarmRule_KIND_DEVICE_HOT:
		return " °C"
	case poolv1.PoolAlarmRule_KIND_POWER_HIGH:
		return " W"
	}
	return ""
}

func poolRuleListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the rules; what they find is in yunhe alarm list",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.poolOps.ListPoolAlarmRules(cmd.Context(), &poolv1.ListPoolAlarmRulesRequest{})
			if err != nil {
				return err
			}
			return c.printPoolRules(res, res.Rules...)
		},
	}
}

func poolRuleSetCommand(c *cli) *cobra.Command {
	const example = `  yunhe pool rule set queue-long --threshold 50 --severity major
  yunhe pool rule set compute-full --enable`
	return c.ruleSetCommand("yunhe pool rule", example, "from here on it is an alarm", func(ctx context.Context, a *api) (rules []alarmRule, err error) {
		res, err := a.poolOps.ListPoolAlarmRules(ctx, &poolv1.ListPoolAlarmRulesRequest{})
		for _, r := range res.GetRules() {
			rules = append(rules, alarmRule{poolRuleName(r.Kind), &r.Enabled, &r.Threshold, &r.Severity, func() error {
				got, err := a.poolOps.SetPoolAlarmRule(ctx, &poolv1.SetPoolAlarmRuleRequest{Kind: r.Kind, Rule: r})
				if err != nil {
					return err
				}
				return c.printPoolRules(got, got)
			}})
		}
		return rules, err
	})
}

func poolReportCommand(c *cli) *cobra.Command {
	var s span
	var format, path string
	req := &poolv1.ExportPoolReportRequest{}
	cmd := &cobra.Command{
		Use: "report resources|tasks|operation", Short: "Write a report of what was used of the platform's pool",
		Example: `  yunhe pool report operation --since 168h --format pdf --file week.pdf
  yunhe pool report tasks --format csv`,
		Args: takes(1, 1, "what the report is of"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := enumFlag("the report", args[0], poolv1.ExportPoolReportRequest_Kind_value, "KIND_")
			if err != nil {
				return err
			}
			req.Kind = poolv1.ExportPoolReportRequest_Kind(n)
			if n, err = enumFlag("--format", format, poolv1.ExportPoolReportRequest_Format_value, "FORMAT_"); err != nil {
				return err
			}
			req.Format = poolv1.ExportPoolReportRequest_Format(n)
			if req.From, req.To, err = s.times(); err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			f, err := a.poolOps.ExportPoolReport(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.poolFile(path, f)
		},
	}
	s.flags(cmd, "24 hours before --to")
	f := cmd.Flags()
	f.StringVar(&format, "format", "csv", "csv, html or pdf")
	f.StringVar(&req.Language, "language", "en", "en or zh")
	f.StringVarP(&path, "file", "f", "", "file to write (default: standard output)")
	return cmd
}
