package kill_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"yunhe.dev/yunhe/internal/availability"
)

// shift is a time in which a process stood still or its clock was wrong.
type shift struct {
	name     string
	from, to time.Time
	by       time.Duration
}

type moment struct {
	name string
	at   time.Time
}

// faultLog is what was done to a world.
type faultLog struct {
	count           map[string]int
	harm            map[string]time.Duration
	downs           map[string]time.Duration
	outages         []shift // of the database
	full            []shift // disks, by center
	killed          []moment
	frozen, shifted []shift
	ended           []string // processes that ended by themselves
}

func (f *faultLog) did(kind string, begin time.Time, harm time.Duration) {
	if f.count == nil {
		f.count, f.harm = map[string]int{}, map[string]time.Duration{}
	}
	f.count[kind]++
	f.harm[kind] += harm
}

func (f *faultLog) down(name string, from, to time.Time) {
	if f.downs == nil {
		f.downs = map[string]time.Duration{}
	}
	f.downs[name] += to.Sub(from)
	if name == "database" {
		f.outages = append(f.outages, shift{name, from, to, 0})
	}
}

func (f *faultLog) summary() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(f.count)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, f.count[kind]))
	}
	return "faults: " + strings.Join(parts, ", ")
}

// tenure is a lease that a process says it has taken.
type tenure struct {
	lease, name string
	term        int64
	at          time.Time
}

var leaseLine = regexp.MustCompile(`^time=(\S+) level=INFO msg="lease taken" component=run lease=(\S+) term=(\d+)`)

// tenures reads the logs, in the order of time. Clocks that were wrong are set right.
func (w *world) tenures(t *testing.T) (out []tenure) {
	for _, n := range w.nodes {
		if n.url == "" {
			continue
		}
		text, err := os.ReadFile(n.prog.Log())
		must(t, err)
		for line := range strings.Lines(string(text)) {
			m := leaseLine.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			at, err := time.Parse(time.RFC3339Nano, m[1])
			must(t, err)
			for _, s := range w.log.shifted {
				if right := at.Add(-s.by); s.name == n.name && right.After(s.from) && right.Before(s.to) {
					at = right
				}
			}
			term, err := strconv.ParseInt(m[3], 10, 64)
			must(t, err)
			if at.Before(w.since) {
				continue // of an earlier test, whose folder was kept
			}
			out = append(out, tenure{m[2], n.name, term, at})
		}
	}
	slices.SortFunc(out, func(a, b tenure) int { return a.at.Compare(b.at) })
	return out
}

// terms is a lease: each time it is taken its term is a later one, and the
// database refuses what is done under an earlier one.
var terms = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, _, output any) (bool, any) { return output.(int64) > state.(int64), output },
}

// round is how long it may take from the taking of a lease to its line in the log.
const round = 3500 * time.Millisecond

// checkLeases checks that no two processes had a lease in the same term, and
// that terms follow each other as time does, and says how long the leases of
// processes that were killed had no owner.
func (w *world) checkLeases(t *testing.T) {
	all := w.tenures(t)
	by := map[string][]porcupine.Operation{}
	for _, x := range all {
		begin := x.at.Add(-round)
		for _, f := range w.log.frozen {
			if f.name == x.name && f.from.Before(x.at) && f.to.After(begin) {
				begin = f.from.Add(-round)
			}
		}
		by[x.lease] = append(by[x.lease], porcupine.Operation{Call: begin.UnixNano(), Output: x.term, Return: x.at.UnixNano()})
	}
	for lease, ops := range by {
		if porcupine.CheckOperationsTimeout(terms, ops, time.Minute) != porcupine.Ok {
			t.Errorf("the history of the lease %s is not linearizable: %v", lease, ops)
		}
	}
	var slowest time.Duration
	n := 0
	for _, k := range w.log.killed {
		had := map[string]bool{}
		for _, x := range all {
			if x.at.Before(k.at) {
				had[x.lease] = x.name == k.name
			}
		}
		for lease, its := range had {
			i := slices.IndexFunc(all, func(x tenure) bool { return its && x.lease == lease && x.at.After(k.at) })
			if i < 0 {
				continue
			}
			n++
			slowest = max(slowest, all[i].at.Sub(k.at))
		}
	}
	t.Logf("%d times a lease was taken, of %d leases; %d of processes that were killed, the slowest of these %.1f s later", len(all), len(by), n, slowest.Seconds())
}

// checkLogs reports what processes call an error.
func (w *world) checkLogs(t *testing.T) {
	for _, what := range w.log.ended {
		t.Errorf("a process ended by itself: %s", what)
	}
	seen := map[string]int{}
	for _, n := range w.nodes {
		text, err := os.ReadFile(n.prog.Log())
		must(t, err)
		for l := range strings.Lines(string(text)) {
			if strings.Contains(l, "level=ERROR") || strings.Contains(l, "panic") || strings.Contains(l, "fatal error") {
				_, what, _ := strings.Cut(l, " ") // without its time
				if seen[what]++; seen[what] == 1 && len(seen) <= 20 {
					t.Errorf("%s says: %s", n.name, strings.TrimSpace(l))
				}
			}
		}
	}
}

// compare prints how available the platform was to its users, and what the
// model says for as much failure of each part.
func (w *world) compare(t *testing.T, u *users, took time.Duration) {
	sys := &availability.System{}
	var split []availability.ModulePlan
	add := func(name string, up float64, instances int) {
		sys.Modules = append(sys.Modules, availability.Module{Name: name, Instances: instances, Submodules: []availability.Submodule{{Name: name, Availability: up}}})
		split = append(split, availability.ModulePlan{Name: name, Microservices: [][]string{{name}}})
	}
	groups := map[string][]time.Duration{}
	for _, n := range w.nodes {
		if n.url != "" {
			group := strings.Join(n.roles, "-")
			groups[group] = append(groups[group], w.log.downs[n.name])
		}
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		var down time.Duration
		for _, d := range groups[group] {
			down += d
		}
		n := len(groups[group])
		add(group, 1-float64(down)/float64(took)/float64(n), n)
	}
	add("database", 1-float64(w.log.downs["database"])/float64(took), 1)
	must(t, sys.Check())
	plan, err := availability.Evaluate(sys, split)
	must(t, err)
	u.mu.Lock()
	defer u.mu.Unlock()
	bad := 0
	for _, s := range u.seconds {
		if s[1] > 0 {
			bad++
		}
	}
	t.Logf("availability measured: %.4f of all calls answered at first, %.4f of all seconds without a call that failed; the model says %.4f for as much failure of each part",
		1-float64(u.failed)/float64(max(1, u.calls)), 1-float64(bad)/float64(max(1, len(u.seconds))), plan.Availability)
}
