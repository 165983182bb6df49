package pool

import (
	"fmt"
	"time"
)

// Limits are of all tasks of a node, beside what each was asked with; 0: none.
type Limits struct {
	Idle, Run time.Duration
}

// over says why a task's time is over, "" if it is not; l may be nil.
func (l *Limits) over(started, active, now time.Time) string {
	switch {
	case l == nil:
		return ""
	case l.Run > 0 && now.Sub(started) >= l.Run:
		return fmt.Sprintf("it ran for the node's limit of %s", l.Run)
	case l.Idle > 0 && now.Sub(active) >= l.Idle:
		return fmt.Sprintf("it was not used for the node's limit of %s", l.Idle)
	}
	return ""
}

// Part is one of the programs that a node consists of.
type Part struct {
	Name    string // worker or library
	Version string // the beginning of its SHA-256; "": this build has none
	Running int
}
