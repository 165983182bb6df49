package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	versions "k8s.io/apimachinery/pkg/util/version"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/pool"
)

// Shares of the accelerator pool. Beside the command's container runs one that
// redeems the run's passes and has its slices as long as the pod lives; it starts
// first, and puts what programs need to find the devices into a volume.
//
// Passes are good for 30 to 45 s, and a pod may take longer to start. The platform
// sends new ones every few seconds until one was redeemed; the newest are in a
// Secret, which the container reads when it starts, and starts anew.
//
// A pod whose slices are of the pool's node on its machine is shown the folder with
// that node's shared socket, by which both containers come to it. Its programs of CUDA
// have the driver themselves, which the runtime of its containers shows it.
const (
	poolName = "yunhe-pool" // of container and volume
	poolDir  = "/yunhe-pool"
	passes   = "passes"     // entry of the Secret
	nodeName = "yunhe-node" // of the volume with the node's socket
	nodeDir  = "/yunhe-pool-node"
)

// shares has a pod's command find the slices whose passes are in a Secret.
func (m *maker) shares(pod *corev1.PodSpec, secret string, p *adapterv1.PoolShares) {
	always := corev1.ContainerRestartPolicyAlways
	small := func(memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	wants := small("64Mi")
	wants[corev1.ResourceCPU] = resource.MustParse("10m")
	pod.InitContainers = append(pod.InitContainers, corev1.Container{
		Name: poolName, Image: m.cfg.PoolImage, ImagePullPolicy: corev1.PullPolicy(m.cfg.ImagePullPolicy),
		Command: []string{"/yunhe", "pool", "exec", "--into", poolDir}, RestartPolicy: &always,
		Env: []corev1.EnvVar{{Name: pool.PassesVariable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: passes}}}},
		VolumeMounts: []corev1.VolumeMount{{Name: poolName, MountPath: poolDir}},
		StartupProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/yunhe", "pool", "ready", poolDir}}},
			PeriodSeconds: 1, FailureThreshold: math.MaxInt32},
		Resources: corev1.ResourceRequirements{Requests: wants, Limits: small("256Mi")},
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	})
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: poolName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	c, holder := &pod.Containers[0], &pod.InitContainers[len(pod.InitContainers)-1]
	if p.Local {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: nodeName, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: m.cfg.PoolFolder, Type: new(corev1.HostPathDirectory)}}})
		for _, in := range []*corev1.Container{holder, c} {
			in.VolumeMounts = append(in.VolumeMounts, corev1.VolumeMount{Name: nodeName, MountPath: nodeDir, ReadOnly: true})
		}
		holder.Command = append(holder.Command, "--local")
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: poolName, MountPath: poolDir, ReadOnly: true})
	c.Env = append(c.Env, corev1.EnvVar{Name: "OCL_ICD_VENDORS", Value: poolDir + "/" + pool.Vendors}, corev1.EnvVar{Name: pool.FileVariable, Value: poolDir + "/" + pool.SliceFile})
	if p.Api != pool.CUDA {
		var mounted []string
		for _, v := range c.VolumeMounts {
			mounted = append(mounted, v.MountPath)
		}
		for _, place := range pool.LoaderPlaces(mounted) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: poolName, MountPath: place, SubPath: pool.LoaderFile, ReadOnly: true})
		}
		return
	}
	loaded := pool.CUDALoaded
	if p.Local {
		loaded = pool.CUDABefore
		if m.cfg.PoolRuntimeClass != "" {
			pod.RuntimeClassName = new(m.cfg.PoolRuntimeClass)
		}
		for _, e := range pool.DriverShown() {
			if !slices.ContainsFunc(c.Env, func(is corev1.EnvVar) bool { return is.Name == e[0] }) {
				c.Env = append(c.Env, corev1.EnvVar{Name: e[0], Value: e[1]})
			}
		}
	}
	// Loaded before others, it is found by whatever name. The image's own search path,
	// which cannot be added to from here, stays.
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "LD_PRELOAD" })
	if i < 0 {
		i, c.Env = len(c.Env), append(c.Env, corev1.EnvVar{Name: "LD_PRELOAD"})
	}
	c.Env[i].Value = strings.TrimSuffix(poolDir+"/"+loaded+":"+c.Env[i].Value, ":")
}

// sharesRefused says why an attempt cannot have its shares of the pool now.
func (d *Driver) sharesRefused(c *clients, a *adapterv1.Attempt) error {
	switch {
	case a.Pool == nil:
		return nil
	case d.cfg.PoolImage == "":
		return forNow{refused("center " + d.center + " gives runs no shares of the accelerator pool: an operator sets pool_image in its configuration")}
	case len(a.Pool.Passes) == 0:
		return forNow{refused("its shares of the accelerator pool did not come with it: " + a.Pool.Lacking)}
	case a.Pool.Local && d.cfg.PoolFolder == "":
		return forNow{refused("center " + d.center + " gives runs no shares of the pool node on their machine: an operator sets pool_folder in its configuration")}
	case a.Pool.Local && a.Node == "":
		return forNow{refused("it does not say on which machine its shares of the accelerator pool are")}
	}
	v, err := c.work.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	if tooOld(v.GitVersion) {
		return forNow{refused(fmt.Sprintf("Kubernetes %s starts no container before others that stays beside them; shares of the accelerator pool need 1.29 or later", v.GitVersion))}
	}
	return nil
}

func tooOld(server string) bool {
	v, err := versions.ParseGeneric(server)
	return err == nil && v.LessThan(versions.MustParseGeneric("1.29"))
}

// putPasses has the pod of an attempt find its newest passes. They go with its Job.
func (d *Driver) putPasses(ctx context.Context, c *clients, job string, uid types.UID, a *adapterv1.Attempt) error {
	if len(a.Pool.GetPasses()) == 0 {
		return nil
	}
	var sockets []string
	if a.Pool.Local {
		sockets = slices.Repeat([]string{nodeDir + "/" + path.Base(pool.SharedSocket)}, len(a.Pool.Passes))
	}
	text, err := pool.PassesText(a.Pool.Passes, sockets...)
	if err != nil {
		return fmt.Errorf("passes of %s: %w", a.AttemptId, err)
	}
	body, err := json.Marshal(map[string]any{"stringData": map[string]string{passes: string(text)}})
	if err != nil {
		return fmt.Errorf("passes of %s: %w", a.AttemptId, err)
	}
	secrets := c.work.CoreV1().Secrets(d.cfg.Namespace)
	_, err = secrets.Patch(ctx, job, types.MergePatchType, body, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: job, Namespace: d.cfg.Namespace, Labels: d.maker.labels(a.AttemptId),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: uid, Controller: new(true), BlockOwnerDeletion: new(true)}}},
		StringData: map[string]string{passes: string(text)},
	}, metav1.CreateOptions{})
	return err
}
