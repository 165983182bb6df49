package place

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
)

// Site is a candidate during a plan: its facts, and what the plan has placed
// there so far.
type Site struct {
	*Candidate

	p       *planner
	index   int32
	placed  int64
	counted bool // reports what is free
}

// Running returns the jobs running at s, those placed in this plan included.
func (s *Site) Running() int64 { return s.RunningTasks + s.placed }

// Left returns what is free of a resource after what this plan has placed.
// Unlimited is true where the candidate reports no vector.
func (s *Site) Left(resource string) (n int64, unlimited bool) {
	if s.Candidate.Free == nil {
		return 0, true
	}
	d, ok := s.p.dimIndex[resource]
	if !ok {
		return s.Candidate.Free[resource], false
	}
	return s.p.free[int(s.index)*len(s.p.dims)+d], false
}

// packages returns how many packages of what a asks for are idle at s and how
// many there are: what the offer states or, where it does not, what fits into
// the capacities and devices.
func (s *Site) packages(a *Ask) (idle, total Fact) {
	all, stated := a.whole.at(s.index)
	if all == noFact {
		return Fact{}, Fact{}
	}
	free := s.p.free[int(s.index)*len(s.p.dims):]
	i := int64(math.MaxInt64)
	for _, n := range a.need {
		if n.spec != stated {
			continue
		}
		if f := max(free[n.dim], 0); f < math.MaxInt64 {
			i = min(i, f/n.amount)
		}
	}
	if d := a.devices; d != nil && !stated {
		idle, _ := s.p.slices(s.index, d)
		i = min(i, idle/int64(d.count))
	}
	return Known(i), Known(all)
}

// whole is how many packages each site has in all. It is read at one place after
// the other, for many asks, so it lies close together.
type whole struct {
	small []uint32        // by site: the total, and in the highest bit whether it is the offer's
	large map[int32]int64 // of sites whose total is largeTotal
}

const (
	statedTotal  = 1 << 31
	unknownTotal = statedTotal - 1
	largeTotal   = statedTotal - 2
)

// at returns the total of site i, noFact where it is unknown, and whether the
// offer states it.
func (w *whole) at(i int32) (total int64, stated bool) {
	n := w.small[i]
	stated = n&statedTotal != 0
	switch n &^= statedTotal; n {
	case unknownTotal:
		return noFact, stated
	case largeTotal:
		return w.large[i], stated
	}
	return int64(n), stated
}

// set notes the total of site i.
func (w *whole) set(i int, total int64, stated bool) {
	n := uint32(largeTotal)
	switch {
	case total == noFact:
		n = unknownTotal
	case total >= 0 && total < largeTotal:
		n = uint32(total)
	default:
		if w.large == nil {
			w.large = map[int32]int64{}
		}
		w.large[int32(i)] = total
	}
	if stated {
		n |= statedTotal
	}
	w.small[i] = n
}

// wholeOf returns it for an ask.
func (p *planner) wholeOf(a *Ask) *whole {
	key := string(appendReads(nil, ReadsSpec|ReadsRequest, &a.Task, &a.Origin))
	if w, ok := p.whole[key]; ok {
		return w
	}
	if len(p.whole)*len(p.sites) > maxCopies {
		clear(p.whole)
	}
	w := &whole{small: make([]uint32, len(p.sites))}
	for i := range p.sites {
		s := &p.sites[i]
		if o := a.Offer(s); o != nil && o.Idle.Known && o.Total.Known {
			w.set(i, o.Total.Value, true)
			continue
		}
		w.set(i, noFact, false)
		if !s.counted {
			continue
		}
		t := int64(math.MaxInt64)
		for _, n := range a.need {
			if !n.spec {
				t = min(t, max(p.total[i*len(p.dims)+n.dim], 0)/n.amount)
			}
		}
		if n := a.devices; n != nil {
			_, total := p.slices(int32(i), n)
			t = min(t, total/int64(n.count))
		}
		if t < math.MaxInt64 {
			w.set(i, t, false)
		}
	}
	p.whole[key] = w
	return w
}

const (
	// unlimited marks a free amount that is no limit and is never reduced.
	unlimited = math.MaxInt64
	// specDim starts the name of a dimension that counts idle packages.
	specDim = "spec/"
)

// need is one dimension of an ask.
type need struct {
	dim    int
	amount int64 // at least 1
	spec   bool  // counts packages of the specification
}

// deviceNeed is a DeviceRequest with its dimensions.
type deviceNeed struct {
	count int
	model string
	each  []need
}

// device is a Device during a plan.
type device struct {
	*Device
	free []int64 // by device dimension
}

// hold keeps room at a site for work that goes first later.
type hold struct {
	*Hold
	amounts []need
	startMS int64
}

// planner is the working state of one plan.
type planner struct {
	opts        *Options
	filters     []Filter
	sites       []Site // ascending by ID
	siteIndex   map[string]int32
	links       map[string]map[string]*Network // by both ends; nil: there are none
	ends        []*end                         // of sites; nil: not looked up yet
	points      []point                        // of sites with a position; made when first needed
	assumedKbps int64
	load        Load

	dims       []string // resources, then specDim names
	dimIndex   map[string]int
	free       []int64 // by site, then dimension
	total      []int64
	power      []Power // Per 0: not stated
	offers     map[string][]*Offer
	speeds     map[[2]string][]Fact
	whole      map[string]*whole
	draws      map[string][]draw
	devDims    []string
	devDim     map[string]int
	devices    [][]device // by site, ascending by ID
	holds      [][]hold   // by site; nil while there are none
	changes    []int32    // sites whose state changed, in order
	latest     []int32    // by site: the position of its last change in changes, from 1
	rises      []int32    // those that got something back
	journal    []taken
	shapes     map[string]*shape
	cells      int // sites × live score tables
	maxCells   int
	clock      int // counts decisions, for the oldest table
	live       []*shape
	retired    *shape
	copies     map[dataKey]*copies
	brought    map[string]*brought
	said       map[string]map[string]string // Snapshot.Unmet
	unmet      map[string][]string          // the same by site
	trips      map[int32][]int64
	setIndex   map[*Set]int
	setHeaders map[*Set]*header
	keyBuf     []byte

	factorIndex map[*Factor]int
	facts       map[string]*facts
	verdicts    map[string]*verdicts
	texts       int // cells of verdicts
	masks       map[string]*mask
	classes     map[string]*class
	nextID      int
	domains     map[string]*domains
	mates       map[string]*peers // by Work.Mates
	groups      map[string]*group // those that rules name
	bools       []bool
	sumBuf      []int32
}

// taken is one placement, enough to undo it.
type taken struct {
	site    int32
	shape   *shape
	devices []int32
	groups  []*group // that count it
}

// newPlanner copies what a plan changes of s and indexes the rest.
func newPlanner(s *Snapshot, queue []*Work, opts *Options) *planner {
	p := &planner{
		opts: opts, filters: append(Filters(), opts.Filters...),
		assumedKbps: opts.AssumedBandwidthKbps, maxCells: maxCells,
		siteIndex: make(map[string]int32, len(s.Candidates)),
		links:     linksByEnd(s.Links),
		shapes:    map[string]*shape{}, copies: map[dataKey]*copies{}, brought: map[string]*brought{}, offers: map[string][]*Offer{}, speeds: map[[2]string][]Fact{}, whole: map[string]*whole{}, draws: map[string][]draw{}, trips: map[int32][]int64{}, said: s.Unmet, unmet: map[string][]string{},
		setIndex: map[*Set]int{}, setHeaders: map[*Set]*header{},
		factorIndex: map[*Factor]int{}, facts: map[string]*facts{}, verdicts: map[string]*verdicts{}, masks: map[string]*mask{}, classes: map[string]*class{}, domains: map[string]*domains{}, mates: map[string]*peers{},
	}
	if p.assumedKbps <= 0 {
		p.assumedKbps = AssumedBandwidthKbps
	}
	p.sites, p.latest = make([]Site, len(s.Candidates)), make([]int32, len(s.Candidates))
	for i := range s.Candidates {
		p.sites[i].Candidate = &s.Candidates[i]
	}
	slices.SortFunc(p.sites, func(a, b Site) int { return cmp.Compare(a.ID, b.ID) })
	p.load.Candidates = int64(len(p.sites))
	for i := range p.sites {
		t := &p.sites[i]
		t.p, t.index, t.counted = p, int32(i), t.Candidate.Free != nil
		p.siteIndex[t.ID] = int32(i)
		jobs := t.RunningTasks + t.WaitingTasks
		p.load.Jobs += jobs
		p.load.JobSquares += jobs * jobs
	}
	p.layOut(queue)
	p.setGroups(s, queue)
	return p
}

// layOut gives every resource that someone asks for a dimension and fills the
// vectors. Resources nobody asks for cannot decide anything.
func (p *planner) layOut(queue []*Work) {
	names, specs, dev := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, w := range queue {
		for i := range w.Tasks {
			t := &w.Tasks[i]
			for name := range t.Request {
				names[name] = true
			}
			if t.Spec != "" {
				specs[specDim+t.Spec] = true
			}
			if t.Devices != nil {
				for name := range t.Devices.Each {
					dev[name] = true
				}
			}
		}
	}
	resources := slices.Sorted(maps.Keys(names))
	p.dims = append(resources, slices.Sorted(maps.Keys(specs))...)
	p.dimIndex = make(map[string]int, len(p.dims))
	for i, name := range p.dims {
		p.dimIndex[name] = i
	}
	p.devDims = slices.Sorted(maps.Keys(dev))
	p.devDim = make(map[string]int, len(p.devDims))
	for i, name := range p.devDims {
		p.devDim[name] = i
	}
	p.free = make([]int64, len(p.sites)*len(p.dims))
	p.total = make([]int64, len(p.free))
	p.power = make([]Power, len(p.free))
	p.devices = make([][]device, len(p.sites))
	for i := range p.sites {
		c := p.sites[i].Candidate
		base := i * len(p.dims)
		for d, name := range p.dims {
			free, total := int64(unlimited), int64(unlimited)
			if d >= len(resources) {
				if o := c.Offers[name[len(specDim):]]; o.Idle.Known {
					free, total = o.Idle.Value, max(o.Total.Value, o.Idle.Value)
				}
			} else if c.Free != nil {
				free = c.Free[name]
				total = max(c.Total[name], free)
			}
			if w, ok := c.Power[name]; ok {
				w.Per = max(w.Per, 1)
				p.power[base+d] = w
			}
			p.free[base+d], p.total[base+d] = free, total
		}
		if len(p.devDims) > 0 {
			p.devices[i] = p.layOutDevices(c)
		}
	}
}

func (p *planner) layOutDevices(c *Candidate) []device {
	out := make([]device, len(c.Devices))
	flat := make([]int64, len(c.Devices)*len(p.devDims))
	for i := range c.Devices {
		out[i].Device = &c.Devices[i]
	}
	slices.SortFunc(out, func(a, b device) int { return cmp.Compare(a.ID, b.ID) })
	for i := range out {
		out[i].free = flat[i*len(p.devDims) : (i+1)*len(p.devDims)]
		for d, name := range p.devDims {
			out[i].free[d] = out[i].Device.Free[name]
		}
	}
	return out
}

// offersOf returns the offer of a specification by site, nil where none.
func (p *planner) offersOf(spec string) []*Offer {
	if list, ok := p.offers[spec]; ok {
		return list
	}
	list := make([]*Offer, len(p.sites))
	p.offers[spec] = list
	if spec == "" {
		return list
	}
	flat := make([]Offer, 0, len(p.sites))
	for i := range p.sites {
		if o, ok := p.sites[i].Offers[spec]; ok {
			flat = append(flat, o)
			list[i] = &flat[len(flat)-1]
		}
	}
	return list
}

// speedsOf returns how fast sites are at a kind of computing.
func (p *planner) speedsOf(kind, precision string) []Fact {
	key := [2]string{kind, precision}
	if list, ok := p.speeds[key]; ok {
		return list
	}
	list := make([]Fact, len(p.sites))
	for i := range p.sites {
		for _, sp := range p.sites[i].Speeds {
			if sp.Kind == kind && sp.Precision == precision {
				list[i] = Known(sp.Milli)
			}
		}
	}
	p.speeds[key] = list
	return list
}

// unmetOf returns why sites do not meet an expression, "" where they do; nil
// for no expression. One that nobody evaluated is met nowhere.
func (p *planner) unmetOf(expression string) []string {
	if expression == "" {
		return nil
	}
	if list, ok := p.unmet[expression]; ok {
		return list
	}
	list := make([]string, len(p.sites))
	said, ok := p.said[expression]
	for id, why := range said {
		if i, known := p.siteIndex[id]; known {
			list[i] = why
		}
	}
	for i := range list {
		if !ok {
			list[i] = "was not asked whether it meets the task's expression"
		}
	}
	p.unmet[expression] = list
	return list
}

func (p *planner) point(i int32) point {
	if p.points == nil {
		p.points = make([]point, len(p.sites))
		for j := range p.sites {
			if pos := p.sites[j].Position; pos != nil {
				p.points[j] = pos.point()
			}
		}
	}
	return p.points[i]
}

// available returns what h may take of one of its dimensions at site i: what
// is free less what is held for others when h would still be running.
func (p *planner) available(i int32, h *shape, n *need) int64 {
	free := p.free[int(i)*len(p.dims)+n.dim]
	if p.holds == nil || free == unlimited || n.spec {
		return free
	}
	end := int64(math.MaxInt64)
	if h.ask.Task.RunSeconds.Known && len(p.holds[i]) > 0 {
		copyTime, _ := h.ask.Transfer(&p.sites[i])
		end = addSat(copyTime, p.sites[i].runTime(&h.ask))
	}
	for j := range p.holds[i] {
		if o := &p.holds[i][j]; o.startMS < end {
			for _, a := range o.amounts {
				if a.dim == n.dim && free > 0 {
					free -= a.amount
				}
			}
		}
	}
	return free
}

// fits tells whether one replica of h fits into what site i has left.
func (p *planner) fits(i int32, h *shape) bool {
	counted := p.sites[i].counted
	for j := range h.ask.need {
		n := &h.ask.need[j]
		free := p.available(i, h, n)
		if free < n.amount {
			return false
		}
		if n.spec && free != unlimited {
			counted = true
		}
	}
	if !counted && len(h.ask.need) > 0 {
		return false
	}
	return h.ask.devices == nil || p.devicesFit(i, h.ask.devices) >= h.ask.devices.count
}

// devicesFit counts the devices of site i that have room for one slice of n;
// it stops at the number wanted.
func (p *planner) devicesFit(i int32, n *deviceNeed) int {
	found := 0
	for j := range p.devices[i] {
		if p.devices[i][j].fits(n) {
			if found++; found == n.count {
				break
			}
		}
	}
	return found
}

func (d *device) fits(n *deviceNeed) bool {
	if n.model != "" && d.Model != n.model {
		return false
	}
	for _, e := range n.each {
		if d.free[e.dim] < e.amount {
			return false
		}
	}
	return true
}

// chooseDevices picks the devices of site i for one replica, by the rule of
// the options; ties go to the lower device ID.
func (p *planner) chooseDevices(i int32, n *deviceNeed) []int32 {
	fit := make([]int32, 0, len(p.devices[i]))
	for j := range p.devices[i] {
		if p.devices[i][j].fits(n) {
			fit = append(fit, int32(j))
		}
	}
	// Emptiness is the scarcest wanted dimension, in millionths of the whole.
	left := func(j int32) int64 {
		d := &p.devices[i][j]
		least := int64(math.MaxInt64)
		for _, e := range n.each {
			total := max(d.Total[p.devDims[e.dim]], d.Device.Free[p.devDims[e.dim]], 1)
			least = min(least, mulDiv(1_000_000, max(d.free[e.dim], 0), total))
		}
		return least
	}
	slices.SortStableFunc(fit, func(a, b int32) int {
		if p.opts.Devices == CompactDevices {
			return cmp.Compare(left(a), left(b))
		}
		return cmp.Compare(left(b), left(a))
	})
	fit = fit[:n.count]
	slices.Sort(fit)
	return fit
}

// take gives site i to one replica of h, of a work in the given groups.
func (p *planner) take(i int32, h *shape, groups []*group) []int32 {
	var devs []int32
	if h.ask.devices != nil {
		devs = p.chooseDevices(i, h.ask.devices)
	}
	p.apply(i, h, devs, 1)
	for _, g := range groups {
		g.add(i, 1)
	}
	p.journal = append(p.journal, taken{i, h, devs, groups})
	return devs
}

// rollBack undoes placements until n are left.
func (p *planner) rollBack(n int) {
	for len(p.journal) > n {
		t := p.journal[len(p.journal)-1]
		p.journal = p.journal[:len(p.journal)-1]
		p.apply(t.site, t.shape, t.devices, -1)
		for _, g := range t.groups {
			g.add(t.site, -1)
		}
	}
}

func (p *planner) apply(i int32, h *shape, devs []int32, sign int64) {
	base := int(i) * len(p.dims)
	for _, n := range h.ask.need {
		if f := &p.free[base+n.dim]; *f != unlimited {
			*f -= sign * n.amount
		}
	}
	for _, d := range devs {
		for _, e := range h.ask.devices.each {
			p.devices[i][d].free[e.dim] -= sign * e.amount
		}
	}
	s := &p.sites[i]
	before := s.Running() + s.WaitingTasks
	s.placed += sign
	after := s.Running() + s.WaitingTasks
	p.load.Jobs += sign
	p.load.JobSquares += after*after - before*before
	if h.ask.peers != nil {
		h.ask.peers.add(p, i, sign)
	}
	if sign < 0 {
		p.rises = append(p.rises, i)
	}
	p.change(i)
}

// change logs that the state of site i is another.
func (p *planner) change(i int32) {
	p.changes = append(p.changes, i)
	p.latest[i] = int32(len(p.changes))
}

// room returns an upper bound of how many replicas of h fit at site i now.
func (p *planner) room(i int32, h *shape) int64 {
	most := int64(math.MaxInt64)
	for j := range h.ask.need {
		n := &h.ask.need[j]
		if free := p.available(i, h, n); free != unlimited {
			most = min(most, max(free, 0)/n.amount)
		}
	}
	if n := h.ask.devices; n != nil {
		idle, _ := p.slices(i, n)
		most = min(most, idle/int64(n.count))
	}
	return most
}

// slices returns how many slices of n the devices of site i have free and have
// in all.
func (p *planner) slices(i int32, n *deviceNeed) (idle, total int64) {
	for j := range p.devices[i] {
		d := &p.devices[i][j]
		if n.model != "" && d.Model != n.model {
			continue
		}
		free, all := int64(math.MaxInt64), int64(math.MaxInt64)
		for _, e := range n.each {
			name := p.devDims[e.dim]
			free = min(free, max(d.free[e.dim], 0)/e.amount)
			all = min(all, max(d.Total[name], d.Device.Free[name], 0)/e.amount)
		}
		idle, total = addSat(idle, free), addSat(total, all)
	}
	return idle, total
}

// shortage says what site i lacks for one replica of h, "" if nothing.
func (p *planner) shortage(i int32, h *shape) string {
	var text []byte
	add := func(parts ...string) {
		if len(text) > 0 {
			text = append(text, "; "...)
		}
		for _, s := range parts {
			text = append(text, s...)
		}
	}
	base := int(i) * len(p.dims)
	counted := p.sites[i].Candidate.Free != nil
	for j := range h.ask.need {
		n := &h.ask.need[j]
		name, free, have := p.dims[n.dim], p.free[base+n.dim], p.available(i, h, n)
		counted = counted || n.spec && free != unlimited
		if have >= n.amount {
			continue
		}
		if n.spec {
			add("wants 1 package of ", name[len(specDim):], ", ", strconv.FormatInt(free, 10), " of ",
				strconv.FormatInt(p.total[base+n.dim], 10), " idle")
			continue
		}
		add("wants ", Amount(name, n.amount), ", ", quantity(name, free), " of ",
			quantity(name, p.total[base+n.dim]), " free")
		if have < free {
			text = append(text, ", "+quantity(name, min(free-have, free))+" of it held for "+p.heldFor(i, n.dim)...)
		}
	}
	if !counted && len(h.ask.need) > 0 {
		add("reports no free capacity")
	}
	if n := h.ask.devices; n != nil {
		if found := p.devicesFit(i, n); found < n.count {
			add("wants ", p.slice(n), " on ", strconv.Itoa(n.count), " of its devices, ",
				strconv.Itoa(found), " of ", strconv.Itoa(len(p.devices[i])), " have that free")
		}
	}
	return string(text)
}

// slice writes what n wants on each device.
func (p *planner) slice(n *deviceNeed) string {
	var text string
	for k, e := range n.each {
		if k > 0 {
			text += " and "
		}
		text += Amount(p.devDims[e.dim], e.amount)
	}
	if n.model != "" {
		text += " of model " + n.model
	}
	return text
}

// heldFor names the works that hold a dimension at site i.
func (p *planner) heldFor(i int32, dim int) string {
	var works []string
	for j := range p.holds[i] {
		for _, a := range p.holds[i][j].amounts {
			if a.dim == dim && !slices.Contains(works, p.holds[i][j].Work) {
				works = append(works, p.holds[i][j].Work)
			}
		}
	}
	return list(works)
}
