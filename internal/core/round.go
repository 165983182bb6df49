package core

import (
	"context"
	"time"
)

type roundKey struct{}

// Rounds hears how the rounds of a loop go. It is safe for concurrent use.
type Rounds interface {
	Begun(rest time.Duration)
	GetsOn()
	Failed(err error)
}

// WithRounds returns a context whose loop tells r of its rounds.
func WithRounds(ctx context.Context, r Rounds) context.Context {
	return context.WithValue(ctx, roundKey{}, r)
}

// Round says that the loop of ctx begins a round, after which it rests for rest
// at most before it begins the next one. A loop that one process at a time runs
// and that does not keep to this is taken for one that stands still: see package
// run. Nothing is expected of a loop that does not call it.
func Round(ctx context.Context, rest time.Duration) {
	if r, ok := ctx.Value(roundKey{}).(Rounds); ok {
		r.Begun(rest)
	}
}

// GetsOn says that the round of the loop of ctx, which may be a long one, gets on.
func GetsOn(ctx context.Context) {
	if r, ok := ctx.Value(roundKey{}).(Rounds); ok {
		r.GetsOn()
	}
}

// RoundFailed says that the round of the loop of ctx failed as a whole, and why. A
// loop of which every round fails for long is taken for one that another process, or
// a new beginning, may do better.
func RoundFailed(ctx context.Context, err error) {
	if r, ok := ctx.Value(roundKey{}).(Rounds); ok && ctx.Err() == nil {
		r.Failed(err)
	}
}
