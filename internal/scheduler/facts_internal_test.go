package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/accelerators"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// What a center declares by labels is believed only as far as it makes sense,
// and the same labels always say the same.
func FuzzDeclare(f *testing.F) {
	for _, s := range [][2]string{{"speed.gpu.fp16", "312.5"}, {"speed.cpu", "-1"}, {"power.gpu", "60/350"}, {"power.memory", "0.1/NaN"}, {"pue", "1.2"}, {"pue", "0.2"}, {"carbon", "1e300"}, {"carbon", "581"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, key, text string) {
		var p, again place.Candidate
		labels := map[string]string{key: text, "speed.npu": "3"}
		declare(&p, labels)
		declare(&again, labels)
		if !slices.Equal(p.Speeds, again.Speeds) {
			t.Errorf("%q: %q says %v, then %v", key, text, p.Speeds, again.Speeds)
		}
		for _, s := range p.Speeds {
			if s.Milli <= 0 || s.Milli > 1e9 || s.Kind == "" {
				t.Errorf("%q: %q declares the speed %+v", key, text, s)
			}
		}
		for name, w := range p.Power {
			if w.Static < 0 || w.Busy < 0 || w.Static > 1e9 || w.Busy > 1e9 || w.Per < 1 {
				t.Errorf("%q: %q declares the power %+v of %s", key, text, w, name)
			}
		}
		if p.PUE.Known && (p.PUE.Value < 1000 || p.PUE.Value > 1e9) || p.Carbon.Known && (p.Carbon.Value < 0 || p.Carbon.Value > 1e6) {
			t.Errorf("%q: %q declares PUE %v, carbon %v", key, text, p.PUE, p.Carbon)
		}
	})
}

// What was measured counts before what a center states, and that before what
// makers publish.
func TestWhichSpeed(t *testing.T) {
	gpu := func(p accelerators.Precision, milli int64, measured bool) registry.Speed {
		return registry.Speed{Kind: "gpu", Precision: p, Milli: milli, Measured: measured}
	}
	all := []registry.Speed{gpu("BF16", 1, false), gpu("FP16", 1000, false), gpu("FP32", 960, true), gpu("FP64", 970, false), gpu("INT8", 980, false)}
	for _, x := range []struct {
		name   string
		labels map[string]string
		speeds []registry.Speed
		want   string
	}{
		{"nothing is known", nil, nil, "cpu. 500"},
		{"published and measured", nil, all, "cpu. 500 gpu. 1000 gpu.FP16 1000 gpu.FP32 960 gpu.FP64 970 gpu.INT8 980"},
		{"stated, too", map[string]string{"speed.gpu.FP32": "2", "speed.gpu.FP64": "2", "speed.cpu": "9"}, all, "cpu. 500 gpu. 1000 gpu.FP16 1000 gpu.FP32 960 gpu.FP64 2000 gpu.INT8 980"},
		{"stated of the kind", map[string]string{"speed.gpu": "3"}, all, "cpu. 500 gpu. 3000 gpu.FP16 1000 gpu.FP32 960 gpu.FP64 970 gpu.INT8 980"},
		{"stated of FP16 alone", map[string]string{"speed.npu.FP16": "3"}, nil, "cpu. 500 npu. 3000 npu.FP16 3000"},
	} {
		var got []string
		for _, s := range candidate(&registry.Center{Performance: 500, Labels: x.labels, Speeds: x.speeds}).Speeds {
			got = append(got, fmt.Sprintf("%s.%s %d", s.Kind, s.Precision, s.Milli))
		}
		if text := strings.Join(got, " "); text != x.want {
			t.Errorf("%s: %s\nwant %s", x.name, text, x.want)
		}
	}
}
