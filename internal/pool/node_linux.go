package pool

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/wire"
	"yunhe.dev/yunhe/internal/seccomp"
)

// NodeConfig is how a node is started.
type NodeConfig struct {
	Dir        string           // for the worker's program; the node's own
	Lock       *Lock            // of Dir, which stays the caller's; nil: it is taken until the node ends
	Listen     []string         // addresses
	Groups     []Group          // none: who may open the Unix socket may use the node
	Overcommit int64            // percent of a device's time that tasks may have together; 0: 100
	Memory     int64            // bytes of a device's memory that are used at most; 0: all that it has
	MemoryOver int64            // percent of that memory that tasks may have together; 0: 100
	Concurrent []string         // devices whose turns are not exclusive
	Power      map[string]Watts // of devices by ID, where nothing tells what they draw
	Powercap   string           // where the kernel tells what processors use; "": where it does
	Libraries  string           // the folder in which makers' libraries are looked for first; "": where the system looks
	Cache      int64            // bytes of compiled programs that are kept; 0: all
	Member     *Member          // nil: it belongs to no platform
	Encryption bool             // what is said over TCP is encrypted

	looksAgain time.Duration // in place of the constant, in tests
}

// Node lends this machine's devices.
type Node struct {
	cfg     NodeConfig
	log     *slog.Logger
	program string
	member  *membership // nil: it belongs to no platform
	makers  *makers
	lock    *Lock // nil: its process has it by what a program before it left open

	listeners []net.Listener // the shared socket's among them, if there is one
	rdma      []string       // those of their addresses at which programs may go on over RDMA
	work      sync.WaitGroup
	stopping  context.Context // done when clients are no longer listened to
	deaf      context.CancelFunc

	notices  *os.File   // what the kernel says of what comes and goes; nil: nothing
	dev      int        // the watch of /dev in it
	looks    sync.Mutex // one at a time looks for devices, and guards what follows
	names    []named    // that devices have or had
	unlisted string     // the interface of which the devices could not be listed when somebody looked last
	looking  bool       // somebody looks again until all can be

	// See handover_linux.go.
	replacing sync.Mutex     // one at a time
	telling   sync.RWMutex   // who tells the platform reads
	accepting sync.WaitGroup // who takes connections
	greeting  atomic.Int64   // connections of which it is not known what they want
	freezing  atomic.Bool    // workers are not heard
	later     []func()       // what begins with Run
	back      string         // why another program gave back what it had taken

	mu      sync.Mutex // guards what follows
	devices []*device
	quotas  map[string]*quota // of groups, by name
	gangs   map[int]*ganged   // processes of CUDA with the driver, by their numbers
	tasks   map[string]*task
	runs    bool // Run has begun
	closed  bool
	holders map[net.Conn]*task // connections that a task lasts as long as

	// See migrate_linux.go.
	arriving map[string]*task // whose programs come
	departed map[*task]bool   // whose workers pass on what their programs say
	moved    map[string]departure

	clock setWatch

	limits atomic.Pointer[Limits] // nil: none
}

type device struct {
	Device

	key             string // what it is, and which of those: the same device after another look has the same
	platform, index int
	turns           *arbiter
	card            *card
	meter           meter // the node's mu guards it
	had             bool  // it was there for the program before, and nobody has looked since
}

type task struct {
	Task

	token   []byte
	spec    Spec
	device  *device
	page    *os.File
	mapped  []byte
	over    bool // it has ended; its page goes with the last worker
	memory  *between.Memory
	account account
	gang    *gang        // of its programs of CUDA that have the driver; nil: there was none
	compute atomic.Int64 // as Compute, for the arbiter
	workers [between.Slots]*proc
	links   [between.Slots]*link
	began   time.Time // as Started, and by the clock that nobody sets
	limit   time.Time // zero: none
	holders int       // connections that it lasts as long as

	done    chan struct{} // closed when it ends here
	why     string        // it ended
	left    bool          // it has not ended, but moved
	movedTo string
	moving  chan struct{} // nil: it does not; closed when that has ended, well or not
	parting bool          // the other node is told what it has, which stays so
	came    bool          // it moved here, and the platform has not heard so

	chain     *Client // holds it at the node it moved to
	chainDone chan struct{}
	chainEnd  string
}

// helloTime is how long a connection may take to say what it is.
const helloTime = 10 * time.Second

// NewNode finds the devices and opens the addresses, or takes over what another
// program had ([Node.Replace]); if it cannot, that goes on.
func NewNode(cfg NodeConfig, log *slog.Logger) (*Node, error) {
	h, err := inherit()
	if err != nil {
		return nil, err
	}
	n, err := newNode(cfg, h, log)
	if err != nil && h != nil {
		err = errors.Join(err, h.giveBack(err))
	}
	return n, err
}

func newNode(cfg NodeConfig, h *handover, log *slog.Logger) (*Node, error) {
	if err := CheckGroups(cfg.Groups); err != nil {
		return nil, err
	}
	for name, ratio := range map[string]*int64{"overcommit": &cfg.Overcommit, "memory-overcommit": &cfg.MemoryOver} {
		if *ratio == 0 {
			*ratio = 100
		}
		if *ratio < 100 || *ratio > maxOver {
			return nil, fault.New(fault.Invalid, "%s: %d%% is not from 100 to %d", name, *ratio, maxOver)
		}
	}
	if cfg.Memory < 0 || cfg.Memory%mib != 0 {
		return nil, fault.New(fault.Invalid, "memory: %d bytes are not a number of MiB", cfg.Memory)
	}
	n := &Node{cfg: cfg, quotas: quotas(cfg.Groups), log: log.With("component", "pool"), tasks: map[string]*task{}, arriving: map[string]*task{}, departed: map[*task]bool{}, moved: map[string]departure{}, holders: map[net.Conn]*task{}, gangs: map[int]*ganged{}, back: os.Getenv(backEnv)}
	_ = os.Unsetenv(backEnv)
	if h != nil && h.Format != HandoverFormat {
		return nil, fault.New(fault.Invalid, "a pool node hands over in form %d, and this program takes form %d", h.Format, HandoverFormat)
	}
	n.stopping, n.deaf = context.WithCancel(context.Background())
	if cfg.Member != nil {
		if len(cfg.Groups) > 0 {
			return nil, fault.New(fault.Invalid, "a pool node of a platform has no groups of its own")
		}
		n.member = &membership{boot: ulid.Make().String(), since: time.Now(), used: map[string]int64{}, begun: map[string]string{}, changed: make(chan struct{}, 1), limited: map[string]limited{}}
	}
	for _, at := range cfg.Listen {
		network, _, err := Address(at)
		if err != nil {
			return nil, err
		}
		switch {
		case Encrypts(at):
			return nil, fault.New(fault.Invalid, "%s: a pool node listens at tcp:HOST:PORT; whether that is encrypted is said for all it says over TCP", at)
		case strings.HasPrefix(at, rdma+":") && cfg.Encryption:
			return nil, fault.New(fault.Invalid, "%s: a pool node that encrypts offers no RDMA: cards of networks write to memory by themselves, and do not encrypt", at)
		}
		if network == "tcp" && len(cfg.Groups) == 0 && cfg.Member == nil {
			return nil, fault.New(fault.Invalid, "%s: a pool node that others reach needs groups, whose keys they show", at)
		}
	}
	var err error
	if n.cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, err
	}
	if err := n.takeLock(h); err != nil {
		return nil, err
	}
	n.notice() // before it looks: what comes while it does is not missed
	if err := n.open(h); err != nil {
		if n.notices != nil {
			_ = n.notices.Close()
		}
		n.unlock()
		return nil, err
	}
	return n, nil
}

// open finds the devices, and opens the addresses or takes over what there is.
func (n *Node) open(h *handover) (err error) {
	cfg := n.cfg
	if n.program, err = unpack(n.cfg.Dir, workerProgram); err != nil {
		return err
	}
	if err := makeCaches(n.cfg.Dir); err != nil {
		return err
	}
	if between.Landlock() == 0 {
		n.log.Warn("this kernel has no Landlock: programs may see files that the node's user may read")
	}
	if !seccomp.Has() {
		n.log.Warn("this kernel has no seccomp: programs whose kernels are code of their worker, as on processors, may reach services of this machine")
	}
	n.readNames()
	n.makers = newMakers(n.program, cfg.Libraries, cfg.Dir)
	if h != nil {
		if err := errors.Join(n.takeDevices(h), n.takeListeners(h), n.take(h)); err != nil {
			return err
		}
	}
	if err := n.Rescan(); err != nil {
		if h == nil || !h.returned {
			return err
		}
		n.log.Warn("devices not looked for", "error", err) // what computes goes on
	}
	for _, id := range slices.Concat(cfg.Concurrent, slices.Sorted(maps.Keys(cfg.Power))) {
		if !slices.ContainsFunc(n.devices, func(d *device) bool { return d.ID == id }) {
			n.log.Warn("no such device for now", "device", id) // it may come
		}
	}
	if h != nil {
		n.listenShared() // none is handed over
		return nil
	}
	if len(n.devices) == 0 {
		return fault.New(fault.NotFound, "neither OpenCL nor CUDA shows a device on this machine; a vendor's driver is missing")
	}
	for _, at := range cfg.Listen {
		network, address, _ := Address(at) // checked above
		if strings.HasPrefix(at, rdma+":") {
			if err := n.checkRDMA(address); err != nil {
				n.closeListeners()
				return fault.Wrap(fault.Invalid, err, "cannot listen at %s", at)
			}
		}
		if network == "unix" {
			if c, err := net.Dial(network, address); err == nil {
				_ = c.Close()
				n.closeListeners()
				return fault.New(fault.Exists, "another pool node listens at %s", at)
			}
			if i, err := os.Lstat(address); err == nil && i.Mode().Type() != os.ModeSocket {
				n.closeListeners()
				return fault.New(fault.Exists, "cannot listen at %s: what is there is no socket", at)
			}
			_ = os.Remove(address) // of one that was killed
		}
		l, err := net.Listen(network, address)
		if err == nil && network == "unix" {
			err = os.Chmod(address, 0o600)
		}
		if err != nil {
			n.closeListeners()
			return fault.Wrap(fault.Invalid, err, "cannot listen at %s", at)
		}
		n.listeners = append(n.listeners, l)
		if strings.HasPrefix(at, rdma+":") {
			n.rdma = append(n.rdma, l.Addr().String())
		}
	}
	n.listenShared()
	return nil
}

func (n *Node) closeListeners() {
	for _, l := range n.listeners {
		_ = l.Close()
	}
}

// Addresses are where the node listens, with the ports that were chosen.
func (n *Node) Addresses() []string {
	var out []string
	for _, l := range n.listeners {
		network, at := l.Addr().Network(), l.Addr().String()
		if at == n.shared() {
			continue // who is shown it finds it elsewhere
		}
		if slices.Contains(n.rdma, at) {
			network = rdma
		}
		out = append(out, n.Shown(network+":"+at))
	}
	return out
}

// Run serves until ctx is done. All tasks end with it.
func (n *Node) Run(ctx context.Context) error {
	n.acceptAll()
	n.mu.Lock()
	n.runs = true
	for _, do := range n.later {
		n.work.Go(do)
	}
	n.mu.Unlock()
	n.work.Go(func() { n.watch(ctx) })
	for _, d := range n.makers.drivers {
		n.work.Go(func() { n.ask(ctx, d) })
	}
	n.work.Go(func() { n.weigh(ctx) })
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	tidied := time.Time{}
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case now := <-tick.C:
			n.expire(now)
			n.mu.Lock()
			n.measure(now)
			n.mu.Unlock()
			if now.Sub(tidied) >= tidyEvery {
				tidied = now
				n.tidy(now)
				n.spare()
			}
		}
	}
	n.closeListeners()
	n.mu.Lock()
	n.closed = true
	tasks := n.sorted()
	n.mu.Unlock()
	for _, t := range tasks {
		n.end(t, "the pool node stops")
	}
	n.letFollow()
	n.mu.Lock()
	for t := range n.departed {
		t.kill()
		if t.chain != nil {
			t.chain.Close()
		}
	}
	n.mu.Unlock()
	n.deaf()
	n.work.Wait()
	for _, d := range n.devices {
		d.card.close()
	}
	n.unlock()
	return nil
}

func (n *Node) acceptAll() {
	for _, l := range n.listeners {
		n.accepting.Add(1)
		n.work.Go(func() { n.accept(l) })
	}
}

// expire ends tasks whose time is over.
func (n *Node) expire(now time.Time) {
	n.mu.Lock()
	tasks := n.sorted()
	n.mu.Unlock()
	for _, t := range tasks {
		_, active := t.device.turns.usage(&t.account)
		if active.Before(t.began) {
			active = t.began
		}
		if why := n.limits.Load().over(t.began, active, now); why != "" {
			n.end(t, Released+why)
			continue
		}
		switch {
		case !t.limit.IsZero() && now.After(t.limit):
			n.end(t, fmt.Sprintf(Released+RunTimeout+", it ran for its limit of %d s", t.spec.Limit))
		case t.spec.Idle > 0 && now.Sub(active) >= time.Duration(t.spec.Idle)*time.Second:
			n.end(t, fmt.Sprintf(Released+"idle timeout, it was not used for %d s", t.spec.Idle))
		}
	}
}

func (n *Node) sorted() []*task {
	var out []*task
	for _, t := range n.tasks {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *task) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// serve answers a connection, or hands it to a worker. shown is called once who it is has
// shown who it is, and known once what it has is known, too, if only by its end; both may
// be called again.
func (n *Node) serve(conn net.Conn, shown, known func()) {
	defer known()
	defer conn.Close()
	who := connected(conn)
	defer func() { who.close() }()
	hello := make([]byte, len(wire.Greeting)+wire.ChallengeSize)
	copy(hello, wire.Greeting)
	challenge := hello[len(wire.Greeting):]
	_, _ = rand.Read(challenge) // it does not fail
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	if _, err := conn.Write(hello); err != nil {
		return
	}
	kind := make([]byte, len(wire.DataGreeting))
	if _, err := io.ReadFull(conn, kind); err != nil {
		return
	}
	if string(kind) != wire.CUDAGreeting { // it is of no interest
		who.close()
		who = connection{}
	}
	sealed := string(kind) == wire.TLSGreeting
	if sealed {
		if _, err := io.ReadFull(conn, kind); err != nil {
			return
		}
	}
	if sealed != (n.cfg.Encryption && conn.LocalAddr().Network() == "tcp") {
		n.other(conn, string(kind), sealed)
		return
	}
	switch string(kind) {
	case wire.DataGreeting:
		n.data(conn, challenge, 0, sealed, known)
	case wire.MoveGreeting:
		n.data(conn, challenge, wire.SessionSize, sealed, known)
	case wire.BackGreeting:
		n.data(conn, challenge, wire.SessionSize+8, sealed, known)
	case wire.LaneGreeting:
		n.lane(conn, challenge, sealed, known)
	case wire.ControlHello:
		n.control(conn, challenge, sealed, shown, known)
	case wire.CUDAGreeting:
		if !sealed {
			n.cuda(conn, challenge, who, known)
			return
		}
		fallthrough
	default:
		n.log.Warn("connection refused", "from", conn.RemoteAddr().String(), "reason", "it is not a pool's client")
	}
}

// data gives a program's connection to a worker and waits until that ends. More
// is what comes beside the task's ID: of a program that is moved here its
// session, of one that follows also how many messages it sent elsewhere.
func (n *Node) data(conn net.Conn, challenge []byte, more int, sealed bool, known func()) {
	b := make([]byte, wire.TaskIDSize+more+wire.MACSize)
	if _, err := io.ReadFull(conn, b); err != nil {
		return
	}
	said, mac := b[:len(b)-wire.MACSize], b[len(b)-wire.MACSize:]
	id := string(b[:wire.TaskIDSize])
	proves := func(token []byte) bool { return hmac.Equal(mac, helloMAC(token, challenge, said, sealed)) }
	var hello []byte // of a connection that is to be encrypted
	if sealed {
		hello = slices.Clone(mac)
	}
	n.mu.Lock()
	for t := n.tasks[id]; more == 0 && t != nil && t.moving != nil && proves(t.token); t = n.tasks[id] { // a program that starts now starts where the task is then
		settled := t.moving
		n.mu.Unlock()
		<-settled
		_ = conn.SetDeadline(time.Now().Add(helloTime)) // that may have taken long
		n.mu.Lock()
	}
	t := n.tasks[id]
	if x := n.arriving[id]; x != nil && more > 0 && (more == wire.SessionSize || x.linkOf(said[wire.TaskIDSize:]) != nil) {
		t = x
	}
	gone, isGone := n.moved[id]
	switch {
	case t != nil && proves(t.token):
	case t == nil && isGone && more == 0 && proves(gone.token):
		n.mu.Unlock()
		n.redirect(conn, gone, hello)
		return
	default:
		t = nil
	}
	if t != nil && more > wire.SessionSize {
		n.mu.Unlock()
		n.attach(conn, t, said[wire.TaskIDSize:], hello)
		return
	}
	slot, h, p, why := -1, &holder{task: id, used: time.Now()}, &proc{}, "the pool node has no such task with this token"
	var cmd *exec.Cmd
	var l *link
	if t != nil && (t.device.API == OpenCL || more == 0) {
		if t.device.Gone { // its place among those of its driver may be another's
			why = fmt.Sprintf("device %s is gone", t.Device)
		} else if slot = slices.Index(t.workers[:], nil); slot < 0 {
			why = fmt.Sprintf("task %s has %d programs, as many as it may have", id, between.Slots)
		} else if !t.device.card.add(h) {
			slot, why = -1, fmt.Sprintf("device %s has %d programs, as many as it may have", t.Device, between.Slots)
		}
	}
	if slot >= 0 {
		l = n.linkTo(t, p)
		how := "serve"
		if more > 0 {
			how, l.session = "receive", said[wire.TaskIDSize:]
		}
		what := []string{how, strconv.Itoa(t.device.platform), strconv.Itoa(t.device.index)}
		if t.device.API == CUDA {
			what = []string{"serve-cuda", t.device.UUID, n.cfg.Libraries}
		}
		cmd = exec.Command(n.program, append(what, strconv.Itoa(slot), strconv.Itoa(h.slot))...)
		l.user, l.holder = n.userOf(t, l), h
		t.workers[slot], t.links[slot] = p, l
	}
	n.mu.Unlock()
	if slot < 0 {
		n.log.Warn("connection refused", "from", conn.RemoteAddr().String(), "task_id", id, "reason", why)
		refuse(conn, why)
		return
	}
	var err error
	if more > 0 || sealed {
		err = accept(conn, sealed)
	}
	_ = conn.SetDeadline(time.Time{}) // of one that has ended the worker hears
	if err == nil {
		if err = n.startWorker(conn, hello, t, cmd, p, l); err == nil {
			known()
			err = n.listen(t, p, l, h)
		}
	}
	n.ended(t, slot, l, h, err)
}

// handle answers what makes no task. The caller has the lock.
func (n *Node) handle(g *Group, q request) (reply, error) {
	switch q.Op {
	case "devices":
		return reply{Devices: n.listDevices(g)}, nil
	case "tasks":
		out := []Task{}
		for _, t := range n.sorted() {
			if g.owns(t.Group) {
				out = append(out, t.show())
			}
		}
		return reply{Tasks: out}, nil
	case "resize":
		return n.resize(g, q)
	case "stop":
		t, err := n.find(g, q.Task)
		if err != nil {
			return reply{}, err
		}
		why := "it was stopped"
		if g != nil && g.Name != t.Group {
			why += " by group " + g.Name
		}
		n.endLocked(t, why)
		return reply{}, nil
	case "enable", "disable":
		for _, d := range n.devices {
			if d.ID == q.Device {
				d.Disabled = q.Op == "disable"
				n.log.Info("device changed", "device", d.ID, "disabled", d.Disabled)
				return reply{}, nil
			}
		}
		return reply{}, fault.New(fault.NotFound, "there is no device %q", q.Device)
	}
	return reply{}, fault.New(fault.Invalid, "there is no request %q", q.Op)
}

// free unmaps the page of a task that has ended when no worker counts there any more.
func (t *task) free() {
	if !t.over || t.mapped == nil || slices.ContainsFunc(t.workers[:], func(c *proc) bool { return c != nil }) {
		return
	}
	_ = t.page.Close() // it is memory: there is nothing to lose
	_ = unix.Munmap(t.mapped)
	t.mapped = nil
}

func (t *task) show() Task {
	out := t.Task
	out.Memory, out.Used = int64(t.memory.Limit()), int64(t.memory.Used())
	out.Resident, out.Swaps = t.device.card.usage(t.ID)
	for _, w := range t.workers {
		if w != nil {
			out.Programs++
		}
	}
	out.Busy, _ = t.device.turns.usage(&t.account)
	return out
}

func (n *Node) listDevices(g *Group) []Device {
	out := []Device{}
	for _, d := range n.devices {
		if !g.administers() && !g.uses(d.ID) {
			continue
		}
		x := d.Device
		x.Compute, x.Allotted, x.Tasks = n.allotted(func(t *task) bool { return t.device == d })
		x.Resident = d.card.resident()
		out = append(out, x)
	}
	return n.makers.tell(out, g.administers() || len(g.Devices) == 0)
}

// allotted is what tasks have together. Weights are of what there is, so they are not counted.
func (n *Node) allotted(of func(*task) bool) (compute, memory int64, tasks int) {
	for _, all := range []map[string]*task{n.tasks, n.arriving} {
		for _, t := range all {
			if of(t) {
				if tasks++; !t.Weighted {
					compute += t.Compute
				}
				memory += int64(t.memory.Limit())
			}
		}
	}
	return compute, memory, tasks
}

func (n *Node) find(g *Group, id string) (*task, error) {
	t := n.tasks[id]
	if m, ok := n.moved[id]; t == nil && ok && g.owns(m.group) {
		return nil, fault.New(fault.NotFound, "task %s has moved to the pool node at %s", id, m.to)
	}
	if t == nil || !g.owns(t.Group) {
		return nil, fault.New(fault.NotFound, "there is no task %q", id)
	}
	return t, nil
}

// maxOver is what tasks may have of a device together at most, in percent of what it has.
const maxOver = 10_000

// lends is how much memory of a device tasks may have together: a task has at
// most what there is.
func (n *Node) lends(d *device) int64 {
	if d.API == CUDA && !d.Pages { // what is on it is in programs' hands, and stays there
		return d.Memory
	}
	return d.Memory * n.cfg.MemoryOver / 100
}

// crowded reports whether what tasks have of a device is more than it has: of CUDA, whose
// driver takes off what others need.
func (d *device) crowded() bool { return d.API == CUDA && d.card.memory.Used() > uint64(d.Memory) }

// room says whether a device and a group have what a task wants, beside what
// except has already. The caller has the lock.
func (n *Node) room(g *Group, d *device, compute, memory int64, weighted bool, except *task) error {
	if weighted {
		compute = 0
	}
	if x := n.twin(d); x != nil {
		return fault.New(fault.Exhausted, "device %s is the card that is lent as %s now", d.ID, x.ID)
	}
	c, m, _ := n.allotted(func(t *task) bool { return t != except && t.device == d })
	if c+compute > n.cfg.Overcommit {
		return fault.New(fault.Exhausted, "device %s has %d%% of its time left, %d%% wanted", d.ID, max(n.cfg.Overcommit-c, 0), compute)
	}
	if left := max(min(n.lends(d)-m, d.Memory), 0); memory > left {
		return fault.New(fault.Exhausted, "device %s has %d MiB of memory left, %d MiB wanted", d.ID, left/mib, memory/mib)
	}
	if g == nil {
		return nil
	}
	c, m, _ = n.allotted(func(t *task) bool { return t != except && t.Group == g.Name })
	if g.Compute > 0 && c+compute > g.Compute {
		return fault.New(fault.Exhausted, "the request exceeds the quota of group %s: %d%% of %d%% compute are left, %d%% wanted", g.Name, max(g.Compute-c, 0), g.Compute, compute)
	}
	if g.Memory > 0 && m+memory > g.Memory*mib {
		return fault.New(fault.Exhausted, "the request exceeds the quota of group %s: %d of %d MiB memory are left, %d MiB wanted", g.Name, max(g.Memory-m/mib, 0), g.Memory, memory/mib)
	}
	return nil
}

// run makes a task on the device that fits and has the fewest. The caller has the lock.
func (n *Node) run(g *Group, s Spec) (reply, error) {
	if err := s.check(); err != nil {
		return reply{}, err
	}
	if n.closed {
		return reply{}, fault.New(fault.Unavailable, "the pool node stops")
	}
	if s.Compute == 0 {
		s.Compute = 100
	}
	var best *device
	var bestTasks int
	var why error
	memory := s.Memory
	for _, d := range n.devices {
		switch {
		case s.Device != "" && s.Device != d.ID, s.Device == "" && d.API != cmp.Or(s.API, OpenCL), s.API != "" && d.API != s.API, !g.uses(d.ID),
			s.Model != "" && !strings.Contains(strings.ToLower(d.Model), strings.ToLower(s.Model)):
			continue
		case d.Disabled || d.Gone:
			why = fault.New(fault.Unavailable, "device %s is disabled or gone", d.ID)
			continue
		}
		_, m, tasks := n.allotted(func(t *task) bool { return t.device == d })
		want := s.Memory
		if want == 0 {
			if want = min(n.lends(d)-m, d.Memory) / mib * mib; g != nil && g.Memory > 0 {
				_, of, _ := n.allotted(func(t *task) bool { return t.Group == g.Name })
				want = min(want, g.Memory*mib-of)
			}
			want = max(want, mib)
		}
		if err := n.room(g, d, s.Compute, want, s.Weighted, nil); err != nil {
			why = err
			continue
		}
		if best == nil || tasks < bestTasks {
			best, bestTasks, memory = d, tasks, want
		}
	}
	switch {
	case best != nil:
	case why != nil:
		return reply{}, why
	case s.Device != "":
		return reply{}, fault.New(fault.NotFound, "there is no device %q%s", s.Device, map[bool]string{true: " of that model and api"}[s.Model != "" || s.API != ""])
	default:
		return reply{}, fault.New(fault.NotFound, "the pool node has no device of the model %q that programs use by %s", s.Model, cmp.Or(s.API, OpenCL))
	}
	t, err := newTask(best, s, memory)
	if err != nil {
		return reply{}, err
	}
	if g != nil {
		t.Group, t.account.quota = g.Name, n.quotaOf(g.Name)
	}
	t.memory.SetOver(best.API == CUDA && n.lends(best) > best.Memory)
	n.tasks[t.ID] = t
	n.log.Info("task started", "task_id", t.ID, "group", t.Group, "device", best.ID, "compute", t.Compute, "memory_bytes", memory)
	shown := t.show()
	return reply{Task: &shown, Token: hex.EncodeToString(t.token)}, nil
}

func newTask(d *device, s Spec, memory int64) (*task, error) {
	page, mapped, err := sharedPage("yunhe-pool-task")
	if err != nil {
		return nil, fmt.Errorf("memory of a task: %w", err)
	}
	now := time.Now()
	t := &task{
		Task:  Task{ID: ulid.Make().String(), Name: s.Name, Device: d.ID, API: d.API, Compute: s.Compute, Weighted: s.Weighted, Started: now.UTC().Truncate(time.Second)},
		began: now, token: make([]byte, 32), spec: s, device: d, page: page, mapped: mapped, memory: between.NewMemory(mapped, 0), done: make(chan struct{}), chainDone: make(chan struct{}),
	}
	if d.API == CUDA {
		t.UUID, t.Bus = d.UUID, d.Bus
	}
	_, _ = rand.Read(t.token) // it does not fail
	t.compute.Store(s.Compute)
	t.memory.SetLimit(uint64(memory))
	if s.Limit > 0 {
		t.limit = now.Add(time.Duration(s.Limit) * time.Second)
	}
	return t, nil
}

// beganAt is when a task began of which only the time of day is known.
func beganAt(started time.Time) time.Time {
	now := time.Now()
	return now.Add(-max(now.Sub(started), 0))
}

func (n *Node) resize(g *Group, q request) (reply, error) {
	t, err := n.find(g, q.Task)
	if err != nil {
		return reply{}, err
	}
	if t.parting {
		return reply{}, fault.New(fault.Unavailable, "task %s is moving just now: resize it when it is there", t.ID)
	}
	compute, memory := t.Compute, int64(t.memory.Limit())
	if q.Compute != 0 {
		compute = q.Compute
	}
	if q.Memory != 0 {
		memory = q.Memory
	}
	if err := (Spec{Compute: compute, Memory: memory}).check(); err != nil {
		return reply{}, err
	}
	if err := n.room(n.groupOf(t.Group), t.device, compute, memory, t.Weighted, t); err != nil {
		return reply{}, err
	}
	n.resizeLocked(t, compute, memory)
	shown := t.show()
	return reply{Task: &shown}, nil
}

func (n *Node) resizeLocked(t *task, compute, memory int64) {
	t.Compute = compute
	t.compute.Store(compute)
	t.memory.SetLimit(uint64(memory))
	n.log.Info("task resized", "task_id", t.ID, "slice_id", t.Slice, "device", t.Device, "compute", compute, "memory_bytes", memory)
}

// end ends a task and its workers.
func (n *Node) end(t *task, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.endLocked(t, why)
}

func (n *Node) endLocked(t *task, why string) {
	if n.tasks[t.ID] != t {
		return
	}
	delete(n.tasks, t.ID)
	busy := t.device.turns.close(&t.account)
	t.settle(busy)
	if t.Slice != "" {
		ended := EndedTask{t.Slice, why, busy, t.Energy}
		if t.came {
			n.member.brief = append(n.member.brief, brief{t.show(), ended})
		} else {
			n.member.ended = append(n.member.ended, ended)
		}
		n.changed()
	}
	n.finish(t, why)
	n.log.Info("task ended", "task_id", t.ID, "slice_id", t.Slice, "device", t.Device, "reason", why)
}

// finish ends a task that is none of the node's any more. The caller has the lock.
func (n *Node) finish(t *task, why string) {
	t.why, t.over = why, true
	close(t.done)
	t.kill()
	t.free()
	n.dropGone()
}
