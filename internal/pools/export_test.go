package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/db"
)

// Round is one round of the loop of a process that began to look then.
func (s *Service) Round(ctx context.Context, begun time.Time) error { return s.round(ctx, begun) }

// CutOff is what is done when a node's machine acknowledged nothing for so long.
func (s *Service) CutOff(ctx context.Context, node string, quiet time.Duration) error {
	return s.cutOff(ctx, node, quiet)
}

// CopyDiffers says how what this process knows of the nodes by their changes differs from
// what is stored; "": it does not.
func (s *Service) CopyDiffers(ctx context.Context) (how string, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		now, err := s.current(ctx, tx)
		if err != nil {
			return err
		}
		all, err := selectNodes(ctx, tx, false, "")
		if err != nil {
			return err
		}
		is, err := json.Marshal(now.nodes)
		if err != nil {
			return err
		}
		if want, err := json.Marshal(all); err != nil || string(is) != string(want) {
			how = fmt.Sprintf("%s, stored is %s", is, want)
			return err
		}
		return nil
	})
	return how, err
}

// Exec changes what is stored, as a process of another version might.
func (s *Service) Exec(ctx context.Context, query string) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, query)
		return err
	})
}

// RunEnded ends what a run has, or asked for.
func (s *Service) RunEnded(ctx context.Context, id string) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error { return s.RunEndedTx(ctx, tx, id) })
}

// Prioritize is PriorityTx.
func (s *Service) Prioritize(ctx context.Context, ids []string, priority int64) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error { return s.PriorityTx(ctx, tx, ids, priority) })
}

// Job is whose slice it is.
func (s *Slice) Job() string { return s.run.Job }

// Waits is the sequence of the last report of a node that waited for its answer.
func (s *Service) Waits(node string) int64 {
	last, _ := s.waiting.Load(node)
	w, _ := last.(waiter)
	return w.sequence
}
