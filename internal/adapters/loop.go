package adapters

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
)

// Run sends what waits to the centers until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	started := map[string]bool{}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	resend := time.NewTicker(resendAfter)
	defer resend.Stop()
	for {
		s.mu.Lock()
		for id, o := range s.outs {
			if !started[id] {
				started[id] = true
				wg.Go(func() { s.sendLoop(ctx, id, o) })
			}
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-resend.C:
			before := s.db.Now().Add(-resendAfter)
			centers, err := s.work.Unsettled(ctx, before)
			if err != nil {
				s.log.Warn("outstanding work not read", "error", err)
			}
			for _, id := range centers {
				if name, err := s.member(ctx, id, memberKnown); err == nil && name != "" { // a plug-in's session does it itself
					s.again(ctx, id, before, false)
				}
			}
		}
	}
}

// again puts what a center may not know into its outbox.
func (s *Service) again(ctx context.Context, centerID string, before time.Time, all bool) {
	w, err := s.work.Outstanding(ctx, centerID, before, all)
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("outstanding work not read", "ai_center_id", centerID, "error", err)
		return
	}
	if len(w.Apply)+len(w.Stop)+len(w.Suspend)+len(w.Resume) > 0 {
		s.put(centerID, func(o *outbox) {
			o.apply, o.stop = append(o.apply, w.Apply...), append(o.stop, w.Stop...)
			o.suspend(w.Suspend, w.Resume)
		})
	}
}

func (s *Service) sendLoop(ctx context.Context, centerID string, o *outbox) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
		s.deliver(ctx, centerID, o)
	}
}

// deliver sends what is in the outbox, unless the center meanwhile connects
// anew: the gateway that was asked is gone then, and all is sent again.
func (s *Service) deliver(ctx context.Context, centerID string, o *outbox) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	apply, stop, pause := s.take(centerID, o, cancel)
	if len(stop) > 0 {
		if err := s.ask(ctx, centerID, "remove", &adapterv1.RemoveRequest{Stop: stop}, &adapterv1.RemoveResponse{}); err != nil {
			s.log.Debug("stop not delivered, will be sent again", "ai_center_id", centerID, "error", err)
		}
	}
	if pause != nil {
		if err := s.ask(ctx, centerID, "suspend", pause, &adapterv1.SuspendResponse{}); err != nil {
			level := slog.LevelDebug
			if fault.KindOf(err) == fault.Unimplemented {
				level = slog.LevelWarn
			}
			s.log.Log(ctx, level, "pause or resume not delivered, will be sent again", "ai_center_id", centerID, "error", err)
		}
	}
	if len(apply) > 0 {
		s.apply(ctx, centerID, apply)
	}
}

func (s *Service) apply(ctx context.Context, centerID string, attempts []*adapterv1.Attempt) {
	var res adapterv1.ApplyResponse
	attempts, err := s.shareless(ctx, centerID, attempts)
	if err != nil {
		s.log.Warn("attempts not told apart, will be sent again", "ai_center_id", centerID, "error", err)
		return
	}
	if len(attempts) == 0 {
		return
	}
	if err := s.book(ctx, centerID, attempts); err != nil {
		s.log.Warn("accounts not read, will be sent again", "ai_center_id", centerID, "attempts", len(attempts), "error", err)
		return
	}
	if err := s.ask(ctx, centerID, "apply", &adapterv1.ApplyRequest{Attempts: attempts}, &res); err != nil {
		s.log.Debug("work not delivered, will be sent again", "ai_center_id", centerID, "attempts", len(attempts), "error", err)
		return
	}
	refused := map[string]bool{}
	for _, r := range res.Refusals {
		refused[r.AttemptId] = true
	}
	ids := make([]string, 0, len(attempts))
	for _, a := range attempts {
		if !refused[a.AttemptId] {
			ids = append(ids, a.AttemptId)
		}
	}
	s.work.Issued(ids, s.db.Now())
	if len(res.Refusals) > 0 {
		if err := s.work.Refused(ctx, centerID, res.Refusals); err != nil {
			s.log.Warn("refusals not recorded, will be sent again", "ai_center_id", centerID, "error", err)
		}
	}
}

// poolCUDA is the api of shares for programs of CUDA, as package pool has it, which
// this one does not know.
const poolCUDA = "cuda"

// shareless refuses, for now, what wants shares of the accelerator pool where that
// cannot be had, and returns the rest: the center would run it without.
func (s *Service) shareless(ctx context.Context, centerID string, attempts []*adapterv1.Attempt) ([]*adapterv1.Attempt, error) {
	if !slices.ContainsFunc(attempts, func(a *adapterv1.Attempt) bool { return a.Pool != nil }) {
		return attempts, nil
	}
	var offered, cuda, local bool
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		if offered, err = offersTx(ctx, tx, centerID, featureName(adapterv1.Feature_FEATURE_POOL)); err == nil {
			cuda, err = offersTx(ctx, tx, centerID, featureName(adapterv1.Feature_FEATURE_POOL_CUDA))
		}
		if err == nil {
			local, err = offersTx(ctx, tx, centerID, featureName(adapterv1.Feature_FEATURE_POOL_LOCAL))
		}
		return err
	})
	if err != nil || offered && cuda && local {
		return attempts, err
	}
	lacks := func(a *adapterv1.Attempt) bool {
		return a.Pool != nil && (a.Pool.Api == poolCUDA && !cuda || a.Pool.Api != poolCUDA && !offered || a.Pool.Local && !local)
	}
	var rest []*adapterv1.Attempt
	var refused []*adapterv1.Refusal
	for _, a := range attempts {
		if lacks(a) {
			refused = append(refused, &adapterv1.Refusal{AttemptId: a.AttemptId, Reason: "center " + centerID + " cannot give runs shares of the accelerator pool", Later: true})
		} else {
			rest = append(rest, a)
		}
	}
	if len(refused) == 0 {
		return rest, nil
	}
	return rest, s.work.Refused(ctx, centerID, refused)
}

func (s *Service) ask(ctx context.Context, centerID, what string, req, res proto.Message) error {
	s.mu.Lock()
	p := s.served[centerID]
	s.mu.Unlock()
	if p != nil {
		return askPlugin(ctx, p, req, res)
	}
	data, err := proto.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode %s: %w", what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name, err := s.member(ctx, centerID, memberKnown)
	if err != nil {
		return err
	}
	out, err := s.bus.Request(ctx, bus.AgentDown(cmp.Or(name, pluginName(centerID)), what), data)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(out, res); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the gateway of center %s answers rubbish", centerID)
	}
	return nil
}

// ReadLog reads a piece of a running attempt's log from its center, waiting
// up to wait for the first byte. fault.Unavailable if the gateway does not
// answer, fault.NotFound if its center does not know the attempt.
func (s *Service) ReadLog(ctx context.Context, centerID, attemptID string, offset, limit int64, wait time.Duration) (*adapterv1.ReadLogResponse, error) {
	var res adapterv1.ReadLogResponse
	err := s.ask(ctx, centerID, "readlog", &adapterv1.ReadLogRequest{AttemptId: attemptID, Offset: offset, Limit: limit, WaitMilliseconds: wait.Milliseconds()}, &res)
	return &res, err
}

// answerWidth is how many requests of gateways are handled at once.
const answerWidth = 16

// Answer serves the gateways' requests until ctx ends. The bus lets a gateway
// publish on its own subjects only, so the subject says who asks.
func (s *Service) Answer(ctx context.Context) error {
	var storing sync.WaitGroup
	storing.Go(func() { s.storeBeats(ctx) })
	defer storing.Wait()
	return s.bus.Answer(ctx, bus.AgentUp("*", "*"), "platform", answerWidth, func(ctx context.Context, subject string, data []byte) ([]byte, error) {
		name, what := bus.AgentOf(subject)
		if what == "probe" { // a gateway measures the way to here: nothing is read or kept
			return nil, nil
		}
		id, _, _ := strings.Cut(name, "/")
		if is, err := s.isMember(ctx, id, name); err != nil || !is {
			return nil, cmp.Or(err, fault.New(fault.Denied, "the gateway of center %q was removed", id))
		}
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		switch what {
		case "heartbeat":
			return handle(data, &adapterv1.HeartbeatRequest{}, func(r *adapterv1.HeartbeatRequest) (proto.Message, error) { return s.heartbeat(ctx, id, r) })
		case "report":
			return handle(data, &adapterv1.ReportRequest{}, func(r *adapterv1.ReportRequest) (proto.Message, error) { return s.report(ctx, id, r) })
		case "putlog":
			return handle(data, &adapterv1.PutLogRequest{}, func(r *adapterv1.PutLogRequest) (proto.Message, error) { return s.putLog(ctx, id, r) })
		default:
			return nil, fault.New(fault.Unimplemented, "the platform does not know the request %q", what)
		}
	})
}

func handle[T proto.Message](data []byte, req T, f func(T) (proto.Message, error)) ([]byte, error) {
	if err := proto.Unmarshal(data, req); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the request cannot be read")
	}
	res, err := f(req)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(res)
}

func (s *Service) heartbeat(ctx context.Context, id string, r *adapterv1.HeartbeatRequest) (proto.Message, error) {
	if err := s.hear(ctx, id, r); err != nil {
		return nil, err
	}
	s.measure(id, r.Measurement)
	if r.Resync {
		s.log.Info("gateway connected", "ai_center_id", id)
		s.note(ctx, id, "connected", "")
		s.put(id, func(o *outbox) {
			o.apply, o.stop, o.pause = nil, nil, nil
			if o.drop != nil {
				o.drop()
			}
		})
		s.again(ctx, id, s.db.Now(), true)
	}
	return &adapterv1.HeartbeatResponse{}, nil
}

// hear stores a heartbeat: at once if it says more than that the center lives
// and how busy it is.
func (s *Service) hear(ctx context.Context, id string, r *adapterv1.HeartbeatRequest) error {
	if r.Inventory == nil && !r.Resync && r.Measurement != nil && len(r.Equipment)+len(r.EquipmentGone) == 0 && !r.EquipmentWhole {
		m, err := registry.ReadMeasurement(r.Measurement, s.db.Now())
		if err == nil {
			s.beats.put(id, m)
		}
		return err
	}
	var nodes []*adapterv1.Node
	if r.Inventory != nil && r.Node != nil {
		nodes = []*adapterv1.Node{r.Node}
	}
	return s.converted(ctx, id, GatewayPlugin, r.Inventory, nodes, func(inv *adapterv1.Inventory, nodes []*adapterv1.Node) error {
		return s.recordHeartbeat(ctx, id, r, inv, nodes)
	})
}

// recordHeartbeat stores a heartbeat; what it declares is given apart.
func (s *Service) recordHeartbeat(ctx context.Context, id string, r *adapterv1.HeartbeatRequest, inv *adapterv1.Inventory, nodes []*adapterv1.Node) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		if inv != nil {
			inv.AiCenterId = id
			if err := s.reg.JoinTx(ctx, tx, inv, GatewayPlugin); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `UPDATE gateways SET version = $2 WHERE ai_center_id = $1 AND version <> $2`, id, clip(clean(inv.Version), 64)); err != nil {
				return fmt.Errorf("version of the gateway of %s: %w", id, err)
			}
			if _, err := tx.Exec(ctx, `UPDATE gateways SET features = $2 WHERE ai_center_id = $1 AND features <> $2`, id, offerNames(r.Features, r.Parts)); err != nil {
				return fmt.Errorf("features of the gateway of %s: %w", id, err)
			}
			if _, err := tx.Exec(ctx, `UPDATE gateways SET pool_nodes = $2 WHERE ai_center_id = $1 AND pool_nodes <> $2`, id, clip(clean(strings.Join(r.PoolNodes, " ")), 4096)); err != nil {
				return fmt.Errorf("pool nodes of the gateway of %s: %w", id, err)
			}
			if len(nodes) > 0 {
				if err := s.reg.SyncNodesTx(ctx, tx, id, true, nodes, nil); err != nil {
					return err
				}
			}
		}
		if err := s.equipmentTx(ctx, tx, id, GatewayPlugin, r.Equipment, r.EquipmentGone, r.EquipmentWhole); err != nil {
			return err
		}
		return s.reg.HeartbeatTx(ctx, tx, id, r.Measurement)
	})
}

func (s *Service) report(ctx context.Context, id string, r *adapterv1.ReportRequest) (proto.Message, error) {
	for _, st := range r.Statuses {
		st.Message, st.Reason, st.Node = clean(st.Message), clean(st.Reason), clean(st.Node)
	}
	recorded, unwanted, err := s.work.Report(ctx, id, r.Statuses)
	if err != nil {
		return nil, err
	}
	return &adapterv1.ReportResponse{Recorded: recorded, Unwanted: unwanted}, nil
}

// LogKey names the object an attempt's log is kept in.
func LogKey(attemptID string) string { return "logs/" + attemptID }

func (s *Service) putLog(ctx context.Context, id string, r *adapterv1.PutLogRequest) (proto.Message, error) {
	owns, err := s.work.Owns(ctx, id, r.AttemptId)
	if err != nil {
		return nil, err
	}
	if !owns {
		// Nobody will read it: say it is stored so that the gateway can forget it.
		return &adapterv1.PutLogResponse{Stored: r.Offset + int64(len(r.Data))}, nil
	}
	stored, err := s.logs.Size(ctx, LogKey(r.AttemptId))
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return nil, err
	}
	if r.Offset == stored && len(r.Data) > 0 {
		if stored, err = s.logs.Append(ctx, LogKey(r.AttemptId), r.Offset, r.Data); err != nil {
			return nil, err
		}
	}
	return &adapterv1.PutLogResponse{Stored: stored}, nil
}
