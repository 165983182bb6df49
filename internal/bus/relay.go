package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// relay publishes the outbox of a database, in order.
//
// Many events are on their way at once, and any of them may be lost: while a
// stream has no leader, or the way to it is not known yet, nobody takes it, and a
// leader that is no more takes with it what the others do not have. So that those
// behind it do not come before it, they are published as a batch that the stream
// takes as a whole or not at all. After one that was not confirmed, events are
// published one at a time, until one is new to the stream.
//
// What else a stream can check, that a certain event or number came last, would
// not do: the first a cluster judges too late, and takes what it refused for
// something it has, as long as it remembers IDs; the second holds by chance while
// another publishes.
type relay struct {
	bus *Bus
	db  *db.DB
	// sure: what is in the outbox is not in the stream.
	sure bool
	// stuck is an event that the stream said it was taking, at first then.
	stuck string
	since time.Time
}

const (
	relayBatch = 500
	// relayRest is how long after events the next ones wait at least, so that while
	// many come a transaction is for several.
	relayRest = 15 * time.Millisecond
	// relayAgain is how long after events that were not published they wait.
	relayAgain = 250 * time.Millisecond
	// confirmWithin is how long the stream may take to confirm an event.
	confirmWithin = 5 * time.Second
)

// Relay publishes the events of the database's outbox until ctx ends, in the
// order of their IDs. Events that were published but not yet deleted when a
// process died are published again under the same ID, which the stream drops.
func (b *Bus) Relay(ctx context.Context, d *db.DB) error {
	r := relay{bus: b, db: d}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		core.Round(ctx, time.Second)
		n, more, err := r.round(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			core.RoundFailed(ctx, err)
			b.log.Warn("events not published, will try again", "error", err)
			if !rest(ctx, relayAgain) {
				return nil
			}
			continue
		case more:
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.Emitted():
		case <-tick.C:
		}
		if n > 0 && !rest(ctx, relayRest) {
			return nil
		}
	}
}

func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

type event struct {
	id, subject string
	payload     []byte
}

// round publishes what is in the outbox, a batch at most, and returns how many
// those were, and whether there may be more.
func (r *relay) round(ctx context.Context) (n int, more bool, err error) {
	var events []event
	err = r.db.Read(ctx, func(tx *db.Tx) error {
		events = nil
		return tx.Query(ctx, `SELECT event_id, subject, payload FROM outbox ORDER BY event_id LIMIT $1`, []any{relayBatch}, func(row db.Row) error {
			var e event
			if err := row.Scan(&e.id, &e.subject, &e.payload); err != nil {
				return err
			}
			events = append(events, e)
			return nil
		})
	})
	if err != nil || len(events) == 0 {
		return 0, false, err
	}
	n, err = r.publish(ctx, events)
	r.sure = r.sure && err == nil
	if n > 0 {
		// IDs sort by time but two processes may interleave, so delete exactly these.
		ids := make([]string, n)
		for i := range ids {
			ids[i] = events[i].id
		}
		err = errors.Join(err, r.db.RowsTx(ctx, func(tx *db.Tx) error {
			among, arg := tx.In(1, ids)
			return tx.ExecLater(ctx, "delete published events", `DELETE FROM outbox WHERE event_id `+among, arg)
		}))
	}
	return n, n < len(events) || n == relayBatch, err
}

// publish returns how many of the events, from the first on, are in the stream.
func (r *relay) publish(ctx context.Context, events []event) (n int, err error) {
	for ; n < len(events) && (!r.sure || !r.bus.batches || n == len(events)-1); n++ {
		if r.sure, err = r.single(ctx, events[n]); err != nil {
			return n, err
		}
	}
	if n == len(events) {
		return n, nil
	}
	if err := r.batch(ctx, events[n:]); err != nil {
		return n, err
	}
	return len(events), nil
}

// single publishes an event and reports whether it was new to the stream.
//
// A stream may say that it is taking an event: which is on its way; or is there,
// and a server that noted that before it noted that it would be says so for as long
// as it remembers IDs; or was lost on the way, and its ID with it. Such an event is
// looked for, and published only if nothing has come to the stream since it was not
// there, after a while under an ID that the stream cannot have heard of.
func (r *relay) single(ctx context.Context, e event) (fresh bool, err error) {
	m := e.message()
	if r.stuck == e.id {
		looks, cancel := context.WithTimeout(ctx, confirmWithin)
		defer cancel()
		there, last, err := r.there(looks, e.id)
		if there || err != nil {
			return false, err
		}
		m.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(last, 10))
		if time.Since(r.since) > confirmWithin {
			m.Header.Set(jetstream.MsgIDHeader, e.id+again+core.NewID("again"))
		}
	}
	sends, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	ack, err := r.bus.js.PublishMsg(sends, m)
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) && api.ErrorCode == idInProcess && r.stuck != e.id {
		r.stuck, r.since = e.id, time.Now()
		return r.single(ctx, e)
	}
	if err != nil {
		return false, fmt.Errorf("publish %s: %w", e.subject, err)
	}
	return !ack.Duplicate, nil
}

const (
	// idInProcess is the server's code for an ID that it has begun to take.
	idInProcess = 10158
	// again separates the ID of an event from what makes it another.
	again = "~"
)

// there looks for an event among the last of the stream, and returns the number of
// the last: what is published again was in one of the last batches.
func (r *relay) there(ctx context.Context, id string) (there bool, last uint64, err error) {
	s, err := r.bus.js.Stream(ctx, r.bus.stream)
	if err != nil {
		return false, 0, fmt.Errorf("look for event %s: %w", id, err)
	}
	state := s.CachedInfo().State
	for seq, n := state.LastSeq, 0; seq >= max(state.FirstSeq, 1) && n < 2*relayBatch; seq, n = seq-1, n+1 {
		m, err := s.GetMsg(ctx, seq)
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return false, 0, fmt.Errorf("look for event %s: %w", id, err)
		}
		if err != nil {
			continue
		}
		if has, _, _ := strings.Cut(m.Header.Get(jetstream.MsgIDHeader), again); has == id {
			return true, state.LastSeq, nil
		}
	}
	return false, state.LastSeq, nil
}

// batch publishes events so that all are in the stream, or none.
func (r *relay) batch(ctx context.Context, events []event) error {
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	id := core.NewID("batch")
	var last *nats.Msg
	for i, e := range events {
		last = e.message()
		last.Header.Set("Nats-Batch-Id", id)
		last.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		if i == len(events)-1 {
			break
		}
		if err := r.bus.conn.PublishMsg(last); err != nil {
			return fmt.Errorf("publish %s: %w", e.subject, err)
		}
	}
	last.Header.Set("Nats-Batch-Commit", "1")
	answer, err := r.bus.conn.RequestMsgWithContext(ctx, last)
	if err != nil {
		return fmt.Errorf("publish %d events: %w", len(events), err)
	}
	var ack struct {
		Error *jetstream.APIError `json:"error"`
		Batch string              `json:"batch"`
		Count int                 `json:"count"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return fmt.Errorf("publish %d events: %w", len(events), err)
	}
	if ack.Error != nil {
		return fmt.Errorf("publish %d events: %w", len(events), ack.Error)
	}
	if ack.Batch != id || ack.Count != len(events) {
		return fmt.Errorf("publish %d events: %d of batch %q are confirmed", len(events), ack.Count, ack.Batch)
	}
	return nil
}

func (e event) message() *nats.Msg {
	m := nats.NewMsg(eventPrefix + e.subject)
	m.Data = e.payload
	m.Header.Set(jetstream.MsgIDHeader, e.id)
	return m
}
