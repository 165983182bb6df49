package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
)

// alarmRule is a rule that raises alarms, of the pool's or of network equipment's.
type alarmRule struct {
	name      string
	enabled   *bool
	threshold *int64
	severity  *int32
	set       func() error // sends it as it is then, and prints it
}

// severities are what a rule's number means.
var severities = []string{"", "warning", "major", "critical"}

func (c *cli) ruleSetCommand(group, example, threshold string, list func(ctx context.Context, a *api) ([]alarmRule, error)) *cobra.Command {
	var enable, disable bool
	var from int64
	var severity string
	cmd := &cobra.Command{
		Use: "set RULE", Short: "Enable, disable or change a rule",
		Example: example,
		Args:    takes(1, 1, "a rule, as "+group+" list names it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if enable && disable {
				return usagef("--enable and --disable do not go together")
			}
			n := slices.Index(severities, severity)
			if n < 0 {
				return usagef("--severity: want warning, major or critical, got %q", severity)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			rules, err := list(cmd.Context(), a)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(rules, func(r alarmRule) bool { return r.name == args[0] })
			if i < 0 {
				return usagef("there is no rule %q; see %s list", args[0], group)
			}
			r := rules[i]
			*r.enabled = (*r.enabled || enable) && !disable
			if cmd.Flags().Changed("threshold") {
				*r.threshold = from
			}
			if n > 0 {
				*r.severity = int32(n)
			}
			return r.set()
		},
	}
	f := cmd.Flags()
	f.BoolVar(&enable, "enable", false, "let it raise alarms")
	f.BoolVar(&disable, "disable", false, "let it raise none; those it raised are cleared")
	f.Int64Var(&from, "threshold", 0, threshold)
	f.StringVar(&severity, "severity", "", "warning, major or critical")
	return cmd
}
