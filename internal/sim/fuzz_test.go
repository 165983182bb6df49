package sim_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/sim"
)

// play runs what was read, if it is small: it must not panic, nor lose a job.
func play(t *testing.T, in *sim.Input) {
	if errors.Join(in.Fleet.Check(), in.Workload.Check()) != nil || len(in.Nodes)+len(in.Centers) > 50 || len(in.Jobs) > 50 {
		return
	}
	replicas := 0
	for i := range in.Jobs {
		replicas += in.Jobs[i].Replicas
	}
	if replicas > 500 {
		return
	}
	p, err := sim.ParsePolicies(nil, len(in.Centers) > 0)
	if err != nil {
		t.Fatal(err)
	}
	q, err := sim.ParseQueue("fair,preempt=on")
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(in, sim.Config{Policy: p[0], Queue: q})
	if err != nil {
		if fault.KindOf(err) == fault.Internal {
			t.Fatal(err)
		}
		return
	}
	if j := r.Jobs; j.Total != int64(len(in.Jobs)) || j.Total != j.Done+j.Running+j.Waiting+j.Never {
		t.Errorf("of %d jobs there are %+v", len(in.Jobs), j)
	}
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte("nodes: [{id: n, cpu: 8, memory: 8Gi, cards: 2}]\njobs: [{id: a, arrival: 0, duration: 10, cpu: 1, cards: 1, share: 500}]\n"))
	f.Add([]byte(`{"centers": [{"id": "c", "cpu": 9, "cards": 4, "price": 1.5, "resources": {"npu": 3}, "offers": {"s": 2}}], "jobs": [{"arrival": 1, "duration": "1h", "spec": "s", "resources": {"npu": 1}, "replicas": 2}], "tenants": [{"id": "x", "limit": {"card": 1.5}}]}`))
	f.Add([]byte(`{"recorded": {"at": "2026-01-02T03:04:05Z", "start": "2026-01-02T03:04:05Z", "queue": "fair", "weights": {"least-load": 1}},
		"snapshot": {"candidates": [{"id": "c", "status": "available", "total": {"cpu": 9000, "gpu": 2}, "free": {"cpu": 9000, "gpu": 2}, "offers": {"s": {}}, "speeds": [{"kind": "gpu", "milli": 500}]}]},
		"jobs": [{"id": "j", "arrival": 0, "duration": 60, "expected": "unknown", "work": {"id": "j", "tasks": [{"id": "t", "replicas": 2, "spec": "s", "kind": "gpu", "request": {"cpu": 1000, "gpu": 1}}]}}]}`))
	f.Add([]byte("models: {m: {speeds: {k: 2}}}\nnodes: &a [{id: n, count: 3, cpu: 1, model: m}]\njobs: *a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := sim.ReadFleet(sim.Document, bytes.NewReader(data))
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Fatalf("%v", err)
			}
			return
		}
		play(t, in)
	})
}

func FuzzTable(f *testing.F) {
	f.Add("id,cpu,memory,cards,model\nn,8,8Gi,2,T4\n", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\np,500,10,1,460,T4|V,BE,x,0,12,3\n")
	f.Add("sn,cpu_milli,memory_mib,gpu\nn,8,8,2\n", "cpu,arrival,duration,checkpoint,preemptible,split,cards\n1,1e3,90m,5,true,yes,2\n")
	f.Fuzz(func(t *testing.T, nodes, jobs string) {
		fleet, err := sim.ReadFleet(sim.Table, strings.NewReader(nodes))
		if err != nil && fault.KindOf(err) != fault.Invalid {
			t.Fatal(err)
		}
		in, bad := sim.ReadJobs(sim.Table, strings.NewReader(jobs), nil, true)
		if bad != nil && fault.KindOf(bad) != fault.Invalid {
			t.Fatal(bad)
		}
		if err == nil && bad == nil {
			in.Fleet = fleet.Fleet
			play(t, in)
		}
	})
}

func FuzzSteps(f *testing.F) {
	f.Add(`{"k80": {"('A', 1)": {"null": 2.0}}}`, "A\tx\t-n\t1\t600\t0.5\t2\n")
	f.Fuzz(func(t *testing.T, speeds, trace string) {
		s, err := sim.ReadThroughputs(strings.NewReader(speeds))
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Fatal(err)
			}
			return
		}
		if _, err := sim.ReadJobs(sim.Steps, strings.NewReader(trace), s, true); err != nil && fault.KindOf(err) != fault.Invalid {
			t.Fatal(err)
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Add("fair,backfill=on,preempt=on,half-life=24h", "nodes=3,jobs=10,load=1.2", "lexicographic:price=3,energy=1")
	f.Fuzz(func(t *testing.T, queue, recipe, policy string) {
		if _, err := sim.ParseQueue(queue); err != nil && fault.KindOf(err) != fault.Invalid {
			t.Fatal(err)
		}
		for _, centers := range []bool{true, false} {
			if _, err := sim.ParsePolicies([]string{policy}, centers); err != nil && fault.KindOf(err) != fault.Invalid {
				t.Fatal(err)
			}
		}
		r, err := sim.ParseRecipe(recipe)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Fatal(err)
			}
			return
		}
		if r.Jobs <= 200 && r.Nodes+r.Centers <= 50 {
			in := r.Make()
			if err := errors.Join(in.Fleet.Check(), in.Workload.Check()); err != nil {
				t.Fatalf("what %q makes is refused: %v", recipe, err)
			}
		}
	})
}
