package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
)

func usageCommand(c *cli) *cobra.Command {
	return group("usage", groupJobs, "What ran, for how long, at what cost", usageListCommand(c), usageExportCommand(c))
}

// usageFilter is the flags that usage list and export share.
type usageFilter struct {
	req           meteringv1.ListUsageRequest
	after, before string
}

func (u *usageFilter) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&u.req.JobId, "job", "", "only runs of this job")
	f.StringVar(&u.req.AiCenterId, "center", "", "only runs at this center")
	f.StringVar(&u.req.AllocationId, "allocation", "", "only held time of this allocation")
	f.StringVar(&u.req.UserName, "user", "", "only runs of this user")
	f.StringVar(&u.req.TenantId, "tenant", "", "only runs of this tenant")
	f.StringVar(&u.after, "after", "", "ended at this time or later: a time, a date, or how long ago (2h, 7d)")
	f.StringVar(&u.before, "before", "", "ended before this time")
}

func (u *usageFilter) request(c *cli) (err error) {
	if u.req.EndedAfter, err = c.parseTime("--after", u.after); err != nil {
		return err
	}
	u.req.EndedBefore, err = c.parseTime("--before", u.before)
	return err
}

func listUsage(ctx context.Context, a *api, filter *meteringv1.ListUsageRequest, size int32, token string) ([]*meteringv1.Usage, string, error) {
	req := proto.CloneOf(filter)
	req.PageSize, req.PageToken = size, token
	res, err := a.metering.ListUsage(ctx, req)
	return res.GetUsage(), res.GetNextPageToken(), err
}

func usageListCommand(c *cli) *cobra.Command {
	var p paging
	var u usageFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List usage records, newest first",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := u.request(c); err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			usage, next, err := pages(p, func(size int32, token string) ([]*meteringv1.Usage, string, error) {
				return listUsage(cmd.Context(), a, &u.req, size, token)
			})
			if err != nil {
				return err
			}
			names := make([]string, len(usage))
			for i, r := range usage {
				names[i] = r.GetAttemptId()
			}
			err = c.print(result{
				msg: &meteringv1.ListUsageResponse{Usage: usage, NextPageToken: next}, names: names,
				print: func(w io.Writer, color bool) error { return c.usageTable(usage).Write(w, color) },
			})
			c.noteMore(len(usage), next)
			return err
		},
	}
	u.flags(cmd)
	pageFlags(cmd, &p, 50)
	return cmd
}

func (c *cli) usageTable(usage []*meteringv1.Usage) *text.Table {
	columns := []string{"JOB", "REPLICA", ">RUN", "CENTER", "SPEC", "ENDED", ">RAN", ">CPU TIME", ">MEMORY", ">PRICE", ">COST"}
	if c.wide() {
		columns = append(columns, "TENANT", "USER", "ATTEMPT", "STARTED")
	}
	t := text.NewTable(columns...)
	for _, u := range usage {
		what, which, run := u.GetJobId(), fmt.Sprintf("%s/%d", u.GetTaskName(), u.GetReplicaIndex()), fmt.Sprint(u.GetAttempt())
		if u.GetKind() == meteringv1.Usage_KIND_HELD {
			what, which, run = u.GetAllocationId(), "held", ""
		}
		row := []any{
			what, which, run, u.GetAiCenterId(), u.GetResourceSpecId(),
			c.ago(u.GetEndedAt()), microseconds(u.GetDurationMicroseconds()), microseconds(u.GetCpuMicroseconds()), memory(u.GetMemoryPeakBytes()),
			text.Fen(u.GetPrice()) + "/h", text.Micros(u.GetCostMicros()),
		}
		if c.wide() {
			row = append(row, u.GetTenantId(), u.GetUserName(), u.GetAttemptId(), c.stamp(u.GetStartedAt()))
		}
		t.Row(row...)
	}
	return t
}

func usageExportCommand(c *cli) *cobra.Command {
	var u usageFilter
	var file string
	cmd := &cobra.Command{
		Use: "export", Short: "Write all usage records as CSV",
		Long: `Writes all usage records as CSV, newest first: one line per run, or per piece of
the time in which an allocation was held, named by the members of the API's
Usage. Times are RFC 3339 with microseconds, costs whole micro-yuan, prices fen
per hour. A file is complete or not there.`,
		Example: `  yunhe usage export --after 2026-11-01 --before 2026-12-01 --file november.csv`,
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := u.request(c); err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			if file == "" {
				_, err := exportUsage(cmd.Context(), a, &u.req, c.out)
				return err
			}
			n, err := writeWhole(file, func(w io.Writer) (int, error) { return exportUsage(cmd.Context(), a, &u.req, w) })
			if err == nil {
				c.note("%s written to %s", text.Count(n, "record"), file)
			}
			return err
		},
	}
	u.flags(cmd)
	cmd.Flags().StringVar(&file, "file", "", "file to write (default: standard output)")
	return cmd
}

var usageColumns = []string{
	"attempt_id", "job_id", "tenant_id", "user_name", "task_name", "task_index", "replica_index", "attempt", "ai_center_id", "resource_spec_id",
	"started_at", "ended_at", "duration_microseconds", "cpu_microseconds", "memory_peak_bytes", "price", "cost_micros",
	"allocation_id", "package_microseconds",
}

// exportUsage writes the records page by page and returns how many.
func exportUsage(ctx context.Context, a *api, filter *meteringv1.ListUsageRequest, w io.Writer) (int, error) {
	out := csv.NewWriter(w)
	if err := out.Write(usageColumns); err != nil {
		return 0, err
	}
	int := func(n int64) string { return strconv.FormatInt(n, 10) }
	at := func(ts *timestamppb.Timestamp) string {
		if ts == nil {
			return ""
		}
		return ts.AsTime().Format("2006-01-02T15:04:05.000000Z")
	}
	count, token := 0, ""
	for {
		usage, next, err := listUsage(ctx, a, filter, maxPage, token)
		if err != nil {
			return count, err
		}
		for _, u := range usage {
			err := out.Write([]string{
				u.GetAttemptId(), u.GetJobId(), u.GetTenantId(), u.GetUserName(), u.GetTaskName(), int(int64(u.GetTaskIndex())),
				int(int64(u.GetReplicaIndex())), int(int64(u.GetAttempt())), u.GetAiCenterId(), u.GetResourceSpecId(), at(u.GetStartedAt()),
				at(u.GetEndedAt()), int(u.GetDurationMicroseconds()), int(u.GetCpuMicroseconds()), int(u.GetMemoryPeakBytes()),
				int(u.GetPrice()), int(u.GetCostMicros()), u.GetAllocationId(), int(u.GetPackageMicroseconds()),
			})
			if err != nil {
				return count, err
			}
			count++
		}
		out.Flush()
		if err := out.Error(); err != nil || next == "" {
			return count, err
		}
		token = next
	}
}

// writeWhole creates or replaces a file once all of it is written.
func writeWhole(path string, write func(io.Writer) (int, error)) (n int, err error) {
	tmp := fmt.Sprintf("%s.%d.part", path, time.Now().UnixNano())
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer os.Remove(tmp) // gone already if all went well
	n, err = write(f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return n, err
	}
	return n, os.Rename(tmp, path)
}
