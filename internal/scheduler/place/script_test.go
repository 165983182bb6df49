package place_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/place"
)

var update = flag.Bool("update", false, "rewrite the expected plans of testdata/*.txt")

// TestScripts plans what each testdata/*.txt describes and compares with what
// it expects below "== plan". The scripts are written for domain experts; the
// words they use are those of the parser below.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(text), "== plan\n")
			sc := parse(t, input)
			res, err := place.Plan(&sc.snapshot, sc.queue, sc.set, sc.options)
			got := "error: " + fmt.Sprint(err) + "\n"
			if err == nil {
				got = write(res, sc.options.NoTables)
			}
			if *update {
				if err := os.WriteFile(file, []byte(input+"== plan\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("%s\ngot\n%s\nwant\n%s", file, got, want)
			}
		})
	}
}

// script is what the upper half of a file says.
type script struct {
	t        *testing.T
	line     int
	snapshot place.Snapshot
	queue    []place.Work
	set      *place.Set
	options  place.Options
	holds    map[string][]place.Hold
}

func parse(t *testing.T, input string) *script {
	t.Helper()
	sc := &script{t: t, set: place.Presets()[0], holds: map[string][]place.Hold{}}
	evaluator := place.Weighted
	var weights []place.Weight
	for i, line := range strings.Split(input, "\n") {
		sc.line = i + 1
		words := split(line)
		if len(words) == 0 {
			continue
		}
		switch args := words[1:]; words[0] {
		case "policies":
			for _, a := range args {
				id, w, _ := strings.Cut(a, "=")
				w, least, ok := strings.Cut(w, ":") // weight:least score
				if !ok {
					least = "0"
				}
				weights = append(weights, place.Weight{Policy: id, Weight: sc.number(w), Min: int(sc.number(least))})
			}
		case "set":
			set, ok := place.Preset(args[0])
			if !ok {
				sc.fail("set %q is unknown", args[0])
			}
			sc.set = set
		case "lexicographic":
			evaluator = place.Lexicographic
		case "pareto":
			evaluator = place.Pareto
		case "compact-devices":
			sc.options.Devices = place.CompactDevices
		case "no-tables":
			sc.options.NoTables = true
		case "hold":
			h := place.Hold{Candidate: args[1], Amounts: place.Amounts{}}
			for _, a := range args[2:] {
				k, v, _ := strings.Cut(a, "=")
				if k == "starts-in" {
					h.StartsIn = sc.unit(v, "s", 1)
				} else {
					h.Amounts[k] = sc.amount(k, v)
				}
			}
			sc.holds[args[0]] = append(sc.holds[args[0]], h)
			sc.options.Hold = func(w *place.Work, _ []*place.Site) []place.Hold { return sc.holds[w.ID] }
		case "center":
			sc.center(args)
		case "device":
			c := &sc.snapshot.Candidates[len(sc.snapshot.Candidates)-1]
			free, total, _ := strings.Cut(strings.TrimPrefix(args[1], "share="), "/")
			d := place.Device{ID: args[0], Free: place.Amounts{"share": sc.number(free)}, Total: place.Amounts{"share": sc.number(total)}}
			if len(args) > 2 {
				d.Model = strings.TrimPrefix(args[2], "model=")
			}
			c.Devices = append(c.Devices, d)
		case "link":
			l := place.Link{From: args[0], To: args[1]}
			for _, a := range args[2:] {
				k, v, _ := strings.Cut(a, "=")
				if !sc.path(&l.Network, k, v) {
					sc.fail("link has no %q", k)
				}
			}
			sc.snapshot.Links = append(sc.snapshot.Links, l)
		case "group":
			if sc.snapshot.Groups == nil {
				sc.snapshot.Groups = map[string]map[string]int{}
			}
			at := map[string]int{}
			for _, a := range args[1:] {
				id, n, _ := strings.Cut(a, "=")
				at[id] = int(sc.number(n))
			}
			sc.snapshot.Groups[args[0]] = at
		case "job":
			sc.job(args)
		case "task":
			sc.task(args)
		default:
			sc.fail("%q is not a word of scripts", words[0])
		}
	}
	if weights != nil {
		set, err := place.NewSet("script", evaluator, weights)
		if err != nil {
			sc.fail("%v", err)
		}
		sc.set = set
	}
	return sc
}

func (sc *script) center(args []string) {
	c := place.Candidate{ID: args[0], Status: place.Available, AnyImage: true, Offers: map[string]place.Offer{},
		Power: map[string]place.Power{}, Attributes: map[string]string{}, Free: place.Amounts{}, Total: place.Amounts{}, Data: place.Amounts{}}
	for _, a := range args[1:] {
		k, v, _ := strings.Cut(a, "=")
		kind, name, _ := strings.Cut(k, ".")
		offer := c.Offers[name]
		switch kind {
		case "name":
			c.Name = v
		case "region":
			c.Region = v
		case "status":
			c.Status = place.Status(v)
		case "because":
			c.StatusReason = v
		case "grade":
			c.SecurityGrade = sc.number(v)
		case "at":
			c.Position = sc.position(v)
		case "images":
			c.AnyImage, c.Images = false, strings.Split(v, ",")
		case "running":
			c.RunningTasks = sc.number(v)
		case "waiting":
			c.WaitingTasks = sc.number(v)
		case "price":
			offer.PriceFenPerHour = place.Known(sc.decimal(v, 100))
			c.Offers[name] = offer
		case "idle":
			idle, total, ok := strings.Cut(v, "/")
			offer.Idle = place.Known(sc.number(idle))
			if ok {
				offer.Total = place.Known(sc.number(total))
			}
			c.Offers[name] = offer
		case "offers":
			for _, s := range strings.Split(v, ",") {
				c.Offers[s] = place.Offer{}
			}
		case "no-vector":
			c.Free, c.Total = nil, nil
		case "tag":
			c.Attributes[name] = v
		case "holds":
			c.Data[name] = sc.amount("memory", v)
		case "speed":
			kind, precision, _ := strings.Cut(name, ":")
			c.Speeds = append(c.Speeds, place.Speed{Kind: kind, Precision: precision, Milli: sc.decimal(v, 1000)})
		case "power": // static/busy watts per core, GiB or piece
			static, busy, _ := strings.Cut(strings.TrimSuffix(v, "W"), "/")
			c.Power[name] = place.Power{Per: sc.amountUnit(name), Static: sc.decimal(static, 1000), Busy: sc.decimal(busy, 1000)}
		case "business":
			if c.Business == nil {
				c.Business = map[string]int64{}
			}
			c.Business[name] = sc.number(v)
		case "available":
			c.Availability = place.Known(sc.unit(v, "%", 10000))
		case "pue":
			c.PUE = place.Known(sc.decimal(v, 1000))
		case "carbon":
			c.Carbon = place.Known(sc.unit(v, "g/kWh", 1))
		default:
			if sc.path(&c.Network, k, v) {
				continue
			}
			free, total, ok := strings.Cut(v, "/")
			if !ok {
				total = free
			}
			c.Free[k], c.Total[k] = sc.amount(k, free), sc.amount(k, total)
		}
	}
	sc.snapshot.Candidates = append(sc.snapshot.Candidates, c)
}

func (sc *script) job(args []string) {
	w := place.Work{ID: args[0], Arrival: int64(len(sc.queue))}
	for _, a := range args[1:] {
		switch k, v, _ := strings.Cut(a, "="); k {
		case "priority":
			w.Priority = sc.number(v)
		case "gang":
			w.Gang = true
		case "distributed":
			w.Distributed = true
		case "groups":
			w.Groups = strings.Split(v, ",")
		case "from":
			w.Origin.Name = v
		case "from-region":
			w.Origin.Region = v
		case "from-at":
			w.Origin.Position = sc.position(v)
		case "set":
			set, ok := place.Preset(v)
			if !ok {
				sc.fail("set %q is unknown", v)
			}
			w.Set = set
		default:
			sc.fail("job has no %q", k)
		}
	}
	sc.queue = append(sc.queue, w)
}

func (sc *script) task(args []string) {
	w := &sc.queue[len(sc.queue)-1]
	k := place.Task{ID: args[0], Replicas: 1, Request: place.Amounts{}}
	for _, a := range args[1:] {
		word, v, _ := strings.Cut(a, "=")
		kind, name, _ := strings.Cut(word, ".")
		switch kind {
		case "replicas":
			k.Replicas = int(sc.number(v))
		case "spread", "prefer-spread":
			k.Rules = append(k.Rules, place.Rule{Kind: place.Spread, Over: name, MaxSkew: int(sc.number(v)), Preferred: kind != "spread"})
		case "with", "prefer-with":
			k.Rules = append(k.Rules, place.Rule{Kind: place.With, Over: name, Of: v, Preferred: kind != "with"})
		case "apart", "prefer-apart":
			k.Rules = append(k.Rules, place.Rule{Kind: place.Apart, Over: name, Of: v, Preferred: kind != "apart"})
		case "spec":
			k.Spec = v
		case "image":
			k.Image = v
		case "kind":
			k.Kind, k.Precision, _ = strings.Cut(v, ":")
		case "business":
			k.Business = v
		case "pinned":
			k.Pinned = strings.Split(v, ",")
		case "regions":
			k.Regions = strings.Split(v, ",")
		case "avoid":
			if k.Excluded == nil {
				k.Excluded = map[string]string{}
			}
			k.Excluded[name] = v
		case "needs":
			if k.Require == nil {
				k.Require = map[string]string{}
			}
			k.Require[name] = v
		case "grade":
			k.MinGrade = sc.number(v)
		case "max-price":
			k.MaxPrice = place.Known(sc.decimal(v, 100))
		case "run":
			k.RunSeconds = place.Known(sc.unit(v, "s", 1))
		case "reads", "reads-in-place":
			v, at, _ := strings.Cut(v, "@") // who holds it besides those that say so
			n := place.DataNeed{Dataset: name, Bytes: sc.amount("memory", v), Stay: kind == "reads-in-place"}
			if at != "" {
				n.At = strings.Split(at, ",")
			}
			k.Data = append(k.Data, n)
		case "required":
			k.QoS.Required = true
		case "slice":
			count, share, _ := strings.Cut(v, "x")
			k.Devices = &place.DeviceRequest{Count: int(sc.number(count)), Each: place.Amounts{"share": sc.number(share)}, Model: name}
		case "within":
			switch name {
			case "finish":
				k.QoS.FinishSeconds = place.Known(sc.unit(v, "s", 1))
				continue
			case "availability":
				k.QoS.MinAvailabilityPPM = place.Known(sc.unit(v, "%", 10000))
				continue
			}
			var n place.Network
			if !sc.path(&n, name, v) {
				sc.fail("no target %q", name)
			}
			for _, f := range []struct{ to, from *place.Fact }{
				{&k.QoS.MaxLatencyMicros, &n.LatencyMicros}, {&k.QoS.MaxJitterMicros, &n.JitterMicros},
				{&k.QoS.MaxLossPPM, &n.LossPPM}, {&k.QoS.MinBandwidthKbps, &n.BandwidthKbps},
			} {
				if f.from.Known {
					*f.to = *f.from
				}
			}
		default:
			k.Request[word] = sc.amount(word, v)
		}
	}
	w.Tasks = append(w.Tasks, k)
}

// path reads a fact of a network path.
func (sc *script) path(n *place.Network, k, v string) bool {
	switch k {
	case "latency":
		n.LatencyMicros = place.Known(sc.unit(v, "ms", 1000))
	case "jitter":
		n.JitterMicros = place.Known(sc.unit(v, "ms", 1000))
	case "loss":
		n.LossPPM = place.Known(sc.unit(v, "%", 10_000))
	case "bandwidth":
		n.BandwidthKbps = place.Known(sc.unit(v, "Mbit/s", 1000))
	case "fee":
		n.FeeFenPerGiB = place.Known(sc.unit(v, "/GiB", 100))
	default:
		return false
	}
	return true
}

func (sc *script) amountUnit(resource string) int64 {
	switch resource {
	case "cpu":
		return 1000
	case "memory":
		return 1 << 30
	}
	return 1
}

func (sc *script) amount(resource, v string) int64 {
	if resource == "memory" {
		return sc.unit(v, "GiB", 1<<30)
	}
	return sc.decimal(v, sc.amountUnit(resource))
}

func (sc *script) position(v string) *place.Position {
	lon, lat, _ := strings.Cut(v, ",")
	return &place.Position{Longitude: sc.decimal(lon, 1e6), Latitude: sc.decimal(lat, 1e6)}
}

func (sc *script) unit(v, unit string, scale int64) int64 {
	if !strings.HasSuffix(v, unit) {
		sc.fail("%q must end in %s", v, unit)
	}
	return sc.decimal(strings.TrimSuffix(v, unit), scale)
}

func (sc *script) number(v string) int64 { return sc.decimal(v, 1) }

func (sc *script) decimal(v string, scale int64) int64 {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		sc.fail("%q is not a number", v)
	}
	if f < 0 {
		return int64(f*float64(scale) - 0.5)
	}
	return int64(f*float64(scale) + 0.5)
}

func (sc *script) fail(format string, args ...any) {
	sc.t.Helper()
	sc.t.Fatalf("line %d: "+format, append([]any{sc.line}, args...)...)
}

// split cuts a line at spaces outside quotes, which it takes off; # starts a
// comment.
func split(line string) (words []string) {
	var word strings.Builder
	quoted, any := false, false
	flush := func() {
		if any {
			words = append(words, word.String())
		}
		word.Reset()
		any = false
	}
	for _, r := range line {
		switch {
		case r == '"':
			quoted, any = !quoted, true
		case r == '#' && !quoted:
			flush()
			return words
		case (r == ' ' || r == '\t') && !quoted:
			flush()
		default:
			word.WriteRune(r)
			any = true
		}
	}
	flush()
	return words
}

// write tells a plan the way an expert would note it.
func write(res *place.Result, bare bool) string {
	var b strings.Builder
	var last *place.Decision
	table := func(d *place.Decision) {
		if bare || d == last {
			return
		}
		last = d
		for _, e := range d.Table {
			writeRow(&b, d, e)
		}
		if m := d.Margin; m != nil {
			fmt.Fprintf(&b, "    %s is behind by %s", m.RunnerUp, ratio(m.Gap))
			if m.ByRule {
				b.WriteString(", a preferred rule decides")
			}
			if m.ByID {
				b.WriteString(", the lower name decides")
			}
			if m.DecidedBy != "" {
				fmt.Fprintf(&b, ", mostly by %s", m.DecidedBy)
			}
			if m.Flip != nil {
				fmt.Fprintf(&b, "; leads if %s weighs more than %s", m.Flip.Policy, ratio(m.Flip.Above))
			}
			b.WriteString("\n")
		}
	}
	for _, p := range res.Placements {
		fmt.Fprintf(&b, "%s/%s/%d goes to %s", p.Work, p.Task, p.Replica, p.Candidate)
		if p.Devices != nil {
			fmt.Fprintf(&b, " on %s", strings.Join(p.Devices, " and "))
		}
		b.WriteString("\n")
		table(p.Decision)
	}
	for _, u := range res.Unplaced {
		fmt.Fprintf(&b, "%s/%s/%d stays: %s\n", u.Work, u.Task, u.Replica, u.Reason)
		table(u.Decision)
	}
	for _, h := range res.Holds {
		fmt.Fprintf(&b, "held for %s at %s: %v in %d s\n", h.Work, h.Candidate, h.Amounts, h.StartsIn)
	}
	return b.String()
}

func writeRow(b *strings.Builder, d *place.Decision, e place.Entry) {
	if e.Rank == 0 {
		for _, r := range e.Filtered {
			fmt.Fprintf(b, "    -  %s %s [%s]\n", e.Candidate, r.Text, r.Filter)
		}
		writeRules(b, e)
		return
	}
	fmt.Fprintf(b, "    %d. %s %d:", e.Rank, e.Candidate, e.Final)
	for u, p := range d.Policies {
		var facts []string
		for f, v := range e.Values[u] {
			facts = append(facts, place.Text(p.Factors[f].Unit, v))
		}
		fmt.Fprintf(b, " %s %d (%s)", p.ID, e.Scores[u], strings.Join(facts, ", "))
	}
	b.WriteString("\n")
	writeRules(b, e)
}

func writeRules(b *strings.Builder, e place.Entry) {
	for _, r := range e.Rules {
		fmt.Fprintf(b, "    -  %s %s [%s]\n", e.Candidate, r.Text, r.Filter)
	}
}

// ratio writes a fraction with two decimals.
func ratio(e place.Exact) string {
	return strconv.FormatFloat(float64(e.Num)/float64(e.Den), 'f', 2, 64)
}
