package pool_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/slurm"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// hpc is a real cluster of Slurm's that is a center of the platform.
type hpc struct {
	*world
	cluster *enginetest.Slurm
	wait    string // as long as this file is there, jobs do not begin
}

// slurm joins it.
func (w *world) slurm() *hpc {
	t := w.t
	t.Helper()
	dir, err := os.MkdirTemp("", "yhp")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755)) // slurmctld is another user's
	prolog, wait := filepath.Join(dir, "prolog"), filepath.Join(dir, "wait")
	must(t, os.WriteFile(prolog, []byte("#!/bin/sh\nwhile [ -e "+wait+" ]; do sleep 0.1; done\n"), 0o755))
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 1, Conf: "SchedulerParameters=batch_sched_delay=0,sched_interval=1\nPrologSlurmctld=" + prolog + "\n"})
	token, err := s.Token(t.Context(), "nobody", time.Hour)
	must(t, err)
	program := filepath.Join(s.Work, "yunhe") // where the cluster's user may run it
	text, err := os.ReadFile(binary)
	must(t, err)
	must(t, os.WriteFile(program, text, 0o755))
	config, err := json.Marshal(slurm.Config{URL: s.RESTURL, User: "nobody", Token: token, Directory: s.Work, OutputDir: s.Work, PollMillis: 200, PoolProgram: program, Requeue: true,
		Setup:      []string{"export OF_SETUP=1"},
		Partitions: []slurm.Partition{{Name: "main", Spec: "hpc", Price: 100, Quantity: map[string]int64{"cpu": 1000, "memory": 100 << 20}}}})
	must(t, err)
	file := filepath.Join(w.dir, "slurm.json")
	must(t, os.WriteFile(file, config, 0o600))
	h := &hpc{world: w, cluster: s, wait: wait}
	h.yunhe("plugin", "connect", "slurm", "hpc", "--config", file)
	w.until("the cluster is a center", func() bool {
		return regexp.MustCompile(`(?m)^hpc .*available`).MatchString(h.yunhe("center", "list"))
	})
	return h
}

// submit has a job compute there.
func (h *hpc) submit(shares, program, command string) string {
	h.t.Helper()
	out := h.yunhe("job", "submit", "--name", "hpc", "--image", "host", "--spec", "hpc", "--pool", shares, "--add-file", program+":program", "--command", command)
	id := regexp.MustCompile(`job_\w+`).FindString(out)
	if id == "" {
		h.t.Fatalf("submitted as %q", out)
	}
	return id
}

// slice is a job's in a state, nil if there is none.
func (h *hpc) slice(job string, state poolv1.Slice_State) *poolv1.Slice {
	h.t.Helper()
	res, err := h.bench.API.ListSlices(h.t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{state}})
	must(h.t, err)
	for _, x := range res.Slices {
		if x.JobId == job {
			return x
		}
	}
	return nil
}

// says waits until a job has written something.
func (h *hpc) says(job, what string) {
	h.t.Helper()
	log := ""
	defer func() {
		if h.t.Failed() {
			h.t.Logf("it says %q: %s", log, h.yunhe("job", "show", job))
		}
	}()
	h.until("job "+job+" says "+what, func() bool { log = h.yunhe("job", "logs", job); return strings.Contains(log, what) })
}

// TestSlurm: the jobs of a cluster of Slurm's compute on slices of a pool node outside of
// it, also when they have waited for longer than their passes were good; a slice is had
// as long as its command lives, also while that takes its time to end, and no longer.
func TestSlurm(t *testing.T) {
	w := open(t, false)
	vendors := w.vendors("one", "pocl.icd")
	_, stop := w.node("n1", vendors)
	w.online(1)
	w.group()
	h := w.slurm()
	const walks = `mkfifo f && exec 3<>f && { (while [ ! -e go ]; do sleep 0.2; done; echo >&3) & ./program walk 4 <f; }`

	// It has its slice, and knows how it came to it as little as elsewhere.
	first := h.submit("compute=40,memory=64MiB,group=g", w.bench.Program, `env | grep -c YUNHE_POOL_PASSES; echo setup $OF_SETUP; ./program add 3; echo from here; `+walks+`; ls -a ..`)
	h.says(first, "from here")
	w.until("its slice computes", func() bool {
		x := h.slice(first, poolv1.Slice_STATE_RUNNING)
		return x != nil && x.DeviceMicros > 0 && x.MemoryUsedBytes > 0
	})
	x := h.slice(first, poolv1.Slice_STATE_RUNNING)
	_, err := w.bench.API.ResizeSlice(t.Context(), &poolv1.ResizeSliceRequest{SliceId: x.SliceId, ComputePercent: 60, MemoryMib: 48})
	must(t, err)
	folder := func(job string) string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(h.cluster.Work, "hpc", "att_*", "log"))
		must(t, err)
		for _, log := range found {
			if text, err := os.ReadFile(log); err == nil && strings.Contains(h.yunhe("job", "logs", job), string(text)) {
				return filepath.Dir(log)
			}
		}
		t.Fatalf("job %s has no folder: %v", job, found)
		return ""
	}
	at := folder(first)
	must(t, os.WriteFile(filepath.Join(at, "files", "go"), nil, 0o644))
	h.yunhe("job", "wait", first)
	native := w.host().command(t.Context(), w.bench.Program, "add", "3")
	native.Env = append(os.Environ(), "OCL_ICD_VENDORS="+vendors)
	sum, err := native.Output()
	must(t, err)
	if log := h.yunhe("job", "logs", first); !regexp.MustCompile(`^0\nsetup 1\n`+regexp.QuoteMeta(string(sum))+`from here\n(.*\n)*walked [1-9]`).MatchString(log) || strings.Contains(log, ".passes") {
		t.Errorf("it printed %q", log)
	}
	w.until("its slice ends", func() bool { return h.slice(first, poolv1.Slice_STATE_ENDED) != nil })

	// It waits at the cluster. The passes that it came with are no good when it begins: the
	// node does not know them any more.
	must(t, os.WriteFile(h.wait, nil, 0o644))
	late := h.submit("compute=40,memory=64MiB,group=g", w.bench.Program, `./program add 3; `+walks)
	w.until("it waits at the cluster, with a slice", func() bool {
		return strings.Contains(h.yunhe("job", "show", late), "Slurm job") && h.slice(late, poolv1.Slice_STATE_ASSIGNED) != nil
	})
	stop()
	w.node("n1", vendors)
	w.online(1)
	must(t, os.Remove(h.wait))
	w.until("it is said to run", func() bool { return strings.Contains(h.yunhe("job", "show", late), "1 running") })
	h.says(late, string(sum))
	must(t, os.WriteFile(filepath.Join(folder(late), "files", "go"), nil, 0o644))
	h.yunhe("job", "wait", late)
	h.says(late, "walked")

	// It is told to end, and computes before it does.
	grace := h.submit("compute=40,memory=64MiB,group=g", w.bench.Program, `trap './program add 3; exit 0' TERM; echo up; while :; do sleep 0.1; done`)
	h.says(grace, "up")
	h.yunhe("job", "stop", grace)
	h.says(grace, string(sum))
	w.until("its slice ends", func() bool { return h.slice(grace, poolv1.Slice_STATE_ENDED) != nil })

	// All of it is killed.
	killed := h.submit("compute=40,memory=64MiB,group=g", w.bench.Program, `echo up; `+walks)
	h.says(killed, "up")
	w.until("its slice computes", func() bool { return h.slice(killed, poolv1.Slice_STATE_RUNNING) != nil })
	_, err = h.cluster.Run(t.Context(), "", "sh", "-c", `scancel --signal=KILL --full $(squeue -h -o %i)`)
	must(t, err)
	w.until("its slice ends", func() bool { return h.slice(killed, poolv1.Slice_STATE_ENDED) != nil })

	// Its slice is taken.
	taken := h.submit("compute=40,memory=64MiB,group=g", w.bench.Program, `echo up; `+walks)
	h.says(taken, "up")
	w.until("its slice computes", func() bool { return h.slice(taken, poolv1.Slice_STATE_RUNNING) != nil })
	_, err = w.bench.API.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: h.slice(taken, poolv1.Slice_STATE_RUNNING).SliceId})
	must(t, err)
	h.says(taken, "released")
}

// TestSlurmCUDA: so do those of CUDA's driver interface, on what plays a driver.
func TestSlurmCUDA(t *testing.T) {
	w := openCUDA(t)
	w.start("n1", false)
	w.online(1)
	h := w.slurm()
	id := h.submit("api=cuda,compute=40,memory=37MiB,group=g", w.far, "./program fill && ./program late")
	h.says(id, "filled 37, error 2")
	h.says(id, "then 700 700 700 700")
	h.yunhe("job", "wait", id)
	w.until("its slice ends", func() bool { return h.slice(id, poolv1.Slice_STATE_ENDED) != nil })
}
