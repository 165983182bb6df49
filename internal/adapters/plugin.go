package adapters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/plugin"
)

// serve keeps a session with an instance until ctx ends: it records what the
// plug-in discovers, tells it what should run and records what it observes.
// The same messages reach a gateway over the bus.
func (s *Service) serve(ctx context.Context, p *plugin.Process, id, center string) {
	start := time.Now()
	for {
		served, err := s.session(ctx, p, id, center)
		if ctx.Err() != nil {
			return
		}
		if center = cmp.Or(center, served); served != "" || time.Since(start) > startPatience {
			s.say(ctx, id, "", Down, err)
			s.note(ctx, center, steps[Down], noted(err))
		}
		s.log.Debug("plug-in not reachable, will try again", "instance", id, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

const (
	// startPatience is how long a plug-in may take to start before it counts as down.
	startPatience = 2 * time.Second
	// watchPatience is how long a plug-in may be silent; it must send something
	// every three seconds.
	watchPatience = 10 * time.Second
	// discoverEvery is how often a plug-in that cannot be watched is asked what
	// there is; it must be well below registry.SeenWithin.
	discoverEvery = 3 * time.Second
	// seenEvery is how often a center is marked as seen at most.
	seenEvery = time.Second
)

// session is the time in which a plug-in answers.
type session struct {
	s    *Service
	p    *plugin.Process
	id   string
	want string                   // center it is to serve, "" if that is its choice
	next *adapterv1.WatchResponse // pieces that came so far

	center string // "" until it was reached
	notice error  // what its center's inventory says an operator should know
	mine   bool   // this instance serves the center
	stood  bool   // by, while another served it
	seen   time.Time
	state  string
	wg     sync.WaitGroup
	fail   context.CancelCauseFunc
}

// session returns the center that was served, if one was.
func (s *Service) session(ctx context.Context, p *plugin.Process, id, center string) (string, error) {
	ctx, fail := context.WithCancelCause(ctx)
	x := &session{s: s, p: p, id: id, want: center, fail: fail}
	defer func() {
		fail(nil)
		x.wg.Wait()
		x.leave()
	}()
	version, features, err := s.describe(ctx, p)
	if err != nil && connect.CodeOf(err) != connect.CodeUnimplemented {
		return "", fault.Wrap(fault.Unavailable, err, "plug-in %s does not say what it is", p.Name())
	}
	if err := s.setVersion(ctx, id, version, features); err != nil {
		return "", err
	}
	err = x.watch(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if x.mine {
		return x.center, err
	}
	return "", err
}

func (s *Service) setVersion(ctx context.Context, id, version, features string) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE instances SET version = $2, features = $3 WHERE instance_id = $1 AND (version <> $2 OR features <> $3)`, id, version, features)
		return err
	})
}

// watch hears what the plug-in sends until it ends or is silent for too long.
func (x *session) watch(ctx context.Context) error {
	silent := time.AfterFunc(watchPatience, func() {
		x.fail(fault.New(fault.Unavailable, "plug-in %s has been silent for %s", x.p.Name(), watchPatience))
	})
	defer silent.Stop()
	stream, err := x.p.Client().Watch(ctx, &adapterv1.WatchRequest{})
	if err == nil {
		defer func() { _ = stream.Close() }() // the plug-in may be gone
		for stream.Receive() {
			silent.Reset(watchPatience)
			if err := x.hear(ctx, stream.Msg()); err != nil {
				return err
			}
		}
		err = stream.Err()
	}
	if connect.CodeOf(err) != connect.CodeUnimplemented || x.center != "" {
		return fault.Wrap(fault.Unavailable, errOr(err), "plug-in %s cannot be watched", x.p.Name())
	}
	// It cannot be watched, so it is asked.
	for {
		dctx, cancel := context.WithTimeout(ctx, watchPatience)
		res, err := x.p.Client().Discover(dctx, &adapterv1.DiscoverRequest{})
		cancel()
		if err != nil {
			return fault.Wrap(fault.Unavailable, err, "plug-in %s does not discover its center", x.p.Name())
		}
		silent.Reset(watchPatience)
		if err := x.hear(ctx, &adapterv1.WatchResponse{Inventory: res.Inventory}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(discoverEvery):
		}
	}
}

func errOr(err error) error {
	if err == nil {
		return errors.New("it ended by itself")
	}
	return err
}

// hear takes one message.
func (x *session) hear(ctx context.Context, m *adapterv1.WatchResponse) error {
	if m.Trouble != "" {
		x.next = nil
		return x.say(ctx, Trouble, errors.New(m.Trouble))
	}
	if x.next != nil {
		m.Nodes, m.Gone = append(x.next.Nodes, m.Nodes...), append(x.next.Gone, m.Gone...)
		m.Equipment, m.EquipmentGone = append(x.next.Equipment, m.Equipment...), append(x.next.EquipmentGone, m.EquipmentGone...)
		m.Inventory, m.Measurement = or(m.Inventory, x.next.Inventory), or(m.Measurement, x.next.Measurement)
	}
	if x.next = nil; m.More {
		x.next = m
		return nil
	}
	first := x.center == ""
	if first {
		if m.Inventory.GetAiCenterId() == "" {
			return fault.New(fault.Unavailable, "plug-in %s discovers no center", x.p.Name())
		}
		x.center = m.Inventory.AiCenterId
	}
	if want := cmp.Or(x.want, x.center); m.Inventory != nil && m.Inventory.AiCenterId != want {
		return fault.New(fault.Unavailable, "plug-in %s discovers center %q, but it serves %q", x.p.Name(), m.Inventory.AiCenterId, want)
	}
	if m.Inventory != nil {
		x.notice = nil
		if n := m.Inventory.Notice; n != "" {
			x.notice = errors.New(n)
		}
	}
	if !x.claim() {
		x.stood = true
		return x.say(ctx, Standby, nil)
	}
	if x.stood { // what it told meanwhile is not recorded
		return fault.New(fault.Unavailable, "plug-in %s takes over center %s", x.p.Name(), x.center)
	}
	if err := x.record(ctx, m, first); err != nil {
		return err
	}
	if !x.mine {
		x.mine = true
		x.s.log.Info("plug-in connected", "instance", x.id, "ai_center_id", x.center)
		x.s.again(ctx, x.center, x.s.db.Now(), true)
		x.begin(ctx)
	}
	return x.say(ctx, Up, x.notice)
}

func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// record stores what a message says, if that is not only that all is well as
// it was a moment ago.
func (x *session) record(ctx context.Context, m *adapterv1.WatchResponse, first bool) error {
	now := x.s.db.Now()
	if m.Inventory == nil && m.Measurement == nil && len(m.Nodes)+len(m.Gone)+len(m.Equipment)+len(m.EquipmentGone) == 0 && now.Sub(x.seen) < seenEvery {
		return nil
	}
	err := x.s.converted(ctx, x.center, x.p.Name(), m.Inventory, m.Nodes, func(inv *adapterv1.Inventory, nodes []*adapterv1.Node) error {
		return x.store(ctx, m, inv, nodes, first)
	})
	if err == nil {
		x.seen = now
		x.s.measure(x.center, m.Measurement)
	}
	return err
}

// store stores what a message says; inventory and nodes are given apart.
func (x *session) store(ctx context.Context, m *adapterv1.WatchResponse, inv *adapterv1.Inventory, nodes []*adapterv1.Node, first bool) error {
	return x.s.db.Tx(ctx, func(tx *db.Tx) error {
		if inv != nil {
			// A center must not come back because its instance is slow to stop.
			if wanted, err := tx.Get(ctx, `SELECT plugin FROM instances WHERE instance_id = $1 AND enabled`, []any{x.id}, new(string)); err != nil || !wanted {
				return cmp.Or(err, fault.New(fault.Unavailable, "instance %s was deleted", x.id))
			}
			if err := x.s.reg.JoinTx(ctx, tx, inv, x.p.Name()); err != nil {
				return err
			}
		}
		if first || len(nodes)+len(m.Gone) > 0 {
			if err := x.s.reg.SyncNodesTx(ctx, tx, x.center, first, nodes, m.Gone); err != nil {
				return err
			}
		}
		if err := x.s.equipmentTx(ctx, tx, x.center, x.p.Name(), m.Equipment, m.EquipmentGone, first); err != nil {
			return err
		}
		return x.s.reg.HeartbeatTx(ctx, tx, x.center, m.Measurement)
	})
}

// say records a state if it is another than before.
func (x *session) say(ctx context.Context, state string, why error) error {
	text := state
	if why != nil {
		text += reason(why)
	}
	if text != x.state {
		x.state = text
		x.s.say(ctx, x.id, x.center, state, why)
		x.s.note(ctx, cmp.Or(x.center, x.want), steps[state], noted(why))
	}
	return nil
}

// steps of an access, by the state of the instance that serves the center.
var steps = map[string]string{Up: "connected", Standby: "standby", Trouble: "trouble", Down: "down"}

// noted is why an instance is in a state, "" if there is nothing to say.
func noted(why error) string {
	if why == nil {
		return ""
	}
	return reason(why)
}

// claim makes this instance the one that serves its center, unless another does.
func (x *session) claim() bool {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if p := x.s.served[x.center]; p != nil && p != x.p {
		return false
	}
	x.s.served[x.center] = x.p
	return true
}

func (x *session) leave() {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if x.s.served[x.center] == x.p {
		delete(x.s.served, x.center)
	}
}

// begin observes the center, repeats what it may not know and answers other
// processes' requests to it, until the session ends.
func (x *session) begin(ctx context.Context) {
	s, center := x.s, x.center
	x.wg.Go(func() {
		if err := s.observe(ctx, x.p, center); ctx.Err() == nil {
			x.fail(fault.Wrap(fault.Unavailable, errOr(err), "plug-in %s cannot be observed", x.p.Name()))
		}
	})
	x.wg.Go(func() {
		if err := s.bus.Answer(ctx, bus.AgentDown(pluginName(center), "*"), "plugin", 16, func(ctx context.Context, subject string, data []byte) ([]byte, error) {
			what := subject[strings.LastIndexByte(subject, '.')+1:]
			if what == "exec" {
				return handle(data, &adapterv1.OpenExecRequest{}, func(r *adapterv1.OpenExecRequest) (proto.Message, error) { return x.exec(ctx, r) })
			}
			return s.forward(ctx, x.p, what, data)
		}); err != nil {
			x.fail(err)
		}
	})
	x.wg.Go(func() {
		tick := time.NewTicker(discoverEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.again(ctx, center, s.db.Now().Add(-resendAfter), false)
			}
		}
	})
}

// pluginName is the name on the bus under which the process that runs the
// instance of a center answers; no gateway can have it.
func pluginName(center string) string { return center + "/" }

// forward passes a request of another process on to a plug-in.
func (s *Service) forward(ctx context.Context, p *plugin.Process, what string, data []byte) ([]byte, error) {
	var req, res proto.Message
	switch what {
	case "apply":
		req, res = &adapterv1.ApplyRequest{}, &adapterv1.ApplyResponse{}
	case "remove":
		req, res = &adapterv1.RemoveRequest{}, &adapterv1.RemoveResponse{}
	case "suspend":
		req, res = &adapterv1.SuspendRequest{}, &adapterv1.SuspendResponse{}
	case "readlog":
		req, res = &adapterv1.ReadLogRequest{}, &adapterv1.ReadLogResponse{}
	case "setnode":
		req, res = &adapterv1.SetNodeRequest{}, &adapterv1.SetNodeResponse{}
	case "listaccounts":
		req, res = &adapterv1.ListAccountsRequest{}, &adapterv1.ListAccountsResponse{}
	case "ensureaccount":
		req, res = &adapterv1.EnsureAccountRequest{}, &adapterv1.EnsureAccountResponse{}
	case "removeaccount":
		req, res = &adapterv1.RemoveAccountRequest{}, &adapterv1.RemoveAccountResponse{}
	case "listvolumes":
		req, res = &adapterv1.ListVolumesRequest{}, &adapterv1.ListVolumesResponse{}
	case "ensurevolume":
		req, res = &adapterv1.EnsureVolumeRequest{}, &adapterv1.EnsureVolumeResponse{}
	case "removevolume":
		req, res = &adapterv1.RemoveVolumeRequest{}, &adapterv1.RemoveVolumeResponse{}
	default:
		return nil, fault.New(fault.Unimplemented, "a plug-in does not know the request %q", what)
	}
	if err := proto.Unmarshal(data, req); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the request cannot be read")
	}
	if err := askPlugin(ctx, p, req, res); err != nil {
		return nil, err
	}
	return proto.Marshal(res)
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

// emptyReads in a row are taken for the end of an ended attempt's log: a
// center may be too slow for some.
const emptyReads = 5

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
	for empty := 0; ; {
		res, err := p.Client().ReadLog(ctx, &adapterv1.ReadLogRequest{AttemptId: st.AttemptId, Offset: offset, Limit: 512 << 10, WaitMilliseconds: 5000})
		if err != nil {
			return fault.Wrap(fault.Unavailable, err, "the log of %s cannot be read", st.AttemptId)
		}
		if len(res.Data) > 0 {
			empty = 0
			if offset, err = s.logs.Append(ctx, LogKey(st.AttemptId), offset, res.Data); err != nil {
				return err
			}
		} else if empty++; empty == emptyReads { // it will never say that this is the end
			s.log.Warn("a log does not come to its end", "plugin", p.Name(), "attempt_id", st.AttemptId, "bytes", offset, "said", st.LogBytes)
			return nil
		}
		if res.End {
			return nil
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
	case *adapterv1.SuspendRequest:
		out, err = p.Client().Suspend(ctx, r)
	case *adapterv1.ReadLogRequest:
		out, err = p.Client().ReadLog(ctx, r)
	case *adapterv1.SetNodeRequest:
		out, err = p.Client().SetNode(ctx, r)
	case *adapterv1.ListAccountsRequest:
		out, err = p.Client().ListAccounts(ctx, r)
	case *adapterv1.EnsureAccountRequest:
		out, err = p.Client().EnsureAccount(ctx, r)
	case *adapterv1.RemoveAccountRequest:
		out, err = p.Client().RemoveAccount(ctx, r)
	case *adapterv1.ListVolumesRequest:
		out, err = p.Client().ListVolumes(ctx, r)
	case *adapterv1.EnsureVolumeRequest:
		out, err = p.Client().EnsureVolume(ctx, r)
	case *adapterv1.RemoveVolumeRequest:
		out, err = p.Client().RemoveVolume(ctx, r)
	default:
		return fmt.Errorf("no such request of a plug-in: %T", req)
	}
	if err != nil {
		return pluginError(p, err)
	}
	proto.Merge(res, out)
	return nil
}
