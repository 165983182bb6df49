package calendar

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/scheduler"
)

var monday = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)

func TestTimesOfRules(t *testing.T) {
	t.Parallel()
	first := span{monday, monday.Add(2 * time.Hour)}
	for _, c := range []struct {
		rule, zone string
		want       string // the begins of the first three after monday, and how many in all
	}{
		{"", "", "11-23T08"},
		{"FREQ=DAILY;COUNT=3", "", "11-23T08 11-24T08 11-25T08"},
		{"FREQ=WEEKLY;BYDAY=MO,WE;COUNT=3", "", "11-23T08 11-25T08 11-30T08"},
		{"FREQ=MONTHLY;BYMONTHDAY=-1;COUNT=2", "", "11-30T08 12-31T08"},
		{"FREQ=HOURLY;INTERVAL=12;UNTIL=20261124T080000Z", "", "11-23T08 11-23T20 11-24T08"},
		// Clocks in Berlin went back in October: it is an hour later in UTC in summer time.
		{"FREQ=MONTHLY;INTERVAL=5;COUNT=2", "Europe/Berlin", "11-23T08 04-23T07"},
	} {
		got, err := times(first, c.rule, c.zone, monday, monday.Add(maxAhead), maxTimes)
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
			continue
		}
		var begins []string
		for _, s := range got {
			begins = append(begins, s.from.Format("01-02T15"))
			if s.to.Sub(s.from) != 2*time.Hour {
				t.Errorf("%s: %s", c.rule, when(s))
			}
		}
		if x := strings.Join(begins, " "); x != c.want {
			t.Errorf("%s: %s, want %s", c.rule, x, c.want)
		}
	}
	for _, bad := range []string{"FREQ=SECONDLY", "FREQ=YEARLY", "FREQ=DAILY;COUNT=-1", "FREQ=DAILY;COUNT=2;UNTIL=20270101T000000Z", "FREQ=MONTHLY;BYMONTHDAY=31", "FREQ=DAILY;BYHOUR=1", "FREQ=HOURLY;INTERVAL=168;BYDAY=TU", "x", "DTSTART=20260101T000000Z",
		"FREQ=WEEKLY;BYDAY=2MO", "FREQ=DAILY;INTERVAL=1001", strings.Repeat("a", 300)} {
		if _, err := parseRule(bad, "", monday); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if _, err := parseRule("FREQ=DAILY", "Middle/Earth", monday); err == nil {
		t.Error("a zone that there is not is taken")
	}
}

func FuzzRule(f *testing.F) {
	for _, s := range []string{"FREQ=DAILY;COUNT=3", "FREQ=MONTHLY;BYDAY=-1FR", "FREQ=HOURLY;INTERVAL=168;BYDAY=TU", "RRULE:FREQ=DAILY", ";;", "FREQ=DAILY;UNTIL=2026"} {
		f.Add(s, "Asia/Shanghai")
	}
	f.Fuzz(func(t *testing.T, rule, zone string) {
		got, err := times(span{monday, monday.Add(time.Hour)}, rule, zone, monday, monday.Add(maxAhead), 50)
		if err != nil {
			return
		}
		for i, s := range got {
			if s.to.Sub(s.from) != time.Hour || i > 0 && !s.from.After(got[i-1].from) {
				t.Errorf("%q: %s after %s", rule, when(s), when(got[max(0, i-1)]))
			}
		}
	})
}

// room is the least that is left at any minute of a span.
func TestRoomIsTheLeastAtAnyTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := func(m int64) time.Time { return monday.Add(time.Duration(m) * time.Minute) }
		var ds []demand
		for range rapid.IntRange(0, 6).Draw(t, "demands") {
			from := rapid.Int64Range(0, 20).Draw(t, "from")
			d := demand{span{at(from), at(from + rapid.Int64Range(1, 10).Draw(t, "length"))}, core.Quantities{"cpu": rapid.Int64Range(1, 5).Draw(t, "cpu")}}
			if rapid.IntRange(0, 9).Draw(t, "all") == 0 {
				d.amounts = nil
			}
			ds = append(ds, d)
		}
		from := rapid.Int64Range(0, 20).Draw(t, "from")
		to := from + rapid.Int64Range(1, 15).Draw(t, "length")
		want := int64(10)
		for m := from; m < to; m++ {
			left := int64(10)
			for _, d := range ds {
				if !d.from.After(at(m)) && d.to.After(at(m)) {
					if d.amounts == nil {
						left = 0
					}
					left -= d.amounts["cpu"]
				}
			}
			want = min(want, max(0, left))
		}
		if got := room(core.Quantities{"cpu": 10}, ds, span{at(from), at(to)}); got["cpu"] != want {
			t.Fatalf("room %v, want %d", got, want)
		}
	})
}

// What is taken back gives the room, none of it is needless, and nothing is
// taken that may not be.
func TestInTheWay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total, used := core.Quantities{"cpu": 20, "gpu": 4}, core.Quantities{}
		var open []scheduler.Running
		for i := range rapid.IntRange(0, 8).Draw(t, "runs") {
			r := scheduler.Running{AttemptID: string(rune('a' + i)), Center: "c", Resources: core.Quantities{"cpu": rapid.Int64Range(1, 4).Draw(t, "cpu"), "gpu": rapid.Int64Range(0, 1).Draw(t, "gpu")},
				Priority: rapid.Int64Range(0, 2).Draw(t, "priority"), Since: rapid.Int64Range(0, 3).Draw(t, "since"), Keep: rapid.Bool().Draw(t, "keep")}
			if used["cpu"]+r.Resources["cpu"] > 20 || used["gpu"]+r.Resources["gpu"] > 4 {
				continue
			}
			used["cpu"] += r.Resources["cpu"]
			used["gpu"] += r.Resources["gpu"]
			open = append(open, r)
		}
		want := core.Quantities{"cpu": rapid.Int64Range(1, 20).Draw(t, "want"), "gpu": rapid.Int64Range(0, 4).Draw(t, "wanted")}
		free := func(without []scheduler.Running) bool {
			for name := range want {
				have := total[name] - used[name]
				for _, r := range without {
					have += r.Resources[name]
				}
				if have < want[name] {
					return false
				}
			}
			return true
		}
		var can []scheduler.Running
		for _, r := range open {
			if !r.Keep {
				can = append(can, r)
			}
		}
		got := inTheWay(total, used, want, open, "c")
		for _, r := range got {
			if r.Keep {
				t.Fatalf("%v may not be taken", r)
			}
		}
		switch {
		case free(nil) && len(got) > 0:
			t.Fatalf("taken without need: %v", got)
		case free(can) && !free(got):
			t.Fatalf("%v do not give the room", got)
		case !free(can) && len(got) > 0:
			t.Fatalf("taken for nothing: %v", got)
		}
		for i := range got {
			rest := append(append([]scheduler.Running(nil), got[:i]...), got[i+1:]...)
			if free(rest) {
				t.Fatalf("%v is needless in %v", got[i], got)
			}
		}
	})
}

// At every moment the pieces name the maintenance under way and its nodes, each
// once, and no two pieces meet.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Unix(1_800_000_000, 0)
		moment := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
		var spans []nodesSpan
		for i := range rapid.IntRange(0, 6).Draw(t, "spans") {
			from := rapid.IntRange(0, 12).Draw(t, "from")
			m := &Maintenance{ID: strconv.Itoa(i), Nodes: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3, rapid.ID[string]).Draw(t, "nodes")}
			spans = append(spans, nodesSpan{span{moment(from), moment(from + rapid.IntRange(1, 6).Draw(t, "minutes"))}, m})
		}
		got := pieces(slices.Clone(spans))
		for n := range 20 {
			now := moment(n).Add(time.Second)
			ids, nodes := map[string]bool{}, map[string]bool{}
			for _, x := range spans {
				if x.meets(now, now) {
					ids[x.m.ID] = true
					for _, name := range x.m.Nodes {
						nodes[name] = true
					}
				}
			}
			want := fmt.Sprint(slices.Sorted(maps.Keys(ids)), slices.Sorted(maps.Keys(nodes)))
			has := []string{}
			for _, p := range got {
				if p.meets(now, now) {
					has = append(has, fmt.Sprint(p.ids, p.nodes))
				}
			}
			if len(ids) == 0 && len(has) > 0 || len(ids) > 0 && !slices.Equal(has, []string{want}) {
				t.Fatalf("at minute %d: %v, want %s", n, has, want)
			}
		}
	})
}
