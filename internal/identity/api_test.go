package identity_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	"yunhe.dev/yunhe/gen/yunhe/identity/v1/identityv1connect"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/rpc"
)

// bearer sends a key with every call.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// serve returns a client of the API with the key.
func (w *world) serve(t *testing.T) func(key string) identityv1connect.IdentityServiceClient {
	t.Helper()
	srv := rpc.New(rpc.Config{Ready: func(context.Context) error { return nil }}, w, prometheus.NewRegistry(), quiet)
	w.Register(srv)
	h, err := srv.Handler()
	must(t, err)
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	return func(key string) identityv1connect.IdentityServiceClient {
		return identityv1connect.NewIdentityServiceClient(&http.Client{Transport: bearer(key)}, hs.URL)
	}
}

func TestAPI(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		key := w.bootstrap(t, t.TempDir())
		client := w.serve(t)
		admin := client(key)

		me, err := admin.WhoAmI(ctx, &identityv1.WhoAmIRequest{})
		must(t, err)
		if me.GetUser().GetUserId() != "admin" || me.GetUser().GetRole() != identityv1.Role_ROLE_ADMIN || me.GetKeyId() != key[3:11] || !slices.Equal(me.GetPermissions(), identity.Permissions()) {
			t.Errorf("who am I = %v", me)
		}
		tenant, err := admin.CreateTenant(ctx, &identityv1.CreateTenantRequest{Tenant: &identityv1.Tenant{TenantId: "acme", Name: "Acme"}})
		must(t, err)
		if tenant.GetName() != "Acme" || !tenant.GetCreatedAt().AsTime().Equal(w.clock.now()) {
			t.Errorf("tenant = %v", tenant)
		}
		for p, r := range map[identityv1.Role]string{
			identityv1.Role_ROLE_ADMIN: "a", identityv1.Role_ROLE_OPERATOR: "o", identityv1.Role_ROLE_USER: "u", identityv1.Role_ROLE_AUDITOR: "r",
		} {
			u, err := admin.CreateUser(ctx, &identityv1.CreateUserRequest{User: &identityv1.User{UserId: r, TenantId: "acme", Role: p}})
			must(t, err)
			if u.GetRole() != p || u.GetName() != r {
				t.Errorf("user = %v, want role %v", u, p)
			}
		}
		_, err = admin.CreateUser(ctx, &identityv1.CreateUserRequest{User: &identityv1.User{UserId: "x", TenantId: "acme"}})
		wantCode(t, "no role", err, connect.CodeInvalidArgument)

		made, err := admin.CreateKey(ctx, &identityv1.CreateKeyRequest{UserId: "u", Note: "ci", TtlSeconds: 60})
		must(t, err)
		if k := made.GetKey(); k.GetUserId() != "u" || k.GetTenantId() != "acme" || k.GetNote() != "ci" || k.GetExpiresAt().AsTime().Sub(w.clock.now()).Seconds() != 60 || k.GetRevokedAt() != nil {
			t.Errorf("key = %v", k)
		}
		user := client(made.GetSecret())
		_, err = user.CreateTenant(ctx, &identityv1.CreateTenantRequest{Tenant: &identityv1.Tenant{TenantId: "t"}})
		wantCode(t, "a user creates a tenant", err, connect.CodePermissionDenied)
		_, err = user.ListAuditEvents(ctx, &identityv1.ListAuditEventsRequest{})
		wantCode(t, "a user reads the audit trail", err, connect.CodePermissionDenied)
		_, err = user.RevokeKey(ctx, &identityv1.RevokeKeyRequest{KeyId: key[3:11]})
		wantCode(t, "a user revokes the admin's key", err, connect.CodeNotFound)
		keys, err := user.ListKeys(ctx, &identityv1.ListKeysRequest{})
		must(t, err)
		if len(keys.GetKeys()) != 1 || keys.GetKeys()[0].GetKeyId() != made.GetKey().GetKeyId() {
			t.Errorf("own keys = %v", keys)
		}
		_, err = user.RevokeKey(ctx, &identityv1.RevokeKeyRequest{KeyId: made.GetKey().GetKeyId()})
		must(t, err)
		_, err = user.WhoAmI(ctx, &identityv1.WhoAmIRequest{})
		wantCode(t, "a revoked key", err, connect.CodeUnauthenticated)

		users, err := admin.ListUsers(ctx, &identityv1.ListUsersRequest{TenantId: "acme", PageSize: 3})
		must(t, err)
		more, err := admin.ListUsers(ctx, &identityv1.ListUsersRequest{TenantId: "acme", PageSize: 3, PageToken: users.GetNextPageToken()})
		must(t, err)
		if len(users.GetUsers()) != 3 || len(more.GetUsers()) != 1 || more.GetNextPageToken() != "" {
			t.Errorf("pages of users = %v and %v", users, more)
		}
		tenants, err := admin.ListTenants(ctx, &identityv1.ListTenantsRequest{})
		must(t, err)
		if len(tenants.GetTenants()) != 2 {
			t.Errorf("tenants = %v", tenants)
		}

		// Every change above left exactly one event, with its outcome.
		events, err := admin.ListAuditEvents(ctx, &identityv1.ListAuditEventsRequest{UserId: "u"})
		must(t, err)
		var got []string
		for _, e := range events.GetEvents() {
			got = append(got, e.GetMethod()[len("yunhe.identity.v1.IdentityService/"):]+" "+e.GetSubject()+" "+e.GetOutcome())
			if e.GetRemote() == "" || e.GetTenantId() != "acme" || e.GetKeyId() != made.GetKey().GetKeyId() || e.GetAt() == nil || e.GetEventId() == "" {
				t.Errorf("event = %v, want who and whence", e)
			}
		}
		slices.Sort(got)
		id := made.GetKey().GetKeyId()
		want := []string{"CreateTenant  PERMISSION_DENIED", "RevokeKey " + id + " OK", "RevokeKey " + key[3:11] + " NOT_FOUND"}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("events of u = %q, want %q", got, want)
		}
		count, err := admin.ListAuditEvents(ctx, &identityv1.ListAuditEventsRequest{UserId: "admin", Method: "yunhe.identity.v1.IdentityService/CreateUser"})
		must(t, err)
		if len(count.GetEvents()) != 5 {
			t.Errorf("%d events of five calls to CreateUser: %v", len(count.GetEvents()), count)
		}
	})
}

func wantCode(t *testing.T, what string, err error, want connect.Code) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != want {
		t.Errorf("%s: error = %v, want code %v", what, err, want)
	}
}
