package adapters

import (
	"slices"
	"testing"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/plugin"
)

// TestBatches: messages hold as many attempts as the far end starts in time, and
// never more than the bus takes.
func TestBatches(t *testing.T) {
	s := &Service{served: map[string]*plugin.Process{"by-plug-in": {}}}
	for name, c := range map[string]struct {
		center   string
		attempts int
		bytes    int // of files, each
		want     []int
	}{
		"a gateway's":          {"by-gateway", 150, 0, []int{64, 64, 22}},
		"a plug-in's":          {"by-plug-in", 300, 0, []int{250, 50}},
		"with files":           {"by-gateway", 5, 1 << 20, []int{3, 2}},
		"each larger than one": {"by-plug-in", 2, 5 << 20, []int{1, 1}},
	} {
		o := &outbox{wake: make(chan struct{}, 1)}
		for range c.attempts {
			o.apply = append(o.apply, &adapterv1.Attempt{AttemptId: "att_1", Files: []*adapterv1.File{{Path: "f", Content: make([]byte, c.bytes)}}})
		}
		var got []int
		for len(o.apply) > 0 {
			apply, _, _ := s.take(c.center, o, func() {})
			got = append(got, len(apply))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: batches of %v, want %v", name, got, c.want)
		}
	}
}
