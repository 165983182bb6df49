package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/db"
)

// NodesChangedSubject is the subject of [NodesChanged].
const NodesChangedSubject = "registry.nodes"

// NodesChanged is the event that nodes of a center came, changed or went.
type NodesChanged struct {
	CenterID string `json:"ai_center_id"`
	// Names of them; none: too many to say.
	Names []string `json:"names,omitempty"`
}

// CenterChangedSubject is the subject of the event that a center was heard of
// again after silence, went down or came up, or was changed or deleted by an
// operator. It carries the center's ID as a JSON array; that a center falls
// silent is no event, but seen by the clock.
const CenterChangedSubject = "registry.center"

func emitCenter(ctx context.Context, tx *db.Tx, id string) error {
	payload, err := json.Marshal([]string{id})
	if err != nil {
		return fmt.Errorf("event %s: %w", CenterChangedSubject, err)
	}
	return tx.Emit(ctx, CenterChangedSubject, payload)
}

// maxNamed keeps an event below 32 KiB.
const maxNamed = 100

func emitNodes(ctx context.Context, tx *db.Tx, centerID string, fresh, changed []Node, gone []string) error {
	e := NodesChanged{CenterID: centerID}
	if len(fresh)+len(changed)+len(gone) <= maxNamed {
		for _, nodes := range [][]Node{fresh, changed} {
			for i := range nodes {
				e.Names = append(e.Names, nodes[i].Name)
			}
		}
		e.Names = append(e.Names, gone...)
	}
	payload, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("event %s: %w", NodesChangedSubject, err)
	}
	return tx.Emit(ctx, NodesChangedSubject, payload)
}

// NodeMarks returns when each node last changed, by center and name: for those
// who keep a picture of all nodes and read again only what is new. It costs a
// tenth of reading the nodes.
func (s *Service) NodeMarks(ctx context.Context) (map[string]map[string]time.Time, error) {
	out := map[string]map[string]time.Time{}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		return tx.Query(ctx, `SELECT ai_center_id, name, updated_at FROM nodes`, nil, func(row db.Row) error {
			var id, name string
			var at int64
			if err := row.Scan(&id, &name, &at); err != nil {
				return err
			}
			if out[id] == nil {
				out[id] = map[string]time.Time{}
			}
			out[id][name] = db.Time(at)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read when nodes changed: %w", err)
	}
	return out, nil
}
