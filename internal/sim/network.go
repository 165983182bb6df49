package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// network places work in centers.
type network struct {
	fleet  *Fleet
	jobs   []Job
	policy *Policy
	snap   place.Snapshot
	index  map[string]int32
	status []place.Status
	pins   map[string][]string // centers that have one of the models, by models
	own    map[int32]*place.Set
	rules  bool    // a work has placement rules, so that groups are counted
	coming []carry // data under way
	there  []int64 // when
	now    int64
	// decided is told of each decision with its table; nil: nobody is.
	decided func(job int32, d *place.Decision)
}

// The resource that counts cards of centers, in thousandths, and the
// specifications under which centers sell cards and cores.
const (
	cardName = "card"
	cardSpec = "card"
	coreSpec = "core"
)

// tableRows are listed of a decision.
const tableRows = 16

func newNetwork(f *Fleet, w *Workload, policy *Policy) (*network, error) {
	n := &network{fleet: f, jobs: w.Jobs, policy: policy, index: map[string]int32{}, pins: map[string][]string{}, own: map[int32]*place.Set{}}
	n.snap.Links, n.snap.Unmet, n.snap.Groups = f.Links, f.Unmet, map[string]map[string]int{}
	for i := range f.Centers {
		c := &f.Centers[i]
		n.index[c.ID] = int32(i)
		k := c.candidate()
		n.snap.Candidates = append(n.snap.Candidates, k)
		n.status = append(n.status, k.Status)
	}
	for i := range n.jobs {
		if w := n.jobs[i].Work; w != nil {
			for k := range w.Tasks {
				n.rules = n.rules || len(w.Tasks[k].Rules) > 0
			}
		}
	}
	if policy.Set == nil {
		return nil, fault.New(fault.Invalid, "a simulation of centers needs a set of policies")
	}
	return n, policy.Set.Check()
}

// candidate is the center as the engine takes it when nothing runs there. What
// changes during a run is a copy.
func (c *Center) candidate() place.Candidate {
	if c.Candidate != nil {
		k := *c.Candidate
		k.Free, k.Data, k.RunningTasks, k.WaitingTasks = maps.Clone(k.Total), maps.Clone(k.Data), 0, 0
		return k
	}
	total := place.Amounts{core.CPU: c.CPU, core.Memory: c.Memory << 20, cardName: c.Cards * pack.Whole}
	maps.Copy(total, c.Resources)
	k := place.Candidate{ID: c.ID, Region: c.Region, Status: place.Available, Position: c.Position, SecurityGrade: c.Grade, Attributes: c.Labels, Total: total, Free: maps.Clone(total),
		AnyImage: true, PUE: c.PUE, Carbon: c.Carbon, Network: c.Network, Offers: maps.Clone(c.Offers), Data: maps.Clone(c.Data)}
	if k.Offers == nil {
		k.Offers = map[string]place.Offer{}
	}
	if c.Cards > 0 {
		k.Offers[cardSpec] = place.Offer{PriceFenPerHour: c.Price}
		if c.Busy > 0 {
			k.Power = map[string]place.Power{cardName: {Per: pack.Whole, Static: c.Idle, Busy: c.Busy}}
		}
	}
	if k.Offers[coreSpec] = (place.Offer{PriceFenPerHour: c.CorePrice}); c.CoreBusy > 0 || c.Busy > 0 {
		if k.Power == nil {
			k.Power = map[string]place.Power{}
		}
		// Memory draws nothing of its own here, so that energy is known.
		k.Power[core.CPU], k.Power[core.Memory] = place.Power{Per: 1000, Busy: c.CoreBusy}, place.Power{Per: 1 << 30}
	}
	for kind := range c.Speeds {
		if v := c.Speeds[kind]; v > 0 {
			k.Speeds = append(k.Speeds, place.Speed{Kind: kind, Milli: v})
		}
	}
	slices.SortFunc(k.Speeds, func(a, b place.Speed) int { return strings.Compare(a.Kind, b.Kind) })
	k.Speeds = append(k.Speeds, place.Speed{Milli: c.speed("", false)})
	return k
}

// SpeedOf is how fast a recorded center runs a kind of work, in thousandths of
// the reference's; 1000 where it does not say.
func SpeedOf(c *place.Candidate, kind string) int64 {
	for _, s := range c.Speeds {
		if s.Kind == kind && s.Precision == "" {
			return s.Milli
		}
	}
	return 1000
}

// work is a job as the engine takes it.
func (n *network) work(i int32) (place.Work, error) {
	j := &n.jobs[i]
	if j.Work != nil {
		w := *j.Work
		w.ID = j.ID
		if n.rules {
			n.neighbors(&w, j.Work.ID)
		}
		if len(j.Weights) > 0 {
			set, err := n.ownSet(i)
			if err != nil {
				return w, err
			}
			w.Set = set
		}
		return w, nil
	}
	t := place.Task{ID: "t", Replicas: j.Replicas, Spec: j.Spec, Kind: j.Kind, Request: n.request(j), Data: j.Data}
	if j.Run != Forever {
		t.RunSeconds = place.Known(max(j.Run/Second, 1))
	}
	switch {
	case t.Spec != "":
	case j.Ask.Cards > 0:
		t.Spec = cardSpec
	default:
		t.Spec = coreSpec
	}
	if len(j.Ask.Models) > 0 || j.Kind != "" {
		t.Pinned = n.usable(j)
	}
	return place.Work{ID: j.ID, Tenant: j.Tenant, Priority: j.Priority, Arrival: j.Arrival, Tasks: []place.Task{t}}, nil
}

// ownSet is a job's own set of policies.
func (n *network) ownSet(i int32) (*place.Set, error) {
	if s := n.own[i]; s != nil {
		return s, nil
	}
	j := &n.jobs[i]
	list := make([]place.Weight, 0, len(j.Weights))
	for _, p := range place.Policies() { // in the engine's order
		list = append(list, place.Weight{Policy: p.ID, Weight: int64(j.Weights[p.ID])})
	}
	for name := range j.Weights {
		if _, ok := place.PolicyByID(name); !ok {
			return nil, fault.New(fault.Invalid, "job %s: there is no policy %q", j.ID, name)
		}
	}
	s, err := place.NewSet("job", place.Weighted, list)
	if err != nil {
		return nil, fmt.Errorf("weights of job %s: %w", j.ID, err)
	}
	n.own[i] = s
	return s, nil
}

// neighbors says where the replicas are that rules of a work count.
func (n *network) neighbors(w *place.Work, job string) {
	w.Tasks = slices.Clone(w.Tasks)
	for k := range w.Tasks {
		t := &w.Tasks[k]
		t.Rules = slices.Clone(t.Rules)
		for r := range t.Rules {
			if t.Rules[r].Of == "" {
				t.Rules[r].Of = job
			}
		}
	}
	w.Groups = append(slices.Clip(w.Groups), job)
}

func (n *network) request(j *Job) place.Amounts {
	out := place.Amounts{}
	for name, v := range j.Resources {
		out[name] = v
	}
	for _, r := range []struct {
		name string
		n    int64
	}{{core.CPU, j.Ask.CPU}, {core.Memory, j.Ask.Memory << 20}, {cardName, j.Ask.Demand()}} {
		if r.n > 0 {
			out[r.name] += r.n
		}
	}
	return out
}

// usable are the centers with cards of one of its models, on which its kind
// runs.
func (n *network) usable(j *Job) []string {
	key := j.Kind + "\x00" + fmt.Sprint(j.Ask.Models)
	if ids, ok := n.pins[key]; ok {
		return ids
	}
	ids := []string{}
	for i := range n.fleet.Centers {
		c := &n.fleet.Centers[i]
		if (len(j.Ask.Models) == 0 || slices.Contains(j.Ask.Models, c.Model)) && c.speed(j.Kind, false) > 0 {
			ids = append(ids, c.ID)
		}
	}
	n.pins[key] = ids
	return ids
}

func (n *network) place(i int32, least, most int) (seat, bool, error) {
	n.arrived()
	j := &n.jobs[i]
	w, err := n.work(i)
	if err != nil {
		return seat{}, false, err
	}
	if w.Gang = least == most; most < j.Replicas {
		w.Tasks = slices.Clone(w.Tasks)
		w.Tasks[0].Replicas, w.Tasks[0].Indices = most, nil
	}
	if n.policy.Judge != nil {
		if err := n.policy.Judge(n.now, &n.snap, j, &w); err != nil {
			return seat{}, false, fmt.Errorf("job %s: %w", j.ID, err)
		}
	}
	if n.policy.Choose != nil {
		w.Set = n.policy.Choose(j)
	}
	res, err := place.Plan(&n.snap, []place.Work{w}, n.policy.Set, place.Options{NoTables: n.decided == nil, TableRows: tableRows})
	if err != nil {
		return seat{}, false, fmt.Errorf("job %s: %w", j.ID, err)
	}
	n.tell(i, res)
	if len(res.Placements) < least {
		return seat{}, false, nil
	}
	s := seat{speed: math.MaxInt64, members: len(res.Placements)}
	for _, p := range res.Placements {
		at, task := n.index[p.Candidate], int32(slices.IndexFunc(w.Tasks, func(t place.Task) bool { return t.ID == p.Task }))
		if k := slices.IndexFunc(s.spots, func(x spot) bool { return x.at == at && x.task == task }); k >= 0 {
			s.spots[k].n++
			continue
		}
		s.spots = append(s.spots, spot{at: at, n: 1, task: task})
		if j.Work != nil {
			s.speed = min(s.speed, SpeedOf(&n.snap.Candidates[at], w.Tasks[task].Kind))
		} else {
			s.speed = min(s.speed, n.fleet.Centers[at].speed(j.Kind, false))
		}
	}
	if err := n.carry(&s, w.Tasks); err != nil {
		return seat{}, false, err
	}
	n.take(i, s, 1)
	return s, true, nil
}

// tell tells of the first decision of a plan, and of why there is none.
func (n *network) tell(i int32, res *place.Result) {
	switch {
	case n.decided == nil:
	case len(res.Placements) > 0 && res.Placements[0].Decision != nil:
		n.decided(i, res.Placements[0].Decision)
	case len(res.Unplaced) > 0 && res.Unplaced[0].Decision != nil:
		n.decided(i, res.Unplaced[0].Decision)
	}
}

// carry finds what a seat's tasks must have brought, and until when.
func (n *network) carry(s *seat, tasks []place.Task) error {
	type one struct {
		at      int32
		dataset string
	}
	seen := map[one]bool{}
	for _, x := range s.spots {
		here := int64(0)
		for _, d := range tasks[x.task].Data {
			if seen[one{x.at, d.Dataset}] {
				continue
			}
			seen[one{x.at, d.Dataset}] = true
			b, err := place.Bring(&n.snap, d, n.fleet.Centers[x.at].ID)
			if err != nil {
				return err
			}
			if b.Bytes == 0 {
				continue
			}
			here += b.Millis * (Second / 1000)
			s.bring = append(s.bring, carry{at: x.at, dataset: d.Dataset, bytes: b.Bytes, fee: b.FeeFen})
		}
		s.delay = max(s.delay, min(here, MaxTime))
	}
	return nil
}

// started notes when the data of a job that starts now is there.
func (n *network) started(s *seat) {
	for _, c := range s.bring {
		n.coming, n.there = append(n.coming, c), append(n.there, n.now+s.delay)
	}
}

// arrived has the centers hold what came.
func (n *network) arrived() {
	k := 0
	for i, c := range n.coming {
		if n.there[i] > n.now {
			n.coming[k], n.there[k] = c, n.there[i]
			k++
			continue
		}
		to := &n.snap.Candidates[c.at]
		if to.Data == nil {
			to.Data = place.Amounts{}
		}
		to.Data[c.dataset] += c.bytes
	}
	n.coming, n.there = n.coming[:k], n.there[:k]
}

func (n *network) take(i int32, s seat, sign int64) {
	j := &n.jobs[i]
	var ask place.Amounts
	if j.Work == nil {
		ask = n.request(j)
	}
	for _, x := range s.spots {
		c := &n.snap.Candidates[x.at]
		c.RunningTasks += sign * int64(x.n)
		if j.Work != nil {
			ask = j.Work.Tasks[x.task].Request
		}
		for name, v := range ask {
			c.Free[name] -= sign * v * int64(x.n)
		}
		if !n.rules || j.Work == nil {
			continue
		}
		for _, g := range append(slices.Clip(j.Work.Groups), j.Work.ID) {
			if n.snap.Groups[g] == nil {
				n.snap.Groups[g] = map[string]int{}
			}
			n.snap.Groups[g][c.ID] += int(sign) * int(x.n)
		}
	}
}

func (n *network) release(i int32, s seat) { n.take(i, s, -1) }

func (n *network) shut(centers []int32, yes bool) {
	for _, c := range centers {
		n.snap.Candidates[c].Status = n.status[c]
		if yes {
			n.snap.Candidates[c].Status = place.Draining
		}
	}
}

// able looks at what is pinned and sold; what else filters say is found out
// when the job is tried.
func (n *network) able(i int32) []string {
	j := &n.jobs[i]
	if j.Work != nil {
		return n.allowed(j.Work)
	}
	if len(j.Ask.Models) == 0 && j.Kind == "" && j.Spec == "" {
		return nil
	}
	out := []string{}
	for _, id := range n.usable(j) {
		if _, sold := n.snap.Candidates[n.index[id]].Offers[j.Spec]; j.Spec == "" || sold {
			out = append(out, id)
		}
	}
	return out
}

// allowed are the centers that may run all tasks of a recorded work.
func (n *network) allowed(w *place.Work) []string {
	out := []string{}
	for i := range n.snap.Candidates {
		c := &n.snap.Candidates[i]
		if n.status[i] == place.Available && !slices.ContainsFunc(w.Tasks, func(t place.Task) bool { return !n.may(c, &t) }) {
			out = append(out, c.ID)
		}
	}
	return out
}

// may reports whether a center may run a task, whatever is free there.
func (n *network) may(c *place.Candidate, t *place.Task) bool {
	o, sold := c.Offers[t.Spec]
	return sold && (t.Pinned == nil || slices.Contains(t.Pinned, c.ID)) && (t.Regions == nil || slices.Contains(t.Regions, c.Region)) && c.SecurityGrade >= t.MinGrade &&
		(!t.MaxPrice.Known || o.PriceFenPerHour.Known && o.PriceFenPerHour.Value <= t.MaxPrice.Value)
}

func (n *network) fragmentation() func() float64 { return nil }

// check looks at single replicas.
func (n *network) check(i int32) string {
	j := &n.jobs[i]
	if j.Work != nil {
		return n.fits(j)
	}
	ask, names := n.request(j), n.usable(j)
	room := int64(0)
	for _, id := range names {
		c := &n.snap.Candidates[n.index[id]]
		if _, sold := c.Offers[j.Spec]; j.Spec != "" && !sold {
			continue
		}
		most := int64(math.MaxInt64)
		for name, v := range ask {
			most = min(most, c.Total[name]/v)
		}
		if room += min(most, MaxReplicas); room >= int64(j.least()) {
			return ""
		}
	}
	return fmt.Sprintf("all centers together have room for %d of its %d replicas when they are empty", room, j.least())
}

// fits is check for a recorded work, task by task.
func (n *network) fits(j *Job) string {
	for k := range j.Work.Tasks {
		t, room, need := &j.Work.Tasks[k], int64(0), int64(j.Work.Tasks[k].Replicas)
		if j.Least > 0 {
			need = int64(j.Least)
		}
		for i := range n.snap.Candidates {
			c := &n.snap.Candidates[i]
			if n.status[i] != place.Available || !n.may(c, t) {
				continue
			}
			most := int64(MaxReplicas)
			for name, v := range t.Request {
				if v > 0 {
					most = min(most, c.Total[name]/v)
				}
			}
			room += most
		}
		if room < need {
			return fmt.Sprintf("the centers that may run task %s have room for %d of its %d replicas when they are empty", t.ID, room, need)
		}
	}
	return ""
}
