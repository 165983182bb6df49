package adapters

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/plugin"
)

// RunPlugin serves the center behind a plug-in until ctx ends: it declares
// what the plug-in discovers, tells it what should run and records what it
// observes. The same messages reach a gateway over the bus.
func (s *Service) RunPlugin(ctx context.Context, p *plugin.Process) error {
	for ctx.Err() == nil {
		if err := s.pluginSession(ctx, p); err != nil && ctx.Err() == nil {
			s.log.Debug("plug-in not reachable, will try again", "plugin", p.Name(), "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	return nil
}

// discoverEvery is how often a plug-in is asked what there is; it is also its
// heartbeat and must be well below registry.SeenWithin.
const discoverEvery = 3 * time.Second

// pluginSession lasts as long as the plug-in answers.
func (s *Service) pluginSession(ctx context.Context, p *plugin.Process) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	center, err := s.discover(ctx, p)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.plugins[center] = p
	s.mu.Unlock()
	s.log.Info("plug-in connected", "plugin", p.Name(), "ai_center_id", center)
	s.again(ctx, center, s.db.Now(), true)
	beats := make(chan error, 1)
	go func() {
		defer cancel() // a plug-in that does not discover is not observed either
		tick := time.NewTicker(discoverEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				beats <- nil
				return
			case <-tick.C:
				if _, err := s.discover(ctx, p); err != nil {
					beats <- err
					return
				}
				s.again(ctx, center, s.db.Now().Add(-resendAfter), false)
			}
		}
	}()
	err = s.observe(ctx, p, center)
	cancel()
	if beat := <-beats; beat != nil {
		return beat
	}
	return err
}

// discover declares the plug-in's inventory and marks its center as seen.
func (s *Service) discover(ctx context.Context, p *plugin.Process) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := p.Client().Discover(ctx, &adapterv1.DiscoverRequest{})
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, err, "plug-in %s does not answer", p.Name())
	}
	if res.Inventory == nil || res.Inventory.AiCenterId == "" {
		return "", fault.New(fault.Unavailable, "plug-in %s discovers no center", p.Name())
	}
	id := res.Inventory.AiCenterId
	return id, s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := s.reg.JoinTx(ctx, tx, res.Inventory, p.Name()); err != nil {
			return err
		}
		return s.reg.MarkSeenTx(ctx, tx, id)
	})
}

// observe records what a plug-in reports until its stream ends.
func (s *Service) observe(ctx context.Context, p *plugin.Process, center string) error {
	stream, err := p.Client().Observe(ctx, &adapterv1.ObserveRequest{})
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "plug-in %s cannot be observed", p.Name())
	}
	defer func() { _ = stream.Close() }() // the plug-in may be gone
	for stream.Receive() {
		sts := stream.Msg().Statuses
		for _, st := range sts {
			if err := s.fetchLog(ctx, p, center, st); err != nil {
				return err
			}
		}
		res, err := s.report(ctx, center, &adapterv1.ReportRequest{Statuses: sts})
		if err != nil {
			return err
		}
		r := res.(*adapterv1.ReportResponse)
		if len(r.Recorded)+len(r.Unwanted) == 0 {
			continue
		}
		if _, err := p.Client().Remove(ctx, &adapterv1.RemoveRequest{Stop: r.Unwanted, Forget: r.Recorded}); err != nil {
			return fault.Wrap(fault.Unavailable, err, "plug-in %s does not forget", p.Name())
		}
	}
	return stream.Err()
}

// fetchLog copies an ended attempt's log, unless it came with the status.
func (s *Service) fetchLog(ctx context.Context, p *plugin.Process, center string, st *adapterv1.Status) error {
	if st.Phase != adapterv1.Phase_PHASE_ENDED || st.LogInline || st.LogBytes == 0 {
		return nil
	}
	owns, err := s.work.Owns(ctx, center, st.AttemptId)
	if err != nil || !owns {
		return err
	}
	offset, err := s.logs.Size(ctx, LogKey(st.AttemptId))
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}
	for {
		res, err := p.Client().ReadLog(ctx, &adapterv1.ReadLogRequest{AttemptId: st.AttemptId, Offset: offset, Limit: 512 << 10})
		if err != nil {
			return fault.Wrap(fault.Unavailable, err, "the log of %s cannot be read", st.AttemptId)
		}
		if len(res.Data) == 0 {
			return nil
		}
		if offset, err = s.logs.Append(ctx, LogKey(st.AttemptId), offset, res.Data); err != nil {
			return err
		}
	}
}

// askPlugin sends one of the contract's requests to a plug-in.
func askPlugin(ctx context.Context, p *plugin.Process, req, res proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var out proto.Message
	var err error
	switch r := req.(type) {
	case *adapterv1.ApplyRequest:
		out, err = p.Client().Apply(ctx, r)
	case *adapterv1.RemoveRequest:
		out, err = p.Client().Remove(ctx, r)
	case *adapterv1.ReadLogRequest:
		out, err = p.Client().ReadLog(ctx, r)
	default:
		return fmt.Errorf("no such request of a plug-in: %T", req)
	}
	if err != nil {
		switch connect.CodeOf(err) {
		case connect.CodeUnimplemented:
			return fault.Wrap(fault.Unimplemented, err, "plug-in %s does not offer this", p.Name())
		case connect.CodeNotFound:
			return fault.Wrap(fault.NotFound, err, "plug-in %s does not know this", p.Name())
		}
		return fault.Wrap(fault.Unavailable, err, "plug-in %s does not answer", p.Name())
	}
	proto.Merge(res, out)
	return nil
}
