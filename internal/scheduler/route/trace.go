package route

import (
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/fault"
)

// Limits of recorded files.
const (
	maxLines = 1_000_000
	// within is the round trip inside a region that a table leaves out.
	within = 2_000
)

// ReadLatency reads a table of round trips between regions in milliseconds:
// CSV whose header is a name of any kind and then the regions, and whose rows
// begin with theirs. What is empty cannot be reached, but for the way inside
// a region, which then takes 2 ms.
func ReadLatency(r io.Reader) (regions []string, latency [][]int64, err error) {
	in := csv.NewReader(r)
	head, err := in.Read()
	if err != nil {
		return nil, nil, fault.Wrap(fault.Invalid, err, "the table cannot be read")
	}
	regions = head[1:]
	if n := len(regions); n == 0 || n > MaxPlaces {
		return nil, nil, fault.New(fault.Invalid, "line 1: must name 1 to %d regions, got %d", MaxPlaces, n)
	}
	for i, name := range regions {
		if name == "" || slices.Contains(regions[:i], name) {
			return nil, nil, fault.New(fault.Invalid, "line 1: regions must have names that differ, got %q", name)
		}
	}
	latency = make([][]int64, len(regions))
	for line := 2; ; line++ {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, fault.Wrap(fault.Invalid, err, "line %d", line)
		}
		from := slices.Index(regions, row[0])
		if from < 0 || latency[from] != nil {
			return nil, nil, fault.New(fault.Invalid, "line %d: must begin with one of the regions, each once, got %q", line, row[0])
		}
		for to, text := range row[1:] {
			us := Unreachable
			if text == "" && from == to {
				us = within
			} else if text != "" {
				ms, err := strconv.ParseFloat(text, 64)
				if err != nil || !(ms >= 0 && ms <= 1e6) {
					return nil, nil, fault.New(fault.Invalid, "line %d: %s: must be 0 to 1000000 milliseconds, got %q", line, regions[to], text)
				}
				us = int64(ms * 1000)
			}
			latency[from] = append(latency[from], us)
		}
	}
	for i, row := range latency {
		if row == nil {
			return nil, nil, fault.New(fault.Invalid, "there is no row for %s", regions[i])
		}
	}
	return regions, latency, nil
}

// ReadWork reads how much work recorded requests were, relative to their
// mean: CSV with a column of that name, such as GeneratedTokens.
func ReadWork(r io.Reader, column string) ([]float64, error) {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	head, err := in.Read()
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the requests cannot be read")
	}
	at := slices.IndexFunc(head, func(s string) bool { return strings.TrimSpace(s) == column })
	if at < 0 {
		return nil, fault.New(fault.Invalid, "line 1: there is no column %q, only %s", column, strings.Join(head, ", "))
	}
	var out []float64
	total := 0.0
	for line := 2; ; line++ {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "line %d", line)
		}
		x, err := strconv.ParseFloat(row[at], 64)
		if err != nil || !(x >= 0 && x <= 1e12) {
			return nil, fault.New(fault.Invalid, "line %d: %s: must be a number from 0, got %q", line, column, row[at])
		}
		if out, total = append(out, x), total+x; len(out) > maxLines {
			return nil, fault.New(fault.Invalid, "must be at most %d requests", maxLines)
		}
	}
	if !(total > 0) {
		return nil, fault.New(fault.Invalid, "must hold requests with work, got none")
	}
	for i := range out {
		out[i] *= float64(len(out)) / total
	}
	return out, nil
}
