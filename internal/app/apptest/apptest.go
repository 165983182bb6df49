// Package apptest runs the whole platform inside a test: every component, real
// engines, the API over HTTP on loopback, all state in the test's own folder.
//
// What it keeps true:
//
//   - Nothing is replaced but the far end of a center: [FakeCenter] joins and
//     talks as a gateway does, and runs nothing. [Gateway] is the real one.
//   - A test that ends has stopped everything it started, in order: centers,
//     then the platform. A platform that does not stop fails the test.
//   - Whatever waits has a deadline ([Patience]) and says what it waited for.
package apptest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"yunhe.dev/yunhe/gen/yunhe/adapters/v1/adaptersv1connect"
	"yunhe.dev/yunhe/gen/yunhe/alarms/v1/alarmsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/availability/v1/availabilityv1connect"
	"yunhe.dev/yunhe/gen/yunhe/budgets/v1/budgetsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/calendar/v1/calendarv1connect"
	"yunhe.dev/yunhe/gen/yunhe/control/v1/controlv1connect"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	"yunhe.dev/yunhe/gen/yunhe/identity/v1/identityv1connect"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/gen/yunhe/jobs/v1/jobsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/metering/v1/meteringv1connect"
	"yunhe.dev/yunhe/gen/yunhe/monitor/v1/monitorv1connect"
	"yunhe.dev/yunhe/gen/yunhe/network/v1/networkv1connect"
	"yunhe.dev/yunhe/gen/yunhe/notices/v1/noticesv1connect"
	"yunhe.dev/yunhe/gen/yunhe/policies/v1/policiesv1connect"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/gen/yunhe/registry/v1/registryv1connect"
	"yunhe.dev/yunhe/gen/yunhe/routing/v1/routingv1connect"
	"yunhe.dev/yunhe/gen/yunhe/scheduler/v1/schedulerv1connect"
	"yunhe.dev/yunhe/gen/yunhe/simulations/v1/simulationsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/standing/v1/standingv1connect"
	"yunhe.dev/yunhe/gen/yunhe/volumes/v1/volumesv1connect"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/enginetest"
)

// Patience is how long anything may take. It is for machines that do many
// things at once; what is waited for takes milliseconds.
const Patience = 90 * time.Second

// Options of a platform; the zero value runs it on SQLite.
type Options struct {
	// Postgres keeps the state in a new database of a real server; the test is
	// skipped aloud where there is none.
	Postgres bool
	// Config changes the configuration before the start.
	Config func(*app.Config)
}

// App is a platform that runs.
type App struct {
	*app.App
	// Dir is the platform's data folder.
	Dir string
	// Admin calls as the first administrator.
	Admin *Client

	tb   testing.TB
	cfg  app.Config
	log  *slog.Logger
	stop func()
}

// Start runs a platform until the test ends.
func Start(tb testing.TB, opts Options) *App {
	tb.Helper()
	cfg := app.DefaultConfig()
	cfg.Data = filepath.Join(tb.TempDir(), "data")
	cfg.Listen.Address = "127.0.0.1:0"
	if opts.Postgres {
		cfg.Database.URL = enginetest.Postgres(tb)
	}
	if opts.Config != nil {
		opts.Config(&cfg)
	}
	a := &App{Dir: cfg.Data, tb: tb, cfg: cfg, log: Log(tb)}
	a.run()
	tb.Cleanup(func() { a.stop() })
	return a
}

// Each runs a test on a platform with each database engine.
func Each(t *testing.T, f func(t *testing.T, a *App)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, Start(t, Options{})) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, Start(t, Options{Postgres: true})) })
}

func (a *App) run() {
	a.tb.Helper()
	p, err := app.New(a.tb.Context(), a.cfg, a.log)
	if err != nil {
		a.tb.Fatalf("start the platform: %v", err)
	}
	key, err := os.ReadFile(filepath.Join(a.Dir, "admin.key"))
	if err != nil {
		a.tb.Fatalf("read the administrator's key: %v", err)
	}
	// Not the test's context: that ends before the clean-up stops the centers.
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.tb.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	var once sync.Once
	a.App = p
	a.Admin = NewClient(p.URL(), strings.TrimSpace(string(key)))
	a.stop = func() {
		once.Do(func() {
			cancel()
			a.Admin.http.CloseIdleConnections()
			select {
			case err := <-done:
				if err != nil {
					a.tb.Errorf("the platform ended with: %v", err)
				}
			case <-time.After(Patience):
				a.tb.Errorf("the platform does not stop")
			}
		})
	}
}

// Stop ends the platform as a signal would and waits for it.
func (a *App) Stop() { a.stop() }

// Restart starts the platform again on its state, after a Stop or at once.
// Clients made before reach nothing any more; centers come back by themselves.
func (a *App) Restart() {
	a.tb.Helper()
	a.stop()
	a.run()
}

// Log returns a logger that writes warnings to the test's output while the
// test runs.
func Log(tb testing.TB) *slog.Logger {
	w := &output{tb: tb}
	tb.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.closed = true
	})
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// output is the test's log; what comes after the test has ended is dropped.
type output struct {
	tb testing.TB

	mu     sync.Mutex // guards closed
	closed bool
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.tb.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

// Until polls until cond holds; it fails the test if that takes too long.
func Until(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	end := time.Now().Add(Patience)
	for pause := time.Millisecond; !cond(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("waited %s in vain until %s", Patience, what)
		}
		time.Sleep(pause)
	}
}

// Client calls a platform with one key. It is safe for concurrent use.
type Client struct {
	URL, Key string

	Adapters adaptersv1connect.AdapterServiceClient
	Alarms   alarmsv1connect.AlarmServiceClient
	Routing  routingv1connect.RoutingServiceClient
	Network  networkv1connect.NetworkServiceClient
	Standing standingv1connect.StandingServiceClient

	Equipment   networkv1connect.EquipmentServiceClient
	Simulations simulationsv1connect.SimulationServiceClient
	Control     controlv1connect.ControlServiceClient
	Identity    identityv1connect.IdentityServiceClient
	Jobs        jobsv1connect.JobServiceClient
	Metering    meteringv1connect.MeteringServiceClient
	Monitor     monitorv1connect.MonitorServiceClient
	Policies    policiesv1connect.PolicyServiceClient
	Registry    registryv1connect.RegistryServiceClient
	Resources   registryv1connect.ResourceServiceClient
	Scheduler   schedulerv1connect.SchedulerServiceClient
	Queues      schedulerv1connect.QueueServiceClient
	Calendar    calendarv1connect.CalendarServiceClient
	Budgets     budgetsv1connect.BudgetServiceClient
	Pool        poolv1connect.PoolServiceClient
	PoolOps     poolv1connect.PoolOperationServiceClient
	Notices     noticesv1connect.NoticeServiceClient
	Volumes     volumesv1connect.VolumeServiceClient
	Planning    availabilityv1connect.AvailabilityServiceClient

	http *http.Client
}

// NewClient returns a client; an empty key sends no credentials.
func NewClient(url, key string) *Client {
	h := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var auth connect.HTTPClient = withKey{h, key}
	return &Client{URL: url, Key: key, http: h,
		Adapters: adaptersv1connect.NewAdapterServiceClient(auth, url),
		Alarms:   alarmsv1connect.NewAlarmServiceClient(auth, url),
		Routing:  routingv1connect.NewRoutingServiceClient(auth, url),
		Network:  networkv1connect.NewNetworkServiceClient(auth, url),
		Standing: standingv1connect.NewStandingServiceClient(auth, url),

		Equipment:   networkv1connect.NewEquipmentServiceClient(auth, url),
		Simulations: simulationsv1connect.NewSimulationServiceClient(auth, url),
		Control:     controlv1connect.NewControlServiceClient(auth, url),
		Identity:    identityv1connect.NewIdentityServiceClient(auth, url),
		Jobs:        jobsv1connect.NewJobServiceClient(auth, url),
		Metering:    meteringv1connect.NewMeteringServiceClient(auth, url),
		Monitor:     monitorv1connect.NewMonitorServiceClient(auth, url),
		Policies:    policiesv1connect.NewPolicyServiceClient(auth, url),
		Registry:    registryv1connect.NewRegistryServiceClient(auth, url),
		Resources:   registryv1connect.NewResourceServiceClient(auth, url),
		Scheduler:   schedulerv1connect.NewSchedulerServiceClient(auth, url),
		Queues:      schedulerv1connect.NewQueueServiceClient(auth, url),
		Budgets:     budgetsv1connect.NewBudgetServiceClient(auth, url),
		Pool:        poolv1connect.NewPoolServiceClient(auth, url),
		PoolOps:     poolv1connect.NewPoolOperationServiceClient(auth, url),
		Notices:     noticesv1connect.NewNoticeServiceClient(auth, url),
		Calendar:    calendarv1connect.NewCalendarServiceClient(auth, url),
		Volumes:     volumesv1connect.NewVolumeServiceClient(auth, url),
		Planning:    availabilityv1connect.NewAvailabilityServiceClient(auth, url),
	}
}

// withKey sends a key with every request that names none.
type withKey struct {
	http *http.Client
	key  string
}

func (w withKey) Do(r *http.Request) (*http.Response, error) {
	if w.key != "" && r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "Bearer "+w.key)
	}
	return w.http.Do(r)
}

// Answer is what REST said.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// REST makes a request. headers are names and values in turn; an empty value
// removes the header.
func (c *Client) REST(tb testing.TB, method, path, body string, headers ...string) Answer {
	tb.Helper()
	res := c.Open(tb, method, path, body, headers...)
	defer func() { _ = res.Body.Close() }() // read to its end
	b, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return Answer{res.StatusCode, res.Header, b}
}

// Open is REST for an answer that is read while it comes. Close its body.
func (c *Client) Open(tb testing.TB, method, path, body string, headers ...string) *http.Response {
	tb.Helper()
	if !strings.HasPrefix(path, "http://") {
		path = c.URL + path
	}
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	tb.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	if err != nil {
		tb.Fatalf("%s %s: %v", method, path, err)
	}
	if c.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.Key)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Del(headers[i]); headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	res, err := c.http.Do(r)
	if err != nil {
		tb.Fatalf("%s %s: %v", method, path, err)
	}
	return res
}

// User returns a client of a new user; the tenant is made if it is missing.
func (a *App) User(tb testing.TB, tenant, user string, role identityv1.Role) *Client {
	tb.Helper()
	ctx := tb.Context()
	_, err := a.Admin.Identity.CreateTenant(ctx, &identityv1.CreateTenantRequest{Tenant: &identityv1.Tenant{TenantId: tenant, Name: tenant}})
	if err != nil && connect.CodeOf(err) != connect.CodeAlreadyExists {
		tb.Fatalf("create tenant %s: %v", tenant, err)
	}
	if _, err := a.Admin.Identity.CreateUser(ctx, &identityv1.CreateUserRequest{User: &identityv1.User{UserId: user, TenantId: tenant, Name: user, Role: role}}); err != nil {
		tb.Fatalf("create user %s: %v", user, err)
	}
	k, err := a.Admin.Identity.CreateKey(ctx, &identityv1.CreateKeyRequest{UserId: user})
	if err != nil {
		tb.Fatalf("create key of %s: %v", user, err)
	}
	return NewClient(a.URL(), k.Secret)
}

// Task returns a valid task with so many replicas.
func Task(name string, replicas int32) *jobsv1.Task {
	return &jobsv1.Task{Name: name, Command: "true", ImageId: "host", ResourceSpecId: "small", ReplicaNumber: replicas}
}

// Job returns a valid job of one task with so many replicas.
func Job(name string, replicas int32) *jobsv1.JobSpec {
	return &jobsv1.JobSpec{Name: name, Tasks: []*jobsv1.Task{Task("main", replicas)}}
}

// Submit submits a job and returns its ID.
func (c *Client) Submit(tb testing.TB, j *jobsv1.JobSpec) string {
	tb.Helper()
	res, err := c.Jobs.SubmitJob(tb.Context(), &jobsv1.SubmitJobRequest{Job: j})
	if err != nil {
		tb.Fatalf("submit %s: %v", j.GetName(), err)
	}
	return res.JobId
}

// Job returns the job as it is now.
func (c *Client) Job(tb testing.TB, id string) *jobsv1.Job {
	tb.Helper()
	j, err := c.Jobs.GetJob(tb.Context(), &jobsv1.GetJobRequest{JobId: id})
	if err != nil {
		tb.Fatalf("get job %s: %v", id, err)
	}
	return j
}

// Await watches a job until cond holds and returns it then.
func (c *Client) Await(tb testing.TB, id, what string, cond func(*jobsv1.Job) bool) *jobsv1.Job {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	defer cancel()
	stream, err := c.Jobs.WatchJobs(ctx, &jobsv1.WatchJobsRequest{JobId: id})
	if err != nil {
		tb.Fatalf("watch job %s: %v", id, err)
	}
	defer func() { _ = stream.Close() }() // its end does not matter
	var last *jobsv1.Job
	for stream.Receive() {
		if last = stream.Msg().Job; cond(last) {
			return last
		}
	}
	tb.Fatalf("job %s: waited in vain until %s (%v); last seen: %v", id, what, stream.Err(), last)
	return nil
}

// AwaitState watches a job until it is in the state.
func (c *Client) AwaitState(tb testing.TB, id string, want jobsv1.State) *jobsv1.Job {
	tb.Helper()
	return c.Await(tb, id, fmt.Sprintf("it is in %s", want), func(j *jobsv1.Job) bool { return j.State == want })
}

// Log reads what is there of a replica's log, from offset on.
func (c *Client) Log(tb testing.TB, r *jobsv1.ReadLogRequest) (string, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	defer cancel()
	stream, err := c.Jobs.ReadLog(ctx, r)
	if err != nil {
		return "", err
	}
	defer func() { _ = stream.Close() }() // read to its end
	var b bytes.Buffer
	for stream.Receive() {
		b.Write(stream.Msg().Data)
	}
	return b.String(), stream.Err()
}
