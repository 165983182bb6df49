package agent

import (
	"context"
	"io"
	"sync"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/execlink"
	"yunhe.dev/yunhe/internal/fault"
)

// features are the optional calls the gateway answers.
func (a *Agent) features() []adapterv1.Feature {
	out := []adapterv1.Feature{adapterv1.Feature_FEATURE_SUSPEND, adapterv1.Feature_FEATURE_EXEC, adapterv1.Feature_FEATURE_NODE}
	if a.lends {
		out = append(out, adapterv1.Feature_FEATURE_POOL, adapterv1.Feature_FEATURE_POOL_CUDA)
	}
	if a.lends && len(a.cfg.PoolNodes) > 0 {
		out = append(out, adapterv1.Feature_FEATURE_POOL_LOCAL)
	}
	return out
}

const (
	// freezeTimeout is how long processes may take to stand still.
	freezeTimeout = 5 * time.Second
	// maxSessions commands run beside runs at once.
	maxSessions = 64
	// openTimeout is how long such a command may take to start.
	openTimeout = 10 * time.Second
	// maxSize of a terminal, in columns and rows.
	maxSize = 1 << 14
)

// suspend has runs stand still or go on. What is not running is left alone;
// what fails is said to the platform, which asks again.
func (a *Agent) suspend(ctx context.Context, r *adapterv1.SuspendRequest) (*adapterv1.SuspendResponse, error) {
	var first error
	each := func(ids []string, f func(*sandbox.Run) error) {
		for _, id := range ids {
			run, err := a.sb.Get(id)
			if err != nil {
				continue
			}
			if err := f(run); err != nil && fault.KindOf(err) != fault.Conflict && first == nil {
				first = err
			}
			a.mark(id)
		}
	}
	each(r.Suspend, func(run *sandbox.Run) error {
		ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
		defer cancel()
		return run.Pause(ctx)
	})
	each(r.Resume, (*sandbox.Run).Resume)
	return &adapterv1.SuspendResponse{}, first
}

// exec starts a command beside a run's own and links it with its session.
func (a *Agent) exec(ctx context.Context, r *adapterv1.OpenExecRequest) (*adapterv1.OpenExecResponse, error) {
	start := r.GetStart()
	var c core.Check
	c.Text("session", r.Session, true, 64, 65)
	if size := start.GetSize(); start.GetTerminal() && size != nil {
		c.Range("size.columns", int64(size.Columns), 0, maxSize)
		c.Range("size.rows", int64(size.Rows), 0, maxSize)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	select {
	case a.slots <- struct{}{}:
	default:
		return nil, fault.New(fault.Exhausted, "%d commands run beside runs at this gateway already; end one first", maxSessions)
	}
	octx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	x, err := a.sb.Exec(octx, start.GetAttemptId(), sandbox.ExecSpec{Args: start.GetCommand(), Terminal: start.GetTerminal(),
		Columns: uint16(start.GetSize().GetColumns()), Rows: uint16(start.GetSize().GetRows())})
	if err != nil {
		<-a.slots
		return nil, err
	}
	a.log.Info("command started beside a run", "attempt_id", start.GetAttemptId(), "terminal", start.GetTerminal())
	a.sessions.Go(func() {
		defer func() { <-a.slots }()
		execlink.Serve(ctx, newCommand(x), func(ctx context.Context, what string, data []byte) ([]byte, error) {
			return a.bus.Ask(ctx, "exec."+r.Session+"."+what, data)
		})
	})
	return &adapterv1.OpenExecResponse{}, nil
}

// command is a sandbox's command as a session sees it.
type command struct {
	x    *sandbox.Exec
	out  chan *adapterv1.ExecResponse
	done chan struct{} // closed by Close
	end  sync.Once
}

func newCommand(x *sandbox.Exec) *command {
	c := &command{x: x, out: make(chan *adapterv1.ExecResponse), done: make(chan struct{})}
	go c.copy() // ends with the command, or with Close
	return c
}

// copy passes on what the command writes, and how it ended.
func (c *command) copy() {
	var wg sync.WaitGroup
	wg.Go(func() {
		c.read(c.x.Output, func(b []byte) *adapterv1.ExecResponse { return &adapterv1.ExecResponse{Output: b} })
	})
	wg.Go(func() {
		c.read(c.x.ErrorOutput, func(b []byte) *adapterv1.ExecResponse { return &adapterv1.ExecResponse{ErrorOutput: b} })
	})
	wg.Wait()
	code, err := c.x.ExitCode()
	last := &adapterv1.ExecResponse{Ended: true, ExitCode: int32(code)}
	if err != nil {
		msg, _ := fault.Message(err)
		last.ExitCode, last.ErrorOutput = 255, []byte("yunhe: "+msg+"\n")
	}
	c.give(last)
}

func (c *command) read(from io.Reader, wrap func([]byte) *adapterv1.ExecResponse) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !c.give(wrap(append([]byte(nil), buf[:n]...))) || err != nil {
			return
		}
	}
}

func (c *command) give(r *adapterv1.ExecResponse) bool {
	select {
	case c.out <- r:
		return true
	case <-c.done:
		return false
	}
}

// Send hands over input, the end of it, and the size of the terminal.
func (c *command) Send(r *adapterv1.ExecRequest) error {
	if s := r.Size; s != nil && s.Columns > 0 && s.Columns <= maxSize && s.Rows > 0 && s.Rows <= maxSize {
		if err := c.x.Resize(uint16(s.Columns), uint16(s.Rows)); err != nil {
			return err
		}
	}
	if len(r.Input) > 0 {
		if _, err := c.x.Write(r.Input); err != nil {
			return err
		}
	}
	if r.InputEnd {
		return c.x.CloseInput()
	}
	return nil
}

// Receive returns what the command wrote; the last says that it has ended.
func (c *command) Receive() (*adapterv1.ExecResponse, error) {
	select {
	case r := <-c.out:
		return r, nil
	case <-c.done:
		return nil, io.EOF
	}
}

// Close has the command killed.
func (c *command) Close() {
	c.end.Do(func() {
		close(c.done)
		c.x.Close()
	})
}
