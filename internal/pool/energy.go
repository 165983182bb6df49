package pool

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// Where what a device's energy comes from.
const (
	EnergyCounter  = "counter"  // of the card
	EnergyPower    = "power"    // that the card tells, over the time
	EnergyPowercap = "powercap" // of all processors of the machine, whoever used them
	EnergyModel    = "model"    // what the node was told of the device
)

// Watts is a model of what a device draws: idle, and when it computes all the time.
type Watts struct{ Idle, Full int64 }

// maxWatts of a device.
const maxWatts = 100_000

// ParseWatts reads DEVICE=IDLE:FULL.
func ParseWatts(s string) (device string, w Watts, err error) {
	device, text, ok := strings.Cut(s, "=")
	idle, full, ok2 := strings.Cut(text, ":")
	i, err1 := strconv.ParseInt(idle, 10, 64)
	f, err2 := strconv.ParseInt(full, 10, 64)
	if !ok || !ok2 || device == "" || err1 != nil || err2 != nil || i < 0 || f < i || f > maxWatts {
		return "", w, fault.New(fault.Invalid, "%q is not DEVICE=IDLE:FULL in watts, such as opencl-0=35:120; at most %d, and full is not below idle", s, maxWatts)
	}
	return device, Watts{i, f}, nil
}

// drawn is the energy that the model says, in millijoules.
func (w Watts) drawn(span, busy time.Duration) int64 {
	busy = min(busy, span)
	return w.Idle*span.Milliseconds() + (w.Full-w.Idle)*busy.Milliseconds()
}

// byTime shares energy of a span by device time. What was nobody's is left; who
// computed beside each other have it by their parts.
func byTime(energy int64, span time.Duration, busy []time.Duration) []int64 {
	all := span
	sum := time.Duration(0)
	for _, b := range busy {
		sum += b
	}
	all = max(all, sum)
	out := make([]int64, len(busy))
	for i, b := range busy {
		if all > 0 {
			out[i] = int64(float64(energy) * float64(b) / float64(all))
		}
	}
	return out
}

// overflown is how far a counter went that begins again after most.
func overflown(from, to, most int64) (int64, error) {
	if to >= from {
		return to - from, nil
	}
	if most < from {
		return 0, fmt.Errorf("a counter went back from %d to %d, at most %d", from, to, most)
	}
	return most - from + to, nil
}
