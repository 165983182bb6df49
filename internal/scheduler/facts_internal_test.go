package scheduler

import (
	"slices"
	"testing"

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
