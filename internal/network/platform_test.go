package network_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	networkv1 "yunhe.dev/yunhe/gen/yunhe/network/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/registry"
)

func TestMain(m *testing.M) { os.Exit(apptest.Main(m)) }

// What a center measures, what is declared, where users are and what jobs read
// decide where jobs go, and explanations say so.
func TestPlacedByTheNetwork(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		_, err := a.Registry.CreateSpec(ctx, registry.NewSpec{ID: "s", Quantity: map[string]string{core.CPU: "1", core.Memory: "1Gi"}, Price: 100})
		must(t, err)
		center := func(id, region string, price int64, latency int64) *apptest.FakeCenter {
			return a.Join(t, apptest.Center{ID: id, Region: region, Prices: map[string]int64{"s": price}, Play: apptest.Succeed,
				Paths: []*adapterv1.Path{{Peer: "platform", LatencyMicroseconds: latency, JitterMicroseconds: 10, BandwidthBitsPerSecond: 800e6}}})
		}
		center("near", "east", 200, 5_000)
		center("far", "west", 100, 60_000)
		measured := func() string {
			must(t, a.Network.Look(ctx))
			res, err := a.Admin.Network.ListPaths(ctx, &networkv1.ListPathsRequest{})
			must(t, err)
			var out []string
			for _, p := range res.Paths {
				for _, f := range p.Facts {
					if f.Source == networkv1.PathFact_SOURCE_MEASURED && f.MeasuredAt != nil && f.Fact == "latency_us" {
						out = append(out, p.From)
					}
				}
			}
			return strings.Join(out, " ")
		}
		apptest.Until(t, "both centers' paths are known", func() bool { return measured() == "center:far center:near" })

		job := func(name string) *jobsv1.JobSpec {
			j := apptest.Job(name, 1)
			j.Tasks[0].ResourceSpecId = "s"
			j.PolicyWeights = map[string]int32{"lowest-price": 1}
			return j
		}
		decide := func(j *jobsv1.JobSpec) *schedulerv1.Decision {
			t.Helper()
			res, err := a.Admin.Jobs.PlanJob(ctx, &jobsv1.PlanJobRequest{Job: j})
			must(t, err)
			if len(res.Decisions) != 1 {
				t.Fatalf("%s: %v", j.Name, res)
			}
			return res.Decisions[0]
		}
		goes := func(j *jobsv1.JobSpec, want string) *schedulerv1.Decision {
			t.Helper()
			d := decide(j)
			if d.AiCenterId != want {
				t.Errorf("%s goes to %q, want %q: %s", j.Name, d.AiCenterId, want, d.Summary)
			}
			return d
		}
		goes(job("any"), "far")

		// Quality that is required, as measured.
		j := job("serve")
		j.Tasks[0].Qos = &jobsv1.Qos{MaxLatencyUs: 20_000, Required: true}
		d := goes(j, "near")
		for _, k := range d.Candidates {
			switch k.AiCenterId {
			case "far":
				if !slices.ContainsFunc(k.FilterReasons, func(s string) bool { return strings.Contains(s, "has latency 60 ms, at most 20 ms required") }) {
					t.Errorf("far is left out because %v", k.FilterReasons)
				}
			case "near":
				if !strings.HasPrefix(k.NetworkSource, "measured 20") || !strings.Contains(k.NetworkSource, "(latency, jitter, loss, bandwidth)") {
					t.Errorf("near is known from %q", k.NetworkSource)
				}
			}
		}
		id := a.Admin.Submit(t, j)
		if got := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED); !slices.Equal(got.CenterIds, []string{"near"}) {
			t.Errorf("ran at %v", got.CenterIds)
		}

		// From where its users are, the other one is closer.
		_, err = a.Admin.Network.SetOrigin(ctx, &networkv1.SetOriginRequest{Origin: &networkv1.Origin{OriginId: "shop", Region: "south"}})
		must(t, err)
		for _, p := range []*networkv1.PathDeclaration{
			{From: "region:south", To: "region:west", LatencyUs: new(int64(8_000))},
			{From: "region:south", To: "region:east", LatencyUs: new(int64(40_000))},
			{From: "region:west", To: "region:east", FeeFenPerGib: new(int64(100)), BandwidthKbps: new(int64(100_000))},
		} {
			_, err = a.Admin.Network.SetPath(ctx, &networkv1.SetPathRequest{Path: p})
			must(t, err)
		}
		j.OriginId = "shop"
		goes(j, "far")
		j.Tasks[0].Qos.MaxLatencyUs = 1_000
		id = a.Admin.Submit(t, j)
		apptest.Until(t, "nobody is that close, and it says so", func() bool {
			res, err := a.Admin.Scheduler.ExplainJob(ctx, &schedulerv1.ExplainJobRequest{JobId: id})
			must(t, err)
			return len(res.Waits) == 1 && strings.Contains(res.Waits[0].Message, "at most 1 ms required")
		})
		// A job that waits follows what is declared.
		_, err = a.Admin.Network.SetPath(ctx, &networkv1.SetPathRequest{Path: &networkv1.PathDeclaration{From: "origin:shop", To: "center:near", LatencyUs: new(int64(900))}})
		must(t, err)
		if got := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED); !slices.Equal(got.CenterIds, []string{"near"}) {
			t.Errorf("ran at %v", got.CenterIds)
		}

		// Data: 20 GiB at near cost 20 CNY to bring, which an hour's price of 1 CNY
		// less does not make good.
		j = job("read")
		j.PolicyWeights = map[string]int32{"lowest-total-cost": 1}
		j.Tasks[0].ExpectedSeconds = 3600
		goes(j, "far")
		j.Tasks[0].Inputs = []*jobsv1.Input{{Name: "s3://corpus", SizeBytes: 20 << 30, Centers: []string{"near"}}}
		d = goes(j, "near")
		facts := map[string]string{}
		for _, k := range d.Candidates {
			for _, s := range k.Scores {
				if s.PolicyId == "lowest-total-cost" {
					facts[k.AiCenterId] = s.Fact
				}
			}
		}
		if facts["near"] != "2.00 CNY" || facts["far"] != "21.00 CNY" {
			t.Errorf("total cost %v", facts)
		}
		j = job("stay")
		j.Tasks[0].Inputs = []*jobsv1.Input{{Name: "s3://corpus", SizeBytes: 1, Centers: []string{"near"}, Stays: true}}
		goes(j, "near")

		// Replicas that talk to each other go where the way between them is short.
		center("zclose", "north", 300, 70_000)
		for _, p := range []*networkv1.PathDeclaration{
			{From: "center:near", To: "center:zclose", LatencyUs: new(int64(500))},
			{From: "center:near", To: "center:far", LatencyUs: new(int64(30_000))},
		} {
			_, err = a.Admin.Network.SetPath(ctx, &networkv1.SetPathRequest{Path: p})
			must(t, err)
		}
		j = apptest.Job("talk", 1)
		j.PolicyWeights = map[string]int32{"data-topology": 1}
		j.Tasks = append(j.Tasks, proto.CloneOf(j.Tasks[0]))
		for i, at := range [][]string{{"near"}, {"far", "zclose"}} {
			j.Tasks[i].Name, j.Tasks[i].ResourceSpecId, j.Tasks[i].Constraints = fmt.Sprint("t", i), "s", &jobsv1.Constraints{Centers: at}
		}
		for _, j.Distributed = range []bool{false, true} {
			want := []string{"near", "far"} // nothing tells them apart; the lower ID
			if j.Distributed {
				want[1] = "zclose"
			}
			id := a.Admin.Submit(t, j)
			got := a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED).CenterIds
			if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("distributed %t: ran at %v, want %v", j.Distributed, got, want)
			}
		}

		// What cannot be is refused, all of it at once.
		j.OriginId = "nowhere"
		j.Tasks[0].Precision = "FP1"
		j.Tasks[0].Qos = &jobsv1.Qos{Required: true}
		j.Tasks[0].Inputs = []*jobsv1.Input{{Name: "a", Volume: "none"}, {Name: "a", SizeBytes: 1, Stays: true}, {SizeBytes: 1, Centers: []string{"zz"}}}
		_, err = a.Admin.Jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: j})
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.HasSuffix(err.Error(), "(and 5 more)") {
			t.Errorf("eight faults: %v", err)
		}
		if _, err := a.User(t, "default", "ann", identityv1.Role_ROLE_USER).Network.SetPath(ctx, &networkv1.SetPathRequest{}); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("a user declares a path: %v", err)
		}
	})
}
