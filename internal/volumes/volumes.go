// Package volumes keeps volumes: files at a center that outlive the runs that
// use them.
//
// A volume is a wish and what its center has made of it. The wish is stored by
// whoever asks; [Service.Run] has the center carry it out, asks again ever less
// often while it does not answer, and looks every minute at what is there.
//
//	creating ──made──▶ ready ──grow──▶ growing ──made, or cannot──▶ ready
//	    │               │  ▲ │                       │
//	    │          gone ▼  │ back                    │
//	    │              lost ─┘                       │
//	    └──────────────┴────┴───── delete ───────────┴──▶ deleting ──gone──▶ (no record)
//
// What it keeps true:
//
//   - A volume is at one center for as long as it is. Jobs that name it run there.
//   - It is deleted only if no job that has not ended names it: the check and
//     the mark are one transaction, and so are a job's storage and its look at
//     the mark ([Service.HoldTx]). The center refuses on its side while a run has it.
//   - Everything asked of a center may be asked again. A process that dies
//     between asking and recording leaves a wish, which the next one carries out.
//   - A volume is lost only if its center answered without it. One that comes
//     back, as after a file system was mounted again, is ready again.
package volumes

import (
	"time"

	"yunhe.dev/yunhe/internal/core"
)

// State is where a volume stands; the numbers are the API's.
type State int

// The states.
const (
	Creating State = 1
	Ready    State = 2
	Growing  State = 3
	Deleting State = 4
	Lost     State = 5
)

// Volume of a tenant.
type Volume struct {
	ID, Name, TenantID, UserID string
	CenterID                   string
	State                      State
	Message                    string
	Wanted, Bytes              int64
	Used                       int64 // -1: not known
	UsedAt                     time.Time
	Enforced                   bool
	CreatedAt, ChangedAt       time.Time

	tries int64
}

// Limits.
const (
	MinBytes = 1 << 20
	MaxBytes = 1 << 50

	maxName    = 32
	maxVolumes = 1000 // of a tenant
	maxMessage = 500
)

func checkName(c *core.Check, name string) {
	ok := name != "" && len(name) <= maxName && name[0] >= 'a' && name[0] <= 'z'
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-')
	}
	if !ok {
		c.Add("name", `must be 1 to %d lower-case letters, digits and "-", beginning with a letter, got %.80q`, maxName, name)
	}
}

// checkRef refuses what is neither an ID nor a name.
func checkRef(c *core.Check, path, ref string) { c.Text(path, ref, true, 64, 0) }

// backoff is how long to wait after so many tries.
func backoff(tries int64) time.Duration {
	return min(time.Second<<min(tries, 6), 30*time.Second)
}
