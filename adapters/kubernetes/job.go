package kubernetes

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// Labels and annotations of what the driver makes. They are all it knows after
// a restart.
const (
	domain = "yunhe.dev/"

	labelCenter  = domain + "center"  // the center, or its hash if it is no label value
	labelAttempt = domain + "attempt" // the attempt, likewise
	labelNetwork = domain + "network" // "none": no network
	labelManaged = "app.kubernetes.io/managed-by"

	noteAttempt = domain + "attempt-id" // the attempt, exactly
	noteJob     = domain + "job-id"
	noteTask    = domain + "task"
	noteTenant  = domain + "tenant-id"
	noteUser    = domain + "user"
	noteStop    = domain + "stop"  // JSON of order: it is to end
	noteEnded   = domain + "ended" // JSON of record: how it ended, for good
	noteFiles   = domain + "files" // name of the ConfigMap with its files
	noteLog     = domain + "log"   // time of the first line of its log
	noteTimeout = domain + "timeout-seconds"
	noteSuspend = domain + "suspend" // "true": it is to stand still
	noteStood   = domain + "stood"   // JSON of stood: how long it does
	noteNode    = domain + "node"    // at a node, JSON of asked: how it is to be

	// At a node that is reserved for an allocation: label and taint. At a Job:
	// the allocation, exactly.
	keyAllocation = domain + "allocation"

	managedBy = "yunhe"
	container = "main"
	workDir   = "/workspace"
	filesDir  = "/yunhe"
	maxFiles  = 1 << 20 // bytes a ConfigMap can hold

	// A pod's deadline cannot be raised, and goes on while an attempt stands
	// still: it is what loading an image and all pauses together may take.
	pauseAllowance = 7 * 24 * 3600 // seconds
	maxDeadline    = 1<<31 - 1     // seconds

	defaultGrace = 10 // seconds between SIGTERM and SIGKILL, as at a gateway
)

// attemptID is the form of the platform's IDs.
var attemptID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// order is why an attempt is to end before it does so by itself.
type order struct {
	Reason  string `json:"reason"` // stopped or start_failed
	Message string `json:"message,omitempty"`
}

// record is how an attempt ended.
type record struct {
	Reason    string `json:"reason"`
	Message   string `json:"message,omitempty"`
	ExitCode  int32  `json:"exit_code"`
	Node      string `json:"node,omitempty"`
	CPU       int64  `json:"cpu_microseconds,omitempty"`
	Memory    int64  `json:"memory_peak_bytes,omitempty"`
	StartedAt int64  `json:"started_at,omitempty"`
	EndedAt   int64  `json:"ended_at,omitempty"`
}

func (r record) status(id string) *adapterv1.Status {
	return &adapterv1.Status{AttemptId: id, Phase: adapterv1.Phase_PHASE_ENDED, Reason: r.Reason, Message: r.Message,
		ExitCode: r.ExitCode, StartedAt: r.StartedAt, EndedAt: r.EndedAt, Node: r.Node, CpuMicroseconds: r.CPU, MemoryPeakBytes: r.Memory}
}

func note(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // order and record always marshal
	}
	return string(b)
}

// labelValue returns s if it is the value of a label, its hash otherwise.
func labelValue(s string) string {
	if s != "" && len(validation.IsValidLabelValue(s)) == 0 {
		return s
	}
	return "sha256-" + hash(s, 40)
}

func hash(s string, digits int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:digits]
}

// objectName is the name of everything made for an attempt of a center:
// readable, and different for different attempts and centers.
func objectName(center, attempt string) string {
	readable := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '-'
		}
	}, attempt)
	if len(readable) > 30 {
		readable = readable[len(readable)-30:]
	}
	readable = strings.Trim(readable, "-")
	if readable == "" {
		readable = "attempt"
	}
	return "y-" + readable + "-" + hash(center+"\x00"+attempt, 16)
}

// maker makes the objects of attempts. Its methods are pure but for has.
type maker struct {
	center string
	cfg    Config // complete
	table  table
	has    func(extended string) int64
}

func (m *maker) labels(attempt string) map[string]string {
	out := maps.Clone(m.cfg.Labels)
	if out == nil {
		out = map[string]string{}
	}
	out[labelManaged], out[labelCenter], out[labelAttempt] = managedBy, labelValue(m.center), labelValue(attempt)
	return out
}

// attempt returns the Job of an attempt and the ConfigMap with its files, if
// it has any, or why it can never run here.
func (m *maker) attempt(a *adapterv1.Attempt) (*batchv1.Job, *corev1.ConfigMap, string) {
	if !attemptID.MatchString(a.AttemptId) {
		return nil, nil, fmt.Sprintf("attempt_id must have 1 to 128 letters, digits, _ and -, got %.140q", a.AttemptId)
	}
	if a.Command == "" {
		return nil, nil, "command must not be empty"
	}
	if _, ok := m.cfg.Prices[a.ResourcespecId]; !ok && a.ResourcespecId != "" && len(m.cfg.Prices) > 0 {
		return nil, nil, fmt.Sprintf("specification %q is not offered here: an operator adds it to prices in the center's configuration", a.ResourcespecId)
	}
	image, refusal := m.cfg.image(a.ImageId)
	if refusal != "" {
		return nil, nil, refusal
	}
	list, err := m.table.list(a.Resources, m.has)
	if err != nil {
		return nil, nil, err.Error()
	}
	if a.TimeoutSeconds < 0 || a.StopGraceSeconds < 0 || a.ScratchBytes < 0 {
		return nil, nil, fmt.Sprintf("timeout_seconds, stop_grace_seconds and scratch_bytes must not be negative, got %d, %d and %d", a.TimeoutSeconds, a.StopGraceSeconds, a.ScratchBytes)
	}
	env, refusal := environment(a.Env)
	if refusal != "" {
		return nil, nil, refusal
	}
	labels := m.labels(a.AttemptId)
	if !a.Network {
		labels[labelNetwork] = "none"
	}
	for _, v := range a.Volumes {
		labels[labelVolume(v.VolumeId)] = "true"
	}
	name := objectName(m.center, a.AttemptId)
	files, items, refusal := configMap(name, labels, a.Files)
	if refusal != "" {
		return nil, nil, refusal
	}
	pod := m.pod(a, image)
	if refusal := m.mounts(a, &pod); refusal != "" {
		return nil, nil, refusal
	}
	pod.Containers[0].Env, pod.Containers[0].Resources = env, corev1.ResourceRequirements{Requests: list, Limits: list}
	if a.Pool != nil {
		m.shares(&pod, name, a.Pool)
	}
	notes := map[string]string{noteAttempt: a.AttemptId, noteJob: a.JobId, noteTask: a.Name, noteTenant: a.TenantId, noteUser: a.UserName}
	if a.AllocationId != "" {
		notes[keyAllocation] = a.AllocationId
	}
	run := ""
	if a.TimeoutSeconds > 0 {
		notes[noteTimeout] = strconv.FormatInt(a.TimeoutSeconds, 10)
		run = timer(a.TimeoutSeconds, *pod.TerminationGracePeriodSeconds)
	}
	if files != nil {
		notes[noteFiles] = name
		mode := int32(0o644)
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "files", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items, DefaultMode: &mode}}})
		c := &pod.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "files", MountPath: filesDir, ReadOnly: true})
		// The volume is read only and full of links; commands get plain files.
		run = `cp -RL ` + filesDir + "/files/. . || exit\n" + run
	}
	if run != "" {
		pod.Containers[0].Command = []string{"/bin/sh", "-c", literal(run + `exec /bin/sh -c "$0"`), literal(a.Command)}
	}
	return m.job(name, labels, notes, pod), files, ""
}

// job is what every Job of the driver has: one pod, tried once.
func (m *maker) job(name string, labels, notes map[string]string, pod corev1.PodSpec) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: m.cfg.Namespace, Labels: labels, Annotations: notes},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(0)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
					noteAttempt: notes[noteAttempt],
					// It cannot be started again somewhere else.
					"cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
				}},
				Spec: pod,
			},
		},
	}
}

func (m *maker) pod(a *adapterv1.Attempt, image string) corev1.PodSpec {
	scratch := &corev1.EmptyDirVolumeSource{}
	if list, err := m.table.list(map[string]int64{resourceStorage: a.ScratchBytes}, m.has); err == nil && a.ScratchBytes > 0 {
		scratch.SizeLimit = new(list[corev1.ResourceEphemeralStorage])
	}
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		ServiceAccountName: m.cfg.ServiceAccount, PriorityClassName: m.priorityClass(a.Priority),
		// The command is not process 1, which would not hear SIGTERM by default.
		ShareProcessNamespace:         new(true),
		TerminationGracePeriodSeconds: new(cmp.Or(a.StopGraceSeconds, defaultGrace)),
		SecurityContext:               &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Volumes: []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: scratch}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: scratch}},
		},
		Containers: []corev1.Container{{
			Name: container, Image: image, ImagePullPolicy: corev1.PullPolicy(m.cfg.ImagePullPolicy),
			Command: []string{"/bin/sh", "-c", literal(a.Command)}, WorkingDir: workDir,
			VolumeMounts:             []corev1.VolumeMount{{Name: "scratch", MountPath: workDir}, {Name: "tmp", MountPath: "/tmp"}},
			SecurityContext:          &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)},
			TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		}},
	}
	// The last of three that keep the time limit, see timer. It is the pod's,
	// not the Job's: the Job's begins before there is a place to run, and at its
	// end deletes the pod with exit status and log.
	if a.TimeoutSeconds > 0 {
		spec.ActiveDeadlineSeconds = new(min(a.TimeoutSeconds+pauseAllowance, maxDeadline))
	}
	m.place(&spec, a.AllocationId)
	if a.Node != "" {
		on(&spec, a.Node)
	}
	if m.cfg.RunAsUser > 0 {
		spec.SecurityContext.RunAsUser, spec.SecurityContext.RunAsNonRoot = new(m.cfg.RunAsUser), new(true)
		spec.SecurityContext.FSGroup = new(m.cfg.RunAsUser)
		spec.Containers[0].SecurityContext.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}
	for _, s := range m.cfg.ImagePullSecret {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	return spec
}

// place says on which nodes an attempt may run: on those of its allocation, or
// on those that are reserved for none.
func (m *maker) place(spec *corev1.PodSpec, allocation string) {
	spec.NodeSelector, spec.Tolerations = maps.Clone(m.cfg.NodeSelector), m.cfg.tolerations()
	if allocation != "" {
		if spec.NodeSelector == nil {
			spec.NodeSelector = map[string]string{}
		}
		spec.NodeSelector[keyAllocation] = labelValue(allocation)
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: keyAllocation, Operator: corev1.TolerationOpEqual, Value: labelValue(allocation), Effect: corev1.TaintEffectNoSchedule})
		return
	}
	// The taint keeps it away, unless it tolerates everything.
	if slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == "" }) {
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: keyAllocation, Operator: corev1.NodeSelectorOpDoesNotExist}}}}}}}
	}
}

// on has a pod run on one node. The scheduler still looks whether there is room.
func on(spec *corev1.PodSpec, node string) {
	field := []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}
	if spec.Affinity == nil { // place makes one with one term
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 1)}}}
	}
	spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields = field
}

// overdue begins what a command's timer leaves as the container's message.
const overdue = "yunhe: time limit"

// atLimit says so to the user.
const atLimit = "it was still running at its time limit"

// timer returns what a shell starts before it becomes the command: a process
// that ends it at its time limit, as a kubelet would. Three keep the limit. The
// timer is exact, counts only while the attempt does not stand still, and needs
// neither driver nor API server; but the command can end it. The driver comes
// three seconds later. The pod's deadline is for when both fail.
//
// The timer is no child of the command, which would see one it does not know
// end, and holds none of its files; it ends with the container.
func timer(limit, grace int64) string {
	step := int64(1)
	if limit > 600 { // a process a second would be much for nothing
		step = 5
	}
	return fmt.Sprintf(`(
  ( trap '' HUP
    t=0
    while [ $t -lt %d ]; do sleep %d || exit; t=$((t+%d)); done
    echo '%s' >/dev/termination-log
    kill -TERM $$
    sleep %d
    kill -KILL $$
  ) </dev/null >/dev/null 2>&1 &
)
`, limit, step, step, overdue, grace)
}

func (c Config) tolerations() []corev1.Toleration {
	var out []corev1.Toleration
	for _, t := range c.Tolerations {
		out = append(out, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOperator(cmp.Or(t.Operator, "Equal")), Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return out
}

func (m *maker) priorityClass(priority int64) string {
	class := ""
	for _, p := range m.cfg.PriorityClasses { // ascending
		if priority >= int64(p.From) {
			class = p.Class
		}
	}
	return class
}

// tombstone is a Job that never runs and holds an attempt's name: so that
// an attempt that has ended here is not started by a call that comes late.
func (m *maker) tombstone(attempt string, r record) *batchv1.Job {
	j := m.job(objectName(m.center, attempt), m.labels(attempt), map[string]string{noteAttempt: attempt, noteEnded: note(r)}, corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{Name: container, Image: "none"}},
	})
	j.Spec.Suspend, j.Spec.Parallelism = new(true), new(int32(0))
	return j
}

// literal keeps Kubernetes from replacing $(NAME) and $$ in a text.
func literal(s string) string { return strings.ReplaceAll(s, "$", "$$") }

// environment returns the variables of a command: what a gateway gives, too,
// then the attempt's own.
func environment(own map[string]string) ([]corev1.EnvVar, string) {
	all := map[string]string{"HOME": workDir, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
	maps.Copy(all, own)
	var out []corev1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if why := validation.IsRelaxedEnvVarName(name); len(why) > 0 {
			return nil, fmt.Sprintf("env must have names Kubernetes accepts, got %q: %s", name, why[0])
		}
		out = append(out, corev1.EnvVar{Name: name, Value: literal(all[name])})
	}
	return out, ""
}

// configMap returns the object with an attempt's files and where each goes,
// nil if there are none.
func configMap(name string, labels map[string]string, files []*adapterv1.File) (*corev1.ConfigMap, []corev1.KeyToPath, string) {
	if len(files) == 0 {
		return nil, nil, ""
	}
	out := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, BinaryData: map[string][]byte{}, Immutable: new(true)}
	var items []corev1.KeyToPath
	seen, size := map[string]bool{}, 0
	for i, f := range files {
		if f.Path == "" || path.Clean("/"+f.Path) != "/"+f.Path || strings.ContainsRune(f.Path, 0) || len(f.Path) > 1024 || slices.Contains(strings.Split(f.Path, "/"), "..") {
			return nil, nil, fmt.Sprintf("files[%d].path must be a clean relative path, got %q", i, f.Path)
		}
		if seen[f.Path] {
			return nil, nil, fmt.Sprintf("files[%d].path is there twice: %q", i, f.Path)
		}
		seen[f.Path] = true
		if size += len(f.Content); size > maxFiles {
			return nil, nil, fmt.Sprintf("files must have at most %d bytes together at a Kubernetes center, got more: put them into the image or into storage", maxFiles)
		}
		key := fmt.Sprintf("f%d", i)
		content := f.Content
		if content == nil {
			content = []byte{} // an empty file is one, too
		}
		out.BinaryData[key] = content
		mode := int32(0o644)
		if f.Executable {
			mode = 0o755
		}
		items = append(items, corev1.KeyToPath{Key: key, Path: "files/" + f.Path, Mode: &mode})
	}
	return out, items, ""
}
