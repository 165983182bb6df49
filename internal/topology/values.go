package topology

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/samples"
)

const (
	// fresh is how old live values may be: the samples are written every 5 s.
	fresh = 5 * time.Second
	// tolerable is how old they may be while newer ones are fetched.
	tolerable = 30 * time.Second
	// maxReadings are the readings of past times that are kept at hand.
	maxReadings = 24
	// maxSeries is how many series one binding may have: 10,000 nodes with 16
	// cards and then some.
	maxSeries = 200_000
)

// reading is what a binding measured at a time, before it is put on a graph.
type reading struct {
	b       *Binding
	at      time.Time
	centers map[string]*centerReading
	paths   map[[2]string]float64 // by center and peer
}

type centerReading struct {
	value float64
	nodes map[string]*nodeReading
}

type nodeReading struct {
	value float64
	cards []float64
}

// read asks the store.
func (s *Service) read(ctx context.Context, b *Binding, when time.Time) (*reading, error) {
	expr, err := samples.Enforce(b.Expression, monitor.TenantLabel, "")
	if err != nil {
		return nil, err
	}
	series, err := s.samples.QueryWide(ctx, expr, when, maxSeries)
	if err != nil {
		return nil, err
	}
	r := &reading{b: b, at: when, centers: map[string]*centerReading{}, paths: map[[2]string]float64{}}
	for i := range series {
		if len(series[i].Points) == 1 {
			r.take(series[i].Labels, series[i].Points[0].Value*b.Scale)
		}
	}
	return r, nil
}

func (r *reading) take(l samples.Labels, value float64) {
	id := l.Get(r.b.Center)
	if id == "" || math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	if r.b.Level == LevelLink {
		if peer := l.Get(r.b.Peer); peer != "" {
			r.paths[[2]string{id, peer}] = value
		}
		return
	}
	k := r.centers[id]
	if k == nil {
		k = &centerReading{value: math.NaN(), nodes: map[string]*nodeReading{}}
		r.centers[id] = k
	}
	if r.b.Level == LevelCenter {
		k.value = value
		return
	}
	name := l.Get(r.b.Node)
	if name == "" {
		return
	}
	n := k.nodes[name]
	if n == nil {
		n = &nodeReading{value: math.NaN()}
		k.nodes[name] = n
	}
	if r.b.Level == LevelNode {
		n.value = value
		return
	}
	i, err := strconv.Atoi(l.Get(r.b.Index))
	if err != nil || i < 0 || i >= maxCards {
		return
	}
	for len(n.cards) <= i {
		n.cards = append(n.cards, math.NaN())
	}
	n.cards[i] = value
}

// layer is a reading on a graph. NaN: not measured.
type layer struct {
	*Binding
	at     time.Time
	level  Level
	vertex []float64 // by vertex: measured, or from its parts; nil of links
	card   []float64 // by card; nil if it is not of cards
	link   []float64 // by link; nil if it is not of links
}

// sums gathers values of parts.
type sums struct {
	sum, low, high float64
	n              int64
}

func (a *sums) add(x float64) { a.join(&sums{x, x, x, 1}) }

func (a *sums) join(o *sums) {
	switch {
	case o.n == 0:
	case a.n == 0:
		*a = *o
	default:
		a.sum, a.n, a.low, a.high = a.sum+o.sum, a.n+o.n, min(a.low, o.low), max(a.high, o.high)
	}
}

func (a *sums) value(how Aggregate) float64 {
	switch {
	case a.n == 0:
		return math.NaN()
	case how == Sum:
		return a.sum
	case how == Max:
		return a.high
	case how == Min:
		return a.low
	}
	return a.sum / float64(a.n)
}

// relative divides a value by what the vertex has.
func (b *Binding) relative(x float64, it *Item, card int) float64 {
	var of int64
	switch b.Relative {
	case "":
		return x
	case "cpu":
		of = it.Capacity[core.CPU]
		x *= 1000 // of milli-cores
	case "memory":
		of = it.Capacity[core.Memory]
	case "storage":
		of = it.Capacity[core.Storage]
	case "card_memory":
		for _, c := range it.Equipment {
			if card >= 0 && int64(card) >= c.Count {
				card -= int(c.Count)
				continue
			}
			if of = c.Memory; card >= 0 {
				break
			}
		}
	}
	if of <= 0 {
		return math.NaN()
	}
	return x / float64(of)
}

// lay puts a reading on a graph.
func (g *graph) lay(r *reading) *layer {
	b := r.b
	l := &layer{Binding: b, at: r.at, level: b.Level}
	if b.Level == LevelLink {
		l.link = g.layLinks(r)
		return l
	}
	l.vertex = make([]float64, len(g.v))
	if b.Level == LevelCard {
		l.card = make([]float64, g.cards)
		for i := range l.card {
			l.card[i] = math.NaN()
		}
	}
	acc := make([]sums, len(g.v))
	for i := len(g.v) - 1; i >= 0; i-- {
		v := &g.v[i]
		own := math.NaN()
		switch k := r.centers[v.CenterID]; {
		case k == nil:
		case v.Level == LevelCenter && b.Level == LevelCenter:
			own = b.relative(k.value, v.Item, -1)
		case v.center < 0:
		case b.Level == LevelNode:
			if n := k.nodes[v.Name]; n != nil {
				own = b.relative(n.value, v.Item, -1)
			}
		case b.Level == LevelCard:
			if n := k.nodes[v.Name]; n != nil {
				for c := range min(len(n.cards), int(v.cards)) {
					x := b.relative(n.cards[c], v.Item, c)
					l.card[int(v.card)+c] = x
					if !math.IsNaN(x) {
						acc[i].add(x)
					}
				}
			}
		}
		if !math.IsNaN(own) {
			acc[i] = sums{}
			acc[i].add(own)
		}
		l.vertex[i] = acc[i].value(b.Aggregate)
		if v.parent >= 0 {
			acc[v.parent].join(&acc[i])
		}
	}
	return l
}

// layLinks finds what was measured between the ends of each link.
func (g *graph) layLinks(r *reading) []float64 {
	type pair struct{ a, b int32 }
	between := map[pair]*sums{}
	for ends, x := range r.paths {
		from, ok := g.at[centerID(ends[0])]
		to, ok2 := g.peer(ends[1])
		if !ok || !ok2 {
			continue
		}
		k := pair{min(from, to), max(from, to)}
		if between[k] == nil {
			between[k] = &sums{}
		}
		between[k].add(x)
	}
	out := make([]float64, len(g.links))
	for i, it := range g.links {
		from, to := g.at[it.Link.From], g.at[it.Link.To]
		out[i] = math.NaN()
		if a := between[pair{min(from, to), max(from, to)}]; a != nil {
			out[i] = a.value(r.b.Aggregate)
		}
	}
	return out
}

// platformPeer is what centers call the platform.
const platformPeer = "platform"

// peer finds the vertex that a center calls so.
func (g *graph) peer(name string) (int32, bool) {
	if name == platformPeer {
		return 0, true
	}
	i, ok := g.at[centerID(strings.TrimPrefix(name, centerPrefix))]
	return i, ok
}

// livePart is what is measured now, of the bindings somebody looked at.
type livePart struct {
	reading *reading
	asked   time.Time
}

// readingNow returns what a binding measures now: at most [fresh] old, or
// [tolerable] while a newer one is being fetched.
func (s *Service) readingNow(ctx context.Context, b *Binding) (*reading, error) {
	if r, ok := s.atHand(b); ok {
		return r, nil
	}
	select { // who comes at once waits for one answer
	case s.fetching <- struct{}{}:
		defer func() { <-s.fetching }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r, ok := s.atHand(b); ok {
		return r, nil
	}
	return s.fetch(ctx, b)
}

func (s *Service) atHand(b *Binding) (*reading, bool) {
	now := s.db.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.live[b.ID]
	if have == nil || have.reading.b.Version != b.Version || have.reading.b.Expression != b.Expression {
		return nil, false
	}
	age := now.Sub(have.reading.at)
	if age < 0 || age >= tolerable {
		return nil, false
	}
	have.asked = now
	if age >= fresh {
		select {
		case s.stale <- struct{}{}:
		default:
		}
	}
	return have.reading, true
}

func (s *Service) fetch(ctx context.Context, b *Binding) (*reading, error) {
	now := s.db.Now()
	r, err := s.read(ctx, b, now)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := now
	if have := s.live[b.ID]; have != nil {
		asked = have.asked
	}
	s.live[b.ID] = &livePart{r, asked}
	return r, nil
}

// Follow keeps what is measured at hand for those who look, until ctx ends.
// Calls work without it, but one in 30 s waits for the store. It belongs into
// every process that answers calls.
func (s *Service) Follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.stale:
		}
		s.mu.Lock()
		var due []*Binding
		for id, have := range s.live {
			switch now := s.db.Now(); {
			case now.Sub(have.asked) > 2*tolerable:
				delete(s.live, id)
			case now.Sub(have.reading.at) >= fresh:
				due = append(due, have.reading.b)
			}
		}
		s.mu.Unlock()
		for _, b := range due {
			if _, err := s.fetch(ctx, b); err != nil && ctx.Err() == nil {
				s.log.Warn("measured values not read", "binding_id", b.ID, "error", err)
			}
		}
	}
}

// readingAt returns what a binding measured at a past time.
func (s *Service) readingAt(ctx context.Context, b *Binding, when time.Time) (*reading, error) {
	when = when.Truncate(time.Millisecond)
	s.mu.Lock()
	for _, r := range s.past {
		if r.at.Equal(when) && r.b.ID == b.ID && r.b.Version == b.Version {
			s.mu.Unlock()
			return r, nil
		}
	}
	s.mu.Unlock()
	r, err := s.read(ctx, b, when)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past = append(s.past, r); len(s.past) > maxReadings {
		s.past = slices.Delete(s.past, 0, 1)
	}
	return r, nil
}

// layerOf returns one binding on a graph; a zero time is now.
func (s *Service) layerOf(ctx context.Context, g *graph, b *Binding, when time.Time) (*layer, error) {
	var r *reading
	var err error
	if when.IsZero() {
		r, err = s.readingNow(ctx, b)
	} else {
		r, err = s.readingAt(ctx, b, when)
	}
	if err != nil {
		return nil, err
	}
	return g.lay(r), nil
}

// limiting returns what the bindings with thresholds measured, by binding. A
// picture without them is better than none: what cannot be read is left out.
func (s *Service) limiting(ctx context.Context, when time.Time) ([]*reading, error) {
	all, err := s.bindings(ctx)
	if err != nil {
		return nil, err
	}
	var out []*reading
	for _, id := range sortedKeys(all) {
		if !all[id].limits() {
			continue
		}
		var r *reading
		if when.IsZero() {
			r, err = s.readingNow(ctx, all[id])
		} else {
			r, err = s.readingAt(ctx, all[id], when)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			s.complain(id, err)
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

// complain logs at most once a minute that values cannot be read.
func (s *Service) complain(id string, err error) {
	now := s.db.Now()
	s.mu.Lock()
	quiet := now.Sub(s.complained) < time.Minute && !now.Before(s.complained)
	if !quiet {
		s.complained = now
	}
	s.mu.Unlock()
	if !quiet {
		s.log.Warn("health is shown without measured values", "binding_id", id, "error", err)
	}
}

// measuredPaths are the centers and peers between which something was measured
// within the last hour.
func (s *Service) measuredPaths(ctx context.Context) (map[[2]string]bool, error) {
	series, err := s.samples.QueryWide(ctx, `present_over_time(yunhe_path_latency_seconds{tenant=""}[1h])`, s.db.Now(), maxSeries)
	if err != nil {
		return nil, err
	}
	out := map[[2]string]bool{}
	for i := range series {
		if from, to := series[i].Labels.Get("ai_center_id"), series[i].Labels.Get("peer"); from != "" && to != "" {
			out[[2]string{from, to}] = true
		}
	}
	return out, nil
}
