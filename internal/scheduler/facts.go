package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/accelerators"
	"yunhe.dev/yunhe/internal/network"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// SetNetwork says what knows the paths to and between centers. It is called
// before the first call; without it nothing is known of them.
func (s *Service) SetNetwork(n *network.Service) { s.network = n }

// joinNetwork adds to a snapshot what is known of the network, and to works
// where they come from: their origins are names until then ([network.From]).
func (s *Service) joinNetwork(ctx context.Context, out *place.Snapshot, works []place.Work) error {
	if s.network == nil {
		return nil
	}
	p, err := s.network.Picture(ctx)
	if err != nil {
		return fmt.Errorf("read the network: %w", err)
	}
	p.Apply(out)
	for i := range works {
		works[i].Origin = p.Origin(works[i].Origin.Name, works[i].Tenant)
	}
	return nil
}

// Labels by which a center says what nobody measures. Values that cannot be
// say nothing.
const (
	// speedLabel begins "speed.gpu" and, for a precision, "speed.gpu.FP16": how
	// fast it computes relative to the reference, 1 being as fast. What is measured
	// stands; what makers publish does not.
	speedLabel = "speed."
	// powerLabel begins "power.gpu": watts of a piece held and of one that
	// works, as "60/400"; of "memory" and "storage" of a GiB.
	powerLabel = "power."
	// pueLabel is the power of the facility per power of its devices, carbonLabel
	// the grams of CO2 per kWh of its electricity.
	pueLabel    = "energy.pue"
	carbonLabel = "energy.carbon"
)

var precisions = []string{"FP64", "FP32", "FP16", "INT8"}

// declare reads the labels of a center.
func declare(p *place.Candidate, labels map[string]string) {
	for key, text := range labels {
		switch {
		case strings.HasPrefix(key, speedLabel):
			kind, precision, stated := strings.Cut(strings.TrimPrefix(key, speedLabel), ".")
			v, ok := thousandths(text)
			if ok && v > 0 && kind != "" && (!stated || slices.Contains(precisions, precision)) {
				addSpeed(p, kind, precision, v)
			}
		case strings.HasPrefix(key, powerLabel):
			name := strings.TrimPrefix(key, powerLabel)
			held, works, _ := strings.Cut(text, "/")
			static, ok := thousandths(held)
			busy, ok2 := thousandths(works)
			if ok && ok2 && name != "cpu" {
				w := place.Power{Per: 1, Static: static, Busy: busy}
				if name == "memory" || name == "storage" {
					w.Per = 1 << 30
				}
				if p.Power == nil {
					p.Power = map[string]place.Power{}
				}
				p.Power[name] = w
			}
		case key == pueLabel:
			if v, ok := thousandths(text); ok && v >= 1000 {
				p.PUE = place.Known(v)
			}
		case key == carbonLabel:
			if v, ok := thousandths(text); ok {
				p.Carbon = place.Known(v / 1000)
			}
		}
	}
}

// publish adds what makers publish of a center's accelerators where nothing else
// is known. Work that names no precision takes them for as fast as they are with
// that of most training and inference.
func publish(p *place.Candidate, speeds []registry.Speed) {
	for _, v := range speeds {
		if slices.Contains(precisions, string(v.Precision)) {
			addSpeed(p, v.Kind, string(v.Precision), v.Milli)
		}
	}
	for _, v := range slices.Clone(p.Speeds) {
		if v.Precision == string(accelerators.FP16) {
			addSpeed(p, v.Kind, "", v.Milli)
		}
	}
}

// addSpeed adds a speed to those that are known better, in order.
func addSpeed(p *place.Candidate, kind, precision string, milli int64) {
	v := place.Speed{Kind: kind, Precision: precision, Milli: milli}
	i, known := slices.BinarySearchFunc(p.Speeds, v, func(a, b place.Speed) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Precision, b.Precision))
	})
	if !known {
		p.Speeds = slices.Insert(p.Speeds, i, v)
	}
}

// thousandths reads a decimal of 0 to a million.
func thousandths(text string) (int64, bool) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= 1e6) {
		return 0, false
	}
	return int64(v*1000 + .5), true
}

// appendNeeds appends to the name of a shape what of a task keeps centers out by
// the network and by data.
func appendNeeds(b *strings.Builder, w *place.Work, t *place.Task) {
	if t.QoS.Required {
		fmt.Fprintf(b, " %v %s", t.QoS, w.Origin.Name)
	}
	for _, d := range t.Data {
		if d.Stay || t.QoS.FinishSeconds.Known && t.QoS.Required {
			fmt.Fprintf(b, " %v", d)
		}
	}
}
