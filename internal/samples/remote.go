package samples

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/prompb"

	"yunhe.dev/yunhe/internal/fault"
)

const (
	perRequest  = 5000 // samples: about 100 kB compressed
	tries       = 4    // of a request
	firstWait   = 200 * time.Millisecond
	longestWait = 5 * time.Second
	appendTime  = 30 * time.Second // for one Append, with all its requests

	// maxRequests bounds the search for samples that a server refuses; with
	// 5,000 in a request it finds about 30 of them one by one.
	maxRequests = 400

	maxAnswer = 256 << 20 // bytes: MaxSeries long series
)

// remote is Prometheus-compatible storage.
type remote struct {
	client *http.Client
	api    string // of queries, without /query
	write  string
	token  string
	host   string // for messages
	limits limits
}

func newRemote(c Config, l limits) *remote {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// So that all tries fit into a query's time when nobody answers.
	transport.DialContext = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	r := &remote{client: &http.Client{Transport: transport}, api: strings.TrimRight(c.URL, "/") + "/api/v1", write: c.WriteURL, token: c.Token, limits: l}
	if r.write == "" {
		r.write = r.api + "/write"
	}
	if u, err := url.Parse(c.URL); err == nil {
		r.host = u.Host
	}
	return r
}

func (r *remote) close() error {
	r.client.CloseIdleConnections()
	return nil
}

// keyed is a sample and the text of its series, to sort and to compare by.
type keyed struct {
	series string
	at     int64
	value  float64
	labels []prompb.Label
}

func (r *remote) append(ctx context.Context, batch []Sample) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, appendTime)
	defer cancel()

	// 1. Sort by series and time, and settle what the batch says twice.
	all := make([]keyed, len(batch))
	for i := range batch {
		all[i] = toKeyed(&batch[i])
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		return cmp.Or(cmp.Compare(a.series, b.series), cmp.Compare(a.at, b.at))
	})
	var report Report
	kept := all[:0]
	for _, k := range all {
		if n := len(kept); n > 0 && kept[n-1].series == k.series && kept[n-1].at == k.at {
			if same(kept[n-1].value, k.value) {
				report.Stored++
			} else {
				report.Duplicate++
			}
			continue
		}
		kept = append(kept, k)
	}

	// 2. Send, and split what is refused.
	w := &writer{remote: r, left: maxRequests + len(kept)/perRequest}
	for part := range slices.Chunk(kept, perRequest) {
		stored, err := w.send(ctx, part)
		report.add(stored)
		if err != nil {
			return report, err
		}
	}
	return report, nil
}

func toKeyed(s *Sample) keyed {
	k := keyed{at: s.At.UnixMilli(), value: s.Value}
	k.labels = append(k.labels, prompb.Label{Name: model.MetricNameLabel, Value: s.Name})
	for _, l := range s.Labels {
		if l.Value != "" {
			k.labels = append(k.labels, prompb.Label{Name: l.Name, Value: l.Value})
		}
	}
	slices.SortFunc(k.labels, func(a, b prompb.Label) int { return strings.Compare(a.Name, b.Name) })
	var b strings.Builder
	for _, l := range k.labels {
		b.WriteString(l.Name + "\xff" + l.Value + "\xff") // \xff is in no UTF-8
	}
	k.series = b.String()
	return k
}

// writer sends the requests of one append.
type writer struct {
	*remote
	left int // requests
}

// send writes part. Prometheus up to 2.x stores nothing of a request if it
// refuses one sample, and does not say which, so a refused part is sent again
// in halves; newer servers take that as a repetition.
func (w *writer) send(ctx context.Context, part []keyed) (Report, error) {
	w.left--
	reason, err := w.post(ctx, part)
	if err != nil {
		return Report{}, err
	}
	switch {
	case reason == refusedNot:
		return Report{Stored: len(part)}, nil
	case reason == refusedDuplicate && (len(part) == 1 || w.left <= 0):
		return Report{Duplicate: len(part)}, nil
	case len(part) == 1 || w.left <= 0:
		return Report{Late: len(part)}, nil
	}
	report, err := w.send(ctx, part[:len(part)/2])
	if err != nil {
		return report, err
	}
	second, err := w.send(ctx, part[len(part)/2:])
	report.add(second)
	return report, err
}

func encode(part []keyed) ([]byte, error) {
	var req prompb.WriteRequest
	for i, k := range part {
		if i == 0 || part[i-1].series != k.series {
			req.Timeseries = append(req.Timeseries, prompb.TimeSeries{Labels: k.labels})
		}
		s := &req.Timeseries[len(req.Timeseries)-1]
		s.Samples = append(s.Samples, prompb.Sample{Value: k.value, Timestamp: k.at})
	}
	raw, err := req.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode samples: %w", err)
	}
	return snappy.Encode(nil, raw), nil
}

type refusal int

const (
	refusedNot refusal = iota
	refusedLate
	refusedDuplicate
)

// refusedBecause reads the server's words: the protocol has no codes. Some
// versions answer 400, some 500, for the same thing.
func refusedBecause(answer string) refusal {
	switch {
	case strings.Contains(answer, "duplicate sample"):
		return refusedDuplicate
	case strings.Contains(answer, "out of order"), strings.Contains(answer, "out of bounds"), strings.Contains(answer, "too old"),
		strings.Contains(answer, "out-of-order"):
		return refusedLate
	}
	return refusedNot
}

func (w *writer) post(ctx context.Context, part []keyed) (refusal, error) {
	body, err := encode(part)
	if err != nil {
		return refusedNot, err
	}
	status, answer, err := w.do(ctx, w.write, body, http.Header{
		"Content-Type": {"application/x-protobuf"}, "Content-Encoding": {"snappy"},
		"X-Prometheus-Remote-Write-Version": {"0.1.0"},
	}, func(answer []byte) bool { return refusedBecause(string(answer)) != refusedNot })
	if err != nil {
		return refusedNot, err
	}
	if status/100 == 2 {
		return refusedNot, nil
	}
	if reason := refusedBecause(string(answer)); reason != refusedNot {
		return reason, nil
	}
	return refusedNot, w.status(status, answer, "store samples")
}

// do posts body until the server gives a final answer: one that is not a 5xx
// or 429, or that final recognizes.
func (r *remote) do(ctx context.Context, to string, body []byte, header http.Header, final func([]byte) bool) (status int, answer []byte, err error) {
	wait := firstWait
	for try := 1; ; try++ {
		var after time.Duration
		status, answer, after, err = r.once(ctx, to, body, header)
		again := err != nil || status >= 500 || status == http.StatusTooManyRequests
		if errors.Is(ctx.Err(), context.Canceled) {
			return 0, nil, ctx.Err()
		}
		if ctx.Err() != nil {
			return 0, nil, fault.Wrap(fault.Unavailable, cmp.Or(err, ctx.Err()), "sample storage %s did not answer in time", r.host)
		}
		if !again || err == nil && final(answer) {
			return status, answer, nil
		}
		if errors.Is(err, errTooLong) {
			return 0, nil, err
		}
		if try == tries {
			if err == nil {
				err = fmt.Errorf("status %d: %s", status, excerpt(answer))
			}
			return 0, nil, fault.Wrap(fault.Unavailable, err, "sample storage %s does not answer (tried %d times)", r.host, tries)
		}
		// The jitter keeps clients that failed together from returning together.
		pause := max(wait/2+rand.N(wait/2), min(after, longestWait))
		wait = min(2*wait, longestWait)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// errTooLong is an answer that another try would not shorten.
var errTooLong = fault.New(fault.Invalid, "result has more than %d bytes: ask for less", maxAnswer)

func (r *remote) once(ctx context.Context, to string, body []byte, header http.Header) (status int, answer []byte, after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return 0, nil, 0, fmt.Errorf("ask sample storage: %w", err)
	}
	req.Header = header.Clone()
	req.Header.Set("User-Agent", "yunhe")
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, nil, 0, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(answer) > maxAnswer {
		err = errTooLong
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		after = time.Duration(min(s, 3600)) * time.Second
	}
	return resp.StatusCode, answer, after, err
}

// excerpt is what a log can take of an answer.
func excerpt(answer []byte) string {
	return strings.ToValidUTF8(strings.TrimSpace(string(answer[:min(len(answer), 300)])), "")
}

func (r *remote) status(status int, answer []byte, what string) error {
	cause := fmt.Errorf("status %d: %s", status, excerpt(answer))
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Wrap(fault.Denied, cause, "sample storage %s refuses the token", r.host)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fault.Wrap(fault.Unavailable, cause, "sample storage %s has no API to %s at its address: is remote write enabled?", r.host, what)
	}
	return fmt.Errorf("%s: %w", what, cause)
}

func (r *remote) query(ctx context.Context, expr string, from, to time.Time, step time.Duration, most int) ([]Series, error) {
	form := url.Values{"query": {expr}, "timeout": {r.limits.timeout.String()}}
	path := "/query"
	if step == 0 {
		form.Set("time", seconds(from))
	} else {
		path = "/query_range"
		form.Set("start", seconds(from))
		form.Set("end", seconds(to))
		form.Set("step", strconv.FormatFloat(step.Seconds(), 'f', -1, 64))
	}
	var parsed answer
	status, body, err := r.do(ctx, r.api+path, []byte(form.Encode()), http.Header{
		"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"},
	}, func(answer []byte) bool { return bytes.Contains(answer, []byte(`"errorType":"timeout"`)) })
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &parsed); err != nil || parsed.Status == "" {
		if status/100 != 2 {
			return nil, r.status(status, body, "query samples")
		}
		return nil, fmt.Errorf("query samples: answer of %s is not that of Prometheus: %s", r.host, excerpt(body))
	}
	if parsed.Status != "success" {
		switch parsed.ErrorType {
		case "bad_data":
			return nil, fault.New(fault.Invalid, "expression is wrong: %s", parsed.Error)
		case "timeout":
			return nil, fault.New(fault.Invalid, "query took longer than %s: ask for less", r.limits.timeout)
		case "execution":
			return nil, fault.New(fault.Invalid, "expression cannot be evaluated: %s", parsed.Error)
		}
		return nil, r.status(status, body, "query samples")
	}
	return parsed.Data.series(most)
}

// seconds keeps all milliseconds, which a float64 of seconds would not.
func seconds(t time.Time) string {
	ms := t.UnixMilli()
	return fmt.Sprintf("%d.%03d", ms/1000, ms%1000)
}

// answer is what the HTTP API sends.
type answer struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
	Data      data   `json:"data"`
}

type data struct {
	Type   string          `json:"resultType"`
	Result json.RawMessage `json:"result"`
}

type line struct {
	Metric map[string]string `json:"metric"`
	Value  *point            `json:"value"`
	Values []point           `json:"values"`
}

// point is [seconds, "value"].
type point Point

func (p *point) UnmarshalJSON(b []byte) error {
	var at json.Number
	var value string
	if err := json.Unmarshal(b, &[]any{&at, &value}); err != nil {
		return err
	}
	s, err := strconv.ParseFloat(at.String(), 64)
	if err != nil {
		return fmt.Errorf("time of point: %w", err)
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return fmt.Errorf("value of point: %w", err)
	}
	ms := int64(s*1000 + 0.5)
	*p = point{msTime(ms), v}
	return nil
}

func (d data) series(limit int) ([]Series, error) {
	switch d.Type {
	case "vector", "matrix":
		var lines []line
		if err := json.Unmarshal(d.Result, &lines); err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		if len(lines) > limit {
			return nil, tooManySeries(len(lines), limit)
		}
		out := make([]Series, 0, len(lines))
		for _, l := range lines {
			s := Series{Name: l.Metric[model.MetricNameLabel]}
			for name, value := range l.Metric {
				if name != model.MetricNameLabel {
					s.Labels = append(s.Labels, Label{name, value})
				}
			}
			slices.SortFunc(s.Labels, func(a, b Label) int { return strings.Compare(a.Name, b.Name) })
			if l.Value != nil {
				s.Points = []Point{Point(*l.Value)}
			}
			for _, p := range l.Values {
				s.Points = append(s.Points, Point(p))
			}
			if len(s.Points) > 0 { // none: a histogram
				out = append(out, s)
			}
		}
		return out, nil
	case "scalar":
		var p point
		if err := json.Unmarshal(d.Result, &p); err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		return []Series{{Points: []Point{Point(p)}}}, nil
	case "string":
		return nil, fault.New(fault.Invalid, "expression is a string, not a number")
	}
	return nil, fmt.Errorf("read answer: unknown result type %q", d.Type)
}
