package planning

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	availabilityv1 "yunhe.dev/yunhe/gen/yunhe/availability/v1"
	"yunhe.dev/yunhe/gen/yunhe/availability/v1/availabilityv1connect"
	"yunhe.dev/yunhe/internal/availability"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the service's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(availabilityv1connect.NewAvailabilityServiceHandler(api{s}, srv.Options()...))
}

type api struct{ s *Service }

func (a api) PlanAvailability(ctx context.Context, r *availabilityv1.PlanAvailabilityRequest) (*availabilityv1.AvailabilityPlan, error) {
	method := availability.Aware
	if r.Method != 0 {
		var known bool
		if method, known = methods[r.Method]; !known {
			return nil, fault.Fields(fault.Field{Path: "method", Problem: "must be one of those that are declared, got " + r.Method.String()})
		}
	}
	plan, influences, err := a.s.Plan(ctx, system(r.System), method, r.LeastCost)
	if err != nil {
		return nil, err
	}
	return planOut(plan, influences), nil
}

func (a api) EvaluateAvailability(ctx context.Context, r *availabilityv1.EvaluateAvailabilityRequest) (*availabilityv1.AvailabilityPlan, error) {
	split := make([]availability.ModulePlan, len(r.Modules))
	for i, m := range r.Modules {
		split[i].Name = m.GetName()
		for _, x := range m.GetMicroservices() {
			split[i].Microservices = append(split[i].Microservices, x.GetSubmodules())
		}
	}
	plan, influences, err := a.s.Evaluate(ctx, system(r.System), split)
	if err != nil {
		return nil, err
	}
	return planOut(plan, influences), nil
}

func (a api) CompareAvailability(ctx context.Context, r *availabilityv1.CompareAvailabilityRequest) (*availabilityv1.CompareAvailabilityResponse, error) {
	plans, err := a.s.Compare(ctx, system(r.System))
	if err != nil {
		return nil, err
	}
	out := &availabilityv1.CompareAvailabilityResponse{}
	for _, p := range plans {
		out.Plans = append(out.Plans, planOut(p, nil))
	}
	return out, nil
}

func (a api) ReproduceAvailability(ctx context.Context, _ *availabilityv1.ReproduceAvailabilityRequest) (*availabilityv1.ReproduceAvailabilityResponse, error) {
	r, err := a.s.Reproduce(ctx)
	if err != nil {
		return nil, err
	}
	out := &availabilityv1.ReproduceAvailabilityResponse{System: systemOut(availability.PaperSystem(0.99, 2, 0.9999))}
	for _, c := range r.Table1 {
		cell := &availabilityv1.StudyCell{Method: methodOut(c.Method), Submodule: c.Submodule, Availability: c.Availability / 100, Published: c.Paper / 100,
			Microservices: int32(c.Microservices), Reachable: c.Reachable, Better: c.Better}
		if c.Target != nil {
			cell.Target = *c.Target
		}
		out.Table1 = append(out.Table1, cell)
	}
	out.Figure9, out.Figure10 = counts(r.Figure9), counts(r.Figure10)
	return out, nil
}

func counts(in []availability.Count) []*availabilityv1.StudyCount {
	out := make([]*availabilityv1.StudyCount, len(in))
	for i, c := range in {
		out[i] = &availabilityv1.StudyCount{Backups: int32(c.Backups), Target: c.Target, Submodule: c.Submodule, Microservices: int32(c.Microservices), Availability: c.Availability / 100, Reachable: c.Reachable}
	}
	return out
}

func (a api) GetMeasuredAvailability(ctx context.Context, r *availabilityv1.GetMeasuredAvailabilityRequest) (*availabilityv1.GetMeasuredAvailabilityResponse, error) {
	roles, err := a.s.Measured(ctx, int(r.Days))
	if err != nil {
		return nil, err
	}
	out := &availabilityv1.GetMeasuredAvailabilityResponse{}
	for _, x := range roles {
		out.Roles = append(out.Roles, &availabilityv1.MeasuredRole{Role: x.Name, Availability: x.Each, Any: x.Any, Instances: int32(x.Instances), Failures: int32(x.Failures),
			Since: timestamppb.New(x.Since)})
	}
	return out, nil
}

var methods = map[availabilityv1.AvailabilityMethod]availability.Method{
	availabilityv1.AvailabilityMethod_AVAILABILITY_METHOD_NONE:      availability.None,
	availabilityv1.AvailabilityMethod_AVAILABILITY_METHOD_FULL:      availability.Full,
	availabilityv1.AvailabilityMethod_AVAILABILITY_METHOD_AWARE:     availability.Aware,
	availabilityv1.AvailabilityMethod_AVAILABILITY_METHOD_CLUSTERED: availability.Clustered,
}

// methodOut is unspecified for a split that was given.
func methodOut(m availability.Method) availabilityv1.AvailabilityMethod {
	for out, in := range methods {
		if in == m {
			return out
		}
	}
	return availabilityv1.AvailabilityMethod_AVAILABILITY_METHOD_UNSPECIFIED
}

func system(in *availabilityv1.AvailabilitySystem) *availability.System {
	s := &availability.System{Instances: int(in.GetInstances()), Target: in.GetTarget(), CommonCause: in.GetCommonCause()}
	for _, m := range in.GetModules() {
		mod := availability.Module{Name: m.GetName(), Instances: int(m.GetInstances()), Cost: m.GetCost()}
		for _, x := range m.GetSubmodules() {
			mod.Submodules = append(mod.Submodules, availability.Submodule{Name: x.GetName(), Availability: x.GetAvailability()})
		}
		s.Modules = append(s.Modules, mod)
	}
	for _, x := range in.GetSites() {
		s.Sites = append(s.Sites, availability.Site{Name: x.GetName(), Availability: x.GetAvailability()})
	}
	for _, d := range in.GetDependencies() {
		s.Dependencies = append(s.Dependencies, availability.Dependency{From: d.GetFrom(), To: d.GetTo(), Strength: d.GetStrength()})
	}
	return s
}

func systemOut(s *availability.System) *availabilityv1.AvailabilitySystem {
	out := &availabilityv1.AvailabilitySystem{Instances: int32(s.Instances), Target: s.Target, CommonCause: s.CommonCause}
	for _, m := range s.Modules {
		mod := &availabilityv1.AvailabilityModule{Name: m.Name, Instances: int32(m.Instances), Cost: m.Cost}
		for _, x := range m.Submodules {
			mod.Submodules = append(mod.Submodules, &availabilityv1.AvailabilitySubmodule{Name: x.Name, Availability: x.Availability})
		}
		out.Modules = append(out.Modules, mod)
	}
	for _, d := range s.Dependencies {
		out.Dependencies = append(out.Dependencies, &availabilityv1.AvailabilityDependency{From: d.From, To: d.To, Strength: d.Strength})
	}
	return out
}

func planOut(p *availability.Plan, influences []availability.Influence) *availabilityv1.AvailabilityPlan {
	out := &availabilityv1.AvailabilityPlan{Method: methodOut(p.Method), Microservices: int32(p.Microservices), Availability: p.Availability, Unavailability: p.Unavailability,
		Target: p.Target, Reachable: p.Reachable, Minimal: p.Minimal, AtLeast: int32(p.AtLeast), Cost: p.Cost}
	for _, m := range p.Modules {
		mod := &availabilityv1.PlannedModule{Name: m.Name, Availability: m.Availability, Instances: int32(m.Instances)}
		for _, names := range m.Microservices {
			mod.Microservices = append(mod.Microservices, &availabilityv1.AvailabilityMicroservice{Submodules: names})
		}
		out.Modules = append(out.Modules, mod)
	}
	if p.Advice != nil {
		out.Advice = &availabilityv1.AvailabilityAdvice{Instances: int32(p.Advice.Instances), Submodule: p.Advice.Submodule}
	}
	for _, x := range influences {
		out.Sensitivity = append(out.Sensitivity, &availabilityv1.AvailabilityInfluence{Module: x.Module, Submodule: x.Submodule, Availability: x.Availability, Importance: x.Importance, Gain: x.Gain})
	}
	return out
}
