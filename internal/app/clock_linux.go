package app

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// clock asks the kernel whether something keeps its time.
func (x *examination) clock(context.Context) {
	const part = "clock"
	var t unix.Timex
	switch state, err := unix.Adjtimex(&t); {
	case err != nil:
		x.say(part, Warning, "see that time is kept, best with NTP", "the kernel does not say: %v", err)
	case state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0:
		x.say(part, Warning, "let NTP keep the time (chrony, systemd-timesyncd)", "%s; nothing keeps it right", x.now().UTC().Format(time.RFC3339))
	default:
		x.fine(part, "%s, kept right within %s", x.now().UTC().Format(time.RFC3339), time.Duration(t.Maxerror)*time.Microsecond)
	}
}
