package pool

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/cards"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// A program of CUDA on the node's machine has the driver in its own process, and
// before it a library (shim/cuda) that asks the node for memory and turns. The node
// counts both; the program maps none of its pages, and is told no limit but by the
// answers. What it has is given back when its process has ended, which the node
// sees for itself: only then has the driver given it back, too.
//
// A program elsewhere has a worker, as programs of OpenCL have (worker/cuda).

// What such a program and the node say to each other beside turns.
const (
	cudaHello  = 'H' // node: the task is the program's; text: where the device is
	cudaRefuse = 'F' // node: it is not; text: why
	cudaTake   = 'T' // program: so many bytes; node: 1, they are its, or 0
	cudaGive   = 'B' // program: so many bytes are free
	cudaAsk    = 'Q' // program: what is there? node: cudaLimit and cudaUsed
	cudaLimit  = 'L'
	cudaUsed   = 'U'
	cudaPages  = 'P' // node: memory of functions that say nothing else is to be such that the driver can move it to the host
)

const (
	// cudaLook is how often the node looks whether a program that says nothing is there.
	cudaLook = 500 * time.Millisecond
	// cudaUnread is how many answers a program may leave unread.
	cudaUnread = 256
)

// listCUDA asks a process of its own: the driver may end it, or hang. One that has to
// wake its cards takes a second or more for each.
func listCUDA(ctx context.Context, dir, program, folder string) ([]cards.CUDA, error) {
	ctx, cancel := context.WithTimeout(ctx, listsWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "cuda", folder)
	cmd.Env, cmd.WaitDelay = workerEnv(dir, nodes), time.Second
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, fmt.Errorf("the driver of CUDA did not answer in %s", listsWithin)
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) { // as in list
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	return cards.ReadCUDA(out)
}

// cudaEnv is what the environment of a worker has for a device of CUDA: the folder
// of the driver, which it may read and whose other libraries the driver looks for,
// and the device as the only one.
func (n *Node) cudaEnv(d *device) []string {
	env := []string{"CUDA_VISIBLE_DEVICES=" + d.UUID}
	if n.cfg.Libraries != "" {
		env = append(env, "LD_LIBRARY_PATH="+strings.TrimSuffix(n.cfg.Libraries+":"+os.Getenv("LD_LIBRARY_PATH"), ":"))
	}
	return env
}

// twin is the device of the other interface that is the same card and has tasks;
// nil: none. The caller has the lock.
func (n *Node) twin(d *device) *device {
	for _, x := range n.devices {
		if x == d || d.Bus == "" || x.Bus != d.Bus || x.API == d.API {
			continue
		}
		if _, _, tasks := n.allotted(func(t *task) bool { return t.device == x }); tasks > 0 {
			return x
		}
	}
	return nil
}

// cuda serves a program of CUDA, until its process has ended.
func (n *Node) cuda(conn net.Conn, challenge []byte, who connection, known func()) {
	b := make([]byte, wire.TaskIDSize+wire.MACSize)
	if _, err := io.ReadFull(conn, b); err != nil {
		return
	}
	id, mac := string(b[:wire.TaskIDSize]), b[wire.TaskIDSize:]
	err := who.err
	if err == nil {
		err = n.cudaProgram(conn, challenge, id, mac, who.p, known)
	}
	if err != nil {
		n.log.Warn("connection refused", "task_id", id, "reason", err)
		_, _ = conn.Write(between.PutText(cudaRefuse, []byte(err.Error()))) // it goes away anyhow
	}
}

func (n *Node) cudaProgram(conn net.Conn, challenge []byte, id string, mac []byte, p *outsider, known func()) error {
	u := &cudaUser{conn: conn, p: p, said: make(chan []byte, cudaUnread)}
	slot, h := -1, &holder{task: id, used: time.Now(), say: u.say, kill: p.kill}
	n.mu.Lock()
	t := n.tasks[id]
	switch {
	case t == nil || !hmac.Equal(mac, proof(t.token, challenge, []byte(id))):
		n.mu.Unlock()
		return errors.New("the pool node has no such task with this token")
	case t.device.API != CUDA:
		n.mu.Unlock()
		return fmt.Errorf("the task is on device %s, which is lent to programs of OpenCL", t.Device)
	}
	if slot = slices.Index(t.workers[:], nil); slot < 0 || !t.device.card.add(h) {
		n.mu.Unlock()
		return errors.New("the task has too many programs")
	}
	t.workers[slot] = &proc{outside: p}
	g := n.joinGang(p.pid, t)
	n.mu.Unlock()
	u.t, u.holder, u.own, u.card = t, h, between.NewMemory(t.mapped, slot), between.NewMemory(t.device.card.mapped, h.slot)
	u.user = &user{account: &t.account, share: t.compute.Load, weighted: func() bool { return t.Weighted }, say: u.say, gang: g}
	_ = conn.SetDeadline(time.Time{})
	known()
	var told sync.WaitGroup
	told.Go(u.tell)
	u.put(between.PutText(cudaHello, []byte(t.device.Bus)))
	if t.memory.Over() {
		u.say(cudaPages, 1)
	}
	t.device.turns.add(u.user)
	err := u.listen()
	t.device.turns.remove(u.user)
	_ = conn.Close()
	p.wait(n.stopping)
	t.device.card.gone(h, true)
	close(u.said)
	told.Wait()
	n.mu.Lock()
	n.leaveGang(p.pid)
	t.workers[slot] = nil
	t.memory.Reap(slot)
	t.free()
	n.mu.Unlock()
	n.log.Info("program ended", "task_id", t.ID, "slice_id", t.Slice, "device", t.Device, "error", err)
	return nil
}

// ganged is a process of CUDA that is connected.
type ganged struct {
	gang  *gang
	times int
}

// joinGang counts a process at a task: all that have a task in common, by whatever
// process, are one gang. The caller has the lock.
func (n *Node) joinGang(pid int, t *task) *gang {
	g := n.gangs[pid]
	if g == nil {
		if t.gang == nil {
			t.gang = &gang{}
		}
		g = &ganged{gang: t.gang}
		n.gangs[pid] = g
	}
	t.gang = g.gang
	g.times++
	return g.gang
}

// leaveGang takes that back. The caller has the lock.
func (n *Node) leaveGang(pid int) {
	if g := n.gangs[pid]; g.times == 1 {
		delete(n.gangs, pid)
	} else {
		g.times--
	}
}

// cudaUser is a program of CUDA.
type cudaUser struct {
	conn      net.Conn
	p         *outsider
	t         *task
	user      *user
	holder    *holder
	own, card *between.Memory
	said      chan []byte
}

// put says something, without waiting: nobody waits for a program. One that does
// not listen is ended.
func (u *cudaUser) put(b []byte) {
	select {
	case u.said <- b:
	default:
		u.p.kill()
	}
}

func (u *cudaUser) say(what byte, d time.Duration) { u.put(between.Put(what, d)) }

func (u *cudaUser) tell() {
	for b := range u.said {
		_, _ = u.conn.Write(b) // of a program that is gone the end is seen by who listens
	}
}

// listen does what the program asks for, until it has ended.
func (u *cudaUser) listen() error {
	in, turns := bufio.NewReader(u.conn), u.t.device.turns
	for {
		_ = u.conn.SetReadDeadline(time.Now().Add(cudaLook))
		b, err := in.Peek(between.FrameSize)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !u.p.ended(0): // a child may have the connection still
			continue
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return err
		}
		what, word := b[0], binary.LittleEndian.Uint64(b[1:])
		_, _ = in.Discard(between.FrameSize) // it was read
		switch what {
		case between.Want:
			turns.want(u.user)
		case between.Done, between.More:
			turns.done(u.user, max(time.Duration(word), 0), what == between.More)
		case between.Room:
			if turns.fetching(u.user, u.own.Has()) {
				u.t.device.card.want(u.holder, 0)
			}
		case between.In:
			turns.loaded(u.user, between.SwapTurn*u.t.device.card.in(u.holder, time.Duration(word)))
		case cudaTake:
			u.say(cudaTake, time.Duration(u.take(word)))
		case cudaGive:
			word = min(word, u.own.Has())
			u.own.Give(word)
			u.card.Give(word)
		case cudaAsk:
			u.say(cudaLimit, time.Duration(u.own.Limit()))
			u.say(cudaUsed, time.Duration(u.own.Used()))
		default:
			return fmt.Errorf("the program says %q, which means nothing", what)
		}
	}
}

func (u *cudaUser) take(n uint64) int {
	if !u.own.Take(n) {
		return 0
	}
	if !u.card.Take(n) {
		u.own.Give(n)
		return 0
	}
	return 1
}

// outsider is a process that the node did not start.
type outsider struct {
	fd  int // -1: the kernel gives no descriptors of processes (before Linux 5.3, gVisor, some containers)
	pid int
	at  string // when it was started: a number is another's later
}

// connection is the process at the other end of a Unix socket, found when it connected:
// later its number may be another's.
type connection struct {
	p   *outsider // nil: it was not found,
	err error     // for this reason
}

// connected finds it.
func connected(conn net.Conn) connection {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return connection{err: fault.New(fault.Denied, "programs that have the driver of CUDA themselves run on the node's machine, and reach it by its Unix socket")}
	}
	who, err := peer(c)
	if err == nil && who.Pid == 0 {
		err = errors.New("the program's process cannot be seen from the pool node's")
	}
	if err != nil {
		return connection{err: err}
	}
	p, err := follow(int(who.Pid), func(pid, flags int) (int, error) {
		fd, err := peerProcess(c)
		if errors.Is(err, unix.ENOPROTOOPT) { // a kernel of before: by its number, which is its own yet
			return unix.PidfdOpen(pid, flags)
		}
		return fd, err // it has ended, and its number may be another's
	})
	if err != nil {
		return connection{err: fmt.Errorf("the program's process: %w", err)}
	}
	return connection{p: p}
}

func (c connection) close() {
	if c.p != nil {
		c.p.close()
	}
}

// peerProcess is a descriptor of the process that connected, whatever has its number now
// (Linux 6.5).
func peerProcess(c *net.UnixConn) (fd int, err error) {
	const peerPIDFD = 77 // SO_PEERPIDFD
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(s uintptr) { fd, err = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, peerPIDFD) }); e != nil {
		err = e
	}
	return fd, err
}

// follow finds a process that the node may end, as it must with the process's slice.
func follow(pid int, open func(pid, flags int) (int, error)) (*outsider, error) {
	fd, err := open(pid, 0)
	p := &outsider{fd: fd, pid: pid}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // as filters of containers say of calls that they do not know
		p.fd, err = -1, nil
		if p.at = p.started(); p.at == "" {
			err = unix.ESRCH
		}
	}
	if err != nil {
		return p, err
	}
	if err = p.signal(0); errors.Is(err, unix.EPERM) {
		err = errors.New("it is another user's, and the pool node could not end it with its slice: start the node as root")
	}
	if err != nil { // or it has ended
		p.close()
	}
	return p, err
}

// peer is the process at the other end of a Unix socket; its PID is 0 where the node
// does not see it.
func peer(c *net.UnixConn) (who *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		err = e
	}
	return who, err
}

// started says when the process was, "" when it has ended.
func (p *outsider) started() string {
	const state, at = 0, 19 // behind its name, which may hold anything
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if err != nil || len(f) <= at || f[state] == "Z" || f[state] == "X" {
		return ""
	}
	return f[at]
}

func (p *outsider) close() {
	if p.fd >= 0 {
		_ = unix.Close(p.fd)
	}
}

func (p *outsider) kill() { _ = p.signal(unix.SIGKILL) } // or it has ended

// signal sends the process a signal; 0 asks only whether the node may.
func (p *outsider) signal(s unix.Signal) error {
	switch {
	case p.fd >= 0:
		return unix.PidfdSendSignal(p.fd, s, nil, 0)
	case p.started() == p.at:
		return unix.Kill(p.pid, s)
	}
	return unix.ESRCH
}

// ended waits so long at most for the process to end.
func (p *outsider) ended(within time.Duration) bool {
	for until := time.Now().Add(within); p.fd >= 0; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int(max(time.Until(until), 0)/time.Millisecond))
		if !errors.Is(err, unix.EINTR) { // as the runtime does at times
			return n > 0 || err != nil
		}
	}
	const step = 10 * time.Millisecond
	for ; p.started() == p.at; within -= step {
		if within <= 0 {
			return false
		}
		<-time.After(step)
	}
	return true
}

// wait waits until the process has ended, or ctx is done.
func (p *outsider) wait(ctx context.Context) {
	for ctx.Err() == nil && !p.ended(cudaLook) {
	}
}
