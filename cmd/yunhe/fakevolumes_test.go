package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"connectrpc.com/connect"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	volumesv1 "yunhe.dev/yunhe/gen/yunhe/volumes/v1"
	"yunhe.dev/yunhe/gen/yunhe/volumes/v1/volumesv1connect"
)

// fakeVolumes makes a volume when it is looked at for the first time; its
// center has room for 100 GiB in one.
type fakeVolumes struct {
	volumesv1connect.UnimplementedVolumeServiceHandler

	mu   sync.Mutex // guards list
	list []*volumesv1.Volume
}

func (f *fakeVolumes) find(ref string) (*volumesv1.Volume, error) {
	for _, v := range f.list {
		if v.Name == ref || v.VolumeId == ref {
			return v, nil
		}
	}
	return nil, missing("volume", ref)
}

func (f *fakeVolumes) CreateVolume(_ context.Context, r *volumesv1.CreateVolumeRequest) (*volumesv1.Volume, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := &volumesv1.Volume{VolumeId: fmt.Sprintf("vol_%026d", len(f.list)+1), Name: r.Name, TenantId: "default", UserId: "admin", AiCenterId: r.AiCenterId,
		State: volumesv1.VolumeState_VOLUME_STATE_CREATING, WantedBytes: r.Bytes, CreatedAt: fakeTime(0), ChangedAt: fakeTime(0)}
	f.list = append(f.list, v)
	return v, nil
}

func (f *fakeVolumes) GetVolume(_ context.Context, r *volumesv1.GetVolumeRequest) (*volumesv1.Volume, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.find(r.Volume)
	if err != nil {
		return nil, err
	}
	if v.State != volumesv1.VolumeState_VOLUME_STATE_READY {
		used := int64(5 << 20)
		if v.State, v.Message = volumesv1.VolumeState_VOLUME_STATE_READY, ""; v.WantedBytes <= 100<<30 {
			v.Bytes, v.UsedBytes, v.UsedAt = v.WantedBytes, &used, fakeTime(0)
		} else {
			v.WantedBytes, v.Message = v.Bytes, "it could not grow: there is no room"
		}
	}
	return v, nil
}

func (f *fakeVolumes) ListVolumes(context.Context, *volumesv1.ListVolumesRequest) (*volumesv1.ListVolumesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &volumesv1.ListVolumesResponse{Volumes: slices.Clone(f.list)}, nil
}

func (f *fakeVolumes) GrowVolume(_ context.Context, r *volumesv1.GrowVolumeRequest) (*volumesv1.Volume, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.find(r.Volume)
	if err != nil {
		return nil, err
	}
	v.WantedBytes, v.State = r.Bytes, volumesv1.VolumeState_VOLUME_STATE_GROWING
	return v, nil
}

func (f *fakeVolumes) DeleteVolume(_ context.Context, r *volumesv1.DeleteVolumeRequest) (*volumesv1.DeleteVolumeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.find(r.Volume)
	if err != nil {
		return nil, err
	}
	f.list = slices.DeleteFunc(f.list, func(x *volumesv1.Volume) bool { return x == v })
	return &volumesv1.DeleteVolumeResponse{}, nil
}

// The accounts of sh-1, whose tenant physics has one of its own; bj-1 has none.
func (f *fakeAPI) ListAccounts(_ context.Context, r *adaptersv1.ListAccountsRequest) (*adaptersv1.ListAccountsResponse, error) {
	if r.AiCenterId != "sh-1" {
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("what reaches center %s cannot keep accounts", r.AiCenterId))
	}
	return &adaptersv1.ListAccountsResponse{Accounts: []*adaptersv1.Account{
		{Name: "phys", TenantIds: []string{"physics"}, UseKnown: true, CpuCoreSeconds: 7200, AcceleratorSeconds: 3600, Runs: 3, Made: true},
		{Name: "root"}, {Name: "old", TenantIds: []string{"chem"}, Missing: true}}}, nil
}

func (f *fakeAPI) SetAccount(_ context.Context, r *adaptersv1.SetAccountRequest) (*adaptersv1.Account, error) {
	name := r.Name
	if name == "" {
		name = "yunhe-" + r.TenantId
	}
	return &adaptersv1.Account{Name: name, TenantIds: []string{r.TenantId}, Made: true}, nil
}

func (f *fakeAPI) RemoveAccount(context.Context, *adaptersv1.RemoveAccountRequest) (*adaptersv1.RemoveAccountResponse, error) {
	return &adaptersv1.RemoveAccountResponse{}, nil
}

func (f *fakeAPI) GetInstance(_ context.Context, r *adaptersv1.GetInstanceRequest) (*adaptersv1.Instance, error) {
	in := &adaptersv1.Instance{Plugin: r.Plugin, AiCenterId: r.AiCenterId, State: "up", Enabled: true, Origin: adaptersv1.InstanceOrigin_INSTANCE_ORIGIN_CONFIGURATION}
	if r.Plugin == "slurm" {
		in.Origin, in.Config = adaptersv1.InstanceOrigin_INSTANCE_ORIGIN_API, `{"url":"http://host:6820","token":"(secret)","partitions":[{"name":"gpu","price":100}]}`
	}
	return in, nil
}

func (f *fakeAPI) UpdateInstance(_ context.Context, r *adaptersv1.UpdateInstanceRequest) (*adaptersv1.Instance, error) {
	what := "config " + r.GetConfig()
	if r.ConfigPatch != nil {
		what = "patch " + strings.ReplaceAll(r.GetConfigPatch(), " ", "")
	}
	return &adaptersv1.Instance{Plugin: r.Plugin, AiCenterId: r.AiCenterId, State: "starting", Enabled: true, Message: what}, nil
}
