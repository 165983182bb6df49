// Package badinput sends the platform everything a caller may get wrong and
// checks what must hold all the same: the answer is a clear error that names
// the field, its status is below 500, nothing in the log says that something
// broke, and nothing was stored.
//
// The calls are not listed here: they are derived from the contract and from
// /openapi.json, so that a new method is tested the day it is mounted.
package badinput

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // reads the tables of PostgreSQL
	_ "modernc.org/sqlite"             // reads the tables of SQLite

	"yunhe.dev/yunhe/internal/app"
)

// platform is a running platform with two tenants and one of everything.
type platform struct {
	url    string
	client *http.Client
	log    *trouble
	tables *sql.DB
	names  []string // of the tables watched
	server bool     // the database is PostgreSQL

	admin, alice, bob, auditor string // secrets
	job, bobsJob, key          string // IDs
	allocation, operation      string
	maintenance                string
	module, test               string // of policies
	service                    string
}

// trouble keeps what the platform logs about itself being broken.
type trouble struct {
	mu sync.Mutex // guards lines

	lines []string
}

func (l *trouble) Enabled(_ context.Context, lv slog.Level) bool { return lv >= slog.LevelWarn }
func (l *trouble) WithAttrs([]slog.Attr) slog.Handler            { return l }
func (l *trouble) WithGroup(string) slog.Handler                 { return l }
func (l *trouble) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	if r.Level >= slog.LevelError || strings.Contains(line, "panic") {
		l.mu.Lock()
		l.lines = append(l.lines, line)
		l.mu.Unlock()
	}
	return nil
}

// take returns what was logged since the last call.
func (l *trouble) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.lines
	l.lines = nil
	return out
}

// start runs a platform until the test ends, on SQLite or the PostgreSQL url.
func start(tb testing.TB, url string) *platform {
	tb.Helper()
	cfg := app.DefaultConfig()
	cfg.Data, cfg.Listen.Address, cfg.Database.URL = tb.TempDir(), "127.0.0.1:0", url
	p := &platform{log: &trouble{}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	a, err := app.New(tb.Context(), cfg, slog.New(p.log))
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	tb.Cleanup(func() {
		p.client.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("platform: %v", err)
		}
		if lines := p.log.take(); len(lines) > 0 {
			tb.Errorf("the platform logged trouble:\n%s", strings.Join(lines, "\n"))
		}
	})
	p.url = a.URL()
	key, err := os.ReadFile(filepath.Join(cfg.Data, "admin.key"))
	if err != nil {
		tb.Fatal(err)
	}
	p.admin = strings.TrimSpace(string(key))
	driver, list := "sqlite", `SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name`
	if url == "" {
		url = "file:" + filepath.Join(cfg.Data, "yunhe.db") + "?_pragma=busy_timeout(10000)"
	} else {
		p.server = true
		driver, list = "pgx", `SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name`
	}
	if p.tables, err = sql.Open(driver, url); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = p.tables.Close() })
	p.watchTables(tb, list)
	p.countChanges(tb, url)
	p.seed(tb)
	return p
}

// unwatched are the tables that change by themselves: calls that are refused
// are audited, waiting becomes an alarm that people are told of, the pool is counted and logs what it refuses, the outbox empties, leases are renewed, history goes on.
var unwatched = map[string]bool{"scheduling_figures": true, "access_steps": true, "audit_events": true, "outbox": true, "notices": true, "pool_counted": true, "pool_logs": true, "pool_room": true, "leases": true, "lease_terms": true, "topology_versions": true, "topology_revisions": true,
	"access_state": true, "access_reports": true, "presence": true, "alarms": true, "operations": true}

func (p *platform) watchTables(tb testing.TB, list string) {
	tb.Helper()
	rows, err := p.tables.QueryContext(tb.Context(), list)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			tb.Fatal(err)
		}
		if !unwatched[name] && !strings.HasPrefix(name, "tag_") /* rules set tags by themselves */ && !strings.HasPrefix(name, "sqlite_") {
			p.names = append(p.names, name)
		}
	}
	if err := rows.Err(); err != nil || len(p.names) < 15 {
		tb.Fatalf("tables %v, error %v; want all of the platform's", p.names, err)
	}
}

// countChanges has the database count what is written to the watched tables, so
// that they are read only after something was.
func (p *platform) countChanges(tb testing.TB, url string) {
	tb.Helper()
	driver, query := "sqlite", []string{`CREATE TABLE badinput_changes (last_value INTEGER NOT NULL)`, `INSERT INTO badinput_changes VALUES (0)`}
	if p.server {
		driver, query = "pgx", []string{`CREATE SEQUENCE badinput_changes`, `CREATE FUNCTION badinput_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''badinput_changes''); RETURN NULL; END'`}
	}
	for _, name := range p.names {
		if p.server {
			query = append(query, fmt.Sprintf(`CREATE TRIGGER badinput AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION badinput_change()`, name))
			continue
		}
		for _, change := range []string{"INSERT", "UPDATE", "DELETE"} {
			query = append(query, fmt.Sprintf(`CREATE TRIGGER badinput_%s_%s AFTER %s ON %s BEGIN UPDATE badinput_changes SET last_value = last_value + 1; END`, name, change, change, name))
		}
	}
	d, err := sql.Open(driver, url)
	if err != nil {
		tb.Fatal(err)
	}
	defer d.Close()
	for _, q := range query {
		if _, err := d.ExecContext(tb.Context(), q); err != nil {
			tb.Fatalf("%s: %v", q, err)
		}
	}
}

// changes is how often something was written to the watched tables.
func (p *platform) changes(tb testing.TB) (n int64) {
	tb.Helper()
	if err := p.tables.QueryRowContext(context.WithoutCancel(tb.Context()), `SELECT last_value FROM badinput_changes`).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

// state is what every watched table holds: the number of its rows and a sum
// over them in any order.
type state map[string][2]int64

// counts is the cheap part of [platform.state]: rows only.
func (p *platform) counts(tb testing.TB) state {
	tb.Helper()
	var q []string
	for _, name := range p.names {
		q = append(q, `SELECT '`+name+`', COUNT(*) FROM `+name)
	}
	rows, err := p.tables.QueryContext(context.WithoutCancel(tb.Context()), strings.Join(q, " UNION ALL "))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = rows.Close() }() // read to the end
	out := state{}
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			tb.Fatal(err)
		}
		out[name] = [2]int64{n}
	}
	if err := rows.Err(); err != nil || len(out) != len(p.names) {
		tb.Fatalf("counts of %d tables, error %v", len(out), err)
	}
	return out
}

func (p *platform) state(tb testing.TB) state {
	tb.Helper()
	ctx := context.WithoutCancel(tb.Context())
	out := state{}
	if p.server {
		var q []string
		for _, name := range p.names {
			q = append(q, fmt.Sprintf(`SELECT '%s', COUNT(*), COALESCE(SUM(hashtextextended(t::text, 0) >> 16), 0)::bigint FROM %s t`, name, name))
		}
		rows, err := p.tables.QueryContext(ctx, strings.Join(q, " UNION ALL "))
		if err != nil {
			tb.Fatal(err)
		}
		defer func() { _ = rows.Close() }() // read to the end
		for rows.Next() {
			var name string
			var sum [2]int64
			if err := rows.Scan(&name, &sum[0], &sum[1]); err != nil {
				tb.Fatal(err)
			}
			out[name] = sum
		}
		if err := rows.Err(); err != nil || len(out) != len(p.names) {
			tb.Fatalf("state of %d tables, error %v", len(out), err)
		}
		return out
	}
	for _, name := range p.names {
		out[name] = p.table(ctx, tb, name)
	}
	return out
}

func (p *platform) table(ctx context.Context, tb testing.TB, name string) (sum [2]int64) {
	tb.Helper()
	rows, err := p.tables.QueryContext(ctx, `SELECT * FROM `+name)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = rows.Close() }() // read to the end
	columns, err := rows.Columns()
	if err != nil {
		tb.Fatal(err)
	}
	values, dest := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			tb.Fatal(err)
		}
		h := fnv.New64a()
		fmt.Fprintf(h, "%v", values)
		sum[0]++
		sum[1] += int64(h.Sum64() >> 16)
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return sum
}

// diff names the tables in which two states differ.
func diff(a, b state) string {
	var out []string
	for name, x := range a {
		if y := b[name]; x != y {
			out = append(out, fmt.Sprintf("%s (%d rows, then %d)", name, x[0], y[0]))
		}
	}
	return strings.Join(out, ", ")
}

// answer of a call.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// call sends one request. A token of "" sends no Authorization.
func (p *platform) call(tb testing.TB, method, path, token string, header map[string]string, body []byte) answer {
	tb.Helper()
	return p.send(tb, request{verb: method, path: path, header: header, body: body}, token)
}

// openFor is how long a stream may say nothing before it counts as open: the
// mistakes it is asked about are found at once.
const openFor = 300 * time.Millisecond

func (p *platform) send(tb testing.TB, r request, token string) answer {
	tb.Helper()
	limit := time.Minute
	if r.stays {
		limit = openFor
	}
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	a, err := p.try(ctx, r.verb, r.path, token, r.header, r.body)
	if r.stays && errors.Is(err, context.DeadlineExceeded) {
		return answer{status: http.StatusOK}
	}
	if err != nil {
		tb.Fatalf("%v: %v", r, err)
	}
	return a
}

func (p *platform) try(ctx context.Context, method, path, token string, header map[string]string, body []byte) (answer, error) {
	var in io.Reader
	if body != nil {
		in = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, in)
	if err != nil {
		return answer{}, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := p.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	out := answer{status: res.StatusCode, header: res.Header}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return out, nil
	}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/connect+") {
		out.body, err = firstFrame(res.Body)
		return out, err
	}
	out.body, err = io.ReadAll(res.Body)
	return out, err
}

// must makes a call that succeeds and decodes its answer.
func (p *platform) must(tb testing.TB, method, path, token, body string, into any) {
	tb.Helper()
	var b []byte
	if body != "" {
		b = []byte(body)
	}
	a := p.call(tb, method, path, token, nil, b)
	if a.status != http.StatusOK {
		tb.Fatalf("%s %s answered %d %s", method, path, a.status, a.body)
	}
	if into != nil {
		if err := json.Unmarshal(a.body, into); err != nil {
			tb.Fatalf("%s %s answered %s: %v", method, path, a.body, err)
		}
	}
}

// seed makes one of everything. No center has room, so that nothing moves by
// itself while states are compared.
func (p *platform) seed(tb testing.TB) {
	tb.Helper()
	p.must(tb, "POST", "/v1/tenants", p.admin, `{"tenantId":"other","name":"Other"}`, nil)
	for _, u := range [][3]string{{"alice", "default", "ROLE_USER"}, {"bob", "other", "ROLE_USER"}, {"audrey", "default", "ROLE_AUDITOR"}} {
		p.must(tb, "POST", "/v1/users", p.admin, fmt.Sprintf(`{"userId":%q,"tenantId":%q,"name":%q,"role":%q}`, u[0], u[1], u[0], u[2]), nil)
	}
	p.alice, p.bob, p.auditor = p.newKey(tb, "alice", 0), p.newKey(tb, "bob", 0), p.newKey(tb, "audrey", 0)
	var key struct{ Key struct{ KeyID string } }
	p.must(tb, "POST", "/v1/keys", p.alice, `{"note":"spare"}`, &key)
	p.key = key.Key.KeyID
	p.must(tb, "POST", "/v1/centers", p.admin, `{"aiCenterId":"c1","name":"One","region":"north"}`, nil)
	p.must(tb, "POST", "/v1/specs", p.admin, `{"resourceSpecId":"s1","resourceSpecName":"small","resourceQuantity":{"cpu":"1","memory":"1Gi"},"serviceType":"batch","price":100}`, nil)
	p.must(tb, "PUT", "/v1/specs/s1/offers/c1", p.admin, `{"price":90}`, nil)
	p.must(tb, "POST", "/v1/images", p.admin, `{"imageId":"i1","name":"base"}`, nil)
	p.must(tb, "POST", "/v1/resources", p.admin, `{"resourceId":"r1","type":"cloud","serviceProvider":"x","attributes":{"cloud_platform_type":"public"}}`, nil)
	p.must(tb, "PUT", "/v1/tag-groups/g1", p.admin, `{"title":"One"}`, nil)
	p.must(tb, "POST", "/v1/tags", p.admin, `{"key":"k1","groupId":"g1"}`, nil)
	p.job, p.bobsJob = p.submit(tb, p.alice), p.submit(tb, p.bob)
	var al struct{ AllocationID, OperationID string }
	p.must(tb, "POST", "/v1/allocations", p.alice, `{"resourceSpecId":"s1","count":1}`, &al)
	p.allocation, p.operation = al.AllocationID, al.OperationID
	var m struct{ MaintenanceID string }
	p.must(tb, "POST", "/v1/maintenance", p.admin, fmt.Sprintf(`{"aiCenterId":"c1","startAt":%q,"endAt":%q}`, ahead(48*time.Hour), ahead(49*time.Hour)), &m)
	p.maintenance = m.MaintenanceID
	var svc struct {
		ServiceID string `json:"serviceId"`
	}
	p.must(tb, "POST", "/v1/services", p.alice, `{"service":{"name":"svc","jobIds":["`+p.job+`"],"replicaRate":1,"origins":[{"originId":"o"}]}}`, &svc)
	p.service = svc.ServiceID
	p.seedPolicies(tb)
	p.settle(tb)
}

// newKey makes a key for a user; a ttl of 0 is for ever.
func (p *platform) newKey(tb testing.TB, user string, ttl int) string {
	tb.Helper()
	var k struct{ Secret string }
	p.must(tb, "POST", "/v1/keys", p.admin, fmt.Sprintf(`{"userId":%q,"ttlSeconds":%d}`, user, ttl), &k)
	return k.Secret
}

func (p *platform) submit(tb testing.TB, token string) string {
	tb.Helper()
	var j struct{ JobID string }
	p.must(tb, "POST", "/v1/jobs", token, `{"job":{"name":"seed","tasks":[{"name":"t","command":"true","imageId":"i1","resourceSpecId":"s1","replicaNumber":2}]}}`, &j)
	return j.JobID
}

// settle waits until a scheduling cycle has looked at what was submitted:
// from then on the tables stand still; and until the topology is drawn.
func (p *platform) settle(tb testing.TB) {
	tb.Helper()
	var view struct{ Centers []struct{} }
	for len(view.Centers) == 0 {
		p.must(tb, "GET", "/v1/topology/view", p.admin, "", &view)
	}
	var st struct{ Queued string }
	for range 500 {
		if p.must(tb, "GET", "/v1/scheduling-stats", p.admin, "", &st); st.Queued != "0" && st.Queued != "" {
			return
		}
	}
	tb.Fatalf("the queue holds %q jobs, want the two submitted", st.Queued)
}
