// Package samples keeps metrics over time: the use of centers, replicas and
// the platform itself. The default engine is the Prometheus TSDB and PromQL in
// this process, in a folder; any Prometheus-compatible storage (remote write
// and HTTP query API) takes its place by configuration alone. Both pass the
// suite in samplestest.
//
// What the package keeps true, on either engine:
//
//   - A sample is a series (name and labels), a time in milliseconds and a
//     value. A series has one value per time: the first that was stored.
//   - Samples may arrive late and in any order within [LateWindow] of the
//     newest sample in the store. Older ones and ones whose time is taken by
//     another value are counted, not stored, and do not harm their neighbors.
//     Ones further than [LateWindow] in the future are refused too: a single
//     wrong clock would otherwise make everyone else late.
//   - A query has an end: in time, points, series and samples read. What
//     exceeds a limit is fault.Invalid naming it, never a shortened result.
//   - [Enforce] confines a query to the series of one tenant.
//
// Samples age out after the retention; they are never the truth about
// anything (that is the state in the database).
//
// # Embedded
//
// Samples are written to a log before they can be read. The log is not synced
// on each append: what Append reported as stored survives the end of the
// process, kill included, but the last seconds may be lost if the machine loses
// power. Every 2 hours the log becomes blocks. A damaged end of the log is cut
// off when the store is opened. Only one process can open a folder.
//
// # Remote
//
// The server decides what is late: set storage.tsdb.out_of_order_time_window
// to 10m in Prometheus to get the same rule. A server that refuses a whole
// request for one sample is asked again in halves. A request is tried up to 4
// times with jitter, within 30 s; after that it is fault.Unavailable, and the
// caller may repeat the batch: the same samples again are no duplicates.
package samples

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"yunhe.dev/yunhe/internal/fault"
)

// Limits of both engines.
const (
	LateWindow    = 10 * time.Minute
	MaxBatch      = 100_000     // samples in one Append
	MaxLabels     = 64          // labels of a sample
	MaxLabelValue = 1024        // bytes
	MaxName       = 256         // bytes in a metric or label name
	MaxPoints     = 11_000      // points per series of a range query
	MaxSeries     = 10_000      // series in a result
	MaxRead       = 10_000_000  // samples a query holds at once: 160 MB (embedded)
	MaxExpr       = 16 << 10    // bytes in an expression
	QueryTimeout  = time.Minute // including the wait for other queries
)

// Label is one dimension of a series.
type Label struct{ Name, Value string }

// Labels tell the series of one name apart. In results they are sorted by name.
type Labels []Label

// L returns the labels for pairs of name and value. It panics on an odd number
// of arguments.
func L(pairs ...string) Labels {
	if len(pairs)%2 != 0 {
		panic(fmt.Sprintf("samples.L: %d arguments are not pairs", len(pairs)))
	}
	out := make(Labels, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, Label{pairs[i], pairs[i+1]})
	}
	return out
}

// Get returns the value of the label with this name, "" if there is none.
func (l Labels) Get(name string) string {
	for _, label := range l {
		if label.Name == name {
			return label.Value
		}
	}
	return ""
}

// Sample is a value of a series at a time.
type Sample struct {
	Name   string
	Labels Labels // in any order; a label with an empty value is as good as none
	Value  float64
	At     time.Time // kept in milliseconds
}

// Point is a value at a time.
type Point struct {
	At    time.Time // UTC
	Value float64
}

// Series is one line of a result. Name is empty where the expression drops it.
type Series struct {
	Name   string
	Labels Labels
	Points []Point // in the order of time
}

// Report says what became of a batch: its counts add up to it.
type Report struct {
	Stored    int // including what had been stored before, with the same value
	Duplicate int // their series has another value at that time
	Late      int // older than LateWindow allows
	Early     int // further than LateWindow in the future
}

// same tells if two values are one: by their bits, as the TSDB does, so that
// NaN is the same as itself.
func same(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

func (r *Report) add(o Report) {
	r.Stored += o.Stored
	r.Duplicate += o.Duplicate
	r.Late += o.Late
	r.Early += o.Early
}

// Config says where samples are kept.
type Config struct {
	// URL is a folder, or the http(s) address of Prometheus-compatible
	// storage, below which /api/v1/query and /api/v1/write are.
	URL string
	// WriteURL is where samples are written if it is not URL/api/v1/write:
	// other products have it elsewhere.
	WriteURL string
	// Token is sent to the server as a bearer token if it is not empty.
	Token string
	// Retention is how long the folder keeps samples, at least 2 h; 0 means 15
	// days. A server has its own.
	Retention time.Duration
}

// DefaultConfig keeps samples for 15 days in a folder under the working
// directory.
func DefaultConfig() Config {
	return Config{URL: "data/samples", Retention: 15 * 24 * time.Hour}
}

// String returns the configuration without its secret.
func (c Config) String() string {
	if c.Token == "" {
		return c.URL
	}
	return c.URL + " (with token)"
}

// GoString is String: %#v must not show secrets either.
func (c Config) GoString() string { return c.String() }

func (c Config) remote() bool {
	return strings.HasPrefix(c.URL, "http://") || strings.HasPrefix(c.URL, "https://")
}

// Validate returns fault.Invalid with every wrong field.
func (c Config) Validate() error {
	var fields []fault.Field
	bad := func(path, format string, args ...any) {
		fields = append(fields, fault.Field{Path: path, Problem: fmt.Sprintf(format, args...)})
	}
	switch {
	case c.URL == "":
		bad("url", "must be a folder or an http(s) address, got nothing")
	case c.remote():
		checkAddress(c.URL, "url", bad)
		if c.WriteURL != "" {
			checkAddress(c.WriteURL, "write_url", bad)
		}
	case strings.Contains(c.URL, "://"):
		scheme, _, _ := strings.Cut(c.URL, "://")
		bad("url", "must be a folder or begin with http:// or https://, got %q", scheme+"://")
	default:
		if c.WriteURL != "" {
			bad("write_url", "is only for http(s) addresses, but url is a folder")
		}
		if c.Token != "" {
			bad("token", "is only for http(s) addresses, but url is a folder")
		}
	}
	if c.Retention != 0 && c.Retention < 2*time.Hour {
		bad("retention", "must be at least 2h, or 0 for 15 days, got %s", c.Retention)
	}
	return fault.Fields(fields...)
}

func checkAddress(address, path string, bad func(path, format string, args ...any)) {
	u, err := url.Parse(address)
	switch {
	case err != nil: // it repeats the text, which may hold a password
		bad(path, "is not an address")
	case u.User != nil:
		bad(path, "must not hold credentials: use token")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.RawQuery != "", u.Fragment != "":
		bad(path, "must be http(s)://host:port/path, got %q", address)
	}
}

// engine is what the two implementations of a store do.
type engine interface {
	// append stores checked samples.
	append(ctx context.Context, batch []Sample) (Report, error)
	// query evaluates a checked expression to at most so many series; step 0
	// means at from only.
	query(ctx context.Context, expr string, from, to time.Time, step time.Duration, most int) ([]Series, error)
	close() error
}

// Store keeps samples. It is safe for concurrent use.
type Store struct {
	engine engine
	now    func() time.Time
	limits limits
}

// limits are those of queries; tests lower them.
type limits struct {
	points, series, read int
	timeout              time.Duration
}

var defaultLimits = limits{points: MaxPoints, series: MaxSeries, read: MaxRead, timeout: QueryTimeout}

// Open returns the store that c names. now is the clock that tells which
// samples are too early. A folder is created if it is missing; kinds:
// Conflict if another process has it open. An address is not contacted.
func Open(c Config, log *slog.Logger, now func() time.Time) (*Store, error) {
	return open(c, log, now, defaultLimits)
}

func open(c Config, log *slog.Logger, now func() time.Time, l limits) (*Store, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Store{now: now, limits: l}
	if c.remote() {
		s.engine = newRemote(c, l)
		return s, nil
	}
	if c.Retention == 0 {
		c.Retention = DefaultConfig().Retention
	}
	e, err := openEmbedded(filepath.Clean(c.URL), c.Retention, log.With("component", "samples"), l)
	if err != nil {
		return nil, err
	}
	s.engine = e
	return s, nil
}

// Close releases the store. Nothing is lost without it but the time to read
// the log on the next Open. No call may be running or follow.
func (s *Store) Close() error { return s.engine.close() }

// Append stores up to MaxBatch samples. Late, early and duplicate ones are
// counted and passed over; a sample that cannot be one (a bad name, no time)
// is fault.Invalid for the whole batch, before anything is stored. After
// another error any part of the batch may be stored, and the caller may repeat
// it. batch is not retained or changed. Kinds: Invalid, Unavailable, Denied,
// Exhausted when the disk is full.
func (s *Store) Append(ctx context.Context, batch []Sample) (Report, error) {
	if len(batch) > MaxBatch {
		return Report{}, fault.New(fault.Invalid, "batch has %d samples, %d are allowed", len(batch), MaxBatch)
	}
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	var report Report
	latest := s.now().Add(LateWindow)
	early := func(sample Sample) bool { return sample.At.After(latest) }
	for i := range batch {
		if err := checkSample(&batch[i]); err != nil {
			return Report{}, fmt.Errorf("sample %d: %w", i, err)
		}
		if early(batch[i]) {
			report.Early++
		}
	}
	if report.Early > 0 {
		batch = slices.DeleteFunc(slices.Clone(batch), early)
	}
	if len(batch) == 0 {
		return report, nil
	}
	stored, err := s.engine.append(ctx, batch)
	report.add(stored)
	return report, err
}

// Query evaluates a PromQL expression at a time. A vector or scalar gives
// series of one point, a range selector series of many.
func (s *Store) Query(ctx context.Context, expr string, at time.Time) ([]Series, error) {
	return s.query(ctx, expr, at, at, 0, s.limits.series)
}

// QueryWide is Query for the platform's own pictures of everything: it gives
// up to most series rather than [MaxSeries]. Nobody else's expression should
// come here, unless what it costs is bounded otherwise.
func (s *Store) QueryWide(ctx context.Context, expr string, at time.Time, most int) ([]Series, error) {
	return s.query(ctx, expr, at, at, 0, most)
}

// QueryRange evaluates a PromQL expression at from, from+step and so on, up to
// and including to.
func (s *Store) QueryRange(ctx context.Context, expr string, from, to time.Time, step time.Duration) ([]Series, error) {
	if step < time.Millisecond {
		return nil, fault.New(fault.Invalid, "step must be at least 1ms, got %s", step)
	}
	if to.Before(from) {
		return nil, fault.New(fault.Invalid, "range ends at %s, before it begins at %s", to.UTC().Format(time.RFC3339), from.UTC().Format(time.RFC3339))
	}
	// In seconds, because a range of centuries overflows a time.Duration.
	if points := float64(to.UnixMilli()-from.UnixMilli())/float64(step.Milliseconds()) + 1; points >= float64(s.limits.points+1) {
		return nil, fault.New(fault.Invalid, "range has %.0f points per series, %d are allowed: use a longer step or a shorter range", points, s.limits.points)
	}
	return s.query(ctx, expr, from, to, step, s.limits.series)
}

func (s *Store) query(ctx context.Context, expr string, from, to time.Time, step time.Duration, most int) ([]Series, error) {
	if err := checkExpr(expr); err != nil {
		return nil, err
	}
	for _, t := range []time.Time{from, to} {
		if err := checkTime(t); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, s.limits.timeout)
	defer cancel()
	series, err := s.engine.query(limited, expr, from, to, step, most)
	if err != nil && limited.Err() != nil {
		if err := ctx.Err(); err != nil {
			return nil, err // the caller's own end
		}
		return nil, fault.Wrap(fault.Invalid, err, "query took longer than %s: ask for less", s.limits.timeout)
	}
	if err != nil {
		return nil, err
	}
	if len(series) > most {
		return nil, tooManySeries(len(series), most)
	}
	return series, nil
}

func tooManySeries(n, limit int) error {
	return fault.New(fault.Invalid, "result has %d series, %d are allowed: select or aggregate more", n, limit)
}

func checkExpr(expr string) error {
	if strings.TrimSpace(expr) == "" {
		return fault.New(fault.Invalid, "expression is empty")
	}
	if len(expr) > MaxExpr {
		return fault.New(fault.Invalid, "expression has %d bytes, %d are allowed", len(expr), MaxExpr)
	}
	return nil
}

// checkTime keeps times where milliseconds, and Prometheus, can follow.
func checkTime(t time.Time) error {
	if y := t.UTC().Year(); y < 1970 || y > 9999 {
		return fault.New(fault.Invalid, "time must be between the years 1970 and 9999, got year %d", y)
	}
	return nil
}

func checkSample(s *Sample) error {
	if !validName(s.Name, true) {
		return fault.New(fault.Invalid, "metric name must be 1 to %d letters, digits, _ and :, not beginning with a digit, got %q", MaxName, s.Name)
	}
	if len(s.Labels) > MaxLabels {
		return fault.New(fault.Invalid, "metric %s has %d labels, %d are allowed", s.Name, len(s.Labels), MaxLabels)
	}
	for i, l := range s.Labels {
		if err := checkLabelName(l.Name); err != nil {
			return fmt.Errorf("metric %s: %w", s.Name, err)
		}
		if len(l.Value) > MaxLabelValue {
			return fault.New(fault.Invalid, "label %s of metric %s has %d bytes, %d are allowed", l.Name, s.Name, len(l.Value), MaxLabelValue)
		}
		if !utf8.ValidString(l.Value) {
			return fault.New(fault.Invalid, "label %s of metric %s is not valid UTF-8: %q", l.Name, s.Name, l.Value)
		}
		for _, other := range s.Labels[:i] {
			if other.Name == l.Name {
				return fault.New(fault.Invalid, "metric %s has label %s twice", s.Name, l.Name)
			}
		}
	}
	if err := checkTime(s.At); err != nil {
		return fmt.Errorf("metric %s: %w", s.Name, err)
	}
	return nil
}

// checkLabelName also refuses what Prometheus keeps for itself (__name__).
func checkLabelName(name string) error {
	if !validName(name, false) || strings.HasPrefix(name, "__") {
		return fault.New(fault.Invalid, "label name must be 1 to %d letters, digits and _, not beginning with a digit or __, got %q", MaxName, name)
	}
	return nil
}

// validName is the classic Prometheus syntax. Newer servers accept any UTF-8,
// but not all storage that speaks the protocol does.
func validName(s string, colon bool) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == ':' && colon, c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return len(s) > 0 && len(s) <= MaxName
}
