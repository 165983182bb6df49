package pools

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/logs"
)

// What those who watch over the pool ask.

// KnownTx says whether a node shows its secret; fault.Unauthenticated if not.
func (s *Service) KnownTx(ctx context.Context, tx *db.Tx, node, secret string) error {
	own, err := s.secretTx(ctx, tx, node)
	if fault.KindOf(err) == fault.NotFound || err == nil && subtle.ConstantTimeCompare([]byte(hex.EncodeToString(own)), []byte(secret)) != 1 {
		return fault.New(fault.Unauthenticated, "there is no pool node %q with this secret", clip(node))
	}
	return err
}

// NodesTx lists the nodes by ID.
func (s *Service) NodesTx(ctx context.Context, tx *db.Tx) ([]*Node, error) {
	return readNodes(ctx, tx)
}

// LiveTx lists the slices that wait or have a place, by ID, with what their nodes
// last reported.
func (s *Service) LiveTx(ctx context.Context, tx *db.Tx) ([]*Slice, error) {
	list, err := readSlices(ctx, tx, `WHERE state < 4 ORDER BY slice_id`)
	if err != nil {
		return nil, err
	}
	return list, details(ctx, tx, list)
}

// TakeEndedTx returns the slices that ended, each once, by ID.
func (s *Service) TakeEndedTx(ctx context.Context, tx *db.Tx) ([]*Slice, error) {
	list, err := readSlices(ctx, tx, `WHERE slice_id IN (SELECT slice_id FROM pool_ended) ORDER BY slice_id`)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM pool_ended`); err != nil {
		return nil, fmt.Errorf("take slices that ended: %w", err)
	}
	return list, nil
}

// RequestedTx lists the slices that were requested from a time on and before
// another, by ID.
func (s *Service) RequestedTx(ctx context.Context, tx *db.Tx, from, to time.Time) ([]*Slice, error) {
	return readSlices(ctx, tx, `WHERE created_at >= $1 AND created_at < $2 ORDER BY slice_id`, db.Micros(from), db.Micros(to))
}

// SlicesTx returns the slices with the IDs that there are.
func (s *Service) SlicesTx(ctx context.Context, tx *db.Tx, ids []string) (map[string]*Slice, error) {
	out := map[string]*Slice{}
	for _, id := range ids {
		if _, known := out[id]; known || id == "" {
			continue
		}
		list, err := readSlices(ctx, tx, `WHERE slice_id = $1`, id)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			out[id] = list[0]
		}
	}
	return out, nil
}

// Logs is the log of the pool.
func (s *Service) Logs() *logs.Log { return s.logs }

// refusals bounds how many are logged, so that who asks without end does not push
// all else out of the log.
type refusals struct {
	mu     sync.Mutex // guards what follows
	minute time.Time
	n      int
}

const refusalsInMinute = 300

func (r *refusals) allow(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.minute) >= time.Minute || now.Before(r.minute) {
		r.minute, r.n = now, 0
	}
	r.n++
	return r.n <= refusalsInMinute
}

// about is an entry of the log about a slice.
func about(x *Slice, level logs.Level, message, details string) logs.Entry {
	return logs.Entry{Level: level, Message: message, Node: x.Node, Device: x.Device, Slice: x.ID, User: x.User, Tenant: x.Tenant, Group: x.Group, Details: details}
}

func (s *Slice) asked() string {
	out := fmt.Sprintf("compute_percent=%d memory_mib=%d", s.Compute, s.Memory)
	if s.API == pool.CUDA {
		out += " api=" + s.API
	}
	if s.Name != "" {
		out += fmt.Sprintf(" name=%q", s.Name)
	}
	return out
}

// unclaimed is why a slice ends that nobody awaits or came for.
func (s *Slice) unclaimed() string {
	switch {
	case s.wished && s.State == Waiting:
		return waitsNoMore
	case s.wished:
		return fmt.Sprintf("no center had room for its replica within %s", unclaimed)
	}
	return fmt.Sprintf("nobody came for it within %s", unclaimed)
}

const (
	// programEnded is why a slice ended of which its node says no more.
	programEnded = "its program ended"
	// nodeGone is why one ended, or was placed anew, whose node went.
	nodeGone = "pool node %s is gone"
)

// ofProgram is in why a slice ended that had others of its program beside it.
const ofProgram = " of the same program ended: "

// Cause is why a slice ended; of one that ended because another of its program did,
// why that one had.
func (s *Slice) Cause() string {
	if _, cause, found := strings.Cut(s.Reason, ofProgram); found {
		return cause
	}
	return s.Reason
}

// Failed reports whether a slice ended by what went wrong around it: not by its
// program, its user or its limits.
func (s *Slice) Failed() bool {
	why := s.Cause()
	return s.State == Ended && (strings.HasSuffix(why, " is gone") || strings.HasPrefix(why, "nobody came") || why == "the pool node stops" || why == pool.ClientLost)
}
