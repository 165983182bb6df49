package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/gen/yunhe/adapters/v1/adaptersv1connect"
	"yunhe.dev/yunhe/gen/yunhe/budgets/v1/budgetsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/calendar/v1/calendarv1connect"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	"yunhe.dev/yunhe/gen/yunhe/identity/v1/identityv1connect"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/gen/yunhe/jobs/v1/jobsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/measurement/v1/measurementv1connect"
	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
	"yunhe.dev/yunhe/gen/yunhe/metering/v1/meteringv1connect"
	"yunhe.dev/yunhe/gen/yunhe/monitor/v1/monitorv1connect"
	"yunhe.dev/yunhe/gen/yunhe/network/v1/networkv1connect"
	"yunhe.dev/yunhe/gen/yunhe/notices/v1/noticesv1connect"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/gen/yunhe/registry/v1/registryv1connect"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/gen/yunhe/scheduler/v1/schedulerv1connect"
	"yunhe.dev/yunhe/gen/yunhe/simulations/v1/simulationsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/standing/v1/standingv1connect"
	"yunhe.dev/yunhe/gen/yunhe/volumes/v1/volumesv1connect"
)

// fakeNow is the time of every test.
var fakeNow = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

func fakeTime(ago time.Duration) *timestamppb.Timestamp { return timestamppb.New(fakeNow.Add(-ago)) }

const fakeKey = "yhk_test"

// fakeAPI is a small platform in memory that keeps the API's promises as the
// command line sees them: idempotent submission, keyset pages, watches that
// begin with the present state, logs that are followed to the end of a run.
// Nothing runs by itself: tests move jobs along with run, finish and print.
type fakeAPI struct {
	jobsv1connect.UnimplementedJobServiceHandler
	registryv1connect.UnimplementedRegistryServiceHandler
	schedulerv1connect.UnimplementedSchedulerServiceHandler
	meteringv1connect.UnimplementedMeteringServiceHandler
	identityv1connect.UnimplementedIdentityServiceHandler
	adaptersv1connect.UnimplementedAdapterServiceHandler

	mu sync.Mutex

	changed  chan struct{} // closed and replaced at every change
	jobs     []*jobsv1.Job // in the order of submission
	history  []*jobsv1.Job // every state of every job
	requests map[string]string
	logs     map[fakeRun][]byte
	centers  []*registryv1.Center
	specs    []*registryv1.Spec
	images   []*registryv1.Image
	weights  *schedulerv1.PolicySet
	tenants  []*identityv1.Tenant
	users    []*identityv1.User
	keys     []*identityv1.Key
	usage    []*meteringv1.Usage
	events   []*identityv1.AuditEvent
	// loseAnswers is how many submissions are stored but not answered.
	loseAnswers int
	// bareEvents leaves the replicas out of watched jobs.
	bareEvents bool
}

type fakeRun struct {
	job     string
	key     replicaKey
	attempt int32
}

// fakeServer is the fake on a port that can go away and come back.
type fakeServer struct {
	t    *testing.T
	api  *fakeAPI
	addr string
	http *http.Server
	done chan struct{}
}

func startFake(t *testing.T) *fakeServer {
	t.Helper()
	s := &fakeServer{t: t, api: newFakeAPI(), addr: "127.0.0.1:0"}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *fakeServer) url() string { return "http://" + s.addr }

func (s *fakeServer) start() {
	s.t.Helper()
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = l.Addr().String()
	mux := http.NewServeMux()
	auth := connect.WithInterceptors(fakeAuth{})
	mux.Handle(jobsv1connect.NewJobServiceHandler(s.api, auth))
	mux.Handle(registryv1connect.NewRegistryServiceHandler(s.api, auth))
	mux.Handle(schedulerv1connect.NewSchedulerServiceHandler(s.api, auth))
	mux.Handle(meteringv1connect.NewMeteringServiceHandler(s.api, auth))
	mux.Handle(identityv1connect.NewIdentityServiceHandler(s.api, auth))
	mux.Handle(adaptersv1connect.NewAdapterServiceHandler(s.api, auth))
	mux.Handle(schedulerv1connect.NewQueueServiceHandler(&fakeQueues{}, auth))
	mux.Handle(budgetsv1connect.NewBudgetServiceHandler(&fakeBudgets{}, auth))
	mux.Handle(poolv1connect.NewPoolServiceHandler(newFakePool(), auth))
	mux.Handle(poolv1connect.NewPoolOperationServiceHandler(newFakePoolOps(), auth))
	mux.Handle(noticesv1connect.NewNoticeServiceHandler(&fakeNotices{}, auth))
	mux.Handle(calendarv1connect.NewCalendarServiceHandler(&fakeCalendar{}, auth))
	mux.Handle(standingv1connect.NewStandingServiceHandler(&fakeStanding{}, auth))
	mux.Handle(networkv1connect.NewNetworkServiceHandler(newFakeNetwork(), auth))
	mux.Handle(networkv1connect.NewEquipmentServiceHandler(&fakeEquipment{}, auth))
	mux.Handle(volumesv1connect.NewVolumeServiceHandler(&fakeVolumes{}, auth))
	mux.Handle(simulationsv1connect.NewSimulationServiceHandler(&fakeSimulations{}, auth))
	mux.Handle(measurementv1connect.NewMeasurementServiceHandler(newFakeMeasurement(), auth))
	mux.Handle(monitorv1connect.NewMonitorServiceHandler(fakeMonitor{}, auth))
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	s.done = done
	srv := s.http
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.t.Errorf("serve: %v", err)
		}
	}()
}

// stop cuts every connection, as a crash does.
func (s *fakeServer) stop() {
	s.http.Close()
	<-s.done
}

type fakeAuth struct{}

func (fakeAuth) check(h http.Header) error {
	switch h.Get("Authorization") {
	case "Bearer " + fakeKey:
		return nil
	case "":
		return connect.NewError(connect.CodeUnauthenticated, errors.New("no API key given"))
	}
	return connect.NewError(connect.CodeUnauthenticated, errors.New("the API key is not known or was revoked"))
}

func (a fakeAuth) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := a.check(req.Header()); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

func (fakeAuth) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (a fakeAuth) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := a.check(conn.RequestHeader()); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}

func newFakeAPI() *fakeAPI {
	f := &fakeAPI{changed: make(chan struct{}), requests: map[string]string{}, logs: map[fakeRun][]byte{}}
	f.centers = []*registryv1.Center{
		{
			AiCenterId: "bj-1", Name: "北京一号", Region: "north", Status: registryv1.CenterStatus_CENTER_STATUS_AVAILABLE, SecurityGrade: 3,
			Geometry: &registryv1.Geometry{Longitude: 116.4, Latitude: 39.9}, Adapter: "gateway", Performance: 1200, LastSeenAt: fakeTime(2 * time.Second),
			Speeds:    []*registryv1.Speed{{Kind: "gpu", Precision: "FP16", Milli: 3171}, {Kind: "gpu", Precision: "FP32", Milli: 2974, Measured: true}, {Kind: "npu", Precision: "FP16", Milli: 1026}},
			Resources: &registryv1.Resources{Cpu: 8, Gpu: 2, Memory: 16384, Storage: 100}, Power: &registryv1.Power{StaticMilliwattsPerCpu: 1500, ActiveMilliwattsPerCpu: 6000},
			Monitoring: &registryv1.Monitoring{
				RunningTaskNum: 2, WaitingTaskNum: 1, CpuUsed: 2, CpuFree: 6, GpuFree: 2, MemoryUsed: 4096, MemoryFree: 12288, StorageFree: 100,
				CpuBusyPermille: 237, MemoryBusy: 3000, MeasuredAt: fakeTime(2 * time.Second),
			},
			Labels: map[string]string{"rack": "a7"}, CreatedAt: fakeTime(48 * time.Hour),
		},
		{
			AiCenterId: "sh-1", Name: "Shanghai", Region: "east", Status: registryv1.CenterStatus_CENTER_STATUS_UNKNOWN, Adapter: "gateway", Performance: 1000,
			LastSeenAt: fakeTime(5 * time.Minute), CreatedAt: fakeTime(24 * time.Hour),
		},
	}
	f.specs = []*registryv1.Spec{
		{
			ResourceSpecId: "small", ResourceSpecName: "Small", ResourceQuantity: map[string]string{"cpu": "500m", "memory": "256Mi"}, ServiceType: "batch", Price: 50,
			Offers: []*registryv1.Offer{{AiCenterId: "bj-1", Price: 48}, {AiCenterId: "sh-1", Price: 52}}, CreatedAt: fakeTime(48 * time.Hour),
		},
	}
	f.images = []*registryv1.Image{
		{ImageId: "host", Name: "The host's own system", CreatedAt: fakeTime(48 * time.Hour)},
		{
			ImageId: "torch-2", Name: "PyTorch 2", Framework: "pytorch", Centers: []string{"bj-1"}, CreatedAt: fakeTime(time.Hour),
			BaseOs: &registryv1.BaseOs{BaseOs: "ubuntu-24.04", CudaVersion: "12.8", Packages: []string{"numpy", "torch"}},
		},
	}
	f.weights = &schedulerv1.PolicySet{Weights: map[string]int32{"lowest-price": 60, "load-aware": 40}, Preset: "balanced", UpdatedAt: fakeTime(time.Hour)}
	f.tenants = []*identityv1.Tenant{{TenantId: "platform", Name: "Platform", CreatedAt: fakeTime(48 * time.Hour)}}
	f.users = []*identityv1.User{{UserId: "admin", TenantId: "platform", Name: "Administrator", Role: identityv1.Role_ROLE_ADMIN, CreatedAt: fakeTime(48 * time.Hour)}}
	f.keys = []*identityv1.Key{{KeyId: "k1", UserId: "admin", TenantId: "platform", Note: "first", CreatedAt: fakeTime(48 * time.Hour)}}
	f.events = []*identityv1.AuditEvent{{
		EventId: "ev_1", At: fakeTime(time.Minute), TenantId: "platform", UserId: "admin", KeyId: "k1", Method: "yunhe.jobs.v1.JobService/StopJob",
		Subject: "job_x", Outcome: "NOT_FOUND", Remote: "127.0.0.1:5000",
	}}
	return f
}

// notify wakes all who wait; the caller holds the lock.
func (f *fakeAPI) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeAPI) find(id string) *jobsv1.Job {
	for _, j := range f.jobs {
		if j.GetJobId() == id {
			return j
		}
	}
	return nil
}

func missing(kind, id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("no %s %q", kind, id))
}

// refuse returns an error with field violations, the message as the server's:
// the first of them in words.
func refuse(fields ...*errdetails.BadRequest_FieldViolation) error {
	var words []string
	for _, v := range fields {
		words = append(words, v.GetField()+": "+v.GetDescription())
	}
	err := connect.NewError(connect.CodeInvalidArgument, errors.New(strings.Join(words, "; ")))
	d, detailErr := connect.NewErrorDetail(&errdetails.BadRequest{FieldViolations: fields})
	if detailErr != nil {
		panic(detailErr)
	}
	err.AddDetail(d)
	return err
}

func violation(field, description string) *errdetails.BadRequest_FieldViolation {
	return &errdetails.BadRequest_FieldViolation{Field: field, Description: description}
}

// check refuses what the server would refuse, as far as tests need it.
func (f *fakeAPI) check(spec *jobsv1.JobSpec) error {
	var bad []*errdetails.BadRequest_FieldViolation
	if spec.GetName() == "" {
		bad = append(bad, violation("name", "is missing"))
	}
	if len(spec.GetTasks()) == 0 {
		bad = append(bad, violation("tasks", "want 1 to 256, got 0"))
	}
	for i, t := range spec.GetTasks() {
		if !slices.ContainsFunc(f.images, func(m *registryv1.Image) bool { return m.GetImageId() == t.GetImageId() }) {
			bad = append(bad, violation(fmt.Sprintf("tasks[%d].imageId", i), fmt.Sprintf("no image %q", t.GetImageId())))
		}
		if t.GetReplicaNumber() < 1 || t.GetReplicaNumber() > 10000 {
			bad = append(bad, violation(fmt.Sprintf("tasks[%d].replicaNumber", i), fmt.Sprintf("want 1 to 10000, got %d", t.GetReplicaNumber())))
		}
	}
	if len(bad) > 0 {
		return refuse(bad...)
	}
	return nil
}

func (f *fakeAPI) store(spec *jobsv1.JobSpec) *jobsv1.Job {
	job := &jobsv1.Job{
		JobId: fmt.Sprintf("job_%026d", len(f.jobs)+1), Spec: proto.CloneOf(spec), TenantId: "platform", UserName: "admin", CreatedUser: "Administrator",
		State: jobsv1.State_STATE_QUEUED, CreatedAt: fakeTime(time.Minute), Version: 1,
	}
	for i, t := range spec.GetTasks() {
		for r := range t.GetReplicaNumber() {
			job.Replicas = append(job.Replicas, &jobsv1.Replica{TaskIndex: int32(i), ReplicaIndex: r, State: jobsv1.State_STATE_QUEUED})
		}
	}
	job.ReplicasTotal = int32(len(job.Replicas))
	f.jobs = append(f.jobs, job)
	f.history = append(f.history, proto.CloneOf(job))
	f.notify()
	return job
}

func (f *fakeAPI) SubmitJob(_ context.Context, req *jobsv1.SubmitJobRequest) (*jobsv1.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id, ok := f.requests[req.GetRequestId()]; ok {
		job := f.find(id)
		f.loseAnswer()
		if !proto.Equal(job.GetSpec(), req.GetJob()) {
			return nil, connect.NewError(connect.CodeAborted, fmt.Errorf("request_id %q was used for another job", req.GetRequestId()))
		}
		return proto.CloneOf(job), nil
	}
	if err := f.check(req.GetJob()); err != nil {
		return nil, err
	}
	job := f.store(req.GetJob())
	if req.GetRequestId() != "" {
		f.requests[req.GetRequestId()] = job.GetJobId()
	}
	f.loseAnswer()
	return proto.CloneOf(job), nil
}

// loseAnswer cuts the connection instead of answering, while there are answers
// to lose.
func (f *fakeAPI) loseAnswer() {
	if f.loseAnswers > 0 {
		f.loseAnswers--
		panic(http.ErrAbortHandler)
	}
}

func (f *fakeAPI) SubmitJobs(_ context.Context, req *jobsv1.SubmitJobsRequest) (*jobsv1.SubmitJobsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, spec := range req.GetJobs() {
		if err := f.check(spec); err != nil {
			return nil, err
		}
	}
	res := &jobsv1.SubmitJobsResponse{}
	for _, spec := range req.GetJobs() {
		res.JobIds = append(res.JobIds, f.store(spec).GetJobId())
	}
	return res, nil
}

func (f *fakeAPI) GetJob(_ context.Context, req *jobsv1.GetJobRequest) (*jobsv1.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.find(req.GetJobId())
	if job == nil {
		return nil, missing("job", req.GetJobId())
	}
	return proto.CloneOf(job), nil
}

func (f *fakeAPI) ListRuns(_ context.Context, req *jobsv1.ListRunsRequest) (*jobsv1.ListRunsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.find(req.GetJobId()) == nil {
		return nil, missing("job", req.GetJobId())
	}
	var runs []*jobsv1.Replica
	for _, job := range f.history {
		for _, r := range job.GetReplicas() {
			if job.GetJobId() != req.GetJobId() || r.GetAttempt() == 0 || req.TaskIndex != nil && req.GetTaskIndex() != r.GetTaskIndex() || req.ReplicaIndex != nil && req.GetReplicaIndex() != r.GetReplicaIndex() {
				continue
			}
			run := proto.CloneOf(r)
			if run.State == jobsv1.State_STATE_QUEUED { // how it ended
				run.State = jobsv1.State_STATE_FAILED
			}
			if i := slices.IndexFunc(runs, func(o *jobsv1.Replica) bool { return o.GetAttemptId() == r.GetAttemptId() }); i >= 0 {
				runs[i] = run
			} else {
				runs = append(runs, run)
			}
		}
	}
	slices.SortFunc(runs, func(a, b *jobsv1.Replica) int {
		return cmp.Or(cmp.Compare(a.GetTaskIndex(), b.GetTaskIndex()), cmp.Compare(a.GetReplicaIndex(), b.GetReplicaIndex()), cmp.Compare(a.GetAttempt(), b.GetAttempt()))
	})
	res := &jobsv1.ListRunsResponse{}
	res.Runs, res.NextPageToken = fakePage(runs, req.GetPageSize(), req.GetPageToken(), 50)
	return res, nil
}

// fakePage cuts a page out of items; the token is the index of the next one.
func fakePage[T any](items []T, size int32, token string, standard int) ([]T, string) {
	start := 0
	fmt.Sscanf(token, "at-%d", &start)
	n := min(cmp.Or(int(size), standard), len(items)-start)
	if start+n < len(items) {
		return items[start : start+n], fmt.Sprintf("at-%d", start+n)
	}
	return items[start : start+n], ""
}

func (f *fakeAPI) ListJobs(_ context.Context, req *jobsv1.ListJobsRequest) (*jobsv1.ListJobsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var jobs []*jobsv1.Job
	for _, j := range slices.Backward(f.jobs) {
		if matches(j, req) {
			j = proto.CloneOf(j)
			j.Replicas = nil
			jobs = append(jobs, j)
		}
	}
	res := &jobsv1.ListJobsResponse{}
	res.Jobs, res.NextPageToken = fakePage(jobs, req.GetPageSize(), req.GetPageToken(), 50)
	return res, nil
}

func (f *fakeAPI) StopJob(_ context.Context, req *jobsv1.StopJobRequest) (*jobsv1.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.find(req.GetJobId())
	if job == nil {
		return nil, missing("job", req.GetJobId())
	}
	if !ended(job.GetState()) {
		f.change(job, func() { job.State, job.Reason, job.Message = jobsv1.State_STATE_STOPPING, "stopped", req.GetReason() })
	}
	return proto.CloneOf(job), nil
}

func (f *fakeAPI) PauseJob(_ context.Context, req *jobsv1.PauseJobRequest) (*jobsv1.Job, error) {
	return f.pause(req.GetJobId(), true)
}

func (f *fakeAPI) ResumeJob(_ context.Context, req *jobsv1.ResumeJobRequest) (*jobsv1.Job, error) {
	return f.pause(req.GetJobId(), false)
}

// pause notes the wish; only what waits is in that state at once.
func (f *fakeAPI) pause(id string, on bool) (*jobsv1.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.find(id)
	switch {
	case job == nil:
		return nil, missing("job", id)
	case ended(job.GetState()):
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("job %q has ended", id))
	case job.GetPauseAsked() != on:
		f.change(job, func() {
			job.PauseAsked = on
			if on && job.GetState() == jobsv1.State_STATE_QUEUED {
				job.State = jobsv1.State_STATE_PAUSED
			}
		})
	}
	return proto.CloneOf(job), nil
}

func (f *fakeAPI) DeleteJob(_ context.Context, req *jobsv1.DeleteJobRequest) (*jobsv1.DeleteJobResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.find(req.GetJobId())
	switch {
	case job == nil:
		return nil, missing("job", req.GetJobId())
	case !ended(job.GetState()):
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("job %q is %s; stop it first", job.GetJobId(), stateName(job.GetState())))
	}
	f.jobs = slices.DeleteFunc(f.jobs, func(j *jobsv1.Job) bool { return j == job })
	return &jobsv1.DeleteJobResponse{}, nil
}

// change applies fn to a job and tells the watchers; the caller holds the lock.
func (f *fakeAPI) change(job *jobsv1.Job, fn func()) {
	fn()
	job.Version++
	job.ReplicasRunning, job.ReplicasSucceeded, job.ReplicasFailed, job.ReplicasStopped = 0, 0, 0, 0
	centers := map[string]bool{}
	for _, r := range job.GetReplicas() {
		switch r.GetState() {
		case jobsv1.State_STATE_RUNNING:
			job.ReplicasRunning++
		case jobsv1.State_STATE_SUCCEEDED:
			job.ReplicasSucceeded++
		case jobsv1.State_STATE_FAILED:
			job.ReplicasFailed++
		case jobsv1.State_STATE_STOPPED:
			job.ReplicasStopped++
		}
		if r.GetAiCenterId() != "" {
			centers[r.GetAiCenterId()] = true
		}
	}
	job.CenterIds = slices.Sorted(maps.Keys(centers))
	f.history = append(f.history, proto.CloneOf(job))
	f.notify()
}

// edit is change for tests.
func (f *fakeAPI) edit(id string, fn func(*jobsv1.Job)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.find(id)
	f.change(job, func() { fn(job) })
}

// stored returns how many jobs there are.
func (f *fakeAPI) stored() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.jobs)
}

// startRun places a replica and starts its next run.
func (f *fakeAPI) startRun(id string, index int, center string) {
	f.edit(id, func(job *jobsv1.Job) {
		r := job.Replicas[index]
		r.Attempt++
		r.AttemptId = fmt.Sprintf("att_%d_%d_%d", r.TaskIndex, r.ReplicaIndex, r.Attempt)
		r.State, r.Reason, r.Message, r.AiCenterId = jobsv1.State_STATE_RUNNING, "", "", center
		for _, k := range f.centers {
			if k.GetAiCenterId() == center {
				r.CenterName = k.GetName()
			}
		}
		r.PlacedAt, r.StartedAt, r.EndedAt, r.Price = fakeTime(31*time.Second), fakeTime(30*time.Second), nil, 48
		job.State, job.StartedAt, job.PlacedAt, job.SchedulingMicroseconds = jobsv1.State_STATE_RUNNING, fakeTime(30*time.Second), fakeTime(31*time.Second), 2300
	})
}

// print adds to the log of a replica's latest run.
func (f *fakeAPI) print(id string, index int, data string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.find(id).Replicas[index]
	run := fakeRun{id, keyOf(r), r.GetAttempt()}
	f.logs[run] = append(f.logs[run], data...)
	f.notify()
}

// finish ends a replica's run, and the job with its last replica.
func (f *fakeAPI) finish(id string, index int, state jobsv1.State, exitCode int32, message string) {
	f.edit(id, func(job *jobsv1.Job) {
		r := job.Replicas[index]
		r.State, r.ExitCode, r.Message, r.EndedAt = state, exitCode, message, fakeTime(10*time.Second)
		r.CpuMicroseconds, r.MemoryPeakBytes, r.CostMicros = 9_800_000, 5<<20, 2667
		if state == jobsv1.State_STATE_QUEUED {
			return // will be tried again
		}
		worst := jobsv1.State_STATE_SUCCEEDED
		for _, r := range job.Replicas {
			if !ended(r.GetState()) {
				return
			}
			if r.GetState() != jobsv1.State_STATE_SUCCEEDED && worst != jobsv1.State_STATE_FAILED {
				worst = r.GetState()
			}
		}
		job.State, job.EndedAt, job.CostFen = worst, fakeTime(10*time.Second), 1
		if worst == jobsv1.State_STATE_FAILED {
			job.Reason, job.Message = "exit", "a replica failed for good"
		}
	})
}

func (f *fakeAPI) WatchJobs(ctx context.Context, req *jobsv1.WatchJobsRequest, s *connect.ServerStream[jobsv1.WatchJobsResponse]) error {
	f.mu.Lock()
	at := len(f.history)
	if req.GetJobId() != "" {
		job := f.find(req.GetJobId())
		if job == nil {
			f.mu.Unlock()
			return missing("job", req.GetJobId())
		}
		at = slices.IndexFunc(f.history, func(j *jobsv1.Job) bool {
			return j.GetJobId() == job.GetJobId() && j.GetVersion() == job.GetVersion()
		})
	}
	f.mu.Unlock()
	for {
		f.mu.Lock()
		pending, changed := f.history[at:], f.changed
		at = len(f.history)
		bare := f.bareEvents
		f.mu.Unlock()
		for _, j := range pending {
			if req.GetJobId() != "" && j.GetJobId() != req.GetJobId() {
				continue
			}
			j = proto.CloneOf(j)
			if bare || req.GetJobId() == "" {
				j.Replicas = nil
			}
			if err := s.Send(&jobsv1.WatchJobsResponse{Job: j}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fakeAPI) ReadLog(ctx context.Context, req *jobsv1.ReadLogRequest, s *connect.ServerStream[jobsv1.ReadLogResponse]) error {
	offset := req.GetOffset()
	for first := true; ; first = false {
		f.mu.Lock()
		job := f.find(req.GetJobId())
		if job == nil {
			f.mu.Unlock()
			return missing("job", req.GetJobId())
		}
		i := slices.IndexFunc(job.GetReplicas(), func(r *jobsv1.Replica) bool {
			return r.GetTaskIndex() == req.GetTaskIndex() && r.GetReplicaIndex() == req.GetReplicaIndex()
		})
		if i < 0 {
			f.mu.Unlock()
			return missing("replica", fmt.Sprintf("%d/%d", req.GetTaskIndex(), req.GetReplicaIndex()))
		}
		r := job.GetReplicas()[i]
		attempt := cmp.Or(req.GetAttempt(), r.GetAttempt())
		if attempt > r.GetAttempt() {
			f.mu.Unlock()
			return missing("run", fmt.Sprint(attempt))
		}
		over := attempt < r.GetAttempt() || r.GetEndedAt() != nil
		log := f.logs[fakeRun{job.GetJobId(), keyOf(r), attempt}]
		changed := f.changed
		f.mu.Unlock()
		if first && offset < 0 {
			offset = max(0, int64(len(log))+offset)
		}
		for offset < int64(len(log)) {
			n := min(int64(len(log))-offset, 1000) // several messages for a long log
			if err := s.Send(&jobsv1.ReadLogResponse{Offset: offset, Data: log[offset : offset+n]}); err != nil {
				return err
			}
			offset += n
		}
		if over || !req.GetFollow() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fakeAPI) ExplainJob(_ context.Context, req *schedulerv1.ExplainJobRequest) (*schedulerv1.ExplainJobResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.find(req.GetJobId())
	if job == nil {
		return nil, missing("job", req.GetJobId())
	}
	res := &schedulerv1.ExplainJobResponse{JobId: job.GetJobId()}
	for _, r := range job.GetReplicas() {
		d := &schedulerv1.Decision{TaskIndex: r.GetTaskIndex(), TaskName: taskTitle(job, r.GetTaskIndex()), ReplicaIndex: r.GetReplicaIndex(), Attempt: r.GetAttempt()}
		res.Decisions = append(res.Decisions, d)
		sh := &schedulerv1.CandidateScore{AiCenterId: "sh-1", CenterName: "Shanghai", FilterReasons: []string{"the center is unknown: not heard of for 5m0s", "memory: 256 MiB wanted, 0 free"}}
		if r.GetAiCenterId() == "" {
			d.Summary = "waits: no center has room"
			d.Candidates = []*schedulerv1.CandidateScore{sh}
			continue
		}
		d.AiCenterId, d.DecidedAt, d.Summary = r.GetAiCenterId(), fakeTime(31*time.Second), "北京一号 has the highest score, 88.8; lowest-price decided"
		d.Candidates = []*schedulerv1.CandidateScore{
			sh,
			{
				AiCenterId: "gz-1", CenterName: "gz-1", FinalScore: 41.25, FinalScoreRounded: 41, Rank: 2,
				Scores: []*schedulerv1.PolicyScore{
					{PolicyId: "load-aware", Score: 55, Weight: 0.4, Weighted: 22, Fact: "45% busy"}, {PolicyId: "lowest-price", Score: 32, Weight: 0.6, Weighted: 19.2, Fact: "0.90 CNY/h"},
				},
			},
			{
				AiCenterId: "bj-1", CenterName: "北京一号", FinalScore: 88.8, FinalScoreRounded: 89, Rank: 1, Chosen: true,
				Scores: []*schedulerv1.PolicyScore{
					{PolicyId: "load-aware", Score: 72, Weight: 0.4, Weighted: 28.8, Fact: "28% busy"}, {PolicyId: "lowest-price", Score: 100, Weight: 0.6, Weighted: 60, Fact: "0.48 CNY/h"},
				},
			},
		}
	}
	return res, nil
}

func (f *fakeAPI) GetSchedulingStats(_ context.Context, req *schedulerv1.GetSchedulingStatsRequest) (*schedulerv1.GetSchedulingStatsResponse, error) {
	return &schedulerv1.GetSchedulingStatsResponse{JobsScheduled: 12000, ReplicasPlaced: 15000, TotalMicroseconds: 4_000_000, ThroughputPerSecond: 3000,
		SchedulingP50Microseconds: 8300, SchedulingP95Microseconds: 21_000, SchedulingP99Microseconds: 1_234_567, Queued: 7, Since: fakeTime(48 * time.Hour),
		Window: &schedulerv1.SchedulingFigures{Seconds: max(req.WindowSeconds, 300), JobsScheduled: 600, ReplicasPlaced: 610, TotalMicroseconds: 150_000, ThroughputPerSecond: 4000, JobsPerSecond: 2,
			MeasuredJobs: 590, SchedulingP50Microseconds: 950, SchedulingP95Microseconds: 9000, SchedulingP99Microseconds: 12_345, SchedulingMaxMicroseconds: 20_000},
		Tenants: []*schedulerv1.TenantQueue{{TenantId: "default", Jobs: 7, Replicas: 19, OldestAt: fakeTime(2 * time.Minute)}}}, nil
}

func (f *fakeAPI) ListPolicies(context.Context, *schedulerv1.ListPoliciesRequest) (*schedulerv1.ListPoliciesResponse, error) {
	return &schedulerv1.ListPoliciesResponse{
		Policies: []*schedulerv1.Policy{
			{PolicyId: "load-aware", Title: "Load", TitleZh: "负载感知", Doc: "Prefers the center with the most free capacity.", Factors: []string{"cpu_free", "memory_free"}},
			{PolicyId: "lowest-price", Title: "Price", TitleZh: "价格感知", Doc: "Prefers the lowest price.", Factors: []string{"price"}},
		},
		Presets: []*schedulerv1.Preset{{Name: "balanced", Weights: map[string]int32{"load-aware": 40, "lowest-price": 60}}},
	}, nil
}

func (f *fakeAPI) GetPolicySet(context.Context, *schedulerv1.GetPolicySetRequest) (*schedulerv1.PolicySet, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(f.weights), nil
}

func (f *fakeAPI) SetPolicySet(_ context.Context, req *schedulerv1.SetPolicySetRequest) (*schedulerv1.PolicySet, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set := proto.CloneOf(req.GetPolicySet())
	if set.GetPreset() == "balanced" {
		set.Weights = map[string]int32{"load-aware": 40, "lowest-price": 60}
	} else if set.GetPreset() != "" {
		return nil, refuse(violation("preset", fmt.Sprintf("no preset %q", set.GetPreset())))
	}
	for id := range set.GetWeights() {
		if id != "load-aware" && id != "lowest-price" {
			return nil, refuse(violation("policy_set.weights."+id, "no such policy"))
		}
	}
	set.UpdatedAt = fakeTime(0)
	f.weights = set
	return proto.CloneOf(set), nil
}

func (f *fakeAPI) GetJobCost(_ context.Context, req *meteringv1.GetJobCostRequest) (*meteringv1.JobCost, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.find(req.GetJobId())
	if job == nil {
		return nil, missing("job", req.GetJobId())
	}
	cost := &meteringv1.JobCost{JobId: job.GetJobId(), Currency: "CNY"}
	for _, r := range job.GetReplicas() {
		if r.GetEndedAt() == nil {
			continue
		}
		cost.Lines = append(cost.Lines, &meteringv1.CostLine{Usage: f.used(job, r)})
		cost.TotalMicros += r.GetCostMicros()
	}
	cost.TotalFen = (cost.TotalMicros + 5000) / 10000
	if len(cost.Lines) > 0 {
		cost.Lines[0].Fen = cost.TotalFen
	}
	return cost, nil
}

func (f *fakeAPI) used(job *jobsv1.Job, r *jobsv1.Replica) *meteringv1.Usage {
	return &meteringv1.Usage{
		AttemptId: r.GetAttemptId(), JobId: job.GetJobId(), TenantId: job.GetTenantId(), UserName: job.GetUserName(), TaskName: taskTitle(job, r.GetTaskIndex()),
		TaskIndex: r.GetTaskIndex(), ReplicaIndex: r.GetReplicaIndex(), Attempt: r.GetAttempt(), AiCenterId: r.GetAiCenterId(),
		ResourceSpecId: job.GetSpec().GetTasks()[r.GetTaskIndex()].GetResourceSpecId(), StartedAt: r.GetStartedAt(), EndedAt: r.GetEndedAt(),
		DurationMicroseconds: when(r.GetEndedAt()).Sub(when(r.GetStartedAt())).Microseconds(), CpuMicroseconds: r.GetCpuMicroseconds(),
		MemoryPeakBytes: r.GetMemoryPeakBytes(), Price: r.GetPrice(), CostMicros: r.GetCostMicros(),
	}
}

func (f *fakeAPI) ListUsage(_ context.Context, req *meteringv1.ListUsageRequest) (*meteringv1.ListUsageResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var usage []*meteringv1.Usage
	for _, j := range slices.Backward(f.jobs) {
		for _, r := range j.GetReplicas() {
			if r.GetEndedAt() != nil && (req.GetJobId() == "" || req.GetJobId() == j.GetJobId()) {
				usage = append(usage, f.used(j, r))
			}
		}
	}
	usage = append(usage, f.usage...)
	res := &meteringv1.ListUsageResponse{}
	res.Usage, res.NextPageToken = fakePage(usage, req.GetPageSize(), req.GetPageToken(), 100)
	return res, nil
}

func (f *fakeAPI) GetCenter(_ context.Context, req *registryv1.GetCenterRequest) (*registryv1.Center, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.centers {
		if k.GetAiCenterId() == req.GetAiCenterId() {
			return proto.CloneOf(k), nil
		}
	}
	return nil, missing("center", req.GetAiCenterId())
}

func (f *fakeAPI) ListCenters(_ context.Context, req *registryv1.ListCentersRequest) (*registryv1.ListCentersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &registryv1.ListCentersResponse{}
	var centers []*registryv1.Center
	for _, k := range f.centers {
		if req.GetRegion() == "" || req.GetRegion() == k.GetRegion() {
			centers = append(centers, proto.CloneOf(k))
		}
	}
	res.Centers, res.NextPageToken = fakePage(centers, req.GetPageSize(), req.GetPageToken(), 100)
	return res, nil
}

func (f *fakeAPI) UpdateCenter(_ context.Context, req *registryv1.UpdateCenterRequest) (*registryv1.Center, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, k := range f.centers {
		if k.GetAiCenterId() == req.GetCenter().GetAiCenterId() {
			f.centers[i] = proto.CloneOf(req.GetCenter())
			return req.GetCenter(), nil
		}
	}
	return nil, missing("center", req.GetCenter().GetAiCenterId())
}

func (f *fakeAPI) CreateJoinToken(_ context.Context, req *adaptersv1.CreateJoinTokenRequest) (*adaptersv1.CreateJoinTokenResponse, error) {
	ttl := time.Duration(cmp.Or(req.GetTtlSeconds(), 3600)) * time.Second
	return &adaptersv1.CreateJoinTokenResponse{Token: "yhj_" + cmp.Or(req.GetAiCenterId(), "any"), ExpiresAt: fakeTime(-ttl)}, nil
}

func (f *fakeAPI) spec(id string) *registryv1.Spec {
	for _, s := range f.specs {
		if s.GetResourceSpecId() == id {
			return s
		}
	}
	return nil
}

func (f *fakeAPI) GetSpec(_ context.Context, req *registryv1.GetSpecRequest) (*registryv1.Spec, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.spec(req.GetResourceSpecId()); s != nil {
		return proto.CloneOf(s), nil
	}
	return nil, missing("specification", req.GetResourceSpecId())
}

func (f *fakeAPI) ListSpecs(_ context.Context, req *registryv1.ListSpecsRequest) (*registryv1.ListSpecsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &registryv1.ListSpecsResponse{}
	res.Specs, res.NextPageToken = fakePage(f.specs, req.GetPageSize(), req.GetPageToken(), 100)
	return proto.CloneOf(res), nil
}

func (f *fakeAPI) CreateSpec(_ context.Context, req *registryv1.CreateSpecRequest) (*registryv1.Spec, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.spec(req.GetSpec().GetResourceSpecId()) != nil {
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("specification %q exists", req.GetSpec().GetResourceSpecId()))
	}
	s := proto.CloneOf(req.GetSpec())
	s.CreatedAt = fakeTime(0)
	f.specs = append(f.specs, s)
	return proto.CloneOf(s), nil
}

func (f *fakeAPI) SetOffer(_ context.Context, req *registryv1.SetOfferRequest) (*registryv1.Spec, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.spec(req.GetResourceSpecId())
	if s == nil {
		return nil, missing("specification", req.GetResourceSpecId())
	}
	s.Offers = slices.DeleteFunc(s.Offers, func(o *registryv1.Offer) bool { return o.GetAiCenterId() == req.GetAiCenterId() })
	s.Offers = append(s.Offers, &registryv1.Offer{AiCenterId: req.GetAiCenterId(), Price: req.GetPrice()})
	return proto.CloneOf(s), nil
}

func (f *fakeAPI) DeleteOffer(_ context.Context, req *registryv1.DeleteOfferRequest) (*registryv1.Spec, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.spec(req.GetResourceSpecId())
	if s == nil {
		return nil, missing("specification", req.GetResourceSpecId())
	}
	s.Offers = slices.DeleteFunc(s.Offers, func(o *registryv1.Offer) bool { return o.GetAiCenterId() == req.GetAiCenterId() })
	return proto.CloneOf(s), nil
}

func (f *fakeAPI) GetImage(_ context.Context, req *registryv1.GetImageRequest) (*registryv1.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.images {
		if m.GetImageId() == req.GetImageId() {
			return proto.CloneOf(m), nil
		}
	}
	return nil, missing("image", req.GetImageId())
}

func (f *fakeAPI) ListImages(_ context.Context, req *registryv1.ListImagesRequest) (*registryv1.ListImagesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &registryv1.ListImagesResponse{}
	res.Images, res.NextPageToken = fakePage(f.images, req.GetPageSize(), req.GetPageToken(), 100)
	return proto.CloneOf(res), nil
}

func (f *fakeAPI) CreateImage(_ context.Context, req *registryv1.CreateImageRequest) (*registryv1.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := proto.CloneOf(req.GetImage())
	m.CreatedAt = fakeTime(0)
	f.images = append(f.images, m)
	return proto.CloneOf(m), nil
}

func (f *fakeAPI) WhoAmI(context.Context, *identityv1.WhoAmIRequest) (*identityv1.WhoAmIResponse, error) {
	return &identityv1.WhoAmIResponse{User: f.users[0], KeyId: "k1", Permissions: []string{"jobs.read", "jobs.write"}}, nil
}

func (f *fakeAPI) CreateTenant(_ context.Context, req *identityv1.CreateTenantRequest) (*identityv1.Tenant, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tenants {
		if t.GetTenantId() == req.GetTenant().GetTenantId() {
			return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("tenant %q exists", t.GetTenantId()))
		}
	}
	t := proto.CloneOf(req.GetTenant())
	t.CreatedAt = fakeTime(0)
	f.tenants = append(f.tenants, t)
	return proto.CloneOf(t), nil
}

func (f *fakeAPI) ListTenants(_ context.Context, req *identityv1.ListTenantsRequest) (*identityv1.ListTenantsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &identityv1.ListTenantsResponse{}
	res.Tenants, res.NextPageToken = fakePage(f.tenants, req.GetPageSize(), req.GetPageToken(), 100)
	return proto.CloneOf(res), nil
}

func (f *fakeAPI) CreateUser(_ context.Context, req *identityv1.CreateUserRequest) (*identityv1.User, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := proto.CloneOf(req.GetUser())
	if !slices.ContainsFunc(f.tenants, func(t *identityv1.Tenant) bool { return t.GetTenantId() == u.GetTenantId() }) {
		return nil, refuse(violation("user.tenant_id", fmt.Sprintf("no tenant %q", u.GetTenantId())))
	}
	u.CreatedAt = fakeTime(0)
	f.users = append(f.users, u)
	return proto.CloneOf(u), nil
}

func (f *fakeAPI) ListUsers(_ context.Context, req *identityv1.ListUsersRequest) (*identityv1.ListUsersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &identityv1.ListUsersResponse{}
	res.Users, res.NextPageToken = fakePage(f.users, req.GetPageSize(), req.GetPageToken(), 100)
	return proto.CloneOf(res), nil
}

func (f *fakeAPI) CreateKey(_ context.Context, req *identityv1.CreateKeyRequest) (*identityv1.CreateKeyResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := &identityv1.Key{
		KeyId: fmt.Sprintf("k%d", len(f.keys)+1), UserId: cmp.Or(req.GetUserId(), "admin"), TenantId: "platform", Note: req.GetNote(), CreatedAt: fakeTime(0),
	}
	if req.GetTtlSeconds() > 0 {
		k.ExpiresAt = fakeTime(-time.Duration(req.GetTtlSeconds()) * time.Second)
	}
	f.keys = append(f.keys, k)
	return &identityv1.CreateKeyResponse{Key: proto.CloneOf(k), Secret: "yhk_" + k.GetKeyId()}, nil
}

func (f *fakeAPI) ListKeys(_ context.Context, req *identityv1.ListKeysRequest) (*identityv1.ListKeysResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &identityv1.ListKeysResponse{}
	res.Keys, res.NextPageToken = fakePage(f.keys, req.GetPageSize(), req.GetPageToken(), 100)
	return proto.CloneOf(res), nil
}

func (f *fakeAPI) RevokeKey(_ context.Context, req *identityv1.RevokeKeyRequest) (*identityv1.RevokeKeyResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.keys {
		if k.GetKeyId() == req.GetKeyId() {
			k.RevokedAt = fakeTime(0)
			return &identityv1.RevokeKeyResponse{}, nil
		}
	}
	return nil, missing("key", req.GetKeyId())
}

func (f *fakeAPI) ListAuditEvents(_ context.Context, req *identityv1.ListAuditEventsRequest) (*identityv1.ListAuditEventsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var events []*identityv1.AuditEvent
	for _, e := range f.events {
		if (req.GetUserId() == "" || req.GetUserId() == e.GetUserId()) && (req.GetMethod() == "" || req.GetMethod() == e.GetMethod()) {
			events = append(events, e)
		}
	}
	res := &identityv1.ListAuditEventsResponse{}
	res.Events, res.NextPageToken = fakePage(events, req.GetPageSize(), req.GetPageToken(), 100)
	return proto.CloneOf(res), nil
}
