package kill_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/pool"
)

// poolJob is a job whose run has half a device, and the program beside it.
func poolJob(t *testing.T, name, command string) *jobsv1.JobSpec {
	t.Helper()
	file, err := pool.TestProgram(t.TempDir())
	must(t, err)
	content, err := os.ReadFile(file)
	must(t, err)
	return &jobsv1.JobSpec{Name: name, MaxRetries: 1, Tasks: []*jobsv1.Task{{Name: name, Command: command, ImageId: "host", ResourceSpecId: spec, ReplicaNumber: 1, Network: true, ScratchMib: 4,
		Files: []*jobsv1.File{{Path: "program", Content: content, Executable: true}}, Pool: &jobsv1.PoolShares{GroupId: "team", ComputePercent: 50, MemoryMib: 32}}}}
}

// TestPoolJobs kills gateways, the platform, what runs a job, and the pool's node
// while a real program of a job computes on its share of the pool: what was killed
// beside the run changes nothing for it; a run that lost its share, or was killed, is
// run again with another one; nothing is left lent.
func TestPoolJobs(t *testing.T) {
	if !pool.Built() {
		t.Skip("SKIPPED: the accelerator pool was not built (scripts/pool.sh needs gcc and opencl-c-headers)")
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	servers, keys := startBus(t)
	c := startMany(t, ctx, many{groups: [][]string{roles}, copies: 1, database: enginetest.Postgres(t), bus: servers.URL()}, keys, 1)
	p := newPoolWorld(t, ctx, c)
	submit := func(j *jobsv1.JobSpec) string {
		res, err := c.jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: j})
		must(t, err)
		return res.JobId
	}
	// had returns the slices that a job ever had, the newest first.
	had := func(ctx context.Context, job string) (out []*poolv1.Slice, err error) {
		res, err := p.api.ListSlices(ctx, &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{1, 2, 3, 4}})
		for _, x := range res.GetSlices() {
			if x.JobId == job {
				out = append(out, x)
			}
		}
		return out, err
	}
	running := func(job string, n int) {
		t.Helper()
		must(t, c.poll(ctx, time.Minute, "a slice runs", func(ctx context.Context) (bool, error) {
			list, err := had(ctx, job)
			return len(list) == n && list[0].State == poolv1.Slice_STATE_RUNNING && list[0].MemoryUsedBytes > 0, err
		}))
	}
	ends := func(job string, attempts int32, slicesHad int) {
		t.Helper()
		must(t, c.poll(ctx, 2*time.Minute, "the job ends, and so do its slices", func(ctx context.Context) (bool, error) {
			j, err := c.jobs.GetJob(ctx, &jobsv1.GetJobRequest{JobId: job})
			if err != nil || j.State != jobsv1.State_STATE_SUCCEEDED && j.State != jobsv1.State_STATE_FAILED {
				return false, err
			}
			if r := j.Replicas[0]; j.State != jobsv1.State_STATE_SUCCEEDED || r.Attempt != attempts {
				t.Errorf("want success of run %d, got %v", attempts, j)
			}
			list, err := had(ctx, job)
			return len(list) == slicesHad && !slices.ContainsFunc(list, func(x *poolv1.Slice) bool { return x.State != poolv1.Slice_STATE_ENDED }), err
		}))
	}

	// 1. What is not the run's is killed: it computes on, on the same share.
	job := submit(poolJob(t, "stays", `mkfifo f && exec 3<>f && { (sleep 20; echo >&3) & ./program walk 4 <f; }`))
	running(job, 1)
	for _, n := range c.nodes {
		_, err := n.killAndRestart(ctx, 100*time.Millisecond)
		must(t, err)
	}
	ends(job, 1, 1)

	// 2. The run itself is killed, then the pool's node: its next run has another share.
	again := `mkfifo f && exec 3<>f && if [ $YUNHE_ATTEMPT = 1 ]; then ./program walk 4 <f; else ./program add 3; fi`
	job = submit(poolJob(t, "killed", again))
	running(job, 1)
	killPoolRun(t, c.dir)
	ends(job, 2, 2)
	job = submit(poolJob(t, "lost", again))
	running(job, 1)
	must(t, p.node.Kill())
	p.startNode(t)
	ends(job, 2, 2)
	must(t, c.poll(ctx, time.Minute, "nothing is lent", func(ctx context.Context) (bool, error) {
		n, err := p.only(ctx)
		return len(n.GetDevices()) == 1 && n.Devices[0].ComputeLentPercent == 0 && n.Devices[0].Slices == 0, err
	}))
	must(t, p.node.Stop())
	c.stop(t)
}

// killPoolRun kills the supervisor of the run that a gateway of the folder has.
func killPoolRun(t *testing.T, dir string) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	killed := 0
	for _, file := range found {
		line, _ := os.ReadFile(file) // it may have ended
		if args := strings.Split(string(line), "\x00"); len(args) > 1 && strings.HasPrefix(args[1], dir+"/") && strings.Contains(args[1], "/runs/att_") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			must(t, err)
			must(t, syscall.Kill(pid, syscall.SIGKILL))
			killed++
		}
	}
	if killed != 1 {
		t.Fatalf("%d supervisors of runs of %s were killed, want one", killed, dir)
	}
}
