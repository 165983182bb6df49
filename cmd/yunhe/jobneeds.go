package main

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

// needs are the flags of `job submit` that say what the task reads and what
// quality it needs.
type needs struct {
	inputs                   []string
	expected                 time.Duration
	precision                string
	maxLatency, maxJitter    time.Duration
	maxLoss, minAvailability string
	minBandwidth             string
	finishWithin             time.Duration
	required                 bool
}

const inputHelp = `An input is data that the command reads; the platform does not copy it, and
runs the task where it is soonest or cheapest at hand. --input takes its name
and, after commas, size=20Gi, at=CENTER (again for each center that holds it),
volume=VOLUME instead of centers, and stays if replicas must run where it is.`

func (n *needs) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&n.inputs, "input", nil, "data the command reads, NAME[,size=BYTES][,at=CENTER][,volume=VOLUME][,stays] (repeatable)")
	f.DurationVar(&n.expected, "expected", 0, "how long a run is expected to take, such as 30m")
	f.StringVar(&n.precision, "precision", "", "precision of most of its computing, such as FP16, for policies that score speed")
	f.DurationVar(&n.maxLatency, "max-latency", 0, "round trip to the origin not to exceed, such as 20ms")
	f.DurationVar(&n.maxJitter, "max-jitter", 0, "jitter not to exceed, such as 2ms")
	f.StringVar(&n.maxLoss, "max-loss", "", "lost packets not to exceed, such as 0.1%")
	f.StringVar(&n.minBandwidth, "min-bandwidth", "", "usable bits per second to the origin, such as 100M")
	f.DurationVar(&n.finishWithin, "finish-within", 0, "inputs brought and run ended within, such as 2h")
	f.StringVar(&n.minAvailability, "min-availability", "", "share of the last 30 days the center was available in, such as 99.9%")
	f.BoolVar(&n.required, "qos-required", false, "run only where these targets are met")
}

// needFlags are the names of those flags.
var needFlags = []string{"input", "expected", "precision", "max-latency", "max-jitter", "max-loss", "min-bandwidth", "finish-within", "min-availability", "qos-required"}

// of puts what the flags say into a task.
func (n *needs) of(t *jobsv1.Task) (err error) {
	t.Precision = n.precision
	if t.ExpectedSeconds, err = secondsFlag("--expected", n.expected); err != nil {
		return err
	}
	for _, s := range n.inputs {
		in, err := inputFlag(s)
		if err != nil {
			return err
		}
		t.Inputs = append(t.Inputs, in)
	}
	q := &jobsv1.Qos{MaxLatencyUs: n.maxLatency.Microseconds(), MaxJitterUs: n.maxJitter.Microseconds(), Required: n.required}
	if q.FinishSeconds, err = secondsFlag("--finish-within", n.finishWithin); err != nil {
		return err
	}
	if q.MaxLossPpm, err = percentFlag("--max-loss", n.maxLoss); err != nil {
		return err
	}
	if q.MinAvailabilityPpm, err = percentFlag("--min-availability", n.minAvailability); err != nil {
		return err
	}
	if n.minBandwidth != "" {
		bits, err := parseBitRate("--min-bandwidth", n.minBandwidth)
		if err != nil {
			return err
		}
		q.MinBandwidthKbps = bits / 1000
	}
	targets := q.MaxLatencyUs != 0 || q.MaxJitterUs != 0 || q.MaxLossPpm != 0 || q.MinBandwidthKbps != 0 || q.FinishSeconds != 0 || q.MinAvailabilityPpm != 0
	if q.Required && !targets {
		return &usageError{msg: "--qos-required names no target", hint: "add --max-latency, --max-jitter, --max-loss, --min-bandwidth, --finish-within or --min-availability"}
	}
	if targets {
		t.Qos = q
	}
	return nil
}

// inputFlag reads NAME[,size=BYTES][,at=CENTER][,volume=VOLUME][,stays].
func inputFlag(s string) (*jobsv1.Input, error) {
	parts := strings.Split(s, ",")
	in := &jobsv1.Input{Name: parts[0]}
	if in.Name == "" {
		return nil, usagef("--input: want NAME[,size=BYTES][,at=CENTER][,volume=VOLUME][,stays], got %q", s)
	}
	for _, p := range parts[1:] {
		key, value, _ := strings.Cut(p, "=")
		switch {
		case key == "size" && value != "":
			n, err := bytesArg("--input size", value)
			if err != nil {
				return nil, err
			}
			in.SizeBytes = n
		case key == "at" && value != "":
			in.Centers = append(in.Centers, value)
		case key == "volume" && value != "":
			in.Volume = value
		case p == "stays":
			in.Stays = true
		default:
			return nil, usagef("--input: want size=BYTES, at=CENTER, volume=VOLUME or stays after the name, got %q in %q", p, text.Clean(s))
		}
	}
	return in, nil
}

// secondsFlag reads whole seconds, at least one; 0 where nothing is said.
func secondsFlag(what string, d time.Duration) (int64, error) {
	if d != 0 && d < time.Second {
		return 0, usagef("%s: want at least 1s, got %s", what, d)
	}
	return int64(d / time.Second), nil
}

// percentFlag reads per cent such as 0.1% as millionths; "" is 0.
func percentFlag(what, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	x, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !strings.HasSuffix(s, "%") || !(x >= 0 && x <= 100) {
		return 0, usagef("%s: want per cent such as 0.1%%, got %q", what, s)
	}
	return int64(x*1e4 + .5), nil
}

// needsText says what a task reads and what quality it needs, in the words of the flags.
func needsText(t *jobsv1.Task) string {
	var parts []string
	if t.GetPrecision() != "" {
		parts = append(parts, t.GetPrecision())
	}
	for _, in := range t.GetInputs() {
		s := "reads " + in.GetName()
		if in.GetSizeBytes() > 0 {
			s += " (" + text.Bytes(in.GetSizeBytes()) + ")"
		}
		if at := append(slices.Clone(in.GetCenters()), in.GetVolume()); strings.Join(at, "") != "" {
			s += " at " + joinNonEmpty(",", at...)
		}
		if in.GetStays() {
			s += ", which stays"
		}
		parts = append(parts, s)
	}
	q := t.GetQos()
	for _, x := range []struct {
		said string
		set  bool
	}{
		{"latency to " + (time.Duration(q.GetMaxLatencyUs()) * time.Microsecond).String(), q.GetMaxLatencyUs() > 0},
		{"jitter to " + (time.Duration(q.GetMaxJitterUs()) * time.Microsecond).String(), q.GetMaxJitterUs() > 0},
		{"loss to " + ppmText(q.GetMaxLossPpm()), q.GetMaxLossPpm() > 0},
		{"bandwidth from " + bitRate(q.GetMinBandwidthKbps()*1000), q.GetMinBandwidthKbps() > 0},
		{"done within " + seconds(q.GetFinishSeconds()), q.GetFinishSeconds() > 0},
		{"available " + ppmText(q.GetMinAvailabilityPpm()), q.GetMinAvailabilityPpm() > 0},
		{"required", q.GetRequired()},
	} {
		if x.set {
			parts = append(parts, x.said)
		}
	}
	return strings.Join(parts, "; ")
}

// ppmText writes millionths as per cent.
func ppmText(v int64) string { return strconv.FormatFloat(float64(v)/1e4, 'g', 6, 64) + "%" }
