package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunhe.dev/yunhe/adapters/kubernetes"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/gen/yunhe/adapter/v1/adapterv1connect"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/sdk/adapter"
)

// shell is an open session.
type shell struct {
	tb     testing.TB
	stream *connect.BidiStreamForClientSimple[adapterv1.ExecRequest, adapterv1.ExecResponse]
	cancel context.CancelFunc

	out, err bytes.Buffer
	code     int32
}

func (r *rig) open(start *adapterv1.ExecStart) *shell {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(r.tb.Context(), time.Minute)
	r.tb.Cleanup(cancel)
	stream, err := r.client.Exec(ctx)
	if err != nil {
		r.tb.Fatal(err)
	}
	s := &shell{tb: r.tb, stream: stream, cancel: cancel}
	s.send(&adapterv1.ExecRequest{Start: start})
	return s
}

func (s *shell) send(m *adapterv1.ExecRequest) {
	s.tb.Helper()
	if err := s.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		s.tb.Fatal(err)
	}
}

// receive takes what comes until f is content with it, or the session ends.
func (s *shell) receive(f func() bool) error {
	for f == nil || !f() {
		m, err := s.stream.Receive()
		if err != nil {
			return err
		}
		s.out.Write(m.Output)
		s.err.Write(m.ErrorOutput)
		if m.Ended {
			s.code = m.ExitCode
			return nil
		}
	}
	return nil
}

// exec runs a command to its end.
func (r *rig) exec(id, input string, command ...string) (out, errOut string, code int32, err error) {
	r.tb.Helper()
	s := r.open(&adapterv1.ExecStart{AttemptId: id, Command: command})
	s.send(&adapterv1.ExecRequest{Input: []byte(input), InputEnd: true})
	err = s.receive(nil)
	return s.out.String(), s.err.String(), s.code, err
}

func (r *rig) suspend(suspend, resume []string) {
	r.tb.Helper()
	if _, err := r.client.Suspend(r.tb.Context(), &adapterv1.SuspendRequest{Suspend: suspend, Resume: resume}); err != nil {
		r.tb.Fatal(err)
	}
}

func (r *rig) suspended(id string) *adapterv1.Status {
	r.tb.Helper()
	return r.await(id, "suspended", func(st *adapterv1.Status) bool { return st.Phase == adapterv1.Phase_PHASE_SUSPENDED })
}

// restart kills the driver, forgets what was told and starts another one.
func (r *rig) restart() {
	r.tb.Helper()
	r.kill()
	r.last = map[string]*adapterv1.Status{}
	r.start()
}

// What a real kubelet is needed for besides running and logs: sessions,
// suspending, exact limits, and accounts of every kind.
func TestRealSessions(t *testing.T) {
	k := enginetest.KubernetesCluster(t)
	r := newRig(t, k, 0, func(c *kubernetes.Config) { c.Images = map[string]string{"base": enginetest.KubeletImage} })
	class := r.storageClass("local", storagev1.VolumeBindingWaitForFirstConsumer)
	r.localVolumes(class, 2, 24*mib)
	l := startKubelet(t, k, r.label, "")
	r.start()
	t.Run("exec", func(t *testing.T) { r.with(t).testExec(l.Node) })
	t.Run("exec that breaks off", func(t *testing.T) { r.with(t).testExecCut() })
	t.Run("terminal", func(t *testing.T) { r.with(t).testTerminal() })
	t.Run("suspend", func(t *testing.T) { r.with(t).testSuspend() })
	t.Run("stop while suspended", func(t *testing.T) { r.with(t).testStopSuspended() })
	t.Run("limits", func(t *testing.T) { r.with(t).testLimits() })
	r.tb = t
	t.Run("restricted", func(t *testing.T) { testRestricted(t, k, r.label) })
	t.Run("figures from Prometheus", func(t *testing.T) { testPrometheus(t, k, l.Node, r.label, class) })
	t.Run("without permission", func(t *testing.T) { testNoExec(t, k, r.label) })
	t.Run("without websockets", func(t *testing.T) { testSPDY(t, k, r.label) })
	t.Run("in the cluster", func(t *testing.T) { testInCluster(t, k, r.label) })
}

// with makes a rig report to a subtest.
func (r *rig) with(tb testing.TB) *rig {
	r.tb = tb
	return r
}

const count = `i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done`

func (r *rig) testExec(node string) {
	r.apply(command("exec", count, func(a *adapterv1.Attempt) { a.Env["OWN"] = "value" }), command("over", "true", nil),
		command("held", "true", func(a *adapterv1.Attempt) { a.Resources["gpu"] = 9 }))
	if st := r.running("exec"); st.Node != node {
		r.tb.Errorf("it runs at node %q, want %q", st.Node, node)
	}
	if st := r.ended("over"); st.Node != node {
		r.tb.Errorf("it ran at node %q, want %q", st.Node, node)
	}
	begun := time.Now()
	out, errOut, code, err := r.exec("exec", "a\nb", "/bin/sh", "-c", `cat; echo " $OWN $PWD $1"; echo wrong >&2; exit 5`, "sh", "$(x) 'y'")
	r.tb.Logf("figure: a session took %s", time.Since(begun).Round(time.Millisecond))
	if err != nil || out != "a\nb value /workspace $(x) 'y'\n" || errOut != "wrong\n" || code != 5 {
		r.tb.Errorf("got %q, %q, %d, %v", out, errOut, code, err)
	}
	if _, errOut, code, err = r.exec("exec", "", "no-such-program"); err != nil || code != 127 || !strings.Contains(errOut, "no-such-program") {
		r.tb.Errorf("a program that is not there: %q, %d, %v", errOut, code, err)
	}
	if out, _, _, err = r.exec("exec", "", "/bin/sh", "-c", "kill -9 $$"); err != nil && connect.CodeOf(err) != connect.CodeUnavailable || out != "" {
		r.tb.Errorf("one that is killed: %q, %v", out, err)
	}
	const size = 3 << 20
	if out, _, code, err = r.exec("exec", strings.Repeat("x", size), "cat"); err != nil || code != 0 || len(out) != size {
		r.tb.Errorf("there and back come %d bytes of %d, %d, %v", len(out), size, code, err)
	}
	for id, want := range map[string]connect.Code{"nobody": connect.CodeNotFound, "over": connect.CodeFailedPrecondition, "held": connect.CodeFailedPrecondition} {
		_, _, _, err = r.exec(id, "", "true")
		wantCode(r.tb, err, want)
	}
	_, _, _, err = r.exec("exec", "")
	wantCode(r.tb, err, connect.CodeInvalidArgument)
}

func (r *rig) testExecCut() {
	for name, cut := range map[string]func(*shell){
		"closed": func(s *shell) { // canceling alone is not sent while nobody reads
			s.cancel()
			_ = s.stream.CloseResponse()
		},
		"canceled while it is read": func(s *shell) {
			done := make(chan error)
			go func() { done <- s.receive(nil) }()
			s.cancel()
			if err := <-done; connect.CodeOf(err) != connect.CodeCanceled {
				r.tb.Errorf("the caller hears %v, want canceled", err)
			}
		},
	} {
		r.tb.Logf("a session that is %s", name)
		r.cut(cut)
	}
	// The attempt's own command goes on.
	if st := r.running("exec"); st.Message != "" {
		r.tb.Errorf("got %v", st)
	}
}

func (r *rig) cut(cut func(*shell)) {
	s := r.open(&adapterv1.ExecStart{AttemptId: "exec", Command: []string{"/bin/sh", "-c", `trap '' HUP; echo ready; sleep 1234 & exec sleep 4321`}})
	if err := s.receive(func() bool { return strings.Contains(s.out.String(), "ready") }); err != nil {
		r.tb.Fatal(err)
	}
	processes := func() string {
		out, _, _, err := r.exec("exec", "", "ps")
		if err != nil {
			r.tb.Fatal(err)
		}
		return out
	}
	if out := processes(); !strings.Contains(out, "1234") || !strings.Contains(out, "4321") {
		r.tb.Fatalf("the session's processes are not there: %s", out)
	}
	cut(s)
	until(r.tb, "the session's processes have ended", func() bool {
		out := processes()
		return !strings.Contains(out, "sleep 1234") && !strings.Contains(out, "sleep 4321")
	})
}

func (r *rig) testTerminal() {
	s := r.open(&adapterv1.ExecStart{AttemptId: "exec", Command: []string{"/bin/sh"}, Terminal: true, Size: &adapterv1.TerminalSize{Columns: 91, Rows: 17}})
	see := func(text string) {
		r.tb.Helper()
		if err := s.receive(func() bool { return strings.Contains(s.out.String(), text) }); err != nil || !strings.Contains(s.out.String(), text) {
			r.tb.Fatalf("%q is not in %q, %v", text, s.out.String(), err)
		}
	}
	s.send(&adapterv1.ExecRequest{Input: []byte("stty size; test -t 0 && test -t 1 && echo it\"\"s-a-terminal\n")})
	see("17 91")
	see("its-a-terminal")
	s.send(&adapterv1.ExecRequest{Size: &adapterv1.TerminalSize{Columns: 120, Rows: 40}})
	// The size comes on a way of its own: ask until it is there.
	s.send(&adapterv1.ExecRequest{Input: []byte("until stty size | grep -q '40 120'; do sleep 0.1; done; echo re\"\"sized\n")})
	see("resized")
	s.send(&adapterv1.ExecRequest{Input: []byte("exit 9\n")})
	if err := s.receive(nil); err != nil || s.code != 9 {
		r.tb.Errorf("the shell ended with %d, %v, want 9", s.code, err)
	}
}

// grown returns what comes of a log from offset on within a second.
func (r *rig) grown(id string, offset int64) string {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(r.tb.Context(), 30*time.Second)
	defer cancel()
	var out []byte
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		res, err := r.client.ReadLog(ctx, &adapterv1.ReadLogRequest{AttemptId: id, Offset: offset + int64(len(out)), WaitMilliseconds: 1})
		if err != nil {
			r.tb.Fatal(err)
		}
		out = append(out, res.Data...)
	}
	return string(out)
}

func (r *rig) testSuspend() {
	for range 2 {
		r.suspend([]string{"exec", "over", "nobody"}, nil)
	}
	begun := time.Now()
	r.suspended("exec")
	r.tb.Logf("figure: it stood still %s after it was asked", time.Since(begun).Round(time.Millisecond))
	_, _, _, err := r.exec("exec", "", "true")
	wantCode(r.tb, err, connect.CodeFailedPrecondition)
	said := r.grown("exec", 0) // with what was on its way
	if more := r.grown("exec", int64(len(said))); more != "" {
		r.tb.Errorf("suspended, it says %q", more)
	}
	r.restart()
	if st := r.suspended("exec"); st.StartedAt == 0 {
		r.tb.Errorf("after a restart of the driver: %v", st)
	}
	if st := r.ended("over"); st.Reason != "completed" {
		r.tb.Errorf("one that had ended: %v", st)
	}
	if _, ok := r.last["nobody"]; ok {
		r.tb.Error("one that is not known was made")
	}
	for range 2 {
		r.suspend(nil, []string{"exec", "over", "nobody"})
	}
	r.running("exec")
	more := r.grown("exec", int64(len(said)))
	var want strings.Builder
	for i := 1; i < 100_000 && want.Len() < len(said)+len(more); i++ {
		fmt.Fprintln(&want, i)
	}
	if len(more) == 0 || said+more != want.String() {
		r.tb.Errorf("resumed, it says %q after %q, want that it counts on", more, said)
	}
	if n := len(r.pods("exec")); n != 1 {
		r.tb.Errorf("it has %d pods, want 1", n)
	}

	// One that has not started: it stands still as soon as it has.
	r.apply(command("early", count, nil))
	r.suspend([]string{"early"}, nil)
	r.suspended("early")
	r.suspend(nil, []string{"early"})
	r.suspend([]string{"early"}, nil) // at once again
	r.suspend(nil, []string{"early"})
	r.running("early")
	until(r.tb, "it runs, and is not asked to stand still", func() bool {
		return r.job("early").Annotations["yunhe.dev/suspend"] == "" && !strings.Contains(r.job("early").Annotations["yunhe.dev/stood"], "since")
	})
	r.running("early")
	r.remove([]string{"early", "held"}, nil)
	r.ended("early")
}

func (r *rig) testStopSuspended() {
	r.apply(command("polite", `trap 'echo bye; exit 4' TERM; echo ready; while :; do sleep 0.1; done`, nil))
	r.running("polite")
	for r.grown("polite", 0) != "ready\n" {
	}
	r.suspend([]string{"polite"}, nil)
	r.suspended("polite")
	r.remove([]string{"polite"}, nil)
	if st := r.ended("polite"); st.Reason != "stopped" || st.ExitCode != 4 || string(st.Log) != "ready\nbye\n" {
		r.tb.Errorf("got %v, want that it was stopped in good order", st)
	}
	r.remove(nil, []string{"polite"})
}

func (r *rig) testLimits() {
	limit := func(s int64) func(*adapterv1.Attempt) {
		return func(a *adapterv1.Attempt) { a.TimeoutSeconds, a.StopGraceSeconds = s, 2 }
	}
	ran := func(st *adapterv1.Status) time.Duration {
		return time.Duration(st.EndedAt-st.StartedAt) * time.Microsecond
	}
	// The time in which it stands still does not count.
	r.apply(command("paused", `sleep 100`, limit(5)), command("quick", `exit 3`, limit(5)), command("stubborn", `trap '' TERM; while :; do sleep 0.1; done`, limit(2)))
	r.running("paused")
	r.suspend([]string{"paused"}, nil)
	r.suspended("paused")
	r.grown("exec", 0) // some seconds pass
	for range 6 {
		r.grown("exec", 0)
	}
	if st := r.suspended("paused"); st.EndedAt != 0 {
		r.tb.Errorf("got %v", st)
	}
	r.suspend(nil, []string{"paused"})
	if st := r.ended("paused"); st.Reason != "wall_time" || ran(st) < 10*time.Second || ran(st) > 20*time.Second {
		r.tb.Errorf("it stood still for 7 of %s: %v, want wall_time 5 s after the rest", ran(st), st)
	}
	if st := r.ended("quick"); st.Reason != "exit" || st.ExitCode != 3 {
		r.tb.Errorf("within its limit: %v", st)
	}
	if st := r.ended("stubborn"); st.Reason != "wall_time" || st.ExitCode != 137 || ran(st) > 10*time.Second {
		r.tb.Errorf("one that hears no signal: %v after %s", st, ran(st))
	}
	// Without a timer, here an image without sleep, the driver sees to it.
	r.apply(command("alone", `kill -9 $(ps | grep 'time limit\|t=0' | grep -v grep | awk '{print $1}'); while :; do :; done`, limit(2)))
	if st := r.ended("alone"); st.Reason != "wall_time" || ran(st) > 15*time.Second {
		r.tb.Errorf("without its timer: %v after %s", st, ran(st))
	}
	// With the driver away the timer sees to it.
	r.apply(command("away", `echo on; sleep 300`, limit(4)))
	r.running("away")
	r.kill()
	begun := time.Now()
	until(r.tb, "it has ended", func() bool {
		p, err := r.admin.CoreV1().Pods(r.cfg.Namespace).Get(r.tb.Context(), r.pods("away")[0], metav1.GetOptions{})
		if err != nil {
			r.tb.Fatal(err)
		}
		return p.Status.Phase == corev1.PodFailed
	})
	r.last = map[string]*adapterv1.Status{}
	r.start()
	if st := r.ended("away"); st.Reason != "wall_time" || st.ExitCode != 143 || ran(st) > 10*time.Second {
		r.tb.Errorf("with the driver away: %v after %s", st, ran(st))
	}
	r.tb.Logf("figure: with the driver away one with a limit of 4 s had ended %s later", time.Since(begun).Round(100*time.Millisecond))
}

// Commands run as a user, in a namespace that takes restricted pods only.
func testRestricted(t *testing.T, k *enginetest.Kubernetes, label string) {
	r := newRig(t, k, 0, func(c *kubernetes.Config) {
		c.Images, c.RunAsUser = map[string]string{"base": enginetest.KubeletImage}, 4711
		c.NodeSelector = map[string]string{"rig": label}
	})
	_, err := r.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.cfg.Namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	r.apply(command("user", `id -u; id -G; cat in; echo x >out && echo y >/tmp/out && ls -n out | awk '{print $3}'`, func(a *adapterv1.Attempt) {
		a.Files, a.TimeoutSeconds = []*adapterv1.File{{Path: "in", Content: []byte("data\n")}}, 60
	}), command("on", count, nil))
	if st := r.ended("user"); st.Reason != "completed" || string(st.Log) != "4711\n0 4711\ndata\n4711\n" {
		t.Errorf("got %v", st)
	}
	r.running("on")
	if out, _, code, err := r.exec("on", "", "id", "-u"); err != nil || code != 0 || out != "4711\n" {
		t.Errorf("a session runs as %q, %d, %v", out, code, err)
	}
	r.suspend([]string{"on"}, nil)
	r.suspended("on")
	r.suspend(nil, []string{"on"})
	r.running("on")
	r.remove([]string{"on"}, nil)
	r.ended("on")
}

// An account that may not start commands in pods: that is said, and jobs run.
func testNoExec(t *testing.T, k *enginetest.Kubernetes, label string) {
	r := newRig(t, k, 0, func(c *kubernetes.Config) {
		c.Images, c.NodeSelector = map[string]string{"base": enginetest.KubeletImage}, map[string]string{"rig": label}
	})
	r.cfg.KubeconfigFile = r.kubeconfig(k.URL, r.account(func(role *rbacv1.Role, _ *rbacv1.ClusterRole) {
		for i := range role.Rules {
			if role.Rules[i].Resources[0] == "pods/exec" {
				role.Rules = append(role.Rules[:i], role.Rules[i+1:]...)
				break
			}
		}
	}), k.CA)
	r.start()
	r.apply(command("on", count, nil))
	r.running("on")
	_, _, _, err := r.exec("on", "", "true")
	if wantCode(t, err, connect.CodeUnavailable); err != nil && (!strings.Contains(err.Error(), "lacks a permission") || !strings.Contains(err.Error(), "pods/exec")) {
		t.Errorf("got %v, want the permission named", err)
	}
	r.suspend([]string{"on"}, nil)
	r.await("on", "running with the reason why it is not suspended", func(st *adapterv1.Status) bool {
		return st.Phase == adapterv1.Phase_PHASE_RUNNING && strings.Contains(st.Message, "to be suspended") && strings.Contains(st.Message, "pods/exec")
	})
	r.suspend(nil, []string{"on"})
	r.await("on", "running and no more to say", func(st *adapterv1.Status) bool { return st.Phase == adapterv1.Phase_PHASE_RUNNING && st.Message == "" })
	r.remove([]string{"on"}, nil)
	r.ended("on")
}

// Where something between knows no WebSockets, sessions take SPDY.
func testSPDY(t *testing.T, k *enginetest.Kubernetes, label string) {
	r := newRig(t, k, 0, func(c *kubernetes.Config) {
		c.Images, c.NodeSelector = map[string]string{"base": enginetest.KubeletImage}, map[string]string{"rig": label}
	})
	var refused, taken atomic.Int64
	r.reverse(k, func(w http.ResponseWriter, req *http.Request) bool {
		switch {
		case !strings.HasSuffix(req.URL.Path, "/exec"):
			return false
		case strings.EqualFold(req.Header.Get("Upgrade"), "websocket"):
			refused.Add(1)
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		taken.Add(1)
		return false
	}, nil)
	r.start()
	r.apply(command("on", count, nil))
	r.running("on")
	if out, errOut, code, err := r.exec("on", "a", "/bin/sh", "-c", "cat; echo e >&2; exit 3"); err != nil || out != "a" || errOut != "e\n" || code != 3 {
		t.Errorf("got %q, %q, %d, %v", out, errOut, code, err)
	}
	if refused.Load() == 0 || taken.Load() == 0 {
		t.Errorf("%d WebSockets were refused, %d sessions by SPDY", refused.Load(), taken.Load())
	}
	r.remove([]string{"on"}, nil)
	r.ended("on")
}

// The driver as a pod of the cluster it serves, with the service account of
// the page operators follow and no kubeconfig. The API server listens on the
// machine's own loopback here, so the pod shares the machine's network.
func testInCluster(t *testing.T, k *enginetest.Kubernetes, label string) {
	r := newRig(t, k, 0, func(c *kubernetes.Config) {
		c.Images, c.NodeSelector = map[string]string{"base": enginetest.KubeletImage}, map[string]string{"rig": label}
	})
	r.account(nil)
	r.cfg.KubeconfigFile = ""
	config, err := json.Marshal(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(k.URL)
	if err != nil {
		t.Fatal(err)
	}
	// What a complete cluster has in every namespace; this one has no such controller.
	_, err = r.admin.CoreV1().ConfigMaps(r.cfg.Namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": string(k.CA)}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // a folder for one socket
		t.Fatal(err)
	}
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
	host := func(name, path string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}
	}
	// The machine's files are at /host: this test program and what it is linked with.
	script := `"/host$EXE"
[ $? = 127 ] || exit # it is linked
for l in /host/usr/lib/*-linux-gnu/ld-linux-*.so.*; do
  exec "$l" --library-path "${l%/*}" "/host$EXE"
done`
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "driver"}, Spec: corev1.PodSpec{
		ServiceAccountName: "driver", HostNetwork: true, NodeSelector: map[string]string{"rig": label}, TerminationGracePeriodSeconds: new(int64(1)),
		Volumes: []corev1.Volume{host("host", "/"), host("socket", dir)},
		Containers: []corev1.Container{{Name: "driver", Image: enginetest.KubeletImage, ImagePullPolicy: corev1.PullNever, Stdin: true, Command: []string{"/bin/sh", "-c", script},
			VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/host", ReadOnly: true}, {Name: "socket", MountPath: dir}},
			Env: []corev1.EnvVar{env(driverEnv, "1"), env("EXE", exe), env(adapter.SocketEnv, socket), env(adapter.CenterEnv, r.center), env(adapter.ConfigEnv, file),
				env("KUBERNETES_SERVICE_HOST", u.Hostname()), env("KUBERNETES_SERVICE_PORT", u.Port())}}}}}
	if _, err := r.admin.CoreV1().Pods(r.cfg.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			p, err := r.admin.CoreV1().Pods(r.cfg.Namespace).Get(context.Background(), "driver", metav1.GetOptions{})
			said, lerr := r.admin.CoreV1().Pods(r.cfg.Namespace).GetLogs("driver", &corev1.PodLogOptions{}).DoRaw(context.Background())
			t.Logf("the driver's pod: %+v, %v; it says %s, %v", p.Status, err, said, lerr)
		}
	})
	until(t, "the driver's pod serves", func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	r.client = adapterv1connect.NewDriverServiceClient(&http.Client{Transport: transport}, "http://driver")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done sync.WaitGroup
	done.Go(func() { r.observe(ctx) })
	res, err := r.client.Discover(t.Context(), &adapterv1.DiscoverRequest{})
	if err != nil || res.Inventory.Capacity["cpu"] == 0 {
		t.Errorf("discovered %v, %v", res, err)
	}
	r.apply(command("on", "echo here; "+count, nil))
	r.running("on")
	if out, _, code, err := r.exec("on", "", "echo", "there"); err != nil || code != 0 || out != "there\n" {
		t.Errorf("a session says %q, %d, %v", out, code, err)
	}
	r.remove([]string{"on"}, nil)
	if st := r.ended("on"); st.Reason != "stopped" {
		t.Errorf("got %v", st)
	}
	cancel()
	done.Wait()
}

// A real Prometheus scrapes the real kubelet; only the exporter of devices is
// played.
func testPrometheus(t *testing.T, k *enginetest.Kubernetes, node, label, class string) {
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range map[string][2]string{"DCGM_FI_DEV_GPU_UTIL": {"37", "100"}, "DCGM_FI_DEV_FB_USED": {"1024", "70000"}, "DCGM_FI_DEV_FB_FREE": {"80536", "11560"},
			"own_busy_percent": {"12.5", "0"}} {
			for i, v := range values {
				fmt.Fprintf(w, "%s{gpu=\"%d\",own=\"%d\",Hostname=%q,UUID=\"GPU-%d\"} %s\n", name, i, 2+i, node, i, v)
			}
		}
		// One device of each other maker, as their exporters have it. Only Huawei's
		// says nothing of the node.
		for i, metrics := range [][3]string{{"gpu_gfx_activity", "gpu_used_vram", "gpu_total_vram"}, {"npu_chip_info_utilization", "npu_chip_info_hbm_used_memory", "npu_chip_info_hbm_total_memory"},
			{"mlu_utilization", "mlu_memory_used", "mlu_memory_total"}, {"dcu_utilizationrate", "dcu_usedmemory_bytes", "dcu_memorycap_bytes"}} {
			for k, v := range []string{"50", []string{"1024", "1024", "1073741824", "1073741824"}[i], []string{"65536", "65536", "68719476736", "68719476736"}[i]} {
				fmt.Fprintf(w, "%s{%s=%q,%s=\"%d\"} %s\n", metrics[k], []string{"hostname", "node", "node", "node"}[i], node, []string{"gpu_id", "id", "mlu", "minor_number"}[i], 4+i, v)
			}
		}
	}))
	t.Cleanup(exporter.Close)
	u, err := url.Parse(k.URL)
	if err != nil {
		t.Fatal(err)
	}
	server, err := enginetest.StartPrometheus(t.Context(), fmt.Sprintf(`
global: {scrape_interval: 1s}
scrape_configs:
- {job_name: kubelet, scheme: https, metrics_path: "/api/v1/nodes/%[1]s/proxy/metrics/cadvisor", authorization: {credentials: %[2]q}, tls_config: {insecure_skip_verify: true}, static_configs: [{targets: [%[3]q]}]}
- {job_name: resource, scheme: https, metrics_path: "/api/v1/nodes/%[1]s/proxy/metrics/resource", authorization: {credentials: %[2]q}, tls_config: {insecure_skip_verify: true}, static_configs: [{targets: [%[3]q]}]}
- {job_name: volumes, scheme: https, metrics_path: "/api/v1/nodes/%[1]s/proxy/metrics", authorization: {credentials: %[2]q}, tls_config: {insecure_skip_verify: true}, static_configs: [{targets: [%[3]q]}]}
- {job_name: dcgm, static_configs: [{targets: [%[4]q]}]}
`, node, k.Token, u.Host, strings.TrimPrefix(exporter.URL, "http://")))
	var missing *enginetest.MissingError
	if errors.As(err, &missing) {
		t.Skipf("SKIPPED: %v", missing)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, k, 0, func(c *kubernetes.Config) {
		c.Images, c.NodeSelector = map[string]string{"base": enginetest.KubeletImage}, map[string]string{"rig": label}
		c.PrometheusURL, c.StorageClass = server.URL+"/", class
		c.DeviceMetrics = []kubernetes.DeviceMetrics{{Busy: "own_busy_percent", Node: "Hostname", Index: "own"}}
	})
	r.start()
	t.Run("volumes", func(t *testing.T) { testVolumes(t, r) })
	r.tb = t
	w := r.watch()
	t.Cleanup(func() {
		for _, q := range []string{"up", `{__name__=~"container_(cpu_usage_seconds_total|memory_.*_bytes)",pod=~"y-busy.*"}`} {
			if res, err := http.Get(server.URL + "/api/v1/query?query=" + url.QueryEscape(q)); err == nil && t.Failed() {
				b, _ := io.ReadAll(res.Body) // a help, no more
				_ = res.Body.Close()
				t.Logf("%s: %.3000s", q, b)
			}
		}
	})
	const held = 20 << 20
	r.apply(command("busy", fmt.Sprintf(`x=$(head -c %d /dev/zero | tr '\0' x); while :; do :; done`, held), func(a *adapterv1.Attempt) {
		a.Resources["memory"], a.Resources["cpu"] = 256<<20, 300
	}))
	r.running("busy")
	w.await("figures of the attempt", func(w *watched) bool {
		return len(w.measure.GetAttempts()) == 1 && w.measure.Attempts[0].CpuMicroseconds > 500_000 && w.measure.Attempts[0].MemoryBytes >= held
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("figure: %v", w.measure.Attempts[0])
	want := map[int32]*adapterv1.AcceleratorUse{
		0: {Index: 0, BusyPermille: 370, MemoryBusyBytes: gib, MemoryTotalBytes: 81560 << 20},
		1: {Index: 1, BusyPermille: 1000, MemoryBusyBytes: 70000 << 20, MemoryTotalBytes: 81560 << 20},
		2: {Index: 2, BusyPermille: 125}, 3: {Index: 3},
	}
	for i := range int32(4) {
		want[4+i] = &adapterv1.AcceleratorUse{Index: 4 + i, BusyPermille: 500, MemoryBusyBytes: gib, MemoryTotalBytes: 64 * gib}
	}
	for _, n := range w.measure.Nodes {
		for _, a := range n.Accelerators {
			if n.Name == node && proto.Equal(a, want[a.Index]) {
				delete(want, a.Index)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("nodes are %v, missing are %v", w.measure.Nodes, want)
	}
	r.remove([]string{"busy"}, nil)
	if st := r.ended("busy"); st.CpuMicroseconds < 500_000 || st.MemoryPeakBytes < held {
		t.Errorf("its end is %v, want what it used", st)
	}
}
