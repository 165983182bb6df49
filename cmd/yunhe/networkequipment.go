package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	networkv1 "yunhe.dev/yunhe/gen/yunhe/network/v1"
)

func equipmentState(x *adapterv1.Equipment, silent bool) text.Cell {
	state := enumName(x.GetState().String(), "EQUIPMENT_STATE_")
	color := text.Plain
	switch x.GetState() {
	case adapterv1.EquipmentState_EQUIPMENT_STATE_DOWN, adapterv1.EquipmentState_EQUIPMENT_STATE_UNREACHABLE:
		color = text.Red
	case adapterv1.EquipmentState_EQUIPMENT_STATE_DEGRADED:
		color = text.Yellow
	}
	if silent {
		state, color = state+"?", text.Yellow
	}
	return text.Cell{Text: state, Color: color}
}

// rateText is millionths for people.
func rateText(v int64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(v)/1e4, 'g', 4, 64) + "%"
}

func equipmentListCommand(c *cli) *cobra.Command {
	var p paging
	req := &networkv1.ListEquipmentRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List switches, routers and the like; what is wrong with them is in yunhe alarm list",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			rows, next, err := pages(p, func(size int32, token string) ([]*networkv1.NetworkEquipment, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.equipment.ListEquipment(cmd.Context(), req)
				return res.GetEquipment(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			if len(rows) == 0 && c.forPeople() {
				c.note("no network equipment; gateways, plug-ins and `yunhe network equipment report` tell of it")
				return nil
			}
			t := text.NewTable("CENTER", "EQUIPMENT", "KIND", "STATE", ">PORTS", ">DOWN", ">ERRORS", ">LOSS", "SINCE", "SOURCE")
			names := make([]string, len(rows))
			for i, r := range rows {
				x := r.GetEquipment()
				names[i] = r.GetAiCenterId() + " " + x.GetName()
				t.Row(r.GetAiCenterId(), x.GetName(), enumName(x.GetKind().String(), "EQUIPMENT_KIND_"), equipmentState(x, r.GetSilent()), fmt.Sprint(r.GetPorts()), fmt.Sprint(r.GetPortsDown()),
					rateText(r.GetWorstErrorsPpm()), rateText(r.GetWorstLossPpm()), c.ago(r.GetSince()), r.GetSource())
			}
			err = c.print(result{msg: &networkv1.ListEquipmentResponse{Equipment: rows, NextPageToken: next}, names: names, print: t.Write})
			c.noteMore(len(rows), next)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.AiCenterId, "center", "", "only of this center")
	f.BoolVar(&req.Troubled, "troubled", false, "only what is not well")
	pageFlags(cmd, &p, 200)
	return cmd
}

func equipmentShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show CENTER EQUIPMENT", Short: "Show a switch or the like with its ports",
		Args: takes(2, 2, "a center and the name of its equipment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			r, err := a.equipment.GetEquipment(cmd.Context(), &networkv1.GetEquipmentRequest{AiCenterId: args[0], Name: args[1]})
			if err != nil {
				return err
			}
			x := r.GetEquipment()
			return c.print(result{msg: r, names: []string{x.GetName()}, print: func(w io.Writer, color bool) error {
				var f text.Facts
				f.Add("Equipment", x.GetName())
				f.Add("Center", r.GetAiCenterId())
				f.Add("Kind", enumName(x.GetKind().String(), "EQUIPMENT_KIND_"))
				state := equipmentState(x, r.GetSilent())
				f.AddColor("State", joinNonEmpty(": ", state.Text, x.GetReason()), state.Color)
				f.Add("Since", c.stamp(r.GetSince()))
				f.Add("Model", joinNonEmpty(" ", x.GetVendor(), x.GetModel()))
				f.Add("Address", x.GetAddress())
				f.Add("Source", r.GetSource())
				if err := f.Write(w, color); err != nil || len(x.GetPorts()) == 0 {
					return err
				}
				if _, err := fmt.Fprintln(w); err != nil {
					return err
				}
				t := text.NewTable("PORT", "STATE", ">SPEED", "LEADS TO", ">ERRORS", ">LOSS", "REASON")
				for _, p := range x.GetPorts() {
					speed, peer := "", p.GetPeerEquipment()
					if p.GetSpeedBitsPerSecond() > 0 {
						speed = bitRate(p.GetSpeedBitsPerSecond())
					}
					if p.GetPeerPort() != "" {
						peer += ":" + p.GetPeerPort()
					}
					if p.GetPeerNode() != "" {
						peer = "node " + p.GetPeerNode()
					}
					state := text.Cell{Text: enumName(p.GetState().String(), "PORT_STATE_")}
					if p.GetState() == adapterv1.PortState_PORT_STATE_DOWN {
						state.Color = text.Red
					}
					t.Row(p.GetName(), state, speed, peer, rateText(p.GetErrorsPpm()), rateText(p.GetLossPpm()), p.GetReason())
				}
				return t.Write(w, color)
			}})
		},
	}
}

func equipmentReportCommand(c *cli) *cobra.Command {
	req := &networkv1.ReportEquipmentRequest{}
	var file string
	var silence time.Duration
	cmd := &cobra.Command{
		Use: "report", Short: "Report network equipment, as a platform of network management does",
		Long: `Reports equipment of a center and how it is. What is reported of one name replaces what was; equipment that is not
named stays as it was, with --whole it is no more. With --silence the platform expects another report within that time.

The file has {"equipment": [...]} as JSON, each as in the API: name, kind, state, reason and ports with what is at their
other end. Without a file only that the source lives is told, and what --gone says.`,
		Example: `  yunhe network equipment report --center gz-1 --source nms -f equipment.json --whole --silence 2m`,
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.AiCenterId == "" || req.Source == "" {
				return usagef("--center and --source are needed")
			}
			if file != "" {
				b, err := c.readInput(file, 16<<20)
				if err != nil {
					return err
				}
				said := &networkv1.ReportEquipmentRequest{}
				if err := protojson.Unmarshal(b, said); err != nil {
					return usagef("%s is not right: %v", file, err)
				}
				req.Equipment = said.Equipment
			} else if req.Whole {
				return usagef("--whole needs a file: without one all equipment of the source would be gone")
			}
			req.SilenceSeconds = int64(silence / time.Second)
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.equipment.ReportEquipment(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.print(result{msg: res, names: []string{fmt.Sprint(res.GetChanged())}, print: func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintf(w, "%d reported, %d changed\n", len(req.Equipment), res.GetChanged())
				return err
			}})
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.AiCenterId, "center", "", "the center it is of")
	f.StringVar(&req.Source, "source", "", "who reports")
	f.StringVarP(&file, "file", "f", "", "what is reported, as JSON; - reads standard input")
	f.StringSliceVar(&req.Gone, "gone", nil, "names of what is no more")
	f.BoolVar(&req.Whole, "whole", false, "the file has all there is")
	f.DurationVar(&silence, "silence", 0, "how long this source may say nothing (default: as long as it likes)")
	return cmd
}

func equipmentRuleName(k networkv1.EquipmentRule_Kind) string {
	return strings.ReplaceAll(enumName(k.String(), "KIND_"), "_", "-")
}

func (c *cli) printEquipmentRules(msg proto.Message, rules ...*networkv1.EquipmentRule) error {
	t := text.NewTable("RULE", "ENABLED", ">THRESHOLD", "SEVERITY")
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = equipmentRuleName(r.Kind)
		threshold := fmt.Sprintf("%d s", r.Threshold)
		switch r.Kind {
		case networkv1.EquipmentRule_KIND_LINK_ERRORS, networkv1.EquipmentRule_KIND_LINK_LOSS, networkv1.EquipmentRule_KIND_PATH_LOSS:
			threshold = fmt.Sprintf("%d ppm", r.Threshold)
		case networkv1.EquipmentRule_KIND_NETWORK_UNAVAILABLE:
			threshold = ""
		}
		t.Row(names[i], onOff(r.Enabled), threshold, severities[r.Severity&3])
	}
	return c.print(result{msg: msg, names: names, print: t.Write})
}

func equipmentRuleListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the rules; what they find is in yunhe alarm list",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.equipment.ListEquipmentRules(cmd.Context(), &networkv1.ListEquipmentRulesRequest{})
			if err != nil {
				return err
			}
			return c.printEquipmentRules(res, res.Rules...)
		},
	}
}

func equipmentRuleSetCommand(c *cli) *cobra.Command {
	const example = `  yunhe network rule set link-errors --threshold 500 --severity major
  yunhe network rule set path-loss --disable`
	const threshold = "from here on it is an alarm: seconds, or millionths of what is sent"
	return c.ruleSetCommand("yunhe network rule", example, threshold, func(ctx context.Context, a *api) (rules []alarmRule, err error) {
		res, err := a.equipment.ListEquipmentRules(ctx, &networkv1.ListEquipmentRulesRequest{})
		for _, r := range res.GetRules() {
			rules = append(rules, alarmRule{equipmentRuleName(r.Kind), &r.Enabled, &r.Threshold, &r.Severity, func() error {
				got, err := a.equipment.SetEquipmentRule(ctx, &networkv1.SetEquipmentRuleRequest{Rule: r})
				if err != nil {
					return err
				}
				return c.printEquipmentRules(got, got)
			}})
		}
		return rules, err
	})
}
