// Package cards asks the libraries of makers about their cards: what is there,
// how warm it is, what it draws, and what went wrong with it.
//
// What it keeps true:
//
//   - A library is loaded when the program runs, by the names that makers give
//     it: nothing of a maker's is needed to build, and a machine without it has
//     no cards of that maker.
//   - A library runs in a process of its own (package makers), which is asked and has to
//     answer in time ([Driver]). One that crashes or hangs costs its own answers:
//     it is ended, and asked again later.
//   - What a library does not tell is absent, never 0.
//
// The calls and structures are those of the makers' public headers, declared
// here anew; each driver says which. Fields that are not read have no name. No card of any of the makers was at hand:
// the tests play the libraries.
package cards

import "fmt"

// Card is one of a maker's, as its library shows it.
type Card struct {
	Driver      string `json:"driver"`
	Index       int    `json:"index"` // of the library's
	Vendor      string `json:"vendor"`
	Model       string `json:"model"`
	Bus         string `json:"bus,omitempty"` // as [Bus] writes it; "": the library does not say
	UUID        string `json:"uuid,omitempty"`
	Memory      int64  `json:"memory_bytes"`
	Used        int64  `json:"memory_used_bytes"`
	Temperature *int64 `json:"temperature_celsius,omitempty"`
	Power       *int64 `json:"power_mw,omitempty"`
	Energy      *int64 `json:"energy_mj,omitempty"` // of the card's own counter
	Busy        *int64 `json:"busy_percent,omitempty"`
	Uncorrected *int64 `json:"uncorrected_errors,omitempty"` // of its memory
	ECC         *bool  `json:"ecc,omitempty"`                // its memory corrects errors
	MIG         *bool  `json:"mig,omitempty"`                // it is divided by its maker's means
	Faults      int64  `json:"faults,omitempty"`             // that its driver told since it was first asked
	Fault       string `json:"fault,omitempty"`              // the last of them
	Limit       *int64 `json:"power_limit_mw,omitempty"`
	LeastLimit  *int64 `json:"least_power_limit_mw,omitempty"`
	MostLimit   *int64 `json:"most_power_limit_mw,omitempty"`
	BaseLimit   *int64 `json:"default_power_limit_mw,omitempty"`
}

// Names are of the makers' libraries that are known.
var Names = []string{"nvml", "dcmi", "cndev", "rocm-smi"}

// Bus writes where a card is on the bus.
func Bus(domain, bus, device, function uint64) string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, device, function)
}

// Request is a line to a driver's process.
type Request struct {
	Limit *Limit `json:"limit,omitempty"` // else what cards there are
}

// Limit is what a card may draw.
type Limit struct {
	Index      int   `json:"index"`
	Milliwatts int64 `json:"milliwatts"`
}

// Answer is a line from it.
type Answer struct {
	Absent bool   `json:"absent,omitempty"` // there is no such library
	Last   bool   `json:"last,omitempty"`   // the process ends with it
	Cards  []Card `json:"cards,omitempty"`
	Error  string `json:"error,omitempty"`
}
