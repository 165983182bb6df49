package slurm

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// facts is all that is known of an attempt that Slurm has jobs of.
type facts struct {
	attempt string
	jobs    []*job            // those Slurm lists by the attempt's name, at least one
	owner   int64             // the job that the attempt's folder names; 0: not known
	stopped bool              // the platform asked for its end
	again   bool              // Slurm may start a job again
	held    bool              // its command stands still as asked
	record  *record           // what its folder says; nil if that was not looked at
	before  *adapterv1.Status // what was told last; nil if nothing
}

// record is what an attempt's folder says, see script.
type record struct {
	started  bool
	job      int64 // that ran it
	restarts int64 // how often Slurm had put that back
	ended    bool  // the fields below are known
	code     int
	why      string // done, stopped, limit, nostart
	from     int64  // when it began, seconds
	at       int64  // when it ended
	logSize  int64
	cpu      int64             // microseconds
	kept     *adapterv1.Status // what was told of its end, nil if nothing
	readErr  error             // the folder could not be read
}

const second = 1_000_000 // microseconds

// The words of Slurm for states in which a job has ended.
var endStates = []string{"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED"}

// end returns the word a job ended with, "" if it has not. A job that is being
// cleaned up, or will be started again, has not.
func (j *job) end() string {
	for _, w := range []string{"COMPLETING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED", "STAGE_OUT", "RUNNING", "SUSPENDED", "STOPPED", "PENDING", "CONFIGURING", "RESIZING", "SIGNALING"} {
		if j.State.has(w) {
			return ""
		}
	}
	for _, w := range endStates {
		if j.State.has(w) {
			return w
		}
	}
	return ""
}

// ran reports whether a job has had a node: only then its start is one.
func (j *job) ran() bool { return j.Nodes != "" && j.Nodes != "(null)" && j.Started.or(0) > 0 }

// running reports whether a job has begun and not ended.
func (j *job) running() bool {
	if j.end() != "" {
		return false
	}
	for _, w := range []string{"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"} {
		if j.State.has(w) {
			return !j.State.has("PENDING") && !j.State.has("CONFIGURING")
		}
	}
	return false
}

// refused reports whether a job is what is left of a submission that Slurm
// answered with an error: it lists those, too.
func (j *job) refused() bool { return j.end() == "FAILED" && j.Reason == "BadConstraints" && !j.ran() }

// twice reports whether a job found that another had run its attempt.
func (j *job) twice() bool { return j.end() == "FAILED" && j.Exit.signal == signalTwice }

// choose returns the job that is its attempt's, and others that wait and can be
// canceled. Normally there is one job. There are more if a submission got
// through whose answer did not. owner is the job that has made the attempt's
// link, 0 if that is not known; then it is the job that began, before that the
// one submitted first, and never one that found itself superfluous. A job that
// runs is never called superfluous: it finds out by itself, and may be the one
// that is not. It returns nil if there are only superfluous ones.
func choose(jobs []*job, owner int64) (mine *job, superfluous []*job) {
	order := func(j *job) int64 {
		switch {
		case owner != 0 && j.ID.n == owner:
			return 0
		case j.running() || j.end() != "" && j.ran():
			return 1
		case j.end() == "":
			return 2
		}
		return 3
	}
	sorted := slices.Clone(jobs)
	slices.SortFunc(sorted, func(a, b *job) int {
		for _, d := range []int64{order(a) - order(b), a.Started.or(0) - b.Started.or(0), a.ID.n - b.ID.n} {
			if d != 0 {
				return int(max(-1, min(1, d)))
			}
		}
		return 0
	})
	for _, j := range sorted {
		settled := mine != nil && (mine.ID.n == owner || mine.end() != "" && mine.ran())
		switch {
		case j.twice():
		case mine == nil:
			mine = j
		case settled && j.end() == "" && !j.running():
			superfluous = append(superfluous, j)
		}
	}
	return mine, superfluous
}

// judge says how an attempt is. It decides; it asks nobody.
func judge(f facts) *adapterv1.Status {
	st := &adapterv1.Status{AttemptId: f.attempt}
	j, _ := choose(f.jobs, f.owner)
	switch {
	case j == nil:
		onlyTwice(st, f, f.jobs[len(f.jobs)-1])
		return st
	case f.putBack(j):
		onlyTwice(st, f, j) // whatever Slurm says of its second start, it was none
		return st
	case f.record != nil && f.record.kept != nil && j.end() != "":
		return f.record.kept
	case j.end() != "":
		ended(st, j, f)
	case j.running():
		st.Phase, st.StartedAt = adapterv1.Phase_PHASE_RUNNING, max(j.Started.or(0), 0)*second
		if f.held && !f.stopped {
			st.Phase = adapterv1.Phase_PHASE_SUSPENDED
		}
		st.Node = nodeOf(j)
		st.Message = fmt.Sprintf("Slurm job %d on %s", j.ID.n, clip(string(j.Nodes), 100))
		if j.State.has("SUSPENDED") || j.State.has("STOPPED") {
			st.Message += ", suspended by Slurm"
		}
	default:
		st.Phase, st.Message = adapterv1.Phase_PHASE_PENDING, waits(j)
	}
	return st
}

// nodeOf is the node of a job that has one.
func nodeOf(j *job) string {
	if !j.ran() || strings.ContainsAny(string(j.Nodes), ",[") {
		return ""
	}
	return clip(string(j.Nodes), 253)
}

// putBack reports whether Slurm put a job back that had begun to run its
// attempt, where that is not allowed: its script will not run it again.
func (f facts) putBack(j *job) bool {
	if f.again || j.Restarts.or(0) == 0 {
		return false
	}
	if r := f.record; r != nil && r.readErr == nil {
		// A start that did not come to the script's link was none.
		return r.started && r.job == j.ID.n && r.restarts < j.Restarts.n
	}
	return j.end() != "" || f.before.GetStartedAt() > 0
}

// onlyTwice: all jobs there are found that the attempt had run before, or will.
func onlyTwice(st *adapterv1.Status, f facts, last *job) {
	if r := f.record; r != nil && (r.kept != nil || r.ended && (r.why != "stopped" || f.stopped)) {
		proto.Merge(st, gone(f, nil))
		return
	}
	st.Phase, st.Reason, st.ExitCode = adapterv1.Phase_PHASE_ENDED, "lost", -1
	if last.Restarts.or(0) > 0 {
		st.StartedAt, st.EndedAt = f.before.GetStartedAt(), last.Submitted.or(0)*second // Slurm gives it a new time of submission
		if last.end() != "" {
			st.EndedAt = last.Ended.or(0) * second
			if st.StartedAt == 0 {
				st.StartedAt = last.Started.or(0) * second
			}
		}
		if r := f.record; r != nil && r.started {
			st.StartedAt = r.from * second
			if r.ended {
				st.EndedAt, st.CpuMicroseconds, st.LogBytes = r.at*second, r.cpu, r.logSize
			}
		}
		st.EndedAt = max(st.EndedAt, st.StartedAt)
		st.Node = f.before.GetNode()
		st.Message = fmt.Sprintf("Slurm put job %d back after it had begun, to start it again, which requeue does not allow here; how far it came is not known", last.ID.n)
		return
	}
	st.Message = "it ran before, as a job that Slurm does not know any more; how it ended is not known"
}

// ended says how a job that has ended did.
func ended(st *adapterv1.Status, j *job, f facts) {
	st.Phase, st.ExitCode = adapterv1.Phase_PHASE_ENDED, -1
	st.EndedAt = max(j.Ended.or(0), 0) * second
	if j.ran() {
		st.StartedAt, st.Node = j.Started.or(0)*second, nodeOf(j)
		st.EndedAt = max(st.EndedAt, st.StartedAt)
	}
	if f.record != nil && f.record.ended && f.record.job == j.ID.n {
		st.CpuMicroseconds, st.LogBytes = f.record.cpu, f.record.logSize
	}
	where := fmt.Sprintf("Slurm job %d", j.ID.n)
	if j.Nodes != "" {
		where += " on " + clip(string(j.Nodes), 100)
	}
	switch word := j.end(); word {
	case "COMPLETED":
		st.Reason, st.ExitCode = "completed", 0
	case "FAILED", "LAUNCH_FAILED", "RECONFIG_FAIL":
		failed(st, j, f.stopped, where)
	case "CANCELLED":
		st.Reason = "stopped"
		if !f.stopped { // whoever wanted it does not know that it is gone
			st.Reason, st.Message = "lost", where+" was canceled at the cluster, not by the platform"+because(j)
		}
	case "TIMEOUT", "DEADLINE":
		st.Reason, st.Message = "wall_time", where+" met Slurm's time limit"
	case "OUT_OF_MEMORY":
		st.Reason, st.Message = "oom", where+" used more memory than it asked for"
	case "PREEMPTED":
		st.Reason, st.Message = "lost", where+" was preempted by work that goes first"
	case "NODE_FAIL", "BOOT_FAIL":
		st.Reason, st.Message = "lost", where+": the node failed"+because(j)
	default: // REVOKED
		st.Reason, st.Message = "lost", where+" is "+word+because(j)
	}
}

// failed reads a status that the script has chosen, or the command.
func failed(st *adapterv1.Status, j *job, stopped bool, where string) {
	const outputFailed = 53 // slurmstepd's way to say that it could not open the output or the script
	switch sig := j.Exit.signal; {
	case !j.ran():
		st.Reason, st.Message = "never_started", where+" could not start"+because(j)
	case sig == signalNoStart:
		st.Reason, st.Message = "start_failed", where+": its folder, files, setup or shares of the accelerator pool could not be had; look at the log, and whether the user may write to the directory on that node"
	case stopped && (sig == signalStopped || sig == 15 || sig == 9):
		st.Reason = "stopped"
	case sig == signalStopped: // by Slurm, which ends nothing on behalf of the command
		st.Reason, st.Message = "lost", where+" was ended with SIGTERM at the cluster, not by the platform"
	case sig == signalLimit:
		st.Reason, st.Message = "wall_time", "it met the time limit of its job"
	case sig == outputFailed:
		st.Reason, st.Message = "start_failed", where+": Slurm could not start its script"
	case sig != 0:
		st.ExitCode = int32(128 + sig) // or it exited so: a shell cannot tell
		st.Reason, st.Message = "signal", fmt.Sprintf("%s was ended by signal %d", where, sig)
	case j.Exit.code != 0:
		st.Reason, st.ExitCode = "exit", int32(j.Exit.code)
	default:
		st.Reason, st.Message = "start_failed", where+" failed without having run"+because(j)
	}
}

// fromRecord is the end as the attempt's folder tells it, for when Slurm does
// not any more.
func fromRecord(st *adapterv1.Status, f facts) {
	r := f.record
	st.Phase, st.ExitCode, st.Message = adapterv1.Phase_PHASE_ENDED, -1, ""
	st.EndedAt, st.CpuMicroseconds, st.LogBytes = r.at*second, r.cpu, r.logSize
	switch {
	case r.why == "stopped" && f.stopped:
		st.Reason = "stopped"
	case r.why == "stopped":
		st.Reason, st.Message = "lost", "it was ended with SIGTERM at the cluster, not by the platform; Slurm does not know its job any more"
	case r.why == "limit":
		st.Reason, st.Message = "wall_time", "it met the time limit of its job"
	case r.why == "nostart":
		st.Reason, st.Message = "start_failed", "its files or setup could not be made; look at the log"
	case r.code == 0:
		st.Reason, st.ExitCode = "completed", 0
	case r.code > 128 && r.code <= 188:
		st.ExitCode = int32(r.code)
		st.Reason, st.Message = "signal", fmt.Sprintf("it was ended by signal %d", r.code-128)
	default:
		st.Reason, st.ExitCode = "exit", int32(r.code)
	}
}

// gone is an attempt whose job Slurm does not list any more: before is what was
// known last, nil if nothing.
func gone(f facts, before *adapterv1.Status) *adapterv1.Status {
	st := &adapterv1.Status{AttemptId: f.attempt, Phase: adapterv1.Phase_PHASE_ENDED, Reason: "lost", ExitCode: -1}
	if before != nil {
		st.StartedAt, st.Node = before.StartedAt, before.Node
	}
	switch r := f.record; {
	case r != nil && r.kept != nil:
		return r.kept
	case r != nil && r.ended:
		fromRecord(st, f)
		if st.StartedAt == 0 {
			st.StartedAt = r.from * second
		}
		st.EndedAt = max(st.EndedAt, st.StartedAt)
	case r != nil && r.readErr == nil && !r.started:
		st.Reason, st.StartedAt, st.Message = "never_started", 0, "Slurm does not know its job any more, and it has not run"
	case before == nil || before.Phase == adapterv1.Phase_PHASE_UNSPECIFIED:
		st.Message = "Slurm does not know this run any more"
	default:
		st.Message = "Slurm does not know its job any more; it was last " + strings.ToLower(strings.TrimPrefix(before.Phase.String(), "PHASE_"))
	}
	return st
}

// reasons says in plain words why jobs wait.
var reasons = map[string]string{
	"":                "the scheduler has not looked at it yet",
	"None":            "the scheduler has not looked at it yet",
	"Resources":       "what it needs is in use",
	"Priority":        "jobs of higher priority go first",
	"Dependency":      "it waits for another job",
	"BeginTime":       "its time to begin has not come",
	"ReqNodeNotAvail": "nodes it needs are down or reserved",
	"Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": "nodes it needs are down, drained or kept for others",
	"PartitionDown":          "its partition is down",
	"PartitionInactive":      "its partition is inactive",
	"PartitionConfig":        "its partition has no such nodes",
	"PartitionNodeLimit":     "it asks for more nodes than its partition gives",
	"PartitionTimeLimit":     "it asks for more time than its partition gives",
	"JobHeldUser":            "somebody holds it",
	"JobHeldAdmin":           "an administrator holds it",
	"BadConstraints":         "no node can ever run it",
	"Licenses":               "a license is in use",
	"QOSMaxJobsPerUserLimit": "the user has as many jobs running as the quality of service allows",
	"AssocMaxJobsLimit":      "the account has as many jobs running as it may",
	"AssocGrpCpuLimit":       "the account uses as many CPUs as it may",
	"Cleaning":               "Slurm still cleans up after its previous run",
}

// waits says why a job waits.
func waits(j *job) string {
	reason := clip(string(j.Reason), 100)
	plain := reasons[string(j.Reason)]
	switch {
	case j.State.has("CONFIGURING"):
		plain = "its nodes are being set up"
	case plain == "" && (strings.HasPrefix(reason, "QOS") || strings.HasPrefix(reason, "Assoc")):
		plain = "a limit of the quality of service or the account is met"
	}
	m := fmt.Sprintf("Slurm job %d waits", j.ID.n)
	if plain != "" {
		m += ": " + plain
	}
	if reason != "" && reason != "None" {
		m += " (" + reason + ")"
	}
	if n := j.Restarts.or(0); n > 0 {
		m += fmt.Sprintf("; Slurm has put it back %d times", n)
	}
	return m + details(j)
}

func details(j *job) string {
	if j.Description == "" {
		return ""
	}
	return "; " + clip(string(j.Description), 200)
}

// because is what Slurm says of an end beside its state.
func because(j *job) string {
	if j.Reason == "" || j.Reason == "None" {
		return details(j)
	}
	return fmt.Sprintf(" (%s)", clip(string(j.Reason), 100)) + details(j)
}
