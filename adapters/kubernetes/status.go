package kubernetes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// jobView is what the driver keeps of a Job.
type jobView struct {
	name, uid  string
	attempt    string
	suspended  bool // and so without pods
	sealed     bool // by the driver: it makes no pod any more
	idle       bool // its controller has seen that and removed its pods
	stop       *order
	ended      *record
	files, log string // see noteFiles, noteLog
	timeout    int64  // seconds; 0: none
	still      bool   // it is to stand still
	stood      stood
	deleting   bool

	created  time.Time
	finished *finish
}

// finish is how the Job's controller says it ended.
type finish struct {
	complete       bool
	reason, reply  string
	started, ended time.Time
}

func viewJob(j *batchv1.Job) *jobView {
	v := &jobView{
		name: j.Name, uid: string(j.UID), attempt: j.Annotations[noteAttempt], files: j.Annotations[noteFiles], log: j.Annotations[noteLog],
		suspended: j.Spec.Suspend != nil && *j.Spec.Suspend, deleting: j.DeletionTimestamp != nil, created: j.CreationTimestamp.Time,
	}
	if n, err := strconv.ParseInt(j.Annotations[noteTimeout], 10, 64); err == nil && n > 0 && n < maxDeadline {
		v.timeout = n
	}
	v.still = j.Annotations[noteSuspend] == "true"
	if text := j.Annotations[noteStood]; text != "" {
		if json.Unmarshal([]byte(text), &v.stood) != nil || v.stood.Since < 0 || v.stood.Total < 0 {
			v.stood = stood{} // damaged by somebody
		}
	}
	v.sealed = v.suspended && j.Spec.Parallelism != nil && *j.Spec.Parallelism == 0
	if text := j.Annotations[noteStop]; text != "" {
		v.stop = &order{}
		if json.Unmarshal([]byte(text), v.stop) != nil || v.stop.Reason == "" {
			v.stop = &order{Reason: "stopped"} // damaged by somebody; that it is there is what counts
		}
	}
	if text := j.Annotations[noteEnded]; text != "" {
		v.ended = &record{}
		if json.Unmarshal([]byte(text), v.ended) != nil || v.ended.Reason == "" {
			v.ended = nil
		}
	}
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobSuspended:
			v.idle = v.suspended && j.Status.Active == 0 && (j.Status.Terminating == nil || *j.Status.Terminating == 0)
		case batchv1.JobComplete, batchv1.JobFailed:
			v.finished = &finish{complete: c.Type == batchv1.JobComplete, reason: c.Reason, reply: c.Message, ended: c.LastTransitionTime.Time}
			if j.Status.StartTime != nil {
				v.finished.started = j.Status.StartTime.Time
			}
			if j.Status.CompletionTime != nil {
				v.finished.ended = j.Status.CompletionTime.Time
			}
		}
	}
	return v
}

// podView is what the driver keeps of a pod of its own.
type podView struct {
	name, uid, node string
	attempt, owner  string // owner: UID of its Job
	phase           corev1.PodPhase
	reason, message string
	deleting        bool
	deadline        int64 // seconds from accepted on; 0: none
	grace           int64 // seconds between SIGTERM and SIGKILL

	state       corev1.ContainerState
	unscheduled string // the scheduler's words
	disrupted   string // why it was ended from outside
	gone        bool   // deleted: what else is here was last seen
	changed     time.Time
	started     time.Time // of its container, also if that was forgotten
}

func viewPod(p *corev1.Pod) *podView {
	v := &podView{
		name: p.Name, uid: string(p.UID), node: p.Spec.NodeName, attempt: p.Annotations[noteAttempt],
		phase: p.Status.Phase, reason: p.Status.Reason, message: p.Status.Message, deleting: p.DeletionTimestamp != nil,
	}
	if p.Spec.ActiveDeadlineSeconds != nil {
		v.deadline = *p.Spec.ActiveDeadlineSeconds
	}
	if p.Spec.TerminationGracePeriodSeconds != nil {
		v.grace = *p.Spec.TerminationGracePeriodSeconds
	}
	for _, o := range p.OwnerReferences {
		if o.Kind == "Job" {
			v.owner = string(o.UID)
		}
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == container {
			v.state = s.State
		}
	}
	for _, s := range p.Status.InitContainerStatuses { // the command waits for it
		switch w, t := s.State.Waiting, s.LastTerminationState.Terminated; {
		case s.Name != poolName || w == nil || v.state.Running != nil || v.state.Terminated != nil:
		case t != nil && t.Message != "":
			v.state.Waiting = &corev1.ContainerStateWaiting{Reason: "its shares of the accelerator pool", Message: strings.TrimSpace(t.Message)}
		default:
			v.state.Waiting = w
		}
	}
	switch {
	case v.state.Running != nil:
		v.started = v.state.Running.StartedAt.Time
	case v.state.Terminated != nil:
		v.started = v.state.Terminated.StartedAt.Time
	}
	v.changed = p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		if c.LastTransitionTime.After(v.changed) {
			v.changed = c.LastTransitionTime.Time
		}
		switch {
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse:
			v.unscheduled = strings.TrimSpace(c.Reason + ": " + c.Message)
		case c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue:
			v.disrupted = strings.TrimSpace(c.Reason + ": " + c.Message)
		}
	}
	return v
}

// over reports whether the pod's command runs no more and never will.
func (p *podView) over() bool {
	if p.state.Running != nil {
		return false
	}
	return p.state.Terminated != nil || p.phase == corev1.PodSucceeded || p.phase == corev1.PodFailed
}

// verdict is what is known of an attempt, and what the driver has to do.
type verdict struct {
	status *adapterv1.Status
	// record is set when the attempt has ended and its Job does not say so yet.
	record *record
	// check: the cluster is to be asked whether there really is no pod, or no
	// Job.
	check bool
	// seal: its Job must not make a pod any more.
	seal bool
	// deadline is the one the running pod is to have instead of a later one;
	// 0: it is right.
	deadline int64
	// stuck: it cannot start for the reason in status.message, which may pass;
	// hopeless: and it will not.
	stuck, hopeless bool
	// The running pod is to stand still (freeze), or not any more (thaw).
	freeze, thaw bool
	// timed: it runs and has a time limit.
	timed bool
}

// view is all there is to know of an attempt.
type view struct {
	job      *jobView
	pod      *podView // the newest; nil if none was seen
	noPod    bool     // the cluster has said that there is none
	noJob    bool     // likewise
	hint     string   // what the Job's controller complains of
	lostWhen string   // the Job is gone: what that means
	resists  string   // why it could not be suspended or resumed
}

// decide says how an attempt stands. It is a pure function.
func decide(id string, v view) verdict {
	if v.job != nil && v.job.ended != nil {
		// A pod that is there is left to the Job's controller: it may still
		// count as active, and suspending would delete it with its log.
		podless := v.pod == nil || v.pod.gone
		return verdict{status: v.job.ended.status(id), seal: podless && !v.job.sealed && v.job.finished == nil}
	}
	if v.job == nil && !v.noJob {
		// Jobs and pods are watched separately: the Job may be on its way.
		return verdict{status: &adapterv1.Status{AttemptId: id, Phase: adapterv1.Phase_PHASE_PENDING}, check: true}
	}
	stop := (*order)(nil)
	if v.job != nil {
		stop = v.job.stop
	}
	if p := v.pod; p != nil {
		switch {
		case p.over():
			return ended(id, endOf(p, stop))
		case p.gone:
			out := ended(id, goneWithout(p, stop, v))
			out.seal = v.job != nil && v.job.finished == nil && !v.job.sealed
			return out
		case v.job == nil:
			return ended(id, record{Reason: "lost", Message: v.lostWhen, ExitCode: -1, Node: p.node, StartedAt: began(p)})
		}
		return living(id, p, stop, v)
	}
	if v.job == nil {
		return ended(id, record{Reason: "lost", Message: v.lostWhen, ExitCode: -1})
	}
	return podless(id, v, stop)
}

// ended is the verdict of a run that is over. Nodes tell whole seconds, and
// their clocks are set now and then: no run ends before it started.
func ended(id string, r record) verdict {
	if r.EndedAt > 0 {
		r.EndedAt = max(r.EndedAt, r.StartedAt)
	}
	return verdict{status: r.status(id), record: &r}
}

// living is an attempt with a pod that is there and not over.
func living(id string, p *podView, stop *order, v view) verdict {
	j, st := v.job, &adapterv1.Status{AttemptId: id, Phase: adapterv1.Phase_PHASE_PENDING, Node: p.node}
	out := verdict{status: st}
	if p.state.Running != nil {
		st.Phase, st.StartedAt = adapterv1.Phase_PHASE_RUNNING, began(p)
		frozen := j.stood.Since > 0
		switch {
		case stop != nil: // it has to go on to hear of that
			st.Message, out.deadline, out.thaw = "it is being stopped", lower(p, 1), frozen && !p.deleting
			return out
		case p.deleting:
			st.Message = cmp.Or(p.disrupted, "its pod is being deleted")
		default:
			if out.freeze, out.thaw = j.still && !frozen, !j.still && frozen; out.freeze || out.thaw {
				st.Message = v.resists
			}
		}
		if frozen {
			st.Phase = adapterv1.Phase_PHASE_SUSPENDED
		} else {
			out.timed = j.timeout > 0
		}
		return out
	}
	st.Message = waiting(p)
	if stop != nil {
		st.Message = "it is being stopped before it has started"
		out.seal = !j.sealed
		return out
	}
	if w := p.state.Waiting; w != nil && cannotStart[w.Reason] {
		out.stuck, out.hopeless = true, w.Reason == "InvalidImageName" || w.Reason == "ErrImageNeverPull"
	}
	return out
}

// lower returns the deadline if the pod has a later one or none, 0 otherwise.
func lower(p *podView, to int64) int64 {
	if p.deleting || p.deadline != 0 && p.deadline <= to {
		return 0
	}
	return to
}

// podless is an attempt whose Job is there and has no pod that was seen.
func podless(id string, v view, stop *order) verdict {
	j, st := v.job, &adapterv1.Status{AttemptId: id, Phase: adapterv1.Phase_PHASE_PENDING}
	switch {
	case (j.finished != nil || stop != nil && j.idle) && !v.noPod:
		// The pod's end may be on its way: the two are watched separately.
		return verdict{status: st, check: true}
	case j.finished != nil && j.finished.complete:
		return ended(id, record{Reason: "completed", Message: "its pod is gone: times are those of its Job", StartedAt: micros(j.finished.started), EndedAt: micros(j.finished.ended)})
	case stop != nil && (j.finished != nil || j.idle):
		at := j.created
		if j.finished != nil {
			at = j.finished.ended
		}
		return ended(id, record{Reason: stop.Reason, Message: cmp.Or(stop.Message, "it was stopped before it started"), ExitCode: -1, EndedAt: micros(at)})
	case j.finished != nil:
		return ended(id, record{Reason: "lost", ExitCode: -1, StartedAt: 0, EndedAt: micros(j.finished.ended),
			Message: fmt.Sprintf("its pod is gone and took its exit status with it; its Job says: %s: %s", j.finished.reason, j.finished.reply)})
	case stop != nil:
		st.Message = "it is being stopped before it has started"
		return verdict{status: st, seal: !j.sealed}
	case j.suspended:
		st.Message = "its Job was suspended by somebody else than Yunhe: it starts when that is undone"
	default:
		st.Message = cmp.Or(v.hint, "Kubernetes has not made its pod yet")
	}
	return verdict{status: st}
}

// goneWithout is the end of a pod that was deleted before its end was seen.
func goneWithout(p *podView, stop *order, v view) record {
	r := record{ExitCode: -1, Node: p.node, StartedAt: began(p)}
	if stop != nil {
		r.Reason, r.Message = stop.Reason, stop.Message
		return r
	}
	r.Reason = "lost"
	switch {
	case p.disrupted != "":
		r.Message = "its pod was ended from outside: " + p.disrupted
	case v.job == nil:
		r.Message = v.lostWhen
	default:
		r.Message = fmt.Sprintf("its pod %s was deleted by somebody else than Yunhe", p.name)
	}
	return r
}

// cannotStart are the kubelet's reasons that keep a container from starting
// and do not pass by waiting for a turn.
var cannotStart = map[string]bool{
	"ImagePullBackOff": true, "ErrImagePull": true, "ErrImageNeverPull": true, "InvalidImageName": true, "ImageInspectError": true, "RegistryUnavailable": true, "SignatureValidationFailed": true,
	"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true, "CreatePodSandboxError": true, "PreCreateHookError": true, "PostStartHookError": true,
}

// waiting says what a pod waits for.
func waiting(p *podView) string {
	if w := p.state.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
		return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
	}
	switch {
	case p.node != "":
		return fmt.Sprintf("node %s prepares it", p.node)
	case p.unscheduled != "":
		return p.unscheduled
	default:
		return "waits for the scheduler"
	}
}

// endOf says how a pod that is over ended.
func endOf(p *podView, stop *order) record {
	t := p.state.Terminated
	if t == nil { // it never had a container, or its node knows nothing of it
		return withoutContainer(p, stop)
	}
	r := record{ExitCode: t.ExitCode, Node: p.node, StartedAt: began(p), EndedAt: micros(t.FinishedAt.Time), Message: strings.TrimSpace(t.Message)}
	switch {
	case t.Reason == "ContainerStatusUnknown" && stop != nil: // it may never have been
		r.Reason, r.ExitCode, r.Message = stop.Reason, -1, stop.Message
	case t.Reason == "ContainerStatusUnknown":
		r.Reason, r.ExitCode = "lost", -1
		r.Message = cmp.Or(p.disrupted, r.Message, "its node does not know any more how it ended")
	case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		r.Reason, r.StartedAt = "start_failed", 0
	case strings.HasPrefix(t.Message, overdue):
		r.Reason, r.Message = "wall_time", atLimit
	case t.Reason == "OOMKilled":
		r.Reason, r.Message = "oom", cmp.Or(r.Message, "it met its memory limit and the kernel killed one of its processes")
	case p.reason == "DeadlineExceeded" && stop != nil, p.deleting && stop != nil && p.phase != corev1.PodSucceeded:
		r.Reason, r.Message = stop.Reason, cmp.Or(stop.Message, r.Message)
	case p.reason == "DeadlineExceeded":
		r.Reason, r.Message = "wall_time", cmp.Or(r.Message, atLimit)
	case p.reason == "Evicted" && strings.Contains(p.message, "exceeds the limit"), p.reason == "Evicted" && strings.Contains(p.message, "exceeds the total limit"):
		r.Reason, r.Message = "signal", p.message // its own doing: trying again elsewhere would not help
	case p.reason == "Evicted" || p.reason == "NodeLost" || p.reason == "NodeShutdown" || p.reason == "Terminated" || p.reason == "Shutdown" || p.reason == "Preempting":
		r.Reason, r.Message = "lost", strings.TrimSpace(p.reason+": "+p.message)
	case t.ExitCode == 0:
		r.Reason = "completed"
	case p.disrupted != "":
		r.Reason, r.Message = "lost", "its pod was ended from outside: "+p.disrupted
	case p.deleting && p.phase != corev1.PodFailed:
		r.Reason, r.Message = "lost", fmt.Sprintf("its pod %s was deleted by somebody else than Yunhe", p.name)
	case t.Signal != 0 || t.ExitCode > 128 && t.ExitCode <= 128+64:
		// A runtime says 128 and the signal for a command that was killed.
		n := t.Signal
		if n == 0 {
			n = t.ExitCode - 128
		}
		r.Reason, r.Message = "signal", cmp.Or(r.Message, "ended by signal "+syscall.Signal(n).String())
	default:
		r.Reason = "exit"
	}
	return r
}

// withoutContainer is the end of a pod whose container never was.
func withoutContainer(p *podView, stop *order) record {
	r := record{ExitCode: -1, Node: p.node, EndedAt: micros(p.changed), Message: strings.Trim(p.reason+": "+p.message, ": ")}
	switch {
	case p.phase == corev1.PodSucceeded:
		r.Reason, r.ExitCode = "completed", 0
	case stop != nil:
		r.Reason, r.Message = stop.Reason, cmp.Or(stop.Message, r.Message)
	case p.reason == "DeadlineExceeded":
		r.Reason, r.Message = "wall_time", cmp.Or(r.Message, "it had not started at its time limit")
	case p.disrupted != "":
		r.Reason, r.Message = "lost", p.disrupted
	case p.reason == "NodeLost" || p.reason == "Evicted" || p.reason == "NodeShutdown" || p.reason == "Terminated":
		r.Reason = "lost"
	default:
		r.Reason, r.Message = "start_failed", cmp.Or(r.Message, "its node did not take it and does not say why")
	}
	return r
}

// began is when a pod's command began, 0 if it did not.
func began(p *podView) int64 { return micros(p.started) }

// micros returns t as the contract has times; 0 for none, and for the year 1
// and 1970 that stand for none in a cluster.
func micros(t time.Time) int64 {
	if t.IsZero() || t.Unix() <= 0 {
		return 0
	}
	return t.UnixMicro()
}

// newest returns the pod that says most about an attempt: one that runs before
// one that is over, then the name, so that it is always the same.
func newest(pods []*podView) *podView {
	if len(pods) == 0 {
		return nil
	}
	rank := func(p *podView) int {
		switch {
		case p.gone && !p.over():
			return 0
		case p.over():
			return 1
		default:
			return 2
		}
	}
	return slices.MaxFunc(pods, func(a, b *podView) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.name, b.name))
	})
}
