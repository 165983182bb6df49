package sim

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
)

// WriteEventHead writes the first line of a list of events: the time in
// microseconds, what happened, the job, and where it is: places between
// spaces, each with its cards after a colon or, in a center, with how many
// replicas there are after a times sign.
func WriteEventHead(w io.Writer) { io.WriteString(w, "time_us,event,job,places\n") }

// WriteEvent writes one as a line of CSV. Errors are those of w, which the
// caller sees when it flushes.
func WriteEvent(w io.Writer, in *Input, e Event) {
	var places strings.Builder
	for i, x := range e.Spots {
		if i > 0 {
			places.WriteByte(' ')
		}
		if len(in.Nodes) > 0 {
			places.WriteString(in.Nodes[x.At].ID)
			for k, card := range x.Cards {
				places.WriteByte(":,"[min(k, 1)])
				places.WriteString(strconv.Itoa(card))
			}
			continue
		}
		if places.WriteString(in.Centers[x.At].ID); x.Replicas > 0 {
			places.WriteString("×" + strconv.Itoa(x.Replicas))
		}
	}
	out := csv.NewWriter(w)
	job := ""
	if e.Job >= 0 { // else it is about the places
		job = in.Jobs[e.Job].ID
	}
	out.Write([]string{strconv.FormatInt(e.At, 10), e.What.String(), job, places.String()})
	out.Flush()
}
