package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/scheduler/queue"
)

// Policy says where work goes: one of pack's in a pool, a set of place's in a
// network of centers.
type Policy struct {
	Name string
	Pack pack.Policy
	Set  *place.Set
	// Choose says which set decides about a job of a network; nil, or what it
	// answers nil for: Set.
	Choose func(*Job) *place.Set
	// Judge, if set, gives a work of a network the set that decides about it, as
	// documents of policies say; now is microseconds since the start. What it leaves
	// as it is, Set decides. A policy with it is not for several runs at once.
	Judge func(now int64, snap *place.Snapshot, j *Job, w *place.Work) error
}

// ParsePolicies reads policies from texts such as a flag gives them: names
// separated by commas, or weights such as "lowest-price=3,lowest-energy=1",
// which are one policy; "lexicographic:" before weights chooses the evaluator.
// Centers tells whether they are of a network. The names of policies may leave
// out what comes before the last hyphen: price is lowest-price.
func ParsePolicies(texts []string, centers bool) ([]Policy, error) {
	var out []Policy
	for _, text := range texts {
		parts := []string{text}
		if !strings.Contains(text, "=") {
			parts = strings.Split(text, ",")
		}
		for _, part := range parts {
			p, err := parsePolicy(strings.TrimSpace(part), centers)
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(out, func(o Policy) bool { return o.Name == p.Name }) {
				return nil, fault.New(fault.Invalid, "policy %q is given twice", p.Name)
			}
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		if centers {
			return ParsePolicies([]string{place.Presets()[0].ID}, true)
		}
		return ParsePolicies([]string{string(pack.Waste)}, false)
	}
	return out, nil
}

func parsePolicy(text string, centers bool) (Policy, error) {
	if !centers {
		p := pack.Policy(text)
		if !slices.Contains(pack.Policies(), p) {
			return Policy{}, fault.New(fault.Invalid, "there is no policy %q for nodes; there are %v", text, pack.Policies())
		}
		return Policy{Name: text, Pack: p}, nil
	}
	if s, ok := place.Preset(text); ok {
		return Policy{Name: text, Set: s}, nil
	}
	evaluator, weights := place.Weighted, text
	if name, rest, ok := strings.Cut(text, ":"); ok {
		i := slices.IndexFunc(place.Evaluators(), func(e place.Evaluator) bool { return e.ID == name })
		if i < 0 {
			return Policy{}, fault.New(fault.Invalid, "there is no evaluator %q; there are %s", name, evaluators())
		}
		evaluator, weights = place.Evaluators()[i], rest
	}
	var names, values []string
	for w := range strings.SplitSeq(weights, ",") {
		name, value, ok := strings.Cut(w, "=")
		if !ok {
			value = "1"
		}
		id, err := policyID(strings.TrimSpace(name))
		if err != nil {
			return Policy{}, err
		}
		names, values = append(names, id), append(values, strings.TrimSpace(value))
	}
	ints, err := place.ParseWeights(values)
	if err != nil {
		return Policy{}, fmt.Errorf("policy %q: %w", text, err)
	}
	list := make([]place.Weight, len(names))
	for i := range names {
		list[i] = place.Weight{Policy: names[i], Weight: ints[i]}
	}
	set, err := place.NewSet(text, evaluator, list)
	return Policy{Name: text, Set: set}, err
}

func evaluators() string {
	var ids []string
	for _, e := range place.Evaluators() {
		ids = append(ids, e.ID)
	}
	return strings.Join(ids, ", ")
}

// policyID completes the name of a policy.
func policyID(name string) (string, error) {
	var all, ends []string
	for _, p := range place.Policies() {
		if all = append(all, p.ID); p.ID == name {
			return name, nil
		}
		if strings.HasSuffix(p.ID, "-"+name) {
			ends = append(ends, p.ID)
		}
	}
	if len(ends) == 1 {
		return ends[0], nil
	}
	var sets []string
	for _, s := range place.Presets() {
		sets = append(sets, s.ID)
	}
	return "", fault.New(fault.Invalid, "there is no policy %q for centers; there are the presets %s and the policies %s", name, strings.Join(sets, ", "), strings.Join(all, ", "))
}

// Queue says in which order work is tried, and what may be taken back.
type Queue struct {
	Name   string
	Config queue.Config
	// Forecast tells the queue how long work runs by what like it took, instead of
	// what is stated.
	Forecast bool
}

// ParseQueue reads an order and settings, such as
// "fair,backfill=on,preempt=on,half-life=24h". An empty text is fair share with
// reservations and without preemption.
func ParseQueue(text string) (Queue, error) {
	q := Queue{Name: text, Config: queue.Config{Order: queue.FairShare, Devices: append([]string{cardName}, devices...)}}
	if text == "" {
		q.Name = "fair"
	}
	var check core.Check
	for item := range strings.SplitSeq(text, ",") {
		name, value, given := strings.Cut(strings.TrimSpace(item), "=")
		at := "queue." + name
		c := &q.Config
		span := func() int64 {
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 && n <= MaxTime/Second {
				return n * Second
			}
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 || d.Microseconds() > MaxTime {
				check.Add(at, "must be a time such as 24h, from 0 to %d s, got %q", MaxTime/Second, value)
			}
			return d.Microseconds()
		}
		whole := func(lo, hi int64) int64 {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < lo || n > hi {
				check.Add(at, "must be a number from %d to %d, got %q", lo, hi, value)
			}
			return n
		}
		on := func() bool {
			if value != "on" && value != "off" {
				check.Add(at, "must be on or off, got %q", value)
			}
			return value == "on"
		}
		switch {
		case item == "":
		case name == "fair" && !given:
			c.Order = queue.FairShare
		case name == "priority" && !given:
			c.Order = queue.PriorityOrder
		case name == "fcfs" && !given:
			c.Order = queue.FirstCome
		case name == "backfill":
			switch value {
			case "on":
				c.Backfill = queue.BackfillReserve
			case "greedy":
				c.Backfill = queue.BackfillGreedy
			case "off":
				c.Backfill = queue.BackfillNone
			default:
				check.Add(at, "must be on, greedy or off, got %q", value)
			}
		case name == "preempt":
			c.Preempt = on()
		case name == "strict":
			c.StrictClasses = on()
		case name == "forecast":
			q.Forecast = on()
		case name == "half-life":
			c.HalfLife = span()
		case name == "ageing":
			c.Ageing.Step = span()
			if c.Ageing.Max == 0 {
				c.Ageing.Max = 100
			}
		case name == "ageing-max":
			c.Ageing.Max = whole(0, 2000)
		case name == "assumed-run":
			c.AssumedRun = span()
		case name == "starve-after":
			c.StarveAfter = span()
		case name == "block-after":
			c.BlockAfter = span()
		case name == "deadline-margin":
			c.DeadlineMargin = span()
		case name == "reservations":
			c.Reservations = int(whole(1, 1000))
		default:
			check.Add("queue", "has no setting %q; there are fair, priority, fcfs, backfill=on|greedy|off, preempt=on|off, strict=on|off, forecast=on|off, half-life, ageing, ageing-max, assumed-run, starve-after, block-after, deadline-margin and reservations", item)
		}
	}
	if err := check.Err(); err != nil {
		return q, err
	}
	return q, q.Config.Check()
}
