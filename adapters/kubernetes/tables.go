package kubernetes

import (
	"cmp"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// attempt is what is known of one attempt.
type attempt struct {
	id   string
	job  *jobView            // nil: none (any more)
	pods map[string]*podView // by UID
	view view                // what besides job and pod is known

	use     use
	told    *adapterv1.Status // last one told
	over    bool              // told is its end: it stays
	stuck   time.Time         // since when it cannot start, by our clock
	ordered time.Time         // since when it is to end, by our clock
	cut     int               // how often its log was read to its end, or broke off
	noted   bool              // its end is at its Job, or cannot be
	buried  bool              // it has a tombstone, or cannot: its Job was deleted
}

// kept reports whether the cluster knows how it ended.
func (a *attempt) kept() bool {
	if a.job == nil {
		return a.buried
	}
	return a.noted || a.job.ended != nil
}

// ref says which object is meant after it is gone.
type ref struct {
	uid     types.UID
	name    string
	attempt string
}

// feed is filled by the watch of one kind of object. It keeps who is there;
// what of them counts is kept where set and gone put it. Both are called under
// d.mu; what follows from a message goes out when all of it is taken in.
type feed[T metav1.Object] struct {
	d    *Driver
	part string
	have map[string]ref // by namespace and name; guarded by d.mu
	trim func(T)        // drops what nobody here reads
	set  func(T)        // it is new, or changed
	gone func(ref)      // it is no more
}

// Transformer implements cache.TransformingStore: it keeps the memory of a
// first listing low.
func (f *feed[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if t, ok := o.(T); ok {
			t.SetManagedFields(nil)
			f.trim(t)
		}
		return o, nil
	}
}

func key(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// put takes one object; d.mu is held.
func (f *feed[T]) put(t T) {
	f.set(t)
	f.have[key(t)] = ref{uid: t.GetUID(), name: t.GetName(), attempt: t.GetAnnotations()[noteAttempt]}
}

// Add implements cache.ReflectorStore.
func (f *feed[T]) Add(o any) error { return f.Update(o) }

// Update implements cache.ReflectorStore.
func (f *feed[T]) Update(o any) error {
	t, ok := o.(T)
	if !ok {
		return fmt.Errorf("%T among the %s", o, f.part)
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.put(t)
	f.d.flush()
	return nil
}

// Delete implements cache.ReflectorStore. The object is as it was last, which
// may be news.
func (f *feed[T]) Delete(o any) error {
	t, ok := o.(T)
	if !ok {
		return fmt.Errorf("%T among the %s", o, f.part)
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.put(t)
	f.gone(f.have[key(t)])
	delete(f.have, key(t))
	f.d.flush()
	return nil
}

// Replace implements cache.ReflectorStore: a first listing, or one after a
// time in which changes may have been missed.
func (f *feed[T]) Replace(list []any, _ string) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	was := f.have
	f.have = make(map[string]ref, len(list))
	for _, o := range list {
		t, ok := o.(T)
		if !ok {
			return fmt.Errorf("%T among the %s", o, f.part)
		}
		if old, ok := was[key(t)]; ok && old.uid != t.GetUID() {
			f.gone(old) // another one of that name
		}
		delete(was, key(t))
		f.put(t)
	}
	for _, old := range was {
		f.gone(old)
	}
	f.d.listed(f.part)
	f.d.flush()
	return nil
}

// Resync implements cache.ReflectorStore; nothing here needs it.
func (f *feed[T]) Resync() error { return nil }

// listed notes that all objects of a part are known; d.mu is held.
func (d *Driver) listed(part string) {
	if d.synced[part] {
		return
	}
	d.synced[part] = true
	if part == partJobs || part == partPods {
		if d.synced[partJobs] && d.synced[partPods] {
			close(d.known)
			for _, a := range d.attempts {
				d.look(a)
			}
		}
	}
	for _, p := range []string{partJobs, partPods, partOthers, partNodes, partQuotas} {
		if !d.synced[p] {
			return
		}
	}
	if !d.complete {
		d.complete, d.res.dirty = true, true
		close(d.whole)
	}
}

// flush sends what changed to those who watch; d.mu is held.
func (d *Driver) flush() {
	if !d.complete {
		return
	}
	for name, n := range d.res.takeNodes() {
		old, had := d.board.Get(keyNode + name)
		switch {
		case n == nil && had:
			d.board.Delete(keyNode + name)
		case n != nil && !(had && proto.Equal(old.(*adapterv1.Node), n)):
			d.board.Set(keyNode+name, n)
		}
	}
	if d.res.dirty {
		d.res.dirty = false
		inv := d.inventory()
		if old, had := d.board.Get(keyInventory); !had || !proto.Equal(old.(*adapterv1.Inventory), inv) {
			d.board.Set(keyInventory, inv)
		}
	}
}

func (d *Driver) jobs() *feed[*batchv1.Job] {
	return &feed[*batchv1.Job]{d: d, part: partJobs, have: map[string]ref{},
		trim: func(j *batchv1.Job) { j.Spec.Template = corev1.PodTemplateSpec{} },
		set: func(j *batchv1.Job) {
			id := j.Annotations[noteAttempt]
			if id == "" || j.Name != objectName(d.center, id) {
				return // nobody's attempt: left alone
			}
			if _, forgotten := d.forgotten[string(j.UID)]; forgotten {
				return
			}
			a := d.attempt(id)
			v := viewJob(j)
			if a.job != nil && a.job.uid != v.uid { // it was made again
				d.drop(a)
				a = d.attempt(id)
			}
			a.job, a.view.noJob = v, false
			d.names[j.Name] = id
			d.look(a)
		},
		gone: func(r ref) {
			a := d.attempts[r.attempt]
			if a == nil || a.job == nil || a.job.uid != string(r.uid) {
				return
			}
			a.view.lostWhen = fmt.Sprintf("its Job %s was deleted by somebody else than Yunhe", r.name)
			a.job, a.view.noJob = nil, true
			d.look(a)
		},
	}
}

func (d *Driver) pods() *feed[*corev1.Pod] {
	return &feed[*corev1.Pod]{d: d, part: partPods, have: map[string]ref{}, trim: trimPod,
		set: func(p *corev1.Pod) {
			v := viewPod(p)
			if v.attempt == "" || p.Labels[labelCenter] != labelValue(d.center) {
				d.setOther(p)
				return
			}
			_, forgotten := d.forgotten[v.owner]
			if forgotten || d.attempts[v.attempt] == nil && d.past(v) {
				return
			}
			a := d.attempt(v.attempt)
			if a.job != nil && v.owner != "" && v.owner != a.job.uid {
				return // of an earlier Job of that name
			}
			if old := a.pods[v.uid]; old != nil {
				v.started = cmp.Or(v.started, old.started) // a node may forget it
			}
			a.pods[v.uid], a.view.noPod = v, false
			d.look(a)
		},
		gone: func(r ref) {
			a := d.attempts[r.attempt]
			if a == nil || a.pods[string(r.uid)] == nil {
				d.res.setForeign(r.uid, foreign{})
				return
			}
			a.pods[string(r.uid)].gone = true
			d.look(a)
		},
	}
}

// past reports whether a pod whose Job is not there is on its way out: it is
// over or being deleted, and the Job's end was told or never heard of. d.mu is
// held.
func (d *Driver) past(p *podView) bool { return d.synced[partJobs] && (p.over() || p.deleting) }

func (d *Driver) others() *feed[*corev1.Pod] {
	return &feed[*corev1.Pod]{d: d, part: partOthers, have: map[string]ref{}, trim: trimPod, set: d.setOther,
		gone: func(r ref) { d.res.setForeign(r.uid, foreign{}) }}
}

// setOther takes a pod of somebody else; d.mu is held.
func (d *Driver) setOther(p *corev1.Pod) {
	f := foreign{node: p.Spec.NodeName}
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		f.node = ""
	}
	if f.node != "" {
		f.requests = d.res.table.requests(&p.Spec)
	}
	d.res.setForeign(p.UID, f)
}

// trimPod leaves what viewPod and requests read.
func trimPod(p *corev1.Pod) {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			list[i] = corev1.Container{Name: list[i].Name, Resources: corev1.ResourceRequirements{Requests: list[i].Resources.Requests}, RestartPolicy: list[i].RestartPolicy}
		}
	}
	p.Spec.Volumes, p.Spec.Affinity, p.Spec.Tolerations, p.Spec.EphemeralContainers = nil, nil, nil, nil
	p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses, p.Status.PodIPs, p.Status.HostIPs = nil, nil, nil, nil
	if a := p.Annotations[noteAttempt]; a != "" {
		p.Annotations = map[string]string{noteAttempt: a}
	} else {
		p.Annotations = nil
	}
}

func (d *Driver) nodes() *feed[*corev1.Node] {
	return &feed[*corev1.Node]{d: d, part: partNodes, have: map[string]ref{},
		trim: func(n *corev1.Node) {
			note := n.Annotations[noteNode]
			n.Annotations = nil
			if note != "" {
				n.Annotations = map[string]string{noteNode: note}
			}
			n.Status.Images, n.Status.VolumesInUse, n.Status.VolumesAttached = nil, nil, nil
		},
		set: func(n *corev1.Node) {
			d.res.setNode(n.Name, n)
			d.drift(n)
		},
		gone: func(r ref) {
			d.res.setNode(r.name, nil)
			delete(d.asked, r.name)
		}}
}

func (d *Driver) quotas() *feed[*corev1.ResourceQuota] {
	return &feed[*corev1.ResourceQuota]{d: d, part: partQuotas, have: map[string]ref{}, trim: func(*corev1.ResourceQuota) {},
		set:  func(q *corev1.ResourceQuota) { d.res.setQuota(q.Name, q) },
		gone: func(r ref) { d.res.setQuota(r.name, nil) }}
}

// events are what the Jobs' controller complains of, for example a quota that
// leaves no room for a pod.
func (d *Driver) events() *feed[*corev1.Event] {
	return &feed[*corev1.Event]{d: d, part: partEvents, have: map[string]ref{}, trim: func(*corev1.Event) {}, gone: func(ref) {},
		set: func(e *corev1.Event) {
			a := d.attempts[d.names[e.InvolvedObject.Name]]
			if a != nil && a.job != nil && a.job.uid == string(e.InvolvedObject.UID) {
				a.view.hint = e.Reason + ": " + e.Message
				d.look(a)
			}
		}}
}

// attempt returns what is known of an attempt, nothing at first; d.mu is held.
func (d *Driver) attempt(id string) *attempt {
	a := d.attempts[id]
	if a == nil {
		a = &attempt{id: id, pods: map[string]*podView{}}
		a.view.lostWhen = "its Job is not there any more: it was deleted by somebody else than Yunhe"
		d.attempts[id] = a
	}
	return a
}

// drop forgets an attempt; d.mu is held.
func (d *Driver) drop(a *attempt) {
	delete(d.attempts, a.id)
	delete(d.names, objectName(d.center, a.id))
	d.statuses.Delete(a.id)
}

// now is the attempt's view as decide wants it; d.mu is held.
func (a *attempt) now() view {
	v := a.view
	v.job = a.job
	pods := make([]*podView, 0, len(a.pods))
	for _, p := range a.pods {
		pods = append(pods, p)
	}
	v.pod = newest(pods)
	return v
}

// look decides how an attempt stands, tells it, and queues what is to be
// done; d.mu is held.
func (d *Driver) look(a *attempt) {
	if !d.synced[partJobs] || !d.synced[partPods] {
		return // half of the truth is none
	}
	v := decide(a.id, a.now())
	if !v.stuck {
		a.stuck = time.Time{}
	}
	if a.over && a.kept() && !v.seal {
		return
	}
	if v.record != nil || v.status.Phase == adapterv1.Phase_PHASE_ENDED || v.check || v.seal || v.deadline > 0 || v.stuck || v.freeze || v.thaw || v.timed || a.job != nil && a.job.stop != nil {
		d.queue.Add(a.id)
	}
	if v.status.Phase != adapterv1.Phase_PHASE_ENDED && !(v.check && a.job == nil) {
		d.tell(a, v.status)
	}
}

// tell sends a status to those who observe; an end is the last; d.mu is held.
func (d *Driver) tell(a *attempt, st *adapterv1.Status) {
	if a.over || a.told != nil && proto.Equal(a.told, st) {
		return
	}
	if a.told.GetStartedAt() > 0 && st.Phase == adapterv1.Phase_PHASE_PENDING {
		return // a node that forgets does not make it wait again
	}
	a.told, a.over = st, st.Phase == adapterv1.Phase_PHASE_ENDED
	d.statuses.Set(a.id, st)
}
