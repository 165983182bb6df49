package standing

import (
	"context"
	"time"

	"yunhe.dev/yunhe/internal/db"
)

// Wait has a silent center be silent for longer, as if the platform had
// listened all the time.
func (s *Service) Wait(ctx context.Context, id string, d time.Duration) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		links, err := readLinks(ctx, tx, `WHERE ai_center_id = $1`, id)
		if err != nil {
			return err
		}
		for i := range links {
			l := &links[i]
			l.Silent, l.watched = l.Silent+d, l.watched+d
			if err := saveLink(ctx, tx, l); err != nil {
				return err
			}
		}
		return nil
	})
}
