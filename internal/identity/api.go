package identity

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	"yunhe.dev/yunhe/gen/yunhe/identity/v1/identityv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/rpc"
)

var _ rpc.Gate = (*Service)(nil)

// Register mounts the service's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(identityv1connect.NewIdentityServiceHandler(api{s}, srv.Options()...))
}

type api struct{ s *Service }

func (a api) WhoAmI(ctx context.Context, _ *identityv1.WhoAmIRequest) (*identityv1.WhoAmIResponse, error) {
	caller := core.CallerFrom(ctx)
	u, err := a.s.GetUser(ctx, caller.UserID)
	if err != nil {
		return nil, err
	}
	return &identityv1.WhoAmIResponse{User: userProto(u), KeyId: caller.KeyID, Permissions: slices.Sorted(maps.Keys(caller.Permissions))}, nil
}

func (a api) CreateTenant(ctx context.Context, r *identityv1.CreateTenantRequest) (*identityv1.Tenant, error) {
	t, err := a.s.CreateTenant(ctx, Tenant{ID: r.GetTenant().GetTenantId(), Name: r.GetTenant().GetName()})
	if err != nil {
		return nil, err
	}
	return tenantProto(t), nil
}

func (a api) ListTenants(ctx context.Context, r *identityv1.ListTenantsRequest) (*identityv1.ListTenantsResponse, error) {
	rows, next, err := a.s.ListTenants(ctx, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &identityv1.ListTenantsResponse{Tenants: each(rows, tenantProto), NextPageToken: next}, nil
}

func (a api) CreateUser(ctx context.Context, r *identityv1.CreateUserRequest) (*identityv1.User, error) {
	p := r.GetUser()
	u, err := a.s.CreateUser(ctx, User{ID: p.GetUserId(), TenantID: p.GetTenantId(), Name: p.GetName(), Role: roles[p.GetRole()]})
	if err != nil {
		return nil, err
	}
	return userProto(u), nil
}

func (a api) ListUsers(ctx context.Context, r *identityv1.ListUsersRequest) (*identityv1.ListUsersResponse, error) {
	rows, next, err := a.s.ListUsers(ctx, r.GetTenantId(), r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &identityv1.ListUsersResponse{Users: each(rows, userProto), NextPageToken: next}, nil
}

func (a api) CreateKey(ctx context.Context, r *identityv1.CreateKeyRequest) (*identityv1.CreateKeyResponse, error) {
	k, secret, err := a.s.CreateKey(ctx, NewKey{UserID: r.GetUserId(), Note: r.GetNote(), TTLSeconds: r.GetTtlSeconds()})
	if err != nil {
		return nil, err
	}
	return &identityv1.CreateKeyResponse{Key: keyProto(k), Secret: secret}, nil
}

func (a api) ListKeys(ctx context.Context, r *identityv1.ListKeysRequest) (*identityv1.ListKeysResponse, error) {
	rows, next, err := a.s.ListKeys(ctx, r.GetUserId(), r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &identityv1.ListKeysResponse{Keys: each(rows, keyProto), NextPageToken: next}, nil
}

func (a api) RevokeKey(ctx context.Context, r *identityv1.RevokeKeyRequest) (*identityv1.RevokeKeyResponse, error) {
	return &identityv1.RevokeKeyResponse{}, a.s.RevokeKey(ctx, r.GetKeyId())
}

func (a api) ListAuditEvents(ctx context.Context, r *identityv1.ListAuditEventsRequest) (*identityv1.ListAuditEventsResponse, error) {
	rows, next, err := a.s.ListEvents(ctx, EventFilter{UserID: r.GetUserId(), Method: r.GetMethod()}, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &identityv1.ListAuditEventsResponse{Events: each(rows, eventProto), NextPageToken: next}, nil
}

var roles = map[identityv1.Role]Role{
	identityv1.Role_ROLE_ADMIN: Admin, identityv1.Role_ROLE_OPERATOR: Operator,
	identityv1.Role_ROLE_USER: Member, identityv1.Role_ROLE_AUDITOR: Auditor,
}

func roleProto(r Role) identityv1.Role {
	for p, x := range roles {
		if x == r {
			return p
		}
	}
	return identityv1.Role_ROLE_UNSPECIFIED
}

func tenantProto(t Tenant) *identityv1.Tenant {
	return &identityv1.Tenant{TenantId: t.ID, Name: t.Name, CreatedAt: stamp(t.CreatedAt)}
}

func userProto(u User) *identityv1.User {
	return &identityv1.User{UserId: u.ID, TenantId: u.TenantID, Name: u.Name, Role: roleProto(u.Role), CreatedAt: stamp(u.CreatedAt)}
}

func keyProto(k Key) *identityv1.Key {
	return &identityv1.Key{
		KeyId: k.ID, UserId: k.UserID, TenantId: k.TenantID, Note: k.Note,
		CreatedAt: stamp(k.CreatedAt), ExpiresAt: stamp(k.ExpiresAt), RevokedAt: stamp(k.RevokedAt),
	}
}

func eventProto(e Event) *identityv1.AuditEvent {
	return &identityv1.AuditEvent{
		EventId: e.ID, At: stamp(e.At), TenantId: e.TenantID, UserId: e.UserID, KeyId: e.KeyID,
		Method: e.Method, Subject: e.Subject, Outcome: e.Outcome, Remote: e.Remote,
	}
}

// stamp is unset for no time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func each[T, P any](rows []T, f func(T) P) []P {
	out := make([]P, len(rows))
	for i, r := range rows {
		out[i] = f(r)
	}
	return out
}
