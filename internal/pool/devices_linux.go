package pool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/between"
)

// Devices come and go while a node runs: it looks when it starts, when it is told
// to ([Node.Rescan]), and when a vendor's file or a device of the kernel's comes
// or goes. Where the devices of an interface cannot be listed it looks again; those that are
// known stay for that once. A device is the same if it is of one model, driver, size and place: on the
// bus, or, where the driver does not say that, among its equals; one that is not shown any more takes no new tasks, and goes when
// its last task ends. When it comes again, it has the name that it had (names_linux.go).

// LibrariesVariable names the folder of makers' libraries to a program that is to
// say what it finds ([Look]): as its node was told.
const LibrariesVariable = "YUNHE_POOL_LIBRARIES"

// Look says how many devices this program's worker finds on this machine; makers'
// libraries are looked for in a folder first.
func Look(libraries string) (int, error) {
	dir, err := os.MkdirTemp("", "yunhe-pool-look-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	program, err := unpack(dir, workerProgram)
	if err != nil {
		return 0, err
	}
	if err := makeCaches(dir); err != nil {
		return 0, err
	}
	found, err := list(context.Background(), dir, program)
	cuda, e := listCUDA(context.Background(), dir, program, libraries)
	if len(cuda) > 0 {
		err = nil // as the node does
	}
	return len(found) + len(cuda), errors.Join(err, e)
}

// listsWithin is how long vendors' libraries may take together.
const listsWithin = time.Minute

// list asks a process of its own: a vendor's library may end it, or hang.
func list(ctx context.Context, dir, program string) (found []between.Device, err error) {
	ctx, cancel := context.WithTimeout(ctx, listsWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "list")
	cmd.Env, cmd.WaitDelay = workerEnv(dir, nodes), time.Second
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrWaitDelay) { // it has said all, and left something behind that could say more
		err = nil
	}
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, fault.New(fault.Unavailable, "the devices of this machine cannot be listed: a vendor's library did not answer in %s", listsWithin)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the devices of this machine cannot be listed: %s", strings.TrimSpace(strings.TrimPrefix(errs.String(), "error: ")))
	}
	return found, nil
}

// Libraries is the folder in which the node looks for makers' libraries first.
func (n *Node) Libraries() string { return n.cfg.Libraries }

// Rescan looks for devices that came or went. Those of one of the two interfaces that cannot
// be listed are looked for again.
func (n *Node) Rescan() error {
	n.looks.Lock()
	defer n.looks.Unlock()
	found, err := list(n.stopping, n.cfg.Dir, n.program)
	all := make([]Device, 0, len(found))
	for _, f := range found {
		all = append(all, Device{API: OpenCL, Model: f.Model, Vendor: f.Vendor, Driver: f.Driver, Version: f.Version, Type: f.Type, Units: f.Units, Memory: f.Memory, Bus: f.Bus, UUID: f.UUID})
	}
	cuda, e := listCUDA(n.stopping, n.cfg.Dir, n.program, n.cfg.Libraries)
	if n.stopping.Err() != nil { // nobody waits for what drivers say
		return fault.New(fault.Canceled, "the pool node stops")
	}
	failed := ""
	if e != nil {
		failed = CUDA
		n.log.Warn("the devices of CUDA are not known", "error", e)
	}
	for _, f := range cuda {
		all = append(all, Device{API: CUDA, Model: f.Model, Vendor: "NVIDIA", Driver: f.Driver, Type: "gpu", Units: f.Units, Memory: f.Memory, Bus: f.Bus, UUID: f.UUID, Pages: f.Pages})
	}
	if err != nil && len(cuda) > 0 {
		n.log.Warn("the devices of OpenCL are not known", "error", err)
		failed, err = OpenCL, nil
	}
	if err != nil {
		n.lookLater()
		return err
	}
	stay := failed != n.unlisted // those that are known
	if n.unlisted = failed; failed != "" {
		n.lookLater()
	}
	defer n.keepNames()
	n.mu.Lock()
	defer n.mu.Unlock()
	shown, is := map[*device]bool{}, n.match(all)
	n.name(all, is)
	for at, f := range all {
		d := is[at]
		if d == nil {
			d = &device{Device: f, key: n.freeKey(kindOf(f)), turns: newArbiter()}
			d.Gone = true
			d.Memory = n.bounded(f)
			d.Concurrent = slices.Contains(n.cfg.Concurrent, d.ID)
			d.turns.concurrent.Store(d.Concurrent)
			if d.card, err = newCard(d.Memory, d.turns, n.log); err != nil {
				return err
			}
			d.card.memory.SetOver(n.cfg.MemoryOver > 100)
			d.turns.crowded = d.crowded
			n.devices = append(n.devices, d)
		}
		d.Bus, d.UUID, shown[d] = f.Bus, f.UUID, true
		if has := n.bounded(f); has != d.Memory {
			n.log.Warn("a device's memory has changed", "device", d.ID, "memory_bytes", has, "before", d.Memory)
			d.Memory = has
			d.card.memory.SetLimit(uint64(has))
		}
		// What is on it only the driver knows, which knows of no bound.
		if d.Pages = f.Pages && d.Memory >= f.Memory; d.Pages {
			d.card.memory.SetLimit(uint64(d.Memory) * maxOver / 100)
		}
		if f.API == OpenCL {
			d.platform, d.index = found[at].Platform, found[at].Index
		}
		if d.Gone {
			d.Gone = false
			n.log.Info("device found", "device", d.ID, "model", d.Model, "driver", d.Driver, "memory_bytes", d.Memory)
		}
	}
	for _, d := range n.devices {
		switch unknown := stay && d.API == failed; {
		case shown[d]:
		case unknown && d.had:
			d.Gone = false
		case !unknown && !d.Gone:
			d.Gone = true
			n.log.Warn("device gone", "device", d.ID, "model", d.Model)
		}
		d.had = false
	}
	n.dropGone()
	n.makers.again()
	if n.member != nil {
		n.changed()
	}
	return nil
}

// lookLater has somebody look again, unless somebody does. The caller looks, or starts the node.
func (n *Node) lookLater() {
	if n.looking {
		return
	}
	n.looking = true
	n.begin(n.lookAgain)
}

// lookAgain looks for devices until all can be listed.
func (n *Node) lookAgain() {
	for after := cmp.Or(n.cfg.looksAgain, looksAgain); ; after = min(2*after, mostAgain) {
		select {
		case <-n.stopping.Done():
			return
		case <-time.After(after):
		}
		err := n.Rescan()
		n.looks.Lock()
		n.looking = err != nil || n.unlisted != ""
		goesOn := n.looking
		n.looks.Unlock()
		if !goesOn {
			return
		}
	}
}

// begin does something when the node runs.
func (n *Node) begin(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
	case n.runs:
		n.work.Go(do)
	default:
		n.later = append(n.later, do)
	}
}

// bounded is how much memory of a device is lent.
func (n *Node) bounded(f Device) int64 {
	if n.cfg.Memory > 0 {
		return min(f.Memory, n.cfg.Memory)
	}
	return f.Memory
}

// kindOf is what a device has in common with its equals.
func kindOf(f Device) string {
	if f.API != OpenCL {
		return f.API + " " + f.UUID
	}
	return fmt.Sprintf("%s %d", modelOf(f), f.Memory)
}

// modelOf is the same without how much memory it has: of a processor that is what its machine
// has, and those of virtual machines become larger and smaller.
func modelOf(f Device) string {
	return fmt.Sprintf("%q %q %q %q %d", f.Vendor, f.Model, f.Driver, f.Version, f.Units)
}

// match says which of the node's devices those are that were found; nil: none. The caller has
// the lock.
func (n *Node) match(found []Device) []*device {
	is, of, known := make([]*device, len(found)), map[string]int{}, map[*device]bool{}
	find := func(at int, same func(d *device) bool) {
		i := slices.IndexFunc(n.devices, func(d *device) bool { return !known[d] && same(d) })
		if i >= 0 {
			is[at] = n.devices[i]
			known[is[at]] = true
		}
	}
	for at, f := range found {
		kind := kindOf(f)
		find(at, func(d *device) bool {
			if f.Bus != "" && f.API == OpenCL {
				return strings.HasPrefix(d.key, kind+" ") && d.Bus == f.Bus
			}
			return d.key == fmt.Sprintf("%s %d", kind, of[kind])
		})
		of[kind]++
	}
	for at, f := range found {
		if is[at] != nil || f.API != OpenCL {
			continue
		}
		find(at, func(d *device) bool { return strings.HasPrefix(d.key, modelOf(f)+" ") && d.Bus == f.Bus })
		if d := is[at]; d != nil {
			d.key = n.freeKey(kindOf(f))
		}
	}
	return is
}

// freeID is the first name of a device that is not taken.
func freeID(api string, taken func(id string) bool) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("%s-%d", api, i); !taken(id) {
			return id
		}
	}
}

// freeKey is the name of a device among its equals, which a program of before counts.
func (n *Node) freeKey(kind string) string {
	for i := 0; ; i++ {
		key := fmt.Sprintf("%s %d", kind, i)
		if !slices.ContainsFunc(n.devices, func(d *device) bool { return d.key == key }) {
			return key
		}
	}
}

// dropGone forgets devices that are gone and have no tasks. The caller has the lock.
func (n *Node) dropGone() {
	n.devices = slices.DeleteFunc(n.devices, func(d *device) bool {
		if !d.Gone {
			return false
		}
		_, _, tasks := n.allotted(func(t *task) bool { return t.device == d })
		if tasks == 0 {
			d.card.close()
		}
		return tasks == 0
	})
}

const (
	vendorFiles = "/etc/OpenCL/vendors"
	// settles is how long nothing more may come or go before a node looks.
	settles = 500 * time.Millisecond
	// looksAgain is when a node that could not look does so once more, each time after twice
	// as long, and mostAgain at most.
	looksAgain = 30 * time.Second
	mostAgain  = 10 * time.Minute
)

// notice asks the kernel to tell from now on what comes and goes that has to do with
// devices; [Node.watch] reads it.
func (n *Node) notice() {
	vendors := os.Getenv("OCL_ICD_VENDORS")
	if vendors == "" {
		vendors = vendorFiles
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		n.log.Warn("devices that come or go are not noticed by themselves", "error", err)
		return
	}
	n.notices, n.dev = os.NewFile(uintptr(fd), "inotify"), -1 // non-blocking: Read waits and ends when it is closed
	for _, dir := range []string{vendors, "/dev"} {
		w, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_TO|unix.IN_MOVED_FROM|unix.IN_CLOSE_WRITE|unix.IN_ONLYDIR)
		if err == nil && dir == "/dev" {
			n.dev = w
		}
	}
}

// watch looks for devices when something that has to do with them changes, until
// ctx is done.
func (n *Node) watch(ctx context.Context) {
	if n.notices == nil {
		return
	}
	defer n.notices.Close()
	due := make(chan struct{}, 1)
	n.work.Go(func() { // ends when the file is closed
		b := make([]byte, 64<<10)
		for {
			got, err := n.notices.Read(b)
			if err != nil {
				return
			}
			if concerns(b[:got], n.dev) {
				select {
				case due <- struct{}{}:
				default:
				}
			}
		}
	})
	late := time.NewTimer(time.Hour)
	late.Stop()
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due:
			late.Reset(settles)
		case <-late.C:
			if err := n.Rescan(); err != nil {
				n.log.Warn("devices not looked for", "error", err)
			}
		}
	}
}

// concerns reports whether something in what inotify says has to do with
// accelerators: all but what comes and goes in /dev under other names.
func concerns(b []byte, dev int) bool {
	for len(b) >= unix.SizeofInotifyEvent {
		var e struct {
			Wd                int32
			Mask, Cookie, Len uint32
		}
		_ = binary.Read(bytes.NewReader(b), binary.NativeEndian, &e) // there are enough bytes
		rest := b[unix.SizeofInotifyEvent:]
		name := string(bytes.TrimRight(rest[:min(int(e.Len), len(rest))], "\x00"))
		b = rest[min(int(e.Len), len(rest)):]
		if int(e.Wd) != dev || slices.ContainsFunc(between.Cards, func(c string) bool { return strings.HasPrefix(name, c) }) {
			return true
		}
	}
	return false
}
