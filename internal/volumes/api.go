package volumes

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	volumesv1 "yunhe.dev/yunhe/gen/yunhe/volumes/v1"
	"yunhe.dev/yunhe/gen/yunhe/volumes/v1/volumesv1connect"
	"yunhe.dev/yunhe/internal/rpc"
)

type handler struct{ s *Service }

// Register mounts the component's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(volumesv1connect.NewVolumeServiceHandler(handler{s}, srv.Options()...))
}

func (h handler) CreateVolume(ctx context.Context, r *volumesv1.CreateVolumeRequest) (*volumesv1.Volume, error) {
	return answer(h.s.Create(ctx, r.Name, r.AiCenterId, r.Bytes))
}

func (h handler) GetVolume(ctx context.Context, r *volumesv1.GetVolumeRequest) (*volumesv1.Volume, error) {
	return answer(h.s.Get(ctx, r.Volume))
}

func (h handler) ListVolumes(ctx context.Context, r *volumesv1.ListVolumesRequest) (*volumesv1.ListVolumesResponse, error) {
	list, next, err := h.s.List(ctx, r.AiCenterId, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	res := &volumesv1.ListVolumesResponse{NextPageToken: next}
	for _, v := range list {
		res.Volumes = append(res.Volumes, out(v))
	}
	return res, nil
}

func (h handler) GrowVolume(ctx context.Context, r *volumesv1.GrowVolumeRequest) (*volumesv1.Volume, error) {
	return answer(h.s.Grow(ctx, r.Volume, r.Bytes))
}

func (h handler) DeleteVolume(ctx context.Context, r *volumesv1.DeleteVolumeRequest) (*volumesv1.DeleteVolumeResponse, error) {
	if err := h.s.Delete(ctx, r.Volume); err != nil {
		return nil, err
	}
	return &volumesv1.DeleteVolumeResponse{}, nil
}

func answer(v *Volume, err error) (*volumesv1.Volume, error) {
	if err != nil {
		return nil, err
	}
	return out(v), nil
}

func out(v *Volume) *volumesv1.Volume {
	m := &volumesv1.Volume{VolumeId: v.ID, Name: v.Name, TenantId: v.TenantID, UserId: v.UserID, AiCenterId: v.CenterID, State: volumesv1.VolumeState(v.State), Message: v.Message,
		WantedBytes: v.Wanted, Bytes: v.Bytes, UsedAt: stamp(v.UsedAt), Enforced: v.Enforced, CreatedAt: stamp(v.CreatedAt), ChangedAt: stamp(v.ChangedAt)}
	if v.Used >= 0 {
		m.UsedBytes = &v.Used
	}
	return m
}

// stamp is nil for no time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
