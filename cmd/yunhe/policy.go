package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
)

func policyCommand(c *cli) *cobra.Command {
	cmd := group("policy", groupNetwork, "Scheduling policies, their weights and versions", policyListCommand(c), policyWeightsCommand(c))
	cmd.AddCommand(policyRecordCommands(c)...)
	return cmd
}

func policyListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List scheduling policies and presets of weights",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.scheduler.ListPolicies(cmd.Context(), &schedulerv1.ListPoliciesRequest{})
			if err != nil {
				return err
			}
			var names []string
			for _, p := range res.GetPolicies() {
				names = append(names, p.GetPolicyId())
			}
			return c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
				return c.showPolicies(w, color, res)
			}})
		},
	}
}

func (c *cli) showPolicies(w io.Writer, color bool, res *schedulerv1.ListPoliciesResponse) error {
	columns := []string{"POLICY", "TITLE", "PREFERS"}
	if c.wide() {
		columns = []string{"POLICY", "TITLE", "TITLE (CHINESE)", "FACTORS", "PREFERS"}
	}
	t := text.NewTable(columns...)
	for _, p := range res.GetPolicies() {
		if c.wide() {
			t.Row(p.GetPolicyId(), p.GetTitle(), p.GetTitleZh(), strings.Join(p.GetFactors(), ","), p.GetDoc())
		} else {
			t.Row(p.GetPolicyId(), p.GetTitle(), p.GetDoc())
		}
	}
	if err := t.Write(w, color); err != nil || len(res.GetPresets()) == 0 {
		return err
	}
	presets := text.NewTable("PRESET", "WEIGHTS")
	for _, p := range res.GetPresets() {
		presets.Row(p.GetName(), pairs(p.GetWeights()))
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return presets.Write(w, color)
}

func policyWeightsCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "weights", Short: "Show the weights used for jobs that bring none",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			set, err := a.scheduler.GetPolicySet(cmd.Context(), &schedulerv1.GetPolicySetRequest{})
			if err != nil {
				return err
			}
			return c.printWeights(set)
		},
	}
	cmd.AddCommand(policyWeightsSetCommand(c))
	return cmd
}

func (c *cli) printWeights(set *schedulerv1.PolicySet) error {
	ids := slices.SortedFunc(maps.Keys(set.GetWeights()), func(a, b string) int {
		return cmp.Or(cmp.Compare(set.Weights[b], set.Weights[a]), cmp.Compare(a, b))
	})
	return c.print(result{msg: set, names: ids, print: func(w io.Writer, color bool) error {
		total := int64(0)
		for _, n := range set.GetWeights() {
			total += int64(n)
		}
		t := text.NewTable("POLICY", ">WEIGHT", ">SHARE")
		for _, id := range ids {
			n := int64(set.GetWeights()[id])
			share := "-"
			if total > 0 {
				share = permille((n*1000 + total/2) / total)
			}
			t.Row(id, n, share)
		}
		preset, at := "", ""
		if set.GetPreset() != "" {
			preset = fmt.Sprintf("preset %q", set.GetPreset())
		}
		if set.GetUpdatedAt() != nil {
			at = "set " + c.ago(set.GetUpdatedAt())
		}
		if said := joinNonEmpty(", ", preset, at); said != "" {
			c.note("%s", said)
		}
		return t.Write(w, color)
	}})
}

func policyWeightsSetCommand(c *cli) *cobra.Command {
	var preset string
	cmd := &cobra.Command{
		Use: "set (POLICY=WEIGHT... | --preset NAME)", Short: "Replace the weights",
		Long: `Replaces all weights: a policy that is not named gets weight 0. Weights are whole
numbers from 0 to 1000; only their proportion counts.`,
		Example: `  yunhe policy weights set lowest-price=60 least-load=40
  yunhe policy weights set --preset balanced`,
		Args: takes(0, -1, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (preset == "") == (len(args) == 0) {
				return &usageError{msg: "want either POLICY=WEIGHT or --preset NAME", hint: "`yunhe policy list` shows policies and presets"}
			}
			set := &schedulerv1.PolicySet{Preset: preset, Weights: map[string]int32{}}
			for _, arg := range args {
				id, weight, _ := strings.Cut(arg, "=")
				n, err := strconv.ParseInt(weight, 10, 32)
				if id == "" || err != nil {
					return usagef("want POLICY=WEIGHT with a whole number, got %q", arg)
				}
				if _, twice := set.Weights[id]; twice {
					return usagef("policy %s is given twice", id)
				}
				set.Weights[id] = int32(n)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			set, err = a.scheduler.SetPolicySet(cmd.Context(), &schedulerv1.SetPolicySetRequest{PolicySet: set})
			if err != nil {
				return err
			}
			return c.printWeights(set)
		},
	}
	cmd.Flags().StringVar(&preset, "preset", "", "use the weights of this preset")
	return cmd
}
