package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// The queue is in the memory of the process that schedules. Others ask that one
// over the bus what it knows of a job.

const (
	lineSubject = "yunhe.queue." // and "explain"
	lineWidth   = 16
	// linePatience is how long an answer is waited for: an explanation without
	// the queue's part is better than none.
	linePatience = 2 * time.Second
)

// question is about a job, in the queue or not.
type question struct {
	Job        string            `json:"job"`
	Tenant     string            `json:"tenant"`
	RunSeconds int64             `json:"run_seconds"`
	Amounts    []core.Quantities `json:"amounts"` // by task; none: nothing is kept from it
}

// told is what the queue knows of a job.
type told struct {
	Queued bool                `json:"queued"`
	Kept   []map[string]string `json:"kept"` // by task: centers that keep their room for others, and why
	Parts  []toldPart          `json:"parts"`
}

// toldPart is of one of the works that a job is in the queue.
type toldPart struct {
	Task     int32       `json:"task"` // -1: several
	Replicas int32       `json:"replicas"`
	Cause    queue.Cause `json:"cause"`
	Text     string      `json:"text"`
	Start    int64       `json:"start"` // 0: nobody can say
	Basis    queue.Basis `json:"basis"`
}

// SetBus says what carries questions to the process that schedules. Without it
// only that one knows the queue.
func (s *Service) SetBus(b *bus.Bus) { s.bus = b }

// serveLine answers others while this process schedules.
func (s *Service) serveLine(ctx context.Context) (stop func(), err error) {
	if s.bus == nil {
		return func() {}, nil
	}
	return s.bus.Serve(ctx, lineSubject+"*", lineWidth, func(_ context.Context, _ string, data []byte) ([]byte, error) {
		var q question
		if err := json.Unmarshal(data, &q); err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "question about the queue")
		}
		l := s.getLine()
		if l == nil {
			return nil, fault.New(fault.Unavailable, "the queue is not read yet")
		}
		return json.Marshal(l.tell(&q, s.db.Now()))
	})
}

// askLine asks the queue, wherever it is; nil if nobody answers.
func (s *Service) askLine(ctx context.Context, q *question) *told {
	if l := s.getLine(); l != nil {
		return l.tell(q, s.db.Now())
	}
	if s.bus == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, linePatience)
	defer cancel()
	out, err := s.ask(ctx, q)
	if err != nil {
		s.log.Debug("the queue was not asked", "job_id", q.Job, "error", err)
		return nil
	}
	return out
}

func (s *Service) ask(ctx context.Context, q *question) (*told, error) {
	data, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode question: %w", err)
	}
	answer, err := s.bus.Request(ctx, lineSubject+"explain", data)
	if err != nil {
		return nil, err
	}
	out := &told{}
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, fmt.Errorf("decode answer: %w", err)
	}
	return out, nil
}

// tell answers a question.
func (l *lineup) tell(q *question, at time.Time) *told {
	now := db.Micros(at)
	l.mu.Lock()
	defer l.mu.Unlock()
	out := &told{}
	for _, amounts := range q.Amounts {
		out.Kept = append(out.Kept, l.kept(q, amounts, now))
	}
	w := l.jobs[q.Job]
	if w == nil {
		return out
	}
	out.Queued = true
	for _, id := range w.works {
		x, ok := l.q.Explain(id, now)
		e := l.works[id]
		if !ok || e == nil {
			continue
		}
		p := toldPart{Task: -1, Cause: x.Cause, Text: x.Text, Start: x.Start, Basis: x.Basis}
		if len(e.Work.Tasks) == 1 {
			p.Task = taskIndex(e.Work.Tasks[0].ID)
		}
		if w, ok := l.windows[x.Window]; ok {
			p.Text = w.Text
		}
		for _, t := range e.Work.Tasks {
			p.Replicas += int32(t.Replicas)
		}
		out.Parts = append(out.Parts, p)
	}
	return out
}
