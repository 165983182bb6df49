package slurm

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// What an account has used is summed from its jobs as slurmdbd has them: slurmrestd
// has no sums. Jobs that ended long ago do not change any more, so a process reads
// them once; later readings begin where all was over.

// bookedJob is a run of a job, as far as it is charged for.
type bookedJob struct {
	Account text `json:"account"`
	Time    struct {
		Start   number `json:"start"`
		End     number `json:"end"`
		Elapsed number `json:"elapsed"` // seconds without pauses, up to now if it runs
	} `json:"time"`
	TRES struct {
		Allocated []struct {
			Type  text   `json:"type"`
			Name  text   `json:"name"`
			Count number `json:"count"`
		} `json:"allocated"`
	} `json:"tres"`
}

// lateBookings is how long after its end slurmdbd may hear of a job: slurmctld keeps
// what it cannot send.
const lateBookings = 24 * time.Hour

// slurmBegan is before all jobs; without a time some versions tell of today's only.
const slurmBegan = "2000-01-01"

// nothingFound is ESLURM_REST_EMPTY_RESULT, for an empty list of jobs.
const nothingFound = 9003

// use is what the jobs of an account used.
type use struct{ cores, accelerators, runs int64 }

func (u *use) add(j *bookedJob, gres []string) {
	u.runs++
	seconds := j.Time.Elapsed.or(0)
	for _, t := range j.TRES.Allocated {
		switch {
		case t.Type == "cpu":
			u.cores += seconds * t.Count.or(0)
		case t.Type == "gres" && slices.Contains(gres, string(t.Name)):
			u.accelerators += seconds * t.Count.or(0)
		}
	}
}

// settled is what those jobs of an account used that ended before a time.
type settled struct {
	use
	until int64 // seconds since 1970
}

// usedBy sums what an account of a cluster has used, whoever's jobs they were.
func (d *Driver) usedBy(ctx context.Context, cluster, account string) (*adapterv1.AccountUse, error) {
	d.accounts.mu.Lock()
	old := d.accounts.used[account]
	d.accounts.mu.Unlock()
	var gres []string
	for _, g := range d.cfg.GRES {
		name, _, _ := strings.Cut(g, ":")
		gres = append(gres, name)
	}
	now := settled{use: old.use, until: max(old.until, time.Now().Add(-lateBookings).Unix())}
	total := old.use
	from := slurmBegan
	if old.until > 0 { // a day, as slurmdbd's time zone is not known
		from = time.Unix(old.until, 0).UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	}
	query := url.Values{"account": {account}, "cluster": {cluster}, "start_time": {from}, "skip_steps": {"true"}}
	err := database(ctx, d.api, http.MethodGet, "jobs?"+query.Encode(), nil, "jobs", func(j *bookedJob) {
		end := j.Time.End.or(0)
		if string(j.Account) != account || j.Time.Start.or(0) == 0 || end > 0 && end < old.until {
			return
		}
		total.add(j, gres)
		if end > 0 && end < now.until {
			now.add(j, gres)
		}
	})
	var no *apiError
	if err != nil && !(errors.As(err, &no) && no.number() == nothingFound) {
		return nil, err
	}
	d.accounts.mu.Lock()
	defer d.accounts.mu.Unlock()
	if now.until > d.accounts.used[account].until { // no other call was faster
		d.accounts.used[account] = now
	}
	return &adapterv1.AccountUse{CpuCoreSeconds: total.cores, AcceleratorSeconds: total.accelerators, Runs: total.runs}, nil
}

// tellUse adds to accounts what they have used, and leaves it out where slurmdbd does
// not say: who lists accounts needs their names first.
func (d *Driver) tellUse(ctx context.Context, cluster string, accounts []*adapterv1.Account) {
	var group errgroup.Group
	group.SetLimit(workers)
	for _, a := range accounts {
		group.Go(func() error {
			u, err := d.usedBy(ctx, cluster, a.Name)
			if err != nil {
				d.log.Warn("slurmdbd does not say what an account has used", "account", a.Name, "error", d.accountFailed(err))
				return nil
			}
			a.Use = u
			return nil
		})
	}
	_ = group.Wait() // none fails
}
