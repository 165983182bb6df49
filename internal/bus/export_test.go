package bus

import (
	"context"
	"time"
)

// StepDown has the leader of the event stream step down.
func (b *Bus) StepDown() error {
	_, err := b.conn.Request("$JS.API.STREAM.LEADER.STEPDOWN."+b.stream, nil, 2*time.Second)
	return err
}

// Stream returns the payloads that the event stream has, in its order.
func (b *Bus) Stream(ctx context.Context) ([]string, error) {
	s, err := b.js.Stream(ctx, b.stream)
	if err != nil {
		return nil, err
	}
	var out []string
	for i := uint64(1); i <= s.CachedInfo().State.LastSeq; i++ {
		m, err := s.GetMsg(ctx, i)
		if err != nil {
			return nil, err
		}
		out = append(out, string(m.Data))
	}
	return out, nil
}

// WithoutBatches is a bus to a stream that knows no batches, as that of NATS
// before 2.12.
func (b *Bus) WithoutBatches() *Bus {
	c := *b
	c.batches = false
	return &c
}

// There looks for an event in the stream, as the relay does.
func (b *Bus) There(ctx context.Context, id string) (bool, error) {
	there, _, err := (&relay{bus: b}).there(ctx, id)
	return there, err
}

// PublishStuck publishes an event as a relay does that the stream has told, since
// then, that it is taking it. It reports whether the event was new to the stream.
func (b *Bus) PublishStuck(ctx context.Context, id, subject string, since time.Time) (bool, error) {
	return (&relay{bus: b, stuck: id, since: since}).single(ctx, event{id: id, subject: subject, payload: []byte(id)})
}
