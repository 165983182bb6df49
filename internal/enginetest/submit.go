package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Load says how to submit: N jobs from Clients clients, each of which sends
// its next job when the last one was accepted.
type Load struct {
	Clients int
	N       int
	// Live submits jobs that may run at once, so that scheduling and running
	// compete with acceptance. Otherwise they are held (Slurm) or suspended
	// (Kubernetes): the best case for acceptance alone.
	Live bool
}

// Rate is a measured rate of submission: what was accepted, how long it took
// in all and for one submission.
type Rate struct {
	System    string  `json:"system"`
	Mode      string  `json:"mode"`
	Clients   int     `json:"clients"`
	N         int     `json:"n"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	// Lost is how many of the accepted jobs were gone after the server was
	// killed and started again; nil if it was not killed.
	Lost *int `json:"lost,omitempty"`
}

// MeasureSubmit calls submit N times from Clients goroutines and measures it.
// client is the number of the goroutine and i that of the submission, each
// from 0. The first error ends the measurement: a rate counts successes only.
// System and Mode are left to the caller.
func MeasureSubmit(ctx context.Context, load Load, submit func(ctx context.Context, client, i int) error) (Rate, error) {
	if load.Clients < 1 || load.N < load.Clients {
		return Rate{}, fmt.Errorf("measure submissions: need at least 1 client and a submission for each, got %d clients and %d submissions", load.Clients, load.N)
	}
	took := make([]time.Duration, load.N)
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for client := range load.Clients {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= load.N {
					return nil
				}
				sent := time.Now()
				if err := submit(ctx, client, i); err != nil {
					return fmt.Errorf("submission %d of client %d: %w", i, client, err)
				}
				took[i] = time.Since(sent)
			}
		})
	}
	if err := group.Wait(); err != nil {
		return Rate{}, err
	}
	seconds := time.Since(begin).Seconds()
	slices.Sort(took)
	return Rate{
		Clients: load.Clients, N: load.N, Seconds: round(seconds), PerSecond: round(float64(load.N) / seconds),
		P50: quantile(took, 0.50), P99: quantile(took, 0.99),
	}, nil
}

// quantile returns the q-quantile of sorted durations in milliseconds: the
// smallest that at least a share q of them does not exceed.
func quantile(sorted []time.Duration, q float64) float64 {
	i := max(int(math.Ceil(q*float64(len(sorted))))-1, 0)
	return round(float64(sorted[i]) / float64(time.Millisecond))
}

// round keeps three decimals.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// mode adds to a mode's name what the jobs do.
func (l Load) mode(name string) string {
	if l.Live {
		return name + " live"
	}
	return name + " held"
}

// slurmScript is the least a job can be.
const slurmScript = "#!/bin/sh\nexit 0\n"

// MeasureSbatch submits with the sbatch command, one process for each job.
//
// Slurm answers when the job is in slurmctld's memory and its script in a
// file; it saves the list of jobs every few seconds. These rates are therefore
// of acceptance, not of durability: see MeasureLoss.
func (s *Slurm) MeasureSbatch(ctx context.Context, load Load) (Rate, error) {
	args := []string{"--parsable", "--job-name=rate", "--output=/dev/null", "--ntasks=1", "--mem=50"}
	if !load.Live {
		args = append(args, "--hold")
	}
	rate, _, err := s.measure(ctx, load, "sbatch", func(ctx context.Context, _ int) (string, error) {
		out, err := s.Run(ctx, slurmScript, "sbatch", args...)
		return strings.TrimSpace(out), err
	})
	return rate, err
}

// MeasureREST submits to slurmrestd over connections that are kept open where
// the server allows it. See MeasureSbatch on durability.
func (s *Slurm) MeasureREST(ctx context.Context, load Load) (Rate, error) {
	rate, _, err := s.measureREST(ctx, load)
	return rate, err
}

// MeasureLoss is MeasureREST of held jobs, after which slurmctld is killed and
// started again, and asked which of the jobs it still knows.
func (s *Slurm) MeasureLoss(ctx context.Context, load Load) (Rate, error) {
	load.Live = false
	rate, ids, err := s.measureREST(ctx, load)
	if err != nil {
		return Rate{}, err
	}
	if err := errors.Join(s.KillController(), s.StartController(ctx)); err != nil {
		return Rate{}, err
	}
	missing, err := s.Missing(ctx, ids)
	if err != nil {
		return Rate{}, err
	}
	lost := len(missing)
	rate.Mode, rate.Lost = "slurmctld killed", &lost
	return rate, nil
}

func (s *Slurm) measureREST(ctx context.Context, load Load) (Rate, []string, error) {
	const user = "nobody"
	token, err := s.Token(ctx, user, time.Hour)
	if err != nil {
		return Rate{}, nil, err
	}
	body, err := json.Marshal(map[string]any{"script": slurmScript, "job": map[string]any{
		"name": "rate", "current_working_directory": s.Work, "standard_output": "/dev/null", "hold": !load.Live,
		"environment": map[string]string{"PATH": "/usr/bin:/bin"}, "tasks": 1, "memory_per_node": 50,
	}})
	if err != nil {
		return Rate{}, nil, fmt.Errorf("encode job: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: load.Clients, MaxConnsPerHost: load.Clients}}
	defer client.CloseIdleConnections()
	header := http.Header{
		"Content-Type": {"application/json"}, "X-Slurm-User-Name": {user}, "X-Slurm-User-Token": {token},
	}
	return s.measure(ctx, load, "slurmrestd", func(ctx context.Context, _ int) (string, error) {
		var answer struct {
			JobID int `json:"job_id"`
		}
		if err := exchange(ctx, client, http.MethodPost, s.RESTURL+"/slurm/"+slurmREST+"/job/submit", header, body, http.StatusOK, &answer); err != nil {
			return "", err
		}
		if answer.JobID == 0 {
			return "", errors.New("slurmrestd answered without a job_id")
		}
		return strconv.Itoa(answer.JobID), nil
	})
}

// measure submits and then asks slurmctld whether it has every job it took. It
// returns their IDs too.
func (s *Slurm) measure(ctx context.Context, load Load, mode string, submit func(context.Context, int) (string, error)) (Rate, []string, error) {
	ids := make([]string, max(load.N, 0))
	rate, err := MeasureSubmit(ctx, load, func(ctx context.Context, _, i int) (err error) {
		ids[i], err = submit(ctx, i)
		return err
	})
	if err != nil {
		return Rate{}, nil, err
	}
	rate.System, rate.Mode = "slurm", load.mode(mode)
	missing, err := s.Missing(ctx, ids)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("slurmctld accepted %d jobs and does not know %d of them, the first %s", load.N, len(missing), missing[0])
	}
	return rate, ids, err
}

// Missing returns those of the job IDs that slurmctld does not know.
func (s *Slurm) Missing(ctx context.Context, ids []string) ([]string, error) {
	out, err := s.Run(ctx, "", "squeue", "--noheader", "--states=all", "--format=%i")
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool)
	for _, id := range strings.Fields(out) {
		known[id] = true
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return known[id] }), nil
}

// MeasureJobs creates Jobs of batch/v1 over REST, each client on its own
// connection, and then asks the API server whether it has every one. It
// answers when etcd has the Job on disk, unless the control plane was started
// NotDurable.
func (k *Kubernetes) MeasureJobs(ctx context.Context, load Load) (Rate, error) {
	rate, prefix, err := k.createJobs(ctx, load)
	if err != nil {
		return Rate{}, err
	}
	lost, err := k.missing(ctx, prefix, load.N)
	if err == nil && lost > 0 {
		err = fmt.Errorf("the API server accepted %d jobs and does not know %d of them", load.N, lost)
	}
	return rate, err
}

// MeasureLoss is MeasureJobs of suspended jobs, after which etcd is killed and
// started again, and the API server asked which of the jobs it still knows.
func (k *Kubernetes) MeasureLoss(ctx context.Context, load Load) (Rate, error) {
	load.Live = false
	rate, prefix, err := k.createJobs(ctx, load)
	if err != nil {
		return Rate{}, err
	}
	if err := errors.Join(k.KillStore(), k.StartStore(ctx)); err != nil {
		return Rate{}, err
	}
	lost, err := k.missing(ctx, prefix, load.N)
	if err != nil {
		return Rate{}, err
	}
	rate.Mode, rate.Lost = "etcd killed", &lost
	return rate, nil
}

const jobsPath = "/apis/batch/v1/namespaces/default/jobs"

func (k *Kubernetes) header() http.Header {
	return http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + k.Token}}
}

// createJobs measures and returns the prefix of the jobs' names; the number of
// the submission follows it.
func (k *Kubernetes) createJobs(ctx context.Context, load Load) (Rate, string, error) {
	client := k.Client(load.Clients)
	defer client.CloseIdleConnections()
	// Names of its own let one control plane be measured again.
	prefix := "rate-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	rate, err := MeasureSubmit(ctx, load, func(ctx context.Context, _, i int) error {
		body := fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":%q},"spec":{"suspend":%t,"template":{"spec":`+
			`{"restartPolicy":"Never","containers":[{"name":"main","image":"none","command":["true"],`+
			`"resources":{"requests":{"cpu":"1","memory":"50Mi"}}}]}}}}`, prefix+strconv.Itoa(i), !load.Live)
		var answer struct{ Metadata struct{ UID string } }
		if err := exchange(ctx, client, http.MethodPost, k.URL+jobsPath, k.header(), []byte(body), http.StatusCreated, &answer); err != nil {
			return err
		}
		if answer.Metadata.UID == "" {
			return errors.New("the API server answered without a UID")
		}
		return nil
	})
	rate.System, rate.Mode = "kubernetes", load.mode("api")
	if k.alone {
		rate.Mode = "api alone" // whether held or live, nobody looks at the job
	}
	return rate, prefix, err
}

// missing counts the jobs 0..n-1 of a prefix that the API server does not have
// in its store.
func (k *Kubernetes) missing(ctx context.Context, prefix string, n int) (int, error) {
	client := k.Client(1)
	defer client.CloseIdleConnections()
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := exchange(ctx, client, http.MethodGet, k.URL+jobsPath, k.header(), nil, http.StatusOK, &list); err != nil {
		return 0, err
	}
	known := make(map[string]bool, len(list.Items))
	for _, item := range list.Items {
		known[item.Metadata.Name] = true
	}
	missing := 0
	for i := range n {
		if !known[prefix+strconv.Itoa(i)] {
			missing++
		}
	}
	return missing, nil
}

// exchange sends a JSON body, if any, and decodes the answer, which must have
// the status.
func exchange(ctx context.Context, client *http.Client, method, url string, header http.Header, body []byte, status int, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, url, err)
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read answer of %s: %w", url, err)
	}
	if resp.StatusCode != status {
		return fmt.Errorf("%s answers %s, want %d: %.500s", url, resp.Status, status, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("decode answer of %s: %w", url, err)
	}
	return nil
}
