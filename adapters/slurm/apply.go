package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// noNode says that the center has no node of a name, "" if it has or none is asked for.
func (d *Driver) noNode(ctx context.Context, name string) (refusal string, err error) {
	if name == "" {
		return "", nil
	}
	if _, err := d.Discover(ctx, &adapterv1.DiscoverRequest{}); err != nil { // the nodes are known then
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.view.nodes[name] == nil {
		return fmt.Sprintf("center %s has no node %q", d.center, clip(name, 100)), nil
	}
	return "", nil
}

// maxApply is how many attempts one Apply may carry, by contract.
const maxApply = 256

// Apply submits what is new. It answers when slurmctld has taken every attempt
// that is not refused; an error says that some may not have been, and the
// same call may be made again.
func (d *Driver) Apply(ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	if len(r.Attempts) > maxApply {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("attempts must be at most %d, got %d", maxApply, len(r.Attempts)))
	}
	if len(r.Attempts) == 0 {
		return &adapterv1.ApplyResponse{}, nil
	}
	// Before the jobs there are have been read, nothing can be said to be new.
	if err := d.whole(ctx, time.Time{}); err != nil {
		return nil, err
	}
	refusals := make([]refusal, len(r.Attempts))
	// A caller that hangs up must not leave submissions in doubt.
	group, work := errgroup.WithContext(context.WithoutCancel(ctx))
	group.SetLimit(workers)
	for i, a := range r.Attempts {
		group.Go(func() (err error) {
			if work.Err() != nil {
				return nil // another one found that the cluster does not answer
			}
			refusals[i], err = d.submit(ctx, a)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		var c *connect.Error
		if errors.As(err, &c) {
			return nil, err
		}
		return nil, unavailable("%s", d.api.explain(err))
	}
	d.look()
	res := &adapterv1.ApplyResponse{}
	for i, no := range refusals {
		if no.why != "" {
			res.Refusals = append(res.Refusals, &adapterv1.Refusal{AttemptId: r.Attempts[i].AttemptId, Reason: no.why, Later: no.later})
		}
	}
	return res, nil
}

// attempt returns what is known of an attempt, which may be nothing.
func (d *Driver) attempt(id string) *attempt {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.attempts[id]
	if a == nil {
		a = &attempt{id: id, made: time.Now()}
		d.attempts[id] = a
	}
	return a
}

// decided reports whether an attempt needs no submission, and why it has ended
// if this call decides that.
func (d *Driver) decided(a *attempt, seen bool) bool {
	var r *record
	buried := ""
	if d.folder != nil {
		r, buried = d.folder.read(a.id), d.folder.buried(a.id)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	over := func(reason, why string) {
		d.settle(a, &adapterv1.Status{AttemptId: a.id, Phase: adapterv1.Phase_PHASE_ENDED, Reason: reason, ExitCode: -1, Message: why})
	}
	switch {
	case a.final != nil || a.finishing:
	case buried == wasStopped:
		over("never_started", "it was stopped before it was submitted")
	case buried != "" || !a.forgotten.IsZero():
		a.forgotten = time.Time{} // it is asked for, so it is answered
		over("lost", "it was forgotten here; it is not run again")
	case len(a.jobs) > 0 || a.submitted != 0:
	case r != nil && r.started:
		a.inFolder, a.at = true, time.Now() // the next look finds its job, or ends it
	case seen && a.doubt.IsZero():
		over("lost", "Slurm does not know this run any more")
	default:
		return false
	}
	return true
}

// refusal is why an attempt is not taken, "": it is. Later says that another time
// it may be.
type refusal struct {
	why   string
	later bool
}

// submit makes an attempt exist, unless it does.
func (d *Driver) submit(ctx context.Context, r *adapterv1.Attempt) (refusal, error) {
	if !idRule.MatchString(r.AttemptId) {
		return refusal{why: fmt.Sprintf("attempt_id %q is not letters, digits, _, - and . that begin with a letter", clip(r.AttemptId, 60))}, nil
	}
	a := d.attempt(r.AttemptId)
	a.op.Lock()
	defer a.op.Unlock()
	if err := d.recall(ctx, a, r.Seen); err != nil {
		return refusal{}, err
	}
	if d.decided(a, r.Seen) {
		d.renew(r)
		return refusal{}, nil
	}
	if why := d.sharesRefused(r); why != "" {
		return refusal{why: why, later: true}, nil
	}
	if r.AllocationId != "" {
		return refusal{why: fmt.Sprintf("allocation %s has no nodes here: the driver of Slurm reserves none", clip(r.AllocationId, 60))}, nil
	}
	if why, err := d.noNode(ctx, r.Node); why != "" || err != nil {
		return refusal{why, r.Pool.GetLocal()}, err // the platform chose it
	}
	body, err := d.request(r)
	if err != nil {
		return refusal{why: clip(err.Error(), 500)}, nil
	}
	if why, err := d.mayBook(ctx, r.Account); why != "" || err != nil {
		return refusal{why: why}, err
	}
	d.mu.Lock()
	doubt := a.doubt
	a.account = r.Account
	d.mu.Unlock()
	if !doubt.IsZero() {
		// An earlier submission may have come through.
		if err := d.whole(ctx, doubt); err != nil {
			return refusal{}, err
		}
		if d.decided(a, r.Seen) {
			return refusal{}, nil
		}
	}
	d.submitting.Add(1)
	answer, err := d.api.call(context.WithoutCancel(ctx), http.MethodPost, "job/submit", body)
	d.submitting.Add(-1)
	id := answer.jobID.or(0)
	var no *apiError
	switch {
	case id > 0:
		// With an error beside it the job waits until what is wrong has passed.
	case err == nil:
		err = &strangeError{d.api.where() + " answered a submission without a job_id"}
	case errors.As(err, &no) && forGood(no):
		return refusal{"Slurm refuses the job: " + clip(no.Error(), 400), r.Pool.GetLocal() && slices.Contains(onNode, no.number())}, nil
	case errors.As(err, &no) && slices.Contains(forNow, no.number()):
		return refusal{"Slurm refuses the job for now: " + clip(no.Error(), 400), true}, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if id == 0 {
		a.doubt = time.Now()
		return refusal{}, err
	}
	a.submitted, a.at, a.doubt = id, time.Now(), time.Time{}
	if len(a.jobs) == 0 && a.final == nil && !a.finishing { // it has not been seen in a list meanwhile
		d.publish(&adapterv1.Status{AttemptId: a.id, Phase: adapterv1.Phase_PHASE_PENDING, Message: fmt.Sprintf("Slurm job %d waits", id)})
	}
	return refusal{}, nil
}

// refusals are Slurm's numbers of what stays wrong with a job, however often it
// is submitted.
var refusals = []int64{
	2000, 2001, 2002, 2003, 2004, 2005, 2006, 2008, 2009, 2012, 2014, 2015, 2018, // partition, access, nodes, script
	2025, 2029, 2036, 2040, 2044, 2045, 2048, 2051, 2052, 2053, 2057, // tasks, features, memory, account, licenses, time, reservation, wckey
	2066, 2069, 2072, 2081, 2099, 2112, 2115, 2119, 2122, 2123, 2130, 2134, // qos, CPUs, gres
	2127, 9000, 9001, 9002, 9202, // environment, form
}

// forNow are Slurm's numbers of what another center should rather take: nodes are
// busy, a limit of the association or the QOS is reached, a reservation is busy or
// not usable, a node or the partition is down, drained or inactive.
var forNow = []int64{2016, 2050, 2055, 2056, 2068, 2070}

// onNode are those of refusals that may be of the node that the platform chose.
var onNode = []int64{2004, 2014}

// forGood reports whether an answer means that the job can never be submitted
// as it is.
func forGood(e *apiError) bool { return slices.Contains(refusals, e.number()) }

// request is what an attempt is as a submission. An error is for good.
func (d *Driver) request(r *adapterv1.Attempt) (map[string]any, error) {
	p, err := d.cfg.partition(r.ResourcespecId)
	if err != nil {
		return nil, err
	}
	image, ok := d.cfg.Images[r.ImageId]
	if !ok {
		return nil, fmt.Errorf("image %q is not here; there are %s", clip(r.ImageId, 60), strings.Join(slices.Sorted(maps.Keys(d.cfg.Images)), ", "))
	}
	requeue := d.cfg.Requeue && r.Pool == nil // the platform sends no passes to what has begun
	setup := slices.Concat(d.cfg.Setup, p.Setup, image.Setup)
	script, err := plan{root: d.root(), attempt: r, image: image, setup: setup, again: requeue, program: d.cfg.PoolProgram, sockets: d.cfg.sockets(r)}.script()
	if err != nil {
		return nil, err
	}
	_, version := d.api.said()
	// value is a number that may be infinite, in the form of the version.
	value := func(n int64) any {
		if version < 39 {
			return n
		}
		return map[string]any{"set": true, "infinite": false, "number": n}
	}
	job := map[string]any{
		"name": namePrefix + r.AttemptId, "comment": d.note(r), "current_working_directory": "/", "standard_output": "/dev/null", "standard_error": "/dev/null",
		"environment": map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "YUNHE_ATTEMPT_ID": r.AttemptId}, "tasks": 1,
	}
	if version < 39 && !requeue {
		job["no_requeue"] = true // there both words mean yes, whatever their value
	} else {
		job["requeue"] = requeue
	}
	for key, v := range map[string]string{"partition": p.Name, "account": first(r.Account, first(p.Account, d.cfg.Account)), "qos": first(p.QOS, d.cfg.QOS)} {
		if v != "" {
			job[key] = v
		}
	}
	if err := d.amounts(job, r.Resources, value); err != nil {
		return nil, err
	}
	if r.Node != "" && version < 39 {
		job["nodelist"] = r.Node
	} else if r.Node != "" {
		job["required_nodes"] = []string{r.Node}
	}
	if r.TimeoutSeconds > 0 {
		// The script ends the command on the second; Slurm, which counts in
		// minutes, is the second line, and plans with it.
		job["time_limit"] = value((r.TimeoutSeconds+max(r.StopGraceSeconds, 0)+59)/60 + 1)
	}
	if r.Priority != 0 {
		job["nice"] = -10 * min(max(r.Priority, -100), 0) // a user may only step back
	}
	return map[string]any{"script": script, "job": job}, nil
}

// The most that Slurm can write down for one node.
const (
	maxCPUs   = 65000
	maxMemory = 1 << 50
)

// amounts adds what an attempt needs.
func (d *Driver) amounts(job map[string]any, resources map[string]int64, value func(int64) any) error {
	var generic []string
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		n := resources[name]
		kind, mapped := d.cfg.GRES[name]
		switch {
		case n < 0:
			return fmt.Errorf("resources.%s must be at least 0, got %d", name, n)
		case n == 0, name == "storage":
		case name == "cpu" && n > maxCPUs*1000:
			return fmt.Errorf("resources.cpu is %d cores, and no node of Slurm's has more than %d", n/1000, maxCPUs)
		case name == "memory" && n > maxMemory, mapped && n > maxCPUs:
			return fmt.Errorf("resources.%s is %d, more than any node of Slurm's has", name, n)
		case name == "cpu":
			job["cpus_per_task"] = (n + 999) / 1000
		case name == "memory":
			job["memory_per_node"] = value((n + mib - 1) / mib)
		case mapped:
			generic = append(generic, fmt.Sprintf("%s:%d", kind, n))
		default:
			return fmt.Errorf("resource %q is not here: no generic resource of Slurm's is named for it", clip(name, 60))
		}
	}
	if len(generic) == 0 {
		return nil
	}
	if _, version := d.api.said(); version < 39 {
		job["gres"] = strings.Join(generic, ",")
	} else {
		job["tres_per_node"] = "gres/" + strings.Join(generic, ",gres/")
	}
	return nil
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// root is the folder of this center's attempts at the cluster.
func (d *Driver) root() string { return strings.TrimRight(d.cfg.Directory, "/") + "/" + d.center }

// Remove stops attempts and forgets ended ones. An attempt never heard of is
// said to have never started, and is not started later.
func (d *Driver) Remove(ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
	if len(r.Stop)+len(r.Forget) == 0 {
		return &adapterv1.RemoveResponse{}, nil
	}
	if err := d.whole(ctx, time.Time{}); err != nil {
		return nil, err
	}
	group := errgroup.Group{}
	group.SetLimit(workers)
	for _, id := range r.Stop {
		group.Go(func() error { return d.halt(ctx, id) })
	}
	err := group.Wait()
	var wg sync.WaitGroup
	limit := make(chan struct{}, readers)
	for _, id := range r.Forget {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			d.forget(id)
		})
	}
	wg.Wait()
	if err != nil {
		var c *connect.Error
		if errors.As(err, &c) {
			return nil, err
		}
		return nil, unavailable("%s", d.api.explain(err))
	}
	return &adapterv1.RemoveResponse{}, nil
}

// halt asks for the end of an attempt.
func (d *Driver) halt(ctx context.Context, id string) error {
	if !idRule.MatchString(id) {
		return nil // no attempt of that name was ever accepted
	}
	a := d.attempt(id)
	a.op.Lock()
	defer a.op.Unlock()
	d.mu.Lock()
	doubt := a.doubt
	if a.at.After(doubt) && len(a.jobs) == 0 {
		doubt = a.at // whether it waits or runs decides how it is stopped
	}
	d.mu.Unlock()
	if !doubt.IsZero() {
		if err := d.whole(ctx, doubt); err != nil {
			return err
		}
	}
	jobs, never := d.stopping(a)
	if never {
		d.bury(id, wasStopped) // so that a later process knows, too
	}
	for _, j := range jobs {
		if err := d.signal(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// stopping notes that an attempt is to end and returns its jobs that have not
// ended. never: it was not submitted, and will not be.
func (d *Driver) stopping(a *attempt) (jobs []*job, never bool) {
	var r *record
	if d.folder != nil {
		r = d.folder.read(a.id)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.final != nil || a.finishing || !a.forgotten.IsZero() {
		return nil, false
	}
	a.stopped = true
	for _, j := range a.jobs {
		if j.end() == "" {
			jobs = append(jobs, j)
			a.again = time.Now().Add(graceOf(j) + harderAfter)
		}
	}
	if len(a.jobs) > 0 {
		return jobs, false
	}
	st := &adapterv1.Status{AttemptId: a.id, Phase: adapterv1.Phase_PHASE_ENDED, Reason: "never_started", ExitCode: -1, Message: "it was stopped before it was submitted"}
	ran := a.submitted != 0 || r != nil && r.started
	if ran {
		st = gone(facts{attempt: a.id, stopped: true, record: r}, nil)
	}
	d.settle(a, st)
	return nil, !ran
}

// signal notes at the cluster that the platform asked for the end of a job,
// and asks for it: with SIGTERM, after which the script gives it its grace, if
// it runs.
func (d *Driver) signal(ctx context.Context, j *job) error {
	if _, noted := noted(string(j.Comment), "stop"); !noted {
		_, err := d.api.call(ctx, http.MethodPost, fmt.Sprintf("job/%d", j.ID.n), map[string]any{"comment": strings.TrimSpace(string(j.Comment)) + " stop"})
		var no *apiError
		if err != nil && !errors.As(err, &no) { // a job that has just ended takes no comment
			return err
		}
	}
	how := ""
	if j.running() {
		how = "TERM"
	}
	err := d.cancel(ctx, j.ID.n, how)
	var no *apiError
	if how != "" && errors.As(err, &no) {
		err = d.cancel(ctx, j.ID.n, "") // it cannot be signaled now: it is about to begin or to end
	}
	d.look()
	return err
}

// cancel ends a job: at once if it waits, otherwise with SIGTERM and, after
// Slurm's KillWait, SIGKILL. With a signal it gets that one and nothing else.
func (d *Driver) cancel(ctx context.Context, id int64, signal string) error {
	path := fmt.Sprintf("job/%d", id)
	if signal != "" {
		path += "?signal=" + url.QueryEscape(signal)
	}
	_, err := d.api.call(ctx, http.MethodDelete, path, nil)
	var no *apiError
	if errors.As(err, &no) {
		switch no.number() {
		case 2017, 2021, 2084, 4002: // no such job, or it has ended
			return nil
		}
	}
	return err
}

// forget drops what is kept of an attempt that has ended. One that has not is
// kept: its end would be lost.
func (d *Driver) forget(id string) {
	if !idRule.MatchString(id) {
		return
	}
	d.mu.Lock()
	a := d.attempts[id]
	if a == nil || a.final == nil {
		d.mu.Unlock()
		return
	}
	a.forgotten, a.final = time.Now(), nil
	d.board.Delete(id)
	d.mu.Unlock()
	d.bury(id, wasForgotten)
}

// bury deletes an attempt's folder, if it can be reached from here.
func (d *Driver) bury(id, why string) {
	if d.folder == nil {
		return
	}
	if err := d.folder.bury(id, why); err != nil {
		d.log.Warn("what an attempt left on the shared file system is not removed; may this process delete there?", "attempt_id", id, "error", err)
	}
}
