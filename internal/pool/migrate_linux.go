package pool

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// A task moves with all its programs, or stays. The node it is at asks the
// other for the share (adopt), has each worker copy its program to one there,
// and when all are ready says that the task is the other's (arrived) and then
// tells the workers to go. A program that ends meanwhile is left out. Whatever
// fails before that leaves all as it was: the share at the other node ends with
// the connection it was asked for on.
//
// Who holds the task (the connection it was asked for on) is told, and holds it
// at the other node from then on. Who cannot reach that is held here, on behalf.
// Programs follow by themselves; until they do, what they say is passed on.

// link is a node's side of a worker.
type link struct {
	started chan struct{} // closed when turns is set, or there will be none
	turns   *net.UnixConn
	session []byte             // of a program that was moved here
	secret  bool               // it was told its task's token, so that it can encrypt
	said    chan between.Frame // about moving; closed when the worker is gone

	user   *user
	holder *holder
	dials  atomic.Int32  // connections that are made for it
	kill   func()        // ends the worker
	quiet  chan struct{} // told when the worker is not heard; closed when it is gone
	resume chan struct{} // it is to be heard again
}

func newLink(kill func()) *link {
	return &link{kill: kill, started: make(chan struct{}), said: make(chan between.Frame, 4), quiet: make(chan struct{}), resume: make(chan struct{}, 1)}
}

// put says something to the worker and waits for nothing: whoever says it may have
// locks that all wait for. A worker that leaves so much unread that there is no room
// is ended.
func (l *link) put(b, rights []byte) error {
	raw, err := l.turns.SyscallConn()
	if err != nil {
		return err
	}
	sent := 0
	if e := raw.Control(func(fd uintptr) {
		sent, err = unix.SendmsgN(int(fd), b, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}); e != nil {
		return e
	}
	if errors.Is(err, unix.EAGAIN) || err == nil && sent < len(b) {
		l.kill()
		err = errGone
	}
	return err
}

// say is put of what needs no answer: a worker that is gone needs nothing.
func (l *link) say(what byte, d time.Duration) { _ = l.put(between.Put(what, d), nil) }

// hand says something to the worker, with a connection that it gets.
func (l *link) hand(what byte, text []byte, conn net.Conn) error {
	file, err := conn.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return err
	}
	defer file.Close()
	if l.put(between.PutText(what, text), unix.UnixRights(int(file.Fd()))) != nil {
		return errGone // what else there is to go wrong on a socket pair
	}
	return nil
}

const (
	moveTime   = 10 * time.Minute // for a program to be copied
	keepsMoved = 1000             // tasks of which it is known where they went
)

// departure is where a task went.
type departure struct {
	to    string // "": it is at this node, elsewhere
	group string
	token []byte
}

func (n *Node) groupOf(name string) *Group {
	for i := range n.cfg.Groups {
		if n.cfg.Groups[i].Name == name {
			return &n.cfg.Groups[i]
		}
	}
	return nil
}

// way is how a task moves.
type way struct {
	here   bool   // it stays at this node
	device string // "": any
	key    string // that hides the task's token
	dial   func(ctx context.Context) (*Client, error)
}

// migrate moves a group's task.
func (n *Node) migrate(g *Group, q request) (reply, error) {
	n.mu.Lock()
	t, err := n.find(g, q.Task)
	n.mu.Unlock()
	if err != nil {
		return reply{}, err
	}
	w := way{here: q.To == "", device: q.Device}
	if group := n.groupOf(t.Group); group != nil {
		w.key = group.Key
	}
	at := q.To
	if w.here {
		at = n.Addresses()[0]
	}
	w.dial = func(ctx context.Context) (*Client, error) { return Dial(ctx, at, t.Group, w.key) }
	return n.move(t, w)
}

// move moves a task. It answers when the task is there, or is here as before.
func (n *Node) move(t *task, w way) (reply, error) {
	n.mu.Lock()
	var err error
	switch {
	case n.tasks[t.ID] != t:
		err = fault.New(fault.NotFound, "task %s has ended or moved", t.ID)
	case t.moving != nil:
		err = fault.New(fault.Unavailable, "task %s is being moved", t.ID)
	case t.device.API != OpenCL:
		err = fault.New(fault.Invalid, "task %s is on device %s: only programs of OpenCL move", t.ID, t.Device)
	}
	if err != nil {
		n.mu.Unlock()
		return reply{}, err
	}
	settled := make(chan struct{})
	t.moving = settled
	var links []*link
	for _, l := range t.links {
		if l != nil {
			links = append(links, l)
		}
	}
	a := adoption{Version: wire.MoveVersion, Task: t.show(), Spec: t.spec, Device: t.device.Device, Age: time.Since(t.began)}
	a.Spec.Device = w.device
	if !t.limit.IsZero() {
		a.Left = max(int64(time.Until(t.limit)/time.Second), 1)
	}
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		t.moving = nil
		n.mu.Unlock()
		close(settled)
	}()
	ctx, cancel := context.WithTimeout(n.stopping, moveTime)
	defer cancel()
	client, err := w.dial(ctx)
	if err != nil {
		return reply{}, err
	}
	if n.cfg.Encryption && !secret(client.at) {
		client.Close()
		return reply{}, fault.New(fault.Invalid, "task %s is at a pool node that encrypts, and the one at %s does not", t.ID, client.at)
	}
	a.Token = hex.EncodeToString(hide(w.key, client.challenge, t.ID, t.token))
	for late := time.Now().Add(forgets); ; <-time.After(20 * time.Millisecond) {
		if _, err = client.askSoon(request{Op: "adopt", Adopt: &a}); fault.KindOf(err) != fault.Exists || time.Now().After(late) {
			break
		}
	}
	if err != nil {
		client.Close()
		return reply{}, err
	}
	client.task, client.token = t.ID, t.token
	to := client.at
	if w.here {
		to = ""
	}
	shown, pause, err := n.moveTo(ctx, t, links, client, client.at, to)
	if err != nil {
		client.Close()
		n.log.Warn("task did not move", "task_id", t.ID, "to", client.at, "error", err)
		if errors.Is(err, errOver) {
			return reply{}, fault.New(fault.NotFound, "task %s has ended", t.ID)
		}
		return reply{}, fault.New(fault.Unavailable, "task %s was not moved and computes on where it is: %s", t.ID, err)
	}
	n.log.Info("task moved", "task_id", t.ID, "to", client.at, "pause", pause)
	return reply{Task: shown, Pause: pause}, nil
}

// forgets is how long a node takes at most to forget a task that was to move there and did not.
const forgets = 2 * time.Second

// moveTo has the workers move, and gives the task away.
func (n *Node) moveTo(ctx context.Context, t *task, links []*link, client *Client, at, to string) (*Task, time.Duration, error) {
	var moving []*link
	abort := func(err error) (*Task, time.Duration, error) {
		for _, l := range moving {
			l.say(between.Abort, 0)
		}
		n.mu.Lock()
		t.parting = false
		n.mu.Unlock()
		return nil, 0, err
	}
	for _, l := range links {
		<-l.started
		if l.turns == nil {
			continue
		}
		l.forget()
		session := make([]byte, wire.SessionSize)
		_, _ = rand.Read(session) // it does not fail
		conn, hello, err := dialWorker(ctx, at, wire.MoveGreeting, t.ID, t.token, session)
		if err == nil && hello != nil && !l.secret {
			_ = conn.Close()
			err = errors.New("a program's worker is of before the pool node was upgraded, and cannot encrypt")
		}
		if err != nil {
			return abort(err)
		}
		what, text := byte(between.Move), append(session, to...)
		if hello != nil {
			what, text = between.MoveSealed, append(hello, text...)
		}
		err = l.hand(what, text, conn)
		_ = conn.Close() // the worker has it
		if err == nil {
			moving = append(moving, l)
		} else if !errors.Is(err, errGone) {
			return abort(err)
		}
	}
	ready := moving[:0:0]
	for _, l := range moving {
		_, err := l.hear(ctx, between.Ready)
		if err == nil {
			ready = append(ready, l)
		} else if !errors.Is(err, errGone) { // else there is nothing of it to move any more
			return abort(err)
		}
	}
	moving = ready
	n.mu.Lock()
	over, now := n.tasks[t.ID] != t, Task{}
	if !over {
		now, t.parting = t.show(), true
	}
	n.mu.Unlock()
	if over {
		return abort(errOver)
	}
	r, err := client.askSoon(request{Op: "arrived", Task: t.ID, Adopt: &adoption{Task: now}})
	if err != nil {
		return abort(err)
	}
	if err := client.holds(); err != nil { // it is there now: it ends there, if it is not held
		n.log.Warn("task is not held where it has moved", "task_id", t.ID, "to", at, "error", err)
	}
	n.mu.Lock()
	if n.tasks[t.ID] == t {
		n.departLocked(t, to)
	}
	n.mu.Unlock()
	n.work.Go(func() { n.hold(t, client) })
	pause := time.Duration(0)
	for _, l := range moving {
		l.say(between.Commit, 0) // or it is gone, and with it its program
	}
	for _, l := range moving {
		if f, err := l.hear(ctx, between.Moved); err == nil {
			pause = max(pause, f.Time)
		} else {
			n.log.Warn("a program was lost when its task moved", "task_id", t.ID, "error", err)
		}
	}
	n.mu.Lock()
	for slot, l := range t.links {
		if slices.Contains(moving, l) && t.mapped != nil {
			t.memory.Reap(slot)
		}
	}
	n.mu.Unlock()
	return r.Task, pause, nil
}

var (
	errGone = errors.New("the program or its worker ended")
	errOver = errors.New("the task ended")
)

// forget forgets what a worker has said of a move that was given up.
func (l *link) forget() {
	for {
		select {
		case _, ok := <-l.said:
			if ok {
				continue
			}
		default:
		}
		return
	}
}

// hear waits for what a worker says of its move.
func (l *link) hear(ctx context.Context, what byte) (between.Frame, error) {
	for {
		select {
		case f, ok := <-l.said:
			switch {
			case !ok:
				return f, errGone
			case f.What == between.Failed:
				return f, fmt.Errorf("%s", f.Text)
			case f.What == what:
				return f, nil
			}
		case <-ctx.Done():
			return between.Frame{}, ctx.Err()
		}
	}
}

// dialWorker connects to a node for a worker there of a task; more, beside the task's ID, says
// for which. The hello is of a connection that is to be encrypted; nil: it is not.
func dialWorker(ctx context.Context, at, greeting, task string, token, more []byte) (conn net.Conn, hello []byte, err error) {
	network, address, err := Address(at)
	if err != nil {
		return nil, nil, err
	}
	if conn, err = (&net.Dialer{}).DialContext(ctx, network, address); err != nil {
		return nil, nil, err
	}
	encrypted := Encrypts(at)
	late := time.Now().Add(helloTime)
	if end, has := ctx.Deadline(); has && end.Before(late) {
		late = end
	}
	_ = conn.SetDeadline(late)
	greets := make([]byte, len(wire.Greeting)+wire.ChallengeSize)
	answer := make([]byte, wire.AnswerSize)
	if _, err = io.ReadFull(conn, greets); err == nil && string(greets[:len(wire.Greeting)]) != wire.Greeting {
		err = fault.New(fault.Unavailable, "there is no pool node of this version at %s", at)
	}
	if err == nil {
		said := append([]byte(task), more...)
		mac := helloMAC(token, greets[len(wire.Greeting):], said, encrypted)
		b := append(append([]byte(greeting), said...), mac...)
		if encrypted {
			b, hello = append([]byte(wire.TLSGreeting), b...), mac
		}
		if _, err = conn.Write(b); err == nil {
			_, err = io.ReadFull(conn, answer)
		}
	}
	if err == nil && binary.LittleEndian.Uint16(answer[8:]) != goesOn(encrypted) {
		err = fault.New(fault.Unavailable, "the pool node at %s does not take the program", at)
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	impatient(conn, stuck)
	return conn, hello, conn.SetDeadline(time.Time{})
}

func proof(token, challenge, text []byte) []byte {
	h := hmac.New(sha256.New, token)
	h.Write(challenge)
	h.Write(text)
	return h.Sum(nil)
}

// departLocked ends a task here: it is at another node, or is another here.
func (n *Node) departLocked(t *task, to string) {
	delete(n.tasks, t.ID)
	n.departed[t] = true
	n.moved[t.ID] = departure{to, t.Group, t.token}
	for len(n.moved) > keepsMoved {
		oldest := ""
		for id := range n.moved {
			if oldest == "" || id < oldest {
				oldest = id
			}
		}
		delete(n.moved, oldest)
	}
	t.movedTo, t.left, t.over = to, true, true
	t.free()
	close(t.done)
	n.dropGone()
}

// hold holds a task at another node as long as somebody holds it here who has
// not gone there, and tells them when it ends.
func (n *Node) hold(t *task, client *Client) {
	n.mu.Lock()
	t.chain = client
	none := t.holders == 0 || n.closed
	n.mu.Unlock()
	if none {
		client.Close()
	}
	go client.beat()
	t.chainEnd, _ = client.Ended() // if the node there is gone, that is all there is to say
	close(t.chainDone)
	n.mu.Lock()
	if n.moved[t.ID].to == t.movedTo && t.holders > 0 {
		delete(n.moved, t.ID)
	}
	n.forget(t)
	n.mu.Unlock()
	client.Close()
}

// leaves is how long a node that stops waits for programs, and who holds their
// tasks, to follow what has moved.
const leaves = 5 * time.Second

func (n *Node) letFollow() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(leaves); time.Now().Before(late); <-tick.C {
		n.mu.Lock()
		left := len(n.departed)
		n.mu.Unlock()
		if left == 0 {
			return
		}
	}
}

// forget ends what is kept of a task that has moved, if nothing goes through
// this node any more. The caller has the lock.
func (n *Node) forget(t *task) {
	select {
	case <-t.chainDone:
	default:
		return
	}
	if !slices.ContainsFunc(t.links[:], func(l *link) bool { return l != nil }) {
		delete(n.departed, t)
	}
}

// adopt makes a task as it is at another node, which its programs are then
// moved to. The caller has the lock.
func (n *Node) adopt(w guest, challenge []byte, a *adoption) (*task, error) {
	if a == nil {
		return nil, fault.New(fault.Invalid, "there is no task to take")
	}
	g := w.group
	if w.ticket != nil { // what the platform says of it counts
		if _, _, err := n.use(w.ticket); err != nil {
			return nil, err
		}
		s := w.ticket.Spec
		a.Spec.Device, a.Spec.Idle, a.Spec.Limit = s.Device, s.Idle, s.Limit
		a.Task.Compute, a.Task.Memory, a.Task.Weighted, a.Task.Name = s.Compute, s.Memory, s.Weighted, s.Name
	}
	if _, err := ulid.ParseStrict(a.Task.ID); err != nil || a.Task.Compute < 1 || a.Task.Memory < mib || a.Task.Busy < 0 || a.Left < 0 {
		return nil, fault.New(fault.Invalid, "what is said of task %q is not of a task", a.Task.ID)
	}
	a.Spec.Compute, a.Spec.Memory, a.Spec.Weighted, a.Spec.Name = a.Task.Compute, a.Task.Memory, a.Task.Weighted, a.Task.Name
	if err := a.Spec.check(); err != nil {
		return nil, err
	}
	token, err := hex.DecodeString(a.Token)
	if err != nil || len(token) != sha256.Size {
		return nil, fault.New(fault.Invalid, "the task's token is not of the pool's form")
	}
	token = hide(w.key(), challenge, a.Task.ID, token)
	old := n.tasks[a.Task.ID]
	switch {
	case n.closed:
		return nil, fault.New(fault.Unavailable, "the pool node stops")
	case a.Version != wire.MoveVersion:
		return nil, fault.New(fault.Invalid, "programs move in form %d here, and in form %d there: both nodes must be of one version", wire.MoveVersion, a.Version)
	case n.arriving[a.Task.ID] != nil, old != nil && (old.moving == nil || !hmac.Equal(old.token, token)):
		return nil, fault.New(fault.Exists, "there is a task %s", a.Task.ID)
	}
	var best *device
	var why error = fault.New(fault.NotFound, "there is no device %q", a.Spec.Device)
	if a.Spec.Device == "" {
		why = fault.New(fault.NotFound, "no device is %s with the driver %s", a.Device.Model, a.Device.Driver)
	}
	for _, d := range n.devices {
		if a.Spec.Device != "" && d.ID != a.Spec.Device || !g.uses(d.ID) || old != nil && a.Spec.Device == "" && old.device == d {
			continue
		}
		switch x := a.Device; {
		case d.Model != x.Model || d.Vendor != x.Vendor || d.Driver != x.Driver || d.Version != x.Version:
			if a.Spec.Device != "" {
				why = fault.New(fault.Invalid, "device %s is %s with the driver %s; the task's is %s with the driver %s: both must be the same", d.ID, d.Model, d.Driver, x.Model, x.Driver)
			}
		case d.Disabled || d.Gone:
			why = fault.New(fault.Unavailable, "device %s is disabled or gone", d.ID)
		default:
			var err error
			if w.ticket == nil { // otherwise the platform counts
				err = n.room(g, d, a.Task.Compute, a.Task.Memory, a.Task.Weighted, old)
			}
			if err != nil {
				why = err
			} else if best == nil {
				best = d
			}
		}
	}
	if best == nil {
		return nil, why
	}
	t, err := newTask(best, a.Spec, a.Task.Memory)
	if err != nil {
		return nil, err
	}
	t.ID, t.token, t.Started, t.Busy, t.account.used, t.account.active = a.Task.ID, token, a.Task.Started, a.Task.Busy, a.Task.Busy, time.Now()
	if t.began = beganAt(t.Started); a.Age > 0 {
		t.began = time.Now().Add(-a.Age)
	}
	if a.Left > 0 {
		t.limit = time.Now().Add(time.Duration(a.Left) * time.Second)
	}
	if g != nil {
		t.Group, t.account.quota = g.Name, n.quotaOf(g.Name)
	}
	if w.ticket != nil {
		t.Group, t.Slice, t.account.quota = w.ticket.Group, w.ticket.Slice, n.quotaOf(w.ticket.Group)
	}
	n.arriving[t.ID] = t
	return t, nil
}

// arrive makes a task that was adopted this node's, as it is now; nil: as it was then.
// The caller has the lock.
func (n *Node) arrive(g *Group, t *task, now *adoption) (reply, error) {
	if t == nil || n.arriving[t.ID] != t {
		return reply{}, fault.New(fault.NotFound, "no task was taken on this connection")
	}
	if now != nil {
		compute, memory := now.Task.Compute, now.Task.Memory
		if err := (Spec{Compute: compute, Memory: memory}).check(); err != nil {
			return reply{}, err
		}
		if compute > t.Compute || memory > int64(t.memory.Limit()) { // it was resized meanwhile
			if err := n.room(g, t.device, compute, memory, t.Weighted, t); err != nil {
				return reply{}, err
			}
		}
		n.resizeLocked(t, compute, memory)
		t.device.turns.spent(&t.account, now.Task.Busy-t.Busy)
		t.Energy = now.Task.Energy
		t.counted(now.Task.Busy)
	}
	if old := n.tasks[t.ID]; old != nil {
		n.departLocked(old, "")
	}
	delete(n.arriving, t.ID)
	delete(n.moved, t.ID)
	n.tasks[t.ID] = t
	if t.Slice != "" {
		t.came = true
		n.changed()
	}
	n.log.Info("task came", "task_id", t.ID, "group", t.Group, "device", t.device.ID, "compute", t.Compute)
	shown := t.show()
	return reply{Task: &shown}, nil
}

// linkOf returns the worker of a program that was moved here; said begins with its session.
func (t *task) linkOf(said []byte) *link {
	for _, l := range t.links {
		if l != nil && l.turns != nil && string(l.session) == string(said[:wire.SessionSize]) {
			return l
		}
	}
	return nil
}

// attach gives the connection of a program that has followed to its worker.
// Said are the program's session and how many messages it sent elsewhere.
// A hello is of a connection that is to be encrypted; nil: it is not.
func (n *Node) attach(conn net.Conn, t *task, said, hello []byte) {
	n.mu.Lock()
	l := t.linkOf(said)
	n.mu.Unlock()
	if l == nil || hello != nil && !l.secret {
		refuse(conn, "the pool node has no such program")
		return
	}
	what, text := byte(between.Attach), said[wire.SessionSize:]
	if hello != nil {
		what, text = between.AttachSealed, append(hello, text...)
	}
	if accept(conn, hello != nil) == nil && conn.SetDeadline(time.Time{}) == nil {
		_ = l.hand(what, text, conn) // or the worker is gone, and the connection ends
	}
}

func refuse(conn net.Conn, text string) {
	head := make([]byte, wire.AnswerSize, wire.AnswerSize+len(text))
	wire.PutAnswer(head, wire.OpRefused, 0, 0, 0, 0, 0, len(text))
	_, _ = conn.Write(append(head, text...)) // it goes away anyhow
}

// lasts tells who holds a task where it goes and when it ends, until either.
func (n *Node) lasts(t *task, conn net.Conn, out *json.Encoder, gone <-chan struct{}) {
	impatient(conn, silent)
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	until := func(done <-chan struct{}) bool {
		for {
			select {
			case <-done:
				return true
			case <-gone:
				return false
			case <-beat.C:
				_ = conn.SetWriteDeadline(time.Now().Add(beatEvery)) // who does not read is not waited for
				_, _ = conn.Write([]byte{'\n'})                      // who reads hears of an error
			}
		}
	}
	if !until(t.done) {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(helloTime))
	if !t.left {
		_ = out.Encode(reply{Ended: t.why}) // if it is gone, it knows
		return
	}
	if out.Encode(reply{Moved: movedText(t.movedTo)}) != nil {
		return
	}
	if until(t.chainDone) { // else it holds the task there
		_ = conn.SetWriteDeadline(time.Now().Add(helloTime))
		_ = out.Encode(reply{Ended: t.chainEnd}) // as above
	}
}

// guest is who a connection proved to be: of a group, with a ticket, or who holds
// a task; none of these where everybody may use the node.
type guest struct {
	group  *Group
	ticket *Ticket
	task   string
	local  bool   // it came by the Unix socket, and from no container
	secret []byte // by which it proved that
}

// key is what its connection's tokens are hidden by.
func (w guest) key() string {
	switch {
	case w.ticket != nil:
		return w.ticket.key
	case w.group != nil:
		return w.group.Key
	}
	return ""
}

// allows reports whether the ticket is for what is asked.
func (t *Ticket) allows(op string, own *task) bool {
	if t.Move {
		return op == "adopt" && own == nil || op == "arrived" && own != nil
	}
	return op == "run" && own == nil
}

// administration is what only who administers a node asks for.
var administration = []string{"enable", "disable", "rescan", "power"}

// answer does what is asked; mine is the task that the connection holds from then on.
func (n *Node) answer(w guest, challenge []byte, q request, own *task) (r reply, mine *task, err error) {
	g := w.group
	switch {
	case (q.Op == "hold") != (w.task != ""), w.task != "" && q.Task != w.task:
		return r, nil, fault.New(fault.Denied, "a task is held by who has its token, who may do nothing else")
	case w.ticket != nil && !w.ticket.allows(q.Op, own):
		return r, nil, fault.New(fault.Denied, "a ticket is for one task")
	case w.ticket == nil && w.task == "" && n.member != nil && q.Op != "devices" && q.Op != "tasks" && q.Op != "rescan" && q.Op != "power":
		return r, nil, fault.New(fault.Denied, "the pool node belongs to a platform, which lends its devices: ask that")
	}
	if g == nil && !w.local && slices.Contains(administration, q.Op) {
		n.log.Warn("request refused", "request", q.Op, "device", q.Device, "reason", "it comes from a container")
		return r, nil, fault.New(fault.Denied, "a pool node without groups is administered from its machine, not from a container there")
	}
	if g != nil && slices.Contains(administration, q.Op) {
		if !g.administers() {
			n.log.Warn("request refused", "group", g.Name, "request", q.Op, "device", q.Device)
			return r, nil, fault.New(fault.Denied, "group %s does not administer the pool node: one does of which the groups file says admin: true", g.Name)
		}
		defer func(op string) {
			if err == nil {
				n.log.Info("pool node administered", "group", g.Name, "request", op, "device", q.Device)
			}
		}(q.Op)
	}
	if q.Op == "rescan" {
		if err := n.Rescan(); err != nil {
			return r, nil, err
		}
		q.Op = "devices"
	}
	if q.Op == "power" {
		return r, nil, n.limitPower(q.Device, q.Watts)
	}
	if q.Op == "migrate" {
		r, err = n.migrate(g, q)
		return r, nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch q.Op {
	case "run", "adopt", "hold":
		if own != nil {
			return r, nil, fault.New(fault.Invalid, "this connection has a task already")
		}
	case "arrived":
		r, err = n.arrive(g, own, q.Adopt)
		return r, nil, err
	}
	switch q.Op {
	case "run":
		if w.ticket != nil {
			r, err = n.admit(w.ticket)
		} else {
			r, err = n.run(g, q.Spec)
		}
		if err == nil {
			mine = n.tasks[r.Task.ID]
			if r.Hidden = q.Hidden; q.Hidden {
				r.Token = hex.EncodeToString(hide(w.key(), challenge, mine.ID, mine.token))
			}
		}
	case "adopt":
		mine, err = n.adopt(w, challenge, q.Adopt)
	case "hold":
		if mine, err = n.find(g, q.Task); err == nil {
			n.log.Info("client followed its task", "task_id", mine.ID)
		}
	default:
		r, err = n.handle(g, q)
	}
	if mine != nil {
		mine.holders++
	}
	return r, mine, err
}

// unhold ends that a connection holds a task: it ends with the last, and why.
func (n *Node) unhold(t *task, conn net.Conn, why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.holders, conn)
	if t.holders--; t.holders > 0 {
		return
	}
	if n.arriving[t.ID] == t {
		delete(n.arriving, t.ID)
		n.finish(t, "it did not come")
	}
	n.endLocked(t, why)
	if t.chain != nil {
		t.chain.Close()
	}
}

// kill ends the workers of a task.
func (t *task) kill() {
	for _, w := range t.workers {
		if w != nil {
			w.kill()
		}
	}
}
