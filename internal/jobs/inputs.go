package jobs

import (
	"context"
	"fmt"
	"slices"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/network"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

const (
	maxInputs     = 32
	maxInputName  = 253
	maxInputBytes = 1 << 60
)

// SetNetwork says who knows where users are. It is called before the first
// call; without it no job can name an origin.
func (s *Service) SetNetwork(n *network.Service) { s.network = n }

// checkOrigin checks that there is the origin a job names.
func (s *Service) checkOrigin(ctx context.Context, c *core.Check, prefix string, j *jobsv1.JobSpec) error {
	if j.OriginId == "" {
		return nil
	}
	var own core.Check
	if own.ID(prefix+"origin_id", j.OriginId); own.Err() != nil {
		c.ID(prefix+"origin_id", j.OriginId)
		return nil
	}
	known := false
	if s.network != nil {
		var err error
		if known, err = s.network.HasOrigin(ctx, j.OriginId); err != nil {
			return err
		}
	}
	if !known {
		c.Add(prefix+"origin_id", "there is no origin %q; see yunhe network origin list", clip(j.OriginId))
	}
	return nil
}

// checkNeeds checks what a task says of its data, its quality and its
// precision, but for whether volumes are there.
func checkNeeds(c *core.Check, p string, t *jobsv1.Task, cat *registry.Catalog) {
	if !slices.Contains([]string{"", "FP64", "FP32", "FP16", "INT8"}, t.Precision) {
		c.Add(p+"precision", "must be FP64, FP32, FP16 or INT8, got %q", clip(t.Precision))
	}
	if q := t.Qos; q != nil {
		for _, f := range []struct {
			name  string
			value int64
			most  int64
		}{
			{"max_latency_us", q.MaxLatencyUs, 1e9}, {"max_jitter_us", q.MaxJitterUs, 1e9}, {"max_loss_ppm", q.MaxLossPpm, 1e6},
			{"min_bandwidth_kbps", q.MinBandwidthKbps, 1e12}, {"finish_seconds", q.FinishSeconds, maxTimeout}, {"min_availability_ppm", q.MinAvailabilityPpm, 1e6},
		} {
			c.Range(p+"qos."+f.name, f.value, 0, f.most)
		}
		if targets := qos(q); q.Required && targets == (place.QoS{Required: true}) {
			c.Add(p+"qos.required", "needs a target")
		}
	}
	if len(t.Inputs) > maxInputs {
		c.Add(p+"inputs", "must be at most %d, got %d", maxInputs, len(t.Inputs))
		return
	}
	for i, in := range t.Inputs {
		at := fmt.Sprintf("%sinputs[%d].", p, i)
		if in == nil {
			c.Add(at[:len(at)-1], "must not be null")
			continue
		}
		c.Text(at+"name", in.Name, true, 0, maxInputName+1)
		if slices.ContainsFunc(t.Inputs[:i], func(o *jobsv1.Input) bool { return o.GetName() == in.Name }) {
			c.Add(at+"name", "%q is given twice", clip(in.Name))
		}
		least := int64(1)
		if in.Volume != "" {
			least = 0
			c.Text(at+"volume", in.Volume, true, 64, 0)
		}
		c.Range(at+"size_bytes", in.SizeBytes, least, maxInputBytes)
		validateIDs(c, at+"centers", in.Centers)
		for k, id := range in.Centers {
			if cat.Centers[id] == nil {
				c.Add(fmt.Sprintf("%scenters[%d]", at, k), "there is no center %q; see yunhe center list", clip(id))
			}
		}
		if in.Stays && len(in.Centers) == 0 && in.Volume == "" {
			c.Add(at+"stays", "needs centers or a volume, where it is")
		}
	}
}

// placeInputs checks that the volumes which hold inputs are there, and says
// where each is and how much it holds.
func (s *Service) placeInputs(ctx context.Context, c *core.Check, prefix string, j *jobsv1.JobSpec) error {
	var refs []string
	for _, t := range j.Tasks {
		for _, in := range t.GetInputs() {
			if in.GetVolume() != "" {
				refs = append(refs, in.Volume)
			}
		}
	}
	if len(refs) == 0 {
		return nil
	}
	if s.vols == nil {
		c.Add(prefix+"tasks", "there are no volumes here")
		return nil
	}
	slices.Sort(refs)
	found, err := s.vols.Resolve(ctx, core.CallerFrom(ctx).TenantID, slices.Compact(refs))
	if err != nil {
		return err
	}
	for i, t := range j.Tasks {
		for k, in := range t.GetInputs() {
			if in.GetVolume() == "" {
				continue
			}
			at := fmt.Sprintf("%stasks[%d].inputs[%d].", prefix, i, k)
			v, ok := found[in.Volume]
			switch {
			case !ok:
				c.Add(at+"volume", "there is no volume %q; see yunhe volume list", clip(in.Volume))
				continue
			case len(in.Centers) > 0 && !slices.Equal(in.Centers, []string{v.CenterID}):
				c.Add(at+"centers", "must be empty with a volume: %s is at %s", v.ID, v.CenterID)
				continue
			}
			in.Volume, in.Centers = v.ID, []string{v.CenterID}
			if in.SizeBytes == 0 {
				in.SizeBytes = v.Bytes
			}
		}
	}
	return nil
}

// needs adds to a task of the engine what one of a job says of its data, its
// quality and its precision.
func needs(pt *place.Task, t *jobsv1.Task) {
	pt.Precision = t.Precision
	for _, in := range t.Inputs {
		pt.Data = append(pt.Data, place.DataNeed{Dataset: in.Name, Bytes: in.SizeBytes, At: in.Centers, Stay: in.Stays})
	}
	if t.Qos != nil {
		pt.QoS = qos(t.Qos)
	}
}

func qos(q *jobsv1.Qos) place.QoS {
	target := func(v int64) place.Fact {
		if v == 0 {
			return place.Fact{}
		}
		return place.Known(v)
	}
	return place.QoS{MaxLatencyMicros: target(q.MaxLatencyUs), MaxJitterMicros: target(q.MaxJitterUs), MaxLossPPM: target(q.MaxLossPpm),
		MinBandwidthKbps: target(q.MinBandwidthKbps), FinishSeconds: target(q.FinishSeconds), MinAvailabilityPPM: target(q.MinAvailabilityPpm), Required: q.Required}
}
