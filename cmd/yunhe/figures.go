package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	monitorv1 "yunhe.dev/yunhe/gen/yunhe/monitor/v1"
)

// presentFigures returns what a center or a node measured last; nil if the server is
// too old to say, keeps no samples just now, or does not tell this caller.
func presentFigures(ctx context.Context, a *api, center, node string) *monitorv1.Figures {
	f, err := a.monitor.GetFigures(ctx, &monitorv1.GetFiguresRequest{AiCenterId: center, Node: node})
	var call *callError
	if errors.As(err, &call) {
		err = call.err
	}
	if err != nil && connect.CodeOf(err) != connect.CodeCanceled {
		return nil // what was asked for is shown without them
	}
	return f
}

// addFigures adds what is known.
func (c *cli) addFigures(t *text.Facts, f *monitorv1.Figures) {
	if f == nil {
		return
	}
	var use []string
	if f.CpuBusyRatio != nil {
		use = append(use, "CPU "+asPercent(f.GetCpuBusyRatio()))
	}
	if f.MemoryBusyBytes != nil {
		use = append(use, "memory "+text.Bytes(int64(f.GetMemoryBusyBytes())))
	}
	if f.AcceleratorBusyRatio != nil {
		use = append(use, "accelerators "+asPercent(f.GetAcceleratorBusyRatio()))
	}
	if len(use) > 0 {
		what := "Use"
		if f.GetNodes() > 0 {
			what = "Use of nodes"
		}
		t.Add(what, strings.Join(use, ", "))
	}
	for _, x := range f.GetAccelerators() {
		var parts []string
		if x.BusyRatio != nil {
			parts = append(parts, asPercent(x.GetBusyRatio())+" busy")
		}
		if x.MemoryBusyBytes != nil {
			parts = append(parts, "memory "+text.Bytes(int64(x.GetMemoryBusyBytes())))
		}
		t.Add(fmt.Sprintf("Accelerator %d", x.GetIndex()), strings.Join(parts, ", "))
	}
	t.Add("Storage", storageFigures(f.GetStorage()))
	if n := f.GetNetwork(); n != nil {
		t.Add("Network", fmt.Sprintf("%s/s received, %s/s sent", text.Bytes(int64(n.GetReceivedBytes())), text.Bytes(int64(n.GetSentBytes()))))
	}
	for _, p := range f.GetPaths() {
		t.Add("Path to "+p.GetPeer(), pathFigures(p))
	}
	if s := f.ClockSkewSeconds; s != nil && (*s > 1 || *s < -1) {
		t.AddColor("Clock", fmt.Sprintf("%.1f s behind", *s), text.Yellow)
	}
	if r := f.GetRefused(); len(r) > 0 {
		t.AddColor("Refused", strings.Join(r, ", "), text.Red)
	}
}

func storageFigures(s *monitorv1.StorageFigures) string {
	if s == nil {
		return ""
	}
	out := fmt.Sprintf("%.0f reads/s, %.0f writes/s, %s/s read, %s/s written", s.GetReads(), s.GetWrites(), text.Bytes(int64(s.GetReadBytes())), text.Bytes(int64(s.GetWrittenBytes())))
	if s.LatencySeconds != nil {
		out += ", " + milliseconds(s.GetLatencySeconds()) + " each"
	}
	return out
}

func pathFigures(p *monitorv1.PathFigures) string {
	var parts []string
	if p.LatencySeconds != nil {
		parts = append(parts, "latency "+milliseconds(p.GetLatencySeconds()))
	}
	if p.JitterSeconds != nil {
		parts = append(parts, "jitter "+milliseconds(p.GetJitterSeconds()))
	}
	if p.LossRatio != nil {
		parts = append(parts, "loss "+asPercent(p.GetLossRatio()))
	}
	if b := p.GetBandwidthBitsPerSecond(); b > 0 {
		parts = append(parts, "bandwidth "+bits(b))
	}
	return strings.Join(parts, ", ")
}

func asPercent(ratio float64) string { return number(ratio*100, 1) + "%" }

func milliseconds(seconds float64) string {
	return number(seconds*float64(time.Second/time.Millisecond), 2) + " ms"
}

// bits formats a rate of bits per second.
func bits(n float64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}} {
		if n >= u.size {
			return number(n/u.size, 1) + " " + u.name
		}
	}
	return number(n, 0) + " bit/s"
}
