package pack_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/pack"
)

// racks has nodes of 4 cards, so many in each rack.
func racks(t *testing.T, policy pack.Policy, sizes ...int) *pack.Cluster {
	t.Helper()
	var nodes []pack.Node
	for r, n := range sizes {
		for range n {
			nodes = append(nodes, pack.Node{ID: fmt.Sprint(len(nodes)), CPU: 64000, Memory: 1 << 18, Cards: 4, Labels: map[string]string{"rack": fmt.Sprint(r)}})
		}
	}
	c, err := pack.New(nodes, policy, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// place places n tasks and counts them by node; it stops at the first refused.
func place(c *pack.Cluster, task pack.Task, n int) (out []int) {
	for range n {
		p, ok := c.Place(task)
		if !ok {
			return out
		}
		for len(out) <= p.Node {
			out = append(out, 0)
		}
		out[p.Node]++
	}
	return out
}

func TestSpread(t *testing.T) {
	t.Parallel()
	task := pack.Task{CPU: 1000, Cards: 1, Share: pack.Whole, Group: "g"}
	for _, x := range []struct {
		name  string
		rules []pack.Spread
		sizes []int
		n     int
		want  []int
	}{
		// Best fit fills node 0 with 4, then node 1.
		{"no rule", nil, []int{1, 1, 1}, 5, []int{4, 1}},
		// In turn: 0, 1, 2, 0, 1.
		{"one more at most", []pack.Spread{{Label: "rack", Skew: 1}}, []int{1, 1, 1}, 5, []int{2, 2, 1}},
		// Two on 0; then 0 may not have a third before 1 and 2 have one each. Best
		// fit takes the node in use first: 0 0, 1 1, 2, and now 0 again.
		{"two more at most", []pack.Spread{{Label: "rack", Skew: 2}}, []int{1, 1, 1}, 6, []int{3, 2, 1}},
		// The third rack is full after 4 and cannot be passed by more than 1.
		{"the fewest bound the most", []pack.Spread{{Label: "rack", Skew: 1}}, []int{2, 2, 1}, 100, []int{4, 1, 4, 1, 4}},
		{"soft rules yield", []pack.Spread{{Label: "rack", Skew: 1, Soft: true}}, []int{2, 2, 1}, 100, []int{4, 4, 4, 4, 4}},
		{"apart by node", []pack.Spread{{Most: 1}}, []int{2, 1}, 100, []int{1, 1, 1}},
		{"apart by rack", []pack.Spread{{Label: "rack", Most: 1}}, []int{2, 1}, 100, []int{1, 0, 1}},
		{"two by rack, one by node", []pack.Spread{{Label: "rack", Most: 2}, {Most: 1}}, []int{3, 1}, 100, []int{1, 1, 0, 1}},
		{"no node has the label", []pack.Spread{{Label: "zone", Most: 2}}, []int{3, 1}, 100, nil},
	} {
		task.Spread = x.rules
		if got := place(racks(t, pack.BestFit, x.sizes...), task, x.n); !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: by node %v, want %v", x.name, got, x.want)
		}
	}
}

// What leaves a group makes room in it; a drained rack holds nobody back.
func TestSpreadFollowsReleaseAndDrain(t *testing.T) {
	t.Parallel()
	c := racks(t, pack.BestFit, 1, 1)
	task := pack.Task{Cards: 1, Share: pack.Whole, Group: "g", Spread: []pack.Spread{{Most: 1}}}
	first, _ := c.Place(task)
	if p, ok := c.Place(task); !ok || p.Node != 1 {
		t.Fatalf("the second went to %v, %v", p, ok)
	}
	if p, ok := c.Place(task); ok {
		t.Fatalf("a third went to %v", p)
	}
	c.Release(task, first)
	if p, ok := c.Place(task); !ok || p.Node != 0 {
		t.Fatalf("after a release: %v, %v", p, ok)
	}

	task.Group, task.Spread = "h", []pack.Spread{{Label: "rack", Skew: 1}}
	if p, ok := c.Place(task); !ok || p.Node != 0 {
		t.Fatalf("the first of h went to %v, %v", p, ok)
	}
	c.Drain(1, true)
	if p, ok := c.Place(task); !ok || p.Node != 0 {
		t.Fatalf("with rack 1 drained: %v, %v", p, ok)
	}
	c.Drain(1, false)
	if p, ok := c.Place(task); !ok || p.Node != 1 {
		t.Fatalf("with rack 1 back: %v, %v", p, ok)
	}
}

func TestSelectAndPrefer(t *testing.T) {
	t.Parallel()
	c := racks(t, pack.BestFit, 1, 1, 1)
	task := pack.Task{Cards: 4, Share: pack.Whole, Prefer: []int{2}}
	for i, want := range []int{2, 0, 1} {
		if p, ok := c.Place(task); !ok || p.Node != want {
			t.Errorf("task %d went to %v, %v, want node %d", i, p, ok, want)
		}
	}
	c = racks(t, pack.BestFit, 1, 1, 1)
	task = pack.Task{Cards: 4, Share: pack.Whole, Select: map[string]string{"rack": "1"}}
	if got := place(c, task, 3); !reflect.DeepEqual(got, []int{0, 1}) {
		t.Errorf("rack 1 alone was selected: %v", got)
	}
}

func TestGang(t *testing.T) {
	t.Parallel()
	gang := func(n int) (out []pack.Task) {
		for range n {
			out = append(out, pack.Task{CPU: 1000, Cards: 1, Share: pack.Whole})
		}
		return out
	}
	c := racks(t, pack.BestFit, 1, 2) // 4 cards, and 8
	if out, ok := c.PlaceGang(gang(13), ""); ok || c.Left() != c.Whole() {
		t.Fatalf("13 of 12 cards: %v, %d left", out, c.Left())
	}
	if out, ok := c.PlaceGang(gang(9), "rack"); ok || c.Left() != c.Whole() {
		t.Fatalf("9 of 8 cards of a rack: %v, %d left", out, c.Left())
	}
	out, ok := c.PlaceGang(gang(6), "rack") // not the first rack, which has 4
	if !ok || len(out) != 6 {
		t.Fatalf("6 in a rack: %v, %v", out, ok)
	}
	for _, p := range out {
		if p.Node == 0 {
			t.Errorf("a member is in the rack that has no room for all: %v", out)
		}
	}
	g, err := c.PrepareGang(gang(5), "rack")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second refusal is remembered
		if out, ok := c.PutGang(g); ok {
			t.Fatalf("5 where 4 and 2 are free: %v", out)
		}
	}
	for _, p := range out {
		c.Release(gang(1)[0], p)
	}
	if _, ok := c.PutGang(g); !ok || c.Left() != c.Whole()-5*pack.Whole {
		t.Errorf("5 after the release: %v, %d left", ok, c.Left())
	}
	if _, err := c.PrepareGang(nil, ""); fault.KindOf(err) != fault.Invalid {
		t.Errorf("an empty gang: %v", err)
	}
}

// All that is wrong with a task is named at once.
func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	c := racks(t, pack.BestFit, 1)
	_, err := c.Prepare(pack.Task{CPU: -1, Cards: 2, Share: 500, Prefer: []int{0, 1}, Group: "g",
		Spread: []pack.Spread{{Skew: 1}, {Label: "rack"}, {Label: "rack", Most: -1}}})
	var got []string
	for _, f := range fault.FieldsOf(err) {
		got = append(got, f.Path)
	}
	if want := []string{"task.cpu_milli", "task.gpu_milli", "task.spread[0]", "task.spread[1]", "task.spread[2]", "task.prefer[1]"}; !slices.Equal(got, want) {
		t.Errorf("it names %v, want %v", got, want)
	}
	if _, err := c.Prepare(pack.Task{Spread: make([]pack.Spread, 9)}); err == nil || !strings.Contains(err.Error(), "at most 8") || !strings.Contains(err.Error(), "needs a group") {
		t.Errorf("nine rules without a group: %v", err)
	}
}
