package planning_test

import (
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	availabilityv1 "yunhe.dev/yunhe/gen/yunhe/availability/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

func TestMain(m *testing.M) { os.Exit(apptest.Main(m)) }

func system(target float64) *availabilityv1.AvailabilitySystem {
	sub := func(name string, a float64) *availabilityv1.AvailabilitySubmodule {
		return &availabilityv1.AvailabilitySubmodule{Name: name, Availability: a}
	}
	return &availabilityv1.AvailabilitySystem{Target: target, Instances: 2, Modules: []*availabilityv1.AvailabilityModule{
		{Name: "trading", Submodules: []*availabilityv1.AvailabilitySubmodule{sub("market", 0.9), sub("matching", 0.95)}},
		{Name: "decision", Submodules: []*availabilityv1.AvailabilitySubmodule{sub("orders", 0.99), sub("rules", 0)}},
	}, Dependencies: []*availabilityv1.AvailabilityDependency{{From: "trading/market", To: "decision/rules"}}}
}

func ms(names ...string) *availabilityv1.AvailabilityMicroservice {
	return &availabilityv1.AvailabilityMicroservice{Submodules: names}
}

func TestAPI(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	ctx := t.Context()
	c := a.User(t, "acme", "ann", identityv1.Role_ROLE_USER).Planning

	plan, err := c.PlanAvailability(ctx, &availabilityv1.PlanAvailabilityRequest{System: system(0.985)})
	if err != nil {
		t.Fatal(err)
	}
	if !plan.Reachable || !plan.Minimal || plan.Microservices != 3 || plan.Method != availabilityv1.AvailabilityMethod_AVAILABILITY_METHOD_AWARE || len(plan.Sensitivity) != 4 || plan.Sensitivity[0].Submodule != "market" {
		t.Errorf("plan %v", plan)
	}
	split := []*availabilityv1.AvailabilitySplit{{Name: "decision", Microservices: []*availabilityv1.AvailabilityMicroservice{ms("rules", "orders")}},
		{Name: "trading", Microservices: []*availabilityv1.AvailabilityMicroservice{ms("market"), ms("matching")}}}
	given, err := c.EvaluateAvailability(ctx, &availabilityv1.EvaluateAvailabilityRequest{System: system(0.985), Modules: split})
	if err != nil {
		t.Fatal(err)
	}
	if given.Availability != plan.Availability || given.Method != 0 || given.Microservices != 3 || !given.Reachable || len(given.Sensitivity) != 4 {
		t.Errorf("the same split by hand is %v, planned %v", given, plan)
	}
	cheap, err := c.PlanAvailability(ctx, &availabilityv1.PlanAvailabilityRequest{System: system(0.985), LeastCost: true})
	if err != nil || cheap.Cost > plan.Cost || !cheap.Reachable {
		t.Errorf("least cost %v, %v", cheap, err)
	}
	all, err := c.CompareAvailability(ctx, &availabilityv1.CompareAvailabilityRequest{System: system(0.985)})
	if err != nil || len(all.Plans) != 4 {
		t.Fatalf("compared %v, %v", all, err)
	}
	if none, full := all.Plans[0], all.Plans[1]; none.Microservices != 2 || full.Microservices != 4 || none.Availability >= full.Availability {
		t.Errorf("compared %v", all)
	}
	some, err := c.CompareAvailability(ctx, &availabilityv1.CompareAvailabilityRequest{System: &availabilityv1.AvailabilitySystem{Modules: system(0).Modules}})
	if err != nil || len(some.Plans) != 2 {
		t.Errorf("without target and dependencies: %v, %v", some, err)
	}
	study, err := c.ReproduceAvailability(ctx, &availabilityv1.ReproduceAvailabilityRequest{})
	if err != nil || len(study.Table1) != 40 || len(study.Figure9) != 25 || len(study.Figure10) != 25 || len(study.System.Modules) != 10 {
		t.Errorf("study %v, %v", study, err)
	}
	measured := func(what string) {
		t.Helper()
		apptest.Until(t, what, func() bool {
			res, err := a.Admin.Planning.GetMeasuredAvailability(ctx, &availabilityv1.GetMeasuredAvailabilityRequest{Days: 1})
			if err != nil {
				t.Fatal(err)
			}
			return len(res.Roles) == 4 && res.Roles[0].Role == "api" && res.Roles[0].Availability > 0 && res.Roles[0].Instances == 1
		})
	}
	measured("the roles were measured")
	a.Restart()
	measured("a role is the same one after its process came back")
}

func TestRefused(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	ctx := t.Context()
	c := a.Admin.Planning
	refused := func(err error, parts ...string) {
		t.Helper()
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Fatalf("got %v, want it to be refused", err)
		}
		for _, p := range parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("%v does not say %q", err, p)
			}
		}
	}
	bad := system(2)
	bad.Modules[1].Submodules[0].Availability = 7
	_, err := c.PlanAvailability(ctx, &availabilityv1.PlanAvailabilityRequest{System: bad})
	refused(err, "system.target", "system.modules[1].submodules[0].availability", "got 7")
	_, err = c.PlanAvailability(ctx, &availabilityv1.PlanAvailabilityRequest{})
	refused(err, "system.modules")
	_, err = c.PlanAvailability(ctx, &availabilityv1.PlanAvailabilityRequest{System: system(0)})
	refused(err, "system.target")
	_, err = c.PlanAvailability(ctx, &availabilityv1.PlanAvailabilityRequest{System: system(0.9), Method: 9})
	refused(err, "method")
	_, err = c.PlanAvailability(ctx, &availabilityv1.PlanAvailabilityRequest{System: system(0.9), Method: 1, LeastCost: true})
	refused(err, "least_cost")
	large := &availabilityv1.AvailabilitySystem{Modules: make([]*availabilityv1.AvailabilityModule, 1001)}
	_, err = c.CompareAvailability(ctx, &availabilityv1.CompareAvailabilityRequest{System: large})
	refused(err, "system.modules", "got 1001")
	sites := system(0.9)
	for range 5 {
		sites.Sites = append(sites.Sites, &availabilityv1.AvailabilitySite{Name: "s", Availability: 0.9})
	}
	_, err = c.CompareAvailability(ctx, &availabilityv1.CompareAvailabilityRequest{System: sites})
	refused(err, "system.sites", "at most 4")
	_, err = c.GetMeasuredAvailability(ctx, &availabilityv1.GetMeasuredAvailabilityRequest{Days: 401})
	refused(err, "days")
	_, err = c.EvaluateAvailability(ctx, &availabilityv1.EvaluateAvailabilityRequest{System: system(0), Modules: []*availabilityv1.AvailabilitySplit{
		{Name: "trading", Microservices: []*availabilityv1.AvailabilityMicroservice{ms("market", "nobody"), ms()}}}})
	refused(err, "modules[0].microservices[0].submodules[1]", "modules[0].microservices[1].submodules", "matching")
	whole := &availabilityv1.AvailabilitySplit{Name: "trading", Microservices: []*availabilityv1.AvailabilityMicroservice{ms("market", "matching")}}
	_, err = c.EvaluateAvailability(ctx, &availabilityv1.EvaluateAvailabilityRequest{System: system(0), Modules: []*availabilityv1.AvailabilitySplit{whole, whole, {Name: "unknown"}}})
	refused(err, "modules[1].name", "modules[2].name", `"decision" is missing`)
}
