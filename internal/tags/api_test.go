package tags_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	tagsv1 "yunhe.dev/yunhe/gen/yunhe/tags/v1"
	"yunhe.dev/yunhe/gen/yunhe/tags/v1/tagsv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/rpc"
)

// gate lets everybody in as an operator.
type gate struct{}

func (gate) Authenticate(context.Context, string) (core.Caller, error) {
	return core.Caller{UserID: "op", AllTenants: true, Permissions: map[string]bool{"registry.read": true, "registry.write": true}}, nil
}
func (gate) Audit(context.Context, core.Audit, string, string) error { return nil }

func client(t *testing.T, w *world) tagsv1connect.TagServiceClient {
	t.Helper()
	srv := rpc.New(rpc.Config{Ready: func(context.Context) error { return nil }}, gate{}, prometheus.NewRegistry(), quiet)
	w.Register(srv)
	h, err := srv.Handler()
	must(t, err)
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	c := hs.Client()
	return tagsv1connect.NewTagServiceClient(withKey{c}, hs.URL)
}

// A tag record carries the fields of S Table 11, as the API shows it.
func TestTable11(t *testing.T) {
	t.Parallel()
	ctx := operator(t.Context())
	w := newWorld(t, filepath.Join(t.TempDir(), "yunhe.db"))
	w.library(t, ctx)
	w.join(t, "c1", "north", machine("m1"))
	c := client(t, w)
	st, err := c.ApplyTags(ctx, &tagsv1.ApplyTagsRequest{Selector: &tagsv1.Selector{Kinds: []tagsv1.ObjectKind{tagsv1.ObjectKind_OBJECT_KIND_CENTER}}, Changes: []*tagsv1.TagChange{{Key: "color", Value: "red"}}})
	must(t, err)
	var res *tagsv1.BatchResult
	for st.Receive() {
		res = st.Msg().GetResult()
	}
	if must(t, st.Err()); res == nil || !res.Applied || res.Changed != 1 {
		t.Fatalf("batch = %v", res)
	}
	o, err := c.GetObjectTags(ctx, &tagsv1.GetObjectTagsRequest{Object: "node:c1:m1"})
	must(t, err)
	x := o.Tags[0]
	got := fmt.Sprint(o.Object, " ", x.Key, " ", x.Title, " ", x.GroupId, " ", x.BatchId == res.BatchId, " ", x.Inherited, " ", x.From, " ", x.CreatedAt != nil, " ", x.UpdatedAt != nil, " ", x.PolicyMatchable, " ", x.Source, " ", x.Status, " ", x.Operations)
	want := "node:c1:m1 color color g true true center:c1 true true true SOURCE_PERSON TAG_STATUS_ACTIVE [set block]"
	if got != want {
		t.Errorf("record = %s, want %s", got, want)
	}
	d, err := c.GetTag(ctx, &tagsv1.GetTagRequest{Key: "color"})
	must(t, err)
	if fmt.Sprint(d.Operations, d.Status, d.Inherited, d.Objects) != "[set update delete share] TAG_STATUS_ACTIVE true 1" {
		t.Errorf("tag = %v", d)
	}
	check, err := c.CheckExpression(ctx, &tagsv1.CheckExpressionRequest{Kind: tagsv1.ObjectKind_OBJECT_KIND_NODE, Object: "node:c1:m1", Expression: `"H800" in models`})
	must(t, err)
	if !check.Holds || check.Facts.Fields["main_model"].GetStringValue() != "H800" || len(check.Variables) < 10 {
		t.Errorf("checked = %v", check)
	}
}

// withKey sends a key, which the gate lets in.
type withKey struct{ c *http.Client }

func (k withKey) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer any")
	return k.c.Do(r)
}
