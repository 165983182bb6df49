package core

import (
	"context"
	"time"
)

type roundKey struct{}

// WithRounds returns a context whose loop tells begun of each round it begins.
func WithRounds(ctx context.Context, begun func(rest time.Duration)) context.Context {
	return context.WithValue(ctx, roundKey{}, begun)
}

// Round says that the loop of ctx begins a round, after which it rests for rest
// at most before it begins the next one. A loop that one process at a time runs
// and that does not keep to this is taken for one that stands still: see package
// run. Nothing is expected of a loop that does not call it.
func Round(ctx context.Context, rest time.Duration) {
	if begun, ok := ctx.Value(roundKey{}).(func(time.Duration)); ok {
		begun(rest)
	}
}
