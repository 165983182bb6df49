package metering

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// csvPage is how many records are read at once.
const csvPage = 1000

// csvPause is how long a client may take no data of a page before it is given
// up: an export holds no database connection while it writes, but a goroutine
// and a page.
const csvPause = time.Minute

var csvHeader = []string{
	"attempt_id", "job_id", "tenant_id", "user_name", "task_name", "task_index", "replica_index", "attempt", "ai_center_id", "resource_spec_id",
	"started_at_utc", "ended_at_utc", "duration_microseconds", "cpu_microseconds", "memory_peak_bytes", "price_fen_per_hour", "cost_micro_yuan",
	"allocation_id", "package_microseconds",
}

// ServeCSV answers GET /v1/usage.csv: the records of ListUsage with the same
// filters as query parameters, newest first, as RFC 4180 with a header row
// that names fields and units. Times are RFC 3339, UTC, with microseconds.
//
// A text cell that begins with one of = + - @, a tab, a line end or an
// apostrophe gets an apostrophe in front, so that a spreadsheet does not take
// a name for a formula; a reader takes one leading apostrophe off text cells.
//
// It reads in keyset pages of 1000, each a snapshot of its own, because a slow
// client must not hold a transaction open. Records are never changed or
// removed, so every record that was there at the start is in the export once;
// one recorded meanwhile may be. An export that fails midway is logged and
// breaks the connection: what arrived in good order is complete.
//
// Kinds, before anything is written: Invalid for a wrong or unknown parameter,
// Denied for a caller of no tenant.
func (s *Service) ServeCSV(w http.ResponseWriter, r *http.Request) error {
	f, err := csvFilter(r.URL.RawQuery)
	if err != nil {
		return err
	}
	if f.TenantID, err = tenantOf(r.Context(), f.TenantID); err != nil {
		return err
	}
	page, err := s.page(r.Context(), f, nil, csvPage)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8; header=present")
	h.Set("Content-Disposition", `attachment; filename="usage.csv"`)
	h.Set("Cache-Control", "no-store")
	ctl := http.NewResponseController(w)
	if err := s.writeCSV(r.Context(), w, ctl, f, page); err != nil {
		level := slog.LevelError
		if r.Context().Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
			level = slog.LevelDebug // the client went, or took nothing for csvPause
		}
		// The status is sent. Without a deadline in the past the server would
		// end the answer in good order, and half of it would pass for all.
		if derr := ctl.SetWriteDeadline(time.Unix(1, 0)); derr != nil {
			err = errors.Join(err, fmt.Errorf("break the connection: %w", derr))
		}
		s.log.Log(r.Context(), level, "usage export broken off", "user_id", core.CallerFrom(r.Context()).UserID, "error", err)
	}
	return nil
}

func (s *Service) writeCSV(ctx context.Context, w io.Writer, ctl *http.ResponseController, f Filter, page []Record) error {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	if err := out.Write(csvHeader); err != nil {
		return err
	}
	for {
		if err := ctl.SetWriteDeadline(time.Now().Add(csvPause)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		for i := range page {
			if err := out.Write(csvRow(&page[i])); err != nil {
				return err
			}
		}
		out.Flush()
		if err := out.Error(); err != nil {
			return err
		}
		if len(page) < csvPage {
			return nil
		}
		last := page[len(page)-1]
		var err error
		if page, err = s.page(ctx, f, &position{db.Micros(last.EndedAt), last.AttemptID}, csvPage); err != nil {
			return err
		}
	}
}

const csvTime = "2006-01-02T15:04:05.000000Z07:00"

func csvRow(r *Record) []string {
	n := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []string{
		csvText(r.AttemptID), csvText(r.JobID), csvText(r.TenantID), csvText(r.UserName), csvText(r.TaskName),
		n(int64(r.TaskIndex)), n(int64(r.ReplicaIndex)), n(int64(r.Attempt)), csvText(r.AICenterID), csvText(r.ResourceSpecID),
		r.StartedAt.Format(csvTime), r.EndedAt.Format(csvTime), n(r.Duration().Microseconds()), n(r.CPUMicros), n(r.MemoryPeakBytes), n(r.Price), n(r.CostMicros),
		csvText(r.AllocationID), n(r.packageMicros()),
	}
}

func csvText(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r\n'", rune(s[0])) {
		return "'" + s
	}
	return s
}

// csvFilter reads the parameters of the export. As in the rest of the API a
// name may be written job_id or jobId; one that is unknown or comes twice is
// an error.
func csvFilter(query string) (Filter, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return Filter{}, fault.New(fault.Invalid, "the query parameters are not URL-encoded")
	}
	var f Filter
	var c core.Check
	seen := map[string]bool{}
	for _, name := range sorted(values) {
		field := snake(name)
		if len(values[name]) > 1 || seen[field] {
			c.Add(clip(field), "must be given once")
			continue
		}
		seen[field] = true
		value := values[name][0]
		switch field {
		case "tenant_id":
			f.TenantID = value
		case "job_id":
			f.JobID = value
		case "ai_center_id":
			f.AICenterID = value
		case "user_name":
			f.UserName = value
		case "allocation_id":
			f.AllocationID = value
		case "ended_after":
			f.EndedAfter = csvParseTime(&c, field, value)
		case "ended_before":
			f.EndedBefore = csvParseTime(&c, field, value)
		default:
			c.Add(clip(name), "is not a parameter of this export; use tenant_id, job_id, ai_center_id, user_name, allocation_id, ended_after, ended_before")
		}
	}
	if err := c.Err(); err != nil {
		return Filter{}, err
	}
	return f, f.check()
}

func csvParseTime(c *core.Check, path, value string) time.Time {
	if value == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		c.Add(path, "must be a time such as 2026-01-02T15:04:05Z (a + is written %%2B), got %q", clip(value))
	}
	return t
}

func sorted(v url.Values) []string {
	names := make([]string, 0, len(v))
	for name := range v {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// snake turns jobId into job_id.
func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
