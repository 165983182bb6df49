package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	meteringv1 "yunhe.dev/yunhe/gen/yunhe/metering/v1"
	monitorv1 "yunhe.dev/yunhe/gen/yunhe/monitor/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/registry"
)

func TestMain(m *testing.M) { os.Exit(apptest.Main(m)) }

func command(name, text string) *jobsv1.JobSpec {
	j := apptest.Job(name, 1)
	j.Tasks[0].Command = text
	return j
}

// Everything here runs for real, on one platform with one gateway.
func TestGateway(t *testing.T) {
	t.Parallel()
	apptest.NeedRoot(t)
	a := apptest.Start(t, apptest.Options{})
	g := a.Gateway(t)
	for _, c := range []struct {
		name string
		f    func(*testing.T, *apptest.App, *apptest.Gateway)
	}{
		{"declares its machine", testMachine},
		{"its figures come on a timer", testTimer},
		{"measures what it does and the way to it", testFigures},
		{"measures what a run uses", testRunFigures},
		{"runs, ends and fails", testRuns},
		{"a long log arrives whole", testBigLog},
		{"stopped", testStop},
		{"wall time", testWallTime},
		{"a log is read while it is written", testLiveLog},
		{"an image that is not there", testUnknownImage},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(t, a, g) })
	}
	// In turn: these restart things.
	t.Run("what was recorded never runs again", func(t *testing.T) { testLateDuplicate(t, a, g) })
	t.Run("seen and not known is lost", func(t *testing.T) { testLost(t, a, g) })
	t.Run("a run outlives its gateway", func(t *testing.T) { testAdopt(t, a, g) })
	t.Run("a report waits for the platform", func(t *testing.T) { testPlatformAway(t, a) })
}

func testMachine(t *testing.T, a *apptest.App, g *apptest.Gateway) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var nodes *registryv1.ListNodesResponse
	apptest.Until(t, "the platform knows the machine", func() bool {
		if nodes, err = a.Admin.Registry.ListNodes(t.Context(), &registryv1.ListNodesRequest{AiCenterId: g.ID}); err != nil {
			t.Fatal(err)
		}
		return len(nodes.Nodes) > 0
	})
	if n := nodes.Nodes[0]; len(nodes.Nodes) != 1 || n.Name != name || n.Labels["cpu.threads"] == "" || n.Capacity["memory"] == "" || n.Allocatable["cpu"] == "" {
		t.Errorf("nodes %v", nodes.Nodes)
	}
}

// testTimer: use is measured and told every two seconds, without being asked.
func testTimer(t *testing.T, a *apptest.App, g *apptest.Gateway) {
	var at []time.Time
	apptest.Until(t, "four measurements have come", func() bool {
		k, err := a.Admin.Registry.GetCenter(t.Context(), &registryv1.GetCenterRequest{AiCenterId: g.ID})
		if err != nil {
			t.Fatal(err)
		}
		if now := k.GetMonitoring().GetMeasuredAt().AsTime(); k.GetMonitoring().GetMeasuredAt() != nil && (len(at) == 0 || now.After(at[len(at)-1])) {
			at = append(at, now)
		}
		return len(at) == 4
	})
	// The first may have been a declaration's. On a busy machine one may be late
	// and the next in time.
	if took := at[3].Sub(at[1]); took < time.Second || took > 30*time.Second {
		t.Errorf("measurements at %v: %v for two, want about 4s", at, took)
	}
}

// What the machine does, and how good the way to it is, is measured for real.
func testFigures(t *testing.T, a *apptest.App, g *apptest.Gateway) {
	var body string
	apptest.Until(t, "the platform has the gateway's figures", func() bool {
		body = string(a.Admin.REST(t, "GET", "/v1/centers/"+g.ID+"/figures", "").Body)
		return strings.Contains(body, `"peer":"platform"`) && strings.Contains(body, "latencySeconds") && strings.Contains(body, "cpuBusyRatio")
	})
	if !strings.Contains(body, `"lossRatio":0`) || strings.Contains(body, `"refused":["`) {
		t.Errorf("figures of a gateway on this machine: %s", body)
	}
}

// testRunFigures: what a run that burns a core and holds memory uses is known
// while it runs, and not any more when it has ended.
func testRunFigures(t *testing.T, a *apptest.App, g *apptest.Gateway) {
	const held = 32 << 20
	id := a.Admin.Submit(t, command("busy", fmt.Sprintf(`x=$(head -c %d /dev/zero | tr '\0' x); while :; do :; done`, held)))
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
	list := func() []*monitorv1.RunFigures {
		t.Helper()
		res, err := a.Admin.Monitor.ListRunFigures(t.Context(), &monitorv1.ListRunFiguresRequest{JobId: id})
		if err != nil {
			t.Fatal(err)
		}
		return res.Runs
	}
	var runs []*monitorv1.RunFigures
	apptest.Until(t, "what the run uses is known", func() bool {
		runs = list()
		return len(runs) == 1 && runs[0].CpuCores > 0.1 && runs[0].MemoryBytes >= held
	})
	if r := runs[0]; r.AiCenterId != g.ID || r.JobId != id || r.TaskName != "main" || r.CpuCores > 2 || r.ReservedCpuCores <= 0 || r.ReservedMemoryBytes < r.MemoryBytes {
		t.Errorf("figures %v", r)
	}
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil {
		t.Fatal(err)
	}
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_STOPPED)
	if runs := list(); len(runs) != 0 {
		t.Errorf("figures of what has ended: %v", runs)
	}
	res, err := a.Admin.Monitor.QueryRange(t.Context(), &monitorv1.QueryRangeRequest{Query: `yunhe_run_cpu_cores{job_id="` + id + `"}`})
	if err != nil || len(res.Series) != 1 {
		t.Errorf("what it used before: %v, %v", res, err)
	}
}

func testRuns(t *testing.T, a *apptest.App, g *apptest.Gateway) {
	j := command("real", `cat dir/in; echo "$GREETING $YUNHE_REPLICA_INDEX of $YUNHE_REPLICA_COUNT"`)
	j.Tasks[0].ReplicaNumber, j.Tasks[0].Env = 2, map[string]string{"GREETING": "hello"}
	j.Tasks[0].Files = []*jobsv1.File{{Path: "dir/in", Content: []byte("from a file\n")}}
	id := a.Admin.Submit(t, j)
	end := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
	for i, r := range end.Replicas {
		log, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id, ReplicaIndex: int32(i)})
		if want := "from a file\nhello " + string(rune('0'+i)) + " of 2\n"; err != nil || log != want {
			t.Errorf("log of %d: %q, %v, want %q", i, log, err, want)
		}
		if r.AiCenterId != g.ID || r.StartedAt == nil || !r.EndedAt.AsTime().After(r.StartedAt.AsTime()) || r.CpuMicroseconds <= 0 || r.MemoryPeakBytes <= 0 {
			t.Errorf("replica %v", r)
		}
	}
	usage, err := a.Admin.Metering.ListUsage(t.Context(), &meteringv1.ListUsageRequest{JobId: id})
	if err != nil || len(usage.Usage) != 2 {
		t.Errorf("usage %v, %v", usage, err)
	}
	id = a.Admin.Submit(t, command("fails", "echo no >&2; exit 3"))
	if j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_FAILED); j.Replicas[0].ExitCode != 3 || j.Reason != "exit" {
		t.Errorf("exit 3: %v", j)
	}
	id = a.Admin.Submit(t, command("killed", "kill -KILL $$"))
	if j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_FAILED); j.Reason != "signal" || !strings.Contains(j.Replicas[0].Message, "SIGKILL") {
		t.Errorf("killed: %v", j)
	}
}

func testBigLog(t *testing.T, a *apptest.App, _ *apptest.Gateway) {
	id := a.Admin.Submit(t, command("long", "seq 1 120000"))
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
	log, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id})
	if err != nil || !strings.HasPrefix(log, "1\n2\n3\n") || !strings.HasSuffix(log, "\n119999\n120000\n") || strings.Count(log, "\n") != 120000 {
		t.Errorf("%d lines in %d bytes, %v", strings.Count(log, "\n"), len(log), err)
	}
}

func testStop(t *testing.T, a *apptest.App, _ *apptest.Gateway) {
	id := a.Admin.Submit(t, command("stopped", `trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done`))
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
	apptest.Until(t, "it is up", func() bool {
		log, _ := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id})
		return strings.Contains(log, "up\n")
	})
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil {
		t.Fatal(err)
	}
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_STOPPED)
	if log, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id}); err != nil || !strings.Contains(log, "asked\n") {
		t.Errorf("log %q, %v", log, err)
	}
}

func testWallTime(t *testing.T, a *apptest.App, _ *apptest.Gateway) {
	j := command("wall", "exec sleep 1000")
	j.Tasks[0].TimeoutSeconds, j.Tasks[0].StopGraceSeconds = 1, 1
	id := a.Admin.Submit(t, j)
	if j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_FAILED); j.Reason != "wall_time" {
		t.Errorf("ended for %q: %v", j.Reason, j)
	}
}

func testLiveLog(t *testing.T, a *apptest.App, _ *apptest.Gateway) {
	id := a.Admin.Submit(t, command("live", "echo 0123456789; exec sleep 1000"))
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
	apptest.Until(t, "the last bytes are there", func() bool {
		log, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id, Offset: -4})
		return err == nil && log == "789\n"
	})
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil {
		t.Fatal(err)
	}
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_STOPPED)
}

func testUnknownImage(t *testing.T, a *apptest.App, _ *apptest.Gateway) {
	if _, err := a.Registry.CreateImage(t.Context(), registry.Image{ID: "ghost", Name: "Ghost", Everywhere: true}); err != nil {
		t.Fatal(err)
	}
	j := command("ghost", "true")
	j.Tasks[0].ImageId = "ghost"
	id := a.Admin.Submit(t, j)
	if j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_FAILED); j.Reason != "refused" || !strings.Contains(j.Message, `"ghost"`) || j.StartedAt != nil {
		t.Errorf("refused: %v", j)
	}
}

// testLateDuplicate has the platform's message about an ended attempt come
// again, before and after a restart.
func testLateDuplicate(t *testing.T, a *apptest.App, g *apptest.Gateway) {
	id := a.Admin.Submit(t, command("once", "echo once"))
	j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
	at := &adapterv1.Attempt{AttemptId: j.Replicas[0].AttemptId, JobId: id, Name: "main", Command: "echo twice", ImageId: "host", Resources: map[string]int64{"cpu": 1000, "memory": 64 << 20}}
	ledger := filepath.Join(g.Dir, "recorded")
	apptest.Until(t, "the attempt is in the ledger", func() bool {
		b, _ := os.ReadFile(ledger)
		return strings.Contains(string(b), at.AttemptId)
	})
	for range 2 {
		a.Adapters.Send(g.ID, []*adapterv1.Attempt{at})
		a.Admin.AwaitState(t, a.Admin.Submit(t, command("after", "true")), jobsv1.State_STATE_SUCCEEDED) // sent later to the same outbox
		found, err := filepath.Glob(filepath.Join(g.Dir, "runs", at.AttemptId+"*"))
		if err != nil || len(found) != 0 {
			t.Errorf("it ran again: %v, %v", found, err)
		}
		if log, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id}); err != nil || log != "once\n" {
			t.Errorf("log %q, %v", log, err)
		}
		g.Stop()
		g.Start()
	}
}

func testLost(t *testing.T, a *apptest.App, g *apptest.Gateway) {
	const id = "att_seen_elsewhere"
	// Once the gateway is back: nothing would send this attempt again.
	a.Admin.AwaitState(t, a.Admin.Submit(t, command("back", "true")), jobsv1.State_STATE_SUCCEEDED)
	a.Adapters.Send(g.ID, []*adapterv1.Attempt{{AttemptId: id, Command: "true", ImageId: "host", Seen: true, Resources: map[string]int64{"cpu": 1000, "memory": 64 << 20}}})
	// It is reported as ended, the platform records it (it knows nothing of
	// it), and the ledger keeps it.
	apptest.Until(t, "the lost attempt is recorded", func() bool {
		b, _ := os.ReadFile(filepath.Join(g.Dir, "recorded"))
		return strings.Contains(string(b), id)
	})
	if found, err := filepath.Glob(filepath.Join(g.Dir, "runs", id+"*")); err != nil || len(found) != 0 {
		t.Errorf("it ran: %v, %v", found, err)
	}
}

func testAdopt(t *testing.T, a *apptest.App, g *apptest.Gateway) {
	long := a.Admin.Submit(t, command("long", "echo up; exec sleep 1000"))
	first := a.Admin.AwaitState(t, long, jobsv1.State_STATE_RUNNING).Replicas[0]
	g.Stop()
	g.Start()
	apptest.Until(t, "the adopted run's log can be read", func() bool {
		log, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: long})
		return err == nil && log == "up\n"
	})
	short := a.Admin.Submit(t, command("short", "sleep 1; echo over"))
	a.Admin.AwaitState(t, short, jobsv1.State_STATE_RUNNING)
	g.Stop() // it ends while nobody looks, or just after
	g.Start()
	if j := a.Admin.AwaitState(t, short, jobsv1.State_STATE_SUCCEEDED); j.Replicas[0].Attempt != 1 {
		t.Errorf("ran again: %v", j)
	}
	if log, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: short}); err != nil || log != "over\n" {
		t.Errorf("log %q, %v", log, err)
	}
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: long}); err != nil {
		t.Fatal(err)
	}
	end := a.Admin.AwaitState(t, long, jobsv1.State_STATE_STOPPED).Replicas[0]
	if end.AttemptId != first.AttemptId || !end.StartedAt.AsTime().Equal(first.StartedAt.AsTime()) {
		t.Errorf("was %v, is %v", first, end)
	}
}

func testPlatformAway(t *testing.T, a *apptest.App) {
	id := a.Admin.Submit(t, command("away", "sleep 1; seq 1 5000"))
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
	a.Restart()
	if j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED); j.Replicas[0].Attempt != 1 {
		t.Errorf("ran again: %v", j)
	}
	if log, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id}); err != nil || strings.Count(log, "\n") != 5000 {
		t.Errorf("%d lines, %v", strings.Count(log, "\n"), err)
	}
}
