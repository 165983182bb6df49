package pool

import (
	"time"

	"golang.org/x/sys/unix"
)

// How long something takes is told by the clock of the kernel that nobody sets: a
// time.Time has it beside the time of day, and differences are by it. Where a time is
// written down, as for another program, or is of a file, only the time of day is left,
// which may be set.

// written is a time as a node hands it over: by the time of day it was when the node
// paused, however that was set in between.
func written(paused, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return paused.Round(0).Add(t.Sub(paused))
}

// here is a time that was handed over, as this program has it.
func (h *handover) here(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.Now().Add(t.Sub(h.Paused) - h.since())
}

// since is how long ago the node paused.
func (h *handover) since() time.Duration {
	if h.Kernel > 0 {
		return max(kernelTime()-h.Kernel, 0)
	}
	return max(time.Since(h.Paused), 0) // a program of before does not tell
}

// kernelTime is what two programs of one kernel measure by.
func kernelTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0 // which no Linux does
	}
	return time.Duration(t.Nano())
}

// setWatch notices that the time of day was set. The zero value is ready.
type setWatch struct {
	began time.Time
	ahead time.Duration // of what it was then
	at    time.Time     // when it was seen to be set; zero: it was not
}

const (
	// setBy is by how much it differs that was set, not drifts.
	setBy = time.Second
	// comes is how far ahead the time of a file may be that was written just now.
	comes = time.Minute
)

// set says whether the time of day was set so short ago that files of before may seem
// older than they are.
func (w *setWatch) set(now time.Time, ago time.Duration) bool {
	if w.began.IsZero() {
		w.began = now
	}
	ahead := now.Round(0).Sub(w.began.Round(0)) - now.Sub(w.began)
	if (ahead - w.ahead).Abs() > setBy {
		w.ahead, w.at = ahead, now
	}
	return !w.at.IsZero() && now.Sub(w.at) <= ago
}

// unusedSince reports whether a file was written before a time, or is of a time that
// is still to come: then the time of day was set back since.
func unusedSince(before, now, written time.Time) bool {
	return !before.IsZero() && (written.Before(before) || written.After(now.Add(comes)))
}
