package pools

import (
	"context"
	"time"
)

// Round is one round of the loop of a process that began to look then.
func (s *Service) Round(ctx context.Context, begun time.Time) error { return s.round(ctx, begun) }
