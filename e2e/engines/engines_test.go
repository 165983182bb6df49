// Package engines_test joins a real Kubernetes, a real Slurm and a real compute
// gateway to one platform, as their operators do, and runs jobs over all three.
//
// It needs what `make deps-engines` installs and runs with `make test-engines`;
// without -engines it is left out, aloud.
package engines_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yunhe.dev/yunhe/adapters/kubernetes"
	"yunhe.dev/yunhe/adapters/slurm"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/measurement"
	"yunhe.dev/yunhe/internal/plugin"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/sdk/adapter"
)

var flagEngines = flag.Bool("engines", false, "run the tests that need real clusters")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(apptest.Main(m))
}

// backend is a center and what breaks and mends it.
type backend struct {
	center string
	spec   string // offered here only
	lose   func() error
	mend   func() error
}

// user owns the jobs at the Slurm cluster.
const user = "nobody"

func TestEngines(t *testing.T) {
	if !*flagEngines {
		t.Skip("SKIPPED: real clusters take minutes; run make test-engines")
	}
	bin, err := enginetest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	k := enginetest.KubernetesCluster(t)
	node, err := k.StartKubelet(t.Context(), enginetest.KubeletConfig{})
	var missing *enginetest.MissingError
	if errors.As(err, &missing) {
		t.Skipf("SKIPPED: %v", missing)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{})
	a := apptest.Start(t, apptest.Options{Config: func(c *app.Config) {
		for _, name := range []string{kubernetes.Name, slurm.Name} {
			c.Adapters.Plugins = append(c.Adapters.Plugins, plugin.Config{Name: name, Command: []string{bin, "driver", name}, OnDemand: true})
		}
	}})
	for _, id := range []string{"at-gateway", "at-kubernetes"} {
		createSpec(t, a, id, "100m", "64Mi")
	}
	createSpec(t, a, "bench", "1", "512Mi")
	g := a.Gateway(t)
	await(t, a, g.ID, registryv1.CenterStatus_CENTER_STATUS_AVAILABLE)
	if _, err := a.Admin.Registry.SetOffer(t.Context(), &registryv1.SetOfferRequest{ResourceSpecId: "at-gateway", AiCenterId: g.ID, Price: 100}); err != nil {
		t.Fatal(err)
	}
	connectKubernetes(t, a, k)
	connectSlurm(t, a, s)
	backends := []backend{
		{g.ID, "at-gateway", func() error { g.Stop(); return nil }, func() error { g.Start(); return nil }},
		{"k8s", "at-kubernetes", k.KillStore, func() error { return k.StartStore(t.Context()) }},
		{"hpc", "main", s.KillREST, func() error { return s.StartREST(t.Context()) }},
	}
	for _, b := range backends {
		await(t, a, b.center, registryv1.CenterStatus_CENTER_STATUS_AVAILABLE)
	}
	t.Run("by policy, over the standard's paths", func(t *testing.T) { testTrain(t, a, backends) })
	t.Run("by explicit center", func(t *testing.T) { testExplicit(t, a, backends) })
	t.Run("pause", func(t *testing.T) { testPause(t, a, backends) })
	t.Run("exec", func(t *testing.T) { testExec(t, a, backends[:2]) }) // Slurm's REST API has no such thing
	t.Run("measure", func(t *testing.T) { testMeasure(t, a) })
	t.Run("stop", func(t *testing.T) { testStop(t, a, backends) })
	t.Run("registry", func(t *testing.T) { testRegistry(t, a, k) })
	for _, b := range backends {
		t.Run("lose "+b.center, func(t *testing.T) { testLoss(t, a, b, backends) })
	}
}

func createSpec(t *testing.T, a *apptest.App, id, cpu, memory string) {
	t.Helper()
	_, err := a.Admin.Registry.CreateSpec(t.Context(), &registryv1.CreateSpecRequest{Spec: &registryv1.Spec{ResourceSpecId: id, ResourceSpecName: id,
		ResourceQuantity: map[string]string{"cpu": cpu, "memory": memory}, ServiceType: "batch", Price: 100}})
	if err != nil {
		t.Fatal(err)
	}
}

// connect makes an instance of a plug-in as an operator does.
func connect(t *testing.T, a *apptest.App, name, center string, config any) {
	t.Helper()
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	ready := func() bool {
		p, err := a.Admin.Adapters.GetPlugin(t.Context(), &adaptersv1.GetPluginRequest{Name: name})
		return err == nil && p.Version != "" // it has said what its configuration is
	}
	apptest.Until(t, "plug-in "+name+" is known", ready)
	if _, err := a.Admin.Adapters.CreateInstance(t.Context(), &adaptersv1.CreateInstanceRequest{Plugin: name, AiCenterId: center, Config: string(b)}); err != nil {
		t.Fatalf("connect %s: %v", center, err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		p, err := a.Admin.Adapters.GetPlugin(t.Context(), &adaptersv1.GetPluginRequest{Name: name})
		t.Logf("plug-in %s: %v, %v", name, p.GetList(), err)
	})
}

func connectKubernetes(t *testing.T, a *apptest.App, k *enginetest.Kubernetes) {
	kubeconfig, err := os.ReadFile(k.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	connect(t, a, kubernetes.Name, "k8s", kubernetes.Config{Kubeconfig: string(kubeconfig), Images: map[string]string{"host": enginetest.KubeletImage}, ImagePullPolicy: "Never",
		KeepNetworkOpen: true, Declared: adapter.Declared{Prices: map[string]int64{"small": 110, "bench": 200, "at-kubernetes": 100}}})
}

func connectSlurm(t *testing.T, a *apptest.App, s *enginetest.Slurm) {
	token, err := s.Token(t.Context(), user, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	connect(t, a, slurm.Name, "hpc", slurm.Config{URL: s.RESTURL, User: user, TokenFile: file, Directory: s.Work, OutputDir: s.Work, PollMillis: 200,
		Declared:   adapter.Declared{Prices: map[string]int64{"small": 120, "bench": 200}},
		Partitions: []slurm.Partition{{Name: "main", Price: 100, Quantity: map[string]int64{"cpu": 1000, "memory": 100 << 20}}}})
}

func status(t *testing.T, a *apptest.App, center string) registryv1.CenterStatus {
	t.Helper()
	c, err := a.Admin.Registry.GetCenter(t.Context(), &registryv1.GetCenterRequest{AiCenterId: center})
	if err != nil {
		return 0 // it is not there yet
	}
	return c.Status
}

func await(t *testing.T, a *apptest.App, center string, want registryv1.CenterStatus) {
	t.Helper()
	apptest.Until(t, fmt.Sprintf("center %s is %v", center, want), func() bool { return status(t, a, center) == want })
}

// task runs at one center.
func task(center, command string) *jobsv1.Task {
	return &jobsv1.Task{Name: strings.ToLower(center), Command: command, ImageId: "host", ResourceSpecId: "small", ReplicaNumber: 1, Constraints: &jobsv1.Constraints{Centers: []string{center}}}
}

func readLog(t *testing.T, a *apptest.App, id string, task int) string {
	t.Helper()
	out, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id, TaskIndex: int32(task)})
	if err != nil {
		t.Errorf("log of task %d: %v", task, err)
	}
	return out
}

// testTrain submits a job as annex A.1 has it, whose tasks ask for what one
// center each offers: the policies can only spread them over all three.
func testTrain(t *testing.T, a *apptest.App, backends []backend) {
	tasks := make([]string, len(backends))
	for i, b := range backends {
		tasks[i] = fmt.Sprintf(`{"name":"t%d","command":"echo trained %d","imageID":"host","resourceSpecID":%q,"replicaNumber":1}`, i, i, b.spec)
	}
	res := a.Admin.REST(t, "POST", "/openapi/v1/trainjob", `{"name":"three","tasks":[`+strings.Join(tasks, ",")+`]}`)
	var e struct {
		Data struct {
			JobID string `json:"jobID"`
		} `json:"data"`
	}
	if err := json.Unmarshal(res.Body, &e); err != nil || e.Data.JobID == "" {
		t.Fatalf("A.1: %d %s", res.Status, res.Body)
	}
	j := a.Admin.AwaitState(t, e.Data.JobID, jobsv1.State_STATE_SUCCEEDED)
	for i, b := range backends {
		if r := j.Replicas[i]; r.AiCenterId != b.center || r.ExitCode != 0 || r.Attempt != 1 {
			t.Errorf("task %d: %v, want it at %s", i, r, b.center)
		}
		if got := readLog(t, a, j.JobId, i); got != fmt.Sprintf("trained %d\n", i) {
			t.Errorf("task %d: log %q", i, got)
		}
	}
}

func testExplicit(t *testing.T, a *apptest.App, backends []backend) {
	j := &jobsv1.JobSpec{Name: "explicit"}
	for i, b := range backends {
		j.Tasks = append(j.Tasks, task(b.center, `echo "$WORD"; cat note`))
		j.Tasks[i].Env = map[string]string{"WORD": "it's at " + b.center}
		j.Tasks[i].Files = []*jobsv1.File{{Path: "note", Content: []byte("a note\n")}}
	}
	id := a.Admin.Submit(t, j)
	end := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
	for i, b := range backends {
		if r := end.Replicas[i]; r.AiCenterId != b.center || r.StartedAt == nil {
			t.Errorf("at %s: %v", b.center, r)
		}
		fails := a.Admin.Submit(t, &jobsv1.JobSpec{Name: "fails", Tasks: []*jobsv1.Task{task(b.center, fmt.Sprintf("exit %d", 10+i))}})
		if j := a.Admin.AwaitState(t, fails, jobsv1.State_STATE_FAILED); j.Replicas[0].ExitCode != int32(10+i) || j.Replicas[0].Reason != "exit" {
			t.Errorf("at %s: %v, want exit status %d", b.center, j.Replicas[0], 10+i)
		}
		if got := readLog(t, a, id, i); got != "it's at "+b.center+"\na note\n" {
			t.Errorf("at %s: log %q", b.center, got)
		}
	}
}

// testMeasure measures a center of one node and one node of a center of several,
// by the benchmark as a job.
func testMeasure(t *testing.T, a *apptest.App) {
	ctx := core.WithCaller(t.Context(), core.Caller{UserID: "admin", TenantID: "platform", AllTenants: true})
	for _, c := range []struct {
		center, node string
		decision     measurement.Decision // one node of several does not speak for the center
	}{{"k8s", "", measurement.Accepted}, {"hpc", "n2", measurement.Awaited}} {
		r, err := a.Measurement.Start(ctx, measurement.Request{CenterID: c.center, Node: c.node, SpecID: "bench", ImageID: "host"})
		if err != nil {
			t.Errorf("measure %s: %v", c.center, err)
			continue
		}
		apptest.Until(t, c.center+" is measured", func() bool {
			r, err = a.Measurement.Get(ctx, r.ID)
			return err == nil && r.State != measurement.Waiting && r.State != measurement.Running
		})
		if r.State != measurement.Succeeded || r.Performance <= 0 || r.Decision != c.decision || c.node != "" && r.Node != c.node || r.Node == "" {
			t.Errorf("%s: %+v", c.center, r)
			continue
		}
		t.Logf("figure: %s at node %s has factor %d, %d cores", c.center, r.Node, r.Performance, r.Result.Report.Cores)
		if c.decision == measurement.Awaited {
			if r, err = a.Measurement.Decide(ctx, r.ID, true); err != nil {
				t.Errorf("accept: %v", err)
			}
		}
		k, err := a.Admin.Registry.GetCenter(ctx, &registryv1.GetCenterRequest{AiCenterId: c.center})
		if err != nil || k.Performance != r.Performance {
			t.Errorf("%s has factor %d, %v, want the one that was measured, %d", c.center, k.GetPerformance(), err, r.Performance)
		}
	}
	_, err := a.Measurement.Start(ctx, measurement.Request{CenterID: "hpc", Node: "n9", SpecID: "bench"})
	if fault.KindOf(err) != fault.NotFound {
		t.Errorf("a node that is not there: %v", err)
	}
}

// testRegistry: 1,000 nodes that join a cluster are in the platform's registry, what
// changes at one of them too, and they leave it with the cluster. It says how soon.
func testRegistry(t *testing.T, a *apptest.App, k *enginetest.Kubernetes) {
	const count, changes = 1000, 40
	if err := k.StartKwok(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster, err := clientset.NewForConfig(&rest.Config{Host: k.URL, BearerToken: k.Token, TLSClientConfig: rest.TLSClientConfig{CAData: k.CA}, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx := core.WithCaller(t.Context(), core.Caller{AllTenants: true})
	nodes := func() int64 {
		c, err := a.Registry.GetCenter(ctx, "k8s")
		if err != nil || c.Nodes == nil {
			t.Fatalf("center k8s: %v, %v", c.Nodes, err)
		}
		return c.Nodes.Total()
	}
	before := nodes()
	name := func(i int) string { return fmt.Sprintf("fake-%04d", i) }
	var group errgroup.Group
	group.SetLimit(16)
	for i := range count {
		group.Go(func() error {
			_, err := cluster.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i), Labels: map[string]string{"fake": "yes"},
				Annotations: map[string]string{enginetest.FakeNodeKey: enginetest.FakeNodeValue}},
				Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "fake", Effect: corev1.TaintEffectNoSchedule}}}}, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	apptest.Until(t, "all nodes are in the registry", func() bool { return nodes() == before+count })
	t.Logf("figure: %d nodes are in the registry %s after the last was made", count, time.Since(begin).Round(time.Millisecond))
	var took []time.Duration
	for i := range changes {
		begin := time.Now()
		if _, err := cluster.CoreV1().Nodes().Patch(t.Context(), name(i*25), types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		apptest.Until(t, "the registry knows that a node takes no more", func() bool {
			n, err := a.Registry.GetNode(ctx, "k8s", name(i*25))
			return err == nil && n.State == registry.NodeDrained
		})
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	t.Logf("figure: a node's change is in the registry after %s (median), %s (longest of %d), the patch included", took[changes/2].Round(time.Millisecond), took[changes-1].Round(time.Millisecond), changes)
	if err := cluster.CoreV1().Nodes().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "fake=yes"}); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "they have left the registry", func() bool { return nodes() == before })
}

func testStop(t *testing.T, a *apptest.App, backends []backend) {
	j := &jobsv1.JobSpec{Name: "stopped"}
	for _, b := range backends {
		j.Tasks = append(j.Tasks, task(b.center, "echo up; sleep 600"))
	}
	id := a.Admin.Submit(t, j)
	a.Admin.Await(t, id, "all replicas run", func(j *jobsv1.Job) bool { return int(j.ReplicasRunning) == len(backends) })
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil {
		t.Fatal(err)
	}
	end := a.Admin.AwaitState(t, id, jobsv1.State_STATE_STOPPED)
	for _, r := range end.Replicas {
		if r.State != jobsv1.State_STATE_STOPPED {
			t.Errorf("replica is %v", r)
		}
	}
}

// testPause pauses and resumes runs that count: none counts while it is paused,
// and each goes on where it was.
func testPause(t *testing.T, a *apptest.App, backends []backend) {
	for _, b := range backends {
		id := a.Admin.Submit(t, &jobsv1.JobSpec{Name: "paused", Tasks: []*jobsv1.Task{task(b.center, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done")}})
		counts := func(more int) string {
			t.Helper()
			var out string
			apptest.Until(t, fmt.Sprintf("at %s %d more lines", b.center, more), func() bool {
				now, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id})
				if err == nil && out == "" {
					out = now
				}
				return err == nil && strings.Count(now, "\n") >= strings.Count(out, "\n")+more
			})
			return out
		}
		counts(3)
		for range 2 {
			if _, err := a.Admin.Jobs.PauseJob(t.Context(), &jobsv1.PauseJobRequest{JobId: id}); err != nil {
				t.Fatalf("pause at %s: %v", b.center, err)
			}
		}
		start := time.Now()
		a.Admin.AwaitState(t, id, jobsv1.State_STATE_PAUSED)
		t.Logf("at %s a run was paused %s after it was asked", b.center, time.Since(start).Round(10*time.Millisecond))
		// Jobs beside it go on; by the time they have, it would have counted on.
		readLog(t, a, id, 0) // with what was on its way
		a.Admin.AwaitState(t, a.Admin.Submit(t, &jobsv1.JobSpec{Name: "beside", Tasks: []*jobsv1.Task{task(b.center, "sleep 2")}}), jobsv1.State_STATE_SUCCEEDED)
		said := readLog(t, a, id, 0)
		a.Admin.AwaitState(t, a.Admin.Submit(t, &jobsv1.JobSpec{Name: "beside", Tasks: []*jobsv1.Task{task(b.center, "sleep 2")}}), jobsv1.State_STATE_SUCCEEDED)
		if now := readLog(t, a, id, 0); now != said {
			t.Errorf("at %s a paused run says %q after %q", b.center, now, said)
		}
		if _, err := a.Admin.Jobs.ResumeJob(t.Context(), &jobsv1.ResumeJobRequest{JobId: id}); err != nil {
			t.Fatalf("resume at %s: %v", b.center, err)
		}
		a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
		counts(3)
		if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil {
			t.Fatal(err)
		}
		end := a.Admin.AwaitState(t, id, jobsv1.State_STATE_STOPPED)
		if r := end.Replicas[0]; r.Attempt != 1 {
			t.Errorf("at %s: %v, want one attempt", b.center, r)
		}
		for i, line := range strings.Fields(readLog(t, a, id, 0)) {
			if line != strconv.Itoa(i+1) {
				t.Fatalf("at %s line %d is %q: it did not go on where it was", b.center, i, line)
			}
		}
	}
}

// testExec runs a command beside a run, over the API's websocket.
func testExec(t *testing.T, a *apptest.App, backends []backend) {
	for _, b := range backends {
		id := a.Admin.Submit(t, &jobsv1.JobSpec{Name: "exec", Tasks: []*jobsv1.Task{task(b.center, "echo mine >file; sleep 600")}})
		a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
		start := time.Now()
		query := url.Values{"command": {"sh", "-c", "until [ -s file ]; do sleep 0.1; done; cat file -; echo wrong >&2; exit 7"}}
		conn, _, err := websocket.Dial(t.Context(), a.Admin.URL+"/v1/jobs/"+id+"/tasks/0/replicas/0/exec?"+query.Encode(),
			&websocket.DialOptions{Subprotocols: []string{"v1.exec.yunhe"}, HTTPHeader: http.Header{"Authorization": {"Bearer " + a.Admin.Key}}})
		if err != nil {
			t.Fatalf("exec at %s: %v", b.center, err)
		}
		defer conn.CloseNow()                                        //nolint:errcheck // it has ended
		for _, frame := range [][]byte{[]byte("\x00input"), {255}} { // input, and its end
			if err := conn.Write(t.Context(), websocket.MessageBinary, frame); err != nil {
				t.Fatal(err)
			}
		}
		var said [4]strings.Builder // by channel
		for said[3].Len() == 0 {
			_, frame, err := conn.Read(t.Context())
			if err != nil || len(frame) == 0 || frame[0] > 3 {
				t.Fatalf("exec at %s: %q, %v", b.center, frame, err)
			}
			said[frame[0]].Write(frame[1:])
		}
		if said[1].String() != "mine\ninput" || said[2].String() != "wrong\n" || said[3].String() != `{"exit_code":7}` {
			t.Errorf("exec at %s: %q, %q, %q", b.center, &said[1], &said[2], &said[3])
		}
		t.Logf("a command at %s took %s", b.center, time.Since(start).Round(10*time.Millisecond))
		if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil {
			t.Fatal(err)
		}
		a.Admin.AwaitState(t, id, jobsv1.State_STATE_STOPPED)
	}
}

// testLoss cuts a center off while a job runs there: its status becomes
// unknown, others are not disturbed, and when it is back the truth is told.
func testLoss(t *testing.T, a *apptest.App, b backend, backends []backend) {
	id := a.Admin.Submit(t, &jobsv1.JobSpec{Name: "lost", Tasks: []*jobsv1.Task{task(b.center, "echo ran; sleep 20; echo over; exit 5")}})
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
	apptest.Until(t, "the log says that it runs", func() bool {
		out, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id})
		return err == nil && out == "ran\n"
	})
	if err := b.lose(); err != nil {
		t.Fatal(err)
	}
	await(t, a, b.center, registryv1.CenterStatus_CENTER_STATUS_UNKNOWN)
	for _, other := range backends {
		if other.center == b.center {
			continue
		}
		start := time.Now()
		a.Admin.AwaitState(t, a.Admin.Submit(t, &jobsv1.JobSpec{Name: "beside", Tasks: []*jobsv1.Task{task(other.center, "true")}}), jobsv1.State_STATE_SUCCEEDED)
		t.Logf("a job at %s while %s is lost took %s", other.center, b.center, time.Since(start).Round(10*time.Millisecond))
	}
	if err := b.mend(); err != nil {
		t.Fatal(err)
	}
	await(t, a, b.center, registryv1.CenterStatus_CENTER_STATUS_AVAILABLE)
	end := a.Admin.AwaitState(t, id, jobsv1.State_STATE_FAILED)
	if r := end.Replicas[0]; r.ExitCode != 5 || r.Attempt != 1 || r.Reason != "exit" {
		t.Errorf("after the loss: %v, want exit status 5 of one run", r)
	}
	if got := readLog(t, a, id, 0); got != "ran\nover\n" {
		t.Errorf("log %q, want that it ran once", got)
	}
}
