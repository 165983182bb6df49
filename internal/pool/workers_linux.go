package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/between"
)

// ended forgets a worker.
func (n *Node) ended(t *task, slot int, l *link, h *holder, err error) {
	t.device.card.gone(h, true)
	n.mu.Lock()
	if l.turns == nil {
		close(l.started)
		close(l.quiet)
		close(l.said)
	}
	t.workers[slot], t.links[slot] = nil, nil
	if t.mapped != nil {
		t.memory.Reap(slot)
	}
	t.free()
	n.forget(t)
	over := t.over
	n.mu.Unlock()
	level := slog.LevelInfo
	if err != nil && !over { // else it was ended, if it did not end before
		level = slog.LevelWarn
	}
	n.log.Log(context.Background(), level, "program ended", "task_id", t.ID, "slice_id", t.Slice, "device", t.Device, "error", err)
}

// proc is a worker's process.
type proc struct {
	process *os.Process // nil: it has not started
	outside *outsider   // nil: it is the node's child
	errors  *os.File    // what it says goes wrong
	said    head
	read    chan struct{} // closed when that has ended
}

// follow follows a process that has started.
func (p *proc) follow(process *os.Process, errs *os.File) {
	p.process, p.errors, p.read = process, errs, make(chan struct{})
	go func() {
		defer close(p.read)
		_, _ = io.Copy(&p.said, errs) // until the process has ended
	}()
}

func (p *proc) kill() {
	if p.process != nil {
		_ = p.process.Kill() // or it has ended
	}
	if p.outside != nil {
		p.outside.kill()
	}
}

// wait waits until the process has ended. What it had started (drivers have others
// compile and link) may live on, with the same place to write to: that keeps nobody waiting.
func (p *proc) wait() error {
	state, err := p.process.Wait()
	late := time.NewTimer(lastWords)
	defer late.Stop()
	select {
	case <-p.read:
	case <-late.C:
	}
	_ = p.errors.Close()
	if err == nil && !state.Success() {
		err = errors.New(state.String())
	}
	if text := strings.TrimSpace(p.said.String()); err != nil && text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// userOf is a worker as the arbiter sees it.
func (n *Node) userOf(t *task, l *link) *user {
	return &user{account: &t.account, share: t.compute.Load, weighted: func() bool { return t.Weighted }, say: l.say}
}

// linkTo is how the node speaks to a worker of a task.
func (n *Node) linkTo(t *task, p *proc) *link {
	return newLink(sync.OnceFunc(func() {
		n.log.Warn("program ended: its worker does not listen", "task_id", t.ID, "device", t.Device)
		p.kill()
	}))
}

// startWorker starts a worker, which gets the program's connection.
// hello is of a connection that is to be encrypted; none: it is not.
func (n *Node) startWorker(conn net.Conn, hello []byte, t *task, cmd *exec.Cmd, p *proc, l *link) error {
	file, err := conn.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return err
	}
	defer file.Close()
	_ = conn.Close() // the worker has it
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "turns")
	defer theirs.Close()
	own := os.NewFile(uintptr(pair[0]), "turns")
	ours, err := net.FileConn(own)
	_ = own.Close()
	if err != nil {
		return err
	}
	errs, tells, err := os.Pipe()
	if err == nil {
		_, err = ours.Write(between.PutSecret(between.Secret{Token: t.token, Hello: hello}))
	}
	if err != nil {
		_ = ours.Close()
		return err
	}
	defer tells.Close()
	if err := makeCachesOf(n.cfg.Dir, owner(t.Group)); err != nil {
		return errors.Join(err, ours.Close(), errs.Close())
	}
	cmd.Env = append(workerEnv(n.cfg.Dir, owner(t.Group)), n.rdmaEnv())
	if t.device.API == CUDA {
		cmd.Env = append(cmd.Env, n.cudaEnv(t.device)...)
	}
	cmd.ExtraFiles = []*os.File{file, t.page, theirs, t.device.card.page}
	cmd.Stderr = tells
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tasks[t.ID] != t && n.arriving[t.ID] != t {
		err = errors.New("its task has ended")
	} else {
		err = cmd.Start()
	}
	if err != nil {
		_, _ = ours.Close(), errs.Close()
		return fmt.Errorf("the worker was not started: %w", err)
	}
	p.follow(cmd.Process, errs)
	l.turns, l.secret = ours.(*net.UnixConn), true
	t.device.turns.add(l.user)
	t.device.card.may(l.holder, l.user.say, p.kill)
	close(l.started)
	return nil
}

// listen does what a worker asks for, until it has ended.
func (n *Node) listen(t *task, p *proc, l *link, h *holder) error {
	defer close(l.said)
	turns, card, u := t.device.turns, t.device.card, l.user
	var heard sync.WaitGroup
	heard.Go(func() {
		defer close(l.quiet)
		defer turns.remove(u) // one that only passes on what is said has none
		defer card.gone(h, false)
		for {
			if n.freezing.Load() { // what it had begun to say it has said
				_ = l.turns.SetReadDeadline(time.Unix(1, 0))
			}
			f, err := between.Read(l.turns)
			if f.Conn != nil {
				_ = f.Conn.Close() // workers give none
			}
			switch {
			case err != nil && n.freezing.Load() && errors.Is(err, os.ErrDeadlineExceeded):
				l.quiet <- struct{}{}
				<-l.resume
			case err != nil:
				return
			case f.What == between.Want:
				turns.want(u)
			case f.What == between.Done, f.What == between.More:
				turns.done(u, f.Time, f.What == between.More)
			case f.What == between.Room:
				turns.loading(u)
				card.want(h, uint64(f.Time))
			case f.What == between.In:
				turns.loaded(u, between.SwapTurn*card.in(h, f.Time))
			case f.What == between.Out:
				card.out(h)
			case f.What == between.Dials:
				n.dialLane(l, f.Text)
			case f.What == between.Refused:
				n.log.Warn("connection refused", "task_id", t.ID, "reason", string(f.Text))
			default:
				select {
				case l.said <- f:
				default: // nobody asked
				}
			}
		}
	})
	err := p.wait()
	_ = l.turns.Close()
	heard.Wait()
	return err
}

// lastWords is how long what a worker said before it ended may take to be read.
const lastWords = 200 * time.Millisecond

// head keeps the beginning of what is written: of a crash, what and where.
type head struct {
	mu sync.Mutex // guards b
	b  []byte
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b = append(h.b, p[:min(len(p), maxErrors-len(h.b))]...)
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.b)
}

const maxErrors = 2000
