package adapters

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/execlink"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/plugin"
)

const (
	// sessionWidth requests of one session are answered at once: two, and what
	// is repeated because its answer was lost.
	sessionWidth = 8
	// lingering is how long a closed session answers, so that the center hears
	// of it.
	lingering = 10 * time.Second
)

// Exec starts a command beside that of a running attempt. It returns when the
// command runs, or with a plug-in when it was asked for: what is wrong then
// comes with the first Receive. The caller closes it; ctx bounds it as well.
//
// fault.Unimplemented if the center does not offer it, fault.NotFound and
// fault.Conflict as the center says, fault.Unavailable if it does not answer.
func (s *Service) Exec(ctx context.Context, centerID string, start *adapterv1.ExecStart) (execlink.Command, error) {
	s.mu.Lock()
	p := s.served[centerID]
	s.mu.Unlock()
	if p != nil {
		return execPlugin(ctx, p, start)
	}
	name, err := s.member(ctx, centerID, memberKnown)
	if err != nil {
		return nil, err
	}
	name = cmp.Or(name, pluginName(centerID))
	id := strings.TrimPrefix(core.NewID("exec"), "exec_")
	session := execlink.NewSession()
	stop, err := s.bus.Serve(context.WithoutCancel(ctx), bus.AgentUp(name, sessionSubject(id, "*")), sessionWidth, session.Answer)
	if err != nil {
		return nil, err
	}
	end := context.AfterFunc(ctx, session.Close)
	go func() {
		defer stop()
		defer end()
		select {
		case <-session.Told():
			return
		case <-session.Done():
		}
		select {
		case <-session.Told():
		case <-time.After(lingering): // it gives up by itself
		}
	}()
	data, err := proto.Marshal(&adapterv1.OpenExecRequest{Session: id, Start: start})
	if err == nil {
		rctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		_, err = s.bus.Request(rctx, bus.AgentDown(name, "exec"), data)
	}
	if err != nil {
		session.Close()
		return nil, err
	}
	return session, nil
}

func sessionSubject(id, what string) string { return "exec." + id + "." + what }

// execPlugin starts a command through a plug-in of this process.
func execPlugin(ctx context.Context, p *plugin.Process, start *adapterv1.ExecStart) (execlink.Command, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := p.Client().Exec(ctx)
	if err != nil {
		cancel()
		return nil, pluginError(p, err)
	}
	c := &pluginCommand{p: p, stream: stream, cancel: cancel}
	if err := c.stream.Send(&adapterv1.ExecRequest{Start: start}); err != nil && !errors.Is(err, io.EOF) { // else Receive says why
		cancel()
		return nil, pluginError(p, err)
	}
	return c, nil
}

// pluginCommand runs at the other end of a plug-in's stream.
type pluginCommand struct {
	p      *plugin.Process
	stream *connect.BidiStreamForClientSimple[adapterv1.ExecRequest, adapterv1.ExecResponse]
	cancel context.CancelFunc
}

func (c *pluginCommand) Send(r *adapterv1.ExecRequest) error { return c.stream.Send(r) }

func (c *pluginCommand) Receive() (*adapterv1.ExecResponse, error) {
	r, err := c.stream.Receive()
	if errors.Is(err, io.EOF) {
		err = fault.New(fault.Unavailable, "plug-in %s ended the session without saying how the command ended", c.p.Name())
	} else if err != nil {
		err = pluginError(c.p, err)
	}
	return r, err
}

// Close cancels the stream. While the request is open nothing tells the
// plug-in of that.
func (c *pluginCommand) Close() {
	c.cancel()
	_ = c.stream.CloseRequest() // it may be closed
}

// exec serves the session of another process of the platform with a command at
// the plug-in, until ctx ends.
func (x *session) exec(ctx context.Context, r *adapterv1.OpenExecRequest) (*adapterv1.OpenExecResponse, error) {
	c, err := execPlugin(ctx, x.p, r.Start)
	if err != nil {
		return nil, err
	}
	x.wg.Go(func() {
		execlink.Serve(ctx, c, func(ctx context.Context, what string, data []byte) ([]byte, error) {
			return x.s.bus.Request(ctx, bus.AgentUp(pluginName(x.center), sessionSubject(r.Session, what)), data)
		})
	})
	return &adapterv1.OpenExecResponse{}, nil
}

// pluginError gives what a plug-in answered its kind.
func pluginError(p *plugin.Process, err error) error {
	switch connect.CodeOf(err) {
	case connect.CodeUnimplemented:
		return fault.Wrap(fault.Unimplemented, err, "plug-in %s does not offer this", p.Name())
	case connect.CodeNotFound:
		return fault.Wrap(fault.NotFound, err, "plug-in %s does not know this", p.Name())
	case connect.CodeResourceExhausted:
		return fault.Wrap(fault.Exhausted, err, "plug-in %s: %s", p.Name(), reason(err))
	case connect.CodeFailedPrecondition, connect.CodeInvalidArgument:
		var ce *connect.Error
		if errors.As(err, &ce) {
			return fault.Wrap(fault.Conflict, err, "plug-in %s refuses: %s", p.Name(), clip(clean(ce.Message()), maxMessage))
		}
	}
	return fault.Wrap(fault.Unavailable, err, "plug-in %s does not answer", p.Name())
}
