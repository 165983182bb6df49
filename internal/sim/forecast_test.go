package sim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/pack"
	"yunhe.dev/yunhe/internal/sim"
)

// habits is work of users whose jobs take about as long each time, and who state
// two to six times as much.
func habits(jobs int) *sim.Input {
	dice := rand.New(rand.NewPCG(3, 3))
	in := &sim.Input{}
	for i := range 4 {
		in.Nodes = append(in.Nodes, sim.Node{Node: pack.Node{ID: fmt.Sprint("node-", i), CPU: 64_000, Memory: 65_536, Cards: 8, Model: "m"}})
	}
	for i := range jobs {
		user := dice.IntN(20)
		run := int64(60+30*user) * sim.Second * (90 + dice.Int64N(21)) / 100
		j := sim.Job{ID: fmt.Sprint("job-", i), Tenant: "t", User: fmt.Sprint(user), Arrival: int64(i) * 24 * sim.Second, Run: run, Expected: run * (2 + dice.Int64N(5)),
			Replicas: 1, Ask: sim.Ask{CPU: 1000, Memory: 1024, Cards: 1, Share: pack.Whole}}
		if user%5 == 0 {
			j.Ask.Cards = 8
		}
		in.Jobs = append(in.Jobs, j)
	}
	return in
}

func TestForecasts(t *testing.T) {
	t.Parallel()
	out, err := sim.Forecasts(habits(2000), 0.5)
	if err != nil || len(out) != 4 || out[0].Way != "forecast" || out[1].Way != "stated" || out[0].Jobs != 1000 {
		t.Fatalf("%+v, %v", out, err)
	}
	f, stated := out[0], out[1]
	if f.Off > 1.1 || stated.Off < 3.9 || f.Twice < 99 || stated.Twice > 30 || f.Within < 75 {
		t.Errorf("forecast %+v, stated %+v", f, stated)
	}
	for _, bad := range []float64{-0.1, 1, 2} {
		if _, err := sim.Forecasts(habits(2), bad); fault.KindOf(err) != fault.Invalid {
			t.Errorf("learning from %v: %v", bad, err)
		}
	}
	if _, err := sim.Forecasts(&sim.Input{}, 0); fault.KindOf(err) != fault.Invalid {
		t.Errorf("of nothing: %v", err)
	}
}

// With forecasts the queue backfills what statements four times too long keep
// from starting.
func TestForecastBackfills(t *testing.T) {
	t.Parallel()
	in := habits(1500)
	stated, told := run(t, in, "best-fit", "fcfs"), run(t, in, "best-fit", "fcfs,forecast=on")
	if told.Jobs.Done != 1500 || stated.Jobs.Done != 1500 {
		t.Fatalf("done %d and %d", stated.Jobs.Done, told.Jobs.Done)
	}
	if told.Waiting.Mean >= stated.Waiting.Mean {
		t.Errorf("a job waits %.0f s on average, with forecasts %.0f s", stated.Waiting.Mean, told.Waiting.Mean)
	}
}

// On the public trace forecasts are nearer than the mean, on jobs that were not
// learned from.
func TestForecastsOfTrace(t *testing.T) {
	t.Parallel()
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "data", "openb", "openb_pod_list_default.csv"))
	if err != nil {
		t.Skipf("the public trace is not here: %v", err)
	}
	defer f.Close()
	in, err := sim.ReadJobs(sim.Table, f, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	out, err := sim.Forecasts(in, 0.5)
	if err != nil || len(out) < 2 {
		t.Fatalf("%+v, %v", out, err)
	}
	f0, mean := out[0], out[len(out)-1]
	t.Logf("%+v", out)
	if mean.Way != "mean" || f0.Off > 0.7*mean.Off {
		t.Errorf("forecast %+v, mean %+v", f0, mean)
	}
}
