package engines_test

import (
	"testing"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// TestPoolAtKubernetes: a job's run in a pod of a real kubelet computes on a share
// of a card that a node outside the cluster lends, in an image that has OpenCL's
// loader and knows nothing of Yunhe; its share is resized while
// it computes; one that waits for its share says so; shares end with their runs.
func TestPoolAtKubernetes(t *testing.T) {
	w := poolBench(t)
	a := w.app
	w.kubernetes("")
	job := func(name, command string, compute int64) string {
		return a.Admin.Submit(t, &jobsv1.JobSpec{Name: name, Tasks: []*jobsv1.Task{{Name: name, Command: command, ImageId: "system", ResourceSpecId: "small", ReplicaNumber: 1, Network: true,
			Files: w.files("opencl"), Pool: &jobsv1.PoolShares{GroupId: "team", ComputePercent: compute, MemoryMib: 64}}}})
	}
	first := job("first", `env | grep -c YUNHE_POOL_PASSES; ./opencl add 3; mkfifo f && exec 3<>f && { (sleep 5; echo >&3) & ./opencl walk 4 <f; } >/tmp/walk && grep -c walked /tmp/walk`, 70)
	slices := func(state poolv1.Slice_State) []*poolv1.Slice {
		res, err := a.Admin.Pool.ListSlices(t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{state}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Slices
	}
	apptest.Until(t, "its slice runs", func() bool { return len(slices(poolv1.Slice_STATE_RUNNING)) == 1 })
	if x := slices(poolv1.Slice_STATE_RUNNING)[0]; x.JobId != first || x.ComputePercent != 70 || x.MemoryMib != 64 || x.GroupId != "team" {
		t.Errorf("its slice is %v", x)
	}
	// Its share is resized while it computes; the pod goes on.
	if x, err := a.Admin.Pool.ResizeSlice(t.Context(), &poolv1.ResizeSliceRequest{SliceId: slices(poolv1.Slice_STATE_RUNNING)[0].SliceId, ComputePercent: 60, MemoryMib: 48}); err != nil || x.ComputePercent != 60 || x.MemoryMib != 48 {
		t.Errorf("resized: %v, %v", x, err)
	}
	second := job("second", `./opencl add 3`, 50) // waits for the first
	apptest.Until(t, "the second says what it waits for", func() bool {
		res, err := a.Admin.Scheduler.ExplainJob(t.Context(), &schedulerv1.ExplainJobRequest{JobId: second})
		return err == nil && len(res.Waits) == 1 && res.Waits[0].Cause == schedulerv1.Wait_CAUSE_POOL
	})
	sum := w.native("add", "3")
	for id, text := range map[string]string{first: "0\n" + sum + "1\n", second: sum} {
		end := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
		if r := end.Replicas[0]; r.AiCenterId != "k8s" || r.Attempt != 1 {
			t.Errorf("%s ran as %v", id, r)
		}
		if got := readLog(t, a, id, 0); got != text {
			t.Errorf("%s printed %q, want %q", id, got, text)
		}
	}
	begun := time.Now()
	apptest.Until(t, "the slices end", func() bool { return len(slices(poolv1.Slice_STATE_ENDED)) == 2 })
	t.Logf("figure: slices had ended %s after their jobs", time.Since(begun).Round(10*time.Millisecond))
}
