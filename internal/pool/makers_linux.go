package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/cards"
)

// makers are the libraries of makers, which say what their cards do. A device
// that OpenCL or CUDA shows is the card that is at the same place on the bus.
type makers struct {
	drivers []*maker

	mu    sync.Mutex // guards what follows
	found map[string][]cards.Card
	at    map[string]time.Time // when
}

type maker struct {
	*cards.Driver

	wake chan struct{} // devices came or went
}

const (
	cardsEvery = 5 * time.Second // each library is asked
	// cardsWithin is how long it may take: the first answer of one whose driver was
	// asleep takes seconds.
	cardsWithin = 10 * time.Second
	cardsLate   = 30 * time.Second // one that failed is asked again, and later from then on
	cardsLatest = 10 * time.Minute
)

func newMakers(program, folder, dir string) *makers {
	m := &makers{found: map[string][]cards.Card{}, at: map[string]time.Time{}}
	for _, name := range cards.Names {
		m.drivers = append(m.drivers, &maker{cards.NewDriver(name, program, folder, workerEnv(dir, nodes)), make(chan struct{}, 1)})
	}
	return m
}

// again has all libraries asked now.
func (m *makers) again() {
	for _, d := range m.drivers {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// hold ends the libraries' processes until it is released.
func (m *makers) hold() (release func()) {
	ctx, cancel := context.WithTimeout(context.Background(), cardsWithin)
	defer cancel()
	var all []func()
	for _, d := range m.drivers {
		all = append(all, d.Hold(ctx))
	}
	return func() {
		for _, release := range all {
			release()
		}
	}
}

// ask asks a library again and again until ctx is done.
func (n *Node) ask(ctx context.Context, d *maker) {
	defer func() { d.Hold(context.WithoutCancel(ctx))() }()
	late, said := cardsLate, ""
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, cardsWithin)
		found, err := d.Cards(within)
		cancel()
		wait, trouble := cardsEvery, ""
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, cards.ErrAbsent):
			wait = -1 // until devices come or go
		case err != nil:
			trouble, wait = err.Error(), late
			late = min(2*late, cardsLatest)
		default:
			late = cardsLate
		}
		if trouble != "" && trouble != said {
			n.log.Warn("the cards of a maker are not known", "driver", d.Name, "error", err)
		}
		said = trouble
		n.found(d.Name, found)
		n.pause(ctx, d, wait)
	}
}

// pause waits so long, below 0 without an end, or until something comes or goes.
func (n *Node) pause(ctx context.Context, d *maker, wait time.Duration) {
	var due <-chan time.Time
	if wait >= 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
	case <-d.wake:
	case <-due:
	}
}

// found keeps what a library said, nil: nothing.
func (n *Node) found(driver string, found []cards.Card) {
	m := n.makers
	m.mu.Lock()
	before := m.found[driver]
	m.found[driver], m.at[driver] = found, time.Now()
	m.mu.Unlock()
	for _, c := range found {
		was := slices.IndexFunc(before, func(x cards.Card) bool { return x.Index == c.Index })
		switch {
		case was < 0:
			n.log.Info("card found", "driver", driver, "index", c.Index, "model", c.Model, "bus", c.Bus)
		case c.Faults > before[was].Faults:
			n.log.Error("card told a fault", "driver", driver, "index", c.Index, "model", c.Model, "bus", c.Bus, "fault", c.Fault)
		}
	}
}

// tell adds what libraries say to devices, and with others the cards that OpenCL
// does not show.
func (m *makers) tell(devices []Device, others bool) []Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.drivers {
		for _, c := range m.found[d.Name] {
			shown := false
			for i := range devices { // both OpenCL and CUDA may show it
				if devices[i].Bus != "" && devices[i].Bus == c.Bus {
					devices[i].Card, shown = &c, true
				}
			}
			if others && !shown {
				devices = append(devices, Device{ID: fmt.Sprintf("%s-%d", c.Driver, c.Index), Model: c.Model, Vendor: c.Vendor, Driver: c.Driver, Memory: c.Memory, Bus: c.Bus, Card: &c, Power: value(c.Power),
					NotLent: "OpenCL shows no device at " + orUnknown(c.Bus) + ": the maker's OpenCL driver is missing, or does not say where its devices are"})
			}
		}
	}
	return devices
}

// of is the card at a place, and when its library said so; nil: none.
func (m *makers) of(bus string) (*cards.Card, time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, found := range m.found {
		for i := range found {
			if bus != "" && found[i].Bus == bus {
				return &found[i], m.at[name]
			}
		}
	}
	return nil, time.Time{}
}

func orUnknown(bus string) string {
	if bus == "" {
		return "a place that its maker's library does not tell"
	}
	return bus
}

func value(v *int64) int64 {
	if v == nil {
		return 0
	}
	return *v
}

// limitOf is a limit of what a card draws, in milliwatts; 0 watts, or less: as it is made.
func limitOf(c *cards.Card, watts int64) int64 {
	if watts <= 0 && c.BaseLimit != nil {
		return *c.BaseLimit
	}
	return watts * 1000
}

// limitPower sets what a card may draw; 0 watts: as it is made.
func (n *Node) limitPower(device string, watts int64) error {
	n.mu.Lock()
	devices := n.listDevices(nil)
	n.mu.Unlock()
	i := slices.IndexFunc(devices, func(d Device) bool { return d.ID == device })
	if i < 0 {
		return fault.New(fault.NotFound, "there is no device %q", device)
	}
	c := devices[i].Card
	if c == nil || c.LeastLimit == nil || c.MostLimit == nil {
		return fault.New(fault.Invalid, "device %s: nothing sets what it may draw; NVML does of cards of NVIDIA", device)
	}
	want := limitOf(c, watts)
	if want < *c.LeastLimit || want > *c.MostLimit {
		return fault.New(fault.Invalid, "watts: %d, at least %d and at most %d for device %s", watts, *c.LeastLimit/1000, *c.MostLimit/1000, device)
	}
	ctx, cancel := context.WithTimeout(n.stopping, cardsWithin)
	defer cancel()
	for _, d := range n.makers.drivers {
		if d.Name != c.Driver {
			continue
		}
		if err := d.Limit(ctx, c.Index, want); err != nil {
			return fault.New(fault.Denied, "device %s: the limit was not set: %s", device, err)
		}
		n.log.Info("limit of power set", "device", device, "milliwatts", want)
		n.makers.again()
	}
	return nil
}
