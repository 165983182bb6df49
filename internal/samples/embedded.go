package samples

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/compression"

	"yunhe.dev/yunhe/internal/fault"
)

// parallelQueries bounds memory: each query may hold MaxRead samples.
const parallelQueries = 8

// embedded is the TSDB and PromQL in this process.
type embedded struct {
	db      *tsdb.DB
	promql  *promql.Engine
	running chan struct{} // one token per running query
	limits  limits

	// mu lets one append at a time add new series, in memory; it is not held
	// while the log is written. Two at once would make the TSDB sort lists that
	// queries are reading (a known race in it), which then see wrong series.
	mu sync.Mutex
}

func openEmbedded(dir string, retention time.Duration, log *slog.Logger, l limits) (*embedded, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission) {
			return nil, fault.Wrap(fault.Invalid, err, "sample folder %q cannot be used", dir)
		}
		return nil, fmt.Errorf("create sample folder: %w", err)
	}
	o := tsdb.DefaultOptions()
	o.RetentionDuration = retention.Milliseconds()
	// Compaction joins blocks up to a tenth of the retention, as Prometheus does.
	o.MaxBlockDuration = max(o.MinBlockDuration, o.RetentionDuration/10)
	o.OutOfOrderTimeWindow = LateWindow.Milliseconds()
	o.WALCompression = compression.Snappy
	// The defaults are for millions of series: 16,384 stripes and segments of
	// 128 MB cost 12 MB at rest. A platform has tens of thousands.
	o.StripeSize = 512
	o.WALSegmentSize = 16 << 20
	o.HeadChunksWriteBufferSize = 64 << 10
	o.WALReplayConcurrency = 2
	db, err := tsdb.Open(dir, log, nil, o, nil)
	if err != nil {
		if strings.Contains(err.Error(), "lock DB directory") {
			return nil, fault.Wrap(fault.Conflict, err, "sample folder %q is in use by another process", dir)
		}
		return nil, fmt.Errorf("open samples in %s: %w", dir, err)
	}
	return &embedded{
		db: db,
		promql: promql.NewEngine(promql.EngineOpts{
			MaxSamples: l.read, Timeout: l.timeout, LookbackDelta: 5 * time.Minute,
			EnableAtModifier: true, EnableNegativeOffset: true, Parser: promParser,
			NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		}),
		running: make(chan struct{}, parallelQueries),
		limits:  l,
	}, nil
}

func (e *embedded) close() error { return e.db.Close() }

// slot is the place of one value: the TSDB notices a place that is taken in
// what is stored, but not within a batch.
type slot struct {
	series storage.SeriesRef
	at     int64
}

func (e *embedded) append(ctx context.Context, batch []Sample) (Report, error) {
	// In order of time: the first samples of an empty store are not late.
	order := make([]int32, len(batch))
	for i := range order {
		order[i] = int32(i)
	}
	inTime := func(a, b int32) int { return batch[a].At.Compare(batch[b].At) }
	if !slices.IsSortedFunc(order, inTime) {
		slices.SortStableFunc(order, inTime)
	}

	var builder labels.ScratchBuilder
	metrics := make([]labels.Labels, len(batch))
	for i := range batch {
		metrics[i] = series(&builder, &batch[i])
	}
	app := e.db.AppenderV2(ctx)
	report, err := e.stage(app, batch, metrics, order)
	if err != nil {
		return Report{}, errors.Join(failedAppend(err), app.Rollback())
	}
	if err := app.Commit(); err != nil {
		return Report{}, failedAppend(err)
	}
	return report, nil
}

// stage gives the samples to app in the given order, and counts.
func (e *embedded) stage(app storage.AppenderV2, batch []Sample, metrics []labels.Labels, order []int32) (Report, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var report Report
	taken := make(map[slot]float64, len(batch))
	for _, i := range order {
		value, at := batch[i].Value, batch[i].At.UnixMilli()
		ref, err := app.Append(0, metrics[i], 0, at, value, nil, nil, storage.AOptions{})
		switch {
		case err == nil:
			if first, ok := taken[slot{ref, at}]; ok && !same(first, value) {
				report.Duplicate++
				continue
			}
			taken[slot{ref, at}] = value
			report.Stored++
		case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
			report.Duplicate++
		case errors.Is(err, storage.ErrTooOldSample), errors.Is(err, storage.ErrOutOfBounds), errors.Is(err, storage.ErrOutOfOrderSample):
			report.Late++
		default:
			return Report{}, err
		}
	}
	return report, nil
}

func failedAppend(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fault.Wrap(fault.Exhausted, err, "samples cannot be stored: the disk is full")
	}
	return fmt.Errorf("append samples: %w", err)
}

// series returns the labels of a sample as the TSDB has them.
func series(b *labels.ScratchBuilder, s *Sample) labels.Labels {
	b.Reset()
	b.Add(model.MetricNameLabel, s.Name)
	for _, l := range s.Labels {
		if l.Value != "" {
			b.Add(l.Name, l.Value)
		}
	}
	b.Sort()
	return b.Labels()
}

func (e *embedded) query(ctx context.Context, expr string, from, to time.Time, step time.Duration, most int) ([]Series, error) {
	select {
	case e.running <- struct{}{}:
		defer func() { <-e.running }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var (
		q   promql.Query
		err error
	)
	if step == 0 {
		q, err = e.promql.NewInstantQuery(ctx, e.db, nil, expr, from)
	} else {
		q, err = e.promql.NewRangeQuery(ctx, e.db, nil, expr, from, to, step)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "expression is wrong: %v", err)
	}
	defer q.Close()
	result := q.Exec(ctx)
	if result.Err != nil {
		return nil, e.failedQuery(result.Err)
	}
	return convert(result.Value, from, most)
}

func (e *embedded) failedQuery(err error) error {
	var (
		tooMany  promql.ErrTooManySamples
		storage  promql.ErrStorage
		canceled promql.ErrQueryCanceled
		timeout  promql.ErrQueryTimeout
	)
	switch {
	case errors.As(err, &tooMany):
		return fault.Wrap(fault.Invalid, err, "query reads more than %d samples: ask for less", e.limits.read)
	case errors.As(err, &canceled):
		return fmt.Errorf("%w: %w", context.Canceled, err)
	case errors.As(err, &timeout):
		return fault.Wrap(fault.Invalid, err, "query took longer than %s: ask for less", e.limits.timeout)
	case errors.As(err, &storage):
		return fmt.Errorf("read samples: %w", err)
	}
	return fault.New(fault.Invalid, "expression cannot be evaluated: %v", err)
}

// convert copies a result, whose points go back to a pool.
func convert(value any, at time.Time, most int) ([]Series, error) {
	switch v := value.(type) {
	case promql.Vector:
		if len(v) > most {
			return nil, tooManySeries(len(v), most)
		}
		out := make([]Series, 0, len(v))
		for _, s := range v {
			if s.H == nil { // histograms come from elsewhere, if at all
				out = append(out, named(s.Metric, []Point{{msTime(s.T), s.F}}))
			}
		}
		return out, nil
	case promql.Matrix:
		if len(v) > most {
			return nil, tooManySeries(len(v), most)
		}
		out := make([]Series, 0, len(v))
		for _, s := range v {
			points := make([]Point, len(s.Floats))
			for i, p := range s.Floats {
				points[i] = Point{msTime(p.T), p.F}
			}
			if len(points) > 0 {
				out = append(out, named(s.Metric, points))
			}
		}
		return out, nil
	case promql.Scalar:
		return []Series{{Points: []Point{{msTime(v.T), v.V}}}}, nil
	}
	return nil, fault.New(fault.Invalid, "expression is a string, not a number")
}

func named(metric labels.Labels, points []Point) Series {
	s := Series{Points: points}
	metric.Range(func(l labels.Label) {
		if l.Name == model.MetricNameLabel {
			s.Name = l.Value
		} else {
			s.Labels = append(s.Labels, Label{l.Name, l.Value})
		}
	})
	return s
}

func msTime(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
