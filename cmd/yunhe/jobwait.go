package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

func jobWaitCommand(c *cli) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "wait JOB", Short: "Show progress until a job has ended",
		Long: `Shows progress until the job has ended, then what came of each replica.
The exit status says how it ended: 0 succeeded, 1 failed, 2 stopped.`,
		Args: takes(1, 1, "the ID of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if timeout > 0 {
				// Not a deadline: the server must not hear of it and end the stream first.
				waiting, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				defer time.AfterFunc(timeout, func() { cancel(errWaitTimeout) }).Stop()
				ctx = waiting
			}
			err = c.waitFor(ctx, a, args[0])
			if err != nil && context.Cause(ctx) == errWaitTimeout {
				return fmt.Errorf("%s has not ended within %s; it goes on", args[0], timeout)
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up waiting after this time, such as 10m; the job goes on")
	return cmd
}

var errWaitTimeout = errors.New("timeout of job wait")

// waitFor shows a job's progress until it has ended and answers with its end
// as exit status.
func (c *cli) waitFor(ctx context.Context, a *api, id string) error {
	updates := make(chan *jobsv1.Job)
	watched := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		watched <- watchJob(ctx, a, c.newLink(false), id, func(job *jobsv1.Job) (bool, error) {
			select {
			case updates <- job:
				return ended(job.GetState()), nil
			case <-ctx.Done():
				return false, ctx.Err()
			}
		})
	}()
	p := &progress{c: c, block: c.newBlock(c.err), last: map[replicaKey]string{}}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case job := <-updates:
			p.update(job)
		case <-tick.C:
			p.redraw()
		case err := <-watched:
			if err != nil {
				p.block.close()
				if ctx.Err() != nil && p.job != nil {
					c.note("%s goes on; see it again with `yunhe job wait %[1]s`, end it with `yunhe job stop %[1]s`", id)
				}
				return err
			}
			p.block.clear()
			return c.printEnd(ctx, a, p.job)
		}
	}
}

// progress shows how a job goes: on a terminal as one block that is replaced,
// elsewhere as a line per change.
type progress struct {
	c     *cli
	block *block
	job   *jobsv1.Job
	state jobsv1.State          // printed last
	last  map[replicaKey]string // printed last, by replica
}

func (p *progress) update(job *jobsv1.Job) {
	p.job = job
	if p.block.live {
		p.redraw()
		return
	}
	at := p.c.now().UTC().Format("15:04:05")
	if job.GetState() != p.state {
		p.state = job.GetState()
		fmt.Fprintf(p.c.err, "%s %s %s (%s)\n", at, text.Clean(job.GetSpec().GetName()),
			joinNonEmpty(": ", stateName(job.GetState()), text.Clean(job.GetMessage())), replicaCounts(job))
	}
	for _, r := range job.GetReplicas() {
		line := stateName(r.GetState())
		if center := centerTitle(r); center != "" {
			line += " at " + center
		}
		if r.GetAttempt() > 1 {
			line += fmt.Sprintf(", run %d", r.GetAttempt())
		}
		line = text.Clean(joinNonEmpty(": ", line, r.GetMessage()))
		if p.last[keyOf(r)] != line {
			p.last[keyOf(r)] = line
			fmt.Fprintf(p.c.err, "%s %s %s\n", at, text.Clean(replicaTitle(job, r)), line)
		}
	}
}

func (p *progress) redraw() {
	if p.job == nil || !p.block.live {
		return
	}
	job, color := p.job, p.c.color(p.c.err)
	head := fmt.Sprintf("%s  %s  %s  %s  %s", text.Paint(text.Clean(job.GetSpec().GetName()), text.Bold, color), job.GetJobId(),
		text.Paint(stateName(job.GetState()), stateColor(job.GetState()), color), replicaCounts(job), text.Fen(job.GetCostFen()))
	t := text.NewTable("REPLICA", "STATE", "CENTER", ">RAN", ">COST", "MESSAGE")
	for _, r := range byInterest(job.GetReplicas()) {
		t.Row(replicaTitle(job, r), stateCell(r.GetState()), centerTitle(r), p.c.span(r.GetStartedAt(), r.GetEndedAt()),
			text.Micros(r.GetCostMicros()), r.GetMessage())
	}
	p.block.draw(append([]string{head}, t.Lines(color)...))
}

// byInterest puts what runs first, then what waits, failed and is done, so
// that what does not fit on the screen is what matters least.
func byInterest(replicas []*jobsv1.Replica) []*jobsv1.Replica {
	rank := func(s jobsv1.State) int {
		switch {
		case s == jobsv1.State_STATE_FAILED:
			return 2
		case ended(s):
			return 3
		case s >= jobsv1.State_STATE_RUNNING:
			return 0
		}
		return 1
	}
	if len(replicas) <= 16 { // few enough to stay in their places
		return replicas
	}
	sorted := slices.Clone(replicas)
	slices.SortStableFunc(sorted, func(a, b *jobsv1.Replica) int { return rank(a.GetState()) - rank(b.GetState()) })
	return sorted
}

// Limits of what is shown of the logs at the end of a job.
const (
	lastLinesOf = 16      // last line for each of this many replicas
	failedLines = 20      // last lines of the first replica that failed
	tailBytes   = 8 << 10 // read for that
)

// printEnd prints what came of a job and returns its exit status.
func (c *cli) printEnd(ctx context.Context, a *api, job *jobsv1.Job) error {
	var tails map[replicaKey][]string
	if c.forPeople() {
		tails = c.tails(ctx, a, job)
	}
	err := c.print(result{msg: job, names: []string{job.GetJobId()}, print: func(w io.Writer, color bool) error {
		if _, err := fmt.Fprintf(w, "%s  %s  %s  %s  ran %s  %s\n", text.Paint(text.Clean(job.GetSpec().GetName()), text.Bold, color),
			job.GetJobId(), text.Paint(stateName(job.GetState()), stateColor(job.GetState()), color), replicaCounts(job),
			c.span(job.GetStartedAt(), job.GetEndedAt()), text.Fen(job.GetCostFen())); err != nil {
			return err
		}
		if job.GetMessage() != "" {
			if _, err := fmt.Fprintln(w, text.Clean(job.GetMessage())); err != nil {
				return err
			}
		}
		t := text.NewTable("REPLICA", "STATE", "CENTER", ">RAN", ">COST", "LAST LINE OF OUTPUT")
		for i, r := range job.GetReplicas() {
			if i == shownReplicas {
				break
			}
			last := ""
			if lines := tails[keyOf(r)]; len(lines) > 0 {
				last = lines[len(lines)-1]
			}
			if r.GetState() != jobsv1.State_STATE_SUCCEEDED && r.GetMessage() != "" {
				last = r.GetMessage()
			}
			t.Row(replicaTitle(job, r), stateCell(r.GetState()), centerTitle(r), c.span(r.GetStartedAt(), r.GetEndedAt()),
				text.Micros(r.GetCostMicros()), text.Cut(text.Clean(last), 80))
		}
		return t.Write(w, color)
	}})
	if err != nil {
		return err
	}
	if c.forPeople() {
		c.showFailure(job, tails)
	}
	return jobExit(job.GetState())
}

// showFailure prints the end of the log of the first replica that failed.
func (c *cli) showFailure(job *jobsv1.Job, tails map[replicaKey][]string) {
	if n := len(job.GetReplicas()); n > shownReplicas {
		c.note("and %s more; see `yunhe job show %s -o wide`", text.Count(n-shownReplicas, "replica"), job.GetJobId())
	}
	i := slices.IndexFunc(job.GetReplicas(), func(r *jobsv1.Replica) bool { return r.GetState() == jobsv1.State_STATE_FAILED })
	if i < 0 {
		return
	}
	r := job.GetReplicas()[i]
	lines := tails[keyOf(r)]
	if len(lines) > failedLines {
		lines = lines[len(lines)-failedLines:]
	}
	title := text.Clean(replicaTitle(job, r))
	if len(lines) > 0 {
		c.note("the end of the output of %s:", title)
		for _, line := range lines {
			fmt.Fprintf(c.err, "  %s\n", text.Clean(line))
		}
	}
	c.note("all of it: `yunhe job logs %s --task %d --replica %d`", job.GetJobId(), r.GetTaskIndex(), r.GetReplicaIndex())
}

// tails reads the last lines of the logs of the first replicas and of the
// first that failed. What cannot be read is left out: the job's end is known
// without it.
func (c *cli) tails(ctx context.Context, a *api, job *jobsv1.Job) map[replicaKey][]string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out := map[replicaKey][]string{}
	failed := false
	for i, r := range job.GetReplicas() {
		firstFailed := !failed && r.GetState() == jobsv1.State_STATE_FAILED
		failed = failed || firstFailed
		if r.GetAttempt() == 0 || (i >= lastLinesOf && !firstFailed) {
			continue
		}
		var log bytes.Buffer
		s, err := a.jobs.ReadLog(ctx, &jobsv1.ReadLogRequest{
			JobId: job.GetJobId(), TaskIndex: r.GetTaskIndex(), ReplicaIndex: r.GetReplicaIndex(), Attempt: r.GetAttempt(), Offset: -tailBytes,
		})
		err = stream(a, "/yunhe.jobs.v1.JobService/ReadLog", s, err, func(m *jobsv1.ReadLogResponse) error {
			log.Write(m.GetData())
			return nil
		})
		if err != nil {
			c.note("the output of %s cannot be read now: %v", text.Clean(replicaTitle(job, r)), err)
			return out
		}
		if all := strings.TrimRight(log.String(), "\r\n "); all != "" {
			out[keyOf(r)] = strings.Split(all, "\n")
		}
	}
	return out
}
