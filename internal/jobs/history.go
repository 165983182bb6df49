package jobs

import (
	"context"
	"strconv"
	"strings"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// anyIndex is in the place of an index where any is wanted.
const anyIndex = -1

// ListRuns returns the runs of a job's replicas, of which an index may be [anyIndex], from after
// on: the task, replica and number of the last one that is known, nil for none.
func (s *Service) ListRuns(ctx context.Context, id string, task, replica int64, after []int64, limit int) (out []*jobsv1.Replica, err error) {
	cat, err := s.reg.Catalog(ctx) // before the read, which holds one of few connections
	if err != nil {
		return nil, err
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		if _, err := visible(ctx, tx, id); err != nil {
			return err
		}
		where, args := []string{"job_id = $1"}, []any{id}
		add := func(condition string, values ...any) {
			for _, v := range values {
				args = append(args, v)
				condition = strings.Replace(condition, "?", "$"+strconv.Itoa(len(args)), 1)
			}
			where = append(where, condition)
		}
		if task != anyIndex {
			add("task_index = ?", task)
		}
		if replica != anyIndex {
			add("replica_index = ?", replica)
		}
		if after != nil {
			add("(task_index, replica_index, attempt) > (?, ?, ?)", after[0], after[1], after[2])
		}
		as, err := queryAttempts(ctx, tx, strings.Join(where, " AND ")+` ORDER BY task_index, replica_index, attempt LIMIT `+strconv.Itoa(limit), args...)
		for _, a := range as {
			name := ""
			if c := cat.Centers[a.center]; c != nil {
				name = c.Name
			}
			a.retry = false // how it ended, and not what its replica does now
			out = append(out, attemptOut(a, name, db.Micros(tx.Now)))
		}
		return err
	})
	return out, err
}

func (h handler) ListRuns(ctx context.Context, r *jobsv1.ListRunsRequest) (*jobsv1.ListRunsResponse, error) {
	size, err := core.PageSize(r.PageSize, 50)
	if err != nil {
		return nil, err
	}
	key, err := core.ParsePageToken(r.PageToken, 3)
	if err != nil {
		return nil, err
	}
	var after []int64
	for _, part := range key {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return nil, fault.Fields(fault.Field{Path: "page_token", Problem: "is not a token of this list; leave it empty to start anew"})
		}
		after = append(after, n)
	}
	var c core.Check
	index := func(path string, n *int32) int64 {
		if n == nil {
			return anyIndex
		}
		c.Range(path, int64(*n), 0, maxTotal)
		return int64(*n)
	}
	task, replica := index("task_index", r.TaskIndex), index("replica_index", r.ReplicaIndex)
	if err := c.Err(); err != nil {
		return nil, err
	}
	res := &jobsv1.ListRunsResponse{}
	if res.Runs, err = h.s.ListRuns(ctx, r.JobId, task, replica, after, size+1); err != nil {
		return nil, err
	}
	if len(res.Runs) > size {
		res.Runs = res.Runs[:size]
		last := res.Runs[size-1]
		res.NextPageToken = core.PageToken(strconv.Itoa(int(last.TaskIndex)), strconv.Itoa(int(last.ReplicaIndex)), strconv.Itoa(int(last.Attempt)))
	}
	return res, nil
}
