package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// A volume is a PersistentVolumeClaim in the center's namespace, named after
// center and volume, so that there is one however often it is asked for. What
// provides it is the cluster's: a StorageClass. Nothing of a volume is kept here;
// every call asks the API server.

const (
	noteVolume = domain + "volume-id" // at a claim: the volume, exactly

	minVolume = 1 << 20
	maxVolume = 1 << 50

	// A claim is looked at again for so long, before it is said what it waits
	// for. A caller gives up after ten seconds.
	claimPatience = 5 * time.Second
	claimPause    = 100 * time.Millisecond
)

var volumeID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func invalid(format string, args ...any) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, args...))
}

func precondition(format string, args ...any) error {
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf(format, args...))
}

// claimName is the name of a volume's claim. No attempt's objects are called
// the same: an attempt's ID has no slash.
func claimName(center, volume string) string { return objectName(center, "volume/"+volume) }

// labelVolume marks the Jobs of attempts that have a volume.
func labelVolume(volume string) string { return domain + "volume-" + hash(volume, 20) }

// storageFailed is failed for what concerns claims: a missing permission is for an
// operator to mend and says nothing about the cluster.
func (d *Driver) storageFailed(err error, c *clients) error {
	switch {
	case exceeded(err):
		return connect.NewError(connect.CodeResourceExhausted, errors.New(serverWords(err)))
	case apierrors.IsForbidden(err):
		return precondition("%s", explain(err, c.server, 0))
	case final(err):
		return precondition("the cluster refuses the claim: %s", serverWords(err))
	}
	return d.failed(err, c)
}

// EnsureVolume makes a volume's claim, or enlarges it. Where the storage class
// provides at once it waits a moment for that; where it provides when a pod
// first uses the claim, the claim is the volume. InvalidArgument;
// FailedPrecondition without a storage class, if the class cannot enlarge, or
// the driver's account may not; ResourceExhausted if a quota or the storage has
// no room; Unavailable.
func (d *Driver) EnsureVolume(ctx context.Context, r *adapterv1.EnsureVolumeRequest) (*adapterv1.EnsureVolumeResponse, error) {
	if !volumeID.MatchString(r.VolumeId) {
		return nil, invalid("volume_id must have 1 to 64 letters, digits, _ and -, got %.80q", r.VolumeId)
	}
	if r.Bytes < minVolume || r.Bytes > maxVolume {
		return nil, invalid("bytes must be %d to %d, got %d", minVolume, int64(maxVolume), r.Bytes)
	}
	c := d.connected()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	claim, err := d.ensureClaim(ctx, c, r)
	if err != nil {
		return nil, d.storageFailed(err, c)
	}
	if claim, err = d.awaitClaim(ctx, c, claim, r.Bytes); err != nil {
		return nil, d.storageFailed(err, c)
	}
	return &adapterv1.EnsureVolumeResponse{Volume: viewClaim(claim)}, nil
}

// ensureClaim stores what is asked for.
func (d *Driver) ensureClaim(ctx context.Context, c *clients, r *adapterv1.EnsureVolumeRequest) (*corev1.PersistentVolumeClaim, error) {
	claims := c.work.CoreV1().PersistentVolumeClaims(d.cfg.Namespace)
	name := claimName(d.center, r.VolumeId)
	claim, err := claims.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		class, err := d.storageClass(ctx, c)
		if err != nil {
			return nil, err
		}
		want := d.maker.claim(r, class)
		claim, err = claims.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) && d.ensureNamespace(ctx, c) == nil {
			claim, err = claims.Create(ctx, want, metav1.CreateOptions{})
		}
		if apierrors.IsAlreadyExists(err) { // another call
			return claims.Get(ctx, name, metav1.GetOptions{})
		}
		return claim, err
	case err != nil:
		return nil, err
	case claim.Annotations[noteVolume] != r.VolumeId:
		return nil, precondition("the claim %s in namespace %s is somebody else's: delete it", name, d.cfg.Namespace)
	case claim.DeletionTimestamp != nil:
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("volume %s is still being deleted: try again", r.VolumeId))
	case sizeOf(claim) >= r.Bytes:
		return claim, nil
	case claim.Spec.VolumeName == "":
		// Nothing has provided it, so there is nothing in it, and such a claim
		// cannot be changed: it is made anew.
		if err := d.deleteClaim(ctx, c, claim); err != nil {
			return nil, err
		}
		return d.ensureClaim(ctx, c, r)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": claim.ResourceVersion},
		"spec": map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": resource.NewQuantity(r.Bytes, resource.BinarySI)}}}})
	if err != nil {
		return nil, fmt.Errorf("enlarge the claim %s: %w", name, err)
	}
	claim, err = claims.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "resize") {
		return nil, precondition("volume %s cannot grow: %s", r.VolumeId, serverWords(err))
	}
	return claim, err
}

// storageClass says which class volumes are of, the cluster's default one if
// none is configured; "" leaves the choice to the cluster, where the driver may not
// look.
func (d *Driver) storageClass(ctx context.Context, c *clients) (string, error) {
	classes := c.work.StorageV1().StorageClasses()
	if name := d.cfg.StorageClass; name != "" {
		_, err := classes.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", precondition("the cluster has no StorageClass %q: correct storage_class in the center's configuration, or make it", name)
		}
		if apierrors.IsForbidden(err) {
			err = nil
		}
		return name, err
	}
	list, err := classes.List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	names := []string{}
	for i := range list.Items {
		if list.Items[i].Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			return "", nil
		}
		names = append(names, list.Items[i].Name)
	}
	if len(names) == 0 {
		return "", precondition("the cluster has no StorageClass, so nothing provides volumes: make one")
	}
	return "", precondition("the cluster has no default StorageClass: set storage_class in the center's configuration to one of %s", strings.Join(names, ", "))
}

// claim is the claim of a volume; class "": the cluster chooses.
func (m *maker) claim(r *adapterv1.EnsureVolumeRequest, class string) *corev1.PersistentVolumeClaim {
	set := m.labels("")
	delete(set, labelAttempt)
	out := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: claimName(m.center, r.VolumeId), Labels: set, Annotations: map[string]string{noteVolume: r.VolumeId, noteTenant: r.TenantId}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(m.cfg.StorageAccess)},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(r.Bytes, resource.BinarySI)}},
		},
	}
	if class != "" {
		out.Spec.StorageClassName = &class
	}
	return out
}

// sizeOf is what a volume holds, or will once it is provided.
func sizeOf(claim *corev1.PersistentVolumeClaim) int64 {
	want := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if claim.Status.Phase != corev1.ClaimBound {
		return value(want)
	}
	return value(claim.Status.Capacity[corev1.ResourceStorage])
}

// awaitClaim waits until a claim is as large as asked for, or will be without
// anybody's doing when a pod uses it.
func (d *Driver) awaitClaim(ctx context.Context, c *clients, claim *corev1.PersistentVolumeClaim, bytes int64) (*corev1.PersistentVolumeClaim, error) {
	lazy, err := d.lazy(ctx, c, claim)
	if err != nil {
		return nil, err
	}
	ready := func() bool {
		switch {
		case claim.Status.Phase == corev1.ClaimPending || claim.Status.Phase == "":
			return lazy && claim.Spec.VolumeName == ""
		case claim.Status.Phase != corev1.ClaimBound:
			return false
		}
		// A file system that grows when it is next mounted is as large as it has
		// to be before anybody sees it.
		return sizeOf(claim) >= bytes || slices.ContainsFunc(claim.Status.Conditions, func(k corev1.PersistentVolumeClaimCondition) bool {
			return k.Type == corev1.PersistentVolumeClaimFileSystemResizePending && k.Status == corev1.ConditionTrue
		})
	}
	deadline := time.Now().Add(claimPatience)
	tick := time.NewTicker(claimPause)
	defer tick.Stop()
	for !ready() {
		if claim.Status.Phase == corev1.ClaimLost {
			return nil, precondition("volume %s has lost what was provided for it: its PersistentVolume %s is gone", claim.Annotations[noteVolume], claim.Spec.VolumeName)
		}
		if time.Now().After(deadline) {
			return nil, d.unbound(ctx, c, claim)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		if claim, err = c.work.CoreV1().PersistentVolumeClaims(d.cfg.Namespace).Get(ctx, claim.Name, metav1.GetOptions{}); err != nil {
			return nil, err
		}
	}
	return claim, nil
}

// lazy reports whether a claim is provided when a pod first uses it, and not
// before. Where the driver may not look, it may be.
func (d *Driver) lazy(ctx context.Context, c *clients, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" || claim.Status.Phase == corev1.ClaimBound {
		return false, nil
	}
	class, err := c.work.StorageV1().StorageClasses().Get(ctx, *claim.Spec.StorageClassName, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer, nil
}

// unbound says why a claim is not provided yet, or not as large as it is to be.
func (d *Driver) unbound(ctx context.Context, c *clients, claim *corev1.PersistentVolumeClaim) error {
	id, why, refuses := claim.Annotations[noteVolume], "", false
	list, err := c.work.CoreV1().Events(d.cfg.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.Set{"involvedObject.kind": "PersistentVolumeClaim", "involvedObject.uid": string(claim.UID)}.String()})
	if err == nil && len(list.Items) > 0 {
		last := slices.MaxFunc(list.Items, func(a, b corev1.Event) int { return lastSeen(a).Compare(lastSeen(b)) })
		why = ": " + last.Reason + ": " + last.Message
		refuses = last.Reason == "ProvisioningFailed" || last.Reason == "FailedBinding" || last.Reason == "VolumeResizeFailed"
	}
	if refuses {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the cluster does not provide volume %s%s", id, why))
	}
	return connect.NewError(connect.CodeUnavailable, fmt.Errorf("the cluster has not provided volume %s yet%s", id, why))
}

func lastSeen(e corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time)
}

// viewClaim is a claim in the contract's words.
func viewClaim(claim *corev1.PersistentVolumeClaim) *adapterv1.Volume {
	return &adapterv1.Volume{VolumeId: claim.Annotations[noteVolume], TenantId: claim.Annotations[noteTenant],
		Bytes: max(sizeOf(claim), value(claim.Spec.Resources.Requests[corev1.ResourceStorage]))}
}

// ListVolumes returns the center's volumes. What is in them, and whether their size
// is a limit, is known for those that a Prometheus has figures of: while, and
// some time after, a pod uses them.
func (d *Driver) ListVolumes(ctx context.Context, _ *adapterv1.ListVolumesRequest) (*adapterv1.ListVolumesResponse, error) {
	c := d.connected()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := c.work.CoreV1().PersistentVolumeClaims(d.cfg.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labelCenter + "=" + labelValue(d.center)})
	if err != nil {
		return nil, d.storageFailed(err, c)
	}
	var held map[string]volumeUse
	if d.prom != nil && len(list.Items) > 0 {
		if held, err = d.prom.volumesUse(ctx, d.cfg.Namespace); err != nil {
			d.log.Warn("no figures of volumes from Prometheus", "error", err)
		}
	}
	out := &adapterv1.ListVolumesResponse{}
	for i := range list.Items {
		claim := &list.Items[i]
		if claim.Annotations[noteVolume] == "" || claim.Name != claimName(d.center, claim.Annotations[noteVolume]) {
			continue // nobody's volume: left alone
		}
		v := viewClaim(claim)
		// A kubelet measures the file system a volume is on. One that is larger
		// than the volume by more than rounding is shared with others: what is in
		// it says nothing of the volume, and nothing keeps the volume to its size.
		if u, ok := held[claim.Name]; ok && u.capacity > 0 && u.capacity <= v.Bytes+v.Bytes/10 {
			v.UsedBytes, v.UsedKnown, v.Enforced = u.used, true, true
		}
		out.Volumes = append(out.Volumes, v)
	}
	return out, nil
}

// RemoveVolume deletes a volume's claim, and waits until the cluster has let go
// of it. What becomes of what is in it is for the storage class to say
// (reclaimPolicy). FailedPrecondition while an attempt that has not ended has
// it.
func (d *Driver) RemoveVolume(ctx context.Context, r *adapterv1.RemoveVolumeRequest) (*adapterv1.RemoveVolumeResponse, error) {
	if !volumeID.MatchString(r.VolumeId) {
		return nil, invalid("volume_id must have 1 to 64 letters, digits, _ and -, got %.80q", r.VolumeId)
	}
	if err := d.wait(ctx, d.known); err != nil {
		return nil, err
	}
	c := d.connected()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	claim, err := c.work.CoreV1().PersistentVolumeClaims(d.cfg.Namespace).Get(ctx, claimName(d.center, r.VolumeId), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && claim.Annotations[noteVolume] != r.VolumeId {
		return &adapterv1.RemoveVolumeResponse{}, nil
	}
	if err == nil {
		err = d.releaseClaim(ctx, c, claim)
	}
	if err != nil {
		return nil, d.storageFailed(err, c)
	}
	return &adapterv1.RemoveVolumeResponse{}, nil
}

// releaseClaim deletes a claim that no attempt has. No attempt that names it is
// stored meanwhile, see checkVolumes.
func (d *Driver) releaseClaim(ctx context.Context, c *clients, claim *corev1.PersistentVolumeClaim) error {
	d.claims.Lock()
	defer d.claims.Unlock()
	volume := claim.Annotations[noteVolume]
	jobs, err := c.work.BatchV1().Jobs(d.cfg.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labelVolume(volume)})
	if err != nil {
		return err
	}
	for i := range jobs.Items {
		v := viewJob(&jobs.Items[i])
		d.mu.Lock()
		a := d.attempts[v.attempt]
		over := v.ended != nil || a != nil && a.over
		d.mu.Unlock()
		if v.name == objectName(d.center, v.attempt) && !over {
			return precondition("volume %s is used by attempt %s, which has not ended", volume, v.attempt)
		}
	}
	return d.deleteClaim(ctx, c, claim)
}

// deleteClaim deletes a claim and waits until it is gone.
func (d *Driver) deleteClaim(ctx context.Context, c *clients, claim *corev1.PersistentVolumeClaim) error {
	claims := c.work.CoreV1().PersistentVolumeClaims(d.cfg.Namespace)
	err := claims.Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(claim.UID))})
	deadline := time.Now().Add(claimPatience)
	tick := time.NewTicker(claimPause)
	defer tick.Stop()
	user := ""
	for {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // another one has its name already
			return nil
		}
		if err != nil {
			return err
		}
		now, get := claims.Get(ctx, claim.Name, metav1.GetOptions{})
		switch err = get; {
		case err != nil:
			continue
		case now.UID != claim.UID:
			return nil
		case time.Now().After(deadline) && user != "":
			return connect.NewError(connect.CodeUnavailable, fmt.Errorf("the cluster keeps the claim %s, which pod %s uses", claim.Name, user))
		case time.Now().After(deadline):
			return connect.NewError(connect.CodeUnavailable, fmt.Errorf("the cluster keeps the claim %s: its finalizers are %q", claim.Name, now.Finalizers))
		case now.DeletionTimestamp != nil:
			if user, err = d.unprotect(ctx, c, now); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// inUse is what keeps a claim while there is a pod that uses it, one that has ended, too.
const inUse = "kubernetes.io/pvc-protection"

// unprotect lets a claim that is being deleted go if only pods that have ended use it:
// they are there for their logs. No pod begins to use it any more. Otherwise it
// names one that does.
func (d *Driver) unprotect(ctx context.Context, c *clients, claim *corev1.PersistentVolumeClaim) (user string, err error) {
	at := slices.Index(claim.Finalizers, inUse)
	if at < 0 {
		return "", nil
	}
	alive := fields.AndSelectors(fields.OneTermNotEqualSelector("status.phase", "Succeeded"), fields.OneTermNotEqualSelector("status.phase", "Failed")).String()
	pods, err := c.work.CoreV1().Pods(d.cfg.Namespace).List(ctx, metav1.ListOptions{FieldSelector: alive})
	if err != nil {
		return "", err
	}
	for i := range pods.Items {
		for _, v := range pods.Items[i].Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name {
				return pods.Items[i].Name, nil
			}
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": claim.ResourceVersion, "finalizers": slices.Delete(slices.Clone(claim.Finalizers), at, at+1)}})
	if err != nil {
		return "", fmt.Errorf("finalizers of the claim %s: %w", claim.Name, err)
	}
	_, err = c.work.CoreV1().PersistentVolumeClaims(d.cfg.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil
	}
	return "", err
}

// checkVolumes refuses an attempt with a volume that is not there. Until release is
// called none of them is deleted.
func (d *Driver) checkVolumes(ctx context.Context, c *clients, a *adapterv1.Attempt) (release func(), err error) {
	if len(a.Volumes) == 0 {
		return func() {}, nil
	}
	d.claims.RLock()
	for _, m := range a.Volumes {
		claim, err := c.work.CoreV1().PersistentVolumeClaims(d.cfg.Namespace).Get(ctx, claimName(d.center, m.VolumeId), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && (claim.DeletionTimestamp != nil || claim.Annotations[noteVolume] != m.VolumeId):
			err = refused(fmt.Sprintf("volume %q is not there", m.VolumeId))
		case apierrors.IsForbidden(err):
			err = refused(explain(err, c.server, 0))
		}
		if err != nil {
			d.claims.RUnlock()
			return nil, err
		}
	}
	return d.claims.RUnlock, nil
}

// mounts adds an attempt's volumes to its pod, or says why it cannot.
func (m *maker) mounts(a *adapterv1.Attempt, spec *corev1.PodSpec) (refusal string) {
	names := map[string]string{}
	for i, v := range a.Volumes {
		if !volumeID.MatchString(v.VolumeId) {
			return fmt.Sprintf("volumes[%d].volume_id must have 1 to 64 letters, digits, _ and -, got %.80q", i, v.VolumeId)
		}
		if v.Path == "/" || len(v.Path) > 255 || path.Clean(v.Path) != v.Path || !path.IsAbs(v.Path) || strings.ContainsAny(v.Path, ":\x00") {
			return fmt.Sprintf(`volumes[%d].path must be an absolute, clean path below "/" of at most 255 bytes without ":", got %.300q`, i, v.Path)
		}
		name := names[v.VolumeId]
		if name == "" {
			name = fmt.Sprintf("volume-%d", i)
			names[v.VolumeId] = name
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(m.center, v.VolumeId)}}})
		}
		c := &spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: v.Path, ReadOnly: v.ReadOnly})
	}
	return ""
}
