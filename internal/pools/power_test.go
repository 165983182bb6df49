//go:build linux

package pools_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
)

// The platform says what cards may draw: their nodes set it, within what the cards
// allow, and say what holds, or why it was not set. The cards are played.
func TestPower(t *testing.T) {
	libraries := cardstest.Build(t, "nvml", "opencl")
	files, err := filepath.Glob("/etc/OpenCL/vendors/pocl*.icd")
	must(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(libraries, filepath.Base(f)), b, 0o600))
	}
	must(t, os.WriteFile(filepath.Join(libraries, "fake.icd"), []byte(filepath.Join(libraries, "libfakecl.so")+"\n"), 0o600))
	t.Setenv("OCL_ICD_VENDORS", libraries)
	for engine, postgres := range map[string]bool{"sqlite": false, "postgres": true} {
		t.Run(engine, func(t *testing.T) {
			limit := filepath.Join(t.TempDir(), "limit")
			must(t, os.WriteFile(limit, []byte("350000"), 0o600))
			t.Setenv("FAKENVML_LIMIT", limit)
			a := apptest.Start(t, apptest.Options{Postgres: postgres})
			x := start(t, a, pool.NodeConfig{Libraries: libraries})
			// now returns the first device of a kind, and its figures.
			now := func(kind string) (*poolv1.PoolDevice, *poolv1.PoolFigures) {
				t.Helper()
				res, err := a.Admin.Pool.ListPoolNodes(t.Context(), &poolv1.ListPoolNodesRequest{})
				must(t, err)
				n := res.Nodes[0]
				i := slices.IndexFunc(n.Devices, func(d *poolv1.PoolDevice) bool { return d.Type == kind })
				if i < 0 {
					return nil, nil
				}
				f := slices.IndexFunc(n.Figures, func(f *poolv1.PoolFigures) bool { return f.DeviceId == n.Devices[i].DeviceId })
				if f < 0 {
					return n.Devices[i], nil
				}
				return n.Devices[i], n.Figures[f]
			}
			set := func(kind string, watts int64) error {
				d, _ := now(kind)
				_, err := a.Admin.Pool.SetPoolDevice(t.Context(), &poolv1.SetPoolDeviceRequest{NodeId: "n1", DeviceId: d.DeviceId, PowerLimitWatts: watts})
				return err
			}
			holds := func(milliwatts int64) {
				t.Helper()
				apptest.Until(t, "the card has the limit", func() bool { _, f := now("gpu"); return f.GetPowerLimitMilliwatts() == milliwatts })
			}
			apptest.Until(t, "its limits are known", func() bool { _, f := now("gpu"); return f.GetMostPowerLimitMilliwatts() == 400_000 })
			must(t, set("gpu", 200))
			holds(200_000)
			if d, f := now("gpu"); d.PowerLimitWatts != 200 || f.PowerLimitError != "" {
				t.Errorf("device %v, figures %v", d, f)
			}
			// A card forgets its limit when it starts anew, with its node or without.
			forgets := func() { must(t, os.WriteFile(limit, []byte("350000"), 0o600)) }
			is := func(want string) {
				t.Helper()
				apptest.Until(t, "the card has the limit again", func() bool { b, err := os.ReadFile(limit); return err == nil && string(b) == want })
			}
			forgets()
			is("200000")
			x.stop()
			forgets()
			x.stop, x.cut = x.joinFrom(x.dir, "n1")
			is("200000")
			holds(200_000)
			must(t, set("gpu", -1))
			holds(350_000)
			for what, x := range map[string]struct {
				kind  string
				watts int64
				says  string
			}{"too little": {"gpu", 99, "at least 100 and at most 400"}, "too much": {"gpu", 401, "at least 100 and at most 400"}, "less than nothing": {"gpu", -2, "power_limit_watts"},
				"no card": {"cpu", 100, "nothing sets what device"}} {
				if err := set(x.kind, x.watts); err == nil || !strings.Contains(err.Error(), x.says) {
					t.Errorf("%s: %v, want %q", what, err, x.says)
				}
			}
		})
	}
}
