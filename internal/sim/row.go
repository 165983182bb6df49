package sim

import (
	"fmt"
	"math/big"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// row is one record of an input: a line of CSV or a mapping of YAML. What is
// wrong with it goes to check, with the line and the name of the field.
type row struct {
	at    string
	get   func(name string) (text string, ok bool)
	many  func(name string) []string
	check *core.Check
}

func (r *row) bad(name, format string, args ...any) { r.check.Add(r.at+name, format, args...) }

// has reports whether a field is given and not empty.
func (r *row) has(name string) bool {
	s, ok := r.get(name)
	return ok && s != ""
}

// either is the first of the names that is given, else the first.
func (r *row) either(names ...string) string {
	for _, n := range names {
		if r.has(n) {
			return n
		}
	}
	return names[0]
}

func (r *row) text(name string, most int) string {
	s, _ := r.get(name)
	if s = strings.TrimSpace(s); s != "" {
		r.check.Text(r.at+name, s, false, most, 0)
	}
	return s
}

// parse reads a decimal number exactly.
func parse(s string) (*big.Rat, bool) {
	if s == "" || len(s) > 32 || strings.Trim(s, "0123456789.-+eE") != "" {
		return nil, false
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 && len(s)-i > 4 {
		return nil, false // an exponent that could fill the memory
	}
	return new(big.Rat).SetString(s)
}

// plain reads what most numbers are: a few digits.
func plain(s string) (n int64, ok bool) {
	if len(s) == 0 || len(s) > 12 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + int64(s[i]-'0')
	}
	return n, true
}

// decimal reads a number and answers it times scale, which must be whole; lo
// and hi are of the number as written.
func (r *row) decimal(name string, scale, lo, hi int64) int64 {
	s, ok := r.get(name)
	if s = strings.TrimSpace(s); !ok || s == "" {
		return 0
	}
	if n, ok := plain(s); ok && n >= lo && n <= hi {
		return n * scale
	}
	x, ok := parse(s)
	if !ok || x.Cmp(big.NewRat(lo, 1)) < 0 || x.Cmp(big.NewRat(hi, 1)) > 0 {
		r.bad(name, "must be a number from %d to %d, got %q", lo, hi, s)
		return 0
	}
	if x.Mul(x, big.NewRat(scale, 1)); !x.IsInt() {
		if scale == 1 {
			r.bad(name, "must be a whole number, got %q", s)
		} else {
			r.bad(name, "must be a multiple of 1/%d, got %q", scale, s)
		}
		return 0
	}
	return x.Num().Int64()
}

func (r *row) number(name string, lo, hi int64) int64 { return r.decimal(name, 1, lo, hi) }

// rounded is a number to the nearest whole one; recorded traces have amounts
// that a program computed.
func (r *row) rounded(name string, hi int64) int64 {
	s, ok := r.get(name)
	if s = strings.TrimSpace(s); !ok || s == "" {
		return 0
	}
	if n, ok := plain(s); ok && n <= hi {
		return n
	}
	x, ok := parse(s)
	if !ok || x.Sign() < 0 || x.Cmp(big.NewRat(hi, 1)) > 0 {
		r.bad(name, "must be a number from 0 to %d, got %q", hi, s)
		return 0
	}
	x.Add(x, big.NewRat(1, 2))
	return new(big.Int).Quo(x.Num(), x.Denom()).Int64()
}

func (r *row) fact(name string, scale, lo, hi int64) place.Fact {
	if !r.has(name) {
		return place.Fact{}
	}
	return place.Known(r.decimal(name, scale, lo, hi))
}

// quantity reads an amount in Kubernetes notation; zero may be written too.
func (r *row) quantity(name, resource string, hi int64) int64 {
	s, ok := r.get(name)
	if s = strings.TrimSpace(s); !ok || s == "" || s == "0" {
		return 0
	}
	n, err := core.ParseQuantity(resource, s)
	if err != nil {
		r.bad(name, "%s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), resource+" of "), resource+" "))
		return 0
	}
	if n > hi {
		r.bad(name, "must be at most %s, got %q", core.FormatQuantity(resource, hi), s)
		return 0
	}
	return n
}

// cpu is in thousandths of a core: from cpu in Kubernetes notation, or from
// cpu_milli.
func (r *row) cpu(hi int64) int64 {
	if r.has("cpu_milli") {
		return r.rounded("cpu_milli", hi)
	}
	return r.quantity("cpu", core.CPU, hi)
}

// memory is in MiB: from memory in Kubernetes notation, rounded up, or from
// memory_mib.
func (r *row) memory(hi int64) int64 {
	if r.has("memory_mib") {
		return r.rounded("memory_mib", hi)
	}
	return (r.quantity("memory", core.Memory, hi<<20) + 1<<20 - 1) >> 20
}

// span reads a time in seconds, or with a unit such as 90m, in microseconds.
func (r *row) span(name string) int64 {
	s, ok := r.get(name)
	if s = strings.TrimSpace(s); !ok || s == "" {
		return 0
	}
	if n, ok := plain(s); ok && n <= MaxTime/Second {
		return n * Second
	}
	if x, ok := parse(s); ok {
		x.Mul(x, big.NewRat(Second, 1))
		x.Add(x, big.NewRat(1, 2))
		if n := new(big.Int).Quo(x.Num(), x.Denom()); x.Sign() >= 0 && n.IsInt64() && n.Int64() <= MaxTime {
			return n.Int64()
		}
	} else if d, err := time.ParseDuration(s); err == nil && d >= 0 && d.Microseconds() <= MaxTime {
		return d.Microseconds()
	}
	r.bad(name, "must be seconds, or a time such as 90m, from 0 to %d s, got %q", MaxTime/Second, s)
	return 0
}

func (r *row) flag(name string) bool {
	s, _ := r.get(name)
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true", "yes", "1":
		return true
	case "", "false", "no", "0":
		return false
	}
	r.bad(name, "must be true or false, got %q", s)
	return false
}

// supply reads what running costs, on top of what the model of the cards says.
func (r *row) supply(base Supply) Supply {
	s := base
	for _, f := range []struct {
		name      string
		to        *place.Fact
		scale, lo int64
		hi        int64
	}{
		{"price", &s.Price, 100, 0, maxRate / 100}, {"core_price", &s.CorePrice, 100, 0, maxRate / 100},
		{"pue", &s.PUE, 1000, 1, 5}, {"carbon", &s.Carbon, 1, 0, 10_000},
	} {
		if r.has(f.name) {
			*f.to = r.fact(f.name, f.scale, f.lo, f.hi)
		}
	}
	for _, f := range []struct {
		name string
		to   *int64
		most int64
	}{{"idle", &s.Idle, maxPower}, {"busy", &s.Busy, maxPower}, {"core_busy", &s.CoreBusy, maxPower / 100}, {"base", &s.Base, maxPower * 1000}} {
		if r.has(f.name) {
			*f.to = r.decimal(f.name, 1000, 0, f.most/1000)
		}
	}
	if s.Busy < s.Idle {
		r.bad("busy", "must be at least idle, got %d and %d mW", s.Busy, s.Idle)
	}
	if r.has("mtbf") || r.has("mttr") {
		if s.MTBF, s.MTTR = r.span("mtbf"), r.span("mttr"); (s.MTBF > 0) != (s.MTTR > 0) {
			r.bad("mttr", "must be given with mtbf, both more than 0 s")
		}
	}
	if r.has("speed") {
		if s.Speed = r.decimal("speed", 1000, 0, 1000); s.Speed == 0 {
			r.bad("speed", "must be more than 0, such as 1.5")
		}
	}
	return s
}

// job reads one; n is its number, for those without a name.
func (r *row) job(n int, times bool) Job {
	j := Job{ID: r.text(r.either("id", "name"), 128), Replicas: 1, Kind: r.text("kind", 128), Spec: r.text("spec", 32)}
	if j.ID == "" {
		j.ID = fmt.Sprintf("job-%d", n)
	}
	j.Tenant = r.text(r.either("tenant", "qos"), 64)
	j.Priority = r.number("priority", -1000, 1000)
	if r.has("replicas") {
		j.Replicas = int(r.number("replicas", 1, MaxReplicas))
	}
	if r.has("min_replicas") {
		j.Least = int(r.number("min_replicas", 1, int64(max(j.Replicas, 1))))
	}
	j.User, j.NotBefore = r.text("user", 64), r.span("not_before")
	j.Ask.CPU, j.Ask.Memory = r.cpu(1<<31-1), r.memory(1<<31-1)
	cards := r.either("cards", "num_gpu")
	j.Ask.Cards = int(r.number(cards, 0, 16))
	switch share := r.either("share", "gpu_milli"); {
	case j.Ask.Cards == 0:
		if v := r.number(share, 0, 1000); v != 0 {
			r.bad(share, "must be 0 or left out where %s is 0, got %d", cards, v)
		}
	case !r.has(share):
		j.Ask.Share = 1000
	default:
		lo := int64(1)
		if j.Ask.Cards > 1 {
			lo = 1000
		}
		j.Ask.Share = int(r.number(share, lo, 1000))
	}
	for _, m := range r.many(r.either("models", "gpu_spec")) {
		r.check.Text(r.at+"models", m, true, 64, 0)
		j.Ask.Models = append(j.Ask.Models, m)
	}
	j.Preemptible = r.flag("preemptible") || !r.has("preemptible") && r.text("qos", 64) == "BE"
	j.Split, j.Checkpoint = r.flag("split"), r.span("checkpoint")
	if !times {
		j.Run = Forever
		return j
	}
	j.Arrival = r.span(r.either("arrival", "creation_time"))
	if !r.has("arrival") && !r.has("creation_time") {
		r.bad("arrival", "is required: seconds from the start")
	}
	r.times(&j)
	return j
}

// times reads how long it runs: from duration, or from when it started and
// ended.
func (r *row) times(j *Job) {
	switch {
	case r.has("duration"):
		if s, _ := r.get("duration"); s == "forever" {
			j.Run = Forever
		} else if j.Run = r.span("duration"); j.Run == 0 {
			r.bad("duration", "must be more than 0 s, or forever, got %q", s)
		}
	case r.has("deletion_time"):
		begin := j.Arrival
		if r.has("scheduled_time") {
			begin = max(begin, r.span("scheduled_time"))
		}
		// Some recorded tasks were deleted in the second they started.
		j.Run = max(r.span("deletion_time")-begin, Second)
	default:
		r.bad("duration", "is required: seconds at reference speed, or forever")
	}
	j.Expected = j.Run
	if j.Run == Forever {
		j.Expected = 0
	}
	if s, ok := r.get("expected"); ok && s != "" {
		j.Expected = 0
		if s != "unknown" {
			j.Expected = r.span("expected")
		}
	}
	if r.has("deadline") {
		if j.Deadline = r.span("deadline"); j.Deadline <= j.Arrival {
			r.bad("deadline", "must be after the arrival, got %q", func() string { s, _ := r.get("deadline"); return s }())
		}
	}
}
