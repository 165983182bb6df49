package simulations_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	policiesv1 "yunhe.dev/yunhe/gen/yunhe/policies/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	simulationsv1 "yunhe.dev/yunhe/gen/yunhe/simulations/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/policies"
	"yunhe.dev/yunhe/internal/sim"
)

func TestMain(m *testing.M) { os.Exit(apptest.Main(m)) }

const (
	done        = simulationsv1.SimulationState_SIMULATION_STATE_DONE
	running     = simulationsv1.SimulationState_SIMULATION_STATE_RUNNING
	canceled    = simulationsv1.SimulationState_SIMULATION_STATE_CANCELED
	interrupted = simulationsv1.SimulationState_SIMULATION_STATE_INTERRUPTED
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func code(t testing.TB, what string, err error, want connect.Code, texts ...string) {
	t.Helper()
	if connect.CodeOf(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	for _, text := range texts {
		if err == nil || !strings.Contains(fmt.Sprintf("%v %v", err, details(err)), text) {
			t.Errorf("%s: %v %v, want %q in it", what, err, details(err), text)
		}
	}
}

func details(err error) (out []string) {
	if e, ok := err.(*connect.Error); ok {
		for _, d := range e.Details() {
			if m, err := d.Value(); err == nil {
				out = append(out, fmt.Sprint(m))
			}
		}
	}
	return out
}

// ended follows a simulation to its end.
func ended(t testing.TB, c *apptest.Client, id string) *simulationsv1.Simulation {
	t.Helper()
	return follow(t, c, id, func(x *simulationsv1.Simulation) bool { return x.EndedAt != nil })
}

func follow(t testing.TB, c *apptest.Client, id string, cond func(*simulationsv1.Simulation) bool) *simulationsv1.Simulation {
	t.Helper()
	stream, err := c.Simulations.WatchSimulation(t.Context(), &simulationsv1.WatchSimulationRequest{SimulationId: id})
	must(t, err)
	defer stream.Close()
	for stream.Receive() {
		if x := stream.Msg().Simulation; cond(x) {
			return x
		}
	}
	t.Fatalf("simulation %s: the watch ended: %v", id, stream.Err())
	return nil
}

func start(t testing.TB, c *apptest.Client, q *simulationsv1.StartSimulationRequest) *simulationsv1.Simulation {
	t.Helper()
	x, err := c.Simulations.StartSimulation(t.Context(), q)
	must(t, err)
	return x
}

// figure of a result.
func figure(t testing.TB, x *simulationsv1.Simulation, measure, name string) float64 {
	t.Helper()
	for _, m := range x.Measures {
		for _, f := range m.Figures {
			if m.MeasureId == measure && f.Name == name {
				return f.Value
			}
		}
	}
	t.Errorf("simulation has no %s of %q: %v", measure, name, x)
	return 0
}

// choice is a decision as far as both sides say it.
func choice(d *schedulerv1.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", d.AiCenterId)
	for _, c := range d.Candidates {
		fmt.Fprintf(&b, " %s/%d/%d", c.AiCenterId, c.Rank, c.FinalScoreRounded)
	}
	return b.String()
}

func document(id, label string, weights map[string]int32) *policiesv1.PolicyDocument {
	d := &policiesv1.PolicyDocument{PolicyId: id, Rules: &policiesv1.PolicyRules{Weights: weights}}
	if label != "" {
		d.MatchRules = []*policiesv1.PolicyMatchRule{{Expression: fmt.Sprintf("job.labels['class'] == '%s'", label)}}
	}
	return d
}

// played submits works that run, end and fill centers up, and returns where
// each went.
func played(t *testing.T, a *apptest.App) map[string]*schedulerv1.Decision {
	t.Helper()
	ctx := t.Context()
	centers := map[string]*apptest.FakeCenter{}
	for _, c := range []apptest.Center{
		{ID: "c-1", CPU: 3000, Prices: map[string]int64{"small": 100}, Performance: 500, Static: 2000, Active: 9000},
		{ID: "c-2", CPU: 3000, Prices: map[string]int64{"small": 200}, Performance: 1000, Static: 1000, Active: 8000, Grade: 3},
		{ID: "c-3", CPU: 4000, Prices: map[string]int64{"small": 900}, Performance: 4000, Static: 3000, Active: 30000},
	} {
		centers[c.ID] = a.Join(t, c)
	}
	_, err := a.Admin.Policies.CreatePolicy(ctx, &policiesv1.CreatePolicyRequest{Document: document("quick", "quick", map[string]int32{"highest-performance": 1})})
	must(t, err)
	_, err = a.Admin.Policies.IssuePolicy(ctx, &policiesv1.IssuePolicyRequest{PolicyId: "quick"})
	must(t, err)
	went := map[string]*schedulerv1.Decision{}
	for i := range 10 {
		j := apptest.Job(fmt.Sprintf("j-%d", i), 1)
		switch i % 5 {
		case 1:
			j.Labels = map[string]string{"class": "quick"}
		case 2:
			j.PolicyWeights = map[string]int32{"lowest-energy": 2, "lowest-price": 1}
		case 3:
			j.Tasks[0].Constraints = &jobsv1.Constraints{MinSecurityGrade: 2}
		}
		id := a.Admin.Submit(t, j)
		a.Admin.Await(t, id, "placed", func(j *jobsv1.Job) bool { return len(j.CenterIds) > 0 })
		at := a.Admin.Job(t, id).CenterIds[0]
		r := centers[at].Of(id, 1)[0]
		r.Run()
		if i%2 == 1 { // the others run on, and fill the centers up
			apptest.Succeed(r)
			a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
		} else {
			a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
		}
		x, err := a.Admin.Scheduler.ExplainJob(ctx, &schedulerv1.ExplainJobRequest{JobId: id})
		must(t, err)
		went[id] = x.Decisions[0]
	}
	if all := map[string]bool{}; true {
		for _, d := range went {
			all[d.AiCenterId] = true
		}
		if len(all) != 3 {
			t.Fatalf("all went to %v, want all three centers used", all)
		}
	}
	return went
}

// What a platform did is decided in a simulation as it was decided there, with
// the same scores; on the platform, and from the file of "sim record".
func TestReproduces(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		went := played(t, a)
		x := ended(t, a.Admin, start(t, a.Admin, &simulationsv1.StartSimulationRequest{Platform: &simulationsv1.SimulationPlatform{}}).SimulationId)
		if x.State != done || x.Jobs != 10 || x.Places != 3 || !slices.Equal(x.Compared, []string{"in force"}) || !strings.Contains(x.Message, "5 jobs had not ended") {
			t.Fatalf("simulation %v", x)
		}
		for id, d := range went {
			res, err := a.Admin.Simulations.ListSimulationEvents(ctx, &simulationsv1.ListSimulationEventsRequest{SimulationId: x.SimulationId, JobId: id})
			must(t, err)
			var got *schedulerv1.Decision
			for _, e := range res.Events {
				if e.What == "starts" && got == nil {
					got = e.Decision
				}
			}
			if got == nil || choice(got) != choice(d) {
				t.Errorf("job %s went by\n  %s\nand would go by\n  %s", id, choice(d), choice(got))
			}
		}
		rec, err := a.Admin.Simulations.RecordPlatform(ctx, &simulationsv1.RecordPlatformRequest{SinceSeconds: 3600})
		must(t, err)
		in, err := sim.ReadFleet(sim.Document, bytes.NewReader(rec.Content))
		must(t, err)
		b, err := policies.NewBench(ctx, in.Recorded.Policies, nil, nil)
		must(t, err)
		defer b.Close()
		set, err := in.Recorded.Set()
		must(t, err)
		q, err := sim.ParseQueue(in.Recorded.Queue)
		must(t, err)
		n := 0
		_, err = sim.Run(in, sim.Config{Policy: b.Policy(ctx, "live", set, in.Recorded.Start), Queue: q, Log: func(e sim.Event) {
			if e.What != sim.Starts {
				return
			}
			n++
			id := in.Jobs[e.Job].ID
			if at := in.Centers[e.Spots[0].At].ID; went[id] == nil || at != went[id].AiCenterId {
				t.Errorf("from the file job %s goes to %s, went by %v", id, at, went[id])
			}
		}})
		must(t, err)
		if n != 10 || rec.Centers != 3 || rec.Jobs != 10 || rec.OpenJobs != 5 {
			t.Errorf("%d started of %d centers, %d jobs, %d open", n, rec.Centers, rec.Jobs, rec.OpenJobs)
		}
		if y := ended(t, a.Admin, start(t, a.Admin, &simulationsv1.StartSimulationRequest{Files: &simulationsv1.SimulationFiles{Nodes: rec.Content, NodesName: "recorded.json"}}).SimulationId); y.State != done || !slices.Equal(y.Compared, []string{"in force"}) {
			t.Errorf("from the file on the platform, with no policy named: %v", y)
		}
		// What would have been otherwise, without a policy and with a draft.
		s, err := a.Admin.Policies.SimulatePolicy(ctx, &policiesv1.SimulatePolicyRequest{Document: document("dear", "", map[string]int32{"highest-performance": 1})})
		must(t, err)
		if s.Jobs != 10 || s.Matched != 10 || s.Tasks != 10 || s.Moved == 0 || len(s.Moves) != int(s.Moved) || s.Present.PriceFen >= s.WithPolicy.PriceFen || s.PresentCenters["c-1"] == 0 {
			t.Errorf("simulated %v", s)
		}
	})
}

const twoCenters = `
centers:
- {id: a, cpu: 4, memory: 16Gi, cards: 4, price: 9, idle: 50, busy: 300, labels: {tier: gold}}
- {id: b, cpu: 4, memory: 16Gi, cards: 4, price: 2, idle: 50, busy: 400, region: south}
jobs:
- {id: j1, tenant: t1, user: ann, arrival: 0, duration: 1h, cpu: 1, cards: 2, labels: {class: quick}}
- {id: j2, tenant: t2, arrival: 10, duration: 1h, cpu: 1, cards: 2}
- {id: j3, tenant: t2, arrival: 20, duration: 1h, cpu: 1, cards: 4}
- {id: never, arrival: 20, duration: 1h, cards: 16}
`

// Files and recipes are played; policies are compared, kept ones and documents
// that are not; reports, events, canceling and deleting.
func TestCompare(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		ann, eve := a.User(t, "t1", "ann", identityv1.Role_ROLE_USER), a.User(t, "t2", "eve", identityv1.Role_ROLE_USER)
		_, err := a.Admin.Policies.CreatePolicy(ctx, &policiesv1.CreatePolicyRequest{Document: document("cheap", "", map[string]int32{"lowest-price": 1})})
		must(t, err)
		south := document("south", "quick", map[string]int32{"lowest-energy": 1})
		south.Rules.Filters = []*policiesv1.PolicyFilterRule{{FilterId: "far", Expression: "region != 'south' && labels['tier'] == 'gold'", Message: "not there"}}
		q := &simulationsv1.StartSimulationRequest{RequestId: "r1", Title: "two", Files: &simulationsv1.SimulationFiles{Nodes: []byte(twoCenters), NodesName: "two.yaml"}, Baseline: "lowest-cost", Seed: 7,
			Policies: []*simulationsv1.SimulationPolicy{{Preset: "lowest-cost"}, {PolicyId: "cheap"}, {Document: south}}}
		x := start(t, ann, q)
		if again := start(t, ann, q); again.SimulationId != x.SimulationId {
			t.Errorf("the same request again: %v", again)
		}
		other := &simulationsv1.StartSimulationRequest{RequestId: "r1", Recipe: "centers=2"}
		_, err = ann.Simulations.StartSimulation(ctx, other)
		code(t, "another request of the same ID", err, connect.CodeAborted)
		x = ended(t, ann, x.SimulationId)
		if x.State != done || x.ProgressPermille != 1000 || x.Runs != 1 || x.TenantId != "t1" || x.UserId != "ann" || !slices.Equal(x.Compared, []string{"lowest-cost", "cheap@1", "south"}) || x.Places != 2 || x.Jobs != 4 {
			t.Fatalf("simulation %v", x)
		}
		for _, name := range x.Compared {
			if n := figure(t, x, "jobs.done", name); n != 3 {
				t.Errorf("%s: %v jobs done, want 3", name, n)
			}
		}
		at := func(name, job string) map[string]int32 {
			t.Helper()
			res, err := ann.Simulations.ListSimulationEvents(ctx, &simulationsv1.ListSimulationEventsRequest{SimulationId: x.SimulationId, Name: name, JobId: job})
			must(t, err)
			for _, e := range res.Events {
				if e.What == "starts" {
					if e.Decision == nil || e.Decision.AiCenterId == "" || len(e.Decision.Candidates) != 2 {
						t.Errorf("%s %s: decision %v", name, job, e.Decision)
					}
					return e.Places
				}
			}
			t.Errorf("%s: %s did not start: %v", name, job, res)
			return nil
		}
		if got := at("cheap@1", "j1"); got["b"] != 1 {
			t.Errorf("cheap@1 puts j1 at %v, want b", got)
		}
		if got := at("south", "j1"); got["a"] != 1 {
			t.Errorf("south puts j1 at %v, want a: its filter keeps b out", got)
		}
		// Pages of events join up.
		var all []*simulationsv1.SimulationEvent
		for token := ""; ; {
			res, err := ann.Simulations.ListSimulationEvents(ctx, &simulationsv1.ListSimulationEventsRequest{SimulationId: x.SimulationId, PageSize: 3, PageToken: token})
			must(t, err)
			all = append(all, res.Events...)
			if token = res.NextPageToken; token == "" {
				break
			}
		}
		if len(all) < 11 || all[0].What != "arrives" || all[len(all)-1].What != "ends" {
			t.Errorf("%d events: %v", len(all), all)
		}
		rep, err := ann.Simulations.GetSimulationReport(ctx, &simulationsv1.GetSimulationReportRequest{SimulationId: x.SimulationId})
		must(t, err)
		var c sim.Comparison
		must(t, json.Unmarshal(rep.Content, &c))
		if len(c.Results) != 3 || c.Results[1].Name != "cheap@1" || c.Baseline != "lowest-cost" || len(c.Results[0].Series) == 0 || len(c.Results[0].NeverFits) != 1 {
			t.Errorf("report %s", rep.Content)
		}
		page, err := ann.Simulations.GetSimulationReport(ctx, &simulationsv1.GetSimulationReportRequest{SimulationId: x.SimulationId, Format: "html"})
		must(t, err)
		if !strings.HasPrefix(string(page.Content), "<!doctype html>") || !strings.Contains(string(page.Content), "<svg") || !strings.HasPrefix(page.ContentType, "text/html") {
			t.Errorf("page %s: %.100s", page.ContentType, page.Content)
		}
		_, err = ann.Simulations.GetSimulationReport(ctx, &simulationsv1.GetSimulationReportRequest{SimulationId: x.SimulationId, Format: "pdf"})
		code(t, "another form", err, connect.CodeInvalidArgument, "format")
		// Another tenant sees nothing of it.
		_, err = eve.Simulations.GetSimulation(ctx, &simulationsv1.GetSimulationRequest{SimulationId: x.SimulationId})
		code(t, "another tenant's", err, connect.CodeNotFound)
		_, err = eve.Simulations.GetSimulationReport(ctx, &simulationsv1.GetSimulationReportRequest{SimulationId: x.SimulationId})
		code(t, "another tenant's report", err, connect.CodeNotFound)
		_, err = eve.Simulations.CancelSimulation(ctx, &simulationsv1.CancelSimulationRequest{SimulationId: x.SimulationId})
		code(t, "cancel another tenant's", err, connect.CodeNotFound)
		list, err := eve.Simulations.ListSimulations(ctx, &simulationsv1.ListSimulationsRequest{})
		must(t, err)
		if len(list.Simulations) != 0 {
			t.Errorf("another tenant lists %v", list)
		}
		// Nodes are played by a recipe; two queues make two results of each policy.
		y := ended(t, eve, start(t, eve, &simulationsv1.StartSimulationRequest{Recipe: "nodes=4,jobs=60,load=1.2", Queues: []string{"fair", "fcfs,backfill=off"},
			Policies: []*simulationsv1.SimulationPolicy{{Preset: "best-fit"}}}).SimulationId)
		if y.State != done || !slices.Equal(y.Compared, []string{"best-fit / fair", "best-fit / fcfs,backfill=off"}) || figure(t, y, "jobs.done", y.Compared[1]) != 60 {
			t.Errorf("of nodes: %v", y)
		}
		list, err = a.Admin.Simulations.ListSimulations(ctx, &simulationsv1.ListSimulationsRequest{PageSize: 1})
		must(t, err)
		if len(list.Simulations) != 1 || list.Simulations[0].SimulationId != y.SimulationId || list.NextPageToken == "" {
			t.Errorf("an administrator lists %v", list)
		}
		// One that someone watches in its own time is canceled.
		z := start(t, ann, &simulationsv1.StartSimulationRequest{Recipe: "centers=2,jobs=50", Speed: 0.001})
		follow(t, ann, z.SimulationId, func(x *simulationsv1.Simulation) bool { return x.State == running })
		_, err = ann.Simulations.DeleteSimulation(ctx, &simulationsv1.DeleteSimulationRequest{SimulationId: z.SimulationId})
		code(t, "delete what runs", err, connect.CodeAborted)
		waiting := start(t, ann, &simulationsv1.StartSimulationRequest{Recipe: "centers=2,jobs=50"})
		w, err := ann.Simulations.CancelSimulation(ctx, &simulationsv1.CancelSimulationRequest{SimulationId: waiting.SimulationId})
		must(t, err)
		if w.State != canceled {
			t.Errorf("canceled while it waits: %v", w)
		}
		_, err = ann.Simulations.CancelSimulation(ctx, &simulationsv1.CancelSimulationRequest{SimulationId: z.SimulationId})
		must(t, err)
		if z = ended(t, ann, z.SimulationId); z.State != canceled {
			t.Errorf("canceled: %v", z)
		}
		_, err = ann.Simulations.DeleteSimulation(ctx, &simulationsv1.DeleteSimulationRequest{SimulationId: x.SimulationId})
		must(t, err)
		_, err = ann.Simulations.DeleteSimulation(ctx, &simulationsv1.DeleteSimulationRequest{SimulationId: x.SimulationId})
		code(t, "deleted again", err, connect.CodeNotFound)
		_, err = ann.Simulations.GetSimulation(ctx, &simulationsv1.GetSimulationRequest{SimulationId: x.SimulationId})
		code(t, "deleted", err, connect.CodeNotFound)
	})
}

// What is wrong is said at once, by its field.
func TestRefused(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	files := func(nodes, jobs string) *simulationsv1.SimulationFiles {
		return &simulationsv1.SimulationFiles{Nodes: []byte(nodes), NodesName: "n.yaml", Jobs: []byte(jobs), JobsName: "j.csv"}
	}
	many := make([]*simulationsv1.SimulationPolicy, 9)
	for i := range many {
		many[i] = &simulationsv1.SimulationPolicy{}
	}
	for name, x := range map[string]struct {
		q    *simulationsv1.StartSimulationRequest
		want []string
	}{
		"nothing":         {&simulationsv1.StartSimulationRequest{}, []string{"platform", "exactly one"}},
		"two":             {&simulationsv1.StartSimulationRequest{Recipe: "nodes=2", Files: files("x", "")}, []string{"exactly one"}},
		"no jobs":         {&simulationsv1.StartSimulationRequest{Platform: &simulationsv1.SimulationPlatform{}}, []string{"no job"}},
		"numbers":         {&simulationsv1.StartSimulationRequest{Recipe: "nodes=2", Load: -1, Speed: -1, Title: strings.Repeat("x", 200), Policies: many}, []string{"load", "speed", "title", "at most 8", "policies[3]"}},
		"recipe":          {&simulationsv1.StartSimulationRequest{Recipe: "nodes=2,cats=3"}, []string{"recipe", "cats"}},
		"too large":       {&simulationsv1.StartSimulationRequest{Recipe: "nodes=2,jobs=1000000"}, []string{"recipe", "200000"}},
		"files":           {&simulationsv1.StartSimulationRequest{Files: files("nodes: [{cpu: x}]", "")}, []string{"files.nodes", "line 1", "cpu"}},
		"jobs":            {&simulationsv1.StartSimulationRequest{Files: files("nodes: [{id: n, cpu: 1}]", "id,cpu\na,1\n")}, []string{"files.jobs", "arrival"}},
		"policy":          {&simulationsv1.StartSimulationRequest{Recipe: "centers=2", Policies: []*simulationsv1.SimulationPolicy{{Preset: "best-fit"}}}, []string{"policies[0]", "best-fit"}},
		"document":        {&simulationsv1.StartSimulationRequest{Recipe: "centers=2", Policies: []*simulationsv1.SimulationPolicy{{Document: document("d", "", map[string]int32{"cheap": 1})}}}, []string{"policies[0].document.rules.weights.cheap"}},
		"for nodes":       {&simulationsv1.StartSimulationRequest{Recipe: "nodes=2", Policies: []*simulationsv1.SimulationPolicy{{Document: document("d", "", map[string]int32{"lowest-price": 1})}}}, []string{"policies[0]", "nodes"}},
		"queue":           {&simulationsv1.StartSimulationRequest{Recipe: "nodes=2", Queues: []string{"lifo"}}, []string{"queues[0]", "lifo"}},
		"twice":           {&simulationsv1.StartSimulationRequest{Recipe: "centers=2", Policies: []*simulationsv1.SimulationPolicy{{Preset: "balanced"}, {Preset: "balanced"}}}, []string{"compared twice"}},
		"baseline":        {&simulationsv1.StartSimulationRequest{Recipe: "nodes=2", Baseline: "b"}, []string{"baseline", "waste"}},
		"live, elsewhere": {&simulationsv1.StartSimulationRequest{Recipe: "centers=2", Policies: []*simulationsv1.SimulationPolicy{{InForce: true}}}, []string{"policies[0].in_force"}},
	} {
		_, err := a.Admin.Simulations.StartSimulation(t.Context(), x.q)
		code(t, name, err, connect.CodeInvalidArgument, x.want...)
	}
	_, err := a.Admin.Simulations.StartSimulation(t.Context(), &simulationsv1.StartSimulationRequest{Recipe: "centers=2", Policies: []*simulationsv1.SimulationPolicy{{PolicyId: "none"}}})
	code(t, "no such policy", err, connect.CodeNotFound)
	// A tenant does not fill the queue.
	slow := &simulationsv1.StartSimulationRequest{Recipe: "nodes=2,jobs=20", Speed: 0.001}
	var ids []string
	for range 10 {
		ids = append(ids, start(t, a.Admin, slow).SimulationId)
	}
	_, err = a.Admin.Simulations.StartSimulation(t.Context(), slow)
	code(t, "the eleventh", err, connect.CodeResourceExhausted)
	for _, id := range ids {
		_, err := a.Admin.Simulations.CancelSimulation(t.Context(), &simulationsv1.CancelSimulationRequest{SimulationId: id})
		must(t, err)
	}
}

// What runs when the platform stops is played again; the third time it is
// interrupted. What ended is as it was.
func TestRestart(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		quick := ended(t, a.Admin, start(t, a.Admin, &simulationsv1.StartSimulationRequest{Recipe: "nodes=2,jobs=20"}).SimulationId)
		slow := start(t, a.Admin, &simulationsv1.StartSimulationRequest{Recipe: "nodes=2,jobs=20", Speed: 0.001})
		for run := range int32(3) {
			follow(t, a.Admin, slow.SimulationId, func(x *simulationsv1.Simulation) bool { return x.State == running && x.Runs == run+1 })
			a.Restart()
		}
		if x := ended(t, a.Admin, slow.SimulationId); x.State != interrupted || x.Message == "" {
			t.Errorf("stopped three times: %v", x)
		}
		x, err := a.Admin.Simulations.GetSimulation(t.Context(), &simulationsv1.GetSimulationRequest{SimulationId: quick.SimulationId})
		must(t, err)
		if x.State != done || x.Version != quick.Version || len(x.Measures) == 0 {
			t.Errorf("after restarts: %v, was %v", x, quick)
		}
		if _, err := a.Admin.Simulations.GetSimulationReport(t.Context(), &simulationsv1.GetSimulationReportRequest{SimulationId: quick.SimulationId}); err != nil {
			t.Errorf("its report: %v", err)
		}
	})
}
