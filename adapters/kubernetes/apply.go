package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// refused is an error that says why an attempt can never run here.
type refused string

// Error implements error.
func (r refused) Error() string { return string(r) }

// connected returns the present clients.
func (d *Driver) connected() *clients {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clients
}

// Apply makes the attempts exist in the cluster: it answers when the API
// server has stored them. What failed is tried again with the next Apply;
// what the cluster has already stays as it is.
func (d *Driver) Apply(ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	return d.applyAll(ctx, d.connected(), r, false)
}

func (d *Driver) applyAll(ctx context.Context, c *clients, r *adapterv1.ApplyRequest, again bool) (*adapterv1.ApplyResponse, error) {
	d.mu.Lock()
	best := d.res.best()
	d.mu.Unlock()
	m := d.maker
	m.has = func(extended string) int64 { return best[extended] }
	var mu sync.Mutex // guards res
	res := &adapterv1.ApplyResponse{}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(int(d.cfg.ConcurrentRequests))
	for _, a := range r.Attempts {
		group.Go(func() error {
			err := d.apply(gctx, c, &m, a)
			var no refused
			if errors.As(err, &no) {
				var later forNow
				mu.Lock()
				defer mu.Unlock()
				res.Refusals = append(res.Refusals, &adapterv1.Refusal{AttemptId: a.AttemptId, Reason: string(no), Later: errors.As(err, &later)})
				return nil
			}
			return err
		})
	}
	err := group.Wait()
	if apierrors.IsNotFound(err) && !again {
		// The namespace is not there yet, or was deleted.
		if d.ensureNamespace(ctx, c) == nil {
			return d.applyAll(ctx, c, r, true)
		}
	}
	if err != nil {
		return nil, d.failed(err, c)
	}
	return res, nil
}

// failed turns a request's failure into what a caller of the driver reads.
func (d *Driver) failed(err error, c *clients) error {
	if ce := new(connect.Error); errors.As(err, &ce) {
		return err
	}
	if exceeded(err) {
		return connect.NewError(connect.CodeResourceExhausted, errors.New(serverWords(err)))
	}
	return connect.NewError(code(err), errors.New(explain(err, c.server, time.Duration(c.skew.Load()))))
}

// apply makes one attempt exist.
func (d *Driver) apply(ctx context.Context, c *clients, m *maker, a *adapterv1.Attempt) error {
	d.mu.Lock()
	known := d.attempts[a.AttemptId]
	orphan := known != nil && known.job == nil && d.synced[partJobs] && d.synced[partPods] // pods without a Job
	done := known != nil && known.job != nil && known.job.files == ""
	var job, uid string
	if done && !known.over {
		job, uid = known.job.name, known.job.uid
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if done {
		if job == "" {
			return nil
		}
		return d.putPasses(ctx, c, job, types.UID(uid), a)
	}
	if a.Seen || orphan {
		return d.bury(ctx, c, a.AttemptId, record{Reason: "lost", ExitCode: -1, EndedAt: time.Now().UnixMicro(),
			Message: "it has run here and the cluster does not know it any more: its Job was deleted by somebody else than Yunhe"})
	}
	if a.Node != "" {
		if err := d.wait(ctx, d.whole); err != nil {
			return err
		}
		d.mu.Lock()
		_, there := d.res.nodes[a.Node]
		d.mu.Unlock()
		if !there {
			no := refused(fmt.Sprintf("center %s has no node %.300q", d.center, a.Node))
			if a.Pool.GetLocal() { // the platform chose it
				return forNow{no}
			}
			return no
		}
	}
	if err := d.sharesRefused(c, a); err != nil {
		return err
	}
	made, files, refusal := m.attempt(a)
	if refusal != "" {
		return refused(refusal)
	}
	release, err := d.checkVolumes(ctx, c, a)
	if err != nil {
		return err
	}
	defer release()
	if files != nil {
		// Before the Job, so that its pod never waits for them; they get the
		// Job as their owner after it. If that is cut short Apply comes again,
		// or repair removes them.
		_, err := c.work.CoreV1().ConfigMaps(d.cfg.Namespace).Create(ctx, files, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return refusedIfFinal(err)
		}
	}
	made, err = c.work.BatchV1().Jobs(d.cfg.Namespace).Create(ctx, made, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = d.same(ctx, c, a.AttemptId)
	}
	if err != nil {
		return refusedIfFinal(err)
	}
	if err := d.putPasses(ctx, c, made.Name, made.UID, a); err != nil {
		return refusedIfFinal(err)
	}
	if files != nil {
		err = d.own(ctx, c, made)
		if apierrors.IsNotFound(err) {
			return nil // the attempt has been forgotten meanwhile
		}
	}
	return err
}

// forNow is a refusal of what the cluster may take another time.
type forNow struct{ refused }

func (f forNow) Unwrap() error { return f.refused }

func refusedIfFinal(err error) error {
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota") { // its reason is no other than that of a missing right
		return forNow{refused("the cluster refuses it for now: " + serverWords(err))}
	}
	if final(err) {
		return refused("the cluster refuses it: " + serverWords(err))
	}
	return err
}

// same returns the Job that has an attempt's name, if it is that attempt's.
func (d *Driver) same(ctx context.Context, c *clients, attempt string) (*batchv1.Job, error) {
	name := objectName(d.center, attempt)
	j, err := c.work.BatchV1().Jobs(d.cfg.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if j.Annotations[noteAttempt] != attempt {
		return nil, refused(fmt.Sprintf("the Job %s in namespace %s is somebody else's: delete it", name, d.cfg.Namespace))
	}
	return j, nil
}

// own makes a Job the owner of its files: they go when it goes.
func (d *Driver) own(ctx context.Context, c *clients, j *batchv1.Job) error {
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}}})
	if err != nil {
		return fmt.Errorf("owner of the files of %s: %w", j.Name, err)
	}
	_, err = c.work.CoreV1().ConfigMaps(d.cfg.Namespace).Patch(ctx, j.Name, types.MergePatchType, b, metav1.PatchOptions{})
	return err
}

// bury makes a tombstone, unless the attempt's name is taken: then that Job
// says how it stands.
func (d *Driver) bury(ctx context.Context, c *clients, attempt string, r record) error {
	_, err := c.work.BatchV1().Jobs(d.cfg.Namespace).Create(ctx, d.maker.tombstone(attempt, r), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = d.same(ctx, c, attempt)
	}
	return refusedIfFinal(err)
}

// Remove stops attempts and forgets ended ones. An attempt that runs is not
// forgotten: it has to end first.
func (d *Driver) Remove(ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
	c := d.connected()
	if len(r.Forget) > 0 { // whether they have ended must be known
		if err := d.wait(ctx, d.known); err != nil {
			return nil, err
		}
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(int(d.cfg.ConcurrentRequests))
	for _, id := range r.Stop {
		group.Go(func() error { return d.stopOne(gctx, c, id) })
	}
	for _, id := range r.Forget {
		group.Go(func() error { return d.forget(gctx, c, id) })
	}
	if err := group.Wait(); err != nil {
		return nil, d.failed(err, c)
	}
	return &adapterv1.RemoveResponse{}, nil
}

// stopOne notes that an attempt is to end; the rest follows from that.
func (d *Driver) stopOne(ctx context.Context, c *clients, id string) error {
	d.mu.Lock()
	a := d.attempts[id]
	settled := a != nil && (a.over || a.job != nil && a.job.stop != nil)
	d.mu.Unlock()
	if settled || id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name, o := objectName(d.center, id), order{Reason: "stopped"}
	// One of the two works, unless the Job comes or goes between them.
	for range 3 {
		err := d.order(ctx, c, name, o)
		if !apierrors.IsNotFound(err) {
			return err
		}
		_, err = c.work.BatchV1().Jobs(d.cfg.Namespace).Create(ctx, d.maker.tombstone(id, record{Reason: "never_started", ExitCode: -1,
			EndedAt: time.Now().UnixMicro(), Message: "it was stopped before it came here"}), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return fmt.Errorf("job %s comes and goes: try again", name)
}

// forget removes every trace of an ended attempt.
func (d *Driver) forget(ctx context.Context, c *clients, id string) error {
	d.mu.Lock()
	a := d.attempts[id]
	if a != nil && !a.over {
		st := decide(id, a.now()).status
		if st.Phase != adapterv1.Phase_PHASE_ENDED {
			d.mu.Unlock()
			return nil
		}
	}
	pods := []string{}
	options := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	if a != nil {
		if a.job != nil {
			uid := types.UID(a.job.uid)
			options.Preconditions = &metav1.Preconditions{UID: &uid}
			d.forgotten[a.job.uid] = time.Now()
		}
		for _, p := range a.pods {
			if !p.gone && p.owner != "" && a.job == nil {
				pods = append(pods, p.name) // nobody else would collect it
				d.forgotten[p.owner] = time.Now()
			}
		}
		d.drop(a)
	}
	d.mu.Unlock()
	d.logs.drop(id)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for _, p := range pods {
		if err := c.work.CoreV1().Pods(d.cfg.Namespace).Delete(ctx, p, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	name := objectName(d.center, id)
	if a == nil { // perhaps it has come a moment ago
		j, err := d.same(ctx, c, id)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if decide(id, view{job: viewJob(j)}).status.Phase != adapterv1.Phase_PHASE_ENDED {
			return nil
		}
	}
	err := c.work.BatchV1().Jobs(d.cfg.Namespace).Delete(ctx, name, options)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// repair removes what a crash left: files whose Job never came. A Job's
// owner gets noted where that was cut short.
func (d *Driver) repair(ctx context.Context, c *clients) error {
	d.mu.Lock()
	for uid, at := range d.forgotten {
		if time.Since(at) > repairEvery {
			delete(d.forgotten, uid)
		}
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 4*requestTimeout)
	defer cancel()
	maps := c.watch.CoreV1().ConfigMaps(d.cfg.Namespace)
	list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: labelCenter + "=" + labelValue(d.center), ResourceVersion: "0"})
	if apierrors.IsForbidden(err) {
		d.health.set(partFiles, explain(err, c.server, 0))
		return err
	}
	if err != nil {
		return err
	}
	d.health.set(partFiles, "")
	var errs []error
	for i := range list.Items {
		m := &list.Items[i]
		if m.Labels[labelManaged] == managedBy && len(m.OwnerReferences) == 0 {
			errs = append(errs, d.repairFiles(ctx, c, m))
		}
	}
	return errors.Join(errs...)
}

const partFiles = "files"

// orphanAge is how old files without a Job must be to be removed: Apply may be
// about to make it.
const orphanAge = 10 * time.Minute

func (d *Driver) repairFiles(ctx context.Context, c *clients, m *corev1.ConfigMap) error {
	j, err := c.watch.BatchV1().Jobs(d.cfg.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
	if err == nil {
		return d.own(ctx, c, j)
	}
	age := time.Since(m.CreationTimestamp.Time) - time.Duration(-c.skew.Load())
	if !apierrors.IsNotFound(err) || age < orphanAge {
		return nil
	}
	d.log.Info("files without Job removed", "name", m.Name)
	err = c.watch.CoreV1().ConfigMaps(d.cfg.Namespace).Delete(ctx, m.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
