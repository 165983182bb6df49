package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
)

func jobCostCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "cost JOB", Short: "Show what a job cost, run by run",
		Long: `Shows one line per run of a replica that has ended. The lines sum to exactly
the total: what rounding to whole fen leaves goes to the lines with the largest
remainders. With -o wide also the exact cost.`,
		Args: takes(1, 1, "the ID of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			cost, err := a.metering.GetJobCost(cmd.Context(), &meteringv1.GetJobCostRequest{JobId: args[0]})
			if err != nil {
				return err
			}
			return c.print(result{msg: cost, names: []string{cost.GetJobId()}, print: func(w io.Writer, color bool) error {
				return c.costTable(cost).Write(w, color)
			}})
		},
	}
}

func (c *cli) costTable(cost *meteringv1.JobCost) *text.Table {
	columns := []string{"REPLICA", ">RUN", "CENTER", "SPEC", ">RAN", ">PRICE", ">COST"}
	if c.wide() {
		columns = append(columns, ">EXACT", ">CPU TIME", ">MEMORY", "ENDED")
	}
	t := text.NewTable(columns...)
	for _, l := range cost.GetLines() {
		u := l.GetUsage()
		row := []any{
			fmt.Sprintf("%s/%d", u.GetTaskName(), u.GetReplicaIndex()), u.GetAttempt(), u.GetAiCenterId(), u.GetResourceSpecId(),
			microseconds(u.GetDurationMicroseconds()), text.Fen(u.GetPrice()) + "/h", text.Fen(l.GetFen()),
		}
		if c.wide() {
			row = append(row, text.Micros(u.GetCostMicros()), microseconds(u.GetCpuMicroseconds()), memory(u.GetMemoryPeakBytes()), c.ago(u.GetEndedAt()))
		}
		t.Row(row...)
	}
	blank := text.Cell{Text: " "}
	total := []any{text.Cell{Text: "total", Color: text.Bold}, blank, blank, blank, blank, blank, text.Cell{Text: text.Fen(cost.GetTotalFen()), Color: text.Bold}}
	if c.wide() {
		total = append(total, text.Micros(cost.GetTotalMicros()), blank, blank, blank)
	}
	t.Row(total...)
	return t
}
