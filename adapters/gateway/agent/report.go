package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"yunhe.dev/yunhe/adapters/gateway/measure"
	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

const (
	// inlineLog bytes of output travel inside the report: most logs of small
	// jobs, which then cost no object each.
	inlineLog = 8 << 10
	// reportBatch statuses go in one message and one transaction.
	reportBatch = 128
	// askTimeout bounds a request to the platform.
	askTimeout = 20 * time.Second
	heartbeat  = 2 * time.Second
	// runsEvery is the time between measurements of what runs use, which take
	// some reads for each.
	runsEvery = 10 * time.Second
)

// ask sends a request to the platform.
func (a *Agent) ask(ctx context.Context, what string, req, res proto.Message) error {
	b, err := proto.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode %s: %w", what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := a.bus.Ask(ctx, what, b)
	if err != nil {
		return err
	}
	return proto.Unmarshal(out, res)
}

// reports tells the platform what changed, until it has recorded it.
func (a *Agent) reports(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for ctx.Err() == nil {
			ids := a.takeDirty()
			if len(ids) == 0 {
				break
			}
			if err := a.report(ctx, ids); err != nil {
				a.log.Debug("report not delivered, will be sent again", "attempts", len(ids), "error", err)
				a.mark(ids...)
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		}
	}
}

func (a *Agent) takeDirty() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := make([]string, 0, min(len(a.dirty), reportBatch))
	for id := range a.dirty {
		if len(ids) == reportBatch {
			break
		}
		ids = append(ids, id)
		delete(a.dirty, id)
	}
	slices.Sort(ids)
	return ids
}

func (a *Agent) report(ctx context.Context, ids []string) error {
	req := &adapterv1.ReportRequest{}
	for _, id := range ids {
		run, err := a.sb.Get(id)
		if err != nil {
			if v, ok := a.verdict(id); ok {
				req.Statuses = append(req.Statuses, &adapterv1.Status{AttemptId: id, Phase: adapterv1.Phase_PHASE_ENDED, Reason: v.reason, Message: v.message})
			} else if st, ok := a.ledger.status(id); ok {
				req.Statuses = append(req.Statuses, st)
			}
			continue // else it was recorded and forgotten meanwhile
		}
		if again, err := a.neverStarted(run); again || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		st, err := a.status(ctx, run)
		if err != nil {
			return err
		}
		req.Statuses = append(req.Statuses, st)
	}
	if len(req.Statuses) == 0 {
		return nil
	}
	var res adapterv1.ReportResponse
	if err := a.ask(ctx, "report", req, &res); err != nil {
		return err
	}
	for _, id := range res.Unwanted {
		a.stop(id)
	}
	return a.forget(req.Statuses, res.Recorded)
}

func (a *Agent) verdict(id string) (v verdict, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, ok = a.never[id]
	return v, ok
}

// neverStarted forgets a run whose gateway was killed before its runner began,
// and asks the platform what should run: nothing has been executed, so it is
// no failure of the job. Only once for each run: a machine that can start
// nothing must say so.
func (a *Agent) neverStarted(run *sandbox.Run) (bool, error) {
	if res, over := run.Result(); !over || res.Reason != runner.NeverStarted {
		return false, nil
	}
	a.mu.Lock()
	adopted := a.adopted[run.ID()]
	delete(a.adopted, run.ID())
	a.mu.Unlock()
	if !adopted || a.ledger.has(run.ID()) {
		return false, nil
	}
	lock := a.lock(run.ID())
	lock.Lock()
	defer lock.Unlock()
	if err := a.sb.Remove(run.ID()); err != nil {
		return false, err
	}
	a.log.Info("run was never started, asking for it again", "attempt_id", run.ID())
	signal(a.resync)
	return true, nil
}

// forget writes recorded attempts into the ledger, as they were told, and then
// drops their files.
func (a *Agent) forget(told []*adapterv1.Status, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	recorded := slices.DeleteFunc(slices.Clone(told), func(st *adapterv1.Status) bool { return !slices.Contains(ids, st.AttemptId) })
	if err := a.ledger.add(recorded); err != nil {
		return err
	}
	for _, id := range ids {
		a.mu.Lock()
		delete(a.never, id)
		delete(a.early, id)
		delete(a.adopted, id)
		a.mu.Unlock()
		lock := a.lock(id)
		lock.Lock()
		err := a.sb.Remove(id)
		lock.Unlock()
		if err != nil {
			a.log.Debug("run not removed", "attempt_id", id, "error", err)
		}
	}
	return nil
}

// status describes a run; a log too long to travel inside is handed over first.
func (a *Agent) status(ctx context.Context, run *sandbox.Run) (*adapterv1.Status, error) {
	st := &adapterv1.Status{AttemptId: run.ID(), Phase: adapterv1.Phase_PHASE_RUNNING, Node: a.node.GetName()}
	if at := run.StartedAt(); !at.IsZero() {
		st.StartedAt = at.UnixMicro()
	}
	res, over := run.Result()
	if !over {
		if st.StartedAt == 0 {
			st.Phase = adapterv1.Phase_PHASE_PENDING
		} else if run.Paused() {
			st.Phase = adapterv1.Phase_PHASE_SUSPENDED
		}
		return st, nil
	}
	st.Phase = adapterv1.Phase_PHASE_ENDED
	st.Reason, st.Message, st.ExitCode = string(res.Reason), cleanText(res.Message), int32(res.ExitCode)
	if res.Reason == runner.Signaled && st.Message == "" {
		st.Message = "ended by " + unix.SignalName(unix.Signal(res.Signal)) + ", which nobody of the platform sent"
	}
	st.CpuMicroseconds, st.MemoryPeakBytes, st.LogBytes = res.CPU.Microseconds(), res.MaxMemoryBytes, res.OutputBytes
	if !res.StartedAt.IsZero() {
		st.StartedAt = res.StartedAt.UnixMicro()
		st.EndedAt = res.EndedAt.UnixMicro()
	}
	if res.OutputBytes <= inlineLog {
		b, err := wholeLog(ctx, run)
		if err != nil {
			return nil, err
		}
		st.Log, st.LogInline = b, true
		return st, nil
	}
	return st, a.putLog(ctx, run)
}

// logPieces calls f with the kept log of an ended run as one stream: where
// older bytes were dropped a marker line says how many.
func logPieces(ctx context.Context, run *sandbox.Run, f func([]byte) error) error {
	log := run.Log(0, false)
	defer func() { _ = log.Close() }() // read only
	for {
		c, err := log.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log of %s: %w", run.ID(), err)
		}
		if c.Dropped > 0 {
			if err := f([]byte(sandbox.DropMarker(c.Dropped))); err != nil {
				return err
			}
		}
		if err := f(c.Data); err != nil {
			return err
		}
	}
}

func wholeLog(ctx context.Context, run *sandbox.Run) ([]byte, error) {
	out := []byte{}
	err := logPieces(ctx, run, func(b []byte) error { out = append(out, b...); return nil })
	return out, err
}

// putLog hands an ended run's log to the platform in pieces. Pieces are cut at
// the same offsets every time, so that a second try goes on where the first
// stopped.
func (a *Agent) putLog(ctx context.Context, run *sandbox.Run) error {
	var buf []byte
	offset, stored := int64(0), int64(0)
	put := func(piece []byte, end bool) error {
		defer func() { offset += int64(len(piece)) }()
		if offset < stored {
			return nil // the platform has it
		}
		var res adapterv1.PutLogResponse
		if err := a.ask(ctx, "putlog", &adapterv1.PutLogRequest{AttemptId: run.ID(), Offset: offset, Data: piece, End: end}, &res); err != nil {
			return err
		}
		stored = res.Stored
		if stored < offset+int64(len(piece)) {
			return fmt.Errorf("the platform stored %d bytes of the log of %s, want %d", stored, run.ID(), offset+int64(len(piece)))
		}
		return nil
	}
	err := logPieces(ctx, run, func(b []byte) error {
		buf = append(buf, b...)
		for len(buf) >= maxLogPiece {
			if err := put(buf[:maxLogPiece], false); err != nil {
				return err
			}
			buf = append([]byte(nil), buf[maxLogPiece:]...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return put(buf, true)
}

// heartbeats tells the platform that the gateway lives and what it measures.
// The first after a connection asks what should run.
func (a *Agent) heartbeats(ctx context.Context) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	meter := measure.NewMeter(cmp.Or(a.cfg.Root, "/"))
	var runs runMeter
	ctx, stop := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		meter.Watch(ctx, func(err error) { a.log.Warn("use of cards not read", "error", err) })
	})
	defer asking.Wait()
	defer stop()
	sync, declare := false, false
	var told []string // the pool nodes
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.resync:
			sync = true
		case <-a.declare:
			declare = true
		case <-again:
		case <-tick.C:
		}
		again = nil
		nodes := a.poolNodes()
		declare = declare || !slices.Equal(nodes, told)
		req := &adapterv1.HeartbeatRequest{Measurement: a.measure(meter), Resync: sync}
		if time.Since(runs.at) >= runsEvery {
			req.Measurement.Attempts = a.measureRuns(&runs)
		}
		tick.Reset(heartbeat) // the next is no sooner, however late this one is
		if sync || declare {
			req.Inventory, req.Node = a.settled(a.inventory())
			req.Features, req.Parts, req.PoolNodes = a.features(), a.parts(), nodes
		}
		if sync {
			a.switches.Forget()
		}
		var said func()
		req.Equipment, req.EquipmentWhole, said = a.switches.Tell()
		if err := a.ask(ctx, "heartbeat", req, &adapterv1.HeartbeatResponse{}); err != nil {
			a.log.Debug("heartbeat not delivered", "error", err)
			if sync || declare { // the bus is up before the platform listens on it
				again = time.After(200 * time.Millisecond)
			}
			continue
		}
		said()
		declare, told = false, nodes
		if sync {
			a.log.Info("connected to the platform", "bus_name", a.bus.Name())
			sync = false
			a.mu.Lock()
			waiting := len(a.dirty) > 0
			a.mu.Unlock()
			if waiting {
				signal(a.wake)
			}
		}
	}
}
