package agent_test

import (
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	volumesv1 "yunhe.dev/yunhe/gen/yunhe/volumes/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// sandboxKeeps asks a sandbox of its own whether this machine can keep volumes.
func sandboxKeeps(t *testing.T) (bool, error) {
	t.Helper()
	s, err := sandbox.New(sandbox.Config{Dir: t.TempDir(), GatewayID: "apptest-volumes", Runner: []string{os.Args[0], "runner"}}, apptest.Log(t))
	if err != nil {
		return false, err
	}
	defer s.Close()
	err = s.CanMapVolumes(t.TempDir())
	return err == nil, err
}

// A volume on a real gateway: written by one job, read by another, kept over a
// restart of the gateway, held while it is in use, and gone with all in it.
func TestVolumes(t *testing.T) {
	t.Parallel()
	apptest.NeedRoot(t)
	a := apptest.Start(t, apptest.Options{})
	g := a.Gateway(t)
	ctx := t.Context()
	var v *volumesv1.Volume
	if kept, err := sandboxKeeps(t); !kept {
		t.Skipf("SKIPPED: this machine keeps no volumes: %v", err)
	}
	var err error
	defer func() { t.Log("the last error of making it:", err) }()
	apptest.Until(t, "the gateway offers volumes", func() bool {
		v, err = a.Admin.Volumes.CreateVolume(ctx, &volumesv1.CreateVolumeRequest{Name: "data", AiCenterId: g.ID, Bytes: 16 << 20})
		return err == nil
	})
	get := func() *volumesv1.Volume {
		v, err := a.Admin.Volumes.GetVolume(ctx, &volumesv1.GetVolumeRequest{Volume: v.VolumeId})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	apptest.Until(t, "the volume is there", func() bool { return get().State == volumesv1.VolumeState_VOLUME_STATE_READY })
	with := func(name, text string, readOnly bool) *jobsv1.JobSpec {
		j := command(name, text)
		j.Tasks[0].Volumes = []*jobsv1.VolumeMount{{Volume: "data", Path: "/data", ReadOnly: readOnly}}
		return j
	}
	out := func(j *jobsv1.JobSpec, want jobsv1.State) string {
		id := a.Admin.Submit(t, j)
		a.Admin.AwaitState(t, id, want)
		log, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id})
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	out(with("write", "mkdir /data/d && echo kept >/data/d/file && chmod 600 /data/d/file && head -c 5000000 /dev/urandom >/data/big", false), jobsv1.State_STATE_SUCCEEDED)
	g.Stop()
	g.Start()
	if log := out(with("read", "cat /data/d/file; echo no >/data/d/file", true), jobsv1.State_STATE_FAILED); !strings.HasPrefix(log, "kept\n") {
		t.Errorf("read only: %q", log)
	}
	if log := out(with("change", "echo more >>/data/d/file; cat /data/d/file", false), jobsv1.State_STATE_SUCCEEDED); log != "kept\nmore\n" {
		t.Errorf("written by another job: %q", log)
	}
	a.Volumes.Look(ctx)
	if got := get(); got.GetUsedBytes() < 5000000 || got.GetUsedBytes() > 10<<20 || got.State != volumesv1.VolumeState_VOLUME_STATE_READY {
		t.Errorf("it is said to hold %v", got)
	}
	if get().Enforced {
		// The kernel stops who writes beyond its size; another volume and what was there stay as they are.
		if _, err := a.Admin.Volumes.CreateVolume(ctx, &volumesv1.CreateVolumeRequest{Name: "other", AiCenterId: g.ID, Bytes: 16 << 20}); err != nil {
			t.Fatal(err)
		}
		fill := with("fill", "cat /data/d/file >/other/copy; head -c 20000000 /dev/zero >/data/fill; wc -c </data/fill; echo also >/other/also && cat /data/d/file", false)
		fill.Tasks[0].Volumes = append(fill.Tasks[0].Volumes, &jobsv1.VolumeMount{Volume: "other", Path: "/other"})
		if log := out(fill, jobsv1.State_STATE_SUCCEEDED); !strings.Contains(log, "No space left on device") || !strings.HasSuffix(log, "kept\nmore\n") {
			t.Errorf("written beyond its size: %q", log)
		}
		a.Volumes.Look(ctx)
		if got := get(); got.GetUsedBytes() != 16<<20 {
			t.Errorf("full, it is said to hold %v", got)
		}
		if log := out(with("empty", "rm /data/fill && head -c 3000000 /dev/zero >/data/again && ls /data", false), jobsv1.State_STATE_SUCCEEDED); log != "again\nbig\nd\n" {
			t.Errorf("emptied: %q", log)
		}
	} else {
		// Too full, it is given to nobody until it has grown.
		out(with("fill", "head -c 20000000 /dev/zero >/data/fill", false), jobsv1.State_STATE_SUCCEEDED)
		a.Volumes.Look(ctx)
		end := a.Admin.AwaitState(t, a.Admin.Submit(t, with("full", "true", false)), jobsv1.State_STATE_FAILED)
		if end.Reason != "refused" || !strings.Contains(end.Message, "more than its size") {
			t.Errorf("too full: %q, %q", end.Reason, end.Message)
		}
	}
	if _, err := a.Admin.Volumes.GrowVolume(ctx, &volumesv1.GrowVolumeRequest{Volume: "data", Bytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "it has grown", func() bool { return get().Bytes == 64<<20 })

	hold := a.Admin.Submit(t, with("hold", "echo up; exec sleep 1000", false))
	a.Admin.AwaitState(t, hold, jobsv1.State_STATE_RUNNING)
	if _, err := a.Admin.Volumes.DeleteVolume(ctx, &volumesv1.DeleteVolumeRequest{Volume: "data"}); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("deleted while a job has it: %v", err)
	}
	if _, err := a.Admin.Jobs.StopJob(ctx, &jobsv1.StopJobRequest{JobId: hold}); err != nil {
		t.Fatal(err)
	}
	a.Admin.AwaitState(t, hold, jobsv1.State_STATE_STOPPED)
	if _, err := a.Admin.Volumes.DeleteVolume(ctx, &volumesv1.DeleteVolumeRequest{Volume: "data"}); err != nil {
		t.Fatal(err)
	}
	apptest.Until(t, "it is gone", func() bool {
		_, err := a.Admin.Volumes.GetVolume(ctx, &volumesv1.GetVolumeRequest{Volume: v.VolumeId})
		return connect.CodeOf(err) == connect.CodeNotFound
	})
}
