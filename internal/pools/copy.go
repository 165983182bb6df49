package pools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/db"
)

// Each request looks at all nodes and their devices, of which there may be thousands.
// Every process has a copy of them as they were committed, and reads what has changed
// since. What is lent is checked against what is stored (lendIf), so that a copy that
// is wrong, as after a process of an older version wrote, costs time and lends nothing twice.

// revision is the number of the present change, in SQL.
const revision = `(SELECT rev FROM pool_revision)`

// copyLasts is how long what an older version changed may be unknown here.
const copyLasts = 30 * time.Second

// revise is called before nodes or devices are changed, whose rev is the revision then.
// anew: something of them is deleted.
func revise(ctx context.Context, tx *db.Tx, anew bool) error {
	query := `UPDATE pool_revision SET rev = rev + 1`
	if anew {
		query += `, known = rev + 1`
	}
	if _, err := tx.Exec(ctx, query); err != nil {
		return fmt.Errorf("number a change of the pool: %w", err)
	}
	return nil
}

// tx is [db.DB.TxOn] the revision, as what changes the pool meets there.
func (s *Service) tx(ctx context.Context, fn func(*db.Tx) error) error {
	return s.db.TxOn(ctx, "pool_revision", fn)
}

// copied is all nodes at a revision, by ID. Nothing in it is ever changed.
type copied struct {
	rev, known int64
	read       time.Time
	nodes      []*Node
}

// refresh reads what has changed of the nodes since they were read last. It is called
// before a transaction that looks at them, as within one nobody knows what is committed.
func (s *Service) refresh(ctx context.Context) error {
	return s.db.View(ctx, func(tx *db.Tx) error {
		now, err := s.current(ctx, tx)
		if err == nil {
			s.copied.Store(now)
		}
		return err
	})
}

// nodesTx returns all nodes with their devices, without what each report changes. The
// caller changes nothing of them.
func (s *Service) nodesTx(ctx context.Context, tx *db.Tx) ([]*Node, error) {
	now, err := s.current(ctx, tx)
	if err != nil {
		return nil, err
	}
	return now.nodes, nil
}

// current is what there is in a transaction.
func (s *Service) current(ctx context.Context, tx *db.Tx) (*copied, error) {
	now := &copied{read: tx.Now}
	if _, err := tx.Get(ctx, `SELECT rev, known FROM pool_revision`, nil, &now.rev, &now.known); err != nil {
		return nil, fmt.Errorf("read which change of the pool is the last: %w", err)
	}
	had := s.copied.Load()
	if had == nil || had.known != now.known || had.rev > now.rev || tx.Now.Sub(had.read) >= copyLasts || tx.Now.Before(had.read) {
		var err error
		now.nodes, err = selectNodes(ctx, tx, false, "")
		return now, err
	}
	if had.rev == now.rev {
		return had, nil
	}
	now.read, now.nodes = had.read, slices.Clone(had.nodes)
	own := map[string]bool{} // those that are not shared with the copy before
	node := func(id string) *Node {
		i, found := slices.BinarySearchFunc(now.nodes, id, func(n *Node, id string) int { return strings.Compare(n.ID, id) })
		if !found {
			return nil
		}
		if !own[id] {
			n := *now.nodes[i]
			n.Devices = slices.Clone(n.Devices)
			now.nodes[i], own[id] = &n, true
		}
		return now.nodes[i]
	}
	const since = `WHERE rev > $1`
	err := eachNode(ctx, tx, func(n *Node) {
		if is := node(n.ID); is != nil {
			n.Devices = is.Devices
			*is = *n
			return
		}
		i, _ := slices.BinarySearchFunc(now.nodes, n.ID, func(n *Node, id string) int { return strings.Compare(n.ID, id) })
		now.nodes, own[n.ID] = slices.Insert(now.nodes, i, n), true
	}, since, had.rev)
	if err == nil {
		err = eachDevice(ctx, tx, func(id string, d *Device) {
			n := node(id)
			if n == nil {
				return
			}
			i, found := slices.BinarySearchFunc(n.Devices, d.ID, func(d *Device, id string) int { return strings.Compare(d.ID, id) })
			if !found {
				n.Devices = slices.Insert(n.Devices, i, d)
			}
			n.Devices[i] = d
		}, since, had.rev)
	}
	return now, err
}

// totals are what slices of groups have together, at a revision.
type totals struct {
	mu  sync.Mutex // guards what follows
	rev int64
	of  map[string]int64
}

// totalTx returns what a group's slices have together, in percent of a device; those that
// move have it twice.
func (s *Service) totalTx(ctx context.Context, tx *db.Tx, group string) (total int64, err error) {
	var rev int64
	if _, err := tx.Get(ctx, `SELECT rev FROM pool_revision`, nil, &rev); err != nil {
		return 0, fmt.Errorf("read which change of the pool is the last: %w", err)
	}
	s.totals.mu.Lock()
	total, known := s.totals.of[group]
	known = known && s.totals.rev == rev
	s.totals.mu.Unlock()
	if known {
		return total, nil
	}
	_, err = tx.Get(ctx, `SELECT CAST(COALESCE(SUM(CASE WHEN to_node <> '' THEN 2 * compute ELSE compute END), 0) AS BIGINT) FROM pool_slices WHERE group_id = $1 AND state IN (2, 3)`, []any{group}, &total)
	if err != nil {
		return 0, fmt.Errorf("read what group %s has: %w", group, err)
	}
	if had := s.copied.Load(); had == nil || had.rev != rev { // it may be of this transaction only
		return total, nil
	}
	s.totals.mu.Lock()
	defer s.totals.mu.Unlock()
	if s.totals.rev != rev {
		s.totals.rev, s.totals.of = rev, map[string]int64{}
	}
	s.totals.of[group] = total
	return total, nil
}

// mine is nodes of which the caller may change devices.
func mine(nodes []*Node) []*Node {
	devices := 0
	for _, n := range nodes {
		devices += len(n.Devices)
	}
	all, each, out := make([]Node, len(nodes)), make([]Device, devices), make([]*Node, len(nodes))
	lists := make([]*Device, devices)
	for i, n := range nodes {
		all[i], out[i] = *n, &all[i]
		of := lists[:len(n.Devices):len(n.Devices)]
		for j, d := range n.Devices {
			each[j], of[j] = *d, &each[j]
		}
		out[i].Devices, lists, each = of, lists[len(of):], each[len(of):]
	}
	return out
}
