package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

func jobListCommand(c *cli) *cobra.Command {
	var p paging
	var req jobsv1.ListJobsRequest
	var stateNames []string
	var after, before string
	var watch bool
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, newest first",
		Example: `  yunhe job list --state active
  yunhe job list --name digits --after 24h --all
  yunhe job list --watch`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if req.States, err = parseStates(stateNames); err != nil {
				return err
			}
			if req.CreatedAfter, err = c.parseTime("--after", after); err != nil {
				return err
			}
			if req.CreatedBefore, err = c.parseTime("--before", before); err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			if watch {
				return c.watchJobs(cmd.Context(), a, p, &req)
			}
			jobs, next, err := listJobs(cmd.Context(), a, p, &req)
			if err != nil {
				return err
			}
			err = c.print(result{
				msg:   &jobsv1.ListJobsResponse{Jobs: jobs, NextPageToken: next},
				names: jobIDs(jobs),
				print: func(w io.Writer, color bool) error {
					if len(jobs) == 0 {
						c.noteNoJobs(&req)
						return nil
					}
					return c.jobTable(jobs).Write(w, color)
				},
			})
			c.noteMore(len(jobs), next)
			return err
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&stateNames, "state", nil, "only these states, such as running,queued; active and ended stand for several")
	f.StringVar(&req.Name, "name", "", "only jobs with this in their name")
	f.StringVar(&req.UserName, "user", "", "only jobs of this user")
	f.StringVar(&req.TenantId, "tenant", "", "only jobs of this tenant")
	f.StringVar(&req.AiCenterId, "center", "", "only jobs with a replica at this center, now or before")
	f.StringVar(&after, "after", "", "submitted at this time or later: a time, a date, or how long ago (2h, 7d)")
	f.StringVar(&before, "before", "", "submitted before this time")
	f.BoolVarP(&watch, "watch", "w", false, "go on showing changes as they happen")
	pageFlags(cmd, &p, 50)
	return cmd
}

func (c *cli) noteNoJobs(filter *jobsv1.ListJobsRequest) {
	if proto.Equal(filter, &jobsv1.ListJobsRequest{}) {
		c.note("no jobs; submit one with `yunhe job submit`")
	} else {
		c.note("no jobs like that")
	}
}

func jobIDs(jobs []*jobsv1.Job) []string {
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.GetJobId()
	}
	return ids
}

func listJobs(ctx context.Context, a *api, p paging, filter *jobsv1.ListJobsRequest) ([]*jobsv1.Job, string, error) {
	return pages(p, func(size int32, token string) ([]*jobsv1.Job, string, error) {
		req := proto.CloneOf(filter)
		req.PageSize, req.PageToken = size, token
		res, err := a.jobs.ListJobs(ctx, req)
		return res.GetJobs(), res.GetNextPageToken(), err
	})
}

// parseTime reads a time ("2026-01-02T15:04:05Z"), a date, or a length of time
// before now ("90m", "7d").
func (c *cli) parseTime(flag, s string) (*timestamppb.Timestamp, error) {
	if s == "" {
		return nil, nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return timestamppb.New(t), nil
		}
	}
	d, err := parseDuration(s)
	if err != nil || d < 0 {
		return nil, usagef("%s: want a time such as 2026-01-02T15:04:05Z, a date, or how long ago such as 2h or 7d, got %q", flag, s)
	}
	return timestamppb.New(c.now().Add(-d)), nil
}

// parseDuration is time.ParseDuration with days.
func parseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		h, err := time.ParseDuration(days + "h")
		if err != nil || h > 24*365*100*time.Hour || h < -24*365*100*time.Hour {
			return 0, fmt.Errorf("invalid duration %q", s)
		}
		return 24 * h, nil
	}
	return time.ParseDuration(s)
}

func (c *cli) jobTable(jobs []*jobsv1.Job) *text.Table {
	columns := []string{"JOB", "NAME", "STATE", ">DONE", "CENTERS", "AGE", ">RAN", ">COST"}
	if c.wide() {
		columns = append(columns, "TENANT", "USER", ">PRIORITY", ">SCHEDULED IN", "MESSAGE")
	}
	t := text.NewTable(columns...)
	for _, j := range jobs {
		t.Row(c.jobRow(j)...)
	}
	return t
}

func (c *cli) jobRow(j *jobsv1.Job) []any {
	row := []any{
		j.GetJobId(), text.Cut(text.Clean(j.GetSpec().GetName()), 32), stateCell(j.GetState()),
		fmt.Sprintf("%d/%d", j.GetReplicasSucceeded()+j.GetReplicasFailed()+j.GetReplicasStopped(), j.GetReplicasTotal()),
		someOf(j.GetCenterIds(), 3, c.wide()), c.ago(j.GetCreatedAt()),
		c.span(j.GetStartedAt(), j.GetEndedAt()), text.Fen(j.GetCostFen()),
	}
	if c.wide() {
		row = append(row, j.GetTenantId(), j.GetUserName(), j.GetSpec().GetPriority(), microseconds(j.GetSchedulingMicroseconds()), j.GetMessage())
	}
	return row
}

// microseconds formats a length of time; 0 is not known yet.
func microseconds(n int64) string {
	if n == 0 {
		return "-"
	}
	return text.Duration(time.Duration(n) * time.Microsecond)
}

// someOf joins the first most names and counts the rest.
func someOf(names []string, most int, all bool) string {
	if len(names) > most && !all {
		return fmt.Sprintf("%s +%d", strings.Join(names[:most], ","), len(names)-most)
	}
	return strings.Join(names, ",")
}

// watchJobs shows the list and keeps it current: as a screen on a terminal,
// else as one row or document per change.
func (c *cli) watchJobs(ctx context.Context, a *api, p paging, filter *jobsv1.ListJobsRequest) error {
	if p.all || p.token != "" {
		return usagef("--watch shows the newest; use --limit to see more, without --all and --page-token")
	}
	v := &jobsView{c: c, filter: filter, limit: p.limit, versions: map[string]int64{}}
	if c.forPeople() {
		v.block = c.newBlock(c.out)
	}
	defer v.close()
	link := c.newLink(false)
	t := link.try()
	for {
		if err := t.again(ctx, c.watchOnce(ctx, a, t, p, v)); err != nil {
			return err
		}
	}
}

// Times between lists while watching: soon after the stream was opened, as
// changes before the server heard of it are not in it, then now and then, as
// events tell of changes but the list is the truth.
const (
	firstRelist = time.Second
	laterRelist = 15 * time.Second
)

// watchOnce lists and follows until the stream breaks; it returns why.
func (c *cli) watchOnce(ctx context.Context, a *api, t *try, p paging, v *jobsView) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const method = "/yunhe.jobs.v1.JobService/WatchJobs"
	events := make(chan *jobsv1.Job)
	broken := make(chan error, 1)
	go func() {
		s, err := a.jobs.WatchJobs(ctx, &jobsv1.WatchJobsRequest{})
		broken <- stream(a, method, s, err, func(m *jobsv1.WatchJobsResponse) error {
			select {
			case events <- m.GetJob():
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	tick := time.NewTicker(time.Second) // ages and run times
	defer tick.Stop()
	relist := time.NewTimer(firstRelist)
	defer relist.Stop()
	if err := v.list(ctx, a, p); err != nil {
		return err
	}
	for {
		t.ok()
		if err := v.draw(); err != nil {
			return err
		}
		select {
		case j := <-events:
			v.add(j)
		case <-tick.C:
		case <-relist.C:
			if err := v.list(ctx, a, p); err != nil {
				return err
			}
			relist.Reset(laterRelist)
		case err := <-broken:
			if err == nil {
				err = &callError{a.target, method, connect.NewError(connect.CodeUnavailable, errors.New("the server ended the stream"))}
			}
			return err
		}
	}
}

// jobsView is what `job list --watch` shows.
type jobsView struct {
	c        *cli
	filter   *jobsv1.ListJobsRequest
	limit    int
	block    *block // nil: one result per change
	jobs     []*jobsv1.Job
	versions map[string]int64
	pending  []*jobsv1.Job // changes not printed yet
	headed   bool
}

func (v *jobsView) list(ctx context.Context, a *api, p paging) error {
	jobs, _, err := listJobs(ctx, a, p, v.filter)
	for _, j := range slices.Backward(jobs) { // oldest first, as changes come
		v.add(j)
	}
	return err
}

// add takes a state of a job. States already seen and jobs the filter leaves
// out change nothing, except that a job shown stays until its end is shown.
func (v *jobsView) add(j *jobsv1.Job) {
	id := j.GetJobId()
	last, known := v.versions[id]
	if (known && j.GetVersion() <= last) || (!known && !matches(j, v.filter)) {
		return
	}
	v.versions[id] = j.GetVersion()
	v.pending = append(v.pending, j)
	if i := slices.IndexFunc(v.jobs, func(o *jobsv1.Job) bool { return o.GetJobId() == id }); i >= 0 {
		v.jobs[i] = j
		return
	}
	v.jobs = append([]*jobsv1.Job{j}, v.jobs...)
	if len(v.jobs) > v.limit {
		v.jobs = v.jobs[:v.limit]
	}
}

// matches applies the filters of a list to a job that came as a change.
func matches(j *jobsv1.Job, f *jobsv1.ListJobsRequest) bool {
	created := when(j.GetCreatedAt())
	return (len(f.GetStates()) == 0 || slices.Contains(f.GetStates(), j.GetState())) &&
		strings.Contains(j.GetSpec().GetName(), f.GetName()) &&
		(f.GetUserName() == "" || f.GetUserName() == j.GetUserName()) &&
		(f.GetTenantId() == "" || f.GetTenantId() == j.GetTenantId()) &&
		(f.GetAiCenterId() == "" || slices.Contains(j.GetCenterIds(), f.GetAiCenterId())) &&
		(f.GetCreatedAfter() == nil || !created.Before(when(f.GetCreatedAfter()))) &&
		(f.GetCreatedBefore() == nil || created.Before(when(f.GetCreatedBefore())))
}

func (v *jobsView) draw() error {
	if v.block != nil && v.block.live {
		v.pending = nil
		return v.block.draw(v.c.jobTable(v.jobs).Lines(v.c.color(v.c.out)))
	}
	for _, j := range v.pending {
		err := v.c.printLine(result{msg: j, names: []string{j.GetJobId()}, print: func(w io.Writer, color bool) error {
			lines := v.c.jobTable([]*jobsv1.Job{j}).Lines(color)
			if v.headed {
				lines = lines[1:]
			}
			v.headed = true
			_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
			return err
		}})
		if err != nil {
			return err
		}
	}
	v.pending = nil
	return nil
}

func (v *jobsView) close() {
	if v.block != nil {
		v.block.close()
	}
}
