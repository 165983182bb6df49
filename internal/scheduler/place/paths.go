package place

import "slices"

// RegionEnd names a region as an end of links: such a link counts for all
// candidates and origins of the region that have none of their own.
func RegionEnd(region string) string { return "region:" + region }

// end is what links know a place by, the most exact name first: its own, then
// its region's.
type end struct {
	names [2]string
	links [2]map[string]*Network // by the name of the other end; nil: there are none
}

// linksByEnd indexes links by both ends. What a direction does not state, the
// other does.
func linksByEnd(list []Link) map[string]map[string]*Network {
	if len(list) == 0 {
		return nil
	}
	out := map[string]map[string]*Network{}
	of := func(from string) map[string]*Network {
		if out[from] == nil {
			out[from] = map[string]*Network{}
		}
		return out[from]
	}
	for i := range list {
		of(list[i].From)[list[i].To] = &list[i].Network
	}
	for i := range list {
		l := &list[i]
		back := of(l.To)
		n := back[l.From]
		switch {
		case n == nil:
			back[l.From] = &l.Network
		case n != &l.Network:
			both := *n
			both.complete(&l.Network)
			if l.Source != "" && l.Source != n.Source {
				both.Source = joined([]string{n.Source, l.Source})
			}
			back[l.From] = &both
		}
	}
	return out
}

func (p *planner) endOf(name, region string) *end {
	if p.links == nil {
		return nil
	}
	e := &end{names: [2]string{name}}
	if region != "" {
		e.names[1] = RegionEnd(region)
	}
	for k, n := range e.names {
		if n != "" {
			e.links[k] = p.links[n]
		}
	}
	return e
}

// is reports whether e and o are the same end.
func (e *end) is(o *end) bool { return e == o || e != nil && o != nil && e.names == o.names }

// siteEnd returns the end that site i is, nil if there are no links.
func (p *planner) siteEnd(i int32) *end {
	if p.links == nil {
		return nil
	}
	if p.ends == nil {
		p.ends = make([]*end, len(p.sites))
	}
	if p.ends[i] == nil {
		p.ends[i] = p.endOf(p.sites[i].ID, p.sites[i].Region)
	}
	return p.ends[i]
}

// each calls f for the links from a to b, the most exact first.
func (a *end) each(b *end, f func(n *Network)) {
	if a == nil || b == nil {
		return
	}
	for _, links := range a.links {
		if links == nil {
			continue
		}
		for _, name := range b.names {
			if n := links[name]; n != nil {
				f(n)
			}
		}
	}
}

// between returns what links say of the way from a to b: each fact of the most
// exact link that states it.
func between(a, b *end) (n Network) {
	a.each(b, n.complete)
	return n
}

// complete takes the facts from o that n lacks.
func (n *Network) complete(o *Network) {
	for _, f := range [...]struct{ have, from *Fact }{
		{&n.LatencyMicros, &o.LatencyMicros}, {&n.JitterMicros, &o.JitterMicros}, {&n.LossPPM, &o.LossPPM},
		{&n.BandwidthKbps, &o.BandwidthKbps}, {&n.FeeFenPerGiB, &o.FeeFenPerGiB},
	} {
		if !f.have.Known {
			*f.have = *f.from
		}
	}
}

// path returns the network from the ask's origin to s, fact by fact the
// platform's own measurement where the origin's is unknown.
func (s *Site) path(a *Ask) Network {
	if a.from == nil {
		return s.Network
	}
	n := between(a.from, s.p.siteEnd(s.index))
	n.complete(&s.Network)
	return n
}

// sources says where the facts of path are from, "" if nobody says.
func (s *Site) sources(a *Ask) string {
	if s.p.links == nil {
		return s.Network.Source
	}
	var texts []string
	add := func(n *Network) {
		if n.Source != "" && !slices.Contains(texts, n.Source) {
			texts = append(texts, n.Source)
		}
	}
	a.from.each(s.p.siteEnd(s.index), add)
	add(&s.Network)
	return joined(texts)
}

func joined(texts []string) (out string) {
	for i, t := range texts {
		if i > 0 {
			out += "; "
		}
		out += t
	}
	return out
}
