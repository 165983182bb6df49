package metering_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/metering"
	"yunhe.dev/yunhe/internal/rpc"
)

// gate knows the callers by token.
type gate map[string]core.Caller

func (g gate) Authenticate(_ context.Context, token string) (core.Caller, error) {
	c, ok := g[token]
	if !ok {
		return c, fault.New(fault.Unauthenticated, "unknown key")
	}
	return c, nil
}

func (gate) Audit(context.Context, core.Audit, string, string) error { return nil }

var reads = map[string]bool{"metering.read": true}

var callers = gate{
	"a":         {UserID: "usr_a", TenantID: "ten_a", Permissions: reads},
	"b":         {UserID: "usr_b", TenantID: "ten_b", Permissions: reads},
	"all":       {UserID: "usr_all", TenantID: "ten_a", AllTenants: true, Permissions: reads},
	"nowhere":   {UserID: "usr_n", Permissions: reads},
	"powerless": {UserID: "usr_p", TenantID: "ten_a"},
}

// serve puts the service behind the whole server on a loopback port.
func serve(t *testing.T, s *metering.Service) string {
	t.Helper()
	srv := httptest.NewServer(handler(t, s))
	t.Cleanup(srv.Close)
	return srv.URL
}

func handler(t *testing.T, s *metering.Service) http.Handler {
	t.Helper()
	srv := rpc.New(rpc.Config{}, callers, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	s.Register(srv)
	h, err := srv.Handler()
	must(t, err)
	return h
}

// get returns status and body of a request with the token.
func get(t *testing.T, token, target string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	body, err := io.ReadAll(res.Body)
	must(t, errors.Join(err, res.Body.Close()))
	return res.StatusCode, string(body), res.Header
}

// usage is a record as REST has it.
type usage struct {
	AttemptID, JobID, TenantID, UserName, TaskName string
	TaskIndex, ReplicaIndex, Attempt               int32
	AICenterID                                     string `json:"aiCenterId"`
	ResourceSpecID                                 string
	StartedAt, EndedAt                             time.Time
	DurationMicroseconds, CPUMicroseconds          int64 `json:",string"`
	MemoryPeakBytes, Price, CostMicros             int64 `json:",string"`
}

func (u usage) record(t *testing.T) metering.Record {
	t.Helper()
	if d := u.EndedAt.Sub(u.StartedAt).Microseconds(); d != u.DurationMicroseconds {
		t.Errorf("run %s: duration %d µs, times say %d", u.AttemptID, u.DurationMicroseconds, d)
	}
	return metering.Record{
		AttemptID: u.AttemptID, JobID: u.JobID, TenantID: u.TenantID, UserName: u.UserName, TaskName: u.TaskName,
		TaskIndex: u.TaskIndex, ReplicaIndex: u.ReplicaIndex, Attempt: u.Attempt, AICenterID: u.AICenterID, ResourceSpecID: u.ResourceSpecID,
		StartedAt: u.StartedAt, EndedAt: u.EndedAt, CPUMicros: u.CPUMicroseconds, MemoryPeakBytes: u.MemoryPeakBytes, Price: u.Price, CostMicros: u.CostMicros,
	}
}

// listREST returns what GET /v1/usage lists, page by page.
func listREST(t *testing.T, base, token string, q url.Values) []metering.Record {
	t.Helper()
	var out []metering.Record
	for {
		status, body, _ := get(t, token, base+"/v1/usage?"+q.Encode())
		var page struct {
			Usage         []usage
			NextPageToken string
		}
		if err := json.Unmarshal([]byte(body), &page); status != http.StatusOK || err != nil {
			t.Fatalf("GET /v1/usage?%s: %d %s, %v", q.Encode(), status, body, err)
		}
		for _, u := range page.Usage {
			out = append(out, u.record(t))
		}
		if page.NextPageToken == "" {
			return out
		}
		q.Set("page_token", page.NextPageToken)
	}
}

// listCSV returns what GET /v1/usage.csv exports.
func listCSV(t *testing.T, base, token string, q url.Values) []metering.Record {
	t.Helper()
	status, body, header := get(t, token, base+"/v1/usage.csv?"+q.Encode())
	if status != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/csv") {
		t.Fatalf("GET /v1/usage.csv?%s: %d %s %s", q.Encode(), status, header, body)
	}
	return parseCSV(t, body)
}

var csvHeader = []string{
	"attempt_id", "job_id", "tenant_id", "user_name", "task_name", "task_index", "replica_index", "attempt", "ai_center_id", "resource_spec_id",
	"started_at_utc", "ended_at_utc", "duration_microseconds", "cpu_microseconds", "memory_peak_bytes", "price_fen_per_hour", "cost_micro_yuan",
	"allocation_id", "package_microseconds",
}

func parseCSV(t *testing.T, body string) []metering.Record {
	t.Helper()
	if n := strings.Count(body, "\n"); n != strings.Count(body, "\r\n") || !strings.HasSuffix(body, "\r\n") {
		t.Errorf("lines do not all end with CR LF")
	}
	rows, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	must(t, err)
	if diff := cmp.Diff(csvHeader, rows[0]); diff != "" {
		t.Errorf("header (-want +got): %s", diff)
	}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		must(t, err)
		return n
	}
	at := func(s string) time.Time {
		const form = "2006-01-02T15:04:05.000000Z"
		v, err := time.Parse(form, s)
		must(t, err)
		if v.Format(form) != s {
			t.Errorf("time %q is not of the form %s", s, form)
		}
		return v
	}
	var out []metering.Record
	for _, c := range rows[1:] {
		for i, cell := range c {
			if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
				t.Errorf("cell %s of %q would be a formula: %q", csvHeader[i], c, cell)
			}
		}
		text := func(i int) string { return strings.TrimPrefix(c[i], "'") }
		r := metering.Record{
			AttemptID: text(0), JobID: text(1), TenantID: text(2), UserName: text(3), TaskName: text(4),
			TaskIndex: int32(number(c[5])), ReplicaIndex: int32(number(c[6])), Attempt: int32(number(c[7])), AICenterID: text(8), ResourceSpecID: text(9),
			StartedAt: at(c[10]), EndedAt: at(c[11]), CPUMicros: number(c[13]), MemoryPeakBytes: number(c[14]), Price: number(c[15]), CostMicros: number(c[16]), AllocationID: text(17),
		}
		if r.AllocationID != "" {
			r.PackageMicros = number(c[18])
		}
		if r.Duration().Microseconds() != number(c[12]) {
			t.Errorf("duration of %q does not follow from its times", c)
		}
		out = append(out, r)
	}
	return out
}

func TestListsOverTheWire(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := open(t, d)
		r := rand.New(rand.NewPCG(13, 14))
		records := random(r, 300)
		record(t, d, s, records...)
		newestFirst(records)
		base := serve(t, s)
		// Whoever asks, for whichever tenant, by whichever filter: exactly the
		// records that a plain look at all of them gives, and no one else's.
		cases := 0
		for _, token := range []string{"a", "b", "all"} {
			for _, tenant := range []string{"", "ten_a", "ten_b", "ten_c"} {
				for _, job := range []string{"", "job_ten_a1", "job_ten_b1"} {
					for _, center := range []string{"", "+center"} {
						q := url.Values{}
						set := func(name, value string) {
							if value != "" {
								q.Set(name, value)
							}
						}
						set("tenant_id", tenant)
						set("job_id", job)
						set("ai_center_id", center)
						if r.IntN(2) == 0 {
							set("user_name", "陈")
						}
						after := epoch.Add(time.Duration(r.IntN(20)) * time.Minute)
						before := epoch.Add(time.Duration(20+r.IntN(20)) * time.Minute)
						set("ended_after", after.Format(time.RFC3339))
						set("ended_before", before.In(time.FixedZone("CST", 8*3600)).Format(time.RFC3339))
						var want []metering.Record
						for _, x := range records {
							mayRead := callers[token].AllTenants && (tenant == "" || x.TenantID == tenant) || !callers[token].AllTenants && x.TenantID == callers[token].TenantID
							if mayRead && (job == "" || x.JobID == job) && (center == "" || x.AICenterID == center) &&
								(!q.Has("user_name") || x.UserName == "陈") && !x.EndedAt.Before(after) && x.EndedAt.Before(before) {
								want = append(want, x)
							}
						}
						cases += len(want)
						if diff := cmp.Diff(want, listCSV(t, base, token, q)); diff != "" {
							t.Fatalf("CSV of %s for %v (-want +got): %s", token, q, diff)
						}
						q.Set("page_size", strconv.Itoa(10+r.IntN(90)))
						if diff := cmp.Diff(want, listREST(t, base, token, q)); diff != "" {
							t.Fatalf("list of %s for %v (-want +got): %s", token, q, diff)
						}
					}
				}
			}
		}
		if cases == 0 {
			t.Error("no filter selected anything: the test tests nothing")
		}
	})
}

func TestCSVOfManyPages(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := open(t, d)
		base := serve(t, s)
		if got := listCSV(t, base, "all", nil); len(got) != 0 {
			t.Errorf("export of nothing has %d records", len(got))
		}
		records := random(rand.New(rand.NewPCG(15, 16)), 3000) // whole pages: the last is empty
		record(t, d, s, records[:999]...)
		if got := listCSV(t, base, "all", nil); len(got) != 999 {
			t.Errorf("export of 999 has %d records", len(got))
		}
		record(t, d, s, records[999:]...)
		newestFirst(records)
		if diff := cmp.Diff(records, listCSV(t, base, "all", nil)); diff != "" {
			t.Errorf("export (-want +got): %s", diff)
		}
	})
}

func FuzzCSVCell(f *testing.F) {
	for _, s := range []string{"plain", "=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "'=x", "''", `a"b,c`, "\u2028", "陈", " x", "\ufeff="} {
		f.Add(s)
	}
	d := dbtest.SQLite(f)
	s, err := metering.New(f.Context(), d, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	n := 0
	f.Fuzz(func(t *testing.T, name string) {
		n++
		r := run("job_1", n)
		r.JobID, r.UserName, r.TaskName = fmt.Sprintf("job_%d", n), name, name
		err := d.Tx(t.Context(), func(tx *db.Tx) error { return s.RecordTx(t.Context(), tx, []metering.Record{r}) })
		if fault.KindOf(err) == fault.Invalid && err != nil {
			t.Skip("not a name")
		}
		must(t, err)
		w := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(core.WithCaller(t.Context(), callers["all"]), http.MethodGet, "/v1/usage.csv?job_id="+r.JobID, nil)
		must(t, s.ServeCSV(w, req))
		if diff := cmp.Diff([]metering.Record{priced(r)}, parseCSV(t, w.Body.String())); diff != "" {
			t.Errorf("name %q (-want +got): %s", name, diff)
		}
	})
}

func TestCSVGuardsFormulas(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	s, _ := open(t, d)
	r := run("job_1", 0)
	r.UserName, r.TaskName = "=HYPERLINK(\"http://x\")", "'already"
	record(t, d, s, r)
	_, body, header := get(t, "a", serve(t, s)+"/v1/usage.csv")
	want := strings.Join(csvHeader, ",") + "\r\n" +
		`att_job_1_0000,job_1,ten_a,"'=HYPERLINK(""http://x"")",''already,1,0,2,center-1,spec-1,` +
		"2026-03-01T08:00:00.000000Z,2026-03-01T09:00:00.000000Z,3600000000,3599000000,2147483648,500,5000000,,3600000000\r\n"
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("export (-want +got): %s", diff)
	}
	if got := header.Get("Content-Disposition"); got != `attachment; filename="usage.csv"` {
		t.Errorf("content disposition %q", got)
	}
}

func TestRefusalsOverTheWire(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	s, _ := open(t, d)
	s.Jobs = jobs{"job_1": "ten_a", "job_idle": "ten_a"}
	record(t, d, s, run("job_1", 0))
	base := serve(t, s)
	for _, c := range []struct {
		token, target string
		status        int
		want          string
	}{
		{"", "/v1/usage", 401, "UNAUTHENTICATED"},
		{"", "/v1/usage.csv", 401, "UNAUTHENTICATED"},
		{"powerless", "/v1/usage", 403, "metering.read"},
		{"powerless", "/v1/usage.csv", 403, "metering.read"},
		{"powerless", "/v1/jobs/job_1/cost", 403, "metering.read"},
		{"nowhere", "/v1/usage", 403, "belongs to no tenant"},
		{"nowhere", "/v1/usage.csv", 403, "belongs to no tenant"},
		{"nowhere", "/v1/jobs/job_1/cost", 403, "belongs to no tenant"},
		{"a", "/v1/jobs/job_1/cost", 200, `"totalFen":"500"`},
		{"all", "/v1/jobs/job_1/cost", 200, `"currency":"CNY"`},
		{"a", "/v1/jobs/job_idle/cost", 200, `"jobId":"job_idle"`},
		{"b", "/v1/jobs/job_1/cost", 404, `there is no job \"job_1\"`},
		{"b", "/v1/jobs/job_idle/cost", 404, `there is no job \"job_idle\"`},
		{"all", "/v1/jobs/job_x/cost", 404, `there is no job \"job_x\"`},
		{"a", "/v1/usage?page_size=1001", 400, "page_size"},
		{"a", "/v1/usage?page_size=-1", 400, "page_size"},
		{"a", "/v1/usage?page_token=zzz", 400, "page_token"},
		{"a", "/v1/usage?color=red", 400, "color"},
		{"a", "/v1/usage.csv?color=red", 400, `"field":"color"`},
		{"a", "/v1/usage.csv?page_size=10", 400, `"field":"page_size"`},
		{"a", "/v1/usage.csv?job_id=1&job_id=2", 400, `"field":"job_id","problem":"must be given once"`},
		{"a", "/v1/usage.csv?job_id=1&jobId=2", 400, `"field":"job_id","problem":"must be given once"`},
		{"a", "/v1/usage.csv?jobId=job_1", 200, "att_job_1_0000"},
		{"a", "/v1/usage?jobId=job_1", 200, "att_job_1_0000"},
		{"a", "/v1/usage.csv?ended_after=yesterday", 400, `"field":"ended_after"`},
		{"a", "/v1/usage.csv?ended_after=2026-03-02T00:00:00Z&ended_before=2026-03-01T00:00:00Z", 400, `"field":"ended_before"`},
		{"a", "/v1/usage.csv?job_id=%00", 400, `"field":"job_id"`},
		{"a", "/v1/usage.csv?job_id=%zz", 400, "URL"},
	} {
		status, body, _ := get(t, c.token, base+c.target)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("GET %s as %q: %d %s, want %d %s", c.target, c.token, status, body, c.status, c.want)
		}
	}
}

// A failure midway must not look like the end.
func TestCSVThatFailsMidwayBreaksTheConnection(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			t.Parallel()
			d := dbtest.SQLite(t)
			s, logs := open(t, d)
			// 16 MB in 4 pages: more than the buffers below and the 4 MB that an
			// HTTP/2 client takes unasked.
			const runs = 4000
			fill(t, d, runs, strings.Repeat("x", 4096))
			h, handled := handler(t, s), make(chan struct{})
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(handled)
				h.ServeHTTP(w, r)
			}))
			srv.Config.ConnState = func(c net.Conn, state http.ConnState) {
				if tcp, ok := c.(*net.TCPConn); ok && state == http.StateNew {
					_ = tcp.SetWriteBuffer(32 << 10) // the test fails if it does not help
				}
			}
			protocols := new(http.Protocols)
			protocols.SetHTTP1(!http2)
			protocols.SetUnencryptedHTTP2(http2)
			srv.Config.Protocols = protocols
			srv.Start()
			t.Cleanup(srv.Close)
			transport := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				if err == nil {
					err = c.(*net.TCPConn).SetReadBuffer(32 << 10)
				}
				return c, err
			}}
			t.Cleanup(transport.CloseIdleConnections)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/usage.csv", nil)
			must(t, err)
			req.Header.Set("Authorization", "Bearer a")
			res, err := transport.RoundTrip(req)
			must(t, err)
			if res.StatusCode != http.StatusOK {
				t.Fatalf("status %d", res.StatusCode)
			}
			first := make([]byte, 1000)
			_, err = io.ReadFull(res.Body, first)
			must(t, err)
			// The server is stuck in writing the first pages. From here on it can
			// read no more.
			must(t, d.Tx(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `ALTER TABLE usage RENAME TO gone`)
				return err
			}))
			rest, err := io.ReadAll(res.Body)
			if err == nil {
				t.Errorf("the answer ended in good order after %d bytes, %d of %d lines", len(first)+len(rest), bytes.Count(rest, []byte("\n")), runs+1)
			}
			if cerr := res.Body.Close(); cerr != nil {
				t.Logf("close body: %v", cerr)
			}
			if bytes.Contains(rest, []byte(`"code"`)) {
				t.Error("an error text is inside the table")
			}
			srv.Close() // may not wait for the handler
			select {
			case <-handled:
			case <-time.After(time.Minute):
				t.Fatal("the handler does not end")
			}
			if got := logs.lines("usage export broken off"); len(got) != 1 || !strings.Contains(got[0], "level=ERROR") || !strings.Contains(got[0], "user_id=usr_a") {
				t.Errorf("logged %q, want one error", got)
			}
		})
	}
}
