package forecast

import (
	"fmt"
	"testing"
)

// The same observations give the same answers, and memory stays bounded; groups
// used last are kept.
func TestBoundedAndRepeatable(t *testing.T) {
	t.Parallel()
	const most = 1000
	a, b := Model{most: most}, Model{most: most}
	var w Work
	for i := range 4000 {
		for range enough {
			w = Work{Tenant: fmt.Sprint(i), User: "u", Shape: "s"}
			a.Observe(&w, int64(1+i)*60_000_000)
			b.Observe(&w, int64(1+i)*60_000_000)
		}
	}
	if n := a.Len(); n > most || n < most/2 {
		t.Errorf("%d groups", n)
	}
	if x, y := a.Run(&w), b.Run(&w); x != y || x.Samples == 0 {
		t.Errorf("%+v and %+v", x, y)
	}
}
