package place

// AssumedRunSeconds is the run time that energy and carbon are compared for
// when a task states none.
const AssumedRunSeconds = 3600

// Lowest energy first (e): eq. (1), E = ∫P_static dt over the data copy +
// ∫P_exe dt over the run, of the devices the replica holds. Powers are
// constant, so the integrals are products. The copy takes as long as data-aware
// says; the run takes the expected time divided by the candidate's speed, if
// that is known. The energy is known only if the candidate states the power of
// everything the replica holds: leaving out a hungry device does not pay.
var lowestEnergy = Policy{
	ID: "lowest-energy", Title: "Lowest energy first", TitleZH: "最低能耗优先",
	Doc: "prefers the lower energy of copying the data and running, by eq. (1)",
	Factors: []Factor{{
		ID: "energy", Unit: "mJ", Better: Lower, Reads: readsEnergy,
		Measure: func(a *Ask, s *Site) Fact { return s.energy(a) },
	}},
}

// Lowest carbon: the energy of eq. (1), times the facility's overhead, times
// the carbon of its electricity. Green power at a wasteful center can win.
var lowestCarbon = Policy{
	ID: "lowest-carbon", Title: "Lowest carbon first", TitleZH: "最低碳排优先",
	Doc: "prefers the lower CO2 of the energy by eq. (1) with the facility's overhead",
	Factors: []Factor{{
		ID: "carbon", Unit: "mg", Better: Lower, Reads: readsEnergy,
		Measure: func(a *Ask, s *Site) Fact {
			e := s.energy(a)
			if !e.Known || !s.PUE.Known || !s.Carbon.Known {
				return Fact{}
			}
			// 1 kWh is 3.6e9 mJ; g/kWh × 1000 is mg/kWh.
			return Known(mulDiv(mulDiv(e.Value, s.PUE.Value, 1000), s.Carbon.Value, 3_600_000))
		},
	}},
}

// readsEnergy is what eq. (1) reads of an ask.
const readsEnergy = ReadsSpec | ReadsRequest | ReadsKind | ReadsRun | ReadsData

// draw is the power of what a replica holds at a site, in mW.
type draw struct {
	static, busy int64 // static -1: the site does not state it
}

// drawsOf returns it for every site.
func (p *planner) drawsOf(a *Ask) []draw {
	key := string(appendReads(nil, ReadsRequest, &a.Task, &a.Origin))
	if list, ok := p.draws[key]; ok {
		return list
	}
	if len(p.draws)*len(p.sites) > maxCopies {
		clear(p.draws)
	}
	list := make([]draw, len(p.sites))
	for i := range list {
		list[i] = p.sites[i].draw(a)
	}
	p.draws[key] = list
	return list
}

func (s *Site) draw(a *Ask) draw {
	var sum draw
	held, stated := false, true
	add := func(p Power, n int64) {
		held, stated = true, stated && p.Per > 0
		sum.static = addSat(sum.static, mulDiv(p.Static, n, max(p.Per, 1)))
		sum.busy = addSat(sum.busy, mulDiv(p.Busy, n, max(p.Per, 1)))
	}
	base := int(s.index) * len(s.p.dims)
	for _, n := range a.need {
		if !n.spec {
			add(s.p.power[base+n.dim], n.amount)
		}
	}
	if d := a.devices; d != nil {
		for _, n := range d.each {
			p, ok := s.Power["device/"+s.p.devDims[n.dim]]
			if ok {
				p.Per = max(p.Per, 1)
			}
			add(p, mulDiv(n.amount, int64(d.count), 1))
		}
	}
	if !held || !stated {
		return draw{static: -1}
	}
	return sum
}

// energy returns the millijoules of eq. (1).
func (s *Site) energy(a *Ask) Fact {
	if a.draws == nil { // most sets of policies do not ask
		a.draws = s.p.drawsOf(a)
	}
	d := a.draws[s.index]
	if d.static < 0 {
		return Fact{}
	}
	copyTime, _ := a.Transfer(s)
	return Known(addSat(mulDiv(d.static, copyTime, 1000), mulDiv(d.busy, s.runTime(a), 1000)))
}

// runTime returns how long a replica runs here, in milliseconds.
func (s *Site) runTime(a *Ask) int64 {
	seconds := int64(AssumedRunSeconds)
	if a.Task.RunSeconds.Known {
		seconds = a.Task.RunSeconds.Value
	}
	speed := int64(1000)
	if f := s.speed(a); f.Known {
		speed = f.Value
	}
	return mulDiv(seconds, 1_000_000, speed)
}
