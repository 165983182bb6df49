package slurm

import (
	"context"
	"fmt"
	"io"
	"net/http"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// accountedJob is a job as slurmdbd has it.
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
}

// accounted asks slurmdbd how a job ended that slurmctld has dropped. It
// returns nil if slurmdbd does not know it, or not as ended.
func (d *Driver) accounted(ctx context.Context, f facts, id int64) (*adapterv1.Status, error) {
	version, err := d.api.agree(ctx)
	if err != nil {
		return nil, err
	}
	var last *accountedJob
	_, err = d.api.exchange(ctx, http.MethodGet, fmt.Sprintf("/slurmdb/v0.0.%d/job/%d", version, id), nil, func(r io.Reader) (answer, error) {
		return decode(r, "jobs", func(j *accountedJob) {
			if string(j.Name) == namePrefix+f.attempt { // numbers of jobs come again after years
				last = j
			}
		})
	})
	if err != nil || last == nil {
		return nil, err
	}
	nodes := last.Nodes
	if nodes == "None assigned" {
		nodes = ""
	}
	f.jobs = []*job{{ID: last.ID, Name: last.Name, State: last.State.Current, Reason: last.State.Reason, Exit: last.Exit,
		Started: last.Time.Start, Ended: last.Time.End, Submitted: last.Time.Submit, Nodes: nodes}}
	if st := judge(f); st.Phase == adapterv1.Phase_PHASE_ENDED {
		return st, nil
	}
	return nil, nil
}
