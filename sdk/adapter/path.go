package adapter

import (
	"slices"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// Lost stands for a probe without an answer.
const Lost = time.Duration(-1)

// PathOf is the quality of a path by its last probes, in their order: how long
// each answer took, or [Lost]. Nil if there are none.
func PathOf(peer string, probes []time.Duration) *adapterv1.Path {
	if len(probes) == 0 {
		return nil
	}
	good := slices.DeleteFunc(slices.Clone(probes), func(t time.Duration) bool { return t < 0 })
	out := &adapterv1.Path{Peer: peer, LossPpm: int64(len(probes)-len(good)) * 1_000_000 / int64(len(probes))}
	var jitter time.Duration
	for i := 1; i < len(good); i++ {
		jitter += (good[i] - good[i-1]).Abs()
	}
	if len(good) > 1 {
		out.JitterMicroseconds = (jitter / time.Duration(len(good)-1)).Microseconds()
	}
	if slices.Sort(good); len(good) > 0 {
		out.LatencyMicroseconds = good[len(good)/2].Microseconds()
	}
	return out
}
