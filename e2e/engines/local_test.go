package engines_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"

	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/pool"
)

// TestLocalAtKubernetes: runs of jobs at a center of Kubernetes have shares of the pool's
// node on their own machine, in pods of a real kubelet: of OpenCL by that node's socket
// and a ring in memory, of CUDA with the driver itself on two cards, and no network. A
// command beside such a run has them, too; one that is stopped gives back what it had, and
// a slice that is taken back ends its program. The driver of CUDA is a stand-in, which
// the job brings.
func TestLocalAtKubernetes(t *testing.T) {
	w := poolBench(t)
	a := w.app
	w.kubernetes(filepath.Join(w.node, pool.SharedFolder))
	files := w.files("opencl", "cuda", "libcuda.so.1")
	job := func(name, command string, p *jobsv1.PoolShares) string {
		t.Helper()
		p.GroupId, p.Local = "team", true
		return a.Admin.Submit(t, &jobsv1.JobSpec{Name: name, Tasks: []*jobsv1.Task{{Name: name, Command: "export LD_LIBRARY_PATH=$PWD\n" + command, ImageId: "system", ResourceSpecId: "small", ReplicaNumber: 1,
			Network: p.Api != pool.CUDA, StopGraceSeconds: 1, Files: files, Pool: p}}})
	}
	two := func() *jobsv1.PoolShares {
		return &jobsv1.PoolShares{Api: pool.CUDA, ComputePercent: 50, MemoryMib: 37, Cards: 2}
	}
	printed := func(id string) string {
		t.Helper()
		end := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
		if r := end.Replicas[0]; r.AiCenterId != "k8s" || r.Attempt != 1 || r.Node == "" {
			t.Errorf("it ran as %v", r)
		}
		return readLog(t, a, id, 0)
	}
	of := func(id string) func(x *poolv1.Slice) bool {
		return func(x *poolv1.Slice) bool { return x.JobId == id }
	}

	opencl := job("opencl", "YUNHE_POOL_TRANSPORT=ring ./opencl add 3; grep -o ADDRESS=[a-z]*: $YUNHE_POOL_FILE", &jobsv1.PoolShares{ComputePercent: 37, MemoryMib: 64})
	if got, want := printed(opencl), w.native("add", "3")+"ADDRESS=unix:\n"; got != want {
		t.Errorf("of OpenCL it printed %q, want %q", got, want)
	}
	cuda := job("cuda", "./cuda linked cards 1000 && ./cuda proc env && ./cuda dlsym add 5", two())
	if got := printed(cuda); !strings.Contains(got, ", then 101\n") || strings.Count(got, "has 37 MiB, 36 of 37 free, then it uses 10, 6, 11\n") != 2 || !strings.HasSuffix(got, "filled 37, error 2\nagain 0 2\nsum 327680\n") {
		t.Errorf("of CUDA: %s", got)
	}
	apptest.Until(t, "the slices end with their runs", func() bool { return len(w.live(of(opencl)))+len(w.live(of(cuda))) == 0 })

	stopped := job("stopped", "sleep 1000 | ./cuda linked hold 37", two())
	w.holds(of(stopped))
	beside := exec.CommandContext(t.Context(), w.bin, "job", "exec", stopped, "--", "sh", "-c", "LD_LIBRARY_PATH=$PWD ./cuda linked shows")
	beside.Env = append(os.Environ(), "YUNHE_SERVER="+a.URL(), "YUNHE_KEY="+a.Admin.Key)
	if out, err := beside.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "0000:17:00.0 0000:65:00.0") {
		t.Errorf("a command beside it: %v: %s", err, out)
	}
	_, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: stopped})
	must(t, err)
	begun := time.Now()
	apptest.Until(t, "its slices end", func() bool { return len(w.live(of(stopped))) == 0 })
	t.Logf("figure: its slices had ended %s after the job was to stop", time.Since(begun).Round(10*time.Millisecond))
	taken := job("taken", "mkfifo /tmp/f; (sleep 1000 >/tmp/f &); ./cuda linked hold 37 </tmp/f; echo ended with $?", two())
	w.holds(of(taken))
	_, err = a.Admin.Pool.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: w.live(of(taken))[0].SliceId})
	must(t, err)
	if got := printed(taken); !strings.Contains(got, "ended with 137\n") {
		t.Errorf("when its slice was taken back it printed %q", got)
	}
}
