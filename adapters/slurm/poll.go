package slurm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/sdk/adapter"
)

// attempt is what this process knows of an attempt.
type attempt struct {
	id string
	// op is held while one call works on the attempt at the cluster: two calls
	// must not submit it both.
	op sync.Mutex

	// The rest is guarded by the driver's mu.

	made      time.Time         // when a call first named it; zero: Slurm or its folder did
	account   string            // it was submitted for, by this process
	jobs      []*job            // as the last whole list had them
	submitted int64             // the job this process submitted, 0 if none
	at        time.Time         // when it was submitted
	doubt     time.Time         // when a submission went out that nobody answered; zero: none
	began     time.Time         // when its job was first seen running before its command
	stopped   bool              // its end was asked for
	again     time.Time         // when to ask Slurm once more, harder; zero: never
	unlisted  int               // whole lists without a job of it
	inFolder  bool              // it has a folder from before this process
	lostAt    time.Time         // when its job was first seen as lost, where Slurm may start it again
	early     bool              // its job was begun and its command not, when that list was read
	held      bool              // its command stands still as asked
	holdKnown bool              // that was read since its job began
	asked     time.Time         // when that was asked for by a call
	nudged    time.Time         // when its script was last signaled about it
	finishing bool              // its folder is being read
	final     *adapterv1.Status // its end, once known
	forgotten time.Time         // zero: not
}

// How often the loop looks at what.
const (
	soonest       = 100 * time.Millisecond // after a look, however urgent
	nodesEvery    = 2 * time.Second        // Watch sends something every three seconds
	yieldMost     = 2 * time.Second        // between two looks while jobs are submitted
	clockEvery    = 30 * time.Second
	sweepEvery    = time.Hour
	forgetAfter   = time.Hour // a forgotten attempt is remembered so long after Slurm dropped it
	troubleFactor = 5         // the pause grows up to so many times while there is trouble
	requeueWithin = 5 * time.Second
	harderAfter   = 15 * time.Second // beyond the grace of a stop, before Slurm is asked to kill
)

// namePrefix begins the name of every job of the platform.
const namePrefix = "yunhe:"

// poll looks at the cluster until ctx ends. It is the only reader of lists:
// what everybody else wants to know is derived from it.
func (d *Driver) poll(ctx context.Context) {
	var c looks
	var nodesAt, sweptAt time.Time
	nodesPause := nodesEvery
	pause, rest := d.cfg.poll(), soonest
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	for {
		kicked := false
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.kick:
			kicked = true
		}
		if wait := rest - time.Since(last); kicked && wait > 0 {
			timer.Reset(wait)
			continue
		}
		// Listing every job takes slurmctld from what is being submitted.
		if d.submitting.Load() > 0 && d.waiting.Load() == 0 && time.Since(last) < yieldMost {
			timer.Reset(soonest)
			continue
		}
		begun := time.Now()
		err := d.lookAtJobs(ctx, &c)
		took := time.Since(begun)
		if err == nil && time.Since(nodesAt) >= nodesPause {
			nodesAt = time.Now()
			err = d.lookAtNodes(ctx, &c)
			nodesPause = max(nodesEvery, 5*time.Since(nodesAt))
		}
		if ctx.Err() != nil {
			return
		}
		d.setTrouble(err)
		if d.folder != nil && err == nil && time.Since(sweptAt) > sweepEvery {
			sweptAt = begun
			if err := d.folder.sweep(begun); err != nil {
				d.log.Warn("old tombstones are not removed", "error", err)
			}
		}
		// A cluster whose list takes long is not asked for it all the time.
		rest = max(soonest, 3*took)
		if err != nil {
			pause = min(2*pause, troubleFactor*d.cfg.poll())
		} else {
			pause = max(d.cfg.poll(), rest)
		}
		last = time.Now()
		timer.Reset(pause)
	}
}

// setTrouble records how a look ended.
func (d *Driver) setTrouble(err error) {
	text := ""
	if err != nil {
		text = clip(d.api.explain(err), 1000)
	}
	d.mu.Lock()
	before := d.view.trouble
	if d.view.trouble = text; before != text {
		d.tell()
	}
	d.mu.Unlock()
	switch {
	case before == text:
	case text != "":
		d.log.Warn("the cluster cannot be reached", "trouble", text)
	default:
		d.log.Info("the cluster can be reached")
	}
}

// looks is what the loop remembers from one look to the next.
type looks struct {
	offset  time.Duration // the cluster's clock minus ours, at least
	read    time.Time     // when that was found; zero: not known
	clock   adapter.Clock // the same, for an operator
	notice  string        // about it
	jobs    int64         // the cluster's time of the last whole list of jobs, 0: none
	useless bool          // this slurmrestd does not say "not modified"
	partsAt time.Time
	down    map[string]bool // partitions that take no jobs
}

// now is a time that the cluster's clock has passed already, 0 if not known.
func (c *looks) now() int64 {
	if c.read.IsZero() {
		return 0
	}
	return time.Now().Add(c.offset).Add(-time.Second).Unix()
}

// lookAtClock reads the cluster's clock.
func (d *Driver) lookAtClock(ctx context.Context, c *looks) error {
	if time.Since(c.read) < clockEvery {
		return nil
	}
	a, err := d.api.call(ctx, "GET", "diag", nil)
	if err != nil {
		var no *apiError
		if errors.As(err, &no) { // not all users may ask; the list tells whether the cluster is well
			c.read = time.Time{}
			return nil
		}
		return err
	}
	at := time.Now()
	if !a.now.set {
		return nil
	}
	// The answer's time was read before it came here, in whole seconds.
	c.offset, c.read = time.Unix(a.now.n, 0).Sub(at), at
	c.notice = c.clock.Notice(c.offset)
	return nil
}

// lookAtJobs reads the list of jobs if it changed.
func (d *Driver) lookAtJobs(ctx context.Context, c *looks) error {
	if err := d.lookAtClock(ctx, c); err != nil {
		return err
	}
	begun, asOf := time.Now(), c.now()
	since := c.jobs
	if c.useless {
		since = 0
	}
	byAttempt, total := map[string][]*job{}, 0
	collect := func(j *job) {
		total++
		if id, ok := d.mine(j); ok {
			byAttempt[id] = append(byAttempt[id], j)
		}
	}
	_, err := list(ctx, d.api, "jobs", since, collect)
	if errors.Is(err, errUnchanged) {
		d.lookAtHolds(ctx)
		d.lookAtEarly(ctx, begun)
		d.sawNoChange(begun)
		return nil
	}
	if err == nil && since > 0 && total == 0 {
		// Some versions answer so when nothing changed, and when there are no jobs.
		if _, err = list(ctx, d.api, "jobs", 0, collect); total > 0 {
			c.useless = true
		}
	}
	if err != nil {
		c.jobs = 0
		return err
	}
	c.jobs = asOf
	first := d.firstLook()
	var old []string
	if first && d.folder != nil {
		if old, err = d.folder.list(); err != nil {
			d.log.Warn("the folder of attempts cannot be read", "error", err)
		}
	}
	d.sawJobs(ctx, begun, byAttempt, old)
	d.lookAtHolds(ctx)
	if first {
		d.settled(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if first {
		d.log.Info("the jobs of the cluster are known", "attempts", len(d.attempts))
	}
	d.seen = begun
	d.tell()
	return nil
}

// mine returns the attempt of a job, if it is one of this center's.
func (d *Driver) mine(j *job) (id string, ok bool) {
	id, ok = strings.CutPrefix(string(j.Name), namePrefix)
	if !ok || !idRule.MatchString(id) || !j.ID.set {
		return "", false
	}
	// A site's own plug-in may have changed the comment; the name still says
	// whose it is unless the comment says otherwise.
	if center, said := noted(string(j.Comment), "center"); said && center != d.center {
		return "", false
	}
	return id, true
}

// note is the comment of a job.
func (d *Driver) note(a *adapterv1.Attempt) string {
	words := fmt.Sprintf("yunhe center=%s attempt=%s job=%s grace=%d", url.QueryEscape(d.center), a.AttemptId, url.QueryEscape(clip(a.JobId, 64)), max(a.StopGraceSeconds, 0))
	if a.Pool != nil {
		words += " " + poolWord
	}
	return words
}

// noted reads one word of such a comment.
func noted(comment, key string) (value string, ok bool) {
	for i, w := range strings.Fields(comment) {
		if i == 0 && w != "yunhe" {
			return "", false
		}
		if k, v, _ := strings.Cut(w, "="); k == key && i > 0 {
			v, err := url.QueryUnescape(v)
			return v, err == nil
		}
	}
	return "", false
}

func (d *Driver) firstLook() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen.IsZero()
}

// sawNoChange is a look that found the list as it was.
func (d *Driver) sawNoChange(begun time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = begun
	d.tell()
}

// sawJobs takes in a whole list of jobs that was asked for at begun. old are
// attempts that have a folder.
func (d *Driver) sawJobs(ctx context.Context, begun time.Time, byAttempt map[string][]*job, old []string) {
	buried, past := d.buried(byAttempt, old), d.past(byAttempt)
	early := d.early(byAttempt)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range old {
		if d.attempts[id] == nil && byAttempt[id] == nil && !buried[id] {
			d.attempts[id] = &attempt{id: id, inFolder: true}
		}
	}
	for id := range byAttempt {
		if d.attempts[id] == nil {
			a := &attempt{id: id}
			if buried[id] {
				a.forgotten = begun
			}
			d.attempts[id] = a
		}
	}
	for id, a := range d.attempts {
		if jobs := byAttempt[id]; early[id] && begun.Sub(a.beginning(begun)) < patient(jobs) {
			a.jobs, a.unlisted, a.doubt, a.early = jobs, 0, time.Time{}, true
			if begun.Sub(a.began) < lateMost {
				d.look()
			}
			if pooled(jobs) {
				d.publish(&adapterv1.Status{AttemptId: id, Phase: adapterv1.Phase_PHASE_PENDING, Message: fmt.Sprintf("Slurm job %d waits on %s for its shares of the accelerator pool", jobs[0].ID.n, clip(string(jobs[0].Nodes), 100))})
			}
			continue // its command runs in a moment
		}
		a.early = false
		d.update(ctx, a, byAttempt[id], past[id], begun)
	}
}

// settled waits until the ends found by the first look are known whole: readers
// begin with how everything is. A shared file system that hangs holds them up
// for a while only.
func (d *Driver) settled(ctx context.Context) {
	timer := time.NewTimer(firstMost)
	defer timer.Stop()
	for {
		d.mu.Lock()
		open, news := false, d.news
		for _, a := range d.attempts {
			open = open || a.finishing
		}
		d.mu.Unlock()
		if !open {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		case <-timer.C:
			d.log.Warn("the folders of attempts take long to read; some ends are told later")
			return
		}
	}
}

// buried finds which of the attempts this process does not know are forgotten.
func (d *Driver) buried(byAttempt map[string][]*job, old []string) map[string]bool {
	out := map[string]bool{}
	if d.folder == nil {
		return out
	}
	d.mu.Lock()
	var unknown []string
	for id := range byAttempt {
		if d.attempts[id] == nil {
			unknown = append(unknown, id)
		}
	}
	d.mu.Unlock()
	for _, id := range append(unknown, old...) {
		if d.folder.buried(id) != "" {
			out[id] = true
		}
	}
	return out
}

// early finds jobs that Slurm calls running whose script has not come to the
// command yet: what is told to run can be stopped gracefully. Not many are
// looked at, for the file system may be slow.
func (d *Driver) early(byAttempt map[string][]*job) map[string]bool {
	const most = 100
	out := map[string]bool{}
	if d.folder == nil {
		return out
	}
	var ask []string
	d.mu.Lock()
	for id, jobs := range byAttempt {
		old, _ := d.board.Get(id)
		a := d.attempts[id]
		waits := a != nil && old != nil && old.Phase == adapterv1.Phase_PHASE_PENDING || old == nil && pooled(jobs) && (a == nil || a.forgotten.IsZero())
		if waits && len(jobs) == 1 && jobs[0].running() && len(ask) < most {
			ask = append(ask, id)
		}
	}
	d.mu.Unlock()
	for _, id := range ask {
		if !d.folder.ready(id) {
			out[id] = true
		}
	}
	return out
}

// lookAtEarly takes in the jobs that have come to their command, or took too long, while
// the list did not change.
func (d *Driver) lookAtEarly(ctx context.Context, begun time.Time) {
	var ask []*attempt
	d.mu.Lock()
	for _, a := range d.attempts {
		if a.early {
			ask = append(ask, a)
		}
	}
	d.mu.Unlock()
	for _, a := range ask {
		ready := d.folder.ready(a.id)
		d.mu.Lock()
		switch {
		case ready || begun.Sub(a.beginning(begun)) >= patient(a.jobs):
			a.early = false
			d.update(ctx, a, a.jobs, nil, begun)
		case begun.Sub(a.began) < lateMost:
			d.look()
		}
		d.mu.Unlock()
	}
}

// patient is how long a job that has begun may take to come to its command.
func patient(jobs []*job) time.Duration {
	if pooled(jobs) {
		return sharesMost
	}
	return lateMost
}

// pooled reports whether an attempt's command waits for shares of the accelerator pool.
func pooled(jobs []*job) bool {
	_, is := noted(string(jobs[0].Comment), poolWord)
	return is
}

// beginning is when a job of the attempt was first seen to begin.
func (a *attempt) beginning(now time.Time) time.Time {
	if a.began.IsZero() {
		a.began = now
	}
	return a.began
}

// past reads the folders of attempts that have several jobs, of which one has
// made the link, and of those whose job Slurm has put back.
func (d *Driver) past(byAttempt map[string][]*job) map[string]*record {
	out := map[string]*record{}
	if d.folder == nil {
		return out
	}
	for id, jobs := range byAttempt {
		if len(jobs) > 1 || jobs[0].Restarts.or(0) > 0 && !d.cfg.Requeue && jobs[0].end() == "" {
			out[id] = d.folder.read(id)
		}
	}
	return out
}

// update takes in the jobs of one attempt; d.mu is held.
func (d *Driver) update(ctx context.Context, a *attempt, jobs []*job, past *record, begun time.Time) {
	var owner int64
	if past != nil && len(jobs) > 1 {
		owner = past.job
	}
	if a.submitted == 0 {
		jobs = slices.DeleteFunc(jobs, (*job).refused)
	}
	if len(jobs) == 0 {
		d.unlisted(ctx, a, begun)
		return
	}
	a.jobs, a.unlisted, a.doubt = jobs, 0, time.Time{}
	mine, superfluous := choose(jobs, owner)
	for _, j := range jobs {
		if _, stop := noted(string(j.Comment), "stop"); stop {
			a.stopped = true
		}
	}
	if !a.forgotten.IsZero() || a.final != nil {
		// What runs although it must not was submitted by a call whose answer
		// got lost, and came through later.
		for _, j := range jobs {
			if j.end() == "" {
				d.cancelSoon(ctx, a, j)
			}
		}
		return
	}
	for _, j := range superfluous {
		d.cancelSoon(ctx, a, j)
	}
	if a.finishing {
		return
	}
	if len(jobs) != 1 || !jobs[0].running() {
		a.held, a.holdKnown = false, false
	}
	before, _ := d.board.Get(a.id)
	f := facts{attempt: a.id, jobs: jobs, owner: owner, stopped: a.stopped, again: d.cfg.Requeue, held: a.held, record: past, before: before}
	st := judge(f)
	if len(jobs) > 1 && owner == 0 && d.folder != nil && st.Phase == adapterv1.Phase_PHASE_RUNNING {
		return // which of them runs it is about to be decided
	}
	if st.Phase != adapterv1.Phase_PHASE_ENDED || st.Reason != "lost" {
		a.lostAt = time.Time{}
	} else if d.cfg.Requeue && mine != nil {
		if a.lostAt.IsZero() {
			a.lostAt = begun
		}
		if begun.Sub(a.lostAt) < requeueWithin {
			return // Slurm puts it back a moment after it says so
		}
	}
	switch {
	case st.Phase == adapterv1.Phase_PHASE_ENDED:
		d.end(ctx, a, f, st)
		return
	case a.stopped && mine != nil:
		d.harder(ctx, a, mine, begun)
	}
	d.publish(st)
}

// unlisted is an attempt that a whole list has no job of; d.mu is held.
func (d *Driver) unlisted(ctx context.Context, a *attempt, begun time.Time) {
	if a.at.After(begun) { // submitted meanwhile
		return
	}
	a.unlisted++
	switch {
	case !a.forgotten.IsZero():
		if a.jobs = nil; begun.Sub(a.forgotten) > forgetAfter {
			delete(d.attempts, a.id)
		}
	case a.final != nil, a.finishing:
		a.jobs = nil
	case len(a.jobs) == 0 && a.submitted == 0 && !a.inFolder:
		// Nothing was submitted, as far as is known: it was refused, or the
		// submission failed and was not repeated.
		if begun.Sub(a.made) > forgetAfter && begun.Sub(a.doubt) > forgetAfter && a.op.TryLock() {
			delete(d.attempts, a.id)
			a.op.Unlock()
		}
	case a.unlisted >= 2 || a.inFolder && a.submitted == 0:
		before, _ := d.board.Get(a.id)
		f := facts{attempt: a.id, jobs: nil, stopped: a.stopped, again: d.cfg.Requeue, before: before}
		a.jobs = nil
		d.end(ctx, a, f, gone(f, before))
	}
}

// publish puts a status on the board if it says something new.
func (d *Driver) publish(st *adapterv1.Status) {
	if old, ok := d.board.Get(st.AttemptId); !ok || !proto.Equal(old, st) {
		d.board.Set(st.AttemptId, st)
	}
}

// settle makes a status an attempt's end; d.mu is held.
func (d *Driver) settle(a *attempt, st *adapterv1.Status) {
	a.final, a.finishing = st, false
	if d.seen.IsZero() {
		d.tell() // the first look waits for it
	}
	if a.forgotten.IsZero() {
		d.publish(st)
	}
}

// end is called when an attempt has ended with st, as far as Slurm says; d.mu
// is held. What its folder and slurmdbd add is read in a goroutine, for either
// may be slow, and an end is told once.
func (d *Driver) end(ctx context.Context, a *attempt, f facts, st *adapterv1.Status) {
	if d.folder == nil && !d.cfg.Accounting {
		d.settle(a, st)
		return
	}
	a.finishing = true
	submitted := a.submitted
	d.loops.Go(func() {
		select {
		case d.finish <- struct{}{}:
			defer func() { <-d.finish }()
		case <-ctx.Done():
			return
		}
		st := d.complete(ctx, f, submitted)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.settle(a, st)
	})
}

// inlineLog is how long a log is sent along with the end.
const inlineLog = 8 << 10

// The pauses in which an attempt's end is looked for in its folder after Slurm
// told it: a network file system shows it late.
const (
	lateEvery = 50 * time.Millisecond
	lateMost  = 2 * time.Second
	firstMost = 5 * time.Second // for all that the first look finds
)

// complete adds to an end what the folder and slurmdbd know.
func (d *Driver) complete(ctx context.Context, f facts, submitted int64) *adapterv1.Status {
	mine, _ := choose(f.jobs, f.owner)
	if d.folder != nil {
		// Only a script that came to its end has written how.
		late := mine != nil && (mine.end() == "COMPLETED" || mine.end() == "FAILED" && mine.Exit.signal != 9)
		f.record = d.readRecord(ctx, f.attempt, late)
		if len(f.jobs) > 1 {
			f.owner = f.record.job
			mine, _ = choose(f.jobs, f.owner)
		}
		if f.record.kept != nil {
			return f.record.kept
		}
	}
	r := f.record
	var st *adapterv1.Status
	switch {
	case len(f.jobs) > 0:
		st = judge(f)
		if mine != nil {
			submitted = mine.ID.n
		}
		st = d.account(ctx, f, submitted, st, true)
	default:
		st = gone(f, f.before)
		if r != nil && r.job > 0 {
			submitted = r.job
		}
		// A script that was sent SIGTERM by the cluster does not know why, nor
		// does one whose command was ended by a signal.
		sure := r != nil && r.ended && (r.why != "stopped" || f.stopped) && (r.why != "done" || r.code <= 128 || r.code > 188)
		st = d.account(ctx, f, submitted, st, sure)
	}
	if r != nil && r.ended && r.logSize <= inlineLog {
		data, size, err := d.folder.log(f.attempt, 0, inlineLog+1)
		if err == nil && int64(len(data)) == size && size == r.logSize {
			st.Log, st.LogInline, st.LogBytes = data, true, size
		}
	}
	if r != nil && r.started {
		if err := d.folder.tell(st); err != nil {
			d.log.Debug("how an attempt ended is not kept in its folder", "attempt_id", f.attempt, "error", err)
		}
	}
	return st
}

// readRecord reads a folder, and if something must come yet, waits for it.
func (d *Driver) readRecord(ctx context.Context, id string, late bool) *record {
	deadline := time.Now().Add(lateMost)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return d.folder.read(id)
		case <-timer.C:
		}
		r := d.folder.read(id)
		if !late || r.ended || r.readErr != nil || time.Now().After(deadline) {
			return r
		}
		timer.Reset(lateEvery)
	}
}

// harder asks Slurm to kill what did not end within its grace; d.mu is held.
func (d *Driver) harder(ctx context.Context, a *attempt, j *job, now time.Time) {
	if a.again.IsZero() { // asked by an earlier process
		a.again = now.Add(graceOf(j) + harderAfter)
		return
	}
	if now.After(a.again) {
		a.again = now.Add(harderAfter)
		d.cancelSoon(ctx, a, j)
	}
}

// graceOf reads a job's grace from its comment.
func graceOf(j *job) time.Duration {
	s, _ := noted(string(j.Comment), "grace")
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// cancelSoon cancels a job in a goroutine; the next look tries again if that fails.
func (d *Driver) cancelSoon(ctx context.Context, a *attempt, j *job) {
	if j.State.has("COMPLETING") || j.State.has("CANCELLED") {
		return // it is being ended
	}
	d.loops.Go(func() {
		if err := d.cancel(ctx, j.ID.n, ""); err != nil && ctx.Err() == nil {
			d.log.Warn("a job that must not run is not canceled yet", "attempt_id", a.id, "slurm_job", j.ID.n, "error", err)
		}
	})
}
