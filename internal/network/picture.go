package network

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// ends of a path.
type ends struct{ from, to string }

func (e ends) String() string { return e.from + " to " + e.to }

// known is one fact of a path.
type known struct {
	value  int64
	source Source // 0: not known
	at     time.Time
}

// Picture is the network at a moment. It does not change.
type Picture struct {
	paths     map[ends]*[5]known
	notes     map[ends]string
	own       map[string]place.Network // by end: its part in all its paths
	links     []place.Link
	origins   map[string]*Origin
	tenants   map[string]*Origin // whose jobs come from where
	users     map[string]*Origin
	available map[string]int64 // by center, in millionths
}

// declared is what the tables have.
type declared struct {
	generation int64
	paths      []Declaration
	origins    []*Origin
}

// measurement of a path.
type measurement struct {
	values place.Network
	at     time.Time
}

// newPicture puts a picture together; what was measured before since is not
// in it.
func newPicture(d *declared, measured map[ends]measurement, links []Link, available map[string]int64, since time.Time) *Picture {
	p := &Picture{paths: map[ends]*[5]known{}, notes: map[ends]string{}, own: map[string]place.Network{}, origins: map[string]*Origin{},
		tenants: map[string]*Origin{}, users: map[string]*Origin{}, available: available}
	for e, m := range measured { // each has ends of its own
		if !m.at.Before(since) {
			p.add(e, m.values, Measured, m.at)
		}
	}
	for i := range d.paths {
		x := &d.paths[i]
		p.add(ends{x.From, x.To}, x.Facts, Declared, time.Time{})
		if x.Note != "" {
			p.notes[ends{x.From, x.To}] = x.Note
		}
	}
	for _, source := range []Source{FromLink, FromResource} {
		for _, l := range links {
			if l.Source == source {
				p.add(ends{l.From, l.To}, l.Facts, l.Source, time.Time{})
			}
		}
	}
	for _, o := range d.origins {
		p.origins[o.ID] = o
		for _, t := range o.Tenants {
			p.tenants[t] = o
		}
		for _, u := range o.Users {
			p.users[u] = o
		}
	}
	for e, known := range p.paths {
		n := engine(known)
		if e.to == Anywhere {
			n.Source = sourceText("", known)
			p.own[e.from] = n
			continue
		}
		n.Source = sourceText(e.String()+": ", known)
		p.links = append(p.links, place.Link{From: engineEnd(e.from), To: engineEnd(e.to), Network: n})
	}
	slices.SortFunc(p.links, func(a, b place.Link) int { return cmp.Or(strings.Compare(a.From, b.From), strings.Compare(a.To, b.To)) })
	return p
}

// add adds facts of a path that are not known from a better source.
func (p *Picture) add(e ends, n place.Network, source Source, at time.Time) {
	k := p.paths[e]
	for i, f := range facts(&n) {
		if !f.Known {
			continue
		}
		if k == nil {
			k = &[5]known{}
			p.paths[e] = k
		}
		if k[i].source == 0 { // what is out of range would keep everything from being placed
			k[i] = known{min(max(f.Value, ranges[i].low), ranges[i].high), source, at}
		}
	}
}

func engine(k *[5]known) (n place.Network) {
	for i, f := range facts(&n) {
		if k[i].source != 0 {
			*f = place.Known(k[i].value)
		}
	}
	return n
}

// engineEnd is what the engine calls an end.
func engineEnd(end string) string { return strings.TrimPrefix(end, centerPrefix) }

// sourceText says where facts are from: "measured 2026-01-02T03:04:05Z
// (latency, jitter, loss), declared (fee)".
func sourceText(prefix string, k *[5]known) string {
	var parts []string
	for source := Measured; source <= FromResource; source++ {
		var of []string
		text := source.String()
		for i := range k {
			if k[i].source != source {
				continue
			}
			word, _, _ := strings.Cut(names[i], "_")
			if of = append(of, word); source == Measured {
				text = "measured " + k[i].at.UTC().Format(time.RFC3339)
			}
		}
		if len(of) > 0 {
			parts = append(parts, text+" ("+strings.Join(of, ", ")+")")
		}
	}
	return prefix + strings.Join(parts, ", ")
}

// Apply adds what is known of the network to a snapshot of centers.
func (p *Picture) Apply(to *place.Snapshot) {
	for i := range to.Candidates {
		c := &to.Candidates[i]
		c.Network = p.ownOf(c.ID, c.Region)
		if ppm, ok := p.available[c.ID]; ok {
			c.Availability = place.Known(ppm)
		}
	}
	to.Links = p.links
}

// ownOf is the part of a center, or of its region, in all its paths.
func (p *Picture) ownOf(center, region string) place.Network {
	n := p.own[centerPrefix+center]
	if region == "" {
		return n
	}
	r, ok := p.own[regionPrefix+region]
	if !ok {
		return n
	}
	used := false
	theirs := facts(&r)
	for i, f := range facts(&n) {
		if !f.Known && theirs[i].Known {
			*f, used = *theirs[i], true
		}
	}
	if used {
		text := regionPrefix + region + ": " + r.Source
		if n.Source != "" {
			text = n.Source + "; " + text
		}
		n.Source = text
	}
	return n
}

const userPrefix = "user:"

// From names where a job comes from: the origin it states or, if that is "",
// its user. [Picture.Origin] looks up what that is.
func From(origin, user string) string {
	if origin != "" {
		return originPrefix + origin
	}
	return userPrefix + user
}

// Origin is the place that a name of [From] stands for, of a user without one
// that of the tenant; the zero value: nobody says.
func (p *Picture) Origin(from, tenant string) place.Origin {
	id, stated := strings.CutPrefix(from, originPrefix)
	o := p.origins[id]
	if !stated {
		if o = p.users[strings.TrimPrefix(from, userPrefix)]; o == nil {
			o = p.tenants[tenant]
		}
	}
	if o == nil {
		return place.Origin{}
	}
	return place.Origin{Name: originPrefix + o.ID, Region: o.Region, Position: o.Position}
}

// list returns the paths with an end ("": all) after key, at most n.
func (p *Picture) list(end string, after ends, n int) (out []Path, more bool) {
	var keys []ends
	for e := range p.paths {
		if (end == "" || e.from == end || e.to == end) && byEnds(e, after) > 0 {
			keys = append(keys, e)
		}
	}
	slices.SortFunc(keys, byEnds)
	if more = len(keys) > n; more {
		keys = keys[:n]
	}
	for _, e := range keys {
		out = append(out, p.show(e))
	}
	return out, more
}

// show returns what is known of exactly these ends.
func (p *Picture) show(e ends) Path {
	out := Path{From: e.from, To: e.to, Note: p.notes[e]}
	k := p.paths[e]
	for i, name := range names {
		if k != nil && k[i].source != 0 {
			out.Facts = append(out.Facts, Fact{Name: name, Value: k[i].value, Source: k[i].source, At: k[i].at})
		}
	}
	return out
}

func byEnds(a, b ends) int {
	return cmp.Or(strings.Compare(a.from, b.from), strings.Compare(a.to, b.to))
}

// spot is one place of a path asked for.
type spot struct {
	end, region string
	position    *place.Position
}

func (s *spot) names() []string {
	if s.region == "" {
		return []string{s.end}
	}
	return []string{s.end, regionPrefix + s.region}
}

func centerSpot(c *registry.Center) spot {
	s := spot{end: centerPrefix + c.ID, region: c.Region}
	if c.Position != nil {
		s.position = &place.Position{Longitude: c.Position.Longitude, Latitude: c.Position.Latitude}
	}
	return s
}

// between returns what the engine takes between two places.
func (p *Picture) between(from, to spot) Path {
	out := Path{From: from.end, To: to.end, Note: p.notes[ends{from.end, to.end}]}
	origin := strings.HasPrefix(from.end, originPrefix)
	for i, name := range names {
		f, ok := p.fact(i, from, to)
		a, inA := p.part(i, from)
		b, inB := p.part(i, to)
		both := Path{From: a.Path, To: b.Path}
		switch {
		case ok:
		case origin && name != "fee_fen_per_gib":
			f, ok = b, inB
		case origin: // data is not brought from origins
		case name == "latency_us" && from.position != nil && to.position != nil:
			f, ok = Fact{Value: place.Distance(*from.position, *to.position) / 100, Source: Estimated}, true
		case name == "bandwidth_kbps" && inA && inB:
			if f, ok = b, true; a.Value < b.Value {
				f = a
			}
		case name == "fee_fen_per_gib" && inA && inB:
			f, ok = Fact{Value: a.Value + b.Value, Source: max(a.Source, b.Source), Path: both.From + " and " + both.To}, true
		}
		if ok {
			f.Name = name
			out.Facts = append(out.Facts, f)
		}
	}
	return out
}

// fact is what paths between two places say, the most exact first, each in
// either direction.
func (p *Picture) fact(i int, from, to spot) (Fact, bool) {
	for _, a := range from.names() {
		for _, b := range to.names() {
			for _, e := range []ends{{a, b}, {b, a}} {
				k := p.paths[e]
				if k == nil || k[i].source == 0 {
					continue
				}
				f := Fact{Value: k[i].value, Source: k[i].source, At: k[i].at}
				if e != (ends{from.end, to.end}) {
					f.Path = e.String()
				}
				return f, true
			}
		}
	}
	return Fact{}, false
}

// part is what is known of a place's part in all its paths.
func (p *Picture) part(i int, of spot) (Fact, bool) {
	for _, end := range of.names() {
		if k := p.paths[ends{end, Anywhere}]; k != nil && k[i].source != 0 {
			return Fact{Value: k[i].value, Source: k[i].source, At: k[i].at, Path: ends{end, Anywhere}.String()}, true
		}
	}
	return Fact{}, false
}
