package platform

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"text/tabwriter"
	"time"
)

// Figure is one result.
type Figure struct {
	Name     string  `json:"name"`
	Database string  `json:"database,omitempty"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	// Target is what the value must reach: at least, or at most if AtMost.
	Target float64 `json:"target,omitempty"`
	AtMost bool    `json:"at_most,omitempty"`
	Note   string  `json:"note,omitempty"`
}

// met says whether the target is, "" if there is none.
func (f Figure) met() string {
	switch {
	case f.Target == 0:
		return ""
	case f.AtMost == (f.Value <= f.Target):
		return "yes"
	default:
		return "NO"
	}
}

// Print writes figures as a table or, for the form "json", one per line.
func Print(form string, figures []Figure) error {
	if form == "json" {
		e := json.NewEncoder(os.Stdout)
		for _, f := range figures {
			if err := e.Encode(f); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tDATABASE\tVALUE\tUNIT\tTARGET\tMET\tNOTE")
	for _, f := range figures {
		target := ""
		if f.Target > 0 {
			target = fmt.Sprintf("%s %g", map[bool]string{true: "<=", false: ">="}[f.AtMost], f.Target)
		}
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%s\t%s\t%s\t%s\n", f.Name, f.Database, f.Value, f.Unit, target, f.met(), f.Note)
	}
	return w.Flush()
}

// Quantile of sorted durations in milliseconds: the smallest that at least a
// share q of them does not exceed; 0 of none.
func Quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]) / float64(time.Millisecond)
}
