package pools

import (
	"context"
	"time"
)

// Round is one round of the loop of a process that began to look then.
func (s *Service) Round(ctx context.Context, begun time.Time) error { return s.round(ctx, begun) }

// CutOff is what is done when a node's machine acknowledged nothing for so long.
func (s *Service) CutOff(ctx context.Context, node string, quiet time.Duration) error {
	return s.cutOff(ctx, node, quiet)
}
