package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	alarmsv1 "yunhe.dev/yunhe/gen/yunhe/alarms/v1"
)

func alarmCommand(c *cli) *cobra.Command {
	return group("alarm", groupNetwork, "What has gone wrong, and what follows from it",
		alarmListCommand(c), alarmShowCommand(c), alarmAcknowledgeCommand(c), alarmWatchCommand(c),
		noticeListCommand(c), noticeSettingsCommand(c), mailListCommand(c), mailTryCommand(c))
}

func alarmSeverity(x *alarmsv1.Alarm) text.Cell {
	color := text.Yellow
	if x.GetSeverity() >= alarmsv1.Severity_SEVERITY_MAJOR {
		color = text.Red
	}
	return text.Cell{Text: enumName(x.GetSeverity().String(), "SEVERITY_"), Color: color}
}

// alarmTable shows alarms as a tree: what follows from another stands below it.
func (c *cli) alarmTable(list []*alarmsv1.Alarm) *text.Table {
	t := text.NewTable("ALARM", "SEVERITY", "STATE", ">TIMES", "SINCE", "MESSAGE")
	shown := map[string]bool{}
	below := map[string][]*alarmsv1.Alarm{}
	for _, x := range list {
		shown[x.GetAlarmId()] = true
	}
	var roots []*alarmsv1.Alarm
	for _, x := range list {
		if shown[x.GetParentId()] {
			below[x.GetParentId()] = append(below[x.GetParentId()], x)
		} else {
			roots = append(roots, x)
		}
	}
	var add func(x *alarmsv1.Alarm, depth int)
	add = func(x *alarmsv1.Alarm, depth int) {
		message := strings.Repeat("  ", depth) + x.GetMessage()
		if n := x.GetAffected(); n > 0 && len(below[x.GetAlarmId()]) == 0 {
			message += fmt.Sprintf(" (%s below)", text.Count(int(n), "alarm"))
		}
		t.Row(x.GetAlarmId(), alarmSeverity(x), enumName(x.GetState().String(), "ALARM_STATE_"), fmt.Sprint(x.GetCount()), c.ago(x.GetFirstAt()), message)
		for _, y := range below[x.GetAlarmId()] {
			add(y, depth+1)
		}
	}
	for _, x := range roots {
		add(x, 0)
	}
	return t
}

func alarmListCommand(c *cli) *cobra.Command {
	var p paging
	req := &alarmsv1.ListAlarmsRequest{}
	var states []string
	var severity string
	cmd := &cobra.Command{
		Use: "list", Short: "List the open alarms, with what follows from each below it",
		Example: `  yunhe alarm list --severity major
  yunhe alarm list --state cleared --center gz-1`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, s := range states {
				n, err := enumFlag("--state", s, alarmsv1.AlarmState_value, "ALARM_STATE_")
				if err != nil {
					return err
				}
				req.States = append(req.States, alarmsv1.AlarmState(n))
			}
			n, err := enumFlag("--severity", severity, alarmsv1.Severity_value, "SEVERITY_")
			if err != nil {
				return err
			}
			req.Severity = alarmsv1.Severity(n)
			a, err := c.api()
			if err != nil {
				return err
			}
			active := int64(0)
			list, next, err := pages(p, func(size int32, token string) ([]*alarmsv1.Alarm, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.alarms.ListAlarms(cmd.Context(), req)
				active = res.GetActive()
				return res.GetAlarms(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(list))
			for i, x := range list {
				names[i] = x.GetAlarmId()
			}
			err = c.print(result{msg: &alarmsv1.ListAlarmsResponse{Alarms: list, NextPageToken: next, Active: active}, names: names, print: func(w io.Writer, color bool) error {
				if len(list) == 0 {
					c.note("no alarms")
					return nil
				}
				return c.alarmTable(list).Write(w, color)
			}})
			c.noteMore(len(list), next)
			return err
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&states, "state", nil, "in these states: active, acknowledged, cleared (default: those not cleared)")
	f.StringVar(&severity, "severity", "", "at least this severe: warning, major, critical")
	f.StringVar(&req.AiCenterId, "center", "", "only about this center")
	pageFlags(cmd, &p, 200)
	return cmd
}

func alarmShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show ALARM", Short: "Show an alarm and what it affects",
		Args: takes(1, 1, "the ID of an alarm"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.alarms.GetAlarm(cmd.Context(), &alarmsv1.GetAlarmRequest{AlarmId: args[0]})
			if err != nil {
				return err
			}
			x := res.GetAlarm()
			return c.print(result{msg: res, names: []string{x.GetAlarmId()}, print: func(w io.Writer, color bool) error {
				var f text.Facts
				f.Add("Alarm", x.GetAlarmId())
				f.Add("Kind", strings.ReplaceAll(enumName(x.GetKind().String(), "ALARM_KIND_"), "_", " "))
				f.AddColor("Severity", alarmSeverity(x).Text, alarmSeverity(x).Color)
				f.Add("State", enumName(x.GetState().String(), "ALARM_STATE_"))
				f.Add("Message", x.GetMessage())
				f.Add("Follows from", x.GetParentId())
				f.Add("Center", x.GetAiCenterId())
				f.Add("Node", x.GetNode())
				f.Add("Equipment", x.GetEquipment())
				f.Add("Job", x.GetJobId())
				f.Add("Allocation", x.GetAllocationId())
				f.Add("Instance", x.GetInstanceId())
				f.Add("Tenant", x.GetTenantId())
				f.Add("First", c.stamp(x.GetFirstAt()))
				f.Add("Last", c.stamp(x.GetLastAt()))
				f.Add("Times", fmt.Sprint(x.GetCount()))
				f.Add("Acknowledged", joinNonEmpty(", ", x.GetAcknowledgedBy(), c.stamp(x.GetAcknowledgedAt()), x.GetNote()))
				f.Add("Cleared", c.stamp(x.GetClearedAt()))
				if err := f.Write(w, color); err != nil || len(res.GetAffected()) == 0 {
					return err
				}
				if _, err := fmt.Fprintln(w); err != nil {
					return err
				}
				return c.alarmTable(res.GetAffected()).Write(w, color)
			}})
		},
	}
}

func alarmAcknowledgeCommand(c *cli) *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use: "acknowledge ALARM...", Aliases: []string{"ack"}, Short: "Say that you look after alarms",
		Args: takes(1, -1, "the ID of an alarm"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res := &alarmsv1.ListAlarmsResponse{}
			err = c.each(args, func(id string) error {
				x, err := a.alarms.AcknowledgeAlarm(cmd.Context(), &alarmsv1.AcknowledgeAlarmRequest{AlarmId: id, Note: note})
				if err == nil {
					res.Alarms = append(res.Alarms, x)
				}
				return err
			})
			if len(res.Alarms) == 0 {
				return err
			}
			names := make([]string, len(res.Alarms))
			for i, x := range res.Alarms {
				names[i] = x.GetAlarmId()
			}
			if perr := c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error { return c.alarmTable(res.Alarms).Write(w, color) }}); err == nil {
				err = perr
			}
			return err
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "what you do about it")
	return cmd
}

func alarmWatchCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "watch", Short: "Show alarms as they come and go, until interrupted",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			tries := c.newLink(false).try()
			for {
				st, err := a.alarms.WatchAlarms(cmd.Context(), &alarmsv1.WatchAlarmsRequest{})
				if err == nil {
					for st.Receive() {
						tries.ok()
						x := st.Msg().GetAlarm()
						if x == nil {
							continue
						}
						if err := c.printLine(result{msg: x, names: []string{x.GetAlarmId()}, print: func(w io.Writer, color bool) error {
							_, err := fmt.Fprintf(w, "%s  %s  %s  %s\n", c.stamp(x.GetLastAt()), enumName(x.GetState().String(), "ALARM_STATE_"), text.Paint(alarmSeverity(x).Text, alarmSeverity(x).Color, color), text.Clean(x.GetMessage()))
							return err
						}}); err != nil {
							return err
						}
					}
					if err = st.Err(); err == nil {
						err = errNotOver
					}
				}
				if cmd.Context().Err() != nil {
					return nil
				}
				if err = tries.pause(cmd.Context(), err); err != nil {
					return err
				}
			}
		},
	}
}
