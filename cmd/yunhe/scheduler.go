package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
)

func schedulerCommand(c *cli) *cobra.Command {
	return group("scheduler", groupNetwork, "How fast work is scheduled, and what waits", schedulerStatsCommand(c))
}

func schedulerStatsCommand(c *cli) *cobra.Command {
	var window time.Duration
	cmd := &cobra.Command{
		Use: "stats", Short: "Show scheduling time, throughput and the tenants' queues",
		Long: `Shows the figures of T/AI 123.6, 6.7, for a window that ends now and since counting
began, over all restarts:

  T           scheduling time of a job, equation 3: from receiving the request to
              the moment all its replicas were issued to centers. What waits for
              room waits in it. job get shows that of one job.
  throughput  equation 4: jobs whose scheduling completed / time the scheduling
              cycles used. What really came through per second is beside it.`,
		Example: `  yunhe scheduler stats
  yunhe scheduler stats --window 1h -o json`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			if window%time.Second != 0 || window < 0 {
				return usagef("--window: want whole seconds, got %s", window)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			st, err := a.scheduler.GetSchedulingStats(cmd.Context(), &schedulerv1.GetSchedulingStatsRequest{WindowSeconds: int64(window / time.Second)})
			if err != nil {
				return err
			}
			var names []string
			for _, t := range st.GetTenants() {
				names = append(names, t.GetTenantId())
			}
			return c.print(result{msg: st, names: names, print: func(w io.Writer, color bool) error { return c.showSchedulingStats(w, color, st) }})
		},
	}
	cmd.Flags().DurationVar(&window, "window", 0, "length of the window, at most 24h (default 5m)")
	return cmd
}

func (c *cli) showSchedulingStats(w io.Writer, color bool, st *schedulerv1.GetSchedulingStatsResponse) error {
	win := st.GetWindow()
	t := text.NewTable("", ">LAST "+text.Duration(time.Duration(win.GetSeconds())*time.Second), ">SINCE "+c.stamp(st.GetSince()))
	t.Row("jobs scheduled", win.GetJobsScheduled(), st.GetJobsScheduled())
	t.Row("replicas placed", win.GetReplicasPlaced(), st.GetReplicasPlaced())
	t.Row("time used for it", micros(win.GetTotalMicroseconds()), micros(st.GetTotalMicroseconds()))
	t.Row("throughput, jobs/s of that time", rate(win.GetThroughputPerSecond()), rate(st.GetThroughputPerSecond()))
	t.Row("jobs/s that came through", rate(win.GetJobsPerSecond()), "")
	if err := t.Write(w, color); err != nil {
		return err
	}
	t = text.NewTable("SCHEDULING TIME T", ">JOBS", ">P50", ">P95", ">P99", ">LONGEST")
	t.Row("received in the window", win.GetMeasuredJobs(), micros(win.GetSchedulingP50Microseconds()), micros(win.GetSchedulingP95Microseconds()),
		micros(win.GetSchedulingP99Microseconds()), micros(win.GetSchedulingMaxMicroseconds()))
	t.Row("the last 1000", "", micros(st.GetSchedulingP50Microseconds()), micros(st.GetSchedulingP95Microseconds()), micros(st.GetSchedulingP99Microseconds()), "")
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := t.Write(w, color); err != nil || len(st.GetTenants()) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	t = text.NewTable("TENANT", ">JOBS THAT WAIT", ">REPLICAS", ">LONGEST")
	for _, q := range st.GetTenants() {
		t.Row(q.GetTenantId(), q.GetJobs(), q.GetReplicas(), c.ago(q.GetOldestAt()))
	}
	return t.Write(w, color)
}

// micros shows a short time in the unit that suits it; "-" if there is none.
func micros(us int64) string {
	if us == 0 {
		return "-"
	}
	d := time.Duration(us) * time.Microsecond
	switch {
	case d < time.Millisecond:
		return d.String()
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}

func rate(perSecond float64) string {
	if perSecond == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", perSecond)
}
