package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// accountedJob is a run of a job as slurmdbd has it: a job that Slurm put back
// has one for each run, the first one first.
type accountedJob struct {
	ID    number `json:"job_id"`
	Name  text   `json:"name"`
	Nodes text   `json:"nodes"`
	Exit  exit   `json:"exit_code"`
	State struct {
		Current words `json:"current"`
		Reason  text  `json:"reason"`
	} `json:"state"`
	Time struct {
		Start  number `json:"start"`
		End    number `json:"end"`
		Submit number `json:"submission"`
	} `json:"time"`
	Required struct {
		Memory number `json:"memory"`          // MiB, v0.0.38
		Node   number `json:"memory_per_node"` // from v0.0.40
	} `json:"required"`
	Steps []accountedStep `json:"steps"`
}

type accountedStep struct {
	State words `json:"state"`
	Time  struct {
		End   number   `json:"end"`
		Total duration `json:"total"`
	} `json:"time"`
	TRES struct {
		Requested struct {
			Max []struct {
				Type  text   `json:"type"`
				Count number `json:"count"`
			} `json:"max"`
		} `json:"requested"`
	} `json:"tres"`
}

type duration struct {
	Seconds number `json:"seconds"`
	Micro   number `json:"microseconds"`
}

// whole reports whether nothing will be added to a run any more.
func (j *accountedJob) whole() bool {
	return j.Time.End.or(0) > 0 && (len(j.Steps) > 0 || !j.ran()) &&
		!slices.ContainsFunc(j.Steps, func(s accountedStep) bool { return s.Time.End.or(0) == 0 })
}

func (j *accountedJob) ran() bool { return j.job().ran() }

// job is a run in the form of slurmctld's.
func (j *accountedJob) job() *job {
	nodes := j.Nodes
	if nodes == "None assigned" {
		nodes = ""
	}
	return &job{ID: j.ID, Name: j.Name, State: j.State.Current, Reason: j.State.Reason, Exit: j.Exit,
		Started: j.Time.Start, Ended: j.Time.End, Submitted: j.Time.Submit, Nodes: nodes}
}

// used is what a run used in all: the batch step and, if the command made
// some, its other steps.
func (j *accountedJob) used() (cpuMicroseconds, memoryPeak int64) {
	for _, s := range j.Steps {
		cpuMicroseconds += max(s.Time.Total.Seconds.or(0), 0)*second + max(s.Time.Total.Micro.or(0), 0)
		for _, t := range s.TRES.Requested.Max {
			if t.Type == "mem" {
				memoryPeak = max(memoryPeak, t.Count.or(0))
			}
		}
	}
	return cpuMicroseconds, memoryPeak
}

// told is how a run ended, nil if it has not.
func (j *accountedJob) told(f facts, version int) *adapterv1.Status {
	run := j.job()
	if run.State.has("REQUEUED") && !f.again {
		st := &adapterv1.Status{AttemptId: f.attempt, Phase: adapterv1.Phase_PHASE_ENDED, Reason: "lost", ExitCode: -1, Node: nodeOf(run),
			StartedAt: run.Started.or(0) * second, EndedAt: run.Ended.or(0) * second,
			Message: fmt.Sprintf("Slurm put job %d back after it had begun, to start it again, which requeue does not allow here", run.ID.n)}
		return st
	}
	f.jobs, f.owner, f.record = []*job{run}, 0, nil
	st := judge(f)
	if st.Phase != adapterv1.Phase_PHASE_ENDED {
		return nil
	}
	if st.Reason == "start_failed" && run.ran() && run.Exit == (exit{}) && version < 39 {
		// slurmrestd of v0.0.38 writes 0 for every code a job exits with.
		st.Reason, st.Message = "exit", fmt.Sprintf("Slurm job %d failed; with which code, accounting does not tell in v0.0.38", run.ID.n)
	}
	return st
}

// accounted asks slurmdbd for the run of a job that was this attempt's: the
// first, unless Slurm may run it again. It is nil if slurmdbd does not know it.
func (d *Driver) accounted(ctx context.Context, f facts, id int64) (*accountedJob, error) {
	version, err := d.api.agree(ctx)
	if err != nil {
		return nil, err
	}
	var run *accountedJob
	_, err = d.api.exchange(ctx, http.MethodGet, fmt.Sprintf("/slurmdb/v0.0.%d/job/%d", version, id), nil, func(r io.Reader) (answer, error) {
		return decode(r, "jobs", func(j *accountedJob) {
			// Numbers of jobs come again after years.
			if string(j.Name) == namePrefix+f.attempt && (run == nil || f.again || !run.ran()) {
				run = j
			}
		})
	})
	return run, err
}

// recall asks slurmdbd for the job of an attempt that was seen here, of which neither
// slurmctld nor, without output_dir, a folder tells: it may have ended while this
// driver was not running. The next looks at the jobs then end it as slurmdbd says.
func (d *Driver) recall(ctx context.Context, a *attempt, seen bool) error {
	d.mu.Lock()
	known := a.final != nil || a.finishing || len(a.jobs) > 0 || a.submitted != 0 || !a.doubt.IsZero() || !a.forgotten.IsZero()
	d.mu.Unlock()
	if !seen || known || !d.cfg.Accounting || d.folder != nil {
		return nil
	}
	var id int64
	query := url.Values{"job_name": {namePrefix + a.id}, "start_time": {slurmBegan}, "skip_steps": {"true"}}
	err := database(ctx, d.api, http.MethodGet, "jobs?"+query.Encode(), nil, "jobs", func(j *accountedJob) {
		if string(j.Name) == namePrefix+a.id && j.ran() {
			id = max(id, j.ID.or(0))
		}
	})
	var no *apiError
	if err != nil && !(errors.As(err, &no) && no.number() == nothingFound) {
		return d.accountFailed(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if id > 0 {
		a.submitted, a.at = id, time.Now()
	}
	return nil
}

// account adds to an end what slurmdbd knows, and returns it. What happened to
// a job comes there a moment later than it is told by slurmctld, so it is
// waited for, a little. sure: the status is right without it.
func (d *Driver) account(ctx context.Context, f facts, id int64, st *adapterv1.Status, sure bool) *adapterv1.Status {
	if !d.cfg.Accounting || id == 0 {
		return st
	}
	deadline := time.Now().Add(lateMost)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return st
		case <-timer.C:
		}
		run, err := d.accounted(ctx, f, id)
		if err != nil {
			d.log.Warn("slurmdbd does not say how a job ended", "attempt_id", f.attempt, "slurm_job", id, "error", err)
			return st
		}
		if run != nil && run.whole() || time.Now().After(deadline) {
			return d.accountFor(f, run, st, sure)
		}
		timer.Reset(4 * lateEvery)
	}
}

// accountFor merges what slurmdbd knows of a run, which may be nil.
func (d *Driver) accountFor(f facts, run *accountedJob, st *adapterv1.Status, sure bool) *adapterv1.Status {
	if run == nil {
		return st
	}
	_, version := d.api.said()
	told := run.told(f, version)
	if told == nil {
		return st
	}
	if sure {
		st.StartedAt, st.EndedAt, st.Node = told.StartedAt, told.EndedAt, told.Node
	} else {
		told.CpuMicroseconds, told.LogBytes = st.CpuMicroseconds, st.LogBytes
		st = told
	}
	cpu, memory := run.used()
	st.MemoryPeakBytes = memory
	// A cluster that watches memory without cgroups kills, and does not say why.
	if most := run.Required.Memory.or(run.Required.Node.or(0)) * mib; st.Reason == "signal" && st.ExitCode == 128+9 && most > 0 && memory > most {
		st.Reason, st.ExitCode, st.Message = "oom", -1, fmt.Sprintf("Slurm job %d used more memory than it asked for: %d of %d MiB", run.ID.n, memory/mib, most/mib)
	}
	if st.CpuMicroseconds == 0 {
		st.CpuMicroseconds = cpu
	}
	return st
}
