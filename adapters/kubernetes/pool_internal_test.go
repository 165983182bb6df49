package kubernetes

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTooOld(t *testing.T) {
	t.Parallel()
	for server, old := range map[string]bool{"v1.28.15": true, "v1.27.3+k3s1": true, "v1.29.0": false, "v1.34.4": false, "v1.30.2-gke.1587003": false, "strange": false} {
		if tooOld(server) != old {
			t.Errorf("%s: %v", server, !old)
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
