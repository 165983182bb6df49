// Package report is what the benchmark's programs print and the platform
// reads: a block of lines in the log of a job.
//
//	yunhe-measurement 1 begin machine
//	fact <tab> cores <tab> 2
//	device <tab> 0 <tab> opencl <tab> gpu <tab> 132 <tab> 1980 <tab> NVIDIA H200
//	figure <tab> memory.bandwidth <tab> 20310.5
//	figure <tab> accelerator.measured.fp32 <tab> 51.2 <tab> 0
//	note <tab> the working directory is in memory: no disk was measured
//	yunhe-measurement 1 end <tab> 5 <tab> 1a2b3c4d
//
// What it keeps true: a block is read whole or not at all. The last line has
// the number of lines before it and their checksum, so that a log that was cut,
// or that something else wrote into, is no report. Whatever a program of the
// job prints around the block does not matter.
//
// The package is part of programs that are sent with every run, so it needs
// nothing but what they have anyway: no fmt, no JSON.
package report

import (
	"errors"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Version of the format.
const Version = 1

// The scopes of a benchmark.
const (
	Machine = "machine"
	Devices = "devices"
)

// Limits of a report. Programs stay far below.
const (
	maxLines   = 512
	maxText    = 256 // bytes of a field
	maxDevices = 64
	maxFigures = 256
	maxCores   = 1 << 16
)

// Report is what a benchmark found.
type Report struct {
	Scope        string
	Cores        int     // that worked
	Host         string  // as the machine calls itself
	Architecture string  // in Go's words
	Processor    string  // its model
	MHz          float64 // the highest it is said to reach, or what it runs at; 0: not told
	Medium       string  // the file system that was measured; "": none
	Seconds      float64 // it took
	Devices      []Device
	Figures      []Figure
	Notes        []string
}

// Device is an OpenCL or CUDA device.
type Device struct {
	API   string // opencl or cuda
	Class string // cpu, gpu or other
	Units int64  // compute units
	MHz   int64  // highest clock it states; 0: not told
	Name  string
}

// Figure is one number; Device is the index of the device, -1 for none.
type Figure struct {
	Indicator string
	Number    float64
	Device    int
}

// Find returns the figure of an indicator that is of no device.
func (r *Report) Find(indicator string) (float64, bool) {
	for _, f := range r.Figures {
		if f.Indicator == indicator && f.Device < 0 {
			return f.Number, true
		}
	}
	return 0, false
}

// Add adds a figure, unless it is none.
func (r *Report) Add(indicator string, number float64, device int) {
	if number > 0 && !math.IsInf(number, 0) {
		r.Figures = append(r.Figures, Figure{indicator, number, device})
	}
}

// Text returns the block.
func (r *Report) Text() string {
	var lines []string
	add := func(fields ...string) {
		for i, f := range fields {
			fields[i] = clean(f)
		}
		lines = append(lines, strings.Join(fields, "\t"))
	}
	add("fact", "cores", strconv.Itoa(r.Cores))
	add("fact", "host", r.Host)
	add("fact", "architecture", r.Architecture)
	add("fact", "processor", r.Processor)
	add("fact", "mhz", number(r.MHz))
	add("fact", "medium", r.Medium)
	add("fact", "seconds", number(r.Seconds))
	for i, d := range r.Devices {
		add("device", strconv.Itoa(i), d.API, d.Class, strconv.FormatInt(d.Units, 10), strconv.FormatInt(d.MHz, 10), d.Name)
	}
	for _, f := range r.Figures {
		if f.Device < 0 {
			add("figure", f.Indicator, number(f.Number))
		} else {
			add("figure", f.Indicator, number(f.Number), strconv.Itoa(f.Device))
		}
	}
	for _, n := range r.Notes {
		add("note", n)
	}
	return begin + r.Scope + "\n" + strings.Join(lines, "\n") + "\n" + end + "\t" + strconv.Itoa(len(lines)) + "\t" + sum(lines) + "\n"
}

var (
	begin = "yunhe-measurement " + strconv.Itoa(Version) + " begin "
	end   = "yunhe-measurement " + strconv.Itoa(Version) + " end"
)

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func sum(lines []string) string {
	s := strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(strings.Join(lines, "\n")))), 16)
	return strings.Repeat("0", 8-len(s)) + s
}

// clean makes a text that hardware or a driver gave fit into a field.
func clean(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, ""))
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return strings.TrimSpace(s)
}

// Parse finds the one block in a log and returns what it says. An error names
// what is wrong, for people.
func Parse(log string) (*Report, error) {
	at := strings.Index("\n"+log, "\n"+begin)
	if at < 0 {
		if strings.Contains(log, "yunhe-measurement ") {
			return nil, errors.New("the log has no report of version " + strconv.Itoa(Version))
		}
		return nil, errors.New("the log has no report")
	}
	block := log[at:]
	if strings.Contains(block[1:], "\n"+begin) {
		return nil, errors.New("the log has several reports")
	}
	var lines []string
	head, rest, _ := strings.Cut(block, "\n")
	last := ""
	for rest != "" && last == "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		if strings.HasPrefix(line, end+"\t") {
			last = line
			break
		}
		if lines = append(lines, line); len(lines) > maxLines {
			return nil, errors.New("the report has more than " + strconv.Itoa(maxLines) + " lines")
		}
	}
	if last == "" {
		return nil, errors.New("the report has no end: the log was cut")
	}
	if last != end+"\t"+strconv.Itoa(len(lines))+"\t"+sum(lines) {
		return nil, errors.New("the report is damaged: its lines are not those that were written")
	}
	r := &Report{Scope: strings.TrimPrefix(head, begin)}
	if r.Scope != Machine && r.Scope != Devices {
		return nil, errors.New("the report is of " + strconv.Quote(clean(r.Scope)) + ", want machine or devices")
	}
	for i, line := range lines {
		if problem := r.line(strings.Split(line, "\t")); problem != "" {
			return nil, errors.New("line " + strconv.Itoa(i+1) + " of the report: " + problem)
		}
	}
	if r.Cores == 0 {
		return nil, errors.New("the report does not say how many cores worked")
	}
	return r, nil
}

// line takes one line; it returns what is wrong with it.
func (r *Report) line(fields []string) string {
	for _, f := range fields {
		if !utf8.ValidString(f) || f != clean(f) {
			return "a field is not plain text of at most " + strconv.Itoa(maxText) + " bytes"
		}
	}
	switch fields[0] {
	case "fact":
		if len(fields) != 3 {
			return "a fact has a name and a value"
		}
		return r.fact(fields[1], fields[2])
	case "device":
		if len(fields) != 7 || fields[1] != strconv.Itoa(len(r.Devices)) || len(r.Devices) >= maxDevices {
			return "a device has the next number, interface, class, units, MHz and name, at most " + strconv.Itoa(maxDevices)
		}
		units, err1 := strconv.ParseInt(fields[4], 10, 32)
		mhz, err2 := strconv.ParseInt(fields[5], 10, 32)
		known := (fields[2] == "opencl" || fields[2] == "cuda") && (fields[3] == "cpu" || fields[3] == "gpu" || fields[3] == "other")
		if err1 != nil || err2 != nil || units < 0 || mhz < 0 || !known || fields[6] == "" {
			return "the device cannot be read"
		}
		r.Devices = append(r.Devices, Device{fields[2], fields[3], units, mhz, fields[6]})
	case "figure":
		return r.figure(fields[1:])
	case "note":
		if len(fields) != 2 || fields[1] == "" {
			return "a note has a text"
		}
		r.Notes = append(r.Notes, fields[1])
	default:
		return "it is no fact, device, figure or note"
	}
	return ""
}

func (r *Report) fact(name, value string) string {
	amount := func(to *float64, most float64) string {
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || !(v >= 0 && v <= most) {
			return name + " must be between 0 and " + number(most)
		}
		*to = v
		return ""
	}
	switch name {
	case "cores":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > maxCores {
			return "cores must be between 1 and " + strconv.Itoa(maxCores)
		}
		r.Cores = n
	case "host":
		r.Host = value
	case "architecture":
		r.Architecture = value
	case "processor":
		r.Processor = value
	case "medium":
		r.Medium = value
	case "mhz":
		return amount(&r.MHz, 1e5)
	case "seconds":
		return amount(&r.Seconds, 1e5)
	default:
		return "there is no fact " + strconv.Quote(name)
	}
	return ""
}

func (r *Report) figure(fields []string) string {
	if len(fields) < 2 || len(fields) > 3 || !isIndicator(fields[0]) {
		return "a figure has an indicator, a number and perhaps a device"
	}
	f := Figure{Indicator: fields[0], Device: -1}
	var err error
	if f.Number, err = strconv.ParseFloat(fields[1], 64); err != nil || !(f.Number > 0 && f.Number <= 1e18) {
		return f.Indicator + " must be more than 0 and at most 1e18"
	}
	if len(fields) == 3 {
		if f.Device, err = strconv.Atoi(fields[2]); err != nil || f.Device < 0 || f.Device >= len(r.Devices) {
			return f.Indicator + " names a device that is not there"
		}
	}
	for _, g := range r.Figures {
		if g.Indicator == f.Indicator && g.Device == f.Device {
			return f.Indicator + " is given twice"
		}
	}
	if len(r.Figures) >= maxFigures {
		return "there are more than " + strconv.Itoa(maxFigures) + " figures"
	}
	r.Figures = append(r.Figures, f)
	return ""
}

func isIndicator(s string) bool {
	for _, c := range s {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}
