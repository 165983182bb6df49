package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	monitorv1 "yunhe.dev/yunhe/gen/yunhe/monitor/v1"
)

func jobTopCommand(c *cli) *cobra.Command {
	var limit int32
	cmd := &cobra.Command{
		Use: "top [JOB]", Short: "Show what running jobs use now",
		Long: `Shows what runs use now, beside what is reserved for them: those of a job, or of
all jobs you may see, the most CPU first. A run is listed once its center has
measured it, some 10 seconds after it began. Not all centers measure runs.`,
		Args: takes(0, 1, "the ID of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 200 {
				return usagef("--limit: want 1 to 200, got %d", limit)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			req := &monitorv1.ListRunFiguresRequest{Limit: limit}
			if len(args) == 1 {
				req.JobId = args[0]
			}
			res, err := a.monitor.ListRunFigures(cmd.Context(), req)
			if err != nil {
				return err
			}
			names := make([]string, len(res.GetRuns()))
			for i, r := range res.GetRuns() {
				names[i] = r.GetAttemptId()
			}
			return c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
				return c.runsTable(res.GetRuns()).Write(w, color)
			}})
		},
	}
	cmd.Flags().Int32Var(&limit, "limit", 20, "at most this many runs, up to 200")
	return cmd
}

func (c *cli) runsTable(runs []*monitorv1.RunFigures) *text.Table {
	columns := []string{"JOB", "NAME", "REPLICA", "CENTER", ">CPU", ">OF", ">MEMORY", ">OF", "MEASURED"}
	if c.wide() {
		columns = append(columns, "RUN")
	}
	t := text.NewTable(columns...)
	for _, r := range runs {
		row := []any{
			r.GetJobId(), r.GetJobName(), fmt.Sprintf("%s/%d", r.GetTaskName(), r.GetReplicaIndex()), r.GetAiCenterId(),
			number(r.GetCpuCores(), 2), reservedCores(r.GetReservedCpuCores()), text.Bytes(r.GetMemoryBytes()), memory(r.GetReservedMemoryBytes()), c.ago(r.GetMeasuredAt()),
		}
		if c.wide() {
			row = append(row, r.GetAttemptId())
		}
		t.Row(row...)
	}
	return t
}

func reservedCores(n float64) string {
	if n == 0 {
		return "-"
	}
	return number(n, 3)
}
