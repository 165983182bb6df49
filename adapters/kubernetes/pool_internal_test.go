package kubernetes

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/pool"
)

func TestTooOld(t *testing.T) {
	t.Parallel()
	for server, old := range map[string]bool{"v1.28.15": true, "v1.27.3+k3s1": true, "v1.29.0": false, "v1.34.4": false, "v1.30.2-gke.1587003": false, "strange": false} {
		if tooOld(server) != old {
			t.Errorf("%s: %v", server, !old)
		}
	}
}

// A command of CUDA loads the library that is its driver before others, and before
// what it loads itself.
func TestSharesCUDA(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ api, own, want string }{{"", "", ""}, {pool.OpenCL, "/own.so", "/own.so"}, {pool.CUDA, "", "/yunhe-pool/cuda/libcuda.so.1"}, {pool.CUDA, "/own.so", "/yunhe-pool/cuda/libcuda.so.1:/own.so"}} {
		pod := corev1.PodSpec{Containers: []corev1.Container{{Env: []corev1.EnvVar{{Name: "A", Value: "1"}}}}}
		if x.own != "" {
			pod.Containers[0].Env = append(pod.Containers[0].Env, corev1.EnvVar{Name: "LD_PRELOAD", Value: x.own})
		}
		(&maker{}).shares(&pod, "secret", &adapterv1.PoolShares{Api: x.api})
		var got []string
		for _, e := range pod.Containers[0].Env {
			if e.Name == "LD_PRELOAD" {
				got = append(got, e.Value)
			}
		}
		if strings.Join(got, " ") != x.want {
			t.Errorf("%+v: %q", x, got)
		}
	}
}

// Both containers of a run whose shares are of its machine's pool node are shown that
// node's socket; a command of CUDA has the driver itself, by the runtime class that the
// operator names, and what its image says of that stays.
func TestSharesLocal(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ api, class, own, preload, shows, runtime string }{
		{pool.OpenCL, "nvidia", "", "", "", ""},
		{pool.CUDA, "", "", "/yunhe-pool/cuda/before.so", "all", ""},
		{pool.CUDA, "nvidia", "0", "/yunhe-pool/cuda/before.so", "0", "nvidia"},
	} {
		pod := corev1.PodSpec{Containers: []corev1.Container{{}}}
		if x.own != "" {
			pod.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: x.own}}
		}
		(&maker{cfg: Config{PoolFolder: "/var/lib/pool/shared", PoolRuntimeClass: x.class}}).shares(&pod, "secret", &adapterv1.PoolShares{Api: x.api, Local: true})
		env, class := map[string]string{}, ""
		for _, e := range pod.Containers[0].Env {
			if _, twice := env[e.Name]; twice {
				t.Errorf("%+v: %s stands twice", x, e.Name)
			}
			env[e.Name] = e.Value
		}
		if pod.RuntimeClassName != nil {
			class = *pod.RuntimeClassName
		}
		if want := strings.ReplaceAll(x.preload, "cuda/before.so", pool.CUDABefore); env["LD_PRELOAD"] != want || env["NVIDIA_VISIBLE_DEVICES"] != x.shows || class != x.runtime {
			t.Errorf("%+v: %v, class %q", x, env, class)
		}
		holder := pod.InitContainers[0]
		if holder.Command[len(holder.Command)-1] != "--local" {
			t.Errorf("%+v: beside it runs %q", x, holder.Command)
		}
		for _, c := range []corev1.Container{holder, pod.Containers[0]} {
			if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.Name == nodeName && m.MountPath == "/yunhe-pool-node" && m.ReadOnly
			}) {
				t.Errorf("%+v: %s is shown %v", x, c.Name, c.VolumeMounts)
			}
		}
		if v := pod.Volumes[len(pod.Volumes)-1]; v.Name != nodeName || v.HostPath == nil || v.HostPath.Path != "/var/lib/pool/shared" || *v.HostPath.Type != corev1.HostPathDirectory {
			t.Errorf("%+v: the socket's folder is %+v", x, v)
		}
	}
}

// A command of OpenCL finds a loader where the system's search ends, but not where a
// volume is.
func TestSharesLoader(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ api, volume, want string }{
		{"", "", "/yunhe-pool, /usr/lib/libOpenCL.so.1=loader/libOpenCL.so.1, /usr/lib64/libOpenCL.so.1=loader/libOpenCL.so.1"},
		{pool.OpenCL, "/usr/lib64", "/yunhe-pool, /usr/lib/libOpenCL.so.1=loader/libOpenCL.so.1"},
		{pool.CUDA, "", "/yunhe-pool"},
	} {
		pod := corev1.PodSpec{Containers: []corev1.Container{{}}}
		if x.volume != "" {
			pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: x.volume}}
		}
		(&maker{}).shares(&pod, "secret", &adapterv1.PoolShares{Api: x.api})
		var got []string
		for _, m := range pod.Containers[0].VolumeMounts {
			if m.Name != poolName {
				continue
			}
			if !m.ReadOnly {
				t.Errorf("%s can be written", m.MountPath)
			}
			got = append(got, strings.TrimSuffix(m.MountPath+"="+m.SubPath, "="))
		}
		if strings.Join(got, ", ") != x.want {
			t.Errorf("%+v: %q", x, got)
		}
	}
}

// What the command's container waits for is told: the one beside has trouble.
func TestWaitsForShares(t *testing.T) {
	t.Parallel()
	pod := func(beside corev1.ContainerStatus) *corev1.Pod {
		beside.Name = poolName
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{noteAttempt: "a"}}, Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{
			Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{beside},
			ContainerStatuses: []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}}}}
	}
	for _, x := range []struct {
		beside corev1.ContainerStatus
		want   string
		stuck  bool
	}{
		{corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, "node n prepares it", false},
		{corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "nowhere"}}}, "ErrImagePull: nowhere", true},
		{corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "the ticket has expired\n"}}}, "its shares of the accelerator pool: the ticket has expired", false},
	} {
		out := decide("a", view{job: &jobView{}, pod: viewPod(pod(x.beside))})
		if !strings.Contains(out.status.Message, x.want) || out.stuck != x.stuck {
			t.Errorf("%q, stuck %v, want %q, %v", out.status.Message, out.stuck, x.want, x.stuck)
		}
	}
}
