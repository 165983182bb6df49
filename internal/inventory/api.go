package inventory

import (
	"context"
	"encoding/base64"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/gen/yunhe/registry/v1/registryv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory/identifier"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the service's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(registryv1connect.NewResourceServiceHandler(api{s}, srv.Options()...))
}

type api struct{ s *Service }

func (a api) ListResourceTypes(context.Context, *registryv1.ListResourceTypesRequest) (*registryv1.ListResourceTypesResponse, error) {
	out := &registryv1.ListResourceTypesResponse{}
	for _, t := range Types() {
		out.Types = append(out.Types, &registryv1.ResourceType{
			Type: t.Name, Title: t.Title, Clause: t.Clause, Parents: t.Parents, Requires: t.Requires, ReadOnly: t.ReadOnly, Schema: string(t.Schema),
		})
	}
	return out, nil
}

func (a api) CreateResource(ctx context.Context, r *registryv1.CreateResourceRequest) (*registryv1.Resource, error) {
	return resourceAnswer(a.s.Create(ctx, resourceOf(r.GetResource())))
}

func (a api) GetResource(ctx context.Context, r *registryv1.GetResourceRequest) (*registryv1.Resource, error) {
	return resourceAnswer(a.s.Get(ctx, r.GetResourceId()))
}

func (a api) ListResources(ctx context.Context, r *registryv1.ListResourcesRequest) (*registryv1.ListResourcesResponse, error) {
	f := Filter{
		Type: r.GetType(), ParentID: r.GetParentId(), PlatformID: r.GetPlatformId(), CenterID: r.GetAiCenterId(), Region: r.GetRegion(),
		State: State(r.GetState()), Labels: r.GetLabels(), Attributes: r.GetAttributes(),
	}
	rows, next, err := a.s.List(ctx, f, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &registryv1.ListResourcesResponse{NextPageToken: next}
	for i := range rows {
		p, err := resourceProto(&rows[i])
		if err != nil {
			return nil, err
		}
		out.Resources = append(out.Resources, p)
	}
	return out, nil
}

func (a api) GetResourceTree(ctx context.Context, r *registryv1.GetResourceTreeRequest) (*registryv1.ResourceTree, error) {
	t, err := a.s.GetTree(ctx, r.GetResourceId(), r.GetDepth(), r.GetWidth())
	if err != nil {
		return nil, err
	}
	return treeProto(t)
}

func (a api) UpdateResource(ctx context.Context, r *registryv1.UpdateResourceRequest) (*registryv1.Resource, error) {
	return resourceAnswer(a.s.Update(ctx, resourceOf(r.GetResource())))
}

func (a api) MoveResource(ctx context.Context, r *registryv1.MoveResourceRequest) (*registryv1.Resource, error) {
	return resourceAnswer(a.s.Move(ctx, r.GetResourceId(), r.GetParentId()))
}

func (a api) DeleteResource(ctx context.Context, r *registryv1.DeleteResourceRequest) (*registryv1.DeleteResourceResponse, error) {
	if r.GetVersion() < 0 {
		return nil, fault.Fields(fault.Field{Path: "version", Problem: "must be 0 or more"})
	}
	return &registryv1.DeleteResourceResponse{}, a.s.Delete(ctx, r.GetResourceId(), r.GetVersion())
}

func (a api) ApplyResources(ctx context.Context, r *registryv1.ApplyResourcesRequest) (*registryv1.ApplyResourcesResponse, error) {
	batch := make([]Resource, len(r.GetResources()))
	for i, p := range r.GetResources() {
		batch[i] = resourceOf(p)
	}
	results, applied, err := a.s.Apply(ctx, batch, r.GetDryRun())
	if err != nil {
		return nil, err
	}
	out := &registryv1.ApplyResourcesResponse{Applied: applied}
	for _, x := range results {
		p := &registryv1.ApplyResult{ResourceId: x.ID, Outcome: registryv1.ApplyOutcome(x.Outcome), Version: x.Version, ParentMissing: x.ParentMissing}
		for _, v := range x.Violations {
			p.Violations = append(p.Violations, &registryv1.Violation{Field: v.Field, Problem: v.Problem})
		}
		out.Results = append(out.Results, p)
	}
	return out, nil
}

func (a api) IssueIdentifier(ctx context.Context, r *registryv1.IssueIdentifierRequest) (*registryv1.Identifier, error) {
	return identifierAnswer(a.s.Issue(ctx, r.GetResourceId(), formOf(r.GetForm()), r.GetAvailabilityZone()))
}

func (a api) RevokeIdentifier(ctx context.Context, r *registryv1.RevokeIdentifierRequest) (*registryv1.Identifier, error) {
	return identifierAnswer(a.s.Revoke(ctx, r.GetIdentifier(), r.GetReason()))
}

func (a api) ListIdentifiers(ctx context.Context, r *registryv1.ListIdentifiersRequest) (*registryv1.ListIdentifiersResponse, error) {
	rows, next, err := a.s.ListIdentifiers(ctx, r.GetResourceId(), r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &registryv1.ListIdentifiersResponse{NextPageToken: next}
	for i := range rows {
		out.Identifiers = append(out.Identifiers, identifierProto(&rows[i]))
	}
	return out, nil
}

func (a api) VerifyIdentifier(ctx context.Context, r *registryv1.VerifyIdentifierRequest) (*registryv1.IdentifierVerification, error) {
	var c core.Check
	if c.Text("identifier", r.GetIdentifier(), true, 4*identifier.MaxLength, 0); len(r.GetRegistrationCode()) > maxCode {
		c.Add("registration_code", "must be at most %d characters, got %d", maxCode, len(r.GetRegistrationCode()))
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	v, err := a.s.Verify(ctx, r.GetIdentifier(), r.GetRegistrationCode())
	if err != nil {
		return nil, err
	}
	out := &registryv1.IdentifierVerification{
		Identifier: v.Identifier, WellFormed: v.Problem == "", Problem: v.Problem, Status: registryv1.IdentifierStatus(v.Standing),
		CodeValid: v.CodeValid, CodeProblem: v.CodeProblem,
	}
	if v.Problem == "" {
		out.Form = formProto(v.Form)
	}
	if x := v.Issued; x != nil {
		out.ResourceId, out.AvailabilityZone, out.RevocationReason = x.ResourceID, x.Zone, x.Reason
		out.IssuedAt, out.RevokedAt = stamp(x.IssuedAt), stamp(x.RevokedAt)
	}
	return out, nil
}

func (a api) ListIdentifierKeys(ctx context.Context, _ *registryv1.ListIdentifierKeysRequest) (*registryv1.ListIdentifierKeysResponse, error) {
	keys, err := a.s.Keys(ctx)
	if err != nil {
		return nil, err
	}
	out := &registryv1.ListIdentifierKeysResponse{}
	for _, k := range keys {
		out.Keys = append(out.Keys, &registryv1.IdentifierKey{Kid: k.ID, Kty: "OKP", Crv: "Ed25519", Alg: "EdDSA", X: base64.RawURLEncoding.EncodeToString(k.Public)})
	}
	return out, nil
}

// resourceOf takes what a caller may say about a resource; the rest of the
// message is output.
func resourceOf(p *registryv1.Resource) Resource {
	return Resource{
		ID: p.GetResourceId(), Type: p.GetType(), Name: p.GetName(), ParentID: p.GetParentId(), PlatformID: p.GetPlatformId(), CenterID: p.GetAiCenterId(),
		TenantID: p.GetTenantId(), Region: p.GetRegion(), Provider: p.GetServiceProvider(), State: State(p.GetState()),
		Attributes: p.GetAttributes().AsMap(), Labels: p.GetLabels(), Version: p.GetVersion(),
	}
}

func resourceProto(r *Resource) (*registryv1.Resource, error) {
	attributes, err := structpb.NewStruct(r.Attributes)
	if err != nil {
		return nil, err
	}
	return &registryv1.Resource{
		ResourceId: r.ID, Type: r.Type, Name: r.Name, ParentId: r.ParentID, PlatformId: r.PlatformID, AiCenterId: r.CenterID, TenantId: r.TenantID,
		Region: r.Region, ServiceProvider: r.Provider, State: registryv1.ResourceState(r.State), Attributes: attributes, Labels: r.Labels, Version: r.Version,
		CreatedAt: stamp(r.CreatedAt), UpdatedAt: stamp(r.UpdatedAt), Children: r.Children, Identifier: r.Identifier,
	}, nil
}

func resourceAnswer(r Resource, err error) (*registryv1.Resource, error) {
	if err != nil {
		return nil, err
	}
	return resourceProto(&r)
}

func treeProto(t *Tree) (*registryv1.ResourceTree, error) {
	out := &registryv1.ResourceTree{More: t.More}
	if t.Resource != nil {
		var err error
		if out.Resource, err = resourceProto(t.Resource); err != nil {
			return nil, err
		}
	}
	for _, c := range t.Children {
		p, err := treeProto(c)
		if err != nil {
			return nil, err
		}
		out.Children = append(out.Children, p)
	}
	return out, nil
}

func formOf(p *registryv1.IdentifierForm) identifier.Form {
	return identifier.Form{
		City: p.GetCity(), Industry: p.GetIndustry(), Enterprise: p.GetEnterprise(), ResourceType: p.GetResourceType(), DataCenter: p.GetDataCenter(),
		ServiceType: p.GetServiceType(), Capability: p.GetComputeCapability(), Storage: p.GetStorageCapacity(), Network: p.GetNetworkConfiguration(),
		ChipType: p.GetChipType(), ChipNumber: p.GetChipNumber(),
	}
}

func formProto(f identifier.Form) *registryv1.IdentifierForm {
	return &registryv1.IdentifierForm{
		City: f.City, Industry: f.Industry, Enterprise: f.Enterprise, ResourceType: f.ResourceType, DataCenter: f.DataCenter, ServiceType: f.ServiceType,
		ComputeCapability: f.Capability, StorageCapacity: f.Storage, NetworkConfiguration: f.Network, ChipType: f.ChipType, ChipNumber: f.ChipNumber,
	}
}

func identifierProto(x *Identifier) *registryv1.Identifier {
	return &registryv1.Identifier{
		Identifier: x.Identifier, ResourceId: x.ResourceID, Form: formProto(x.Form), AvailabilityZone: x.Zone, RegistrationCode: x.Code,
		IssuedAt: stamp(x.IssuedAt), RevokedAt: stamp(x.RevokedAt), RevocationReason: x.Reason,
	}
}

func identifierAnswer(x Identifier, err error) (*registryv1.Identifier, error) {
	if err != nil {
		return nil, err
	}
	return identifierProto(&x), nil
}

// stamp is unset for no time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
