package jobs

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/volumes"
)

const maxMounts = 16

// systemFolders belong to the machine or the image: no volume goes there.
var systemFolders = []string{"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "tmp", "usr", "var"}

// workingFolder is where commands start at a gateway.
const workingFolder = "/workspace"

// SetVolumes says who keeps volumes. It is called before the first call;
// without it no job can name one.
func (s *Service) SetVolumes(v *volumes.Service) { s.vols = v }

// checkMounts checks the volumes of a task but for whether they are there.
func checkMounts(c *core.Check, p string, mounts []*jobsv1.VolumeMount) {
	if len(mounts) > maxMounts {
		c.Add(p+"volumes", "must be at most %d, got %d", maxMounts, len(mounts))
		return
	}
	for i, m := range mounts {
		at := fmt.Sprintf("%svolumes[%d].", p, i)
		c.Text(at+"volume", m.GetVolume(), true, 64, 0)
		dir := m.GetPath()
		c.Text(at+"path", dir, true, 0, 256)
		top, _, _ := strings.Cut(strings.TrimPrefix(dir, "/"), "/")
		switch {
		case dir == "":
		case !strings.HasPrefix(dir, "/") || dir == "/" || path.Clean(dir) != dir || strings.ContainsAny(dir, ":,\n\t\x00"):
			c.Add(at+"path", `must be absolute, below "/", without ".", "..", ":" and ",", got %q`, clip(dir))
		case slices.Contains(systemFolders, top) || dir == workingFolder:
			c.Add(at+"path", "must not be below what belongs to the system, nor the working directory, got %q", clip(dir))
		}
		for j, other := range mounts[:i] {
			if o := other.GetPath(); o == dir || strings.HasPrefix(dir, o+"/") || strings.HasPrefix(o, dir+"/") {
				c.Add(at+"path", "%q and %q (volumes[%d]) lie in one another", clip(dir), clip(o), j)
			}
		}
	}
}

// placeVolumes checks that the volumes of a job are there, calls them by their
// IDs and has each task run where its volumes are, which never changes.
func (s *Service) placeVolumes(ctx context.Context, c *core.Check, prefix string, j *jobsv1.JobSpec) error {
	var refs []string
	for _, t := range j.Tasks {
		for _, m := range t.GetVolumes() {
			refs = append(refs, m.GetVolume())
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
		center := ""
		for n, m := range t.GetVolumes() {
			at := fmt.Sprintf("%stasks[%d].volumes[%d].volume", prefix, i, n)
			v, ok := found[m.GetVolume()]
			switch {
			case m == nil:
				c.Add(at, "is required")
				continue
			case !ok && m.Volume != "":
				c.Add(at, "there is no volume %q; see yunhe volume list", clip(m.Volume))
				continue
			case !ok:
				continue // said already
			case center != "" && v.CenterID != center:
				c.Add(at, "lies at center %s, another of the task at %s: no task runs at both", v.CenterID, center)
			}
			center, m.Volume = v.CenterID, v.ID
		}
		if center == "" {
			continue
		}
		if t.Constraints == nil {
			t.Constraints = &jobsv1.Constraints{}
		}
		if k := t.Constraints; len(k.Centers) > 0 && !slices.Contains(k.Centers, center) {
			c.Add(fmt.Sprintf("%stasks[%d].constraints.centers", prefix, i), "must have %q, where the task's volume is", center)
		}
		t.Constraints.Centers = []string{center}
	}
	return nil
}

// holdVolumes fails if a volume that new jobs name is going.
func (s *Service) holdVolumes(ctx context.Context, tx *db.Tx, records []*record) error {
	var ids []string
	for _, r := range records {
		for _, t := range r.spec.Tasks {
			for _, m := range t.Volumes {
				if !slices.Contains(ids, m.Volume) {
					ids = append(ids, m.Volume)
				}
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return s.vols.HoldTx(ctx, tx, ids)
}

// mountsVolumes reports whether a task of a job names a volume.
func mountsVolumes(r *record) bool {
	return slices.ContainsFunc(r.spec.Tasks, func(t *jobsv1.Task) bool { return len(t.Volumes) > 0 })
}

// mounts is what a center is told of a task's volumes.
func mounts(t *jobsv1.Task) []*adapterv1.VolumeMount {
	var out []*adapterv1.VolumeMount
	for _, m := range t.Volumes {
		out = append(out, &adapterv1.VolumeMount{VolumeId: m.Volume, Path: m.Path, ReadOnly: m.ReadOnly})
	}
	return out
}

// namesVolume reports whether a task names a volume.
func namesVolume(t *jobsv1.Task, volume string) bool {
	return slices.ContainsFunc(t.Volumes, func(m *jobsv1.VolumeMount) bool { return m.Volume == volume })
}
