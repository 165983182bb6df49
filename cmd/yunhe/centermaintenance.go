package main

import (
	"cmp"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	calendarv1 "yunhe.dev/yunhe/gen/yunhe/calendar/v1"
)

func centerMaintenanceCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "maintenance", Short: "When centers, or nodes of them, are out of use",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(maintenancePlanCommand(c), maintenanceListCommand(c), maintenanceShowCommand(c), maintenanceCancelCommand(c))
	return cmd
}

// runsNames by what the command line calls them.
var runsNames = map[string]calendarv1.Maintenance_Runs{"finish": calendarv1.Maintenance_RUNS_FINISH, "requeue": calendarv1.Maintenance_RUNS_REQUEUE}

func maintenancePlanCommand(c *cli) *cobra.Command {
	req := &calendarv1.CreateMaintenanceRequest{}
	var start, end, runs string
	var notice, drain time.Duration
	cmd := &cobra.Command{
		Use: "plan CENTER", Short: "Plan maintenance, once or again and again",
		Long: `Plans maintenance of a center, or of nodes of it. Jobs that would reach into it are
not sent there, or only into the room that the center has beside those nodes;
those that do not say how long they run are taken to run for an hour. Nodes are
isolated when it begins, or --drain before, and take work again when it ends.

  --runs finish   what runs when it begins goes on
  --runs requeue  what runs is stopped --notice before it begins, and waits in the
                  queue again without using up a retry`,
		Example: `  yunhe center maintenance plan gz-1 --from 2026-12-01T01:00:00Z --until 2026-12-01T05:00:00Z --runs requeue --notice 10m --reason "new disks"
  yunhe center maintenance plan gz-1 --node n17 --node n18 --from 12h --until 14h --runs requeue
  yunhe center maintenance plan gz-1 --from 2026-12-05T18:00:00Z --until 2026-12-05T20:00:00Z --repeat "FREQ=WEEKLY" --zone Asia/Shanghai`,
		Args: takes(1, 1, "the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var ok bool
			if req.Runs, ok = runsNames[runs]; !ok {
				return usagef("--runs: want finish or requeue, got %q", runs)
			}
			if req.NoticeSeconds, err = wholeSeconds("--notice", notice); err != nil {
				return err
			}
			if req.DrainSeconds, err = wholeSeconds("--drain", drain); err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			if req.StartAt, err = c.moment("--from", start); err != nil {
				return err
			}
			if req.EndAt, err = c.moment("--until", end); err != nil {
				return err
			}
			req.AiCenterId = args[0]
			got, err := a.calendar.CreateMaintenance(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.printMaintenance(got)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&req.Nodes, "node", nil, "only of this node of the center; may be given again")
	f.StringVar(&req.Reason, "reason", "", "why, for people")
	f.StringVar(&req.RequestId, "request-id", "", "makes it safe to repeat")
	f.StringVar(&start, "from", "", "when it begins: a time, or how far ahead (12h, 2d) (default now)")
	f.StringVar(&end, "until", "", "when it ends, likewise")
	f.StringVar(&req.Recurrence, "repeat", "", "comes again by this rule of iCalendar")
	f.StringVar(&req.TimeZone, "zone", "", "time zone of the rule (default UTC)")
	f.StringVar(&runs, "runs", "finish", "finish or requeue")
	f.DurationVar(&notice, "notice", 0, "with --runs requeue: how long before it begins runs are asked to end")
	f.DurationVar(&drain, "drain", 0, "so long before it begins nothing is sent there, however short, and nodes are isolated")
	return cmd
}

func maintenanceState(m *calendarv1.Maintenance) string {
	return strings.ReplaceAll(enumName(m.GetState().String(), "STATE_"), "_", " ")
}

func (c *cli) printMaintenance(m *calendarv1.Maintenance) error {
	return c.print(result{msg: m, names: []string{m.GetMaintenanceId()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Maintenance", m.GetMaintenanceId())
		f.Add("Center", m.GetAiCenterId())
		for _, n := range m.GetNodes() {
			f.Add("Node", maintainedNode(n))
		}
		f.Add("Reason", m.GetReason())
		f.Add("State", maintenanceState(m))
		f.Add("From", c.stamp(m.GetStartAt()))
		f.Add("Until", c.stamp(m.GetEndAt()))
		f.Add("Repeats", strings.TrimSpace(m.GetRecurrence()+" "+m.GetTimeZone()))
		if m.GetRecurrence() != "" {
			f.Add("Next from", c.stamp(m.GetNextStartAt()))
			f.Add("Next until", c.stamp(m.GetNextEndAt()))
		}
		f.Add("Runs", enumName(m.GetRuns().String(), "RUNS_"))
		if n := m.GetNoticeSeconds(); n > 0 {
			f.Add("Notice", text.Duration(time.Duration(n)*time.Second))
		}
		if n := m.GetDrainSeconds(); n > 0 {
			f.Add("Drained before", text.Duration(time.Duration(n)*time.Second))
		}
		f.Add("Meets reservations", strings.Join(m.GetReservationIds(), " "))
		f.Add("Planned by", m.GetUserName())
		return f.Write(w, color)
	}})
}

// maintainedNode is a node and how it stands.
func maintainedNode(n *calendarv1.Maintenance_Node) string {
	switch {
	case n.GetProblem() != "":
		return n.GetName() + ": not isolated yet: " + n.GetProblem()
	case n.GetIsolated():
		return n.GetName() + ": isolated"
	}
	return n.GetName()
}

func maintenanceListCommand(c *cli) *cobra.Command {
	var p paging
	req := &calendarv1.ListMaintenanceRequest{}
	cmd := &cobra.Command{
		Use: "list [CENTER]", Short: "List maintenance that is planned or under way",
		Args: takes(0, 1, "the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				req.AiCenterId = args[0]
			}
			rows, next, err := pages(p, func(size int32, token string) ([]*calendarv1.Maintenance, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.calendar.ListMaintenance(cmd.Context(), req)
				return res.GetMaintenance(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(rows))
			for i, r := range rows {
				names[i] = r.GetMaintenanceId()
			}
			err = c.print(result{msg: &calendarv1.ListMaintenanceResponse{Maintenance: rows, NextPageToken: next}, names: names, print: func(w io.Writer, color bool) error {
				t := text.NewTable("MAINTENANCE", "CENTER", "NODES", "STATE", "FROM", "UNTIL", "RUNS", "REPEATS", "REASON")
				for _, m := range rows {
					from, until := m.GetNextStartAt(), m.GetNextEndAt()
					if from == nil {
						from, until = m.GetStartAt(), m.GetEndAt()
					}
					nodes := make([]string, len(m.GetNodes()))
					for i, n := range m.GetNodes() {
						nodes[i] = n.GetName()
					}
					t.Row(m.GetMaintenanceId(), m.GetAiCenterId(), cmp.Or(strings.Join(nodes, " "), "all"), maintenanceState(m), c.plain(from), c.plain(until), enumName(m.GetRuns().String(), "RUNS_"), m.GetRecurrence(), m.GetReason())
				}
				return t.Write(w, color)
			}})
			c.noteMore(len(rows), next)
			return err
		},
	}
	cmd.Flags().BoolVar(&req.All, "over", false, "also what is over")
	pageFlags(cmd, &p, 50)
	return cmd
}

func maintenanceShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show MAINTENANCE", Short: "Show maintenance",
		Args: takes(1, 1, "the ID of a maintenance"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			m, err := a.calendar.GetMaintenance(cmd.Context(), &calendarv1.GetMaintenanceRequest{MaintenanceId: args[0]})
			if err != nil {
				return err
			}
			return c.printMaintenance(m)
		},
	}
}

func maintenanceCancelCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "cancel MAINTENANCE...", Short: "End maintenance now, with all times to come",
		Args: takes(1, -1, "the ID of a maintenance"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.eachDone(args, "maintenanceIds", "canceled", func(a *api, id string) error {
				_, err := a.calendar.CancelMaintenance(cmd.Context(), &calendarv1.CancelMaintenanceRequest{MaintenanceId: id})
				return err
			})
		},
	}
}
