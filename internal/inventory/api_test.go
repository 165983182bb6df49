package inventory_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/gen/yunhe/registry/v1/registryv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
)

// gate knows the callers "op" (operator) and "ro" (of tenant t1, reads only).
type gate struct{}

func (gate) Authenticate(_ context.Context, token string) (core.Caller, error) {
	switch token {
	case "op":
		return core.Caller{UserID: "op", TenantID: "default", AllTenants: true, Permissions: map[string]bool{"registry.read": true, "registry.write": true}}, nil
	case "ro":
		return core.Caller{UserID: "ro", TenantID: "t1", Permissions: map[string]bool{"registry.read": true}}, nil
	}
	return core.Caller{}, fault.New(fault.Unauthenticated, "who are you?")
}
func (gate) Audit(context.Context, core.Audit, string, string) error { return nil }

func (w *world) serve(t *testing.T) (as func(token string) registryv1connect.ResourceServiceClient, base string) {
	t.Helper()
	srv := rpc.New(rpc.Config{Ready: func(context.Context) error { return nil }}, gate{}, prometheus.NewRegistry(), quiet)
	w.Register(srv)
	h, err := srv.Handler()
	must(t, err)
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	return func(token string) registryv1connect.ResourceServiceClient {
		return registryv1connect.NewResourceServiceClient(hs.Client(), hs.URL, connect.WithInterceptors(connect.UnaryInterceptorFunc(
			func(next connect.UnaryFunc) connect.UnaryFunc {
				return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
					req.Header().Set("Authorization", "Bearer "+token)
					return next(ctx, req)
				}
			})))
	}, hs.URL
}

func message[M proto.Message](t *testing.T, m M, json string) M {
	t.Helper()
	must(t, protojson.Unmarshal([]byte(json), m))
	return m
}

// wantMessage compares a message with its JSON form.
func wantMessage(t *testing.T, what string, got proto.Message, wantJSON string) {
	t.Helper()
	want := message(t, got.ProtoReflect().New().Interface(), wantJSON)
	if !proto.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, protojson.Format(got), protojson.Format(want))
	}
}

const (
	stamps = `"createdAt":"2030-01-02T03:04:05Z","updatedAt":"2030-01-02T03:04:05Z"`
	gpu    = `"resourceId":"g1","type":"compute","name":"八卡","parentId":"p1","region":"guizhou","serviceProvider":"Example",
		"attributes":{"supply_mode":"bare_metal","chip_type":"GPU","chip_arch":"Hopper","chip_model":"H800","count":8,"serial_number":"sn-1","extra":{"rack":"7"}},"labels":{"a":"b"}`
)

func TestAPI(t *testing.T) {
	each(t, func(t *testing.T, _ context.Context, w *world) {
		as, base := w.serve(t)
		ctx, c := t.Context(), as("op")
		w.join(t, "c1", "north", machine("m1", 1))

		types, err := c.ListResourceTypes(ctx, &registryv1.ListResourceTypesRequest{})
		must(t, err)
		if len(types.GetTypes()) != 8 || !strings.Contains(types.GetTypes()[4].GetSchema(), `"chip_arch"`) || !types.GetTypes()[2].GetReadOnly() {
			t.Errorf("types = %v", types)
		}
		_, err = c.CreateResource(ctx, message(t, &registryv1.CreateResourceRequest{}, `{"resource":{"resourceId":"p1","type":"platform","attributes":{"level":"hub","managed_compute_types":["general"]}}}`))
		must(t, err)
		record := gpu + `,"platformId":"p1","state":"RESOURCE_STATE_AVAILABLE","version":"1",` + stamps
		got, err := c.CreateResource(ctx, message(t, &registryv1.CreateResourceRequest{}, `{"resource":{`+gpu+`,"state":"RESOURCE_STATE_AVAILABLE","children":"9","identifier":"mine"}}`))
		must(t, err)
		wantMessage(t, "created", got, "{"+record+"}")
		got, err = c.GetResource(ctx, &registryv1.GetResourceRequest{ResourceId: "g1"})
		must(t, err)
		wantMessage(t, "read", got, "{"+record+"}")
		list, err := c.ListResources(ctx, &registryv1.ListResourcesRequest{Type: "compute", ParentId: "p1", PlatformId: "p1", Region: "guizhou", State: registryv1.ResourceState_RESOURCE_STATE_AVAILABLE, Labels: []string{"a"}})
		must(t, err)
		wantMessage(t, "listed", list, `{"resources":[{`+record+`}]}`)
		tree, err := c.GetResourceTree(ctx, &registryv1.GetResourceTreeRequest{ResourceId: "p1"})
		must(t, err)
		if len(tree.GetChildren()) != 1 || tree.GetChildren()[0].GetResource().GetResourceId() != "g1" || tree.GetResource().GetChildren() != 1 {
			t.Errorf("tree = %v", tree)
		}
		got.Labels["a"] = "c"
		got, err = c.UpdateResource(ctx, &registryv1.UpdateResourceRequest{Resource: got})
		must(t, err)
		same(t, "version", got.GetVersion(), int64(2))
		moved, err := c.MoveResource(ctx, &registryv1.MoveResourceRequest{ResourceId: "g1", ParentId: "node:c1:m1"})
		must(t, err)
		same(t, "moved", moved.GetParentId()+" "+moved.GetAiCenterId()+" "+moved.GetPlatformId(), "node:c1:m1 c1 ")
		res, err := c.ApplyResources(ctx, message(t, &registryv1.ApplyResourcesRequest{}, `{"resources":[{"resourceId":"x","type":"compute"},{"resourceId":"y","type":"security","parentId":"later","attributes":{"security_type":"waf"}}]}`))
		must(t, err)
		wantMessage(t, "refused batch", res, `{"results":[
			{"resourceId":"x","outcome":"APPLY_OUTCOME_REFUSED","violations":[{"field":"attributes.supply_mode","problem":"is required"},{"field":"attributes.chip_type","problem":"is required"},
				{"field":"attributes.chip_arch","problem":"is required"},{"field":"attributes.chip_model","problem":"is required"}]},
			{"resourceId":"y","outcome":"APPLY_OUTCOME_REFUSED","violations":[{"field":"parent_id","problem":"there is no resource later"}],"parentMissing":true}]}`)

		x, err := c.IssueIdentifier(ctx, message(t, &registryv1.IssueIdentifierRequest{}, `{"resourceId":"g1","availabilityZone":"z1","form":{"city":"520100","industry":"I65","enterprise":"91350100M000100Y43",
			"resourceType":"IC","dataCenter":"GA1","serviceType":"BM"}}`))
		must(t, err)
		v, err := c.VerifyIdentifier(ctx, &registryv1.VerifyIdentifierRequest{Identifier: x.GetIdentifier(), RegistrationCode: x.GetRegistrationCode()})
		must(t, err)
		wantMessage(t, "verification", v, `{"identifier":"`+x.GetIdentifier()+`","wellFormed":true,"status":"IDENTIFIER_STATUS_VALID","resourceId":"g1","availabilityZone":"z1","issuedAt":"2030-01-02T03:04:05Z","codeValid":true,
			"form":{"city":"520100","industry":"I65","enterprise":"91350100M000100Y43","resourceType":"IC","dataCenter":"GA1","serviceType":"BM","computeCapability":"0","storageCapacity":"0","networkConfiguration":"0","chipType":"GPU","chipNumber":"SN1"}}`)
		// The same over REST, the code as a parameter.
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/identifiers/"+url.PathEscape(x.GetIdentifier())+"/verification?registrationCode="+url.QueryEscape(x.GetRegistrationCode()), nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer ro")
		hr, err := http.DefaultClient.Do(req)
		must(t, err)
		body, err := io.ReadAll(hr.Body)
		must(t, err)
		must(t, hr.Body.Close())
		if !strings.Contains(string(body), `"codeValid":true`) || hr.StatusCode != http.StatusOK {
			t.Errorf("REST verification: %s %s", hr.Status, body)
		}
		keys, err := c.ListIdentifierKeys(ctx, &registryv1.ListIdentifierKeysRequest{})
		must(t, err)
		if len(keys.GetKeys()) != 1 || keys.GetKeys()[0].GetCrv() != "Ed25519" {
			t.Errorf("keys = %v", keys)
		}
		rev, err := c.RevokeIdentifier(ctx, &registryv1.RevokeIdentifierRequest{Identifier: x.GetIdentifier(), Reason: "sold"})
		must(t, err)
		all, err := c.ListIdentifiers(ctx, &registryv1.ListIdentifiersRequest{ResourceId: "g1"})
		must(t, err)
		if len(all.GetIdentifiers()) != 1 || !proto.Equal(all.GetIdentifiers()[0], rev) || rev.GetRevocationReason() != "sold" {
			t.Errorf("revoked %v, listed %v", rev, all)
		}
		_, err = c.DeleteResource(ctx, &registryv1.DeleteResourceRequest{ResourceId: "g1", Version: moved.GetVersion()})
		must(t, err)
	})
}

// Whoever may only read is refused every change, and a stranger everything.
func TestAPIPermissions(t *testing.T) {
	each(t, func(t *testing.T, _ context.Context, w *world) {
		as, _ := w.serve(t)
		ctx := t.Context()
		calls := map[string]func(c registryv1connect.ResourceServiceClient) error{
			"create": func(c registryv1connect.ResourceServiceClient) error {
				_, err := c.CreateResource(ctx, &registryv1.CreateResourceRequest{})
				return err
			},
			"update": func(c registryv1connect.ResourceServiceClient) error {
				_, err := c.UpdateResource(ctx, &registryv1.UpdateResourceRequest{})
				return err
			},
			"move": func(c registryv1connect.ResourceServiceClient) error {
				_, err := c.MoveResource(ctx, &registryv1.MoveResourceRequest{})
				return err
			},
			"delete": func(c registryv1connect.ResourceServiceClient) error {
				_, err := c.DeleteResource(ctx, &registryv1.DeleteResourceRequest{})
				return err
			},
			"apply": func(c registryv1connect.ResourceServiceClient) error {
				_, err := c.ApplyResources(ctx, &registryv1.ApplyResourcesRequest{})
				return err
			},
			"issue": func(c registryv1connect.ResourceServiceClient) error {
				_, err := c.IssueIdentifier(ctx, &registryv1.IssueIdentifierRequest{})
				return err
			},
			"revoke": func(c registryv1connect.ResourceServiceClient) error {
				_, err := c.RevokeIdentifier(ctx, &registryv1.RevokeIdentifierRequest{})
				return err
			},
		}
		for name, call := range calls {
			for token, want := range map[string]connect.Code{"ro": connect.CodePermissionDenied, "stranger": connect.CodeUnauthenticated, "op": connect.CodeInvalidArgument} {
				if err := call(as(token)); connect.CodeOf(err) != want {
					t.Errorf("%s as %s: %v, want %v", name, token, err, want)
				}
			}
		}
		if _, err := as("ro").ListResources(ctx, &registryv1.ListResourcesRequest{}); err != nil {
			t.Errorf("reading: %v", err)
		}
	})
}
