package place

import "strconv"

// nearMiss says in one sentence why nothing fits h: how many sites fail which
// filter first, and what the one that came closest lacks.
func (p *planner) nearMiss(h *shape) string {
	if h.miss == "" || h.missAt != len(p.changes) {
		h.miss, h.missAt = p.findMiss(h), len(p.changes)
	}
	return h.miss
}

func (p *planner) findMiss(h *shape) string {
	noun := p.opts.Noun
	if noun == "" {
		noun = "center"
	}
	if len(p.sites) == 0 {
		return "there is no " + noun
	}
	counts := make([]int, len(h.filters)+1) // the last is capacity
	closest, stage, share := int32(0), -1, int64(-1)
	for i := range p.sites {
		at, part := len(h.filters), int64(0)
		if !h.pass[i] {
			at, _ = h.firstAt(int32(i))
		} else {
			part = p.coverage(int32(i), h)
		}
		counts[at]++
		if at > stage || at == stage && part > share {
			closest, stage, share = int32(i), at, part
		}
	}
	text := "none of " + strconv.Itoa(len(p.sites)) + " " + noun + "s fits"
	if len(p.sites) == 1 {
		text = "the only " + noun + " does not fit"
	}
	sep := " ("
	for f := len(counts) - 1; f >= 0; f-- {
		if counts[f] == 0 {
			continue
		}
		id := capacityFilter
		if f < len(h.filters) {
			id = h.filters[f].ID
		}
		text += sep + id + ": " + strconv.Itoa(counts[f])
		sep = ", "
	}
	why := p.shortage(closest, h)
	if !h.pass[closest] {
		_, why = h.firstAt(closest)
	}
	return text + "); closest is " + p.sites[closest].ID + ": " + why
}

// firstAt returns the first filter that keeps site i out, and why.
func (m *mask) firstAt(i int32) (filter int, why string) {
	for k, v := range m.says {
		if v.text[i] != "" {
			return m.filters[k], v.text[i]
		}
	}
	return -1, ""
}

// coverage returns how much of one replica of h site i could take, in
// thousandths of the scarcest dimension.
func (p *planner) coverage(i int32, h *shape) int64 {
	part := int64(1000)
	for j := range h.ask.need {
		n := &h.ask.need[j]
		part = min(part, mulDiv(1000, min(max(p.available(i, h, n), 0), n.amount), n.amount))
	}
	if d := h.ask.devices; d != nil {
		part = min(part, int64(p.devicesFit(i, d))*1000/int64(d.count))
	}
	return part
}
