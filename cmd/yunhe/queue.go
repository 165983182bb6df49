package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
)

func queueCommand(c *cli) *cobra.Command {
	return group("queue", groupNetwork, "Share what there is among tenants: weights, guarantees, limits",
		queueListCommand(c), queueShowCommand(c), queueSetCommand(c), queueDeleteCommand(c), queueSettingsCommand(c))
}

func queueListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List queues with what is in use",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.queues.ListQueues(cmd.Context(), &schedulerv1.ListQueuesRequest{})
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("QUEUE", "IN", ">WEIGHT", "GUARANTEED", "LIMIT", "USED", ">SHARE", ">WAITING")
			for _, q := range res.GetQueues() {
				names = append(names, q.GetQueueId())
				t.Row(q.GetQueueId(), q.GetParentId(), q.GetWeight(), pairs(q.GetGuaranteed()), pairs(q.GetLimit()), pairs(q.GetUsed()), permille((q.GetSharePpm()+500)/1000), q.GetWaitingJobs())
			}
			return c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
				if t.Len() == 0 {
					c.note("there are no queues: every tenant has the same weight and no limit")
					return nil
				}
				return t.Write(w, color)
			}})
		},
	}
}

func queueShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show QUEUE", Short: "Show a queue with what is in use",
		Args: takes(1, 1, "the ID of a queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			q, err := a.queues.GetQueue(cmd.Context(), &schedulerv1.GetQueueRequest{QueueId: args[0]})
			if err != nil {
				return err
			}
			return c.printQueue(q)
		},
	}
}

func (c *cli) printQueue(q *schedulerv1.Queue) error {
	return c.print(result{msg: q, names: []string{q.GetQueueId()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Queue", q.GetQueueId())
		f.Add("In", q.GetParentId())
		f.Add("Weight", fmt.Sprint(q.GetWeight()))
		f.Add("Guaranteed", pairs(q.GetGuaranteed()))
		f.Add("May borrow", pairs(q.GetBorrowable()))
		f.Add("Limit", pairs(q.GetLimit()))
		f.Add("Used", pairs(q.GetUsed()))
		f.Add("Share", permille((q.GetSharePpm()+500)/1000))
		f.Add("Jobs that wait", fmt.Sprint(q.GetWaitingJobs()))
		f.Add("Updated", c.stamp(q.GetUpdatedAt()))
		return f.Write(w, color)
	}})
}

// amounts reads RESOURCE=AMOUNT,...
func amounts(flag string, given []string) (map[string]string, error) {
	out := map[string]string{}
	for _, g := range given {
		for _, one := range strings.Split(g, ",") {
			k, v, ok := strings.Cut(one, "=")
			if !ok || k == "" || v == "" {
				return nil, usagef("--%s: want a resource such as cpu=8, got %q", flag, one)
			}
			if _, twice := out[k]; twice {
				return nil, usagef("--%s: resource %s is given twice", flag, k)
			}
			out[k] = v
		}
	}
	return out, nil
}

func queueSetCommand(c *cli) *cobra.Command {
	q := &schedulerv1.Queue{}
	var guaranteed, borrowable, limit []string
	cmd := &cobra.Command{
		Use: "set QUEUE", Short: "Make a queue, or replace all that is said of it",
		Long: `Makes a queue, or replaces all that is said of it. A queue named as a tenant holds
that tenant's work; any other groups queues (--in). Amounts are as in
specifications: cpu=8,memory=64Gi,gpu=2.

  weight      its share against the others of its group
  guaranteed  what it gets as soon as it asks for it
  borrowable  what it may use beyond that while others do not; not given: all
  limit       what it may never exceed; what runs already goes on`,
		Example: `  yunhe queue set science --weight 3 --limit gpu=64
  yunhe queue set physics --in science --guaranteed gpu=16 --borrowable gpu=8`,
		Args: takes(1, 1, "the ID of a queue"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			for _, f := range []struct {
				name  string
				given []string
				to    *map[string]string
			}{{"guaranteed", guaranteed, &q.Guaranteed}, {"borrowable", borrowable, &q.Borrowable}, {"limit", limit, &q.Limit}} {
				if *f.to, err = amounts(f.name, f.given); err != nil {
					return err
				}
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			got, err := a.queues.SetQueue(cmd.Context(), &schedulerv1.SetQueueRequest{QueueId: args[0], Queue: q})
			if err != nil {
				return err
			}
			return c.printQueue(got)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.ParentId, "in", "", "the group it is in (default: at the top)")
	f.Int64Var(&q.Weight, "weight", 1, "its share against the others of its group")
	f.StringArrayVar(&guaranteed, "guaranteed", nil, "RESOURCE=AMOUNT,... (repeatable)")
	f.StringArrayVar(&borrowable, "borrowable", nil, "RESOURCE=AMOUNT,... (repeatable)")
	f.StringArrayVar(&limit, "limit", nil, "RESOURCE=AMOUNT,... (repeatable)")
	return cmd
}

func queueDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete QUEUE...", Short: "Delete queues that have none below them",
		Args: takes(1, -1, "the ID of a queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.eachDone(args, "queueIds", "deleted", func(a *api, id string) error {
				_, err := a.queues.DeleteQueue(cmd.Context(), &schedulerv1.DeleteQueueRequest{QueueId: id})
				return err
			})
		},
	}
}

func queueSettingsCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "settings", Short: "Show how work is ordered, in all queues",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			s, err := a.queues.GetQueueSettings(cmd.Context(), &schedulerv1.GetQueueSettingsRequest{})
			if err != nil {
				return err
			}
			return c.printQueueSettings(s)
		},
	}
	cmd.AddCommand(queueSettingsSetCommand(c))
	return cmd
}

// queueOrderNames by what the command line calls them.
var queueOrderNames = map[string]schedulerv1.QueueSettings_Order{
	"priority": schedulerv1.QueueSettings_ORDER_PRIORITY, "fair": schedulerv1.QueueSettings_ORDER_FAIR, "first-come": schedulerv1.QueueSettings_ORDER_FIRST_COME,
}

func (c *cli) printQueueSettings(s *schedulerv1.QueueSettings) error {
	return c.print(result{msg: s, names: []string{enumName(s.GetOrder().String(), "ORDER_")}, print: func(w io.Writer, color bool) error {
		never := func(n int64) string {
			if n == 0 {
				return "never"
			}
			return text.Duration(time.Duration(n) * time.Second)
		}
		yes := map[bool]string{true: "yes", false: "no"}
		var f text.Facts
		f.Add("Order", strings.ReplaceAll(enumName(s.GetOrder().String(), "ORDER_"), "_", "-"))
		f.Add("Past use halves after", never(s.GetHalfLifeSeconds()))
		f.Add("A point of priority for waiting", never(s.GetAgeingSeconds()))
		f.Add("Points at most", fmt.Sprint(s.GetAgeingMost()))
		f.Add("Room is kept for what waits", yes[s.GetBackfill()])
		f.Add("Runs taken back for priority", yes[s.GetPreemptPriority()])
		f.Add("Runs taken back for guarantees", yes[s.GetPreemptReclaim()])
		f.Add("Updated", c.stamp(s.GetUpdatedAt()))
		return f.Write(w, color)
	}})
}

func queueSettingsSetCommand(c *cli) *cobra.Command {
	var order string
	var halfLife, ageing time.Duration
	s := &schedulerv1.QueueSettings{}
	cmd := &cobra.Command{
		Use: "set", Short: "Replace how work is ordered",
		Long: `Replaces all settings: what is not given is as at the first start.

  priority    by priority, then by arrival, whoever's it is
  fair        by priority, then whose dominant share by weight is the smallest
  first-come  by arrival alone`,
		Example: `  yunhe queue settings set --order fair --half-life 24h --backfill --preempt-reclaim`,
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ok bool
			if s.Order, ok = queueOrderNames[order]; !ok {
				return usagef("--order: want priority, fair or first-come, got %q", order)
			}
			for _, f := range []struct {
				name string
				d    time.Duration
				to   *int64
			}{{"half-life", halfLife, &s.HalfLifeSeconds}, {"ageing", ageing, &s.AgeingSeconds}} {
				if f.d < 0 || f.d%time.Second != 0 {
					return usagef("--%s: want whole seconds, got %s", f.name, f.d)
				}
				*f.to = int64(f.d / time.Second)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			got, err := a.queues.SetQueueSettings(cmd.Context(), &schedulerv1.SetQueueSettingsRequest{Settings: s})
			if err != nil {
				return err
			}
			return c.printQueueSettings(got)
		},
	}
	f := cmd.Flags()
	f.StringVar(&order, "order", "priority", "priority, fair or first-come")
	f.DurationVar(&halfLife, "half-life", 0, "past use counts half after this time (default: only what is in use counts)")
	f.DurationVar(&ageing, "ageing", 0, "waiting so long is worth a point of priority (default: none)")
	f.Int64Var(&s.AgeingMost, "ageing-most", 0, "points at most; 0 means 100")
	f.BoolVar(&s.Backfill, "backfill", false, "keep room for what cannot start yet; others may pass if they do not delay it")
	f.BoolVar(&s.PreemptPriority, "preempt-priority", false, "take runs back for work of a higher priority")
	f.BoolVar(&s.PreemptReclaim, "preempt-reclaim", false, "take runs back for queues below what is guaranteed to them")
	return cmd
}
