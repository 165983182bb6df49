package apptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// Center is what a fake center declares. Zero values are filled in: ample
// room, and the specifications "small" and "medium" at 100 and 240 fen.
type Center struct {
	ID          string
	Region      string
	CPU         int64 // thousandths of a core
	Memory      int64 // bytes
	GPU         int64 // cards
	Prices      map[string]int64
	Grade       int64
	Performance int64
	Static      int64 // milliwatts per core
	Active      int64
	Longitude   float64
	Latitude    float64
	Images      []string

	// Play decides what becomes of an accepted replica, in a goroutine of its
	// own. Without it nothing happens until the test says so.
	Play func(r *Replica)
	// Refuse gives the reason for which an attempt is not taken, "" to take it.
	Refuse func(a *adapterv1.Attempt) string
	// Later says of what it refuses that it may take it another time.
	Later bool
	// Features are what it says it offers; it suspends and resumes.
	Features []adapterv1.Feature
	// PoolNodes are those on its machine that its runs may have shares of.
	PoolNodes []string
	// Parts are what it says it offers beside jobs.
	Parts []adapterv1.Part
	// Other answers what else the platform asks, by the contract's messages.
	Other func(what string, data []byte) ([]byte, error)
	// Paths are the quality of the ways from it, as it measures them.
	Paths []*adapterv1.Path
	// Away joins without connecting; see [FakeCenter.Connect].
	Away bool
}

// FakeCenter is a center that is not there: it joins with a token, dials the
// bus with its own key and speaks the gateway's protocol, but what it accepts
// runs nowhere and ends as the test says.
type FakeCenter struct {
	ID     string
	Center Center
	Seed   string
	Token  string
	Joined *adaptersv1.JoinResponse

	tb  testing.TB
	app *App
	inv *adapterv1.Inventory

	mu       sync.Mutex // guards the fields below
	conn     *bus.Agent
	hangUp   func()
	replicas []*Replica
	known    map[string]*Replica
	applied  map[string]int // how often the platform sent each attempt
	stops    map[string]int // how often it asked to stop each attempt
	last     map[string]*adapterv1.Attempt
	drop     map[string]int // requests to lose
	changed  chan struct{}  // closed and replaced with every change
}

// Replica is an attempt a fake center has accepted.
type Replica struct {
	*adapterv1.Attempt

	center    *FakeCenter
	stopped   chan struct{}
	reporting sync.Mutex // held by report

	mu      sync.Mutex // guards the fields below
	asked   bool       // to stop
	started int64
	status  *adapterv1.Status
	log     []byte
}

// Succeed plays a replica that runs and ends well.
func Succeed(r *Replica) {
	r.Run()
	r.End("completed", 0)
}

// Join admits a fake center and connects it; it leaves when the test tb ends.
func (a *App) Join(tb testing.TB, c Center) *FakeCenter {
	tb.Helper()
	f := &FakeCenter{ID: c.ID, Center: c, tb: tb, app: a, inv: c.inventory(), known: map[string]*Replica{}, applied: map[string]int{}, stops: map[string]int{}, last: map[string]*adapterv1.Attempt{}, drop: map[string]int{}, changed: make(chan struct{})}
	seed, pub, err := bus.NewAgentKey()
	if err != nil {
		tb.Fatalf("make a key: %v", err)
	}
	f.Seed = seed
	token, err := a.Admin.Adapters.CreateJoinToken(tb.Context(), &adaptersv1.CreateJoinTokenRequest{AiCenterId: c.ID})
	if err != nil {
		tb.Fatalf("create a token for center %s: %v", c.ID, err)
	}
	f.Token = token.Token
	f.Joined, err = NewClient(a.URL(), "").Adapters.Join(tb.Context(), &adaptersv1.JoinRequest{Token: token.Token, PublicKey: pub, Inventory: f.inv})
	if err != nil {
		tb.Fatalf("center %s joins: %v", c.ID, err)
	}
	tb.Cleanup(f.Disconnect)
	if !c.Away {
		f.Connect()
	}
	return f
}

func (c Center) inventory() *adapterv1.Inventory {
	if c.CPU == 0 {
		c.CPU = 1_000_000
	}
	if c.Memory == 0 {
		c.Memory = 1 << 40
	}
	if c.Prices == nil {
		c.Prices = map[string]int64{"small": 100, "medium": 240}
	}
	if c.Images == nil {
		c.Images = []string{"host"}
	}
	inv := &adapterv1.Inventory{AiCenterId: c.ID, Name: "Center " + c.ID, Region: c.Region, SecurityGrade: c.Grade, Performance: c.Performance,
		StaticMilliwattsPerCpu: c.Static, ActiveMilliwattsPerCpu: c.Active, Longitude: c.Longitude, Latitude: c.Latitude,
		Capacity: map[string]int64{core.CPU: c.CPU, core.Memory: c.Memory}, Images: c.Images, Version: "fake"}
	if c.GPU > 0 {
		inv.Capacity["gpu"] = c.GPU
	}
	for spec, price := range c.Prices {
		inv.Offers = append(inv.Offers, &adapterv1.SpecOffer{ResourceSpecId: spec, Price: price})
	}
	slices.SortFunc(inv.Offers, func(a, b *adapterv1.SpecOffer) int { return int(a.Price - b.Price) })
	return inv
}

// Inventory is what the center declares.
func (f *FakeCenter) Inventory() *adapterv1.Inventory {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(f.inv)
}

// Declare has the center declare something else from its next connection on.
func (f *FakeCenter) Declare(inv *adapterv1.Inventory) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inv = proto.CloneOf(inv)
}

// Connect dials the bus, serves the platform's requests and returns when the
// platform has heard of the center.
func (f *FakeCenter) Connect() {
	f.tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.tb.Context()))
	connected := make(chan struct{}, 1)
	conn, err := bus.DialAgent(f.Joined.BusUrls, f.ID, f.Seed, f.Joined.BusJwt, func() {
		select {
		case connected <- struct{}{}:
		default:
		}
	}, Log(f.tb))
	if err != nil {
		cancel()
		f.tb.Fatalf("center %s dials the bus: %v", f.ID, err)
	}
	var wg sync.WaitGroup
	f.mu.Lock()
	f.conn = conn
	f.hangUp = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		// The subscription has ended; with the answer to one more word the bus
		// knows it, and nobody waits for this center in vain.
		bctx, bcancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		_, _ = conn.Ask(bctx, "bye", nil) // refused, or not answered at all
		bcancel()
		conn.Close()
	})
	f.mu.Unlock()
	wg.Go(func() {
		if err := conn.Answer(ctx, 64, f.answer); err != nil {
			f.tb.Errorf("center %s does not answer: %v", f.ID, err)
		}
	})
	heard := make(chan struct{})
	wg.Go(func() { f.beat(ctx, connected, heard) })
	select {
	case <-heard:
	case <-time.After(Patience):
		f.tb.Fatalf("center %s: the platform does not answer", f.ID)
	}
}

// Disconnect hangs up; what the center has accepted stays as it is.
func (f *FakeCenter) Disconnect() {
	f.mu.Lock()
	hangUp := f.hangUp
	f.conn, f.hangUp = nil, nil
	f.mu.Unlock()
	if hangUp != nil {
		hangUp()
	}
}

// beat sends heartbeats, the first of each connection with the inventory.
func (f *FakeCenter) beat(ctx context.Context, connected <-chan struct{}, heard chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	fresh, first := false, true
	for {
		select {
		case <-ctx.Done():
			return
		case <-connected:
			fresh = true
		case <-tick.C:
		}
		r := &adapterv1.HeartbeatRequest{Resync: fresh, Measurement: &adapterv1.Measurement{MeasuredAt: timestamppb.Now(), Paths: f.Center.Paths}}
		if fresh {
			r.Inventory, r.Features, r.Parts, r.PoolNodes = f.Inventory(), f.Center.Features, f.Center.Parts, f.Center.PoolNodes
		}
		if f.ask(ctx, "heartbeat", r, &adapterv1.HeartbeatResponse{}) != nil {
			continue // the next tick tries again
		}
		if fresh = false; first {
			first = false
			close(heard)
		}
	}
}

func (f *FakeCenter) ask(ctx context.Context, what string, req, res proto.Message) error {
	b, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	out, err := f.Raw(ctx, what, b)
	if err != nil {
		return err
	}
	return proto.Unmarshal(out, res)
}

// Raw sends bytes to the platform as this center and returns the answer.
func (f *FakeCenter) Raw(ctx context.Context, what string, data []byte) ([]byte, error) {
	f.mu.Lock()
	conn := f.conn
	f.mu.Unlock()
	if conn == nil {
		return nil, fault.New(fault.Unavailable, "center %s is not connected", f.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return conn.Ask(ctx, what, data)
}

// Ask sends one request, without trying again.
func (f *FakeCenter) Ask(what string, req, res proto.Message) error {
	return f.ask(f.tb.Context(), what, req, res)
}

// Report tells the platform, as often as it takes, and returns its answer.
func (f *FakeCenter) Report(statuses ...*adapterv1.Status) *adapterv1.ReportResponse {
	res := &adapterv1.ReportResponse{}
	ctx, cancel := context.WithTimeout(f.tb.Context(), Patience)
	defer cancel()
	for {
		err := f.ask(ctx, "report", &adapterv1.ReportRequest{Statuses: statuses}, res)
		if err == nil || f.tb.Context().Err() != nil {
			return res
		}
		select {
		case <-ctx.Done():
			f.tb.Errorf("center %s: report not taken: %v", f.ID, err)
			return res
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Drop has the center lose the platform's next n requests of a kind ("apply",
// "remove"), as if they had never come.
func (f *FakeCenter) Drop(what string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop[what] = n
}

// Last is an attempt as the platform sent it last.
func (f *FakeCenter) Last(attemptID string) *adapterv1.Attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[attemptID]
}

func (f *FakeCenter) answer(_ context.Context, what string, data []byte) ([]byte, error) {
	f.mu.Lock()
	lost := f.drop[what] > 0
	if lost {
		f.drop[what]--
	}
	f.mu.Unlock()
	if lost {
		return nil, fault.New(fault.Unavailable, "lost on the way")
	}
	switch what {
	case "apply":
		r := &adapterv1.ApplyRequest{}
		if err := proto.Unmarshal(data, r); err != nil {
			return nil, err
		}
		return proto.Marshal(f.apply(r))
	case "remove":
		r := &adapterv1.RemoveRequest{}
		if err := proto.Unmarshal(data, r); err != nil {
			return nil, err
		}
		f.remove(r)
		return proto.Marshal(&adapterv1.RemoveResponse{})
	case "suspend":
		r := &adapterv1.SuspendRequest{}
		if err := proto.Unmarshal(data, r); err != nil {
			return nil, err
		}
		f.suspend(r)
		return proto.Marshal(&adapterv1.SuspendResponse{})
	case "readlog":
		r := &adapterv1.ReadLogRequest{}
		if err := proto.Unmarshal(data, r); err != nil {
			return nil, err
		}
		res, err := f.readLog(r)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(res)
	default:
		if f.Center.Other != nil {
			return f.Center.Other(what, data)
		}
		return nil, fault.New(fault.Unimplemented, "a fake center does not know the request %q", what)
	}
}

func (f *FakeCenter) apply(r *adapterv1.ApplyRequest) *adapterv1.ApplyResponse {
	res := &adapterv1.ApplyResponse{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range r.Attempts {
		f.applied[a.AttemptId]++
		f.last[a.AttemptId] = a
		if f.known[a.AttemptId] != nil {
			continue
		}
		if f.Center.Refuse != nil {
			if why := f.Center.Refuse(a); why != "" {
				res.Refusals = append(res.Refusals, &adapterv1.Refusal{AttemptId: a.AttemptId, Reason: why, Later: f.Center.Later})
				continue
			}
		}
		x := &Replica{Attempt: a, center: f, stopped: make(chan struct{}), asked: f.stops[a.AttemptId] > 0, status: &adapterv1.Status{AttemptId: a.AttemptId, Phase: adapterv1.Phase_PHASE_PENDING}}
		if x.asked { // before it came
			close(x.stopped)
		}
		f.known[a.AttemptId] = x
		f.replicas = append(f.replicas, x)
		if f.Center.Play != nil {
			go f.Center.Play(x)
		}
	}
	f.signal()
	return res
}

// signal tells waiters of a change; f.mu is held.
func (f *FakeCenter) signal() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *FakeCenter) remove(r *adapterv1.RemoveRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range r.Stop {
		f.stops[id]++
		if x := f.known[id]; x != nil {
			x.mu.Lock()
			if !x.asked {
				x.asked = true
				close(x.stopped)
			}
			x.mu.Unlock()
		}
	}
	f.signal()
}

// suspend has replicas that run stand still, or go on.
func (f *FakeCenter) suspend(r *adapterv1.SuspendRequest) {
	for want, ids := range map[adapterv1.Phase][]string{adapterv1.Phase_PHASE_SUSPENDED: r.Suspend, adapterv1.Phase_PHASE_RUNNING: r.Resume} {
		for _, id := range ids {
			f.mu.Lock()
			x := f.known[id]
			f.mu.Unlock()
			if x == nil {
				continue
			}
			x.mu.Lock()
			if p := x.status.Phase; p == adapterv1.Phase_PHASE_RUNNING || p == adapterv1.Phase_PHASE_SUSPENDED {
				x.status.Phase = want
			}
			x.mu.Unlock()
			go x.report() // not while the platform waits for this answer
		}
	}
}

func (f *FakeCenter) readLog(r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
	end := time.Now().Add(time.Duration(r.WaitMilliseconds) * time.Millisecond)
	for {
		f.mu.Lock()
		x, changed := f.known[r.AttemptId], f.changed
		f.mu.Unlock()
		if x == nil {
			return nil, fault.New(fault.NotFound, "no run %s", r.AttemptId)
		}
		x.mu.Lock()
		log, over := x.log, x.status.Phase == adapterv1.Phase_PHASE_ENDED
		x.mu.Unlock()
		from := min(max(r.Offset, 0), int64(len(log)))
		if piece := log[from:min(int64(len(log)), from+max(r.Limit, 1))]; len(piece) > 0 || over || time.Now().After(end) {
			return &adapterv1.ReadLogResponse{Data: piece, Offset: from, End: over}, nil
		}
		select {
		case <-changed:
		case <-time.After(time.Until(end)):
		}
	}
}

// Pin has all tasks of a job run at this center only, and returns the job.
func (f *FakeCenter) Pin(j *jobsv1.JobSpec) *jobsv1.JobSpec {
	for _, t := range j.Tasks {
		t.Constraints = &jobsv1.Constraints{Centers: []string{f.ID}}
	}
	return j
}

// Of returns the accepted replicas of a job by task, replica and attempt,
// once there are n.
func (f *FakeCenter) Of(jobID string, n int) []*Replica {
	f.tb.Helper()
	var out []*Replica
	ok := f.waits(func() bool {
		out = nil
		for _, x := range f.replicas {
			if x.JobId == jobID {
				out = append(out, x)
			}
		}
		return len(out) >= n
	})
	if !ok {
		why, err := f.app.Admin.Scheduler.ExplainJob(f.tb.Context(), &schedulerv1.ExplainJobRequest{JobId: jobID})
		f.tb.Fatalf("center %s: waited %s in vain until it has %d replicas of %v\nwhich is explained by: %v %v", f.ID, Patience, n, f.app.Admin.Job(f.tb, jobID), why, err)
	}
	key := func(x *Replica) string {
		return fmt.Sprintf("%5s %5s %5s", x.Env["YUNHE_TASK_INDEX"], x.Env["YUNHE_REPLICA_INDEX"], x.Env["YUNHE_ATTEMPT"])
	}
	slices.SortFunc(out, func(a, b *Replica) int { return strings.Compare(key(a), key(b)) })
	return out
}

// Await waits until the center has accepted n replicas and returns all it has.
func (f *FakeCenter) Await(n int) []*Replica {
	f.tb.Helper()
	var out []*Replica
	f.wait(fmt.Sprintf("it has %d replicas", n), func() bool {
		out = slices.Clone(f.replicas)
		return len(out) >= n
	})
	return out
}

// AwaitApplied waits until the platform has sent an attempt n times.
func (f *FakeCenter) AwaitApplied(attemptID string, n int) {
	f.tb.Helper()
	f.wait(fmt.Sprintf("%s was sent %d times", attemptID, n), func() bool { return f.applied[attemptID] >= n })
}

// Applied says how often the platform sent an attempt, Stops how often it
// asked to stop it.
func (f *FakeCenter) Applied(attemptID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applied[attemptID]
}

// Stops says how often the platform asked to stop an attempt.
func (f *FakeCenter) Stops(attemptID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stops[attemptID]
}

func (f *FakeCenter) wait(what string, cond func() bool) {
	f.tb.Helper()
	if !f.waits(cond) {
		f.tb.Fatalf("center %s: waited %s in vain until %s", f.ID, Patience, what)
	}
}

// waits reports whether cond came to hold in time.
func (f *FakeCenter) waits(cond func() bool) bool {
	end := time.After(Patience)
	for {
		f.mu.Lock()
		ok, changed := cond(), f.changed
		f.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-end:
			return false
		}
	}
}

// Stopped is closed once the platform asked for the replica's end.
func (r *Replica) Stopped() <-chan struct{} { return r.stopped }

// AwaitStop waits until the platform asked for the replica's end.
func (r *Replica) AwaitStop() {
	r.center.tb.Helper()
	select {
	case <-r.stopped:
	case <-time.After(Patience):
		r.center.tb.Fatalf("center %s: %s was not asked to stop", r.center.ID, r.AttemptId)
	}
}

// Status is what a gateway would report of the replica now.
func (r *Replica) Status() *adapterv1.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return proto.Clone(r.status).(*adapterv1.Status)
}

// Run says that the replica runs, since now.
func (r *Replica) Run() { r.RunSince(time.Now()) }

// RunSince says that the replica runs, since then.
func (r *Replica) RunSince(at time.Time) {
	r.mu.Lock()
	r.started = at.UnixMicro()
	r.status = &adapterv1.Status{AttemptId: r.AttemptId, Phase: adapterv1.Phase_PHASE_RUNNING, StartedAt: r.started}
	r.mu.Unlock()
	r.tell()
	r.center.Report(r.Status())
}

// Write appends to what the replica has written.
func (r *Replica) Write(text string) {
	r.mu.Lock()
	r.log = append(r.log, text...)
	r.mu.Unlock()
	r.tell()
}

// report tells the platform the replica's present status, in order.
func (r *Replica) report() {
	r.reporting.Lock()
	defer r.reporting.Unlock()
	r.tell()
	r.center.Report(r.Status())
}

// tell wakes who waits for something of this center.
func (r *Replica) tell() {
	r.center.mu.Lock()
	defer r.center.mu.Unlock()
	r.center.signal()
}

// End says that the replica has ended, with its log: inside the report up to
// 8 KiB, handed over before it otherwise.
func (r *Replica) End(reason string, exit int32) *adapterv1.ReportResponse {
	r.mu.Lock()
	st := &adapterv1.Status{AttemptId: r.AttemptId, Phase: adapterv1.Phase_PHASE_ENDED, StartedAt: r.started, Reason: reason, ExitCode: exit,
		CpuMicroseconds: 1000, MemoryPeakBytes: 1 << 20, LogBytes: int64(len(r.log))}
	if r.started > 0 {
		st.EndedAt = max(time.Now().UnixMicro(), r.started)
	}
	if len(r.log) <= 8<<10 {
		st.Log, st.LogInline = r.log, true
	}
	log := r.log
	r.status = st
	r.mu.Unlock()
	r.tell()
	for at := 0; !st.LogInline && at < len(log); {
		var res adapterv1.PutLogResponse
		piece := log[at:min(len(log), at+512<<10)]
		if err := r.center.Ask("putlog", &adapterv1.PutLogRequest{AttemptId: r.AttemptId, Offset: int64(at), Data: piece, End: at+len(piece) == len(log)}, &res); err != nil {
			r.center.tb.Errorf("center %s: log of %s not taken: %v", r.center.ID, r.AttemptId, err)
			return nil
		}
		at = int(res.Stored)
	}
	return r.center.Report(r.Status())
}
