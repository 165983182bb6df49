package pool_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/slurm"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/pool"
)

// hpc is a real cluster of Slurm's that is a center of the platform.
type hpc struct {
	*world
	cluster *enginetest.Slurm
	wait    string // as long as this file is there, jobs do not begin
}

// slurm joins it.
func (w *world) slurm(more ...func(*slurm.Config)) *hpc {
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
	c := slurm.Config{URL: s.RESTURL, User: "nobody", Token: token, Directory: s.Work, OutputDir: s.Work, PollMillis: 200, PoolProgram: program, Requeue: true,
		Setup:      []string{"export OF_SETUP=1"},
		Partitions: []slurm.Partition{{Name: "main", Spec: "hpc", Price: 100, Quantity: map[string]int64{"cpu": 1000, "memory": 100 << 20}}}}
	for _, change := range more {
		change(&c)
	}
	config, err := json.Marshal(c)
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
func (h *hpc) submit(shares, program, command string, more ...string) string {
	h.t.Helper()
	out := h.yunhe(append([]string{"job", "submit", "--name", "hpc", "--image", "host", "--spec", "hpc", "--pool", shares, "--add-file", program + ":program", "--command", command}, more...)...)
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

// TestSlurmLocal: a job at a cluster of Slurm's has shares of the pool's node on its own
// machine: of OpenCL by the node's shared socket and a ring in memory, of CUDA (a stand-in
// of the driver, which the job brings) with the driver itself, on two cards. Who runs jobs
// may look into the node's folder, and can open nothing there but that socket and a program.
func TestSlurmLocal(t *testing.T) {
	w := openCUDA(t)
	w.vendors = w.world.vendors("pocl", "pocl.icd")
	w.start("n1", false)
	w.online(1)
	dir := filepath.Join(w.dir, "n1")
	for at := dir; at != "/tmp" && at != "/"; at = filepath.Dir(at) {
		must(t, os.Chmod(at, 0o711))
	}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if d.Name() == pool.SharedFolder {
			return fs.SkipDir
		}
		if i, err := d.Info(); err == nil && i.Mode().Perm()&0o007 != 0 && d.Name() != "yunhe-pool-worker" {
			t.Errorf("%s is open to others: %v", path, i.Mode())
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	}))
	h := w.slurm(func(c *slurm.Config) {
		c.PoolFolder, c.PoolNodes = filepath.Join(dir, pool.SharedFolder), map[string]string{"n1": "n1", "n9": "other"}
	})
	native := exec.CommandContext(t.Context(), w.bench.Program, "add", "3")
	native.Env = append(os.Environ(), "OCL_ICD_VENDORS="+w.vendors)
	sum, err := native.Output()
	must(t, err)
	opencl := h.submit("local,compute=40,memory=64MiB,group=g", w.bench.Program, "YUNHE_POOL_TRANSPORT=ring ./program add 3; grep -o ADDRESS=[a-z]*: $YUNHE_POOL_FILE")
	h.yunhe("job", "wait", opencl)
	if got, want := h.yunhe("job", "logs", opencl), string(sum)+"ADDRESS=unix:\n"; got != want {
		t.Errorf("of OpenCL it says %q, want %q", got, want)
	}
	driver := []string{"--add-file", filepath.Join(w.driver, "libcuda.so.1") + ":libcuda.so.1", "--env", "LD_LIBRARY_PATH=."}
	cuda := h.submit("api=cuda,local,cards=2,compute=30,memory=37MiB,group=g", w.near, "./program linked cards 1000 && ./program proc env && ./program dlsym add 5", driver...)
	h.yunhe("job", "wait", cuda)
	if log := h.yunhe("job", "logs", cuda); !strings.Contains(log, ", then 101\n") || strings.Count(log, "has 37 MiB, 36 of 37 free, then it uses 10, 6, 11\n") != 2 || !strings.HasSuffix(log, "filled 37, error 2\nagain 0 2\nsum 327680\n") {
		t.Errorf("of CUDA it says %s", log)
	}
	if out := h.yunhe("job", "show", cuda, "-o", "json"); !regexp.MustCompile(`"node":\s*"n1"`).MatchString(out) {
		t.Errorf("it is shown as %s", out)
	}
	w.until("their slices end", func() bool {
		return h.slice(opencl, poolv1.Slice_STATE_ENDED) != nil && h.slice(cuda, poolv1.Slice_STATE_ENDED) != nil
	})
	// A slice that is taken back ends its program.
	taken := h.submit("api=cuda,local,compute=40,memory=37MiB,group=g", w.near, "mkfifo f; (sleep 1000 >f &); ./program linked hold 37 <f; echo ended with $?", driver...)
	w.until("it holds what it asked for", func() bool {
		x := h.slice(taken, poolv1.Slice_STATE_RUNNING)
		return x != nil && x.MemoryUsedBytes == 37<<20
	})
	_, err = w.bench.API.ReleaseSlice(t.Context(), &poolv1.ReleaseSliceRequest{SliceId: h.slice(taken, poolv1.Slice_STATE_RUNNING).SliceId})
	must(t, err)
	h.says(taken, "ended with 137")
}
