package adapters

import (
	"context"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// Volume is one at a center, as the center says.
type Volume struct {
	ID          string
	Bytes, Used int64
	UsedKnown   bool
	Enforced    bool // writing more than Bytes fails
	TenantID    string
}

func volume(v *adapterv1.Volume) Volume {
	return Volume{ID: v.GetVolumeId(), Bytes: v.GetBytes(), Used: v.GetUsedBytes(), UsedKnown: v.GetUsedKnown(), Enforced: v.GetEnforced(), TenantID: v.GetTenantId()}
}

// EnsureVolume asks a center to have a volume of at least the size. It returns
// fault.Exhausted if the center has no room, fault.Conflict if the volume
// cannot grow, fault.Unimplemented if the center has no volumes and
// fault.Unavailable while it does not answer. Asking again is safe.
func (s *Service) EnsureVolume(ctx context.Context, centerID, id, tenantID string, bytes int64) (Volume, error) {
	var res adapterv1.EnsureVolumeResponse
	err := s.ask(ctx, centerID, "ensurevolume", &adapterv1.EnsureVolumeRequest{VolumeId: id, TenantId: tenantID, Bytes: bytes}, &res)
	return volume(res.Volume), centerError(err, centerID, "keep volumes")
}

// RemoveVolume asks a center to delete a volume; one that is not there is
// deleted. fault.Conflict while a run has it. Asking again is safe.
func (s *Service) RemoveVolume(ctx context.Context, centerID, id string) error {
	err := s.ask(ctx, centerID, "removevolume", &adapterv1.RemoveVolumeRequest{VolumeId: id}, &adapterv1.RemoveVolumeResponse{})
	return centerError(err, centerID, "keep volumes")
}

// Volumes asks a center for its volumes.
func (s *Service) Volumes(ctx context.Context, centerID string) ([]Volume, error) {
	var res adapterv1.ListVolumesResponse
	if err := s.ask(ctx, centerID, "listvolumes", &adapterv1.ListVolumesRequest{}, &res); err != nil {
		return nil, centerError(err, centerID, "keep volumes")
	}
	out := make([]Volume, len(res.Volumes))
	for i, v := range res.Volumes {
		out[i] = volume(v)
	}
	return out, nil
}
