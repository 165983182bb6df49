package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/core"
)

// simState is a file for "sim run" with what a platform had and did.
type simState struct {
	Recorded string         `json:"recorded"`
	Centers  []simCenter    `json:"centers"`
	Jobs     []simJob       `json:"jobs"`
	left     map[string]int // why jobs were left out
	assumed  int            // jobs whose duration is what was expected, or so far
}

type simCenter struct {
	ID        string            `json:"id"`
	Region    string            `json:"region,omitempty"`
	CPU       string            `json:"cpu"`
	Memory    string            `json:"memory"`
	Resources map[string]string `json:"resources,omitempty"`
	Grade     int64             `json:"grade,omitempty"`
	Longitude *float64          `json:"longitude,omitempty"`
	Latitude  *float64          `json:"latitude,omitempty"`
	Speed     float64           `json:"speed,omitempty"`
	CoreBusy  float64           `json:"core_busy,omitempty"` // watts
	Offers    map[string]string `json:"offers,omitempty"`    // yuan per package and hour
}

type simJob struct {
	ID        string            `json:"id"`
	Tenant    string            `json:"tenant"`
	Priority  int32             `json:"priority,omitempty"`
	Arrival   float64           `json:"arrival"`
	Duration  float64           `json:"duration"`
	Expected  string            `json:"expected"`
	Replicas  int32             `json:"replicas"`
	CPU       string            `json:"cpu,omitempty"`
	Memory    string            `json:"memory,omitempty"`
	Resources map[string]string `json:"resources,omitempty"`
	Spec      string            `json:"spec"`
}

func simRecordCommand(c *cli) *cobra.Command {
	var since, out string
	cmd := &cobra.Command{
		Use: "record", Short: "Write what a live platform has and did, for \"sim run\"",
		Long: `Writes the platform's centers, and the jobs of the time given that you may see,
as a file that "yunhe sim run" takes for --nodes and --jobs.

A job's duration is the time from its first start to its end, times the speed of
the first center it ran at. Of jobs that still run it is the time until now; of
jobs that never started what they were expected to take, and without that they
are left out. Tasks of a job that need not start together become jobs of their
own, one for each replica.`,
		Example: `  yunhe sim record --since 168h > state.json
  yunhe sim run --nodes state.json --jobs state.json --policy balanced,lowest-cost`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			s, err := c.recordState(cmd.Context(), a, since)
			if err != nil {
				return err
			}
			data, err := encodeJSON(s)
			if err != nil {
				return err
			}
			if out == "" {
				if _, err := fmt.Fprintf(c.out, "%s\n", data); err != nil {
					return err
				}
			} else if err := os.WriteFile(out, append(data, '\n'), 0o644); err != nil {
				return err
			}
			c.note("recorded %d centers and %d jobs", len(s.Centers), len(s.Jobs))
			if s.assumed > 0 {
				c.note("%d of them had not ended: their durations are not what they will be", s.assumed)
			}
			for _, why := range slices.Sorted(maps.Keys(s.left)) {
				c.note("left out %d that %s", s.left[why], why)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&since, "since", "168h", "jobs submitted since: a time, a date, or how long ago (2h, 7d)")
	cmd.Flags().StringVar(&out, "out", "", "write to this file")
	return cmd
}

func (c *cli) recordState(ctx context.Context, a *api, since string) (*simState, error) {
	filter := &jobsv1.ListJobsRequest{}
	var err error
	if filter.CreatedAfter, err = c.parseTime("--since", since); err != nil {
		return nil, err
	}
	all := paging{all: true, limit: 1}
	centers, _, err := pages(all, func(size int32, token string) ([]*registryv1.Center, string, error) {
		res, err := a.registry.ListCenters(ctx, &registryv1.ListCentersRequest{PageSize: size, PageToken: token})
		return res.GetCenters(), res.GetNextPageToken(), err
	})
	if err != nil {
		return nil, err
	}
	specs, _, err := pages(all, func(size int32, token string) ([]*registryv1.Spec, string, error) {
		res, err := a.registry.ListSpecs(ctx, &registryv1.ListSpecsRequest{PageSize: size, PageToken: token})
		return res.GetSpecs(), res.GetNextPageToken(), err
	})
	if err != nil {
		return nil, err
	}
	jobs, _, err := listJobs(ctx, a, all, filter)
	if err != nil {
		return nil, err
	}
	s := &simState{Recorded: c.now().UTC().Format(time.RFC3339), Centers: []simCenter{}, Jobs: []simJob{}, left: map[string]int{}}
	speeds, bySpec := map[string]float64{}, map[string]*registryv1.Spec{}
	for _, x := range specs {
		bySpec[x.GetResourceSpecId()] = x
	}
	for _, k := range centers {
		s.center(k, specs)
		speeds[k.GetAiCenterId()] = 1
		if p := k.GetPerformance(); p > 0 {
			speeds[k.GetAiCenterId()] = float64(p) / 1000
		}
	}
	slices.SortFunc(jobs, func(a, b *jobsv1.Job) int { return a.GetCreatedAt().AsTime().Compare(b.GetCreatedAt().AsTime()) })
	if len(jobs) > 0 {
		first := jobs[0].GetCreatedAt().AsTime()
		for _, j := range jobs {
			s.job(j, j.GetCreatedAt().AsTime().Sub(first).Seconds(), c.now(), speeds, bySpec)
		}
	}
	return s, nil
}

func (s *simState) center(k *registryv1.Center, specs []*registryv1.Spec) {
	r := k.GetResources()
	x := simCenter{ID: k.GetAiCenterId(), Region: k.GetRegion(), CPU: strconv.FormatInt(r.GetCpu(), 10), Memory: "0",
		Grade: k.GetSecurityGrade(), Speed: float64(k.GetPerformance()) / 1000, CoreBusy: float64(k.GetPower().GetActiveMilliwattsPerCpu()) / 1000}
	if m := r.GetMemory(); m > 0 {
		x.Memory = fmt.Sprintf("%dMi", m)
	}
	for name, n := range map[string]int64{"gpu": r.GetGpu(), "npu": r.GetNpu(), "mlu": r.GetMlu()} {
		if n > 0 {
			if x.Resources == nil {
				x.Resources = map[string]string{}
			}
			x.Resources[name] = strconv.FormatInt(n, 10)
		}
	}
	if g := r.GetStorage(); g > 0 {
		if x.Resources == nil {
			x.Resources = map[string]string{}
		}
		x.Resources[core.Storage] = fmt.Sprintf("%dGi", g)
	}
	if g := k.GetGeometry(); g != nil {
		lon, lat := math.Round(g.GetLongitude()*1e6)/1e6, math.Round(g.GetLatitude()*1e6)/1e6
		x.Longitude, x.Latitude = &lon, &lat
	}
	for _, spec := range specs {
		for _, o := range spec.GetOffers() {
			if o.GetAiCenterId() == x.ID {
				if x.Offers == nil {
					x.Offers = map[string]string{}
				}
				x.Offers[spec.GetResourceSpecId()] = core.Fen(o.GetPrice()).String()
			}
		}
	}
	s.Centers = append(s.Centers, x)
}

func (s *simState) job(j *jobsv1.Job, arrival float64, now time.Time, speeds map[string]float64, specs map[string]*registryv1.Spec) {
	speed := 1.0
	if at := j.GetCenterIds(); len(at) > 0 && speeds[at[0]] > 0 {
		speed = speeds[at[0]]
	}
	for _, t := range j.GetSpec().GetTasks() {
		spec := specs[t.GetResourceSpecId()]
		if spec == nil {
			s.left["ask for a specification that is gone"]++
			continue
		}
		ran := 0.0
		switch {
		case j.GetStartedAt() != nil && j.GetEndedAt() != nil:
			ran = j.GetEndedAt().AsTime().Sub(j.GetStartedAt().AsTime()).Seconds() * speed
		case j.GetStartedAt() != nil:
			s.assumed++
			ran = now.Sub(j.GetStartedAt().AsTime()).Seconds() * speed
		case t.GetExpectedSeconds() > 0:
			s.assumed++
			ran = float64(t.GetExpectedSeconds())
		default:
			s.left["never started and say no expected time"]++
			continue
		}
		x := simJob{ID: j.GetJobId(), Tenant: j.GetTenantId(), Priority: j.GetSpec().GetPriority(), Arrival: math.Round(arrival*1e6) / 1e6,
			Duration: max(math.Round(ran*1e6)/1e6, 0.001), Expected: "unknown", Replicas: t.GetReplicaNumber(), Spec: t.GetResourceSpecId()}
		if e := t.GetExpectedSeconds(); e > 0 {
			x.Expected = strconv.FormatInt(e, 10)
		}
		for name, q := range spec.GetResourceQuantity() {
			switch name {
			case core.CPU:
				x.CPU = q
			case core.Memory:
				x.Memory = q
			default:
				if x.Resources == nil {
					x.Resources = map[string]string{}
				}
				x.Resources[name] = q
			}
		}
		if len(j.GetSpec().GetTasks()) > 1 {
			x.ID += "/" + t.GetName()
		}
		if j.GetSpec().GetGang() {
			s.Jobs = append(s.Jobs, x)
			continue
		}
		n := x.Replicas
		x.Replicas = 1
		for i := range n {
			y := x
			if n > 1 {
				y.ID = fmt.Sprintf("%s/%d", x.ID, i)
			}
			s.Jobs = append(s.Jobs, y)
		}
	}
}
