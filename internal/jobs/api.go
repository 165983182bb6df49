package jobs

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/gen/yunhe/jobs/v1/jobsv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
)

type handler struct{ s *Service }

// Register mounts the component's API.
func (s *Service) Register(srv *rpc.Server) {
	h := handler{s}
	srv.Service(jobsv1connect.NewJobServiceHandler(h, srv.Options()...))
	srv.Raw("GET /v1/jobs/{id}/events", "jobs.read", h.events)
	srv.Raw("GET /v1/jobs/{id}/tasks/{task}/replicas/{replica}/log", "jobs.read", h.download)
	srv.Raw("GET /v1/jobs/{id}/tasks/{task}/replicas/{replica}/exec", "jobs.write", h.exec)
	srv.Raw("GET /v1/logs/{id}/{task}/{replica}", "public", h.signedLog)
	srv.Raw("GET /v1/gangs/{id}", "public", h.members)
	srv.Raw("PUT /v1/gangs/{id}", "public", h.reachable)
	srv.RawErrors("POST /openapi/v1/trainjob", "jobs.write", h.trainCreate, rpc.FailEnvelope)
	srv.RawErrors("POST /openapi/v1/trainjob/{id}/stop", "jobs.write", h.trainStop, rpc.FailEnvelope)
	srv.RawErrors("GET /openapi/v1/trainjob/{id}", "jobs.read", h.trainGet, rpc.FailEnvelope)
	srv.RawErrors("GET /openapi/v1/trainjob/{id}/task/{task}/replica/{replica}/log", "jobs.read", h.trainLog, rpc.FailEnvelope)
}

func (h handler) SubmitJob(ctx context.Context, r *jobsv1.SubmitJobRequest) (*jobsv1.Job, error) {
	ids, made, err := h.s.submit(ctx, r.RequestId, []*jobsv1.JobSpec{r.Job}, false)
	if err != nil {
		return nil, err
	}
	if made == nil {
		return h.s.Get(ctx, ids[0])
	}
	out := jobOut(made[0], 0)
	out.Replicas = replicasOut(made[0], nil, 0, nil)
	return out, nil
}

func (h handler) SubmitJobs(ctx context.Context, r *jobsv1.SubmitJobsRequest) (*jobsv1.SubmitJobsResponse, error) {
	ids, err := h.s.Submit(ctx, r.RequestId, r.Jobs, true)
	if err != nil {
		return nil, err
	}
	return &jobsv1.SubmitJobsResponse{JobIds: ids}, nil
}

func (h handler) GetJob(ctx context.Context, r *jobsv1.GetJobRequest) (*jobsv1.Job, error) {
	return h.s.Get(ctx, r.JobId)
}

// Get returns a job with its replicas.
func (s *Service) Get(ctx context.Context, id string) (*jobsv1.Job, error) {
	// Before the read, which holds one of few connections.
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	var out *jobsv1.Job
	err = s.db.View(ctx, func(tx *db.Tx) error {
		r, err := visible(ctx, tx, id)
		if err != nil {
			return err
		}
		var as []*attempt
		if r.touched() {
			if as, err = jobAttempts(ctx, tx, id); err != nil {
				return err
			}
		}
		cost, err := s.meter.JobCostsTx(ctx, tx, []string{id})
		if err != nil {
			return err
		}
		out = jobOut(r, cost[id]+runningCost(as, db.Micros(tx.Now)))
		out.Replicas = replicasOut(r, as, db.Micros(tx.Now), func(id string) string {
			if c := cat.Centers[id]; c != nil {
				return c.Name
			}
			return ""
		})
		for _, a := range as {
			if !slices.Contains(out.CenterIds, a.center) {
				out.CenterIds = append(out.CenterIds, a.center)
			}
		}
		slices.Sort(out.CenterIds)
		return nil
	})
	return out, err
}

func stamp(us int64) *timestamppb.Timestamp {
	if us == 0 {
		return nil
	}
	return timestamppb.New(db.Time(us))
}

func jobOut(r *record, costMicros int64) *jobsv1.Job {
	j := &jobsv1.Job{JobId: r.id, Spec: r.spec, TenantId: r.tenant, UserName: r.user, CreatedUser: r.userName, State: r.state, Reason: r.reason, Message: r.message,
		CreatedAt: stamp(r.created), StartedAt: stamp(r.started), EndedAt: stamp(r.ended), PlacedAt: stamp(r.placed),
		ReplicasTotal: int32(r.total), ReplicasRunning: int32(r.running), ReplicasSucceeded: int32(r.succeeded), ReplicasFailed: int32(r.failed),
		ReplicasStopped: int32(r.stopped), CostFen: (costMicros + 5000) / 10000, Version: r.version,
		PauseAsked: r.pauseAsked, ReplicasPaused: int32(r.paused)}
	if r.issued >= r.total {
		j.SchedulingMicroseconds = r.schedulingUS
	}
	return j
}

// replicasOut gives each replica its latest attempt, or says that it waits.
func replicasOut(r *record, as []*attempt, now int64, name func(center string) string) []*jobsv1.Replica {
	latest := map[[2]int64]*attempt{}
	for _, a := range as {
		latest[[2]int64{a.task, a.replica}] = a
	}
	out := make([]*jobsv1.Replica, 0, min(r.total, maxTotal))
	var waits []verdict
	if depends(r.spec) {
		waits = verdicts(r.spec, r.skippedTasks(), as)
	}
	for i, t := range r.spec.Tasks {
		for n := range t.ReplicaNumber {
			a := latest[[2]int64{int64(i), int64(n)}]
			if a == nil {
				st := queued
				if r.outcome != 0 {
					st = stopped
				}
				o := &jobsv1.Replica{TaskIndex: int32(i), ReplicaIndex: n, State: st}
				if waits != nil && st == queued {
					o.Message = waits[i].waits
				}
				if r.pauseAsked {
					o.Message = "is not placed while the job is paused"
				}
				if waits != nil && waits[i].never {
					o.State, o.Message = stopped, "never runs: "+waits[i].waits
				}
				out = append(out, o)
				continue
			}
			o := attemptOut(a, name(a.center), now)
			if a.retry && r.outcome != 0 { // it waited for another run when the job was decided
				o.State, o.Message = stopped, a.message
			}
			out = append(out, o)
		}
	}
	return out
}

func attemptOut(a *attempt, centerName string, now int64) *jobsv1.Replica {
	o := &jobsv1.Replica{TaskIndex: int32(a.task), ReplicaIndex: int32(a.replica), AttemptId: a.id, Attempt: int32(a.number), State: a.state, Reason: a.reason,
		Message: a.message, AiCenterId: a.center, CenterName: centerName, PlacedAt: stamp(a.placed), StartedAt: stamp(a.started), EndedAt: stamp(a.ended),
		ExitCode: int32(a.exitCode), CpuMicroseconds: a.cpuUS, MemoryPeakBytes: a.peak, Price: a.price, Node: a.node}
	if a.stopAsked && a.ended == 0 {
		o.State = stopping
	}
	if a.retry {
		o.State = queued
		if o.Message == "" {
			o.Message = "waits to be run again after: " + describe(a)
		}
	}
	o.CostMicros = costOf(a, now)
	return o
}

func (h handler) ListJobs(ctx context.Context, r *jobsv1.ListJobsRequest) (*jobsv1.ListJobsResponse, error) {
	size, err := core.PageSize(r.PageSize, 50)
	if err != nil {
		return nil, err
	}
	key, err := core.ParsePageToken(r.PageToken, 1)
	if err != nil {
		return nil, err
	}
	var c core.Check
	c.Text("name", r.Name, false, 32, 128)
	c.Text("user_name", r.UserName, false, 0, 64)
	c.Text("ai_center_id", r.AiCenterId, false, 0, 64)
	if len(r.States) > len(jobsv1.State_name) {
		c.Add("states", "must be at most %d, got %d", len(jobsv1.State_name), len(r.States))
	}
	for i, st := range r.States {
		enum(&c, fmt.Sprintf("states[%d]", i), int32(st), jobsv1.State_name)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	f := filter{tenant: core.CallerFrom(ctx).Tenant(r.TenantId), name: r.Name, user: r.UserName, center: r.AiCenterId, states: r.States, limit: size + 1}
	if r.CreatedAfter != nil {
		f.after = r.CreatedAfter.AsTime().UnixMicro()
	}
	if r.CreatedBefore != nil {
		f.before = r.CreatedBefore.AsTime().UnixMicro()
	}
	if key != nil {
		f.older = key[0]
	}
	res := &jobsv1.ListJobsResponse{}
	err = h.s.db.View(ctx, func(tx *db.Tx) error {
		*res = jobsv1.ListJobsResponse{}
		rs, err := listJobs(ctx, tx, f)
		if err != nil {
			return err
		}
		if len(rs) > size {
			rs = rs[:size]
			res.NextPageToken = core.PageToken(rs[size-1].id)
		}
		ids := make([]string, len(rs))
		for i, r := range rs {
			ids[i] = r.id
		}
		costs, err := h.s.meter.JobCostsTx(ctx, tx, ids)
		if err != nil {
			return err
		}
		centers, err := centersOf(ctx, tx, ids)
		if err != nil {
			return err
		}
		for _, r := range rs {
			j := jobOut(r, costs[r.id])
			j.CenterIds = centers[r.id]
			for _, t := range j.Spec.Tasks { // a list is for reading, not for files
				t.Files = nil
			}
			res.Jobs = append(res.Jobs, j)
		}
		return nil
	})
	return res, err
}

func (h handler) UpdateJob(ctx context.Context, r *jobsv1.UpdateJobRequest) (*jobsv1.Job, error) {
	return h.s.Update(ctx, r.JobId, r.Desc, r.Priority)
}

func (h handler) StopJob(ctx context.Context, r *jobsv1.StopJobRequest) (*jobsv1.Job, error) {
	return h.s.Stop(ctx, r.JobId, r.Reason)
}

func (h handler) PlanJob(ctx context.Context, r *jobsv1.PlanJobRequest) (*jobsv1.PlanJobResponse, error) {
	return h.s.Plan(ctx, r.Job)
}

func (h handler) ScaleJob(ctx context.Context, r *jobsv1.ScaleJobRequest) (*jobsv1.Job, error) {
	return h.s.Scale(ctx, r.JobId, r.Task, r.ReplicaNumber)
}

func (h handler) PreemptJob(ctx context.Context, r *jobsv1.PreemptJobRequest) (*jobsv1.Job, error) {
	return h.s.PreemptJob(ctx, r.JobId, r.Reason, r.AiCenterId)
}

func (h handler) PauseJob(ctx context.Context, r *jobsv1.PauseJobRequest) (*jobsv1.Job, error) {
	return h.s.Pause(ctx, r.JobId)
}

func (h handler) ResumeJob(ctx context.Context, r *jobsv1.ResumeJobRequest) (*jobsv1.Job, error) {
	return h.s.Resume(ctx, r.JobId)
}

func (h handler) WriteOffJob(ctx context.Context, r *jobsv1.WriteOffJobRequest) (*jobsv1.Job, error) {
	return h.s.WriteOff(ctx, r.JobId, Loss{Reason: r.Reason, CenterID: r.AiCenterId, Retry: r.Retry})
}

func (h handler) DeleteJob(ctx context.Context, r *jobsv1.DeleteJobRequest) (*jobsv1.DeleteJobResponse, error) {
	return &jobsv1.DeleteJobResponse{}, h.s.Delete(ctx, r.JobId)
}

func (h handler) GetJobStats(ctx context.Context, _ *jobsv1.GetJobStatsRequest) (*jobsv1.GetJobStatsResponse, error) {
	tenant := core.CallerFrom(ctx).Tenant("")
	res := &jobsv1.GetJobStatsResponse{JobsByState: map[string]int64{}}
	err := h.s.db.View(ctx, func(tx *db.Tx) error {
		q, args := `SELECT state, COUNT(*) FROM jobs GROUP BY state`, []any(nil)
		if tenant != "" {
			q, args = `SELECT state, COUNT(*) FROM jobs WHERE tenant_id = $1 GROUP BY state`, []any{tenant}
		}
		return tx.Query(ctx, q, args, func(row db.Row) error {
			var st State
			var n int64
			err := row.Scan(&st, &n)
			res.JobsByState[StateName(st)] = n
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	micros, runs, err := h.s.meter.Summary(ctx, tenant, h.s.db.Now().Add(-24*time.Hour))
	res.CostFen_24H, res.Runs_24H = (micros+5000)/10000, runs
	return res, err
}

func (h handler) WatchJobs(ctx context.Context, r *jobsv1.WatchJobsRequest, stream *connect.ServerStream[jobsv1.WatchJobsResponse]) error {
	if err := stream.Send(nil); err != nil { // headers now: the caller sees that it watches
		return err
	}
	return h.s.watch(ctx, r.JobId, func(j *jobsv1.Job) error { return stream.Send(&jobsv1.WatchJobsResponse{Job: j}) })
}

// watch calls send with a named job's present state and with every change,
// until the named job has ended or ctx ends.
func (s *Service) watch(ctx context.Context, id string, send func(*jobsv1.Job) error) error {
	sub := s.hub.subscribe(id)
	defer sub.close()
	caller := core.CallerFrom(ctx)
	version := int64(-1)
	show := func(id string) (over bool, err error) {
		j, err := s.Get(ctx, id)
		if err != nil {
			return false, err
		}
		if sub.job != "" && j.Version == version {
			return ended(j.State), nil
		}
		version = j.Version
		return ended(j.State), send(j)
	}
	if id != "" {
		if over, err := show(id); over || err != nil {
			return err
		}
	}
	// An event can be lost; a look at the state now and then makes up for it.
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sub.wake:
			for _, c := range sub.take() {
				if !caller.Sees(c.Tenant) {
					continue
				}
				over, err := show(c.ID)
				if fault.KindOf(err) == fault.NotFound && id == "" {
					continue // deleted meanwhile
				}
				if err != nil || over && id != "" {
					return err
				}
			}
		case <-tick.C:
			if id != "" {
				if over, err := show(id); over || err != nil {
					return err
				}
			}
		}
	}
}

// events is WatchJobs for REST callers, as server-sent events; "-" is all jobs.
func (h handler) events(w http.ResponseWriter, r *http.Request) error {
	if err := rpc.OnlyParams(r); err != nil {
		return err
	}
	id := r.PathValue("id")
	if id == "-" {
		id = ""
	} else if _, err := h.s.Get(r.Context(), id); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	flush := http.NewResponseController(w)
	if err := flush.Flush(); err != nil {
		return nil // the caller is gone
	}
	// Headers are sent: an error now ends the stream.
	_ = h.s.watch(r.Context(), id, func(j *jobsv1.Job) error {
		b, err := protojson.Marshal(j)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "event: job\nid: %d\ndata: %s\n\n", j.Version, b); err != nil {
			return err
		}
		return flush.Flush()
	})
	return nil
}

func (h handler) ReadLog(ctx context.Context, r *jobsv1.ReadLogRequest, stream *connect.ServerStream[jobsv1.ReadLogResponse]) error {
	return h.s.readLog(ctx, r.JobId, int64(r.TaskIndex), int64(r.ReplicaIndex), int64(r.Attempt), r.Offset, r.Follow, func(data []byte, offset int64) error {
		return stream.Send(&jobsv1.ReadLogResponse{Data: data, Offset: offset})
	})
}

// download is ReadLog for REST callers: plain text, ?follow=1 to go on until
// the replica has ended, ?download=1 to save it as a file.
func (h handler) download(w http.ResponseWriter, r *http.Request) error {
	if err := rpc.OnlyParams(r, "follow", "download", "offset", "attempt"); err != nil {
		return err
	}
	job, err := h.s.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	task, replica, err := locate(job, r.PathValue("task"), r.PathValue("replica"))
	if err != nil {
		return err
	}
	number := func(name string) (int64, error) {
		v := r.URL.Query().Get(name)
		if v == "" {
			return 0, nil
		}
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return 0, fault.Fields(fault.Field{Path: name, Problem: fmt.Sprintf("must be an integer, got %q", clip(v))})
		}
		return n, nil
	}
	offset, err := number("offset")
	if err != nil {
		return err
	}
	attemptNo, err := number("attempt")
	if err != nil {
		return err
	}
	head := func() {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if r.URL.Query().Get("download") != "" {
			w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%d-%d.log"`, job.JobId, task, replica))
		}
	}
	flush := http.NewResponseController(w)
	wrote := false
	follow := slices.Contains([]string{"1", "true"}, r.URL.Query().Get("follow"))
	err = h.s.readLog(r.Context(), job.JobId, int64(task), int64(replica), attemptNo, offset, follow, func(data []byte, _ int64) error {
		if !wrote {
			head()
			wrote = true
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		return flush.Flush()
	})
	if err == nil && !wrote {
		head()
		w.WriteHeader(http.StatusOK)
	}
	if wrote {
		return nil // part of the log is sent; it ends here
	}
	return err
}

// locate finds a replica by index or by ID or name (decision 11).
func locate(j *jobsv1.Job, task, replica string) (int, int, error) {
	t := slices.IndexFunc(j.Spec.Tasks, func(x *jobsv1.Task) bool { return x.Name == task })
	if n, err := strconv.Atoi(task); err == nil {
		t = n
	}
	if t < 0 || t >= len(j.Spec.Tasks) {
		return 0, 0, fault.New(fault.NotFound, "job %s has no task %q; it has tasks 0 to %d", j.JobId, clip(task), len(j.Spec.Tasks)-1)
	}
	r := -1
	for _, x := range j.Replicas {
		if x.AttemptId == replica && replica != "" && int(x.TaskIndex) == t {
			r = int(x.ReplicaIndex)
		}
	}
	if n, err := strconv.Atoi(replica); err == nil {
		r = n
	}
	if r < 0 || r >= int(j.Spec.Tasks[t].ReplicaNumber) {
		return 0, 0, fault.New(fault.NotFound, "task %s has no replica %q; it has replicas 0 to %d", j.Spec.Tasks[t].Name, clip(replica), j.Spec.Tasks[t].ReplicaNumber-1)
	}
	return t, r, nil
}
