package volumes_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	volumesv1 "yunhe.dev/yunhe/gen/yunhe/volumes/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/fault"
)

const mib = 1 << 20

const (
	creating = volumesv1.VolumeState_VOLUME_STATE_CREATING
	ready    = volumesv1.VolumeState_VOLUME_STATE_READY
	growing  = volumesv1.VolumeState_VOLUME_STATE_GROWING
	lost     = volumesv1.VolumeState_VOLUME_STATE_LOST
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// code expects an error of the kind.
func code(t testing.TB, what string, err error, want connect.Code, says string) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != want || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %v and %q", what, err, want, says)
	}
}

// storage is the far end of a center: the volumes it keeps.
type storage struct {
	mu      sync.Mutex // guards the fields below
	volumes map[string]*adapterv1.Volume
	room    int64
	away    bool
	asked   int
}

// join joins a center with storage.
func join(t testing.TB, a *apptest.App, id string) (*apptest.FakeCenter, *storage) {
	t.Helper()
	s := &storage{volumes: map[string]*adapterv1.Volume{}, room: 1 << 40}
	return a.Join(t, apptest.Center{ID: id, Play: apptest.Succeed, Parts: []adapterv1.Part{adapterv1.Part_PART_STORAGE}, Other: s.answer}), s
}

func (s *storage) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *storage) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.volumes))
}

func (s *storage) answer(what string, data []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.away {
		return nil, fault.New(fault.Unavailable, "the disks are dark")
	}
	switch what {
	case "listvolumes":
		return proto.Marshal(&adapterv1.ListVolumesResponse{Volumes: slices.Collect(maps.Values(s.volumes))})
	case "ensurevolume":
		r := &adapterv1.EnsureVolumeRequest{}
		if err := proto.Unmarshal(data, r); err != nil {
			return nil, err
		}
		v := s.volumes[r.VolumeId]
		if v == nil {
			v = &adapterv1.Volume{VolumeId: r.VolumeId, TenantId: r.TenantId, UsedKnown: true, Enforced: true}
		}
		if r.Bytes > s.room {
			return nil, fault.New(fault.Exhausted, "there is no room for %d bytes", r.Bytes)
		}
		v.Bytes = max(v.Bytes, r.Bytes)
		s.volumes[r.VolumeId] = v
		return proto.Marshal(&adapterv1.EnsureVolumeResponse{Volume: v})
	case "removevolume":
		r := &adapterv1.RemoveVolumeRequest{}
		if err := proto.Unmarshal(data, r); err != nil {
			return nil, err
		}
		delete(s.volumes, r.VolumeId)
		return proto.Marshal(&adapterv1.RemoveVolumeResponse{})
	}
	return nil, fault.New(fault.Unimplemented, "no %s", what)
}

func create(t testing.TB, c *apptest.Client, name, center string, bytes int64) *volumesv1.Volume {
	t.Helper()
	v, err := c.Volumes.CreateVolume(t.Context(), &volumesv1.CreateVolumeRequest{Name: name, AiCenterId: center, Bytes: bytes})
	must(t, err)
	return v
}

func get(t testing.TB, c *apptest.Client, ref string) *volumesv1.Volume {
	t.Helper()
	v, err := c.Volumes.GetVolume(t.Context(), &volumesv1.GetVolumeRequest{Volume: ref})
	must(t, err)
	return v
}

func await(t testing.TB, c *apptest.Client, ref string, want volumesv1.VolumeState) (v *volumesv1.Volume) {
	t.Helper()
	apptest.Until(t, "volume "+ref+" is "+want.String(), func() bool { v = get(t, c, ref); return v.State == want })
	return v
}

func gone(t testing.TB, c *apptest.Client, ref string) bool {
	t.Helper()
	_, err := c.Volumes.GetVolume(t.Context(), &volumesv1.GetVolumeRequest{Volume: ref})
	return connect.CodeOf(err) == connect.CodeNotFound
}

// with is a job whose task has a volume.
func with(name, volume, path string) *jobsv1.JobSpec {
	j := apptest.Job(name, 1)
	j.Tasks[0].Volumes = []*jobsv1.VolumeMount{{Volume: volume, Path: path}}
	return j
}

// A volume is made, grown and deleted at its center, however the center and
// the platform come and go meanwhile.
func TestLife(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		_, s := join(t, a, "c1")
		apptest.Until(t, "the center offers volumes", func() bool {
			_, err := a.Admin.Volumes.CreateVolume(ctx, &volumesv1.CreateVolumeRequest{Name: "first", AiCenterId: "c1", Bytes: mib})
			return err == nil
		})
		v := await(t, a.Admin, "first", ready)
		if v.Bytes != mib || v.WantedBytes != mib || v.UsedBytes == nil || !v.Enforced || v.AiCenterId != "c1" || v.TenantId == "" {
			t.Errorf("made %v", v)
		}
		if again := create(t, a.Admin, "first", "c1", mib); again.VolumeId != v.VolumeId {
			t.Errorf("asked for again: %v", again)
		}
		_, err := a.Admin.Volumes.CreateVolume(ctx, &volumesv1.CreateVolumeRequest{Name: "first", AiCenterId: "c1", Bytes: 2 * mib})
		code(t, "another of the name", err, connect.CodeAlreadyExists, "already")

		// While the center is away the wish is kept, also over a restart.
		s.set(func() { s.away = true })
		w := create(t, a.Admin, "later", "c1", 3*mib)
		apptest.Until(t, "it says why it is not there", func() bool {
			w = get(t, a.Admin, "later")
			return w.State == creating && w.Message != ""
		})
		a.Stop()
		s.set(func() { s.away = false })
		a.Restart()
		await(t, a.Admin, "later", ready)

		g, err := a.Admin.Volumes.GrowVolume(ctx, &volumesv1.GrowVolumeRequest{Volume: "first", Bytes: 5 * mib})
		must(t, err)
		if g.State != growing && g.State != ready {
			t.Errorf("grown: %v", g)
		}
		if g = await(t, a.Admin, "first", ready); g.Bytes != 5*mib {
			t.Errorf("it has grown to %v", g)
		}
		_, err = a.Admin.Volumes.GrowVolume(ctx, &volumesv1.GrowVolumeRequest{Volume: "first", Bytes: 4 * mib})
		code(t, "a smaller size", err, connect.CodeAborted, "smaller")
		s.set(func() { s.room = 6 * mib })
		_, err = a.Admin.Volumes.GrowVolume(ctx, &volumesv1.GrowVolumeRequest{Volume: "first", Bytes: 7 * mib})
		must(t, err)
		apptest.Until(t, "it stays as it was and says why", func() bool {
			g = get(t, a.Admin, "first")
			return g.State == ready && g.WantedBytes == 5*mib && strings.Contains(g.Message, "no room")
		})

		// Its center loses it, and has it again.
		var kept *adapterv1.Volume
		s.set(func() { kept = s.volumes[v.VolumeId]; delete(s.volumes, v.VolumeId) })
		a.Volumes.Look(ctx)
		if g = get(t, a.Admin, "first"); g.State != lost || g.Message == "" {
			t.Errorf("lost by its center: %v", g)
		}
		_, err = a.Admin.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: with("lost", "first", "/data")})
		code(t, "a job with a lost volume", err, connect.CodeInvalidArgument, "there is no volume")
		s.set(func() { kept.UsedBytes = 77; s.volumes[v.VolumeId] = kept })
		a.Volumes.Look(ctx)
		if g = get(t, a.Admin, "first"); g.State != ready || g.Message != "" || g.GetUsedBytes() != 77 {
			t.Errorf("there again: %v", g)
		}
		// A center that does not answer has lost nothing.
		s.set(func() { s.away = true })
		a.Volumes.Look(ctx)
		if g = get(t, a.Admin, "first"); g.State != ready {
			t.Errorf("while the center does not answer: %v", g)
		}

		for range 2 {
			_, err = a.Admin.Volumes.DeleteVolume(ctx, &volumesv1.DeleteVolumeRequest{Volume: "first"})
			must(t, err)
		}
		_, err = a.Admin.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: with("going", "first", "/data")})
		code(t, "a job with a volume that goes", err, connect.CodeInvalidArgument, "there is no volume")
		s.set(func() { s.away = false })
		apptest.Until(t, "it is gone", func() bool { return gone(t, a.Admin, "first") })
		if ids := s.ids(); len(ids) != 1 || ids[0] != w.VolumeId {
			t.Errorf("at the center are %q", ids)
		}
	})
}

// A job runs where its volumes are, is told their IDs, and keeps them from going.
func TestJobs(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		// The other center is cheaper.
		a.Join(t, apptest.Center{ID: "cheap", Prices: map[string]int64{"small": 1}})
		f, _ := join(t, a, "c1")
		f.Center.Play = nil
		join(t, a, "c2")
		for _, id := range []string{"c1", "c2"} {
			apptest.Until(t, id+" offers volumes", func() bool {
				_, err := a.Admin.Volumes.CreateVolume(ctx, &volumesv1.CreateVolumeRequest{Name: "at-" + id, AiCenterId: id, Bytes: mib})
				return err == nil
			})
		}
		v, other := get(t, a.Admin, "at-c1"), get(t, a.Admin, "at-c2")
		_, err := a.Admin.Volumes.CreateVolume(ctx, &volumesv1.CreateVolumeRequest{Name: "x", AiCenterId: "cheap", Bytes: mib})
		code(t, "at a center without storage", err, connect.CodeUnimplemented, "offers no volumes")

		for name, c := range map[string]struct {
			change func(*jobsv1.Task)
			says   string
		}{
			"unknown":   {func(k *jobsv1.Task) { k.Volumes[0].Volume = "ghost" }, `there is no volume "ghost"`},
			"no name":   {func(k *jobsv1.Task) { k.Volumes[0].Volume = "" }, "is required"},
			"no path":   {func(k *jobsv1.Task) { k.Volumes[0].Path = "" }, "is required"},
			"relative":  {func(k *jobsv1.Task) { k.Volumes[0].Path = "data" }, "absolute"},
			"upward":    {func(k *jobsv1.Task) { k.Volumes[0].Path = "/data/../etc" }, "absolute"},
			"system":    {func(k *jobsv1.Task) { k.Volumes[0].Path = "/etc/ssl" }, "belongs to the system"},
			"elsewhere": {func(k *jobsv1.Task) { k.Constraints = &jobsv1.Constraints{Centers: []string{"cheap"}} }, `must have "c1"`},
			"two places": {func(k *jobsv1.Task) {
				k.Volumes = append(k.Volumes, &jobsv1.VolumeMount{Volume: "at-c2", Path: "/more"})
			}, "no task runs at both"},
			"nested": {func(k *jobsv1.Task) {
				k.Volumes = append(k.Volumes, &jobsv1.VolumeMount{Volume: "at-c1", Path: "/data/in"})
			}, "lie in one another"},
			"many": {func(k *jobsv1.Task) { k.Volumes = make([]*jobsv1.VolumeMount, 17) }, "at most 16"},
		} {
			j := with("bad", "at-c1", "/data")
			c.change(j.Tasks[0])
			_, err := a.Admin.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: j})
			code(t, name, err, connect.CodeInvalidArgument, c.says)
		}

		j := with("user", "at-c1", "/data/in")
		j.Tasks[0].Volumes[0].ReadOnly = true
		id := a.Admin.Submit(t, j)
		again, err := a.Admin.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{RequestId: "r", Job: with("again", "at-c2", "/data")})
		must(t, err)
		if twice, err := a.Admin.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{RequestId: "r", Job: with("again", "at-c2", "/data")}); err != nil || twice.JobId != again.JobId {
			t.Errorf("submitted twice: %v, %v", twice, err)
		}
		got := a.Admin.Await(t, id, "placed", func(j *jobsv1.Job) bool { return j.Replicas[0].AttemptId != "" })
		if got.Replicas[0].AiCenterId != "c1" || got.Spec.Tasks[0].Volumes[0].Volume != v.VolumeId {
			t.Errorf("it lies at %s and has %v", got.Replicas[0].AiCenterId, got.Spec.Tasks[0].Volumes)
		}
		apptest.Until(t, "its center has it", func() bool { return f.Last(got.Replicas[0].AttemptId) != nil })
		if m := f.Last(got.Replicas[0].AttemptId).Volumes; len(m) != 1 || m[0].VolumeId != v.VolumeId || m[0].Path != "/data/in" || !m[0].ReadOnly {
			t.Errorf("its center is told %v", m)
		}
		if r := a.Admin.AwaitState(t, again.JobId, jobsv1.State_STATE_SUCCEEDED).Replicas[0]; r.AiCenterId != "c2" {
			t.Errorf("the one with the volume at c2 ran at %s", r.AiCenterId)
		}
		_, err = a.Admin.Volumes.DeleteVolume(ctx, &volumesv1.DeleteVolumeRequest{Volume: v.VolumeId})
		code(t, "deleted while a job names it", err, connect.CodeAborted, "has not ended")
		_, err = a.Admin.Volumes.DeleteVolume(ctx, &volumesv1.DeleteVolumeRequest{Volume: other.VolumeId})
		must(t, err) // that job has ended
		_, err = a.Admin.Jobs.StopJob(ctx, &jobsv1.StopJobRequest{JobId: id})
		must(t, err)
	})
}

// Of the jobs that name a volume and the wish to delete it, sent at the same
// time, one comes first: no job is stored that names one that is going.
func TestSubmitAgainstDelete(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		f, _ := join(t, a, "c1")
		f.Center.Play = nil
		for n := range 6 {
			name := "v" + string(rune('a'+n))
			var v *volumesv1.Volume
			apptest.Until(t, "made", func() bool {
				var err error
				v, err = a.Admin.Volumes.CreateVolume(ctx, &volumesv1.CreateVolumeRequest{Name: name, AiCenterId: "c1", Bytes: mib})
				return err == nil
			})
			var wg sync.WaitGroup
			var job, del error
			wg.Go(func() {
				_, job = a.Admin.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: with("race", v.VolumeId, "/data")})
			})
			wg.Go(func() {
				_, del = a.Admin.Volumes.DeleteVolume(ctx, &volumesv1.DeleteVolumeRequest{Volume: v.VolumeId})
			})
			wg.Wait()
			if job == nil && del == nil || job != nil && del != nil {
				t.Errorf("submitted: %v; deleted: %v; want one of them to fail", job, del)
			}
		}
	})
}

// Tenants see their own, and what is wrong is said by field.
func TestTenants(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	ctx := t.Context()
	join(t, a, "c1")
	ann, bob := a.User(t, "acme", "ann", identityv1.Role_ROLE_USER), a.User(t, "other", "bob", identityv1.Role_ROLE_USER)
	apptest.Until(t, "the center offers volumes", func() bool {
		_, err := ann.Volumes.CreateVolume(ctx, &volumesv1.CreateVolumeRequest{Name: "mine", AiCenterId: "c1", Bytes: mib})
		return err == nil
	})
	mine := get(t, ann, "mine")
	for _, ref := range []string{"mine", mine.VolumeId} {
		if !gone(t, bob, ref) {
			t.Errorf("another tenant sees %s", ref)
		}
		_, err := bob.Volumes.DeleteVolume(ctx, &volumesv1.DeleteVolumeRequest{Volume: ref})
		code(t, "deleted by another tenant", err, connect.CodeNotFound, "no volume")
		_, err = bob.Volumes.GrowVolume(ctx, &volumesv1.GrowVolumeRequest{Volume: ref, Bytes: 2 * mib})
		code(t, "grown by another tenant", err, connect.CodeNotFound, "no volume")
		_, err = bob.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: with("theft", ref, "/data")})
		code(t, "used by another tenant", err, connect.CodeInvalidArgument, "there is no volume")
	}
	create(t, bob, "mine", "c1", mib) // a name of its own
	for c, want := range map[*apptest.Client]int{ann: 1, bob: 1, a.Admin: 2} {
		res, err := c.Volumes.ListVolumes(ctx, &volumesv1.ListVolumesRequest{})
		must(t, err)
		if len(res.Volumes) != want {
			t.Errorf("listed %v, want %d", res.Volumes, want)
		}
	}
	page, err := a.Admin.Volumes.ListVolumes(ctx, &volumesv1.ListVolumesRequest{PageSize: 1})
	must(t, err)
	next, err := a.Admin.Volumes.ListVolumes(ctx, &volumesv1.ListVolumesRequest{PageSize: 1, PageToken: page.NextPageToken})
	must(t, err)
	if len(page.Volumes) != 1 || len(next.Volumes) != 1 || next.NextPageToken != "" || page.Volumes[0].VolumeId == next.Volumes[0].VolumeId {
		t.Errorf("pages %v and %v", page, next)
	}
	_, err = ann.Volumes.CreateVolume(ctx, &volumesv1.CreateVolumeRequest{Name: "Bad_Name", AiCenterId: "ghost town", Bytes: 5})
	for _, field := range []string{"name", "ai_center_id", "bytes"} {
		code(t, "bad input", err, connect.CodeInvalidArgument, field)
	}
}
