package pool

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// meter is what of a device's energy was counted.
type meter struct {
	at       time.Time
	counted  int64     // of the counter, in its units
	answered time.Time // by the maker's library
	source   string
	busy     map[*task]time.Duration
}

// measure counts what devices used since it was last counted, and whose it was.
// The caller has the lock.
func (n *Node) measure(now time.Time) {
	for _, d := range n.devices {
		n.measureOne(d, now)
	}
}

func (n *Node) measureOne(d *device, now time.Time) {
	c, answered := n.makers.of(d.Bus)
	m, source, counter, most := &d.meter, "", int64(0), int64(0)
	w, told := n.cfg.Power[d.ID]
	switch {
	case c != nil && c.Energy != nil:
		source, counter = EnergyCounter, *c.Energy
	case c != nil && c.Power != nil:
		source = EnergyPower
	case told:
		source = EnergyModel
	case d.Type == "cpu":
		if v, end, ok := powercap(n.cfg.Powercap); ok {
			source, counter, most = EnergyPowercap, v, end
		}
	}
	first := m.source != source || m.at.IsZero()
	if !first && source == EnergyCounter && answered.Equal(m.answered) {
		return // the card has not been asked since
	}
	span, used := now.Sub(m.at), int64(0)
	var tasks []*task
	var busy []time.Duration
	sum, was := time.Duration(0), m.busy
	m.busy = map[*task]time.Duration{}
	for _, t := range n.sorted() {
		if t.device == d {
			b, _ := d.turns.usage(&t.account)
			tasks, busy, m.busy[t] = append(tasks, t), append(busy, max(b-was[t], 0)), b
			sum += max(b-was[t], 0)
		}
	}
	if !first {
		switch source {
		case EnergyCounter:
			used = max(counter-m.counted, 0) // a card that was reset begins again
		case EnergyPower:
			used = *c.Power * span.Microseconds() / 1e6
		case EnergyModel:
			used = w.drawn(span, sum)
		case EnergyPowercap:
			if went, err := overflown(m.counted, counter, most); err == nil {
				used = went / 1000
			}
		}
	}
	m.at, m.counted, m.answered, m.source, d.EnergySource = now, counter, answered, source, source
	switch {
	case source == "":
		d.Power = 0
	case c != nil && c.Power != nil:
		d.Power = *c.Power
	case !first && span > 0:
		d.Power = int64(float64(used) / span.Seconds())
	}
	if !n.counts(d) {
		return
	}
	d.Energy += used
	for i, e := range byTime(used, span, busy) {
		tasks[i].Energy += e
	}
}

// counts reports whether what a device's card uses is counted as its: of a card that
// two interfaces show as that which has tasks, or else as the first. The caller has
// the lock.
func (n *Node) counts(d *device) bool {
	if n.twin(d) != nil {
		return false
	}
	i := slices.IndexFunc(n.devices, func(x *device) bool { return x == d || d.Bus != "" && x.Bus == d.Bus && x.API != d.API && !x.Gone })
	_, _, tasks := n.allotted(func(t *task) bool { return t.device == d })
	return n.devices[i] == d || tasks > 0
}

// counted says how much of its device's time a task has used whose energy is counted, as
// what it used elsewhere or before the node was replaced. The caller has the lock.
func (t *task) counted(busy time.Duration) {
	m := &t.device.meter
	if m.busy == nil {
		m.busy = map[*task]time.Duration{}
	}
	m.busy[t] = busy
}

// settle adds what a task that ends used since it was last counted, by what its
// device draws. The caller has the lock.
func (t *task) settle(busy time.Duration) {
	d := t.device
	if since := busy - d.meter.busy[t]; since > 0 && d.EnergySource != "" {
		t.Energy += int64(float64(d.Power) * since.Seconds())
		delete(d.meter.busy, t)
	}
}

// powercap reads what the machine's processors used, in microjoules, and where
// their counters begin again; false where the kernel does not tell, or this user may
// not read it.
func powercap(root string) (used, most int64, ok bool) {
	if root == "" {
		root = "/sys/class/powercap"
	}
	// A package of processors is intel-rapl:N, on machines of AMD, too; what is
	// within it has a second number.
	packages, _ := filepath.Glob(filepath.Join(root, "intel-rapl:*")) // the pattern is right
	for _, p := range packages {
		if strings.Count(filepath.Base(p), ":") != 1 {
			continue
		}
		v, err := readNumber(filepath.Join(p, "energy_uj"))
		end, err2 := readNumber(filepath.Join(p, "max_energy_range_uj"))
		if err != nil || err2 != nil {
			return 0, 0, false
		}
		used, most, ok = used+v, most+end, true
	}
	return used, most, ok
}

func readNumber(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}
