// Package monitor shows the state of the network over time and collects it.
//
// What it keeps true:
//
//   - A query reads only what its caller may see. A caller who may not see all
//     tenants reads the series that carry no tenant label (centers, the
//     platform) and those of their own tenant; the series of others do not
//     exist for them, whatever the expression says.
//   - A query is bounded before it runs: its length, range, step and points;
//     and its answer, in points. What is too much is refused with the field,
//     the value and the limit, never cut short.
//   - Collecting never holds up anything else. The store may be slow, full or
//     gone: a round ends within its interval, what was gathered waits in
//     memory within bounds, and the log says once that an outage began and
//     once that it ended.
//
// # The collector
//
//	          gathered                    stored
//	gather ------------> waiting rounds ---------> store
//	                          |
//	                          | older than the store accepts, more than it
//	                          v takes in one batch, or refused as wrong
//	                       dropped, counted, logged
//
// # Measurements of centers
//
// What centers measure comes in where the centers are reached, which may be
// another process than the one that keeps the samples:
//
//	driver, gateway --> adapters --> Intake --> Collector --> store, or Relay --> bus --> Serve --> store
//
// An intake takes what can be, in the units that the names of the samples say,
// and refuses the rest, figure by figure: a busy ratio above 1, a negative
// amount, a name twice, a clock that is far off. The log says so when it
// begins and ends, and a series counts it. A figure that was not measured is
// absent, never 0. Of a run, only what the center says counts at which it runs:
// the samples of runs bear the tenant that the platform knows, asked for before
// they are stored. Where samples are kept in a folder, only the process that
// collects them has it; the others pass batches and queries to it over the bus.
//
// Samples are not the truth about anything: what is lost in a crash is a gap
// in a chart.
package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/samples"
)

// Limits of a query.
const (
	MaxQuery  = 4 << 10             // bytes of the expression
	MaxRange  = 31 * 24 * time.Hour // from the first point to the last
	MaxPoints = samples.MaxPoints   // per series
	MaxResult = 200_000             // points of all series: about 10 MB of JSON
)

const (
	defaultRange  = time.Hour
	defaultPoints = 120
)

// TenantLabel is the label that says whose a series is. Series without it are
// everyone's.
const TenantLabel = "tenant"

// Service answers queries. It is safe for concurrent use.
type Service struct {
	// Now is the clock; nil means time.Now. It is set before the first call.
	Now func() time.Time
	// Known reports what is wrong with a center, or with one of its nodes ("":
	// none is meant): fault.NotFound if there is none; nil: nobody knows. It is
	// set before the first call.
	Known func(ctx context.Context, center, node string) error
	// Job reports fault.NotFound for a job that the caller in ctx does not see;
	// nil: nobody knows. It is set before the first call.
	Job func(ctx context.Context, id string) error
	// Owners says whose runs are; nil: nobody does, and none has figures. It is
	// set before the first call.
	Owners Owners

	store Store
	log   *slog.Logger
}

// New returns a service that is ready. The store stays the caller's to close.
func New(store Store, log *slog.Logger) *Service {
	return &Service{store: store, log: log.With("component", "monitor")}
}

// Range is a query over a range of time.
type Range struct {
	Query string // PromQL
	Start time.Time
	End   time.Time
	// StepSeconds between points; 0 means a 120th of the range, at least 1.
	StepSeconds int64
}

// QueryRange evaluates a query for the caller in ctx. A zero End is now, a
// zero Start an hour before End. Kinds: Invalid for what exceeds a limit or is
// not PromQL, Denied for a caller of no tenant, and those of the store.
func (s *Service) QueryRange(ctx context.Context, r Range) ([]samples.Series, error) {
	r, step, err := s.check(r)
	if err != nil {
		return nil, err
	}
	caller := core.CallerFrom(ctx)
	query := r.Query
	switch {
	case caller.AllTenants:
	case caller.TenantID == "":
		return nil, fault.New(fault.Denied, "user %q belongs to no tenant", caller.UserID)
	default:
		if query, err = confine(query, caller.TenantID); err != nil {
			return nil, err
		}
	}
	series, err := s.store.QueryRange(ctx, query, r.Start, r.End, step)
	if err != nil {
		return nil, fmt.Errorf("query samples: %w", err)
	}
	points := 0
	for _, x := range series {
		points += len(x.Points)
	}
	if points > MaxResult {
		return nil, fault.New(fault.Invalid, "the answer has %d points in %d series, %d points are allowed: aggregate more, or use a longer step or a shorter range", points, len(series), MaxResult)
	}
	return series, nil
}

// check fills in what r leaves open.
func (s *Service) check(r Range) (Range, time.Duration, error) {
	var c core.Check
	switch {
	case r.Query == "":
		c.Add("query", "is required")
	case len(r.Query) > MaxQuery:
		c.Add("query", "must be at most %d bytes, got %d", MaxQuery, len(r.Query))
	default:
		if _, err := promQL.ParseExpr(r.Query); err != nil {
			c.Add("query", "is not PromQL: %v", err)
		}
	}
	if r.End.IsZero() {
		r.End = s.now()
	}
	if r.Start.IsZero() {
		r.Start = r.End.Add(-defaultRange)
	}
	bad := false
	for _, t := range []struct {
		path string
		at   time.Time
	}{{"start", r.Start}, {"end", r.End}} {
		if y := t.at.UTC().Year(); y < 1970 || y > 9999 {
			c.Add(t.path, "must be between the years 1970 and 9999, got year %d", y)
			bad = true
		}
	}
	span := r.End.Sub(r.Start) // saturates
	switch {
	case bad:
	case span < 0:
		c.Add("start", "must not be after end %s, got %s", r.End.UTC().Format(time.RFC3339Nano), r.Start.UTC().Format(time.RFC3339Nano))
	case span > MaxRange:
		c.Add("start", "must be at most %d days before end, got %.1f days", MaxRange/(24*time.Hour), span.Hours()/24)
	}
	if r.StepSeconds == 0 {
		r.StepSeconds = max(1, int64(min(span, MaxRange)/time.Second)/defaultPoints)
	}
	if most := int64(MaxRange / time.Second); r.StepSeconds < 1 || r.StepSeconds > most {
		c.Add("step_seconds", "must be between 1 and %d, or 0 for a %dth of the range, got %d", most, defaultPoints, r.StepSeconds)
		return r, 0, c.Err()
	}
	step := time.Duration(r.StepSeconds) * time.Second
	if points := int64(span/step) + 1; span >= 0 && span <= MaxRange && points > MaxPoints {
		least := int64(span/time.Second)/MaxPoints + 1
		c.Add("step_seconds", "must be at least %d for a range of %s: %d gives %d points per series, %d are allowed", least, span, r.StepSeconds, points, MaxPoints)
	}
	return r, step, c.Err()
}

func (s *Service) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// promQL leaves experimental functions off. confine relies on it: info() reads
// series that no selector in the expression names.
var promQL = parser.NewParser(parser.Options{})

// confine returns a query that reads only series without a tenant label and
// those of the tenant, and is otherwise the same: every selector gets one more
// matcher, which narrows what it says itself about the label. The query may
// come from anyone. ([samples.Enforce] confines to one value; here the series
// without the label are meant too.) One thing shows: absent() takes the labels
// of its answer from the selector, and no tenant from one that names it twice.
func confine(query, tenant string) (string, error) {
	expr, err := promQL.ParseExpr(query)
	if err != nil {
		return "", fault.New(fault.Invalid, "query is not PromQL: %v", err)
	}
	// Matchers are anchored at both ends.
	own, err := labels.NewMatcher(labels.MatchRegexp, TenantLabel, "|"+regexp.QuoteMeta(tenant))
	if err != nil {
		return "", fmt.Errorf("confine query to tenant %s: %w", tenant, err)
	}
	all := selectors(expr)
	for _, s := range all {
		s.LabelMatchers = append(s.LabelMatchers, own)
	}
	confined := expr.String()

	// Printing and parsing are not ours: trust the text only if it says what
	// the tree says.
	again, err := promQL.ParseExpr(confined)
	if err != nil || again.String() != confined || len(selectors(again)) != len(all) {
		return "", fault.New(fault.Invalid, "query cannot be confined to your tenant: write it in a simpler way")
	}
	for _, s := range selectors(again) {
		if !has(s.LabelMatchers, own) {
			return "", fault.New(fault.Invalid, "query cannot be confined to your tenant: write it in a simpler way")
		}
	}
	return confined, nil
}

// selectors returns every part of an expression that reads series.
func selectors(expr parser.Expr) []*parser.VectorSelector {
	var out []*parser.VectorSelector
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			out = append(out, s)
		}
		return nil
	})
	return out
}

func has(list []*labels.Matcher, want *labels.Matcher) bool {
	for _, m := range list {
		if m.Type == want.Type && m.Name == want.Name && m.Value == want.Value {
			return true
		}
	}
	return false
}
