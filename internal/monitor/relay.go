package monitor

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"time"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/samples"
)

// Store is where samples are: a [samples.Store] of this process, or a [Relay].
type Store interface {
	Append(ctx context.Context, batch []samples.Sample) (samples.Report, error)
	Query(ctx context.Context, expr string, at time.Time) ([]samples.Series, error)
	QueryRange(ctx context.Context, expr string, from, to time.Time, step time.Duration) ([]samples.Series, error)
	QueryWide(ctx context.Context, expr string, at time.Time, most int) ([]samples.Series, error)
}

// Relay is the store of another process, reached over the bus: where samples
// are kept in a folder, they are in the folder of the process that collects
// them, and every other process reads and writes them there. [Serve] answers.
// Calls fail with fault.Unavailable while no process does.
type Relay struct{ bus *bus.Bus }

// NewRelay returns a store whose samples another process has.
func NewRelay(b *bus.Bus) *Relay { return &Relay{b} }

const (
	relaySubject = "yunhe.samples"
	relayWidth   = 8
	relayTimeout = 30 * time.Second
	// relayBatch samples go in one message: about 2 MB before they are packed.
	relayBatch = 20_000
	// maxRelayed bytes of an answer fit into a message.
	maxRelayed = 7 << 20
	// maxUnpacked bytes are read of a message.
	maxUnpacked = 256 << 20
)

// relayed is a request and its answer.
type relayed struct {
	Batch  []samples.Sample // to append; empty: a query
	Query  string
	From   time.Time
	To     time.Time
	Step   time.Duration // 0: at From only
	Most   int           // series of a wide query; 0: it is none
	Report samples.Report
	Series []samples.Series
}

// Append is [samples.Store.Append].
func (r *Relay) Append(ctx context.Context, batch []samples.Sample) (samples.Report, error) {
	var sum samples.Report
	for len(batch) > 0 {
		n := min(len(batch), relayBatch)
		res, err := r.ask(ctx, &relayed{Batch: batch[:n]})
		if err != nil {
			return sum, err
		}
		sum.Stored, sum.Duplicate = sum.Stored+res.Report.Stored, sum.Duplicate+res.Report.Duplicate
		sum.Late, sum.Early = sum.Late+res.Report.Late, sum.Early+res.Report.Early
		batch = batch[n:]
	}
	return sum, nil
}

// Query is [samples.Store.Query].
func (r *Relay) Query(ctx context.Context, expr string, at time.Time) ([]samples.Series, error) {
	res, err := r.ask(ctx, &relayed{Query: expr, From: at})
	if err != nil {
		return nil, err
	}
	return res.Series, nil
}

// QueryWide is [samples.Store.QueryWide].
func (r *Relay) QueryWide(ctx context.Context, expr string, at time.Time, most int) ([]samples.Series, error) {
	if most < 1 {
		return nil, fault.New(fault.Invalid, "at least 1 series must be allowed, got %d", most)
	}
	res, err := r.ask(ctx, &relayed{Query: expr, From: at, Most: most})
	if err != nil {
		return nil, err
	}
	return res.Series, nil
}

// QueryRange is [samples.Store.QueryRange].
func (r *Relay) QueryRange(ctx context.Context, expr string, from, to time.Time, step time.Duration) ([]samples.Series, error) {
	if step == 0 {
		return nil, fault.New(fault.Invalid, "step must be at least 1ms, got 0s")
	}
	res, err := r.ask(ctx, &relayed{Query: expr, From: from, To: to, Step: step})
	if err != nil {
		return nil, err
	}
	return res.Series, nil
}

func (r *Relay) ask(ctx context.Context, req *relayed) (*relayed, error) {
	data, err := pack(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	out, err := r.bus.Request(ctx, relaySubject, data)
	if err != nil {
		if fault.KindOf(err) == fault.Unavailable {
			return nil, fault.Wrap(fault.Unavailable, err, "the process that keeps the samples does not answer: does one run with the role watch?")
		}
		return nil, err
	}
	return unpack(out)
}

// Serve answers the [Relay] of other processes from store until ctx ends. One
// process at a time MUST do so (run.Elector).
func Serve(ctx context.Context, b *bus.Bus, store Store) error {
	return b.Answer(ctx, relaySubject, "samples", relayWidth, func(ctx context.Context, _ string, data []byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, relayTimeout)
		defer cancel()
		return serve(ctx, store, data)
	})
}

func serve(ctx context.Context, store Store, data []byte) ([]byte, error) {
	req, err := unpack(data)
	if err != nil {
		return nil, err
	}
	var res relayed
	switch {
	case len(req.Batch) > 0:
		res.Report, err = store.Append(ctx, req.Batch)
	case req.Most > 0:
		res.Series, err = store.QueryWide(ctx, req.Query, req.From, req.Most)
	case req.Step == 0:
		res.Series, err = store.Query(ctx, req.Query, req.From)
	default:
		res.Series, err = store.QueryRange(ctx, req.Query, req.From, req.To, req.Step)
	}
	if err != nil {
		return nil, err
	}
	out, err := pack(&res)
	if err == nil && len(out) > maxRelayed {
		err = fault.New(fault.Invalid, "the answer has %d bytes, %d can be passed between processes: aggregate more, or use a longer step or a shorter range", len(out), maxRelayed)
	}
	return out, err
}

func pack(r *relayed) ([]byte, error) {
	var buf bytes.Buffer
	z, err := flate.NewWriter(&buf, flate.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("pack samples: %w", err)
	}
	if err := gob.NewEncoder(z).Encode(r); err != nil {
		return nil, fmt.Errorf("pack samples: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("pack samples: %w", err)
	}
	return buf.Bytes(), nil
}

func unpack(data []byte) (*relayed, error) {
	r := &relayed{}
	if err := gob.NewDecoder(io.LimitReader(flate.NewReader(bytes.NewReader(data)), maxUnpacked)).Decode(r); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "samples that were passed between processes cannot be read")
	}
	return r, nil
}
