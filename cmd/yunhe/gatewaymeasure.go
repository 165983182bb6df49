package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/adapters/gateway/agent"
	"yunhe.dev/yunhe/adapters/gateway/measure"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/fault"
)

// measureFlag reads --measure of the gateway.
func measureFlag(value string) (string, error) {
	switch value {
	case agent.MeasureOnce, agent.MeasureAgain:
		return value, nil
	case "no":
		return "", nil
	}
	return "", fault.New(fault.Invalid, "--measure: want once, again or no, got %q", value)
}

func gatewayMeasureCommand(c *cli) *cobra.Command {
	var data string
	var again bool
	cmd := &cobra.Command{
		Use: "measure", Short: "Measure this machine as a gateway does",
		Long: `Measure this machine as a gateway does: three seconds of work for its processors,
memory, disk and network stack, and what the system says of its hardware. The
disk is that of the data folder, where the result is kept; it is measured again
when the machine has become another one, or with --again.

The performance factor is 1000 for the reference machine. A gateway declares it
unless its center's file states one.`,
		Example: `  yunhe gateway measure --data /var/lib/yunhe-gateway`,
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			dir, err := filepath.Abs(data)
			if err != nil {
				return fault.Wrap(fault.Invalid, err, "--data: %q is not a folder", data)
			}
			if st, err := os.Stat(dir); err != nil || !st.IsDir() {
				return fault.New(fault.Invalid, "--data: %s is not a folder: say on which disk to measure", dir)
			}
			r, err := measure.Once(ctx, dir, again)
			if err != nil {
				return err
			}
			return c.print(result{msg: r, names: []string{strconv.FormatInt(r.Performance, 10)}, print: func(w io.Writer, color bool) error {
				return c.measured(r).Write(w, color)
			}})
		},
	}
	gatewayData(cmd, &data)
	cmd.Flags().BoolVar(&again, "again", false, "measure again even if this machine was measured")
	return cmd
}

func (c *cli) measured(r measure.Result) text.Facts {
	var f text.Facts
	m, x := r.Machine, r.Figures
	f.Add("Machine", strings.TrimSpace(m.Name+" ("+m.Architecture+")"))
	f.Add("System", strings.Join(nonEmpty(m.System, m.Kernel), ", "))
	f.Add("Processor", fmt.Sprintf("%s, %s, %s, %s", m.CPU.Model, text.Count(m.CPU.Sockets, "socket"), text.Count(m.CPU.Cores, "core"), text.Count(m.CPU.Threads, "thread")))
	f.Add("Features", strings.Join(m.CPU.Features, " "))
	f.Add("Memory", text.Bytes(m.MemoryBytes))
	for _, n := range m.NUMA {
		f.Add("NUMA node "+strconv.Itoa(n.Node), fmt.Sprintf("CPUs %s, %s", n.CPUs, text.Bytes(n.MemoryBytes)))
	}
	for _, d := range m.Disks {
		kind := "solid state"
		if d.Rotational {
			kind = "rotating, or not told"
		}
		f.Add("Disk "+d.Name, strings.Join(nonEmpty(d.Model, text.Bytes(d.Bytes), kind), ", "))
	}
	for _, n := range m.NICs {
		speed := ""
		if n.SpeedMbps > 0 {
			speed = fmt.Sprintf("%d Mbit/s", n.SpeedMbps)
		}
		f.Add("Network "+n.Name, strings.Join(nonEmpty(n.Driver, speed, fmt.Sprintf("MTU %d", n.MTU)), ", "))
	}
	for _, a := range m.Accelerators {
		peaks := ""
		for _, p := range a.Peak() {
			peaks += "; " + p.String()
		}
		name := strings.Join(nonEmpty(a.Model, a.Vendor, a.VendorID+":"+a.DeviceID)[:1], "")
		f.Add("Accelerator "+a.Address, name+peaks)
	}
	figure := func(name string, v float64, unit string) {
		if v > 0 {
			f.Add(name, strconv.FormatFloat(v, 'f', 0, 64)+" "+unit)
		}
	}
	figure("Integer", x.IntegerMops, "million operations/s a core")
	figure("Floating point", x.FloatMflops, "MFLOPS a core (64 bit, scalar)")
	figure("Memory bandwidth", x.MemoryMBps, "MB/s")
	figure("Disk write", x.DiskWriteMBps, "MB/s, durable")
	figure("Disk reads", x.DiskReadsPerSecond, "/s at random")
	figure("Loopback", x.NetworkMBps, "MB/s")
	figure("Round trip", x.RoundTripMicros, "µs")
	f.Add("Performance", strconv.FormatInt(r.Performance, 10)+" (1000 is the reference machine)")
	f.Add("Measured", text.Ago(c.now(), r.MeasuredAt)+", in "+strconv.FormatFloat(r.Seconds, 'f', 1, 64)+" s")
	return f
}

func nonEmpty(list ...string) []string {
	var out []string
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}
