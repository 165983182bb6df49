package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

// maxFollowed is how many logs are followed at once: each holds a connection.
const maxFollowed = 200

func jobLogsCommand(c *cli) *cobra.Command {
	var sel selection
	var follow bool
	var attempt int32
	cmd := &cobra.Command{
		Use: "logs JOB", Short: "Print the output of a job's replicas",
		Long: `Prints standard output and error of the replicas, exactly as written for one
replica, with the replica's name before each line for several. With --follow it
goes on until they have ended, through retries and restarts of the server.`,
		Example: `  yunhe job logs JOB -f
  yunhe job logs JOB --task train --replica 0 --attempt 1 > first-run.log`,
		Args: takes(1, 1, "the ID of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if attempt < 0 {
				return usagef("--attempt: want at least 1, got %d", attempt)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			job, err := a.jobs.GetJob(cmd.Context(), &jobsv1.GetJobRequest{JobId: args[0]})
			if err != nil {
				return err
			}
			task, err := sel.resolve(job)
			if err != nil {
				return err
			}
			var chosen []replicaKey
			for _, r := range job.GetReplicas() {
				if sel.has(task, r.GetTaskIndex(), r.GetReplicaIndex()) {
					chosen = append(chosen, keyOf(r))
				}
			}
			l := &logs{c: c, a: a, link: c.newLink(true), id: job.GetJobId(), attempt: attempt, out: c.newPrefixer(job, chosen)}
			if follow {
				if len(chosen) > maxFollowed {
					return usagef("%d replicas are too many to follow at once, the limit is %d; narrow them with --task and --replica", len(chosen), maxFollowed)
				}
				return l.follow(cmd.Context(), chosen)
			}
			return l.dump(cmd.Context(), job, chosen)
		},
	}
	selectionFlags(cmd, &sel)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the replicas have ended")
	cmd.Flags().Int32Var(&attempt, "attempt", 0, "which run of a replica, from 1 (default: the latest)")
	return cmd
}

// replicaKey names a replica within its job.
type replicaKey struct{ task, replica int32 }

func keyOf(r *jobsv1.Replica) replicaKey { return replicaKey{r.GetTaskIndex(), r.GetReplicaIndex()} }

// logs reads the logs of a job's replicas.
type logs struct {
	c       *cli
	a       *api
	link    *link
	id      string
	attempt int32 // 0: the latest
	out     *prefixer
}

// dump prints the logs as they are now, one after the other.
func (l *logs) dump(ctx context.Context, job *jobsv1.Job, chosen []replicaKey) error {
	for _, r := range job.GetReplicas() {
		key := keyOf(r)
		if !slices.Contains(chosen, key) {
			continue
		}
		if r.GetAttempt() == 0 {
			l.c.note("%s has not run yet", text.Clean(replicaTitle(job, r)))
			continue
		}
		if err := l.copy(ctx, key, l.attempt, false); err != nil {
			return err
		}
	}
	return nil
}

// follow prints the logs as they grow. The job's changes say which runs there
// are; each replica's runs are followed one after the other.
func (l *logs) follow(ctx context.Context, chosen []replicaKey) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	runs := map[replicaKey]chan int32{}
	started := map[replicaKey]int32{}
	for _, key := range chosen {
		// A replica has at most 101 runs; the watch never waits for a reader.
		ch := make(chan int32, 128)
		runs[key] = ch
		wg.Go(func() {
			for attempt := range ch {
				if err := l.copy(ctx, key, attempt, true); err != nil {
					once.Do(func() { failed = err; cancel() })
					return
				}
			}
		})
	}
	err := watchJob(ctx, l.a, l.link, l.id, func(job *jobsv1.Job) (bool, error) {
		done := true
		for _, r := range job.GetReplicas() {
			key := keyOf(r)
			ch, ok := runs[key]
			if !ok {
				continue
			}
			attempt := r.GetAttempt()
			if l.attempt > 0 {
				attempt = min(attempt, l.attempt)
			}
			first := started[key]
			switch {
			case attempt == 0 || attempt == first || (l.attempt > 0 && attempt < l.attempt):
			case first == 0:
				ch <- attempt // earlier runs are asked for with --attempt
				started[key] = attempt
			default:
				for n := first + 1; n <= attempt; n++ {
					ch <- n
				}
				started[key] = attempt
			}
			done = done && (ended(r.GetState()) || (l.attempt > 0 && started[key] == l.attempt))
		}
		return done || ended(job.GetState()), nil
	})
	for _, ch := range runs {
		close(ch)
	}
	if err != nil {
		cancel()
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	return err
}

// copy prints the log of one run from its first byte. With follow it returns
// when the run has ended. A broken connection goes on at the byte it broke at.
func (l *logs) copy(ctx context.Context, key replicaKey, attempt int32, follow bool) error {
	const method = "/yunhe.jobs.v1.JobService/ReadLog"
	defer l.out.flush(key)
	t := l.link.try()
	offset := int64(0)
	for {
		s, err := l.a.jobs.ReadLog(ctx, &jobsv1.ReadLogRequest{
			JobId: l.id, TaskIndex: key.task, ReplicaIndex: key.replica, Attempt: attempt, Offset: offset, Follow: follow,
		})
		err = stream(l.a, method, s, err, func(m *jobsv1.ReadLogResponse) error {
			t.ok()
			data := m.GetData()
			if skip := offset - m.GetOffset(); skip > 0 { // sent before
				data = data[min(skip, int64(len(data))):]
			}
			offset = max(offset, m.GetOffset()+int64(len(m.GetData())))
			return l.out.write(key, data)
		})
		if err == nil {
			t.ok()
			if over, err := l.over(ctx, key, attempt, follow); over || err != nil && !transient(err) {
				return err
			}
			err = errNotOver
		}
		if err := t.pause(ctx, err); err != nil {
			return err
		}
	}
}

// over tells whether the run whose log stream ended has really ended: a server
// that stops ends its streams too.
func (l *logs) over(ctx context.Context, key replicaKey, attempt int32, follow bool) (bool, error) {
	if !follow {
		return true, nil
	}
	job, err := l.a.jobs.GetJob(ctx, &jobsv1.GetJobRequest{JobId: l.id})
	if err != nil {
		return false, err
	}
	for _, r := range job.GetReplicas() {
		if keyOf(r) == key {
			return r.GetAttempt() > attempt || ended(r.GetState()) || ended(job.GetState()), nil
		}
	}
	return true, nil
}

// prefixer prints the logs of several replicas line by line, each with its
// replica's name; the log of one replica as it is. It is safe for concurrent
// use.
type prefixer struct {
	mu sync.Mutex

	w        io.Writer
	prefixes map[replicaKey]string
	partial  map[replicaKey]*bytes.Buffer // lines not yet complete
}

// maxLine is the longest line held back for its end; longer ones are broken.
const maxLine = 64 << 10

func (c *cli) newPrefixer(job *jobsv1.Job, chosen []replicaKey) *prefixer {
	p := &prefixer{w: c.out, prefixes: map[replicaKey]string{}, partial: map[replicaKey]*bytes.Buffer{}}
	if len(chosen) < 2 {
		return p
	}
	colors := []text.Color{text.Cyan, text.Yellow, text.Green, text.Magenta, text.Blue}
	widest := 0
	titles := make([]string, len(chosen))
	for i, key := range chosen {
		titles[i] = text.Clean(fmt.Sprintf("%s/%d", taskTitle(job, key.task), key.replica))
		widest = max(widest, text.Width(titles[i]))
	}
	for i, key := range chosen {
		p.prefixes[key] = c.paint(c.out, fmt.Sprintf("%s%*s | ", titles[i], widest-text.Width(titles[i]), ""), colors[i%len(colors)])
		p.partial[key] = &bytes.Buffer{}
	}
	return p
}

func (p *prefixer) write(key replicaKey, data []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	prefix, several := p.prefixes[key]
	if !several {
		_, err := p.w.Write(data)
		return err
	}
	var out bytes.Buffer
	partial := p.partial[key]
	for len(data) > 0 {
		n := bytes.IndexByte(data, '\n') + 1
		if n == 0 {
			n = len(data)
		}
		n = min(n, maxLine-partial.Len())
		partial.Write(data[:n])
		data = data[n:]
		if line := partial.Bytes(); line[len(line)-1] == '\n' || len(line) >= maxLine {
			out.WriteString(prefix)
			out.Write(bytes.TrimSuffix(line, []byte{'\n'}))
			out.WriteByte('\n')
			partial.Reset()
		}
	}
	_, err := p.w.Write(out.Bytes())
	return err
}

// flush prints a last line that has no end.
func (p *prefixer) flush(key replicaKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if partial := p.partial[key]; partial != nil && partial.Len() > 0 {
		fmt.Fprintf(p.w, "%s%s\n", p.prefixes[key], partial.Bytes())
		partial.Reset()
	}
}
