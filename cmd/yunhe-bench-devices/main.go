//go:build linux

// Command yunhe-bench-devices is the benchmark of accelerators that a
// measurement sends to a center as a job: it measures each device that OpenCL
// or the CUDA driver shows it and prints a report that the platform reads.
//
// Each interface is measured by a process of its own, which this one starts: a
// vendor's library may end the process it is loaded into, and the others are
// measured all the same.
//
// It is a program of its own because it opens the vendors' libraries: it needs
// the system's dynamic loader, where the benchmark of the machine
// (cmd/yunhe-bench) runs anywhere. Without a library, or without a device, it
// says so in its report; that is no error.
//
// A rate is of products and sums in registers: 64 chains in every work item, so
// that vector units and pipelines are full. It is the best of several takes,
// and each take's result is read back and compared with what it must be: a
// device that computes wrongly has no rate.
package main

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/measurement/report"
	"yunhe.dev/yunhe/internal/measurement/score"
)

// A chain is x = x*factor + summand; all end at 1, because summand = 1 - factor.
const (
	factor    = 0.99
	summand   = 0.01
	chains    = 64   // in a work item
	minRounds = 4096 // after which a chain is at 1, to seven digits
	takes     = 5
	takeTime  = 200 * time.Millisecond
	perDevice = 12 * time.Second
)

// interfaces are what devices are reached by, in the order of a report.
var interfaces = []struct {
	name    string
	measure func(*report.Report) error
}{{"cuda", cuda}, {"opencl", openCL}}

func main() {
	begin := time.Now()
	r := &report.Report{Scope: report.Devices, Cores: runtime.GOMAXPROCS(0), Architecture: runtime.GOARCH}
	r.Host, _ = os.Hostname() // "" is what a machine without a name has
	for _, x := range interfaces {
		switch {
		case len(os.Args) < 2:
			apart(r, x.name)
		case os.Args[1] == x.name:
			runtime.LockOSThread() // a CUDA context belongs to a thread
			if err := x.measure(r); err != nil {
				r.Notes = append(r.Notes, err.Error())
			}
		}
	}
	r.Seconds = time.Since(begin).Seconds()
	if _, err := os.Stdout.WriteString(r.Text()); err != nil {
		os.Exit(1)
	}
}

// apart measures an interface in a process of its own and adds what it found.
func apart(r *report.Report, name string) {
	self, err := os.Executable()
	if err != nil {
		r.Notes = append(r.Notes, name+": "+err.Error())
		return
	}
	var out, complaint strings.Builder
	c := exec.Command(self, name)
	c.Stdout, c.Stderr, c.Env = &out, &complaint, append(os.Environ(), machine()...)
	failed := c.Run()
	found, err := report.Parse(out.String())
	if err != nil {
		why := err.Error()
		if failed != nil {
			why = failed.Error()
		}
		lines := strings.Split(strings.TrimSpace(complaint.String()), "\n")
		r.Notes = append(r.Notes, name+": measuring ended early: "+why+": "+lines[len(lines)-1])
		return
	}
	for _, f := range found.Figures {
		r.Add(f.Indicator, f.Number, f.Device+len(r.Devices))
	}
	r.Devices, r.Notes = append(r.Devices, found.Devices...), append(r.Notes, found.Notes...)
}

// machine describes the machine to hwloc, which OpenCL for processors asks,
// where a sandbox has no /sys for it to look at; it would find no memory there.
func machine() []string {
	if _, err := os.Stat("/sys/devices/system"); err == nil || os.Getenv("HWLOC_SYNTHETIC") != "" {
		return nil
	}
	memory, err := strconv.ParseInt(os.Getenv("YUNHE_BENCH_MEMORY"), 10, 64)
	if err != nil || memory <= 0 {
		memory = 1 << 30
	}
	return []string{"HWLOC_SYNTHETIC=numa:1(memory=" + strconv.FormatInt(memory, 10) + ") core:" + strconv.Itoa(runtime.GOMAXPROCS(0)) + " pu:1"}
}

// device is what both interfaces offer of one.
type device struct {
	report.Device
	items  int // that run at once
	double bool
	bytes  int64 // of each array that is copied; 0: not measured
	// rate runs so many rounds in every item and returns a chain's end.
	rate func(double bool, rounds uint32) (float64, error)
	// move copies the arrays once.
	move func() error
}

// add measures a device and adds what it finds.
func add(r *report.Report, d device) {
	index := len(r.Devices)
	r.Devices = append(r.Devices, d.Device)
	note := func(what string, err error) {
		r.Notes = append(r.Notes, d.API+" device "+strconv.Itoa(index)+": "+what+" not measured: "+err.Error())
	}
	end := time.Now().Add(perDevice)
	for _, x := range []struct {
		indicator string
		double    bool
	}{{score.DeviceFP32, false}, {score.DeviceFP64, true}} {
		if x.double && !d.double {
			r.Notes = append(r.Notes, d.API+" device "+strconv.Itoa(index)+": computes no FP64")
			continue
		}
		tera, err := d.flops(x.double, end)
		if err != nil {
			note(x.indicator, err)
			continue
		}
		r.Add(x.indicator, tera, index)
	}
	if d.bytes == 0 {
		return
	}
	best, err := fastest(func() (float64, error) { return float64(2 * d.bytes), d.move() })
	if err != nil {
		note(score.DeviceBandwidth, err)
		return
	}
	r.Add(score.DeviceBandwidth, best/1e9, index)
}

// flops is the rate in tera operations a second.
func (d *device) flops(double bool, end time.Time) (float64, error) {
	rounds := uint32(minRounds)
	for {
		begin := time.Now()
		if err := d.check(double, rounds); err != nil {
			return 0, err
		}
		if t := time.Since(begin); t >= takeTime || rounds >= 1<<28 || time.Now().Add(8*t).After(end) {
			break
		}
		rounds *= 2
	}
	best, err := fastest(func() (float64, error) {
		return float64(d.items) * chains * 2 * float64(rounds), d.check(double, rounds)
	})
	return best / 1e12, err
}

func (d *device) check(double bool, rounds uint32) error {
	got, err := d.rate(double, rounds)
	if err == nil && !(got > chains*0.999 && got < chains*1.001) {
		err = failure("the result is " + strconv.FormatFloat(got, 'g', -1, 64) + ", want " + strconv.Itoa(chains))
	}
	return err
}

// fastest is the most that was done a second, of several takes.
func fastest(take func() (float64, error)) (most float64, err error) {
	for range takes {
		begin := time.Now()
		n, err := take()
		if err != nil {
			return 0, err
		}
		most = max(most, n/time.Since(begin).Seconds())
	}
	return most, nil
}

// failure is an error of a library.
type failure string

func (f failure) Error() string { return string(f) }

// text is a C string as a library filled it.
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
