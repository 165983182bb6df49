package slurm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// TestVersions: the driver agrees with slurmrestd on a version, and works with
// each that this slurmrestd speaks.
func TestVersions(t *testing.T) {
	t.Parallel()
	needEngines(t)
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 1, GPUs: 1, Conf: quick})
	for name, c := range map[string]struct {
		spoken []string
		want   string
	}{
		"the newest of all": {[]string{"v0.0.36", "v0.0.37", "v0.0.38"}, "v0.0.38"},
		"v0.0.37 alone":     {[]string{"v0.0.37"}, "v0.0.37"},
		"none, and says so": {[]string{"v0.0.36"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := s.KillREST(); err != nil {
				t.Fatal(err)
			}
			s.RESTVersions = c.spoken
			if err := s.StartREST(t.Context()); err != nil {
				t.Fatal(err)
			}
			v := start(t, config(t, s))
			if c.want == "" {
				v.troubled("speaks versions [v0.0.36]", "v0.0.37 to v0.0.43")
				return
			}
			if r, err := v.Discover(t.Context(), &adapterv1.DiscoverRequest{}); err != nil || !strings.HasSuffix(r.Inventory.Version, c.want) || r.Inventory.Capacity["gpu"] != 1 {
				t.Fatalf("discover: {%v}, %v", r, err)
			}
			runs, fails, stops := attempt(`echo "gpus=$CUDA_VISIBLE_DEVICES"`), attempt("exit 7"), attempt("trap 'exit 0' TERM; echo up; sleep 100 & wait")
			runs.Resources["gpu"], runs.TimeoutSeconds = 1, 100
			v.apply(runs, fails, stops)
			if st := v.ended(runs.AttemptId); st.Reason != "completed" || string(st.Log) != "gpus=0\n" {
				t.Errorf("status is {%v}", st)
			}
			if st := v.ended(fails.AttemptId); st.Reason != "exit" || st.ExitCode != 7 || st.StartedAt == 0 || st.Node != "n1" {
				t.Errorf("status is {%v}", st)
			}
			within(t, "the command is up", func() bool {
				b, _ := os.ReadFile(filepath.Join(s.Work, "c1", stops.AttemptId, "log"))
				return len(b) > 0
			})
			if _, err := v.Suspend(t.Context(), &adapterv1.SuspendRequest{Suspend: []string{stops.AttemptId}}); err != nil {
				t.Fatal(err)
			}
			v.until(stops.AttemptId, "suspended", func(st *adapterv1.Status) bool { return st.Phase == adapterv1.Phase_PHASE_SUSPENDED })
			v.stop(stops.AttemptId)
			if st := v.ended(stops.AttemptId); st.Reason != "stopped" {
				t.Errorf("status is {%v}", st)
			}
		})
	}
}
