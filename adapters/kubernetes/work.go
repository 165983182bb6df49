package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// work brings queued attempts forward, one after the other, until ctx ends.
func (d *Driver) work(ctx context.Context) {
	for {
		id, shutdown := d.queue.Get()
		if shutdown {
			return
		}
		if name, ok := strings.CutPrefix(id, keyNode); ok {
			if err := d.repairNode(ctx, name); err != nil && ctx.Err() == nil {
				d.log.Warn("node is not as asked", "node", name, "error", err)
				d.queue.AddRateLimited(id)
			}
			d.queue.Done(id) // without Forget: one that is changed all the time is put right ever less often
			continue
		}
		again, err := d.advance(ctx, id)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.log.Debug("attempt not brought forward", "attempt_id", id, "error", err)
			d.queue.AddRateLimited(id)
		default:
			d.queue.Forget(id)
			if again > 0 {
				d.queue.AddAfter(id, again)
			}
		}
		d.queue.Done(id)
	}
}

// obeyed is how long after its grace a pod may run on before it is deleted.
const obeyed = 30 * time.Second

// advance does what decide wants for an attempt, and says after what time to
// look again; 0: when something changes.
func (d *Driver) advance(ctx context.Context, id string) (again time.Duration, err error) {
	d.mu.Lock()
	a, c := d.attempts[id], d.clients
	if a == nil {
		d.mu.Unlock()
		return 0, nil
	}
	v := a.now()
	out := decide(id, v)
	switch {
	case out.stuck && a.stuck.IsZero():
		a.stuck = time.Now()
	case v.job != nil && v.job.stop != nil && a.ordered.IsZero():
		a.ordered = time.Now()
	}
	stuck, ordered, over, kept := a.stuck, a.ordered, a.over, a.kept()
	d.mu.Unlock()

	outer := ctx // for what takes longer than a request
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	switch {
	case out.check && v.job == nil:
		return 0, d.checkJob(ctx, c, id)
	case out.check:
		return 0, d.checkPods(ctx, c, id, v.job)
	case out.seal:
		if err := d.seal(ctx, c, v.job.name); err != nil {
			return 0, err
		}
	case out.freeze:
		return 0, d.settle(outer, c, id, v, true)
	case out.thaw && v.job.stop == nil:
		return 0, d.settle(outer, c, id, v, false)
	case out.deadline > 0:
		if out.thaw {
			if err := d.settle(outer, c, id, v, false); err != nil { // SIGKILL follows the grace
				d.log.Warn("suspended attempt is stopped without being resumed", "attempt_id", id, "error", err)
			}
		}
		if err := d.shorten(outer, c, v.pod, out.deadline); err != nil {
			return 0, err
		}
	}
	switch {
	case out.status.Phase == adapterv1.Phase_PHASE_ENDED:
		if over && kept {
			return 0, nil
		}
		return 0, d.finish(outer, c, id, v, out)
	case out.stuck:
		limit := time.Duration(d.cfg.StartPatience) * time.Second
		if left := limit - time.Since(stuck); left > 0 && !out.hopeless {
			return left, nil
		}
		return 0, d.order(ctx, c, v.job.name, order{Reason: "start_failed", Message: out.status.Message})
	case out.timed:
		if rest := left(v, c.now()); rest > 0 {
			return rest, nil
		}
		return 0, d.order(ctx, c, v.job.name, order{Reason: "wall_time", Message: atLimit})
	case v.job.stop != nil && v.pod != nil:
		// The pod's deadline is over; what if its kubelet does not see to it?
		limit := time.Duration(v.pod.grace)*time.Second + obeyed
		if left := limit - time.Since(ordered); left > 0 {
			return left, nil
		}
		if !v.job.sealed {
			return 0, d.seal(ctx, c, v.job.name)
		}
	}
	return 0, nil
}

// patch changes a Job: its annotations, and its spec unless that is nil.
func (d *Driver) patch(ctx context.Context, c *clients, name string, notes, spec map[string]any) error {
	body := map[string]any{}
	if notes != nil {
		body["metadata"] = map[string]any{"annotations": notes}
	}
	if spec != nil {
		body["spec"] = spec
	}
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("patch of Job %s: %w", name, err)
	}
	_, err = c.work.BatchV1().Jobs(d.cfg.Namespace).Patch(ctx, name, types.MergePatchType, b, metav1.PatchOptions{})
	return err
}

// seal keeps a Job from making a pod, now and if somebody resumes it.
func (d *Driver) seal(ctx context.Context, c *clients, name string) error {
	err := d.patch(ctx, c, name, nil, map[string]any{"suspend": true, "parallelism": 0})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil // deleted, which is told elsewhere; or it has ended
	}
	return err
}

// order notes at a Job that it is to end.
func (d *Driver) order(ctx context.Context, c *clients, name string, o order) error {
	return d.patch(ctx, c, name, map[string]any{noteStop: note(o)}, nil)
}

// shorten gives a pod an earlier deadline, at which its kubelet ends it.
func (d *Driver) shorten(ctx context.Context, c *clients, p *podView, deadline int64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := c.work.CoreV1().Pods(d.cfg.Namespace).Patch(ctx, p.name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"activeDeadlineSeconds":%d}}`, deadline), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil // gone, which is told elsewhere
	}
	return err
}

// checkJob asks the cluster for an attempt's Job when only its pod was heard
// of.
func (d *Driver) checkJob(ctx context.Context, c *clients, id string) error {
	j, err := c.work.BatchV1().Jobs(d.cfg.Namespace).Get(ctx, objectName(d.center, id), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.attempts[id]
	switch {
	case a == nil || a.job != nil:
	case err != nil:
		a.view.noJob = true
		d.look(a)
	case j.Annotations[noteAttempt] == id:
		a.job = viewJob(j)
		d.names[j.Name] = id
		d.look(a)
	}
	return nil
}

// checkPods asks the cluster for an attempt's pods: what a watch tells may be
// on its way.
func (d *Driver) checkPods(ctx context.Context, c *clients, id string, j *jobView) error {
	list, err := c.work.CoreV1().Pods(d.cfg.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labelAttempt + "=" + labelValue(id)})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.attempts[id]
	if a == nil || a.job == nil || a.job.uid != j.uid {
		return nil
	}
	a.view.noPod = true
	for i := range list.Items {
		p := &list.Items[i]
		if v := viewPod(p); v.owner == j.uid {
			a.pods[v.uid], a.view.noPod = v, false
		}
	}
	d.look(a)
	return nil
}

const (
	sumTimeout = 30 * time.Second // for reading the whole log of an ended attempt
	maxCut     = 6                // how often that may break off
)

// finish notes at the cluster how an attempt ended, then tells it.
func (d *Driver) finish(ctx context.Context, c *clients, id string, v view, out verdict) error {
	st := out.status
	if out.record != nil {
		r := *out.record
		if out.status.StartedAt > 0 {
			d.mu.Lock()
			if a := d.attempts[id]; a != nil {
				r.CPU, r.Memory = a.use.cpu, a.use.peak
			}
			d.mu.Unlock()
		}
		if r.EndedAt == 0 { // nobody in the cluster knows; it has just come out
			r.EndedAt = max(time.Now().UnixMicro(), r.StartedAt)
		}
		st = r.status(id)
		kctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		if err := d.keep(kctx, c, id, v, r); err != nil {
			return err
		}
	}
	var cut error
	if v.pod != nil && !v.pod.gone && st.StartedAt > 0 {
		sctx, cancel := context.WithTimeout(ctx, sumTimeout)
		defer cancel()
		cut = d.sum(sctx, id, st)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.attempts[id]
	if a == nil {
		return nil // forgotten meanwhile
	}
	if a.cut++; cut != nil && a.cut < maxCut {
		return cut
	}
	if a.job == nil {
		a.buried = true
	} else {
		a.noted = true
	}
	d.tell(a, st)
	return nil
}

// keep makes the cluster remember how an attempt ended: at its Job or, if that
// is gone, with a tombstone. It fails only for what passes.
func (d *Driver) keep(ctx context.Context, c *clients, id string, v view, r record) error {
	var err error
	if v.job != nil && !v.job.deleting {
		err = d.patch(ctx, c, v.job.name, map[string]any{noteEnded: note(r)}, nil)
		if apierrors.IsNotFound(err) {
			v.job = nil
		}
	}
	if v.job == nil {
		d.mu.Lock()
		told := d.attempts[id]
		if told != nil && told.over && told.told != nil { // its Job was deleted after its end was told
			r = record{Reason: told.told.Reason, Message: told.told.Message, ExitCode: told.told.ExitCode, StartedAt: told.told.StartedAt, EndedAt: told.told.EndedAt,
				Node: told.told.Node, CPU: told.told.CpuMicroseconds, Memory: told.told.MemoryPeakBytes}
		}
		d.mu.Unlock()
		if told == nil {
			return nil // forgotten meanwhile
		}
		if v.pod != nil && !v.pod.gone && !v.pod.over() && !v.pod.deleting {
			err = c.work.CoreV1().Pods(d.cfg.Namespace).Delete(ctx, v.pod.name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(v.pod.uid)})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
		_, err = c.work.BatchV1().Jobs(d.cfg.Namespace).Create(ctx, d.maker.tombstone(id, r), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = d.patch(ctx, c, objectName(d.center, id), map[string]any{noteEnded: note(r)}, nil)
		}
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code < 500 && !apierrors.IsTooManyRequests(err) && !apierrors.IsUnauthorized(err) {
		d.log.Warn("end of attempt not noted at the cluster", "attempt_id", id, "error", err)
		return nil // it is told all the same
	}
	return err
}
