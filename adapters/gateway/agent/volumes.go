package agent

import (
	"context"
	"path/filepath"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/adapters/gateway/volumes"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/fault"
)

// openVolumes takes up the volumes of this machine, if it can keep any.
func (a *Agent) openVolumes() error {
	users := func(dir string) ([]string, error) { return sandbox.Using(RunsDir(a.cfg.Dir), dir) }
	room := func() (int64, error) {
		disk, err := readDisk(a.cfg.Dir)
		return disk.total, err
	}
	store, err := volumes.Open(volumes.Config{Dir: filepath.Join(a.cfg.Dir, "volumes"), Owner: a.sb.VolumeUID(), Room: room, Users: users}, a.log)
	if err != nil {
		return err
	}
	if err := a.sb.CanMapVolumes(store.Dir()); err != nil {
		a.log.Info("this machine offers no volumes", "error", err)
		return nil
	}
	a.volumes = store
	return nil
}

// parts are those of the contract this gateway offers.
func (a *Agent) parts() []adapterv1.Part {
	parts := []adapterv1.Part{adapterv1.Part_PART_JOB, adapterv1.Part_PART_RESOURCE}
	if a.volumes != nil {
		parts = append(parts, adapterv1.Part_PART_STORAGE)
	}
	return parts
}

func (a *Agent) needVolumes() error {
	if a.volumes == nil {
		return fault.New(fault.Unimplemented, "this gateway's machine keeps no volumes")
	}
	return nil
}

func volumeProto(v volumes.Volume) *adapterv1.Volume {
	return &adapterv1.Volume{VolumeId: v.ID, Bytes: v.Bytes, UsedBytes: v.Used, UsedKnown: v.Known, Enforced: v.Enforced, TenantId: v.TenantID}
}

func (a *Agent) listVolumes(ctx context.Context) (*adapterv1.ListVolumesResponse, error) {
	if err := a.needVolumes(); err != nil {
		return nil, err
	}
	list, err := a.volumes.List(ctx)
	if err != nil {
		return nil, err
	}
	res := &adapterv1.ListVolumesResponse{}
	for _, v := range list {
		res.Volumes = append(res.Volumes, volumeProto(v))
	}
	return res, nil
}

func (a *Agent) ensureVolume(ctx context.Context, r *adapterv1.EnsureVolumeRequest) (*adapterv1.EnsureVolumeResponse, error) {
	if err := a.needVolumes(); err != nil {
		return nil, err
	}
	v, err := a.volumes.Ensure(ctx, r.VolumeId, cleanText(r.TenantId), r.Bytes)
	if err != nil {
		return nil, err
	}
	a.log.Info("volume is there", "volume_id", v.ID, "bytes", v.Bytes, "enforced", v.Enforced)
	return &adapterv1.EnsureVolumeResponse{Volume: volumeProto(v)}, nil
}

func (a *Agent) removeVolume(r *adapterv1.RemoveVolumeRequest) (*adapterv1.RemoveVolumeResponse, error) {
	if err := a.needVolumes(); err != nil {
		return nil, err
	}
	if err := a.volumes.Remove(r.VolumeId); err != nil {
		return nil, err
	}
	a.log.Info("volume is deleted", "volume_id", r.VolumeId)
	return &adapterv1.RemoveVolumeResponse{}, nil
}

// mount puts an attempt's volumes into its spec. They stay until done is called.
func (a *Agent) mount(spec *sandbox.Spec, list []*adapterv1.VolumeMount) (done func(), err error) {
	if len(list) == 0 {
		return func() {}, nil
	}
	if err := a.needVolumes(); err != nil {
		return nil, err
	}
	ids := make([]string, len(list))
	for i, m := range list {
		ids[i] = m.VolumeId
	}
	sources, done, err := a.volumes.Use(ids)
	if fault.KindOf(err) == fault.Conflict && err != nil {
		msg, _ := fault.Message(err)
		return nil, fault.Wrap(fault.Invalid, err, "%s", msg) // a refusal: waiting would not help
	}
	if err != nil {
		return nil, err
	}
	for i, m := range list {
		spec.Volumes = append(spec.Volumes, sandbox.Volume{Source: sources[ids[i]], Path: m.Path, ReadOnly: m.ReadOnly})
	}
	return done, nil
}
