package pool

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/between"
)

// A node gives all it has to another program, which goes on in the same process
// (exec): workers stay its children, and connections stay open. Clients and
// programs notice a pause. What the other program needs to know is in a file of
// memory; what it fails to take over, the first takes back.

const (
	handoverEnv = "YUNHE_POOL_HANDOVER" // the file's descriptor
	backEnv     = "YUNHE_POOL_BACK"     // why the program after this gave it back

	greetTime  = time.Second            // for connections that have not said what they want
	againAfter = 100 * time.Millisecond // where something moves
)

// handover is what a node hands over. Descriptors are of copies.
type handover struct {
	Format    int          `json:"format"`
	Previous  string       `json:"previous"`       // the program that takes it back: where it can be run,
	Program   int          `json:"program"`        // and it, as its file may have been replaced
	Lock      int          `json:"lock,omitempty"` // of its folder; 0: none
	Listeners []int        `json:"listeners"`
	RDMA      []string     `json:"rdma,omitempty"`
	Devices   []handDevice `json:"devices"`
	Tasks     []handTask   `json:"tasks"`
	Holders   []handHolder `json:"holders"`
	Moved     []handMoved  `json:"moved"`
	Member    *handMember  `json:"member,omitempty"`
	Limits    *Limits      `json:"limits,omitempty"`
	Paused    time.Time    `json:"paused"`
	// Kernel is when that was, by the kernel's clock that nobody sets; 0: unknown. Times
	// are as written says.
	Kernel time.Duration `json:"kernel,omitempty"`

	returned bool // it comes back from the program after this
}

type handDevice struct {
	Device Device     `json:"device"`
	Key    string     `json:"key"`
	Page   int        `json:"page"`
	Wishes []handWish `json:"wishes"`
}

type handWish struct {
	Slot  int    `json:"slot"`
	Bytes uint64 `json:"bytes"`
}

type handTask struct {
	Task    Task         `json:"task"`
	Token   []byte       `json:"token"`
	Spec    Spec         `json:"spec"`
	Page    int          `json:"page"`
	Limit   time.Time    `json:"limit"`
	Began   time.Time    `json:"began,omitzero"`
	Account handAccount  `json:"account"`
	Workers []handWorker `json:"workers"`
}

type handAccount struct {
	Credit, Used time.Duration
	At, Active   time.Time
	Virtual      float64
}

type handWorker struct {
	Slot, Pid, Turns, Errors int
	Session                  []byte
	Secret                   bool // it was told its task's token

	// As the arbiter knows it; none: it only passes on what is said, or ends.
	Uses                      bool
	Wants, Holds, Over, Loads bool
	Since, Asked              time.Time
	Least                     time.Duration
	CardSlot                  int
	Used, Evicted, Keeps      time.Time
	CardLoads                 bool
	Swaps                     int64
}

// handHolder is a connection that a task lasts as long as.
type handHolder struct {
	Task string `json:"task"`
	Conn int    `json:"conn"`
}

type handMoved struct {
	ID, To, Group string
	Token         []byte
}

type handMember struct {
	Boot     string
	Since    time.Time
	Sequence int64
	Ended    []EndedTask
	Used     map[string]int64
	Moved    []Moved
	Begun    map[string]string
}

// copies are descriptors that the next program inherits.
type copies struct{ fds []int }

// of copies the descriptor of something; without close on exec.
func (c *copies) of(x syscall.Conn) (int, error) {
	raw, err := x.SyscallConn()
	if err != nil {
		return 0, err
	}
	fd := -1
	if e := raw.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD, 3) }); e != nil {
		return 0, e
	}
	if err == nil {
		c.fds = append(c.fds, fd)
	}
	return fd, err
}

func (c *copies) close() {
	for _, fd := range c.fds {
		_ = unix.Close(fd)
	}
}

// Replace has another program go on in this process with what the node has. It
// returns only if that cannot be: the node goes on then as before. It waits for
// tasks that move, until ctx is done. To be called while Run runs.
func (n *Node) Replace(ctx context.Context, program string) error {
	n.replacing.Lock()
	defer n.replacing.Unlock()
	for {
		err := n.replace(program)
		if fault.KindOf(err) != fault.Unavailable {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(againAfter):
		}
	}
}

func (n *Node) replace(program string) error {
	if !n.looks.TryLock() { // before it is silent: drivers may take their time
		return fault.New(fault.Unavailable, "the pool node looks for devices")
	}
	defer n.looks.Unlock()
	defer n.makers.hold()()
	n.telling.Lock() // reports that wait at the platform come back, so that it does not miss the node
	defer n.telling.Unlock()
	n.pauseAccept()
	defer n.resumeAccept()
	for late := time.Now().Add(greetTime); n.greeting.Load() > 0 && time.Now().Before(late); {
		<-time.After(time.Millisecond)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fault.New(fault.Canceled, "the pool node stops")
	}
	if err := n.settled(); err != nil {
		return err
	}
	// From here on nobody hears workers; what they say waits in their sockets.
	n.freezing.Store(true)
	var links []*link
	for _, t := range n.tasks {
		for _, l := range t.links {
			if l != nil {
				links = append(links, l)
				_ = l.turns.SetReadDeadline(time.Unix(1, 0)) // it is open, or its reader has ended
			}
		}
	}
	for _, l := range links {
		<-l.quiet
	}
	for _, d := range n.devices {
		d.turns.mu.Lock()
		d.card.mu.Lock()
	}
	err := n.handOver(program)
	for _, d := range n.devices {
		d.card.mu.Unlock()
		d.turns.mu.Unlock()
	}
	n.freezing.Store(false)
	for _, l := range links {
		_ = l.turns.SetReadDeadline(time.Time{})
		select {
		case l.resume <- struct{}{}:
		default: // its worker has gone
		}
	}
	return err
}

// pauseAccept lets connections wait.
func (n *Node) pauseAccept() {
	for _, l := range n.listeners {
		_ = l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Unix(1, 0)) // or it is closed
	}
	n.accepting.Wait()
}

func (n *Node) resumeAccept() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	for _, l := range n.listeners {
		_ = l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Time{}) // as above
	}
	n.acceptAll()
}

// settled says whether nothing is between two states. The caller has the lock.
func (n *Node) settled() error {
	for _, t := range n.arriving {
		return fault.New(fault.Unavailable, "task %s is coming from another pool node", t.ID)
	}
	for t := range n.departed {
		return fault.New(fault.Unavailable, "what programs of task %s say is passed on to where it has moved", t.ID)
	}
	held := map[*task]int{}
	for _, t := range n.holders {
		held[t]++
	}
	for _, t := range n.sorted() {
		if held[t] != t.holders {
			return fault.New(fault.Unavailable, "task %s is starting", t.ID)
		}
		if slices.ContainsFunc(t.workers[:], func(w *proc) bool { return w != nil && w.outside != nil }) {
			return fault.New(fault.Unavailable, "task %s is on device %s: programs of CUDA on this machine are not handed over", t.ID, t.Device)
		}
		if t.moving != nil {
			return fault.New(fault.Unavailable, "task %s is being moved", t.ID)
		}
		for _, l := range t.links {
			if l != nil && l.turns == nil {
				return fault.New(fault.Unavailable, "a program of task %s is starting", t.ID)
			}
		}
	}
	return nil
}

// handOver writes down what there is and becomes the program. The caller has all
// locks.
func (n *Node) handOver(program string) error {
	syscall.ForkLock.Lock() // no child inherits what is for the next program
	defer syscall.ForkLock.Unlock()
	var keep copies
	defer keep.close() // if there is no next program
	h, err := n.write(&keep)
	if err != nil {
		return fmt.Errorf("write down what the pool node has: %w", err)
	}
	fd, err := h.inMemory()
	if err != nil {
		return fmt.Errorf("write down what the pool node has: %w", err)
	}
	keep.fds = append(keep.fds, fd)
	env := append(os.Environ(), handoverEnv+"="+strconv.Itoa(fd))
	if err := syscall.Exec(program, append([]string{program}, os.Args[1:]...), env); err != nil {
		return fault.Wrap(fault.Invalid, err, "%s cannot be run", program)
	}
	return nil // it does not come here
}

// inMemory writes it to a file of memory that a program that is executed inherits.
func (h *handover) inMemory() (fd int, err error) {
	b, err := json.Marshal(h)
	if err != nil {
		return -1, err
	}
	if fd, err = unix.MemfdCreate("yunhe-pool-handover", 0); err != nil {
		return -1, err
	}
	for len(b) > 0 {
		k, err := unix.Write(fd, b)
		if err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
		b = b[k:]
	}
	return fd, nil
}

func (n *Node) write(keep *copies) (*handover, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	h := &handover{Format: HandoverFormat, Limits: n.limits.Load(), Paused: time.Now(), Kernel: kernelTime()}
	at := func(t time.Time) time.Time { return written(h.Paused, t) }
	if h.Program, err = keep.of(self); err != nil {
		return nil, err
	}
	h.Previous = fmt.Sprintf("/proc/self/fd/%d", h.Program)
	if n.lock != nil {
		if h.Lock, err = keep.of(n.lock.file); err != nil {
			return nil, err
		}
	}
	h.RDMA = n.rdma
	for _, l := range n.listeners {
		if l.Addr().String() == n.shared() {
			continue // another version may take it for the node's own: the next program opens its own
		}
		fd, err := keep.of(l.(syscall.Conn))
		if err != nil {
			return nil, err
		}
		h.Listeners = append(h.Listeners, fd)
	}
	for _, d := range n.devices {
		x := handDevice{Device: d.Device, Key: d.key}
		if x.Page, err = keep.of(d.card.page); err != nil {
			return nil, err
		}
		for _, w := range d.card.wishes {
			x.Wishes = append(x.Wishes, handWish{w.h.slot, w.n})
		}
		h.Devices = append(h.Devices, x)
	}
	for _, t := range n.sorted() {
		c := &t.account
		x := handTask{Task: t.Task, Token: t.token, Spec: t.spec, Limit: at(t.limit), Began: at(t.began), Account: handAccount{c.credit, c.used, at(c.at), at(c.active), c.virtual}}
		if x.Page, err = keep.of(t.page); err != nil {
			return nil, err
		}
		for slot, l := range t.links {
			if l == nil {
				continue
			}
			w := handWorker{Slot: slot, Pid: t.workers[slot].process.Pid, Session: l.session, Secret: l.secret, CardSlot: -1}
			if w.Turns, err = keep.of(l.turns); err != nil {
				continue // it has ended, and is about to be forgotten
			}
			if w.Errors, err = keep.of(t.workers[slot].errors); err != nil {
				return nil, err
			}
			if i := slices.Index(t.device.turns.users, l.user); i >= 0 {
				u := l.user
				w.Uses, w.Wants, w.Holds, w.Over, w.Loads, w.Since, w.Asked, w.Least = true, u.wants, t.device.turns.holder == u, u.over, u.loads, at(u.since), at(u.asked), u.least
			}
			if o := l.holder; slices.Contains(t.device.card.holders, o) {
				w.CardSlot, w.Used, w.Evicted, w.Keeps, w.CardLoads, w.Swaps = o.slot, at(o.used), at(o.asked), at(o.keeps), o.loads, o.swaps
			}
			x.Workers = append(x.Workers, w)
		}
		h.Tasks = append(h.Tasks, x)
	}
	for conn, t := range n.holders {
		if fd, err := keep.of(conn.(syscall.Conn)); err == nil { // or it has ended
			h.Holders = append(h.Holders, handHolder{t.ID, fd})
		} else {
			h.Holders = append(h.Holders, handHolder{t.ID, -1})
		}
	}
	for id, m := range n.moved {
		h.Moved = append(h.Moved, handMoved{id, m.to, m.group, m.token})
	}
	if m := n.member; m != nil {
		ended := slices.Clone(m.ended)
		for _, b := range m.brief {
			ended = append(ended, b.ended)
		}
		h.Member = &handMember{m.boot, at(m.since), m.sequence, ended, m.used, m.moved, m.begun}
	}
	return h, nil
}

// inherit reads what the program before this handed over; nil: there is nothing.
func inherit() (*handover, error) {
	text := os.Getenv(handoverEnv)
	if text == "" {
		return nil, nil
	}
	_ = os.Unsetenv(handoverEnv)
	fd, err := strconv.Atoi(text)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s: %q is not a descriptor", handoverEnv, text)
	}
	f := os.NewFile(uintptr(fd), "handover")
	defer f.Close()
	unix.CloseOnExec(fd)
	h := &handover{returned: os.Getenv(backEnv) != ""}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	if err == nil {
		err = json.Unmarshal(b, h)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "what was handed over cannot be read")
	}
	for _, fd := range h.all() {
		unix.CloseOnExec(fd)
	}
	return h, nil
}

// all are the descriptors.
func (h *handover) all() []int {
	out := append([]int{h.Program}, h.Listeners...)
	for _, d := range h.Devices {
		out = append(out, d.Page)
	}
	for _, t := range h.Tasks {
		out = append(out, t.Page)
		for _, w := range t.Workers {
			out = append(out, w.Turns, w.Errors)
		}
	}
	for _, c := range h.Holders {
		out = append(out, c.Conn)
	}
	if h.Lock != 0 {
		out = append(out, h.Lock)
	}
	return slices.DeleteFunc(out, func(fd int) bool { return fd < 0 })
}

// giveBack becomes the program before this again, with what it handed over: it
// was not taken. It returns only if that cannot be, or if that program gave it back itself:
// they would give it to each other without end.
func (h *handover) giveBack(why error) error {
	if h.returned {
		return nil
	}
	fd, err := h.inMemory()
	if err != nil {
		return err
	}
	for _, fd := range h.all() {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	env := append(os.Environ(), handoverEnv+"="+strconv.Itoa(fd), backEnv+"="+why.Error())
	return syscall.Exec(h.Previous, append([]string{h.Previous}, os.Args[1:]...), env)
}

// GivenBack says why the program after this one gave back what it was handed;
// "" if none did.
func (n *Node) GivenBack() string { return n.back }

// HandedOver reports whether another program handed over what it had.
func HandedOver() bool { return os.Getenv(handoverEnv) != "" }

// GiveBack has the program before this go on, if this one was handed something
// and did not come to a node. It returns only if that cannot be.
func GiveBack(why error) error {
	h, err := inherit()
	if h != nil {
		err = h.giveBack(why)
	}
	return err
}

// file is a copy of a descriptor; the original is for [handover.giveBack].
func file(fd int, name string) (*os.File, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.NewFile(uintptr(own), name), nil
}

func conn(fd int) (net.Conn, error) {
	f, err := file(fd, "connection")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

func page(fd int, name string) (*os.File, []byte, error) {
	f, err := file(fd, name)
	if err != nil {
		return nil, nil, err
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, between.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return f, mapped, err
}

// takeDevices has the node have the devices it had, which are looked for then.
func (n *Node) takeDevices(h *handover) error {
	for _, x := range h.Devices {
		d := &device{Device: x.Device, key: x.Key, turns: newArbiter(), had: !x.Device.Gone}
		d.Gone = true // until it is found
		if d.API == "" {
			d.API = OpenCL // what the program before knew
		}
		d.turns.concurrent.Store(d.Concurrent)
		p, mapped, err := page(x.Page, "yunhe-pool-card")
		if err != nil {
			return err
		}
		d.card, d.turns.crowded = newCardOf(p, mapped, d.turns, n.log), d.crowded
		n.devices = append(n.devices, d)
	}
	return nil
}

func (n *Node) takeListeners(h *handover) error {
	n.rdma = h.RDMA
	for _, fd := range h.Listeners {
		f, err := file(fd, "listener")
		if err != nil {
			return err
		}
		l, err := net.FileListener(f)
		_ = f.Close()
		if err != nil {
			return err
		}
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(true)
		}
		n.listeners = append(n.listeners, l)
	}
	return nil
}

// holdAgain is [Node.keep] of a connection that was handed over; nil: it has ended.
func (n *Node) holdAgain(t *task, conn net.Conn) {
	why := ClientEnded
	if conn != nil {
		why = n.keep(t, conn, bufio.NewReader(conn), json.NewEncoder(conn))
	}
	n.unhold(t, conn, why)
}

// take has the node have what the program before it had, but for workers and
// connections: those are followed when it runs.
func (n *Node) take(h *handover) error {
	for _, x := range h.Tasks {
		i := slices.IndexFunc(n.devices, func(d *device) bool { return d.ID == x.Task.Device })
		if i < 0 {
			return fmt.Errorf("task %s: there is no device %s", x.Task.ID, x.Task.Device)
		}
		p, mapped, err := page(x.Page, "yunhe-pool-task")
		if err != nil {
			return err
		}
		t := &task{Task: x.Task, token: x.Token, spec: x.Spec, device: n.devices[i], page: p, mapped: mapped, memory: between.NewMemory(mapped, 0), limit: h.here(x.Limit), began: h.here(x.Began), done: make(chan struct{}), chainDone: make(chan struct{})}
		t.compute.Store(t.Compute)
		t.API = t.device.API
		if t.began.IsZero() { // of a program of before
			t.began = beganAt(t.Started)
		}
		c := x.Account
		t.account = account{credit: c.Credit, used: c.Used, at: h.here(c.At), active: h.here(c.Active), virtual: c.Virtual, quota: n.quotaOf(t.Group)}
		t.counted(c.Used)
		for _, w := range x.Workers {
			if err := n.takeWorker(h, t, w); err != nil {
				return fmt.Errorf("task %s: %w", t.ID, err)
			}
		}
		n.tasks[t.ID] = t
	}
	for i, x := range h.Devices {
		c := n.devices[i].card
		for _, w := range x.Wishes {
			if i := slices.IndexFunc(c.holders, func(o *holder) bool { return o.slot == w.Slot }); i >= 0 {
				c.wishes = append(c.wishes, &wish{h: c.holders[i], n: w.Bytes})
			}
		}
	}
	for _, x := range h.Holders {
		t := n.tasks[x.Task]
		if t == nil {
			continue
		}
		t.holders++
		var c net.Conn
		if x.Conn >= 0 {
			var err error
			if c, err = conn(x.Conn); err != nil {
				return err
			}
		}
		if c != nil {
			n.holders[c] = t
		}
		n.later = append(n.later, func() { n.holdAgain(t, c) })
	}
	for _, x := range h.Moved {
		n.moved[x.ID] = departure{x.To, x.Group, x.Token}
	}
	if m := h.Member; m != nil && n.member != nil {
		n.member = &membership{boot: m.Boot, since: h.here(m.Since), sequence: m.Sequence, ended: m.Ended, used: m.Used, moved: m.Moved, begun: m.Begun, changed: make(chan struct{}, 1), limited: map[string]limited{}}
		if n.member.used == nil {
			n.member.used = map[string]int64{}
		}
		if n.member.begun == nil {
			n.member.begun = map[string]string{}
		}
		n.changed() // its version
	}
	n.limits.Store(h.Limits)
	n.later = append(n.later, func() {
		for _, fd := range h.all() {
			_ = unix.Close(fd) // what it needs it has copies of
		}
		for _, d := range n.devices {
			d.turns.tick()
			d.card.mu.Lock()
			d.card.step()
			d.card.mu.Unlock()
		}
		n.log.Info("pool node goes on in another program", "tasks", len(h.Tasks), "pause", h.since())
	})
	return nil
}

func (n *Node) takeWorker(h *handover, t *task, w handWorker) error {
	turns, err := conn(w.Turns)
	if err != nil {
		return err
	}
	own, ok := turns.(*net.UnixConn)
	if !ok {
		return errors.New("what a worker is told over is no Unix socket")
	}
	errs, err := file(w.Errors, "errors")
	if err != nil {
		return err
	}
	process, err := os.FindProcess(w.Pid)
	if err != nil {
		return err
	}
	p := &proc{}
	l := n.linkTo(t, p)
	l.turns, l.session, l.secret = own, w.Session, w.Secret
	close(l.started)
	p.follow(process, errs)
	u := n.userOf(t, l)
	u.wants, u.over, u.loads, u.since, u.asked, u.least = w.Wants, w.Over, w.Loads, h.here(w.Since), h.here(w.Asked), w.Least
	o := &holder{slot: w.CardSlot, task: t.ID, used: h.here(w.Used), asked: h.here(w.Evicted), keeps: h.here(w.Keeps), loads: w.CardLoads, given: time.Now(), swaps: w.Swaps, say: u.say, kill: p.kill}
	if a := t.device.turns; w.Uses {
		a.users = append(a.users, u)
		if w.Holds {
			a.holder = u
		}
	}
	if w.CardSlot >= 0 {
		t.device.card.holders = append(t.device.card.holders, o)
	}
	l.user, l.holder = u, o
	t.workers[w.Slot], t.links[w.Slot] = p, l
	n.later = append(n.later, func() { n.ended(t, w.Slot, l, o, n.listen(t, p, l, o)) })
	return nil
}
