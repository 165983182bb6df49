package conformance

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
)

// Checks that are not let end say nothing of the pool, and no more begin.
func TestRunIsEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := Bench{API: poolv1connect.NewPoolServiceClient(http.DefaultClient, "http://127.0.0.1:1")}
	r := Run(ctx, b, nil, func(v Verdict) { t.Errorf("test %s %s: %s", v.ID, v.Result, v.Reason) })
	if len(r.Tests) > 0 || r.Level != 0 {
		t.Errorf("the report is %+v", r)
	}
}

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
