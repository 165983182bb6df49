package place

import (
	"slices"
	"strconv"

	"yunhe.dev/yunhe/internal/fault"
)

// Options change how a plan is made; the zero value is ready to use.
type Options struct {
	// NoTables leaves out the Decisions. The plan is the same, the reasons of
	// unplaced replicas too.
	NoTables bool
	// TableRows is the most rows a Decision lists, 0 for all.
	TableRows int
	// Changes has Decisions say how their tables differ from earlier ones, where
	// that is less than the whole table.
	Changes bool
	// Rows has the memory of the rows of Decisions; nil: each has its own.
	Rows *Rows
	// Order of the queue; nil is ByPriority.
	Order Order
	// Filters come after the built-in ones.
	Filters []Filter
	// Devices chooses among the devices of the chosen candidate.
	Devices DeviceRule
	// AssumedBandwidthKbps stands in for paths nobody measured; 0 means the
	// constant of that name.
	AssumedBandwidthKbps int64
	// Hold is asked when a work was not placed in full. What it returns is
	// kept free of the works that come after, except of tasks that will have
	// ended when it starts: with it a caller backfills without starving wide
	// work. nil holds nothing.
	Hold func(w *Work, sites []*Site) []Hold
	// Placed, if set, is told of each work when it was tried, before Hold is
	// asked: what was placed of it and what was not.
	Placed func(w *Work, placed []Placement, unplaced []Unplaced)
	// Noun is what users call a candidate; empty means "center".
	Noun string
}

// DeviceRule chooses devices inside a candidate.
type DeviceRule uint8

// The rules.
const (
	BalancedDevices DeviceRule = iota // the emptiest first
	CompactDevices                    // the fullest that fits first
)

// Hold is room kept for work that cannot start yet.
type Hold struct {
	Work      string  `json:"work"`
	Candidate string  `json:"candidate"`
	Amounts   Amounts `json:"amounts"`
	StartsIn  int64   `json:"starts_in_seconds"` // when the room is needed; 0: now
}

// Result is a plan. Works appear in the order they were considered, their
// replicas by task and index (tasks of a gang as they were placed).
type Result struct {
	Placements []Placement `json:"placements"`
	Unplaced   []Unplaced  `json:"unplaced"`
	Holds      []Hold      `json:"holds,omitempty"`
}

// Placement gives one replica its place.
type Placement struct {
	Work      string    `json:"work"`
	Task      string    `json:"task"`
	Replica   int       `json:"replica"`
	Candidate string    `json:"candidate"`
	Devices   []string  `json:"devices,omitempty"`  // IDs of the devices it gets a slice of
	Decision  *Decision `json:"decision,omitempty"` // shared, read-only; nil with NoTables
}

// Unplaced is a replica that stays in the queue.
type Unplaced struct {
	Work     string    `json:"work"`
	Task     string    `json:"task"`
	Replica  int       `json:"replica"`
	Reason   string    `json:"reason"` // for the job's owner
	Decision *Decision `json:"decision,omitempty"`
}

// Plan runs one scheduling cycle: it goes through the queue and places each
// work on a working copy of the snapshot, so that the next one sees what is
// left. A work that does not fit stays and does not block those behind it. It
// reads its arguments and changes none of them, so that plans can share them
// at the same time.
//
// It returns fault.Invalid, and no plan, if the snapshot, a work or a policy
// set breaks its contract.
func Plan(s *Snapshot, queue []Work, set *Set, opts Options) (*Result, error) {
	works, err := checked(s, queue, set)
	if err != nil {
		return nil, err
	}
	return newPlanner(s, works, &opts).run(works, set)
}

// run places works, which are in canonical order.
func (p *planner) run(works []*Work, set *Set) (*Result, error) {
	jobs := make([]*job, len(works))
	for i, w := range works {
		jobs[i] = p.newJob(w, set)
	}
	order := p.opts.Order
	if order == nil {
		order = ByPriority
	}
	turn, done := order(works), make([]bool, len(works))
	res := &Result{}
	var got Amounts
	for {
		i, ok := turn(got)
		if !ok {
			p.retire(nil)
			return res, nil
		}
		if i < 0 || i >= len(works) || done[i] {
			return nil, fault.New(fault.Invalid, "order names work %d of %d out of range or twice", i, len(works))
		}
		done[i] = true
		mark := len(p.journal)
		p.placeJob(jobs[i], res)
		if p.opts.Order != nil {
			got = p.amounts(mark)
		}
		p.journal = p.journal[:0] // what is placed now stays
	}
}

// Score explains how set scores every candidate for one replica of a task of
// w, placing nothing. It returns fault.Invalid as Plan does and if there is no
// such task.
func Score(s *Snapshot, w *Work, task int, set *Set, opts Options) (*Decision, error) {
	if task < 0 || task >= len(w.Tasks) {
		return nil, fault.New(fault.Invalid, "work %s has %d tasks, task %d wanted", w.ID, len(w.Tasks), task)
	}
	works, err := checked(s, []Work{*w}, set)
	if err != nil {
		return nil, err
	}
	opts.NoTables = false
	p := newPlanner(s, works, &opts)
	t := &p.newJob(works[0], set).parts[task]
	return p.decision(t, p.choose(t)), nil
}

// checked checks everything and returns the works in canonical order.
func checked(s *Snapshot, queue []Work, set *Set) ([]*Work, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := set.Check(); err != nil {
		return nil, err
	}
	works := make([]*Work, len(queue))
	ids := make(map[string]bool, len(queue))
	sets := map[*Set]bool{nil: true, set: true}
	for i := range queue {
		w := &queue[i]
		works[i] = w
		if w.ID == "" || ids[w.ID] {
			return nil, fault.New(fault.Invalid, "work id %q is empty or given twice", w.ID)
		}
		ids[w.ID] = true
		if !sets[w.Set] {
			if err := w.Set.Check(); err != nil {
				return nil, err
			}
			sets[w.Set] = true
		}
		if err := w.check(); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(works, byPriority)
	return works, nil
}

// job is a work during a plan.
type job struct {
	*Work
	parts  []part
	groups []*group
}

// part is one of its tasks.
type part struct {
	task  *Task
	shape *shape
	rules []*ruling
}

func (p *planner) newJob(w *Work, set *Set) *job {
	if w.Set != nil {
		set = w.Set
	}
	var mates *peers
	if w.Distributed && set.readsPeers() {
		if mates = p.mates[w.Mates]; mates == nil {
			mates = &peers{}
			for _, id := range sortedKeys(nil, w.Placed) {
				if i, ok := p.siteIndex[id]; ok && w.Placed[id] > 0 {
					mates.add(p, i, int64(w.Placed[id]))
				}
			}
			if w.Mates != "" {
				p.mates[w.Mates] = mates
			}
		}
	}
	j := &job{Work: w, parts: make([]part, len(w.Tasks))}
	if p.groups != nil {
		j.groups = p.groupsOf(w)
	}
	for i := range w.Tasks {
		h := p.shapeOf(w, &w.Tasks[i], set, mates)
		h.uses++
		j.parts[i] = part{&w.Tasks[i], h, nil}
		if len(w.Tasks[i].Rules) > 0 {
			j.parts[i].rules = p.rulingsOf(w, &w.Tasks[i])
		}
	}
	return j
}

// placeJob places what it can of j and notes the rest.
func (p *planner) placeJob(j *job, res *Result) {
	done, left := len(res.Placements), len(res.Unplaced)
	if j.Gang {
		p.placeGang(j, res)
	} else {
		for i := range j.parts {
			p.placePart(j, &j.parts[i], res)
		}
	}
	if p.opts.Placed != nil {
		p.opts.Placed(j.Work, res.Placements[done:], res.Unplaced[left:])
	}
	if p.opts.Hold != nil && len(res.Unplaced) > left {
		p.hold(j.Work, res)
	}
	for i := range j.parts {
		h := j.parts[i].shape
		if h.uses--; h.uses == 0 {
			p.retire(h)
		}
	}
}

// placePart places independent replicas until one does not fit: the others
// are the same and would not either.
func (p *planner) placePart(j *job, t *part, res *Result) {
	indices := t.task.indices()
	for n, replica := range indices {
		best := p.choose(t)
		d := p.decision(t, best)
		if best >= 0 {
			res.Placements = append(res.Placements, p.settleAt(j, t, replica, best, d))
			continue
		}
		why := p.why(t, d)
		for _, r := range indices[n:] {
			res.Unplaced = append(res.Unplaced, Unplaced{j.ID, t.task.ID, r, why, d})
		}
		return
	}
}

// why says why t has no place.
func (p *planner) why(t *part, d *Decision) string {
	switch {
	case d != nil:
		return d.Reason
	case t.shape.nfit > 0:
		return p.ruledOut(t)
	}
	return p.nearMiss(t.shape)
}

// settleAt takes the site for one replica.
func (p *planner) settleAt(j *job, t *part, replica int, best int32, d *Decision) Placement {
	out := Placement{Work: j.ID, Task: t.task.ID, Replica: replica, Candidate: p.sites[best].ID, Decision: d}
	for _, k := range p.take(best, t.shape, j.groups) {
		out.Devices = append(out.Devices, p.devices[best][k].ID)
	}
	return out
}

// placeGang places all replicas of all tasks or none. Tasks with the fewest
// candidates go first. If one finds no room after others took theirs, the gang
// is rolled back and tried again with that task first; each task gets one such
// chance, so a gang of k tasks costs k+1 tries at most.
func (p *planner) placeGang(j *job, res *Result) {
	total := 0
	order := make([]int, len(j.parts))
	for i := range j.parts {
		order[i] = i
		total += j.parts[i].task.count()
		p.refresh(j.parts[i].shape)
	}
	slices.SortStableFunc(order, func(a, b int) int { return j.parts[a].shape.nfit - j.parts[b].shape.nfit })
	for i := range j.parts {
		if short, ok := p.roomFor(&j.parts[i]); !ok {
			t := &j.parts[i]
			why := p.gangShort(t, total, short)
			p.leaveGang(j, res, i, p.decision(t, p.choose(t)), why)
			return
		}
	}
	mark, placed := len(p.journal), len(res.Placements)
	moved := make([]bool, len(j.parts))
	for {
		failed, d := p.tryGang(j, order, res)
		if failed < 0 {
			return
		}
		why := p.why(&j.parts[failed], d)
		done := len(res.Placements) - placed
		p.rollBack(mark)
		res.Placements = res.Placements[:placed]
		if at := slices.Index(order, failed); at > 0 && !moved[failed] {
			moved[failed] = true
			order = slices.Insert(slices.Delete(order, at, at+1), 0, failed)
			continue
		}
		text := "all or none of " + strconv.Itoa(total) + " replicas: with " + strconv.Itoa(done) +
			" placed, task " + j.parts[failed].task.ID + " finds no room; " + why
		p.leaveGang(j, res, failed, d, text)
		return
	}
}

// tryGang places the tasks in order; it returns the one that found no room, -1
// if all did.
func (p *planner) tryGang(j *job, order []int, res *Result) (failed int, d *Decision) {
	for _, i := range order {
		t := &j.parts[i]
		for _, replica := range t.task.indices() {
			best := p.choose(t)
			d := p.decision(t, best)
			if best < 0 {
				return i, d
			}
			res.Placements = append(res.Placements, p.settleAt(j, t, replica, best, d))
		}
	}
	return -1, nil
}

// roomFor tells whether there can be room for all replicas of t, whatever else
// the gang takes. It is exact for a gang of one task without devices.
func (p *planner) roomFor(t *part) (room int64, ok bool) {
	want := int64(t.task.count())
	for i, fits := range t.shape.fits {
		if room >= want {
			break
		}
		if fits {
			room = addSat(room, p.room(int32(i), t.shape))
		}
	}
	return room, room >= want
}

func (p *planner) gangShort(t *part, total int, room int64) string {
	text := "all or none of " + strconv.Itoa(total) + " replicas: there is room for " + strconv.FormatInt(room, 10) +
		" of the " + strconv.Itoa(t.task.count()) + " of task " + t.task.ID
	if room == 0 {
		text += "; " + p.nearMiss(t.shape)
	}
	return text
}

// leaveGang notes that no replica of j was placed because of the part failed,
// whose decision is d.
func (p *planner) leaveGang(j *job, res *Result, failed int, d *Decision, why string) {
	for i := range j.parts {
		t := &j.parts[i]
		var own *Decision
		if !p.opts.NoTables {
			own = d
			if i != failed {
				own = p.decision(t, p.choose(t))
			}
			own = own.withdrawn(why)
		}
		for _, replica := range t.task.indices() {
			res.Unplaced = append(res.Unplaced, Unplaced{j.ID, t.task.ID, replica, why, own})
		}
	}
}

// hold asks the caller what to keep for w and withholds it.
func (p *planner) hold(w *Work, res *Result) {
	sites := make([]*Site, len(p.sites))
	for i := range p.sites {
		sites[i] = &p.sites[i]
	}
	for _, o := range p.opts.Hold(w, sites) {
		if o.Work == "" {
			o.Work = w.ID
		}
		i, ok := p.siteIndex[o.Candidate]
		if !ok {
			continue
		}
		if p.holds == nil {
			p.holds = make([][]hold, len(p.sites))
		}
		h := hold{Hold: &o, startMS: mulDiv(max(o.StartsIn, 0), 1000, 1)}
		for _, name := range sortedKeys(nil, o.Amounts) {
			if d, ok := p.dimIndex[name]; ok && o.Amounts[name] > 0 {
				h.amounts = append(h.amounts, need{dim: d, amount: min(o.Amounts[name], maxAmount)})
			}
		}
		p.holds[i] = append(p.holds[i], h)
		p.change(i)
		res.Holds = append(res.Holds, o)
	}
}

// amounts sums what was placed since mark.
func (p *planner) amounts(mark int) Amounts {
	out := Amounts{}
	for _, t := range p.journal[mark:] {
		for name, n := range t.shape.ask.Task.Request {
			out[name] += n
		}
	}
	return out
}
