package pool

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/between"
)

// longestSwap is what a worker is believed that it took to put its memory on the device.
const longestSwap = 10 * time.Second

// surrender is how long a worker may take to give memory back that another
// needs, before it is ended: a kernel that never ends must not keep it.
const surrender = 30 * time.Second

// A card is the memory of a device. Tasks may be given more of it than there is,
// all together; what is on the device is counted in a page that all workers of
// the device map. A worker that finds no room there asks for it, and others are
// asked to take theirs off (worker/swap.go): who put it there longest ago first,
// one request after the other.
//
// In a device whose turns are exclusive the one who asks has the turn. In one
// without, who was given memory keeps it for as long as it took to put it there,
// a few times.
type card struct {
	page   *os.File
	memory *between.Memory
	log    *slog.Logger
	turns  *arbiter

	mu      sync.Mutex // guards what follows
	mapped  []byte     // nil: the card is gone
	over    bool       // it goes with its last worker
	holders []*holder
	wishes  []*wish // the first is being granted
	timer   *time.Timer
}

// holder is a worker, as a card sees it.
type holder struct {
	slot int
	task string
	say  func(what byte, n time.Duration)
	kill func()

	used  time.Time // when it last put memory there
	asked time.Time // to take its memory off; zero: it was not
	keeps time.Time // until then it is not asked
	loads bool      // it was given room and puts memory there
	given time.Time // when it was given that
	swaps int64
}

// wish is a worker's for memory.
type wish struct {
	h     *holder
	n     uint64
	tried []*holder
	freed bool // somebody gave something since all were tried
}

func newCard(size int64, turns *arbiter, log *slog.Logger) (*card, error) {
	page, mapped, err := sharedPage("yunhe-pool-card")
	if err != nil {
		return nil, fmt.Errorf("memory of a device: %w", err)
	}
	c := newCardOf(page, mapped, turns, log)
	c.memory.SetLimit(uint64(size))
	return c, nil
}

func newCardOf(page *os.File, mapped []byte, turns *arbiter, log *slog.Logger) *card {
	c := &card{page: page, mapped: mapped, memory: between.NewMemory(mapped, 0), log: log, turns: turns}
	c.timer = time.AfterFunc(time.Hour, func() { c.mu.Lock(); defer c.mu.Unlock(); c.step() })
	c.timer.Stop()
	return c
}

// sharedPage is memory of a between.Memory. Who has it, too, cannot make it shorter: a node that
// reads what is cut off dies.
func sharedPage(name string) (page *os.File, mapped []byte, err error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, err
	}
	page = os.NewFile(uintptr(fd), name)
	if err = page.Truncate(between.PageSize); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		mapped, err = unix.Mmap(fd, 0, between.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		_ = page.Close()
		return nil, nil, err
	}
	return page, mapped, nil
}

// close ends the card, when its last worker has.
func (c *card) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.free()
}

// free unmaps the page of a card that is over and has no workers. The caller has the lock.
func (c *card) free() {
	if !c.over || c.mapped == nil || len(c.holders) > 0 {
		return
	}
	c.timer.Stop()
	_ = c.page.Close() // it is memory: there is nothing to lose
	_ = unix.Munmap(c.mapped)
	c.mapped = nil
}

// resident is what is on the device.
func (c *card) resident() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mapped == nil {
		return 0
	}
	return int64(c.memory.Used())
}

// add gives a worker a slot.
func (c *card) add(h *holder) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h.slot = 0; h.slot < between.Slots; h.slot++ {
		if !slices.ContainsFunc(c.holders, func(x *holder) bool { return x.slot == h.slot }) {
			c.holders = append(c.holders, h)
			return true
		}
	}
	return false
}

// gone gives back what a worker had on the device: it uses that no more. Last
// says that the worker has ended, and its slot is free.
func (c *card) gone(h *holder, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.Reap(h.slot)
	h.asked = time.Time{}
	c.wishes = slices.DeleteFunc(c.wishes, func(w *wish) bool { return w.h == h })
	if last {
		c.holders = slices.DeleteFunc(c.holders, func(x *holder) bool { return x == h })
	}
	if len(c.wishes) > 0 {
		c.wishes[0].freed = true
	}
	c.step()
	c.free()
}

// may tells how to speak to a worker, and how to end it.
func (c *card) may(h *holder, say func(byte, time.Duration), kill func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.say, h.kill = say, kill
}

// want is said by a worker that needs memory.
func (c *card) want(h *holder, n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.ContainsFunc(c.wishes, func(w *wish) bool { return w.h == h }) { // one that wants twice is told once
		c.wishes = append(c.wishes, &wish{h: h, n: n})
	}
	c.step()
}

// in is said by a worker whose memory is there, which took so long. It returns what is
// believed of that: no more than the time since it was given room.
func (c *card) in(h *holder, took time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, most := c.turns.now(), time.Duration(0)
	if h.loads {
		most = min(now.Sub(h.given), longestSwap)
	}
	took = min(max(took, 0), most)
	h.loads, h.used = false, now
	if c.turns.concurrent.Load() {
		h.keeps = h.used.Add(between.SwapTurn * took)
	}
	c.step()
	return took
}

// out is said by a worker that has taken off what it was asked for.
func (c *card) out(h *holder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.asked.IsZero() {
		return
	}
	h.asked = time.Time{}
	h.swaps++
	if len(c.wishes) > 0 {
		c.wishes[0].freed = true
	}
	c.step()
}

// usage is what a task has on the device and how often it was taken off.
func (c *card) usage(task string) (bytes, swaps int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.holders {
		if h.task == task {
			bytes, swaps = bytes+int64(c.memory.Held(h.slot)), swaps+h.swaps
		}
	}
	return bytes, swaps
}

// step grants wishes that can be, and asks for what is missing. The caller has the lock.
func (c *card) step() {
	for len(c.wishes) > 0 {
		w := c.wishes[0]
		free := c.memory.Limit() - min(c.memory.Used(), c.memory.Limit())
		if w.n <= free {
			w.h.loads, w.h.given = true, c.turns.now()
			c.wishes = c.wishes[1:]
			w.h.say(between.Space, 1)
			continue
		}
		if c.ask(w, free) {
			return
		}
		if w.freed { // and others have taken it
			w.tried, w.freed = nil, false
			continue
		}
		c.wishes = c.wishes[1:]
		w.h.say(between.Space, 0)
	}
}

// ask asks holders for what a wish lacks. It says whether there is something to
// wait for. The caller has the lock.
func (c *card) ask(w *wish, free uint64) bool {
	now, next := c.turns.now(), time.Duration(-1)
	wait := func(d time.Duration) {
		if next < 0 || d < next {
			next = max(d, 0)
		}
	}
	byUse := slices.SortedFunc(slices.Values(c.holders), func(a, b *holder) int {
		if d := a.used.Compare(b.used); d != 0 {
			return d
		}
		return a.slot - b.slot
	})
	for _, h := range byUse { // who was asked already
		if h.asked.IsZero() {
			continue
		}
		free += c.memory.Held(h.slot)
		if now.Sub(h.asked) >= surrender {
			c.log.Warn("program ended: it did not give back memory that another needs", "task_id", h.task, "bytes", c.memory.Held(h.slot), "after", surrender)
			h.kill()
			h.asked = now
		}
		wait(surrender - now.Sub(h.asked))
	}
	for _, h := range byUse {
		held := c.memory.Held(h.slot)
		switch {
		case free >= w.n:
		case h == w.h, held == 0, !h.asked.IsZero(), slices.Contains(w.tried, h):
		case h.loads && now.Sub(h.given) < surrender:
			wait(surrender - now.Sub(h.given)) // or until it says that it has
		case now.Before(h.keeps):
			wait(h.keeps.Sub(now))
		default:
			w.tried = append(w.tried, h)
			h.asked = now
			free += held
			wait(surrender)
			h.say(between.Evict, 0)
		}
	}
	if next >= 0 {
		c.timer.Reset(next)
	}
	return next >= 0
}
