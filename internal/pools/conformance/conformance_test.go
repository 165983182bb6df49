package conformance

import (
	"fmt"
	"slices"
	"testing"
)

// A level needs all its tests (table A.1: how many each has), and those of the
// levels below.
func TestLevel(t *testing.T) {
	needs := map[int]int{}
	for i, x := range Tests {
		if x.ID != fmt.Sprintf("12.%d", i+1) {
			t.Errorf("test %d is %s", i+1, x.ID)
		}
		for n := x.Level; n <= 5; n++ {
			needs[n]++
		}
	}
	if got := []int{needs[1], needs[2], needs[3], needs[4], needs[5]}; !slices.Equal(got, []int{9, 12, 17, 26, 27}) {
		t.Errorf("the levels need %v tests", got)
	}
	var all []Verdict
	for _, x := range Tests {
		all = append(all, Verdict{ID: x.ID, Passed: true})
	}
	if got := Level(all); got != 5 {
		t.Errorf("with all tests the level is %d", got)
	}
	for i, x := range Tests {
		one := slices.Clone(all)
		one[i].Passed = false
		if got := Level(one); got != x.Level-1 {
			t.Errorf("without %s the level is %d, not %d", x.ID, got, x.Level-1)
		}
		if got := Level(slices.Delete(one, i, i+1)); got != x.Level-1 {
			t.Errorf("if %s did not run the level is %d", x.ID, got)
		}
	}
	if Level(nil) != 0 {
		t.Error("without tests there is a level")
	}
}
